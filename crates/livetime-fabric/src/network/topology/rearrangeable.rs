//! Clos and Benes networks: several routes through a middle, and none blocked if they are chosen well.
//!
//! A Clos network (m, n, r) has r ingress crossbars n x m, m middle ones r x r and r egress ones
//! m x n. A Benes network is the recursion of Clos (2, 2, N/2) with 2 x 2 crossbars. Routes are
//! chosen by a number, never by rearranging.

use super::{Element, Parts, Route, Routing, Topology, TopologyError, in_range};

#[derive(Debug, Clone)]
pub(super) struct Clos {
    middle: u32,
    ports: u32,
    edges: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Benes {
    /// log2 of the number of ports.
    bits: u32,
}

impl Topology {
    /// A Clos network with `middle` middle crossbars and `edges` edge crossbars of `ports` ports.
    ///
    /// # Errors
    /// [`TopologyError`] for counts outside 1 to 4096 or too many ports in all.
    pub fn clos(middle: u32, ports: u32, edges: u32) -> Result<Self, TopologyError> {
        for (what, count) in [
            ("middle crossbars", middle),
            ("ports", ports),
            ("edges", edges),
        ] {
            in_range(what, count, 1, 4096)?;
        }
        in_range("ports in all", ports * edges, 1, super::NODES_MAX)?;
        in_range("links of a stage", middle * edges, 1, 1 << 20)?;
        let element = |inputs, outputs| Element { inputs, outputs };
        let mut elements = vec![element(ports, middle); edges as usize];
        elements.extend(vec![element(edges, edges); middle as usize]);
        elements.extend(vec![element(middle, ports); edges as usize]);
        let nodes = ports * edges;
        let mut parts = Parts::new(nodes, nodes, elements);
        for source in 0..nodes {
            parts.inject(source, source / ports, source % ports);
        }
        for ingress in 0..edges {
            for m in 0..middle {
                parts.connect(ingress, m, edges + m, ingress);
            }
        }
        for m in 0..middle {
            for egress in 0..edges {
                parts.connect(edges + m, egress, edges + middle + egress, m);
            }
        }
        for d in 0..nodes {
            parts.deliver(edges + middle + d / ports, d % ports, d);
        }
        Ok(parts.into_topology(Routing::Clos(Clos {
            middle,
            ports,
            edges,
        })))
    }

    /// A Benes network of 2 x 2 crossbars with `ports` ports, a power of 2 from 2 to 1024.
    ///
    /// # Errors
    /// [`TopologyError::Ports`] for another number.
    pub fn benes(ports: u32) -> Result<Self, TopologyError> {
        if !ports.is_power_of_two() || !(2..=1024).contains(&ports) {
            let allowed = "a power of 2 from 2 to 1024";
            return Err(TopologyError::Ports { ports, allowed });
        }
        let bits = ports.ilog2();
        let stages = 2 * bits - 1;
        let (half, n) = (ports / 2, ports);
        let element = Element {
            inputs: 2,
            outputs: 2,
        };
        let mut parts = Parts::new(n, n, vec![element; (half * stages) as usize]);
        for source in 0..n {
            parts.inject(source, source / 2, source % 2);
        }
        // A link after stage i < bits - 1 is (subnetworks chosen so far, position in the last one);
        // on the way back the same with destinations.
        for stage in 0..stages {
            for link in 0..n {
                let (element, port) = Benes::output(bits, stage, link);
                let from = stage * half + element;
                if stage + 1 == stages {
                    parts.deliver(from, port, link);
                } else {
                    let (to, input) = Benes::input(bits, stage + 1, link);
                    parts.connect(from, port, (stage + 1) * half + to, input);
                }
            }
        }
        Ok(parts.into_topology(Routing::Benes(Benes { bits })))
    }
}

impl Clos {
    pub(super) fn route_count(&self) -> u64 {
        u64::from(self.middle)
    }

    pub(super) fn source_port_choice(&self, source: u32) -> u64 {
        u64::from(source % self.ports)
    }

    /// Sources in their own order, if each port of an edge has a middle crossbar for itself.
    pub(super) fn shift_order(&self) -> Option<Vec<u32>> {
        (self.middle >= self.ports).then(|| (0..self.ports * self.edges).collect())
    }

    #[inline]
    pub(super) fn route(&self, source: u32, destination: u32, choice: u64, route: &mut Route) {
        let m = (choice % u64::from(self.middle)) as u32;
        let first = self.ports * self.edges;
        let second = first + self.edges * self.middle;
        route.push(first + source / self.ports * self.middle + m);
        route.push(second + m * self.edges + destination / self.ports);
        route.push(second + self.edges * self.middle + destination);
    }
}

impl Benes {
    pub(super) const fn stages(&self) -> usize {
        2 * self.bits as usize - 1
    }

    pub(super) fn route_count(&self) -> u64 {
        1 << (self.bits - 1)
    }

    /// Level of recursion that a stage belongs to: 0 outside, `bits - 1` in the middle.
    const fn level(bits: u32, stage: u32) -> u32 {
        if stage < bits {
            stage
        } else {
            2 * bits - 2 - stage
        }
    }

    /// Crossbar (within its stage) and output port from which a link comes.
    fn output(bits: u32, stage: u32, link: u32) -> (u32, u32) {
        let level = Self::level(bits, stage);
        // Ports of a subnetwork at this level, and which subnetwork.
        let ports = 1 << (bits - level);
        if stage + 1 < bits {
            // Link = (subnetwork, choice, switch): the choice is the output port.
            let inner = ports / 2;
            let subnetwork = link / ports;
            (subnetwork * inner + link % inner, link % ports / inner)
        } else {
            (link / 2, link % 2)
        }
    }

    /// Crossbar (within its stage) and input port to which the link after stage `stage - 1` goes.
    fn input(bits: u32, stage: u32, link: u32) -> (u32, u32) {
        let level = Self::level(bits, stage);
        let ports = 1 << (bits - level);
        if stage < bits {
            (link / 2, link % 2)
        } else {
            // The link leaves a subnetwork of half the ports: (subnetwork, choice, switch).
            let inner = ports / 2;
            (link / ports * inner + link % inner, link % ports / inner)
        }
    }

    pub(super) fn route(&self, source: u32, destination: u32, choice: u64, route: &mut Route) {
        let (bits, n) = (self.bits, 1 << self.bits);
        let choice = (choice % self.route_count()) as u32;
        let mut base = n;
        for level in 0..bits - 1 {
            let prefix = choice >> (bits - 2 - level);
            route.push(base + prefix * (n >> (level + 1)) + (source >> (level + 1)));
            base += n;
        }
        for level in (0..bits).rev() {
            let prefix = choice >> (bits - 1 - level);
            route.push(base + prefix * (n >> level) + (destination >> level));
            base += n;
        }
    }
}
