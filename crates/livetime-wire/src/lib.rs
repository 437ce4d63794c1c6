//! Identifiers, times, quantities with units, loss causes, and every byte format of Livetime.
//!
//! This crate says what the numbers and bytes *mean*; it moves none of them. Each format has a
//! checked view over received words (`View::new_checked`, never panics on any input) and an owned
//! representation that emits the same words, with a golden file under `docs/formats/`. Start with
//! [`fragment`] for what a detector link carries, then [`trigger_packet`], [`message`] and
//! [`event`].
//!
//! Words in pages, files and messages are little-endian `u32`; the crate refuses to compile for a
//! big-endian machine, where a page could not be viewed in place.

#[cfg(not(target_endian = "little"))]
compile_error!("livetime views little-endian words in place and needs a little-endian machine");

pub mod bytestream;
pub mod bytestream_frame;
pub mod count;
pub mod crc;
pub mod crc16;
pub mod decision;
pub mod event;
pub mod fragment;
pub mod fragment_descriptor;
pub mod fragment_message;
pub mod front_end_frame;
pub mod id;
pub mod link_frame;
pub mod link_return;
pub mod loss;
pub mod message;
pub mod message_datagram;
pub mod object;
pub mod part_words;
pub mod problem;
pub mod quantity;
pub mod slink;
pub mod time;
pub mod timing_coefficient;
pub mod timing_message;
pub mod timing_read_back;
pub mod timing_record;
pub mod trigger_packet;

pub use count::{ChainCounts, ConservationProblem};
pub use decision::{DecisionDigest, L2Mask, L2Reply};
pub use id::{EventNumber, RunNumber, SourceId, TriggerNumber, UnitId, UnitKind};
pub use loss::{LossArea, LossCause, LossCounts};
pub use problem::{Problem, ProblemCode};
pub use quantity::{BitRate, ByteSize, RateHz};
pub use time::{DurationNs, RunNs, TaiNs};
pub use timing_coefficient::CoefficientSet;
pub use timing_message::{EventId, TimingMessage};
pub use timing_record::{PriorityClass, RecordFlags, RecordKind, TimingRecord, TimingRecordError};

/// Whether this build checks its own invariants and every overflow on the way. The release profile
/// does, tests run in it; the distribution profile, which is installed and measured, does not.
pub const ASSERTIONS: bool = cfg!(debug_assertions);
