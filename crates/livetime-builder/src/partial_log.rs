//! What the last incomplete events of a builder unit were made of, for readout units that did not
//! hear how an event was closed.

use livetime_wire::TriggerNumber;

use crate::event_assembly::Payload;

/// The received sources of the last few events that were closed without all of them.
#[derive(Debug)]
pub(crate) struct PartialLog {
    triggers: Vec<TriggerNumber>,
    received: Vec<u64>,
    words_per_event: usize,
    most: usize,
    next: usize,
}

impl PartialLog {
    /// Room for `events` events of `words_per_event` bit words each.
    pub(crate) fn new(events: usize, words_per_event: usize, payload: Payload) -> Self {
        let reserved = payload.reserved(events);
        Self {
            triggers: Vec::with_capacity(reserved),
            received: Vec::with_capacity(reserved * words_per_event),
            words_per_event,
            most: events,
            next: 0,
        }
    }

    /// Keeps an event's bits, in place of the oldest where it is full.
    pub(crate) fn record(&mut self, trigger: TriggerNumber, received: &[u64]) {
        let words = self.words_per_event;
        if self.triggers.len() < self.most {
            self.triggers.push(trigger);
            self.received.extend_from_slice(&received[..words]);
            return;
        }
        self.triggers[self.next] = trigger;
        self.received[self.next * words..][..words].copy_from_slice(received);
        self.next = (self.next + 1) % self.most;
    }

    /// The bits of an event, if it is still known.
    pub(crate) fn received(&self, trigger: TriggerNumber) -> Option<&[u64]> {
        let at = self.triggers.iter().position(|t| *t == trigger)?;
        Some(&self.received[at * self.words_per_event..][..self.words_per_event])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_event_is_forgotten_first() {
        let mut log = PartialLog::new(2, 2, Payload::Described);
        for trigger in 1..=3 {
            log.record(TriggerNumber(trigger), &[trigger, 10 * trigger]);
        }
        assert_eq!(log.received(TriggerNumber(1)), None);
        assert_eq!(log.received(TriggerNumber(2)), Some(&[2, 20][..]));
        assert_eq!(log.received(TriggerNumber(3)), Some(&[3, 30][..]));
    }
}
