//! Random operations on a ring, compared step by step with a plain queue.
//!
//! Verified: order, contents, lengths, bounds and batch sizes in one thread, on the heap and in a
//! shared mapping. Not verified: orderings between threads (see `loom.rs`, `ring_threads.rs`).
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::VecDeque;

use livetime_shm::{Consumer, Producer, PushError, RingConfig, heap_ring, ring};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Operation {
    Push(usize),
    PushWith(usize),
    PushBatch(Vec<usize>),
    PushBatchWith(u32, usize),
    Pop,
    PopBatch(u32),
    FreeSlots,
    IsEmpty,
}

fn operation() -> impl Strategy<Value = Operation> {
    let length = 0usize..24;
    prop_oneof![
        4 => length.clone().prop_map(Operation::Push),
        2 => length.clone().prop_map(Operation::PushWith),
        2 => prop::collection::vec(length.clone(), 0..12).prop_map(Operation::PushBatch),
        2 => (0u32..12, length).prop_map(|(count, words)| Operation::PushBatchWith(count, words)),
        5 => Just(Operation::Pop),
        3 => (0u32..12).prop_map(Operation::PopBatch),
        1 => Just(Operation::FreeSlots),
        1 => Just(Operation::IsEmpty),
    ]
}

/// Both ends, and the queue that knows what must be in between.
struct Model {
    producer: Producer,
    consumer: Consumer,
    queue: VecDeque<Vec<u32>>,
    next_word: u32,
}

impl Model {
    fn message(&mut self, words: usize) -> Vec<u32> {
        let first = self.next_word;
        self.next_word = first.wrapping_add(words as u32 + 1);
        (first..).take(words).collect()
    }

    /// Whether a refusal for want of space is right: the ring may only be full to its knowledge,
    /// which lags by less than the report batch while messages are left to read.
    fn is_full_plausible(&self) -> bool {
        let capacity = self.producer.capacity() as usize;
        let lag = livetime_shm::ring::tail_batch(self.producer.capacity()) as usize - 1;
        self.queue.len() + lag >= capacity
    }

    fn apply(&mut self, operation: &Operation) {
        let slot_words = self.producer.slot_words() as usize;
        let capacity = self.producer.capacity() as usize;
        match operation {
            Operation::Push(words) | Operation::PushWith(words) => {
                let message = self.message(*words);
                let pushed = match operation {
                    Operation::Push(_) => self.producer.try_push(&message),
                    _ => self
                        .producer
                        .try_push_with(*words, |slot| slot.copy_from_slice(&message)),
                };
                match pushed {
                    Ok(()) => {
                        assert!(*words <= slot_words && self.queue.len() < capacity);
                        self.queue.push_back(message);
                    }
                    Err(PushError::Full) => assert!(self.is_full_plausible()),
                    Err(PushError::TooLong { words, .. }) => assert!(words > slot_words),
                    Err(other) => panic!("{other}"),
                }
            }
            Operation::PushBatch(lengths) => {
                let messages: Vec<_> = lengths.iter().map(|words| self.message(*words)).collect();
                let slices: Vec<&[u32]> = messages.iter().map(Vec::as_slice).collect();
                match self.producer.push_batch(&slices) {
                    Ok(count) => {
                        assert!(lengths.iter().all(|words| *words <= slot_words));
                        assert!(count as usize == messages.len() || self.is_full_after(count));
                        self.queue.extend(messages.into_iter().take(count as usize));
                    }
                    Err(PushError::Full) => assert!(self.is_full_plausible()),
                    Err(PushError::TooLong { words, .. }) => {
                        assert!(words > slot_words && lengths.contains(&words));
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Operation::PushBatchWith(count, words) => {
                let first = self.next_word;
                let pushed = self
                    .producer
                    .push_batch_with(*count, *words, |index, slot| {
                        slot.fill(first.wrapping_add(index));
                    });
                match pushed {
                    Ok(pushed) => {
                        assert!(pushed <= *count && *words <= slot_words);
                        assert!(pushed == *count || self.is_full_after(pushed));
                        let messages = (0..pushed).map(|i| vec![first.wrapping_add(i); *words]);
                        self.queue.extend(messages);
                        self.next_word = first.wrapping_add(*count);
                    }
                    Err(PushError::Full) => assert!(self.is_full_plausible()),
                    Err(PushError::TooLong { .. }) => assert!(*words > slot_words),
                    Err(other) => panic!("{other}"),
                }
            }
            Operation::Pop => {
                let popped = self.consumer.try_pop(<[u32]>::to_vec).unwrap();
                assert_eq!(popped, self.queue.pop_front());
            }
            Operation::PopBatch(max) => {
                let mut popped = Vec::new();
                let count = self
                    .consumer
                    .pop_batch(*max, |words| popped.push(words.to_vec()));
                assert_eq!(count.unwrap() as usize, self.queue.len().min(*max as usize));
                let expected: Vec<_> = self.queue.drain(..popped.len()).collect();
                assert_eq!(popped, expected);
            }
            Operation::FreeSlots => {
                let free = self.producer.free_slots() as usize;
                let truth = capacity - self.queue.len();
                let lag = livetime_shm::ring::tail_batch(capacity as u32) as usize - 1;
                assert!(free <= truth && free + lag >= truth, "{free} of {truth}");
            }
            Operation::IsEmpty => assert_eq!(self.consumer.is_empty(), self.queue.is_empty()),
        }
        assert!(self.queue.len() <= capacity);
        let written = self.consumer.popped() + self.queue.len() as u64;
        assert_eq!(self.producer.pushed(), written);
    }

    fn is_full_after(&self, pushed: u32) -> bool {
        let capacity = self.producer.capacity() as usize;
        let lag = livetime_shm::ring::tail_batch(self.producer.capacity()) as usize - 1;
        self.queue.len() + pushed as usize + lag >= capacity
    }
}

fn run(ends: (Producer, Consumer), operations: &[Operation]) {
    let (producer, consumer) = ends;
    let mut model = Model {
        producer,
        consumer,
        queue: VecDeque::new(),
        next_word: 1,
    };
    for operation in operations {
        model.apply(operation);
    }
    // Whatever is left comes out, in order, and then the end is seen.
    let Model {
        producer,
        mut consumer,
        mut queue,
        ..
    } = model;
    drop(producer);
    while let Some(message) = queue.pop_front() {
        assert!(!consumer.is_finished());
        assert_eq!(consumer.try_pop(<[u32]>::to_vec).unwrap(), Some(message));
    }
    assert!(consumer.is_finished());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_ring_is_a_bounded_queue(
        slots_log2 in 0u32..6,
        slot_words in 1u32..20,
        operations in prop::collection::vec(operation(), 0..300),
        is_mapped in any::<bool>(),
    ) {
        let config = RingConfig { slots: 1 << slots_log2, slot_words };
        let ends = if is_mapped { ring(&config) } else { heap_ring(&config) };
        run(ends.unwrap(), &operations);
    }
}
