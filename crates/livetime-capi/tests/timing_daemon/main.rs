//! The timing daemon and its clients together, over its own socket and over a bus.
//!
//! Most tests run on a virtual clock, so that what is late and what is not does not depend on the
//! machine. They verify what reaches a client and what is refused; figures of speed are measured by
//! the bench `timing`. Buses are private ones, started here without any privilege.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod lease;
mod listening;
mod malformed_calls;
mod stage;

use livetime_client::{
    Address, ClientError, EventId, Filter, Listener, OverflowRule, RecordFlags, RecordKind,
    Subscription, SubscriptionOptions, TaiNs, TimingClient, TimingMessage, TimingRecord,
};
use livetime_timing_daemon::{AccessRules, Daemon, DaemonConfig};
use livetime_wire::timing_coefficient::{CoefficientSet, emit_block};

use crate::stage::{
    LONG, MASTER, RECEIVER, START, Stage, bus_stage, config, messages, stage, stage_with, uid,
};

/// What a client sees of a message in time, of one too late, and of one that nobody asked for.
fn records_of_conditions(stage: &Stage) {
    let client = stage.client();
    assert_eq!(client.role().unwrap(), "admin");
    assert_eq!(client.time().unwrap(), START);
    let sink = client.new_sink("mine").unwrap();
    let mut subscription = sink.subscribe(&SubscriptionOptions::default()).unwrap();
    let filter = Filter {
        offset_ns: 500,
        ..Filter::group(0x123)
    };
    let condition = sink.add(&filter).unwrap();
    assert!(condition.starts_with("/org/livetime/Timing1/tr0/mine/c"));
    client
        .inject(EventId(filter.id | 0xFF), 7, TaiNs(START.0 + 100_000))
        .unwrap();
    client
        .inject(
            EventId(Filter::group(0x124).id),
            8,
            TaiNs(START.0 + 100_000),
        )
        .unwrap();
    client
        .inject(EventId(filter.id), 9, TaiNs(START.0 - 1_000))
        .unwrap();
    assert_eq!(
        client.advance_clock(TaiNs(START.0 + 200_000)).unwrap(),
        TaiNs(START.0 + 200_000)
    );
    let records = messages(&mut subscription, 2);
    let late = &records[0];
    assert_eq!((late.param, late.flags.0), (9, RecordFlags::LATE));
    assert!(late.late_by_ns() > 0);
    let in_time = &records[1];
    assert_eq!((in_time.id, in_time.param), (filter.id | 0xFF, 7));
    assert_eq!(in_time.deadline, TaiNs(START.0 + 100_500));
    assert_eq!((in_time.executed, in_time.flags.0), (in_time.deadline, 0));
    assert_eq!((records[0].sequence, records[1].sequence), (0, 1));
    // Figures are given out again for 50 ms.
    let count = |name: &str| -> u64 { client.property(sink.path(), "ActionSink", name).unwrap() };
    while count("ActionCount") != 2 || count("LateCount") != 1 {
        std::thread::yield_now();
    }
    assert!(client.all_properties(sink.path(), "ActionSink").unwrap() >= 15);
    sink.destroy().unwrap();
    assert!(matches!(subscription.next(LONG), Err(ClientError::Gone)));
}

#[test]
fn records_reach_clients_over_the_socket() {
    records_of_conditions(&stage());
}

#[test]
fn records_reach_clients_over_a_bus() {
    if let Some(stage) = bus_stage() {
        records_of_conditions(&stage);
    }
}

#[test]
fn refusals_say_what_is_wrong_and_who_may() {
    let stage = stage_with(|config| {
        let rules = format!("user {} observe", uid());
        config.rules = AccessRules::parse(&rules).unwrap();
    });
    let client = stage.client();
    assert_eq!(client.role().unwrap(), "observe");
    let refused = client.inject(EventId(1), 2, START);
    assert!(
        matches!(&refused, Err(ClientError::Denied(text)) if text.contains("operate")),
        "{refused:?}"
    );
    assert!(matches!(client.quit(), Err(ClientError::Denied(_))));
    assert!(matches!(
        client.advance_clock(START),
        Err(ClientError::Denied(_))
    ));
    let sink = client.new_sink("mine").unwrap();
    let outside = sink.add(&Filter {
        id: 5,
        mask: 0,
        ..Filter::ALL
    });
    assert!(
        matches!(&outside, Err(ClientError::Refused(text)) if text.contains("mask")),
        "{outside:?}"
    );
    let far = sink.add(&Filter {
        offset_ns: i64::MAX,
        ..Filter::ALL
    });
    assert!(
        matches!(&far, Err(ClientError::Refused(text)) if text.contains("1000000000")),
        "{far:?}"
    );
    assert!(client.new_sink("mine").is_err(), "the name is taken");
    assert!(client.new_sink("_mine").is_err() && client.new_sink("a b").is_err());
    let options = SubscriptionOptions {
        slots: 3,
        ..SubscriptionOptions::default()
    };
    assert!(matches!(
        sink.subscribe(&options),
        Err(ClientError::Refused(_))
    ));
    // What another client owns is not ours to change.
    let other = stage.client();
    let path = sink.path().to_owned();
    let destroyed: Result<(), _> = other.call(&path, "Owned", "Destroy", &());
    assert!(matches!(destroyed, Err(ClientError::Denied(_))));
    let body = std::collections::HashMap::<String, zbus::OwnedVariant>::new();
    let foreign: Result<(zbus::OwnedFd, zbus::OwnedFd, u32, u32), _> =
        other.call(&path, "SoftwareActionSink", "Subscribe", &body);
    assert!(matches!(foreign, Err(ClientError::Denied(_))));
}

#[test]
fn users_without_a_role_are_turned_away() {
    let stage = stage_with(|config| config.rules = AccessRules::parse("others none").unwrap());
    let turned_away = TimingClient::connect(&stage.address);
    assert!(matches!(turned_away, Err(ClientError::TurnedAway { .. })));
    assert_eq!(stage.daemon.control().clients(), []);
}

#[test]
fn a_client_that_never_reads_costs_the_others_nothing_and_both_account_for_all() {
    const MESSAGES: u64 = 30_000;
    let stage = stage();
    let clients = [stage.client(), stage.client(), stage.client()];
    let rules = [
        OverflowRule::DropOldest,
        OverflowRule::DropNewest,
        OverflowRule::Disconnect,
    ];
    let mut subscriptions: Vec<Subscription> = clients
        .iter()
        .zip(rules)
        .map(|(client, rule)| {
            let sink = client.new_sink("").unwrap();
            sink.add(&Filter::ALL).unwrap();
            let options = SubscriptionOptions {
                slots: 16,
                rule,
                ..SubscriptionOptions::default()
            };
            sink.subscribe(&options).unwrap()
        })
        .collect();
    let reading = stage.client();
    let sink = reading.new_sink("").unwrap();
    sink.add(&Filter::ALL).unwrap();
    let options = SubscriptionOptions {
        slots: 65_536,
        ..SubscriptionOptions::default()
    };
    let mut reader = sink.subscribe(&options).unwrap();
    let injector = stage.daemon.injector();
    let mut now = START;
    for first in (0..MESSAGES).step_by(500) {
        // Time goes on with the messages, so that the channel's queue never fills.
        let message = |n| TimingMessage::new(EventId(n), n, TaiNs(now.0 + 10_000 + n - first));
        let batch: Vec<TimingMessage> = (first..first + 500).map(message).collect();
        assert_eq!(injector.inject(&batch), 500);
        now = reading.advance_clock(TaiNs(now.0 + 100_000)).unwrap();
    }
    let mut sum = 0;
    for n in 0..MESSAGES {
        let record = reader.next(LONG).unwrap().unwrap();
        assert_eq!((record.kind, record.sequence), (RecordKind::Message, n));
        sum += record.param;
    }
    assert_eq!(sum, MESSAGES * (MESSAGES - 1) / 2);
    for (subscription, rule) in subscriptions.iter_mut().zip(rules) {
        let (mut received, mut lost) = (0, 0);
        let end = loop {
            match subscription.try_next() {
                Ok(Some(record)) if record.kind == RecordKind::Gap => lost += record.id,
                Ok(Some(_)) => received += 1,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let offered = if rule == OverflowRule::Disconnect {
            17
        } else {
            MESSAGES
        };
        assert_eq!(received + lost, offered, "{rule:?}");
        assert_eq!(
            rule == OverflowRule::Disconnect,
            matches!(end, Some(ClientError::CutOff))
        );
    }
}

#[test]
fn changes_of_several_conditions_are_seen_whole_or_not_at_all() {
    let stage = stage();
    let client = stage.client();
    let sink = client.new_sink("s").unwrap();
    let mut subscription = sink.subscribe(&SubscriptionOptions::default()).unwrap();
    // Of two sets of two conditions one is active at any time: each message gives two records.
    let filter = Filter {
        accept_all: false,
        ..Filter::ALL
    };
    let with_offset = |offset_ns| Filter {
        offset_ns,
        ..filter
    };
    sink.add(&with_offset(0)).unwrap();
    sink.add(&with_offset(10)).unwrap();
    type NewCondition = (zbus::OwnedObjectPath, u64, u64, i64, u32, u8, bool);
    let path = zbus::OwnedObjectPath::try_from(sink.path().to_owned()).unwrap();
    let inactive = |offset| -> NewCondition { (path.clone(), 0, 0, offset, 0, 8, false) };
    let nothing: Vec<zbus::OwnedObjectPath> = Vec::new();
    let no_switch: Vec<(zbus::OwnedObjectPath, bool)> = Vec::new();
    let added: Vec<zbus::OwnedObjectPath> = client
        .call(
            RECEIVER,
            "TimingReceiver",
            "ApplyConditions",
            &(
                vec![inactive(20), inactive(30)],
                nothing.clone(),
                no_switch.clone(),
            ),
        )
        .unwrap();
    assert_eq!(added.len(), 2);
    for n in 0..50u64 {
        client
            .inject(EventId(n), n, TaiNs(START.0 + (n + 1) * 100_000))
            .unwrap();
        client
            .call::<_, ()>(sink.path(), "ActionSink", "ToggleActive", &())
            .unwrap();
    }
    client.advance_clock(TaiNs(START.0 + 10_000_000)).unwrap();
    let records = messages(&mut subscription, 100);
    for (n, pair) in (0u64..).zip(records.chunks(2)) {
        let offsets: Vec<u64> = pair
            .iter()
            .map(|r| r.deadline.0 - START.0 - (n + 1) * 100_000)
            .collect();
        let expected = if n % 2 == 0 { [0, 10] } else { [20, 30] };
        assert_eq!((pair[0].param, pair[1].param), (n, n));
        assert_eq!(offsets, expected, "message {n}");
    }
    // One bad change, and none is made.
    let before = client.status().unwrap().matches("\"condition\":").count();
    let bad: NewCondition = (path.clone(), 1, 0, 0, 0, 8, true);
    let refused: Result<Vec<zbus::OwnedObjectPath>, _> = client.call(
        RECEIVER,
        "TimingReceiver",
        "ApplyConditions",
        &(vec![inactive(40), bad], nothing, no_switch),
    );
    assert!(matches!(refused, Err(ClientError::Refused(_))));
    assert_eq!(
        client.status().unwrap().matches("\"condition\":").count(),
        before
    );
}

#[test]
fn compatibility_modes_deliver_the_same_records() {
    let stage = stage();
    let client = stage.client();
    let sink = client.new_sink("s").unwrap();
    let options = SubscriptionOptions::default();
    let pipe = sink.subscribe_pipe(&options).unwrap();
    let signals = zbus::block_on(async {
        let rule = zbus::MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .member("Action")
            .build()
            .unwrap();
        zbus::MessageStream::for_match_rule(rule, client.connection(), std::num::NonZero::new(64))
            .await
    });
    sink.subscribe_signals(&options).unwrap();
    sink.add(&Filter::ALL).unwrap();
    client
        .inject(EventId(0x55), 66, TaiNs(START.0 + 50_000))
        .unwrap();
    client.advance_clock(TaiNs(START.0 + 100_000)).unwrap();
    let mut bytes = [0u8; 64];
    std::io::Read::read_exact(&mut std::fs::File::from(pipe), &mut bytes).unwrap();
    let mut words = [0u64; 8];
    for (word, place) in words.iter_mut().zip(bytes.chunks(8)) {
        *word = u64::from_le_bytes(place.try_into().unwrap());
    }
    let record = TimingRecord::new_checked(&words).unwrap();
    assert_eq!((record.id, record.param), (0x55, 66));
    let mut signals = signals.unwrap();
    let signal = zbus::block_on(std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(std::pin::Pin::new(&mut signals), context)
    }));
    let signal = signal.unwrap().unwrap();
    let body: (u64, u64, u64, u64, u16) = signal.body().deserialize().unwrap();
    assert_eq!((body.0, body.1, body.2), (0x55, 66, START.0 + 50_000));
}

#[test]
fn nothing_stays_of_clients_that_come_and_go() {
    let stage = stage();
    let control = stage.daemon.control();
    let objects = || control.read(|r| (r.sinks().count(), r.conditions().count()));
    let before = objects();
    for _ in 0..40 {
        let client = stage.client();
        let sink = client.new_sink("").unwrap();
        sink.add(&Filter::ALL).unwrap();
        let _subscription = sink.subscribe(&SubscriptionOptions::default()).unwrap();
        assert_eq!(control.clients().len(), 1);
        drop(client);
        while !control.clients().is_empty() || stage.daemon.connections() > 0 {
            std::thread::yield_now();
        }
        assert_eq!((objects(), control.subscriptions().len()), (before, 0));
    }
}

#[test]
fn listeners_find_the_daemon_again_with_one_epoch_gap() {
    let stage = stage();
    let Address::Socket(socket) = stage.address.clone() else {
        panic!("a socket was asked for")
    };
    let options = SubscriptionOptions::default();
    let mut listener = Listener::start(&stage.address, &[Filter::ALL], &options).unwrap();
    let first = listener.client().unwrap().epoch().unwrap();
    let Stage { daemon, folder, .. } = stage;
    drop(daemon);
    let mut config = config(socket.clone());
    config.epoch = first + 1;
    let daemon = Daemon::start(&config).unwrap();
    let record = listener.next(LONG).unwrap().unwrap();
    assert_eq!(
        (record.kind, record.epoch),
        (RecordKind::Restart, first + 1)
    );
    let message = TimingMessage::new(EventId(3), 4, TaiNs(START.0 + 50_000));
    daemon.injector().inject(&[message]);
    let client = listener.client().unwrap();
    client.advance_clock(TaiNs(START.0 + 60_000)).unwrap();
    let record = listener.next(LONG).unwrap().unwrap();
    assert_eq!((record.param, record.epoch), (4, first + 1));
    assert_eq!(listener.restarts(), 1);
    drop(daemon);
    drop(folder);
}

/// What nobody owns outlives the daemon, what a client owns does not.
#[test]
fn disowned_conditions_outlive_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, file) = (
        folder.path().join("t.sock"),
        folder.path().join("kept.json"),
    );
    let mut config = config(socket.clone());
    config.state_file = Some(file.clone());
    let address = Address::Socket(socket);
    let daemon = Daemon::start(&config).unwrap();
    let second = DaemonConfig {
        socket: Some(folder.path().join("second.sock")),
        ..config.clone()
    };
    let refused = Daemon::start(&second).unwrap_err().to_string();
    assert!(refused.contains("is kept by another daemon"), "{refused}");
    let client = TimingClient::connect(&address).unwrap();
    let output = format!("{RECEIVER}/IO1");
    let add = |client: &TimingClient, id: u64| -> zbus::OwnedObjectPath {
        let body = (true, id, u64::MAX, 5i64, 2u32);
        client
            .call(&output, "OutputActionSink", "NewTagCondition", &body)
            .unwrap()
    };
    let kept = add(&client, 0x10);
    client
        .call::<_, ()>(kept.as_str(), "Owned", "Disown", &())
        .unwrap();
    add(&client, 0x20);
    let sink = client.new_sink("stays").unwrap();
    let filter = Filter {
        id: 0x30,
        mask: 0xF0,
        ..Filter::ALL
    };
    let path = sink.add(&filter).unwrap();
    for path in [path.as_str(), sink.path()] {
        client.call::<_, ()>(path, "Owned", "Disown", &()).unwrap();
    }
    let conditions = |daemon: &Daemon| -> Vec<(String, u64, u64, i64, u8)> {
        daemon.control().read(|registry| {
            let conditions = registry.conditions().map(|condition| {
                let sink = registry.sink(condition.spec.sink).unwrap();
                let (id, mask) = condition.spec.filter.id_and_mask();
                let accept = condition.spec.accept.to_bits();
                let offset = condition.spec.offset_ns;
                (sink.spec.name.clone(), id.0, mask, offset, accept)
            });
            let mut all: Vec<_> = conditions.collect();
            all.sort();
            all
        })
    };
    // Beyond the usual bounds, which are then narrowed again: what is there stays.
    let bound = |max: i64| {
        let value = zbus::Variant::from(max);
        client.set_property(&output, "ActionSink", "MaxOffset", value)
    };
    bound(3_000_000_000).unwrap();
    let body = (true, 0x40u64, u64::MAX, 2_000_000_000i64, 2u32);
    let far: zbus::OwnedObjectPath = client
        .call(&output, "OutputActionSink", "NewTagCondition", &body)
        .unwrap();
    client.disown(far.as_str()).unwrap();
    bound(1_500_000_000).unwrap();
    let mut before = conditions(&daemon);
    assert_eq!(before.len(), 4);
    before.retain(|condition| condition.1 != 0x20);
    drop((client, daemon));
    let daemon = Daemon::start(&config).unwrap();
    assert_eq!(conditions(&daemon), before);
    let restored: i64 = TimingClient::connect(&address)
        .unwrap()
        .property(&output, "ActionSink", "MaxOffset")
        .unwrap();
    assert_eq!(restored, 1_500_000_000);
    // Still nobody's: any client may take it away, and then it is gone for good.
    let client = TimingClient::connect(&address).unwrap();
    let path = format!("{RECEIVER}/stays");
    client
        .call::<_, ()>(&path, "Owned", "Destroy", &())
        .unwrap();
    drop((client, daemon));
    let daemon = Daemon::start(&config).unwrap();
    assert_eq!(conditions(&daemon).len(), 2);
    drop(daemon);
    // What does not fit is refused with its place, and never half restored.
    let text = std::fs::read_to_string(&file).unwrap();
    for (from, to, said) in [
        ("IO1", "IO9", "is of sink IO9, which this receiver"),
        (
            "timing_kept/1",
            "timing_kept/9",
            "expected livetime.timing_kept/1",
        ),
        ("\"tag\"", "\"tug\"", "condition 0 has no usable `tag`"),
        ("{", "", "state file"),
        (
            "1500000000",
            "-1500000000",
            "leave no room; correct it, or move it away",
        ),
    ] {
        std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let error = Daemon::start(&config).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

/// The emulated receiver behind the daemon: edges of inputs, and faults of its clock.
#[test]
fn edges_of_an_input_reach_clients_as_records() {
    let stage = stage();
    let client = stage.client();
    let input = format!("{RECEIVER}/IN2");
    let set = |name: &str, value: zbus::Variant<'_>| {
        client.set_property(&input, "InputEventSource", name, value)
    };
    let refused = set("StableTime", 20u32.into()).unwrap_err();
    assert!(
        refused.to_string().contains("multiple of 8 ns"),
        "{refused}"
    );
    let refused = set("EventPrefix", 0xFF01u64.into()).unwrap_err();
    assert!(refused.to_string().contains("lowest bit"), "{refused}");
    set("StableTime", 24u32.into()).unwrap();
    set("EventPrefix", 0xFF00u64.into()).unwrap();
    set("EventEnable", true.into()).unwrap();
    let sink = client.new_sink("edges").unwrap();
    let filter = Filter {
        id: 0xFF00,
        mask: u64::MAX - 1,
        offset_ns: 10_000,
        ..Filter::ALL
    };
    sink.add(&filter).unwrap();
    let mut records = sink.subscribe(&SubscriptionOptions::default()).unwrap();
    // A glitch of 16 ns between two edges.
    for (at, level) in [(1_000, true), (5_000, false), (5_016, true), (9_000, false)] {
        client.advance_clock(TaiNs(START.0 + at)).unwrap();
        let call = (level,);
        client
            .call::<_, ()>(&input, "InputEventSource", "SetLevel", &call)
            .unwrap();
    }
    client.advance_clock(TaiNs(START.0 + 50_000)).unwrap();
    let seen: Vec<(u64, u64)> = messages(&mut records, 2)
        .iter()
        .map(|record| (record.id, record.deadline.0 - START.0))
        .collect();
    assert_eq!(seen, [(0xFF01, 11_000), (0xFF00, 19_000)]);
    let edges: u64 = client
        .property(&input, "InputEventSource", "EdgeCount")
        .unwrap();
    let glitches: u64 = client
        .property(&input, "InputEventSource", "GlitchCount")
        .unwrap();
    assert_eq!((edges, glitches), (2, 1));
}

#[test]
fn faults_of_the_clock_are_seen_in_lock_times_and_flags() {
    let stage = stage();
    let client = stage.client();
    let fault = |kind: &str, value: i64| {
        client.call::<_, ()>(
            RECEIVER,
            "TimingReceiver",
            "InjectClockFault",
            &(kind, value),
        )
    };
    let state = || client.property::<String>(RECEIVER, "TimingReceiver", "LockState");
    let offset = || client.property::<i64>(RECEIVER, "TimingReceiver", "ClockOffset");
    let sink = client.new_sink("flags").unwrap();
    sink.add(&Filter::ALL).unwrap();
    let mut records = sink.subscribe(&SubscriptionOptions::default()).unwrap();
    assert_eq!(client.time().unwrap(), START);
    // Fast by 100 ppm, felt once the network is lost.
    fault("drift", 100_000).unwrap();
    assert_eq!((state().unwrap(), offset().unwrap()), ("locked".into(), 0));
    fault("lost", 0).unwrap();
    // What is given and answered is the receiver's time.
    let shown = TaiNs(START.0 + 1_000_100_000);
    assert_eq!(client.advance_clock(shown).unwrap(), shown);
    let past = client.advance_clock(TaiNs(shown.0 - 1)).unwrap_err();
    assert!(past.to_string().contains("which is past"), "{past}");
    assert_eq!(
        (state().unwrap(), offset().unwrap()),
        ("holdover".into(), 100_000)
    );
    assert!(
        client.time().is_err(),
        "no time is given out while not locked"
    );
    let now = client.raw_time().unwrap();
    assert_eq!(now.0, START.0 + 1_000_100_000);
    // In time by the machine, too late by the receiver.
    client.inject(EventId(1), 1, TaiNs(now.0 - 50_000)).unwrap();
    client.inject(EventId(1), 2, TaiNs(now.0 + 50_000)).unwrap();
    fault("step", 1_000_000).unwrap();
    client.inject(EventId(1), 3, TaiNs(now.0 + 50_000)).unwrap();
    fault("regained", 0).unwrap();
    assert_eq!((state().unwrap(), offset().unwrap()), ("locked".into(), 0));
    client
        .advance_clock(TaiNs(START.0 + 1_010_000_000))
        .unwrap();
    let mut seen: Vec<(u64, bool)> = messages(&mut records, 3)
        .iter()
        .map(|record| (record.param, record.flags.contains(RecordFlags::LATE)))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(1, true), (2, false), (3, true)]);
    let refused = fault("drift", 1 << 40).unwrap_err();
    assert!(refused.to_string().contains("parts in 10^9"), "{refused}");
    assert!(fault("stroke", 0).is_err());
}

/// A schedule that one step of a virtual clock passes over is executed in its own times, and a
/// flood of messages of the past does not keep others waiting.
#[test]
fn schedules_arrive_in_their_own_time() {
    let stage = stage();
    let client = stage.client();
    let sink = client.new_sink("all").unwrap();
    sink.add(&Filter::ALL).unwrap();
    let options = SubscriptionOptions {
        slots: 1 << 16,
        ..SubscriptionOptions::default()
    };
    let mut records = sink.subscribe(&options).unwrap();
    let all: Vec<TimingMessage> = (0..10_000u64)
        .map(|n| TimingMessage::new(EventId(n), n, TaiNs(START.0 + 2_000_000 + n * 1_000)))
        .collect();
    client.play(&all, 1_000_000, 2, 20_000_000).unwrap();
    client
        .advance_clock(TaiNs(START.0 + 1_000_000_000))
        .unwrap();
    for (n, record) in (0u64..).zip(messages(&mut records, 20_000)) {
        let at = 2_000_000 + n % 10_000 * 1_000 + n / 10_000 * 20_000_000;
        assert_eq!(record.deadline.0 - START.0, at);
        assert_eq!(
            (record.executed, record.flags),
            (record.deadline, RecordFlags(0))
        );
        assert_eq!(record.match_lead_ns, 1_000_000);
    }
}

fn ramp(segments: usize) -> Vec<CoefficientSet> {
    vec![
        CoefficientSet {
            frequency: 7,
            ..CoefficientSet::default()
        };
        segments
    ]
}

#[test]
fn generators_take_all_channels_or_none_and_stop_with_their_owner() {
    let stage = stage();
    let client = stage.client();
    let interface = "MasterFunctionGenerator";
    let states = |client: &TimingClient| -> Vec<String> {
        client.call(MASTER, interface, "ReadStates", &()).unwrap()
    };
    let good = ramp(20);
    let mut bad = ramp(20);
    bad[13].shift_a = 63;
    let mut channels: Vec<&[CoefficientSet]> = vec![&good; 12];
    channels[5] = &bad;
    let refused = client.append_block(&emit_block(&channels).unwrap(), false);
    assert!(
        matches!(&refused, Err(ClientError::Refused(text)) if text.contains('5') && text.contains("13")),
        "{refused:?}"
    );
    let fill: Vec<u64> = client
        .call(MASTER, interface, "ReadFillLevels", &())
        .unwrap();
    assert_eq!(fill, [0; 12], "nothing of the other channels stays");
    channels[5] = &good;
    client
        .call::<_, ()>(MASTER, interface, "SetStartTag", &9u32)
        .unwrap();
    client
        .append_block(&emit_block(&channels).unwrap(), true)
        .unwrap();
    let wait_for = |client: &TimingClient, wanted: &str| {
        let mut now = client.raw_time().unwrap();
        // Virtual time goes on until they are there; each look is a call, so the thread runs.
        for _ in 0..100_000 {
            if states(client).iter().all(|state| state == wanted) {
                return;
            }
            now = client.advance_clock(TaiNs(now.0 + 50_000)).unwrap();
        }
        panic!("never {wanted}: {:?}", states(client));
    };
    wait_for(&client, "armed");
    let bus = "/org/livetime/Timing1/tr0/bus1";
    let body = (true, 0x77u64, u64::MAX, 0i64, 9u32);
    let _: zbus::OwnedObjectPath = client
        .call(bus, "OutputActionSink", "NewTagCondition", &body)
        .unwrap();
    let now = client.raw_time().unwrap();
    client
        .inject(EventId(0x77), 0, TaiNs(now.0 + 100_000))
        .unwrap();
    wait_for(&client, "disabled");
    let executed: Vec<u64> = client
        .call(MASTER, interface, "ReadExecutedParameterCounts", &())
        .unwrap();
    assert_eq!(executed, [20; 12]);
    // Armed again at once; then the owner goes, and they are aborted.
    client
        .append_block(&emit_block(&channels).unwrap(), true)
        .unwrap();
    let other = stage.client();
    let foreign = other.append_block(&emit_block(&channels).unwrap(), false);
    assert!(
        matches!(foreign, Err(ClientError::Denied(_))),
        "{foreign:?}"
    );
    drop(client);
    wait_for(&other, "disabled");
    assert_eq!(
        other
            .property::<String>(MASTER, interface, "Owner")
            .unwrap(),
        ""
    );
}

/// The interfaces of every kind of object, as stock tools see them.
#[test]
fn introspection_is_what_the_page_says() {
    let stage = stage();
    let client = stage.client();
    let sink = client.new_sink("sink").unwrap();
    let condition = sink.add(&Filter::ALL).unwrap();
    let mut interfaces = std::collections::BTreeMap::<String, String>::new();
    let output = format!("{RECEIVER}/IO1");
    let body = (true, 0u64, 0u64, 0i64, 2u32);
    let switch: zbus::OwnedObjectPath = client
        .call(&output, "OutputActionSink", "NewTagCondition", &body)
        .unwrap();
    for path in [
        "/org/livetime/Timing1",
        RECEIVER,
        MASTER,
        sink.path(),
        &output,
        &condition,
        switch.as_str(),
        &format!("{RECEIVER}/IN1"),
    ] {
        let reply = zbus::block_on(client.connection().call_method(
            None::<&str>,
            path,
            Some("org.freedesktop.DBus.Introspectable"),
            "Introspect",
            &(),
        ))
        .unwrap();
        let text: String = reply.body().deserialize().unwrap();
        // Of the object itself; objects below it follow, indented further.
        let mut name = None;
        for line in text.lines() {
            if line.starts_with("  <interface name=\"org.livetime.") {
                name = line.split('"').nth(1).map(str::to_owned);
                interfaces.insert(name.clone().unwrap(), String::new());
            }
            if let Some(name) = &name {
                let text = interfaces.get_mut(name).unwrap();
                text.push_str(line.trim_end());
                text.push('\n');
            }
            if line.starts_with("  </interface>") {
                name = None;
            }
        }
    }
    assert_eq!(interfaces.len(), 11, "{:?}", interfaces.keys());
    let xml = format!(
        "<node>\n{}</node>\n",
        interfaces.into_values().collect::<String>()
    );
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/formats/timing-dbus-v1.xml"
    );
    if std::env::var_os("LIVETIME_WRITE_GOLDEN").is_some() {
        std::fs::write(page, &xml).unwrap();
    }
    let golden = std::fs::read_to_string(page).unwrap();
    assert!(
        golden == xml,
        "interfaces differ from {page}; look at the difference, then write it anew with \
         LIVETIME_WRITE_GOLDEN=1"
    );
}
