//! Writes a whole copy of a run file that is not: cut off by a crash, damaged, or both.
//!
//! The copy holds every event that is whole, the begin-of-run record where it survived, or what other
//! files of the run tell of it, the
//! histograms, and an end-of-run record marked `recovered`, but for a copy of a file without damage.
//! The input is not changed, and nothing is made up: what is missing is counted and named.

use std::io::{self, Read, Seek, Write};

use livetime_wire::{RunNs, TriggerNumber};

use crate::chunk_data::words_of;
use crate::condition::Condition;
use crate::damage::DamageList;
use crate::run_chunk::{Channel, Messages};
use crate::run_reader::{OpenError, RunReader, checked_event};
use crate::run_record::{RunBegin, RunEnd};
use crate::run_writer::{FileSummary, RunWriter, WriteError, WriterLimits};
use crate::salvage::EventBytes;

/// Why a file was not recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The input is not a run file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The input failed.
    #[error("the run file cannot be read")]
    Read(#[from] io::Error),
    /// The output failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The new file.
    pub file: FileSummary,
    /// Events known to be missing.
    pub events_missing: u64,
    /// Events that were found in damaged chunks.
    pub events_salvaged: u64,
    /// Whether the input had histograms, or may have had them, and none can be read.
    pub histograms_lost: bool,
    /// What was passed over in the input.
    pub damage: DamageList,
    /// The end-of-run record of the new file.
    pub end: RunEnd,
}

/// Reads what is whole in `input` and writes it to `output` as a new run file.
///
/// # Errors
/// [`RecoverError`] if the input is not a run file at all, or one of the two fails.
pub fn recover<R: Read + Seek, W: Write>(
    input: R,
    output: W,
) -> Result<(W, Recovered), RecoverError> {
    recover_part(input, output, || None)
}

/// As [`recover`], of a file among others of its run: they are asked for the begin-of-run record that
/// it must have had, if it has lost its own.
///
/// # Errors
/// As [`recover`].
pub fn recover_part<R: Read + Seek, W: Write>(
    input: R,
    output: W,
    begin_by_others: impl FnOnce() -> Option<RunBegin>,
) -> Result<(W, Recovered), RecoverError> {
    let mut reader = RunReader::open(input)?;
    let run = reader.run();
    let of_run = |begin: &RunBegin| begin.run_number() == run;
    let begin = reader.begin().filter(|begin| begin.is_known()).cloned();
    let begin = begin.or_else(|| begin_by_others().filter(of_run));
    let begin = begin.unwrap_or_else(|| RunBegin::new(run));
    reader.find_displaced()?;
    let mut writer = copy_writer(&reader, output, &begin)?;
    let mut last_time = RunNs(0);
    let mut has_histograms = false;
    reader.read_cut_end();
    reader.compare_frames();
    for chunk in 0..reader.place_count() {
        if reader.load(chunk)? {
            has_histograms |= copy_chunk(&mut reader, chunk, &mut writer, &mut last_time)?;
        } else if let Some(salvage) = reader.load_salvage(chunk)? {
            let whole = salvage.whole.clone();
            copy_events(reader.loaded_data(), &whole, &mut writer, &mut last_time)?;
        }
    }
    reader.compare_rest()?;
    let events_missing = reader.events_missing();
    let histograms_lost = !has_histograms && reader.may_have_had_histograms()?;
    let mut end = recovered_end(&reader, events_missing, last_time);
    if histograms_lost {
        end.reason += "; recovered without the histograms, which cannot be read";
    }
    let file = writer.finish(&end)?;
    let end = RunEnd {
        events_stored: file.events_stored,
        ..end
    };
    let recovered = Recovered {
        file,
        events_missing,
        events_salvaged: reader.events_salvaged(),
        histograms_lost,
        damage: reader.damage().clone(),
        end,
    };
    Ok((writer.into_inner(), recovered))
}

/// Starts a copy of what a reader will read. The length of a file may be that of a hole in it, so it
/// bounds the memory and reserves none.
fn copy_writer<R: Read + Seek, W: Write>(
    reader: &RunReader<R>,
    output: W,
    begin: &RunBegin,
) -> Result<RunWriter<W>, WriteError> {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let all = size(reader.input_bytes());
    let limits = WriterLimits {
        // An event is in one place.
        event_bytes_max: size(reader.place_bytes_max()).clamp(1 << 10, 1 << 30),
        events_indexed_max: (all / 64).clamp(1, 1 << 28),
        chunks_indexed_max: (reader.chunk_count() + all / (1 << 20) + 3).clamp(1, 1 << 28),
        ..WriterLimits::default()
    };
    RunWriter::with_growing_indexes(output, begin, limits)
}

/// Copies the events and histograms of the chunk that is loaded; whether it has histograms.
fn copy_chunk<R: Read + Seek, W: Write>(
    reader: &mut RunReader<R>,
    chunk: usize,
    writer: &mut RunWriter<W>,
    last_time: &mut RunNs,
) -> Result<bool, WriteError> {
    let mut scratch = Vec::new();
    let mut damaged = Vec::new();
    let mut has_histograms = false;
    for message in Messages::new(reader.loaded_data(), 0).flatten() {
        match message.channel {
            Channel::Events => match checked_event(words_of(message.data, &mut scratch)) {
                Ok(event) => {
                    *last_time = message.time.max(*last_time);
                    let trigger: TriggerNumber = event.header().trigger;
                    writer.write_event(trigger, message.time, &[event.words()])?;
                }
                Err(reason) => damaged.push((message.data_offset, message.data.len(), reason)),
            },
            Channel::Histograms => {
                let json = message.data.trim_ascii_end();
                writer.write_json(Channel::Histograms, message.time, json)?;
                has_histograms = true;
            }
            Channel::Begin | Channel::End | Channel::Mark => {}
        }
    }
    reader.set_events_damaged(chunk, damaged.len() as u64);
    for (start, bytes, reason) in damaged {
        reader.push_damaged_event(chunk, start, bytes, reason);
    }
    Ok(has_histograms)
}

/// Copies events out of a damaged chunk, whose times no checksum covers: theirs are taken.
fn copy_events<W: Write>(
    data: &[u8],
    events: &[EventBytes],
    writer: &mut RunWriter<W>,
    last_time: &mut RunNs,
) -> Result<(), WriteError> {
    let mut scratch = Vec::new();
    for EventBytes { start, bytes } in events {
        let bytes = data
            .get(*start..start.saturating_add(*bytes))
            .unwrap_or_default();
        let Ok(event) = checked_event(words_of(bytes, &mut scratch)) else {
            continue;
        };
        let header = event.header();
        *last_time = header.triggered_at.max(*last_time);
        writer.write_event(header.trigger, header.triggered_at, &[event.words()])?;
    }
    Ok(())
}

fn recovered_end<R: Read + Seek>(
    reader: &RunReader<R>,
    events_missing: u64,
    last_time: RunNs,
) -> RunEnd {
    let mut end = match reader.end() {
        Some(end) => end.clone(),
        None => {
            let reason = "recovered: the file had no end-of-run record";
            RunEnd::new(reader.run(), Condition::INTERRUPTED, reason, last_time.0)
        }
    };
    end.events_missing = events_missing;
    if events_missing > 0 {
        end.condition |= Condition::INCOMPLETE;
    }
    let is_whole = reader.end().is_some() && events_missing == 0;
    // A copy of a file with nothing wrong is what that is.
    end.recovered |= !is_whole || reader.damage().total() > 0;
    end
}

#[cfg(test)]
mod tests {
    use std::io::SeekFrom;

    use livetime_wire::event::EventHeader;
    use livetime_wire::{L2Mask, RunNumber};

    use super::*;
    use crate::mcap_record::{FOOTER_BYTES, Footer, MAGIC};
    use crate::run_reader::IndexOrigin;

    const RUN: RunNumber = RunNumber(7);
    const HOLE_BYTES: u64 = 64 << 30;

    /// A file with a hole before its summary.
    struct Holed {
        before: Vec<u8>,
        behind: Vec<u8>,
        at: u64,
    }

    impl Holed {
        /// A finished file of ten events.
        fn new() -> Self {
            let begin = RunBegin::new(RUN);
            let limits = WriterLimits::default();
            let mut writer = RunWriter::new(Vec::new(), &begin, limits).unwrap();
            for number in 1..=10 {
                let (trigger, time) = (TriggerNumber(number), RunNs(number));
                let header = EventHeader {
                    run: RUN,
                    trigger,
                    triggered_at: time,
                    mask: L2Mask(1),
                    filter_reason: 0,
                    streams: 0,
                };
                let mut words = Vec::new();
                header.emit(&[], &[], &mut words);
                writer.write_event(trigger, time, &[&words]).unwrap();
            }
            let end = RunEnd::new(RUN, Condition::GOOD, "test", 11);
            writer.finish(&end).unwrap();
            let mut before = writer.into_inner();
            let footer = Footer::parse(before.last_chunk().unwrap()).unwrap();
            let mut behind = before.split_off(footer.summary_start as usize);
            behind.truncate(behind.len() - FOOTER_BYTES - MAGIC.len());
            let [summary, offsets] = [footer.summary_start, footer.offsets_start];
            Footer::put(&mut behind, 0, summary + HOLE_BYTES, offsets + HOLE_BYTES);
            let at = 0;
            Self { before, behind, at }
        }
    }

    impl Read for Holed {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let hole_at = self.before.len() as u64;
            let hole_end = hole_at + HOLE_BYTES;
            let count = if self.at < hole_at {
                (&self.before[self.at as usize..]).read(out)?
            } else if self.at < hole_end {
                let count = (hole_end - self.at).min(out.len() as u64) as usize;
                out[..count].fill(0);
                count
            } else {
                (&self.behind[(self.at - hole_end) as usize..]).read(out)?
            };
            self.at += count as u64;
            Ok(count)
        }
    }

    impl Seek for Holed {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            let bytes = (self.before.len() + self.behind.len()) as u64 + HOLE_BYTES;
            let at = match to {
                SeekFrom::Start(at) => Some(at),
                SeekFrom::End(by) => bytes.checked_add_signed(by),
                SeekFrom::Current(by) => self.at.checked_add_signed(by),
            };
            self.at = at.unwrap();
            Ok(self.at)
        }
    }

    /// Its length would be that of many large events.
    #[test]
    fn a_copy_of_a_file_with_a_hole_reserves_memory_for_what_is_there() {
        let reader = RunReader::open(Holed::new()).unwrap();
        assert_eq!(reader.origin(), IndexOrigin::Summary);
        assert!(reader.input_bytes() > HOLE_BYTES);
        let begin = RunBegin::new(RUN);
        let mut writer = copy_writer(&reader, Vec::new(), &begin).unwrap();
        let reserved = writer.reserved_bytes();
        assert!(reserved < 8 << 20, "{reserved} bytes");
        let (copy, recovered) = recover(Holed::new(), Vec::new()).unwrap();
        let said = (recovered.file.events_stored, recovered.events_missing);
        assert_eq!(said, (10, 0));
        assert!(recovered.file.indexed && copy.len() < 64 << 10);
    }
}
