//! The event builder's own protocol on large networks: what a simulated second costs on one core, and
//! what 10 ms of the largest one take.
//!
//! 100 kHz of 2 KiB (log-normal) over a delta network of three stages, barrel shifter, links of 2 Gb/s.
//! In 512 x 512 a short and a long run differ by steady operation alone, so that their difference is
//! what a millisecond of it costs. Memory is what the process grew by in its first run, a long one,
//! beside what the states of the protocol need at least: later runs find what the allocator keeps, and
//! what is reserved there counts although it is never touched. 4096 x 4096 runs from its beginning: all
//! units are made, and the first thousand events are on their way.

use std::time::Instant;

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{BuilderNetwork, BuilderNetworkOutcome, HostModel, Shaping};
use livetime_fabric::network::topology::Wiring;
use livetime_fabric::network::{Arrival, Load, Pattern, SizeLaw, Topology, Traffic};
use livetime_fabric::scenario::{ShiftOrder, Switching};
use serde_json::json;

use crate::bench::BenchError;
use crate::bench::document::{BenchDocument, Target, median, rounded};

const NODES: u64 = 512;
const CREDITS: u64 = 12;
const TRIGGERS_HZ: f64 = 100e3;
/// Nodes of the largest network, its simulated milliseconds, and what it may take: processor seconds
/// and bytes of the whole process.
const NODES_MOST: u64 = 4096;
const MOST_MS: u64 = 10;
const MOST_SECONDS_MAX: f64 = 60.0;
const MOST_BYTES_MAX: f64 = 2e9;
/// Simulated milliseconds of the short run: until blocks are as full as they get.
const SHORT_MS: u64 = 60;
/// Processor seconds for a simulated second that are allowed.
const SECONDS_MAX: f64 = 60.0;
/// Fragments and kernel events per second that must be reached.
const FRAGMENTS_PER_S: f64 = 2e6;
const EVENTS_PER_S: f64 = 10e6;

/// Adds results and targets of 512 x 512 to the document.
///
/// # Errors
/// [`BenchError::Simulation`] when a promise of the protocol is broken.
pub(super) fn add_steady(document: &mut BenchDocument, quick: bool) -> Result<(), BenchError> {
    let (radix, short, long, blocks) = match quick {
        true => (4, 20, 30, 1),
        false => (8, SHORT_MS, SHORT_MS + 40, 3),
    };
    let topology = three_stages(radix)?;
    let interval = DurationPs::from_ms(10);
    let before = resident_bytes();
    let (mut seconds, mut fragments, mut events) = (Vec::new(), Vec::new(), Vec::new());
    let mut peak = None;
    for _ in 0..blocks {
        let (second, long_s) = timed(&topology, interval, long)?;
        peak.get_or_insert_with(|| peak_bytes().saturating_sub(before));
        let (first, short_s) = timed(&topology, interval, short)?;
        let steady = (long_s - short_s).max(1e-9);
        seconds.push(steady / ((long - short) as f64 * 1e-3));
        let more = second.fragments_delivered - first.fragments_delivered;
        fragments.push(more as f64 / steady);
        events.push((second.events - first.events) as f64 / steady);
    }
    let per_second = median(&seconds);
    let peak = peak.unwrap_or(0);
    let nodes = u64::from(topology.sources());
    let needed = state_bytes(nodes);
    document.add_result(
        "builder",
        json!({
            "nodes": nodes,
            "processor_s_per_simulated_s": rounded(per_second),
            "fragments_per_s": rounded(median(&fragments)),
            "events_per_s": rounded(median(&events)),
            "bytes": peak,
            "bytes_of_states": needed,
            "blocks": blocks,
        }),
    );
    if nodes == NODES {
        let fragments = median(&fragments);
        document.add_target(Target::at_most("builder_512_s", per_second, SECONDS_MAX));
        document.add_target(Target::at_least(
            "builder_512_fragments",
            fragments,
            FRAGMENTS_PER_S,
        ));
        document.add_target(Target::at_least(
            "builder_512_events",
            median(&events),
            EVENTS_PER_S,
        ));
        let (peak, needed) = (peak as f64, needed as f64);
        document.add_target(Target::at_most("builder_512_bytes", peak, needed));
    }
    Ok(())
}

/// Adds what the first 10 ms of 4096 x 4096 take. The last thing measured: the memory is that of all.
///
/// # Errors
/// [`BenchError::Simulation`] when a promise of the protocol is broken.
pub(super) fn add_largest(document: &mut BenchDocument, quick: bool) -> Result<(), BenchError> {
    let topology = three_stages(if quick { 4 } else { 16 })?;
    let (outcome, seconds) = timed(&topology, DurationPs::from_ms(1), MOST_MS)?;
    let (nodes, bytes) = (u64::from(topology.sources()), peak_bytes());
    document.add_result(
        "largest_builder",
        json!({
            "nodes": nodes,
            "simulated_ms": MOST_MS,
            "processor_s": rounded(seconds),
            "triggers": outcome.triggers,
            "fragments_sent": outcome.fragments_sent,
            "events": outcome.events,
            "bytes_of_process": bytes,
        }),
    );
    if nodes == NODES_MOST {
        let limit = Target::at_most("builder_4096_bytes", bytes as f64, MOST_BYTES_MAX);
        document.add_target(limit);
        document.add_target(Target::at_most("builder_4096_s", seconds, MOST_SECONDS_MAX));
    }
    Ok(())
}

fn three_stages(radix: u32) -> Result<Topology, BenchError> {
    let topology = Topology::delta(radix, 3, &Wiring::Omega);
    topology.map_err(|error| BenchError::Simulation(error.to_string()))
}

/// A run of so many simulated milliseconds in which builder units look for work at this interval, and
/// the processor's seconds for it.
fn timed(
    topology: &Topology,
    interval: DurationPs,
    ms: u64,
) -> Result<(BuilderNetworkOutcome, f64), BenchError> {
    let sizes = SizeLaw::LogNormal {
        mean: 2048.0,
        rms: 1024.0,
    };
    let load = Load {
        arrival: Arrival::Poisson {
            interval: DurationPs((1e12 / TRIGGERS_HZ) as u64),
        },
        link_bits_per_s: 2_000_000_000,
        warm_up: DurationPs::ZERO,
        duration: DurationPs::from_ms(ms),
        ..Load::saturated(Traffic::new(Pattern::Uniform), sizes, 1)
    };
    let plan = BuilderNetwork {
        credits: CREDITS as u32,
        shaping: Shaping::BarrelShifter {
            block_bytes: 4096,
            order: ShiftOrder::ConflictFree,
        },
        hosts: HostModel {
            interval,
            ..HostModel::default()
        },
        ..BuilderNetwork::default()
    };
    let (start, spent) = (Instant::now(), processor_s());
    let outcome = plan.run(topology, &load, &Switching::Wormhole, 1);
    let seconds = match (spent, processor_s()) {
        (Some(before), Some(after)) => after - before,
        _ => start.elapsed().as_secs_f64(),
    };
    if !outcome.is_conserved() {
        let broken = outcome.violations.first().cloned();
        let broken = broken.unwrap_or_else(|| "fragments are not conserved".to_owned());
        return Err(BenchError::Simulation(broken));
    }
    Ok((outcome, seconds))
}

/// What the states need: 4 kB a node, 16 bytes for each event in a readout window, a bit for each
/// source of an open event in a builder unit, 8 bytes for each pair.
const fn state_bytes(nodes: u64) -> u64 {
    let open = nodes * CREDITS;
    2 * nodes * 4_000 + nodes * open * 16 + open * nodes / 8 + nodes * nodes * 8
}

/// Seconds for which this thread had a processor, where the kernel tells: what others on the machine
/// take is not the simulator's.
fn processor_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(ns as f64 * 1e-9)
}

fn status_bytes(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(key));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

fn peak_bytes() -> u64 {
    status_bytes("VmHWM:")
}
