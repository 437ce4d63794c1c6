//! Frames in order into pages: what the links over UDP, TCP and files have in common.
//!
//! A [`BlockReceiver`] turns each block of frames into the words of a link, control words around
//! it, for the [`Receiver`] that it holds. A frame that is missing cuts the block it belongs to;
//! blocks that did not come whole are counted as lost, by their numbers. It reads nothing itself.

use livetime_readout::{
    Completed, FlowControl, LineBlock, LineSlice, LinkConfig, LinkState, LinkStatus, PageError,
    PageLink, PageStore, Receiver,
};
use livetime_wire::link_frame::FrameHeader;
use livetime_wire::{LossCause, LossCounts, RunNs};

/// How far a frame has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FrameStage {
    /// Its begin word is next, if it begins a block.
    #[default]
    Begin,
    /// So many of its data words are taken.
    Data(usize),
    /// Its end word is next.
    End,
}

/// What became of frames and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameCounters {
    /// Frames taken whole.
    pub frames: u64,
    /// Frames of blocks whose begin is missing, dropped.
    pub frames_without_begin: u64,
    /// Frames that go on with a block where none is open and nothing was missing, dropped.
    pub frames_of_no_block: u64,
    /// Frames that begin a block of a number that is settled already, dropped.
    pub frames_backwards: u64,
    /// Frames that never came, by their numbers.
    pub frames_missing: u64,
    /// Blocks taken whole.
    pub blocks: u64,
    /// Blocks lost, by their numbers, wholly or in part; the same number is in the losses.
    pub blocks_lost: u64,
    /// Times that no page was there, so that the link had to wait.
    pub stalls: u64,
}

/// Frames of one link into pages.
pub struct BlockReceiver<S> {
    receiver: Receiver,
    store: S,
    begin: livetime_wire::slink::ControlWord,
    end: livetime_wire::slink::ControlWord,
    is_open: bool,
    /// What comes without a begin may be the rest of a block of which something was missing.
    may_be_rest: bool,
    /// Blocks before the next one that can be whole.
    next_block: u64,
    counters: FrameCounters,
    losses: LossCounts,
}

impl<S: PageStore> BlockReceiver<S> {
    /// A receiver for the pages of `store` from `first_page` on; `config` has been validated.
    pub fn new(config: LinkConfig, first_page: u32, store: S) -> Self {
        Self {
            begin: config.begin,
            end: config.end,
            receiver: Receiver::new(config, first_page),
            store,
            is_open: false,
            may_be_rest: false,
            next_block: 0,
            counters: FrameCounters::default(),
            losses: LossCounts::new(),
        }
    }

    /// Takes the next frame from where `stage` says; `false`, and `stage` moved, when no page is
    /// there for the rest. One that begins a block which is settled already is dropped, and harms
    /// nothing.
    pub fn take(
        &mut self,
        now: RunNs,
        header: &FrameHeader,
        data: &[u32],
        stage: &mut FrameStage,
    ) -> bool {
        let is_begin = header.begins_block && *stage == FrameStage::Begin;
        if is_begin && self.blocks_before(header).is_none() {
            self.counters.frames_backwards += 1;
            self.may_be_rest |= !header.ends_block;
            return true;
        }
        let is_block = header.begins_block && header.ends_block && !self.is_open;
        if is_block && *stage == FrameStage::Begin && self.take_block(now, header, data, stage) {
            return true;
        }
        loop {
            match *stage {
                FrameStage::Begin => {
                    if !self.begin_frame(now, header) {
                        return true;
                    }
                    *stage = FrameStage::Data(0);
                }
                FrameStage::Data(at) => {
                    let taken = self.line(now, LineSlice::Data(&data[at..]));
                    if at + taken < data.len() {
                        *stage = FrameStage::Data(at + taken);
                        return self.wait();
                    }
                    *stage = FrameStage::End;
                }
                FrameStage::End => {
                    if header.ends_block {
                        if self.line(now, LineSlice::Control(self.end)) == 0 {
                            return self.wait();
                        }
                        self.is_open = false;
                        self.counters.blocks += 1;
                        self.next_block += 1;
                    }
                    self.counters.frames += 1;
                    return true;
                }
            }
        }
    }

    /// So many frames are missing before the next one: an open block is cut.
    pub fn handle_missing(&mut self, now: RunNs, frames: u64) {
        self.counters.frames_missing += frames;
        if frames > 0 {
            self.may_be_rest = true;
            self.cut(now);
        }
    }

    /// Cuts the open block, if there is one: nothing more of it is taken.
    pub fn cut(&mut self, now: RunNs) {
        if self.is_open {
            (self.is_open, self.may_be_rest) = (false, true);
            for link in [LinkState::Down, LinkState::Up] {
                self.receiver.handle_link(now, link, &mut self.store);
            }
        }
    }

    /// Gives a polled page back.
    ///
    /// # Errors
    /// A [`PageError`].
    pub fn recycle(&mut self, page: u32) -> Result<(), PageError> {
        self.receiver.recycle(page)
    }

    /// Counts all blocks before block `sent` that have not come whole as lost, and cuts one of them
    /// that is open: nothing more of them is waited for. An open block behind them goes on.
    pub fn give_up(&mut self, now: RunNs, sent: u64, cause: LossCause) {
        let lost = sent.saturating_sub(self.next_block);
        if lost > 0 {
            self.cut(now);
        }
        self.counters.blocks_lost += lost;
        self.losses.add(cause, lost);
        self.next_block += lost;
    }

    /// Blocks that came whole or are lost for certain, those before the next one that can be whole.
    pub fn blocks_settled(&self) -> u64 {
        self.next_block
    }

    /// XOFF or XON, as the receiver's free pages demand.
    pub fn poll_flow(&mut self, now: RunNs) -> FlowControl {
        self.receiver.poll_flow(now)
    }

    /// The pages.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The receiver, with its page account and XOFF.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The counters.
    pub fn counters(&self) -> FrameCounters {
        self.counters
    }

    /// Blocks lost, by cause.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }

    /// Takes a frame that is a block at once, as the receiver allows; `false`, and `stage` moved if
    /// something of it is taken, when the rest is to be taken piece by piece.
    #[inline]
    fn take_block(
        &mut self,
        now: RunNs,
        header: &FrameHeader,
        data: &[u32],
        stage: &mut FrameStage,
    ) -> bool {
        let block = LineBlock {
            begin: self.begin,
            data,
            end: self.end,
        };
        let taken = self.receiver.handle_block(now, block, &mut self.store);
        if taken == 0 {
            return false;
        }
        self.lose_blocks_before(header);
        if taken < block.words() {
            self.is_open = true;
            *stage = FrameStage::Data(taken - 1);
            return false;
        }
        self.may_be_rest = false;
        self.next_block += 1;
        self.counters.blocks += 1;
        self.counters.frames += 1;
        true
    }

    /// `false` if the frame belongs to a block whose begin is missing, or is a begin that came
    /// before the end of the block before.
    fn begin_frame(&mut self, now: RunNs, header: &FrameHeader) -> bool {
        if !header.begins_block {
            if self.is_open {
                return true;
            }
            match self.may_be_rest {
                true => self.counters.frames_without_begin += 1,
                false => self.counters.frames_of_no_block += 1,
            }
            self.may_be_rest = !header.ends_block;
            return false;
        }
        if self.is_open {
            // Numbers without a gap, and no end: the sender broke off.
            self.handle_missing(now, 1);
        }
        self.lose_blocks_before(header);
        (self.is_open, self.may_be_rest) = (true, false);
        self.line(now, LineSlice::Control(self.begin));
        true
    }

    /// Counts the blocks of which nothing came before the frame that begins this one.
    #[inline]
    fn lose_blocks_before(&mut self, header: &FrameHeader) {
        let ahead = self.blocks_before(header).unwrap_or_default();
        self.counters.blocks_lost += ahead;
        self.losses.add(LossCause::DatagramLost, ahead);
        self.next_block += ahead;
    }

    /// Blocks between those that are settled and the one that a frame begins; `None` if it is one of
    /// those. Its number is the nearest to them with this low half.
    #[inline]
    fn blocks_before(&self, header: &FrameHeader) -> Option<u64> {
        let ahead = header.block_low.wrapping_sub(self.next_block as u32) as i32;
        u64::try_from(ahead).ok()
    }

    fn line(&mut self, now: RunNs, slice: LineSlice<'_>) -> usize {
        self.receiver.handle_line(now, slice, &mut self.store)
    }

    fn wait(&mut self) -> bool {
        self.counters.stalls += 1;
        false
    }
}

impl<S: PageStore> PageLink for BlockReceiver<S> {
    fn post(&mut self, page: u32) -> Result<(), PageError> {
        self.receiver.post(page)
    }

    fn poll(&mut self) -> Option<Completed> {
        self.receiver.poll()
    }

    fn link_status(&self) -> LinkStatus {
        self.receiver.link_status()
    }

    /// There is no line to reset: an open block is cut, and the link is up at once.
    fn reset(&mut self, now: RunNs) {
        self.receiver.reset(now);
        self.is_open = false;
        for link in [LinkState::Down, LinkState::Up] {
            self.receiver.handle_link(now, link, &mut self.store);
        }
    }
}

#[cfg(test)]
mod tests {
    use livetime_readout::{BlockEnd, HeapPages, PageRead};
    use livetime_wire::link_frame::FrameNumbers;

    use super::*;

    fn receiver() -> BlockReceiver<HeapPages> {
        let config = LinkConfig {
            page_words: 64,
            pages: 64,
            xoff_below: 2,
            xon_above: 4,
            words_in_flight: 7,
            fragment_words_max: 1024,
            ..LinkConfig::default()
        };
        let pages = HeapPages::new(0, config.pages, config.page_words);
        BlockReceiver::new(config, 0, pages)
    }

    /// What came of 10 blocks of 100 words in frames of 40, without these frames.
    fn received(missing: &[u64]) -> (Vec<Vec<u32>>, FrameCounters) {
        let (mut link, mut numbers) = (receiver(), FrameNumbers::default());
        let (mut blocks, mut part, mut gap) = (Vec::new(), Vec::new(), 0);
        for block in 0..10u32 {
            let words: Vec<u32> = (0..100).map(|n| block * 1000 + n).collect();
            for (header, range) in numbers.frames(words.len(), 40) {
                if missing.contains(&header.number) {
                    gap += 1;
                    continue;
                }
                link.handle_missing(RunNs(0), std::mem::take(&mut gap));
                let mut stage = FrameStage::default();
                assert!(link.take(RunNs(0), &header, &words[range], &mut stage));
                while let Some(completed) = link.poll() {
                    let words = link.store().words(completed.page);
                    part.extend_from_slice(&words[..completed.len_words as usize]);
                    link.recycle(completed.page).unwrap();
                    match completed.block_end {
                        BlockEnd::EndWord => blocks.push(std::mem::take(&mut part)),
                        BlockEnd::MoreToCome => {}
                        _ => part.clear(),
                    }
                }
            }
        }
        assert_eq!(
            link.losses().of(LossCause::DatagramLost),
            link.counters().blocks_lost
        );
        (blocks, link.counters())
    }

    #[test]
    fn blocks_come_whole_or_are_lost_by_number() {
        let (blocks, counters) = received(&[]);
        assert_eq!((blocks.len(), counters.blocks_lost), (10, 0));
        assert_eq!(blocks[9][99], 9099);
        // Frames 3 to 5 are block 1, 8 the end of block 2, 9 the begin of block 3.
        for (missing, lost) in [
            (vec![3, 4, 5], 1),
            (vec![8], 1),
            (vec![9], 1),
            (vec![8, 9], 2),
            (vec![4, 7], 2),
            (vec![0], 1),
        ] {
            let (blocks, counters) = received(&missing);
            assert_eq!(blocks.len() as u64, 10 - lost, "{missing:?}");
            assert_eq!(counters.blocks, 10 - lost, "{missing:?}");
            assert_eq!(counters.blocks_lost, lost, "{missing:?}");
            assert_eq!(counters.frames_missing, missing.len() as u64);
            assert!(blocks.iter().all(|block| block.len() == 100));
        }
    }

    #[test]
    fn a_block_number_that_goes_back_is_dropped_and_loses_nothing() {
        let (mut link, mut numbers) = (receiver(), FrameNumbers::default());
        let frames: Vec<_> = (0..20).flat_map(|_| numbers.frames(10, 5)).collect();
        let mut take = |frame: usize| {
            let (header, range) = &frames[frame];
            let mut stage = FrameStage::default();
            assert!(link.take(RunNs(0), header, &[7; 10][range.clone()], &mut stage));
            (link.counters(), link.losses().total())
        };
        for frame in 0..20 {
            take(frame);
        }
        // Whole blocks, and the begin of one that came already, between two and within one.
        take(0);
        take(18);
        take(20);
        let (counters, _) = take(6);
        assert_eq!((counters.frames_backwards, counters.blocks), (3, 10));
        let (counters, lost) = take(21);
        assert_eq!((counters.blocks, counters.blocks_lost, lost), (11, 0, 0));
        // One that goes on counts from where it was.
        let (counters, lost) = take(26);
        assert_eq!(
            (counters.frames_backwards, counters.blocks_lost, lost),
            (3, 2, 2)
        );
    }

    /// Given a frame that lost its begin bit where nothing was missing, then it is counted once, with all
    /// of its block; the rest of a block whose begin is missing is no such frame.
    #[test]
    fn a_frame_of_no_block_is_counted_as_one() {
        for (first_bad, missing, of_no_block, without_begin) in [
            (6, None, 1, 2),
            (7, None, 0, 0),
            (6, Some(6), 0, 2),
            (0, None, 1, 2),
        ] {
            let (mut link, mut numbers) = (receiver(), FrameNumbers::default());
            for _ in 0..5 {
                for (mut header, range) in numbers.frames(100, 40) {
                    if missing == Some(header.number) {
                        link.handle_missing(RunNs(0), 1);
                        continue;
                    }
                    header.begins_block &= header.number != first_bad;
                    let mut stage = FrameStage::default();
                    assert!(link.take(RunNs(0), &header, &[7; 100][range], &mut stage));
                    while let Some(completed) = link.poll() {
                        link.recycle(completed.page).unwrap();
                    }
                }
            }
            let counters = link.counters();
            assert_eq!(counters.frames_of_no_block, of_no_block, "{first_bad}");
            assert_eq!(counters.frames_without_begin, without_begin, "{first_bad}");
            let lost = u64::from(first_bad % 3 == 0);
            assert_eq!((counters.blocks, counters.blocks_lost), (5 - lost, lost));
        }
    }

    #[test]
    fn a_block_of_one_frame_waits_for_a_page_and_is_lost_by_its_number() {
        let (mut link, mut numbers) = (receiver(), FrameNumbers::default());
        let (mut gap, mut stalls, mut blocks) = (0, 0, Vec::new());
        for block in 0..100 {
            // Up to two words longer than a page: some are taken at once, some are not.
            let words = vec![block; 60 + block as usize % 7];
            for (header, range) in numbers.frames(words.len(), 100) {
                if block % 10 == 3 {
                    gap += 1;
                    continue;
                }
                link.handle_missing(RunNs(0), std::mem::take(&mut gap));
                let mut stage = FrameStage::default();
                while !link.take(RunNs(0), &header, &words[range.clone()], &mut stage) {
                    stalls += 1;
                    while let Some(completed) = link.poll() {
                        if completed.block_end == BlockEnd::EndWord {
                            blocks.push(link.store().words(completed.page)[0]);
                        }
                        link.recycle(completed.page).unwrap();
                    }
                }
            }
        }
        let waiting = link.link_status().acknowledge_filled;
        assert!(stalls > 0 && waiting > 0 && link.receiver().page_account().is_balanced());
        let came: Vec<u32> = (0..100).filter(|block| block % 10 != 3).collect();
        assert!(blocks.len() < came.len() && came.starts_with(&blocks));
        let counters = link.counters();
        assert_eq!((counters.blocks, counters.frames), (90, 90));
        assert_eq!((counters.blocks_lost, counters.frames_missing), (10, 10));
        assert_eq!(counters.stalls, stalls);
    }

    #[test]
    fn a_frame_waits_for_pages_and_goes_on_where_it_was() {
        let (mut link, mut numbers) = (receiver(), FrameNumbers::default());
        let words: Vec<u32> = (0..640).collect();
        let (mut held, mut stalls) = (Vec::new(), 0);
        for block in 0..20 {
            for (header, range) in numbers.frames(words.len(), 500) {
                let mut stage = FrameStage::default();
                while !link.take(RunNs(block), &header, &words[range.clone()], &mut stage) {
                    stalls += 1;
                    while let Some(completed) = link.poll() {
                        held.push(completed.page);
                    }
                    for page in held.drain(..) {
                        link.recycle(page).unwrap();
                    }
                }
            }
        }
        assert!(stalls > 0);
        assert_eq!(link.counters().stalls, stalls);
        assert_eq!(
            (link.counters().blocks, link.counters().blocks_lost),
            (20, 0)
        );
    }
}
