//! Whether roles have come to rest: none has done any work in several duty cycles.
//!
//! One that stands still, so that it has not had a single duty cycle in a whole wait, is not waited
//! for again until it moves: the end of a run has several such waits. Nor is work waited for that goes
//! round: who asks for what no one will give may do so more often than a slow role has duty cycles.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::run_page::Activity;
use crate::counter_block::{Gauges, RoleCounts};

/// Duty cycles between two looks without work in any role, after which nothing is on its way.
const QUIET_CYCLES: u64 = 3;
/// Time in which work that brings anything about is counted by somebody: far more than a duty cycle.
const COUNTED_IN: Duration = Duration::from_millis(300);

/// What the roles have done, by their blocks of the run page.
pub(super) type Activities = BTreeMap<usize, Activity>;

/// The roles as they were looked at.
#[derive(Debug, Default)]
pub(super) struct RestWatch {
    before: Activities,
    /// Roles that stand still, with their duty cycles so far.
    still: BTreeMap<usize, u64>,
    counted: Option<LastCounted>,
}

/// When it was last seen that somebody had counted something.
#[derive(Debug)]
struct LastCounted {
    counts: Vec<RoleCounts>,
    activities: Activities,
    at: Instant,
}

impl RestWatch {
    /// Begins to look.
    pub(super) fn begin(&mut self, now: Activities) {
        self.before = now;
        self.counted = None;
    }

    /// Whether nobody has done any work in several duty cycles since a look before; a role more or
    /// less is work. Who stands still is left out. Whoever asks again at once gets the same answer.
    pub(super) fn look(&mut self, now: Activities) -> bool {
        let cycles_of = |block: &usize| now.get(block).map(|activity| activity.cycles);
        self.still
            .retain(|block, cycles| cycles_of(block) == Some(*cycles));
        let is_same = |(block, now): (&usize, &Activity)| {
            self.before
                .get(block)
                .is_some_and(|before| now.work == before.work)
        };
        if now.len() != self.before.len() || !now.iter().all(is_same) {
            self.before = now;
            return false;
        }
        self.have_cycled(&self.before, &now)
    }

    /// Whether all have had several duty cycles since `before`, but for who stands still.
    fn have_cycled(&self, before: &Activities, now: &Activities) -> bool {
        let mut moving = now
            .iter()
            .filter(|(block, _)| !self.still.contains_key(block));
        moving.all(|(block, now)| {
            let before = before.get(block);
            before.is_some_and(|before| now.cycles >= before.cycles + QUIET_CYCLES)
        })
    }

    /// Whether what work there is goes round: all have had several duty cycles since anybody counted
    /// anything, and that is long ago. `counts` are those of the roles of `now`.
    pub(super) fn goes_round(
        &mut self,
        counts: impl Iterator<Item = RoleCounts>,
        now: &Activities,
        at: Instant,
    ) -> bool {
        let counts: Vec<RoleCounts> = counts.map(of_progress).collect();
        let last = self.counted.as_ref();
        let Some(last) = last.filter(|last| last.counts == counts) else {
            self.counted = Some(LastCounted {
                counts,
                activities: now.clone(),
                at,
            });
            return false;
        };
        at.saturating_duration_since(last.at) >= COUNTED_IN
            && self.have_cycled(&last.activities, now)
    }

    /// A wait is over in which the roles did not come to rest: those of `began` that have had no duty
    /// cycle since stand still.
    pub(super) fn end(&mut self, began: &Activities, now: &Activities) {
        let still = without_cycle(began, now);
        self.still
            .extend(still.map(|block| (block, began[&block].cycles)));
    }

    /// Whether a role stands still.
    pub(super) fn is_still(&self, block: usize) -> bool {
        self.still.contains_key(&block)
    }
}

/// Counters without those that grow while a message is only repeated.
fn of_progress(counts: RoleCounts) -> RoleCounts {
    let Gauges {
        held,
        received,
        done,
        ..
    } = counts.gauges;
    RoleCounts {
        gauges: Gauges {
            held,
            received,
            done,
            ..Gauges::default()
        },
        ..counts
    }
}

/// The roles of `began` that have had no duty cycle since.
pub(super) fn without_cycle(began: &Activities, now: &Activities) -> impl Iterator<Item = usize> {
    let still = began.iter().filter(|(block, began)| {
        now.get(block)
            .is_some_and(|activity| activity.cycles == began.cycles)
    });
    still.map(|(block, _)| *block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Roles 0, 1, .. with these duty cycles and work.
    fn roles(of: &[(u64, u64)]) -> Activities {
        let activity = |(cycles, work): &(u64, u64)| Activity {
            cycles: *cycles,
            work: *work,
        };
        (0..).zip(of.iter().map(activity)).collect()
    }

    #[test]
    fn rest_is_several_duty_cycles_of_all_without_work() {
        let mut watch = RestWatch::default();
        watch.begin(roles(&[(10, 5), (20, 5)]));
        assert!(!watch.look(roles(&[(13, 5), (22, 5)])), "too early");
        assert!(!watch.look(roles(&[(14, 5), (22, 6)])), "work");
        assert!(!watch.look(roles(&[(16, 5), (25, 6)])), "too early");
        assert!(watch.look(roles(&[(17, 5), (25, 6)])));
        assert!(!watch.look(roles(&[(30, 5)])), "one is gone");
        assert!(watch.look(roles(&[(33, 5)])));
    }

    /// Who has seen that a run has come to rest ends it, and the end asks once more, before anybody had
    /// another duty cycle.
    #[test]
    fn rest_is_rest_as_long_as_there_is_no_work() {
        let mut watch = RestWatch::default();
        watch.begin(roles(&[(10, 5), (20, 5)]));
        let quiet = roles(&[(13, 5), (25, 5)]);
        for _ in 0..3 {
            assert!(watch.look(quiet.clone()));
        }
        assert!(!watch.look(roles(&[(13, 6), (25, 5)])), "work");
        assert!(!watch.look(roles(&[(15, 6), (28, 5)])), "too early");
        assert!(watch.look(roles(&[(16, 6), (28, 5)])));
    }

    /// A readout unit asks a builder unit that is gone every 20 ms, and one duty cycle of a filter unit
    /// that waits at its sockets takes 10 ms: three of them without work there never are.
    #[test]
    fn work_that_nobody_counts_goes_round_and_is_not_waited_for() {
        let mut watch = RestWatch::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let asked = |step: u64| roles(&[(1000 * step, step), (2 * step, 9)]);
        let counted = |held: u64, bytes: u64| {
            let mut counts = RoleCounts::default();
            (counts.gauges.held, counts.gauges.bytes) = (held, bytes);
            [counts, RoleCounts::default()].into_iter()
        };
        watch.begin(asked(0));
        for step in 1..15 {
            assert!(!watch.look(asked(step)));
            let late = !watch.goes_round(counted(40, step), &asked(step), at(20 * step));
            assert!(late, "step {step}");
        }
        assert!(
            !watch.goes_round(counted(39, 15), &asked(15), at(300)),
            "counted"
        );
        assert!(!watch.goes_round(counted(39, 29), &asked(29), at(599)));
        assert!(watch.goes_round(counted(39, 30), &asked(30), at(600)));
        // One that is slow has not had the time to count anything.
        watch.begin(asked(0));
        assert!(!watch.goes_round(counted(39, 0), &asked(0), at(0)));
        assert!(!watch.goes_round(counted(39, 0), &asked(1), at(5000)));
        assert!(watch.goes_round(counted(39, 0), &asked(2), at(5000)));
        // The next wait begins anew.
        watch.begin(asked(2));
        assert!(!watch.goes_round(counted(39, 0), &asked(9), at(9000)));
    }

    #[test]
    fn one_that_stands_still_is_waited_for_once_and_again_when_it_moves() {
        let mut watch = RestWatch::default();
        let began = roles(&[(10, 5), (20, 5)]);
        watch.begin(began.clone());
        let late = roles(&[(99, 5), (20, 5)]);
        assert!(!watch.look(late.clone()));
        watch.end(&began, &late);
        assert!((watch.is_still(1), watch.is_still(0)) == (true, false));
        watch.begin(late);
        assert!(watch.look(roles(&[(102, 5), (20, 5)])));
        assert!(!watch.look(roles(&[(105, 5), (21, 5)])), "it moves");
        assert!(!watch.is_still(1));
        assert!(watch.look(roles(&[(108, 5), (24, 5)])));
    }
}
