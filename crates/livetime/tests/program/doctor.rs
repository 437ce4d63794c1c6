//! The machine's checks from outside: the document, the verdict, what a run says of it.

use serde_json::Value;

use crate::workbench::{Workbench, example, finished};

const VERDICTS: [&str; 3] = ["real-time ready", "usable", "simulation only"];

fn checks(document: &Value) -> &Vec<Value> {
    document["checks"].as_array().expect("a list of checks")
}

#[test]
fn all_checks_answer_with_value_threshold_reason_and_remedy() {
    let bench = Workbench::new();
    let mut command = bench.command(&["doctor", "--json", "--live", "200ms"]);
    command.env("XDG_STATE_HOME", bench.path("state"));
    let done = finished(command);
    let document = done.document();
    assert_eq!(document["schema"], "livetime.doctor/1");
    let ids: Vec<u64> = (checks(&document).iter())
        .filter_map(|check| check["id"].as_u64())
        .collect();
    assert_eq!(ids, (1..=17).collect::<Vec<_>>());
    let mut failed = false;
    for check in checks(&document) {
        for key in ["name", "value", "threshold", "why"] {
            assert!(
                check[key].as_str().is_some_and(|text| !text.is_empty()),
                "{check}"
            );
        }
        let status = check["status"].as_str().expect("a status");
        let is_wrong = ["WARN", "FAIL", "unknown"].contains(&status);
        assert!(
            is_wrong || ["PASS", "not applicable"].contains(&status),
            "{check}"
        );
        assert_eq!(is_wrong, check["fix"] != "", "{check}");
        failed |= status == "FAIL";
    }
    let verdict = document["verdict"].as_str().expect("a verdict");
    assert!(VERDICTS.contains(&verdict));
    if document["virtual_machine"] == true {
        assert_ne!(verdict, "real-time ready");
    }
    assert!(document["largest_gap_ns"].as_u64() > Some(0));
    done.ended_with(i32::from(failed));

    // A run names the verdict, with its age.
    bench.write("dimuon.toml", example());
    let arguments = [
        "run",
        "dimuon.toml",
        "--triggers",
        "200",
        "--lossless",
        "--json",
    ];
    let mut command = bench.command(&arguments);
    command.env("XDG_STATE_HOME", bench.path("state"));
    let run = finished(command).ended_with(0).document();
    let doctor = &run["machine"]["doctor"];
    assert_eq!(doctor["last"]["verdict"], verdict);
    assert_eq!(doctor["virtual_machine"], document["virtual_machine"]);
    let quick: u64 = (doctor["quick"].as_array().expect("three counts").iter())
        .filter_map(Value::as_u64)
        .sum();
    assert!(quick > 5, "{doctor}");
}

#[test]
fn checks_are_chosen_by_number_and_unknown_ones_are_a_usage_error() {
    let bench = Workbench::new();
    let document = bench.run(&["doctor", "--only", "1,2", "--json"]);
    let document = document.ended_with(0).document();
    assert_eq!(checks(&document).len(), 2);
    assert_ne!(document["verdict"], "real-time ready");
    bench.run(&["doctor", "--only", "18"]).ended_with(2);
}

#[test]
fn a_machine_that_shows_nothing_passes_nothing_that_is_read_there() {
    let bench = Workbench::new();
    let mut command = std::process::Command::new("unshare");
    let script = "mount -t tmpfs none /proc && exec \"$0\" \"$@\"";
    let program = env!("CARGO_BIN_EXE_livetime");
    command.args(["-m", "sh", "-c", script, program]);
    command.args(["doctor", "--quick", "--only", "1,9,12,13", "--json"]);
    command.current_dir(bench.path("."));
    let done = finished(command);
    if !done.out.starts_with('{') {
        println!("SKIPPED: a folder of one's own for /proc is not permitted");
        return;
    }
    for check in checks(&done.ended_with(0).document()) {
        assert!(
            ["unknown", "WARN"].contains(&check["status"].as_str().expect("a status")),
            "{check}"
        );
        assert!(
            check["value"]
                .as_str()
                .is_some_and(|value| value.contains("unknown")),
            "{check}"
        );
    }
}
