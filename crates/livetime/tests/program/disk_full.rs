//! A disk that is full: the run ends in order, the file stays valid, the error says why.

use std::os::unix::fs::symlink;

use rustix::process::Signal;

use crate::workbench::{
    SMALL, Workbench, assert_conserved, changed, count, finished, flags, lost_in_all, value,
};

/// Files larger than so many blocks of 512 bytes cannot be written.
fn limit(blocks: u32) -> String {
    format!("ulimit -c 0; ulimit -f {blocks}")
}

/// Runs into a limit and returns whether the end-of-run record found room.
fn run_into_limit(blocks: u32, options: &[&str]) -> bool {
    let bench = Workbench::new();
    // The limit also holds for the 4.1 MiB of shared memory with the pages.
    let config = changed(SMALL, "bytes_mean = \"512 B\"", "bytes_mean = \"4 KiB\"");
    bench.write("small.toml", config);
    let arguments = ["run", "small.toml", "--lossless", "--json", "--out", "out"];
    let arguments = [&arguments, options].concat();
    let run = finished(bench.command_after(&limit(blocks), &arguments)).ended_with(1);
    assert!(
        run.err.contains("out/events.mcap: File too large"),
        "{}",
        run.err
    );
    let document = run.document();
    assert_conserved(&document);
    let failed = count(&document, "losses.store.write_failed");
    assert!(failed > 0 && lost_in_all(&document) == failed, "{document}");
    let condition = flags(value(&document, "run.condition"));
    assert_eq!(condition, ["INCOMPLETE", "INTERRUPTED"]);
    let stored = count(&document, "counts.events_stored");
    assert!(stored > 0, "{document}");
    assert!(bench.path("out/report.html").is_file());

    let inspected = bench.inspect("out/events.mcap");
    assert_eq!(count(&inspected, "events"), stored, "{inspected}");
    assert_eq!(count(&inspected, "checksum_errors"), 0);
    assert_eq!(count(&inspected, "damaged_ranges"), 0, "{inspected}");
    let complete = inspected["complete"] == true;
    if complete {
        assert_eq!(flags(&inspected["condition"]), condition);
    }
    complete
}

#[test]
fn the_run_ends_in_order_when_the_file_cannot_grow() {
    // Chunks take 8 to 32 KiB here, so that not every limit falls just behind one.
    let of_threads = (0..4).map(|n| run_into_limit(9000 + 8 * n, &[]));
    let complete: Vec<bool> = of_threads.collect();
    assert!(
        complete.contains(&true),
        "the end-of-run record never found room"
    );
}

#[test]
fn the_run_of_processes_ends_in_order_when_the_file_cannot_grow() {
    run_into_limit(9000, &["--processes"]);
}

/// The account of a run is printed even if nothing more can be written.
#[test]
fn a_summary_that_cannot_be_written_is_printed_all_the_same() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    // A link that leads nowhere is in its place.
    std::fs::create_dir_all(bench.path("out")).expect("the folder is ours");
    symlink("none/summary.json", bench.path("out/summary.json")).expect("the folder is ours");
    let arguments = [
        "run",
        "small.toml",
        "--triggers",
        "200",
        "--lossless",
        "--out",
        "out",
        "--json",
    ];
    let run = bench.run(&arguments).ended_with(1);
    assert!(
        run.err.contains("error: cannot write out/summary.json"),
        "{}",
        run.err
    );
    let document = run.document();
    assert_conserved(&document);
    assert_eq!(
        document["files"],
        serde_json::json!(["out/events.mcap", "out/config.toml"])
    );
    assert_eq!(bench.inspect("out/events.mcap")["complete"], true);
}

#[test]
fn memory_that_cannot_be_had_is_an_error_with_its_reason() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let run = finished(bench.command_after(&limit(400), &["run", "small.toml"])).ended_with(1);
    let said = "error: cannot create a page pool: ftruncate of ";
    assert!(run.err.contains(said), "{}", run.err);
    assert!(run.err.contains("File too large"), "{}", run.err);
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let bench = Workbench::new();
    for arguments in [&["explain", "B0107"][..], &["explain"]] {
        let mut command = bench.command(arguments);
        let full = std::fs::File::options().write(true).open("/dev/full");
        command.stdout(full.expect("Linux has it"));
        let run = finished(command).ended_with(1);
        assert!(
            run.err.contains("error: cannot write to standard output"),
            "{}",
            run.err
        );
    }
}

/// The packets of a run whose events have room all the same.
#[test]
fn trigger_packets_that_the_disk_does_not_take_are_named() {
    let bench = Workbench::new();
    let config = changed(SMALL, "[store]", "[store]\ntrigger_packets = true");
    bench.write(
        "small.toml",
        changed(&config, "prescale = 10", "prescale = 1000"),
    );
    let arguments = [
        "run",
        "small.toml",
        "--lossless",
        "--triggers",
        "40000",
        "--out",
        "out",
    ];
    let run = finished(bench.command_after(&limit(9000), &arguments)).ended_with(0);
    let said = " of 40000 trigger packets were not recorded: the disk was full, or slower";
    assert!(run.out.contains(said), "{}", run.out);
    let inspected = bench.inspect("out/packets.mcap");
    assert_eq!(
        flags(&inspected["condition"]),
        ["INCOMPLETE"],
        "{inspected}"
    );
    let recorded = count(&inspected, "events");
    assert!(0 < recorded && recorded < 40_000, "{inspected}");
}

#[test]
fn the_status_says_that_trigger_packets_are_not_recorded() {
    let bench = Workbench::new();
    let config = changed(SMALL, "[store]", "[store]\ntrigger_packets = true");
    bench.write(
        "small.toml",
        changed(&config, "prescale = 10", "prescale = 100000"),
    );
    let arguments = ["run", "small.toml", "--lossless", "--out", "out"];
    let mut running = bench.start_command(bench.command_after(&limit(9000), &arguments));
    running.wait_for_line("warning: trigger packets cannot be written any more");
    let said = bench.run(&["steer", "out", "status"]).ended_with(0).out;
    let place = "trigger packets are not recorded: their disk has no room, or a write failed";
    assert!(said.contains(place), "{said}");
    let status = bench.run(&["steer", "out", "status", "--json"]).document();
    assert_eq!(status["packets_unrecorded"], true, "{status}");
    assert_eq!(status["disk_full"], false, "{status}");
    let metrics = bench.run(&["steer", "out", "status", "--prometheus"]);
    let metrics = metrics.ended_with(0).out;
    for line in ["livetime_packets_unrecorded 1\n", "livetime_disk_full 0\n"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    running.signal(Signal::INT);
    running.finish().ended_with(0);
}

/// A part of a result is none, and would be in the way of the next try.
#[test]
fn what_could_not_be_written_to_its_end_is_not_left() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let run = [
        "run",
        "small.toml",
        "--triggers",
        "400",
        "--lossless",
        "--out",
        "out",
    ];
    bench.run(&run).ended_with(0);
    for (arguments, left) in [
        (
            &["export", "out", "--format", "bytestream", "--out", "x"][..],
            "x",
        ),
        (
            &["source", "small.toml", "--triggers", "4000", "--jsonl", "y"],
            "y",
        ),
        (
            &[
                "source",
                "small.toml",
                "--triggers",
                "4000",
                "--frames",
                "z",
            ],
            "z/510000.frames",
        ),
    ] {
        let done = finished(bench.command_after(&limit(16), arguments)).ended_with(1);
        assert!(done.err.contains("File too large"), "{}", done.err);
        assert!(!bench.path(left).exists(), "{left}");
        bench.run(arguments).ended_with(0);
        assert!(bench.path(left).is_file(), "{left}");
    }
}

/// Nor does a page give way to a part of one.
#[test]
fn a_report_that_has_no_room_leaves_the_former_one() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let run = ["run", "small.toml", "--triggers", "400", "--out", "out"];
    bench.run(&run).ended_with(0);
    std::fs::create_dir_all(bench.path("pages")).expect("the folder is ours");
    let report = ["report", "out", "--output", "pages/page.html"];
    let names = || {
        let entries = std::fs::read_dir(bench.path("pages")).expect("it is there");
        let names = entries.flatten().map(|entry| entry.file_name());
        names.collect::<Vec<_>>()
    };
    let done = finished(bench.command_after(&limit(16), &report)).ended_with(1);
    assert!(done.err.contains("File too large"), "{}", done.err);
    assert_eq!(names(), [""; 0]);
    bench.run(&report).ended_with(0);
    let page = bench.read("pages/page.html");
    let done = finished(bench.command_after(&limit(16), &report)).ended_with(1);
    assert!(done.err.contains("File too large"), "{}", done.err);
    assert_eq!(names(), ["page.html"]);
    assert_eq!(bench.read("pages/page.html"), page);
}
