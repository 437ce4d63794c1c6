//! Codes of the configuration problems that this crate raises, area G.
//!
//! G01xx are raised by receivers and their channels, G02xx by function generators, G03xx by
//! spills. Each has a page under `docs/explain/`.

use livetime_wire::ProblemCode;

/// The queue of a channel is out of range.
pub const QUEUE: ProblemCode = ProblemCode::new("G0101", "action queue out of range");
/// The number of sinks is out of range.
pub const SINKS: ProblemCode = ProblemCode::new("G0102", "number of sinks out of range");
/// The number of conditions is out of range.
pub const CONDITIONS: ProblemCode = ProblemCode::new("G0103", "number of conditions out of range");
/// The stable time of an input is not one that the hardware has.
pub const STABLE_TIME: ProblemCode = ProblemCode::new("G0104", "stable time is not usable");
/// The prefix of an input uses the bit of the edge.
pub const INPUT_PREFIX: ProblemCode = ProblemCode::new("G0105", "input prefix uses the edge bit");
/// A drift that no clock has.
pub const DRIFT: ProblemCode = ProblemCode::new("G0106", "clock drift out of range");
/// A step after which a clock shows no time, or one too far from the true one.
pub const CLOCK_STEP: ProblemCode = ProblemCode::new("G0107", "clock step out of range");

/// A spill's period is shorter than its schedule.
pub const SPILL_PERIOD: ProblemCode = ProblemCode::new("G0301", "period of the spill too short");
/// Ramps that do not fit the spill.
pub const SPILL_RAMP: ProblemCode = ProblemCode::new("G0302", "ramp does not fit the spill");
/// Messages of a spill that exclude each other.
pub const SPILL_MESSAGES: ProblemCode =
    ProblemCode::new("G0303", "messages of the spill exclude each other");
/// A grid for the first turn of a spill that is none, or too coarse to wait for.
pub const SPILL_ALIGN: ProblemCode =
    ProblemCode::new("G0304", "alignment of the spill out of range");
