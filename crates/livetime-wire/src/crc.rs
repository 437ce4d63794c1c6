//! Checksums over words: CRC-32C (fragments, events) and CRC-16/CCITT-FALSE (trigger packets).
//!
//! CRC-32C runs over the little-endian bytes of the words at about memory speed; CRC-16 over the
//! big-endian bytes, since trigger packets define it most significant byte first.

use crc_fast::{CrcAlgorithm, Digest};
use zerocopy::IntoBytes;

/// CRC-32C (Castagnoli; "iSCSI") of words, little-endian.
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
    pub fn update(&mut self, words: &[u32]) {
        self.0.update(words.as_bytes());
    }

    /// The checksum of all words so far; more may follow.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

static CRC16: crc::Crc<u16, crc::Table<16>> =
    crc::Crc::<u16, crc::Table<16>>::new(&crc::CRC_16_IBM_3740);

/// CRC-16/CCITT-FALSE (polynomial 0x1021, start 0xFFFF, not reflected) of words, big-endian.
pub fn crc16(words: impl IntoIterator<Item = u32>) -> u16 {
    let mut digest = CRC16.digest();
    // The table takes 16 bytes at a time, but only of one slice: words are gathered for it.
    let mut block = [0; 64];
    let mut filled = 0;
    for word in words {
        block[filled..filled + 4].copy_from_slice(&word.to_be_bytes());
        filled += 4;
        if filled == block.len() {
            digest.update(&block);
            filled = 0;
        }
    }
    digest.update(&block[..filled]);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_the_published_check_values() {
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
        assert_eq!(CRC16.checksum(b"123456789"), 0x29B1);
        for count in 0..40_u32 {
            let bytes: Vec<u8> = (0..count).flat_map(|i| (i * 77).to_be_bytes()).collect();
            assert_eq!(crc16((0..count).map(|i| i * 77)), CRC16.checksum(&bytes));
        }
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
