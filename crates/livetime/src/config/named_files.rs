//! Files that a configuration names and a run opens: whether they can be used, before anything starts.
//!
//! Recorded events are not among them: they are read with the configuration.

use std::fs::File;

use livetime_node::link::{LinkTransport, check_frames_file};
use livetime_node::{ChainConfig, DataLinkConfig, FilterConfig};

/// Whether the files of frames that a chain plays are there, are those of its sources, and hold the
/// fragment of each trigger in its place; and whether the file of a filter in Python can be read.
///
/// # Errors
/// What is wrong with each file that cannot be used.
pub(crate) fn check(chain: &ChainConfig) -> Result<(), String> {
    let frames = chain.data_links.iter().filter_map(frames_problem);
    let problems: String = frames.chain(filter_problem(&chain.filter)).collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems),
    }
}

fn frames_problem(link: &DataLinkConfig) -> Option<String> {
    let LinkTransport::File { path } = &link.transport else {
        return None;
    };
    let error = check_frames_file(path, link.source).err()?;
    Some(format!(
        "error: file of frames {} cannot be played: {error}\n\
         help: `livetime source CONFIG --frames FOLDER` writes the files of a folder\n",
        path.display()
    ))
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
