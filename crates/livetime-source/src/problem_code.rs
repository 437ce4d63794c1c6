//! Codes of the problems that this crate's configurations can have.

use livetime_wire::ProblemCode;

/// The trigger rate is not one that a source can have.
pub const RATE: ProblemCode = ProblemCode::new("L0301", "trigger rate cannot be produced");
/// A fraction of the event mix is not between 0 and 1, or they add up to more than 1.
pub const MIX: ProblemCode = ProblemCode::new("L0302", "fractions of the event mix do not add up");
/// Fragment sizes contradict each other or the formats.
pub const FRAGMENT_SIZE: ProblemCode =
    ProblemCode::new("L0303", "fragment size cannot be produced");
/// No data link, too many, or two with one source id.
pub const DATA_LINKS: ProblemCode = ProblemCode::new("L0304", "data links of the source");
/// The word limit of a trigger packet is outside what the format can do.
pub const PACKET_WORDS: ProblemCode = ProblemCode::new("L0305", "trigger packet limit");
/// The run has no end, or one that is reached before it begins.
pub const RUN_END: ProblemCode = ProblemCode::new("L0306", "end of the run cannot be reached");
/// A generator parameter is outside what makes physical sense.
pub const PHYSICS: ProblemCode = ProblemCode::new("L0307", "generator parameter out of range");
/// A test pattern is shorter than its framing or has an impossible error rate.
pub const PATTERN: ProblemCode = ProblemCode::new("L0308", "test pattern cannot be produced");
/// The SLIDAS card has no such block rate.
pub const SLIDAS: ProblemCode = ProblemCode::new("L0309", "no such block rate");
/// What is put together from the frames of front-ends cannot be.
pub const FRONT_ENDS: ProblemCode = ProblemCode::new("L0310", "front-ends of a user");
