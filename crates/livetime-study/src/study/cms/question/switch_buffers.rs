//! 500 x 500 Gigabit Ethernet: how large must the switch buffers be?
//!
//! The onset of loss needs no search: a run with more room than is ever used says how full each
//! buffer became, and until the first loss a smaller buffer changes nothing. Runs with other seeds
//! say how far that is chance; where they differ, what the least full of them needed is a bound.
//! Smaller buffers are run to see what is lost before anything is asked for again, and what asking
//! again makes of it: it comes in waves, which is why the first is a run of its own.

use livetime_fabric::builder_network::{BuilderNetworkOutcome, Placement, Shaping};
use livetime_fabric::network::{Arbiter, BufferOwner, Topology};
use livetime_wire::DurationNs;

use super::steady::{Carried, Lost};
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
pub(super) struct Fullest {
    /// Ports of edge switches to cores.
    up_kib: f64,
    /// Ports of cores to edge switches.
    core_kib: f64,
    /// Ports to builder units.
    node_kib: f64,
}

impl Fullest {
    pub(super) fn of(outcome: &BuilderNetworkOutcome) -> Self {
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

    pub(super) fn any_kib(self) -> f64 {
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
    /// All seeds together.
    carried: Carried,
    packets: u64,
    lost: u64,
    held_max: usize,
    /// Whether the promises of the protocol held, also with less.
    is_conserved: bool,
    /// With less, the smallest first.
    smaller: Vec<Smaller>,
}

/// Whether what is lost is asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Never,
    Again,
}

/// A buffer that may be too small.
struct Smaller {
    kib: u64,
    asking: Asking,
    lost: Lost,
    carried: Carried,
}

impl Found {
    /// Of the runs with more room than is used.
    fn of(network: &Network, outcomes: &[BuilderNetworkOutcome]) -> Self {
        Self {
            name: network.name.clone(),
            fullest: outcomes.iter().map(Fullest::of).collect(),
            carried: Carried::of_runs(outcomes),
            packets: outcomes.iter().map(|outcome| outcome.packets).sum(),
            lost: outcomes.iter().map(|outcome| outcome.packets_lost).sum(),
            held_max: outcomes.iter().map(|o| o.held_max).max().unwrap_or(0),
            is_conserved: outcomes.iter().all(BuilderNetworkOutcome::is_conserved),
            smaller: Vec::new(),
        }
    }

    /// The fullest buffer of the seed in which it was least full, and of the one in which it was
    /// most.
    fn least_and_most(&self) -> (f64, f64) {
        let all = || self.fullest.iter().map(|one| one.any_kib());
        (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max))
    }

    /// The largest of the fullest buffers, where the seeds agree.
    fn onset_kib(&self) -> Option<f64> {
        let (least, most) = self.least_and_most();
        (most - least <= SPREAD * most).then_some(most)
    }

    fn is_converged(&self) -> bool {
        let smaller = |one: &Smaller| one.lost.is_known() && one.carried.is_known();
        self.carried.is_known() && self.smaller.iter().all(smaller)
    }

    /// In the answer: a number, or a bound.
    fn in_short(&self) -> String {
        match self.onset_kib() {
            Some(kib) => format!("{}: {kib:.0} KiB", self.name),
            None => format!(
                "{}: more than {:.0} KiB",
                self.name,
                self.least_and_most().0.floor()
            ),
        }
    }

    /// What is enough, and what it is used for.
    fn enough(&self, event_kib: f64) -> String {
        let seeds = self.fullest.len();
        let Some(onset) = self.onset_kib() else {
            let (least, most) = self.least_and_most();
            return format!(
                "{}: more than {:.0} KiB per port: all of {seeds} runs that differ in their seed \
                 alone fill as much, and one {most:.0} KiB; how much is enough has not settled. \
                 With so much {}; the network {}.",
                self.name,
                least.floor(),
                self.lost_text(),
                self.carried.to_clause()
            );
        };
        let most = |of: fn(&Fullest) -> f64| self.fullest.iter().map(of).fold(0.0, f64::max);
        format!(
            "{}: {onset:.0} KiB per port are enough for no loss at this load ({}, {seeds} seeds), \
             and the network {}: the fullest port to a builder unit held {:.0} KiB, of a core \
             {:.0}, of an edge to a core {:.0}. One event is {event_kib:.0} KiB, and a builder \
             unit held {} at most.",
            self.name,
            self.lost_text(),
            self.carried.to_clause(),
            most(|one| one.node_kib),
            most(|one| one.core_kib),
            most(|one| one.up_kib),
            self.held_max
        )
    }

    fn lost_text(&self) -> String {
        format!(
            "{} of {} packets lost from the start on",
            self.lost, self.packets
        )
    }

    /// What a smaller buffer does.
    fn too_small(&self) -> Vec<String> {
        let of = |one: &Smaller| {
            let lost = match one.lost {
                Lost::Nothing { packets } => format!("nothing lost of {packets} packets"),
                lost => format!("lost {}", lost.to_text()),
            };
            let place = format!("{}, {} KiB per port", self.name, one.kib);
            match (one.asking, one.carried) {
                (Asking::Again, carried) => format!(
                    "{place}, with what is lost asked for again: {lost}; the network {}.",
                    carried.to_clause()
                ),
                (Asking::Never, Carried::Growing { share }) => format!(
                    "{place}, before anything is asked for again: {lost}; {:.0} % of the events \
                     miss something.",
                    100.0 * share
                ),
                (Asking::Never, carried) => format!(
                    "{place}, before anything is asked for again: {lost}; whole events: {}.",
                    carried.to_text()
                ),
            }
        };
        self.smaller.iter().map(of).collect()
    }
}

/// One event on the link of a builder unit, KiB.
fn event_kib() -> f64 {
    GIGABIT_NODES * (FRAGMENT + f64::from(GIGABIT_OVERHEAD)) / 1024.0
}

/// Both networks, with events given to neighbours one after the other, and to builder units of one
/// edge after the other; in the short study the latter on the network whose large trunks bring an
/// edge many events at once.
fn networks(quick: bool) -> Vec<Network> {
    let [one, two] = gigabit_networks();
    let in_order = |(name, topology): &(&str, Topology)| Network {
        name: (*name).to_owned(),
        topology: topology.clone(),
        placement: Placement::InOrder,
    };
    let to_edges_in_turn = |(name, topology): &(&str, Topology)| Network {
        name: format!("{name}, events to the edges in turn"),
        topology: topology.clone(),
        placement: Placement::Interleaved {
            slot_ports: EDGE_NODES,
        },
    };
    let mut all = vec![in_order(&one), in_order(&two), to_edges_in_turn(&two)];
    if !quick {
        all.push(to_edges_in_turn(&one));
    }
    all
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
    let window = if quick { (15, 100) } else { (30, 300) };
    let of_seed = |seed| {
        let name = format!("{}: more than is used, seed {seed}", network.name);
        let mut case = case(network, AMPLE_KIB, name, window);
        case.load.counts_links = true;
        case.load.seed = seed;
        case
    };
    seeds.map(of_seed).collect()
}

/// With less than the fullest port held: KiB, and whether what is lost is asked for again.
fn smaller_cases(network: &Network, onset_kib: f64, quick: bool) -> Vec<(u64, Asking, Case)> {
    let shares: &[f64] = if quick {
        &[0.75]
    } else {
        &[0.125, 0.25, 0.5, 0.75, 0.875]
    };
    let of_share = |asking: Asking, share: &f64| {
        // A packet must fit in.
        let kib = ((share * onset_kib) as u64).max(64);
        let (name, window) = match (asking, quick) {
            // At most so long that credits are left although hardly an event is whole.
            (Asking::Never, true) => ("not asked for again", (15, 60)),
            (Asking::Never, false) => ("not asked for again", (15, 150)),
            (Asking::Again, true) => ("asked for again", (100, 160)),
            (Asking::Again, false) => ("asked for again", (100, 500)),
        };
        let name = format!("{}: {kib} KiB, {name}", network.name);
        let mut case = case(network, kib, name, window);
        if asking == Asking::Never {
            case.plan.retry = DurationNs::SECOND;
            case.plan.credits = 16;
        }
        (kib, asking, case)
    };
    let never = shares.iter().map(|share| of_share(Asking::Never, share));
    let mut cases: Vec<_> = never.collect();
    if network.placement == Placement::InOrder {
        cases.extend(shares.iter().map(|share| of_share(Asking::Again, share)));
    }
    cases
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
    let mut places = Vec::new();
    let mut cases = Vec::new();
    for (place, (network, one)) in networks.iter().zip(&found).enumerate() {
        let onset = one.onset_kib().into_iter();
        for (kib, asking, case) in onset.flat_map(|onset| smaller_cases(network, onset, quick)) {
            places.push((place, kib, asking));
            cases.push(case);
        }
    }
    let outcomes = run_cases(&cases);
    for ((place, kib, asking), outcome) in places.into_iter().zip(&outcomes) {
        found[place].is_conserved &= outcome.is_conserved();
        found[place].smaller.push(Smaller {
            kib,
            asking,
            lost: Lost::of(&outcome.batches),
            carried: Carried::of_run(outcome),
        });
    }
    rows.extend(cases.iter().zip(&outcomes).map(|(c, o)| row(c, o)));
    conclude(&found, rows)
}

fn conclude(found: &[Found], rows: Vec<Vec<String>>) -> Answer {
    let enough = found.iter().map(Found::in_short);
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
             come; events go to the builder units in their order, 20 neighbours of which share an \
             edge, or to the edges in turn; 4 credits for a builder unit, lost fragments asked for \
             again after 80 ms; 16 credits where nothing is asked for again.",
            GIGABIT_HZ / 1_000
        ),
        is_converged: found.iter().all(Found::is_converged),
        is_conserved: found.iter().all(|one| one.is_conserved),
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
            is_conserved: true,
            smaller: vec![smaller],
        }
    }

    fn smaller(lost: Lost, carried: Carried) -> Smaller {
        Smaller {
            kib: 512,
            asking: Asking::Again,
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
        assert!(answer.is_conserved);
        assert!(answer.answer.contains("I: 1000 KiB; one event is 1037 KiB"));
        assert!(answer.verdict[0].starts_with("I: 1000 KiB per port are enough for no loss"));
        assert!(answer.verdict[1].contains("lost 250 +- 10 per million"));
        assert!(answer.verdict[1].contains("backlog grows by 50 %"));
    }

    #[test]
    fn a_promise_broken_in_one_run_is_broken() {
        let grows = Carried::Growing { share: 0.5 };
        let lost = Lost::Above { least_ppm: 5.0 };
        let one = || found([1_000.0, 950.0], smaller(lost, grows));
        let mut broken = one();
        broken.is_conserved = false;
        assert!(!conclude(&[one(), broken], vec![]).is_conserved);
    }

    #[test]
    fn where_the_seeds_differ_the_least_full_is_a_bound() {
        let grows = Carried::Growing { share: 0.5 };
        let lost = Lost::Above { least_ppm: 5.0 };
        let answer = conclude(&[found([1_000.0, 500.7], smaller(lost, grows))], vec![]);
        assert!(answer.is_converged);
        assert!(answer.answer.contains("I: more than 500 KiB; one event"));
        assert!(answer.verdict[0].starts_with("I: more than 500 KiB per port: all of 2 runs"));
        assert!(answer.verdict[0].contains("one 1000 KiB; how much is enough has not settled"));
    }

    #[test]
    fn without_asking_again_events_miss_something() {
        let mut one = smaller(
            Lost::Steady {
                ppm: 250.0,
                ci95: 10.0,
            },
            Carried::Growing { share: 0.97 },
        );
        one.asking = Asking::Never;
        let lossy = found([1_000.0; 2], one).too_small().remove(0);
        assert!(lossy.contains("again: lost 250 +- 10 per million; 97 % of the events miss"));
        let mut one = smaller(Lost::Nothing { packets: 7 }, Carried::Unknown);
        one.asking = Asking::Never;
        let one = found([1_000.0; 2], one);
        assert!(one.too_small()[0].ends_with("whole events: not converged."));
        assert!(!one.is_converged());
    }

    #[test]
    fn smaller_buffers_are_run_with_and_without_asking_again() {
        let networks = networks(true);
        assert_eq!((networks.len(), super::networks(false).len()), (3, 4));
        let of = |network: &Network| {
            let cases = smaller_cases(network, 1_000.0, true).into_iter();
            let parts = cases.map(|(kib, asking, case)| (kib, asking, case.plan.credits));
            parts.collect::<Vec<_>>()
        };
        let both = [(750, Asking::Never, 16), (750, Asking::Again, 4)];
        assert_eq!(of(&networks[0]), both);
        assert_eq!(of(&networks[2]), both[..1]);
        assert_eq!(smaller_cases(&networks[0], 100.0, false)[0].0, 64);
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
