//! The real drivers around the protocol cores: memory, workers, rings, clocks and disks.
//!
//! Every role of the chain is a struct that polls its core and moves what the core says; no
//! protocol is decided here. The simulator (`livetime-fabric`) drives the same cores. Start with
//! [`chain`], which joins everything, then [`role::front_end`] and the other roles in the order of
//! the data; [`worker`] is the thread that polls them.

pub mod builder_transport;
pub mod building_group;
pub mod chain;
pub mod chain_config;
pub mod chain_outcome;
pub mod chain_plan;
pub mod completion;
pub mod counter_block;
pub mod emulated_link;
pub mod event_fault;
pub mod front_end_server;
pub mod hand_over_stamp;
pub mod link;
pub mod machine_memory;
pub mod message_ring;
mod output_file;
pub mod packet_link;
pub mod packet_log;
pub mod pooled_event;
pub mod pooled_page;
pub mod process;
pub mod python_filter;
pub mod recorded_chain;
pub mod role;
pub mod role_ends;
pub mod run_clock;
pub mod run_file;
mod settlement;
pub mod snapshot;
mod socket_watch;
pub mod stream_mender;
pub mod transport;
mod unclaimed;
mod unit_network;
pub mod worker;

pub use builder_transport::BuilderTransport;
pub use chain::{Chain, ChainError};
pub use chain_config::{ChainConfig, ChainSpill, DataLinkConfig, FilterConfig, WorkerConfig};
pub use chain_outcome::{ChainOutcome, latency_summary, stored_latency};
pub use role::flagged_fragments::FlaggedFragments;
pub use role::front_end::LinkFault;
pub use run_file::{RunFile, RunFileError, RunFiles};
pub use snapshot::{RateSample, RateTotals, Snapshot};
