//! `livetime source CONFIG`: events, trigger packets and decisions of a source, as JSON lines.
//!
//! One line per event, in the order of the source's sequence, as if none were refused. The plain
//! Python oracle reads these lines and must come to the same words and bits. With `--link` or
//! `--frames` the fragments are played instead: [`crate::verb::played_source`].

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use livetime_node::ChainConfig;
use livetime_source::{EventGenerator, PacketEncoder, PacketHeader, PhysicsGenerator, SourceEvent};
use livetime_trigger::{LevelTwo, node_of};
use livetime_wire::decision::mix64;
use livetime_wire::object::ObjectKind;
use livetime_wire::trigger_packet::TriggerPacketView;
use livetime_wire::{RunNs, TriggerNumber};
use serde_json::json;

use crate::config::{self, Overrides};
use crate::console::{print_line, say};
use crate::exit;
use crate::option_values::{whole_number, whole_number_from_1};
use crate::output_place;
use crate::verb::{pattern, played_source};

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Configuration file; not needed with --pattern
    #[arg(required_unless_present = "pattern", conflicts_with = "pattern")]
    config: Option<PathBuf>,
    #[command(flatten)]
    pattern: pattern::Options,
    /// Number of events
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = whole_number_from_1,
        conflicts_with = "pattern"
    )]
    triggers: u64,
    /// Recorded events (CSV) instead of the configured source
    #[arg(long, value_name = "FILE", conflicts_with = "pattern")]
    events: Option<PathBuf>,
    /// Seed of the generator
    #[arg(long, value_parser = whole_number)]
    seed: Option<u64>,
    /// Add the Level-2 decisions before and after prescale
    #[arg(long, conflicts_with_all = ["link", "pattern", "frames"])]
    decide: bool,
    /// Write the fragments of each data link to a file in this folder, for links of kind "file"
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["link", "pattern", "jsonl"])]
    frames: Option<PathBuf>,
    /// File to make, one JSON line per event; standard output without it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["link", "pattern"])]
    jsonl: Option<PathBuf>,
}

/// Writes the lines.
pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(pattern) = options.pattern.pattern {
        return pattern::run(&options.pattern, pattern, options.seed);
    }
    let Some(config) = &options.config else {
        unreachable!("the command line demands a configuration without a pattern")
    };
    let overrides = Overrides {
        seed: options.seed,
        events: options.events.clone(),
        ..Overrides::default()
    };
    let loaded = match config::load(config, &overrides) {
        Ok(loaded) => loaded,
        Err(problems) => {
            say(problems.trim_end());
            return exit::PROBLEM;
        }
    };
    if loaded.config.chain.front_ends.is_some() {
        say(format_args!("error: {}", config::NO_EVENTS_OF_OUR_OWN));
        return exit::PROBLEM;
    }
    if let Some(done) = play(options, &loaded.config.chain) {
        return done;
    }
    let jsonl = options.jsonl.as_deref();
    if let Err(error) = jsonl.map_or(Ok(()), output_place::check_new) {
        say(format_args!("error: {error}"));
        return exit::PROBLEM;
    }
    let written = match &options.jsonl {
        Some(path) => write_file(path, options, &loaded.config.chain),
        None => write_lines(options, &loaded.config.chain, std::io::stdout().lock()),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        // A reader of standard output that has seen enough.
        Err(error) if options.jsonl.is_none() && error.kind() == ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            let path = options
                .jsonl
                .as_ref()
                .map_or("standard output".into(), |p| p.display().to_string());
            say(format_args!("error: cannot write {path}: {error}"));
            exit::PROBLEM
        }
    }
}

/// Writes the lines into a file, or into what is there and no plain file; of a file that was made here
/// nothing is left when that fails.
fn write_file(path: &Path, options: &Options, chain: &ChainConfig) -> std::io::Result<()> {
    let is_made_here = std::fs::symlink_metadata(path).is_err();
    let file = File::create(path)?;
    let written = write_lines(options, chain, BufWriter::new(file));
    written.inspect_err(|_| {
        if is_made_here {
            output_place::remove_unfinished(path);
        }
    })
}

/// Plays the fragments, if that is asked for.
fn play(options: &Options, chain: &ChainConfig) -> Option<ExitCode> {
    let events = options.triggers;
    let played = if let Some(folder) = &options.frames {
        played_source::write_frames(chain, events, folder)
            .map(|document| (document, true))
            .map_err(|error| format!("cannot write {}: {error}", folder.display()))
    } else {
        played_source::play(chain, events, options.pattern.link?)
            .map_err(|error| format!("the link broke: {error}"))
    };
    Some(match played {
        Ok((document, is_whole)) => {
            let printed = exit::after_printing(print_line(document));
            if is_whole { printed } else { exit::PROBLEM }
        }
        Err(error) => {
            say(format_args!("error: {error}"));
            exit::PROBLEM
        }
    })
}

/// Events of one lumi section: short, so that a few thousand events show several luminosities.
const PACKETS_PER_SECTION: u64 = 1000;

/// Level-1 accepts refused before an event, which a run counts: none for 2000 events, then up to two
/// before each of the next 2000, so that dynamic prescales have something to follow.
fn made_up_refusals(index: u64) -> u32 {
    if (index / 2000).is_multiple_of(2) {
        0
    } else {
        (mix64(index) % 3) as u32
    }
}

fn kind_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Muon => "muon",
        ObjectKind::Electron => "electron",
        ObjectKind::Track => "track",
        ObjectKind::Jet => "jet",
        ObjectKind::Photon => "photon",
    }
}

fn generator_of(chain: &ChainConfig) -> EventGenerator {
    match &chain.recorded {
        Some(recorded) => EventGenerator::Recorded(recorded.clone()),
        None => {
            let physics = chain.source.physics.clone();
            EventGenerator::Physics(Box::new(PhysicsGenerator::new(physics, chain.source.seed)))
        }
    }
}

fn write_lines(options: &Options, chain: &ChainConfig, mut out: impl Write) -> std::io::Result<()> {
    let generator = generator_of(chain);
    let mut encoder = PacketEncoder::new(chain.source.packet_words_max);
    // As in a run each node counts for its own prescales.
    let mut nodes = vec![LevelTwo::new(&chain.menu); chain.trigger_nodes.max(1).into()];
    let mut event = SourceEvent::new();
    let mut words = Vec::new();
    for index in 0..options.triggers {
        generator.event(index, &mut event);
        // Header fields that a run takes from its clock are made from the index here.
        let header = PacketHeader {
            trigger: TriggerNumber(index + 1),
            l2_buffer: (index % 4) as u8,
            bunch: (index * 17 % 3564) as u32,
            run: event.run,
            lumi_section: (index / PACKETS_PER_SECTION) as u32,
            triggered_at: RunNs(index * 100_000),
            index,
        };
        let refused = made_up_refusals(index);
        (0..refused).for_each(|_| encoder.count_refused());
        encoder.encode(&event, &header, &mut words);
        let objects: Vec<_> = (event.objects.iter())
            .map(|o| {
                json!([
                    kind_name(o.kind),
                    o.pt,
                    o.eta,
                    o.phi,
                    o.charge,
                    o.dxy,
                    o.iso,
                    o.chi2
                ])
            })
            .collect();
        let packet: Vec<String> = words.iter().map(|word| format!("{word:08x}")).collect();
        let mut line = json!({
            "index": index,
            "trigger": header.trigger.to_string(),
            "event": event.number.to_string(),
            "header": {
                "l2_buffer": header.l2_buffer,
                "bunch": header.bunch & 0xFF,
                "run": header.run.0 & 0x00FF_FFFF,
                "lumi": header.lumi_section & 0xFF,
                "refused": refused,
                "time": (header.triggered_at.0 / 25) & 0xFFFF_FFFF,
            },
            "objects": objects,
            "packet": packet,
        });
        if options.decide {
            let view = TriggerPacketView::new_checked(&words)
                .map_err(|error| std::io::Error::other(format!("event {index}: {error}")))?;
            let node = node_of(header.trigger.low(), nodes.len());
            let decided = nodes[node].decide(&view);
            line["before"] = decided.before.to_string().into();
            line["after"] = decided.after.to_string().into();
        }
        writeln!(out, "{line}")?;
    }
    out.flush()
}
