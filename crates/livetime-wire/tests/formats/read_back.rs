use livetime_wire::timing_read_back::{ReadBack, ReadBackError, ReadBackView, emit, words_of};
use proptest::prelude::*;

use crate::golden::{assert_golden, golden_words};

#[test]
fn golden_read_back_is_emitted_and_read() {
    let golden = golden_words("read-back-v1.hex");
    let view = ReadBackView::new_checked(&golden).unwrap();
    let generators = [(0x3FFF_FFFF, 0x3FFF_F000), (i32::MIN, -1)];
    let generators = generators.map(|(output, read_back)| ReadBack { output, read_back });
    assert!(view.is_gate_open());
    assert!(view.generators().eq(generators));
    let mut words = vec![0; words_of(2)];
    emit(true, generators.into_iter(), &mut words);
    assert_golden("read-back-v1.hex", &words);
}

#[test]
fn other_words_are_refused() {
    let golden = golden_words("read-back-v1.hex");
    for length in 0..golden.len() {
        assert!(ReadBackView::new_checked(&golden[..length]).is_err());
    }
    let error = ReadBackView::new_checked(&[0, 0, 0]).unwrap_err();
    assert_eq!(error, ReadBackError::Mark { found: 0 });
    let none = ReadBackView::new_checked(&[golden[0], 0, 0]).unwrap_err();
    assert_eq!(none.to_string(), "read-back of 0 generators has 3 words");
}

proptest! {
    #[test]
    fn any_words_are_read_or_refused(mut words in proptest::collection::vec(any::<u32>(), 0..140)) {
        if let Some(first) = words.first_mut() {
            *first = livetime_wire::timing_read_back::MARK;
        }
        if let Ok(view) = ReadBackView::new_checked(&words) {
            prop_assert_eq!(words_of(view.generators().count()), words.len());
        }
    }
}
