//! Switching fabrics link by link, and packets that cross them (level F2 of the simulator).
//!
//! A [`Topology`] says what is connected with what and which routes there are; the
//! engines move packets over it in simulated time: [`wormhole`] without buffers,
//! [`buffered`] with.
//! Fixed cells in synchronous slots are in [`crate::cell`], closed forms
//! in [`crate::analytic`]. Times are integer picoseconds; results do not depend on the machine.

pub mod arbiter;
pub mod arrival;
pub mod buffered;
pub mod latencies;
pub(crate) mod link_meter;
pub mod link_report;
pub mod measure;
pub mod outcome;
pub(crate) mod packet_source;
pub(crate) mod port;
pub mod size_law;
pub mod standstill;
pub mod topology;
pub mod traffic;
pub mod wormhole;

pub use crate::matcher::Matching;
pub use arbiter::Arbiter;
pub use arrival::Arrival;
pub use buffered::{BufferPlace, Buffering, FlowControl, Forwarding, Queueing};
pub use latencies::Latencies;
pub use link_report::{BufferOwner, BufferUse, LinkReport, LinkUse, Spread};
pub use measure::Estimate;
pub use outcome::NetworkOutcome;
pub use size_law::SizeLaw;
pub use standstill::Standstill;
pub use topology::{RoutePolicy, Topology, TopologyError};
pub use traffic::{Pattern, Traffic};
pub use wormhole::Load;
