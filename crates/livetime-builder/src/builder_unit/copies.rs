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
            BuilderMessage::FragmentRequest { .. } => {
                while self.request_round.left > 0 {
                    let to = self.next_to_ask(now);
                    copies.push(self.copy(to));
                }
            }
            BuilderMessage::Release { .. } => {
                while let Some(releasing @ Releasing::Whole(_)) = self.releasing {
                    let to = self.next_to_release(releasing);
                    copies.push(self.copy(to));
                }
            }
            _ => {}
        }
        Some(first)
    }

    fn copy(&mut self, to: usize) -> MessageCopy {
        let sequence = self.readouts.next_sequence(to, &mut self.counts.messages);
        MessageCopy {
            to: to as u16,
            sequence,
        }
    }
}
