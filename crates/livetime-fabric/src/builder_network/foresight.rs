//! Reads ahead what deliveries will touch.
//!
//! Blocks of equal size end at the same instants, hundreds at a time, and each touches some twenty
//! cache lines of two hosts that nothing has touched since the step before. One after the other
//! most of a run would be waiting for memory; read in rounds over several deliveries, they come
//! together. Where they are is found out before any of them is read, so that the processor has them
//! all on their way at a time.

use std::hint::black_box;

use livetime_wire::TriggerNumber;

use super::placement::NONE;
use super::world::NetworkWorld;
use crate::kernel::FORESEEN;
use crate::network::port::Delivery;

/// Places of a kind that are read at once.
const PLACES: usize = 16 * FORESEEN;

/// Who takes part in a delivery that comes.
#[derive(Debug, Clone, Copy, Default)]
struct Coming {
    rail: usize,
    readout: usize,
    /// [`NONE`] for a port without a builder unit.
    builder: u16,
    tag: u32,
}

/// Places that are to be read: found first, where each takes some steps, and then read all at once.
struct Places<'a, T> {
    places: [Option<&'a T>; PLACES],
    count: usize,
}

impl<'a, T> Places<'a, T> {
    const fn new() -> Self {
        Self {
            places: [None; PLACES],
            count: 0,
        }
    }

    /// Adds one if there is one; without room it is not read ahead.
    #[inline]
    fn add(&mut self, place: Option<&'a T>) {
        if let Some(free) = self.places.get_mut(self.count) {
            *free = place;
            self.count += usize::from(place.is_some());
        }
    }

    fn all(&self) -> impl Iterator<Item = &'a T> {
        self.places[..self.count].iter().copied().flatten()
    }
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
        if !coming.is_empty() {
            self.foresee_places(coming);
            black_box(self.foresee_events(coming));
        }
    }

    /// What is found in few steps.
    fn foresee_places(&self, coming: &[Coming]) {
        let mut words = Places::<u32>::new();
        let mut closings = Places::<u64>::new();
        for coming @ Coming { rail, readout, .. } in coming {
            let host = &self.readouts[*readout];
            // What it sends next, and the fragment that comes to it next.
            words.add(self.adapters[readout * self.rails + rail].foresee(None));
            words.add(host.unit.foresee_trigger(TriggerNumber(host.fed + 1)));
            closings.add(Some(host.unit.foresee_closing(TriggerNumber(host.fed + 1))));
            // What it will look up for the messages that wait for it.
            for letter in &host.inbox {
                let (builder, is_request, triggers) = self.texts.named(letter.text);
                words.add(host.unit.foresee_message(builder));
                if is_request && let Some(port) = self.builder_port.get(usize::from(builder)) {
                    words.add(self.adapters[readout * self.rails + rail].foresee(Some(*port)));
                }
                for trigger in triggers {
                    words.add(host.unit.foresee_trigger(*trigger));
                    match is_request {
                        true => words.add(Some(self.sizes.place(trigger.0, *readout as u16))),
                        false => closings.add(Some(host.unit.foresee_closing(*trigger))),
                    }
                }
            }
            if coming.builder != NONE {
                let host = &self.builders[usize::from(coming.builder)];
                let sender = rail * self.readouts.len() + readout;
                words.add(host.unit.foresee_message(*readout as u16));
                words.add(host.assemblers.foresee(sender));
            }
        }
        let words = words.all().fold(0, |seen, place| seen ^ place);
        let closings = closings.all().fold(0, |seen, place| seen ^ place);
        black_box((words, closings));
    }

    /// The events whose fragments come.
    fn foresee_events(&self, coming: &[Coming]) -> u64 {
        let mut seen = 0;
        for Coming {
            builder,
            tag,
            readout,
            ..
        } in coming
        {
            if *builder == NONE {
                continue;
            }
            let host = &self.builders[usize::from(*builder)];
            for piece in &self.blocks[*tag as usize].pieces {
                if let Some((event, received)) = host.unit.foresee_event(piece.trigger, *readout) {
                    seen ^= event.0 ^ received;
                }
            }
        }
        seen
    }
}
