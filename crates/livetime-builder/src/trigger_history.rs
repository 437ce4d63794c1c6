//! What became of past triggers, so that what comes late or twice is known as such.
//!
//! One cell per trigger number modulo the size, 4 bytes each, tagged with the rest of the number:
//! exact for the last `size` trigger numbers, and older ones are known to be old. The few that are
//! closed only when they are that old, since they were open for so long, are in a list of their own.
//! A cell has the low bits of its tag, which the newest trigger completes ([`whole_tag`]).

use std::collections::VecDeque;

use livetime_wire::TriggerNumber;

/// So many of those that are closed late are known.
const LATE_MAX: usize = 256;
/// Bits of the tag in a cell.
const TAG_BITS: u32 = 30;

/// How a trigger was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum Closing {
    /// Rejected, or lost before it was built.
    Dropped = 1,
    /// In the regular way: a complete event.
    #[default]
    Complete = 2,
    /// Without some of its fragments.
    Partial = 3,
}

/// What is known of a trigger, and how it was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past<C = Closing> {
    /// Nothing: it was not closed.
    Open,
    /// It was closed.
    Closed(C),
    /// So old that its cell is another's by now.
    Forgotten,
}

/// The tag of which a cell has the low `bits` bits: the largest that is no larger than the newest.
/// Right for what is in a cell unless that was passed over for 2^`bits` times the size of the
/// history.
#[inline]
pub(crate) fn whole_tag(newest: u64, low: u32, bits: u32) -> u64 {
    let before = newest.wrapping_sub(low.into()) & ((1 << bits) - 1);
    newest - before
}

/// Closed triggers.
#[derive(Debug)]
pub(crate) struct TriggerHistory {
    /// Bits 31:2 the low bits of the tag, bits 1:0 the [`Closing`], 0 for none.
    cells: Vec<u32>,
    bits: u32,
    /// The largest tag in a cell.
    newest_tag: u64,
    /// The last ones that were closed when their cell was another's already.
    late: VecDeque<(TriggerNumber, Closing)>,
}

impl TriggerHistory {
    /// A history of `size` triggers, a power of two.
    pub(crate) fn new(size: usize) -> Self {
        assert!(size.is_power_of_two(), "history of {size} triggers");
        Self {
            cells: vec![0; size],
            bits: size.trailing_zeros(),
            newest_tag: 0,
            late: VecDeque::with_capacity(LATE_MAX),
        }
    }

    /// Bytes of a history of `size` triggers.
    pub(crate) fn memory_bytes(size: usize) -> u64 {
        (size * size_of::<u32>()) as u64
    }

    #[inline]
    fn cell(&self, trigger: TriggerNumber) -> usize {
        (trigger.0 & (self.cells.len() as u64 - 1)) as usize
    }

    /// The number divided by the size.
    #[inline]
    fn tag(&self, trigger: TriggerNumber) -> u64 {
        trigger.0 >> self.bits
    }

    /// The tag of what is in a cell.
    #[inline]
    fn tag_in(&self, cell: u32) -> u64 {
        whole_tag(self.newest_tag, cell >> 2, TAG_BITS)
    }

    /// Remembers how a trigger was closed; never overwrites a later one in its cell.
    #[inline]
    pub(crate) fn record(&mut self, trigger: TriggerNumber, closing: Closing) {
        let (at, tag) = (self.cell(trigger), self.tag(trigger));
        let cell = self.cells[at];
        if cell & 3 == 0 || tag >= self.tag_in(cell) {
            self.cells[at] = (tag as u32) << 2 | closing as u32;
            self.newest_tag = self.newest_tag.max(tag);
        } else if self.late_closing(trigger).is_none() {
            if self.late.len() == LATE_MAX {
                self.late.pop_front();
            }
            self.late.push_back((trigger, closing));
        }
    }

    fn late_closing(&self, trigger: TriggerNumber) -> Option<Closing> {
        let late = self.late.iter().find(|(closed, _)| *closed == trigger);
        late.map(|(_, closing)| *closing)
    }

    pub(crate) fn past(&self, trigger: TriggerNumber) -> Past {
        let cell = self.cells[self.cell(trigger)];
        let closing = match cell & 3 {
            0 => return Past::Open,
            1 => Closing::Dropped,
            2 => Closing::Complete,
            _ => Closing::Partial,
        };
        match self.tag_in(cell).cmp(&self.tag(trigger)) {
            core::cmp::Ordering::Less => Past::Open,
            core::cmp::Ordering::Equal => Past::Closed(closing),
            core::cmp::Ordering::Greater => match self.late_closing(trigger) {
                Some(closing) => Past::Closed(closing),
                None => Past::Forgotten,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_triggers_are_exact_and_older_ones_known_to_be_old() {
        let mut history = TriggerHistory::new(8);
        assert_eq!(history.past(TriggerNumber(3)), Past::Open);
        history.record(TriggerNumber(3), Closing::Partial);
        assert_eq!(
            history.past(TriggerNumber(3)),
            Past::Closed(Closing::Partial)
        );
        assert_eq!(history.past(TriggerNumber(11)), Past::Open);
        history.record(TriggerNumber(11), Closing::Dropped);
        assert_eq!(history.past(TriggerNumber(3)), Past::Forgotten);
        history.record(TriggerNumber(3), Closing::Complete);
        assert_eq!(
            history.past(TriggerNumber(11)),
            Past::Closed(Closing::Dropped)
        );
    }

    #[test]
    fn what_is_closed_late_is_known_as_well() {
        let mut history = TriggerHistory::new(8);
        let last = 8 * LATE_MAX as u64;
        (last + 1..=last + 8).for_each(|new| history.record(TriggerNumber(new), Closing::Dropped));
        for old in (0..LATE_MAX as u64).chain([0]) {
            history.record(TriggerNumber(old), Closing::Partial);
            assert_eq!(
                history.past(TriggerNumber(old)),
                Past::Closed(Closing::Partial)
            );
        }
        assert_eq!(history.past(TriggerNumber(last - 1)), Past::Forgotten);
        history.record(TriggerNumber(last - 1), Closing::Complete);
        let past = |trigger| history.past(TriggerNumber(trigger));
        assert_eq!(past(last - 1), Past::Closed(Closing::Complete));
        assert_eq!(past(1), Past::Closed(Closing::Partial));
        assert_eq!(past(0), Past::Forgotten, "the first of too many");
        assert_eq!(past(last + 8), Past::Closed(Closing::Dropped));
    }

    /// Given numbers beyond those that the bits of a cell reach, then triggers are told from older
    /// and newer ones as before.
    #[test]
    fn tags_go_round_without_taking_old_triggers_for_new_ones() {
        const SIZE: u64 = 8;
        let mut history = TriggerHistory::new(SIZE as usize);
        let wrap = SIZE << TAG_BITS;
        for round in [1, 2, 5] {
            for new in round * wrap - 2 * SIZE..round * wrap + 2 * SIZE {
                let past = |history: &TriggerHistory, trigger| history.past(TriggerNumber(trigger));
                assert_eq!(past(&history, new), Past::Open, "{new}");
                history.record(TriggerNumber(new), Closing::Complete);
                assert_eq!(past(&history, new), Past::Closed(Closing::Complete));
                if new >= round * wrap - SIZE {
                    assert_eq!(past(&history, new - SIZE), Past::Forgotten, "{new}");
                }
                assert_eq!(past(&history, new + SIZE), Past::Open, "{new}");
                // As one that is half as far ahead as the bits reach.
                assert_eq!(past(&history, new + wrap / 2), Past::Open, "{new}");
            }
        }
        history.record(TriggerNumber(5 * wrap), Closing::Dropped);
        let late = history.past(TriggerNumber(5 * wrap));
        assert_eq!(late, Past::Closed(Closing::Dropped), "closed late");
    }
}
