//! Packets that do not come: those lost at full buffers, and those damaged on the way.
//!
//! A damaged packet takes its time on every link; the adapter that receives it sees the wrong CRC
//! and drops it. What was in it is asked for again by the builder unit that misses it, whatever the
//! cause.

use super::adapter::{Cargo, ends_in};
use super::event::EventWord;
use super::parts::Fate;
use super::world::NetworkWorld;
use crate::address::NodeId;
use crate::random::{Probability, Purpose, RandomStream, RandomStreams};
use crate::scheduler::Scheduler;

/// Draws whether a packet comes damaged, one draw for each.
pub(super) struct PacketDamage {
    share: Probability,
    draws: RandomStream,
}

impl PacketDamage {
    /// Of this share of the packets, 0 to 1; `None` where there is none.
    pub(super) fn new(share: f64, seed: u64) -> Option<Self> {
        let share = Probability::new_checked(share)?;
        share.is_possible().then(|| Self {
            share,
            draws: RandomStreams::new(seed).stream(NodeId(0), Purpose(44)),
        })
    }

    fn strikes(&mut self) -> bool {
        self.draws.chance(self.share)
    }
}

impl NetworkWorld<'_> {
    /// Whether the packet that has come is damaged.
    #[inline]
    pub(super) fn is_damaged(&mut self) -> bool {
        self.damage.as_mut().is_some_and(PacketDamage::strikes)
    }

    /// A packet found no room.
    pub(super) fn lose_packet(&mut self, tag: u32, s: &Scheduler<EventWord>) {
        self.tally.lose(s.now());
        self.drop_cargo(tag);
    }

    /// A packet has come damaged.
    pub(super) fn drop_damaged(&mut self, tag: u32) {
        self.tally.packets_damaged += 1;
        self.drop_cargo(tag);
    }

    fn drop_cargo(&mut self, tag: u32) {
        match self.unload(tag) {
            Cargo::Block { .. } => self.tally.lost += ends_in(&self.blocks[tag as usize].pieces),
            Cargo::Fragment(_) => self.tally.lost += 1,
            Cargo::Part(number) => {
                let _not_whole = self.end_part(number, Fate::Lost);
            }
            Cargo::Letter { text, .. } => self.texts.done(text),
        }
    }
}
