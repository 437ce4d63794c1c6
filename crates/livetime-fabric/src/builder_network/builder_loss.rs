//! Builder units that die, how their events are given to others, and how they begin again.
//!
//! The event manager finds a silent builder unit by its missing heartbeats. Events that its filter
//! was through with are finished; the others are built again from the fragments that readout units
//! keep until the release, as `livetime-builder` asks for it step by step. A unit that begins again
//! is found before by whoever starts it, and its next life waits until the last one is settled.

use livetime_builder::BuilderUnit;
use livetime_wire::{TriggerNumber, UnitId};

use super::event::{EventWord, NetworkEvent};
use super::hosts::{FIRST_EPOCH, Loss, assemblers_per_builder};
use super::membership::TELLING;
use super::world::{HOST, NetworkWorld};
use crate::scheduler::Scheduler;
use crate::time::DurationPs;

impl NetworkWorld<'_> {
    /// The builder units that are to die stop; their adapters go on draining the network.
    pub(super) fn kill_builders(&mut self, s: &mut Scheduler<EventWord>) {
        let dying = self.plan.sick.dying_builders(self.builders.len() as u32);
        for (unit, _) in (0..).zip(dying).filter(|(_, dies)| *dies) {
            self.stop_builder(unit, s);
        }
    }

    fn stop_builder(&mut self, unit: u16, s: &mut Scheduler<EventWord>) {
        let host = &mut self.builders[usize::from(unit)];
        if host.is_dead {
            return;
        }
        host.is_dead = true;
        self.tally.builders_dead += 1;
        host.finishing.clear();
        host.filter = host.filter.stopped(s.now());
        if let Some(parts) = &mut self.parts {
            parts.withdraw(self.builder_port[usize::from(unit)]);
        }
        if let Some(time) = self.plan.sick.builders.dead_for {
            let code = UnitId::builder(unit).to_code();
            s.after(time, HOST, NetworkEvent::Back(code).into());
        }
    }

    /// A builder unit is taken for dead.
    pub(super) fn lose_builder(&mut self, builder: u16, s: &mut Scheduler<EventWord>) {
        // After a false death nothing of its old life may count any more.
        self.stop_builder(builder, s);
        self.builders[usize::from(builder)].loss = Loss::Settling;
        self.tally.builders_found_dead += 1;
        self.manager.unit.withdraw_builder(builder);
        s.after(TELLING, HOST, NetworkEvent::Settle(builder).into());
    }

    /// Everybody hears of it. The event manager does not die before.
    pub(super) fn settle_builder(&mut self, builder: u16, s: &mut Scheduler<EventWord>) {
        let parked = self.manager.unit.open_triggers();
        let is_built = |trigger: &TriggerNumber| self.check.is_built(trigger.0);
        let handed_on: Vec<TriggerNumber> = parked.into_iter().filter(is_built).collect();
        self.manager.unit.reassign(builder, &handed_on);
        let open = self.manager.unit.open_triggers();
        let host = &mut self.builders[usize::from(builder)];
        host.loss = Loss::Settled;
        host.life.epoch += 1;
        let epoch = host.life.epoch;
        let released = std::mem::take(&mut host.released);
        let port = self.builder_port[usize::from(builder)];
        for unit in 0..self.readouts.len() as u16 {
            let host = &mut self.readouts[usize::from(unit)];
            host.unit.take_back(builder, &open);
            host.unit.finish_events(&handed_on);
            host.unit.finish_events(&released);
            host.unit.handle_builder_back(builder, epoch);
            for adapter in &mut self.adapters[usize::from(unit) * self.rails..][..self.rails] {
                self.tally.withdrawn += adapter.withdraw(port);
            }
            self.feed_adapters(unit, s);
        }
        self.pump_manager(s);
    }

    /// A builder unit that died begins again, with nothing in it; false if it has to wait until its
    /// last life is settled.
    pub(super) fn renew_builder(&mut self, builder: u16, s: &mut Scheduler<EventWord>) -> bool {
        let at = usize::from(builder);
        if self.manager.is_dead {
            return false;
        }
        match self.builders[at].loss {
            Loss::Unnoticed => {
                self.lose_builder(builder, s);
                return false;
            }
            Loss::Settling => return false,
            Loss::Settled => {}
        }
        let now = s.now();
        let epoch = self.builders[at].life.epoch;
        let config = self.plan.builder_config(self.topology);
        let unit = BuilderUnit::counting_units(&config, epoch).nth(at);
        let mut unit = unit.expect("as many units as hosts");
        unit.renew_peer(UnitId::EVENT_MANAGER, self.manager.life.epoch);
        unit.renew_peer(UnitId::filter(0), FIRST_EPOCH);
        for (readout, host) in (0..).zip(&self.readouts) {
            let (time, epoch) = (now.to_run_ns(), host.life.epoch);
            match host.is_gone {
                true => unit.handle_readout_lost(time, readout),
                false => unit.handle_readout_back(time, readout, epoch, host.joined_after),
            }
        }
        self.manager.unit.handle_builder_back(builder, epoch);
        let senders = assemblers_per_builder(self.plan, self.readouts.len(), self.rails);
        let host = &mut self.builders[at];
        self.tally.gave_up += host.unit.losses().total();
        host.begin_again(unit, senders, now);
        self.tally.builders_back += 1;
        if !host.is_ticking {
            self.start_ticking(builder, DurationPs::ZERO, s);
        }
        self.pump_builder(builder, true, s);
        self.pump_manager(s);
        true
    }
}
