//! `livetime sim gates`: what the simulator must reproduce, as a table of passes and failures.
//!
//! The rows are made by `livetime_fabric::gate`; here they are run side by side and printed.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use livetime_fabric::gate::{Extent, GateRow, Rule, jobs};
use livetime_fabric::replica::run_all;
use serde_json::{Value, json};

use super::parse_threads;
use crate::console::{print, print_line, say};
use crate::exit;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Gates to run, such as V1 V6; all of them without any
    gates: Vec<String>,
    /// Few cases of each gate: half a minute instead of minutes
    #[arg(long)]
    quick: bool,
    /// Threads that run checks side by side; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    /// Print one JSON document (livetime.gates/1) on standard output
    #[arg(long)]
    json: bool,
}

/// Runs the gates.
pub(crate) fn run(options: &Options) -> ExitCode {
    let extent = if options.quick {
        Extent::Quick
    } else {
        Extent::Full
    };
    let mut jobs = jobs(extent);
    if let Some(unknown) = options
        .gates
        .iter()
        .find(|gate| !jobs.iter().any(|job| job.gate.eq_ignore_ascii_case(gate)))
    {
        let mut names: Vec<&str> = jobs.iter().map(|job| job.gate).collect();
        names.dedup();
        let part = if options.quick { " with --quick" } else { "" };
        say(format_args!(
            "error: there is no gate `{unknown}`{part}; allowed are {}",
            names.join(", ")
        ));
        return ExitCode::from(2);
    }
    if !options.gates.is_empty() {
        let asked = |gate: &str| {
            let mut asked = options.gates.iter();
            asked.any(|name| name.eq_ignore_ascii_case(gate))
        };
        jobs.retain(|job| asked(job.gate));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores).min(jobs.len().max(1));
    let start = Instant::now();
    let (count, finished) = (jobs.len(), AtomicUsize::new(0));
    let step = count.div_ceil(10).max(1);
    say(format_args!(
        "{count} checks on {threads} threads · livetime {}",
        env!("CARGO_PKG_VERSION")
    ));
    let work: Vec<_> = jobs.into_iter().map(|job| move || job.run()).collect();
    let rows: Vec<GateRow> = run_all(work, threads, |_| {
        // Relaxed: the number is for the reader alone.
        let done = finished.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(step) {
            say(format_args!("{done} of {count} checks done"));
        }
    })
    .into_iter()
    .flatten()
    .collect();
    let passed = rows.iter().all(GateRow::passes);
    let printed = if options.json {
        print_line(to_json(&rows, options.quick, passed))
    } else {
        print(to_text(&rows, start.elapsed().as_secs_f64()))
    };
    match exit::after_printing(printed) {
        ExitCode::SUCCESS if !passed => exit::PROBLEM,
        code => code,
    }
}

fn to_json(rows: &[GateRow], quick: bool, passed: bool) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "gate": row.gate,
                "check": row.check,
                "value": row.value,
                "reference": row.reference,
                "tolerance": row.tolerance,
                "rule": row.rule.key(),
                "band": row.band.map(|(low, high)| [low, high]),
                "verdict": row.verdict(),
            })
        })
        .collect();
    json!({
        "schema": "livetime.gates/1",
        "simulated": true,
        "quick": quick,
        "passed": passed,
        "rows": rows,
    })
}

fn to_text(rows: &[GateRow], seconds: f64) -> String {
    let width = rows.iter().map(|row| row.check.chars().count()).max();
    let width = width.unwrap_or(0);
    let mut text = format!(
        "{:<5} {:<width$} {:>13} {:>13} {:>10}  verdict\n",
        "gate", "check (simulated)", "value", "reference", "tolerance"
    );
    for row in rows {
        let tolerance = match (row.rule, row.band) {
            (_, Some((low, high))) => format!("{}-{}", number(low), number(high)),
            (Rule::Equal, _) => "exact".to_owned(),
            (Rule::AtLeast, _) => "at least".to_owned(),
            (Rule::Near | Rule::Reported, _) => number(row.tolerance),
        };
        text += &format!(
            "{:<5} {:<width$} {:>13} {:>13} {:>10}  {}\n",
            row.gate,
            row.check,
            number(row.value),
            number(row.reference),
            tolerance,
            row.verdict()
        );
    }
    let judged = rows.iter().filter(|row| row.rule != Rule::Reported).count();
    let failed = rows.iter().filter(|row| !row.passes()).count();
    text += &format!(
        "{judged} rows judged, {failed} failed, {} reported only, {seconds:.1} s\n",
        rows.len() - judged
    );
    text
}

/// A number with digits enough to be judged by.
fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-4 {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.5}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "" | "-0" => "0".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}
