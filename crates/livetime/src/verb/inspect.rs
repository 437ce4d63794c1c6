//! `livetime inspect FILE`: what a run file holds; with `--recover` a repaired copy.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use livetime_store::{RunReader, inspect, recover};

use crate::exit;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run file (events.mcap)
    file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// List the trigger numbers of the stored events as well
    #[arg(long)]
    triggers: bool,
    /// Write a repaired copy with every complete chunk to this file, which must not exist
    #[arg(long, value_name = "COPY")]
    recover: Option<PathBuf>,
}

/// Opens the file, repairs it if asked, and says what is in it.
pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(good) if good => ExitCode::SUCCESS,
        Ok(_) => exit::PROBLEM,
        Err(error) => {
            eprintln!("error: {}: {error}", options.file.display());
            exit::PROBLEM
        }
    }
}

fn try_run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    if let Some(copy) = &options.recover {
        let input = BufReader::new(File::open(&options.file)?);
        let output = File::create_new(copy)
            .map_err(|error| format!("cannot create {}: {error}", copy.display()))?;
        let mut output = BufWriter::new(output);
        let (_, recovered) = recover(input, &mut output)?;
        output.flush()?;
        eprintln!(
            "recovered {} events into {}",
            recovered.file.events_stored,
            copy.display()
        );
    }
    let mut reader = RunReader::open(BufReader::new(File::open(&options.file)?))?;
    let found = inspect(&mut reader)?;
    let triggers = if options.triggers {
        Some(stored_triggers(&mut reader)?)
    } else {
        None
    };
    if options.json {
        let mut document = serde_json::to_value(&found)?;
        if let Some(triggers) = &triggers {
            let texts: Vec<String> = triggers.iter().map(u64::to_string).collect();
            document["triggers"] = texts.into();
        }
        println!("{document}");
        return Ok(found.is_good());
    }
    println!(
        "run {:06}: {} events, {}",
        found.run, found.events, found.condition
    );
    if let (Some(first), Some(last)) = (found.first_trigger, found.last_trigger) {
        println!(
            "  triggers {first} to {last}, {} incomplete events",
            found.events_incomplete
        );
    }
    println!(
        "  complete {}, checksum errors {}",
        found.complete, found.checksum_errors
    );
    println!(
        "  {} chunks, {} bytes, index by {}",
        found.chunks, found.bytes, found.index
    );
    for range in &found.damage {
        println!(
            "  damaged: {} bytes at {}: {}",
            range.bytes, range.offset, range.reason
        );
    }
    if !found.complete && options.recover.is_none() {
        eprintln!(
            "help: `livetime inspect {} --recover COPY` writes a repaired copy",
            options.file.display()
        );
    }
    for trigger in triggers.iter().flatten() {
        println!("{trigger}");
    }
    Ok(found.is_good())
}

/// Trigger numbers of the stored events, ascending.
fn stored_triggers(reader: &mut RunReader<BufReader<File>>) -> Result<Vec<u64>, std::io::Error> {
    reader.rewind();
    let mut triggers = Vec::new();
    while let Some(event) = reader.next_event()? {
        triggers.push(event.header().trigger.0);
    }
    triggers.sort_unstable();
    Ok(triggers)
}
