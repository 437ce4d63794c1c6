//! `livetime export RUN --format FORMAT`: a run as a file of another format.
//!
//! The byte stream is written here; ROOT, Parquet, HDF5 and CSV by the Python package, which has the
//! libraries for them.
//!
//! An imported byte stream comes out as it went in, word for word. Of any other run each event
//! becomes a full event of version 4 with one ROB around each of its fragments, which are RODs
//! already. Only whole events with sound checksums are written; what is missing is said.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use livetime_client::{RunFolder, Shortfall};
use livetime_wire::SourceId;
use livetime_wire::bytestream::{FULL_EVENT, ROB};
use livetime_wire::bytestream_frame::{FRAME_SOURCE, FrameView};
use livetime_wire::event::EventView;
use livetime_wire::fragment::FragmentView;
use livetime_wire::slink::FragmentStatus;

use crate::console::{print, say};
use crate::exit;
use crate::output_place;

/// Version of the events made here: ROBs directly in the event.
const VERSION: u32 = 0x0400_0000;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run directory or run file
    run: PathBuf,
    /// Format to write
    #[arg(long, value_enum)]
    format: Format,
    /// File to write; standard output without it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// With the words of all fragments (formats of the Python package)
    #[arg(long)]
    fragments: bool,
    /// Replace the file if it is there (formats of the Python package); never one of a run
    #[arg(long)]
    overwrite: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Byte stream of the ATLAS family
    Bytestream,
    /// ROOT file with a TTree (written by the Python package, as all below)
    Root,
    /// ROOT file with an RNTuple
    Rntuple,
    /// Parquet
    Parquet,
    /// HDF5
    Hdf5,
    /// CSV, one file of events and one of objects
    Csv,
}

impl Format {
    /// Its name in the Python package; `None` for what is written here.
    fn of_python(self) -> Option<&'static str> {
        match self {
            Self::Bytestream => None,
            Self::Root => Some("root"),
            Self::Rntuple => Some("rntuple"),
            Self::Parquet => Some("parquet"),
            Self::Hdf5 => Some("hdf5"),
            Self::Csv => Some("csv"),
        }
    }
}

/// The interpreter with the package `livetime`, if it is not `python3`.
const PYTHON: &str = "LIVETIME_PYTHON";

/// Exports; exit code 1 if events are missing or damaged.
pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(format) = options.format.of_python() {
        return export_by_python(options, format);
    }
    if options.overwrite {
        say(format_args!(
            "error: `--overwrite` goes with the formats of the Python package\n\
             help: a byte stream is written under a name that nothing has"
        ));
        return ExitCode::from(2);
    }
    // Before the output is made: nothing of it is to be left where there is no run.
    let written = match RunFolder::open(&options.run) {
        Ok(run) => export_to(options, run),
        Err(error) => Err(format!("cannot read {error}")),
    };
    match written {
        Ok(exported) => conclude(options, &exported),
        Err(text) => {
            say(format_args!("error: {text}"));
            exit::PROBLEM
        }
    }
}

/// Says what was written, and in one line what the run lacks.
fn conclude(options: &Options, exported: &Exported) -> ExitCode {
    let printed = match options.out {
        Some(_) => print(format_args!("{} events\n", exported.events)),
        None => Ok(()),
    };
    if let Some(shortfall) = &exported.shortfall {
        say_shortfall(&options.run, shortfall);
    }
    let code = exit::after_printing(printed);
    match exported.shortfall.is_some() || exported.left_out > 0 {
        true => exit::PROBLEM,
        false => code,
    }
}

/// Says in one line what a run lacks, in the words of all verbs that read one.
pub(crate) fn say_shortfall(run: &Path, shortfall: &Shortfall) {
    say(format_args!(
        "warning: {}: {shortfall}; `livetime inspect {}` says where",
        run.display(),
        run.display()
    ));
}

fn export_to(options: &Options, run: RunFolder) -> Result<Exported, String> {
    let Some(path) = &options.out else {
        return export(&options.run, run, BufWriter::new(std::io::stdout().lock()));
    };
    let file = File::create_new(path)
        .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
    let written = export(&options.run, run, BufWriter::new(file));
    written.inspect_err(|_| output_place::remove_unfinished(path))
}

/// Has the Python package write the file; its messages and its progress go where ours would.
fn export_by_python(options: &Options, format: &str) -> ExitCode {
    let Some(out) = &options.out else {
        say(format_args!(
            "error: format {format} goes into a file\nhelp: name it with --out FILE"
        ));
        return ExitCode::from(2);
    };
    let python = match python_with("livetime.exports", &format!("writes format {format}")) {
        Ok(python) => python,
        Err(problem) => {
            say(format_args!("error: {problem}"));
            return exit::PROBLEM;
        }
    };
    let mut command = Command::new(&python);
    command.args(["-m", "livetime", "export"]);
    command.arg(&options.run).arg(out);
    command.args(["--format", format]);
    if options.fragments {
        command.arg("--fragments");
    }
    if options.overwrite {
        command.arg("--overwrite");
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => exit::PROBLEM,
        Err(error) => {
            say(format_args!("error: {}: {error}", python.display()));
            exit::PROBLEM
        }
    }
}

/// The interpreter that has this module of the Python package.
///
/// # Errors
/// That it is not there, and where it comes from.
pub(super) fn python_with(module: &str, does: &str) -> Result<OsString, String> {
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| "python3".into());
    let found = Command::new(&python)
        .args(["-c", &format!("import {module}")])
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return Ok(python);
    }
    Err(format!(
        "{} has no package `livetime`, which {does}\n\
         help: `pip install './python[export]'` brings it; {PYTHON} names another interpreter",
        python.display()
    ))
}

struct Exported {
    events: u64,
    /// Events that this format has no place for; each was named.
    left_out: u64,
    /// What the run lacks.
    shortfall: Option<Shortfall>,
}

fn export(run: &Path, mut reader: RunFolder, mut out: impl Write) -> Result<Exported, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", run.display());
    let (mut words, mut bytes) = (Vec::new(), Vec::new());
    let mut exported = Exported {
        events: 0,
        left_out: 0,
        shortfall: None,
    };
    while let Some(event) = reader.next_event().map_err(|error| cannot(&error))? {
        words.clear();
        let trigger = event.header().trigger;
        match write_event(&event, &mut words) {
            Ok(()) => exported.events += 1,
            Err(reason) => {
                exported.left_out += 1;
                say(format_args!(
                    "warning: event of trigger {trigger} left out: {reason}"
                ));
                continue;
            }
        }
        bytes.clear();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        if !is_wanted(out.write_all(&bytes))? {
            return Ok(exported);
        }
    }
    exported.shortfall = reader.shortfall();
    is_wanted(out.flush())?;
    Ok(exported)
}

/// Whether somebody still reads what is written: a reader that has seen enough is none the worse for it.
fn is_wanted(written: io::Result<()>) -> Result<bool, String> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot write: {error}")),
        Ok(()) => Ok(true),
    }
}

/// Appends the byte stream's words of an event.
fn write_event(event: &EventView<'_>, out: &mut Vec<u32>) -> Result<(), String> {
    event
        .verify_fragments()
        .map_err(|error| error.to_string())?;
    let mut robs = BTreeMap::<SourceId, (FragmentStatus, &[u32])>::new();
    let mut frame = None;
    for (entry, words) in event.fragments() {
        if entry.source != FRAME_SOURCE {
            robs.insert(entry.source, (entry.status, words));
            continue;
        }
        let fragment = FragmentView::new_checked(words).map_err(|error| error.to_string())?;
        frame = Some(FrameView::new_checked(fragment.data()).map_err(|error| error.to_string())?);
    }
    let Some(frame) = frame else {
        emit_event(event, &robs, out);
        return Ok(());
    };
    let rob = |source: SourceId| {
        let (_, words) = robs.get(&source)?;
        let fragment = FragmentView::new_checked(words).ok()?;
        Some(fragment.data())
    };
    frame.rebuild(rob, out).map_err(|entry| {
        let (source, words) = (entry.source, entry.words);
        format!("the ROB of source {source} is not the one of {words} words that was imported")
    })
}

/// A full event of version 4 from fragments of Livetime.
fn emit_event(
    event: &EventView<'_>,
    robs: &BTreeMap<SourceId, (FragmentStatus, &[u32])>,
    out: &mut Vec<u32>,
) {
    let header = event.header();
    let number = header.trigger.low();
    // Checksum type 0 (none), then seconds and nanoseconds (not known), global number, run type, run,
    // luminosity block, Level-1 number, bunch crossing, Level-1 trigger type, and no words of any level
    // or stream.
    let specific = [
        0,
        0,
        0,
        number,
        0,
        header.run.0,
        0,
        number,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    // Marker to source, and one status word.
    let header_words = 7 + specific.len();
    let rob_words = |words: &[u32]| words.len() + 8;
    let of_robs = robs.values().map(|(_, words)| rob_words(words));
    let total = header_words + of_robs.sum::<usize>();
    out.extend_from_slice(&[FULL_EVENT, total as u32, header_words as u32, VERSION, 0]);
    out.extend_from_slice(&[1, u32::from(event.is_incomplete())]);
    out.extend_from_slice(&specific);
    for (source, (status, words)) in robs {
        let total = rob_words(words) as u32;
        // One status word, what the receiver found; checksum type 0: none.
        out.extend_from_slice(&[ROB, total, 8, VERSION, source.0, 1, status.0, 0]);
        out.extend_from_slice(words);
    }
}
