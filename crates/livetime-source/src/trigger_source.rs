//! The trigger source: when a trigger is offered, and what came of the offers.
//!
//! The driver polls it, hands each [`Offer`] to the trigger supervisor and reports a refusal; the
//! event of an accepted offer is then made from its index alone. Timed, it offers at its arrival
//! times and counts what was refused, which is the dead time; lossless, it waits for a free
//! Level-2 buffer, so that nothing is refused and the run is the same every time.
//!
//! Its time begins when triggers are taken, which may be later than that of the run.
//!
//! Conserved: `offered` = refusals + triggers. The words are made by [`crate::encoder`] and
//! [`crate::fragment_writer`].

use livetime_wire::{DurationNs, Problem, RunNs};

use crate::arrival::{ArrivalConfig, ArrivalKind, ArrivalProcess};
use crate::problem_code::{RATE, RUN_END};

/// Offers that one poll may skip as too old, about a millisecond's work; a longer backlog is skipped by
/// the next polls. Fewer, and at rates far above what a machine takes every offer would be too old.
const SKIPS_PER_POLL: usize = 65_536;
/// Bunch crossings of one turn, 25 ns each, as at the LHC.
pub const BUNCHES: u64 = 3564;
/// Nanoseconds between two bunch crossings.
const BUNCH_NS: u64 = 25;

/// Who gives way when all Level-2 buffers are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OfferMode {
    /// The source: triggers come when they come, and a refused one is dead time.
    #[default]
    Timed,
    /// Time: the next trigger waits for a free buffer.
    Lossless,
}

/// How triggers are offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TriggerSourceConfig {
    /// When they come. Default Poisson at 10 kHz.
    pub arrival: ArrivalConfig,
    /// Whether they may be refused. Default timed.
    pub mode: OfferMode,
    /// The source ends after so many accepted triggers. Default none.
    pub triggers_max: Option<u64>,
    /// The source ends at this time since triggers are taken. Default 20 s.
    pub duration: Option<DurationNs>,
    /// Timed offers that could not be made for so long count as refused, since a front-end holds
    /// its data no longer; it bounds how far a slow machine lags behind. Default 1 ms.
    pub lateness_max: DurationNs,
    /// The run begins with a pause: no trigger is taken until it is resumed. Default not.
    pub starts_paused: bool,
}

impl Default for TriggerSourceConfig {
    fn default() -> Self {
        Self {
            arrival: ArrivalConfig::default(),
            mode: OfferMode::Timed,
            triggers_max: None,
            duration: Some(DurationNs(20_000_000_000)),
            lateness_max: DurationNs::MILLISECOND,
            starts_paused: false,
        }
    }
}

impl TriggerSourceConfig {
    /// Every problem of these offers; `path` is their key path.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = self.arrival.validate(path);
        if self.arrival.kind == ArrivalKind::Unpaced && self.mode == OfferMode::Timed {
            let help = "triggers without pace need lossless offers, or all would be refused";
            let allowed = "a rate, or lossless offers";
            let path = format!("{path}.rate");
            problems.push(Problem::new(RATE, path, "unpaced", allowed, help));
        }
        let of_triggers = "leave it out for a run without this end";
        let of_duration =
            "leave it out for a run that ends by `triggers`, or after 20 s without them";
        for (key, value, help) in [
            ("triggers", self.triggers_max, of_triggers),
            (
                "duration",
                self.duration.map(|duration| duration.0),
                of_duration,
            ),
        ] {
            if value == Some(0) {
                let path = format!("{path}.{key}");
                problems.push(Problem::new(RUN_END, path, 0, "above 0", help));
            }
        }
        problems
    }
}

/// Whether the supervisor has a free Level-2 buffer and no link is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// An offer now would be accepted.
    Free,
    /// An offer now would be refused.
    Full,
}

/// A trigger that the source offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// When it came by the arrival process; not after the poll that returned it.
    pub at: RunNs,
}

impl Offer {
    /// The bunch crossing of the offer.
    pub fn bunch(&self) -> u32 {
        (self.at.0 / BUNCH_NS % BUNCHES) as u32
    }
}

/// What a trigger source wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourcePoll {
    /// Offer this trigger; counted as offered.
    Offer(Offer),
    /// Nothing before this time.
    Wait {
        /// When the next trigger comes; not after the poll where more are to be skipped as too old.
        until: RunNs,
    },
    /// Lossless, and a trigger waits for a free buffer.
    Blocked,
    /// No trigger will come any more.
    Finished,
}

/// Why an offer was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// All Level-2 buffers are full.
    BuffersFull,
    /// A link is off.
    Xoff,
    /// The source itself came to it too late.
    Late,
    /// The trigger gate is closed.
    Gate,
    /// The gate in which a schedule asked for it has passed.
    GatePassed,
    /// The run is paused.
    Paused,
}

/// What a trigger source has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TriggerSourceCounts {
    /// Triggers offered, those that were too old included.
    pub offered: u64,
    /// Refused because all Level-2 buffers were full.
    pub refused_buffers: u64,
    /// Refused because a link was off.
    pub refused_xoff: u64,
    /// Refused because the source itself came to them too late.
    pub refused_late: u64,
    /// Refused because the trigger gate was closed.
    pub refused_gate: u64,
    /// Triggers of a schedule, refused because the gate in which they were asked for had passed.
    pub refused_gate_passed: u64,
    /// Refused because the run was paused.
    pub refused_paused: u64,
}

impl TriggerSourceCounts {
    /// All refusals.
    pub fn refused(&self) -> u64 {
        self.refused_buffers + self.refused_xoff + self.refused_late + self.refused_outside()
    }

    /// Those that came when none was wanted, because of the trigger gate or in a pause: no dead time.
    pub fn refused_outside(&self) -> u64 {
        self.refused_gate + self.refused_gate_passed + self.refused_paused
    }

    /// Triggers accepted.
    pub fn accepted(&self) -> u64 {
        self.offered - self.refused()
    }

    fn refuse(&mut self, cause: RefusalCause) {
        let count = match cause {
            RefusalCause::BuffersFull => &mut self.refused_buffers,
            RefusalCause::Xoff => &mut self.refused_xoff,
            RefusalCause::Late => &mut self.refused_late,
            RefusalCause::Gate => &mut self.refused_gate,
            RefusalCause::GatePassed => &mut self.refused_gate_passed,
            RefusalCause::Paused => &mut self.refused_paused,
        };
        *count += 1;
    }
}

/// Offers triggers.
#[derive(Debug, Clone)]
pub struct TriggerSource {
    config: TriggerSourceConfig,
    arrival: ArrivalProcess,
    next: Offer,
    /// A lossless offer that was refused, to be made again.
    again: Option<Offer>,
    stopped: bool,
    counts: TriggerSourceCounts,
}

impl TriggerSource {
    /// A source at the start of its run; `config` has been validated.
    pub fn new(config: &TriggerSourceConfig, seed: u64) -> Self {
        let mut arrival = ArrivalProcess::new(&config.arrival, seed);
        Self {
            config: *config,
            next: Offer {
                at: arrival.next_offer(),
            },
            arrival,
            again: None,
            stopped: false,
            counts: TriggerSourceCounts::default(),
        }
    }

    /// What to do at `now`. Each offer returned is accepted unless [`TriggerSource::handle_refused`]
    /// follows before the next poll.
    pub fn poll(&mut self, now: RunNs, buffers: Buffers) -> SourcePoll {
        self.poll_gated(now, buffers, |_| None)
    }

    /// As [`TriggerSource::poll`], where there is a trigger gate or a pause: `closed_by` says what kept
    /// triggers out at a moment before, so that those that are too old are no dead time if they came
    /// then.
    pub fn poll_gated(
        &mut self,
        now: RunNs,
        buffers: Buffers,
        closed_by: impl Fn(RunNs) -> Option<RefusalCause>,
    ) -> SourcePoll {
        if self.is_finished(now) {
            return SourcePoll::Finished;
        }
        match self.config.mode {
            OfferMode::Lossless => self.poll_lossless(now, buffers),
            OfferMode::Timed => self.poll_timed(now, closed_by),
        }
    }

    fn poll_lossless(&mut self, now: RunNs, buffers: Buffers) -> SourcePoll {
        if self.again.is_none() && self.next.at > now {
            return SourcePoll::Wait {
                until: self.next.at,
            };
        }
        if buffers == Buffers::Full {
            return SourcePoll::Blocked;
        }
        self.counts.offered += 1;
        let again = self.again.take();
        SourcePoll::Offer(again.unwrap_or_else(|| self.advance()))
    }

    fn poll_timed(
        &mut self,
        now: RunNs,
        closed_by: impl Fn(RunNs) -> Option<RefusalCause>,
    ) -> SourcePoll {
        for _ in 0..SKIPS_PER_POLL {
            if self.is_finished(now) {
                return SourcePoll::Finished;
            }
            if self.next.at > now {
                let end = self.config.duration.map_or(RunNs::MAX, |d| RunNs(d.0));
                return SourcePoll::Wait {
                    until: self.next.at.min(end),
                };
            }
            let offer = self.advance();
            self.counts.offered += 1;
            if now.since(offer.at) <= self.config.lateness_max {
                return SourcePoll::Offer(offer);
            }
            let cause = closed_by(offer.at).unwrap_or(RefusalCause::Late);
            self.counts.refuse(cause);
        }
        SourcePoll::Wait { until: now }
    }

    /// Offers a trigger that a schedule asks for, beside those of the arrival process; `None` once
    /// the source is at its end. It takes the place of no other trigger.
    pub fn offer_scheduled(&mut self, now: RunNs) -> Option<Offer> {
        if self.is_finished(now) {
            return None;
        }
        self.counts.offered += 1;
        Some(Offer { at: now })
    }

    /// A trigger that a schedule asked for cannot be taken, since its gate has passed or the run is
    /// paused. It is offered and refused.
    pub fn refuse_scheduled(&mut self, now: RunNs, cause: RefusalCause) {
        if !self.is_finished(now) {
            self.counts.offered += 1;
            self.counts.refuse(cause);
        }
    }

    /// Whether triggers may be refused; if not, they wait.
    pub fn may_refuse(&self) -> bool {
        self.config.mode == OfferMode::Timed
    }

    /// Triggers that a schedule asked for wait for a buffer still, and the run takes no more. They are
    /// offered and refused, but in a lossless run, which refuses nothing.
    pub fn refuse_waiting(&mut self, triggers: u64) {
        if self.may_refuse() {
            self.counts.offered += triggers;
            self.counts.refused_buffers += triggers;
        }
    }

    /// The offer returned last was refused.
    ///
    /// # Panics
    /// If more offers are refused than were made.
    pub fn handle_refused(&mut self, offer: Offer, cause: RefusalCause) {
        self.counts.refuse(cause);
        assert!(
            self.counts.refused() <= self.counts.offered,
            "each offer is refused at most once"
        );
        if self.config.mode == OfferMode::Lossless {
            self.again = Some(offer);
        }
    }

    /// Whether its time or number of triggers is reached: at most those from before are still offered.
    pub fn is_at_end(&self, now: RunNs) -> bool {
        let is_over = self.config.duration.is_some_and(|end| now.0 >= end.0);
        self.stopped || is_over || self.has_enough()
    }

    fn has_enough(&self) -> bool {
        let enough = self.config.triggers_max;
        enough.is_some_and(|max| self.counts.accepted() >= max)
    }

    /// Offers nothing any more.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// What has been done so far.
    pub fn counts(&self) -> TriggerSourceCounts {
        self.counts
    }

    /// Returns the next offer and prepares the one after it.
    fn advance(&mut self) -> Offer {
        let offer = self.next;
        self.next = Offer {
            at: self.arrival.next_offer(),
        };
        offer
    }

    fn is_finished(&self, now: RunNs) -> bool {
        let over = self
            .config
            .duration
            .is_some_and(|duration| match self.config.mode {
                // Triggers from before the end are still offered or counted, however late the poll. Until
                // then a schedule may ask for more.
                OfferMode::Timed => now.0.min(self.next.at.0) >= duration.0,
                OfferMode::Lossless => now.0 >= duration.0,
            });
        self.stopped || over || self.has_enough()
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::RateHz;

    use super::*;

    #[test]
    fn scheduled_triggers_come_beside_the_others() {
        let mut source = TriggerSource::new(&config(OfferMode::Timed), 1);
        let extra = source.offer_scheduled(RunNs(7_000)).unwrap();
        assert_eq!(extra, offer(7_000));
        let first = source.poll(RunNs(10_000), Buffers::Free);
        assert_eq!(first, SourcePoll::Offer(offer(10_000)));
        source.handle_refused(offer(10_000), RefusalCause::Gate);
        let counts = source.counts();
        assert_eq!(
            (counts.offered, counts.refused_gate, counts.accepted()),
            (2, 1, 1)
        );
        source.refuse_scheduled(RunNs(11_000), RefusalCause::GatePassed);
        let counts = source.counts();
        assert_eq!(
            (counts.offered, counts.refused_gate_passed, counts.refused()),
            (3, 1, 2)
        );
        source.stop();
        assert_eq!(source.offer_scheduled(RunNs(12_000)), None);
        source.refuse_scheduled(RunNs(12_000), RefusalCause::GatePassed);
        assert_eq!(source.counts(), counts, "nothing is offered after the end");
    }

    /// A trigger every 10 us.
    fn config(mode: OfferMode) -> TriggerSourceConfig {
        TriggerSourceConfig {
            arrival: ArrivalConfig {
                kind: ArrivalKind::FixedGap,
                rate: RateHz(100_000.0),
            },
            mode,
            duration: None,
            ..TriggerSourceConfig::default()
        }
    }

    const fn wait(until: u64) -> SourcePoll {
        SourcePoll::Wait {
            until: RunNs(until),
        }
    }

    const fn offer(at: u64) -> Offer {
        Offer { at: RunNs(at) }
    }

    #[test]
    fn a_timed_source_waits_for_the_end_without_offers_of_its_own() {
        let config = TriggerSourceConfig {
            duration: Some(DurationNs(15_000)),
            ..config(OfferMode::Timed)
        };
        let mut source = TriggerSource::new(&config, 1);
        let first = source.poll(RunNs(12_000), Buffers::Free);
        assert_eq!(first, SourcePoll::Offer(offer(10_000)));
        assert_eq!(source.poll(RunNs(12_000), Buffers::Free), wait(15_000));
        assert_eq!(source.offer_scheduled(RunNs(14_999)), Some(offer(14_999)));
        let finished = source.poll(RunNs(15_000), Buffers::Free);
        assert_eq!(finished, SourcePoll::Finished);
        assert_eq!(source.offer_scheduled(RunNs(15_000)), None);
    }

    #[test]
    fn timed_offers_come_at_their_time_and_refused_ones_never_again() {
        let mut source = TriggerSource::new(&config(OfferMode::Timed), 1);
        assert_eq!(source.poll(RunNs(0), Buffers::Free), wait(10_000));
        let first = offer(10_000);
        // Full buffers do not hold back a timed source: the supervisor refuses.
        assert_eq!(
            source.poll(RunNs(12_000), Buffers::Full),
            SourcePoll::Offer(first)
        );
        source.handle_refused(first, RefusalCause::BuffersFull);
        assert_eq!(source.poll(RunNs(12_000), Buffers::Free), wait(20_000));
        let second = offer(20_000);
        assert_eq!(
            source.poll(RunNs(20_000), Buffers::Free),
            SourcePoll::Offer(second)
        );
        let counts = source.counts();
        assert_eq!(
            (counts.offered, counts.refused(), counts.accepted()),
            (2, 1, 1)
        );
        assert_eq!(second.bunch(), 800);
    }

    #[test]
    fn offers_older_than_the_limit_are_refused_and_counted_as_late() {
        let mut source = TriggerSource::new(&config(OfferMode::Timed), 1);
        // 1000 triggers have come after 10 ms; those of the last millisecond are still offered.
        let now = RunNs(10_000_000);
        let mut offered = Vec::new();
        while let SourcePoll::Offer(offer) = source.poll(now, Buffers::Free) {
            offered.push(offer.at.0 / 10_000 - 1);
        }
        assert_eq!(offered, (899..1000).collect::<Vec<_>>());
        assert_eq!(source.counts().refused_late, 899);
        assert_eq!(source.counts().offered, 1000);
    }

    #[test]
    fn late_offers_from_outside_the_gate_are_no_dead_time() {
        let mut source = TriggerSource::new(&config(OfferMode::Timed), 1);
        let now = RunNs(10_000_000);
        // It was open from 2 ms on: 800 triggers that are too old came since.
        let closed_by = |at: RunNs| match at.0 {
            ..=1_000_000 => Some(RefusalCause::Paused),
            1_000_001..=2_000_000 => Some(RefusalCause::Gate),
            _ => None,
        };
        while let SourcePoll::Offer(_) = source.poll_gated(now, Buffers::Free, closed_by) {}
        let counts = source.counts();
        assert_eq!((counts.refused_late, counts.refused_gate), (699, 100));
        assert_eq!(
            (counts.refused_paused, counts.refused_outside()),
            (100, 200)
        );
        source.refuse_waiting(7);
        assert_eq!(source.counts().offered, 1007);
        assert_eq!(source.counts().accepted(), counts.accepted());
    }

    #[test]
    fn a_long_backlog_is_skipped_in_bounded_steps() {
        let mut source = TriggerSource::new(&config(OfferMode::Timed), 1);
        let now = RunNs(10_000_000_000);
        assert_eq!(source.poll(now, Buffers::Free), wait(now.0));
        assert_eq!(source.counts().offered, SKIPS_PER_POLL as u64);
        let mut polls = 0;
        while source.poll(now, Buffers::Free) == wait(now.0) {
            polls += 1;
        }
        assert_eq!(
            polls, 14,
            "999 899 late offers are 15 full steps of 65 536 and a part"
        );
    }

    #[test]
    fn lossless_offers_wait_for_a_buffer_and_come_again_when_refused() {
        let mut source = TriggerSource::new(&config(OfferMode::Lossless), 1);
        assert_eq!(source.poll(RunNs(5_000), Buffers::Free), wait(10_000));
        assert_eq!(
            source.poll(RunNs(1_000_000), Buffers::Full),
            SourcePoll::Blocked
        );
        let first = offer(10_000);
        for _ in 0..2 {
            assert_eq!(
                source.poll(RunNs(1_000_000), Buffers::Free),
                SourcePoll::Offer(first)
            );
            source.handle_refused(first, RefusalCause::Xoff);
        }
        assert_eq!(
            source.poll(RunNs(1_000_000), Buffers::Free),
            SourcePoll::Offer(first)
        );
        let second = SourcePoll::Offer(offer(20_000));
        assert_eq!(source.poll(RunNs(1_000_000), Buffers::Free), second);
        let counts = source.counts();
        assert_eq!(
            (counts.offered, counts.refused_xoff, counts.accepted()),
            (4, 2, 2)
        );
    }

    #[test]
    fn sources_end_after_their_triggers_at_their_time_or_when_stopped() {
        let run = |config: TriggerSourceConfig, refuse_every: u64| {
            let mut source = TriggerSource::new(&config, 1);
            let mut now = RunNs(0);
            loop {
                match source.poll(now, Buffers::Free) {
                    SourcePoll::Offer(offer) if (offer.at.0 / 10_000 - 1) % refuse_every == 0 => {
                        source.handle_refused(offer, RefusalCause::BuffersFull);
                    }
                    SourcePoll::Offer(_) => {}
                    SourcePoll::Wait { until } => now = until,
                    SourcePoll::Blocked => panic!("buffers are free"),
                    SourcePoll::Finished => return source.counts(),
                }
            }
        };
        let triggers = TriggerSourceConfig {
            triggers_max: Some(100),
            ..config(OfferMode::Timed)
        };
        let counts = run(triggers, 2);
        assert_eq!((counts.accepted(), counts.refused()), (100, 100));

        let timed = TriggerSourceConfig {
            duration: Some(DurationNs(100_000)),
            ..config(OfferMode::Timed)
        };
        // The trigger at the very end is not in the run any more.
        assert_eq!(run(timed, u64::MAX).offered, 9);

        let mut source = TriggerSource::new(&config(OfferMode::Lossless), 1);
        source.stop();
        assert_eq!(
            source.poll(RunNs(20_000), Buffers::Free),
            SourcePoll::Finished
        );
    }

    /// Its end is known before what came earlier is offered.
    #[test]
    fn the_end_of_a_source_is_known_when_it_is_reached() {
        let mut source = TriggerSource::new(
            &TriggerSourceConfig {
                duration: Some(DurationNs(100_000)),
                triggers_max: Some(2),
                ..config(OfferMode::Timed)
            },
            1,
        );
        assert!(!source.is_at_end(RunNs(99_999)) && source.is_at_end(RunNs(100_000)));
        for at in [10_000, 20_000] {
            assert!(!source.is_at_end(RunNs(at)));
            assert_eq!(
                source.poll(RunNs(at), Buffers::Free),
                SourcePoll::Offer(offer(at))
            );
        }
        assert!(source.is_at_end(RunNs(20_000)), "it has enough");
    }

    #[test]
    fn impossible_ends_and_unpaced_timed_offers_are_refused() {
        let mut bad = config(OfferMode::Timed);
        bad.arrival.kind = ArrivalKind::Unpaced;
        bad.triggers_max = Some(0);
        bad.duration = Some(DurationNs(0));
        let problems: Vec<_> = bad.validate("source").into_iter().map(|p| p.path).collect();
        assert_eq!(
            problems,
            ["source.rate", "source.triggers", "source.duration"]
        );
        bad.mode = OfferMode::Lossless;
        assert_eq!(bad.validate("source").len(), 2);
        assert_eq!(TriggerSourceConfig::default().validate("source"), []);
    }
}
