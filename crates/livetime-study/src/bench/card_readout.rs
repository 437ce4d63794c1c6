//! `readout --channels`: cards at a rate or as fast as they go, and what blocks of entries gain.
//!
//! Streams of [`super::card_stream`] beside a plain stream of messages as long as the fragments
//! through a ring, written by one core and read by the other. Single-cycle firmware and DMA protocol
//! take turns, so that both see the same machine, and turns with the cores at another place are not
//! put together. Not measured: cards, buses and fibres, which
//! `livetime study filar` models.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use livetime_shm::{RingConfig, ring};
use serde_json::{Value, json};

use super::card_stream::{Stream, Streamed, stream};
use super::document::{BenchDocument, Quotient, Target, rounded};
use super::interleave::{LIKE_FLOORS, LineFloor, floors_agree, interleave};
use super::pinned_threads::run_pair;
use super::{BenchError, BenchOptions};

/// Entries of a block of the DMA protocol.
pub const BATCH: usize = 16;
/// The slides' system: four single-cycle cards, fragments of 1 kB at 100 kHz.
const CHANNELS: usize = 12;
const BYTES: usize = 1000;
/// Twice the slides' fragments per second.
const TARGET_PER_S: f64 = 2.4e6;
/// Sizes at which the firmwares are compared; the gain has a target up to `SMALL_BYTES`.
const SIZES: [usize; 4] = [256, 512, 1024, 4096];
const SMALL_BYTES: usize = 512;
const FLOOR_ROUNDS: u32 = 5_000;

/// What `--channels` and its companions ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CardOptions {
    /// Channels.
    pub channels: usize,
    /// Bytes of a fragment.
    pub bytes: usize,
    /// Entries of a block, 1 for the single-cycle firmware.
    pub batch: usize,
    /// Fragments per second and channel; as fast as it goes without.
    pub rate_hz: Option<f64>,
    /// For how many seconds.
    pub seconds: f64,
}

/// Measures one setting.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when counts are not conserved.
pub fn run(cards: &CardOptions, options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let mut document = BenchDocument::new("readout");
    let floor_seconds = if options.quick { 0.01 } else { 0.3 };
    let before = ring_stream(cards.bytes, floor_seconds)?;
    let streamed = stream(&Stream {
        channels: cards.channels,
        bytes: cards.bytes,
        batch: cards.batch,
        rate_hz: cards.rate_hz,
        seconds: cards.seconds,
    })?;
    let after = ring_stream(cards.bytes, floor_seconds)?;
    document.add_floor("ring_stream_per_s", json!([before.round(), after.round()]));
    let floors_agree = floors_agree(before, after);
    document.add_floor("floors_agree", floors_agree);
    document.add_result("stream", to_json(&streamed, cards.bytes));
    let lost = streamed.sent_total().abs_diff(streamed.filed) + streamed.lost;
    document.add_target(Target::at_most("fragments_lost", lost as f64, 0.0));
    let damaged = streamed.flagged as f64;
    document.add_target(Target::at_most("fragments_damaged", damaged, 0.0));
    match cards.rate_hz {
        Some(rate) => {
            let slowest = streamed.sent.iter().min().copied().unwrap_or(0);
            let share = slowest as f64 / streamed.seconds / rate;
            document.add_target(Target::at_least("rate_share_slowest_channel", share, 0.99));
        }
        None => {
            let share = Quotient {
                over: streamed.per_s(),
                under: (before + after) / 2.0,
            };
            document.add_quotient("ring_stream_share", share);
            if (cards.channels, cards.bytes) == (CHANNELS, BYTES) {
                let target = Target::at_least("fragments_per_s", streamed.per_s(), TARGET_PER_S);
                document.add_target(target.where_floors_agree(floors_agree));
            }
            if cards.bytes >= 4096 {
                let target = Target::at_least("ring_stream_share", share.value(), 0.5);
                document.add_target(target.where_floors_agree(floors_agree));
            }
        }
    }
    Ok(document)
}

fn to_json(streamed: &Streamed, bytes: usize) -> Value {
    let per_s = streamed.per_s();
    json!({
        "seconds": rounded(streamed.seconds),
        "fragments": streamed.filed,
        "per_s": rounded(per_s),
        "mb_per_s": rounded(per_s * bytes as f64 / 1e6),
        "fewest_of_a_channel": streamed.sent.iter().min(),
        "most_of_a_channel": streamed.sent.iter().max(),
        "xoff_share": rounded(streamed.xoff_share),
        "caught_up": streamed.caught_up,
        "host_ns_per_fragment": rounded(streamed.host_ns),
        "fragments_per_block": rounded(streamed.filed as f64 / streamed.blocks.max(1) as f64),
    })
}

/// Adds the cards to the document of `readout`.
///
/// # Errors
/// As [`run`].
pub(super) fn add_cards(
    document: &mut BenchDocument,
    options: &BenchOptions,
) -> Result<(), BenchError> {
    let mut measure = |bytes: usize| add_firmwares(document, bytes, options.quick);
    let usual = measure(BYTES)?;
    let (mut gain_of_small, mut share_of_long) = (f64::INFINITY, f64::INFINITY);
    let (mut small_agree, mut long_agree) = (true, true);
    for bytes in SIZES {
        let firmwares = measure(bytes)?;
        if bytes <= SMALL_BYTES {
            gain_of_small = gain_of_small.min(firmwares.gain);
            small_agree &= firmwares.floors_agree;
        } else if bytes >= 4096 {
            share_of_long = share_of_long.min(firmwares.ring_share);
            long_agree &= firmwares.floors_agree;
        }
    }
    for (name, value, target, floors_agree) in [
        (
            "cards_fragments_per_s",
            usual.per_s,
            TARGET_PER_S,
            usual.floors_agree,
        ),
        ("dma_gain_small", gain_of_small, 1.25, small_agree),
        ("cards_ring_share_4_kib", share_of_long, 0.5, long_agree),
    ] {
        let target = Target::at_least(name, value, target);
        document.add_target(target.where_floors_agree(floors_agree));
    }
    Ok(())
}

/// Both firmwares at one size.
struct Firmwares {
    /// Fragments per second with the single-cycle firmware.
    per_s: f64,
    /// Of the DMA protocol over it.
    gain: f64,
    /// Of the single-cycle firmware over the plain stream.
    ring_share: f64,
    floors_agree: bool,
}

/// What one turn measured.
struct Turn {
    ring_per_s: f64,
    single: Streamed,
    dma: Streamed,
}

/// Measures both firmwares by turns, and adds them to the document.
fn add_firmwares(
    document: &mut BenchDocument,
    bytes: usize,
    quick: bool,
) -> Result<Firmwares, BenchError> {
    let (turns, seconds) = if quick { (1, 0.01) } else { (8, 0.2) };
    let of = |batch: usize| Stream {
        channels: CHANNELS,
        bytes,
        batch,
        rate_hz: None,
        seconds,
    };
    let mut is_dma_first = false;
    let measured = interleave(
        turns,
        LIKE_FLOORS,
        || LineFloor::measure(&[], FLOOR_ROUNDS),
        || {
            let ring_per_s = ring_stream(bytes, seconds / 4.0)?;
            // Each comes first as often: a machine that changes meanwhile favours neither.
            is_dma_first = !is_dma_first;
            let (single, dma) = if is_dma_first {
                let dma = stream(&of(BATCH))?;
                (stream(&of(1))?, dma)
            } else {
                (stream(&of(1))?, stream(&of(BATCH))?)
            };
            single.check()?;
            dma.check()?;
            Ok(Turn {
                ring_per_s,
                single,
                dma,
            })
        },
        LineFloor::bare_p50,
    )?;
    let selection = measured.select(LineFloor::bare_p50, LineFloor::placement);
    if let Some(last) = selection.kept.last() {
        let name = format!("cards_{bytes}_bytes_dma");
        document.add_result(name, to_json(&last.block.dma, bytes));
        let floor = json!({
            "placement": last.before.placement().key(),
            "cache_line_p50_ns": selection.median(|kept| kept.floor(LineFloor::bare_p50)),
            "blocks": selection.to_json(),
        });
        document.add_floor(format!("cards_{bytes}_bytes"), floor);
    }
    let single = |turn: &Turn| turn.single.per_s();
    let gain = selection.quotient(|kept| (kept.block.dma.per_s(), single(kept.block)));
    let share = selection.quotient(|kept| (single(kept.block), kept.block.ring_per_s));
    let per_s = selection.median(|kept| single(kept.block));
    document.add_result(format!("cards_{bytes}_bytes_per_s"), rounded(per_s));
    document.add_quotient(format!("dma_gain_{bytes}_bytes"), gain);
    document.add_quotient(format!("cards_ring_share_{bytes}_bytes"), share);
    Ok(Firmwares {
        per_s,
        gain: gain.value(),
        ring_share: share.value(),
        floors_agree: !selection.unlike,
    })
}

/// Messages of `bytes` per second through a ring, written and read word by word.
///
/// # Errors
/// [`BenchError`] when the machine refuses something.
pub fn ring_stream(bytes: usize, seconds: f64) -> Result<f64, BenchError> {
    // Half a MiB in flight, which the caches of both cores hold, and no fewer than 16 messages.
    let (mut producer, mut consumer) = ring(&RingConfig {
        slots: ((512 << 10) / bytes.max(64))
            .next_power_of_two()
            .clamp(16, 4096) as u32,
        slot_words: (bytes / 4) as u32,
    })?;
    let message = vec![0x5A5A_A5A5_u32; bytes / 4];
    let total = AtomicU64::new(u64::MAX);
    let (elapsed, count) = run_pair(
        |mut patience| {
            let start = Instant::now();
            let mut pushed = 0_u64;
            while start.elapsed().as_secs_f64() < seconds {
                if producer.has_room() {
                    producer.try_push(&message)?;
                    pushed += 1;
                    patience.restart();
                } else {
                    patience.idle()?;
                }
            }
            // Release pairs with the Acquire below.
            total.store(pushed, Ordering::Release);
            Ok(start.elapsed().as_secs_f64())
        },
        |mut patience| {
            let mut popped = 0_u64;
            while popped < total.load(Ordering::Acquire) {
                let sum = consumer.try_pop(|words| {
                    words
                        .iter()
                        .fold(0_u32, |sum, word| sum.wrapping_add(*word))
                })?;
                if let Some(sum) = sum {
                    std::hint::black_box(sum);
                    popped += 1;
                    patience.restart();
                } else {
                    patience.idle()?;
                }
            }
            Ok(popped)
        },
    )?;
    Ok(count as f64 / elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_is_kept_meets_the_targets_and_nothing_is_lost() {
        let cards = CardOptions {
            channels: 2,
            bytes: 1000,
            batch: BATCH,
            rate_hz: Some(1000.0),
            seconds: 0.05,
        };
        let options = BenchOptions {
            quick: true,
            realtime: false,
            directory: ".".into(),
            machine: json!({}),
        };
        let document = run(&cards, &options).unwrap();
        assert_eq!(document.result["stream"]["fragments"], 100);
        assert!(document.floor["floors_agree"].is_boolean());
        let counted = |name: &str| {
            let mut targets = document.targets.iter();
            targets.find(|target| target.name == name).unwrap().value
        };
        assert_eq!(
            counted("fragments_lost") + counted("fragments_damaged"),
            0.0
        );
        assert!(counted("rate_share_slowest_channel") > 0.0);
    }
}
