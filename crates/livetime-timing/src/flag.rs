//! Flags of actions: late, early, conflict, delayed, and which of them a condition accepts.
//!
//! An action carries at most one flag, the most severe one that applies, in the order of
//! [`ActionFlag::ALL`]. When each is raised is told in [`crate::action_unit`].

/// What was wrong with the execution of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ActionFlag {
    /// The deadline had passed when the action reached its channel.
    Late = 0,
    /// The deadline was further ahead than the early threshold.
    Early = 1,
    /// An earlier action of the same sink had the same deadline.
    Conflict = 2,
    /// The action was executed after its deadline, because its channel was busy or stalled.
    Delayed = 3,
}

impl ActionFlag {
    /// Every flag, the most severe first.
    pub const ALL: [Self; 4] = [Self::Late, Self::Early, Self::Conflict, Self::Delayed];

    /// The bit in [`FlagSet`] and in records: 1 late, 2 early, 4 conflict, 8 delayed.
    pub const fn bit(self) -> u8 {
        1 << (self as u8)
    }

    /// The word in texts and JSON documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Early => "early",
            Self::Conflict => "conflict",
            Self::Delayed => "delayed",
        }
    }
}

/// A set of flags; as a condition's `accept`, the flags with which actions are still delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlagSet(u8);

impl FlagSet {
    /// No flag: only actions without any fault are delivered.
    pub const NONE: Self = Self(0);
    /// Every flag.
    pub const ALL: Self = Self(0b1111);
    /// What conditions accept unless told otherwise: delayed only.
    pub const USUAL: Self = Self(ActionFlag::Delayed.bit());

    /// The set with these bits; bits beyond the four flags are dropped.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits of [`ActionFlag::bit`].
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Whether a flag is in the set.
    pub const fn contains(self, flag: ActionFlag) -> bool {
        self.0 & flag.bit() != 0
    }

    /// The set with a flag added.
    #[must_use]
    pub const fn with(self, flag: ActionFlag) -> Self {
        Self(self.0 | flag.bit())
    }

    /// The set without a flag.
    #[must_use]
    pub const fn without(self, flag: ActionFlag) -> Self {
        Self(self.0 & !flag.bit())
    }
}

impl Default for FlagSet {
    fn default() -> Self {
        Self::USUAL
    }
}
