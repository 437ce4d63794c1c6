//! `livetime inspect RUN`: what a run or one of its files holds; with `--recover` a repaired copy.
//!
//! Results are read from the files alone, every checksum compared; nothing in them is changed. Of
//! a directory all files are read, and those that must have been there are named.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use livetime_client::{RunFolder, unreadable_bytes};
use livetime_shm::plain_file;
use livetime_store::{
    Condition, FileName, Inspection, OpenError, Recovered, RunBegin, recover_part,
};
use livetime_wire::SourceId;
use serde_json::{Value, json};

use crate::console::{print, print_line, say, with_causes};
use crate::exit;

/// So many triggers of events that are stored twice are named in the text.
const DOUBLED_NAMED: usize = 10;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run directory, or one run file (events.mcap)
    file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// List the trigger numbers of the stored events as well
    #[arg(long)]
    triggers: bool,
    /// Write a repaired copy with every whole event to this file, which must not exist
    #[arg(long, value_name = "COPY")]
    recover: Option<PathBuf>,
}

/// Opens the file, repairs it if asked, and says what is in it.
pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(good) if good => ExitCode::SUCCESS,
        Ok(_) => exit::PROBLEM,
        Err(error) => {
            let file = options.file.display();
            say(format_args!(
                "error: {file}: {}",
                with_causes(error.as_ref())
            ));
            exit::PROBLEM
        }
    }
}

fn try_run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    if options.file.is_dir() && RunFolder::paths(&options.file)?.is_empty() {
        return Err(
            "there is no run file in it; name the directory of one run, such as runs/000001".into(),
        );
    }
    if let Some(copy) = &options.recover {
        if options.file.is_dir() {
            return Err("a directory, expected one of its run files to recover".into());
        }
        write_copy(options, copy)?;
    }
    let mut reader = RunFolder::open(&options.file).map_err(|error| {
        // One of the directory's is to blame, and must be named.
        let is_of_directory = error.path != options.file;
        let reason = is_of_directory.then(|| error.to_string().into());
        reason.unwrap_or_else(|| cause(error.error))
    })?;
    let found = reader.inspect()?;
    note_others(&options.file);
    let stored = if options.triggers || found.events_incomplete > 0 {
        StoredEvents::read(&mut reader)?
    } else {
        StoredEvents::default()
    };
    if options.json {
        let document = json_document(&found, &stored, options.triggers)?;
        print_line(document)?;
    } else {
        print(text(&found, &stored, options))?;
        if !found.files_elsewhere.is_empty() {
            say(format_args!(
                "help: copy the files of other hosts into this directory to read the whole run"
            ));
        } else if !found.complete && !found.recovered && options.recover.is_none() {
            let what = match options.file.is_dir() {
                true => "FILE".to_owned(),
                false => options.file.display().to_string(),
            };
            say(format_args!(
                "help: `livetime inspect {what} --recover COPY` writes a repaired copy"
            ));
        }
    }
    // A copy that was asked for is there, whatever is wrong with the file that it is of.
    Ok(options.recover.is_some() || found.is_good())
}

/// What a person is told of a file that cannot be opened.
fn cause(error: OpenError) -> Box<dyn std::error::Error> {
    match error {
        OpenError::Io(error) => error.into(),
        other => other.into(),
    }
}

/// Says so if the file is one of several of a run.
fn note_others(file: &Path) {
    let Some(folder) = folder_of(file).filter(|_| file.is_file()) else {
        return;
    };
    let files = RunFolder::paths(folder).unwrap_or_default();
    if files.len() > 1 && files.iter().any(|of_run| of_run.ends_with(file)) {
        say(format_args!(
            "note: one of {} files; `livetime inspect {}` reads the whole run",
            files.len(),
            folder.display()
        ));
    }
}

/// The directory that a file is in.
fn folder_of(file: &Path) -> Option<&Path> {
    match file.parent()? {
        folder if folder.as_os_str().is_empty() => Some(Path::new(".")),
        folder => Some(folder),
    }
}

/// The name of a run's file, if a file has one.
fn name_in_run(file: &Path) -> Option<FileName> {
    FileName::parse(file.file_name()?.to_str()?)
}

/// What the other files of its run tell of the begin-of-run record of one.
fn begin_by_others(file: &Path) -> Option<RunBegin> {
    let folder = RunFolder::open(folder_of(file)?).ok()?;
    folder.begin_of(&name_in_run(file)?)
}

/// Refuses a copy that would be read with a run whose events it has: only under the name of the file that it
/// is of may it go to a directory with run files.
fn refuse_name_in_run(file: &Path, copy: &Path) -> Result<(), String> {
    let Some(name) = name_in_run(copy).filter(|_| !copy.exists()) else {
        return Ok(());
    };
    let folder = folder_of(copy).unwrap_or(Path::new("."));
    let is_beside = !RunFolder::paths(folder).unwrap_or_default().is_empty();
    if !is_beside || name_in_run(file).as_ref() == Some(&name) {
        return Ok(());
    }
    Err(format!(
        "cannot create {}: a name that makes it a file of the run in {}, expected one that does not \
         start with events, such as copy.mcap, or another directory",
        copy.display(),
        folder.display()
    ))
}

/// Writes the repaired copy; when that fails, nothing is left of it.
fn write_copy(options: &Options, copy: &Path) -> Result<(), Box<dyn std::error::Error>> {
    refuse_name_in_run(&options.file, copy)?;
    let input = plain_file::open(&options.file, OpenOptions::new().read(true));
    let input = BufReader::new(input?);
    let output = File::create_new(copy)
        .map_err(|error| format!("cannot create {}: {error}", copy.display()))?;
    match write_recovered(input, output, &options.file) {
        Ok(recovered) => {
            say(format_args!(
                "{} into {}",
                said_of(&recovered),
                copy.display()
            ));
            Ok(())
        }
        Err(error) => {
            let removed = std::fs::remove_file(copy);
            debug_assert!(removed.is_ok(), "it was created here");
            Err(error)
        }
    }
}

fn write_recovered(
    input: BufReader<File>,
    output: File,
    file: &Path,
) -> Result<Recovered, Box<dyn std::error::Error>> {
    let (output, recovered) =
        recover_part(input, BufWriter::new(output), || begin_by_others(file))?;
    if recovered.file.events_stored == 0 {
        let missing = recovered.events_missing;
        let text = format!(
            "no event in it is whole and {missing} are known to be missing; no copy was written"
        );
        return Err(text.into());
    }
    output.into_inner()?.sync_data()?;
    Ok(recovered)
}

/// How many events a copy has and lacks.
fn said_of(recovered: &Recovered) -> String {
    let mut text = format!("recovered {} events", recovered.file.events_stored);
    if recovered.events_salvaged > 0 {
        let _ = write!(
            text,
            " ({} out of damaged chunks)",
            recovered.events_salvaged
        );
    }
    let mut lacking = Vec::new();
    if recovered.events_missing > 0 {
        let missing = recovered.events_missing;
        lacking.push(format!("{missing} are damaged or missing"));
    }
    if recovered.histograms_lost {
        lacking.push("the histograms cannot be read".to_owned());
    }
    if !lacking.is_empty() {
        let _ = write!(text, ", {},", lacking.join(", "));
    }
    text
}

/// What is said of the stored events beside their number.
#[derive(Debug, Default)]
struct StoredEvents {
    /// Their trigger numbers, ascending.
    triggers: Vec<u64>,
    /// Of the incomplete ones: how many lack each source.
    missing: BTreeMap<SourceId, u64>,
}

impl StoredEvents {
    fn read(reader: &mut RunFolder) -> std::io::Result<Self> {
        let mut stored = Self::default();
        reader.rewind();
        while let Some(event) = reader.next_event()? {
            stored.triggers.push(event.header().trigger.0);
            for source in event.missing() {
                *stored.missing.entry(source).or_default() += 1;
            }
        }
        stored.triggers.sort_unstable();
        Ok(stored)
    }
}

/// The document `livetime.inspect/1`, with the sources missing and, if wanted, the triggers.
fn json_document(
    found: &Inspection,
    stored: &StoredEvents,
    triggers: bool,
) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(found)?;
    let missing = stored.missing.iter();
    let missing: Vec<Value> = missing
        .map(|(source, events)| json!({ "source": source.to_string(), "events": events }))
        .collect();
    document["sources_missing"] = missing.into();
    if triggers {
        let texts: Vec<String> = stored.triggers.iter().map(u64::to_string).collect();
        document["triggers"] = texts.into();
    }
    Ok(document)
}

/// What is missing or damaged, and where.
fn lacking_text(text: &mut String, found: &Inspection, directory: &Path) {
    for name in &found.files_missing {
        let _ = match unreadable_bytes(&directory.join(name)) {
            Some(bytes) => writeln!(
                text,
                "  missing: what was in file {name}, {bytes} bytes with no chunk of a run file"
            ),
            None => writeln!(text, "  missing: file {name}"),
        };
    }
    for place in &found.files_elsewhere {
        let _ = writeln!(text, "  elsewhere: file {place}");
    }
    if found.events_missing > 0 {
        let _ = writeln!(text, "  missing: {} events", found.events_missing);
    }
    if found.events_salvaged > 0 {
        let salvaged = found.events_salvaged;
        let _ = writeln!(
            text,
            "  {salvaged} of the events lie in damaged chunks and are whole themselves"
        );
    }
    doubled_text(text, found);
    for range in &found.damage {
        let place = match range.file.as_str() {
            "" => String::new(),
            file => format!(" of {file}"),
        };
        let _ = writeln!(
            text,
            "  damaged: {} bytes at {}{place}: {}",
            range.bytes, range.offset, range.reason
        );
    }
    let unlisted = found
        .damaged_ranges
        .saturating_sub(found.damage.len() as u64);
    if unlisted > 0 {
        let _ = writeln!(text, "  damaged: {unlisted} ranges more");
    }
}

/// Which events are stored twice.
fn doubled_text(text: &mut String, found: &Inspection) {
    if found.events_doubled == 0 {
        return;
    }
    let named = &found.triggers_doubled[..found.triggers_doubled.len().min(DOUBLED_NAMED)];
    let more = match found.events_doubled.saturating_sub(named.len() as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let _ = writeln!(
        text,
        "  stored twice and counted once: {} events, of triggers {}{more}",
        found.events_doubled,
        named.join(", ")
    );
}

fn text(found: &Inspection, stored: &StoredEvents, options: &Options) -> String {
    let kind = if found.simulated { "simulated " } else { "" };
    let mut text = format!(
        "{kind}run {:06}: {} events, {}\n",
        found.run, found.events, found.condition
    );
    if found.recovered {
        let of = match found.condition.contains(Condition::INTERRUPTED) {
            true => "an interrupted run",
            false => "a damaged file",
        };
        let _ = writeln!(text, "  repaired copy of {of}, with all that could be read");
    }
    if let (Some(first), Some(last)) = (found.first_trigger, found.last_trigger) {
        let incomplete = found.events_incomplete;
        let flagged = match found.events_flagged {
            0 => String::new(),
            flagged => format!(", {flagged} with a fragment that has a fault"),
        };
        let _ = writeln!(
            text,
            "  triggers {first} to {last}, {incomplete} incomplete events{flagged}"
        );
    }
    for (source, events) in &stored.missing {
        let _ = writeln!(text, "  source {source} is missing in {events} events");
    }
    let _ = writeln!(
        text,
        "  complete {}, checksum errors {}",
        found.complete, found.checksum_errors
    );
    let _ = writeln!(
        text,
        "  {} chunks, {} bytes, index by {}",
        found.chunks, found.bytes, found.index
    );
    if found.files.len() > 1 {
        let _ = writeln!(text, "  files {}", found.files.join(", "));
    }
    lacking_text(&mut text, found, &options.file);
    if options.triggers {
        for trigger in &stored.triggers {
            let _ = writeln!(text, "{trigger}");
        }
    }
    text
}
