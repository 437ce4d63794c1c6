//! What a finished chain leaves: counters, losses, latencies, and the run file still open.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use livetime_shm::WaitCounts;
use livetime_store::summary::OverBound;
use livetime_store::{Axis, Histogram as StoredHistogram, LatencySummary};
use livetime_wire::{
    ChainCounts, ConservationProblem, DecisionDigest, LossCause, LossCounts, RunNs, RunNumber,
    UnitKind,
};

use crate::counter_block::RoleCounts;
use crate::process::{FilterFailure, LostGroupLeft, ProcessFault};
use crate::python_filter::FilterHistograms;
use crate::role::flagged_fragments::FlaggedFragments;
use crate::role::{RoleResult, latency_histogram};
use crate::run_file::ClosingFile;
use crate::unclaimed::settle_unanswered;
use crate::worker::WorkerResult;

/// How one worker spent its time.
#[derive(Debug, Clone)]
pub struct WorkerOutcome {
    /// Name of its thread.
    pub name: String,
    /// Duty cycles by what followed them.
    pub waits: WaitCounts,
    /// Why it could not be pinned, if it was to be.
    pub pin_error: Option<String>,
}

/// The result of a run, but for the closing of its file.
pub struct ChainOutcome {
    /// The run's number.
    pub run: RunNumber,
    /// The chain's counters.
    pub counts: ChainCounts,
    /// The losses by cause.
    pub losses: LossCounts,
    /// Digest of all decisions.
    pub digest: DecisionDigest,
    /// Fraction of the offers refused, and of the time busy.
    pub dead_time: (f64, f64),
    /// Decision latency \[ns\].
    pub decision_latency: Histogram<u64>,
    /// Build latency \[ns\].
    pub build_latency: Histogram<u64>,
    /// Time from handing an event over to the first look of its filter unit \[ns\].
    pub hand_over_latency: Histogram<u64>,
    /// Each role's counters.
    pub roles: Vec<(String, RoleCounts)>,
    /// Further counters by role and name.
    pub details: BTreeMap<String, BTreeMap<String, u64>>,
    /// The workers.
    pub workers: Vec<WorkerOutcome>,
    /// When the run ended.
    pub ended_at: RunNs,
    /// Whether everything had passed before the end.
    pub drained: bool,
    /// Payload bytes of the events that the writers were given; without those of a writer that died, whose
    /// copies nobody knows.
    pub bytes_stored: u64,
    /// Bytes that our code wrote after the link page for them: chunk data, headers included.
    pub bytes_copied: u64,
    /// Failures of roles, such as a full disk.
    pub failures: Vec<String>,
    /// The run files, by their writers, to be closed with the end-of-run record.
    pub run_files: BTreeMap<String, ClosingFile>,
    /// Events that filter units crashed or hung on; they are in the error stream.
    pub filter_failures: Vec<FilterFailure>,
    /// Faults of processes whose role was not there when they were due.
    pub faults_missed: Vec<ProcessFault>,
    /// Deaths of processes at the end of the run that are no failures of it.
    pub deaths_at_end: Vec<String>,
    /// Roles whose counters are those that were heard last of their hosts, and that may live.
    pub last_heard: Vec<String>,
    /// Histograms that filters have filled, those of all units in one.
    pub filter_histograms: FilterHistograms,
    /// The congestion control of the streams between the roles, where there were streams.
    pub congestion: Option<String>,
    /// Building groups that the run went on without.
    pub lost_groups: Vec<LostGroupLeft>,
}

impl ChainOutcome {
    /// Counts the fragments that nobody has answered for and nobody has.
    pub(crate) fn settle_unanswered(&mut self) {
        let cause = match self.drained {
            true => LossCause::DatagramLost,
            false => LossCause::LinkAborted,
        };
        settle_unanswered(&self.counts, &mut self.losses, &self.roles, cause);
    }

    pub(crate) fn collect(
        run: RunNumber,
        results: Vec<RoleResult>,
        workers: Vec<WorkerResult>,
        ended_at: RunNs,
        drained: bool,
    ) -> Self {
        let mut outcome = Self {
            run,
            counts: ChainCounts::default(),
            losses: LossCounts::new(),
            digest: DecisionDigest::default(),
            dead_time: (0.0, 0.0),
            decision_latency: latency_histogram(),
            build_latency: latency_histogram(),
            hand_over_latency: latency_histogram(),
            roles: Vec::new(),
            details: BTreeMap::new(),
            workers: Vec::new(),
            ended_at,
            drained,
            bytes_stored: 0,
            bytes_copied: 0,
            failures: Vec::new(),
            run_files: BTreeMap::new(),
            filter_failures: Vec::new(),
            faults_missed: Vec::new(),
            deaths_at_end: Vec::new(),
            last_heard: Vec::new(),
            filter_histograms: FilterHistograms::default(),
            congestion: None,
            lost_groups: Vec::new(),
        };
        for result in results {
            outcome.add(result);
        }
        outcome.workers = workers
            .into_iter()
            .map(
                |WorkerResult {
                     name,
                     waits,
                     pin_error,
                     ..
                 }| WorkerOutcome {
                    name,
                    waits,
                    pin_error,
                },
            )
            .collect();
        outcome
    }

    fn add(&mut self, result: RoleResult) {
        self.counts.merge(&result.counts.chain);
        self.losses.merge(&result.counts.losses);
        if let Some(latency) = result.decision_latency {
            // All of these histograms have the same bounds.
            let added = self.decision_latency.add(latency);
            debug_assert!(added.is_ok());
        }
        if let Some(latency) = result.build_latency {
            let added = self.build_latency.add(latency);
            debug_assert!(added.is_ok());
        }
        if let Some(latency) = result.hand_over_latency {
            let added = self.hand_over_latency.add(latency);
            debug_assert!(added.is_ok());
        }
        if let Some(digest) = result.digest {
            self.digest.merge(digest);
        }
        if let Some(dead_time) = result.dead_time {
            self.dead_time = dead_time;
        }
        // Nothing is stored without a copy into the chunk: none is known of a writer that died.
        if result.id.starts_with(UnitKind::Writer.prefix()) && result.bytes_copied > 0 {
            self.bytes_stored += result.counts.gauges.bytes;
            self.bytes_copied += result.bytes_copied;
        }
        if let Some(file) = result.run_file {
            self.run_files.insert(result.id.clone(), file);
        }
        self.filter_failures.extend(result.filter_failures);
        self.filter_histograms.merge(&result.histograms);
        self.failures.extend(result.failure);
        self.details.insert(result.id.clone(), result.details);
        self.roles.push((result.id, result.counts));
    }

    /// Lost building groups whose run file stays where its writer was, as that left it.
    pub fn files_left_open(&self) -> usize {
        // A file that is closed here may be that of an earlier life of its writer.
        let is_closed = |writer: u16| {
            let role = format!("{}{writer}", UnitKind::Writer.prefix());
            let mut closed = self.run_files.keys();
            closed.any(|id| id.split('~').next() == Some(&role))
        };
        let lost = self.lost_groups.iter();
        lost.filter(|group| !is_closed(group.writer)).count()
    }

    /// Fragments that came with faults.
    pub fn flagged_fragments(&self) -> FlaggedFragments {
        let mut sum = FlaggedFragments::default();
        for details in self.details.values() {
            sum.add(details);
        }
        sum
    }

    /// What the Level-3 menu counted, summed over all filter units: paths, streams, stages.
    pub fn menu_counts(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::<String, u64>::new();
        for (name, count) in self.filter_units().flat_map(|(_, details)| details) {
            let is_menu = ["menu.", "path.", "stream.", "stage."];
            if !is_menu.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let sum = sums.entry(name.clone()).or_default();
            match name.ends_with("_max") {
                true => *sum = (*sum).max(*count),
                false => *sum += count,
            }
        }
        sums
    }

    /// Filter units that have left no counters, so that those of the Level-3 menu lack their share;
    /// none where there is no menu.
    pub fn menu_lacking(&self) -> Vec<String> {
        let is_menu = |details: &BTreeMap<String, u64>| details.contains_key("menu.events");
        if !self.filter_units().any(|(_, details)| is_menu(details)) {
            return Vec::new();
        }
        let silent = self.filter_units().filter(|(_, details)| !is_menu(details));
        silent.map(|(id, _)| id.clone()).collect()
    }

    /// Whether a filter has failed on events, which are in the error stream, or somebody who filters
    /// has died: a filter unit, or the interpreter of one, even if others have filtered its events.
    pub fn has_failed_filters(&self) -> bool {
        let has_failed = |details: &BTreeMap<String, u64>| {
            let failures = ["events_to_error_stream", "filter.deaths"];
            details.is_empty() || (failures.iter()).any(|name| details.get(*name) > Some(&0))
        };
        !self.filter_failures.is_empty()
            || self.filter_units().any(|(_, details)| has_failed(details))
    }

    /// The further counters of each life of each filter unit; none of a life that ended by death.
    fn filter_units(&self) -> impl Iterator<Item = (&String, &BTreeMap<String, u64>)> {
        let filter = UnitKind::Filter.prefix();
        (self.details.iter()).filter(move |(id, _)| id.starts_with(filter))
    }

    /// The equations that do not hold; empty when everything is accounted for.
    pub fn conservation_problems(&self) -> Vec<ConservationProblem> {
        self.counts.problems(&self.losses)
    }

    /// Copies of a stored payload byte by our code after its link page; bytes of events that are
    /// not stored are copied by nobody. 0 without any.
    pub fn copies_per_byte(&self) -> f64 {
        self.bytes_copied as f64 / self.bytes_stored.max(1) as f64
    }
}

/// The summary of a latency histogram; `bound_ns` is the bound whose excess is given in ppm.
pub fn latency_summary(histogram: &Histogram<u64>, bound_ns: u64) -> LatencySummary {
    let count = histogram.len();
    if count == 0 {
        return LatencySummary::empty(bound_ns);
    }
    let above = count - histogram.count_between(0, bound_ns);
    let over = OverBound {
        bound_ns,
        ppm: above as f64 * 1e6 / count as f64,
    };
    LatencySummary::from_percentiles(count, histogram.mean(), over, |percent| match percent {
        0.0 => histogram.min(),
        _ => histogram.value_at_quantile(percent / 100.0),
    })
}

/// A latency histogram in the form that run files keep: 20 bins per decade from 100 ns to 10 s.
///
/// # Panics
/// Never: the axis is a constant one.
pub fn stored_latency(name: &str, title: &str, histogram: &Histogram<u64>) -> StoredHistogram {
    let axis = Axis::log(title, "ns", 160, 1e2, 1e10).expect("the edges rise");
    let mut stored = StoredHistogram::counting(name, vec![axis]).expect("160 bins are allowed");
    for value in histogram.iter_recorded() {
        stored.fill_many(&[value.value_iterated_to() as f64], value.count_at_value());
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run whose filter units have left these counters.
    fn outcome(units: &[(&str, &[(&str, u64)])]) -> ChainOutcome {
        let results = units.iter().map(|(id, details)| {
            let details = details.iter();
            RoleResult {
                id: (*id).to_owned(),
                details: details
                    .map(|(name, count)| ((*name).to_owned(), *count))
                    .collect(),
                ..RoleResult::default()
            }
        });
        ChainOutcome::collect(RunNumber(1), results.collect(), Vec::new(), RunNs(1), true)
    }

    #[test]
    fn copies_are_of_the_writers_that_have_counted_them() {
        let writer = |id: &str, bytes: u64, bytes_copied: u64| {
            let mut result = RoleResult {
                id: id.to_owned(),
                bytes_copied,
                ..RoleResult::default()
            };
            result.counts.gauges.bytes = bytes;
            result
        };
        let copies = |results: Vec<RoleResult>| {
            let run = ChainOutcome::collect(RunNumber(1), results, Vec::new(), RunNs(1), true);
            (run.bytes_stored, run.copies_per_byte())
        };
        let (dead, whole) = (writer("wr0~1", 150, 0), writer("wr0", 50, 51));
        assert_eq!(copies(vec![dead, whole]), (50, 1.02));
        assert_eq!(copies(vec![writer("wr0~1", 150, 0)]), (0, 0.0));
    }

    const COUNTED: (&str, u64) = ("menu.events", 7);

    #[test]
    fn a_menu_names_the_units_whose_share_it_lacks() {
        let whole = outcome(&[("bu0", &[]), ("fu0", &[COUNTED]), ("fu1~1", &[COUNTED])]);
        assert_eq!(whole.menu_lacking(), Vec::<String>::new());
        assert!(!whole.has_failed_filters(), "fu1 has left");
        let lacking = outcome(&[("fu0~1", &[]), ("fu0", &[COUNTED]), ("fu1", &[COUNTED])]);
        assert_eq!(lacking.menu_lacking(), ["fu0~1"]);
        assert_eq!(lacking.menu_counts()["menu.events"], 14);
        assert!(lacking.has_failed_filters());
        let other = outcome(&[("fu0~1", &[]), ("fu0", &[("events_withdrawn", 0)])]);
        assert_eq!(other.menu_lacking(), Vec::<String>::new(), "of no menu");
    }

    #[test]
    fn filters_have_failed_that_passed_events_on_or_lost_an_interpreter() {
        let of = |name| outcome(&[("bu0", &[]), ("fu0", &[COUNTED, (name, 1)])]);
        assert!(!of("filter.exceptions").has_failed_filters());
        assert!(of("events_to_error_stream").has_failed_filters());
        assert!(of("filter.deaths").has_failed_filters());
        let died_at_work = FilterFailure {
            trigger: livetime_wire::TriggerNumber(1),
            deaths: Vec::new(),
            traceback: String::new(),
        };
        let mut failed = outcome(&[("fu0", &[COUNTED])]);
        assert!(!failed.has_failed_filters());
        failed.filter_failures.push(died_at_work);
        assert!(failed.has_failed_filters());
    }
}
