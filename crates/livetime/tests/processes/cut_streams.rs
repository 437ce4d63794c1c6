//! TCP streams of the event builder that are cut while the units at both ends live: each pair gets
//! another, and what was on its way is asked for again.

use std::collections::BTreeSet;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open,
};

use crate::process_run::{Lines, Run, example, patient, turn};

/// Two groups of one builder unit, one filter unit and one writer each, over TCP.
fn in_groups(config: &str) -> String {
    patient(config.to_owned())
        .replace("[builder]\n", "[builder]\ntransport = \"tcp\"\n")
        .replace("units = 1", "units = 2\nsubfarms = 2")
        .replace("[store]\n", "[store]\nwriters = 2\n")
}

/// The process of a role of a run.
fn process_of(run: u32, role: &str) -> Pid {
    let is_it = |pid: &i32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
        let status = read("status").unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let is_child = parent.is_some_and(|parent| parent.trim() == run.to_string());
        let words = read("cmdline").unwrap_or_default();
        is_child && words.split('\0').nth(2) == Some(role)
    };
    let entries = std::fs::read_dir("/proc").expect("a system with /proc");
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let found = pids.find(is_it).and_then(Pid::from_raw);
    found.unwrap_or_else(|| panic!("{run} has no child for {role}"))
}

/// Shuts every TCP stream of a process down, as a box in the network may; returns how many.
fn cut_streams_of(process: Pid) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a system with /proc");
    let inodes: BTreeSet<&str> = (table.lines())
        .filter_map(|line| line.split_whitespace().nth(9))
        .collect();
    let handle = pidfd_open(process, PidfdFlags::empty()).expect("it lives");
    let folder = format!("/proc/{}/fd", process.as_raw_nonzero());
    let mut cut = 0;
    for entry in std::fs::read_dir(folder).expect("it lives").flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[");
        let inode = inode.and_then(|rest| rest.strip_suffix(']'));
        if !inode.is_some_and(|inode| inodes.contains(inode)) {
            continue;
        }
        let fd = entry.file_name().to_string_lossy().parse();
        let fd = fd.expect("descriptors are numbers");
        let socket = pidfd_getfd(&handle, fd, PidfdGetfdFlags::empty()).expect("it is a child");
        let ended = TcpStream::from(socket).shutdown(Shutdown::Both);
        ended.expect("it was connected");
        cut += 1;
    }
    cut
}

fn bytes_of(file: &Path) -> u64 {
    file.metadata().map_or(0, |about| about.len())
}

/// Waits until a file is larger than it was; how long that takes is of no matter.
fn wait_for_more(file: &Path) {
    let before = bytes_of(file);
    while bytes_of(file) <= before {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The run of a configuration without an end, in processes.
fn start(config: &str, folder: &Path) -> Child {
    std::fs::write(folder.join("run.toml"), config).expect("a writable folder");
    Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder)
        .args(["run", "run.toml", "--lossless", "--duration", "600s"])
        .args(["--processes", "--json", "--out", "run"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built program starts")
}

/// The run of a configuration in which so many streams of a role are cut, all of it, and replaced.
fn with_cut_streams(config: &str, role: &str, streams: usize) -> Run {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let running = start(config, folder.path());
    let id = running.id();
    let mut lines = Lines::of(running);
    let file = folder.path().join("run/events.mcap");
    wait_for_more(&file);
    wait_for_more(&file);
    assert_eq!(cut_streams_of(process_of(id, role)), streams, "of {role}");
    lines.wait_for("was cut; another took its place", streams);
    wait_for_more(&file);
    wait_for_more(&file);
    let pid = Pid::from_raw(id as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it lives");
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    assert!(!run.errors().contains("is gone"), "{}", run.errors());
    run.assert_accounted();
    run
}

/// Fragments that were on their way, or came while there was no stream, are lost under one name.
#[test]
fn a_cut_data_link_is_replaced_and_what_it_lost_is_named() {
    let _turn = turn();
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let config = config
        .replace("count = 4\n", "count = 4\nkind = \"tcp\"\n")
        .replace(
            "timeout = \"1 s\"",
            "timeout = \"100 ms\"\nretry = \"20 ms\"",
        );
    let run = with_cut_streams(&config, "ru0", 4);
    let causes = run.causes();
    assert!(causes.contains("link_down"), "{causes:?}");
    let allowed = ["link_down", "fragment_late"].map(str::to_owned);
    assert!(causes.is_subset(&BTreeSet::from(allowed)), "{causes:?}");
    assert!(run.count("events_built") > run.count("events_incomplete"));
}

/// The barrier of a linear shift goes on over other streams: what was on its way is said again.
#[test]
fn cut_streams_of_the_event_manager_stop_no_phases() {
    let _turn = turn();
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let keys = "[builder]\ntransport = \"tcp\"\nshaping = \"linear-shift\"\nretry = \"20 ms\"\n";
    let config = patient(config).replace("[builder]\n", keys);
    // To bu0, bu1, ru0 and ru1.
    let run = with_cut_streams(&config, "evm", 4);
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.count("events_incomplete"), 0);
}

#[test]
fn a_cut_stream_of_a_builder_unit_is_replaced_and_no_event_lost() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let running = start(&in_groups(&config), folder.path());
    let id = running.id();
    let mut lines = Lines::of(running);
    // Only the second builder unit's events go there.
    let file = folder.path().join("run/events-1.mcap");
    wait_for_more(&file);
    wait_for_more(&file);
    let builder = process_of(id, "bu1");
    assert_eq!(cut_streams_of(builder), 3, "evm, ru0 and ru1");
    lines.wait_for("was cut; another took its place", 3);
    wait_for_more(&file);
    let pid = Pid::from_raw(id as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("it lives");
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    for peer in ["evm", "ru0", "ru1"] {
        let said = [format!("{peer} and bu1"), format!("bu1 and {peer}")];
        let is_said = said.iter().any(|said| run.errors().contains(said));
        assert!(is_said, "{peer}: {}", run.errors());
    }
    assert!(!run.errors().contains("is gone"), "{}", run.errors());
    run.assert_accounted();
    assert_eq!(run.causes(), BTreeSet::new());
    assert_eq!(run.count("events_incomplete"), 0);
}
