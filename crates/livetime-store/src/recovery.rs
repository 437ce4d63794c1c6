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
    // An input shorter than the largest event allowed holds none longer than itself.
    let largest = usize::try_from(reader.input_bytes()).unwrap_or(usize::MAX);
    let limits = WriterLimits {
        event_bytes_max: largest.clamp(1 << 10, 1 << 30),
        events_indexed_max: (largest / 64).clamp(1, 1 << 28),
        chunks_indexed_max: (reader.chunk_count() + largest / (1 << 20) + 3).clamp(1, 1 << 28),
        ..WriterLimits::default()
    };
    let mut writer = RunWriter::new(output, &begin, limits)?;
    let mut last_time = RunNs(0);
    let mut has_histograms = false;
    reader.find_displaced()?;
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
