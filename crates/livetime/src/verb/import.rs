//! `livetime import FORMAT FILE --out ..`: files of other programs.
//!
//! A byte stream of another experiment becomes a run; event samples in ROOT or CSV become recorded
//! events, from which a run is taken ([`sample`]).
//!
//! The file's events go through links, readout and event builder in the order of the file, and a
//! run file comes out that `export` turns into the same bytes again. Reading other formats is
//! another file's business; what the words mean is `livetime_wire::bytestream`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use livetime_node::recorded_chain::RecordedChain;
use livetime_store::condition::Condition;
use livetime_store::{FileSummary, RunBegin, RunEnd, RunWriter, WriterLimits};
use livetime_wire::bytestream::{FileRecords, StreamPiece, StreamReader};
use livetime_wire::bytestream_frame::{self, FRAME_SOURCE};
use livetime_wire::{RunNumber, SourceId, TriggerNumber};
use serde_json::json;

use crate::command_words;
use crate::console::{print, print_line, say, with_causes};
use crate::exit;
use crate::run_directory;

mod sample;

use sample::SampleOptions;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    format: Format,
}

/// What is imported.
#[derive(Debug, clap::Subcommand)]
enum Format {
    /// Byte stream of the ATLAS family: ROB and ROD fragments in full events
    Bytestream(ByteStreamOptions),
    /// Event sample in a ROOT file: NanoAOD, momenta, or what `livetime export` writes
    Root(SampleOptions),
    /// Event sample in a CSV file with the columns pt1, eta1, phi1, ..
    Csv(SampleOptions),
}

#[derive(Debug, clap::Args)]
struct ByteStreamOptions {
    /// The file, of this machine's byte order
    file: PathBuf,
    /// Directory for the run file; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What the first pass over a file finds.
#[derive(Default)]
struct Contents {
    run: Option<RunNumber>,
    sources: BTreeSet<SourceId>,
    data_words_max: usize,
    events: u64,
    robs: u64,
    out_of_order: u64,
    /// What the files say of themselves.
    records: FileRecords,
    /// Events without a ROB of a source that other events have.
    lacking_sources: u64,
    /// Events whose own status word, or that of one of their ROBs, is not 0.
    flagged: u64,
}

/// Imports; exit code 1 if the file is not what it should be, with the place.
pub(crate) fn run(options: &Options) -> ExitCode {
    let (made, json) = match &options.format {
        Format::Bytestream(options) => (import(options), options.json),
        Format::Root(options) => (sample::import("root", options), options.json),
        Format::Csv(options) => (sample::import("csv", options), options.json),
    };
    match made {
        Ok(text) => exit::after_printing(match json {
            true => print_line(text),
            false => print(text),
        }),
        Err(text) => {
            say(format_args!("error: {text}"));
            exit::PROBLEM
        }
    }
}

fn import(options: &ByteStreamOptions) -> Result<String, String> {
    let words = read_words(&options.file)?;
    let contents = survey(&options.file, &words)?;
    let run = contents.run();
    let mut sources: Vec<SourceId> = contents.sources.iter().copied().collect();
    sources.push(FRAME_SOURCE);
    let chain = RecordedChain::new(run, &sources, contents.data_words_max);
    let mut chain = chain.map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    let path = options.out.join("events.mcap");
    let file = create(&options.out, &path)?;
    let written = write_run(options, &words, &contents, BufWriter::new(file), &mut chain);
    let written = written.inspect_err(|_| {
        // A part of a run is none, and would be in the way of the next try.
        let _gone = std::fs::remove_file(&path);
    })?;
    let counts = chain.counts();
    if options.json {
        let document = json!({
            "schema": "livetime.import/1",
            "format": "bytestream",
            "file": options.file.display().to_string(),
            "run": run.0,
            "events": written.events_stored,
            "events_out_of_order": contents.out_of_order,
            "events_lacking_sources": contents.lacking_sources,
            "events_flagged": contents.flagged,
            "events_told": contents.told(),
            "cut": contents.is_cut(),
            "links": sources.len(),
            "robs": contents.robs,
            "fragments_sent": counts.fragments_sent,
            "fragments_received": counts.fragments_received,
            "out": path.display().to_string(),
        });
        return Ok(document.to_string());
    }
    Ok(format!(
        "run {}: {} events, {} of them out of order, {} ROBs of {} sources through as many links\n{}{}\n",
        run.0,
        written.events_stored,
        contents.out_of_order,
        contents.robs,
        contents.sources.len(),
        contents.said_of_losses(),
        path.display()
    ))
}

/// Sends all events through the links of `chain` and writes what comes out.
fn write_run(
    options: &ByteStreamOptions,
    words: &[u32],
    contents: &Contents,
    output: impl Write,
    chain: &mut RecordedChain,
) -> Result<FileSummary, String> {
    let cannot = |error: &dyn std::error::Error| {
        let folder = options.out.display();
        format!("cannot write {folder}/events.mcap: {}", with_causes(error))
    };
    let run = contents.run();
    let begin = RunBegin {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_words::of_process(),
        ..RunBegin::new(run)
    };
    let mut writer =
        RunWriter::new(output, &begin, WriterLimits::default()).map_err(|error| cannot(&error))?;
    let mut frame = Vec::new();
    for (trigger, piece) in (1..).map(TriggerNumber).zip(StreamReader::new(words)) {
        let piece = piece.map_err(|error| at_place(&options.file, &error))?;
        frame.clear();
        bytestream_frame::emit(&piece, &mut frame);
        let data = data_of(&piece, &frame);
        let find = |source: SourceId| data.get(&source).copied().unwrap_or(&[]);
        chain
            .event(trigger, find, |trigger, time, parts| {
                writer.write_event(trigger, time, parts)
            })
            .map_err(|error| cannot(&error))?;
    }
    let (condition, time) = (contents.condition(), contents.events * 1000);
    let end = RunEnd::new(run, condition, "imported", time);
    writer.finish(&end).map_err(|error| cannot(&error))
}

impl Contents {
    /// The run of its first event that tells one, else 1.
    fn run(&self) -> RunNumber {
        self.run.unwrap_or(RunNumber(1))
    }

    /// What the stream cannot tell, such as a source that is in no event, is in no condition.
    fn condition(&self) -> Condition {
        match self.lacking_sources == 0
            && !self.is_cut()
            && self.told().is_none_or(|n| n == self.events)
        {
            true => Condition::GOOD,
            false => Condition::INCOMPLETE,
        }
    }

    /// Whether a file has a beginning and no end.
    fn is_cut(&self) -> bool {
        self.records.ends < self.records.starts
    }

    /// Events by the ends of the files, if each has one.
    fn told(&self) -> Option<u64> {
        (self.records.ends > 0 && !self.is_cut()).then_some(self.records.events)
    }

    /// Lines about what was missing or flagged before the file was written.
    fn said_of_losses(&self) -> String {
        let mut text = String::new();
        if self.is_cut() {
            text += "  the stream has no end-of-file record: it was cut behind an event\n";
        }
        if let Some(told) = self.told().filter(|told| *told != self.events) {
            text += &format!(
                "  {} events are there, {told} by the end-of-file record\n",
                self.events
            );
        }
        if self.lacking_sources > 0 {
            text += &format!(
                "  {} events have no ROB of a source that others have; an empty fragment stands \
                 for each\n",
                self.lacking_sources
            );
        }
        if self.flagged > 0 {
            text += &format!(
                "  {} events have a status word that is not 0, of their own or of a ROB\n",
                self.flagged
            );
        }
        text
    }
}

/// The words of a file.
fn read_words(path: &Path) -> Result<Vec<u32>, String> {
    let bytes =
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(format!(
            "{} has {} B, a byte stream is a multiple of 4 B; it was cut",
            path.display(),
            bytes.len()
        ));
    }
    Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

/// Looks at all events before anything is written.
fn survey(path: &Path, words: &[u32]) -> Result<Contents, String> {
    let mut contents = Contents::default();
    let (mut frame, mut last) = (Vec::new(), None);
    let mut sources_in_events = BTreeMap::<usize, u64>::new();
    for piece in StreamReader::new(words) {
        let piece = piece.map_err(|error| at_place(path, &error))?;
        contents.events += 1;
        contents.records.note(piece.before);
        contents.records.note(piece.after);
        contents.run = contents.run.or(piece.event.run());
        let number = piece.event.number();
        contents.out_of_order += u64::from(number < last);
        last = number.max(last);
        frame.clear();
        bytestream_frame::emit(&piece, &mut frame);
        let mut longest = frame.len();
        let mut flagged = is_flagged(piece.event.event().status());
        let mut sources = BTreeSet::new();
        for (_, rob) in piece.event.robs() {
            contents.robs += 1;
            sources.insert(rob.source());
            flagged |= is_flagged(rob.status());
            longest = longest.max(rob.words().len());
        }
        contents.flagged += u64::from(flagged);
        *sources_in_events.entry(sources.len()).or_default() += 1;
        contents.sources.append(&mut sources);
        contents.data_words_max = contents.data_words_max.max(longest);
    }
    let all = contents.sources.len();
    let lacking = sources_in_events.range(..all).map(|(_, events)| events);
    contents.lacking_sources = lacking.sum();
    if contents.events == 0 {
        return Err(format!("{} holds no event", path.display()));
    }
    if contents.sources.contains(&FRAME_SOURCE) {
        let path = path.display();
        return Err(format!(
            "{path} has a ROB of source {FRAME_SOURCE}, which stands for frames here"
        ));
    }
    Ok(contents)
}

/// Whether a status word says that something was found.
fn is_flagged(status: &[u32]) -> bool {
    status.iter().any(|word| *word != 0)
}

/// What each link carries for an event.
fn data_of<'d>(piece: &StreamPiece<'d>, frame: &'d [u32]) -> BTreeMap<SourceId, &'d [u32]> {
    let robs = piece
        .event
        .robs()
        .map(|(_, rob)| (rob.source(), rob.words()));
    robs.chain([(FRAME_SOURCE, frame)]).collect()
}

fn at_place(path: &Path, error: &livetime_wire::bytestream::ByteStreamError) -> String {
    format!("{}: {error}; words have 4 B", path.display())
}

/// A new file; one that is there is never overwritten.
fn create(folder: &Path, path: &Path) -> Result<File, String> {
    let cannot = |error| format!("cannot make {}: {error}", path.display());
    std::fs::create_dir_all(folder).map_err(cannot)?;
    run_directory::check_free(folder).map_err(|error| error.to_string())?;
    File::create_new(path).map_err(cannot)
}
