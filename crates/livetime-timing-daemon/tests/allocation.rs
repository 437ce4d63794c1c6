//! The timing core allocates nothing after its start: messages in, records out, by counting calls
//! of the allocator.
//!
//! The worker is turned by hand on a virtual clock, with clients that read, sleep and do not read,
//! of all classes. Not looked at: control, which allocates.

use std::alloc::System;

use livetime_shm::{Found, OverflowRule, RecordReader};
use livetime_timing::{
    Caller, Change, ClientId, ConditionSpec, FlagSet, IdFilter, Registry, RegistryConfig, Role,
    SchedulePlayer, SinkKind, SinkSpec,
};
use livetime_timing_daemon::core_handle::Core;
use livetime_timing_daemon::{
    CoreCommand, CoreConfig, Routing, Subscription, SubscriptionConfig, TaiClock,
};
use livetime_wire::{DurationNs, EventId, PriorityClass, TaiNs, TimingMessage};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const START: u64 = 1_000_000_000;
/// Windows of 500 turns each; one that allocates would do so in all of them.
const WINDOWS: u64 = 8;

#[test]
fn messages_and_records_cost_no_allocation() {
    let clock = TaiClock::standing_at(TaiNs(START));
    let mut core = Core::new(&CoreConfig::default(), clock.clone()).unwrap();
    let admin = Caller {
        client: ClientId(1),
        role: Role::Admin,
    };
    let mut registry = Registry::new(RegistryConfig::default()).unwrap();
    let mut changes = Vec::new();
    let sinks = [SinkKind::Software, SinkKind::Output, SinkKind::BusTag].map(|kind| {
        let sink = registry
            .create_sink(&admin, SinkSpec::new(kind, kind.key()))
            .unwrap();
        changes.push(Change::Add(ConditionSpec {
            accept: FlagSet::ALL,
            ..ConditionSpec::new(sink, IdFilter::ALL, 2)
        }));
        sink
    });
    let applied = registry.apply(&admin, &changes).unwrap();
    core.handle
        .send(CoreCommand::Install(applied.table))
        .unwrap();
    let mut listeners = Vec::new();
    let mut readers = Vec::new();
    for (place, class) in (0u16..).zip(PriorityClass::ALL) {
        listeners.push((place, sinks[0].0, class));
        let config = SubscriptionConfig {
            slots: 64,
            class,
            rule: OverflowRule::DropOldest,
            ..SubscriptionConfig::default()
        };
        let (subscription, ends) = Subscription::ring(&config).unwrap();
        core.handle
            .send(CoreCommand::Exchange {
                place,
                subscription: Some(subscription),
                routing: Box::new(Routing::new(4, &listeners)),
            })
            .unwrap();
        let reader = RecordReader::open(ends.data.try_clone().unwrap()).unwrap();
        readers.push((reader, ends));
    }
    let messages: Vec<TimingMessage> = (0..1_000)
        .map(|n| TimingMessage::new(EventId(n), n, TaiNs(START + 50_000 + n * 10)))
        .collect();
    let (lead, period) = (DurationNs(10_000), DurationNs(10_000));
    let player = SchedulePlayer::of_messages(&messages, lead, 3, period).unwrap();
    core.handle.send(CoreCommand::Play(player)).unwrap();
    // Takes the commands, and whatever is made at the first use.
    while core.worker.turn() > 0 {}

    let injector = core.injector.clone();
    let mut records = 0u64;
    let mut quiet_windows = 0;
    for window in 0..WINDOWS {
        let region = Region::new(ALLOCATOR);
        for n in window * 500..(window + 1) * 500 {
            let now = START + n * 100;
            let message = TimingMessage::new(EventId(n), n, TaiNs(now + 5_000));
            assert_eq!(injector.inject(&[message]), 1);
            clock.advance_to(TaiNs(now));
            core.worker.turn();
            // The first client reads, the second sleeps again and again, the third does nothing.
            while let Found::Record(_) | Found::Lost { .. } = readers[0].0.poll() {
                records += 1;
            }
            readers[1].0.prepare_sleep();
        }
        let change = region.change();
        let calls = change.allocations + change.reallocations + change.deallocations;
        quiet_windows += u64::from(calls == 0);
    }
    assert!(records > 1_000, "{records}");
    // The test's own harness, on another thread, allocates a little at its start.
    assert!(quiet_windows >= WINDOWS - 2, "{quiet_windows} of {WINDOWS}");
}
