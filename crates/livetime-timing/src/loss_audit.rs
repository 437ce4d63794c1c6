//! Loss audit: messages that were sent and never arrived, found by counters.
//!
//! A master that counts its messages sends its count in the parameter of an audit message from
//! time to time; the receiver compares it with what it has seen. A single lost message is found at
//! the next audit message, whatever its own fate; a lost audit message is covered by the next.

use livetime_wire::{EventId, TimingMessage};

use crate::id_filter::IdFilter;

/// One comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditResult {
    /// Messages sent since the comparison before, the audit message not included.
    pub sent: u64,
    /// Of these, received.
    pub received: u64,
}

impl AuditResult {
    /// Messages lost: sent and not received.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Messages received that nobody sent: duplicates, or another master's.
    pub fn surplus(&self) -> u64 {
        self.received.saturating_sub(self.sent)
    }
}

/// The sending side: counts messages and makes audit messages.
#[derive(Debug, Clone)]
pub struct AuditSender {
    id: EventId,
    sent: u64,
}

impl AuditSender {
    /// A sender whose audit messages have this ID.
    pub fn new(id: EventId) -> Self {
        Self { id, sent: 0 }
    }

    /// A message is sent.
    pub fn handle_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// The audit message for `time`.
    pub fn message(&self, time: livetime_wire::TaiNs) -> TimingMessage {
        TimingMessage::new(self.id, self.sent, time)
    }
}

/// The receiving side.
#[derive(Debug, Clone)]
pub struct LossAudit {
    audited: IdFilter,
    id: EventId,
    received: u64,
    /// Count of the last audit message.
    last: Option<u64>,
    total: AuditResult,
    comparisons: u64,
}

impl LossAudit {
    /// An audit of the messages that `audited` matches, by audit messages with this ID (which are
    /// not counted themselves).
    pub fn new(audited: IdFilter, id: EventId) -> Self {
        Self {
            audited,
            id,
            received: 0,
            last: None,
            total: AuditResult {
                sent: 0,
                received: 0,
            },
            comparisons: 0,
        }
    }

    /// Takes in a received message; gives the comparison if it was an audit message and not the
    /// first, before which nothing is known.
    pub fn handle_message(&mut self, message: &TimingMessage) -> Option<AuditResult> {
        if message.id != self.id {
            self.received += u64::from(self.audited.matches(message.id));
            return None;
        }
        let received = core::mem::take(&mut self.received);
        let before = self.last.replace(message.param)?;
        let result = AuditResult {
            sent: message.param.wrapping_sub(before),
            received,
        };
        self.total.sent = self.total.sent.saturating_add(result.sent);
        self.total.received += received;
        self.comparisons += 1;
        Some(result)
    }

    /// Everything compared so far.
    pub fn total(&self) -> AuditResult {
        self.total
    }

    /// Comparisons made.
    pub fn comparisons(&self) -> u64 {
        self.comparisons
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::TaiNs;

    use super::*;

    #[test]
    fn one_lost_of_a_million_is_reported() {
        let id = EventId(0x1FFF_FFFF_0000_0000);
        let mut sender = AuditSender::new(id);
        let mut audit = LossAudit::new(IdFilter::ALL, id);
        assert_eq!(audit.handle_message(&sender.message(TaiNs(0))), None);
        let mut losses = Vec::new();
        for n in 0..1_000_000u64 {
            sender.handle_sent();
            if n != 654_321 {
                audit.handle_message(&TimingMessage::new(EventId(n), 0, TaiNs(n)));
            }
            if n % 10_000 == 9_999 {
                let result = audit.handle_message(&sender.message(TaiNs(n))).unwrap();
                losses.push(result.lost());
                assert_eq!(result.surplus(), 0);
            }
        }
        assert_eq!(losses.iter().sum::<u64>(), 1);
        assert_eq!(losses[65], 1, "found by the next audit message");
        assert_eq!(audit.total().lost(), 1);
        assert_eq!(audit.comparisons(), 100);
    }

    #[test]
    fn a_lost_audit_message_is_covered_by_the_next() {
        let id = EventId(7);
        let mut sender = AuditSender::new(id);
        let mut audit = LossAudit::new(IdFilter::ALL, id);
        audit.handle_message(&sender.message(TaiNs(0)));
        sender.handle_sent();
        let _lost_audit = sender.message(TaiNs(1));
        sender.handle_sent();
        let message = TimingMessage::new(EventId(1), 0, TaiNs(2));
        audit.handle_message(&message);
        let result = audit.handle_message(&sender.message(TaiNs(3))).unwrap();
        assert_eq!(result.lost(), 1);
    }
}
