//! Edge switches joined by core switches over trunks: large Ethernet fabrics and chassis.
//!
//! Sources and destinations are spread evenly over the edges; a route stays within its edge where
//! it can, and goes over one of the cores elsewhere. Trunks may be faster than the nodes' links.

use super::{Element, Parts, Route, Routing, Topology, TopologyError, in_range};

#[derive(Debug, Clone)]
pub(super) struct TwoLevel {
    edges: u32,
    nodes_per_edge: u32,
    cores: u32,
}

impl Topology {
    /// `edges` edge switches with `nodes_per_edge` sources and as many destinations each, and
    /// `cores` cores, each joined to each edge by one trunk each way of `trunk_speed` times the
    /// rate of a node's link.
    ///
    /// # Errors
    /// [`TopologyError::OutOfRange`] for a count that cannot be built.
    pub fn two_level(
        edges: u32,
        nodes_per_edge: u32,
        cores: u32,
        trunk_speed: u32,
    ) -> Result<Self, TopologyError> {
        in_range("edges", edges, 1, 4096)?;
        in_range("nodes of an edge", nodes_per_edge, 1, 4096)?;
        in_range("cores", cores, 1, 4096)?;
        in_range("speed of trunks", trunk_speed, 1, 1000)?;
        in_range("nodes", edges * nodes_per_edge, 1, super::NODES_MAX)?;
        in_range("trunks", edges * cores, 1, 1 << 20)?;
        let nodes = edges * nodes_per_edge;
        let element = |ports| Element {
            inputs: ports,
            outputs: ports,
        };
        let mut elements = vec![element(nodes_per_edge + cores); edges as usize];
        elements.extend(vec![element(edges); cores as usize]);
        let mut parts = Parts::new(nodes, nodes, elements);
        for s in 0..nodes {
            parts.inject(s, s / nodes_per_edge, s % nodes_per_edge);
        }
        for edge in 0..edges {
            for core in 0..cores {
                let from = (edge, nodes_per_edge + core);
                parts.trunk(from, (edges + core, edge), trunk_speed);
            }
        }
        for core in 0..cores {
            for edge in 0..edges {
                let to = (edge, nodes_per_edge + core);
                parts.trunk((edges + core, edge), to, trunk_speed);
            }
        }
        for d in 0..nodes {
            parts.deliver(d / nodes_per_edge, d % nodes_per_edge, d);
        }
        Ok(parts.into_topology(Routing::TwoLevel(TwoLevel {
            edges,
            nodes_per_edge,
            cores,
        })))
    }

    /// The first large Gigabit Ethernet network of the CMS talk: 500 x 500, 25 edges of 60 ports
    /// (20 sources, 20 destinations, 20 up) and 20 cores of 25 ports.
    pub fn gigabit_one() -> Self {
        Self::two_level(25, 20, 20, 1).expect("counts in range")
    }

    /// The second one: 25 edges of 40 ports and two uplinks of ten times the rate, 2 cores.
    pub fn gigabit_two() -> Self {
        Self::two_level(25, 20, 2, 10).expect("counts in range")
    }

    /// A chassis of 8 slots with 8 ports each and a backplane with twice the rate of a slot's
    /// ports each way: the Gigabit switch of the CMS demonstrator, 64 ports.
    pub fn chassis() -> Self {
        Self::two_level(8, 8, 1, 16).expect("counts in range")
    }
}

impl TwoLevel {
    pub(super) fn route_count(&self, source: u32, destination: u32) -> u64 {
        if source / self.nodes_per_edge == destination / self.nodes_per_edge {
            1
        } else {
            u64::from(self.cores)
        }
    }

    pub(super) fn source_port_choice(&self, source: u32) -> u64 {
        u64::from(source % self.nodes_per_edge)
    }

    /// Sources in their own order, if each port of an edge has a core for itself.
    pub(super) fn shift_order(&self) -> Option<Vec<u32>> {
        (self.cores >= self.nodes_per_edge).then(|| (0..self.edges * self.nodes_per_edge).collect())
    }

    #[inline]
    pub(super) fn route(&self, source: u32, destination: u32, choice: u64, route: &mut Route) {
        let first = self.edges * self.nodes_per_edge;
        let trunks = self.edges * self.cores;
        let from = source / self.nodes_per_edge;
        let to = destination / self.nodes_per_edge;
        if from != to {
            let core = (choice % u64::from(self.cores)) as u32;
            route.push(first + from * self.cores + core);
            route.push(first + trunks + core * self.edges + to);
        }
        route.push(first + 2 * trunks + destination);
    }
}
