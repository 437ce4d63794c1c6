//! Event builder protocol: readout unit, builder unit, event manager, filter dispatch.
//!
//! The units are plain structs that take messages of [`livetime_wire::message`] and are polled for
//! outputs; they hold no payload, open no socket and know no clock. Who drives them decides what
//! carries the messages ([`FrameLink`]); pages and fragment buffers belong to `livetime-readout`
//! and to the driver. Start with [`builder_unit`], which the other units serve, then
//! [`event_manager`] and [`readout_unit`]; [`builder_config`] holds every bound.
//!
//! ```text
//! supervisor            EVM                  BU                    RU                FU / writer
//!     │                  │◄──EventRequest────│                     │                      │
//!     │──Decision────────┼───────────────────┼────────────────────►│◄─fragments           │
//!     │──L2Accept───────►│                   │                     │                      │
//!     │                  │──Assignment──────►│                     │                      │
//!     │                  │  (spends credit)  │──FragmentRequest───►│                      │
//!     │                  │                   │◄───FragmentData─────│ one per fragment     │
//!     │                  │                   │ complete or timeout │                      │
//!     │                  │                   │──EventTicket────────┼─────────────────────►│
//!     │                  │                   │◄──EventDone─────────┼──────────────────────│
//!     │                  │                   │──Release───────────►│ pages free           │
//!     │                  │◄──Clear───────────│                     │                      │
//!     │                  │  (returns credit) │                     │                      │
//! ```
//!
//! # What happens when a message is lost or comes twice
//!
//! Every message may be repeated at any time: what it does depends on the state of its trigger, and
//! closed triggers are remembered ([`BuilderConfig::history`]). Of an event that was open for longer than
//! that, the time of its assignment says whether it is new (`builder_unit/assignment.rs`). Who waits for
//! an answer asks again:
//!
//! | lost | who notices | what it does |
//! |---|---|---|
//! | `EventRequest` | builder unit without a first assignment | repeats it; the event manager refuses more credits than configured |
//! | `Assignment`, `Clear` | event manager, after [`BuilderConfig::probe`] | repeats the assignment; a builder unit that is through with it clears again |
//! | `FragmentRequest`, `FragmentData` | builder unit, after [`BuilderConfig::retry`], and then after twice as long each time while none comes | asks again the units whose fragments miss, until the timeout |
//! | `Through`, `Phase` | readout unit in a [`linear_shift`] for which something waits, after a while | says again that it is through; the event manager tells it the phase, or asks those that are missing |
//! | `Release`, `ReleasePartial` | readout unit, after [`BuilderConfig::probe`] | sends one fragment again; a builder unit that is through with it releases again. Of a trigger that nobody has asked for it asks all builder units in turn (`readout_unit/disowned.rs`) |
//!
//! Who says nothing is not flooded with repetitions (`probe_pace.rs`).
//!
//! So these hops may be datagrams. A fragment on its way to a builder unit that is gone must not come to
//! the next one in its place, or its readout unit counts it wrongly: each life has sockets of its own.
//! The hops from the supervisor and to and from the filter units do not lose messages (rings of one
//! machine, or a stream); only the death of a unit breaks them.
//!
//! # How a run ends
//!
//! In order: sources stop, the driver goes on until the event manager and the builder units are
//! idle (`is_idle`), then [`ReadoutUnit::close`] finds nothing left. By force: `abort` on every
//! unit, go on until nothing is on its way, then `close` on builder units, go on until all are idle
//! or out of patience, since a release may be lost and is asked for after [`BuilderConfig::probe`], then
//! `close` on the others. Each unit counts only what is its own to count, so that the equations of
//! [`livetime_wire::count`] hold either way.

pub mod accept_log;
pub mod barrel_shifter;
pub mod block_assembler;
pub mod builder_config;
pub mod builder_unit;
mod closed_events;
mod dense_history;
mod event_assembly;
pub mod event_manager;
pub mod filter_answers;
pub mod filter_dispatch;
pub mod frame_link;
mod held_trigger;
mod held_triggers;
pub mod linear_shift;
pub mod liveness;
pub mod message_exchange;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod page_demand;
mod partial_log;
mod peer_table;
pub mod phase_barrier;
mod probe_pace;
pub mod problem_code;
pub mod readout_unit;
pub mod shaping_config;
pub mod shift_schedule;
mod source_map;
mod trigger_history;
mod trigger_table;
pub mod unit_memory;

pub use accept_log::AcceptLog;
pub use barrel_shifter::{BarrelShifter, Block, Pace};
pub use block_assembler::{BlockAssembler, BlockAssemblers};
pub use builder_config::{BuildMode, BuilderConfig};
pub use builder_unit::{BuilderCounts, BuilderUnit, MessageCopy};
pub use event_manager::{AcceptedTrigger, EventManager, EventManagerCounts};
pub use filter_answers::FilterAnswers;
pub use filter_dispatch::FilterDispatch;
pub use frame_link::{FrameLink, LinkFull};
pub use linear_shift::{LinearShift, ShiftFragment, ShiftOutput};
pub use liveness::{Life, Liveness};
pub use message_exchange::{Handled, MessageCounts, Outgoing, PeerEpochs};
pub use page_demand::PageDemand;
pub use phase_barrier::PhaseBarrier;
pub use readout_unit::{FragmentVerdict, FreeReason, ReadoutCounts, ReadoutOutput, ReadoutUnit};
pub use shaping_config::{ShapingConfig, ShapingPace};
pub use shift_schedule::ShiftSchedule;
