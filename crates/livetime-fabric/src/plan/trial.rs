//! A run of a search: how long it is, and what it says of a setting.

use livetime_wire::DurationNs;

use super::loads::busiest;
use super::option::Bottleneck;
use super::search::{Search, Setting};
use super::starts::Span;
use super::{EVENTS_USUAL, PlanRun, Sending};
use crate::analytic::crossbar::fifo_inputs_limit;
use crate::builder_network::{
    BuilderNetwork, BuilderNetworkOutcome, HostModel, HostShares, Shaping, TIMEOUT_MAX,
};
use crate::network::measure::BATCHES;
use crate::network::{Arrival, Estimate, Load, Pattern, Traffic};
use crate::scenario::Switching;
use crate::time::DurationPs;

/// Share of the time from which something is busy enough to be what limits.
const BUSY: f64 = 0.9;
/// What limits next is nearly as busy as what limits, from this share less on.
const NEARLY: f64 = 0.05;
/// Fragments of a short and of a judged run at most, unless there are many nodes.
const FRAGMENTS: [u64; 2] = [200_000, 2_000_000];
/// Simulated time of a run at most, and of its warm-up: a quarter of what there is of time, so that what
/// is rounded up to whole parts of a run ends before time does.
pub(super) const TIME_MAX: DurationPs = DurationPs(u64::MAX / 4);
/// Packets of a run with a barrel shifter at most, empty blocks included, unless there are many nodes
/// or events take longer.
const BLOCKS_MAX: u64 = 4_000_000;
/// Looks for work of all builder units in a part of a run at least.
const LOOKS_MIN: u64 = 16;
/// A rate that has not converged is on one side of another from so many times its error on.
const CLEAR: f64 = 2.0;
/// Differences of its halves by which a rate with a trend may still move: if it goes on like that for
/// two more times the run.
const TREND: f64 = 4.0;
/// Share of the offered triggers that is built where a rate is carried.
pub(super) const CARRIED: f64 = 0.99;
/// Share of an option's slots that what paces them must take, to be what limits it.
const PACES: f64 = 0.5;
/// Times of an event's wait after which it is asked for again, and after which it is closed: a
/// network may carry far less than its links, and serve some events long after others.
const PATIENCE: [f64; 2] = [8.0, 32.0];

/// A run.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub(super) setting: Setting,
    pub(super) rate: Estimate,
    /// By how much more its second half is than its first one, hertz, where that is a trend; else 0.
    pub(super) trend_hz: f64,
    pub(super) events: u64,
    pub(super) lost: u64,
    /// Triggers for which there was no room.
    pub(super) refused: u64,
    /// Events that were closed without some of their fragments.
    pub(super) incomplete: u64,
    /// What should never happen.
    pub(super) violation: Option<String>,
    pub(super) bottleneck: Bottleneck,
    /// What is nearly as busy.
    pub(super) next_bottleneck: Option<Bottleneck>,
    /// Whether a setting that may be better was not tried.
    pub(super) is_open: bool,
    /// Whether what builder units hold was built once before anything was counted, and once since:
    /// else a rate may be that of their filling.
    pub(super) is_filled: bool,
    /// Of several starts as one: what they have in common.
    pub(super) span: Option<Span>,
}

impl Trial {
    /// Nothing that was run.
    pub(super) fn none(setting: Setting) -> Self {
        Self {
            setting,
            rate: Estimate::of(&[]),
            trend_hz: 0.0,
            events: 0,
            lost: 0,
            refused: 0,
            incomplete: 0,
            violation: None,
            bottleneck: Bottleneck::Credits,
            next_bottleneck: None,
            is_open: false,
            is_filled: false,
            span: None,
        }
    }

    /// Whether it says on which side of a rate it is, hertz.
    pub(super) fn is_clear(&self, rate_hz: f64) -> bool {
        (self.rate.converged || self.is_filled) && self.is_far_from(rate_hz)
    }

    /// Whether it is on one side of a rate by more than its error, hertz.
    pub(super) fn is_far_from(&self, rate_hz: f64) -> bool {
        let [least, most] = self.range();
        self.rate.mean > 0.0 && self.is_whole() && (least > rate_hz || most < rate_hz)
    }

    /// Whether nothing was lost and every event is whole: one without some of its fragments took
    /// less time than an event takes.
    pub(super) const fn is_whole(&self) -> bool {
        self.lost == 0 && self.incomplete == 0
    }

    /// Whether triggers that came at this rate, hertz, were built within the error, none of them refused.
    pub(super) fn carries(&self, rate_hz: f64) -> bool {
        let built_hz = self.rate.mean + self.rate.ci95;
        let is_sound = self.is_whole() && self.violation.is_none();
        is_sound && self.refused == 0 && built_hz >= CARRIED * rate_hz
    }

    /// How far it is from a rate, hertz.
    pub(super) fn distance(&self, rate_hz: f64) -> f64 {
        (self.rate.mean - rate_hz).abs()
    }

    /// The least and most that its rate may be, hertz; `None` if that is not known.
    pub(super) fn bounds(&self) -> Option<[f64; 2]> {
        let [least, most] = self.range();
        let is_seen = self.is_filled && self.rate.mean > 0.0 && most.is_finite();
        let is_known = (self.rate.converged || is_seen) && self.is_whole();
        is_known.then_some([least.max(0.0), most])
    }

    /// From where to where its rate may be, hertz: of one that has not converged, by more than its
    /// interval, and by what its trend comes to if it goes on; of several starts all of theirs.
    pub(super) fn range(&self) -> [f64; 2] {
        if let Some(span) = self.span {
            return span.range_hz;
        }
        let (mean, error, trend) = (self.rate.mean, self.error(), TREND * self.trend_hz);
        [mean - error + trend.min(0.0), mean + error + trend.max(0.0)]
    }

    /// What its rate may be off by where it has no trend, hertz: of one that has not converged, more
    /// than its interval.
    pub(super) fn error(&self) -> f64 {
        let Estimate {
            ci95, converged, ..
        } = self.rate;
        if converged { ci95 } else { CLEAR * ci95 }
    }
}

/// What is to be run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length {
    /// Events to be counted.
    pub(super) events: u64,
    /// Fragments that it may usually take.
    fragments_max: u64,
    /// Times as many fragments, and blocks of a barrel shifter, as usual.
    pub(super) longer: f64,
    /// Rate that is expected, hertz.
    expected_hz: f64,
    /// Parts of the run, each of whole intervals at which builder units look for work or of many of
    /// their looks: else parts would differ by what comes at once after one.
    parts: u64,
    /// Times what builder units hold: events before those counted, of them at least, and of both
    /// before there are too many fragments.
    fill: [f64; 3],
}

impl Search<'_> {
    /// A short run, for a choice.
    pub(super) fn short(&self, expected_hz: f64) -> Length {
        Length {
            events: self.request.events / 4,
            fragments_max: self.fragments_max(FRAGMENTS[0]),
            longer: 1.0,
            expected_hz,
            parts: 4,
            fill: [2.0, 3.0, 4.0],
        }
    }

    /// A run that may be judged, and is not longer than that of many nodes must be.
    pub(super) fn fair(&self, expected_hz: f64) -> Length {
        Length {
            fill: [2.0, 1.3, 3.3],
            ..self.long(expected_hz)
        }
    }

    /// A run that is judged.
    pub(super) fn long(&self, expected_hz: f64) -> Length {
        Length {
            events: self.request.events,
            fragments_max: self.fragments_max(FRAGMENTS[1]),
            // As many more as more events are asked for.
            longer: (self.request.events as f64 / EVENTS_USUAL as f64).max(1.0),
            expected_hz,
            parts: BATCHES as u64,
            fill: [2.0, 3.0, 4.0],
        }
    }

    fn fragments_max(&self, usual: u64) -> u64 {
        // Each builder unit is to have a few dozen events in any case.
        usual.max(24 * self.pairs())
    }

    pub(super) fn pairs(&self) -> u64 {
        u64::from(self.request.sources) * u64::from(self.request.builders)
    }

    /// Runs it from the first start.
    pub(super) fn trial(&self, setting: Setting, length: Length, arrival: Arrival) -> Trial {
        self.trial_from(0, setting, length, arrival)
    }

    /// Runs it from one of several starts, counted from 0: each has a seed of its own.
    pub(super) fn trial_from(
        &self,
        start: u64,
        setting: Setting,
        length: Length,
        arrival: Arrival,
    ) -> Trial {
        self.tell(setting);
        let builder = self.builder(setting);
        let mut load = self.load();
        load.seed = load.seed.wrapping_add(start);
        (load.warm_up, load.duration) = self.times(&builder, length);
        load.arrival = arrival;
        let (outcome, shares) =
            builder.run_with_shares(&self.topology, &load, &self.switching(), 1);
        let held = u64::from(setting.credits) * u64::from(self.request.builders);
        let before = outcome.events_built.saturating_sub(outcome.events_counted);
        let built = outcome.event_rate.mean / self.request.rate_hz;
        let (bottleneck, next_bottleneck) = match outcome.packets_lost {
            0 => self.limit(built, &shares, outcome.block_fill),
            _ => (Bottleneck::Buffers, None),
        };
        Trial {
            setting,
            rate: outcome.event_rate,
            trend_hz: match outcome.event_rate.is_flat {
                true => 0.0,
                false => between_halves(&outcome.series),
            },
            events: outcome.events_counted,
            lost: outcome.packets_lost,
            refused: outcome.refused,
            incomplete: outcome.events_incomplete,
            violation: violation(&outcome),
            bottleneck,
            next_bottleneck,
            is_open: false,
            // A tenth of it may still be on its way.
            is_filled: 10 * before.min(outcome.events_counted) >= 9 * held,
            span: None,
        }
    }

    /// How long it warms up, and how long events are counted.
    pub(super) fn times(
        &self,
        builder: &BuilderNetwork,
        length: Length,
    ) -> (DurationPs, DurationPs) {
        let request = self.request;
        let held = u64::from(builder.credits) * u64::from(request.builders);
        let [warm, counted, filling] = length.fill.map(|times| (times * held as f64) as u64);
        let counted = counted.max(length.events);
        let sources = u64::from(request.sources);
        // A run that ends before it is full says nothing, and may be longer for it.
        let filling = (filling * sources).min(5 * length.fragments_max);
        let fragments_max = length.longer * length.fragments_max.max(filling) as f64;
        let events_max = (fragments_max / sources as f64).floor();
        let shorter = (events_max / (warm + counted) as f64).min(1.0);
        let mut seconds = (warm + counted) as f64 * shorter / length.expected_hz;
        if let Shaping::BarrelShifter { block_bytes, .. } = builder.shaping {
            let blocks_hz = request.link_bits_per_s as f64 / f64::from(8 * block_bytes);
            let blocks_max = length.longer * BLOCKS_MAX.max(48 * self.pairs()) as f64;
            seconds = seconds.min(blocks_max / blocks_hz / sources as f64);
        }
        // An event that takes that long may be built in none of it, which is then what the run says.
        seconds = seconds.max(4e-12 * self.event_time().0 as f64);
        seconds = seconds.min(1e-12 * TIME_MAX.0 as f64);
        let share = warm as f64 / (warm + counted) as f64;
        let duration = (seconds * (1.0 - share) * 1e12) as u64 + 1;
        // Builder units look at moments of their own: in an interval there are as many looks.
        let looks = (u64::from(request.builders) / LOOKS_MIN).max(1);
        let unit = (builder.hosts.interval * length.parts).0 / looks;
        let duration = match unit > TIME_MAX.0 {
            true => duration,
            false => duration.next_multiple_of(unit.max(1)),
        };
        (
            DurationPs((seconds * share * 1e12) as u64),
            DurationPs(duration),
        )
    }

    /// Says that a run begins.
    fn tell(&self, setting: Setting) {
        self.runs.set(self.runs.get() + 1);
        (self.hear)(&PlanRun {
            network: &self.candidate.name,
            sending: self.sending,
            sources: self.request.sources,
            credits: setting.credits,
            number: self.runs.get(),
        });
    }

    pub(super) fn switching(&self) -> Switching {
        self.sending.switching(self.request.buffer_bytes)
    }

    pub(super) fn load(&self) -> Load {
        let request = self.request;
        let mut load = Load::saturated(Traffic::new(Pattern::Uniform), request.sizes.clone(), 1);
        load.link_bits_per_s = request.link_bits_per_s;
        load.overhead_bytes = request.overhead_bytes;
        load.hop_delay = request.hop_delay;
        load.routes = self.candidate.routes;
        load.seed = request.seed;
        load
    }

    pub(super) fn builder(&self, setting: Setting) -> BuilderNetwork {
        let request = self.request;
        let usual = BuilderNetwork::default();
        let wait_ns = 1e9 * self.wait_s(setting);
        let [retry, timeout] = PATIENCE.map(|times| DurationNs((times * wait_ns) as u64));
        BuilderNetwork {
            timeout: timeout.clamp(usual.timeout, TIMEOUT_MAX),
            retry: retry.clamp(usual.retry, TIMEOUT_MAX),
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
            ..usual
        }
    }

    /// How long an event waits for those before it, and then takes, at the rate of what is full
    /// first or of messages that each go alone: all that are held take turns there. Seconds.
    fn wait_s(&self, setting: Setting) -> f64 {
        let request = self.request;
        let held = f64::from(setting.credits) * f64::from(request.builders);
        let messages = 2.0 * f64::from(request.sources) / f64::from(request.builders);
        let by_messages = messages * request.hosts.message.0 as f64 * 1e-12;
        let each = (1.0 / (self.bound().1 * request.rate_hz)).max(by_messages);
        held * each + self.event_time().0 as f64 * 1e-12
    }

    /// What is busiest where `built` times the rate is built, credits if nothing is, and what is nearly
    /// as busy.
    fn limit(
        &self,
        built: f64,
        hosts: &HostShares,
        block_fill: f64,
    ) -> (Bottleneck, Option<Bottleneck>) {
        let busy = self.loads().map(|(what, load)| (what, load * built));
        let slots = block_fill * self.turns();
        let of_hosts = [
            (Bottleneck::ReadoutProcessor, hosts.readout_processor),
            (Bottleneck::BuilderProcessor, hosts.builder_processor),
            (Bottleneck::ManagerProcessor, hosts.manager_processor),
            (Bottleneck::Filter, hosts.filter),
            (Bottleneck::ControlNetwork, hosts.control_link),
            (pace(&busy, slots), slots),
        ];
        let all = busy.into_iter().chain(of_hosts);
        let all: Vec<(Bottleneck, f64)> = all.filter(|(_, share)| *share >= BUSY).collect();
        let Some((first, most)) = busiest(all.iter().copied()) else {
            return (Bottleneck::Credits, None);
        };
        let waiting = (Bottleneck::Switch, self.blocked_heads(&busy));
        let others = all.into_iter().chain([waiting]);
        // One of several that are the same is the first itself.
        let near = |(what, share): &(Bottleneck, f64)| *what != first && *share >= most - NEARLY;
        let next = busiest(others.filter(near)).map(|(what, _)| what);
        (first, next)
    }

    /// How near a switch is to what it carries at most, where packets wait behind the head of one FIFO:
    /// that is what a crossbar of many ports carries of uniform traffic. 0 where they do not.
    fn blocked_heads(&self, busy: &[(Bottleneck, f64)]) -> f64 {
        if !matches!(self.sending, Sending::PullWormhole | Sending::PullInputFifo) {
            return 0.0;
        }
        let of_links = busy
            .iter()
            .filter(|(what, _)| matches!(what, Bottleneck::SourceLinks | Bottleneck::BuilderLinks));
        busiest(of_links.copied()).map_or(0.0, |(_, share)| share / fifo_inputs_limit())
    }

    /// What the rate loads, with the empty blocks for ports without a builder unit.
    pub(super) fn loads(&self) -> [(Bottleneck, f64); 6] {
        let shaping = self.sending.shaping(self.request.block_bytes);
        self.request.loads_in_turns(shaping, self.turns())
    }

    /// Blocks that a source sends for each that may carry something: those for ports without a builder
    /// unit are always empty.
    fn turns(&self) -> f64 {
        match self.sending {
            Sending::BarrelShifter => {
                f64::from(self.topology.destinations()) / f64::from(self.request.builders)
            }
            _ => 1.0,
        }
    }
}

/// What makes the blocks of a barrel shifter take their time, of whose slots this share is full: what
/// a source needs for each of them, or else the network, whose headers take the rest.
fn pace(busy: &[(Bottleneck, f64)], slots: f64) -> Bottleneck {
    let paces = [
        Bottleneck::SourceLinks,
        Bottleneck::BuilderLinks,
        Bottleneck::Adapter,
        Bottleneck::Bus,
    ];
    let enough =
        |(what, share): &(Bottleneck, f64)| paces.contains(what) && *share >= PACES * slots;
    busiest(busy.iter().copied().filter(enough)).map_or(Bottleneck::Switch, |(what, _)| what)
}

/// By how much more the second half of a run is.
fn between_halves(batches: &[f64]) -> f64 {
    let (early, late) = batches.split_at(batches.len() / 2);
    let mean = |half: &[f64]| half.iter().sum::<f64>() / half.len().max(1) as f64;
    mean(late) - mean(early)
}

/// What should never happen, and did.
fn violation(outcome: &BuilderNetworkOutcome) -> Option<String> {
    match outcome.violations.first() {
        None if !outcome.is_conserved() => Some("fragments are not conserved".to_owned()),
        violation => violation.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of 1000 Hz in the first half and `late` in the second one, with noise of 2 %.
    fn trial(late: f64) -> Trial {
        let batches: Vec<f64> = (0..32)
            .map(|n| if n < 16 { 1e3 } else { late } + f64::from(n % 3 - 1) * 20.0)
            .collect();
        let setting = Setting {
            credits: 4,
            requests_per_message: 8,
            interval: DurationPs::ZERO,
        };
        let rate = Estimate::of(&batches);
        assert!(!rate.converged && !rate.is_flat, "{rate:?}");
        Trial {
            rate,
            trend_hz: between_halves(&batches),
            is_filled: true,
            ..Trial::none(setting)
        }
    }

    #[test]
    fn a_trend_leaves_open_only_what_it_may_lead_to() {
        let falling = trial(900.0);
        assert!((falling.trend_hz + 100.0).abs() < 5.0, "{falling:?}");
        // It may come to a half, but not to more than it was.
        assert!(falling.is_clear(200.0) && falling.is_clear(1_200.0));
        assert!(!falling.is_clear(700.0), "{falling:?}");
        let [least, most] = falling.bounds().unwrap();
        assert!(least < 600.0 && (950.0..1_100.0).contains(&most));
        let rising = trial(1_100.0);
        assert!(rising.is_clear(900.0) && rising.is_clear(3_000.0));
        assert!(!rising.is_clear(1_300.0), "{rising:?}");
    }
}
