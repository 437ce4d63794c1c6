//! Messages that go to many readout units alike, said once: for drivers that can send copies.
//!
//! A request or a release of whole events is the same for every readout unit but for its number.

use livetime_wire::RunNs;
use livetime_wire::message::BuilderMessage;

use super::{BuilderUnit, Releasing};
use crate::message_exchange::Outgoing;

/// Another receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageCopy {
    /// Index of the readout unit.
    pub to: u16,
    /// The sequence number of its copy.
    pub sequence: u32,
}

impl BuilderUnit {
    /// As [`BuilderUnit::poll_output`], for a message and those that follow it and say the same to
    /// other readout units: these are named in `copies`, in their order.
    pub fn poll_copies(&mut self, now: RunNs, copies: &mut Vec<MessageCopy>) -> Option<Outgoing> {
        copies.clear();
        let first = self.poll_output(now)?;
        // Either kind may come again out of its round, but not while one is going on.
        match first.envelope.message {
            BuilderMessage::FragmentRequest { .. } if self.request_round.left > 0 => {
                if self.in_first_step.is_empty() {
                    let rest = self.request_round.take_rest(self.readout_count());
                    self.copy_to(rest, copies);
                    self.start_building(now);
                }
                while self.request_round.left > 0 {
                    let to = self.next_to_ask(now);
                    self.copy_to(std::iter::once(to as u16), copies);
                }
            }
            BuilderMessage::Release { .. } => {
                if let Some(releasing @ Releasing::Whole(_)) = self.releasing {
                    let rest = self.release_round.take_rest(self.readout_count());
                    self.copy_to(rest, copies);
                    self.end_releasing(releasing);
                }
            }
            _ => {}
        }
        Some(first)
    }

    /// The next readout unit of a round of requests.
    pub(super) fn next_to_ask(&mut self, now: RunNs) -> usize {
        let units = self.readout_count();
        let mut to = self.request_round.step(units);
        while !self.is_asked(to) && self.request_round.left > 0 {
            to = self.request_round.step(units);
        }
        if !self.has_more_to_ask() {
            self.request_round.left = 0;
            self.start_building(now);
        }
        to
    }

    /// The next readout unit of a round of releases.
    pub(super) fn next_to_release(&mut self, releasing: Releasing) -> usize {
        let to = self.release_round.step(self.readout_count());
        if self.release_round.left == 0 {
            self.end_releasing(releasing);
        }
        to
    }

    /// Every readout unit was told of the current releases.
    fn end_releasing(&mut self, releasing: Releasing) {
        self.releasing = None;
        let released = match releasing {
            Releasing::Whole(events) => events,
            Releasing::Partial(_) => 1,
        };
        for slot in self.finished.drain(..released) {
            let is_accepted = self.assembly.event(slot).is_accepted;
            self.clearing[usize::from(is_accepted)].push_back(slot);
        }
    }

    /// Copies to readout units, one after the other.
    fn copy_to(&mut self, units: impl Iterator<Item = u16>, copies: &mut Vec<MessageCopy>) {
        let (readouts, messages) = (&mut self.readouts, &mut self.counts.messages);
        copies.extend(units.map(|to| MessageCopy {
            to,
            sequence: readouts.next_sequence(to.into(), messages),
        }));
    }
}
