//! Files that a configuration names and a run opens: whether they can be used, before anything starts.
//!
//! All of them begin at the working directory. What is wrong with one is a problem at its key, to be
//! said with those of the configuration itself.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use livetime_node::link::{LinkTransport, check_frames_file};
use livetime_node::{ChainConfig, FilterConfig};
use livetime_shm::plain_file;
use livetime_source::RecordedEvents;
use livetime_wire::{Problem, SourceId};

use super::problem_code::NAMED_FILE;
use super::source_section::read_events;

/// The files, with the keys that name them.
#[derive(Debug, Default)]
pub(crate) struct NamedFiles {
    /// Recorded events; without a key where an option names them.
    events: Option<(Option<String>, PathBuf)>,
    /// Whether another process reads them once more.
    are_events_reread: bool,
    /// Files of frames, one after the other of each table.
    frames: Vec<(String, PathBuf, SourceId)>,
    /// That of a filter in Python.
    python: Option<PathBuf>,
}

/// Why recorded events cannot be used.
#[derive(Debug)]
pub(crate) enum UnreadEvents {
    /// Their file cannot be opened.
    Unopened(Box<Problem>),
    /// What is wrong with their values, in lines of their own, and the problem of the key that names
    /// them.
    Bad(Option<Box<Problem>>, String),
}

impl NamedFiles {
    /// Those of a chain; `link_keys` are the key paths of the tables of its data links.
    pub(crate) fn new(
        chain: &ChainConfig,
        link_keys: &[String],
        events: Option<(Option<String>, PathBuf)>,
    ) -> Self {
        let links = chain.data_links.iter().zip(link_keys);
        let frames = links.filter_map(|(link, key)| match &link.transport {
            LinkTransport::File { path } => {
                Some((format!("{key}.frames"), path.clone(), link.source))
            }
            _ => None,
        });
        let python = match &chain.filter {
            FilterConfig::Python(python) => Some(python.file.clone()),
            _ => None,
        };
        let mut frames: Vec<_> = frames.collect();
        frames.sort();
        Self {
            events,
            are_events_reread: false,
            frames,
            python,
        }
    }

    /// Leaves the recorded events where they are.
    pub(crate) fn leave_events_out(&mut self) {
        self.events = None;
    }

    /// Has the recorded events be such that the process of a role can read them once more.
    pub(crate) fn expect_another_reader(&mut self) {
        self.are_events_reread = true;
    }

    /// Where the recorded events are.
    #[cfg(test)]
    pub(crate) fn events_path(&self) -> Option<&Path> {
        self.events.as_ref().map(|(_, path)| path.as_path())
    }

    /// The recorded events, if there are any.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub(crate) fn read_events(&self) -> Result<Option<RecordedEvents>, UnreadEvents> {
        let Some((key, path)) = &self.events else {
            return Ok(None);
        };
        // A pipe, whose writer would go away again, is opened only when it is read.
        let there = fs::metadata(path);
        let is_plain = |about: &fs::Metadata| about.is_file() || about.is_dir();
        if self.are_events_reread && there.as_ref().is_ok_and(|about| !is_plain(about)) {
            return Err(of_pipe(key.as_deref(), path));
        }
        let opened = there.and_then(|there| match there.file_type() {
            kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            kind if kind.is_file() => File::open(path).map(drop),
            _ => Ok(()),
        });
        if let (Some(key), Err(error)) = (key, opened) {
            let found = format!("{}: {error}", path.display());
            let unopened = Box::new(problem(key, found, EVENTS_HELP));
            return Err(UnreadEvents::Unopened(unopened));
        }
        let events = read_events(path).map_err(|error| {
            let help = "docs/formats/recorded-events.md names the columns and their ranges";
            let text = format!("error: recorded events cannot be used\n{error}\nhelp: {help}\n");
            let found = format!("{}: its problems are below", path.display());
            let named = key.as_deref().map(|key| problem(key, found, help));
            UnreadEvents::Bad(named.map(Box::new), text)
        });
        events.map(Some)
    }

    /// Looks at the others: whether the files of frames are those of their sources and hold the
    /// fragment of each trigger in its place, and whether the filter can be read. Returns what is to be
    /// known of those that can be used, and what is wrong with the others.
    pub(crate) fn check(&self) -> (Vec<String>, Vec<Problem>) {
        let (mut notes, mut problems) = (Vec::new(), Vec::new());
        for of_table in self.frames.chunk_by(|(one, ..), (other, ..)| one == other) {
            let mut unusable = Vec::new();
            for (_, path, source) in of_table {
                match frames_note(path, *source) {
                    Ok(note) => notes.extend(note),
                    Err(reason) => unusable.push(reason),
                }
            }
            let more = match unusable.len() {
                0 | 1 => String::new(),
                count => format!("; {} more of the folder cannot be used either", count - 1),
            };
            let first = unusable.into_iter().next();
            let found = first.map(|reason| format!("{reason}{more}"));
            problems.extend(found.map(|found| problem(&of_table[0].0, found, FRAMES_HELP)));
        }
        problems.extend(self.python.as_deref().and_then(filter_problem));
        (notes, problems)
    }
}

const EVENTS_HELP: &str = "write the path as seen from the working directory";
const FRAMES_HELP: &str = "`livetime source CONFIG --frames FOLDER` writes the files of a folder; write its path as seen \
     from the working directory";

/// Recorded events that are there once, where two processes are to read them.
fn of_pipe(key: Option<&str>, path: &Path) -> UnreadEvents {
    let found = format!(
        "{}: it is no plain file, and with `processes` src0 reads it once more",
        path.display()
    );
    let help = "write the events into a file first, or leave `processes` and `[[host]]` out";
    match key {
        Some(key) => UnreadEvents::Unopened(Box::new(problem(key, found, help))),
        None => {
            let text = format!("error: recorded events cannot be used\n{found}\nhelp: {help}\n");
            UnreadEvents::Bad(None, text)
        }
    }
}

fn problem(key: &str, found: String, help: &str) -> Problem {
    Problem::new(NAMED_FILE, key, found, "a file that can be used", help)
}

/// Where a file of frames breaks off, if it does.
///
/// # Errors
/// Why it cannot be played.
fn frames_note(path: &Path, source: SourceId) -> Result<Option<String>, String> {
    let file = path.display();
    let found = check_frames_file(path, source).map_err(|error| format!("{file}: {error}"))?;
    Ok(found.breaks_off.map(|byte| {
        format!(
            "{file} breaks off at byte {byte} of {}: the run ends there, within its first {} fragments",
            found.bytes, found.fragments
        )
    }))
}

fn filter_problem(file: &Path) -> Option<Problem> {
    let error = plain_file::open(file, OpenOptions::new().read(true)).err()?;
    let reason = match error.kind() {
        io::ErrorKind::IsADirectory => "it is no file".to_owned(),
        _ => error.to_string(),
    };
    let found = format!("{}: {reason}", file.display());
    Some(problem("filter.python", found, EVENTS_HELP))
}
