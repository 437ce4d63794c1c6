//! The timing wheel pops what the heap pops, in the same order, whatever is done to it.
//!
//! Verified: order, contents and length after every operation, over random operation lists with
//! equal times, far futures, both ends of time, pushes at the current instant and into the past,
//! pops with limits, and lanes of events that come in order or do not. Not verified here: speed
//! (`examples/queue_cost.rs`).

use livetime_fabric::heap_queue::HeapQueue;
use livetime_fabric::timing_wheel::TimingWheel;
use livetime_fabric::{EventClass, EventKey, Lane, SimPs};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// What is done to both queues; times are relative to the last event popped.
#[derive(Debug, Clone)]
enum Operation {
    /// An event this much after the current instant.
    Push { delay: u64, class: u8 },
    /// An event at an absolute time, past or future.
    PushAt { time: u64, class: u8 },
    /// An event that may or may not be behind the others of its lane.
    PushInOrder { delay: u64, class: u8, lane: Lane },
    /// Several events at one instant.
    PushTied { delay: u64, classes: Vec<u8> },
    /// Pops up to so many events; each popped event schedules another one at the same instant if
    /// `echo` says so.
    Pop { count: u8, echo: bool },
    /// Pops all until this much after the current instant, as a run with a horizon does.
    PopUntil { ahead: u64 },
}

fn delays() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..3,
        4 => 0_u64..5_000,
        4 => 0_u64..10_000_000,
        2 => 0_u64..1_000_000_000_000,
        1 => Just(u64::MAX),
        // Around the edges of granules and of the digits of the wheel.
        3 => (0_u32..64, 0_u64..4).prop_map(|(bit, off)| (1_u64 << bit).saturating_sub(2) + off),
    ]
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), delays()]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let class = || prop_oneof![3 => Just(0_u8), 2 => 0_u8..4, 1 => any::<u8>()];
    let operation = prop_oneof![
        8 => (delays(), class()).prop_map(|(delay, class)| Operation::Push { delay, class }),
        2 => (times(), class()).prop_map(|(time, class)| Operation::PushAt { time, class }),
        8 => (delays(), class(), prop::sample::select(vec![Lane::First, Lane::Second]))
            .prop_map(|(delay, class, lane)| Operation::PushInOrder { delay, class, lane }),
        2 => (delays(), prop::collection::vec(class(), 1..40))
            .prop_map(|(delay, classes)| Operation::PushTied { delay, classes }),
        6 => (1_u8..20, any::<bool>()).prop_map(|(count, echo)| Operation::Pop { count, echo }),
        2 => delays().prop_map(|ahead| Operation::PopUntil { ahead }),
    ];
    prop::collection::vec(operation, 1..120)
}

/// Both queues side by side; every operation is done to both and compared.
struct Pair {
    wheel: TimingWheel<u64>,
    heap: HeapQueue<u64>,
    now: u64,
    sequence: u64,
}

impl Pair {
    fn new(granule_bits: u32) -> Self {
        let wheel = TimingWheel::with_granule_bits(granule_bits);
        Self {
            wheel,
            heap: HeapQueue::new(),
            now: 0,
            sequence: 0,
        }
    }

    fn push(&mut self, time: u64, class: u8) {
        let key = EventKey::new(SimPs(time), EventClass(class), self.sequence);
        self.wheel.push(key, self.sequence);
        self.heap.push(key, self.sequence);
        self.sequence += 1;
    }

    fn push_in_order(&mut self, lane: Lane, time: u64, class: u8) {
        let key = EventKey::new(SimPs(time), EventClass(class), self.sequence);
        self.wheel.push_in_order(lane, key, self.sequence);
        self.heap.push(key, self.sequence);
        self.sequence += 1;
    }

    fn pop_until(&mut self, limit: u64) -> Option<EventKey> {
        let popped = self.heap.pop_until(SimPs(limit));
        assert_eq!(self.wheel.pop_until(SimPs(limit)), popped, "limit {limit}");
        assert_eq!(self.wheel.len(), self.heap.len());
        assert_eq!(self.wheel.is_empty(), self.heap.is_empty());
        let (key, event) = popped?;
        assert_eq!(key.sequence(), event, "the event travels with its key");
        self.now = key.time.0;
        Some(key)
    }

    fn operate(&mut self, operation: &Operation) {
        match operation {
            Operation::Push { delay, class } => self.push(self.now.saturating_add(*delay), *class),
            Operation::PushAt { time, class } => self.push(*time, *class),
            Operation::PushInOrder { delay, class, lane } => {
                self.push_in_order(*lane, self.now.saturating_add(*delay), *class);
            }
            Operation::PushTied { delay, classes } => {
                let time = self.now.saturating_add(*delay);
                classes.iter().for_each(|class| self.push(time, *class));
            }
            Operation::Pop { count, echo } => {
                for _ in 0..*count {
                    let Some(key) = self.pop_until(u64::MAX) else {
                        break;
                    };
                    if *echo {
                        // Sometimes of a lower class: still to come, at the instant that is now.
                        self.push(key.time.0, key.class().0 / 2);
                    }
                }
            }
            Operation::PopUntil { ahead } => {
                let limit = self.now.saturating_add(*ahead);
                while self.pop_until(limit).is_some() {}
                self.now = limit;
            }
        }
    }
}

/// Seeds that once failed are kept and tried first.
fn config(cases: u32) -> ProptestConfig {
    let seeds = FileFailurePersistence::Direct("tests/seeds/queue_order.txt");
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(seeds)),
        ..Default::default()
    }
}

proptest! {
    #![proptest_config(config(3_000))]

    #[test]
    fn wheel_and_heap_agree(
        operations in operations(),
        granule_bits in prop_oneof![2 => Just(10_u32), 1 => 0_u32..64],
    ) {
        let mut pair = Pair::new(granule_bits);
        operations.iter().for_each(|operation| pair.operate(operation));
        let mut last = None;
        while let Some(key) = pair.pop_until(u64::MAX) {
            prop_assert!(last < Some(key), "order is strict");
            last = Some(key);
        }
        prop_assert!(pair.heap.is_empty());
    }
}

#[test]
fn a_long_run_of_a_busy_fabric_keeps_the_order() {
    // 2000 nodes with delays from a cable to a timeout; a linear congruential generator, so that
    // the test needs no other part of the crate.
    let mut state = 12_345_u64;
    let mut random = move |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut pair = Pair::new(10);
    (0..2_000).for_each(|_| pair.push(0, 0));
    for _ in 0..300_000 {
        let key = pair.pop_until(u64::MAX).unwrap();
        let scale = [1, 1_000, 125_000, 12_800_000, 1_000_000_000][random(5) as usize];
        match random(3) {
            0 => pair.push_in_order(Lane::First, key.time.0 + 16_384_000, 0),
            1 => pair.push_in_order(Lane::Second, key.time.0 + 2_000_000 + random(2), 0),
            _ => pair.push(key.time.0 + random(2) * scale, (random(3)) as u8),
        }
    }
    assert_eq!(pair.heap.len(), 2_000);
}
