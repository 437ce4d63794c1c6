//! The `livetime` program: one verb per file in `verb/`, the configuration in `config/`.
//!
//! It reads what people write (configurations, options) and prints what they read; the chain itself
//! is in `livetime-node`. Talk goes to stderr, results to stdout. Exit codes: 0 good, 1 a problem
//! or a FAIL, 2 usage, 70 our own bug.

#![warn(clippy::print_stdout, clippy::print_stderr)] // `console.rs` says why

mod config;
mod console;
mod exit;
mod run_directory;
mod run_live;
mod run_summary;
mod verb;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use verb::{bench, check, explain, inspect, report, role, run, sim, source};

/// Trigger, data acquisition and timing for physics experiments.
#[derive(Debug, Parser)]
#[command(name = "livetime", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Take data: run a whole chain on this machine
    Run(run::Options),
    /// Run the same chain in the deterministic simulator
    Sim(sim::Options),
    /// Serve one role of a run in a process of its own (started by `run`)
    #[command(hide = true)]
    Role(role::Options),
    /// Check a configuration and say all its problems at once
    Check(check::Options),
    /// Say what a run file holds, or repair it
    Inspect(inspect::Options),
    /// Write the report of a run directory
    Report(report::Options),
    /// Write the events, trigger packets and decisions of a source to a file
    Source(source::Options),
    /// Measure this machine
    Bench(bench::Options),
    /// Explain a problem code
    Explain(explain::Options),
}

fn main() -> ExitCode {
    exit::report_panics_as_bugs();
    match CommandLine::parse().verb {
        Verb::Run(options) => run::run(&options),
        Verb::Sim(options) => sim::run(&options),
        Verb::Role(options) => role::run(&options),
        Verb::Check(options) => check::run(&options),
        Verb::Inspect(options) => inspect::run(&options),
        Verb::Report(options) => report::run(&options),
        Verb::Source(options) => source::run(&options),
        Verb::Bench(options) => bench::run(&options),
        Verb::Explain(options) => explain::run(&options),
    }
}
