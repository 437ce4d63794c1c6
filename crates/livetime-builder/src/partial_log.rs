//! What the last incomplete events of a builder unit were made of, for readout units that did not
//! hear how an event was closed.
//!
//! A readout unit asks after an event that it still holds, among at most
//! [`BuilderConfig::trigger_window`] triggers, and a trigger that was never released stays there while
//! others come and go. Without an answer it would take what it was asked for to be in the event. So
//! the log reaches back as far as such a window of this unit's events, and since incomplete events are
//! rare as a rule it takes the memory for most of them when they come.

use livetime_wire::TriggerNumber;

use crate::builder_config::BuilderConfig;
use crate::event_assembly::Payload;
use crate::trigger_table::TriggerTable;

/// Least number of incomplete events whose parts are remembered.
const LEAST: usize = 64;
/// Events for which memory is taken at least where there is room for none.
const FIRST: usize = 8;
/// Times a builder unit's even share of the window: not all have the same number of events.
const SHARES: usize = 4;

/// The received sources of the last events that were closed without all of them.
#[derive(Debug)]
pub(crate) struct PartialLog {
    /// Where the bits of each event are.
    places: TriggerTable<u32>,
    /// Their triggers, in the order of closing from `next` on, round about.
    triggers: Vec<TriggerNumber>,
    received: Vec<u64>,
    words_per_event: usize,
    most: usize,
    next: usize,
}

/// Events that one builder unit remembers.
fn most_of(config: &BuilderConfig) -> usize {
    let window = config.trigger_window as usize;
    let share = SHARES * window / usize::from(config.builder_units.max(1));
    share.min(window).max(usual_of(config))
}

/// Those of which the memory is taken at the start.
fn usual_of(config: &BuilderConfig) -> usize {
    LEAST.max(config.credits as usize)
}

impl PartialLog {
    /// Room for this builder unit's incomplete events, of `words_per_event` bit words each.
    pub(crate) fn new(config: &BuilderConfig, words_per_event: usize, payload: Payload) -> Self {
        let reserved = payload.reserved(usual_of(config));
        Self::with_most(most_of(config), reserved, words_per_event)
    }

    fn with_most(most: usize, reserved: usize, words_per_event: usize) -> Self {
        Self {
            places: TriggerTable::new(reserved),
            triggers: Vec::with_capacity(reserved),
            received: Vec::with_capacity(reserved * words_per_event),
            words_per_event,
            most,
            next: 0,
        }
    }

    /// Keeps an event's bits, in place of the oldest where it is full.
    pub(crate) fn record(&mut self, trigger: TriggerNumber, received: &[u64]) {
        let words = self.words_per_event;
        let received = &received[..words];
        if let Some(place) = self.places.get(trigger) {
            self.received[*place as usize * words..][..words].copy_from_slice(received);
            return;
        }
        let place = self.triggers.len();
        if place < self.most {
            if self.places.is_full() {
                self.grow();
            }
            self.triggers.push(trigger);
            self.received.extend_from_slice(received);
            self.enter(trigger, place);
            return;
        }
        let place = self.next;
        let oldest = core::mem::replace(&mut self.triggers[place], trigger);
        self.places.remove(oldest);
        self.received[place * words..][..words].copy_from_slice(received);
        self.enter(trigger, place);
        self.next = (place + 1) % self.most;
    }

    fn enter(&mut self, trigger: TriggerNumber, place: usize) {
        let is_new = self.places.insert(trigger, place as u32);
        debug_assert!(is_new, "there is room, and it was not there");
    }

    /// Makes room for twice as many places.
    fn grow(&mut self) {
        let events = (2 * self.places.slot_count()).max(FIRST).min(self.most);
        self.places = TriggerTable::new(events);
        for place in 0..self.triggers.len() {
            self.enter(self.triggers[place], place);
        }
    }

    /// The bits of an event, if it is still known.
    pub(crate) fn received(&self, trigger: TriggerNumber) -> Option<&[u64]> {
        let place = *self.places.get(trigger)? as usize;
        Some(&self.received[place * self.words_per_event..][..self.words_per_event])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_event_is_forgotten_first() {
        for (most, reserved) in [(2, 2), (2, 0), (1000, 0), (1000, 64)] {
            let mut log = PartialLog::with_most(most, reserved, 2);
            let last = 3 * most as u64 + 1;
            for trigger in 1..=last {
                log.record(TriggerNumber(trigger), &[trigger, 10 * trigger]);
            }
            let known = last - most as u64 + 1;
            assert_eq!(log.received(TriggerNumber(known - 1)), None);
            for trigger in known..=last {
                let received = log.received(TriggerNumber(trigger));
                assert_eq!(received, Some(&[trigger, 10 * trigger][..]));
            }
            log.record(TriggerNumber(known), &[7, 8]);
            assert_eq!(log.received(TriggerNumber(known)), Some(&[7, 8][..]));
        }
    }

    #[test]
    fn a_unit_remembers_its_share_of_the_window_and_takes_memory_when_it_is_needed() {
        let of = |builder_units, payload| {
            let config = BuilderConfig {
                builder_units,
                ..BuilderConfig::default()
            };
            PartialLog::new(&config, 1, payload)
        };
        let mosts = [1, 4, 8, 1000].map(|units| of(units, Payload::Described).most);
        let usual = usual_of(&BuilderConfig::default());
        assert_eq!(mosts, [4096, 4096, 2048, usual]);
        let log = of(1, Payload::Described);
        assert_eq!(log.triggers.capacity(), usual);
        let log = of(1, Payload::Counted);
        assert_eq!((log.triggers.capacity(), log.received.capacity()), (0, 0));
    }
}
