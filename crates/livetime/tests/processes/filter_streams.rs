//! Events that go to filter units over TCP: those of shared memory, whoever dies, joins or leaves.

use std::collections::BTreeSet;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::filter_units::{endless, steer};
use crate::process_run::{Lines, Run, example, patient, text, turn};

const TRIGGERS: &str = "6000";

/// Two filter units behind streams.
fn over_tcp(config: String) -> String {
    let lines = "units = 2\ntransport = \"tcp\"\ncongestion = \"reno\"";
    patient(config).replace("units = 1", lines)
}

/// The builder's messages and payload over streams as well.
fn all_over_tcp(config: String) -> String {
    over_tcp(config).replace("[builder]\n", "[builder]\ntransport = \"tcp\"\n")
}

/// A counter of all roles of a kind, those of former lives included.
fn sum(run: &Run, kind: &str, name: &str) -> u64 {
    let roles = run.summary["roles"].as_object().expect("an object");
    let of_kind = roles.iter().filter(|(role, _)| role.starts_with(kind));
    of_kind
        .filter_map(|(_, counts)| counts[name].as_u64())
        .sum()
}

#[test]
fn over_streams_the_same_events_are_filtered_and_stored() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", TRIGGERS]);
    let processes = ["--triggers", TRIGGERS, "--processes"];
    for (edit, arguments) in [
        (over_tcp as fn(String) -> String, &processes[..2]),
        (over_tcp, &processes),
        (all_over_tcp, &processes),
    ] {
        let run = Run::of(edit, arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new(), "{arguments:?}");
        assert_eq!(
            (run.digest(), run.contents()),
            (whole.digest(), whole.contents())
        );
        // Each payload byte goes to one filter unit once: into the kernel and out of it.
        let sent = sum(&run, "bu", "filter_payload_bytes_sent");
        assert!(sent > 100_000, "{sent}");
        assert_eq!(sum(&run, "fu", "network_payload_bytes_received"), sent);
        for counter in [
            "network_payloads_damaged",
            "network_strangers",
            "network_streams_refused",
        ] {
            assert_eq!(sum(&run, "fu", counter), 0, "{counter}");
        }
    }
}

#[test]
fn units_at_either_end_of_a_stream_and_the_writer_may_die() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", TRIGGERS]);
    for (edit, faults) in [
        (
            over_tcp as fn(String) -> String,
            &["kill:fu0@1500triggers", "kill:fu1@3000triggers"][..],
        ),
        (over_tcp, &["kill:bu1@2000triggers"]),
        (
            all_over_tcp,
            &["kill:fu1@1500triggers", "kill:bu0@3000triggers"],
        ),
    ] {
        let mut arguments = vec!["--triggers", TRIGGERS, "--processes"];
        arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
        let run = Run::of(edit, &arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        let replaced = run.errors().matches("another took its place").count();
        assert_eq!(replaced, faults.len(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new(), "{faults:?}");
        assert_eq!(
            (run.digest(), run.contents()),
            (whole.digest(), whole.contents())
        );
    }
    // What the dead writer had not on disk may be lost, and is counted.
    let arguments = [
        "--triggers",
        TRIGGERS,
        "--processes",
        "--fault",
        "kill:wr0@2000triggers",
    ];
    let run = Run::of(over_tcp, &arguments);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert!(
        run.causes().iter().all(|cause| cause == "writer_lost"),
        "{:?}",
        run.causes()
    );
    assert_eq!(run.digest(), whole.digest());
    assert!(run.stored().is_subset(&whole.stored()));
}

/// Between threads nobody dies with a stream: it is made again, and what was not answered is sent once
/// more, so that the same events are filtered once and stored.
#[test]
fn cut_streams_between_threads_are_made_again() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", TRIGGERS]);
    for edit in [over_tcp as fn(String) -> String, all_over_tcp] {
        let faults = [
            "cut:fu0@1000triggers",
            "cut:fu1@2500triggers",
            "cut:fu0@4000triggers",
        ];
        let mut arguments = vec!["--triggers", TRIGGERS];
        arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
        let run = Run::of(edit, &arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        let mended = run.errors().matches("another took its place").count();
        // Each filter unit has a stream to each of the builder units.
        assert!(mended >= faults.len(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new());
        assert_eq!(
            run.count("filter_accepted") + run.count("filter_rejected"),
            run.count("events_built")
        );
        assert_eq!(
            (run.digest(), run.contents()),
            (whole.digest(), whole.contents())
        );
        assert_eq!(sum(&run, "bu", "filter_streams_ended"), mended as u64);
        assert_eq!(sum(&run, "fu", "network_payloads_damaged"), 0);
    }
}

#[test]
fn a_cut_needs_streams_and_threads() {
    let _turn = turn();
    for (edit, options) in [
        (
            patient as fn(String) -> String,
            &["--fault", "cut:fu0@1s"][..],
        ),
        (over_tcp, &["--fault", "cut:fu0@1s", "--processes"]),
        (over_tcp, &["--fault", "cut:bu0@1s"]),
        (over_tcp, &["--fault", "cut:fu7@1s"]),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = std::fs::read_to_string(example()).expect("the example is there");
        std::fs::write(folder.path().join("run.toml"), edit(config)).expect("a writable folder");
        let refused = Command::new(env!("CARGO_BIN_EXE_livetime"))
            .current_dir(folder.path())
            .args(["run", "run.toml", "--triggers", "10"])
            .args(options)
            .output()
            .expect("the built program starts");
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{options:?}: {said}");
        assert!(said.contains("cut:"), "{options:?}: {said}");
    }
}

#[test]
fn an_event_that_kills_its_filter_unit_is_given_to_another_only_so_often() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", TRIGGERS]);
    let stored = whole.stored();
    let event = stored
        .iter()
        .nth(stored.len() / 2)
        .expect("events are stored");
    let fault = format!("crash:{event}");
    let arguments = ["--triggers", TRIGGERS, "--processes", "--fault", &fault];
    let run = Run::of(over_tcp, &arguments);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    let failures = run.summary["filter_failures"].as_array().expect("a list");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["trigger"], event.to_string());
    assert_eq!(
        failures[0]["deaths"].as_array().map(Vec::len),
        Some(2),
        "one retry"
    );
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.stored(), stored, "the event is in the error stream");
}

#[test]
fn filter_units_join_and_leave_behind_streams() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let units = "units = 2\nunits_max = 3\ntransport = \"tcp\"";
    let running = endless(&folder, units, &[]);
    let order = |words: &[&str], refused: &str| steer(&folder, words, refused);
    for _ in 0..2 {
        assert_eq!(order(&["filter", "add"], "units_max"), "fu2 has joined");
        assert_eq!(order(&["filter", "remove"], "-"), "fu2 is leaving");
    }
    let pid = Pid::from_raw(running.id() as i32).expect("a process");
    let lines = Lines::of(running);
    kill_process(pid, Signal::INT).expect("it lives");
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    let answered = run.count("filter_accepted") + run.count("filter_rejected");
    assert_eq!(answered, run.count("events_built"), "once each");
}
