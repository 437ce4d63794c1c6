//! A building group whose processes die together, or whose writer is not replaced: the run goes on
//! with the others, and every event is in one file or lost with the writer.

use std::collections::BTreeSet;

use livetime_client::RunFolder;

use crate::process_run::{Run, keeping_all, patient, turn};

const TRIGGERS: [&str; 3] = ["--triggers", "12000", "--processes"];
/// Triggers before the failure.
const BEFORE: u64 = 4000;

/// Two groups, and what is done when a writer is lost. Everything is stored.
fn in_two_groups(on_loss: &str) -> impl Fn(String) -> String {
    let store = format!("[store]\nwriters = 2\non_loss = \"{on_loss}\"\n");
    move |config| {
        let config = keeping_all(patient(config));
        let config = config.replace("units = 1", "units = 2\nsubfarms = 2");
        config.replace("[store]\n", &store)
    }
}

/// A run in which these roles are killed at once.
fn killing(roles: &[&str], edit: impl Fn(String) -> String) -> Run {
    let faults = roles
        .iter()
        .map(|role| format!("kill:{role}@{BEFORE}triggers"));
    let faults: Vec<String> = faults.collect();
    let faults = faults.iter().flat_map(|fault| ["--fault", fault]);
    let arguments: Vec<&str> = TRIGGERS.into_iter().chain(faults).collect();
    Run::of(edit, &arguments)
}

/// What is asserted of each run that went on: `whole` is one that nothing happened to.
fn assert_goes_on(run: &Run, whole: &Run) {
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.digest(), whole.digest());
    assert_eq!(run.count("triggers"), whole.count("triggers"));
    run.assert_only_writer_lost();
    let (stored, all) = (run.stored(), whole.stored());
    assert!(stored.is_subset(&all), "nothing is made up");
    let missing = (all.len() - stored.len()) as u64;
    assert_eq!(missing, run.lost_in("store"), "{}", run.errors());
    let after = |stored: &BTreeSet<u64>| stored.range(2 * BEFORE..).count();
    assert_eq!(after(&stored), after(&all), "the others store everything");
    assert!(after(&stored) > 0);
}

/// The file of the second writer has none, and does not hide those of the first.
fn assert_histograms_found(run: &Run) {
    let folder = RunFolder::open(&run.folder.path().join("run"));
    let histograms = folder.expect("the files open").histograms();
    let histograms = histograms
        .expect("the files are read")
        .expect("there are some");
    let decisions = histograms.iter().find(|h| h.name() == "decision_latency");
    let counted = decisions.expect("that of the decisions").total();
    assert_eq!(counted, run.count("triggers") as f64);
}

#[test]
fn a_group_that_dies_leaves_the_run_to_the_others() {
    let _turn = turn();
    let whole = Run::of(in_two_groups("restart"), &TRIGGERS);
    assert!(whole.stored().len() > 500, "everything is stored");
    assert_histograms_found(&whole);
    for roles in [&["bu1", "fu1", "wr1"][..], &["wr1"], &["wr0", "fu0"]] {
        let run = killing(roles, in_two_groups("continue"));
        assert_goes_on(&run, &whole);
        let errors = run.errors();
        let went_on = errors.matches("the others go on").count();
        assert!(went_on >= 2, "{roles:?}: {errors}");
        assert_eq!(run.lost_writers(), 1, "{roles:?}");
        let condition = run.summary["run"]["condition"].as_str();
        let condition = condition.expect("a text");
        assert!(!condition.contains("INTERRUPTED"), "{roles:?}: {condition}");
        let writers = run.summary["writers"].as_array().expect("a list");
        let lost = usize::from(roles.contains(&"wr1"));
        assert_eq!(writers[lost]["lost"], true, "{roles:?}");
        let stored = |writer: usize| writers[writer]["events_stored"].as_u64().expect("a count");
        assert_eq!(stored(0) + stored(1), run.count("events_stored"));
        assert!(stored(1 - lost) > stored(lost), "{roles:?}");
    }
}

/// With `restart` all of them are replaced, and what had left the group is not built again.
#[test]
fn a_group_that_dies_at_once_is_started_again() {
    let _turn = turn();
    let whole = Run::of(in_two_groups("restart"), &TRIGGERS);
    let run = killing(&["bu1", "fu1", "wr1"], in_two_groups("restart"));
    assert_goes_on(&run, &whole);
    assert_eq!(run.lost_writers(), 0);
}

#[test]
fn the_run_ends_where_the_policy_says_so_or_no_group_is_left() {
    let _turn = turn();
    let stop = |config: String| {
        let config = in_two_groups("continue")(config);
        config.replace("[builder]\n", "[builder]\non_loss = \"stop\"\n")
    };
    for (roles, edit) in [
        (&["wr1"][..], &stop as &dyn Fn(String) -> String),
        (&["wr0", "wr1"], &in_two_groups("continue")),
    ] {
        let run = killing(roles, edit);
        assert_eq!(run.output.status.code(), Some(1), "{roles:?}");
        assert!(run.errors().contains("the run ends"), "{}", run.errors());
        run.assert_accounted();
    }
}
