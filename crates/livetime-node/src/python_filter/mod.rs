//! Filters in Python: an interpreter beside each filter unit, which gets batches of events.
//!
//! The interpreter is a process of its own. It maps the pages of the readout units and one more
//! piece of memory, the [`batch_arena`], and sees the events of a batch as columns there; fragments
//! are looked at where they lie. What it says of them comes back in the arena. [`BatchFilter`] holds
//! the batches and finds the event on which a filter fails; [`interpreter`] is the process;
//! `python/src/livetime/filter_worker.py` is the other side.
//!
//! ```text
//! filter unit ──batch, range──► socket ──► interpreter        events: columns in the arena
//!             ◄──fills, done or failed──┘                     fragments: views of the pools' pages
//! ```
//! Budget per batch of `n` events: each object is written once into the arena, a fragment not at all
//! unless its pages do not follow one another; two packets over a socket; no allocation here after
//! the first batches. The next batch is asked about while one is judged, so that the interpreter does
//! not wait for the unit between them.

mod answer_bell;
pub mod batch_arena;
pub mod batch_columns;
pub mod batch_filter;
pub mod filter_fill;
pub mod interpreter;
pub mod printed_output;

use std::path::{Path, PathBuf};

use livetime_wire::{ByteSize, DurationNs, Problem, ProblemCode};

pub use batch_columns::BatchRow;
pub use batch_filter::{BatchFilter, BatchVerdict};
pub use filter_fill::FilterHistograms;

/// Parameters of a Python filter that it cannot work with.
pub const PYTHON_FILTER: ProblemCode = ProblemCode::new("R0104", "Python filter is not usable");

/// Most streams that a filter may name: the last bit of the field is the error stream.
pub const STREAMS_MAX: usize = 15;
/// Most events of a batch.
pub const BATCH_MAX: usize = 65_536;

/// The environment variable that names the interpreter with the package `livetime`.
pub const INTERPRETER: &str = "LIVETIME_PYTHON";

/// The interpreter where the configuration names none: that of [`INTERPRETER`], or `python3`.
pub fn default_interpreter() -> PathBuf {
    std::env::var_os(INTERPRETER).map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// Where a Python filter is found, and within which bounds it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct PythonConfig {
    /// The file with the function, relative to the working directory.
    pub file: PathBuf,
    /// The copy of it that is loaded in its place, as a run keeps one: people go on working on the
    /// file. What it imports or looks for lies beside the file all the same. `None`, the default,
    /// loads the file.
    pub kept: Option<PathBuf>,
    /// The function, or a `livetime.Filter`.
    pub function: String,
    /// The interpreter, `python3` by default; it must find the package `livetime`.
    pub interpreter: PathBuf,
    /// Most events of a batch; `None` leaves it to the filter, 256 by default. Larger batches cost
    /// latency and credits, smaller ones time per event.
    pub batch: Option<usize>,
    /// Longest time for which events wait for their batch to be full; `None` leaves it to the
    /// filter, 5 ms by default.
    pub wait: Option<DurationNs>,
    /// Names of the streams, by their bit.
    pub streams: Vec<String>,
    /// Names of the Level-2 paths with their bits in the decision.
    pub paths: Vec<(String, u8)>,
    /// Memory that the interpreter may take over what it has at the start, 4 GiB by default; 0 for
    /// no bound. Beyond it a filter gets a `MemoryError`.
    pub memory_max: ByteSize,
    /// Longest time that the filter may work on a batch, 10 s by default; then its process is
    /// killed, and the event is looked for.
    pub time_limit: DurationNs,
    /// How often an event that the interpreter died of is tried again.
    pub retries: u32,
}

impl PythonConfig {
    /// The function `function` in `file` with the defaults.
    pub fn new(file: PathBuf, function: String) -> Self {
        Self {
            file,
            kept: None,
            function,
            interpreter: PathBuf::from("python3"),
            batch: None,
            wait: None,
            streams: Vec::new(),
            paths: Vec::new(),
            memory_max: ByteSize(4 << 30),
            time_limit: DurationNs(10 * DurationNs::SECOND.0),
            retries: 1,
        }
    }

    /// The file that is loaded.
    pub fn loaded_file(&self) -> &Path {
        self.kept.as_ref().unwrap_or(&self.file)
    }

    /// Checks the values; `path` is the prefix of their keys, such as `filter`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let problem = |key: &str, found: String, allowed: &str, help: &str| {
            Problem::new(PYTHON_FILTER, format!("{path}.{key}"), found, allowed, help)
        };
        let mut problems = Vec::new();
        if self.streams.len() > STREAMS_MAX {
            let found = format!("{} streams", self.streams.len());
            let help = "an event has a bit for each stream; leave some out";
            problems.push(problem("streams", found, "at most 15", help));
        }
        for (nth, name) in self.streams.iter().enumerate() {
            if name.is_empty() || name == "error" || self.streams[..nth].contains(name) {
                let help = "give each stream a name of its own";
                let allowed = "names, each once, without `error`";
                problems.push(problem("streams", format!("\"{name}\""), allowed, help));
            }
        }
        if self.function.is_empty() || self.file.as_os_str().is_empty() {
            let found = format!("\"{}:{}\"", self.file.display(), self.function);
            let help = "name the file and the function in it, such as \"my_filter.py:select\"";
            problems.push(problem("python", found, "\"FILE:FUNCTION\"", help));
        }
        if self
            .batch
            .is_some_and(|batch| !(1..=BATCH_MAX).contains(&batch))
        {
            let found = self.batch.unwrap_or(0).to_string();
            let help = "256 is a good size to start with";
            problems.push(problem("batch", found, "1 to 65536", help));
        }
        problems
    }
}
