//! Objects that lie over the ends of pages: whatever the size of pages, filters see the same events.

use serde_json::{Map, Value};

use crate::contents::contents;
use crate::workbench::{Workbench, assert_conserved, count, lost_in_all, value};

/// With some thirty objects in each fragment, of which most take more than a page.
const SOURCE: &str = r#"format = 1

[run]
seed = 7

[[source]]
[source.fragment]
bytes_mean = "1 KiB"
bytes_max = "4 KiB"
[source.physics]
soft_tracks_mean = 60

[[link]]
to = "trg0"
source_id = 0x700000

[[link]]
to = "ru0"
source_id = 1
page = "PAGE"

[[link]]
to = "ru1"
source_id = 2
page = "PAGE"

[trigger]
decision_timeout = "20 s"

[[trigger.path]]
name = "ALL"
bit = 0
l1 = [0]
cut = "auto"
prescale = 2

[builder]
BUILDER
timeout = "20 s"

[filter]
"#;
const PAGES: [&str; 3] = ["4 KiB", "512 B", "256 B"];
const MASS_WINDOW: &str = "name = \"mass_window\"\nkeep_one_in = 0\n";
const MENU: &str = r#"name = "menu"
streams = ["muons", "electrons", "pairs"]

[[filter.path]]
name = "MUON"
cut = "muons"
streams = ["muons"]

[[filter.path]]
name = "ELECTRON"
cut = "electrons"
streams = ["electrons"]

[[filter.path]]
name = "PAIR"
cut = "dimuon"
streams = ["pairs"]
"#;
const FIRST_STEP: &str = "\n[filter.first_step]\nleptons = 1\npt_min = \"5 GeV\"\n";

fn config(page: &str, builder: &str, filter: &str) -> String {
    let config = SOURCE.replace("PAGE", page).replace("BUILDER", builder);
    config + filter
}

/// What a filter unit and the selection on the first step have counted, but for times.
fn verdicts(run: &Value) -> Map<String, Value> {
    let of_unit = value(run, "roles.fu0").as_object().expect("an object");
    let kinds = ["reason.", "path.", "stream.", "first_step."];
    let counted = of_unit.iter().filter(|(name, _)| {
        let is_kind = kinds.iter().any(|kind| name.starts_with(kind));
        is_kind && !name.ends_with(".ns")
    });
    let mut counted: Map<String, Value> = counted.map(|(n, v)| (n.clone(), v.clone())).collect();
    if let Some(two_step) = run["counts"].get("two_step").or(run.get("two_step")) {
        counted.insert("causes".to_owned(), two_step["causes"].clone());
    }
    assert!(!counted.is_empty(), "{run}");
    counted
}

/// Runs a filter over events in pages of each size, and with the smallest ones behind these lines of
/// the builder and of the filter as well: the answers are the same, and a replay gives them again.
#[track_caller]
fn assert_same(builder: &str, filter: &str, transports: &[(&str, &str)]) -> Value {
    let of_pages = PAGES.map(|page| config(page, builder, filter));
    let of_transports = transports.iter().map(|(of_builder, of_filter)| {
        let builder = format!("{builder}\n{of_builder}");
        config(PAGES[2], &builder, &format!("{of_filter}\n{filter}"))
    });
    let mut whole: Option<(Value, _)> = None;
    for config in of_pages.into_iter().chain(of_transports) {
        // In a folder of its own each run has the same number.
        let bench = Workbench::new();
        bench.write("run.toml", &config);
        let arguments = [
            "run",
            "run.toml",
            "--triggers",
            "3000",
            "--lossless",
            "--json",
        ];
        let run = bench.run(&[&arguments[..], &["--out", "out"]].concat());
        let run = run.ended_with(0).document();
        assert_conserved(&run);
        assert_eq!(lost_in_all(&run), 0, "{config}");
        let stored = contents(&bench.path("out"));
        let replayed = bench.run(&["replay", "out", "--json"]).ended_with(0);
        assert_eq!(count(&replayed.document(), "differing"), 0, "{config}");
        let Some((first, first_stored)) = &whole else {
            whole = Some((run, stored));
            continue;
        };
        assert_eq!(verdicts(&run), verdicts(first), "{config}");
        assert_eq!(run["decision_digest"], first["decision_digest"]);
        assert!(&stored == first_stored, "other events or words: {config}");
    }
    let (run, stored) = whole.expect("there are pages");
    let built = count(&run, "counts.events_built");
    assert!(stored.len() > 20 && (stored.len() as u64) < built, "{run}");
    run
}

#[test]
fn the_mass_window_reads_objects_over_the_ends_of_pages() {
    let run = assert_same("", MASS_WINDOW, &[("", "transport = \"tcp\"")]);
    let unreadable = verdicts(&run).remove("reason.unreadable.rejected");
    assert!(unreadable.is_none_or(|count| count == 0), "{run}");
}

#[test]
fn a_level_three_menu_reads_objects_over_the_ends_of_pages() {
    let udp = "transport = \"udp\"\nretry = \"10 ms\"\nprobe = \"50 ms\"";
    assert_same("", MENU, &[("transport = \"tcp\"", ""), (udp, "")]);
}

#[test]
fn the_first_step_reads_objects_over_the_ends_of_pages() {
    let first_step = "first_step = [\"ru0\"]";
    let run = assert_same(first_step, &format!("{MENU}{FIRST_STEP}"), &[]);
    for cause in ["fetched", "released_by_selection"] {
        let events = count(&run, &format!("two_step.causes.{cause}"));
        assert!(events > 20, "{cause}: {run}");
    }
}
