//! What became of past triggers, for a readout unit, which closes every one of them: four bits for each.
//!
//! Sixteen neighbours share a cell of 8 bytes, tagged with the rest of their numbers: exact for the
//! last `size` trigger numbers, and older ones are known to be old once a neighbour of theirs that
//! is newer by `size` or more was closed. Units that close few of all have
//! [`crate::trigger_history`].

use livetime_wire::TriggerNumber;

use crate::trigger_history::{Past, whole_tag};

/// Bits of a trigger number that say which of a cell it is.
const CELL_BITS: u32 = 4;

/// Bits of the tag in a cell.
const TAG_BITS: u32 = 32;

/// How a trigger ended at a readout unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ended {
    /// Rejected.
    Dropped = 1,
    /// Rejected by the selection on a first step, before anybody had asked for it here.
    Unasked = 2,
    /// Released, or given up.
    Over = 3,
}

/// Closed triggers.
#[derive(Debug)]
pub(crate) struct DenseHistory {
    /// Bits 63:32 the low bits of the tag, bits 31:0 an [`Ended`] of 2 bits each, 0 for none.
    /// As far as numbers were recorded, if it is a lean one: no more than `size` of them.
    cells: Vec<u64>,
    /// Bits of a number that say which of the `size` it is.
    bits: u32,
    /// The largest tag in a cell.
    newest_tag: u64,
}

impl DenseHistory {
    /// A history of `size` triggers, a power of two of at least 16, that takes memory when something
    /// is recorded.
    pub(crate) fn lean(size: usize) -> Self {
        assert!(size.is_power_of_two(), "history of {size} triggers");
        Self {
            cells: Vec::new(),
            bits: size.trailing_zeros().max(CELL_BITS),
            newest_tag: 0,
        }
    }

    /// Bytes of a whole history of `size` triggers.
    pub(crate) fn memory_bytes(size: usize) -> u64 {
        (size as u64 >> CELL_BITS).max(1) * size_of::<u64>() as u64
    }

    /// Takes the memory for all of it.
    pub(crate) fn reserve(&mut self) {
        self.cells.resize(1 << (self.bits - CELL_BITS), 0);
    }

    /// Makes the cell exist: at least half of what there is then was needed.
    #[cold]
    fn reach(&mut self, at: usize) {
        self.cells.resize((at + 1).next_power_of_two(), 0);
    }

    /// The cell of a trigger, its tag, which is the number divided by the size, and the place of its
    /// two bits.
    #[inline]
    fn place(&self, trigger: TriggerNumber) -> (usize, u64, u32) {
        let at = (trigger.0 & ((1 << self.bits) - 1)) >> CELL_BITS;
        let place = 2 * (trigger.0 as u32 & ((1 << CELL_BITS) - 1));
        (at as usize, trigger.0 >> self.bits, place)
    }

    /// The tag of what is in a cell.
    #[inline]
    fn tag_in(&self, cell: u64) -> u64 {
        whole_tag(self.newest_tag, (cell >> 32) as u32, TAG_BITS)
    }

    /// Remembers how a trigger ended; never overwrites later ones.
    #[inline]
    pub(crate) fn record(&mut self, trigger: TriggerNumber, ended: Ended) {
        let (at, tag, place) = self.place(trigger);
        if at >= self.cells.len() {
            self.reach(at);
        }
        let cell = self.cells[at];
        let held = cell as u32;
        let held = match tag.cmp(&self.tag_in(cell)) {
            core::cmp::Ordering::Less if held != 0 => return,
            core::cmp::Ordering::Equal => held & !(3 << place),
            _ => 0,
        };
        self.cells[at] = tag << 32 | u64::from(held | (ended as u32) << place);
        self.newest_tag = self.newest_tag.max(tag);
    }

    /// The cell of a trigger, whoever has it.
    #[inline]
    pub(crate) fn foresee(&self, trigger: TriggerNumber) -> Option<&u64> {
        self.cells.get(self.place(trigger).0)
    }

    #[inline]
    pub(crate) fn past(&self, trigger: TriggerNumber) -> Past<Ended> {
        let (at, tag, place) = self.place(trigger);
        let cell = self.cells.get(at).copied().unwrap_or(0);
        let held = cell as u32;
        if held == 0 {
            return Past::Open;
        }
        match self.tag_in(cell).cmp(&tag) {
            core::cmp::Ordering::Less => Past::Open,
            core::cmp::Ordering::Equal => match held >> place & 3 {
                0 => Past::Open,
                1 => Past::Closed(Ended::Dropped),
                2 => Past::Closed(Ended::Unasked),
                _ => Past::Closed(Ended::Over),
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
    fn memory_is_taken_as_triggers_are_closed_or_at_once() {
        let mut lean = DenseHistory::lean(256);
        assert_eq!(lean.past(TriggerNumber(1)), Past::Open);
        assert!(lean.cells.is_empty());
        lean.record(TriggerNumber(256 + 40), Ended::Unasked);
        assert_eq!(lean.cells.len(), 4);
        assert_eq!(lean.past(TriggerNumber(256 + 41)), Past::Open);
        let mut whole = DenseHistory::lean(256);
        whole.reserve();
        assert_eq!(whole.cells.len(), 16);
        assert_eq!(DenseHistory::memory_bytes(256), 16 * 8);
    }

    #[test]
    fn a_cell_is_taken_over_as_a_whole() {
        let mut history = DenseHistory::lean(64);
        history.record(TriggerNumber(3), Ended::Over);
        history.record(TriggerNumber(4), Ended::Dropped);
        let past = |history: &DenseHistory, trigger| history.past(TriggerNumber(trigger));
        assert_eq!(past(&history, 3), Past::Closed(Ended::Over));
        assert_eq!(past(&history, 4), Past::Closed(Ended::Dropped));
        assert_eq!(past(&history, 5), Past::Open);
        history.record(TriggerNumber(64 + 4), Ended::Unasked);
        assert_eq!(past(&history, 3), Past::Forgotten);
        assert_eq!(past(&history, 64 + 3), Past::Open);
        history.record(TriggerNumber(3), Ended::Unasked);
        assert_eq!(past(&history, 64 + 4), Past::Closed(Ended::Unasked));
    }

    proptest! {
        /// In whatever order triggers of a window of the size are closed: what is within the size
        /// of the newest is exact, and what is older is never said to have another end than it had.
        #[test]
        fn the_last_triggers_are_exact(
            steps in prop::collection::vec((0..64_u64, 0..3_u8), 1..400),
        ) {
            let mut history = DenseHistory::lean(128);
            let mut ends: BTreeMap<u64, Ended> = BTreeMap::new();
            for (n, (back, closing)) in steps.into_iter().enumerate() {
                let trigger = 64 + 2 * n as u64 - back;
                let all = [Ended::Dropped, Ended::Unasked, Ended::Over];
                let closing = all[usize::from(closing)];
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

    /// As of [`TriggerHistory`](crate::trigger_history::TriggerHistory).
    #[test]
    fn tags_go_round_without_taking_old_triggers_for_new_ones() {
        const SIZE: u64 = 128;
        let wrap = SIZE << 32;
        let mut history = DenseHistory::lean(SIZE as usize);
        for round in [1, 2, 5] {
            for new in round * wrap - 2 * SIZE..round * wrap + 2 * SIZE {
                let past = |history: &DenseHistory, trigger| history.past(TriggerNumber(trigger));
                assert_eq!(past(&history, new), Past::Open, "{new}");
                history.record(TriggerNumber(new), Ended::Over);
                assert_eq!(past(&history, new), Past::Closed(Ended::Over), "{new}");
                if new >= round * wrap - SIZE {
                    assert_eq!(past(&history, new - SIZE), Past::Forgotten, "{new}");
                }
                assert_eq!(past(&history, new + SIZE), Past::Open, "{new}");
                assert_eq!(past(&history, new + wrap / 2), Past::Open, "{new}");
            }
        }
    }
}
