//! Speed and memory of the event builder's protocol on a network of 512 x 512, or another size.
//!
//! Run with `cargo run --release -p livetime-fabric --example network_builder_speed -- 8 3 50` for a delta
//! of 3 stages of 8 x 8 and 50 ms. A fourth number is the credits of a builder unit, a fifth the
//! bytes of a block, 0 for fragments that are not shaped.

use std::time::Instant;

use livetime_fabric::DurationPs;
use livetime_fabric::builder_network::{BuilderNetwork, HostModel, Shaping};
use livetime_fabric::network::topology::Wiring;
use livetime_fabric::network::{Arrival, Load, Pattern, SizeLaw, Topology, Traffic};
use livetime_fabric::scenario::{ShiftOrder, Switching};

fn main() {
    let numbers: Vec<u32> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let [radix, stages, ms, credits, block_bytes] = [0, 1, 2, 3, 4].map(|n| {
        let default = [8, 3, 50, 12, 4096][n];
        numbers.get(n).copied().unwrap_or(default)
    });
    let topology = Topology::delta(radix, stages, &Wiring::Omega).expect("a delta");
    let sizes = SizeLaw::LogNormal {
        mean: 2048.0,
        rms: 1024.0,
    };
    let load = Load {
        arrival: Arrival::Poisson {
            interval: DurationPs::from_us(10),
        },
        link_bits_per_s: 2_000_000_000,
        warm_up: DurationPs::ZERO,
        duration: DurationPs::from_ms(ms.into()),
        ..Load::saturated(Traffic::new(Pattern::Uniform), sizes, 1)
    };
    let plan = BuilderNetwork {
        credits,
        shaping: match block_bytes {
            0 => Shaping::None,
            block_bytes => Shaping::BarrelShifter {
                block_bytes,
                order: ShiftOrder::ConflictFree,
            },
        },
        hosts: HostModel {
            message: DurationPs::from_us(2),
            interval: DurationPs::from_ms(10),
            ..HostModel::default()
        },
        ..BuilderNetwork::default()
    };
    let start = Instant::now();
    let outcome = plan.run(&topology, &load, &Switching::Wormhole, 1);
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!(
        "{seconds:.2} s for {ms} ms, {:.2} M events/s, {:.2} M fragments/s; built {} of {}, refused \
         {}, fill {:.3}, {} messages, held {}, latency p50 {} ms, {:?}, {:?}",
        outcome.events as f64 / seconds / 1e6,
        outcome.fragments_delivered as f64 / seconds / 1e6,
        outcome.events_built,
        outcome.triggers,
        outcome.refused,
        outcome.block_fill,
        outcome.messages,
        outcome.held_max,
        outcome.latency_ns.value_at_quantile(0.5) / 1_000_000,
        outcome.violations,
        peak,
    );
}
