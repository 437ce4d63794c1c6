//! Fragments: no words panic, a fragment cut into pages is the same fragment, and what was emitted
//! parses back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::fragment::{
    CrcCheck, FragmentHeader, FragmentView, HEADER_WORDS, OVERHEAD_WORDS, check_parts,
};

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    let whole = check_parts(&[&words], CrcCheck::On);
    let cut = words.len() / 3;
    assert_eq!(
        check_parts(&[&words[..cut], &[], &words[cut..]], CrcCheck::On),
        whole
    );

    // The same data behind a good header, emitted and read again.
    let header = FragmentHeader::parse(&words);
    let body = words.get(HEADER_WORDS..).unwrap_or(&[]);
    if let Ok(header) = header {
        let mut out = vec![0; body.len() + OVERHEAD_WORDS];
        header.emit(0, body.len(), &mut out, |data| data.copy_from_slice(body));
        let view = FragmentView::new_checked(&out).expect("an emitted fragment is well framed");
        assert_eq!(view.header(), header);
        assert_eq!(view.data(), body);
        assert_eq!(view.check().crc_good, Some(true));
    }
});
