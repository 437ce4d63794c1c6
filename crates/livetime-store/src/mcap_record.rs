//! The MCAP records of a run file, byte by byte: emitted into a buffer, parsed from checked bytes.
//!
//! This module knows the container (<https://mcap.dev/spec>, version 0 of the format) and nothing
//! of what Livetime puts into it; that is [`crate::run_chunk`]. Numbers are little-endian, strings
//! and byte arrays carry their length first. The `mcap` crate is the oracle in the tests and not
//! the writer: `docs/decisions/0023-mcap-records.md` says why.
//!
//! ```text
//! record   opcode u8 | length u64 | content
//! chunk    0x06 | length u64 | start u64 | end u64 | data bytes u64 | CRC-32 u32
//!          | compression "" (length 0 u32) | data bytes u64 | data        49 bytes before the data
//! message  0x05 | length u64 | channel u16 | sequence u32 | log time u64 | publish time u64 | data
//! ```

use arrayvec::ArrayVec;
use crc_fast::CrcAlgorithm;

/// First and last bytes of a file.
pub const MAGIC: [u8; 8] = [0x89, b'M', b'C', b'A', b'P', b'0', b'\r', b'\n'];
/// Opcode and length in front of each record.
pub const RECORD_HEADER_BYTES: usize = 9;
/// Bytes of a chunk record before its data, when it is not compressed.
pub const CHUNK_HEADER_BYTES: usize = RECORD_HEADER_BYTES + CHUNK_FIXED_BYTES;
/// Bytes of a message record before its data.
pub const MESSAGE_HEADER_BYTES: usize = RECORD_HEADER_BYTES + MESSAGE_FIXED_BYTES;
/// Bytes of a footer record.
pub const FOOTER_BYTES: usize = RECORD_HEADER_BYTES + 20;
/// Most channels of a run file; a file with more is not one of ours.
pub const CHANNELS_MAX: usize = 5;
const CHUNK_FIXED_BYTES: usize = 40;
const MESSAGE_FIXED_BYTES: usize = 22;

/// Opcodes of the records.
pub mod op {
    /// Start of the file.
    pub const HEADER: u8 = 0x01;
    /// End of the file.
    pub const FOOTER: u8 = 0x02;
    /// What the data of a channel means.
    pub const SCHEMA: u8 = 0x03;
    /// A stream of messages.
    pub const CHANNEL: u8 = 0x04;
    /// One message.
    pub const MESSAGE: u8 = 0x05;
    /// A block of schemas, channels and messages under one CRC.
    pub const CHUNK: u8 = 0x06;
    /// Where the messages of one channel lie in the chunk before it.
    pub const MESSAGE_INDEX: u8 = 0x07;
    /// Where a chunk lies.
    pub const CHUNK_INDEX: u8 = 0x08;
    /// A file within the file.
    pub const ATTACHMENT: u8 = 0x09;
    /// Where an attachment lies.
    pub const ATTACHMENT_INDEX: u8 = 0x0A;
    /// Counts of the file.
    pub const STATISTICS: u8 = 0x0B;
    /// Where the groups of the summary lie.
    pub const SUMMARY_OFFSET: u8 = 0x0E;
    /// End of the data section.
    pub const DATA_END: u8 = 0x0F;
}

/// CRC-32 (ISO-HDLC, the one of zip files) of bytes, as MCAP uses it.
pub fn crc32(bytes: &[u8]) -> u32 {
    // The algorithm's width is 32 bits, so the upper half of the result is zero.
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// Takes fixed fields off the front of untrusted bytes; `None` once they run out.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// The next `N` bytes as an array.
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next 16-bit number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next bytes that carry their length in 32 bits.
    pub fn prefixed(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()?;
        self.bytes(usize::try_from(count).ok()?)
    }
}

/// One record within bytes.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its opcode, see [`op`].
    pub opcode: u8,
    /// Its content, without opcode and length.
    pub content: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes a record off the front of `bytes`; `None` if it is cut off.
    pub fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut fields = Fields(bytes);
        let opcode = fields.u8()?;
        let length = usize::try_from(fields.u64()?).ok()?;
        let content = fields.bytes(length)?;
        Some((Self { opcode, content }, fields.0))
    }
}

/// Appends a record whose content is what `content` appends.
pub fn put_record(out: &mut Vec<u8>, opcode: u8, content: impl FnOnce(&mut Vec<u8>)) {
    out.push(opcode);
    let length_at = out.len();
    out.extend_from_slice(&[0; 8]);
    content(out);
    let length = (out.len() - length_at - 8) as u64;
    out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
}

/// Appends bytes with their length in 32 bits first.
///
/// # Panics
/// If there are 4 GiB of them.
pub fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("strings and maps of run files are short");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends the record that opens a file.
pub fn put_header(out: &mut Vec<u8>, profile: &str, library: &str) {
    put_record(out, op::HEADER, |out| {
        put_prefixed(out, profile.as_bytes());
        put_prefixed(out, library.as_bytes());
    });
}

/// Appends a schema record.
pub fn put_schema(out: &mut Vec<u8>, id: u16, name: &str, encoding: &str, data: &[u8]) {
    put_record(out, op::SCHEMA, |out| {
        out.extend_from_slice(&id.to_le_bytes());
        put_prefixed(out, name.as_bytes());
        put_prefixed(out, encoding.as_bytes());
        put_prefixed(out, data);
    });
}

/// Appends a channel record without metadata.
pub fn put_channel(out: &mut Vec<u8>, id: u16, schema: u16, topic: &str, encoding: &str) {
    put_record(out, op::CHANNEL, |out| {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&schema.to_le_bytes());
        put_prefixed(out, topic.as_bytes());
        put_prefixed(out, encoding.as_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
    });
}

/// The header of an uncompressed chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Earliest log time of its messages.
    pub start_time: u64,
    /// Latest log time of its messages.
    pub end_time: u64,
    /// CRC-32 over the data.
    pub crc: u32,
    /// Bytes of its data.
    pub data_bytes: u64,
}

impl ChunkHeader {
    /// The bytes from the opcode to the start of the data.
    pub fn to_bytes(self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut out = [0; CHUNK_HEADER_BYTES];
        let record_bytes = self.data_bytes + CHUNK_FIXED_BYTES as u64;
        out[0] = op::CHUNK;
        out[1..9].copy_from_slice(&record_bytes.to_le_bytes());
        out[9..17].copy_from_slice(&self.start_time.to_le_bytes());
        out[17..25].copy_from_slice(&self.end_time.to_le_bytes());
        out[25..33].copy_from_slice(&self.data_bytes.to_le_bytes());
        out[33..37].copy_from_slice(&self.crc.to_le_bytes());
        out[41..49].copy_from_slice(&self.data_bytes.to_le_bytes());
        out
    }

    /// Reads a header whose three lengths agree and which names no compression; the times are
    /// covered by no CRC and are not to be trusted.
    pub fn parse(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let opcode = fields.u8()?;
        let record_bytes = fields.u64()?;
        let start_time = fields.u64()?;
        let end_time = fields.u64()?;
        let uncompressed = fields.u64()?;
        let crc = fields.u32()?;
        let compression_bytes = fields.u32()?;
        let data_bytes = fields.u64()?;
        let consistent = opcode == op::CHUNK
            && compression_bytes == 0
            && uncompressed == data_bytes
            && data_bytes.checked_add(CHUNK_FIXED_BYTES as u64) == Some(record_bytes);
        consistent.then_some(Self {
            start_time,
            end_time,
            crc,
            data_bytes,
        })
    }

    /// The CRC field alone, for a chunk whose place and size are known from the index.
    pub fn stored_crc(bytes: &[u8; CHUNK_HEADER_BYTES]) -> u32 {
        let [a, b, c, d] = [bytes[33], bytes[34], bytes[35], bytes[36]];
        u32::from_le_bytes([a, b, c, d])
    }
}

/// The fixed part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// Which channel.
    pub channel: u16,
    /// Low 32 bits of the trigger number for events.
    pub sequence: u32,
    /// Log and publish time.
    pub time: u64,
}

impl MessageHeader {
    /// Appends the header of a message with `data_bytes` bytes of data.
    pub fn put(self, out: &mut Vec<u8>, data_bytes: usize) {
        let mut bytes = [0; MESSAGE_HEADER_BYTES];
        bytes[0] = op::MESSAGE;
        bytes[1..9].copy_from_slice(&((data_bytes + MESSAGE_FIXED_BYTES) as u64).to_le_bytes());
        bytes[9..11].copy_from_slice(&self.channel.to_le_bytes());
        bytes[11..15].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[15..23].copy_from_slice(&self.time.to_le_bytes());
        bytes[23..31].copy_from_slice(&self.time.to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Reads a message's content: header and data.
    pub fn parse(content: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields(content);
        let header = Self {
            channel: fields.u16()?,
            sequence: fields.u32()?,
            time: fields.u64()?,
        };
        fields.u64()?;
        Some((header, fields.0))
    }
}

/// The index entry of one chunk, in the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkIndex {
    /// Earliest log time.
    pub start_time: u64,
    /// Latest log time.
    pub end_time: u64,
    /// Where the chunk record starts in the file.
    pub offset: u64,
    /// Bytes of the chunk's data.
    pub data_bytes: u64,
    /// Where the message index of each channel lies in the file.
    pub message_indexes: ArrayVec<(u16, u64), CHANNELS_MAX>,
    /// Bytes of all message indexes of this chunk.
    pub message_index_bytes: u64,
}

impl ChunkIndex {
    /// Appends the record.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_record(out, op::CHUNK_INDEX, |out| {
            let record_bytes = self.data_bytes + CHUNK_HEADER_BYTES as u64;
            for value in [self.start_time, self.end_time, self.offset, record_bytes] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.extend_from_slice(&(self.message_indexes.len() as u32 * 10).to_le_bytes());
            for (channel, offset) in &self.message_indexes {
                out.extend_from_slice(&channel.to_le_bytes());
                out.extend_from_slice(&offset.to_le_bytes());
            }
            out.extend_from_slice(&self.message_index_bytes.to_le_bytes());
            put_prefixed(out, b"");
            out.extend_from_slice(&self.data_bytes.to_le_bytes());
            out.extend_from_slice(&self.data_bytes.to_le_bytes());
        });
    }

    /// Reads the content of a record of an uncompressed chunk.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let mut fields = Fields(content);
        let [start_time, end_time] = [fields.u64()?, fields.u64()?];
        let [offset, record_bytes] = [fields.u64()?, fields.u64()?];
        let mut map = Fields(fields.prefixed()?);
        let mut message_indexes = ArrayVec::new();
        while !map.0.is_empty() {
            message_indexes.try_push((map.u16()?, map.u64()?)).ok()?;
        }
        let message_index_bytes = fields.u64()?;
        let uncompressed = fields.prefixed()?.is_empty();
        let data_bytes = fields.u64()?;
        let consistent = uncompressed
            && fields.u64()? == data_bytes
            && data_bytes.checked_add(CHUNK_HEADER_BYTES as u64) == Some(record_bytes)
            && offset.checked_add(record_bytes).is_some();
        consistent.then_some(Self {
            start_time,
            end_time,
            offset,
            data_bytes,
            message_indexes,
            message_index_bytes,
        })
    }
}

/// The name and kind of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachmentName<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its media type.
    pub media_type: &'a str,
}

impl AttachmentName<'_> {
    /// Bytes of the record with `data_bytes` bytes of data.
    pub fn record_bytes(self, data_bytes: u64) -> u64 {
        (RECORD_HEADER_BYTES + 16 + 4 + self.name.len() + 4 + self.media_type.len() + 8 + 4) as u64
            + data_bytes
    }

    /// Appends everything up to the data; the CRC over what follows the record header, up to the
    /// end of the data, comes behind the data.
    pub fn put_before_data(self, out: &mut Vec<u8>, time: u64, data_bytes: u64) {
        out.push(op::ATTACHMENT);
        let length = self.record_bytes(data_bytes) - RECORD_HEADER_BYTES as u64;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&time.to_le_bytes());
        out.extend_from_slice(&time.to_le_bytes());
        put_prefixed(out, self.name.as_bytes());
        put_prefixed(out, self.media_type.as_bytes());
        out.extend_from_slice(&data_bytes.to_le_bytes());
    }

    /// Appends the index record of the attachment at `offset`.
    pub fn put_index(self, out: &mut Vec<u8>, offset: u64, time: u64, data_bytes: u64) {
        put_record(out, op::ATTACHMENT_INDEX, |out| {
            for value in [
                offset,
                self.record_bytes(data_bytes),
                time,
                time,
                data_bytes,
            ] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            put_prefixed(out, self.name.as_bytes());
            put_prefixed(out, self.media_type.as_bytes());
        });
    }
}

/// The place of an attachment, from its index record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachmentPlace<'a> {
    /// Where its record starts.
    pub offset: u64,
    /// Bytes of the record.
    pub record_bytes: u64,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> AttachmentPlace<'a> {
    /// Reads the content of an attachment index record.
    pub fn parse(content: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(content);
        let [offset, record_bytes] = [fields.u64()?, fields.u64()?];
        fields.bytes(24)?;
        Some(Self {
            offset,
            record_bytes,
            name: fields.prefixed()?,
        })
    }
}

/// Reads the data out of an attachment's content after checking its CRC.
pub fn attachment_data(content: &[u8]) -> Option<&[u8]> {
    let (covered, stored) = content.split_last_chunk::<4>()?;
    if crc32(covered) != u32::from_le_bytes(*stored) {
        return None;
    }
    let mut fields = Fields(covered);
    fields.bytes(16)?;
    fields.prefixed()?;
    fields.prefixed()?;
    let count = fields.u64()?;
    (count == fields.0.len() as u64).then_some(fields.0)
}

/// Counts of a file, in its summary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Schemas.
    pub schemas: u16,
    /// Attachments.
    pub attachments: u32,
    /// Chunks.
    pub chunks: u32,
    /// Earliest log time.
    pub start_time: u64,
    /// Latest log time.
    pub end_time: u64,
    /// Messages of each channel.
    pub messages: Vec<(u16, u64)>,
}

impl Statistics {
    /// Appends the record.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_record(out, op::STATISTICS, |out| {
            let total: u64 = self.messages.iter().map(|(_, count)| count).sum();
            out.extend_from_slice(&total.to_le_bytes());
            out.extend_from_slice(&self.schemas.to_le_bytes());
            out.extend_from_slice(&(self.messages.len() as u32).to_le_bytes());
            out.extend_from_slice(&self.attachments.to_le_bytes());
            out.extend_from_slice(&0u32.to_le_bytes());
            out.extend_from_slice(&self.chunks.to_le_bytes());
            out.extend_from_slice(&self.start_time.to_le_bytes());
            out.extend_from_slice(&self.end_time.to_le_bytes());
            out.extend_from_slice(&(self.messages.len() as u32 * 10).to_le_bytes());
            for (channel, count) in &self.messages {
                out.extend_from_slice(&channel.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
            }
        });
    }

    /// Messages of a channel, by a record's content.
    pub fn messages_of(content: &[u8], channel: u16) -> Option<u64> {
        let mut fields = Fields(content);
        // Counts of all messages, schemas, channels, attachments, metadata and chunks, and two times.
        fields.bytes(42)?;
        let mut map = Fields(fields.prefixed()?);
        while !map.0.is_empty() {
            let (id, count) = (map.u16()?, map.u64()?);
            if id == channel {
                return Some(count);
            }
        }
        None
    }
}

/// Appends the end of the data section, without a CRC over all of it: every chunk has its own.
pub fn put_data_end(out: &mut Vec<u8>) {
    put_record(out, op::DATA_END, |out| {
        out.extend_from_slice(&0u32.to_le_bytes())
    });
}

/// Appends the place of one group of summary records.
pub fn put_summary_offset(out: &mut Vec<u8>, group: u8, start: u64, bytes: u64) {
    put_record(out, op::SUMMARY_OFFSET, |out| {
        out.push(group);
        out.extend_from_slice(&start.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
    });
}

/// The record that closes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Where the summary starts, 0 for none.
    pub summary_start: u64,
    /// Where the summary offsets start, 0 for none.
    pub offsets_start: u64,
    /// CRC-32 from the start of the summary to just before this field.
    pub crc: u32,
}

impl Footer {
    /// Appends footer and final magic; `out` holds the summary from `summary_from` on.
    pub fn put(out: &mut Vec<u8>, summary_from: usize, summary_start: u64, offsets_start: u64) {
        out.push(op::FOOTER);
        out.extend_from_slice(&20u64.to_le_bytes());
        out.extend_from_slice(&summary_start.to_le_bytes());
        out.extend_from_slice(&offsets_start.to_le_bytes());
        let crc = crc32(&out[summary_from..]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&MAGIC);
    }

    /// Reads the last bytes of a file.
    pub fn parse(bytes: &[u8; FOOTER_BYTES + MAGIC.len()]) -> Option<Self> {
        let (record, rest) = Record::split(bytes)?;
        let mut fields = Fields(record.content);
        let footer = Self {
            summary_start: fields.u64()?,
            offsets_start: fields.u64()?,
            crc: fields.u32()?,
        };
        (record.opcode == op::FOOTER && fields.0.is_empty() && rest == MAGIC).then_some(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_and_magic_are_those_of_the_reference() {
        use mcap::records::op as reference;
        assert_eq!(MAGIC, mcap::MAGIC);
        let pairs = [
            (op::HEADER, reference::HEADER),
            (op::FOOTER, reference::FOOTER),
            (op::SCHEMA, reference::SCHEMA),
            (op::CHANNEL, reference::CHANNEL),
            (op::MESSAGE, reference::MESSAGE),
            (op::CHUNK, reference::CHUNK),
            (op::MESSAGE_INDEX, reference::MESSAGE_INDEX),
            (op::CHUNK_INDEX, reference::CHUNK_INDEX),
            (op::ATTACHMENT, reference::ATTACHMENT),
            (op::ATTACHMENT_INDEX, reference::ATTACHMENT_INDEX),
            (op::STATISTICS, reference::STATISTICS),
            (op::SUMMARY_OFFSET, reference::SUMMARY_OFFSET),
            (op::DATA_END, reference::DATA_END),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn crc_is_the_one_of_zip_files() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn chunk_header_reads_back_and_contradictions_are_refused() {
        let header = ChunkHeader {
            start_time: 7,
            end_time: 9,
            crc: 0xDEAD_BEEF,
            data_bytes: 1234,
        };
        let bytes = header.to_bytes();
        assert_eq!(ChunkHeader::parse(&bytes), Some(header));
        assert_eq!(ChunkHeader::stored_crc(&bytes), header.crc);
        let refused = (0..CHUNK_HEADER_BYTES * 8).filter(|bit| {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            ChunkHeader::parse(&flipped).is_none()
        });
        // Opcode, three lengths and the compression's length: 8 + 3 x 64 + 32 bits.
        assert_eq!(refused.count(), 232);
        let mut huge = bytes;
        huge[25..33].copy_from_slice(&u64::MAX.to_le_bytes());
        huge[41..49].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(ChunkHeader::parse(&huge), None);
    }

    #[test]
    fn hostile_lengths_are_refused_without_reading() {
        let mut record = vec![op::ATTACHMENT];
        record.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(Record::split(&record).is_none());
        assert!(Fields(&u32::MAX.to_le_bytes()).prefixed().is_none());
        assert_eq!(attachment_data(&[]), None);
        assert_eq!(ChunkIndex::parse(&[0xFF; 60]), None);
    }
}
