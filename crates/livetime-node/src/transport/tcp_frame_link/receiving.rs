//! The other direction of a stream: batches read, their payload straight into pages.
//!
//! Three reads serve a batch: its messages, its payload with the head of the next one behind it,
//! and one that finds nothing more.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::net::TcpStream;

use arrayvec::ArrayVec;
use livetime_shm::PageWriter;
use livetime_wire::crc::Crc32c;
use livetime_wire::message::{
    BuilderMessage, Envelope, FRAGMENT_PAGES_MAX, FragmentDescriptor, MESSAGE_WORDS_MAX,
};
use zerocopy::IntoBytes;

use super::super::receive_pages::ReceivePages;
use super::sending::fragment_of;
use super::{FRAMES_MAX, HEAD_WORDS, MAGIC, SLICES_MAX, TcpFrameCounts};

/// Most words of the messages of a batch.
const TABLE_WORDS_MAX: usize = FRAMES_MAX * (2 + MESSAGE_WORDS_MAX);

/// A page that is being filled.
struct Part {
    page: PageWriter,
    words: usize,
}

/// A message whose payload is to come.
struct Awaited {
    envelope: Envelope,
    /// Words that no page is set aside for yet, and words that are not there yet.
    unplaced: usize,
    missing: usize,
    crc: Crc32c,
    pages: ArrayVec<u32, FRAGMENT_PAGES_MAX>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    Table,
    Payload,
}

/// What comes in on one stream.
pub(super) struct Receiving {
    stage: Stage,
    head: [u32; HEAD_WORDS],
    /// Bytes of the head that are here.
    head_bytes: usize,
    table: Vec<u32>,
    table_bytes: usize,
    /// Messages of the batch, in order; the first ones may be whole.
    awaited: VecDeque<Awaited>,
    parts: VecDeque<Part>,
    /// Bytes of the first part that are here.
    part_bytes: usize,
    /// Whole messages.
    ready: VecDeque<Envelope>,
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
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Head,
            head: [0; HEAD_WORDS],
            head_bytes: 0,
            table: vec![0; TABLE_WORDS_MAX],
            table_bytes: 0,
            awaited: VecDeque::with_capacity(FRAMES_MAX),
            parts: VecDeque::with_capacity(SLICES_MAX),
            part_bytes: 0,
            ready: VecDeque::with_capacity(FRAMES_MAX),
        }
    }

    /// The oldest whole message.
    pub(super) fn front(&self) -> Option<&Envelope> {
        self.ready.front()
    }

    pub(super) fn pop(&mut self) -> Option<Envelope> {
        self.ready.pop_front()
    }

    /// Nothing more comes: gives the pages of what is not whole back.
    pub(super) fn end(&mut self, pages: Option<&mut ReceivePages>) {
        if let Some(pages) = pages {
            for part in self.parts.drain(..) {
                pages.give_back_unfilled(part.page);
            }
            for page in self.awaited.iter().flat_map(|awaited| &awaited.pages) {
                // Filled by us and named to nobody.
                let _kept = pages.give_back(*page);
            }
        }
        self.awaited.clear();
        (self.stage, self.head_bytes, self.part_bytes) = (Stage::Head, 0, 0);
    }

    /// Reads until a message is whole or nothing more is there.
    pub(super) fn read(
        &mut self,
        stream: &mut TcpStream,
        pages: &mut Option<ReceivePages>,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<()> {
        while self.ready.is_empty() {
            let went_on = match self.stage {
                Stage::Head => self.read_head(stream, counts)?,
                Stage::Table => self.read_table(stream, pages.as_ref(), counts)?,
                Stage::Payload => {
                    let pages = pages
                        .as_mut()
                        .ok_or_else(|| broken("payload without pages for it"))?;
                    self.read_payload(stream, pages, counts)?
                }
            };
            if !went_on {
                break;
            }
        }
        Ok(())
    }

    fn read_head(
        &mut self,
        stream: &mut TcpStream,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<bool> {
        if self.head_bytes < 4 * HEAD_WORDS {
            counts.reads += 1;
            let left = &mut self.head.as_mut_bytes()[self.head_bytes..];
            let Some(bytes) = brought(stream.read(left))? else {
                return Ok(false);
            };
            self.head_bytes += bytes;
        }
        if self.head_bytes == 4 * HEAD_WORDS {
            let frames = (self.head[0] ^ MAGIC) as usize;
            let words = self.head[1] as usize;
            if !(1..=FRAMES_MAX).contains(&frames) || words > frames * (2 + MESSAGE_WORDS_MAX) {
                return Err(broken("no batch of messages"));
            }
            (self.stage, self.table_bytes) = (Stage::Table, 0);
        }
        Ok(true)
    }

    fn read_table(
        &mut self,
        stream: &mut TcpStream,
        pages: Option<&ReceivePages>,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<bool> {
        let words = self.head[1] as usize;
        let left = &mut self.table[..words].as_mut_bytes()[self.table_bytes..];
        if !left.is_empty() {
            counts.reads += 1;
            let Some(bytes) = brought(stream.read(left))? else {
                return Ok(false);
            };
            self.table_bytes += bytes;
        }
        if self.table_bytes == 4 * words {
            self.take_table(pages)?;
            self.head_bytes = 0;
            self.stage = Stage::Payload;
            self.settle(counts);
        }
        Ok(true)
    }

    /// The messages of a batch are here: checks them.
    fn take_table(&mut self, pages: Option<&ReceivePages>) -> io::Result<()> {
        let table = &self.table[..self.head[1] as usize];
        let mut crc = Crc32c::new();
        crc.update(&self.head[..2]);
        crc.update(table);
        if crc.value() != self.head[2] {
            return Err(broken("batch with a wrong CRC"));
        }
        let page_words = pages.map_or(0, |pages| pages.pool().page_words());
        let mut rest = table;
        for _ in 0..self.head[0] ^ MAGIC {
            let [words, payload, message @ ..] = rest else {
                return Err(broken("batch of fewer messages than named"));
            };
            let (words, payload) = (*words as usize, *payload as usize);
            if words > message.len() || payload > page_words * FRAGMENT_PAGES_MAX {
                return Err(broken("message or payload that does not fit"));
            }
            let envelope = Envelope::parse(&message[..words]);
            let envelope = envelope.map_err(|_| broken("no message"))?;
            let named = fragment_of(&envelope).map_or(0, |fragment| fragment.words as usize);
            // A fragment whose pages were gone at the sender comes without payload.
            if payload != 0 && payload != named {
                return Err(broken("payload behind a message that names none"));
            }
            self.awaited.push_back(Awaited {
                envelope,
                unplaced: payload,
                missing: payload,
                crc: Crc32c::new(),
                pages: ArrayVec::new(),
            });
            rest = &message[words..];
        }
        match rest.is_empty() {
            true => Ok(()),
            false => Err(broken("words behind the last message")),
        }
    }

    /// Sets pages aside for the payload that comes next; false when none is free and none is set
    /// aside.
    fn place(&mut self, pages: &mut ReceivePages, counts: &mut TcpFrameCounts) -> bool {
        let unplaced = self.awaited.iter_mut().filter(|next| next.unplaced > 0);
        'place: for next in unplaced {
            while next.unplaced > 0 {
                if self.parts.len() + 1 >= SLICES_MAX {
                    break 'place;
                }
                let Some(page) = pages.take() else {
                    counts.waits_for_pages += 1;
                    break 'place;
                };
                let words = next.unplaced.min(page.len());
                next.unplaced -= words;
                self.parts.push_back(Part { page, words });
            }
        }
        !self.parts.is_empty()
    }

    fn read_payload(
        &mut self,
        stream: &mut TcpStream,
        pages: &mut ReceivePages,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<bool> {
        if !self.place(pages, counts) {
            return Ok(false);
        }
        counts.reads += 1;
        let Some(mut bytes) = brought(self.fill_parts(stream))? else {
            return Ok(false);
        };
        while let Some(first) = self.parts.front() {
            let left = 4 * first.words - self.part_bytes;
            if bytes < left {
                self.part_bytes += bytes;
                return Ok(true);
            }
            bytes -= left;
            self.part_bytes = 0;
            self.end_part(pages, counts);
        }
        // What is left is of the next batch's head.
        self.head_bytes = bytes;
        self.settle(counts);
        Ok(true)
    }

    /// Reads into the parts and, if all pages of the batch are set aside, the next batch's head.
    fn fill_parts(&mut self, stream: &mut TcpStream) -> io::Result<usize> {
        let mut slices = ArrayVec::<IoSliceMut<'_>, SLICES_MAX>::new();
        let mut skip = self.part_bytes;
        for part in &mut self.parts {
            let bytes = part.page[..part.words].as_mut_bytes();
            slices.push(IoSliceMut::new(&mut bytes[skip..]));
            skip = 0;
        }
        if self.awaited.iter().all(|next| next.unplaced == 0) {
            slices.push(IoSliceMut::new(self.head.as_mut_bytes()));
        }
        stream.read_vectored(&mut slices)
    }

    /// The first part is full: it belongs to the first message that misses words.
    fn end_part(&mut self, pages: &mut ReceivePages, counts: &mut TcpFrameCounts) {
        let Some(Part { page, words }) = self.parts.pop_front() else {
            return;
        };
        let next = self.awaited.iter_mut().find(|next| next.missing > 0);
        let next = next.expect("pages are set aside for messages that miss words");
        next.crc.update(&page[..words]);
        next.missing -= words;
        next.pages.push(page.finish().0);
        if next.missing == 0 {
            self.deliver(Some(pages), counts);
        }
    }

    /// The payload is complete, or there is none.
    fn settle(&mut self, counts: &mut TcpFrameCounts) {
        self.deliver(None, counts);
        if self.awaited.is_empty() {
            self.stage = Stage::Head;
        }
    }

    /// Hands on the messages at the front that are whole.
    fn deliver(&mut self, mut pages: Option<&mut ReceivePages>, counts: &mut TcpFrameCounts) {
        while self.awaited.front().is_some_and(|next| next.missing == 0)
            && let Some(next) = self.awaited.pop_front()
        {
            counts.frames_received += 1;
            let Awaited {
                mut envelope,
                crc,
                pages: mut filled,
                ..
            } = next;
            if let BuilderMessage::FragmentData { fragment, .. } = &mut envelope.message
                && fragment.words > 0
                && !name_pages(
                    fragment,
                    crc.value(),
                    &mut filled,
                    pages.as_deref_mut(),
                    counts,
                )
            {
                continue;
            }
            self.ready.push_back(envelope);
        }
    }
}

/// Names the pages of the payload in its message; false when it is damaged, and dropped.
fn name_pages(
    fragment: &mut FragmentDescriptor,
    crc: u32,
    filled: &mut ArrayVec<u32, FRAGMENT_PAGES_MAX>,
    pages: Option<&mut ReceivePages>,
    counts: &mut TcpFrameCounts,
) -> bool {
    let Some(pages) = pages else {
        counts.payloads_damaged += 1;
        return false;
    };
    if fragment.crc != crc || filled.is_empty() {
        counts.payloads_damaged += 1;
        for page in filled.drain(..) {
            // Filled by us and named to nobody.
            let _kept = pages.give_back(page);
        }
        return false;
    }
    counts.payload_bytes_received += u64::from(fragment.words) * 4;
    fragment.pool = pages.index();
    fragment.pages = std::mem::take(filled);
    true
}
