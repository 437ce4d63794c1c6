//! An event manager that dies, and how another one takes its place.
//!
//! The supervisor remembers which accepted triggers are open; meanwhile it offers none. The new event
//! manager asks the builder units what became of them, and withdraws the builder units that are gone.

use livetime_builder::{EventManager, PeerEpochs, PhaseBarrier};
use livetime_wire::{DurationNs, TriggerNumber, UnitId};

use super::event::{EventWord, NetworkEvent};
use super::hosts::{FIRST_EPOCH, Loss};
use super::membership::TELLING;
use super::world::{HOST, NetworkWorld};
use crate::scheduler::Scheduler;

impl NetworkWorld<'_> {
    /// The event manager dies; a little later if the loss of a builder unit is being settled.
    pub(super) fn kill_manager(&mut self, s: &mut Scheduler<EventWord>) {
        let code = UnitId::EVENT_MANAGER.to_code();
        let mut losses = self.builders.iter().map(|host| host.loss);
        if losses.any(|loss| loss == Loss::Settling) {
            s.after(TELLING, HOST, NetworkEvent::Die(code).into());
            return;
        }
        self.manager.is_dead = true;
        if let Some(time) = self.plan.sick.manager.dead_for {
            s.after(time, HOST, NetworkEvent::Back(code).into());
        }
    }

    /// Another event manager takes the place of the dead one.
    pub(super) fn renew_manager(&mut self, s: &mut Scheduler<EventWord>) {
        let host = &mut self.manager;
        let Some(accepts) = &mut host.accepts else {
            return;
        };
        let open = accepts.to_vec();
        self.tally.reassigned += host.unit.counts().reassigned;
        self.tally.gave_up += host.unit.losses().total();
        host.life = host.life.next(s.now());
        let epoch = host.life.epoch;
        let triggers = open.iter().map(|event| event.trigger);
        let handed_on: Vec<TriggerNumber> = triggers
            .filter(|trigger| self.check.is_built(trigger.0))
            .collect();
        for host in &mut self.readouts {
            host.unit.handle_manager_back(epoch);
        }
        let builders: Vec<u32> = self.builders.iter().map(|host| host.life.epoch).collect();
        let readouts: Vec<u32> = self.readouts.iter().map(|host| host.life.epoch).collect();
        let peers = PeerEpochs {
            supervisor: FIRST_EPOCH,
            manager: epoch,
            builders: &builders,
            readouts: &readouts,
        };
        let config = self.plan.builder_config(self.topology);
        let mut unit = EventManager::recovering(&config, epoch, peers, &open, &handed_on);
        unit.report_closed();
        let gone = (0..).zip(&self.builders);
        let gone = gone.filter(|(_, host)| host.loss == Loss::Settled && host.is_dead);
        for (builder, _) in gone {
            unit.withdraw_builder(builder);
            unit.reassign(builder, &handed_on);
        }
        (self.manager.unit, self.manager.is_dead) = (unit, false);
        self.tally.manager_restarts += 1;
        self.barrier = PhaseBarrier::resuming(self.readouts.len(), DurationNs(u64::MAX));
        let gone = self.readouts.iter().enumerate();
        for (readout, _) in gone.filter(|(_, host)| host.is_gone) {
            self.barrier.handle_lost(readout);
        }
        self.start_phases(s);
        self.pump_manager(s);
    }
}
