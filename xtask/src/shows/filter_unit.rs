//! Lines of the farm about filter units: killed, joining, leaving, and in Python.
//!
//! The Python lines are tests of the package, run by `python/check.sh` in the project's virtual
//! environment with the built program; here their closing line is read.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::evidence::{count, sum};
use super::{Shown, Stage};
use crate::Failure;
use crate::program::finish;

/// Kills, one each second.
const KILLS: usize = 20;
/// How long a run may take to obey an order.
const PATIENCE: Duration = Duration::from_secs(60);

/// A configuration with four filter units and room for another.
fn four_units(stage: &Stage) -> Result<String, Failure> {
    let text = std::fs::read_to_string(stage.file("examples/dimuon.toml"))?;
    let text = text.replacen("units = 1", "units = 4\nunits_max = 5", 1);
    // Events wait for buffers while processes start again, instead of being given up.
    let text = text.replacen("\"100 ms\"", "\"9 s\"", 1);
    Ok(text.replacen("rate = \"10 kHz\"", "rate = \"1 kHz\"", 1))
}

/// Gives an order to a run until it is obeyed.
fn steer(stage: &Stage, folder: &std::path::Path, order: &[&str]) -> Result<String, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let arguments = ["steer", "run"].into_iter().chain(order.iter().copied());
        let output = stage.program.command(folder, arguments).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        if Instant::now() > until {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        sleep(Duration::from_millis(100));
    }
}

fn document_of(running: Child) -> Result<Value, Failure> {
    let output = running.wait_with_output()?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("the run ended with {}:\n{errors}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Four units, one killed each second, one added and one removed.
pub(super) fn killed_joining_and_leaving(stage: &Stage) -> Result<Shown, Failure> {
    let folder = stage.folder("units")?;
    std::fs::write(folder.join("run.toml"), four_units(stage)?)?;
    let seconds = format!("{}s", KILLS + 4);
    let mut command = stage.program.command(
        &folder,
        [
            "run",
            "run.toml",
            "--processes",
            "--json",
            "--out",
            "run",
            "--duration",
            &seconds,
        ],
    );
    for nth in 0..KILLS {
        command.args(["--fault", &format!("kill:fu{}@{}s", nth % 4, nth + 1)]);
    }
    let running = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let steered = steer(stage, &folder, &["filter", "add"])
        .and_then(|joined| Ok([joined, steer(stage, &folder, &["filter", "remove", "fu4"])?]));
    // The run is heard to its end in any case.
    let document = document_of(running)?;
    let steered = steered?.join(", ");
    let built = count(&document, "events_built")?;
    let filtered = count(&document, "filter_accepted")? + count(&document, "filter_rejected")?;
    let lost = sum(&document["losses"]);
    let failed = document["filter_failures"].as_array().map_or(0, Vec::len);
    let lives = document["roles"].as_object().map_or(0, |roles| {
        roles
            .keys()
            .filter(|role| role.starts_with("fu") && role.contains('~'))
            .count()
    });
    // The unit that left is among the lives that ended, unless it was killed before.
    let passed = document["conserved"] == true
        && built > 0.0
        && filtered == built
        && lost == 0.0
        && failed == 0
        && lives >= KILLS;
    let figures = format!(
        "{KILLS} kills, {steered}; {lives} lives ended; {built} events built, {filtered} filtered, \
         {lost} lost, {failed} in the error stream"
    );
    Ok(Shown::new(passed, figures))
}

/// The interpreter of the project's virtual environment, which has the package; it is built where
/// something has changed.
pub(super) fn interpreter(stage: &Stage) -> Result<PathBuf, Failure> {
    let mut check = Command::new("bash");
    check
        .current_dir(&stage.root)
        .args(["python/check.sh", "--collect-only", "--quiet"]);
    finish(check)?;
    Ok(stage.root.join(".venv/bin/python"))
}

/// Runs tests of the Python package with the program; the figures are pytest's closing line.
fn package_tests(stage: &Stage, tests: &[&str]) -> Result<Shown, Failure> {
    let mut check = Command::new("bash");
    check
        .current_dir(&stage.root)
        .env("LIVETIME_PROGRAM", stage.program.path())
        .args(["python/check.sh", "-rs"])
        .args(tests);
    let output = finish(check)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let closing = text
        .lines()
        .last()
        .unwrap_or_default()
        .trim_matches(['=', ' ']);
    let passed = closing.contains(" passed") && !closing.contains("skipped");
    Ok(Shown::new(
        passed,
        format!("`{}`: {closing}", tests.join(" ")),
    ))
}

/// A Python filter that fails on chosen events.
pub(super) fn python_filter_fails_on_one_event(stage: &Stage) -> Result<Shown, Failure> {
    package_tests(stage, &["tests/test_filter_units.py"])
}

/// The Z peak and four-lepton candidates from recorded events, in a notebook.
pub(super) fn z_peak_and_four_leptons(stage: &Stage) -> Result<Shown, Failure> {
    package_tests(stage, &["tests/test_recorded.py"])
}
