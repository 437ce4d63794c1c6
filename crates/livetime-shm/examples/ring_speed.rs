//! Speed of a ring beside the bare cache line, at 34 and 126 words (136 and 504 bytes).
//!
//! Prints the one-way time of a ping-pong over two rings as a multiple of half the bare round
//! trip with the same bytes, measured before and after, and the time per message of a stream,
//! pushed and read one by one and in batches of 16. Options: `ring_speed [ROUNDS]`.

use std::error::Error;
use std::hint::{black_box, spin_loop};
use std::thread;

use livetime_shm::floor::{FloorError, Samples, cache_line_ping_pong};
use livetime_shm::{
    Consumer, Producer, RingConfig, TscClock, allowed_cpus, pin_current_thread, ring,
};

const BATCH: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args()
        .nth(1)
        .map_or(Ok(200_000), |text| text.parse())?;
    let allowed = allowed_cpus();
    let cpus = [allowed[0], allowed[allowed.len().min(2) - 1]];
    let slots: u32 = std::env::args()
        .nth(2)
        .map_or(Ok(256), |text| text.parse())?;
    let repeats: u32 = std::env::args().nth(3).map_or(Ok(5), |text| text.parse())?;
    println!("cores {cpus:?}, {rounds} rounds, times in ns");
    println!(
        "words   bare rtt  ring rtt p99/p50  one way / half bare    1 by 1       batch 16   ratio"
    );
    println!("        p50/ p50       p50                 p50  mean        p10/ p50     p10/ p50");
    for words in [34, 126] {
        for _ in 0..repeats {
            let before = cache_line_ping_pong(words * 4, rounds)?.round_trip;
            let ring = round_trip(slots, words, rounds, cpus)?;
            let after = cache_line_ping_pong(words * 4, rounds)?.round_trip;
            let single = stream(slots, words, rounds * 10, 1, cpus)?;
            let batch = stream(slots, words, rounds * 10, BATCH, cpus)?;
            let ns = |samples: &Samples, fraction| samples.quantile(fraction) as f64 / 1e3;
            println!(
                "{words:>5} {:>5}/{:>4} {:>9} {:>7.2} {:>11.2} {:>5.2} {:>10.1}/{:>5.1} \
                 {:>6.1}/{:>5.1} {:>5.2}",
                before.p50(),
                after.p50(),
                ring.p50(),
                ring.p99() as f64 / ring.p50() as f64,
                2.0 * ring.p50() as f64 / (before.p50() + after.p50()) as f64,
                2.0 * ring.mean() / (before.mean() + after.mean()),
                ns(&single, 0.1),
                ns(&single, 0.5),
                ns(&batch, 0.1),
                ns(&batch, 0.5),
                ns(&single, 0.5) / ns(&batch, 0.5),
            );
        }
    }
    Ok(())
}

/// Messages out and back, one in flight, copied in and out.
fn round_trip(
    slots: u32,
    words: usize,
    rounds: u32,
    cpus: [usize; 2],
) -> Result<Samples, Box<dyn Error>> {
    let config = RingConfig {
        slots,
        slot_words: words as u32,
    };
    let (mut there, mut there_end) = ring(&config)?;
    let (mut back, mut back_end) = ring(&config)?;
    let clock = TscClock::calibrate();
    let samples_ns = thread::scope(|scope| {
        scope.spawn(move || {
            pin_current_thread(cpus[1]).expect("an allowed core");
            let mut own = vec![0u32; words];
            for _ in 0..rounds {
                pop_into(&mut there_end, &mut own);
                back.try_push(&own).expect("one message in flight");
            }
        });
        let caller = scope.spawn(move || {
            pin_current_thread(cpus[0]).expect("an allowed core");
            let mut own: Vec<u32> = (0..words as u32).collect();
            let mut samples_ns = Vec::with_capacity(rounds as usize);
            for _ in 0..rounds {
                let start = clock.ticks();
                there.try_push(&own).expect("one message in flight");
                pop_into(&mut back_end, &mut own);
                samples_ns.push(clock.ticks_to_ns(clock.ticks() - start));
            }
            samples_ns
        });
        caller.join().map_err(|_| FloorError::Thread)
    })?;
    Ok(Samples::from_unsorted(samples_ns))
}

fn pop_into(consumer: &mut Consumer, own: &mut [u32]) {
    while consumer
        .try_pop(|words| own.copy_from_slice(words))
        .expect("own peer")
        .is_none()
    {
        spin_loop();
    }
}

/// Messages of a block: one time is taken for each.
const BLOCK: u32 = 1_000;

/// Picoseconds per message of a stream that the consumer copies out, block by block.
fn stream(
    slots: u32,
    words: usize,
    messages: u32,
    batch: u32,
    cpus: [usize; 2],
) -> Result<Samples, Box<dyn Error>> {
    let (producer, consumer) = ring(&RingConfig {
        slots,
        slot_words: words as u32,
    })?;
    let samples = thread::scope(|scope| {
        let reader = scope.spawn(move || {
            pin_current_thread(cpus[1]).expect("an allowed core");
            drain(consumer, words, messages, batch)
        });
        scope.spawn(move || {
            pin_current_thread(cpus[0]).expect("an allowed core");
            feed(producer, words, messages, batch);
        });
        reader.join().map_err(|_| FloorError::Thread)
    })?;
    Ok(Samples::from_unsorted(samples))
}

fn feed(mut producer: Producer, words: usize, messages: u32, batch: u32) {
    let own: Vec<u32> = (0..words as u32).collect();
    let mut left = messages;
    while left > 0 {
        let pushed = if batch == 1 {
            producer.try_push(black_box(&own)).map_or(0, |()| 1)
        } else {
            producer
                .push_batch_with(batch.min(left), words, |_, slot| {
                    slot.copy_from_slice(black_box(&own));
                })
                .unwrap_or(0)
        };
        if pushed == 0 {
            spin_loop();
        }
        left -= pushed;
    }
}

fn drain(mut consumer: Consumer, words: usize, messages: u32, batch: u32) -> Vec<u64> {
    let clock = TscClock::calibrate();
    let mut own = vec![0u32; words];
    let mut blocks = Vec::with_capacity((messages / BLOCK) as usize);
    let mut left = messages;
    let (mut block_start, mut block_left) = (clock.ticks(), left);
    while left > 0 {
        let mut copy = |words: &[u32]| {
            own.copy_from_slice(words);
            black_box(&mut own);
        };
        let popped = if batch == 1 {
            consumer
                .try_pop(&mut copy)
                .expect("own peer")
                .map_or(0, |()| 1)
        } else {
            consumer.pop_batch(batch, &mut copy).expect("own peer")
        };
        if popped == 0 {
            spin_loop();
        }
        left -= popped;
        if block_left - left >= BLOCK {
            let now = clock.ticks();
            let ps = clock.ticks_to_ns(now - block_start) * 1_000;
            blocks.push(ps / u64::from(block_left - left));
            (block_start, block_left) = (now, left);
        }
    }
    blocks
}
