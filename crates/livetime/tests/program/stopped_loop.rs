//! Whose fault a tail is: a loop that is stopped from outside says that it was the host.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::workbench::Workbench;

/// Stops of the program; most of them catch a decision in flight.
const STOPS: usize = 40;

/// Whether the kernel says that the process is stopped.
fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim());
    state.starts_with('T') || state.starts_with('t')
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("the program runs");
}

/// Runs the loop, stops it so often and lets it go on; returns its result.
fn stopped_loop(stops_max: usize) -> Value {
    let bench = Workbench::new();
    // As many triggers as the loop can take: nearly always one is in flight.
    let arguments = ["bench", "loop", "--rate", "2MHz", "--arrival", "fixed"];
    let mut command = bench.command(&arguments);
    command.args(["--duration", "3s", "--quick", "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built program starts");
    let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says what it measures");
    assert!(line.contains("measuring loop"), "{line}");
    let mut stops = 0;
    while stops < stops_max && child.try_wait().expect("it is ours").is_none() {
        signal(&child, Signal::STOP);
        while !is_stopped(child.id()) && child.try_wait().expect("it is ours").is_none() {
            std::thread::yield_now();
        }
        signal(&child, Signal::CONT);
        stops += 1;
        // Let it run on for some thousand events.
        let reads = (0..50).filter(|_| !is_stopped(child.id())).count();
        assert!(reads <= 50);
    }
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut document: Value = serde_json::from_str(&text).expect("one JSON document");
    document["result"].take()
}

#[test]
fn a_loop_stopped_from_outside_names_the_host() {
    // A stop says something only if it hits an event in flight; on a machine that is busy with other
    // work the loop hardly runs between many stops, and fewer of them hit better.
    let mut result = Value::Null;
    for stops_max in [STOPS, STOPS / 4, STOPS / 16, STOPS / 4, STOPS] {
        result = stopped_loop(stops_max);
        assert_eq!(result["wrong_decisions"], 0, "{result}");
        if result["outliers_ppm"]["host_count"].as_u64() > Some(0) {
            break;
        }
    }
    assert!(result["host_gaps"]["count"].as_u64() > Some(0), "{result}");
    assert!(
        result["outliers_ppm"]["host_count"].as_u64() > Some(0),
        "{result}"
    );
}
