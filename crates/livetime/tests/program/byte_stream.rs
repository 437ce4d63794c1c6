//! Byte streams of the ATLAS family: imported through the chain and exported as they were.

use std::fs;

use crate::workbench::{Workbench, count, recorded};

const BES3: &str = "bes3_run91668_10events.raw";

/// A ROB with `data` words of its own.
fn rob(source: u32, data: u32) -> Vec<u32> {
    let mut words = vec![0xDD12_34DD, 8 + 13 + data, 8, 0x0300_0000, source, 1, 0, 0];
    words.extend([0xEE12_34EE, 9, 0x0300_0000, source, 7, 1, 0, 0, 0]);
    words.extend((0..data).map(|n| n * source));
    words.extend([0, 1, data, 1]);
    words
}

/// A stream of two events, without the records of a file; the second lacks a source.
fn small_stream() -> Vec<u8> {
    let mut stream = Vec::new();
    for (number, sources) in [(9, 3), (4, 2)] {
        let robs: Vec<u32> = (1..=sources).flat_map(|n| rob(n, n * 40)).collect();
        // Checksum type; seconds, nanoseconds, event, run type, run.
        let specific = [0, 1, 500 - number, number, 0, 7];
        let header = 7 + specific.len() as u32;
        let total = header + robs.len() as u32;
        stream.extend([0xAA12_34AA, total, header, 0x0400_0000, 1, 1, 0]);
        stream.extend(specific);
        stream.extend(robs);
    }
    stream.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn real_built_events_go_through_42_links_and_come_out_identical() {
    let Some(file) = recorded(BES3) else {
        return;
    };
    let bench = Workbench::new();
    let path = file.to_str().expect("a path in UTF-8");
    let import = bench.run(&["import", "bytestream", path, "--out", "run", "--json"]);
    let document = import.ended_with(0).document();
    assert_eq!(document["schema"], "livetime.import/1");
    assert_eq!(document["run"], 91_668);
    for (key, expected) in [
        ("events", 10),
        ("events_out_of_order", 2),
        ("robs", 420),
        ("links", 43),
        ("fragments_sent", 430),
        ("fragments_received", 430),
        ("events_told", 10),
    ] {
        assert_eq!(count(&document, key), expected, "{key}");
    }
    let export = bench.run(&[
        "export",
        "run",
        "--format",
        "bytestream",
        "--out",
        "out.raw",
    ]);
    assert_eq!(export.ended_with(0).out, "10 events\n");
    let (before, after) = (fs::read(&file), fs::read(bench.path("out.raw")));
    assert!(before.expect("the file is there") == after.expect("it was written"));
    assert_eq!(count(&bench.inspect("run/events.mcap"), "events"), 10);
}

#[test]
fn events_with_missing_sources_come_out_as_they_went_in() {
    let bench = Workbench::new();
    bench.write("small.raw", small_stream());
    let import = bench.run(&["import", "bytestream", "small.raw", "--out", "run"]);
    let text = import.ended_with(0).out;
    let expected = "run 7: 2 events, 1 of them out of order, 5 ROBs of 3 sources";
    assert!(text.starts_with(expected), "{text}");
    let said = "1 events have no ROB of a source that others have; an empty fragment stands for";
    assert!(text.contains(said), "{text}");
    assert_eq!(bench.inspect("run/events.mcap")["condition"], "INCOMPLETE");
    let arguments = [
        "export",
        "run",
        "--format",
        "bytestream",
        "--out",
        "out.raw",
    ];
    bench.run(&arguments).ended_with(0);
    let exported = fs::read(bench.path("out.raw")).expect("it was written");
    assert!(exported == small_stream());
    // Nothing is overwritten, neither a run nor a file.
    let again = bench.run(&["import", "bytestream", "small.raw", "--out", "run"]);
    assert!(
        again
            .ended_with(1)
            .err
            .contains("run already holds a run, or a part of one: events.mcap")
    );
    assert!(
        bench
            .run(&arguments)
            .ended_with(1)
            .err
            .contains("cannot make out.raw")
    );
}

#[test]
fn a_stream_that_was_cut_behind_an_event_or_lacks_one_is_no_good_run() {
    let bench = Workbench::new();
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let start = words(&[0x1234_AAAA, 4, 1, 2]);
    let end = words(&[0x1234_DDDD, 10, 0, 0, 3, 0, 3, 0, 0, 0x1234_EEEE]);
    let whole_events = || {
        // Without the second, which lacks a source.
        let first = 4 * u32::from_le_bytes(small_stream()[4..8].try_into().expect("a word"));
        small_stream()[..first as usize].to_vec()
    };
    bench.write("cut.raw", [start.clone(), whole_events()].concat());
    bench.write("short.raw", [start, whole_events(), end].concat());
    for (name, said, told, cut) in [
        ("cut", "it was cut behind an event", None, true),
        (
            "short",
            "1 events are there, 3 by the end-of-file",
            Some(3),
            false,
        ),
    ] {
        let file = format!("{name}.raw");
        let import = bench.run(&["import", "bytestream", &file, "--out", name]);
        let text = import.ended_with(0).out;
        assert!(text.contains(said), "{text}");
        let inspected = bench.inspect(&format!("{name}/events.mcap"));
        assert_eq!(inspected["condition"], "INCOMPLETE", "{name}");
        let out = format!("{name}_again");
        let import = bench.run(&["import", "bytestream", &file, "--out", &out, "--json"]);
        let document = import.ended_with(0).document();
        assert_eq!(document["events_told"].as_u64(), told, "{name}");
        assert_eq!(document["cut"], cut, "{name}");
    }
}

#[test]
fn runs_of_livetime_become_full_events_that_can_be_imported() {
    let bench = Workbench::new();
    bench.write("small.toml", crate::workbench::SMALL);
    bench
        .run(&["run", "small.toml", "--triggers", "300"])
        .ended_with(0);
    let stored = count(&bench.inspect("runs/000001/events.mcap"), "events");
    let arguments = [
        "export",
        "runs/000001",
        "--format",
        "bytestream",
        "--out",
        "run.raw",
    ];
    let export = bench.run(&arguments).ended_with(0);
    assert_eq!(export.out, format!("{stored} events\n"));
    let import = bench.run(&[
        "import",
        "bytestream",
        "run.raw",
        "--out",
        "again",
        "--json",
    ]);
    let document = import.ended_with(0).document();
    assert_eq!(count(&document, "events"), stored);
    assert_eq!(count(&document, "links"), 4 + 1);
    assert_eq!(count(&document, "events_lacking_sources"), 0);
    assert_eq!(count(&document, "events_flagged"), 0);
}

/// What sources or links did to an event is in the status words, and is said when it comes back.
#[test]
fn incomplete_events_of_livetime_are_told_from_whole_ones_after_an_import() {
    let bench = Workbench::new();
    bench.write("small.toml", crate::workbench::SMALL);
    let arguments = [
        "run",
        "small.toml",
        "--duration",
        "2s",
        "--fault",
        "link-down:1@500ms+500ms",
    ];
    bench.run(&arguments);
    let inspected = bench.inspect("runs/000001/events.mcap");
    let incomplete = count(&inspected, "events_incomplete");
    let arguments = ["--format", "bytestream", "--out", "run.raw"];
    bench
        .run(&[&["export", "runs/000001"][..], &arguments].concat())
        .ended_with(0);
    let import = bench.run(&[
        "import",
        "bytestream",
        "run.raw",
        "--out",
        "again",
        "--json",
    ]);
    let document = import.ended_with(0).document();
    assert!(incomplete > 0, "{inspected}");
    assert_eq!(count(&document, "events_lacking_sources"), incomplete);
    assert!(count(&document, "events_flagged") >= incomplete);
}

/// A run that was imported has no configuration, and nothing is said about an empty one.
#[test]
fn an_imported_run_is_replayed_with_a_configuration_that_is_named() {
    let bench = Workbench::new();
    bench.write("small.toml", crate::workbench::SMALL);
    bench.write("small.raw", small_stream());
    bench
        .run(&["import", "bytestream", "small.raw", "--out", "run"])
        .ended_with(0);
    for more in [&[][..], &["--into", "links"], &["--into", "trigger"]] {
        let replayed = bench.run(&[&["replay", "run"][..], more].concat());
        let replayed = replayed.ended_with(1);
        let said = "error: run: the run has no configuration that names its stages; an imported";
        assert!(replayed.err.starts_with(said), "{}", replayed.err);
        assert!(replayed.err.contains("--filter-of"), "{}", replayed.err);
    }
    let named = [
        "replay",
        "run",
        "--into",
        "links",
        "--filter-of",
        "small.toml",
    ];
    let replayed = bench.run(&named).ended_with(0);
    assert!(replayed.out.contains("2 events"), "{}", replayed.out);
}

#[test]
fn what_is_no_byte_stream_is_refused_with_the_place() {
    let bench = Workbench::new();
    let whole = small_stream();
    let mut swapped = whole.clone();
    swapped.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    for (name, content, expected) in [
        ("empty", vec![], "holds no event"),
        ("odd", whole[..41].to_vec(), "has 41 B"),
        (
            "cut",
            whole[..400].to_vec(),
            "length 316 at word 1 does not fit, 100 words are there",
        ),
        (
            "swapped",
            swapped,
            "word 0 is 0xaa3412aa: the stream is of the other byte order",
        ),
        ("text", b"no data!".to_vec(), "word 0 is"),
    ] {
        bench.write(name, content);
        let import = bench
            .run(&["import", "bytestream", name, "--out", "run"])
            .ended_with(1);
        assert!(import.err.contains(expected), "{name}: {}", import.err);
        assert!(!bench.path("run/events.mcap").exists(), "{name}");
    }
    let import = bench.run(&["import", "bytestream", "absent", "--out", "run"]);
    assert!(import.ended_with(1).err.contains("cannot read absent"));
    bench
        .run(&["export", "absent", "--format", "bytestream"])
        .ended_with(1);
    bench
        .run(&["export", "absent", "--format", "other"])
        .ended_with(2);
}
