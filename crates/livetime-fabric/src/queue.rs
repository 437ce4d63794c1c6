//! The event queue: what happens next, in one total order.
//!
//! Events are ordered by (time, class, sequence): the class separates what belongs together at one
//! instant (fixed packet sizes make exact ties the normal case, not the exception), the sequence
//! is the order in which events were scheduled. Two queues keep that order: the
//! [`TimingWheel`](crate::timing_wheel) for work and the
//! [`HeapQueue`](crate::heap_queue) as its oracle. Who gives out the keys: [`crate::scheduler`].

use core::cmp::Ordering;

use crate::heap_queue::HeapQueue;
use crate::time::SimPs;
use crate::timing_wheel::TimingWheel;

/// Order among events of one instant: lower classes first. The world gives the classes meaning,
/// for example completions before new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventClass(pub u8);

/// Place of an event in the total order; no two events of a simulation have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventKey {
    /// When the event happens.
    pub time: SimPs,
    /// Class in the top 8 bits, sequence below: one comparison instead of two.
    rank: u64,
}

/// Bits of a rank that hold the sequence: 2^56 events are 200 years at 10 million a second.
const SEQUENCE_BITS: u32 = 56;

impl EventKey {
    /// The key of the event scheduled as number `sequence` (below 2^56).
    pub const fn new(time: SimPs, class: EventClass, sequence: u64) -> Self {
        debug_assert!(sequence < 1 << SEQUENCE_BITS);
        Self {
            time,
            rank: (class.0 as u64) << SEQUENCE_BITS | sequence,
        }
    }

    /// The class within the instant.
    pub const fn class(self) -> EventClass {
        EventClass((self.rank >> SEQUENCE_BITS) as u8)
    }

    /// The number under which the event was scheduled.
    pub const fn sequence(self) -> u64 {
        self.rank & ((1 << SEQUENCE_BITS) - 1)
    }

    /// The same class and sequence at another time.
    #[must_use]
    pub const fn moved_to(self, time: SimPs) -> Self {
        Self {
            time,
            rank: self.rank,
        }
    }

    /// The whole order in one integer, compared without a branch.
    #[inline]
    pub(crate) const fn order(self) -> u128 {
        (self.time.0 as u128) << 64 | self.rank as u128
    }
}

impl Ord for EventKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for EventKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An event that waits in a queue. The *earliest* is the greatest, as `BinaryHeap` and a sorted
/// `Vec` popped from its end want it.
#[derive(Debug, Clone)]
pub(crate) struct Pending<E> {
    pub(crate) key: EventKey,
    pub(crate) event: E,
}

impl<E> Ord for Pending<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

impl<E> PartialOrd for Pending<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Pending<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Pending<E> {}

/// Events of constant delay, or of another kind that is scheduled in the order in which it is due as
/// a rule, wait in a queue of their own: the wheel turns for the others alone. The order of events does
/// not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// One kind.
    First,
    /// Another one.
    Second,
}

/// Which queue a simulation runs on. Results do not depend on it; speed does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueKind {
    /// Hierarchical timing wheel: constant cost per event.
    #[default]
    Wheel,
    /// Binary heap: short enough to be believed, the oracle of the wheel.
    Heap,
}

/// A queue of events of type `E`, small values that are moved a few times while they wait: keep
/// them below 32 bytes and let them name what is large.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per simulation, and a box would be on its path"
)]
pub enum EventQueue<E> {
    /// See [`TimingWheel`].
    Wheel(TimingWheel<E>),
    /// See [`HeapQueue`].
    Heap(HeapQueue<E>),
}

impl<E> EventQueue<E> {
    /// An empty queue.
    pub fn new(kind: QueueKind) -> Self {
        match kind {
            QueueKind::Wheel => Self::Wheel(TimingWheel::new()),
            QueueKind::Heap => Self::Heap(HeapQueue::new()),
        }
    }

    /// Adds an event; any time is good, also one before the last event popped.
    pub fn push(&mut self, key: EventKey, event: E) {
        match self {
            Self::Wheel(wheel) => wheel.push(key, event),
            Self::Heap(heap) => heap.push(key, event),
        }
    }

    /// As [`EventQueue::push`], for an event that is behind all of its lane as a rule: see
    /// [`TimingWheel::push_in_order`].
    #[inline]
    pub(crate) fn push_in_order(&mut self, lane: Lane, key: EventKey, event: E) {
        match self {
            Self::Wheel(wheel) => wheel.push_in_order(lane, key, event),
            Self::Heap(heap) => heap.push(key, event),
        }
    }

    /// Takes the first event if its time is at most `limit`.
    pub fn pop_until(&mut self, limit: SimPs) -> Option<(EventKey, E)> {
        match self {
            Self::Wheel(wheel) => wheel.pop_until(limit),
            Self::Heap(heap) => heap.pop_until(limit),
        }
    }

    /// The event that probably comes after so many others; `None` where the queue does not know.
    #[inline]
    pub(crate) fn coming(&self, others: usize) -> Option<&E> {
        match self {
            Self::Wheel(wheel) => wheel.coming(others),
            Self::Heap(_) => None,
        }
    }

    /// Number of events that wait.
    pub fn len(&self) -> usize {
        match self {
            Self::Wheel(wheel) => wheel.len(),
            Self::Heap(heap) => heap.len(),
        }
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_time_then_class_then_sequence() {
        let key = |time, class, sequence| EventKey::new(SimPs(time), EventClass(class), sequence);
        let ordered = [
            key(0, 255, 9),
            key(1, 0, 8),
            key(1, 1, 2),
            key(1, 1, 3),
            key(2, 0, 0),
        ];
        assert!(ordered.is_sorted());
        assert_eq!(ordered[3].class(), EventClass(1));
        assert_eq!(ordered[3].sequence(), 3);
        assert_eq!(key(1, 7, 5).moved_to(SimPs(9)), key(9, 7, 5));
        let last = key(u64::MAX, u8::MAX, (1 << SEQUENCE_BITS) - 1);
        assert_eq!(
            (last.class(), last.sequence()),
            (EventClass(255), (1 << SEQUENCE_BITS) - 1)
        );
    }

    #[test]
    fn both_queues_start_empty_and_leave_later_events_alone() {
        for kind in [QueueKind::Wheel, QueueKind::Heap] {
            let mut queue = EventQueue::new(kind);
            assert!(queue.is_empty());
            assert!(queue.pop_until(SimPs::MAX).is_none());
            queue.push(EventKey::new(SimPs(50), EventClass(0), 0), 'a');
            assert!(queue.pop_until(SimPs(49)).is_none());
            assert_eq!(queue.len(), 1);
            assert_eq!(
                queue.pop_until(SimPs(50)).map(|(_, event)| event),
                Some('a')
            );
            assert!(queue.is_empty());
        }
    }
}
