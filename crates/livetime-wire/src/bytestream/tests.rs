//! Streams made here: read, taken apart, put together, and broken in every place.

use proptest::prelude::*;

use super::*;
use crate::bytestream_frame::{self, FrameView};

fn rob(source: u32, data: &[u32], version: u32) -> Vec<u32> {
    let mut rod = vec![ROD, 9, version, source, 1, 77, 0, 0, 0];
    rod.extend_from_slice(data);
    rod.extend_from_slice(&[0, 1, data.len() as u32, 1]);
    let kind = u32::from(version >> 24 >= 4);
    let total = 8 + rod.len() as u32 + kind;
    let mut words = vec![ROB, total, 8, version, source, 1, 0, kind];
    words.append(&mut rod);
    words.extend((kind == 1).then_some(0xC0DE));
    words
}

fn nested(marker: u32, source: u32, inner: &[Vec<u32>]) -> Vec<u32> {
    let payload: Vec<u32> = inner.concat();
    let mut words = vec![
        marker,
        8 + payload.len() as u32,
        8,
        0x0300_0000,
        source,
        1,
        0,
        0,
    ];
    words.extend(payload);
    words
}

/// An event of two sub-detectors, or of ROBs alone (version 4).
fn event(number: u32, version: u32, data: &[u32]) -> Vec<u32> {
    let robs: Vec<Vec<u32>> = (0..3)
        .map(|n| rob(0xA0 + n, &data[..data.len().min(n as usize * 5)], version))
        .collect();
    let inner = if version >> 24 >= 4 {
        robs
    } else {
        let first = nested(ROS, 1, &robs[..2]);
        let second = nested(ROS, 2, &robs[2..]);
        vec![
            nested(SUB_DETECTOR, 0xA, &[first]),
            nested(SUB_DETECTOR, 0xB, &[second]),
        ]
    };
    let payload = inner.concat();
    // One status word; then the number of specific words, or the checksum type: date, event, run, or
    // seconds and nanoseconds, event, run type, run, luminosity block.
    let (header, checksum): (&[u32], &[u32]) = match version >> 24 {
        3 => (&[1, 0, 3, 5, number, 9], &[]),
        _ => (&[1, 0, 1, 500, 3, number, 2, 9, 4], &[0xC0DE]),
    };
    let header_words = 5 + header.len() as u32;
    let total = header_words + (payload.len() + checksum.len()) as u32;
    let mut words = vec![FULL_EVENT, total, header_words, version, 0x79];
    words.extend(header);
    words.extend(payload);
    words.extend(checksum);
    words
}

fn stream(version: u32) -> Vec<u32> {
    let mut words = vec![FILE_START, 4, 1, 2];
    words.extend([FILE_NAME, 5, 0x2D4F_4653, 0x2020_2031, 3, 0x206C_6C41]);
    words.extend([RUN_PARAMETERS, 3, 9]);
    for number in [7, 5, 6] {
        let event = event(number, version, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        words.extend([SEPARATOR, 4, number, event.len() as u32 * 4]);
        words.extend(event);
    }
    words.extend([FILE_END, 10, 0, 0, 3, 0, 3, 0, 0, 0x1234_EEEE]);
    words
}

fn rebuilt(words: &[u32]) -> Result<Vec<u32>, ByteStreamError> {
    let mut out = Vec::new();
    for piece in StreamReader::new(words) {
        let piece = piece?;
        let mut frame = Vec::new();
        bytestream_frame::emit(&piece, &mut frame);
        let frame = FrameView::new_checked(&frame)?;
        let find = |source| {
            let mut robs = piece.event.robs();
            robs.find(|(_, rob)| rob.source() == source)
                .map(|(_, rob)| rob.words())
        };
        frame.rebuild(find, &mut out).expect("the ROBs are there");
    }
    Ok(out)
}

#[test]
fn streams_of_both_versions_fall_apart_and_come_together() {
    for version in [0x0300_0000, 0x0400_0000] {
        let words = stream(version);
        let pieces: Vec<_> = StreamReader::new(&words).map(Result::unwrap).collect();
        assert_eq!(pieces.len(), 3);
        assert_eq!((pieces[0].before.len(), pieces[1].before.len()), (17, 4));
        assert_eq!((pieces[1].after.len(), pieces[2].after.len()), (0, 10));
        let numbers: Vec<_> = pieces.iter().map(|piece| piece.event.number()).collect();
        assert_eq!(numbers, [Some(7), Some(5), Some(6)]);
        assert_eq!(pieces[0].event.run(), Some(RunNumber(9)));
        let (_, third) = pieces[0].event.robs().last().unwrap();
        let rod = RodView::new_checked(third.payload(), 0).unwrap();
        assert_eq!(
            (rod.source(), rod.level_one_id()),
            (SourceId(0xA2), Some(77))
        );
        assert_eq!(rod.data(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(rebuilt(&words).as_ref(), Ok(&words));
        // Events alone, without the records of a file.
        let alone = event(1, version, &[]);
        assert_eq!(rebuilt(&alone).as_ref(), Ok(&alone));
    }
    assert_eq!(rebuilt(&[]), Ok(vec![]));
    assert_eq!(rebuilt(&[FILE_START, 2]), Ok(vec![]));
}

#[test]
fn records_say_how_many_files_and_events_there_are() {
    let words = [stream(0x0300_0000), stream(0x0400_0000)].concat();
    let records = |words: &[u32]| {
        let mut records = FileRecords::default();
        for piece in StreamReader::new(words) {
            let piece = piece.unwrap();
            records.note(piece.before);
            records.note(piece.after);
        }
        (records.starts, records.ends, records.events)
    };
    assert_eq!(records(&words), (2, 2, 6));
    assert_eq!(records(&words[..words.len() - 10]), (2, 1, 3));
    assert_eq!(records(&event(1, 0x0400_0000, &[])), (0, 0, 0));
    // Cut in its own words, or of no length.
    let mut records = FileRecords::default();
    records.note(&[FILE_END, 10, 0]);
    records.note(&[FILE_START, 0, 0]);
    assert_eq!((records.starts, records.ends, records.events), (0, 1, 0));
}

#[test]
fn a_rod_that_contradicts_its_trailer_is_passed_on_if_its_rob_says_that_it_is_damaged() {
    for version in [0x0300_0000, 0x0400_0000] {
        let mut words = event(1, version, &[1, 2, 3, 4, 5]);
        let rob = words.iter().rposition(|word| *word == ROB).unwrap();
        let rod_end = rob + words[rob + 1] as usize - usize::from(version >> 24 == 4);
        words[rod_end - 2] += 1;
        assert!(matches!(
            rebuilt(&words),
            Err(ByteStreamError::Trailer { .. })
        ));
        words[rob + 6] = 0x20;
        assert_eq!(rebuilt(&words).as_ref(), Ok(&words));
    }
}

#[test]
fn broken_streams_say_where() {
    let words = stream(0x0300_0000);
    let swapped: Vec<u32> = words.iter().map(|word| word.swap_bytes()).collect();
    let found = 0xAAAA_3412;
    assert_eq!(
        rebuilt(&swapped),
        Err(ByteStreamError::ByteOrder { position: 0, found })
    );
    let mut twice = event(1, 0x0400_0000, &[]);
    let first = twice[..].iter().position(|word| *word == ROB).unwrap();
    let second = first + twice[first + 1] as usize;
    twice[second + 4] = 0xA0;
    assert!(matches!(
        rebuilt(&twice),
        Err(ByteStreamError::SourceTwice { .. })
    ));
    let cut = &words[..words.len() - 20];
    assert!(matches!(rebuilt(cut), Err(ByteStreamError::Length { .. })));
    let text = rebuilt(&[1, 2, 3]).unwrap_err().to_string();
    assert_eq!(
        text,
        "word 0 is 0x00000001, expected a record of the file or an event"
    );
    let mut frame = Vec::new();
    let piece = StreamReader::new(&words).next().unwrap().unwrap();
    bytestream_frame::emit(&piece, &mut frame);
    for broken in [0, 1, 2, 5, 7] {
        let mut words = frame.clone();
        words[broken] ^= 0x4000_0000;
        assert!(FrameView::new_checked(&words).is_err(), "word {broken}");
    }
    assert!(FrameView::new_checked(&frame[..4]).is_err());
    let missing = FrameView::new_checked(&frame)
        .unwrap()
        .rebuild(|_| None, &mut Vec::new());
    assert_eq!(missing.unwrap_err().source, SourceId(0xA0));
}

proptest! {
    #[test]
    fn any_words_and_any_damage_are_refused_or_rebuilt(
        place in any::<prop::sample::Index>(),
        value in any::<u32>(),
        version in prop_oneof![Just(0x0300_0000u32), Just(0x0400_0000)],
        noise in prop::collection::vec(any::<u32>(), 0..40),
    ) {
        let mut words = stream(version);
        let place = place.index(words.len());
        words[place] = value;
        if let Ok(out) = rebuilt(&words) {
            prop_assert_eq!(out, words);
        }
        let _ = rebuilt(&noise);
        let _ = FrameView::new_checked(&noise);
    }
}
