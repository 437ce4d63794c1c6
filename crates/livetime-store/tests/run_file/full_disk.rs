//! A disk that is full after N bytes, for many N: no event is lost without being counted.

use std::io::Cursor;

use livetime_store::{Condition, RunEnd, RunReader, RunWriter, WriteError, inspect};
use livetime_wire::{RunNs, TriggerNumber};

use crate::support::{
    self, Events, FullDisk, RUN, Random, begin, chunk_places, events, read_back, small_chunks,
};

fn end() -> RunEnd {
    RunEnd::new(RUN, Condition::INTERRUPTED, "disk full", 1)
}

/// Writes all events, whatever happens, and finishes; returns the writer if it could be started.
fn write_all(capacity: usize, written: &Events) -> Option<(RunWriter<FullDisk>, bool)> {
    let disk = FullDisk::new(capacity);
    let mut writer = RunWriter::new(disk, &begin(), small_chunks(4096)).ok()?;
    let mut failures = 0;
    for (trigger, words) in written {
        match writer.write_event(TriggerNumber(*trigger), RunNs(*trigger), &[words]) {
            Ok(()) => {}
            Err(WriteError::Io {
                bytes_complete,
                source,
            }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
                assert_eq!(bytes_complete, writer.bytes_complete());
                failures += 1;
            }
            Err(error) => assert!(matches!(error, WriteError::AfterFailure), "{error}"),
        }
    }
    assert!(failures <= 1, "the failure is reported once");
    let finished = failures == 0 && writer.finish(&end()).is_ok();
    Some((writer, finished))
}

#[test]
fn full_disk_at_any_byte_leaves_complete_chunks_and_an_exact_count() {
    let written = events(&mut Random::new(21), 100, 120);
    let (writer, finished) = write_all(usize::MAX / 2, &written).unwrap();
    assert!(finished);
    let full_bytes = writer.into_inner().bytes.len();
    let mut cut_in_tail = 0;
    for capacity in (0..full_bytes).step_by(61) {
        let Some((writer, finished)) = write_all(capacity, &written) else {
            assert!(
                capacity < 4096,
                "the begin-of-run record fits into {capacity} bytes"
            );
            continue;
        };
        assert!(!finished);
        let (disk, abandoned) = writer.abandon();
        assert_eq!(
            abandoned.events_stored + abandoned.events_lost,
            written.len() as u64
        );
        cut_in_tail += u64::from(abandoned.events_lost == 0);
        assert!(abandoned.bytes_complete as usize <= disk.bytes.len());
        let mut reader = RunReader::open(Cursor::new(&disk.bytes)).unwrap();
        let found = read_back(&mut reader, &written);
        assert_eq!(found.len() as u64, abandoned.events_stored);
        assert!(found.keys().eq(written.keys().take(found.len())));
    }
    assert!(cut_in_tail > 0, "some disks were full only at the index");
}

#[test]
fn file_on_a_full_disk_is_closed_in_order_once_the_broken_chunk_is_cut_off() {
    let written = events(&mut Random::new(22), 100, 120);
    let mut closed = 0;
    for capacity in (8192..60_000).step_by(97) {
        let Some((mut writer, finished)) = write_all(capacity, &written) else {
            continue;
        };
        if finished {
            continue;
        }
        let cut = |disk: &mut FullDisk, bytes: u64| {
            disk.bytes.truncate(bytes as usize);
            Ok(())
        };
        writer.rewind_to_complete(cut).unwrap();
        let stored = writer.events_stored();
        let Ok(summary) = writer.finish(&end()) else {
            // Too little room even for the end; what is complete can be read all the same.
            let (disk, abandoned) = writer.abandon();
            assert_eq!(
                abandoned.events_stored + abandoned.events_lost,
                written.len() as u64
            );
            let mut reader = RunReader::open(Cursor::new(&disk.bytes)).unwrap();
            assert_eq!(read_back(&mut reader, &written).len() as u64, stored);
            continue;
        };
        closed += 1;
        assert_eq!(summary.events_stored, stored);
        assert_eq!(
            summary.events_stored + summary.events_lost,
            written.len() as u64
        );
        assert!(!summary.indexed);
        let bytes = writer.into_inner().bytes;
        assert_eq!(bytes.len() as u64, summary.bytes);
        let mut reader = support::open(&bytes);
        assert_eq!(reader.end().map(|end| end.events_stored), Some(stored));
        let found = read_back(&mut reader, &written);
        assert_eq!(found.len() as u64, stored);
        let inspection = inspect(&mut reader).unwrap();
        assert!(inspection.complete && inspection.is_good());
        assert_eq!(inspection.condition, Condition::INTERRUPTED);
        assert!(
            mcap::MessageStream::new(&bytes)
                .unwrap()
                .all(|message| message.is_ok())
        );
        let trigger = found.keys().last().map(|trigger| TriggerNumber(*trigger));
        if let Some(trigger) = trigger {
            assert!(reader.event(trigger).unwrap().is_some());
        }
    }
    assert!(closed > 50, "only {closed} files could be closed");
}

#[test]
fn what_failed_is_tried_again_once_there_is_room_and_no_event_is_lost() {
    let written = events(&mut Random::new(23), 60, 120);
    let whole = write_all(usize::MAX / 2, &written).unwrap().0;
    let whole = whole.into_inner().bytes;
    let cut = |disk: &mut FullDisk, bytes: u64| {
        disk.bytes.truncate(bytes as usize);
        Ok(())
    };
    let mut retried = 0;
    for capacity in (8192..whole.len()).step_by(61) {
        let disk = FullDisk::new(capacity);
        let mut writer = RunWriter::new(disk, &begin(), small_chunks(4096)).unwrap();
        for (trigger, words) in &written {
            let (trigger, time) = (TriggerNumber(*trigger), RunNs(*trigger));
            if writer.write_event(trigger, time, &[words]).is_ok() {
                continue;
            }
            // Without room it fails again, unless only an index for other readers was missing.
            let _still_full = writer.retry(cut);
            writer.output_mut().capacity = usize::MAX / 2;
            writer.retry(cut).unwrap();
            retried += 1;
        }
        writer.output_mut().capacity = usize::MAX / 2;
        let summary = writer.finish(&end()).unwrap();
        assert_eq!(summary.events_lost, 0);
        assert!(summary.indexed);
        let bytes = writer.into_inner().bytes;
        let mut reader = support::open(&bytes);
        assert_eq!(read_back(&mut reader, &written).len(), written.len());
        assert!(inspect(&mut reader).unwrap().is_good());
    }
    assert!(retried > 50, "only {retried} disks were full");
}

/// The end-of-run record is there once, wherever in its chunk the disk was full.
#[test]
fn a_disk_that_is_full_at_the_end_of_run_record_has_it_once() {
    let written = events(&mut Random::new(24), 20, 120);
    let whole = write_all(usize::MAX / 2, &written).unwrap().0;
    let whole = whole.into_inner().bytes;
    let chunks = chunk_places(&whole);
    let (start, bytes) = *chunks.last().unwrap();
    let cut = |disk: &mut FullDisk, bytes: u64| {
        disk.bytes.truncate(bytes as usize);
        Ok(())
    };
    // Its message indexes, and the start of the event index, lie behind it.
    let capacities = (start..start + bytes).step_by(61);
    for capacity in capacities.chain(start + bytes..start + bytes + 200) {
        for is_retried in [false, true] {
            let what = format!("full after {capacity} bytes, retried: {is_retried}");
            let (mut writer, finished) = write_all(capacity, &written).unwrap();
            assert!(!finished, "{what}");
            writer.output_mut().capacity = usize::MAX / 2;
            match is_retried {
                true => writer.retry(cut).unwrap(),
                false => writer.rewind_to_complete(cut).unwrap(),
            }
            let summary = writer.finish(&end()).unwrap();
            assert_eq!(summary.chunks, chunks.len() as u64, "{what}");
            assert_eq!(summary.events_lost, 0, "{what}");
            let bytes = writer.into_inner().bytes;
            let messages = mcap::MessageStream::new(&bytes).unwrap();
            let is_end = |message: &mcap::Message<'_>| message.channel.topic.as_str() == "/run/end";
            let ends = messages.filter(|message| message.as_ref().is_ok_and(is_end));
            assert_eq!(ends.count(), 1, "{what}");
            let mut reader = support::open(&bytes);
            assert_eq!(read_back(&mut reader, &written), written, "{what}");
            assert!(inspect(&mut reader).unwrap().is_good(), "{what}");
        }
    }
}
