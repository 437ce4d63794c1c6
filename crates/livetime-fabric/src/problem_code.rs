//! Codes of the configuration problems that this crate raises, area F.
//!
//! F01xx are raised by [`SimulatedChainConfig::validate`], F02xx by [`Scenario::validate`]. Each has
//! a page under `docs/explain/`.
//!
//! [`Scenario::validate`]: crate::scenario::Scenario::validate
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

/// A network that cannot be built, or has pairs without a route.
pub const TOPOLOGY: ProblemCode = ProblemCode::new("F0201", "network cannot be built");
/// Traffic that does not fit the network or the level of the simulation.
pub const TRAFFIC: ProblemCode = ProblemCode::new("F0202", "traffic does not fit the network");
/// A shift schedule in which two sources need one link.
pub const SCHEDULE: ProblemCode = ProblemCode::new("F0203", "schedule is not free of conflicts");
/// Buffers, lanes or flow control that cannot work.
pub const BUFFERS: ProblemCode = ProblemCode::new("F0204", "buffers of the elements cannot work");
/// A law of sizes or arrivals that is none.
pub const LAW: ProblemCode = ProblemCode::new("F0205", "law of sizes or arrivals is not usable");
/// A level of simulation that cannot say anything about the scenario.
pub const LEVEL: ProblemCode = ProblemCode::new("F0206", "level does not fit the scenario");
/// Times of a scenario that give no result.
pub const TIMES: ProblemCode = ProblemCode::new("F0207", "times of the scenario are not usable");
/// An event builder that does not fit its network.
pub const BUILDER_NETWORK: ProblemCode =
    ProblemCode::new("F0208", "event builder does not fit the network");
