//! Timing: the shared timing receiver, its delivery and its clients.
//!
//! As for [`super::first_light`], each function shows one line from outside.

use std::time::{Duration, Instant};

use super::evidence::named_tests;
use super::judged_command::targets_met;
use super::{Capability, Line, Shown, Stage};
use crate::Failure;
use crate::program::finish;

pub(super) const CAPABILITY: Capability = Capability {
    name: "timing",
    title: "one timing receiver for many processes",
    lines: &[
        Line {
            promise: "each row of the conformance page has its tests, and they pass: core, \
                      daemon over socket and bus, program",
            show: rows_pass,
        },
        Line {
            promise: "`livetime timing soak stop`: 10^5 messages at 20 kHz, one of 8 clients \
                      stopped: received and reported lost are what was sent, the others gapless; \
                      at full rate the same for all",
            show: |stage| {
                let full_rate = ["timing", "soak", "stop", "--rate", "0"];
                soaks(stage, &[&["timing", "soak", "stop"], &full_rate])
            },
        },
        Line {
            promise: "`livetime timing soak churn`: 10^4 clients killed: descriptors, memory and \
                      objects return",
            show: |stage| soaks(stage, &[&["timing", "soak", "churn"]]),
        },
        Line {
            promise: "`livetime timing soak stops`: 12 simultaneous stops 10^4 times, armed again \
                      at once, without disagreement",
            show: |stage| soaks(stage, &[&["timing", "soak", "stops"]]),
        },
        Line {
            promise: "`livetime study saft --quick` in under 3 minutes, with every stage, table \
                      and figure in its JSON document and its page",
            show: study_is_complete,
        },
        Line {
            promise: "`livetime bench timing --json`: each target met",
            show: |stage| targets_met(stage, &["bench", "timing", "--json"], minutes(5)),
        },
        Line {
            promise: "`examples/spill.toml`: events only inside the gates, ramps, gates, triggers \
                      and read-back on one time axis of its report",
            show: spill_report,
        },
    ],
};

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// The test programs that the conformance page names, with those of the whole.
const TESTS: [(&str, &str); 6] = [
    ("livetime-timing", ""),
    ("livetime-timing-daemon", ""),
    ("livetime-wire", "timing_"),
    ("livetime-shm", "record_ring"),
    ("livetime-capi", "a_c_program_hears"),
    ("livetime", "timing::"),
];

fn rows_pass(stage: &Stage) -> Result<Shown, Failure> {
    let mut figures = Vec::new();
    let mut passed = true;
    for (package, filter) in TESTS {
        let tests = named_tests(stage, package, filter)?;
        passed &= tests > 0;
        figures.push(format!("{package} {tests}"));
    }
    Ok(Shown::new(
        passed,
        format!("tests passed: {}", figures.join(", ")),
    ))
}

/// Runs soaks and reads their verdicts and figures.
fn soaks(stage: &Stage, commands: &[&[&str]]) -> Result<Shown, Failure> {
    let folder = stage.scratch_folder()?;
    let mut passed = true;
    let mut figures = Vec::new();
    for arguments in commands {
        let arguments = arguments.iter().chain(&["--json"]);
        let start = Instant::now();
        let document = stage.program.json(folder.path(), arguments)?;
        let took = start.elapsed();
        passed &= document["passed"] == true && took < minutes(10);
        let took = took.as_secs_f64();
        figures.push(format!("{} ({took:.0} s)", document["figures"]));
    }
    Ok(Shown::new(passed, figures.join("; ")))
}

/// What the study must show: ways of delivery and of bulk data, figures and tables.
const STUDY_PARTS: [&str; 7] = [
    "the paper's Figure 1",
    "the paper's Figure 2",
    "the paper's Figure 3",
    "Tables 1 (D-Bus) and 2 (pipe) stage by stage",
    "table_1_p95_us",
    "table_2_p95_us",
    "sets_per_channel",
];

fn study_is_complete(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.scratch_folder()?;
    let page = folder.path().join("saft.html");
    let out = page.display().to_string();
    let start = Instant::now();
    let arguments = ["study", "saft", "--quick", "--json", "--out", &out];
    let document = stage.program.json(folder.path(), arguments)?;
    let took = start.elapsed();
    let html = std::fs::read_to_string(&page)?;
    let text = document.to_string();
    let ways = document["delivery"].as_array().map_or(0, Vec::len);
    let missing: Vec<&str> = STUDY_PARTS
        .into_iter()
        .filter(|part| !html.contains(part) && !text.contains(part))
        .collect();
    let plots = html.matches("<svg").count();
    // Five ways of delivery, each with and without monitors.
    let passed = missing.is_empty() && ways == 10 && plots >= 4 && took < minutes(3);
    Ok(Shown::new(
        passed,
        format!(
            "{:.0} s (under 180 s), {ways} ways and monitors, {plots} plots, missing: {missing:?}",
            took.as_secs_f64()
        ),
    ))
}

fn spill_report(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.scratch_folder()?;
    let example = stage.file("examples/spill.toml");
    let run = [
        "run",
        &example,
        "--duration",
        "2600ms",
        "--json",
        "--out",
        "out",
    ];
    let document = stage.program.json(folder.path(), run)?;
    let of_source = |name: &str| {
        let value = document["roles"]["src0"][name].as_f64();
        value.ok_or_else(|| Failure::from(format!("the document has no roles.src0.{name}")))
    };
    let (ramps, gates) = (of_source("ramps_started")?, of_source("gates_opened")?);
    let scheduled = of_source("triggers_scheduled")?;
    finish(stage.program.command(folder.path(), ["report", "out"]))?;
    let html = std::fs::read_to_string(folder.path().join("out/report.html"))?;
    let inside = html.contains("triggered inside the gates and 0 outside");
    let parts = [
        "ramp 0, scheduled",
        "trigger gate",
        "events, %",
        "magnet 0, read back",
    ];
    let drawn = parts.map(|part| html.contains(part));
    let passed = ramps > 0.0 && gates > 0.0 && scheduled > 0.0 && inside && drawn == [true; 4];
    Ok(Shown::new(
        passed,
        format!(
            "{ramps} ramps, {gates} gates, {scheduled} scheduled triggers; no event outside: \
             {inside}; ramps, gate, events, read-back drawn: {drawn:?}"
        ),
    ))
}
