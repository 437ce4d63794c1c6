use livetime_wire::crc::crc32c;
use livetime_wire::event::{
    EventAccess, EventError, EventHeader, EventView, FragmentEntry, FragmentParts,
};
use livetime_wire::fragment::FragmentView;
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, RunNs, RunNumber, SourceId, TriggerNumber};
use proptest::prelude::*;

use crate::golden::{assert_golden, for_each_flipped_bit, golden_words};

const HEADER: EventHeader = EventHeader {
    run: RunNumber(42),
    trigger: TriggerNumber(0x1_0000_0007),
    triggered_at: RunNs(0x12_3456_789A),
    mask: L2Mask(0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6978),
    filter_reason: 7,
    streams: 5,
};

fn entry(source: u32, status: u32, words: &[u32]) -> FragmentEntry {
    FragmentEntry {
        source: SourceId(source),
        words: words.len() as u32,
        status: FragmentStatus(status),
        crc: crc32c(words),
    }
}

fn emit(
    header: &EventHeader,
    fragments: &[(FragmentEntry, Vec<u32>)],
    missing: &[u32],
) -> Vec<u32> {
    let entries: Vec<FragmentEntry> = fragments.iter().map(|(entry, _)| *entry).collect();
    let missing: Vec<SourceId> = missing.iter().copied().map(SourceId).collect();
    let mut words = Vec::new();
    header.emit(&entries, &missing, &mut words);
    assert_eq!(
        words.len(),
        EventHeader::words(entries.len(), missing.len())
    );
    words.extend(fragments.iter().flat_map(|(_, words)| words));
    words
}

#[test]
fn golden_event_is_emitted_and_read() {
    let golden = golden_words("event-v1.hex");
    let view = EventView::new_checked(&golden).unwrap();
    assert_eq!(view.header(), HEADER);
    assert!(EventView::is_incomplete(&view));
    let missing: Vec<u32> = view.missing().map(|source| source.0).collect();
    assert_eq!(missing, [0x01_0002, 0x01_0007]);
    assert_eq!(view.verify_fragments(), Ok(()));
    let fragments: Vec<_> = view
        .fragments()
        .map(|(e, words)| (e, words.to_vec()))
        .collect();
    for ((entry, words), (source, status)) in fragments.iter().zip([
        (0x01_0000, FragmentStatus::GOOD),
        (0x01_0001, FragmentStatus::LINK_DATA),
    ]) {
        let fragment = FragmentView::new_checked(words).unwrap();
        assert_eq!((entry.source, entry.status), (SourceId(source), status));
        assert_eq!(fragment.header().source, entry.source);
        assert_eq!(fragment.check().crc_all, entry.crc);
        assert_eq!(fragment.header().trigger_low, 7);
    }
    assert_eq!(fragments.len(), 2);
    assert_golden("event-v1.hex", &emit(&HEADER, &fragments, &missing));
}

#[test]
fn every_flipped_bit_of_the_golden_event_is_noticed() {
    for_each_flipped_bit(&golden_words("event-v1.hex"), |words, bit| {
        let noticed = match EventView::new_checked(words) {
            Ok(view) => view.verify_fragments().is_err(),
            Err(_) => true,
        };
        assert!(noticed, "word {} bit {}", bit / 32, bit % 32);
    });
}

#[test]
fn every_cut_is_noticed_and_words_behind_are_left_alone() {
    let golden = golden_words("event-v1.hex");
    for length in 0..golden.len() {
        assert!(
            EventView::new_checked(&golden[..length]).is_err(),
            "{length}"
        );
    }
    let mut longer = golden.clone();
    longer.extend([0xDEAD_BEEF; 3]);
    assert_eq!(
        EventView::new_checked(&longer).unwrap().words(),
        &golden[..]
    );
}

#[test]
fn errors_say_what_is_wrong() {
    let golden = golden_words("event-v1.hex");
    // With the header's CRC made right again where `seal` is.
    let with = |index: usize, value: u32, seal: bool| {
        let mut words = golden.clone();
        words[index] = value;
        if seal {
            words[26] = crc32c(&words[..26]);
        }
        match EventView::new_checked(&words) {
            Ok(view) => panic!("{:?}", view.header()),
            Err(error) => error,
        }
    };
    assert!(matches!(
        with(0, 1, true),
        EventError::Magic { found: 1, .. }
    ));
    let version = EventError::Magic {
        found: 2,
        expected: 1,
    };
    assert_eq!(with(1, 2 << 16 | 27, true), version);
    assert_eq!(with(1, 1 << 16 | 26, true), EventError::Length);
    assert_eq!(with(13, 3 << 16 | 2, true), EventError::Length);
    assert_eq!(with(2, golden[2] + 1, true), EventError::Length);
    assert_eq!(with(17, u32::MAX, true), EventError::Length);
    assert!(matches!(with(3, 43, false), EventError::HeaderCrc { .. }));

    let mut words = golden.clone();
    words[40] ^= 1;
    let error = EventView::new_checked(&words)
        .unwrap()
        .verify_fragments()
        .unwrap_err();
    assert_eq!(error.source_id, SourceId(0x01_0000));
    assert!(
        error
            .to_string()
            .starts_with("CRC of the fragment of source 0x010000 is 0x9ef01e85")
    );
}

#[test]
fn parts_of_an_event_are_its_fragments() {
    let golden = golden_words("event-v1.hex");
    let view = EventView::new_checked(&golden).unwrap();
    let access: &dyn EventAccess = &view;
    assert_eq!(
        (access.trigger(), access.mask()),
        (HEADER.trigger, HEADER.mask)
    );
    assert!(access.is_incomplete());
    assert_eq!(access.fragment_count(), 2);
    for (index, (entry, words)) in view.fragments().enumerate() {
        assert_eq!(access.entry(index), entry);
        let parts = access.parts(index);
        assert_eq!(parts.parts[..], [words]);
        assert_eq!(
            (parts.words(), parts.iter().left()),
            (words.len(), words.len())
        );
        assert_eq!(parts.iter().peek(), words.first().copied());
    }
    assert_eq!(FragmentParts::default().iter().peek(), None);
}

fn any_header() -> impl Strategy<Value = EventHeader> {
    any::<(u32, u64, u64, u128, u16, u16)>().prop_map(|f| EventHeader {
        run: RunNumber(f.0),
        trigger: TriggerNumber(f.1),
        triggered_at: RunNs(f.2),
        mask: L2Mask(f.3),
        filter_reason: f.4,
        streams: f.5,
    })
}

fn any_fragment() -> impl Strategy<Value = (FragmentEntry, Vec<u32>)> {
    let words = prop::collection::vec(any::<u32>(), 0..30);
    (any::<(u32, u32)>(), words)
        .prop_map(|((source, status), words)| (entry(source, status, &words), words))
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_back(
        header in any_header(),
        fragments in prop::collection::vec(any_fragment(), 0..10),
        missing in prop::collection::vec(any::<u32>(), 0..10),
    ) {
        let words = emit(&header, &fragments, &missing);
        let view = EventView::new_checked(&words).unwrap();
        prop_assert_eq!(view.header(), header);
        prop_assert_eq!(view.words(), &words[..]);
        prop_assert_eq!(EventView::is_incomplete(&view), !missing.is_empty());
        let read: Vec<_> = view.fragments().map(|(e, words)| (e, words.to_vec())).collect();
        prop_assert_eq!(read, fragments);
        let sources: Vec<u32> = view.missing().map(|source| source.0).collect();
        prop_assert_eq!(sources, missing);
        prop_assert_eq!(view.verify_fragments(), Ok(()));
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(any::<u32>(), 0..120),
        small in prop::collection::vec(0_u32..12, 0..120),
        fragments in 0_u32..6,
        missing in 0_u32..12,
    ) {
        for mut words in [words, small] {
            prop_assert!(EventView::new_checked(&words).is_err());
            let header = EventHeader::words(fragments as usize, missing as usize);
            if words.len() >= header {
                words[0] = 0x4C54_4556;
                words[1] = 1 << 16 | header as u32;
                words[13] = fragments << 16 | missing;
                let table = (0..fragments as usize).map(|i| u64::from(words[17 + 4 * i]));
                let total = header as u64 + table.sum::<u64>();
                words[2] = (total & 0xFFFF_FFFF) as u32;
                words[header - 1] = crc32c(&words[..header - 1]);
                match EventView::new_checked(&words) {
                    Ok(view) => {
                        prop_assert_eq!(view.words().len() as u64, total);
                        prop_assert_eq!(view.fragments().count(), fragments as usize);
                        prop_assert!(view.verify_fragments().is_ok() || fragments > 0);
                    }
                    Err(EventError::TooShort { .. }) => prop_assert!(total > words.len() as u64),
                    Err(EventError::Length) => prop_assert!(total > u64::from(u32::MAX)),
                    Err(error) => prop_assert!(false, "{}", error),
                }
            }
        }
    }
}
