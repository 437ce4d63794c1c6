//! Builder units that count payload and describe none of it, for simulations of thousands of sources.
//!
//! The protocol is the same; an event is a bit for each source and a sum of bytes.

use std::sync::Arc;

use livetime_wire::message::FragmentDescriptor;
use livetime_wire::{DurationNs, RunNs, TriggerNumber};

use super::BuilderUnit;
use crate::builder_config::BuilderConfig;
use crate::event_assembly::{Payload, Stage};
use crate::message_exchange::Handled;
use crate::source_map::SourceMap;

impl BuilderUnit {
    /// All builder units of a valid configuration, for simulations of many sources: they count
    /// payload and keep no descriptors, so that tickets name no fragments, and share what they know
    /// of the sources. [`BuilderUnit::event_bytes`] tells what came.
    pub fn counting_units(config: &BuilderConfig, epoch: u32) -> impl Iterator<Item = Self> + '_ {
        let sources = Arc::new(SourceMap::new(config));
        (0..config.builder_units).map(move |index| {
            Self::with_payload(config, index, epoch, sources.clone(), Payload::Counted)
        })
    }

    /// Takes a fragment as [`BuilderUnit::handle_message`] does, off a link that keeps order, loses
    /// nothing and numbers nothing itself: it is the next message of a readout unit in its present life.
    #[inline]
    pub fn handle_next_fragment(
        &mut self,
        now: RunNs,
        readout: u16,
        trigger: TriggerNumber,
        fragment: &FragmentDescriptor,
    ) -> Handled {
        let messages = &mut self.counts.messages;
        if !self.readouts.receive_next(readout.into(), messages) {
            self.free_pages(fragment);
            return Handled::Refused;
        }
        self.place(now, readout, trigger, fragment);
        Handled::Taken
    }

    /// Where a message of a readout unit is checked, for drivers that have many units, know what comes
    /// and read it ahead; what is there means nothing to them.
    #[inline]
    pub fn foresee_message(&self, readout: u16) -> Option<&u32> {
        self.readouts.foresee(readout.into())
    }

    /// Where the look-up of an event begins, for drivers as in [`BuilderUnit::foresee_message`].
    #[inline]
    pub fn foresee_slot(&self, trigger: TriggerNumber) -> Option<&u32> {
        self.slots.foresee(trigger)
    }

    /// Where it goes on, once that is at hand.
    #[inline]
    pub fn foresee_entry(&self, trigger: TriggerNumber) -> Option<&u64> {
        self.slots.foresee_entry(trigger)
    }

    /// Where a fragment of an event goes, of the source with a rank, for drivers as in
    /// [`BuilderUnit::foresee_message`].
    #[inline]
    pub fn foresee_event(
        &self,
        trigger: TriggerNumber,
        rank: usize,
    ) -> Option<(&TriggerNumber, &u64)> {
        self.assembly.foresee(*self.slots.get(trigger)?, rank)
    }

    /// Payload bytes of an event in hand that came; 0 for one that is not.
    pub fn event_bytes(&self, trigger: TriggerNumber) -> u32 {
        let slot = self.slots.get(trigger);
        slot.map_or(0, |slot| self.assembly.event(*slot).bytes)
    }

    /// Skew of a closed event in hand: time from its first fragment to its last one, or to its timeout,
    /// in steps of 16 ns, modulo 68 s; 0 for one that is not.
    pub fn event_skew(&self, trigger: TriggerNumber) -> DurationNs {
        let slot = self.slots.get(trigger);
        slot.map_or(DurationNs(0), |slot| self.assembly.event(*slot).skew())
    }

    /// Payload bytes that came of all events in hand. Looks at every credit.
    pub fn payload_held(&self) -> u64 {
        let events = (0..self.assembly.slots()).map(|slot| self.assembly.event(slot));
        let held = events.filter(|event| event.stage != Stage::Vacant);
        held.map(|event| u64::from(event.bytes)).sum()
    }
}
