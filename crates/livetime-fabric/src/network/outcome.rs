//! What a run of a network gives: throughput with its error, losses, latencies, fairness.
//!
//! The engines count through the `Tally`; the outcome holds plain numbers, and whether they are
//! steady-state ones. Nothing is printed here.

use hdrhistogram::Histogram;

use crate::kernel::{RunReport, StopReason};
use crate::time::{DurationPs, SimPs};
use crate::trace::TraceHash;

use super::link_report::LinkReport;
use super::measure::{BATCHES, Estimate, fairness};
use super::topology::Topology;
use super::wormhole::Load;

/// Latencies are kept with this many significant digits.
const LATENCY_DIGITS: u8 = 3;
/// The longest latency that is told from longer ones, nanoseconds: a thousand seconds.
const LATENCY_NS_MAX: u64 = 1_000_000_000_000;

/// Numbers of a run. Loads are shares of the rate of all sources' links.
#[derive(Debug, Clone)]
pub struct NetworkOutcome {
    /// Delivered payload and overhead as a share of what the links can carry.
    pub efficiency_link: Estimate,
    /// The same as a share of what a single source and destination reach.
    pub efficiency_p2p: f64,
    /// Payload per node and second, bytes.
    pub throughput_per_node: f64,
    /// Packets delivered per source and second: the event rate where each source sends a fragment
    /// of each event.
    pub packets_per_source_hz: f64,
    /// Packets delivered while counting.
    pub packets: u64,
    /// Packets delivered in all, warm-up included.
    pub packets_in_all: u64,
    /// Packets lost at full buffers, in all.
    pub packets_lost: u64,
    /// Packets that arrived at their sources and that these have taken, in all.
    pub packets_offered: u64,
    /// Packets in the network at the end.
    pub packets_in_flight: u64,
    /// How long before the end the packets had arrived that sources took last, in the mean; zero where
    /// there is always a packet.
    pub sources_behind: DurationPs,
    /// Time from a packet's arrival at its source to the delivery of its last byte, nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Jain's index over the packets of the sources.
    pub fairness_sources: f64,
    /// Jain's index over the packets of the destinations.
    pub fairness_destinations: f64,
    /// Efficiency of each batch, for plots against time.
    pub series: Vec<f64>,
    /// Length of a batch.
    pub batch: DurationPs,
    /// What links and buffers did, if [`Load::counts_links`] asked for it.
    pub links: Option<LinkReport>,
    /// Simulated time, warm-up included.
    pub simulated: SimPs,
    /// Whether it ended before its time since nothing was left to happen.
    pub(crate) ran_dry: bool,
    /// Events of the kernel, or steps of a model without one.
    pub events: u64,
    /// Hash of what happened.
    pub trace_hash: TraceHash,
}

impl NetworkOutcome {
    /// Whether every packet is accounted for: delivered, lost or in the network.
    pub const fn is_conserved(&self) -> bool {
        self.packets_offered == self.packets_in_all + self.packets_lost + self.packets_in_flight
    }

    /// Whether more arrives at the sources than the network takes: they are behind by more than a tenth
    /// of the run. Latencies then say how long it was.
    pub fn is_overloaded(&self) -> bool {
        self.sources_behind.0 > self.simulated.0 / 10
    }

    /// Whether the network is in a deadlock since [`Self::simulated`]: packets are in it, each waits
    /// for what another holds, and nothing can happen any more. One that leaves other packets a way
    /// is not seen.
    pub const fn is_deadlocked(&self) -> bool {
        self.ran_dry && self.packets_in_flight > 0
    }
}

/// Counters of a running engine.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    start: SimPs,
    batch: DurationPs,
    bits_per_batch: f64,
    point_to_point: f64,
    overhead: u64,
    wire_bytes: Vec<u64>,
    payload_bytes: u64,
    packets: u64,
    packets_in_all: u64,
    pub(crate) lost: u64,
    by_source: Vec<u64>,
    by_destination: Vec<u64>,
    latency_ns: Histogram<u64>,
    duration: DurationPs,
}

impl Tally {
    pub(crate) fn new(topology: &Topology, load: &Load) -> Self {
        Self::with_latency_digits(topology, load, LATENCY_DIGITS)
    }

    /// Of an engine whose packets come from hosts, which count what they are handed.
    pub(crate) fn of_hosts(topology: &Topology, load: &Load) -> Self {
        Self::with_latency_digits(topology, load, 0)
    }

    fn with_latency_digits(topology: &Topology, load: &Load, digits: u8) -> Self {
        let batch = DurationPs((load.duration.0 / BATCHES as u64).max(1));
        let seconds = batch.0 as f64 * 1e-12;
        let packet = load.sizes.mean() + f64::from(load.overhead_bytes);
        let time = packet * 8.0 / load.link_bits_per_s as f64;
        Self {
            start: SimPs::ZERO + load.warm_up,
            batch,
            bits_per_batch: load.link_bits_per_s as f64
                * seconds
                * f64::from(topology.sources().min(topology.destinations())),
            point_to_point: time / (time + load.source_gap.0 as f64 * 1e-12),
            overhead: u64::from(load.overhead_bytes),
            wire_bytes: vec![0; BATCHES],
            payload_bytes: 0,
            packets: 0,
            packets_in_all: 0,
            lost: 0,
            by_source: vec![0; topology.sources() as usize],
            by_destination: vec![0; topology.destinations() as usize],
            latency_ns: Histogram::new_with_bounds(1, LATENCY_NS_MAX, digits)
                .expect("digits from 0 to 5 and bounds in order"),
            duration: load.duration,
        }
    }

    /// Counts a packet whose last byte is delivered.
    #[inline]
    pub(crate) fn delivered(
        &mut self,
        now: SimPs,
        source: u32,
        destination: u32,
        bytes: u32,
        latency: DurationPs,
    ) {
        self.packets_in_all += 1;
        if now <= self.start {
            return;
        }
        let batch = ((now.0 - self.start.0 - 1) / self.batch.0) as usize;
        if let Some(sum) = self.wire_bytes.get_mut(batch) {
            *sum += u64::from(bytes) + self.overhead;
            self.payload_bytes += u64::from(bytes);
            self.packets += 1;
            self.by_source[source as usize] += 1;
            self.by_destination[destination as usize] += 1;
            self.latency_ns.saturating_record(latency.0 / 1_000);
        }
    }

    pub(crate) fn into_outcome(self, report: &RunReport) -> NetworkOutcome {
        let efficiency = |bytes: &u64| *bytes as f64 * 8.0 / self.bits_per_batch;
        let series: Vec<f64> = self.wire_bytes.iter().map(efficiency).collect();
        let estimate = Estimate::of(&series);
        let seconds = self.duration.0 as f64 * 1e-12;
        let sources = self.by_source.len() as f64;
        let nodes = self.by_source.len().min(self.by_destination.len()) as f64;
        NetworkOutcome {
            efficiency_link: estimate,
            efficiency_p2p: estimate.mean / self.point_to_point,
            throughput_per_node: self.payload_bytes as f64 / seconds / nodes,
            packets_per_source_hz: self.packets as f64 / seconds / sources,
            packets: self.packets,
            packets_in_all: self.packets_in_all,
            packets_lost: self.lost,
            packets_offered: 0,
            packets_in_flight: 0,
            sources_behind: DurationPs::ZERO,
            latency_ns: self.latency_ns,
            fairness_sources: fairness(&self.by_source),
            fairness_destinations: fairness(&self.by_destination),
            series,
            batch: self.batch,
            links: None,
            simulated: report.now,
            ran_dry: report.stop == StopReason::Drained,
            events: report.events,
            trace_hash: report.trace_hash,
        }
    }
}
