//! The room behind links: who may be sent, and who waits until there is some.

use crate::time::SimPs;

use super::{Fabric, FlowControl, NONE};

/// What flow control does with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// There is room.
    Take,
    /// It is not sent yet.
    Wait,
    /// It is sent, and lost.
    Lose,
    /// It is sent, and whether there is room is seen when it has come.
    Send,
}

impl Fabric<'_> {
    /// What the buffer behind a link says to a packet.
    pub(super) fn admission(&self, link: u32, account: usize, bytes: u64) -> Admission {
        if self.is_inner(account) {
            // An element knows its own queues: nothing is lost in it.
            return match self.used[account] + bytes > self.inner.bytes {
                true => Admission::Wait,
                false => Admission::Take,
            };
        }
        if self.decides_late(link as usize) {
            return match self.is_stopped[account] {
                true => Admission::Wait,
                false => Admission::Send,
            };
        }
        let is_full = self.used[account] + bytes > self.buffering.bytes;
        match self.buffering.flow {
            FlowControl::Credits if is_full => Admission::Wait,
            FlowControl::StopGo { .. } if self.is_stopped[account] => Admission::Wait,
            _ if is_full => Admission::Lose,
            _ => Admission::Take,
        }
    }

    /// Whether a packet need not wait for the buffer behind its next link; if it must, the link is
    /// looked at again once there is room.
    pub(super) fn may_enter(&mut self, link: u32, packet: u32) -> bool {
        let hop = usize::from(self.packets.hop[packet as usize]);
        let Some(account) = self.account(packet, hop) else {
            return true;
        };
        let must_wait = self.admission(link, account, self.wire_bytes(packet)) == Admission::Wait;
        if must_wait {
            self.block(link, account);
        }
        !must_wait
    }

    pub(super) fn fill(&mut self, now: SimPs, account: usize, bytes: u64) {
        self.used[account] += bytes;
        let level = self.level(account);
        if let Some(meter) = &mut self.meter {
            meter.holds(account, now, level);
        }
        if let FlowControl::StopGo { stop, .. } = self.buffering.flow
            && self.used[account] >= stop
        {
            self.is_stopped[account] = true;
        }
    }

    pub(super) fn free(&mut self, now: SimPs, account: usize, bytes: u64) {
        self.used[account] -= bytes;
        if let Some(meter) = &mut self.meter {
            meter.holds(account, now, self.used[account]);
        }
        if let FlowControl::StopGo { go, .. } = self.buffering.flow
            && !self.is_inner(account)
        {
            if self.used[account] > go {
                return;
            }
            self.is_stopped[account] = false;
        }
        self.wake(account);
    }

    /// Looks again at the links that wait for room in a buffer.
    pub(super) fn wake(&mut self, account: usize) {
        let mut link = core::mem::replace(&mut self.first_blocked[account], NONE);
        while link != NONE {
            self.is_blocked[link as usize] = false;
            self.mark(link);
            link = self.next_blocked[link as usize];
        }
    }

    pub(super) fn block(&mut self, link: u32, account: usize) {
        if !self.is_blocked[link as usize] {
            self.is_blocked[link as usize] = true;
            self.next_blocked[link as usize] = self.first_blocked[account];
            self.first_blocked[account] = link;
        }
    }
}
