//! The Python side of the tests: the oracle's own tests and those of the package.
//!
//! The oracle needs the standard library only; the package is built and tested by
//! `python/check.sh` in a virtual environment. Here their output is read and counted.

use std::time::{Duration, Instant};

use super::{Environment, Outcome, Report, rust_tests};

/// Runs the tests of the Python oracle with the interpreter's own test runner.
pub(super) fn run_oracle(environment: &Environment, report: &mut Report) {
    println!("python oracle");
    let start = Instant::now();
    let mut command = environment.command("python3");
    command.args([
        "-m",
        "unittest",
        "discover",
        "-v",
        "-s",
        "python/oracle",
        "-t",
        "python",
    ]);
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("python3 cannot be started: {error}");
            report.add("python oracle", Outcome::Failed, start.elapsed());
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stderr);
    let counts = PythonCounts::parse(&text);
    if !output.status.success() || counts.tests == 0 {
        println!("{}{text}", String::from_utf8_lossy(&output.stdout));
        report.add("python oracle", Outcome::Failed, start.elapsed());
        return;
    }
    println!(
        "  {} tests in {:.1} s",
        counts.tests,
        start.elapsed().as_secs_f64()
    );
    for (name, reason) in &counts.skipped {
        report.add(name.clone(), environment.skipped(reason), Duration::ZERO);
    }
    // One record carries the time of all; the others are counted only.
    report.unnamed_passed += counts.tests.saturating_sub(counts.skipped.len() + 1);
    if counts.tests > counts.skipped.len() {
        report.add("python oracle, all tests", Outcome::Passed, start.elapsed());
    }
}

/// What `python3 -m unittest -v` says.
#[derive(Debug, Default, PartialEq, Eq)]
struct PythonCounts {
    tests: usize,
    skipped: Vec<(String, String)>,
}

impl PythonCounts {
    fn parse(text: &str) -> Self {
        let mut counts = Self::default();
        for line in text.lines() {
            if let Some((test, reason)) = line.split_once(" ... skipped ") {
                counts
                    .skipped
                    .push((test.to_owned(), reason.trim_matches(['\'', '"']).to_owned()));
            } else if let Some(rest) = line.strip_prefix("Ran ") {
                let number = rest
                    .split(' ')
                    .next()
                    .and_then(|number| number.parse().ok());
                counts.tests = number.unwrap_or(0);
            }
        }
        counts
    }
}

/// Builds the Python package and runs its tests, the notebook among them. Some of them start the
/// program, and are skipped without it.
pub(super) fn run_package(environment: &Environment, report: &mut Report) {
    println!("python package");
    let start = Instant::now();
    if !rust_tests::build_program(environment) {
        report.add("python package", Outcome::Failed, start.elapsed());
        return;
    }
    let output = environment
        .command("bash")
        .args(["python/check.sh", "-rs"])
        .output();
    let text = match &output {
        Ok(output) => {
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr)
        }
        Err(error) => error.to_string().into(),
    };
    let counts = PytestCounts::parse(&text);
    let succeeded = output.as_ref().is_ok_and(|output| output.status.success());
    if !succeeded || counts.passed == 0 {
        println!("{text}");
        report.add("python package", Outcome::Failed, start.elapsed());
        return;
    }
    println!(
        "  {} tests in {:.1} s",
        counts.passed,
        start.elapsed().as_secs_f64()
    );
    for reason in &counts.skipped {
        report.add(
            "python package",
            environment.skipped(reason),
            Duration::ZERO,
        );
    }
    report.unnamed_passed += counts.passed - 1;
    report.add(
        "python package, all tests",
        Outcome::Passed,
        start.elapsed(),
    );
}

/// What pytest's short summary says.
#[derive(Debug, Default, PartialEq, Eq)]
struct PytestCounts {
    passed: usize,
    skipped: Vec<String>,
}

impl PytestCounts {
    fn parse(text: &str) -> Self {
        let mut counts = Self::default();
        for line in text.lines() {
            if let Some(skipped) = line.strip_prefix("SKIPPED ") {
                counts.skipped.push(skipped.to_owned());
            }
            let mut words = line
                .split([' ', ','])
                .filter(|word| !word.is_empty())
                .peekable();
            while let Some(word) = words.next() {
                if let (Ok(number), Some(&"passed")) = (word.parse(), words.peek()) {
                    counts.passed = number;
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
    fn python_counts_tests_and_skips() {
        let text = "\
test_a (test_menu.Menu.test_a) ... ok
test_b (test_menu.Menu.test_b) ... skipped 'LIVETIME_DATA is not set'

----
Ran 2 tests in 0.123s

OK (skipped=1)
";
        let counts = PythonCounts::parse(text);
        assert_eq!(counts.tests, 2);
        let (name, reason) = &counts.skipped[0];
        assert_eq!(name, "test_b (test_menu.Menu.test_b)");
        assert_eq!(reason, "LIVETIME_DATA is not set");
    }

    #[test]
    fn pytest_counts_passes_and_skips() {
        let text = "\
..s.
SKIPPED [1] tests/test_x.py:3: LIVETIME_DATA is not set
==== 41 passed, 1 skipped in 3.21s ====
";
        let counts = PytestCounts::parse(text);
        assert_eq!(counts.passed, 41);
        assert_eq!(
            counts.skipped,
            ["[1] tests/test_x.py:3: LIVETIME_DATA is not set"]
        );
    }
}
