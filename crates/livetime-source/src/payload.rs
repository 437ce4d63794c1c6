//! The words behind the object block of a fragment: a pattern that names its own origin.
//!
//! Word `i` is `key + i x 0x9E3779B9` (mod 2^32) with a key made of seed, event index and link.
//! Any fragment can be checked alone, since word 0 is the key; a fragment of the wrong event or
//! link shows when the key is compared, too. The pattern is one multiplication per word, so that
//! it costs less than the CRC that follows.

use livetime_wire::decision::mix64;
use livetime_wire::fragment::{FragmentError, FragmentView};
use livetime_wire::object::{ObjectBlockView, ObjectError};

use crate::counter_random::key;

/// Between one word and the next: 2^32 divided by the golden ratio, odd.
const STEP: u32 = 0x9E37_79B9;
/// Separates these keys from other uses of the seed.
const PURPOSE: u64 = 0x5041_594C;

/// The pattern of one fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadPattern {
    key: u32,
}

/// Why a fragment does not hold what the source wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The words are not a fragment.
    #[error(transparent)]
    Fragment(#[from] FragmentError),
    /// The CRC of the fragment is wrong.
    #[error("the fragment's CRC does not agree with its words")]
    Crc,
    /// The data do not begin with an object block.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// A payload word is not the pattern's.
    #[error("payload word {index} is {found:#010x}, expected {expected:#010x}")]
    Word {
        /// Which word of the payload.
        index: usize,
        /// The pattern's value.
        expected: u32,
        /// The value found.
        found: u32,
    },
}

impl PayloadPattern {
    /// The pattern of a fragment.
    pub fn new(seed: u64, index: u64, link: usize) -> Self {
        let fragment = mix64(key(seed, PURPOSE) ^ mix64(index)).wrapping_add(link as u64);
        let key = (mix64(fragment) >> 32) as u32;
        Self { key }
    }

    /// The pattern that a payload claims to be, by its first word.
    pub fn of_payload(payload: &[u32]) -> Option<Self> {
        payload.first().map(|key| Self { key: *key })
    }

    /// Writes the pattern over all of `out`.
    pub fn fill(self, out: &mut [u32]) {
        for (index, word) in out.iter_mut().enumerate() {
            *word = self.word(index);
        }
    }

    /// Compares `payload` with the pattern.
    ///
    /// # Errors
    /// [`PayloadError::Word`] for the first word that differs.
    pub fn check(self, payload: &[u32]) -> Result<(), PayloadError> {
        let bad = payload
            .iter()
            .enumerate()
            .find(|(index, word)| **word != self.word(*index));
        match bad {
            None => Ok(()),
            Some((index, found)) => Err(PayloadError::Word {
                index,
                expected: self.word(index),
                found: *found,
            }),
        }
    }

    #[inline]
    fn word(self, index: usize) -> u32 {
        self.key.wrapping_add((index as u32).wrapping_mul(STEP))
    }
}

/// Checks a whole fragment in one slice: framing, CRC, object block and payload. It does not see
/// whether this is the fragment that was asked for; [`PayloadPattern::check`] with the pattern of
/// (seed, index, link) does.
///
/// # Errors
/// A [`PayloadError`] that says what is wrong first.
pub fn check_payload(fragment: &[u32]) -> Result<(), PayloadError> {
    let view = FragmentView::new_checked(fragment)?;
    if view.check().crc_good != Some(true) {
        return Err(PayloadError::Crc);
    }
    let objects = ObjectBlockView::new_checked(view.data())?;
    let payload = &view.data()[objects.words()..];
    PayloadPattern::of_payload(payload).map_or(Ok(()), |pattern| pattern.check(payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_by_seed_event_and_link_and_name_the_bad_word() {
        let pattern = PayloadPattern::new(1, 2, 3);
        for other in [(2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 3, 2)] {
            assert_ne!(pattern, PayloadPattern::new(other.0, other.1, other.2));
        }
        let mut words = [0; 100];
        pattern.fill(&mut words);
        assert_eq!(pattern.check(&words), Ok(()));
        assert_eq!(PayloadPattern::of_payload(&words), Some(pattern));
        let expected = words[71];
        words[71] ^= 0x100;
        let error = PayloadError::Word {
            index: 71,
            expected,
            found: words[71],
        };
        assert_eq!(pattern.check(&words), Err(error));
        words[71] = expected;
        words.swap(10, 11);
        assert!(pattern.check(&words).is_err(), "order matters");
    }
}
