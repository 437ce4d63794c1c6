//! One open file of a run and the parts that follow it: created, filled, rolled over, retried.
//!
//! What is in a file is `livetime_store`'s, and which events it gets is decided by
//! [`crate::run_file`]. Here are the file handle, the clock around its writes, and the steps from
//! one part to the next, each of which can be tried again after a full disk.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use livetime_store::{
    Condition, FileName, FilePart, FilePlan, FileSummary, ResumeError, Resumed, RunBegin, RunEnd,
    RunReader, RunWriter, WriteError, WriterLimits,
};
use livetime_wire::{RunNs, TriggerNumber};

use crate::run_file::{RunFileError, is_full};

/// A write that takes longer than this is counted as a stall of the disk.
const STALL: Duration = Duration::from_secs(1);

/// A file whose writes are timed.
#[derive(Debug)]
pub(crate) struct TimedFile {
    file: File,
    slowest: Duration,
    stalls: u64,
}

impl TimedFile {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            slowest: Duration::ZERO,
            stalls: 0,
        }
    }

    /// Makes it end at `bytes` and go on from there.
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        self.file.seek(SeekFrom::Start(bytes)).map(|_| ())
    }
}

impl Write for TimedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let start = Instant::now();
        let written = self.file.write(bytes);
        let taken = start.elapsed();
        self.slowest = self.slowest.max(taken);
        self.stalls += u64::from(taken > STALL);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Read for TimedFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.file.read(out)
    }
}

impl Seek for TimedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Where a file is between two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Events are written.
    Open,
    /// The part is to be closed.
    Closing,
    /// The next part is to be created.
    Opening,
    /// The run file has its last record.
    Closed,
}

/// One open file of a run.
pub(crate) struct OutputFile {
    pub(crate) path: PathBuf,
    name: FileName,
    pub(crate) writer: RunWriter<TimedFile>,
    begin: RunBegin,
    opened_at: RunNs,
    step: Step,
    /// Events in the parts before.
    events_before: u64,
    /// Of handles that are closed.
    slowest: Duration,
    stalls: u64,
    /// The bytes go nowhere: there is nothing to cut or to sync.
    discards: bool,
}

/// An output that was taken up.
pub(crate) struct Found {
    pub(crate) output: OutputFile,
    /// Events in it and its parts before.
    pub(crate) events: u64,
    /// Triggers of its last events.
    pub(crate) last_triggers: Vec<TriggerNumber>,
}

fn begin_of(begin: &RunBegin, name: &FileName, events_before: u64) -> RunBegin {
    let is_first = *name == FileName::default();
    let part = FilePart {
        writer: name.writer,
        stream: name.stream.clone(),
        part: name.part,
        events_before,
    };
    RunBegin {
        file: (!is_first).then_some(part),
        ..begin.clone()
    }
}

impl OutputFile {
    /// Creates a file and writes its begin-of-run record.
    pub(crate) fn create(
        folder: &Path,
        name: FileName,
        begin: &RunBegin,
        events_before: u64,
        limits: WriterLimits,
    ) -> Result<Self, RunFileError> {
        Self::create_at(
            folder.join(name.to_string()),
            name,
            begin,
            events_before,
            limits,
        )
    }

    /// As [`OutputFile::create`], with a path of its own.
    pub(crate) fn create_at(
        path: PathBuf,
        name: FileName,
        begin: &RunBegin,
        events_before: u64,
        limits: WriterLimits,
    ) -> Result<Self, RunFileError> {
        let file = match open_new(&path) {
            Ok(file) => file,
            Err(error) => return Err(RunFileError::Create { path, error }),
        };
        let of_file = begin_of(begin, &name, events_before);
        match RunWriter::new(TimedFile::new(file), &of_file, limits) {
            Ok(writer) => Ok(Self::of(path, name, writer, begin, events_before)),
            Err(error) => Err(RunFileError::Write { path, error }),
        }
    }

    /// An output of which nothing is kept.
    pub(crate) fn discarding(
        path: PathBuf,
        file: File,
        begin: &RunBegin,
        limits: WriterLimits,
    ) -> Result<Self, RunFileError> {
        match RunWriter::new(TimedFile::new(file), begin, limits) {
            Ok(writer) => Ok(Self {
                discards: true,
                ..Self::of(path, FileName::default(), writer, begin, 0)
            }),
            Err(error) => Err(RunFileError::Write { path, error }),
        }
    }

    fn of(
        path: PathBuf,
        name: FileName,
        writer: RunWriter<TimedFile>,
        begin: &RunBegin,
        events_before: u64,
    ) -> Self {
        Self {
            path,
            name,
            writer,
            begin: begin.clone(),
            opened_at: RunNs(0),
            step: Step::Open,
            events_before,
            slowest: Duration::ZERO,
            stalls: 0,
            discards: false,
        }
    }

    /// Takes up an open file where its last complete chunk ends.
    pub(crate) fn resume(
        file: File,
        path: PathBuf,
        name: FileName,
        begin: &RunBegin,
        events_before: u64,
        limits: WriterLimits,
    ) -> Result<Found, RunFileError> {
        let resumed = RunWriter::resume(TimedFile::new(file), limits, TimedFile::cut);
        match resumed {
            Ok(Resumed {
                writer,
                last_triggers,
                ..
            }) => Ok(Found {
                events: events_before + writer.events_stored(),
                output: Self::of(path, name, writer, begin, events_before),
                last_triggers,
            }),
            Err(error) => Err(RunFileError::Resume { path, error }),
        }
    }

    /// Takes up the last part of a file, or creates it: the writer before may have died between
    /// two parts. Errors with [`ResumeError::Finished`] when the file has its last record.
    pub(crate) fn take_up(
        folder: &Path,
        (writer, stream): (u16, &str),
        begin: &RunBegin,
        limits: WriterLimits,
    ) -> Result<Found, RunFileError> {
        let name = |part| FileName {
            writer,
            stream: stream.to_owned(),
            part,
        };
        let path = |part| folder.join(name(part).to_string());
        let new = |part, events_before, last_triggers| {
            let output = Self::create(folder, name(part), begin, events_before, limits)?;
            Ok(Found {
                output,
                events: events_before,
                last_triggers,
            })
        };
        let parts = (0..).take_while(|part| path(*part).exists()).count() as u32;
        let Some(last) = parts.checked_sub(1) else {
            return new(0, 0, Vec::new());
        };
        let before = match last.checked_sub(1) {
            Some(before) => finished_part(&path(before))?.0,
            None => 0,
        };
        let opened = File::options().read(true).write(true).open(path(last));
        let file = opened.map_err(|error| RunFileError::Create {
            path: path(last),
            error,
        })?;
        match Self::resume(file, path(last), name(last), begin, before, limits) {
            Err(RunFileError::Resume {
                error: ResumeError::Finished,
                path: finished,
            }) => {
                let (events, end, triggers) = finished_part(&finished)?;
                match end.is_some_and(|end| end.continued) {
                    true => new(last + 1, events, triggers),
                    false => Err(RunFileError::Resume {
                        error: ResumeError::Finished,
                        path: finished,
                    }),
                }
            }
            Err(RunFileError::Resume {
                error: ResumeError::NotRunFile { .. },
                path: empty,
            }) if parts > 1 || !stream.is_empty() => {
                // Its first chunk did not get out, so nothing is lost with it.
                std::fs::remove_file(&empty)
                    .map_err(|error| RunFileError::Create { path: empty, error })?;
                let triggers = match last.checked_sub(1) {
                    Some(before) => finished_part(&path(before))?.2,
                    None => Vec::new(),
                };
                new(last, before, triggers)
            }
            Ok(mut found) if found.last_triggers.is_empty() && last > 0 => {
                found.last_triggers = finished_part(&path(last - 1))?.2;
                Ok(found)
            }
            other => other,
        }
    }

    /// Events in whole chunks of this file and its parts before.
    pub(crate) fn events_stored(&self) -> u64 {
        match self.step {
            // Its part's events have been added already.
            Step::Opening => self.events_before,
            _ => self.events_before + self.writer.events_stored(),
        }
    }

    /// Events that are not in a whole chunk yet.
    pub(crate) fn events_pending(&self) -> u64 {
        match self.step {
            Step::Opening => 0,
            _ => self.writer.events_pending(),
        }
    }

    /// Slowest write so far, and how many stalled.
    pub(crate) fn waits(&mut self) -> (Duration, u64) {
        let file = self.writer.output_mut();
        (self.slowest.max(file.slowest), self.stalls + file.stalls)
    }

    /// The handle, for asking about its file system.
    pub(crate) fn handle(&mut self) -> &File {
        &self.writer.output_mut().file
    }

    /// Goes on with the next part if this one is large or old enough.
    pub(crate) fn roll_if_due(&mut self, now: RunNs, plan: &FilePlan) -> Result<(), WriteError> {
        let events = self.writer.events_stored() + self.writer.events_pending();
        let bytes = self.writer.bytes_complete();
        let by_bytes = plan.bytes_max > 0 && bytes >= plan.bytes_max;
        let by_time = plan.time_max.0 > 0 && now.since(self.opened_at) >= plan.time_max;
        // A part without events would say nothing.
        if self.step != Step::Open || self.discards || events == 0 || !(by_bytes || by_time) {
            return Ok(());
        }
        self.writer.flush_chunk()?;
        self.step = Step::Closing;
        self.go_on(now)
    }

    /// After a failed write and when there may be room: tries again what failed.
    pub(crate) fn retry(&mut self, now: RunNs) -> Result<(), WriteError> {
        match self.step {
            Step::Open => self.writer.retry(TimedFile::cut),
            Step::Closing => {
                self.cut_back()?;
                self.go_on(now)
            }
            Step::Opening => self.go_on(now),
            Step::Closed => Ok(()),
        }
    }

    /// The steps from one part to the next, from the one that is due.
    fn go_on(&mut self, now: RunNs) -> Result<(), WriteError> {
        if self.step == Step::Closing {
            let run = self.begin.run_number();
            let reason = "the run goes on in the next part";
            let end = RunEnd {
                continued: true,
                ..RunEnd::new(run, Condition::GOOD, reason, now.0)
            };
            self.writer.finish(&end)?;
            self.events_before += self.writer.events_stored();
            self.step = Step::Opening;
        }
        if self.step == Step::Opening {
            let name = FileName {
                part: self.name.part + 1,
                ..self.name.clone()
            };
            let path = self.path.with_file_name(name.to_string());
            let io = |source| WriteError::Io {
                bytes_complete: 0,
                source,
            };
            if self.writer.bytes_complete() == 0 && path.exists() {
                // Left by an attempt on the full disk; nothing in it is complete.
                std::fs::remove_file(&path).map_err(io)?;
            }
            let file = TimedFile::new(open_new(&path).map_err(io)?);
            (self.slowest, self.stalls) = self.waits();
            let begin = begin_of(&self.begin, &name, self.events_before);
            self.writer.start_next(file, &begin)?;
            (self.path, self.name) = (path, name);
            (self.opened_at, self.step) = (now, Step::Open);
        }
        Ok(())
    }

    /// Writes the last records and syncs the file. After a failed write the file is first cut back
    /// to its last complete chunk; where the disk is full, `wait` waits for room and says whether to try
    /// again. In the end the end-of-run record is tried without the rest.
    pub(crate) fn close(
        &mut self,
        end: &RunEnd,
        before_end: impl Fn(&mut RunWriter<TimedFile>) -> Result<(), WriteError>,
        wait: &mut dyn FnMut() -> bool,
    ) -> Result<Option<FileSummary>, WriteError> {
        if self.step == Step::Closed {
            return Ok(None);
        }
        let mut has_rest = false;
        let mut closed = loop {
            match self.try_close(end, &before_end, &mut has_rest) {
                Err(error) if is_full(&error) => {
                    // Whoever reads it meanwhile finds whole chunks.
                    self.cut_back()?;
                    if !wait() {
                        break Err(error);
                    }
                }
                other => break other,
            }
        };
        if closed.is_err() && self.step == Step::Open {
            // On a full disk the end-of-run record may still find room where the rest does not.
            self.cut_back()?;
            closed = self.writer.finish(end);
        }
        if closed.is_err() {
            self.cut_back()?;
        }
        let summary = closed?;
        self.step = Step::Closed;
        let io = |source| WriteError::Io {
            bytes_complete: summary.bytes,
            source,
        };
        if !self.discards {
            self.handle().sync_data().map_err(io)?;
        }
        Ok(Some(summary))
    }

    /// `has_rest` becomes true when what comes before the end-of-run record is in a complete chunk.
    fn try_close(
        &mut self,
        end: &RunEnd,
        before_end: impl Fn(&mut RunWriter<TimedFile>) -> Result<(), WriteError>,
        has_rest: &mut bool,
    ) -> Result<FileSummary, WriteError> {
        self.cut_back()?;
        // The part before says that another follows; without it that one is missing.
        self.go_on(RunNs(end.time_ns))?;
        let before = self.writer.bytes_complete();
        if !*has_rest {
            before_end(&mut self.writer)?;
        }
        let closed = self.writer.finish(end);
        *has_rest |= self.writer.bytes_complete() > before;
        closed
    }

    /// After a failed write: cuts the file back to its last complete chunk.
    fn cut_back(&mut self) -> Result<(), WriteError> {
        let bytes_complete = self.writer.bytes_complete();
        let cut = self.writer.rewind_to_complete(TimedFile::cut);
        cut.map_err(|source| WriteError::Io {
            bytes_complete,
            source,
        })
    }
}

fn open_new(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).open(path)
}

/// Events up to the end of a finished part, its end, and the triggers of its last events.
fn finished_part(path: &Path) -> Result<(u64, Option<RunEnd>, Vec<TriggerNumber>), RunFileError> {
    let failed = |error| RunFileError::Create {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(failed)?;
    let mut reader = RunReader::open(file).map_err(|error| failed(io::Error::other(error)))?;
    let part = reader.begin().and_then(|begin| begin.file.as_ref());
    let before = part.map_or(0, |part| part.events_before);
    let end = reader.end().cloned();
    let stored = end.as_ref().map_or(0, |end| end.events_stored);
    let places = reader.event_index().map_err(failed)?.places();
    let last_chunk = places.iter().map(|place| place.chunk_offset).max();
    let of_last = places
        .iter()
        .filter(|place| Some(place.chunk_offset) == last_chunk);
    let triggers = of_last.map(|place| place.trigger).collect();
    Ok((before + stored, end, triggers))
}
