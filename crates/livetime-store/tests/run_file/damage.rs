//! Run files as crashes, disks and cosmic rays leave them: nothing whole is lost, nothing false
//! is taken.
//!
//! `LIVETIME_STORE_FLIPS` sets the number of random bit flips (default 10 000).

use std::io::Cursor;

use livetime_store::mcap_record::{CHUNK_HEADER_BYTES, crc32};
use livetime_store::run_reader::IndexOrigin;
use livetime_store::run_scan::{Wanted, scan};
use livetime_store::{
    Condition, DamageReason, OpenError, RunBegin, RunEnd, RunReader, RunWriter, inspect, recover,
};
use livetime_wire::{RunNs, RunNumber, TriggerNumber};

use crate::support::{
    self, Events, RUN, Random, begin, chunk_places, event, events, number_from_env, read_back,
    small_chunks,
};

fn end() -> RunEnd {
    RunEnd::new(RUN, Condition::GOOD, "duration reached", 20_000_000_000)
}

fn file(events: &Events, chunk_bytes: usize) -> Vec<u8> {
    let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(chunk_bytes)).unwrap();
    support::write_events(&mut writer, events).unwrap();
    writer.finish(&end()).unwrap();
    writer.into_inner()
}

/// The events of each chunk, in the order of the file.
fn events_by_chunk(file: &[u8], written: &Events) -> Vec<Events> {
    let mut reader = support::open(file);
    let places = reader.event_index().unwrap().places().to_vec();
    let chunks = chunk_places(file);
    let events_of = |offset: usize| {
        let inside = places
            .iter()
            .filter(|place| place.chunk_offset as usize == offset);
        inside
            .map(|place| (place.trigger.0, written[&place.trigger.0].clone()))
            .collect()
    };
    chunks
        .iter()
        .map(|(offset, _)| events_of(*offset))
        .collect()
}

/// Reads a damaged file in both ways and checks that all events are read but one of `hit`; a scan
/// leaves the end of a file alone, where a chunk may still be being written.
fn assert_others_read(damaged: &[u8], by_chunk: &[Events], written: &Events, hit: Option<usize>) {
    let readers = [
        RunReader::open(Cursor::new(damaged)),
        RunReader::open_by_scan(Cursor::new(damaged)),
    ];
    for reader in readers {
        let mut reader = reader.unwrap();
        let found = read_back(&mut reader, written);
        for (chunk, events) in by_chunk.iter().enumerate() {
            let read = events
                .keys()
                .filter(|trigger| found.contains_key(trigger))
                .count();
            let at_end = chunk + 1 == by_chunk.len() && reader.origin() == IndexOrigin::Scan;
            let may_be_lost = hit == Some(chunk) && (read + 1 == events.len() || at_end);
            assert!(
                read == events.len() || may_be_lost,
                "chunk {chunk}: {read} of {} events",
                events.len()
            );
        }
        let missing = (written.len() - found.len()) as u64;
        let no_end = reader.end().is_none();
        assert!(reader.events_missing() == missing || no_end, "{missing}");
    }
}

#[test]
fn truncation_at_1000_offsets_leaves_every_complete_chunk() {
    let mut random = Random::new(11);
    let written = events(&mut random, 300, 150);
    let bytes = file(&written, 8192);
    let chunks = chunk_places(&bytes);
    let by_chunk = events_by_chunk(&bytes, &written);
    assert!(chunks.len() > 20);
    for case in 0..1000 {
        // Every boundary and its neighbours, then anywhere.
        let length = match chunks.get(case / 3) {
            Some((start, size)) => start + size + case % 3 - 1,
            None => random.below(bytes.len() as u64) as usize,
        };
        let complete = chunks
            .iter()
            .filter(|(start, size)| start + size <= length)
            .count();
        let cut = &bytes[..length];
        let Ok(mut reader) = RunReader::open(Cursor::new(cut)) else {
            assert_eq!(complete, 0, "{length} bytes");
            continue;
        };
        let expected: Events = by_chunk[..complete]
            .iter()
            .flatten()
            .map(|(trigger, words)| (*trigger, words.clone()))
            .collect();
        assert_eq!(reader.chunk_count(), complete, "{length} bytes");
        assert_eq!(read_back(&mut reader, &written), expected, "{length} bytes");
        let inspection = inspect(&mut reader).unwrap();
        assert_eq!(inspection.events, expected.len() as u64);
        assert_eq!(inspection.complete, complete == chunks.len());
        assert_eq!(inspection.checksum_errors, 0);
    }
}

#[test]
fn every_bit_of_one_chunk_header_costs_nothing_but_at_the_end() {
    let written = events(&mut Random::new(12), 100, 150);
    let bytes = file(&written, 8192);
    let chunks = chunk_places(&bytes);
    let by_chunk = events_by_chunk(&bytes, &written);
    // The first chunk holds the begin-of-run record, the last the end.
    for hit in [0, 4, chunks.len() - 1] {
        let mut damaged = bytes.clone();
        for bit in 0..49 * 8 {
            let byte = chunks[hit].0 + bit / 8;
            damaged[byte] ^= 1 << (bit % 8);
            assert_others_read(&damaged, &by_chunk, &written, Some(hit));
            damaged[byte] ^= 1 << (bit % 8);
        }
        assert_eq!(damaged, bytes);
    }
}

#[test]
fn no_bit_of_a_chunk_header_costs_an_event() {
    let written = events(&mut Random::new(13), 100, 150);
    let bytes = file(&written, 8192);
    let (start, _) = chunk_places(&bytes)[4];
    for byte in 0..49 {
        let mut damaged = bytes.clone();
        damaged[start + byte] ^= 0x10;
        for reader in [
            RunReader::open(Cursor::new(&damaged)),
            RunReader::open_by_scan(Cursor::new(&damaged)),
        ] {
            let mut reader = reader.unwrap();
            assert_eq!(read_back(&mut reader, &written), written, "byte {byte}");
            assert_eq!(reader.events_missing(), 0, "byte {byte}");
            assert_eq!(reader.event_index().unwrap().places().len(), written.len());
        }
    }
}

#[test]
fn random_bit_flips_cost_at_most_the_event_that_is_hit() {
    let mut random = Random::new(14);
    let written = events(&mut random, 120, 100);
    let bytes = file(&written, 4096);
    let chunks = chunk_places(&bytes);
    let by_chunk = events_by_chunk(&bytes, &written);
    let mut damaged = bytes.clone();
    for _ in 0..number_from_env("LIVETIME_STORE_FLIPS", 10_000) {
        let bit = random.below(bytes.len() as u64 * 8) as usize;
        damaged[bit / 8] ^= 1 << (bit % 8);
        let hit = chunks
            .iter()
            .position(|(start, size)| (*start..start + size).contains(&(bit / 8)));
        assert_others_read(&damaged, &by_chunk, &written, hit);
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn damage_is_named_with_its_place() {
    let written = events(&mut Random::new(15), 100, 150);
    let bytes = file(&written, 8192);
    let chunks = chunk_places(&bytes);
    let (start, size) = chunks[5];

    let mut flipped = bytes.clone();
    flipped[start + 3000] ^= 4;
    for reader in [
        RunReader::open(Cursor::new(&flipped)),
        RunReader::open_by_scan(Cursor::new(&flipped)),
    ] {
        let mut reader = reader.unwrap();
        let inspection = inspect(&mut reader).unwrap();
        let first = reader.damage().entries()[0];
        assert_eq!(
            (first.offset, first.bytes >= size as u64),
            (start as u64, true)
        );
        assert!(
            matches!(first.reason, DamageReason::ChunkChecksum { .. }),
            "{first}"
        );
        // The chunk and the event in it, which has a place of its own.
        assert_eq!(
            (inspection.checksum_errors, inspection.complete),
            (2, false)
        );
        let hit = (start + 3000) as u64;
        let of_event = inspection
            .damage
            .iter()
            .find(|range| range.reason.starts_with("event"));
        let of_event = of_event.unwrap();
        assert!((of_event.offset..of_event.offset + of_event.bytes).contains(&hit));
        assert_eq!(written.len() as u64 - inspection.events, 1);
        assert_eq!(inspection.events_missing, 1);
        assert!(inspection.events_salvaged > 0);
        assert_eq!(
            inspection.condition,
            Condition::TAINTED | Condition::INCOMPLETE
        );
    }

    // Garbage between two chunks is passed over, and neither chunk is lost.
    let mut garbage = bytes.clone();
    garbage.splice(start..start, (0..50_000u32).map(|i| (i * i) as u8 & 0x3F));
    let mut reader = support::open(&garbage);
    assert_eq!(read_back(&mut reader, &written), written);
    let first = reader.damage().entries()[0];
    assert_eq!((first.offset, first.bytes), (start as u64, 50_000));

    // A file that is cut off within a chunk.
    let mut reader = support::open(&bytes[..start + 100]);
    let missing = (size - 100) as u64;
    let expected = DamageReason::ChunkTruncated { missing };
    assert_eq!(reader.damage().entries()[0].reason, expected);
    let inspection = inspect(&mut reader).unwrap();
    assert_eq!(inspection.condition, Condition::INTERRUPTED);
    assert_eq!(
        (inspection.complete, inspection.checksum_errors),
        (false, 0)
    );
}

#[test]
fn chunks_of_other_files_are_not_taken() {
    let written = events(&mut Random::new(16), 60, 150);
    let bytes = file(&written, 8192);
    // An event that carries a whole run file of another run, as data of a nested system may.
    let mut other_begin = RunBegin::new(RunNumber(43));
    other_begin.seed = 9;
    let mut other = RunWriter::new(Vec::new(), &other_begin, small_chunks(4096)).unwrap();
    support::write_events(&mut other, &events(&mut Random::new(17), 40, 100)).unwrap();
    other.finish(&end()).unwrap();
    let mut other = other.into_inner();
    other.resize(other.len().next_multiple_of(4), 0);

    // The chunk around it is damaged, so that the scan looks inside.
    let (start, size) = chunk_places(&bytes)[3];
    for inside in [false, true] {
        let mut damaged = bytes.clone();
        let at = if inside { start + 2000 } else { start };
        damaged.splice(at..at, other.iter().copied());
        let mut reader = RunReader::open(Cursor::new(&damaged)).unwrap();
        assert_eq!(reader.run(), RUN);
        let found = read_back(&mut reader, &written);
        assert_eq!(found.len() < written.len(), inside);
        if !inside {
            assert_eq!(reader.damage().entries()[0].offset, start as u64);
        }
    }

    // A chunk that is there twice is read once.
    let mut doubled = bytes.clone();
    let copy = bytes[start..start + size].to_vec();
    doubled.splice(start + size..start + size, copy);
    let mut reader = RunReader::open_by_scan(Cursor::new(&doubled)).unwrap();
    assert_eq!(read_back(&mut reader, &written), written);
    let reasons: Vec<DamageReason> = reader
        .damage()
        .entries()
        .iter()
        .map(|damage| damage.reason)
        .collect();
    assert!(
        matches!(reasons[0], DamageReason::ChunkTwice { .. }),
        "{reasons:?}"
    );
}

/// Zeros over what is around an event, and over the headers of the last chunks: one that reads through
/// all finds what one finds that goes by the index.
#[test]
fn whole_events_are_found_by_whoever_reads() {
    let written = events(&mut Random::new(24), 300, 150);
    let bytes = file(&written, 8192);
    let places = chunk_places(&bytes);
    let (start, size) = places[5];
    let event = bytes[start..start + size]
        .windows(4)
        .skip(2000)
        .position(|word| word == livetime_wire::event::MAGIC.to_le_bytes());
    let event = start + 2000 + event.unwrap();
    let (late, _) = places[places.len() - 5];
    let (last, _) = places[places.len() - 2];
    for (what, zeros) in [
        ("around an event", event - 26..event - 4),
        ("the last chunks", late - 40..last + 60),
    ] {
        let mut damaged = bytes.clone();
        damaged[zeros].fill(0);
        let mut reader = support::open(&damaged);
        let by_index: Vec<TriggerNumber> = (reader.event_index().unwrap().places().iter())
            .map(|place| place.trigger)
            .collect();
        let by_index = by_index.into_iter().filter(|trigger| {
            let event = reader.event(*trigger);
            event.is_ok_and(|event| event.is_some())
        });
        let by_index = by_index.count() as u64;
        let inspection = inspect(&mut support::open(&damaged)).unwrap();
        assert_eq!(inspection.events, by_index, "{what}");
        let (_, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
        assert_eq!(recovered.file.events_stored, by_index, "{what}");
        assert_eq!(by_index == written.len() as u64, what == "around an event");
    }
}

/// With one wrong bit in every chunk no chunk says which run the file is of; its events do.
#[test]
fn events_are_read_where_no_chunk_is_whole() {
    let written = events(&mut Random::new(25), 200, 150);
    let bytes = file(&written, 8192);
    let mut damaged = bytes.clone();
    let places = chunk_places(&bytes);
    for (start, size) in &places {
        damaged[start + size - 100] ^= 1;
    }
    let mut reader = support::open(&damaged);
    assert_eq!((reader.run(), reader.begin()), (RUN, None));
    let found = read_back(&mut reader, &written);
    // Each costs an event at most.
    assert!(found.len() + places.len() >= written.len());
    let inspection = inspect(&mut support::open(&damaged)).unwrap();
    assert_eq!(inspection.events, found.len() as u64);
    assert!(!inspection.is_good());
    let (copy, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
    assert_eq!(recovered.file.events_stored, found.len() as u64);
    assert_eq!(read_back(&mut support::open(&copy), &written), found);
}

/// Two chunks in each other's place, and a copy of a later one before the first: no event is lost.
#[test]
fn chunks_at_another_place_are_read_in_their_order() {
    let written = events(&mut Random::new(23), 300, 150);
    let bytes = file(&written, 8192);
    let places = chunk_places(&bytes);
    let chunk = |at: usize| {
        let (start, size) = places[at];
        &bytes[start..start + size]
    };
    let (first, early, late) = (places[0].0, places[3], places[9]);
    let early_end = early.0 + early.1;
    let late_end = late.0 + late.1;
    let swapped = [
        &bytes[..early.0],
        chunk(9),
        &bytes[early_end..late.0],
        chunk(3),
        &bytes[late_end..],
    ]
    .concat();
    let copied = [&bytes[..first], chunk(9), &bytes[first..]].concat();
    // The summary is cut off with the last bytes.
    let cut = |file: &[u8]| file[..file.len() - 7].to_vec();
    let cases = [
        ("swapped", swapped.clone()),
        ("swapped and cut", cut(&swapped)),
        ("a copy before", copied.clone()),
        ("a copy before and cut", cut(&copied)),
    ];
    assert_ne!(early.1, late.1, "one has to start where none was");
    for (what, damaged) in cases {
        let mut reader = RunReader::open(Cursor::new(&damaged)).unwrap();
        let inspection = inspect(&mut reader).unwrap();
        assert_eq!(inspection.events, written.len() as u64, "{what}");
        assert_eq!(inspection.events_missing, 0, "{what}");
        assert!(!inspection.is_good(), "{what}");
        reader.rewind();
        assert_eq!(read_back(&mut reader, &written), written, "{what}");
        let (copy, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
        assert_eq!(recovered.end.events_missing, 0, "{what}");
        assert!(!recovered.histograms_lost, "{what}");
        let mut reader = RunReader::open(Cursor::new(copy)).unwrap();
        let mut triggers = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            triggers.push(event.header().trigger.0);
        }
        assert!(triggers.is_sorted(), "{what}");
        assert_eq!(triggers.len(), written.len(), "{what}");
    }
}

#[test]
fn foreign_and_empty_files_are_refused() {
    let mut foreign = Cursor::new(Vec::new());
    let mut writer = mcap::Writer::new(&mut foreign).unwrap();
    let channel = writer
        .add_channel(0, "/chat", "json", &Default::default())
        .unwrap();
    let header = mcap::records::MessageHeader {
        channel_id: channel,
        sequence: 0,
        log_time: 0,
        publish_time: 0,
    };
    writer.write_to_known_channel(&header, b"{}").unwrap();
    writer.finish().unwrap();
    drop(writer);
    let text = b"not a run file at all, and rather short".to_vec();
    for bytes in [foreign.into_inner(), text, Vec::new(), mcap::MAGIC.to_vec()] {
        let refused = RunReader::open(Cursor::new(&bytes)).err();
        assert!(
            matches!(refused, Some(OpenError::NotRunFile { bytes: n }) if n == bytes.len() as u64)
        );
        assert!(recover(Cursor::new(&bytes), Vec::new()).is_err());
    }
}

/// Appends headers that each claim all the rest of the file; checking every one would take hours at
/// 1 GB.
fn put_false_chunks(hostile: &mut Vec<u8>) {
    let total = hostile.len() as u64 + 4_000_000;
    while (hostile.len() as u64) < total {
        let data = total - hostile.len() as u64 - 49.min(total - hostile.len() as u64);
        hostile.push(6);
        hostile.extend_from_slice(&(data + 40).to_le_bytes());
        hostile.extend_from_slice(&[0; 16]);
        hostile.extend_from_slice(&data.to_le_bytes());
        hostile.extend_from_slice(&[0; 8]);
        hostile.extend_from_slice(&data.to_le_bytes());
    }
}

#[test]
fn hostile_file_of_false_chunks_is_given_up_on() {
    let mut hostile = mcap::MAGIC.to_vec();
    put_false_chunks(&mut hostile);
    let scanned = scan(&mut Cursor::new(&hostile), 0, Wanted::AnyRun).unwrap();
    assert_eq!(scanned.chunks, []);
    assert_eq!(scanned.damage.entries()[0].reason, DamageReason::ScanBudget);
}

/// What was searched before a reader gave up keeps its name, and its events.
#[test]
fn false_chunks_behind_a_file_hide_none_of_its_damage() {
    let written = events(&mut Random::new(26), 100, 150);
    let mut bytes = file(&written, 8192);
    let chunks = chunk_places(&bytes);
    let (start, size) = chunks[5];
    bytes[start + size / 2] ^= 4;
    let file_bytes = bytes.len();
    put_false_chunks(&mut bytes);
    let scanned = scan(&mut Cursor::new(&bytes), 0, Wanted::AnyRun).unwrap();
    assert_eq!(scanned.chunks.len() + 1, chunks.len());
    let (flipped, rest) = match scanned.damage.entries() {
        [flipped, .., rest] => (flipped, rest),
        few => panic!("{few:?}"),
    };
    assert_eq!(flipped.offset, start as u64);
    let reason = flipped.reason;
    assert!(
        matches!(reason, DamageReason::ChunkChecksum { .. }),
        "{flipped}"
    );
    assert_eq!(rest.reason, DamageReason::ScanBudget);
    assert_eq!(rest.offset + rest.bytes, bytes.len() as u64);
    assert!(scanned.gaps.iter().any(|gap| gap.offset == start as u64));
    let mut reader = support::open(&bytes);
    let found = read_back(&mut reader, &written);
    assert_eq!(found.len() + 1, written.len(), "of {file_bytes} bytes");
    assert_eq!(reader.events_missing(), 1);
}

#[test]
fn damaged_event_in_a_good_chunk_is_named_and_passed_over() {
    let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(8192)).unwrap();
    let mut written = Events::new();
    for trigger in 1..=9 {
        let mut words = event(trigger, &[20, 20]);
        match trigger {
            3 => words[10] ^= 1,
            6 => *words.last_mut().unwrap() ^= 1,
            _ => drop(written.insert(trigger, words.clone())),
        }
        writer
            .write_event(TriggerNumber(trigger), RunNs(trigger), &[&words])
            .unwrap();
    }
    writer.finish(&end()).unwrap();
    let bytes = writer.into_inner();
    let mut reader = support::open(&bytes);
    assert_eq!(read_back(&mut reader, &written), written);
    let inspection = inspect(&mut reader).unwrap();
    assert_eq!((inspection.events, inspection.checksum_errors), (7, 2));
    assert_eq!(inspection.events_missing, 2);
    assert!(!inspection.complete);
    assert_eq!(
        inspection.condition,
        Condition::TAINTED | Condition::INCOMPLETE
    );
    assert!(reader.event(TriggerNumber(3)).is_err());
    assert!(reader.event(TriggerNumber(6)).is_err());
    let (_, recovered) = recover(Cursor::new(&bytes), Vec::new()).unwrap();
    assert_eq!(recovered.file.events_stored, 7);
    assert_eq!(recovered.events_missing, 2);
    assert_eq!(recovered.end.condition, Condition::INCOMPLETE);
}

#[test]
fn recovered_copy_is_whole_and_says_what_is_missing() {
    let mut random = Random::new(18);
    let written = events(&mut random, 200, 150);
    let bytes = file(&written, 8192);
    for case in 0..60 {
        let mut damaged = bytes.clone();
        if case % 2 == 0 {
            damaged.truncate(20_000 + random.below(bytes.len() as u64 - 20_000) as usize);
        }
        for _ in 0..case % 5 {
            let bit = random.below(damaged.len() as u64 * 8) as usize;
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        let mut reader = RunReader::open(Cursor::new(&damaged)).unwrap();
        reader.read_cut_end();
        let readable = read_back(&mut reader, &written);
        let missing = reader.events_missing();
        let begin_survived = reader.begin().is_some();

        let (copy, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
        assert_eq!(recovered.file.events_stored, readable.len() as u64);
        assert_eq!(recovered.events_missing, missing);
        assert!(
            mcap::MessageStream::new(&copy)
                .unwrap()
                .all(|message| message.is_ok())
        );
        let mut reader = support::open(&copy);
        assert_eq!(read_back(&mut reader, &written), readable);
        assert_eq!(reader.damage().entries(), []);
        assert_eq!(
            reader.begin().map(|b| b.seed),
            Some(if begin_survived { 7 } else { 0 })
        );
        let end = reader.end().unwrap();
        // A copy of a file without damage is what that is.
        let is_whole = damaged == bytes;
        assert_eq!(end.recovered, !is_whole);
        // A damaged event in a chunk that is cut off is in no sum that could miss it.
        let missing = match missing {
            0 => reader_damage(&recovered) as u64,
            missing => missing,
        };
        assert_eq!(end.events_missing, missing);
        let said = end.condition.contains(Condition::INCOMPLETE);
        assert_eq!(said, missing > 0);
        let inspection = inspect(&mut reader).unwrap();
        let said = (inspection.recovered, inspection.complete);
        assert_eq!(said, (!is_whole, is_whole));
        assert_eq!(inspection.checksum_errors, 0);
        // The copy says so as long as it lives, a copy of it, too.
        assert_eq!(inspection.events_missing, missing);
        let (_, again) = recover(Cursor::new(&copy), Vec::new()).unwrap();
        assert_eq!(again.end.events_missing, missing);
    }
}

/// Events that a recovery named as damaged.
fn reader_damage(recovered: &livetime_store::Recovered) -> usize {
    let entries = recovered.damage.entries().iter();
    let of_event =
        |reason: DamageReason| matches!(reason, DamageReason::Event(_) | DamageReason::Fragment(_));
    entries.filter(|damage| of_event(damage.reason)).count()
}

/// Bytes of a chunk that are there twice: in it, behind it, before it and further on.
#[test]
fn repeated_bytes_hand_out_each_event_once_and_are_named() {
    let written = events(&mut Random::new(20), 200, 150);
    let bytes = file(&written, 8192);
    let (start, size) = chunk_places(&bytes)[4];
    let (other, _) = chunk_places(&bytes)[8];
    let (middle, end) = (start + size / 2, start + size);
    // Between chunks that miss no event nothing is searched.
    let cases = [
        ("within", middle, start + size / 4..middle, true),
        ("behind", end, start..middle, false),
        ("behind, the second half", end, middle..end, false),
        ("before", start, start..middle, false),
        ("further on", other, middle..end, false),
        (
            "of another chunk, within",
            other + 2000,
            start..end - 7,
            true,
        ),
    ];
    for (what, at, repeated, is_searched) in cases {
        let damaged = [&bytes[..at], &bytes[repeated], &bytes[at..]].concat();
        let mut reader = RunReader::open(Cursor::new(&damaged)).unwrap();
        for round in 0..2 {
            let mut found = Vec::new();
            reader.rewind();
            while let Some(event) = reader.next_event().unwrap() {
                found.push(event.header().trigger.0);
            }
            let expected: Vec<u64> = written.keys().copied().collect();
            let lost = expected.len() - found.len();
            // Only the event that the bytes were put into.
            assert!(lost <= 1, "{what}, round {round}: {lost} lost");
            found.sort_unstable();
            assert!(found.is_sorted_by(|a, b| a < b), "{what}, round {round}");
            assert_eq!(reader.events_missing(), lost as u64, "{what}");
        }
        let twice = |reason| matches!(reason, DamageReason::EventTwice { .. });
        let entries = reader.damage().entries().iter();
        let named = entries.filter(|damage| twice(damage.reason)).count();
        assert_eq!(named > 0, is_searched, "{what}: {:?}", reader.damage());
        assert!(reader.damage().total() > 0, "{what}");
        let inspection = inspect(&mut reader).unwrap();
        assert!(!inspection.is_good(), "{what}");
        let (copy, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
        assert_eq!(recovered.file.events_stored, inspection.events, "{what}");
        let missing = written.len() as u64 - inspection.events;
        assert_eq!(recovered.end.events_missing, missing, "{what}");
        let mut copied = support::open(&copy);
        assert_eq!(inspect(&mut copied).unwrap().events, inspection.events);
        for trigger in written.keys().filter(|_| missing == 0) {
            assert!(reader.event(TriggerNumber(*trigger)).unwrap().is_some());
        }
    }
}

#[test]
fn whole_events_of_a_chunk_that_is_cut_off_are_recovered() {
    let written = events(&mut Random::new(19), 200, 150);
    let bytes = file(&written, 8192);
    let (start, size) = chunk_places(&bytes)[9];
    let cut = &bytes[..start + size - 10];
    let mut reader = support::open(cut);
    let before = read_back(&mut reader, &written);
    assert!(before.len() < written.len());
    let (copy, recovered) = recover(Cursor::new(cut), Vec::new()).unwrap();
    let found = read_back(&mut support::open(&copy), &written);
    assert!(found.len() > before.len() + 5, "{} events", found.len());
    let salvaged = (found.len() - before.len()) as u64;
    assert_eq!(recovered.events_salvaged, salvaged);
    assert!(recovered.end.condition.contains(Condition::INTERRUPTED));
}

/// What lies behind the end-of-run record is no start of a chunk: nobody writes one there.
#[test]
fn a_closed_file_with_bytes_behind_it_is_not_cut_off() {
    let written = events(&mut Random::new(23), 60, 40);
    let mut bytes = file(&written, 4096);
    let chunks = chunk_places(&bytes);
    // Events lie between the chunks of a scan, which searches all that is no chunk for them.
    bytes[chunks[2].0] ^= 64;
    bytes.push(b'x');
    let mut reader = support::open(&bytes);
    assert_eq!(reader.origin(), IndexOrigin::Scan);
    assert_eq!(read_back(&mut reader, &written).len(), written.len());
    assert!(reader.end().is_some() && !reader.is_cut_off());
    assert_eq!(reader.events_missing(), 0);
    let last = chunks.last().unwrap().0;
    assert!(support::open(&bytes[..last + 9]).is_cut_off());
}

/// Seeds of fuzzing: a file whose last chunk is cut off, one whose summary says that its damaged chunks
/// hold no events, and some whose chunks are not at their places or not whole.
/// The last chunk in its whole length, but zeros from some byte on, as a crash leaves a file whose
/// length was on the disk before its data: nobody writes it any more, so everyone reads what is whole.
#[test]
fn events_before_the_zeros_that_a_crash_left_are_read_by_everyone() {
    let written = events(&mut Random::new(81), 120, 60);
    let bytes = file(&written, 4096);
    let by_chunk = events_by_chunk(&bytes, &written);
    let chunks = chunk_places(&bytes);
    let (start, size) = chunks[5];
    for at in (start + 1500..start + size).step_by(211) {
        let mut damaged = bytes[..at].to_vec();
        damaged.resize(start + size + 5000, 0);
        let what = format!("zeros from {at}");
        let mut reader = support::open(&damaged);
        let found = read_back(&mut reader, &written);
        let before: usize = by_chunk[..5].iter().map(Events::len).sum();
        assert!(found.len() > before || at < start + 2500, "{what}");
        assert!(reader.next_event().unwrap().is_none(), "{what}");
        reader.refresh().unwrap();
        assert!(reader.next_event().unwrap().is_none(), "{what}, again");
        let missing = reader.events_missing();
        let inspection = inspect(&mut support::open(&damaged)).unwrap();
        let said = (inspection.events, inspection.events_missing);
        assert_eq!(said, (found.len() as u64, missing), "{what}");
        let (_, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
        let said = (recovered.file.events_stored, recovered.events_missing);
        assert_eq!(said, (found.len() as u64, missing), "{what}");
        let mut indexed = support::open(&damaged);
        assert_eq!(indexed.event_index().unwrap().places().len(), found.len());
        // And a writer that goes on there is followed.
        let mut grown = RunReader::open(Cursor::new(damaged.clone())).unwrap();
        read_back(&mut grown, &written);
        grown.input_mut().get_mut().clone_from(&bytes);
        grown.refresh().unwrap();
        let behind: usize = by_chunk[5..].iter().map(Events::len).sum();
        assert_eq!(read_back(&mut grown, &written).len(), behind, "{what}");
        assert!(
            grown.end().is_some() && grown.damage().total() == 0,
            "{what}"
        );
    }
}

#[test]
fn a_recovery_takes_the_events_that_a_reader_of_the_whole_file_finds() {
    let seeds =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/run_reader");
    for (name, events) in [
        ("cut-end", 1),
        ("no-events-by-summary", 2),
        ("displaced-chunk", 3),
        ("all-chunks-displaced", 3),
        ("chunk-inside-another", 2),
        ("no-whole-chunk", 3),
    ] {
        let damaged = std::fs::read(seeds.join(name)).unwrap();
        let mut reader = RunReader::open(Cursor::new(damaged.as_slice())).unwrap();
        reader.read_cut_end();
        inspect(&mut reader).unwrap();
        reader.rewind();
        let mut found = 0;
        while reader.next_event().unwrap().is_some() {
            found += 1;
        }
        let (_, recovered) = recover(Cursor::new(damaged), Vec::new()).unwrap();
        assert_eq!(
            (found, recovered.file.events_stored),
            (events, events),
            "{name}"
        );
    }
}

/// Whatever was listed while events were read: a file that has not changed has no other damage.
#[test]
fn a_refresh_that_finds_nothing_new_leaves_the_list_as_it_is() {
    let mut random = Random::new(83);
    let written = events(&mut random, 120, 60);
    let bytes = file(&written, 4096);
    for round in 0..400 {
        let length = bytes.len() / 2 + random.below(bytes.len() as u64 / 2) as usize;
        let mut damaged = bytes[..length].to_vec();
        for _ in 0..random.below(4) {
            let at = length / 2 + random.below(length as u64 / 2) as usize;
            damaged[at] ^= 1 << random.below(8);
        }
        if random.below(2) == 0 {
            let end = (length + 5000).min(bytes.len());
            damaged.resize(end, 0);
        }
        let mut reader = support::open(&damaged);
        let found = read_back(&mut reader, &written);
        reader.event_index().unwrap();
        let before = reader.damage().clone();
        reader.refresh().unwrap();
        assert_eq!(*reader.damage(), before, "round {round}");
        assert!(reader.next_event().unwrap().is_none(), "round {round}");
        reader.rewind();
        assert_eq!(read_back(&mut reader, &written), found, "round {round}");
    }
}

#[test]
fn a_chunk_may_say_that_it_is_the_last_that_there_can_be() {
    let written = events(&mut Random::new(84), 40, 60);
    let mut bytes = file(&written, 4096);
    let (start, size) = *chunk_places(&bytes).last().unwrap();
    let chunk = &mut bytes[start..start + size];
    let mark = chunk.windows(4).position(|word| word == b"LTCK").unwrap();
    chunk[mark + 16..mark + 24].copy_from_slice(&u64::MAX.to_le_bytes());
    let crc = crc32(&chunk[CHUNK_HEADER_BYTES..]);
    chunk[33..37].copy_from_slice(&crc.to_le_bytes());
    // Another is damaged, so that there may have been histograms.
    let (start, size) = chunk_places(&bytes)[0];
    bytes[start + size / 2] ^= 1;
    // With its summary it would not be scanned.
    bytes.push(b'x');
    let (_, recovered) = recover(Cursor::new(bytes), Vec::new()).unwrap();
    assert!(recovered.histograms_lost, "chunks before it are not there");
}
