//! Which triggers a reader has handed out, so that an event that is stored twice counts once.
//!
//! Two writers may store an event where a building host was lost. Of such an event the first whole copy
//! counts, for every reader of the run; how many there are, and which, is told here. An event costs two
//! to four bytes where a run keeps one in some thousand triggers or more, and less than a hundred where they
//! lie farther apart; most are behind all before them.

use std::collections::BTreeMap;

use livetime_wire::TriggerNumber;

/// Most triggers of doubled events that are named.
pub const DOUBLED_LISTED_MAX: usize = 100;

/// The triggers whose events were handed out.
#[derive(Debug, Default)]
pub struct SeenTriggers {
    /// The lower 16 bits of their numbers in order, by the upper ones.
    blocks: BTreeMap<u64, Vec<u16>>,
    doubled: u64,
    listed: Vec<TriggerNumber>,
}

impl SeenTriggers {
    /// Takes note of a whole event; `false` if one of its trigger was handed out before.
    pub fn insert(&mut self, trigger: TriggerNumber) -> bool {
        let block = self.blocks.entry(trigger.0 >> 16).or_default();
        let low = trigger.0 as u16;
        let place = match block.last() {
            Some(last) if *last >= low => block.binary_search(&low),
            _ => Err(block.len()),
        };
        let is_first = place.is_err();
        if let Err(place) = place {
            block.insert(place, low);
        }
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
        for trigger in [0, 63, 64, u64::MAX, 1, 1 << 16, 65_535] {
            assert!(seen.insert(TriggerNumber(trigger)), "{trigger}");
        }
        assert_eq!(seen.doubled(), 0);
        for trigger in [64, 0, 65_535] {
            assert!(!seen.insert(TriggerNumber(trigger)), "{trigger}");
        }
        assert_eq!(seen.doubled(), 3);
        assert_eq!(seen.doubled_triggers(), [64, 0, 65_535].map(TriggerNumber));
        (0..200).for_each(|_| assert!(!seen.insert(TriggerNumber(1))));
        assert_eq!(seen.doubled(), 203);
        assert_eq!(seen.doubled_triggers().len(), DOUBLED_LISTED_MAX);
    }
}
