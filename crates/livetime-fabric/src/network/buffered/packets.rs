//! Packets in a network with buffers, by number, in columns.
//!
//! A number is given to another packet once its first one is delivered or lost, so that nothing is
//! allocated once the buffers have been full. Who uses them: [`super::Fabric`].

use crate::time::SimPs;

/// No packet.
const NONE: u32 = u32::MAX;

/// Packets by number.
#[derive(Default)]
pub(super) struct Packets {
    pub(super) source: Vec<u32>,
    pub(super) destination: Vec<u32>,
    pub(super) number: Vec<u64>,
    pub(super) bytes: Vec<u32>,
    /// The hosts' number of it.
    pub(super) tag: Vec<u32>,
    pub(super) lane: Vec<u16>,
    /// Place in the route of the link to take next.
    pub(super) hop: Vec<u8>,
    pub(super) arrived: Vec<SimPs>,
    /// The next one in the queue.
    pub(super) next_queued: Vec<u32>,
    /// The next one in the list of heads that wait for a link.
    pub(super) next_waiting: Vec<u32>,
    /// Routes, `stride` links each.
    pub(super) route: Vec<u32>,
    /// Numbers that no packet has.
    pub(super) free: Vec<u32>,
}

impl Packets {
    /// A number for a new packet; routes have `stride` links.
    pub(super) fn take(&mut self, stride: usize) -> u32 {
        if let Some(packet) = self.free.pop() {
            return packet;
        }
        let packet = self.source.len() as u32;
        self.source.push(0);
        self.destination.push(0);
        self.number.push(0);
        self.bytes.push(0);
        self.tag.push(0);
        self.lane.push(0);
        self.hop.push(0);
        self.arrived.push(SimPs::ZERO);
        self.next_queued.push(NONE);
        self.next_waiting.push(NONE);
        self.route.resize(self.route.len() + stride, 0);
        packet
    }
}
