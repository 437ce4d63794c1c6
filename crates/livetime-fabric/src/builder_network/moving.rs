//! What moves in the networks between the hosts, and whether one of them stands still.
//!
//! A packet in a network waits for events of that network alone: nothing that a host does later gives it
//! a link or room in a buffer. So once packets are in a network and none of its events is to come, each of
//! them waits for what another one holds, for ever. The run ends there: all that could still happen is that
//! events are given up. Where some packets still find a way, those that stand still are found at the
//! end of the run alone. Where no links can wait for each other in a circle there is nothing to look for
//! here.

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
        let pending = self.pending(s);
        self.engines[network].send(at, source, parcel, s);
        if self.may_deadlock {
            self.note_sent(network, pending, s);
        }
    }

    /// Events that are to come, where that matters.
    #[inline]
    pub(super) fn pending(&self, s: &Scheduler<EventWord>) -> usize {
        if self.may_deadlock { s.pending() } else { 0 }
    }

    /// A packet is in a network now; `pending` events were to come before.
    #[cold]
    fn note_sent(&mut self, network: usize, pending: usize, s: &Scheduler<EventWord>) {
        let moving = &mut self.moving[network];
        moving.packets += 1;
        moving.steps += s.pending() - pending;
    }

    /// A step of a network is over: `left` packets have left it, and before it `pending` events were to
    /// come. Ends the run if nothing can move there any more.
    #[cold]
    pub(super) fn note_step(
        &mut self,
        network: usize,
        left: usize,
        pending: usize,
        s: &mut Scheduler<EventWord>,
    ) {
        let moving = &mut self.moving[network];
        moving.packets -= left as u64;
        moving.steps = moving.steps + (s.pending() - pending) - 1;
        if moving.is_deadlock() {
            self.deadlocked = Some((network, moving.packets));
            s.halt();
        }
    }
}
