//! A network between hosts: an engine of either kind behind one face.

use super::event::EventWord;
use crate::network::port::Parcel;
use crate::network::topology::Topology;
use crate::network::{LinkReport, Load, Standstill, buffered, wormhole};
use crate::scenario::Switching;
use crate::scheduler::Scheduler;
use crate::time::SimPs;

/// A network.
#[expect(clippy::large_enum_variant, reason = "there is one for each rail")]
pub(super) enum Engine<'t> {
    Wormhole(wormhole::Fabric<'t>),
    Buffered(buffered::Fabric<'t>),
}

impl<'t> Engine<'t> {
    pub(super) fn new(
        topology: &'t Topology,
        load: &Load,
        switching: &Switching,
        number: u8,
    ) -> Self {
        let load = Load {
            seed: load.seed.wrapping_add(u64::from(number)),
            ..load.clone()
        };
        match switching {
            Switching::Wormhole => {
                Self::Wormhole(wormhole::Fabric::for_hosts(topology, load, number))
            }
            Switching::Buffered(buffering) => {
                let engine = buffered::Fabric::for_hosts(topology, load, *buffering, number);
                Self::Buffered(engine)
            }
        }
    }

    pub(super) fn send(
        &mut self,
        at: SimPs,
        source: u32,
        parcel: Parcel,
        s: &mut Scheduler<EventWord>,
    ) {
        match self {
            Self::Wormhole(engine) => engine.send(at, source, parcel, s),
            Self::Buffered(engine) => engine.send(at, source, parcel, s),
        }
    }

    /// What stands still in it for ever.
    pub(super) fn standstill(&self) -> Standstill {
        match self {
            Self::Wormhole(engine) => engine.standstill(),
            Self::Buffered(engine) => engine.standstill(),
        }
    }

    /// What links and buffers did until the end of the run, if it was counted.
    pub(super) fn take_link_report(&mut self, end: SimPs) -> Option<LinkReport> {
        match self {
            Self::Wormhole(engine) => engine.take_link_report(end),
            Self::Buffered(engine) => engine.take_link_report(end),
        }
    }
}
