//! Delivery to rings and pipes, the clients at the other end.

use livetime_shm::{Found, OverflowRule, RecordReader, RingClosed, WakeSource, WakeUp};
use livetime_wire::{RecordFlags, RecordKind, TimingRecord};

use super::*;
use crate::subscription::{Subscription, SubscriptionConfig, SubscriptionEnds};

fn action(sink: u16, id: u64) -> ExecutedAction {
    ExecutedAction {
        sink,
        condition: 7,
        id,
        param: 1,
        tef: 2,
        deadline: TaiNs(1_000),
        executed: TaiNs(1_100),
        matched: TaiNs(600),
        flags: RecordFlags(RecordFlags::LATE),
    }
}

fn subscribe(
    delivery: &mut Delivery,
    listeners: &mut Vec<(u16, u16, PriorityClass)>,
    sink: u16,
    config: &SubscriptionConfig,
) -> (RecordReader, SubscriptionEnds) {
    let place = listeners.len() as u16;
    listeners.push((place, sink, config.class));
    let (subscription, ends) = Subscription::ring(config).unwrap();
    let routing = Box::new(Routing::new(4, listeners));
    let (old, _) = delivery.exchange(place, Some(subscription), routing);
    assert!(old.is_none());
    let reader = RecordReader::open(ends.data.try_clone().unwrap()).unwrap();
    (reader, ends)
}

fn next(reader: &mut RecordReader) -> Option<TimingRecord> {
    match reader.poll() {
        Found::Record(words) => Some(TimingRecord::new_checked(&words).unwrap()),
        _ => None,
    }
}

#[test]
fn each_listener_of_the_sink_gets_the_record_with_its_times() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let mut listeners = Vec::new();
    let config = SubscriptionConfig {
        epoch: 3,
        ..SubscriptionConfig::default()
    };
    let (mut first, ends) = subscribe(&mut delivery, &mut listeners, 1, &config);
    let (mut second, _keep) = subscribe(&mut delivery, &mut listeners, 1, &config);
    let (mut other, _keep) = subscribe(&mut delivery, &mut listeners, 2, &config);
    delivery.deliver(&[action(1, 5)], &|| TaiNs(1_250));
    for reader in [&mut first, &mut second] {
        let record = next(reader).unwrap();
        assert_eq!((record.id, record.condition, record.tef), (5, 7, 2));
        assert_eq!((record.late_by_ns(), record.enqueue_delay_ns), (100, 150));
        assert_eq!((record.match_lead_ns, record.epoch), (500, 3));
        assert!(record.flags.contains(RecordFlags::LATE));
    }
    assert_eq!(next(&mut other), None);
    assert_eq!(ends.counters.offered(), 1);
    assert_eq!(
        ends.counters.latency()[7],
        1,
        "150 ns lie between 2^7 and 2^8"
    );
}

/// Whatever the rule and however small the ring: messages received and reported lost are what there
/// was, though gaps themselves find no room.
#[test]
fn actions_without_a_place_are_counted_right_even_where_their_gaps_are_lost() {
    for rule in [OverflowRule::DropOldest, OverflowRule::DropNewest] {
        for (unqueued, slots) in [(1, 64), (5, 2), (300, 8), (300, 1024)] {
            let mut delivery = Delivery::new(DeliveryConfig::default());
            let config = SubscriptionConfig {
                slots,
                rule,
                ..SubscriptionConfig::default()
            };
            let (mut reader, ends) = subscribe(&mut delivery, &mut Vec::new(), 1, &config);
            let now = || TaiNs(1_100);
            delivery.deliver(&[action(1, 1), action(1, 2)], &now);
            delivery.deliver_unqueued(1, unqueued, now());
            delivery.deliver_unqueued(2, 7, now());
            delivery.deliver(&[action(1, 3)], &now);
            let (mut received, mut lost) = (0, 0);
            loop {
                match reader.poll() {
                    Found::Record(words) => match TimingRecord::new_checked(&words).unwrap() {
                        record if record.kind == RecordKind::Gap => lost += record.id,
                        _ => received += 1,
                    },
                    Found::Lost { first, last } => lost += last - first + 1,
                    Found::Nothing | Found::Closed(_) => break,
                }
            }
            assert_eq!(received + lost, 3 + unqueued, "{rule:?} {slots}");
            assert!(lost >= unqueued);
            assert_eq!(ends.counters.unqueued(), unqueued);
            assert_eq!(ends.counters.offered(), 3 + unqueued);
        }
    }
}

#[test]
fn what_was_prepared_comes_once_in_order_and_as_if_it_was_not() {
    let of = |class, slots| SubscriptionConfig {
        class,
        slots,
        bound_ns: 50,
        ..SubscriptionConfig::default()
    };
    let configs = [
        of(PriorityClass::High, 8),
        of(PriorityClass::Generic, 8),
        // Full after two.
        of(PriorityClass::Generic, 2),
        of(PriorityClass::Idle, 8),
    ];
    let actions = [action(1, 5), action(2, 6), action(1, 7), action(1, 8)];
    // In time for class high, and too late for it.
    for (delay_ns, prepared) in [(50, true), (50, false), (51, true), (51, false)] {
        let mut delivery = Delivery::new(DeliveryConfig::default());
        let mut listeners = Vec::new();
        let mut ends = configs.map(|config| subscribe(&mut delivery, &mut listeners, 1, &config));
        let now = || TaiNs(1_100 + delay_ns);
        for _ in 0..2 {
            if prepared {
                delivery.prepare(&actions);
                assert!(ends.iter_mut().all(|(reader, _)| next(reader).is_none()));
                delivery.publish_prepared(now());
            }
            delivery.deliver(&actions, &now);
            for ((reader, ends), config) in ends.iter_mut().zip(&configs) {
                while delivery.deliver_idle(&now) > 0 {}
                let records: Vec<_> = std::iter::from_fn(|| match reader.poll() {
                    Found::Nothing => None,
                    found => Some(found),
                })
                .collect();
                let mut ids = Vec::new();
                for found in records {
                    let Found::Record(words) = found else {
                        assert_eq!(config.slots, 2, "{found:?}");
                        continue;
                    };
                    let record = TimingRecord::new_checked(&words).unwrap();
                    ids.push(record.id);
                    assert_eq!(u64::from(record.enqueue_delay_ns), delay_ns);
                    let is_late = record.flags.0 & RecordFlags::DELIVERED_LATE != 0;
                    assert_eq!(
                        is_late,
                        config.class == PriorityClass::High && delay_ns > 50
                    );
                }
                match config.slots {
                    2 => assert_eq!(ids.last(), Some(&8)),
                    _ => assert_eq!(ids, [5, 7, 8]),
                }
                let in_bins: u64 = ends.counters.latency().iter().sum();
                assert_eq!(in_bins, ends.counters.offered());
            }
        }
        let offered = ends.each_ref().map(|(_, ends)| ends.counters.offered());
        assert_eq!(offered, [6; 4], "prepared {prepared}");
        let late = ends[0].1.counters.delivered_late();
        assert_eq!(late, if delay_ns > 50 { 6 } else { 0 });
    }
}

#[test]
fn a_sleeping_client_is_woken_once() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let config = SubscriptionConfig::default();
    let (mut reader, ends) = subscribe(&mut delivery, &mut Vec::new(), 0, &config);
    let source = ends.wake.unwrap();
    reader.prepare_sleep();
    assert_eq!(reader.poll(), Found::Nothing);
    delivery.deliver(&[action(0, 1), action(0, 2)], &|| TaiNs(2_000));
    let wake_up = source.wait(Some(std::time::Duration::ZERO)).unwrap();
    assert_eq!(wake_up, WakeUp::Woken);
    assert_eq!(ends.counters.wake_ups(), 1);
    assert_eq!(next(&mut reader).unwrap().id, 1);
    assert_eq!(next(&mut reader).unwrap().id, 2);
}

#[test]
fn where_most_listeners_sleep_the_group_is_woken_else_each_sleeper() {
    let group = WakeGroup::new().unwrap();
    let config = SubscriptionConfig::default();
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let (mut listeners, mut readers, mut counters) = (Vec::new(), Vec::new(), Vec::new());
    let mut sources = Vec::new();
    for place in 0..3 {
        listeners.push((place, 0, PriorityClass::Generic));
        let (subscription, ends) = Subscription::ring_in(&group, &config).unwrap();
        let mut routing = Routing::new(1, &listeners);
        routing.set_group(0, PriorityClass::Generic, group.clone());
        delivery.exchange(place, Some(subscription), Box::new(routing));
        readers.push(RecordReader::open(ends.data).unwrap());
        sources.push(ends.wake.unwrap());
        counters.push(ends.counters);
    }
    let mut woken = |sleepers: &[usize], id: u64| -> Vec<bool> {
        for reader in sleepers {
            readers[*reader].prepare_sleep();
        }
        delivery.deliver(&[action(0, id)], &|| TaiNs(2_000));
        for reader in &mut readers {
            assert_eq!(next(reader).unwrap().id, id);
        }
        let now = Some(std::time::Duration::ZERO);
        let woken = |source: &WakeSource| source.wait(now).unwrap() == WakeUp::Woken;
        sources.iter().map(woken).collect()
    };
    assert_eq!(woken(&[0, 2], 1), [true; 3], "one is woken for nothing");
    assert_eq!(woken(&[1], 2), [false, true, false]);
    assert_eq!(woken(&[], 3), [false; 3]);
    let wake_ups: Vec<u64> = counters
        .iter()
        .map(|counters| counters.wake_ups())
        .collect();
    assert_eq!(wake_ups, [1; 3]);
}

#[test]
fn many_sleepers_of_a_group_are_woken_by_the_thread() {
    let group = WakeGroup::new().unwrap();
    let config = SubscriptionConfig::default();
    let mut delivery = Delivery::new(DeliveryConfig::default());
    delivery.set_wake_thread(WakeThread::start(None, None).unwrap());
    let (mut listeners, mut sleeping) = (Vec::new(), Vec::new());
    for place in 0..SLEEPERS_MANY as u16 {
        listeners.push((place, 0, PriorityClass::Generic));
        let (subscription, ends) = Subscription::ring_in(&group, &config).unwrap();
        let mut routing = Routing::new(1, &listeners);
        routing.set_group(0, PriorityClass::Generic, group.clone());
        delivery.exchange(place, Some(subscription), Box::new(routing));
        let reader = RecordReader::open(ends.data).unwrap();
        reader.prepare_sleep();
        sleeping.push((reader, ends.wake.unwrap(), ends.counters));
    }
    delivery.deliver(&[action(0, 9)], &|| TaiNs(2_000));
    for (reader, source, counters) in &mut sleeping {
        assert_eq!(source.wait(None).unwrap(), WakeUp::Woken);
        assert_eq!(next(reader).unwrap().id, 9);
        assert_eq!(counters.wake_ups(), 1);
    }
}

#[test]
fn high_comes_before_generic_and_idle_waits_for_a_turn_of_its_own() {
    let mut delivery = Delivery::new(DeliveryConfig {
        idle_pending: 4,
        idle_per_turn: 1,
    });
    let mut listeners = Vec::new();
    let of = |class| SubscriptionConfig {
        class,
        bound_ns: 1_000,
        ..SubscriptionConfig::default()
    };
    // Subscribed in the wrong order on purpose.
    let [
        (mut idle, idle_ends),
        (mut generic, _k),
        (mut high, high_ends),
    ] = [
        PriorityClass::Idle,
        PriorityClass::Generic,
        PriorityClass::High,
    ]
    .map(|class| subscribe(&mut delivery, &mut listeners, 0, &of(class)));
    let time = std::cell::Cell::new(2_000);
    let clock = || TaiNs(time.replace(time.get() + 100));
    delivery.deliver(&[action(0, 1), action(0, 2)], &clock);
    let high_delays = [0, 1].map(|_| next(&mut high).unwrap().enqueue_delay_ns);
    let generic_delays = [0, 1].map(|_| next(&mut generic).unwrap().enqueue_delay_ns);
    assert_eq!(
        (high_delays, generic_delays),
        ([900, 1_000], [1_100, 1_200])
    );
    assert_eq!(high_ends.counters.delivered_late(), 0);
    assert_eq!((next(&mut idle), delivery.has_pending()), (None, true));
    assert_eq!(delivery.deliver_idle(&clock), 1);
    let record = next(&mut idle).unwrap();
    assert_eq!(record.id, 1);
    assert!(record.flags.contains(RecordFlags::DEFERRED));
    // More than can be put off: the oldest go to the ring at once, in order.
    for id in 3..8 {
        delivery.deliver(&[action(0, id)], &clock);
    }
    assert!(high_ends.counters.delivered_late() > 0);
    while delivery.deliver_idle(&clock) > 0 {}
    let ids: Vec<u64> = std::iter::from_fn(|| next(&mut idle))
        .map(|r| r.id)
        .collect();
    assert_eq!(ids, [2, 3, 4, 5, 6, 7]);
    assert_eq!(idle_ends.counters.deferred(), 7);
}

/// By its rule: what comes after its end was offered to nobody, and is counted as nothing.
#[test]
fn a_subscription_that_has_ended_counts_nothing_more() {
    let classes = [PriorityClass::High, PriorityClass::Idle];
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let mut listeners = Vec::new();
    let subscribed = classes.map(|class| {
        let config = SubscriptionConfig {
            slots: 8,
            rule: OverflowRule::Disconnect,
            class,
            bound_ns: 0,
            ..SubscriptionConfig::default()
        };
        subscribe(&mut delivery, &mut listeners, 0, &config)
    });
    let clock = || TaiNs(2_000);
    for id in 0..100 {
        delivery.deliver(&[action(0, id)], &clock);
    }
    while delivery.deliver_idle(&clock) > 0 {}
    for ((_, ends), class) in subscribed.iter().zip(classes) {
        let counters = &ends.counters;
        let offered = counters.offered();
        assert_eq!((offered, counters.dropped()), (9, 1), "{class:?}");
        assert_eq!(counters.latency().iter().sum::<u64>(), offered);
        let of = |its: PriorityClass| if class == its { offered } else { 0 };
        assert_eq!(counters.delivered_late(), of(PriorityClass::High));
        assert_eq!(counters.deferred(), of(PriorityClass::Idle));
    }
}

#[test]
fn a_full_pipe_drops_and_counts_and_never_blocks() {
    let (subscription, ends) = Subscription::pipe(&SubscriptionConfig::default()).unwrap();
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let routing = Routing::new(1, &[(0, 0, PriorityClass::Generic)]);
    delivery.exchange(0, Some(subscription), Box::new(routing));
    for id in 0..5_000 {
        delivery.deliver(&[action(0, id)], &|| TaiNs(2_000));
    }
    let counters = &ends.counters;
    assert_eq!(counters.offered(), 5_000);
    let held = 5_000 - counters.dropped();
    assert!(counters.dropped() > 0 && held > 0);
    // The client counts as many and sees the gap at the end in the next sequence number.
    let mut bytes = vec![0u8; 64 * 8];
    let mut received = 0;
    while received < held {
        let read = rustix::io::read(&ends.data, &mut bytes[..]).unwrap();
        received += read as u64 / 64;
    }
    delivery.deliver(&[action(0, 9)], &|| TaiNs(2_000));
    assert_eq!(rustix::io::read(&ends.data, &mut bytes[..64]).unwrap(), 64);
    let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(stamp, (5_000 + 1) * 2);
}

#[test]
fn a_subscription_taken_back_gets_what_was_put_off_and_then_the_end() {
    let mut delivery = Delivery::new(DeliveryConfig::default());
    let config = SubscriptionConfig {
        class: PriorityClass::Idle,
        ..SubscriptionConfig::default()
    };
    let (mut reader, _ends) = subscribe(&mut delivery, &mut Vec::new(), 0, &config);
    delivery.deliver(&[action(0, 1)], &|| TaiNs(2_000));
    let (old, _) = delivery.exchange(0, None, Box::default());
    assert!(old.is_some());
    assert_eq!(next(&mut reader).unwrap().id, 1);
    assert_eq!(reader.poll(), Found::Closed(RingClosed::Finished));
}
