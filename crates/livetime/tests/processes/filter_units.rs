//! Filter units that crash on an event, hang on one, join and leave.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::live_run;
use crate::process_run::{Run, example, patient, text, turn};

const TRIGGERS: [&str; 3] = ["--triggers", "10000", "--processes"];

/// The event of a run that filter units are to die of.
fn some_event(whole: &Run) -> u64 {
    let stored = whole.stored();
    *stored
        .iter()
        .nth(stored.len() / 2)
        .expect("events are stored")
}

/// Streams of a stored event are in its header; here only whether it is stored.
fn assert_only_failure(run: &Run, event: u64, role: &str, reason: &str, deaths: usize) {
    let failures = run.summary["filter_failures"].as_array().expect("a list");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["trigger"], event.to_string());
    let named = failures[0]["deaths"].as_array().expect("a list");
    assert_eq!(named.len(), deaths, "{named:?}");
    for death in named {
        assert_eq!(death["role"], role);
        let found = death["reason"].as_str().expect("a text");
        assert!(found.contains(reason), "{found}");
    }
}

/// The example with the largest menu there is, of paths with the longest names.
fn with_largest_menu(config: String) -> String {
    let (before, rest) = config.split_once("[filter]").expect("it has one");
    let store = rest.find("[store]").expect("it has one");
    let path = |nth: usize| {
        let name = format!("PATH_{nth:0>123}");
        format!("[[filter.path]]\nname = \"{name}\"\ncut = \"all\"\nstreams = [\"all\"]\n\n")
    };
    let paths: String = (0..256).map(path).collect();
    let menu = format!("[filter]\nname = \"menu\"\nstreams = [\"all\"]\n\n{paths}");
    format!("{before}{menu}{}", &rest[store..])
}

/// They fit into no single document.
#[test]
fn the_counts_of_the_largest_menu_come_from_its_process() {
    let _turn = turn();
    let run = Run::of(with_largest_menu, &TRIGGERS);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert!(!run.errors().contains("died"), "{}", run.errors());
    let paths = run.summary["filter_menu"]["paths"].as_object();
    let paths = paths.expect("paths by name");
    assert_eq!(paths.len(), 256);
    let built = run.count("events_built");
    let fired = |path: &serde_json::Value| path["fired"].as_u64();
    assert!(paths.values().all(|path| fired(path) == Some(built)));
}

#[test]
fn an_event_that_crashes_its_filter_is_kept_in_the_error_stream() {
    let _turn = turn();
    let whole = Run::of(patient, &TRIGGERS);
    let event = some_event(&whole);
    let fault = format!("crash:{event}");
    let run = Run::of(patient, &[&TRIGGERS[..], &["--fault", &fault]].concat());
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    // Once, and once more by the retry.
    assert_only_failure(&run, event, "fu0", "SIGABRT", 2);
    assert!(
        run.errors().contains("goes to the error stream"),
        "{}",
        run.errors()
    );
    assert_eq!(run.causes(), BTreeSet::new());
    // It is of another stream; all others are as without the crash.
    assert_eq!(run.differing(&whole), BTreeSet::from([event]));
    assert_eq!(run.digest(), whole.digest());
    let events = run.summary["roles"]["fu0"]["events_to_error_stream"].as_u64();
    assert_eq!(events, Some(1), "the third life of fu0 passed it on");
    // Those that came to a filter unit once more were built once.
    let of_builder = |unit| run.summary["roles"][unit]["tickets_again"].as_u64();
    let again = ["bu0", "bu1"].into_iter().filter_map(of_builder);
    assert!(again.sum::<u64>() >= 2, "{}", run.summary["roles"]);
    let built = &run.summary["counts"]["events_built"];
    assert_eq!(run.summary["latency"]["build"]["count"], *built);
}

#[test]
fn an_event_that_hangs_its_filter_is_kept_in_the_error_stream() {
    let _turn = turn();
    let hasty = |config: String| {
        patient(config).replace(
            "units = 1",
            "units = 1\ntime_limit = \"300 ms\"\nretries = 0",
        )
    };
    let whole = Run::of(hasty, &TRIGGERS);
    assert!(
        whole.summary["filter_failures"].is_null(),
        "{}",
        whole.summary
    );
    let event = some_event(&whole);
    let fault = format!("hang:{event}");
    let run = Run::of(hasty, &[&TRIGGERS[..], &["--fault", &fault]].concat());
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_only_failure(&run, event, "fu0", "more than 300 ms", 1);
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.differing(&whole), BTreeSet::from([event]));
}

/// With `on_loss = "stop"` the event that ends the run is given to nobody else.
#[test]
fn an_event_that_ends_the_run_costs_one_filter_unit() {
    let _turn = turn();
    let stop = |config: String| {
        patient(config).replace("units = 1", "units = 2\nretries = 3\non_loss = \"stop\"")
    };
    let whole = Run::of(stop, &TRIGGERS);
    let event = some_event(&whole);
    let fault = format!("crash:{event}");
    let run = Run::of(stop, &[&TRIGGERS[..], &["--fault", &fault]].concat());
    assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
    run.assert_accounted();
    let failures = run.summary["filter_failures"].as_array().expect("a list");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["trigger"], event.to_string());
    let deaths = failures[0]["deaths"].as_array().expect("a list");
    assert_eq!(deaths.len(), 1, "{deaths:?}\n{}", run.errors());
    assert!(run.errors().contains(&format!("it had event {event}")));
}

/// A run with these filter units, without an end of its own.
pub(crate) fn endless(folder: &tempfile::TempDir, units: &str, faults: &[String]) -> Child {
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let config = patient(config).replace("units = 1", units);
    std::fs::write(folder.path().join("run.toml"), config).expect("a writable folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_livetime"));
    command
        .current_dir(folder.path())
        .args([
            "run",
            "run.toml",
            "--lossless",
            "--duration",
            "600s",
            "--json",
        ])
        .args(["--processes", "--out", "run"]);
    for fault in faults {
        command.args(["--fault", fault]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the built program starts")
}

/// Gives an order until the run takes it.
pub(crate) fn steer(folder: &tempfile::TempDir, order: &[&str], refused: &str) -> String {
    loop {
        let errors = match live_run::order(folder.path(), order) {
            Ok(answer) => return answer,
            Err(errors) => errors,
        };
        // It is not there yet, or not done with what came before.
        let early = ["no run takes orders", "cannot open", refused];
        assert!(early.iter().any(|early| errors.contains(early)), "{errors}");
        std::thread::yield_now();
    }
}

#[test]
fn filter_units_die_join_and_leave_and_no_event_is_lost_or_filtered_twice() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let deaths = match std::env::var_os("LIVETIME_LONG") {
        Some(_) => 20,
        None => 4,
    };
    let faults: Vec<String> = (0..deaths)
        .map(|nth| format!("kill:fu{}@{}ms", nth % 4, 300 * (nth + 1)))
        .collect();
    let running = endless(&folder, "units = 4\nunits_max = 5", &faults);
    assert_eq!(steer(&folder, &["filter", "add"], "-"), "fu4 has joined");
    assert_eq!(
        steer(&folder, &["filter", "remove", "fu4"], "-"),
        "fu4 is leaving"
    );
    // It has a place again when it has ended.
    assert_eq!(
        steer(&folder, &["filter", "add"], "units_max"),
        "fu4 has joined"
    );
    // Every death has been dealt with when its successor is there; only the parent knows.
    let pid = Pid::from_raw(running.id() as i32).expect("a process");
    let mut lines = crate::process_run::Lines::of(running);
    lines.wait_for("another took its place", faults.len());
    kill_process(pid, Signal::INT).expect("it lives");
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    assert!(run.summary["filter_failures"].is_null(), "{}", run.summary);
    let answered = run.count("filter_accepted") + run.count("filter_rejected");
    assert_eq!(answered, run.count("events_built"), "once each");
}

#[test]
fn nobody_takes_the_place_of_a_filter_unit_that_dies_while_it_leaves() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    // It cannot leave while it is stopped, and is killed before it goes on.
    let faults = ["stop:fu1@300ms+600s", "kill:fu1@3s"].map(str::to_owned);
    let running = endless(&folder, "units = 2", &faults);
    assert_eq!(
        steer(&folder, &["filter", "remove", "fu1"], "-"),
        "fu1 is leaving"
    );
    assert_eq!(steer(&folder, &["filter", "add"], "-"), "fu1 has joined");
    let pid = Pid::from_raw(running.id() as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it lives");
    let lines = crate::process_run::Lines::of(running);
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
}

#[test]
fn orders_that_cannot_be_obeyed_are_refused_with_the_reason() {
    let refused = |arguments: &[&str], expected: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_livetime"))
            .args(arguments)
            .current_dir(std::env::temp_dir())
            .output()
            .expect("the built program starts");
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains(expected), "{errors}");
    };
    refused(&["steer", ".", "filter", "burn"], "is no order");
    refused(&["steer", ".", "filter", "remove", "bu0"], "no filter unit");
    refused(&["steer", ".", "filter", "add"], "no run takes orders");
    refused(&["steer", "not/there", "filter", "add"], "cannot open");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let config = config.replace("units = 1", "units = 1\nunits_max = 2");
    let file = folder.path().join("run.toml");
    std::fs::write(&file, config).expect("a writable folder");
    let file = file.to_str().expect("a plain path");
    refused(&["run", file, "--triggers", "10"], "`--processes`");
}
