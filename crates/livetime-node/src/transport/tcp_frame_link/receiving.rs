//! The other direction of a stream: batches read, their payload straight into pages.
//!
//! Where fragments come, a batch is taken for one like the last: a read brings its head and so many
//! words of messages, another the rest of them where they are more, and one its payload with head and
//! messages of the next one behind it. Where the last batch had no payload, as from builder units and
//! the event manager, one read takes all that is there. Payload that comes behind messages
//! nevertheless is copied out and counted. A read that brings a batch's end and less than it asks for
//! has emptied the stream: what comes next is left for the next duty cycle, and other streams are read
//! meanwhile.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::net::TcpStream;

use arrayvec::ArrayVec;
use livetime_shm::PageWriter;
use livetime_wire::crc::{Crc32c, crc32c};
use livetime_wire::message::{
    BuilderMessage, Envelope, FRAGMENT_PAGES_MAX, FragmentDescriptor, MESSAGE_WORDS_MAX,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{SourceId, TriggerNumber, UnitId};
use zerocopy::IntoBytes;

use super::super::receive_pages::ReceivePages;
use super::sending::fragment_of;
use super::{FRAMES_MAX, HEAD_WORDS, MAGIC, STREAM_PAGES_MAX, TcpFrameCounts};

/// Most words of head and messages of a batch.
const TABLE_WORDS_MAX: usize = HEAD_WORDS + FRAMES_MAX * (2 + MESSAGE_WORDS_MAX);
const HEAD_BYTES: usize = 4 * HEAD_WORDS;
/// Most pieces of one `readv`: pages, and what may be the messages of the next batch.
const SLICES_MAX: usize = STREAM_PAGES_MAX + 1;
/// Payload that one read asks for, or a page if that is more: what was read is checked while it lies
/// in the core's cache, and no more pages wait for what is to come.
const READ_WORDS_MAX: usize = (256 << 10) / 4;

/// A page that is being filled.
struct Part {
    page: PageWriter,
    words: usize,
}

/// A message, and what is to come of its payload.
struct Awaited {
    /// A fragment names those pages here that are full.
    envelope: Envelope,
    /// Words that no page is set aside for yet, and words that are not there yet.
    unplaced: usize,
    missing: usize,
    /// Whether the payload is not what the message says.
    is_damaged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Table,
    Payload,
}

/// What comes in on one stream.
pub(super) struct Receiving {
    stage: Stage,
    /// Head and messages of a batch, and what was read behind them; in the payload's stage, what was
    /// read of it and of the next batch.
    table: Vec<u32>,
    /// Bytes of it that are here.
    table_bytes: usize,
    /// Messages of the batch, in order; those behind the first `messages` are of former batches, and
    /// are written over.
    awaited: Vec<Awaited>,
    messages: usize,
    /// How many of the first ones were taken, are whole, and have pages set aside for all their
    /// payload.
    taken: usize,
    whole: usize,
    placed: usize,
    /// Over what is here of the first message that is not whole, where it takes several pages.
    crc: Crc32c,
    parts: VecDeque<Part>,
    /// Words of all parts, and bytes of the first one that are here.
    parts_words: usize,
    part_bytes: usize,
    /// Whether the next batch is likely to have payload.
    expects_payload: bool,
    /// Bytes of head and messages of the last batch, and of the shorter one of the last two: so many
    /// are asked for together with the payload in front of them.
    last_bytes: usize,
    ahead_bytes: usize,
    /// Whether the last read found the end of what is there, between two batches: of one that is on
    /// its way more comes at any moment, and what it completes is better answered together.
    is_drained: bool,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// What a read brought: its bytes, or `None` when nothing is there.
fn brought(read: io::Result<usize>) -> io::Result<Option<usize>> {
    match read {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

impl Receiving {
    /// Of a stream that may bring payload, or one that brings messages alone.
    pub(super) fn new(expects_payload: bool) -> Self {
        Self {
            stage: Stage::Table,
            table: vec![0; TABLE_WORDS_MAX],
            table_bytes: 0,
            awaited: std::iter::repeat_with(Awaited::vacant)
                .take(FRAMES_MAX)
                .collect(),
            messages: 0,
            taken: 0,
            whole: 0,
            placed: 0,
            crc: Crc32c::new(),
            parts: VecDeque::with_capacity(STREAM_PAGES_MAX),
            parts_words: 0,
            part_bytes: 0,
            expects_payload,
            last_bytes: HEAD_BYTES,
            ahead_bytes: HEAD_BYTES,
            is_drained: false,
        }
    }

    /// Whether a message is here that was not taken.
    pub(super) fn has_message(&self) -> bool {
        self.taken < self.whole || self.has_batch()
    }

    /// The oldest whole message.
    #[inline]
    pub(super) fn front(&self) -> Option<&Envelope> {
        match self.taken < self.whole {
            true => self.awaited.get(self.taken).map(|next| &next.envelope),
            false => None,
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<&Envelope> {
        if self.taken == self.whole {
            return None;
        }
        self.taken += 1;
        self.awaited.get(self.taken - 1).map(|next| &next.envelope)
    }

    /// Whether a read is likely to find nothing. Says so once, so that a stream is never forgotten
    /// while others are busy.
    #[inline]
    pub(super) fn take_drained(&mut self) -> bool {
        std::mem::take(&mut self.is_drained)
    }

    /// Nothing more comes: gives the pages of what is not whole back.
    pub(super) fn end(&mut self, pages: Option<&mut ReceivePages>) {
        if let Some(pages) = pages {
            for part in self.parts.drain(..) {
                pages.give_back_unfilled(part.page);
            }
            for next in &self.awaited[self.whole..self.messages] {
                give_back(&next.envelope, pages);
            }
        }
        self.messages = self.whole;
        self.placed = self.whole;
        (self.stage, self.table_bytes) = (Stage::Table, 0);
        (self.parts_words, self.part_bytes) = (0, 0);
    }

    /// Nobody takes any more what has come: gives the pages of whole messages back, too.
    pub(super) fn drop_untaken(&mut self, pages: &mut ReceivePages) {
        for next in &self.awaited[self.taken..self.whole] {
            give_back(&next.envelope, pages);
        }
        self.taken = self.whole;
    }

    /// Reads until a message is whole or nothing more is there.
    pub(super) fn read(
        &mut self,
        stream: &mut TcpStream,
        pages: &mut Option<ReceivePages>,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<()> {
        self.is_drained = false;
        while self.taken == self.whole {
            let went_on = match self.stage {
                Stage::Table if self.has_batch() => self.take_batch(pages.as_mut(), counts)?,
                Stage::Table => !self.is_drained && self.read_table(stream, counts)?,
                Stage::Payload => {
                    let pages = pages
                        .as_mut()
                        .ok_or_else(|| broken("payload without pages for it"))?;
                    self.go_on_with_payload(stream, pages, counts)?
                }
            };
            if !went_on {
                break;
            }
        }
        Ok(())
    }

    /// Bytes of head and messages of the batch that is here or coming; of the head until it is here.
    fn batch_bytes(&self) -> usize {
        match self.table_bytes < HEAD_BYTES {
            true => HEAD_BYTES,
            false => HEAD_BYTES + 4 * self.table[1] as usize,
        }
    }

    /// Whether head and messages of a batch are here.
    fn has_batch(&self) -> bool {
        self.stage == Stage::Table && self.table_bytes >= self.batch_bytes()
    }

    /// Reads on in head and messages, and behind them where no payload is expected.
    fn read_table(
        &mut self,
        stream: &mut TcpStream,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<bool> {
        self.check_head()?;
        let until = match self.expects_payload {
            true if self.table_bytes < HEAD_BYTES => self.ahead_bytes,
            true => self.batch_bytes(),
            false => 4 * TABLE_WORDS_MAX,
        };
        let left = &mut self.table.as_mut_bytes()[self.table_bytes..until];
        let asked = left.len();
        counts.reads += 1;
        let bytes = brought(stream.read(left))?;
        self.table_bytes += bytes.unwrap_or(0);
        self.is_drained = bytes.is_none_or(|bytes| bytes < asked);
        self.check_head()?;
        Ok(bytes.is_some())
    }

    /// Whether what is here may be a batch: nothing else of it is believed yet.
    fn check_head(&self) -> io::Result<()> {
        let frames = (self.table[0] ^ MAGIC) as usize;
        let words = self.table[1] as usize;
        let may_be =
            (1..=FRAMES_MAX).contains(&frames) && words <= frames * (2 + MESSAGE_WORDS_MAX);
        match self.table_bytes < HEAD_BYTES || may_be {
            true => Ok(()),
            false => Err(broken("no batch of messages")),
        }
    }

    /// Head and messages of a batch are here, and perhaps more.
    fn take_batch(
        &mut self,
        pages: Option<&mut ReceivePages>,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<bool> {
        self.check_head()?;
        let bytes = self.batch_bytes();
        self.ahead_bytes = bytes.min(self.last_bytes);
        self.last_bytes = bytes;
        (self.taken, self.whole, self.placed, self.messages) = (0, 0, 0, 0);
        let payload_words = self.take_table(pages.as_deref())?;
        self.expects_payload = payload_words > 0;
        self.stage = Stage::Payload;
        self.drop_front(bytes);
        self.deliver(pages, counts);
        Ok(true)
    }

    /// The first bytes of the table are used up.
    fn drop_front(&mut self, bytes: usize) {
        let here = bytes..self.table_bytes;
        self.table.as_mut_bytes().copy_within(here, 0);
        self.table_bytes -= bytes;
    }

    /// The messages of a batch are here: checks them; returns the words of their payload.
    fn take_table(&mut self, pages: Option<&ReceivePages>) -> io::Result<usize> {
        let (head, table) = self.table.split_at(HEAD_WORDS);
        let table = &table[..head[1] as usize];
        let mut crc = Crc32c::new();
        crc.update(&head[..2]);
        crc.update(table);
        if crc.value() != head[2] {
            return Err(broken("batch with a wrong CRC"));
        }
        let page_words = pages.map_or(0, |pages| pages.pool().page_words());
        let index = pages.map_or(0, ReceivePages::index);
        let mut payload_words = 0;
        let mut rest = table;
        for _ in 0..head[0] ^ MAGIC {
            let [words, payload, message @ ..] = rest else {
                return Err(broken("batch of fewer messages than named"));
            };
            let (words, payload) = (*words as usize, *payload as usize);
            if words > message.len() || payload > page_words * FRAGMENT_PAGES_MAX {
                return Err(broken("message or payload that does not fit"));
            }
            self.awaited[self.messages].read(&message[..words], payload, index)?;
            self.messages += 1;
            payload_words += payload;
            rest = &message[words..];
        }
        match rest.is_empty() {
            true => Ok(payload_words),
            false => Err(broken("words behind the last message")),
        }
    }

    /// Sets pages aside for the payload that comes next; false when none is free and none is set
    /// aside.
    fn place(&mut self, pages: &mut ReceivePages, counts: &mut TcpFrameCounts) -> bool {
        self.placed = self.placed.max(self.whole);
        'place: while let Some(next) = self.awaited[..self.messages].get_mut(self.placed) {
            while next.unplaced > 0 {
                if self.parts.len() >= STREAM_PAGES_MAX || self.parts_words >= READ_WORDS_MAX {
                    break 'place;
                }
                let Some(page) = pages.take() else {
                    counts.waits_for_pages += 1;
                    break 'place;
                };
                let words = next.unplaced.min(page.len());
                next.unplaced -= words;
                self.parts_words += words;
                self.parts.push_back(Part { page, words });
            }
            self.placed += 1;
        }
        !self.parts.is_empty()
    }

    /// Takes payload that was read behind messages, or reads more of it.
    fn go_on_with_payload(
        &mut self,
        stream: &mut TcpStream,
        pages: &mut ReceivePages,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<bool> {
        if !self.place(pages, counts) {
            return Ok(false);
        }
        if self.table_bytes > 0 {
            self.copy_payload(pages, counts);
            return Ok(true);
        }
        counts.reads += 1;
        let (bytes, asked) = self.fill_parts(stream)?;
        let Some(bytes) = bytes else {
            return Ok(false);
        };
        // What is left is of the next batch.
        self.table_bytes = self.advance(bytes, pages, counts);
        self.is_drained = self.stage == Stage::Table && bytes < asked;
        Ok(true)
    }

    /// Payload came together with messages: it was not expected.
    fn copy_payload(&mut self, pages: &mut ReceivePages, counts: &mut TcpFrameCounts) {
        let mut from = &self.table.as_bytes()[..self.table_bytes];
        let mut skip = self.part_bytes;
        for part in &mut self.parts {
            let to = &mut part.page[..part.words].as_mut_bytes()[skip..];
            let (now, later) = from.split_at(to.len().min(from.len()));
            to[..now.len()].copy_from_slice(now);
            (from, skip) = (later, 0);
        }
        let bytes = self.table_bytes - from.len();
        counts.payload_bytes_copied += bytes as u64;
        self.advance(bytes, pages, counts);
        self.drop_front(bytes);
    }

    /// Reads into the parts and, if all pages of the batch are set aside, what is likely to be head and
    /// messages of the next batch.
    fn fill_parts(&mut self, stream: &mut TcpStream) -> io::Result<(Option<usize>, usize)> {
        let mut slices = ArrayVec::<IoSliceMut<'_>, SLICES_MAX>::new();
        let mut skip = self.part_bytes;
        for part in &mut self.parts {
            let bytes = part.page[..part.words].as_mut_bytes();
            slices.push(IoSliceMut::new(&mut bytes[skip..]));
            skip = 0;
        }
        let mut asked = 4 * self.parts_words - self.part_bytes;
        if self.placed == self.messages {
            asked += self.ahead_bytes;
            let table = &mut self.table.as_mut_bytes()[..self.ahead_bytes];
            slices.push(IoSliceMut::new(table));
        }
        Ok((brought(stream.read_vectored(&mut slices))?, asked))
    }

    /// So many bytes more are in the parts; returns those behind them.
    fn advance(
        &mut self,
        mut bytes: usize,
        pages: &mut ReceivePages,
        counts: &mut TcpFrameCounts,
    ) -> usize {
        while let Some(first) = self.parts.front() {
            let left = 4 * first.words - self.part_bytes;
            if bytes < left {
                self.part_bytes += bytes;
                return 0;
            }
            bytes -= left;
            self.part_bytes = 0;
            self.end_part(pages, counts);
        }
        bytes
    }

    /// The first part is full: it belongs to the first message that is not whole.
    fn end_part(&mut self, pages: &mut ReceivePages, counts: &mut TcpFrameCounts) {
        let Some(Part { page, words }) = self.parts.pop_front() else {
            return;
        };
        self.parts_words -= words;
        let next = &mut self.awaited[self.whole];
        let BuilderMessage::FragmentData { fragment, .. } = &mut next.envelope.message else {
            unreachable!("only fragments have payload");
        };
        let is_only = fragment.pages.is_empty() && next.missing == words;
        next.missing -= words;
        if let Some(expected) = fragment.known_crc() {
            if !is_only {
                self.crc.update(&page[..words]);
            }
            if next.missing == 0 {
                let crc = match is_only {
                    true => crc32c(&page[..words]),
                    false => std::mem::take(&mut self.crc).value(),
                };
                next.is_damaged = crc != expected;
            }
        }
        fragment.pages.push(page.finish().0);
        if next.missing == 0 {
            self.deliver(Some(pages), counts);
        }
    }

    /// Hands on the messages that are whole, up to the first that is not. Behind the last one the
    /// next batch begins.
    fn deliver(&mut self, mut pages: Option<&mut ReceivePages>, counts: &mut TcpFrameCounts) {
        while let Some(next) = self.awaited[..self.messages].get(self.whole)
            && next.missing == 0
        {
            counts.frames_received += 1;
            if next.is_damaged {
                counts.payloads_damaged += 1;
                if let Some(pages) = &mut pages {
                    give_back(&next.envelope, pages);
                }
                self.awaited[self.whole..self.messages].rotate_left(1);
                self.messages -= 1;
                self.placed = self.placed.saturating_sub(1);
                continue;
            }
            if let Some(fragment) = fragment_of(&next.envelope) {
                counts.payload_bytes_received += u64::from(fragment.words) * 4;
            }
            self.whole += 1;
        }
        if self.whole == self.messages {
            self.stage = Stage::Table;
        }
    }
}

impl Awaited {
    /// Room for a message; most are fragments.
    fn vacant() -> Self {
        Self {
            envelope: Envelope {
                sender: UnitId::EVENT_MANAGER,
                epoch: 0,
                sequence: 0,
                message: BuilderMessage::FragmentData {
                    trigger: TriggerNumber(0),
                    fragment: FragmentDescriptor {
                        source: SourceId(0),
                        pool: 0,
                        words: 0,
                        status: FragmentStatus::GOOD,
                        crc: 0,
                        pages: ArrayVec::new(),
                    },
                },
            },
            unplaced: 0,
            missing: 0,
            is_damaged: false,
        }
    }

    /// Reads a message with so many words of payload behind it, which go into pages of pool `index`.
    fn read(&mut self, words: &[u32], payload: usize, index: u16) -> io::Result<()> {
        let envelope = &mut self.envelope;
        envelope.read(words).map_err(|_| broken("no message"))?;
        let mut named = 0;
        if let BuilderMessage::FragmentData { fragment, .. } = &mut envelope.message {
            named = fragment.words as usize;
            // They were the sender's.
            fragment.pages.clear();
            fragment.pool = index;
        }
        if payload != 0 && payload != named {
            return Err(broken("payload behind a message that names none"));
        }
        (self.unplaced, self.missing) = (payload, payload);
        // A fragment whose pages were gone at the sender comes without payload.
        self.is_damaged = payload != named;
        Ok(())
    }
}

/// Frees the pages of a fragment that is handed to nobody.
fn give_back(envelope: &Envelope, pages: &mut ReceivePages) {
    for page in fragment_of(envelope)
        .iter()
        .flat_map(|fragment| &fragment.pages)
    {
        // Filled by us and named to nobody.
        let _kept = pages.give_back(*page);
    }
}
