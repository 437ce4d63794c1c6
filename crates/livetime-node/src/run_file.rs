//! The run file of a run: created, written into by the writer, taken up by another, closed.
//!
//! It is one file, or several by the streams of the events, each followed by its next part when it
//! is large or old enough; a run with several writers has that much of each ([`RunFiles`]). What is
//! in a file is `livetime_store`'s, its handle and its parts are `output_file`'s. A run file that a
//! process of its own writes is closed through [`ClosingFile`].

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use livetime_store::{
    Condition, FileName, FilePlan, FileSummary, Histogram, ResumeError, RunBegin, RunEnd,
    RunReader, RunWriter, WriteError, WriterLimits,
};
use livetime_wire::{RunNs, RunNumber, TriggerNumber};

use crate::output_file::{OutputFile, TimedFile};
use crate::process::writer_process::WriterProcess;

/// How often a full disk is looked at again.
pub const LOOK_AT_DISK: Duration = Duration::from_millis(100);

/// The run file being written: all its open files.
pub struct RunFile {
    /// Of the main file's first part.
    path: PathBuf,
    plan: FilePlan,
    outputs: Vec<OutputFile>,
    /// Events that were in it when it was taken up.
    found: u64,
    /// Triggers of the last of those.
    last_triggers: Vec<TriggerNumber>,
    /// Its writer has waited for room until the patience of the plan was at its end.
    has_waited: bool,
}

/// Why a run file could not be created or closed.
#[derive(Debug, thiserror::Error)]
pub enum RunFileError {
    /// The file system refused.
    #[error("cannot create {path}: {error}")]
    Create {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A record could not be written.
    #[error("cannot write {path}: {}", cause(error))]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: WriteError,
    },
    /// It cannot be taken up where its writer left it.
    #[error("cannot take up {path}: {error}")]
    Resume {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: ResumeError,
    },
    /// The writer's process could not close it, nor could this one.
    #[error("cannot close {path}: {reason}")]
    Close {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The innermost reason of a write error.
pub(crate) fn cause(error: &WriteError) -> String {
    match error {
        WriteError::Io { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

/// Whether a write failed for want of room, which may come back.
pub(crate) fn is_full(error: &WriteError) -> bool {
    let WriteError::Io { source, .. } = error else {
        return false;
    };
    is_without_room(source)
}

/// Whether there was no room on a disk, which may come back.
pub fn is_without_room(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

impl RunFile {
    /// Creates one file and writes the begin-of-run record.
    ///
    /// # Errors
    /// [`RunFileError`] when the file system refuses.
    pub fn create(
        path: &Path,
        begin: &RunBegin,
        limits: WriterLimits,
    ) -> Result<Self, RunFileError> {
        let name = FileName::default();
        let output = OutputFile::create_at(path.to_owned(), name, begin, 0, limits)?;
        Ok(Self::of(path, output))
    }

    /// Creates the files of a writer in a folder, each with the begin-of-run record.
    fn create_in(
        writer: u16,
        folder: &Path,
        begin: &RunBegin,
        limits: WriterLimits,
        plan: &FilePlan,
    ) -> Result<Self, RunFileError> {
        let name = |stream: &str| FileName {
            writer,
            stream: stream.to_owned(),
            part: 0,
        };
        let path = folder.join(name("").to_string());
        let output = OutputFile::create_at(path.clone(), name(""), begin, 0, limits)?;
        let mut file = Self::of(&path, output);
        file.plan = plan.clone();
        for stream in &plan.streams {
            let output = OutputFile::create(folder, name(&stream.name), begin, 0, limits)?;
            file.outputs.push(output);
        }
        Ok(file)
    }

    /// A file that keeps nothing, for measuring what comes before the disk: events are gathered
    /// into chunks as for any other.
    ///
    /// # Errors
    /// [`RunFileError`] when there is no null device.
    pub fn discarding(begin: &RunBegin, limits: WriterLimits) -> Result<Self, RunFileError> {
        let path = PathBuf::from("/dev/null");
        let file = match File::options().write(true).open(&path) {
            Ok(file) => file,
            Err(error) => return Err(RunFileError::Create { path, error }),
        };
        let output = OutputFile::discarding(path.clone(), file, begin, limits)?;
        Ok(Self::of(&path, output))
    }

    fn of(path: &Path, output: OutputFile) -> Self {
        Self {
            path: path.to_owned(),
            plan: FilePlan {
                free_bytes_min: 0,
                ..FilePlan::default()
            },
            outputs: vec![output],
            found: 0,
            last_triggers: Vec::new(),
            has_waited: false,
        }
    }

    /// Takes up a file that another process began, where its last complete chunk ends.
    ///
    /// # Errors
    /// [`RunFileError::Resume`] when it cannot be read or is damaged, [`RunFileError::Create`] when
    /// it cannot be opened.
    pub fn reopen(path: &Path, limits: WriterLimits) -> Result<Self, RunFileError> {
        match File::options().read(true).write(true).open(path) {
            Ok(file) => Self::resume(file, path, limits),
            Err(error) => Err(RunFileError::Create {
                path: path.to_owned(),
                error,
            }),
        }
    }

    /// As [`RunFile::reopen`], of a file opened for reading and writing; `path` is for messages.
    ///
    /// # Errors
    /// [`RunFileError::Resume`].
    pub fn resume(file: File, path: &Path, limits: WriterLimits) -> Result<Self, RunFileError> {
        let begin = RunBegin::new(RunNumber(0));
        if file.metadata().is_ok_and(|about| !about.is_file()) {
            // The null device of a run that keeps nothing: it begins anew, unseen.
            let output = OutputFile::discarding(path.to_owned(), file, &begin, limits)?;
            return Ok(Self::of(path, output));
        }
        let name = name_at(path);
        let found = OutputFile::resume(file, path.to_owned(), name, &begin, 0, limits)?;
        Ok(Self {
            found: found.events,
            last_triggers: found.last_triggers,
            ..Self::of(path, found.output)
        })
    }

    /// The file with the guard and the patience of a plan of one file.
    #[must_use]
    pub(crate) fn with_plan(mut self, plan: &FilePlan) -> Self {
        if self.path.metadata().is_ok_and(|about| about.is_file()) {
            self.plan = plan.clone();
        }
        self
    }

    /// Takes up all files of a plan; `path` is the main one's first part.
    ///
    /// # Errors
    /// As [`RunFile::reopen`]; [`ResumeError::Finished`] if all of them have their last record.
    pub fn reopen_all(
        path: &Path,
        limits: WriterLimits,
        plan: &FilePlan,
    ) -> Result<Self, RunFileError> {
        let is_device = path.metadata().is_ok_and(|about| !about.is_file());
        if plan.is_single() || is_device {
            return Ok(Self::reopen(path, limits)?.with_plan(plan));
        }
        let begin = stored_begin(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let streams = plan.streams.iter().map(|stream| stream.name.as_str());
        let mut file = Self {
            path: path.to_owned(),
            plan: plan.clone(),
            outputs: Vec::new(),
            found: 0,
            last_triggers: Vec::new(),
            has_waited: false,
        };
        let mut finished = None;
        for stream in std::iter::once("").chain(streams) {
            let whose = (name_at(path).writer, stream);
            match OutputFile::take_up(folder, whose, &begin, limits) {
                Ok(found) => {
                    file.found += found.events;
                    file.last_triggers.extend(found.last_triggers);
                    file.outputs.push(found.output);
                }
                Err(
                    error @ RunFileError::Resume {
                        error: ResumeError::Finished,
                        ..
                    },
                ) => finished = Some(error),
                Err(error) => return Err(error),
            }
        }
        // Files close one after the other: those that are not closed yet are the ones to close.
        match finished {
            Some(error) if file.outputs.is_empty() => Err(error),
            _ => Ok(file),
        }
    }

    /// Events that were in it when it was taken up; 0 for a new file.
    pub fn events_found(&self) -> u64 {
        self.found
    }

    /// Triggers of the last events found, sorted; for a sender that does not know whether its last
    /// ones arrived.
    pub fn take_last_triggers(&mut self) -> Vec<TriggerNumber> {
        let mut triggers = std::mem::take(&mut self.last_triggers);
        triggers.sort_unstable();
        triggers
    }

    /// The path of the main file's first part.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files and when they roll over.
    pub fn plan(&self) -> &FilePlan {
        &self.plan
    }

    /// Events in complete chunks.
    pub fn events_stored(&self) -> u64 {
        self.outputs.iter().map(OutputFile::events_stored).sum()
    }

    /// Events that are not in a complete chunk yet.
    pub fn events_pending(&self) -> u64 {
        self.outputs.iter().map(OutputFile::events_pending).sum()
    }

    /// Appends an event to the file of its streams, as `RunWriter::write_event` does.
    ///
    /// # Errors
    /// A [`WriteError`].
    pub fn write_event(
        &mut self,
        trigger: TriggerNumber,
        time: RunNs,
        streams: u16,
        parts: &[&[u32]],
    ) -> Result<(), WriteError> {
        let index = self.plan.file_of(streams);
        let index = if index < self.outputs.len() { index } else { 0 };
        self.outputs[index].writer.write_event(trigger, time, parts)
    }

    /// Hands chunks that are not full to their files.
    ///
    /// # Errors
    /// The first [`WriteError`]; the other files are flushed all the same.
    pub fn flush_chunks(&mut self) -> Result<(), WriteError> {
        let all = self.outputs.iter_mut();
        all.filter(|output| output.events_pending() > 0)
            .map(|output| output.writer.flush_chunk())
            .fold(Ok(()), Result::and)
    }

    /// Goes on with the next part of each file that is large or old enough.
    ///
    /// # Errors
    /// The first [`WriteError`].
    pub fn roll_if_due(&mut self, now: RunNs) -> Result<(), WriteError> {
        let Self { outputs, plan, .. } = self;
        let rolled = outputs
            .iter_mut()
            .map(|output| output.roll_if_due(now, plan));
        rolled.fold(Ok(()), Result::and)
    }

    /// After a write failed and when there may be room again: tries everything that failed once
    /// more. No event is lost by it.
    ///
    /// # Errors
    /// The first [`WriteError`]; it can be called again.
    pub fn retry(&mut self, now: RunNs) -> Result<(), WriteError> {
        let retried = self.outputs.iter_mut().map(|output| output.retry(now));
        retried.fold(Ok(()), Result::and)
    }

    /// Bytes that are free on the file system, if it says so.
    pub fn free_bytes(&mut self) -> Option<u64> {
        let about = rustix::fs::fstatvfs(self.outputs.first_mut()?.handle()).ok()?;
        Some(about.f_bavail.saturating_mul(about.f_frsize))
    }

    /// Slowest write so far, and how many took more than a second.
    pub fn waits(&mut self) -> (Duration, u64) {
        let waits = self.outputs.iter_mut().map(OutputFile::waits);
        waits.fold((Duration::ZERO, 0), |(slowest, stalls), of| {
            (slowest.max(of.0), stalls + of.1)
        })
    }

    /// No more room is waited for.
    pub(crate) fn give_up_waiting(&mut self) {
        self.has_waited = true;
    }

    /// Writes histograms and the end-of-run record and syncs the files. After a failed write a
    /// file is first cut back to its last complete chunk, and the record tried without the rest.
    ///
    /// # Errors
    /// [`RunFileError`] of the first file that fails; complete chunks stay readable.
    pub fn close(
        self,
        end: &RunEnd,
        histograms: &[Histogram],
    ) -> Result<FileSummary, RunFileError> {
        self.close_with(end, histograms, &mut || false)
    }

    /// As [`RunFile::close`], but a full disk is waited for as long as the plan says, unless that has
    /// been done before, the run was ended by force, or `is_stopped`.
    ///
    /// # Errors
    /// As [`RunFile::close`].
    pub fn close_with_patience(
        self,
        end: &RunEnd,
        histograms: &[Histogram],
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<FileSummary, RunFileError> {
        let patience = match self.has_waited || end.condition.contains(Condition::ABORTED) {
            true => Duration::ZERO,
            false => Duration::from_nanos(self.plan.full_wait.0),
        };
        let mut since = None;
        self.close_with(end, histograms, &mut || {
            let since: &Instant = since.get_or_insert_with(Instant::now);
            if since.elapsed() >= patience || is_stopped() {
                return false;
            }
            std::thread::sleep(LOOK_AT_DISK);
            true
        })
    }

    /// Closes all files; where a disk is full, `wait` waits for room and says whether to try again.
    fn close_with(
        mut self,
        end: &RunEnd,
        histograms: &[Histogram],
        wait: &mut dyn FnMut() -> bool,
    ) -> Result<FileSummary, RunFileError> {
        let time = RunNs(end.time_ns);
        let mut first = None;
        let mut failed = None;
        for (index, output) in self.outputs.iter_mut().enumerate() {
            let before_end = |writer: &mut RunWriter<TimedFile>| match index {
                0 => writer.write_histograms(time, histograms),
                _ => Ok(()),
            };
            let closed = output.close(end, before_end, wait);
            match closed {
                Ok(summary) => first = first.or(summary),
                Err(error) => {
                    let path = output.path.clone();
                    failed = failed.or(Some(RunFileError::Write { path, error }));
                }
            }
        }
        match (failed, first) {
            (Some(error), _) => Err(error),
            (None, Some(summary)) => Ok(summary),
            (None, None) => Err(RunFileError::Resume {
                path: self.path,
                error: ResumeError::Finished,
            }),
        }
    }
}

/// Which file of its run the main file at a path is; one with a name of its own is the first.
fn name_at(path: &Path) -> FileName {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(FileName::parse).unwrap_or_default()
}

/// The run files of a run, one of each writer.
pub struct RunFiles(Vec<RunFile>);

impl RunFiles {
    /// Creates the files of a plan in a folder, those of each of `writers` writers.
    ///
    /// # Errors
    /// [`RunFileError`] when the file system refuses.
    pub fn create_in(
        folder: &Path,
        writers: u16,
        begin: &RunBegin,
        limits: WriterLimits,
        plan: &FilePlan,
    ) -> Result<Self, RunFileError> {
        let begin = RunBegin {
            writers,
            ..begin.clone()
        };
        let of = |writer| RunFile::create_in(writer, folder, &begin, limits, plan);
        let files = (0..writers).map(of);
        files.collect::<Result<_, _>>().map(Self)
    }

    /// The files, by their writer.
    pub fn into_files(self) -> Vec<RunFile> {
        self.0
    }
}

impl From<RunFile> for RunFiles {
    /// Those of a run with one writer.
    fn from(file: RunFile) -> Self {
        Self(vec![file])
    }
}

/// The begin-of-run record of a run that another process began.
fn stored_begin(path: &Path) -> Result<RunBegin, RunFileError> {
    let failed = |error| RunFileError::Create {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(failed)?;
    let reader = RunReader::open(file).map_err(|error| failed(std::io::Error::other(error)))?;
    let begin = reader.begin().cloned();
    begin.ok_or_else(|| failed(std::io::Error::other("its begin-of-run record is damaged")))
}

/// The run file at the end of a run, wherever it was written.
pub enum ClosingFile {
    /// In this process.
    Here(Box<RunFile>),
    /// In a process of its own, which closes it.
    There(Box<WriterProcess>),
}

impl ClosingFile {
    /// The path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Here(file) => file.path(),
            Self::There(writer) => writer.path(),
        }
    }

    /// As [`RunFile::close_with_patience`].
    ///
    /// # Errors
    /// [`RunFileError`]; complete chunks stay readable.
    pub fn close(
        self,
        end: &RunEnd,
        histograms: &[Histogram],
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<(), RunFileError> {
        match self {
            Self::Here(file) => {
                let closed = file.close_with_patience(end, histograms, is_stopped);
                closed.map(drop)
            }
            Self::There(writer) => writer.close(end, histograms, is_stopped),
        }
    }
}
