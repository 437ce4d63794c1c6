//! What the core did for a software sink, as delivery is told it.

use livetime_wire::{PriorityClass, RecordFlags, RecordKind, TaiNs, TimingRecord};

/// An action of a software sink, executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutedAction {
    /// The sink, as an index.
    pub sink: u16,
    /// The condition's cookie.
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

/// As far as a record can say it \[ns\].
pub(crate) fn saturate(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}
