//! The writer on its host: accepted events from their pages into the run file, in memory.
//!
//! Drives `livetime_store::RunWriter`. When the disk is full the run is to end in order: later
//! events are counted as lost here, never silently.

use std::collections::BTreeMap;

use livetime_store::{Condition, FileSummary, RunEnd, RunWriter, WriteError};
use livetime_wire::decision::mix64;
use livetime_wire::event::{EventAccess, EventHeader, FragmentEntry, stored_entry};
use livetime_wire::message::EventTicket;
use livetime_wire::{ChainCounts, LossCause, LossCounts, RunNs, RunNumber, TriggerNumber};

use super::chain_event::KIND_STORED;
use super::host::{Hall, Surroundings, Unit};
use super::simulated_disk::SimulatedDisk;
use super::simulated_event::SimulatedEvent;
use crate::address::NodeId;
use crate::time::DurationPs;
use crate::trace::EventLabel;

/// Everything that a writer is made of.
pub(crate) struct WriterParts {
    pub(crate) run: RunNumber,
    pub(crate) node: NodeId,
    pub(crate) file: RunWriter<SimulatedDisk>,
    /// Hops from the builder units, by their index.
    pub(crate) tickets: Vec<u32>,
    /// Hops to the builder units, by their index.
    pub(crate) written: Vec<u32>,
    pub(crate) write_time: DurationPs,
}

/// The writer on its host.
pub(crate) struct WriterHost {
    parts: WriterParts,
    ticket: EventTicket,
    header: Vec<u32>,
    entries: Vec<FragmentEntry>,
    received: u64,
    /// Events that the file did not take, as long as it could be written.
    refused: u64,
    /// Triggers of the events that the file took, in its order.
    given: Vec<TriggerNumber>,
    failure: Option<String>,
    planned: Option<usize>,
    turn: usize,
    /// The builder unit to which the last event is not yet reported, and the words that do.
    answer: Option<(usize, [u32; 2])>,
}

/// How the run ended, for the last record of its file.
pub(crate) struct Ending<'a> {
    pub(crate) at: RunNs,
    pub(crate) condition: Condition,
    pub(crate) reason: &'a str,
    pub(crate) counts: &'a ChainCounts,
    pub(crate) losses: &'a LossCounts,
    pub(crate) menu: &'a BTreeMap<String, u64>,
}

impl WriterHost {
    pub(crate) fn new(parts: WriterParts, ticket: EventTicket) -> Self {
        Self {
            parts,
            ticket,
            header: Vec::new(),
            entries: Vec::new(),
            received: 0,
            refused: 0,
            given: Vec::new(),
            failure: None,
            planned: None,
            turn: 0,
            answer: None,
        }
    }

    /// Why the file can no longer be written.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Events in complete chunks.
    pub(crate) fn events_stored(&self) -> u64 {
        self.parts.file.events_stored()
    }

    /// What was lost here. Once a write failed, that is whatever is not in a complete chunk.
    pub(crate) fn losses(&self) -> LossCounts {
        let lost = match self.failure {
            Some(_) => self.received - self.events_stored(),
            None => self.refused,
        };
        let mut losses = LossCounts::new();
        losses.add(LossCause::StoreWriteFailed, lost);
        losses
    }

    /// The stored events, ascending.
    pub(crate) fn stored_triggers(&self) -> Vec<TriggerNumber> {
        let stored = usize::try_from(self.events_stored()).unwrap_or(usize::MAX);
        // Chunks are completed in order, so those stored are the first ones.
        let mut triggers = self.given[..stored.min(self.given.len())].to_vec();
        triggers.sort_unstable();
        triggers
    }

    /// Hands the last chunk over.
    pub(crate) fn flush(&mut self) {
        if self.failure.is_none() {
            let flushed = self.parts.file.flush_chunk();
            self.note_result(&flushed);
        }
    }

    /// Closes the file and returns its bytes; after a full disk it is first cut back to its last
    /// complete chunk. Without room even for its end it stays as it is, and readable.
    pub(crate) fn close(mut self, ending: &Ending<'_>) -> (Vec<u8>, Option<FileSummary>) {
        let mut end = RunEnd::new(self.parts.run, ending.condition, ending.reason, ending.at.0);
        end = end.with_counts(ending.counts, ending.losses);
        end.menu = ending.menu.clone();
        let cut = |disk: &mut SimulatedDisk, bytes| {
            disk.truncate(bytes);
            Ok(())
        };
        let summary = self
            .parts
            .file
            .rewind_to_complete(cut)
            .ok()
            .and_then(|()| self.parts.file.finish(&end).ok());
        (self.parts.file.into_inner().into_bytes(), summary)
    }

    /// The builder unit whose event comes next, if one can be taken.
    fn next_builder(&self, hall: &Hall) -> Option<usize> {
        if self.answer.is_some() {
            return None;
        }
        let builders = self.parts.tickets.len();
        let mut turns = (0..builders).map(|n| (self.turn + n) % builders);
        turns.find(|builder| hall.fabric.waiting(self.parts.tickets[*builder]) > 0)
    }

    fn write_next(&mut self, builder: usize, s: &mut Surroundings<'_>) {
        let lane = self.parts.tickets[builder];
        let Some(words) = s.hall.fabric.front(lane) else {
            return;
        };
        let read = self.ticket.read(words);
        s.consume(lane);
        self.received += 1;
        if read.is_err() {
            s.hall.mishaps += 1;
        }
        if read.is_err() || !self.write_event(s.hall) {
            self.refused += 1;
        } else if self.failure.is_none() {
            s.scheduler.note(EventLabel {
                node: self.parts.node,
                kind: KIND_STORED,
                key: mix64(self.ticket.trigger.0) ^ self.ticket.fragments.len() as u64,
            });
        }
        let trigger = self.ticket.trigger;
        self.answer = Some((builder, [trigger.low(), (trigger.0 >> 32) as u32]));
    }

    /// Puts the event into the file; `false` when it was not taken.
    fn write_event(&mut self, hall: &Hall) -> bool {
        if self.failure.is_some() {
            return false;
        }
        let Self {
            parts,
            ticket,
            header,
            entries,
            ..
        } = self;
        let event = SimulatedEvent {
            ticket,
            pools: &hall.pools,
        };
        entries.clear();
        entries.extend((0..event.fragment_count()).map(|index| stored_entry(&event, index)));
        header.clear();
        let fixed = EventHeader {
            run: parts.run,
            trigger: ticket.trigger,
            triggered_at: ticket.triggered_at,
            mask: ticket.mask,
            filter_reason: ticket.filter_reason,
            streams: ticket.streams,
        };
        fixed.emit(entries, &ticket.missing, header);
        let fragments = (0..event.fragment_count()).flat_map(|index| event.parts(index).parts);
        let all: Vec<&[u32]> = std::iter::once(header.as_slice())
            .chain(fragments)
            .collect();
        let written = parts
            .file
            .write_event(ticket.trigger, ticket.triggered_at, &all);
        let is_taken = self.note_result(&written);
        if is_taken {
            self.given.push(self.ticket.trigger);
        }
        is_taken
    }

    /// Remembers why the file cannot be written any more; `false` when the event was not taken.
    fn note_result(&mut self, written: &Result<(), WriteError>) -> bool {
        match written {
            Ok(()) => true,
            Err(WriteError::EventTooLarge { .. }) => false,
            Err(error) => {
                self.failure = Some(match error {
                    WriteError::Io { source, .. } => source.to_string(),
                    other => other.to_string(),
                });
                true
            }
        }
    }

    fn answer(&mut self, s: &mut Surroundings<'_>) {
        if let Some((builder, words)) = self.answer {
            let lane = self.parts.written[builder];
            if s.hall.fabric.has_room(lane) {
                s.send(lane, &words);
                self.answer = None;
            }
        }
    }
}

impl Unit for WriterHost {
    fn plan(&mut self, hall: &Hall) -> DurationPs {
        self.planned = self.next_builder(hall);
        match self.planned {
            Some(_) => self.parts.write_time,
            None => DurationPs::ZERO,
        }
    }

    fn work(&mut self, s: &mut Surroundings<'_>) {
        self.answer(s);
        if let Some(builder) = self.planned.take() {
            self.turn = builder + 1;
            self.write_next(builder, s);
            self.answer(s);
        }
    }

    fn has_work(&self, hall: &Hall) -> bool {
        self.next_builder(hall).is_some()
    }

    fn is_idle(&self) -> bool {
        self.answer.is_none()
    }
}
