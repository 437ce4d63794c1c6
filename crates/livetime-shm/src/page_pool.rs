//! A pool of pages in shared memory, handed from process to process by index.
//!
//! A page is taken for writing, filled, looked at by any number of readers in place, and released;
//! nobody copies it. The pool chooses no page and keeps no list: which page to write comes from
//! the request FIFO of a link. Indices come from other processes and are checked at each use; a
//! page in the wrong state is an error, never a race. What a peer that breaks the protocol can do
//! is change words under a reader, since the memory is shared, and no more.
//!
//! ```text
//! byte 0      magic, layout version, pages, page bytes, offsets        written once
//!      128    owner table: 30 process identities of 8 bytes            claimed by compare-exchange
//!      512    page 0: state word, 30 read counts of 16 bits            64 bytes per page
//!      ...    page 1, ...
//!      4096n  data of page 0, page 1, ...                              `page_bytes` each
//! ```
//! One cache line of state per page: neighbouring pages are used by different cores at the same
//! time (one writes the next page while the other reads the last), so packed words would bounce
//! between them at each step. A line per page costs 1.5 % of pages of 4 KiB.
//!
//! Budget per page: claiming, holding, giving back and releasing are one locked instruction each
//! (about 20 cycles) on that one line, finishing is a store; each writer and reader takes two more
//! on the local count of its handle, unless it takes a clone of the pool with it. No system call,
//! no allocation. The rules of one page are in [`crate::page_state`].

use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

pub use crate::mapping::{Backing, HugePages};
use crate::mapping::{Mapping, MappingError, SMALL_PAGE_BYTES};
use crate::page_state::{self, PageWords, Recovery, Refusal, StateWord};
pub use crate::page_state::{MAX_OWNERS, OwnerId, PageState};
use crate::prefetch::{self, CACHE_LINE};
use crate::process_id::ProcessId;

const MAGIC: u64 = u64::from_le_bytes(*b"LTPOOL01");
/// Raised when a field or a rule of the protocol changes.
pub const POOL_LAYOUT_VERSION: u32 = 1;
/// Pages are multiples of this many bytes, so that no two share a cache line.
pub const PAGE_BYTES_STEP: u32 = 64;

const STATE_OFFSET: usize = 512;
/// Most bytes of a page that are asked for ahead: further ones the processor sees coming by itself.
const PREPARED_BYTES_MAX: usize = 1024;
/// Marks an owner entry whose pages are being recovered; the rest of the word is the survivor.
const RECOVERING: u64 = 1 << 63;

/// Index of a page in its pool, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(pub u32);

/// Size of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Number of pages, at least 1: the bound of all data in flight through this pool.
    pub pages: u32,
    /// Bytes of a page, a multiple of 64.
    pub page_bytes: u32,
    /// Whether to try huge pages.
    pub huge_pages: HugePages,
}

/// Why a pool could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A pool without pages.
    #[error("a pool of 0 pages is not possible")]
    NoPages,
    /// An impossible size of page.
    #[error("{page_bytes} bytes per page is not a positive multiple of {PAGE_BYTES_STEP}")]
    PageBytes {
        /// Bytes per page asked for.
        page_bytes: u32,
    },
    /// The memory could not be had.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The memory does not hold a pool of this layout.
    #[error("not a pool of layout version {POOL_LAYOUT_VERSION}: {field} is {found:#x}")]
    Layout {
        /// What does not fit.
        field: &'static str,
        /// Value found there.
        found: u64,
    },
    /// Too many processes have the pool open.
    #[error("{MAX_OWNERS} processes have the pool open, no more can")]
    OwnersFull,
}

/// Why a step with a page was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// There is no such page.
    #[error("page {} does not exist, the pool has {pages} pages", .page.0)]
    OutOfRange {
        /// The index given.
        page: PageIndex,
        /// Pages of the pool.
        pages: u32,
    },
    /// The page is not in the state that this step starts from.
    #[error("page {} is {found:?}, must be {wanted:?}", .page.0)]
    WrongState {
        /// The page.
        page: PageIndex,
        /// Its state.
        found: PageState,
        /// The state needed.
        wanted: PageState,
    },
    /// The page cannot be released while it is read.
    #[error("page {} has {readers} readers", .page.0)]
    InUse {
        /// The page.
        page: PageIndex,
        /// Number of readers, in all processes.
        readers: u32,
    },
    /// This process reads the page more often than can be counted.
    #[error("page {} has too many readers in this process", .page.0)]
    TooManyReaders {
        /// The page.
        page: PageIndex,
    },
}

/// Why the pages of another process were not taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReclaimError {
    /// Nobody has this place in the pool.
    #[error("owner {} has no place in the pool", .owner.0)]
    Unknown {
        /// The owner given.
        owner: OwnerId,
    },
    /// The process still runs, and could use its pages at any moment.
    #[error("owner {} is process {}, which is alive", .owner.0, .process.pid())]
    Alive {
        /// The owner given.
        owner: OwnerId,
        /// Its process.
        process: ProcessId,
    },
    /// Another living process is taking the pages back.
    #[error("owner {} is being recovered by process {}", .owner.0, .by.pid())]
    InProgress {
        /// The owner given.
        owner: OwnerId,
        /// Who recovers it.
        by: ProcessId,
    },
}

/// What [`PagePool::reclaim`] took back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reclaimed {
    /// Pages that were being written or released, free now.
    pub freed: u32,
    /// Read holds dropped.
    pub holds_dropped: u32,
    /// Pages that the dead process had filled. They are the caller's to release, unless their
    /// descriptor has been received, or is still received from a ring being drained.
    pub adopted: Vec<PageIndex>,
}

/// How many pages are in each state.
///
/// Taken page by page: exact when nobody uses the pool, an indication otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolCounts {
    /// Pages that can be taken for writing.
    pub free: u32,
    /// Pages with a writer.
    pub writing: u32,
    /// Pages with data, those being released included.
    pub filled: u32,
    /// Read holds of all processes.
    pub holds: u32,
}

#[repr(C, align(128))]
struct PoolHeader {
    magic: AtomicU64,
    layout_version: AtomicU32,
    pages: AtomicU32,
    page_bytes: AtomicU32,
    state_offset: AtomicU32,
    data_offset: AtomicU64,
}

#[repr(C)]
struct PoolFront {
    header: PoolHeader,
    owners: [AtomicU64; MAX_OWNERS],
}

/// The shared words of one page; one cache line.
#[repr(C, align(64))]
#[derive(Debug)]
struct PageLine {
    state: AtomicU32,
    holds: [AtomicU16; MAX_OWNERS],
}

const _: () = assert!(size_of::<PageLine>() == 64);
const _: () = assert!(std::mem::offset_of!(PoolFront, owners) == 128);
const _: () = assert!(size_of::<PoolFront>() <= STATE_OFFSET);

/// A pool of pages, open in this process. Clones are cheap enough for one per role, and each
/// counts its own handles: give every thread its own clone.
///
/// # Example
/// ```
/// use livetime_shm::{HugePages, PageIndex, PagePool, PoolConfig};
///
/// let config = PoolConfig { pages: 4, page_bytes: 4096, huge_pages: HugePages::Prefer };
/// let pool = PagePool::create(&config)?;
/// let mut writer = pool.write(PageIndex(2))?;
/// writer[..3].copy_from_slice(&[7, 8, 9]);
/// let filled = writer.finish();
///
/// // Another process: `PagePool::open(descriptor)`; another thread: a clone.
/// let reader = pool.clone().read(filled)?;
/// assert_eq!(reader[..3], [7, 8, 9]);
/// assert_eq!(pool.readers(filled)?, 1);
/// assert!(pool.release(filled).is_err(), "it is being read");
/// drop(reader);
/// pool.release(filled)?;
/// assert_eq!(pool.counts().free, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PagePool {
    handle: Arc<Handle>,
}

/// What one clone of a pool shares with the writers and readers made through it. Its reference
/// count is the line that they touch, so it is not shared between clones, hence threads: the
/// alignment gives it lines of its own, which small allocations do not have.
#[derive(Debug)]
#[repr(align(128))]
struct Handle {
    pool: Arc<OpenPool>,
}

/// A pool as this process sees it; the geometry was checked and is not read from memory again.
#[derive(Debug)]
struct OpenPool {
    mapping: Mapping,
    pages: u32,
    page_bytes: u32,
    data_offset: usize,
    owner: OwnerId,
}

impl Clone for PagePool {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            handle: Arc::new(Handle {
                pool: Arc::clone(&self.handle.pool),
            }),
        }
    }
}

impl PagePool {
    /// Makes a pool with all pages free.
    ///
    /// # Errors
    /// [`PoolError`] for an impossible size or missing memory.
    pub fn create(config: &PoolConfig) -> Result<Self, PoolError> {
        let geometry = Geometry::new_checked(config.pages, config.page_bytes)?;
        let mapping = Mapping::create("livetime-pool", geometry.bytes, config.huge_pages)?;
        let pool = OpenPool::assemble(mapping, geometry);
        let header = &pool.front().header;
        // Relaxed: covered by the Release store of the magic.
        header
            .layout_version
            .store(POOL_LAYOUT_VERSION, Ordering::Relaxed);
        header.pages.store(geometry.pages, Ordering::Relaxed);
        header
            .page_bytes
            .store(geometry.page_bytes, Ordering::Relaxed);
        header
            .state_offset
            .store(STATE_OFFSET as u32, Ordering::Relaxed);
        header
            .data_offset
            .store(geometry.data_offset as u64, Ordering::Relaxed);
        // Release pairs with the Acquire of the magic in `open`.
        header.magic.store(MAGIC, Ordering::Release);
        pool.join()
    }

    /// Opens a pool received from another process, after checking every field.
    ///
    /// # Errors
    /// [`PoolError`] when it is not a sealed pool of this layout, or has no place left.
    pub fn open(fd: OwnedFd) -> Result<Self, PoolError> {
        let mapping = Mapping::open(fd)?;
        let refuse = |field, found| Err(PoolError::Layout { field, found });
        if mapping.bytes() < STATE_OFFSET {
            return refuse("size", mapping.bytes() as u64);
        }
        // SAFETY: the mapping is page aligned, large enough, lives in this function, and the front
        // consists of atomics, for which any bytes are valid.
        let header = unsafe { &mapping.base().cast::<PoolFront>().as_ref().header };
        // Acquire pairs with the Release in `create`; the fields were written before.
        let magic = header.magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return refuse("magic", magic);
        }
        // Relaxed, here and below: written before the magic. Each is loaded once, a peer could
        // change it between two looks.
        let version = header.layout_version.load(Ordering::Relaxed);
        if version != POOL_LAYOUT_VERSION {
            return refuse("layout version", version.into());
        }
        let pages = header.pages.load(Ordering::Relaxed);
        let page_bytes = header.page_bytes.load(Ordering::Relaxed);
        let Ok(geometry) = Geometry::new_checked(pages, page_bytes) else {
            return refuse("size", u64::from(pages) << 32 | u64::from(page_bytes));
        };
        let state_offset = header.state_offset.load(Ordering::Relaxed);
        if state_offset as usize != STATE_OFFSET {
            return refuse("state offset", state_offset.into());
        }
        let data_offset = header.data_offset.load(Ordering::Relaxed);
        if data_offset != geometry.data_offset as u64 {
            return refuse("data offset", data_offset);
        }
        if mapping.bytes() < geometry.bytes {
            return refuse("mapped bytes", mapping.bytes() as u64);
        }
        mapping.prefault()?;
        OpenPool::assemble(mapping, geometry).join()
    }

    /// The descriptor to pass to another process.
    #[inline]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.pool().mapping.fd()
    }

    /// Bytes of the memory behind [`PagePool::fd`], header and page states included.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.pool().mapping.bytes()
    }

    /// Where page 0 begins in that memory \[bytes\]; the others follow without gaps. For readers
    /// that map the memory by themselves, such as an interpreter, while somebody else holds the
    /// pages that they look at.
    #[inline]
    pub fn data_offset(&self) -> usize {
        self.pool().data_offset
    }

    /// Pages of the pool.
    #[inline]
    pub fn page_count(&self) -> u32 {
        self.pool().pages
    }

    /// Words of a page.
    #[inline]
    pub fn page_words(&self) -> usize {
        self.pool().page_bytes as usize / size_of::<u32>()
    }

    /// What the memory lives in.
    #[inline]
    pub fn backing(&self) -> Backing {
        self.pool().mapping.backing()
    }

    /// This process's place in the pool.
    #[inline]
    pub fn owner(&self) -> OwnerId {
        self.pool().owner
    }

    /// The processes that have the pool open, dead ones not yet recovered included.
    pub fn owners(&self) -> Vec<(OwnerId, ProcessId)> {
        let owners = &self.pool().front().owners;
        (0u8..)
            .zip(owners)
            .filter_map(|(index, entry)| {
                // Acquire pairs with the exchange in `join`.
                let word = entry.load(Ordering::Acquire);
                let is_process = word != 0 && word & RECOVERING == 0;
                is_process.then(|| (OwnerId(index), ProcessId::from_word(word)))
            })
            .collect()
    }

    /// Takes a free page for writing. The writer can be kept in a state machine: it keeps the
    /// pool open by itself.
    ///
    /// # Errors
    /// [`PageError::OutOfRange`], or [`PageError::WrongState`] unless the page is free.
    #[inline]
    pub fn write(&self, page: PageIndex) -> Result<PageWriter, PageError> {
        let pool = Self {
            handle: Arc::clone(&self.handle),
        };
        pool.into_writer(page).map_err(|(_, error)| error)
    }

    /// As [`PagePool::write`], for who takes one page after the other: the writer takes this clone
    /// with it, and [`PageWriter::finish_into_pool`] gives it back. Saves the count of the handle.
    ///
    /// # Errors
    /// As [`PagePool::write`], with this clone.
    #[inline]
    pub fn into_writer(self, page: PageIndex) -> Result<PageWriter, (Self, PageError)> {
        let pool = self.pool();
        let claimed = pool.line(page).and_then(|line| {
            page_state::begin_writing(line, pool.owner)
                .map_err(|refusal| page_error(page, PageState::Free, refusal))
        });
        match claimed {
            Ok(claim) => Ok(PageWriter {
                data: pool.data(page),
                words: self.page_words(),
                handle: self.handle,
                page,
                claim,
            }),
            Err(error) => Err((self, error)),
        }
    }

    /// Takes a hold on a filled page for reading it in place.
    ///
    /// # Errors
    /// [`PageError::OutOfRange`], or [`PageError::WrongState`] unless the page is filled.
    #[inline]
    pub fn read(&self, page: PageIndex) -> Result<PageReader, PageError> {
        let pool = Self {
            handle: Arc::clone(&self.handle),
        };
        pool.into_reader(page).map_err(|(_, error)| error)
    }

    /// As [`PagePool::read`], for who reads one page after the other: the reader takes this clone
    /// with it, and [`PageReader::into_pool`] gives it back. Saves the count of the handle.
    ///
    /// # Errors
    /// As [`PagePool::read`], with this clone.
    #[inline]
    pub fn into_reader(self, page: PageIndex) -> Result<PageReader, (Self, PageError)> {
        let pool = self.pool();
        let held = pool.line(page).and_then(|line| {
            // Or the line would come twice: for the look at the state, then for the count.
            pool.prefetch_state(page);
            page_state::begin_reading(line, pool.owner)
                .map_err(|refusal| page_error(page, PageState::Filled, refusal))
        });
        match held {
            Ok(_) => Ok(PageReader {
                data: pool.data(page),
                words: self.page_words(),
                handle: self.handle,
                page,
            }),
            Err(error) => Err((self, error)),
        }
    }

    /// Frees a filled page that nobody reads.
    ///
    /// # Errors
    /// [`PageError::InUse`] while it has readers, [`PageError::WrongState`] unless it is filled.
    #[inline]
    pub fn release(&self, page: PageIndex) -> Result<(), PageError> {
        let pool = self.pool();
        let line = pool.line(page)?;
        // Or the line would come twice: for the look at the state, then for its exchange.
        pool.prefetch_state(page);
        page_state::release(line, pool.owner)
            .map_err(|refusal| page_error(page, PageState::Filled, refusal))
    }

    /// Hints that a page will soon be taken for writing, and its first `words` words be written.
    /// A page that does not exist is ignored, here and in the other hints.
    #[inline]
    pub fn prepare_to_write(&self, page: PageIndex, words: usize) {
        let pool = self.pool();
        if pool.line(page).is_ok() {
            pool.prefetch_state(page);
            for line in pool.data_lines(page, words) {
                prefetch::for_writing(line);
            }
        }
    }

    /// Hints that a page will soon be held for reading, and its first `words` words be read.
    #[inline]
    pub fn prepare_to_read(&self, page: PageIndex, words: usize) {
        let pool = self.pool();
        if pool.line(page).is_ok() {
            // A hold is a write to the state's line.
            pool.prefetch_state(page);
            for line in pool.data_lines(page, words) {
                prefetch::for_reading(line);
            }
        }
    }

    /// Hints that a page will soon be released.
    #[inline]
    pub fn prepare_to_release(&self, page: PageIndex) {
        let pool = self.pool();
        if pool.line(page).is_ok() {
            pool.prefetch_state(page);
        }
    }

    /// Where a page is in its cycle, at this moment.
    ///
    /// # Errors
    /// [`PageError::OutOfRange`].
    #[inline]
    pub fn state(&self, page: PageIndex) -> Result<PageState, PageError> {
        // Relaxed: an observation, nothing is accessed because of it.
        let bits = self.pool().line(page)?.state.load(Ordering::Relaxed);
        Ok(StateWord::from_bits(bits).state())
    }

    /// How many readers a page has in all processes, at this moment. Whoever knows that nobody begins
    /// to read it, such as the only reader there is, may release it once there are none.
    ///
    /// # Errors
    /// [`PageError::OutOfRange`].
    #[inline]
    pub fn readers(&self, page: PageIndex) -> Result<u32, PageError> {
        let holds = self.pool().line(page)?.holds.iter();
        // Relaxed: as in `state`; the release looks again.
        Ok(holds
            .map(|count| u32::from(count.load(Ordering::Relaxed)))
            .sum())
    }

    /// Counts the pages in each state, by looking at every page.
    pub fn counts(&self) -> PoolCounts {
        let mut counts = PoolCounts::default();
        for line in self.pool().lines() {
            // Relaxed, both: an observation, nothing is accessed because of it.
            match StateWord::from_bits(line.state.load(Ordering::Relaxed)).state() {
                PageState::Free => counts.free += 1,
                PageState::Writing => counts.writing += 1,
                PageState::Filled | PageState::Releasing => counts.filled += 1,
            }
            let holds = line
                .holds
                .iter()
                .map(|count| u32::from(count.load(Ordering::Relaxed)));
            counts.holds = counts.holds.wrapping_add(holds.sum());
        }
        counts
    }

    /// Takes back what a dead process held, and gives its place in the pool to whoever comes next.
    ///
    /// Pages it was writing become free, its read holds are dropped, and pages it had filled
    /// belong to this process, which decides about them. The process must be gone for good: one
    /// that is only stopped, or slow, is refused, since it would go on writing into its pages.
    ///
    /// # Errors
    /// [`ReclaimError`] when there is nothing to take, or not by us.
    pub fn reclaim(&self, owner: OwnerId) -> Result<Reclaimed, ReclaimError> {
        let pool = self.pool();
        let entry = pool
            .front()
            .owners
            .get(usize::from(owner.0))
            .ok_or(ReclaimError::Unknown { owner })?;
        // Acquire pairs with the exchange in `join`.
        let word = entry.load(Ordering::Acquire);
        if word == 0 {
            return Err(ReclaimError::Unknown { owner });
        }
        let process = ProcessId::from_word(word & !RECOVERING);
        if process.is_alive() {
            return Err(match word & RECOVERING {
                0 => ReclaimError::Alive { owner, process },
                _ => ReclaimError::InProgress { owner, by: process },
            });
        }
        let own = ProcessId::current();
        // AcqRel pairs with the same exchange in another survivor: only one of us goes on.
        entry
            .compare_exchange(
                word,
                RECOVERING | own.to_word(),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .map_err(|found| match found {
                0 => ReclaimError::Unknown { owner },
                word => {
                    let by = ProcessId::from_word(word & !RECOVERING);
                    ReclaimError::InProgress { owner, by }
                }
            })?;
        let mut reclaimed = Reclaimed::default();
        for (index, line) in (0..).zip(pool.lines()) {
            let (recovery, holds) = page_state::recover(line, owner, pool.owner);
            reclaimed.holds_dropped += u32::from(holds);
            match recovery {
                Recovery::Untouched => {}
                Recovery::Freed => reclaimed.freed += 1,
                Recovery::Adopted => reclaimed.adopted.push(PageIndex(index)),
            }
        }
        // Release pairs with the exchange in `join` of the next one to take this place: nothing
        // of the dead is left there.
        entry.store(0, Ordering::Release);
        Ok(reclaimed)
    }

    #[inline]
    fn pool(&self) -> &OpenPool {
        &self.handle.pool
    }
}

fn page_error(page: PageIndex, wanted: PageState, refusal: Refusal) -> PageError {
    match refusal {
        Refusal::State(found) => PageError::WrongState {
            page,
            found,
            wanted,
        },
        Refusal::Read(readers) => PageError::InUse { page, readers },
        Refusal::TooManyHolds => PageError::TooManyReaders { page },
    }
}

impl OpenPool {
    fn assemble(mapping: Mapping, geometry: Geometry) -> Self {
        let Geometry {
            pages,
            page_bytes,
            data_offset,
            ..
        } = geometry;
        Self {
            mapping,
            pages,
            page_bytes,
            data_offset,
            owner: OwnerId(u8::MAX),
        }
    }

    /// Takes a place in the owner table.
    fn join(mut self) -> Result<PagePool, PoolError> {
        let own = ProcessId::current().to_word();
        let taken = self.front().owners.iter().position(|entry| {
            // AcqRel pairs with itself in other processes, and its Acquire with the Release of
            // whoever left the place.
            entry
                .compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        let index = taken
            .and_then(|index| u8::try_from(index).ok())
            .ok_or(PoolError::OwnersFull);
        self.owner = OwnerId(index?);
        Ok(PagePool {
            handle: Arc::new(Handle {
                pool: Arc::new(self),
            }),
        })
    }

    #[inline]
    fn front(&self) -> &PoolFront {
        // SAFETY: the mapping is page aligned, at least `STATE_OFFSET` long (`Geometry`), lives as
        // long as `self`, and the front consists of atomics.
        unsafe { self.mapping.base().cast::<PoolFront>().as_ref() }
    }

    #[inline]
    fn lines(&self) -> &[PageLine] {
        // SAFETY: by `Geometry`, checked against the mapped bytes, `pages` lines lie behind
        // `STATE_OFFSET`, which is a multiple of their alignment; they consist of atomics.
        unsafe {
            let first = self.mapping.base().add(STATE_OFFSET).cast::<PageLine>();
            std::slice::from_raw_parts(first.as_ptr(), self.pages as usize)
        }
    }

    #[inline]
    fn line(&self, page: PageIndex) -> Result<&PageLine, PageError> {
        let out_of_range = PageError::OutOfRange {
            page,
            pages: self.pages,
        };
        self.lines().get(page.0 as usize).ok_or(out_of_range)
    }

    /// Gets the state of a page on its way. `page` must have been checked by [`OpenPool::line`].
    #[inline]
    fn prefetch_state(&self, page: PageIndex) {
        prefetch::for_writing(NonNull::from(&self.lines()[page.0 as usize]).cast());
    }

    /// The cache lines of the first words of a page, which must have been checked.
    #[inline]
    fn data_lines(&self, page: PageIndex, words: usize) -> impl Iterator<Item = NonNull<u8>> {
        let data = self.data(page).cast::<u8>();
        let bytes = (words * size_of::<u32>())
            .min(self.page_bytes as usize)
            .min(PREPARED_BYTES_MAX);
        // SAFETY: offset < bytes <= page_bytes, so the line begins in the page.
        (0..bytes)
            .step_by(CACHE_LINE)
            .map(move |offset| unsafe { data.add(offset) })
    }

    /// First word of a page. `page` must have been checked by [`OpenPool::line`].
    #[inline]
    fn data(&self, page: PageIndex) -> NonNull<u32> {
        debug_assert!(page.0 < self.pages);
        let offset = self.data_offset + page.0 as usize * self.page_bytes as usize;
        // SAFETY: page < pages, so by `Geometry` the page ends inside the mapping.
        unsafe { self.mapping.base().add(offset).cast() }
    }
}

impl Drop for OpenPool {
    #[inline]
    fn drop(&mut self) {
        // The last handle is gone, and with it every writer and reader: nothing is held.
        if let Some(entry) = self.front().owners.get(usize::from(self.owner.0)) {
            // Release pairs with the exchange in `join` of the next one to take this place.
            entry.store(0, Ordering::Release);
        }
    }
}

impl PageWords for PageLine {
    #[inline]
    fn load_state(&self, order: Ordering) -> u32 {
        self.state.load(order)
    }

    #[inline]
    fn store_state(&self, word: u32, order: Ordering) {
        self.state.store(word, order);
    }

    #[inline]
    fn exchange_state(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.state.compare_exchange(current, new, success, failure)
    }

    #[inline]
    fn add_hold_then_load_state(&self, owner: OwnerId) -> (u16, u32) {
        // SeqCst, both, pair with the two in `exchange_state_then_load_holds`.
        let before = self.holds[usize::from(owner.0)].fetch_add(1, Ordering::SeqCst);
        (before, self.state.load(Ordering::SeqCst))
    }

    #[inline]
    fn exchange_state_then_load_holds(&self, current: u32, new: u32) -> Result<u32, u32> {
        // SeqCst, both, pair with the two in `add_hold_then_load_state`.
        self.state
            .compare_exchange(current, new, Ordering::SeqCst, Ordering::Relaxed)?;
        Ok(self
            .holds
            .iter()
            .map(|count| u32::from(count.load(Ordering::SeqCst)))
            .sum())
    }

    #[inline]
    fn sub_hold(&self, owner: OwnerId, order: Ordering) {
        self.holds[usize::from(owner.0)].fetch_sub(1, order);
    }

    #[inline]
    fn clear_holds(&self, owner: OwnerId, order: Ordering) -> u16 {
        self.holds[usize::from(owner.0)].swap(0, order)
    }
}

/// Exclusive access to a page being written; dropping it without [`PageWriter::finish`] frees the
/// page again. The words hold old data until they are written.
#[derive(Debug)]
pub struct PageWriter {
    data: NonNull<u32>,
    words: usize,
    handle: Arc<Handle>,
    page: PageIndex,
    claim: StateWord,
}

// SAFETY: the writer is the only one with access to the page's words, wherever it is; the handle
// keeps the mapping alive.
unsafe impl Send for PageWriter {}
// SAFETY: a shared reference only reads words that nobody writes meanwhile.
unsafe impl Sync for PageWriter {}

impl PageWriter {
    /// The page.
    #[inline]
    pub fn page(&self) -> PageIndex {
        self.page
    }

    /// Hands the page over to readers.
    ///
    /// Should this process have been declared dead meanwhile and its pages taken back (which
    /// [`PagePool::reclaim`] refuses while it runs), the page is left as it is.
    #[inline]
    pub fn finish(self) -> PageIndex {
        let (page, _) = self.finish_into_pool();
        page
    }

    /// As [`PageWriter::finish`], with the clone of the pool that was given to
    /// [`PagePool::into_writer`].
    #[inline]
    pub fn finish_into_pool(self) -> (PageIndex, PagePool) {
        let writer = std::mem::ManuallyDrop::new(self);
        let page = writer.page;
        let line = &writer.handle.pool.lines()[page.0 as usize];
        // Refused only in the case named above; the page is then another's, and so is its state.
        let _ = page_state::finish_writing(line, writer.claim);
        // SAFETY: `writer` is never used or dropped again, so its handle is moved out once.
        let handle = unsafe { std::ptr::read(&raw const writer.handle) };
        (page, PagePool { handle })
    }
}

impl Deref for PageWriter {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        // SAFETY: the page's words lie in the mapping, kept alive by the handle; the state is
        // writing, by us alone.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.words) }
    }
}

impl DerefMut for PageWriter {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u32] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.words) }
    }
}

impl Drop for PageWriter {
    #[inline]
    fn drop(&mut self) {
        let line = &self.handle.pool.lines()[self.page.0 as usize];
        // Refused only if the page was taken back from us already: it is free, or another's.
        let _ = page_state::abandon_writing(line, self.claim);
    }
}

/// Read access to a filled page; the page cannot be released until it is dropped.
#[derive(Debug)]
pub struct PageReader {
    data: NonNull<u32>,
    words: usize,
    handle: Arc<Handle>,
    page: PageIndex,
}

// SAFETY: the words are only read while the hold keeps the page filled; the handle keeps the
// mapping alive.
unsafe impl Send for PageReader {}
// SAFETY: as for `Send`.
unsafe impl Sync for PageReader {}

impl PageReader {
    /// The page.
    #[inline]
    pub fn page(&self) -> PageIndex {
        self.page
    }

    /// Gives the hold back, with the clone of the pool that was given to
    /// [`PagePool::into_reader`].
    #[inline]
    pub fn into_pool(self) -> PagePool {
        let reader = std::mem::ManuallyDrop::new(self);
        let pool = &reader.handle.pool;
        page_state::end_reading(&pool.lines()[reader.page.0 as usize], pool.owner);
        // SAFETY: `reader` is never used or dropped again, so its handle is moved out once.
        let handle = unsafe { std::ptr::read(&raw const reader.handle) };
        PagePool { handle }
    }
}

impl Deref for PageReader {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        // SAFETY: the page's words lie in the mapping, kept alive by the handle; our hold keeps
        // the page filled, in which state nobody writes it.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.words) }
    }
}

impl Drop for PageReader {
    #[inline]
    fn drop(&mut self) {
        let pool = &self.handle.pool;
        page_state::end_reading(&pool.lines()[self.page.0 as usize], pool.owner);
    }
}

/// Sizes of a pool, checked.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    pages: u32,
    page_bytes: u32,
    data_offset: usize,
    bytes: usize,
}

impl Geometry {
    fn new_checked(pages: u32, page_bytes: u32) -> Result<Self, PoolError> {
        if pages == 0 {
            return Err(PoolError::NoPages);
        }
        if page_bytes == 0 || !page_bytes.is_multiple_of(PAGE_BYTES_STEP) {
            return Err(PoolError::PageBytes { page_bytes });
        }
        let lines = pages as usize * size_of::<PageLine>();
        let data_offset = (STATE_OFFSET + lines).next_multiple_of(SMALL_PAGE_BYTES);
        // Both factors are below 2^32, so the product may pass 2^63 but the sum is checked.
        let bytes = (pages as usize)
            .checked_mul(page_bytes as usize)
            .and_then(|data| data.checked_add(data_offset))
            .ok_or(MappingError::Size { bytes: u64::MAX })?;
        Ok(Self {
            pages,
            page_bytes,
            data_offset,
            bytes,
        })
    }
}
