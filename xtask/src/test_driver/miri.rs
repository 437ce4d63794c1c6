//! The tests that Miri can run, where a nightly toolchain has it.
//!
//! Miri interprets: it sees undefined behaviour, but knows no shared memory, processes or sockets
//! and is thousands of times slower. So it gets the ring and page protocols on the heap and the
//! byte formats. Where it is missing, the check is skipped and says how to get it.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Environment, Outcome, Report};

const TOOLCHAIN: &str = "nightly";

/// What is run: name, package and selection.
const SELECTIONS: [(&str, &str, &[&str]); 3] = [
    (
        "ring and page protocols",
        "livetime-shm",
        &["--lib", "--", "ring::tests", "page_state::tests"],
    ),
    (
        "ring between threads",
        "livetime-shm",
        &["--test", "ring_threads"],
    ),
    ("byte formats", "livetime-wire", &["--lib"]),
];

/// Runs each selection as one test.
pub(super) fn run(environment: &Environment, report: &mut Report) {
    println!("Miri");
    let start = Instant::now();
    if !is_there() {
        let reason = format!(
            "not installed; with rustup: rustup toolchain install {TOOLCHAIN} \
             --component miri,rust-src"
        );
        report.add("Miri", Outcome::Skipped(reason), start.elapsed());
        return;
    }
    for (name, package, selection) in SELECTIONS {
        let start = Instant::now();
        let outcome = run_selection(environment, package, selection);
        report.add(format!("Miri {name}"), outcome, start.elapsed());
    }
}

/// A command of the nightly toolchain, without what the present one has set.
fn nightly(environment: &Environment) -> Command {
    let mut command = environment.command("rustup");
    command
        .args(["run", TOOLCHAIN, "cargo", "miri"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env("RUSTUP_AUTO_INSTALL", "0");
    command
}

fn is_there() -> bool {
    // The proxy alone is no Miri: it has to say its version.
    let version = Command::new("rustup")
        .args(["run", TOOLCHAIN, "cargo", "miri", "--version"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .env("RUSTUP_AUTO_INSTALL", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    version.is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"miri "))
}

fn run_selection(environment: &Environment, package: &str, selection: &[&str]) -> Outcome {
    let status = nightly(environment)
        .args(["test", "--quiet", "--package", package])
        .args(["--target-dir", "target/miri"])
        .args(selection)
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .status();
    if status.is_ok_and(|status| status.success()) {
        Outcome::Passed
    } else {
        Outcome::Failed
    }
}
