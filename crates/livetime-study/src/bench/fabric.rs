//! `fabric`: speed of the network simulator, beside a plain binary heap of the standard library.
//!
//! One thread simulates saturated random traffic: packets without buffers on a delta network of 512
//! ports and 8 x 8 crossbars, packets with buffers on the same, and flits through one router of 16
//! ports. The floor is what an event costs in a heap of a thousand; blocks of both take turns. The
//! simulated figures themselves are not judged here: `livetime sim gates` does that. What the event
//! builder's protocol costs in 512 x 512 and 4096 x 4096 is in `large_builder`; a simulator of others
//! beside ours in `caminos`.

mod caminos;
mod large_builder;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use livetime_fabric::flit::{self, FlitConfig};
use livetime_fabric::network::topology::Wiring;
use livetime_fabric::network::{
    BufferPlace, Buffering, FlowControl, Forwarding, Load, NetworkOutcome, Pattern, Queueing,
    SizeLaw, Topology, TopologyError, Traffic, buffered, wormhole,
};
use serde_json::json;

use super::document::{BenchDocument, Target, median, rounded};
use super::{BenchError, BenchOptions};

/// Events in the heap of the floor.
const PENDING: u64 = 1_000;
/// Packets per second that the simulator must reach on the large delta network.
const PACKETS_PER_S: f64 = 2e6;
/// Flits of a packet at the level of flits, and ports of its router.
const FLITS: u32 = 256;
const PORTS: u32 = 16;

/// One thing that is simulated, and what it counts in a second.
struct Case {
    name: &'static str,
    run: Box<dyn Fn() -> (f64, NetworkOutcome)>,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when packets are not conserved.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let (blocks, scale) = if options.quick { (1, 1) } else { (5, 10) };
    let cases = cases(scale).map_err(|error| BenchError::Simulation(error.to_string()))?;
    let mut document = BenchDocument::new("fabric");
    // First, as it measures memory: what the allocator keeps of other cases is not to hide it.
    large_builder::add_steady(&mut document, options.quick)?;
    let mut floors = vec![heap_ns(scale)];
    for case in &cases {
        let mut rates = Vec::new();
        let mut events = Vec::new();
        for _ in 0..blocks {
            let start = Instant::now();
            let (items, outcome) = (case.run)();
            let seconds = start.elapsed().as_secs_f64();
            if !outcome.is_conserved() {
                return Err(BenchError::Conservation {
                    what: "packets delivered, lost and in the network",
                    found: outcome.packets_in_all
                        + outcome.packets_lost
                        + outcome.packets_in_flight,
                    expected: outcome.packets_offered,
                });
            }
            rates.push(items / seconds);
            events.push(seconds * 1e9 / outcome.events.max(1) as f64);
            floors.push(heap_ns(scale));
        }
        let rate = median(&rates);
        let ns_per_event = median(&events);
        document.add_result(
            case.name,
            json!({
                "per_s": rounded(rate),
                "ns_per_event": rounded(ns_per_event),
                "blocks": blocks,
            }),
        );
        document.add_ratio(
            format!("{}_event_over_heap", case.name),
            ns_per_event / median(&floors),
        );
        if case.name == "packets_delta_512" {
            document.add_target(Target::at_least(case.name, rate, PACKETS_PER_S));
        }
    }
    document.add_floor("heap_1000_ns_per_event", rounded(median(&floors)));
    let router = Topology::crossbar(PORTS);
    let router = router.map_err(|error| BenchError::Simulation(error.to_string()))?;
    caminos::add(&mut document, options, || {
        let start = Instant::now();
        let outcome = router_of_flits(&router, scale);
        let flits = outcome.packets_in_all as f64 * f64::from(FLITS);
        flits / start.elapsed().as_secs_f64()
    })?;
    large_builder::add_largest(&mut document, options.quick)?;
    Ok(document)
}

fn cases(scale: u64) -> Result<Vec<Case>, TopologyError> {
    let delta = Topology::delta(8, 3, &Wiring::Omega)?;
    let router = Topology::crossbar(PORTS)?;
    let load = move |sizes, times| Load::saturated(Traffic::new(Pattern::Uniform), sizes, times);
    let log_normal = SizeLaw::LogNormal {
        mean: 2048.0,
        rms: 2048.0,
    };
    let fixed = load(SizeLaw::Fixed(2048), 150 * scale);
    let varied = load(log_normal, 150 * scale);
    let buffers = Buffering {
        forwarding: Forwarding::CutThrough,
        queueing: Queueing::InputFifo,
        place: BufferPlace::Input,
        bytes: 64 << 10,
        lanes: 1,
        flow: FlowControl::Credits,
    };
    let packets = |outcome: NetworkOutcome| (outcome.packets_in_all as f64, outcome);
    let (first, second) = (delta.clone(), delta.clone());
    let buffered_load = load(SizeLaw::Fixed(2048), 20 * scale);
    Ok(vec![
        Case {
            name: "packets_delta_512",
            run: Box::new(move || packets(wormhole::run(&first, &fixed))),
        },
        Case {
            name: "packets_delta_512_log_normal",
            run: Box::new(move || packets(wormhole::run(&second, &varied))),
        },
        Case {
            name: "packets_delta_512_buffers",
            run: Box::new(move || packets(buffered::run(&delta, &buffered_load, &buffers))),
        },
        Case {
            name: "flits_router_16",
            run: Box::new(move || {
                let outcome = router_of_flits(&router, scale);
                (outcome.events as f64, outcome)
            }),
        },
    ])
}

/// One router at saturation, flit by flit.
fn router_of_flits(router: &Topology, scale: u64) -> NetworkOutcome {
    let config = FlitConfig::default();
    let size = SizeLaw::Fixed(config.flit_bytes * FLITS);
    let load = Load::saturated(Traffic::new(Pattern::Uniform), size, 40 * scale);
    flit::run(router, &load, &config)
}

/// Nanoseconds for a pop and a push in a heap of [`PENDING`] events at random times.
fn heap_ns(scale: u64) -> f64 {
    let rounds = 20_000 * scale;
    let mut state = 0x243F_6A88_85A3_08D3_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 44
    };
    let mut heap: BinaryHeap<Reverse<(u64, u64)>> =
        (0..PENDING).map(|i| Reverse((random(), i))).collect();
    let start = Instant::now();
    for sequence in 0..rounds {
        if let Some(Reverse((time, _))) = heap.pop() {
            heap.push(Reverse((time + random(), sequence)));
        }
    }
    start.elapsed().as_nanos() as f64 / rounds as f64
}
