//! A pipe or a device where the program keeps or reads a small file: it is refused, and nobody waits at it.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::workbench::{SMALL, Workbench, changed};

fn pipe(path: &Path) {
    let both = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, path, FileType::Fifo, both, 0).expect("the folder is ours");
}

#[test]
fn what_is_no_plain_file_is_refused_at_once() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let python = "python = \"filter.py:select\"";
    bench.write(
        "python.toml",
        changed(SMALL, "name = \"accept_all\"", python),
    );
    for folder in ["out", "runs", "taken"] {
        std::fs::create_dir(bench.path(folder)).expect("the folder is ours");
    }
    for name in [
        "out/lock",
        "runs/counter",
        "filter.py",
        "kept",
        "locked.lock",
        "e.sock.epoch",
        "rules",
        "taken/summary.json",
    ] {
        pipe(&bench.path(name));
    }
    let serve = ["timing", "serve", "--socket", "t.sock"];
    let with = |more: [&'static str; 2]| [&serve[..], &more].concat();
    for (arguments, place) in [
        (vec!["run", "small.toml", "--out", "out"], "out/lock"),
        (vec!["run", "small.toml"], "runs/counter"),
        (vec!["check", "python.toml"], "filter.py"),
        (vec!["report", "taken"], "taken/summary.json"),
        (with(["--keep", "kept"]), "kept"),
        (with(["--keep", "locked"]), "locked.lock"),
        (with(["--keep", "/dev/full"]), "/dev/full"),
        (with(["--rules", "rules"]), "rules"),
        (with(["--rules", "/dev/zero"]), "/dev/zero"),
        (
            vec!["timing", "serve", "--socket", "e.sock"],
            "e.sock.epoch",
        ),
    ] {
        let done = bench.run(&arguments).ended_with(1);
        let found = match place.starts_with("/dev") {
            true => "no plain file but a device",
            false => "no plain file but a pipe",
        };
        let said = done.err + &done.out;
        assert!(
            said.contains(place) && said.contains(found),
            "{place}: {said}"
        );
    }
    assert!(!bench.path("kept.lock").exists());
}

/// What a person hands over may come out of a pipe.
#[test]
fn a_configuration_comes_out_of_a_pipe() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    for (verb, options) in [
        ("check", ""),
        // Whose roles read it from the run directory.
        ("run", "--triggers 50 --processes"),
    ] {
        let script = format!("cat small.toml | \"$0\" {verb} /dev/stdin {options}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_livetime")]);
        shell.current_dir(bench.path("."));
        crate::workbench::finished(shell).ended_with(0);
    }
}

/// The process of the source reads them once more, and a pipe is empty by then.
#[test]
fn recorded_events_of_a_run_with_processes_come_out_of_no_pipe() {
    let bench = Workbench::new();
    let kind = "[[source]]\nkind = \"recorded\"\nevents = \"events.csv\"";
    bench.write("small.toml", SMALL);
    bench.write("named.toml", changed(SMALL, "[[source]]", kind));
    pipe(&bench.path("events.csv"));
    let option = &["small.toml", "--events", "events.csv"][..];
    for (from, place) in [
        (option, "recorded events cannot be used\n"),
        (&["named.toml"], "`source[0].events` is "),
    ] {
        let run = [&["run", "--processes"], from].concat();
        let said = bench.run(&run).ended_with(1).err;
        let found = "events.csv: it is no plain file, and with `processes` src0 reads it once more";
        assert!(said.contains(&format!("{place}{found}")), "{said}");
    }
    assert!(!bench.path("runs/000001").exists());
}
