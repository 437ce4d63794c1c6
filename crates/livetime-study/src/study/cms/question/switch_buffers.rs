//! 500 x 500 Gigabit Ethernet: how large must the switch buffers be?
//!
//! The onset of loss needs no search: a run with more room than is ever used says how full each
//! buffer became, and until the first loss a smaller buffer changes nothing. Runs with other seeds
//! say how far that is chance. Smaller buffers are run to see what their loss does.

use livetime_fabric::builder_network::{BuilderNetworkOutcome, Placement, Shaping};
use livetime_fabric::network::{Arbiter, BufferOwner, Topology};

use super::steady::{Carried, Lost, NOT_CONVERGED};
use super::{
    Answer, Case, FRAGMENT, GIGABIT_HZ, GIGABIT_NODES, GIGABIT_OVERHEAD, Switch, gigabit_case,
    gigabit_networks, promises, run_cases,
};

/// More than all credits of a builder unit can put into the buffer of one port.
const AMPLE_KIB: u64 = 64 << 10;
/// Spread of the fullest buffer over the seeds, relative to the largest, within which it is a number.
const SPREAD: f64 = 0.15;
/// Edge switches of both networks, which come before the cores.
const EDGES: u32 = 25;
/// Nodes of an edge switch.
const EDGE_NODES: u32 = 20;

/// The most bytes in a buffer of each kind, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Fullest {
    /// Ports of edge switches to cores.
    up_kib: f64,
    /// Ports of cores to edge switches.
    core_kib: f64,
    /// Ports to builder units.
    node_kib: f64,
}

impl Fullest {
    fn of(outcome: &BuilderNetworkOutcome) -> Self {
        let mut fullest = Self::default();
        for buffer in outcome.links.iter().flat_map(|links| &links.buffers) {
            let BufferOwner::Output { element, port } = buffer.owner else {
                continue;
            };
            let place = match (element < EDGES, port < EDGE_NODES) {
                (true, true) => &mut fullest.node_kib,
                (true, false) => &mut fullest.up_kib,
                (false, _) => &mut fullest.core_kib,
            };
            *place = place.max(buffer.max_bytes as f64 / 1024.0);
        }
        fullest
    }

    fn any_kib(self) -> f64 {
        self.up_kib.max(self.core_kib).max(self.node_kib)
    }
}

/// A network, and which builder unit is on which port.
struct Network {
    name: String,
    topology: Topology,
    placement: Placement,
}

/// What is found of a network.
struct Found {
    name: String,
    /// With more room than is used, one for each seed.
    fullest: Vec<Fullest>,
    carried: Carried,
    packets: u64,
    lost: u64,
    held_max: usize,
    /// With less, the smallest first.
    smaller: Vec<Smaller>,
}

/// A buffer that may be too small.
struct Smaller {
    kib: u64,
    lost: Lost,
    carried: Carried,
}

impl Found {
    /// Of the runs with more room than is used.
    fn of(network: &Network, outcomes: &[BuilderNetworkOutcome]) -> Self {
        Self {
            name: network.name.clone(),
            fullest: outcomes.iter().map(Fullest::of).collect(),
            carried: Carried::of_run(&outcomes[0]),
            packets: outcomes.iter().map(|outcome| outcome.packets).sum(),
            lost: outcomes.iter().map(|outcome| outcome.packets_lost).sum(),
            held_max: outcomes.iter().map(|o| o.held_max).max().unwrap_or(0),
            smaller: Vec::new(),
        }
    }

    /// The largest of the fullest buffers, where the seeds agree.
    fn onset_kib(&self) -> Option<f64> {
        let all = || self.fullest.iter().map(|one| one.any_kib());
        let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
        (most > 0.0 && most - least <= SPREAD * most).then_some(most)
    }

    fn is_converged(&self) -> bool {
        let smaller = |one: &Smaller| one.lost.is_known() && one.carried.is_known();
        self.onset_kib().is_some() && self.carried.is_known() && self.smaller.iter().all(smaller)
    }

    /// What is enough, and what it is used for.
    fn enough(&self, event_kib: f64) -> String {
        let Some(onset) = self.onset_kib() else {
            let all = self
                .fullest
                .iter()
                .map(|one| format!("{:.0}", one.any_kib()));
            return format!(
                "{}: the fullest port held {} KiB in runs that differ in their seed alone: {}.",
                self.name,
                all.collect::<Vec<_>>().join(", "),
                NOT_CONVERGED
            );
        };
        let most = |of: fn(&Fullest) -> f64| self.fullest.iter().map(of).fold(0.0, f64::max);
        format!(
            "{}: {onset:.0} KiB per port are enough for no loss at this load ({} of {} packets \
             lost, {} seeds): the fullest port to a builder unit held {:.0} KiB, of a core {:.0}, \
             of an edge to a core {:.0}. One event is {event_kib:.0} KiB, and a builder unit \
             held {} at most.",
            self.name,
            self.lost,
            self.packets,
            self.fullest.len(),
            most(|one| one.node_kib),
            most(|one| one.core_kib),
            most(|one| one.up_kib),
            self.held_max
        )
    }

    /// What a smaller buffer does.
    fn too_small(&self) -> Vec<String> {
        let text = |one: &Smaller| match one.lost {
            Lost::Nothing { packets } => format!(
                "{}, {} KiB per port: nothing lost of {packets} packets; the network {}.",
                self.name,
                one.kib,
                one.carried.to_clause()
            ),
            lost => format!(
                "{}, {} KiB per port: lost {}; with what is lost asked for again the network {}.",
                self.name,
                one.kib,
                lost.to_text(),
                one.carried.to_clause()
            ),
        };
        self.smaller.iter().map(text).collect()
    }
}

/// One event on the link of a builder unit, KiB.
fn event_kib() -> f64 {
    GIGABIT_NODES * (FRAGMENT + f64::from(GIGABIT_OVERHEAD)) / 1024.0
}

/// Both networks, with events given to neighbours one after the other; in the full study also to
/// builder units far apart.
fn networks(quick: bool) -> Vec<Network> {
    let of = |(name, topology): (&str, Topology)| {
        let network = |name: String, placement| Network {
            name,
            topology: topology.clone(),
            placement,
        };
        let slot_ports = EDGE_NODES;
        [
            network(name.to_owned(), Placement::InOrder),
            network(
                format!("{name}, events to the edges in turn"),
                Placement::Interleaved { slot_ports },
            ),
        ]
    };
    let all = gigabit_networks().into_iter().flat_map(of);
    all.filter(|network| !quick || network.placement == Placement::InOrder)
        .collect()
}

fn case(network: &Network, kib: u64, name: String, window: (u64, u64)) -> Case {
    let switch = Switch::dropping(kib);
    let mut case = gigabit_case(&name, &network.topology, Shaping::None, switch, window);
    case.plan.placement = network.placement;
    // The queue of an output is a FIFO.
    case.load.arbiter = Arbiter::Oldest;
    case
}

/// With more room than is ever used, and every buffer measured; one for each seed.
fn measured_cases(network: &Network, quick: bool) -> Vec<Case> {
    let seeds = if quick { 1..=2 } else { 1..=4 };
    let window = if quick { (15, 160) } else { (30, 300) };
    let of_seed = |seed| {
        let name = format!("{}: more than is used, seed {seed}", network.name);
        let mut case = case(network, AMPLE_KIB, name, window);
        case.load.counts_links = true;
        case.load.seed = seed;
        case
    };
    seeds.map(of_seed).collect()
}

/// With less than the fullest port held, in KiB, the smallest first.
fn smaller_cases(network: &Network, onset_kib: f64, quick: bool) -> Vec<(u64, Case)> {
    let shares: &[f64] = if quick {
        &[0.75]
    } else {
        &[0.125, 0.25, 0.5, 0.75, 0.875]
    };
    let window = if quick { (60, 160) } else { (60, 400) };
    let of_share = |share: &f64| {
        // A packet must fit in.
        let kib = ((share * onset_kib) as u64).max(64);
        let name = format!("{}: {kib} KiB", network.name);
        (kib, case(network, kib, name, window))
    };
    shares.iter().map(of_share).collect()
}

fn row(case: &Case, outcome: &BuilderNetworkOutcome) -> Vec<String> {
    let fullest = match outcome.links.is_empty() {
        true => String::new(),
        false => format!("{:.0} KiB", Fullest::of(outcome).any_kib()),
    };
    vec![
        case.name.clone(),
        fullest,
        Lost::of(&outcome.batches).to_text(),
        Carried::of_run(outcome).to_text(),
        outcome.fragments_sent_again.to_string(),
        promises(outcome),
    ]
}

pub(super) fn answer(quick: bool) -> Answer {
    let networks = networks(quick);
    let of_seeds: Vec<Vec<Case>> = networks.iter().map(|n| measured_cases(n, quick)).collect();
    let seeds = of_seeds.first().map_or(1, Vec::len);
    let measured: Vec<Case> = of_seeds.into_iter().flatten().collect();
    let of_measured = run_cases(&measured);
    let mut found: Vec<Found> = networks
        .iter()
        .zip(of_measured.chunks(seeds))
        .map(|(network, outcomes)| Found::of(network, outcomes))
        .collect();
    let mut rows: Vec<Vec<String>> = measured
        .iter()
        .zip(&of_measured)
        .map(|(c, o)| row(c, o))
        .collect();
    let mut smaller = Vec::new();
    for (place, (network, one)) in networks.iter().zip(&found).enumerate() {
        if let Some(onset) = one
            .onset_kib()
            .filter(|_| network.placement == Placement::InOrder)
        {
            let cases = smaller_cases(network, onset, quick).into_iter();
            smaller.extend(cases.map(|(kib, case)| (place, kib, case)));
        }
    }
    let (places, cases): (Vec<(usize, u64)>, Vec<Case>) = smaller
        .into_iter()
        .map(|(place, kib, case)| ((place, kib), case))
        .unzip();
    let outcomes = run_cases(&cases);
    for ((place, kib), outcome) in places.into_iter().zip(&outcomes) {
        found[place].smaller.push(Smaller {
            kib,
            lost: Lost::of(&outcome.batches),
            carried: Carried::of_run(outcome),
        });
    }
    rows.extend(cases.iter().zip(&outcomes).map(|(c, o)| row(c, o)));
    conclude(&found, rows)
}

fn conclude(found: &[Found], rows: Vec<Vec<String>>) -> Answer {
    let enough = found.iter().map(|one| match one.onset_kib() {
        Some(kib) => format!("{}: {kib:.0} KiB", one.name),
        None => format!("{}: {NOT_CONVERGED}", one.name),
    });
    let event_kib = event_kib();
    let mut verdict: Vec<String> = found.iter().map(|one| one.enough(event_kib)).collect();
    verdict.extend(found.iter().flat_map(Found::too_small));
    Answer {
        question: "500 x 500 Gigabit Ethernet: how large must the switch buffers be?",
        answer: format!(
            "Per port, for no loss, {}; one event is {event_kib:.0} KiB.",
            enough.collect::<Vec<_>>().join(", ")
        ),
        verdict,
        conditions: format!(
            "{} kHz of log-normal fragments of 2 KiB on each of two networks, triggers at random, \
             FIFO queues at outputs without flow control, random routes, requests sent as events \
             come, 4 credits for a builder unit, lost fragments asked for again after 40 ms.",
            GIGABIT_HZ / 1_000
        ),
        is_converged: found.iter().all(Found::is_converged),
        headings: vec![
            "network and buffer of a port",
            "fullest",
            "packets lost",
            "built of the offered",
            "fragments sent again",
            "promises",
        ],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kib: [f64; 2], smaller: Smaller) -> Found {
        let fullest = |node_kib| Fullest {
            up_kib: 100.0,
            core_kib: 400.0,
            node_kib,
        };
        Found {
            name: "I".to_owned(),
            fullest: kib.map(fullest).to_vec(),
            carried: Carried::Steady {
                share: 1.0,
                ci95: 0.005,
            },
            packets: 5_000,
            lost: 0,
            held_max: 2,
            smaller: vec![smaller],
        }
    }

    fn smaller(lost: Lost, carried: Carried) -> Smaller {
        Smaller {
            kib: 512,
            lost,
            carried,
        }
    }

    #[test]
    fn the_onset_is_a_number_where_the_seeds_agree() {
        let steady = Lost::Steady {
            ppm: 250.0,
            ci95: 10.0,
        };
        let grows = Carried::Growing { share: 0.5 };
        let answer = conclude(&[found([1_000.0, 950.0], smaller(steady, grows))], vec![]);
        assert!(answer.is_converged);
        assert!(answer.answer.contains("I: 1000 KiB; one event is 1037 KiB"));
        assert!(answer.verdict[0].starts_with("I: 1000 KiB per port are enough for no loss"));
        assert!(answer.verdict[1].contains("lost 250 +- 10 per million"));
        assert!(answer.verdict[1].contains("backlog grows by 50 %"));
        let answer = conclude(&[found([1_000.0, 500.0], smaller(steady, grows))], vec![]);
        assert!(!answer.is_converged);
        assert!(answer.answer.contains(NOT_CONVERGED));
        assert!(answer.verdict[0].contains("held 1000, 500 KiB"));
        assert!(answer.verdict[0].ends_with(": not converged."));
    }

    #[test]
    fn a_smaller_buffer_that_loses_nothing_or_not_steadily_says_so() {
        let steady = Carried::Steady {
            share: 1.0,
            ci95: 0.005,
        };
        let none = smaller(Lost::Nothing { packets: 7 }, steady);
        let answer = conclude(&[found([1_000.0; 2], none)], vec![]);
        assert!(answer.verdict[1].contains("nothing lost of 7 packets; the network carries"));
        let some = Lost::Some {
            lost: 3,
            packets: 7,
        };
        let answer = conclude(&[found([1_000.0; 2], smaller(some, steady))], vec![]);
        assert!(!answer.is_converged);
        assert!(answer.verdict[1].contains("lost 3 of 7; share not converged"));
    }

    #[test]
    fn the_fullest_buffers_are_those_of_the_run() {
        let topology = Topology::gigabit_one();
        let switch = Switch::dropping(AMPLE_KIB);
        let mut case = gigabit_case("", &topology, Shaping::None, switch, (0, 2));
        case.load.counts_links = true;
        let fullest = Fullest::of(&case.run());
        // Fragments of an event come together at the port of its builder unit, and each edge sends
        // over twenty links.
        assert!(fullest.node_kib > 100.0 && fullest.node_kib < event_kib());
        assert!(fullest.up_kib > 2.0 && fullest.up_kib < fullest.core_kib);
    }
}
