//! Control words: the link may set error bits and never touches the user's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::slink::{ControlWord, FragmentStatus};

fuzz_target!(|data: &[u8]| {
    for word in livetime_fuzz::words(data) {
        let control = ControlWord(word);
        for (data_error, control_error) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let sent = control.with_errors(data_error, control_error);
            assert!(sent.matches(control));
            assert_eq!(
                (sent.data_error(), sent.control_error()),
                (data_error, control_error)
            );
        }
        let status = FragmentStatus(word);
        assert_eq!(status.is_good(), word == 0);
        assert!(
            status
                .with(FragmentStatus::BAD_CRC)
                .contains(FragmentStatus::BAD_CRC)
        );
        // The text form must hold for any bits.
        assert!(!format!("{status:?}").is_empty());
    }
});
