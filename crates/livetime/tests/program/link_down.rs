//! A link that goes down in mid-run: its fragments are named missing, the run goes on and recovers.

use rustix::process::Signal;

use crate::workbench::{SMALL, Workbench, assert_conserved, changed, count, flags, lost, value};

#[test]
fn events_without_the_link_name_it_and_the_run_recovers() {
    let bench = Workbench::new();
    let config = changed(
        SMALL,
        "timeout = \"1 s\"",
        "timeout = \"20 ms\"\nretry = \"5 ms\"",
    );
    bench.write(
        "small.toml",
        changed(&config, "[run]\n", "[run]\ntriggers = 6000\n"),
    );
    // Links are counted in turn over the readout units: 3 is the second one of ru1.
    let fault = [
        "--rate",
        "5 kHz",
        "--lossless",
        "--fault",
        "link-down:3@200ms+400ms",
    ];
    let run = bench.run(&[&["run", "small.toml", "--out", "out", "--json"][..], &fault].concat());
    let run = run.ended_with(0).document();
    assert_conserved(&run);
    let condition = flags(value(&run, "run.condition"));
    assert_eq!(condition, ["INCOMPLETE", "DEGRADED"]);
    let n = |name: &str| count(&run, &format!("counts.{name}"));
    let incomplete = n("events_incomplete");
    assert!(incomplete > 0 && n("events_built") > 0, "{run}");
    assert!(count(&run, "losses.link.link_down") > 0, "{run}");
    assert!(
        lost(&run, "link") >= incomplete,
        "those of rejected triggers are lost as well: {run}"
    );
    assert_eq!(
        lost(&run, "builder") + lost(&run, "filter") + lost(&run, "store"),
        0
    );
    assert_eq!(n("triggers"), 6000, "the run went on to its end");

    let inspected = bench.inspect("out/events.mcap");
    assert_eq!(inspected["complete"], true);
    assert_eq!(count(&inspected, "events_incomplete"), incomplete);
    let missing = serde_json::json!([{ "source": "0x520001", "events": incomplete }]);
    assert_eq!(inspected["sources_missing"], missing);
    // The first trigger and then every tenth are accepted: the last of them was stored.
    assert_eq!(inspected["last_trigger"], "5991");
}

#[test]
fn a_link_that_stays_down_does_not_stop_the_run() {
    let bench = Workbench::new();
    let config = changed(
        SMALL,
        "timeout = \"1 s\"",
        "timeout = \"20 ms\"\nretry = \"5 ms\"",
    );
    bench.write("small.toml", config);
    let fault = ["--fault", "link-down:0@0s+1h"];
    let mut running = bench.start(&[&["run", "small.toml", "--json"][..], &fault].concat());
    running.wait_for_bytes(&bench.path("runs/000001/events.mcap"), 100_000);
    running.signal(Signal::INT);
    let run = running.finish().ended_with(0).document();
    assert_conserved(&run);
    assert_eq!(count(&run, "counts.events_built"), 0);
    let incomplete = count(&run, "counts.events_incomplete");
    assert_eq!(count(&run, "counts.events_stored"), incomplete);
    let missing = &bench.inspect("runs/000001/events.mcap")["sources_missing"];
    assert_eq!(
        *missing,
        serde_json::json!([{ "source": "0x510000", "events": incomplete }])
    );
}

#[test]
fn a_link_stays_down_while_any_of_its_faults_says_so() {
    let bench = Workbench::new();
    let config = changed(
        SMALL,
        "timeout = \"1 s\"",
        "timeout = \"20 ms\"\nretry = \"5 ms\"",
    );
    bench.write("small.toml", config);
    let faults = [
        "--fault",
        "link-down:0@0s+1h",
        "--fault",
        "link-down:0@2h+1h",
    ];
    let run = [
        "run",
        "small.toml",
        "--triggers",
        "200",
        "--lossless",
        "--json",
    ];
    let run = bench.run(&[&run[..], &faults].concat()).ended_with(0);
    let run = run.document();
    assert_conserved(&run);
    assert_eq!(count(&run, "counts.events_built"), 0, "{run}");
    assert_eq!(count(&run, "counts.events_incomplete"), 20, "{run}");
    assert_eq!(count(&run, "losses.link.link_down"), 200, "{run}");
}

#[test]
fn a_link_that_does_not_exist_cannot_go_down() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let run = bench
        .run(&["run", "small.toml", "--fault", "link-down:4@0s+1s"])
        .ended_with(1);
    assert!(
        run.err.contains("no data link 4; links are 0 to 3"),
        "{}",
        run.err
    );
    assert!(!bench.path("runs").exists(), "no number is used up");
}
