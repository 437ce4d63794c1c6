//! A run that could write more than it may: events wait, or yield and are counted.

use serde_json::Value;

use crate::workbench::{SMALL, Workbench, assert_conserved, changed, count, lost};

const BUDGET: u64 = 100_000;
/// Events that are accepted.
const ACCEPTED: u64 = 200;

/// 200 events of some 2.3 kB are accepted, more than fit into four seconds: the budget binds on a busy
/// machine, too.
fn run_with(store: &str) -> Value {
    let bench = Workbench::new();
    let config = changed(
        SMALL,
        "chunk = \"16 KiB\"",
        &format!("chunk = \"16 KiB\"\nevent_max = \"64 KiB\"\n{store}"),
    );
    bench.write("small.toml", config);
    let options = ["--triggers", "2000", "--lossless", "--out", "out", "--json"];
    let run = bench.run(&[&["run", "small.toml"][..], &options].concat());
    let run = run.ended_with(0).document();
    assert_conserved(&run);
    assert_eq!(count(&run, "counts.filter_accepted"), ACCEPTED);
    let inspected = bench.inspect("out/events.mcap");
    assert_eq!(
        count(&inspected, "events"),
        count(&run, "counts.events_stored")
    );
    run
}

fn of_writer(run: &Value, name: &str) -> u64 {
    run["roles"]["wr0"][name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {run}"))
}

#[test]
fn events_wait_for_the_budget_and_none_is_lost() {
    let run = run_with("output_per_second = \"100 kB\"");
    assert_eq!(count(&run, "counts.events_stored"), ACCEPTED);
    assert_eq!(lost(&run, "store"), 0);
    assert!(of_writer(&run, "output_waits") > 0);
    let most = of_writer(&run, "output_window_bytes_max");
    assert!((BUDGET / 2..=BUDGET).contains(&most), "{most}");
    // What was written in the first second fits into the budget once more in each other second.
    assert!(of_writer(&run, "output_waited_ns") > 0);
}

#[test]
fn yielding_streams_are_prescaled_away_and_counted() {
    let run = run_with("output_per_second = \"100 kB\"\nyielding_streams = [0]");
    let yielded = count(&run, "losses.store.output_yielded");
    assert!(yielded > 0, "{run}");
    assert_eq!(count(&run, "counts.events_stored") + yielded, ACCEPTED);
    assert_eq!(of_writer(&run, "output_yielded"), yielded);
    assert_eq!(of_writer(&run, "output_waits"), 0);
    assert!(of_writer(&run, "output_window_bytes_max") <= BUDGET);
}

#[test]
fn a_budget_below_one_event_is_refused() {
    let bench = Workbench::new();
    let config = changed(
        SMALL,
        "chunk = \"16 KiB\"",
        "chunk = \"16 KiB\"\noutput_per_second = \"1 MB\"",
    );
    bench.write("small.toml", config);
    let checked = bench.run(&["check", "small.toml"]).ended_with(1);
    assert!(checked.err.contains("S0105"), "{}", checked.err);
    assert!(
        checked.err.contains("store.output_per_second"),
        "{}",
        checked.err
    );
}
