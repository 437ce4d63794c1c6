//! Gates V9 and V11: models that must agree with each other.

use crate::flit::{self, FlitConfig};
use crate::network::topology::{Graph, Wiring};
use crate::network::{Load, Pattern, RoutePolicy, SizeLaw, Topology, Traffic, wormhole};

use crate::time::DurationPs;

use super::{Extent, GateJob, GateRow, NamedTopology};

pub(super) fn add_jobs(extent: Extent, jobs: &mut Vec<GateJob>) {
    let patterns: [(&'static str, Traffic); 4] = [
        ("events in order", Traffic::new(Pattern::EventsInOrder)),
        (
            "events to random builders, window 512",
            Traffic::new(Pattern::EventsRandom).with_window(512),
        ),
        (
            "events permuted, window 512",
            Traffic::new(Pattern::EventsPermuted).with_window(512),
        ),
        ("random", Traffic::new(Pattern::Uniform)),
    ];
    for (name, traffic) in patterns {
        jobs.push(GateJob::new("V9", move || {
            four_layer_is_delta(name, traffic, extent)
        }));
    }
    for (name, make) in FLIT_NETWORKS {
        let all: &[u32] = extent_pick(extent, &[256], &[128, 256, 512]);
        for flits in all {
            jobs.push(GateJob::new("V11", move || {
                flits_and_packets(name, &make(), *flits, extent)
            }));
        }
    }
}

/// Networks of gate V11.
const FLIT_NETWORKS: [NamedTopology; 6] = [
    ("crossbar 8", || Topology::crossbar(8).expect("in range")),
    ("delta 4x4, 16 ports", || delta(2)),
    ("delta 4x4, 64 ports", || delta(3)),
    ("4 layers, 64 ports", || {
        Topology::four_layer(4).expect("in range")
    }),
    ("two levels, trunks of 4 links, 16 ports", || {
        Topology::two_level(4, 4, 2, 4).expect("in range")
    }),
    ("links of several rates and lengths, 8 ports", unlike_links),
];

/// Three switches with nodes of several rates, and a slow, a fast and a long link between them.
fn unlike_links() -> Topology {
    let text = "switch a\nswitch b\nswitch c\n\
                node n0 a\nnode n1 a rate=500Mb/s\nnode n2 a delay=128ns\n\
                node n3 b\nnode n4 b rate=500Mb/s\nnode n5 b delay=128ns\n\
                node n6 c\nnode n7 c\n\
                link a b rate=600Mb/s delay=192ns\nlink b c rate=3Gb/s\nlink a c 4\n";
    let graph = Graph::parse(text).expect("a good graph");
    Topology::graph(&graph).expect("in range")
}

fn delta(stages: u32) -> Topology {
    Topology::delta(4, stages, &Wiring::Omega).expect("in range")
}

const fn extent_pick<T: ?Sized>(extent: Extent, quick: &'static T, full: &'static T) -> &'static T {
    match extent {
        Extent::Quick => quick,
        Extent::Full => full,
    }
}

/// Flits with small buffers against packets that hold and wait, a hop being a flit's time.
fn flits_and_packets(name: &str, topology: &Topology, flits: u32, extent: Extent) -> Vec<GateRow> {
    let config = FlitConfig::default();
    let cycles = extent.pick(6_000_000, 24_000_000) / u64::from(topology.sources());
    let times = (cycles / u64::from(flits)).max(100);
    let sizes = SizeLaw::Fixed(flits * config.flit_bytes);
    let load = Load::saturated(Traffic::new(Pattern::Uniform), sizes, times);
    let by_flit = flit::run(topology, &load, &config).efficiency_link.mean;
    let hop_delay = DurationPs::for_bits(u64::from(config.flit_bytes) * 8, load.link_bits_per_s);
    let duration = load.duration * 3;
    let load = Load {
        hop_delay,
        duration,
        ..load
    };
    let by_packet = wormhole::run(topology, &load).efficiency_link.mean;
    let check = format!("flits (value) and packets (reference), {name}, {flits} flits");
    vec![GateRow::near("V11", check, by_flit, by_packet, 0.015)]
}

/// With routes by source port the 4-layer network is the delta whose sources have their first two
/// digits exchanged: its first stage is free of contention.
fn four_layer_is_delta(name: &str, traffic: Traffic, extent: Extent) -> Vec<GateRow> {
    let delta = Topology::delta(8, 3, &Wiring::Swapped);
    let (Ok(four), Ok(delta)) = (Topology::four_layer(8), delta) else {
        return Vec::new();
    };
    let times = extent.pick(150, 1_000);
    let load = Load {
        routes: RoutePolicy::BySourcePort,
        ..Load::saturated(traffic, SizeLaw::Fixed(2048), times)
    };
    let (four, delta) = (wormhole::run(&four, &load), wormhole::run(&delta, &load));
    let differs = four.trace_hash != delta.trace_hash || four.series != delta.series;
    vec![
        GateRow::equal(
            "V9",
            format!("4 layers and swapped delta differ, {name}"),
            f64::from(u8::from(differs)),
            0.0,
        ),
        GateRow::equal(
            "V9",
            format!("packets of 4 layers and of the swapped delta, {name}"),
            four.packets_in_all as f64,
            delta.packets_in_all as f64,
        ),
    ]
}
