//! What the event manager does when a builder unit is lost: its unfinished events are built again
//! by another, since the readout units keep all fragments until the release.
//!
//! It takes three steps, which the driver joins, because only those behind the builder unit know
//! what it had handed on before it died:
//!
//! ```text
//! driver           EVM                      filter units, writer          readout units
//!   ├─withdraw──────►│ credits withdrawn           │                           │
//!   │◄──its events───┤ events parked               │                           │
//!   ├─what have you of it; take no more of its old epoch──►│                   │
//!   │◄──────────────────────────events handed on──┤                           │
//!   ├─reassign──────►│ the others queue again      │                           │
//!   │◄──those────────┤                             │                           │
//!   ├─take_back (all that is open; its new epoch)──────────────────────────────►│ theirs again,
//!   │                │                             │                           │ the rest freed
//! ```
//! Since those behind refuse the old epoch from the moment at which they answer, it does not matter
//! whether the builder unit was dead or only slow: nothing of it counts twice.

use livetime_wire::{LossCause, TriggerNumber};

use super::{AcceptedTrigger, Credits, EventManager};
use crate::liveness::Life;
use crate::trigger_history::Closing;

impl EventManager {
    /// A builder unit went away: its credits are withdrawn, and the events that it had not cleared
    /// are counted as lost with it and named. Some of them may have been built and handed on
    /// before; who settles the accounts of the dead unit takes those off again. To have them built
    /// again instead, call [`EventManager::withdraw_builder`].
    pub fn handle_builder_lost(&mut self, builder: u16) -> Vec<TriggerNumber> {
        let lost = self.withdraw_builder(builder);
        self.parked.retain(|(unit, _)| *unit != builder);
        for trigger in &lost {
            if !self.close_in_recovery(*trigger) {
                self.tell_closed(*trigger);
            }
            self.history.record(*trigger, Closing::Dropped);
        }
        self.finish_recovery();
        self.losses.add(LossCause::BuilderLost, lost.len() as u64);
        lost
    }

    /// A builder unit went away, or is taken for dead: its credits are withdrawn, and the events
    /// that it had not cleared are named, in order. They wait for [`EventManager::reassign`], and
    /// no clear of the unit's old epoch changes that once [`EventManager::handle_builder_back`] was
    /// called. Allocates; this is not the data path.
    pub fn withdraw_builder(&mut self, builder: u16) -> Vec<TriggerNumber> {
        let Some(account) = self.credits.get_mut(usize::from(builder)) else {
            return Vec::new();
        };
        self.free_total -= u64::from(account.free);
        *account = Credits::default();
        self.withdrawn[usize::from(builder)] = true;
        if let Some(lives) = &mut self.lives {
            lives.set(builder, Life::Dead);
        }
        if let Some(push) = &mut self.push {
            push.withdraw(builder);
        }
        let held = self.in_flight.iter_mut();
        let mut events: Vec<AcceptedTrigger> = held
            .filter(|(_, entry)| entry.builder == builder)
            .map(|(trigger, entry)| AcceptedTrigger {
                trigger,
                mask: entry.mask,
                triggered_at: entry.triggered_at,
            })
            .collect();
        events.extend(self.undetermined(builder));
        events.sort_by_key(|event| event.trigger);
        for event in &events {
            self.in_flight.remove(event.trigger);
        }
        self.parked
            .extend(events.iter().map(|event| (builder, *event)));
        events.iter().map(|event| event.trigger).collect()
    }

    /// Decides the parked events of a withdrawn builder unit: those in `handed_on` are finished as
    /// far as the event manager is concerned, all others are queued again in the order of their
    /// numbers, ahead of later ones; they are returned. The queue may thereby exceed its
    /// configured bound by the unit's credits; until it is below, new triggers wait.
    pub fn reassign(&mut self, builder: u16, handed_on: &[TriggerNumber]) -> Vec<TriggerNumber> {
        let mut again = Vec::new();
        let parked = std::mem::take(&mut self.parked);
        for (unit, event) in parked {
            if unit != builder {
                self.parked.push((unit, event));
            } else if handed_on.contains(&event.trigger) {
                self.counts.handed_on += 1;
                if !self.close_in_recovery(event.trigger) {
                    self.history.record(event.trigger, Closing::Complete);
                    self.tell_closed(event.trigger);
                }
            } else if self.give_back_to_recovery(event) {
                again.push(event.trigger);
            } else if self.ending {
                self.history.record(event.trigger, Closing::Dropped);
                self.losses.add(LossCause::BuilderLost, 1);
            } else {
                let at = self.place_in_queue(event.trigger);
                self.queue.insert(at, event);
                self.counts.reassigned += 1;
                again.push(event.trigger);
            }
        }
        self.finish_recovery();
        again
    }

    /// Every trigger that is not finished: queued, in flight, or with its fate not yet known. For
    /// [`ReadoutUnit::take_back`](crate::ReadoutUnit::take_back); it allocates.
    pub fn open_triggers(&mut self) -> Vec<TriggerNumber> {
        let mut open: Vec<TriggerNumber> = self.queue.iter().map(|event| event.trigger).collect();
        open.extend(self.in_flight.iter_mut().map(|(trigger, _)| trigger));
        open.extend(self.parked.iter().map(|(_, event)| event.trigger));
        open.extend(self.open_in_recovery());
        open.sort_unstable();
        open.dedup();
        open
    }

    /// By builder unit: the events that were at the writer when it cleared them, in all its lives.
    /// What the writer of a lost unit has beyond this, [`EventManager::reassign`] was told.
    pub fn accepted_of_builders(&self) -> impl Iterator<Item = (u16, u64)> {
        (0..).zip(self.accepted.iter().copied())
    }

    /// Whether a trigger waits for [`EventManager::reassign`].
    pub(super) fn is_parked(&self, trigger: TriggerNumber) -> bool {
        self.parked
            .iter()
            .any(|(_, event)| event.trigger == trigger)
    }
}
