//! The writer: accepted events from their pages into the run file.
//!
//! Drives `livetime_store::RunWriter` on a file. This is where a payload byte is copied, once, from
//! its page into the chunk; the system's copy into the file comes on top. When the file cannot be
//! written the run is to end in order: later events are counted as lost here, never silently.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use livetime_shm::{Consumer, PagePool, Producer};
use livetime_store::{
    FileSummary, Histogram, RunBegin, RunEnd, RunWriter, WriteError, WriterLimits,
};
use livetime_wire::event::{EventAccess, EventHeader, FragmentEntry, stored_entry};
use livetime_wire::message::{BuilderMessage, Envelope, FRAGMENT_PAGES_MAX};
use livetime_wire::{DurationNs, LossCause, LossCounts, RunNs, RunNumber, TriggerNumber, UnitKind};

use super::{Role, RoleCommand, RoleResult};
use crate::chain_plan::WRITER;
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::pooled_event::PooledEvent;
use crate::worker::Phase;

/// Events written in one duty cycle.
const EVENTS_PER_POLL: usize = 32;
/// Slices of an event that need no allocation: header and pages.
const PARTS: usize = 512;
/// A chunk that is not full is handed over after this time, so that readers of the growing file
/// see it.
const FLUSH_AFTER: DurationNs = DurationNs::SECOND;

/// Everything that a writer is made of.
pub struct WriterParts {
    /// Role id.
    pub id: String,
    /// Run number.
    pub run: RunNumber,
    /// The file.
    pub file: RunFile,
    /// Tickets in, one ring per filter unit.
    pub tickets: Vec<Consumer>,
    /// Events that are written, to each filter unit.
    pub written: Vec<Producer>,
    /// `EventDone` messages to the builder units, for events of a lost filter unit.
    pub builders: Vec<Producer>,
    /// Events that one filter unit may have here at most.
    pub in_filter: usize,
    /// Epoch of the messages.
    pub epoch: u32,
    /// Pools of the readout units.
    pub pools: Vec<PagePool>,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
    /// Set when the file can no longer be written.
    pub failed: Arc<AtomicBool>,
    /// Sources of an event.
    pub sources: usize,
}

/// A run file being written.
pub struct RunFile {
    path: PathBuf,
    writer: RunWriter<File>,
    /// The bytes go nowhere: there is nothing to cut or to sync.
    discards: bool,
}

/// Why a run file could not be created or closed.
#[derive(Debug, thiserror::Error)]
pub enum RunFileError {
    /// The file system refused.
    #[error("cannot create {path}: {error}")]
    Create {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A record could not be written.
    #[error("cannot write {path}: {}", cause(error))]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: WriteError,
    },
}

/// The innermost reason of a write error.
fn cause(error: &WriteError) -> String {
    match error {
        WriteError::Io { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

impl RunFile {
    /// Creates the file and writes the begin-of-run record.
    ///
    /// # Errors
    /// [`RunFileError`] when the file system refuses.
    pub fn create(
        path: &Path,
        begin: &RunBegin,
        limits: WriterLimits,
    ) -> Result<Self, RunFileError> {
        let path = path.to_owned();
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = match file {
            Ok(file) => file,
            Err(error) => return Err(RunFileError::Create { path, error }),
        };
        match RunWriter::new(file, begin, limits) {
            Ok(writer) => Ok(Self {
                path,
                writer,
                discards: false,
            }),
            Err(error) => Err(RunFileError::Write { path, error }),
        }
    }

    /// A file that keeps nothing, for measuring what comes before the disk: events are gathered
    /// into chunks as for any other.
    ///
    /// # Errors
    /// [`RunFileError`] when there is no null device.
    pub fn discarding(begin: &RunBegin, limits: WriterLimits) -> Result<Self, RunFileError> {
        let path = PathBuf::from("/dev/null");
        let file = match File::options().write(true).open(&path) {
            Ok(file) => file,
            Err(error) => return Err(RunFileError::Create { path, error }),
        };
        match RunWriter::new(file, begin, limits) {
            Ok(writer) => Ok(Self {
                path,
                writer,
                discards: true,
            }),
            Err(error) => Err(RunFileError::Write { path, error }),
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Events in complete chunks.
    pub fn events_stored(&self) -> u64 {
        self.writer.events_stored()
    }

    /// Writes histograms and the end-of-run record and syncs the file. After a failed write the
    /// file is first cut back to its last complete chunk, and the record tried without the rest.
    ///
    /// # Errors
    /// [`RunFileError`]; complete chunks stay readable.
    pub fn close(
        mut self,
        end: &RunEnd,
        histograms: &[Histogram],
    ) -> Result<FileSummary, RunFileError> {
        let time = RunNs(end.time_ns);
        let closed = self.try_close(time, end, histograms);
        match closed {
            Ok(summary) => Ok(summary),
            Err(error) => Err(RunFileError::Write {
                path: self.path,
                error,
            }),
        }
    }

    fn try_close(
        &mut self,
        time: RunNs,
        end: &RunEnd,
        histograms: &[Histogram],
    ) -> Result<FileSummary, WriteError> {
        self.cut_back()?;
        let written = self.writer.write_histograms(time, histograms);
        let mut closed = written.and_then(|()| self.writer.finish(end));
        if closed.is_err() {
            // On a full disk the end-of-run record may still find room where the rest does not.
            self.cut_back()?;
            closed = self.writer.finish(end);
        }
        if closed.is_err() {
            self.cut_back()?;
        }
        let summary = closed?;
        let io = |source| WriteError::Io {
            bytes_complete: summary.bytes,
            source,
        };
        if !self.discards {
            self.writer.output_mut().sync_data().map_err(io)?;
        }
        Ok(summary)
    }

    /// After a failed write: cuts the file back to its last complete chunk.
    fn cut_back(&mut self) -> Result<(), WriteError> {
        let bytes_complete = self.writer.bytes_complete();
        let cut = self.writer.rewind_to_complete(|file, bytes| {
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes)).map(|_| ())
        });
        cut.map_err(|source| WriteError::Io {
            bytes_complete,
            source,
        })
    }
}

/// The writer role.
pub struct Writer {
    parts: WriterParts,
    event: PooledEvent,
    header: Vec<u32>,
    entries: Vec<FragmentEntry>,
    counts: RoleCounts,
    /// By filter unit: the last events written for it, as builder index and trigger.
    recent: Vec<VecDeque<(u16, TriggerNumber)>>,
    /// By filter unit: whether it is lost.
    lost: Vec<bool>,
    sequence: Vec<u32>,
    flushed_at: RunNs,
    failure: Option<String>,
    /// Events that the file did not take, as long as it could be written.
    refused: u64,
    bytes_copied: u64,
}

impl Writer {
    /// A writer at the start of its run.
    pub fn new(parts: WriterParts) -> Self {
        let sources = parts.sources;
        Self {
            event: PooledEvent::with_capacity(sources, sources * FRAGMENT_PAGES_MAX),
            header: Vec::with_capacity(EventHeader::words(sources, sources)),
            entries: Vec::with_capacity(sources),
            recent: (parts.tickets.iter())
                .map(|_| VecDeque::with_capacity(parts.in_filter))
                .collect(),
            lost: vec![false; parts.tickets.len()],
            sequence: vec![0; parts.builders.len()],
            parts,
            counts: RoleCounts::default(),
            flushed_at: RunNs(0),
            failure: None,
            refused: 0,
            bytes_copied: 0,
        }
    }

    /// Writes the next event of a filter unit; `false` when there is none.
    fn write_next(&mut self, filter: usize) -> bool {
        let lost = self.lost[filter];
        if !lost && !self.parts.written[filter].has_room() {
            return false;
        }
        let ticket = self.event.ticket_mut();
        let read = self.parts.tickets[filter].try_pop(|words| ticket.read(words));
        let Ok(Some(read)) = read else { return false };
        self.counts.gauges.received += 1;
        let held = read.is_ok() && self.event.hold(&self.parts.pools).is_ok();
        if !held || !self.write_event() {
            self.refused += 1;
        }
        self.event.release();
        let ticket = self.event.ticket();
        let trigger = ticket.trigger;
        let done = [
            u32::from(ticket.builder),
            trigger.low(),
            (trigger.0 >> 32) as u32,
        ];
        let recent = &mut self.recent[filter];
        if recent.len() == self.parts.in_filter {
            recent.pop_front();
        }
        recent.push_back((ticket.builder, trigger));
        if !lost {
            let sent = self.parts.written[filter].try_push(&done);
            debug_assert!(sent.is_ok(), "a free slot was seen");
        }
        true
    }

    /// A filter unit is gone: writes what it had handed over, and tells the builder units about
    /// everything that it may not have told them.
    fn lose_filter(&mut self, filter: usize) {
        let Some(lost) = self.lost.get_mut(filter) else {
            return;
        };
        *lost = true;
        while self.write_next(filter) {}
        let Self {
            parts,
            recent,
            sequence,
            ..
        } = self;
        for (builder, trigger) in recent[filter].drain(..) {
            let index = usize::from(builder);
            let (Some(ring), Some(sequence)) =
                (parts.builders.get_mut(index), sequence.get_mut(index))
            else {
                continue;
            };
            let message = BuilderMessage::EventDone {
                triggers: [trigger].into_iter().collect(),
            };
            let envelope = Envelope {
                sender: WRITER,
                epoch: parts.epoch,
                sequence: *sequence,
                message,
            };
            *sequence = sequence.wrapping_add(1);
            // There is a slot for every credit; without one the event counts as lost.
            let _unheard = ring.try_push(&envelope.to_words());
        }
    }

    /// Puts the event into the file; `false` when it was not taken.
    fn write_event(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        let ticket = self.event.ticket();
        self.entries.clear();
        self.entries
            .extend((0..self.event.fragment_count()).map(|i| stored_entry(&self.event, i)));
        self.header.clear();
        let header = EventHeader {
            run: self.parts.run,
            trigger: ticket.trigger,
            triggered_at: ticket.triggered_at,
            mask: ticket.mask,
            filter_reason: ticket.filter_reason,
            streams: ticket.streams,
        };
        header.emit(&self.entries, &ticket.missing, &mut self.header);
        let (trigger, time) = (ticket.trigger, ticket.triggered_at);
        let fragments = (0..self.event.fragment_count()).flat_map(|i| self.event.parts(i).parts);
        let all = std::iter::once(self.header.as_slice()).chain(fragments);
        let words: usize = all.clone().map(<[u32]>::len).sum();
        let writer = &mut self.parts.file.writer;
        let pages: usize = ticket
            .fragments
            .iter()
            .map(|fragment| fragment.pages.len())
            .sum();
        let written = if pages < PARTS {
            let parts: ArrayVec<&[u32], PARTS> = all.collect();
            writer.write_event(trigger, time, &parts)
        } else {
            // Events of this many pages are far above the cost of one allocation.
            let parts: Vec<&[u32]> = all.collect();
            writer.write_event(trigger, time, &parts)
        };
        self.counts.gauges.bytes += self.event.bytes();
        self.bytes_copied += words as u64 * 4;
        self.note_result(written)
    }

    /// Remembers why the file cannot be written any more; `false` when the event was not taken.
    fn note_result(&mut self, written: Result<(), WriteError>) -> bool {
        match written {
            Ok(()) => true,
            Err(WriteError::EventTooLarge { .. }) => false,
            Err(error) => {
                self.failure = Some(cause(&error));
                self.parts.failed.store(true, Ordering::Relaxed);
                true
            }
        }
    }

    fn flush_if_due(&mut self, now: RunNs) -> usize {
        let writer = &mut self.parts.file.writer;
        if self.failure.is_some()
            || writer.events_pending() == 0
            || now.since(self.flushed_at) < FLUSH_AFTER
        {
            return 0;
        }
        self.flushed_at = now;
        let flushed = writer.flush_chunk();
        self.note_result(flushed);
        1
    }

    fn publish(&mut self) {
        let stored = self.parts.file.events_stored();
        self.counts.chain.events_stored = stored;
        // Once a write failed, whatever is not in a complete chunk is lost.
        let lost = match self.failure {
            Some(_) => self.counts.gauges.received - stored,
            None => self.refused,
        };
        self.counts.losses = LossCounts::new();
        self.counts.losses.add(LossCause::StoreWriteFailed, lost);
        self.counts.gauges.held = self.parts.file.writer.events_pending();
        let idle = self.parts.tickets.iter_mut().all(Consumer::is_empty);
        self.counts.gauges.idle = u64::from(idle);
        self.parts.block.publish(&self.counts);
    }
}

impl Role for Writer {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        let mut work = 0;
        for filter in 0..self.parts.tickets.len() {
            for _ in 0..EVENTS_PER_POLL {
                if !self.write_next(filter) {
                    break;
                }
                work += 1;
            }
        }
        work += self.flush_if_due(now);
        if work > 0 || phase >= Phase::Draining {
            self.publish();
        }
        work
    }

    fn handle_command(&mut self, _now: RunNs, command: RoleCommand) {
        match command {
            RoleCommand::PeerLost { unit, .. } if unit.kind == UnitKind::Filter => {
                self.lose_filter(usize::from(unit.index));
                self.publish();
            }
            RoleCommand::PeerLost { .. } => {}
            RoleCommand::PeerBack {
                unit,
                producers,
                consumers,
                ..
            } => {
                let index = usize::from(unit.index);
                let (producer, consumer) = (
                    producers.into_values().next(),
                    consumers.into_values().next(),
                );
                match (unit.kind, producer, consumer) {
                    (UnitKind::Filter, Some(written), Some(tickets)) if index < self.lost.len() => {
                        self.parts.written[index] = written;
                        self.parts.tickets[index] = tickets;
                        self.lost[index] = false;
                    }
                    (UnitKind::Builder, Some(ring), _) if index < self.parts.builders.len() => {
                        self.parts.builders[index] = ring;
                        self.sequence[index] = 0;
                    }
                    _ => {}
                }
            }
        }
    }

    fn finish(mut self: Box<Self>, _now: RunNs) -> RoleResult {
        if self.failure.is_none() {
            let flushed = self.parts.file.writer.flush_chunk();
            self.note_result(flushed);
        }
        self.publish();
        let Self {
            parts,
            counts,
            failure,
            bytes_copied,
            ..
        } = *self;
        RoleResult {
            id: parts.id,
            counts,
            failure,
            bytes_copied,
            run_file: Some(parts.file),
            ..RoleResult::default()
        }
    }
}
