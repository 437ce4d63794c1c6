//! The search for one option: short runs that choose how the protocol is set, a longer one judged.
//!
//! The first setting follows from the rate and the time that an event takes (bandwidth times
//! delay). What limits a run then says what to try next: fewer messages for busy processors, more
//! credits for events that wait, fewer for buffers that overflow. A run has more triggers than it
//! can build; only where it loses packets for every setting are triggers given at chosen rates.

use std::cell::Cell;

use super::candidate::{Candidate, Sending};
use super::option::{Bottleneck, PlanOption, Verdict};
use super::{EVENTS_USUAL, PlanRequest, PlanRun};
use crate::builder_network::{BuilderNetwork, Control, HostModel, HostShares, Shaping};
use crate::network::measure::BATCHES;
use crate::network::{Arrival, Estimate, Load, Pattern, Topology, Traffic};
use crate::scenario::Switching;
use crate::time::DurationPs;

/// Short runs of a search at most.
const TRIALS_MAX: usize = 5;
/// Share of the time from which something is busy enough to be what limits.
const BUSY: f64 = 0.9;
/// A setting is better from this factor on.
const BETTER: f64 = 1.03;
/// A capacity of so many times the rate is enough to stop looking for more.
const AMPLE: f64 = 1.2;
/// The most credits that are tried.
const CREDITS_MAX: u32 = 1024;
/// Fragments of a short and of a judged run at most, unless there are many nodes.
const FRAGMENTS: [u64; 2] = [200_000, 2_000_000];
/// Packets of a run with a barrel shifter at most, empty blocks included, unless events take longer.
const BLOCKS_MAX: f64 = 4e6;
/// Rates at which a lossy network is looked at, as shares of the one asked for.
const LOSSY_RATES: [f64; 5] = [2.0, 1.25, 1.0, 0.5, 0.25];
/// Share of the offered triggers that is built where a rate is carried.
const CARRIED: f64 = 0.99;

/// How the protocol is set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Setting {
    credits: u32,
    requests_per_message: u32,
    interval: DurationPs,
}

/// A run.
#[derive(Debug, Clone)]
struct Trial {
    setting: Setting,
    rate: Estimate,
    events: u64,
    lost: u64,
    /// What should never happen.
    violation: Option<String>,
    bottleneck: Bottleneck,
}

/// What is to be run.
#[derive(Debug, Clone, Copy)]
struct Length {
    /// Events to be counted.
    events: u64,
    /// Fragments that it may usually take.
    fragments_max: u64,
    /// Times as many fragments, and blocks of a barrel shifter, as usual.
    longer: f64,
    /// Rate that is expected, hertz.
    expected_hz: f64,
    /// Parts of the run, each of whole intervals at which builder units look for work: else parts
    /// would differ by what comes at once after an interval.
    parts: u64,
}

/// The search for an option.
struct Search<'p> {
    request: &'p PlanRequest,
    sending: Sending,
    candidate: &'p Candidate,
    topology: Topology,
    /// Who is told of each run, and how many there were.
    hear: &'p dyn Fn(&PlanRun<'_>),
    runs: Cell<u32>,
}

impl PlanRequest {
    /// Searches for the best setting of a candidate and judges it; `None` where its way of sending
    /// does not exist for its network.
    pub(super) fn option(
        &self,
        candidate: &Candidate,
        hear: &dyn Fn(&PlanRun<'_>),
    ) -> Option<PlanOption> {
        let search = Search {
            request: self,
            sending: candidate.sending,
            candidate,
            topology: candidate.choice.build().ok()?,
            hear,
            runs: Cell::new(0),
        };
        search.run()
    }
}

impl Search<'_> {
    fn run(&self) -> Option<PlanOption> {
        let first = self.first_setting();
        let (load, switching) = (self.load(), self.switching());
        let builder = self.builder(first);
        if !builder
            .validate(&self.topology, &load, &switching, 1)
            .is_empty()
        {
            return None;
        }
        let best = self.climb(first);
        if best.lost > 0 {
            return Some(self.judge_lossy(&best));
        }
        let mut length = Length {
            events: self.request.events,
            fragments_max: self.fragments_max(FRAGMENTS[1]),
            longer: self.longer(),
            // A run in which nothing was built says nothing of how long the next must be.
            expected_hz: best
                .rate
                .mean
                .max(self.bound().1 * self.request.rate_hz / 400.0),
            parts: BATCHES as u64,
        };
        let mut last = self.trial(best.setting, length, Arrival::Saturated);
        if !last.rate.converged && last.lost == 0 {
            // As many as bring the error below 1 %, if it falls as it does for what is random.
            let error = last.rate.ci95 / (0.008 * last.rate.mean.max(1e-9));
            let longer = (error * error).clamp(2.0, 6.0);
            length.events = (last.events as f64 * longer) as u64;
            length.longer *= longer;
            last = self.trial(best.setting, length, Arrival::Saturated);
        }
        if last.lost > 0 {
            return Some(self.judge_lossy(&last));
        }
        if last.bottleneck == Bottleneck::Credits {
            // Short runs found out whether more of them help.
            last.bottleneck = best.bottleneck;
        }
        Some(self.judge(&last))
    }

    /// Short runs, each with the setting that the one before asks for; the best of them.
    fn climb(&self, first: Setting) -> Trial {
        let mut expected_hz = self.bound().1 * self.request.rate_hz;
        let mut setting = first;
        let mut best: Option<Trial> = None;
        for _ in 0..TRIALS_MAX {
            let length = Length {
                events: self.request.events / 4,
                fragments_max: self.fragments_max(FRAGMENTS[0]),
                longer: 1.0,
                expected_hz,
                parts: 4,
            };
            let trial = self.trial(setting, length, Arrival::Saturated);
            // Of settings that lose packets the last has the fewest credits.
            let is_better = best.as_ref().is_none_or(|best| {
                best.lost > 0 || trial.lost == 0 && trial.rate.mean > BETTER * best.rate.mean
            });
            // Where most is far from steady, a shorter or longer run is needed for the next.
            expected_hz = (1.2 * trial.rate.mean).clamp(expected_hz / 20.0, expected_hz * 2.0);
            if !is_better {
                if let Some(best) = &mut best
                    && best.bottleneck == Bottleneck::Credits
                {
                    best.bottleneck = match trial.lost {
                        0 => self.beyond_credits(),
                        _ => Bottleneck::Buffers,
                    };
                }
                break;
            }
            let next = self.next_setting(&trial);
            let is_ample = trial.lost == 0
                && trial.bottleneck != Bottleneck::Credits
                && trial.rate.mean > AMPLE * self.request.rate_hz;
            best = Some(trial);
            match next {
                Some(next) if !is_ample => setting = next,
                _ => break,
            }
        }
        best.expect("there is at least one trial, and the first is the best so far")
    }

    /// What limits where neither hosts nor links are busy and more credits change nothing.
    fn beyond_credits(&self) -> Bottleneck {
        match self.sending {
            Sending::LinearShift => Bottleneck::ControlNetwork,
            _ => Bottleneck::Switch,
        }
    }

    /// The setting that makes up for what limits a run; `None` where none does.
    fn next_setting(&self, trial: &Trial) -> Option<Setting> {
        let setting = trial.setting;
        match trial.bottleneck {
            Bottleneck::ReadoutProcessor
            | Bottleneck::BuilderProcessor
            | Bottleneck::ManagerProcessor
            | Bottleneck::ControlNetwork => {
                let is_grouped = setting.interval > DurationPs::ZERO;
                match (is_grouped, setting.requests_per_message) {
                    (false, _) => Some(self.grouped(8, setting.credits)),
                    (true, events) if events < 32 => Some(self.grouped(32, setting.credits)),
                    _ => None,
                }
            }
            Bottleneck::Credits if setting.credits < CREDITS_MAX => Some(Setting {
                credits: (4 * setting.credits).min(CREDITS_MAX),
                ..setting
            }),
            Bottleneck::Buffers if setting.credits > 1 => Some(Setting {
                credits: setting.credits / 4 + u32::from(setting.credits < 4),
                ..setting
            }),
            _ => None,
        }
    }

    /// Events per second and builder unit that are aimed at.
    fn builder_hz(&self) -> f64 {
        let share = self.bound().1.min(AMPLE);
        share * self.request.rate_hz / f64::from(self.request.builders)
    }

    /// What the rate alone loads most, and the share of the rate at which it is full.
    fn bound(&self) -> (Bottleneck, f64) {
        let shaping = self.sending.shaping(self.request.block_bytes);
        let loads = self.request.loads(shaping).into_iter();
        let (what, load) = loads
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((Bottleneck::SourceLinks, 1.0));
        (what, 1.0 / load.max(1e-9))
    }

    /// Time of an event from its assignment to the return of its credit, if it waits for nobody.
    fn event_time(&self) -> DurationPs {
        let request = self.request;
        let (Control::Separate { latency, .. } | Control::Shared { latency, .. }) = request.control;
        let shaping = self.sending.shaping(request.block_bytes);
        let bits = request.wire_bytes(shaping) * 8.0;
        let work = request.hosts.packet * request.packets(shaping).ceil() as u64;
        let transfer = DurationPs::for_bits(bits as u64, request.link_bits_per_s);
        let fragments = u64::from(request.sources);
        let hosts = &request.hosts;
        let each = transfer + transfer + hosts.message + hosts.fragment + work;
        let hops = request.hop_delay * 4;
        let block = DurationPs::for_bits(
            u64::from(request.block_bytes) * 8 * u64::from(self.topology.destinations()),
            request.link_bits_per_s,
        );
        let turn = match self.sending {
            // A fragment waits for its builder unit's turn, and may end in the next one.
            Sending::BarrelShifter => block * 2,
            Sending::LinearShift => (block + latency * u64::from(2 * request.builders)) * 2,
            _ => DurationPs::ZERO,
        };
        latency * 3 + each * fragments + hosts.event + hops + turn
    }

    fn first_setting(&self) -> Setting {
        let credits = self.credits_for(DurationPs::ZERO, 1);
        let event = f64::from(self.request.sources) * self.request.wire_bytes(Shaping::None);
        let credits = match self.sending {
            // What a builder unit is sent at once fits into the buffer at its port.
            Sending::PullLossy => {
                let fitting = (self.request.buffer_bytes as f64 / event) as u32;
                credits.min(fitting.max(1))
            }
            _ => credits,
        };
        Setting {
            credits,
            requests_per_message: 8,
            interval: DurationPs::ZERO,
        }
    }

    /// Messages that wait for `events` events each, and the credits that this takes.
    fn grouped(&self, events: u32, credits: u32) -> Setting {
        // Whole microseconds, as a person would write it.
        let us = (f64::from(events) / self.builder_hz() * 1e6).ceil() as u64;
        let interval = DurationPs::from_us(us);
        Setting {
            credits: self.credits_for(interval, events).max(credits),
            requests_per_message: events,
            interval,
        }
    }

    /// Twice the events that come while one is in building, and those that wait for a message.
    fn credits_for(&self, interval: DurationPs, events: u32) -> u32 {
        let time = (self.event_time() + interval * 2).0 as f64 * 1e-12;
        let waiting = 2.0 * time * self.builder_hz() + f64::from(events);
        (waiting.ceil().min(f64::from(CREDITS_MAX)) as u32)
            .next_power_of_two()
            .clamp(4, CREDITS_MAX)
    }

    fn fragments_max(&self, usual: u64) -> u64 {
        // Each builder unit is to have a few dozen events in any case.
        let units = u64::from(self.request.sources) * u64::from(self.request.builders);
        usual.max(units * 24)
    }

    /// Times as long as usual that runs are judged: as many more events are asked for.
    fn longer(&self) -> f64 {
        (self.request.events as f64 / EVENTS_USUAL as f64).max(1.0)
    }

    fn switching(&self) -> Switching {
        self.sending.switching(self.request.buffer_bytes)
    }

    fn load(&self) -> Load {
        let request = self.request;
        let mut load = Load::saturated(Traffic::new(Pattern::Uniform), request.sizes.clone(), 1);
        load.link_bits_per_s = request.link_bits_per_s;
        load.overhead_bytes = request.overhead_bytes;
        load.hop_delay = request.hop_delay;
        load.routes = self.candidate.routes;
        load.seed = request.seed;
        load
    }

    fn builder(&self, setting: Setting) -> BuilderNetwork {
        let request = self.request;
        BuilderNetwork {
            readout_units: request.sources,
            builder_units: request.builders,
            mode: self.sending.mode(),
            credits: setting.credits,
            requests_per_message: setting.requests_per_message,
            shaping: self.sending.shaping(request.block_bytes),
            mtu: request.mtu,
            control: request.control,
            hosts: HostModel {
                interval: setting.interval,
                ..request.hosts
            },
            ..BuilderNetwork::default()
        }
    }

    /// Says that a run begins.
    fn tell(&self, setting: Setting) {
        self.runs.set(self.runs.get() + 1);
        (self.hear)(&PlanRun {
            network: &self.candidate.name,
            sending: self.sending,
            credits: setting.credits,
            number: self.runs.get(),
        });
    }

    /// Runs it.
    fn trial(&self, setting: Setting, length: Length, arrival: Arrival) -> Trial {
        self.tell(setting);
        let builder = self.builder(setting);
        let mut load = self.load();
        let held = u64::from(setting.credits) * u64::from(self.request.builders);
        // From empty to steady takes about what the builder units hold.
        let (warm, counted) = (2 * held, length.events.max(3 * held));
        let sources = u64::from(self.request.sources);
        // A run that ends before it is full says nothing, and may be longer for it.
        let filling = (4 * held * sources).min(5 * length.fragments_max);
        let fragments_max = length.longer * length.fragments_max.max(filling) as f64;
        let events_max = (fragments_max / sources as f64).floor();
        let shorter = (events_max / (warm + counted) as f64).min(1.0);
        let mut seconds = (warm + counted) as f64 * shorter / length.expected_hz;
        if let Shaping::BarrelShifter { block_bytes, .. } = builder.shaping {
            let blocks_hz = self.request.link_bits_per_s as f64 / f64::from(8 * block_bytes);
            let blocks_max = length.longer * BLOCKS_MAX;
            seconds = seconds.min(blocks_max / blocks_hz / f64::from(self.request.sources));
        }
        seconds = seconds.max(4e-12 * self.event_time().0 as f64);
        let share = warm as f64 / (warm + counted) as f64;
        load.warm_up = DurationPs((seconds * share * 1e12) as u64);
        let unit = (setting.interval.0 * length.parts).max(1);
        let duration = (seconds * (1.0 - share) * 1e12) as u64 + 1;
        load.duration = DurationPs(duration.next_multiple_of(unit));
        load.arrival = arrival;
        let (outcome, shares) =
            builder.run_with_shares(&self.topology, &load, &self.switching(), 1);
        let built = outcome.event_rate.mean / self.request.rate_hz;
        let limit = self.limit(built, &shares, outcome.block_fill);
        Trial {
            setting,
            rate: outcome.event_rate,
            events: outcome.events_counted,
            lost: outcome.packets_lost,
            violation: match outcome.violations.first() {
                None if !outcome.is_conserved() => Some("fragments are not conserved".to_owned()),
                violation => violation.cloned(),
            },
            bottleneck: if outcome.packets_lost > 0 {
                Bottleneck::Buffers
            } else {
                limit
            },
        }
    }

    /// What is busiest where `built` times the rate is built; credits if nothing is.
    fn limit(&self, built: f64, hosts: &HostShares, block_fill: f64) -> Bottleneck {
        let shaping = self.sending.shaping(self.request.block_bytes);
        let loads = self.request.loads(shaping);
        let [source, builder, ..] = loads;
        let links = if builder.1 > source.1 {
            Bottleneck::BuilderLinks
        } else {
            Bottleneck::SourceLinks
        };
        // Blocks for ports without a builder unit are always empty.
        let ports = f64::from(self.topology.destinations()) / f64::from(self.request.builders);
        let busy = loads.into_iter().map(|(what, load)| (what, load * built));
        let of_hosts = [
            (Bottleneck::ReadoutProcessor, hosts.readout_processor),
            (Bottleneck::BuilderProcessor, hosts.builder_processor),
            (Bottleneck::ManagerProcessor, hosts.manager_processor),
            (Bottleneck::Filter, hosts.filter),
            (Bottleneck::ControlNetwork, hosts.control_link),
            (links, block_fill * ports),
        ];
        busy.chain(of_hosts)
            .filter(|(_, share)| *share >= BUSY)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map_or(Bottleneck::Credits, |(what, _)| what)
    }

    /// The answer of a run without losses.
    fn judge(&self, trial: &Trial) -> PlanOption {
        let rate = self.request.rate_hz;
        let Estimate {
            mean,
            ci95,
            converged,
            ..
        } = trial.rate;
        let (what, bound) = self.bound();
        let percent = |hz: f64| 100.0 * hz / mean.max(1e-9);
        let verdict = if let Some(violation) = &trial.violation {
            Verdict::NotShown(format!("a promise was broken: {violation}"))
        } else if bound < 1.0 {
            Verdict::Fails
        } else if !converged {
            Verdict::NotShown(format!(
                "not converged in {} events (+- {:.1} %)",
                trial.events,
                percent(ci95)
            ))
        } else if mean - ci95 >= rate {
            Verdict::Holds
        } else if mean + ci95 < rate {
            Verdict::Fails
        } else {
            Verdict::NotShown(format!("within +- {:.1} % of the rate", percent(ci95)))
        };
        let capacity = converged.then_some(mean);
        let bottleneck = if bound < 1.0 && !converged {
            what
        } else {
            trial.bottleneck
        };
        self.answer(trial, capacity, verdict, bottleneck)
    }

    /// The answer where packets are lost when there are always triggers, for every setting tried:
    /// the highest of some rates that is carried without a loss.
    fn judge_lossy(&self, trial: &Trial) -> PlanOption {
        let (bottleneck, bound) = (Bottleneck::Buffers, self.bound().1);
        let mut last = trial.clone();
        let shares = LOSSY_RATES.into_iter().filter(|share| *share <= bound);
        for share in shares {
            let hz = share * self.request.rate_hz;
            let length = Length {
                events: self.request.events,
                fragments_max: self.fragments_max(FRAGMENTS[1]),
                longer: self.longer(),
                expected_hz: hz,
                parts: BATCHES as u64,
            };
            let interval = DurationPs((1e12 / hz).round().max(1.0) as u64);
            last = self.trial(trial.setting, length, Arrival::Fixed { interval });
            if last.lost > 0 || last.rate.mean < CARRIED * hz {
                continue;
            }
            let verdict = match &last.violation {
                Some(violation) => Verdict::NotShown(format!("a promise was broken: {violation}")),
                None if !last.rate.converged => {
                    let events = last.events;
                    Verdict::NotShown(format!("no loss, but not converged in {events} events"))
                }
                None if share >= 1.0 => Verdict::Holds,
                None => Verdict::Fails,
            };
            let capacity = last.rate.converged.then_some(hz);
            return self.answer(&last, capacity, verdict, bottleneck);
        }
        self.answer(&last, None, Verdict::Fails, bottleneck)
    }

    fn answer(
        &self,
        trial: &Trial,
        capacity_hz: Option<f64>,
        verdict: Verdict,
        bottleneck: Bottleneck,
    ) -> PlanOption {
        let rate = self.request.rate_hz;
        let (source, builder) = self.request.link_loads();
        PlanOption {
            network: self.candidate.name.clone(),
            elements: self.topology.elements().len(),
            sending: self.sending,
            credits: trial.setting.credits,
            requests_per_message: trial.setting.requests_per_message,
            interval: trial.setting.interval,
            capacity_hz,
            efficiency: capacity_hz.map(|hz| source.max(builder) * hz / rate),
            margin: capacity_hz.map(|hz| hz / rate - 1.0),
            event_rate: trial.rate,
            events: trial.events,
            lost: trial.lost,
            verdict,
            bottleneck,
        }
    }
}
