//! Who sends to whom at which step, so that no two senders ever meet at a receiver or on a link.
//!
//! At step `t` the sender with number `n` sends to receiver `(n + t) mod steps`, the receivers
//! taking the first numbers of a cycle of as many steps as the larger side has units. On a crossbar
//! and an omega network any numbering will do; folded networks need the numbering of their
//! topology, as a shift then uses every link once. What is sent is in [`crate::barrel_shifter`] and
//! [`crate::linear_shift`].

use livetime_wire::Problem;

use crate::problem_code;

/// A cycle of shifts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShiftSchedule {
    /// By sender: its number.
    numbers: Vec<u16>,
    receivers: u16,
    steps: u16,
}

impl ShiftSchedule {
    /// The schedule with `numbers[n]` as the number of sender `n`.
    ///
    /// # Errors
    /// The problem at key `path` when two senders would have one number, or one is outside of the
    /// cycle: then they would meet.
    #[expect(
        clippy::result_large_err,
        reason = "made once, from a configuration; a problem says everything about itself"
    )]
    pub fn new_checked(numbers: Vec<u16>, receivers: u16, path: &str) -> Result<Self, Problem> {
        let senders = u16::try_from(numbers.len()).unwrap_or(u16::MAX);
        let steps = senders.max(receivers);
        let mut seen = vec![None; usize::from(steps)];
        for (sender, number) in numbers.iter().enumerate() {
            let Some(place) = seen.get_mut(usize::from(*number)) else {
                return Err(Problem::new(
                    problem_code::SCHEDULE,
                    format!("{path}[{sender}]"),
                    number,
                    format!("0 to {}", steps.saturating_sub(1)),
                    "number the senders within the cycle, each once",
                ));
            };
            if let Some(other) = place.replace(sender) {
                return Err(Problem::new(
                    problem_code::SCHEDULE,
                    format!("{path}[{sender}]"),
                    number,
                    "each number once",
                    "give every sender its own number: two with one meet at every step",
                )
                .with_related(format!("{path}[{other}]"), "has it, too"));
            }
        }
        Ok(Self {
            numbers,
            receivers,
            steps,
        })
    }

    /// The schedule in which senders are numbered as they are.
    pub fn in_order(senders: u16, receivers: u16) -> Self {
        Self {
            numbers: (0..senders).collect(),
            receivers,
            steps: senders.max(receivers),
        }
    }

    /// Steps of a cycle.
    pub fn steps(&self) -> u16 {
        self.steps
    }

    /// Number of senders.
    pub fn senders(&self) -> usize {
        self.numbers.len()
    }

    /// Number of receivers.
    pub fn receivers(&self) -> u16 {
        self.receivers
    }

    /// Whom a sender sends to at a step; `None` where the cycle has more steps than receivers and
    /// it rests.
    ///
    /// # Panics
    /// If there is no such sender.
    pub fn receiver(&self, sender: u16, step: u64) -> Option<u16> {
        self.receiver_at(self.place(sender, step))
    }

    /// Where in its cycle a sender is at a step, for [`ShiftSchedule::receiver_at`]. Those that go from
    /// step to step ask for [`ShiftSchedule::place_after`] instead: a division takes longer than the
    /// rest of what is done for an empty block.
    ///
    /// # Panics
    /// If there is no such sender.
    #[inline]
    pub(crate) fn place(&self, sender: u16, step: u64) -> u16 {
        let number = u64::from(self.numbers[usize::from(sender)]);
        ((number + step) % u64::from(self.steps.max(1))) as u16
    }

    /// The place a step after another.
    #[inline]
    pub(crate) const fn place_after(&self, place: u16) -> u16 {
        if place + 1 < self.steps { place + 1 } else { 0 }
    }

    /// Whom a sender at a place sends to; `None` where it rests.
    #[inline]
    pub(crate) fn receiver_at(&self, place: u16) -> Option<u16> {
        (place < self.receivers).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn senders_that_would_meet_are_refused_with_place() {
        let problem = ShiftSchedule::new_checked(vec![0, 2, 2], 3, "shape").unwrap_err();
        assert_eq!((problem.code.code, &*problem.path), ("B0114", "shape[2]"));
        assert_eq!(problem.related.unwrap().0, "shape[1]");
        let problem = ShiftSchedule::new_checked(vec![0, 3], 3, "shape").unwrap_err();
        assert_eq!((&*problem.path, &*problem.allowed), ("shape[1]", "0 to 2"));
        assert!(ShiftSchedule::new_checked(vec![1, 0], 1, "shape").is_ok());
    }

    proptest! {
        /// At no step do two senders meet, and in a cycle each meets every receiver once.
        #[test]
        fn no_two_senders_meet_and_all_are_served(
            senders in 1..40_u16,
            receivers in 1..40_u16,
            turn: u16,
        ) {
            let numbers: Vec<u16> = (0..senders)
                .map(|n| (n * 7 + turn % 7) % senders.max(1))
                .collect();
            let schedule = ShiftSchedule::new_checked(numbers, receivers, "shape")
                .unwrap_or_else(|_| ShiftSchedule::in_order(senders, receivers));
            let mut met = BTreeSet::new();
            for step in 1_000..1_000 + u64::from(schedule.steps()) {
                let mut busy = BTreeSet::new();
                for sender in 0..senders {
                    let place = schedule.place(sender, step);
                    prop_assert_eq!(schedule.place_after(place), schedule.place(sender, step + 1));
                    if let Some(receiver) = schedule.receiver(sender, step) {
                        prop_assert!(receiver < receivers);
                        prop_assert!(busy.insert(receiver), "two senders at {}", receiver);
                        prop_assert!(met.insert((sender, receiver)), "twice in a cycle");
                    }
                }
            }
            prop_assert_eq!(met.len(), usize::from(senders) * usize::from(receivers));
        }
    }
}
