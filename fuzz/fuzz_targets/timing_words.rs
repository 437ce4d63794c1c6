//! Words of the timing system: messages, records, read-back blocks, blocks of coefficient sets. No
//! bytes panic, and what is read is written again as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::timing_coefficient::{CoefficientBlockView, CoefficientSet, emit_block};
use livetime_wire::timing_message::TimingMessage;
use livetime_wire::timing_read_back::{self, ReadBackView};
use livetime_wire::timing_record::{TIMING_RECORD_WORDS, TimingRecord};

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => message(rest),
        1 => record(rest),
        2 => read_back(rest),
        _ => coefficients(rest),
    }
});

fn message(bytes: &[u8]) {
    if let Ok(message) = TimingMessage::parse(bytes) {
        assert_eq!(message.to_bytes(), bytes);
    }
}

fn record(bytes: &[u8]) {
    let (chunks, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = chunks
        .iter()
        .map(|chunk| u64::from_le_bytes(*chunk))
        .collect();
    let Some(words) = words.first_chunk::<TIMING_RECORD_WORDS>() else {
        return;
    };
    let Ok(record) = TimingRecord::new_checked(words) else {
        return;
    };
    let _told = (record.late_by_ns(), record.matched(), record.enqueued());
    assert_eq!(record.to_words(), *words);
}

fn read_back(bytes: &[u8]) {
    let words = livetime_fuzz::words(bytes);
    let Ok(view) = ReadBackView::new_checked(&words) else {
        return;
    };
    let mut again = vec![0; words.len()];
    timing_read_back::emit(view.is_gate_open(), view.generators(), &mut again);
    // Any word but 0 is an open gate.
    again[2] = words[2];
    assert_eq!(again, words);
}

fn coefficients(bytes: &[u8]) {
    let Ok(view) = CoefficientBlockView::new_checked(bytes) else {
        return;
    };
    let channels = (0..view.channels()).map(|channel| view.sets(channel).collect());
    let Ok(channels) = channels.collect::<Result<Vec<Vec<CoefficientSet>>, _>>() else {
        return;
    };
    let channels: Vec<&[CoefficientSet]> = channels.iter().map(Vec::as_slice).collect();
    let again = emit_block(&channels).expect("sets that were read fit");
    assert_eq!(again, bytes);
}
