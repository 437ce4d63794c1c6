//! The state file of the timing daemon where it cannot be written.

use std::fs;

use rustix::process::Signal;

use crate::workbench::Workbench;

#[test]
fn a_state_that_cannot_be_kept_is_said_at_once_and_at_the_end() {
    let bench = Workbench::new();
    fs::create_dir(bench.path("kept")).expect("the folder is ours");
    let arguments = ["timing", "serve", "--socket", "s", "--keep", "kept/state"];
    let mut serving = bench.start_until(bench.command(&arguments), "livetime timing ");
    let add = |id: &str| {
        let condition = [
            "timing",
            "cond",
            "add",
            "IO1",
            id,
            "fffffffffffff000",
            "0",
            "on",
        ];
        bench
            .run(&[&condition[..], &["--daemon", "s"]].concat())
            .ended_with(0);
    };
    fs::rename(bench.path("kept"), bench.path("away")).expect("the folder is ours");
    add("1000");
    serving.wait_for_line("warning: cannot write state file");
    fs::rename(bench.path("away"), bench.path("kept")).expect("the folder is ours");
    serving.wait_for_line("the state file is written again");
    fs::rename(bench.path("kept"), bench.path("away")).expect("the folder is ours");
    add("2000");
    serving.wait_for_line("warning: cannot write state file");
    serving.signal(Signal::TERM);
    let served = serving.finish().ended_with(1);
    let said = "what has changed since it was written last is lost";
    assert!(served.err.contains(said), "{}", served.err);
}
