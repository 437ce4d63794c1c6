//! Checksums over words: CRC-32C (fragments, events) here, CRC-16 (trigger packets) in [`crate::crc16`].
//!
//! CRC-32C runs over the little-endian bytes of the words at about memory speed.

use crc_fast::{CrcAlgorithm, Digest};
use zerocopy::IntoBytes;

/// Words of a later slice that are checked as a copy.
const SHORT_WORDS: usize = 8;

/// CRC-32C (Castagnoli; "iSCSI") of words, little-endian.
#[inline]
pub fn crc32c(words: &[u32]) -> u32 {
    crc_fast::crc32_iscsi(words.as_bytes())
}

/// CRC-32C over several slices in turn.
///
/// Made for a long slice and short ones behind it. The state after some words with the checksum `c`
/// differs from the start value by `c`; and a difference of the state does what the same difference
/// of the next word does. So a short slice is checked from the start, with `c` added to its first
/// word. The library's digest, which goes on from any state, takes longer to set up than a short
/// fragment to check; it is made for the first long slice that is not the first one.
pub struct Crc32c(State);

#[expect(
    clippy::large_enum_variant,
    reason = "made and dropped on the stack, never moved"
)]
enum State {
    /// The checksum so far.
    Value(u32),
    /// Behind a long slice that was not the first.
    Digest(Digest),
}

impl Crc32c {
    /// The start value.
    pub fn new() -> Self {
        Self(State::Value(0))
    }

    /// Takes in more words.
    #[inline]
    pub fn update(&mut self, words: &[u32]) {
        match (&mut self.0, words) {
            (_, []) => {}
            // The state after nothing, and wherever else the checksum is 0, is the start value.
            (State::Value(value @ 0), words) => *value = crc32c(words),
            (State::Value(value), [first, later @ ..]) if later.len() < SHORT_WORDS => {
                let mut copy = [0; SHORT_WORDS];
                copy[0] = first ^ *value;
                copy[1..words.len()].copy_from_slice(later);
                *value = crc32c(&copy[..words.len()]);
            }
            (State::Value(value), words) => {
                let mut digest =
                    Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!*value));
                digest.update(words.as_bytes());
                self.0 = State::Digest(digest);
            }
            (State::Digest(digest), words) => digest.update(words.as_bytes()),
        }
    }

    /// The checksum of all words so far; more may follow.
    #[inline]
    pub fn value(&self) -> u32 {
        match &self.0 {
            State::Value(value) => *value,
            // The algorithm's width is 32 bits, so the upper half of the result is zero.
            State::Digest(digest) => digest.finalize() as u32,
        }
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_the_bytewise_definition() {
        // "12345678" as two little-endian words; the check value of CRC-32C is for nine bytes, so
        // the reference here is the bytewise definition.
        let words = [u32::from_le_bytes(*b"1234"), u32::from_le_bytes(*b"5678")];
        let mut reference = 0xFFFF_FFFFu32;
        for byte in *b"12345678" {
            reference ^= u32::from(byte);
            for _ in 0..8 {
                reference = (reference >> 1) ^ (0x82F6_3B78 & (reference & 1).wrapping_neg());
            }
        }
        assert_eq!(crc32c(&words), !reference);
    }

    #[test]
    fn checksum_in_parts_is_the_checksum_of_the_whole() {
        let words: Vec<u32> = (0..100).map(|i| i * 77).collect();
        // Slices that are short, at the bound, and long, in each place.
        for first in [0, 1, 7, 8, 9, 50, 99, 100] {
            for second in [0, 1, 7, 8, 9, 30, 100 - first] {
                let second = (first + second).min(100);
                let mut parts = Crc32c::new();
                parts.update(&words[..first]);
                assert_eq!(parts.value(), crc32c(&words[..first]));
                parts.update(&words[first..second]);
                assert_eq!(parts.value(), crc32c(&words[..second]));
                parts.update(&words[second..]);
                assert_eq!(parts.value(), crc32c(&words), "{first} {second}");
            }
        }
    }

    #[test]
    fn words_behind_a_checksum_of_zero_count() {
        // Their own complement behind words brings the state to all ones, as at the start.
        let first = 7;
        let mut parts = Crc32c::new();
        parts.update(&[first]);
        let back = word_to_zero(parts.value());
        parts.update(&[back]);
        assert_eq!(parts.value(), 0);
        parts.update(&[5]);
        assert_eq!(parts.value(), crc32c(&[first, back, 5]));
    }

    /// The word behind a checksum that makes it zero, by the bytewise definition run backwards.
    fn word_to_zero(checksum: u32) -> u32 {
        let mut state = u32::MAX;
        for _ in 0..32 {
            let was_odd = state & 0x8000_0000 != 0;
            state = ((state ^ if was_odd { 0x82F6_3B78 } else { 0 }) << 1) | u32::from(was_odd);
        }
        state ^ !checksum
    }
}
