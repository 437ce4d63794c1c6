//! A run of which a role dies while it drains.

use rustix::process::{Pid, Signal, kill_process};

use crate::live_run::{process_of, start, wait_for_more};
use crate::process_run::{Lines, Run, example};

/// A run of the example, edited by `edit`, whose `role` dies while it drains: what it had accepted could
/// not be built before.
pub(crate) fn killed_in_drain(edit: impl Fn(String) -> String, role: &str) -> Run {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = std::fs::read_to_string(example()).expect("the example is there");
    let running = start(&edit(config), folder.path());
    let id = running.id();
    let mut lines = Lines::of(running);
    let file = folder.path().join("run/events.mcap");
    // It is begun before the roles are.
    wait_for_more(&file);
    wait_for_more(&file);
    let builders = ["bu0", "bu1"].map(|role| process_of(folder.path(), role));
    let signal = |pid: Pid, signal| kill_process(pid, signal).expect("it lives");
    builders.iter().for_each(|pid| signal(*pid, Signal::STOP));
    signal(Pid::from_raw(id as i32).expect("a process"), Signal::INT);
    lines.wait_for("stopping: the run ends in order", 1);
    signal(process_of(folder.path(), role), Signal::KILL);
    builders.iter().for_each(|pid| signal(*pid, Signal::CONT));
    Run::finished(lines.finish(), folder)
}
