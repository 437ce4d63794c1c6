//! What a builder unit does when a readout unit or the event manager goes away and comes back.
//!
//! A readout unit that is gone is not waited for: events are closed without its fragments as soon
//! as all others are there, and name its sources. A restarted event manager asks what became of the
//! open triggers; its first question ends the epoch of its predecessor here. What events that are
//! built weigh was told to that predecessor, so it is told again, ahead of the answer.

use livetime_wire::message::{BuilderMessage, Envelope, TriggerList};
use livetime_wire::{RunNs, TriggerNumber, UnitId, UnitKind};

use super::BuilderUnit;
use crate::event_assembly::Stage;
use crate::message_exchange::{Handled, Outgoing};
use crate::trigger_history::Past;

/// Most answers to a restarted event manager that may wait to be sent; it asks again.
pub(super) const ANSWERS_MAX: usize = 64;

impl BuilderUnit {
    /// A peer is in another epoch than all were at the start, since it was lost and is back.
    pub fn renew_peer(&mut self, unit: UnitId, epoch: u32) {
        let table = match unit.kind {
            UnitKind::EventManager => &mut self.manager,
            UnitKind::Readout => return self.readouts.renew_hearer(unit.index, epoch),
            UnitKind::Filter => &mut self.filters,
            _ => return,
        };
        table.renew(unit.index, epoch);
    }

    /// A readout unit went away, and the others go on without it. Its sources are missing in all
    /// events until [`BuilderUnit::handle_readout_back`].
    pub fn handle_readout_lost(&mut self, now: RunNs, readout: u16) {
        self.set_absent(now, readout, TriggerNumber(u64::MAX));
    }

    /// A readout unit that was lost is back in a new epoch; what it held before is gone: of triggers
    /// up to `newest`, as it was told when it rejoined, nothing comes any more.
    pub fn handle_readout_back(
        &mut self,
        now: RunNs,
        readout: u16,
        epoch: u32,
        newest: TriggerNumber,
    ) {
        self.renew_peer(UnitId::readout(readout), epoch);
        self.handle_readout_joined(now, readout, newest);
    }

    /// As [`BuilderUnit::handle_readout_back`], when its new epoch has been told already, with
    /// [`BuilderUnit::renew_peer`]: what was said to it since then stands.
    pub fn handle_readout_joined(&mut self, now: RunNs, readout: u16, newest: TriggerNumber) {
        self.set_absent(now, readout, newest);
    }

    /// The events in hand in which there are fragments of a readout unit: as long as there are any,
    /// somebody may read its pages. Early ones (push mode) are among them.
    pub fn events_with(&self, readout: u16) -> impl Iterator<Item = TriggerNumber> + '_ {
        let unit = usize::from(readout);
        let slots = 0..self.assembly.slots();
        let in_hand = slots.filter(|slot| self.assembly.event(*slot).stage != Stage::Vacant);
        let has_some = move |slot: &u32| {
            let missing = self.sources.missing_of(unit, self.assembly.received(*slot));
            missing != self.sources.all_of(unit)
        };
        let is_known = unit < self.readouts.len();
        in_hand
            .filter(move |slot| is_known && has_some(slot))
            .map(|slot| self.assembly.event(slot).trigger)
    }

    fn set_absent(&mut self, now: RunNs, readout: u16, newest: TriggerNumber) {
        // Most units never lose one.
        self.absent
            .resize(self.readouts.len(), TriggerNumber::default());
        let Some(absent) = self.absent.get_mut(usize::from(readout)) else {
            return;
        };
        *absent = newest;
        self.absent_most = self.absent.iter().copied().max().unwrap_or_default();
        for slot in 0..self.assembly.slots() {
            let event = self.assembly.event(slot);
            if event.is_open() && !event.is_early {
                self.close_without_absent(now, slot);
            }
        }
    }

    /// Closes an event of which only fragments of lost readout units miss.
    pub(super) fn close_without_absent(&mut self, now: RunNs, slot: u32) {
        let trigger = self.assembly.event(slot).trigger;
        if trigger > self.absent_most {
            return;
        }
        if self.assembly.event(slot).is_first_step {
            return self.close_first_step(now, slot);
        }
        if !self.is_waiting_for_any(slot) {
            self.close_incomplete(now, slot);
        }
    }

    /// Whether a fragment of an event is still to come from a readout unit that is there and whose
    /// fragments are wanted now.
    pub(super) fn is_waiting_for_any(&self, slot: u32) -> bool {
        let received = self.assembly.received(slot);
        (0..self.readouts.len())
            .any(|unit| self.is_awaited(slot, unit) && self.sources.missing_of(unit, received) != 0)
    }

    /// Whether fragments of a readout unit are wanted now, and may come.
    pub(super) fn is_awaited(&self, slot: u32, unit: usize) -> bool {
        let event = self.assembly.event(slot);
        let is_there = self.absent.get(unit).is_none_or(|n| event.trigger > *n);
        is_there && (!event.is_first_step || self.in_first_step[unit])
    }

    /// Answers a restarted event manager.
    pub(super) fn answer(
        &mut self,
        envelope: &Envelope,
        batch: u32,
        triggers: &TriggerList,
    ) -> Handled {
        if envelope.epoch > self.manager.epoch_of(0) {
            self.welcome_manager(envelope.epoch);
        }
        if !self.hear_manager(envelope) {
            return Handled::Refused;
        }
        let (mut held, mut closed) = (0, 0);
        for (bit, trigger) in triggers.iter().enumerate() {
            let slot = self.slots.get(*trigger);
            if let Some(slot) = slot.filter(|slot| !self.assembly.event(**slot).is_early) {
                held |= 1 << bit;
                let event = self.assembly.event(*slot);
                // The size of one in its first step is not known.
                if self.are_sizes_wanted && !event.is_open() && !event.is_first_step {
                    closed |= 1 << bit;
                    self.tell_size_again(event.trigger, event.bytes);
                }
            } else if matches!(self.history.past(*trigger), Past::Closed(_)) {
                closed |= 1 << bit;
            }
        }
        if self.answers.len() < ANSWERS_MAX {
            self.answers
                .push_back((envelope.epoch, batch, held, closed));
            self.counts.recoveries += 1;
        }
        Handled::Taken
    }

    /// An event whose size a former event manager was told, or is about to be told.
    fn tell_size_again(&mut self, trigger: TriggerNumber, bytes: u32) {
        if !self.sizes.iter().any(|(waiting, _)| *waiting == trigger) {
            self.sizes.push_back((trigger, bytes));
        }
    }

    pub(super) fn poll_answer(&mut self) -> Option<Outgoing> {
        if self.answers.is_empty() {
            return None;
        }
        if let Some(sizes) = self.poll_sizes() {
            return Some(sizes);
        }
        let (manager_epoch, batch, held, closed) = self.answers.pop_front()?;
        Some(self.send_manager(BuilderMessage::Recovered {
            manager_epoch,
            batch,
            held,
            closed,
        }))
    }
}
