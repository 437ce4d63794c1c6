use livetime_wire::decision::ReplyError;
use livetime_wire::{L2Mask, L2Reply};
use proptest::prelude::*;

use crate::golden::{assert_golden, golden_words};

const REPLY: L2Reply = L2Reply {
    trigger_low: 0xFFFF_FFFE,
    mask: L2Mask(0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6978),
};

#[test]
fn golden_reply_is_emitted_and_read() {
    assert_eq!(L2Reply::parse(&golden_words("reply-v1.hex")), Ok(REPLY));
    assert_golden("reply-v1.hex", &REPLY.to_words());
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_back(trigger_low: u32, mask: u128) {
        let mask = L2Mask(mask);
        let reply = L2Reply { trigger_low, mask };
        prop_assert_eq!(L2Reply::parse(&reply.to_words()), Ok(reply));
        prop_assert_eq!(mask.is_accept(), reply.to_words()[1..] != [0; 4]);
    }

    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(any::<u32>(), 0..10)) {
        match L2Reply::parse(&words) {
            Ok(reply) => prop_assert_eq!(&reply.to_words()[..], &words[..]),
            Err(ReplyError { words: found }) => {
                prop_assert_eq!(found, words.len());
                prop_assert_ne!(found, 5);
            }
        }
    }
}
