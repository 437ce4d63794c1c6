//! A batch of datagrams of one socket: their first words into buffers, their payload into pages.
//!
//! Which datagram is longer than the others is not known before it is there, so that each is received
//! into words and a page behind them. One without payload is put together in its words again, and
//! its page is used for the next.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use livetime_shm::PageWriter;
use livetime_wire::message_datagram::{DatagramHead, PAYLOAD_AT, PLAIN_WORDS_MAX};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmmsg, recvmsg};
use zerocopy::IntoBytes;

use super::super::receive_pages::ReceivePages;
use super::{BATCH, HEADERS, UdpFrameCounts};

/// Where a datagram is received.
struct Slot {
    words: Vec<u32>,
    page: Option<PageWriter>,
    /// Bytes that came, and whether the datagram had more.
    bytes: usize,
    is_cut: bool,
}

/// The datagrams that came together, of one socket.
pub(super) struct Receiving {
    slots: Vec<Slot>,
    /// Whether the batch was received into pages, too.
    has_pages: bool,
    came: usize,
    next: usize,
    control: Vec<u8>,
}

impl Slot {
    /// Where the kernel writes: words, page, and what of the words is behind the page where that is
    /// short.
    fn slices(&mut self, has_page: bool) -> [IoSliceMut<'_>; 3] {
        let page = self.page.as_mut().filter(|_| has_page);
        let [head, page, rest] = match page {
            None => [&mut self.words[..], &mut [], &mut []],
            Some(page) => {
                let (head, rest) = self.words.split_at_mut(PAYLOAD_AT);
                let behind = page.len().min(rest.len());
                [head, &mut page[..], &mut rest[behind..]]
            }
        };
        [head, page, rest].map(|words| IoSliceMut::new(words.as_mut_bytes()))
    }

    /// The head of a datagram that is as long as it says, with all of its messages in the words.
    fn open(&mut self, has_page: bool) -> Option<DatagramHead> {
        if self.is_cut || !self.bytes.is_multiple_of(4) {
            return None;
        }
        let came = self.bytes / 4;
        let head = DatagramHead::parse(&self.words[..came.min(PAYLOAD_AT)]).ok()?;
        if head.datagram_words() != came || (head.piece.is_some() && !has_page) {
            return None;
        }
        if let (None, Some(page), true) = (head.piece, &self.page, has_page)
            && came > PAYLOAD_AT
        {
            let in_page = (came - PAYLOAD_AT).min(page.len());
            self.words[PAYLOAD_AT..][..in_page].copy_from_slice(&page[..in_page]);
        }
        head.messages(&self.words).ok()?;
        Some(head)
    }
}

impl Receiving {
    pub(super) fn new() -> Self {
        let slot = |_| Slot {
            words: vec![0; PLAIN_WORDS_MAX],
            page: None,
            bytes: 0,
            is_cut: false,
        };
        Self {
            slots: (0..BATCH).map(slot).collect(),
            has_pages: false,
            came: 0,
            next: 0,
            control: nix::cmsg_space!(u32),
        }
    }

    /// Sets pages aside for the next batch; how many datagrams they are enough for.
    pub(super) fn set_aside(&mut self, pages: &mut ReceivePages) -> usize {
        for at in 0..self.slots.len() {
            if self.slots[at].page.is_some() {
                continue;
            }
            // Those behind may still have theirs.
            let last = || (at + 1..BATCH).rev();
            self.slots[at].page = pages.take();
            if self.slots[at].page.is_none() {
                let Some(other) = last().find(|other| self.slots[*other].page.is_some()) else {
                    return at;
                };
                self.slots[at].page = self.slots[other].page.take();
            }
        }
        self.slots.len()
    }

    /// Receives what is there, at most `most` datagrams; false when nothing is. The kernel's count of
    /// datagrams that it dropped comes with the first.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        most: usize,
        has_pages: bool,
        kernel_drops: &mut u32,
        counts: &mut UdpFrameCounts,
    ) -> bool {
        (self.came, self.next, self.has_pages) = (0, 0, has_pages);
        let received = self.receive_first(socket, kernel_drops, counts);
        if received == Ok(true) && most > 1 {
            let more = self.receive_more(socket, most);
            counts.receive_errors += u64::from(is_error(more));
        }
        counts.receives += u64::from(self.came > 0);
        counts.receive_errors += u64::from(is_error(received.map(drop)));
        counts.datagrams_received += self.came as u64;
        self.came > 0
    }

    fn receive_first(
        &mut self,
        socket: &UdpSocket,
        kernel_drops: &mut u32,
        counts: &mut UdpFrameCounts,
    ) -> Result<bool, Errno> {
        let slot = &mut self.slots[0];
        let mut slices = slot.slices(self.has_pages);
        let control = Some(self.control.as_mut_slice());
        let fd = socket.as_raw_fd();
        let (bytes, is_cut) = {
            let message = recvmsg::<()>(fd, &mut slices, control, MsgFlags::empty())?;
            for control in message.cmsgs()? {
                if let ControlMessageOwned::RxqOvfl(drops) = control {
                    // The kernel's counter has 32 bits.
                    counts.kernel_drops += u64::from(drops.wrapping_sub(*kernel_drops));
                    *kernel_drops = drops;
                }
            }
            (message.bytes, message.flags.contains(MsgFlags::MSG_TRUNC))
        };
        (slot.bytes, slot.is_cut) = (bytes, is_cut);
        self.came = 1;
        Ok(true)
    }

    fn receive_more(&mut self, socket: &UdpSocket, most: usize) -> Result<(), Errno> {
        let mut lengths = [(0, false); BATCH];
        let has_pages = self.has_pages;
        let came = HEADERS.with_borrow_mut(|headers| {
            let mut slots = self.slots[1..].iter_mut();
            let mut slices: [[IoSliceMut<'_>; 3]; BATCH] = core::array::from_fn(|_| {
                let slot = slots.next();
                slot.map_or_else(
                    || [&mut [][..], &mut [], &mut []].map(IoSliceMut::new),
                    |slot| slot.slices(has_pages),
                )
            });
            let slices = slices[..most - 1].iter_mut();
            let received = recvmmsg(socket.as_raw_fd(), headers, slices, MsgFlags::empty(), None)?;
            let mut came = 0;
            for (message, length) in received.zip(&mut lengths) {
                *length = (message.bytes, message.flags.contains(MsgFlags::MSG_TRUNC));
                came += 1;
            }
            Ok(came)
        })?;
        for (slot, length) in self.slots[1..].iter_mut().zip(&lengths[..came]) {
            (slot.bytes, slot.is_cut) = *length;
        }
        self.came += came;
        Ok(())
    }

    /// Drops what is left of the batch.
    pub(super) fn clear(&mut self) {
        self.next = self.came;
    }

    /// Whether a datagram of the batch is not taken yet.
    pub(super) fn has_more(&self) -> bool {
        self.next < self.came
    }

    /// The head of the next datagram of the batch; of one that is none, nothing.
    pub(super) fn open_next(&mut self) -> Option<DatagramHead> {
        let slot = &mut self.slots[self.next];
        self.next += 1;
        slot.open(self.has_pages)
    }

    /// The first words of the datagram that was opened last.
    pub(super) fn words(&self) -> &[u32] {
        &self.slots[self.next.saturating_sub(1)].words
    }

    /// The page with its payload.
    pub(super) fn take_page(&mut self) -> Option<PageWriter> {
        self.slots[self.next.saturating_sub(1)].page.take()
    }

    /// Pages that are set aside.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        let slots = self.slots.iter();
        slots.filter(|slot| slot.page.is_some()).count()
    }
}

/// Whether the system has said something other than that nothing is there.
fn is_error(result: Result<(), Errno>) -> bool {
    !matches!(result, Ok(()) | Err(Errno::EAGAIN | Errno::EINTR))
}
