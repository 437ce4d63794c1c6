//! Replies: no words panic, and a reply that parses has the words that it came from.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::L2Reply;

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    if let Ok(reply) = L2Reply::parse(&words) {
        assert_eq!(reply.to_words().as_slice(), words);
    }
});
