//! The Level-3 menu in a run: its counts are those of the run, and replay and simulation agree.

use serde_json::Value;

use crate::workbench::{Workbench, assert_conserved, changed, count, example, value};

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
