//! Readout units that die, and how they begin again.
//!
//! A connection that ends says at once that a readout unit is gone. Builder units close events without
//! its fragments as soon as all others are there. When it begins again it knows nothing of the
//! triggers that were given before; from the next one on its fragments are in the events again.

use livetime_builder::{PeerEpochs, ReadoutUnit};
use livetime_wire::{TriggerNumber, UnitId};

use super::event::{EventWord, NetworkEvent};
use super::hosts::FIRST_EPOCH;
use super::membership::TELLING;
use super::world::{HOST, NetworkWorld};
use crate::scheduler::Scheduler;

impl NetworkWorld<'_> {
    /// The readout units that are to die stop, with all that they hold.
    pub(super) fn kill_readouts(&mut self, s: &mut Scheduler<EventWord>) {
        let (all, sick) = (self.readouts.len() as u32, self.plan.sick);
        for unit in 0..all as u16 {
            if !sick.readout_dies(unit, all) {
                continue;
            }
            let host = &mut self.readouts[usize::from(unit)];
            host.is_dead = true;
            for letter in host.inbox.drain(..) {
                self.texts.done(letter.text);
            }
            self.tally.withdrawn += u64::from(host.kept.take().is_some());
            let first = usize::from(unit) * self.rails;
            for adapter in first..first + self.rails {
                for port in 0..self.topology.destinations() as u16 {
                    self.tally.withdrawn += self.adapters[adapter].withdraw(port);
                }
                self.break_off(adapter);
            }
            self.tally.readouts_dead += 1;
            s.after(TELLING, HOST, NetworkEvent::Gone(unit).into());
            if let Some(time) = sick.readouts.dead_for {
                let code = UnitId::readout(unit).to_code();
                s.after(time, HOST, NetworkEvent::Back(code).into());
            }
        }
    }

    /// Everybody hears that a readout unit is gone.
    pub(super) fn tell_readout_gone(&mut self, readout: u16, s: &mut Scheduler<EventWord>) {
        self.readouts[usize::from(readout)].is_gone = true;
        self.barrier.handle_lost(readout.into());
        self.start_phases(s);
        for builder in 0..self.builders.len() as u16 {
            let host = &mut self.builders[usize::from(builder)];
            if !host.is_dead {
                host.unit.handle_readout_lost(s.now().to_run_ns(), readout);
                self.pump_builder(builder, false, s);
            }
        }
    }

    /// A readout unit that died begins again, with nothing in it; false if it has to wait.
    pub(super) fn renew_readout(&mut self, readout: u16, s: &mut Scheduler<EventWord>) -> bool {
        if self.manager.is_dead {
            return false;
        }
        let (at, now) = (usize::from(readout), s.now());
        let newest = TriggerNumber(self.manager.given);
        let builders: Vec<u32> = self.builders.iter().map(|host| host.life.epoch).collect();
        let peers = PeerEpochs {
            supervisor: FIRST_EPOCH,
            manager: self.manager.life.epoch,
            builders: &builders,
            readouts: &[],
        };
        let config = self.plan.builder_config(self.topology);
        let host = &mut self.readouts[at];
        self.tally.sent_again += host.unit.counts().fragments_sent_again;
        host.life = host.life.next(now);
        let epoch = host.life.epoch;
        host.unit = ReadoutUnit::rejoining(&config, readout, epoch, peers, newest);
        (host.fed, host.joined_after) = (newest.0, newest);
        (host.is_dead, host.is_gone) = (false, false);
        self.manager.unit.handle_readout_back(readout, epoch);
        self.tally.readouts_back += 1;
        for builder in 0..self.builders.len() as u16 {
            let host = &mut self.builders[usize::from(builder)];
            if !host.is_dead {
                host.unit
                    .handle_readout_back(now.to_run_ns(), readout, epoch, newest);
                self.pump_builder(builder, false, s);
            }
        }
        for adapter in &mut self.adapters[at * self.rails..][..self.rails] {
            adapter.begin_again();
        }
        self.barrier.handle_back(at);
        self.start_phases(s);
        self.feed_adapters(readout, s);
        true
    }
}
