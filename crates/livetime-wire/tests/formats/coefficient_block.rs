use livetime_wire::CoefficientSet;
use livetime_wire::timing_coefficient::{
    BLOCK_MARK, CoefficientBlockError, CoefficientBlockView, CoefficientError, SET_BYTES,
    emit_block,
};
use proptest::prelude::*;

use crate::golden::golden_words;

fn golden_sets() -> [Vec<CoefficientSet>; 2] {
    let first = CoefficientSet {
        a: -2,
        b: 3,
        c: -1_000_000,
        step: 2,
        frequency: 5,
        shift_a: 17,
        shift_b: 33,
    };
    let second = CoefficientSet {
        a: i16::MAX,
        b: i16::MIN,
        c: i32::MAX,
        step: 7,
        frequency: 7,
        shift_a: 48,
        shift_b: 48,
    };
    let third = CoefficientSet {
        c: 42,
        ..CoefficientSet::default()
    };
    [vec![first, second], vec![third]]
}

fn golden_bytes() -> Vec<u8> {
    let words = golden_words("coefficient-block-v1.hex");
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn read(bytes: &[u8]) -> Result<Vec<Vec<CoefficientSet>>, CoefficientBlockError> {
    let view = CoefficientBlockView::new_checked(bytes)?;
    (0..view.channels())
        .map(|channel| view.sets(channel).collect())
        .collect()
}

#[test]
fn golden_block_is_emitted_and_read() {
    let sets = golden_sets();
    assert_eq!(read(&golden_bytes()).unwrap(), sets);
    let channels: Vec<&[CoefficientSet]> = sets.iter().map(Vec::as_slice).collect();
    assert_eq!(emit_block(&channels).unwrap(), golden_bytes());
}

#[test]
fn every_wrong_length_is_refused_with_the_right_one() {
    let bytes = golden_bytes();
    for length in (0..bytes.len()).chain([bytes.len() + 1, bytes.len() + SET_BYTES]) {
        let mut other = bytes.clone();
        other.resize(length, 0);
        let error = CoefficientBlockView::new_checked(&other).unwrap_err();
        assert!(
            matches!(error, CoefficientBlockError::Length { found, expected }
                if found == length && expected != length),
            "{error}"
        );
    }
}

#[test]
fn errors_name_channel_and_set() {
    let mut bytes = golden_bytes();
    // The control word of the second set of channel 0: header of 4 words, 5 words on.
    bytes[4 * 9 + 3] = 0x80;
    let error = read(&bytes).unwrap_err().to_string();
    assert_eq!(
        error,
        "set 1 of channel 0: control word of a coefficient set is 0x80030c3f, \
         bits 31 to 18 must be 0"
    );
    let wrong = CoefficientSet {
        step: 8,
        ..CoefficientSet::default()
    };
    let error = emit_block(&[&[], &[CoefficientSet::default(), wrong]]).unwrap_err();
    let expected = CoefficientBlockError::Set {
        channel: 1,
        index: 1,
        error: CoefficientError::Field {
            field: "step",
            found: 8,
            max: 7,
        },
    };
    assert_eq!(error, expected);
    let none = CoefficientBlockView::new_checked(&[0x01, 0x46, 0x54, 0x4C, 0, 0, 0, 0]);
    assert_eq!(
        none.unwrap_err(),
        CoefficientBlockError::Channels { found: 0 }
    );
    assert_eq!(
        emit_block(&[]),
        Err(CoefficientBlockError::Channels { found: 0 })
    );
    assert!(matches!(
        CoefficientBlockView::new_checked(&[0; 8]),
        Err(CoefficientBlockError::Mark { found: 0 })
    ));
}

#[test]
fn absurd_counts_are_refused_without_reading_them() {
    for (channels, sets) in [
        (64u32, u32::MAX),
        (64, (1 << 25) + 1),
        (65, 0),
        (u32::MAX, 1),
    ] {
        let mut bytes = BLOCK_MARK.to_le_bytes().to_vec();
        bytes.extend(channels.to_le_bytes());
        for _ in 0..64 {
            bytes.extend(sets.to_le_bytes());
        }
        assert!(CoefficientBlockView::new_checked(&bytes).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        channels in 0u32..4,
        honest: bool,
    ) {
        if honest && bytes.len() >= 8 {
            bytes[..4].copy_from_slice(&BLOCK_MARK.to_le_bytes());
            bytes[4..8].copy_from_slice(&channels.to_le_bytes());
        }
        if let Ok(view) = CoefficientBlockView::new_checked(&bytes) {
            let sets: usize = (0..view.channels()).map(|c| view.sets(c).count()).sum();
            let header = 4 * (2 + view.channels());
            prop_assert_eq!(header + sets * SET_BYTES, bytes.len());
        }
    }

    #[test]
    fn any_set_in_range_round_trips(
        a: i16,
        b: i16,
        c: i32,
        fields in (0u8..8, 0u8..8, 0u8..64, 0u8..64),
    ) {
        let (step, frequency, shift_a, shift_b) = fields;
        let set = CoefficientSet { a, b, c, step, frequency, shift_a, shift_b };
        prop_assert_eq!(CoefficientSet::from_words(set.to_words().unwrap()), Ok(set));
    }
}
