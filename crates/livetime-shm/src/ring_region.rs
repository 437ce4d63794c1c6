//! Rings in memory: layout, making, opening, passing on.
//!
//! A [`RingRegion`] is a ring's memory, in a shared mapping or on the heap. [`ring`] makes both
//! ends for two threads; for two processes, make the region with [`RingRegion::create`], take one
//! side, pass the descriptor, and let the peer call [`open_producer`] or [`open_consumer`]. The
//! protocol itself is in [`mod@crate::ring`].
//!
//! ```text
//! byte 0     magic, layout version, slots, slot words, slot bytes, epoch      written once
//!      128   producer: process and start time, closed flag                    producer's
//!      256   consumer: process and start time, closed flag                    consumer's
//!      384   tail: messages read, reported in batches                         consumer's
//!      512   slot 0: stamp (8 bytes), payload words, padding to 64 bytes      producer's
//!      ...   slot 1, ...
//! ```
//! Words of different writers are 128 bytes apart, because the prefetcher of common processors
//! fetches lines in pairs.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::mapping::{HugePages, Mapping, MappingError};
use crate::prefetch::{self, CACHE_LINE};
use crate::process_id::ProcessId;
use crate::ring::{Consumer, MAX_SLOT_WORDS, MAX_SLOTS, Producer, RingConfig, RingStorage, Side};

/// "LTRING" and two digits, as bytes in memory on a little-endian machine.
const MAGIC: u64 = u64::from_le_bytes(*b"LTRING01");
/// Raised when a field or a rule of the protocol changes.
pub const RING_LAYOUT_VERSION: u32 = 1;

const STAMP_BYTES: usize = 8;

/// One side's own words, on lines that only it writes.
#[repr(C, align(128))]
struct SideWords {
    /// [`ProcessId`] as a word, 0 while nobody has taken the side.
    owner: AtomicU64,
    /// 1 once the side has been closed in order.
    closed: AtomicU32,
}

#[repr(C, align(128))]
struct TailWord(AtomicU64);

#[repr(C, align(128))]
struct RingHeader {
    magic: AtomicU64,
    layout_version: AtomicU32,
    slots: AtomicU32,
    slot_words: AtomicU32,
    slot_bytes: AtomicU32,
    epoch: AtomicU64,
    producer: SideWords,
    consumer: SideWords,
    tail: TailWord,
}

const HEADER_BYTES: usize = size_of::<RingHeader>();
const _: () = assert!(HEADER_BYTES == 512 && HEADER_BYTES.is_multiple_of(CACHE_LINE));
const _: () = assert!(std::mem::offset_of!(RingHeader, producer) == 128);
const _: () = assert!(std::mem::offset_of!(RingHeader, consumer) == 256);
const _: () = assert!(std::mem::offset_of!(RingHeader, tail) == 384);

/// Why a ring could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The number of slots is not a power of two, or too large.
    #[error("{slots} slots is not a power of two of at most {MAX_SLOTS}")]
    Slots {
        /// Slots asked for.
        slots: u32,
    },
    /// A slot holds no word, or too many.
    #[error("{slot_words} words per slot is not between 1 and {MAX_SLOT_WORDS}")]
    SlotWords {
        /// Words per slot asked for.
        slot_words: u32,
    },
    /// The memory could not be had.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The memory does not hold a ring of this layout.
    #[error("not a ring of layout version {RING_LAYOUT_VERSION}: {field} is {found:#x}")]
    Layout {
        /// What does not fit.
        field: &'static str,
        /// Value found there.
        found: u64,
    },
    /// The ring belongs to another epoch: one of the peers was away and has been replaced.
    #[error("ring belongs to epoch {found}, not {expected}")]
    Epoch {
        /// Epoch of the ring.
        found: u64,
        /// Epoch asked for.
        expected: u64,
    },
    /// The side has been taken before. A ring is used by one producer and one consumer ever.
    #[error("the {side:?} side of the ring was taken by process {}", .owner.pid())]
    Taken {
        /// The side asked for.
        side: Side,
        /// Who took it, alive or not.
        owner: ProcessId,
    },
}

/// Makes a ring for two threads of this process, in a shared mapping.
///
/// # Errors
/// [`RingError`] for an impossible size or missing memory.
///
/// # Example
/// ```
/// use livetime_shm::{RingConfig, ring};
///
/// let (mut producer, mut consumer) = ring(&RingConfig { slots: 8, slot_words: 30 })?;
/// let reader = std::thread::spawn(move || {
///     loop {
///         match consumer.try_pop(|words| words.iter().sum::<u32>()) {
///             Ok(Some(sum)) => return sum,
///             Ok(None) => std::hint::spin_loop(),
///             Err(fault) => panic!("{fault}"),
///         }
///     }
/// });
/// producer.try_push(&[1, 2, 3]).expect("the ring is empty");
/// assert_eq!(reader.join().ok(), Some(6));
/// # Ok::<(), livetime_shm::RingError>(())
/// ```
#[inline]
pub fn ring(config: &RingConfig) -> Result<(Producer, Consumer), RingError> {
    let region = RingRegion::create(config, 0)?;
    Ok((region.producer()?, region.consumer()?))
}

/// Makes a ring for two threads of this process on the heap: no descriptor, nothing to pass on.
///
/// It runs where there is no memory file, as under Miri.
///
/// # Errors
/// [`RingError`] for an impossible size.
#[inline]
pub fn heap_ring(config: &RingConfig) -> Result<(Producer, Consumer), RingError> {
    let region = RingRegion::on_heap(config)?;
    Ok((region.producer()?, region.consumer()?))
}

/// Opens the producer's side of a ring received from another process.
///
/// # Errors
/// [`RingError`] for anything but a fresh producer's side of a ring of this epoch.
#[inline]
pub fn open_producer(fd: OwnedFd, epoch: u64) -> Result<Producer, RingError> {
    RingRegion::open(fd, epoch)?.producer()
}

/// Opens the consumer's side of a ring received from another process.
///
/// # Errors
/// [`RingError`] for anything but a fresh consumer's side of a ring of this epoch.
#[inline]
pub fn open_consumer(fd: OwnedFd, epoch: u64) -> Result<Consumer, RingError> {
    RingRegion::open(fd, epoch)?.consumer()
}

impl Producer {
    /// The memory of the ring: its descriptor, epoch and peers.
    #[inline]
    pub fn region(&self) -> &RingRegion {
        self.storage()
    }
}

impl Consumer {
    /// The memory of the ring: its descriptor, epoch and peers.
    #[inline]
    pub fn region(&self) -> &RingRegion {
        self.storage()
    }
}

/// What keeps the memory of a ring alive.
#[derive(Debug)]
enum Memory {
    Mapped(Mapping),
    Heap {
        #[expect(dead_code, reason = "held for its drop alone")]
        block: HeapBlock,
    },
}

/// The memory of one ring. Clones share it.
#[derive(Debug, Clone)]
pub struct RingRegion {
    base: NonNull<u8>,
    // The geometry is read once, checked, and never taken from shared memory again.
    slots: u32,
    slot_words: u32,
    slot_bytes: usize,
    memory: Arc<Memory>,
}

// SAFETY: `base` points into `memory`, which lives as long as `self` on whatever thread. All
// shared words are atomics; payload is touched only under the contract of `RingStorage`.
unsafe impl Send for RingRegion {}
// SAFETY: as for `Send`.
unsafe impl Sync for RingRegion {}

impl RingRegion {
    /// Makes the memory of a ring, ready to be passed to another process.
    ///
    /// Choose a higher `epoch` for each ring that replaces one with a lost peer.
    ///
    /// # Errors
    /// [`RingError`] for an impossible size or missing memory.
    pub fn create(config: &RingConfig, epoch: u64) -> Result<Self, RingError> {
        let geometry = Geometry::new_checked(config)?;
        // Rings are read front to back in a few pages: huge pages would only waste memory.
        let mapping = Mapping::create("livetime-ring", geometry.bytes(), HugePages::Never)?;
        let base = mapping.base();
        Ok(Self::initialise(
            base,
            geometry,
            epoch,
            Memory::Mapped(mapping),
        ))
    }

    /// Makes the memory of a ring on the heap.
    ///
    /// # Errors
    /// [`RingError`] for an impossible size.
    #[inline]
    pub fn on_heap(config: &RingConfig) -> Result<Self, RingError> {
        let geometry = Geometry::new_checked(config)?;
        let block = HeapBlock::zeroed(geometry.bytes());
        Ok(Self::initialise(
            block.base,
            geometry,
            0,
            Memory::Heap { block },
        ))
    }

    /// Opens the memory of a ring received from another process, after checking every field.
    ///
    /// # Errors
    /// [`RingError`] when it is not a sealed ring of this layout and epoch.
    pub fn open(fd: OwnedFd, epoch: u64) -> Result<Self, RingError> {
        let mapping = Mapping::open(fd)?;
        if mapping.bytes() < HEADER_BYTES {
            return Err(RingError::Layout {
                field: "size",
                found: mapping.bytes() as u64,
            });
        }
        // SAFETY: the mapping is page aligned, large enough, lives in this function, and the
        // header consists of atomics, for which any bytes are valid.
        let header = unsafe { mapping.base().cast::<RingHeader>().as_ref() };
        let refuse = |field, found| Err(RingError::Layout { field, found });
        // Acquire pairs with the Release in `initialise`; the fields were written before.
        let magic = header.magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return refuse("magic", magic);
        }
        // Relaxed, here and below: written before the magic. Each is loaded once, a peer could
        // change it between two looks.
        let version = header.layout_version.load(Ordering::Relaxed);
        if version != RING_LAYOUT_VERSION {
            return refuse("layout version", version.into());
        }
        let slots = header.slots.load(Ordering::Relaxed);
        let slot_words = header.slot_words.load(Ordering::Relaxed);
        let Ok(geometry) = Geometry::new_checked(&RingConfig { slots, slot_words }) else {
            return refuse("size", u64::from(slots) << 32 | u64::from(slot_words));
        };
        let slot_bytes = header.slot_bytes.load(Ordering::Relaxed);
        if slot_bytes as usize != geometry.slot_bytes {
            return refuse("slot bytes", slot_bytes.into());
        }
        if mapping.bytes() < geometry.bytes() {
            return refuse("mapped bytes", mapping.bytes() as u64);
        }
        let found = header.epoch.load(Ordering::Relaxed);
        if found != epoch {
            return Err(RingError::Epoch {
                found,
                expected: epoch,
            });
        }
        mapping.prefault()?;
        Ok(Self::assemble(
            mapping.base(),
            geometry,
            Memory::Mapped(mapping),
        ))
    }

    /// Takes the producer's side for this process.
    ///
    /// # Errors
    /// [`RingError::Taken`] when anybody ever took it before.
    #[inline]
    pub fn producer(&self) -> Result<Producer, RingError> {
        self.take(Side::Producer)?;
        // SAFETY: nobody has taken the side before, and nobody takes it again.
        Ok(unsafe { Producer::new(self.clone()) })
    }

    /// Takes the consumer's side for this process.
    ///
    /// # Errors
    /// [`RingError::Taken`] when anybody ever took it before.
    #[inline]
    pub fn consumer(&self) -> Result<Consumer, RingError> {
        self.take(Side::Consumer)?;
        // SAFETY: nobody has taken the side before, and nobody takes it again.
        Ok(unsafe { Consumer::new(self.clone()) })
    }

    /// The descriptor to pass to another process; a ring on the heap has none.
    #[inline]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &*self.memory {
            Memory::Mapped(mapping) => Some(mapping.fd()),
            Memory::Heap { .. } => None,
        }
    }

    /// The epoch the ring was made for.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // Relaxed: written before the ring was known to anybody.
        self.header().epoch.load(Ordering::Relaxed)
    }

    /// The process that took a side.
    #[inline]
    pub fn owner(&self, side: Side) -> Option<ProcessId> {
        // Acquire pairs with the AcqRel exchange in `take`.
        match self.side(side).owner.load(Ordering::Acquire) {
            0 => None,
            word => Some(ProcessId::from_word(word)),
        }
    }

    fn take(&self, side: Side) -> Result<(), RingError> {
        let own = match *self.memory {
            Memory::Mapped(_) => ProcessId::current().to_word(),
            // Both sides are in this process for ever: no need to ask who it is.
            Memory::Heap { .. } => 1,
        };
        let owner = &self.side(side).owner;
        // AcqRel pairs with itself in the peer and with the load in `owner`.
        match owner.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(word) => Err(RingError::Taken {
                side,
                owner: ProcessId::from_word(word),
            }),
        }
    }

    fn initialise(base: NonNull<u8>, geometry: Geometry, epoch: u64, memory: Memory) -> Self {
        let region = Self::assemble(base, geometry, memory);
        let header = region.header();
        // Relaxed: covered by the Release store of the magic.
        header
            .layout_version
            .store(RING_LAYOUT_VERSION, Ordering::Relaxed);
        header.slots.store(geometry.slots, Ordering::Relaxed);
        header
            .slot_words
            .store(geometry.slot_words, Ordering::Relaxed);
        header
            .slot_bytes
            .store(geometry.slot_bytes as u32, Ordering::Relaxed);
        header.epoch.store(epoch, Ordering::Relaxed);
        // Release pairs with the Acquire of the magic in `open`.
        header.magic.store(MAGIC, Ordering::Release);
        region
    }

    #[inline]
    fn assemble(base: NonNull<u8>, geometry: Geometry, memory: Memory) -> Self {
        Self {
            base,
            slots: geometry.slots,
            slot_words: geometry.slot_words,
            slot_bytes: geometry.slot_bytes,
            memory: Arc::new(memory),
        }
    }

    #[inline]
    fn header(&self) -> &RingHeader {
        // SAFETY: both kinds of memory are aligned to 128 and at least a header long, they live
        // as long as `self`, and the header consists of atomics.
        unsafe { self.base.cast::<RingHeader>().as_ref() }
    }

    #[inline]
    fn side(&self, side: Side) -> &SideWords {
        match side {
            Side::Producer => &self.header().producer,
            Side::Consumer => &self.header().consumer,
        }
    }

    #[inline]
    fn slot_base(&self, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < self.slots);
        // SAFETY: slot < slots (contract of `RingStorage`), and the memory holds that many slots
        // behind the header (`Geometry`), so the address is inside it.
        unsafe {
            self.base
                .add(HEADER_BYTES + slot as usize * self.slot_bytes)
        }
    }

    #[inline]
    fn stamp(&self, slot: u32) -> &AtomicU64 {
        // SAFETY: the first 8 bytes of a slot, aligned to 64, are only ever used as this atomic.
        unsafe { self.slot_base(slot).cast::<AtomicU64>().as_ref() }
    }

    #[inline]
    fn payload(&self, slot: u32) -> NonNull<u32> {
        // SAFETY: a slot is at least `STAMP_BYTES` and one word long.
        unsafe { self.slot_base(slot).add(STAMP_BYTES).cast() }
    }
}

impl RingStorage for RingRegion {
    #[inline]
    fn slots(&self) -> u32 {
        self.slots
    }

    #[inline]
    fn slot_words(&self) -> u32 {
        self.slot_words
    }

    #[inline]
    fn load_stamp(&self, slot: u32, order: Ordering) -> u64 {
        self.stamp(slot).load(order)
    }

    #[inline]
    fn store_stamp(&self, slot: u32, stamp: u64, order: Ordering) {
        self.stamp(slot).store(stamp, order);
    }

    #[inline]
    fn load_tail(&self, order: Ordering) -> u64 {
        self.header().tail.0.load(order)
    }

    #[inline]
    fn store_tail(&self, tail: u64, order: Ordering) {
        self.header().tail.0.store(tail, order);
    }

    #[inline]
    fn is_closed(&self, side: Side, order: Ordering) -> bool {
        self.side(side).closed.load(order) != 0
    }

    #[inline]
    fn close(&self, side: Side, order: Ordering) {
        self.side(side).closed.store(1, order);
    }

    #[inline]
    fn prepare_to_fill(&self, slot: u32, words: u32) {
        let base = self.slot_base(slot);
        let bytes = STAMP_BYTES + words as usize * size_of::<u32>();
        for offset in (0..bytes).step_by(CACHE_LINE) {
            // SAFETY: words <= slot_words (contract of `RingStorage`), so the line lies in the slot.
            prefetch::for_writing(unsafe { base.add(offset) });
        }
    }

    #[inline]
    unsafe fn read_payload<R>(&self, slot: u32, words: u32, read: impl FnOnce(&[u32]) -> R) -> R {
        debug_assert!(words <= self.slot_words);
        // SAFETY: the slot has room for `words <= slot_words` words; the caller vouches that the
        // producer has published them and will not touch them; any bytes are valid words.
        let payload =
            unsafe { std::slice::from_raw_parts(self.payload(slot).as_ptr(), words as usize) };
        read(payload)
    }

    #[inline]
    unsafe fn fill_payload<R>(
        &self,
        slot: u32,
        words: u32,
        fill: impl FnOnce(&mut [u32]) -> R,
    ) -> R {
        debug_assert!(words <= self.slot_words);
        // SAFETY: the slot has room for `words <= slot_words` words; the caller vouches that it is
        // free, so that nobody else looks at it; any bytes are valid words.
        let payload =
            unsafe { std::slice::from_raw_parts_mut(self.payload(slot).as_ptr(), words as usize) };
        fill(payload)
    }
}

/// Sizes of a ring, checked.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    slots: u32,
    slot_words: u32,
    slot_bytes: usize,
}

impl Geometry {
    fn new_checked(config: &RingConfig) -> Result<Self, RingError> {
        let RingConfig { slots, slot_words } = *config;
        if !slots.is_power_of_two() || slots > MAX_SLOTS {
            return Err(RingError::Slots { slots });
        }
        if slot_words == 0 || slot_words > MAX_SLOT_WORDS {
            return Err(RingError::SlotWords { slot_words });
        }
        let slot_bytes =
            (STAMP_BYTES + slot_words as usize * size_of::<u32>()).next_multiple_of(CACHE_LINE);
        Ok(Self {
            slots,
            slot_words,
            slot_bytes,
        })
    }

    /// At most 2^24 * (2^22 + 64) + 512 bytes: no overflow in 64 bits.
    #[inline]
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.slots as usize * self.slot_bytes
    }
}

/// Zeroed heap memory aligned like a mapping's cache-line pairs.
#[derive(Debug)]
struct HeapBlock {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory, owned by this value alone, as for `Box<[u8]>`.
unsafe impl Send for HeapBlock {}
// SAFETY: as for `Send`; users answer for their accesses.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    #[inline]
    fn zeroed(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, align_of::<RingHeader>())
            .expect("a checked geometry fits the address space");
        // SAFETY: the layout has a size of at least the header.
        let base = unsafe { alloc_zeroed(layout) };
        match NonNull::new(base) {
            Some(base) => Self { base, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for HeapBlock {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: allocated above with this very layout, freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
