//! Faults of a line: bit flips, lost, repeated and mistaken words, lost return words, link loss.
//!
//! A [`LineFaultPlan`] says what happens to the n-th word on a line, from a seed and rates or from
//! a script; it depends on nothing but n, so that the same seed is the same story however the line
//! is driven. It changes no word itself: [`crate::card_link`] does. What each fault looks like at
//! the receiving end is [`observable`], the table of `docs/links.md`.

use livetime_wire::LossCause;
use livetime_wire::decision::mix64;
use livetime_wire::slink::FragmentStatus;

/// Separates the words' faults from other uses of the seed.
const PURPOSE_WORDS: u64 = 0x4C49_4E45_5746_4C54;
/// Separates the return words' faults from other uses of the seed.
const PURPOSE_RETURN: u64 = 0x4C49_4E45_5246_4C54;
/// The parts that rates are given in.
const MILLION: u64 = 1_000_000;

/// What happens to one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LineFault {
    /// A bit of the word is flipped; of a control word one of the user's bits 31:4.
    FlipBit(u8),
    /// The word is lost.
    DropWord,
    /// The word comes twice.
    RepeatWord,
    /// A control word comes as a data word, or the other way round.
    FlipControlFlag,
    /// The link goes down before this word; what is on the line is lost too.
    LinkLoss,
}

/// How often each fault strikes, in faults per million words (return words for `return_loss`).
///
/// Default 0 everywhere: a good line. A word suffers at most one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    /// Of [`LineFault::FlipBit`].
    pub flip_ppm: u32,
    /// Of [`LineFault::DropWord`].
    pub drop_ppm: u32,
    /// Of [`LineFault::RepeatWord`].
    pub repeat_ppm: u32,
    /// Of [`LineFault::FlipControlFlag`].
    pub flag_ppm: u32,
    /// Of [`LineFault::LinkLoss`].
    pub link_loss_ppm: u32,
    /// Of return words that are lost: XOFF, XON and return lines come later by a period.
    pub return_loss_ppm: u32,
}

/// The faults of one line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineFaultPlan {
    seed: u64,
    rates: FaultRates,
    /// By word number, ascending.
    script: Vec<(u64, LineFault)>,
}

impl LineFaultPlan {
    /// A line without faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Faults at random, the same ones for the same seed.
    pub fn seeded(seed: u64, rates: FaultRates) -> Self {
        let script = Vec::new();
        Self {
            seed,
            rates,
            script,
        }
    }

    /// The faults given, each at the word of that number (from 0); the first of several for a word.
    pub fn scripted(mut script: Vec<(u64, LineFault)>) -> Self {
        script.sort_by_key(|(word, _)| *word);
        Self {
            script,
            ..Self::default()
        }
    }

    /// What happens to word `index` of the line.
    pub fn fault(&self, index: u64) -> Option<LineFault> {
        let at = self.script.partition_point(|(word, _)| *word < index);
        if let Some((word, fault)) = self.script.get(at)
            && *word == index
        {
            return Some(*fault);
        }
        let random = mix64(self.seed ^ PURPOSE_WORDS ^ mix64(index));
        let mut left = (u128::from(random) * u128::from(MILLION)) >> 64;
        let bit = (mix64(random) & 31) as u8;
        let rates = &self.rates;
        [
            (rates.flip_ppm, LineFault::FlipBit(bit)),
            (rates.drop_ppm, LineFault::DropWord),
            (rates.repeat_ppm, LineFault::RepeatWord),
            (rates.flag_ppm, LineFault::FlipControlFlag),
            (rates.link_loss_ppm, LineFault::LinkLoss),
        ]
        .into_iter()
        .find_map(|(ppm, fault)| match left.checked_sub(u128::from(ppm)) {
            None => Some(fault),
            Some(rest) => {
                left = rest;
                None
            }
        })
    }

    /// Whether return word `index` is lost.
    pub fn is_return_lost(&self, index: u64) -> bool {
        let random = mix64(self.seed ^ PURPOSE_RETURN ^ mix64(index));
        let part = (u128::from(random) * u128::from(MILLION)) >> 64;
        part < u128::from(self.rates.return_loss_ppm)
    }
}

/// Where in a fragment's block a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultPlace {
    /// The begin word.
    Begin,
    /// A data word that is no part of the fragment's header or trailer.
    Payload,
    /// The end word.
    End,
}

/// What the receiving end makes of a fragment with one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observable {
    /// Filed, with these status bits and no others.
    Filed(FragmentStatus),
    /// Filed and good; a block without data is counted as stray (`blocks_stray`).
    FiledAndStray,
    /// Lost under this cause, counted at the receiving end.
    Lost(LossCause),
    /// The block is cut; lost as `link_truncated`, counted at the sending end or in the cards.
    Cut,
}

/// The table of faults: what one fault in a block looks like, nothing else being wrong near it.
///
/// It holds for fragments checked with CRC-32C and for links that report errors in control words.
/// A fault in the fragment's own header or trailer words is not in it: by the word that is hit the
/// fragment is filed with `link_data` or lost as `fragment_malformed`.
pub fn observable(fault: LineFault, place: FaultPlace) -> Observable {
    use FragmentStatus as S;
    let bits = |bits: &[S]| Observable::Filed(bits.iter().fold(S::GOOD, |all, bit| all.with(*bit)));
    match (fault, place) {
        (LineFault::FlipBit(_), FaultPlace::Begin) => bits(&[S::WRONG_BEGIN, S::LINK_CONTROL]),
        (LineFault::FlipBit(_), FaultPlace::Payload) => bits(&[S::BAD_CRC, S::LINK_DATA]),
        (LineFault::FlipBit(_), FaultPlace::End) => bits(&[S::WRONG_END, S::LINK_CONTROL]),
        (LineFault::DropWord, FaultPlace::Begin) => bits(&[S::NO_BEGIN]),
        (LineFault::DropWord | LineFault::RepeatWord, FaultPlace::Payload) => {
            bits(&[S::BAD_LENGTH, S::LINK_DATA])
        }
        (LineFault::DropWord, FaultPlace::End) => bits(&[S::NO_END]),
        (LineFault::RepeatWord, FaultPlace::Begin | FaultPlace::End) => Observable::FiledAndStray,
        (LineFault::FlipControlFlag, FaultPlace::Begin) => {
            Observable::Lost(LossCause::FragmentMalformed)
        }
        (LineFault::FlipControlFlag, FaultPlace::Payload) => {
            bits(&[S::BAD_LENGTH, S::WRONG_END, S::LINK_CONTROL])
        }
        (LineFault::FlipControlFlag, FaultPlace::End) => Observable::Lost(LossCause::LinkTruncated),
        (LineFault::LinkLoss, _) => Observable::Cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_strikes_where_it_says_and_nowhere_else() {
        let plan =
            LineFaultPlan::scripted(vec![(9, LineFault::DropWord), (3, LineFault::RepeatWord)]);
        let struck: Vec<u64> = (0..20).filter(|n| plan.fault(*n).is_some()).collect();
        assert_eq!(struck, [3, 9]);
        assert_eq!(plan.fault(9), Some(LineFault::DropWord));
        assert!((0..1000).all(|n| !plan.is_return_lost(n)));
    }

    #[test]
    fn rates_are_kept_and_seeds_repeat() {
        let rates = FaultRates {
            flip_ppm: 10_000,
            drop_ppm: 5_000,
            repeat_ppm: 2_000,
            flag_ppm: 1_000,
            link_loss_ppm: 500,
            return_loss_ppm: 30_000,
        };
        let plan = LineFaultPlan::seeded(17, rates);
        let words = 1_000_000;
        let mut counts = [0u32; 5];
        for fault in (0..words).filter_map(|n| plan.fault(n)) {
            counts[match fault {
                LineFault::FlipBit(_) => 0,
                LineFault::DropWord => 1,
                LineFault::RepeatWord => 2,
                LineFault::FlipControlFlag => 3,
                LineFault::LinkLoss => 4,
            }] += 1;
        }
        for (count, expected) in counts.into_iter().zip([10_000, 5_000, 2_000, 1_000, 500]) {
            let expected = f64::from(expected);
            let distance = (f64::from(count) - expected).abs();
            assert!(distance < 5.0 * expected.sqrt(), "{count} for {expected}");
        }
        let again = LineFaultPlan::seeded(17, rates);
        assert!((0..words).all(|n| plan.fault(n) == again.fault(n)));
        let lost = (0..words).filter(|n| plan.is_return_lost(*n)).count();
        assert!((29_000..31_000).contains(&lost), "{lost}");
        let other = LineFaultPlan::seeded(18, rates);
        assert!((0..words).any(|n| plan.fault(n) != other.fault(n)));
    }
}
