//! The trace of a simulation: a 64-bit hash of what happened in which order, and the last records.
//!
//! Two runs that handled the same events in the same order have the same [`TraceHash`]; it is
//! compared over repeated runs, queues, machines and builds, and with stored values. The hash is
//! for accidents, not for adversaries. It holds (time, class, node, kind, key) of each event and
//! not the payload: what must be compared, the world puts into the key. Where two runs part,
//! [`first_divergence`] finds; the records kept in the ring tell what happened there.

use core::fmt;

use crate::address::NodeId;
use crate::queue::EventClass;
use crate::time::SimPs;

/// What an event is, as far as a trace cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventLabel {
    /// The node that handles the event.
    pub node: NodeId,
    /// What kind of event it is; the world numbers its kinds.
    pub kind: u16,
    /// Whatever tells it from others of its kind: a packet number, a trigger number, a digest.
    pub key: u64,
}

/// One event of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceRecord {
    /// When it was handled.
    pub time: SimPs,
    /// Its class within the instant.
    pub class: EventClass,
    /// What it was.
    pub label: EventLabel,
}

/// Hash of a trace so far; printed as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceHash(pub u64);

/// The hash of all events and the last records of them.
#[derive(Debug, Clone)]
pub struct Trace {
    hash: u64,
    count: u64,
    /// The last `capacity` records; the oldest is at `count % capacity` once it is full.
    ring: Vec<TraceRecord>,
    capacity: usize,
}

/// Start of every hash: the fractional part of pi.
const SEED: u64 = 0x243F_6A88_85A3_08D3;
/// Odd multipliers of random-looking bits: more of pi.
const TIME_WEIGHT: u64 = 0x1319_8A2E_0370_7345;
const KEY_WEIGHT: u64 = 0xA409_3822_299F_31D1;

/// Multiplies to 128 bits and folds the halves, so that each input bit reaches each output bit.
const fn folded_product(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Trace {
    /// An empty trace that keeps the last `ring_capacity` records (0: only the hash).
    pub fn new(ring_capacity: usize) -> Self {
        let ring = Vec::with_capacity(ring_capacity);
        Self {
            hash: SEED,
            count: 0,
            ring,
            capacity: ring_capacity,
        }
    }

    /// Adds an event.
    #[inline]
    pub fn record(&mut self, record: TraceRecord) {
        let TraceRecord { time, class, label } = record;
        let place =
            u64::from(class.0) << 48 | u64::from(label.kind) << 32 | u64::from(label.node.0);
        // Each step is keyed by the hash so far, which makes the whole depend on the order.
        let hash = folded_product(self.hash ^ time.0, TIME_WEIGHT ^ place);
        self.hash = folded_product(hash ^ label.key, KEY_WEIGHT).wrapping_add(self.hash);
        if self.capacity > 0 {
            self.keep(record);
        }
        self.count += 1;
    }

    /// The hash of all events so far.
    pub const fn hash(&self) -> TraceHash {
        TraceHash(self.hash)
    }

    /// Number of events so far.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The records kept, oldest first.
    pub fn records(&self) -> impl Iterator<Item = &TraceRecord> {
        let (newer, older) = self.ring.split_at(self.oldest());
        older.iter().chain(newer)
    }

    fn keep(&mut self, record: TraceRecord) {
        let oldest = self.oldest();
        if self.ring.len() < self.capacity {
            self.ring.push(record);
        } else {
            self.ring[oldest] = record;
        }
    }

    fn oldest(&self) -> usize {
        if self.ring.len() < self.capacity || self.capacity == 0 {
            return 0;
        }
        (self.count % self.capacity as u64) as usize
    }
}

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for TraceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EventLabel { node, kind, key } = self.label;
        write!(
            f,
            "{} class {} node {} kind {kind} key {key}",
            self.time, self.class.0, node.0
        )
    }
}

/// The number of events after which two runs differ for the first time, if they do within
/// `events_max`: `left` and `right` give the hash of a run after so many events.
///
/// A hash that differs stays different, so bisection does: 2 log2(events) short runs. Then run
/// both up to that event with a ring and compare the records.
pub fn first_divergence(
    events_max: u64,
    mut left: impl FnMut(u64) -> TraceHash,
    mut right: impl FnMut(u64) -> TraceHash,
) -> Option<u64> {
    if left(events_max) == right(events_max) {
        return None;
    }
    let (mut same, mut different) = (0, events_max);
    while different - same > 1 {
        let middle = same + (different - same) / 2;
        if left(middle) == right(middle) {
            same = middle;
        } else {
            different = middle;
        }
    }
    Some(different)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time: u64, class: u8, node: u32, kind: u16, key: u64) -> TraceRecord {
        let label = EventLabel {
            node: NodeId(node),
            kind,
            key,
        };
        TraceRecord {
            time: SimPs(time),
            class: EventClass(class),
            label,
        }
    }

    fn hash(records: &[TraceRecord]) -> TraceHash {
        let mut trace = Trace::new(0);
        records.iter().for_each(|record| trace.record(*record));
        trace.hash()
    }

    #[test]
    fn the_hash_depends_on_every_field_and_on_the_order() {
        let base = record(5, 1, 2, 3, 4);
        let others = [
            record(6, 1, 2, 3, 4),
            record(5, 0, 2, 3, 4),
            record(5, 1, 3, 3, 4),
            record(5, 1, 2, 2, 4),
            record(5, 1, 2, 3, 5),
            record(0, 0, 0, 0, 0),
        ];
        for other in others {
            assert_ne!(hash(&[base]), hash(&[other]), "{base} and {other}");
            assert_ne!(
                hash(&[base, other]),
                hash(&[other, base]),
                "{base} and {other}"
            );
            assert_ne!(hash(&[base, other]), hash(&[base]), "{other} adds nothing");
        }
        assert_ne!(hash(&[]), hash(&[record(0, 0, 0, 0, 0)]));
    }

    #[test]
    fn the_hash_is_the_same_for_ever() {
        // A stored hash is only worth something if the function stays; see also the golden run
        // in tests/kernel_stories.rs.
        let text = hash(&[record(1, 2, 3, 4, 5), record(6, 7, 8, 9, 10)]).to_string();
        assert_eq!(text, "9a537d0ef02ee527");
    }

    #[test]
    fn the_ring_keeps_the_last_records_in_order() {
        let mut trace = Trace::new(3);
        for time in 0..8 {
            let kept: Vec<u64> = trace.records().map(|record| record.time.0).collect();
            let expected: Vec<u64> = (time - u64::min(time, 3)..time).collect();
            assert_eq!(kept, expected);
            trace.record(record(time, 0, 0, 0, 0));
        }
        assert_eq!(trace.count(), 8);
        assert_eq!(Trace::new(0).records().count(), 0);
        assert_eq!(
            record(1_500, 1, 2, 3, 4).to_string(),
            "1.500 ns class 1 node 2 kind 3 key 4"
        );
    }

    #[test]
    fn bisection_finds_the_first_event_that_differs() {
        let run = |wrong_from: u64| {
            move |events: u64| {
                let key = |index| if index >= wrong_from { 1 } else { 0 };
                let records: Vec<_> = (0..events).map(|i| record(i, 0, 0, 0, key(i))).collect();
                hash(&records)
            }
        };
        assert_eq!(first_divergence(100, run(1_000), run(36)), Some(37));
        assert_eq!(first_divergence(100, run(1_000), run(0)), Some(1));
        assert_eq!(first_divergence(100, run(1_000), run(100)), None);
        assert_eq!(first_divergence(0, run(1_000), run(0)), None);
    }
}
