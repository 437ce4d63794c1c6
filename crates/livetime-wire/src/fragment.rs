//! The detector fragment: ATLAS-family ROD header and trailer around data words, with a CRC-32C.
//!
//! ```text
//! word 0  0xEE1234EE          header marker
//!      1  9                   header words
//!      2  0x03010001          format version
//!      3  source id           sub-detector << 16 | module
//!      4  run number
//!      5  trigger number      low 32 bits (the L1 identifier)
//!      6  bunch crossing
//!      7  trigger type
//!      8  detector event type
//!      9  data ..             ndata words
//!   9+n   status flags        set by the front-end, 0 = good
//!  10+n   CRC-32C             over words 0 .. 9+n
//!  11+n   2                   status words
//!  12+n   n                   data words
//!  13+n   1                   status stands after the data
//! ```
//!
//! A fragment may lie in several pages; everything here works on a list of slices. The page is
//! `docs/formats/fragment.md`.

use crate::crc::Crc32c;
use crate::id::{RunNumber, SourceId, TriggerNumber};

/// First word of a fragment; the middle 0x1234 gives the byte order.
pub const MARKER: u32 = 0xEE12_34EE;
/// Which word is the bunch crossing.
pub const BUNCH_WORD: usize = 6;
/// Words before the data.
pub const HEADER_WORDS: usize = 9;
/// Words after the data: two status, three trailer words.
pub const TRAILER_WORDS: usize = 5;
/// Words of a fragment without data.
pub const OVERHEAD_WORDS: usize = HEADER_WORDS + TRAILER_WORDS;
/// Format version.
pub const VERSION: u32 = 0x0301_0001;

/// The header of a fragment, without the constant words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Who sent it.
    pub source: SourceId,
    /// Run number.
    pub run: RunNumber,
    /// Low 32 bits of the trigger number.
    pub trigger_low: u32,
    /// Bunch crossing.
    pub bunch: u32,
    /// Trigger type given by Level 1.
    pub trigger_type: u32,
    /// Detector event type.
    pub event_type: u32,
}

/// Why words are not a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// Fewer words than header and trailer take.
    #[error("{words} words are too few for a fragment, at least {OVERHEAD_WORDS} are needed")]
    TooShort {
        /// Words found.
        words: usize,
    },
    /// The first words are not a header.
    #[error("word {index} of the header is {found:#010x}, expected {expected:#010x}")]
    Header {
        /// Which word.
        index: usize,
        /// Its value.
        found: u32,
        /// The value of a fragment.
        expected: u32,
    },
    /// The trailer does not describe a fragment of this length.
    #[error("trailer says {status} status and {data} data words, the fragment has {words} words")]
    Trailer {
        /// Status words that it names.
        status: u32,
        /// Data words that it names.
        data: u32,
        /// Words found in all.
        words: usize,
    },
}

/// What [`check_parts`] found out about a well-framed fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentCheck {
    /// The header.
    pub header: FragmentHeader,
    /// Status flags set by the front-end.
    pub front_end_status: u32,
    /// Number of data words.
    pub data_words: usize,
    /// Whether the CRC carried by the fragment is that of its words; `None` if not computed.
    pub crc_good: Option<bool>,
    /// CRC-32C over *all* words of the fragment, as event tables carry it; 0 if not computed.
    pub crc_all: u32,
}

/// Whether to compute checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrcCheck {
    /// Compute and compare.
    On,
    /// Trust the link.
    Off,
}

impl FragmentHeader {
    /// Reads the header from the first words of a fragment.
    ///
    /// # Errors
    /// [`FragmentError::TooShort`] below [`HEADER_WORDS`] words, [`FragmentError::Header`] if the
    /// marker or the header size is not a fragment's.
    pub fn parse(words: &[u32]) -> Result<Self, FragmentError> {
        let [
            marker,
            size,
            _version,
            source,
            run,
            trigger_low,
            bunch,
            trigger_type,
            event_type,
            ..,
        ] = *words
        else {
            return Err(FragmentError::TooShort { words: words.len() });
        };
        for (index, found, expected) in [(0, marker, MARKER), (1, size, HEADER_WORDS as u32)] {
            if found != expected {
                return Err(FragmentError::Header {
                    index,
                    found,
                    expected,
                });
            }
        }
        Ok(Self {
            source: SourceId(source),
            run: RunNumber(run),
            trigger_low,
            bunch,
            trigger_type,
            event_type,
        })
    }

    /// Emits a whole fragment: this header, `data_words` words written by `fill`, status and
    /// trailer. Returns the number of words written.
    ///
    /// # Panics
    /// If `out` is shorter than `data_words` + [`OVERHEAD_WORDS`].
    pub fn emit(
        &self,
        front_end_status: u32,
        data_words: usize,
        out: &mut [u32],
        fill: impl FnOnce(&mut [u32]),
    ) -> usize {
        let out = &mut out[..data_words + OVERHEAD_WORDS];
        let (header, rest) = out.split_at_mut(HEADER_WORDS);
        header.copy_from_slice(&[
            MARKER,
            HEADER_WORDS as u32,
            VERSION,
            self.source.0,
            self.run.0,
            self.trigger_low,
            self.bunch,
            self.trigger_type,
            self.event_type,
        ]);
        fill(&mut rest[..data_words]);
        rest[data_words] = front_end_status;
        let crc = crate::crc::crc32c(&out[..HEADER_WORDS + data_words + 1]);
        let trailer = &mut out[HEADER_WORDS + data_words + 1..];
        trailer.copy_from_slice(&[crc, 2, data_words as u32, 1]);
        out.len()
    }

    /// The full trigger number, the one nearest to `near`.
    #[inline]
    pub fn trigger(&self, near: TriggerNumber) -> TriggerNumber {
        near.extend(self.trigger_low)
    }
}

/// Reads the word at `index` of a fragment that lies in `parts`.
#[inline]
fn word_at(parts: &[&[u32]], mut index: usize) -> Option<u32> {
    for part in parts {
        if let Some(word) = part.get(index) {
            return Some(*word);
        }
        index -= part.len();
    }
    None
}

/// Checks a fragment that lies in one or more slices: framing, lengths and, if asked, its CRC.
///
/// # Errors
/// A [`FragmentError`] when the words are not a well-framed fragment; a wrong CRC is not an error
/// but reported in the result, since such a fragment can still be filed under its header.
pub fn check_parts(parts: &[&[u32]], crc: CrcCheck) -> Result<FragmentCheck, FragmentError> {
    // Most fragments lie in one page, where words are found at once.
    match parts {
        [whole] => check(parts, whole.len(), |index| whole.get(index).copied(), crc),
        _ => {
            let words = parts.iter().map(|part| part.len()).sum();
            check(parts, words, |index| word_at(parts, index), crc)
        }
    }
}

#[inline]
fn check(
    parts: &[&[u32]],
    words: usize,
    word_at: impl Fn(usize) -> Option<u32>,
    crc: CrcCheck,
) -> Result<FragmentCheck, FragmentError> {
    if words < OVERHEAD_WORDS {
        return Err(FragmentError::TooShort { words });
    }
    let word = |index| word_at(index).ok_or(FragmentError::TooShort { words });
    let mut start = [0; HEADER_WORDS];
    for (index, place) in start.iter_mut().enumerate() {
        *place = word(index)?;
    }
    let header = FragmentHeader::parse(&start)?;
    let from_end = |n| word(words - n);
    let (status, data, position) = (from_end(3)?, from_end(2)?, from_end(1)?);
    if status != 2 || data as usize != words - OVERHEAD_WORDS || position != 1 {
        return Err(FragmentError::Trailer {
            status,
            data,
            words,
        });
    }
    let (crc_good, crc_all) = match crc {
        CrcCheck::Off => (None, 0),
        CrcCheck::On => {
            let (covered, all) = crc_of_parts(parts, words - 4);
            (Some(covered == from_end(4)?), all)
        }
    };
    Ok(FragmentCheck {
        header,
        front_end_status: from_end(5)?,
        data_words: data as usize,
        crc_good,
        crc_all,
    })
}

/// CRC-32C of the first `covered` words, and of all.
fn crc_of_parts(parts: &[&[u32]], mut covered: usize) -> (u32, u32) {
    let mut crc = Crc32c::new();
    let mut crc_covered = crc.value();
    for part in parts {
        let split = covered.min(part.len());
        if split > 0 {
            crc.update(&part[..split]);
            covered -= split;
            crc_covered = crc.value();
        }
        if split < part.len() {
            crc.update(&part[split..]);
        }
    }
    (crc_covered, crc.value())
}

/// A checked view of a fragment in one slice.
#[derive(Debug, Clone, Copy)]
pub struct FragmentView<'a> {
    words: &'a [u32],
    check: FragmentCheck,
}

impl<'a> FragmentView<'a> {
    /// Checks framing, lengths and CRC of `words`.
    ///
    /// # Errors
    /// As [`check_parts`].
    #[inline]
    pub fn new_checked(words: &'a [u32]) -> Result<Self, FragmentError> {
        let check = check_parts(&[words], CrcCheck::On)?;
        Ok(Self { words, check })
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> FragmentHeader {
        self.check.header
    }

    /// What the check found.
    #[inline]
    pub fn check(&self) -> FragmentCheck {
        self.check
    }

    /// The data words.
    #[inline]
    pub fn data(&self) -> &'a [u32] {
        &self.words[HEADER_WORDS..HEADER_WORDS + self.check.data_words]
    }

    /// All words.
    #[inline]
    pub fn words(&self) -> &'a [u32] {
        self.words
    }
}
