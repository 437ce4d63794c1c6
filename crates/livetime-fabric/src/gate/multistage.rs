//! Gates V5, V6, V8 and V10: networks of several stages.

use crate::cell::{BufferedDelta, Refill};
use crate::network::topology::Wiring;
use crate::network::topology::shift::ShiftSchedule;
use crate::network::{Arbiter, Load, Pattern, RoutePolicy, SizeLaw, Topology, Traffic, wormhole};
use crate::time::DurationPs;

use super::{Extent, GateJob, GateRow, NamedTopology, random_traffic};

/// Packet of the wormhole gates, bytes: long, so that whole bytes and picoseconds do not matter.
const PACKET: u32 = 65_536;
/// Depths of the table of buffered networks.
const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 64];

/// Throughputs of a buffered network: (radix, stages, refilled at once, refilled a cycle later).
type BufferedLine = (u32, u32, [f64; 6], [f64; 3]);

const BUFFERED: [BufferedLine; 5] = [
    (
        2,
        4,
        [0.4585, 0.538, 0.6105, 0.664, 0.702, 0.737],
        [0.2585, 0.491, 0.592],
    ),
    (
        2,
        6,
        [0.387, 0.487, 0.575, 0.643, 0.690, 0.733],
        [0.209, 0.4315, 0.552],
    ),
    (
        2,
        9,
        [0.3315, 0.444, 0.547, 0.624, 0.678, 0.727],
        [0.174, 0.3845, 0.519],
    ),
    (
        4,
        2,
        [0.499, 0.532, 0.566, 0.598, 0.620, 0.645],
        [0.310, 0.512, 0.557],
    ),
    (
        8,
        3,
        [0.377, 0.424, 0.477, 0.520, 0.5585, 0.601],
        [0.222, 0.401, 0.464],
    ),
];

/// A network and its throughput without buffers with fixed, exponential and log-normal sizes.
struct WormholeLine {
    name: &'static str,
    make: fn() -> Topology,
    routes: RoutePolicy,
    expected: [f64; 3],
    is_quick: bool,
}

fn crossbar<const N: u32>() -> Topology {
    Topology::crossbar(N).expect("ports in range")
}

fn delta<const K: u32, const STAGES: u32>() -> Topology {
    Topology::delta(K, STAGES, &Wiring::Omega).expect("ports in range")
}

fn natural_delta() -> Topology {
    Topology::delta(8, 3, &Wiring::Natural).expect("ports in range")
}

fn four_layer() -> Topology {
    Topology::four_layer(8).expect("radix in range")
}

fn six_layer() -> Topology {
    Topology::six_layer(8).expect("radix in range")
}

const fn line(
    name: &'static str,
    make: fn() -> Topology,
    routes: RoutePolicy,
    expected: [f64; 3],
    is_quick: bool,
) -> WormholeLine {
    WormholeLine {
        name,
        make,
        routes,
        expected,
        is_quick,
    }
}

use RoutePolicy::{BySourcePort, Random};

const WORMHOLE: [WormholeLine; 11] = [
    line(
        "crossbar 2",
        crossbar::<2>,
        Random,
        [0.75, 0.6655, 0.676],
        true,
    ),
    line(
        "crossbar 4",
        crossbar::<4>,
        Random,
        [0.655, 0.573, 0.576],
        true,
    ),
    line(
        "crossbar 8",
        crossbar::<8>,
        Random,
        [0.618, 0.535, 0.534],
        false,
    ),
    line(
        "crossbar 16",
        crossbar::<16>,
        Random,
        [0.602, 0.516, 0.516],
        true,
    ),
    line(
        "delta 4x4, 16 ports",
        delta::<4, 2>,
        Random,
        [0.489, 0.398, 0.399],
        true,
    ),
    line(
        "delta 8x8, 64 ports",
        delta::<8, 2>,
        Random,
        [0.451, 0.361, 0.360],
        false,
    ),
    line(
        "delta 8x8, 512 ports",
        delta::<8, 3>,
        Random,
        [0.354, 0.272, 0.269],
        true,
    ),
    line(
        "4 layers, random route",
        four_layer,
        Random,
        [0.291, 0.219, 0.213],
        false,
    ),
    line(
        "4 layers, by source port",
        four_layer,
        BySourcePort,
        [0.355, 0.272, 0.267],
        false,
    ),
    line(
        "6 layers, random route",
        six_layer,
        Random,
        [0.216, 0.157, 0.152],
        false,
    ),
    line(
        "6 layers, by source port",
        six_layer,
        BySourcePort,
        [0.355, 0.272, 0.267],
        false,
    ),
];

pub(super) fn add_jobs(extent: Extent, jobs: &mut Vec<GateJob>) {
    for line in &BUFFERED {
        let is_quick = matches!(line, (4, 2, ..) | (2, 4, ..) | (8, 3, ..));
        if extent == Extent::Full || is_quick {
            add_buffered(line, extent, jobs);
        }
    }
    for line in &WORMHOLE {
        if extent == Extent::Full || line.is_quick {
            for law in 0..3 {
                jobs.push(GateJob::new("V6", move || wormhole_rows(line, law, extent)));
            }
        }
    }
    jobs.push(GateJob::new("V6", move || source_gap(extent)));
    let shifts: [NamedTopology; 4] = [
        ("crossbar", crossbar::<512>),
        ("delta 8x8", delta::<8, 3>),
        ("4 layers", four_layer),
        ("6 layers", six_layer),
    ];
    for (name, make) in shifts {
        jobs.push(GateJob::new("V8", move || {
            shift_rows(name, &make(), extent)
        }));
    }
    if extent == Extent::Full {
        for is_four_layer in [false, true] {
            jobs.push(GateJob::new("V10", move || reconstruction(is_four_layer)));
        }
    }
}

fn add_buffered(line: &'static BufferedLine, extent: Extent, jobs: &mut Vec<GateJob>) {
    let (radix, stages, at_once, later) = *line;
    let cases = DEPTHS
        .into_iter()
        .zip(at_once)
        .map(|case| (Refill::SameCycle, case))
        .chain(
            DEPTHS
                .into_iter()
                .zip(later)
                .map(|case| (Refill::NextCycle, case)),
        );
    for (refill, (cells, reference)) in cases {
        let is_large = radix.pow(stages) > 100;
        if extent == Extent::Quick && (cells > 4 || is_large && cells != 1) {
            continue;
        }
        jobs.push(GateJob::new("V5", move || {
            let network = BufferedDelta::new(radix, stages, cells, refill);
            let ports = u64::from(radix.pow(stages));
            let cycles = extent.pick(600_000, 4_000_000) / ports;
            let warm_up = cycles / 5 + 20 * u64::from(cells);
            let value = network.throughput(warm_up, cycles, 1);
            let when = match refill {
                Refill::SameCycle => "same cycle",
                Refill::NextCycle => "next cycle",
            };
            let check =
                format!("buffered delta {radix}x{radix}, {stages} stages, {cells} cells, {when}");
            vec![GateRow::near("V5", check, value, reference, 0.006)]
        }));
    }
}

fn wormhole_rows(line: &WormholeLine, law: usize, extent: Extent) -> Vec<GateRow> {
    let mean = f64::from(PACKET);
    let (name, sizes) = match law {
        0 => ("fixed", SizeLaw::Fixed(PACKET)),
        1 => ("exponential", SizeLaw::Exponential { mean }),
        _ => ("log-normal", SizeLaw::LogNormal { mean, rms: mean }),
    };
    let topology = (line.make)();
    // Wide networks mix over many ports, so they need fewer packet times.
    let offered = if topology.sources() > 100 {
        extent.pick(600_000, 3_000_000)
    } else {
        extent.pick(600_000, 4_000_000)
    };
    let found = random_traffic(&topology, sizes, line.routes, offered);
    let check = format!("wormhole {}, {name}", line.name);
    let value = found.efficiency_link.mean;
    vec![GateRow::near("V6", check, value, line.expected[law], 0.005)]
}

/// The pause of a source that explains point-to-point throughput below the link.
fn source_gap(extent: Extent) -> Vec<GateRow> {
    let run = |topology: &Topology, gap: f64| {
        let packets = extent.pick(500_000, 3_000_000);
        let times = packets / u64::from(topology.sources());
        let traffic = Traffic::new(Pattern::Uniform);
        let load = Load::saturated(traffic, SizeLaw::Fixed(PACKET), times);
        let packet = DurationPs::for_bits(u64::from(PACKET) * 8, load.link_bits_per_s);
        let source_gap = DurationPs((packet.0 as f64 * gap) as u64);
        wormhole::run(topology, &Load { source_gap, ..load })
    };
    let mut rows: Vec<GateRow> = [(0.02, 0.6644), (0.0738, 0.6854), (0.15, 0.7140)]
        .into_iter()
        .map(|(gap, reference)| {
            let value = run(&crossbar::<4>(), gap).efficiency_p2p;
            let check = format!("wormhole crossbar 4, gap {gap}, of point to point");
            GateRow::near("V6", check, value, reference, 0.005)
        })
        .collect();
    let value = run(&delta::<8, 3>(), 0.0738).efficiency_link.mean;
    let check = "wormhole delta 8x8, 512 ports, gap 0.0738".to_owned();
    rows.push(GateRow::near("V6", check, value, 0.347, 0.005));
    rows
}

/// A barrel shifter fills the links, and its schedule has no conflict.
fn shift_rows(name: &str, topology: &Topology, extent: Extent) -> Vec<GateRow> {
    let Some(schedule) = ShiftSchedule::conflict_free(topology) else {
        return Vec::new();
    };
    let steps = extent.pick(64, u64::from(topology.destinations())) as u32;
    let conflicts = u32::from(schedule.first_conflict(topology, steps).is_some());
    let routes = schedule.policy;
    let traffic = Traffic::new(Pattern::Shift(schedule));
    let load = Load {
        routes,
        ..Load::saturated(traffic, SizeLaw::Fixed(4096), extent.pick(256, 2048))
    };
    let value = wormhole::run(topology, &load).efficiency_link.mean;
    vec![
        GateRow::at_least("V8", format!("barrel shifter, {name}"), value, 0.999),
        GateRow::equal(
            "V8",
            format!("shared links in {steps} steps, {name}"),
            f64::from(conflicts),
            0.0,
        ),
    ]
}

/// One natural scenario that gives both event building numbers of the talk at once.
fn reconstruction(is_four_layer: bool) -> Vec<GateRow> {
    // The talk's figure, and the band of the arbiters and tie rules that the specification names.
    let (name, topology, of_talk, band) = if is_four_layer {
        let name = "4 layers, route by source port";
        (name, four_layer(), 0.30, (0.26, 0.30))
    } else {
        ("delta, natural wiring", natural_delta(), 0.15, (0.13, 0.17))
    };
    [Arbiter::RoundRobin, Arbiter::Oldest, Arbiter::Random]
        .into_iter()
        .map(|arbiter| {
            let traffic = Traffic::new(Pattern::Staggered);
            let load = Load::saturated(traffic, SizeLaw::Fixed(PACKET), 800);
            let load = Load {
                routes: RoutePolicy::BySourcePort,
                arbiter,
                warm_up: DurationPs::ZERO,
                ..load
            };
            let value = wormhole::run(&topology, &load).efficiency_link.mean;
            let check = format!(
                "staggered round robin, 800 packet times, {name}, {} arbiter, waiters first",
                arbiter.name()
            );
            GateRow::reported("V10", check, value, of_talk, band)
        })
        .collect()
}
