//! Asks ahead for what deliveries will touch.
//!
//! Blocks of equal size end at the same instants, hundreds at a time, and each touches some twenty
//! cache lines of two hosts that nothing has touched since the step before. One after the other
//! most of a run would be waiting for memory; asked for over several deliveries, they come together
//! while others are handled.

use livetime_shm::prefetch::bring;
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
    /// Asks for what deliveries by rail will touch, at both ends. Changes nothing.
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
        for coming in coming {
            self.foresee_places(coming);
        }
        for coming in coming {
            self.foresee_events(coming);
        }
    }

    /// What is found in few steps.
    #[inline]
    fn foresee_places(&self, coming: &Coming) {
        let Coming {
            rail,
            readout,
            builder,
            tag,
        } = *coming;
        let host = &self.readouts[readout];
        let adapter = &self.adapters[readout * self.rails + rail];
        // What it sends next, and the fragment that comes to it next.
        bring_some(adapter.foresee(None));
        let next = TriggerNumber(host.fed + 1);
        bring_some(host.unit.foresee_trigger(next));
        bring(host.unit.foresee_closing(next));
        // What it will look up for the messages that wait for it.
        for letter in &host.inbox {
            let (from, is_request, triggers) = self.texts.named(letter.text);
            bring_some(host.unit.foresee_message(from));
            if is_request && let Some(port) = self.builder_port.get(usize::from(from)) {
                bring_some(adapter.foresee(Some(*port)));
            }
            for trigger in triggers {
                bring_some(host.unit.foresee_trigger(*trigger));
                match is_request {
                    true => bring(self.sizes.place(trigger.0, readout as u16)),
                    false => bring(host.unit.foresee_closing(*trigger)),
                }
            }
        }
        if builder != NONE {
            let host = &self.builders[usize::from(builder)];
            let sender = rail * self.readouts.len() + readout;
            bring_some(host.unit.foresee_message(readout as u16));
            bring_some(host.assemblers.foresee(sender));
            bring(&self.blocks[tag as usize].sequence);
        }
    }

    /// The events whose fragments come.
    #[inline]
    fn foresee_events(&self, coming: &Coming) {
        if coming.builder == NONE {
            return;
        }
        let host = &self.builders[usize::from(coming.builder)];
        for piece in &self.blocks[coming.tag as usize].pieces {
            if let Some((event, received)) = host.unit.foresee_event(piece.trigger, coming.readout)
            {
                bring(event);
                bring(received);
            }
        }
    }
}

/// Asks for a place if there is one.
#[inline]
fn bring_some(place: Option<&u32>) {
    if let Some(place) = place {
        bring(place);
    }
}
