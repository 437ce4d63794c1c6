//! Codes of the problems that this crate raises, area S.
//!
//! [`crate::run_writer::WriterLimits::validate`] returns the first group; the program maps the
//! errors of this crate to the others. Each has a page under `docs/explain/`.

use livetime_wire::ProblemCode;

/// The chunk size of run files is out of range.
pub const CHUNK_SIZE: ProblemCode = ProblemCode::new("S0101", "chunk size out of range");
/// The largest event that a run file takes is out of range.
pub const EVENT_SIZE: ProblemCode = ProblemCode::new("S0102", "largest stored event out of range");
/// The index of a run file has no bound or an absurd one.
pub const INDEX_SIZE: ProblemCode = ProblemCode::new("S0103", "index bound out of range");
/// The output budget is smaller than one event.
pub const OUTPUT_LIMIT: ProblemCode = ProblemCode::new("S0105", "output budget too small");
/// Parts of a run file would be too small.
pub const FILE_SIZE: ProblemCode = ProblemCode::new("S0106", "parts of run files too small");
/// The name of a stream's file cannot be one.
pub const FILE_NAME: ProblemCode = ProblemCode::new("S0107", "unusable name of a stream's file");
/// A stream's file has no stream of its own.
pub const FILE_STREAMS: ProblemCode = ProblemCode::new("S0108", "file without a stream of its own");
/// The run file could not be written; most often the disk is full.
pub const WRITE_FAILED: ProblemCode = ProblemCode::new("S0201", "run file could not be written");
/// The file is not a run file.
pub const NOT_RUN_FILE: ProblemCode = ProblemCode::new("S0301", "not a run file");
/// Parts of a run file are damaged or missing.
pub const DAMAGED: ProblemCode = ProblemCode::new("S0302", "run file is damaged");
