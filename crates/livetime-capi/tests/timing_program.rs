//! Programs in C over the timing client, compiled and run against a daemon of this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use livetime_timing_daemon::{Daemon, DaemonConfig};

/// Compiles a program of this crate into `folder`.
fn compile(folder: &Path, source: &str) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("program");
    let library = std::env::current_exe().unwrap();
    let library = library.parent().unwrap().join("liblivetime_capi.a");
    let compiled = Command::new(std::env::var("CC").unwrap_or("cc".to_owned()))
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-O1",
        ])
        .arg("-I")
        .arg(crate_folder.join("include"))
        .arg(crate_folder.join(source))
        .arg("-o")
        .arg(&program)
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"])
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    program
}

fn daemon(folder: &Path) -> (Daemon, PathBuf) {
    let socket = folder.join("t.sock");
    let mut config = DaemonConfig::for_user(folder.metadata().unwrap().uid());
    config.socket = Some(socket.clone());
    (Daemon::start(&config).unwrap(), socket)
}

/// What the program writes, which must succeed.
fn output(program: &Path, socket: &Path) -> String {
    let output = Command::new(program).arg(socket).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_c_program_hears_what_it_injects() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "examples/listen_timing.c");
    let (daemon, socket) = daemon(folder.path());
    assert_eq!(
        output(&program, &socket),
        "message 0x1123000000000000 param 100 number 0\n\
         message 0x1123000000000001 param 101 number 1\n\
         message 0x1123000000000002 param 102 number 2\n"
    );
    drop(daemon);
    let refused = Command::new(&program).arg(&socket).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("livetime timing serve"), "{said}");
}

#[test]
fn children_are_refused_at_once_and_leave_their_parents_listener_alone() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "tests/programs/fork_listener.c");
    let (_daemon, socket) = daemon(folder.path());
    assert_eq!(output(&program, &socket), "kind 1 id 9 param 10\n");
}
