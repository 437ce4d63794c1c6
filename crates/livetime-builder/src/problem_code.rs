//! Codes of the problems that this crate raises, area B.
//!
//! [`crate::BuilderConfig::validate`] and [`crate::PageDemand::check`] return them; each has a
//! page under `docs/explain/`.

use livetime_wire::ProblemCode;

/// The builder has no readout unit, or one has no source.
pub const NO_SOURCE: ProblemCode = ProblemCode::new("B0101", "readout unit without sources");
/// A number of units is out of range.
pub const UNIT_COUNT: ProblemCode = ProblemCode::new("B0102", "number of units out of range");
/// A source is listed twice.
pub const SOURCE_TWICE: ProblemCode = ProblemCode::new("B0103", "source listed twice");
/// The credits of a builder unit are out of range.
pub const CREDITS: ProblemCode = ProblemCode::new("B0104", "builder credits out of range");
/// The number of requests in a message is out of range.
pub const REQUESTS_PER_MESSAGE: ProblemCode =
    ProblemCode::new("B0105", "requests per message out of range");
/// A timeout, or the order of timeouts, is out of range.
pub const TIMEOUT: ProblemCode = ProblemCode::new("B0106", "builder timeout out of range");
/// The page pool of a readout unit cannot hold the events that the credits allow.
pub const POOL_TOO_SMALL: ProblemCode =
    ProblemCode::new("B0107", "page pool too small for the granted credits");
/// The event manager's queue is out of range.
pub const QUEUE: ProblemCode = ProblemCode::new("B0108", "event manager queue out of range");
/// The in-flight window of a filter unit is out of range.
pub const FILTER_WINDOW: ProblemCode = ProblemCode::new("B0109", "filter window out of range");
/// More sources than a readout unit or an event can have.
pub const TOO_MANY_SOURCES: ProblemCode = ProblemCode::new("B0110", "too many sources");
/// The credits in bytes do not cover one event.
pub const CREDIT_BYTES: ProblemCode = ProblemCode::new("B0112", "credits in bytes out of range");
/// The times after which a silent unit is suspected or dead are out of order.
pub const LIVENESS: ProblemCode = ProblemCode::new("B0113", "liveness times out of range");
/// The numbering of a shift schedule lets two senders meet.
pub const SCHEDULE: ProblemCode = ProblemCode::new("B0114", "shift schedule with conflicts");
/// The first step of two-step building names other units than it can.
pub const FIRST_STEP: ProblemCode = ProblemCode::new("B0115", "first step out of range");
/// There are more subfarms than builder units or filter units.
pub const SUBFARMS: ProblemCode = ProblemCode::new("B0116", "subfarms without units");
/// Subfarms cannot be divided among the writers.
pub const WRITERS: ProblemCode = ProblemCode::new("B0117", "subfarms not divisible by writers");
/// A block or a turn of traffic shaping is out of range.
pub const SHAPING: ProblemCode = ProblemCode::new("B0118", "traffic shaping out of range");
/// A table of triggers is too small, too large, or not a power of two.
pub const TRIGGER_WINDOW: ProblemCode = ProblemCode::new("B0111", "trigger table out of range");
