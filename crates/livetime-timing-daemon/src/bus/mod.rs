//! The D-Bus face of the timing daemon: `org.livetime.Timing1`, on a bus and peer to peer.
//!
//! Interfaces and member names are close to what users of SAFTlib know. Each method finds out who
//! calls, asks [`Control`](crate::control::Control), and turns the answer into D-Bus; no rule is
//! decided here, and bulk data never goes through messages but through passed descriptors. The same
//! objects are served on every connection. [`server`] joins connections and objects, [`listener`] accepts peers.
//!
//! ```text
//! /org/livetime/Timing1                    Daemon
//!                      /tr0                TimingReceiver
//!                          /mfg           MasterFunctionGenerator
//!                          /IN1           InputEventSource
//!                          /NAME           ActionSink, Owned, SoftwareActionSink or OutputActionSink
//!                               /c17_0     Condition, Owned, SoftwareCondition or OutputCondition
//! ```
//!
//! Calls of one connection are served in their order, those of the standard interfaces a few at a
//! time ([`peer_stream`]), so that a client that sends and does not read stops itself; signals wait
//! in a bounded [`mailbox`] per connection.

pub mod condition_object;
pub mod generator_object;
pub mod handshakes;
pub mod input_object;
pub mod listener;
pub mod mailbox;
pub mod peer_stream;
mod readiness;
pub mod receiver_object;
pub mod server;
pub mod sink_object;

use livetime_timing::{AccessError, ConditionId, SinkError, SinkId, TransactionError};
use zbus::{OwnedObjectPath, fdo};

use crate::control::ControlError;

pub use server::Server;

/// Name on a bus, and prefix of all interfaces.
pub const BUS_NAME: &str = "org.livetime.Timing1";
/// Path of the daemon.
pub const ROOT_PATH: &str = "/org/livetime/Timing1";
/// Path of the receiver.
pub const RECEIVER_PATH: &str = "/org/livetime/Timing1/tr0";

/// Name of an input, from its index.
pub fn input_name(index: u16) -> String {
    format!("IN{}", index + 1)
}

/// An object that comes and goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A sink, by its name.
    Sink(SinkId, String),
    /// A condition, in a sink of this name.
    Condition(ConditionId, String),
}

impl Object {
    /// Its path.
    pub fn path(&self) -> String {
        match self {
            Self::Sink(_, name) => format!("{RECEIVER_PATH}/{name}"),
            Self::Condition(id, sink) => {
                format!("{RECEIVER_PATH}/{sink}/c{}_{}", id.slot(), id.generation())
            }
        }
    }
}

/// The condition of a path's last part, `c17_0`.
pub fn condition_of_name(name: &str) -> Option<ConditionId> {
    let (slot, generation) = name.strip_prefix('c')?.split_once('_')?;
    let (slot, generation): (u32, u32) = (slot.parse().ok()?, generation.parse().ok()?);
    Some(ConditionId::from_bits(
        u64::from(generation) << 32 | u64::from(slot),
    ))
}

fn owned_path(path: String) -> fdo::Result<OwnedObjectPath> {
    OwnedObjectPath::try_from(path).map_err(|error| fdo::Error::Failed(error.to_string()))
}

/// The D-Bus error of a refusal: the name says what kind it is, the text what and why.
pub(crate) fn to_error(error: impl Into<ControlError>) -> fdo::Error {
    let error = error.into();
    let text = error.to_string();
    match error {
        ControlError::Access(_)
        | ControlError::Gone { .. }
        | ControlError::Nobody { .. }
        | ControlError::Sink(SinkError::Access(_) | SinkError::ForeignCondition { .. })
        | ControlError::Transaction(TransactionError::Access { .. }) => {
            fdo::Error::AccessDenied(text)
        }
        ControlError::Full { .. }
        | ControlError::InletFull { .. }
        | ControlError::Sink(SinkError::Full { .. })
        | ControlError::Transaction(
            TransactionError::Full { .. } | TransactionError::TableFull(_),
        ) => fdo::Error::LimitsExceeded(text),
        ControlError::Unknown { .. }
        | ControlError::NoLease { .. }
        | ControlError::Sink(SinkError::Unknown { .. }) => fdo::Error::UnknownObject(text),
        ControlError::NotVirtual => fdo::Error::NotSupported(text),
        ControlError::NotLocked | ControlError::LeaseHeld { .. } | ControlError::Core(_) => {
            fdo::Error::Failed(text)
        }
        _ => fdo::Error::InvalidArgs(text),
    }
}

impl From<AccessError> for Box<ControlError> {
    fn from(error: AccessError) -> Self {
        Box::new(ControlError::Access(error))
    }
}

fn invalid(text: impl Into<String>) -> fdo::Error {
    fdo::Error::InvalidArgs(text.into())
}
