//! `run --json`: the form of `livetime.run/1`, and that its figures agree with each other.

use serde_json::Value;

use crate::workbench::{
    SMALL, Workbench, assert_conserved, changed, count, example, lost_in_all, project, triggers,
    value,
};

/// Keys of the document that is promised; further ones may be there.
const KEYS: [(&str, &[&str]); 9] = [
    (
        "",
        &[
            "schema",
            "run",
            "counts",
            "losses",
            "conserved",
            "decision_digest",
            "dead_time",
            "latency",
            "throughput_bytes_per_s",
            "copies_per_byte",
            "files",
        ],
    ),
    (
        "run",
        &[
            "number",
            "seed",
            "config_hash",
            "version",
            "duration_s",
            "condition",
        ],
    ),
    (
        "counts",
        &[
            "offered",
            "refused",
            "triggers",
            "l2_accepted",
            "l2_rejected",
            "fragments_sent",
            "fragments_received",
            "fragments_dropped_by_decision",
            "events_built",
            "events_incomplete",
            "filter_accepted",
            "filter_rejected",
            "events_stored",
        ],
    ),
    (
        "losses",
        &["trigger", "link", "readout", "builder", "filter", "store"],
    ),
    ("dead_time", &["refused_fraction", "busy_fraction"]),
    ("latency", &["decision", "build"]),
    ("latency.decision", LATENCY),
    ("latency.build", LATENCY),
    ("latency.build.over", &["bound_ns", "ppm"]),
];
const LATENCY: &[&str] = &[
    "count", "min", "mean", "p50", "p90", "p99", "p99_9", "p99_99", "max", "over",
];

fn assert_form(run: &Value) {
    for (path, keys) in KEYS {
        for key in keys {
            let path = if path.is_empty() {
                (*key).to_owned()
            } else {
                format!("{path}.{key}")
            };
            value(run, &path);
        }
    }
    assert_eq!(run["schema"], "livetime.run/1");
    let digits = |path: &str, digits: usize, radix: u32| {
        let text = value(run, path).as_str().expect("64-bit values are texts");
        assert!(digits == 0 || text.len() == digits, "{path}: {text}");
        assert!(u64::from_str_radix(text, radix).is_ok(), "{path}: {text}");
    };
    digits("run.seed", 0, 10);
    digits("run.config_hash", 16, 16);
    digits("decision_digest", 16, 16);
    for fraction in ["dead_time.refused_fraction", "dead_time.busy_fraction"] {
        let share = value(run, fraction);
        if fraction.ends_with("refused_fraction") && count(run, "counts.offered") == 0 {
            assert!(share.is_null(), "{fraction}: {share}");
            continue;
        }
        let share = share.as_f64().expect("a number");
        assert!((0.0..=1.0).contains(&share), "{fraction}: {share}");
    }
}

/// Each figure of a latency is at or above the one before.
fn assert_ordered(latency: &Value) {
    let keys = ["min", "p50", "p90", "p99", "p99_9", "p99_99", "max"];
    let figures = keys.map(|key| count(latency, key));
    assert!(figures.is_sorted(), "{latency}");
}

#[test]
fn a_timed_run_gives_the_promised_document_and_files() {
    let bench = Workbench::new();
    // A machine that is away for a second loses nothing.
    let patient = changed(SMALL, "timeout = \"1 s\"", "timeout = \"20 s\"");
    bench.write("small.toml", &patient);
    let arguments = [
        "run",
        "small.toml",
        "--duration",
        "400ms",
        "--seed",
        "18446744073709551615",
        "--json",
    ];
    let first = bench.run(&arguments).ended_with(0);
    let run = first.document();
    assert!(first.out.starts_with("{\"schema\":"), "{}", first.out);
    assert_eq!(first.out.lines().count(), 1, "one document and no talk");
    assert_form(&run);
    assert_conserved(&run);
    assert_eq!(lost_in_all(&run), 0);
    assert_eq!(run["run"]["number"], 1);
    assert_eq!(run["run"]["seed"], "18446744073709551615");
    assert_eq!(run["run"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(run["run"]["condition"], "GOOD");
    for latency in ["latency.decision", "latency.build"] {
        assert_ordered(value(&run, latency));
    }
    let n = |name: &str| count(&run, &format!("counts.{name}"));
    assert!(n("triggers") > 0, "a run of 400 ms at 5 kHz: {run}");
    assert_eq!(n("fragments_sent"), 4 * n("triggers"));
    let accepted = n("triggers").div_ceil(10);
    assert_eq!(
        n("l2_accepted"),
        accepted,
        "the first and every tenth trigger"
    );
    assert_eq!(n("events_stored"), n("l2_accepted"), "and all are stored");
    assert_eq!(count(&run, "latency.decision.count"), n("triggers"));
    assert_eq!(count(&run, "latency.build.count"), n("events_built"));

    let names = ["events.mcap", "summary.json", "config.toml", "report.html"];
    let files = names.map(|name| format!("runs/000001/{name}"));
    assert_eq!(run["files"], serde_json::json!(files));
    for file in &files {
        assert!(bench.path(file).is_file(), "{file}");
    }
    let summary: Value = serde_json::from_str(&bench.read(&files[1])).expect("it is JSON");
    assert_eq!(summary, run, "what is printed is what is kept");
    let config = bench.read(&files[2]);
    assert!(config.ends_with(&patient), "{config}");
    assert!(config.contains(&arguments.join(" ")), "{config}");

    let inspected = bench.inspect(&files[0]);
    assert_eq!(inspected["schema"], "livetime.inspect/1");
    assert_eq!(inspected["complete"], true);
    assert_eq!(inspected["condition"], "GOOD");
    assert_eq!(count(&inspected, "run"), 1);
    assert_eq!(count(&inspected, "events"), n("events_stored"));
    let stored = triggers(&inspected);
    assert!(stored.iter().all(|trigger| *trigger <= n("triggers")));
    assert_eq!(stored.len() as u64, n("events_stored"));
    let ends = [
        inspected["first_trigger"].clone(),
        inspected["last_trigger"].clone(),
    ];
    let expected = [stored.first(), stored.last()];
    let expected = expected.map(|end| end.expect("events are stored").to_string());
    assert_eq!(
        ends.map(|end| end.as_str().map(str::to_owned)),
        expected.map(Some)
    );
}

#[test]
fn a_run_without_a_trigger_has_a_whole_document_and_file() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let arguments = [
        "run",
        "small.toml",
        "--rate",
        "0.001 Hz",
        "--duration",
        "10 ms",
        "--json",
    ];
    let run = bench.run(&arguments).ended_with(0).document();
    assert_form(&run);
    assert_conserved(&run);
    assert_eq!(count(&run, "counts.offered"), 0);
    assert_eq!(run["run"]["condition"], "GOOD");
    let inspected = bench.inspect("runs/000001/events.mcap");
    assert_eq!(inspected["complete"], true);
    assert_eq!(
        (count(&inspected, "events"), &inspected["first_trigger"]),
        (0, &Value::Null)
    );
    assert!(bench.path("runs/000001/report.html").is_file());
}

/// What is left of a text without its numbers, and without units, which follow from them.
fn shape(text: &str) -> Vec<&str> {
    let words = text.lines().filter(|line| !line.starts_with('#'));
    let words = words.flat_map(str::split_whitespace);
    let words = words.map(|word| word.trim_matches([',', ';', '(', ')']));
    let unit = |word: &&str| !["ns", "us", "ms", "s", "Hz", "kHz", "MHz"].contains(word);
    let number = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit());
    words.filter(number).filter(unit).collect()
}

#[test]
fn the_expected_output_of_the_example_has_the_shape_of_a_run() {
    let bench = Workbench::new();
    bench.write("dimuon.toml", example());
    let run = bench.run(&["run", "dimuon.toml", "--triggers", "3000", "--lossless"]);
    let run = run.ended_with(0).out;
    let expected = std::fs::read_to_string(project().join("examples/dimuon.expected.txt"));
    let expected = expected.expect("it is there");
    assert_eq!(shape(&run), shape(&expected), "see examples/README.md");
}

#[test]
fn the_text_for_people_says_counts_losses_files_and_the_verdict() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let run = bench.run(&["run", "small.toml", "--triggers", "300", "--lossless"]);
    let run = run.ended_with(0);
    let first = run.err.lines().next().unwrap_or_default();
    for part in [
        "run 000001",
        "seed 42",
        env!("CARGO_PKG_VERSION"),
        "runs/000001",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let summary: Value =
        serde_json::from_str(&bench.read("runs/000001/summary.json")).expect("JSON");
    let hash = value(&summary, "run.config_hash").as_str().expect("a text");
    assert!(first.contains(hash), "{first}");
    let lines: Vec<Vec<&str>> = (run.out.lines())
        .map(|l| l.split_whitespace().collect())
        .collect();
    for line in [
        ["triggers", "300"],
        ["l2_accepted", "30"],
        ["events_stored", "30"],
    ] {
        assert!(
            lines.iter().any(|found| *found == line),
            "{line:?}: {}",
            run.out
        );
    }
    assert!(run.out.contains("losses\n  none\n"), "{}", run.out);
    assert!(run.out.contains("runs/000001/report.html"), "{}", run.out);
    let last = run.out.lines().last();
    assert_eq!(last, Some("Everything is accounted for: nothing was lost."));
}

#[test]
fn events_larger_than_was_set_aside_for_them_are_said() {
    let bench = Workbench::new();
    let small = SMALL.replace(
        "credits = 8\n",
        "credits = 8\ncredit_bytes = \"64 KiB\"\nevent_bytes = \"64 B\"\n",
    );
    assert_ne!(small, SMALL);
    bench.write("small.toml", &small);
    let arguments = ["run", "small.toml", "--triggers", "300", "--lossless"];
    let run = bench.run(&arguments).ended_with(0);
    // Four fragments with their headers are more than 64 B.
    let said = "30 events were larger than `builder.event_bytes`";
    assert!(run.out.contains(said), "{}", run.out);
}
