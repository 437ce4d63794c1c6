//! What the summary of a run tells of its trigger packets, node by node.
//!
//! A node counts what it recorded when it ends. One that died has not, and its file ends without a
//! record: of its packets the decisions tell how many there must be. What is in the files is looked at by
//! `verb::replay::decisions` alone.

use livetime_store::RunSummary;
use livetime_wire::{UnitId, UnitKind};

/// What a trigger node has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodePackets {
    /// Packets in its file.
    pub(crate) recorded: u64,
    /// Packets that it was to record, and could not.
    pub(crate) unrecorded: u64,
}

/// The trigger packets of a run, as its summary has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PacketAccount {
    /// By node; `None` of one that has counted nothing, since it died.
    nodes: Vec<Option<NodePackets>>,
    /// Decisions of the run, for each of which there was a packet.
    decisions: u64,
}

impl PacketAccount {
    /// Of a run that is known to have had so many nodes which recorded packets; 0 where nobody knows.
    pub(crate) fn of(summary: &RunSummary, nodes_at_least: u16) -> Self {
        let counted = |index| {
            let node = UnitId {
                kind: UnitKind::Trigger,
                index,
            };
            let counters = summary.roles.get(&node.to_string())?;
            Some(NodePackets {
                recorded: *counters.get("packets_recorded")?,
                unrecorded: counters.get("packets_unrecorded").copied().unwrap_or(0),
            })
        };
        let nodes = (0..=u16::MAX).map(|index| (index, counted(index)));
        let nodes = nodes.take_while(|(index, node)| *index < nodes_at_least || node.is_some());
        let counts = &summary.counts;
        Self {
            nodes: nodes.map(|(_, node)| node).collect(),
            decisions: counts.l2_accepted.saturating_add(counts.l2_rejected),
        }
    }

    /// How many nodes recorded packets.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// What a node has counted; `None` of one that died, or is not known.
    pub(crate) fn counted(&self, node: usize) -> Option<NodePackets> {
        self.nodes.get(node).copied().flatten()
    }

    /// Packets that could not be recorded.
    pub(crate) fn unrecorded(&self) -> u64 {
        let nodes = self.nodes.iter().flatten();
        nodes.fold(0, |sum, node| sum.saturating_add(node.unrecorded))
    }

    /// Packets that nodes decided on which died before they counted what they recorded of them; `None` if
    /// none died.
    pub(crate) fn uncounted(&self) -> Option<u64> {
        let counted = self.nodes.iter().flatten();
        let counted = counted.fold(0_u64, |sum, node| {
            sum.saturating_add(node.recorded)
                .saturating_add(node.unrecorded)
        });
        // A reply that came too late was recorded and is no decision.
        let uncounted = self.decisions.saturating_sub(counted);
        (self.nodes.contains(&None)).then_some(uncounted)
    }
}

#[cfg(test)]
mod tests {
    use livetime_store::summary::{Latencies, RunIdentification};
    use livetime_wire::{ChainCounts, LossCounts};

    use super::*;

    /// A run of 100 decisions with these roles and their packets, recorded and not.
    fn summary(roles: &[(&str, Option<[u64; 2]>)]) -> RunSummary {
        let run = RunIdentification::default();
        let counts = ChainCounts {
            triggers: 103,
            l2_accepted: 40,
            l2_rejected: 60,
            ..ChainCounts::default()
        };
        let losses = LossCounts::default();
        let mut summary = RunSummary::new(run, &counts, &losses, Latencies::default());
        for (role, packets) in roles {
            let names = ["packets_recorded", "packets_unrecorded"].map(str::to_owned);
            let counters = packets.map(|packets| names.into_iter().zip(packets).collect());
            let counters = counters.unwrap_or_default();
            summary.roles.insert((*role).to_owned(), counters);
        }
        summary
    }

    #[test]
    fn packets_of_nodes_that_died_follow_from_the_decisions() {
        let all_live = summary(&[("trg0", Some([45, 5])), ("trg1", Some([50, 0]))]);
        let account = PacketAccount::of(&all_live, 0);
        assert_eq!((account.node_count(), account.unrecorded()), (2, 5));
        assert_eq!(account.uncounted(), None);

        let one_died = [
            ("trg0", Some([30, 4])),
            ("trg1~1", None),
            ("trg2", Some([33, 0])),
        ];
        let account = PacketAccount::of(&summary(&one_died), 3);
        assert_eq!(account.node_count(), 3);
        let counted = (0..4).map(|node| account.counted(node).map(|node| node.recorded));
        assert!(counted.eq([Some(30), None, Some(33), None]));
        assert_eq!(account.uncounted(), Some(33));

        let account = PacketAccount::of(&summary(&[("trg0~1", None)]), 1);
        assert_eq!(account.uncounted(), Some(100));
    }

    #[test]
    fn packets_that_are_no_decisions_make_no_fewer_than_none() {
        let late = summary(&[("trg0", Some([103, 0])), ("trg1~1", None)]);
        assert_eq!(PacketAccount::of(&late, 2).uncounted(), Some(0));
    }

    #[test]
    fn a_run_that_recorded_no_packets_has_no_nodes() {
        let none = PacketAccount::of(&summary(&[("trg0", None)]), 0);
        assert_eq!((none.node_count(), none.uncounted()), (0, None));
    }
}
