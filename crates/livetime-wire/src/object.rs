//! The object block: full-precision physics objects at the start of a fragment's data.
//!
//! ```text
//! word 0  0x4F424A01        "OBJ", version 1
//!      1  31:16 objects in this block | 15:0 words of the block, this header included
//!      2  run number of the source
//!      3  event number of the source, low word
//!      4  event number of the source, high word
//!      5  objects in the whole event
//! then, for each object, 6 words:
//!      0  31:16 index in the event | 15:0 kind (1 muon, 2 electron, 3 track, 4 jet, 5 photon)
//!      1  pt [GeV]    2  eta    3  phi [rad, -pi..pi]    4  charge [e]    5  dxy [cm]   (f32)
//! ```
//!
//! Trigger words are coarse on purpose; mass plots come from these values. Object `i` of an event
//! travels in the fragment of data link `i mod links`, so that a dimuon needs two links and, in
//! general, two readout units: a wrongly built event cannot show a Z peak.

use crate::id::{EventNumber, RunNumber};
use crate::part_words::PartWords;

/// First word of a block.
pub const MAGIC: u32 = 0x4F42_4A01;
/// Words of the block header.
pub const HEADER_WORDS: usize = 6;
/// Words of one object.
pub const OBJECT_WORDS: usize = 6;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum ObjectKind {
    /// Muon.
    Muon = 1,
    /// Electron.
    Electron = 2,
    /// Charged track without identification.
    Track = 3,
    /// Jet.
    Jet = 4,
    /// Photon.
    Photon = 5,
}

impl ObjectKind {
    /// The kind of a code.
    pub fn from_code(code: u16) -> Option<Self> {
        [
            Self::Muon,
            Self::Electron,
            Self::Track,
            Self::Jet,
            Self::Photon,
        ]
        .into_iter()
        .find(|kind| *kind as u16 == code)
    }
}

/// One physics object with full precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhysicsObject {
    /// What it is.
    pub kind: ObjectKind,
    /// Index in its event.
    pub index: u16,
    /// Transverse momentum in GeV.
    pub pt: f32,
    /// Pseudorapidity.
    pub eta: f32,
    /// Azimuth in rad, -pi..pi.
    pub phi: f32,
    /// Charge in e.
    pub charge: f32,
    /// Transverse impact parameter in cm with respect to (0, 0): -x sin(phi) + y cos(phi).
    pub dxy: f32,
}

/// Header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectBlock {
    /// Run number of the source.
    pub source_run: RunNumber,
    /// Event number of the source.
    pub source_event: EventNumber,
    /// Objects in the whole event.
    pub event_objects: u32,
}

/// Why words are not an object block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Fewer words than a header takes or than the header names.
    #[error("{words} words are too few, the block takes {needed}")]
    TooShort {
        /// Words found.
        words: usize,
        /// Words needed.
        needed: usize,
    },
    /// The first word is not a block's.
    #[error("block starts with {found:#010x}, expected {MAGIC:#010x}")]
    Magic {
        /// The word found.
        found: u32,
    },
    /// Count and length in the header contradict each other.
    #[error("header names {count} objects and {words} words")]
    Length {
        /// Objects named.
        count: usize,
        /// Words named.
        words: usize,
    },
    /// An object's kind does not exist.
    #[error("object {index} has the unknown kind {kind}")]
    Kind {
        /// Which object of the block.
        index: usize,
        /// Its kind.
        kind: u16,
    },
}

impl ObjectBlock {
    /// Words of a block with `count` objects.
    #[inline]
    pub const fn words(count: usize) -> usize {
        HEADER_WORDS + count * OBJECT_WORDS
    }

    /// Emits a block; returns the number of words written.
    ///
    /// # Panics
    /// If `out` is shorter than [`ObjectBlock::words`] or there are more than 10 000 objects (the
    /// length field has 16 bits).
    pub fn emit<'a>(
        &self,
        objects: impl ExactSizeIterator<Item = &'a PhysicsObject>,
        out: &mut [u32],
    ) -> usize {
        let count = objects.len();
        assert!(count <= 10_000, "{count} objects do not fit into one block");
        let words = Self::words(count);
        let (header, items) = out[..words].split_at_mut(HEADER_WORDS);
        header.copy_from_slice(&[
            MAGIC,
            ((count as u32) << 16) | words as u32,
            self.source_run.0,
            (self.source_event.0 & 0xFFFF_FFFF) as u32,
            (self.source_event.0 >> 32) as u32,
            self.event_objects,
        ]);
        for (object, item) in objects.zip(items.chunks_exact_mut(OBJECT_WORDS)) {
            item.copy_from_slice(&[
                (u32::from(object.index) << 16) | object.kind as u32,
                object.pt.to_bits(),
                object.eta.to_bits(),
                object.phi.to_bits(),
                object.charge.to_bits(),
                object.dxy.to_bits(),
            ]);
        }
        words
    }

    /// Reads the header of a block; returns the number of objects and the words of the block as well.
    #[inline]
    fn parse(words: &[u32; HEADER_WORDS]) -> Result<(Self, usize, usize), ObjectError> {
        let [magic, sizes, run, low, high, event_objects] = *words;
        if magic != MAGIC {
            return Err(ObjectError::Magic { found: magic });
        }
        let (count, words) = ((sizes >> 16) as usize, (sizes & 0xFFFF) as usize);
        if words != Self::words(count) {
            return Err(ObjectError::Length { count, words });
        }
        let header = Self {
            source_run: RunNumber(run),
            source_event: EventNumber(u64::from(low) | (u64::from(high) << 32)),
            event_objects,
        };
        Ok((header, count, words))
    }
}

/// Refuses an object, the `index`-th of its block, whose kind does not exist.
#[inline]
fn check_kind(index: usize, first: u32) -> Result<(), ObjectError> {
    let kind = (first & 0xFFFF) as u16;
    match ObjectKind::from_code(kind) {
        Some(_) => Ok(()),
        None => Err(ObjectError::Kind { index, kind }),
    }
}

/// The object of its words, whose kind was checked.
#[inline]
fn object_of(item: &[u32; OBJECT_WORDS]) -> PhysicsObject {
    let [first, pt, eta, phi, charge, dxy] = *item;
    PhysicsObject {
        kind: ObjectKind::from_code((first & 0xFFFF) as u16).unwrap_or(ObjectKind::Track),
        index: (first >> 16) as u16,
        pt: f32::from_bits(pt),
        eta: f32::from_bits(eta),
        phi: f32::from_bits(phi),
        charge: f32::from_bits(charge),
        dxy: f32::from_bits(dxy),
    }
}

/// A checked view of an object block at the start of `words`.
#[derive(Debug, Clone, Copy)]
pub struct ObjectBlockView<'a> {
    header: ObjectBlock,
    items: &'a [[u32; OBJECT_WORDS]],
}

impl<'a> ObjectBlockView<'a> {
    /// Checks the block at the start of `words`; what follows it is not looked at.
    ///
    /// # Errors
    /// An [`ObjectError`] that says what is wrong.
    pub fn new_checked(words: &'a [u32]) -> Result<Self, ObjectError> {
        let too_short = |needed| ObjectError::TooShort {
            words: words.len(),
            needed,
        };
        let first = words.first_chunk().ok_or(too_short(HEADER_WORDS))?;
        let (header, _, needed) = ObjectBlock::parse(first)?;
        let items = words.get(HEADER_WORDS..needed).ok_or(too_short(needed))?;
        let (items, _) = items.as_chunks();
        for (index, item) in items.iter().enumerate() {
            check_kind(index, item[0])?;
        }
        Ok(Self { header, items })
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> ObjectBlock {
        self.header
    }

    /// Words of the block.
    #[inline]
    pub fn words(&self) -> usize {
        ObjectBlock::words(self.items.len())
    }

    /// The objects.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = PhysicsObject> + 'a {
        self.items.iter().map(object_of)
    }
}

/// As [`ObjectBlockView`], of a block that lies in several slices.
#[derive(Debug, Clone)]
pub struct ObjectBlockParts<'a> {
    header: ObjectBlock,
    items: PartWords<'a>,
}

impl<'a> ObjectBlockParts<'a> {
    /// Checks the block at the start of `words`; what follows it is not looked at.
    ///
    /// # Errors
    /// An [`ObjectError`] that says what is wrong.
    pub fn new_checked(mut words: PartWords<'a>) -> Result<Self, ObjectError> {
        let found = words.left();
        let too_short = |needed| ObjectError::TooShort {
            words: found,
            needed,
        };
        let first = words.next_words().ok_or(too_short(HEADER_WORDS))?;
        let (header, count, needed) = ObjectBlock::parse(&first)?;
        if found < needed {
            return Err(too_short(needed));
        }
        words.truncate(count * OBJECT_WORDS);
        let items = words.clone();
        let mut index = 0;
        while let Some([first, ..]) = words.next_words::<OBJECT_WORDS>() {
            check_kind(index, first)?;
            index += 1;
        }
        Ok(Self { header, items })
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> ObjectBlock {
        self.header
    }

    /// The objects.
    pub fn objects(&self) -> impl Iterator<Item = PhysicsObject> + 'a {
        let mut items = self.items.clone();
        std::iter::from_fn(move || items.next_words().map(|item| object_of(&item)))
    }
}
