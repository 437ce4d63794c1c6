//! A run that is killed: every complete chunk is readable, and a repaired copy is a good file.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::workbench::{SMALL, Workbench, count, flags, triggers};

const SEED: u64 = 2027;
const KILLS: u64 = 5;
const ARGUMENTS: [&str; 6] = [
    "run",
    "small.toml",
    "--triggers",
    "20000",
    "--lossless",
    "--out",
];

/// Numbers that look random and are the same everywhere.
fn random(n: u64) -> u64 {
    let mut z = (SEED + n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

#[test]
fn every_complete_chunk_of_a_killed_run_is_readable() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    bench
        .run(&[&ARGUMENTS[..], &["whole"]].concat())
        .ended_with(0);
    let reference: BTreeSet<u64> = triggers(&bench.inspect("whole/events.mcap"))
        .into_iter()
        .collect();
    assert_eq!(reference.len(), 2000);
    let whole = fs::metadata(bench.path("whole/events.mcap"))
        .expect("it is there")
        .len();
    for n in 0..KILLS {
        let out = format!("out{n}");
        let file = format!("{out}/events.mcap");
        let bytes = random(n) % (whole * 9 / 10);
        println!("kill {n} at {bytes} of {whole} bytes (seed {SEED})");
        let mut running = bench.start(&[&ARGUMENTS[..], &[&out]].concat());
        running.wait_for_bytes(&bench.path(&file), bytes);
        running.kill();

        let inspected = bench
            .run(&["inspect", &file, "--json", "--triggers"])
            .ended_with(1);
        let inspected = inspected.document();
        assert_eq!(inspected["complete"], false);
        assert_eq!(inspected["condition"], "INTERRUPTED");
        assert_eq!(count(&inspected, "checksum_errors"), 0);
        let stored = triggers(&inspected);
        assert!(
            stored.iter().all(|trigger| reference.contains(trigger)),
            "nothing is made up"
        );
        assert_eq!(count(&inspected, "events"), stored.len() as u64);
        // All but the chunk being written and the preamble of the file.
        let readable = stored.len() as u64 * whole / reference.len() as u64;
        assert!(
            readable + 64 * 1024 > bytes,
            "{readable} of {bytes} bytes are readable"
        );
        recovered_copy_is_good(&bench, &file, &out, &stored);
    }
}

fn recovered_copy_is_good(bench: &Workbench, file: &str, out: &str, stored: &[u64]) {
    let before = fs::read(bench.path(file)).expect("it is there");
    let copy = format!("{out}/copy.mcap");
    let recovered = bench.run(&["inspect", file, "--recover", &copy]);
    let recovered = recovered.ended_with(0);
    let copied = triggers(&bench.inspect(&copy));
    // A chunk that was cut off may give some more.
    assert!(stored.iter().all(|trigger| copied.contains(trigger)));
    let said = format!("recovered {} events", copied.len());
    assert!(recovered.err.contains(&said), "{}", recovered.err);
    let said = bench.run(&["inspect", &copy]).ended_with(0);
    let what = "repaired copy of an interrupted run";
    assert!(said.out.contains(what), "{}", said.out);
    assert!(!said.err.contains("--recover"), "{}", said.err);
    let inspected = bench.inspect(&copy);
    assert_eq!(inspected["index"], "summary");
    assert_eq!(inspected["recovered"], true);
    assert_eq!(count(&inspected, "damaged_ranges"), 0);
    assert!(
        flags(&inspected["condition"]).contains(&"INTERRUPTED"),
        "{inspected}"
    );
    assert!(
        fs::read(bench.path(file)).expect("it is there") == before,
        "the file is untouched"
    );
    let again = bench
        .run(&["inspect", file, "--recover", &copy])
        .ended_with(1);
    assert!(again.err.contains("cannot create"), "{}", again.err);
    assert_eq!(
        triggers(&bench.inspect(&copy)),
        copied,
        "a copy is never overwritten"
    );
}

#[test]
fn a_truncated_file_is_read_as_far_as_it_goes() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let short = [
        "run",
        "small.toml",
        "--triggers",
        "2000",
        "--lossless",
        "--out",
        "out",
    ];
    bench.run(&short).ended_with(0);
    let bytes = fs::read(bench.path("out/events.mcap")).expect("it is there");
    let mut last = 0;
    for eighths in 1..8 {
        bench.write("cut.mcap", &bytes[..bytes.len() * eighths / 8]);
        let inspected = bench.run(&["inspect", "cut.mcap", "--json"]).ended_with(1);
        let inspected: Value = inspected.document();
        assert_eq!(inspected["complete"], false);
        assert_eq!(count(&inspected, "checksum_errors"), 0);
        let events = count(&inspected, "events");
        assert!(events >= last && events < 200, "{events} after {last}");
        last = events;
    }
    assert!(last > 100, "{last} of 200 events in seven eighths");
    // The report of a run says so too, as does whatever reads its events.
    bench.write("out/events.mcap", &bytes[..bytes.len() / 2]);
    let reported = bench.run(&["report", "out"]).ended_with(1);
    let said = "of the 200 that the run stored";
    assert!(reported.err.contains(said), "{}", reported.err);
    let page = bench.read("out/report.html");
    assert!(page.contains("Now the run files here hold ") && page.contains(said));
    let replayed = bench.run(&["replay", "out"]).ended_with(1);
    let said = "cut off within a chunk, with events not counted: events.mcap";
    assert!(replayed.err.contains(said), "{}", replayed.err);
}

/// A workbench with a run in `out`.
fn small_run() -> Workbench {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let options = ["--triggers", "2000", "--lossless", "--out", "out"];
    bench
        .run(&[&["run", "small.toml"][..], &options].concat())
        .ended_with(0);
    bench
}

/// One wrong bit in each of some files, at many places: every reader finds the same events.
#[test]
fn a_wrong_bit_costs_one_event_and_all_readers_agree() {
    let bench = small_run();
    let bytes = fs::read(bench.path("out/events.mcap")).expect("it is there");
    let stored = count(&bench.inspect("out/events.mcap"), "events");
    for place in 1..8 {
        let mut flipped = bytes.clone();
        flipped[bytes.len() * place / 10] ^= 4;
        bench.write("out/events.mcap", &flipped);
        let inspected = bench.run(&["inspect", "out", "--json"]).ended_with(1);
        let inspected = inspected.document();
        let (events, missing) = (
            count(&inspected, "events"),
            count(&inspected, "events_missing"),
        );
        assert_eq!(
            (events + missing, missing <= 1),
            (stored, true),
            "{inspected}"
        );
        assert!(count(&inspected, "damaged_ranges") > 0);

        let copy = format!("copy{place}.mcap");
        let recovered = bench.run(&["inspect", "out/events.mcap", "--recover", &copy]);
        let recovered = recovered.ended_with(0);
        let said = format!("recovered {events} events");
        assert!(recovered.err.contains(&said), "{}", recovered.err);
        assert_eq!(count(&bench.inspect(&copy), "events"), events);

        let out = format!("out{place}.raw");
        let code = i32::from(missing > 0);
        let exported = bench.run(&["export", "out", "--format", "bytestream", "--out", &out]);
        let exported = exported.ended_with(code);
        assert_eq!(exported.out, format!("{events} events\n"));
        let said = format!("{missing} of {stored} events are damaged or missing in events.mcap");
        assert_eq!(
            exported.err.contains(&said),
            missing > 0,
            "{}",
            exported.err
        );
        let replayed = bench.run(&["replay", "out", "--json"]).ended_with(code);
        assert_eq!(
            replayed.err.contains(&said),
            missing > 0,
            "{}",
            replayed.err
        );
        assert_eq!(count(&replayed.document(), "events"), events);
    }
}

/// An event and the histograms damaged, and no bytes left of a part: each is said in its words.
#[test]
fn what_a_copy_lacks_and_an_empty_part_are_said() {
    let bench = small_run();
    let mut bytes = fs::read(bench.path("out/events.mcap")).expect("it is there");
    let magic = 0x4C54_4556_u32.to_le_bytes();
    let event = bytes.windows(4).position(|word| word == magic);
    let event = event.expect("it has events");
    // The header of the first event, and the name of the first histogram.
    bytes[event + 8] ^= 1;
    let name = b"\"uhi_schema\"";
    let histogram = bytes.windows(name.len()).position(|text| text == name);
    bytes[histogram.expect("it has histograms")] ^= 1;
    bench.write("damaged.mcap", &bytes);
    let recovered = bench.run(&["inspect", "damaged.mcap", "--recover", "copy.mcap"]);
    let said = ", 1 are damaged or missing, the histograms cannot be read, into copy.mcap";
    let recovered = recovered.ended_with(0);
    assert!(recovered.err.contains(said), "{}", recovered.err);

    fs::create_dir(bench.path("parts")).expect("the folder is ours");
    bench.write(
        "parts/events.0001.mcap",
        fs::read(bench.path("out/events.mcap")).expect("it is there"),
    );
    bench.write("parts/events.mcap", b"");
    let inspected = bench.run(&["inspect", "parts"]).ended_with(1);
    let said = "missing: what was in file events.mcap, 0 bytes with no chunk of a run file";
    assert!(inspected.out.contains(said), "{}", inspected.out);
}

/// A copy without a single event is none.
#[test]
fn a_recovery_that_finds_nothing_says_so() {
    let bench = small_run();
    let mut bytes = fs::read(bench.path("out/events.mcap")).expect("it is there");
    // The magic word of every event, as if a disk had lost a bit of each.
    let magic = 0x4C54_4556_u32.to_le_bytes();
    for at in 0..bytes.len() - 3 {
        if bytes[at..at + 4] == magic {
            bytes[at] ^= 1;
        }
    }
    bench.write("lost.mcap", &bytes);
    let recovered = bench.run(&["inspect", "lost.mcap", "--recover", "copy.mcap"]);
    let recovered = recovered.ended_with(1);
    let said = "no event in it is whole and 200 are known to be missing; no copy was written";
    assert!(recovered.err.contains(said), "{}", recovered.err);
    assert!(!bench.path("copy.mcap").exists());
}
