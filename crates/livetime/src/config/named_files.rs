//! Files that a configuration names and a run opens: whether they can be used, before anything starts.
//!
//! Recorded events are not among them: they are read with the configuration.

use std::fs::File;

use livetime_node::link::{LinkTransport, check_frames_file};
use livetime_node::{ChainConfig, DataLinkConfig, FilterConfig};

/// Whether the files of frames that a chain plays are there, are those of its sources, and hold the
/// fragment of each trigger in its place; and whether the file of a filter in Python can be read.
/// Returns what is to be known of those that can be used.
///
/// # Errors
/// What is wrong with each file that cannot be used.
pub(crate) fn check(chain: &ChainConfig) -> Result<Vec<String>, String> {
    let (mut notes, mut problems) = (Vec::new(), String::new());
    for link in &chain.data_links {
        match frames_note(link) {
            Ok(note) => notes.extend(note),
            Err(problem) => problems += &problem,
        }
    }
    problems.extend(filter_problem(&chain.filter));
    match problems.is_empty() {
        true => Ok(notes),
        false => Err(problems),
    }
}

/// Where a file of frames breaks off, if it does.
fn frames_note(link: &DataLinkConfig) -> Result<Option<String>, String> {
    let LinkTransport::File { path } = &link.transport else {
        return Ok(None);
    };
    let file = path.display();
    let found = check_frames_file(path, link.source).map_err(|error| {
        format!(
            "error: file of frames {file} cannot be played: {error}\n\
             help: `livetime source CONFIG --frames FOLDER` writes the files of a folder\n"
        )
    })?;
    Ok(found.breaks_off.map(|byte| {
        format!(
            "{file} breaks off at byte {byte} of {}: the run ends there, within its first {} fragments",
            found.bytes, found.fragments
        )
    }))
}

fn filter_problem(filter: &FilterConfig) -> Option<String> {
    let FilterConfig::Python(python) = filter else {
        return None;
    };
    let opened = File::open(&python.file).and_then(|file| file.metadata());
    let found = match opened {
        Ok(found) if found.is_file() => return None,
        Ok(_) => "it is no file".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "error: cannot read the filter {}: {found}\n\
         help: `[filter] python` names it from the working directory\n",
        python.file.display()
    ))
}
