//! Files that the system does not give in whole: a bad sector, a file that is cut off while it is
//! read. What is there is read, and what is not is named.

use std::io::{self, Cursor, Seek, SeekFrom};
use std::ops::Range;

use livetime_store::{
    Condition, Damage, DamageReason, OpenError, ReadError, ReadFault, RunEnd, RunReader, RunWriter,
    inspect, recover,
};
use livetime_wire::TriggerNumber;

use crate::readers_agree::{place_of, read_input_in_every_way};
use crate::support::{
    BadSector, Events, RUN, Random, begin, event, events, number_from_env, read_back, small_chunks,
    write_events,
};

const SECTOR_BYTES: u64 = 4096;

/// A file of several large chunks.
fn file(written: &Events) -> Vec<u8> {
    let mut writer = RunWriter::new(Vec::new(), &begin(), small_chunks(32 << 10)).unwrap();
    write_events(&mut writer, written).unwrap();
    let end = RunEnd::new(RUN, Condition::GOOD, "duration reached", 20_000_000_000);
    writer.finish(&end).unwrap();
    writer.into_inner()
}

/// Trigger and place of each event.
fn places(bytes: &[u8], written: &Events) -> Vec<(u64, Range<u64>)> {
    let place = |(trigger, words): (&u64, &Vec<u32>)| {
        let start = place_of(bytes, words) as u64;
        (*trigger, start..start + words.len() as u64 * 4)
    };
    written.iter().map(place).collect()
}

/// Every sector of a file in turn: the events in it are missing, everything else is read by everyone.
#[test]
fn a_bad_sector_costs_the_events_in_it() {
    let written = events(&mut Random::new(61), 150, 200);
    let bytes = file(&written);
    let places = places(&bytes, &written);
    let file_bytes = bytes.len() as u64;
    for start in (0..file_bytes).step_by(SECTOR_BYTES as usize) {
        let sector = start..(start + SECTOR_BYTES).min(file_bytes);
        let what = format!("sector {sector:?} of {file_bytes} bytes");
        let input = || BadSector::new(&bytes, sector.clone());
        let found = read_input_in_every_way(input, &written, &what);
        let hit = |place: &Range<u64>| place.start < sector.end && sector.start < place.end;
        let whole = places.iter().filter(|(_, place)| !hit(place));
        let whole: Vec<u64> = whole.map(|(trigger, _)| *trigger).collect();
        assert!(found.keys().eq(whole.iter()), "{what}");
        let inspection = inspect(&mut RunReader::open(input()).unwrap()).unwrap();
        let said = inspection.damage.iter();
        let said: Vec<_> = said.map(|range| (range.offset, range.bytes)).collect();
        assert_eq!(
            said,
            [(start, sector.end - start)],
            "{what}: {:?}",
            inspection.damage
        );
        assert!(inspection.damage[0].reason.starts_with("cannot be read: "));
        assert_eq!(inspection.checksum_errors, 0, "{what}");
        assert!(!inspection.is_good(), "{what}");
    }
}

/// Several sectors in a row, all but the last ones, without which nothing tells how much is missing.
#[test]
fn whatever_cannot_be_read_all_readers_agree() {
    let written = events(&mut Random::new(62), 100, 100);
    let bytes = file(&written);
    let mut random = Random::new(63);
    for case in 0..number_from_env("LIVETIME_STORE_SECTORS", 100) {
        let sectors = bytes.len() as u64 / SECTOR_BYTES - 2;
        let (start, count) = (random.below(sectors), 1 + random.below(sectors / 2));
        let stretch = start * SECTOR_BYTES..sectors.min(start + count) * SECTOR_BYTES;
        let what = format!("case {case}: {stretch:?} of {} bytes", bytes.len());
        let input = || BadSector::new(&bytes, stretch.clone());
        read_input_in_every_way(input, &written, &what);
    }
}

/// A single event in a bad sector is an event that is damaged, not an input that fails.
#[test]
fn an_event_in_a_bad_sector_is_damaged_and_the_others_are_found() {
    let written = events(&mut Random::new(64), 100, 200);
    let bytes = file(&written);
    let places = places(&bytes, &written);
    let (lost, place) = &places[50];
    let sector = place.start..place.start + 1;
    let mut reader = RunReader::open(BadSector::new(&bytes, sector)).unwrap();
    let error = reader.event(TriggerNumber(*lost)).unwrap_err();
    let ReadError::Damaged { trigger, damage } = error else {
        panic!("{error}");
    };
    assert_eq!((trigger, damage.offset), (*lost, place.start));
    let kind = io::ErrorKind::Other;
    let reason = DamageReason::Unreadable(ReadFault::Input { kind });
    assert_eq!(damage.reason, reason);
    assert!(reader.event(TriggerNumber(places[0].0)).unwrap().is_some());
    let (_, recovered) = recover(
        BadSector::new(&bytes, place.start..place.start + 1),
        Vec::new(),
    )
    .unwrap();
    assert!(recovered.end.recovered && recovered.events_missing > 0);
}

/// From a place on nothing is there any more, of a file whose index tells all of it.
#[test]
fn a_file_that_is_cut_off_while_it_is_read_is_read_up_to_there() {
    let written = events(&mut Random::new(65), 150, 100);
    let bytes = file(&written);
    let places = places(&bytes, &written);
    for share in 1..8 {
        let cut = bytes.len() * share / 8;
        let mut reader = RunReader::open(Cursor::new(bytes.clone())).unwrap();
        let first = reader.next_event().unwrap().unwrap().header().trigger;
        assert_eq!(first.0, places[0].0);
        reader.input_mut().get_mut().truncate(cut);
        let mut found = read_back(&mut reader, &written);
        found.insert(first.0, written[&first.0].clone());
        let missing = (written.len() - found.len()) as u64;
        let inside = places.iter().filter(|(_, place)| place.end <= cut as u64);
        // What was in memory when the file was cut is read, too.
        assert!(found.len() >= inside.count(), "cut at {cut}");
        assert_eq!(reader.events_missing(), missing, "cut at {cut}");
        if missing > 0 {
            let gone = Damage {
                offset: cut as u64,
                bytes: (bytes.len() - cut) as u64,
                reason: DamageReason::Unreadable(ReadFault::CutOff),
            };
            assert_eq!(reader.damage().entries(), [gone], "cut at {cut}");
        }
        let mut single = RunReader::open(Cursor::new(bytes.clone())).unwrap();
        single.event(first).unwrap();
        single.input_mut().get_mut().truncate(cut);
        let (last, _) = places[places.len() - 1];
        let error = single.event(TriggerNumber(last)).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
        assert!(single.event(first).unwrap().is_some());
    }
}

#[test]
fn an_input_of_which_nothing_can_be_read_is_no_foreign_file() {
    let written: Events = (1..=20)
        .map(|trigger| (trigger, event(trigger, &[50])))
        .collect();
    let bytes = file(&written);
    let all = 0..bytes.len() as u64;
    let error = RunReader::open(BadSector::new(&bytes, all.clone())).err();
    let Some(OpenError::Io(error)) = error else {
        panic!("{error:?}");
    };
    let text = error.to_string();
    let first = format!("{} bytes at 0: cannot be read", bytes.len());
    assert!(text.contains(&first), "{text}");
    // An error of all of it is told as it is.
    let mut input = BadSector::new(&bytes, all);
    input.error = io::ErrorKind::PermissionDenied;
    input.seek(SeekFrom::Start(0)).unwrap();
    let error = RunReader::open(input).err();
    let denied = io::ErrorKind::PermissionDenied;
    assert!(
        matches!(&error, Some(OpenError::Io(error)) if error.kind() == denied),
        "{error:?}"
    );
}
