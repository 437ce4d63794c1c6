//! Arbiters: who of those that wait gets a link.
//!
//! They see the waiting inputs of one output and nothing of the packets behind. All engines of
//! this crate that queue at an output use them.

/// How a link that becomes free is given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arbiter {
    /// Any of those that wait with equal probability.
    #[default]
    Random,
    /// The one that waits longest.
    Oldest,
    /// The next input port after the one served last.
    RoundRobin,
    /// The input port that was served longest ago (matrix arbiter).
    LeastRecent,
    /// The lowest input port.
    Fixed,
}

impl Arbiter {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Random,
        Self::Oldest,
        Self::RoundRobin,
        Self::LeastRecent,
        Self::Fixed,
    ];

    /// The name, as it is written in scenario files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Oldest => "oldest",
            Self::RoundRobin => "round-robin",
            Self::LeastRecent => "least-recent",
            Self::Fixed => "fixed",
        }
    }
}
