//! Whether roles have come to rest: none has done any work in several duty cycles.
//!
//! One that stands still, so that it has not had a single duty cycle in a whole wait, is not waited
//! for again until it moves: the end of a run has several such waits.

use std::collections::BTreeMap;

use super::run_page::Activity;

/// Duty cycles between two looks without work in any role, after which nothing is on its way.
const QUIET_CYCLES: u64 = 3;

/// What the roles have done, by their blocks of the run page.
pub(super) type Activities = BTreeMap<usize, Activity>;

/// The roles as they were looked at.
#[derive(Debug, Default)]
pub(super) struct RestWatch {
    before: Activities,
    /// Roles that stand still, with their duty cycles so far.
    still: BTreeMap<usize, u64>,
}

impl RestWatch {
    /// Begins to look.
    pub(super) fn begin(&mut self, now: Activities) {
        self.before = now;
    }

    /// Whether nobody has done any work in several duty cycles since a look before; a role more or
    /// less is work. Who stands still is left out.
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
        let mut moving = now
            .iter()
            .filter(|(block, _)| !self.still.contains_key(block));
        let is_quiet =
            moving.all(|(block, now)| now.cycles >= self.before[block].cycles + QUIET_CYCLES);
        if is_quiet {
            self.before = now;
        }
        is_quiet
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
