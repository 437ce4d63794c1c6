//! What shall go wrong: faults of links by chance or by script, nodes that die or pause.
//!
//! A [`FaultPlan`] is plain data, checked once by [`FaultPlan::validate`]. Chance comes from one
//! [`FaultProfile`] per link; the script says "the seventh message on link 3 is lost" and comes on
//! top. The [`FaultShim`](crate::fault::FaultShim) carries the plan out and writes down what it
//! did as a script, so that the bad luck of a seed can be replayed and cut down without the seed.

use crate::address::{LinkId, NodeId};
use crate::random::Probability;
use crate::time::{DurationPs, SimPs};

/// From one instant to just before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWindow {
    /// The first instant inside.
    pub from: SimPs,
    /// The first instant after; [`SimPs::MAX`] for no end.
    pub until: SimPs,
}

/// What happens to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAction {
    /// It does not arrive.
    Drop,
    /// It arrives a second time, `gap` after the first; the copy keeps no order.
    Duplicate {
        /// From the original to the copy.
        gap: DurationPs,
    },
    /// It takes `extra` time, and what is behind it on the link waits: the order stays.
    Delay {
        /// On top of the latency.
        extra: DurationPs,
    },
    /// It takes `hold` time, and what is behind it passes it: the order is lost.
    Reorder {
        /// On top of the latency.
        hold: DurationPs,
    },
}

/// When a scripted fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The message of this index on the link, counted from 0.
    Message(u64),
    /// Each message sent within this window.
    Window(TimeWindow),
}

/// One line of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptedFault {
    /// The link it strikes.
    pub link: LinkId,
    /// When.
    pub occasion: Occasion,
    /// What.
    pub action: FaultAction,
}

/// The chances of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultProfile {
    /// Chance of [`FaultAction::Drop`]; a dropped message has no other fault.
    pub drop: Probability,
    /// Chance of [`FaultAction::Duplicate`].
    pub duplicate: Probability,
    /// Chance of [`FaultAction::Delay`].
    pub delay: Probability,
    /// Chance of [`FaultAction::Reorder`].
    pub reorder: Probability,
    /// Shortest gap, extra time and hold.
    pub shift_min: DurationPs,
    /// Longest gap, extra time and hold; those between are equally likely.
    pub shift_max: DurationPs,
    /// Messages sent outside this window are safe.
    pub active: TimeWindow,
}

/// How a node is out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageKind {
    /// What comes to the node is lost, and so is its state.
    Death,
    /// The node is stopped; what comes to it waits for the end of the pause, in order.
    Pause,
}

/// A node that is out of order for some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Which node.
    pub node: NodeId,
    /// How.
    pub kind: OutageKind,
    /// When; a death may have no end, a pause must have one.
    pub window: TimeWindow,
}

/// All that shall go wrong in a run. By default nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    /// Chances of each link without an entry in `links`.
    pub everywhere: FaultProfile,
    /// Chances of single links, in any order; the last entry for a link holds.
    pub links: Vec<(LinkId, FaultProfile)>,
    /// Faults that happen for certain, in any order.
    pub script: Vec<ScriptedFault>,
    /// Dead and paused nodes, in any order; where two overlap, death wins.
    pub outages: Vec<Outage>,
    /// How many faults the shim writes down for replay; further ones are only counted.
    pub log_max: usize,
}

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FaultPlanError {
    /// A link that the world does not have.
    #[error("link {found} is not one of the {link_count} links")]
    UnknownLink {
        /// The number found.
        found: u32,
        /// Links 0 to this - 1 exist.
        link_count: usize,
    },
    /// A node that the world does not have.
    #[error("node {found} is not one of the {node_count} nodes")]
    UnknownNode {
        /// The number found.
        found: u32,
        /// Nodes 0 to this - 1 exist.
        node_count: usize,
    },
    /// A window that ends before it begins, or at once.
    #[error("window from {from} until {until} is empty")]
    EmptyWindow {
        /// Its first instant.
        from: SimPs,
        /// The instant after its last.
        until: SimPs,
    },
    /// The shortest shift is longer than the longest.
    #[error("shortest shift {min} is longer than the longest {max}")]
    ShiftsReversed {
        /// The shortest.
        min: DurationPs,
        /// The longest.
        max: DurationPs,
    },
    /// What waits for the end of this pause would wait for ever.
    #[error("pause of node {node} has no end, only a death may")]
    EndlessPause {
        /// The paused node.
        node: u32,
    },
}

impl TimeWindow {
    /// The whole run.
    pub const ALWAYS: Self = Self {
        from: SimPs::ZERO,
        until: SimPs::MAX,
    };

    /// From `from` to just before `until`.
    pub const fn new(from: SimPs, until: SimPs) -> Self {
        Self { from, until }
    }

    /// Whether an instant lies inside. [`SimPs::MAX`] lies in no window.
    pub fn contains(self, time: SimPs) -> bool {
        self.from <= time && time < self.until
    }

    fn validate(self) -> Result<(), FaultPlanError> {
        let Self { from, until } = self;
        if from < until {
            Ok(())
        } else {
            Err(FaultPlanError::EmptyWindow { from, until })
        }
    }
}

impl FaultProfile {
    /// A link without faults.
    pub const HEALTHY: Self = Self {
        drop: Probability::NEVER,
        duplicate: Probability::NEVER,
        delay: Probability::NEVER,
        reorder: Probability::NEVER,
        shift_min: DurationPs::ZERO,
        shift_max: DurationPs::ZERO,
        active: TimeWindow::ALWAYS,
    };

    /// Whether anything can go wrong at all.
    pub const fn is_healthy(&self) -> bool {
        !(self.drop.is_possible()
            || self.duplicate.is_possible()
            || self.delay.is_possible()
            || self.reorder.is_possible())
    }

    fn validate(&self) -> Result<(), FaultPlanError> {
        self.active.validate()?;
        if self.shift_min > self.shift_max {
            let (min, max) = (self.shift_min, self.shift_max);
            return Err(FaultPlanError::ShiftsReversed { min, max });
        }
        Ok(())
    }
}

impl Outage {
    pub(crate) fn validate(&self, node_count: usize) -> Result<(), FaultPlanError> {
        let node = self.node.0;
        self.window.validate()?;
        if self.node.index() >= node_count {
            return Err(FaultPlanError::UnknownNode {
                found: node,
                node_count,
            });
        }
        if self.kind == OutageKind::Pause && self.window.until == SimPs::MAX {
            return Err(FaultPlanError::EndlessPause { node });
        }
        Ok(())
    }
}

impl FaultPlan {
    /// A plan in which nothing goes wrong.
    pub const fn none() -> Self {
        Self {
            everywhere: FaultProfile::HEALTHY,
            links: Vec::new(),
            script: Vec::new(),
            outages: Vec::new(),
            log_max: 4096,
        }
    }

    /// Chances for all links alike.
    pub fn by_chance(everywhere: FaultProfile) -> Self {
        Self {
            everywhere,
            ..Self::none()
        }
    }

    /// Only what the script says.
    pub fn scripted(script: Vec<ScriptedFault>) -> Self {
        Self {
            script,
            ..Self::none()
        }
    }

    /// Checks the plan against a world of `link_count` links and `node_count` nodes.
    ///
    /// # Errors
    /// The first thing that cannot be carried out.
    pub fn validate(&self, link_count: usize, node_count: usize) -> Result<(), FaultPlanError> {
        let known_link = |link: LinkId| {
            let unknown = FaultPlanError::UnknownLink {
                found: link.0,
                link_count,
            };
            if link.index() < link_count {
                Ok(())
            } else {
                Err(unknown)
            }
        };
        self.everywhere.validate()?;
        for (link, profile) in &self.links {
            known_link(*link)?;
            profile.validate()?;
        }
        for fault in &self.script {
            known_link(fault.link)?;
            if let Occasion::Window(window) = fault.occasion {
                window.validate()?;
            }
        }
        self.outages
            .iter()
            .try_for_each(|outage| outage.validate(node_count))
    }
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(node: u32, kind: OutageKind, from: u64, until: SimPs) -> FaultPlan {
        let window = TimeWindow::new(SimPs(from), until);
        FaultPlan {
            outages: vec![Outage {
                node: NodeId(node),
                kind,
                window,
            }],
            ..FaultPlan::none()
        }
    }

    #[test]
    fn plans_that_cannot_be_carried_out_are_refused_with_the_reason() {
        let reason = |plan: FaultPlan| plan.validate(2, 3).unwrap_err().to_string();
        let drop = |occasion| {
            FaultPlan::scripted(vec![ScriptedFault {
                link: LinkId(1),
                occasion,
                action: FaultAction::Drop,
            }])
        };
        let empty = TimeWindow::new(SimPs(5_000), SimPs(5_000));
        assert_eq!(
            reason(drop(Occasion::Window(empty))),
            "window from 5.000 ns until 5.000 ns is empty"
        );
        assert_eq!(drop(Occasion::Message(0)).validate(2, 0), Ok(()));
        let unknown = drop(Occasion::Message(0)).validate(1, 0);
        assert_eq!(
            unknown.unwrap_err().to_string(),
            "link 1 is not one of the 1 links"
        );
        let reversed = FaultProfile {
            shift_min: DurationPs(2),
            ..FaultProfile::HEALTHY
        };
        assert_eq!(
            reason(FaultPlan::by_chance(reversed)),
            "shortest shift 0.002 ns is longer than the longest 0.000 ns"
        );
        let plan = FaultPlan {
            links: vec![(LinkId(2), reversed)],
            ..FaultPlan::none()
        };
        assert_eq!(reason(plan), "link 2 is not one of the 2 links");
        assert_eq!(
            reason(outage(3, OutageKind::Death, 0, SimPs::MAX)),
            "node 3 is not one of the 3 nodes"
        );
        assert_eq!(
            reason(outage(2, OutageKind::Pause, 0, SimPs::MAX)),
            "pause of node 2 has no end, only a death may"
        );
        assert_eq!(
            outage(2, OutageKind::Death, 0, SimPs::MAX).validate(2, 3),
            Ok(())
        );
        assert_eq!(FaultPlan::default().validate(0, 0), Ok(()));
    }
}
