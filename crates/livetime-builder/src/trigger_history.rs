//! What became of past triggers, so that what comes late or twice is known as such.
//!
//! One cell per trigger number modulo the size, 4 bytes each, tagged with the rest of the number:
//! exact for the last `size` trigger numbers, and older ones are known to be old.

use livetime_wire::TriggerNumber;

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

/// What is known of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Nothing: it was not closed.
    Open,
    /// It was closed.
    Closed(Closing),
    /// So old that its cell is another's by now.
    Forgotten,
}

/// Closed triggers.
#[derive(Debug)]
pub(crate) struct TriggerHistory {
    /// Bits 31:2 the number divided by the size, bits 1:0 the [`Closing`], 0 for none.
    cells: Vec<u32>,
    bits: u32,
}

impl TriggerHistory {
    /// A history of `size` triggers, a power of two.
    pub(crate) fn new(size: usize) -> Self {
        assert!(size.is_power_of_two(), "history of {size} triggers");
        Self {
            cells: vec![0; size],
            bits: size.trailing_zeros(),
        }
    }

    #[inline]
    fn cell(&self, trigger: TriggerNumber) -> usize {
        (trigger.0 & (self.cells.len() as u64 - 1)) as usize
    }

    #[inline]
    fn tag(&self, trigger: TriggerNumber) -> u32 {
        ((trigger.0 >> self.bits) & 0x3FFF_FFFF) as u32
    }

    /// Remembers how a trigger was closed; never overwrites a later one.
    #[inline]
    pub(crate) fn record(&mut self, trigger: TriggerNumber, closing: Closing) {
        let (at, tag) = (self.cell(trigger), self.tag(trigger));
        let cell = &mut self.cells[at];
        if *cell & 3 == 0 || tag >= *cell >> 2 {
            *cell = (tag << 2) | closing as u32;
        }
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
            core::cmp::Ordering::Greater => Past::Forgotten,
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
}
