//! What is connected with what: elements, links, and the routes between sources and destinations.
//!
//! A topology is made by one of the constructors in the files of this folder; each states its
//! links one by one (so that they can be checked against its routes) and computes routes instead
//! of storing them. It knows no packets; who uses it: [`super::wormhole`]. Which orders of
//! destinations are free of conflicts is in [`shift`].
//!
//! Rates and delays. A [`Link`] has the rate of a node's link times its speed, and the delay of a
//! hop; both are the scenario's ([`super::Load`]), and a topology knows no time. A [`Graph`] may
//! give links a [`Cable`]: a rate and a delay of their own, in a list beside the links that is
//! empty where none has any. An engine reads both once when it is made: without cables it computes
//! nothing else than before; with some, it has for each link its bits per second and its delay.
//! What is sent leaves at that rate and comes that much later, and so does what flow control says
//! back: see [`super::wormhole`] and [`super::buffered`]. What cannot work is refused by
//! [`crate::scenario::Scenario::validate`], which names the line of the graph.

mod delta;
mod fat_tree;
mod graph;
mod rearrangeable;
pub mod shift;
mod symmetric;
#[cfg(test)]
mod tests;
mod two_level;

use crate::address::LinkId;
use crate::time::DurationPs;

use super::traffic::mixed;

pub use delta::Wiring;
pub use graph::{Graph, GraphLink, GraphNode, GraphProblem};

use delta::Delta;
use fat_tree::FatTree;
use graph::GraphRoutes;
use rearrangeable::{Benes, Clos};
use symmetric::{FourLayer, SixLayer};
use two_level::TwoLevel;

/// The most links of a route, injection and delivery included.
pub const ROUTE_LINKS_MAX: usize = 24;
/// The most sources or destinations of a topology.
pub const NODES_MAX: u32 = 1 << 16;
/// The most input ports of an element, and output ports: ports are numbered in 16 bits.
pub const PORTS_MAX: u32 = 1 << 16;
// The crossbar has as many ports as nodes.
const _: () = assert!(NODES_MAX <= PORTS_MAX);
/// The most links of a topology.
pub const LINKS_MAX: u64 = 1 << 22;

/// Where a link begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkEnd {
    /// The only output of a source.
    Source(u32),
    /// A port of a switching element.
    Port {
        /// Element, counted from 0.
        element: u32,
        /// Input or output port of it, counted from 0.
        port: u32,
    },
    /// The only input of a destination.
    Destination(u32),
}

/// A one-way link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Where it comes from: a source or an output port.
    pub from: LinkEnd,
    /// Where it goes to: an input port or a destination.
    pub to: LinkEnd,
    /// Its rate in multiples of the rate of the sources' links, at least 1; nothing where its
    /// [`Cable`] has a rate.
    pub speed: u32,
}

/// Rates that links may have, in bits per second.
pub(crate) const RATES: core::ops::RangeInclusive<u64> = 1_000..=100_000_000_000_000;

/// What a link has of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cable {
    /// Bits per second, 1 kb/s to 100 Tb/s; `None` for a multiple of the rate of a node's link.
    pub bits_per_s: Option<u64>,
    /// Time on the way beside that of a hop, up to a second.
    pub delay: DurationPs,
}

/// A switching element: a crossbar with so many ports each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Input ports.
    pub inputs: u32,
    /// Output ports.
    pub outputs: u32,
}

/// A route: the links from a source to a destination in order, injection link first.
///
/// The length and the first links of one that is kept are in one cache line with what is before it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Route {
    len: u8,
    links: [u32; ROUTE_LINKS_MAX],
}

/// Why a topology cannot be made. All counts are as they were asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A count is outside its range.
    #[error("{what} is {found}, allowed is {min} to {max}")]
    OutOfRange {
        /// What is counted.
        what: &'static str,
        /// The value.
        found: u64,
        /// The least allowed.
        min: u64,
        /// The most allowed.
        max: u64,
    },
    /// The number of ports is not what the construction can have.
    #[error("{ports} ports cannot be built, allowed is {allowed}")]
    Ports {
        /// The value.
        ports: u32,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A wiring of sources that is not one place for each.
    #[error(
        "wiring puts source {source_index} at position {position}, allowed is each position once"
    )]
    Wiring {
        /// The source.
        source_index: u32,
        /// Its position.
        position: u32,
    },
    /// A graph has nodes that are too far from each other.
    #[error(
        "the shortest route from source {from} to destination {to} has {links} links, those of the \
         nodes included, allowed are {ROUTE_LINKS_MAX}"
    )]
    TooFar {
        /// The source.
        from: String,
        /// The destination.
        to: String,
        /// Links of the route.
        links: usize,
    },
    /// A switch of a graph has more nodes and links than ports can have numbers.
    #[error("switch `{switch}` has {found} {side}, allowed are up to {PORTS_MAX}")]
    TooManyPorts {
        /// The switch.
        switch: String,
        /// Inputs or outputs.
        side: &'static str,
        /// How many.
        found: u32,
    },
    /// A graph has nodes that cannot reach each other.
    #[error("no route from source {from} to destination {to}")]
    Unroutable {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
}

/// How a route is chosen where there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoutePolicy {
    /// Any route with equal probability, drawn for each packet.
    #[default]
    Random,
    /// One route for each source port, so that the first stages are free of contention.
    BySourcePort,
    /// One route for each destination: its digits choose the way up.
    ByDestination,
    /// One random route for each pair, drawn once for each seed.
    RandomPerPair,
    /// The routes in turn, packet after packet of a source.
    InTurn,
}

/// Numbers by which a route is chosen, each by another [`RoutePolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteNumbers {
    /// Of the packet at its source.
    pub packet: u64,
    /// Drawn for this packet.
    pub random: u64,
    /// The seed of the network, by which the routes of pairs are drawn.
    pub seed: u64,
}

/// A switching fabric.
#[derive(Debug, Clone)]
pub struct Topology {
    sources: u32,
    destinations: u32,
    elements: Vec<Element>,
    links: Vec<Link>,
    /// One for each link; empty if none has anything of its own.
    cables: Vec<Cable>,
    routing: Routing,
}

#[derive(Debug, Clone)]
enum Routing {
    Crossbar,
    Delta(Delta),
    FourLayer(FourLayer),
    SixLayer(SixLayer),
    Clos(Clos),
    Benes(Benes),
    FatTree(FatTree),
    TwoLevel(TwoLevel),
    Graph(GraphRoutes),
}

impl Topology {
    /// One crossbar with `ports` sources and as many destinations.
    ///
    /// # Errors
    /// [`TopologyError::OutOfRange`] for no ports or too many.
    pub fn crossbar(ports: u32) -> Result<Self, TopologyError> {
        in_range("ports", ports, 1, NODES_MAX)?;
        let element = Element {
            inputs: ports,
            outputs: ports,
        };
        let mut parts = Parts::new(ports, ports, vec![element]);
        for source in 0..ports {
            parts.inject(source, 0, source);
        }
        for destination in 0..ports {
            parts.deliver(0, destination, destination);
        }
        Ok(parts.into_topology(Routing::Crossbar))
    }

    /// Sources.
    pub const fn sources(&self) -> u32 {
        self.sources
    }

    /// Destinations.
    pub const fn destinations(&self) -> u32 {
        self.destinations
    }

    /// Switching elements.
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// Links, in the order of their [`LinkId`]; the first ones are those of the sources.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Whether any link has a rate or a delay of its own.
    pub const fn has_cables(&self) -> bool {
        !self.cables.is_empty()
    }

    /// What a link has of its own.
    pub fn cable(&self, link: LinkId) -> Cable {
        self.cables
            .get(link.0 as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Bits per second of each link, if a node's link has so many.
    pub(crate) fn rates(&self, node_bits_per_s: u64) -> impl Iterator<Item = u64> {
        let own = self.cables.iter().map(|cable| cable.bits_per_s);
        let own = own.chain(core::iter::repeat(None));
        let links = self.links.iter().zip(own);
        links.map(move |(link, own)| own.unwrap_or(node_bits_per_s * u64::from(link.speed)))
    }

    /// Number of routes from a source to a destination.
    pub fn route_count(&self, source: u32, destination: u32) -> u64 {
        match &self.routing {
            Routing::Crossbar | Routing::Delta(_) => 1,
            Routing::FourLayer(four) => four.route_count(),
            Routing::SixLayer(six) => six.route_count(),
            Routing::Clos(clos) => clos.route_count(),
            Routing::Benes(benes) => benes.route_count(),
            Routing::FatTree(tree) => tree.route_count(source, destination),
            Routing::TwoLevel(two) => two.route_count(source, destination),
            Routing::Graph(graph) => graph.route_count(source, destination),
        }
    }

    /// Route number `choice` (taken modulo the number of routes) from a source to a destination.
    ///
    /// # Panics
    /// If source or destination are not of this topology.
    #[inline]
    pub fn route(&self, source: u32, destination: u32, choice: u64) -> Route {
        let mut route = Route::new();
        self.write_route([source, destination], choice, &mut route);
        route
    }

    /// As [`Topology::route`], in place of what is in `route`.
    #[inline]
    fn write_route(&self, [source, destination]: [u32; 2], choice: u64, route: &mut Route) {
        assert!(source < self.sources && destination < self.destinations);
        route.len = 0;
        route.push(source);
        match &self.routing {
            Routing::Delta(delta) => delta.route(source, destination, route),
            Routing::Crossbar => route.push(self.sources + destination),
            Routing::FourLayer(four) => four.route(source, destination, choice, route),
            Routing::SixLayer(six) => six.route(source, destination, choice, route),
            Routing::Clos(clos) => clos.route(source, destination, choice, route),
            Routing::Benes(benes) => benes.route(source, destination, choice, route),
            Routing::FatTree(tree) => tree.route(source, destination, choice, route),
            Routing::TwoLevel(two) => two.route(source, destination, choice, route),
            Routing::Graph(graph) => graph.route(source, destination, choice, route),
        }
    }

    /// The route that `policy` chooses.
    #[inline]
    pub fn chosen_route(
        &self,
        source: u32,
        destination: u32,
        policy: RoutePolicy,
        numbers: RouteNumbers,
    ) -> Route {
        let mut route = Route::new();
        self.write_chosen_route([source, destination], policy, numbers, &mut route);
        route
    }

    /// As [`Topology::chosen_route`], in place of what is in `route`.
    #[inline]
    pub(crate) fn write_chosen_route(
        &self,
        [source, destination]: [u32; 2],
        policy: RoutePolicy,
        numbers: RouteNumbers,
        route: &mut Route,
    ) {
        let choice = match policy {
            RoutePolicy::Random => numbers.random,
            RoutePolicy::BySourcePort => self.source_port_choice(source),
            RoutePolicy::ByDestination => self.destination_choice(destination),
            RoutePolicy::RandomPerPair => pair_hash([source, destination], numbers.seed),
            RoutePolicy::InTurn => numbers.packet,
        };
        self.write_route([source, destination], choice, route);
    }

    /// Whether routes differ at all, so that numbers for choosing them must be drawn.
    pub const fn has_choice(&self) -> bool {
        !matches!(self.routing, Routing::Crossbar | Routing::Delta(_))
    }

    fn source_port_choice(&self, source: u32) -> u64 {
        match &self.routing {
            Routing::Crossbar | Routing::Delta(_) => 0,
            Routing::FourLayer(four) => four.source_port_choice(source),
            Routing::SixLayer(six) => six.source_port_choice(source),
            Routing::Clos(clos) => clos.source_port_choice(source),
            Routing::Benes(_) | Routing::FatTree(_) => u64::from(source),
            Routing::TwoLevel(two) => two.source_port_choice(source),
            Routing::Graph(_) => u64::from(source),
        }
    }

    fn destination_choice(&self, destination: u32) -> u64 {
        u64::from(destination)
    }

    /// Elements that the longest route crosses.
    pub fn hops_max(&self) -> usize {
        match &self.routing {
            Routing::Crossbar => 1,
            Routing::Delta(delta) => delta.stages(),
            Routing::FourLayer(_) => 4,
            Routing::SixLayer(_) => 6,
            Routing::Clos(_) => 3,
            Routing::Benes(benes) => benes.stages(),
            Routing::FatTree(tree) => tree.hops_max(),
            Routing::TwoLevel(_) => 3,
            Routing::Graph(graph) => graph.hops_max(),
        }
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.links() == other.links()
    }
}

impl Eq for Route {}

impl Route {
    /// A route without links.
    pub(crate) const fn new() -> Self {
        Self {
            links: [0; ROUTE_LINKS_MAX],
            len: 0,
        }
    }

    #[inline]
    fn push(&mut self, link: u32) {
        self.links[usize::from(self.len)] = link;
        self.len += 1;
    }

    /// Adds so many links, as many as there are.
    #[inline]
    fn extend(&mut self, count: usize, links: impl Iterator<Item = u32>) {
        let first = usize::from(self.len);
        let places = &mut self.links[first..first + count];
        for (place, link) in places.iter_mut().zip(links) {
            *place = link;
        }
        self.len += count as u8;
    }

    /// The links, the injection link first and the delivery link last.
    #[inline]
    pub fn links(&self) -> &[u32] {
        &self.links[..usize::from(self.len)]
    }

    /// Switching elements that the route crosses.
    pub fn hops(&self) -> usize {
        usize::from(self.len).saturating_sub(1)
    }

    /// The links by their identifiers.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> {
        self.links().iter().map(|link| LinkId(*link))
    }
}

/// What a constructor gathers: links are numbered in the order in which they are stated.
struct Parts {
    sources: u32,
    destinations: u32,
    elements: Vec<Element>,
    links: Vec<Link>,
}

impl Parts {
    fn new(sources: u32, destinations: u32, elements: Vec<Element>) -> Self {
        Self {
            sources,
            destinations,
            elements,
            links: Vec::new(),
        }
    }

    fn inject(&mut self, source: u32, element: u32, port: u32) {
        self.link(LinkEnd::Source(source), LinkEnd::Port { element, port }, 1);
    }

    fn deliver(&mut self, element: u32, port: u32, destination: u32) {
        self.link(
            LinkEnd::Port { element, port },
            LinkEnd::Destination(destination),
            1,
        );
    }

    /// From output `from_port` of element `from` to input `to_port` of element `to`.
    fn connect(&mut self, from: u32, from_port: u32, to: u32, to_port: u32) {
        self.trunk((from, from_port), (to, to_port), 1);
    }

    fn trunk(&mut self, from: (u32, u32), to: (u32, u32), speed: u32) {
        let end = |(element, port)| LinkEnd::Port { element, port };
        self.link(end(from), end(to), speed);
    }

    fn link(&mut self, from: LinkEnd, to: LinkEnd, speed: u32) {
        self.links.push(Link { from, to, speed });
    }

    fn into_topology(self, routing: Routing) -> Topology {
        Topology {
            sources: self.sources,
            destinations: self.destinations,
            elements: self.elements,
            links: self.links,
            cables: Vec::new(),
            routing,
        }
    }
}

fn in_range(what: &'static str, found: u32, min: u32, max: u32) -> Result<(), TopologyError> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(TopologyError::OutOfRange {
        what,
        found: u64::from(found),
        min: u64::from(min),
        max: u64::from(max),
    })
}

/// The number of nodes `radix^stages`, if it is one that can be built.
fn power(radix: u32, stages: u32) -> Result<u32, TopologyError> {
    in_range("radix", radix, 2, 256)?;
    in_range("stages", stages, 1, 16)?;
    let nodes = u64::from(radix).checked_pow(stages).unwrap_or(u64::MAX);
    u32::try_from(nodes)
        .ok()
        .filter(|nodes| *nodes <= NODES_MAX)
        .ok_or(TopologyError::OutOfRange {
            what: "ports",
            found: nodes,
            min: 2,
            max: u64::from(NODES_MAX),
        })
}

/// A number that belongs to a pair of nodes, as if drawn once for each seed.
fn pair_hash([source, destination]: [u32; 2], seed: u64) -> u64 {
    mixed(seed ^ mixed(u64::from(source) << 32 | u64::from(destination))) >> 8
}
