use livetime_wire::slink::{ControlWord, FragmentStatus, LineWord};
use proptest::prelude::*;

use crate::golden::golden_lines;

#[test]
fn golden_words_are_control_and_data_with_their_error_bits() {
    let end = ControlWord::END_FRAGMENT;
    let control = LineWord::Control;
    let expected = [
        control(ControlWord::BEGIN_FRAGMENT),
        LineWord::Data(0x1234_5678),
        LineWord::Data(ControlWord::BEGIN_FRAGMENT.0),
        LineWord::Data(0),
        control(end),
        control(ControlWord::BEGIN_FRAGMENT),
        LineWord::Data(u32::MAX),
        control(end.with_errors(true, false)),
        control(ControlWord::BEGIN_FRAGMENT),
        control(end.with_errors(false, true)),
    ];
    let text: Vec<String> = expected
        .iter()
        .map(|word| match word {
            LineWord::Data(word) => format!("D {word:08x}"),
            LineWord::Control(word) => format!("C {:08x}", word.0),
        })
        .collect();
    assert_eq!(text, golden_lines("slink-v1.hex"));
    for word in expected {
        if let LineWord::Control(word) = word {
            assert!(word.matches(ControlWord::BEGIN_FRAGMENT) != word.matches(end));
        }
    }
}

proptest! {
    #[test]
    fn error_bits_belong_to_the_link_and_the_rest_to_the_user(
        word: u32, data_error: bool, control_error: bool,
    ) {
        let sent = ControlWord(word);
        let received = sent.with_errors(data_error, control_error);
        prop_assert!(received.matches(sent));
        prop_assert_eq!(received.data_error(), data_error);
        prop_assert_eq!(received.control_error(), control_error);
        prop_assert_eq!(received.0 & 0b1100, 0, "reserved");
    }

    #[test]
    fn any_status_can_be_shown_and_holds_its_bits(a: u32, b: u32) {
        let (a, b) = (FragmentStatus(a), FragmentStatus(b));
        let both = a.with(b);
        prop_assert!(both.contains(a) && both.contains(b));
        let shown = format!("{both:?}");
        prop_assert_eq!(shown == "good", both.is_good());
        let mut inserted = a;
        inserted.insert(b);
        prop_assert_eq!(inserted, both);
        prop_assert_eq!(both.is_good(), a.0 == 0 && b.0 == 0);
    }
}
