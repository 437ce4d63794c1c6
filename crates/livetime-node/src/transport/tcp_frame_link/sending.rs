//! One direction of a stream: messages gathered into batches and written from where they lie.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::TcpStream;

use arrayvec::ArrayVec;
use livetime_shm::{PageIndex, PagePool, PageReader};
use livetime_wire::crc::Crc32c;
use livetime_wire::fragment_message::FragmentMessage;
use livetime_wire::message::{
    BuilderMessage, Envelope, FRAGMENT_PAGES_MAX, FragmentDescriptor, MESSAGE_WORDS_MAX,
};
use zerocopy::IntoBytes;

use super::super::allowance::Allowance;
use super::{FRAMES_MAX, HEAD_WORDS, MAGIC, TcpFrameCounts};

/// Most pages that one batch holds: a few fragments of the most pages, or one small one a frame.
const PAGES_MAX: usize = 4 * FRAMES_MAX;
/// Most batches of a stream that wait while the kernel takes nothing.
const BATCHES_MAX: u64 = 64;
/// Most pieces of one `writev`: a page for each message, and the messages.
const SLICES_MAX: usize = FRAMES_MAX + 1;

/// Messages and the pages of their payload.
struct Batch {
    /// Head and messages.
    table: Vec<u32>,
    /// Held until the kernel has them: whoever answers to a page's payload may free the page.
    pages: VecDeque<(PageReader, usize)>,
    frames: usize,
    payload_bytes: u64,
}

impl Batch {
    fn new() -> Self {
        let mut batch = Self {
            table: Vec::with_capacity(HEAD_WORDS + FRAMES_MAX * (2 + MESSAGE_WORDS_MAX)),
            pages: VecDeque::with_capacity(PAGES_MAX),
            frames: 0,
            payload_bytes: 0,
        };
        batch.clear();
        batch
    }

    fn clear(&mut self) {
        self.table.clear();
        self.table.extend([0; HEAD_WORDS]);
        self.pages.clear();
        self.frames = 0;
        self.payload_bytes = 0;
    }

    fn has_room(&self) -> bool {
        self.frames < FRAMES_MAX && self.pages.len() + FRAGMENT_PAGES_MAX <= PAGES_MAX
    }

    /// Writes the head: nothing is added from here on.
    fn seal(&mut self) {
        self.table[0] = MAGIC | self.frames as u32;
        self.table[1] = (self.table.len() - HEAD_WORDS) as u32;
        let mut crc = Crc32c::new();
        crc.update(&self.table[..2]);
        crc.update(&self.table[HEAD_WORDS..]);
        self.table[2] = crc.value();
    }
}

/// What goes out on one stream: a batch that is being written, those that wait behind it, and one that
/// is being gathered.
pub(super) struct Sending {
    gathering: Batch,
    waiting: VecDeque<Batch>,
    written: Batch,
    /// Empty ones.
    spare: Vec<Batch>,
    /// Bytes of the table, and of the payload's first page, that the kernel has.
    table_bytes: usize,
    page_bytes: usize,
    /// Payload that may be handed to the kernel, where a shaper says how much.
    allowance: Allowance,
}

impl Sending {
    /// With room for so many full batches while the kernel takes nothing, beside one that is being
    /// gathered.
    pub(super) fn new(allowance: Allowance, batches: usize) -> Self {
        let spare = batches.saturating_sub(1);
        Self {
            gathering: Batch::new(),
            waiting: VecDeque::with_capacity(spare),
            written: Batch::new(),
            spare: (0..spare).map(|_| Batch::new()).collect(),
            table_bytes: 0,
            page_bytes: 0,
            allowance,
        }
    }

    pub(super) fn clear(&mut self) {
        self.gathering.clear();
        self.written.clear();
        for mut batch in self.waiting.drain(..) {
            batch.clear();
            self.spare.push(batch);
        }
        (self.table_bytes, self.page_bytes) = (0, 0);
        self.allowance.clear();
    }

    /// Lets so many bytes of payload more go out.
    pub(super) fn allow(&mut self, bytes: u32) {
        self.allowance.allow(bytes.into());
    }

    /// Whether the kernel has all that may go out.
    pub(super) fn is_block_taken(&self) -> bool {
        let is_table_out = self.table_bytes == self.written.table.len() * 4;
        self.gathering.frames == 0
            && self.waiting.is_empty()
            && (self.written.frames == 0 || is_table_out)
            && self.allowance.is_used_up()
    }

    /// Whether a whole batch waits, so that the kernel is to be asked before there are more.
    pub(super) fn is_batch_full(&self) -> bool {
        !self.gathering.has_room()
    }

    pub(super) fn has_room(&self) -> bool {
        self.gathering.has_room() || !self.spare.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gathering.frames == 0 && self.waiting.is_empty() && self.written.frames == 0
    }

    /// The batch that is being gathered, another one if that is full.
    fn open_batch(&mut self) -> &mut Batch {
        if !self.gathering.has_room()
            && let Some(empty) = self.spare.pop()
        {
            let full = std::mem::replace(&mut self.gathering, empty);
            self.waiting.push_back(full);
        }
        &mut self.gathering
    }

    /// Makes the next batch the one that is written; false if there is none.
    fn begin_batch(&mut self) -> bool {
        match self.waiting.pop_front() {
            Some(next) => self.spare.push(std::mem::replace(&mut self.written, next)),
            None if self.gathering.frames == 0 => return false,
            None => std::mem::swap(&mut self.gathering, &mut self.written),
        }
        self.written.seal();
        true
    }

    /// Gathers a message; the pages of its fragment are held until they are sent.
    pub(super) fn push(
        &mut self,
        words: &[u32],
        fragment: Option<(&PagePool, &FragmentDescriptor)>,
    ) {
        let batch = self.open_batch();
        let payload = match fragment {
            Some((pool, fragment)) => hold_pages(pool, fragment, &mut batch.pages),
            None => 0,
        };
        batch.table.extend([words.len() as u32, payload as u32]);
        batch.table.extend_from_slice(words);
        self.count(payload);
    }

    /// As [`Sending::push`], of a fragment that stays on file; without its pool it goes without payload.
    pub(super) fn push_fragment(&mut self, message: &FragmentMessage<'_>, pool: Option<&PagePool>) {
        let batch = self.open_batch();
        let payload = pool.map_or(0, |pool| {
            hold_pages(pool, message.fragment, &mut batch.pages)
        });
        batch.table.extend([message.words() as u32, payload as u32]);
        message.emit(&mut batch.table);
        self.count(payload);
    }

    /// A message with so many words of payload was gathered.
    fn count(&mut self, payload: usize) {
        let bytes = 4 * payload as u64;
        self.gathering.frames += 1;
        self.gathering.payload_bytes += bytes;
        self.allowance.push(bytes);
    }

    /// Adds what is left of the batch that is being written.
    fn add_slices<'a>(&'a self, slices: &mut ArrayVec<IoSlice<'a>, SLICES_MAX>) {
        let table = self.written.table.as_bytes();
        if self.table_bytes < table.len() {
            slices.push(IoSlice::new(&table[self.table_bytes..]));
        }
        let mut skip = self.page_bytes;
        let mut allowed = self.allowance.bytes();
        for (page, words) in &self.written.pages {
            if slices.is_full() || allowed == 0 {
                break;
            }
            let bytes = &page[..*words].as_bytes()[skip..];
            let bytes = &bytes[..bytes.len().min(allowed)];
            allowed -= bytes.len();
            slices.push(IoSlice::new(bytes));
            skip = 0;
        }
    }

    /// Hands the kernel as much as it takes.
    pub(super) fn flush(
        &mut self,
        stream: &mut TcpStream,
        counts: &mut TcpFrameCounts,
    ) -> io::Result<()> {
        loop {
            if self.written.frames == 0 && !self.begin_batch() {
                return Ok(());
            }
            let taken = {
                let mut slices = ArrayVec::<IoSlice<'_>, SLICES_MAX>::new();
                self.add_slices(&mut slices);
                if slices.is_empty() {
                    // What is left of the fragment goes with the next block.
                    return Ok(());
                }
                stream.write_vectored(&slices)
            };
            match taken {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    counts.writes += 1;
                    self.advance(taken, counts);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The kernel has taken so many bytes more.
    fn advance(&mut self, mut taken: usize, counts: &mut TcpFrameCounts) {
        let of_table = taken.min(self.written.table.len() * 4 - self.table_bytes);
        self.table_bytes += of_table;
        taken -= of_table;
        self.allowance.take(taken as u64);
        while let Some((_, words)) = self.written.pages.front() {
            let left = words * 4 - self.page_bytes;
            if taken < left {
                self.page_bytes += taken;
                return;
            }
            taken -= left;
            self.written.pages.pop_front();
            self.page_bytes = 0;
        }
        if self.table_bytes == self.written.table.len() * 4 {
            counts.frames_sent += self.written.frames as u64;
            counts.message_bytes_sent += self.table_bytes as u64;
            counts.payload_bytes_sent += self.written.payload_bytes;
            self.written.clear();
            self.table_bytes = 0;
        }
    }

    /// All bytes that are to be sent, as one piece.
    #[cfg(test)]
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        assert!(self.begin_batch() && self.gathering.frames == 0);
        let mut slices = ArrayVec::new();
        self.add_slices(&mut slices);
        let bytes = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        drop(slices);
        self.clear();
        bytes
    }
}

/// Full batches with so many messages, each with a fragment of so many pages: 1 to [`BATCHES_MAX`].
pub(super) fn batches_for(messages: u64, pages: u64) -> usize {
    let pages_left = (PAGES_MAX - FRAGMENT_PAGES_MAX) as u64;
    let of_batch = (pages_left / pages.max(1) + 1).min(FRAMES_MAX as u64);
    messages.div_ceil(of_batch).clamp(1, BATCHES_MAX) as usize
}

/// The fragment of a message, if it has one.
pub(in super::super) fn fragment_of(envelope: &Envelope) -> Option<&FragmentDescriptor> {
    match &envelope.message {
        BuilderMessage::FragmentData { fragment, .. } => Some(fragment),
        _ => None,
    }
}

/// Holds the pages of a fragment until they are sent; returns its words, 0 where one is not there.
pub(in super::super) fn hold_pages(
    pool: &PagePool,
    fragment: &FragmentDescriptor,
    pages: &mut VecDeque<(PageReader, usize)>,
) -> usize {
    let (first, mut left) = (pages.len(), fragment.words as usize);
    for page in &fragment.pages {
        let words = left.min(pool.page_words());
        match pool.read(PageIndex(*page)) {
            Ok(reader) if words > 0 => pages.push_back((reader, words)),
            _ => break,
        }
        left -= words;
    }
    if left > 0 {
        pages.truncate(first);
        return 0;
    }
    fragment.words as usize
}
