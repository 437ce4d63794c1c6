//! Filter units that join and leave a run over several hosts while it goes on.

use std::path::Path;

use rustix::process::Pid;

use crate::live_run::{order, start};
use crate::process_run::{Lines, Run, turn};
use crate::start_of_hosts::host_of;
use crate::{LOCAL, host, on_one_host};

/// Times that a filter unit leaves and joins again.
const RETURNS: usize = 6;

/// The descriptors and threads that a process has.
fn kept_by(process: Pid) -> [usize; 2] {
    ["fd", "task"].map(|kind| {
        let folder = format!("/proc/{}/{kind}", process.as_raw_nonzero());
        std::fs::read_dir(folder).expect("it lives").count()
    })
}

fn join(folder: &Path) {
    // It has no place before the one that has left is gone.
    while order(folder, &["filter", "add"]).is_err() {
        std::thread::yield_now();
    }
}

/// A run may see five hundred of them, and a host has as many files open as its limit allows.
#[test]
fn a_filter_unit_that_has_left_leaves_nothing_with_its_host_and_the_coordinator() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hosts = [
        host("readout", r#""src0", "trg0", "ru0", "ru1", "evm""#, LOCAL),
        host("building", r#""bu0", "bu1", "fu0", "fu1", "wr0""#, LOCAL),
    ];
    let example = std::fs::read_to_string(crate::process_run::example());
    let config = on_one_host(example.expect("the example is there"));
    let config = config.replace("units = 1", "units = 1\nunits_max = 2") + &hosts.concat();
    let running = start(&config, folder.path());
    let coordinator = Pid::from_raw(running.id() as i32).expect("a process");
    let lines = Lines::of(running);
    join(folder.path());
    let keepers = [coordinator, host_of(folder.path(), "building").0];
    let first = keepers.map(kept_by);
    for _ in 0..RETURNS {
        let left = order(folder.path(), &["filter", "remove", "fu1"]);
        assert_eq!(left.as_deref(), Ok("fu1 is leaving"));
        join(folder.path());
    }
    // What the last of those that have left had is given back a moment later.
    let is_back = |_| {
        order(folder.path(), &["status"]).expect("the run answers");
        let now = keepers.map(kept_by);
        now.as_flattened()
            .iter()
            .zip(first.as_flattened())
            .all(|(now, first)| now <= first)
    };
    let now = keepers.map(kept_by);
    assert!((0..500).any(is_back), "{first:?} at first, {now:?} at last");
    assert!(order(folder.path(), &["stop"]).is_ok());
    let run = Run::finished(lines.finish(), folder);
    assert!(run.output.status.success(), "{}", run.errors());
    run.assert_accounted();
}
