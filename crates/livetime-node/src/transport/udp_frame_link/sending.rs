//! One direction of a pair: messages gathered into datagrams, payload sent from where it lies.
//!
//! A fragment of the most pages and the messages before it always find room, or the link is full:
//! what was taken is sent or, where the system refuses it twice, counted as unsent.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use livetime_shm::PageReader;
use livetime_wire::message::FRAGMENT_PAGES_MAX;
use livetime_wire::message_datagram::{
    DatagramHead, HEAD_WORDS, MESSAGES_MAX, PAYLOAD_AT, PLAIN_WORDS_MAX, Piece,
};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmmsg};
use zerocopy::IntoBytes;

use super::super::allowance::Allowance;
use super::{BATCH, HEADERS, UdpFrameCounts};

/// Datagrams that wait at most while the kernel takes no more.
const QUEUE_MAX: usize = 4 * BATCH;

/// Messages, and the page of their payload.
struct Datagram {
    words: Vec<u32>,
    messages: usize,
    piece: Option<Piece>,
    /// Held until the kernel has it: whoever answers to a page's payload may free the page.
    page: Option<PageReader>,
}

impl Datagram {
    fn new() -> Self {
        Self {
            words: Vec::with_capacity(PLAIN_WORDS_MAX),
            messages: 0,
            piece: None,
            page: None,
        }
    }

    fn clear(&mut self) {
        self.words.clear();
        self.words.extend([0; HEAD_WORDS]);
        self.messages = 0;
        self.piece = None;
        self.page = None;
    }

    fn push(&mut self, message: &[u32]) {
        self.words.push(message.len() as u32);
        self.words.extend_from_slice(message);
        self.messages += 1;
    }

    fn has_room(&self, message: &[u32]) -> bool {
        self.piece.is_none()
            && self.messages < MESSAGES_MAX
            && self.words.len() + 1 + message.len() <= PLAIN_WORDS_MAX
    }

    /// Writes the head: nothing is added from here on.
    fn seal(&mut self, number: u32) {
        let head = DatagramHead {
            number,
            messages: self.messages,
            message_words: self.words.len() - HEAD_WORDS,
            piece: self.piece,
        };
        head.seal(&mut self.words);
        if self.piece.is_some() {
            self.words.resize(PAYLOAD_AT, 0);
        }
    }

    fn payload(&self) -> &[u32] {
        match (&self.page, self.piece) {
            (Some(page), Some(piece)) => &page[..piece.words],
            _ => &[],
        }
    }
}

/// What goes out to one unit.
pub(super) struct Sending {
    /// In the order of their numbers; only the last one may be unsealed.
    queue: VecDeque<Datagram>,
    spare: Vec<Datagram>,
    is_gathering: bool,
    number: u32,
    /// Whether the system has refused the first datagram once. The error may be another's: what
    /// became of an earlier one is told with a later call.
    was_refused: bool,
    /// Payload that may be handed to the kernel, where a shaper says how much.
    allowance: Allowance,
}

impl Sending {
    pub(super) fn new(allowance: Allowance) -> Self {
        Self {
            queue: VecDeque::with_capacity(QUEUE_MAX),
            spare: (0..QUEUE_MAX).map(|_| Datagram::new()).collect(),
            is_gathering: false,
            number: 0,
            was_refused: false,
            allowance,
        }
    }

    /// Drops what waits, and begins with number 0 again.
    pub(super) fn clear(&mut self) {
        while self.drop_first().is_some() {}
        (self.is_gathering, self.number, self.was_refused) = (false, 0, false);
        self.allowance.clear();
    }

    /// Lets so many bytes of payload more go out. A datagram goes with its last byte.
    pub(super) fn allow(&mut self, bytes: u32) {
        self.allowance.allow(bytes.into());
    }

    /// Whether the kernel has all that may go out.
    pub(super) fn is_block_taken(&self) -> bool {
        !self.is_gathering && self.allowed(1) == 0
    }

    /// Datagrams at the front whose payload may go out, `most` at most.
    fn allowed(&self, most: usize) -> usize {
        let mut left = self.allowance.bytes();
        let is_allowed = |datagram: &&Datagram| {
            let bytes = datagram.payload().len() * 4;
            let is_allowed = bytes <= left;
            left = left.saturating_sub(bytes);
            is_allowed
        };
        self.queue.iter().take(most).take_while(is_allowed).count()
    }

    pub(super) fn has_room(&self) -> bool {
        self.spare.len() > FRAGMENT_PAGES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Gathers a message without payload.
    pub(super) fn push(&mut self, message: &[u32]) {
        let last = self.queue.back_mut();
        if let (Some(last), true) = (last, self.is_gathering)
            && last.has_room(message)
        {
            last.push(message);
            return;
        }
        self.begin(message, None, None);
    }

    /// Adds a message with its payload, which is a datagram for each page.
    pub(super) fn push_fragment(
        &mut self,
        message: &[u32],
        pages: impl ExactSizeIterator<Item = (PageReader, usize)>,
    ) {
        let count = pages.len();
        for (index, (page, words)) in pages.enumerate() {
            let piece = Piece {
                index,
                count,
                words,
            };
            self.begin(message, Some(piece), Some(page));
        }
        self.seal();
    }

    fn begin(&mut self, message: &[u32], piece: Option<Piece>, page: Option<PageReader>) {
        self.seal();
        let datagram = self.spare.pop();
        let mut datagram = datagram.expect("room was asked for before a message is taken");
        datagram.clear();
        datagram.push(message);
        (datagram.piece, datagram.page) = (piece, page);
        self.allowance.push(4 * datagram.payload().len() as u64);
        self.queue.push_back(datagram);
        self.is_gathering = true;
    }

    /// Ends the datagram that is being gathered.
    fn seal(&mut self) {
        if let (Some(last), true) = (self.queue.back_mut(), self.is_gathering) {
            last.seal(self.number);
            self.number = self.number.wrapping_add(1);
        }
        self.is_gathering = false;
    }

    /// Drops the first datagram: the messages that are sent with it, and the words of payload.
    fn drop_first(&mut self) -> Option<(usize, usize)> {
        let mut first = self.queue.pop_front()?;
        // A message goes with each piece of its fragment, and is whole with the last.
        let is_whole = first
            .piece
            .is_none_or(|piece| piece.index + 1 == piece.count);
        let messages = if is_whole { first.messages } else { 0 };
        let sent = (messages, first.payload().len());
        self.allowance.take(4 * sent.1 as u64);
        first.page = None;
        self.spare.push(first);
        Some(sent)
    }

    /// Hands the kernel as much as it takes.
    pub(super) fn flush(&mut self, socket: &UdpSocket, counts: &mut UdpFrameCounts) {
        self.seal();
        loop {
            let count = self.allowed(BATCH);
            if count == 0 {
                return;
            }
            match self.send_some(socket, count) {
                Ok(sent) => {
                    counts.sends += 1;
                    self.was_refused = false;
                    self.count_sent(sent, counts);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => {
                    counts.sends_blocked += 1;
                    return;
                }
                Err(_) => {
                    counts.send_errors += 1;
                    if self.was_refused {
                        counts.datagrams_unsent += 1;
                        self.drop_first();
                    }
                    self.was_refused = !self.was_refused;
                }
            }
        }
    }

    fn count_sent(&mut self, sent: usize, counts: &mut UdpFrameCounts) {
        for _ in 0..sent {
            let Some((messages, payload)) = self.drop_first() else {
                return;
            };
            counts.datagrams_sent += 1;
            counts.frames_sent += messages as u64;
            counts.payload_bytes_sent += 4 * payload as u64;
        }
    }

    /// Sends the first `count` datagrams, as far as the kernel takes them.
    fn send_some(&self, socket: &UdpSocket, count: usize) -> Result<usize, Errno> {
        let mut datagrams = self.queue.iter();
        let slices: [[IoSlice<'_>; 2]; BATCH] = core::array::from_fn(|_| {
            let datagram = datagrams.next();
            let words = datagram.map_or(&[][..], |datagram| &datagram.words);
            let payload = datagram.map_or(&[][..], Datagram::payload);
            [words, payload].map(|words| IoSlice::new(words.as_bytes()))
        });
        HEADERS.with_borrow_mut(|headers| {
            let no_control: [ControlMessage<'_>; 0] = [];
            let sent = sendmmsg(
                socket.as_raw_fd(),
                headers,
                &slices[..count],
                [None; BATCH],
                no_control,
                MsgFlags::empty(),
            )?;
            Ok(sent.count())
        })
    }
}
