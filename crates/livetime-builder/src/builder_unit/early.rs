//! Fragments that come before the assignment of their event, as they may where readout units send
//! unasked.
//!
//! They are placed all the same: the event manager has spent a credit, so there is a slot, and
//! dropping them would cost a round of asking again. But the event is closed only once the
//! assignment is there. If that does not come, the fragments were meant for another life of this
//! unit; the slot is forgotten, and nothing is lost, since readout units keep what is not released. Or
//! they are those of an event that this unit has closed so long ago that it does not know it any more,
//! whose release was lost: it is said again.

use livetime_wire::{RunNs, TriggerNumber};

use super::BuilderUnit;
use crate::event_assembly::{Event, Stage};
use crate::trigger_history::Past;

impl BuilderUnit {
    /// A slot for an event of which only fragments came; none where readout units are asked.
    pub(super) fn open_early(&mut self, now: RunNs, trigger: TriggerNumber) -> Option<u32> {
        if !self.is_pushed
            || self.ending
            || trigger.0 == 0
            || self.slots.is_full()
            || matches!(self.history.past(trigger), Past::Closed(_))
        {
            return None;
        }
        self.counts.events_early += 1;
        let deadline = now.after(self.timeout);
        self.timeout_at = self.timeout_at.min(deadline);
        Some(self.open(Event {
            trigger,
            stage: Stage::Building,
            deadline,
            is_early: true,
            ..Event::VACANT
        }))
    }

    /// The assignment of an event of which fragments came before; returns its slot.
    pub(super) fn assign_early(&mut self, now: RunNs, slot: u32, assigned: Event) -> u32 {
        let (deadline, retry_at) = (now.after(self.timeout), now.after(self.retry));
        let event = self.assembly.event_mut(slot);
        event.mask = assigned.mask;
        event.triggered_at = assigned.triggered_at;
        event.assigned_at = assigned.assigned_at;
        event.is_early = false;
        (event.deadline, event.retry_at) = (deadline, retry_at);
        slot
    }

    /// The assignment did not come within its time.
    pub(super) fn end_early(&mut self, slot: u32) {
        let trigger = self.assembly.event(slot).trigger;
        if self.history.past(trigger) == Past::Forgotten {
            for readout in 0..self.readouts.len() {
                let missing = self
                    .sources
                    .missing_of(readout, self.assembly.received(slot));
                if missing != self.sources.all_of(readout) {
                    self.release_again(readout as u16, trigger);
                }
            }
        }
        self.forget_early(slot);
    }

    /// Forgets an event of which only fragments came.
    pub(super) fn forget_early(&mut self, slot: u32) {
        self.counts.events_early_forgotten += 1;
        self.slots.remove(self.assembly.event(slot).trigger);
        self.vacate(slot);
    }

    /// Makes room for an assigned event; false if every slot holds one.
    pub(super) fn evict_early(&mut self) -> bool {
        let mut slots = 0..self.assembly.slots();
        let early = slots.find(|slot| self.assembly.event(*slot).is_early);
        early.is_some_and(|slot| {
            self.forget_early(slot);
            true
        })
    }
}
