//! The end of a finished run file: footer and summary, believed only under the summary's CRC.
//!
//! Everything that a reader takes from here is checked again where it points to.

use std::io::{self, Read, Seek};

use crate::chunk_data::ChunkData;
use crate::event_index;
use crate::mcap_record::{
    AttachmentPlace, CHUNK_HEADER_BYTES, ChunkIndex, FOOTER_BYTES, Footer, MAGIC, Record,
    Statistics, crc32, op,
};
use crate::run_chunk::Channel;

/// Bytes of footer and final magic.
pub(crate) const TAIL_BYTES: u64 = (FOOTER_BYTES + MAGIC.len()) as u64;
/// Bytes of the footer that the summary's CRC does not cover: the CRC itself.
const CRC_BYTES: usize = 4;

/// What the summary says.
#[derive(Debug, Default)]
pub(crate) struct FileTail {
    /// Where the summary starts.
    pub(crate) summary_start: u64,
    /// The chunks in the order of the file.
    pub(crate) chunks: Vec<ChunkIndex>,
    /// Place and bytes of the event index's record.
    pub(crate) event_index: Option<(u64, u64)>,
    /// Events in all chunks.
    pub(crate) events: Option<u64>,
}

impl FileTail {
    /// Reads the end of a file of `file_bytes` bytes; `None` if there is no summary to believe.
    pub(crate) fn read<R: Read + Seek>(input: &mut R, file_bytes: u64) -> io::Result<Option<Self>> {
        let mut data = ChunkData::default();
        let Some(footer_at) = file_bytes.checked_sub(TAIL_BYTES) else {
            return Ok(None);
        };
        data.load(input, footer_at, TAIL_BYTES as usize)?;
        let Some(footer) = data.bytes().first_chunk().and_then(Footer::parse) else {
            return Ok(None);
        };
        if footer.summary_start == 0 || footer.summary_start >= footer_at {
            return Ok(None);
        }
        let covered_to = file_bytes - (MAGIC.len() + CRC_BYTES) as u64;
        let Ok(covered) = usize::try_from(covered_to - footer.summary_start) else {
            return Ok(None);
        };
        data.load(input, footer.summary_start, covered)?;
        if crc32(data.bytes()) != footer.crc {
            return Ok(None);
        }
        let records = &data.bytes()[..(footer_at - footer.summary_start) as usize];
        Ok(Self::parse(footer.summary_start, records))
    }

    /// Whether the file ends as one that was closed; whatever its summary says, nobody writes it
    /// any more.
    pub(crate) fn is_closed<R: Read + Seek>(input: &mut R, file_bytes: u64) -> io::Result<bool> {
        let Some(tail_at) = file_bytes.checked_sub(TAIL_BYTES) else {
            return Ok(false);
        };
        let mut data = ChunkData::default();
        data.load(input, tail_at, TAIL_BYTES as usize)?;
        Ok(data.bytes().ends_with(&MAGIC))
    }

    /// Whether the bytes from `start` to the end of the file at `file_bytes` are summary and
    /// footer, or a footer alone.
    pub(crate) fn spans<R: Read + Seek>(
        input: &mut R,
        start: u64,
        file_bytes: u64,
    ) -> io::Result<bool> {
        if file_bytes - start == TAIL_BYTES {
            let mut data = ChunkData::default();
            data.load(input, start, TAIL_BYTES as usize)?;
            let footer = data.bytes().first_chunk().and_then(Footer::parse);
            return Ok(footer.is_some_and(|footer| footer.summary_start == 0));
        }
        Ok(Self::read(input, file_bytes)?.is_some_and(|tail| tail.summary_start == start))
    }

    fn parse(summary_start: u64, mut records: &[u8]) -> Option<Self> {
        let mut tail = Self {
            summary_start,
            ..Self::default()
        };
        while !records.is_empty() {
            let (record, rest) = Record::split(records)?;
            records = rest;
            match record.opcode {
                op::CHUNK_INDEX => {
                    let chunk = ChunkIndex::parse(record.content)?;
                    let end = chunk.offset + CHUNK_HEADER_BYTES as u64 + chunk.data_bytes;
                    if end > summary_start {
                        return None;
                    }
                    tail.chunks.push(chunk);
                }
                op::STATISTICS => {
                    let events = Channel::Events as u16;
                    tail.events = Statistics::messages_of(record.content, events);
                }
                op::ATTACHMENT_INDEX => {
                    let place = AttachmentPlace::parse(record.content)?;
                    let end = place.offset.checked_add(place.record_bytes)?;
                    if place.name == event_index::ATTACHMENT.name.as_bytes() && end <= summary_start
                    {
                        tail.event_index = Some((place.offset, place.record_bytes));
                    }
                }
                _ => {}
            }
        }
        Some(tail)
    }
}
