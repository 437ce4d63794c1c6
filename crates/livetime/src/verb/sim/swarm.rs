//! `livetime sim swarm`: the builder's protocol under all faults at once, seed after seed.
//!
//! The stories and what is checked are in `livetime_fabric::swarm`; here they are run side by side
//! and counted, and the first story that fails is made small and printed.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use livetime_fabric::replica::run_all;
use livetime_fabric::swarm::{Broken, SwarmRun, run_seed, shrink};
use serde_json::{Value, json};

use super::parse_threads;
use crate::console::{print, print_line, say};
use crate::exit;

/// Stories that are run between two looks at the count.
const BATCH: u64 = 200;
/// Most failing seeds that are named.
const NAMED_MAX: usize = 20;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of stories, one per seed
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// The first seed; the others follow it
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Break the protocol on purpose, to see that it is found: no-duplicate-check, no-epoch or
    /// early-clear (only in a program that was built with `--features mutants`)
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Threads that run stories side by side; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    /// Print one JSON document (livetime.swarm/1) on standard output
    #[arg(long)]
    json: bool,
}

/// What all stories did.
#[derive(Default)]
struct Swarm {
    seed: u64,
    runs: u64,
    events: u64,
    released: u64,
    incomplete: u64,
    kernel_events: u64,
    /// Stories of each kind.
    stories: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
    violations: u64,
    failing: Vec<u64>,
    first: Option<SwarmRun>,
}

impl Swarm {
    fn add(&mut self, run: SwarmRun) {
        self.runs += 1;
        self.events += run.events_built;
        self.released += run.events_released;
        self.incomplete += run.events_incomplete;
        self.kernel_events += run.kernel_events;
        for kind in run.scenario.kinds() {
            *self.stories.entry(kind).or_default() += 1;
        }
        for (fault, count) in &run.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        if run.violation.is_some() {
            self.violations += 1;
            if self.failing.len() < NAMED_MAX {
                self.failing.push(run.scenario.seed);
            }
            self.first.get_or_insert(run);
        }
    }
}

/// Runs the swarm.
#[cfg_attr(
    not(feature = "mutants"),
    expect(clippy::let_unit_value, reason = "nothing can be broken in this build")
)]
pub(crate) fn run(options: &Options) -> ExitCode {
    let broken = match broken(options.mutant.as_deref()) {
        Ok(broken) => broken,
        Err(error) => {
            say(format_args!("error: {error}"));
            return ExitCode::from(2);
        }
    };
    // An assertion of a unit that fails is a violation of its story, and is reported as such.
    std::panic::set_hook(Box::new(|_| {}));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = BATCH.min(options.runs) as usize;
    let threads = options.threads.unwrap_or(cores).min(most);
    let start = Instant::now();
    let mut swarm = Swarm {
        seed: options.seed,
        ..Swarm::default()
    };
    // A mutant is found once.
    while swarm.runs < options.runs && (options.mutant.is_none() || swarm.violations == 0) {
        let first = options.seed.wrapping_add(swarm.runs);
        let count = BATCH.min(options.runs - swarm.runs);
        let seeds = (0..count).map(|n| first.wrapping_add(n));
        let stories = seeds.map(|seed| move || run_seed(seed, broken)).collect();
        for run in run_all(stories, threads, |_| {}) {
            swarm.add(run);
        }
    }
    let first = swarm.first.take().map(|run| shrink(run, broken));
    let printed = if options.json {
        print_line(to_json(&swarm, first.as_ref()))
    } else {
        print(to_text(&swarm, first.as_ref()))
    };
    say(format_args!(
        "{} stories in {:.1} s, {} threads",
        swarm.runs,
        start.elapsed().as_secs_f64(),
        threads
    ));
    match (exit::after_printing(printed), swarm.violations) {
        (code, 0) => code,
        _ => exit::PROBLEM,
    }
}

#[cfg(feature = "mutants")]
fn broken(name: Option<&str>) -> Result<Broken, String> {
    use livetime_fabric::swarm::Mutant;
    let Some(name) = name else { return Ok(None) };
    let found = Mutant::ALL.iter().find(|(known, _)| *known == name);
    match found {
        Some((_, mutant)) => Ok(Some(*mutant)),
        None => Err(format!(
            "there is no mutant `{name}`; allowed are {}",
            Mutant::ALL.map(|(known, _)| known).join(", ")
        )),
    }
}

#[cfg(not(feature = "mutants"))]
fn broken(name: Option<&str>) -> Result<Broken, String> {
    match name {
        None => Ok(()),
        Some(name) => Err(format!(
            "mutant `{name}`: this program cannot break its protocol; build one that can with \
             `cargo build --release --features mutants`"
        )),
    }
}

fn to_json(swarm: &Swarm, first: Option<&SwarmRun>) -> Value {
    let mut document = json!({
        "schema": "livetime.swarm/1",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": swarm.seed.to_string(),
        "runs": swarm.runs,
        "stories": swarm.stories,
        "violations": swarm.violations,
        "failing_seeds": swarm.failing.iter().map(u64::to_string).collect::<Vec<_>>(),
        "events_built": swarm.events,
        "events_released": swarm.released,
        "events_incomplete": swarm.incomplete,
        "kernel_events": swarm.kernel_events,
        "faults_injected": swarm.faults,
    });
    if let Some((run, violation)) = first.and_then(|run| Some((run, run.violation.as_ref()?))) {
        document["smallest"] = json!({
            "seed": run.scenario.seed.to_string(),
            "violation": violation.what,
            "at_ns": violation.at.to_run_ns().0.to_string(),
            "story": run.scenario.to_string(),
        });
    }
    document
}

fn to_text(swarm: &Swarm, first: Option<&SwarmRun>) -> String {
    let last = swarm.seed.wrapping_add(swarm.runs.saturating_sub(1));
    let mut text = format!(
        "SIMULATED: {} stories of the event builder, seeds {} to {last} of version {}\n{} events, {} \
         of them released after their first step, {} incomplete since a readout unit died\n",
        swarm.runs,
        swarm.seed,
        env!("CARGO_PKG_VERSION"),
        swarm.events,
        swarm.released,
        swarm.incomplete
    );
    let stories = swarm.stories.iter();
    let stories: Vec<String> = stories
        .map(|(kind, count)| format!("{count} {}", kind.replace('_', " ")))
        .collect();
    text += &format!("stories with {}\n", stories.join(", "));
    for (fault, count) in &swarm.faults {
        text += &format!("  {:<18}{count:>10}\n", fault.replace('_', " "));
    }
    if swarm.violations == 0 {
        return text + "No violation: every event once, credits and pages conserved, all ended.\n";
    }
    text += &format!("{} stories FAILED, seeds", swarm.violations);
    for seed in &swarm.failing {
        text += &format!(" {seed}");
    }
    if swarm.violations > swarm.failing.len() as u64 {
        text += " ..";
    }
    text.push('\n');
    if let Some((run, violation)) = first.and_then(|run| Some((run, run.violation.as_ref()?))) {
        text += &format!(
            "The first of them, made small (seed {}):\n  {}\n  at {:.3} ms: {}\n",
            run.scenario.seed,
            run.scenario,
            violation.at.to_run_ns().0 as f64 * 1e-6,
            violation.what
        );
    }
    text
}
