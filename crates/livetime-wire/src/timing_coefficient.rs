//! Coefficient sets of function generators: 12 bytes each, and blocks of them for many channels.
//!
//! ```text
//! set      word 0  a 31:16 | b 15:0                 signed, quadratic and linear
//!               1  c                                signed, start value
//!               2  shift_a 17:12 | shift_b 11:6 | frequency 5:3 | step 2:0; bits 31:18 are 0
//!
//! block    word 0  0x4C544601                       "LTF", version 1
//!               1  channels                         1 to 64
//!               2  sets of channel 0, 1, ..         one word each
//!         2 + ch   sets, channel after channel      three words each
//! ```
//!
//! Words are little-endian. What a set means, and whether its values make sense, is for
//! `livetime-timing`; here only what has no place in the bits is refused. The page is
//! `docs/formats/coefficient-block.md`.

/// Words of a set.
pub const SET_WORDS: usize = 3;
/// Bytes of a set.
pub const SET_BYTES: usize = 4 * SET_WORDS;
/// First word of a block: "LTF" and the version.
pub const BLOCK_MARK: u32 = 0x4C54_4601;
/// Channels of a block at most.
pub const BLOCK_CHANNELS: usize = 64;
/// Sets of one channel at most: more than an hour of the shortest segments.
pub const CHANNEL_SETS: u32 = 1 << 25;

/// One segment of a waveform: start value, slope and curvature in the units of the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CoefficientSet {
    /// Quadratic coefficient, shifted left by `shift_a`.
    pub a: i16,
    /// Linear coefficient, shifted left by `shift_b`.
    pub b: i16,
    /// Value at the start of the segment.
    pub c: i32,
    /// Number of samples: 250 x 2^step; 0..=7.
    pub step: u8,
    /// Sample frequency: 16, 32, 64, 125, 250, 500, 1000, 2000 kHz; 0..=7.
    pub frequency: u8,
    /// Left shift of `a`; six bits, sensible is 0..=48.
    pub shift_a: u8,
    /// Left shift of `b`; six bits, sensible is 0..=48.
    pub shift_b: u8,
}

/// Why words are not a coefficient set, or a set has no words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CoefficientError {
    /// A field is too large for its bits.
    #[error("{field} is {found}, allowed is 0 to {max}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: u8,
        /// Largest value that fits.
        max: u8,
    },
    /// Bits of the control word that must be 0 are not.
    #[error("control word of a coefficient set is {found:#010x}, bits 31 to 18 must be 0")]
    Control {
        /// The control word.
        found: u32,
    },
}

impl CoefficientSet {
    /// The three words.
    ///
    /// # Errors
    /// [`CoefficientError::Field`] for a field that does not fit its bits.
    pub fn to_words(&self) -> Result<[u32; SET_WORDS], CoefficientError> {
        let fields = [
            ("step", self.step, 7, 0),
            ("frequency", self.frequency, 7, 3),
            ("shift_b", self.shift_b, 63, 6),
            ("shift_a", self.shift_a, 63, 12),
        ];
        let mut control = 0;
        for (field, found, max, low) in fields {
            if found > max {
                return Err(CoefficientError::Field { field, found, max });
            }
            control |= u32::from(found) << low;
        }
        let ab = (u32::from(self.a.cast_unsigned()) << 16) | u32::from(self.b.cast_unsigned());
        Ok([ab, self.c.cast_unsigned(), control])
    }

    /// The set of three words.
    ///
    /// # Errors
    /// [`CoefficientError::Control`] if bits are set that belong to no field.
    pub fn from_words(words: [u32; SET_WORDS]) -> Result<Self, CoefficientError> {
        let [ab, c, control] = words;
        if control >> 18 != 0 {
            return Err(CoefficientError::Control { found: control });
        }
        let field = |low: u32, width: u32| ((control >> low) & ((1 << width) - 1)) as u8;
        Ok(Self {
            a: ((ab >> 16) as u16).cast_signed(),
            b: ((ab & 0xFFFF) as u16).cast_signed(),
            c: c.cast_signed(),
            step: field(0, 3),
            frequency: field(3, 3),
            shift_b: field(6, 6),
            shift_a: field(12, 6),
        })
    }
}

/// Why bytes are not a block of coefficient sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CoefficientBlockError {
    /// The length is not the one that the header promises.
    #[error("block has {found} bytes, expected {expected}")]
    Length {
        /// Bytes found.
        found: usize,
        /// Bytes that the header promises; of the header itself, if even that is cut.
        expected: usize,
    },
    /// The first word is not that of a block of this version.
    #[error("first word of the block is {found:#010x}, expected {BLOCK_MARK:#010x}")]
    Mark {
        /// The first word.
        found: u32,
    },
    /// The number of channels is out of range.
    #[error("block has {found} channels, allowed is 1 to {BLOCK_CHANNELS}")]
    Channels {
        /// Channels found.
        found: u32,
    },
    /// A channel claims more sets than a block may hold.
    #[error("channel {channel} has {found} sets, allowed is 0 to {CHANNEL_SETS}")]
    Sets {
        /// Which channel, from 0.
        channel: usize,
        /// Sets found.
        found: u32,
    },
    /// A set is not one.
    #[error("set {index} of channel {channel}: {error}")]
    Set {
        /// Which channel, from 0.
        channel: usize,
        /// Which set of the channel, from 0.
        index: usize,
        /// What is wrong.
        error: CoefficientError,
    },
}

/// A checked view over the bytes of a block.
///
/// The bytes must not change while the view lives: copy what a client could still write to first.
#[derive(Debug, Clone, Copy)]
pub struct CoefficientBlockView<'a> {
    bytes: &'a [u8],
    channels: usize,
}

impl<'a> CoefficientBlockView<'a> {
    /// Checks mark, number of channels and length. Never panics and never allocates; sets are
    /// read, and may still be refused, one by one.
    ///
    /// # Errors
    /// The [`CoefficientBlockError`] of the first rule broken.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, CoefficientBlockError> {
        let length = |expected: usize| CoefficientBlockError::Length {
            found: bytes.len(),
            expected,
        };
        if bytes.len() < 8 {
            return Err(length(8));
        }
        let view = Self { bytes, channels: 0 };
        if view.word(0) != BLOCK_MARK {
            return Err(CoefficientBlockError::Mark {
                found: view.word(0),
            });
        }
        let channels = view.word(1);
        if channels == 0 || channels as usize > BLOCK_CHANNELS {
            return Err(CoefficientBlockError::Channels { found: channels });
        }
        let channels = channels as usize;
        let header = 4 * (2 + channels);
        if bytes.len() < header {
            return Err(length(header));
        }
        let mut expected = header;
        for channel in 0..channels {
            let found = view.word(2 + channel);
            if found > CHANNEL_SETS {
                return Err(CoefficientBlockError::Sets { channel, found });
            }
            // At most 64 channels of 2^25 sets of 12 bytes: below 2^35.
            expected += found as usize * SET_BYTES;
        }
        if bytes.len() != expected {
            return Err(length(expected));
        }
        Ok(Self { bytes, channels })
    }

    /// Number of channels, 1..=64.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Number of sets of a channel; 0 for a channel that the block does not have.
    pub fn sets_of(&self, channel: usize) -> usize {
        if channel < self.channels {
            self.word(2 + channel) as usize
        } else {
            0
        }
    }

    /// The sets of a channel, each with its check; empty for a channel that the block does not
    /// have.
    pub fn sets(
        &self,
        channel: usize,
    ) -> impl ExactSizeIterator<Item = Result<CoefficientSet, CoefficientBlockError>> + use<'a>
    {
        let before: usize = (0..channel.min(self.channels))
            .map(|c| self.sets_of(c))
            .sum();
        let start = 4 * (2 + self.channels) + before * SET_BYTES;
        let end = start + self.sets_of(channel) * SET_BYTES;
        self.bytes[start..end]
            .chunks_exact(SET_BYTES)
            .enumerate()
            .map(move |(index, set)| {
                let word =
                    |i: usize| u32::from_le_bytes([set[i], set[i + 1], set[i + 2], set[i + 3]]);
                CoefficientSet::from_words([word(0), word(4), word(8)]).map_err(|error| {
                    CoefficientBlockError::Set {
                        channel,
                        index,
                        error,
                    }
                })
            })
    }

    fn word(&self, index: usize) -> u32 {
        let at = 4 * index;
        let bytes = &self.bytes[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

/// The bytes of a block with the sets of each channel.
///
/// # Errors
/// [`CoefficientBlockError`] for a wrong number of channels, too many sets, or a set whose fields
/// do not fit; it names channel and index.
pub fn emit_block(channels: &[&[CoefficientSet]]) -> Result<Vec<u8>, CoefficientBlockError> {
    if channels.is_empty() || channels.len() > BLOCK_CHANNELS {
        return Err(CoefficientBlockError::Channels {
            found: u32::try_from(channels.len()).unwrap_or(u32::MAX),
        });
    }
    let sets: usize = channels.iter().map(|sets| sets.len()).sum();
    let mut bytes = Vec::with_capacity(4 * (2 + channels.len()) + sets * SET_BYTES);
    bytes.extend_from_slice(&BLOCK_MARK.to_le_bytes());
    bytes.extend_from_slice(&(channels.len() as u32).to_le_bytes());
    for (channel, sets) in channels.iter().enumerate() {
        let count = u32::try_from(sets.len()).unwrap_or(u32::MAX);
        if count > CHANNEL_SETS {
            return Err(CoefficientBlockError::Sets {
                channel,
                found: count,
            });
        }
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    for (channel, sets) in channels.iter().enumerate() {
        for (index, set) in sets.iter().enumerate() {
            let words = set.to_words().map_err(|error| CoefficientBlockError::Set {
                channel,
                index,
                error,
            })?;
            for word in words {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
    }
    Ok(bytes)
}
