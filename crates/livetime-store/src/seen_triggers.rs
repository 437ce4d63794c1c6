//! Which triggers a reader has handed out, so that an event that is stored twice counts once.
//!
//! Two writers may store an event where a building host was lost. Of such an event the first whole copy
//! counts, for every reader of the run; how many there are, and which, is told here. Marks stand in
//! words of 64 triggers, so that a run whose triggers lie close together costs a few bits for each event.

use std::collections::BTreeMap;

use livetime_wire::TriggerNumber;

/// Most triggers of doubled events that are named.
pub const DOUBLED_LISTED_MAX: usize = 100;

/// The triggers whose events were handed out.
#[derive(Debug, Default)]
pub struct SeenTriggers {
    /// Marks of 64 triggers each, by the upper bits of their numbers.
    marks: BTreeMap<u64, u64>,
    doubled: u64,
    listed: Vec<TriggerNumber>,
}

impl SeenTriggers {
    /// Takes note of a whole event; `false` if one of its trigger was handed out before.
    pub fn insert(&mut self, trigger: TriggerNumber) -> bool {
        let marks = self.marks.entry(trigger.0 / 64).or_default();
        let bit = 1 << (trigger.0 % 64);
        let is_first = *marks & bit == 0;
        *marks |= bit;
        if !is_first {
            self.doubled += 1;
            if self.listed.len() < DOUBLED_LISTED_MAX {
                self.listed.push(trigger);
            }
        }
        is_first
    }

    /// How many events were not the first of their trigger.
    pub fn doubled(&self) -> u64 {
        self.doubled
    }

    /// Their triggers as they were met, at most [`DOUBLED_LISTED_MAX`].
    pub fn doubled_triggers(&self) -> &[TriggerNumber] {
        &self.listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_of_a_trigger_is_counted_and_named_up_to_a_bound() {
        let mut seen = SeenTriggers::default();
        for trigger in [0, 63, 64, u64::MAX, 1] {
            assert!(seen.insert(TriggerNumber(trigger)), "{trigger}");
        }
        assert_eq!(seen.doubled(), 0);
        for trigger in [64, 0, 64] {
            assert!(!seen.insert(TriggerNumber(trigger)), "{trigger}");
        }
        assert_eq!(seen.doubled(), 3);
        assert_eq!(seen.doubled_triggers(), [64, 0, 64].map(TriggerNumber));
        (0..200).for_each(|_| assert!(!seen.insert(TriggerNumber(1))));
        assert_eq!(seen.doubled(), 203);
        assert_eq!(seen.doubled_triggers().len(), DOUBLED_LISTED_MAX);
    }
}
