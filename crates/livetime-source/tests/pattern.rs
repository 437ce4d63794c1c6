//! SLIDAS patterns: what the words are, and that the checker finds what is wrong with them.

use livetime_source::pattern::{
    CheckCounts, Pattern, PatternChecker, PatternConfig, PatternError, PatternGenerator,
};
use proptest::prelude::*;

fn config(pattern: Pattern, words: usize) -> PatternConfig {
    PatternConfig {
        pattern,
        words,
        ..PatternConfig::default()
    }
}

fn blocks(config: &PatternConfig, count: usize) -> Vec<Vec<u32>> {
    let mut generator = PatternGenerator::new(config);
    (0..count)
        .map(|_| {
            let mut words = Vec::new();
            generator.next_block(&mut words);
            words
        })
        .collect()
}

#[test]
fn simple_patterns_are_those_of_the_card() {
    let start = |pattern| blocks(&config(pattern, 34), 2).remove(1);
    let one = start(Pattern::WalkingOne);
    assert_eq!(one[..3], [1, 2, 4]);
    assert_eq!(one[31..], [0x8000_0000, 1, 2], "wraps to 1");
    let zero = start(Pattern::WalkingZero);
    assert_eq!(zero[..2], [0xFFFF_FFFE, 0xFFFF_FFFD]);
    assert_eq!(zero[32], 0xFFFF_FFFE);
    assert_eq!(
        start(Pattern::AllOnesAllZeros)[..3],
        [u32::MAX, 0, u32::MAX]
    );
    assert_eq!(
        start(Pattern::Checkerboard)[..2],
        [0xAAAA_AAAA, 0x5555_5555]
    );
}

#[test]
fn readout_driver_blocks_count_on_and_wrap() {
    let all = blocks(&config(Pattern::ReadoutDriver, 17), 65_537);
    let expected_first = [
        0xEEEE_EEEE,
        0x20,
        0x0800_0003,
        0xA000_0000,
        1,
        1,
        2,
        0xDE, // header
        0,
        4,
        0, // status
        0,
        1,
        2, // data
        3,
        3,
        0, // trailer
    ];
    assert_eq!(all[0], expected_first);
    assert_eq!(all[1][4..7], [2, 4, 5]);
    assert_eq!(all[1365][5..7], [0, 1], "12 bits: 1 + 3 x 1365 wraps");
    assert_eq!(all[65_535][4], 0, "16 bits");
    assert_eq!(all[65_536][4..7], [1, 1, 2]);
}

#[test]
fn random_blocks_restart_from_the_seed_and_look_random() {
    let random = config(Pattern::Random, 4096);
    let all = blocks(&random, 2);
    assert_eq!(all[0], all[1]);
    let ones: u32 = all[0].iter().map(|word| word.count_ones()).sum();
    // Half of 131 072 bits, within five standard deviations of 181.
    assert!(ones.abs_diff(65_536) < 905, "{ones}");
    let other = PatternConfig { seed: 2, ..random };
    assert_ne!(all[0], blocks(&other, 1)[0]);
}

#[test]
fn names_are_the_numbers_of_the_card() {
    for pattern in Pattern::ALL {
        assert_eq!(pattern.to_string().parse(), Ok(pattern));
    }
    for text in ["0", "5", "Random", ""] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
}

#[test]
fn injected_errors_are_found_one_by_one() {
    let noisy = PatternConfig {
        error_rate: 0.25,
        ..config(Pattern::Checkerboard, 64)
    };
    let mut generator = PatternGenerator::new(&noisy);
    let mut checker = PatternChecker::new(&noisy);
    let mut words = Vec::new();
    for _ in 0..10_000 {
        let before = generator.counts().errors_injected;
        generator.next_block(&mut words);
        let injected = generator.counts().errors_injected > before;
        assert_eq!(checker.check(&words).is_err(), injected);
    }
    let (made, seen) = (generator.counts(), checker.counts());
    assert_eq!((seen.blocks, seen.words), (made.blocks, made.words));
    assert_eq!(seen.blocks_bad, made.errors_injected);
    assert_eq!(seen.words_bad, made.errors_injected);
    // A quarter of 10 000, within five standard deviations of 43.
    assert!(made.errors_injected.abs_diff(2_500) < 217, "{made:?}");
}

#[test]
fn a_gap_in_the_l1_ids_is_reported_once_and_a_bad_id_is_not_a_gap() {
    let rod = config(Pattern::ReadoutDriver, 20);
    let mut all = blocks(&rod, 12);
    let mut checker = PatternChecker::new(&rod);
    assert_eq!(checker.check(&all[0]), Ok(()));
    let gap = PatternError::Word {
        index: 4,
        expected: 2,
        found: 5,
    };
    assert_eq!(checker.check(&all[4]), Err(gap));
    assert_eq!(checker.counts().blocks_missing, 3);
    assert_eq!(checker.check(&all[5]), Ok(()));

    all[6][4] ^= 8;
    assert!(checker.check(&all[6]).is_err());
    assert_eq!(checker.check(&all[7]), Ok(()), "a flipped bit is no gap");
    assert_eq!(checker.counts().blocks_missing, 3);

    // An old block again: a step back, then on from there.
    assert!(checker.check(&all[2]).is_err());
    assert_eq!(checker.check(&all[3]), Ok(()));
    let expected = CheckCounts {
        blocks: 7,
        words: 140,
        blocks_bad: 3,
        words_bad: 3,
        blocks_missing: 3,
    };
    assert_eq!(checker.counts(), expected);
}

#[test]
fn blocks_of_the_wrong_length_are_reported() {
    let walking = config(Pattern::WalkingOne, 8);
    let mut checker = PatternChecker::new(&walking);
    for found in [0, 7, 9] {
        let words: Vec<u32> = (0..found).map(|i| 1 << i).collect();
        let error = PatternError::Length { expected: 8, found };
        assert_eq!(checker.check(&words), Err(error));
    }
    assert_eq!(checker.counts().words_bad, 0);
}

#[test]
fn blocks_too_short_for_their_framing_are_refused_at_check() {
    assert_eq!(PatternConfig::default().validate("p"), []);
    let short = config(Pattern::ReadoutDriver, 13);
    let bad = PatternConfig {
        error_rate: 1.5,
        ..short
    };
    let paths: Vec<String> = bad.validate("p").into_iter().map(|p| p.path).collect();
    assert_eq!(paths, ["p.words", "p.error_rate"]);
    assert_eq!(config(Pattern::ReadoutDriver, 14).validate("p"), []);
}

fn any_pattern() -> impl Strategy<Value = Pattern> {
    proptest::sample::select(Pattern::ALL.to_vec())
}

proptest! {
    #[test]
    fn every_block_passes_and_every_flipped_bit_is_found(
        pattern in any_pattern(),
        words in 14_usize..200,
        seed: u64,
        skip in 0_usize..5,
        place: prop::sample::Index,
        bit in 0_u32..32,
    ) {
        let config = PatternConfig { seed, ..config(pattern, words) };
        let mut checker = PatternChecker::new(&config);
        let mut all = blocks(&config, skip + 2);
        for block in &all[..=skip] {
            prop_assert_eq!(checker.check(block), Ok(()));
        }
        let index = place.index(words);
        all[skip + 1][index] ^= 1 << bit;
        let result = checker.check(&all[skip + 1]);
        prop_assert!(
            matches!(result, Err(PatternError::Word { index: found, .. }) if found == index),
            "{:?}", result
        );
    }

    #[test]
    fn the_checker_takes_any_words(
        pattern in any_pattern(),
        words in prop::collection::vec(any::<u32>(), 0..100),
        expected in 1_usize..100,
    ) {
        let mut checker = PatternChecker::new(&config(pattern, expected));
        let result = checker.check(&words);
        prop_assert_eq!(checker.counts().blocks_bad, u64::from(result.is_err()));
    }
}
