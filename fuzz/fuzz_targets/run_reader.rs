//! Run files of any bytes: no reader panics, and what recovery writes is a whole file with exactly
//! the events that were read. Chunks are tried as they come and with their checksum put right.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use livetime_store::mcap_record::{CHUNK_HEADER_BYTES, ChunkHeader, crc32, op};
use livetime_store::{RunReader, inspect, recover};

fuzz_target!(|data: &[u8]| {
    check(data);
    if let Some(mended) = with_right_checksums(data) {
        check(&mended);
    }
});

/// Reads in every way, and recovers.
fn check(file: &[u8]) {
    if let Ok(mut reader) = RunReader::open_by_scan(Cursor::new(file)) {
        events(&mut reader);
        reader.histograms().expect("memory does not fail");
        reader.refresh().expect("memory does not fail");
    }
    let Ok(mut reader) = RunReader::open(Cursor::new(file)) else {
        return;
    };
    events(&mut reader);
    // As a recovery, which takes a file that nobody writes any more, and finds chunks wherever they lie:
    // so does an inspection, and what is read behind it.
    reader.read_cut_end();
    inspect(&mut reader).expect("memory does not fail");
    reader.rewind();
    let read = events(&mut reader);
    // Refused are files with more or larger events than the limits of the copy.
    let Ok((copy, recovered)) = recover(Cursor::new(file), Vec::new()) else {
        return;
    };
    assert_eq!(recovered.file.events_stored, read.len() as u64);
    let mut copied = RunReader::open(Cursor::new(copy.as_slice())).expect("a copy is a run file");
    assert_eq!(events(&mut copied), read, "a copy holds what was read");
    assert_eq!(copied.damage().total(), 0, "a copy is whole");
}

/// The words of every whole event.
fn events(reader: &mut RunReader<Cursor<&[u8]>>) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    while let Some(event) = reader.next_event().expect("memory does not fail") {
        found.push(event.words().to_vec());
    }
    found
}

/// The file with the checksum of each chunk header that is one made right; `None` if none changes.
fn with_right_checksums(file: &[u8]) -> Option<Vec<u8>> {
    let mut mended = file.to_vec();
    let mut is_changed = false;
    let mut at = 0;
    while let Some(header) = mended.get(at..).and_then(<[u8]>::first_chunk) {
        let parsed = (mended[at] == op::CHUNK)
            .then(|| ChunkHeader::parse(header))
            .flatten();
        let data_at = at + CHUNK_HEADER_BYTES;
        let data_bytes = parsed.and_then(|header| usize::try_from(header.data_bytes).ok());
        let end = data_bytes.and_then(|bytes| data_at.checked_add(bytes));
        let Some(data) = end.and_then(|end| mended.get(data_at..end)) else {
            at += 1;
            continue;
        };
        let (crc, next) = (crc32(data), data_at + data.len());
        is_changed |= parsed.is_some_and(|header| header.crc != crc);
        // The place of the checksum in the header, as `ChunkHeader::to_bytes` has it.
        mended[at + 33..at + 37].copy_from_slice(&crc.to_le_bytes());
        at = next;
    }
    is_changed.then_some(mended)
}
