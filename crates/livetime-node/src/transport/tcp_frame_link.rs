//! Builder messages over TCP: vectored writes from pages, reads into pages.
//!
//! ```text
//! word 0  31:8 0x4C4601 | 7:0 messages in the batch, 1 to 128
//!      1  words of all messages, with their two words in front
//!      2  CRC-32C over words 0, 1 and the messages
//!      .. per message: its words, words of its payload (0 but for a fragment), the message
//!      .. the payloads in the same order
//! ```
//! What is sent between two [`TcpFrameLink::flush`] goes out as a batch: one `writev`, and at the
//! other end two or three reads, or one where no payload comes, whatever the number of messages;
//! `docs/formats/message-batch.md` says more. The receiver puts the payload into pages
//! of its own pool and names those in the message; the fragment's own CRC-32C guards them, where its
//! link is not trusted ([`FragmentDescriptor::known_crc`]). Without free pages it reads no further,
//! TCP stops the sender, and [`FrameLink::try_send`] says that the link is full. Words that are no
//! batch end their stream: nothing behind them can be believed. No byte of payload is copied but by
//! the kernel, unless it comes where messages alone came before, and nothing is allocated after the
//! start.
//!
//! [`FragmentDescriptor::known_crc`]: livetime_wire::message::FragmentDescriptor::known_crc

use std::ffi::OsString;
use std::io;
use std::net::TcpStream;

use livetime_builder::{FrameLink, LinkFull, Outgoing};
use livetime_shm::PagePool;
use livetime_wire::fragment_message::FragmentMessage;
use livetime_wire::message::{Envelope, MESSAGE_WORDS_MAX, MessageWords};
use livetime_wire::{DurationNs, RunNs, UnitId};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};

mod receiving;
mod sending;

use super::allowance::Allowance;
use super::receive_pages::ReceivePages;
use receiving::Receiving;
use sending::{Sending, batches_for};
pub(super) use sending::{fragment_of, hold_pages};

/// Upper 24 bits of word 0; the last byte of them is the version.
const MAGIC: u32 = 0x4C46_0100;
/// Words before the messages.
const HEAD_WORDS: usize = 3;
/// Most messages of a batch. One batch is written while another is gathered, so twice as many wait
/// while the kernel takes no more, or as many as [`TcpFrameLink::with_room`] says.
const FRAMES_MAX: usize = 128;
/// Most pages that one stream sets aside for what comes.
pub const STREAM_PAGES_MAX: usize = 64;

/// What a link did, over all its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpFrameCounts {
    /// Messages handed to the kernel in full.
    pub frames_sent: u64,
    /// Calls of `writev`.
    pub writes: u64,
    /// Calls of `read` and `readv`.
    pub reads: u64,
    /// Bytes of messages sent, with the heads of their batches.
    pub message_bytes_sent: u64,
    /// Payload bytes sent, straight from pages.
    pub payload_bytes_sent: u64,
    /// Messages that came whole.
    pub frames_received: u64,
    /// Payload bytes that came into pages.
    pub payload_bytes_received: u64,
    /// Payload bytes that came behind messages where none was expected, and were copied into pages.
    pub payload_bytes_copied: u64,
    /// Fragments whose payload did not have the CRC that its message names, or did not come;
    /// dropped, and asked for again by the builder unit.
    pub payloads_damaged: u64,
    /// Times at which a fragment waited for free pages.
    pub waits_for_pages: u64,
    /// Messages that name another sender than the unit at the other end; dropped.
    pub strangers: u64,
    /// Streams that ended, in whatever way.
    pub streams_ended: u64,
}

/// A stream to one unit.
struct Peer {
    unit: UnitId,
    /// `None` once it has ended.
    stream: Option<TcpStream>,
    /// When it is to be told that it has ended by itself; `None` unless it has.
    cut_due: Option<RunNs>,
    sending: Sending,
    receiving: Receiving,
}

/// One unit's streams to its peers.
pub struct TcpFrameLink {
    peers: Vec<Peer>,
    /// The pools whose pages fragments are sent from.
    sent_from: Vec<PagePool>,
    pages: Option<ReceivePages>,
    /// Whether a stream ends with the first payload that is damaged.
    ends_with_damage: bool,
    /// How much a shaper lets out on a new stream, and the send buffer that it asks for.
    allowance: Allowance,
    send_buffer_bytes: Option<usize>,
    /// Full batches that may wait on a new stream.
    batches: usize,
    /// Where the next look for a message begins.
    turn: usize,
    /// Words of the message that [`FrameLink::poll`] shows, and whose it is.
    current: Option<(usize, MessageWords)>,
    counts: TcpFrameCounts,
}

impl TcpFrameLink {
    /// A link without streams. Fragments are sent from `sent_from`, each from the pool that it names
    /// or from the only one, and received into `pages`; a unit that does neither needs none.
    pub fn new(sent_from: impl IntoIterator<Item = PagePool>, pages: Option<ReceivePages>) -> Self {
        Self {
            peers: Vec::new(),
            sent_from: sent_from.into_iter().collect(),
            pages,
            ends_with_damage: false,
            allowance: Allowance::new(false),
            send_buffer_bytes: None,
            batches: 1,
            turn: 0,
            current: None,
            counts: TcpFrameCounts::default(),
        }
    }

    /// Ends a stream at the first payload that is damaged, where nobody asks for it again.
    pub fn ending_with_damage(mut self) -> Self {
        self.ends_with_damage = true;
        self
    }

    /// Lets payload out only by [`TcpFrameLink::allow`], over streams with send buffers of so many
    /// bytes, or as large as the system likes.
    pub fn shaped(mut self, send_buffer_bytes: Option<usize>) -> Self {
        self.allowance = Allowance::new(true);
        self.send_buffer_bytes = send_buffer_bytes;
        self
    }

    /// Has room on each new stream for so many messages with fragments of so many pages (8192 small ones
    /// at most), whatever the kernel takes: with as many as may be on their way to a unit, one that does
    /// not read keeps no message to another waiting.
    pub fn with_room(mut self, messages: u64, pages: u64) -> Self {
        self.batches = batches_for(messages, pages);
        self
    }

    /// Adds the stream to a unit, or replaces the one to its former life, with small messages sent
    /// at once and the congestion control of that name, such as `"reno"`; returns the one in force,
    /// for the record.
    ///
    /// # Errors
    /// What the system says; a congestion control that it does not have or allow is one.
    pub fn add(
        &mut self,
        unit: UnitId,
        stream: TcpStream,
        congestion: Option<&str>,
    ) -> io::Result<String> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let name = set_congestion(&stream, congestion)?;
        if let Some(bytes) = &self.send_buffer_bytes {
            setsockopt(&stream, sockopt::SndBuf, bytes)?;
        }
        self.lose(unit);
        match self.peers.iter_mut().find(|peer| peer.unit == unit) {
            Some(peer) => {
                peer.stream = Some(stream);
                peer.cut_due = None;
                // What came of the stream before and was not taken is asked for again.
                if let Some(pages) = &mut self.pages {
                    peer.receiving.drop_untaken(pages);
                }
                peer.receiving = Receiving::new(self.pages.is_some());
            }
            None => self.peers.push(Peer {
                unit,
                stream: Some(stream),
                cut_due: None,
                sending: Sending::new(self.allowance, self.batches),
                receiving: Receiving::new(self.pages.is_some()),
            }),
        }
        Ok(name)
    }

    /// A unit is gone: messages to it are dropped, what came of it is still taken.
    pub fn lose(&mut self, unit: UnitId) {
        if let Some(at) = self.place_of(unit) {
            self.end(at);
            self.peers[at].cut_due = None;
        }
    }

    /// The next unit to which a stream has ended by itself, each once a second until another stream
    /// was added or the unit was lost: it may live.
    #[inline]
    pub fn poll_cut(&mut self, now: RunNs) -> Option<UnitId> {
        if self.counts.streams_ended == 0 {
            return None;
        }
        let is_due = |peer: &&mut Peer| peer.cut_due.is_some_and(|due| due <= now);
        let peer = self.peers.iter_mut().find(is_due)?;
        peer.cut_due = Some(now.after(DurationNs::SECOND));
        Some(peer.unit)
    }

    /// Whether there ever was a stream to a unit.
    pub fn has(&self, unit: UnitId) -> bool {
        self.peers.iter().any(|peer| peer.unit == unit)
    }

    /// Whether the stream to a unit is there.
    pub fn is_open(&self, unit: UnitId) -> bool {
        let peer = self.peers.iter().find(|peer| peer.unit == unit);
        peer.is_some_and(|peer| peer.stream.is_some())
    }

    /// The pages that fragments are received into.
    pub fn pages_mut(&mut self) -> Option<&mut ReceivePages> {
        self.pages.as_mut()
    }

    /// Hands the kernel as much as it takes. Call it in each duty cycle: what is sent is held back
    /// to go out in one `writev`.
    pub fn flush(&mut self) {
        for at in 0..self.peers.len() {
            self.flush_peer(at);
        }
    }

    /// As [`TcpFrameLink::flush`], to one unit.
    pub fn flush_to(&mut self, unit: UnitId) {
        if let Some(at) = self.place_of(unit) {
            self.flush_peer(at);
        }
    }

    /// Lets so many bytes of the payload that waits for a unit go out, if it is [`Self::shaped`].
    pub fn allow(&mut self, unit: UnitId, bytes: u32) {
        if let Some(at) = self.place_of(unit) {
            self.peers[at].sending.allow(bytes);
        }
    }

    /// Whether the kernel has all that may go out to a unit; of one that is gone, always.
    pub fn is_block_taken(&self, unit: UnitId) -> bool {
        let peer = self.place_of(unit).map(|at| &self.peers[at]);
        peer.is_none_or(|peer| peer.stream.is_none() || peer.sending.is_block_taken())
    }

    fn place_of(&self, unit: UnitId) -> Option<usize> {
        self.peers.iter().position(|peer| peer.unit == unit)
    }

    fn flush_peer(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        if let Some(stream) = &mut peer.stream
            && peer.sending.flush(stream, &mut self.counts).is_err()
        {
            self.end(at);
        }
    }

    /// Whether a message to a unit would be taken now; one to a unit that is gone always is.
    pub fn has_room(&mut self, to: UnitId) -> bool {
        let Some(at) = self.place_of(to) else {
            return true;
        };
        if self.peers[at].sending.is_batch_full() {
            self.flush_peer(at);
        }
        let peer = &self.peers[at];
        peer.stream.is_none() || peer.sending.has_room()
    }

    /// Whether a message has come that was not taken.
    pub fn has_message(&self) -> bool {
        let mut peers = self.peers.iter();
        peers.any(|peer| peer.receiving.has_message())
    }

    /// Whether the kernel has everything.
    pub fn is_flushed(&self) -> bool {
        self.peers.iter().all(|peer| peer.sending.is_empty())
    }

    /// Whether the kernel has everything that goes to a unit.
    pub fn is_flushed_to(&self, unit: UnitId) -> bool {
        let mut peers = self.peers.iter();
        let peer = peers.find(|peer| peer.unit == unit);
        peer.is_none_or(|peer| peer.sending.is_empty())
    }

    /// What it did.
    pub fn counts(&self) -> &TcpFrameCounts {
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
        let Some(at) = self.open_place(to)? else {
            return Ok(());
        };
        let fragment = fragment_of(envelope)
            .and_then(|fragment| Some((pool_of(&self.sent_from, fragment.pool)?, fragment)));
        self.peers[at].sending.push(words, fragment);
        Ok(())
    }

    /// As [`TcpFrameLink::send`], of a fragment that stays on file.
    ///
    /// # Errors
    /// [`LinkFull`].
    pub fn send_fragment(
        &mut self,
        to: UnitId,
        message: &FragmentMessage<'_>,
    ) -> Result<(), LinkFull> {
        let Some(at) = self.open_place(to)? else {
            return Ok(());
        };
        let pool = pool_of(&self.sent_from, message.fragment.pool);
        self.peers[at].sending.push_fragment(message, pool);
        Ok(())
    }

    /// The peer whose stream has room for a message; `None` for one that is gone.
    fn open_place(&mut self, to: UnitId) -> Result<Option<usize>, LinkFull> {
        let Some(at) = self.place_of(to) else {
            return Ok(None);
        };
        if self.peers[at].sending.is_batch_full() {
            self.flush_peer(at);
        }
        let peer = &self.peers[at];
        match (peer.stream.is_some(), peer.sending.has_room()) {
            (false, _) => Ok(None),
            (true, true) => Ok(Some(at)),
            (true, false) => Err(LinkFull { to }),
        }
    }

    /// As [`TcpFrameLink::take_next`], to be kept.
    pub fn take(&mut self) -> Option<Envelope> {
        self.take_next().cloned()
    }

    /// The next message that has come, from each peer in turn. One that names another sender than
    /// its peer is dropped.
    pub fn take_next(&mut self) -> Option<&Envelope> {
        loop {
            let at = self.next_peer()?;
            self.turn = at + 1;
            let peer = &mut self.peers[at];
            if peer.receiving.front()?.sender == peer.unit {
                // Through the list once more: what is returned must not be borrowed where it is not.
                return self.peers[at].receiving.pop();
            }
            self.counts.strangers += 1;
            let fragment = peer.receiving.pop().and_then(fragment_of);
            if let (Some(pages), Some(fragment)) = (&mut self.pages, fragment) {
                for page in &fragment.pages {
                    // Filled by us and named to nobody.
                    let _kept = pages.give_back(*page);
                }
            }
        }
    }

    /// The next peer of whom a message has come. Streams are read only when no message is here, so
    /// that idle ones cost nothing while others are busy; those that were read to their end are left
    /// out once, or until all were asked.
    fn next_peer(&mut self) -> Option<usize> {
        let count = self.peers.len();
        let turn = self.turn;
        let in_turn = (0..count).map(move |n| (turn + n) % count);
        let has_message = |at: &usize| self.peers[*at].receiving.front().is_some();
        if let Some(at) = in_turn.clone().find(has_message) {
            return Some(at);
        }
        for at in in_turn {
            let peer = &mut self.peers[at];
            let Some(stream) = &mut peer.stream else {
                continue;
            };
            if peer.receiving.take_drained() {
                continue;
            }
            let receiving = &mut peer.receiving;
            let damaged = self.counts.payloads_damaged;
            let read = receiving.read(stream, &mut self.pages, &mut self.counts);
            let is_damaged = self.ends_with_damage && self.counts.payloads_damaged > damaged;
            if read.is_err() || is_damaged {
                self.end(at);
            }
            if self.peers[at].receiving.front().is_some() {
                return Some(at);
            }
        }
        for peer in &mut self.peers {
            peer.receiving.take_drained();
        }
        None
    }

    fn end(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        if peer.stream.take().is_some() {
            peer.cut_due = Some(RunNs(0));
            self.counts.streams_ended += 1;
        }
        peer.sending.clear();
        peer.receiving.end(self.pages.as_mut());
    }
}

/// The pool of that index, or the only one.
pub(super) fn pool_of(pools: &[PagePool], index: u16) -> Option<&PagePool> {
    match pools {
        [only] => Some(only),
        all => all.get(usize::from(index)),
    }
}

/// Sets the congestion control of a stream, where one is named; returns the one in force.
///
/// # Errors
/// What the system says; a congestion control that it does not have or allow is one.
pub fn set_congestion(stream: &TcpStream, name: Option<&str>) -> io::Result<String> {
    if let Some(name) = name {
        setsockopt(stream, sockopt::TcpCongestion, &OsString::from(name))?;
    }
    let in_force = getsockopt(stream, sockopt::TcpCongestion)?;
    let in_force = in_force.to_string_lossy();
    Ok(in_force.trim_end_matches('\0').to_owned())
}

impl FrameLink for TcpFrameLink {
    /// A message to a unit whose stream has ended is dropped: that unit is gone. So are words that
    /// are no message.
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
            let at = self.next_peer()?;
            let words = self.peers[at].receiving.front()?.to_words();
            self.current = Some((at, words));
        }
        self.current.as_ref().map(|(_, words)| words.as_slice())
    }

    fn consume(&mut self) {
        if let Some((at, _)) = self.current.take() {
            self.peers[at].receiving.pop();
            self.turn = at + 1;
        }
    }
}

#[cfg(test)]
mod tests;
