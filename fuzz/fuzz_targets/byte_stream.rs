//! Byte streams: no words panic; what is read falls apart into frames and ROBs, and comes together
//! again as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::bytestream::{FileRecords, RodView, StreamPiece, StreamReader};
use livetime_wire::bytestream_frame::{self, FrameView};

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    let mut again = Vec::new();
    let mut records = FileRecords::default();
    let mut is_whole = true;
    for piece in StreamReader::new(&words) {
        let Ok(piece) = piece else {
            is_whole = false;
            break;
        };
        records.note(piece.before);
        records.note(piece.after);
        look_at(&piece);
        rebuild(&piece, &mut again);
    }
    assert!(records.starts + records.ends <= words.len() as u64);
    // Records alone, without an event, are no piece.
    let is_same = again.is_empty() || again == words;
    assert!(is_same || (!is_whole && words.starts_with(&again)));
    // Words that come from a run file as a frame.
    if let Ok(frame) = FrameView::new_checked(&words) {
        let nothing: Result<(), _> = frame.rebuild(|_| None, &mut again);
        assert_eq!(nothing.is_err(), frame.entries().len() > 0);
    }
});

/// All that a header is asked for.
fn look_at(piece: &StreamPiece<'_>) {
    let _known = (piece.event.run(), piece.event.number());
    for (_, rob) in piece.event.robs() {
        assert!(rob.status().len() + rob.payload().len() < rob.words().len());
        if let Ok(rod) = RodView::new_checked(rob.payload(), 0) {
            assert!(rod.data().len() < rob.payload().len());
            let _number = rod.level_one_id();
        }
    }
}

fn rebuild(piece: &StreamPiece<'_>, out: &mut Vec<u32>) {
    let mut frame = Vec::new();
    bytestream_frame::emit(piece, &mut frame);
    let frame = FrameView::new_checked(&frame).expect("an emitted frame is one");
    let find = |source| {
        let mut robs = piece.event.robs();
        let found = robs.find(|(_, rob)| rob.source() == source);
        found.map(|(_, rob)| rob.words())
    };
    frame.rebuild(find, out).expect("the ROBs are there");
}
