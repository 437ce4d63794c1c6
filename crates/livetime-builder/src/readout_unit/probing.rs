//! What a readout unit does about triggers that stay: it asks for releases that may have been lost.

use livetime_wire::RunNs;

use super::ReadoutUnit;
use super::unasked::is_unasked;
use crate::held_trigger::{Held, Mark, NO_BUILDER};
use crate::readout_unit::FreeReason;

impl ReadoutUnit {
    /// When [`ReadoutUnit::handle_timeout`] is next worth calling.
    pub fn poll_timeout(&self) -> RunNs {
        if self.held.len() == 0 {
            RunNs::MAX
        } else {
            self.scan_at
        }
    }

    /// Sends one fragment again of each trigger that was sent one to two probe intervals ago and
    /// not released, to learn whether the release was lost. Of kept triggers that nobody has asked
    /// for in far more than the timeout, one fragment goes to one builder unit after the other:
    /// requests and release may all have been lost (`readout_unit/disowned.rs`). Of a trigger that an
    /// event manager which is gone had pushed, a fragment goes to another builder unit every now and
    /// then: that may have built it, and its release been lost. At the end of an aborted run nobody
    /// will ask any more, and nobody is waited for. Does nothing before
    /// [`ReadoutUnit::poll_timeout`].
    pub fn handle_timeout(&mut self, now: RunNs) {
        if now < self.poll_timeout() {
            return;
        }
        self.scan_at = now.after(self.probe);
        self.scans += 1;
        self.pace.begin_look();
        let counts = self.ending || self.scans.is_multiple_of(self.scans_per_count);
        if counts {
            // Only these scans ask: one builder unit after the other, whatever their number.
            self.probed_builder = (self.probed_builder + 1) % self.builders.len() as u16;
            let held = &self.held;
            self.disowned
                .keep(|trigger| held.get(trigger).is_some_and(|held| is_unasked(&held)));
        }
        for slot in 0..self.held.slot_count() {
            let Some((trigger, place, mut held)) = self.held.slot(slot) else {
                continue;
            };
            let is_requested = held.builder != NO_BUILDER;
            let is_wanted = is_requested || held.has(Mark::Kept);
            if !held.is_open() || !is_wanted || held.unsent != 0 {
                continue;
            }
            let is_probed = is_requested && held.present != 0;
            if is_probed || counts {
                held.scans = held.scans.saturating_add(1);
            }
            let patience = match is_requested || self.ending {
                true => 2,
                false => self.scans_max,
            };
            let is_overdue = held.scans >= patience;
            if held.present != 0 && is_overdue && self.may_probe(self.asked_about(&held)) {
                held.unsent = 1 << held.present.trailing_zeros();
                held.scans = patience - 1;
                self.counts.fragments_sent_again += 1;
                self.enqueue(trigger, &mut held);
            } else if held.present == 0 && held.scans >= self.scans_max {
                held.close(FreeReason::Released);
                self.counts.requests_forgotten += 1;
                self.forgotten.add(trigger);
                self.enqueue(trigger, &mut held);
            }
            self.held.set(place, held);
        }
    }

    /// The builder unit to which a fragment of an open trigger goes: its own, unless it goes there
    /// once more and that may never have heard of it. Then it is each of them now and then; one after
    /// the other might be in step with the looks.
    #[inline]
    pub(super) fn asked_about(&self, held: &Held) -> u16 {
        match held.builder {
            NO_BUILDER => self.probed_builder,
            _ if self.is_pushed && held.scans > 0 && held.has(Mark::Uncertain) => {
                let turn = self.scans.wrapping_mul(0x9E37_79B9) >> 16;
                (turn % self.builders.len() as u64) as u16
            }
            own => own,
        }
    }

    /// Whether to send a builder unit another fragment again.
    fn may_probe(&mut self, to: u16) -> bool {
        // At the end of an aborted run all that is known is to be known soon.
        self.ending || self.pace.may_repeat(to, self.builders.heard_of(to.into()))
    }
}
