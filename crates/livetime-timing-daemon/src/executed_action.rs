//! What the core did for a software sink, as delivery is told it.

use livetime_timing::ConditionId;
use livetime_wire::{PriorityClass, RecordFlags, RecordKind, TaiNs, TimingRecord};

/// An action of a software sink, executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutedAction {
    /// The sink, as an index.
    pub sink: u16,
    /// The condition's cookie, see [`condition_cookie`].
    pub condition: u32,
    /// Event ID of the message.
    pub id: u64,
    /// Its parameter.
    pub param: u64,
    /// Its fraction field.
    pub tef: u32,
    /// When the action was due.
    pub deadline: TaiNs,
    /// When it was executed.
    pub executed: TaiNs,
    /// When its message was matched.
    pub matched: TaiNs,
    /// Its flags.
    pub flags: RecordFlags,
}

impl ExecutedAction {
    /// Its record for listeners of this class, `delay_ns` after its execution \[ns\].
    pub fn record(&self, class: PriorityClass, delay_ns: u64, epoch: u32) -> TimingRecord {
        TimingRecord {
            sequence: 0,
            kind: RecordKind::Message,
            class,
            id: self.id,
            param: self.param,
            deadline: self.deadline,
            executed: self.executed,
            tef: self.tef,
            condition: self.condition,
            flags: self.flags,
            match_lead_ns: saturate(self.executed.0.saturating_sub(self.matched.0)),
            enqueue_delay_ns: saturate(delay_ns),
            epoch,
        }
    }
}

/// Bits of a cookie that hold the slot of the condition: 16 384 slots, as a registry has.
const COOKIE_SLOT_BITS: u32 = 14;

/// A condition in the 32 bits that a record has for it: its slot in the low 14 bits, above them as
/// much of its generation as there is room for. An action waits for seconds, in which no slot is
/// used again 262 144 times.
pub fn condition_cookie(id: ConditionId) -> u32 {
    id.slot() as u32 | id.generation() << COOKIE_SLOT_BITS
}

/// As far as a record can say it \[ns\].
pub(crate) fn saturate(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use livetime_timing::RegistryConfig;

    use super::*;

    #[test]
    fn cookies_tell_the_conditions_of_a_slot_apart() {
        let cookie = |slot: u64, generation: u64| {
            condition_cookie(ConditionId::from_bits(generation << 32 | slot))
        };
        assert_eq!((cookie(17, 0), cookie(17, 2)), (17, 17 + 2 * 16_384));
        assert_eq!(cookie(16_383, (1 << 18) - 1), u32::MAX);
        let slots = RegistryConfig::default().conditions_max;
        assert!(slots <= 1 << COOKIE_SLOT_BITS, "{slots}");
    }
}
