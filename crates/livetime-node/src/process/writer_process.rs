//! A writer's process at the end of a run: it has given its result and holds its run file.
//!
//! The last records of the file come from everybody's results, so the parent has them and the
//! writer writes them. Should it die over that, the parent takes the file up and closes it itself.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use livetime_store::histogram::{histograms_from_json, histograms_to_json};
use livetime_store::mcap_record::MAGIC;
use livetime_store::{Histogram, ResumeError, RunEnd};
use serde_json::{Value, json};

use super::control_message::Message;
use super::process_group::{FilePlace, Heard, RoleProcess};
use super::writer_lock;
use crate::run_file::{RunFile, RunFileError};

/// How long the writer may take: index and summary, and then the disk, are in it, but for a full one.
const PATIENCE: Duration = Duration::from_secs(600);
/// Time between two questions whether it is to be waited for.
const LOOK: Duration = Duration::from_millis(50);
/// How long a writer may go on closing its file once it is not to be waited for: its disk may only be
/// slow.
const GRACE: Duration = Duration::from_secs(5);
/// What a file lacks whose writer was ended between its last record and the end of the file.
const NO_INDEX: &str = "all records are in it, but not its whole index; `livetime inspect FILE \
                        --recover COPY` writes a whole file";
/// Bytes of the records in one document; escaped, they may be twice as many.
const PART_BYTES: usize = 24 * 1024;

/// What is heard of the writers' processes, whose files are closed one after the other.
pub(super) struct WritersHeard(Mutex<Hearing>);

struct Hearing {
    heard: Receiver<(usize, Heard)>,
    /// Of those whose turn it is not: an answer and an end of each at most.
    kept: VecDeque<(usize, Heard)>,
}

impl WritersHeard {
    pub(super) fn new(heard: Receiver<(usize, Heard)>) -> Self {
        let kept = VecDeque::new();
        Self(Mutex::new(Hearing { heard, kept }))
    }

    /// What comes next of the process at `index`.
    fn next(&self, index: usize, until: Instant) -> Result<Heard, RecvTimeoutError> {
        let mut hearing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Hearing { heard, kept } = &mut *hearing;
        if let Some(at) = kept.iter().position(|(other, _)| *other == index) {
            let found = kept.remove(at).map(|(_, heard)| heard);
            return found.ok_or(RecvTimeoutError::Disconnected);
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match heard.recv_timeout(left)? {
                (other, heard) if other == index => return Ok(heard),
                other => kept.push_back(other),
            }
        }
    }
}

/// A writer's process that waits to be told how to close its file.
pub struct WriterProcess {
    place: FilePlace,
    process: RoleProcess,
    index: usize,
    heard: Arc<WritersHeard>,
}

impl WriterProcess {
    pub(super) fn new(
        place: FilePlace,
        process: RoleProcess,
        index: usize,
        heard: Arc<WritersHeard>,
    ) -> Self {
        Self {
            place,
            process,
            index,
            heard,
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Has the file closed with these records; a disk without room is waited for until `is_stopped`, or
    /// as long as the plan says. One that is slow is waited for a little longer, unless it is stopped
    /// once more.
    ///
    /// # Errors
    /// [`RunFileError`]; complete chunks stay readable.
    pub fn close(
        mut self,
        end: &RunEnd,
        histograms: &[Histogram],
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<(), RunFileError> {
        for part in to_parts(end, histograms) {
            if self.process.send(&part, &[]).is_err() {
                break;
            }
        }
        let patience = PATIENCE + Duration::from_nanos(self.place.plan.full_wait.0);
        let until = Instant::now() + patience;
        let mut ends_at = None;
        let mut is_ended = false;
        loop {
            match self
                .heard
                .next(self.index, until.min(Instant::now() + LOOK))
            {
                Ok(Heard::Message(message)) => {
                    if let Message::Closed(failure) = *message {
                        return match failure {
                            None => Ok(()),
                            Some(reason) => Err(self.failed(reason)),
                        };
                    }
                }
                Ok(Heard::Gone) => break,
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {
                    let now = Instant::now();
                    if is_stopped() {
                        ends_at = ends_at.map_or(Some(now + GRACE), |_| Some(now));
                    }
                    if !is_ended && ends_at.is_some_and(|end| now >= end) {
                        // It waits for its disk, and hears nothing; what is left to do is done below.
                        is_ended = true;
                        self.process.child.kill();
                    }
                }
                Err(_) => return Err(self.failed(format!("no answer for {patience:?}"))),
            }
        }
        if !self.process.child.is_surely_dead() && !writer_lock::is_free(&self.place.path) {
            let reason = "its host is not heard any more, and its writer may live";
            return Err(self.failed(reason.to_owned()));
        }
        match RunFile::reopen_all(&self.place.path, self.place.limits, &self.place.plan) {
            // It died between its last record and its answer.
            Err(RunFileError::Resume {
                error: ResumeError::Finished,
                ..
            }) => match self.place.plan.is_single() && is_cut_off(&self.place.path) {
                true => Err(self.failed(NO_INDEX.to_owned())),
                false => Ok(()),
            },
            Err(error) => Err(error),
            Ok(file) => file.close(end, histograms).map(|_| ()),
        }
    }

    fn failed(&self, reason: String) -> RunFileError {
        RunFileError::Close {
            path: self.place.path.clone(),
            reason,
        }
    }
}

impl Drop for WriterProcess {
    /// Its file is closed, or will not be: nothing that was started outlives the run.
    fn drop(&mut self) {
        self.process.end();
    }
}

/// Whether a file ends before its closing part does.
fn is_cut_off(path: &Path) -> bool {
    let mut end = [0; MAGIC.len()];
    let opened = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::End(-(MAGIC.len() as i64)))?;
        file.read_exact(&mut end)
    });
    // One that cannot be read was closed as far as anybody knows.
    opened.is_ok() && end != MAGIC
}

/// The records as documents.
fn to_parts(end: &RunEnd, histograms: &[Histogram]) -> Vec<Message> {
    let text = json!({"end": end, "histograms": histograms_to_json(histograms)}).to_string();
    let mut rest = text.as_str();
    let mut parts = Vec::new();
    while rest.len() > PART_BYTES {
        let (part, tail) = rest.split_at(rest.floor_char_boundary(PART_BYTES));
        parts.push(Message::Close {
            part: part.to_owned(),
            last: false,
        });
        rest = tail;
    }
    parts.push(Message::Close {
        part: rest.to_owned(),
        last: true,
    });
    parts
}

/// The records out of the documents' text.
pub(super) fn records_of(text: &str) -> Option<(RunEnd, Vec<Histogram>)> {
    let document: Value = serde_json::from_str(text).ok()?;
    let end = serde_json::from_value(document["end"].clone()).ok()?;
    Some((end, histograms_from_json(&document["histograms"]).ok()?))
}

#[cfg(test)]
mod tests {
    use livetime_store::{Axis, Condition};
    use livetime_wire::RunNumber;

    use super::*;

    #[test]
    fn a_file_that_ends_in_its_closing_part_is_cut_off() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("events.mcap");
        let end = [b"the index and ".as_slice(), &MAGIC].concat();
        std::fs::write(&path, &end).expect("the directory is ours");
        assert!(!is_cut_off(&path));
        std::fs::write(&path, &end[..end.len() - 1]).expect("the directory is ours");
        assert!(is_cut_off(&path));
        assert!(!is_cut_off(folder.path()), "nothing is known");
    }

    #[test]
    fn records_travel_in_parts() {
        let end = RunEnd::new(RunNumber(3), Condition::GOOD, "\"quoted\" µ", 77);
        let axis = Axis::log("latency", "ns", 4000, 1e2, 1e10).expect("the edges rise");
        let histogram = Histogram::counting("latency", vec![axis]).expect("few bins");
        let parts = to_parts(&end, std::slice::from_ref(&histogram));
        let mut text = String::new();
        for (nth, part) in parts.iter().enumerate() {
            let Message::Close { part, last } = part else {
                panic!("{part:?}");
            };
            assert_eq!(*last, nth + 1 == parts.len());
            text += part;
        }
        assert!(parts.len() > 1, "{} bytes", text.len());
        let (found, histograms) = records_of(&text).expect("it is whole");
        assert_eq!(found, end);
        assert_eq!(histograms, [histogram]);
        assert!(records_of(&text[1..]).is_none());
    }
}
