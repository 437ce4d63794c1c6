//! Codes of the configuration problems that this crate raises, area F.
//!
//! F01xx are raised by [`SimulatedChainConfig::validate`]. Each has a page under `docs/explain/`.
//!
//! [`SimulatedChainConfig::validate`]: crate::chain::SimulatedChainConfig::validate

use livetime_wire::ProblemCode;

/// Data links, sources and readout units do not name each other.
pub const LINK_LAYOUT: ProblemCode =
    ProblemCode::new("F0101", "links, sources and readout units do not match");
/// A line without rate, or one that carries more words after XOFF than its receiver allows for.
pub const LINE_TIMING: ProblemCode = ProblemCode::new("F0102", "simulated line is not usable");
/// A front-end that can hold no event.
pub const FRONT_END_EVENTS: ProblemCode =
    ProblemCode::new("F0103", "front-end without room for an event");
/// A fault that cannot be carried out, or that the protocol is not made for.
pub const FAULT_PLAN: ProblemCode = ProblemCode::new("F0104", "fault that cannot be simulated");
/// A link outage of a link that does not exist, or of no length.
pub const LINK_OUTAGE: ProblemCode = ProblemCode::new("F0105", "link outage is not usable");
