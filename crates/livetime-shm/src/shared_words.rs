//! A plain array of 64-bit words shared by threads or processes: counters, phases, small facts.
//!
//! Nothing here orders or protects anything: each word is an atomic, and who may write which one,
//! and with what ordering, is said by whoever lays out the array. Data moves through
//! [`mod@crate::ring`] and [`crate::page_pool`], not through this.
//!
//! ```text
//! byte 0      magic, number of words      written once
//!      128    word 0, word 1, ...
//! ```

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::{HugePages, Mapping, MappingError, SMALL_PAGE_BYTES};

const MAGIC: u64 = u64::from_le_bytes(*b"LTWORD01");
/// Where the words begin in their memory \[bytes\], for readers that map it by themselves.
pub const WORDS_OFFSET: usize = 128;
// Every mapping has at least a page, and so the words before that offset.
const _: () = assert!(WORDS_OFFSET <= SMALL_PAGE_BYTES);
/// Words around those on the heap, so that no cache line is shared with whatever lies beside them.
const HEAP_MARGIN: usize = 16;

/// Why shared words could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum WordsError {
    /// The memory could not be had.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The memory does not hold such words.
    #[error("not shared words: {field} is {found:#x}")]
    Layout {
        /// What does not fit.
        field: &'static str,
        /// Value found there.
        found: u64,
    },
}

#[derive(Debug)]
enum Memory {
    /// With [`HEAP_MARGIN`] words before and behind.
    Heap {
        words: Box<[AtomicU64]>,
        count: usize,
    },
    Mapped {
        mapping: Mapping,
        count: usize,
    },
}

/// An array of shared words. Clones are the same words.
#[derive(Debug, Clone)]
pub struct SharedWords {
    memory: Arc<Memory>,
}

impl SharedWords {
    /// Zeroed words for threads of this process.
    pub fn on_heap(count: usize) -> Self {
        let words = (0..count + 2 * HEAP_MARGIN)
            .map(|_| AtomicU64::new(0))
            .collect();
        Self {
            memory: Arc::new(Memory::Heap { words, count }),
        }
    }

    /// Zeroed words that can be passed to another process by their descriptor.
    ///
    /// # Errors
    /// [`WordsError`] when there is no memory.
    pub fn shared(count: usize) -> Result<Self, WordsError> {
        let bytes = count
            .saturating_mul(size_of::<AtomicU64>())
            .saturating_add(WORDS_OFFSET);
        let mapping = Mapping::create("livetime-words", bytes, HugePages::Never)?;
        let [magic, size] = header(&mapping);
        // Relaxed: covered by the Release store of the magic.
        size.store(count as u64, Ordering::Relaxed);
        // Release pairs with the Acquire in `open`.
        magic.store(MAGIC, Ordering::Release);
        Ok(Self {
            memory: Arc::new(Memory::Mapped { mapping, count }),
        })
    }

    /// Opens words received from another process.
    ///
    /// # Errors
    /// [`WordsError`] when it is something else.
    pub fn open(fd: OwnedFd) -> Result<Self, WordsError> {
        let mapping = Mapping::open(fd)?;
        let [magic, size] = header(&mapping);
        // Acquire pairs with the Release in `shared`; the size was written before.
        let found = magic.load(Ordering::Acquire);
        if found != MAGIC {
            return Err(WordsError::Layout {
                field: "magic",
                found,
            });
        }
        // Relaxed: see above. Loaded once, since a peer could change it.
        let found = size.load(Ordering::Relaxed);
        let room = (mapping.bytes() - WORDS_OFFSET) / size_of::<AtomicU64>();
        let count = usize::try_from(found)
            .ok()
            .filter(|count| *count <= room)
            .ok_or(WordsError::Layout {
                field: "number of words",
                found,
            })?;
        mapping.prefault()?;
        Ok(Self {
            memory: Arc::new(Memory::Mapped { mapping, count }),
        })
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        match &*self.memory {
            Memory::Heap { words, count } => &words[HEAP_MARGIN..HEAP_MARGIN + count],
            Memory::Mapped { mapping, count } => {
                // SAFETY: `count` words behind the header lie in the mapping (checked where it was
                // made), which is page aligned and lives as long as `self`; they are atomics, for
                // which any bytes are valid and which other processes access as atomics too.
                unsafe {
                    let first = mapping.base().as_ptr().add(WORDS_OFFSET);
                    std::slice::from_raw_parts(first.cast::<AtomicU64>(), *count)
                }
            }
        }
    }

    /// Bytes of the memory behind [`SharedWords::fd`], 0 on the heap.
    pub fn memory_bytes(&self) -> usize {
        match &*self.memory {
            Memory::Heap { .. } => 0,
            Memory::Mapped { mapping, .. } => mapping.bytes(),
        }
    }

    /// The descriptor to pass to another process, if the words are shared.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &*self.memory {
            Memory::Heap { .. } => None,
            Memory::Mapped { mapping, .. } => Some(mapping.fd()),
        }
    }
}

/// Magic and number of words of a mapping.
fn header(mapping: &Mapping) -> &[AtomicU64; 2] {
    // SAFETY: every mapping has at least a page (made or opened), is aligned to it and lives as long
    // as the reference; any bytes are valid atomics.
    unsafe { mapping.base().cast::<[AtomicU64; 2]>().as_ref() }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    #[test]
    fn opened_words_are_the_same_words() {
        let made = SharedWords::shared(700).unwrap();
        let fd = made.fd().unwrap().try_clone_to_owned().unwrap();
        let opened = SharedWords::open(fd).unwrap();
        assert_eq!(opened.words().len(), 700);
        made.words()[699].store(5, Ordering::Relaxed);
        assert_eq!(opened.words()[699].load(Ordering::Relaxed), 5);
        assert_eq!(opened.words()[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn words_on_the_heap_have_no_descriptor() {
        let words = SharedWords::on_heap(3);
        assert_eq!(words.words().len(), 3);
        assert!(words.fd().is_none());
    }

    #[test]
    fn foreign_memory_and_impossible_sizes_are_refused() {
        // Shorter than the header, and with more words than there is memory.
        let short = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        let front = [MAGIC.to_le_bytes(), (1_u64 << 40).to_le_bytes()].concat();
        rustix::fs::ftruncate(&short, WORDS_OFFSET as u64 / 2).unwrap();
        rustix::io::pwrite(&short, &front, 0).unwrap();
        rustix::fs::fcntl_add_seals(&short, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        let opened = SharedWords::open(short);
        assert!(
            matches!(
                opened,
                Err(WordsError::Mapping(MappingError::Size { bytes: 64 }))
            ),
            "{opened:?}"
        );

        let foreign = Mapping::create("test", 4096, HugePages::Never).unwrap();
        let opened = SharedWords::open(foreign.fd().try_clone_to_owned().unwrap());
        assert!(matches!(
            opened,
            Err(WordsError::Layout { field: "magic", .. })
        ));

        let lying = SharedWords::shared(8).unwrap();
        if let Memory::Mapped { mapping, .. } = &*lying.memory {
            header(mapping)[1].store(u64::MAX, Ordering::Relaxed);
        }
        let opened = SharedWords::open(lying.fd().unwrap().try_clone_to_owned().unwrap());
        assert!(matches!(
            opened,
            Err(WordsError::Layout {
                field: "number of words",
                ..
            })
        ));
    }
}
