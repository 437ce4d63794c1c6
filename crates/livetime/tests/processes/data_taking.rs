//! Triggers are taken from when the processes of a run are there, and its times and rates say so.

use livetime_client::RunFolder;

use crate::process_run::{Run, patient, turn};

/// How long triggers are taken.
const TAKEN_S: usize = 2;
const TAKEN_US: u64 = TAKEN_S as u64 * 1_000_000;

/// A detail of the front-end.
fn of_source(run: &Run, name: &str) -> u64 {
    let found = &run.summary["roles"]["src0"][name];
    found
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} of src0"))
}

/// Given processes that take their time to start, then that is no time of data taking: the run lasts for
/// its duration all the same, each interval of that has its rates, and no event is from before.
#[test]
fn the_start_of_processes_is_no_data_taking() {
    let _turn = turn();
    let duration = format!("{TAKEN_S}s");
    let run = Run::of(patient, &["--processes", "--duration", &duration]);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    let from_us = of_source(&run, "taking_from_us");
    assert!(from_us > 0, "a process takes more than a microsecond");
    assert!(of_source(&run, "taking_us") >= TAKEN_US);
    let lasted_s = run.summary["run"]["duration_s"].as_f64();
    let lasted_s = lasted_s.expect("a number");
    assert!(
        lasted_s * 1e6 >= (from_us + TAKEN_US) as f64,
        "{lasted_s} s"
    );
    let series = &run.summary["rates"]["series"];
    for (name, values) in series.as_object().expect("an object") {
        let values = values.as_array().map_or(0, Vec::len);
        assert!(values >= TAKEN_S, "{values} of {name}");
    }
    let mut events = RunFolder::open(&run.folder.path().join("run")).expect("a run folder");
    while let Some(event) = events.next_event().expect("whole files") {
        let at_us = event.header().triggered_at.0 / 1_000;
        assert!(at_us >= from_us, "triggered at {at_us} us");
    }
}

/// Threads are there when the time of the run begins.
#[test]
fn threads_take_data_from_the_start_of_the_run() {
    let _turn = turn();
    let run = Run::of(patient, &["--triggers", "100"]);
    assert!(run.output.status.success(), "{}", run.errors());
    assert_eq!(of_source(&run, "taking_from_us"), 0);
}
