//! Filter units that go away and come: what a builder unit does with the events in them.
//!
//! The pages of an event stay until it is done, so that an event whose filter unit died is given to
//! another one. Which event a filter unit died of, and how often it may be tried, is known to
//! whoever watches the processes; an event given up by them is passed on unfiltered, marked for the
//! error stream, so that it is kept and not lost.

use livetime_wire::{LossCause, TriggerNumber};

use super::BuilderUnit;
use crate::event_assembly::Stage;

impl BuilderUnit {
    /// A filter unit went away: the events in it are counted as lost, released and cleared. It gets
    /// no more until [`BuilderUnit::handle_filter_back`].
    pub fn handle_filter_lost(&mut self, filter: u16) {
        self.dispatch.remove_filter(filter);
        self.lose_filtering(|held_by| held_by == filter);
    }

    /// A filter unit that was lost is back, with nothing in it; one of another subfarm stays away.
    pub fn handle_filter_back(&mut self, filter: u16) {
        if filter % self.subfarms == self.index % self.subfarms {
            self.dispatch.restore_filter(filter);
        }
    }

    /// Gives up the events in filter units that are lost.
    pub(super) fn lose_filtering(&mut self, is_lost: impl Fn(u16) -> bool) {
        for slot in 0..self.assembly.slots() {
            if let Stage::Filtering { filter } = self.assembly.event(slot).stage
                && is_lost(filter)
            {
                self.losses.add(LossCause::FilterLost, 1);
                self.end_first_step(slot);
                self.finish(slot);
            }
        }
    }

    /// A filter unit went away: the events in it wait for another again, ahead of all others in
    /// the order of their numbers. Those in `failed` are not to be filtered any more: their tickets
    /// will carry [`EventHeader::ERROR_STREAM`]. Returns which of `failed` were in it. It gets no
    /// more events until [`BuilderUnit::handle_filter_back`]. Allocates; this is not the data path.
    ///
    /// [`EventHeader::ERROR_STREAM`]: livetime_wire::event::EventHeader::ERROR_STREAM
    pub fn redispatch_filter(
        &mut self,
        filter: u16,
        failed: &[TriggerNumber],
    ) -> Vec<TriggerNumber> {
        self.dispatch.remove_filter(filter);
        let mut again: Vec<(TriggerNumber, u32)> = (0..self.assembly.slots())
            .filter(|slot| self.assembly.event(*slot).stage == Stage::Filtering { filter })
            .map(|slot| (self.assembly.event(slot).trigger, slot))
            .collect();
        again.sort_unstable();
        let mut given_up = Vec::new();
        for (trigger, slot) in again.into_iter().rev() {
            let event = self.assembly.event_mut(slot);
            event.stage = Stage::Ready;
            if failed.contains(&trigger) {
                event.is_failed = true;
                given_up.push(trigger);
            }
            self.counts.tickets_again += 1;
            self.dispatch.push_again(slot);
        }
        given_up
    }

    /// Whether a filter unit has an event of this builder unit.
    pub fn is_any_in_filter(&self, filter: u16) -> bool {
        let mut slots = 0..self.assembly.slots();
        slots.any(|slot| self.assembly.event(slot).stage == Stage::Filtering { filter })
    }

    /// A filter unit is to leave: it gets no more events, and finishes those that it has.
    pub fn retire_filter(&mut self, filter: u16) {
        self.dispatch.remove_filter(filter);
    }
}
