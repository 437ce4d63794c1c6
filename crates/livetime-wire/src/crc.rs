//! Checksums over words: CRC-32C (fragments, events) and CRC-16/CCITT-FALSE (trigger packets).
//!
//! CRC-32C runs over the little-endian bytes of the words at about memory speed; CRC-16 over the
//! big-endian bytes, since trigger packets define it most significant byte first.

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

/// Words that are taken at once.
const CRC16_WORDS: usize = 4;

/// `CRC16_TABLES[n][b]` is what the byte `b` becomes when `n` bytes of 0 follow it, so that the
/// bytes of several words are looked up side by side.
static CRC16_TABLES: [[u16; 256]; 4 * CRC16_WORDS] = crc16_tables();

const fn crc16_tables() -> [[u16; 256]; 4 * CRC16_WORDS] {
    let mut tables = [[0; 256]; 4 * CRC16_WORDS];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut n = 0;
        while n < tables.len() {
            let mut bit = 0;
            while bit < 8 {
                crc = (crc << 1) ^ if crc & 0x8000 != 0 { 0x1021 } else { 0 };
                bit += 1;
            }
            tables[n][byte] = crc;
            n += 1;
        }
        byte += 1;
    }
    tables
}

/// CRC-16/CCITT-FALSE (polynomial 0x1021, start 0xFFFF, not reflected) of words, big-endian.
#[inline]
pub fn crc16(words: &[u32]) -> u16 {
    let mut crc = Crc16::new();
    crc.update(words);
    crc.value()
}

/// CRC-16/CCITT-FALSE over several slices in turn.
#[derive(Debug, Clone)]
pub struct Crc16(u16);

impl Crc16 {
    /// The start value.
    pub fn new() -> Self {
        Self(0xFFFF)
    }

    /// Takes in more words.
    #[inline]
    pub fn update(&mut self, words: &[u32]) {
        let (blocks, rest) = words.as_chunks::<CRC16_WORDS>();
        for block in blocks {
            self.0 = crc16_step(self.0, block);
        }
        for word in rest {
            self.0 = crc16_step(self.0, &[*word]);
        }
    }

    /// The checksum of all words so far; more may follow.
    #[inline]
    pub fn value(&self) -> u16 {
        self.0
    }
}

impl Default for Crc16 {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes in some words at once. Only two look-ups wait for the checksum so far, and they come last:
/// the processor does the others meanwhile.
#[inline]
fn crc16_step<const WORDS: usize>(crc: u16, words: &[u32; WORDS]) -> u16 {
    let table = |behind: usize, byte: u32| CRC16_TABLES[behind][(byte & 0xFF) as usize];
    let last = 4 * WORDS - 1;
    let mut next = table(last - 2, words[0] >> 8) ^ table(last - 3, words[0]);
    for (index, word) in words.iter().enumerate().skip(1) {
        let first = last - 4 * index;
        next ^= table(first, word >> 24) ^ table(first - 1, word >> 16);
        next ^= table(first - 2, word >> 8) ^ table(first - 3, *word);
    }
    let start = words[0] ^ (u32::from(crc) << 16);
    next ^ (table(last, start >> 24) ^ table(last - 1, start >> 16))
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
        // Likewise for CRC-16: the bytewise definition, which gives its check value.
        let crc16_bytewise = |bytes: &[u8]| {
            bytes.iter().fold(0xFFFF_u16, |crc, byte| {
                (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
                    (crc << 1) ^ (0x1021 & (crc >> 15).wrapping_neg())
                })
            })
        };
        assert_eq!(crc16_bytewise(b"123456789"), 0x29B1);
        for count in 0..40_u32 {
            let words: Vec<u32> = (0..count).map(|i| i.wrapping_mul(0x9E37_79B9)).collect();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            assert_eq!(crc16(&words), crc16_bytewise(&bytes));
            let mut parts = Crc16::new();
            let (first, rest) = words.split_at(words.len() / 3);
            parts.update(first);
            parts.update(rest);
            assert_eq!(parts.value(), crc16_bytewise(&bytes));
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
