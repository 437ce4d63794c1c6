//! What cannot be done or would do nothing is refused before anything is done, and says what to do.

use crate::workbench::{SMALL, Workbench, changed};

/// Runs a command that ends with `code` and says all of `parts`.
#[track_caller]
fn refused(bench: &Workbench, arguments: &[&str], code: i32, parts: &[&str]) {
    let run = bench.run(arguments).ended_with(code);
    for part in parts {
        assert!(run.err.contains(part), "{arguments:?}: {part}\n{}", run.err);
    }
    assert_eq!(run.out, "", "{arguments:?}");
}

#[test]
fn options_without_effect_are_usage_errors() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let conflict = ["cannot be used with"];
    let cases: [&[&str]; 7] = [
        &["source", "run.toml", "--blocks", "5"],
        &["source", "run.toml", "--link", "tcp", "--decide"],
        &["source", "run.toml", "--link", "tcp", "--jsonl", "e.jsonl"],
        &["source", "run.toml", "--frames", "f", "--decide"],
        &["source", "run.toml", "--pattern", "1"],
        &["source", "--pattern", "1", "--decide"],
        &["doctor", "--quick", "--live", "1s"],
    ];
    for arguments in cases {
        refused(&bench, arguments, 2, &conflict);
    }
    let slow = ["doctor", "--quick", "--only", "1,16,6"];
    refused(&bench, &slow, 2, &["since they measure: 16, 6", "help: "]);
    let idle = changed(SMALL, "credits = 8", "credits = 8\nevent_bytes = \"1 B\"");
    bench.write("idle.toml", idle);
    refused(
        &bench,
        &["check", "idle.toml"],
        1,
        &["C0137", "`builder.event_bytes`"],
    );
}

/// Whether a run has processes is also for its command to say, so that the file by itself is good.
#[test]
fn filter_units_that_could_not_join_are_noted_and_refused() {
    let bench = Workbench::new();
    let more = changed(SMALL, "[filter]", "[filter]\nunits_max = 2");
    bench.write("run.toml", &more);
    let noted = bench.run(&["check", "run.toml"]).ended_with(0).out;
    for part in ["`[filter] units_max`", "`[workers] processes = true`"] {
        assert!(noted.contains(part), "{part}\n{noted}");
    }
    refused(&bench, &["run", "run.toml"], 1, &["`[filter] units_max`"]);
    let workers = format!("{more}\n[workers]\nprocesses = true\n");
    bench.write("run.toml", workers);
    let quiet = bench.run(&["check", "run.toml"]).ended_with(0).out;
    assert!(!quiet.contains("units_max"), "{quiet}");
}

/// Threads share all pages of their process. Processes open them one by one, and it is for the command
/// to say which of both the roles are.
#[test]
fn more_processes_than_can_open_the_pages_are_refused_before_the_start() {
    let bench = Workbench::new();
    let allowed =
        "allowed: at most 26: 30 processes can, of which src0 ru0 wr0 and the one that makes";
    let said = ["R0107", "`filter.units` is 27", allowed];
    let with = |keys: &str, tables: &str| {
        let filter = format!("[filter]\n{keys}");
        bench.write("run.toml", changed(SMALL, "[filter]", &filter) + tables);
    };
    with("units = 27", "");
    let noted = bench.run(&["check", "run.toml"]).ended_with(0).out;
    assert!(noted.contains("`run --processes` refuses this"), "{noted}");
    refused(&bench, &["run", "run.toml", "--processes"], 1, &said);
    with("units = 27", "\n[workers]\nprocesses = true\n");
    refused(&bench, &["check", "run.toml"], 1, &said);
    // Filter units join a run of processes alone, at any time.
    with("units_max = 27", "");
    let said = ["R0107", "`filter.units_max` is 27", allowed];
    refused(&bench, &["check", "run.toml"], 1, &said);
    with("units = 26", "\n[workers]\nprocesses = true\n");
    let quiet = bench.run(&["check", "run.toml"]).ended_with(0).out;
    assert!(!quiet.contains("R0107"), "{quiet}");
    assert!(!bench.path("runs").exists(), "nothing was started");
}

#[test]
fn nothing_measured_is_no_measurement() {
    let bench = Workbench::new();
    let nothing = ["nothing would be measured"];
    refused(
        &bench,
        &["doctor", "--only", "16", "--live", "0s"],
        2,
        &nothing,
    );
    let paced = ["bench", "loop", "--rate", "40kHz", "--duration"];
    refused(&bench, &[&paced[..], &["0s"]].concat(), 2, &nothing);
    refused(
        &bench,
        &[&paced[..], &["10us"]].concat(),
        2,
        &["--rate 40 kHz gives nothing", "nothing would be measured"],
    );
    let cards = [
        "bench",
        "readout",
        "--channels",
        "2",
        "--rate",
        "1Hz",
        "--duration",
        "200ms",
    ];
    refused(
        &bench,
        &cards,
        2,
        &["--rate 1 Hz gives nothing", "nothing would be measured"],
    );
    let zero = "[filter]\ntime_limit = \"0 s\"";
    bench.write("zero.toml", changed(SMALL, "[filter]", zero));
    refused(
        &bench,
        &["check", "zero.toml"],
        1,
        &["C0006", "`filter.time_limit` is 0"],
    );
}

#[test]
fn options_of_measurements_and_simulations_that_mean_nothing_are_wrong_usage() {
    let bench = Workbench::new();
    let cases: [(&[&str], &str); 9] = [
        (
            &["readout", "--channels", "1", "--size", "65540B"],
            "64 KiB",
        ),
        (&["readout", "--channels", "1", "--size", "0B"], "64 B"),
        (
            &["floor", "--quick", "--duration", "1s"],
            "`--duration` goes with `--rate`",
        ),
        (
            &["loop", "--duration", "1s"],
            "`--duration` goes with `--rate`",
        ),
        (&["floor", "--grid"], "`--grid` goes with `bench builder`"),
        (&["loop", "--scale"], "`--scale` goes with `bench builder`"),
        (
            &["loop", "--channels", "1"],
            "`--channels` goes with `bench readout`",
        ),
        (
            &["floor", "--rate", "1kHz"],
            "`--rate` goes with `bench loop`",
        ),
        (&["loop", "--rate", "0Hz"], "allowed are 0.001 Hz to 10 MHz"),
    ];
    for (arguments, said) in cases {
        refused(&bench, &[&["bench"][..], arguments].concat(), 2, &[said]);
    }
    for arguments in [
        &["sim", "run", "--preset", "nope"][..],
        &["sim", "presets", "nope"],
    ] {
        refused(&bench, arguments, 2, &["nope", "`livetime sim presets`"]);
    }
}

/// A file gives way to one that the same option wrote, and to nothing else: it may be of a run.
#[test]
fn results_take_the_place_of_former_ones_and_of_nothing_else() {
    let bench = Workbench::new();
    let scenario = "format = 1\npacket_times = 50\n[topology]\nkind = \"crossbar\"\nports = 4\n";
    bench.write("x.toml", scenario);
    std::fs::create_dir(bench.path("run")).expect("the folder is ours");
    let of_run: [(&str, &[u8]); 4] = [
        ("run/events.mcap", b"\x89MCAP0\r\n."),
        ("run/summary.json", b"{}"),
        ("run/config.toml", b"format = 1\n"),
        ("run/report.html", b"<!doctype html>\n"),
    ];
    for (name, contents) in of_run {
        bench.write(name, contents);
    }
    // Longer than any test where it is not refused at once.
    let writers: [&[&str]; 6] = [
        &["bench", "floor", "--page"],
        &["study", "pulsar", "--out"],
        &["study", "saft", "--out"],
        &["sim", "run", "x.toml", "--csv"],
        &["sim", "run", "x.toml", "--links"],
        &["sim", "run", "x.toml", "--html"],
    ];
    for writer in writers {
        for (name, contents) in of_run {
            let place = format!("cannot write {name}: ");
            let said = [place.as_str(), "the file is kept"];
            refused(&bench, &[writer, &[name]].concat(), 1, &said);
            let kept = std::fs::read(bench.path(name)).expect("it is there");
            assert_eq!(kept, contents, "{writer:?}");
        }
    }
    let outputs = ["--csv", "t.csv", "--links", "l.csv", "--html", "p.html"];
    let simulate = [&["sim", "run", "x.toml"][..], &outputs].concat();
    bench.run(&simulate).ended_with(0);
    bench.run(&simulate).ended_with(0);
    for (option, name) in [
        ("--csv", "l.csv"),
        ("--links", "t.csv"),
        ("--html", "t.csv"),
    ] {
        let other = ["sim", "run", "x.toml", option, name];
        refused(&bench, &other, 1, &["that is no ", "of this program"]);
    }
}

#[test]
fn a_document_is_taken_by_its_bench_alone_and_with_verdicts_that_follow() {
    let bench = Workbench::new();
    let document = |targets: &str| {
        format!(
            "{{\"schema\": \"livetime.bench/1\", \"bench\": \"ring\", \"machine\": {{\"quick\": true}}, \
             \"floor\": {{}}, \"result\": {{}}, \"ratio\": {{\"gain\": 2}}, \"targets\": {{{targets}}}}}"
        )
    };
    let target = |met: bool| {
        format!("\"a\": {{\"value\": 1, \"target\": 2, \"bound\": \"at_least\", \"met\": {met}}}")
    };
    bench.write("ring.json", document(&target(false)));
    bench.write("wrong.json", document(&target(true)));
    bench.write("run.json", "{\"schema\": \"livetime.run/1\"}");
    let from = ["bench", "ring", "--from", "ring.json", "--page", "page.md"];
    for _ in 0..2 {
        let shown = bench.run(&from).ended_with(0).out;
        assert!(shown.contains("NOT MET    a: 1, at least 2"), "{shown}");
        assert!(shown.contains("the figures mean little"), "{shown}");
    }
    for (name, file, said) in [
        ("floor", "ring.json", "`bench` is \"ring\", not \"floor\""),
        ("all", "ring.json", "`bench` is \"ring\", not \"all\""),
        ("ring", "run.json", "`schema` is \"livetime.run/1\""),
        ("ring", "wrong.json", "1 is not at least 2"),
    ] {
        let begin = format!("error: {file} is no document of `bench {name}`: ");
        let arguments = ["bench", name, "--from", file];
        refused(&bench, &arguments, 1, &[begin.as_str(), said]);
    }
}

#[test]
fn places_that_cannot_be_written_are_said_before_the_work() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    bench.write("file", "");
    let cases: [&[&str]; 4] = [
        &["timing", "serve", "--socket", "s", "--keep", "none/x.json"],
        &["study", "filar", "--quick", "--out", "none/x.html"],
        &["study", "pulsar", "--quick", "--out", "none/x.html"],
        &["bench", "loop", "--quick", "--page", "none/x.md"],
    ];
    for arguments in cases {
        let parts = ["error: cannot write none/x.", "nothing was started"];
        refused(&bench, arguments, 1, &parts);
    }
    let parts = ["cannot make file/out: Not a directory", "--out"];
    refused(&bench, &["sim", "run.toml", "--out", "file/out"], 1, &parts);
    let export = ["export", "none", "--format", "bytestream", "--out", "x.bs"];
    refused(&bench, &export, 1, &["cannot read none"]);
    assert!(
        !bench.path("x.bs").exists(),
        "the next export would find it"
    );
}

#[test]
fn what_a_timing_daemon_cannot_do_is_said_before_it_starts() {
    let bench = Workbench::new();
    let serve = ["timing", "serve", "--socket", "s"];
    let options: [(&[&str], i32, &str); 2] = [
        (
            &["--cpu", "9999"],
            1,
            "--cpu 9999: this process may use the cores",
        ),
        (&["--fifo", "100"], 2, "1..=99"),
    ];
    for (option, code, said) in options {
        refused(&bench, &[&serve[..], option].concat(), code, &[said]);
    }
    bench.write("two.dm", "0x1 0x0 0\n0x2 0x0 5000\n");
    let overlapping = ["timing", "dm", "two.dm", "--period", "4999"];
    let said = "--period 4999: the schedule in two.dm is 5000 ns long";
    refused(&bench, &overlapping, 1, &[said]);
    let never = ["timing", "dm", "two.dm", "-n", "0"];
    refused(&bench, &never, 2, &["1.."]);
}

#[test]
fn a_directory_of_runs_is_no_run() {
    let bench = Workbench::new();
    std::fs::create_dir_all(bench.path("runs/000001")).unwrap();
    let parts = ["error: runs: there is no run file in it", "runs/000001"];
    refused(&bench, &["inspect", "runs"], 1, &parts);
}

#[test]
fn all_faults_that_cannot_be_are_named() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let faults = ["kill:bu1@0.5s", "link-down:77@1s+1s"];
    let faults = faults.map(|fault| ["--fault", fault]).concat();
    let arguments = [&["run", "run.toml"][..], &faults].concat();
    let parts = [
        "error: --fault kill:bu1@500ms: it needs `--processes`",
        "error: --fault link-down:77@1s+1s: there is no data link 77",
    ];
    refused(&bench, &arguments, 1, &parts);
    assert!(!bench.path("runs").exists(), "nothing was started");
}

#[test]
fn faults_that_did_not_strike_are_named_at_the_end() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let arguments = ["run", "run.toml", "--triggers", "200", "--lossless"];
    let fault = ["--fault", "link-down:0@3h+1s"];
    let run = bench.run(&[&arguments[..], &fault].concat()).ended_with(0);
    let said = "warning: fault link-down:0@10800s+1s did not strike: the run ended after ";
    assert!(run.err.contains(said), "{}", run.err);
}
