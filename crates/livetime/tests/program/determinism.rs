//! Lossless runs of one seed are the same run, whatever the threads do.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::contents::contents;
use crate::workbench::{SMALL, Workbench, assert_conserved, changed, count, example, value};

/// What must be equal.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    digest: Value,
    counts: Value,
    stored: BTreeMap<u64, u64>,
}

fn run(config: &str, seed: &str) -> Run {
    let bench = Workbench::new();
    bench.write("run.toml", config);
    let count_of = ["--triggers", "20000", "--lossless", "--seed", seed];
    let arguments = [
        &["run", "run.toml", "--out", "out", "--json"][..],
        &count_of,
    ]
    .concat();
    let document = bench.run(&arguments).ended_with(0).document();
    assert_conserved(&document);
    assert_eq!(count(&document, "counts.triggers"), 20_000);
    Run {
        digest: value(&document, "decision_digest").clone(),
        counts: value(&document, "counts").clone(),
        stored: contents(&bench.path("out")),
    }
}

#[test]
fn the_simulator_takes_the_same_run() {
    let bench = Workbench::new();
    bench.write("run.toml", example());
    let common = [
        "run.toml",
        "--triggers",
        "5000",
        "--seed",
        "9",
        "--json",
        "--out",
    ];
    let runs = [&["run", "--lossless"][..], &["sim"]].map(|verb| {
        let out = verb[0];
        let run = bench.run(&[verb, &common, &[out]].concat()).ended_with(0);
        let document = run.document();
        assert_conserved(&document);
        let stored = contents(&bench.path(out));
        assert!(stored.len() > 50, "{stored:?}");
        (value(&document, "decision_digest").clone(), stored)
    });
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn a_real_run_replayed_in_the_simulator_gives_its_outputs() {
    let bench = Workbench::new();
    bench.write("run.toml", example());
    let real = [
        "run",
        "run.toml",
        "--lossless",
        "--triggers",
        "4000",
        "--seed",
        "11",
        "--out",
        "out",
    ];
    bench.run(&real).ended_with(0);
    let same = bench.run(&["sim", "replay", "out", "--json"]);
    let document = same.ended_with(0).document();
    assert_eq!(document["schema"], "livetime.sim_replay/1");
    assert_eq!(document["same"], true, "{document:#}");
    let events = value(&document, "events.real").as_u64();
    assert!(events > Some(50), "{document:#}");
    assert_eq!(value(&document, "events.simulated").as_u64(), events);

    // Another seed in the summary is another run.
    let summary = bench.read("out/summary.json");
    let other = changed(&summary, "\"seed\": \"11\"", "\"seed\": \"12\"");
    bench.write("out/summary.json", other);
    let refused = bench.run(&["sim", "replay", "out"]).ended_with(1);
    assert!(refused.err.contains("events.mcap"), "{}", refused.err);

    // Fewer triggers are another input: then they must differ, and it must be said.
    let fewer = changed(&summary, "\"triggers\": 4000", "\"triggers\": 3000");
    bench.write("out/summary.json", fewer);
    let differ = bench.run(&["sim", "replay", "out"]).ended_with(1);
    assert!(differ.out.contains("The outputs DIFFER"), "{}", differ.out);
    let nowhere = bench.run(&["sim", "replay", "nowhere"]).ended_with(1);
    assert!(
        nowhere.err.contains("nowhere/summary.json"),
        "{}",
        nowhere.err
    );
}

/// Bunch crossings follow from how triggers came: at a rate of the file or of an option, or when there was
/// room, in a real run or a simulated one.
#[test]
fn triggers_of_a_replay_come_as_they_came_in_the_run() {
    let bench = Workbench::new();
    // So slow that hardly any machine refuses one; of one that does crossings are not compared.
    bench.write("run.toml", changed(SMALL, "\"5 kHz\"", "\"50 Hz\""));
    for (number, how) in [
        &["run"][..],
        &["run", "--rate=60Hz"],
        &["run", "--lossless", "--rate", "7kHz"],
        &["sim"],
        &["sim", "--timed"],
    ]
    .iter()
    .enumerate()
    {
        let out = format!("out{number}");
        let common = ["run.toml", "--triggers", "100", "--out", &out, "--json"];
        let taken = bench.run(&[&how[..1], &common, &how[1..]].concat());
        let taken = taken.ended_with(0).document();
        assert_eq!(count(&taken, "counts.events_stored"), 10);
        let replayed = bench.run(&["sim", "replay", &out, "--json"]);
        let replayed = replayed.ended_with(0).document();
        assert_eq!(replayed["same"], true, "{how:?}: {replayed:#}");
    }
}

/// Which triggers a timed run refuses depends on the machine, and not what those are that it takes.
#[test]
fn a_real_run_with_dead_time_is_replayed_in_the_simulator() {
    let bench = Workbench::new();
    bench.write("run.toml", example());
    let real = [
        "run",
        "run.toml",
        "--rate",
        "2MHz",
        "--triggers",
        "4000",
        "--seed",
        "11",
        "--json",
        "--out",
        "out",
    ];
    let taken = bench.run(&real).ended_with(0).document();
    let refused = value(&taken, "counts.refused").as_u64();
    assert!(refused > Some(100), "{taken:#}");
    let replayed = bench.run(&["sim", "replay", "out", "--json"]);
    let document = replayed.ended_with(0).document();
    assert_eq!(document["same"], true, "{document:#}");
    let events = value(&document, "events.real").as_u64();
    assert!(events > Some(50), "{document:#}");
}

/// Each node counts the prescales of its own triggers, and a run may be in many files.
#[test]
fn a_run_of_several_trigger_nodes_and_files_is_that_of_the_simulator() {
    let bench = Workbench::new();
    let nodes = changed(&example(), "[trigger]\n", "[trigger]\nnodes = 3\n");
    let config = changed(&nodes, "prescale = 1000", "prescale = 7");
    let parts = "chunk = \"256 KiB\"\nfile_max = \"512 KiB\"";
    let config = changed(&config, "chunk = \"1 MiB\"", parts);
    bench.write("run.toml", &config);
    let options = ["--lossless", "--triggers", "4000", "--seed", "11"];
    let real = [&["run", "run.toml", "--out", "out"][..], &options].concat();
    bench.run(&real).ended_with(0);
    assert!(bench.path("out/events.0001.mcap").is_file());
    let replayed = bench.run(&["sim", "replay", "out", "--json"]);
    let document = replayed.ended_with(0).document();
    assert_eq!(document["same"], true, "{document:#}");
    // One of its files is gone.
    std::fs::remove_file(bench.path("out/events.0001.mcap")).unwrap();
    let cut = bench.run(&["sim", "replay", "out"]).ended_with(1);
    assert!(
        cut.err.contains("events that the run has stored"),
        "{}",
        cut.err
    );
    // What hangs on time is refused, all of it at once.
    let text = bench.read("out/config.toml");
    let keys = "interval_min = \"1 s\"\nluminosity_max = 100";
    let by_time = changed(&text, "prescale = 7", keys);
    let luminosity = "[trigger]\nluminosity = [200, 50]\n";
    let by_time = changed(&by_time, "[trigger]\n", luminosity);
    let filter = "[filter]\npython = \"my.py:answer\"\n";
    let from = by_time.find("[filter]").expect("there is a filter");
    let to = by_time.find("[store]").expect("there is a store");
    bench.write("out/my.py", "def answer(events):\n    return events\n");
    bench.write(
        "out/config.toml",
        [&by_time[..from], filter, &by_time[to..]].concat(),
    );
    let refused = bench.run(&["sim", "replay", "out"]).ended_with(1);
    for reason in ["interval_min", "luminosity_max", "in Python"] {
        assert!(refused.err.contains(reason), "{}", refused.err);
    }
}

#[test]
fn equal_seeds_give_equal_runs_in_every_layout() {
    let plain = example();
    let reference = run(&plain, "7");
    assert!(reference.stored.len() > 100, "{}", reference.stored.len());
    assert_eq!(run(&plain, "7"), reference, "the same again");

    let one_worker = "[[workers.worker]]\nroles = [\"wr0\", \"fu0\", \"bu1\", \"bu0\", \"evm\", \
                      \"ru1\", \"ru0\", \"trg0\", \"src0\"]\n";
    assert_eq!(
        run(&format!("{plain}{one_worker}"), "7"),
        reference,
        "one worker"
    );

    let mut units = changed(&plain, "builder_units = 2", "builder_units = 3");
    units = changed(&units, "credits = 16", "credits = 3");
    units = changed(
        &units,
        "requests_per_message = 8",
        "requests_per_message = 1",
    );
    units = changed(&units, "units = 1\n", "units = 2\n");
    units = changed(&units, "chunk = \"1 MiB\"", "chunk = \"8 KiB\"");
    assert_eq!(
        run(&units, "7"),
        reference,
        "other units, credits and chunks"
    );

    let mut pushed = changed(
        &plain,
        "credits = 16",
        "mode = \"push\"\ncredits = 16\ncredit_bytes = \"4 MiB\"\nevent_bytes = \"1 MiB\"",
    );
    pushed = changed(&pushed, "builder_units = 2", "builder_units = 3");
    assert_eq!(
        run(&pushed, "7"),
        reference,
        "sent unasked, credits in bytes"
    );

    let other = run(&plain, "8");
    assert_ne!(
        other.digest, reference.digest,
        "another seed is another run"
    );
    assert_ne!(other.stored, reference.stored);
}
