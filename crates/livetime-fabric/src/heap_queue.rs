//! A binary heap of events: the queue that is obviously right.
//!
//! It is the oracle of the [`TimingWheel`](crate::timing_wheel::TimingWheel): both must pop the
//! same events in the same order (property test in `tests/queue_order.rs`). It costs
//! O(log pending) per event and is two to ten times slower; `examples/queue_cost.rs` measures.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::queue::{EventKey, Pending};
use crate::time::SimPs;

/// Events of type `E` in a binary heap.
#[derive(Debug, Clone)]
pub struct HeapQueue<E> {
    heap: BinaryHeap<Pending<E>>,
}

impl<E> HeapQueue<E> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
        }
    }

    /// Adds an event.
    pub fn push(&mut self, key: EventKey, event: E) {
        self.heap.push(Pending { key, event });
    }

    /// Takes the first event if its time is at most `limit`.
    pub fn pop_until(&mut self, limit: SimPs) -> Option<(EventKey, E)> {
        let first = self.heap.peek_mut()?;
        if first.key.time > limit {
            return None;
        }
        let Pending { key, event } = PeekMut::pop(first);
        Some((key, event))
    }

    /// Number of events that wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Default for HeapQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}
