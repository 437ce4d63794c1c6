//! Frames that carry the blocks of a link over a network or lie in a file.
//!
//! A frame is a header of six words and data words of one block; a block of more words goes on in
//! the next frame. A UDP datagram is one frame, a TCP stream and a file are frames one after the
//! other. Numbers let the receiver put datagrams in order and say what never came: frames are
//! numbered without gaps, and so are blocks. The page is `docs/formats/link-frame.md`.
//!
//! ```text
//! w0 0x4C544C46   w1 31:16 version, 1 end of block, 0 begin of block   w2 frame number, low half
//! w3 high half    w4 block number, low half (receivers extend it)      w5 data words   data ..
//! ```
//! Between blocks a sender may say how much it has sent, in a tally: a header with bit 2 of w1, the
//! number that the next frame and block will have, and no data. What the receiver says back is in
//! [`crate::link_return`].

/// First word.
pub const MAGIC: u32 = 0x4C54_4C46;
/// Version.
pub const VERSION: u32 = 1;
/// Words of the header.
pub const HEADER_WORDS: usize = 6;
/// Most data words of a frame: a datagram has at most 65 507 bytes.
pub const DATA_WORDS_MAX: usize = 16_370;

const BEGINS: u32 = 1;
const ENDS: u32 = 2;
const TALLY: u32 = 4;

/// What a sender says of how much it has sent: whatever has a lower number and does not come is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkTally {
    /// Frames of this link so far.
    pub frames: u64,
    /// Blocks of this link so far, low half.
    pub blocks_low: u32,
}

impl LinkTally {
    /// Its words.
    pub fn emit(&self) -> [u32; HEADER_WORDS] {
        let (low, high) = (self.frames as u32, (self.frames >> 32) as u32);
        [MAGIC, VERSION << 16 | TALLY, low, high, self.blocks_low, 0]
    }

    /// Reads the words of a header; `None` if they are no tally.
    #[inline]
    pub fn parse(words: &[u32; HEADER_WORDS]) -> Option<Self> {
        let [magic, flags, low, high, blocks_low, data_words] = *words;
        let is_tally = magic == MAGIC && flags == VERSION << 16 | TALLY && data_words == 0;
        is_tally.then_some(Self {
            frames: u64::from(high) << 32 | u64::from(low),
            blocks_low,
        })
    }

    /// The blocks sent, of which `settled` came or are lost for certain. A tally that is older than
    /// those says as many as are settled.
    pub fn blocks(&self, settled: u64) -> u64 {
        let ahead = self.blocks_low.wrapping_sub(settled as u32) as i32;
        settled + u64::try_from(ahead).unwrap_or(0)
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The first data word is the block's first.
    pub begins_block: bool,
    /// The last data word is the block's last.
    pub ends_block: bool,
    /// Frames of this link before it, those lost included.
    pub number: u64,
    /// Blocks of this link before its block, low half.
    pub block_low: u32,
    /// Data words that follow, at most [`DATA_WORDS_MAX`].
    pub data_words: usize,
}

/// Why words are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not the first word of a frame.
    #[error("frame starts with {found:#010x}, expected {MAGIC:#010x}")]
    Magic {
        /// The word.
        found: u32,
    },
    /// Another version, or bits without a meaning.
    #[error("second word of the frame is {found:#010x}, of no version that is known")]
    Version {
        /// The word.
        found: u32,
    },
    /// A length that no frame has, or not that of the datagram.
    #[error("frame of {found} data words, expected {expected}")]
    Length {
        /// The length it says.
        found: usize,
        /// What there is, or the most allowed.
        expected: usize,
    },
}

impl FrameHeader {
    /// Its words.
    pub fn emit(&self) -> [u32; HEADER_WORDS] {
        let begins = if self.begins_block { BEGINS } else { 0 };
        let ends = if self.ends_block { ENDS } else { 0 };
        [
            MAGIC,
            VERSION << 16 | ends | begins,
            self.number as u32,
            (self.number >> 32) as u32,
            self.block_low,
            self.data_words as u32,
        ]
    }

    /// Reads a header.
    ///
    /// # Errors
    /// A [`FrameError`].
    pub fn parse(words: &[u32; HEADER_WORDS]) -> Result<Self, FrameError> {
        let [magic, flags, low, high, block_low, data_words] = *words;
        if magic != MAGIC {
            return Err(FrameError::Magic { found: magic });
        }
        if flags & !(BEGINS | ENDS) != VERSION << 16 {
            return Err(FrameError::Version { found: flags });
        }
        let data_words = data_words as usize;
        if data_words > DATA_WORDS_MAX {
            let (found, expected) = (data_words, DATA_WORDS_MAX);
            return Err(FrameError::Length { found, expected });
        }
        Ok(Self {
            begins_block: flags & BEGINS != 0,
            ends_block: flags & ENDS != 0,
            number: u64::from(high) << 32 | u64::from(low),
            block_low,
            data_words,
        })
    }

    /// Reads a frame that is all of `words`, as a datagram is.
    ///
    /// # Errors
    /// A [`FrameError`].
    pub fn parse_whole(words: &[u32]) -> Result<(Self, &[u32]), FrameError> {
        let Some((head, data)) = words.split_first_chunk::<HEADER_WORDS>() else {
            let (found, expected) = (words.len(), HEADER_WORDS);
            return Err(FrameError::Length { found, expected });
        };
        let header = Self::parse(head)?;
        if header.data_words != data.len() {
            let (found, expected) = (header.data_words, data.len());
            return Err(FrameError::Length { found, expected });
        }
        Ok((header, data))
    }
}

/// Numbers the frames of a link as they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameNumbers {
    next_frame: u64,
    next_block: u64,
}

impl FrameNumbers {
    /// The headers of a block of `words` words in frames of at most `data_words_max` words of
    /// data, and the range of the block's words that each carries.
    pub fn frames(
        &mut self,
        words: usize,
        data_words_max: usize,
    ) -> impl Iterator<Item = (FrameHeader, core::ops::Range<usize>)> + use<> {
        let most = data_words_max.clamp(1, DATA_WORDS_MAX);
        let (first, block_low) = (self.next_frame, self.next_block as u32);
        let frames = words.div_ceil(most).max(1);
        self.next_frame += frames as u64;
        self.next_block += 1;
        (0..frames).map(move |index| {
            let range = index * most..words.min((index + 1) * most);
            let header = FrameHeader {
                begins_block: index == 0,
                ends_block: index + 1 == frames,
                number: first + index as u64,
                block_low,
                data_words: range.len(),
            };
            (header, range)
        })
    }

    /// What says how many there are so far.
    pub fn tally(&self) -> LinkTally {
        LinkTally {
            frames: self.next_frame,
            blocks_low: self.next_block as u32,
        }
    }

    /// Frames made so far.
    pub fn frames_made(&self) -> u64 {
        self.next_frame
    }

    /// Blocks made so far.
    pub fn blocks_made(&self) -> u64 {
        self.next_block
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_the_golden_words() {
        let page = include_str!("../../../docs/formats/link-frame-v1.hex");
        let golden: Vec<u32> = page
            .lines()
            .filter_map(|line| line.split('#').next())
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(|text| u32::from_str_radix(text, 16).unwrap())
            .collect();
        let mut numbers = FrameNumbers {
            next_frame: 0x1_0000_0002,
            next_block: 7,
        };
        let data = [0xA, 0xB, 0xC];
        let mut words = Vec::new();
        for (header, range) in numbers.frames(3, 2) {
            words.extend(header.emit());
            words.extend(&data[range]);
        }
        words.extend(numbers.tally().emit());
        assert_eq!(words, golden);
        let tally = golden.last_chunk().and_then(LinkTally::parse);
        assert_eq!(tally, Some(numbers.tally()));
        // Who knows no tallies refuses one, and a frame is none.
        let last = golden.last_chunk().unwrap();
        assert!(FrameHeader::parse(last).is_err());
        assert_eq!(LinkTally::parse(golden.first_chunk().unwrap()), None);
    }

    #[test]
    fn a_tally_counts_blocks_on_from_those_settled() {
        let of = |blocks_low| LinkTally {
            frames: 0,
            blocks_low,
        };
        assert_eq!(of(7).blocks(7), 7);
        assert_eq!(of(9).blocks(7), 9);
        assert_eq!(of(5).blocks(7), 7, "it is older");
        assert_eq!(of(1).blocks(0xFFFF_FFFE), 0x1_0000_0001);
        assert_eq!(of(0xFFFF_FFFF).blocks(0x1_0000_0002), 0x1_0000_0002);
    }

    proptest! {
        #[test]
        fn blocks_are_whole_in_any_frames(blocks in prop::collection::vec(0usize..5000, 0..20),
                                          most in 1usize..2000) {
            let mut numbers = FrameNumbers::default();
            let mut next = 0;
            for (index, words) in blocks.iter().enumerate() {
                let mut at = 0;
                for (header, range) in numbers.frames(*words, most) {
                    prop_assert_eq!(FrameHeader::parse(&header.emit()), Ok(header));
                    prop_assert_eq!((header.number, header.block_low), (next, index as u32));
                    prop_assert_eq!(header.begins_block, at == 0);
                    prop_assert_eq!(range.start, at);
                    at = range.end;
                    prop_assert_eq!(header.ends_block, at == *words);
                    next += 1;
                }
            }
            prop_assert_eq!(numbers.frames_made(), next);
            prop_assert_eq!(numbers.blocks_made(), blocks.len() as u64);
        }

        #[test]
        fn any_words_are_read_or_refused(words in prop::collection::vec(any::<u32>(), 0..12)) {
            let _ = FrameHeader::parse_whole(&words);
        }
    }
}
