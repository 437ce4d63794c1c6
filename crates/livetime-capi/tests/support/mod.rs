//! Run files for the tests of the C library.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use livetime_store::{Condition, RunBegin, RunEnd, RunWriter, WriterLimits};
use livetime_wire::crc::crc32c;
use livetime_wire::event::{EventHeader, FragmentEntry};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, RunNs, RunNumber, SourceId, TriggerNumber};

pub(crate) const RUN: RunNumber = RunNumber(42);
/// The decision of every event, with both halves used.
pub(crate) const MASK: u128 = 1 << 100 | 5;

/// The words of the event of a trigger: 0 to 4 fragments, every seventh with a missing source,
/// every fifth fragment flagged.
fn event(trigger: u64) -> Vec<u32> {
    let fragments: Vec<Vec<u32>> = (0..trigger as u32 % 5)
        .map(|source| {
            (0..trigger as u32 % 61 + source)
                .map(|i| i * 0x0101 + source)
                .collect()
        })
        .collect();
    let entries: Vec<FragmentEntry> = fragments
        .iter()
        .zip(0..)
        .map(|(words, source)| FragmentEntry {
            source: SourceId(source),
            words: words.len() as u32,
            status: FragmentStatus(u32::from((trigger + u64::from(source)).is_multiple_of(5))),
            crc: crc32c(words),
        })
        .collect();
    let header = EventHeader {
        run: RUN,
        trigger: TriggerNumber(trigger),
        triggered_at: RunNs(trigger * 1000),
        mask: L2Mask(MASK),
        filter_reason: 3,
        streams: 9,
    };
    let missing = if trigger.is_multiple_of(7) {
        vec![SourceId(77), SourceId(78)]
    } else {
        vec![]
    };
    let mut words = Vec::new();
    header.emit(&entries, &missing, &mut words);
    words.extend(fragments.concat());
    words
}

/// A whole run file with the events of triggers 1 to `events`, in small chunks.
pub(crate) fn run_bytes(events: u64) -> Vec<u8> {
    let limits = WriterLimits {
        chunk_bytes: 8 << 10,
        ..WriterLimits::default()
    };
    let begin = RunBegin {
        started_tai_ns: 17,
        ..RunBegin::new(RUN)
    };
    let mut writer = RunWriter::new(Vec::new(), &begin, limits).unwrap();
    for trigger in 1..=events {
        let words = event(trigger);
        writer
            .write_event(TriggerNumber(trigger), RunNs(trigger), &[&words])
            .unwrap();
    }
    writer
        .finish(&RunEnd::new(RUN, Condition::GOOD, "test", events))
        .unwrap();
    writer.into_inner()
}

/// Writes the bytes as the run file of a new run directory.
pub(crate) fn write_run(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("events.mcap"), bytes).unwrap();
    path
}
