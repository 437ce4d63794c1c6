//! Requests that are repeated, because nothing came of what was asked for.
//!
//! A fragment or its request was lost, or is only late. The time to the next request doubles, so that
//! a network that is behind gets fewer of them, and begins anew when any fragment of the event comes.

use livetime_wire::message::BuilderMessage;
use livetime_wire::{DurationNs, RunNs};

use super::BuilderUnit;
use crate::event_assembly::Stage;
use crate::message_exchange::Outgoing;

/// While nothing of an event comes, or no event at all, the time between two requests doubles so often
/// at most.
const RETRY_DOUBLINGS_MAX: u8 = 4;
/// The time between two requests for credits may double up to this, however short the first one is.
const CREDITS_RARELY: DurationNs = DurationNs(200 * DurationNs::MILLISECOND.0);

impl BuilderUnit {
    /// The time is over within which an answer was to come.
    pub(super) fn ask_again(&mut self, now: RunNs, slot: u32) {
        let event = self.assembly.event_mut(slot);
        event.retries = event.retries.saturating_add(1);
        let doublings = event.retries.min(RETRY_DOUBLINGS_MAX);
        event.retry_at = now.after(DurationNs(self.retry.0 << doublings));
        if !event.is_repeating {
            event.is_repeating = true;
            self.repeating.push_back(slot);
        }
    }

    /// The time to the next request for credits. A unit that takes the place of one that died when all was
    /// built waits for an assignment that does not come, and others wait until nothing is said.
    pub(super) fn credits_again(&mut self) -> DurationNs {
        let first = self.retry.0;
        let longest = CREDITS_RARELY.0.max(first << RETRY_DOUBLINGS_MAX);
        let doubled = first.saturating_mul(1 << self.credit_requests.min(62));
        self.credit_requests = self.credit_requests.saturating_add(1);
        DurationNs(doubled.min(longest))
    }

    /// A fragment came of an event that was asked for again: what still misses is on its way as well,
    /// or was lost by itself.
    #[inline]
    pub(super) fn note_progress(&mut self, now: RunNs, slot: u32) {
        let event = self.assembly.event_mut(slot);
        if event.retries > 0 {
            event.retries = 0;
            event.retry_at = now.after(self.retry);
            self.timeout_at = self.timeout_at.min(event.retry_at);
        }
    }

    /// Asks for the missing fragments of an event again, where there are any.
    pub(super) fn poll_repetition(&mut self) -> Option<Outgoing> {
        let units = self.readout_count();
        while let Some(slot) = self.repeating.front().copied() {
            if self.repeat_round.left == 0 {
                self.repeat_round.start(self.index, units);
            }
            while self.assembly.event(slot).stage == Stage::Building && self.repeat_round.left > 0 {
                let to = self.repeat_round.step(units);
                if !self.is_awaited(slot, to)
                    || self.sources.missing_of(to, self.assembly.received(slot)) == 0
                {
                    continue;
                }
                if self.repeat_round.left == 0 {
                    self.end_repetition(slot);
                }
                self.counts.requests_repeated += 1;
                let trigger = self.assembly.event(slot).trigger;
                let triggers = [trigger].into_iter().collect();
                return Some(self.send_readout(to, BuilderMessage::FragmentRequest { triggers }));
            }
            self.end_repetition(slot);
        }
        None
    }

    fn end_repetition(&mut self, slot: u32) {
        self.repeat_round.left = 0;
        self.repeating.pop_front();
        self.assembly.event_mut(slot).is_repeating = false;
    }
}
