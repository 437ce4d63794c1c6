//! `cargo xtask test`: every check and every test, then the slowest, the skipped and the count.
//!
//! It runs the checks (formatting, lints, documentation, tidy), each test program of the workspace
//! and the documentation examples; beside them, at low priority and in builds of their own, the
//! loom models, ThreadSanitizer, Miri, the Python oracle and package, and the fuzz targets. It goes
//! on after a failure and ends with a line `N passed, N failed, N skipped`. A test that cannot run
//! prints `SKIPPED: reason` and returns; it is counted as skipped, not as passed. How one test
//! program is run and read is in [`rust_tests`].

mod fuzz_targets;
mod miri;
mod python_tests;
mod rust_tests;
mod thread_sanitizer;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::data_folder::{DATA, data_folder};
use crate::program::low_priority;
use crate::tree::workspace_root;
use crate::{Failure, tidy};

/// Set for everything that the driver starts, so that an acceptance line that would run the
/// driver again can refuse.
pub(crate) const RUNNING: &str = "LIVETIME_TEST_DRIVER";

const DATA_REQUIRED: &str = "LIVETIME_DATA_REQUIRED";

/// How many of the slowest tests are listed.
const SLOWEST: usize = 10;

/// What became of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

/// What ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Counted, but not listed among the slowest: its time is the compiler's.
    Check,
    Test,
}

/// One test or check that ran.
#[derive(Debug, Clone)]
struct Record {
    kind: Kind,
    name: String,
    outcome: Outcome,
    took: Duration,
}

/// Everything that ran.
#[derive(Debug, Default)]
struct Report {
    records: Vec<Record>,
    /// Passed tests of programs that do not say their names.
    unnamed_passed: usize,
    /// How long the whole took.
    took: Duration,
}

impl Report {
    /// Adds what ran beside.
    fn merge(&mut self, other: Self) {
        self.records.extend(other.records);
        self.unnamed_passed += other.unnamed_passed;
    }

    fn add_check(&mut self, name: impl Into<String>, outcome: Outcome, took: Duration) {
        let (kind, name) = (Kind::Check, name.into());
        self.records.push(Record {
            kind,
            name,
            outcome,
            took,
        });
    }

    fn add(&mut self, name: impl Into<String>, outcome: Outcome, took: Duration) {
        let (kind, name) = (Kind::Test, name.into());
        self.records.push(Record {
            kind,
            name,
            outcome,
            took,
        });
    }

    fn passed(&self) -> usize {
        let named = self
            .records
            .iter()
            .filter(|record| record.outcome == Outcome::Passed);
        named.count() + self.unnamed_passed
    }

    fn failed(&self) -> Vec<&str> {
        let failed = self
            .records
            .iter()
            .filter(|record| record.outcome == Outcome::Failed);
        failed.map(|record| record.name.as_str()).collect()
    }

    fn skipped(&self) -> Vec<(&str, &str)> {
        let skipped = self
            .records
            .iter()
            .filter_map(|record| match &record.outcome {
                Outcome::Skipped(reason) => Some((record.name.as_str(), reason.as_str())),
                _ => None,
            });
        skipped.collect()
    }

    fn slowest(&self) -> Vec<&Record> {
        let tests = self
            .records
            .iter()
            .filter(|record| record.kind == Kind::Test);
        let mut records: Vec<&Record> = tests.collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.took));
        records.truncate(SLOWEST);
        records
    }

    /// The closing lines, the count alone on the last one.
    fn closing(&self) -> String {
        let mut text = format!("\nthe {SLOWEST} slowest tests:\n");
        for record in self.slowest() {
            text += &format!("  {:>7.2} s  {}\n", record.took.as_secs_f64(), record.name);
        }
        let (failed, skipped) = (self.failed(), self.skipped());
        if !failed.is_empty() {
            text += "failed:\n";
        }
        for name in &failed {
            text += &format!("  {name}\n");
        }
        if !skipped.is_empty() {
            text += "skipped:\n";
        }
        for (name, reason) in &skipped {
            text += &format!("  {name}: {reason}\n");
        }
        text += &format!("took {:.0} s in all\n", self.took.as_secs_f64());
        let (passed, failed, skipped) = (self.passed(), failed.len(), skipped.len());
        text + &format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// A check with a build of its own.
struct Part {
    name: &'static str,
    run: fn(&Environment, &mut Report),
}

/// In the order in which they run; the fuzz targets when most is built, and what needs the program last.
const PARTS: [Part; 6] = [
    Part {
        name: "loom",
        run: run_loom,
    },
    Part {
        name: "oracle",
        run: python_tests::run_oracle,
    },
    Part {
        name: "miri",
        run: miri::run,
    },
    Part {
        name: "thread-sanitizer",
        run: thread_sanitizer::run,
    },
    Part {
        name: "fuzz",
        run: fuzz_targets::run,
    },
    Part {
        name: "python",
        run: python_tests::run_package,
    },
];

/// Runs everything, or only the named parts and the tests of the named crates; `true` where nothing
/// failed.
pub(crate) fn run(names: &[&str]) -> Result<bool, Failure> {
    let start = Instant::now();
    let environment = Environment::new(&workspace_root())?;
    let mut report = Report::default();
    let (parts, crates): (Vec<&str>, Vec<&str>) = names
        .iter()
        .partition(|name| PARTS.iter().any(|part| part.name == **name));
    if names.is_empty() {
        // What is built elsewhere runs beside what is built here and takes the time it leaves.
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| run_parts(&environment.at_low_priority(), |_| true));
            run_checks(&environment, &mut report);
            let outcome = rust_tests::run(&environment, &crates, &mut report);
            let beside = beside.join().map_err(|_| "the checks beside broke off")?;
            report.merge(beside);
            outcome
        })?;
    }
    if !crates.is_empty() {
        rust_tests::run(&environment, &crates, &mut report)?;
    }
    if !parts.is_empty() {
        report.merge(run_parts(&environment, |name| parts.contains(&name)));
    }
    report.took = start.elapsed();
    println!("{}", report.closing());
    Ok(report.failed().is_empty())
}

fn run_parts(environment: &Environment, is_wanted: impl Fn(&str) -> bool) -> Report {
    let mut report = Report::default();
    for part in PARTS.iter().filter(|part| is_wanted(part.name)) {
        (part.run)(environment, &mut report);
    }
    report
}

fn run_checks(environment: &Environment, report: &mut Report) {
    run_check(report, "tidy", tidy::run);
    for (name, arguments) in CHECKS {
        let mut command = environment.cargo(arguments);
        if name == "rustdoc" {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
        run_check(report, name, || Ok(command.status()?.success()));
    }
}

/// Checks through cargo, with their arguments.
const CHECKS: [(&str, &[&str]); 4] = [
    ("rustfmt", &["fmt", "--all", "--check"]),
    (
        "clippy",
        &[
            "clippy",
            "--quiet",
            "--release",
            "--workspace",
            "--features",
            "livetime/cluster",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    (
        "clippy, with the protocol to be broken on purpose",
        &[
            "clippy",
            "--quiet",
            "--release",
            "--package",
            "livetime-fabric",
            "--features",
            "mutants",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    (
        "rustdoc",
        &["doc", "--quiet", "--release", "--workspace", "--no-deps"],
    ),
];

fn run_check(report: &mut Report, name: &str, check: impl FnOnce() -> Result<bool, Failure>) {
    println!("check {name}");
    let start = Instant::now();
    let outcome = match check() {
        Ok(true) => Outcome::Passed,
        Ok(false) => Outcome::Failed,
        Err(failure) => {
            println!("{failure}");
            Outcome::Failed
        }
    };
    report.add_check(format!("check {name}"), outcome, start.elapsed());
}

/// Runs the models of ring, pool and doorbell under loom, in a build of their own.
fn run_loom(environment: &Environment, report: &mut Report) {
    println!("loom models");
    let start = Instant::now();
    let mut command = environment.cargo(&[
        "test",
        "--quiet",
        "--release",
        "--package",
        "livetime-shm",
        "--test",
        "loom",
        "--target-dir",
        "target/loom",
    ]);
    let passed = command
        .env("RUSTFLAGS", "--cfg loom")
        .status()
        .is_ok_and(|s| s.success());
    let outcome = if passed {
        Outcome::Passed
    } else {
        Outcome::Failed
    };
    report.add("loom models", outcome, start.elapsed());
}

/// Where and with which variables tests run.
#[derive(Debug)]
struct Environment {
    root: PathBuf,
    data_required: bool,
    /// Whether what it starts leaves the processor to others.
    low_priority: bool,
}

impl Environment {
    fn new(root: &Path) -> Result<Self, Failure> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let data_required = set(DATA_REQUIRED).is_some_and(|value| value == "1");
        let data = data_folder();
        if data_required && !data.as_ref().is_some_and(|data| data.is_dir()) {
            let found = data.map_or("not set".to_owned(), |data| data.display().to_string());
            let message = format!("{DATA_REQUIRED}=1 and {DATA} is {found}, not a folder");
            return Err(message.into());
        }
        Ok(Self {
            root: root.to_path_buf(),
            data_required,
            low_priority: false,
        })
    }

    /// The same for what runs beside.
    fn at_low_priority(&self) -> Self {
        Self {
            root: self.root.clone(),
            low_priority: true,
            ..*self
        }
    }

    /// A command in the root of the workspace with the variables of tests.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = if self.low_priority {
            low_priority(program)
        } else {
            Command::new(program)
        };
        command
            .current_dir(&self.root)
            .env(RUNNING, "1")
            .env("CARGO_TERM_PROGRESS_WHEN", "never");
        command
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        command.args(arguments);
        command
    }

    /// The outcome of a test that passed by saying `SKIPPED: reason`: with required data, a skip
    /// for missing data is a failure even if the test forgot to fail.
    fn skipped(&self, reason: &str) -> Outcome {
        if self.data_required && reason.contains(DATA) {
            return Outcome::Failed;
        }
        Outcome::Skipped(reason.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_ends_with_the_count_alone_on_a_line() {
        let mut report = Report {
            unnamed_passed: 3,
            ..Report::default()
        };
        for n in 0..12 {
            report.add(
                format!("test {n}"),
                Outcome::Passed,
                Duration::from_millis(n),
            );
        }
        report.add("broken", Outcome::Failed, Duration::from_secs(2));
        report.add(
            "absent",
            Outcome::Skipped("no root".to_owned()),
            Duration::ZERO,
        );
        report.add_check("lint", Outcome::Passed, Duration::from_secs(99));
        let closing = report.closing();
        assert_eq!(
            closing.lines().last(),
            Some("16 passed, 1 failed, 1 skipped")
        );
        assert!(closing.contains("2.00 s  broken"), "{closing}");
        assert!(closing.contains("  absent: no root\n"), "{closing}");
        assert!(!closing.contains("lint"), "checks are not tests: {closing}");
        assert!(
            !closing.contains("  test 2\n"),
            "only the slowest are listed: {closing}"
        );
    }

    #[test]
    fn required_data_turns_a_skip_for_data_into_a_failure() {
        let environment = |data_required| Environment {
            root: PathBuf::new(),
            data_required,
            low_priority: false,
        };
        let reason = "LIVETIME_DATA is not set";
        assert_eq!(environment(true).skipped(reason), Outcome::Failed);
        assert_eq!(
            environment(false).skipped(reason),
            Outcome::Skipped(reason.to_owned())
        );
        let other = "needs CAP_SYS_NICE";
        assert_eq!(
            environment(true).skipped(other),
            Outcome::Skipped(other.to_owned())
        );
    }
}
