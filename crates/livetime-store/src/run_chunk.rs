//! What a chunk of a run file holds, and why it can be believed on its own.
//!
//! Every chunk starts with the same schemas and channels and then a *chunk mark*: run number, a
//! checksum of the begin-of-run record, its place in the sequence of chunks, and how many events
//! came before it. With these a chunk found anywhere by [`crate::run_scan`] says which run it
//! belongs to and what is missing before it. This module neither reads nor writes files; the
//! records themselves are in [`crate::mcap_record`].
//!
//! ```text
//! data of a chunk:   5 schemas, 5 channels | mark | message | message ...
//! mark (40 bytes):   "LTCK" u32 | version 1 u32 | run u32 | CRC-32C of the begin record u32
//!                    | sequence u64 | events before u64 | 0 u64
//! ```
//! A message is filled up to a multiple of four bytes (events and marks by a zero byte, JSON by
//! blanks), and the preamble leaves the first one where words are aligned; so an event can be
//! viewed in place in a loaded chunk.

use std::sync::OnceLock;

use crc_fast::CrcAlgorithm;
use livetime_wire::{RunNs, RunNumber};

use crate::mcap_record::{
    Fields, MESSAGE_HEADER_BYTES, MessageHeader, Record, op, put_channel, put_schema,
};

/// Version of the run-file format.
pub const FORMAT_VERSION: u32 = 1;
/// Profile in the header record of a run file.
pub const PROFILE: &str = "livetime";
/// Library in the header record; the program's version is in the begin-of-run record.
pub const LIBRARY: &str = "livetime-store";
const MARK_MAGIC: u32 = u32::from_le_bytes(*b"LTCK");
/// Bytes of a chunk mark.
pub const MARK_BYTES: usize = 40;

/// The channels of a run file; channel and schema ids are fixed by the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Channel {
    /// Begin-of-run record, JSON.
    Begin = 1,
    /// Events, one per message.
    Events = 2,
    /// End-of-run record, JSON.
    End = 3,
    /// Histograms in UHI form, JSON.
    Histograms = 4,
    /// Chunk marks.
    Mark = 5,
}

impl Channel {
    /// Every channel, by id.
    pub const ALL: [Self; 5] = [
        Self::Begin,
        Self::Events,
        Self::End,
        Self::Histograms,
        Self::Mark,
    ];

    /// The channel with this id.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| *channel as u16 == id)
    }

    /// The topic, as other readers of the file see it.
    pub fn topic(self) -> &'static str {
        match self {
            Self::Begin => "/run/begin",
            Self::Events => "/events",
            Self::End => "/run/end",
            Self::Histograms => "/run/histograms",
            Self::Mark => "/run/chunk",
        }
    }

    /// Name of the schema.
    fn schema(self) -> &'static str {
        match self {
            Self::Begin => "livetime.run-begin/1",
            Self::Events => "livetime.event/1",
            Self::End => "livetime.run-end/1",
            Self::Histograms => "livetime.histograms/1",
            Self::Mark => "livetime.chunk-mark/1",
        }
    }

    /// Encoding of the messages and of the schema, and the schema's text.
    fn encoding(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Begin | Self::End => (
                "json",
                "jsonschema",
                r#"{"type":"object","description":"Livetime docs/formats/run-file.md"}"#,
            ),
            Self::Histograms => (
                "json",
                "jsonschema",
                r#"{"type":"object","description":"UHI histograms by name, uhi_schema 1"}"#,
            ),
            Self::Events => (
                "livetime.event",
                "text/plain",
                "little-endian u32 words of one event, then one zero byte; \
                 Livetime docs/formats/run-file.md",
            ),
            Self::Mark => (
                "livetime.chunk-mark",
                "text/plain",
                "\"LTCK\", version, run, begin CRC-32C as u32; sequence, events before, 0 as u64",
            ),
        }
    }
}

/// The schemas and channels that every chunk starts with, and that the summary repeats.
#[derive(Debug)]
pub struct Preamble {
    /// The schema records.
    pub schemas: Vec<u8>,
    /// The channel records.
    pub channels: Vec<u8>,
}

impl Preamble {
    /// The preamble of this version of the format.
    pub fn get() -> &'static Self {
        static PREAMBLE: OnceLock<Preamble> = OnceLock::new();
        PREAMBLE.get_or_init(|| {
            let unaligned = Self::with_blanks(0);
            // A message's data starts 31 bytes into its record and shall start on a word.
            Self::with_blanks((4 - (unaligned.bytes() + MESSAGE_HEADER_BYTES) % 4) % 4)
        })
    }

    /// Bytes of all its records.
    pub fn bytes(&self) -> usize {
        self.schemas.len() + self.channels.len()
    }

    /// The text of the last schema ends in `blanks` blanks.
    fn with_blanks(blanks: usize) -> Self {
        let mut preamble = Self {
            schemas: Vec::new(),
            channels: Vec::new(),
        };
        for channel in Channel::ALL {
            let id = channel as u16;
            let (encoding, schema_encoding, text) = channel.encoding();
            let mut text = text.to_owned();
            if channel == Channel::Mark {
                text.extend(std::iter::repeat_n(' ', blanks));
            }
            let (name, text) = (channel.schema(), text.as_bytes());
            put_schema(&mut preamble.schemas, id, name, schema_encoding, text);
            put_channel(&mut preamble.channels, id, id, channel.topic(), encoding);
        }
        preamble
    }
}

/// Which run file a chunk belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunIdentity {
    /// Run number.
    pub run: RunNumber,
    /// CRC-32C of the begin-of-run record, which tells apart files of one run number.
    pub begin_crc: u32,
}

impl RunIdentity {
    /// The identity of a file that starts with this begin-of-run record.
    pub fn new(run: RunNumber, begin_json: &[u8]) -> Self {
        let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, begin_json);
        Self {
            run,
            begin_crc: crc as u32,
        }
    }
}

/// The first message of every chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkMark {
    /// Which run file.
    pub identity: RunIdentity,
    /// Number of the chunk in its file, from 0.
    pub sequence: u64,
    /// Events in the chunks before this one.
    pub events_before: u64,
}

impl ChunkMark {
    /// The message's data without the filling byte.
    pub fn to_bytes(self) -> [u8; MARK_BYTES] {
        let mut out = [0; MARK_BYTES];
        let words = [
            MARK_MAGIC,
            FORMAT_VERSION,
            self.identity.run.0,
            self.identity.begin_crc,
        ];
        for (slot, word) in out.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.events_before.to_le_bytes());
        out
    }

    /// Reads a mark of this version of the format.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let [magic, version] = [fields.u32()?, fields.u32()?];
        let identity = RunIdentity {
            run: RunNumber(fields.u32()?),
            begin_crc: fields.u32()?,
        };
        let mark = Self {
            identity,
            sequence: fields.u64()?,
            events_before: fields.u64()?,
        };
        fields.u64()?;
        (magic == MARK_MAGIC && version == FORMAT_VERSION).then_some(mark)
    }
}

/// Bytes that fill a message with `data_bytes` bytes of data up to a multiple of four.
pub fn filling(data_bytes: usize) -> usize {
    (4 - (MESSAGE_HEADER_BYTES + data_bytes) % 4) % 4
}

/// One message in the data of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Which channel.
    pub channel: Channel,
    /// Low 32 bits of the trigger number for events.
    pub sequence: u32,
    /// Log time.
    pub time: RunNs,
    /// Where its data starts within the chunk's data.
    pub data_offset: usize,
    /// Its data, with what fills it up.
    pub data: &'a [u8],
}

/// Walks the messages in the data of a chunk, which a CRC has to cover before.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    data: &'a [u8],
    offset: usize,
}

impl<'a> Messages<'a> {
    /// Starts at `offset` within the data, which is the start of a record.
    pub fn new(data: &'a [u8], offset: usize) -> Self {
        Self { data, offset }
    }

    /// Where the next record starts.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// The data of a chunk are not a sequence of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chunk holds no record at byte {offset}")]
pub struct RecordError {
    /// Where, within the chunk's data.
    pub offset: usize,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let offset = self.offset;
            let bytes = self.data.get(offset..).filter(|bytes| !bytes.is_empty())?;
            let Some((record, rest)) = Record::split(bytes) else {
                self.offset = self.data.len();
                return Some(Err(RecordError { offset }));
            };
            self.offset = self.data.len() - rest.len();
            if record.opcode != op::MESSAGE {
                continue;
            }
            let Some((header, data)) = MessageHeader::parse(record.content) else {
                self.offset = self.data.len();
                return Some(Err(RecordError { offset }));
            };
            // Channels that a later version may add are passed over.
            let Some(channel) = Channel::from_id(header.channel) else {
                continue;
            };
            let data_offset = self.offset - data.len();
            let (sequence, time) = (header.sequence, RunNs(header.time));
            return Some(Ok(Message {
                channel,
                sequence,
                time,
                data_offset,
                data,
            }));
        }
    }
}

/// What the verified data of a chunk hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkContent {
    /// The mark.
    pub mark: ChunkMark,
    /// Number of events.
    pub events: u64,
    /// Which channels have messages: bit `id`.
    pub channels: u8,
}

/// Why verified data are not a chunk of a run file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// Records are cut off.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is no chunk mark of this version.
    #[error("the chunk has no mark of a Livetime run file, version {FORMAT_VERSION}")]
    NoMark,
}

impl ChunkContent {
    /// Walks all messages once.
    ///
    /// # Errors
    /// A [`ContentError`] if the data are not those of a run file's chunk.
    pub fn of(data: &[u8]) -> Result<Self, ContentError> {
        let mut messages = Messages::new(data, 0);
        let first = messages.next().ok_or(ContentError::NoMark)??;
        let mark = match first.channel {
            Channel::Mark => ChunkMark::parse(first.data).ok_or(ContentError::NoMark)?,
            _ => return Err(ContentError::NoMark),
        };
        let mut content = Self {
            mark,
            events: 0,
            channels: 0,
        };
        for message in messages {
            let channel = message?.channel;
            content.channels |= 1 << channel as u16;
            content.events += u64::from(channel == Channel::Events);
        }
        Ok(content)
    }

    /// Whether the chunk has messages of this channel.
    pub fn has(&self, channel: Channel) -> bool {
        self.channels & (1 << channel as u16) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preamble_leaves_the_first_message_on_a_word() {
        let preamble = Preamble::get();
        assert_eq!((preamble.bytes() + MESSAGE_HEADER_BYTES) % 4, 0);
        assert!(
            preamble.bytes() < 2048,
            "{} bytes in each chunk",
            preamble.bytes()
        );
        let bytes = [&preamble.schemas[..], &preamble.channels].concat();
        assert!(Messages::new(&bytes, 0).next().is_none());
    }

    #[test]
    fn mark_reads_back_and_strangers_are_refused() {
        let identity = RunIdentity::new(RunNumber(42), b"{}");
        let mark = ChunkMark {
            identity,
            sequence: 1 << 40,
            events_before: u64::MAX,
        };
        assert_eq!(ChunkMark::parse(&mark.to_bytes()), Some(mark));
        for byte in 0..8 {
            let mut bytes = mark.to_bytes();
            bytes[byte] ^= 1;
            assert_eq!(ChunkMark::parse(&bytes), None);
        }
        assert_eq!(ChunkMark::parse(&mark.to_bytes()[..39]), None);
    }

    #[test]
    fn data_without_mark_or_with_cut_records_are_refused() {
        assert_eq!(ChunkContent::of(&[]), Err(ContentError::NoMark));
        let schemas = &Preamble::get().schemas[..];
        assert_eq!(ChunkContent::of(schemas), Err(ContentError::NoMark));
        let cut = &schemas[..schemas.len() - 1];
        assert!(matches!(
            ChunkContent::of(cut),
            Err(ContentError::Record(_))
        ));
    }
}
