//! An open run file as a Python class: its records as JSON, ranges of its events as arrays.
//!
//! Events are numbered from 0 in the order of their trigger numbers, those that came later behind
//! them, through the files' indexes, so that any range is read without what lies before it. Only one event and the columns of the range
//! are in memory. An event that is damaged is left out of every column alike, and listed. The
//! reader is locked only while the interpreter is released: a thread that waits for it can never
//! stop the one that has it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use livetime_client::{FileError, FolderError, RunFolder};
use livetime_store::damage::DamageList;
use livetime_store::histogram::histograms_to_json;
use livetime_store::run_reader::IndexOrigin;
use livetime_store::{Condition, Damage, OpenError, ReadError};
use livetime_wire::event::EventView;
use numpy::PyArray1;
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;

use crate::FormatError;
use crate::columns::{EventColumns, FragmentColumns, MaskColumns, MissingColumns, ObjectColumns};

/// Events between two looks at signals, so that Ctrl-C ends a long read.
const EVENTS_PER_SIGNAL_CHECK: usize = 4096;

type Array<'py, T> = Bound<'py, PyArray1<T>>;

/// One open run: all files of a directory, or one alone.
#[pyclass(frozen, module = "livetime._native")]
#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    reader: RunFolder,
    /// Damaged events that were looked up, by file; the reader lists only what it iterated over.
    damage: BTreeMap<PathBuf, DamageList>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("run", &self.reader.run())
            .finish_non_exhaustive()
    }
}

impl State {
    fn event_count(&mut self) -> std::io::Result<usize> {
        Ok(self.reader.event_places()?.len())
    }

    /// How often a checksum was wrong, in events that were looked up, too.
    fn checksum_errors(&self) -> u64 {
        let looked_up = self.damage.values().map(DamageList::checksum_errors);
        looked_up.sum::<u64>() + self.reader.checksum_errors()
    }

    /// Takes note of a damaged event that was looked up in a file.
    fn note_damage(&mut self, file: usize, damage: Damage) {
        if let Some(file) = self.reader.files().get(file) {
            let path = file.path().to_path_buf();
            self.damage.entry(path).or_default().push(damage);
        }
    }

    /// Calls `push` with each whole event of a range, and notes the damaged ones.
    fn read(
        &mut self,
        range: Range<usize>,
        push: &mut impl FnMut(&EventView<'_>),
    ) -> std::io::Result<()> {
        for index in range {
            // Another thread may have refreshed the file; its events only grow.
            let place = self.reader.event_places()?.get(index);
            let Some(place) = place.copied() else {
                break;
            };
            match self.reader.event(place.trigger) {
                Ok(Some(event)) => push(&event),
                Ok(None) => {}
                Err(ReadError::Io(error)) => return Err(error),
                Err(ReadError::Damaged { damage, .. }) => self.note_damage(place.file, damage),
            }
        }
        Ok(())
    }

    /// Whether the index has every event that was stored, and none that was read is damaged.
    fn has_all_events(&mut self) -> std::io::Result<bool> {
        let events = self.event_count()? as u64;
        let doubled = self.reader.events_doubled()?;
        let lacks = (self.reader.end()).is_some_and(|end| !end.has_stored(events, doubled));
        Ok(!lacks && self.damage.is_empty() && self.reader.events_damaged() == 0)
    }

    /// As `livetime inspect` judges, from what is known without reading every chunk: damage on which no
    /// event depends does not count.
    fn is_complete(&mut self) -> std::io::Result<bool> {
        let has_own_end = self.reader.end().is_some_and(|end| !end.recovered);
        let has_all_files = self.reader.files_lacking().is_empty();
        Ok(has_own_end && has_all_files && self.has_all_events()?)
    }

    /// As `livetime inspect` judges, from what is known without reading every chunk.
    fn condition(&mut self) -> std::io::Result<Condition> {
        let mut condition = self.reader.condition();
        if !self.has_all_events()? {
            condition |= Condition::INCOMPLETE;
        }
        if self.checksum_errors() > 0 {
            condition |= Condition::TAINTED;
        }
        Ok(condition)
    }
}

impl RunFile {
    /// Runs `work` on the reader without the interpreter's lock.
    fn with_state<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> std::io::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&mut self.lock()))
            .map_err(|error| self.io_error(&error))
    }

    /// The reader keeps only what it verified, so that it can be used after a panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `push` with each whole event of `start..stop`.
    fn read(
        &self,
        py: Python<'_>,
        start: usize,
        stop: usize,
        mut push: impl FnMut(&EventView<'_>) + Send,
    ) -> PyResult<()> {
        let events = self.with_state(py, State::event_count)?;
        if start > stop || stop > events {
            let message = format!("events {start} to {stop} of a run file that has {events}");
            return Err(PyIndexError::new_err(message));
        }
        py.detach(|| {
            for first in (start..stop).step_by(EVENTS_PER_SIGNAL_CHECK) {
                if first > start {
                    // The reader is free: what handles a signal may use the run.
                    Python::attach(|py| py.check_signals())?;
                }
                let last = stop.min(first.saturating_add(EVENTS_PER_SIGNAL_CHECK));
                self.lock()
                    .read(first..last, &mut push)
                    .map_err(|error| self.io_error(&error))?;
            }
            Ok(())
        })
    }

    fn io_error(&self, error: &std::io::Error) -> PyErr {
        os_error(&self.path, error)
    }
}

/// The `OSError` that Python itself would raise for this path, or for the file of the run that failed.
fn os_error(path: &Path, error: &std::io::Error) -> PyErr {
    let inner = error.get_ref();
    let of_file = inner.and_then(|inner| inner.downcast_ref::<FileError>());
    let (path, error) = match of_file {
        Some(FileError { path, error }) => (path.as_path(), error),
        None => (path, error),
    };
    match error.raw_os_error() {
        Some(code) => {
            let text = error.to_string();
            let text = text
                .split(" (os error")
                .next()
                .unwrap_or_default()
                .to_owned();
            // With the bytes of the path, whether they are text or not.
            PyOSError::new_err((code, text, path.as_os_str().to_owned()))
        }
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

fn open_state(path: &Path) -> PyResult<State> {
    let mut reader = RunFolder::open(path).map_err(|error| {
        let FolderError { path, error } = error;
        match error {
            OpenError::Io(error) => os_error(&path, &error),
            foreign => FormatError::new_err(format!("{}: {foreign}", path.display())),
        }
    })?;
    reader
        .event_places()
        .map_err(|error| os_error(path, &error))?;
    Ok(State {
        reader,
        damage: BTreeMap::new(),
    })
}

#[pymethods]
impl RunFile {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let state = py.detach(|| open_state(&path))?;
        Ok(Self {
            path,
            state: Mutex::new(state),
        })
    }

    /// The run number.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<u32> {
        self.with_state(py, |state| Ok(state.reader.run().0))
    }

    /// Number of events in the index.
    #[getter]
    fn event_count(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_state(py, State::event_count)
    }

    /// Bytes of the file.
    #[getter]
    fn file_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_state(py, |state| Ok(state.reader.input_bytes()))
    }

    /// `summary` or `scan`: where the list of chunks comes from.
    #[getter]
    fn origin(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with_state(py, |state| {
            Ok(match state.reader.origin() {
                IndexOrigin::Summary => "summary",
                IndexOrigin::Scan => "scan",
            })
        })
    }

    /// Whether the run closed the file and everything is there, as far as it was read.
    #[getter]
    fn complete(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_state(py, State::is_complete)
    }

    /// Condition flags as text.
    #[getter]
    fn condition(&self, py: Python<'_>) -> PyResult<String> {
        self.with_state(py, |state| Ok(state.condition()?.to_string()))
    }

    /// Smallest and largest trigger number, `None` without events.
    #[getter]
    fn trigger_bounds(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        self.with_state(py, |state| {
            let places = state.reader.event_places()?.iter();
            let triggers = places.map(|place| place.trigger.0);
            Ok(triggers.clone().min().zip(triggers.max()))
        })
    }

    /// Offset, bytes and reason of each range that was passed over, up to a bound.
    fn damage(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, String)>> {
        self.with_state(py, |state| {
            let several = state.reader.file_count() > 1;
            let mut rows = Vec::new();
            for file in state.reader.files() {
                let name = file.path().file_name().filter(|_| several);
                let name = name.map_or(String::new(), |n| format!("{}: ", n.to_string_lossy()));
                let listed = file.reader().damage().entries();
                // Of an event the index tells the bytes of its words, and who iterates those of its message.
                let is_listed = |damage: &&Damage| {
                    let same = |l: &Damage| (l.offset, l.reason) == (damage.offset, damage.reason);
                    listed.iter().any(same)
                };
                let looked_up = state.damage.get(file.path()).into_iter();
                let looked_up = looked_up.flat_map(DamageList::entries);
                let all = listed
                    .iter()
                    .chain(looked_up.filter(|damage| !is_listed(damage)));
                rows.extend(all.map(|damage| {
                    let text = format!("{name}{}", damage.reason);
                    (damage.offset, damage.bytes, text)
                }));
            }
            // A file that is not there has neither place nor length.
            let lacking = state.reader.files_lacking().into_iter();
            rows.extend(lacking.map(|file| (0, file.bytes, file.text)));
            Ok(rows)
        })
    }

    /// Whether the run has ended, as its files tell or its summary.
    #[getter]
    fn has_ended(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_state(py, |state| Ok(state.reader.has_ended()))
    }

    /// How many files of the run are not there or cannot be read.
    #[getter]
    fn files_lacking(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_state(py, |state| Ok(state.reader.files_lacking().len()))
    }

    /// What the run lacks of what it stored, in words; `None` if nothing. Reads every event.
    fn shortfall(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with_state(py, |state| {
            state.reader.rewind();
            Ok(())
        })?;
        let go_on = |state: &mut State| {
            for _ in 0..EVENTS_PER_SIGNAL_CHECK {
                if state.reader.next_event()?.is_none() {
                    state.reader.rewind();
                    return Ok(Some(state.reader.shortfall()));
                }
            }
            Ok(None)
        };
        loop {
            // Who handles a signal may use the run, even to go through all events, too: then they are
            // read once more from the first on.
            py.check_signals()?;
            if let Some(lacking) = self.with_state(py, go_on)? {
                return Ok(lacking.map(|lacking| lacking.to_string()));
            }
        }
    }

    /// The begin-of-run record as JSON.
    fn begin_json(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with_state(py, |state| {
            Ok(state
                .reader
                .begin()
                .map(serde_json::to_string)
                .transpose()?)
        })
    }

    /// The end-of-run record as JSON.
    fn end_json(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with_state(py, |state| {
            Ok(state.reader.end().map(serde_json::to_string).transpose()?)
        })
    }

    /// The histograms that were written last, as the JSON of a dictionary in UHI form.
    fn histograms_json(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with_state(py, |state| {
            let histograms = state.reader.histograms()?;
            Ok(histograms.map(|histograms| histograms_to_json(&histograms).to_string()))
        })
    }

    /// Reads every chunk and compares every checksum; the document `livetime.inspect/1`.
    fn inspect_json(&self, py: Python<'_>) -> PyResult<String> {
        self.with_state(py, |state| {
            Ok(serde_json::to_string(&state.reader.inspect()?)?)
        })
    }

    /// Takes up what was written since the file was opened.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.with_state(py, |state| {
            state.reader.refresh()?;
            state.event_count().map(|_| ())
        })
    }

    /// Bytes of the events of a range, as the index has them.
    fn range_bytes(&self, py: Python<'_>, start: usize, stop: usize) -> PyResult<u64> {
        self.with_state(py, |state| {
            let places = state.reader.event_places()?;
            let stop = stop.min(places.len());
            let range = places.get(start.min(stop)..stop).unwrap_or_default();
            Ok(range.iter().map(|place| u64::from(place.bytes)).sum())
        })
    }

    /// Rows of `EVENT_DTYPE`, as words.
    fn events<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Array<'py, u64>> {
        let mut columns = EventColumns::default();
        self.read(py, start, stop, |event| columns.push(event))?;
        Ok(PyArray1::from_vec(py, columns.rows))
    }

    /// Low and high words of the decisions, in turn.
    fn masks<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Array<'py, u64>> {
        let mut columns = MaskColumns::default();
        self.read(py, start, stop, |event| columns.push(event))?;
        Ok(PyArray1::from_vec(py, columns.masks))
    }

    /// Offsets by event, and the sources that are missing.
    fn missing<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
    ) -> PyResult<(Array<'py, i64>, Array<'py, u32>)> {
        let mut columns = MissingColumns::default();
        self.read(py, start, stop, |event| columns.push(event))?;
        let MissingColumns { offsets, sources } = columns;
        Ok((
            PyArray1::from_vec(py, offsets),
            PyArray1::from_vec(py, sources),
        ))
    }

    /// A dictionary of columns: offsets by event, source, status, number of words, and with
    /// `words` offsets by fragment and the words.
    #[pyo3(signature = (start, stop, sources, words))]
    fn fragments<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
        sources: Option<Vec<u32>>,
        words: bool,
    ) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
        let mut columns = FragmentColumns::new(sources, words);
        self.read(py, start, stop, |event| columns.push(event))?;
        let out = pyo3::types::PyDict::new(py);
        out.set_item("offsets", PyArray1::from_vec(py, columns.offsets))?;
        out.set_item("source", PyArray1::from_vec(py, columns.sources))?;
        out.set_item("status", PyArray1::from_vec(py, columns.statuses))?;
        out.set_item("word_count", PyArray1::from_vec(py, columns.word_counts))?;
        if words {
            out.set_item("word_offsets", PyArray1::from_vec(py, columns.word_offsets))?;
            out.set_item("words", PyArray1::from_vec(py, columns.words))?;
        }
        Ok(out)
    }

    /// A dictionary of columns: offsets by event, kind, pt, eta, phi, charge, dxy, and the number
    /// of fragments that could not be read.
    fn objects<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
    ) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
        let mut columns = ObjectColumns::default();
        self.read(py, start, stop, |event| columns.push(event))?;
        let out = pyo3::types::PyDict::new(py);
        out.set_item("offsets", PyArray1::from_vec(py, columns.offsets))?;
        out.set_item("kind", PyArray1::from_vec(py, columns.kinds))?;
        for (name, values) in ["pt", "eta", "phi", "charge", "dxy"]
            .iter()
            .zip(columns.values)
        {
            out.set_item(name, PyArray1::from_vec(py, values))?;
        }
        out.set_item("unreadable", columns.unreadable)?;
        Ok(out)
    }

    fn __repr__(&self) -> String {
        format!("RunFile({:?})", self.path)
    }
}
