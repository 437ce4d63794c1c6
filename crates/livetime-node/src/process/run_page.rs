//! The page of shared words of a run: phase, settlement, and every role's counters and activity.
//!
//! ```text
//! word 0     phase of the run         written by the parent
//!      1     step of the settlement   written by the parent
//!      2     number of blocks         written once
//!      16    per block: counters (`CounterBlock`), then duty cycles and work done
//! ```
//! A role writes its own block and nothing else. Restarted roles get a block of their own, so that
//! what their predecessor published stays to be settled.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use livetime_shm::{SharedWords, WordsError};

use crate::counter_block::CounterBlock;
use crate::worker::PhaseCell;

const PHASE: usize = 0;
const STEP: usize = 1;
const BLOCKS: usize = 2;
const FIRST: usize = 16;
const ACTIVITY_WORDS: usize = 16;
const STRIDE: usize = CounterBlock::WORDS + ACTIVITY_WORDS;

/// How far the settlement of a run that was ended by force has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum SettleStep {
    /// Everybody gives up what they can.
    GiveUp = 0,
    /// Builder units count what filter units still hold.
    CloseBuilders = 1,
    /// The others count what is left.
    CloseOthers = 2,
    /// All counters are final.
    Finish = 3,
}

/// The shared words of a run.
#[derive(Debug, Clone)]
pub struct RunPage {
    words: SharedWords,
    blocks: usize,
}

/// A role's duty cycles and work, to see whether it lives and whether it is at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Duty cycles so far.
    pub cycles: u64,
    /// Work done so far.
    pub work: u64,
}

impl RunPage {
    /// A page for `blocks` roles.
    ///
    /// # Errors
    /// [`WordsError`] when there is no memory.
    pub fn new(blocks: usize) -> Result<Self, WordsError> {
        let words = SharedWords::shared(FIRST + blocks * STRIDE)?;
        // Relaxed: written before the page is passed on.
        words.words()[BLOCKS].store(blocks as u64, Ordering::Relaxed);
        Ok(Self { words, blocks })
    }

    /// Opens the page received from the parent.
    ///
    /// # Errors
    /// [`WordsError`] when it is something else.
    pub fn open(fd: OwnedFd) -> Result<Self, WordsError> {
        let words = SharedWords::open(fd)?;
        let room = words.words().len().saturating_sub(FIRST) / STRIDE;
        let found = match words.words().get(BLOCKS) {
            Some(word) => word.load(Ordering::Relaxed),
            None => 0,
        };
        let blocks = usize::try_from(found).ok().filter(|blocks| *blocks <= room);
        let blocks = blocks.ok_or(WordsError::Layout {
            field: "number of roles",
            found,
        })?;
        Ok(Self { words, blocks })
    }

    /// The descriptor to pass on.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.words.fd()
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The phase of the run.
    pub fn phase(&self) -> PhaseCell {
        PhaseCell::at(&self.words, PHASE)
    }

    /// The step of the settlement.
    pub fn step(&self) -> SettleStep {
        // Relaxed: the step orders nothing; data moves through the rings.
        match self.words.words()[STEP].load(Ordering::Relaxed) {
            0 => SettleStep::GiveUp,
            1 => SettleStep::CloseBuilders,
            2 => SettleStep::CloseOthers,
            _ => SettleStep::Finish,
        }
    }

    /// Goes on to a step; none goes back.
    pub fn advance(&self, step: SettleStep) {
        self.words.words()[STEP].fetch_max(step as u64, Ordering::Relaxed);
    }

    /// The counters at an index; `None` when there is no such block.
    pub fn block(&self, index: usize) -> Option<Arc<CounterBlock>> {
        let first = FIRST + index.checked_mul(STRIDE)?;
        (index < self.blocks).then(|| CounterBlock::at(&self.words, first))?
    }

    /// What a role has done so far.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn activity(&self, index: usize) -> Activity {
        let words = &self.words.words()[FIRST + index * STRIDE + CounterBlock::WORDS..];
        // Acquire pairs with the Release in `note`: the work of the cycles seen is seen.
        let cycles = words[0].load(Ordering::Acquire);
        // Relaxed: ordered by the load before.
        let work = words[1].load(Ordering::Relaxed);
        Activity { cycles, work }
    }

    /// Notes what a role has done; only the role itself calls this.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn note(&self, index: usize, activity: Activity) {
        let words = &self.words.words()[FIRST + index * STRIDE + CounterBlock::WORDS..];
        // Relaxed: published by the store that follows.
        words[1].store(activity.work, Ordering::Relaxed);
        // Release pairs with the Acquire in `activity`: whoever sees a cycle sees its work.
        words[0].store(activity.cycles, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter_block::RoleCounts;
    use crate::worker::Phase;

    #[test]
    fn an_opened_page_shows_what_was_written() {
        let page = RunPage::new(3).unwrap();
        let opened = RunPage::open(page.fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(opened.blocks(), 3);
        assert_eq!(opened.phase().get(), Phase::Running);
        page.phase().advance(Phase::Aborting);
        page.advance(SettleStep::CloseOthers);
        page.advance(SettleStep::CloseBuilders);
        assert_eq!(opened.phase().get(), Phase::Aborting);
        assert_eq!(opened.step(), SettleStep::CloseOthers);
        let mut counts = RoleCounts::default();
        counts.chain.triggers = 9;
        opened.block(2).unwrap().publish(&counts);
        let activity = Activity { cycles: 4, work: 2 };
        opened.note(2, activity);
        assert_eq!(page.block(2).unwrap().read(), counts);
        assert_eq!(page.block(1).unwrap().read(), RoleCounts::default());
        assert_eq!(page.activity(2), activity);
        assert_eq!(page.activity(1), Activity { cycles: 0, work: 0 });
        assert!(page.block(3).is_none());
    }

    #[test]
    fn other_words_are_no_run_page() {
        let words = SharedWords::shared(FIRST + STRIDE).unwrap();
        words.words()[BLOCKS].store(2, Ordering::Relaxed);
        let fd = words.fd().unwrap().try_clone_to_owned().unwrap();
        assert!(RunPage::open(fd).is_err());
        let words = SharedWords::shared(2).unwrap();
        let opened = RunPage::open(words.fd().unwrap().try_clone_to_owned().unwrap());
        assert_eq!(opened.unwrap().blocks(), 0);
    }
}
