//! How much a sender of datagrams may have on its way: as much as fits into the other end's socket.
//!
//! [`SocketWindow`] counts in the bytes that the kernel sets aside for a datagram, more than the
//! datagram has, against the room that the other end says its socket has. One block is always
//! allowed, however large: else it could never be sent.

use std::collections::VecDeque;

/// Blocks that are on their way at most.
const BLOCKS_MAX: usize = 1024;
/// What the kernel needs for a datagram beside its bytes, before it rounds up, and after.
const OVERHEAD_BYTES: u64 = 512;

/// The datagrams on their way to a socket.
#[derive(Debug)]
pub(super) struct SocketWindow {
    /// Frames up to the end of each block, and what all blocks up to it took.
    blocks: VecDeque<(u64, u64)>,
    sent_bytes: u64,
    seen_bytes: u64,
    room_bytes: u64,
}

impl SocketWindow {
    /// Without room: nothing is sent before the other end has said what it has.
    pub(super) fn new() -> Self {
        Self {
            blocks: VecDeque::with_capacity(BLOCKS_MAX),
            sent_bytes: 0,
            seen_bytes: 0,
            room_bytes: 0,
        }
    }

    /// Whether the other end has said what room it has.
    pub(super) fn is_known(&self) -> bool {
        self.room_bytes > 0
    }

    /// Whether a block that takes so much may go.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let on_their_way = self.sent_bytes - self.seen_bytes;
        let fits = self.blocks.is_empty() || on_their_way + bytes <= self.room_bytes;
        self.is_known() && fits && self.blocks.len() < BLOCKS_MAX
    }

    /// A block that takes so much has gone, with frames below `frames`.
    pub(super) fn note_sent(&mut self, frames: u64, bytes: u64) {
        self.sent_bytes += bytes;
        self.blocks.push_back((frames, self.sent_bytes));
    }

    /// The other end has taken all frames below `frames` out of its socket, which has that room.
    pub(super) fn handle_seen(&mut self, frames: u64, room_bytes: u32) {
        // A quarter is for tallies, which nobody counts. Another may be taken by what was read already:
        // the kernel gives the room of datagrams back once it is so much, or the socket is empty.
        self.room_bytes = u64::from(room_bytes) / 2;
        while let Some((_, sent)) = self.blocks.pop_front_if(|(end, _)| *end <= frames) {
            self.seen_bytes = sent;
        }
    }
}

/// What the kernel sets aside for datagrams of so many bytes at most.
pub(super) fn set_aside((datagrams, bytes): (usize, usize)) -> u64 {
    let of_one = (bytes as u64 + OVERHEAD_BYTES).next_power_of_two() + OVERHEAD_BYTES;
    datagrams as u64 * of_one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_filled_no_further_than_its_room() {
        let mut window = SocketWindow::new();
        assert!(!window.has_room(1), "nothing is known of the other end");
        window.handle_seen(0, 12_000);
        assert!(
            window.has_room(100_000),
            "one block goes, whatever its size"
        );
        window.note_sent(3, 4000);
        assert!(window.has_room(2000) && !window.has_room(2001));
        window.note_sent(5, 2000);
        window.handle_seen(4, 12_000);
        assert!(window.has_room(4000) && !window.has_room(4001));
        window.handle_seen(5, 12_000);
        assert!(window.has_room(100_000));
    }

    #[test]
    fn the_kernel_sets_more_aside_than_a_datagram_has() {
        assert_eq!(set_aside((1, 24)), 1536);
        assert_eq!(set_aside((3, 1472)), 3 * 2560);
    }
}
