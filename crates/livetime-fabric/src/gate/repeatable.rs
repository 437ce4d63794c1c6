//! Gate V12: the same run is the same run.

use crate::network::topology::Wiring;
use crate::network::{Load, Pattern, SizeLaw, Topology, Traffic, wormhole};
use crate::queue::QueueKind;
use crate::replica::run_all;
use crate::trace::TraceHash;

use super::{Extent, GateJob, GateRow};

/// Trace hashes of the cases of [`golden_hash`], the same on every machine and in every build.
pub const GOLDEN: [u64; 3] = [
    0xB9B8_F46F_D16F_935A,
    0x64F1_BB34_6947_7056,
    0x2963_2A65_CEDB_AA96,
];

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

/// Trace hash of a stored 16-port case: random traffic, event building, traffic of a trace file.
pub fn golden_hash(index: usize) -> TraceHash {
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
        for (index, stored) in GOLDEN.iter().enumerate() {
            assert_eq!(golden_hash(index), TraceHash(*stored), "case {index}");
        }
    }
}
