//! The roles of the chain: each drives one core and is polled by a worker.
//!
//! Roles speak to each other through rings only, so that each can be moved to another worker. A
//! role that cannot send keeps its output and goes on taking inputs; its core bounds what that can
//! amount to.

use std::collections::BTreeMap;
use std::net::TcpStream;

use hdrhistogram::Histogram;
use livetime_shm::{Consumer, Producer};
use livetime_store::Histogram as FilledHistogram;
use livetime_wire::{DecisionDigest, RunNs, TriggerNumber, UnitId};

use crate::builder_transport::PeerSocket;
use crate::chain_plan::RingKey;
use crate::counter_block::RoleCounts;
use crate::message_ring::Outbox;
use crate::process::FilterFailure;
use crate::run_file::ClosingFile;
use crate::worker::Phase;

pub mod builder;
pub mod event_manager;
pub mod filter;
pub mod filter_batch;
pub mod flagged_fragments;
pub mod front_end;
pub mod manager_barrier;
pub mod manager_path;
pub mod manager_succession;
pub mod readout;
pub mod spill_gate;
pub mod trigger;
pub mod verdict_log;
pub mod writer;

/// What happens to the peers of a role that has a process for itself.
pub enum RoleCommand {
    /// A unit is gone; what it sent before is still in the rings.
    PeerLost {
        /// Which.
        unit: UnitId,
        /// Of a builder unit, the events that it had: to the writer all of them, to filter units
        /// those that the writer does not have, to readout units those that are built again. Of a
        /// filter unit, the events that are not to be filtered any more.
        triggers: Vec<TriggerNumber>,
    },
    /// Which events of a lost builder unit were handed on by it. To the event manager: all others
    /// are to be built again. To the front-ends: they are finished.
    Decide {
        /// The builder unit.
        unit: UnitId,
        /// The events.
        triggers: Vec<TriggerNumber>,
    },
    /// To readout units: a builder unit is gone, and so is its writer. Name those of its events that it
    /// had released; from here on nothing that it said counts. Or the event manager is gone: name
    /// those that were released by any.
    NameReleased {
        /// The builder unit or event manager.
        unit: UnitId,
        /// The events that are asked for.
        triggers: Vec<TriggerNumber>,
    },
    /// To readout units: a builder unit is gone. Name the triggers that nobody has asked for. To the
    /// front-ends: name those of them that are finished.
    NameUnasked {
        /// The builder unit.
        unit: UnitId,
        /// To the front-ends, the triggers.
        triggers: Vec<TriggerNumber>,
    },
    /// To the event manager: a builder unit is gone, and what becomes of its events is decided. Name all
    /// triggers that are not finished.
    NameOpen,
    /// To readout units: these triggers are finished. End those that nobody has asked for.
    EndUnasked {
        /// The builder unit that is gone.
        unit: UnitId,
        /// The triggers.
        triggers: Vec<TriggerNumber>,
    },
    /// To builder units: a filter unit is to leave, and gets no more events. To the unit itself:
    /// finish what there is, and end.
    Retire {
        /// The filter unit.
        unit: UnitId,
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
        /// A new socket to it, where a network carries its messages.
        socket: Option<PeerSocket>,
        /// New sockets of its data links, by the front-end of each.
        data_sockets: BTreeMap<UnitId, PeerSocket>,
    },
    /// To builder units: name the events in which there are fragments of a lost readout unit, whose
    /// pages may be read.
    NameHeld {
        /// The readout unit.
        unit: UnitId,
    },
    /// To the front-ends: a readout unit that took the place of another is about to join. Give no
    /// trigger until it has, and name the last one.
    Hold {
        /// The readout unit.
        unit: UnitId,
    },
    /// A readout unit that took the place of another has joined.
    Joined {
        /// Which.
        unit: UnitId,
        /// The last trigger that was given before: it has nothing of this one and those before.
        newest: TriggerNumber,
    },
    /// To the front-ends: give no trigger, or give them again. Nothing is held back that is on its way.
    Pause {
        /// Whether none is given from here on.
        is_on: bool,
    },
    /// To an event manager that took the place of another: these of the triggers that the supervisor
    /// tells it are finished. Settled when it has been told all, so that what happens to other units
    /// can be told.
    Succeed {
        /// The triggers.
        finished: Vec<TriggerNumber>,
    },
    /// The stream to a unit was cut, and both live: there is another, or none could be made yet.
    StreamBack {
        /// The unit at the other end.
        unit: UnitId,
        /// This unit's end.
        stream: Option<TcpStream>,
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

    /// Whether others wait for each of its outputs: then it is polled again after every role of its
    /// worker that had work.
    fn is_urgent(&self) -> bool {
        false
    }

    /// The next unit that this role takes for dead, since it was silent for too long.
    fn poll_silent(&mut self) -> Option<UnitId> {
        None
    }

    /// The next unit to which the stream has ended by itself: both are to get another.
    fn poll_cut(&mut self, _now: RunNs) -> Option<UnitId> {
        None
    }

    /// Whether it was told to leave and holds nothing any more.
    fn has_left(&mut self) -> bool {
        false
    }

    /// What it has to tell while the run goes on, a piece at a time; the last pieces are in its
    /// result.
    fn poll_report(&mut self, _now: RunNs) -> Option<RoleReport> {
        None
    }

    /// Counts everything that is still held as lost; only at the end of a run that was ended by
    /// force, in the order of `settlement.rs`. Other roles still take what this one sends.
    fn close(&mut self) {}

    /// Ends the role.
    fn finish(self: Box<Self>, now: RunNs) -> RoleResult;
}

/// What a role tells while the run goes on.
#[derive(Debug, Clone, PartialEq)]
pub enum RoleReport {
    /// A filter has failed on an event, which goes to the error stream.
    Failure(FilterFailure),
    /// The histograms that its filter has filled so far.
    Histograms(Vec<FilledHistogram>),
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
    /// Time from handing an event over to the first look of its filter unit \[ns\], from that unit.
    pub hand_over_latency: Option<Histogram<u64>>,
    /// Digest of all decisions, from the front-end.
    pub digest: Option<DecisionDigest>,
    /// Fractions of offers refused and of time busy, from the front-end.
    pub dead_time: Option<(f64, f64)>,
    /// Events that its filter failed on and that were not reported before.
    pub filter_failures: Vec<FilterFailure>,
    /// The histograms that its filter has filled.
    pub histograms: Vec<FilledHistogram>,
    /// Further counters by name, for the report.
    pub details: BTreeMap<String, u64>,
    /// Bytes that the role wrote after the link page, from the writer.
    pub bytes_copied: u64,
    /// Why the role failed, if it did.
    pub failure: Option<String>,
    /// The run file, still open, from the writer.
    pub run_file: Option<ClosingFile>,
}

/// A latency histogram from 1 ns to 100 s with three digits, which records without allocating.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("the bounds are in order")
}

/// Records a latency, saturating at the histogram's ends.
pub fn record_latency(histogram: &mut Histogram<u64>, ns: u64) {
    histogram.saturating_record(ns.max(1));
}

/// A peer is back behind a new socket. One that cannot be used is as good as ended: its peer finds
/// the other end hung up.
fn restore_socket(outbox: &mut Outbox, unit: UnitId, socket: Option<PeerSocket>) {
    if let Some(socket) = socket
        && outbox.restore_socket(unit, socket).is_err()
    {
        outbox.lose(unit);
    }
}

/// The stream to a peer was cut: goes on with another. What was on its way is lost, which the units'
/// cores make good: who waits asks again. One that cannot be used is as good as none: the link says
/// once more that it was cut.
fn reconnect(outbox: &mut Outbox, unit: UnitId, stream: Option<TcpStream>) {
    let _cut = stream.map(|stream| outbox.restore_socket(unit, PeerSocket::Stream(stream)));
}

/// The next peer of a network link whose stream has ended by itself.
fn poll_cut(outbox: &mut Outbox, now: RunNs) -> Option<UnitId> {
    outbox.network()?.poll_cut(now)
}

/// Counters of the network link, where there is one, for the report.
fn network_details(outbox: &mut Outbox) -> Vec<(&'static str, u64)> {
    (outbox.network()).map_or_else(Vec::new, |network| network.details())
}
