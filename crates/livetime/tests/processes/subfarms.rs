//! Converters with filter units of their own: events stay in their subfarm, whoever dies or leaves.

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};

use crate::filter_units::{endless, steer};
use crate::process_run::{Lines, Run, patient, text, turn};

/// The two converters of the example with two filter units each.
fn in_subfarms(config: String) -> String {
    patient(config).replace("units = 1", "units = 4\nsubfarms = 2")
}

/// The same with a writer for each subfarm.
fn with_writers(config: String) -> String {
    in_subfarms(config).replace("[store]\n", "[store]\nwriters = 2\n")
}

/// Events that a filter unit has judged.
fn judged(run: &Run, role: &str) -> u64 {
    let details = run.summary["roles"][role].as_object().expect("an object");
    let reasons = details
        .iter()
        .filter(|(name, _)| name.starts_with("reason."));
    reasons.filter_map(|(_, count)| count.as_u64()).sum()
}

#[test]
fn the_events_of_a_converter_go_to_its_own_filter_units() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", "8000"]);
    for arguments in [
        &["--triggers", "8000"][..],
        &["--triggers", "8000", "--processes"],
    ] {
        let run = Run::of(in_subfarms, arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new());
        assert_eq!(
            (run.digest(), run.contents()),
            (whole.digest(), whole.contents())
        );
        for (converter, processors) in [("bu0", ["fu0", "fu2"]), ("bu1", ["fu1", "fu3"])] {
            let handed = run.summary["roles"][converter]["tickets"].as_u64();
            let judged: u64 = processors.iter().map(|role| judged(&run, role)).sum();
            assert_eq!(handed, Some(judged), "{converter} {arguments:?}");
            assert!(judged > 0, "{converter}");
        }
    }
}

#[test]
fn a_dead_filter_unit_is_stood_in_for_in_its_subfarm_or_the_run_ends() {
    let _turn = turn();
    let go_on =
        |config| in_subfarms(config).replace("subfarms", "on_loss = \"continue\"\nsubfarms");
    let whole = Run::of(patient, &["--triggers", "8000"]);
    let fault = [
        "--triggers",
        "8000",
        "--processes",
        "--fault",
        "kill:fu3@2000triggers",
    ];
    let run = Run::of(go_on, &fault);
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(
        run.errors().contains("the others go on"),
        "{}",
        run.errors()
    );
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(
        (run.digest(), run.contents()),
        (whole.digest(), whole.contents())
    );

    let second = ["--fault", "kill:fu1@4000triggers"];
    let run = Run::of(go_on, &[&fault[..], &second].concat());
    assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
    let said = "it was the last filter unit of its subfarm";
    assert!(run.errors().contains(said), "{}", run.errors());
    run.assert_accounted();
}

#[test]
fn writers_of_subfarms_store_what_one_writer_stores() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", "8000"]);
    for arguments in [
        &["--triggers", "8000"][..],
        &["--triggers", "8000", "--processes"],
    ] {
        let run = Run::of(with_writers, arguments);
        assert!(run.output.status.success(), "{}", run.errors());
        run.assert_accounted();
        assert_eq!(run.causes(), BTreeSet::new());
        assert_eq!(
            (run.digest(), run.contents()),
            (whole.digest(), whole.contents())
        );
        assert_eq!(run.summary["counts"], whole.summary["counts"]);
        let writers = run.summary["writers"].as_array().expect("a list");
        let stored = writers.iter().map(|writer| {
            let events = writer["events_stored"].as_u64().expect("a count");
            assert!(events > 0, "{writer}");
            events
        });
        assert_eq!(stored.sum::<u64>(), run.count("events_stored"));
        let files = writers.iter().map(|writer| writer["file"].as_str());
        let files: Vec<&str> = files.map(|file| file.expect("a path")).collect();
        assert_eq!(files, ["run/events.mcap", "run/events-1.mcap"]);
    }
}

#[test]
fn a_dead_writer_is_replaced_in_its_subfarm() {
    let _turn = turn();
    for role in ["wr0", "wr1", "fu1", "bu1"] {
        let fault = format!("kill:{role}@2000triggers");
        let arguments = ["--triggers", "8000", "--processes", "--fault", &fault];
        let run = Run::of(with_writers, &arguments);
        assert!(run.output.status.success(), "{role}: {}", run.errors());
        assert!(run.errors().contains(role), "{role}: {}", run.errors());
        run.assert_accounted();
        let causes = run.causes();
        let may_lose = BTreeSet::from(["writer_lost".to_owned()]);
        assert!(
            causes.is_empty() || (role.starts_with("wr") && causes == may_lose),
            "{role}: {causes:?}"
        );
    }
}

#[test]
fn filter_units_join_where_the_fewest_are_and_leave_where_the_most_are() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let running = endless(&folder, "units = 2\nunits_max = 5\nsubfarms = 2", &[]);
    let order = |words: &[&str], refused: &str| steer(&folder, words, refused);
    assert_eq!(order(&["filter", "add"], "-"), "fu2 has joined");
    assert_eq!(order(&["filter", "add"], "-"), "fu3 has joined");
    assert_eq!(order(&["filter", "add"], "-"), "fu4 has joined");
    assert_eq!(order(&["filter", "remove"], "-"), "fu4 is leaving");
    assert_eq!(order(&["filter", "remove", "fu1"], "-"), "fu1 is leaving");
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder.path())
        .args(["steer", "run", "filter", "remove", "fu3"])
        .output()
        .expect("the built program starts");
    let errors = text(&refused.stderr);
    let said = "fu3 is the last filter unit of its subfarm";
    assert!(errors.contains(said), "{errors}");
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
