//! The chunk that a run writer is filling: one buffer, written with one call when it is full.
//!
//! Bytes per event: one copy from the caller's pages into the buffer, one pass of the CRC over
//! bytes that are still in the cache, one copy into the kernel by the write. Nothing is allocated
//! once the buffer has its capacity; this module does no input or output itself.

use arrayvec::ArrayVec;
use crc_fast::{CrcAlgorithm, Digest};
use livetime_wire::RunNs;
use zerocopy::IntoBytes;

use crate::mcap_record::{
    CHUNK_HEADER_BYTES, ChunkHeader, ChunkIndex, MESSAGE_HEADER_BYTES, MessageHeader, op,
    put_record,
};
use crate::run_chunk::{Channel, ChunkMark, Preamble, filling};

/// How many bytes wait for the CRC: many enough for its fast path, few enough to be in the cache.
const CRC_BATCH_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Copy)]
struct IndexEntry {
    channel: Channel,
    time: u64,
    offset: u64,
}

/// A chunk in the making.
pub(crate) struct ChunkBuffer {
    bytes: Vec<u8>,
    digest: Digest,
    hashed: usize,
    index: Vec<IndexEntry>,
    counts: [u64; Channel::ALL.len() + 1],
    time_bounds: (u64, u64),
    /// Set once it is complete: what is then done again gives the same.
    finished: Option<ChunkIndex>,
}

impl ChunkBuffer {
    /// A buffer for chunks that close at `chunk_bytes` and events of at most `event_bytes_max`.
    pub(crate) fn new(chunk_bytes: usize, event_bytes_max: usize) -> Self {
        let messages = chunk_bytes / MESSAGE_HEADER_BYTES + 2;
        let message_index_bytes = messages * 16 + Channel::ALL.len() * 16;
        let capacity = CHUNK_HEADER_BYTES
            + Preamble::get().bytes()
            + chunk_bytes
            + MESSAGE_HEADER_BYTES
            + event_bytes_max
            + message_index_bytes
            + 64;
        Self {
            bytes: Vec::with_capacity(capacity),
            digest: Digest::new(CrcAlgorithm::Crc32IsoHdlc),
            hashed: 0,
            index: Vec::with_capacity(messages),
            counts: [0; Channel::ALL.len() + 1],
            time_bounds: (u64::MAX, 0),
            finished: None,
        }
    }

    /// Whether a chunk has been started.
    pub(crate) fn is_open(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Bytes of data so far.
    pub(crate) fn data_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(CHUNK_HEADER_BYTES)
    }

    /// Messages of a channel so far.
    pub(crate) fn count(&self, channel: Channel) -> u64 {
        self.counts[channel as usize]
    }

    /// Empties the buffer and keeps its capacity.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.digest.reset();
        self.hashed = CHUNK_HEADER_BYTES;
        self.index.clear();
        self.counts = [0; Channel::ALL.len() + 1];
        self.time_bounds = (u64::MAX, 0);
        self.finished = None;
    }

    /// Starts a chunk with its preamble and mark.
    pub(crate) fn open(&mut self, mark: ChunkMark, time: RunNs) {
        self.clear();
        self.bytes.resize(CHUNK_HEADER_BYTES, 0);
        self.bytes.extend_from_slice(&Preamble::get().schemas);
        self.bytes.extend_from_slice(&Preamble::get().channels);
        self.push_bytes(Channel::Mark, 0, time, &mark.to_bytes(), 0);
    }

    /// Appends a message of bytes, filled up with `fill` to a multiple of four.
    pub(crate) fn push_bytes(
        &mut self,
        channel: Channel,
        sequence: u32,
        time: RunNs,
        data: &[u8],
        fill: u8,
    ) {
        let filling = filling(data.len());
        self.start_message(channel, sequence, time, data.len() + filling);
        self.bytes.extend_from_slice(data);
        self.bytes.extend(std::iter::repeat_n(fill, filling));
        self.hash_if_many();
    }

    /// Appends an event given in parts and returns where its words start within the data.
    pub(crate) fn push_event(&mut self, sequence: u32, time: RunNs, parts: &[&[u32]]) -> usize {
        let event_bytes: usize = parts.iter().map(|part| part.len() * 4).sum();
        let filling = filling(event_bytes);
        self.start_message(Channel::Events, sequence, time, event_bytes + filling);
        let offset = self.data_bytes();
        for piece in parts
            .iter()
            .flat_map(|part| part.as_bytes().chunks(CRC_BATCH_BYTES))
        {
            self.bytes.extend_from_slice(piece);
            self.hash_if_many();
        }
        self.bytes.extend(std::iter::repeat_n(0, filling));
        offset
    }

    fn start_message(&mut self, channel: Channel, sequence: u32, time: RunNs, data_bytes: usize) {
        let offset = self.data_bytes() as u64;
        self.index.push(IndexEntry {
            channel,
            time: time.0,
            offset,
        });
        self.counts[channel as usize] += 1;
        self.time_bounds = (
            self.time_bounds.0.min(time.0),
            self.time_bounds.1.max(time.0),
        );
        let header = MessageHeader {
            channel: channel as u16,
            sequence,
            time: time.0,
        };
        header.put(&mut self.bytes, data_bytes);
    }

    fn hash_if_many(&mut self) {
        if self.bytes.len() - self.hashed >= CRC_BATCH_BYTES {
            self.hash_rest();
        }
    }

    fn hash_rest(&mut self) {
        self.digest.update(&self.bytes[self.hashed..]);
        self.hashed = self.bytes.len();
    }

    /// Fills in the header and appends the message indexes; [`ChunkBuffer::bytes`] is then what
    /// goes into the file.
    ///
    /// `offset` is where the chunk will lie in the file. A chunk that could not be written is
    /// finished again for the same place.
    pub(crate) fn finish(&mut self, offset: u64) -> ChunkIndex {
        if let Some(finished) = &self.finished {
            debug_assert_eq!(finished.offset, offset, "a chunk has one place");
            return finished.clone();
        }
        self.hash_rest();
        let header = ChunkHeader {
            start_time: self.time_bounds.0,
            end_time: self.time_bounds.1,
            // The algorithm's width is 32 bits, so the upper half of the result is zero.
            crc: self.digest.finalize() as u32,
            data_bytes: self.data_bytes() as u64,
        };
        self.bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let indexes_start = self.bytes.len();
        let mut message_indexes = ArrayVec::new();
        let present = Channel::ALL
            .into_iter()
            .filter(|channel| self.counts[*channel as usize] > 0);
        for channel in present {
            message_indexes.push((channel as u16, offset + self.bytes.len() as u64));
            put_message_index(&mut self.bytes, channel, &self.index);
        }
        let message_index_bytes = (self.bytes.len() - indexes_start) as u64;
        let index = ChunkIndex {
            start_time: header.start_time,
            end_time: header.end_time,
            offset,
            data_bytes: header.data_bytes,
            message_indexes,
            message_index_bytes,
        };
        self.finished = Some(index.clone());
        index
    }

    /// The bytes of the finished chunk.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The buffer itself as scratch space between chunks.
    pub(crate) fn scratch(&mut self) -> &mut Vec<u8> {
        self.clear();
        &mut self.bytes
    }
}

fn put_message_index(out: &mut Vec<u8>, channel: Channel, index: &[IndexEntry]) {
    put_record(out, op::MESSAGE_INDEX, |out| {
        out.extend_from_slice(&(channel as u16).to_le_bytes());
        let length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        for entry in index.iter().filter(|entry| entry.channel == channel) {
            out.extend_from_slice(&entry.time.to_le_bytes());
            out.extend_from_slice(&entry.offset.to_le_bytes());
        }
        // A chunk is smaller than 4 GiB, and a message takes more room than its index entry.
        let length = (out.len() - length_at - 4) as u32;
        out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    });
}

#[cfg(test)]
mod tests {
    use livetime_wire::RunNumber;

    use super::*;
    use crate::mcap_record::crc32;
    use crate::run_chunk::RunIdentity;

    #[test]
    fn buffer_never_grows_and_the_crc_in_batches_is_that_of_the_data() {
        const CHUNK_BYTES: usize = 100_000;
        let identity = RunIdentity::new(RunNumber(1), b"");
        let mark = ChunkMark {
            identity,
            sequence: 0,
            events_before: 0,
        };
        let words = vec![0x0102_0304; 50_000];
        for (event_words, last_words) in [(0, 50_000), (1, 50_000), (7_000, 50_000), (0, 0)] {
            let mut chunk = ChunkBuffer::new(CHUNK_BYTES, 200_000);
            let capacities = (chunk.bytes.capacity(), chunk.index.capacity());
            chunk.open(mark, RunNs(5));
            while chunk.data_bytes() + event_words * 4 + 40 < CHUNK_BYTES {
                chunk.push_event(1, RunNs(3), &[&words[..event_words]]);
            }
            chunk.push_event(
                2,
                RunNs(4),
                &[&words[..last_words / 2], &words[last_words / 2..]],
            );
            let data_end = chunk.bytes.len();
            let index = chunk.finish(0);
            assert_eq!((chunk.bytes.capacity(), chunk.index.capacity()), capacities);
            assert_eq!((index.start_time, index.end_time), (3, 5));
            let header = chunk.bytes.first_chunk().copied().unwrap();
            let data = &chunk.bytes[CHUNK_HEADER_BYTES..data_end];
            assert_eq!(ChunkHeader::parse(&header).unwrap().crc, crc32(data));
        }
    }
}
