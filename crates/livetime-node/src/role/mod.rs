//! The roles of the chain: each drives one core and is polled by a worker.
//!
//! Roles speak to each other through rings only, so that each can be moved to another worker. A
//! role that cannot send keeps its output and goes on taking inputs; its core bounds what that can
//! amount to.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use livetime_shm::{Consumer, Producer};
use livetime_wire::{DecisionDigest, RunNs, TriggerNumber, UnitId};

use crate::chain_plan::RingKey;
use crate::counter_block::RoleCounts;
use crate::worker::Phase;

pub mod builder;
pub mod event_manager;
pub mod filter;
pub mod front_end;
pub mod readout;
pub mod trigger;
pub mod writer;

/// What happens to the peers of a role that has a process for itself.
pub enum RoleCommand {
    /// A unit is gone; what it sent before is still in the rings.
    PeerLost {
        /// Which.
        unit: UnitId,
        /// Events that are lost with it, when it is a builder unit and that is known.
        triggers: Vec<TriggerNumber>,
    },
    /// A unit that was lost is back, behind new rings.
    PeerBack {
        /// Which.
        unit: UnitId,
        /// Its new epoch.
        epoch: u32,
        /// New rings towards it.
        producers: BTreeMap<RingKey, Producer>,
        /// New rings from it.
        consumers: BTreeMap<RingKey, Consumer>,
    },
}

/// One role, polled once per duty cycle of its worker.
pub trait Role: Send {
    /// Its id, such as `ru0`.
    fn id(&self) -> &str;

    /// Does what there is to do; returns the amount of work, 0 when idle. In
    /// [`Phase::Aborting`] the core is told to give up what it can, and what it gave up still
    /// travels.
    fn poll(&mut self, now: RunNs, phase: Phase) -> usize;

    /// Takes note of what happened to a peer; a role that does not care ignores it.
    fn handle_command(&mut self, _now: RunNs, _command: RoleCommand) {}

    /// Whether the last command has been dealt with: the events that were lost by it, as far as
    /// this role knows; `None` as long as something is still to be done.
    fn poll_settled(&mut self) -> Option<Vec<TriggerNumber>> {
        Some(Vec::new())
    }

    /// Counts everything that is still held as lost; only at the end of a run that was ended by
    /// force, in the order of `settlement.rs`. Other roles still take what this one sends.
    fn close(&mut self) {}

    /// Ends the role.
    fn finish(self: Box<Self>, now: RunNs) -> RoleResult;
}

/// What a role leaves behind.
#[derive(Default)]
pub struct RoleResult {
    /// Its id.
    pub id: String,
    /// Its last counters.
    pub counts: RoleCounts,
    /// Decision latency \[ns\], from the front-end.
    pub decision_latency: Option<Histogram<u64>>,
    /// Build latency \[ns\], from a builder unit.
    pub build_latency: Option<Histogram<u64>>,
    /// Digest of all decisions, from the front-end.
    pub digest: Option<DecisionDigest>,
    /// Fractions of offers refused and of time busy, from the front-end.
    pub dead_time: Option<(f64, f64)>,
    /// Further counters by name, for the report.
    pub details: BTreeMap<String, u64>,
    /// Bytes that the role wrote after the link page, from the writer.
    pub bytes_copied: u64,
    /// Why the role failed, if it did.
    pub failure: Option<String>,
    /// The run file, still open, from the writer.
    pub run_file: Option<writer::RunFile>,
}

/// A latency histogram from 1 ns to 100 s with three digits, which records without allocating.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("the bounds are in order")
}

/// Records a latency, saturating at the histogram's ends.
pub fn record_latency(histogram: &mut Histogram<u64>, ns: u64) {
    histogram.saturating_record(ns.max(1));
}
