use livetime_wire::fragment::{
    CrcCheck, FragmentError, FragmentHeader, FragmentView, HEADER_WORDS, OVERHEAD_WORDS,
    check_parts,
};
use livetime_wire::object::{ObjectBlockView, ObjectKind};
use livetime_wire::{RunNumber, SourceId, TriggerNumber};
use proptest::prelude::*;

use crate::golden::{assert_golden, for_each_flipped_bit, golden_words};

const HEADER: FragmentHeader = FragmentHeader {
    source: SourceId(0x01_0003),
    run: RunNumber(42),
    trigger_low: 0x1234_5678,
    bunch: 1234,
    trigger_type: 5,
    event_type: 7,
};

fn emit(header: &FragmentHeader, status: u32, data: &[u32]) -> Vec<u32> {
    let mut words = vec![0; data.len() + OVERHEAD_WORDS];
    let count = header.emit(status, data.len(), &mut words, |out| {
        out.copy_from_slice(data);
    });
    assert_eq!(count, words.len());
    words
}

#[test]
fn golden_fragment_is_emitted_and_read() {
    let golden = golden_words("fragment-v1.hex");
    let view = FragmentView::new_checked(&golden).unwrap();
    assert_eq!(view.header(), HEADER);
    assert_eq!(view.check().crc_good, Some(true));
    assert_eq!(
        (view.check().data_words, view.check().front_end_status),
        (16, 0)
    );
    let near = TriggerNumber(0x5_1234_0000);
    assert_eq!(view.header().trigger(near), TriggerNumber(0x5_1234_5678));
    let objects = ObjectBlockView::new_checked(view.data()).unwrap();
    let muon = objects.objects().next().unwrap();
    assert_eq!(
        (muon.kind, muon.pt, muon.dxy),
        (ObjectKind::Muon, 54.7055, -0.074_544_4)
    );
    assert_eq!(
        view.data()[objects.words()..],
        [0, 0x9E37_79B9, 0x3C6E_F372, 0xDAA6_6D2B]
    );
    assert_golden("fragment-v1.hex", &emit(&HEADER, 0, view.data()));
}

#[test]
fn every_flipped_bit_of_the_golden_fragment_is_noticed() {
    let golden = golden_words("fragment-v1.hex");
    let good = FragmentView::new_checked(&golden).unwrap().check();
    for_each_flipped_bit(&golden, |words, bit| {
        if let Ok(view) = FragmentView::new_checked(words) {
            let word = bit / 32;
            assert_eq!(view.check().crc_good, Some(false), "word {word}");
            assert_ne!(view.check().crc_all, good.crc_all, "word {word}");
            let in_trailer = word >= golden.len() - 3;
            assert!(word >= 2 && !in_trailer, "word {word} is checked exactly");
        }
    });
}

#[test]
fn errors_say_what_is_wrong() {
    let mut words = golden_words("fragment-v1.hex");
    let n = words.len();
    let short = FragmentView::new_checked(&words[..13]).unwrap_err();
    assert_eq!(short, FragmentError::TooShort { words: 13 });
    let cut = FragmentView::new_checked(&words[..n - 4]).unwrap_err();
    assert!(
        matches!(cut, FragmentError::Trailer { words, .. } if words == n - 4),
        "{cut}"
    );
    words[n - 2] += 1;
    let error = FragmentView::new_checked(&words).unwrap_err();
    let text = "trailer says 2 status and 17 data words, the fragment has 30 words";
    assert_eq!(error.to_string(), text);
    words[0] = 0xEE34_12EE;
    let text = "word 0 of the header is 0xee3412ee, expected 0xee1234ee";
    assert_eq!(
        FragmentView::new_checked(&words).unwrap_err().to_string(),
        text
    );
    assert!(FragmentHeader::parse(&words[..HEADER_WORDS - 1]).is_err());
}

#[test]
fn a_fragment_whose_crc_is_not_computed_says_so() {
    let golden = golden_words("fragment-v1.hex");
    let check = check_parts(&[&golden], CrcCheck::Off).unwrap();
    assert_eq!((check.crc_good, check.crc_all), (None, 0));
}

fn any_header() -> impl Strategy<Value = FragmentHeader> {
    any::<[u32; 6]>().prop_map(|w| FragmentHeader {
        source: SourceId(w[0]),
        run: RunNumber(w[1]),
        trigger_low: w[2],
        bunch: w[3],
        trigger_type: w[4],
        event_type: w[5],
    })
}

/// Cuts `words` at the places given, in any order; parts may be empty.
fn cut(words: &[u32], mut cuts: Vec<usize>) -> Vec<&[u32]> {
    cuts.sort_unstable();
    let mut start = 0;
    let mut parts = Vec::new();
    for place in cuts.into_iter().chain([words.len()]) {
        parts.push(&words[start..place]);
        start = place;
    }
    parts
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_back(
        header in any_header(),
        status: u32,
        data in prop::collection::vec(any::<u32>(), 0..100),
    ) {
        let words = emit(&header, status, &data);
        let view = FragmentView::new_checked(&words).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.data(), &data[..]);
        prop_assert_eq!(view.check().front_end_status, status);
        prop_assert_eq!(view.check().crc_good, Some(true));
        prop_assert_eq!(view.check().crc_all, livetime_wire::crc::crc32c(&words));
    }

    #[test]
    fn a_fragment_in_parts_is_checked_like_the_whole(
        data in prop::collection::vec(any::<u32>(), 0..60),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        broken: Option<(prop::sample::Index, u32)>,
    ) {
        let mut words = emit(&HEADER, 0, &data);
        if let Some((place, change)) = broken {
            let index = place.index(words.len());
            words[index] ^= change;
        }
        let cuts = cuts.iter().map(|cut| cut.index(words.len() + 1)).collect();
        let parts = cut(&words, cuts);
        for crc in [CrcCheck::On, CrcCheck::Off] {
            prop_assert_eq!(check_parts(&parts, crc), check_parts(&[&words], crc));
        }
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(any::<u32>(), 0..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        framed: bool,
    ) {
        let mut words = words;
        if framed && words.len() >= OVERHEAD_WORDS {
            let n = words.len();
            (words[0], words[1]) = (0xEE12_34EE, 9);
            (words[n - 3], words[n - 1]) = (2, 1);
            words[n - 2] = (n - OVERHEAD_WORDS) as u32;
        }
        let cuts = cuts.iter().map(|cut| cut.index(words.len() + 1)).collect();
        let check = check_parts(&cut(&words, cuts), CrcCheck::On);
        prop_assert_eq!(check.is_ok(), framed && words.len() >= OVERHEAD_WORDS);
        if let Ok(view) = FragmentView::new_checked(&words) {
            prop_assert_eq!(view.data().len() + OVERHEAD_WORDS, view.words().len());
        }
    }
}
