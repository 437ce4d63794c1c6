//! The open questions of the talk, answered with the protocol that Livetime runs.
//!
//! Readout units, builder units and event manager of `livetime-builder` run on simulated hosts and
//! networks ([`livetime_fabric::builder_network`]). All numbers are simulated. Each question is a
//! module: its runs, its rows, and a verdict made of the same figures. What the verdicts may call a
//! number is in [`steady`].

mod barrel_shifter;
mod packet_loss;
mod sick_builders;
mod steady;
mod switch_buffers;

use livetime_fabric::builder_network::{
    BuilderNetwork, BuilderNetworkOutcome, HostModel, Shaping, SickUnits,
};
use livetime_fabric::network::{
    Arrival, BufferPlace, Buffering, FlowControl, Forwarding, Load, Pattern, Queueing, SizeLaw,
    Topology, TopologyError, Traffic,
};
use livetime_fabric::replica::run_all;
use livetime_fabric::scenario::{ShiftOrder, Switching};
use livetime_fabric::time::DurationPs;
use livetime_wire::DurationNs;

/// An open question of the talk, and the runs that answer it.
pub(super) struct Answer {
    pub(super) question: &'static str,
    /// The answer in one sentence.
    pub(super) answer: String,
    /// What the rows say, in words, a sentence or two each.
    pub(super) verdict: Vec<String>,
    /// What holds for all rows.
    pub(super) conditions: String,
    /// Whether every figure of the verdict is one of a steady state or a bound, or says that there
    /// is none.
    pub(super) is_converged: bool,
    /// Whether the promises of the protocol held in every run.
    pub(super) is_conserved: bool,
    pub(super) headings: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

const BARREL: Shaping = Shaping::BarrelShifter {
    block_bytes: 4096,
    order: ShiftOrder::ConflictFree,
};
/// Mean fragment, bytes.
const FRAGMENT: f64 = 2048.0;
/// Triggers of the Gigabit Ethernet cases: half of 100 kHz on each of two networks, less what
/// blocks that are not full take.
const GIGABIT_HZ: u64 = 45_000;
/// What Ethernet adds to a fragment of two frames, bytes.
const GIGABIT_OVERHEAD: u32 = 76;
/// Ports of each side of the Gigabit Ethernet networks.
const GIGABIT_NODES: f64 = 500.0;
/// Triggers of the Myrinet cases.
const MYRINET_HZ: u64 = 100_000;

pub(super) fn answers(quick: bool) -> Result<Vec<Answer>, TopologyError> {
    Ok(vec![
        switch_buffers::answer(quick),
        packet_loss::answer(quick),
        barrel_shifter::answer(quick)?,
        sick_builders::answer(quick)?,
    ])
}

/// Warm-up and duration of runs at 512 x 512, ms. It takes some 300 ms until as many events are built
/// as come.
const fn large_window(quick: bool) -> (u64, u64) {
    if quick { (300, 240) } else { (400, 900) }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A run.
struct Case {
    name: String,
    plan: BuilderNetwork,
    topology: Topology,
    load: Load,
    switching: Switching,
}

impl Case {
    fn run(&self) -> BuilderNetworkOutcome {
        self.plan
            .run(&self.topology, &self.load, &self.switching, 1)
    }

    /// About how long it runs, in no unit: queues for each output take twice as long as others.
    fn cost(&self) -> u64 {
        let has_many_queues = matches!(
            self.switching,
            Switching::Buffered(buffering) if buffering.queueing == Queueing::VirtualOutput
        );
        let simulated = self.load.warm_up.0 + self.load.duration.0;
        let of_port = simulated / 1_000 * (1 + u64::from(has_many_queues));
        of_port * u64::from(self.topology.sources())
    }
}

/// Runs the cases, the longest first, so that none is left for one thread alone; outcomes are in
/// the order of the cases.
fn run_cases(cases: &[Case]) -> Vec<BuilderNetworkOutcome> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(cases[*place].cost()));
    let jobs: Vec<_> = order.iter().map(|place| || cases[*place].run()).collect();
    let outcomes = run_all(jobs, threads, |_| ());
    let mut in_order: Vec<_> = order.into_iter().zip(outcomes).collect();
    in_order.sort_by_key(|(place, _)| *place);
    in_order.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Whether the promises of the protocol held, for the table.
fn promises(outcome: &BuilderNetworkOutcome) -> String {
    match outcome.violations.first() {
        None if outcome.is_conserved() => "all kept".to_owned(),
        None => "fragments not conserved".to_owned(),
        Some(violation) => violation.clone(),
    }
}

/// Log-normal fragments of 2 KiB on average, triggers at random.
fn load(rate_hz: u64, link_bits_per_s: u64, warm_up_ms: u64, ms: u64) -> Load {
    let sizes = SizeLaw::LogNormal {
        mean: FRAGMENT,
        rms: FRAGMENT / 2.0,
    };
    Load {
        arrival: Arrival::Poisson {
            interval: DurationPs(1_000_000_000_000 / rate_hz),
        },
        link_bits_per_s,
        hop_delay: DurationPs::from_ns(125),
        warm_up: DurationPs::from_ms(warm_up_ms),
        duration: DurationPs::from_ms(ms),
        ..Load::saturated(Traffic::new(Pattern::Uniform), sizes, 1)
    }
}

/// How the switches of a Gigabit Ethernet case are made.
#[derive(Debug, Clone, Copy)]
struct Switch {
    bytes: u64,
    flow: FlowControl,
    queueing: Queueing,
}

impl Switch {
    /// Queues at the outputs, and nothing that keeps them from overflowing.
    const fn dropping(kib: u64) -> Self {
        Self {
            bytes: kib << 10,
            flow: FlowControl::None,
            queueing: Queueing::Output,
        }
    }
}

fn gigabit_case(
    name: &str,
    topology: &Topology,
    shaping: Shaping,
    switch: Switch,
    (warm_up_ms, ms): (u64, u64),
) -> Case {
    let buffering = Buffering {
        forwarding: Forwarding::StoreAndForward,
        queueing: switch.queueing,
        place: match switch.queueing {
            Queueing::Output => BufferPlace::Output,
            _ => BufferPlace::Input,
        },
        bytes: switch.bytes,
        lanes: 1,
        flow: switch.flow,
    };
    Case {
        name: name.to_owned(),
        plan: BuilderNetwork {
            credits: 4,
            // Longer than all credits of a builder unit take: what is only slow is not asked for
            // again.
            retry: DurationNs(80 * DurationNs::MILLISECOND.0),
            shaping,
            hosts: HostModel {
                message: DurationPs::from_us(1),
                event: DurationPs::from_us(100),
                ..HostModel::default()
            },
            ..BuilderNetwork::default()
        },
        topology: topology.clone(),
        load: Load {
            overhead_bytes: GIGABIT_OVERHEAD,
            hop_delay: DurationPs::from_ns(500),
            ..load(GIGABIT_HZ, 1_000_000_000, warm_up_ms, ms)
        },
        switching: Switching::Buffered(buffering),
    }
}

/// The two networks of the talk.
fn gigabit_networks() -> [(&'static str, Topology); 2] {
    [
        ("I (20 cores)", Topology::gigabit_one()),
        ("II (2 cores, 10 Gb/s)", Topology::gigabit_two()),
    ]
}

/// The protocol on Myrinet: blocks of 4 KiB at 2 Gb/s, 100 kHz of 2 KiB.
fn myrinet_case(name: &str, topology: Topology, (warm_up_ms, ms): (u64, u64)) -> Case {
    Case {
        name: name.to_owned(),
        plan: BuilderNetwork {
            credits: 16,
            shaping: BARREL,
            hosts: HostModel {
                message: DurationPs::from_us(2),
                interval: DurationPs::from_ms(10),
                event: DurationPs::from_us(100),
                ..HostModel::default()
            },
            sick: SickUnits::default(),
            ..BuilderNetwork::default()
        },
        topology,
        load: load(MYRINET_HZ, 2_000_000_000, warm_up_ms, ms),
        switching: Switching::Wormhole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_in_the_order_of_the_cases() {
        let case = |ports, ms| {
            let topology = Topology::crossbar(ports).unwrap();
            let mut case = myrinet_case("", topology, (0, ms));
            case.plan.shaping = Shaping::None;
            case
        };
        let cases = [case(2, 1), case(4, 3), case(3, 2)];
        let costs = cases.each_ref().map(Case::cost);
        assert!(costs[0] < costs[2] && costs[2] < costs[1]);
        let outcomes = run_cases(&cases);
        let ports: Vec<u32> = outcomes.iter().map(|one| one.readout_units).collect();
        assert_eq!(ports, [2, 4, 3]);
    }

    #[test]
    fn queues_for_each_output_are_thought_to_take_longer() {
        let of = |queueing| {
            let switch = Switch {
                queueing,
                ..Switch::dropping(64)
            };
            let topology = Topology::gigabit_one();
            gigabit_case("", &topology, Shaping::None, switch, (1, 2)).cost()
        };
        assert_eq!(of(Queueing::VirtualOutput), 2 * of(Queueing::Output));
    }
}
