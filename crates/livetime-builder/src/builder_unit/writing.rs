//! Accepted events on their way to the writer.
//!
//! A filter unit says what it makes of an event, no more: the event itself is here, so that it is
//! written from here, wherever the filter unit is. It stays until the writer is through with it, and
//! when that goes away it is given to the next one, once: an event that two writers did not answer for
//! is given up.

use livetime_wire::message::{AcceptedEvent, EventTicket};
use livetime_wire::{LossCause, TriggerNumber};

use super::BuilderUnit;
use crate::event_assembly::Stage;

impl BuilderUnit {
    /// A filter unit accepts an event.
    pub(super) fn accept(&mut self, accepted: &AcceptedEvent) {
        let slot = self.slots.get(accepted.trigger).copied();
        let stage = slot.map(|slot| self.assembly.event(slot).stage);
        let (Some(slot), Some(Stage::Filtering { filter })) = (slot, stage) else {
            self.counts.dones_unknown += 1;
            return;
        };
        self.counts.events_accepted += 1;
        self.dispatch.done(filter);
        self.end_first_step(slot);
        let event = self.assembly.event_mut(slot);
        event.stage = Stage::Writing;
        event.is_accepted = true;
        (event.filter_reason, event.streams) = (accepted.reason, accepted.streams);
        self.accepted.push_back(slot);
    }

    /// The next accepted event for the writer: fills `ticket`; `false` when there is none.
    pub fn poll_accepted(&mut self, ticket: &mut EventTicket) -> bool {
        let Some(slot) = self.accepted.pop_front() else {
            return false;
        };
        self.assembly.fill(slot, self.index, &self.sources, ticket);
        true
    }

    /// The writer is through with an event.
    pub fn handle_written(&mut self, trigger: TriggerNumber) {
        let slot = self.slots.get(trigger).copied();
        let slot = slot.filter(|slot| self.assembly.event(*slot).stage == Stage::Writing);
        let Some(slot) = slot else {
            self.counts.dones_unknown += 1;
            return;
        };
        self.note_done(slot);
        self.finish(slot);
    }

    /// Another writer is there: it gets what the one before has not answered for, first and in the
    /// order of the triggers. What two have not answered for is lost. Allocates; this is not the data
    /// path.
    pub fn handle_writer_back(&mut self) {
        let mut writing: Vec<(TriggerNumber, u32)> = (0..self.assembly.slots())
            .filter(|slot| self.assembly.event(*slot).stage == Stage::Writing)
            .map(|slot| (self.assembly.event(slot).trigger, slot))
            .collect();
        writing.sort_unstable();
        for (_, slot) in writing.into_iter().rev() {
            // The one before did not have those that still wait.
            if self.accepted.contains(&slot) {
                continue;
            }
            let event = self.assembly.event_mut(slot);
            if std::mem::replace(&mut event.is_written_again, true) {
                self.lose_writing(slot);
            } else {
                self.counts.events_written_again += 1;
                self.accepted.push_front(slot);
            }
        }
    }

    /// Counts the events that the writer has not answered for as lost: there will be no other.
    pub fn give_up_writing(&mut self) {
        self.accepted.clear();
        for slot in 0..self.assembly.slots() {
            if self.assembly.event(slot).stage == Stage::Writing {
                self.lose_writing(slot);
            }
        }
    }

    fn lose_writing(&mut self, slot: u32) {
        self.note_done(slot);
        self.losses.add(LossCause::WriterLost, 1);
        self.finish(slot);
    }
}
