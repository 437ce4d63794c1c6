//! Builder messages: no words panic, and a message that parses survives being sent again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::message::Envelope;

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    if let Ok(envelope) = Envelope::parse(&words) {
        assert_eq!(Envelope::parse(&envelope.to_words()), Ok(envelope));
    }
});
