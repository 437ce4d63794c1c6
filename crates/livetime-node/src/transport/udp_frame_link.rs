//! Builder messages over UDP: one connected socket per pair of units, payload into pages.
//!
//! ```text
//! try_send ─► messages gathered ─► datagram ─┐ sendmmsg                 ┌─ words ─► messages ─► poll
//!             fragment ─► one datagram a page ┴─────────► recvmmsg ─────┴─ page ─► whole fragment
//! ```
//! Nothing is repeated and nothing put in order here: the cores of the event builder ask again for
//! what does not come, and know what they have had (`livetime_builder`). So the link's work is to lose
//! nothing that it was given, to name what the network lost, and to hand on no fragment that is not
//! whole. Every datagram is numbered, and its head and messages are guarded by a CRC-32C, the payload
//! by that of its fragment: `docs/formats/message-datagram.md`.
//!
//! Of what comes, the first words go into a buffer and the payload into a free page, whatever it is;
//! so no byte of payload is copied by our code. Pages of a fragment that is not whole wait in a
//! bounded table ([`PARTIAL_FRAGMENTS_MAX`]). Without free pages the oldest of these is given up; with
//! none there either, datagrams wait in the socket, and what does not fit there the kernel drops and
//! counts. Credits bound what comes, so that a buffer for all of them drops nothing
//! ([`UdpFrameLink::new`]). When the kernel takes no more, [`FrameLink::try_send`] says that the link
//! is full. Nothing is allocated after the start.
//!
//! UDP hangs up nowhere: that a unit is gone tells its process, see [`crate::process::recovery`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::ops::Range;

use livetime_builder::{FrameLink, LinkFull, Outgoing};
use livetime_shm::{PagePool, PageReader, PageWriter};
use livetime_wire::crc::crc32c;
use livetime_wire::message::{
    BuilderMessage, Envelope, FRAGMENT_PAGES_MAX, FragmentDescriptor, MESSAGE_WORDS_MAX,
    MessageWords,
};
use livetime_wire::message_datagram::{DatagramHead, HEAD_WORDS, Piece, next_message};
use livetime_wire::{UnitId, UnitKind};
use nix::sys::socket::{MultiHeaders, getsockopt, setsockopt, sockopt};

use super::allowance::Allowance;
use super::receive_pages::ReceivePages;
use super::tcp_frame_link::{fragment_of, hold_pages, pool_of};

mod datagram_numbers;
mod partial_fragments;
mod receiving;
mod sending;

use datagram_numbers::{Arrival, DatagramNumbers};
pub use partial_fragments::PARTIAL_FRAGMENTS_MAX;
use partial_fragments::{FragmentKey, PartialFragments, WholePayload};
use receiving::Receiving;
use sending::Sending;

/// Most datagrams of one system call, and pages that a link sets aside for what comes.
pub const BATCH: usize = 32;

thread_local! {
    /// What a batched call is described with. It holds pointers of the system, so that it stays with
    /// its thread, and a link may move to the worker that polls it.
    static HEADERS: RefCell<MultiHeaders<()>> =
        RefCell::new(MultiHeaders::preallocate(BATCH, None));
}

/// What a link did, over all its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpFrameCounts {
    /// Messages handed to the kernel in full.
    pub frames_sent: u64,
    /// Payload bytes sent, straight from pages.
    pub payload_bytes_sent: u64,
    /// Datagrams handed to the kernel.
    pub datagrams_sent: u64,
    /// Calls that sent some.
    pub sends: u64,
    /// Calls at which the kernel took no more for now.
    pub sends_blocked: u64,
    /// Calls that the system refused otherwise: nobody listens, no way to the host.
    pub send_errors: u64,
    /// Datagrams given up since they were refused twice; the receiver finds them lost.
    pub datagrams_unsent: u64,
    /// Messages that came whole.
    pub frames_received: u64,
    /// Payload bytes that came, straight into pages.
    pub payload_bytes_received: u64,
    /// Datagrams that came, whatever they were.
    pub datagrams_received: u64,
    /// Calls that received some.
    pub receives: u64,
    /// Calls that the system refused: the peer did not listen.
    pub receive_errors: u64,
    /// Datagrams that did not come, by the numbers; damaged ones are among them.
    pub datagrams_lost: u64,
    /// Datagrams that came behind later ones, and were not lost after all.
    pub datagrams_late: u64,
    /// Datagrams that came again; dropped.
    pub datagrams_repeated: u64,
    /// Datagrams that are cut, damaged, or of somebody else; dropped.
    pub datagrams_bad: u64,
    /// Datagrams that the kernel dropped for want of room, as of the last one that told it.
    pub kernel_drops: u64,
    /// Fragments whose payload did not have the CRC that its message names, or did not come;
    /// dropped.
    pub payloads_damaged: u64,
    /// Fragments that were given up before they were whole, to make room.
    pub fragments_given_up: u64,
    /// Pieces of a fragment that were here already, since it was sent again.
    pub pieces_repeated: u64,
    /// Times at which nothing was received for want of free pages.
    pub waits_for_pages: u64,
    /// Messages that name another sender than the unit at the other end; dropped.
    pub strangers: u64,
    /// The smallest of the sockets' receive buffers in force, as the kernel counts them: its own
    /// overhead included.
    pub receive_buffer_bytes: u64,
}

/// The way to one unit.
struct Peer {
    unit: UnitId,
    /// `None` once it is lost.
    socket: Option<UdpSocket>,
    sending: Sending,
    numbers: DatagramNumbers,
    partials: PartialFragments,
    /// The kernel's count of drops at this socket, when it was last told.
    kernel_drops: u32,
}

/// One unit's sockets to its peers.
pub struct UdpFrameLink {
    peers: Vec<Peer>,
    /// The pools whose pages fragments are sent from.
    sent_from: Vec<PagePool>,
    /// Pages of a fragment between its pool and its datagrams.
    held: VecDeque<(PageReader, usize)>,
    pages: Option<ReceivePages>,
    buffer_bytes: usize,
    /// How much a shaper lets out through a new socket, and the send buffer that it asks for.
    allowance: Allowance,
    send_buffer_bytes: Option<usize>,
    /// What came together, of whom, and which words of the last opened datagram are not taken.
    receiving: Receiving,
    of_peer: usize,
    rest: Range<usize>,
    /// Where the next look for datagrams begins.
    turn: usize,
    /// Words of the message that [`FrameLink::poll`] shows.
    current: Option<MessageWords>,
    counts: UdpFrameCounts,
}

impl UdpFrameLink {
    /// A link without peers, whose sockets are to have buffers of so many bytes, as far as the system
    /// allows. Fragments are sent from `sent_from`, each from the pool that it names or from the
    /// only one, and received into `pages`; a unit that does neither needs none.
    pub fn new(
        sent_from: impl IntoIterator<Item = PagePool>,
        pages: Option<ReceivePages>,
        buffer_bytes: usize,
    ) -> Self {
        Self {
            peers: Vec::new(),
            sent_from: sent_from.into_iter().collect(),
            held: VecDeque::with_capacity(FRAGMENT_PAGES_MAX),
            pages,
            buffer_bytes,
            allowance: Allowance::new(false),
            send_buffer_bytes: None,
            receiving: Receiving::new(),
            of_peer: 0,
            rest: 0..0,
            turn: 0,
            current: None,
            counts: UdpFrameCounts::default(),
        }
    }

    /// Lets payload out only by [`UdpFrameLink::allow`], through sockets with send buffers of so many
    /// bytes, or as large as those for receiving.
    pub fn shaped(mut self, send_buffer_bytes: Option<usize>) -> Self {
        self.allowance = Allowance::new(true);
        self.send_buffer_bytes = send_buffer_bytes;
        self
    }

    /// Adds the connected socket to a unit, or replaces the one to its former life.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&mut self, unit: UnitId, socket: UdpSocket) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        let buffer_bytes = set_buffers(&socket, self.buffer_bytes)?;
        if let Some(bytes) = &self.send_buffer_bytes {
            setsockopt(&socket, sockopt::SndBuf, bytes)?;
        }
        let least = match self.counts.receive_buffer_bytes {
            0 => buffer_bytes,
            least => least.min(buffer_bytes),
        };
        self.counts.receive_buffer_bytes = least;
        self.lose(unit);
        let peer = Peer {
            unit,
            socket: Some(socket),
            sending: Sending::new(self.allowance),
            numbers: DatagramNumbers::new(),
            partials: PartialFragments::new(),
            kernel_drops: 0,
        };
        match self.peers.iter().position(|peer| peer.unit == unit) {
            Some(at) => {
                if at == self.of_peer {
                    // What is left of the batch has numbers of the former socket.
                    self.receiving.clear();
                    self.rest = 0..0;
                }
                self.peers[at] = peer;
            }
            None => self.peers.push(peer),
        }
        Ok(())
    }

    /// A unit is gone: messages to it are dropped, what came of it is still taken.
    pub fn lose(&mut self, unit: UnitId) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.unit == unit) else {
            return;
        };
        peer.socket = None;
        peer.sending.clear();
        if let Some(pages) = &mut self.pages {
            while peer.partials.give_up_oldest(pages, &mut self.counts) {}
        }
    }

    /// The pages that fragments are received into.
    pub fn pages_mut(&mut self) -> Option<&mut ReceivePages> {
        self.pages.as_mut()
    }

    /// Hands the kernel as much as it takes. Call it in each duty cycle: what is sent is held back
    /// to go out together.
    pub fn flush(&mut self) {
        for peer in &mut self.peers {
            if let Some(socket) = &peer.socket {
                peer.sending.flush(socket, &mut self.counts);
            }
        }
    }

    /// As [`UdpFrameLink::flush`], to one unit.
    pub fn flush_to(&mut self, unit: UnitId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.unit == unit)
            && let Some(socket) = &peer.socket
        {
            peer.sending.flush(socket, &mut self.counts);
        }
    }

    /// Lets so many bytes of the payload that waits for a unit go out, if it is [`Self::shaped`]; a
    /// datagram goes with its last byte.
    pub fn allow(&mut self, unit: UnitId, bytes: u32) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.unit == unit) {
            peer.sending.allow(bytes);
        }
    }

    /// Whether the kernel has all that may go out to a unit; of one that is gone, always.
    pub fn is_block_taken(&self, unit: UnitId) -> bool {
        let peer = self.peers.iter().find(|peer| peer.unit == unit);
        peer.is_none_or(|peer| peer.socket.is_none() || peer.sending.is_block_taken())
    }

    /// Whether the kernel has everything.
    pub fn is_flushed(&self) -> bool {
        self.peers.iter().all(|peer| peer.sending.is_empty())
    }

    /// What it did.
    pub fn counts(&self) -> &UdpFrameCounts {
        &self.counts
    }

    /// As [`FrameLink::try_send`], with the message as it is.
    ///
    /// # Errors
    /// [`LinkFull`].
    pub fn send(&mut self, outgoing: &Outgoing) -> Result<(), LinkFull> {
        let words = outgoing.envelope.to_words();
        self.send_words(outgoing.to, &words, &outgoing.envelope)
    }

    fn send_words(
        &mut self,
        to: UnitId,
        words: &[u32],
        envelope: &Envelope,
    ) -> Result<(), LinkFull> {
        let peer = self.peers.iter_mut().find(|peer| peer.unit == to);
        let Some((peer, socket)) = peer.and_then(
            |Peer {
                 socket, sending, ..
             }| Some((sending, socket.as_ref()?)),
        ) else {
            return Ok(());
        };
        if !peer.has_room() {
            peer.flush(socket, &mut self.counts);
        }
        if !peer.has_room() {
            return Err(LinkFull { to });
        }
        let fragment = fragment_of(envelope)
            .and_then(|fragment| Some((pool_of(&self.sent_from, fragment.pool)?, fragment)));
        self.held.clear();
        let payload = fragment.map_or(0, |(pool, fragment)| {
            hold_pages(pool, fragment, &mut self.held)
        });
        match payload {
            // So goes a fragment whose pages are gone, too; the receiver drops it.
            0 => peer.push(words),
            _ => peer.push_fragment(words, self.held.drain(..)),
        }
        Ok(())
    }

    /// The next message that has come. One that names another sender than its peer is dropped.
    pub fn take(&mut self) -> Option<Envelope> {
        loop {
            if let Some(envelope) = self.next_in_datagram() {
                return Some(envelope);
            }
            if self.receiving.has_more() {
                if let Some(envelope) = self.open_next() {
                    return Some(envelope);
                }
            } else if !self.receive() {
                return None;
            }
        }
    }

    /// The next message of the datagram that is open.
    fn next_in_datagram(&mut self) -> Option<Envelope> {
        while !self.rest.is_empty() {
            let mut rest = &self.receiving.words()[self.rest.clone()];
            let message = next_message(&mut rest);
            let envelope = message.map(Envelope::parse);
            self.rest.start = self.rest.end - rest.len();
            let Some(Ok(mut envelope)) = envelope else {
                // Only a peer of another program sends what is no message.
                self.counts.datagrams_bad += 1;
                self.rest = 0..0;
                return None;
            };
            if envelope.sender != self.peers[self.of_peer].unit {
                self.counts.strangers += 1;
                continue;
            }
            if let BuilderMessage::FragmentData { fragment, .. } = &mut envelope.message {
                if fragment.words > 0 {
                    self.counts.payloads_damaged += 1;
                    continue;
                }
                // They were the sender's.
                fragment.pages.clear();
                fragment.pool = self.pages.as_ref().map_or(0, ReceivePages::index);
            }
            self.counts.frames_received += 1;
            return Some(envelope);
        }
        None
    }

    /// Opens the next datagram of the batch; the message of a fragment that is whole with it.
    fn open_next(&mut self) -> Option<Envelope> {
        let Some(head) = self.receiving.open_next() else {
            self.counts.datagrams_bad += 1;
            return None;
        };
        let peer = &mut self.peers[self.of_peer];
        match peer.numbers.note(head.number) {
            Arrival::InOrder { missing } => self.counts.datagrams_lost += u64::from(missing),
            Arrival::Late => {
                self.counts.datagrams_late += 1;
                self.counts.datagrams_lost = self.counts.datagrams_lost.saturating_sub(1);
            }
            Arrival::Repeated => {
                self.counts.datagrams_repeated += 1;
                return None;
            }
        }
        match head.piece {
            Some(piece) => self.take_piece(&head, piece),
            None => {
                self.rest = HEAD_WORDS..HEAD_WORDS + head.message_words;
                None
            }
        }
    }

    /// Takes a piece of a fragment in its page; the fragment's message, if it is whole now.
    fn take_piece(&mut self, head: &DatagramHead, piece: Piece) -> Option<Envelope> {
        let mut rest = &self.receiving.words()[HEAD_WORDS..HEAD_WORDS + head.message_words];
        let envelope = next_message(&mut rest).map(Envelope::parse);
        let page_words = self
            .pages
            .as_ref()
            .map_or(1, |pages| pages.pool().page_words());
        let (Some(Ok(mut envelope)), Some(pages)) = (envelope, &mut self.pages) else {
            self.counts.datagrams_bad += 1;
            return None;
        };
        let peer = &mut self.peers[self.of_peer];
        if envelope.sender != peer.unit {
            self.counts.strangers += 1;
            return None;
        }
        let BuilderMessage::FragmentData { trigger, fragment } = &mut envelope.message else {
            self.counts.datagrams_bad += 1;
            return None;
        };
        if !is_piece_of(piece, fragment.words as usize, page_words) {
            self.counts.datagrams_bad += 1;
            return None;
        }
        let page = self.receiving.take_page()?;
        let key = FragmentKey {
            trigger: *trigger,
            source: fragment.source,
            words: fragment.words,
            crc: fragment.known_crc(),
            pieces: piece.count,
        };
        let whole = match piece.count {
            1 => whole_in(page, piece.words, key.crc),
            _ => (peer.partials).place(key, piece, page, pages, &mut self.counts)?,
        };
        name_pages(fragment, whole, pages, &mut self.counts).then_some(envelope)
    }

    /// Receives what is there of the next peer that has sent something; false when none has.
    fn receive(&mut self) -> bool {
        self.rest = 0..0;
        let mut with_pages = self.set_aside();
        if with_pages == 0 && self.give_up_one() {
            with_pages = self.set_aside();
        }
        let count = self.peers.len();
        for n in 0..count {
            let at = (self.turn + n) % count;
            let peer = &mut self.peers[at];
            let Some(socket) = &peer.socket else {
                continue;
            };
            let has_pages = self.pages.is_some() && peer.unit.kind == UnitKind::Readout;
            let most = if has_pages { with_pages } else { BATCH };
            if most == 0 {
                self.counts.waits_for_pages += 1;
                continue;
            }
            let (drops, counts) = (&mut peer.kernel_drops, &mut self.counts);
            if self
                .receiving
                .receive(socket, most, has_pages, drops, counts)
            {
                self.of_peer = at;
                self.turn = at + 1;
                return true;
            }
        }
        false
    }

    /// Sets pages aside for a batch; how many datagrams they are enough for.
    fn set_aside(&mut self) -> usize {
        let pages = self.pages.as_mut();
        pages.map_or(0, |pages| self.receiving.set_aside(pages))
    }

    /// Gives up the oldest fragment of a peer that has one, so that others have pages; false when
    /// there is none.
    fn give_up_one(&mut self) -> bool {
        let Some(pages) = &mut self.pages else {
            return false;
        };
        let mut partials = self.peers.iter_mut().map(|peer| &mut peer.partials);
        partials.any(|partials| partials.give_up_oldest(pages, &mut self.counts))
    }
}

/// Sets both buffers of a socket; returns the bytes of the receive buffer in force. Beyond the
/// system's limit (`net.core.rmem_max`) they go only where the program may administer the network.
fn set_buffers(socket: &UdpSocket, bytes: usize) -> io::Result<u64> {
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &bytes)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &bytes).is_err() {
        setsockopt(socket, sockopt::SndBuf, &bytes)?;
    }
    Ok(getsockopt(socket, sockopt::RcvBuf)? as u64)
}

/// Whether a fragment of so many words has such a piece: each page of the sender is one, and its
/// pages are as large as those of the receiver.
fn is_piece_of(piece: Piece, fragment_words: usize, page_words: usize) -> bool {
    let words = fragment_words.saturating_sub(piece.index * page_words);
    piece.count == fragment_words.div_ceil(page_words) && piece.words == words.min(page_words)
}

/// A fragment of one page, with the CRC that its message names.
fn whole_in(page: PageWriter, words: usize, crc: Option<u32>) -> WholePayload {
    let is_damaged = crc.is_some_and(|crc| crc != crc32c(&page[..words]));
    WholePayload {
        pages: [page.finish().0].into_iter().collect(),
        is_damaged,
    }
}

/// Names the pages of the payload in its message; false when it is damaged, and dropped.
fn name_pages(
    fragment: &mut FragmentDescriptor,
    whole: WholePayload,
    pages: &mut ReceivePages,
    counts: &mut UdpFrameCounts,
) -> bool {
    if whole.is_damaged {
        counts.payloads_damaged += 1;
        for page in whole.pages {
            // Filled by us and named to nobody.
            let _kept = pages.give_back(page);
        }
        return false;
    }
    counts.frames_received += 1;
    counts.payload_bytes_received += u64::from(fragment.words) * 4;
    fragment.pool = pages.index();
    fragment.pages = whole.pages;
    true
}

impl FrameLink for UdpFrameLink {
    /// A message to a unit that is lost is dropped, and so are words that are no message.
    fn try_send(&mut self, to: UnitId, words: &[u32]) -> Result<(), LinkFull> {
        match Envelope::parse(words) {
            Ok(envelope) if words.len() <= MESSAGE_WORDS_MAX => {
                self.send_words(to, words, &envelope)
            }
            _ => Ok(()),
        }
    }

    fn poll(&mut self) -> Option<&[u32]> {
        if self.current.is_none() {
            self.current = Some(self.take()?.to_words());
        }
        self.current.as_ref().map(MessageWords::as_slice)
    }

    fn consume(&mut self) {
        self.current = None;
    }
}

#[cfg(test)]
mod tests;
