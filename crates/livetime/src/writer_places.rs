//! On which host each writer of a run was, and where its files lie.
//!
//! Hosts may share the run directory or not. Each run file is begun by the coordinator; where the
//! folder is not shared it stays as it was begun here, and the writer's host alone has the events. It
//! is not removed: a network's file system may show late what another host has written.

use std::path::Path;

use livetime_client::RunFolder;
use livetime_store::RunSummary;
use livetime_store::summary::WriterSummary;

use crate::config::HostTable;
use crate::run_directory::RunDirectory;

/// Says where each writer was and wrote; the only writer of a run on one host goes without saying.
/// `are_closed` says whether every file of a writer that lives was closed.
pub(crate) fn note(
    summary: &mut RunSummary,
    hosts: &HostTable,
    directory: &RunDirectory,
    are_closed: bool,
) {
    let placement = hosts.placement();
    if placement.is_empty() && summary.writers.len() == 1 {
        summary.writers.clear();
    }
    for writer in &mut summary.writers {
        let path = directory.file(&writer.file);
        writer.file = path.display().to_string();
        if let Some(host) = placement.get(writer.role.as_str()) {
            writer.host = Some((*host).to_owned());
            writer.elsewhere = has_written(writer, are_closed) && is_as_begun(&path);
            // On another machine nobody knows what it is relative to.
            let whole = std::path::absolute(&path).unwrap_or(path);
            writer.file = whole.display().to_string();
        }
    }
}

/// Whether the file of a writer is surely not as it was begun, where it was written.
fn has_written(writer: &WriterSummary, are_closed: bool) -> bool {
    match writer.lost {
        true => writer.events_stored > 0,
        false => are_closed,
    }
}

/// Whether a run file is neither closed nor holds an event.
fn is_as_begun(path: &Path) -> bool {
    let run = RunFolder::open(path);
    run.is_ok_and(|mut run| run.end().is_none() && matches!(run.next_event(), Ok(None)))
}
