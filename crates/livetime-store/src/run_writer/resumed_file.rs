//! Takes up a run file whose writer is gone, and goes on where its last complete chunk ends.
//!
//! What the old writer had in memory is found in the file again: each chunk is verified, its events
//! are indexed, and what lies behind the last one is cut off. A file that is damaged elsewhere is
//! refused, since going on would hide it: [`crate::recovery`] makes a whole copy of such a one.

use std::io::{self, Read, Seek, SeekFrom, Write};

use arrayvec::ArrayVec;
use livetime_wire::TriggerNumber;
use livetime_wire::event::EventView;

use super::{RunWriter, State, WriterLimits, widened};
use crate::chunk_buffer::ChunkBuffer;
use crate::chunk_data::{ChunkData, words_of};
use crate::event_index::EventPlace;
use crate::mcap_record::{CHUNK_HEADER_BYTES, ChunkIndex};
use crate::run_chunk::{Channel, Messages};
use crate::run_scan::{ScannedChunk, Wanted, scan};

/// Why a run file cannot be taken up.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The file cannot be read, or not be cut.
    #[error("the run file cannot be taken up: {0}")]
    Io(#[from] io::Error),
    /// There is no chunk of a run in it.
    #[error("{bytes} bytes without a chunk of a run file, expected at least its first one")]
    NotRunFile {
        /// Length of the file.
        bytes: u64,
    },
    /// Something before its last complete chunk is not readable.
    #[error("the run file is damaged at byte {offset}: {reason}; expected whole chunks")]
    Damaged {
        /// Where.
        offset: u64,
        /// How.
        reason: String,
    },
    /// It has its end-of-run record.
    #[error("the run file has its end-of-run record, expected one that is still being written")]
    Finished,
}

/// A run file that goes on.
pub struct Resumed<W: Write> {
    /// Its writer; the counts of stored events include those found.
    pub writer: RunWriter<W>,
    /// Triggers of the events in the last chunk that has any, in the order of the file: a sender
    /// that does not know what became of its last events finds them here.
    pub last_triggers: Vec<TriggerNumber>,
    /// Bytes of an unfinished chunk that were cut off.
    pub bytes_cut: u64,
}

impl<W: Read + Write + Seek> RunWriter<W> {
    /// Reads a file of which at least the first chunk is complete, calls `cut` to end it behind its
    /// last complete chunk, and goes on from there. It reads the whole file once.
    ///
    /// # Errors
    /// [`ResumeError`]; the file is then left as it was, unless `cut` itself failed.
    ///
    /// # Panics
    /// If `limits` do not pass [`WriterLimits::validate`].
    pub fn resume(
        mut output: W,
        limits: WriterLimits,
        cut: impl FnOnce(&mut W, u64) -> io::Result<()>,
    ) -> Result<Resumed<W>, ResumeError> {
        assert!(
            limits.validate().is_empty(),
            "the limits were checked with the configuration"
        );
        let found = scan(&mut output, 0, Wanted::AnyRun)?;
        let (Some(first), Some(last)) = (found.chunks.first(), found.chunks.last()) else {
            let bytes = found.input_bytes;
            return Err(ResumeError::NotRunFile { bytes });
        };
        if found.chunks.iter().any(|c| c.content.has(Channel::End)) {
            return Err(ResumeError::Finished);
        }
        let end = last.end();
        let mut damage = found.damage.entries().iter();
        if let Some(damage) = damage.find(|damage| damage.offset < end) {
            return Err(ResumeError::Damaged {
                offset: damage.offset,
                reason: damage.reason.to_string(),
            });
        }
        let identity = first.content.mark.identity;
        let mut resumed = Resumed {
            writer: Self {
                output,
                limits,
                identity,
                chunk: ChunkBuffer::new(limits.chunk_bytes, limits.event_bytes_max),
                state: State::Open,
                events_indexed: true,
                end_written: false,
                chunk_index: Vec::with_capacity(limits.chunks_indexed_max),
                event_index: Vec::with_capacity(limits.events_indexed_max),
                chunks: 0,
                bytes_complete: end,
                events_given: 0,
                events_stored: 0,
                event_bytes: 0,
                event_bytes_in_chunk: 0,
                messages: [0; Channel::ALL.len()],
                time_bounds: None,
                trigger_bounds: None,
                triggers_in_chunk: None,
            },
            last_triggers: Vec::new(),
            bytes_cut: found.input_bytes - end,
        };
        let mut data = ChunkData::default();
        for chunk in &found.chunks {
            resumed.take(chunk, &mut data)?;
        }
        cut(&mut resumed.writer.output, end)?;
        resumed.writer.output.seek(SeekFrom::Start(end))?;
        Ok(resumed)
    }
}

impl<W: Read + Write + Seek> Resumed<W> {
    /// Accounts for a chunk as if it had just been written.
    fn take(&mut self, chunk: &ScannedChunk, data: &mut ChunkData) -> io::Result<()> {
        let data_at = chunk.offset + CHUNK_HEADER_BYTES as u64;
        // The scan has had it in memory, so its length fits.
        data.load(&mut self.writer.output, data_at, chunk.data_bytes as usize)?;
        if chunk.content.events > 0 {
            self.last_triggers.clear();
        }
        let mut times = None;
        let mut scratch = Vec::new();
        for message in Messages::new(data.bytes(), 0).flatten() {
            times = widened(times, message.time.0, message.time.0);
            let places = Channel::ALL.iter().position(|c| *c == message.channel);
            if let Some(count) = places.and_then(|at| self.writer.messages.get_mut(at)) {
                *count += 1;
            }
            if message.channel != Channel::Events {
                continue;
            }
            let Ok(event) = EventView::new_checked(words_of(message.data, &mut scratch)) else {
                continue;
            };
            let (trigger, bytes) = (event.header().trigger, event.words().len() * 4);
            self.last_triggers.push(trigger);
            self.writer.event_bytes += bytes as u64;
            self.writer.trigger_bounds = widened(self.writer.trigger_bounds, trigger, trigger);
            if self.writer.event_index.len() < self.writer.limits.events_indexed_max {
                self.writer.event_index.push(EventPlace {
                    trigger,
                    chunk_offset: chunk.offset,
                    offset: message.data_offset as u32,
                    bytes: bytes as u32,
                });
            } else {
                self.writer.events_indexed = false;
            }
        }
        let writer = &mut self.writer;
        let (start_time, end_time) = times.unwrap_or_default();
        writer.time_bounds = widened(writer.time_bounds, start_time, end_time);
        writer.chunks += 1;
        writer.events_given += chunk.content.events;
        writer.events_stored += chunk.content.events;
        if writer.chunk_index.len() < writer.limits.chunks_indexed_max {
            writer.chunk_index.push(ChunkIndex {
                start_time,
                end_time,
                offset: chunk.offset,
                data_bytes: chunk.data_bytes,
                // They only help other readers, which do without.
                message_indexes: ArrayVec::new(),
                message_index_bytes: 0,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use livetime_wire::{RunNs, RunNumber};

    use super::*;
    use crate::condition::Condition;
    use crate::run_reader::RunReader;
    use crate::run_record::{RunBegin, RunEnd};
    use livetime_wire::L2Mask;
    use livetime_wire::event::EventHeader;

    type Bytes = Cursor<Vec<u8>>;

    fn limits() -> WriterLimits {
        WriterLimits {
            chunk_bytes: 4 << 10,
            event_bytes_max: 1 << 10,
            events_indexed_max: 1000,
            chunks_indexed_max: 1000,
            ..WriterLimits::default()
        }
    }

    fn write(writer: &mut RunWriter<Bytes>, triggers: std::ops::Range<u64>) {
        for trigger in triggers {
            let mut words = Vec::new();
            let header = EventHeader {
                run: RunNumber(7),
                trigger: TriggerNumber(trigger),
                triggered_at: RunNs(trigger * 10),
                mask: L2Mask(1),
                filter_reason: 0,
                streams: 0,
            };
            header.emit(&[], &[], &mut words);
            let written = writer.write_event(TriggerNumber(trigger), RunNs(trigger), &[&words]);
            written.expect("memory takes everything");
        }
    }

    fn cut(bytes: &mut Bytes, at: u64) -> io::Result<()> {
        bytes.get_mut().truncate(at as usize);
        Ok(())
    }

    fn triggers(bytes: Vec<u8>) -> Vec<u64> {
        let mut reader = RunReader::open(Cursor::new(bytes)).expect("a run file");
        assert!(reader.end().is_some());
        assert!(
            reader.damage().entries().is_empty(),
            "{:?}",
            reader.damage()
        );
        let mut found = Vec::new();
        while let Some(event) = reader.next_event().expect("memory can be read") {
            found.push(event.header().trigger.0);
        }
        found
    }

    /// A file cut off anywhere behind its first chunk goes on, is whole in the end, and holds what
    /// it held and what came then.
    #[test]
    fn a_file_cut_anywhere_goes_on() {
        let begin = RunBegin::new(RunNumber(7));
        let mut writer =
            RunWriter::new(Bytes::default(), &begin, limits()).expect("memory takes it");
        let first_bytes = writer.bytes_complete() as usize;
        write(&mut writer, 1..200);
        writer.flush_chunk().expect("memory takes it");
        let whole = writer.into_inner().into_inner();
        for at in (first_bytes..=whole.len()).step_by(97).chain([whole.len()]) {
            let resumed = RunWriter::resume(Cursor::new(whole[..at].to_vec()), limits(), cut);
            let Resumed {
                mut writer,
                last_triggers,
                bytes_cut,
            } = resumed.expect("the first chunk is whole");
            let stored = writer.events_stored();
            assert_eq!(writer.bytes_complete() + bytes_cut, at as u64);
            assert_eq!(last_triggers.last().map_or(0, |last| last.0), stored);
            write(&mut writer, 1000..1100);
            let end = RunEnd::new(RunNumber(7), Condition::GOOD, "test", 5);
            let summary = writer.finish(&end).expect("memory takes it");
            assert!(summary.indexed);
            assert_eq!(summary.events_stored, stored + 100);
            let expected: Vec<u64> = (1..=stored).chain(1000..1100).collect();
            assert_eq!(triggers(writer.into_inner().into_inner()), expected, "{at}");
        }
    }

    #[test]
    fn other_bytes_and_finished_and_damaged_files_are_refused() {
        let resume = |bytes: Vec<u8>| RunWriter::resume(Cursor::new(bytes), limits(), cut).err();
        assert!(matches!(
            resume(b"no run".to_vec()),
            Some(ResumeError::NotRunFile { bytes: 6 })
        ));
        let begin = RunBegin::new(RunNumber(7));
        let mut writer =
            RunWriter::new(Bytes::default(), &begin, limits()).expect("memory takes it");
        write(&mut writer, 1..200);
        let end = RunEnd::new(RunNumber(7), Condition::GOOD, "test", 5);
        let first = writer.bytes_complete() as usize;
        writer.flush_chunk().expect("memory takes it");
        let mut damaged = Vec::clone(writer.output_mut().get_ref());
        damaged[first / 2] ^= 1;
        let refused = resume(damaged).expect("a bit is wrong").to_string();
        assert!(refused.contains("damaged at byte"), "{refused}");
        writer.finish(&end).expect("memory takes it");
        let finished = writer.into_inner().into_inner();
        assert!(matches!(resume(finished), Some(ResumeError::Finished)));
    }
}
