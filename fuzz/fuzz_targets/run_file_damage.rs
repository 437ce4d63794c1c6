//! A whole run file, then cut, flipped, blanked and shuffled: nothing that was not written is ever
//! read, and what recovery writes is whole.
//!
//! Operations do not write words of the fuzzer's choice, with which it would forge checksums.

#![no_main]

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use livetime_fuzz::Choices;
use livetime_store::{Condition, RunBegin, RunEnd, RunReader, RunWriter, WriterLimits, recover};
use livetime_wire::crc::crc32c;
use livetime_wire::event::{EventHeader, FragmentEntry};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, RunNs, RunNumber, SourceId, TriggerNumber};

const RUN: RunNumber = RunNumber(7);
const EVENTS: u64 = 24;
const OPERATIONS_MAX: usize = 24;

/// Events by trigger number.
type Events = BTreeMap<u64, Vec<u32>>;

fuzz_target!(|data: &[u8]| {
    static WHOLE: OnceLock<(Events, Vec<u8>)> = OnceLock::new();
    let (written, whole) = WHOLE.get_or_init(whole_file);
    let mut choices = Choices::new(data);
    let mut file = whole.clone();
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = choices.byte() else {
            break;
        };
        damage(&mut file, operation, &mut choices);
    }
    for reader in [
        RunReader::open(Cursor::new(file.as_slice())),
        RunReader::open_by_scan(Cursor::new(file.as_slice())),
    ] {
        let Ok(mut reader) = reader else {
            continue;
        };
        check_events(&mut reader, written);
    }
    let Ok((copy, recovered)) = recover(Cursor::new(file.as_slice()), Vec::new()) else {
        return;
    };
    let mut copied = RunReader::open(Cursor::new(copy.as_slice())).expect("a copy is a run file");
    let events = check_events(&mut copied, written);
    assert_eq!(events, recovered.file.events_stored);
    assert_eq!(copied.damage().total(), 0, "a copy is whole");
});

/// Damages a file in one of the ways of disks and crashes.
fn damage(file: &mut Vec<u8>, operation: u8, choices: &mut Choices<'_>) {
    let at = choices.below(file.len().max(1));
    let count = 1 + choices.below(512);
    let end = file.len().min(at + count);
    match operation % 8 {
        0 => file.truncate(at),
        1 => drop(file.drain(at..end)),
        2 => file[at..end].fill(0),
        3 => {
            let copied = file[at..end].to_vec();
            file.splice(at..at, copied);
        }
        4 => file[at..end].rotate_left(1.min(end - at)),
        5 => file.extend_from_within(at..end),
        _ => {
            if let Some(byte) = file.get_mut(at) {
                *byte ^= 1 << (operation >> 5);
            }
        }
    }
}

/// Asserts that every event read is one that was written; returns how many.
fn check_events(reader: &mut RunReader<Cursor<&[u8]>>, written: &Events) -> u64 {
    let mut count = 0;
    while let Some(event) = reader.next_event().expect("memory does not fail") {
        let original = written.get(&event.header().trigger.0);
        assert_eq!(Some(event.words()), original.map(Vec::as_slice));
        count += 1;
    }
    count
}

/// A run file of several chunks.
fn whole_file() -> (Events, Vec<u8>) {
    let limits = WriterLimits {
        chunk_bytes: 4096,
        event_bytes_max: 1 << 16,
        events_indexed_max: 1 << 10,
        chunks_indexed_max: 1 << 10,
        ..WriterLimits::default()
    };
    let mut events = Events::new();
    let mut writer = RunWriter::new(Vec::new(), &RunBegin::new(RUN), limits).expect("room");
    for trigger in 1..=EVENTS {
        let words = event(trigger);
        let stored = writer.write_event(TriggerNumber(trigger), RunNs(trigger), &[&words]);
        stored.expect("room");
        events.insert(trigger, words);
    }
    let end = RunEnd::new(RUN, Condition::GOOD, "triggers reached", EVENTS);
    writer.finish(&end).expect("room");
    (events, writer.into_inner())
}

/// An event of two fragments.
fn event(trigger: u64) -> Vec<u32> {
    let payloads = [10, 90].map(|words| {
        let start = trigger as u32 * 0x0001_0003;
        (start..).take(words).collect::<Vec<u32>>()
    });
    let entries = [0, 1].map(|index| FragmentEntry {
        source: SourceId(index as u32),
        words: payloads[index].len() as u32,
        status: FragmentStatus::GOOD,
        crc: crc32c(&payloads[index]),
    });
    let header = EventHeader {
        run: RUN,
        trigger: TriggerNumber(trigger),
        triggered_at: RunNs(trigger),
        mask: L2Mask(1),
        filter_reason: 1,
        streams: 1,
    };
    let mut words = Vec::new();
    header.emit(&entries, &[], &mut words);
    words.extend(payloads.concat());
    words
}
