//! Control messages on their way: each text once, however many readout units it goes to.
//!
//! A builder unit sends the same request to every readout unit; only receiver and sequence number
//! differ. The text is kept until the last of them has come, and the letters wait as runs of equal
//! steps, so that a message in flight costs an event of the kernel and no memory.

use std::collections::VecDeque;

use livetime_shm::prefetch::bring_first;
use livetime_wire::message::{BuilderMessage, Envelope};
use livetime_wire::{TriggerNumber, UnitId};

use super::world::HOST;
use crate::queue::EventKey;
use crate::time::{DurationPs, SimPs};

/// Something that does one thing at a time: a processor, a link, a bus.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Server {
    free_at: SimPs,
    /// All that it was given to do.
    spent: DurationPs,
}

impl Server {
    /// Takes so long from `at` on, or when it is free; returns when it is through.
    pub(super) fn spend(&mut self, at: SimPs, time: DurationPs) -> SimPs {
        self.free_at = self.free_at.max(at) + time;
        self.spent = self.spent + time;
        self.free_at
    }

    /// Share of the time until `now` in which it was busy; what it has yet to do is not counted.
    pub(super) fn busy_share(self, now: SimPs) -> f64 {
        let ahead = self.free_at.0.saturating_sub(now.0);
        self.spent.0.saturating_sub(ahead) as f64 / now.0.max(1) as f64
    }

    /// It without what it has not done by now, and never will.
    pub(super) fn stopped(self, now: SimPs) -> Self {
        let ahead = self.free_at.0.saturating_sub(now.0);
        Self {
            free_at: self.free_at.min(now),
            spent: DurationPs(self.spent.0.saturating_sub(ahead)),
        }
    }

    /// When it is through with what it has.
    pub(super) const fn free_at(self) -> SimPs {
        self.free_at
    }
}

#[derive(Debug)]
struct Text {
    envelope: Envelope,
    /// When it was said: nobody hears what was said before its present life.
    sent: SimPs,
    bytes: u32,
    /// Receivers that have not had it.
    left: u32,
}

/// The texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    texts: Vec<Option<Text>>,
    free: Vec<u32>,
}

/// Letters one after the other: of one text, to neighbours, as far apart in time.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// The first of them that has not come.
    key: EventKey,
    step: DurationPs,
    text: u32,
    sequence: u32,
    to: UnitId,
    left: u16,
}

impl Run {
    /// The unit after so many, round about; they are as many as there are units at most.
    #[inline]
    const fn index_after(&self, letters: u16, units: u16) -> u16 {
        // A division would take longer than all else that is done for a letter.
        let index = self.to.index + letters;
        if index < units { index } else { index - units }
    }

    /// The letter after so many.
    #[inline]
    fn key_after(&self, letters: u16) -> EventKey {
        let time = self.key.time + self.step * u64::from(letters);
        let sequence = self.key.sequence() + u64::from(letters);
        EventKey::new(time, HOST, sequence)
    }

    /// Takes a letter that is the next of this run, if it is.
    #[inline]
    fn goes_on(
        &mut self,
        key: EventKey,
        to: UnitId,
        (text, sequence): (u32, u32),
        units: u16,
    ) -> bool {
        if (self.text, self.sequence, self.to.kind) != (text, sequence, to.kind)
            || self.index_after(self.left, units) != to.index
        {
            return false;
        }
        if self.left == 1 && key.time >= self.key.time {
            self.step = key.time - self.key.time;
        }
        let is_next = self.key_after(self.left) == key;
        self.left += u16::from(is_next);
        is_next
    }
}

/// Letters of a host that go out one after the other, in the order in which they come: the kernel
/// has the first of them.
#[derive(Debug, Default)]
pub(super) struct LettersOut {
    runs: VecDeque<Run>,
}

impl LettersOut {
    /// Adds the last letters, all of one text: the place of each in the order, its receiver and its
    /// sequence number. There are `units` of the receivers' kind. Returns whether there were none
    /// before, so that the kernel is to be told of the first.
    #[inline]
    pub(super) fn extend(
        &mut self,
        text: u32,
        units: u16,
        letters: impl Iterator<Item = (EventKey, UnitId, u32)>,
    ) -> bool {
        let is_first = self.runs.is_empty();
        // Letters are many and runs few: the last one is at hand meanwhile.
        let mut last = self.runs.pop_back();
        letters.for_each(|(key, to, sequence)| {
            if let Some(run) = &mut last
                && run.goes_on(key, to, (text, sequence), units)
            {
                return;
            }
            let run = Run {
                key,
                step: DurationPs::ZERO,
                text,
                sequence,
                to,
                left: 1,
            };
            self.runs.extend(last.replace(run));
        });
        self.runs.extend(last);
        is_first
    }

    /// The first letter: its place in the order, receiver, text and sequence number.
    pub(super) fn first(&self) -> Option<(EventKey, UnitId, u32, u32)> {
        let run = self.runs.front()?;
        Some((run.key, run.to, run.text, run.sequence))
    }

    /// The first letter has come.
    pub(super) fn pop(&mut self, units: u16) {
        let Some(run) = self.runs.front_mut() else {
            return;
        };
        run.left -= 1;
        if run.left == 0 {
            self.runs.pop_front();
            return;
        }
        run.key = run.key_after(1);
        run.to.index = run.index_after(1, units);
    }
}

impl Texts {
    /// Keeps a message that is said now to so many receivers; returns its number and its bytes on a
    /// link.
    pub(super) fn keep(&mut self, now: SimPs, envelope: Envelope, receivers: u32) -> (u32, u32) {
        let bytes = 4 * envelope.to_words().len() as u32;
        let text = Some(Text {
            envelope,
            sent: now,
            bytes,
            left: receivers,
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.texts[index as usize] = text;
                index
            }
            None => {
                self.texts.push(text);
                self.texts.len() as u32 - 1
            }
        };
        (index, bytes)
    }

    /// The sequence number with which a message was last read, or was given; 0 if all had it.
    #[inline]
    pub(super) fn sequence(&self, index: u32) -> u32 {
        let text = self.texts[index as usize].as_ref();
        text.map_or(0, |text| text.envelope.sequence)
    }

    /// The message as its receiver reads it.
    ///
    /// # Panics
    /// If all receivers had it.
    pub(super) fn read(&mut self, index: u32, sequence: u32) -> &Envelope {
        let text = self.texts[index as usize].as_mut();
        let text = text.expect("kept until its last receiver had it");
        text.envelope.sequence = sequence;
        &text.envelope
    }

    /// When a message was said.
    pub(super) fn sent(&self, index: u32) -> SimPs {
        let text = self.texts[index as usize].as_ref();
        text.map_or(SimPs::ZERO, |text| text.sent)
    }

    /// The builder unit that a message to a readout unit comes from, whether it asks for fragments, and
    /// the triggers that it names.
    #[inline]
    pub(super) fn named(&self, index: u32) -> (u16, bool, &[TriggerNumber]) {
        let Some(Text { envelope, .. }) = &self.texts[index as usize] else {
            return (0, false, &[]);
        };
        let (is_request, triggers): (_, &[_]) = match &envelope.message {
            BuilderMessage::FragmentRequest { triggers } => (true, triggers),
            BuilderMessage::Release { triggers } => (false, triggers),
            _ => (false, &[]),
        };
        (envelope.sender.index, is_request, triggers)
    }

    /// Asks for a message.
    #[inline]
    pub(super) fn foresee(&self, index: u32) {
        if let Some(text) = self.texts.get(index as usize) {
            bring_first(text, 128);
        }
    }

    /// Its bytes on a link.
    pub(super) fn bytes(&self, index: u32) -> u32 {
        self.texts[index as usize]
            .as_ref()
            .map_or(0, |text| text.bytes)
    }

    /// A receiver had it.
    pub(super) fn done(&mut self, index: u32) {
        let slot = &mut self.texts[index as usize];
        let Some(text) = slot else { return };
        text.left -= 1;
        if text.left == 0 {
            *slot = None;
            self.free.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::SimPs;

    proptest! {
        /// Whatever is sent in whatever steps comes in its order, with its place, and equal steps to
        /// neighbours take one run.
        #[test]
        fn letters_come_as_they_were_sent(
            sent in prop::collection::vec((0..5_u16, 0..2_u32, 0..3_u64), 1..60),
            units in 5..9_u16,
        ) {
            let mut letters = LettersOut::default();
            let mut expected = VecDeque::new();
            let mut time = SimPs::ZERO;
            for (number, (to, text, step)) in sent.into_iter().enumerate() {
                time = time + DurationPs(step);
                let key = EventKey::new(time, HOST, number as u64);
                let to = UnitId::readout(to);
                let is_first = letters.extend(text, units, std::iter::once((key, to, 7)));
                prop_assert_eq!(is_first, expected.is_empty());
                expected.push_back((key, to, text, 7));
                if number % 3 == 2 {
                    prop_assert_eq!(letters.first(), expected.pop_front());
                    letters.pop(units);
                }
            }
            while let Some(letter) = expected.pop_front() {
                prop_assert_eq!(letters.first(), Some(letter));
                letters.pop(units);
            }
            prop_assert_eq!(letters.first(), None);
        }
    }

    #[test]
    fn a_server_is_as_busy_as_it_has_been() {
        let mut server = Server::default();
        let (now, time) = (SimPs(100), DurationPs(20));
        server.spend(SimPs::ZERO, time);
        server.spend(SimPs(50), time);
        assert_eq!(server.busy_share(now), 0.4);
        // Of 40 more from 70 on, 10 are yet to come.
        server.spend(SimPs(60), time * 2);
        assert_eq!(server.busy_share(now), 0.7);
    }

    #[test]
    fn a_round_is_one_run() {
        let mut letters = LettersOut::default();
        let round = (0..6_u16).map(|number| {
            let time = SimPs::ZERO + DurationPs(2_000) * u64::from(number);
            let key = EventKey::new(time, HOST, number.into());
            (key, UnitId::readout((4 + number) % 6), 0)
        });
        assert!(letters.extend(1, 6, round));
        assert_eq!(letters.runs.len(), 1);
    }
}
