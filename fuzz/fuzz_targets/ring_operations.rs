//! Operations on a ring in one thread, compared step by step with a plain queue.
//!
//! Order, contents, lengths and bounds; orderings between threads are the business of loom and
//! ThreadSanitizer.

#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::fuzz_target;
use livetime_fuzz::Choices;
use livetime_shm::ring::tail_batch;
use livetime_shm::{Consumer, Producer, PushError, RingConfig, heap_ring};

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices::new(data);
    let config = RingConfig {
        slots: 1 << choices.below(6),
        slot_words: 1 + choices.below(20) as u32,
    };
    let (producer, consumer) = heap_ring(&config).expect("a small ring");
    let mut model = Model {
        producer,
        consumer,
        queue: VecDeque::new(),
        next_word: 1,
    };
    while let Some(operation) = choices.byte() {
        model.apply(operation, &mut choices);
        model.check();
    }
    model.finish();
});

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
        (0..words as u32).map(|n| first.wrapping_add(n)).collect()
    }

    /// The ring may be full to its knowledge only, which lags by less than the report batch.
    fn is_full_plausible(&self, pushed: usize) -> bool {
        let lag = tail_batch(self.producer.capacity()) as usize - 1;
        self.queue.len() + pushed + lag >= self.producer.capacity() as usize
    }

    fn apply(&mut self, operation: u8, choices: &mut Choices<'_>) {
        let words = choices.below(24);
        let fits = words <= self.producer.slot_words() as usize;
        match operation % 6 {
            0 => {
                let message = self.message(words);
                match self.producer.try_push(&message) {
                    Ok(()) => {
                        assert!(fits);
                        self.queue.push_back(message);
                    }
                    Err(error) => self.check_refusal(&error, fits),
                }
            }
            1 => {
                let count = choices.below(12);
                let messages: Vec<_> = (0..count).map(|_| self.message(words)).collect();
                let slices: Vec<&[u32]> = messages.iter().map(Vec::as_slice).collect();
                match self.producer.push_batch(&slices) {
                    Ok(pushed) => {
                        let pushed = pushed as usize;
                        assert!(pushed <= count && (fits || count == 0));
                        assert!(pushed == count || self.is_full_plausible(pushed));
                        self.queue.extend(messages.into_iter().take(pushed));
                    }
                    Err(error) => self.check_refusal(&error, fits),
                }
            }
            2 | 3 => {
                let popped = self.consumer.try_pop(<[u32]>::to_vec).expect("no fault");
                assert_eq!(popped, self.queue.pop_front());
            }
            4 => {
                let mut popped = Vec::new();
                let max = choices.below(12);
                let count = self
                    .consumer
                    .pop_batch(max as u32, |words| popped.push(words.to_vec()));
                let expected = self.queue.len().min(max);
                assert_eq!(count.expect("no fault") as usize, expected);
                assert!(popped.into_iter().eq(self.queue.drain(..expected)));
            }
            _ => {
                let free = self.producer.free_slots() as usize;
                let truth = self.producer.capacity() as usize - self.queue.len();
                let lag = tail_batch(self.producer.capacity()) as usize - 1;
                assert!(free <= truth && free + lag >= truth, "{free} of {truth}");
            }
        }
    }

    fn check_refusal(&self, error: &PushError, fits: bool) {
        match error {
            PushError::Full => assert!(self.is_full_plausible(0)),
            PushError::TooLong { .. } => assert!(!fits),
            other => panic!("{other}"),
        }
    }

    fn check(&mut self) {
        assert!(self.queue.len() <= self.producer.capacity() as usize);
        let written = self.consumer.popped() + self.queue.len() as u64;
        assert_eq!(self.producer.pushed(), written);
        assert_eq!(self.consumer.is_empty(), self.queue.is_empty());
    }

    /// Whatever is left comes out in order, and then the end is seen.
    fn finish(self) {
        let Self {
            producer,
            mut consumer,
            mut queue,
            ..
        } = self;
        drop(producer);
        while let Some(message) = queue.pop_front() {
            assert!(!consumer.is_finished());
            let popped = consumer.try_pop(<[u32]>::to_vec).expect("no fault");
            assert_eq!(popped, Some(message));
        }
        assert!(consumer.is_finished());
    }
}
