//! Which networks and disciplines carry an event builder: a search over both, by simulation.
//!
//! For each candidate network that is large enough and each discipline of sending, saturated event
//! building is simulated and its efficiency compared with the load of the busiest link of a node.
//! Candidates have as many destinations as sources: where builders are fewer, their links carry more and the load
//! accounts for it, the pattern of the traffic does not. Costs are not known here; the number of
//! switching elements stands for them.

use crate::flit::FlitConfig;
use crate::network::topology::Wiring;
use crate::network::topology::shift::ShiftSchedule;
use crate::network::{
    Arrival, BufferPlace, Buffering, FlowControl, Forwarding, Load, Pattern, Queueing, RoutePolicy,
    SizeLaw, Traffic,
};
use crate::scenario::{Level, Scenario, ShiftOrder, Switching, TopologyChoice};
use crate::time::DurationPs;

/// The most nodes of a plan.
pub const PLAN_NODES_MAX: u32 = 4096;
/// Packets that a run is worth.
const PACKETS: u64 = 1_000_000;
/// Triggers of a run at the rate asked for.
const TRIGGERS: u64 = 200;
/// Block of the barrel shifter, bytes.
const BLOCK: u32 = 4096;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRequest {
    /// Sources, 2 to [`PLAN_NODES_MAX`].
    pub sources: u32,
    /// Builders, 1 to [`PLAN_NODES_MAX`].
    pub builders: u32,
    /// Mean size of a fragment, bytes.
    pub fragment_mean: f64,
    /// Standard deviation of it, bytes; 0 for fixed sizes.
    pub fragment_rms: f64,
    /// Bytes on the link for each fragment besides its size.
    pub overhead_bytes: u32,
    /// Rate of triggers, hertz.
    pub rate_hz: f64,
    /// Rate of a node's link, bits per second.
    pub link_bits_per_s: u64,
    /// Bytes of each buffer, where there are buffers.
    pub buffer_bytes: u64,
    /// Seed of the simulations.
    pub seed: u64,
}

/// How fragments are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// Unshaped, elements without buffers.
    Wormhole,
    /// Unshaped, one FIFO at each input, credits between elements.
    InputFifo,
    /// Unshaped, a queue for each input and output, credits between elements.
    VirtualOutput,
    /// Unshaped, queues at outputs that lose what they cannot hold, at the rate asked for.
    OutputLossy,
    /// Blocks of fixed size in a schedule without conflicts.
    BarrelShifter,
}

impl Discipline {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Wormhole,
        Self::InputFifo,
        Self::VirtualOutput,
        Self::OutputLossy,
        Self::BarrelShifter,
    ];

    /// What it is, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wormhole => "unshaped, no buffers",
            Self::InputFifo => "unshaped, input FIFOs, credits",
            Self::VirtualOutput => "unshaped, virtual output queues, credits",
            Self::OutputLossy => "unshaped, output queues, no flow control",
            Self::BarrelShifter => "barrel shifter, blocks of 4 KiB",
        }
    }
}

/// What limits an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The links of the sources.
    SourceLink,
    /// The links of the builders.
    BuilderLink,
    /// Packets that wait behind others for another output.
    HeadOfLine,
    /// Buffers that are too small for event building.
    Buffers,
    /// Trunks between switches.
    Trunks,
}

impl Bottleneck {
    /// What it is, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SourceLink => "links of the sources",
            Self::BuilderLink => "links of the builders",
            Self::HeadOfLine => "head-of-line blocking",
            Self::Buffers => "buffers of the switches",
            Self::Trunks => "trunks between switches",
        }
    }
}

/// A network with a discipline, and what it reaches.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanOption {
    /// The network, in words.
    pub network: String,
    /// Its switching elements.
    pub elements: usize,
    /// How fragments are sent.
    pub discipline: Discipline,
    /// Share of the links that event building reaches.
    pub efficiency: f64,
    /// Whether that is a steady-state number.
    pub converged: bool,
    /// Rate of events that it carries, hertz.
    pub capacity_hz: f64,
    /// Capacity over the rate asked for, minus 1.
    pub margin: f64,
    /// Fragments lost at the rate asked for; only where nothing prevents it.
    pub lost: u64,
    /// Whether it carries the rate, and loses nothing.
    pub holds: bool,
    /// What limits it.
    pub bottleneck: Bottleneck,
}

/// A network of a plan.
struct Candidate {
    name: String,
    choice: TopologyChoice,
    routes: RoutePolicy,
    is_oversubscribed: bool,
}

impl PlanRequest {
    /// What is wrong with it; `None` if nothing is.
    pub fn problem(&self) -> Option<String> {
        if !(2..=PLAN_NODES_MAX).contains(&self.sources)
            || !(1..=PLAN_NODES_MAX).contains(&self.builders)
        {
            return Some(format!(
                "{} sources and {} builders, allowed are 2 to {PLAN_NODES_MAX} and 1 to \
                 {PLAN_NODES_MAX}",
                self.sources, self.builders
            ));
        }
        if let Some(problem) = self.sizes().problem() {
            return Some(problem);
        }
        if !(self.rate_hz > 0.0 && self.rate_hz <= 1e9) {
            return Some(format!(
                "rate of {} Hz, allowed is up to 1 GHz",
                self.rate_hz
            ));
        }
        if self.link_bits_per_s < 1_000_000 || self.link_bits_per_s > 100_000_000_000_000 {
            let found = self.link_bits_per_s;
            return Some(format!(
                "link of {found} b/s, allowed are 1 Mb/s to 100 Tb/s"
            ));
        }
        let largest = self.fragment_mean + 20.0 * self.fragment_rms;
        let largest = largest as u64 + u64::from(self.overhead_bytes);
        (self.buffer_bytes < largest).then(|| {
            format!(
                "buffers of {} bytes, the largest fragments need {largest} bytes (mean + 20 rms)",
                self.buffer_bytes
            )
        })
    }

    fn sizes(&self) -> SizeLaw {
        if self.fragment_rms > 0.0 {
            SizeLaw::LogNormal {
                mean: self.fragment_mean,
                rms: self.fragment_rms,
            }
        } else {
            SizeLaw::Fixed(self.fragment_mean.round() as u32)
        }
    }

    /// Load of the links of the sources and of the builders, as shares of their rate.
    pub fn link_loads(&self) -> (f64, f64) {
        let bytes = self.fragment_mean + f64::from(self.overhead_bytes);
        let source = bytes * 8.0 * self.rate_hz / self.link_bits_per_s as f64;
        let builder = source * f64::from(self.sources) / f64::from(self.builders);
        (source, builder)
    }

    fn candidates(&self) -> Vec<Candidate> {
        let nodes = self.sources.max(self.builders);
        let mut all = Vec::new();
        let mut add = |name: String, choice, routes, is_oversubscribed| {
            all.push(Candidate {
                name,
                choice,
                routes,
                is_oversubscribed,
            });
        };
        add(
            format!("one switch of {nodes} ports"),
            TopologyChoice::Crossbar { ports: nodes },
            RoutePolicy::Random,
            false,
        );
        let per_edge = f64::from(nodes).sqrt().ceil() as u32;
        let edges = nodes.div_ceil(per_edge);
        for cores in [per_edge, per_edge.div_ceil(2)] {
            add(
                format!("{edges} edges of {per_edge} nodes, {cores} cores"),
                TopologyChoice::TwoLevel {
                    edges,
                    nodes: per_edge,
                    cores,
                    trunk_speed: 1,
                },
                RoutePolicy::Random,
                cores < per_edge,
            );
        }
        let stages = if nodes > 256 { 3 } else { 2 };
        let radix = root(nodes, stages);
        add(
            format!("delta of {stages} stages of {radix} x {radix}"),
            TopologyChoice::Delta {
                radix,
                stages,
                wiring: Wiring::Natural,
            },
            RoutePolicy::Random,
            false,
        );
        let radix = root(nodes, 3);
        add(
            format!("4 layers of {radix} x {radix}"),
            TopologyChoice::FourLayer { radix },
            RoutePolicy::BySourcePort,
            false,
        );
        all
    }

    /// The simulations that answer it: independent, in the order in which they are listed.
    pub fn jobs(&self) -> Vec<impl FnOnce() -> Option<PlanOption> + Send + use<>> {
        let mut jobs = Vec::new();
        for place in 0..self.candidates().len() {
            for discipline in Discipline::ALL {
                let request = self.clone();
                jobs.push(move || {
                    let candidate = request.candidates().into_iter().nth(place)?;
                    request.option(&candidate, discipline)
                });
            }
        }
        jobs
    }

    /// Simulates an option; `None` where the discipline does not exist for the network.
    fn option(&self, candidate: &Candidate, discipline: Discipline) -> Option<PlanOption> {
        let topology = candidate.choice.build().ok()?;
        let is_shift = discipline == Discipline::BarrelShifter;
        if is_shift && ShiftSchedule::conflict_free(&topology).is_none() {
            return None;
        }
        let scenario = self.scenario(candidate, discipline, topology.sources());
        let network = scenario.run().ok()?.network?;
        let (source, builder) = self.link_loads();
        let load = source.max(builder);
        let is_lossy = discipline == Discipline::OutputLossy;
        let lost_share = network.packets_lost as f64 / network.packets_offered.max(1) as f64;
        // What a lossy network carries is not found by saturating it: it carries the rate or not.
        let efficiency = if is_lossy {
            load.min(1.0) * (1.0 - lost_share)
        } else {
            network.efficiency_link.mean
        };
        let capacity_hz = self.rate_hz * efficiency / load;
        let fits = capacity_hz >= self.rate_hz * 0.999 && load <= 1.0;
        let holds = fits && network.packets_lost == 0;
        let link = if builder > source {
            Bottleneck::BuilderLink
        } else {
            Bottleneck::SourceLink
        };
        let bottleneck = if load > 1.0 || efficiency > 0.97 {
            link
        } else if network.packets_lost > 0 {
            Bottleneck::Buffers
        } else if candidate.is_oversubscribed {
            Bottleneck::Trunks
        } else {
            match discipline {
                Discipline::Wormhole | Discipline::InputFifo => Bottleneck::HeadOfLine,
                Discipline::VirtualOutput => Bottleneck::Buffers,
                Discipline::OutputLossy | Discipline::BarrelShifter => link,
            }
        };
        Some(PlanOption {
            network: candidate.name.clone(),
            elements: topology.elements().len(),
            discipline,
            efficiency,
            converged: network.efficiency_link.converged,
            capacity_hz,
            margin: capacity_hz / self.rate_hz - 1.0,
            lost: network.packets_lost,
            holds,
            bottleneck,
        })
    }

    fn scenario(&self, candidate: &Candidate, discipline: Discipline, nodes: u32) -> Scenario {
        let times = (PACKETS / u64::from(nodes)).clamp(600, 8_000);
        let buffered = |queueing, place, flow| {
            Switching::Buffered(Buffering {
                forwarding: Forwarding::CutThrough,
                queueing,
                place,
                bytes: self.buffer_bytes,
                lanes: 1,
                flow,
            })
        };
        let switching = match discipline {
            Discipline::Wormhole | Discipline::BarrelShifter => Switching::Wormhole,
            Discipline::InputFifo => buffered(
                Queueing::InputFifo,
                BufferPlace::Input,
                FlowControl::Credits,
            ),
            Discipline::VirtualOutput => buffered(
                Queueing::VirtualOutput,
                BufferPlace::Input,
                FlowControl::Credits,
            ),
            Discipline::OutputLossy => {
                buffered(Queueing::Output, BufferPlace::Output, FlowControl::None)
            }
        };
        let is_shift = discipline == Discipline::BarrelShifter;
        let sizes = if is_shift {
            SizeLaw::Fixed(BLOCK)
        } else {
            self.sizes()
        };
        let traffic = Traffic::new(Pattern::EventsPermuted).with_window(4 * nodes);
        let mut load = Load::saturated(traffic, sizes, times);
        let wire = load.sizes.mean() + f64::from(self.overhead_bytes);
        let packet = DurationPs::for_bits((wire * 8.0) as u64, self.link_bits_per_s);
        load.link_bits_per_s = self.link_bits_per_s;
        load.overhead_bytes = self.overhead_bytes;
        load.routes = candidate.routes;
        load.seed = self.seed;
        load.duration = packet * times;
        load.warm_up = packet * (times / 5);
        if discipline == Discipline::OutputLossy {
            // Per port of the network: the busier side of the builder sets the pace.
            let (source, builder) = self.link_loads();
            let busier = self.rate_hz * (source.max(builder) / source);
            let interval = DurationPs((1e12 / busier) as u64);
            load.arrival = Arrival::Poisson { interval };
            load.duration = load.duration.max(interval * TRIGGERS);
        }
        if is_shift {
            load.traffic.window = None;
        }
        Scenario {
            level: Level::Packet,
            topology: candidate.choice.clone(),
            switching,
            flits: FlitConfig::default(),
            load,
            shift: is_shift.then_some(ShiftOrder::ConflictFree),
            rails: 1,
            builder: None,
            duration_max: None,
        }
    }
}

/// The smallest number whose power is at least `nodes`, at least 2.
fn root(nodes: u32, power: u32) -> u32 {
    (2..)
        .find(|radix: &u32| radix.saturating_pow(power) >= nodes)
        .unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::run_all;

    const REQUEST: PlanRequest = PlanRequest {
        sources: 16,
        builders: 16,
        fragment_mean: 2048.0,
        fragment_rms: 1024.0,
        overhead_bytes: 0,
        rate_hz: 50e3,
        link_bits_per_s: 1_000_000_000,
        buffer_bytes: 256 << 10,
        seed: 1,
    };

    #[test]
    fn shaping_holds_where_free_traffic_does_not() {
        assert_eq!(REQUEST.problem(), None);
        let (source, builder) = REQUEST.link_loads();
        assert!((source - 0.8192).abs() < 1e-9 && source == builder);
        let options: Vec<PlanOption> = run_all(REQUEST.jobs(), 1, |_| ())
            .into_iter()
            .flatten()
            .collect();
        let find = |network: &str, discipline| {
            options
                .iter()
                .find(|o| o.network.starts_with(network) && o.discipline == discipline)
                .unwrap()
        };
        let wormhole = find("delta", Discipline::Wormhole);
        assert!(!wormhole.holds);
        assert_eq!(wormhole.bottleneck, Bottleneck::HeadOfLine);
        let barrel = find("delta", Discipline::BarrelShifter);
        assert!(barrel.holds && barrel.margin > 0.2, "{barrel:?}");
        assert!(find("one switch", Discipline::VirtualOutput).holds);
    }

    #[test]
    fn too_few_builders_are_named() {
        let request = PlanRequest {
            builders: 4,
            ..REQUEST
        };
        let candidate = request.candidates().remove(0);
        let option = request
            .option(&candidate, Discipline::BarrelShifter)
            .unwrap();
        assert!(!option.holds);
        assert_eq!(option.bottleneck, Bottleneck::BuilderLink);
        let wrong = PlanRequest {
            sources: 1,
            ..REQUEST
        };
        assert!(wrong.problem().is_some());
    }
}
