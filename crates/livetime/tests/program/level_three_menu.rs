//! The Level-3 menu in a run: its counts are those of the run, and replay and simulation agree.

use crate::workbench::{Workbench, count, example, value};

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
