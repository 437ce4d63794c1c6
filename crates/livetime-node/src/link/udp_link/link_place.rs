//! Where a link stands in its numbers, and which numbers can come next.
//!
//! A [`LinkPlace`] is the frame and the block that are next. Each block takes at least a frame, so
//! that the frame number of what comes says how many blocks there can be before it; what says
//! otherwise was not meant so. The numbers are those of `docs/formats/link-frame.md`.

use livetime_wire::link_frame::{FrameHeader, LinkTally};

/// Frames ahead of the place that are believed at once: more than the sockets of a run have on their
/// way. Further ahead is what follows a link that was down for long, or a flood.
pub(in crate::link) const FRAMES_AHEAD_MAX: u64 = 1 << 16;

/// What a datagram says of the numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Said<'w> {
    /// A frame with its words, header and all.
    Frame(&'w FrameHeader, &'w [u32]),
    /// How much was sent.
    Tally(LinkTally),
}

impl Said<'_> {
    /// Its frame number; of a tally, that of the next frame.
    pub(super) fn frame(&self) -> u64 {
        match self {
            Self::Frame(header, _) => header.number,
            Self::Tally(tally) => tally.frames,
        }
    }
}

/// How the numbers of a datagram and a place go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// They can both be right.
    Agrees,
    /// They are ahead, but too far, or of more blocks than there are frames for: one of both is wrong.
    Doubtful,
    /// They go back behind what came.
    Contradicts,
}

/// The frame and the block that are next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LinkPlace {
    /// The next frame.
    pub(super) frame: u64,
    /// The block that it begins or goes on with.
    pub(super) block: u64,
    /// It goes on with a block.
    pub(super) is_within_block: bool,
}

impl LinkPlace {
    /// Whether the numbers that come can be right, if this place is.
    #[inline]
    pub(super) fn judge(&self, said: Said<'_>) -> Judgement {
        match said {
            Said::Frame(header, _) => self.judge_frame(header),
            Said::Tally(tally) if tally.frames < self.frame => self.judge_old_tally(tally),
            Said::Tally(tally) => {
                // The block that is next, or open, is sent with the first of these frames.
                let frames = tally.frames - self.frame;
                let least = i64::from(frames > 0 || self.is_within_block);
                judge_ahead(self.blocks_ahead(tally.blocks_low), frames, least, 0)
            }
        }
    }

    #[inline]
    fn judge_frame(&self, header: &FrameHeader) -> Judgement {
        // No frame can follow the last number that there is.
        let is_number = header.number < u64::MAX;
        let Some(frames) = header.number.checked_sub(self.frame).filter(|_| is_number) else {
            return Judgement::Contradicts;
        };
        // A begin behind the next frame, or within a block, is of a later block than that; what is
        // no begin has one before it.
        let is_later = frames > 0 || self.is_within_block;
        let least = i64::from(header.begins_block && is_later);
        let begun_before = i64::from(!header.begins_block && (frames > 0 || !self.is_within_block));
        judge_ahead(
            self.blocks_ahead(header.block_low),
            frames,
            least,
            begun_before,
        )
    }

    /// A tally that came behind later frames says no more blocks than those, and not fewer than the
    /// frames since then can be.
    fn judge_old_tally(&self, tally: LinkTally) -> Judgement {
        let frames = i64::try_from(self.frame - tally.frames).unwrap_or(i64::MAX);
        match (0..=frames).contains(&-self.blocks_ahead(tally.blocks_low)) {
            true => Judgement::Agrees,
            false => Judgement::Contradicts,
        }
    }

    /// Blocks from this place's to one of which the low half is known, the nearest with it: negative
    /// if that one is before.
    #[inline]
    fn blocks_ahead(&self, block_low: u32) -> i64 {
        i64::from(block_low.wrapping_sub(self.block as u32) as i32)
    }

    /// A block of which the low half is known, the nearest to this place's.
    #[inline]
    pub(super) fn block_of(&self, block_low: u32) -> u64 {
        let ahead = self.blocks_ahead(block_low);
        self.block.saturating_add_signed(ahead)
    }

    /// The place at which a frame or a tally says that it is.
    pub(super) fn at(&self, said: Said<'_>) -> Self {
        match said {
            Said::Frame(header, _) => Self {
                frame: header.number,
                block: self.block_of(header.block_low),
                is_within_block: !header.begins_block,
            },
            Said::Tally(tally) => Self {
                frame: tally.frames,
                block: self.block_of(tally.blocks_low),
                is_within_block: false,
            },
        }
    }

    /// The place behind a frame.
    #[inline]
    pub(super) fn behind(&self, header: &FrameHeader) -> Self {
        Self {
            frame: header.number + 1,
            block: self.block_of(header.block_low) + u64::from(header.ends_block),
            is_within_block: !header.ends_block,
        }
    }
}

/// Judges numbers so many blocks and frames ahead: at least so many blocks, and at most one for each
/// frame but for those that began nothing.
#[inline]
fn judge_ahead(blocks: i64, frames: u64, least: i64, begun_before: i64) -> Judgement {
    if blocks < least {
        return Judgement::Contradicts;
    }
    if frames > FRAMES_AHEAD_MAX || blocks > frames as i64 - begun_before {
        return Judgement::Doubtful;
    }
    Judgement::Agrees
}

#[cfg(test)]
mod tests {
    use livetime_wire::link_frame::FrameNumbers;
    use proptest::prelude::*;

    use super::Judgement::{Agrees, Contradicts, Doubtful};
    use super::*;

    fn place(frame: u64, block: u64, is_within_block: bool) -> LinkPlace {
        LinkPlace {
            frame,
            block,
            is_within_block,
        }
    }

    fn judge_frame(place: LinkPlace, number: u64, block: u64, begins_block: bool) -> Judgement {
        let header = FrameHeader {
            begins_block,
            ends_block: true,
            number,
            block_low: block as u32,
            data_words: 0,
        };
        place.judge(Said::Frame(&header, &[]))
    }

    fn judge_tally(place: LinkPlace, frames: u64, blocks: u64) -> Judgement {
        place.judge(Said::Tally(LinkTally {
            frames,
            blocks_low: blocks as u32,
        }))
    }

    #[test]
    fn a_frame_has_the_block_number_that_its_frame_number_allows() {
        let high = 3 << 32;
        for base in [0, high] {
            let between = place(base + 50, high + 50, false);
            for (frame, block, begins, expected) in [
                (50, 50, true, Agrees),
                (60, 51, true, Agrees),
                (60, 60, true, Agrees),
                (60, 59, false, Agrees),
                // Block 50 begins with frame 50.
                (60, 50, true, Contradicts),
                (60, 49, false, Contradicts),
                (50, 49, true, Contradicts),
                (60, 61, true, Doubtful),
                (60, 60, false, Doubtful),
                (50, 50, false, Doubtful),
                (50, 51, true, Doubtful),
                (100_050, 100_050, true, Doubtful),
                (100_050, 50, true, Contradicts),
                (50 + (1 << 32), 51, true, Doubtful),
                (49, 49, true, Contradicts),
            ] {
                let found = judge_frame(between, base + frame, high + block, begins);
                assert_eq!(found, expected, "{frame} {block} {begins}");
            }
        }
        let within = place(50, 20, true);
        for (frame, block, begins, expected) in [
            (50, 20, false, Agrees),
            (51, 20, false, Agrees),
            (51, 21, true, Agrees),
            (50, 20, true, Contradicts),
            (50, 21, true, Doubtful),
            (51, 21, false, Doubtful),
        ] {
            let found = judge_frame(within, frame, block, begins);
            assert_eq!(found, expected, "{frame} {block} {begins}");
        }
        assert_eq!(judge_frame(within, u64::MAX - 1, 20, false), Doubtful);
        assert_eq!(judge_frame(within, u64::MAX, 20, false), Contradicts);
    }

    #[test]
    fn a_tally_has_the_blocks_that_its_frames_allow() {
        let between = place(50, 20, false);
        for (frames, blocks, expected) in [
            (50, 20, Agrees),
            (53, 21, Agrees),
            (53, 23, Agrees),
            (50, 25, Doubtful),
            (53, 24, Doubtful),
            (1_000_050, 1_000_020, Doubtful),
            (53, 20, Contradicts),
            (50, 19, Contradicts),
            (45, 17, Agrees),
            (45, 20, Agrees),
            (45, 14, Contradicts),
            (45, 21, Contradicts),
        ] {
            let found = judge_tally(between, frames, blocks);
            assert_eq!(found, expected, "{frames} {blocks}");
        }
        assert_eq!(judge_tally(place(50, 20, true), 50, 20), Contradicts);
        assert_eq!(judge_tally(place(50, 20, true), 51, 21), Agrees);
        assert_eq!(judge_tally(place(50, 20, true), 49, 20), Agrees);
        assert_eq!(
            place(50, 1 << 32, false).block_of(u32::MAX),
            u64::from(u32::MAX)
        );
        assert_eq!(
            place(50, 3, false).block_of(u32::MAX),
            0,
            "none is before the first"
        );
    }

    proptest! {
        /// What a sender makes agrees with every place that a receiver can be at.
        #[test]
        fn what_was_sent_agrees(blocks in prop::collection::vec(0usize..9, 1..30), most in 1usize..4) {
            let mut numbers = FrameNumbers::default();
            let (mut frames, mut tallies) = (Vec::new(), vec![numbers.tally()]);
            for words in &blocks {
                frames.extend(numbers.frames(*words, most).map(|(header, _)| header));
                tallies.push(numbers.tally());
            }
            let mut place = LinkPlace::default();
            for at in 0..=frames.len() {
                for header in &frames[at..] {
                    prop_assert_eq!(place.judge(Said::Frame(header, &[])), Agrees);
                }
                for tally in &tallies {
                    prop_assert_eq!(place.judge(Said::Tally(*tally)), Agrees);
                }
                if let Some(header) = frames.get(at) {
                    place = place.behind(header);
                }
            }
        }

        #[test]
        fn any_numbers_are_judged(words in any::<[u32; 6]>(), frame in any::<u64>(), block in any::<u64>(),
                                  is_within_block in any::<bool>()) {
            let [low, high, block_low, flags, ..] = words;
            let number = u64::from(high) << 32 | u64::from(low);
            let place = place(frame, block, is_within_block);
            let _ = judge_frame(place, number, block_low.into(), flags & 1 != 0);
            let _ = judge_tally(place, number, block_low.into());
        }
    }
}
