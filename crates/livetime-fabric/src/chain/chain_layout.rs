//! The simulated chain as nodes and links, for whoever writes a fault plan.
//!
//! Nodes are the hosts: front-end with supervisor, trigger node, event manager, readout units,
//! builder units, filter units, writer. Links are the one-way hops of messages between two units,
//! then the trigger link and the return link. Data links are no links of the fault plan: an S-LINK
//! does not lose silently, it goes down ([`LinkOutage`](super::LinkOutage)).

use livetime_builder::{BuildMode, BuilderConfig};
use livetime_wire::{UnitId, UnitKind};

use crate::address::{LinkId, NodeId};

/// The trigger node.
pub const TRIGGER_NODE: UnitId = UnitId {
    kind: UnitKind::Trigger,
    index: 0,
};
/// The writer.
pub const WRITER: UnitId = UnitId {
    kind: UnitKind::Writer,
    index: 0,
};
/// Messages that any hop takes, however small the numbers from which its bound is derived.
const CAPACITY_MIN: u64 = 16;

/// A hop of messages from one unit to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) from: UnitId,
    pub(crate) to: UnitId,
    /// Messages on their way and waiting at the receiver.
    pub(crate) capacity: u64,
    pub(crate) is_lossy: bool,
}

/// Which number each unit and each hop has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLayout {
    units: Vec<UnitId>,
    lanes: Vec<Lane>,
}

impl ChainLayout {
    /// The layout of a chain with these units.
    pub fn new(config: &BuilderConfig) -> Self {
        let of = |kind, count: u16| (0..count).map(move |index| UnitId { kind, index });
        let readouts = || of(UnitKind::Readout, config.readout_units.len() as u16);
        let builders = || of(UnitKind::Builder, config.builder_units);
        let filters = || of(UnitKind::Filter, config.filter_units);
        let mut units = vec![UnitId::SUPERVISOR, TRIGGER_NODE, UnitId::EVENT_MANAGER];
        units.extend(readouts().chain(builders()).chain(filters()));
        units.push(WRITER);

        let mut lanes = Vec::new();
        let mut connect = |from, to, capacity: u64, is_lossy| {
            let capacity = capacity.max(CAPACITY_MIN);
            lanes.push(Lane {
                from,
                to,
                capacity,
                is_lossy,
            });
        };
        let (supervisor, manager) = (UnitId::SUPERVISOR, UnitId::EVENT_MANAGER);
        let (credits, requests) = (config.credits_total(), config.ring_slots());
        let in_filter = u64::from(config.filter_in_flight);
        let in_writer = u64::from(config.credits);
        connect(supervisor, manager, config.evm_queue.into(), false);
        for readout in readouts() {
            connect(supervisor, readout, config.trigger_window.into(), false);
            if config.mode == BuildMode::Push {
                connect(manager, readout, credits, true);
            }
        }
        for builder in builders() {
            connect(manager, builder, credits, true);
            connect(builder, manager, credits, true);
            for readout in readouts() {
                connect(builder, readout, requests, true);
                connect(readout, builder, requests, true);
            }
            for filter in filters() {
                connect(builder, filter, in_filter, false);
                connect(filter, builder, credits, false);
            }
            connect(builder, WRITER, in_writer, false);
            connect(WRITER, builder, in_writer, false);
        }
        Self { units, lanes }
    }

    /// The node of a unit, if there is one; the front-end is the node of the supervisor.
    pub fn node(&self, unit: UnitId) -> Option<NodeId> {
        let unit = match unit.kind {
            UnitKind::Source => UnitId::SUPERVISOR,
            _ => unit,
        };
        let place = self.units.iter().position(|known| *known == unit)?;
        Some(NodeId(place as u32))
    }

    /// The hop of messages from one unit to another, if there is one.
    pub fn link(&self, from: UnitId, to: UnitId) -> Option<LinkId> {
        let joins = |lane: &Lane| lane.from == from && lane.to == to;
        Some(LinkId(self.lanes.iter().position(joins)? as u32))
    }

    /// The trigger link: one message is one trigger packet.
    pub fn trigger_link(&self) -> LinkId {
        LinkId(self.lanes.len() as u32)
    }

    /// The return link: one message is one reply.
    pub fn return_link(&self) -> LinkId {
        LinkId(self.lanes.len() as u32 + 1)
    }

    /// The hops that may lose and repeat messages, since their units ask again: those between
    /// event manager, builder units and readout units. The others are rings of one machine.
    pub fn lossy_links(&self) -> impl Iterator<Item = LinkId> + '_ {
        let numbered = (0..).map(LinkId).zip(&self.lanes);
        numbered
            .filter(|(_, lane)| lane.is_lossy)
            .map(|(link, _)| link)
    }

    /// Whether messages of `link` may be lost or repeated: the hops of
    /// [`ChainLayout::lossy_links`] and both trigger links.
    pub fn is_lossy(&self, link: LinkId) -> bool {
        self.lanes
            .get(link.index())
            .is_none_or(|lane| lane.is_lossy)
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.units.len()
    }

    /// Number of links.
    pub fn link_count(&self) -> usize {
        self.lanes.len() + 2
    }

    pub(crate) fn units(&self) -> &[UnitId] {
        &self.units
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::SourceId;

    use super::*;

    #[test]
    fn every_hop_of_the_chain_has_its_own_number() {
        let layout = ChainLayout::new(&BuilderConfig {
            readout_units: vec![vec![SourceId(1)], vec![SourceId(2)]],
            builder_units: 2,
            filter_units: 1,
            ..BuilderConfig::default()
        });
        assert_eq!(layout.node_count(), 3 + 2 + 2 + 1 + 1);
        // 1 + 2 of the supervisor, 2 x (2 + 4 + 2 + 2) of the builder units, 2 trigger links.
        assert_eq!(layout.link_count(), 3 + 20 + 2);
        assert_eq!(layout.lossy_links().count(), 2 * (2 + 4));
        let source = UnitId {
            kind: UnitKind::Source,
            index: 0,
        };
        assert_eq!(layout.node(source), Some(NodeId(0)));
        assert_eq!(layout.node(WRITER), Some(NodeId(8)));
        assert_eq!(layout.node(UnitId::builder(2)), None);
        let (bu, ru) = (UnitId::builder(1), UnitId::readout(0));
        let (there, back) = (layout.link(bu, ru).unwrap(), layout.link(ru, bu).unwrap());
        assert_ne!(there, back);
        assert!(layout.is_lossy(there) && layout.is_lossy(layout.trigger_link()));
        let tickets = layout.link(bu, UnitId::filter(0)).unwrap();
        assert!(!layout.is_lossy(tickets));
        assert_eq!(layout.link(ru, WRITER), None);
        assert_eq!(layout.return_link().index() + 1, layout.link_count());
    }
}
