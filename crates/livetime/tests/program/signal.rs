//! Ctrl-C: once ends the run in order, twice ends it at once; both leave a complete file. The end of
//! its terminal ends it in order as well.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::workbench::{
    SMALL, Workbench, assert_conserved, changed, count, flags, lost, lost_in_all, value,
};

#[test]
fn the_first_signal_ends_the_run_in_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let bench = Workbench::new();
        bench.write("small.toml", SMALL);
        let mut running = bench.start(&["run", "small.toml", "--json"]);
        running.wait_for_bytes(&bench.path("runs/000001/events.mcap"), 50_000);
        running.signal(signal);
        let finished = running.finish().ended_with(0);
        assert!(
            finished.err.contains("stopping: the run ends in order"),
            "{}",
            finished.err
        );
        let run = finished.document();
        assert_conserved(&run);
        assert_eq!(lost_in_all(&run), 0, "what was on its way has passed");
        assert_eq!(run["run"]["condition"], "INTERRUPTED");
        let n = |name: &str| count(&run, &format!("counts.{name}"));
        assert_eq!(n("events_stored"), n("l2_accepted"));
        assert!(bench.path("runs/000001/report.html").is_file());

        let inspected = bench.inspect("runs/000001/events.mcap");
        assert_eq!(inspected["complete"], true);
        assert_eq!(inspected["condition"], "INTERRUPTED");
        assert_eq!(count(&inspected, "events"), n("events_stored"));
    }
}

/// A terminal says so more than once, and means no more by that.
#[test]
fn a_terminal_that_is_closed_ends_the_run_in_order() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    // Whoever runs the tests may ignore it.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_livetime")]);
    command.args(["run", "small.toml", "--json"]);
    command.current_dir(bench.path(""));
    let mut running = bench.start_command(command);
    running.wait_for_bytes(&bench.path("runs/000001/events.mcap"), 50_000);
    running.signal(Signal::HUP);
    running.wait_for_line("stopping: ");
    running.signal(Signal::HUP);
    let run = running.finish().ended_with(0).document();
    assert_conserved(&run);
    assert_eq!(lost_in_all(&run), 0, "what was on its way has passed");
    assert_eq!(run["run"]["condition"], "INTERRUPTED");
}

#[test]
fn a_run_that_is_to_outlive_its_terminal_goes_on() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let command = bench.command_after("trap '' HUP", &["run", "small.toml", "--json"]);
    let mut running = bench.start_command(command);
    running.signal(Signal::HUP);
    let file = bench.path("runs/000001/events.mcap");
    let now = std::fs::metadata(&file).map_or(0, |file| file.len());
    running.wait_for_bytes(&file, now + 50_000);
    running.signal(Signal::INT);
    let run = running.finish().ended_with(0).document();
    assert_conserved(&run);
    assert_eq!(lost_in_all(&run), 0);
}

#[test]
fn the_second_signal_ends_the_run_at_once_and_its_accounts_are_settled() {
    let bench = Workbench::new();
    // No event is built before its timeout, so that the drain takes many of them.
    bench.write(
        "small.toml",
        changed(SMALL, "timeout = \"1 s\"", "timeout = \"2 s\""),
    );
    let fault = ["--fault", "link-down:0@0s+1h"];
    let mut running = bench.start(&[&["run", "small.toml", "--json"][..], &fault].concat());
    running.wait_for_bytes(&bench.path("runs/000001/events.mcap"), 12_000);
    running.signal(Signal::INT);
    running.wait_for_line("stopping: ");
    running.signal(Signal::INT);
    let run = running.finish().ended_with(0).document();
    assert_conserved(&run);
    let condition = flags(value(&run, "run.condition"));
    let expected = ["INCOMPLETE", "INTERRUPTED", "ABORTED", "DEGRADED"];
    assert_eq!(condition, expected);
    assert!(lost(&run, "builder") > 0, "events were in building: {run}");
    assert!(
        lost(&run, "readout") > 0,
        "and their fragments buffered: {run}"
    );

    let inspected = bench.inspect("runs/000001/events.mcap");
    assert_eq!(inspected["complete"], true, "{inspected}");
    assert_eq!(flags(&inspected["condition"]), condition);
    assert_eq!(
        count(&inspected, "events"),
        count(&run, "counts.events_stored")
    );
    assert_eq!(count(&inspected, "checksum_errors"), 0);
}

/// Given a run that has ended and a signal while its report is made, then the report is left out, which is
/// no fault, and both documents name the files that are there.
#[test]
fn a_signal_while_the_report_is_made_leaves_it_out() {
    for _ in 0..100 {
        let bench = Workbench::new();
        // Each event is stored, and all are read for the report.
        bench.write("all.toml", changed(SMALL, "prescale = 10", "prescale = 1"));
        let arguments = ["--triggers", "5000", "--lossless", "--json", "--out", "out"];
        let mut running = bench.start(&[&["run", "all.toml"][..], &arguments].concat());
        running.wait_for_bytes(&bench.path("out/summary.json"), 1);
        running.signal(Signal::TERM);
        let ended = running.finish().ended_with(0);
        let (run, kept) = (ended.document(), bench.read("out/summary.json"));
        let kept: Value = serde_json::from_str(&kept).expect("it is JSON");
        assert_eq!(kept, run, "what is printed is what is kept");
        assert_eq!(run["run"]["condition"], "GOOD");
        let files = run["files"].as_array().expect("a list").iter();
        let files: Vec<&str> = files.filter_map(Value::as_str).collect();
        if bench.path("out/report.html").exists() {
            assert!(files.contains(&"out/report.html"), "{files:?}");
            continue;
        }
        let expected = ["out/events.mcap", "out/summary.json", "out/config.toml"];
        assert_eq!(files, expected);
        let said = "warning: stopped while the report was made; `livetime report out` makes it";
        assert!(ended.err.contains(said), "{}", ended.err);
        assert!(!ended.err.contains("error: "), "{}", ended.err);
        bench.run(&["report", "out"]).ended_with(0);
        return;
    }
    panic!("each report was made before the signal came");
}
