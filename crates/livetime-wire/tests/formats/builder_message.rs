use arrayvec::ArrayVec;
use livetime_wire::message::{
    AcceptedEvent, BuilderMessage, Envelope, FRAGMENT_PAGES_MAX, FragmentDescriptor, Keep,
    MESSAGE_WORDS_MAX, MessageError, PhaseDemand, SIZES_MAX, TRIGGERS_MAX, TriggerList,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, RunNs, SourceId, TriggerNumber, UnitId, UnitKind};
use proptest::prelude::*;

use crate::golden::{assert_golden, golden_words};

const MASK: L2Mask = L2Mask(0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6978);
const TRIGGER: TriggerNumber = TriggerNumber(0x1_0000_0007);

pub(crate) fn descriptor(
    source: u32,
    pool: u16,
    words: u32,
    status: u32,
    crc: u32,
    pages: &[u32],
) -> FragmentDescriptor {
    FragmentDescriptor {
        source: SourceId(source),
        pool,
        words,
        status: FragmentStatus(status),
        crc,
        pages: pages.iter().copied().collect(),
    }
}

fn triggers(numbers: &[u64]) -> TriggerList {
    numbers.iter().copied().map(TriggerNumber).collect()
}

/// The messages of `builder-message-v1.hex`.
fn golden_messages() -> Vec<Envelope> {
    let triggered_at = RunNs(0x12_3456_789A);
    let filter = UnitId::filter(2);
    let messages = [
        (
            UnitId::SUPERVISOR,
            BuilderMessage::Decision {
                trigger: TRIGGER,
                keep: Keep::Build,
            },
        ),
        (
            UnitId::SUPERVISOR,
            BuilderMessage::Decision {
                trigger: TriggerNumber(8),
                keep: Keep::Drop,
            },
        ),
        (
            UnitId::SUPERVISOR,
            BuilderMessage::L2Accept {
                trigger: TRIGGER,
                mask: MASK,
                triggered_at,
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::EventRequest { credits: 8 },
        ),
        (
            UnitId::EVENT_MANAGER,
            BuilderMessage::Assignment {
                trigger: TRIGGER,
                mask: MASK,
                triggered_at,
                assigned_at: RunNs(0x12_3456_8000),
                builder_epoch: 2,
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::FragmentRequest {
                triggers: triggers(&[TRIGGER.0, TRIGGER.0 + 4]),
            },
        ),
        (
            UnitId::readout(1),
            BuilderMessage::FragmentData {
                trigger: TRIGGER,
                fragment: descriptor(0x01_0003, 1, 2500, 0x400, 0xDEAD_BEEF, &[17, 18, 0x1_0000]),
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::Release {
                triggers: triggers(&[TRIGGER.0]),
            },
        ),
        (
            UnitId::builder(UnitId::INDEX_MAX),
            BuilderMessage::Clear {
                triggers: triggers(&[]),
            },
        ),
        (
            filter,
            BuilderMessage::EventDone {
                triggers: triggers(&[1, 2, 3]),
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::ReleasePartial {
                trigger: TRIGGER,
                missing: 0b101,
            },
        ),
        (
            UnitId::EVENT_MANAGER,
            BuilderMessage::Push {
                builder: 1,
                builder_epoch: 2,
                triggers: triggers(&[TRIGGER.0]),
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::EventSize {
                sizes: [(TRIGGER, 1_048_576)].into_iter().collect(),
            },
        ),
        (UnitId::builder(1), BuilderMessage::Alive),
        (
            UnitId::EVENT_MANAGER,
            BuilderMessage::Recover {
                batch: 3,
                triggers: triggers(&[4, 5]),
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::Recovered {
                manager_epoch: 2,
                batch: 3,
                held: 0b01,
                closed: 0b10,
            },
        ),
        (
            filter,
            BuilderMessage::FetchRest {
                triggers: triggers(&[6]),
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::Event {
                trigger: TRIGGER,
                mask: MASK,
                triggered_at,
                assigned_at: RunNs(0x12_3456_7900),
                built_at: RunNs(0x12_3456_7A00),
                streams: 0x8000,
                fragments: 2,
            },
        ),
        (
            filter,
            BuilderMessage::EventsAccepted {
                events: [AcceptedEvent {
                    trigger: TRIGGER,
                    reason: 3,
                    streams: 0x8001,
                }]
                .into_iter()
                .collect(),
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::ClearAccepted {
                triggers: triggers(&[TRIGGER.0]),
            },
        ),
        (
            UnitId::readout(1),
            BuilderMessage::Through {
                phase: 0x1_0000_0014,
                demand: PhaseDemand::Waiting,
            },
        ),
        (
            UnitId::EVENT_MANAGER,
            BuilderMessage::Phase {
                phase: 0x1_0000_0015,
            },
        ),
        (
            UnitId::builder(1),
            BuilderMessage::Forgotten { trigger: TRIGGER },
        ),
    ];
    (0..)
        .zip(messages)
        .map(|(sequence, (sender, message))| Envelope {
            sender,
            epoch: 3,
            sequence,
            message,
        })
        .collect()
}

#[test]
fn golden_messages_are_emitted_and_read() {
    let messages = golden_messages();
    let words: Vec<u32> = messages.iter().flat_map(Envelope::to_words).collect();
    assert_golden("builder-message-v1.hex", &words);

    let golden = golden_words("builder-message-v1.hex");
    let mut rest = &golden[..];
    for message in &messages {
        // The messages behind it are the rest of a longer slot.
        assert_eq!(Envelope::parse(rest).as_ref(), Ok(message));
        rest = &rest[(rest[1] >> 16) as usize..];
    }
    assert_eq!(rest, []);
}

#[test]
fn errors_say_what_is_wrong() {
    let decision = golden_messages()[0].to_words();
    let with = |index: usize, value: u32| {
        let mut words = decision.to_vec();
        words[index] = value;
        Envelope::parse(&words).unwrap_err()
    };
    let first = decision[0];
    assert_eq!(with(0, 0), MessageError::Magic { found: 0 });
    assert_eq!(with(0, first + 1), MessageError::Magic { found: first + 1 });
    for kind in [0, 23, 255] {
        let error = with(0, first & !0xFF00 | u32::from(kind) << 8);
        assert_eq!(error, MessageError::Kind { kind });
    }
    assert_eq!(
        with(1, 7 << 16 | 0x8000),
        MessageError::Sender { code: 0x8000 }
    );
    assert_eq!(with(6, 2), MessageError::Value { value: 2 });
    let longer = MessageError::TooShort {
        words: 7,
        needed: 8,
    };
    assert_eq!(with(1, 8 << 16), longer);
    // A message that ends before its body does, or before its header.
    for words in 0..7 {
        assert!(
            matches!(with(1, words << 16), MessageError::TooShort { .. }),
            "{words}"
        );
    }
    // A body that goes on.
    let mut longer = decision.to_vec();
    longer.push(0);
    longer[1] = 8 << 16 | 0x2000;
    let error = MessageError::Count {
        count: 1,
        allowed: 0,
    };
    assert_eq!(Envelope::parse(&longer), Err(error));
}

#[test]
fn counts_above_their_limits_are_refused() {
    let words = |kind: u32, body: &[u32]| {
        let mut words = vec![0x4C42 << 16 | kind << 8 | 1, 0, 0, 0];
        words.extend_from_slice(body);
        words[1] = (words.len() as u32) << 16;
        words
    };
    let mut list = vec![TRIGGERS_MAX as u32 + 1];
    list.resize(1 + 2 * (TRIGGERS_MAX + 1), 7);
    for kind in [5, 7, 8, 9, 16, 19] {
        let error = MessageError::Count {
            count: TRIGGERS_MAX + 1,
            allowed: TRIGGERS_MAX,
        };
        assert_eq!(Envelope::parse(&words(kind, &list)), Err(error));
    }
    let mut sizes = vec![SIZES_MAX as u32 + 1];
    sizes.resize(1 + 3 * (SIZES_MAX + 1), 7);
    let error = MessageError::Count {
        count: SIZES_MAX + 1,
        allowed: SIZES_MAX,
    };
    for kind in [12, 18] {
        assert_eq!(Envelope::parse(&words(kind, &sizes)), Err(error));
    }
    let error = MessageError::Value { value: 2 };
    assert_eq!(Envelope::parse(&words(20, &[7, 0, 2])), Err(error));
    let error = MessageError::Value { value: 0x1_0000 };
    assert_eq!(Envelope::parse(&words(11, &[0x1_0000, 0, 0])), Err(error));
    let mut data = vec![0, 0, 1, 1, 0, 0, FRAGMENT_PAGES_MAX as u32 + 1];
    data.resize(7 + FRAGMENT_PAGES_MAX + 1, 7);
    let error = MessageError::Count {
        count: FRAGMENT_PAGES_MAX + 1,
        allowed: FRAGMENT_PAGES_MAX,
    };
    assert_eq!(Envelope::parse(&words(6, &data)), Err(error));
}

fn any_trigger() -> impl Strategy<Value = TriggerNumber> {
    any::<u64>().prop_map(TriggerNumber)
}

fn any_list() -> impl Strategy<Value = TriggerList> {
    prop::collection::vec(any_trigger(), 0..=TRIGGERS_MAX)
        .prop_map(|triggers| triggers.into_iter().collect())
}

pub(crate) fn any_descriptor() -> impl Strategy<Value = FragmentDescriptor> {
    let pages = prop::collection::vec(any::<u32>(), 0..=FRAGMENT_PAGES_MAX);
    (any::<(u32, u16, u32, u32, u32)>(), pages)
        .prop_map(|(f, pages)| descriptor(f.0, f.1, f.2, f.3, f.4, &pages))
}

fn any_message() -> impl Strategy<Value = BuilderMessage> {
    let accept = (any_trigger(), any::<(u128, u64)>());
    let assignment = (any_trigger(), any::<(u128, u64, u64, u32)>());
    prop_oneof![
        (any_trigger(), any::<bool>()).prop_map(|(trigger, keep)| BuilderMessage::Decision {
            trigger,
            keep: if keep { Keep::Build } else { Keep::Drop },
        }),
        accept.prop_map(|(trigger, (mask, at))| BuilderMessage::L2Accept {
            trigger,
            mask: L2Mask(mask),
            triggered_at: RunNs(at),
        }),
        any::<u32>().prop_map(|credits| BuilderMessage::EventRequest { credits }),
        assignment.prop_map(
            |(trigger, (mask, at, assigned, epoch))| BuilderMessage::Assignment {
                trigger,
                mask: L2Mask(mask),
                triggered_at: RunNs(at),
                assigned_at: RunNs(assigned),
                builder_epoch: epoch,
            }
        ),
        any_list().prop_map(|triggers| BuilderMessage::FragmentRequest { triggers }),
        (any_trigger(), any_descriptor())
            .prop_map(|(trigger, fragment)| BuilderMessage::FragmentData { trigger, fragment }),
        any_list().prop_map(|triggers| BuilderMessage::Release { triggers }),
        any_list().prop_map(|triggers| BuilderMessage::Clear { triggers }),
        any_list().prop_map(|triggers| BuilderMessage::ClearAccepted { triggers }),
        any_list().prop_map(|triggers| BuilderMessage::EventDone { triggers }),
        (any_trigger(), any::<u32>())
            .prop_map(|(trigger, missing)| BuilderMessage::ReleasePartial { trigger, missing }),
        (any::<(u16, u32)>(), any_list()).prop_map(|((builder, builder_epoch), triggers)| {
            BuilderMessage::Push {
                builder,
                builder_epoch,
                triggers,
            }
        }),
        prop::collection::vec((any_trigger(), any::<u32>()), 0..=SIZES_MAX).prop_map(|sizes| {
            BuilderMessage::EventSize {
                sizes: sizes.into_iter().collect(),
            }
        }),
        Just(BuilderMessage::Alive),
        (any::<u32>(), any_list())
            .prop_map(|(batch, triggers)| BuilderMessage::Recover { batch, triggers }),
        any::<(u32, u32, u32, u32)>().prop_map(|(manager_epoch, batch, held, closed)| {
            BuilderMessage::Recovered {
                manager_epoch,
                batch,
                held,
                closed,
            }
        }),
        any_list().prop_map(|triggers| BuilderMessage::FetchRest { triggers }),
        any::<(u64, bool)>().prop_map(|(phase, is_waiting)| BuilderMessage::Through {
            phase,
            demand: match is_waiting {
                true => PhaseDemand::Waiting,
                false => PhaseDemand::Idle,
            },
        }),
        any::<u64>().prop_map(|phase| BuilderMessage::Phase { phase }),
        any_trigger().prop_map(|trigger| BuilderMessage::Forgotten { trigger }),
        (any_trigger(), any::<(u128, u64, u64, u64, u16, u16)>()).prop_map(
            |(trigger, (mask, at, assigned, built, streams, fragments))| BuilderMessage::Event {
                trigger,
                mask: L2Mask(mask),
                triggered_at: RunNs(at),
                assigned_at: RunNs(assigned),
                built_at: RunNs(built),
                streams,
                fragments,
            }
        ),
        prop::collection::vec((any_trigger(), any::<(u16, u16)>()), 0..=SIZES_MAX).prop_map(
            |events| {
                let event = |(trigger, (reason, streams))| AcceptedEvent {
                    trigger,
                    reason,
                    streams,
                };
                BuilderMessage::EventsAccepted {
                    events: events.into_iter().map(event).collect(),
                }
            }
        ),
    ]
}

fn any_unit() -> impl Strategy<Value = UnitId> {
    let kind = proptest::sample::select(UnitKind::ALL.to_vec());
    (kind, 0..=UnitId::INDEX_MAX).prop_map(|(kind, index)| UnitId { kind, index })
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_back_whatever_follows(
        sender in any_unit(),
        epoch: u32,
        sequence: u32,
        message in any_message(),
        behind in prop::collection::vec(any::<u32>(), 0..5),
    ) {
        let envelope = Envelope { sender, epoch, sequence, message };
        let words = envelope.to_words();
        prop_assert!(words.len() <= MESSAGE_WORDS_MAX);
        let mut slot = words.to_vec();
        slot.extend(behind);
        prop_assert_eq!(Envelope::parse(&slot), Ok(envelope));
    }

    /// Every message cut short is refused, and so is one that says it is shorter.
    #[test]
    fn cut_messages_are_refused(message in any_message(), place: prop::sample::Index) {
        let envelope = Envelope { sender: UnitId::SUPERVISOR, epoch: 0, sequence: 0, message };
        let words = envelope.to_words();
        let length = place.index(words.len());
        prop_assert!(Envelope::parse(&words[..length]).is_err());
        let mut lying: ArrayVec<u32, MESSAGE_WORDS_MAX> = words.clone();
        lying[1] = (length as u32) << 16 | lying[1] & 0xFFFF;
        prop_assert!(Envelope::parse(&lying).is_err());
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(any::<u32>(), 0..80),
        small in prop::collection::vec(0_u32..40, 0..80),
        kind in 0_u32..19,
    ) {
        // Words of any value hardly ever pass the header, small ones pass for counts.
        for mut words in [words, small] {
            prop_assert!(Envelope::parse(&words).is_err());
            if words.len() >= 2 {
                words[0] = 0x4C42 << 16 | kind << 8 | 1;
                words[1] = (words.len() as u32) << 16 | words[1] & 0x7FFF;
                if let Ok(envelope) = Envelope::parse(&words) {
                    prop_assert_eq!(&envelope.to_words()[..], &words[..]);
                }
            }
        }
    }
}
