//! Inputs that fail once, as files of a server that is away for a moment do: whoever asks again finds
//! what one finds whose input did not fail.

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use livetime_store::{Damage, RunReader};
use livetime_wire::TriggerNumber;

use crate::readers_agree::place_of;
use crate::support::{Events, chunk_places, file_with_histogram, open, read_back};

/// An input of which one call fails.
struct FailsOnce {
    file: Cursor<Vec<u8>>,
    /// Calls before that one; `None` if none is to fail, or has failed.
    calls_left: Option<u64>,
}

impl FailsOnce {
    fn new(file: &[u8]) -> Self {
        Self {
            file: Cursor::new(file.to_vec()),
            calls_left: None,
        }
    }

    fn call(&mut self) -> io::Result<()> {
        match self.calls_left {
            Some(0) => {
                self.calls_left = None;
                // An error of the whole input, which is passed on.
                Err(io::Error::from(io::ErrorKind::StaleNetworkFileHandle))
            }
            left => {
                self.calls_left = left.map(|left| left - 1);
                Ok(())
            }
        }
    }
}

impl Read for FailsOnce {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.call()?;
        self.file.read(out)
    }
}

impl Seek for FailsOnce {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.call()?;
        self.file.seek(to)
    }
}

/// What a reader says once all is read.
#[derive(Debug, PartialEq)]
struct Said {
    damage: Vec<Damage>,
    events_missing: u64,
    has_begin: bool,
    has_end: bool,
    is_finished: bool,
}

impl Said {
    fn of<R: Read + Seek>(reader: &RunReader<R>) -> Self {
        let mut damage = reader.damage().entries().to_vec();
        damage.sort_by_key(|damage| (damage.offset, damage.bytes));
        Self {
            damage,
            events_missing: reader.events_missing(),
            has_begin: reader.begin().is_some(),
            has_end: reader.end().is_some(),
            is_finished: reader.is_finished(),
        }
    }
}

/// Reads `before`, takes up `after`, and reads on; the call behind `calls` fails while it is taken up,
/// and then it is taken up again. The events that came then, what is said, and whether one failed.
fn followed(
    before: &[u8],
    after: &[u8],
    written: &Events,
    calls: Option<u64>,
) -> (Events, Said, bool) {
    let mut reader = RunReader::open(FailsOnce::new(before)).unwrap();
    read_back(&mut reader, written);
    let input = reader.input_mut();
    *input = FailsOnce::new(after);
    input.calls_left = calls;
    let has_failed = reader.refresh().is_err();
    reader.input_mut().calls_left = None;
    reader.refresh().unwrap();
    let found = read_back(&mut reader, written);
    (found, Said::of(&reader), has_failed)
}

/// The file as it was before its chunk `chunk` was written.
fn cut_before(file: &[u8], chunk: usize) -> &[u8] {
    &file[..chunk_places(file)[chunk].0]
}

/// Trigger numbers of the events from chunk `chunk` on.
fn triggers_from(file: &[u8], chunk: usize) -> Vec<u64> {
    let start = chunk_places(file)[chunk].0 as u64;
    let mut reader = open(file);
    let places = reader.event_index().unwrap().places().iter();
    let behind = places.filter(|place| place.chunk_offset >= start);
    behind.map(|place| place.trigger.0).collect()
}

/// A file, and the same with a wrong bit in an event of chunk 5.
fn whole_and_flipped() -> (Vec<u8>, Vec<u8>, Events) {
    let (bytes, written) = file_with_histogram(91, 120);
    let (start, size) = chunk_places(&bytes)[5];
    let mut flipped = bytes.clone();
    flipped[start + size / 2] ^= 1;
    (bytes, flipped, written)
}

/// Wherever the input fails while a file is taken up that has grown or not, with and without a damaged
/// chunk at its end: events come once, and the end-of-run record is found.
#[test]
fn a_refresh_that_failed_is_made_up_for_by_the_next_one() {
    let (bytes, flipped, written) = whole_and_flipped();
    let last = chunk_places(&bytes).len() - 1;
    let cases = [
        ("one chunk comes", &bytes, last, usize::MAX),
        ("several chunks come", &bytes, 4, usize::MAX),
        (
            "several chunks come behind a damaged one",
            &flipped,
            6,
            usize::MAX,
        ),
        ("nothing comes behind a damaged one", &flipped, 6, 6),
        ("a chunk comes behind a damaged one", &flipped, 6, 7),
    ];
    for (what, file, chunk, grown) in cases {
        // Chunks are where they were written to.
        let before = &file[..cut_before(&bytes, chunk).len()];
        let after = match grown {
            usize::MAX => &file[..],
            grown => &file[..cut_before(&bytes, grown).len()],
        };
        let (sound, said, _) = followed(before, after, &written, None);
        assert_eq!(said.has_end, grown == usize::MAX, "{what}");
        for calls in 0.. {
            let (found, failed, has_failed) = followed(before, after, &written, Some(calls));
            assert_eq!(found, sound, "{what}, call {calls}");
            assert_eq!(failed, said, "{what}, call {calls}");
            if !has_failed {
                assert!(calls > 5, "{what}: {calls} calls");
                break;
            }
        }
    }
}

/// Message indexes lie between a damaged chunk and the next one, which was not there when it was read.
#[test]
fn events_of_a_damaged_chunk_do_not_come_again_with_the_next_one() {
    let (bytes, flipped, written) = whole_and_flipped();
    let before = &flipped[..cut_before(&bytes, 6).len()];
    let first = read_back(&mut open(before), &written);
    let (then, said, _) = followed(before, &flipped, &written, None);
    let behind = triggers_from(&bytes, 6);
    assert!(then.keys().eq(behind.iter()), "{:?}", then.keys());
    assert_eq!(first.len() + then.len() + 1, written.len());
    assert_eq!(said.events_missing, 1);
    let mut at_once = open(&flipped);
    let all = read_back(&mut at_once, &written);
    assert_eq!(all.len(), first.len() + then.len());
}

/// Reads all events, and asks again after an error, before that for a single event; the triggers, and
/// whether there was one.
fn read_through(reader: &mut RunReader<FailsOnce>, single: Option<u64>) -> (Vec<u64>, bool) {
    let (mut triggers, mut has_failed) = (Vec::new(), false);
    loop {
        match reader.next_event() {
            Ok(Some(event)) => triggers.push(event.header().trigger.0),
            Ok(None) => return (triggers, has_failed),
            Err(error) => {
                assert!(!has_failed, "{error}");
                has_failed = true;
                if let Some(trigger) = single {
                    let event = reader.event(TriggerNumber(trigger)).unwrap();
                    assert!(event.is_some(), "{trigger}");
                }
            }
        }
    }
}

/// Wherever the input fails while chunks are searched that are not at their places.
#[test]
fn chunks_at_another_place_are_found_after_an_error() {
    let (bytes, written) = file_with_histogram(92, 120);
    let chunks = chunk_places(&bytes);
    let chunk = |at: usize| &bytes[chunks[at].0..chunks[at].0 + chunks[at].1];
    let end_of = |at: usize| chunks[at].0 + chunks[at].1;
    let mut swapped = [
        &bytes[..chunks[3].0],
        chunk(6),
        &bytes[end_of(3)..chunks[6].0],
        chunk(3),
        &bytes[end_of(6)..],
    ]
    .concat();
    // Nothing of the message is left around an event, which only the index of the file tells then.
    let in_last = triggers_from(&bytes, 7)[2];
    let at = place_of(&swapped, &written[&in_last]);
    swapped[at - 26..at - 4].fill(0);
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/run_reader");
    let seed = std::fs::read(seeds.join("displaced-chunk")).unwrap();
    let moved = triggers_from(&bytes, 3)[0];
    let cases = [
        ("swapped", &swapped, None, written.len()),
        (
            "swapped, and one event",
            &swapped,
            Some(moved),
            written.len(),
        ),
        ("seed", &seed, None, 3),
    ];
    for (what, damaged, single, count) in cases {
        let mut sound = RunReader::open(FailsOnce::new(damaged)).unwrap();
        let (expected, _) = read_through(&mut sound, single);
        assert_eq!(expected.len(), count, "{what}");
        let said = Said::of(&sound);
        for calls in 0.. {
            let mut reader = RunReader::open(FailsOnce::new(damaged)).unwrap();
            reader.input_mut().calls_left = Some(calls);
            let (found, has_failed) = read_through(&mut reader, single);
            assert_eq!(found, expected, "{what}, call {calls}");
            assert_eq!(Said::of(&reader), said, "{what}, call {calls}");
            if !has_failed {
                assert!(calls > 5, "{what}: {calls} calls");
                break;
            }
        }
    }
}
