//! All files of a run read as one: its streams, and the parts that follow each other.
//!
//! A directory is read with every run file in it by [`FileName`]; of a file that is named itself,
//! only that one. Each file keeps its own reader, index and damage; here they are put one behind
//! the other, and what is missing between them is counted: parts say how many events came before
//! them. A run that is being written grows by [`RunFolder::refresh`], new files included. Which
//! event goes to which file is [`livetime_store::file_plan`]'s, which of them are open is
//! [`crate::run_input`]'s, and the rows of events are the module `event_rows`'s.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use livetime_store::event_index::EventPlace;
use livetime_store::inspect::DAMAGE_LISTED_MAX;
use livetime_store::run_reader::IndexOrigin;
use livetime_store::{
    Condition, Damage, FileName, FilePart, Histogram, Inspection, OpenError, ReadError, RunBegin,
    RunEnd, RunReader, RunToldBy, SeenTriggers, ToldFiles, inspect_seen,
};
use livetime_wire::event::EventView;
use livetime_wire::{RunNumber, TriggerNumber};

use crate::event_rows::EventRows;
pub use crate::event_rows::FolderPlace;
use crate::run_input::{FilePlace, InputChange, OpenFiles, RunInput, is_too_many};
use lacking::UnreadableFile;
pub use lacking::{LackingFile, unreadable_bytes};

mod lacking;

/// A file of a run that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", path.display(), reason(error))]
pub struct FolderError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub error: OpenError,
}

/// A sum of counts, some of which are what a file says, whatever that is.
fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// The innermost reason.
fn reason(error: &OpenError) -> String {
    match error {
        OpenError::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// One of several files of a run failed; inside the [`io::Error`] that reading the run gives.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", name_of(path))]
pub struct FileError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

impl FileError {
    fn of(path: &Path, error: io::Error) -> io::Error {
        let path = path.to_owned();
        io::Error::new(error.kind(), Self { path, error })
    }
}

/// One file of a run.
pub struct FolderFile {
    path: PathBuf,
    name: FileName,
    place: Arc<FilePlace>,
    reader: RunReader<RunInput>,
    /// Bytes that it must still have, by what was found in it last.
    bytes_least: u64,
    /// Why it is read no more, where it went away or was replaced.
    lost: Option<io::Error>,
}

impl FolderFile {
    /// Opens a file; it is named `path`, and looked for at its absolute path.
    fn open(path: &Path, open_files: &OpenFiles) -> Result<Self, OpenError> {
        let input = RunInput::open(&std::path::absolute(path)?, open_files)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let mut file = Self {
            path: path.to_owned(),
            name: name.and_then(FileName::parse).unwrap_or_default(),
            place: Arc::clone(input.place()),
            reader: RunReader::open(input)?,
            bytes_least: 0,
            lost: None,
        };
        file.note_bytes();
        Ok(file)
    }

    /// Takes note of what it has. Reading does not change that: a file that is cut meanwhile reads as a
    /// shorter one.
    fn note_bytes(&mut self) {
        self.bytes_least = match self.reader.end() {
            Some(_) => self.reader.input_bytes(),
            // A chunk that was cut off is taken away by a writer that goes on with the file.
            None => self.reader.chunks_end(),
        };
    }

    /// Takes up what was written to it since.
    fn refresh(&mut self) -> io::Result<()> {
        if self.lost.is_some() && self.place.check(self.bytes_least).is_ok() {
            // It is there again.
            self.lost = None;
        }
        if self.lost.is_some() || self.reader.is_finished() {
            return Ok(());
        }
        let refreshed = self.reader.refresh();
        refreshed.map_err(|error| FileError::of(&self.path, error))?;
        self.note_bytes();
        Ok(())
    }

    /// The event of a trigger, as [`RunReader::event`]; an error of the input is told with the file's name.
    fn event(&mut self, trigger: TriggerNumber) -> Result<Option<EventView<'_>>, ReadError> {
        if self.lost.is_some() {
            return Ok(None);
        }
        let Self {
            path, reader, lost, ..
        } = self;
        reader.event(trigger).map_err(|error| match error {
            ReadError::Io(error) => noted(path, lost, error).into(),
            damaged @ ReadError::Damaged { .. } => damaged,
        })
    }

    /// The places of its events; none if it is lost.
    fn places(&mut self) -> io::Result<&[EventPlace]> {
        if self.lost.is_some() {
            return Ok(&[]);
        }
        let Self {
            path, reader, lost, ..
        } = self;
        match reader.event_index() {
            Ok(index) => Ok(index.places()),
            Err(error) => Err(noted(path, lost, error)),
        }
    }

    /// Goes to its next event, as [`RunReader::find_next`].
    fn find_next(&mut self) -> io::Result<Option<(usize, usize)>> {
        if self.lost.is_some() {
            return Ok(None);
        }
        let found = self.reader.find_next();
        found.map_err(|error| noted(&self.path, &mut self.lost, error))
    }

    /// Whether it is still the file that was opened.
    fn check(&self) -> io::Result<()> {
        let is_closed = self.reader.end().is_some();
        match self.place.check(self.bytes_least) {
            // It may have been taken to another place; nothing more comes, and what is open stays.
            Err(error) if is_closed && error.kind() == io::ErrorKind::NotFound => Ok(()),
            checked => checked.map_err(|error| FileError::of(&self.path, error)),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its reader.
    pub fn reader(&self) -> &RunReader<RunInput> {
        &self.reader
    }

    /// Its reader, to be rewound afterwards.
    pub fn reader_mut(&mut self) -> &mut RunReader<RunInput> {
        &mut self.reader
    }

    /// Its begin-of-run record, if one is whole; that of a copy whose file had lost its own tells nothing.
    fn begin(&self) -> Option<&RunBegin> {
        self.reader.begin().filter(|begin| begin.is_known())
    }

    /// The name that its begin-of-run record gives it, if it has another one: it is a copy, whose
    /// events are in the file of that name.
    fn other_name(&self) -> Option<String> {
        let begin = self.begin()?;
        let part = begin.file.clone().unwrap_or_default();
        let name = FileName {
            writer: part.writer,
            stream: part.stream,
            part: part.part,
        };
        // One whose record was lost, and made anew, does not know its place.
        let knows = begin.file.is_some() || !begin.version.is_empty();
        (knows && name != self.name).then(|| name.to_string())
    }

    /// Events that were put into it; without an end-of-run record, as many as were read and are known to
    /// be missing.
    fn events(&self) -> u64 {
        let known = || sum([self.reader.events_found(), self.reader.events_missing()]);
        let end = self.reader.end();
        end.map_or_else(known, |end| {
            end.events_stored.saturating_add(end.events_missing)
        })
    }

    /// What is in it; damage is told with its name if it is one of several.
    fn inspect(&mut self, several: bool, seen: &mut SeenTriggers) -> io::Result<Inspection> {
        let failed = |error| FileError::of(&self.path, error);
        let mut found = inspect_seen(&mut self.reader, seen).map_err(failed)?;
        if several {
            let name = self.name.to_string();
            let ranges = found.damage.iter_mut();
            ranges.for_each(|range| range.file.clone_from(&name));
        }
        Ok(found)
    }

    fn histograms(&mut self) -> io::Result<Option<Vec<Histogram>>> {
        if self.lost.is_some() {
            return Ok(None);
        }
        let found = self.reader.histograms();
        found.map_err(|error| FileError::of(&self.path, error))
    }

    /// Whether it says that another part follows.
    fn is_continued(&self) -> bool {
        self.reader.end().is_some_and(|end| end.continued)
    }
}

/// Reads a whole run.
pub struct RunFolder {
    /// The directory as it was named, if all of it is read.
    directory: Option<PathBuf>,
    /// The same to look into, wherever the program goes.
    directory_absolute: PathBuf,
    open_files: OpenFiles,
    files: Vec<FolderFile>,
    unreadable: Vec<UnreadableFile>,
    /// What the summary beside its files says of them, where there is one.
    told: Option<ToldFiles>,
    /// The file that iteration is in.
    cursor: usize,
    /// What iteration has handed out since the start.
    seen: SeenTriggers,
    end: Option<RunEnd>,
    rows: Option<EventRows>,
    /// The rows before the run was refreshed.
    rows_known: Option<EventRows>,
}

impl RunFolder {
    /// The run files of a directory: of each writer the main ones first, then the streams', parts in
    /// order.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn paths(directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let name = entry?.file_name();
            found.extend(name.to_str().and_then(FileName::parse));
        }
        found.sort();
        let paths = found.iter().map(|name| directory.join(name.to_string()));
        Ok(paths.collect())
    }

    /// Opens a run directory, or one file alone; it need not be complete. Of a directory, files that
    /// cannot be read are left out and named by [`RunFolder::files_lacking`].
    ///
    /// # Errors
    /// [`FolderError`] of the file that is no run file, or of another run; or of the first, if none can
    /// be read.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |path: &Path, error| FolderError {
            path: path.to_owned(),
            error,
        };
        let absolute = std::path::absolute(path).map_err(|error| failed(path, error.into()))?;
        let mut folder = Self {
            directory: None,
            directory_absolute: absolute,
            open_files: OpenFiles::default(),
            files: Vec::new(),
            unreadable: Vec::new(),
            told: None,
            cursor: 0,
            seen: SeenTriggers::default(),
            end: None,
            rows: None,
            rows_known: None,
        };
        if path.is_dir() {
            folder.directory = Some(path.to_owned());
            folder.open_all(path)?;
        } else {
            let file = FolderFile::open(path, &folder.open_files);
            folder.files = vec![file.map_err(|error| failed(path, error))?];
        }
        folder.end = folder.joined_end();
        Ok(folder)
    }

    /// Opens the files of a directory.
    fn open_all(&mut self, directory: &Path) -> Result<(), FolderError> {
        let failed = |path: &Path, error| FolderError {
            path: path.to_owned(),
            error,
        };
        let main = directory.join(FileName::default().to_string());
        let paths = Self::paths(directory).map_err(|error| failed(directory, error.into()))?;
        if paths.is_empty() {
            // The system's own words for it, and its number.
            let missing = (File::open(&main).err())
                .unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound));
            return Err(failed(&main, missing.into()));
        }
        let mut without_chunk = None;
        for path in paths {
            match FolderFile::open(&path, &self.open_files) {
                Ok(file) => self.take(file)?,
                // A part whose first chunk is not out yet, or one of which nothing is left: it is missed.
                Err(error @ OpenError::NotRunFile { .. }) => {
                    without_chunk.get_or_insert_with(|| failed(&path, error));
                }
                Err(OpenError::Io(error)) if !is_too_many(&error) => {
                    self.leave_out(&path, error);
                }
                Err(error) => return Err(failed(&path, error)),
            }
        }
        if self.files.is_empty() {
            let mut unreadable = self.unreadable.drain(..);
            let unreadable = unreadable
                .next()
                .map(|file| failed(&directory.join(file.name.to_string()), file.error.into()));
            let missing = || failed(&main, io::Error::from(io::ErrorKind::NotFound).into());
            return Err(without_chunk.or(unreadable).unwrap_or_else(missing));
        }
        let copies = self.files.iter();
        let mut copies = copies.filter_map(|file| Some((file, file.other_name()?)));
        if let Some((file, of)) = copies.next().filter(|_| self.files.len() > 1) {
            return Err(failed(&file.path, OpenError::Copy { of }));
        }
        self.told = read_told(directory);
        match self.other_than_told() {
            Some((file, error)) => Err(failed(&file.path, error)),
            None => Ok(()),
        }
    }

    /// Adds a file, which must be of the run of the others.
    fn take(&mut self, file: FolderFile) -> Result<(), FolderError> {
        let known = self.files.iter().find(|file| file.begin().is_some());
        let first = known.or(self.files.first());
        if first.is_some_and(|first| !is_same_run(first, &file)) {
            let bytes = file.reader.input_bytes();
            let than = RunToldBy::FirstFile;
            return Err(FolderError {
                path: file.path,
                error: OpenError::OtherRun { bytes, than },
            });
        }
        self.files.push(file);
        Ok(())
    }

    /// Takes note of a file that cannot be read.
    fn leave_out(&mut self, path: &Path, error: io::Error) {
        let name = path.file_name().and_then(|name| name.to_str());
        // One that is gone since its directory was read is missed as any that is gone.
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        self.unreadable
            .extend(name.and_then(FileName::parse).map(|name| UnreadableFile {
                name,
                bytes: std::fs::metadata(path).map_or(0, |found| found.len()),
                error,
            }));
    }

    /// The first file that is not of the run that the summary beside it is of.
    fn other_than_told(&self) -> Option<(&FolderFile, OpenError)> {
        let told = self.told.as_ref()?;
        let is_other = |file: &&FolderFile| !told.is_of(file.reader.run(), file.begin());
        let file = self.files.iter().find(is_other)?;
        let bytes = file.reader.input_bytes();
        let than = RunToldBy::Summary { run: told.run };
        Some((file, OpenError::OtherRun { bytes, than }))
    }

    /// The files, main ones first.
    pub fn files(&self) -> &[FolderFile] {
        &self.files
    }

    /// Their number.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// A file; `None` beyond the last.
    pub fn file_mut(&mut self, index: usize) -> Option<&mut FolderFile> {
        self.files.get_mut(index)
    }

    /// The run number.
    pub fn run(&self) -> RunNumber {
        self.files[0].reader.run()
    }

    /// The begin-of-run record, if one is whole and tells more than the run number.
    pub fn begin(&self) -> Option<&RunBegin> {
        self.files.iter().find_map(FolderFile::begin)
    }

    /// The begin-of-run record that a file of this name must have had, by those of the other files; `None`
    /// if none of them has one. The events before a part are 0 where the part before it does not tell.
    pub fn begin_of(&self, name: &FileName) -> Option<RunBegin> {
        let begin = self.begin()?.clone();
        let before = name.part.checked_sub(1);
        let is_before = |file: &&FolderFile| {
            file.name.is_part_of(name) && Some(file.name.part) == before && file.is_continued()
        };
        let before = self.files.iter().find(is_before).and_then(|file| {
            let part = file.begin().and_then(|begin| begin.file.as_ref());
            let before = part.map(|part| part.events_before);
            let before = before.or((file.name.part == 0).then_some(0))?;
            Some(before.saturating_add(file.events()))
        });
        let file = (*name != FileName::default()).then(|| FilePart {
            writer: name.writer,
            stream: name.stream.clone(),
            part: name.part,
            events_before: before.unwrap_or(0),
        });
        Some(RunBegin { file, ..begin })
    }

    /// The end-of-run record, with the events of all files, those included that are known to be in files
    /// that are not there; `None` while a file is open, and if the file that has it is not there.
    pub fn end(&self) -> Option<&RunEnd> {
        self.end.as_ref()
    }

    /// Whether the run has ended, as its files tell or the summary beside them; every file that is there
    /// is closed then.
    pub fn has_ended(&self) -> bool {
        let is_closed = |file: &FolderFile| file.reader.end().is_some();
        self.end.is_some() || (self.told.is_some() && self.files.iter().all(is_closed))
    }

    /// Condition of the run as [`RunFolder::inspect`] finds it, but for what only reading every chunk
    /// shows.
    pub fn condition(&self) -> Condition {
        let ends = self.files.iter().map(|file| file.reader.end());
        let of_files = ends.map(|end| end.map_or(Condition::INTERRUPTED, |end| end.condition));
        let condition = of_files.fold(Condition::GOOD, |all, of_file| all | of_file);
        let elsewhere = sum([self.events_between(), self.events_elsewhere()]);
        match self.has_all_files() && elsewhere == 0 {
            true => condition,
            false => condition | Condition::INCOMPLETE,
        }
    }

    /// Where the lists of chunks come from: a scan if one of them does.
    pub fn origin(&self) -> IndexOrigin {
        let by_scan = |file: &FolderFile| file.reader.origin() == IndexOrigin::Scan;
        match self.files.iter().any(by_scan) {
            true => IndexOrigin::Scan,
            false => IndexOrigin::Summary,
        }
    }

    /// Bytes of all files.
    pub fn input_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.reader.input_bytes()).sum()
    }

    /// Chunks of all files.
    pub fn chunk_count(&self) -> usize {
        self.files.iter().map(|f| f.reader.chunk_count()).sum()
    }

    /// What was passed over so far, with its file, up to a bound for each.
    pub fn damage(&self) -> impl Iterator<Item = (&Path, &Damage)> {
        self.files.iter().flat_map(|file| {
            let entries = file.reader.damage().entries().iter();
            entries.map(|damage| (file.path.as_path(), damage))
        })
    }

    /// How often there was damage.
    pub fn damage_total(&self) -> u64 {
        self.files.iter().map(|f| f.reader.damage().total()).sum()
    }

    /// How often a checksum was wrong.
    pub fn checksum_errors(&self) -> u64 {
        let errors = |file: &FolderFile| file.reader.damage().checksum_errors();
        self.files.iter().map(errors).sum()
    }

    /// Writers of the run, as its files tell: each has files of its own.
    pub fn writers(&self) -> u16 {
        let told = self.files.iter().filter_map(FolderFile::begin);
        told.map(|begin| begin.writers).max().unwrap_or(1).max(1)
    }

    /// Events that are there and damaged, as far as they were read one after the other.
    pub fn events_damaged(&self) -> u64 {
        self.files.iter().map(|f| f.reader.events_damaged()).sum()
    }

    /// Events known to be missing, in files and between them; right once all events were read.
    pub fn events_missing(&self) -> u64 {
        let in_files = sum(self.files.iter().map(|f| f.reader.events_missing()));
        sum([in_files, self.events_between(), self.events_elsewhere()])
    }

    /// Events that the run has stored, in files of which those that are there tell nothing, as those
    /// of a stream.
    fn events_elsewhere(&self) -> u64 {
        let here = sum(self.files.iter().map(FolderFile::events));
        self.events_told()
            .saturating_sub(sum([here, self.events_between()]))
    }

    /// Events in all files of the run, by its summary and by the counts in end-of-run records; 0 for
    /// a file alone.
    fn events_told(&self) -> u64 {
        if self.directory.is_none() {
            return 0;
        }
        let of_ends = self.files.iter().filter_map(|file| file.reader.end());
        let of_ends = of_ends.filter_map(|end| end.counts.as_ref());
        let of_ends = of_ends.map(|counts| counts.events_stored);
        let of_summary = self.told.as_ref().map(|told| told.events_stored);
        of_ends.chain(of_summary).max().unwrap_or(0)
    }

    /// Events of parts that are not there, as the next part counts them.
    fn events_between(&self) -> u64 {
        if self.directory.is_none() {
            return 0;
        }
        let mut missing = 0;
        let mut counted = (&self.files[0].name, 0);
        for file in &self.files {
            if !counted.0.is_part_of(&file.name) {
                counted = (&file.name, 0);
            }
            let begin = file.begin().and_then(|begin| begin.file.as_ref());
            let before = begin.map_or(0, |part| part.events_before);
            missing = sum([missing, before.saturating_sub(counted.1)]);
            counted.1 = sum([before.max(counted.1), file.events()]);
        }
        missing
    }

    /// The next event that is whole, file by file; of one that is stored twice the first whole copy.
    ///
    /// # Errors
    /// Only errors of the input; damaged chunks and events are passed over. A file that went away or was
    /// replaced is an error once, and left out then.
    pub fn next_event(&mut self) -> io::Result<Option<EventView<'_>>> {
        while self.cursor < self.files.len() {
            let file = &mut self.files[self.cursor];
            let found = file.find_next();
            if found.is_err() {
                self.rows_known = self.rows.take().or(self.rows_known.take());
            }
            let Some(place) = found? else {
                self.cursor += 1;
                continue;
            };
            let file = &mut self.files[self.cursor];
            let trigger = file.reader.trigger_found(place);
            if trigger.is_none_or(|trigger| self.seen.insert(trigger)) {
                return Ok(self.files[self.cursor].reader.event_found(place));
            }
        }
        // What comes is in a file that may have grown.
        self.cursor = self.files.len();
        Ok(None)
    }

    /// Starts again at the first event.
    pub fn rewind(&mut self) {
        self.cursor = 0;
        self.seen = SeenTriggers::default();
        self.files.iter_mut().for_each(|f| f.reader.rewind());
    }

    /// The event of a trigger, found through the files' indexes; iteration goes on where it was.
    ///
    /// # Errors
    /// [`ReadError`] if the input fails or the event is damaged.
    pub fn event(&mut self, trigger: TriggerNumber) -> Result<Option<EventView<'_>>, ReadError> {
        let rows = self.event_rows()?;
        let Some(first) = rows.find(trigger).map(|place| place.file) else {
            return Ok(None);
        };
        let copies = rows.copies_of(trigger);
        let mut at = first;
        for copy in copies {
            if self.is_whole_in(at, trigger)? != Some(false) {
                break;
            }
            if self.is_whole_in(copy.file, trigger)? == Some(true) {
                at = copy.file;
            }
        }
        self.event_in(at, trigger)
    }

    /// Whether the event of a trigger that a file has is whole; `None` if it has none.
    fn is_whole_in(&mut self, file: usize, trigger: TriggerNumber) -> io::Result<Option<bool>> {
        match self.event_in(file, trigger) {
            Ok(found) => Ok(found.map(|_| true)),
            Err(ReadError::Damaged { .. }) => Ok(Some(false)),
            Err(ReadError::Io(error)) => Err(error),
        }
    }

    /// The event of a trigger that a file has.
    fn event_in(
        &mut self,
        file: usize,
        trigger: TriggerNumber,
    ) -> Result<Option<EventView<'_>>, ReadError> {
        let Some(file) = self.files.get_mut(file) else {
            return Ok(None);
        };
        let found = file.event(trigger);
        if matches!(found, Err(ReadError::Io(_))) {
            // The file may be left out from now on; events may have copies elsewhere.
            self.rows_known = self.rows.take().or(self.rows_known.take());
        }
        found
    }

    /// How many events the files have of which another copy has the row.
    ///
    /// # Errors
    /// Only errors of the input.
    pub fn events_doubled(&mut self) -> io::Result<u64> {
        let mut doubled = self.event_rows()?.copy_count();
        for file in self.files.iter_mut().filter(|file| file.lost.is_none()) {
            let index = file.reader.event_index();
            doubled += index
                .map_err(|error| FileError::of(&file.path, error))?
                .doubled();
        }
        Ok(doubled)
    }

    /// The places of all events, one a row: by trigger number, of equal ones the first file's. A
    /// refresh leaves the rows that were there as they are, and puts those of other events behind them.
    ///
    /// # Errors
    /// Only errors of the input.
    pub fn event_places(&mut self) -> io::Result<&[FolderPlace]> {
        Ok(self.event_rows()?.rows())
    }

    fn event_rows(&mut self) -> io::Result<&EventRows> {
        if self.rows.is_none() {
            let mut places = Vec::new();
            for (index, file) in self.files.iter_mut().enumerate() {
                places.extend(file.places()?.iter().map(|place| FolderPlace {
                    trigger: place.trigger,
                    file: index,
                    bytes: place.bytes,
                }));
            }
            let now = EventRows::new(places);
            self.rows = Some(match self.rows_known.take() {
                Some(known) => known.grown(now),
                None => now,
            });
        }
        Ok(self.rows.get_or_insert_default())
    }

    /// The histograms that were written last.
    ///
    /// # Errors
    /// Only errors of the input.
    pub fn histograms(&mut self) -> io::Result<Option<Vec<Histogram>>> {
        let mut last: Option<Vec<Histogram>> = None;
        // Those of the run are in the last part of a main file, which comes before the streams; the
        // files of further writers have none.
        for file in self.files.iter_mut().filter(|f| f.name.stream.is_empty()) {
            let found = file.histograms()?;
            last = found.filter(|found| !found.is_empty()).or(last);
        }
        match last {
            None => {
                (self.files.iter_mut()).try_fold(None, |last, file| Ok(file.histograms()?.or(last)))
            }
            found => Ok(found),
        }
    }

    /// Takes up what was written since: chunks, and files that are new. Of a directory or file that was
    /// named relative to the working directory, the place at which it was opened counts.
    ///
    /// # Errors
    /// Errors of the input, with [`FileError`] inside, and [`InputChange`] in that where a file was
    /// replaced or cut, or a new one is of another run: open the run anew.
    ///
    /// [`InputChange`]: crate::run_input::InputChange
    pub fn refresh(&mut self) -> io::Result<()> {
        self.files.iter().try_for_each(FolderFile::check)?;
        self.files.iter_mut().try_for_each(FolderFile::refresh)?;
        self.rows_known = self.rows.take().or(self.rows_known.take());
        let new = self.take_new_files();
        self.files.sort_by(|a, b| a.name.cmp(&b.name));
        // Every reader knows how far it was read: from the first that may have more.
        self.cursor = 0;
        self.end = self.joined_end();
        new
    }

    /// Opens the files that are new in the directory, or can be read now.
    fn take_new_files(&mut self) -> io::Result<()> {
        if self.directory.is_none() {
            return Ok(());
        }
        let directory = self.directory_absolute.clone();
        let paths = Self::paths(&directory).map_err(|error| FileError::of(&directory, error))?;
        self.unreadable.clear();
        for path in paths {
            let is_known = |file: &FolderFile| name_of(&file.path) == name_of(&path);
            if self.files.iter().any(is_known) {
                continue;
            }
            match FolderFile::open(&path, &self.open_files) {
                // A copy, whose events would count twice.
                Ok(file) if is_same_run(&self.files[0], &file) && file.other_name().is_some() => {}
                Ok(file) => {
                    self.take(file).map_err(|FolderError { path, error }| {
                        let error = io::Error::new(io::ErrorKind::InvalidData, error);
                        FileError::of(&path, error)
                    })?;
                }
                Err(OpenError::Io(error)) if is_too_many(&error) => {
                    return Err(FileError::of(&path, error));
                }
                Err(OpenError::Io(error)) => self.leave_out(&path, error),
                Err(_) => {}
            }
        }
        self.told = read_told(&directory);
        Ok(())
    }

    /// The end-of-run record of all files together.
    fn joined_end(&self) -> Option<RunEnd> {
        let mut joined: Option<RunEnd> = None;
        let mut events = 0;
        for file in &self.files {
            let end = file.reader.end()?;
            events = sum([events, end.events_stored]);
            if end.continued && self.directory.is_some() {
                continue;
            }
            match &mut joined {
                None => joined = Some(end.clone()),
                Some(joined) => {
                    joined.condition |= end.condition;
                    joined.recovered |= end.recovered;
                }
            }
        }
        let mut joined = joined?;
        joined.events_stored = sum([events, self.events_between(), self.events_elsewhere()]);
        Some(joined)
    }

    /// Reads every file from its start and says what is in the run.
    ///
    /// # Errors
    /// Only errors of the input.
    pub fn inspect(&mut self) -> io::Result<Inspection> {
        let found = self.inspect_all();
        // Also after an error, behind which nobody knows how far the files were read.
        self.rewind();
        found
    }

    fn inspect_all(&mut self) -> io::Result<Inspection> {
        let missing = self.files_missing();
        let several = self.files.len() > 1;
        let mut files = self.files.iter_mut();
        let first = files.next().expect("a run has at least one file");
        let mut seen = SeenTriggers::default();
        let mut found = first.inspect(several, &mut seen)?;
        for file in files {
            join(&mut found, file.inspect(several, &mut seen)?);
        }
        let elsewhere = sum([self.events_between(), self.events_elsewhere()]);
        found.events_missing = sum([found.events_missing, elsewhere]);
        if self.directory.is_some() {
            found.files = self.files.iter().map(|f| f.name.to_string()).collect();
            let names = missing.iter().filter_map(|path| path.file_name());
            found.files_missing = names.map(|n| n.to_string_lossy().into_owned()).collect();
            found.files_elsewhere = self.files_elsewhere();
        }
        if !self.has_all_files() || elsewhere > 0 {
            found.complete = false;
            found.condition |= Condition::INCOMPLETE;
        }
        self.list_unreadable(&mut found);
        Ok(found)
    }
}

/// The error of a file, with its name; `lost` if it went away or was replaced.
fn noted(path: &Path, lost: &mut Option<io::Error>, error: io::Error) -> io::Error {
    let inner = error.get_ref();
    let change = inner.and_then(|inner| inner.downcast_ref::<InputChange>());
    if change.is_some_and(InputChange::is_for_good) {
        *lost = Some(io::Error::new(error.kind(), error.to_string()));
    }
    FileError::of(path, error)
}

/// What the summary in a directory says of its files.
fn read_told(directory: &Path) -> Option<ToldFiles> {
    let summary = Some(directory.join("summary.json")).filter(|path| path.is_file());
    let summary = summary.and_then(|path| std::fs::read(path).ok());
    summary.and_then(|text| ToldFiles::read(&text))
}

/// Adds what is in another file of the run.
fn join(found: &mut Inspection, other: Inspection) {
    found.events += other.events;
    found.complete &= other.complete;
    found.checksum_errors += other.checksum_errors;
    let least = [found.first_trigger, other.first_trigger];
    found.first_trigger = least.into_iter().flatten().min();
    found.last_trigger = found.last_trigger.max(other.last_trigger);
    found.condition |= other.condition;
    found.events_incomplete += other.events_incomplete;
    found.events_flagged += other.events_flagged;
    found.events_missing = sum([found.events_missing, other.events_missing]);
    found.events_salvaged += other.events_salvaged;
    found.events_doubled += other.events_doubled;
    found.triggers_doubled.extend(other.triggers_doubled);
    found.recovered |= other.recovered;
    found.simulated |= other.simulated;
    found.chunks += other.chunks;
    found.bytes += other.bytes;
    if other.index == "scan" {
        found.index = other.index;
    }
    found.damaged_ranges += other.damaged_ranges;
    let room = DAMAGE_LISTED_MAX.saturating_sub(found.damage.len());
    found.damage.extend(other.damage.into_iter().take(room));
}

/// The name of a file without its directory.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn is_same_run(a: &FolderFile, b: &FolderFile) -> bool {
    let started = |file: &FolderFile| file.begin().map(|begin| begin.started_tai_ns);
    let differ = started(a).zip(started(b)).is_some_and(|(a, b)| a != b);
    a.reader.run() == b.reader.run() && !differ
}
