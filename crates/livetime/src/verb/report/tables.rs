//! The tables of a run's report.

use std::collections::BTreeMap;

use livetime_store::{FilterMenuSummary, LatencySummary, RunSummary, TwoStepSummary};
use livetime_study::report::Table;
use livetime_wire::{DurationNs, LossCause, RateHz};

use crate::run_remarks::remarks;
use crate::run_summary::latency_of;

/// Rows of counters named `GROUP.NAME.KIND` of all roles of one kind: a name and its two counts.
fn paired_rows(
    summary: &RunSummary,
    role: &str,
    group: &str,
    kinds: [&str; 2],
) -> Vec<Vec<String>> {
    let mut sums = BTreeMap::<String, [u64; 2]>::new();
    let of_roles = summary.roles.iter().filter(|(id, _)| id.starts_with(role));
    for (key, count) in of_roles.flat_map(|(_, counters)| counters) {
        let rest = key
            .strip_prefix(group)
            .and_then(|rest| rest.strip_prefix('.'));
        let Some((name, kind)) = rest.and_then(|rest| rest.rsplit_once('.')) else {
            continue;
        };
        if let Some(column) = kinds.iter().position(|known| *known == kind) {
            sums.entry(name.to_owned()).or_default()[column] += count;
        }
    }
    let row = |(name, [a, b]): (String, [u64; 2])| vec![name, a.to_string(), b.to_string()];
    sums.into_iter().map(row).collect()
}

fn table(caption: &str, headings: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        caption: caption.to_owned(),
        headings: headings
            .iter()
            .map(|heading| (*heading).to_owned())
            .collect(),
        rows,
        ..Table::default()
    }
}

/// What was lost, why, and what that means.
fn loss_rows(summary: &RunSummary) -> Vec<Vec<String>> {
    let help = |cause: &str| {
        let found = LossCause::ALL.iter().find(|known| known.key() == cause);
        found.map_or("", |cause| cause.help()).to_owned()
    };
    let mut losses: Vec<Vec<String>> = (summary.losses.iter())
        .map(|(area, cause, n)| vec![format!("{area}.{cause}"), n.to_string(), help(cause)])
        .collect();
    if losses.is_empty() {
        losses.push(vec!["none".to_owned(), "0".to_owned(), String::new()]);
    }
    losses
}

/// Events that a filter unit died of.
fn failure_rows(summary: &RunSummary) -> Vec<Vec<String>> {
    (summary.filter_failures.iter())
        .flat_map(|failure| {
            failure
                .deaths
                .iter()
                .map(move |death| (failure.trigger, death))
        })
        .map(|(event, death)| vec![event.to_string(), death.role.clone(), death.reason.clone()])
        .collect()
}

/// Events by step, and bytes by readout unit.
fn two_step_tables(two_step: &TwoStepSummary) -> [Table; 2] {
    let causes = two_step.causes.iter();
    let mut events: Vec<Vec<String>> = causes
        .map(|(cause, count)| vec![cause.replace('_', " "), count.to_string()])
        .collect();
    let unjudged = two_step.events_unjudged.to_string();
    events.push(vec!["fetched without a selection".to_owned(), unjudged]);
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let units = two_step.readout_units.iter();
    let units = units.map(|(name, unit)| {
        let step = if unit.first_step { "first" } else { "second" };
        let [sent, unasked] = [unit.bytes_sent, unit.bytes_unasked].map(mib);
        vec![name.clone(), step.to_owned(), sent, unasked]
    });
    let caption = format!(
        "Two-step building: {:.2} times less sent; the unit that sent most sent {:.2} times the mean",
        two_step.saving_factor, two_step.imbalance
    );
    [
        table("Events after their first step", &["", "events"], events),
        table(
            &caption,
            &["readout unit", "step", "sent", "never asked for"],
            units.collect(),
        ),
    ]
}

/// What the Level-3 menu did: its paths, and the streams that they lead to.
fn menu_tables(menu: &FilterMenuSummary) -> [Table; 2] {
    let hz = |hz| RateHz(hz).to_string();
    let paths = menu.paths.iter().map(|(name, path)| {
        let [passed, fired] = [path.passed, path.fired].map(|count| count.to_string());
        vec![name.clone(), passed, fired, hz(path.fired_hz)]
    });
    let streams = menu.streams.iter();
    let streams =
        streams.map(|(name, stream)| vec![name.clone(), stream.events.to_string(), hz(stream.hz)]);
    [
        table(
            "Level-3 menu",
            &["path", "passed", "fired after prescale", "rate"],
            paths.collect(),
        ),
        table("Streams", &["stream", "events", "rate"], streams.collect()),
    ]
}

/// What there is to remark.
fn remarks_table(summary: &RunSummary) -> Option<Table> {
    let remarks = remarks(summary).into_iter().map(|remark| vec![remark]);
    let remarks: Vec<Vec<String>> = remarks.collect();
    (!remarks.is_empty()).then(|| table("Remarks", &["to know of the events"], remarks))
}

/// What operators noted.
fn notes_table(summary: &RunSummary) -> Table {
    let notes = summary.notes.iter();
    let notes = notes.map(|note| vec![DurationNs(note.time_ns).to_string(), note.text.clone()]);
    table("Notes", &["after", "what"], notes.collect())
}

/// All tables of the page, those first that are read first.
pub(super) fn tables(summary: &RunSummary) -> Vec<Table> {
    let counts = livetime_wire::ChainCounts::from(&summary.counts).entries();
    let counts = counts
        .into_iter()
        .map(|(name, n)| vec![name.to_owned(), n.to_string()])
        .collect();
    let workers = (summary.workers.iter())
        .map(|worker| {
            vec![
                worker.name.clone(),
                worker.roles.join(" "),
                format!("{:.0} %", worker.busy_fraction * 100.0),
            ]
        })
        .collect();
    let latency = |name: &str, l: &LatencySummary| {
        let mut row = vec![name.to_owned(), l.count.to_string()];
        row.extend([l.min, l.p50, l.p99, l.p99_9, l.max].map(|ns| latency_of(l, ns)));
        row
    };
    let menu = paired_rows(summary, "trg", "path", ["passed", "fired"]);
    let filter = paired_rows(summary, "fu", "reason", ["accepted", "rejected"]);
    let latencies = vec![
        latency("decision", &summary.latency.decision),
        latency("build", &summary.latency.build),
    ];
    let mut tables = vec![
        table("Counts", &["counter", "count"], counts),
        table(
            "Losses",
            &["cause", "count", "what it means"],
            loss_rows(summary),
        ),
        table(
            "Level-2 menu",
            &["path", "passed", "fired after prescale"],
            menu,
        ),
        table("Filter", &["reason", "accepted", "rejected"], filter),
        table(
            "Latency",
            &["", "count", "min", "50 %", "99 %", "99.9 %", "max"],
            latencies,
        ),
        table(
            "Workers",
            &["worker", "roles", "duty cycles with work"],
            workers,
        ),
    ];
    if let Some(remarks) = remarks_table(summary) {
        tables.insert(2, remarks);
    }
    if !summary.notes.is_empty() {
        tables.insert(0, notes_table(summary));
    }
    tables.extend(summary.filter_menu.iter().flat_map(menu_tables));
    if let Some(two_step) = &summary.two_step {
        tables.extend(two_step_tables(two_step));
    }
    let failures = failure_rows(summary);
    if !failures.is_empty() {
        tables.push(table(
            "Events that filter units died of",
            &["event", "filter unit", "how"],
            failures,
        ));
    }
    tables
}
