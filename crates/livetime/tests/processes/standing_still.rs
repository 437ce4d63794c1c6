//! Units that stand still for longer than others remember, and units that die meanwhile.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::live_run::{order, process_of, start, start_with, wait_for_more};
use crate::process_run::{Lines, Run, keeping_all, patient, turn};

/// The example in which every event is kept, with these lines of its builder table.
fn keeping(lines: &str) -> impl Fn(String) -> String + use<'_> {
    move |config| {
        keeping_all(patient(config)).replace("[builder]\n", &format!("[builder]\n{lines}"))
    }
}

/// As before, with builder units that give events up in a second, and are asked often; they know the
/// last triggers.
fn hasty(lines: &str) -> impl Fn(String) -> String + use<'_> {
    move |config| {
        keeping(&format!(
            "probe = \"50 ms\"\nhistory = 256\ntrigger_window = 256\n{lines}"
        ))(config)
        .replace("\ntimeout = \"20 s\"", "\ntimeout = \"1 s\"")
        .replace("[filter]\nunits = 1\n", "[filter]\nunits = 2\n")
    }
}

fn run(edit: impl Fn(String) -> String, triggers: &str, faults: &[String]) -> Run {
    let mut arguments = vec!["--triggers", triggers, "--processes"];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", fault.as_str()]));
    let run = Run::of(edit, &arguments);
    assert!(run.output.status.success(), "{faults:?}: {}", run.errors());
    run.assert_accounted();
    run
}

/// Every accepted trigger is in the file once.
fn assert_all_stored(run: &Run, what: &str) {
    run.assert_only_writer_lost();
    assert_eq!(run.count("events_incomplete"), 0, "{what}");
    let lost = run.losses().map(|(_, count)| count).sum::<u64>();
    assert_eq!(run.count("events_stored") + lost, run.count("l2_accepted"));
    let stored = run.stored().len() as u64;
    assert_eq!(stored, run.count("events_stored"), "{what}");
}

/// Readout units that it has asked for nothing yet ask the other one, which does not know them.
#[test]
fn events_of_a_builder_unit_or_filter_unit_that_stands_still_are_whole() {
    let _turn = turn();
    for (lines, unit) in [
        ("", "bu1"),
        ("transport = \"tcp\"\n", "bu1"),
        ("first_step = [\"ru0\"]\n", "fu0"),
    ] {
        let fault = format!("stop:{unit}@1000triggers+5s");
        let run = run(hasty(lines), "4000", &[fault]);
        assert_all_stored(&run, lines);
        assert_eq!(run.causes(), BTreeSet::new(), "{lines}");
        let dropped = run.summary["counts"]["fragments_dropped_by_decision"].as_u64();
        let rejected = run.count("triggers") - run.count("l2_accepted");
        assert_eq!(dropped, Some(8 * rejected), "{lines}");
    }
}

/// What it does not read must not keep the event manager from telling the others.
#[test]
fn others_go_on_while_a_builder_unit_stands_still() {
    let _turn = turn();
    for lines in ["", "mode = \"push\"\n", "transport = \"tcp\"\n"] {
        let lines = format!("probe = \"10 ms\"\n{lines}");
        // It would stand for longer than the test may take; what ends it is that the others go on.
        let faults = ["stop:bu1@1000triggers+3000s", "kill:bu1@20000triggers"];
        let run = run(keeping(&lines), "21000", &faults.map(str::to_owned));
        assert_all_stored(&run, &lines);
    }
}

/// The writer behind it knows the last chunk, and the unit had not cleared older ones.
#[test]
fn events_of_a_builder_unit_that_dies_with_its_writer_are_stored_once() {
    let _turn = turn();
    let small =
        |config: String| keeping("")(config).replace("chunk = \"1 MiB\"", "chunk = \"4 KiB\"");
    for triggers in [1500, 2000, 2500, 3000] {
        let kill = |unit: &str| format!("kill:{unit}@{triggers}triggers");
        let stop = format!("stop:bu1@{}triggers+1s", triggers - 100);
        let run = run(small, "4000", &[stop, kill("wr0"), kill("bu1")]);
        assert_all_stored(&run, &format!("at {triggers}"));
    }
}

/// Whoever settles the loss of a builder unit waits for the filter unit, which has to die first.
#[test]
fn a_builder_unit_may_die_while_a_filter_unit_hangs() {
    let _turn = turn();
    let edit = |config| {
        let limit = "[filter]\ntime_limit = \"2 s\"\nretries = 0\n";
        keeping("")(config).replace("[filter]\n", limit)
    };
    let whole = run(edit, "4000", &[]);
    let stored = whole.stored();
    let hung = *stored.iter().nth(stored.len() / 2).expect("events");
    let faults = [
        format!("hang:{hung}"),
        format!("kill:bu1@{}triggers", hung + 100),
    ];
    let run = run(edit, "4000", &faults);
    assert_all_stored(&run, "hung");
    assert_eq!(run.differing(&whole), BTreeSet::from([hung]));
    let said = "more than 2.00 s";
    assert!(run.errors().contains(said), "{}", run.errors());
}

/// Somebody has stopped it, and the run does not know.
#[test]
fn a_role_that_was_stopped_from_outside_takes_part_in_a_forced_end() {
    let _turn = turn();
    for role in ["evm", "ru0", "bu1", "fu0", "wr0", "trg0", "src0"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = std::fs::read_to_string(crate::process_run::example());
        let config = config.expect("the example is there");
        let running = start(&keeping("")(config), folder.path());
        let coordinator = Pid::from_raw(running.id() as i32).expect("a process");
        let mut lines = Lines::of(running);
        let file = folder.path().join("run/events.mcap");
        wait_for_more(&file);
        wait_for_more(&file);
        kill_process(process_of(folder.path(), role), Signal::STOP).expect("it lives");
        kill_process(coordinator, Signal::INT).expect("it lives");
        lines.wait_for("once more ends it at once", 1);
        kill_process(coordinator, Signal::INT).expect("it lives");
        let run = Run::finished(lines.finish(), folder);
        assert!(run.output.status.success(), "{role}: {}", run.errors());
        run.assert_accounted();
        assert!(!run.errors().contains("killed"), "{role}: {}", run.errors());
    }
}

/// Waits until a role stands still and an event is on its way to it: a run without one has drained.
fn wait_for_an_event(folder: &Path, stopped: Pid) {
    let path = format!("/proc/{}/stat", stopped.as_raw_nonzero());
    let state = || std::fs::read_to_string(&path).expect("it lives");
    while !state().contains(") T ") {
        std::thread::yield_now();
    }
    let accepted = || {
        let said = order(folder, &["status", "--json"]).expect("the run takes orders");
        let status: Value = serde_json::from_str(&said).expect("a document");
        status["counts"]["l2_accepted"].as_u64().expect("a count")
    };
    let before = accepted();
    while accepted() == before {}
}

#[test]
fn a_drain_that_stands_still_names_who_was_stopped() {
    let _turn = turn();
    for role in ["wr0", "fu0"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = std::fs::read_to_string(crate::process_run::example());
        let config = config.expect("the example is there");
        let waiting = "[store]\nfull_wait = \"0 s\"\n";
        let config = keeping_all(config).replace("[store]\n", waiting);
        // A lossless one would wait for decisions that are late for a minute.
        let running = start_with(&config, folder.path(), &["--processes"]);
        let coordinator = Pid::from_raw(running.id() as i32).expect("a process");
        let mut lines = Lines::of(running);
        let file = folder.path().join("run/events.mcap");
        wait_for_more(&file);
        wait_for_more(&file);
        let process = process_of(folder.path(), role);
        kill_process(process, Signal::STOP).expect("it lives");
        wait_for_an_event(folder.path(), process);
        kill_process(coordinator, Signal::INT).expect("it lives");
        let number = process.as_raw_nonzero();
        let said =
            format!("warning: the drain stands still: {role}: its process {number} is stopped");
        lines.wait_for(&said, 1);
        let run = Run::finished(lines.finish(), folder);
        run.assert_accounted();
        assert_eq!(run.errors().matches("is stopped").count(), 1);
    }
}
