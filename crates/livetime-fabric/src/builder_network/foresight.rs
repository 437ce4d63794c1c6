//! Reads ahead what deliveries will touch.
//!
//! Blocks of equal size end at the same instants, hundreds at a time, and each touches some twenty
//! cache lines of two hosts that nothing has touched since the step before. One after the other
//! most of a run would be waiting for memory; read in rounds over several deliveries, they come
//! together. Each round reads what the one before has found the way to, and does little else, so that
//! the processor gets far ahead.

use std::hint::black_box;

use livetime_wire::TriggerNumber;

use super::placement::NONE;
use super::world::NetworkWorld;
use crate::kernel::FORESEEN;
use crate::network::port::Delivery;

/// Who takes part in a delivery that comes.
#[derive(Debug, Clone, Copy, Default)]
struct Coming {
    rail: usize,
    readout: usize,
    /// [`NONE`] for a port without a builder unit.
    builder: u16,
    tag: u32,
}

impl NetworkWorld<'_> {
    /// Reads what deliveries by rail will touch, at both ends. Changes nothing.
    pub(super) fn foresee_deliveries(&self, deliveries: impl Iterator<Item = (usize, Delivery)>) {
        let mut all = [Coming::default(); FORESEEN];
        let mut count = 0;
        for ((rail, delivery), coming) in deliveries.zip(&mut all) {
            *coming = Coming {
                rail,
                readout: self.readout_at[delivery.from as usize].into(),
                builder: self.builder_at[delivery.parcel.to as usize],
                tag: delivery.parcel.tag,
            };
            count += 1;
        }
        let coming = &all[..count];
        let seen = self.foresee_senders(coming)
            ^ self.foresee_receivers(coming)
            ^ self.foresee_letters(coming);
        black_box(seen);
    }

    /// What readout units send next, and the fragment that comes to them next.
    fn foresee_senders(&self, coming: &[Coming]) -> u64 {
        let mut seen = 0;
        for Coming { rail, readout, .. } in coming {
            let host = &self.readouts[*readout];
            seen ^= u64::from(host.adapters[*rail].foresee(None)) ^ host.inbox.len() as u64;
            seen ^= host.unit.foresee(TriggerNumber(host.fed + 1));
        }
        seen
    }

    /// Where builder units put what comes.
    fn foresee_receivers(&self, coming: &[Coming]) -> u64 {
        let mut seen = 0;
        let there = || coming.iter().filter(|coming| coming.builder != NONE);
        for Coming {
            rail,
            readout,
            builder,
            ..
        } in there()
        {
            let host = &self.builders[usize::from(*builder)];
            let sender = rail * self.readouts.len() + readout;
            seen ^= host.unit.next_sequence_of(*readout as u16);
            seen ^= host.assemblers.next_sequence_of(sender);
        }
        let mut seen = u64::from(seen);
        for Coming { builder, tag, .. } in there() {
            let host = &self.builders[usize::from(*builder)];
            for piece in &self.blocks[*tag as usize].pieces {
                seen ^= u64::from(host.unit.foresee(piece.trigger));
            }
        }
        seen
    }

    /// What readout units will look up for the messages that wait for them.
    fn foresee_letters(&self, coming: &[Coming]) -> u64 {
        let mut seen = 0;
        for Coming { rail, readout, .. } in coming {
            let host = &self.readouts[*readout];
            for letter in &host.inbox {
                let (builder, is_request, triggers) = self.texts.named(letter.text);
                seen ^= u64::from(host.unit.next_sequence_of(builder));
                if is_request {
                    let port = self.builder_port.get(usize::from(builder)).copied();
                    seen ^= u64::from(host.adapters[*rail].foresee(port));
                }
                for trigger in triggers {
                    seen ^= host.unit.foresee(*trigger);
                    if is_request {
                        seen ^= u64::from(self.sizes.of(trigger.0, *readout as u16));
                    }
                }
            }
        }
        seen
    }
}
