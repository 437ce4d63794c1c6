//! Gate V12: the same run is the same run.

use crate::builder_network::BuilderNetwork;
use crate::flit::{self, FlitConfig};
use crate::network::topology::Wiring;
use crate::network::{
    Arrival, BufferPlace, Buffering, FlowControl, Forwarding, Load, Pattern, Queueing, SizeLaw,
    Topology, Traffic, buffered, wormhole,
};
use crate::queue::QueueKind;
use crate::replica::run_all;
use crate::scenario::Switching;
use crate::time::DurationPs;
use crate::trace::TraceHash;

use super::{Extent, GateJob, GateRow};

/// Trace hashes of the cases of [`golden_hash`], the same on every machine and in every build.
pub const GOLDEN: [u64; 6] = [
    0xB9B8_F46F_D16F_935A,
    0x64F1_BB34_6947_7056,
    0x2963_2A65_CEDB_AA96,
    0x00C3_0DF1_7446_4EC9,
    0x3E36_0B91_CA0D_BFB7,
    0x5A84_144F_12DC_8905,
];

/// Elements of the cases with buffers.
const BUFFERS: Buffering = Buffering {
    forwarding: Forwarding::CutThrough,
    queueing: Queueing::InputFifo,
    place: BufferPlace::Input,
    bytes: 16 << 10,
    lanes: 1,
    flow: FlowControl::Credits,
};

pub(super) fn add_jobs(extent: Extent, jobs: &mut Vec<GateJob>) {
    jobs.push(GateJob::new("V12", golden));
    jobs.push(GateJob::new("V12", move || repetitions(extent)));
    jobs.push(GateJob::new("V12", move || queues(extent)));
    jobs.push(GateJob::new("V12", threads));
}

fn run_hash(topology: &Topology, load: &Load) -> TraceHash {
    wormhole::run(topology, load).trace_hash
}

fn case(ports: u32, traffic: Traffic, sizes: SizeLaw, times: u64) -> (Topology, Load) {
    let topology = if ports == 512 {
        Topology::delta(8, 3, &Wiring::Omega)
    } else {
        Topology::delta(4, 2, &Wiring::Natural)
    };
    let topology = topology.expect("ports in range");
    (topology, Load::saturated(traffic, sizes, times))
}

/// Trace hash of a stored 16-port case: random traffic, event building, traffic of a trace file; the
/// first of them through buffers and by flits; the event builder's protocol.
pub fn golden_hash(index: usize) -> TraceHash {
    let (topology, load) = case(
        16,
        Traffic::new(Pattern::Uniform),
        SizeLaw::Fixed(2048),
        300,
    );
    match index {
        0..=2 => golden_wormhole(index),
        3 => buffered::run(&topology, &load, &BUFFERS).trace_hash,
        4 => flit::run(&topology, &load, &FlitConfig::default()).trace_hash,
        _ => {
            let arrival = Arrival::Poisson {
                interval: DurationPs::from_us(200),
            };
            let load = Load { arrival, ..load };
            let builder = BuilderNetwork::default();
            let outcome = builder.run(&topology, &load, &Switching::Buffered(BUFFERS), 1);
            outcome.trace_hash
        }
    }
}

fn golden_wormhole(index: usize) -> TraceHash {
    let (topology, load) = match index {
        0 => case(
            16,
            Traffic::new(Pattern::Uniform),
            SizeLaw::Fixed(2048),
            300,
        ),
        1 => case(
            16,
            Traffic::new(Pattern::EventsPermuted).with_window(16),
            SizeLaw::Fixed(2048),
            300,
        ),
        _ => case(
            16,
            Traffic::new(Pattern::Uniform),
            SizeLaw::Trace(vec![64, 9000, 2048, 1500, 1, 700]),
            300,
        ),
    };
    run_hash(&topology, &load)
}

/// Against stored hashes: equal over machines, and over debug and release builds.
fn golden() -> Vec<GateRow> {
    let differing = (0..GOLDEN.len())
        .filter(|index| golden_hash(*index).0 != GOLDEN[*index])
        .count();
    vec![GateRow::equal(
        "V12",
        "16-port cases that differ from their stored trace".to_owned(),
        differing as f64,
        0.0,
    )]
}

fn distinct(hashes: &[TraceHash]) -> f64 {
    let mut sorted: Vec<u64> = hashes.iter().map(|hash| hash.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() as f64
}

fn repetitions(extent: Extent) -> Vec<GateRow> {
    let sizes = SizeLaw::LogNormal {
        mean: 2048.0,
        rms: 2048.0,
    };
    let times = extent.pick(100, 500);
    let (topology, load) = case(512, Traffic::new(Pattern::Uniform), sizes, times);
    let hashes = [0; 3].map(|_| run_hash(&topology, &load));
    let other = run_hash(&topology, &Load { seed: 2, ..load });
    vec![
        GateRow::equal(
            "V12",
            "different traces of 3 equal runs".to_owned(),
            distinct(&hashes),
            1.0,
        ),
        GateRow::equal(
            "V12",
            "different traces of 2 seeds".to_owned(),
            distinct(&[hashes[0], other]),
            2.0,
        ),
    ]
}

fn queues(extent: Extent) -> Vec<GateRow> {
    let sizes = SizeLaw::Exponential { mean: 2048.0 };
    let times = extent.pick(100, 500);
    let (topology, load) = case(512, Traffic::new(Pattern::Uniform), sizes, times);
    let hashes = [QueueKind::Wheel, QueueKind::Heap].map(|queue| {
        let load = Load {
            queue,
            ..load.clone()
        };
        run_hash(&topology, &load)
    });
    let check = "different traces of heap and wheel".to_owned();
    vec![GateRow::equal("V12", check, distinct(&hashes), 1.0)]
}

/// Replicas on 1, 2 and 4 threads.
fn threads() -> Vec<GateRow> {
    let all = [1, 2, 4].map(|threads| {
        let jobs: Vec<_> = (1..9)
            .map(|seed| {
                move || {
                    let sizes = SizeLaw::Fixed(2048);
                    let (topology, load) = case(16, Traffic::new(Pattern::Uniform), sizes, 500);
                    run_hash(&topology, &Load { seed, ..load })
                }
            })
            .collect();
        let hashes: Vec<TraceHash> = run_all(jobs, threads, |_| ());
        let sum = hashes.iter().fold(0_u64, |sum, hash| {
            sum.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ hash.0
        });
        TraceHash(sum)
    });
    let check = "different traces of 8 replicas on 1, 2 and 4 threads".to_owned();
    vec![GateRow::equal("V12", check, distinct(&all), 1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_traces_are_the_same_in_every_build() {
        let found: [u64; GOLDEN.len()] = std::array::from_fn(|index| golden_hash(index).0);
        assert_eq!(found, GOLDEN, "{found:#X?}");
    }
}
