//! The Rust tests: builds all test programs at once, runs one after the other, reads each test's
//! time from the harness.
//!
//! The harness reports times only behind an unstable option; the driver asks for it through
//! `RUSTC_BOOTSTRAP`, for the test programs alone and not for any compilation. A program that
//! says nothing for [`SILENCE_MAX`] is ended and counted as failed.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use cargo_metadata::{Message, TargetKind};
use serde_json::Value;

use super::{Environment, Outcome, Report};
use crate::Failure;

/// The longest time in which a test program may finish no test.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// What a test prints, at the start of a line, when it cannot run.
const SKIP_MARK: &str = "SKIPPED:";

/// What tests of these crates are built with: a run over several hosts needs many packages, and what
/// users who do not ask for it build has none of them.
const FEATURES: [(&str, &str); 2] = [
    ("livetime", "livetime/cluster"),
    ("livetime-control", "livetime-control/zenoh"),
];

/// One test program.
#[derive(Debug)]
pub(super) struct TestProgram {
    /// Crate and target, such as `livetime-wire` or `livetime tests/run`.
    pub(super) label: String,
    pub(super) executable: PathBuf,
    pub(super) crate_folder: PathBuf,
}

/// What one `cargo test --no-run` built.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) programs: Vec<TestProgram>,
    /// Variable names and paths of the binaries that end-to-end tests start.
    binaries: Vec<(String, PathBuf)>,
    /// Whether a library is among them, since only libraries have examples.
    library: bool,
    /// Whether everything was built; what was built runs even if not.
    pub(super) all: bool,
}

/// Runs the tests and examples of the named crates, or of all.
pub(super) fn run(
    environment: &Environment,
    crates: &[&str],
    report: &mut Report,
) -> Result<(), Failure> {
    let selection = selection(crates);
    println!("building the tests");
    let start = Instant::now();
    let mut command = environment.cargo(&["test", "--release", "--no-run", "--no-fail-fast"]);
    command.args(&selection);
    let built = build(command)?;
    println!(
        "  {} test programs in {:.1} s",
        built.programs.len(),
        start.elapsed().as_secs_f64()
    );
    if !built.all || built.programs.is_empty() {
        report.add_check("building the tests", Outcome::Failed, start.elapsed());
    }
    for program in &built.programs {
        run_program(
            environment,
            &program.label,
            program_command(environment, &built, program),
            report,
        )?;
    }
    if built.library {
        run_examples(environment, &selection, report)
    } else {
        Ok(())
    }
}

/// What of the workspace cargo builds, for the tests of the named crates or all.
fn selection<'a>(crates: &[&'a str]) -> Vec<&'a str> {
    let mut selection: Vec<&str> = match crates {
        [] => vec!["--workspace"],
        names => names.iter().flat_map(|name| ["--package", name]).collect(),
    };
    for (name, feature) in FEATURES {
        if crates.is_empty() || crates.contains(&name) {
            selection.extend(["--features", feature]);
        }
    }
    selection
}

/// Builds the program as the tests of all crates do, with the tests of it alone; whether it is there.
/// Waits for whoever builds.
pub(super) fn build_program(environment: &Environment) -> bool {
    let mut command = environment.cargo(&["test", "--quiet", "--release", "--no-run"]);
    // A plain build would be another one: it leaves out features that only tests ask for.
    command.args(selection(&[])).args(["--test", "program"]);
    command.status().is_ok_and(|status| status.success())
}

/// Runs a `cargo test --no-run` and collects what it builds.
pub(super) fn build(mut command: Command) -> Result<Built, Failure> {
    command
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let output = child.stdout.take().ok_or("cargo has no output")?;
    let mut built = Built::default();
    for message in Message::parse_stream(BufReader::new(output)) {
        let Message::CompilerArtifact(artifact) = message? else {
            continue;
        };
        let Some(executable) = artifact.executable else {
            continue;
        };
        let folder = artifact
            .manifest_path
            .parent()
            .ok_or("a manifest has no folder")?;
        let folder = folder.as_std_path().to_path_buf();
        let target = &artifact.target;
        if artifact.profile.test {
            built.library |= target.kind.contains(&TargetKind::Lib);
            let package = folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let integration = target.kind.contains(&TargetKind::Test);
            let label = if integration {
                format!("{package} tests/{}", target.name)
            } else {
                package
            };
            let executable = executable.into_std_path_buf();
            built.programs.push(TestProgram {
                label,
                executable,
                crate_folder: folder,
            });
        } else if target.kind.contains(&TargetKind::Bin) {
            let variable = format!("CARGO_BIN_EXE_{}", target.name);
            built
                .binaries
                .push((variable, executable.into_std_path_buf()));
        }
    }
    built.programs.sort_by(|a, b| a.label.cmp(&b.label));
    built.all = child.wait()?.success();
    Ok(built)
}

/// The command that runs a test program as cargo would, in the folder of its crate.
fn program_command(environment: &Environment, built: &Built, program: &TestProgram) -> Command {
    let mut command = environment.command(&program.executable);
    command
        .current_dir(&program.crate_folder)
        .args([
            "-Z",
            "unstable-options",
            "--format",
            "json",
            "--report-time",
            "--show-output",
        ])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_MANIFEST_DIR", &program.crate_folder)
        .envs(
            built
                .binaries
                .iter()
                .map(|(variable, path)| (variable, path)),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a test program and reports its tests under `label`.
fn run_program(
    environment: &Environment,
    label: &str,
    mut command: Command,
    report: &mut Report,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut child = command.spawn()?;
    let mut reading = ProgramReading::default();
    let (errors, silent) = follow(&mut child, &mut reading)?;
    let status = child.wait()?;
    let closed = reading.closed && !silent;
    if !closed || (!status.success() && reading.failed == 0) {
        let why = if silent {
            "no test ended for too long"
        } else {
            "the program broke off"
        };
        println!("{}: {why} ({status})\n{}{errors}", label, reading.other);
        report.add(
            format!("{} ({why})", label),
            Outcome::Failed,
            start.elapsed(),
        );
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in reading.tests {
        let name = format!("{} {}", label, test.name);
        let outcome = match test.outcome {
            Outcome::Skipped(reason) => environment.skipped(&reason),
            outcome => outcome,
        };
        match outcome {
            Outcome::Passed => passed += 1,
            Outcome::Failed => {
                failed += 1;
                println!("---- {name}\n{}", test.output);
            }
            Outcome::Skipped(_) => skipped += 1,
        }
        report.add(name, outcome, test.took);
    }
    let took = start.elapsed().as_secs_f64();
    println!("  {label}: {passed} passed, {failed} failed, {skipped} skipped in {took:.1} s");
    Ok(())
}

/// Reads a test program to its end; returns what it wrote to stderr and whether it was ended for
/// its silence.
fn follow(child: &mut Child, reading: &mut ProgramReading) -> Result<(String, bool), Failure> {
    let output = child
        .stdout
        .take()
        .ok_or("the test program has no output")?;
    let mut errors = child
        .stderr
        .take()
        .ok_or("the test program has no error output")?;
    let (sender, receiver) = mpsc::channel();
    // These end with the program: it holds the other ends of their pipes. A process that a
    // killed test left behind may hold them longer, so they are not joined after a kill.
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { break };
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
        }
    });
    let error_reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // What was read before a failing read is still worth printing.
        let _ = errors.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    loop {
        match receiver.recv_timeout(SILENCE_MAX) {
            Ok(line) => reading.read_line(&line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                return Ok((
                    format!("still running: {}\n", reading.running.join(", ")),
                    true,
                ));
            }
        }
    }
    Ok((error_reader.join().unwrap_or_default(), false))
}

/// One test as the harness reported it.
#[derive(Debug)]
struct TestReading {
    name: String,
    outcome: Outcome,
    took: Duration,
    output: String,
}

/// A test program's messages, read line by line.
#[derive(Debug, Default)]
struct ProgramReading {
    tests: Vec<TestReading>,
    running: Vec<String>,
    failed: usize,
    /// Whether the harness said that the suite ended.
    closed: bool,
    /// Lines that are no messages.
    other: String,
}

impl ProgramReading {
    fn read_line(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            self.other += line;
            self.other += "\n";
            return;
        };
        let text = |key: &str| message[key].as_str().unwrap_or_default();
        match (text("type"), text("event")) {
            ("suite", "ok" | "failed") => self.closed = true,
            ("test", "started") => self.running.push(text("name").to_owned()),
            ("test", "timeout") => println!("  {} runs for more than 60 s", text("name")),
            ("test", event) => {
                let name = text("name").to_owned();
                self.running.retain(|running| *running != name);
                let output = text("stdout").to_owned();
                let outcome = match event {
                    "ok" => skip_reason(&output).map_or(Outcome::Passed, Outcome::Skipped),
                    "ignored" => Outcome::Skipped(format!("ignored {}", text("message"))),
                    _ => Outcome::Failed,
                };
                self.failed += usize::from(outcome == Outcome::Failed);
                let seconds = message["exec_time"].as_f64().unwrap_or(0.0);
                let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                self.tests.push(TestReading {
                    name,
                    outcome,
                    took,
                    output,
                });
            }
            _ => {}
        }
    }
}

/// Why a test says that it did not run.
fn skip_reason(output: &str) -> Option<String> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix(SKIP_MARK))?;
    Some(line.trim().to_owned())
}

/// Runs the examples of the documentation, counted from the harness's closing lines.
fn run_examples(
    environment: &Environment,
    selection: &[&str],
    report: &mut Report,
) -> Result<(), Failure> {
    println!("documentation examples");
    let start = Instant::now();
    let mut command = environment.cargo(&["test", "--release", "--doc", "--no-fail-fast"]);
    let output = command.args(selection).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = ExampleCounts::parse(&text);
    if !output.status.success() {
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let ExampleCounts {
        passed,
        failed,
        ignored,
    } = counts;
    let took = start.elapsed();
    println!(
        "  {passed} passed, {failed} failed, {ignored} skipped in {:.1} s",
        took.as_secs_f64()
    );
    // One record carries the time of all; the others are counted only.
    report.unnamed_passed += passed.saturating_sub(1);
    if passed > 0 {
        report.add("documentation examples, all", Outcome::Passed, took);
    }
    for n in 0..ignored {
        let reason = Outcome::Skipped("ignored".to_owned());
        report.add(
            format!("documentation example {}", n + 1),
            reason,
            Duration::ZERO,
        );
    }
    let broken = usize::from(!output.status.success()).max(failed);
    for n in 0..broken {
        report.add(
            format!("documentation example {} (see above)", n + 1),
            Outcome::Failed,
            took,
        );
    }
    Ok(())
}

/// Sums of the harness's closing lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExampleCounts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl ExampleCounts {
    fn parse(text: &str) -> Self {
        let mut counts = Self::default();
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix("test result: "))
        {
            for part in line.split([';', '.']) {
                let mut words = part.split_whitespace();
                let number = words.next().and_then(|number| number.parse::<usize>().ok());
                match (number, words.next()) {
                    (Some(number), Some("passed")) => counts.passed += number,
                    (Some(number), Some("failed")) => counts.failed += number,
                    (Some(number), Some("ignored")) => counts.ignored += number,
                    _ => {}
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_tests_and_skips_are_not_passes() {
        let mut reading = ProgramReading::default();
        for line in [
            r#"{ "type": "suite", "event": "started", "test_count": 4 }"#,
            r#"{ "type": "test", "event": "started", "name": "a" }"#,
            r#"{ "type": "test", "event": "started", "name": "b" }"#,
            r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 1.5 }"#,
            r#"{ "type": "test", "name": "b", "event": "ok", "stdout": "SKIPPED: no root\n" }"#,
            r#"{ "type": "test", "name": "c", "event": "failed", "stdout": "SKIPPED: not\n" }"#,
            r#"{ "type": "test", "name": "d", "event": "ignored", "message": "slow" }"#,
            "printed past the harness",
        ] {
            reading.read_line(line);
        }
        assert!(!reading.closed && reading.running.is_empty());
        reading.read_line(r#"{ "type": "suite", "event": "failed", "passed": 2 }"#);
        assert!(reading.closed);
        let outcomes: Vec<&Outcome> = reading.tests.iter().map(|test| &test.outcome).collect();
        let skipped = |reason: &str| Outcome::Skipped(reason.to_owned());
        let expected = [
            &Outcome::Passed,
            &skipped("no root"),
            &Outcome::Failed,
            &skipped("ignored slow"),
        ];
        assert_eq!(outcomes, expected);
        assert_eq!(reading.tests[0].took, Duration::from_millis(1500));
        assert_eq!(
            (reading.failed, reading.other.as_str()),
            (1, "printed past the harness\n")
        );
    }

    /// Runs a shell script in place of a test program.
    fn run_script(script: &str) -> Report {
        let environment = Environment {
            root: "/".into(),
            data_required: false,
            low_priority: false,
        };
        let mut command = environment.command("sh");
        command
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut report = Report::default();
        run_program(&environment, "a", command, &mut report).unwrap();
        report
    }

    const GOOD_TEST: &str = r#"echo '{ "type": "test", "name": "t", "event": "ok" }'"#;
    const END: &str = r#"echo '{ "type": "suite", "event": "ok" }'"#;

    #[test]
    fn a_program_that_breaks_off_is_a_failure() {
        let report = run_script(&format!("{GOOD_TEST}\n{END}"));
        assert_eq!((report.passed(), report.failed().len()), (1, 0));
        for script in [GOOD_TEST, &format!("{GOOD_TEST}\nkill -ABRT $$"), "exit 0"] {
            let report = run_script(script);
            assert_eq!(report.failed(), ["a (the program broke off)"], "{script}");
        }
        let report = run_script(&format!("{END}\nexit 3"));
        assert_eq!(report.failed(), ["a (the program broke off)"]);
    }

    #[test]
    fn closing_lines_of_several_crates_are_added_up() {
        let text = "\
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s
all doctests ran in 0.2s
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s
";
        let expected = ExampleCounts {
            passed: 5,
            failed: 1,
            ignored: 1,
        };
        assert_eq!(ExampleCounts::parse(text), expected);
    }
}
