//! Reads ahead what deliveries will touch.
//!
//! Blocks of equal size end at the same instants, hundreds at a time, and each touches some thirty
//! cache lines of two hosts that nothing has touched since the step before. One after the other
//! most of a run would be waiting for memory; read in rounds over several deliveries, they come
//! together. Each round reads what the one before has found the way to.

use std::hint::black_box;

use livetime_wire::TriggerNumber;

use super::hosts::ReadoutHost;
use super::placement::NONE;
use super::world::NetworkWorld;
use crate::network::port::Delivery;

impl NetworkWorld<'_> {
    /// Reads what deliveries by rail will touch, at both ends. Changes nothing.
    pub(super) fn foresee_deliveries(
        &self,
        deliveries: impl Iterator<Item = (usize, Delivery)> + Clone,
    ) {
        let mut seen = 0;
        for (_, delivery) in deliveries.clone() {
            let readout = self.readout_at[delivery.from as usize];
            let builder = self.builder_at[delivery.parcel.to as usize];
            if let Some(host) = self.readouts.get(usize::from(readout)) {
                seen ^= host.unit.triggers_held() ^ host.inbox.len() ^ host.adapters.len();
                seen ^= host.unit.counts().fragments_sent as usize;
            }
            if let Some(host) = self.builders.get(usize::from(builder)) {
                seen ^= host.unit.events_held() ^ host.held_max;
                seen ^= host.unit.counts().messages.received as usize;
            }
            let block = self.blocks.get(delivery.parcel.tag as usize);
            seen ^= block.map_or(0, |block| block.pieces.len());
        }
        for (rail, delivery) in deliveries {
            let readout = self.readout_at[delivery.from as usize];
            let builder = self.builder_at[delivery.parcel.to as usize];
            if let Some(host) = self.readouts.get(usize::from(readout)) {
                seen ^= self.foresee_sender(host, readout, rail);
            }
            if builder == NONE {
                continue;
            }
            let host = &self.builders[usize::from(builder)];
            let sender = rail * self.readouts.len() + usize::from(readout);
            seen ^= host.unit.next_sequence_of(readout) as usize;
            seen ^= host.assemblers.next_sequence_of(sender) as usize;
            if let Some(block) = self.blocks.get(delivery.parcel.tag as usize) {
                for piece in &block.pieces {
                    seen ^= usize::from(host.unit.foresee(piece.trigger));
                }
            }
        }
        black_box(seen);
    }

    /// Reads what a readout unit will touch when its link is free.
    fn foresee_sender(&self, host: &ReadoutHost, readout: u16, rail: usize) -> usize {
        let mut seen = usize::from(host.unit.foresee(TriggerNumber(host.fed + 1)));
        let Some(adapter) = host.adapters.get(rail) else {
            return seen;
        };
        seen ^= adapter.foresee(None) as usize;
        for letter in &host.inbox {
            let (builder, triggers) = self.texts.named(letter.text);
            let port = self.builder_port.get(usize::from(builder)).copied();
            seen ^= (host.unit.next_sequence_of(builder) ^ adapter.foresee(port)) as usize;
            for trigger in triggers {
                seen ^= self.sizes.of(trigger.0, readout) as usize;
                seen ^= usize::from(host.unit.foresee(*trigger));
            }
        }
        seen
    }
}
