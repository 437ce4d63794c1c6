//! The protocol of one page: free, being written, filled, being released.
//!
//! A page's shared words are one state word and, for each process that may use the pool, a count
//! of the read holds this process has on the page. A free or filled page is claimed by
//! compare-exchange; while it is being written or released, its claimant alone changes the state
//! word; a count is changed only by its own process. That makes every step of a dying process
//! recoverable: whatever it held is marked with its owner id, and no step needs two words to agree.
//!
//! A release and a new read hold meet as in Dekker's algorithm: the reader raises its count and
//! then looks at the state, the releaser changes the state and then looks at the counts; at least
//! one of them sees the other and steps back. Read [`crate::page_pool`] for the pages themselves.
//!
//! ```text
//! state word, bit  0..2   state: 0 free, 1 writing, 2 filled, 3 releasing
//!                  2..8   owner: who writes, has filled, or releases
//!                  8..32  generation: times the page was taken for writing, wrapping
//! ```

use std::sync::atomic::Ordering;

/// Processes that can have a pool open at one time. With this many read counts of 16 bits the
/// words of a page fill one cache line.
pub const MAX_OWNERS: usize = 30;

/// A process's place in a pool, below [`MAX_OWNERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u8);

/// Where a page is in its cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PageState {
    /// Nobody uses it; it can be taken for writing.
    Free,
    /// One writer has it alone.
    Writing,
    /// It holds data; any number of readers may look.
    Filled,
    /// A release is looking for readers, on its way to free (or back to filled).
    Releasing,
}

/// A decoded state word. Every value of the word means something, so that a peer cannot write one
/// that we could not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateWord(u32);

const STATE_MASK: u32 = 0b11;
const OWNER_SHIFT: u32 = 2;
const OWNER_MASK: u32 = 0b11_1111;
const GENERATION_SHIFT: u32 = 8;
const _: () = assert!(MAX_OWNERS <= OWNER_MASK as usize);

impl StateWord {
    /// Decodes a word.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The word as stored.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// Where the page is.
    pub fn state(self) -> PageState {
        match self.0 & STATE_MASK {
            0 => PageState::Free,
            1 => PageState::Writing,
            2 => PageState::Filled,
            _ => PageState::Releasing,
        }
    }

    /// Who writes, has filled, or releases it. Meaningless for a free page.
    pub fn owner(self) -> OwnerId {
        OwnerId(((self.0 >> OWNER_SHIFT) & OWNER_MASK) as u8)
    }

    /// How often it was taken for writing, modulo 2^24.
    pub fn generation(self) -> u32 {
        self.0 >> GENERATION_SHIFT
    }

    fn with(self, state: PageState, owner: OwnerId) -> Self {
        let state = match state {
            PageState::Free => 0,
            PageState::Writing => 1,
            PageState::Filled => 2,
            PageState::Releasing => 3,
        };
        let owner = u32::from(owner.0) & OWNER_MASK;
        Self((self.generation() << GENERATION_SHIFT) | (owner << OWNER_SHIFT) | state)
    }

    fn freed(self) -> Self {
        self.with(PageState::Free, OwnerId(0))
    }

    fn next_generation(self) -> Self {
        Self(self.0.wrapping_add(1 << GENERATION_SHIFT))
    }
}

/// The shared words of one page, as atomics of whatever kind (real ones, or those of a model
/// checker). Orderings are chosen by the protocol alone; an implementation passes them on.
pub trait PageWords {
    /// Reads the state word.
    fn load_state(&self, order: Ordering) -> u32;

    /// Writes the state word.
    fn store_state(&self, word: u32, order: Ordering);

    /// Replaces the state word `current` by `new`; `Err` with the word found otherwise.
    ///
    /// # Errors
    /// The word found there, if it is not `current`.
    fn exchange_state(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;

    /// Raises the count of `owner` and then reads the state word, both as one step of the single
    /// total order of sequentially consistent operations. Returns the count before and the state.
    fn add_hold_then_load_state(&self, owner: OwnerId) -> (u16, u32);

    /// Replaces the state word and then reads the counts of all owners, both as one step of the
    /// single total order of sequentially consistent operations. Returns the sum of the counts.
    ///
    /// # Errors
    /// The word found, if it is not `current`; the counts were not read then.
    fn exchange_state_then_load_holds(&self, current: u32, new: u32) -> Result<u32, u32>;

    /// Lowers the count of `owner`.
    fn sub_hold(&self, owner: OwnerId, order: Ordering);

    /// Sets the count of `owner` to 0 and returns what it was.
    fn clear_holds(&self, owner: OwnerId, order: Ordering) -> u16;
}

/// Why a step of the protocol was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The page is in this state.
    State(PageState),
    /// The page has so many readers.
    Read(u32),
    /// This process already holds the page for reading as often as can be counted.
    TooManyHolds,
}

/// Read holds of one process on one page are refused above this, far enough below the limit of
/// the count that threads arriving at the same moment cannot wrap it.
const HOLDS_MAX: u16 = 0xf000;

/// Free -> writing. Returns the word that marks this very writing.
///
/// # Errors
/// [`Refusal::State`] unless the page is free.
#[inline]
pub fn begin_writing(words: &impl PageWords, owner: OwnerId) -> Result<StateWord, Refusal> {
    // Relaxed: the exchange below looks again.
    let found = StateWord::from_bits(words.load_state(Ordering::Relaxed));
    if found.state() != PageState::Free {
        return Err(Refusal::State(found.state()));
    }
    let claim = found.with(PageState::Writing, owner).next_generation();
    // Acquire pairs with the Release of whoever freed the page: all its readers have finished.
    words
        .exchange_state(
            found.to_bits(),
            claim.to_bits(),
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .map(|_| claim)
        .map_err(|bits| Refusal::State(StateWord::from_bits(bits).state()))
}

/// Writing -> filled, if `claim` still stands.
///
/// # Errors
/// [`Refusal::State`] if the page was taken away from a writer believed dead.
#[inline]
pub fn finish_writing(words: &impl PageWords, claim: StateWord) -> Result<(), Refusal> {
    let filled = claim.with(PageState::Filled, claim.owner());
    // The Release in there pairs with the state load in `begin_reading`: the data was written.
    end_writing(words, claim, filled)
}

/// Writing -> free, if `claim` still stands.
///
/// # Errors
/// [`Refusal::State`] if the page was taken away from a writer believed dead.
#[inline]
pub fn abandon_writing(words: &impl PageWords, claim: StateWord) -> Result<(), Refusal> {
    // The Release in there pairs with the Acquire in `begin_writing`: our writes are over.
    end_writing(words, claim, claim.freed())
}

#[inline]
fn end_writing(words: &impl PageWords, claim: StateWord, next: StateWord) -> Result<(), Refusal> {
    // Relaxed: our own word, unless the page was recovered, after which nothing is done.
    let found = StateWord::from_bits(words.load_state(Ordering::Relaxed));
    if found != claim {
        return Err(Refusal::State(found.state()));
    }
    words.store_state(next.to_bits(), Ordering::Release);
    Ok(())
}

/// Takes a read hold on a filled page.
///
/// # Errors
/// [`Refusal`] unless the page is filled; no hold is left behind then.
#[inline]
pub fn begin_reading(words: &impl PageWords, owner: OwnerId) -> Result<StateWord, Refusal> {
    // Relaxed: a first look, so that a bad request changes nothing. The real one comes below.
    let seen = StateWord::from_bits(words.load_state(Ordering::Relaxed));
    if seen.state() != PageState::Filled {
        return Err(Refusal::State(seen.state()));
    }
    // The state load pairs with the Release in `finish_writing`; both steps pair with
    // `exchange_state_then_load_holds` in `release` (see the module's text).
    let (holds_before, bits) = words.add_hold_then_load_state(owner);
    let found = StateWord::from_bits(bits);
    let refusal = match found.state() {
        PageState::Filled if holds_before < HOLDS_MAX => return Ok(found),
        PageState::Filled => Refusal::TooManyHolds,
        state => Refusal::State(state),
    };
    // Relaxed: nothing was read under this hold.
    words.sub_hold(owner, Ordering::Relaxed);
    Err(refusal)
}

/// Gives a read hold back.
#[inline]
pub fn end_reading(words: &impl PageWords, owner: OwnerId) {
    // Release pairs with the load of the counts in `release`: our reads are over.
    words.sub_hold(owner, Ordering::Release);
}

/// Filled -> free, if nobody reads.
///
/// # Errors
/// [`Refusal::Read`] with the number of readers, [`Refusal::State`] unless filled.
#[inline]
pub fn release(words: &impl PageWords, owner: OwnerId) -> Result<(), Refusal> {
    let (filled, holds) = begin_releasing(words, owner)?;
    let next = if holds == 0 { filled.freed() } else { filled };
    // Release pairs with the Acquire in `begin_writing` (the readers' ends, seen through their
    // counts, come before) and with the state load in `begin_reading` (the data again).
    words.store_state(next.to_bits(), Ordering::Release);
    if holds == 0 {
        Ok(())
    } else {
        Err(Refusal::Read(holds))
    }
}

/// Filled -> releasing. Returns the word before and the number of readers.
#[inline]
fn begin_releasing(words: &impl PageWords, owner: OwnerId) -> Result<(StateWord, u32), Refusal> {
    // Relaxed: the exchange below looks again.
    let seen = StateWord::from_bits(words.load_state(Ordering::Relaxed));
    let mut filled = seen;
    // Whoever recovers a dead owner's page puts itself in its place, and the page stays filled with the
    // same data. Each owner dies once, so that only a peer that breaks the protocol exhausts this.
    for _ in 0..=MAX_OWNERS {
        if filled.state() != PageState::Filled || filled.generation() != seen.generation() {
            break;
        }
        let releasing = filled.with(PageState::Releasing, owner);
        match words.exchange_state_then_load_holds(filled.to_bits(), releasing.to_bits()) {
            Ok(holds) => return Ok((filled, holds)),
            Err(bits) => filled = StateWord::from_bits(bits),
        }
    }
    Err(Refusal::State(filled.state()))
}

/// What recovering one page from a dead owner changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The dead owner had nothing to do with the state of this page.
    Untouched,
    /// It was being written or released by the dead owner and is free now.
    Freed,
    /// It was filled by the dead owner and belongs to the one who recovers now.
    Adopted,
}

/// Takes a page back from `dead`, on behalf of `survivor`. Returns what was done and how many read
/// holds of the dead were dropped.
///
/// `dead` must really be gone: no step of it may come later.
pub fn recover(words: &impl PageWords, dead: OwnerId, survivor: OwnerId) -> (Recovery, u16) {
    // Release pairs with the load of the counts in `release`; what the dead one read, it has read.
    let holds = words.clear_holds(dead, Ordering::Release);
    // The dead owner changes the word no more. Another survivor may, once, when it releases what
    // the dead one filled; the second look then finds it in other hands.
    loop {
        // Acquire pairs with the Release of the last change.
        let found = StateWord::from_bits(words.load_state(Ordering::Acquire));
        if found.state() == PageState::Free || found.owner() != dead {
            return (Recovery::Untouched, holds);
        }
        let next = match found.state() {
            PageState::Filled | PageState::Releasing => found.with(PageState::Filled, survivor),
            PageState::Writing | PageState::Free => found.freed(),
        };
        // AcqRel pairs with the same exchange in another survivor, and its Release with the
        // Acquire in `begin_writing`.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if words
            .exchange_state(found.to_bits(), next.to_bits(), success, failure)
            .is_err()
        {
            continue;
        }
        let recovery = match found.state() {
            PageState::Filled => Recovery::Adopted,
            // The dead one had decided to release it: that is done in its place.
            PageState::Releasing => match release(words, survivor) {
                Ok(()) => Recovery::Freed,
                Err(Refusal::State(_)) => Recovery::Untouched,
                Err(Refusal::Read(_) | Refusal::TooManyHolds) => Recovery::Adopted,
            },
            PageState::Writing | PageState::Free => Recovery::Freed,
        };
        return (recovery, holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_words_keep_their_parts_apart() {
        let word = StateWord::from_bits(0)
            .with(PageState::Filled, OwnerId(29))
            .next_generation();
        assert_eq!(
            (word.state(), word.owner().0, word.generation()),
            (PageState::Filled, 29, 1)
        );
        assert_eq!(word.freed().generation(), 1);
        let last = StateWord::from_bits(u32::MAX);
        assert_eq!(last.next_generation().generation(), 0);
        assert_eq!((last.state(), last.owner().0), (PageState::Releasing, 63));
    }
}
