//! Test patterns of the SLIDAS card, which stands in place of a link: generator and checker.
//!
//! The numbers are those of CERN's own test programs for the card (SLIDAS user guide). Patterns 1
//! to 4 and the random one start anew in each block, so that a checker can join at any block; only
//! pattern 8, a fragment like those of an ATLAS readout driver, counts on from block to block. The
//! control words around a block are the link's business; when blocks are sent is
//! [`crate::pattern_source`]'s.

use core::fmt;
use core::str::FromStr;

use livetime_wire::Problem;
use livetime_wire::decision::mix64;

use crate::counter_random::{key, unit};
use crate::problem_code::PATTERN;

/// Separates the random pattern from other uses of the seed.
const PURPOSE_WORDS: u64 = 0x5041_5454;
/// Separates the injected errors from other uses of the seed.
const PURPOSE_ERRORS: u64 = 0x4552_524F;
/// Words of a block of pattern 8 before the data: eight of the header, three of status.
const ROD_HEADER_WORDS: usize = 11;
/// Words of a block of pattern 8 without data.
pub const ROD_WORDS_MIN: usize = ROD_HEADER_WORDS + 3;
/// Longest block, in words.
pub const WORDS_MAX: usize = 1 << 20;

/// A test pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// 1: a single one that moves left, from bit 0 to 31 and around.
    WalkingOne,
    /// 2: a single zero that moves left, from bit 0 to 31 and around.
    WalkingZero,
    /// 3: all ones, all zeros, and so on.
    AllOnesAllZeros,
    /// 4: 0xAAAAAAAA, 0x55555555, and so on.
    Checkerboard,
    /// 8: a fragment like those of an ATLAS readout driver.
    ReadoutDriver,
    /// Pseudo-random words, the same in each block.
    Random,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Self; 6] = [
        Self::WalkingOne,
        Self::WalkingZero,
        Self::AllOnesAllZeros,
        Self::Checkerboard,
        Self::ReadoutDriver,
        Self::Random,
    ];

    /// Its number on the card, or `random`.
    pub fn name(self) -> &'static str {
        match self {
            Self::WalkingOne => "1",
            Self::WalkingZero => "2",
            Self::AllOnesAllZeros => "3",
            Self::Checkerboard => "4",
            Self::ReadoutDriver => "8",
            Self::Random => "random",
        }
    }

    /// The least words that a block of it has.
    pub fn words_min(self) -> usize {
        if self == Self::ReadoutDriver {
            ROD_WORDS_MIN
        } else {
            1
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such pattern, known are 1, 2, 3, 4, 8 and random")]
pub struct UnknownPattern;

impl FromStr for Pattern {
    type Err = UnknownPattern;

    fn from_str(text: &str) -> Result<Self, UnknownPattern> {
        let mut all = Self::ALL.into_iter();
        all.find(|pattern| pattern.name() == text)
            .ok_or(UnknownPattern)
    }
}

/// What blocks are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PatternConfig {
    /// Which pattern. Default 1, walking one.
    pub pattern: Pattern,
    /// Words of a block without its control words: 1 (pattern 8: 14) to 1 048 576. Default 256.
    pub words: usize,
    /// Fraction of blocks with one flipped bit, 0 to 1, to see the checker at work. Default 0.
    pub error_rate: f64,
    /// Seed of the random pattern and of the errors. Default 1.
    pub seed: u64,
}

impl Default for PatternConfig {
    fn default() -> Self {
        Self {
            pattern: Pattern::WalkingOne,
            words: 256,
            error_rate: 0.0,
            seed: 1,
        }
    }
}

impl PatternConfig {
    /// Every problem of these blocks; `path` is their key path.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let least = self.pattern.words_min();
        if !(least..=WORDS_MAX).contains(&self.words) {
            let (path, allowed) = (format!("{path}.words"), format!("{least} to {WORDS_MAX}"));
            let help = "pattern 8 has 14 words around its data, the others need one word";
            problems.push(Problem::new(PATTERN, path, self.words, allowed, help));
        }
        if !(0.0..=1.0).contains(&self.error_rate) {
            let path = format!("{path}.error_rate");
            let help =
                "give the fraction of blocks with a flipped bit, 0.001 for one in a thousand";
            problems.push(Problem::new(PATTERN, path, self.error_rate, "0 to 1", help));
        }
        problems
    }
}

/// The words of block `block` (counted from 0) of a pattern, without errors.
struct Block {
    pattern: Pattern,
    words: usize,
    key: u64,
    block: u64,
}

impl Block {
    fn word(&self, index: usize) -> u32 {
        let odd = index % 2 == 1;
        match self.pattern {
            Pattern::WalkingOne => 1 << (index % 32),
            Pattern::WalkingZero => !(1 << (index % 32)),
            Pattern::AllOnesAllZeros => {
                if odd {
                    0
                } else {
                    u32::MAX
                }
            }
            Pattern::Checkerboard => {
                if odd {
                    0x5555_5555
                } else {
                    0xAAAA_AAAA
                }
            }
            Pattern::Random => (mix64(self.key.wrapping_add(index as u64)) >> 32) as u32,
            Pattern::ReadoutDriver => self.readout_driver_word(index),
        }
    }

    /// Header EE.., its bytes, version, module; L1 id, bunch crossing and trigger type, which count
    /// by 1, 3 and 3 from 1, 1 and 2 in 16, 12 and 12 bits; detector type; three words of status;
    /// data 0, 1, 2, ..; then status words, data words, and where the status stands.
    fn readout_driver_word(&self, index: usize) -> u32 {
        let data = self.words.saturating_sub(ROD_WORDS_MIN);
        let counter = |start: u64, step: u64, bits: u32| {
            let value = start.wrapping_add(self.block.wrapping_mul(step));
            (value & ((1 << bits) - 1)) as u32
        };
        match index {
            0 => 0xEEEE_EEEE,
            1 => 0x20,
            2 => 0x0800_0003,
            3 => 0xA000_0000,
            L1_ID_INDEX => counter(1, 1, 16),
            5 => counter(1, 3, 12),
            6 => counter(2, 3, 12),
            7 => 0xDE,
            8 | 10 => 0,
            9 => 4,
            _ if index < ROD_HEADER_WORDS + data => (index - ROD_HEADER_WORDS) as u32,
            _ => match index - ROD_HEADER_WORDS - data {
                0 => 3,
                1 => data as u32,
                _ => 0,
            },
        }
    }
}

/// Where pattern 8 has its L1 id.
const L1_ID_INDEX: usize = 4;

/// What a generator has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PatternCounts {
    /// Blocks.
    pub blocks: u64,
    /// Their words.
    pub words: u64,
    /// Blocks with a bit flipped on purpose.
    pub errors_injected: u64,
}

/// Makes the blocks of a pattern, one after the other.
#[derive(Debug, Clone)]
pub struct PatternGenerator {
    config: PatternConfig,
    key: u64,
    error_key: u64,
    counts: PatternCounts,
}

impl PatternGenerator {
    /// A generator at its first block; `config` has been validated.
    pub fn new(config: &PatternConfig) -> Self {
        Self {
            config: *config,
            key: key(config.seed, PURPOSE_WORDS),
            error_key: key(config.seed, PURPOSE_ERRORS),
            counts: PatternCounts::default(),
        }
    }

    /// Writes the next block over the contents of `out`.
    pub fn next_block(&mut self, out: &mut Vec<u32>) {
        let block = Block {
            pattern: self.config.pattern,
            words: self.config.words,
            key: self.key,
            block: self.counts.blocks,
        };
        out.clear();
        out.extend((0..block.words).map(|index| block.word(index)));
        let draw = mix64(self.error_key ^ mix64(block.block));
        if !out.is_empty() && unit(draw) <= self.config.error_rate {
            let place = mix64(draw);
            let index = (place % out.len() as u64) as usize;
            out[index] ^= 1 << (place >> 59);
            self.counts.errors_injected += 1;
        }
        self.counts.blocks += 1;
        self.counts.words += out.len() as u64;
    }

    /// What has been made so far.
    pub fn counts(&self) -> PatternCounts {
        self.counts
    }
}

/// What a checker has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckCounts {
    /// Blocks.
    pub blocks: u64,
    /// Their words.
    pub words: u64,
    /// Blocks of the wrong length or with a wrong word.
    pub blocks_bad: u64,
    /// Wrong words.
    pub words_bad: u64,
    /// Blocks that never came, as far as the L1 id of pattern 8 tells.
    pub blocks_missing: u64,
}

/// Why a block is not the pattern's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Its first wrong word.
    #[error("word {index} is {found:#010x}, expected {expected:#010x}")]
    Word {
        /// Which word of the block.
        index: usize,
        /// The pattern's value.
        expected: u32,
        /// The value found.
        found: u32,
    },
    /// It is too long or too short; its words were checked as far as both go.
    #[error("block has {found} words, expected {expected}")]
    Length {
        /// Words of the pattern.
        expected: usize,
        /// Words found.
        found: usize,
    },
}

/// Checks the blocks of a pattern, one after the other. A word that is wrong in the same way in
/// generator and checker does not show: both come from one formula, which the golden test pins.
#[derive(Debug, Clone)]
pub struct PatternChecker {
    config: PatternConfig,
    key: u64,
    /// The block that is expected next.
    block: u64,
    counts: CheckCounts,
}

impl PatternChecker {
    /// A checker that expects the first block; `config` is the generator's, its error rate unused.
    pub fn new(config: &PatternConfig) -> Self {
        Self {
            config: *config,
            key: key(config.seed, PURPOSE_WORDS),
            block: 0,
            counts: CheckCounts::default(),
        }
    }

    /// Checks one block. After a gap in the L1 ids of pattern 8 it goes on from the id found, so
    /// that a lost block is reported once.
    ///
    /// # Errors
    /// The first [`PatternError`] of the block; all wrong words are counted.
    pub fn check(&mut self, words: &[u32]) -> Result<(), PatternError> {
        let mut expected = Block {
            pattern: self.config.pattern,
            words: self.config.words,
            key: self.key,
            block: self.block,
        };
        let mut first = self.check_order(words, &mut expected);
        for (index, found) in words.iter().take(expected.words).enumerate() {
            let word = expected.word(index);
            if *found != word {
                self.counts.words_bad += 1;
                first.get_or_insert(PatternError::Word {
                    index,
                    expected: word,
                    found: *found,
                });
            }
        }
        if words.len() != expected.words {
            first.get_or_insert(PatternError::Length {
                expected: expected.words,
                found: words.len(),
            });
        }
        self.block = expected.block.wrapping_add(1);
        self.counts.blocks += 1;
        self.counts.words += words.len() as u64;
        self.counts.blocks_bad += u64::from(first.is_some());
        first.map_or(Ok(()), Err)
    }

    /// Moves `expected` to the block that the counters of pattern 8 say this is. Only if all three
    /// of them agree: a single wrong one is a bad word, not a gap.
    fn check_order(&mut self, words: &[u32], expected: &mut Block) -> Option<PatternError> {
        let counters = L1_ID_INDEX..L1_ID_INDEX + 3;
        let found = words.get(counters.clone())?;
        let id = expected.word(L1_ID_INDEX);
        let ahead = u64::from(found[0].wrapping_sub(id) & 0xFFFF);
        if self.config.pattern != Pattern::ReadoutDriver || ahead == 0 {
            return None;
        }
        let candidate = Block {
            block: expected.block.wrapping_add(ahead),
            ..*expected
        };
        if !counters
            .zip(found)
            .all(|(index, word)| candidate.word(index) == *word)
        {
            return None;
        }
        // More than half the range ahead is rather a step back: an old block, not a gap.
        if ahead < 0x8000 {
            self.counts.blocks_missing += ahead;
        }
        self.counts.words_bad += 1;
        *expected = candidate;
        Some(PatternError::Word {
            index: L1_ID_INDEX,
            expected: id,
            found: found[0],
        })
    }

    /// What has been seen so far.
    pub fn counts(&self) -> CheckCounts {
        self.counts
    }
}
