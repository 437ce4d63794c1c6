//! Page memory in place of a contiguous-memory driver: segments with bus addresses.
//!
//! Programs of the field take their buffers from `cmem_rcc`: named segments, contiguous on the bus,
//! with a bus address and a pointer each. [`PageMemory`] gives the same in plain memory, in whole
//! pages; a lock is not needed, it is never swapped by our doing. The pages that real runs share
//! between processes are in `livetime-shm`.

use crate::card::bus_map::BusMap;
use crate::page_store::{PageRead, PageStore};

/// The most segments.
const SEGMENTS_MAX: usize = 256;

/// Names a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentId(pub u32);

/// Why a segment is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// No room in a row for so many bytes.
    #[error("no {asked} B in a row are free, the largest gap has {largest} B")]
    NoRoom {
        /// Bytes asked for.
        asked: u64,
        /// Bytes of the largest gap.
        largest: u64,
    },
    /// Too many segments, or one of no bytes.
    #[error("a segment has at least 1 B, and there are at most 256")]
    NotAllowed,
    /// There is no such segment.
    #[error("there is no segment {id}")]
    Unknown {
        /// The id.
        id: u32,
    },
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    id: u32,
    name: String,
    /// First page and number of pages, from 0.
    first: u32,
    pages: u32,
    bytes: u64,
}

/// Memory in pages, handed out in segments.
#[derive(Debug, Clone)]
pub struct PageMemory {
    words: Vec<u32>,
    map: BusMap,
    /// Pages that segments may lie in, from 0.
    allocatable: u32,
    segments: Vec<Segment>,
    next_id: u32,
}

impl PageMemory {
    /// `pages` pages of `page_bytes` bytes (a multiple of 4), numbered from 0, at bus address
    /// `base`.
    pub fn new(base: u32, pages: u32, page_bytes: u32) -> Self {
        let map = BusMap {
            base,
            first_page: 0,
            pages,
            page_bytes,
        };
        Self {
            words: vec![0; pages as usize * page_bytes as usize / 4],
            map,
            allocatable: pages,
            segments: Vec::with_capacity(SEGMENTS_MAX),
            next_id: 0,
        }
    }

    /// How pages and bus addresses belong together.
    pub fn map(&self) -> BusMap {
        self.map
    }

    /// Keeps the last `pages` pages out of what [`PageMemory::allocate`] hands out.
    ///
    /// # Panics
    /// If no page is left besides them, or a segment lies in them.
    pub fn reserve_end(&mut self, pages: u32) {
        let left = self.map.pages.saturating_sub(pages);
        assert!(left > 0, "a memory of more than {pages} pages is needed");
        let mut segments = self.segments.iter();
        assert!(
            segments.all(|segment| segment.first + segment.pages <= left),
            "no segment lies in the last {pages} pages"
        );
        self.allocatable = left;
    }

    /// Whether a page lies in a segment.
    pub fn is_allocated(&self, page: u32) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|s| (s.first..s.first + s.pages).contains(&page))
    }

    /// Reserves `bytes` bytes in whole pages, the first place that has room.
    ///
    /// # Errors
    /// [`SegmentError::NoRoom`] or [`SegmentError::NotAllowed`].
    pub fn allocate(&mut self, bytes: u64, name: &str) -> Result<SegmentId, SegmentError> {
        if bytes == 0 || self.segments.len() == SEGMENTS_MAX {
            return Err(SegmentError::NotAllowed);
        }
        let page_bytes = u64::from(self.map.page_bytes);
        let wanted = bytes.div_ceil(page_bytes);
        let (mut from, mut largest) = (0, 0);
        let ends = self.segments.iter().map(|s| (s.first, s.first + s.pages));
        let ends: Vec<_> = ends.chain([(self.allocatable, self.allocatable)]).collect();
        for (index, (first, end)) in ends.into_iter().enumerate() {
            let gap = u64::from(first - from);
            if gap >= wanted {
                let id = self.next_id;
                self.next_id += 1;
                let segment = Segment {
                    id,
                    name: name.to_owned(),
                    first: from,
                    pages: wanted as u32,
                    bytes,
                };
                self.segments.insert(index, segment);
                return Ok(SegmentId(id));
            }
            largest = largest.max(gap * page_bytes);
            from = end;
        }
        Err(SegmentError::NoRoom {
            asked: bytes,
            largest,
        })
    }

    /// Gives a segment back.
    ///
    /// # Errors
    /// [`SegmentError::Unknown`].
    pub fn free(&mut self, id: SegmentId) -> Result<(), SegmentError> {
        let index = self.segments.iter().position(|s| s.id == id.0);
        let index = index.ok_or(SegmentError::Unknown { id: id.0 })?;
        self.segments.remove(index);
        Ok(())
    }

    /// Bytes asked for when it was allocated.
    ///
    /// # Errors
    /// [`SegmentError::Unknown`].
    pub fn size(&self, id: SegmentId) -> Result<u64, SegmentError> {
        Ok(self.segment(id)?.bytes)
    }

    /// Its bus address.
    ///
    /// # Errors
    /// [`SegmentError::Unknown`].
    pub fn bus_address(&self, id: SegmentId) -> Result<u32, SegmentError> {
        Ok(self.map.base + self.segment(id)?.first * self.map.page_bytes)
    }

    /// Its pages.
    ///
    /// # Errors
    /// [`SegmentError::Unknown`].
    pub fn pages(&self, id: SegmentId) -> Result<core::ops::Range<u32>, SegmentError> {
        let segment = self.segment(id)?;
        Ok(segment.first..segment.first + segment.pages)
    }

    /// The segments, one line each: name, bus address, bytes.
    pub fn dump(&self) -> String {
        let lines = self.segments.iter().map(|segment| {
            let address = self.map.base + segment.first * self.map.page_bytes;
            format!("{} at {address:#010x}, {} B\n", segment.name, segment.bytes)
        });
        lines.collect()
    }

    /// `words` words at a bus address; `None` if they are not all in this memory.
    pub fn at(&self, address: u32, words: usize) -> Option<&[u32]> {
        let range = self.range(address, words)?;
        self.words.get(range)
    }

    /// As [`PageMemory::at`], to be written.
    pub fn at_mut(&mut self, address: u32, words: usize) -> Option<&mut [u32]> {
        let range = self.range(address, words)?;
        self.words.get_mut(range)
    }

    fn range(&self, address: u32, words: usize) -> Option<core::ops::Range<usize>> {
        let offset = address.checked_sub(self.map.base)?;
        let first = offset as usize / 4;
        let behind = first.checked_add(words)?;
        offset.is_multiple_of(4).then_some(first..behind)
    }

    fn segment(&self, id: SegmentId) -> Result<&Segment, SegmentError> {
        let found = self.segments.iter().find(|segment| segment.id == id.0);
        found.ok_or(SegmentError::Unknown { id: id.0 })
    }

    fn page_range(&self, page: u32) -> core::ops::Range<usize> {
        let words = self.map.page_bytes as usize / 4;
        let first = page as usize * words;
        first..first + words
    }
}

impl PageStore for PageMemory {
    fn words_mut(&mut self, page: u32) -> &mut [u32] {
        let range = self.page_range(page);
        &mut self.words[range]
    }
}

impl PageRead for PageMemory {
    fn words(&self, page: u32) -> &[u32] {
        &self.words[self.page_range(page)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_apart_reused_and_bounded() {
        let mut memory = PageMemory::new(0x8000_0000, 10, 4096);
        let first = memory.allocate(5000, "first").unwrap();
        let second = memory.allocate(4096 * 6, "second").unwrap();
        assert_eq!(memory.pages(first), Ok(0..2));
        assert_eq!(memory.bus_address(second), Ok(0x8000_2000));
        assert_eq!(memory.size(first), Ok(5000));
        assert_eq!(
            memory.allocate(4096 * 3, "third"),
            Err(SegmentError::NoRoom {
                asked: 4096 * 3,
                largest: 4096 * 2
            })
        );
        assert_eq!(memory.allocate(0, "none"), Err(SegmentError::NotAllowed));
        memory.free(first).unwrap();
        assert_eq!(memory.free(first), Err(SegmentError::Unknown { id: 0 }));
        let third = memory.allocate(1, "third").unwrap();
        assert_eq!(memory.pages(third), Ok(0..1));
        assert_eq!(
            memory.dump(),
            "third at 0x80000000, 1 B\nsecond at 0x80002000, 24576 B\n"
        );
        memory.at_mut(0x8000_2004, 2).unwrap().fill(7);
        assert_eq!(memory.words(2)[..4], [0, 7, 7, 0]);
        assert_eq!(memory.at(0x8000_2002, 1), None);
        assert_eq!(memory.at(0x8000_9FFC, 2), None);
        assert_eq!(memory.at(0x7FFF_FFFC, 1), None);
    }

    #[test]
    fn pages_reserved_at_the_end_are_in_no_segment() {
        let mut memory = PageMemory::new(0, 10, 256);
        memory.reserve_end(7);
        assert_eq!(
            memory.allocate(256 * 4, "all"),
            Err(SegmentError::NoRoom {
                asked: 256 * 4,
                largest: 256 * 3
            })
        );
        assert!(!memory.is_allocated(2));
        memory.allocate(256 * 3, "all").unwrap();
        assert!(memory.is_allocated(2) && !memory.is_allocated(3));
    }
}
