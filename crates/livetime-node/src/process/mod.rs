//! A chain whose roles are processes.
//!
//! The parent makes every ring, pool and counter page of the [`crate::chain_plan::ChainPlan`],
//! starts one process per role and passes the descriptors over an inherited socket pair, the
//! writer's run file among them. Data never passes through the parent. Start with [`process_group`] (the parent's side) and [`role_process`] (the child's
//! side); what they say to each other is in [`control_message`].
//!
//! Of a run over several hosts the parent has no memory in common with the roles: each host makes
//! what its own share ([`host_agent`]), and the parent steers them over [`role_hosts`].

mod begun_file;
pub mod control_message;
mod cut_streams;
pub mod event_watch;
mod farewell;
pub mod filter_steering;
mod forced_end;
pub mod host_agent;
pub mod host_document;
mod host_streams;
mod interface_mtu;
mod left_file;
pub mod lost_group;
pub mod lost_unit;
mod passed_ends;
pub mod process_group;
pub mod recovery;
mod rest_watch;
mod returned_manager;
mod returned_readout;
mod role_child;
pub mod role_hosts;
pub mod role_loop;
pub mod role_process;
pub mod run_page;
mod unasked_events;
pub mod unit_start;
mod writer_lock;
pub mod writer_process;

pub(crate) use cut_streams::CutStreams;
pub use event_watch::FilterFailure;
pub use filter_steering::FilterChange;
pub use host_agent::HostAgent;
pub use host_document::{HOST_PROTOCOL, HostOrder, Preparation};
pub use interface_mtu::interface_mtu;
pub use lost_group::LostGroupLeft;
pub use process_group::{AskEnd, Launcher, ProcessGroup};
pub use recovery::{FaultTime, Incident, LossPolicy, OnLoss, ProcessFault};
pub use role_hosts::RoleHosts;
pub use role_process::serve_role;

pub(crate) use livetime_shm::with_limit;
use livetime_shm::{DoorbellError, PeerError, PoolError, RingError, WordsError};

use crate::machine_memory::MemoryShort;
use crate::role_ends::MissingEnd;
use crate::run_file::RunFileError;

/// Why a role process could not be started, or could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The machine has less memory than the run takes.
    #[error(transparent)]
    Memory(#[from] MemoryShort),
    /// Two roles could not be connected by a stream.
    #[error("cannot connect {ends}: {error}")]
    Stream {
        /// The two units.
        ends: String,
        /// Why.
        error: std::io::Error,
    },
    /// No memory for the page of counters, or not one.
    #[error("cannot share counters: {0}")]
    Words(#[from] WordsError),
    /// No memory for a doorbell, or not one.
    #[error("cannot share a doorbell: {0}")]
    Doorbell(#[from] DoorbellError),
    /// A pool could not be made or opened.
    #[error("cannot share a page pool: {0}")]
    Pool(#[from] PoolError),
    /// The run file could not be taken up.
    #[error(transparent)]
    File(#[from] RunFileError),
    /// A ring could not be made or opened.
    #[error("cannot share a ring: {0}")]
    Ring(#[from] RingError),
    /// An end was not passed.
    #[error("a role cannot be made: {0}")]
    Plan(#[from] MissingEnd),
    /// The socket to the other side failed.
    #[error("control socket of {role}: {error}")]
    Control {
        /// The role at one end.
        role: String,
        /// Why.
        error: PeerError,
    },
    /// A process or thread could not be started.
    #[error("cannot start {role}: {}", with_limit(error))]
    Start {
        /// The role.
        role: String,
        /// Why.
        error: std::io::Error,
    },
    /// The other side is of another program or configuration.
    #[error("{role} has {what} {found}, expected {expected}")]
    Stranger {
        /// The role.
        role: String,
        /// What differs.
        what: &'static str,
        /// Value found.
        found: String,
        /// Value needed.
        expected: String,
    },
    /// The role gave up before the start.
    #[error("{role} refused to start: {reason}")]
    Refused {
        /// The role.
        role: String,
        /// Why.
        reason: String,
    },
    /// The other side said something out of turn.
    #[error("{role} sent {found} where {expected} was due")]
    OutOfTurn {
        /// The role.
        role: String,
        /// What came.
        found: String,
        /// What should have come.
        expected: &'static str,
    },
}
