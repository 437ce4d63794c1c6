//! The Level-3 menu in a run: its counts are those of the run, and replay and simulation agree.

use std::fs::File;
use std::io::BufReader;

use livetime_store::RunReader;
use serde_json::Value;

use crate::workbench::{Workbench, assert_conserved, changed, count, example, flags, value};

const MENU: &str = r#"[filter]
name = "menu"
streams = ["z", "leptons", "sample"]

[[filter.path]]
name = "Z"
cut = "dimuon"
mass_min = "70 GeV"
mass_max = "110 GeV"
streams = ["z", "leptons"]

[[filter.path]]
name = "MUON"
cut = "muons"
pt_min = "15 GeV"
prescale = 2
streams = ["leptons"]

[[filter.path]]
name = "SAMPLE"
cut = "all"
prescale = 10
streams = ["sample"]

"#;

fn configuration() -> String {
    let example = example();
    let (before, rest) = example.split_once("[filter]").expect("it has one");
    let store = rest.find("[store]").expect("it has one");
    format!("{before}{MENU}{}", &rest[store..])
}

#[test]
fn a_level_three_menu_counts_its_paths_and_streams() {
    let bench = Workbench::new();
    bench.write("menu.toml", configuration());
    let options = ["--triggers", "20000", "--lossless", "--json"];
    let arguments = [&["run", "menu.toml", "--out", "run"][..], &options].concat();
    let document = bench.run(&arguments).ended_with(0).document();
    let path =
        |name: &str, what: &str| count(&document, &format!("filter_menu.paths.{name}.{what}"));
    let stream = |name: &str| count(&document, &format!("filter_menu.streams.{name}.events"));
    let built = count(&document, "counts.events_built");
    assert!(path("Z", "fired") > 0, "{document}");
    assert_eq!(path("Z", "fired"), path("Z", "passed"));
    assert!(path("MUON", "fired") < path("MUON", "passed"));
    assert_eq!(path("SAMPLE", "passed"), built);
    assert_eq!(stream("z"), path("Z", "fired"));
    assert_eq!(stream("sample"), path("SAMPLE", "fired"));
    let accepted = count(&document, "counts.filter_accepted");
    assert!(stream("leptons") <= accepted && accepted < built);
    assert!(value(&document, "filter_menu.stage_ns.reconstruct").as_f64() > Some(0.0));
    let replayed = bench
        .run(&["replay", "run", "--json"])
        .ended_with(0)
        .document();
    assert_eq!(count(&replayed, "events"), accepted);
    assert_eq!(count(&replayed, "differing"), 0);
    // The very menu in the simulation drops and keeps the same events.
    let arguments = [
        &["sim", "menu.toml", "--out", "sim"][..],
        &options[..2],
        &["--json"],
    ]
    .concat();
    let simulated = bench.run(&arguments).ended_with(0).document();
    for key in ["counts.events_built", "counts.filter_accepted"] {
        assert_eq!(count(&simulated, key), count(&document, key), "{key}");
    }
    for path in ["Z", "MUON", "SAMPLE"] {
        for what in ["passed", "fired"] {
            let key = format!("filter_menu.paths.{path}.{what}");
            assert_eq!(count(&simulated, &key), count(&document, &key), "{key}");
        }
    }
    for stream in ["z", "leptons", "sample"] {
        let key = format!("filter_menu.streams.{stream}.events");
        assert_eq!(count(&simulated, &key), count(&document, &key), "{key}");
    }
    let stages = value(&simulated, "filter_menu.stage_ns").as_object();
    assert!(stages.is_some_and(serde_json::Map::is_empty), "{simulated}");
}

/// Given a filter unit that dies, then the counts of the menu say whose share they lack, in the document
/// and in the file; without, they say nothing.
#[test]
fn a_menu_says_whose_share_its_counts_lack() {
    let bench = Workbench::new();
    let two = "[filter]\nunits = 2\n";
    bench.write("menu.toml", changed(&configuration(), "[filter]\n", two));
    let lacking = |out: &str, fault: &[&str]| {
        let arguments = ["run", "menu.toml", "--triggers", "8000", "--lossless"];
        let options = ["--processes", "--json", "--out", out];
        let run = bench.run(&[&arguments[..], &options, fault].concat());
        let document = run.ended_with(0).document();
        assert_conserved(&document);
        let file = File::open(bench.path(&format!("{out}/events.mcap"))).expect("it is there");
        let reader = RunReader::open(BufReader::new(file)).expect("a run file");
        let of_record = reader.end().expect("a record").menu_lacking.clone();
        let of_document = document["filter_menu"]["lacking"].clone();
        (of_document, of_record)
    };
    assert_eq!(lacking("whole", &[]), (Value::Null, Vec::new()));
    let killed = lacking("killed", &["--fault", "kill:fu0@4000triggers"]);
    let name = "fu0~1".to_owned();
    assert_eq!(killed, (Value::from(vec![name.clone()]), vec![name]));
}

/// Given a limit that no event keeps, then all of them are in the error stream, and in no count of a
/// path or stream; the filter units count the same, and a person reads it.
#[test]
fn events_over_their_time_are_named_and_counted_once() {
    let bench = Workbench::new();
    let limited = "name = \"menu\"\nevent_limit = \"1 ns\"\n";
    bench.write(
        "menu.toml",
        changed(&configuration(), "name = \"menu\"\n", limited),
    );
    let arguments = [
        "run",
        "menu.toml",
        "--out",
        "run",
        "--triggers",
        "5000",
        "--lossless",
    ];
    let finished = bench.run(&arguments).ended_with(0);
    let document: Value =
        serde_json::from_str(&bench.read("run/summary.json")).expect("a document");
    assert_conserved(&document);
    let built = count(&document, "counts.events_built");
    assert!(built > 0, "{document}");
    assert_eq!(count(&document, "counts.events_stored"), built);
    assert_eq!(flags(value(&document, "run.condition")), ["DEGRADED"]);
    let menu = value(&document, "filter_menu");
    assert_eq!(count(menu, "over_time"), built);
    for path in ["Z", "MUON", "SAMPLE"] {
        for what in ["passed", "fired"] {
            assert_eq!(count(menu, &format!("paths.{path}.{what}")), 0, "{path}");
        }
    }
    for stream in ["z", "leptons", "sample"] {
        assert_eq!(count(menu, &format!("streams.{stream}.events")), 0);
    }
    for name in ["events_to_error_stream", "reason.over_time.accepted"] {
        let roles = value(&document, "roles").as_object().expect("an object");
        let of_roles = roles.values().filter_map(|role| role.get(name)?.as_u64());
        assert_eq!(of_roles.sum::<u64>(), built, "{name}");
    }
    let said = format!("{built} events took longer than `filter.event_limit`");
    assert!(finished.out.contains(&said), "{}", finished.out);
}
