//! Datagrams that carry builder messages, and the payload of a fragment page by page.
//!
//! ```text
//! word 0  31:16 0x4C44 | 15:8 version 1 | 7:0 messages, 1 to 64
//!      1  number of the datagram in its direction of its pair of units, from 0, low 32 bits
//!      2  31:16 words of all messages, with the one in front of each | 15:0 words of payload
//!      3  31:16 index of the piece of the fragment's payload | 15:0 pieces, 0 without payload
//!      4  CRC-32C over words 0 to 3 and the messages
//!      .. per message: its words, the message
//!     33  the payload, if there is one: behind one message, a `FragmentData`
//! ```
//!
//! The payload begins at a fixed word, so that a receiver has it written into a page before it knows
//! what comes; the words between message and payload mean nothing. The payload is guarded by the
//! CRC-32C of the whole fragment, which its message names. A page of the sender is a piece. The
//! numbers say what was lost, came twice or late. The page is `docs/formats/message-datagram.md`;
//! who sends and receives is `livetime_node::transport`.

use crate::crc::Crc32c;
use crate::message::{DESCRIPTOR_WORDS_MAX, FRAGMENT_PAGES_MAX, HEADER_WORDS, MESSAGE_WORDS_MAX};

/// Upper half of word 0.
pub const MAGIC: u32 = 0x4C44;
/// Format version.
pub const VERSION: u32 = 1;
/// Words before the messages.
pub const HEAD_WORDS: usize = 5;
/// Where the payload begins: behind the longest `FragmentData`.
pub const PAYLOAD_AT: usize = HEAD_WORDS + 1 + HEADER_WORDS + 2 + DESCRIPTOR_WORDS_MAX;
/// Most messages of a datagram.
pub const MESSAGES_MAX: usize = 64;
/// Most words of a datagram without payload: 1440 bytes, which an Ethernet frame carries in one.
pub const PLAIN_WORDS_MAX: usize = 360;
/// Most bytes of a datagram over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Most words of payload of a datagram.
pub const PAYLOAD_WORDS_MAX: usize = DATAGRAM_BYTES_MAX / 4 - PAYLOAD_AT;

const _: () = assert!(HEAD_WORDS + 1 + MESSAGE_WORDS_MAX <= PLAIN_WORDS_MAX);
const _: () = assert!(PAYLOAD_AT <= PLAIN_WORDS_MAX);

/// A piece of the payload of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which, from 0.
    pub index: usize,
    /// Pieces of the fragment, 1 to [`FRAGMENT_PAGES_MAX`].
    pub count: usize,
    /// Its words, 1 to [`PAYLOAD_WORDS_MAX`].
    pub words: usize,
}

/// The first words of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHead {
    /// Datagrams before it in its direction, those lost included; low 32 bits.
    pub number: u32,
    /// Messages, 1 to [`MESSAGES_MAX`].
    pub messages: usize,
    /// Words of all messages, with the one in front of each.
    pub message_words: usize,
    /// What payload follows, behind one message.
    pub piece: Option<Piece>,
}

/// Why words are not a datagram of builder messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// Word 0 is not a datagram's.
    #[error("datagram starts with {found:#010x}, expected {MAGIC:#06x} and version {VERSION}")]
    Magic {
        /// Found.
        found: u32,
    },
    /// More or fewer words than the head says.
    #[error("datagram of {found} words, its head says {expected}")]
    Length {
        /// Words that came.
        found: usize,
        /// Words that the head says, or the least of any datagram.
        expected: usize,
    },
    /// A count in the head or in front of a message is out of its range.
    #[error("count {found} is not allowed, at most {allowed}")]
    Count {
        /// Found.
        found: usize,
        /// The most allowed.
        allowed: usize,
    },
    /// Head or messages were damaged on their way.
    #[error("CRC-32C {found:#010x} of head and messages, the datagram says {expected:#010x}")]
    Crc {
        /// Computed.
        found: u32,
        /// In the datagram.
        expected: u32,
    },
}

/// Refuses a count above what is allowed, or of nothing.
fn counted(found: usize, allowed: usize) -> Result<usize, DatagramError> {
    match (1..=allowed).contains(&found) {
        true => Ok(found),
        false => Err(DatagramError::Count { found, allowed }),
    }
}

/// CRC-32C over the words of the head but the last, and the messages.
fn crc_of(head: &[u32], messages: &[u32]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&head[..HEAD_WORDS - 1]);
    crc.update(messages);
    crc.value()
}

impl DatagramHead {
    /// Writes the head in front of its messages.
    ///
    /// # Panics
    /// If `words` are not as many as head and messages take.
    pub fn seal(&self, words: &mut [u32]) {
        let (head, messages) = words.split_at_mut(HEAD_WORDS);
        assert_eq!(messages.len(), self.message_words, "the messages as named");
        let piece = self.piece.unwrap_or(Piece {
            index: 0,
            count: 0,
            words: 0,
        });
        head[0] = MAGIC << 16 | VERSION << 8 | self.messages as u32;
        head[1] = self.number;
        head[2] = (self.message_words as u32) << 16 | piece.words as u32;
        head[3] = (piece.index as u32) << 16 | piece.count as u32;
        head[4] = crc_of(head, messages);
    }

    /// Reads a head; whether it came undamaged says [`DatagramHead::messages`].
    ///
    /// # Errors
    /// A [`DatagramError`].
    pub fn parse(words: &[u32]) -> Result<Self, DatagramError> {
        let Some(head) = words.first_chunk::<HEAD_WORDS>() else {
            let (found, expected) = (words.len(), HEAD_WORDS);
            return Err(DatagramError::Length { found, expected });
        };
        if head[0] >> 8 != MAGIC << 8 | VERSION {
            return Err(DatagramError::Magic { found: head[0] });
        }
        let payload_words = (head[2] & 0xFFFF) as usize;
        let (index, count) = ((head[3] >> 16) as usize, (head[3] & 0xFFFF) as usize);
        let has_payload = payload_words > 0 || head[3] > 0;
        let (messages_max, words_max) = match has_payload {
            true => (1, PAYLOAD_AT - HEAD_WORDS),
            false => (MESSAGES_MAX, PLAIN_WORDS_MAX - HEAD_WORDS),
        };
        let piece = has_payload.then(|| {
            counted(index + 1, count)?;
            Ok(Piece {
                index,
                count: counted(count, FRAGMENT_PAGES_MAX)?,
                words: counted(payload_words, PAYLOAD_WORDS_MAX)?,
            })
        });
        Ok(Self {
            number: head[1],
            messages: counted((head[0] & 0xFF) as usize, messages_max)?,
            message_words: counted((head[2] >> 16) as usize, words_max)?,
            piece: piece.transpose()?,
        })
    }

    /// Words of the whole datagram.
    pub fn datagram_words(&self) -> usize {
        match self.piece {
            Some(piece) => PAYLOAD_AT + piece.words,
            None => HEAD_WORDS + self.message_words,
        }
    }

    /// The words of the messages of a datagram whose head this is, for [`next_message`]; `words` are
    /// its first ones.
    ///
    /// # Errors
    /// A [`DatagramError`] when they are damaged or not as many as the head says.
    pub fn messages<'a>(&self, words: &'a [u32]) -> Result<&'a [u32], DatagramError> {
        let end = HEAD_WORDS + self.message_words;
        let Some(messages) = words.get(HEAD_WORDS..end) else {
            let (found, expected) = (words.len(), end);
            return Err(DatagramError::Length { found, expected });
        };
        let (found, expected) = (crc_of(words, messages), words[HEAD_WORDS - 1]);
        if found != expected {
            return Err(DatagramError::Crc { found, expected });
        }
        let mut rest = messages;
        let mut left = self.messages;
        while left > 0 && next_message(&mut rest).is_some() {
            left -= 1;
        }
        match left == 0 && rest.is_empty() {
            true => Ok(messages),
            false => Err(DatagramError::Count {
                found: rest.len(),
                allowed: 0,
            }),
        }
    }

    /// Reads a datagram that is all of `words`: its head, its messages and its payload.
    ///
    /// # Errors
    /// A [`DatagramError`].
    pub fn parse_whole(words: &[u32]) -> Result<(Self, &[u32], &[u32]), DatagramError> {
        let head = Self::parse(words)?;
        let (found, expected) = (words.len(), head.datagram_words());
        if found != expected {
            return Err(DatagramError::Length { found, expected });
        }
        let payload = words.get(PAYLOAD_AT..).filter(|_| head.piece.is_some());
        Ok((head, head.messages(words)?, payload.unwrap_or_default()))
    }
}

/// Splits the next message off the messages of a datagram.
#[inline]
pub fn next_message<'a>(rest: &mut &'a [u32]) -> Option<&'a [u32]> {
    let (words, behind) = rest.split_first()?;
    let message = behind.get(..*words as usize)?;
    *rest = &behind[message.len()..];
    Some(message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::crc::crc32c;
    use crate::id::{SourceId, TriggerNumber, UnitId};
    use crate::message::{BuilderMessage, Envelope, FragmentDescriptor};
    use crate::slink::FragmentStatus;

    /// A datagram of these messages, with these words of payload.
    fn datagram(number: u32, messages: &[Vec<u32>], piece: Option<Piece>) -> Vec<u32> {
        let mut words = vec![0; HEAD_WORDS];
        for message in messages {
            words.push(message.len() as u32);
            words.extend(message);
        }
        let head = DatagramHead {
            number,
            messages: messages.len(),
            message_words: words.len() - HEAD_WORDS,
            piece,
        };
        head.seal(&mut words);
        if let Some(piece) = piece {
            words.resize(PAYLOAD_AT, 0);
            words.extend(0..piece.words as u32);
        }
        words
    }

    fn golden() -> Vec<u32> {
        let page = include_str!("../../../docs/formats/message-datagram-v1.hex");
        let words = page.lines().filter_map(|line| line.split('#').next());
        let words = words.map(str::trim).filter(|text| !text.is_empty());
        words
            .map(|text| u32::from_str_radix(text, 16).unwrap())
            .collect()
    }

    #[test]
    fn datagrams_are_the_golden_words() {
        let alive = Envelope {
            sender: UnitId::readout(0),
            epoch: 1,
            sequence: 5,
            message: BuilderMessage::Alive,
        };
        let fragment = FragmentDescriptor {
            source: SourceId(3),
            pool: 0,
            words: 3,
            status: FragmentStatus::GOOD,
            crc: crc32c(&[0, 1, 2]),
            pages: [7].into_iter().collect(),
        };
        let data = Envelope {
            sequence: 6,
            message: BuilderMessage::FragmentData {
                trigger: TriggerNumber(9),
                fragment,
            },
            ..alive.clone()
        };
        let messages = [alive.to_words().to_vec(), alive.to_words().to_vec()];
        let mut words = datagram(4, &messages, None);
        let piece = Piece {
            index: 0,
            count: 1,
            words: 3,
        };
        words.extend(datagram(5, &[data.to_words().to_vec()], Some(piece)));
        assert_eq!(words, golden());
    }

    #[test]
    fn damaged_and_cut_datagrams_are_refused_with_what_is_wrong() {
        let piece = Piece {
            index: 1,
            count: 2,
            words: 10,
        };
        let good = datagram(1, &[vec![7; 20]], Some(piece));
        let (head, messages, payload) = DatagramHead::parse_whole(&good).unwrap();
        assert_eq!(
            (head.piece, messages.len(), payload.len()),
            (Some(piece), 21, 10)
        );
        type Damage = fn(&mut Vec<u32>);
        let cases: [(&str, Damage); 9] = [
            ("Magic", |words| words[0] ^= 1 << 31),
            ("Magic", |words| words[0] ^= 1 << 8),
            ("Count", |words| words[0] += 1),
            ("Crc", |words| words[1] ^= 1),
            ("Length", |words| words[2] += 1),
            ("Count", |words| words[3] = 2 << 16 | 2),
            ("Crc", |words| words[HEAD_WORDS + 3] ^= 1),
            ("Length", |words| words.truncate(PAYLOAD_AT + 9)),
            ("Length", |words| words.truncate(2)),
        ];
        for (kind, damage) in cases {
            let mut words = good.clone();
            damage(&mut words);
            let error = DatagramHead::parse_whole(&words).unwrap_err();
            assert!(format!("{error:?}").starts_with(kind), "{kind}: {error:?}");
        }
    }

    #[test]
    fn a_page_of_the_largest_payload_makes_the_longest_datagram() {
        const { assert!(4 * (PAYLOAD_AT + PAYLOAD_WORDS_MAX) <= DATAGRAM_BYTES_MAX) };
        const { assert!(4 * (PAYLOAD_AT + PAYLOAD_WORDS_MAX + 1) > DATAGRAM_BYTES_MAX) };
    }

    proptest! {
        #[test]
        fn what_is_sent_is_read(number in any::<u32>(),
                                messages in prop::collection::vec(
                                    prop::collection::vec(any::<u32>(), 1..=8), 1..=32)) {
            let words = datagram(number, &messages, None);
            let (head, mut rest, payload) = DatagramHead::parse_whole(&words).unwrap();
            prop_assert_eq!((head.number, head.messages), (number, messages.len()));
            prop_assert!(payload.is_empty());
            for message in &messages {
                prop_assert_eq!(next_message(&mut rest), Some(&message[..]));
            }
            prop_assert_eq!(next_message(&mut rest), None);
        }

        #[test]
        fn pieces_are_read_as_they_were_sent(index in 0usize..FRAGMENT_PAGES_MAX,
                                             more in 1usize..4,
                                             words in 1usize..200,
                                             message in prop::collection::vec(any::<u32>(), 1..=27)) {
            let count = (index + more).min(FRAGMENT_PAGES_MAX);
            let piece = Piece { index, count, words };
            let datagram = datagram(3, &[message], Some(piece));
            let (head, _, payload) = DatagramHead::parse_whole(&datagram).unwrap();
            prop_assert_eq!(head.piece, Some(piece));
            prop_assert!(payload.iter().copied().eq(0..words as u32));
        }

        #[test]
        fn any_words_are_read_or_refused(words in prop::collection::vec(any::<u32>(), 0..400),
                                         is_started in any::<bool>()) {
            let mut words = words;
            if let (true, Some(first)) = (is_started, words.first_mut()) {
                *first = MAGIC << 16 | VERSION << 8 | (*first & 0xFF);
            }
            let _ = DatagramHead::parse_whole(&words);
        }
    }
}
