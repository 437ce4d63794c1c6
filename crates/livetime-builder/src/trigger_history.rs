//! What became of past triggers, so that what comes late or twice is known as such.
//!
//! One cell per trigger number modulo the size, 4 bytes each, tagged with the rest of the number:
//! exact for the last `size` trigger numbers, and older ones are known to be old. The few that are
//! closed only when they are that old, since they were open for so long, are in a list of their own.

use std::collections::VecDeque;

use livetime_wire::TriggerNumber;

/// So many of those that are closed late are known.
const LATE_MAX: usize = 256;

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

/// Closed triggers.
#[derive(Debug)]
pub(crate) struct TriggerHistory {
    /// Bits 31:2 the number divided by the size, bits 1:0 the [`Closing`], 0 for none.
    cells: Vec<u32>,
    bits: u32,
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

    #[inline]
    fn tag(&self, trigger: TriggerNumber) -> u32 {
        ((trigger.0 >> self.bits) & 0x3FFF_FFFF) as u32
    }

    /// Remembers how a trigger was closed; never overwrites a later one in its cell.
    #[inline]
    pub(crate) fn record(&mut self, trigger: TriggerNumber, closing: Closing) {
        let (at, tag) = (self.cell(trigger), self.tag(trigger));
        let cell = &mut self.cells[at];
        if *cell & 3 == 0 || tag >= *cell >> 2 {
            *cell = (tag << 2) | closing as u32;
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
        match (cell >> 2).cmp(&self.tag(trigger)) {
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
}
