//! Which packets in buffers stand still for ever.
//!
//! A buffer has room again once one of the packets in it goes on, and a queue goes on when its head
//! does; a packet that is larger than what it is to go into never does. What is on a link always leaves the buffer before it; it goes on from the next one with the
//! queue that it comes to.

use super::super::standstill::{Standstill, Waits};
use super::{Admission, Fabric, FlowControl, NONE};

impl Fabric<'_> {
    /// What stands still for ever as things are.
    pub(crate) fn standstill(&self) -> Standstill {
        let members = self.queue_members();
        let queues: Vec<&[(usize, u32)]> = members.chunk_by(|a, b| a.0 == b.0).collect();
        // Buffers, and behind them the queues with packets.
        let buffers = self.used.len();
        let mut waits = Waits::new(buffers + queues.len());
        self.free_leaving(&mut waits);
        for (number, queue) in (buffers..).zip(&queues) {
            for (_, packet) in *queue {
                let hop = usize::from(self.packets.hop[*packet as usize]) - 1;
                if let Some(account) = self.account(*packet, hop) {
                    waits.wait(account, number);
                }
            }
            for head in self.heads(queue) {
                match self.full_buffer(head) {
                    Some(account) if self.is_too_large(head, account) => {}
                    Some(account) => waits.wait(number, account),
                    None => waits.free(number),
                }
            }
        }
        let can_go = waits.settle();
        let mut still = Vec::new();
        let mut links = Vec::new();
        for (_, queue) in (buffers..).zip(&queues).filter(|(n, _)| !can_go[*n]) {
            still.extend(queue.iter().map(|(_, packet)| *packet));
            links.extend(self.heads(queue).map(|head| self.next_link(head)));
        }
        // The links of sources come first, in their order.
        for link in 0..self.topology.sources() {
            let head = self.first_waiting[link as usize];
            let full = if head == NONE {
                None
            } else {
                self.full_buffer(head)
            };
            let is_still = |account: usize| !can_go[account] || self.is_too_large(head, account);
            if full.is_some_and(is_still) {
                still.push(head);
                links.push(link);
            }
        }
        links.retain(|link| (*link as usize) < self.outer);
        let sources = still.iter().map(|p| self.packets.source[*p as usize]);
        Standstill::of(sources.collect(), links)
    }

    /// Packets that are in queues or come to one, by queue.
    fn queue_members(&self) -> Vec<(usize, u32)> {
        let mut is_gone = vec![false; self.packets.source.len()];
        for packet in &self.packets.free {
            is_gone[*packet as usize] = true;
        }
        let packets = (0..).zip(&is_gone).filter(|(_, is_gone)| !**is_gone);
        let mut members: Vec<(usize, u32)> = packets
            .filter_map(|(packet, _)| {
                let link = self.came_by(packet)?;
                let is_coming = self.element_after[link as usize] != NONE;
                is_coming.then(|| (self.queue_of(packet, link), packet))
            })
            .collect();
        members.sort_unstable();
        members
    }

    /// The head of a queue, or whatever may become it.
    fn heads(&self, queue: &[(usize, u32)]) -> impl Iterator<Item = u32> {
        let head = self.first[queue[0].0];
        let packets = queue.iter().map(|(_, packet)| *packet);
        packets.filter(move |packet| head == NONE || *packet == head)
    }

    /// The buffer whose room a packet waits for.
    fn full_buffer(&self, packet: u32) -> Option<usize> {
        let hop = usize::from(self.packets.hop[packet as usize]);
        let account = self.account(packet, hop)?;
        let (link, bytes) = (self.next_link(packet), self.wire_bytes(packet));
        (self.admission(link, account, bytes) == Admission::Wait).then_some(account)
    }

    /// Whether a packet that waits for room in a buffer finds none when this is empty.
    fn is_too_large(&self, packet: u32, account: usize) -> bool {
        let bytes = self.wire_bytes(packet);
        match self.is_inner(account) {
            true => bytes > self.inner.bytes,
            // Without credits it is sent, and lost.
            false => self.buffering.flow == FlowControl::Credits && bytes > self.buffering.bytes,
        }
    }

    /// Buffers that packets are leaving, or of which news are on the way.
    fn free_leaving(&self, waits: &mut Waits) {
        for (packet, account) in self.carries.iter().zip(&self.leaves) {
            if *packet != NONE && *account != NONE {
                waits.free(*account as usize);
            }
        }
        let cables = self.cables.iter();
        for link in cables.flat_map(|cables| cables.links_with_news()) {
            waits.free(link as usize);
        }
    }
}
