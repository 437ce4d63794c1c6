//! Recorded collisions: replayed through the chain, and decided on by an independent program.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::report_page::mass_peak;
use crate::workbench::{
    SMALL, Workbench, assert_conserved, changed, count, example, finished, lost_in_all, project,
    recorded,
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

/// A source of recorded events may leave it to an option which ones.
#[test]
fn an_option_names_the_events_of_a_recorded_source() {
    let bench = Workbench::new();
    let kind = "[[source]]\nkind = \"recorded\"";
    bench.write("run.toml", changed(SMALL, "[[source]]", kind));
    let rows = "Run,Event,pt1,eta1,phi1,Q1,dxy1,iso1\n7,2,30,0.5,1.0,1,0,0\n";
    bench.write("events.csv", rows);
    let check = bench.run(&["check", "run.toml"]).ended_with(1);
    let missing = "`source[0].events` is not there";
    assert!(check.err.contains(missing), "{}", check.err);
    let run = ["run", "run.toml", "--triggers", "50", "--lossless"];
    let run = bench.run(&[&run[..], &["--events", "events.csv"]].concat());
    run.ended_with(0);
    bench.run(&["report", "runs/000001"]).ended_with(0);
    bench.run(&["replay", "runs/000001"]).ended_with(0);
}

/// What the oracle says of `triggers` events that the program decided on.
fn oracle(triggers: u64, source: &[&str], checks: &[&str]) -> Value {
    oracle_with(&example(), triggers, source, checks)
}

fn oracle_with(configuration: &str, triggers: u64, source: &[&str], checks: &[&str]) -> Value {
    let bench = Workbench::new();
    bench.write("dimuon.toml", configuration);
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

/// The configuration with every kind of path.
const EVERY_PATH: &str = include_str!("../../../../examples/menu-16.toml");

/// The paths that fired, by the oracle's account.
fn fired(verdict: &Value) -> Vec<&str> {
    let paths = verdict["fired"].as_object().expect("a table of paths");
    let fired = paths.iter().filter(|(_, count)| count.as_u64() > Some(0));
    fired.map(|(name, _)| name.as_str()).collect()
}

#[test]
fn every_kind_of_path_fires_on_generated_events_and_the_oracle_agrees() {
    let verdict = oracle_with(EVERY_PATH, 8000, &["--seed", "5"], &[]);
    assert_eq!(count(&verdict, "events"), 8000);
    assert_eq!(count(&verdict, "differences"), 0, "{verdict}");
    let fired = fired(&verdict);
    // All 23 paths, 16 kinds: only pairs of equal charge are not made by this source.
    let missing: Vec<&str> = (verdict["fired"].as_object().expect("a table").keys())
        .map(String::as_str)
        .filter(|name| !fired.contains(name))
        .collect();
    assert_eq!(missing, ["DIMUON_SS"], "{verdict}");
    let dynamic = |key: &str| verdict[key]["CMUP_PT8"].as_u64();
    assert!(
        dynamic("fired") < dynamic("passed"),
        "the dead time stepped its prescale"
    );
    assert!(count(&verdict, "beam_fits") >= 10);
    // The source puts the beam at (746, 422) um; the fit starts at the origin.
    let spot: Vec<i64> = (verdict["beam_spot_um"].as_array().expect("x and y").iter())
        .filter_map(Value::as_i64)
        .collect();
    let [x, y] = spot[..] else {
        panic!("{verdict}")
    };
    assert!((x - 746).abs() <= 20 && (y - 422).abs() <= 20, "{spot:?}");
}

#[test]
fn the_oracle_agrees_with_every_kind_of_path_on_recorded_dimuons_and_four_leptons() {
    for (name, triggers) in [
        (DIMUONS, 5000),
        ("2e2mu_2011.csv", 300),
        ("2e2mu_2012.csv", 300),
        ("4mu_2011.csv", 300),
    ] {
        let Some(events) = recorded(name) else {
            return;
        };
        let events = text(&events);
        let arguments = ["--events", events];
        let verdict = oracle_with(EVERY_PATH, triggers, &arguments, &["--csv", events]);
        assert_eq!(count(&verdict, "events"), triggers);
        assert_eq!(count(&verdict, "differences"), 0, "{name}: {verdict}");
    }
}
