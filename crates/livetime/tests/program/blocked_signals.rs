//! What the program that starts a run has done to its signals.

use std::process::Command;

use rustix::process::Signal;

use crate::workbench::{SMALL, Workbench, assert_conserved};

#[test]
fn signals_that_the_starter_has_blocked_end_a_run_all_the_same() {
    for signal in [Signal::INT, Signal::TERM] {
        let bench = Workbench::new();
        bench.write("small.toml", SMALL);
        let mut command = Command::new("env");
        command
            .args(["--block-signal=INT,TERM", env!("CARGO_BIN_EXE_livetime")])
            .args(["run", "small.toml", "--out", "out", "--json"])
            .current_dir(bench.path("."));
        let mut running = bench.start_command(command);
        running.wait_for_bytes(&bench.path("out/events.mcap"), 20_000);
        running.signal(signal);
        let run = running.finish().ended_with(0).document();
        assert_conserved(&run);
    }
}
