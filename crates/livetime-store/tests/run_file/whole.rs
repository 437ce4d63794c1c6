//! Run files as they should be: written, read by us and by the reference, looked up, inspected.

use std::io::Cursor;
use std::path::PathBuf;

use livetime_store::run_reader::IndexOrigin;
use livetime_store::{Axis, Condition, Histogram, Inspection, NOTES_MAX};
use livetime_store::{RunEnd, RunNote, RunReader, RunWriter};
use livetime_store::{WriteError, WriterLimits, inspect};
use livetime_wire::{ChainCounts, LossCounts, RunNs, TriggerNumber};
use proptest::prelude::*;

use crate::support::{
    self, Events, RUN, Random, begin, event, events, open, read_back, small_chunks,
};

fn end() -> RunEnd {
    let counts = ChainCounts {
        offered: 9,
        triggers: 9,
        ..ChainCounts::default()
    };
    RunEnd::new(RUN, Condition::GOOD, "duration reached", 20_000_000_000)
        .with_counts(&counts, &LossCounts::new())
}

fn histogram() -> Histogram {
    let axis = Axis::regular("dimuon mass", "GeV", 4, 60.0, 120.0).unwrap();
    let mut histogram = Histogram::counting("dimuon_mass", vec![axis]).unwrap();
    histogram.fill(&[91.2]);
    histogram
}

fn file(events: &Events, limits: WriterLimits) -> Vec<u8> {
    let mut writer = RunWriter::new(Vec::new(), &begin(), limits).unwrap();
    support::write_events(&mut writer, events).unwrap();
    writer.write_histograms(RunNs(1), &[histogram()]).unwrap();
    let summary = writer.finish(&end()).unwrap();
    let bytes = writer.into_inner();
    assert_eq!(summary.bytes, bytes.len() as u64);
    assert_eq!(
        (summary.events_stored, summary.events_lost),
        (events.len() as u64, 0)
    );
    assert_eq!(
        summary.event_bytes,
        events
            .values()
            .map(|words| words.len() as u64 * 4)
            .sum::<u64>()
    );
    assert_eq!(
        summary.first_trigger.map(|t| t.0),
        events.keys().next().copied()
    );
    assert_eq!(
        summary.last_trigger.map(|t| t.0),
        events.keys().last().copied()
    );
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_written_is_read(
        lengths in prop::collection::vec(prop::collection::vec(0usize..600, 0..5), 0..60),
        chunk_bytes in 4096usize..40_000,
        flush_every in 1usize..40,
    ) {
        let written: Events =
            lengths.iter().zip(1u64..).map(|(f, t)| (t * 3, event(t * 3, f))).collect();
        let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(chunk_bytes)).unwrap();
        for (i, (trigger, words)) in written.iter().enumerate() {
            let parts: Vec<&[u32]> = words.chunks(97).collect();
            writer.write_event(TriggerNumber(*trigger), RunNs(*trigger), &parts).unwrap();
            if i % flush_every == 0 {
                writer.flush_chunk().unwrap();
                prop_assert_eq!(writer.events_pending(), 0);
            }
        }
        writer.finish(&end()).unwrap();
        let bytes = writer.into_inner();
        let mut reader = open(&bytes);
        prop_assert_eq!(reader.origin(), IndexOrigin::Summary);
        prop_assert_eq!(&read_back(&mut reader, &written), &written);
        prop_assert_eq!(reader.damage().total(), 0);
        let mut scanned = RunReader::open_by_scan(Cursor::new(&bytes)).unwrap();
        prop_assert_eq!(&read_back(&mut scanned, &written), &written);
        prop_assert_eq!(scanned.damage().entries(), &[]);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert!(RunReader::open(Cursor::new(&bytes)).is_err());
    }
}

/// The longest notes there may be are far longer than a chunk.
#[test]
fn as_many_notes_as_there_may_be_are_read_back() {
    let longest = "\"".repeat(livetime_store::run_note::NOTE_BYTES_MAX);
    let note = |n| RunNote::new(RunNs(n), &longest).unwrap();
    let end = RunEnd {
        notes: (0..NOTES_MAX as u64).map(note).collect(),
        ..end()
    };
    let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(4096)).unwrap();
    support::write_events(&mut writer, &events(&mut Random::new(26), 20, 50)).unwrap();
    writer.finish(&end).unwrap();
    let bytes = writer.into_inner();
    let reader = open(&bytes);
    assert_eq!(reader.end().map(|read| &read.notes), Some(&end.notes));
    assert!(inspect(&mut open(&bytes)).unwrap().is_good());
}

#[test]
fn records_histograms_and_counts_come_back() {
    let written = events(&mut Random::new(1), 50, 300);
    let bytes = file(&written, small_chunks(8192));
    for mut reader in [
        open(&bytes),
        RunReader::open_by_scan(Cursor::new(&bytes[..])).unwrap(),
    ] {
        assert_eq!(reader.run(), RUN);
        assert_eq!(reader.begin(), Some(&begin()));
        let expected = RunEnd {
            events_stored: 50,
            ..end()
        };
        assert_eq!(reader.end(), Some(&expected));
        assert_eq!(reader.histograms().unwrap(), Some(vec![histogram()]));
        assert_eq!(read_back(&mut reader, &written), written);
        reader.rewind();
        assert_eq!(read_back(&mut reader, &written), written);
        assert_eq!(reader.events_missing(), 0);
    }
}

#[test]
fn events_are_found_by_trigger_with_and_without_index() {
    let written = events(&mut Random::new(2), 200, 200);
    let bytes = file(&written, small_chunks(8192));
    let no_index = WriterLimits {
        events_indexed_max: 7,
        ..small_chunks(8192)
    };
    let no_summary = WriterLimits {
        chunks_indexed_max: 1,
        ..small_chunks(8192)
    };
    let files = [bytes, file(&written, no_index), file(&written, no_summary)];
    for (bytes, origin) in files.iter().zip([
        IndexOrigin::Summary,
        IndexOrigin::Summary,
        IndexOrigin::Scan,
    ]) {
        let mut reader = open(bytes);
        assert_eq!(reader.origin(), origin);
        let first = reader.next_event().unwrap().unwrap().header().trigger.0;
        assert_eq!(Some(&first), written.keys().next());
        for trigger in 0..written.keys().last().unwrap() + 3 {
            let found = reader.event(TriggerNumber(trigger)).unwrap();
            assert_eq!(
                found.map(|event| event.words()),
                written.get(&trigger).map(Vec::as_slice)
            );
        }
        assert_eq!(reader.event_index().unwrap().places().len(), written.len());
        // Looking events up does not disturb iteration.
        assert_eq!(read_back(&mut reader, &written).len(), written.len() - 1);
        assert_eq!(reader.damage().entries(), []);
        assert!(inspect(&mut reader).unwrap().is_good());
    }
}

#[test]
fn reference_reads_every_message_index_and_attachment() {
    let written = events(&mut Random::new(3), 100, 300);
    let bytes = file(&written, small_chunks(8192));
    let mut found = Events::new();
    let mut topics = std::collections::BTreeMap::new();
    let mut last_time = 0;
    for message in mcap::MessageStream::new(&bytes).unwrap() {
        let message = message.unwrap();
        *topics.entry(message.channel.topic.clone()).or_insert(0u64) += 1;
        if message.channel.topic == "/events" {
            let words: Vec<u32> = message
                .data
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                .collect();
            let trigger = u64::from(words[4]);
            assert_eq!(message.sequence, trigger as u32);
            assert_eq!(message.log_time, trigger * 100_000);
            assert!(message.log_time >= last_time);
            last_time = message.log_time;
            found.insert(trigger, words);
        } else if message.channel.message_encoding == "json" {
            let json: serde_json::Value = serde_json::from_slice(&message.data).unwrap();
            assert!(json.is_object());
        }
    }
    assert_eq!(found, written);
    assert_eq!(
        (
            topics["/run/begin"],
            topics["/run/end"],
            topics["/run/histograms"]
        ),
        (1, 1, 1)
    );

    let summary = mcap::Summary::read(&bytes).unwrap().unwrap();
    let stats = summary.stats.as_ref().unwrap();
    assert_eq!(stats.message_count, topics.values().sum::<u64>());
    assert_eq!(stats.chunk_count as u64, topics["/run/chunk"]);
    assert_eq!(stats.channel_message_counts[&2], written.len() as u64);
    let mut indexed = 0;
    for chunk in &summary.chunk_indexes {
        for (channel, entries) in summary.read_message_indexes(&bytes, chunk).unwrap() {
            for entry in entries {
                let message = summary.seek_message(&bytes, chunk, &entry).unwrap();
                assert_eq!(message.channel.id, channel.id);
                assert_eq!(message.log_time, entry.log_time);
                indexed += 1;
            }
        }
    }
    assert_eq!(indexed, stats.message_count);
    let attachment = mcap::read::attachment(&bytes, &summary.attachment_indexes[0]).unwrap();
    assert_eq!(attachment.name, "event-index");
    assert_eq!(attachment.data.len(), 16 + 24 * written.len());
}

#[test]
fn reference_reads_a_file_that_outgrew_its_index() {
    let written = events(&mut Random::new(4), 60, 300);
    let limits = WriterLimits {
        chunks_indexed_max: 3,
        ..small_chunks(8192)
    };
    let bytes = file(&written, limits);
    let messages = mcap::MessageStream::new(&bytes)
        .unwrap()
        .map(Result::unwrap);
    assert_eq!(
        messages.filter(|m| m.channel.topic == "/events").count(),
        written.len()
    );
    assert!(mcap::Summary::read(&bytes).unwrap().is_none());
}

#[test]
fn inspection_has_the_agreed_keys() {
    let written = events(&mut Random::new(5), 30, 100);
    let bytes = file(&written, small_chunks(4096));
    let inspection = inspect(&mut open(&bytes)).unwrap();
    assert!(inspection.is_good());
    assert_eq!(inspection.events, 30);
    assert_eq!(inspection.index, "summary");
    let text = serde_json::to_string(&inspection).unwrap();
    assert!(
        text.starts_with(r#"{"schema":"livetime.inspect/1","run":42,"events":30"#),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        json["first_trigger"],
        written.keys().next().unwrap().to_string()
    );
    assert_eq!(
        json["last_trigger"],
        written.keys().last().unwrap().to_string()
    );
    assert_eq!(
        (&json["complete"], &json["checksum_errors"]),
        (&true.into(), &0.into())
    );
    assert_eq!(json["condition"], "GOOD");
    assert_eq!(
        serde_json::from_str::<Inspection>(&text).unwrap(),
        inspection
    );
}

/// Who looks while index and summary are being written sees no damage once they are.
#[test]
fn the_end_of_a_file_is_judged_again_once_it_is_written() {
    let (bytes, written) = support::file_with_histogram(91, 60);
    let (start, size) = *support::chunk_places(&bytes).last().unwrap();
    for length in (start + size..bytes.len()).step_by(13) {
        let mut reader = RunReader::open(Cursor::new(bytes[..length].to_vec())).unwrap();
        assert_eq!(read_back(&mut reader, &written), written);
        assert!(reader.end().is_some() && !reader.is_finished(), "{length}");
        reader.input_mut().get_mut().clone_from(&bytes);
        reader.refresh().unwrap();
        assert!(reader.is_finished(), "{length}");
        assert_eq!(reader.damage().entries(), [], "{length}");
        assert_eq!(reader.input_bytes(), bytes.len() as u64);
        assert!(reader.next_event().unwrap().is_none());
        assert!(inspect(&mut reader).unwrap().is_good(), "{length}");
    }
}

#[test]
fn growing_file_is_read_up_to_what_is_complete() {
    let written = events(&mut Random::new(6), 120, 200);
    let bytes = file(&written, small_chunks(8192));
    let places = support::chunk_places(&bytes);
    let mut reader: Option<RunReader<Cursor<Vec<u8>>>> = None;
    let mut found = Events::new();
    // The file grows by odd steps; after each, exactly the complete chunks can be read.
    for length in (1000..bytes.len()).step_by(3001).chain([bytes.len()]) {
        let complete = places
            .iter()
            .filter(|(start, bytes)| start + bytes <= length)
            .count();
        match &mut reader {
            None if complete == 0 => {
                assert!(RunReader::open(Cursor::new(bytes[..length].to_vec())).is_err());
                continue;
            }
            None => reader = RunReader::open(Cursor::new(bytes[..length].to_vec())).ok(),
            Some(reader) => {
                // In place of a file that grew.
                reader.input_mut().get_mut().clear();
                reader
                    .input_mut()
                    .get_mut()
                    .extend_from_slice(&bytes[..length]);
                reader.refresh().unwrap();
            }
        }
        let reader = reader.as_mut().unwrap();
        assert_eq!(reader.chunk_count(), complete);
        assert_eq!(reader.begin(), Some(&begin()));
        assert_eq!(reader.end().is_some(), complete == places.len());
        found.append(&mut read_back(reader, &written));
        assert!(
            found.keys().eq(written.keys().take(found.len())),
            "in order and without gaps"
        );
        assert_eq!(reader.damage().checksum_errors(), 0);
    }
    assert_eq!(found, written);
    let mut reader = reader.unwrap();
    assert!(inspect(&mut reader).unwrap().complete);
}

#[test]
fn events_and_limits_out_of_range_are_refused_and_counted() {
    let limits = WriterLimits {
        event_bytes_max: 1024,
        ..small_chunks(4096)
    };
    let mut writer = RunWriter::new(Vec::new(), &begin(), limits).unwrap();
    let large = vec![0; 257];
    let refused = writer.write_event(TriggerNumber(1), RunNs(1), &[&large]);
    assert!(matches!(
        refused,
        Err(WriteError::EventTooLarge {
            bytes: 1028,
            allowed: 1024
        })
    ));
    writer
        .write_event(TriggerNumber(2), RunNs(2), &[&event(2, &[10])])
        .unwrap();
    let summary = writer.finish(&end()).unwrap();
    assert_eq!((summary.events_stored, summary.events_lost), (1, 1));
    let late = writer.write_event(TriggerNumber(3), RunNs(3), &[]);
    assert!(matches!(late, Err(WriteError::Finished)));

    assert_eq!(WriterLimits::default().validate(), []);
    let absurd = WriterLimits {
        chunk_bytes: 0,
        event_bytes_max: usize::MAX,
        events_indexed_max: 0,
        chunks_indexed_max: usize::MAX,
        ..WriterLimits::default()
    };
    let codes: Vec<&str> = absurd
        .validate()
        .iter()
        .map(|problem| problem.code.code)
        .collect();
    assert_eq!(codes, ["S0101", "S0102", "S0103", "S0103"]);
}

/// The golden file holds three events in three chunks; a change of its bytes is a change of format.
///
/// `LIVETIME_GOLDEN=write` writes it anew.
#[test]
fn golden_file_is_byte_for_byte_what_is_written() {
    let written: Events = [1u64, 2, 5]
        .into_iter()
        .map(|t| (t, event(t, &[3, t as usize])))
        .collect();
    let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(4096)).unwrap();
    support::write_events(&mut writer, &written).unwrap();
    writer
        .write_histograms(RunNs(600_000), &[histogram()])
        .unwrap();
    writer.finish(&end()).unwrap();
    let bytes = writer.into_inner();
    check_golden("run-file-v1.mcap", &bytes);
    assert_eq!(read_back(&mut open(&bytes), &written), written);
}

#[test]
fn golden_histogram_document_is_what_is_written() {
    let latency = Axis::log("decision latency", "ns", 2, 1e3, 1e5).unwrap();
    let mass = Axis::regular("dimuon mass", "GeV", 2, 60.0, 120.0).unwrap();
    let mut plane = Histogram::weighted("mass_latency", vec![mass, latency]).unwrap();
    plane.fill_weighted(&[91.2, 12_345.0], 0.5);
    let json = livetime_store::histogram::histograms_to_json(&[histogram(), plane]);
    let text = serde_json::to_string_pretty(&json).unwrap() + "\n";
    check_golden("histogram-v1.json", text.as_bytes());
}

fn check_golden(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/formats")
        .join(name);
    if std::env::var_os("LIVETIME_GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    let first = golden.iter().zip(bytes).position(|(a, b)| a != b);
    assert_eq!(first, None, "{name} differs from byte {first:?} on");
    assert_eq!(golden.len(), bytes.len(), "length of {name}");
}
