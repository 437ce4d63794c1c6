//! Who goes on over a link: the heads that wait for it, and the arbiter's choice among them.

use super::super::arbiter::Arbiter;
use super::{Fabric, NONE, Queueing};

impl Fabric<'_> {
    /// The head that waits for a link and came by another, and the one before it in the list.
    pub(super) fn head_from(&self, link: u32, from: u32) -> Option<(u32, u32)> {
        let (mut before, mut at) = (NONE, self.first_waiting[link as usize]);
        while at != NONE {
            if self.came_by(at) == Some(from) {
                return Some((before, at));
            }
            (before, at) = (at, self.packets.next_waiting[at as usize]);
        }
        None
    }

    /// What a packet on a link takes of the rate of the input that sends it.
    #[inline]
    pub(super) fn share(&self, link: usize) -> i64 {
        self.rate[link].min(self.load.link_bits_per_s) as i64
    }

    pub(super) fn is_eligible(&self, packet: u32) -> bool {
        self.buffering.queueing == Queueing::Output
            || self
                .came_by(packet)
                .is_none_or(|from| self.rate_left[from as usize] > 0)
    }

    /// The input port of its element at which a packet waits; 0 at a source.
    pub(super) fn port_of(&self, packet: u32) -> u16 {
        let from = self.came_by(packet);
        from.map_or(0, |from| self.input_port[from as usize])
    }

    /// The head that gets a link, and the one before it in the list.
    pub(super) fn arbitrate(&mut self, link: u32) -> Option<(u32, u32)> {
        let mut eligible = 0;
        let (mut before, mut at) = (NONE, self.first_waiting[link as usize]);
        let (mut best, mut best_rank) = (None, u64::MAX);
        while at != NONE {
            if self.is_eligible(at) {
                eligible += 1;
                let rank = match self.load.arbiter {
                    // Each of them with equal probability, in one pass.
                    Arbiter::Random if eligible == 1 || self.ties.below(eligible) == 0 => 0,
                    Arbiter::Random => u64::MAX,
                    Arbiter::Oldest => eligible,
                    Arbiter::RoundRobin => {
                        let next = self.last_port[link as usize].wrapping_add(1);
                        u64::from(self.port_of(at).wrapping_sub(next))
                    }
                    Arbiter::LeastRecent => self.served.rank(link as usize, self.port_of(at)),
                    Arbiter::Fixed => u64::from(self.port_of(at)),
                };
                let is_drawn = self.load.arbiter == Arbiter::Random && rank == 0;
                if rank < best_rank || is_drawn {
                    (best, best_rank) = (Some((before, at)), rank);
                }
                if self.load.arbiter == Arbiter::Oldest {
                    // They are in the order in which they came: all behind it are younger.
                    return best;
                }
            }
            (before, at) = (at, self.packets.next_waiting[at as usize]);
        }
        best
    }

    pub(super) fn unlink(&mut self, link: u32, before: u32, packet: u32) {
        let after = self.packets.next_waiting[packet as usize];
        match before {
            NONE => self.first_waiting[link as usize] = after,
            before => self.packets.next_waiting[before as usize] = after,
        }
        if after == NONE {
            self.last_waiting[link as usize] = before;
        }
    }
}
