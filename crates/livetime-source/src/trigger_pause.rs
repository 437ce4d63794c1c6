//! Pauses of a run: while one lasts, triggers come and none is taken.
//!
//! [`TriggerPause`] is told when an operator holds triggers back and when not. A driver may come to an
//! offer later than it was made, so what was in force at a moment before is remembered for the last
//! [`PAUSES_KEPT`] pauses. Nothing is allocated after the start.

use std::collections::VecDeque;

use livetime_wire::{DurationNs, RunNs};

/// Pauses that are over and remembered. Offers are looked at every duty cycle, and commands between.
pub const PAUSES_KEPT: usize = 64;

/// When triggers were held back, and for how long in all.
#[derive(Debug, Clone)]
pub struct TriggerPause {
    /// When the present pause began.
    since: Option<RunNs>,
    /// Beginning and end of those that are over, in their order.
    over: VecDeque<(RunNs, RunNs)>,
    /// Time in those that are over.
    total: DurationNs,
    count: u64,
}

impl Default for TriggerPause {
    /// The start of a run: triggers are taken.
    fn default() -> Self {
        Self {
            since: None,
            over: VecDeque::with_capacity(PAUSES_KEPT),
            total: DurationNs(0),
            count: 0,
        }
    }
}

impl TriggerPause {
    /// Triggers are taken no more; as before while they are not anyway.
    pub fn pause(&mut self, now: RunNs) {
        if self.since.is_none() {
            self.since = Some(now);
            self.count += 1;
        }
    }

    /// Triggers are taken again; as before while they are anyway.
    pub fn resume(&mut self, now: RunNs) {
        let Some(since) = self.since.take() else {
            return;
        };
        self.total.0 += now.since(since).0;
        if self.over.len() == PAUSES_KEPT {
            self.over.pop_front();
        }
        self.over.push_back((since, now));
    }

    /// Whether triggers are held back now.
    pub fn is_paused(&self) -> bool {
        self.since.is_some()
    }

    /// Whether they were at a moment up to now; beyond [`PAUSES_KEPT`] pauses ago they were not.
    pub fn was_paused(&self, at: RunNs) -> bool {
        let mut over = self.over.iter().rev();
        self.since.is_some_and(|since| at >= since)
            || over.any(|(since, until)| *since <= at && at < *until)
    }

    /// Time in pauses up to `now`.
    pub fn duration(&self, now: RunNs) -> DurationNs {
        let present = self.since.map_or(0, |since| now.since(since).0);
        DurationNs(self.total.0 + present)
    }

    /// Pauses, the present one included.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_remembered_and_their_time_is_summed() {
        let mut pause = TriggerPause::default();
        assert!(!pause.is_paused() && !pause.was_paused(RunNs(0)));
        pause.resume(RunNs(5));
        assert_eq!(
            (pause.count(), pause.duration(RunNs(9))),
            (0, DurationNs(0))
        );
        pause.pause(RunNs(10));
        pause.pause(RunNs(15));
        assert!(pause.is_paused());
        assert_eq!(pause.duration(RunNs(17)), DurationNs(7));
        assert!(!pause.was_paused(RunNs(9)) && pause.was_paused(RunNs(10)));
        pause.resume(RunNs(20));
        pause.pause(RunNs(30));
        for (at, was_paused) in [(9, false), (10, true), (19, true), (20, false), (30, true)] {
            assert_eq!(pause.was_paused(RunNs(at)), was_paused, "at {at}");
        }
        assert_eq!(
            (pause.count(), pause.duration(RunNs(34))),
            (2, DurationNs(14))
        );
    }

    #[test]
    fn oldest_pauses_are_forgotten_and_take_no_more_room() {
        let mut pause = TriggerPause::default();
        let room = pause.over.capacity();
        for n in 0..=PAUSES_KEPT as u64 {
            pause.pause(RunNs(10 * n));
            pause.resume(RunNs(10 * n + 5));
        }
        assert!(!pause.was_paused(RunNs(2)) && pause.was_paused(RunNs(12)));
        assert_eq!(pause.over.capacity(), room);
        assert_eq!(pause.duration(RunNs(1000)), DurationNs(5 * 65));
    }
}
