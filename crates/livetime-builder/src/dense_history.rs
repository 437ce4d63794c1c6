//! What became of past triggers, for a unit that closes every one of them: four bits for each.
//!
//! Sixteen neighbours share a cell of 8 bytes, tagged with the rest of their numbers: exact for the
//! last `size` trigger numbers, and older ones are known to be old once a neighbour of theirs that
//! is newer by `size` or more was closed. Units that close few of all have
//! [`crate::trigger_history`].

use livetime_wire::TriggerNumber;

use crate::trigger_history::{Closing, Past};

/// Bits of a trigger number that say which of a cell it is.
const CELL_BITS: u32 = 4;

/// Closed triggers.
#[derive(Debug)]
pub(crate) struct DenseHistory {
    /// Bits 63:32 the number divided by the size, bits 31:0 a [`Closing`] of 2 bits each, 0 for none.
    cells: Vec<u64>,
    bits: u32,
}

impl DenseHistory {
    /// A history of `size` triggers, a power of two of at least 16.
    pub(crate) fn new(size: usize) -> Self {
        assert!(size.is_power_of_two(), "history of {size} triggers");
        let cells = (size >> CELL_BITS).max(1);
        Self {
            cells: vec![0; cells],
            bits: CELL_BITS + cells.trailing_zeros(),
        }
    }

    /// The cell of a trigger, its tag there, and the place of its two bits.
    #[inline]
    fn place(&self, trigger: TriggerNumber) -> (usize, u32, u32) {
        let at = (trigger.0 >> CELL_BITS) as usize & (self.cells.len() - 1);
        let place = 2 * (trigger.0 as u32 & ((1 << CELL_BITS) - 1));
        (at, (trigger.0 >> self.bits) as u32, place)
    }

    /// Remembers how a trigger was closed; never overwrites later ones.
    #[inline]
    pub(crate) fn record(&mut self, trigger: TriggerNumber, closing: Closing) {
        let (at, tag, place) = self.place(trigger);
        let cell = &mut self.cells[at];
        let (cell_tag, held) = ((*cell >> 32) as u32, *cell as u32);
        let held = match tag.cmp(&cell_tag) {
            core::cmp::Ordering::Less if held != 0 => return,
            core::cmp::Ordering::Equal => held & !(3 << place),
            _ => 0,
        };
        *cell = u64::from(tag) << 32 | u64::from(held | (closing as u32) << place);
    }

    /// The cell of a trigger, whoever has it.
    #[inline]
    pub(crate) fn foresee(&self, trigger: TriggerNumber) -> &u64 {
        &self.cells[self.place(trigger).0]
    }

    #[inline]
    pub(crate) fn past(&self, trigger: TriggerNumber) -> Past {
        let (at, tag, place) = self.place(trigger);
        let cell = self.cells[at];
        let (cell_tag, held) = ((cell >> 32) as u32, cell as u32);
        if held == 0 {
            return Past::Open;
        }
        match cell_tag.cmp(&tag) {
            core::cmp::Ordering::Less => Past::Open,
            core::cmp::Ordering::Equal => match held >> place & 3 {
                0 => Past::Open,
                1 => Past::Closed(Closing::Dropped),
                2 => Past::Closed(Closing::Complete),
                _ => Past::Closed(Closing::Partial),
            },
            core::cmp::Ordering::Greater => Past::Forgotten,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cell_is_taken_over_as_a_whole() {
        let mut history = DenseHistory::new(64);
        history.record(TriggerNumber(3), Closing::Partial);
        history.record(TriggerNumber(4), Closing::Dropped);
        let past = |history: &DenseHistory, trigger| history.past(TriggerNumber(trigger));
        assert_eq!(past(&history, 3), Past::Closed(Closing::Partial));
        assert_eq!(past(&history, 4), Past::Closed(Closing::Dropped));
        assert_eq!(past(&history, 5), Past::Open);
        history.record(TriggerNumber(64 + 4), Closing::Complete);
        assert_eq!(past(&history, 3), Past::Forgotten);
        assert_eq!(past(&history, 64 + 3), Past::Open);
        history.record(TriggerNumber(3), Closing::Complete);
        assert_eq!(past(&history, 64 + 4), Past::Closed(Closing::Complete));
    }

    proptest! {
        /// In whatever order triggers of a window of the size are closed: what is within the size
        /// of the newest is exact, and what is older is never said to have another end than it had.
        #[test]
        fn the_last_triggers_are_exact(
            steps in prop::collection::vec((0..64_u64, 0..3_u8), 1..400),
        ) {
            let mut history = DenseHistory::new(128);
            let mut ends: BTreeMap<u64, Closing> = BTreeMap::new();
            for (n, (back, closing)) in steps.into_iter().enumerate() {
                let trigger = 64 + 2 * n as u64 - back;
                let closings = [Closing::Dropped, Closing::Complete, Closing::Partial];
                let closing = closings[usize::from(closing)];
                history.record(TriggerNumber(trigger), closing);
                ends.insert(trigger, closing);
                let newest = *ends.keys().next_back().unwrap();
                // A cell reaches up to 15 numbers beyond the newest.
                for asked in 1..newest + 200 {
                    let expected = ends.get(&asked).map_or(Past::Open, |end| Past::Closed(*end));
                    let found = history.past(TriggerNumber(asked));
                    let is_exact = asked + 128 - 15 > newest;
                    prop_assert!(
                        found == expected || !is_exact && found == Past::Forgotten,
                        "trigger {asked} of {newest}: {found:?}, not {expected:?}"
                    );
                }
            }
        }
    }
}
