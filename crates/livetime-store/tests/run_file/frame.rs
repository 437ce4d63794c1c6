//! Damage to what no event depends on: found by an inspection, and told apart from lost events.

use std::io::Cursor;

use livetime_store::{Condition, Damage, DamageReason, FramePart, RunReader, inspect, recover};

use crate::support::{self, chunk_places, file_with_histogram};

/// A file with several chunks of events and one of histograms, and its number of events.
fn file() -> (Vec<u8>, u64) {
    let (bytes, written) = file_with_histogram(31, 120);
    (bytes, written.len() as u64)
}

fn place_of(bytes: &[u8], wanted: &[u8]) -> usize {
    let mut windows = bytes.windows(wanted.len());
    windows.position(|window| window == wanted).unwrap()
}

fn damage_of(bytes: &[u8]) -> Vec<Damage> {
    let mut reader = support::open(bytes);
    inspect(&mut reader).unwrap();
    reader.damage().entries().to_vec()
}

#[test]
fn a_damaged_chunk_of_histograms_is_found_and_its_loss_is_said() {
    let (mut bytes, events) = file();
    assert_eq!(damage_of(&bytes), []);
    let (copy, recovered) = recover(Cursor::new(&bytes), Vec::new()).unwrap();
    assert!(!recovered.histograms_lost);
    assert!(support::open(&copy).histograms().unwrap().is_some());

    let at = place_of(&bytes, b"dimuon_mass") + 200;
    bytes[at] ^= 1;
    let inspection = inspect(&mut support::open(&bytes)).unwrap();
    assert_eq!(inspection.checksum_errors, 1);
    assert!(inspection.condition.contains(Condition::TAINTED));
    assert!(!inspection.is_good());
    assert!(inspection.complete, "every event is there");

    for cut_summary in [false, true] {
        if cut_summary {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
        }
        let (copy, recovered) = recover(Cursor::new(&bytes), Vec::new()).unwrap();
        assert!(recovered.histograms_lost);
        let mut reader = support::open(&copy);
        assert_eq!(reader.histograms().unwrap(), None);
        let end = reader.end().unwrap();
        assert!(end.reason.contains("without the histograms"), "{end:?}");
        assert!(end.recovered);
        assert_eq!(end.events_stored, events);
    }
}

#[test]
fn a_copy_of_a_file_without_damage_is_a_file_without_damage() {
    let (bytes, _) = file();
    let (copy, recovered) = recover(Cursor::new(&bytes), Vec::new()).unwrap();
    assert!(!recovered.end.recovered);
    let inspection = inspect(&mut support::open(&copy)).unwrap();
    assert!(inspection.complete && inspection.is_good());
}

/// No bit of a file can be wrong without being found, and none costs an event that does not hold it.
#[test]
fn every_bit_around_the_chunks_is_compared() {
    let (bytes, events) = file();
    let chunks = chunk_places(&bytes);
    let in_data = |at: usize| {
        let mut data = chunks.iter().map(|(start, size)| start + 49..start + size);
        data.any(|data| data.contains(&at))
    };
    let around = (0..bytes.len()).filter(|at| !in_data(*at));
    // The lowest bits, and the highest ones, which make lengths that end nowhere.
    for (at, bit) in around.flat_map(|at| [(at, 1), (at, 0x80)]) {
        let mut damaged = bytes.clone();
        damaged[at] ^= bit;
        let mut reader = support::open(&damaged);
        let inspection = inspect(&mut reader).unwrap();
        assert!(!inspection.is_good(), "byte {at}: {inspection:?}");
        assert_eq!(inspection.events, events, "byte {at}");
        let named = reader.damage().entries().iter();
        let named = named.map(|damage| damage.offset..damage.offset + damage.bytes);
        let in_summary = reader.origin() == livetime_store::run_reader::IndexOrigin::Scan;
        let is_named = named.into_iter().any(|range| range.contains(&(at as u64)));
        assert!(is_named || in_summary, "byte {at}: {:?}", reader.damage());
    }
}

#[test]
fn damage_around_the_chunks_is_named_with_its_place() {
    let (bytes, _) = file();
    let chunks = chunk_places(&bytes);
    let (second, size) = chunks[1];
    let attachment = place_of(&bytes, b"event-index") + 100;
    let cases = [
        (3, 0, FramePart::Magic),
        (9, 8, FramePart::Header),
        (second, second, FramePart::ChunkHeader),
        (second + 1, second, FramePart::ChunkHeader),
        (second + 12, second, FramePart::ChunkHeader),
        (second + size + 20, second + size, FramePart::MessageIndex),
    ];
    for (at, offset, part) in cases {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        let found = damage_of(&damaged);
        assert_eq!(found.len(), 1, "{part}: {found:?}");
        assert_eq!(found[0].offset, offset as u64, "{part}");
        assert_eq!(found[0].reason, DamageReason::Frame(part));
        let (_, recovered) = recover(Cursor::new(&damaged), Vec::new()).unwrap();
        assert!(recovered.end.recovered, "{part}: the copy is not the file");
    }
    let mut damaged = bytes.clone();
    damaged[attachment..attachment + 512].fill(0);
    let found = damage_of(&damaged);
    assert!(
        matches!(found[..], [one] if one.reason == DamageReason::Index),
        "{found:?}"
    );
}

/// What a run leaves that was ended at once, and a file that outgrew its index, have nothing wrong.
#[test]
fn files_without_summary_or_indexes_have_nothing_wrong_around_their_chunks() {
    let (bytes, _) = file();
    for (start, size) in chunk_places(&bytes) {
        let mut reader = support::open(&bytes[..start + size]);
        inspect(&mut reader).unwrap();
        assert_eq!(reader.damage().entries(), [], "cut at {}", start + size);
    }
    let mut reader = RunReader::open_by_scan(Cursor::new(&bytes)).unwrap();
    inspect(&mut reader).unwrap();
    assert_eq!(reader.damage().entries(), []);
}
