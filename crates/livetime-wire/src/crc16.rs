//! CRC-16/CCITT-FALSE over words (polynomial 0x1021, start 0xFFFF, not reflected), big-endian, since
//! trigger packets define it most significant byte first.
//!
//! The decision loop waits for it, so messages of 16 words and more are folded before anything is
//! looked up. Squaring x^16 = x^12 + x^5 + 1 (modulo 2 and the polynomial) five times gives
//! x^512 = x^384 + x^160 + 1: what stands 512 bits before the end of the words so far is added in
//! three places behind it, and is done with. The same with four, three and two squarings leaves 64
//! bits of the last 512, and only these are looked up in tables. For 34 words that is half the time
//! of tables alone.

use zerocopy::transmute;

/// Words that are looked up at once.
const STEP_WORDS: usize = 4;

/// `TABLES[n][b]` is what the byte `b` becomes when `n` bytes of 0 follow it, so that the bytes of
/// several words are looked up side by side.
static TABLES: [[u16; 256]; 4 * STEP_WORDS] = tables();

const fn tables() -> [[u16; 256]; 4 * STEP_WORDS] {
    let mut tables = [[0; 256]; 4 * STEP_WORDS];
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

/// The checksum of `words`.
#[inline]
pub fn crc16(words: &[u32]) -> u16 {
    const START: u16 = 0xFFFF;
    if let Some(remainder) = fold(START, words) {
        let last = last_64_bits(remainder);
        return look_up(0, &[(last >> 32) as u32, last as u32]);
    }
    let (blocks, rest) = words.as_chunks::<STEP_WORDS>();
    let crc = blocks.iter().fold(START, look_up);
    rest.iter().fold(crc, |crc, word| look_up(crc, &[*word]))
}

/// The checksum of `words` with 0 in place of their last 16 bits, where the checksum itself stands.
#[inline]
pub fn crc16_without_end(words: &[u32]) -> u16 {
    let end = words.last().map_or(0, |word| word & 0xFFFF);
    // The checksum is linear: what the end adds to it is taken off again, and does not wait for it.
    crc16(words) ^ look_up(0, &[end])
}

/// Takes in some words at once. Only two look-ups wait for the checksum so far, and they come last:
/// the processor does the others meanwhile.
#[inline]
fn look_up<const WORDS: usize>(crc: u16, words: &[u32; WORDS]) -> u16 {
    let table = |behind: usize, byte: u32| TABLES[behind][(byte & 0xFF) as usize];
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

/// 512 bits with the checksum of `words`, most significant first; `None` for fewer than 16 words.
#[inline]
fn fold(start: u16, words: &[u32]) -> Option<[u64; 8]> {
    let start = u32::from(start) << 16;
    let (head, blocks) = words.as_rchunks::<4>();
    // Zeros ahead of the first word change nothing.
    let (first, blocks) = match *head {
        [] => {
            let ([a, b, c, d], blocks) = blocks.split_first()?;
            ([a ^ start, *b, *c, *d], blocks)
        }
        [a] => ([0, 0, 0, a ^ start], blocks),
        [a, b] => ([0, 0, a ^ start, b], blocks),
        [a, b, c, ..] => ([0, a ^ start, b, c], blocks),
    };
    let [b, c, d, rest @ ..] = blocks else {
        return None;
    };
    let [[s0, s1], [s2, s3], [s4, s5], [s6, s7]] = [&first, b, c, d].map(bits);
    let mut s = [s0, s1, s2, s3, s4, s5, s6, s7];
    for block in rest {
        let (top, [c, d]) = (([s[0], s[1]]), bits(block));
        // 128, 352 and 512 bits behind.
        s = [
            s[2] ^ top[0],
            s[3] ^ top[1],
            s[4],
            s[5] ^ top[0] >> 32,
            s[6] ^ across(top[0], top[1], 32),
            s[7] ^ top[1] << 32,
            c ^ top[0],
            d ^ top[1],
        ];
    }
    Some(s)
}

/// Four words as bits, the first word most significant.
#[inline]
fn bits(words: &[u32; 4]) -> [u64; 2] {
    let pairs: [[u8; 8]; 2] = transmute!(*words);
    pairs.map(|pair| u64::from_le_bytes(pair).rotate_left(32))
}

/// The upper half of `high` and `low` shifted left together. Said so that it does not become one
/// double shift, which many processors are slow at.
#[inline]
fn across(high: u64, low: u64, left: u32) -> u64 {
    high.rotate_left(left) ^ ((high ^ low) >> (64 - left))
}

/// Divides 512 bits until 64 remain. In each step the upper half `h` goes to three places in the
/// lower one, together with what it puts into itself on the way (`q`).
#[inline]
fn last_64_bits(remainder: [u64; 8]) -> u64 {
    // x^256 = x^192 + x^80 + 1
    let [h0, h1, h2, h3, l0, l1, l2, l3] = remainder;
    let (q0, q1) = (h0, h1 ^ h0);
    let q2 = q1 ^ h2 ^ h0 >> 48;
    let q3 = q1 ^ h2 ^ h3 ^ across(h0, h1, 16);
    let h0 = l0 ^ q0 ^ q3 ^ across(q1, q2, 16);
    let h1 = l1 ^ q1 ^ across(q2, q3, 16);
    let (l0, l1) = (l2 ^ q2 ^ q3 << 16, l3 ^ q3);
    // x^128 = x^96 + x^40 + 1
    let q0 = h0 ^ h0 >> 32;
    let q1 = q0 ^ h1 ^ across(h0, h1, 32) ^ h0 >> 24;
    let h = l0 ^ q0 ^ q1 << 32 ^ across(q0, q1, 40);
    let l = l1 ^ q1 ^ q1 << 40;
    // x^64 = x^48 + x^20 + 1
    let q = h ^ h >> 16;
    let q = q ^ q >> 32 ^ h >> 44;
    l ^ q ^ q << 20 ^ q << 48
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytewise(words: &[u32]) -> u16 {
        bytewise_of(
            &words
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect::<Vec<_>>(),
        )
    }

    fn bytewise_of(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0xFFFF_u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
                (crc << 1) ^ (0x1021 & (crc >> 15).wrapping_neg())
            })
        })
    }

    #[test]
    fn checksum_is_that_of_the_bytewise_definition_for_every_length() {
        assert_eq!(
            bytewise_of(b"123456789"),
            0x29B1,
            "the published check value"
        );
        for count in 0..150_u32 {
            let words: Vec<u32> = (0..count).map(|i| i.wrapping_mul(0x9E37_79B9)).collect();
            assert_eq!(crc16(&words), bytewise(&words), "{count} words");
        }
    }

    #[test]
    fn each_bit_of_a_message_counts_as_by_the_definition() {
        for count in [15, 16, 17, 18, 19, 34] {
            for bit in 0..32 * count {
                let mut words = vec![0; count];
                words[bit / 32] = 1 << (bit % 32);
                assert_eq!(
                    crc16(&words),
                    bytewise(&words),
                    "bit {bit} of {count} words"
                );
            }
        }
    }

    #[test]
    fn checksum_without_its_own_place_is_that_of_the_words_with_a_zero_there() {
        for count in 1..40_u32 {
            let mut words: Vec<u32> = (0..count).map(|i| i.wrapping_mul(0x85EB_CA6B)).collect();
            let computed = crc16_without_end(&words);
            words[count as usize - 1] &= 0xFFFF_0000;
            assert_eq!(computed, bytewise(&words), "{count} words");
        }
    }
}
