//! The `livetime` program: one verb per file in `verb/`, the configuration in `config/`.
//!
//! It reads what people write (configurations, options) and prints what they read; the chain itself
//! is in `livetime-node`. Talk goes to stderr, results to stdout. Exit codes: 0 good, 1 a problem
//! or a FAIL, 2 usage, 70 our own bug. As a library it has [`run_program`], so that a program of
//! yours can add trigger algorithms and be the same in everything else, and
//! [`check_configuration`].

#![warn(clippy::print_stdout, clippy::print_stderr)] // `console.rs` says why

mod command_words;
mod config;
mod console;
mod end_at_once;
mod ending_signal;
mod exit;
mod extensions;
mod filter_of_run;
#[cfg(feature = "cluster")]
mod host_folder;
#[cfg(feature = "cluster")]
mod host_launch;
mod machine_check;
mod option_values;
mod output_place;
mod packet_account;
mod run_control;
mod run_directory;
mod run_faults;
mod run_histograms;
#[cfg(feature = "cluster")]
mod run_hosts;
mod run_live;
mod run_rates;
mod run_remarks;
mod run_status;
mod run_summary;
mod run_watch;
mod spill_figure;
mod verb;
mod writer_places;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use extensions::Extensions;
#[cfg(feature = "cluster")]
use verb::host;
use verb::{
    bench, check, doctor, explain, export, import, inspect, replay, report, role, run, sim, source,
    steer, study, timing,
};

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
    /// Serve one host of a run over several (started by `run`)
    #[cfg(feature = "cluster")]
    #[command(hide = true)]
    Host(host::Options),
    /// Check a configuration and say all its problems at once
    Check(check::Options),
    /// Say whether this machine is fit for a trigger loop, and what would make it so
    Doctor(doctor::Options),
    /// Say what a run file holds, or repair it
    Inspect(inspect::Options),
    /// Take the stored events of a run through its filter once more, and list what differs
    Replay(replay::Options),
    /// Write the report of a run directory
    Report(report::Options),
    /// Say how a run goes, pause, resume or end it, let filter units join or leave
    Steer(steer::Options),
    /// Write the events, trigger packets and decisions of a source to a file
    Source(source::Options),
    /// Make a run of a file of another experiment's format
    Import(import::Options),
    /// Write a run as a file of another experiment's format
    Export(export::Options),
    /// Measure this machine
    Bench(bench::Options),
    /// Measure or simulate the tables and figures of a paper anew
    Study(study::Options),
    /// Serve and use the timing daemon
    Timing(timing::Options),
    /// Explain a problem code
    Explain(explain::Options),
}

/// Does what the command line says, with these algorithms for trigger menus and filters for filter
/// units besides the built-in ones.
///
/// A whole program with an algorithm and a filter of its own is `examples/algorithm`.
pub fn run_program(extensions: impl Into<Extensions>) -> ExitCode {
    exit::report_panics_as_bugs();
    ending_signal::outlive_file_limit();
    extensions::offer(extensions.into());
    match option_values::parse_command_line::<CommandLine>().verb {
        Verb::Run(options) => run::run(&options),
        Verb::Sim(options) => sim::run(&options),
        Verb::Role(options) => role::run(&options),
        #[cfg(feature = "cluster")]
        Verb::Host(options) => host::run(&options),
        Verb::Check(options) => check::run(&options),
        Verb::Doctor(options) => doctor::run(&options),
        Verb::Inspect(options) => inspect::run(&options),
        Verb::Replay(options) => replay::run(&options),
        Verb::Report(options) => report::run(&options),
        Verb::Steer(options) => steer::run(&options),
        Verb::Source(options) => source::run(&options),
        Verb::Import(options) => import::run(&options),
        Verb::Export(options) => export::run(&options),
        Verb::Bench(options) => bench::run(&options),
        Verb::Study(options) => study::run(&options),
        Verb::Timing(options) => timing::run(&options),
        Verb::Explain(options) => explain::run(&options),
    }
}

/// Reads the text of a configuration as `livetime check` does; files that it names are not opened.
///
/// # Errors
/// The problems as the program prints them, all at once; `name` stands for the file's.
pub fn check_configuration(name: &str, text: &str) -> Result<(), String> {
    config::read_text(name, text, &config::Overrides::default()).map(drop)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn no_verb_contradicts_itself() {
        super::CommandLine::command().debug_assert();
    }
}
