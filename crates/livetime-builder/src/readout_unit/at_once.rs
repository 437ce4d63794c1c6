//! Messages whose consequences are drawn at once: for drivers that have room for all of them, as
//! simulators of hundreds of units do.
//!
//! Otherwise a trigger goes through the work queue of its unit, and is looked up there again.

use livetime_wire::RunNs;
use livetime_wire::message::Envelope;

use super::{ReadoutOutput, ReadoutUnit};
use crate::message_exchange::Handled;

/// Takes what is to be done; false when there is no room for more.
pub(super) trait Take: FnMut(ReadoutOutput) -> bool {}
impl<F: FnMut(ReadoutOutput) -> bool> Take for F {}

/// Where what is to be done goes at once, as long as there is room and nothing waits before it.
pub(super) struct AtOnce<F> {
    take: F,
    pub(super) is_open: bool,
}

impl<F: Take> AtOnce<F> {
    #[inline]
    pub(super) fn give(&mut self, output: ReadoutOutput) {
        self.is_open = (self.take)(output);
    }
}

impl AtOnce<fn(ReadoutOutput) -> bool> {
    /// All waits.
    pub(super) fn nothing() -> Self {
        Self {
            take: |_| false,
            is_open: false,
        }
    }
}

impl ReadoutUnit {
    /// As [`ReadoutUnit::handle_message`], for drivers that have room for what is to be done: what
    /// a request or a release wants done is handed to `take`, in its order, and not kept for
    /// [`ReadoutUnit::poll_output`]. Where other things are to be done before, or once `take` has said
    /// that there is no more room, the rest waits there.
    #[inline]
    pub fn handle_message_at_once(
        &mut self,
        now: RunNs,
        envelope: &Envelope,
        take: impl FnMut(ReadoutOutput) -> bool,
    ) -> Handled {
        let is_open = self.work.is_empty();
        self.take_message(now, envelope, AtOnce { take, is_open })
    }
}
