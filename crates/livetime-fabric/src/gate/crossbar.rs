//! Gates V1 to V4: one switch.

use crate::analytic::crossbar::{
    fifo_inputs, fifo_inputs_exponential, losers_dropped, output_queue_wait_slots,
};
use crate::analytic::multistage::unbuffered_delta;
use crate::cell::{FifoCrossbar, MatchedSwitch, Matching, Offered, dropping_delta, output_queue};
use crate::network::{Arbiter, RoutePolicy, SizeLaw, Topology};

use super::{Extent, GateJob, GateRow, random_traffic};

/// Seed of all models of these gates.
const SEED: u64 = 1;
/// Mean packet of the exponential crossbars: long, so that whole bytes do not matter.
const PACKET: f64 = 65_536.0;

pub(super) fn add_jobs(extent: Extent, jobs: &mut Vec<GateJob>) {
    let ports: &[u32] = match extent {
        Extent::Quick => &[2, 4, 8, 16],
        Extent::Full => &[2, 3, 4, 5, 6, 7, 8, 10, 12, 16],
    };
    for ports in ports {
        jobs.push(GateJob::new("V1", move || head_of_line(*ports, extent)));
    }
    for ports in [2, 4, 8, 16] {
        jobs.push(GateJob::new("V2", move || exponential(ports, extent)));
    }
    jobs.push(GateJob::new("V2", move || dropping(extent)));
    jobs.push(GateJob::new("V2", patel_formula));
    jobs.push(GateJob::new("V3", || pointers(16)));
    for ports in [4, 16, 32] {
        jobs.push(GateJob::new("V3", move || parallel(ports, extent)));
    }
    for load in [0.5, 0.8, 0.9] {
        jobs.push(GateJob::new("V4", move || output_queues(load, extent)));
    }
}

/// Input FIFOs: every arbiter has the throughput of the exact chain.
fn head_of_line(ports: u32, extent: Extent) -> Vec<GateRow> {
    let exact = fifo_inputs(ports).unwrap_or(f64::NAN);
    let slots = extent.pick(1_600_000, 6_000_000) / u64::from(ports);
    let found = Arbiter::ALL.map(|arbiter| {
        let value = FifoCrossbar::new(ports, arbiter).throughput(slots, SEED);
        (arbiter, value)
    });
    let mut rows: Vec<GateRow> = found
        .iter()
        .map(|(arbiter, value)| {
            let check = format!("input FIFOs {ports}x{ports}, {}", arbiter.name());
            GateRow::near("V1", check, *value, exact, 0.003)
        })
        .collect();
    let values = || found.iter().map(|(_, value)| *value);
    let spread = values().fold(f64::MIN, f64::max) - values().fold(f64::MAX, f64::min);
    let check = format!("input FIFOs {ports}x{ports}, spread of the arbiters");
    rows.push(GateRow::near("V1", check, spread, 0.0, 0.003));
    rows
}

fn exponential(ports: u32, extent: Extent) -> Vec<GateRow> {
    let Ok(topology) = Topology::crossbar(ports) else {
        return Vec::new();
    };
    let sizes = SizeLaw::Exponential { mean: PACKET };
    let packets = extent.pick(1_200_000, 6_000_000);
    let found = random_traffic(&topology, sizes, RoutePolicy::Random, packets);
    let check = format!("exponential lengths {ports}x{ports}, N/(2N-1)");
    let reference = fifo_inputs_exponential(ports);
    let value = found.efficiency_link.mean;
    vec![GateRow::near("V2", check, value, reference, 0.003)]
}

fn dropping(extent: Extent) -> Vec<GateRow> {
    let cells = extent.pick(800_000, 6_000_000);
    let run = |radix: u32, stages: u32| {
        let cycles = cells / u64::from(radix.pow(stages));
        dropping_delta::throughput(radix, stages, 1.0, cycles, SEED)
    };
    let mut rows = Vec::new();
    for ports in [2, 4, 8, 16] {
        let check = format!("losers dropped {ports}x{ports}, 1-(1-1/N)^N");
        let reference = losers_dropped(ports, 1.0);
        rows.push(GateRow::near("V2", check, run(ports, 1), reference, 0.003));
    }
    for (radix, stages) in [(2, 4), (2, 9), (4, 2), (8, 2), (8, 3)] {
        let check = format!("unbuffered delta {radix}x{radix}, {stages} stages");
        let reference = unbuffered_delta(radix, stages, 1.0);
        let value = run(radix, stages);
        rows.push(GateRow::near("V2", check, value, reference, 0.003));
    }
    rows
}

/// The recursion against values worked out with 40 digits.
fn patel_formula() -> Vec<GateRow> {
    let table = [
        (2, 1, 0.750_000_000_000),
        (2, 4, 0.449_836_998_247),
        (2, 9, 0.277_803_575_589),
        (4, 1, 0.683_593_750_000),
        (4, 2, 0.527_468_315_499),
        (8, 1, 0.656_391_084_194),
        (8, 2, 0.495_853_881_806),
        (8, 3, 0.400_636_406_989),
    ];
    table
        .into_iter()
        .map(|(radix, stages, reference)| {
            let check = format!("formula of the unbuffered delta {radix}^{stages}");
            let value = unbuffered_delta(radix, stages, 1.0);
            GateRow::near("V2", check, value, reference, 1e-9)
        })
        .collect()
}

/// Round-robin pointers: exact statements.
fn pointers(ports: u32) -> Vec<GateRow> {
    let run = |matching, warm_up| {
        let switch = MatchedSwitch { ports, matching };
        switch.run(&Offered::Saturated, warm_up, 5_000, SEED)
    };
    let locked = |iterations, moves_in_all| Matching::RoundRobin {
        iterations,
        moves_in_all,
    };
    let slip = run(Matching::Slip { iterations: 1 }, 2_000).throughput;
    let first = run(Matching::Slip { iterations: 1 }, 0).throughput;
    let one = 1.0 / f64::from(ports);
    vec![
        GateRow::equal("V3", format!("iSLIP {ports} ports, settled"), slip, 1.0),
        GateRow::at_least("V3", "iSLIP, settling included".to_owned(), first, 0.99),
        GateRow::equal(
            "V3",
            "round robin, pointers start equal: 1/N".to_owned(),
            run(locked(1, true), 0).throughput,
            one,
        ),
        GateRow::equal(
            "V3",
            "the same, 2 iterations, moved in the first: 2/N".to_owned(),
            run(locked(2, false), 0).throughput,
            2.0 * one,
        ),
        GateRow::equal(
            "V3",
            "the same, moved in both: 1 after N slots".to_owned(),
            run(locked(2, true), u64::from(ports)).throughput,
            1.0,
        ),
    ]
}

fn parallel(ports: u32, extent: Extent) -> Vec<GateRow> {
    let expected = match ports {
        4 => [0.6836, 0.955, 1.0],
        16 => [0.6439, 0.882, 0.999],
        _ => [0.6379, 0.873, 0.994],
    };
    let slots = extent.pick(320_000, 2_000_000) / u64::from(ports);
    [1, 2, 4]
        .into_iter()
        .zip(expected)
        .map(|(iterations, reference)| {
            let matching = Matching::Parallel { iterations };
            let switch = MatchedSwitch { ports, matching };
            let value = switch.run(&Offered::Saturated, 100, slots, SEED).throughput;
            let check = format!("parallel matching {ports} ports, {iterations} iterations");
            GateRow::near("V3", check, value, reference, 0.005)
        })
        .collect()
}

fn output_queues(load: f64, extent: Extent) -> Vec<GateRow> {
    let found = output_queue::run(16, load, extent.pick(200_000, 1_500_000), SEED);
    let formula = output_queue_wait_slots(16, load);
    let little = found.wait_by_little() / found.wait_slots;
    vec![
        GateRow::near(
            "V4",
            format!("output queues 16x16, load {load}, mean wait in slots"),
            found.wait_slots,
            formula,
            0.02 * formula,
        ),
        GateRow::near(
            "V4",
            format!("output queues, load {load}, Little's wait over measured"),
            little,
            1.0,
            0.01,
        ),
    ]
}
