//! The built event, as filters see it and run files keep it.
//!
//! ```text
//! word 0  0x4C544556     magic
//!      1  31:16 version 1 | 15:0 header words, up to and with its CRC
//!      2  words of the whole event
//!      3  run number
//!      4  trigger number, low word          5  high word
//!      6  time of the trigger since the start of the run [ns], low word    7  high word
//!      8  flags: bit 0 incomplete, bit 1 a fragment has a status
//!   9-12  Level-2 decision after prescale, least significant word first
//!     13  31:16 fragments | 15:0 missing sources
//!     14  31:16 filter reason | 15:0 stream bits
//!     15  0
//!      .. for each fragment: source id, words, receiver status, CRC-32C over its words
//!      .. for each missing source: source id
//!      .. CRC-32C over the header words before it
//! then the fragments' words, unchanged, in the order of the table
//! ```
//!
//! Nothing in an event is trusted before the header CRC, and no fragment before its own.

use arrayvec::ArrayVec;

use crate::crc::{Crc32c, crc32c};
use crate::decision::L2Mask;
use crate::id::{RunNumber, SourceId, TriggerNumber};
use crate::message::FRAGMENT_PAGES_MAX;
use crate::part_words::PartWords;
use crate::slink::FragmentStatus;
use crate::time::RunNs;

/// First word of an event.
pub const MAGIC: u32 = 0x4C54_4556;
/// Format version.
pub const VERSION: u32 = 1;
/// Words of the header before the tables.
const FIXED_WORDS: usize = 16;
/// Words of one fragment's table entry.
const ENTRY_WORDS: usize = 4;
/// Most fragments, and most missing sources, of one event.
pub const SOURCES_MAX: usize = 8_000;

/// The fixed part of an event's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// Run number.
    pub run: RunNumber,
    /// The builder's key.
    pub trigger: TriggerNumber,
    /// When the trigger was accepted by Level 1.
    pub triggered_at: RunNs,
    /// Level-2 decision after prescale.
    pub mask: L2Mask,
    /// Why the filter kept it: its reason code.
    pub filter_reason: u16,
    /// Streams that it belongs to, one bit each.
    pub streams: u16,
}

impl EventHeader {
    /// The bit of the error stream: filter units crashed or hung on the event, and it was stored
    /// unfiltered.
    pub const ERROR_STREAM: u16 = 1 << 15;
}

/// One fragment in the table of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentEntry {
    /// Who sent it.
    pub source: SourceId,
    /// Its words.
    pub words: u32,
    /// What the receiver found.
    pub status: FragmentStatus,
    /// CRC-32C over all its words as received.
    pub crc: u32,
}

/// Why words are not an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Fewer words than the event takes.
    #[error("{words} words are too few, the event takes {needed}")]
    TooShort {
        /// Words found.
        words: usize,
        /// Words needed.
        needed: usize,
    },
    /// The first words are not an event's.
    #[error("event starts with {found:#010x}, expected {expected:#010x}")]
    Magic {
        /// Found.
        found: u32,
        /// Expected.
        expected: u32,
    },
    /// The lengths in the header contradict each other.
    #[error("lengths of the header contradict each other")]
    Length,
    /// The header CRC is wrong.
    #[error("header CRC is {found:#010x}, the words give {computed:#010x}")]
    HeaderCrc {
        /// Stored.
        found: u32,
        /// Computed.
        computed: u32,
    },
}

/// A fragment whose stored CRC does not agree with its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "CRC of the fragment of source {source_id} is {found:#010x}, the words give {computed:#010x}"
)]
pub struct FragmentCrcError {
    /// Which source.
    pub source_id: SourceId,
    /// Stored.
    pub found: u32,
    /// Computed.
    pub computed: u32,
}

impl EventHeader {
    /// Words of a header with these tables.
    #[inline]
    pub const fn words(fragments: usize, missing: usize) -> usize {
        FIXED_WORDS + fragments * ENTRY_WORDS + missing + 1
    }

    /// Appends the header of an event to `out`; the fragments' words follow it in table order.
    ///
    /// # Panics
    /// If there are more than [`SOURCES_MAX`] fragments or missing sources.
    pub fn emit(&self, fragments: &[FragmentEntry], missing: &[SourceId], out: &mut Vec<u32>) {
        assert!(fragments.len() <= SOURCES_MAX && missing.len() <= SOURCES_MAX);
        let start = out.len();
        let header_words = Self::words(fragments.len(), missing.len());
        let payload: usize = fragments.iter().map(|entry| entry.words as usize).sum();
        let with_status = fragments.iter().any(|entry| !entry.status.is_good());
        let flags = u32::from(!missing.is_empty()) | (u32::from(with_status) << 1);
        let [m0, m1, m2, m3] = self.mask.to_words();
        out.extend_from_slice(&[
            MAGIC,
            (VERSION << 16) | header_words as u32,
            (header_words + payload) as u32,
            self.run.0,
            self.trigger.low(),
            (self.trigger.0 >> 32) as u32,
            (self.triggered_at.0 & 0xFFFF_FFFF) as u32,
            (self.triggered_at.0 >> 32) as u32,
            flags,
            m0,
            m1,
            m2,
            m3,
            ((fragments.len() as u32) << 16) | missing.len() as u32,
            (u32::from(self.filter_reason) << 16) | u32::from(self.streams),
            0,
        ]);
        for entry in fragments {
            out.extend_from_slice(&[entry.source.0, entry.words, entry.status.0, entry.crc]);
        }
        out.extend(missing.iter().map(|source| source.0));
        let crc = crc32c(&out[start..]);
        out.push(crc);
    }
}

/// A checked view of an event.
#[derive(Debug, Clone, Copy)]
pub struct EventView<'a> {
    words: &'a [u32],
    header: EventHeader,
    fragments: usize,
    missing: usize,
}

impl<'a> EventView<'a> {
    /// Checks magic, lengths and header CRC; the fragments' CRCs are left to
    /// [`EventView::verify_fragments`].
    ///
    /// # Errors
    /// An [`EventError`] that says what is wrong.
    pub fn new_checked(words: &'a [u32]) -> Result<Self, EventError> {
        let needed = Self::checked_header_words(words)?;
        let computed = crc32c(&words[..needed - 1]);
        if words[needed - 1] != computed {
            return Err(EventError::HeaderCrc {
                found: words[needed - 1],
                computed,
            });
        }
        let long = |low: usize| u64::from(words[low]) | (u64::from(words[low + 1]) << 32);
        let header = EventHeader {
            run: RunNumber(words[3]),
            trigger: TriggerNumber(long(4)),
            triggered_at: RunNs(long(6)),
            mask: L2Mask::from_words([words[9], words[10], words[11], words[12]]),
            filter_reason: (words[14] >> 16) as u16,
            streams: (words[14] & 0xFFFF) as u16,
        };
        let view = Self {
            words,
            header,
            fragments: (words[13] >> 16) as usize,
            missing: (words[13] & 0xFFFF) as usize,
        };
        let payload: u64 = view.entries().map(|entry| u64::from(entry.words)).sum();
        let total = needed as u64 + payload;
        if total != u64::from(words[2]) {
            return Err(EventError::Length);
        }
        if total > words.len() as u64 {
            return Err(EventError::TooShort {
                words: words.len(),
                needed: words[2] as usize,
            });
        }
        Ok(Self {
            words: &words[..words[2] as usize],
            ..view
        })
    }

    /// The header's length, after the checks that need no CRC.
    fn checked_header_words(words: &[u32]) -> Result<usize, EventError> {
        let too_short = |needed| EventError::TooShort {
            words: words.len(),
            needed,
        };
        if words.len() <= FIXED_WORDS {
            return Err(too_short(FIXED_WORDS + 1));
        }
        for (found, expected) in [(words[0], MAGIC), (words[1] >> 16, VERSION)] {
            if found != expected {
                return Err(EventError::Magic { found, expected });
            }
        }
        let needed = (words[1] & 0xFFFF) as usize;
        let tables = EventHeader::words((words[13] >> 16) as usize, (words[13] & 0xFFFF) as usize);
        if needed != tables {
            return Err(EventError::Length);
        }
        if words.len() < needed {
            Err(too_short(needed))
        } else {
            Ok(needed)
        }
    }

    /// The fixed part of the header.
    #[inline]
    pub fn header(&self) -> EventHeader {
        self.header
    }

    /// All words of the event.
    #[inline]
    pub fn words(&self) -> &'a [u32] {
        self.words
    }

    /// Whether sources are missing.
    #[inline]
    pub fn is_incomplete(&self) -> bool {
        self.missing > 0
    }

    /// The table of fragments.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = FragmentEntry> + 'a {
        let table = &self.words[FIXED_WORDS..FIXED_WORDS + self.fragments * ENTRY_WORDS];
        table.chunks_exact(ENTRY_WORDS).map(|entry| FragmentEntry {
            source: SourceId(entry[0]),
            words: entry[1],
            status: FragmentStatus(entry[2]),
            crc: entry[3],
        })
    }

    /// The sources that are missing.
    #[inline]
    pub fn missing(&self) -> impl ExactSizeIterator<Item = SourceId> + 'a {
        let start = FIXED_WORDS + self.fragments * ENTRY_WORDS;
        self.words[start..start + self.missing]
            .iter()
            .map(|word| SourceId(*word))
    }

    /// Each fragment with its words.
    #[inline]
    pub fn fragments(&self) -> impl Iterator<Item = (FragmentEntry, &'a [u32])> + 'a {
        let mut start = EventHeader::words(self.fragments, self.missing);
        let words = self.words;
        self.entries().map(move |entry| {
            let end = start + entry.words as usize;
            let fragment = &words[start..end];
            start = end;
            (entry, fragment)
        })
    }

    /// Compares each fragment's stored CRC with its words.
    ///
    /// # Errors
    /// The first fragment that does not agree.
    pub fn verify_fragments(&self) -> Result<(), FragmentCrcError> {
        for (entry, words) in self.fragments() {
            let computed = crc32c(words);
            if computed != entry.crc {
                let (source_id, found) = (entry.source, entry.crc);
                return Err(FragmentCrcError {
                    source_id,
                    found,
                    computed,
                });
            }
        }
        Ok(())
    }
}

/// The words of one fragment, which may lie in several pages.
#[derive(Debug, Clone, Default)]
pub struct FragmentParts<'a> {
    /// The slices in order.
    pub parts: ArrayVec<&'a [u32], FRAGMENT_PAGES_MAX>,
}

impl<'a> FragmentParts<'a> {
    /// A fragment in one slice.
    pub fn whole(words: &'a [u32]) -> Self {
        let mut parts = ArrayVec::new();
        parts.push(words);
        Self { parts }
    }

    /// The words from the first on: no value may be taken to lie within one slice.
    #[inline]
    pub fn iter(&self) -> PartWords<'_> {
        PartWords::new(&self.parts)
    }

    /// Number of words.
    #[inline]
    pub fn words(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

/// Access to a whole event wherever it lies: in pages (real or simulated) or in a file.
///
/// Event filters are written against it, so that the same filter runs on line and off line.
pub trait EventAccess {
    /// The builder's key.
    fn trigger(&self) -> TriggerNumber;
    /// Level-2 decision after prescale.
    fn mask(&self) -> L2Mask;
    /// Whether sources are missing.
    fn is_incomplete(&self) -> bool;
    /// Number of fragments.
    fn fragment_count(&self) -> usize;
    /// Table entry of a fragment.
    ///
    /// # Panics
    /// If `index` is not below [`EventAccess::fragment_count`].
    fn entry(&self, index: usize) -> FragmentEntry;
    /// Words of a fragment.
    ///
    /// # Panics
    /// If `index` is not below [`EventAccess::fragment_count`].
    fn parts(&self, index: usize) -> FragmentParts<'_>;
}

/// The table entry of a fragment as it goes into a file: with its CRC computed where the receiver
/// did not (checks switched off leave it 0), so that a stored event can always be verified.
///
/// # Panics
/// If `index` is not below [`EventAccess::fragment_count`].
pub fn stored_entry(event: &dyn EventAccess, index: usize) -> FragmentEntry {
    let mut entry = event.entry(index);
    if entry.crc == 0 {
        let mut crc = Crc32c::new();
        for part in event.parts(index).parts {
            crc.update(part);
        }
        entry.crc = crc.value();
    }
    entry
}

impl EventAccess for EventView<'_> {
    #[inline]
    fn trigger(&self) -> TriggerNumber {
        self.header.trigger
    }

    #[inline]
    fn mask(&self) -> L2Mask {
        self.header.mask
    }

    #[inline]
    fn is_incomplete(&self) -> bool {
        self.missing > 0
    }

    #[inline]
    fn fragment_count(&self) -> usize {
        self.fragments
    }

    #[inline]
    fn entry(&self, index: usize) -> FragmentEntry {
        self.entries()
            .nth(index)
            .expect("the caller keeps the index below fragment_count")
    }

    #[inline]
    fn parts(&self, index: usize) -> FragmentParts<'_> {
        let (_, words) = self
            .fragments()
            .nth(index)
            .expect("the caller keeps the index below fragment_count");
        FragmentParts::whole(words)
    }
}
