//! The self-test of a link: a walking one in cycles of 33 words, sent and checked.
//!
//! While UTEST# is low the source sends word 0 with the control flag and then a one on each of the
//! 32 data bits, again and again (S-LINK specification, self-test); links of 16 and 8 bits have
//! cycles of 17 and 9 words. This module makes and checks
//! the words; entering and leaving the test is in [`crate::link_source`] and
//! [`crate::link_destination`].

use livetime_wire::slink::{ControlWord, LineWord};

use crate::line::LineSlice;

/// Width of a link, as strapped on UDW\[1:0\].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkWidth {
    /// 8 data bits.
    Bits8,
    /// 16 data bits.
    Bits16,
    /// 32 data bits.
    #[default]
    Bits32,
}

impl LinkWidth {
    /// Words of one cycle of the self-test: the control word and one for each data bit.
    pub fn cycle_words(self) -> usize {
        match self {
            Self::Bits8 => 9,
            Self::Bits16 => 17,
            Self::Bits32 => 33,
        }
    }
}

/// The data words of the longest cycle; narrower links send the first of them.
static WALKING_ONE: [u32; 32] = {
    let mut words = [0; 32];
    let mut bit = 0;
    while bit < words.len() {
        words[bit] = 1 << bit;
        bit += 1;
    }
    words
};

/// What the receiving end does in self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SelfTest {
    /// No test: words are data.
    #[default]
    Off,
    /// Words are checked and kept from the user.
    Check,
    /// Words are checked and delivered too (UTDO# low).
    CheckAndDeliver,
}

/// Emits the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TestPattern {
    width: LinkWidth,
    position: usize,
}

impl TestPattern {
    /// The pattern of a link of this width, from its control word on.
    pub fn new(width: LinkWidth) -> Self {
        Self { width, position: 0 }
    }

    /// The next words, at most `words_max`, up to the end of the cycle.
    pub fn poll_line(&self, words_max: usize) -> Option<LineSlice<'static>> {
        if words_max == 0 {
            return None;
        }
        if self.position == 0 {
            return Some(LineSlice::Control(ControlWord(0)));
        }
        let rest = &WALKING_ONE[self.position - 1..self.width.cycle_words() - 1];
        Some(LineSlice::Data(&rest[..rest.len().min(words_max)]))
    }

    /// That many words of the pattern were taken by the line.
    pub fn handle_sent(&mut self, words: usize) {
        self.position = (self.position + words) % self.width.cycle_words();
    }
}

/// Checks the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TestChecker {
    width: LinkWidth,
    /// Position in the cycle; `None` before the first control word and after an error, so that one
    /// dropped word is one error.
    position: Option<usize>,
    /// Words compared.
    pub words_checked: u64,
    /// Words that did not fit.
    pub errors: u64,
    /// Cycles seen from the control word to the last bit without an error.
    pub cycles_good: u64,
}

impl TestChecker {
    /// A checker of a link of this width.
    pub fn new(width: LinkWidth) -> Self {
        Self {
            width,
            ..Self::default()
        }
    }

    /// Checks words of the line; what comes before the first control word is not compared.
    pub fn handle_line(&mut self, line: LineSlice<'_>) {
        for word in line.iter() {
            self.handle_word(word);
        }
    }

    fn handle_word(&mut self, word: LineWord) {
        let expected = self.position.unwrap_or(0);
        let fits = match word {
            LineWord::Control(control) => {
                expected == 0 && control.user() == 0 && !control.control_error()
            }
            LineWord::Data(data) => expected > 0 && data == WALKING_ONE[expected - 1],
        };
        if self.position.is_none() && !fits {
            return;
        }
        self.words_checked += 1;
        if !fits {
            self.errors += 1;
            let restart = matches!(word, LineWord::Control(control) if control.user() == 0);
            self.position = restart.then_some(1);
            return;
        }
        self.position = Some((expected + 1) % self.width.cycle_words());
        self.cycles_good += u64::from(self.position == Some(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle_words(words_max: usize, count: usize) -> Vec<LineWord> {
        let (mut pattern, mut words) = (TestPattern::default(), Vec::new());
        while words.len() < count {
            let slice = pattern.poll_line(words_max).unwrap();
            assert!(slice.words() <= words_max);
            words.extend(slice.iter());
            pattern.handle_sent(slice.words());
        }
        words.truncate(count);
        words
    }

    #[test]
    fn pattern_is_a_control_word_and_a_walking_one() {
        let words = cycle_words(100, 66);
        assert_eq!(words[0], LineWord::Control(ControlWord(0)));
        assert_eq!(words[1], LineWord::Data(1));
        assert_eq!(words[32], LineWord::Data(0x8000_0000));
        assert_eq!(words[..33], words[33..]);
        assert_eq!(cycle_words(1, 66), words);
        assert_eq!(cycle_words(7, 66), words);
    }

    #[test]
    fn narrower_links_have_shorter_cycles_and_find_the_other_width() {
        let widths = [LinkWidth::Bits8, LinkWidth::Bits16, LinkWidth::Bits32];
        for sent in widths {
            let (mut pattern, mut words) = (TestPattern::new(sent), Vec::new());
            for _ in 0..12 * sent.cycle_words() {
                let slice = pattern.poll_line(5).unwrap();
                words.extend(slice.iter());
                pattern.handle_sent(slice.words());
            }
            words.truncate(10 * sent.cycle_words());
            let bits = sent.cycle_words() as u32 - 1;
            let last = words[sent.cycle_words() - 1];
            assert_eq!(last, LineWord::Data(1 << (bits - 1)));
            for checked in widths {
                let mut checker = TestChecker::new(checked);
                words.iter().for_each(|word| checker.handle_word(*word));
                assert_eq!(checker.errors == 0, sent == checked, "{sent:?} {checked:?}");
                if sent == checked {
                    assert_eq!(checker.cycles_good, 10, "{sent:?}");
                }
            }
        }
    }

    #[test]
    fn good_cycles_are_counted_and_every_single_damage_is_one_error() {
        let clean = cycle_words(100, 99);
        let check = |words: &[LineWord]| {
            let mut checker = TestChecker::default();
            words.iter().for_each(|word| checker.handle_word(*word));
            checker
        };
        assert_eq!(check(&clean).errors, 0);
        assert_eq!(check(&clean).cycles_good, 3);
        for at in 33..66 {
            let mut dropped = clean.clone();
            dropped.remove(at);
            let result = check(&dropped);
            assert_eq!((result.errors, result.cycles_good), (1, 2), "dropped {at}");
            let mut flipped = clean.clone();
            flipped[at] = match flipped[at] {
                LineWord::Data(word) => LineWord::Data(word ^ 0x10),
                LineWord::Control(word) => LineWord::Control(ControlWord(word.0 ^ 0x10)),
            };
            let result = check(&flipped);
            assert_eq!((result.errors, result.cycles_good), (1, 2), "flipped {at}");
        }
    }
}
