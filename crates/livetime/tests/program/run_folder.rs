//! Run directories: numbers that are never given twice, directories that are never shared.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::process::Signal;
use serde_json::Value;

use crate::workbench::{SMALL, Workbench, assert_conserved, count};

const SHORT: [&str; 5] = ["run", "small.toml", "--triggers", "100", "--lossless"];

#[test]
fn numbers_go_up_and_are_not_given_twice() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let number = |bench: &Workbench| {
        let run = bench.run(&[&SHORT[..], &["--json"]].concat());
        count(&run.ended_with(0).document(), "run.number")
    };
    assert_eq!([number(&bench), number(&bench)], [1, 2]);
    fs::remove_dir_all(bench.path("runs/000002")).expect("the run has ended");
    assert_eq!(number(&bench), 3);
    assert!(bench.path("runs/000001/events.mcap").is_file());
    assert!(!bench.path("runs/000002").exists());
    for (held, said) in [
        ("many", "counter file runs/counter holds \"many\", expected"),
        ("", "counter file runs/counter holds \"\", expected"),
        ("4294967295\n", "above which there is no run number"),
    ] {
        bench.write("runs/counter", held);
        let refused = bench.run(&SHORT).ended_with(1);
        assert!(refused.err.contains(said), "{}", refused.err);
        assert_eq!(bench.read("runs/counter"), held);
    }
}

#[test]
fn a_second_run_in_one_directory_is_refused_and_the_first_unharmed() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let first = ["run", "small.toml", "--out", "out", "--json"];
    let mut running = bench.start(&first);
    running.wait_for_bytes(&bench.path("out/events.mcap"), 20_000);
    let second = bench
        .run(&[&SHORT[..], &["--out", "out"]].concat())
        .ended_with(1);
    assert!(
        second.err.contains("another run is writing to out"),
        "{}",
        second.err
    );
    assert_eq!(second.out, "");
    running.signal(Signal::INT);
    let run = running.finish().ended_with(0).document();
    assert_conserved(&run);
    let inspected = bench.inspect("out/events.mcap");
    assert_eq!(inspected["complete"], true);
    assert_eq!(
        count(&inspected, "events"),
        count(&run, "counts.events_stored")
    );
    assert_eq!(
        bench.read("runs/counter").trim(),
        "000001",
        "a refused run takes no number"
    );

    let third = bench
        .run(&[&SHORT[..], &["--out", "out"]].concat())
        .ended_with(1);
    assert!(
        third.err.contains("out already holds a run"),
        "{}",
        third.err
    );
    let simulated = ["sim", "small.toml", "--triggers", "100", "--out", "out"];
    let simulated = bench.run(&simulated).ended_with(1);
    let said = "error: out already holds a run, or a part of one: events.mcap";
    assert!(simulated.err.contains(said), "{}", simulated.err);
    assert_eq!(
        bench.inspect("out/events.mcap"),
        inspected,
        "it is as it was"
    );
    let kept: Value = serde_json::from_str(&bench.read("out/summary.json")).expect("it is JSON");
    assert_eq!(kept, run);
    // What is given again goes to another directory; how the run came about is kept with it.
    let again = ["livetime", "run", "small.toml", "--json"];
    assert_eq!(kept["command"], serde_json::json!(again));
    let first = "# run 000001 was started by: livetime run small.toml --out out --json\n";
    assert!(bench.read("out/config.toml").starts_with(first));
}

#[test]
fn a_run_that_cannot_begin_leaves_its_directory_as_it_was() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    // Its first file has no place, since a link is there that leads nowhere.
    fs::create_dir_all(bench.path("out")).expect("the folder is ours");
    bench.write("out/notes.txt", "mine");
    symlink("none/config.toml", bench.path("out/config.toml")).expect("the folder is ours");
    let refused = bench
        .run(&[&SHORT[..], &["--out", "out"]].concat())
        .ended_with(1);
    let said = "error: cannot write out/config.toml";
    assert!(refused.err.starts_with(said), "{}", refused.err);
    let left = fs::read_dir(bench.path("out")).expect("it is there");
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
}

/// The documented repair: a copy in the place of the file that it is of; under any other name of a run's
/// file it would be a second file of the run.
#[test]
fn a_repaired_part_is_read_with_its_run_and_only_under_its_name() {
    let bench = Workbench::new();
    // Its last section is that of the store.
    let parts = format!("{SMALL}file_max = \"64 KiB\"\n");
    bench.write("small.toml", &parts);
    let run = [
        "run",
        "small.toml",
        "--triggers",
        "3000",
        "--lossless",
        "--out",
        "out",
    ];
    bench.run(&run).ended_with(0);
    let whole = bench
        .run(&["inspect", "out", "--json"])
        .ended_with(0)
        .document();
    let part = bench.path("out/events.0001.mcap");
    let mut bytes = fs::read(&part).expect("the run has several parts");
    let text = b"started_tai_ns";
    let at = bytes.windows(text.len()).position(|found| found == text);
    bytes[at.expect("it has a begin-of-run record")] ^= 32;
    fs::write(&part, bytes).expect("the run has ended");

    for name in [
        "out/events.copy.mcap",
        "out/events.9999.mcap",
        "out/events-1.mcap",
    ] {
        let recover = ["inspect", "out/events.0001.mcap", "--recover", name];
        let refused = bench.run(&recover).ended_with(1);
        let said = format!("cannot create {name}: a name that makes it a file of the run in out");
        assert!(refused.err.contains(&said), "{}", refused.err);
        assert!(!bench.path(name).exists());
    }
    let recover = [
        "inspect",
        "out/events.0001.mcap",
        "--recover",
        "out/copy.mcap",
    ];
    bench.run(&recover).ended_with(0);
    fs::rename(bench.path("out/copy.mcap"), &part).expect("the copy is there");
    let found = bench
        .run(&["inspect", "out", "--json"])
        .ended_with(0)
        .document();
    for key in [
        "events",
        "first_trigger",
        "last_trigger",
        "events_missing",
        "condition",
        "files",
    ] {
        assert_eq!(found[key], whole[key], "{key}");
    }
}

#[test]
fn the_file_that_spoils_a_directory_is_named() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    bench
        .run(&[&SHORT[..], &["--out", "out"]].concat())
        .ended_with(0);
    let copy = bench.path("out/events.copy.mcap");
    fs::copy(bench.path("out/events.mcap"), copy).expect("the run has ended");
    let refused = bench.run(&["inspect", "out"]).ended_with(1);
    let said = "events.copy.mcap: holds what events.mcap of the run holds";
    assert!(refused.err.contains(said), "{}", refused.err);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    bench.write("file", "");
    let run = bench
        .run(&[&SHORT[..], &["--out", "file/out"]].concat())
        .ended_with(1);
    assert!(run.err.contains("cannot use file/out"), "{}", run.err);
}
