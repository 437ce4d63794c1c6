//! Runs with a process per role: the same decisions as with threads, and what becomes of a run when
//! processes die, stand still, or lose their parent.
//!
//! Faults come at times, so that how much is lost differs from run to run; what is asserted holds
//! for each: the equations, computed here again from the counters, the events of the file, the
//! decisions, and which causes may have lost anything. That no event is in a file twice is checked
//! by its trigger numbers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use livetime_shm::PeerWatch;
use serde_json::Value;

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(120);

/// One run at a time: each starts more processes than there are cores.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dimuon.toml")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A finished run and its files.
struct Run {
    output: Output,
    summary: Value,
    folder: tempfile::TempDir,
}

impl Run {
    /// Runs the example, edited by `edit`, lossless and with a fixed seed.
    fn of(edit: impl Fn(String) -> String, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = std::fs::read_to_string(example()).expect("the example is there");
        std::fs::write(folder.path().join("run.toml"), edit(config)).expect("a writable folder");
        let output = Command::new(env!("CARGO_BIN_EXE_livetime"))
            .current_dir(folder.path())
            .args(["run", "run.toml", "--lossless", "--seed", "11", "--json"])
            .args(["--out", "run"])
            .args(arguments)
            .output()
            .expect("the built program starts");
        let summary = serde_json::from_slice(&output.stdout);
        let summary = summary.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        Self {
            output,
            summary,
            folder,
        }
    }

    fn errors(&self) -> String {
        text(&self.output.stderr)
    }

    fn count(&self, name: &str) -> u64 {
        self.summary["counts"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Sum of the losses of an area.
    fn lost_in(&self, area: &str) -> u64 {
        let causes = self.summary["losses"][area].as_object();
        let causes = causes.unwrap_or_else(|| panic!("no area {area}"));
        causes.values().filter_map(Value::as_u64).sum()
    }

    /// Causes with losses.
    fn causes(&self) -> BTreeSet<String> {
        let areas = self.summary["losses"].as_object().expect("an object");
        let causes = areas.values().filter_map(Value::as_object).flatten();
        causes
            .filter(|(_, count)| count.as_u64() != Some(0))
            .map(|(cause, _)| cause.clone())
            .collect()
    }

    fn digest(&self) -> &str {
        self.summary["decision_digest"].as_str().expect("a digest")
    }

    /// Trigger numbers in the file, which must be whole and hold no event twice.
    fn stored(&self) -> BTreeSet<u64> {
        let inspect = Command::new(env!("CARGO_BIN_EXE_livetime"))
            .arg("inspect")
            .arg(self.folder.path().join("run/events.mcap"))
            .arg("--triggers")
            .output()
            .expect("the built program starts");
        assert!(inspect.status.success(), "{}", text(&inspect.stderr));
        let listed: Vec<u64> = text(&inspect.stdout)
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect();
        let unique: BTreeSet<u64> = listed.iter().copied().collect();
        assert_eq!(listed.len(), unique.len(), "an event is in the file twice");
        unique
    }

    /// Every equation between the counters, computed here.
    fn assert_accounted(&self) {
        let count = |name| self.count(name);
        let events = count("events_built") + count("events_incomplete");
        for (hop, left, right) in [
            (
                "source",
                count("offered"),
                count("refused") + count("triggers"),
            ),
            (
                "trigger",
                count("triggers"),
                count("l2_accepted") + count("l2_rejected") + self.lost_in("trigger"),
            ),
            (
                "link",
                count("fragments_sent"),
                count("fragments_received") + self.lost_in("link"),
            ),
            (
                "readout",
                count("fragments_received"),
                count("fragments_dropped_by_decision")
                    + count("fragments_in_built")
                    + count("fragments_in_incomplete")
                    + self.lost_in("readout"),
            ),
            (
                "builder",
                count("l2_accepted"),
                events + self.lost_in("builder"),
            ),
            (
                "filter",
                events,
                count("filter_accepted") + count("filter_rejected") + self.lost_in("filter"),
            ),
            (
                "store",
                count("filter_accepted"),
                count("events_stored") + self.lost_in("store"),
            ),
        ] {
            assert_eq!(left, right, "{hop}: {}\n{}", self.summary, self.errors());
        }
        assert_eq!(self.summary["conserved"], true);
        let stored = self.stored();
        assert_eq!(
            stored.len() as u64,
            count("events_stored"),
            "file and counter"
        );
    }
}

/// The example with a builder timeout that no busy machine reaches.
fn patient(config: String) -> String {
    let changed = config.replace("timeout = \"1 s\"", "timeout = \"20 s\"");
    assert_ne!(changed, config);
    changed
}

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
    assert_eq!(processes.stored(), threads.stored());
    assert!(!threads.stored().is_empty());
}

#[test]
fn killed_filter_and_builder_units_are_replaced_and_the_run_goes_on() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", "20000"]);
    for (role, allowed) in [
        ("fu0", &["filter_lost"][..]),
        ("bu0", &["builder_lost", "filter_lost", "fragment_aborted"]),
    ] {
        let fault = format!("kill:{role}@250ms");
        let run = Run::of(
            patient,
            &["--triggers", "20000", "--processes", "--fault", &fault],
        );
        let errors = run.errors();
        assert!(run.output.status.success(), "{errors}");
        let warning = format!("the process of {role} is gone (signal: 9 (SIGKILL))");
        assert!(errors.contains(&warning), "{errors}");
        assert!(errors.contains("another took its place"), "{errors}");
        run.assert_accounted();
        let allowed: BTreeSet<String> = allowed.iter().map(|cause| cause.to_string()).collect();
        assert!(run.causes().is_subset(&allowed), "{:?}", run.causes());
        assert_eq!(
            run.digest(),
            whole.digest(),
            "decisions do not depend on {role}"
        );
        assert_eq!(run.count("triggers"), 20_000);
        assert!(run.stored().is_subset(&whole.stored()));
    }
}

#[test]
fn two_deaths_of_one_unit_and_one_of_another_are_survived() {
    let _turn = turn();
    let faults = ["kill:fu0@200ms", "kill:bu1@350ms", "kill:fu0@500ms"];
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
            "kill:fu1@250ms",
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
            "kill:bu0@250ms",
        ],
    );
    assert_eq!(run.output.status.code(), Some(1), "{}", run.errors());
    assert!(run.errors().contains("the run ends"), "{}", run.errors());
    run.assert_accounted();
    assert!(run.count("triggers") < 20_000);
}

#[test]
fn the_loss_of_any_other_role_ends_the_run_and_names_it() {
    let _turn = turn();
    for role in ["src0", "trg0", "ru1", "evm"] {
        let fault = format!("kill:{role}@250ms");
        let run = Run::of(
            patient,
            &["--triggers", "30000", "--processes", "--fault", &fault],
        );
        let errors = run.errors();
        assert_eq!(run.output.status.code(), Some(1), "{role}: {errors}");
        assert!(
            errors.contains(&format!("process of {role} is gone")),
            "{errors}"
        );
        run.assert_accounted();
        let condition = run.summary["run"]["condition"].as_str().expect("a text");
        assert!(condition.contains("ABORTED"), "{role}: {condition}");
    }
}

#[test]
fn standing_still_for_a_while_is_no_death() {
    let _turn = turn();
    let whole = Run::of(patient, &["--triggers", "20000"]);
    let faults = [
        "stop:fu0@150ms+200ms",
        "stop:bu1@200ms+200ms",
        "stop:ru0@250ms+200ms",
        "stop:evm@300ms+200ms",
        "stop:trg0@350ms+200ms",
        "stop:src0@400ms+200ms",
    ];
    let mut arguments = vec!["--triggers", "20000", "--processes"];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", *fault]));
    let run = Run::of(patient, &arguments);
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(!run.errors().contains("is gone"), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.digest(), whole.digest());
    assert_eq!(run.stored(), whole.stored());
}

#[test]
fn links_of_one_readout_unit_go_down_and_come_back() {
    let _turn = turn();
    let run = Run::of(
        |config| config,
        &[
            "--triggers",
            "20000",
            "--processes",
            "--fault",
            "link-down:ru0@200ms+50ms",
        ],
    );
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.count("triggers"), 20_000);
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
    refused(
        &["--processes", "--fault", "kill:wr0@1s"],
        "wr0 is the parent itself",
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
    // src0, trg0, ru0, ru1, evm, bu0, bu1, fu0; the writer is in the parent.
    let mut roles = Vec::new();
    while roles.len() < 8 {
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
