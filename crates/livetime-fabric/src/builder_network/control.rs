//! Control messages on their way: each text once, however many readout units it goes to.
//!
//! A builder unit sends the same request to every readout unit; only receiver and sequence number
//! differ. The text is kept until the last of them has come, so that a message in flight costs an
//! event of the kernel and no more.

use livetime_wire::TriggerNumber;
use livetime_wire::message::{BuilderMessage, Envelope};

use crate::time::{DurationPs, SimPs};

/// Something that does one thing at a time: a processor, a link, a bus.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Server {
    free_at: SimPs,
}

impl Server {
    /// Takes so long from `at` on, or when it is free; returns when it is through.
    pub(super) fn spend(&mut self, at: SimPs, time: DurationPs) -> SimPs {
        self.free_at = self.free_at.max(at) + time;
        self.free_at
    }

    /// When it is through with what it has.
    pub(super) const fn free_at(self) -> SimPs {
        self.free_at
    }
}

#[derive(Debug)]
struct Text {
    envelope: Envelope,
    bytes: u32,
    /// Receivers that have not had it.
    left: u32,
}

/// The texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    texts: Vec<Option<Text>>,
    free: Vec<u32>,
    last: Option<u32>,
}

impl Texts {
    /// Keeps a message for one more receiver; returns its number and its bytes on a link.
    pub(super) fn keep(&mut self, envelope: Envelope) -> (u32, u32) {
        if let Some(index) = self.last
            && let Some(last) = &mut self.texts[index as usize]
            && last.envelope.sender == envelope.sender
            && last.envelope.epoch == envelope.epoch
            && last.envelope.message == envelope.message
        {
            last.left += 1;
            return (index, last.bytes);
        }
        let bytes = 4 * envelope.to_words().len() as u32;
        let text = Some(Text {
            envelope,
            bytes,
            left: 1,
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
        self.last = Some(index);
        (index, bytes)
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

    /// The builder unit that a message to a readout unit comes from, and the triggers that it names.
    pub(super) fn named(&self, index: u32) -> (u16, &[TriggerNumber]) {
        let Some(Text { envelope, .. }) = &self.texts[index as usize] else {
            return (0, &[]);
        };
        let triggers: &[_] = match &envelope.message {
            BuilderMessage::FragmentRequest { triggers } | BuilderMessage::Release { triggers } => {
                triggers
            }
            _ => &[],
        };
        (envelope.sender.index, triggers)
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
            if self.last == Some(index) {
                self.last = None;
            }
        }
    }
}
