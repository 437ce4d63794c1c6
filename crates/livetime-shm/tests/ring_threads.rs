//! Two threads on one ring: nothing lost, torn, doubled or out of order. Also meant for
//! ThreadSanitizer, which sees both threads in one mapping.
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

use std::thread;

use livetime_shm::{Consumer, Producer, PushError, RingConfig, heap_ring, ring};

/// Fewer messages under Miri, which runs them ten thousand times slower.
const MESSAGES: u32 = if cfg!(miri) { 100 } else { 300_000 };

/// Message number `sequence`: its length, number, pattern and checksum all follow from it.
fn fill_message(sequence: u32, words: &mut [u32]) {
    let (last, body) = words.split_last_mut().expect("at least two words");
    let mut sum = 0u32;
    for (index, word) in (0..).zip(body.iter_mut()) {
        *word = sequence.wrapping_mul(2_654_435_761).wrapping_add(index);
        sum = sum.rotate_left(5) ^ *word;
    }
    *last = sum ^ sequence;
}

fn length_of(sequence: u32, slot_words: u32) -> usize {
    2 + (sequence.wrapping_mul(40_503) >> 3) as usize % (slot_words as usize - 1)
}

fn check_message(sequence: u32, words: &[u32], slot_words: u32) {
    assert_eq!(
        words.len(),
        length_of(sequence, slot_words),
        "length of message {sequence}"
    );
    let mut expected = vec![0; words.len()];
    fill_message(sequence, &mut expected);
    assert_eq!(words, expected, "message {sequence}");
}

fn produce(mut producer: Producer, batch: u32) {
    let slot_words = producer.slot_words();
    let mut sequence = 0;
    while sequence < MESSAGES {
        let pushed = if batch == 1 {
            let words = length_of(sequence, slot_words);
            producer
                .try_push_with(words, |slot| fill_message(sequence, slot))
                .map(|()| 1)
        } else {
            let messages: Vec<Vec<u32>> = (sequence..MESSAGES.min(sequence + batch))
                .map(|sequence| {
                    let mut words = vec![0; length_of(sequence, slot_words)];
                    fill_message(sequence, &mut words);
                    words
                })
                .collect();
            let slices: Vec<&[u32]> = messages.iter().map(Vec::as_slice).collect();
            producer.push_batch(&slices)
        };
        match pushed {
            Ok(count) => sequence += count,
            Err(PushError::Full) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn consume(mut consumer: Consumer, batch: u32) {
    let slot_words = consumer.slot_words();
    let mut sequence = 0;
    while sequence < MESSAGES {
        let mut check = |words: &[u32]| {
            check_message(sequence, words, slot_words);
            sequence += 1;
        };
        let popped = if batch == 1 {
            consumer.try_pop(&mut check).unwrap().is_some()
        } else {
            consumer.pop_batch(batch, &mut check).unwrap() > 0
        };
        if !popped {
            assert!(!consumer.is_finished() || sequence == MESSAGES);
            thread::yield_now();
        }
    }
    // The producer closes after its last message, maybe not yet.
    while !consumer.is_finished() {
        thread::yield_now();
    }
}

fn run(ends: (Producer, Consumer), push_batch: u32, pop_batch: u32) {
    let (producer, consumer) = ends;
    thread::scope(|scope| {
        scope.spawn(move || produce(producer, push_batch));
        scope.spawn(move || consume(consumer, pop_batch));
    });
}

#[test]
fn one_by_one_on_the_heap() {
    run(
        heap_ring(&RingConfig {
            slots: 8,
            slot_words: 14,
        })
        .unwrap(),
        1,
        1,
    );
}

#[test]
fn batches_on_the_heap() {
    run(
        heap_ring(&RingConfig {
            slots: 32,
            slot_words: 30,
        })
        .unwrap(),
        16,
        5,
    );
}

#[test]
fn single_slot_on_the_heap() {
    run(
        heap_ring(&RingConfig {
            slots: 1,
            slot_words: 5,
        })
        .unwrap(),
        1,
        3,
    );
}

#[test]
#[cfg_attr(miri, ignore = "no memory files under Miri")]
fn one_by_one_in_a_mapping() {
    run(
        ring(&RingConfig {
            slots: 64,
            slot_words: 34,
        })
        .unwrap(),
        1,
        1,
    );
}

#[test]
#[cfg_attr(miri, ignore = "no memory files under Miri")]
fn batches_in_a_mapping() {
    run(
        ring(&RingConfig {
            slots: 256,
            slot_words: 126,
        })
        .unwrap(),
        7,
        64,
    );
}

#[test]
fn a_closed_consumer_stops_the_producer() {
    let (mut producer, consumer) = heap_ring(&RingConfig {
        slots: 4,
        slot_words: 1,
    })
    .unwrap();
    producer.try_push(&[1]).unwrap();
    assert!(!producer.is_peer_closed());
    drop(consumer);
    assert!(producer.is_peer_closed());
    assert_eq!(producer.try_push(&[2]), Err(PushError::PeerGone));
    assert_eq!(producer.push_batch(&[&[3]]), Err(PushError::PeerGone));
}
