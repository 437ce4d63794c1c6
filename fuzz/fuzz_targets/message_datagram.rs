//! Datagrams of builder messages: no words panic, and what is read is a whole datagram again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::message_datagram::{DatagramHead, HEAD_WORDS, next_message};

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    // A right checksum, so that more than the head is looked at.
    let sealed = DatagramHead::parse(&words).ok().and_then(|head| {
        let mut sealed = words.clone();
        head.seal(sealed.get_mut(..HEAD_WORDS + head.message_words)?);
        Some(sealed)
    });
    for words in [Some(words), sealed].into_iter().flatten() {
        let Ok((head, mut rest, payload)) = DatagramHead::parse_whole(&words) else {
            continue;
        };
        assert_eq!(payload.len(), head.piece.map_or(0, |piece| piece.words));
        for _ in 0..head.messages {
            assert!(next_message(&mut rest).is_some());
        }
        assert!(rest.is_empty());
        let mut again = words.clone();
        head.seal(&mut again[..HEAD_WORDS + head.message_words]);
        assert_eq!(again, words);
    }
});
