//! Signs of life: a builder unit that has had nothing to say to the event manager for too long says
//! that it is there.

use livetime_wire::{DurationNs, RunNs};

/// When the silence would be too long.
#[derive(Debug)]
pub(super) struct Heartbeat {
    /// Longest silence; 0 for any.
    silence_max: DurationNs,
    due: RunNs,
}

impl Heartbeat {
    /// The first is due at once.
    pub(super) fn new(silence_max: DurationNs) -> Self {
        let due = match silence_max {
            DurationNs(0) => RunNs::MAX,
            _ => RunNs(0),
        };
        Self { silence_max, due }
    }

    /// Whether any silence will do.
    pub(super) fn is_off(&self) -> bool {
        self.silence_max == DurationNs(0)
    }

    /// Something was said.
    pub(super) fn restart(&mut self, now: RunNs) {
        self.due = now.after(self.silence_max);
    }

    /// When something must be said; never where any silence will do.
    pub(super) fn due(&self) -> RunNs {
        self.due
    }
}
