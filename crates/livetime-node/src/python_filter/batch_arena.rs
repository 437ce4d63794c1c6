//! Memory between a filter unit and its interpreter: two batches of events, and the verdicts.
//!
//! ```text
//! word 0       number of the request that the interpreter works on, 0 for none
//!      8..     slot 0: table, columns, verdicts
//!      ..      slot 1
//! ```
//! While the interpreter works on one slot the unit fills the other. Who may write which is agreed
//! over the sockets of [`super::interpreter`]; a reader that breaks that sees wrong values and no
//! more. What the columns are is in [`super::batch_columns`].

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use livetime_shm::shared_words::WORDS_OFFSET;
use livetime_shm::{SharedWords, WordsError};

/// Batches of an arena.
pub const SLOTS: usize = 2;
/// Words before the first slot.
const FRONT_WORDS: usize = 8;

/// The memory.
#[derive(Debug)]
pub struct BatchArena {
    words: SharedWords,
    slot_words: usize,
}

/// A slot that is written.
#[derive(Debug)]
pub struct Slot<'a> {
    words: &'a [AtomicU64],
    first_byte: usize,
}

impl BatchArena {
    /// An arena of slots of `slot_words` 64-bit words.
    ///
    /// # Errors
    /// [`WordsError`] when there is no memory.
    pub fn new(slot_words: usize) -> Result<Self, WordsError> {
        // A multiple of a cache line, so that no two slots share one.
        let slot_words = slot_words.next_multiple_of(8);
        let words = SharedWords::shared(FRONT_WORDS + SLOTS * slot_words)?;
        Ok(Self { words, slot_words })
    }

    /// Words of a slot.
    pub fn slot_words(&self) -> usize {
        self.slot_words
    }

    /// Bytes of the memory.
    pub fn memory_bytes(&self) -> usize {
        self.words.memory_bytes()
    }

    /// The descriptor of the memory.
    ///
    /// # Panics
    /// Never: the words are shared.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.words.fd().expect("the words are shared ones")
    }

    /// Byte of the memory at which a slot begins.
    pub fn first_byte(&self, slot: usize) -> usize {
        WORDS_OFFSET + self.first_word(slot) * 8
    }

    fn first_word(&self, slot: usize) -> usize {
        FRONT_WORDS + slot * self.slot_words
    }

    /// A slot, to be written.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn slot(&mut self, slot: usize) -> Slot<'_> {
        assert!(slot < SLOTS, "slot {slot} does not exist");
        let first = self.first_word(slot);
        Slot {
            words: &self.words.words()[first..first + self.slot_words],
            first_byte: self.first_byte(slot),
        }
    }

    /// The verdict on an event, as the interpreter wrote it: bit 16 keep, below it the streams;
    /// `at` is where the verdicts begin.
    pub fn verdict(&self, slot: usize, at: usize, nth: usize) -> u32 {
        let word = self.first_word(slot) + at + nth / 2;
        // Relaxed: the interpreter's answer came over a socket after it.
        let pair = self.words.words()[word].load(Ordering::Relaxed);
        (pair >> (32 * (nth % 2))) as u32
    }

    /// The request that the interpreter works on, or worked on when it died.
    pub fn in_work(&self) -> u64 {
        // Relaxed: its process is gone, or has answered over a socket.
        self.words.words()[0].load(Ordering::Relaxed)
    }
}

impl Slot<'_> {
    /// Byte of the arena's memory at which it begins.
    pub fn first_byte(&self) -> usize {
        self.first_byte
    }

    /// Writes bytes at a word.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&mut self, word: usize, bytes: &[u8]) {
        let room = &self.words[word..word + bytes.len().div_ceil(8)];
        let (whole, rest) = bytes.as_chunks::<8>();
        for (word, bytes) in room.iter().zip(whole) {
            // Relaxed: the message over the socket comes after it.
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            room[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_into_a_slot_is_read_as_verdicts() {
        let mut arena = BatchArena::new(30).unwrap();
        assert_eq!(arena.slot_words(), 32);
        let bytes: Vec<u8> = [7_u32, 1 << 16 | 3, 5]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        arena.slot(1).write(30, &bytes);
        let verdicts: Vec<u32> = (0..4).map(|nth| arena.verdict(1, 30, nth)).collect();
        assert_eq!(verdicts, [7, 1 << 16 | 3, 5, 0]);
        assert_eq!(arena.verdict(0, 30, 0), 0, "another slot");
        assert_eq!(arena.in_work(), 0);
        assert_eq!(arena.first_byte(1) - arena.first_byte(0), 256);
    }
}
