//! What a simulated run leaves: counters, losses, latencies, the run file, and how it came about.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use livetime_builder::{BuilderCounts, EventManagerCounts, ReadoutCounts};
use livetime_readout::{PageAccount, ReceiverCounters, SourceCounters};
use livetime_source::{PacketCounts, TriggerSourceCounts};
use livetime_store::{Condition, FileSummary};
use livetime_trigger::{DeadTime, FilterCounts, NodeCounters, SupervisorCounters};
use livetime_wire::{
    ChainCounts, ConservationProblem, DecisionDigest, LossCounts, RunNs, TriggerNumber,
};

use crate::fault::FaultCounts;
use crate::fault_plan::ScriptedFault;
use crate::trace::{TraceHash, TraceRecord};

/// One link at the end of a run.
#[derive(Debug, Clone)]
pub struct LinkOutcome {
    /// Its sending end.
    pub source: SourceCounters,
    /// Its receiving end.
    pub receiver: ReceiverCounters,
    /// Fragments lost at either end.
    pub losses: LossCounts,
    /// Where its pages are.
    pub pages: PageAccount,
}

/// The counters of the cores, unit by unit.
#[derive(Debug, Clone)]
pub struct UnitOutcomes {
    /// Trigger source.
    pub source: TriggerSourceCounts,
    /// Trigger packets.
    pub packets: PacketCounts,
    /// Trigger supervisor.
    pub supervisor: SupervisorCounters,
    /// Trigger node.
    pub trigger_node: NodeCounters,
    /// Event manager.
    pub manager: EventManagerCounts,
    /// Readout units.
    pub readouts: Vec<ReadoutCounts>,
    /// Builder units.
    pub builders: Vec<BuilderCounts>,
    /// Filter units.
    pub filters: Vec<FilterCounts>,
    /// Data links, then the trigger link and the return link.
    pub links: Vec<LinkOutcome>,
    /// What the Level-3 menu counted over all filter units: paths and streams. Its stages take no
    /// time. Empty without a menu.
    pub menu: BTreeMap<String, u64>,
}

/// The result of a simulated run.
#[derive(Debug, Clone)]
pub struct SimulatedOutcome {
    /// The chain's counters.
    pub counts: ChainCounts,
    /// The losses by cause.
    pub losses: LossCounts,
    /// Digest of all decisions.
    pub digest: DecisionDigest,
    /// Triggers of the events in the run file, ascending.
    pub stored_triggers: Vec<TriggerNumber>,
    /// Hash of everything that happened.
    pub trace_hash: TraceHash,
    /// The last records of the trace, if the kernel was told to keep some.
    pub trace: Vec<TraceRecord>,
    /// Decision latency in virtual nanoseconds, 1 ns to 100 s with three digits.
    pub decision_latency: Histogram<u64>,
    /// Build latency in virtual nanoseconds, in the same form.
    pub build_latency: Histogram<u64>,
    /// Dead time until the source was stopped.
    pub dead_time: DeadTime,
    /// Virtual time of the end: when everything had passed, or when the run was ended by force.
    pub ended_at: RunNs,
    /// Whether everything had passed before the end; otherwise the run was ended by force.
    pub is_drained: bool,
    /// Events of the simulation.
    pub events_simulated: u64,
    /// Condition of the run, as in its file.
    pub condition: Condition,
    /// The run file.
    pub run_file: Vec<u8>,
    /// What it holds; `None` if the disk had no room for its end.
    pub file_summary: Option<FileSummary>,
    /// Why the file could not be written any more, if so.
    pub writer_failure: Option<String>,
    /// Payload bytes of all fragments sent.
    pub bytes_sent: u64,
    /// Fragments of accepted triggers that a forced end kept from their links.
    pub fragments_unsent: u64,
    /// Each unit's counters.
    pub units: UnitOutcomes,
    /// What the fault plan did.
    pub faults: FaultCounts,
    /// The faults of messages as a script that does the same again.
    pub fault_log: Vec<ScriptedFault>,
    /// Whether the event manager's credits add up.
    pub credits_conserved: bool,
    /// Pages returned to a link that had not given them, and words that were no message: bugs.
    pub mishaps: u64,
}

impl SimulatedOutcome {
    /// The equations that do not hold; empty when everything is accounted for.
    pub fn conservation_problems(&self) -> Vec<ConservationProblem> {
        self.counts.problems(&self.losses)
    }

    /// Whether every page of every link is in one place and none is still in use. After a forced
    /// end, a fragment that was cut on its line may keep one page per link half filled.
    pub fn pages_conserved(&self) -> bool {
        let links = self.units.links.iter();
        links
            .clone()
            .all(|link| link.pages.is_balanced() && link.pages.handed_out == 0)
            && links.map(|link| link.pages.completed).sum::<u32>() == 0
    }
}
