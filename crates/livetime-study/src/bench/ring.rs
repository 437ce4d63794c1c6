//! `ring`: messages of 34 and 126 words between two threads, beside the bare cache line and `rtrb`.
//!
//! Measured: the round trip over two rings with one message in flight, copied in and out, and the
//! time per message of a stream, one by one and in batches of 16; the same streams over `rtrb` 0.4,
//! with its chunks as batches. All rings have 256 slots. The floor is the bare round trip that
//! carries the same bytes. Not measured: rings between processes, which are the same memory.

use std::hint::black_box;

use livetime_shm::floor::Samples;
use livetime_shm::{Consumer, Producer, RingConfig, TscClock, ring};
use serde_json::json;

use super::document::{BenchDocument, Target, latency, rounded};
use super::interleave::{LIKE_FLOORS, LineFloor, Selection, add_line_floor, interleave};
use super::pinned_threads::{Patience, run_pair};
use super::{BenchError, BenchOptions};

const SLOTS: u32 = 256;
const BATCH: u32 = 16;
/// Messages of a stream that share one time: long enough for the clock, short enough to fall
/// between two interruptions.
const CHUNK: u32 = 1_000;

struct Size {
    blocks: usize,
    round_trips: u32,
    messages: u32,
}

/// What one block measures: round trips in ns, streams in ps per message.
struct RingBlock {
    round_trip: Samples,
    single: Samples,
    batch: Samples,
    rtrb_single: Samples,
    rtrb_batch: Samples,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a message was lost.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let size = if options.quick {
        Size {
            blocks: 2,
            round_trips: 500,
            messages: 10_000,
        }
    } else {
        Size {
            blocks: 40,
            round_trips: 5_000,
            messages: 200_000,
        }
    };
    let mut document = BenchDocument::new("ring");
    measure::<34>(&size, &mut document, [1.3, 1.8])?;
    measure::<126>(&size, &mut document, [1.3, 1.3])?;
    Ok(document)
}

/// Measures messages of `WORDS` words; the targets are the one-way factor and the gain of a batch.
fn measure<const WORDS: usize>(
    size: &Size,
    document: &mut BenchDocument,
    [one_way_target, batch_target]: [f64; 2],
) -> Result<(), BenchError> {
    let bytes = WORDS * 4;
    let clock = TscClock::of_process();
    let level = |floor: &LineFloor| floor.of_bytes(bytes).p50() as f64;
    let measured = interleave(
        size.blocks,
        LIKE_FLOORS,
        || LineFloor::measure(&[bytes], size.round_trips),
        || block::<WORDS>(size, &clock),
        level,
    )?;
    let selection = measured.select(level, LineFloor::placement);
    let mut floors = BenchDocument::new("ring");
    add_line_floor(&mut floors, &selection);
    document.add_floor(format!("{bytes}_bytes"), floors.floor);

    let ns = |samples: &Samples| samples.p50() as f64 / 1e3;
    let ratio = |figure: fn(&RingBlock) -> (&Samples, &Samples)| {
        selection.quotient(|kept| {
            let (over, under) = figure(kept.block);
            (ns(over), ns(under))
        })
    };
    let one_way =
        selection.quotient(|kept| (kept.block.round_trip.p50() as f64, kept.floor(level)));
    let gain = ratio(|block| (&block.single, &block.batch));
    let against_rtrb = ratio(|block| (&block.rtrb_single, &block.single));
    let batch_against_rtrb = ratio(|block| (&block.rtrb_batch, &block.batch));
    add_results(document, bytes, &selection);
    for (name, quotient) in [
        ("one_way_to_half_floor", one_way),
        ("batch_16_gain", gain),
        ("rate_to_rtrb", against_rtrb),
        ("batch_16_rate_to_rtrb_chunks", batch_against_rtrb),
    ] {
        document.add_quotient(format!("{name}_{bytes}_bytes"), quotient);
    }
    let name = |what: &str| format!("{what}_{bytes}_bytes");
    for target in [
        Target::by_floor(name("one_way"), one_way.value(), one_way_target),
        Target::at_least(name("rate_to_rtrb"), against_rtrb.value(), 1.0),
        Target::at_least(name("batch_gain"), gain.value(), batch_target),
    ] {
        document.add_target(selection.judged(target));
    }
    Ok(())
}

fn add_results(
    document: &mut BenchDocument,
    bytes: usize,
    selection: &Selection<'_, LineFloor, RingBlock>,
) {
    let round_trip = selection.merged(|block| &block.round_trip);
    document.add_result(format!("round_trip_{bytes}_bytes_ns"), latency(&round_trip));
    for (name, samples) in [
        ("stream_single", selection.merged(|block| &block.single)),
        ("stream_batch_16", selection.merged(|block| &block.batch)),
        (
            "rtrb_stream_single",
            selection.merged(|block| &block.rtrb_single),
        ),
        (
            "rtrb_stream_chunk_16",
            selection.merged(|block| &block.rtrb_batch),
        ),
    ] {
        document.add_result(format!("{name}_{bytes}_bytes"), stream_json(&samples));
    }
}

/// Times per message of a stream; samples are picoseconds.
fn stream_json(samples: &Samples) -> serde_json::Value {
    let ns = |ps: u64| rounded(ps as f64 / 1e3);
    json!({
        "unit": "ns",
        "chunks": samples.count(),
        "messages_per_chunk": CHUNK,
        "min": ns(samples.min()),
        "p50": ns(samples.p50()),
        "p90": ns(samples.p90()),
        "p99": ns(samples.p99()),
        "p99_9": ns(samples.p99_9()),
        "max": ns(samples.max()),
        "per_s_at_p50": rounded(1e12 / samples.p50() as f64),
    })
}

fn block<const WORDS: usize>(size: &Size, clock: &TscClock) -> Result<RingBlock, BenchError> {
    let config = RingConfig {
        slots: SLOTS,
        slot_words: WORDS as u32,
    };
    let stream = |batch| {
        let (producer, consumer) = ring(&config)?;
        let count = size.messages;
        timed_stream(
            clock,
            count,
            |patience| feed::<WORDS>(producer, count, batch, patience),
            popper::<WORDS>(consumer, batch),
        )
    };
    let rtrb_stream = |batch: u32| {
        let (producer, consumer) = rtrb::RingBuffer::<[u32; WORDS]>::new(SLOTS as usize);
        let count = size.messages;
        timed_stream(
            clock,
            count,
            |patience| feed_rtrb(producer, count, batch as usize, patience),
            popper_rtrb(consumer, batch as usize),
        )
    };
    Ok(RingBlock {
        round_trip: round_trip::<WORDS>(&config, size.round_trips, clock)?,
        single: stream(1)?,
        batch: stream(BATCH)?,
        rtrb_single: rtrb_stream(1)?,
        rtrb_batch: rtrb_stream(BATCH)?,
    })
}

/// Messages out and back, one in flight, copied in and out, each checked.
fn round_trip<const WORDS: usize>(
    config: &RingConfig,
    rounds: u32,
    clock: &TscClock,
) -> Result<Samples, BenchError> {
    let (mut there, mut there_end) = ring(config)?;
    let (mut back, mut back_end) = ring(config)?;
    // Each thread owns its ends: side by side on one stack they would share cache lines.
    let (samples_ns, ()) = run_pair(
        move |mut patience| {
            let mut own = [0u32; WORDS];
            let mut samples_ns = Vec::with_capacity(rounds as usize);
            for round in 0..rounds {
                own[0] = round;
                let start = clock.ticks();
                there.try_push(&own)?;
                pop_into(&mut back_end, &mut own, &mut patience)?;
                samples_ns.push(clock.ticks_to_ns(clock.ticks().wrapping_sub(start)));
                check("round trips", own[0].into(), round.into())?;
            }
            Ok(samples_ns)
        },
        move |mut patience| {
            let mut own = [0u32; WORDS];
            for _ in 0..rounds {
                pop_into(&mut there_end, &mut own, &mut patience)?;
                back.try_push(&own)?;
            }
            Ok(())
        },
    )?;
    Ok(Samples::from_unsorted(samples_ns))
}

fn check(what: &'static str, found: u64, expected: u64) -> Result<(), BenchError> {
    if found == expected {
        Ok(())
    } else {
        Err(BenchError::Conservation {
            what,
            found,
            expected,
        })
    }
}

#[inline]
fn pop_into<const WORDS: usize>(
    consumer: &mut Consumer,
    own: &mut [u32; WORDS],
    patience: &mut Patience<'_>,
) -> Result<(), BenchError> {
    patience.restart();
    while consumer
        .try_pop(|words| own.copy_from_slice(words))?
        .is_none()
    {
        patience.idle()?;
    }
    Ok(())
}

/// Times the chunks of a stream at its receiving end: picoseconds per message. `pop` takes some
/// messages and returns how many, and the sum of their first words.
fn timed_stream(
    clock: &TscClock,
    messages: u32,
    feed: impl FnOnce(Patience<'_>) -> Result<(), BenchError> + Send,
    mut pop: impl FnMut() -> Result<(u32, u64), BenchError> + Send,
) -> Result<Samples, BenchError> {
    let ((), (chunks, sum)) = run_pair(feed, |mut patience| {
        let mut chunks = Vec::with_capacity((messages / CHUNK) as usize);
        let (mut left, mut sum) = (messages, 0u64);
        let (mut chunk_start, mut chunk_left) = (clock.ticks(), left);
        while left > 0 {
            let (popped, words) = pop()?;
            sum += words;
            if popped == 0 {
                patience.idle()?;
                continue;
            }
            left -= popped;
            if chunk_left - left >= CHUNK {
                let now = clock.ticks();
                let ns = clock.ticks_to_ns(now.wrapping_sub(chunk_start));
                chunks.push(ns * 1_000 / u64::from(chunk_left - left));
                (chunk_start, chunk_left) = (now, left);
                patience.restart();
            }
        }
        Ok((chunks, sum))
    })?;
    // Every message carries its number: whatever is lost, repeated or torn shows in the sum.
    let last = u64::from(messages);
    check("sum of message numbers", sum, last * (last - 1) / 2)?;
    Ok(Samples::from_unsorted(chunks))
}

fn feed<const WORDS: usize>(
    mut producer: Producer,
    messages: u32,
    batch: u32,
    mut patience: Patience<'_>,
) -> Result<(), BenchError> {
    let mut own: [u32; WORDS] = std::array::from_fn(|i| i as u32);
    let mut sent = 0;
    while sent < messages {
        let pushed = if batch == 1 {
            own[0] = sent;
            producer.try_push(black_box(&own)).map_or(0, |()| 1)
        } else {
            let wanted = batch.min(messages - sent);
            let fill = |index, slot: &mut [u32]| {
                own[0] = sent + index;
                slot.copy_from_slice(black_box(&own));
            };
            producer.push_batch_with(wanted, WORDS, fill).unwrap_or(0)
        };
        if pushed == 0 {
            patience.idle()?;
        } else {
            patience.restart();
        }
        sent += pushed;
    }
    Ok(())
}

fn popper<const WORDS: usize>(
    mut consumer: Consumer,
    batch: u32,
) -> impl FnMut() -> Result<(u32, u64), BenchError> {
    let mut own = [0u32; WORDS];
    move || {
        let mut sum = 0;
        let mut copy = |words: &[u32]| {
            own.copy_from_slice(words);
            sum += u64::from(black_box(&own)[0]);
        };
        let popped = if batch == 1 {
            consumer.try_pop(&mut copy)?.map_or(0, |()| 1)
        } else {
            consumer.pop_batch(batch, &mut copy)?
        };
        Ok((popped, sum))
    }
}

fn feed_rtrb<const WORDS: usize>(
    mut producer: rtrb::Producer<[u32; WORDS]>,
    messages: u32,
    batch: usize,
    mut patience: Patience<'_>,
) -> Result<(), BenchError> {
    let mut own: [u32; WORDS] = std::array::from_fn(|i| i as u32);
    let mut sent = 0;
    while sent < messages {
        let pushed = if batch == 1 {
            own[0] = sent;
            u32::from(producer.push(*black_box(&own)).is_ok())
        } else {
            let wanted = batch.min((messages - sent) as usize).min(producer.slots());
            match producer.write_chunk_uninit(wanted) {
                Ok(chunk) => chunk.fill_from_iter((sent..).map(|number| {
                    own[0] = number;
                    *black_box(&own)
                })) as u32,
                Err(_) => 0,
            }
        };
        if pushed == 0 {
            patience.idle()?;
        } else {
            patience.restart();
        }
        sent += pushed;
    }
    Ok(())
}

fn popper_rtrb<const WORDS: usize>(
    mut consumer: rtrb::Consumer<[u32; WORDS]>,
    batch: usize,
) -> impl FnMut() -> Result<(u32, u64), BenchError> {
    move || {
        if batch == 1 {
            let popped = consumer.pop();
            return Ok(popped.map_or((0, 0), |own| (1, u64::from(black_box(&own)[0]))));
        }
        let mut sum = 0;
        let mut count = 0;
        let wanted = batch.min(consumer.slots());
        if let Ok(chunk) = consumer.read_chunk(wanted) {
            for own in chunk {
                sum += u64::from(black_box(&own)[0]);
                count += 1;
            }
        }
        Ok((count, sum))
    }
}
