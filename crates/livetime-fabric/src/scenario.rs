//! Scenarios: one description of network, switching and traffic for every level of simulation.
//!
//! A [`Scenario`] is plain values; [`Scenario::validate`] says everything that is wrong with it, and
//! [`Scenario::run`] runs it by packets, by flits, or gives the closed form where there is one. Files are read by
//! the program, which also opens the graphs and size lists they name. What the parts mean is in
//! [`crate::network`] and [`crate::flit`].

mod buffer_load;
mod cable_check;
mod closed_form;
mod notes;
mod starts;

use closed_form::CLOSED_FORMS;
use livetime_wire::{DurationNs, Problem};
pub use starts::StartOutcome;

use crate::builder_network::{BuilderNetwork, BuilderNetworkOutcome};
use crate::flit::{self, BUFFER_FLITS_MAX, FlitConfig};
use crate::network::topology::shift::ShiftSchedule;
use crate::network::topology::{Graph, RATES, Wiring};
use crate::network::{
    Arbiter, Arrival, Buffering, Load, NetworkOutcome, Pattern, SizeLaw, Topology, TopologyError,
    Traffic, buffered, wormhole,
};
use crate::problem_code::{BUFFERS, LAW, LEVEL, SCHEDULE, TIMES, TOPOLOGY, TRAFFIC};
use crate::time::DurationPs;

/// The longest run, simulated.
pub const DURATION_MAX: DurationPs = DurationPs::from_ms(3_600_000);
/// The most pairs of link and port that an arbiter remembers, 8 B each.
const SERVED_PORTS_MAX: u64 = 1 << 26;
/// Times `retry` that a run with lost fragments counts, at least: within the first ones events hang.
const RETRIES_MIN: u64 = 4;
/// The most steps of a schedule that are checked for conflicts.
const SCHEDULE_STEPS_MAX: u32 = 4096;

/// Level of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// Closed forms (F0), for the scenarios that have one.
    Analytic,
    /// Packets (F2).
    #[default]
    Packet,
    /// Flits and cycles (F1).
    Flit,
}

/// A network by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopologyChoice {
    /// One crossbar.
    Crossbar {
        /// Ports.
        ports: u32,
    },
    /// Delta network.
    Delta {
        /// Ports of a crossbar.
        radix: u32,
        /// Stages.
        stages: u32,
        /// Places of the sources.
        wiring: Wiring,
    },
    /// Symmetric network of 4 layers.
    FourLayer {
        /// Ports of a crossbar.
        radix: u32,
    },
    /// Symmetric network of 6 layers.
    SixLayer {
        /// Ports of a crossbar.
        radix: u32,
    },
    /// Clos network.
    Clos {
        /// Middle crossbars.
        middle: u32,
        /// Ports of an edge.
        ports: u32,
        /// Edges.
        edges: u32,
    },
    /// Benes network of 2 x 2 crossbars.
    Benes {
        /// Ports.
        ports: u32,
    },
    /// k-ary n-tree.
    FatTree {
        /// Ports down, and up.
        radix: u32,
        /// Levels.
        levels: u32,
    },
    /// Edge and core switches.
    TwoLevel {
        /// Edges.
        edges: u32,
        /// Sources of an edge, and destinations.
        nodes: u32,
        /// Cores.
        cores: u32,
        /// Rate of a trunk in links of nodes.
        trunk_speed: u32,
    },
    /// Any graph.
    Graph(Graph),
}

impl TopologyChoice {
    /// Builds it.
    ///
    /// # Errors
    /// [`TopologyError`] when it cannot be built.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        match self {
            Self::Crossbar { ports } => Topology::crossbar(*ports),
            Self::Delta {
                radix,
                stages,
                wiring,
            } => Topology::delta(*radix, *stages, wiring),
            Self::FourLayer { radix } => Topology::four_layer(*radix),
            Self::SixLayer { radix } => Topology::six_layer(*radix),
            Self::Clos {
                middle,
                ports,
                edges,
            } => Topology::clos(*middle, *ports, *edges),
            Self::Benes { ports } => Topology::benes(*ports),
            Self::FatTree { radix, levels } => Topology::fat_tree(*radix, *levels),
            Self::TwoLevel {
                edges,
                nodes,
                cores,
                trunk_speed,
            } => Topology::two_level(*edges, *nodes, *cores, *trunk_speed),
            Self::Graph(graph) => Topology::graph(graph),
        }
    }
}

/// What the elements do with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switching {
    /// Hold and wait, without buffers.
    #[default]
    Wormhole,
    /// With buffers.
    Buffered(Buffering),
}

/// Order of a barrel shifter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShiftOrder {
    /// The schedule of the topology that is free of conflicts; refused where there is none.
    #[default]
    ConflictFree,
    /// Source s starts at destination s.
    Plain,
}

/// Everything about a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Level.
    pub level: Level,
    /// Network.
    pub topology: TopologyChoice,
    /// Elements at the level of packets.
    pub switching: Switching,
    /// Elements at the level of flits.
    pub flits: FlitConfig,
    /// Traffic, links and times. Its pattern is replaced where `shift` says so.
    pub load: Load,
    /// The traffic is a barrel shifter with this order.
    pub shift: Option<ShiftOrder>,
    /// Equal networks side by side, over which each node spreads its packets in turn: one is
    /// simulated with its share of the arrivals, and throughputs are multiplied. 1 to 16.
    pub rails: u32,
    /// The event builder's protocol sends, instead of a pattern; it runs on all rails at once.
    pub builder: Option<BuilderNetwork>,
    /// What has not converged is run again, with twice the duration and warm-up each time, as long as
    /// the duration is at most this; `None` for one run.
    pub duration_max: Option<DurationPs>,
}

/// What a scenario gives.
#[derive(Debug, Clone)]
pub struct ScenarioOutcome {
    /// Sources of the network.
    pub sources: u32,
    /// Destinations of the network.
    pub destinations: u32,
    /// Networks side by side; the figures of `network` are those of one.
    pub rails: u32,
    /// The closed form, where there is one.
    pub analytic: Option<f64>,
    /// The simulation of a pattern; `None` at the analytic level.
    pub network: Option<NetworkOutcome>,
    /// The simulation of an event builder.
    pub builder: Option<BuilderNetworkOutcome>,
    /// What one of its readout units can send to one builder unit, as a share of the links: see
    /// [`BuilderNetwork::point_to_point`].
    pub builder_point_to_point: Option<f64>,
    /// What should be known beside the result, a sentence each.
    pub notes: Vec<String>,
    /// Warm-up of the run that the figures are of.
    pub warm_up: DurationPs,
    /// Its starts where there were several; empty for one run.
    pub starts: Vec<StartOutcome>,
}

impl ScenarioOutcome {
    /// Whether a longer run would say nothing else.
    fn is_final(&self) -> bool {
        let of_network =
            |network: &NetworkOutcome| network.efficiency_link.converged || network.is_deadlocked();
        let of_builder = |builder: &BuilderNetworkOutcome| {
            builder.event_rate.converged
                || builder.is_deadlocked()
                || !builder.violations.is_empty()
        };
        self.network.as_ref().is_none_or(of_network) && self.builder.as_ref().is_none_or(of_builder)
    }
}

impl Scenario {
    /// Everything that is wrong, with the key of the scenario file.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.check_laws(&mut problems);
        self.check_times(&mut problems);
        let topology = match self.topology.build() {
            Ok(topology) => topology,
            Err(error) => {
                let allowed = "a network that can be built, with a route for each pair";
                let help = "docs/operator/scenarios.md lists the networks and their sizes";
                let found = format!("a network that cannot be built: {error}");
                problems.push(Problem::new(TOPOLOGY, "topology", found, allowed, help));
                return problems;
            }
        };
        self.check_switching(&topology, &mut problems);
        self.check_cables(&topology, &mut problems);
        self.check_flits(&mut problems);
        if let Some(builder) = &self.builder {
            let fits = builder.validate(&topology, &self.load, &self.switching, self.rails);
            problems.extend(fits);
            if self.level != Level::Packet {
                let help = "use `level = \"packet\"`, or remove `[builder]`";
                let found = "an event builder at this level";
                problems.push(Problem::new(LEVEL, "level", found, "packets", help));
            }
            return problems;
        }
        self.check_traffic(&topology, &mut problems);
        self.check_level(&topology, &mut problems);
        problems
    }

    fn check_laws(&self, problems: &mut Vec<Problem>) {
        if let Some(found) = self.load.sizes.problem() {
            let (allowed, help) = (
                "sizes from 1 B to 16 MiB",
                "set mean, rms or the list of sizes into that range",
            );
            problems.push(Problem::new(LAW, "size", found, allowed, help));
        }
        if let Some(found) = self.load.arrival.problem() {
            let allowed = "times above 0, probabilities above 0 and up to 1, bursts from 1 packet";
            let help = "correct the law of arrivals";
            problems.push(Problem::new(LAW, "arrival", found, allowed, help));
        }
    }

    fn check_times(&self, problems: &mut Vec<Problem>) {
        let load = &self.load;
        let mut report = |path: &str, found: String, allowed: &str, help: &str| {
            problems.push(Problem::new(TIMES, path, found, allowed, help));
        };
        // Without a size there is no default for it.
        let has_sizes = load.sizes.problem().is_none();
        if load.duration == DurationPs::ZERO && has_sizes || load.duration > DURATION_MAX {
            let found = written(load.duration);
            let help = "a few thousand packet times are enough for random traffic";
            report("duration", found, "above 0 and up to an hour", help);
        }
        if let Some(most) = self.duration_max
            && !(load.duration..=DURATION_MAX).contains(&most)
        {
            let help = "set it to some times `duration`, or leave it out";
            let allowed = "the duration of the run, up to an hour";
            report("duration_max", written(most), allowed, help);
        }
        if load.warm_up > DURATION_MAX {
            let help = "a tenth of the duration is usual";
            report("warm_up", written(load.warm_up), "up to an hour", help);
        }
        for (path, time, help) in [
            ("link.hop_delay", load.hop_delay, "hundreds of ns are usual"),
            (
                "link.source_gap",
                load.source_gap,
                "parts of a packet's time are usual",
            ),
        ] {
            if time > DURATION_MAX {
                report(path, written(time), "up to an hour", help);
            }
        }
        if !RATES.contains(&load.link_bits_per_s) {
            let found = format!("{} bit/s", load.link_bits_per_s);
            let help = "write a rate such as \"2 Gb/s\"";
            report("link.rate", found, "1 kb/s to 100 Tb/s", help);
        }
        if !(1..=16).contains(&self.rails) {
            let help = "use 1 for a single network";
            report("rails", self.rails.to_string(), "1 to 16", help);
        }
    }

    fn check_traffic(&self, topology: &Topology, problems: &mut Vec<Problem>) {
        let mut report = |path: &str, found: String, allowed: &str, help: &str| {
            problems.push(Problem::new(TRAFFIC, path, found, allowed, help));
        };
        // The window is checked by itself.
        let pattern = Traffic::new(self.load.traffic.pattern.clone());
        if self.shift.is_none()
            && let Some(found) = pattern.problem(topology.sources(), topology.destinations())
        {
            let help = "change the pattern or the network";
            report("traffic", found, "a pattern that fits the network", help);
        }
        let is_offered = self.load.arrival != Arrival::Saturated;
        let is_event_building = self.load.traffic.pattern.is_event_building();
        if is_offered && is_event_building && self.load.traffic.window.is_none() {
            let help = "add `window`, the events that may be in flight at once";
            let found = "events with arrivals and without a window".to_owned();
            report("traffic.window", found, "a window of 1 event or more", help);
        }
        match self.load.traffic.window {
            Some(window) if window == 0 || window > 1 << 20 => {
                let help = "a few times the number of destinations is usual";
                report(
                    "traffic.window",
                    window.to_string(),
                    "1 to 1048576 events",
                    help,
                );
            }
            _ => {}
        }
        if self.shift == Some(ShiftOrder::ConflictFree) {
            check_schedule(topology, problems);
        }
    }

    /// One of the arbiters remembers for each link when each of the ports before it was served.
    fn check_arbiter(&self, topology: &Topology, problems: &mut Vec<Problem>) {
        if self.load.arbiter != Arbiter::LeastRecent {
            return;
        }
        let inner = match &self.switching {
            Switching::Wormhole => 0,
            Switching::Buffered(buffering) => buffering.inner_links(topology),
        };
        let links = topology.links().len() as u64 + inner;
        let ports = topology.elements().iter().map(|element| element.inputs);
        let ports = ports.max().unwrap_or(1);
        let pairs = links * u64::from(ports);
        if pairs > SERVED_PORTS_MAX {
            let found = format!("least-recent, for {links} links and {ports} ports before each");
            let allowed = format!("up to {SERVED_PORTS_MAX} pairs of link and port, 512 MiB");
            let help = "use `arbiter = \"round-robin\"`, or smaller elements";
            problems.push(Problem::new(
                BUFFERS,
                "switch.arbiter",
                found,
                allowed,
                help,
            ));
        }
    }

    fn check_switching(&self, topology: &Topology, problems: &mut Vec<Problem>) {
        self.check_arbiter(topology, problems);
        let Switching::Buffered(buffering) = &self.switching else {
            return;
        };
        let overhead = u64::from(self.load.overhead_bytes);
        let largest = self.largest_packet();
        let largest = match &self.builder {
            Some(builder) if builder.mtu > 0 => largest.min(builder.mtu.into()),
            _ => largest,
        };
        for problem in buffering.problems(largest + overhead, topology) {
            let buffered::BufferingProblem {
                key,
                found,
                allowed,
                help,
            } = problem;
            let path = format!("switch.{key}");
            problems.push(Problem::new(BUFFERS, path, found, allowed, help));
        }
    }

    /// Bytes of the largest packet, or of what counts as it, without overhead.
    fn largest_packet(&self) -> u64 {
        match &self.load.sizes {
            SizeLaw::Fixed(bytes) => u64::from(*bytes),
            SizeLaw::Trace(sizes) => u64::from(sizes.iter().copied().max().unwrap_or(0)),
            // Laws without an end: a packet must fit nearly always, and is lost or refused for ever
            // if it does not, so ask for a wide margin.
            SizeLaw::Exponential { mean } => (20.0 * mean) as u64,
            SizeLaw::LogNormal { mean, rms } => (mean + 20.0 * rms) as u64,
        }
    }

    /// At whatever level: a scenario may be run at another one.
    fn check_flits(&self, problems: &mut Vec<Problem>) {
        if let Some(found) = self.flits.problem() {
            let allowed = format!(
                "`bytes` of 1 B to 64 KiB, `buffer` of 2 to {BUFFER_FLITS_MAX} flits, 1 to 16 \
                 `channels`"
            );
            let help = "8 flits of 8 B are usual";
            problems.push(Problem::new(LEVEL, "flit", found, allowed, help));
        }
    }

    fn check_level(&self, topology: &Topology, problems: &mut Vec<Problem>) {
        match self.level {
            Level::Packet => {}
            Level::Flit => self.check_under_way(topology, problems),
            Level::Analytic => {
                if self.analytic(topology).is_none() {
                    let help = "use `level = \"packet\"`";
                    let found = "a scenario without a closed form";
                    problems.push(Problem::new(LEVEL, "level", found, CLOSED_FORMS, help));
                }
            }
        }
    }

    /// The load of one rail, with the schedule of a barrel shifter where there is one.
    fn rail_load(&self, topology: &Topology) -> Load {
        let mut load = self.load.clone();
        if let Some(order) = self.shift {
            let schedule = match order {
                ShiftOrder::ConflictFree => ShiftSchedule::conflict_free(topology),
                ShiftOrder::Plain => None,
            };
            let plain = || ShiftSchedule::naive(topology, load.routes);
            let schedule = schedule.unwrap_or_else(plain);
            load.routes = schedule.policy;
            load.traffic.pattern = Pattern::Shift(schedule);
        }
        load.arrival = in_turn(load.arrival, self.rails);
        load
    }

    /// Runs it. Call [`Self::validate`] first.
    ///
    /// # Errors
    /// [`TopologyError`] when the network cannot be built.
    ///
    /// # Panics
    /// When the scenario has other problems.
    pub fn run(&self) -> Result<ScenarioOutcome, TopologyError> {
        let mut outcome = self.run_alone()?;
        outcome.notes.extend(self.start_note(&outcome));
        Ok(outcome)
    }

    /// Runs it as one of several starts.
    fn run_alone(&self) -> Result<ScenarioOutcome, TopologyError> {
        let topology = self.topology.build()?;
        let mut outcome = self.run_once(&topology);
        let mut longer = self.clone();
        while let Some(most) = self.duration_max
            && !outcome.is_final()
        {
            longer.load.duration = longer.load.duration * 2;
            longer.load.warm_up = longer.load.warm_up * 2;
            if longer.load.duration > most || longer.load.warm_up > DURATION_MAX {
                break;
            }
            outcome = longer.run_once(&topology);
        }
        Ok(outcome)
    }

    fn run_once(&self, topology: &Topology) -> ScenarioOutcome {
        if let Some(builder) = &self.builder {
            let mut outcome = builder.run(topology, &self.load, &self.switching, self.rails);
            let mut notes = self.notes(topology);
            if let Some(note) = self.retry_note(builder, &outcome) {
                (outcome.event_rate.converged, outcome.event_rate.is_flat) = (false, false);
                notes.push(note);
            }
            return ScenarioOutcome {
                sources: outcome.readout_units,
                destinations: outcome.builder_units,
                rails: self.rails,
                analytic: None,
                network: None,
                builder: Some(outcome),
                builder_point_to_point: Some(builder.point_to_point(&self.load, self.rails)),
                notes,
                warm_up: self.load.warm_up,
                starts: Vec::new(),
            };
        }
        let load = self.rail_load(topology);
        let mut network = match (self.level, &self.switching) {
            (Level::Analytic, _) => None,
            (Level::Flit, _) => Some(flit::run(topology, &load, &self.flits)),
            (Level::Packet, Switching::Wormhole) => Some(wormhole::run(topology, &load)),
            (Level::Packet, Switching::Buffered(buffering)) => {
                Some(buffered::run(topology, &load, buffering))
            }
        };
        if let Some(network) = network.as_mut().filter(|n| n.is_deadlocked()) {
            network.efficiency_link.converged = false;
        }
        ScenarioOutcome {
            sources: topology.sources(),
            destinations: topology.destinations(),
            rails: self.rails,
            analytic: self.analytic(topology),
            network,
            builder: None,
            builder_point_to_point: None,
            notes: self.notes(topology),
            warm_up: self.load.warm_up,
            starts: Vec::new(),
        }
    }
}

/// A time as files have it.
fn written(time: DurationPs) -> String {
    DurationNs(time.0 / 1_000).to_string()
}

/// The arrivals of one rail of several, over which each source spreads its packets in turn.
fn in_turn(law: Arrival, rails: u32) -> Arrival {
    match law {
        Arrival::Saturated => law,
        _ if rails <= 1 => law,
        _ => Arrival::InTurn {
            law: Box::new(law),
            every: rails,
        },
    }
}

fn check_schedule(topology: &Topology, problems: &mut Vec<Problem>) {
    let mut report = |found: String| {
        let allowed = "a network with a schedule in which no two sources share a link";
        let help =
            "set `traffic.order = \"plain\"` to run it with conflicts, or change the network";
        problems.push(Problem::new(
            SCHEDULE,
            "traffic.order",
            found,
            allowed,
            help,
        ));
    };
    if topology.sources() > topology.destinations() {
        report("more sources than destinations".to_owned());
        return;
    }
    match ShiftSchedule::conflict_free(topology) {
        None => report("a network for which no such schedule is known".to_owned()),
        Some(schedule) => {
            let steps = topology.destinations().min(SCHEDULE_STEPS_MAX);
            if let Some(conflict) = schedule.first_conflict(topology, steps) {
                report(conflict.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Queueing, Traffic};

    fn crossbar(ports: u32) -> Scenario {
        Scenario {
            level: Level::Packet,
            topology: TopologyChoice::Crossbar { ports },
            switching: Switching::Wormhole,
            flits: FlitConfig::default(),
            load: Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(2048), 2_000),
            shift: None,
            rails: 1,
            builder: None,
            duration_max: None,
        }
    }

    #[test]
    fn all_levels_agree_on_a_crossbar() {
        let base = crossbar(8);
        assert!(base.validate().is_empty());
        let run = |level| {
            let scenario = Scenario {
                level,
                ..base.clone()
            };
            assert_eq!(scenario.validate(), []);
            let outcome = scenario.run().unwrap();
            let network = outcome.network.map(|network| {
                assert!(network.is_conserved());
                // A packet of 2 KiB takes 16.384 us on a link of 1 Gb/s, and some wait.
                assert!(network.latency_ns.min() >= 16_300, "{level:?}");
                assert!(network.latency_ns.max() > 2 * network.latency_ns.min());
                network.efficiency_link.mean
            });
            network.or(outcome.analytic).unwrap()
        };
        let exact = run(Level::Analytic);
        assert!((run(Level::Packet) - exact).abs() < 0.02);
        assert!((run(Level::Flit) - exact).abs() < 0.02);
    }

    const fn tree(levels: u32) -> TopologyChoice {
        TopologyChoice::FatTree { radix: 2, levels }
    }

    #[test]
    fn problems_are_found_before_the_start() {
        let codes = |change: fn(&mut Scenario)| {
            let mut scenario = crossbar(8);
            change(&mut scenario);
            let problems = scenario.validate();
            problems.iter().map(|p| p.code.code).collect::<Vec<_>>()
        };
        assert_eq!(
            codes(|s| s.topology = TopologyChoice::Benes { ports: 12 }),
            ["F0201"]
        );
        assert_eq!(codes(|s| s.topology = tree(13)), ["F0201"]);
        assert_eq!(codes(|s| s.topology = tree(12)), [""; 0]);
        assert_eq!(
            codes(|s| s.load.traffic.pattern = Pattern::Incast(8)),
            ["F0202"]
        );
        assert_eq!(
            codes(|s| {
                s.topology = TopologyChoice::Benes { ports: 8 };
                s.shift = Some(ShiftOrder::ConflictFree);
            }),
            ["F0203"]
        );
        assert_eq!(
            codes(|s| {
                s.switching = Switching::Buffered(Buffering {
                    forwarding: buffered::Forwarding::CutThrough,
                    queueing: Queueing::InputFifo,
                    place: buffered::BufferPlace::Input,
                    bytes: 100,
                    lanes: 1,
                    flow: buffered::FlowControl::Credits,
                });
            }),
            ["F0204"]
        );
        assert_eq!(codes(|s| s.load.sizes = SizeLaw::Fixed(0)), ["F0205"]);
        assert_eq!(
            codes(|s| {
                s.level = Level::Analytic;
                s.load.traffic.window = Some(3);
            }),
            ["F0206"]
        );
        assert_eq!(codes(|s| s.load.duration = DurationPs::ZERO), ["F0207"]);
        for level in [
            |_: &mut Scenario| {},
            |s: &mut Scenario| s.level = Level::Flit,
        ] {
            let paths = |change: fn(&mut Scenario)| {
                let mut scenario = crossbar(8);
                level(&mut scenario);
                change(&mut scenario);
                let problems = scenario.validate();
                assert!(problems.iter().all(|p| p.code == TIMES), "{problems:?}");
                problems.into_iter().map(|p| p.path).collect::<Vec<_>>()
            };
            assert_eq!(
                paths(|s| s.load.source_gap = DURATION_MAX),
                [""; 0],
                "an hour is allowed"
            );
            assert_eq!(
                paths(
                    |s| (s.load.hop_delay, s.load.source_gap) = (DurationPs::MAX, DurationPs::MAX)
                ),
                ["link.hop_delay", "link.source_gap"]
            );
            assert_eq!(
                paths(|s| s.load.hop_delay = DURATION_MAX + DurationPs(1)),
                ["link.hop_delay"]
            );
        }
        assert_eq!(
            codes(|s| {
                s.load.traffic.pattern = Pattern::EventsInOrder;
                s.load.arrival = Arrival::Poisson {
                    interval: DurationPs::from_us(10),
                };
            }),
            ["F0202"]
        );
    }

    #[test]
    fn what_takes_too_much_memory_is_refused_before_the_start() {
        let paths = |scenario: &Scenario| -> Vec<String> {
            let problems = scenario.validate();
            assert!(problems.iter().all(|p| p.code == BUFFERS), "{problems:?}");
            problems.into_iter().map(|p| p.path).collect()
        };
        let mut large = crossbar(1 << 16);
        large.load.traffic.pattern = Pattern::Incast(0);
        let mut queues = Buffering {
            forwarding: buffered::Forwarding::CutThrough,
            queueing: Queueing::InputFifo,
            place: buffered::BufferPlace::Input,
            bytes: 64 << 10,
            lanes: 16,
            flow: buffered::FlowControl::Credits,
        };
        large.switching = Switching::Buffered(queues);
        assert_eq!(paths(&large), [""; 0], "FIFOs");
        queues.lanes = 1;
        let combined = Queueing::Combined {
            speedup_thousandths: 2_000,
            output_bytes: 64 << 10,
            matching: None,
        };
        for queueing in [Queueing::VirtualOutput, Queueing::Output, combined] {
            queues.queueing = queueing;
            large.switching = Switching::Buffered(queues);
            assert_eq!(paths(&large), ["switch.queues"], "{queueing:?}");
        }
        let found = &large.validate()[0].found;
        assert_eq!(
            found,
            "8589934592 of them: 65536 behind each of 131072 links"
        );
        large.topology = TopologyChoice::Crossbar { ports: 4096 };
        assert_eq!(paths(&large), [""; 0]);
        // An arbiter remembers as many pairs, with queues at crosspoints for each of those again.
        large.load.arbiter = Arbiter::LeastRecent;
        assert_eq!(paths(&large), [""; 0]);
        large.topology = TopologyChoice::Crossbar { ports: 1 << 16 };
        large.switching = Switching::Wormhole;
        assert_eq!(paths(&large), ["switch.arbiter"]);
        large.topology = TopologyChoice::Crossbar { ports: 1024 };
        queues.queueing = Queueing::Crosspoint { bytes: 4096 };
        large.switching = Switching::Buffered(queues);
        assert_eq!(paths(&large), ["switch.arbiter"]);
        large.load.arbiter = Arbiter::RoundRobin;
        assert_eq!(paths(&large), [""; 0]);
    }

    #[test]
    fn what_has_not_converged_is_run_again_for_longer() {
        let mut scenario = crossbar(4);
        let once = Load::saturated(Traffic::new(Pattern::Uniform), SizeLaw::Fixed(2048), 20);
        scenario.load = once.clone();
        let run = |scenario: &Scenario| {
            assert_eq!(scenario.validate(), []);
            let outcome = scenario.run().unwrap();
            let network = outcome.network.unwrap();
            let length = network.simulated.0 - outcome.warm_up.0;
            let times = (length + once.duration.0 / 2) / once.duration.0;
            (network.efficiency_link.converged, times)
        };
        assert_eq!(run(&scenario), (false, 1));
        scenario.duration_max = Some(once.duration * 5);
        assert_eq!(run(&scenario), (false, 4));
        scenario.duration_max = Some(once.duration * 10_000);
        let (converged, times) = run(&scenario);
        assert!(converged && times > 4 && times.is_power_of_two(), "{times}");
        scenario.duration_max = Some(DurationPs::from_ns(1));
        assert_eq!(scenario.validate()[0].path, "duration_max");
    }

    /// Every crossing has a collision that is accepted, and four in 240 of them pass the trigger rules.
    #[test]
    fn trigger_rules_are_for_all_rails_together() {
        let mut scenario = crossbar(2);
        scenario.load.traffic.pattern = Pattern::Permutation(vec![1, 0]);
        scenario.load.sizes = SizeLaw::Fixed(512);
        scenario.load.arrival = Arrival::Bunches {
            crossing: DurationPs::from_us(1),
            probability: 1.0,
            filled: 3564,
            train: 3564,
        };
        scenario.load.duration = DurationPs::from_us(240 * 400);
        scenario.load.warm_up = DurationPs::from_us(240 * 40);
        for rails in [1, 2, 4] {
            scenario.rails = rails;
            let network = scenario.run().unwrap().network.unwrap();
            let rate = f64::from(rails) * network.packets_per_source_hz;
            assert!((rate * 240e-6 / 4.0 - 1.0).abs() < 0.002, "{rails}: {rate}");
        }
    }

    #[test]
    fn two_rails_carry_twice_the_offered_rate() {
        let mut scenario = crossbar(4);
        scenario.load.arrival = Arrival::Poisson {
            interval: DurationPs::from_us(50),
        };
        let rate = |scenario: &Scenario| {
            let outcome = scenario.run().unwrap();
            let network = outcome.network.unwrap();
            f64::from(outcome.rails) * network.packets_per_source_hz
        };
        let one = rate(&scenario);
        scenario.rails = 2;
        let two = rate(&scenario);
        assert!((one / two - 1.0).abs() < 0.05, "{one} {two}");
        assert!((one / 20_000.0 - 1.0).abs() < 0.05, "{one}");
    }
}
