use livetime_wire::timing_message::{
    ChainParameter, EventIdFields, IdFormat, MESSAGE_BYTES, TimingMessageError,
};
use livetime_wire::{EventId, TaiNs, TimingMessage};
use proptest::prelude::*;

use crate::golden::{assert_golden, golden_words};

fn golden_messages() -> [TimingMessage; 2] {
    let current = EventIdFields {
        format: IdFormat::Current,
        group: 300,
        number: 0x101,
        flags: 0b1100,
        sequence: 0xABC,
        beam_process: 0x2AAA,
        reserved: 0b1_0011,
    };
    let old = EventIdFields {
        format: IdFormat::Old,
        group: 210,
        number: 255,
        flags: 0,
        sequence: 291,
        beam_process: 12_289,
        reserved: 682,
    };
    let chain = ChainParameter {
        chain: 0x2A_BCDE,
        time_stamp: 0x123_4567_89AB,
    };
    [
        TimingMessage {
            id: current.to_id().expect("its fields fit"),
            param: chain.to_param(),
            reserved: 0,
            tef: 0x8000_0001,
            time: TaiNs(1_700_000_037_000_000_123),
        },
        TimingMessage {
            id: old.to_id().expect("its fields fit"),
            param: 5,
            reserved: 0xDEAD_BEEF,
            tef: 0,
            time: TaiNs(1_400_000_035_999_999_999),
        },
    ]
}

#[test]
fn golden_messages_are_emitted_and_read() {
    let golden = golden_words("timing-message-v1.hex");
    let bytes: Vec<u8> = golden.iter().flat_map(|word| word.to_be_bytes()).collect();
    let messages = golden_messages();
    for (message, bytes) in messages.iter().zip(bytes.chunks(MESSAGE_BYTES)) {
        assert_eq!(message.to_bytes(), bytes);
        assert_eq!(TimingMessage::parse(bytes), Ok(*message));
    }
    let words: Vec<u32> = messages.iter().flat_map(TimingMessage::to_words).collect();
    assert_golden("timing-message-v1.hex", &words);
    let fields = messages[0].id.fields().unwrap();
    assert!(fields.is_beam_in() && fields.is_chain_start() && fields.is_without_beam());
    assert_eq!(fields.virtual_accelerator(), Some(3));
    assert_eq!(messages[1].id.fields().unwrap().virtual_accelerator(), None);
    let chain = ChainParameter::from_param(messages[0].param);
    assert_eq!(
        (chain.chain, chain.time_stamp),
        (0x2A_BCDE, 0x123_4567_89AB)
    );
}

#[test]
fn other_lengths_are_no_message() {
    for bytes in [0, 1, 31, 33, 64] {
        let error = TimingMessage::parse(&vec![0; bytes]).unwrap_err();
        assert_eq!(error, TimingMessageError { bytes });
    }
}

/// Each bit of each field alone, in both formats: it appears in its field and nowhere else.
#[test]
fn every_bit_of_an_id_belongs_to_one_field() {
    for format in 0..2u64 {
        for bit in 0..60 {
            let id = EventId((format << 60) | (1 << bit));
            let fields = id.fields().unwrap();
            assert_eq!(fields.to_id(), Ok(id), "format {format} bit {bit}");
            let set = [
                u32::from(fields.group),
                u32::from(fields.number),
                u32::from(fields.flags),
                u32::from(fields.sequence),
                u32::from(fields.beam_process),
                u32::from(fields.reserved),
            ];
            assert_eq!(set.iter().map(|f| f.count_ones()).sum::<u32>(), 1);
        }
    }
}

/// All values of each field, with the other fields at both ends.
#[test]
fn every_value_of_every_field_round_trips() {
    for format in [IdFormat::Old, IdFormat::Current] {
        let current = format == IdFormat::Current;
        let flags_max = if current { 15 } else { 0 };
        let reserved_max = if current { 63 } else { 1023 };
        for full in [false, true] {
            let end = |max: u16| if full { max } else { 0 };
            let base = EventIdFields {
                format,
                group: end(4095),
                number: end(4095),
                flags: end(flags_max) as u8,
                sequence: end(4095),
                beam_process: end(16_383),
                reserved: end(reserved_max),
            };
            let check = |fields: EventIdFields| {
                assert_eq!(fields.to_id().unwrap().fields(), Some(fields));
            };
            for value in 0..=16_383u16 {
                check(EventIdFields {
                    beam_process: value,
                    ..base
                });
                if value <= 4095 {
                    check(EventIdFields {
                        group: value,
                        ..base
                    });
                    check(EventIdFields {
                        number: value,
                        ..base
                    });
                    check(EventIdFields {
                        sequence: value,
                        ..base
                    });
                }
                if value <= reserved_max {
                    check(EventIdFields {
                        reserved: value,
                        ..base
                    });
                }
                if value <= flags_max {
                    check(EventIdFields {
                        flags: value as u8,
                        ..base
                    });
                }
            }
            let too_large = EventIdFields {
                reserved: reserved_max + 1,
                ..base
            };
            let error = too_large.to_id().unwrap_err().to_string();
            let expected = format!(
                "reserved of an event ID is {}, allowed is 0 to {reserved_max}",
                reserved_max + 1
            );
            assert_eq!(error, expected);
            let flags = EventIdFields {
                flags: flags_max as u8 + 1,
                ..base
            };
            assert_eq!(flags.to_id().unwrap_err().field, "flags");
        }
    }
}

#[test]
fn unknown_formats_stay_raw() {
    for format in 2..16u64 {
        let id = EventId((format << 60) | 0x123);
        assert_eq!(id.fields(), None);
        assert_eq!(u64::from(id.format_number()), format);
    }
}

#[test]
fn ids_are_read_from_hexadecimal_text() {
    let id = EventId(0x1fff_0000_0000_00a0);
    assert_eq!("0x1fff0000000000a0".parse(), Ok(id));
    assert_eq!("1FFF0000000000A0".parse(), Ok(id));
    assert_eq!(id.to_string(), "0x1fff0000000000a0");
    assert_eq!("0".parse(), Ok(EventId(0)));
    for wrong in ["", "0x", "+1", "-1", "0xg", "10000000000000000", "0x1 "] {
        let error = wrong.parse::<EventId>().unwrap_err();
        assert_eq!(error.found, wrong);
    }
}

proptest! {
    #[test]
    fn any_message_round_trips(words in any::<[u32; 8]>()) {
        let message = TimingMessage::from_words(&words);
        prop_assert_eq!(message.to_words(), words);
        prop_assert_eq!(TimingMessage::parse(&message.to_bytes()), Ok(message));
        if let Some(fields) = message.id.fields() {
            prop_assert_eq!(fields.to_id(), Ok(message.id));
        }
        let chain = ChainParameter::from_param(message.param);
        prop_assert_eq!(chain.to_param(), message.param);
    }
}
