//! A run without an end whose processes and streams are interfered with from outside.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::process_run::text;

/// The process of a role of the run that was started in a folder.
pub(crate) fn process_of(folder: &Path, role: &str) -> Pid {
    find_process(folder, role).unwrap_or_else(|| panic!("there is no process for {role}"))
}

/// The same, if there is one.
pub(crate) fn find_process(folder: &Path, role: &str) -> Option<Pid> {
    let is_it = |pid: &i32| {
        let at = std::fs::read_link(format!("/proc/{pid}/cwd"));
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split('\0').skip(1);
        at.is_ok_and(|at| at == folder)
            && words.next() == Some("role")
            && words.next() == Some(role)
    };
    let entries = std::fs::read_dir("/proc").expect("a system with /proc");
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(is_it).and_then(Pid::from_raw)
}

/// Shuts every TCP stream of a process down, as a box in the network may; returns how many.
pub(crate) fn cut_streams_of(process: Pid) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a system with /proc");
    let inodes: BTreeSet<&str> = (table.lines())
        .filter_map(|line| line.split_whitespace().nth(9))
        .collect();
    let handle = pidfd_open(process, PidfdFlags::empty()).expect("it lives");
    let folder = format!("/proc/{}/fd", process.as_raw_nonzero());
    // All of them first: a process may have both ends of one, and closes the other when one is cut.
    let mut streams = Vec::new();
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
        streams.push(TcpStream::from(socket));
    }
    for stream in &streams {
        match stream.shutdown(Shutdown::Both) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => {}
            Err(error) => panic!("a stream cannot be cut: {error}"),
        }
    }
    streams.len()
}

/// Gives the run in `run` of a folder an order; what it answers, or what is said against it.
pub(crate) fn order(folder: &Path, order: &[&str]) -> Result<String, String> {
    let steered = Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder)
        .args(["steer", "run"])
        .args(order)
        .output()
        .expect("the built program starts");
    match steered.status.success() {
        true => Ok(text(&steered.stdout).trim().to_owned()),
        false => Err(text(&steered.stderr)),
    }
}

fn bytes_of(file: &Path) -> u64 {
    file.metadata().map_or(0, |about| about.len())
}

/// Waits until a file is larger than it was; how long that takes is of no matter.
pub(crate) fn wait_for_more(file: &Path) {
    let before = bytes_of(file);
    while bytes_of(file) <= before {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The lossless run of a configuration without an end, in processes.
pub(crate) fn start(config: &str, folder: &Path) -> Child {
    start_with(config, folder, &["--processes", "--lossless"])
}

/// The run of a configuration without an end, with these options.
pub(crate) fn start_with(config: &str, folder: &Path, options: &[&str]) -> Child {
    std::fs::write(folder.join("run.toml"), config).expect("a writable folder");
    Command::new(env!("CARGO_BIN_EXE_livetime"))
        .current_dir(folder)
        .args(["run", "run.toml", "--duration", "600s"])
        .args(["--json", "--out", "run"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built program starts")
}
