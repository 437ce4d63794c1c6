//! Compares what no chunk's checksum covers with what a writer puts there: magic and header record,
//! the headers of chunks, message indexes, event index, end of the data section.
//!
//! No event depends on any of it, but other MCAP readers do: they go from front to back and stop at
//! the first wrong length. Only an inspection asks for it; each chunk is compared while it is in
//! memory, so that the file is still read once. What a scan has listed is not listed again, and the
//! summary has a checksum of its own.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

use crc_fast::{CrcAlgorithm, Digest};

use super::{ChunkPlace, IndexOrigin, PlaceKind, RunReader};
use crate::damage::{Damage, DamageReason, FramePart};
use crate::file_tail::FileTail;
use crate::mcap_record::{
    CHUNK_HEADER_BYTES, ChunkHeader, MAGIC, MessageHeader, RECORD_HEADER_BYTES, Record, op,
    put_data_end, put_header, put_record,
};
use crate::run_chunk::{Channel, LIBRARY, PROFILE};

/// Bytes of the event index that are read at once.
const BLOCK_BYTES: u64 = 64 << 10;
const CRC_BYTES: u64 = 4;

impl<R: Read + Seek> RunReader<R> {
    /// Has every chunk that is loaded from now on compared with what is around it.
    pub(crate) fn compare_frames(&mut self) {
        self.compares_frames = true;
        // What is in memory was not compared.
        self.loaded = None;
    }

    /// Loads the chunks that were not loaded yet, such as that of the histograms, and compares
    /// what is before the first and behind the last.
    pub(crate) fn compare_rest(&mut self) -> io::Result<()> {
        for chunk in 0..self.chunks.len() {
            if !self.chunks[chunk].frame_compared {
                self.load(chunk)?;
            }
        }
        self.histograms()?;
        self.compare_start()?;
        self.compare_end()
    }

    /// Whether histograms may be in what is damaged: of a scan, that of the main file of a run that
    /// ended in order, which has some. One that was closed has an end, and what is left of it may lack
    /// the last chunks.
    pub(crate) fn may_have_had_histograms(&mut self) -> io::Result<bool> {
        if self.origin == IndexOrigin::Summary {
            let is_lost = |place: &ChunkPlace| place.damaged && place.has(Channel::Histograms);
            return Ok(self.chunks.iter().any(is_lost));
        }
        let begin = self.begin.as_ref();
        let is_main = begin.is_none_or(|begin| begin.file.is_none());
        let has_end = self.end.is_some();
        let had_end = has_end || FileTail::is_closed(&mut self.input, self.input_bytes)?;
        let is_damaged = self.damage.total() > 0;
        Ok(is_main && had_end && is_damaged && !(has_end && self.has_every_chunk()))
    }

    /// Whether a scan has found a chunk of each number up to the last one.
    fn has_every_chunk(&self) -> bool {
        let found = self.chunks.iter().filter_map(ChunkPlace::good);
        let numbers: Vec<u64> = found.map(|content| content.mark.sequence).collect();
        // They come once each, in their order.
        numbers
            .last()
            .is_none_or(|last| *last == numbers.len() as u64 - 1)
    }

    /// Compares header and message indexes of the chunk in memory with its data, once.
    pub(super) fn compare_frame(&mut self, chunk: usize) -> io::Result<()> {
        let place = self.chunks[chunk];
        if place.frame_compared {
            return Ok(());
        }
        self.chunks[chunk].frame_compared = true;
        let (times, indexes) = indexes_of(self.data.bytes());
        let mut header = [0; CHUNK_HEADER_BYTES];
        self.input.seek(SeekFrom::Start(place.offset))?;
        self.input.read_exact(&mut header)?;
        let expected = ChunkHeader {
            start_time: times.0,
            end_time: times.1,
            crc: ChunkHeader::stored_crc(&header),
            data_bytes: place.data_bytes,
        };
        if header != expected.to_bytes() {
            self.push_frame(place.offset, header.len() as u64, FramePart::ChunkHeader);
        }
        let mut at = place.offset + place.record_bytes();
        let end = self.end_of_indexes(chunk);
        // A chunk that a disk took without them, or that a writer found and went on from, has none.
        if at == end || !place.has_indexes {
            return Ok(());
        }
        for expected in indexes {
            let bytes = expected.len() as u64;
            let there = end.saturating_sub(at).min(bytes) as usize;
            self.single.load(&mut self.input, at, there)?;
            if self.single.bytes() != expected {
                self.push_frame(at, there as u64, FramePart::MessageIndex);
            }
            at = at.saturating_add(bytes).min(end);
        }
        let is_followed = chunk + 1 < self.chunks.len() || self.origin == IndexOrigin::Summary;
        if at < end && is_followed {
            self.push_unlisted(at, end - at, DamageReason::NotRecords);
        }
        Ok(())
    }

    /// Where what follows the message indexes of a chunk starts.
    fn end_of_indexes(&self, chunk: usize) -> u64 {
        let at = self.chunks[chunk].offset;
        let next = self.chunks.get(chunk + 1).map(|next| next.offset);
        // Of chunks that do not lie in their order, the one behind is another.
        let next = match next.is_some_and(|next| next > at) || self.origin == IndexOrigin::Summary {
            true => next,
            false => {
                let offsets = self.chunks.iter().map(|place| place.offset);
                offsets.filter(|offset| *offset > at).min()
            }
        };
        let index = self.index_place.map(|(offset, _)| offset);
        next.or(index)
            .or(self.data_end_at())
            .unwrap_or(self.input_bytes)
    }

    /// Where the record of the end of the data section is by the summary.
    fn data_end_at(&self) -> Option<u64> {
        self.summary_start?
            .checked_sub(data_end_record().len() as u64)
    }

    fn compare_start(&mut self) -> io::Result<()> {
        let mut expected = MAGIC.to_vec();
        put_header(&mut expected, PROFILE, LIBRARY);
        let first = self.chunks.first().map_or(0, |place| place.offset);
        let there = first.min(expected.len() as u64);
        self.single.load(&mut self.input, 0, there as usize)?;
        let (magic, header) = expected.split_at(MAGIC.len());
        let found = self.single.bytes();
        let is_magic = found.starts_with(magic);
        let is_header = found.get(magic.len()..) == Some(header);
        if !is_magic {
            self.push_frame(0, there.min(magic.len() as u64), FramePart::Magic);
        }
        if !is_header {
            let at = magic.len() as u64;
            self.push_frame(at, there.saturating_sub(at), FramePart::Header);
        }
        if first > there {
            self.push_unlisted(there, first - there, DamageReason::NotRecords);
        }
        Ok(())
    }

    fn compare_end(&mut self) -> io::Result<()> {
        if let Some((offset, bytes)) = self.index_place
            && !self.is_whole_attachment(offset, bytes)?
        {
            self.push_unlisted(offset, bytes, DamageReason::Index);
        }
        let Some(at) = self.data_end_at() else {
            return Ok(());
        };
        let expected = data_end_record();
        self.single.load(&mut self.input, at, expected.len())?;
        if self.single.bytes() != expected {
            self.push_frame(at, expected.len() as u64, FramePart::DataEnd);
        }
        Ok(())
    }

    /// Whether the record is an attachment that agrees with its checksum.
    fn is_whole_attachment(&mut self, offset: u64, bytes: u64) -> io::Result<bool> {
        let header_bytes = RECORD_HEADER_BYTES as u64;
        let end = offset.saturating_add(bytes);
        if bytes < header_bytes + CRC_BYTES || end > self.input_bytes {
            return Ok(false);
        }
        let mut header = [0; RECORD_HEADER_BYTES];
        self.input.seek(SeekFrom::Start(offset))?;
        self.input.read_exact(&mut header)?;
        let [opcode, length @ ..] = header;
        let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
        let mut at = offset + header_bytes;
        while at < end - CRC_BYTES {
            let taken = BLOCK_BYTES.min(end - CRC_BYTES - at);
            self.single.load(&mut self.input, at, taken as usize)?;
            digest.update(self.single.bytes());
            at += taken;
        }
        self.single.load(&mut self.input, at, CRC_BYTES as usize)?;
        // The algorithm's width is 32 bits, so the upper half of the result is zero.
        let computed = (digest.finalize() as u32).to_le_bytes();
        Ok(opcode == op::ATTACHMENT
            && u64::from_le_bytes(length) == bytes - header_bytes
            && self.single.bytes() == computed)
    }

    fn push_frame(&mut self, offset: u64, bytes: u64, part: FramePart) {
        self.push_unlisted(offset, bytes, DamageReason::Frame(part));
    }

    /// Lists bytes as damage, unless some of them are.
    fn push_unlisted(&mut self, offset: u64, bytes: u64, reason: DamageReason) {
        self.note_unreadable();
        let mut entries = self.damage.entries().iter();
        let is_listed = entries
            .any(|listed| listed.offset < offset + bytes && offset < listed.offset + listed.bytes);
        let in_gap = self.chunks.iter().any(|place| {
            place.kind != PlaceKind::Chunk
                && place.offset < offset + bytes
                && offset < place.offset + place.data_bytes
        });
        if !is_listed && !in_gap {
            self.push_damage(Damage {
                offset,
                bytes,
                reason,
            });
        }
    }
}

fn data_end_record() -> Vec<u8> {
    let mut record = Vec::new();
    put_data_end(&mut record);
    record
}

/// Earliest and latest time of the messages in a chunk's data, and the message index record of each
/// channel, those of later versions included.
fn indexes_of(data: &[u8]) -> ((u64, u64), Vec<Vec<u8>>) {
    let mut times = (u64::MAX, 0);
    let mut entries = BTreeMap::<u16, Vec<u8>>::new();
    let mut rest = data;
    while let Some((record, behind)) = Record::split(rest) {
        let offset = (data.len() - rest.len()) as u64;
        rest = behind;
        let message = Some(record.content).filter(|_| record.opcode == op::MESSAGE);
        let Some((header, _)) = message.and_then(MessageHeader::parse) else {
            continue;
        };
        times = (times.0.min(header.time), times.1.max(header.time));
        let of_channel = entries.entry(header.channel).or_default();
        of_channel.extend_from_slice(&header.time.to_le_bytes());
        of_channel.extend_from_slice(&offset.to_le_bytes());
    }
    let record_of = |(channel, entries): (u16, Vec<u8>)| {
        let mut out = Vec::new();
        put_record(&mut out, op::MESSAGE_INDEX, |out| {
            out.extend_from_slice(&channel.to_le_bytes());
            out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
            out.extend_from_slice(&entries);
        });
        out
    };
    (times, entries.into_iter().map(record_of).collect())
}
