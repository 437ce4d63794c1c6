//! What a crash leaves: a lock nobody holds, a socket nobody answers, a run file without an end.

use std::fs;
use std::process::{Command, Stdio};

use crate::process_run::{example, text, turn};

fn livetime(folder: &tempfile::TempDir, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder.path())
        .args(arguments)
        .output()
        .expect("the built program starts");
    let code = output.status.code();
    (code, text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_directory_of_a_killed_run_is_refused_by_name_and_its_file_can_be_read() {
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
    let file = folder.path().join("run/events.mcap");
    while fs::metadata(&file).map_or(0, |about| about.len()) < 50_000 {
        assert!(parent.try_wait().expect("a child of ours").is_none());
        std::thread::yield_now();
    }
    parent.kill().expect("it lives");
    parent.wait().expect("a child of ours");
    assert!(folder.path().join("run/lock").exists());
    assert!(folder.path().join("run/control").exists());

    let run = example();
    let run = run.to_str().expect("a plain path");
    let again = ["run", run, "--triggers", "10", "--out", "run"];
    let (code, _, errors) = livetime(&folder, &again);
    assert_eq!(code, Some(1));
    assert!(errors.contains("already holds a run"), "{errors}");
    let (code, _, errors) = livetime(&folder, &["steer", "run", "filter", "add"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("no run takes orders"), "{errors}");
    let (code, found, _) = livetime(&folder, &["inspect", "run/events.mcap", "--json"]);
    assert_eq!(code, Some(1), "it has no end-of-run record");
    assert!(found.contains("\"checksum_errors\":0"), "{found}");
    let (code, _, errors) = livetime(&folder, &["report", "run"]);
    assert_eq!(code, Some(1));
    let help = "the run did not end in order; `livetime inspect run` says what is in its files";
    assert!(errors.contains(help), "{errors}");

    // Without the files of a run the directory is as good as new, whatever else was left.
    fs::remove_file(&file).expect("the folder is ours");
    let (code, _, errors) = livetime(&folder, &again);
    assert_eq!(code, Some(1));
    assert!(errors.contains("a part of one: config.toml;"), "{errors}");
    fs::remove_file(folder.path().join("run/config.toml")).expect("the folder is ours");
    let (code, _, errors) = livetime(&folder, &again);
    assert_eq!(code, Some(0), "{errors}");
    assert!(!folder.path().join("run/control").exists());
}
