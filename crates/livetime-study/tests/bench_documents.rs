//! Every bench in its short form: the form of its document, finite numbers, counts conserved.
//!
//! Times are not looked at. A bench that loses, repeats or mixes up anything returns an error, so
//! that its success is the test of conservation.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use livetime_node::builder_transport::DEFAULT_CONGESTION;
use livetime_study::bench::document::Target;
use livetime_study::bench::{self, BenchDocument, BenchName, BenchOptions, kept_document, page};
use serde_json::{Value, json};

const MEMBERS: [&str; 8] = [
    "bench", "floor", "machine", "ratio", "ratio_of", "result", "schema", "targets",
];

fn measure(name: BenchName) -> BenchDocument {
    measure_by(|options| bench::run(name, options).unwrap())
}

fn measure_by(bench: impl Fn(&BenchOptions) -> BenchDocument) -> BenchDocument {
    let directory = tempfile::tempdir().unwrap();
    let options = BenchOptions {
        quick: true,
        realtime: false,
        directory: directory.path().to_owned(),
        machine: json!({ "cpu": "of a test", "cores": 2, "os": "Linux" }),
    };
    let document = bench(&options);
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "files are removed");
    document
}

/// Every number that is there is finite (JSON has no others), and none is missing.
fn assert_no_null(path: &str, value: &Value) {
    match value {
        Value::Null => panic!("{path} is null"),
        Value::Object(members) => {
            for (key, value) in members {
                assert_no_null(&format!("{path}.{key}"), value);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| assert_no_null(path, value)),
        _ => {}
    }
}

fn assert_form(document: &BenchDocument) {
    let json = document.to_json();
    let mut members: Vec<&str> = json
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    members.sort_unstable();
    assert_eq!(members, MEMBERS);
    assert_eq!(json["schema"], "livetime.bench/1");
    assert_eq!(json["machine"]["scheduling"], "normal");
    assert_eq!(json["machine"]["quick"], true);
    assert_eq!(json["machine"]["assertions"], livetime_wire::ASSERTIONS);
    assert!(!json["floor"].as_object().unwrap().is_empty());
    for member in ["floor", "result", "ratio", "ratio_of"] {
        assert_no_null(&format!("{}.{member}", document.bench), &json[member]);
    }
    for (name, target) in json["targets"].as_object().unwrap() {
        for member in ["value", "target"] {
            assert!(target[member].is_f64(), "{name}.{member}: {target}");
        }
        let is_judged = target["met"].is_boolean();
        assert_ne!(is_judged, target["not_judged"].is_string(), "{target}");
    }
    for (name, figures) in json["ratio_of"].as_object().unwrap() {
        let [over, under] = ["over", "under"].map(|side| figures[side].as_f64().unwrap());
        let ratio = json["ratio"][name].as_f64().unwrap();
        let error = (over / under / ratio - 1.0).abs();
        assert!(error < 1e-3, "{name}: {ratio}, {figures}");
    }
    assert_eq!(kept_document::check(&json, &document.bench), Ok(()));
    assert!(page::to_text(&json).starts_with(&document.bench));
}

fn target_names(document: &BenchDocument) -> Vec<&str> {
    document
        .targets
        .iter()
        .map(|target| target.name.as_str())
        .collect()
}

#[test]
fn floor_has_lines_copies_and_wake_ups() {
    let document = measure(BenchName::Floor);
    assert_form(&document);
    assert!(
        document
            .floor
            .contains_key("cache_line_round_trip_504_bytes_ns")
    );
    assert!(document.floor.contains_key("poll_gaps"));
}

#[test]
fn ring_has_both_sizes() {
    let document = measure(BenchName::Ring);
    assert_form(&document);
    assert_eq!(document.targets.len(), 6);
    assert!(document.result.contains_key("round_trip_136_bytes_ns"));
    assert!(document.result.contains_key("rtrb_stream_single_504_bytes"));
}

#[test]
fn loop_makes_no_wrong_decision() {
    let document = measure(BenchName::Loop);
    assert_form(&document);
    assert_eq!(document.result["wrong_decisions"], 0);
    let names = target_names(&document);
    assert!(names.contains(&"loop_io_p50") && names.contains(&"wrong_decisions"));
}

#[test]
fn readout_files_every_fragment() {
    let document = measure(BenchName::Readout);
    assert_form(&document);
    assert_eq!(
        target_names(&document).len(),
        6,
        "those of cards among them"
    );
    assert!(document.result["65536_bytes"]["fragments"].as_u64() > Some(0));
}

#[test]
fn udp_counts_every_datagram() {
    assert_form(&measure(BenchName::Udp));
}

#[test]
fn front_ends_lose_no_frame_and_name_the_congestion_control_of_both() {
    let document = measure(BenchName::FrontEnds);
    assert_form(&document);
    let names = target_names(&document);
    assert_eq!(names, ["256_bytes_lost", "2048_bytes_lost"]);
    assert!(document.targets.iter().all(Target::is_met));
    let result = document.to_json()["result"].clone();
    assert_eq!(result["256_bytes"]["congestion"], DEFAULT_CONGESTION);
}

#[test]
fn timing_delivers_every_action() {
    assert_form(&measure(BenchName::Timing));
    let ours = format!("livetime-bench-{}-", std::process::id());
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let mut left = left.map(|entry| entry.file_name().into_string().unwrap_or_default());
    let sockets = left.find(|name| name.starts_with(&ours) && name.contains(".sock"));
    assert_eq!(sockets, None, "sockets go with their daemons");
}

#[test]
fn builder_loses_nothing_under_overload() {
    let document = measure(BenchName::Builder);
    assert_form(&document);
    assert_eq!(document.result["lost"], 0);
    assert_eq!(document.result["events_incomplete"], 0);
    let events = document.result["events_built"].as_u64().unwrap();
    assert_eq!(document.result["fragments"], events * 8);
}

/// Three numbers of units, four sizes, three ways: each measured without a loss, or said not to fit.
#[test]
fn builder_grid_has_a_cell_for_each_way_and_loses_nothing() {
    let document = measure_by(|options| bench::run_builder_grid(options).unwrap());
    assert_form(&document);
    let cells = document.result["grid"].as_array().unwrap();
    let of = |transport: &'static str| {
        let cells = cells.iter();
        cells.filter(move |cell| cell["transport"] == transport)
    };
    for transport in ["shm", "tcp", "udp"] {
        assert_eq!(of(transport).count(), 12, "{transport}");
    }
    let (measured, others): (Vec<_>, Vec<_>) = cells
        .iter()
        .partition(|cell| cell["not_measured"].is_null());
    assert!(
        measured.iter().all(|cell| cell["lost"] == 0),
        "{measured:?}"
    );
    for cell in &others {
        let is_long = cell["fragment_bytes"] == 64 << 10 && cell["transport"] == "udp";
        assert!(is_long, "{cell}");
    }
    assert_eq!(others.len(), 3);
    for cell in of("udp").filter(|cell| cell["not_measured"].is_null()) {
        let count = |key: &str| cell[key].as_u64().unwrap();
        let came = count("datagrams_received") + count("datagrams_lost");
        assert!(came <= count("datagrams_sent"), "{cell}");
        assert!(cell["to_raw"].as_f64() > Some(0.0), "{cell}");
    }
    // Each line for people is that of a cell.
    let text = page::to_text(&document.to_json());
    assert_eq!(text.matches("    grid, ").count(), 36, "{text}");
}

/// Ever more units, each on a thread of its own, whether there are as many cores or not.
#[test]
fn builder_scale_begins_with_one_unit_of_each_kind_and_loses_nothing() {
    let document = measure_by(|options| bench::run_builder_scale(options).unwrap());
    assert_form(&document);
    let cells = document.result["scale"].as_array().unwrap();
    assert!(cells.len() >= 2 && cells.len().is_multiple_of(2));
    for (cell, transport) in cells.iter().zip(["shm", "tcp"].iter().cycle()) {
        assert_eq!(cell["transport"], *transport);
        assert_eq!(cell["lost"], 0, "{cell}");
        let units = cell["readout_units"].as_u64().unwrap();
        assert_eq!(cell["builder_units"], units);
        assert_eq!(cell["threads"], 2 * units + 1);
        assert!(units == 1 || cell["threads"].as_u64() <= cell["cores"].as_u64());
    }
    assert_eq!(cells[0]["rate_per_unit_to_1x1"], 1.0);
    assert!(cells[1]["to_raw"].as_f64() > Some(0.0));
    let text = page::to_text(&document.to_json());
    assert_eq!(text.matches("    scale, ").count(), cells.len(), "{text}");
}

#[test]
fn store_has_every_size() {
    let document = measure(BenchName::Store);
    assert_form(&document);
    assert_eq!(document.ratio.len(), 5);
    assert_eq!(document.targets.len(), 3, "small events are only reported");
}

#[test]
fn chain_conserves_and_copies_once() {
    let document = measure(BenchName::Chain);
    assert_form(&document);
    assert_eq!(document.result["lost"], 0);
    let copies = document.result["copies_per_stored_byte_after_link_page"]
        .as_f64()
        .unwrap();
    assert!((1.0..1.1).contains(&copies), "{copies}");
}

#[test]
fn farm_moves_no_byte_and_loses_no_event() {
    let mut document = measure(BenchName::Farm);
    assert_eq!(document.targets.len(), 9);
    if let Some(python) = document.result.get("python_filter") {
        // No interpreter here has the package: said, and the targets are not met.
        assert_eq!(python["measured"], false);
        assert!(python["why"].as_str().is_some_and(|why| !why.is_empty()));
        let unmeasured = |target: &Target| target.name.starts_with("python_");
        assert!(
            document
                .targets
                .iter()
                .filter(|t| unmeasured(t))
                .all(|t| !t.is_met())
        );
        document.targets.retain(|target| !unmeasured(target));
    }
    // On a machine that is busy with other things nobody may tell counts between the two looks.
    let stage = document.result.get_mut("whole_stage").unwrap();
    for (figure, target) in [
        ("built_mb_per_s", "stage_mb_per_s"),
        ("dead_time_fraction", "stage_dead_time_fraction"),
    ] {
        if stage[figure].is_null() {
            stage.as_object_mut().unwrap().remove(figure);
            document.targets.retain(|found| found.name != target);
        }
    }
    assert_form(&document);
    let woken = &document.result["hand_over_to_sleeping_unit"];
    // On a machine that is busy with other things every sleep may reach its time limit.
    let is_busy = woken["blocks"]["floors_agree"] == false;
    assert!(
        woken["sleeps_ended_by_the_doorbell"].as_u64() > Some(0) || is_busy,
        "{woken}"
    );
    for name in ["null", "reading"] {
        let converter = &document.result[&format!("converter_{name}_filter")];
        assert_eq!(converter["moves_per_byte"].as_f64(), Some(0.0));
    }
    let stage = &document.result["whole_stage"];
    assert_eq!(stage["lost"], 0);
    assert!(stage["events_built"].as_u64() > Some(0));
}

#[test]
fn fabric_conserves_packets_and_has_all_levels() {
    let mut document = measure(BenchName::Fabric);
    // Without CAMINOS: said, and its target is not met.
    let peer = &document.result["caminos"];
    if peer["measured"] == false {
        assert!(peer["why"].as_str().is_some_and(|why| !why.is_empty()));
        let beside = |target: &Target| target.name == "flits_to_caminos";
        assert!(document.targets.iter().any(|t| beside(t) && !t.is_met()));
        document.targets.retain(|target| !beside(target));
    }
    assert_form(&document);
    let json = document.to_json();
    for case in [
        "packets_delta_512",
        "packets_delta_512_log_normal",
        "packets_delta_512_buffers",
        "flits_router_16",
    ] {
        assert!(json["result"][case]["per_s"].as_f64().unwrap() > 0.0);
    }
}
