//! The search for one option: short runs that choose how the protocol is set, a longer one judged.
//!
//! The first setting follows from the rate and the time that an event takes (bandwidth times
//! delay). What limits a run then says what to try next: fewer messages for busy processors, more
//! credits for events that wait and for what is busy but not full, fewer for buffers that overflow
//! and for packets that wait for each other. A run has more triggers than it can build; only where
//! it loses packets for every setting are triggers given at chosen rates, and at the rate asked for
//! where the option is to hold. With many nodes the choice is made in small (`small`), and a run of
//! the whole is judged as soon as it says on which side of the rate it is.

use std::cell::Cell;
use std::ops::Range;

use livetime_builder::BuildMode;

use super::candidate::{Candidate, Sending};
use super::loads::busiest;
use super::option::{Bottleneck, PlanOption};
use super::trial::Trial;
use super::{PlanRequest, PlanRun};
use crate::builder_network::{Control, Shaping};
use crate::network::{Arrival, Topology};
use crate::time::DurationPs;

/// Short runs of a search at most.
const TRIALS_MAX: usize = 5;
/// A setting is better from this factor on.
const BETTER: f64 = 1.03;
/// A setting whose gain may be chance is better from this factor on, where it costs nothing else.
const WORTH: f64 = 1.01;
/// A capacity of so many times the rate is enough to stop looking for more.
const AMPLE: f64 = 1.2;
/// What is busy is full from these shares of its rate on: where the rate asked for is carried, and
/// where it is not.
const FULL: [f64; 2] = [0.98, 0.995];
/// Shares of the rate from and to which fewer credits are tried for packets that wait for each other:
/// below, they do not make up for it, and above, nothing depends on it.
const NEAR: Range<f64> = 0.6..BETTER;
/// Times the buffers that have room for more credits than a plan's own have.
const ROOMY: u64 = 64;
/// The most credits that are tried.
const CREDITS_MAX: u32 = 1024;
/// The most events that a message names.
const GROUP_MAX: u32 = 32;

/// How the protocol is set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Setting {
    pub(super) credits: u32,
    pub(super) requests_per_message: u32,
    pub(super) interval: DurationPs,
}

/// Where a search begins.
#[derive(Debug, Clone, Copy)]
struct Start {
    setting: Setting,
    /// Rate that is expected, hertz.
    expected_hz: f64,
    /// What the search in small found, if there was one.
    in_small: Option<InSmall>,
}

/// What a search in small found besides its setting.
#[derive(Debug, Clone, Copy)]
struct InSmall {
    /// What limits it; credits only if more of them still helped.
    bottleneck: Bottleneck,
    /// Whether a setting that may be better was not tried.
    is_open: bool,
    /// Where packets are lost when there are always triggers: the share of the rate that is carried
    /// without a loss, 0 for none of those tried.
    lossless_share: Option<f64>,
}

/// The search for an option.
pub(super) struct Search<'p> {
    pub(super) request: &'p PlanRequest,
    pub(super) sending: Sending,
    pub(super) candidate: &'p Candidate,
    pub(super) topology: Topology,
    /// Who is told of each run, and how many there were.
    pub(super) hear: &'p dyn Fn(&PlanRun<'_>),
    pub(super) runs: Cell<u32>,
}

impl PlanRequest {
    /// Searches for the best setting of a candidate and judges it; `None` where its way of sending
    /// does not exist for its network.
    pub(super) fn option(
        &self,
        candidate: &Candidate,
        hear: &dyn Fn(&PlanRun<'_>),
    ) -> Option<PlanOption> {
        let whole = Search::new(self, candidate, candidate.choice.build().ok()?, hear);
        let mut start = whole.start()?;
        if let (Some(request), Some(choice)) = (self.in_small(), &candidate.in_small) {
            if whole.bound().1 < 1.0 {
                return Some(whole.hopeless(start.setting));
            }
            let small = Search::new(&request, candidate, choice.build().ok()?, hear);
            if let Some(first) = small.start() {
                let best = small.climb(first);
                start = whole.start_like(&small, &best);
            }
            whole.runs.set(small.runs.get());
        }
        Some(whole.run(start))
    }
}

impl<'p> Search<'p> {
    pub(super) fn new(
        request: &'p PlanRequest,
        candidate: &'p Candidate,
        topology: Topology,
        hear: &'p dyn Fn(&PlanRun<'_>),
    ) -> Self {
        Self {
            request,
            sending: candidate.sending,
            candidate,
            topology,
            hear,
            runs: Cell::new(0),
        }
    }

    /// Where a search begins that knows nothing; `None` where the way of sending does not exist.
    fn start(&self) -> Option<Start> {
        let setting = self.first_setting();
        let builder = self.builder(setting);
        let problems = builder.validate(&self.topology, &self.load(), &self.switching(), 1);
        problems.is_empty().then_some(Start {
            setting,
            expected_hz: self.bound().1 * self.request.rate_hz,
            in_small: None,
        })
    }

    /// Where a search begins that knows the best run in small, and the share of the rate that was
    /// carried without a loss there.
    fn start_like(&self, small: &Self, best: &Trial) -> Start {
        let Setting {
            credits,
            requests_per_message: events,
            interval,
        } = best.setting;
        let setting = match interval {
            DurationPs::ZERO => best.setting,
            _ => self.grouped(events, credits),
        };
        let lossless_share =
            (best.lost > 0).then(|| small.carried(best, f64::MAX).share.unwrap_or(0.0));
        Start {
            setting,
            expected_hz: small.expected_after(best),
            in_small: Some(InSmall {
                bottleneck: best.bottleneck,
                is_open: best.is_open,
                lossless_share,
            }),
        }
    }

    fn run(&self, start: Start) -> PlanOption {
        let best = self.climb(start);
        let lossless_share = start.in_small.and_then(|small| small.lossless_share);
        if best.lost > 0 {
            return self.judge_lossy(&best, lossless_share);
        }
        let mut length = self.long(self.expected_after(&best));
        let is_large = start.in_small.is_some();
        // With few nodes a capacity costs little more than a verdict.
        let is_enough = |trial: &Trial| {
            trial.rate.converged || is_large && trial.is_clear(self.request.rate_hz)
        };
        let mut last = match is_large {
            true => best.clone(),
            false => self.trial(best.setting, length, Arrival::Saturated),
        };
        let mut as_long = match is_large {
            true => self.fair(self.expected_after(&best)),
            false => length,
        };
        if !is_enough(&last) && last.lost == 0 {
            // As many as bring the interval (half the error of what has not converged) below 1 %, or
            // the rate out of the error, if it falls as it does for what is random.
            let allowed = match is_large {
                true => last.distance(self.request.rate_hz),
                false => 2.0 * 0.008 * last.rate.mean,
            };
            let longer = (last.error() / allowed.max(1e-9)).powi(2).clamp(2.0, 6.0);
            length.events = (last.events as f64 * longer) as u64;
            length.longer *= longer;
            last = self.trial(best.setting, length, Arrival::Saturated);
            as_long = length;
        }
        last = self.with_starts(last, as_long);
        if last.lost > 0 {
            return self.judge_lossy(&last, lossless_share);
        }
        if last.bottleneck == Bottleneck::Credits {
            // Short runs found out whether more of them help.
            last.bottleneck = best.bottleneck;
        }
        last.is_open = best.is_open;
        let option = self.judge(&last);
        // Of many nodes a run takes long, and without groups messages are the same at any rate.
        let is_grouped = last.setting.interval > DurationPs::ZERO;
        let is_push = self.sending.mode() == BuildMode::Push;
        match option.holds() && (!is_large || is_grouped || is_push) {
            true => self.confirm(option, &last),
            false => option,
        }
    }

    /// Short runs, each with the setting that the one before asks for; the best of them.
    fn climb(&self, start: Start) -> Trial {
        let mut expected_hz = start.expected_hz;
        let mut run = |setting| {
            let length = match start.in_small {
                None => self.short(expected_hz),
                Some(_) => self.fair(expected_hz),
            };
            let trial = self.trial(setting, length, Arrival::Saturated);
            // Where most is far from steady, a shorter or longer run is needed for the next.
            expected_hz = (1.2 * trial.rate.mean).clamp(expected_hz / 20.0, expected_hz * 2.0);
            trial
        };
        // Whether more credits help was tried in small, or before there were fewer.
        let mut known = start.in_small.map(|small| small.bottleneck);
        let mut fewest = u32::MAX;
        let mut best = run(start.setting);
        let mut next = self.after(&mut best, known);
        for _ in 1..TRIALS_MAX {
            let Some(setting) = next else { break };
            let trial = run(setting);
            // Of settings that lose packets the last has the fewest credits.
            next = if best.lost > 0 || trial.lost == 0 && self.is_better(&trial, &best) {
                best = trial;
                self.after(&mut best, known)
            } else {
                if best.bottleneck == Bottleneck::Credits {
                    best.bottleneck = match trial.lost {
                        0 => self.beyond_credits(),
                        _ => self.with_room(&best, trial.setting),
                    };
                }
                None
            };
            if next.is_none() && start.in_small.is_none() {
                next = self.with_fewer(&best, fewest);
                if let Some(Setting { credits, .. }) = next {
                    (fewest, known) = (credits, Some(self.beyond_credits()));
                }
            }
        }
        // Of fewer credits enough were tried.
        best.is_open = next.is_some() && fewest == u32::MAX
            || best.bottleneck == Bottleneck::Credits
            || start.in_small.is_some_and(|small| small.is_open);
        best
    }

    /// The setting to try after the best so far; where it is known whether more credits help, none
    /// with more, and what limits is what is known.
    fn after(&self, best: &mut Trial, known: Option<Bottleneck>) -> Option<Setting> {
        let setting = best.setting;
        let mut next = self.next_setting(best);
        if let Some(known) = known {
            next = next.filter(|next| {
                next.credits <= setting.credits || next.interval != setting.interval
            });
            if best.bottleneck == Bottleneck::Credits {
                best.bottleneck = known;
            }
        }
        let is_ample = best.is_whole()
            && best.bottleneck != Bottleneck::Credits
            && best.rate.mean > AMPLE * self.request.rate_hz;
        next.filter(|_| !is_ample)
    }

    /// Half the credits of the fewest tried, where packets wait for each other and the rate is near:
    /// of fewer events in building fewer stand in each other's way.
    fn with_fewer(&self, best: &Trial, fewest: u32) -> Option<Setting> {
        let credits = fewest.min(best.setting.credits) / 2;
        let is_near =
            NEAR.contains(&(best.rate.mean / self.request.rate_hz)) && self.bound().1 >= 1.0;
        let is_wanted = is_near && best.bottleneck == Bottleneck::Switch && best.is_whole();
        // Of one event alone no packets are in the way, but its builder unit waits for the next.
        (is_wanted && credits > 1).then_some(Setting {
            credits,
            ..best.setting
        })
    }

    /// What limits the best run, where more credits lose packets: buffers if those credits would carry
    /// more with room for all that they let come.
    fn with_room(&self, best: &Trial, more: Setting) -> Bottleneck {
        let Ok(topology) = self.candidate.choice.build() else {
            return Bottleneck::Credits;
        };
        let mut roomy = self.request.clone();
        roomy.buffer_bytes = roomy.buffer_bytes.saturating_mul(ROOMY);
        let search = Search::new(&roomy, self.candidate, topology, self.hear);
        search.runs.set(self.runs.get());
        let length = search.short(self.expected_after(best));
        let trial = search.trial(more, length, Arrival::Saturated);
        self.runs.set(search.runs.get());
        match trial.lost == 0 && trial.rate.mean <= BETTER * best.rate.mean {
            true => self.beyond_credits(),
            false => Bottleneck::BuffersForCredits,
        }
    }

    /// Whether a setting is to be preferred, of those that lose nothing. Where the answer is clear,
    /// neither what may be chance nor what leaves the rate out of reach is worth more credits.
    fn is_better(&self, trial: &Trial, best: &Trial) -> bool {
        if trial.incomplete > 0 || best.incomplete > 0 {
            return trial.incomplete < best.incomplete;
        }
        let (rate, gain) = (self.request.rate_hz, trial.rate.mean / best.rate.mean);
        let is_gain = trial.rate.mean - best.rate.mean > trial.rate.ci95.hypot(best.rate.ci95);
        let is_far = best.is_far_from(rate);
        if is_far && best.rate.mean > rate {
            return is_gain && gain > BETTER;
        }
        let (before, after) = (best.setting, trial.setting);
        let is_limit = best.bottleneck == Bottleneck::Credits;
        if after.interval == before.interval && !is_limit && self.bound().1 >= 1.0 {
            // As many credits as bring it to the rate, or near.
            return gain > WORTH;
        }
        // What carries the rate is better by however little.
        if is_gain && trial.rate.mean > rate && trial.is_far_from(rate) {
            return true;
        }
        if !is_far || !is_limit {
            return gain > BETTER && (is_gain || !is_far);
        }
        // As much again for each time that there are four times as many.
        let times = f64::from(CREDITS_MAX) / f64::from(after.credits);
        is_gain && trial.rate.mean * gain.powf(times.log(4.0)) > rate
    }

    /// The rate that the next run is to expect: one in which nothing was built says nothing.
    fn expected_after(&self, trial: &Trial) -> f64 {
        let least = self.bound().1 * self.request.rate_hz / 400.0;
        trial.rate.mean.max(least)
    }

    /// What limits where neither hosts nor links are busy and more credits change nothing.
    pub(super) fn beyond_credits(&self) -> Bottleneck {
        match self.sending {
            Sending::LinearShift => Bottleneck::ControlNetwork,
            _ => Bottleneck::Switch,
        }
    }

    /// The setting that makes up for what limits a run; `None` where none does.
    fn next_setting(&self, trial: &Trial) -> Option<Setting> {
        let setting = trial.setting;
        let fewer = || Setting {
            credits: setting.credits / 4 + u32::from(setting.credits < 4),
            ..setting
        };
        let more = (setting.credits < CREDITS_MAX).then(|| Setting {
            credits: (4 * setting.credits).min(CREDITS_MAX),
            ..setting
        });
        match trial.bottleneck {
            // Events that are held wait for each other.
            _ if trial.incomplete > 0 && trial.lost == 0 => (setting.credits > 1).then(fewer),
            Bottleneck::ReadoutProcessor
            | Bottleneck::BuilderProcessor
            | Bottleneck::ManagerProcessor
            | Bottleneck::ControlNetwork => {
                let is_grouped = setting.interval > DurationPs::ZERO;
                // Assignments are grouped from the beginning.
                let is_manager = trial.bottleneck == Bottleneck::ManagerProcessor;
                let is_known = is_grouped || is_manager && self.sending.mode() == BuildMode::Push;
                match (is_known, setting.requests_per_message) {
                    (false, _) => Some(self.grouped(8, setting.credits)),
                    (true, events) if events < GROUP_MAX => {
                        Some(self.grouped(GROUP_MAX, setting.credits))
                    }
                    _ => None,
                }
            }
            Bottleneck::Credits => more,
            Bottleneck::Buffers if setting.credits > 1 => Some(fewer()),
            // What waits for an event now and then has no work meanwhile.
            Bottleneck::SourceLinks
            | Bottleneck::BuilderLinks
            | Bottleneck::Adapter
            | Bottleneck::Bus
            | Bottleneck::Filter
                if !self.is_full(trial) =>
            {
                more
            }
            _ => None,
        }
    }

    /// Whether what the rate loads most is full, and not only busy for most of the time.
    fn is_full(&self, trial: &Trial) -> bool {
        let (rate, bound) = (self.request.rate_hz, self.bound().1);
        let [carried, not_carried] = FULL;
        let may_carry = trial.rate.mean < rate && bound >= 1.0;
        let share = if may_carry { not_carried } else { carried };
        trial.rate.mean >= share * bound * rate
    }

    /// Events per second and builder unit that are aimed at.
    fn builder_hz(&self) -> f64 {
        let share = self.bound().1.min(AMPLE);
        share * self.request.rate_hz / f64::from(self.request.builders)
    }

    /// What the rate loads most, however messages are grouped, and the share of the rate at which it
    /// is full.
    pub(super) fn bound(&self) -> (Bottleneck, f64) {
        let request = self.request;
        // Of a push every readout unit is told; else messages go with requests.
        let told = match self.sending.mode() {
            BuildMode::Push => request.sources,
            BuildMode::Pull => 0,
        };
        let messages = request.rate_hz * f64::from(told) / f64::from(GROUP_MAX);
        let manager = messages * request.hosts.message.0 as f64 * 1e-12;
        let loads = self.loads().into_iter();
        let all = loads.chain([(Bottleneck::ManagerProcessor, manager)]);
        let (what, load) = busiest(all).unwrap_or((Bottleneck::SourceLinks, 1.0));
        (what, 1.0 / load.max(1e-9))
    }

    /// Time of an event from its assignment to the return of its credit, if it waits for nobody.
    pub(super) fn event_time(&self) -> DurationPs {
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

    pub(super) fn first_setting(&self) -> Setting {
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
}
