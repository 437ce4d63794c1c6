//! Cost of the event queue: nanoseconds per push and pop against the number of pending events.
//!
//! The hold model: pop the first event, push one a random time later, so that the number pending
//! stays. Delays are exponential-like with a mean of 1 us per 1000 pending, which is a fabric that
//! grows in nodes, and once more with a mean of 1 us for all, which is one that gets denser. Wheel
//! and heap take turns; the best of the repetitions is printed, since others share the machine.
//!
//! Run with `cargo run --release -p livetime-fabric --example queue_cost`.

use std::hint::black_box;
use std::time::Instant;

use livetime_fabric::random::{Purpose, RandomStreams};
use livetime_fabric::{EventClass, EventKey, EventQueue, NodeId, QueueKind, SimPs};

const OPERATIONS: u64 = 2_000_000;
const REPETITIONS: u32 = 3;
/// A power of two, so that going round costs nothing.
const DELAYS: usize = 1 << 16;

/// An event as large as a fabric's: a node, a kind, a packet.
type Event = [u32; 3];

/// Delays of exponential law, drawn beforehand: the generator is not what is measured.
fn delays(mean_ps: f64) -> Vec<u64> {
    let mut stream = RandomStreams::new(1).stream(NodeId(0), Purpose(0));
    let delay = |unit: f64| (-mean_ps * (1.0 - unit).ln()) as u64;
    (0..DELAYS).map(|_| delay(stream.unit())).collect()
}

fn nanoseconds_per_operation(kind: QueueKind, pending: u64, delays: &[u64]) -> f64 {
    let mut queue: EventQueue<Event> = EventQueue::new(kind);
    let mut sequence = 0;
    let mut next = |queue: &mut EventQueue<Event>, now: u64| {
        let time = SimPs(now + delays[sequence as usize % DELAYS]);
        queue.push(
            EventKey::new(time, EventClass(0), sequence),
            [1, 2, sequence as u32],
        );
        sequence += 1;
    };
    (0..pending).for_each(|_| next(&mut queue, 0));
    let mut hold = |operations: u64| {
        for _ in 0..operations {
            let Some((key, event)) = queue.pop_until(SimPs::MAX) else {
                return;
            };
            black_box(event);
            next(&mut queue, key.time.0);
        }
    };
    hold(pending.max(OPERATIONS / 10));
    let start = Instant::now();
    hold(OPERATIONS);
    start.elapsed().as_nanos() as f64 / OPERATIONS as f64
}

fn main() {
    println!(
        "{:>9}  {:>22}  {:>22}",
        "", "mean delay 1 ns/event", "mean delay 1 us"
    );
    println!(
        "{:>9}  {:>10}  {:>10}  {:>10}  {:>10}",
        "pending", "wheel", "heap", "wheel", "heap"
    );
    for pending in [1_000, 10_000, 100_000, 1_000_000] {
        print!("{pending:>9}");
        for mean_ps in [pending as f64 * 1e3, 1e6] {
            let delays = delays(mean_ps);
            let mut best = [f64::INFINITY; 2];
            for _ in 0..REPETITIONS {
                for (kind, best) in [QueueKind::Wheel, QueueKind::Heap].iter().zip(&mut best) {
                    *best = best.min(nanoseconds_per_operation(*kind, pending, &delays));
                }
            }
            print!("  {:>7.1} ns  {:>7.1} ns", best[0], best[1]);
        }
        println!();
    }
}
