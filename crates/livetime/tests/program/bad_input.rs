//! What people get wrong: each problem with its code, place, what was found, what is allowed.

use std::fs;

use crate::workbench::{SMALL, Workbench, changed, finished, project};

const RUN: [&str; 2] = ["run", "run.toml"];

/// Asserts that the verbs which read a configuration refuse this one, and returns what they say.
#[track_caller]
fn refused(config: &str) -> String {
    let bench = Workbench::new();
    bench.write("run.toml", config);
    let check = bench.run(&["check", "run.toml"]).ended_with(1);
    assert_eq!(check.out, "");
    let run = bench.run(&RUN).ended_with(1);
    assert_eq!(
        (run.err.as_str(), run.out.as_str()),
        (check.err.as_str(), "")
    );
    assert!(!bench.path("runs").exists(), "nothing was started");
    check.err
}

#[test]
fn many_problems_at_once_are_all_said_at_their_places() {
    let folder = project().join("crates/livetime/tests/program/golden");
    let bench = Workbench::new();
    let config = std::fs::read_to_string(folder.join("problems.toml")).expect("it is there");
    bench.write("problems.toml", config);
    let check = bench.run(&["check", "problems.toml"]).ended_with(1);
    let golden = folder.join("problems.txt");
    if std::env::var_os("LIVETIME_GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(&golden, &check.err).expect("the folder is ours");
    }
    let expected = std::fs::read_to_string(&golden).expect("it is there");
    assert!(
        check.err == expected,
        "LIVETIME_GOLDEN=write accepts this:\n{}",
        check.err
    );
    assert_eq!(check.out, "");
}

#[test]
fn a_configuration_that_cannot_be_read_is_named() {
    let bench = Workbench::new();
    for (name, reason) in [("missing.toml", "No such file"), (".", "Is a directory")] {
        let run = bench.run(&["run", name]).ended_with(1);
        let (first, help) = run.err.split_once('\n').expect("an error and a help line");
        assert!(
            first.starts_with(&format!("error: cannot read {name}: {reason}")),
            "{first}"
        );
        assert!(help.starts_with("help: examples/dimuon.toml "), "{help}");
    }
    bench.write("binary.toml", b"\xff\xfe\x00");
    let run = bench.run(&["check", "binary.toml"]).ended_with(1);
    assert!(run.err.contains("cannot read binary.toml"), "{}", run.err);
}

#[test]
fn text_that_is_not_toml_is_placed() {
    let said = refused(&changed(SMALL, "seed = 42", "seed = = 42"));
    assert!(
        said.contains("error[C0001]: not valid TOML\n   ╭─[run.toml:7:8]"),
        "{said}"
    );
    let nothing = refused("");
    for part in [
        "error[C0007]: key is missing: `format` is not there",
        "4 problems in run.toml",
    ] {
        assert!(nothing.contains(part), "{nothing}");
    }
}

#[test]
fn a_pool_too_small_for_the_credits_is_refused_with_the_formula() {
    let said = refused(&changed(SMALL, "credits = 8", "credits = 400"));
    for part in [
        "error[B0107]: page pool too small for the granted credits",
        "`builder.credits` is 400",
        "512 pages here, 1011 needed: 1 links x (1 per fragment x (2 builder units x 400 credits + \
         64 queued + 4 Level-2 buffers) + 15 posted + 128 for XOFF)",
        "set it to at most 150, or raise the pool to",
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let plain = words(&said.replace(['│', '·'], " "));
        assert!(plain.contains(&words(part)), "{part}\n{said}");
    }
    let fits = changed(SMALL, "credits = 8", "credits = 150");
    let bench = Workbench::new();
    bench.write("run.toml", fits);
    bench.run(&["check", "run.toml"]).ended_with(0);
}

#[test]
fn links_and_sources_that_do_not_fit_together_are_refused() {
    let unknown = refused(&changed(SMALL, "to = \"ru1\"", "to = \"bu1\""));
    assert!(
        unknown.contains("error[C0104]: link to an unknown unit"),
        "{unknown}"
    );
    assert!(unknown.contains("`link[2].to` is \"bu1\""), "{unknown}");

    let twice = refused(&changed(SMALL, "0x520000", "0x510001"));
    assert!(
        twice.contains("error[C0105]: source id is used twice"),
        "{twice}"
    );
    assert!(twice.contains("`link[2].source_id` is 0x510001"), "{twice}");
    assert!(twice.contains("first used here"), "{twice}");
    assert!(twice.contains("1 problem in run.toml"), "{twice}");

    let sources = refused(&format!("{SMALL}[[source]]\n"));
    assert!(sources.contains("`source` is there 2 times"), "{sources}");
    let gap = refused(&changed(SMALL, "to = \"ru1\"", "to = \"ru3\""));
    assert!(
        gap.contains("`link` is without a link to ru1 and 1 more"),
        "{gap}"
    );
}

/// Together with what else is wrong, each at the key that names it.
#[test]
fn files_that_a_run_would_open_are_all_looked_for() {
    let frames = "pages = 512\nkind = \"file\"\nframes = \"recorded\"\n";
    let config = SMALL.replace("pages = 512\n", frames);
    let python = "python = \"absent.py:select\"";
    let config = changed(&config, "name = \"accept_all\"", python);
    let recorded = "[[source]]\nkind = \"recorded\"\nevents = \"absent.csv\"";
    let config = changed(&config, "[[source]]", recorded);
    let said = refused(&format!("colour = 1\n{config}"));
    for part in [
        "error[C0002]: unknown key",
        "`source[0].events` is absent.csv: No such file",
        "`link[1].frames` is recorded/510000.frames: it cannot be read: No such file",
        "`link[2].frames` is recorded/520000.frames: it cannot be read: No such file",
        "1 more of the folder cannot be used either",
        "`filter.python` is absent.py: No such file",
        "5 problems in run.toml",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert_eq!(said.matches("error[C0109]").count(), 4, "{said}");

    let folder = "python = \".:select\"";
    let said = refused(&changed(SMALL, "name = \"accept_all\"", folder));
    assert!(
        said.contains("`filter.python` is .: it is no file"),
        "{said}"
    );
}

#[test]
fn pages_beyond_the_memory_of_the_machine_are_noted_and_not_taken() {
    let bench = Workbench::new();
    let pages = "pages = 16777216\npage = \"4194240 B\"\n";
    bench.write("run.toml", SMALL.replace("pages = 512\n", pages));
    let check = bench.run(&["check", "run.toml"]).ended_with(0);
    assert!(
        check.out.contains("pages, rings and tables take 2"),
        "{}",
        check.out
    );
    assert!(
        check.out.contains("livetime explain R0106"),
        "{}",
        check.out
    );
    for options in [&[][..], &["--processes"]] {
        let run = bench.run(&[&RUN, options].concat()).ended_with(1);
        assert!(
            run.err
                .contains("error: the pages, rings and tables of the run take 2"),
            "{}",
            run.err
        );
        assert!(run.err.contains("livetime explain R0106"), "{}", run.err);
        assert!(!bench.path("runs").exists(), "no number was given");
    }
    // As a batch system may allow it, 1 GiB of the smallest machine's.
    let limited =
        |arguments: &[&str]| finished(bench.command_after("ulimit -v 1048576", arguments));
    let check = limited(&["check", "run.toml"]).ended_with(0);
    let there = "`ulimit -v` allows 1 GiB of memory";
    assert!(check.out.contains(there), "{}", check.out);
    let run = limited(&RUN).ended_with(1);
    assert!(run.err.contains(there), "{}", run.err);
}

#[test]
fn workers_whose_names_no_thread_can_have_are_refused() {
    let worker = "[[workers.worker]]\nname = \"a\\u0000b\"\nroles = [\"src0\"]\n";
    let said = refused(&format!("{SMALL}{worker}"));
    assert!(
        said.contains("error[R0105]: worker has no name of its own"),
        "{said}"
    );
    assert!(
        said.contains("`workers.worker[0].name` is \"a\\0b\""),
        "{said}"
    );
}

#[test]
fn packets_that_lost_items_are_said_at_the_end_of_the_run() {
    let bench = Workbench::new();
    let link = "[[link]]\nto = \"trg0\"";
    let tracks = format!("[source.physics]\nsoft_tracks_mean = 20\n{link}");
    let config = changed(SMALL, link, &tracks);
    let run = |words: &str| {
        let trigger = format!("[trigger]\npacket_words_max = {words}\n");
        bench.write("run.toml", changed(&config, "[trigger]\n", &trigger));
        bench
            .run(&["run", "run.toml", "--triggers", "500", "--lossless"])
            .ended_with(0)
            .out
    };
    let cut = run("64");
    assert!(
        cut.contains(" of 500 trigger packets were longer than `trigger.packet_words_max`"),
        "{cut}"
    );
    assert!(!run("510").contains("trigger packets were longer"));
}

/// As `check` finds with the other problems.
#[test]
fn events_that_cannot_be_used_are_a_problem_of_their_key() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let source = "[[source]]\n";
    let refused = |file: &str| {
        let with = format!("{source}kind = \"recorded\"\nevents = \"{file}\"\n");
        bench.write("events.toml", changed(SMALL, source, &with));
        bench.run(&["check", "events.toml"]).ended_with(1).err
    };
    for file in ["missing.csv", "."] {
        let said = refused(file);
        assert!(said.starts_with("error[C0109]"), "{said}");
        assert!(said.contains("1 problem in events.toml"), "{said}");
    }
    bench.write("events.csv", "Run,Event,pt1\n");
    let said = refused("events.csv");
    assert!(
        said.contains("events.csv: its problems are below"),
        "{said}"
    );
    assert!(said.contains("column eta1: found no such column"), "{said}");
}

#[test]
fn a_window_that_takes_more_than_the_memory_is_noted_and_not_begun() {
    let bench = Workbench::new();
    let window = "[builder]\ntrigger_window = 1048576\nhistory = 1048576\n";
    bench.write("run.toml", changed(SMALL, "[builder]\n", window));
    // Without the tables of its readout units it would fit.
    let limited =
        |arguments: &[&str]| finished(bench.command_after("ulimit -v 1572864", arguments));
    let check = limited(&["check", "run.toml"]).ended_with(0);
    assert!(
        check.out.contains("livetime explain R0106"),
        "{}",
        check.out
    );
    let run = limited(&RUN).ended_with(1);
    assert!(
        run.err.contains("`ulimit -v` allows 1.5 GiB"),
        "{}",
        run.err
    );
    // Neither does the index of events in a chain that is small otherwise.
    bench.write("run.toml", SMALL);
    let run = finished(bench.command_after("ulimit -v 150000", &RUN)).ended_with(1);
    assert!(run.err.contains("livetime explain R0106"), "{}", run.err);
    assert!(!bench.path("runs").exists(), "nothing was left behind");
}

#[test]
fn a_configuration_is_read_once_and_without_its_mark() {
    let bench = Workbench::new();
    bench.write("run.toml", format!("\u{feff}{SMALL}"));
    let piped = "cat run.toml | \"$0\" \"$@\"; exit $?";
    let check = finished(bench.command_after(piped, &["check", "/dev/stdin"])).ended_with(0);
    assert!(check.out.starts_with("/dev/stdin: good\n"), "{}", check.out);
    // The line of the run goes in front of the text that is kept, whatever is in the command.
    fs::rename(bench.path("run.toml"), bench.path("a\n[run]\nb.toml")).expect("it is ours");
    let command = ["run", "a\n[run]\nb.toml", "--triggers", "10"];
    bench.run(&command).ended_with(0);
    bench
        .run(&["check", "runs/000001/config.toml"])
        .ended_with(0);
    let kept = bench.read("runs/000001/config.toml");
    let line = "# run 000001 was started by: livetime run $'a\\n[run]\\nb.toml' --triggers 10\n";
    assert!(kept.starts_with(line), "{kept}");
}

#[test]
fn bad_events_are_named_with_line_and_column() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let with = |file: &str| {
        let run = bench
            .run(&["run", "run.toml", "--events", file])
            .ended_with(1);
        assert!(
            run.err
                .starts_with("error: recorded events cannot be used\n"),
            "{}",
            run.err
        );
        assert!(
            run.err.contains("help: docs/formats/recorded-events.md"),
            "{}",
            run.err
        );
        run.err
    };
    assert!(with("missing.csv").contains("missing.csv: No such file"));
    let header = "Run,Event,pt1,eta1,phi1,Q1,dxy1,iso1\n";
    bench.write(
        "events.csv",
        format!("{header}1,2,30,0.5,1.0,1,0,0\n1,3,many,0.5,1.0,2,0,0\n"),
    );
    let said = with("events.csv");
    for part in [
        "line 3, column pt1: found many, allowed is 0.001 to 100000 GeV",
        "line 3, column Q1: found 2, allowed is -1 or 1",
    ] {
        assert!(said.contains(part), "{said}");
    }
    bench.write("events.csv", "Run,Event,pt1\n");
    assert!(with("events.csv").contains("line 1, column eta1: found no such column"));
    bench.write("events.csv", b"\x00\xff\x80");
    with("events.csv");
    bench.write("events.csv", "");
    with("events.csv");
    assert!(!bench.path("runs").exists(), "nothing was started");
}

const WHOLE_NUMBER: &str = "write a whole number, 0 to 18446744073709551615";

#[test]
fn usage_errors_end_with_2_and_say_how_it_is_written() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let cases: [(&[&str], &str); 13] = [
        (&[], "Usage: livetime"),
        (&["fly"], "unrecognized subcommand"),
        (&["run"], "<CONFIG>"),
        (
            &["run", "run.toml", "--rate", "5"],
            "unit is missing; write a rate with unit",
        ),
        (
            &["run", "run.toml", "--duration", "5 kHz"],
            "write a time with unit",
        ),
        (&["run", "run.toml", "--seed", "many"], "--seed"),
        // A minus does not make another option of a value.
        (&["run", "run.toml", "--seed", "-1"], WHOLE_NUMBER),
        (&["run", "run.toml", "--triggers", "-1"], WHOLE_NUMBER),
        (
            &["source", "run.toml", "--triggers", "-1"],
            "write a whole number, 1 to 18446744073709551615",
        ),
        (
            &["run", "run.toml", "--duration", "-1s"],
            "invalid value '-1s' for '--duration",
        ),
        (
            &["run", "run.toml", "--fault", "link-down:3"],
            "link-down:3@4s+1s",
        ),
        (&["run", "run.toml", "--loss"], "unexpected argument"),
        (&["explain", "B0107", "C0001"], "unexpected argument"),
    ];
    for (arguments, said) in cases {
        let run = bench.run(arguments).ended_with(2);
        assert!(run.err.contains(said), "{arguments:?}: {}", run.err);
        assert_eq!(run.out, "", "{arguments:?}");
    }
    assert!(!bench.path("runs").exists(), "nothing was started");
}

/// Values that the options allow and the run does not.
#[test]
fn options_are_checked_like_the_file() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    for (option, value, help) in [
        ("--rate", "1000 MHz", "at most 10 MHz"),
        ("--rate", "0 Hz", "at least 0.001 Hz"),
        ("--duration", "0 s", "ends by `triggers`, or after 20 s"),
        ("--triggers", "0", "without this end"),
    ] {
        let run = bench.run(&["run", "run.toml", option, value]);
        let said = format!("{}{}", run.err, run.out);
        assert_eq!(run.code, Some(1), "{option} {value}: {said}");
        for part in [&format!("`{option}` is "), help] {
            assert!(said.contains(part), "{option} {value}: {said}");
        }
        // What is wrong stands in no line of the file.
        assert!(!said.contains("run.toml:"), "{option} {value}: {said}");
        assert!(
            said.contains("1 problem in run.toml and the options"),
            "{said}"
        );
    }
}

#[test]
fn files_that_are_no_run_files_are_refused() {
    let bench = Workbench::new();
    bench.write("foreign.mcap", "a letter to somebody else\n".repeat(1000));
    bench.write("empty.mcap", "");
    for file in ["foreign.mcap", "empty.mcap"] {
        for more in [&[][..], &["--json"], &["--recover", "copy.mcap"]] {
            let run = bench
                .run(&[&["inspect", file][..], more].concat())
                .ended_with(1);
            assert_eq!(run.out, "");
            let said = format!("error: {file}: not a run file: no chunk of one in its ");
            assert!(run.err.starts_with(&said), "{}", run.err);
            assert!(
                !bench.path("copy.mcap").exists(),
                "nothing is left of the copy"
            );
        }
    }
    let run = bench.run(&["inspect", "missing.mcap"]).ended_with(1);
    assert!(
        run.err.starts_with("error: missing.mcap: No such file"),
        "{}",
        run.err
    );
}

#[test]
fn a_working_directory_that_was_removed_is_named() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let [config, out] = ["small.toml", "out"].map(|name| bench.path(name).display().to_string());
    let gone = "mkdir gone; cd gone; rmdir ../gone";
    let arguments = ["run", &config, "--triggers", "10", "--out", &out];
    let run = finished(bench.command_after(gone, &arguments)).ended_with(1);
    let said = "error: cannot use runs: No such file or directory (os error 2); the working directory \
                was removed";
    assert!(run.err.contains(said), "{}", run.err);
    assert!(!bench.path("out").exists());
}

#[test]
fn a_check_takes_recorded_events_as_a_run_does() {
    let bench = Workbench::new();
    let kind = "[[source]]\nkind = \"recorded\"\n";
    bench.write("run.toml", changed(SMALL, "[[source]]\n", kind));
    let bare = bench.run(&["check", "run.toml"]).ended_with(1).err;
    assert!(bare.contains("`source[0].events` is not there"), "{bare}");
    bench.write("events.csv", "Run,Event,pt1\n");
    let check = bench.run(&["check", "run.toml", "--events", "events.csv"]);
    let run = bench.run(&["run", "run.toml", "--events", "events.csv"]);
    let (check, run) = (check.ended_with(1).err, run.ended_with(1).err);
    assert!(
        check.contains("column eta1: found no such column"),
        "{check}"
    );
    assert_eq!(check, run, "what `check` says is what `run` refuses");
    bench.write("net.toml", "format = 1\n[topology]\n");
    let scenario = bench.run(&["check", "net.toml", "--events", "events.csv"]);
    let said = scenario.ended_with(2).err;
    assert!(
        said.contains("`--events` is for the configuration of a run"),
        "{said}"
    );
}

#[test]
fn the_byte_that_is_no_text_is_named_with_its_line() {
    let bench = Workbench::new();
    bench.write("run.toml", b"format = 1\n# caf\xe9\n");
    let said = bench.run(&["check", "run.toml"]).ended_with(1).err;
    let expected = "error: cannot read run.toml: it is not UTF-8: byte 6 of line 2 is 0xe9\nhelp: ";
    assert!(said.starts_with(expected), "{said}");
    assert!(!said.contains("dimuon.toml"), "{said}");
}

#[test]
fn a_quantity_of_an_option_is_refused_with_its_range_and_without_quotes() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    for (option, range) in [
        ("--duration=9999999h", "0 or more and below 2500000 h"),
        ("--duration=-1s", "0 or more and below 2500000 h"),
        ("--rate=2000000MHz", "from 0 to 1000000 MHz"),
    ] {
        let said = bench.run(&["run", "run.toml", option]).ended_with(2).err;
        assert!(said.contains("value is out of range; write a "), "{said}");
        assert!(said.contains(range) && !said.contains("quotes"), "{said}");
    }
    let note = bench.run(&["run", "run.toml", "--note", "-x"]);
    let said = note.ended_with(2).err;
    assert!(said.contains("write '--note=-x'"), "{said}");
}

#[test]
fn no_events_and_endless_hops_are_refused() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let none = bench.run(&["source", "run.toml", "--triggers", "0"]);
    let said = none.ended_with(2).err;
    assert!(said.contains("write a whole number, 1 to "), "{said}");
    let plan = [
        "sim",
        "plan",
        "--sources=8",
        "--fragment=2KiB",
        "--rate=1kHz",
    ];
    for (delay, is_allowed) in [("--hop-delay=1s", true), ("--hop-delay=1001ms", false)] {
        let mut arguments = plan.to_vec();
        // Nothing is searched: the help comes behind the values.
        arguments.extend([delay, "--no-such-option"]);
        let said = bench.run(&arguments).ended_with(2).err;
        let is_refused = said.contains("write a time of at most 1.00 s");
        assert_eq!(is_refused, !is_allowed, "{said}");
    }
}
