//! Writes run files: events into chunks, chunks to any `Write`, index and summary at the end.
//!
//! The writer never seeks and never allocates once it runs; an event is copied once, into the
//! buffer of the chunk that is being filled, and reaches the file when that chunk is complete. It
//! does not open, sync or cut files: its driver does, and says so to
//! [`RunWriter::rewind_to_complete`] after a full disk. The bytes are in
//! `docs/formats/run-file.md`; [`crate::run_reader`] reads them back.
//!
//! Why not the writer of the `mcap` crate: it takes a message in one slice (a second copy for an
//! event in pages), keeps no account of what a failed write lost, and allocates per chunk.

use std::io::{self, Write};

use arrayvec::ArrayVec;
use crc_fast::{CrcAlgorithm, Digest};
use livetime_wire::{ByteSize, Problem, RunNs, RunNumber, TriggerNumber};

use crate::chunk_buffer::ChunkBuffer;
use crate::event_index::{self, EventPlace};
use crate::histogram::{Histogram, histograms_to_json};
use crate::mcap_record::{
    ChunkIndex, Footer, MAGIC, RECORD_HEADER_BYTES, Statistics, op, put_data_end, put_header,
    put_summary_offset,
};
use crate::output_budget::OutputLimit;
use crate::problem_code;
use crate::run_chunk::{Channel, ChunkMark, LIBRARY, PROFILE, Preamble, RunIdentity};
use crate::run_record::{RunBegin, RunEnd};

mod resumed_file;

pub use resumed_file::{ResumeError, Resumed};

/// Entries of the event index that are written at once.
const ENTRIES_PER_BLOCK: usize = 16 * 1024;

/// Sizes and bounds of a run file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterLimits {
    /// Bytes of data at which a chunk is closed (4 KiB to 256 MiB, default 1 MiB). A crash loses
    /// at most one chunk; small ones cost 1.3 kB of preamble each.
    pub chunk_bytes: usize,
    /// Largest event \[bytes\] (1 KiB to 1 GiB, default 16 MiB). The memory is reserved, and used
    /// only when such an event comes.
    pub event_bytes_max: usize,
    /// Most events in the index (default 4 Mi, 24 bytes each, reserved at the start). A file with
    /// more is written without index, and readers rebuild it.
    pub events_indexed_max: usize,
    /// Most chunks in the index (default 256 Ki, 128 bytes each, reserved at the start). A file
    /// with more is written without index, and readers rebuild it.
    pub chunks_indexed_max: usize,
    /// Bytes of events in any second, and who yields (default: no limit). The writer of files does
    /// not look at it; who hands events to it asks an [`OutputBudget`](crate::OutputBudget).
    pub output: OutputLimit,
}

impl Default for WriterLimits {
    fn default() -> Self {
        Self {
            chunk_bytes: 1 << 20,
            event_bytes_max: 16 << 20,
            events_indexed_max: 4 << 20,
            chunks_indexed_max: 256 << 10,
            output: OutputLimit::default(),
        }
    }
}

impl WriterLimits {
    /// Bytes that a writer reserves at its start: for its indexes, and for a chunk with the largest
    /// event.
    pub fn memory_bytes(&self) -> u64 {
        let of_events = self.events_indexed_max as u64 * size_of::<EventPlace>() as u64;
        let of_chunks = self.chunks_indexed_max as u64 * size_of::<ChunkIndex>() as u64;
        let of_chunk = self.chunk_bytes as u64 + self.event_bytes_max as u64;
        (of_events.saturating_add(of_chunks)).saturating_add(of_chunk)
    }

    /// Every limit that is out of its range; paths are keys of the `[store]` table.
    pub fn validate(&self) -> Vec<Problem> {
        let ranges = [
            (
                problem_code::CHUNK_SIZE,
                "store.chunk",
                self.chunk_bytes,
                4 << 10,
                256 << 20,
            ),
            (
                problem_code::EVENT_SIZE,
                "store.event_max",
                self.event_bytes_max,
                1 << 10,
                1 << 30,
            ),
            (
                problem_code::INDEX_SIZE,
                "store.events_indexed_max",
                self.events_indexed_max,
                1,
                1 << 28,
            ),
            (
                problem_code::INDEX_SIZE,
                "store.chunks_indexed_max",
                self.chunks_indexed_max,
                1,
                1 << 28,
            ),
        ];
        let out_of_range = ranges
            .into_iter()
            .filter(|(.., value, low, high)| !(low..=high).contains(&value));
        let mut problems: Vec<Problem> = out_of_range
            .map(|(code, path, value, low, high)| {
                // Those of indexes are numbers of entries.
                let text = |value: usize| match code == problem_code::INDEX_SIZE {
                    true => value.to_string(),
                    false => format!("{:#}", ByteSize(value as u64)),
                };
                Problem::new(
                    code,
                    path,
                    text(value),
                    format!("{} to {}", text(low), text(high)),
                    "set it within the range; the defaults suit disks and events of all sizes",
                )
            })
            .collect();
        problems.extend(self.output.validate(self.event_bytes_max));
        problems
    }
}

/// Why an event or record did not go into the file.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output refused bytes; the chunk being written is not complete.
    #[error("run file cannot be written behind byte {bytes_complete}")]
    Io {
        /// Bytes up to which the file is complete.
        bytes_complete: u64,
        /// What the output said.
        #[source]
        source: io::Error,
    },
    /// An earlier write failed, and the driver has not called
    /// [`RunWriter::rewind_to_complete`].
    #[error("an earlier write to the run file failed")]
    AfterFailure,
    /// The event is larger than the limit.
    #[error("event of {bytes} bytes is larger than the {allowed} bytes allowed")]
    EventTooLarge {
        /// Bytes of the event.
        bytes: usize,
        /// The limit.
        allowed: usize,
    },
    /// The file is finished.
    #[error("the run file is finished")]
    Finished,
}

/// What a finished file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSummary {
    /// Run number.
    pub run: RunNumber,
    /// Events in it.
    pub events_stored: u64,
    /// Events handed to the writer that are not in it: too large, or lost with a failed write.
    pub events_lost: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of the events alone.
    pub event_bytes: u64,
    /// Whether it has an index of its events; readers rebuild it otherwise.
    pub indexed: bool,
    /// Smallest trigger number.
    pub first_trigger: Option<TriggerNumber>,
    /// Largest trigger number.
    pub last_trigger: Option<TriggerNumber>,
}

/// What is left of a file that cannot be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abandoned {
    /// Events in complete chunks; they stay readable.
    pub events_stored: u64,
    /// Events handed to the writer that are not in a complete chunk, for the losses of the store.
    pub events_lost: u64,
    /// Bytes up to which the file is complete.
    pub bytes_complete: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Failed,
    Finished,
}

/// Writes one run file.
pub struct RunWriter<W: Write> {
    output: W,
    limits: WriterLimits,
    identity: RunIdentity,
    chunk: ChunkBuffer,
    state: State,
    events_indexed: bool,
    end_written: bool,
    chunk_index: Vec<ChunkIndex>,
    event_index: Vec<EventPlace>,
    chunks: u64,
    bytes_complete: u64,
    events_given: u64,
    events_stored: u64,
    event_bytes: u64,
    event_bytes_in_chunk: u64,
    messages: [u64; Channel::ALL.len()],
    time_bounds: Option<(u64, u64)>,
    trigger_bounds: Option<(TriggerNumber, TriggerNumber)>,
    triggers_in_chunk: Option<(TriggerNumber, TriggerNumber)>,
}

impl<W: Write> RunWriter<W> {
    /// Starts a file and hands its first chunk, the begin-of-run record, to the output.
    ///
    /// # Errors
    /// [`WriteError::Io`] if the output refuses it.
    ///
    /// # Panics
    /// If `limits` do not pass [`WriterLimits::validate`].
    pub fn new(output: W, begin: &RunBegin, limits: WriterLimits) -> Result<Self, WriteError> {
        let reserved = (limits.chunks_indexed_max, limits.events_indexed_max);
        Self::with_reserved(output, begin, limits, reserved)
    }

    /// As [`RunWriter::new`], with indexes that grow up to their limits: for a copy, which is no data
    /// path, and whose limits are by the length of a file that may hold little.
    pub(crate) fn with_growing_indexes(
        output: W,
        begin: &RunBegin,
        limits: WriterLimits,
    ) -> Result<Self, WriteError> {
        Self::with_reserved(output, begin, limits, (0, 0))
    }

    /// Starts with room for so many entries in the indexes of chunks and of events.
    fn with_reserved(
        output: W,
        begin: &RunBegin,
        limits: WriterLimits,
        (chunks, events): (usize, usize),
    ) -> Result<Self, WriteError> {
        assert!(
            limits.validate().is_empty(),
            "the limits were checked with the configuration"
        );
        let json = serde_json::to_vec(begin).expect("a begin record is strings and numbers");
        let mut writer = Self {
            output,
            limits,
            identity: RunIdentity::new(begin.run_number(), &json),
            chunk: ChunkBuffer::new(limits.chunk_bytes, limits.event_bytes_max),
            state: State::Open,
            events_indexed: true,
            end_written: false,
            chunk_index: Vec::with_capacity(chunks),
            event_index: Vec::with_capacity(events),
            chunks: 0,
            bytes_complete: 0,
            events_given: 0,
            events_stored: 0,
            event_bytes: 0,
            event_bytes_in_chunk: 0,
            messages: [0; Channel::ALL.len()],
            time_bounds: None,
            trigger_bounds: None,
            triggers_in_chunk: None,
        };
        writer.begin_file(&json)?;
        Ok(writer)
    }

    fn begin_file(&mut self, begin_json: &[u8]) -> Result<(), WriteError> {
        let mut start = MAGIC.to_vec();
        put_header(&mut start, PROFILE, LIBRARY);
        self.hand_over(&start)?;
        self.push_json(Channel::Begin, RunNs(0), begin_json);
        self.flush_chunk()
    }

    /// Goes on in another output with the next file of the run; the memory of chunk and index is
    /// used again. Counts of events and bytes start at 0. After an error nothing of the file is
    /// complete, and it can be called again with an empty output.
    ///
    /// # Errors
    /// [`WriteError::Io`] if the output refuses the begin-of-run record.
    ///
    /// # Panics
    /// If the file before is not finished.
    pub fn start_next(&mut self, output: W, begin: &RunBegin) -> Result<(), WriteError> {
        assert!(
            self.state == State::Finished || self.chunks == 0,
            "the file before is finished first"
        );
        let json = serde_json::to_vec(begin).expect("a begin record is strings and numbers");
        self.output = output;
        self.identity = RunIdentity::new(begin.run_number(), &json);
        self.chunk.clear();
        self.state = State::Open;
        self.events_indexed = true;
        self.end_written = false;
        self.chunk_index.clear();
        self.event_index.clear();
        self.messages = [0; Channel::ALL.len()];
        (self.chunks, self.bytes_complete) = (0, 0);
        (self.events_given, self.events_stored) = (0, 0);
        (self.event_bytes, self.event_bytes_in_chunk) = (0, 0);
        (self.time_bounds, self.trigger_bounds) = (None, None);
        self.triggers_in_chunk = None;
        self.begin_file(&json)
    }

    /// Appends an event given as words in parts, such as its header and the pages of its
    /// fragments; when the chunk is full, it is handed to the output.
    ///
    /// Whatever the result, the writer counts the event: it is in `events_stored` or in
    /// `events_lost` at the end.
    ///
    /// # Errors
    /// A [`WriteError`]; after [`WriteError::Io`] the events of the chunk are not in the file.
    pub fn write_event(
        &mut self,
        trigger: TriggerNumber,
        time: RunNs,
        parts: &[&[u32]],
    ) -> Result<(), WriteError> {
        self.events_given += 1;
        self.check_open()?;
        let bytes = parts.iter().map(|part| part.len() * 4).sum();
        let allowed = self.limits.event_bytes_max;
        if bytes > allowed {
            return Err(WriteError::EventTooLarge { bytes, allowed });
        }
        self.open_chunk(time);
        let offset = self.chunk.push_event(trigger.low(), time, parts);
        self.event_bytes_in_chunk += bytes as u64;
        if self.event_index.len() < self.limits.events_indexed_max {
            // A chunk is at most 256 MiB and one event of 1 GiB, so both fit into 32 bits.
            self.event_index.push(EventPlace {
                trigger,
                chunk_offset: self.bytes_complete,
                offset: offset as u32,
                bytes: bytes as u32,
            });
        } else {
            self.events_indexed = false;
        }
        self.triggers_in_chunk = widened(self.triggers_in_chunk, trigger, trigger);
        if self.chunk.data_bytes() >= self.limits.chunk_bytes {
            self.close_chunk()?;
        }
        Ok(())
    }

    /// Appends histograms, in the form of [`histograms_to_json`].
    ///
    /// # Errors
    /// A [`WriteError`], as [`RunWriter::write_event`].
    pub fn write_histograms(
        &mut self,
        time: RunNs,
        histograms: &[Histogram],
    ) -> Result<(), WriteError> {
        let json = histograms_to_json(histograms).to_string();
        self.write_json(Channel::Histograms, time, json.as_bytes())
    }

    /// Appends a JSON message.
    pub(crate) fn write_json(
        &mut self,
        channel: Channel,
        time: RunNs,
        json: &[u8],
    ) -> Result<(), WriteError> {
        self.check_open()?;
        self.push_json(channel, time, json);
        if self.chunk.data_bytes() >= self.limits.chunk_bytes {
            self.close_chunk()?;
        }
        Ok(())
    }

    /// Hands a chunk that is not full to the output, so that readers of the growing file see it.
    ///
    /// # Errors
    /// [`WriteError::Io`] if the output refuses it.
    pub fn flush_chunk(&mut self) -> Result<(), WriteError> {
        self.check_open()?;
        self.close_chunk()?;
        self.flush_output()
    }

    /// Closes the file: end-of-run record, event index, summary. The count of stored events in
    /// `end` is filled in here.
    ///
    /// # Errors
    /// [`WriteError::Io`] if the output refuses a part of it. The chunks before stay readable, and
    /// after [`RunWriter::rewind_to_complete`] `finish` can be called again.
    pub fn finish(&mut self, end: &RunEnd) -> Result<FileSummary, WriteError> {
        self.check_open()?;
        if !self.end_written {
            self.close_chunk()?;
            let end = RunEnd {
                events_stored: self.events_stored,
                ..end.clone()
            };
            let json = serde_json::to_vec(&end).expect("an end record is strings and numbers");
            self.push_json(Channel::End, RunNs(end.time_ns), &json);
            self.close_chunk()?;
        }
        let chunks_end = self.bytes_complete;
        if let Err(error) = self.finish_after_chunks() {
            self.bytes_complete = chunks_end;
            return Err(error);
        }
        self.state = State::Finished;
        Ok(FileSummary {
            run: self.identity.run,
            events_stored: self.events_stored,
            events_lost: self.events_given - self.events_stored,
            chunks: self.chunks,
            bytes: self.bytes_complete,
            event_bytes: self.event_bytes,
            indexed: self.is_indexed(),
            first_trigger: self.trigger_bounds.map(|(first, _)| first),
            last_trigger: self.trigger_bounds.map(|(_, last)| last),
        })
    }

    fn finish_after_chunks(&mut self) -> Result<(), WriteError> {
        let index = if self.is_indexed() {
            Some(self.write_event_index()?)
        } else {
            None
        };
        let mut tail = std::mem::take(self.chunk.scratch());
        put_data_end(&mut tail);
        self.put_summary(&mut tail, index);
        self.hand_over(&tail)?;
        self.flush_output()
    }

    /// Writes the event index and returns where it starts and the bytes of its data.
    fn write_event_index(&mut self) -> Result<(u64, u64), WriteError> {
        let offset = self.bytes_complete;
        let count = self.event_index.len();
        let data_bytes = (event_index::HEADER_BYTES + count * event_index::ENTRY_BYTES) as u64;
        let mut block = std::mem::take(self.chunk.scratch());
        let time = self.time_bounds.map_or(0, |(_, end)| end);
        event_index::ATTACHMENT.put_before_data(&mut block, time, data_bytes);
        event_index::put_header(&mut block, self.identity.run, count as u64);
        let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
        digest.update(&block[RECORD_HEADER_BYTES..]);
        for first in (0..count).step_by(ENTRIES_PER_BLOCK) {
            self.hand_over(&block)?;
            block.clear();
            let last = count.min(first + ENTRIES_PER_BLOCK);
            self.event_index[first..last]
                .iter()
                .for_each(|place| place.put(&mut block));
            digest.update(&block);
        }
        // The algorithm's width is 32 bits, so the upper half of the result is zero.
        block.extend_from_slice(&(digest.finalize() as u32).to_le_bytes());
        self.hand_over(&block)?;
        Ok((offset, data_bytes))
    }

    /// Appends summary, summary offsets, footer and final magic; without the index of all chunks
    /// there is no summary, so that other readers go through the file and miss nothing.
    fn put_summary(&self, out: &mut Vec<u8>, event_index: Option<(u64, u64)>) {
        let summary_from = out.len();
        let at = |out: &Vec<u8>| self.bytes_complete + out.len() as u64;
        let summary_start = at(out);
        if self.chunk_index.len() as u64 != self.chunks {
            return Footer::put(out, summary_from, 0, 0);
        }
        let mut groups: ArrayVec<(u8, u64, u64), 5> = ArrayVec::new();
        let mut group = |out: &mut Vec<u8>, opcode, put: &dyn Fn(&mut Vec<u8>)| {
            let start = at(out);
            put(out);
            groups.push((opcode, start, at(out) - start));
        };
        let preamble = Preamble::get();
        group(out, op::SCHEMA, &|out| {
            out.extend_from_slice(&preamble.schemas)
        });
        group(out, op::CHANNEL, &|out| {
            out.extend_from_slice(&preamble.channels)
        });
        group(out, op::STATISTICS, &|out| {
            self.statistics(event_index.is_some()).put(out)
        });
        group(out, op::CHUNK_INDEX, &|out| {
            self.chunk_index.iter().for_each(|c| c.put(out))
        });
        if let Some((offset, data_bytes)) = event_index {
            let time = self.time_bounds.map_or(0, |(_, end)| end);
            let put = |out: &mut Vec<u8>| {
                event_index::ATTACHMENT.put_index(out, offset, time, data_bytes);
            };
            group(out, op::ATTACHMENT_INDEX, &put);
        }
        let offsets_start = at(out);
        for (opcode, start, bytes) in groups {
            put_summary_offset(out, opcode, start, bytes);
        }
        Footer::put(out, summary_from, summary_start, offsets_start);
    }

    fn statistics(&self, has_attachment: bool) -> Statistics {
        let (start_time, end_time) = self.time_bounds.unwrap_or((0, 0));
        let ids = Channel::ALL.into_iter().map(|channel| channel as u16);
        Statistics {
            schemas: Channel::ALL.len() as u16,
            attachments: u32::from(has_attachment),
            chunks: self.chunk_index.len() as u32,
            start_time,
            end_time,
            messages: ids.zip(self.messages).collect(),
        }
    }

    /// Takes up a file whose last write failed: `cut` makes the output end at the given byte,
    /// where the last complete chunk ends, and go on from there.
    ///
    /// The events of the chunk that failed are lost and counted; the rest of the file is written
    /// without event index, since the disk has little room. Usually followed by
    /// [`RunWriter::finish`]. Does nothing after no failure.
    ///
    /// # Errors
    /// What `cut` returns; the writer then stays failed.
    pub fn rewind_to_complete(
        &mut self,
        cut: impl FnOnce(&mut W, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.state != State::Failed {
            return Ok(());
        }
        cut(&mut self.output, self.bytes_complete)?;
        self.chunk.clear();
        self.event_bytes_in_chunk = 0;
        self.triggers_in_chunk = None;
        self.events_indexed = false;
        self.state = State::Open;
        Ok(())
    }

    /// Tries the write that failed once more, after room was made: `cut` makes the output end at
    /// the given byte, where the last complete chunk ends, and go on from there. Unlike with
    /// [`RunWriter::rewind_to_complete`] no event is lost. Does nothing after no failure.
    ///
    /// # Errors
    /// [`WriteError::Io`] if `cut` or the output refuses; it can be called again.
    pub fn retry(
        &mut self,
        cut: impl FnOnce(&mut W, u64) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        if self.state != State::Failed {
            return Ok(());
        }
        let bytes_complete = self.bytes_complete;
        cut(&mut self.output, bytes_complete).map_err(|source| WriteError::Io {
            bytes_complete,
            source,
        })?;
        self.state = State::Open;
        self.close_chunk()
    }

    /// Gives up on the file as it is and returns the output; complete chunks stay readable.
    pub fn abandon(self) -> (W, Abandoned) {
        let abandoned = Abandoned {
            events_stored: self.events_stored,
            events_lost: self.events_given - self.events_stored,
            bytes_complete: self.bytes_complete,
        };
        (self.output, abandoned)
    }

    /// Returns the output, usually of a finished file.
    pub fn into_inner(self) -> W {
        self.output
    }

    /// The output, for syncing it.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// Events in complete chunks.
    pub fn events_stored(&self) -> u64 {
        self.events_stored
    }

    /// Events handed to the writer that are not in a complete chunk: yet to be written while the
    /// file is open, lost once it is finished or abandoned.
    pub fn events_pending(&self) -> u64 {
        self.events_given - self.events_stored
    }

    /// Bytes up to which the file is complete.
    pub fn bytes_complete(&self) -> u64 {
        self.bytes_complete
    }

    /// Bytes of memory that are reserved for the indexes and a chunk, which is emptied.
    #[cfg(test)]
    pub(crate) fn reserved_bytes(&mut self) -> usize {
        let of_events = self.event_index.capacity() * size_of::<EventPlace>();
        let of_chunks = self.chunk_index.capacity() * size_of::<ChunkIndex>();
        of_events + of_chunks + self.chunk.scratch().capacity()
    }

    fn check_open(&self) -> Result<(), WriteError> {
        match self.state {
            State::Open => Ok(()),
            State::Failed => Err(WriteError::AfterFailure),
            State::Finished => Err(WriteError::Finished),
        }
    }

    fn is_indexed(&self) -> bool {
        self.events_indexed && self.chunk_index.len() as u64 == self.chunks
    }

    fn flush_output(&mut self) -> Result<(), WriteError> {
        let bytes_complete = self.bytes_complete;
        self.output.flush().map_err(|source| {
            self.state = State::Failed;
            WriteError::Io {
                bytes_complete,
                source,
            }
        })
    }

    fn hand_over(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        write_out(
            &mut self.output,
            bytes,
            &mut self.state,
            &mut self.bytes_complete,
        )
    }

    fn open_chunk(&mut self, time: RunNs) {
        if !self.chunk.is_open() {
            let mark = ChunkMark {
                identity: self.identity,
                sequence: self.chunks,
                events_before: self.events_stored,
            };
            self.chunk.open(mark, time);
        }
    }

    fn push_json(&mut self, channel: Channel, time: RunNs, json: &[u8]) {
        self.open_chunk(time);
        self.chunk.push_bytes(channel, 0, time, json, b' ');
    }

    fn close_chunk(&mut self) -> Result<(), WriteError> {
        if !self.chunk.is_open() {
            return Ok(());
        }
        let mut index = self.chunk.finish(self.bytes_complete);
        // The chunk counts once it is out; its message indexes only help other readers.
        let indexes_at = self.chunk.bytes().len() - index.message_index_bytes as usize;
        let (chunk, indexes) = self.chunk.bytes().split_at(indexes_at);
        write_out(
            &mut self.output,
            chunk,
            &mut self.state,
            &mut self.bytes_complete,
        )?;
        let written = write_out(
            &mut self.output,
            indexes,
            &mut self.state,
            &mut self.bytes_complete,
        );
        if written.is_err() {
            index.message_indexes.clear();
            index.message_index_bytes = 0;
        }
        self.account_chunk(&index);
        if self.chunk_index.len() < self.limits.chunks_indexed_max {
            self.chunk_index.push(index);
        }
        self.chunk.clear();
        written
    }

    fn account_chunk(&mut self, index: &ChunkIndex) {
        let events = self.chunk.count(Channel::Events);
        // Also where the disk was full at its message indexes, or a retry has put it out.
        self.end_written |= self.chunk.count(Channel::End) > 0;
        self.chunks += 1;
        self.events_stored += events;
        self.event_bytes += self.event_bytes_in_chunk;
        self.event_bytes_in_chunk = 0;
        for (slot, channel) in self.messages.iter_mut().zip(Channel::ALL) {
            *slot += self.chunk.count(channel);
        }
        self.time_bounds = widened(self.time_bounds, index.start_time, index.end_time);
        if let Some((first, last)) = self.triggers_in_chunk.take() {
            self.trigger_bounds = widened(self.trigger_bounds, first, last);
        }
    }
}

/// Bounds that also hold `low` and `high`.
fn widened<T: Ord + Copy>(bounds: Option<(T, T)>, low: T, high: T) -> Option<(T, T)> {
    let (old_low, old_high) = bounds.unwrap_or((low, high));
    Some((old_low.min(low), old_high.max(high)))
}

/// Writes all bytes; after a failure the file is complete up to where they were to start.
fn write_out<W: Write>(
    output: &mut W,
    bytes: &[u8],
    state: &mut State,
    bytes_complete: &mut u64,
) -> Result<(), WriteError> {
    if let Err(source) = output.write_all(bytes) {
        *state = State::Failed;
        return Err(WriteError::Io {
            bytes_complete: *bytes_complete,
            source,
        });
    }
    *bytes_complete += bytes.len() as u64;
    Ok(())
}
