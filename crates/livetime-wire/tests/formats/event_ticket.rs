use livetime_wire::message::{EventTicket, MessageError};
use livetime_wire::{L2Mask, RunNs, SourceId, TriggerNumber};
use proptest::prelude::*;

use crate::builder_message::{any_descriptor, descriptor};
use crate::golden::{assert_golden, golden_words};

/// The ticket of `event-ticket-v1.hex`.
fn golden_ticket() -> EventTicket {
    EventTicket {
        builder: 1,
        trigger: TriggerNumber(0x1_0000_0007),
        mask: L2Mask(0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6978),
        triggered_at: RunNs(0x12_3456_789A),
        assigned_at: RunNs(0x12_3456_8000),
        built_at: RunNs(0x12_3456_9000),
        filter_reason: 7,
        streams: 5,
        fragments: vec![
            descriptor(0x01_0000, 0, 512, 0, 0x1111_1111, &[1]),
            descriptor(0x01_0004, 1, 2500, 0x400, 0x2222_2222, &[7, 9, 0x1_0000]),
        ],
        missing: vec![SourceId(0x01_0001), SourceId(0x01_0006)],
    }
}

fn emit(ticket: &EventTicket) -> Vec<u32> {
    let mut words = vec![1, 2, 3];
    ticket.emit(&mut words);
    words
}

fn read(words: &[u32]) -> Result<EventTicket, MessageError> {
    // A ticket that was used before: nothing of it must show.
    let mut ticket = golden_ticket();
    ticket.read(words).map(|()| ticket)
}

#[test]
fn golden_ticket_is_emitted_and_read() {
    assert_eq!(
        read(&golden_words("event-ticket-v1.hex")),
        Ok(golden_ticket())
    );
    assert_golden("event-ticket-v1.hex", &emit(&golden_ticket()));
    let golden = golden_words("event-ticket-v1.hex");
    assert!(golden.len() <= EventTicket::words_max(4, 3));
}

#[test]
fn reading_reuses_the_storage() {
    let mut ticket = EventTicket::with_capacity(8);
    let words = emit(&golden_ticket());
    let storage = ticket.fragments.as_ptr();
    for _ in 0..3 {
        assert_eq!(ticket.read(&words), Ok(()));
        assert_eq!(ticket, golden_ticket());
    }
    assert_eq!(ticket.fragments.as_ptr(), storage);
}

#[test]
fn errors_say_what_is_wrong() {
    let golden = golden_words("event-ticket-v1.hex");
    let with = |index: usize, value: u32| {
        let mut words = golden.clone();
        words[index] = value;
        read(&words).unwrap_err()
    };
    assert!(matches!(
        read(&golden[..15]),
        Err(MessageError::TooShort { needed: 16, .. })
    ));
    assert!(matches!(
        read(&golden[..20]),
        Err(MessageError::TooShort { words: 20, .. })
    ));
    assert_eq!(
        with(0, 0x4C42_0020),
        MessageError::Magic { found: 0x4C42_0020 }
    );
    for (fragments, missing) in [(3, 2), (2, 3), (0xFFFF, 0xFFFF)] {
        let error = with(1, fragments << 16 | missing);
        assert!(matches!(
            error,
            MessageError::TooShort { .. } | MessageError::Count { .. }
        ));
    }
    let left_over = MessageError::Count {
        count: 1,
        allowed: 0,
    };
    assert_eq!(with(1, 2 << 16 | 1), left_over);
    let pages = MessageError::Count {
        count: 17,
        allowed: 16,
    };
    assert_eq!(with(20, 17), pages);
    for short in 0..16 {
        assert!(matches!(
            with(0, 0x4C54 << 16 | short),
            MessageError::TooShort { .. }
        ));
    }
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_back_whatever_follows(
        f: (u16, u64, u128, u64, u64, u64, u16, u16),
        fragments in prop::collection::vec(any_descriptor(), 0..20),
        missing in prop::collection::vec(any::<u32>(), 0..20),
        behind in prop::collection::vec(any::<u32>(), 0..5),
    ) {
        let ticket = EventTicket {
            builder: f.0,
            trigger: TriggerNumber(f.1),
            mask: L2Mask(f.2),
            triggered_at: RunNs(f.3),
            assigned_at: RunNs(f.4),
            built_at: RunNs(f.5),
            filter_reason: f.6,
            streams: f.7,
            fragments,
            missing: missing.into_iter().map(SourceId).collect(),
        };
        let mut words = emit(&ticket);
        let sources = ticket.fragments.len() + ticket.missing.len();
        prop_assert!(words.len() <= EventTicket::words_max(sources, 16));
        words.extend(behind);
        prop_assert_eq!(read(&words), Ok(ticket));
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(any::<u32>(), 0..80),
        small in prop::collection::vec(0_u32..20, 0..80),
        counts in (0_u32..6, 0_u32..40),
    ) {
        for mut words in [words, small] {
            prop_assert!(read(&words).is_err());
            if words.len() >= 2 {
                words[0] = 0x4C54 << 16 | words.len() as u32;
                words[1] = counts.0 << 16 | counts.1;
                if let Ok(ticket) = read(&words) {
                    prop_assert_eq!(ticket.fragments.len(), counts.0 as usize);
                    prop_assert_eq!(emit(&ticket).len(), words.len());
                }
            }
        }
    }
}
