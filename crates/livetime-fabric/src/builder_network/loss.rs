//! Builder units that die, and how their events are given to others: the part of a membership.
//!
//! The event manager finds a silent builder unit by its missing heartbeats. Events that its filter
//! was through with are finished; the others are built again from the fragments that readout units
//! keep until the release, as `livetime-builder` asks for it step by step.

use livetime_wire::TriggerNumber;

use super::event::{EventWord, NetworkEvent};
use super::hosts::FIRST_EPOCH;
use super::placement::is_chosen;
use super::world::{HOST, NetworkWorld};
use crate::scheduler::Scheduler;
use crate::time::DurationPs;

/// Time of the membership to tell everybody.
const TELLING: DurationPs = DurationPs::from_ms(1);
/// The epoch of a builder unit that would take the place of a dead one.
const NEXT_EPOCH: u32 = FIRST_EPOCH + 1;

impl NetworkWorld<'_> {
    /// The builder units that are to die stop; their adapters go on draining the network.
    pub(super) fn die(&mut self) {
        let all = self.builders.len() as u32;
        for (unit, host) in (0..).zip(&mut self.builders) {
            if is_chosen(unit, self.plan.sick.dead, all, 1) {
                host.is_dead = true;
                host.finishing.clear();
            }
        }
    }

    /// The event manager takes a builder unit for dead.
    pub(super) fn lose_builder(&mut self, builder: u16, s: &mut Scheduler<EventWord>) {
        let host = &mut self.builders[usize::from(builder)];
        if !host.is_dead {
            // A false death: nothing of its old life may count any more.
            host.is_dead = true;
            host.finishing.clear();
        }
        self.tally.dead += 1;
        self.manager.unit.withdraw_builder(builder);
        s.after(TELLING, HOST, NetworkEvent::Settle(builder).into());
    }

    /// Everybody hears of it.
    pub(super) fn settle_builder(&mut self, builder: u16, s: &mut Scheduler<EventWord>) {
        let parked = self.manager.unit.open_triggers();
        let is_built = |trigger: &TriggerNumber| self.check.is_built(trigger.0);
        let handed_on: Vec<TriggerNumber> = parked.into_iter().filter(is_built).collect();
        self.manager.unit.reassign(builder, &handed_on);
        let open = self.manager.unit.open_triggers();
        let host = &mut self.builders[usize::from(builder)];
        let released = std::mem::take(&mut host.released);
        let port = self.builder_port[usize::from(builder)];
        for unit in 0..self.readouts.len() as u16 {
            let host = &mut self.readouts[usize::from(unit)];
            host.unit.take_back(builder, &open);
            host.unit.finish_events(&handed_on);
            host.unit.finish_events(&released);
            host.unit.handle_builder_back(builder, NEXT_EPOCH);
            for adapter in &mut self.adapters[usize::from(unit) * self.rails..][..self.rails] {
                self.tally.withdrawn += adapter.withdraw(port);
            }
            self.feed_adapters(unit, s);
        }
        self.pump_manager(s);
    }
}
