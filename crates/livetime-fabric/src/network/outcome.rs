//! What a run of a network gives: throughput with its error, losses, latencies, fairness.
//!
//! The engines count through the `Tally`; the outcome holds plain numbers, and whether they are
//! steady-state ones. Nothing is printed here.

use crate::kernel::{RunReport, StopReason};
use crate::time::{DurationPs, SimPs};
use crate::trace::TraceHash;

use super::arrival::Arrival;
use super::latencies::Latencies;
use super::link_report::LinkReport;
use super::measure::{BATCHES, Estimate, fairness, grows};
use super::standstill::Standstill;
use super::topology::Topology;
use super::wormhole::Load;

/// Latencies are kept with this many significant digits.
const LATENCY_DIGITS: u8 = 3;
/// Packet times by which latencies grow where a backlog does. Less than that can be the beat of rates that
/// are alike.
const GROWTH_PACKETS_MIN: f64 = 2.0;

/// Numbers of a run. Loads are shares of the rate of all sources' links.
#[derive(Debug, Clone)]
pub struct NetworkOutcome {
    /// Delivered payload and overhead as a share of what the links can carry. Its interval is at least
    /// a packet of each node, since packets count as a whole.
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
    pub latency_ns: Latencies,
    /// Mean of those that were delivered in the last batch; zero of none.
    pub latency_at_end: DurationPs,
    /// Whether packets take ever longer, beyond what chance does: more of them wait, in sources or in
    /// buffers. Never where there is always a packet.
    pub is_backlog_growing: bool,
    /// Jain's index over the packets of the sources.
    pub fairness_sources: f64,
    /// Jain's index over the packets of the destinations.
    pub fairness_destinations: f64,
    /// Efficiency of each batch that is over at the end, for plots against time.
    pub series: Vec<f64>,
    /// Length of a batch.
    pub batch: DurationPs,
    /// What links and buffers did, if [`Load::counts_links`] asked for it.
    pub links: Option<LinkReport>,
    /// Packets that stand still for ever at the end.
    pub standstill: Standstill,
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
    /// of the run, or packets take ever longer. Latencies then say how long it was.
    pub fn is_overloaded(&self) -> bool {
        self.sources_behind.0 > self.simulated.0 / 10 || self.is_backlog_growing
    }

    /// Packets that stand still for ever at the end: all that are in the network where nothing can happen
    /// any more.
    pub const fn packets_deadlocked(&self) -> u64 {
        match self.ran_dry {
            true => self.packets_in_flight,
            false => self.standstill.packets,
        }
    }

    /// Whether packets stand still for ever, since each waits for what another one holds.
    pub const fn is_deadlocked(&self) -> bool {
        self.packets_deadlocked() > 0
    }

    /// Whether other packets find a way in a deadlock. It may have begun at any time then; else it is
    /// there since [`Self::simulated`].
    pub const fn do_others_move(&self) -> bool {
        !self.ran_dry
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
    latency_ns: Latencies,
    /// Sum of latencies and packets of each batch, where packets arrive.
    waits: Vec<(u128, u64)>,
    /// A mean packet on a node's link, and with the pause behind it.
    link_time: DurationPs,
    packet_time: DurationPs,
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
        let is_saturated = load.arrival == Arrival::Saturated;
        let packet = load.sizes.mean() + f64::from(load.overhead_bytes);
        let time = packet * 8.0 / load.link_bits_per_s as f64;
        Self {
            start: SimPs::ZERO + load.warm_up,
            batch,
            bits_per_batch: load.link_bits_per_s as f64
                * seconds
                * f64::from(topology.sources().min(topology.destinations())),
            point_to_point: time / (time + load.source_gap.0 as f64 * 1e-12),
            link_time: DurationPs((time * 1e12) as u64),
            packet_time: DurationPs((time * 1e12) as u64) + load.source_gap,
            waits: vec![(0, 0); if is_saturated { 0 } else { BATCHES }],
            overhead: u64::from(load.overhead_bytes),
            wire_bytes: vec![0; BATCHES],
            payload_bytes: 0,
            packets: 0,
            packets_in_all: 0,
            lost: 0,
            by_source: vec![0; topology.sources() as usize],
            by_destination: vec![0; topology.destinations() as usize],
            latency_ns: Latencies::with_digits(digits),
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
            self.latency_ns.record(latency.0 / 1_000);
            if let Some((sum, packets)) = self.waits.get_mut(batch) {
                *sum += u128::from(latency.0);
                *packets += 1;
            }
        }
    }

    /// Mean latency, picoseconds, of each batch from which on something came in all of them; none where
    /// nothing arrives. The first ones may be too early for anything to come.
    fn mean_waits(&self) -> Vec<f64> {
        let mut without_gaps = self.waits.rsplit(|(_, packets)| *packets == 0);
        let last = without_gaps.next().unwrap_or_default().iter();
        let means = last.map(|(sum, packets)| *sum as f64 / *packets as f64);
        means.collect()
    }

    pub(crate) fn into_outcome(self, report: &RunReport) -> NetworkOutcome {
        let ran_dry = report.stop == StopReason::Drained;
        // What was not simulated is no time in which nothing came.
        let counted = match ran_dry {
            true => DurationPs((report.now - self.start).0.min(self.duration.0)),
            false => self.duration,
        };
        let batches = match ran_dry {
            true => (counted.0 / self.batch.0) as usize,
            false => BATCHES,
        };
        let efficiency = |bytes: &u64| *bytes as f64 * 8.0 / self.bits_per_batch;
        let series = self.wire_bytes.iter().take(batches).map(efficiency);
        let series: Vec<f64> = series.collect();
        let seconds = counted.0.max(1) as f64 * 1e-12;
        // Packets count when they are whole: of each node one more or less than its link carried
        // meanwhile.
        let packet = self.link_time.0 as f64 / counted.0.max(1) as f64;
        let estimate = Estimate::of(&series).widened(packet);
        let waits = self.mean_waits();
        let growth = GROWTH_PACKETS_MIN * self.packet_time.0 as f64;
        let at_end = waits.last().copied().unwrap_or_default();
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
            latency_at_end: DurationPs(at_end as u64),
            is_backlog_growing: grows(&waits, growth),
            fairness_sources: fairness(&self.by_source),
            fairness_destinations: fairness(&self.by_destination),
            series,
            batch: self.batch,
            links: None,
            standstill: Standstill::default(),
            simulated: report.now,
            ran_dry,
            events: report.events,
            trace_hash: report.trace_hash,
        }
    }
}
