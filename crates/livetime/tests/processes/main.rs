//! Runs with a process per role: the same decisions as with threads, and what becomes of a run when
//! processes die, stand still, or lose their parent.
//!
//! Faults come at times, so that how much is lost differs from run to run; what is asserted holds
//! for each: the equations, computed here again from the counters, the events of the file, the
//! decisions, and which causes may have lost anything. That no event is in a file twice is checked
//! by its trigger numbers, that two runs store the same events by all their words.

#[path = "../contents/mod.rs"]
mod contents;
#[path = "../copied_program/mod.rs"]
mod copied_program;
mod cut_streams;
mod data_links;
mod data_taking;
mod datagrams;
mod draining_run;
mod fault_table;
mod filter_streams;
mod filter_units;
mod live_run;
mod loss_in_loss;
mod lost_group;
mod process_run;
mod random_fault;
mod returned_manager;
mod returned_readout;
mod run_left_behind;
mod shaping;
mod standing_still;
mod subfarms;
mod two_step;
mod unit_start;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use livetime_shm::PeerWatch;
use rustix::process::{Pid, Signal, kill_process};

use crate::process_run::{Run, example, patient, text, turn};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn processes_take_the_decisions_of_threads_and_store_the_same_events() {
    let _turn = turn();
    let threads = Run::of(patient, &["--triggers", "20000"]);
    let with_processes = |config: String| patient(config) + "\n[workers]\nprocesses = true\n";
    let processes = Run::of(with_processes, &["--triggers", "20000"]);
    for run in [&threads, &processes] {
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new());
    }
    assert_eq!(processes.digest(), threads.digest());
    assert_eq!(processes.summary["counts"], threads.summary["counts"]);
    assert_eq!(processes.differing(&threads), BTreeSet::new());
    assert!(!threads.stored().is_empty());
}

/// Readout units, event manager and builder units behind TCP streams, as threads and as processes:
/// the events of shared memory.
#[test]
fn over_tcp_the_same_events_are_built_and_a_builder_unit_may_die() {
    let _turn = turn();
    let over = |transport: &str, mode: &str| {
        let lines = format!(
            "[builder]\ntransport = \"{transport}\"\nmode = \"{mode}\"\n{}",
            match transport {
                "tcp" => "congestion = \"reno\"\n",
                _ => "",
            }
        );
        move |config: String| patient(config).replace("[builder]\n", &lines)
    };
    let rings = Run::of(over("shm", "pull"), &["--triggers", "4000"]);
    assert!(rings.summary["builder_transport"].is_null());
    for (mode, arguments) in [
        ("pull", &["--triggers", "4000"][..]),
        ("pull", &["--triggers", "4000", "--processes"]),
        ("push", &["--triggers", "4000", "--processes"]),
        (
            "pull",
            &[
                "--triggers",
                "4000",
                "--processes",
                "--fault",
                "kill:bu1@1500triggers",
            ],
        ),
    ] {
        let run = Run::of(over("tcp", mode), arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new(), "{arguments:?}");
        assert_eq!(run.digest(), rings.digest(), "{arguments:?}");
        assert_eq!(run.differing(&rings), BTreeSet::new(), "{arguments:?}");
        assert_eq!(run.summary["builder_transport"]["congestion"], "reno");
        let of_readout = &run.summary["roles"]["ru0"];
        assert!(of_readout["network_payload_bytes_sent"].as_u64() > Some(100_000));
        let ended = of_readout["network_streams_ended"].as_u64();
        assert_eq!(ended, Some(u64::from(arguments.len() > 3)), "{arguments:?}");
    }
}

/// A builder unit that stands still is no hang-up; its silence tells, and its events are built by
/// others.
#[test]
fn a_silent_builder_unit_is_taken_for_dead_and_nothing_is_lost() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", "6000"]);
    let listening = |config: String| {
        let keys = "[builder]\nheartbeat = \"100 ms\"\nsuspect = \"3 s\"\ndead = \"5 s\"\n";
        patient(config).replace("[builder]\n", keys)
    };
    let arguments = ["--triggers", "6000", "--processes", "--fault"];
    let arguments = [&arguments[..], &["stop:bu0@1000triggers+600s"]].concat();
    let run = Run::of(listening, &arguments);
    assert!(run.output.status.success(), "{}", run.errors());
    let expected = "the process of bu0 is gone (killed: it was silent for more than 5.00 s)";
    assert!(run.errors().contains(expected), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.digest(), whole.digest());
    assert_eq!(run.differing(&whole), BTreeSet::new());
    assert!(run.summary["roles"]["evm"]["builders_silent"].as_u64() >= Some(1));
}

#[test]
fn two_deaths_of_one_unit_and_one_of_another_are_survived() {
    let _turn = turn();
    let faults = [
        "kill:fu0@4000triggers",
        "kill:bu1@7000triggers",
        "kill:fu0@10000triggers",
    ];
    let mut arguments = vec!["--triggers", "30000", "--processes"];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
    let run = Run::of(patient, &arguments);
    assert!(run.output.status.success(), "{}", run.errors());
    assert_eq!(run.errors().matches("another took its place").count(), 3);
    run.assert_accounted();
    assert_eq!(run.count("triggers"), 30_000);
}

#[test]
fn the_policy_says_whether_the_others_go_on_or_the_run_ends() {
    let _turn = turn();
    let go_on =
        |config: String| patient(config).replace("units = 1", "units = 2\non_loss = \"continue\"");
    let run = Run::of(
        go_on,
        &[
            "--triggers",
            "20000",
            "--processes",
            "--fault",
            "kill:fu1@5000triggers",
        ],
    );
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(
        run.errors().contains("the others go on"),
        "{}",
        run.errors()
    );
    run.assert_accounted();
    assert_eq!(run.count("triggers"), 20_000);

    let stop = |config: String| {
        patient(config).replace("credits = 16", "credits = 16\non_loss = \"stop\"")
    };
    let run = Run::of(
        stop,
        &[
            "--triggers",
            "20000",
            "--processes",
            "--fault",
            "kill:bu0@5000triggers",
        ],
    );
    assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
    assert!(run.errors().contains("the run ends"), "{}", run.errors());
    run.assert_accounted();
    assert!(run.count("triggers") < 20_000);
}

#[test]
fn standing_still_for_a_while_is_no_death() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", "20000"]);
    let faults = [
        "stop:fu0@3000triggers+200ms",
        "stop:bu1@4000triggers+200ms",
        "stop:ru0@5000triggers+200ms",
        "stop:evm@6000triggers+200ms",
        "stop:trg0@7000triggers+200ms",
        "stop:src0@8000triggers+200ms",
        "stop:wr0@9000triggers+200ms",
    ];
    let mut arguments = vec!["--triggers", "20000", "--processes"];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
    let run = Run::of(patient, &arguments);
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(!run.errors().contains("is gone"), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.digest(), whole.digest());
    assert_eq!(run.differing(&whole), BTreeSet::new());
}

#[test]
fn faults_of_roles_that_cannot_have_them_are_refused() {
    let refused = |arguments: &[&str], expected: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_livetime"))
            .arg("run")
            .arg(example())
            .args(arguments)
            .current_dir(std::env::temp_dir())
            .output()
            .expect("the built program starts");
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains(expected), "{errors}");
    };
    refused(&["--fault", "kill:fu0@1s"], "needs `--processes`");
    refused(
        &["--processes", "--fault", "kill:fu7@1s"],
        "there is no role fu7",
    );
}

/// Processes whose parent is `parent`.
fn children_of(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            after_name.split(' ').nth(1) == Some(&parent.to_string())
        })
        .collect()
}

#[test]
fn a_killed_parent_leaves_no_role_behind() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut parent = Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder.path())
        .arg("run")
        .arg(example())
        .args(["--processes", "--duration", "600s", "--out", "run"])
        .stderr(Stdio::null())
        .spawn()
        .expect("the built program starts");
    // src0, trg0, ru0, ru1, evm, bu0, bu1, fu0, wr0.
    let mut roles = Vec::new();
    while roles.len() < 9 {
        assert!(parent.try_wait().expect("a child of ours").is_none());
        roles = children_of(parent.id());
        std::thread::yield_now();
    }
    let watches: Vec<PeerWatch> = roles
        .iter()
        .map(|number| PeerWatch::process(*number).expect("it lives"))
        .collect();
    parent.kill().expect("it lives");
    parent.wait().expect("a child of ours");
    for (number, watch) in roles.iter().zip(watches) {
        assert!(watch.wait_gone(LONG).expect("a watch"), "{number} lives on");
    }
}

/// As service managers and batch systems do it.
#[test]
fn a_signal_to_all_processes_at_once_ends_the_run_in_order() {
    let _turn = turn();
    let example = std::fs::read_to_string(example()).expect("the example is there");
    for signal in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let parent = live_run::start(&patient(example.clone()), folder.path());
        let mut roles = Vec::new();
        while roles.len() < 9 {
            roles = children_of(parent.id());
            std::thread::yield_now();
        }
        live_run::wait_for_more(&folder.path().join("run/events.mcap"));
        for process in roles.into_iter().chain([parent.id()]) {
            let process = Pid::from_raw(process as i32).expect("it lives");
            kill_process(process, signal).expect("it lives");
        }
        let output = parent.wait_with_output().expect("a child of ours");
        let run = Run::finished(output, folder);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new());
        assert_eq!(run.summary["run"]["condition"], "INTERRUPTED");
    }
}

#[test]
fn a_role_without_a_parent_ends_by_itself() {
    let output = Command::new(env!("CARGO_BIN_EXE_livetime"))
        .args(["role", "fu0"])
        .arg(example())
        .stdin(Stdio::null())
        .output()
        .expect("the built program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("control socket of fu0"));
}
