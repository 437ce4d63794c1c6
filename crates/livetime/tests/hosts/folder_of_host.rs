//! Hosts whose folders are not those of the coordinator: where they look for files, and where the run
//! file is.

use std::path::Path;
use std::process::{Command, Output};

use crate::process_run::{Run, text, turn};
use crate::start_of_hosts::launched_by;
use crate::{LOCAL, host};

/// A run of this configuration in a folder.
fn run_in(folder: &Path, config: &str) -> Output {
    std::fs::write(folder.join("run.toml"), config).expect("a writable folder");
    Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder)
        .args(["run", "run.toml", "--lossless", "--json"])
        .args(["--triggers", "600", "--out", "run"])
        .output()
        .expect("the built program starts")
}

/// A launcher may start a host anywhere. One without roles is told when the run is over, too.
#[test]
fn relative_files_are_looked_for_where_the_run_was_started() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rows = "Run,Event,pt1,eta1,phi1,Q1,dxy1,iso1\n7,2,30,0.5,1.0,1,0,0\n";
    std::fs::write(folder.path().join("events.csv"), rows).expect("a writable folder");
    let recorded = "[[source]]\nkind = \"recorded\"\nevents = \"events.csv\"";
    let config = launched_by("{command}", "cd / && {command}") + &host("idle", "", LOCAL);
    let config = config.replace("[[source]]\nkind = \"physics\"", recorded);
    let run = Run::finished(run_in(folder.path(), &config), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(!run.errors().contains("error"), "{}", run.errors());
    run.assert_accounted();
}

#[test]
fn a_run_file_in_a_folder_that_only_its_host_has_is_named() {
    let _turn = turn();
    let may_mount = ["-m", "mount", "-t", "tmpfs", "none", "/mnt"];
    let tried = Command::new("unshare").args(may_mount).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        println!("SKIPPED: no mount namespaces here");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().display();
    // The folder that the shell stands in is the coordinator's still.
    let apart = format!(
        "unshare -m sh -c 'mount -t tmpfs none {path} && {{command}}; cp {path}/run/events.mcap .'"
    );
    let config = launched_by("{command}", &apart);
    let run = Run::finished(run_in(folder.path(), &config), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    let file = run.folder.path().join("run/events.mcap");
    let writer = &run.summary["writers"][0];
    assert_eq!(writer["elsewhere"], true, "{writer}");
    assert_eq!(writer["file"], file.display().to_string());

    let inspect = || {
        Command::new(env!("CARGO_BIN_EXE_livetime"))
            .arg("inspect")
            .arg(run.folder.path().join("run"))
            .output()
            .expect("the built program starts")
    };
    let found = inspect();
    let place = format!("  elsewhere: file building:{}\n", file.display());
    assert!(
        text(&found.stdout).contains(&place),
        "{}",
        text(&found.stdout)
    );
    let help = text(&found.stderr);
    assert!(help.contains("copy the files of other hosts"), "{help}");

    std::fs::rename(run.folder.path().join("events.mcap"), file).expect("the host has copied it");
    let found = inspect();
    assert!(found.status.success(), "{}", text(&found.stdout));
    assert!(!text(&found.stdout).contains("elsewhere"));
    run.assert_accounted();
}
