//! Event sources: what stands in for a detector and its front-ends.
//!
//! An [`EventGenerator`] makes event number `k` from (seed, `k`) alone: the [`PhysicsGenerator`]
//! draws one, [`RecordedEvents`] looks one up. A [`TriggerSource`] says when the next one is
//! offered, the [`PacketEncoder`] turns it into a trigger packet and the [`FragmentWriter`] spreads
//! it over the data links. [`pattern`] makes and checks the test patterns of a SLIDAS card instead.
//!
//! Nothing here reads a clock, a file or the network: time comes in as [`RunNs`] and recorded
//! events through a reader, so that the simulator and the real driver see the same events. Start
//! with [`trigger_source`]; the words are defined in `livetime-wire`.
//!
//! [`RunNs`]: livetime_wire::RunNs

pub mod arrival;
mod counter_random;
pub mod encoder;
pub mod event_generator;
pub mod fragment_writer;
pub mod front_end_events;
mod kinematics;
pub mod pattern;
pub mod pattern_source;
pub mod payload;
pub mod physics;
pub mod physics_config;
pub mod problem_code;
pub mod recorded;
pub mod slidas;
pub mod source_config;
pub mod source_event;
pub mod trigger_pause;
pub mod trigger_source;

pub use arrival::{ArrivalConfig, ArrivalKind, ArrivalProcess};
pub use encoder::{PacketCounts, PacketEncoder, PacketHeader};
pub use event_generator::EventGenerator;
pub use fragment_writer::{
    FragmentConfig, FragmentCounts, FragmentTrigger, FragmentWriter, PayloadKind,
};
pub use front_end_events::{FrameTaken, FrontEndCounts, FrontEndEvents, FrontEndEventsConfig};
pub use payload::{PayloadError, PayloadPattern, check_payload};
pub use physics::{EventClass, PhysicsGenerator};
pub use physics_config::PhysicsConfig;
pub use recorded::{RecordedError, RecordedEvents, RecordedProblem};
pub use slidas::{Slidas, SlidasConfig, SlidasDelivery, SlidasFraming};
pub use source_config::SourceConfig;
pub use source_event::{SourceEvent, SourceObject};
pub use trigger_pause::TriggerPause;
pub use trigger_source::{
    Buffers, Offer, OfferMode, RefusalCause, SourcePoll, TriggerSource, TriggerSourceConfig,
    TriggerSourceCounts,
};
