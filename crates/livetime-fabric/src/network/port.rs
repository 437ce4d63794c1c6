//! Where hosts meet a network: what they send and what they are handed.
//!
//! An engine that runs a traffic pattern makes its own packets. One for hosts makes none: it says
//! which sources can take a parcel, takes one at a time from each, and says what it delivered; in a
//! [`HostPort`] where a step may do several of these things. The simulation around it owns clock and
//! hosts, and may hold several engines; how a step of one becomes an event of that simulation is
//! [`StepEvent`]'s.

/// An event that can hold a step of engine number `network`.
pub(crate) trait StepEvent<S> {
    /// The event.
    fn of(network: u8, step: S) -> Self;
}

impl<S> StepEvent<S> for S {
    fn of(_network: u8, step: S) -> Self {
        step
    }
}

/// What a host sends: bytes, and a number of the hosts' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parcel {
    /// Destination.
    pub(crate) to: u32,
    /// Bytes without the overhead of the link.
    pub(crate) bytes: u32,
    /// Handed back with the delivery.
    pub(crate) tag: u32,
}

/// A parcel whose last byte has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Source.
    pub(crate) from: u32,
    /// The parcel.
    pub(crate) parcel: Parcel,
}

/// The hosts' side of an engine whose steps free links and deliver apart from each other. Both lists
/// are emptied by the hosts after each step; they hold a source or a destination once at most for each
/// of its links.
#[derive(Debug, Default)]
pub(crate) struct HostPort {
    /// Sources whose link has become free.
    pub(crate) idle: Vec<u32>,
    /// What was delivered.
    pub(crate) delivered: Vec<Delivery>,
    /// Tags of parcels that were lost at full buffers.
    pub(crate) lost: Vec<u32>,
    /// Parcels taken so far.
    pub(crate) taken: u64,
}
