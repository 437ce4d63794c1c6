//! Readers that go away: `| head`, a closed terminal, a `tee` that Ctrl-C ended first.

use std::process::Stdio;

use rustix::process::Signal;

use crate::workbench::{SMALL, Workbench, finished};

#[test]
fn a_reader_that_has_seen_enough_is_no_bug_of_ours() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let source = ["source", "small.toml", "--triggers", "2000"];
    let run = ["run", "small.toml", "--triggers", "100", "--lossless"];
    let export = ["export", "runs/000001", "--format", "bytestream"];
    for arguments in [
        &["explain"][..],
        &["explain", "B0107"],
        &["check", "small.toml"],
        &source,
        &["sim", "small.toml", "--triggers", "100"],
        &run,
        &export,
    ] {
        let mut command = bench.command(arguments);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        command.stdout(Stdio::from(writer));
        let ended = finished(command).ended_with(0);
        assert!(!ended.err.contains("error"), "{arguments:?}: {}", ended.err);
    }
    assert_eq!(bench.inspect("runs/000001/events.mcap")["complete"], true);
}

#[test]
fn a_run_that_nobody_listens_to_ends_in_order() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let mut running = bench.start(&["run", "small.toml"]);
    running.wait_for_bytes(&bench.path("runs/000001/events.mcap"), 20_000);
    let deaf = running.stop_listening();
    deaf.signal(Signal::INT);
    assert_eq!(deaf.wait().code(), Some(0));
    let inspected = bench.inspect("runs/000001/events.mcap");
    assert_eq!(inspected["complete"], true);
    assert_eq!(inspected["condition"], "INTERRUPTED");
}
