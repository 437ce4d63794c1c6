//! Which frame or tally may come next where nothing is lost: on a stream, and in a file.
//!
//! [`FrameOrder`] is what the check of a file before a run and the link that plays it judge by, so that
//! both end at the same word. Datagrams have a window instead: [`super::udp_link`].

use livetime_wire::link_frame::{FrameError, FrameHeader, HEADER_WORDS, LinkTally};

use super::stream_link::StreamError;

/// What begins with the six words of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameHead {
    /// Data words follow.
    Frame(FrameHeader),
    /// Nothing of it follows.
    Tally(LinkTally),
}

impl FrameHead {
    /// Reads a head.
    ///
    /// # Errors
    /// A [`FrameError`].
    #[inline]
    pub(super) fn parse(words: &[u32; HEADER_WORDS]) -> Result<Self, FrameError> {
        match LinkTally::parse(words) {
            Some(tally) => Ok(Self::Tally(tally)),
            None => FrameHeader::parse(words).map(Self::Frame),
        }
    }
}

/// What came so far, in order and without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FrameOrder {
    next_number: u64,
    /// The number of the open block, or of the one that begins next.
    block: u64,
    is_in_block: bool,
}

impl FrameOrder {
    /// The number that the next frame has, which is how many came or are lost for certain.
    #[inline]
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Whether a block has begun and not ended.
    #[inline]
    pub(super) fn is_in_block(&self) -> bool {
        self.is_in_block
    }

    /// Whether this frame goes on with the open block, or begins the next one.
    ///
    /// # Errors
    /// [`StreamError::Number`] or [`StreamError::Block`].
    #[inline]
    pub(super) fn check_frame(&self, header: &FrameHeader) -> Result<(), StreamError> {
        if header.number != self.next_number {
            return Err(self.other_number(header.number));
        }
        if header.block_low != self.block as u32 || header.begins_block == self.is_in_block {
            return Err(self.other_block(header));
        }
        Ok(())
    }

    /// Whether this tally stands between two blocks and counts what came before it.
    ///
    /// # Errors
    /// [`StreamError::Tally`].
    pub(super) fn check_tally(&self, tally: &LinkTally) -> Result<(), StreamError> {
        let counts_all = tally.frames == self.next_number && tally.blocks_low == self.block as u32;
        if counts_all && !self.is_in_block {
            return Ok(());
        }
        Err(StreamError::Tally {
            frames_told: tally.frames,
            blocks_told: tally.blocks_low,
            frames: self.next_number,
            blocks: self.block as u32,
        })
    }

    /// Goes on behind a frame that was found in order.
    #[inline]
    pub(super) fn pass_frame(&mut self, header: &FrameHeader) {
        self.next_number += 1;
        self.is_in_block = !header.ends_block;
        self.block += u64::from(header.ends_block);
    }

    /// Goes on behind a tally, between two blocks; it may be ahead of what came.
    ///
    /// # Errors
    /// [`StreamError::Number`] if it is behind.
    pub(super) fn skip_to(&mut self, tally: &LinkTally) -> Result<(), StreamError> {
        if tally.frames < self.next_number {
            return Err(self.other_number(tally.frames));
        }
        (self.next_number, self.is_in_block) = (tally.frames, false);
        self.block = tally.blocks(self.block);
        Ok(())
    }

    #[cold]
    fn other_number(&self, found: u64) -> StreamError {
        let before = self.next_number.wrapping_sub(1);
        StreamError::Number { found, before }
    }

    #[cold]
    fn other_block(&self, header: &FrameHeader) -> StreamError {
        let of = |block: u32, begins: bool| match begins {
            true => format!("{block}, which begins"),
            false => format!("{block}, which goes on"),
        };
        StreamError::Block {
            number: header.number,
            found: of(header.block_low, header.begins_block),
            expected: of(self.block as u32, !self.is_in_block),
        }
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::link_frame::FrameNumbers;

    use super::*;

    #[test]
    fn a_tally_is_in_order_between_two_blocks_if_it_counts_all() {
        let (mut order, mut numbers) = (FrameOrder::default(), FrameNumbers::default());
        for words in [3, 0, 25] {
            assert!(order.check_tally(&numbers.tally()).is_ok());
            let frames: Vec<_> = numbers.frames(words, 10).collect();
            for (header, _) in &frames {
                order.check_frame(header).unwrap();
                order.pass_frame(header);
                assert!(order.check_frame(header).is_err(), "it came");
                let (frames, block) = (order.next_number, order.block as u32);
                for (frames, blocks_low, is_right) in [
                    (frames, block, header.ends_block),
                    (frames + 1, block, false),
                    (frames - 1, block, false),
                    (frames, block + 1, false),
                    (frames, block.wrapping_sub(1), false),
                ] {
                    let judged = order.check_tally(&LinkTally { frames, blocks_low });
                    assert_eq!(judged.is_ok(), is_right, "{judged:?}");
                }
            }
        }
    }

    #[test]
    fn a_tally_that_does_not_count_what_came_is_told_with_both() {
        let mut order = FrameOrder::default();
        for (header, _) in FrameNumbers::default().frames(30, 10) {
            order.pass_frame(&header);
        }
        let tally = LinkTally {
            frames: 53,
            blocks_low: 50,
        };
        assert_eq!(
            order.check_tally(&tally).unwrap_err().to_string(),
            "a tally says 53 frames and 50 blocks where 3 and 1 came"
        );
    }
}
