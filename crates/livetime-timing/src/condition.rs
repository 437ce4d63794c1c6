//! Conditions: which event IDs become which action, when, and with which tolerance for faults.
//!
//! A condition belongs to one sink. Active conditions are compiled into the
//! [`crate::match_table`]; inactive ones are only remembered. Changes go through
//! [`crate::registry`].

use core::fmt;

use livetime_wire::TaiNs;

use crate::flag::FlagSet;
use crate::id_filter::IdFilter;
use crate::ownership::Ownership;
use crate::sink::SinkId;

/// A condition; never given twice, even after the condition is removed.
///
/// Its slot is dense and small, so that a driver can keep an array by slot; it is used again, and
/// the generation tells the users apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConditionId {
    generation: u32,
    slot: u32,
}

impl ConditionId {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self { generation, slot }
    }

    /// Index into arrays by slot, below the registry's `conditions_max`.
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// How often the slot had been used before.
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// Generation in the high, slot in the low half.
    pub fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.slot)
    }

    /// The id of [`ConditionId::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        Self::new((bits & 0xFFFF_FFFF) as u32, (bits >> 32) as u32)
    }
}

impl fmt::Display for ConditionId {
    /// Slot and generation: `17.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// What a condition is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConditionSpec {
    /// The sink that gets its actions.
    pub sink: SinkId,
    /// Which messages.
    pub filter: IdFilter,
    /// Deadline of the action minus time of the message, ns; within the sink's bounds.
    pub offset_ns: i64,
    /// What the sink gets with the action: on or off for outputs, the bus tag, a program's choice.
    pub tag: u32,
    /// Flags with which the action is still delivered.
    pub accept: FlagSet,
    /// Whether it takes part in matching.
    pub active: bool,
}

impl ConditionSpec {
    /// An active condition without offset that accepts delayed actions only.
    pub fn new(sink: SinkId, filter: IdFilter, tag: u32) -> Self {
        Self {
            sink,
            filter,
            offset_ns: 0,
            tag,
            accept: FlagSet::USUAL,
            active: true,
        }
    }
}

/// A condition of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Its name for ever.
    pub id: ConditionId,
    /// What it does.
    pub spec: ConditionSpec,
    /// Who may change it.
    pub ownership: Ownership,
    /// Position in the order of creation; of equal filters the older one acts first.
    pub(crate) order: u64,
}

impl Condition {
    /// The deadline that a message of this time gives.
    pub fn deadline(&self, message: TaiNs) -> TaiNs {
        message.offset_by(self.spec.offset_ns)
    }
}
