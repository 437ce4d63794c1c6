//! Folded fat trees: k-ary n-trees, whose routes go up to a common ancestor and down again.
//!
//! A node is attached to switch w of the lowest level; the way up from level l chooses digit l of
//! w freely, the way down sets it to the destination's. Up and down are links of their own.

use super::{
    Element, Parts, ROUTE_LINKS_MAX, Route, Routing, Topology, TopologyError, in_range, power,
};

/// The most levels: a route has a link up and one down for each of them.
const LEVELS_MAX: u32 = ROUTE_LINKS_MAX as u32 / 2;

#[derive(Debug, Clone)]
pub(super) struct FatTree {
    radix: u32,
    levels: u32,
    nodes: u32,
}

impl Topology {
    /// A tree of `levels` levels of switches with `radix` ports down and as many up (the top level
    /// has none up), and `radix`^`levels` nodes.
    ///
    /// # Errors
    /// [`TopologyError::OutOfRange`] for a size that cannot be built.
    pub fn fat_tree(radix: u32, levels: u32) -> Result<Self, TopologyError> {
        in_range("levels", levels, 1, LEVELS_MAX)?;
        let nodes = power(radix, levels)?;
        let per_level = nodes / radix;
        let tree = FatTree {
            radix,
            levels,
            nodes,
        };
        let element = |level| {
            let ports = if level + 1 == levels {
                radix
            } else {
                2 * radix
            };
            vec![
                Element {
                    inputs: ports,
                    outputs: ports,
                };
                per_level as usize
            ]
        };
        let elements = (0..levels).flat_map(element).collect();
        let mut parts = Parts::new(nodes, nodes, elements);
        // Ports below `radix` go down, the others up, at inputs and outputs alike.
        for s in 0..nodes {
            parts.inject(s, s / radix, s % radix);
        }
        for level in 0..levels - 1 {
            for link in 0..nodes {
                let (w, c) = (link / radix, link % radix);
                let above = tree.with_digit(w, level, c);
                let from = (level * per_level + w, radix + c);
                let to = ((level + 1) * per_level + above, tree.digit(w, level));
                parts.trunk(from, to, 1);
            }
        }
        for level in 0..levels - 1 {
            for link in 0..nodes {
                let (w, port) = (link / radix, link % radix);
                let below = tree.with_digit(w, level, port);
                let from = ((level + 1) * per_level + w, port);
                let to = (level * per_level + below, radix + tree.digit(w, level));
                parts.trunk(from, to, 1);
            }
        }
        for d in 0..nodes {
            parts.deliver(d / radix, d % radix, d);
        }
        Ok(parts.into_topology(Routing::FatTree(tree)))
    }
}

impl FatTree {
    const fn digit(&self, w: u32, place: u32) -> u32 {
        w / self.radix.pow(place) % self.radix
    }

    const fn with_digit(&self, w: u32, place: u32, digit: u32) -> u32 {
        let weight = self.radix.pow(place);
        w - self.digit(w, place) * weight + digit * weight
    }

    /// Level at which the switches above source and destination are the same for some choice.
    fn turn(&self, source: u32, destination: u32) -> u32 {
        let (mut a, mut b) = (source / self.radix, destination / self.radix);
        let mut level = 0;
        while a != b {
            a /= self.radix;
            b /= self.radix;
            level += 1;
        }
        level
    }

    pub(super) fn route_count(&self, source: u32, destination: u32) -> u64 {
        u64::from(self.radix).pow(self.turn(source, destination))
    }

    pub(super) const fn hops_max(&self) -> usize {
        2 * self.levels as usize - 1
    }

    pub(super) fn route(&self, source: u32, destination: u32, choice: u64, route: &mut Route) {
        let (k, n) = (self.radix, self.nodes);
        let turn = self.turn(source, destination);
        let mut w = source / k;
        let mut left = choice;
        for level in 0..turn {
            let c = (left % u64::from(k)) as u32;
            left /= u64::from(k);
            route.push(n + level * n + w * k + c);
            w = self.with_digit(w, level, c);
        }
        let target = destination / k;
        for level in (0..turn).rev() {
            let port = self.digit(target, level);
            route.push(n + (self.levels - 1 + level) * n + w * k + port);
            w = self.with_digit(w, level, port);
        }
        route.push(n + 2 * (self.levels - 1) * n + destination);
    }
}
