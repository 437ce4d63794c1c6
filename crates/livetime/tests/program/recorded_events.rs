//! Recorded collisions: replayed through the chain, and decided on by an independent program.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::report_page::mass_peak;
use crate::workbench::{
    Workbench, assert_conserved, count, example, finished, lost_in_all, project, recorded,
};

const DIMUONS: &str = "Zmumu_Run2011A.csv";
/// Events of the file.
const ROWS: u64 = 10_583;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn recorded_dimuons_go_through_whole_and_peak_at_the_z() {
    let Some(events) = recorded(DIMUONS) else {
        return;
    };
    let bench = Workbench::new();
    bench.write("dimuon.toml", example());
    let arguments = [
        "run",
        "dimuon.toml",
        "--events",
        text(&events),
        "--triggers",
        "6000",
    ];
    let run = bench.run(&[&arguments[..], &["--lossless", "--json"]].concat());
    let run = run.ended_with(0).document();
    assert_conserved(&run);
    assert_eq!(lost_in_all(&run), 0);
    assert_eq!(count(&run, "counts.triggers"), 6000);
    assert_eq!(count(&run, "counts.events_incomplete"), 0);
    let peak = mass_peak(&bench.read("runs/000001/report.html")).expect("there is a mass plot");
    assert!((peak - 91.0).abs() <= 1.5, "{peak} GeV");
}

/// What the oracle says of `triggers` events that the program decided on.
fn oracle(triggers: u64, source: &[&str], checks: &[&str]) -> Value {
    let bench = Workbench::new();
    bench.write("dimuon.toml", example());
    let number = triggers.to_string();
    let dump = [
        "source",
        "dimuon.toml",
        "--triggers",
        &number,
        "--decide",
        "--jsonl",
        "dump",
    ];
    bench.run(&[&dump[..], source].concat()).ended_with(0);
    let mut python = Command::new("python3");
    python
        .args(["-m", "oracle", "dimuon.toml", "dump"])
        .args(checks)
        .current_dir(bench.path("."))
        .env(
            "PYTHONPATH",
            project()
                .join("python")
                .canonicalize()
                .expect("it is there"),
        )
        .env("PYTHONDONTWRITEBYTECODE", "1");
    finished(python).ended_with(0).document()
}

#[test]
fn the_oracle_agrees_on_recorded_events() {
    let Some(events) = recorded(DIMUONS) else {
        return;
    };
    let events = text(&events);
    let verdict = oracle(ROWS, &["--events", events], &["--csv", events]);
    assert_eq!(count(&verdict, "events"), ROWS);
    assert_eq!(count(&verdict, "differences"), 0, "{verdict}");
}

#[test]
fn the_oracle_agrees_on_generated_events() {
    let verdict = oracle(4000, &["--seed", "2028"], &[]);
    assert_eq!(count(&verdict, "events"), 4000);
    assert_eq!(count(&verdict, "differences"), 0, "{verdict}");
    assert!(count(&verdict, "accepted") > 100, "{verdict}");
}
