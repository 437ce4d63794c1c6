//! What happens in the simulated chain: small events that name what is large by its index.

use livetime_readout::{FlowControl, LinkState};

use crate::queue::EventClass;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainEvent {
    /// Words of a line come to their receiver.
    Burst { link: u32, burst: u32 },
    /// A line has taken its last burst and may take the next.
    LineFree { link: u32 },
    /// XON or XOFF comes back to the source of a line.
    Flow { link: u32, flow: FlowControl },
    /// A data link goes down or comes up.
    LinkState { link: u32, state: LinkState },
    /// A message comes to its host.
    Letter { letter: u32 },
    /// A trigger is due.
    Offer,
    /// A host looks at what has come and begins to work on it.
    Begin { host: u32 },
    /// A host is through with what it has begun.
    Done { host: u32 },
    /// A timeout of a host.
    Timer { host: u32 },
}

impl ChainEvent {
    /// What arrives at an instant is there before anyone looks; timeouts strike last.
    pub(crate) const fn class(&self) -> EventClass {
        EventClass(match self {
            Self::Burst { .. } | Self::Flow { .. } | Self::Letter { .. } => 0,
            Self::LinkState { .. } => 1,
            Self::LineFree { .. } => 2,
            Self::Done { .. } => 3,
            Self::Offer => 4,
            Self::Begin { .. } => 5,
            Self::Timer { .. } => 6,
        })
    }

    /// The kind's number in traces.
    pub(crate) const fn kind(&self) -> u16 {
        match self {
            Self::Burst { .. } => 1,
            Self::LineFree { .. } => 2,
            Self::Flow { .. } => 3,
            Self::LinkState { .. } => 4,
            Self::Letter { .. } => 5,
            Self::Offer => 6,
            Self::Begin { .. } => 7,
            Self::Done { .. } => 8,
            Self::Timer { .. } => 9,
        }
    }
}

/// Kind of a trace record that is no event: a decision, key by trigger number and mask.
pub(crate) const KIND_DECISION: u16 = 100;
/// Kind of a trace record that is no event: an event in the run file, key by trigger number.
pub(crate) const KIND_STORED: u16 = 101;
