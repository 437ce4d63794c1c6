//! Sinks: where actions go - outputs, software, an embedded processor, tags on a bus.
//!
//! Each kind of sink is one channel with one queue; the sinks of a kind are its subchannels. What
//! a sink does with an action is the driver's business. Counters are kept by
//! [`crate::action_unit`], conditions by [`crate::registry`].

use core::fmt;

/// A sink: its place among all sinks of the receiver. Places are used again after a sink is
/// destroyed; what waited for the old one is not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkId(pub u16);

impl SinkId {
    /// The place as an index, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for SinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sink{}", self.0)
    }
}

/// What a sink is; also the number of its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SinkKind {
    /// A digital output; tag 2 switches it on, 1 off.
    Output = 0,
    /// Software: actions become records for client processes.
    Software = 1,
    /// The queue of an embedded processor; the tag is for its program.
    EmbeddedCpu = 2,
    /// A tag on a bus, such as the start tag of function generators.
    BusTag = 3,
}

impl SinkKind {
    /// Every kind, in the order of the channels.
    pub const ALL: [Self; 4] = [
        Self::Output,
        Self::Software,
        Self::EmbeddedCpu,
        Self::BusTag,
    ];

    /// The channel number, 0..=3.
    pub fn channel(self) -> usize {
        self as usize
    }

    /// The word in texts and JSON documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Software => "software",
            Self::EmbeddedCpu => "embedded_cpu",
            Self::BusTag => "bus_tag",
        }
    }
}

impl fmt::Display for SinkKind {
    /// What it is in a sentence: `an output`, `a bus`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Output => "an output",
            Self::Software => "a software sink",
            Self::EmbeddedCpu => "an embedded processor",
            Self::BusTag => "a bus",
        })
    }
}

/// Tag that switches an output on.
pub const TAG_ON: u32 = 2;
/// Tag that switches an output off.
pub const TAG_OFF: u32 = 1;

/// What to do when two conditions of a sink must conflict for some event ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConflictPolicy {
    /// Refuse the change.
    Reject,
    /// Allow it and report the pairs.
    Warn,
    /// Allow it.
    Ignore,
}

/// Largest offset either way unless a sink says otherwise: one second.
pub const OFFSET_NS_USUAL: i64 = 1_000_000_000;

/// What a new sink shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkSpec {
    /// Kind, and thereby channel.
    pub kind: SinkKind,
    /// Name: 1 to 64 of `A-Z a-z 0-9 _`, unique; a leading `_` is for names given by the program.
    pub name: String,
    /// Smallest offset of its conditions, ns.
    pub offset_min_ns: i64,
    /// Largest offset of its conditions, ns.
    pub offset_max_ns: i64,
    /// What to do about conditions that must conflict.
    pub conflict_policy: ConflictPolicy,
}

impl SinkSpec {
    /// A sink with the usual offsets; conflicts are refused but in software sinks, where they are
    /// reported.
    pub fn new(kind: SinkKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            offset_min_ns: -OFFSET_NS_USUAL,
            offset_max_ns: OFFSET_NS_USUAL,
            conflict_policy: match kind {
                SinkKind::Software => ConflictPolicy::Warn,
                _ => ConflictPolicy::Reject,
            },
        }
    }
}
