//! Events: no words panic, with the header's checksum as it comes and put right; every fragment of
//! an event that parses lies inside it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::crc::crc32c;
use livetime_wire::event::EventView;

fuzz_target!(|data: &[u8]| {
    let mut words = livetime_fuzz::words(data);
    walk(&words);
    let header_words = words.get(1).map_or(0, |word| (word & 0xFFFF) as usize);
    if header_words > 0 && header_words <= words.len() {
        words[header_words - 1] = crc32c(&words[..header_words - 1]);
        walk(&words);
    }
});

fn walk(words: &[u32]) {
    let Ok(view) = EventView::new_checked(words) else {
        return;
    };
    let inside: usize = view.fragments().map(|(_, fragment)| fragment.len()).sum();
    assert!(inside < view.words().len());
    assert_eq!(view.is_incomplete(), view.missing().len() > 0);
    let first_wrong = view
        .fragments()
        .find(|(entry, fragment)| crc32c(fragment) != entry.crc);
    assert_eq!(view.verify_fragments().is_err(), first_wrong.is_some());
}
