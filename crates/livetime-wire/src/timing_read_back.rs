//! Read-back of function generators: what they put out and what the magnets did, in a fragment.
//!
//! ```text
//! word 0  0x52424B01          "RBK", version 1
//!      1  generators          1 to 64
//!      2  gate                1 open, 0 closed
//!      3  output              of generator 0, signed, 1 / 2^31 of full scale
//!      4  read-back           of its magnet, in the same units
//!      ..                     two words for each further generator
//! ```
//!
//! The block stands in the data words of an ordinary fragment, see [`crate::fragment`]. The page is
//! `docs/formats/read-back.md`.

/// First word: "RBK" and the version.
pub const MARK: u32 = 0x5242_4B01;
/// Words before the generators.
pub const HEADER_WORDS: usize = 3;
/// Generators of a block at most.
pub const GENERATORS_MAX: usize = 64;

/// One generator and its magnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadBack {
    /// Output of the generator, 1 / 2^31 of full scale.
    pub output: i32,
    /// What the magnet does, in the same units.
    pub read_back: i32,
}

/// Why words are not a read-back block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadBackError {
    /// The first word is not that of a block of this version.
    #[error("first word of the read-back is {found:#010x}, expected {MARK:#010x}")]
    Mark {
        /// The first word; 0 if there is none.
        found: u32,
    },
    /// The length is not the one of so many generators.
    #[error("read-back of {generators} generators has {words} words")]
    Length {
        /// Generators that the header names.
        generators: u32,
        /// Words found.
        words: usize,
    },
}

/// Words of a block.
pub const fn words_of(generators: usize) -> usize {
    HEADER_WORDS + 2 * generators
}

/// Writes a block into `out`, which has [`words_of`] words.
///
/// # Panics
/// If `out` has another length, or there are more than [`GENERATORS_MAX`] generators.
pub fn emit(gate_open: bool, generators: impl ExactSizeIterator<Item = ReadBack>, out: &mut [u32]) {
    let count = generators.len();
    assert!(count <= GENERATORS_MAX, "a block has at most 64 generators");
    assert!(out.len() == words_of(count), "the caller made room");
    out[0] = MARK;
    out[1] = count as u32;
    out[2] = u32::from(gate_open);
    for (place, generator) in out[HEADER_WORDS..].chunks_exact_mut(2).zip(generators) {
        place[0] = generator.output.cast_unsigned();
        place[1] = generator.read_back.cast_unsigned();
    }
}

/// A checked view over the words of a block.
#[derive(Debug, Clone, Copy)]
pub struct ReadBackView<'a>(&'a [u32]);

impl<'a> ReadBackView<'a> {
    /// Checks mark and length.
    ///
    /// # Errors
    /// [`ReadBackError`] of the first rule broken.
    pub fn new_checked(words: &'a [u32]) -> Result<Self, ReadBackError> {
        let found = words.first().copied().unwrap_or(0);
        if found != MARK {
            return Err(ReadBackError::Mark { found });
        }
        let generators = words.get(1).copied().unwrap_or(0);
        let fits = generators as usize <= GENERATORS_MAX
            && generators > 0
            && words.len() == words_of(generators as usize);
        if !fits {
            return Err(ReadBackError::Length {
                generators,
                words: words.len(),
            });
        }
        Ok(Self(words))
    }

    /// Whether the trigger gate was open.
    pub fn is_gate_open(&self) -> bool {
        self.0[2] != 0
    }

    /// The generators, in order.
    pub fn generators(&self) -> impl ExactSizeIterator<Item = ReadBack> + use<'a> {
        self.0[HEADER_WORDS..].chunks_exact(2).map(|pair| ReadBack {
            output: pair[0].cast_signed(),
            read_back: pair[1].cast_signed(),
        })
    }
}
