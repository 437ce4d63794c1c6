//! `livetime sim CONFIG`: the same chain, the same cores, in the deterministic simulator.
//!
//! Time is simulated, nothing is real but the data: a run is a function of configuration, options
//! and seed. It prints the same document as a real run, marked as simulated; with `--out` the run
//! file is written as well.

use std::fs::File;
use std::io::{Cursor, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use livetime_fabric::chain::{
    FilterChoice, SimulatedChain, SimulatedChainConfig, SimulatedDataLink, SimulatedOutcome,
    SimulatedSpill,
};
use livetime_node::link::LinkTransport;
use livetime_node::{ChainConfig, DataLinkConfig, FilterConfig, latency_summary};
use livetime_store::summary::{DeadTime, Latencies, RunIdentification};
use livetime_store::{FilterMenuSummary, RunBegin, RunReader, RunSummary};
use livetime_wire::{DurationNs, RateHz, RunNumber};

use crate::command_words;
use crate::config::{self, Loaded, Overrides};
use crate::console::{print, print_line, say, with_causes};
use crate::exit;
use crate::option_values::whole_number;
use crate::output_place;
use crate::run_directory;
use crate::run_summary::{BUILD_BOUND, RunFacts, latency_of, percent};

/// Run number of simulated runs, which take none from the counter file.
const SIMULATED_RUN: RunNumber = RunNumber(1);

/// Name of the run file.
const RUN_FILE: &str = "events.mcap";
/// Triggers where neither option nor configuration says how many.
const TRIGGERS: u64 = 10_000;

/// Options of the verb.
#[derive(Debug, clap::Args)]
// They stand among those of a verb, whose group has this name.
#[group(skip)]
pub(crate) struct Options {
    /// Configuration file
    #[arg(required = true)]
    config: Option<PathBuf>,
    /// Number of triggers; without it `triggers` of `[run]`, or 10000
    #[arg(long, value_name = "N", value_parser = whole_number)]
    triggers: Option<u64>,
    /// Seed of the generator
    #[arg(long, value_parser = whole_number)]
    seed: Option<u64>,
    /// Replay recorded events (CSV) instead of the configured source
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Offer triggers at the configured rate and refuse them when all Level-2 buffers are full;
    /// without it the source waits, and decisions are those of a lossless real run
    #[arg(long)]
    timed: bool,
    /// Rate of the triggers, such as 10kHz
    #[arg(long)]
    rate: Option<RateHz>,
    /// Write run file and summary into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document (livetime.run/1) on standard output
    #[arg(long)]
    json: bool,
}

/// Simulates.
pub(crate) fn run(options: &Options) -> ExitCode {
    let overrides = Overrides {
        seed: options.seed,
        triggers: options.triggers,
        lossless: !options.timed,
        rate: options.rate,
        events: options.events.clone(),
        ..Overrides::default()
    };
    let Some(path) = &options.config else {
        // The command line asks for it unless a subcommand is given.
        return ExitCode::from(2);
    };
    let loaded = match config::load(path, &overrides) {
        Ok(loaded) => loaded,
        Err(problems) => {
            say(problems.trim_end());
            return exit::PROBLEM;
        }
    };
    match simulate(options, loaded) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => exit::PROBLEM,
        Err(error) => {
            say(format_args!("error: {}", with_causes(error.as_ref())));
            exit::PROBLEM
        }
    }
}

fn simulate(options: &Options, loaded: Loaded) -> Result<bool, Box<dyn std::error::Error>> {
    let Loaded { text, config } = loaded;
    let mut chain = config.chain;
    let triggers = &mut chain.source.triggers;
    if triggers.triggers_max.is_none() {
        // `duration` of a run in real time would take long.
        (triggers.triggers_max, triggers.duration) = (Some(TRIGGERS), None);
    }
    let asked = triggers.triggers_max.unwrap_or(TRIGGERS);
    if matches!(
        chain.filter,
        FilterConfig::Python(_) | FilterConfig::User(_)
    ) {
        let reason = "a filter of users, in Python or in Rust, does not run in the simulation; \
                      set `[filter] name` to another and leave its keys out";
        return Err(reason.into());
    }
    if chain.front_ends.is_some() {
        return Err(config::NO_EVENTS_OF_OUR_OWN.into());
    }
    let bound = chain.supervisor.deadline;
    let facts = RunFacts::new(&text, chain.source.seed, SIMULATED_RUN);
    let mut begin = facts.begin_record(RunBegin::new(SIMULATED_RUN), &text, &chain.menu);
    begin.simulated = true;
    say(format_args!(
        "simulation · seed {} · configuration {} · livetime {}",
        facts.seed, facts.config_hash, facts.version
    ));
    say_what_is_made(&chain);
    say_what_is_not_written(&chain);
    let config_text = facts.config_with_options(&text);
    if let Some(directory) = &options.out {
        check_place(directory)?;
    }
    let outcome = SimulatedChain::new_checked(&simulated(chain, begin))?.run();
    let mut summary = summarise(&facts, &outcome, bound);
    summary.copies_per_byte = copies_per_byte(&outcome)?;
    if let Some(directory) = &options.out {
        write_files(directory, &outcome.run_file, &config_text, &mut summary)?;
    }
    if options.json {
        print_line(serde_json::to_string(&summary)?)?;
    } else {
        print(to_text(&summary, &outcome))?;
    }
    for problem in &summary.conservation_problems {
        say(format_args!("error: {problem}"));
    }
    if !outcome.is_drained {
        say(format_args!(
            "error: ended by force: it had not come to its end after {:.0} s of simulated time, {} of \
             {asked} triggers in\nhelp: ask for fewer `--triggers`, or for a higher `--rate`",
            summary.run.duration_s, summary.counts.triggers
        ));
    }
    Ok(summary.conserved && outcome.is_drained)
}

/// Says which files of a run there are none of.
fn say_what_is_not_written(chain: &ChainConfig) {
    let files = &chain.files;
    let left_out = [
        (chain.builder.writers > 1, "`writers`"),
        (!files.streams.is_empty(), "`[[store.file]]`"),
        (
            files.bytes_max > 0 || files.time_max.0 > 0,
            "`file_max` and `file_time`",
        ),
        (chain.store.output.bytes_per_s > 0, "`output_per_second`"),
        (chain.packets.is_some(), "`trigger_packets`"),
    ];
    let left_out: Vec<&str> = (left_out.iter())
        .filter_map(|(is_there, name)| is_there.then_some(*name))
        .collect();
    if !left_out.is_empty() {
        say(format_args!(
            "note: a simulation has one run file with all events, whatever {} under [store] say",
            left_out.join(", ")
        ));
    }
}

/// Says whose data a run would read, and the simulation does not.
fn say_what_is_made(chain: &ChainConfig) {
    let is_file = |link: &&DataLinkConfig| matches!(link.transport, LinkTransport::File { .. });
    let of_files = chain.data_links.iter().filter(is_file);
    let sources: Vec<String> = of_files.map(|link| link.source.to_string()).collect();
    if !sources.is_empty() {
        say(format_args!(
            "note: the files of links with `kind = \"file\"` are not read, their fragments are made \
             here: {}",
            sources.join(", ")
        ));
    }
}

/// Makes the directory of a run's files, which may not hold one: before the work, not after it.
fn check_place(directory: &Path) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|error| {
        let directory = directory.display();
        format!(
            "cannot make {directory}: {error}\nhelp: name a directory that can be written with --out"
        )
    })?;
    run_directory::check_free(directory).map_err(|error| error.to_string())
}

/// Writes run file, configuration and summary.
fn write_files(
    directory: &Path,
    run_file: &[u8],
    config: &str,
    summary: &mut RunSummary,
) -> Result<(), String> {
    let [file, config_file, summary_file] =
        [RUN_FILE, "config.toml", "summary.json"].map(|name| directory.join(name));
    summary.files = [&file, &summary_file]
        .map(|path| path.display().to_string())
        .to_vec();
    let json = serde_json::to_string_pretty(&summary).map_err(|error| error.to_string())? + "\n";
    write_run_file(&file, run_file)?;
    for (path, text) in [(&config_file, config), (&summary_file, json.as_str())] {
        output_place::write(path, text)?;
    }
    Ok(())
}

/// Writes the run file. Runs are never overwritten, nor one that came while this one was simulated.
fn write_run_file(file: &Path, run_file: &[u8]) -> Result<(), String> {
    let written = File::create_new(file).and_then(|mut output| {
        let written = output.write_all(run_file);
        written.inspect_err(|_| output_place::remove_unfinished(file))
    });
    written.map_err(|error| {
        let directory = file
            .parent()
            .filter(|_| error.kind() == ErrorKind::AlreadyExists);
        match directory.map(run_directory::check_free) {
            Some(Err(occupied)) => occupied.to_string(),
            _ => format!("cannot write {}: {error}", file.display()),
        }
    })
}

/// The simulated chain of a configuration, with the default times of lines, hops and hosts.
pub(super) fn simulated(mut chain: ChainConfig, mut begin: RunBegin) -> SimulatedChainConfig {
    // A simulated run can start when it likes: on the grid, so that equal seeds give equal runs.
    let align = chain.spill.as_ref().and_then(|spill| spill.spill.align);
    if let Some(grid) = align.filter(|grid| grid.0 > 0) {
        begin.started_tai_ns -= begin.started_tai_ns % grid.0;
    }
    // As in a run with threads: nobody would act on a silence.
    chain.builder.heartbeat = DurationNs(0);
    // It has one writer for all.
    chain.builder.writers = 1;
    let data_links = chain.data_links.into_iter().map(|link| SimulatedDataLink {
        source: link.source,
        unit: link.unit,
        link: link.link,
    });
    let defaults = SimulatedChainConfig::new(SIMULATED_RUN, 1, 1, chain.menu.clone());
    SimulatedChainConfig {
        begin,
        source: chain.source,
        recorded: chain.recorded,
        trigger_link: chain.trigger_link,
        data_links: data_links.collect(),
        trigger_nodes: chain.trigger_nodes,
        supervisor: chain.supervisor,
        builder: chain.builder,
        filter: match chain.filter {
            FilterConfig::MassWindow(window) => FilterChoice::MassWindow(window),
            FilterConfig::Menu(menu) => FilterChoice::Menu(menu),
            // Refused before this.
            FilterConfig::AcceptAll | FilterConfig::User(_) | FilterConfig::Python(_) => {
                FilterChoice::AcceptAll
            }
        },
        first_step: chain.first_step,
        store: chain.store,
        spill: chain.spill.map(|spill| SimulatedSpill {
            spill: spill.spill,
            read_back: spill.read_back,
        }),
        ..defaults
    }
}

fn summarise(facts: &RunFacts, outcome: &SimulatedOutcome, bound: DurationNs) -> RunSummary {
    let duration_s = outcome.ended_at.0 as f64 * 1e-9;
    let run = RunIdentification {
        number: facts.run.0,
        seed: facts.seed,
        config_hash: facts.config_hash.clone(),
        version: facts.version.clone(),
        duration_s,
        condition: outcome.condition,
    };
    let latency = Latencies {
        decision: latency_summary(&outcome.decision_latency, bound.0),
        build: latency_summary(&outcome.build_latency, BUILD_BOUND.0),
    };
    let mut summary =
        RunSummary::new(run, &outcome.counts, &outcome.losses, latency).with_digest(outcome.digest);
    summary.dead_time = DeadTime {
        refused_fraction: (outcome.dead_time.offered > 0)
            .then(|| outcome.dead_time.refused_fraction()),
        busy_fraction: Some(outcome.dead_time.busy_fraction()),
    };
    let in_events = outcome.counts.fragments_in_built + outcome.counts.fragments_in_incomplete;
    let mean_bytes = outcome.bytes_sent as f64 / outcome.counts.fragments_sent.max(1) as f64;
    summary.throughput_bytes_per_s = in_events as f64 * mean_bytes / duration_s.max(1e-9);
    summary.filter_menu = FilterMenuSummary::of_counts(&outcome.units.menu, duration_s);
    summary.simulated = true;
    summary.command = command_words::without_out(&facts.command);
    summary
}

/// Bytes written into chunks for each payload byte of the stored events, headers included.
fn copies_per_byte(outcome: &SimulatedOutcome) -> Result<Option<f64>, Box<dyn std::error::Error>> {
    let mut reader = RunReader::open(Cursor::new(&outcome.run_file))?;
    let (mut written, mut payload) = (0, 0);
    while let Some(event) = reader.next_event()? {
        written += event.words().len() as u64;
        payload += event
            .entries()
            .map(|entry| u64::from(entry.words))
            .sum::<u64>();
    }
    Ok((payload > 0).then(|| written as f64 / payload as f64))
}

fn to_text(summary: &RunSummary, outcome: &SimulatedOutcome) -> String {
    let mut text = format!(
        "SIMULATED: {} triggers in {:.3} s of simulated time, {} kernel events, trace {}\n",
        summary.counts.triggers,
        summary.run.duration_s,
        outcome.events_simulated,
        outcome.trace_hash
    );
    text += &format!("  decision digest   {}\n", summary.decision_digest);
    let source = &outcome.units.source;
    if source.refused() > 0 {
        text += &format!(
            "  dead time {} of offers refused ({} full buffers, {} XOFF, {} late); {} refused by the \
             trigger gate, which is no dead time\n",
            percent(summary.dead_time.refused_fraction, 3),
            source.refused_buffers,
            source.refused_xoff,
            source.refused_late,
            source.refused_outside()
        );
    }
    text += &format!(
        "  Level-2 accepts {}, built {}, incomplete {}, stored {}, losses {}\n",
        summary.counts.l2_accepted,
        summary.counts.events_built,
        summary.counts.events_incomplete,
        summary.counts.events_stored,
        summary.losses.total()
    );
    for (name, latency) in [
        ("decision", &summary.latency.decision),
        ("build", &summary.latency.build),
    ] {
        let ns = |ns| latency_of(latency, ns);
        text += &format!(
            "  {name:<9} latency  median {}, 99.9 % {}, max {} (simulated)\n",
            ns(latency.p50),
            ns(latency.p99_9),
            ns(latency.max)
        );
    }
    let verdict = if summary.conserved {
        "Everything is accounted for."
    } else {
        "NOT everything is accounted for."
    };
    text + verdict + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Given a directory that was free, when another run has written there meanwhile, then that is what is said.
    #[test]
    fn a_run_that_came_first_is_kept_and_named() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join(RUN_FILE);
        write_run_file(&file, b"first").expect("a free directory");
        let problem = write_run_file(&file, b"second").expect_err("an occupied directory");
        assert!(
            problem.contains("already holds a run, or a part of one: events.mcap"),
            "{problem}"
        );
        assert_eq!(std::fs::read(&file).expect("the first run"), b"first");
        let nowhere = folder.path().join("none").join(RUN_FILE);
        let problem = write_run_file(&nowhere, b"third").expect_err("no such directory");
        assert!(problem.starts_with("cannot write "), "{problem}");
    }
}
