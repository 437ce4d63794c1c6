//! A run in several files: by stream, one part after the other, and with a disk that fills.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use livetime_client::RunFolder;
use serde_json::Value;

use crate::workbench::{
    SMALL, Workbench, assert_conserved, changed, count, example, finished, flags, lost_in_all,
    triggers, value,
};

const OPTIONS: [&str; 6] = ["--triggers", "20000", "--lossless", "--seed", "5", "--json"];

/// Takes a run of the example with these keys under `[store]`.
fn take(bench: &Workbench, out: &str, store: &str, more: &[&str]) -> Value {
    bench.write(
        "example.toml",
        changed(&example(), "chunk = \"1 MiB\"", store),
    );
    let arguments = [&["run", "example.toml", "--out", out][..], &OPTIONS, more].concat();
    let run = bench.run(&arguments).ended_with(0).document();
    assert_conserved(&run);
    run
}

fn run_files(run: &Value) -> Vec<String> {
    let files = value(run, "files").as_array().expect("a list");
    let names = files.iter().map(|file| file.as_str().expect("a path"));
    names
        .filter_map(|path| Path::new(path).file_name()?.to_str())
        .filter(|name| name.ends_with(".mcap"))
        .map(str::to_owned)
        .collect()
}

fn several_files(more: &[&str]) {
    let bench = Workbench::new();
    let whole = take(&bench, "whole", "file_time = \"0 s\"", more);
    let store = "file_max = \"256 KiB\"\nchunk = \"16 KiB\"\n\
                 [[store.file]]\nname = \"dimuon\"\nstreams = [0]";
    let run = take(&bench, "out", store, more);
    assert_eq!(whole["digest"], run["digest"]);
    let stored = count(&run, "counts.events_stored");
    assert_eq!(stored, count(&whole, "counts.events_stored"));

    let files = run_files(&run);
    assert_eq!(run_files(&whole), ["events.mcap"]);
    let of_stream = files
        .iter()
        .filter(|f| f.starts_with("events.dimuon"))
        .count();
    assert!(of_stream > 1 && files.len() > of_stream, "{files:?}");

    let inspected = bench.inspect("out");
    assert_eq!(inspected["complete"], true, "{inspected}");
    assert_eq!(count(&inspected, "events"), stored);
    assert_eq!(inspected["files"], Value::from(files.clone()));
    let all = triggers(&inspected);
    let unique: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(unique.len(), all.len(), "each event is in one file");
    assert_eq!(all, triggers(&bench.inspect("whole")));
    for (name, path) in files
        .iter()
        .map(|name| (name, bench.path("out").join(name)))
    {
        let mut reader = RunFolder::open(&path).expect("a run file");
        while let Some(event) = reader.next_event().expect("it is readable") {
            let is_dimuon = event.header().streams & 1 != 0;
            assert_eq!(is_dimuon, name.starts_with("events.dimuon"), "{name}");
        }
    }

    let replayed = bench.run(&["replay", "out", "--json"]).ended_with(0);
    assert_eq!(count(&replayed.document(), "events"), stored);
    assert_eq!(count(&replayed.document(), "differing"), 0);
    let export = [
        "export",
        "out",
        "--format",
        "bytestream",
        "--out",
        "out.data",
    ];
    let exported = bench.run(&export).ended_with(0);
    assert_eq!(exported.out, format!("{stored} events\n"));
    bench.run(&["report", "out"]).ended_with(0);

    // A part that is gone is missed by name and by its events.
    let gone = bench.path("out/events.dimuon.0001.mcap");
    fs::remove_file(gone).expect("it is there");
    let inspected = bench.inspect("out");
    assert_eq!(
        inspected["files_missing"],
        serde_json::json!(["events.dimuon.0001.mcap"])
    );
    let missing = count(&inspected, "events_missing");
    assert_eq!(count(&inspected, "events") + missing, stored, "{inspected}");
    assert_eq!(inspected["complete"], false);
    let export = [
        "export",
        "out",
        "--format",
        "bytestream",
        "--out",
        "less.data",
    ];
    let exported = bench.run(&export).ended_with(1);
    let replayed = bench.run(&["replay", "out"]).ended_with(1);
    let said = format!(
        "{missing} of {stored} events are damaged or missing; not there: events.dimuon.0001.mcap"
    );
    for run in [exported, replayed] {
        assert!(run.err.contains(&said), "{}", run.err);
    }

    // Of the events of a stream that is gone no other file tells: the run's summary does.
    for name in files.iter().filter(|f| f.starts_with("events.dimuon")) {
        // One of them is gone already.
        let _gone = fs::remove_file(bench.path("out").join(name));
    }
    let inspected = bench.inspect("out");
    assert_eq!(inspected["complete"], false);
    let here = count(&inspected, "events");
    assert_eq!(here + count(&inspected, "events_missing"), stored);
    let replayed = bench.run(&["replay", "out"]).ended_with(1);
    let said = format!(
        "{} of {stored} events are damaged or missing",
        stored - here
    );
    assert!(replayed.err.contains(&said), "{}", replayed.err);
}

#[test]
fn streams_and_parts_hold_what_one_file_holds() {
    several_files(&[]);
}

#[test]
fn a_writer_in_a_process_of_its_own_rolls_over_as_well() {
    several_files(&["--processes"]);
}

#[test]
fn a_file_is_followed_by_the_next_after_its_time() {
    let bench = Workbench::new();
    let config = changed(
        SMALL,
        "chunk = \"16 KiB\"",
        "chunk = \"16 KiB\"\nfile_time = \"300 ms\"",
    );
    bench.write("small.toml", config);
    let arguments = [
        "run",
        "small.toml",
        "--duration",
        "2s",
        "--rate",
        "2kHz",
        "--json",
    ];
    let out = ["--out", "out"];
    let run = bench
        .run(&[&arguments[..], &out].concat())
        .ended_with(0)
        .document();
    assert_conserved(&run);
    assert!(run_files(&run).len() > 2, "{:?}", run_files(&run));
    let inspected = bench.inspect("out");
    assert_eq!(inspected["complete"], true, "{inspected}");
    assert_eq!(
        count(&inspected, "events"),
        count(&run, "counts.events_stored")
    );
}

#[test]
fn too_little_free_space_holds_the_run_and_then_ends_it() {
    let bench = Workbench::new();
    let guard = "chunk = \"16 KiB\"\nfree_space_min = \"1000000000 GiB\"\nfull_wait = \"300 ms\"";
    bench.write("small.toml", changed(SMALL, "chunk = \"16 KiB\"", guard));
    let arguments = ["run", "small.toml", "--lossless", "--json", "--out", "out"];
    let run = bench.run(&arguments).ended_with(1);
    assert!(
        run.err
            .contains("warning: the disk of the run file has no room"),
        "{}",
        run.err
    );
    assert!(run.err.contains("`free_space_min` is "), "{}", run.err);
    assert!(!run.err.contains("has room again"), "{}", run.err);
    let document = run.document();
    assert_conserved(&document);
    let failed = count(&document, "losses.store.write_failed");
    assert_eq!(lost_in_all(&document), failed, "{document}");
    assert_eq!(
        flags(value(&document, "run.condition")),
        ["INCOMPLETE", "INTERRUPTED"]
    );
    assert_eq!(document["roles"]["wr0"]["disk_full_waits"], 1);
    assert!(document["roles"]["wr0"]["disk_full_ns"].as_u64() >= Some(300_000_000));
    let inspected = bench.inspect("out");
    assert_eq!(inspected["complete"], true);
    let stored = count(&document, "counts.events_stored");
    assert_eq!(count(&inspected, "events"), stored, "{document}");
}

/// What is wrong can be mended, and the run started as it was.
#[test]
fn a_run_that_cannot_start_leaves_nothing_in_the_way_of_the_next() {
    let bench = Workbench::new();
    let python = "[filter]\npython = \"filter.py:keep\"\n";
    bench.write(
        "bad.toml",
        changed(SMALL, "[filter]\nname = \"accept_all\"\n", python),
    );
    bench.write("filter.py", "import livetime\n");
    bench.write("good.toml", SMALL);
    fs::create_dir(bench.path("mine")).expect("a writable folder");
    for processes in [&[][..], &["--processes"]] {
        for out in ["out", "mine"] {
            let arguments = ["run", "bad.toml", "--triggers", "100", "--out", out];
            let mut command = bench.command(&[&arguments[..], processes].concat());
            command.env("LIVETIME_PYTHON", "/nowhere/python");
            let refused = finished(command).ended_with(1);
            assert!(refused.err.contains("/nowhere/python"), "{}", refused.err);
        }
        assert!(!bench.path("out").exists(), "it was made for the run");
        let left = fs::read_dir(bench.path("mine")).expect("it was there before");
        assert_eq!(left.count(), 0);
    }
    let arguments = ["run", "good.toml", "--out", "out"];
    bench
        .run(&[&arguments[..], &OPTIONS].concat())
        .ended_with(0);
}

/// As a coordinator has it that shares no folder with the host of its writer.
#[test]
fn a_file_that_only_the_host_of_its_writer_has_is_named_by_all_that_read_the_run() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let arguments = ["run", "run.toml", "--out", "out"];
    let run = bench
        .run(&[&arguments[..], &OPTIONS].concat())
        .ended_with(0);
    let mut summary = run.document();
    let stored = count(&summary, "counts.events_stored");
    summary["writers"] = serde_json::json!([{
        "role": "wr0", "host": "far", "file": "/far/out/events.mcap",
        "events_stored": stored, "elsewhere": true,
    }]);
    bench.write("out/summary.json", summary.to_string());
    let whole = fs::read(bench.path("out/events.mcap")).expect("it is there");
    assert!(bench.inspect("out").get("files_elsewhere").is_none());

    // The first chunk is what a run begins with.
    let begun = (0..whole.len()).find(|bytes| {
        fs::write(bench.path("out/events.mcap"), &whole[..*bytes]).expect("a writable folder");
        RunFolder::open(&bench.path("out/events.mcap")).is_ok()
    });
    assert!(begun.is_some(), "it begins with a chunk");
    let place = "far:/far/out/events.mcap";
    let inspected = bench.inspect("out");
    assert_eq!(inspected["files_elsewhere"], serde_json::json!([place]));
    assert_eq!(count(&inspected, "events_missing"), stored);
    let said = bench.run(&["inspect", "out"]).ended_with(1);
    assert!(said.out.contains(&format!("  elsewhere: file {place}\n")));
    assert!(
        said.err.contains("copy the files of other hosts"),
        "{}",
        said.err
    );
    for verb in [&["report", "out"][..], &["replay", "out"]] {
        let said = bench.run(verb).ended_with(1);
        assert!(said.err.contains(place), "{}", said.err);
    }
    let page = bench.read("out/report.html");
    assert!(
        page.contains(place) && !page.contains("cut off"),
        "it says where"
    );
}

/// Mounts a disk of 8 MiB at `disk`, seen by the command alone, with a file that takes most of it.
const SMALL_DISK: &str =
    "mount -t tmpfs -o size=8m tmpfs disk && head -c 6000000 /dev/zero >disk/filler";

/// Takes a run on a small disk until it is full, makes room, and lets it go on: nothing may be lost.
fn fill_and_make_room(store: &str, triggers: &str) {
    let bench = Workbench::new();
    fs::create_dir(bench.path("disk")).expect("the folder is ours");
    let mut probe = Command::new("unshare");
    probe
        .args(["-m", "sh", "-c", SMALL_DISK])
        .current_dir(bench.path("."));
    if !probe.output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: mounting a disk of its own is not permitted");
        return;
    }
    let keys = format!("{store}\nfree_space_min = \"0 B\"\nfull_wait = \"100 s\"");
    let config = changed(SMALL, "chunk = \"16 KiB\"", &keys);
    bench.write("small.toml", config);
    let mut command = Command::new("unshare");
    let script = format!("{SMALL_DISK} && exec \"$0\" \"$@\"");
    command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_livetime")]);
    command.args(["run", "small.toml", "--triggers", triggers, "--lossless"]);
    command
        .args(["--out", "disk/out", "--json"])
        .current_dir(bench.path("."));
    let mut running = bench.start_command(command);
    running.wait_for_line("warning: the disk of the run file has no room");
    let root = format!("/proc/{}/root", running.id());
    let seen = Path::new(&root).join(
        bench
            .path("disk")
            .strip_prefix("/")
            .expect("it is absolute"),
    );
    fs::remove_file(seen.join("filler")).expect("it is in the mount of the program");
    running.wait_for_line("the disk of the run file has room again");
    // The mount is gone with the program, so its files are looked at before: it ends when told.
    let run = running.finish();
    assert_eq!(run.code, Some(0), "{}", run.err);
    let document = run.document();
    assert_conserved(&document);
    assert_eq!(lost_in_all(&document), 0, "{document}");
    assert_eq!(
        count(&document, "counts.events_stored"),
        count(&document, "counts.filter_accepted")
    );
    assert!(document["roles"]["wr0"]["disk_full_waits"].as_u64() >= Some(1));
}

#[test]
fn a_full_disk_holds_the_run_until_there_is_room_and_nothing_is_lost() {
    fill_and_make_room("chunk = \"64 KiB\"\nfile_max = \"1 MiB\"", "12000");
}

/// All of it is one chunk, for which there is no room when the run ends.
#[test]
fn a_run_that_is_to_end_waits_for_room_as_one_that_goes_on() {
    fill_and_make_room("chunk = \"64 MiB\"", "12000");
}

/// Blocks of the disk of a run.
const PAGE: u64 = 4096;

/// A run of some events, and of as much to say in its last records that they take some blocks.
fn with_long_end(full_wait: &str) -> (Workbench, Vec<String>) {
    let bench = Workbench::new();
    fs::create_dir(bench.path("disk")).expect("the folder is ours");
    let keys = format!("chunk = \"64 KiB\"\nfree_space_min = \"0 B\"\nfull_wait = \"{full_wait}\"");
    bench.write("small.toml", changed(SMALL, "chunk = \"16 KiB\"", &keys));
    let mut arguments: Vec<String> = ["run", "small.toml", "--triggers", "2000", "--lossless"]
        .map(str::to_owned)
        .into();
    arguments.push("--json".to_owned());
    arguments.extend((0..16).map(|n| format!("--note={n} {}", "x".repeat(900))));
    (bench, arguments)
}

/// The run on a disk of its own that lacks some blocks for its file; `None` where that cannot be.
fn on_disk_without(bench: &Workbench, arguments: &[String], blocks: u64) -> Option<Command> {
    let mut whole = arguments.to_vec();
    whole.extend(["--out".to_owned(), format!("whole{blocks}")]);
    bench.run(&whole).ended_with(0);
    let file = bench.path(&format!("whole{blocks}/events.mcap"));
    let bytes = fs::metadata(file).expect("it is there").len();
    // Beside it is the configuration.
    let room = (bytes.div_ceil(PAGE) + 1 - blocks) * PAGE;
    let filler = (8 << 20) - room;
    let disk =
        format!("mount -t tmpfs -o size=8m tmpfs disk && head -c {filler} /dev/zero >disk/filler");
    let mut probe = Command::new("unshare");
    probe.args(["-m", "sh", "-c", &disk]);
    probe.current_dir(bench.path("."));
    if !probe.output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: mounting a disk of its own is not permitted");
        return None;
    }
    let mut command = Command::new("unshare");
    let script = format!("{disk} && exec \"$0\" \"$@\"");
    command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_livetime")]);
    command.args(arguments).args(["--out", "disk/out"]);
    command.current_dir(bench.path("."));
    Some(command)
}

#[test]
fn the_last_records_of_a_run_wait_for_room() {
    let (bench, arguments) = with_long_end("100 s");
    let Some(command) = on_disk_without(&bench, &arguments, 2) else {
        return;
    };
    let mut running = bench.start_command(command);
    running.wait_for_line("warning: the run file is not closed yet");
    let root = format!("/proc/{}/root", running.id());
    let disk = bench.path("disk");
    let disk = disk.strip_prefix("/").expect("it is absolute");
    let filler = Path::new(&root).join(disk).join("filler");
    fs::remove_file(filler).expect("it is in the mount of the program");
    let run = running.finish().ended_with(0);
    let document = run.document();
    assert_conserved(&document);
    assert_eq!(lost_in_all(&document), 0, "{document}");
    assert_eq!(document["run"]["condition"], "GOOD");
    assert!(!run.err.contains("error"), "{}", run.err);
}

/// And is told so, although all its events are there.
#[test]
fn a_run_whose_last_records_find_no_room_is_interrupted() {
    let (bench, arguments) = with_long_end("100 ms");
    for blocks in (2..40).step_by(2) {
        let Some(command) = on_disk_without(&bench, &arguments, blocks) else {
            return;
        };
        let run = finished(command).ended_with(1);
        let document = run.document();
        assert_conserved(&document);
        let said = "error: cannot write disk/out/events.mcap: No space left on device";
        if !run.err.contains(said) {
            continue;
        }
        let condition = flags(value(&document, "run.condition"));
        assert!(condition.contains(&"INTERRUPTED"), "{condition:?}");
        assert_eq!(lost_in_all(&document), 0, "no size between the two");
        return;
    }
    panic!("its last records always found room");
}

#[test]
fn names_that_cannot_be_are_refused_with_their_place() {
    let bench = Workbench::new();
    let keys =
        "chunk = \"16 KiB\"\nfile_max = \"1 KiB\"\n[[store.file]]\nname = \"A/B\"\nstreams = []";
    bench.write("small.toml", changed(SMALL, "chunk = \"16 KiB\"", keys));
    let checked = finished(bench.command(&["check", "small.toml"])).ended_with(1);
    for code in ["S0106", "S0107", "S0108"] {
        assert!(checked.err.contains(code), "{code} in {}", checked.err);
    }
}
