//! Damaged files through every reader: one after the other, by the index, an inspection, a copy. All
//! take the same events, and say the same number of missing ones. An inspection says the same,
//! whatever was read before it.

use std::io::{Cursor, Read, Seek};
use std::ops::Range;

use livetime_store::{Condition, RunEnd, RunReader, RunWriter, inspect, recover};
use livetime_wire::TriggerNumber;

use crate::support::{
    self, Events, RUN, Random, begin, chunk_places, event, file_with_histogram, number_from_env,
    read_back, small_chunks,
};

/// Bytes of each chunk with its message indexes; the last one ends where the event index starts.
fn chunks_with_indexes(file: &[u8]) -> Vec<Range<usize>> {
    let starts: Vec<usize> = chunk_places(file).iter().map(|(start, _)| *start).collect();
    let summary = mcap::Summary::read(file).unwrap().unwrap();
    let index = summary.attachment_indexes[0].offset as usize;
    let ends = starts.iter().skip(1).copied().chain([index]);
    starts
        .iter()
        .copied()
        .zip(ends)
        .map(|(a, b)| a..b)
        .collect()
}

/// Where the words of an event start.
pub(crate) fn place_of(file: &[u8], words: &[u32]) -> usize {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut windows = file.windows(bytes.len());
    windows.position(|window| window == bytes).unwrap()
}

/// Reads a damaged file in each way; its events, after checking that all agree, that each of
/// those that are not there is missed, and that a copy says so.
fn read_in_every_way(damaged: &[u8], written: &Events, what: &str) -> Events {
    read_input_in_every_way(|| Cursor::new(damaged), written, what)
}

/// The same with an input that may give errors.
pub(crate) fn read_input_in_every_way<R: Read + Seek>(
    input: impl Fn() -> R,
    written: &Events,
    what: &str,
) -> Events {
    let open = || RunReader::open(input()).unwrap();
    let mut reader = open();
    let found = read_back(&mut reader, written);
    let missing = (written.len() - found.len()) as u64;
    assert_eq!(reader.events_missing(), missing, "{what}, one by one");

    let mut by_index = open();
    let listed = by_index.event_index().unwrap().places().to_vec();
    let mut single = Events::new();
    for place in listed {
        // One that is damaged is an error, or told of an index that was made from what is there.
        if let Ok(Some(event)) = by_index.event(place.trigger) {
            single.insert(place.trigger.0, event.words().to_vec());
        }
    }
    let triggers = |events: &Events| events.keys().copied().collect::<Vec<u64>>();
    assert_eq!(triggers(&single), triggers(&found), "{what}, by the index");

    let inspection = inspect(&mut open()).unwrap();
    let said = (inspection.events, inspection.events_missing);
    assert_eq!(said, (found.len() as u64, missing), "{what}, inspection");
    let is_incomplete = inspection.condition.contains(Condition::INCOMPLETE);
    assert_eq!(is_incomplete, missing > 0, "{what}, inspection");
    let again = inspect(&mut reader).unwrap();
    assert_eq!(again, inspection, "{what}, inspected after all events");
    let again = inspect(&mut by_index).unwrap();
    assert_eq!(again, inspection, "{what}, inspected after single events");

    let (copy, recovered) = recover(input(), Vec::new()).unwrap();
    let said = (recovered.file.events_stored, recovered.events_missing);
    assert_eq!(said, (found.len() as u64, missing), "{what}, copy");
    let is_incomplete = recovered.end.condition.contains(Condition::INCOMPLETE);
    assert_eq!(is_incomplete, missing > 0, "{what}, copy");
    let mut copied = support::open(&copy);
    assert_eq!(read_back(&mut copied, written), found, "{what}, copy");
    found
}

/// All chunks in another order, and all of them one byte before their places: no place that the
/// summary tells holds, and nothing is lost.
#[test]
fn chunks_that_are_all_away_from_their_places_lose_nothing() {
    let (bytes, written) = file_with_histogram(41, 120);
    let chunks = chunks_with_indexes(&bytes);
    let (first, end) = (chunks[0].start, chunks[chunks.len() - 1].end);
    let in_order = |order: &[usize]| {
        let moved = order.iter().flat_map(|at| &bytes[chunks[*at].clone()]);
        let start = bytes[..first].iter();
        let all = start.chain(moved).chain(&bytes[end..]);
        all.copied().collect::<Vec<u8>>()
    };
    let mut order: Vec<usize> = (1..chunks.len()).chain([0]).collect();
    let mut cases = vec![("the first one behind", in_order(&order))];
    let mut random = Random::new(42);
    for _ in 0..20 {
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        cases.push(("in any order", in_order(&order)));
    }
    let shifted = [&bytes[..20], &bytes[21..end], &[0], &bytes[end..]];
    cases.push(("one byte before", shifted.concat()));
    for (what, damaged) in cases {
        assert_eq!(damaged.len(), bytes.len());
        let opened = support::open(&damaged);
        let has_both = opened.begin().is_some() && opened.end().is_some();
        assert!(has_both, "{what}: nothing was read yet");
        let found = read_in_every_way(&damaged, &written, what);
        assert_eq!(found.len(), written.len(), "{what}");
        let mut reader = support::open(&damaged);
        assert_eq!(read_back(&mut reader, &written).len(), written.len());
        assert!(reader.end().is_some() && reader.begin().is_some(), "{what}");
        assert!(reader.histograms().unwrap().is_some(), "{what}");
        let (_, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
        assert!(!recovered.histograms_lost, "{what}");
        assert_eq!(recovered.end.condition, Condition::GOOD, "{what}");
    }
}

/// A later chunk, an earlier one and one of several chunks behind once more in the middle of one.
#[test]
fn a_chunk_inside_another_costs_the_event_that_it_was_put_into() {
    let (bytes, written) = file_with_histogram(43, 120);
    let chunks = chunks_with_indexes(&bytes);
    for (into, copied) in [(3, 4), (3, 2), (4, 9), (2, 1)] {
        let outer = &chunks[into];
        for share in 1..8 {
            let at = outer.start + outer.len() * share / 8;
            let inner = &bytes[chunks[copied].clone()];
            let damaged = [&bytes[..at], inner, &bytes[at..]].concat();
            let what = format!("chunk {copied} in chunk {into} at {share} of 8");
            let found = read_in_every_way(&damaged, &written, &what);
            assert!(found.len() + 1 >= written.len(), "{what}: {}", found.len());
        }
    }
}

/// Bytes that go and come in a file of the same length, so that its summary is believed.
#[test]
fn bytes_lost_and_put_in_cost_the_events_that_they_hit() {
    let (bytes, written) = file_with_histogram(44, 120);
    let end = chunks_with_indexes(&bytes).last().unwrap().end as u64;
    let mut random = Random::new(45);
    for case in 0..number_from_env("LIVETIME_STORE_SHIFTS", 300) {
        let mut damaged = bytes.clone();
        let (gone, come) = (random.below(end - 8), random.below(end - 8));
        let count = 1 + random.below(6) as usize;
        damaged.drain(gone as usize..gone as usize + count);
        let zeros = std::iter::repeat_n(0, count);
        damaged.splice(come as usize..come as usize, zeros);
        let what = format!("case {case}: {count} bytes from {gone} to {come}");
        let found = read_in_every_way(&damaged, &written, &what);
        // Both places may lie across the end of one event and the start of the next.
        assert!(found.len() + 4 >= written.len(), "{what}: {}", found.len());
    }
}

/// Blocks of one size in each other's place, as a disk or a file system may give them back: whole
/// events are then in other chunks than the index tells.
#[test]
fn blocks_in_each_others_place_cost_the_events_at_their_ends() {
    let written = support::events(&mut Random::new(49), 200, 200);
    let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(16 << 10)).unwrap();
    support::write_events(&mut writer, &written).unwrap();
    let end = RunEnd::new(RUN, Condition::GOOD, "duration reached", 20_000_000_000);
    writer.finish(&end).unwrap();
    let bytes = writer.into_inner();
    let chunks = chunks_with_indexes(&bytes);
    let (first, end) = (chunks[1].start, chunks[chunks.len() - 1].start);
    let mut random = Random::new(50);
    for case in 0..number_from_env("LIVETIME_STORE_SWAPS", 100) {
        let count = 4096;
        let room = (end - first - 2 * count) as u64;
        let early = first + random.below(room) as usize;
        let late = early + count;
        let late = late + random.below((end - count - late) as u64 + 1) as usize;
        let mut damaged = bytes.clone();
        damaged[early..early + count].copy_from_slice(&bytes[late..late + count]);
        damaged[late..late + count].copy_from_slice(&bytes[early..early + count]);
        let what = format!("case {case}: {count} bytes at {early} and {late}");
        let found = read_in_every_way(&damaged, &written, &what);
        // Four ends; an event that is cut at one may say that it ends behind the next one.
        assert!(found.len() + 8 >= written.len(), "{what}: {}", found.len());
    }
}

/// Zeros somewhere and a flip in the index of the file, which is read first or last.
#[test]
fn damage_and_a_wrong_index_are_listed_alike_whatever_is_read_first() {
    let (bytes, written) = file_with_histogram(51, 60);
    let index = chunks_with_indexes(&bytes).last().unwrap().end;
    let mut random = Random::new(52);
    let cases = number_from_env("LIVETIME_STORE_FAULTS", 200);
    for case in 0..=cases {
        let at = match case {
            // From the header of the first chunk into its data.
            0 => 73,
            _ => random.below(index as u64 - 64) as usize,
        };
        let mut damaged = bytes.clone();
        damaged[at..at + 64].fill(0);
        let flipped = index + 40 + random.below(100) as usize;
        damaged[flipped] ^= 4;
        let what = format!("zeros at {at}, a flip at {flipped}");
        read_in_every_way(&damaged, &written, &what);
        let said = inspect(&mut support::open(&damaged)).unwrap().damage;
        let names_index = said.iter().any(|range| range.offset == index as u64);
        assert!(names_index, "{what}: {said:?}");
    }
}

/// Flips in events of the first and the last chunk of events, and in the chunks of the histograms
/// and of the end: with a summary the number of events is told, without one by those that are damaged.
#[test]
fn every_event_that_is_damaged_is_missed_when_the_last_chunks_are() {
    let (bytes, written) = file_with_histogram(46, 120);
    let chunks = chunks_with_indexes(&bytes);
    let (histograms, end) = (&chunks[chunks.len() - 2], &chunks[chunks.len() - 1]);
    let triggers: Vec<u64> = written.keys().copied().collect();
    let last = triggers.len() - 1;
    let mut damaged = bytes.clone();
    for at in [0, last - 3, last - 2, last] {
        let words = &written[&triggers[at]];
        damaged[place_of(&bytes, words) + words.len() * 4 - 40] ^= 4;
    }
    damaged[histograms.start + 700] ^= 4;
    damaged[end.start + 700] ^= 4;
    let found = read_in_every_way(&damaged, &written, "with a summary");
    assert_eq!(found.len() + 4, written.len());

    let tail = bytes.len() - 400;
    damaged[tail] ^= 4;
    let found = read_in_every_way(&damaged, &written, "without one");
    assert_eq!(found.len() + 4, written.len());
    let (copy, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
    assert!(recovered.histograms_lost);
    let reader = support::open(&copy);
    let reason = &reader.end().unwrap().reason;
    assert!(reason.contains("without the histograms"), "{reason}");
}

/// One flip in each chunk and one in the summary: the events tell the run.
#[test]
fn whole_events_are_read_where_neither_a_chunk_nor_the_summary_is_whole() {
    let (bytes, written) = file_with_histogram(47, 120);
    let chunks = chunks_with_indexes(&bytes);
    let mut damaged = bytes.clone();
    for chunk in &chunks {
        damaged[chunk.start + 700] ^= 4;
    }
    let tail = bytes.len() - 400;
    damaged[tail] ^= 4;
    let mut reader = support::open(&damaged);
    assert_eq!((reader.run(), reader.chunk_count()), (RUN, 0));
    let found = read_back(&mut reader, &written);
    assert!(found.len() + chunks.len() >= written.len());
    let (_, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
    assert_eq!(recovered.file.events_stored, found.len() as u64);
    // Cut off as by a crash, with no whole chunk: what is whole of the one that was cut comes into
    // a copy.
    let cut = &damaged[..chunks[2].start + 3000];
    let (_, recovered) = recover(Cursor::new(cut), Vec::new()).unwrap();
    assert!(recovered.file.events_stored > 0);
}

/// The first half of a whole event once more in the chunk of the end: no event is missing.
#[test]
fn a_damaged_copy_of_a_whole_event_is_no_loss() {
    let (bytes, written) = file_with_histogram(48, 120);
    let end = chunks_with_indexes(&bytes).last().unwrap().clone();
    let words = written
        .values()
        .rev()
        .find(|words| words.len() > 60)
        .unwrap();
    let message = place_of(&bytes, words) - 31;
    let half = &bytes[message..message + 31 + words.len() * 2];
    let at = end.start + 700;
    let damaged = [&bytes[..at], half, &bytes[at..]].concat();
    let found = read_in_every_way(&damaged, &written, "half an event");
    assert_eq!(found.len(), written.len());
}

/// Of two chunks of one length in each other's place, each is read in its turn, and each event found
/// by the index.
#[test]
fn chunks_of_one_length_in_each_others_place_are_told_by_their_marks() {
    let written: Events = (1..=80)
        .map(|trigger| (trigger, event(trigger, &[50])))
        .collect();
    let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(4096)).unwrap();
    support::write_events(&mut writer, &written).unwrap();
    let end = RunEnd::new(RUN, Condition::GOOD, "duration reached", 20_000_000_000);
    writer.finish(&end).unwrap();
    let bytes = writer.into_inner();
    let places = chunk_places(&bytes);
    let ((early, size), (late, late_size)) = (places[2], places[4]);
    assert_eq!(size, late_size);
    let mut damaged = bytes.clone();
    damaged[early..early + size].copy_from_slice(&bytes[late..late + size]);
    damaged[late..late + size].copy_from_slice(&bytes[early..early + size]);
    let found = read_in_every_way(&damaged, &written, "swapped");
    assert_eq!(found.len(), written.len());
    let mut reader = RunReader::open(Cursor::new(&damaged)).unwrap();
    let mut triggers = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        triggers.push(event.header().trigger.0);
    }
    assert!(triggers.is_sorted(), "{triggers:?}");
    assert!(reader.event(TriggerNumber(1)).unwrap().is_some());
}
