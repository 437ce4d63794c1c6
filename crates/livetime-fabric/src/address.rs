//! How the simulator calls its nodes and links: dense indices from 0, given by the world.
//!
//! They are positions in tables, not identifiers of the experiment: which readout unit or crossbar
//! port node 7 is, the world knows. Random streams ([`crate::random`]), traces ([`crate::trace`])
//! and faults ([`crate::fault`]) are all keyed by them.

/// A node of the simulated system: a unit, a host, a crossbar; counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u32);

/// A one-way link of the simulated system, counted from 0.
///
/// Links are physical (a cable and its direction), so their number grows with the nodes and not
/// with the pairs of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LinkId(pub u32);

impl NodeId {
    /// Position in a table of nodes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// Position in a table of links.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
