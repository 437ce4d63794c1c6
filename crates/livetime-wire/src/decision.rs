//! The Level-2 decision: a 128-bit mask, the reply that carries it, and the digest of a run's.
//!
//! A reply is five words between the control words of the return link: the low 32 bits of the
//! trigger number, then the mask after prescale, least significant word first. What the bits mean
//! is the menu's business (`livetime-trigger`).

use core::fmt;

use crate::id::TriggerNumber;

/// Words of a reply.
pub const REPLY_WORDS: usize = 5;

/// 128 Level-2 bits; bit `n` is the menu's path with that bit number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct L2Mask(pub u128);

impl L2Mask {
    /// No path fired.
    pub const NONE: Self = Self(0);

    /// Whether any path fired.
    #[inline]
    pub fn is_accept(self) -> bool {
        self.0 != 0
    }

    /// The four words, least significant first.
    #[inline]
    pub fn to_words(self) -> [u32; 4] {
        core::array::from_fn(|i| ((self.0 >> (32 * i)) & 0xFFFF_FFFF) as u32)
    }

    /// The mask of four words, least significant first.
    #[inline]
    pub fn from_words(words: [u32; 4]) -> Self {
        Self(
            words
                .iter()
                .rev()
                .fold(0, |mask, word| (mask << 32) | u128::from(*word)),
        )
    }
}

impl fmt::Display for L2Mask {
    /// 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for L2Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L2Mask({self})")
    }
}

/// The reply of a trigger node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct L2Reply {
    /// Low 32 bits of the trigger number.
    pub trigger_low: u32,
    /// The decision after prescale.
    pub mask: L2Mask,
}

/// A reply of the wrong length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reply has {words} words, expected {REPLY_WORDS}")]
pub struct ReplyError {
    /// Words found.
    pub words: usize,
}

impl L2Reply {
    /// The words of the reply.
    #[inline]
    pub fn to_words(&self) -> [u32; REPLY_WORDS] {
        let [a, b, c, d] = self.mask.to_words();
        [self.trigger_low, a, b, c, d]
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// [`ReplyError`] unless there are exactly [`REPLY_WORDS`] words.
    #[inline]
    pub fn parse(words: &[u32]) -> Result<Self, ReplyError> {
        let [trigger_low, a, b, c, d] = *words else {
            return Err(ReplyError { words: words.len() });
        };
        Ok(Self {
            trigger_low,
            mask: L2Mask::from_words([a, b, c, d]),
        })
    }
}

/// A 64-bit digest over all decisions of a run, the same for any order of arrival.
///
/// The sum (modulo 2^64) of a mixed hash of each (trigger number, mask): order-independent on
/// purpose, so that decision nodes may reply out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecisionDigest(u64);

impl DecisionDigest {
    /// Takes in one decision.
    #[inline]
    pub fn add(&mut self, trigger: TriggerNumber, mask: L2Mask) {
        let low = (mask.0 & u128::from(u64::MAX)) as u64;
        let high = (mask.0 >> 64) as u64;
        let hash = mix64(mix64(mix64(trigger.0).wrapping_add(low)).wrapping_add(high));
        self.0 = self.0.wrapping_add(hash);
    }

    /// The digest as a number, to be passed on.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The digest of [`DecisionDigest::to_bits`].
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Takes in all decisions of another digest.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl fmt::Display for DecisionDigest {
    /// 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Mixes 64 bits so that each output bit depends on each input bit (SplitMix64, Steele et al.,
/// OOPSLA 2014).
#[inline]
pub fn mix64(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_round_trip() {
        let mask = L2Mask(0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6978);
        let reply = L2Reply {
            trigger_low: 0xFFFF_FFFF,
            mask,
        };
        assert_eq!(L2Reply::parse(&reply.to_words()), Ok(reply));
        assert_eq!(
            reply.to_words()[1],
            0x4B5A_6978,
            "least significant word first"
        );
        assert_eq!(L2Reply::parse(&[1, 2, 3, 4]), Err(ReplyError { words: 4 }));
    }

    #[test]
    fn digest_forgets_order_but_nothing_else() {
        let decisions = [(1, 5u128), (2, 0), (3, 1 << 100)];
        let digest = |list: &[(u64, u128)]| {
            let mut digest = DecisionDigest::default();
            for (trigger, mask) in list {
                digest.add(TriggerNumber(*trigger), L2Mask(*mask));
            }
            digest
        };
        let reversed = [decisions[2], decisions[1], decisions[0]];
        assert_eq!(digest(&decisions), digest(&reversed));
        assert_ne!(digest(&decisions), digest(&decisions[..2]));
        assert_ne!(digest(&[(1, 5)]), digest(&[(1, 6)]));
        assert_ne!(digest(&[(1, 5), (2, 0)]), digest(&[(1, 0), (2, 5)]));
    }
}
