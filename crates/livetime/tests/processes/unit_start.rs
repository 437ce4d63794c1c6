//! Processes that are started while a run goes on, and die while they start, or join and leave often.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::copied_program::copy_program;
use crate::live_run::{find_process, order, process_of, start_with};
use crate::process_run::{Lines, Run, example, patient, turn};

/// What starts the roles in place of the program, which is beside it: a role for which there is a
/// file `kill-ROLE-N` dies at once and takes the file with it, with `always-ROLE` each dies.
const SCRIPT: &str = "#!/bin/sh\n\
    if [ \"$1\" = role ]; then\n\
    rm \"kill-$2-1\" 2>/dev/null && kill -9 $$\n\
    rm \"kill-$2-2\" 2>/dev/null && kill -9 $$\n\
    [ -e \"always-$2\" ] && kill -9 $$\n\
    fi\n\
    exec \"$PWD/real\" \"$@\"\n";

/// Starts a run with these filter units and without an end, whose roles are started by the script from
/// now on.
fn started(folder: &Path, units: &str) -> Child {
    let config = fs::read_to_string(example()).expect("the example is there");
    let config = patient(config).replace("units = 1", units);
    fs::write(folder.join("run.toml"), config).expect("a writable folder");
    let program = folder.join("livetime");
    copy_program(&folder.join("real"));
    fs::hard_link(folder.join("real"), &program).expect("a writable folder");
    let child = Command::new(&program)
        .current_dir(folder)
        .args(["run", "run.toml", "--lossless", "--duration", "600s"])
        .args(["--json", "--processes", "--out", "run"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built program starts");
    while order(folder, &["status"]).is_err() {
        std::thread::yield_now();
    }
    // The path stands for something else, as after an installation.
    fs::remove_file(&program).expect("it is ours");
    fs::write(&program, SCRIPT).expect("a writable folder");
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&program, all).expect("it is ours");
    child
}

/// Gives an order until it is obeyed.
fn order_until_obeyed(folder: &Path, words: &[&str]) {
    while let Err(error) = order(folder, words) {
        // The unit before has not ended yet.
        assert!(error.contains("units_max"), "{error}");
        std::thread::yield_now();
    }
}

fn mark(folder: &Path, name: &str) {
    fs::write(folder.join(name), "").expect("a writable folder");
}

/// Ends a run by a signal; what it leaves.
fn ended(child: Child, folder: tempfile::TempDir) -> Run {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it lives");
    ended_lines(Lines::of(child), folder)
}

fn ended_lines(lines: Lines, folder: tempfile::TempDir) -> Run {
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
    run
}

#[test]
fn a_filter_unit_that_dies_while_it_starts_has_not_joined() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let child = started(folder.path(), "units = 1\nunits_max = 2");
    mark(folder.path(), "always-fu1");
    for _ in 0..2 {
        let error = order(folder.path(), &["filter", "add"]).expect_err("it dies");
        assert!(error.contains("fu1 cannot be started"), "{error}");
        let error = order(folder.path(), &["filter", "remove", "fu1"]).expect_err("none is there");
        assert!(error.contains("no such filter unit"), "{error}");
    }
    fs::remove_file(folder.path().join("always-fu1")).expect("it is there");
    let joined = order(folder.path(), &["filter", "add"]);
    assert_eq!(joined.as_deref(), Ok("fu1 has joined"));
    let run = ended(child, folder);
    assert_eq!(run.causes(), BTreeSet::new());
}

/// Two pairs of muons.
const EVENTS: &str = "\
Run,Event,pt1,eta1,phi1,Q1,dxy1,iso1,pt2,eta2,phi2,Q2,dxy2,iso2
163817,176078026,44.8,0.3,1.2,1,0.01,0.1,41.2,-0.4,-1.9,-1,0.02,0.1
163817,176078027,5.1,0.3,0.2,-1,0.01,0.1,6.2,-0.4,-2.9,1,0.02,0.1
";

/// Whoever prepares the next run changes files that this one was started with.
#[test]
fn a_role_starts_again_whatever_became_of_the_files_that_the_run_was_started_with() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [config, events] = ["run.toml", "events.csv"].map(|name| folder.path().join(name));
    fs::write(&events, EVENTS).expect("a writable folder");
    let text = fs::read_to_string(example()).expect("the example is there");
    let text = patient(text).replace("units = 1", "units = 2\nunits_max = 3");
    let options = ["--processes", "--lossless", "--events", "events.csv"];
    let child = start_with(&text, folder.path(), &options);
    while order(folder.path(), &["status"]).is_err() {
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    let mut lines = Lines::of(child);
    let place = folder.path().canonicalize().expect("it is there");
    let mut replaced = 0;
    let mut replace = |role: &str| {
        kill_process(process_of(&place, role), Signal::KILL).expect("it lives");
        replaced += 1;
        lines.wait_for("another took its place", replaced);
    };
    fs::remove_file(&events).expect("it is there");
    replace("fu0");
    fs::write(&config, text + "# of the next run\n").expect("it is ours");
    replace("bu0");
    fs::remove_file(&config).expect("it is there");
    replace("evm");
    let joined = order(folder.path(), &["filter", "add"]);
    assert_eq!(joined.as_deref(), Ok("fu2 has joined"));
    kill_process(pid, Signal::INT).expect("it lives");
    let run = ended_lines(lines, folder);
    assert_eq!(run.causes(), BTreeSet::new());
}

#[test]
fn a_role_whose_successor_dies_while_it_starts_gets_another() {
    let _turn = turn();
    for role in ["fu0", "bu0", "evm", "wr0"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let child = started(folder.path(), "units = 2");
        mark(folder.path(), &format!("kill-{role}-1"));
        mark(folder.path(), &format!("kill-{role}-2"));
        let place = folder.path().canonicalize().expect("it is there");
        kill_process(process_of(&place, role), Signal::KILL).expect("it lives");
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        let mut lines = Lines::of(child);
        lines.wait_for("another took its place", 1);
        assert!(!folder.path().join(format!("kill-{role}-2")).exists());
        kill_process(pid, Signal::INT).expect("it lives");
        let run = ended_lines(lines, folder);
        let lost = run.causes();
        let may_be = BTreeSet::from(["writer_lost".to_owned()]);
        assert!(lost.is_subset(&may_be), "{role}: {lost:?}");
    }
}

/// Children of a process that have ended and are not waited for.
fn zombies_of(process: u32) -> usize {
    let entries = fs::read_dir("/proc")
        .expect("a system with /proc")
        .flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let is_one = |stat: &String| {
        let mut rest = stat
            .rsplit_once(") ")
            .map_or("", |(_, rest)| rest)
            .split(' ');
        rest.next() == Some("Z") && rest.next() == Some(process.to_string().as_str())
    };
    stats.filter(is_one).count()
}

#[test]
fn filter_units_that_join_and_leave_cost_no_place_of_those_that_die() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let child = started(folder.path(), "units = 1\nunits_max = 2");
    // More than processes may be started again.
    for _ in 0..66 {
        order_until_obeyed(folder.path(), &["filter", "add"]);
        order_until_obeyed(folder.path(), &["filter", "remove", "fu1"]);
    }
    while zombies_of(child.id()) > 0 {
        std::thread::yield_now();
    }
    let place = folder.path().canonicalize().expect("it is there");
    kill_process(process_of(&place, "fu0"), Signal::KILL).expect("it lives");
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    let mut lines = Lines::of(child);
    lines.wait_for("another took its place", 1);
    kill_process(pid, Signal::INT).expect("it lives");
    let run = ended_lines(lines, folder);
    assert_eq!(run.causes(), BTreeSet::new());
}

#[test]
fn filter_units_may_die_at_any_moment_while_others_join_and_leave() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let units = "units = 2\nunits_max = 6\nsubfarms = 2";
    let child = started(folder.path(), units);
    let place = folder.path().canonicalize().expect("it is there");
    let is_over = AtomicBool::new(false);
    let orders: [&[&str]; 3] = [
        &["filter", "add"],
        &["filter", "remove"],
        &["filter", "remove", "fu0"],
    ];
    std::thread::scope(|scope| {
        for words in orders {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Most are refused: there is none that could join or leave.
                    let _answer = order(&place, words);
                }
            });
        }
        let mut killed = 0;
        while killed < 24 {
            // It may be gone by now, or not be there at this moment.
            let found = find_process(&place, &format!("fu{}", killed % 6));
            let _gone = found.map(|pid| kill_process(pid, Signal::KILL));
            killed += 1;
            let status = order(&place, &["status"]);
            assert!(status.is_ok(), "{status:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let run = ended(child, folder);
    assert_eq!(run.causes(), BTreeSet::new());
}

/// Whatever the limit is, all of a run begins or nothing of it. Needs root to become a user of whom nothing
/// else runs.
#[test]
fn a_run_for_which_there_are_too_few_processes_leaves_nothing() {
    const OTHER: &str = "54322";
    let _turn = turn();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: no root, so nobody else can be played");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("livetime");
    copy_program(&program);
    fs::copy(example(), folder.path().join("run.toml")).expect("a writable folder");
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(folder.path(), all).expect("it is ours");
    let mut refused = 0;
    for limit in 4.. {
        let output = Command::new("prlimit")
            .current_dir(folder.path())
            .arg(format!("--nproc={limit}"))
            .args(["setpriv", "--reuid", OTHER, "--regid", OTHER])
            .arg("--clear-groups")
            .arg(&program)
            .args(["run", "run.toml", "--triggers", "100", "--lossless"])
            .args(["--processes", "--out", "run"])
            .output()
            .expect("prlimit starts");
        let said = crate::process_run::text(&output.stderr);
        if output.status.success() {
            break;
        }
        refused += 1;
        assert_eq!(output.status.code(), Some(1), "{limit}: {said}");
        assert!(!said.contains("is gone"), "{limit}: {said}");
        assert!(!folder.path().join("run").exists(), "{limit}: {said}");
    }
    assert!(refused > 10, "{refused} limits are too low for nine roles");
}
