//! What moves in the networks between the hosts, and whether one of them stands still.
//!
//! A packet in a network waits for events of that network alone: nothing that a host does later gives it
//! a link or room in a buffer. So once packets are in a network and none of its events is to come, each of
//! them waits for what another one holds, for ever. The run ends there: all that could still happen is that
//! events are given up. A network in which some packets still find a way is not seen.

use super::event::EventWord;
use super::world::NetworkWorld;
use crate::network::port::Parcel;
use crate::scheduler::Scheduler;
use crate::time::SimPs;

/// What is under way in one network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moving {
    /// Packets that were sent, and have neither come nor been lost.
    packets: u64,
    /// Events of the network that are to come.
    steps: usize,
}

impl Moving {
    const fn is_deadlock(self) -> bool {
        self.packets > 0 && self.steps == 0
    }
}

impl NetworkWorld<'_> {
    /// Hands a packet to a network, from `at` on.
    #[inline]
    pub(super) fn send(
        &mut self,
        network: usize,
        (at, source): (SimPs, u32),
        parcel: Parcel,
        s: &mut Scheduler<EventWord>,
    ) {
        let before = s.pending();
        self.engines[network].send(at, source, parcel, s);
        let moving = &mut self.moving[network];
        moving.packets += 1;
        moving.steps += s.pending() - before;
    }

    /// A step of a network is over: so many packets have left it, and so many events are to come that
    /// were not before. Ends the run if nothing can move there any more.
    #[inline]
    pub(super) fn note_step(
        &mut self,
        network: usize,
        (left, added): (usize, usize),
        s: &mut Scheduler<EventWord>,
    ) {
        let moving = &mut self.moving[network];
        moving.packets -= left as u64;
        moving.steps = moving.steps + added - 1;
        if moving.is_deadlock() {
            self.packets_deadlocked = moving.packets;
            s.halt();
        }
    }
}
