//! TCP streams of the event builder that are cut while the units at both ends live: each pair gets
//! another, and what was on its way is asked for again.

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};

use crate::live_run::{cut_streams_of, process_of, start, start_with, wait_for_more};
use crate::process_run::{Lines, Run, example, patient, turn};

/// Two groups of one builder unit, one filter unit and one writer each, over TCP.
fn in_groups(config: &str) -> String {
    patient(config.to_owned())
        .replace("[builder]\n", "[builder]\ntransport = \"tcp\"\n")
        .replace("units = 1", "units = 2\nsubfarms = 2")
        .replace("[store]\n", "[store]\nwriters = 2\n")
}

/// The run of a configuration in which so many streams of a role are cut, all of it, and replaced.
fn with_cut_streams(config: &str, role: &str, streams: usize) -> Run {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let running = start(config, folder.path());
    let id = running.id();
    let mut lines = Lines::of(running);
    let file = folder.path().join("run/events.mcap");
    wait_for_more(&file);
    wait_for_more(&file);
    assert_eq!(
        cut_streams_of(process_of(folder.path(), role)),
        streams,
        "of {role}"
    );
    lines.wait_for("was cut; another took its place", streams);
    wait_for_more(&file);
    wait_for_more(&file);
    let pid = Pid::from_raw(id as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it lives");
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(!run.errors().contains("is gone"), "{}", run.errors());
    run.assert_accounted();
    run
}

/// Fragments that were on their way, or came while there was no stream, are lost under one name.
#[test]
fn a_cut_data_link_is_replaced_and_what_it_lost_is_named() {
    let _turn = turn();
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let config = config
        .replace("count = 4\n", "count = 4\nkind = \"tcp\"\n")
        .replace(
            "timeout = \"1 s\"",
            "timeout = \"100 ms\"\nretry = \"20 ms\"",
        );
    let run = with_cut_streams(&config, "ru0", 4);
    let causes = run.causes();
    assert!(causes.contains("link_down"), "{causes:?}");
    let allowed = ["link_down", "fragment_late"].map(str::to_owned);
    assert!(causes.is_subset(&BTreeSet::from(allowed)), "{causes:?}");
    assert!(run.count("events_built") > run.count("events_incomplete"));
}

/// Threads have both ends, and the run goes on as one of processes does.
#[test]
fn cut_streams_between_threads_are_replaced() {
    let _turn = turn();
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let config = config
        .replace("count = 4\n", "count = 4\nkind = \"tcp\"\n")
        .replace("[builder]\n", "[builder]\ntransport = \"tcp\"\n")
        .replace(
            "timeout = \"1 s\"",
            "timeout = \"100 ms\"\nretry = \"20 ms\"",
        );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let running = start_with(&config, folder.path(), &["--lossless"]);
    let pid = Pid::from_raw(running.id() as i32).expect("a process");
    let mut lines = Lines::of(running);
    let file = folder.path().join("run/events.mcap");
    wait_for_more(&file);
    wait_for_more(&file);
    // Both ends of 8 data links, and of those between bu0, bu1 and evm, ru0, ru1.
    assert_eq!(cut_streams_of(pid), 2 * (8 + 6));
    lines.wait_for("was cut; another took its place", 8 + 6);
    wait_for_more(&file);
    wait_for_more(&file);
    kill_process(pid, Signal::INT).expect("it lives");
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    for between in ["data link 0 and ru0", "data link 7 and ru1", "bu0"] {
        assert!(
            run.errors().contains(between),
            "{between}: {}",
            run.errors()
        );
    }
    run.assert_accounted();
    // Where the event builder holds everything up, no fragment may be on its way.
    let allowed = BTreeSet::from(["link_down", "fragment_late"].map(str::to_owned));
    assert!(run.causes().is_subset(&allowed), "{:?}", run.causes());
}

/// The barrier of a linear shift goes on over other streams: what was on its way is said again.
#[test]
fn cut_streams_of_the_event_manager_stop_no_phases() {
    let _turn = turn();
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let keys = "[builder]\ntransport = \"tcp\"\nshaping = \"linear-shift\"\nretry = \"20 ms\"\n";
    let config = patient(config).replace("[builder]\n", keys);
    // To bu0, bu1, ru0 and ru1.
    let run = with_cut_streams(&config, "evm", 4);
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.count("events_incomplete"), 0);
}

#[test]
fn a_cut_stream_of_a_builder_unit_is_replaced_and_no_event_lost() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let running = start(&in_groups(&config), folder.path());
    let id = running.id();
    let mut lines = Lines::of(running);
    // Only the second builder unit's events go there.
    let file = folder.path().join("run/events-1.mcap");
    wait_for_more(&file);
    wait_for_more(&file);
    let builder = process_of(folder.path(), "bu1");
    assert_eq!(cut_streams_of(builder), 3, "evm, ru0 and ru1");
    lines.wait_for("was cut; another took its place", 3);
    wait_for_more(&file);
    let pid = Pid::from_raw(id as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it lives");
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    for peer in ["evm", "ru0", "ru1"] {
        let said = [format!("{peer} and bu1"), format!("bu1 and {peer}")];
        let is_said = said.iter().any(|said| run.errors().contains(said));
        assert!(is_said, "{peer}: {}", run.errors());
    }
    assert!(!run.errors().contains("is gone"), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.count("events_incomplete"), 0);
}
