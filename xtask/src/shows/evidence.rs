//! What lines read: documents of runs, run files, and the tests of crates.
//!
//! It finds values and judges none of them; that is the business of the lines.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Stage;
use crate::Failure;
use crate::program::{cargo, finish};

/// A counter of a run.
pub(super) fn count(document: &Value, name: &str) -> Result<f64, Failure> {
    let value = document["counts"][name].as_f64();
    value.ok_or_else(|| format!("the document has no counts.{name}").into())
}

/// What must be equal between runs of one seed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) decision_digest: String,
    pub(super) stored: Vec<u64>,
}

impl Fingerprint {
    /// Of a run in `folder` that was conserved.
    pub(super) fn of(stage: &Stage, folder: &Path, document: &Value) -> Result<Self, Failure> {
        if document["conserved"] != true {
            return Err("the run is not conserved".into());
        }
        let digest = document["decision_digest"].as_str();
        let digest = digest.ok_or("the document has no decision digest")?;
        let file = run_file(folder, document)?;
        Ok(Self {
            decision_digest: digest.to_owned(),
            stored: stored_triggers(&inspect(stage, folder, &file)?)?,
        })
    }
}

/// The run file that a document of a run lists.
pub(super) fn run_file(folder: &Path, document: &Value) -> Result<PathBuf, Failure> {
    let first = run_files(folder, document)?.into_iter().next();
    first.ok_or_else(|| "the document lists no run file".into())
}

/// The run files that a document of a run lists and that are there.
pub(super) fn run_files(folder: &Path, document: &Value) -> Result<Vec<PathBuf>, Failure> {
    let files = document["files"]
        .as_array()
        .ok_or("the document lists no files")?;
    let named = files
        .iter()
        .filter_map(|file| file.as_str().or_else(|| file["path"].as_str()));
    let files = named
        .filter(|file| file.ends_with(".mcap"))
        .map(|file| folder.join(file));
    Ok(files.filter(|file| file.is_file()).collect())
}

/// What the program says of a run file, with its trigger numbers.
pub(super) fn inspect(stage: &Stage, folder: &Path, file: &Path) -> Result<Value, Failure> {
    let file = file.display().to_string();
    let mut command = stage
        .program
        .command(folder, ["inspect", &file, "--json", "--triggers"]);
    let output = command.output()?;
    // 1 says that the file is not whole, and the document says what of it is.
    match output.status.code() {
        Some(0 | 1) => Ok(serde_json::from_slice(&output.stdout)?),
        _ => Err(format!("inspect ended with {}", output.status).into()),
    }
}

/// The stored trigger numbers in ascending order.
pub(super) fn stored_triggers(inspected: &Value) -> Result<Vec<u64>, Failure> {
    let listed = inspected["triggers"]
        .as_array()
        .ok_or("inspect lists no trigger numbers")?;
    let numbers = listed
        .iter()
        .map(|number| number.as_str().and_then(|text| text.parse().ok()));
    let numbers: Option<Vec<u64>> = numbers.collect();
    let mut numbers = numbers.ok_or("a trigger number is not a number in a string")?;
    numbers.sort_unstable();
    Ok(numbers)
}

/// Runs the tests of a crate whose names contain `filter`, or that it selects as options of `cargo test`;
/// returns how many passed. One that says that it did nothing has not passed.
pub(super) fn named_tests(stage: &Stage, package: &str, filter: &str) -> Result<usize, Failure> {
    let mut command = cargo(&stage.root);
    command.args(["test", "--quiet", "--release", "--package", package]);
    command.args(filter.split(' ')).args(["--", "--nocapture"]);
    let output = finish(command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(skipped) = skips(&text).next() {
        return Err(format!("a test of {package} did nothing: {skipped}").into());
    }
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "));
    Ok(lines
        .filter_map(|line| line.split(' ').next()?.parse::<usize>().ok())
        .sum())
}

/// What tests said that did nothing; the harness prints dots before.
fn skips(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.trim_start_matches('.'))
        .filter(|line| line.starts_with("SKIPPED"))
}

/// Runs the tests of runs over several hosts; how many passed, and what they printed of each case.
pub(super) fn host_tests(stage: &Stage) -> Result<(usize, Vec<String>), Failure> {
    let mut command = cargo(&stage.root);
    command.args(["test", "--quiet", "--release", "--package", "livetime"]);
    command.args([
        "--features",
        "cluster",
        "--test",
        "hosts",
        "--",
        "--nocapture",
    ]);
    let output = finish(command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut passed = 0;
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(result) = line.strip_prefix("test result: ok. ") {
            let count = result
                .split(' ')
                .next()
                .and_then(|count| count.parse().ok());
            passed += count.unwrap_or(0);
        }
        let line = line.trim_start_matches('.');
        if line.starts_with("SKIPPED") || line.contains(" after a gap of ") {
            lines.push(line.to_owned());
        }
    }
    Ok((passed, lines))
}

/// The sum of all numbers in a document.
pub(super) fn sum(value: &Value) -> f64 {
    match value {
        Value::Number(number) => number.as_f64().unwrap_or(0.0),
        Value::Array(members) => members.iter().map(sum).sum(),
        Value::Object(members) => members.values().map(sum).sum(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_triggers_are_sorted_numbers_from_strings() {
        let inspected = serde_json::json!({"triggers": ["12", "3"]});
        assert_eq!(stored_triggers(&inspected).unwrap(), [3, 12]);
        assert!(stored_triggers(&serde_json::json!({"triggers": [3]})).is_err());
        assert!(stored_triggers(&serde_json::json!({})).is_err());
    }

    #[test]
    fn a_test_that_did_nothing_is_found_behind_the_dots_of_others() {
        let text =
            "running 3 tests\n..SKIPPED: there is no dbus-daemon\n.\ntest result: ok. 3 passed\n";
        let skipped: Vec<&str> = skips(text).collect();
        assert_eq!(skipped, ["SKIPPED: there is no dbus-daemon"]);
        assert_eq!(skips("running 0 tests\n").count(), 0);
    }

    #[test]
    fn losses_add_up_over_areas_and_causes() {
        let losses = serde_json::json!({"link": {"link_down": 2}, "store": 3, "total": "text"});
        assert_eq!(sum(&losses), 5.0);
    }

    #[test]
    fn the_run_file_is_found_in_the_list_of_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("events.mcap"), b"").unwrap();
        let document = serde_json::json!({"files": ["report.html", "events.mcap"]});
        let found = run_file(folder.path(), &document).unwrap();
        assert!(found.ends_with("events.mcap"));
        assert!(run_file(folder.path(), &serde_json::json!({"files": ["gone.mcap"]})).is_err());
    }
}
