//! `livetime sim replay RUN`: a real run taken once more in the simulator, its inputs the recorded
//! ones; the outputs must be the same.
//!
//! Inputs are what the run directory holds: configuration, seed, number of triggers and the file of
//! recorded events if there was one. The very structs that ran then run in the deterministic
//! simulator, and decisions and stored events are compared: trigger by trigger, answer of the
//! filter, words of every fragment. Times and units differ by nature and are not compared. The n-th
//! trigger of a seed is the same event whatever was refused before it, so runs with dead time can be
//! compared, too; only the bunch crossing of a trigger depends on what was refused, and is left out
//! then, with the fragment's own CRC over it. Runs with losses cannot, nor those of which a decision or
//! a fragment hangs on something that the run directory does not hold, such as the time of the day.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use livetime_client::RunFolder;
use livetime_fabric::chain::SimulatedChain;
use livetime_node::{ChainConfig, FilterConfig};
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_source::{ArrivalKind, OfferMode};
use livetime_store::{RunBegin, RunReader, RunSummary};
use livetime_trigger::{PathConfig, SupervisorConfig};
use livetime_wire::event::EventView;
use livetime_wire::fragment::{BUNCH_WORD, MARKER, OVERHEAD_WORDS, TRAILER_WORDS};
use livetime_wire::{DurationNs, RunNumber};
use serde_json::json;

use super::chain::simulated;
use crate::config::{Loaded, Overrides, load};
use crate::console::{print, print_line, say, with_causes};
use crate::exit;

/// Differences that are listed; all are counted.
const LISTED_MAX: usize = 20;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run directory of a run without losses
    run: PathBuf,
    /// Print one JSON document (livetime.sim_replay/1) on standard output
    #[arg(long)]
    json: bool,
}

/// What is compared of an event: nothing that depends on time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    mask: u128,
    reason: u16,
    streams: u16,
    missing: usize,
    /// Source, number of words and hash of the words, for each fragment.
    fragments: Vec<(u32, u32, u64)>,
}

/// Whether the bunch crossings of the two runs are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bunches {
    Same,
    /// Triggers were refused: those after them came at other crossings.
    Other,
}

impl Bunches {
    const fn of(summary: &RunSummary) -> Self {
        match summary.counts.refused {
            0 => Self::Same,
            _ => Self::Other,
        }
    }

    /// A hash of what is compared of a fragment. No CRC-32C: behind the one that a fragment carries
    /// itself, that of all its words depends on their number alone.
    fn hash(self, words: &[u32]) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self {
            Self::Other if words.first() == Some(&MARKER) && words.len() >= OVERHEAD_WORDS => {
                let own_crc = words.len() - TRAILER_WORDS + 1;
                words[..BUNCH_WORD].hash(&mut hasher);
                words[BUNCH_WORD + 1..own_crc].hash(&mut hasher);
                words[own_crc + 1..].hash(&mut hasher);
            }
            _ => words.hash(&mut hasher),
        }
        hasher.finish()
    }
}

/// What a run gave.
struct Outputs {
    digest: String,
    stored: BTreeMap<u64, Stored>,
}

/// Replays and compares.
pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => exit::PROBLEM,
        Err(error) => {
            say(error.trim_end());
            exit::PROBLEM
        }
    }
}

fn try_run(options: &Options) -> Result<bool, String> {
    let path = options.run.join("summary.json");
    let text = plain_file::read_text(&path, TEXT_BYTES_MAX).map_err(|error| {
        let help = "name the directory of a run that has ended, such as runs/000042";
        format!(
            "error: cannot read {}: {error}\nhelp: {help}",
            path.display()
        )
    })?;
    let summary: RunSummary = serde_json::from_str(&text)
        .map_err(|error| format!("error: {}: {error}", path.display()))?;
    if summary.losses.total() > 0 {
        return Err(format!(
            "error: {}: {} losses, so its outputs are not those of the simulator\n\
             help: take a run in which nothing is lost, such as with `--lossless`",
            options.run.display(),
            summary.losses.total()
        ));
    }
    let loaded = load_run(&options.run, &summary)?;
    let hindrances = hindrances(&loaded.config.chain, &summary);
    if !hindrances.is_empty() {
        return Err(format!(
            "error: {}: its outputs are not those of the simulator, since\n  {}\n\
             help: take a run without that",
            options.run.display(),
            hindrances.join("\n  ")
        ));
    }
    let real = real_outputs(&options.run, &summary)?;
    let simulated = simulated_outputs(loaded, &summary)?;
    let differing = differences(&real, &simulated);
    let is_same = differing.is_empty() && real.digest == simulated.digest;
    let printed = if options.json {
        print_line(json!({
            "schema": "livetime.sim_replay/1",
            "run": summary.run.number,
            "triggers": summary.counts.triggers,
            "decision_digest": { "real": real.digest, "simulated": simulated.digest },
            "events": { "real": real.stored.len(), "simulated": simulated.stored.len() },
            "differing": differing.len(),
            "differing_triggers": differing
                .iter()
                .take(LISTED_MAX)
                .map(u64::to_string)
                .collect::<Vec<_>>(),
            "same": is_same,
        }))
    } else {
        print(to_text(&summary, &real, &simulated, &differing))
    };
    printed.map_err(|error| format!("error: {error}"))?;
    Ok(is_same)
}

/// What of a run the simulator does not have as it was, each in words.
fn hindrances(chain: &ChainConfig, summary: &RunSummary) -> Vec<&'static str> {
    let paths = &chain.menu.config().paths;
    let by_time = |path: &PathConfig| path.prescale.interval_min.0 > 0;
    let by_dead_time = |path: &PathConfig| path.prescale.steps.len() > 1;
    let by_luminosity = |path: &PathConfig| path.prescale.luminosity_max.is_some();
    let has_luminosity = !chain.menu.config().luminosity.is_empty();
    [
        (
            matches!(
                chain.filter,
                FilterConfig::Python(_) | FilterConfig::User(_)
            ),
            "its filter is one of users, in Python or in Rust",
        ),
        (
            chain.front_ends.is_some(),
            "its events are those of front-ends of users (`kind = \"external\"`)",
        ),
        (
            chain.spill.is_some(),
            "the spill structure goes by the time of the day (`[timing]`)",
        ),
        (
            chain.is_replayed(),
            "its fragments come from files (`kind = \"file\"`)",
        ),
        (
            paths.iter().any(by_time),
            "a path fires by the time of the packets (`interval_min`)",
        ),
        (
            paths.iter().any(by_dead_time),
            "the dead time chooses prescales (`prescales`)",
        ),
        (
            has_luminosity && paths.iter().any(by_luminosity),
            "a path is open by the luminosity of the moment (`luminosity_max`)",
        ),
        (
            !summary.filter_failures.is_empty(),
            "a filter unit died of an event",
        ),
    ]
    .into_iter()
    .filter_map(|(hinders, text)| hinders.then_some(text))
    .collect()
}

/// What the files of the run hold: each event once, in whichever of them it is.
fn real_outputs(run: &Path, summary: &RunSummary) -> Result<Outputs, String> {
    let bunches = Bunches::of(summary);
    let mut folder = RunFolder::open(run).map_err(|error| format!("error: cannot read {error}"))?;
    let mut stored = BTreeMap::new();
    let failed = |error| format!("error: {}: {error}", run.display());
    while let Some(event) = folder.next_event().map_err(failed)? {
        stored.insert(event.header().trigger.0, output_of(&event, bunches));
    }
    let expected = summary.counts.events_stored;
    if (stored.len() as u64) < expected {
        return Err(format!(
            "error: {}: {} of the {expected} events that the run has stored are there\n\
             help: `livetime inspect {}` says what is missing",
            run.display(),
            stored.len(),
            run.display()
        ));
    }
    Ok(Outputs {
        digest: summary.decision_digest.clone(),
        stored,
    })
}

fn output_of(event: &EventView<'_>, bunches: Bunches) -> Stored {
    let header = event.header();
    let fragments = event
        .fragments()
        .map(|(entry, words)| (entry.source.0, entry.words, bunches.hash(words)));
    Stored {
        mask: header.mask.0,
        reason: header.filter_reason,
        streams: header.streams,
        missing: event.missing().len(),
        fragments: fragments.collect(),
    }
}

/// The configuration of the run, with its seed and triggers, and what its options said of these. All of
/// them are taken, whether triggers of the run could be refused or not.
fn load_run(run: &Path, summary: &RunSummary) -> Result<Loaded, String> {
    if summary.counts.triggers == 0 {
        let run = run.display();
        return Err(format!(
            "error: {run}: the run took no trigger, and there is nothing to replay"
        ));
    }
    let is_given = |option: &str| summary.command.iter().any(|word| word == option);
    let overrides = Overrides {
        seed: Some(summary.run.seed),
        triggers: Some(summary.counts.triggers),
        // Then they come when there is room, but for a rate that was asked for.
        lossless: match summary.simulated {
            true => !is_given("--timed"),
            false => is_given("--lossless"),
        },
        rate: option_of(&summary.command, "--rate").and_then(|rate| rate.parse().ok()),
        events: option_of(&summary.command, "--events").map(PathBuf::from),
        ..Overrides::default()
    };
    let mut loaded = load(&run.join("config.toml"), &overrides)?;
    let chain = &mut loaded.config.chain;
    chain.source.triggers.mode = OfferMode::Lossless;
    chain.supervisor.decision_timeout = SupervisorConfig::TIMEOUT_MAX;
    if Bunches::of(summary) == Bunches::Other {
        chain.source.triggers.arrival.kind = ArrivalKind::Unpaced;
    }
    Ok(loaded)
}

/// The same inputs through the simulator.
fn simulated_outputs(loaded: Loaded, summary: &RunSummary) -> Result<Outputs, String> {
    let Loaded { text, config } = loaded;
    say(format_args!(
        "replay of run {} in the simulator · seed {} · {} triggers",
        summary.run.number, summary.run.seed, summary.counts.triggers
    ));
    // Fragments carry the number of their run.
    let mut begin = RunBegin::new(RunNumber(summary.run.number));
    begin.config = text;
    let mut chain = simulated(config.chain, begin);
    // Triggers of a long run come over its whole time.
    let time = DurationNs::from_seconds(summary.run.duration_s);
    chain.horizon = chain.horizon.after(time);
    let chain = SimulatedChain::new_checked(&chain)
        .map_err(|error| format!("error: {}", with_causes(&error)))?;
    let outcome = chain.run();
    let mut reader = RunReader::open(Cursor::new(&outcome.run_file))
        .map_err(|error| format!("error: {}", with_causes(&error)))?;
    let bunches = Bunches::of(summary);
    let mut stored = BTreeMap::new();
    let failed = |error| format!("error: {error}");
    while let Some(event) = reader.next_event().map_err(failed)? {
        stored.insert(event.header().trigger.0, output_of(&event, bunches));
    }
    Ok(Outputs {
        digest: outcome.digest.to_string(),
        stored,
    })
}

/// The value that an option had when a run was started, which is in no configuration: as a word of its own,
/// or behind `=`.
fn option_of<'c>(command: &'c [String], option: &str) -> Option<&'c str> {
    let behind = |(place, word): (usize, &'c String)| match word.strip_prefix(option)? {
        "" => command.get(place + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    };
    command.iter().enumerate().find_map(behind)
}

/// Triggers whose events differ, or that only one side stored, in order.
fn differences(real: &Outputs, simulated: &Outputs) -> Vec<u64> {
    let mut all: Vec<u64> = real
        .stored
        .keys()
        .chain(simulated.stored.keys())
        .copied()
        .collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|trigger| real.stored.get(trigger) != simulated.stored.get(trigger));
    all
}

fn to_text(summary: &RunSummary, real: &Outputs, simulated: &Outputs, differing: &[u64]) -> String {
    let mut text = format!(
        "run {}: {} triggers, taken and SIMULATED\n  decision digest   {} and {}\n  stored events     \
         {} and {}, {} differ\n",
        summary.run.number,
        summary.counts.triggers,
        real.digest,
        simulated.digest,
        real.stored.len(),
        simulated.stored.len(),
        differing.len()
    );
    for trigger in differing.iter().take(LISTED_MAX) {
        text += &format!("  differs           trigger {trigger}\n");
    }
    let is_same = differing.is_empty() && real.digest == simulated.digest;
    text + match is_same {
        true => "The same inputs gave the same outputs.\n",
        false => "The outputs DIFFER.\n",
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::SourceId;
    use livetime_wire::fragment::FragmentHeader;

    use super::*;

    fn fragment(bunch: u32, data: [u32; 4]) -> Vec<u32> {
        let header = FragmentHeader {
            source: SourceId(0x51_0000),
            run: RunNumber(7),
            trigger_low: 12,
            bunch,
            trigger_type: 1,
            event_type: 0,
        };
        let mut words = vec![0; data.len() + OVERHEAD_WORDS];
        header.emit(0, data.len(), &mut words, |out| out.copy_from_slice(&data));
        words
    }

    #[test]
    fn options_of_a_command_are_read_in_both_their_forms() {
        let of = |command: &str, option| {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            option_of(&command, option).map(str::to_owned)
        };
        for command in [
            "livetime run a.toml --events b.csv --lossless",
            "livetime run --eventsful=c --events=b.csv a.toml",
        ] {
            assert_eq!(of(command, "--events").as_deref(), Some("b.csv"));
        }
        assert_eq!(of("livetime run a.toml --events", "--events"), None);
        assert_eq!(of("livetime run a.toml", "--rate"), None);
    }

    #[test]
    fn other_data_is_seen_and_another_bunch_crossing_where_it_counts() {
        let (one, other) = (fragment(5, [1, 2, 3, 4]), fragment(5, [1, 2, 3, 5]));
        let later = fragment(6, [1, 2, 3, 4]);
        for bunches in [Bunches::Same, Bunches::Other] {
            assert_eq!(bunches.hash(&one), bunches.hash(&one.clone()));
            assert_ne!(bunches.hash(&one), bunches.hash(&other));
        }
        assert_ne!(Bunches::Same.hash(&one), Bunches::Same.hash(&later));
        assert_eq!(Bunches::Other.hash(&one), Bunches::Other.hash(&later));
        // Words of another format are compared as they are.
        assert_ne!(Bunches::Other.hash(&[1, 2]), Bunches::Other.hash(&[1, 3]));
    }
}
