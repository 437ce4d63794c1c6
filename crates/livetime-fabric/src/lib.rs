//! Deterministic discrete-event simulation that drives the protocol cores.
//!
//! The same structs that run on real links run here in one thread, on a virtual clock of integer
//! picoseconds, with seeded randomness and injected faults: a seed is a story that can be told
//! again. A simulation has no threads, no sockets, no wall clock and no unordered maps; [`replica`]
//! runs several side by side. Start with
//! [`chain`] for the whole chain, or with [`kernel`] for how a simulation runs, then [`fault`] for
//! what can be done to it.
//!
//! | module | what it gives |
//! |---|---|
//! | [`chain`] | [`SimulatedChain`]: every unit of the chain on simulated lines and hosts |
//! | [`network`] | [`network::Topology`] and packets that cross it: switching fabrics link by link |
//! | [`builder_network`] | the builder's own protocol on such networks, on hosts with costs |
//! | [`scenario`] | [`scenario::Scenario`]: one description for all levels, checked and run |
//! | [`adapter`], [`barrel_builder`] | models of the demonstrators of the CMS studies |
//! | [`flit`] | the same networks flit by flit, with virtual channels |
//! | [`plan`] | which networks and disciplines carry an event builder |
//! | [`gate`] | what all this must reproduce before it is worth anything |
//! | [`cell`], [`analytic`] | switches of fixed cells in slots; closed forms and exact chains |
//! | [`kernel`], [`scheduler`] | [`Simulation`] of a [`World`]: events in order, limits, reports |
//! | [`time`] | [`SimPs`], [`DurationPs`]: integer picoseconds, floored to nanoseconds for cores |
//! | [`queue`], [`timing_wheel`], [`heap_queue`] | the order (time, class, sequence) |
//! | [`random`] | one stream of random numbers per (seed, node, purpose) |
//! | [`trace`] | 64-bit hash of a run, the last records, the first divergence of two runs |
//! | [`fault_plan`], [`fault`] | drop, duplicate, delay, reorder; dead and paused nodes |
//! | [`swarm`] | the builder's protocol under all faults at once, seed after seed |
//! | [`host_bus`] | the hosts of the link papers: cards on buses, with time |
//! | [`wake_up`] | timeouts of a core as few events |

pub mod adapter;
pub mod address;
pub mod analytic;
pub mod barrel_builder;
pub mod builder_network;
pub mod cell;
pub mod chain;
pub mod fault;
pub mod fault_plan;
pub mod flit;
pub mod gate;
pub mod heap_queue;
pub mod host_bus;
pub mod kernel;
pub mod matcher;
pub mod network;
pub mod plan;
pub mod problem_code;
pub mod queue;
pub mod random;
pub mod replica;
pub mod scenario;
pub mod scheduler;
pub mod swarm;
pub mod time;
pub mod timing_wheel;
pub mod trace;
pub mod wake_up;

pub use address::{LinkId, NodeId};
pub use chain::{SimulatedChain, SimulatedChainConfig, SimulatedChainError, SimulatedOutcome};
pub use fault::{Admission, Arrival, FaultCounts, FaultShim, Transit};
pub use fault_plan::{
    FaultAction, FaultPlan, FaultPlanError, FaultProfile, Occasion, Outage, OutageKind,
    ScriptedFault, TimeWindow,
};
pub use kernel::{RunLimits, RunReport, Simulation, SimulationConfig, StopReason, World};
pub use queue::{EventClass, EventKey, EventQueue, Lane, QueueKind};
pub use random::{Probability, Purpose, RandomStream, RandomStreams};
pub use scheduler::Scheduler;
pub use time::{DurationPs, SimPs};
pub use trace::{EventLabel, Trace, TraceHash, TraceRecord};
pub use wake_up::WakeUp;
