//! The output budget: how many bytes of events may be written in any second, and who yields.
//!
//! A filter farm writes into something with a limit (the Level-3 farm of paper 002 had 15 MB/s).
//! [`OutputBudget`] keeps account of what was written in the last second and says of each event
//! whether it may be written now, must wait (back-pressure, which becomes dead time), or is not
//! written because its streams yield: of these, what does not fit, and what a prescale leaves out that
//! is stepped up while something does not. It does not write and does not wait: its caller does
//! both. The sum of the bytes admitted in any window of one second, wherever it begins, is at most
//! the budget; a property test says so.

use livetime_wire::{ByteSize, DurationNs, Problem, RunNs};

use crate::problem_code;

/// Length of a slot \[ns\]: 2^20, so that finding one is a shift.
const SLOT_BITS: u32 = 20;
/// Slots that reach over a second, whatever the phase, and a power of two.
const SLOTS: usize = 1024;
/// Slots that may lie, in part, within one second of now.
const SLOTS_IN_WINDOW: u64 = (1_000_000_000 >> SLOT_BITS) + 2;
/// Largest factor by which yielding streams are prescaled.
const PRESCALE_MAX: u32 = 1 << 16;
/// Below this share of the budget the prescale is stepped down \[1/256\].
const RELAXED: u64 = 192;

const _: () = assert!(SLOTS_IN_WINDOW <= SLOTS as u64);

/// The limit, and the streams that yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// Bytes of events in any second; 0 for no limit. At least the largest event.
    pub bytes_per_s: u64,
    /// Streams whose events are not all written when the budget binds, one bit each. An event yields if
    /// all its streams do; all others wait.
    pub yielding_streams: u16,
}

impl OutputLimit {
    /// A limit that no event of the largest size could pass; the path is that of the key.
    pub fn validate(&self, event_bytes_max: usize) -> Vec<Problem> {
        let smallest = event_bytes_max as u64;
        if self.bytes_per_s == 0 || self.bytes_per_s >= smallest {
            return Vec::new();
        }
        vec![Problem::new(
            problem_code::OUTPUT_LIMIT,
            "store.output_per_second",
            format!("{:#}", ByteSize(self.bytes_per_s)),
            format!("0 B, or at least {:#}", ByteSize(smallest)),
            "raise it, or lower store.event_max: one event must fit into a second",
        )]
    }
}

/// What becomes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Write it; its bytes are booked.
    Write,
    /// Keep it and ask again, not before this time.
    Wait {
        /// When something of the budget comes free.
        until: RunNs,
    },
    /// It yields: count it, and do not write it.
    Yield,
}

/// What the budget did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputCounts {
    /// Events that had to wait.
    pub waited: u64,
    /// Time in which an event waited \[ns\].
    pub waited_ns: u64,
    /// Events that yielded, as they did not fit or were prescaled away.
    pub yielded: u64,
    /// The factor by which yielding streams are prescaled at present, 1 for none.
    pub prescale: u32,
    /// The largest factor so far.
    pub prescale_max: u32,
    /// The most bytes booked within a second so far.
    pub window_bytes_max: u64,
}

/// Keeps account of the last second.
#[derive(Debug)]
pub struct OutputBudget {
    limit: OutputLimit,
    /// Bytes booked by slot, a ring.
    slots: Box<[u64; SLOTS]>,
    /// The slot of the last call.
    newest: u64,
    /// Sum of the slots that may lie within a second of `newest`.
    in_window: u64,
    counts: OutputCounts,
    /// Yielding events seen, for the prescale.
    offered: u64,
    waiting_since: Option<RunNs>,
    /// When the prescale was last stepped, and whether the budget has bound since then.
    stepped_at: RunNs,
    has_bound: bool,
}

impl OutputBudget {
    /// A budget of which nothing is used.
    pub fn new(limit: OutputLimit) -> Self {
        Self {
            limit,
            slots: Box::new([0; SLOTS]),
            newest: 0,
            in_window: 0,
            counts: OutputCounts {
                prescale: 1,
                prescale_max: 1,
                ..OutputCounts::default()
            },
            offered: 0,
            waiting_since: None,
            stepped_at: RunNs(0),
            has_bound: false,
        }
    }

    /// Asks for an event of `bytes` in `streams`. After [`Admission::Wait`] the next call is for
    /// the same event. Time does not go back; a call for an earlier time counts as for the last.
    pub fn handle_event(&mut self, now: RunNs, bytes: u64, streams: u16) -> Admission {
        if self.limit.bytes_per_s == 0 {
            return Admission::Write;
        }
        self.advance(now);
        self.step_prescale(now);
        let yields = streams != 0 && streams & !self.limit.yielding_streams == 0;
        // An event that waits was counted when it came.
        if yields && self.waiting_since.is_none() {
            let place = self.offered % u64::from(self.counts.prescale);
            self.offered += 1;
            if place != 0 {
                self.counts.yielded += 1;
                return Admission::Yield;
            }
        }
        if self.in_window.saturating_add(bytes) <= self.limit.bytes_per_s {
            self.book(now, bytes);
            return Admission::Write;
        }
        self.has_bound = true;
        if yields {
            self.waiting_since = None;
            self.counts.yielded += 1;
            return Admission::Yield;
        }
        if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
            self.counts.waited += 1;
        }
        Admission::Wait {
            until: self.free_at(bytes),
        }
    }

    /// Books an event that is written whatever the budget says: the rest of a lost filter unit,
    /// which must not be lost with it. The next ones wait the longer.
    pub fn handle_forced(&mut self, now: RunNs, bytes: u64) {
        self.advance(now);
        self.book(now, bytes);
    }

    /// What it did so far.
    pub fn counts(&self) -> OutputCounts {
        self.counts
    }

    fn book(&mut self, now: RunNs, bytes: u64) {
        if let Some(since) = self.waiting_since.take() {
            self.counts.waited_ns += now.since(since).0;
        }
        self.slots[index(self.newest)] += bytes;
        self.in_window += bytes;
        self.counts.window_bytes_max = self.counts.window_bytes_max.max(self.in_window);
    }

    /// Forgets what was written more than a second before `now`.
    fn advance(&mut self, now: RunNs) {
        let slot = (now.0 >> SLOT_BITS).max(self.newest);
        if slot - self.newest >= SLOTS_IN_WINDOW {
            self.slots.fill(0);
            self.in_window = 0;
        } else {
            for leaving in self.newest + 1..=slot {
                if let Some(old) = leaving.checked_sub(SLOTS_IN_WINDOW) {
                    self.in_window -= std::mem::take(&mut self.slots[index(old)]);
                }
            }
        }
        self.newest = slot;
    }

    /// When enough of what was written is more than a second ago.
    fn free_at(&self, bytes: u64) -> RunNs {
        let mut used = self.in_window;
        let oldest = (self.newest + 1).saturating_sub(SLOTS_IN_WINDOW);
        for slot in oldest..=self.newest {
            used -= self.slots[index(slot)];
            if used.saturating_add(bytes) <= self.limit.bytes_per_s {
                return RunNs((slot + SLOTS_IN_WINDOW) << SLOT_BITS);
            }
        }
        // Only an event above the limit gets here, which `validate` excludes.
        RunNs((self.newest + SLOTS_IN_WINDOW) << SLOT_BITS)
    }

    /// Once a second: twice the prescale if the budget has bound, half of it if there is room.
    fn step_prescale(&mut self, now: RunNs) {
        if self.limit.yielding_streams == 0 || now.since(self.stepped_at) < DurationNs::SECOND {
            return;
        }
        let prescale = self.counts.prescale;
        self.counts.prescale = if self.has_bound {
            (prescale * 2).min(PRESCALE_MAX)
        } else if self.in_window < self.limit.bytes_per_s / 256 * RELAXED {
            (prescale / 2).max(1)
        } else {
            prescale
        };
        self.counts.prescale_max = self.counts.prescale_max.max(self.counts.prescale);
        self.stepped_at = now;
        self.has_bound = false;
    }
}

fn index(slot: u64) -> usize {
    slot as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn budget(bytes_per_s: u64, yielding_streams: u16) -> OutputBudget {
        OutputBudget::new(OutputLimit {
            bytes_per_s,
            yielding_streams,
        })
    }

    #[test]
    fn without_a_limit_everything_is_written() {
        let mut budget = budget(0, 0xFFFF);
        for _ in 0..10 {
            let admission = budget.handle_event(RunNs(0), u64::MAX / 2, 1);
            assert_eq!(admission, Admission::Write);
        }
    }

    #[test]
    fn what_does_not_fit_waits_until_it_does() {
        let mut budget = budget(1000, 0);
        assert_eq!(budget.handle_event(RunNs(5 * MS), 600, 1), Admission::Write);
        assert_eq!(budget.handle_event(RunNs(6 * MS), 400, 1), Admission::Write);
        let Admission::Wait { until } = budget.handle_event(RunNs(7 * MS), 100, 1) else {
            panic!("the budget is used up");
        };
        assert!((1005 * MS..1010 * MS).contains(&until.0), "{until:?}");
        let early = budget.handle_event(RunNs(until.0 - 1), 100, 1);
        assert_eq!(early, Admission::Wait { until });
        assert_eq!(budget.handle_event(until, 100, 1), Admission::Write);
        let counts = budget.counts();
        assert_eq!((counts.waited, counts.yielded), (1, 0));
        assert_eq!(counts.waited_ns, until.0 - 7 * MS);
        assert_eq!(counts.window_bytes_max, 1000);
    }

    #[test]
    fn yielding_streams_are_prescaled_and_the_others_wait() {
        let mut budget = budget(1000, 0b110);
        assert_eq!(budget.handle_event(RunNs(0), 900, 0b001), Admission::Write);
        assert_eq!(budget.handle_event(RunNs(1), 200, 0b010), Admission::Yield);
        assert_eq!(budget.handle_event(RunNs(1), 200, 0b110), Admission::Yield);
        // Both streams want it, one of them does not yield.
        let both = budget.handle_event(RunNs(1), 200, 0b011);
        assert!(matches!(both, Admission::Wait { .. }));
        assert_eq!(budget.counts().yielded, 2);
        // An event of no stream belongs to nobody who could yield.
        let mut other = super::tests::budget(100, 0xFFFF);
        assert_eq!(other.handle_event(RunNs(0), 100, 0), Admission::Write);
        let none = other.handle_event(RunNs(0), 1, 0);
        assert!(matches!(none, Admission::Wait { .. }));
    }

    #[test]
    fn the_prescale_goes_up_while_the_budget_binds_and_down_afterwards() {
        let mut budget = budget(10_000, 1);
        let mut written = [0u64; 12];
        for ms in 0..12_000 {
            // Ten times the budget for six seconds, then a tenth of it.
            let bytes = if ms < 6_000 { 100 } else { 1 };
            if budget.handle_event(RunNs(ms * MS), bytes, 1) == Admission::Write {
                written[(ms / 1000) as usize] += bytes;
            }
            if ms == 5_999 {
                assert!(budget.counts().prescale >= 8, "{:?}", budget.counts());
            }
        }
        assert!(written.iter().all(|bytes| *bytes <= 10_000), "{written:?}");
        assert_eq!(budget.counts().prescale, 1);
        assert!(budget.counts().prescale_max <= 32);
    }

    #[test]
    fn what_is_forced_is_booked() {
        let mut budget = budget(1000, 0);
        let wait = budget.handle_event(RunNs(0), 1000, 1);
        assert_eq!(wait, Admission::Write);
        budget.handle_forced(RunNs(500 * MS), 700);
        assert_eq!(budget.counts().window_bytes_max, 1700);
        let after = budget.handle_event(RunNs(1100 * MS), 400, 1);
        assert!(matches!(after, Admission::Wait { .. }));
        assert_eq!(
            budget.handle_event(RunNs(1600 * MS), 400, 1),
            Admission::Write
        );
    }

    #[test]
    fn one_event_must_fit_into_a_second() {
        let limit = |bytes_per_s| OutputLimit {
            bytes_per_s,
            yielding_streams: 0,
        };
        assert!(limit(0).validate(1 << 20).is_empty());
        assert!(limit(1 << 20).validate(1 << 20).is_empty());
        let problems = limit((1 << 20) - 1).validate(1 << 20);
        assert_eq!(problems.len(), 1);
    }

    proptest! {
        /// Whatever comes when: no second holds more than the budget, and what waits is written
        /// at the time that was said.
        #[test]
        fn no_second_exceeds_the_budget(
            events in prop::collection::vec((0u64..40 * MS, 1u64..=1000, 0u16..8), 1..400),
            yielding in 0u16..8,
        ) {
            let mut budget = budget(5000, yielding);
            let mut now = 0;
            let mut written: Vec<(u64, u64)> = Vec::new();
            let (mut yielded, mut offered) = (0, 0);
            for (gap, bytes, streams) in events {
                now += gap;
                offered += 1;
                match budget.handle_event(RunNs(now), bytes, streams) {
                    Admission::Write => written.push((now, bytes)),
                    Admission::Yield => {
                        prop_assert!(streams != 0 && streams & !yielding == 0);
                        yielded += 1;
                    }
                    Admission::Wait { until } => {
                        prop_assert!(until.0 > now && until.0 <= now + 1_100 * MS);
                        now = until.0;
                        let again = budget.handle_event(until, bytes, streams);
                        prop_assert_eq!(again, Admission::Write);
                        written.push((now, bytes));
                    }
                }
            }
            prop_assert_eq!(written.len() + yielded, offered);
            prop_assert_eq!(budget.counts().yielded, yielded as u64);
            for (first, (start, _)) in written.iter().enumerate() {
                let within = written[first..].iter().take_while(|(at, _)| at - start <= 1_000_000_000);
                let sum: u64 = within.map(|(_, bytes)| bytes).sum();
                prop_assert!(sum <= 5000, "{} bytes in the second from {} ns", sum, start);
            }
        }
    }
}
