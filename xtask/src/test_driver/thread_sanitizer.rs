//! The tests of `livetime-shm` under ThreadSanitizer, in a build of their own.
//!
//! Each test runs in a process of its own: memory that was mapped, unmapped and mapped again at the
//! same place by direct system calls would look shared between tests. The standard library is not
//! instrumented, so that no sources of it are needed; what is hidden for that is named in
//! `crates/livetime-shm/tests/thread_sanitizer.supp`. A control with a race must be reported, or
//! the whole check fails. The tests that start processes are not run here.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::rust_tests::{TestProgram, build};
use super::{Environment, Outcome, Report};
use crate::Failure;

const FLAGS: &str = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg sanitized";
const SUPPRESSIONS: &str = "crates/livetime-shm/tests/thread_sanitizer.supp";
/// The test program whose only test has a race.
const CONTROL: &str = "race_control";
/// How often it is run at most until its race is reported.
const CONTROL_RUNS_MAX: u32 = 20;
/// What ThreadSanitizer ends a process with that had a race.
const RACE_EXIT: i32 = 66;

const SELECTION: [&str; 11] = [
    "--package",
    "livetime-shm",
    "--lib",
    "--test",
    "ring_threads",
    "--test",
    "pool_operations",
    "--test",
    CONTROL,
    "--target-dir",
    "target/tsan",
];

/// Builds and runs them; one record per test.
pub(super) fn run(environment: &Environment, report: &mut Report) {
    println!("ThreadSanitizer");
    let start = Instant::now();
    if !cfg!(target_arch = "x86_64") && !cfg!(target_arch = "aarch64") {
        let reason = "ThreadSanitizer does not know this processor".to_owned();
        report.add("ThreadSanitizer", Outcome::Skipped(reason), start.elapsed());
        return;
    }
    match run_all(environment, report) {
        Ok(tests) => println!(
            "  {tests} tests under ThreadSanitizer in {:.1} s",
            start.elapsed().as_secs_f64()
        ),
        Err(why) => {
            println!("ThreadSanitizer: {why}");
            report.add("ThreadSanitizer", Outcome::Failed, start.elapsed());
        }
    }
}

fn run_all(environment: &Environment, report: &mut Report) -> Result<usize, Failure> {
    let mut command = environment.cargo(&["test", "--release", "--no-run"]);
    command
        .args(SELECTION)
        // With a target named, build scripts and procedural macros are not instrumented.
        .args(["--target", &crate::program::host_triple(&environment.root)?])
        // The sanitizer is part of every compiler and behind an unstable option.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", FLAGS);
    let built = build(command)?;
    if !built.all {
        return Err("the tests do not build".into());
    }
    let mut tests = 0;
    let mut is_control_reported = false;
    for program in &built.programs {
        for name in names(&program.executable)? {
            if program.label.ends_with(CONTROL) {
                // On a busy machine its two threads may not meet the first time.
                for _ in 0..CONTROL_RUNS_MAX {
                    let run = run_one(environment, program, &name)?;
                    is_control_reported |= run.is_race && run.text.contains("fill_payload");
                    if is_control_reported {
                        break;
                    }
                }
                continue;
            }
            let start = Instant::now();
            let run = run_one(environment, program, &name)?;
            let outcome = match run {
                Run { passed: true, .. } => Outcome::Passed,
                Run { text, .. } => {
                    println!("---- {} {name}\n{text}", program.label);
                    Outcome::Failed
                }
            };
            tests += 1;
            let name = format!("ThreadSanitizer {} {name}", program.label);
            report.add(name, outcome, start.elapsed());
        }
    }
    if !is_control_reported || tests == 0 {
        return Err("the race of the control was not reported".into());
    }
    report.add("ThreadSanitizer control", Outcome::Passed, Duration::ZERO);
    Ok(tests)
}

/// The tests of a program.
fn names(executable: &Path) -> Result<Vec<String>, Failure> {
    let output = Command::new(executable).arg("--list").output()?;
    let text = String::from_utf8(output.stdout)?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// How one test ended.
struct Run {
    passed: bool,
    is_race: bool,
    text: String,
}

fn run_one(environment: &Environment, program: &TestProgram, name: &str) -> Result<Run, Failure> {
    let suppressions = environment.root.join(SUPPRESSIONS);
    let output = environment
        .command(&program.executable)
        .current_dir(&program.crate_folder)
        .args(["--exact", name])
        .env("CARGO_MANIFEST_DIR", &program.crate_folder)
        .env(
            "TSAN_OPTIONS",
            format!(
                "suppressions={} exitcode={RACE_EXIT}",
                suppressions.display()
            ),
        )
        .stdin(Stdio::null())
        .output()?;
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    Ok(Run {
        passed: output.status.success(),
        is_race: output.status.code() == Some(RACE_EXIT),
        text: String::from_utf8_lossy(&text).into_owned(),
    })
}
