//! Readers that go away: `| head`, a closed terminal, a `tee` that Ctrl-C ended first. And those that
//! stay and read nothing: a pager, a terminal after Ctrl-S.

use std::io::{ErrorKind, PipeReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use crate::workbench::{SMALL, Workbench, assert_conserved, finished};

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

/// A pipe that is full, and what reads from it or does not.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a pipe has flags");
    loop {
        match writer.write(b".") {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    fcntl_setfl(&writer, OFlags::empty()).expect("a pipe has flags");
    (reader, Stdio::from(writer))
}

/// Waits until a file has so many bytes, while the program goes on.
fn wait_for_bytes(child: &mut Child, file: &Path, bytes: u64) {
    while file.metadata().map_or(0, |about| about.len()) < bytes {
        let ended = child.try_wait().expect("it is our child");
        assert!(ended.is_none(), "it ended before {}", file.display());
        std::thread::yield_now();
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it is our child");
}

/// The program says that it begins, and everything after that, to a reader that does not read.
#[test]
fn a_run_goes_on_and_ends_while_nobody_reads_what_it_says() {
    type End = fn(&Workbench, &Child);
    let ends: [(&str, End); 5] = [
        ("--duration=3s", |_, _| {}),
        ("--duration=1h", |_, child| signal(child, Signal::TERM)),
        ("--duration=1h", |_, child| {
            signal(child, Signal::INT);
            signal(child, Signal::INT);
        }),
        ("--duration=1h", |bench, _| {
            bench.run(&["steer", "out", "status"]).ended_with(0);
            bench.run(&["steer", "out", "abort"]).ended_with(0);
        }),
        ("--duration=1h", |bench, _| {
            bench.run(&["steer", "out", "stop"]).ended_with(0);
        }),
    ];
    for (options, end) in ends {
        let bench = Workbench::new();
        bench.write("small.toml", SMALL);
        let (_unread, talk) = full_pipe();
        let mut command = bench.command(&["run", "small.toml", "--json", "--out", "out", options]);
        command.stdout(Stdio::piped()).stderr(talk);
        let mut child = command.spawn().expect("the built program starts");
        drop(command);
        wait_for_bytes(&mut child, &bench.path("out/events.mcap"), 50_000);
        end(&bench, &child);
        let ended = child.wait_with_output().expect("it is our child");
        assert_eq!(ended.status.code(), Some(0), "{options}");
        let run = serde_json::from_slice(&ended.stdout).expect("one document");
        assert_conserved(&run);
        for file in ["out/summary.json", "out/report.html"] {
            assert!(bench.path(file).is_file(), "{options}: {file}");
        }
        assert_eq!(bench.inspect("out/events.mcap")["complete"], true);
    }
}

/// All of it, once it is read.
#[test]
fn what_a_run_said_while_nobody_read_is_read_in_its_order() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let (mut reader, talk) = full_pipe();
    let mut command = bench.command(&["run", "small.toml", "--out", "out"]);
    command.stdout(Stdio::piped()).stderr(talk);
    let mut child = command.spawn().expect("the built program starts");
    drop(command);
    wait_for_bytes(&mut child, &bench.path("out/events.mcap"), 50_000);
    for note in 0..5 {
        let note = format!("number {note}");
        bench.run(&["steer", "out", "note", &note]).ended_with(0);
    }
    signal(&child, Signal::INT);
    let mut said = String::new();
    reader.read_to_string(&mut said).expect("it is UTF-8");
    assert!(child.wait().expect("it is our child").success(), "{said}");
    let places = ["run 000001", "number 0", "number 1", "number 4", "stopping"];
    let places = places.map(|part| said.find(part).unwrap_or_else(|| panic!("{part}: {said}")));
    assert!(places.is_sorted(), "{said}");
    assert!(!said.contains("not shown"), "{said}");
}

#[test]
fn a_signal_ends_the_wait_for_a_reader_of_the_result() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let (_unread, result) = full_pipe();
    let arguments = ["run", "small.toml", "--triggers", "200", "--lossless"];
    let mut command = bench.command(&[&arguments[..], &["--out", "out"]].concat());
    command.stdout(result).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the built program starts");
    drop(command);
    wait_for_bytes(&mut child, &bench.path("out/report.html"), 1);
    signal(&child, Signal::TERM);
    let ended = child.wait_with_output().expect("it is our child");
    let said = String::from_utf8(ended.stderr).expect("it is UTF-8");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    let expected = "error: cannot write to standard output: nobody reads it";
    assert!(said.contains(expected), "{said}");
    assert_eq!(bench.inspect("out/events.mcap")["condition"], "GOOD");
}
