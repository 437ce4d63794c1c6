//! The worker against its core: what is executed, told and counted.

use livetime_shm::{Found, RecordReader};
use livetime_timing::function_generator::{GeneratorConfig, MasterOutput};
use livetime_timing::{
    Caller, Change, ClientId, ConditionSpec, FlagSet, IdFilter, Registry, RegistryConfig, Role,
    SinkSpec,
};
use livetime_wire::timing_coefficient::emit_block;
use livetime_wire::{CoefficientSet, DurationNs, EventId, RecordKind, TimingRecord};

use super::*;
use crate::core_handle::{Core, CoreConfig};
use crate::generators::Generators;
use crate::subscription::SubscriptionConfig;

const ADMIN: Caller = Caller {
    client: ClientId(1),
    role: Role::Admin,
};

/// A table that asks for every message in a sink, and the sink.
fn table_of_all() -> (Box<MatchTable>, SinkId) {
    let mut registry = Registry::new(RegistryConfig::default()).unwrap();
    let spec = SinkSpec::new(SinkKind::Software, "all");
    let sink = registry.create_sink(&ADMIN, spec).unwrap();
    let filter = IdFilter::masked(EventId(0), 0).unwrap();
    let condition = ConditionSpec {
        accept: FlagSet::ALL,
        ..ConditionSpec::new(sink, filter, 0)
    };
    let applied = registry.apply(&ADMIN, &[Change::Add(condition)]).unwrap();
    (applied.table, sink)
}

/// On the machine's clock, where what is due is executed ahead and held back.
#[test]
fn nothing_is_delivered_before_its_deadline() {
    const COUNT: u64 = 200;
    let config = CoreConfig::default();
    let clock = TaiClock::machine();
    let core = Core::new(&config, clock.clone()).unwrap();
    let (table, sink) = table_of_all();
    let (subscription, ends) = Subscription::ring(&SubscriptionConfig::default()).unwrap();
    let listeners = [(0, sink.0, PriorityClass::Generic)];
    let mut handle = core.start(&config).unwrap().handle;
    handle.send(CoreCommand::Install(table)).unwrap();
    handle
        .send(CoreCommand::Exchange {
            place: 0,
            subscription: Some(subscription),
            routing: Box::new(Routing::new(usize::from(sink.0) + 1, &listeners)),
        })
        .unwrap();
    let start = clock.now().0 + 2_000_000;
    let message = |n| TimingMessage::new(EventId(n), n, TaiNs(start + n * 20_000));
    let messages: Vec<TimingMessage> = (0..COUNT).map(message).collect();
    let player = SchedulePlayer::of_messages(&messages, DurationNs(500_000), 1, DurationNs(0));
    handle.send(CoreCommand::Play(player.unwrap())).unwrap();
    let mut reader = RecordReader::open(ends.data).unwrap();
    let mut received = 0;
    while received < COUNT {
        let Found::Record(words) = reader.poll() else {
            std::thread::yield_now();
            continue;
        };
        let now = clock.now();
        let record = TimingRecord::new_checked(&words).unwrap();
        assert_eq!(record.deadline, messages[received as usize].time);
        assert!(
            record.executed >= record.deadline && now >= record.executed,
            "{record:?} at {now:?}"
        );
        received += 1;
    }
    handle.stop().unwrap();
}

/// What the queue has no place for: counted at both ends and for good, and told to nobody who
/// came later.
#[test]
fn what_finds_no_place_in_the_queue_is_a_gap_of_those_who_wait_for_it() {
    const SENT: u64 = 50;
    let mut config = CoreConfig::default();
    config.unit.queue = 16;
    let clock = TaiClock::standing_at(TaiNs(1_000_000_000));
    let mut core = Core::new(&config, clock).unwrap();
    let (table, sink) = table_of_all();
    core.handle.send(CoreCommand::Install(table)).unwrap();
    let listen = |core: &mut Core, place: u16| {
        let (subscription, ends) = Subscription::ring(&SubscriptionConfig::default()).unwrap();
        let listeners: Vec<_> = (0..=place)
            .map(|place| (place, sink.0, PriorityClass::ALL[usize::from(place) % 3]))
            .collect();
        let exchange = CoreCommand::Exchange {
            place,
            subscription: Some(subscription),
            routing: Box::new(Routing::new(usize::from(sink.0) + 1, &listeners)),
        };
        core.handle.send(exchange).unwrap();
        core.worker.turn();
        RecordReader::open(ends.data).unwrap()
    };
    let mut readers = vec![listen(&mut core, 0), listen(&mut core, 1)];
    let message = |n| TimingMessage::new(EventId(n), n, TaiNs(1_000_100_000 + n * 1_000));
    let messages: Vec<TimingMessage> = (0..SENT).map(message).collect();
    assert_eq!(core.injector.inject(&messages), messages.len());
    // Its command comes after all the messages.
    let mut late = listen(&mut core, 2);
    while core.worker.turn() > 0 {}
    core.injector.advance_to(TaiNs(1_001_000_000));
    while core.worker.turn() > 0 {}
    let told = |reader: &mut RecordReader| {
        let (mut received, mut lost, mut next) = (0, 0, 0);
        while let Found::Record(words) = reader.poll() {
            let record = TimingRecord::new_checked(&words).unwrap();
            assert_eq!(record.sequence, next);
            next += 1;
            match record.kind {
                RecordKind::Message => received += 1,
                _ => lost += record.id,
            }
        }
        assert_eq!(reader.poll(), Found::Nothing);
        (received, lost)
    };
    // A sink has half of the queue at most.
    for reader in &mut readers {
        assert_eq!(told(reader), (8, SENT - 8));
    }
    assert_eq!(told(&mut late), (8, 0), "it came when they were lost");
    let clear = CoreCommand::ClearSink(sink, SinkKind::Software);
    core.handle.send(clear).unwrap();
    let mut figures = CoreSnapshot::asking_for([(sink, SinkKind::Software)], 1024, 0, false);
    core.worker.turn();
    core.worker.fill_in(&mut figures);
    assert_eq!(
        (figures.sinks[0].1.overflow, figures.unqueued),
        (0, SENT - 8)
    );
}

/// Given far more lost actions than are told of in a turn, when the listeners change, then each turn is as
/// short as any, and whoever listened before is told of all that was lost before, and nobody else.
#[test]
fn a_change_of_listeners_waits_until_what_was_lost_is_told() {
    const CONDITIONS: u64 = 100;
    const SENT: u64 = MESSAGES_PER_TURN as u64;
    let mut config = CoreConfig::default();
    config.unit.queue = 16;
    let clock = TaiClock::standing_at(TaiNs(1_000_000_000));
    let mut core = Core::new(&config, clock).unwrap();
    let mut registry = Registry::new(RegistryConfig::default()).unwrap();
    let spec = SinkSpec::new(SinkKind::Software, "all");
    let sink = registry.create_sink(&ADMIN, spec).unwrap();
    let filter = IdFilter::masked(EventId(0), 0).unwrap();
    let condition = |tag| {
        Change::Add(ConditionSpec {
            accept: FlagSet::ALL,
            ..ConditionSpec::new(sink, filter, tag)
        })
    };
    let changes: Vec<Change> = (0..CONDITIONS as u32).map(condition).collect();
    let applied = registry.apply(&ADMIN, &changes).unwrap();
    core.handle
        .send(CoreCommand::Install(applied.table))
        .unwrap();
    let exchange = |place: u16| {
        let config = SubscriptionConfig {
            slots: 16_384,
            ..SubscriptionConfig::default()
        };
        let (subscription, ends) = Subscription::ring(&config).unwrap();
        let listeners: Vec<_> = (0..=place)
            .map(|place| (place, sink.0, PriorityClass::Generic))
            .collect();
        let command = CoreCommand::Exchange {
            place,
            subscription: Some(subscription),
            routing: Box::new(Routing::new(usize::from(sink.0) + 1, &listeners)),
        };
        (command, ends)
    };
    let (command, first) = exchange(0);
    core.handle.send(command).unwrap();
    core.worker.turn();
    let message = |n| TimingMessage::new(EventId(n), n, TaiNs(1_000_100_000 + n * 1_000));
    let messages: Vec<TimingMessage> = (0..SENT).map(message).collect();
    assert_eq!(core.injector.inject(&messages), messages.len());
    core.worker.turn();
    let (command, second) = exchange(1);
    core.handle.send(command).unwrap();
    let mut told = 0;
    while core.worker.turn() > 0 {
        let now = first.counters.unqueued();
        assert!(now - told <= UNQUEUED_PER_TURN, "{now} after {told}");
        told = now;
    }
    // A sink has half of the queue at most.
    assert_eq!(told, SENT * CONDITIONS - 8);
    assert_eq!(second.counters.unqueued(), 0);
    core.injector.advance_to(TaiNs(1_001_000_000));
    while core.worker.turn() > 0 {}
    let offered = [&first, &second].map(|ends| ends.counters.offered());
    assert_eq!(offered, [SENT * CONDITIONS, 8]);
}

#[test]
fn a_clock_that_is_set_back_is_not_waited_for() {
    let (first, until) = (TaiNs(3_600_000_000_000), TaiNs(3_600_000_001_500));
    for back_ns in [u64::MAX, 2_000, 200] {
        let mut looks = 0;
        let shown = wait_out(first, until, || {
            looks += 1;
            let ns = until.0 - 1_500 + looks * 100;
            match looks {
                1..10 => TaiNs(ns),
                10 => TaiNs(ns.saturating_sub(back_ns)),
                // A step that is shorter than the rest of the wait is nothing to see.
                _ => {
                    assert_eq!(back_ns, 200, "it is looked at again");
                    TaiNs(ns - back_ns)
                }
            }
        });
        match back_ns {
            200 => assert!(shown >= until),
            _ => assert!(shown < first && looks == 10),
        }
    }
    let no_look = || -> TaiNs { panic!("it is time already") };
    assert_eq!(wait_out(until, until, no_look), until);
}

/// Faults of the receiver's clock move the times of messages and actions, and not those of a waveform.
#[test]
fn a_start_tag_has_the_machines_time_whatever_the_receiver_believes() {
    const SET_NS: u64 = 125_000;
    let set = CoefficientSet {
        frequency: 7,
        ..CoefficientSet::default()
    };
    let block = emit_block(&[&[set; 3]]).unwrap();
    for step_ns in [0, 3_600_000_000_000, -1_000_000_000] {
        let start = TaiNs(10_000_000_000_000);
        let clock = TaiClock::standing_at(start);
        let core = Core::new(&CoreConfig::default(), clock.clone()).unwrap();
        let (mut worker, mut handle) = (core.worker, core.handle);
        let config = GeneratorConfig::default();
        let generators = Generators::new(1, config, core.tags, core.tag_bell, clock);
        let mut registry = Registry::new(RegistryConfig::default()).unwrap();
        let spec = SinkSpec::new(SinkKind::BusTag, "bus1");
        let sink = registry.add_fixed_sink(spec).unwrap();
        let filter = IdFilter::masked(EventId(0), 0).unwrap();
        let add = Change::Add(ConditionSpec::new(sink, filter, 7));
        let table = registry.apply(&ADMIN, &[add]).unwrap().table;
        handle.send(CoreCommand::Install(table)).unwrap();
        let fault = ClockFault::Step { ns: step_ns };
        handle.send(CoreCommand::Fault(start, fault)).unwrap();
        while worker.turn() > 0 {}
        generators.set_start_tag(&ADMIN, 7).unwrap();
        generators.append_and_arm(&ADMIN, &block).unwrap();
        let mut outputs = Vec::new();
        core.injector.advance_to(TaiNs(start.0 + 1_000_000));
        generators.turn(&mut |output| outputs.push(output));
        let due = TaiNs(start.0 + 2_000_000);
        let believed = TaiNs(due.0.strict_add_signed(step_ns));
        let message = TimingMessage::new(EventId(1), 0, believed);
        assert_eq!(core.injector.inject(&[message]), 1);
        while worker.turn() > 0 {}
        core.injector.advance_to(due);
        while worker.turn() > 0 {}
        core.injector.advance_to(TaiNs(start.0 + 1_000_000_000));
        generators.turn(&mut |output| outputs.push(output));
        outputs.retain(|output| !matches!(output, MasterOutput::Refill { .. }));
        let stopped = MasterOutput::AllStopped {
            time: TaiNs(due.0 + 3 * SET_NS),
            aborted: 0,
            underflow: 0,
        };
        assert_eq!(outputs, [MasterOutput::AllArmed, stopped], "{step_ns}");
        assert_eq!(generators.read(|members| members[0].executed()), 3);
    }
}

/// A core on a virtual clock, with a sink to which one client listens.
fn listened() -> (Core, Registry, SinkId, RecordReader) {
    let clock = TaiClock::standing_at(TaiNs(1_000_000_000));
    let mut core = Core::new(&CoreConfig::default(), clock).unwrap();
    let mut registry = Registry::new(RegistryConfig::default()).unwrap();
    let spec = SinkSpec::new(SinkKind::Software, "all");
    let sink = registry.create_sink(&ADMIN, spec).unwrap();
    let (subscription, ends) = Subscription::ring(&SubscriptionConfig::default()).unwrap();
    let listeners = [(0, sink.0, PriorityClass::Generic)];
    let exchange = CoreCommand::Exchange {
        place: 0,
        subscription: Some(subscription),
        routing: Box::new(Routing::new(usize::from(sink.0) + 1, &listeners)),
    };
    core.handle.send(exchange).unwrap();
    core.worker.turn();
    let reader = RecordReader::open(ends.data).unwrap();
    (core, registry, sink, reader)
}

fn next_record(reader: &mut RecordReader) -> Option<TimingRecord> {
    match reader.poll() {
        Found::Record(words) => Some(TimingRecord::new_checked(&words).unwrap()),
        _ => None,
    }
}

/// What waits of a condition that is removed is executed, and is told apart from what the next
/// condition in its slot asks for.
#[test]
fn records_name_the_condition_that_asked_for_them_and_not_its_successor() {
    let (mut core, mut registry, sink, mut reader) = listened();
    let mut conditions = Vec::new();
    for id in 1..=3 {
        if let Some(last) = conditions.last() {
            registry.apply(&ADMIN, &[Change::Remove(*last)]).unwrap();
        }
        let filter = IdFilter::leading(EventId(id), 64).unwrap();
        let add = Change::Add(ConditionSpec::new(sink, filter, 0));
        let applied = registry.apply(&ADMIN, &[add]).unwrap();
        conditions.extend(applied.added);
        let install = CoreCommand::Install(applied.table);
        core.handle.send(install).unwrap();
        let message = TimingMessage::new(EventId(id), 0, TaiNs(1_000_100_000 + id));
        assert_eq!(core.injector.inject(&[message]), 1);
        while core.worker.turn() > 0 {}
    }
    core.injector.advance_to(TaiNs(1_001_000_000));
    while core.worker.turn() > 0 {}
    for (id, condition) in (1..).zip(&conditions) {
        let record = next_record(&mut reader).unwrap();
        assert_eq!(condition.slot(), conditions[0].slot());
        assert_eq!(
            (record.id, record.condition),
            (id, condition_cookie(*condition))
        );
    }
    assert_eq!(next_record(&mut reader), None);
}

/// A client that goes, and one whose sink is in the same place and asks for something else.
#[test]
fn what_waits_for_a_sink_that_is_gone_is_told_to_nobody_and_counted() {
    let (mut core, mut registry, sink, mut reader) = listened();
    let filter = |id| IdFilter::leading(EventId(id), 64).unwrap();
    let message = |id| TimingMessage::new(EventId(id), 0, TaiNs(1_000_100_000 + id));
    let add = Change::Add(ConditionSpec::new(sink, filter(1), 0));
    let applied = registry.apply(&ADMIN, &[add]).unwrap();
    core.handle
        .send(CoreCommand::Install(applied.table))
        .unwrap();
    assert_eq!(core.injector.inject(&[message(1), message(1)]), 2);
    let table = registry.destroy_sink(&ADMIN, sink).unwrap();
    let spec = SinkSpec::new(SinkKind::Software, "next");
    assert_eq!(registry.create_sink(&ADMIN, spec).unwrap(), sink);
    let add = Change::Add(ConditionSpec::new(sink, filter(2), 0));
    let applied = registry.apply(&ADMIN, &[add]).unwrap();
    for command in [
        CoreCommand::Install(table),
        CoreCommand::ClearSink(sink, SinkKind::Software),
        CoreCommand::Install(applied.table),
    ] {
        core.handle.send(command).unwrap();
    }
    assert_eq!(core.injector.inject(&[message(2)]), 1);
    while core.worker.turn() > 0 {}
    core.injector.advance_to(TaiNs(1_001_000_000));
    while core.worker.turn() > 0 {}
    let told: Vec<u64> = std::iter::from_fn(|| next_record(&mut reader))
        .map(|record| record.id)
        .collect();
    assert_eq!(told, [2]);
    let mut figures = CoreSnapshot::asking_for([(sink, SinkKind::Software)], 1024, 0, false);
    core.worker.fill_in(&mut figures);
    let counters = figures.sinks[0].1;
    assert_eq!((counters.matched, counters.delivered), (1, 1));
    assert_eq!((figures.withdrawn, figures.fill), (2, [0; 4]));
}

/// However long before their times its messages are to be sent: not before it was asked for.
#[test]
fn a_schedule_of_the_past_is_executed_after_it_was_asked_for() {
    const NOW: u64 = 1_000_000_000;
    let (mut core, mut registry, sink, mut reader) = listened();
    let condition = ConditionSpec {
        accept: FlagSet::ALL,
        ..ConditionSpec::new(sink, IdFilter::ALL, 0)
    };
    let applied = registry.apply(&ADMIN, &[Change::Add(condition)]).unwrap();
    core.handle
        .send(CoreCommand::Install(applied.table))
        .unwrap();
    for lead in [1_000, NOW / 2, 1_000 * NOW] {
        let message = TimingMessage::new(EventId(lead), 0, TaiNs(NOW - 100_000_000));
        let player = SchedulePlayer::of_messages(&[message], DurationNs(lead), 1, DurationNs(0));
        core.handle
            .send(CoreCommand::Play(player.unwrap()))
            .unwrap();
    }
    core.worker.turn();
    core.injector.advance_to(TaiNs(2 * NOW));
    while core.worker.turn() > 0 {}
    let latency_ns = core.worker.receiver.actions().config().latency_ns;
    for _ in 0..3 {
        let record = next_record(&mut reader).unwrap();
        assert_eq!(record.executed, TaiNs(NOW + latency_ns));
        assert!(record.flags.contains(RecordFlags::LATE), "{record:?}");
    }
    assert_eq!(next_record(&mut reader), None);
}

/// What outputs and buses did is in the flight recorder as what programs were told, in the order
/// of execution.
#[test]
fn the_flight_recorder_has_the_actions_of_all_sinks() {
    let clock = TaiClock::standing_at(TaiNs(1_000_000_000));
    let mut core = Core::new(&CoreConfig::default(), clock.clone()).unwrap();
    let mut registry = Registry::new(RegistryConfig::default()).unwrap();
    let kinds = [SinkKind::Output, SinkKind::Software, SinkKind::BusTag];
    let changes = kinds.map(|kind| {
        let spec = SinkSpec::new(kind, kind.key());
        let sink = registry.create_sink(&ADMIN, spec).unwrap();
        let filter = IdFilter::leading(EventId(kind.channel() as u64), 64).unwrap();
        Change::Add(ConditionSpec::new(sink, filter, 2))
    });
    let applied = registry.apply(&ADMIN, &changes).unwrap();
    let install = CoreCommand::Install(applied.table);
    core.handle.send(install).unwrap();
    core.worker.turn();
    let ids = [3, 0, 1, 1, 0, 3, 0];
    let message = |(n, id): (u64, &u64)| {
        TimingMessage::new(EventId(*id), n, TaiNs(1_000_100_000 + n * 1_000))
    };
    let messages: Vec<_> = (0..).zip(&ids).map(message).collect();
    assert_eq!(core.injector.inject(&messages), ids.len());
    core.worker.turn();
    core.injector.advance_to(TaiNs(1_001_000_000));
    while core.worker.turn() > 0 {}
    let flight = core.handle.flight().unwrap();
    let flown: Vec<u64> = flight.iter().map(|record| record.id).collect();
    assert_eq!(flown, ids);
}
