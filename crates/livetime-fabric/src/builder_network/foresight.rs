//! Asks ahead for what deliveries will touch.
//!
//! Blocks of equal size end at the same instants, hundreds at a time, and each touches some forty
//! cache lines of two hosts that nothing has touched since the step before. Not asked for, most of a
//! run would be waiting for memory. At each delivery the next ones are looked at: of the nearest what
//! is found through much, of a farther one the places that this will be found through, of the
//! farthest the hosts themselves. So each asks for what it needs in turn as it comes nearer, never
//! waits for what it needs to ask, and memory works while deliveries are handled.

use livetime_shm::prefetch::{bring, bring_first};
use livetime_wire::TriggerNumber;

use super::engine::Engine;
use super::event::{EventWord, NetworkEvent};
use super::placement::NONE;
use super::world::NetworkWorld;
use crate::scheduler::Scheduler;

/// Deliveries between the one that is handled and that of which the hosts are asked for. What is asked
/// for too soon has left the core's nearest cache again.
const HOSTS_AHEAD: usize = 4;
/// Those to that of which places in the hosts are asked for.
const PLACES_AHEAD: usize = 3;
/// Those to that of which entries in tables are asked for.
const ENTRIES_AHEAD: usize = 2;
/// Those to that of which triggers and events are asked for.
const EVENTS_AHEAD: usize = 1;
/// Room for all of them.
const REMEMBERED: usize = (HOSTS_AHEAD + 1).next_power_of_two();

/// What every message or fragment touches of a host: the beginning, see there.
const READOUT_BYTES: usize = 512;
const BUILDER_BYTES: usize = 512;
const ADAPTER_BYTES: usize = 192;
/// The head of a block and its first pieces.
const BLOCK_BYTES: usize = 128;

/// The deliveries of which the hosts were asked for, the oldest written over: each is looked for once,
/// and found here when it is nearer.
#[derive(Debug, Default)]
pub(super) struct Foreseen {
    coming: [Option<Coming>; REMEMBERED],
    handled: usize,
}

impl Foreseen {
    /// A delivery is handled, and this one is [`HOSTS_AHEAD`] of it.
    #[inline]
    fn remember(&mut self, coming: Option<Coming>) {
        self.handled = self.handled.wrapping_add(1);
        *self.at(HOSTS_AHEAD) = coming;
    }

    /// The delivery after so many others.
    #[inline]
    fn at(&mut self, others: usize) -> &mut Option<Coming> {
        &mut self.coming[self.handled.wrapping_add(others) % REMEMBERED]
    }
}

/// Who takes part in a delivery that comes.
#[derive(Debug, Clone, Copy)]
struct Coming {
    rail: usize,
    readout: usize,
    /// [`NONE`] for a port without a builder unit.
    builder: u16,
    tag: u32,
}

impl NetworkWorld<'_> {
    /// Asks for what the next deliveries will touch, at both ends. Changes nothing.
    #[inline]
    pub(super) fn foresee_deliveries(&mut self, s: &Scheduler<EventWord>) {
        let coming = self.coming(HOSTS_AHEAD, s);
        self.foreseen.remember(coming);
        if let Some(coming) = coming {
            self.foresee_hosts(&coming);
        }
        if let Some(coming) = *self.foreseen.at(PLACES_AHEAD) {
            self.foresee_places(&coming);
        }
        if let Some(coming) = *self.foreseen.at(ENTRIES_AHEAD) {
            self.foresee_entries(&coming);
        }
        if let Some(coming) = *self.foreseen.at(EVENTS_AHEAD) {
            self.foresee_triggers(&coming);
            self.foresee_events(&coming);
        }
    }

    /// The delivery that probably comes after so many others.
    #[inline]
    fn coming(&self, others: usize, s: &Scheduler<EventWord>) -> Option<Coming> {
        let NetworkEvent::Wormhole(number, step) = s.coming(others)?.event() else {
            return None;
        };
        let rail = usize::from(number);
        let delivery = match &self.engines[rail] {
            Engine::Wormhole(engine) if rail < self.rails => engine.delivered_by(&step)?,
            _ => return None,
        };
        Some(Coming {
            rail,
            readout: self.readout_at[delivery.from as usize].into(),
            builder: self.builder_at[delivery.parcel.to as usize],
            tag: delivery.parcel.tag,
        })
    }

    /// The hosts, and the block.
    #[inline]
    fn foresee_hosts(&self, coming: &Coming) {
        bring_first(&self.readouts[coming.readout], READOUT_BYTES);
        let adapter = coming.readout * self.rails + coming.rail;
        bring_first(&self.adapters[adapter], ADAPTER_BYTES);
        if coming.builder != NONE {
            let host = &self.builders[usize::from(coming.builder)];
            bring_first(host, BUILDER_BYTES);
            bring_first(&self.blocks[coming.tag as usize], BLOCK_BYTES);
        }
    }

    /// What is found in the hosts and the block.
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
        // What it sends next, the fragment that comes to it next, and the messages that wait for it.
        bring_some(adapter.foresee(None));
        let next = TriggerNumber(host.fed + 1);
        bring_some(host.unit.foresee_trigger(next));
        bring_some(host.unit.foresee_closing(next));
        for letter in &host.inbox {
            self.texts.foresee(letter.text);
        }
        if builder != NONE {
            let host = &self.builders[usize::from(builder)];
            let sender = rail * self.readouts.len() + readout;
            bring_some(host.unit.foresee_message(readout as u16));
            for end in host.assemblers.foresee(sender).into_iter().flatten() {
                bring(end);
            }
            for piece in &self.blocks[tag as usize].pieces {
                bring_some(host.unit.foresee_slot(piece.trigger));
            }
        }
    }

    /// What leads to the events whose fragments come.
    #[inline]
    fn foresee_entries(&self, coming: &Coming) {
        if coming.builder == NONE {
            return;
        }
        let host = &self.builders[usize::from(coming.builder)];
        for piece in &self.blocks[coming.tag as usize].pieces {
            bring_some(host.unit.foresee_entry(piece.trigger));
        }
    }

    /// What will be looked up for the messages that wait.
    #[inline]
    fn foresee_triggers(&self, coming: &Coming) {
        let Coming { rail, readout, .. } = *coming;
        let host = &self.readouts[readout];
        let adapter = &self.adapters[readout * self.rails + rail];
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
                    false => bring_some(host.unit.foresee_closing(*trigger)),
                }
            }
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
fn bring_some<T>(place: Option<&T>) {
    if let Some(place) = place {
        bring(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_found_again_as_it_comes_nearer() {
        let coming = |tag: usize| Coming {
            rail: 0,
            readout: 0,
            builder: 0,
            tag: tag as u32,
        };
        let mut foreseen = Foreseen::default();
        for handled in 0..100 {
            foreseen.remember(Some(coming(handled + HOSTS_AHEAD)));
            for others in 0..=HOSTS_AHEAD.min(handled) {
                let found = foreseen.at(others).map(|coming| coming.tag as usize);
                let known = handled + others >= HOSTS_AHEAD;
                assert_eq!(found, known.then_some(handled + others));
            }
        }
        foreseen.remember(None);
        assert!(foreseen.at(HOSTS_AHEAD).is_none());
    }
}
