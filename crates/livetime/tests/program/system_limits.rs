//! Limits of the system on threads and open files: each is named with what raises it, and nothing is left
//! of what could not begin.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::copied_program::copy_program;
use crate::workbench::{Finished, SMALL, Workbench, changed, finished};

/// A user who has nothing else running, so that the limit counts this program alone.
const NOBODY_ELSE: u32 = 54_322;

/// Runs the program as a user who may have no thread but the first.
fn without_threads(bench: &Workbench, arguments: &[&str]) -> Finished {
    let mut shell = Command::new("sh");
    let script = "ulimit -p 1 2>/dev/null || ulimit -u 1 && exec ./livetime \"$@\"";
    shell.args(["-c", script, "sh"]).args(arguments);
    shell.current_dir(bench.path("."));
    shell.uid(NOBODY_ELSE).gid(NOBODY_ELSE);
    finished(shell)
}

#[test]
fn who_gets_no_thread_names_the_limit() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: no root, so nobody else can be played");
        return;
    }
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    copy_program(&bench.path("livetime"));
    for name in [".", "livetime"] {
        let everybody = Permissions::from_mode(0o777);
        fs::set_permissions(bench.path(name), everybody).expect("it is ours");
    }
    for arguments in [
        &["run", "small.toml", "--triggers", "10"][..],
        &["bench", "floor", "--quick"],
        &["bench", "ring", "--quick"],
        &["timing", "serve", "--socket", "t.sock"],
        &["timing", "serve", "--socket", "t.sock", "--fifo", "3"],
    ] {
        let done = without_threads(&bench, arguments).ended_with(1);
        assert!(
            done.err.contains("`ulimit -u`"),
            "{arguments:?}: {}",
            done.err
        );
        assert!(!done.err.contains("bug"), "{}", done.err);
    }
    assert!(!bench.path("runs").exists(), "nothing has begun");
    let doctor = without_threads(&bench, &["doctor", "--quick", "--only", "8", "--json"]);
    let check = doctor.ended_with(0).document()["checks"][0].clone();
    assert_eq!(check["status"], "unknown", "{check}");
}

#[test]
fn a_run_without_open_files_names_the_limit_and_leaves_nothing() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let options = ["--triggers", "10", "--lossless", "--json"];
    let mut refused = 0;
    for files in 8.. {
        let arguments = [&["run", "small.toml"], &options[..]].concat();
        let run = finished(bench.command_after(&format!("ulimit -n {files}"), &arguments));
        if run
            .err
            .lines()
            .any(|line| line.starts_with("warning: this run takes no orders"))
        {
            break;
        }
        if run.code == Some(0) {
            break;
        }
        refused += 1;
        assert!(run.err.contains("`ulimit -n`"), "{files}: {}", run.err);
        let left = fs::read_dir(bench.path("runs"))
            .into_iter()
            .flatten()
            .flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(
            left.iter().all(|name| name == "counter"),
            "{files}: {left:?}"
        );
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_run_of_many_files_is_exported_where_few_may_be_open() {
    let bench = Workbench::new();
    let store = "chunk = \"4 KiB\"\nfile_max = \"64 KiB\"";
    let config = changed(SMALL, "chunk = \"16 KiB\"", store);
    let config = changed(&config, "bytes_mean = \"512 B\"", "bytes_mean = \"4 KiB\"");
    bench.write("small.toml", config);
    let options = ["--triggers", "8000", "--lossless", "--out", "out"];
    let arguments = [&["run", "small.toml"], &options[..]].concat();
    bench.run(&arguments).ended_with(0);
    let files = livetime_client::RunFolder::paths(&bench.path("out")).expect("it is there");
    // A writer that is behind makes fewer and longer files.
    assert!(files.len() >= 12, "{} files", files.len());
    let limit = format!("ulimit -n {}", files.len().min(24));
    let export = ["export", "out", "--format", "bytestream", "--out"];
    let at_limit = [&export[..], &["few.bs"]].concat();
    finished(bench.command_after(&limit, &at_limit)).ended_with(0);
    bench
        .run(&[&export[..], &["all.bs"]].concat())
        .ended_with(0);
    let read = |name: &str| fs::read(bench.path(name)).expect("it is there");
    assert!(read("few.bs") == read("all.bs"));
}
