//! The summary of a run, `livetime.run/1`: what `run --json` prints and `summary.json` keeps.
//!
//! The structs give the document its form; who measured what is said in the crates that count.
//! 64-bit identifiers, seeds and hashes are strings; rates, counts and times of latencies are
//! numbers. A reader passes over keys that it does not know.

use std::collections::BTreeMap;
use std::path::Path;

use livetime_wire::{
    ChainCounts, ConservationProblem, DecisionDigest, LossArea, LossCause, LossCounts, RunNumber,
};
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::file_plan::FileName;
use crate::filter_menu_summary::FilterMenuSummary;
use crate::run_note::RunNote;
use crate::run_record::RunBegin;
use crate::two_step_summary::TwoStepSummary;

/// The counters of a chain, as [`ChainCounts`] explains them.
#[expect(
    missing_docs,
    reason = "each field is documented in ChainCounts, under the same name"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub offered: u64,
    pub refused: u64,
    pub triggers: u64,
    pub l2_accepted: u64,
    pub l2_rejected: u64,
    pub fragments_sent: u64,
    pub fragments_received: u64,
    pub fragments_dropped_by_decision: u64,
    pub fragments_in_built: u64,
    pub fragments_in_incomplete: u64,
    pub events_built: u64,
    pub events_incomplete: u64,
    pub filter_accepted: u64,
    pub filter_rejected: u64,
    pub events_stored: u64,
}

/// Copies the fields of one struct of counters into another with the same names.
macro_rules! same_fields {
    ($from:ident => $into:ident, $map:expr) => {
        $into {
            offered: $map($from.offered),
            refused: $map($from.refused),
            triggers: $map($from.triggers),
            l2_accepted: $map($from.l2_accepted),
            l2_rejected: $map($from.l2_rejected),
            fragments_sent: $map($from.fragments_sent),
            fragments_received: $map($from.fragments_received),
            fragments_dropped_by_decision: $map($from.fragments_dropped_by_decision),
            fragments_in_built: $map($from.fragments_in_built),
            fragments_in_incomplete: $map($from.fragments_in_incomplete),
            events_built: $map($from.events_built),
            events_incomplete: $map($from.events_incomplete),
            filter_accepted: $map($from.filter_accepted),
            filter_rejected: $map($from.filter_rejected),
            events_stored: $map($from.events_stored),
        }
    };
}

impl From<&ChainCounts> for Counts {
    fn from(counts: &ChainCounts) -> Self {
        same_fields!(counts => Self, u64::from)
    }
}

impl From<&Counts> for ChainCounts {
    fn from(counts: &Counts) -> Self {
        same_fields!(counts => Self, u64::from)
    }
}

/// Losses by area and cause; every area and every known cause is listed, zeros included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Losses(BTreeMap<String, BTreeMap<String, u64>>);

impl Losses {
    /// The sum over the causes of an area, causes of other versions included.
    pub fn in_area(&self, area: LossArea) -> u64 {
        let causes = self
            .0
            .get(area.key())
            .into_iter()
            .flat_map(BTreeMap::values);
        causes.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The count of a cause.
    pub fn of(&self, cause: LossCause) -> u64 {
        let causes = self.0.get(cause.area().key());
        causes
            .and_then(|causes| causes.get(cause.key()))
            .copied()
            .unwrap_or(0)
    }

    /// Area, cause and count of every loss that is not 0.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        let all = self.0.iter().flat_map(|(area, causes)| {
            causes
                .iter()
                .map(|(cause, count)| (area.as_str(), cause.as_str(), *count))
        });
        all.filter(|(.., count)| *count > 0)
    }

    /// The sum over everything.
    pub fn total(&self) -> u64 {
        self.iter()
            .fold(0, |sum, (.., count)| sum.saturating_add(count))
    }
}

impl From<&LossCounts> for Losses {
    fn from(losses: &LossCounts) -> Self {
        let mut areas: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for area in LossArea::ALL {
            areas.insert(area.key().to_owned(), BTreeMap::new());
        }
        for (cause, count) in losses.iter() {
            let causes = areas.entry(cause.area().key().to_owned()).or_default();
            causes.insert(cause.key().to_owned(), count);
        }
        Self(areas)
    }
}

/// Far above any count, so that the sums of the equations fit for any document read.
const COUNT_MAX: u64 = u64::MAX >> 4;

/// What identifies a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunIdentification {
    /// Run number.
    pub number: u32,
    /// Seed of everything random in the run.
    #[serde(with = "crate::string_u64")]
    pub seed: u64,
    /// First 64 bits of the SHA-256 of the configuration file's text, as 16 hexadecimal digits.
    pub config_hash: String,
    /// Version of the program.
    pub version: String,
    /// Time from the start to the end of the drain \[s\].
    pub duration_s: f64,
    /// Condition of the run.
    pub condition: Condition,
}

/// Share of a distribution beyond a bound.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct OverBound {
    /// The bound \[ns\].
    pub bound_ns: u64,
    /// Entries beyond it, in parts per million.
    pub ppm: f64,
}

/// A distribution of latencies, in ns; the one form in which latencies are given.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "LatencyDocument", into = "LatencyDocument")]
pub struct LatencySummary {
    /// Number of entries; the other figures are 0 if it is, and null in documents.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90 % are at or below.
    pub p90: u64,
    /// 99 % are at or below.
    pub p99: u64,
    /// 99.9 % are at or below.
    pub p99_9: u64,
    /// 99.99 % are at or below.
    pub p99_99: u64,
    /// Largest.
    pub max: u64,
    /// Share beyond a bound.
    pub over: OverBound,
}

impl LatencySummary {
    /// A distribution without entries.
    pub fn empty(bound_ns: u64) -> Self {
        Self::from_percentiles(0, 0.0, OverBound { bound_ns, ppm: 0.0 }, |_| 0)
    }

    /// Takes the figures from `percentile`, which gives the value at or below which that many
    /// percent of the entries lie; 0 is the smallest and 100 the largest.
    pub fn from_percentiles(
        count: u64,
        mean: f64,
        over: OverBound,
        percentile: impl Fn(f64) -> u64,
    ) -> Self {
        Self {
            count,
            min: percentile(0.0),
            mean,
            p50: percentile(50.0),
            p90: percentile(90.0),
            p99: percentile(99.0),
            p99_9: percentile(99.9),
            p99_99: percentile(99.99),
            max: percentile(100.0),
            over,
        }
    }
}

/// The form of [`LatencySummary`] in documents: of a distribution without entries nobody knows a figure.
#[derive(Serialize, Deserialize)]
struct LatencyDocument {
    count: u64,
    min: Option<u64>,
    mean: Option<f64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p99_9: Option<u64>,
    p99_99: Option<u64>,
    max: Option<u64>,
    over: OverDocument,
}

/// The form of [`OverBound`] in documents.
#[derive(Serialize, Deserialize)]
struct OverDocument {
    bound_ns: u64,
    ppm: Option<f64>,
}

impl From<LatencySummary> for LatencyDocument {
    fn from(latency: LatencySummary) -> Self {
        let known = |ns: u64| (latency.count > 0).then_some(ns);
        let known_share = |share: f64| (latency.count > 0).then_some(share);
        Self {
            count: latency.count,
            min: known(latency.min),
            mean: known_share(latency.mean),
            p50: known(latency.p50),
            p90: known(latency.p90),
            p99: known(latency.p99),
            p99_9: known(latency.p99_9),
            p99_99: known(latency.p99_99),
            max: known(latency.max),
            over: OverDocument {
                bound_ns: latency.over.bound_ns,
                ppm: known_share(latency.over.ppm),
            },
        }
    }
}

impl From<LatencyDocument> for LatencySummary {
    fn from(document: LatencyDocument) -> Self {
        Self {
            count: document.count,
            min: document.min.unwrap_or(0),
            mean: document.mean.unwrap_or(0.0),
            p50: document.p50.unwrap_or(0),
            p90: document.p90.unwrap_or(0),
            p99: document.p99.unwrap_or(0),
            p99_9: document.p99_9.unwrap_or(0),
            p99_99: document.p99_99.unwrap_or(0),
            max: document.max.unwrap_or(0),
            over: OverBound {
                bound_ns: document.over.bound_ns,
                ppm: document.over.ppm.unwrap_or(0.0),
            },
        }
    }
}

/// The latencies of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// From the first word written by the source to the last reply word seen by the supervisor.
    pub decision: LatencySummary,
    /// From the event manager's assignment to the last fragment placed.
    pub build: LatencySummary,
}

/// Dead time of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeadTime {
    /// Offers refused over all offers: those that the source made too late included, those that the
    /// trigger gate refused or that came in a pause left out. `None` where no other offer came.
    pub refused_fraction: Option<f64>,
    /// Share of the time in which an offer would have been refused. `None` where nobody knows it.
    pub busy_fraction: Option<f64>,
}

/// Rates over the time of the run, in equal intervals.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RateSeries {
    /// Length of an interval \[s\].
    pub interval_s: f64,
    /// By name, such as `trigger_hz` or `built_bytes_per_s`, one rate for each interval.
    pub series: BTreeMap<String, Vec<f64>>,
}

/// What one worker thread did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerSummary {
    /// Its name.
    pub name: String,
    /// The core that it was pinned to, if it was.
    pub core: Option<u32>,
    /// The ids of the roles that it polled.
    pub roles: Vec<String>,
    /// Share of its duty cycles that found work.
    pub busy_fraction: f64,
}

/// The machine that took the run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineSummary {
    /// Host name.
    pub host: String,
    /// Model of the processor.
    pub cpu: String,
    /// Number of cores that the program may use.
    pub cores: u32,
    /// Memory \[bytes\].
    pub memory_bytes: u64,
    /// Operating system and its version.
    pub os: String,
    /// What `livetime doctor` says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doctor: Option<DoctorSummary>,
}

/// What was checked of the machine at this run, and the last full check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorSummary {
    /// Whether this is a virtual machine, on which tails mean little.
    pub virtual_machine: bool,
    /// Quick checks that passed, warned and failed.
    pub quick: [u32; 3],
    /// The last full verdict; `None` if none was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<DoctorVerdict>,
}

/// A full verdict of before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorVerdict {
    /// `real-time ready`, `usable` or `simulation only`.
    pub verdict: String,
    /// How old it was \[s\].
    pub age_s: u64,
    /// The largest gap of a spinning thread that it saw \[ns\].
    pub largest_gap_ns: Option<u64>,
}

/// The summary of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// `livetime.run/1`.
    pub schema: String,
    /// Whether the simulator made the run; left out for a real one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// What identifies the run.
    pub run: RunIdentification,
    /// The counters of the chain.
    pub counts: Counts,
    /// The losses.
    pub losses: Losses,
    /// Whether every equation between counters and losses holds.
    pub conserved: bool,
    /// The equations that do not hold, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conservation_problems: Vec<String>,
    /// Roles that nobody has seen end, whose counters are those that were heard last: what they did since is
    /// in no count, and in no equation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_seen_to_end: Vec<String>,
    /// Digest over all decisions, as 16 hexadecimal digits; empty, and `null` in the document, where it went
    /// with a front-end that died.
    #[serde(with = "unknown_as_null")]
    pub decision_digest: String,
    /// Dead time.
    pub dead_time: DeadTime,
    /// Latencies.
    pub latency: Latencies,
    /// Payload of the events into the builder units, in bytes per second in which triggers were taken.
    pub throughput_bytes_per_s: f64,
    /// Writes of a payload byte by our code after the link page, per byte stored. `None` where none was
    /// stored, and where nobody knows the writes.
    pub copies_per_byte: Option<f64>,
    /// The files of the run.
    pub files: Vec<String>,
    /// Rates over time, for the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<RateSeries>,
    /// The workers, for the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerSummary>,
    /// The machine, for the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineSummary>,
    /// The command that reproduces the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What operators noted, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<RunNote>,
    /// Further counters by role and name: paths of the menu, reasons of the filters, messages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, BTreeMap<String, u64>>,
    /// Events that filter units crashed or hung on. They are in the error stream, unless the run was
    /// aborted before they were stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter_failures: Vec<FilterFailureSummary>,
    /// Histograms to which filter units gave different bins: the run file has one unit's alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histograms_not_summed: Vec<String>,
    /// Trigger packets that nodes decided on which died before they counted what they recorded of them;
    /// `None` if none died, or none was to be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_uncounted: Option<u64>,
    /// What carried the event builder's payload, where it was a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder_transport: Option<TransportSummary>,
    /// What the Level-3 menu did, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_menu: Option<FilterMenuSummary>,
    /// What two-step building did, where events are built in two steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub two_step: Option<TwoStepSummary>,
    /// The writers of a run with several of them or on hosts, by their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writers: Vec<WriterSummary>,
}

/// What the summary of a run tells of its run files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldFiles {
    /// The run's number.
    pub run: u32,
    /// Seed and hash of the configuration of the run, as its files have them, too.
    pub origin: (u64, String),
    /// Events that the run has stored.
    pub events_stored: u64,
    /// The first file of each writer whose files only its host has, and where it is, as `HOST:PATH`.
    pub elsewhere: Vec<(FileName, String)>,
}

impl ToldFiles {
    /// Of a summary; `None` if the text is none.
    pub fn read(summary: &[u8]) -> Option<Self> {
        let summary: RunSummary = serde_json::from_slice(summary).ok()?;
        let writers = summary.writers.iter();
        Some(Self {
            run: summary.run.number,
            events_stored: summary.counts.events_stored,
            elsewhere: writers.filter_map(WriterSummary::elsewhere).collect(),
            origin: (summary.run.seed, summary.run.config_hash),
        })
    }

    /// Whether a file with this run number and begin-of-run record, as far as it is whole, is of the
    /// run that is summed up.
    pub fn is_of(&self, run: RunNumber, begin: Option<&RunBegin>) -> bool {
        let origin = begin.map(|begin| (begin.seed, begin.config_hash.as_str()));
        // A record that was lost, and made anew, says nothing.
        let origin = origin.filter(|(_, hash)| !hash.is_empty());
        let (seed, hash) = &self.origin;
        run.0 == self.run && origin.is_none_or(|origin| origin == (*seed, hash.as_str()))
    }
}

/// A writer of a run with several, or on hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterSummary {
    /// Its role, such as `wr1`.
    pub role: String,
    /// The host that it was on; left out for a run on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its file there, the first of those that it wrote.
    pub file: String,
    /// Whether only its host has its files, in a folder that is not shared: what lies here is the file
    /// as it was begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    /// Events in its files. Of a lost writer whose files cannot be read, what it said last.
    pub events_stored: u64,
    /// Whether it was lost with all that built for it, and the others went on, or with a host of which
    /// nobody knows whether it lives: its files end where it left them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Of a lost writer, events that others built again and that may be in its files, too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_built_again: u64,
}

impl WriterSummary {
    /// Its first file, and where it is, as `HOST:PATH`, if only its host has it.
    pub fn elsewhere(&self) -> Option<(FileName, String)> {
        let host = self.host.as_ref().filter(|_| self.elsewhere)?;
        let name = Path::new(&self.file).file_name()?.to_str()?;
        Some((FileName::parse(name)?, format!("{host}:{}", self.file)))
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What carried messages and payload between readout units, event manager and builder units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportSummary {
    /// Its kind, such as `tcp`.
    pub kind: String,
    /// The congestion control in force, of streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// What became of datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramSummary>,
    /// How what the readout units send was shaped, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaping: Option<ShapingSummary>,
}

/// The traffic shaping of all readout units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapingSummary {
    /// Its kind: `barrel-shifter` or `linear-shift`.
    pub kind: String,
    /// What ends a turn: `back-pressure`, `clock` or `barrier`.
    pub pace: String,
    /// Payload bytes of a full block; or those after which a phase takes no further fragment.
    pub block_bytes: u64,
    /// Time of a step, with a clock \[ns\].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ns: Option<u64>,
    /// Blocks that were sent; or turns of readout units in phases in which they sent something.
    pub blocks: u64,
    /// Payload bytes in them.
    pub payload_bytes: u64,
    /// Turns at which nothing waited, while something did for other builder units.
    pub turns_empty: u64,
    /// Turns missed since the readout unit was late, with a clock.
    pub turns_missed: u64,
    /// Turns of builder units that had not taken their last block.
    pub turns_refused: u64,
    /// Turns in which the block, or the fragments of a phase, were not taken in time.
    pub turns_overrun: u64,
    /// The barrier between the phases of a linear shift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier: Option<BarrierSummary>,
}

/// What the barrier of a linear shift did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarrierSummary {
    /// Phases that have begun after the first one.
    pub phases: u64,
    /// Times that a readout unit said again that it was through, since nothing followed or it was
    /// asked.
    pub throughs_repeated: u64,
    /// Times that a readout unit was not waited for any longer.
    pub left_out: u64,
}

/// What became of the datagrams between readout units, event manager and builder units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramSummary {
    /// Handed to the network.
    pub sent: u64,
    /// Those that did not come, by their numbers; what they carried was asked for again.
    pub lost: u64,
    /// Those that the receiving systems dropped for want of room; among the lost.
    pub kernel_drops: u64,
    /// Those that came behind later ones.
    pub late: u64,
    /// Those that came again.
    pub repeated: u64,
    /// Those that were cut or damaged, or of somebody else; the damaged are among the lost.
    pub bad: u64,
    /// The smallest receive buffer in force, as the system counts it, its overhead included.
    pub receive_buffer_bytes: u64,
}

/// An event that filter units crashed or hung on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterFailureSummary {
    /// Its trigger number, as text.
    #[serde(with = "crate::string_u64")]
    pub trigger: u64,
    /// Each filter unit that died of it, or whose filter failed on it, and how.
    pub deaths: Vec<FilterDeath>,
    /// Where the filter failed, if it said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub traceback: String,
}

/// The death of a filter unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterDeath {
    /// Its role id.
    pub role: String,
    /// How its process ended.
    pub reason: String,
}

impl RunSummary {
    /// The schema that this version writes.
    pub const SCHEMA: &str = "livetime.run/1";

    /// A summary of these counters, with conservation already judged and everything else empty.
    pub fn new(
        run: RunIdentification,
        counts: &ChainCounts,
        losses: &LossCounts,
        latency: Latencies,
    ) -> Self {
        let refused = counts.refused as f64 / counts.offered.max(1) as f64;
        let mut summary = Self {
            schema: Self::SCHEMA.to_owned(),
            simulated: false,
            run,
            counts: counts.into(),
            losses: losses.into(),
            conserved: true,
            conservation_problems: Vec::new(),
            not_seen_to_end: Vec::new(),
            decision_digest: String::new(),
            dead_time: DeadTime {
                refused_fraction: (counts.offered > 0).then_some(refused),
                busy_fraction: None,
            },
            latency,
            throughput_bytes_per_s: 0.0,
            copies_per_byte: None,
            files: Vec::new(),
            rates: None,
            workers: Vec::new(),
            machine: None,
            command: Vec::new(),
            notes: Vec::new(),
            roles: BTreeMap::new(),
            filter_failures: Vec::new(),
            histograms_not_summed: Vec::new(),
            packets_uncounted: None,
            builder_transport: None,
            filter_menu: None,
            two_step: None,
            writers: Vec::new(),
        };
        let problems = summary.conservation_problems();
        summary.conserved = problems.is_empty();
        summary.conservation_problems = problems.iter().map(ToString::to_string).collect();
        summary
    }

    /// Sets the digest of all decisions.
    #[must_use]
    pub fn with_digest(mut self, digest: DecisionDigest) -> Self {
        self.decision_digest = digest.to_string();
        self
    }

    /// Every equation between the counters and losses of this document that does not hold, with
    /// both sides; the field `conserved` is what the writer of the document found.
    pub fn conservation_problems(&self) -> Vec<ConservationProblem> {
        // The equations use the sums of areas only, so that causes of other versions count too.
        let mut sums = LossCounts::new();
        for area in LossArea::ALL {
            let any_cause = LossCause::ALL.iter().find(|cause| cause.area() == area);
            if let Some(cause) = any_cause {
                sums.add(*cause, self.losses.in_area(area).min(COUNT_MAX));
            }
        }
        let counts = &self.counts;
        let counts = same_fields!(counts => ChainCounts, |count: u64| count.min(COUNT_MAX));
        counts.problems(&sums)
    }
}

/// A text that is empty where nobody knows it.
mod unknown_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        (!text.is_empty()).then_some(text).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<String, D::Error> {
        Option::deserialize(deserializer).map(Option::unwrap_or_default)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn balanced() -> RunSummary {
        let mut losses = LossCounts::new();
        losses.add(LossCause::StoreWriteFailed, 6);
        let counts = ChainCounts {
            offered: 130,
            refused: 30,
            triggers: 100,
            l2_accepted: 40,
            l2_rejected: 60,
            fragments_sent: 800,
            fragments_received: 800,
            fragments_dropped_by_decision: 480,
            fragments_in_built: 300,
            fragments_in_incomplete: 20,
            events_built: 37,
            events_incomplete: 3,
            filter_accepted: 20,
            filter_rejected: 20,
            events_stored: 14,
        };
        let run = RunIdentification {
            number: 42,
            seed: u64::MAX,
            config_hash: "00ff".to_owned(),
            version: "0.1.0".to_owned(),
            duration_s: 20.0,
            condition: Condition::GOOD,
        };
        let over = OverBound {
            bound_ns: 20_000,
            ppm: 7.0,
        };
        let decision = LatencySummary::from_percentiles(100, 11_000.5, over, |percent| {
            (percent * 100.0) as u64
        });
        let latency = Latencies {
            decision,
            build: LatencySummary::empty(1_000_000),
        };
        RunSummary::new(run, &counts, &losses, latency).with_digest(DecisionDigest::default())
    }

    #[test]
    fn document_has_the_agreed_keys_and_reads_back() {
        let summary = balanced();
        assert!(summary.conserved);
        let json = serde_json::to_value(&summary).unwrap();
        let keys: Vec<&str> = json
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        for key in [
            "schema",
            "run",
            "counts",
            "losses",
            "conserved",
            "decision_digest",
            "dead_time",
            "latency",
            "throughput_bytes_per_s",
            "copies_per_byte",
            "files",
        ] {
            assert!(keys.contains(&key), "{key} in {keys:?}");
        }
        let text = serde_json::to_string(&summary).unwrap();
        assert!(text.starts_with(r#"{"schema":"livetime.run/1""#), "{text}");
        assert_eq!(json["run"]["seed"], "18446744073709551615");
        assert_eq!(json["losses"]["store"]["write_failed"], 6);
        assert_eq!(json["losses"]["link"]["link_down"], 0);
        assert_eq!(json["dead_time"]["refused_fraction"], 30.0 / 130.0);
        assert_eq!(json["latency"]["decision"]["p99_99"], 9999);
        assert_eq!(json["latency"]["decision"]["over"]["ppm"], 7.0);
        assert_eq!(json["dead_time"]["busy_fraction"], Value::Null);
        assert_eq!(json["copies_per_byte"], Value::Null);
        assert_eq!(serde_json::from_str::<RunSummary>(&text).unwrap(), summary);
        let names: Vec<&str> = ChainCounts::default()
            .entries()
            .map(|(name, _)| name)
            .to_vec();
        assert_eq!(json["counts"].as_object().unwrap().len(), names.len());
        assert!(names.iter().all(|name| json["counts"][name].is_u64()));
    }

    #[test]
    fn what_went_with_roles_that_nobody_saw_end_is_said_in_the_document() {
        let mut summary = balanced();
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["decision_digest"], "0000000000000000");
        assert!(json.get("not_seen_to_end").is_none(), "{json}");
        summary.decision_digest = String::new();
        summary.not_seen_to_end = vec!["src0".to_owned(), "wr0".to_owned()];
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["decision_digest"], Value::Null);
        assert_eq!(json["not_seen_to_end"], json!(["src0", "wr0"]));
        assert_eq!(serde_json::from_value::<RunSummary>(json).unwrap(), summary);
    }

    #[test]
    fn a_distribution_without_entries_has_no_figures() {
        let empty = LatencySummary::empty(1_000_000);
        let json = serde_json::to_value(empty).unwrap();
        let known: Vec<&str> = (json.as_object().unwrap().iter())
            .filter_map(|(key, value)| (!value.is_null()).then_some(key.as_str()))
            .collect();
        assert_eq!(known, ["count", "over"], "{json}");
        assert_eq!(json["count"], 0);
        assert_eq!(json["over"], json!({ "bound_ns": 1_000_000, "ppm": null }));
        assert_eq!(
            serde_json::from_value::<LatencySummary>(json).unwrap(),
            empty
        );
    }

    #[test]
    fn summaries_of_former_versions_with_zeros_in_place_of_nothing_are_read() {
        let mut json = serde_json::to_value(balanced()).unwrap();
        json["dead_time"]["busy_fraction"] = json!(0.0);
        json["copies_per_byte"] = json!(0.0);
        for figure in ["min", "mean", "p50", "p90", "p99", "p99_9", "p99_99", "max"] {
            json["latency"]["build"][figure] = json!(0);
        }
        json["latency"]["build"]["over"]["ppm"] = json!(0.0);
        let read: RunSummary = serde_json::from_value(json).unwrap();
        assert_eq!(read.latency, balanced().latency);
        assert_eq!(read.copies_per_byte, Some(0.0));
    }

    #[test]
    fn conservation_each_equation_broken_once_is_reported_with_both_sides() {
        type Break = fn(&mut RunSummary);
        let breaks: [(&str, Break); 7] = [
            ("offered =", |s| s.counts.offered += 1),
            ("triggers =", |s| s.counts.l2_rejected -= 1),
            ("fragments_sent =", |s| add_loss(s, "link", "link_down")),
            ("fragments_received =", |s| {
                s.counts.fragments_in_incomplete += 1
            }),
            ("l2_accepted =", |s| {
                add_loss(s, "builder", "cause_of_a_later_version")
            }),
            ("events_built +", |s| s.counts.filter_rejected += 2),
            ("filter_accepted =", |s| s.counts.events_stored -= 1),
        ];
        for (start, broken) in breaks {
            let mut summary = balanced();
            broken(&mut summary);
            let text = serde_json::to_string(&summary).unwrap();
            let read: RunSummary = serde_json::from_str(&text).unwrap();
            let problems = read.conservation_problems();
            assert_eq!(problems.len(), 1, "{start}: {problems:?}");
            assert!(
                problems[0].equation.starts_with(start),
                "{start}: {problems:?}"
            );
            assert_ne!(problems[0].left, problems[0].right);
        }
    }

    #[test]
    fn absurd_counts_are_reported_and_do_not_overflow() {
        let mut summary = balanced();
        summary.counts.refused = u64::MAX;
        summary.counts.triggers = u64::MAX;
        summary
            .losses
            .0
            .get_mut("link")
            .unwrap()
            .insert("link_down".to_owned(), u64::MAX);
        summary
            .losses
            .0
            .get_mut("link")
            .unwrap()
            .insert("other".to_owned(), u64::MAX);
        assert_eq!(summary.losses.total(), u64::MAX);
        assert_eq!(summary.conservation_problems().len(), 3);
    }

    fn add_loss(summary: &mut RunSummary, area: &str, cause: &str) {
        let causes = summary.losses.0.get_mut(area).unwrap();
        *causes.entry(cause.to_owned()).or_default() += 1;
    }

    #[test]
    fn a_file_is_of_the_run_by_number_seed_and_configuration() {
        let summary = balanced();
        let text = serde_json::to_vec(&summary).unwrap();
        let told = ToldFiles::read(&text).unwrap();
        let mut begin = RunBegin::new(RunNumber(42));
        assert!(told.is_of(RunNumber(42), None));
        assert!(!told.is_of(RunNumber(2), None));
        assert!(told.is_of(RunNumber(42), Some(&begin)), "it was lost");
        begin.config_hash.clone_from(&summary.run.config_hash);
        assert!(!told.is_of(RunNumber(42), Some(&begin)), "another seed");
        begin.seed = summary.run.seed;
        assert!(told.is_of(RunNumber(42), Some(&begin)));
        begin.config_hash.push('0');
        assert!(!told.is_of(RunNumber(42), Some(&begin)));
    }

    #[test]
    fn losses_are_found_by_cause_and_area() {
        let summary = balanced();
        assert_eq!(summary.losses.of(LossCause::StoreWriteFailed), 6);
        assert_eq!(summary.losses.in_area(LossArea::Store), 6);
        assert_eq!(
            summary.losses.iter().collect::<Vec<_>>(),
            [("store", "write_failed", 6)]
        );
        assert_eq!(summary.losses.total(), 6);
    }
}
