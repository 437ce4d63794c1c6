//! What a filter unit has to tell its builder units: one list for each, sent in groups.
//!
//! Verdicts, and with two-step building what is to be fetched. A list holds a message of each kind.
//! When one is full the filter unit takes no further event until it is sent, so that nothing here
//! grows. How events come to the filter unit is [`crate::filter_dispatch`]'s side.

use livetime_wire::message::{AcceptedEvent, AcceptedList, BuilderMessage, Envelope, TriggerList};
use livetime_wire::{TriggerNumber, UnitId};

use crate::message_exchange::Outgoing;

/// Answers to one builder unit.
#[derive(Debug, Clone, Default)]
struct Answers {
    rejected: TriggerList,
    accepted: AcceptedList,
    /// Events of which the rest is wanted.
    wanted: TriggerList,
    sequence: u32,
}

/// Answers of one filter unit.
#[derive(Debug, Clone)]
pub struct FilterAnswers {
    unit: UnitId,
    epoch: u32,
    /// By index of the builder unit.
    builders: Vec<Answers>,
}

impl FilterAnswers {
    /// Of a filter unit in an epoch, to `builders` builder units.
    pub fn new(unit: UnitId, epoch: u32, builders: usize) -> Self {
        Self {
            unit,
            epoch,
            builders: vec![Answers::default(); builders],
        }
    }

    /// Whether each list has room for one more event.
    #[inline]
    pub fn has_room(&self) -> bool {
        let mut lists = self.builders.iter();
        lists.all(|list| {
            !(list.rejected.is_full() || list.accepted.is_full() || list.wanted.is_full())
        })
    }

    /// Whether there is nothing to be told.
    pub fn is_empty(&self) -> bool {
        let mut lists = self.builders.iter();
        lists.all(|list| {
            list.rejected.is_empty() && list.accepted.is_empty() && list.wanted.is_empty()
        })
    }

    /// An event of a builder unit is accepted.
    ///
    /// # Panics
    /// Without [`FilterAnswers::has_room`].
    #[inline]
    pub fn accept(&mut self, builder: usize, event: AcceptedEvent) {
        if let Some(answers) = self.builders.get_mut(builder) {
            answers.accepted.push(event);
        }
    }

    /// An event of a builder unit is rejected.
    ///
    /// # Panics
    /// Without [`FilterAnswers::has_room`].
    #[inline]
    pub fn reject(&mut self, builder: usize, trigger: TriggerNumber) {
        if let Some(answers) = self.builders.get_mut(builder) {
            answers.rejected.push(trigger);
        }
    }

    /// The rest of an event of a builder unit is wanted, whose first step came.
    ///
    /// # Panics
    /// Without [`FilterAnswers::has_room`].
    #[inline]
    pub fn fetch(&mut self, builder: usize, trigger: TriggerNumber) {
        if let Some(answers) = self.builders.get_mut(builder) {
            answers.wanted.push(trigger);
        }
    }

    /// A builder unit is in another life, which has nothing to be told yet.
    pub fn renew(&mut self, builder: usize) {
        if let Some(answers) = self.builders.get_mut(builder) {
            *answers = Answers::default();
        }
    }

    /// The next message.
    pub fn poll_output(&mut self) -> Option<Outgoing> {
        let mut lists = self.builders.iter_mut().enumerate();
        let (index, message, sequence) = lists.find_map(|(index, list)| {
            let message = if !list.rejected.is_empty() {
                BuilderMessage::EventDone {
                    triggers: list.rejected.take(),
                }
            } else if !list.accepted.is_empty() {
                BuilderMessage::EventsAccepted {
                    events: list.accepted.take(),
                }
            } else if !list.wanted.is_empty() {
                BuilderMessage::FetchRest {
                    triggers: list.wanted.take(),
                }
            } else {
                return None;
            };
            let sequence = list.sequence;
            list.sequence = sequence.wrapping_add(1);
            Some((index, message, sequence))
        })?;
        Some(Outgoing {
            to: UnitId::builder(index as u16),
            envelope: Envelope {
                sender: self.unit,
                epoch: self.epoch,
                sequence,
                message,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::message::{SIZES_MAX, TRIGGERS_MAX};

    use super::*;

    const T: fn(u64) -> TriggerNumber = TriggerNumber;

    fn accepted(trigger: u64) -> AcceptedEvent {
        AcceptedEvent {
            trigger: T(trigger),
            reason: 1,
            streams: 2,
        }
    }

    #[test]
    fn each_builder_unit_hears_of_its_events_in_numbered_groups() {
        let mut answers = FilterAnswers::new(UnitId::filter(3), 7, 2);
        assert!(answers.is_empty() && answers.poll_output().is_none());
        answers.accept(1, accepted(4));
        answers.reject(1, T(5));
        answers.accept(1, accepted(6));
        answers.reject(0, T(9));
        answers.reject(2, T(1));
        answers.fetch(1, T(7));
        let mut sent = || {
            let Outgoing { to, envelope } = answers.poll_output()?;
            assert_eq!((envelope.sender, envelope.epoch), (UnitId::filter(3), 7));
            Some((to.index, envelope.sequence, envelope.message))
        };
        let done = |trigger| BuilderMessage::EventDone {
            triggers: [T(trigger)].into_iter().collect(),
        };
        let events = [accepted(4), accepted(6)].into_iter().collect();
        assert_eq!(sent(), Some((0, 0, done(9))));
        assert_eq!(sent(), Some((1, 0, done(5))));
        let accepted = BuilderMessage::EventsAccepted { events };
        assert_eq!(sent(), Some((1, 1, accepted)));
        let triggers = [T(7)].into_iter().collect();
        let wanted = BuilderMessage::FetchRest { triggers };
        assert_eq!(sent(), Some((1, 2, wanted)));
        assert_eq!(sent(), None, "there is no third builder unit");
        assert!(answers.is_empty());
    }

    #[test]
    fn a_full_list_has_no_room_and_a_new_life_has_no_list() {
        let mut answers = FilterAnswers::new(UnitId::filter(0), 1, 2);
        for trigger in 0..SIZES_MAX as u64 {
            assert!(answers.has_room());
            answers.accept(1, accepted(trigger));
        }
        assert!(!answers.has_room());
        answers.renew(1);
        assert!(answers.has_room() && answers.is_empty());
        (0..TRIGGERS_MAX as u64).for_each(|trigger| answers.fetch(0, T(trigger)));
        assert!(!answers.has_room() && !answers.is_empty());
    }
}
