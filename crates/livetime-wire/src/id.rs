//! Identifiers: what a run, a trigger, an event, a detector source and a unit are called.
//!
//! Each is a newtype, so that a source's event number cannot be taken for the builder's key. The
//! formats that carry them are in the sibling modules.

use core::fmt;

/// Number of a run: from a locked counter file, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunNumber(pub u32);

/// The event builder's key: given by the trigger supervisor, dense, starting at 1 in each run.
///
/// A link carries only the low 32 bits; [`TriggerNumber::extend`] restores the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TriggerNumber(pub u64);

/// Event number of the *source* (a front-end or a recorded file): payload, not a key. It may
/// repeat, skip, or come out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventNumber(pub u64);

/// Identifier of a detector source, sub-detector in the high and module in the low half word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourceId(pub u32);

impl TriggerNumber {
    /// The first trigger number of a run; 0 is never given.
    pub const FIRST: Self = Self(1);

    /// The 32 bits that a link carries (the extended L1 identifier).
    #[inline]
    pub fn low(self) -> u32 {
        (self.0 & 0xFFFF_FFFF) as u32
    }

    /// Restores the full number from its low 32 bits: the value nearest to `self`.
    ///
    /// Right as long as the number meant is within 2^31 of `self` (at 100 kHz: six hours).
    #[must_use]
    #[inline]
    pub fn extend(self, low: u32) -> Self {
        let step = low.wrapping_sub(self.low()).cast_signed();
        Self(self.0.saturating_add_signed(i64::from(step)))
    }

    /// The number after this one.
    #[must_use]
    #[inline]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What a unit of the chain does; the letters are the role ids of the configuration (`ru0`, `evm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum UnitKind {
    /// Front-end source of triggers and fragments (`src`).
    Source = 0,
    /// Trigger node, which takes Level-2 decisions (`trg`).
    Trigger = 1,
    /// Trigger supervisor (`ts`).
    Supervisor = 2,
    /// Readout unit (`ru`).
    Readout = 3,
    /// Event manager (`evm`).
    EventManager = 4,
    /// Builder unit (`bu`).
    Builder = 5,
    /// Filter unit (`fu`).
    Filter = 6,
    /// Writer of run files (`wr`).
    Writer = 7,
}

impl UnitKind {
    /// Every kind, in the order of the data's way through the chain.
    pub const ALL: [Self; 8] = [
        Self::Source,
        Self::Trigger,
        Self::Supervisor,
        Self::Readout,
        Self::EventManager,
        Self::Builder,
        Self::Filter,
        Self::Writer,
    ];

    /// The prefix of the role id.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Source => "src",
            Self::Trigger => "trg",
            Self::Supervisor => "ts",
            Self::Readout => "ru",
            Self::EventManager => "evm",
            Self::Builder => "bu",
            Self::Filter => "fu",
            Self::Writer => "wr",
        }
    }
}

/// One unit of the chain: a kind and an index from 0 (at most 4095).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId {
    /// What it does.
    pub kind: UnitKind,
    /// Which of its kind, from 0.
    pub index: u16,
}

impl UnitId {
    /// The largest index that the 16-bit code can hold.
    pub const INDEX_MAX: u16 = 0x0FFF;

    /// A readout unit.
    #[inline]
    pub const fn readout(index: u16) -> Self {
        Self {
            kind: UnitKind::Readout,
            index,
        }
    }

    /// A builder unit.
    #[inline]
    pub const fn builder(index: u16) -> Self {
        Self {
            kind: UnitKind::Builder,
            index,
        }
    }

    /// A filter unit.
    #[inline]
    pub const fn filter(index: u16) -> Self {
        Self {
            kind: UnitKind::Filter,
            index,
        }
    }

    /// The event manager.
    pub const EVENT_MANAGER: Self = Self {
        kind: UnitKind::EventManager,
        index: 0,
    };

    /// The trigger supervisor.
    pub const SUPERVISOR: Self = Self {
        kind: UnitKind::Supervisor,
        index: 0,
    };

    /// The code in message headers: kind in bits 15:12, index in bits 11:0.
    #[inline]
    pub fn to_code(self) -> u16 {
        ((self.kind as u16) << 12) | (self.index & Self::INDEX_MAX)
    }

    /// The unit of a code, if its kind exists.
    #[inline]
    pub fn from_code(code: u16) -> Option<Self> {
        let kind = *UnitKind::ALL.get(usize::from(code >> 12))?;
        Some(Self {
            kind,
            index: code & Self::INDEX_MAX,
        })
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            UnitKind::EventManager | UnitKind::Supervisor => f.write_str(self.kind.prefix()),
            _ => write!(f, "{}{}", self.kind.prefix(), self.index),
        }
    }
}

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

impl fmt::Display for TriggerNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for EventNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigger_numbers_extend_across_the_wrap() {
        let near = TriggerNumber(0xFFFF_FFF0);
        assert_eq!(near.extend(0xFFFF_FFFF), TriggerNumber(0xFFFF_FFFF));
        assert_eq!(near.extend(3), TriggerNumber(0x1_0000_0003));
        assert_eq!(
            TriggerNumber(0x1_0000_0003).extend(0xFFFF_FFFE),
            TriggerNumber(0xFFFF_FFFE)
        );
        assert_eq!(
            TriggerNumber(5).extend(0xFFFF_FFFF),
            TriggerNumber(0),
            "never below zero"
        );
    }

    #[test]
    fn unit_codes_round_trip_and_foreign_ones_are_refused() {
        for kind in UnitKind::ALL {
            let unit = UnitId {
                kind,
                index: 0x0ABC,
            };
            assert_eq!(UnitId::from_code(unit.to_code()), Some(unit));
        }
        assert_eq!(UnitId::from_code(0x8000), None);
        assert_eq!(UnitId::builder(1).to_string(), "bu1");
        assert_eq!(UnitId::EVENT_MANAGER.to_string(), "evm");
    }
}
