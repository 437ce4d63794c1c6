//! `livetime bench NAME`: measurements of this machine and of the parts of the chain on it.
//!
//! The benches are in `livetime_study::bench`; here they are chosen and their documents printed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use livetime_study::bench::{self, BenchDocument, BenchName, BenchOptions, page};
use serde_json::Value;

use crate::console::{print, print_line, say};
use crate::exit;
use crate::run_summary::machine;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What to measure
    what: What,
    /// Print one JSON document (livetime.bench/1)
    #[arg(long)]
    json: bool,
    /// Everything short: shows the form of the document, the figures mean little
    #[arg(long)]
    quick: bool,
    /// Measuring threads ask for SCHED_FIFO, so that other programs do not interrupt them; the
    /// machine hardly answers meanwhile
    #[arg(long)]
    realtime: bool,
    /// Where the files of the store bench are written and removed again
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Also write the document as a page
    #[arg(long, value_name = "FILE.md")]
    page: Option<PathBuf>,
    /// Take a document that was printed before instead of measuring
    #[arg(long, value_name = "FILE.json")]
    from: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum What {
    /// What the bare machine does: cache line, memory, pipe, eventfd, TCP, gaps of a polling thread
    Floor,
    /// A ring between two threads, beside the bare cache line and the rtrb crate
    Ring,
    /// A trigger packet of 34 words out and its decision back
    Loop,
    /// From the words of a link to checked fragments on file
    Readout,
    /// From fragments on file to whole events
    Builder,
    /// Events into a run file, beside plain writes
    Store,
    /// The whole chain on two cores
    Chain,
    /// All of them, in less than four minutes
    All,
}

impl What {
    fn names(self) -> &'static [BenchName] {
        match self {
            Self::Floor => &[BenchName::Floor],
            Self::Ring => &[BenchName::Ring],
            Self::Loop => &[BenchName::Loop],
            Self::Readout => &[BenchName::Readout],
            Self::Builder => &[BenchName::Builder],
            Self::Store => &[BenchName::Store],
            Self::Chain => &[BenchName::Chain],
            Self::All => &BenchName::ALL,
        }
    }
}

/// Measures.
pub(crate) fn run(options: &Options) -> ExitCode {
    let document = match &options.from {
        Some(path) => read(path),
        None => measure(options),
    };
    let written = document.and_then(|document| {
        if let Some(path) = &options.page {
            let page = page::to_markdown(&document);
            std::fs::write(path, page).map_err(|error| file_error("write", path, &error))?;
        }
        Ok(document)
    });
    match written {
        Ok(document) if options.json => {
            exit::after_printing(print_line(format_args!("{document:#}")))
        }
        Ok(document) => exit::after_printing(print(page::to_text(&document))),
        Err(error) => {
            say(format_args!("error: {error}"));
            exit::PROBLEM
        }
    }
}

fn measure(options: &Options) -> Result<Value, String> {
    let bench_options = BenchOptions {
        quick: options.quick,
        realtime: options.realtime,
        directory: options.directory.clone(),
        machine: serde_json::to_value(machine()).unwrap_or_default(),
    };
    let mut documents = Vec::new();
    for name in options.what.names() {
        say(format_args!("measuring {} ..", name.key()));
        let measured = bench::run(*name, &bench_options);
        documents.push(measured.map_err(|error| format!("bench {}: {error}", name.key()))?);
    }
    Ok(match (&options.what, documents.as_slice()) {
        (What::All, all) => BenchDocument::of_all(all),
        (_, [one]) => one.to_json(),
        (_, several) => BenchDocument::of_all(several),
    })
}

fn read(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| file_error("read", path, &error))?;
    serde_json::from_str(&text).map_err(|error| format!("{} is no JSON: {error}", path.display()))
}

fn file_error(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
