//! Two-step building: the events of one step, with less that moves.

use serde_json::Value;

use crate::workbench::{
    Workbench, assert_conserved, changed, count, example, project, triggers, value,
};

const FIRST_STEP: &str = "first_step = [\"ru0\"]\n";
/// Sources of an event, and those of the units that are not in the first step.
const SOURCES: u64 = 8;
const REST: u64 = 6;

fn two_step() -> String {
    let path = project().join("examples/two_step.toml");
    std::fs::read_to_string(path).expect("the example is there")
}

/// The document of a lossless run or simulation, and the triggers in its file.
fn outcome(verb: &str, config: &str) -> (Value, Vec<u64>) {
    let bench = Workbench::new();
    bench.write("run.toml", config);
    let mut arguments = vec![verb, "run.toml", "--triggers", "8000", "--seed", "5"];
    arguments.extend(["--json", "--out", "out"]);
    arguments.extend((verb == "run").then_some("--lossless"));
    let document = bench.run(&arguments).ended_with(0).document();
    assert_conserved(&document);
    let stored = triggers(&bench.inspect("out/events.mcap"));
    (document, stored)
}

/// What a selection on the first step must not change.
fn decided(document: &Value) -> (&Value, [u64; 4]) {
    let counts = [
        "triggers",
        "l2_accepted",
        "filter_accepted",
        "events_stored",
    ];
    let counts = counts.map(|name| count(document, &format!("counts.{name}")));
    (value(document, "decision_digest"), counts)
}

/// Paths of the event menu may ask for Level-2 bits: what is built again has them.
#[test]
fn events_that_are_built_again_are_filtered_alike() {
    let bench = Workbench::new();
    bench.write("run.toml", two_step());
    let run = ["run", "run.toml", "--triggers", "8000", "--lossless"];
    bench
        .run(&[&run[..], &["--out", "out"]].concat())
        .ended_with(0);
    for stage in ["builder", "links"] {
        let replayed = bench.run(&["replay", "out", "--into", stage, "--json"]);
        let replayed = replayed.ended_with(0).document();
        assert!(count(&replayed, "accepted") > 100, "{replayed}");
        assert_eq!(count(&replayed, "differing"), 0, "{stage}");
    }
}

/// Given a menu that knows from bits and prescales what it rejects, then one step and two give the
/// same file, over each transport and in the simulation, and the fragments in between are those
/// that nobody asked for.
#[test]
fn two_steps_store_the_events_of_one() {
    let (whole, whole_stored) = outcome("run", &changed(&two_step(), FIRST_STEP, ""));
    assert!(value(&whole, "counts").get("two_step").is_none());
    let shm = two_step();
    let tcp = changed(&shm, "[builder]\n", "[builder]\ntransport = \"tcp\"\n");
    let streams = changed(&tcp, "[filter]\n", "[filter]\ntransport = \"tcp\"\n");
    for (verb, config) in [
        ("run", &shm),
        ("run", &tcp),
        ("run", &streams),
        ("sim", &shm),
    ] {
        let (document, stored) = outcome(verb, config);
        assert_eq!(stored, whole_stored, "{verb}");
        assert_eq!(decided(&document), decided(&whole), "{verb}");
        let counts = |name: &str| count(&document, &format!("counts.{name}"));
        let before = |name: &str| count(&whole, &format!("counts.{name}"));
        let unasked = before("fragments_in_built") - counts("fragments_in_built");
        assert_eq!(before("events_built"), counts("events_built"));
        assert_eq!(
            counts("fragments_dropped_by_decision") - before("fragments_dropped_by_decision"),
            unasked
        );
        if verb == "sim" {
            assert!(unasked > 0);
            continue;
        }
        let steps = |name: &str| count(&document, &format!("two_step.{name}"));
        assert_eq!(steps("events_released") * REST, unasked);
        assert_eq!(steps("causes.released_by_filter"), steps("events_released"));
        assert_eq!(
            steps("events_released") + steps("events_fetched"),
            counts("events_built")
        );
        assert_eq!(steps("events_unjudged"), 0);
        let of_units = value(&document, "two_step.readout_units").as_object();
        let units = of_units.expect("an object").values();
        let left = units.filter_map(|unit| unit["fragments_unasked"].as_u64());
        assert_eq!(left.sum::<u64>(), unasked, "those that came late, too");
        let [moved, rest, left] = ["bytes_first_step", "bytes_second_step", "bytes_unasked"]
            .map(|name| steps(name) as f64);
        let factor = value(&document, "two_step.saving_factor").as_f64();
        assert_eq!(factor, Some((moved + rest + left) / (moved + rest)));
        assert!(factor > Some(2.5), "{factor:?}");
        let of_unit = |unit: &str| steps(&format!("readout_units.{unit}.bytes_sent"));
        assert!(of_unit("ru0") > 4 * of_unit("ru1"), "the imbalance");
    }
}

/// Given a selection by Level-2 bits and a filter that keeps everything, then the file is that of a
/// menu with these bits.
#[test]
fn a_selection_by_bits_is_a_path_by_bits() {
    let (before, rest) = two_step().split_once("[filter]").map_or_else(
        || panic!("it has a filter"),
        |(before, rest)| (before.to_owned(), rest.to_owned()),
    );
    let store = &rest[rest.find("[store]").expect("it has one")..];
    let of_bits = "[filter]\nname = \"accept_all\"\n[filter.first_step]\nl2 = [8, 16]\n\n";
    let menu = "[filter]\nname = \"menu\"\nstreams = [\"all\"]\n[[filter.path]]\nname = \"BITS\"\n\
                cut = \"all\"\nl2 = [8, 16]\nstreams = [\"all\"]\n\n";
    let one_step = changed(&before, FIRST_STEP, "");
    let (_, expected) = outcome("run", &format!("{one_step}{menu}{store}"));
    let selected = format!("{before}{of_bits}{store}");
    for verb in ["run", "sim"] {
        assert_eq!(outcome(verb, &selected).1, expected, "{verb}");
    }
    assert!(expected.len() > 100);
}

/// Given leptons that are asked for in the first step, then a sample of the events without them is
/// fetched all the same, and each event is released or fetched for one cause.
#[test]
fn leptons_of_the_first_step_select_and_a_sample_shows_what_is_lost() {
    let config = changed(
        &example(),
        "keep_one_in = 100\n",
        "keep_one_in = 0\n[filter.first_step]\nleptons = 1\npt_min = \"10 GeV\"\nkeep_one_in = 20\n",
    );
    let config = changed(&config, "[builder]\n", &format!("[builder]\n{FIRST_STEP}"));
    let (document, stored) = outcome("run", &config);
    let cause = |name: &str| count(&document, &format!("two_step.causes.{name}"));
    let built = count(&document, "counts.events_built");
    assert_eq!(
        cause("fetched") + cause("fetched_as_sample") + cause("released_by_selection"),
        built
    );
    for name in ["fetched", "fetched_as_sample", "released_by_selection"] {
        assert!(cause(name) > 0, "{name}");
    }
    assert_eq!(
        count(&document, "counts.fragments_in_built"),
        built * SOURCES - cause("released_by_selection") * SOURCES / 2
    );
    // What is kept is kept in one step, too.
    let (_, whole) = outcome(
        "run",
        &changed(&example(), "keep_one_in = 100", "keep_one_in = 0"),
    );
    assert!(!stored.is_empty() && stored.iter().all(|trigger| whole.contains(trigger)));
    assert!(stored.len() < whole.len());
}

/// What a person reads at the end of a run.
#[test]
fn the_summary_says_what_two_steps_saved() {
    let bench = Workbench::new();
    bench.write("run.toml", two_step());
    let arguments = [
        "run",
        "run.toml",
        "--triggers",
        "5000",
        "--lossless",
        "--out",
        "out",
    ];
    let finished = bench.run(&arguments).ended_with(0);
    for said in [
        "events released after the first, ",
        "released_by_filter ",
        " never asked for: ",
        "ru0, first step",
        "ru3, second step",
        " times the mean",
        " were released after the first step, and paths may have passed",
    ] {
        assert!(finished.out.contains(said), "{said}: {}", finished.out);
    }
    let page = bench.read("out/report.html");
    for said in ["Two-step building: ", "released by filter", "ru3"] {
        assert!(page.contains(said), "{said} is not on the page");
    }
}
