//! What a plan looks at: networks that are large enough, and ways of sending on them.

use livetime_builder::BuildMode;

use super::PlanRequest;
use crate::builder_network::Shaping;
use crate::network::topology::Wiring;
use crate::network::{BufferPlace, Buffering, FlowControl, Forwarding, Queueing, RoutePolicy};
use crate::scenario::{ShiftOrder, Switching, TopologyChoice};

/// Kinds of network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkKind {
    /// One switch.
    Crossbar,
    /// Edges and cores: as many cores as nodes at an edge, and half as many.
    TwoLevel,
    /// A delta network.
    Delta,
    /// Four layers, with several routes for a pair.
    FourLayer,
}

impl NetworkKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Crossbar, Self::TwoLevel, Self::Delta, Self::FourLayer];
}

/// Protocols of the event builder, traffic shaping included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Fragments as they are asked for.
    Pull,
    /// Fragments that are sent unasked.
    Push,
    /// Blocks of equal size to one builder unit after the other.
    BarrelShifter,
    /// Whole fragments to one builder unit after the other, with a barrier after each phase.
    LinearShift,
}

impl Protocol {
    /// What it is, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "push",
            Self::BarrelShifter => "barrel shifter",
            Self::LinearShift => "linear shift",
        }
    }
}

/// How fragments are sent: elements of the network, and protocol of the event builder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Pull, elements without buffers.
    PullWormhole,
    /// Pull, one FIFO at each input, credits between elements.
    PullInputFifo,
    /// Pull, a queue for each input and output, credits between elements.
    PullVirtualOutput,
    /// Push, a queue for each input and output, credits between elements.
    PushVirtualOutput,
    /// Pull, queues at outputs that lose what they cannot hold.
    PullLossy,
    /// Pull, blocks of fixed size in a schedule without conflicts, elements without buffers.
    BarrelShifter,
    /// Pull, whole fragments in a schedule without conflicts, with a barrier after each phase.
    LinearShift,
}

impl Sending {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PullWormhole,
        Self::PullInputFifo,
        Self::PullVirtualOutput,
        Self::PushVirtualOutput,
        Self::PullLossy,
        Self::BarrelShifter,
        Self::LinearShift,
    ];

    /// The protocol.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::PullWormhole
            | Self::PullInputFifo
            | Self::PullVirtualOutput
            | Self::PullLossy => Protocol::Pull,
            Self::PushVirtualOutput => Protocol::Push,
            Self::BarrelShifter => Protocol::BarrelShifter,
            Self::LinearShift => Protocol::LinearShift,
        }
    }

    /// The elements of the network, in words.
    pub const fn switches(self) -> &'static str {
        match self {
            Self::PullInputFifo => "input FIFOs, credits",
            Self::PullVirtualOutput | Self::PushVirtualOutput => "virtual output queues, credits",
            Self::PullLossy => "output queues, no flow control",
            Self::PullWormhole | Self::BarrelShifter | Self::LinearShift => "no buffers",
        }
    }

    pub(super) const fn mode(self) -> BuildMode {
        match self {
            Self::PushVirtualOutput => BuildMode::Push,
            _ => BuildMode::Pull,
        }
    }

    pub(super) const fn shaping(self, block_bytes: u32) -> Shaping {
        let order = ShiftOrder::ConflictFree;
        match self {
            Self::BarrelShifter => Shaping::BarrelShifter { block_bytes, order },
            Self::LinearShift => Shaping::LinearShift {
                phase_bytes: block_bytes,
                order,
            },
            _ => Shaping::None,
        }
    }

    pub(super) const fn switching(self, bytes: u64) -> Switching {
        let (queueing, place, flow) = match self {
            Self::PullWormhole | Self::BarrelShifter | Self::LinearShift => {
                return Switching::Wormhole;
            }
            Self::PullInputFifo => (
                Queueing::InputFifo,
                BufferPlace::Input,
                FlowControl::Credits,
            ),
            Self::PullVirtualOutput | Self::PushVirtualOutput => (
                Queueing::VirtualOutput,
                BufferPlace::Input,
                FlowControl::Credits,
            ),
            Self::PullLossy => (Queueing::Output, BufferPlace::Output, FlowControl::None),
        };
        Switching::Buffered(Buffering {
            forwarding: Forwarding::CutThrough,
            queueing,
            place,
            bytes,
            lanes: 1,
            flow,
        })
    }
}

/// A network with a way of sending.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// In words, with wiring and routes where a scenario without these keys has others.
    pub(super) name: String,
    pub(super) choice: TopologyChoice,
    /// The same network with fewer nodes, where settings are searched for in small.
    pub(super) in_small: Option<TopologyChoice>,
    pub(super) routes: RoutePolicy,
    pub(super) sending: Sending,
}

/// Everything that a request is to be answered with, network by network.
pub(super) fn candidates(request: &PlanRequest) -> Vec<Candidate> {
    let small = request.in_small().map(|small| small.nodes());
    let is_wanted = |kind| request.networks.is_empty() || request.networks.contains(&kind);
    let kinds = NetworkKind::ALL.into_iter().filter(|kind| is_wanted(*kind));
    let networks = kinds.flat_map(|kind| networks(kind, request.nodes(), small));
    let is_asked = |sending: &Sending| {
        request.protocols.is_empty() || request.protocols.contains(&sending.protocol())
    };
    let with_sending = |network: Network| {
        let sendings = Sending::ALL.into_iter().filter(is_asked);
        sendings.map(move |sending| Candidate {
            name: network.name_with(sending),
            choice: network.choice.clone(),
            in_small: network.in_small.clone(),
            routes: network.routes,
            sending,
        })
    };
    networks.flat_map(with_sending).collect()
}

/// A network of a kind.
struct Network {
    name: String,
    choice: TopologyChoice,
    in_small: Option<TopologyChoice>,
    routes: RoutePolicy,
}

impl Network {
    /// What it is called where fragments are sent so: with its routes, but for shifts, which have
    /// their own.
    fn name_with(&self, sending: Sending) -> String {
        let is_shift = matches!(sending, Sending::BarrelShifter | Sending::LinearShift);
        let routes = match self.routes {
            RoutePolicy::BySourcePort if !is_shift => ", routes by source port",
            _ => "",
        };
        format!("{}{routes}", self.name)
    }
}

/// The networks of a kind for so many nodes on either side, and for as many as it has in small.
fn networks(kind: NetworkKind, nodes: u32, small: Option<u32>) -> Vec<Network> {
    let network = |name: String, routes, choice: &dyn Fn(u32) -> TopologyChoice| Network {
        name,
        choice: choice(nodes),
        in_small: small.map(choice),
        routes,
    };
    match kind {
        NetworkKind::Crossbar => vec![network(
            format!("one switch of {nodes} ports"),
            RoutePolicy::Random,
            &|ports| TopologyChoice::Crossbar { ports },
        )],
        NetworkKind::TwoLevel => {
            let edges = |nodes: u32| {
                let per_edge = root(nodes, 2);
                (nodes.div_ceil(per_edge), per_edge)
            };
            // As many cores as nodes at an edge, and half as many.
            let two_level = |part: u32| {
                let (count, per_edge) = edges(nodes);
                let cores = per_edge.div_ceil(part);
                let name = format!("{count} edges of {per_edge} nodes, {cores} cores");
                network(name, RoutePolicy::Random, &|nodes| {
                    let (edges, nodes) = edges(nodes);
                    TopologyChoice::TwoLevel {
                        edges,
                        nodes,
                        cores: nodes.div_ceil(part),
                        trunk_speed: 1,
                    }
                })
            };
            vec![two_level(1), two_level(2)]
        }
        NetworkKind::Delta => {
            let stages = if nodes > 256 { 3 } else { 2 };
            let radix = root(nodes, stages);
            let name = format!("delta of {stages} stages of {radix} x {radix}, natural wiring");
            vec![network(name, RoutePolicy::Random, &|nodes| {
                TopologyChoice::Delta {
                    radix: root(nodes, stages),
                    stages,
                    wiring: Wiring::Natural,
                }
            })]
        }
        NetworkKind::FourLayer => {
            let radix = root(nodes, 3);
            vec![network(
                format!("4 layers of {radix} x {radix}"),
                RoutePolicy::BySourcePort,
                &|nodes| TopologyChoice::FourLayer {
                    radix: root(nodes, 3),
                },
            )]
        }
    }
}

/// The smallest number whose power is at least `nodes`, at least 2.
fn root(nodes: u32, power: u32) -> u32 {
    (2..)
        .find(|radix: &u32| radix.saturating_pow(power) >= nodes)
        .unwrap_or(2)
}
