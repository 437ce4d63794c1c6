//! `livetime sim ..`: everything that runs in the deterministic simulator, one file each in `sim/`.
//!
//! `livetime sim CONFIG` runs the chain of a configuration; the subcommands simulate networks.
//! Nothing here is real but the code of the units: times are simulated, and printed as such.

mod builder_result;
mod chain;
mod gates;
mod latencies;
mod link_result;
mod network_result;
mod plan;
mod plan_progress;
mod preset;
mod rate_words;
mod replay;
mod run;
mod swarm;

use std::process::ExitCode;

/// Options of the verb.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    study: Option<Study>,
    #[command(flatten)]
    chain: chain::Options,
}

/// What can be simulated besides a chain.
#[derive(Debug, clap::Subcommand)]
enum Study {
    /// What the simulator must reproduce: value, reference, tolerance, verdict
    Gates(gates::Options),
    /// A network with its traffic, from a scenario file or a preset
    Run(run::Options),
    /// Which networks and ways of sending carry an event builder, with margins
    Plan(Box<plan::Options>),
    /// The built-in scenarios: event builders that exist or were planned
    Presets(preset::Options),
    /// The event builder's protocol under all faults at once, seed after seed
    Swarm(swarm::Options),
    /// A real run once more in the simulator: the same inputs must give the same outputs
    Replay(replay::Options),
}

/// Simulates.
pub(crate) fn run(options: &Options) -> ExitCode {
    match &options.study {
        None => chain::run(&options.chain),
        Some(Study::Gates(options)) => gates::run(options),
        Some(Study::Run(options)) => run::run(options),
        Some(Study::Plan(options)) => plan::run(options),
        Some(Study::Presets(options)) => preset::run(options),
        Some(Study::Swarm(options)) => swarm::run(options),
        Some(Study::Replay(options)) => replay::run(options),
    }
}

/// A number of threads. More of them than there is work are not started.
///
/// # Errors
/// What is allowed.
fn parse_threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| *threads > 0);
    threads.ok_or_else(|| {
        "allowed is a whole number from 1 on; leave the option out for as many as there are cores"
            .to_owned()
    })
}
