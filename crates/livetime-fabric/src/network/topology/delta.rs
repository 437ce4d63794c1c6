//! Delta networks: k^n ports, n stages of k x k crossbars, one route for each pair.
//!
//! The link after stage i is the n-digit window, shifted i + 1 places, of the digits of source and
//! destination (omega wiring); the window without its last digit is the crossbar, its last digit
//! the output port. The wiring says at which position each source is attached; for random traffic
//! it does not matter, for shifts it does.

use super::{Element, Parts, Route, Routing, Topology, TopologyError, power};

/// At which position of the network each source is attached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Wiring {
    /// Source s at position s: the first stage is a perfect shuffle.
    #[default]
    Omega,
    /// Neighbouring sources share a crossbar of the first stage: the last digit comes first.
    Natural,
    /// The first two digits change places: what a symmetric 4-layer network with routes by source
    /// port is for its last three stages.
    Swapped,
    /// Position of each source, each position once.
    Positions(Vec<u32>),
}

#[derive(Debug, Clone)]
pub(super) struct Delta {
    stages: usize,
    /// Position of each source.
    positions: Vec<u32>,
    /// By source and stage: the first link after the stage, and in the window the digits of the source
    /// that are left. Tables, since divisions would be most of what a route costs; two of them, since a
    /// window made of the one before it would wait for that.
    sources: Vec<u32>,
    /// By destination and stage: its digits in the window.
    destinations: Vec<u32>,
}

impl Topology {
    /// A delta network of `stages` stages of `radix` x `radix` crossbars.
    ///
    /// # Errors
    /// [`TopologyError`] for a size that cannot be built and for a wiring that is no permutation.
    pub fn delta(radix: u32, stages: u32, wiring: &Wiring) -> Result<Self, TopologyError> {
        let nodes = power(radix, stages)?;
        let positions = positions(radix, nodes, wiring)?;
        let per_stage = nodes / radix;
        let element = Element {
            inputs: radix,
            outputs: radix,
        };
        let mut parts = Parts::new(nodes, nodes, vec![element; (per_stage * stages) as usize]);
        // The window of the source digits is a link before the first stage: dropping the first
        // digit leaves the crossbar, and the digit dropped is its input port.
        for position in &positions {
            let source = parts.links.len() as u32;
            parts.inject(source, position % per_stage, position / per_stage);
        }
        for stage in 0..stages {
            for window in 0..nodes {
                let from = (stage * per_stage + window / radix, window % radix);
                if stage + 1 == stages {
                    parts.deliver(from.0, from.1, window);
                } else {
                    let element = (stage + 1) * per_stage + window % per_stage;
                    parts.connect(from.0, from.1, element, window / per_stage);
                }
            }
        }
        // By stage: what the digits count that are still to come.
        let to_come = (0..stages).map(|stage| (stage, radix.pow(stages - 1 - stage)));
        let of_source = |position: &u32| {
            let position = *position;
            to_come.clone().map(move |(stage, place)| {
                let first = nodes * (stage + 1);
                first + position % place * (nodes / place)
            })
        };
        let of_destination = |node| to_come.clone().map(move |(_, place)| node / place);
        Ok(parts.into_topology(Routing::Delta(Delta {
            stages: stages as usize,
            sources: positions.iter().flat_map(of_source).collect(),
            destinations: (0..nodes).flat_map(of_destination).collect(),
            positions,
        })))
    }
}

impl Delta {
    #[inline]
    pub(super) fn route(&self, source: u32, destination: u32, route: &mut Route) {
        let stages = self.stages;
        let left = &self.sources[source as usize * stages..][..stages];
        let come = &self.destinations[destination as usize * stages..][..stages];
        route.extend(
            stages,
            left.iter().zip(come).map(|(left, come)| left + come),
        );
    }

    pub(super) const fn stages(&self) -> usize {
        self.stages
    }

    pub(super) fn positions(&self) -> &[u32] {
        &self.positions
    }
}

fn positions(radix: u32, nodes: u32, wiring: &Wiring) -> Result<Vec<u32>, TopologyError> {
    let high = nodes / radix;
    let positions = match wiring {
        Wiring::Omega => (0..nodes).collect(),
        Wiring::Natural => (0..nodes).map(|s| s % radix * high + s / radix).collect(),
        Wiring::Swapped => {
            let next = high / radix;
            let swap = |s: u32| match next {
                0 => s,
                _ => s / next % radix * high + s / high * next + s % next,
            };
            (0..nodes).map(swap).collect()
        }
        Wiring::Positions(positions) => positions.clone(),
    };
    let mut taken = vec![false; nodes as usize];
    for (source, position) in positions.iter().enumerate() {
        match taken.get_mut(*position as usize) {
            Some(taken) if !*taken => *taken = true,
            _ => {
                return Err(TopologyError::Wiring {
                    source_index: source as u32,
                    position: *position,
                });
            }
        }
    }
    if positions.len() != nodes as usize {
        return Err(TopologyError::Ports {
            ports: positions.len() as u32,
            allowed: "a position for each source",
        });
    }
    Ok(positions)
}
