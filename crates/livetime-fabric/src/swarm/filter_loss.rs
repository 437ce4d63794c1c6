//! Filter units that die with the events in them, and begin again with nothing.
//!
//! What a filter unit has answered stands: the way of an answer is short, and a builder unit reads
//! the last ones before it hears of the loss. All else in it, and what still comes to it, is gone;
//! its builder units give those events to others, or to itself when it is back.

use livetime_wire::UnitId;

use super::membership::{Active, Matter};
use super::world::{SwarmEvent, SwarmWorld};
use crate::scheduler::Scheduler;
use crate::time::DurationPs;

impl SwarmWorld {
    /// A filter unit dies, and is back after a while.
    pub(super) fn kill_filter(&mut self, filter: u16, for_ms: u64, s: &mut Scheduler<SwarmEvent>) {
        let host = &mut self.filters[usize::from(filter)];
        if !host.is_up {
            return;
        }
        host.is_up = false;
        host.interruption.begin_life();
        host.epoch += 1;
        let none = vec![0; host.sequences.len()];
        host.former_sequences = std::mem::replace(&mut host.sequences, none);
        for slot in &mut self.tickets {
            let Some(held) = slot.take_if(|held| held.filter == filter && !held.is_answered) else {
                continue;
            };
            if held.is_taken && !held.fetches_rest {
                host.memory.remove(&held.ticket.trigger);
                self.check
                    .take_back(held.ticket.trigger, held.ticket.builder);
            }
        }
        self.count("filter_killed");
        let back = s.now() + DurationPs::from_ms(for_ms);
        self.settle(Matter::FilterLost(filter), s.now(), s);
        self.settle(Matter::FilterBack(filter), back, s);
    }

    /// Builder units hear, one after the other, that a filter unit is gone; true when all have.
    pub(super) fn tell_filter_lost(
        &mut self,
        filter: u16,
        active: &mut Active,
        s: &mut Scheduler<SwarmEvent>,
    ) -> bool {
        if let Some(host) = self.builders.get_mut(active.next) {
            if host.interruption.leaves_unread(s.now()) {
                // It reads nothing, the last answers included.
                return false;
            }
            let given_up = host.core.redispatch_filter(filter, &[]);
            debug_assert!(given_up.is_empty(), "none has failed");
            self.pump_builder(active.next as u16, s);
        }
        active.next += 1;
        active.next >= self.builders.len()
    }

    /// Builder units hear, one after the other, that it is back; true when all have.
    pub(super) fn tell_filter_back(
        &mut self,
        filter: u16,
        active: &mut Active,
        s: &mut Scheduler<SwarmEvent>,
    ) -> bool {
        let host = &mut self.filters[usize::from(filter)];
        // It may die again before all have heard.
        host.is_up |= active.next == 0;
        let epoch = host.epoch;
        if let Some(host) = self.builders.get_mut(active.next) {
            host.core.renew_peer(UnitId::filter(filter), epoch);
            host.filter_epochs[usize::from(filter)] = epoch;
            host.core.handle_filter_back(filter);
            self.pump_builder(active.next as u16, s);
        }
        active.next += 1;
        active.next >= self.builders.len()
    }
}
