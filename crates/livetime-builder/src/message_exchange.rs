//! What all units of the builder share at their outside: outgoing messages, what became of an
//! incoming one, and the counters of both.
//!
//! Whether a message may be handled at all (its sender, epoch and sequence number) is checked in
//! one place, before any unit looks at its content.

use livetime_wire::UnitId;
use livetime_wire::message::Envelope;

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// To whom.
    pub to: UnitId,
    /// The message, with its sequence number.
    pub envelope: Envelope,
}

/// The epochs in which a unit's peers are when it takes the place of one that is gone.
#[derive(Debug, Clone, Copy)]
pub struct PeerEpochs<'a> {
    /// The supervisor's.
    pub supervisor: u32,
    /// The event manager's.
    pub manager: u32,
    /// The builder units'.
    pub builders: &'a [u32],
    /// The readout units'.
    pub readouts: &'a [u32],
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Handled {
    /// It was understood; it may have changed nothing (a repetition) and is counted then.
    Taken,
    /// It was refused and counted: a stranger, a wrong epoch, or a kind that this unit does not
    /// take.
    Refused,
    /// There is no room for what it brings. Hand it in again later and leave it in its link until
    /// then; only the event manager's queue answers so.
    Busy,
}

/// Counters of one unit's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCounts {
    /// Messages that came from known units of the right epoch.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages that never came, by the gaps in the sequence numbers. One that is overtaken counts
    /// here and, when it comes, under `repeated`.
    pub missing: u64,
    /// Messages with a sequence number that was there before: duplicates, or overtaken ones.
    pub repeated: u64,
    /// Messages of units that do not belong to this builder; refused.
    pub strangers: u64,
    /// Messages of another epoch than their sender's; refused.
    pub wrong_epoch: u64,
    /// Messages of a kind that this unit does not take from that sender; refused.
    pub unexpected: u64,
}
