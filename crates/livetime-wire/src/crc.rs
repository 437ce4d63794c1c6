//! Checksums over words: CRC-32C (fragments, events) here, CRC-16 (trigger packets) in [`crate::crc16`].
//!
//! CRC-32C runs over the little-endian bytes of the words at about memory speed.

use crc_fast::{CrcAlgorithm, Digest};
use zerocopy::IntoBytes;

/// CRC-32C (Castagnoli; "iSCSI") of words, little-endian.
#[inline]
pub fn crc32c(words: &[u32]) -> u32 {
    // The algorithm's width is 32 bits, so the upper half of the result is zero.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, words.as_bytes()) as u32
}

/// CRC-32C over several slices in turn.
pub struct Crc32c(Digest);

impl Crc32c {
    /// The start value.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes in more words.
    #[inline]
    pub fn update(&mut self, words: &[u32]) {
        self.0.update(words.as_bytes());
    }

    /// The checksum of all words so far; more may follow.
    #[inline]
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
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
        for split in [0, 1, 50, 99, 100] {
            let mut parts = Crc32c::new();
            parts.update(&words[..split]);
            parts.update(&words[split..]);
            assert_eq!(parts.value(), crc32c(&words));
        }
    }
}
