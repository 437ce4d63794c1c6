//! The chain's counters and the equations that must hold between them after drain.
//!
//! The counters of one hop are kept independently at its two ends, so that an equation is a check
//! and not a definition. Who counts what is said at each field; nothing here counts by itself.

use crate::loss::{LossArea, LossCounts};

/// The counters of a whole chain, summed over units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChainCounts {
    /// Triggers that the source offered (counted by the source).
    pub offered: u64,
    /// Offers refused because of full Level-2 buffers or XOFF (counted by the source).
    pub refused: u64,
    /// Trigger numbers given (counted by the trigger supervisor).
    pub triggers: u64,
    /// Triggers with a non-zero decision (counted by the trigger supervisor).
    pub l2_accepted: u64,
    /// Triggers with a zero decision (counted by the trigger supervisor).
    pub l2_rejected: u64,
    /// Detector fragments handed to the links (counted by the source).
    pub fragments_sent: u64,
    /// Detector fragments that came out of the links (counted by the receivers).
    pub fragments_received: u64,
    /// Fragments freed because their trigger was rejected (counted by the readout units).
    pub fragments_dropped_by_decision: u64,
    /// Fragments in complete events (counted by the builder units).
    pub fragments_in_built: u64,
    /// Fragments in incomplete events (counted by the builder units).
    pub fragments_in_incomplete: u64,
    /// Complete events (counted by the builder units).
    pub events_built: u64,
    /// Events closed by the timeout with sources missing (counted by the builder units).
    pub events_incomplete: u64,
    /// Events that a filter accepted (counted by the filter units).
    pub filter_accepted: u64,
    /// Events that a filter rejected (counted by the filter units).
    pub filter_rejected: u64,
    /// Events in complete chunks of the run file (counted by the writer).
    pub events_stored: u64,
}

/// One equation that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConservationProblem {
    /// The equation, as text.
    pub equation: &'static str,
    /// The value of its left side.
    pub left: u64,
    /// The value of its right side.
    pub right: u64,
}

impl core::fmt::Display for ConservationProblem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "not conserved: {}: {} against {}",
            self.equation, self.left, self.right
        )
    }
}

impl ChainCounts {
    /// Names and values in the order of the chain, as JSON documents list them.
    pub fn entries(&self) -> [(&'static str, u64); 15] {
        [
            ("offered", self.offered),
            ("refused", self.refused),
            ("triggers", self.triggers),
            ("l2_accepted", self.l2_accepted),
            ("l2_rejected", self.l2_rejected),
            ("fragments_sent", self.fragments_sent),
            ("fragments_received", self.fragments_received),
            (
                "fragments_dropped_by_decision",
                self.fragments_dropped_by_decision,
            ),
            ("fragments_in_built", self.fragments_in_built),
            ("fragments_in_incomplete", self.fragments_in_incomplete),
            ("events_built", self.events_built),
            ("events_incomplete", self.events_incomplete),
            ("filter_accepted", self.filter_accepted),
            ("filter_rejected", self.filter_rejected),
            ("events_stored", self.events_stored),
        ]
    }

    /// The counters of values in the order of [`ChainCounts::entries`].
    pub fn from_values(values: [u64; 15]) -> Self {
        let [
            offered,
            refused,
            triggers,
            l2_accepted,
            l2_rejected,
            sent,
            received,
            rest @ ..,
        ] = values;
        let [
            dropped,
            in_built,
            in_incomplete,
            built,
            incomplete,
            accepted,
            rejected,
            stored,
        ] = rest;
        Self {
            offered,
            refused,
            triggers,
            l2_accepted,
            l2_rejected,
            fragments_sent: sent,
            fragments_received: received,
            fragments_dropped_by_decision: dropped,
            fragments_in_built: in_built,
            fragments_in_incomplete: in_incomplete,
            events_built: built,
            events_incomplete: incomplete,
            filter_accepted: accepted,
            filter_rejected: rejected,
            events_stored: stored,
        }
    }

    /// Adds the counters of another unit.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        let (mine, theirs) = (self.entries(), other.entries());
        *self = Self::from_values(core::array::from_fn(|i| mine[i].1 + theirs[i].1));
    }

    /// Every equation that does not hold, empty when everything is accounted for.
    pub fn problems(&self, losses: &LossCounts) -> Vec<ConservationProblem> {
        let lost = |area| losses.in_area(area);
        let equations = [
            (
                "offered = refused + triggers",
                self.offered,
                self.refused + self.triggers,
            ),
            (
                "triggers = l2_accepted + l2_rejected + losses.trigger",
                self.triggers,
                self.l2_accepted + self.l2_rejected + lost(LossArea::Trigger),
            ),
            (
                "fragments_sent = fragments_received + losses.link",
                self.fragments_sent,
                self.fragments_received + lost(LossArea::Link),
            ),
            (
                "fragments_received = fragments_dropped_by_decision + fragments_in_built \
                 + fragments_in_incomplete + losses.readout",
                self.fragments_received,
                self.fragments_dropped_by_decision
                    + self.fragments_in_built
                    + self.fragments_in_incomplete
                    + lost(LossArea::Readout),
            ),
            (
                "l2_accepted = events_built + events_incomplete + losses.builder",
                self.l2_accepted,
                self.events_built + self.events_incomplete + lost(LossArea::Builder),
            ),
            (
                "events_built + events_incomplete = filter_accepted + filter_rejected \
                 + losses.filter",
                self.events_built + self.events_incomplete,
                self.filter_accepted + self.filter_rejected + lost(LossArea::Filter),
            ),
            (
                "filter_accepted = events_stored + losses.store",
                self.filter_accepted,
                self.events_stored + lost(LossArea::Store),
            ),
        ];
        equations
            .into_iter()
            .filter(|(_, left, right)| left != right)
            .map(|(equation, left, right)| ConservationProblem {
                equation,
                left,
                right,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::LossCause;

    fn balanced() -> (ChainCounts, LossCounts) {
        let mut losses = LossCounts::new();
        for (cause, n) in [
            (LossCause::DecisionTimeout, 1),
            (LossCause::LinkDown, 2),
            (LossCause::FragmentLate, 3),
            (LossCause::EventAborted, 4),
            (LossCause::FilterLost, 5),
            (LossCause::StoreWriteFailed, 6),
        ] {
            losses.add(cause, n);
        }
        let counts = ChainCounts {
            offered: 130,
            refused: 30,
            triggers: 100,
            l2_accepted: 40,
            l2_rejected: 59,
            fragments_sent: 800,
            fragments_received: 798,
            fragments_dropped_by_decision: 500,
            fragments_in_built: 280,
            fragments_in_incomplete: 15,
            events_built: 33,
            events_incomplete: 3,
            filter_accepted: 20,
            filter_rejected: 11,
            events_stored: 14,
        };
        (counts, losses)
    }

    #[test]
    fn counters_merge_field_by_field() {
        let (mut counts, _) = balanced();
        let values = core::array::from_fn(|i| i as u64 + 1);
        let other = ChainCounts::from_values(values);
        assert_eq!(other.entries().map(|(_, value)| value), values);
        assert_eq!((other.offered, other.events_stored), (1, 15));
        counts.merge(&other);
        assert_eq!(counts.refused, 32);
    }

    #[test]
    fn balanced_counts_have_no_problem() {
        let (counts, losses) = balanced();
        assert_eq!(counts.problems(&losses), []);
    }

    #[test]
    fn conservation_each_equation_broken_once_is_reported() {
        type Break = fn(&mut ChainCounts, &mut LossCounts);
        let breaks: [(&str, Break); 7] = [
            ("offered =", |c, _| c.offered += 1),
            ("triggers =", |c, _| c.l2_rejected -= 1),
            ("fragments_sent =", |_, l| l.add(LossCause::LinkAborted, 1)),
            ("fragments_received =", |c, _| {
                c.fragments_in_incomplete += 1
            }),
            ("l2_accepted =", |_, l| l.add(LossCause::BuilderLost, 1)),
            ("events_built +", |c, _| c.filter_rejected += 2),
            ("filter_accepted =", |c, _| c.events_stored -= 1),
        ];
        for (start, broken) in breaks {
            let (mut counts, mut losses) = balanced();
            broken(&mut counts, &mut losses);
            let problems = counts.problems(&losses);
            assert_eq!(problems.len(), 1, "{start}: {problems:?}");
            assert!(
                problems[0].equation.starts_with(start),
                "{start}: {problems:?}"
            );
            assert!(problems[0].to_string().contains("against"));
        }
    }
}
