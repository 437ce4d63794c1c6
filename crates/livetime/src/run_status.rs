//! What a run that goes on says about itself: `livetime.status/1`.
//!
//! The run makes the document of a snapshot, `livetime steer DIR status` prints it, says it in words or
//! as metrics, and other programs read it from the socket of the run.

use livetime_node::counter_block::Gauges;
use livetime_node::{RateSample, Snapshot};
use livetime_store::{Counts, Losses, RunNote};
use livetime_wire::{DurationNs, RateHz, RunNumber, SourceId};
use serde::{Deserialize, Serialize};

use crate::run_summary::percent;

mod metrics;

/// A run at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunStatus {
    /// `livetime.status/1`.
    schema: String,
    run: u32,
    state: RunState,
    /// Time since the start of the run.
    seconds: f64,
    counts: Counts,
    losses: Losses,
    rates: RatesNow,
    /// Fragments that the readout units hold, of all pages that there are.
    fragments_buffered: u64,
    pages: u64,
    /// Events that the builder units have begun and not closed.
    events_in_building: u64,
    /// A writer waits for room on its disk.
    disk_full: bool,
    /// Those that do, of so many that are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    full_writers: Vec<String>,
    #[serde(default)]
    writers: usize,
    /// Roles whose processes have died so far: what was lost with them is settled when the run ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    died: Vec<String>,
    /// Trigger packets are not recorded now: their disk has no room, or a write failed.
    #[serde(default)]
    packets_unrecorded: bool,
    #[serde(default)]
    front_ends: FrontEndsNow,
    /// Events that filters failed on so far: they are in the error stream.
    #[serde(default)]
    filter_failures: u64,
    /// What was noted of the run so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<RunNote>,
}

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunState {
    /// Triggers are taken.
    Running,
    /// An operator holds them back.
    Paused,
    /// No more are taken; what is on its way passes.
    Stopping,
}

/// The rates over the last interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct RatesNow {
    interval_s: f64,
    trigger_hz: f64,
    l2_accept_hz: f64,
    filter_accept_hz: f64,
    built_bytes_per_s: f64,
    /// Null where no offer came that counts, as in a pause.
    refused_fraction: Option<f64>,
}

/// Sources of front-ends of users of which something is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct FrontEndsNow {
    /// Those that hold up the run: nothing has come of them so far, or nothing for the trigger in
    /// front for more than 100 ms.
    awaited: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_awaited: Option<String>,
    /// Those that were waited for in vain and have sent nothing since.
    silent: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_silent: Option<String>,
}

impl FrontEndsNow {
    pub(crate) fn new(now: &Snapshot) -> Self {
        // There is one such role.
        let gauges = now.kind("src").map(|role| role.gauges).next();
        let gauges = gauges.unwrap_or_default();
        let named =
            |count: u64, first: u64| (count > 0).then(|| SourceId(first as u32).to_string());
        Self {
            awaited: gauges.awaited,
            first_awaited: named(gauges.awaited, gauges.first_awaited),
            silent: gauges.silent,
            first_silent: named(gauges.silent, gauges.first_silent),
        }
    }

    /// In words; `None` where nothing is missing.
    pub(crate) fn in_words(&self) -> Option<String> {
        let Self {
            awaited, silent, ..
        } = self;
        let awaited = self.first_awaited.as_ref().map(|first| match awaited {
            1 => format!("the run waits for source {first}"),
            _ => format!("the run waits for {awaited} sources, {first} the first of them"),
        });
        let silent = self.first_silent.as_ref().map(|first| match silent {
            1 => format!("source {first} is silent: its fragments are empty"),
            _ => format!(
                "{silent} sources are silent, {first} the first of them: their fragments are empty"
            ),
        });
        let said: Vec<String> = awaited.into_iter().chain(silent).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

impl RunStatus {
    /// What a run is doing that an operator may have paused.
    pub(crate) fn state_of(is_ending: bool, is_paused: bool) -> RunState {
        match (is_ending, is_paused) {
            (true, _) => RunState::Stopping,
            (false, true) => RunState::Paused,
            (false, false) => RunState::Running,
        }
    }

    /// The status of a run whose counters are those of `now`; `rates` are those of `interval_s` seconds.
    pub(crate) fn new(
        run: RunNumber,
        state: RunState,
        now: &Snapshot,
        rates: Option<RateSample>,
        interval_s: f64,
    ) -> Self {
        let rate = |of: fn(&RateSample) -> f64| rates.as_ref().map_or(0.0, of);
        let sum =
            |kind: &str, of: fn(&Gauges) -> u64| now.kind(kind).map(|role| of(&role.gauges)).sum();
        Self {
            schema: "livetime.status/1".to_owned(),
            run: run.0,
            state,
            seconds: now.at.0 as f64 * 1e-9,
            counts: (&now.counts()).into(),
            losses: (&now.losses()).into(),
            rates: RatesNow {
                interval_s,
                trigger_hz: rate(|rates| rates.trigger_hz),
                l2_accept_hz: rate(|rates| rates.l2_accept_hz),
                filter_accept_hz: rate(|rates| rates.filter_accept_hz),
                built_bytes_per_s: rate(|rates| rates.built_bytes_per_s),
                refused_fraction: rates.as_ref().and_then(|rates| rates.refused_fraction),
            },
            fragments_buffered: sum("ru", |gauges| gauges.held),
            pages: sum("ru", |gauges| gauges.held_max),
            events_in_building: sum("bu", |gauges| gauges.held),
            disk_full: now.full_writers().next().is_some(),
            full_writers: now.full_writers().map(str::to_owned).collect(),
            writers: now.kind("wr").count(),
            died: now.died.clone(),
            packets_unrecorded: (now.kind("trg"))
                .any(|role| role.gauges.disk_full == 1 || role.gauges.failed == 1),
            front_ends: FrontEndsNow::new(now),
            filter_failures: sum("fu", |gauges| gauges.filter_failures),
            notes: Vec::new(),
        }
    }

    /// The same with what was noted of the run.
    #[must_use]
    pub(crate) fn with_notes(mut self, notes: &[RunNote]) -> Self {
        self.notes = notes.to_vec();
        self
    }

    /// In words, for people.
    pub(crate) fn to_text(&self) -> String {
        let state = match self.state {
            RunState::Running => "takes data",
            RunState::Paused => "is paused",
            RunState::Stopping => "is ending",
        };
        let (counts, rates) = (&self.counts, &self.rates);
        let dead = format!("dead time {}", percent(rates.refused_fraction, 2));
        let closed = format!(
            "{} events closed, {} of them incomplete, {:.1} MB/s",
            counts.events_built + counts.events_incomplete,
            counts.events_incomplete,
            rates.built_bytes_per_s / 1e6
        );
        let stored = format!("{} stored in whole chunks", counts.events_stored);
        let full = match self.disk_full {
            true => format!("\n  {}", self.full_disk()),
            false => String::new(),
        };
        let unrecorded = match self.packets_unrecorded {
            true => {
                "\n  trigger packets are not recorded: their disk has no room, or a write failed"
            }
            false => "",
        };
        let failures = match self.filter_failures {
            0 => String::new(),
            count => format!("\n  error stream      {count} events that the filter failed on"),
        };
        let front_ends = self.front_ends.in_words();
        let front_ends = front_ends.map_or(String::new(), |said| {
            format!("\n  front-ends        {said}")
        });
        let notes = self.notes.iter();
        let notes =
            notes.map(|note| format!("\n  noted at {:>8} {}", DurationNs(note.time_ns), note.text));
        let notes: String = notes.collect();
        format!(
            "run {} {state}, {:.1} s after its start\n{}{}{}  buffered          {} fragments in {} pages, {} \
             events in building\n  losses            {}{full}{unrecorded}{failures}{front_ends}{notes}",
            self.run,
            self.seconds,
            row("triggers", counts.triggers, rates.trigger_hz, dead),
            row(
                "Level-2 accepts",
                counts.l2_accepted,
                rates.l2_accept_hz,
                closed
            ),
            row(
                "filter accepts",
                counts.filter_accepted,
                rates.filter_accept_hz,
                stored
            ),
            self.fragments_buffered,
            self.pages,
            self.events_in_building,
            losses_so_far(&self.losses, &self.died),
        )
    }

    fn full_disk(&self) -> String {
        let of = self.writers;
        let named = self.full_writers.iter();
        let named: Vec<String> = named.map(|id| writer_in_words(id, None, of)).collect();
        full_in_words(&named, of)
    }
}

/// A writer as its disk is spoken of: the only one there is has *the* run file.
pub(crate) fn writer_in_words(id: &str, host: Option<String>, writers: usize) -> String {
    match host {
        Some(host) => format!("{id} on host {host}"),
        None if writers <= 1 => "the run file".to_owned(),
        None => id.to_owned(),
    }
}

/// That the disks of these writers, of so many, have no room, and who waits.
pub(crate) fn full_in_words(full: &[String], writers: usize) -> String {
    let named = full.join(", ");
    let (disks, them) = match full.len() {
        0 | 1 => (format!("the disk of {named} has"), "it"),
        _ => (format!("the disks of {named} have"), "them"),
    };
    match full.len() < writers {
        true => format!(
            "{disks} no room; what builds for {them} waits until there is, and the others go on"
        ),
        false => format!("{disks} no room; triggers wait until there is"),
    }
}

/// Losses of a run that goes on. What dead roles had is counted when their accounts are settled.
pub(crate) fn losses_so_far(losses: &Losses, died: &[String]) -> String {
    let losses = losses_in_words(losses);
    match died {
        [] => losses,
        died => format!(
            "{losses} so far; what was lost with {} is counted when the run ends",
            died.join(", ")
        ),
    }
}

/// A line of counter, total, present rate and a note.
pub(crate) fn row(name: &str, total: u64, rate_hz: f64, note: String) -> String {
    let rate = RateHz(rate_hz).to_string();
    format!("  {name:<18}{total:>12}{rate:>14}   {note}\n")
}

/// Every loss that is not 0.
pub(crate) fn losses_in_words(losses: &Losses) -> String {
    let losses: Vec<String> = (losses.iter())
        .map(|(area, cause, count)| format!("{area}.{cause} {count}"))
        .collect();
    match losses.is_empty() {
        true => "none".to_owned(),
        false => losses.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use livetime_node::counter_block::RoleCounts;
    use livetime_wire::RunNs;

    use super::*;

    /// The status of a run with so many writers, of which some have no room.
    fn status(writers: usize, full: &[usize], died: &[&str]) -> RunStatus {
        let role = |index: usize| {
            let mut counts = RoleCounts::default();
            counts.gauges.disk_full = full.contains(&index).into();
            (format!("wr{index}"), counts)
        };
        let snapshot = Snapshot {
            at: RunNs(0),
            roles: (0..writers).map(role).collect(),
            died: died.iter().map(|id| (*id).to_owned()).collect(),
        };
        let status = RunStatus::new(RunNumber(1), RunState::Running, &snapshot, None, 1.0);
        // As it comes to whoever asks for it.
        let document = serde_json::to_string(&status).expect("a document");
        serde_json::from_str(&document).expect("its own document")
    }

    #[test]
    fn a_full_disk_is_named_with_who_waits_for_it() {
        for (writers, full, said) in [
            (
                1,
                &[0][..],
                "the disk of the run file has no room; triggers wait until there is",
            ),
            (
                2,
                &[1],
                "the disk of wr1 has no room; what builds for it waits until there is, and the \
                 others go on",
            ),
            (
                3,
                &[0, 2],
                "the disks of wr0, wr2 have no room; what builds for them waits until there is, and \
                 the others go on",
            ),
            (
                2,
                &[0, 1],
                "the disks of wr0, wr1 have no room; triggers wait until there is",
            ),
        ] {
            let text = status(writers, full, &[]).to_text();
            assert!(text.contains(said), "{text}");
        }
        let whole = status(2, &[], &[]).to_text();
        assert!(!whole.contains("no room"), "{whole}");
    }

    /// Counters of a source that came so far, and of a builder unit.
    fn snapshot(at_ns: u64, [offered, paused, built, incomplete]: [u64; 4]) -> Snapshot {
        let (mut source, mut builder) = (RoleCounts::default(), RoleCounts::default());
        (source.chain.offered, source.chain.refused) = (offered, paused);
        source.gauges.refused_outside = paused;
        (builder.chain.events_built, builder.chain.events_incomplete) = (built, incomplete);
        Snapshot {
            at: RunNs(at_ns),
            roles: vec![("src0".to_owned(), source), ("bu0".to_owned(), builder)],
            died: Vec::new(),
        }
    }

    #[test]
    fn incomplete_events_are_closed_ones_too() {
        let now = snapshot(1, [0, 0, 34, 62]);
        let status = RunStatus::new(RunNumber(1), RunState::Running, &now, None, 1.0);
        let said = "96 events closed, 62 of them incomplete, 0.0 MB/s";
        assert!(status.to_text().contains(said), "{}", status.to_text());
        assert_eq!(status.counts.events_built, 34);
    }

    #[test]
    fn events_that_filters_failed_on_are_summed_over_units() {
        let of = |failures: [u64; 2]| {
            let unit = |failures| {
                let mut counts = RoleCounts::default();
                counts.gauges.filter_failures = failures;
                counts
            };
            let [first, second] = failures.map(unit);
            let now = Snapshot {
                at: RunNs(1),
                roles: vec![("fu0".to_owned(), first), ("fu1".to_owned(), second)],
                died: Vec::new(),
            };
            RunStatus::new(RunNumber(1), RunState::Running, &now, None, 1.0)
        };
        let said = of([3, 4]).to_text();
        assert!(
            said.contains("7 events that the filter failed on"),
            "{said}"
        );
        let said = of([0, 0]).to_text();
        assert!(!said.contains("failed on"), "{said}");
    }

    #[test]
    fn front_ends_of_which_something_is_missing_are_named() {
        for (awaited, silent, said) in [
            (0, 0, None),
            (1, 0, Some("the run waits for source 0x510000")),
            (
                2,
                1,
                Some(
                    "the run waits for 2 sources, 0x510000 the first of them; source 0x520000 is \
                     silent: its fragments are empty",
                ),
            ),
            (
                0,
                3,
                Some("3 sources are silent, 0x520000 the first of them: their fragments are empty"),
            ),
        ] {
            let mut source = RoleCounts::default();
            (source.gauges.awaited, source.gauges.first_awaited) = (awaited, 0x51_0000);
            (source.gauges.silent, source.gauges.first_silent) = (silent, 0x52_0000);
            let snapshot = Snapshot {
                at: RunNs(1),
                roles: vec![("src0".to_owned(), source)],
                died: Vec::new(),
            };
            let status = RunStatus::new(RunNumber(1), RunState::Running, &snapshot, None, 1.0);
            assert_eq!(status.front_ends.in_words().as_deref(), said);
            let line = said.map(|said| format!("\n  front-ends        {said}"));
            let text = status.to_text();
            assert_eq!(text.contains("front-ends"), line.is_some(), "{text}");
            assert!(line.is_none_or(|line| text.contains(&line)), "{text}");
            let metrics = status.to_metrics();
            let line = format!("livetime_front_end_sources_awaited {awaited}\n");
            assert!(metrics.contains(&line), "{metrics}");
            let document = serde_json::to_value(&status).expect("a document");
            let of_front_ends = &document["front_ends"];
            assert_eq!(of_front_ends["silent"], silent, "{document}");
            assert_eq!(of_front_ends["first_silent"].is_string(), silent > 0);
        }
    }

    #[test]
    fn a_pause_has_no_dead_time() {
        let [running, paused, later] = [
            snapshot(1_000, [100, 0, 0, 0]),
            snapshot(2_000, [160, 60, 0, 0]),
            snapshot(3_000, [170, 60, 0, 0]),
        ];
        for (before, now, said, is_known) in [
            (&running, &paused, "dead time -\n", false),
            (&paused, &later, "dead time 0.00 %\n", true),
        ] {
            let rates = RateSample::between(before, now);
            let status = RunStatus::new(RunNumber(1), RunState::Paused, now, rates, 1.0);
            assert!(status.to_text().contains(said), "{}", status.to_text());
            let document = serde_json::to_value(&status).expect("a document");
            let refused = &document["rates"]["refused_fraction"];
            assert_eq!(refused.is_number(), is_known, "{document}");
        }
    }

    #[test]
    fn nobody_is_told_that_nothing_was_lost_with_the_dead() {
        let (whole, hurt) = (status(1, &[], &[]), status(1, &[], &["wr1", "bu1"]));
        assert!(whole.to_text().ends_with("losses            none"));
        let said = "losses            none so far; what was lost with wr1, bu1 is counted when the run ends";
        assert!(hurt.to_text().ends_with(said), "{}", hurt.to_text());
        let metrics = hurt.to_metrics();
        assert!(metrics.contains("livetime_roles_died 2\n"), "{metrics}");
    }
}
