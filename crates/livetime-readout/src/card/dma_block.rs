//! The two blocks of the DMA protocol: pages to fill, and pages filled.
//!
//! Instead of one register write per page the host leaves a descriptor block in memory, which the
//! card fetches; instead of being read out register by register the card writes completion blocks.
//! The FILAR slides say what is exchanged and in which direction, not the layout, which is ours.
//!
//! ```text
//! descriptor block   w0  7:0, 15:8, 23:16: pages for channel 0, 1, 2; then their bus addresses in
//!                        this order
//! completion block   w0  number of entries; then per entry: channel, ACK word, start word as
//!                        received, end word as received (0 where there was none)
//! ```

use crate::card::receiver_register::ACK_LENGTH;

/// Channels of the DMA-protocol firmware.
pub const DMA_CHANNELS: usize = 3;
/// Most pages per channel in one block.
pub const PAGES_PER_CHANNEL_MAX: usize = 63;
/// Words of the longest descriptor block.
pub const DESCRIPTOR_WORDS_MAX: usize = 1 + DMA_CHANNELS * PAGES_PER_CHANNEL_MAX;
/// Words of an entry of a completion block.
pub const ENTRY_WORDS: usize = 4;
/// Most entries of a completion block.
pub const ENTRIES_MAX: usize = 63;
/// Words of the longest completion block.
pub const COMPLETION_WORDS_MAX: usize = 1 + ENTRIES_MAX * ENTRY_WORDS;

/// Why a block cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Its counts do not fit its length.
    #[error("block of {found} words, its counts say {expected}")]
    Length {
        /// Words by its counts.
        expected: usize,
        /// Words there are.
        found: usize,
    },
    /// More pages or entries than a block may have, or bits that have no meaning.
    #[error("first word of the block is {word:#010x}, at most 63 per channel are allowed")]
    Counts {
        /// The word.
        word: u32,
    },
}

/// A descriptor block in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorBlock<'a> {
    counts: [usize; DMA_CHANNELS],
    addresses: &'a [u32],
}

impl<'a> DescriptorBlock<'a> {
    /// Reads a block.
    ///
    /// # Errors
    /// A [`BlockError`].
    pub fn new_checked(words: &'a [u32]) -> Result<Self, BlockError> {
        let Some((head, addresses)) = words.split_first() else {
            let (expected, found) = (1, 0);
            return Err(BlockError::Length { expected, found });
        };
        let counts = [0, 8, 16].map(|shift| (head >> shift & 0xFF) as usize);
        if head >> 24 != 0 || counts.iter().any(|count| *count > PAGES_PER_CHANNEL_MAX) {
            return Err(BlockError::Counts { word: *head });
        }
        let expected = 1 + counts.iter().sum::<usize>();
        if expected != words.len() {
            let found = words.len();
            return Err(BlockError::Length { expected, found });
        }
        Ok(Self { counts, addresses })
    }

    /// Writes a block; returns its words. At most [`PAGES_PER_CHANNEL_MAX`] addresses of each
    /// channel are taken.
    pub fn emit(addresses: [&[u32]; DMA_CHANNELS], out: &mut [u32; DESCRIPTOR_WORDS_MAX]) -> usize {
        let mut words = 1;
        out[0] = 0;
        for (channel, addresses) in addresses.into_iter().enumerate() {
            let count = addresses.len().min(PAGES_PER_CHANNEL_MAX);
            out[0] |= (count as u32) << (8 * channel);
            out[words..words + count].copy_from_slice(&addresses[..count]);
            words += count;
        }
        words
    }

    /// The bus addresses for a channel.
    pub fn addresses(&self, channel: usize) -> &'a [u32] {
        let first = self.counts[..channel].iter().sum::<usize>();
        &self.addresses[first..first + self.counts[channel]]
    }
}

/// An entry of a completion block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionEntry {
    /// The channel of the card.
    pub channel: u32,
    /// As the ACK register gives it.
    pub ack: u32,
    /// The start word received, 0 for none.
    pub start: u32,
    /// The end word received, 0 for none.
    pub end: u32,
}

impl CompletionEntry {
    /// Data words of the page.
    pub fn len_words(&self) -> u32 {
        self.ack & ACK_LENGTH
    }

    /// Writes the entry.
    pub fn emit(&self, out: &mut [u32; ENTRY_WORDS]) {
        *out = [self.channel, self.ack, self.start, self.end];
    }

    /// Reads all entries of a block.
    ///
    /// # Errors
    /// A [`BlockError`].
    pub fn read_all(block: &[u32]) -> Result<impl Iterator<Item = Self>, BlockError> {
        let Some((count, words)) = block.split_first() else {
            let (expected, found) = (1, 0);
            return Err(BlockError::Length { expected, found });
        };
        if *count as usize > ENTRIES_MAX {
            return Err(BlockError::Counts { word: *count });
        }
        let expected = 1 + *count as usize * ENTRY_WORDS;
        if block.len() < expected {
            let found = block.len();
            return Err(BlockError::Length { expected, found });
        }
        let (entries, _) = words[..expected - 1].as_chunks::<ENTRY_WORDS>();
        Ok(entries.iter().map(|[channel, ack, start, end]| Self {
            channel: *channel,
            ack: *ack,
            start: *start,
            end: *end,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn descriptor_blocks_round_trip(
            channels in prop::array::uniform3(prop::collection::vec(any::<u32>(), 0..64)),
        ) {
            let mut out = [0; DESCRIPTOR_WORDS_MAX];
            let words = DescriptorBlock::emit([&channels[0], &channels[1], &channels[2]], &mut out);
            let block = DescriptorBlock::new_checked(&out[..words]).unwrap();
            for (channel, addresses) in channels.iter().enumerate() {
                prop_assert_eq!(block.addresses(channel), &addresses[..]);
            }
        }

        #[test]
        fn any_words_are_read_or_refused(words in prop::collection::vec(any::<u32>(), 0..20)) {
            let _ = DescriptorBlock::new_checked(&words);
            let _ = CompletionEntry::read_all(&words).map(Iterator::count);
        }
    }

    #[test]
    fn bad_blocks_are_refused_with_what_is_wrong() {
        let counts = BlockError::Counts { word: 64 };
        assert_eq!(DescriptorBlock::new_checked(&[64]), Err(counts));
        let length = BlockError::Length {
            expected: 3,
            found: 2,
        };
        assert_eq!(DescriptorBlock::new_checked(&[0x0101, 5]), Err(length));
        assert!(CompletionEntry::read_all(&[1, 0, 0, 0]).is_err());
        let entry = CompletionEntry {
            channel: 2,
            ack: 0x4000_0010,
            start: 0xB0F0_0000,
            end: 0xE0F0_0001,
        };
        let mut block = [1; 1 + ENTRY_WORDS];
        entry.emit((&mut block[1..]).try_into().unwrap());
        let entries: Vec<_> = CompletionEntry::read_all(&block).unwrap().collect();
        assert_eq!((entries[0], entries[0].len_words()), (entry, 16));
    }
}
