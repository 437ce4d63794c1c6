//! Frames, tallies and returns of links over a network: no words panic, and what is read has the
//! words that it came from.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::link_frame::{FrameHeader, HEADER_WORDS, LinkTally};
use livetime_wire::link_return::LinkReturn;

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    if let Ok((header, block)) = FrameHeader::parse_whole(&words) {
        assert_eq!(header.emit(), words[..HEADER_WORDS]);
        assert_eq!(block.len(), header.data_words);
    }
    if let Some(tally) = words.first_chunk().and_then(LinkTally::parse) {
        assert_eq!(tally.emit(), words[..HEADER_WORDS]);
        let settled = u64::from(words.last().copied().unwrap_or(0)) << 8;
        assert!(tally.blocks(settled) >= settled);
    }
    if let Some(said) = LinkReturn::parse(&words) {
        assert_eq!(said.emit().as_slice(), words);
    }
});
