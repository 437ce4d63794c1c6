//! `livetime sim CONFIG`: what it leaves says everywhere that it was simulated.

use crate::workbench::{SMALL, Workbench, changed};

#[test]
fn a_simulated_run_says_so_in_all_it_leaves() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let arguments = ["sim", "small.toml", "--triggers", "100", "--json", "--out"];
    let document = bench.run(&[&arguments[..], &["out"]].concat());
    assert_eq!(document.ended_with(0).document()["simulated"], true);
    assert!(
        bench
            .read("out/summary.json")
            .contains("\"simulated\": true")
    );
    bench.run(&["report", "out"]).ended_with(0);
    let page = bench.read("out/report.html");
    assert!(page.contains("<title>Simulated run 000001</title>"));
    assert_eq!(bench.inspect("out")["simulated"], true);
    let inspected = bench.run(&["inspect", "out/events.mcap"]).ended_with(0);
    assert!(
        inspected.out.starts_with("simulated run 000001: "),
        "{}",
        inspected.out
    );
    let again = bench
        .run(&[&arguments[..], &["out"]].concat())
        .ended_with(1);
    assert!(
        again
            .err
            .contains("out already holds a run, or a part of one: events.mcap"),
        "{}",
        again.err
    );

    let run = [
        "run",
        "small.toml",
        "--triggers",
        "100",
        "--lossless",
        "--json",
    ];
    let run = bench.run(&run).ended_with(0).document();
    assert_eq!(run["simulated"], serde_json::Value::Null);
}

#[test]
fn files_that_a_simulation_does_not_write_are_named() {
    let bench = Workbench::new();
    let store = "[store]\nfile_max = \"1 MiB\"\ntrigger_packets = true\n";
    bench.write("small.toml", changed(SMALL, "[store]\n", store));
    let simulated = bench.run(&["sim", "small.toml", "--triggers", "100"]);
    let said = simulated.ended_with(0).err;
    let note = "note: a simulation has one run file with all events, whatever `file_max` and `file_time`, \
                `trigger_packets` under [store] say";
    assert!(said.contains(note), "{said}");
}

#[test]
fn refused_triggers_are_in_the_text() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let arguments = [
        "sim",
        "small.toml",
        "--timed",
        "--rate",
        "1MHz",
        "--triggers",
        "500",
    ];
    let text = bench.run(&arguments).ended_with(0).out;
    let line = text.lines().find(|line| line.contains("dead time"));
    assert!(
        line.is_some_and(|line| line.contains(" full buffers, ")),
        "{text}"
    );
}

#[test]
fn a_simulation_that_does_not_come_to_its_end_says_so() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let rate = ["sim", "small.toml", "--timed", "--rate", "0.001Hz"];
    let ended = bench.run(&[&rate[..], &["--triggers", "500"]].concat());
    let said = ended.ended_with(1).err;
    let reason = "error: ended by force: it had not come to its end after 3600 s of simulated time";
    assert!(said.contains(reason), "{said}");
    assert!(said.contains(" of 500 triggers in"), "{said}");
}
