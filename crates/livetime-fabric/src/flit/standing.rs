//! Which packets in routers stand still for ever.
//!
//! A buffer goes on when its first packet does: it has a channel whose buffer has room or goes on, or it
//! asks for a link of which one channel is free or its packet goes on. Flits that are still to come,
//! and credits, come.

use crate::network::standstill::{Standstill, Waits};

use super::{NONE, Network};

impl Network<'_> {
    /// What stands still for ever as things are.
    pub(super) fn standstill(&self) -> Standstill {
        let buffers = self.owner.len();
        let slots = self.source_packet.len();
        // Buffers, and behind them what the sources send.
        let mut waits = Waits::new(buffers + slots);
        let mut is_held = vec![false; buffers + slots];
        for (channel, owner) in self.owner.iter().enumerate() {
            let Some(place) = self.place_of_owner(channel, *owner) else {
                continue;
            };
            is_held[place] = true;
            match self.takes_flits(channel, place) {
                true => waits.free(place),
                false => waits.wait(place, channel),
            }
        }
        for (link, asking) in self.asking.iter().enumerate() {
            for place in asking.iter().map(|buffer| *buffer as usize) {
                is_held[place] = true;
                for channel in link * self.channels..(link + 1) * self.channels {
                    match self.place_of_owner(channel, self.owner[channel]) {
                        Some(owner) => waits.wait(place, owner),
                        None => waits.free(place),
                    }
                }
            }
        }
        for (place, is_held) in is_held.iter().enumerate() {
            if !is_held {
                waits.free(place);
            }
        }
        self.standing(&waits.settle())
    }

    /// Who feeds a channel: a buffer, or behind all of them a source; `None` if it is free.
    fn place_of_owner(&self, channel: usize, owner: u32) -> Option<usize> {
        let of_source = channel < self.source_packet.len();
        match owner {
            NONE => None,
            owner if of_source => Some(self.owner.len() + owner as usize),
            owner => Some(owner as usize),
        }
    }

    /// Whether a channel takes more flits of the packet that has it, or some are under way or still to
    /// come to who feeds it.
    fn takes_flits(&self, channel: usize, place: usize) -> bool {
        let ahead = &self.buffers.all[channel];
        let there: u32 = self.trains_of(channel).map(|train| train.here).sum();
        let waits_itself = place < self.owner.len() && self.buffers.first(place).here == 0;
        self.is_delivery[channel / self.channels]
            || ahead.used < ahead.room
            || ahead.used > there
            || waits_itself
    }

    /// The packets of a buffer.
    fn trains_of(&self, buffer: usize) -> impl Iterator<Item = &super::Train> {
        let buffer = &self.buffers.all[buffer];
        (0..buffer.len).map(|nth| &self.buffers.trains[buffer.place(nth)])
    }

    fn standing(&self, can_go: &[bool]) -> Standstill {
        let buffers = self.owner.len();
        let (mut packets, mut links) = (Vec::new(), Vec::new());
        for (place, _) in can_go.iter().enumerate().filter(|(_, can)| !**can) {
            match place.checked_sub(buffers) {
                Some(slot) => packets.push(self.source_packet[slot]),
                None => packets.extend(self.trains_of(place).map(|train| train.packet)),
            }
        }
        // A packet may be in several buffers.
        packets.sort_unstable();
        packets.dedup();
        for (link, asking) in (0..).zip(&self.asking) {
            if asking.iter().any(|buffer| !can_go[*buffer as usize]) {
                links.push(link);
            }
        }
        let sources = packets.iter().map(|p| self.packets.source[*p as usize]);
        Standstill::of(sources.collect(), links)
    }
}
