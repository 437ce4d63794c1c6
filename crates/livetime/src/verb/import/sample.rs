//! `livetime import root|csv FILE --out EVENTS.csv`: an event sample of another program as a source.
//!
//! The Python package reads the file, since it has the library for ROOT; what it wrote is then read
//! here as a run would, so that a sample that was imported is one that a run takes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use livetime_source::RecordedEvents;
use serde_json::json;

use crate::verb::export::python_with;

/// Options of both formats.
#[derive(Debug, clap::Args)]
pub(super) struct SampleOptions {
    /// The file
    file: PathBuf,
    /// File of recorded events to write, for `livetime run CONFIG --events`
    #[arg(long, value_name = "EVENTS.csv")]
    out: PathBuf,
    /// ROOT: name of the TTree or RNTuple, if it is not the first one with objects
    #[arg(long, value_name = "NAME")]
    tree: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// Imports a sample; what is to be printed, or the problem.
pub(super) fn import(format: &str, options: &SampleOptions) -> Result<String, String> {
    let SampleOptions { file, out, .. } = options;
    if !file.is_file() {
        return Err(format!("cannot read {}: no such file", file.display()));
    }
    check_ending(format, file)?;
    if format == "csv" && options.tree.is_some() {
        return Err("`--tree` names a tree of a ROOT file; a CSV file has none".to_owned());
    }
    if out.exists() {
        return Err(format!("cannot make {}: it exists", out.display()));
    }
    let python = python_with("livetime.imports", "reads samples")?;
    let mut command = Command::new(&python);
    command
        .args(["-m", "livetime", "import"])
        .arg(file)
        .arg(out);
    command.stdout(Stdio::null());
    if let Some(tree) = &options.tree {
        command.args(["--tree", tree]);
    }
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(_) => return Err(format!("{} was not imported", file.display())),
        Err(error) => return Err(format!("{}: {error}", python.display())),
    }
    let events = read_back(out)?;
    if options.json {
        let document = json!({
            "schema": "livetime.import/1",
            "format": format,
            "file": file.display().to_string(),
            "events": events,
            "out": out.display().to_string(),
        });
        return Ok(document.to_string());
    }
    Ok(format!(
        "{events} events in {out}\n`livetime run CONFIG --events {out}` takes a run from them\n",
        out = out.display()
    ))
}

/// Refuses a file whose name says that it is of another format, before a library stumbles over it.
fn check_ending(format: &str, file: &Path) -> Result<(), String> {
    let ending = file
        .extension()
        .map(|ending| ending.to_string_lossy().to_lowercase());
    let ending = ending.as_deref().unwrap_or("");
    let (is_ours, allowed) = match format {
        "root" => (matches!(ending, "root" | "rntuple"), ".root or .rntuple"),
        _ => (
            !matches!(
                ending,
                "root" | "rntuple" | "parquet" | "pq" | "h5" | "hdf5"
            ),
            ".csv",
        ),
    };
    match is_ours {
        true => Ok(()),
        false => Err(format!(
            "{} ends in {ending:?}, `import {format}` takes {allowed}\n\
             help: `import root` takes a TTree or an RNTuple; Parquet and HDF5 are written by \
             `export` and not read here",
            file.display()
        )),
    }
}

/// Reads the events as a run would; their number.
fn read_back(path: &Path) -> Result<usize, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| failed(&error))?;
    let events = RecordedEvents::read(file).map_err(|error| failed(&error))?;
    Ok(events.rows())
}
