//! Symmetric networks of 4 and 6 layers with k^3 ports: 8 and 512 routes for k = 8.
//!
//! Source s = (L, a, p) and destination d = (R, e, f) are read as three digits of base k. In 4
//! layers a left block L has k leaves and k spines, and so has a right block R; in 6 layers two
//! rows of k Clos networks face each other (the "2 rows of 8 Clos-128" of the CMS talk, Lyon 2000,
//! where an Xbar16 is 8 down and 8 up). Free digits of a route are `r`, and `r1`, `b`, `r3`.

use super::{Element, Parts, Route, Routing, Topology, TopologyError, in_range};

#[derive(Debug, Clone)]
pub(super) struct FourLayer {
    radix: u32,
}

#[derive(Debug, Clone)]
pub(super) struct SixLayer {
    radix: u32,
}

/// Digits of a node, most significant first.
const fn digits(node: u32, k: u32) -> (u32, u32, u32) {
    (node / (k * k), node / k % k, node % k)
}

/// Elements and links of `layers` stages of k^2 crossbars: `next` gives crossbar and input port
/// that follow output `port` of crossbar (x, y) of a stage.
fn stages(k: u32, layers: u32, next: impl Fn(u32, u32, u32, u32) -> ((u32, u32), u32)) -> Parts {
    let (per_stage, nodes) = (k * k, k * k * k);
    let element = Element {
        inputs: k,
        outputs: k,
    };
    let mut parts = Parts::new(nodes, nodes, vec![element; (per_stage * layers) as usize]);
    for source in 0..nodes {
        parts.inject(source, source / k, source % k);
    }
    for stage in 0..layers {
        for link in 0..nodes {
            let (x, y, port) = digits(link, k);
            let from = stage * per_stage + link / k;
            if stage + 1 == layers {
                parts.deliver(from, port, link);
            } else {
                let ((x, y), input) = next(stage, x, y, port);
                parts.connect(from, port, (stage + 1) * per_stage + x * k + y, input);
            }
        }
    }
    parts
}

impl Topology {
    /// A symmetric network of 4 layers with `radix`^3 ports and `radix` routes for each pair.
    ///
    /// # Errors
    /// [`TopologyError::OutOfRange`] for a radix below 2 or above 40.
    pub fn four_layer(radix: u32) -> Result<Self, TopologyError> {
        in_range("radix", radix, 2, 40)?;
        let parts = stages(radix, 4, |stage, x, y, port| match stage {
            0 => ((x, port), y), // leaf (L, a) to spine (L, r)
            1 => ((port, y), x), // spine (L, r) to spine (R, r)
            _ => ((x, port), y), // spine (R, r) to leaf (R, e)
        });
        Ok(parts.into_topology(Routing::FourLayer(FourLayer { radix })))
    }

    /// A symmetric network of 6 layers with `radix`^3 ports and `radix`^3 routes for each pair.
    ///
    /// # Errors
    /// [`TopologyError::OutOfRange`] for a radix below 2 or above 40.
    pub fn six_layer(radix: u32) -> Result<Self, TopologyError> {
        in_range("radix", radix, 2, 40)?;
        let parts = stages(radix, 6, |stage, x, y, port| match stage {
            0 => ((x, port), y), // (L, a) to (L, r1)
            1 => ((x, port), y), // (L, r1) to (L, b)
            2 => ((port, y), x), // (L, b) to (R, b)
            3 => ((x, port), y), // (R, b) to (R, r3)
            _ => ((x, port), y), // (R, r3) to (R, e)
        });
        Ok(parts.into_topology(Routing::SixLayer(SixLayer { radix })))
    }
}

impl FourLayer {
    pub(super) fn route_count(&self) -> u64 {
        u64::from(self.radix)
    }

    pub(super) fn source_port_choice(&self, source: u32) -> u64 {
        u64::from(source % self.radix)
    }

    #[inline]
    pub(super) fn route(&self, source: u32, destination: u32, choice: u64, route: &mut Route) {
        let k = self.radix;
        let nodes = k * k * k;
        let (l, a, _) = digits(source, k);
        let (to, e, _) = digits(destination, k);
        let r = (choice % u64::from(k)) as u32;
        route.push(nodes + (l * k + a) * k + r);
        route.push(2 * nodes + (l * k + r) * k + to);
        route.push(3 * nodes + (to * k + r) * k + e);
        route.push(4 * nodes + destination);
    }

    /// Logical index (a, L, p) of each source, in whose order shifts are free of conflicts.
    pub(super) fn shift_order(&self) -> Vec<u32> {
        let k = self.radix;
        let index = |s| {
            let (l, a, p) = digits(s, k);
            (a * k + l) * k + p
        };
        (0..k * k * k).map(index).collect()
    }
}

impl SixLayer {
    pub(super) fn route_count(&self) -> u64 {
        u64::from(self.radix).pow(3)
    }

    /// r1 = p, b = a, r3 = L.
    pub(super) fn source_port_choice(&self, source: u32) -> u64 {
        let k = self.radix;
        let (l, a, p) = digits(source, k);
        u64::from((l * k + a) * k + p)
    }

    #[inline]
    pub(super) fn route(&self, source: u32, destination: u32, choice: u64, route: &mut Route) {
        let k = self.radix;
        let nodes = k * k * k;
        let (l, a, _) = digits(source, k);
        let (to, e, _) = digits(destination, k);
        let (r3, b, r1) = digits((choice % u64::from(nodes)) as u32, k);
        route.push(nodes + (l * k + a) * k + r1);
        route.push(2 * nodes + (l * k + r1) * k + b);
        route.push(3 * nodes + (l * k + b) * k + to);
        route.push(4 * nodes + (to * k + b) * k + r3);
        route.push(5 * nodes + (to * k + r3) * k + e);
        route.push(6 * nodes + destination);
    }

    /// Logical index (p, a, L) of each source.
    pub(super) fn shift_order(&self) -> Vec<u32> {
        let k = self.radix;
        let index = |s| {
            let (l, a, p) = digits(s, k);
            (p * k + a) * k + l
        };
        (0..k * k * k).map(index).collect()
    }
}
