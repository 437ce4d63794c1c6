//! Codes of the problems that this crate's configurations raise, area L.
//!
//! Each has a page under `docs/explain/`. They are raised by the `validate` functions of
//! [`crate::link_config`], [`crate::link_source`] and [`crate::fragment_buffer`].

use livetime_wire::ProblemCode;

/// The page size is not one that a card can fill.
pub const PAGE_SIZE: ProblemCode = ProblemCode::new("L0101", "page size out of range");
/// The link has too few pages to come out of XOFF.
pub const PAGE_COUNT: ProblemCode = ProblemCode::new("L0102", "too few pages on the link");
/// The request or acknowledge FIFO depth is out of range.
pub const FIFO_DEPTH: ProblemCode = ProblemCode::new("L0103", "FIFO depth out of range");
/// XOFF comes too late for the words in flight.
pub const XOFF_TOO_LATE: ProblemCode =
    ProblemCode::new("L0104", "XOFF too late for the words in flight");
/// XON lies below XOFF.
pub const XON_BELOW_XOFF: ProblemCode = ProblemCode::new("L0105", "XON threshold below XOFF");
/// The longest fragment does not fit into the pages that one fragment may take.
pub const FRAGMENT_SIZE: ProblemCode = ProblemCode::new("L0106", "longest fragment out of range");
/// Begin and end word cannot be told apart.
pub const CONTROL_WORDS: ProblemCode =
    ProblemCode::new("L0107", "begin and end control word are equal");
/// More words after LFF# than the link allows.
pub const GRACE_WORDS: ProblemCode = ProblemCode::new("L0108", "too many words after link full");
/// The fragment buffer is empty or too large.
pub const BUFFER_SIZE: ProblemCode = ProblemCode::new("L0109", "fragment buffer out of range");
/// A figure of a link card is out of range.
pub const CARD_LINK: ProblemCode = ProblemCode::new("L0110", "link card out of range");
/// A figure of a card is out of range.
pub const CARD: ProblemCode = ProblemCode::new("L0111", "card out of range");
/// A reader is to be woken after no fragment, or after too many.
pub const NOTIFICATION: ProblemCode =
    ProblemCode::new("L0112", "wake-up after no or many fragments");
