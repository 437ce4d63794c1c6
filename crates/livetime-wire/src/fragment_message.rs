//! A [`BuilderMessage::FragmentData`] by reference, and read again and again into the same place.
//!
//! Of all messages there is one for each fragment. A message by value has room for the longest of all
//! kinds, and is copied where it goes; here the descriptor stays where it is until its words are written
//! ([`FragmentMessage::emit`]), and is written where it stays when they are read ([`Envelope::read`]).

use crate::id::{TriggerNumber, UnitId};
use crate::message::{
    BuilderMessage, Envelope, FRAGMENT_DATA, FragmentDescriptor, HEADER_WORDS, MAGIC, MessageError,
    VERSION, parse_fragment_data, parse_header,
};

/// Word 0 of the message.
const FIRST_WORD: u32 = (MAGIC << 16) | ((FRAGMENT_DATA as u32) << 8) | VERSION;
/// Words of trigger number and descriptor without pages.
const BODY_WORDS: usize = 2 + 5;

/// The message of a fragment that stays on file.
#[derive(Debug, Clone, Copy)]
pub struct FragmentMessage<'a> {
    /// Who sends it.
    pub sender: UnitId,
    /// The sender's epoch.
    pub epoch: u32,
    /// The sender's count of messages towards this receiver.
    pub sequence: u32,
    /// Of which trigger.
    pub trigger: TriggerNumber,
    /// The fragment.
    pub fragment: &'a FragmentDescriptor,
}

impl FragmentMessage<'_> {
    /// Words of the message.
    #[inline]
    pub fn words(&self) -> usize {
        HEADER_WORDS + BODY_WORDS + self.fragment.pages.len()
    }

    /// Appends the message's words.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u32>) {
        let FragmentDescriptor {
            source,
            pool,
            words,
            status,
            crc,
            pages,
        } = self.fragment;
        out.extend_from_slice(&[
            FIRST_WORD,
            ((self.words() as u32) << 16) | u32::from(self.sender.to_code()),
            self.epoch,
            self.sequence,
            (self.trigger.0 & 0xFFFF_FFFF) as u32,
            (self.trigger.0 >> 32) as u32,
            source.0,
            *words,
            status.0,
            *crc,
            (u32::from(*pool) << 16) | pages.len() as u32,
        ]);
        out.extend_from_slice(pages);
    }

    /// The message by value.
    pub fn to_envelope(&self) -> Envelope {
        Envelope {
            sender: self.sender,
            epoch: self.epoch,
            sequence: self.sequence,
            message: BuilderMessage::FragmentData {
                trigger: self.trigger,
                fragment: self.fragment.clone(),
            },
        }
    }
}

impl Envelope {
    /// As [`Envelope::parse`], over this message: a fragment over a fragment takes less time.
    ///
    /// # Errors
    /// A [`MessageError`] that says what is wrong; this message is then as before, or part of it.
    #[inline]
    pub fn read(&mut self, words: &[u32]) -> Result<(), MessageError> {
        match &mut self.message {
            BuilderMessage::FragmentData { trigger, fragment }
                if words.first() == Some(&FIRST_WORD) =>
            {
                let header = parse_header(words)?;
                (*trigger, *fragment) = parse_fragment_data(header.body)?;
                self.sender = header.sender;
                (self.epoch, self.sequence) = (header.epoch, header.sequence);
            }
            _ => *self = Self::parse(words)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SourceId;
    use crate::message::FRAGMENT_PAGES_MAX;
    use crate::slink::FragmentStatus;

    fn fragment(pages: usize) -> FragmentDescriptor {
        FragmentDescriptor {
            source: SourceId(0x12_0003),
            pool: 7,
            words: 1000 + pages as u32,
            status: FragmentStatus::GOOD,
            crc: 0xDEAD_BEEF,
            pages: (100..).take(pages).collect(),
        }
    }

    fn message(fragment: &FragmentDescriptor, sequence: u32) -> FragmentMessage<'_> {
        FragmentMessage {
            sender: UnitId::readout(3),
            epoch: 9,
            sequence,
            trigger: TriggerNumber(0x1_0000_0002 + u64::from(sequence)),
            fragment,
        }
    }

    #[test]
    fn words_are_those_of_the_message_by_value_and_are_read_over_any_other() {
        let mut read = Envelope {
            sender: UnitId::EVENT_MANAGER,
            epoch: 1,
            sequence: 1,
            message: BuilderMessage::Alive,
        };
        for pages in [0, 1, 5, FRAGMENT_PAGES_MAX, 2] {
            let fragment = fragment(pages);
            let message = message(&fragment, pages as u32);
            let mut words = Vec::new();
            message.emit(&mut words);
            assert_eq!(words, message.to_envelope().to_words().to_vec());
            assert_eq!(words.len(), message.words());
            read.read(&words).unwrap();
            assert_eq!(read, message.to_envelope());
        }
        let other = Envelope {
            message: BuilderMessage::EventRequest { credits: 4 },
            ..read.clone()
        };
        read.read(&other.to_words()).unwrap();
        assert_eq!(read, other);
    }

    #[test]
    fn what_parse_refuses_is_refused_for_the_same_reason() {
        let fragment = fragment(3);
        let message = message(&fragment, 5);
        let mut words = Vec::new();
        message.emit(&mut words);
        for at in 0..words.len() {
            for value in [0, 1, words[at] ^ 0x0001_0000, words[at] ^ 4, u32::MAX] {
                let mut bad = words.clone();
                bad[at] = value;
                let mut read = message.to_envelope();
                let expected = Envelope::parse(&bad);
                assert_eq!(read.read(&bad).err(), expected.as_ref().err().copied());
                if let Ok(expected) = expected {
                    assert_eq!(read, expected);
                }
            }
            let mut read = message.to_envelope();
            let expected = Envelope::parse(&words[..at]).unwrap_err();
            assert_eq!(read.read(&words[..at]), Err(expected));
        }
    }
}
