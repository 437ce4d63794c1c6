//! The program with the algorithm decides with it; the program without says what is missing.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program in a folder of its own, where it keeps its count of runs.
fn ran(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_algorithm-example"));
    command.args(arguments).current_dir(folder);
    command.output().expect("the program starts")
}

fn menu() -> String {
    example("menu.toml")
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn the_algorithm_fires_on_some_of_the_dimuons() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("run");
    let out = out.to_str().expect("a path in UTF-8");
    let arguments = ["--triggers", "4000", "--lossless", "--json", "--out", out];
    let output = ran(
        directory.path(),
        &[&["run", &menu()][..], &arguments].concat(),
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["conserved"], true, "{document}");
    let source = ["source", &menu(), "--triggers", "4000", "--decide"];
    let lines = ran(directory.path(), &source);
    let (mut dimuons, mut acoplanar) = (0, 0);
    for line in String::from_utf8_lossy(&lines.stdout).lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a JSON line");
        let mask = line["before"].as_str().expect("a mask");
        let mask = u128::from_str_radix(mask, 16).expect("hexadecimal");
        dimuons += mask & 1;
        acoplanar += mask >> 1;
    }
    assert!(
        acoplanar > 20 && acoplanar < dimuons,
        "{acoplanar} of {dimuons}"
    );
}

#[test]
fn a_name_that_is_not_registered_is_said_with_those_that_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("menu.toml");
    let text = std::fs::read_to_string(menu()).expect("it is there");
    let text = text.replace("\"acoplanar_muons\"", "\"acoplaner_muons\"");
    std::fs::write(&path, text).expect("it can be written");
    let path = path.to_str().expect("a path in UTF-8");
    let output = ran(directory.path(), &["check", path]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("T0116"), "{said}");
    assert!(said.contains("acoplanar_muons"), "{said}");
}

/// Runs the filter with the lines of its configuration as `edit` leaves them; the run document.
fn filtered(edit: impl Fn(String) -> String, options: &[&str]) -> serde_json::Value {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("filter.toml");
    let text = std::fs::read_to_string(example("filter.toml")).expect("it is there");
    std::fs::write(&path, edit(text)).expect("it can be written");
    let path = path.to_str().expect("a path in UTF-8");
    let arguments = ["run", path, "--triggers", "4000", "--lossless", "--json"];
    let output = ran(
        directory.path(),
        &[&arguments, &["--out", "run"][..], options].concat(),
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let replay = ran(directory.path(), &["replay", "run", "--into", "filter"]);
    let text = String::from_utf8_lossy(&replay.stderr);
    assert!(
        replay.status.success(),
        "its answers are the same again: {text}"
    );
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn the_stages_of_the_filter_are_timed_and_their_tags_are_streams() {
    let threads = filtered(|text| text, &[]);
    let processes = filtered(|text| text, &["--processes"]);
    for run in [&threads, &processes] {
        assert_eq!(run["conserved"], true, "{run}");
        let menu = &run["filter_menu"];
        for stage in ["unpack", "reconstruct", "select", "tag", "prescale"] {
            let mean = menu["stage_ns"][stage].as_f64();
            assert!(mean > Some(0.0), "{stage}: {menu}");
        }
        let stream = |name: &str| menu["streams"][name]["events"].as_u64().unwrap_or(0);
        let (z, other) = (stream("z"), stream("other"));
        assert!(z > 0 && other > 0, "{menu}");
        assert_eq!(run["counts"]["filter_accepted"].as_u64(), Some(z + other));
        assert!(run["counts"]["filter_rejected"].as_u64() > Some(other));
    }
    assert_eq!(threads["counts"], processes["counts"]);
}

#[test]
fn events_over_the_limit_of_the_filter_go_to_the_error_stream() {
    let run = filtered(|text| text.replace("\"1 s\"", "\"1 ns\""), &[]);
    let built = run["counts"]["events_built"].as_u64();
    assert_eq!(run["filter_menu"]["over_time"].as_u64(), built, "{run}");
    assert_eq!(run["counts"]["events_stored"].as_u64(), built, "{run}");
}

#[test]
fn a_filter_that_is_not_registered_is_said_with_those_that_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("filter.toml");
    let text = std::fs::read_to_string(example("filter.toml")).expect("it is there");
    for (from, to, said) in [
        ("\"z_candidates\"", "\"w_candidates\"", "z_candidates"),
        (
            "others_one_in = \"10\"",
            "others = \"10\"",
            "`others_one_in` is missing",
        ),
    ] {
        std::fs::write(&path, text.replace(from, to)).expect("it can be written");
        let path = path.to_str().expect("a path in UTF-8");
        let output = ran(directory.path(), &["check", path]);
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            errors.contains("T0303") && errors.contains(said),
            "{errors}"
        );
    }
}
