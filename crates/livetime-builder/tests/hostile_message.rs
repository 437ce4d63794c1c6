//! Any message from anyone at any time: no unit panics, exceeds a bound, or loses a credit.

use livetime_builder::{BuilderConfig, BuilderUnit, EventManager, Handled, ReadoutUnit};
use livetime_wire::message::{
    AcceptedEvent, BuilderMessage, Envelope, FragmentDescriptor, Keep, PhaseDemand, SIZES_MAX,
};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, RunNs, SourceId, TriggerNumber, UnitId, UnitKind};
use proptest::prelude::*;

fn trigger() -> impl Strategy<Value = TriggerNumber> {
    prop_oneof![8 => 0..24u64, 1 => 60..200u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
        .prop_map(TriggerNumber)
}

fn message() -> impl Strategy<Value = BuilderMessage> {
    let list = || {
        prop::collection::vec(trigger(), 0..6).prop_map(|triggers| {
            triggers
                .into_iter()
                .collect::<livetime_wire::message::TriggerList>()
        })
    };
    let time = || any::<u64>().prop_map(RunNs);
    prop_oneof![
        (trigger(), any::<bool>()).prop_map(|(trigger, keep)| BuilderMessage::Decision {
            trigger,
            keep: if keep { Keep::Build } else { Keep::Drop },
        }),
        (trigger(), time()).prop_map(|(trigger, triggered_at)| BuilderMessage::L2Accept {
            trigger,
            mask: L2Mask(1),
            triggered_at,
        }),
        (0..9u32).prop_map(|credits| BuilderMessage::EventRequest { credits }),
        (trigger(), time(), time()).prop_map(|(trigger, triggered_at, assigned_at)| {
            BuilderMessage::Assignment {
                trigger,
                mask: L2Mask(1),
                triggered_at,
                assigned_at,
                builder_epoch: 7,
            }
        }),
        list().prop_map(|triggers| BuilderMessage::FragmentRequest { triggers }),
        (trigger(), 0..6u32).prop_map(|(trigger, source)| BuilderMessage::FragmentData {
            trigger,
            fragment: FragmentDescriptor {
                source: SourceId(source),
                pool: 9,
                words: u32::MAX,
                status: FragmentStatus(u32::MAX),
                crc: 0,
                pages: [u32::MAX].into_iter().collect(),
            },
        }),
        list().prop_map(|triggers| BuilderMessage::Release { triggers }),
        (trigger(), any::<u32>())
            .prop_map(|(trigger, missing)| BuilderMessage::ReleasePartial { trigger, missing }),
        list().prop_map(|triggers| BuilderMessage::Clear { triggers }),
        list().prop_map(|triggers| BuilderMessage::ClearAccepted { triggers }),
        list().prop_map(|triggers| BuilderMessage::EventDone { triggers }),
        any::<u64>().prop_map(|phase| BuilderMessage::Phase { phase }),
        trigger().prop_map(|trigger| BuilderMessage::Forgotten { trigger }),
        any::<u64>().prop_map(|phase| BuilderMessage::Through {
            phase,
            demand: PhaseDemand::Waiting,
        }),
        list().prop_map(|triggers| BuilderMessage::EventsAccepted {
            events: (triggers.into_iter().take(SIZES_MAX))
                .map(|trigger| AcceptedEvent {
                    trigger,
                    reason: 1,
                    streams: 1,
                })
                .collect(),
        }),
    ]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let sender = (prop::sample::select(&UnitKind::ALL[..]), 0..3u16)
        .prop_map(|(kind, index)| UnitId { kind, index });
    (
        sender,
        0..2u32,
        prop_oneof![0..64u32, any::<u32>()],
        message(),
    )
        .prop_map(|(sender, epoch, sequence, message)| Envelope {
            sender,
            epoch: u32::from(epoch == 1) * 7,
            sequence,
            message,
        })
}

/// What the driver does beside handing in messages.
#[derive(Debug, Clone)]
enum Step {
    Message(Box<Envelope>),
    Fragment(TriggerNumber, u32),
    Poll,
    Write(bool),
    Written(TriggerNumber),
    WriterBack,
    Time(u64),
    FilterLost(u16),
    FilterBack(u16),
    Abort,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        200 => envelope().prop_map(|envelope| Step::Message(Box::new(envelope))),
        40 => (trigger(), 0..6u32).prop_map(|(trigger, source)| Step::Fragment(trigger, source)),
        30 => Just(Step::Poll),
        20 => any::<bool>().prop_map(Step::Write),
        10 => trigger().prop_map(Step::Written),
        2 => Just(Step::WriterBack),
        20 => (0..400_000_000u64).prop_map(Step::Time),
        3 => (0..3u16).prop_map(Step::FilterLost),
        3 => (0..3u16).prop_map(Step::FilterBack),
        1 => Just(Step::Abort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_breaks_a_unit(steps in prop::collection::vec(step(), 1..300)) {
        let config = BuilderConfig {
            readout_units: vec![vec![SourceId(1), SourceId(3)], vec![SourceId(2)]],
            credits: 3,
            requests_per_message: 2,
            evm_queue: 4,
            filter_in_flight: 2,
            history: 128,
            trigger_window: 74,
            ..BuilderConfig::default()
        };
        prop_assert_eq!(config.validate("builder"), []);
        let mut evm = EventManager::new(&config, 7);
        let mut builder = BuilderUnit::new(&config, 1, 7);
        let mut readout = ReadoutUnit::new(&config, 0, 7);
        let mut ticket = builder.empty_ticket();
        let mut now = RunNs(0);
        for step in steps {
            match step {
                Step::Message(envelope) => {
                    let handled = evm.handle_message(now, &envelope);
                    prop_assert!(handled != Handled::Busy || evm.queued() == 4);
                    prop_assert_ne!(builder.handle_message(now, &envelope), Handled::Busy);
                    prop_assert_ne!(readout.handle_message(now, &envelope), Handled::Busy);
                }
                Step::Fragment(trigger, source) => {
                    let _ = readout.handle_fragment(now, trigger, SourceId(source));
                }
                Step::Poll => {
                    while evm.poll_output(now).is_some() {}
                    while builder.poll_output(now).is_some() {}
                    while readout.poll_output().is_some() {}
                    while builder.poll_ticket(&mut ticket).is_some() {
                        prop_assert_eq!(ticket.fragments.len() + ticket.missing.len(), 3);
                    }
                }
                Step::Write(answers) => {
                    while builder.poll_accepted(&mut ticket) {
                        prop_assert_eq!(ticket.streams, 1);
                        if answers {
                            builder.handle_written(ticket.trigger);
                        }
                    }
                }
                Step::Written(trigger) => builder.handle_written(trigger),
                Step::WriterBack => builder.handle_writer_back(),
                Step::Time(passed) => {
                    now.0 += passed;
                    evm.handle_timeout(now);
                    builder.handle_timeout(now);
                    readout.handle_timeout(now);
                }
                Step::FilterLost(filter) => builder.handle_filter_lost(filter),
                Step::FilterBack(filter) => builder.handle_filter_back(filter),
                Step::Abort => {
                    evm.abort();
                    builder.abort();
                    readout.abort();
                }
            }
            prop_assert!(evm.credits_conserved());
            prop_assert!(evm.queued() <= 4);
            prop_assert!(builder.events_held() <= 3);
            prop_assert!(readout.triggers_held() <= 74);
        }
        evm.close();
        builder.close();
        readout.close();
        while builder.poll_output(now).is_some() {}
        while readout.poll_output().is_some() {}
        prop_assert!(evm.is_idle() && builder.is_idle() && readout.is_idle());
    }
}
