//! A ring of records of one cache line, from one writer to one reader that it never waits for.
//!
//! Unlike [`mod@crate::ring`], which holds back its producer, this ring belongs to its writer: a
//! reader that is slow, stopped, dead or hostile costs the writer nothing, and what the reader
//! misses it is told exactly. Each record carries a dense sequence number in its stamp; received
//! and reported lost add up to what was offered. It knows nothing of what a record says, and does
//! not wake anybody: see [`crate::wake_descriptor`].
//!
//! ```text
//! byte 0     magic, layout version, slots, rule, epoch                        written once
//!      128   records offered; why the writer has closed                       writer's
//!      256   records passed, records lost, whether the reader goes to sleep   reader's
//!      384   slot 0: stamp and seven words
//!      448   slot 1, ...
//! ```
//!
//! The stamp is `(sequence + 1) * 2` for a published record and one more while it is being
//! written. Under [`OverflowRule::DropOldest`] record `n` lies in slot `n mod slots`, and a reader
//! that was overtaken sees a later stamp, before or after it has copied the record (a sequence
//! lock). Under the other rules no slot is overwritten before the reader has passed it, and the
//! gap shows in the sequence numbers.
//!
//! A writer that knows a record before its time puts the words into the slot ahead
//! ([`RecordWriter::write_ahead`]) and publishes it later by the stamp alone; that needs a slot that
//! the reader has passed, so that nobody looks at anything but its stamp.
//!
//! Budget per record: one cache line written, one count beside it; per wake-up one look at the
//! reader's line. No system call, no allocation, no loop that a peer could prolong.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::mapping::{HugePages, Mapping, MappingError};
use crate::prefetch;

/// Words of a record: the first is the stamp.
pub const RECORD_WORDS: usize = 8;
/// Greatest number of slots of a ring: 64 MiB of records.
pub const RECORD_SLOTS_MAX: u32 = 1 << 20;
/// Raised when a field or a rule of the protocol changes.
pub const RECORD_RING_VERSION: u32 = 1;

const MAGIC: u64 = u64::from_le_bytes(*b"LTRECD01");
const STILL_OPEN: u64 = 0;
/// Records that the reader passes before it says so, while there are more to read.
const REPORT_EVERY: u64 = 16;
/// Attempts of a reader to catch up with a writer that keeps overtaking it within one call.
const CATCH_UPS_MAX: u64 = 8;

/// What happens to a record that finds the ring full of unread ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OverflowRule {
    /// It takes the place of the oldest one: the reader sees the latest.
    #[default]
    DropOldest,
    /// It is not written: the reader sees the first ones.
    DropNewest,
    /// It is not written, and the ring is closed for [`RingClosed::Overflow`].
    Disconnect,
}

impl OverflowRule {
    fn to_bits(self) -> u32 {
        match self {
            Self::DropOldest => 1,
            Self::DropNewest => 2,
            Self::Disconnect => 3,
        }
    }

    fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            1 => Some(Self::DropOldest),
            2 => Some(Self::DropNewest),
            3 => Some(Self::Disconnect),
            _ => None,
        }
    }

    /// `drop-oldest`, `drop-newest` or `disconnect`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DropOldest => "drop-oldest",
            Self::DropNewest => "drop-newest",
            Self::Disconnect => "disconnect",
        }
    }

    /// The rule of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::DropOldest, Self::DropNewest, Self::Disconnect]
            .into_iter()
            .find(|rule| rule.name() == name)
    }
}

/// Why a writer closed its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingClosed {
    /// The writer has ended in order, or this subscription was taken back.
    Finished,
    /// The reader did not keep up and the rule is [`OverflowRule::Disconnect`].
    Overflow,
}

/// Size and rule of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRingConfig {
    /// Slots: a power of two from 2 to [`RECORD_SLOTS_MAX`]. The bound of the queue.
    pub slots: u32,
    /// What happens when they are full.
    pub rule: OverflowRule,
    /// Which start of the writer's program made the ring.
    pub epoch: u64,
}

/// Why a ring could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum RecordRingError {
    /// The number of slots is not a power of two, or out of range.
    #[error("{slots} slots is not a power of two from 2 to {RECORD_SLOTS_MAX}")]
    Slots {
        /// Slots asked for.
        slots: u32,
    },
    /// The memory could not be had.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The memory does not hold a ring of this layout.
    #[error("not a record ring of layout version {RECORD_RING_VERSION}: {field} is {found:#x}")]
    Layout {
        /// What does not fit.
        field: &'static str,
        /// Value found there.
        found: u64,
    },
}

#[repr(C, align(128))]
struct WriterWords {
    offered: AtomicU64,
    closed: AtomicU32,
}

#[repr(C, align(128))]
struct ReaderWords {
    passed: AtomicU64,
    lost: AtomicU64,
    waiting: AtomicU32,
}

#[repr(C, align(128))]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    slots: AtomicU32,
    rule: AtomicU32,
    epoch: AtomicU64,
    writer: WriterWords,
    reader: ReaderWords,
}

#[repr(C, align(64))]
struct Slot {
    stamp: AtomicU64,
    words: [AtomicU64; RECORD_WORDS - 1],
}

const HEADER_BYTES: usize = size_of::<Header>();
const SLOT_BYTES: usize = size_of::<Slot>();
const _: () = assert!(HEADER_BYTES == 384 && SLOT_BYTES == RECORD_WORDS * 8);
const _: () = assert!(std::mem::offset_of!(Header, writer) == 128);
const _: () = assert!(std::mem::offset_of!(Header, reader) == 256);

/// A word beside the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingWord {
    /// Records offered; the writer's.
    Offered,
    /// Why the writer has closed, 0 while it has not; the writer's.
    Closed,
    /// Records passed; the reader's.
    Passed,
    /// Records lost; the reader's.
    Lost,
    /// Whether the reader goes to sleep; set by the reader, cleared by both.
    Waiting,
}

/// The words of a ring, behind which a model checker can put its own; the protocol is in
/// [`RecordWriter`] and [`RecordReader`]. Loads and stores have the ordering asked for, those of a
/// record's words are relaxed.
pub trait RecordStorage {
    /// Slots, a power of two.
    fn slots(&self) -> u32;
    /// What happens when they are full.
    fn rule(&self) -> OverflowRule;
    /// The stamp of the slot of a position.
    fn load_stamp(&self, position: u64, order: Ordering) -> u64;
    /// Stores it.
    fn store_stamp(&self, position: u64, stamp: u64, order: Ordering);
    /// The words behind the stamp.
    fn load_record(&self, position: u64) -> [u64; RECORD_WORDS - 1];
    /// Stores them.
    fn store_record(&self, position: u64, words: &[u64; RECORD_WORDS - 1]);
    /// Stores the last of them.
    fn store_last_word(&self, position: u64, word: u64);
    /// A word beside the slots.
    fn load(&self, word: RingWord, order: Ordering) -> u64;
    /// Stores it.
    fn store(&self, word: RingWord, value: u64, order: Ordering);
    /// A fence between them.
    fn fence(&self, order: Ordering);

    /// Hints that the writer will write the slot of a position soon, and words beside the slots.
    #[inline]
    fn prepare_to_write(&self, position: u64) {
        let _ = position;
    }
}

/// The memory of a ring, a sealed memory file; both ends hold it.
#[derive(Debug)]
pub struct RecordMemory {
    mapping: Mapping,
    // Read once, checked, and never taken from shared memory again.
    slots: u32,
    rule: OverflowRule,
    epoch: u64,
}

impl RecordMemory {
    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the mapping is page aligned, at least a header long (`create` and `open` saw to
        // it), alive as long as `self`, and the header consists of atomics.
        unsafe { self.mapping.base().cast::<Header>().as_ref() }
    }

    #[inline]
    fn slot(&self, position: u64) -> &Slot {
        let index = (position & u64::from(self.slots - 1)) as usize;
        // SAFETY: index < slots, a power of two, and the mapping holds so many slots behind the
        // header (`create` and `open` saw to it); a slot consists of atomics.
        unsafe {
            self.mapping
                .base()
                .add(HEADER_BYTES + index * SLOT_BYTES)
                .cast::<Slot>()
                .as_ref()
        }
    }
}

impl RecordStorage for RecordMemory {
    #[inline]
    fn slots(&self) -> u32 {
        self.slots
    }

    #[inline]
    fn rule(&self) -> OverflowRule {
        self.rule
    }

    #[inline]
    fn load_stamp(&self, position: u64, order: Ordering) -> u64 {
        self.slot(position).stamp.load(order)
    }

    #[inline]
    fn store_stamp(&self, position: u64, stamp: u64, order: Ordering) {
        self.slot(position).stamp.store(stamp, order);
    }

    #[inline]
    fn load_record(&self, position: u64) -> [u64; RECORD_WORDS - 1] {
        let words = &self.slot(position).words;
        // Relaxed: ordered by the reader's fences.
        std::array::from_fn(|index| words[index].load(Ordering::Relaxed))
    }

    #[inline]
    fn store_record(&self, position: u64, words: &[u64; RECORD_WORDS - 1]) {
        for (place, word) in self.slot(position).words.iter().zip(words) {
            // Relaxed: ordered by the writer's fence before and its Release store after.
            place.store(*word, Ordering::Relaxed);
        }
    }

    #[inline]
    fn store_last_word(&self, position: u64, word: u64) {
        // Relaxed, as the words of a record.
        let [.., last] = &self.slot(position).words;
        last.store(word, Ordering::Relaxed);
    }

    #[inline]
    fn load(&self, word: RingWord, order: Ordering) -> u64 {
        let header = self.header();
        match word {
            RingWord::Offered => header.writer.offered.load(order),
            RingWord::Closed => header.writer.closed.load(order).into(),
            RingWord::Passed => header.reader.passed.load(order),
            RingWord::Lost => header.reader.lost.load(order),
            RingWord::Waiting => header.reader.waiting.load(order).into(),
        }
    }

    #[inline]
    fn store(&self, word: RingWord, value: u64, order: Ordering) {
        let header = self.header();
        match word {
            RingWord::Offered => header.writer.offered.store(value, order),
            // These two have 0, 1 and 2 only.
            RingWord::Closed => header.writer.closed.store(value as u32, order),
            RingWord::Waiting => header.reader.waiting.store(value as u32, order),
            RingWord::Passed => header.reader.passed.store(value, order),
            RingWord::Lost => header.reader.lost.store(value, order),
        }
    }

    #[inline]
    fn fence(&self, order: Ordering) {
        fence(order);
    }

    #[inline]
    fn prepare_to_write(&self, position: u64) {
        let header = self.header();
        prefetch::for_writing(NonNull::from(self.slot(position)).cast());
        prefetch::for_writing(NonNull::from(&header.writer).cast());
        prefetch::for_writing(NonNull::from(&header.reader).cast());
    }
}

fn bytes_of(slots: u32) -> usize {
    HEADER_BYTES + slots as usize * SLOT_BYTES
}

fn check_slots(slots: u32) -> Result<(), RecordRingError> {
    if !slots.is_power_of_two() || !(2..=RECORD_SLOTS_MAX).contains(&slots) {
        return Err(RecordRingError::Slots { slots });
    }
    Ok(())
}

fn published(sequence: u64) -> u64 {
    sequence.wrapping_add(1) << 1
}

/// What became of an offered record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered {
    /// Sequence number that the record was given.
    pub sequence: u64,
    /// What was done with it.
    pub outcome: OfferOutcome,
    /// The reader has gone to sleep and must be woken.
    pub wake: bool,
}

/// Where an offered record went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferOutcome {
    /// Into a free slot.
    Written,
    /// Over a record that the reader had not reported as read.
    Overwrote,
    /// Nowhere: the ring is full of unread records.
    Dropped,
    /// Nowhere: the ring is closed. It was given no sequence number.
    Closed,
}

/// The writing end. It never waits and never believes the reader more than costs the reader itself.
#[derive(Debug)]
pub struct RecordWriter<S: RecordStorage = RecordMemory> {
    memory: Arc<S>,
    /// Records offered: the next sequence number.
    offered: u64,
    /// Records written: the next position.
    written: u64,
    /// The reader's last sane report.
    passed_seen: u64,
    /// Whether the words of the next record are in its slot.
    is_ahead: bool,
    closed: bool,
}

impl RecordWriter {
    /// Makes the memory of a ring and takes its writing end.
    ///
    /// # Errors
    /// [`RecordRingError`] for an impossible size or missing memory.
    pub fn create(config: &RecordRingConfig) -> Result<Self, RecordRingError> {
        check_slots(config.slots)?;
        let mapping =
            Mapping::create("livetime-records", bytes_of(config.slots), HugePages::Never)?;
        let memory = RecordMemory {
            mapping,
            slots: config.slots,
            rule: config.rule,
            epoch: config.epoch,
        };
        let header = memory.header();
        // Relaxed: covered by the Release store of the magic.
        header.version.store(RECORD_RING_VERSION, Ordering::Relaxed);
        header.slots.store(config.slots, Ordering::Relaxed);
        header.rule.store(config.rule.to_bits(), Ordering::Relaxed);
        header.epoch.store(config.epoch, Ordering::Relaxed);
        // Release pairs with the Acquire of the magic in `RecordReader::open`.
        header.magic.store(MAGIC, Ordering::Release);
        Ok(Self::over(Arc::new(memory)))
    }

    /// A view of the ring's counters for another thread.
    pub fn monitor(&self) -> RingMonitor {
        RingMonitor {
            memory: Arc::clone(&self.memory),
        }
    }

    /// The descriptor to pass to the reader.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.mapping.fd()
    }
}

impl<S: RecordStorage> RecordWriter<S> {
    /// The writing end of fresh storage, all of it 0.
    pub fn over(memory: Arc<S>) -> Self {
        Self {
            memory,
            offered: 0,
            written: 0,
            passed_seen: 0,
            is_ahead: false,
            closed: false,
        }
    }

    /// Offers one record; its first word is replaced by the stamp.
    #[inline]
    pub fn offer(&mut self, record: &[u64; RECORD_WORDS]) -> Offered {
        let mut offered = self.publish(record);
        if offered.outcome != OfferOutcome::Closed {
            self.fence_before_sleepers();
            offered.wake = self.take_sleeper();
        }
        offered
    }

    /// Offers one record without a look at the reader: the caller goes on with
    /// [`RecordWriter::fence_before_sleepers`], one for many rings, and
    /// [`RecordWriter::take_sleeper`] for each of them, or a reader sleeps on.
    #[inline]
    pub fn publish(&mut self, record: &[u64; RECORD_WORDS]) -> Offered {
        let sequence = self.offered;
        let mut offered = Offered {
            sequence,
            outcome: OfferOutcome::Closed,
            wake: false,
        };
        if self.closed {
            return offered;
        }
        let full = self.is_full();
        self.offered += 1;
        offered.outcome = match (full, self.memory.rule()) {
            (false, _) => OfferOutcome::Written,
            (true, OverflowRule::DropOldest) => OfferOutcome::Overwrote,
            (true, OverflowRule::DropNewest | OverflowRule::Disconnect) => OfferOutcome::Dropped,
        };
        if offered.outcome != OfferOutcome::Dropped {
            self.write(sequence, record);
        }
        // Release pairs with the Acquire in `RecordReader::poll`: whoever sees this count sees
        // every record below it that was written at all.
        self.memory
            .store(RingWord::Offered, self.offered, Ordering::Release);
        if offered.outcome == OfferOutcome::Dropped
            && self.memory.rule() == OverflowRule::Disconnect
        {
            self.close(RingClosed::Overflow);
        }
        offered
    }

    /// Gets the cache lines of the next record on their way, shortly before it is offered: the
    /// reader had them last, and those of many rings come at the same time.
    #[inline]
    pub fn prepare(&self) {
        self.memory.prepare_to_write(self.written);
    }

    /// Puts the words of the next record into its slot, where [`RecordWriter::publish_ahead`] has
    /// little left to do. False if the ring is closed, or full as far as the reader has said: its
    /// reader may still look at the record there.
    #[inline]
    pub fn write_ahead(&mut self, record: &[u64; RECORD_WORDS]) -> bool {
        if self.closed || self.is_full() {
            return false;
        }
        let [_, words @ ..] = record;
        // After the Acquire of the report by which the reader has passed the record that was here.
        self.memory.store_record(self.written, words);
        self.is_ahead = true;
        true
    }

    /// Offers the record that was written ahead, with another last word, as
    /// [`RecordWriter::publish`] does; `None` if none was, or another one was offered since.
    #[inline]
    pub fn publish_ahead(&mut self, last: u64) -> Option<Offered> {
        if !core::mem::take(&mut self.is_ahead) || self.closed {
            return None;
        }
        let sequence = self.offered;
        self.memory.store_last_word(self.written, last);
        // Release pairs with the Acquire load of the stamp in the reader.
        let stamp = published(sequence);
        self.memory
            .store_stamp(self.written, stamp, Ordering::Release);
        self.written += 1;
        self.offered += 1;
        // Release as in `publish`.
        self.memory
            .store(RingWord::Offered, self.offered, Ordering::Release);
        Some(Offered {
            sequence,
            outcome: OfferOutcome::Written,
            wake: false,
        })
    }

    /// Has all records that this thread has published before, in any ring, seen by their readers
    /// before the looks at the readers that follow.
    #[inline]
    pub fn fence_before_sleepers(&self) {
        // SeqCst fence pairs with the one in `RecordReader::prepare_sleep`: either the reader's
        // second look sees our record, or we see that it sleeps.
        self.memory.fence(Ordering::SeqCst);
    }

    /// Says that nothing more will come. The caller wakes the reader.
    pub fn close(&mut self, reason: RingClosed) {
        if self.closed {
            return;
        }
        self.closed = true;
        let bits = match reason {
            RingClosed::Finished => 1,
            RingClosed::Overflow => 2,
        };
        // Release pairs with the Acquire in `RecordReader::poll`, which then sees every record.
        self.memory.store(RingWord::Closed, bits, Ordering::Release);
    }

    /// Whether the ring is closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Records offered so far.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Records in the ring that the reader has not reported as passed.
    pub fn unread(&mut self) -> u32 {
        self.look_at_reader();
        u32::try_from(self.written - self.passed_seen)
            .unwrap_or(u32::MAX)
            .min(self.memory.slots())
    }

    /// Looks at the reader's report only when the last one does not leave room.
    #[inline]
    fn is_full(&mut self) -> bool {
        let slots = u64::from(self.memory.slots());
        if self.written - self.passed_seen < slots {
            return false;
        }
        self.look_at_reader();
        self.written - self.passed_seen >= slots
    }

    fn look_at_reader(&mut self) {
        // Acquire pairs with the Release of the reader's report: it read those slots before.
        let passed = self.memory.load(RingWord::Passed, Ordering::Acquire);
        // A reader that reports nonsense is left with its last sane report: a full ring.
        if passed > self.passed_seen && passed <= self.written {
            self.passed_seen = passed;
        }
    }

    #[inline]
    fn write(&mut self, sequence: u64, record: &[u64; RECORD_WORDS]) {
        let [_, words @ ..] = record;
        let (memory, stamp) = (&*self.memory, published(sequence));
        // Relaxed, then a Release fence: no word below can be seen before this odd stamp. Pairs
        // with the Acquire fence of the reader.
        memory.store_stamp(self.written, stamp + 1, Ordering::Relaxed);
        memory.fence(Ordering::Release);
        memory.store_record(self.written, words);
        // Release pairs with the Acquire load of the stamp in the reader.
        memory.store_stamp(self.written, stamp, Ordering::Release);
        self.written += 1;
        self.is_ahead = false;
    }

    /// Whether the reader went to sleep and must be woken; it is told only once per sleep. After
    /// [`RecordWriter::fence_before_sleepers`].
    #[inline]
    pub fn take_sleeper(&self) -> bool {
        // Relaxed: ordered by the fence.
        if self.memory.load(RingWord::Waiting, Ordering::Relaxed) == 0 {
            return false;
        }
        self.memory.store(RingWord::Waiting, 0, Ordering::Relaxed);
        true
    }
}

impl<S: RecordStorage> Drop for RecordWriter<S> {
    fn drop(&mut self) {
        self.close(RingClosed::Finished);
    }
}

/// The counters of a ring, for a thread that watches it.
#[derive(Debug, Clone)]
pub struct RingMonitor {
    memory: Arc<RecordMemory>,
}

impl RingMonitor {
    /// Records offered by the writer.
    pub fn offered(&self) -> u64 {
        // Relaxed: a figure for people, as the reader's two.
        self.memory.header().writer.offered.load(Ordering::Relaxed)
    }

    /// Positions that the reader says it has passed.
    pub fn passed(&self) -> u64 {
        self.memory.header().reader.passed.load(Ordering::Relaxed)
    }

    /// Records that the reader says it has lost.
    pub fn lost(&self) -> u64 {
        self.memory.header().reader.lost.load(Ordering::Relaxed)
    }

    /// Whether the writer has closed, and why.
    pub fn closed(&self) -> Option<RingClosed> {
        closed_of(self.memory.load(RingWord::Closed, Ordering::Acquire))
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.memory.slots
    }
}

fn closed_of(bits: u64) -> Option<RingClosed> {
    match bits {
        STILL_OPEN => None,
        2 => Some(RingClosed::Overflow),
        _ => Some(RingClosed::Finished),
    }
}

/// What a reader finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The next record.
    Record([u64; RECORD_WORDS]),
    /// Records that will never come: those from `first` to `last`.
    Lost {
        /// First sequence number lost.
        first: u64,
        /// Last sequence number lost, at least `first`.
        last: u64,
    },
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    Closed(RingClosed),
}

/// The reading end.
#[derive(Debug)]
pub struct RecordReader<S: RecordStorage = RecordMemory> {
    memory: Arc<S>,
    /// Next position to read.
    position: u64,
    /// Next sequence number to account for; under drop-oldest it is the position.
    expected: u64,
    lost: u64,
    reported: u64,
}

impl RecordReader {
    /// Opens the reading end of a ring received from its writer, after checking every field.
    ///
    /// # Errors
    /// [`RecordRingError`] when it is not a sealed ring of this layout.
    pub fn open(fd: OwnedFd) -> Result<Self, RecordRingError> {
        let mapping = Mapping::open(fd)?;
        let refuse = |field, found| Err(RecordRingError::Layout { field, found });
        if mapping.bytes() < HEADER_BYTES {
            return refuse("size", mapping.bytes() as u64);
        }
        // SAFETY: the mapping is page aligned, large enough, lives in this function, and the
        // header consists of atomics, for which any bytes are valid.
        let header = unsafe { mapping.base().cast::<Header>().as_ref() };
        // Acquire pairs with the Release in `RecordWriter::create`.
        let magic = header.magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return refuse("magic", magic);
        }
        // Relaxed: written before the magic; each is loaded once.
        let version = header.version.load(Ordering::Relaxed);
        if version != RECORD_RING_VERSION {
            return refuse("layout version", version.into());
        }
        let slots = header.slots.load(Ordering::Relaxed);
        if check_slots(slots).is_err() || mapping.bytes() < bytes_of(slots) {
            return refuse("slots", slots.into());
        }
        let bits = header.rule.load(Ordering::Relaxed);
        let Some(rule) = OverflowRule::from_bits(bits) else {
            return refuse("rule", bits.into());
        };
        let epoch = header.epoch.load(Ordering::Relaxed);
        mapping.prefault()?;
        Ok(Self::over(Arc::new(RecordMemory {
            mapping,
            slots,
            rule,
            epoch,
        })))
    }

    /// Which start of the writer's program made the ring.
    pub fn epoch(&self) -> u64 {
        self.memory.epoch
    }
}

impl<S: RecordStorage> RecordReader<S> {
    /// The reading end of storage from which nothing has been read.
    pub fn over(memory: Arc<S>) -> Self {
        Self {
            memory,
            position: 0,
            expected: 0,
            lost: 0,
            reported: 0,
        }
    }

    /// The rule of the ring.
    pub fn rule(&self) -> OverflowRule {
        self.memory.rule()
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.memory.slots()
    }

    /// Records lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Records offered by the writer that this reader has not accounted for yet.
    pub fn behind(&self) -> u64 {
        // Relaxed: a figure for people.
        let offered = self.memory.load(RingWord::Offered, Ordering::Relaxed);
        offered.saturating_sub(self.expected)
    }

    /// Whether the next record is there: looks at its slot only. What a reader that spins asks
    /// again and again, so that the line of the writer's words stays with the writer; since losses
    /// and the end do not show here, it polls now and then as well.
    #[inline]
    pub fn is_ready(&self) -> bool {
        // Relaxed: a poll that reads the record follows.
        let stamp = self.memory.load_stamp(self.position, Ordering::Relaxed);
        stamp & 1 == 0 && stamp >= published(self.expected)
    }

    /// The next thing in the ring; does not wait.
    #[inline]
    pub fn poll(&mut self) -> Found {
        // Acquire pairs with the writer's Release of the stamp.
        let stamp = self.memory.load_stamp(self.position, Ordering::Acquire);
        if stamp == published(self.expected)
            && let Some(record) = self.copy_if_unchanged(stamp)
        {
            // The usual case: nothing but the slot is looked at.
            self.pass(self.expected);
            if self.is_report_due() {
                self.report();
            }
            return Found::Record(record);
        }
        self.poll_all()
    }

    /// The next thing in the ring where the next record was not in its slot a moment ago.
    fn poll_all(&mut self) -> Found {
        // Before the slot, in this order: what is neither in the slot nor above these is lost.
        let closed = self.memory.load(RingWord::Closed, Ordering::Acquire);
        let offered = self.memory.load(RingWord::Offered, Ordering::Acquire);
        let found = match self.memory.rule() {
            OverflowRule::DropOldest => self.poll_overwritten(),
            OverflowRule::DropNewest | OverflowRule::Disconnect => self.poll_bounded(offered),
        };
        match found {
            Found::Nothing => {
                self.report();
                closed_of(closed).map_or(Found::Nothing, Found::Closed)
            }
            Found::Lost { first, last } => {
                // A writer of nonsense may claim more than can be counted.
                self.lost = self.lost.saturating_add(last - first + 1);
                // Relaxed: a figure for people.
                self.memory
                    .store(RingWord::Lost, self.lost, Ordering::Relaxed);
                self.report();
                found
            }
            _ => {
                if self.is_report_due() {
                    self.report();
                }
                found
            }
        }
    }

    /// Says that this reader is going to sleep. Poll once more, and sleep only if that finds
    /// nothing: a record offered since then wakes.
    pub fn prepare_sleep(&self) {
        // Relaxed, then a SeqCst fence that pairs with that of
        // `RecordWriter::fence_before_sleepers`.
        self.memory.store(RingWord::Waiting, 1, Ordering::Relaxed);
        self.memory.fence(Ordering::SeqCst);
    }

    /// Takes the announcement back, after a poll that found something: saves a needless wake-up.
    pub fn stay_awake(&self) {
        // Relaxed: at worst the writer wakes us once for nothing.
        self.memory.store(RingWord::Waiting, 0, Ordering::Relaxed);
    }

    /// Goes on behind the record of this sequence number. No ring comes near 2^64 records, but a writer
    /// of nonsense can send its reader there: then the numbers begin again.
    #[inline]
    fn pass(&mut self, sequence: u64) {
        self.position = self.position.wrapping_add(1);
        self.expected = sequence.wrapping_add(1);
    }

    #[inline]
    fn is_report_due(&self) -> bool {
        self.position.wrapping_sub(self.reported) >= REPORT_EVERY
    }

    fn report(&mut self) {
        if self.reported != self.position {
            self.reported = self.position;
            // Release pairs with the Acquire of the writer's look: these slots have been read.
            self.memory
                .store(RingWord::Passed, self.position, Ordering::Release);
        }
    }

    fn poll_overwritten(&mut self) -> Found {
        let first = self.position;
        for attempt in 0..CATCH_UPS_MAX {
            let wanted = published(self.position);
            // Acquire pairs with the writer's Release of the stamp.
            let stamp = self.memory.load_stamp(self.position, Ordering::Acquire);
            if stamp < wanted || stamp == wanted + 1 {
                return self.caught_up(first).unwrap_or(Found::Nothing);
            }
            if stamp == wanted
                && let Some(record) = self.copy_if_unchanged(stamp)
            {
                if let Some(lost) = self.caught_up(first) {
                    // The record is read again by the next poll, or is lost then.
                    return lost;
                }
                self.pass(self.position);
                return Found::Record(record);
            }
            self.position = self.oldest_left(attempt);
        }
        // The writer overtook us in every attempt: say what is gone, go on in the next call.
        self.caught_up(first).unwrap_or(Found::Nothing)
    }

    /// The gap between where a poll began and where it went on, if there is one.
    fn caught_up(&mut self, first: u64) -> Option<Found> {
        self.expected = self.position;
        (self.position > first).then(|| Found::Lost {
            first,
            last: self.position - 1,
        })
    }

    /// Where to go on after having been overtaken: at the oldest record that is still there, a
    /// little later with each attempt.
    fn oldest_left(&self, attempt: u64) -> u64 {
        let slots = u64::from(self.memory.slots());
        // Acquire, as in `poll`: records below are published.
        let offered = self.memory.load(RingWord::Offered, Ordering::Acquire);
        let ahead = attempt * (slots / 16).max(1);
        // Saturating: the writer may say anything.
        let oldest = offered.saturating_sub(slots).saturating_add(1 + ahead);
        oldest.min(offered).max(self.position.saturating_add(1))
    }

    fn poll_bounded(&mut self, offered: u64) -> Found {
        // Acquire pairs with the writer's Release of the stamp.
        let stamp = self.memory.load_stamp(self.position, Ordering::Acquire);
        let here = stamp & 1 == 0 && stamp >= published(self.expected);
        if !here {
            if offered <= self.expected {
                return Found::Nothing;
            }
            // All records below `offered` that were written are visible, and this one is not.
            let first = std::mem::replace(&mut self.expected, offered);
            return Found::Lost {
                first,
                last: offered - 1,
            };
        }
        // The writer may have stamped a record whose number nobody reaches.
        let sequence = (stamp >> 1).wrapping_sub(1);
        if sequence > self.expected {
            let first = std::mem::replace(&mut self.expected, sequence);
            return Found::Lost {
                first,
                last: sequence - 1,
            };
        }
        match self.copy_if_unchanged(stamp) {
            Some(record) => {
                self.pass(sequence);
                Found::Record(record)
            }
            // Only a writer that breaks the protocol gets here: its loss.
            None => Found::Nothing,
        }
    }

    /// Copies the record whose stamp has been seen, unless it is overwritten meanwhile.
    #[inline]
    fn copy_if_unchanged(&self, stamp: u64) -> Option<[u64; RECORD_WORDS]> {
        let mut record = [stamp; RECORD_WORDS];
        record[1..].copy_from_slice(&self.memory.load_record(self.position));
        // Acquire pairs with the Release fence of the writer: if any word above was of a later
        // record, its odd stamp is seen now.
        self.memory.fence(Ordering::Acquire);
        let after = self.memory.load_stamp(self.position, Ordering::Relaxed);
        (after == stamp).then_some(record)
    }
}

#[cfg(test)]
mod tests;
