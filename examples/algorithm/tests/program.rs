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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("menu.toml");
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
