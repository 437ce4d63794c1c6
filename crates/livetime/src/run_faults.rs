//! Which faults of a run did not strike: it had ended before, or what they waited for did not come.
//!
//! Faults are read and sorted in [`crate::config`]; who makes them does not say that one was left
//! over, so that it is told here from what became of the run.

use livetime_node::ChainOutcome;
use livetime_node::chain_plan::role_of;
use livetime_node::process::{FaultTime, ProcessFault};
use livetime_wire::{DurationNs, RunNs, TriggerNumber};

use crate::config::RunFault;

/// What became of a run, as far as faults go.
#[derive(Debug, Clone)]
pub(crate) struct RunFate {
    ended_at: RunNs,
    triggers: u64,
    /// Roles whose process was lost.
    lost: Vec<String>,
    /// Events that filter units failed on; `None` if the run ended before that was settled.
    failed: Option<Vec<TriggerNumber>>,
    /// Faults that found nobody.
    absent: Vec<ProcessFault>,
}

impl RunFate {
    /// Of an outcome; `is_settled` says that nothing was under way when the run ended.
    pub(crate) fn new(outcome: &ChainOutcome, is_settled: bool) -> Self {
        let ids = outcome.roles.iter().map(|(id, _)| id);
        // A process that was lost has left its counts under its role and the number of its life.
        let lost = ids.filter_map(|id| id.split_once('~'));
        let failed = outcome.filter_failures.iter();
        Self {
            ended_at: outcome.ended_at,
            triggers: outcome.counts.triggers,
            lost: lost.map(|(role, _)| role.to_owned()).collect(),
            absent: outcome.faults_missed.clone(),
            failed: is_settled.then(|| failed.map(|failure| failure.trigger).collect()),
        }
    }

    /// Why a fault did not strike; `None` if it did.
    pub(crate) fn missed(&self, fault: &RunFault) -> Option<String> {
        match fault {
            RunFault::Link(link) | RunFault::LinksOf { fault: link, .. } => {
                self.before(FaultTime::At(link.from))
            }
            RunFault::Cut { at, .. } => self.before(*at),
            RunFault::Event(event) => {
                let is_missed = !self.failed.as_ref()?.contains(&event.trigger);
                is_missed.then(|| "no filter unit was asked for that whole event".to_owned())
            }
            RunFault::Process(fault) if self.absent.contains(fault) => {
                Some(format!("{} was not there", fault.role))
            }
            RunFault::Process(ProcessFault { role, at, stopped }) => {
                let of_loss = matches!(at, FaultTime::LossOf { .. });
                let lives = of_loss && stopped.is_none() && !self.lost.contains(role);
                let heard = || lives.then(|| format!("{role} heard of no such loss"));
                self.before(*at).or_else(heard)
            }
        }
    }

    /// Why a time did not come.
    fn before(&self, at: FaultTime) -> Option<String> {
        match at {
            FaultTime::At(at) if at > self.ended_at => {
                let ended_at = DurationNs(self.ended_at.0);
                Some(format!("the run ended after {ended_at}"))
            }
            FaultTime::Triggers(count) if count > self.triggers => {
                Some(format!("the run had {} triggers", self.triggers))
            }
            FaultTime::LossOf { unit, .. } if !self.lost.contains(&role_of(unit)) => {
                Some(format!("{unit} was not lost"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_fault;

    #[test]
    fn faults_that_come_too_late_or_wait_in_vain_are_told() {
        let fate = RunFate {
            ended_at: RunNs(1_100_000_000),
            triggers: 5000,
            lost: vec!["bu1".to_owned(), "evm".to_owned()],
            failed: Some(vec![TriggerNumber(12)]),
            absent: vec![ProcessFault {
                role: "fu1".to_owned(),
                at: FaultTime::At(RunNs(500_000_000)),
                stopped: None,
            }],
        };
        for (fault, missed) in [
            ("link-down:3@4s+1s", Some("the run ended after 1.10 s")),
            ("link-down:ru0@1s+1s", None),
            ("cut:fu0@2s", Some("the run ended after 1.10 s")),
            ("kill:evm@9000triggers", Some("the run had 5000 triggers")),
            ("kill:evm@5000triggers", None),
            ("kill:evm@loss-of:bu1", None),
            ("kill:evm@loss-of:bu0", Some("bu0 was not lost")),
            ("kill:ru0@loss-of:bu1#9", Some("ru0 heard of no such loss")),
            (
                "crash:13",
                Some("no filter unit was asked for that whole event"),
            ),
            ("hang:12", None),
            ("kill:fu1@500ms", Some("fu1 was not there")),
            ("kill:fu1@600ms", None),
        ] {
            let parsed = parse_fault(fault).unwrap();
            assert_eq!(fate.missed(&parsed).as_deref(), missed, "{fault}");
        }
        let cut_short = RunFate {
            failed: None,
            ..fate
        };
        assert_eq!(cut_short.missed(&parse_fault("crash:13").unwrap()), None);
    }
}
