//! What the networks bring: their steps, links that are free again, and what comes to the hosts.

use livetime_builder::barrel_shifter::Piece;
use livetime_wire::{SourceId, UnitId};

use super::Shaping;
use super::adapter::{Cargo, Sending, ends_in};
use super::engine::Engine;
use super::event::EventWord;
use super::hosts::Intake;
use super::parts::Fate;
use super::placement::NONE;
use super::world::NetworkWorld;
use crate::network::port::Delivery;
use crate::network::{buffered, wormhole};
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};

impl NetworkWorld<'_> {
    /// A step of a network without buffers: what it delivers frees its link.
    pub(super) fn take_wormhole_step(
        &mut self,
        network: usize,
        step: wormhole::Step,
        s: &mut Scheduler<EventWord>,
    ) {
        let pending = self.pending(s);
        let Engine::Wormhole(engine) = &mut self.engines[network] else {
            return;
        };
        let delivery = engine.take_step(step, s);
        if self.may_deadlock {
            self.note_step(network, delivery.iter().len(), pending, s);
        }
        if let Some(delivery) = delivery {
            self.foresee_deliveries(s);
            self.deliver(network, delivery, s);
            self.use_link(network, delivery.from, s);
        }
    }

    /// A step of a network with buffers: what it delivered and lost, and which links are free now.
    /// Nothing is added to its lists meanwhile.
    pub(super) fn take_buffered_step(
        &mut self,
        network: usize,
        step: buffered::Step,
        s: &mut Scheduler<EventWord>,
    ) {
        let pending = self.pending(s);
        let Engine::Buffered(engine) = &mut self.engines[network] else {
            return;
        };
        engine.take_step(step, s);
        let port = engine.hosts_mut();
        let mut delivered = std::mem::take(&mut port.delivered);
        let mut lost = std::mem::take(&mut port.lost);
        let mut idle = std::mem::take(&mut port.idle);
        if self.may_deadlock {
            self.note_step(network, delivered.len() + lost.len(), pending, s);
        }
        for delivery in delivered.drain(..) {
            self.deliver(network, delivery, s);
        }
        for tag in lost.drain(..) {
            self.lose_packet(tag, s);
        }
        for source in idle.drain(..) {
            self.use_link(network, source, s);
        }
        if let Engine::Buffered(engine) = &mut self.engines[network] {
            let port = engine.hosts_mut();
            (port.delivered, port.lost, port.idle) = (delivered, lost, idle);
        }
    }

    /// The link of a source is free: its host sends what comes next.
    fn use_link(&mut self, network: usize, source: u32, s: &mut Scheduler<EventWord>) {
        if network == self.rails {
            return self.send_letters(self.builder_at[source as usize], s);
        }
        let unit = self.readout_at[source as usize];
        self.adapters[usize::from(unit) * self.rails + network].is_idle = true;
        if self.is_readout_dead(unit) {
            return;
        }
        self.work(unit, s);
        self.feed_adapter(unit, network, s);
        if let Shaping::LinearShift { .. } = self.plan.shaping {
            self.arm_readout(unit, s);
        }
    }

    fn deliver(&mut self, network: usize, delivery: Delivery, s: &mut Scheduler<EventWord>) {
        let Delivery { from, parcel } = delivery;
        if self.is_damaged() {
            return self.drop_damaged(parcel.tag);
        }
        let cargo = self.unload(parcel.tag);
        if let Cargo::Letter { text, sequence } = cargo {
            let to = UnitId::readout(self.readout_at[parcel.to as usize]);
            self.receive(to, text, sequence, s);
            return;
        }
        let readout = self.readout_at[from as usize];
        let unit = self.builder_at[parcel.to as usize];
        let is_gone = unit == NONE || self.builders[usize::from(unit)].is_dead;
        match cargo {
            Cargo::Block { .. } if is_gone => {
                self.tally.withdrawn += ends_in(&self.blocks[parcel.tag as usize].pieces);
            }
            Cargo::Fragment(_) if is_gone => self.tally.withdrawn += 1,
            Cargo::Block { payload } => {
                self.count_carried(parcel.bytes, payload, s.now());
                self.take_block(network, (readout, unit), parcel.tag, s);
            }
            Cargo::Fragment(sending) => {
                self.count_carried(parcel.bytes, parcel.bytes, s.now());
                self.take_fragment((readout, unit), sending, s);
            }
            Cargo::Part(number) => {
                let fate = if is_gone {
                    Fate::Withdrawn
                } else {
                    self.count_carried(parcel.bytes, parcel.bytes, s.now());
                    Fate::Whole
                };
                if let Some(sending) = self.end_part(number, fate) {
                    self.take_fragment((readout, unit), sending, s);
                }
            }
            Cargo::Letter { .. } => {}
        }
    }

    /// Counts the payload of a packet of `bytes` that came over the link of a builder unit.
    #[inline]
    fn count_carried(&mut self, bytes: u32, payload: u32, now: SimPs) {
        let bytes = u64::from(bytes) + u64::from(self.load.overhead_bytes);
        self.tally
            .carry(now, self.byte_time.of(bytes), payload.into());
    }

    /// A whole fragment comes to a builder unit.
    fn take_fragment(
        &mut self,
        (readout, unit): (u16, u16),
        sending: Sending,
        s: &mut Scheduler<EventWord>,
    ) {
        let piece = Piece {
            trigger: sending.trigger,
            source: SourceId(readout.into()),
            offset: 0,
            bytes: sending.bytes,
            total: sending.bytes,
        };
        let mut intake = Intake::default();
        let host = &mut self.builders[usize::from(unit)];
        intake.hand_in(&mut host.unit, s.now(), readout, &piece);
        self.note_intake(unit, &intake, s);
    }

    /// A block comes to a builder unit.
    fn take_block(
        &mut self,
        network: usize,
        (readout, unit): (u16, u16),
        tag: u32,
        s: &mut Scheduler<EventWord>,
    ) {
        let now = s.now();
        let at = network * self.readouts.len() + usize::from(readout);
        let host = &mut self.builders[usize::from(unit)];
        let block = &self.blocks[tag as usize];
        let mut intake = Intake::default();
        host.assemblers.handle_block(at, block, |piece| {
            intake.hand_in(&mut host.unit, now, readout, &piece);
        });
        // The rest of a fragment of which a piece was lost.
        self.tally.lost += ends_in(&block.pieces) - intake.fragments;
        if intake.fragments > 0 {
            self.note_intake(unit, &intake, s);
        }
    }

    /// Fragments have come to a builder unit.
    fn note_intake(&mut self, unit: u16, intake: &Intake, s: &mut Scheduler<EventWord>) {
        let hosts = &self.plan.hosts;
        let host = &mut self.builders[usize::from(unit)];
        let now = s.now();
        self.tally.receive(now, intake.fragments);
        let mut ready = now;
        if hosts.bus_bytes_per_s > 0 {
            let rate = hosts.bus_bytes_per_s.saturating_mul(8);
            let time = DurationPs::for_bits(intake.bytes * 8, rate);
            ready = host.bus.spend(now, time);
        }
        host.processor
            .spend(ready, hosts.fragment * intake.fragments);
        if intake.refused > 0 {
            let refused = intake.refused;
            self.check
                .report(now, || format!("bu{unit} refused {refused} fragments"));
        }
        if host.unit.events_ready() > 0 {
            self.pump_builder(unit, false, s);
        }
    }
}
