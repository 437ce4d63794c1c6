//! Which events filter units die of, and whether one works on an event for too long.
//!
//! A filter unit notes the event that it works on in its shared counters. When it dies, that event
//! is under suspicion; after so many deaths it is not filtered any more and goes to the error
//! stream. The time that a unit has spent on an event is that in which it was seen at work: neither
//! a stopped process nor a machine that stood still runs out of time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use livetime_wire::{DurationNs, TriggerNumber};

/// Most time that one look adds, so that a watcher that stood still blames nobody.
const STEP_MAX: Duration = Duration::from_millis(100);

/// An event that filter units crashed or hung on. It is in the run file, in the error stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterFailure {
    /// The event.
    pub trigger: TriggerNumber,
    /// Each filter unit that died of it, and how.
    pub deaths: Vec<(String, String)>,
    /// Where the last of them failed, of a filter that says so; else empty.
    pub traceback: String,
}

/// An event that a filter unit works on.
#[derive(Debug, Clone, Copy)]
struct AtWork {
    trigger: TriggerNumber,
    time: Duration,
    seen: Instant,
}

/// The watch over all filter units.
#[derive(Debug)]
pub struct EventWatch {
    retries: u32,
    limit: Duration,
    at_work: BTreeMap<usize, AtWork>,
    suspects: BTreeMap<TriggerNumber, Vec<(String, String)>>,
    failures: Vec<FilterFailure>,
}

impl EventWatch {
    /// An event whose filter unit died is tried `retries` times more; `limit` is the longest time
    /// that a unit may work on an event.
    pub fn new(retries: u32, limit: DurationNs) -> Self {
        Self {
            retries,
            limit: Duration::from_nanos(limit.0),
            at_work: BTreeMap::new(),
            suspects: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Sees what a unit works on; `true` when it is over its time. A `stopped` unit gets no older.
    pub fn see(
        &mut self,
        unit: usize,
        event: Option<TriggerNumber>,
        stopped: bool,
        now: Instant,
    ) -> bool {
        let Some(trigger) = event else {
            self.at_work.remove(&unit);
            return false;
        };
        let at_work = self.at_work.entry(unit).or_insert(AtWork {
            trigger,
            time: Duration::ZERO,
            seen: now,
        });
        let passed = now.saturating_duration_since(at_work.seen).min(STEP_MAX);
        at_work.seen = now;
        if at_work.trigger != trigger {
            (at_work.trigger, at_work.time) = (trigger, Duration::ZERO);
        } else if !stopped {
            at_work.time += passed;
        }
        at_work.time > self.limit
    }

    /// A filter unit died, of `event` if it worked on one. Returns that event when it is not to be
    /// tried again.
    pub fn note_death(
        &mut self,
        unit: usize,
        role: &str,
        event: Option<TriggerNumber>,
        how: &str,
    ) -> Option<TriggerNumber> {
        self.at_work.remove(&unit);
        let trigger = event?;
        let deaths = self.suspects.entry(trigger).or_default();
        deaths.push((role.to_owned(), how.to_owned()));
        (deaths.len() > self.retries as usize).then_some(trigger)
    }

    /// Builder units have sent an event to the error stream.
    pub fn note_given_up(&mut self, trigger: TriggerNumber) {
        if let Some(deaths) = self.suspects.remove(&trigger) {
            self.failures.push(FilterFailure {
                trigger,
                deaths,
                traceback: String::new(),
            });
        }
    }

    /// A filter unit has failed on an event and lives: the event is in the error stream.
    pub fn note_failure(&mut self, failure: FilterFailure) {
        self.failures.push(failure);
    }

    /// The run ends by this death: what `event` would have been tried again for, nobody tries.
    pub fn note_last_death(&mut self, event: Option<TriggerNumber>) {
        if let Some(trigger) = event {
            self.note_given_up(trigger);
        }
    }

    /// The events in the error stream, or that a run was aborted with.
    pub fn take_failures(&mut self) -> Vec<FilterFailure> {
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TriggerNumber = TriggerNumber(7);

    #[test]
    fn an_event_is_given_up_after_its_retries() {
        let mut watch = EventWatch::new(1, DurationNs::SECOND);
        assert_eq!(watch.note_death(0, "fu0", None, "killed"), None);
        assert_eq!(watch.note_death(0, "fu0", Some(T), "killed"), None);
        let other = Some(TriggerNumber(8));
        assert_eq!(watch.note_death(1, "fu1", other, "killed"), None);
        assert_eq!(watch.note_death(1, "fu1", Some(T), "hung"), Some(T));
        watch.note_given_up(T);
        watch.note_given_up(TriggerNumber(99));
        let deaths = [("fu0", "killed"), ("fu1", "hung")];
        let deaths = deaths.map(|(role, how)| (role.to_owned(), how.to_owned()));
        let failure = FilterFailure {
            trigger: T,
            deaths: deaths.into(),
            traceback: String::new(),
        };
        assert_eq!(watch.take_failures(), [failure]);
        // The other was not tried again, as the run has ended by the death of its unit.
        watch.note_last_death(None);
        watch.note_last_death(other);
        assert_eq!(watch.take_failures()[0].trigger, TriggerNumber(8));
        let mut strict = EventWatch::new(0, DurationNs::SECOND);
        assert_eq!(strict.note_death(0, "fu0", Some(T), "killed"), Some(T));
    }

    #[test]
    fn time_runs_only_while_a_unit_is_seen_at_work_on_one_event() {
        let mut watch = EventWatch::new(1, DurationNs(250_000_000));
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for ms in [0, 100, 200] {
            assert!(!watch.see(0, Some(T), false, at(ms)), "{ms}");
        }
        assert!(!watch.see(0, Some(T), true, at(2000)), "it was stopped");
        assert!(!watch.see(1, Some(T), false, at(2000)), "another");
        assert!(!watch.see(0, Some(T), false, at(2050)));
        assert!(watch.see(0, Some(T), false, at(2051)));
        assert!(!watch.see(0, None, false, at(2060)), "it came through");
        assert!(!watch.see(0, Some(T), false, at(2070)));
        assert!(
            !watch.see(0, Some(T), false, at(90_000)),
            "the watcher stood still"
        );
        assert!(!watch.see(0, Some(TriggerNumber(8)), false, at(90_100)));
        assert!(!watch.see(0, Some(TriggerNumber(8)), false, at(90_300)));
    }
}
