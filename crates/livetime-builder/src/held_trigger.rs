//! What a readout unit knows of a live trigger. How it is kept is in [`crate::held_triggers`].

use crate::readout_unit::FreeReason;

/// Nobody asked for the fragments yet.
pub(crate) const NO_BUILDER: u16 = u16::MAX;

/// What holds a trigger, or closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Fragments or requests are held.
    Open,
    /// To be freed.
    Closed(FreeReason),
}

/// Something that holds of a trigger or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mark {
    /// Its number is in the work queue.
    Queued = 1 << 2,
    /// The supervisor kept it.
    Kept = 1 << 3,
    /// Its builder unit was named by an event manager that is gone: another one may ask.
    Uncertain = 1 << 4,
    /// A fragment went to a builder unit that had not asked, and may be in an event by now.
    Probed = 1 << 5,
    /// It is released without that anything was asked for: the first step rejected it.
    Unasked = 1 << 6,
}

/// A live trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// Sources that came, by bit.
    pub(crate) present: u32,
    /// Sources that came and are to be sent.
    pub(crate) unsent: u32,
    pub(crate) builder: u16,
    /// Bits 1:0 the stage, bits 6:2 a [`Mark`] each; bit 7 is not used.
    pub(crate) marks: u8,
    /// Scans since something happened to it.
    pub(crate) scans: u8,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            present: 0,
            unsent: 0,
            builder: NO_BUILDER,
            marks: 0,
            scans: 0,
        }
    }
}

impl Held {
    #[inline]
    pub(crate) const fn stage(&self) -> Stage {
        match self.marks & 3 {
            0 => Stage::Open,
            1 => Stage::Closed(FreeReason::Dropped),
            2 => Stage::Closed(FreeReason::Released),
            _ => Stage::Closed(FreeReason::Aborted),
        }
    }

    #[inline]
    pub(crate) const fn is_open(&self) -> bool {
        self.marks & 3 == 0
    }

    #[inline]
    pub(crate) const fn close(&mut self, reason: FreeReason) {
        let stage = match reason {
            FreeReason::Dropped | FreeReason::Unasked => 1,
            FreeReason::Released => 2,
            FreeReason::Aborted => 3,
        };
        self.marks = self.marks & !3 | stage;
    }

    #[inline]
    pub(crate) const fn has(&self, mark: Mark) -> bool {
        self.marks & mark as u8 != 0
    }

    #[inline]
    pub(crate) const fn set(&mut self, mark: Mark) {
        self.marks |= mark as u8;
    }

    #[inline]
    pub(crate) const fn unset(&mut self, mark: Mark) {
        self.marks &= !(mark as u8);
    }

    /// With a mark.
    #[inline]
    pub(crate) const fn with(mut self, mark: Mark) -> Self {
        self.set(mark);
        self
    }
}
