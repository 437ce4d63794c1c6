//! The writer: accepted events from their pages into the run file.
//!
//! Drives `livetime_store::RunWriter` on a file. This is where a payload byte is copied, once, from
//! its page into the chunk; the system's copy into the file comes on top. An event that the output
//! budget has no room for waits in its pages, which is back-pressure, or is prescaled away and
//! counted if its streams yield. When the disk is full, nothing is taken from the builder units until
//! there is room again or the patience of the plan is at its end. When the file cannot be written the
//! run is to end in order: later events are counted as lost here, never silently.

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use livetime_shm::{Consumer, PagePool, Producer};
use livetime_store::{Admission, OutputBudget, OutputLimit, WriteError};
use livetime_wire::event::{EventAccess, EventHeader, FragmentEntry, stored_entry};
use livetime_wire::message::FRAGMENT_PAGES_MAX;
use livetime_wire::{DurationNs, LossCause, LossCounts, RunNs, RunNumber, TriggerNumber, UnitKind};

use super::{Role, RoleCommand, RoleResult};
use crate::building_group::BuildingGroup;
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::message_ring::is_taken;
use crate::pooled_event::PooledEvent;
use crate::run_file::{self, ClosingFile, RunFile, cause, is_full};
use crate::worker::Phase;

/// Events written in one duty cycle.
const EVENTS_PER_POLL: usize = 32;
/// Slices of an event that need no allocation: header and pages.
const PARTS: usize = 512;
/// A chunk that is not full is handed over after this time, so that readers of the growing file
/// see it.
const FLUSH_AFTER: DurationNs = DurationNs::SECOND;
/// How often a full disk is looked at again, and the free space of one that is not.
const LOOK_AT_DISK: DurationNs = DurationNs(run_file::LOOK_AT_DISK.as_nanos() as u64);

/// Everything that a writer is made of.
pub struct WriterParts {
    /// Role id.
    pub id: String,
    /// Run number.
    pub run: RunNumber,
    /// The file.
    pub file: RunFile,
    /// The units whose events it writes; below they stand by their places in it.
    pub group: BuildingGroup,
    /// Tickets in, one ring per builder unit.
    pub tickets: Vec<Consumer>,
    /// Events that are written, to each builder unit.
    pub written: Vec<Producer>,
    /// Events that one builder unit may hold at most.
    pub credits: usize,
    /// Pools in which events lie.
    pub pools: Vec<PagePool>,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
    /// Sources of an event.
    pub sources: usize,
    /// Bytes per second, and who yields.
    pub output: OutputLimit,
}

/// What was found in the ticket that was taken last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// An event whose pages are held.
    Held,
    /// An event that is in the file already.
    Repeated,
    /// Nothing that could be written.
    Refused,
}

/// Whether an event may wait for the output budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// It stays in its pages: back-pressure.
    Waits,
    /// Its builder unit is gone and nobody would hand it over again.
    Now,
}

/// The disk has no room.
#[derive(Debug)]
struct DiskFull {
    since: RunNs,
    /// What the system said, or the guard.
    reason: String,
}

/// The writer role.
pub struct Writer {
    parts: WriterParts,
    event: PooledEvent,
    header: Vec<u32>,
    entries: Vec<FragmentEntry>,
    counts: RoleCounts,
    /// By builder unit: the last of its events that came here, as many as it may hold.
    of_builder: Vec<VecDeque<TriggerNumber>>,
    /// By builder unit: whether it is lost.
    lost: Vec<bool>,
    /// Triggers of the last events that a writer before this one had put into the file, sorted:
    /// they may be handed over a second time.
    known: Vec<TriggerNumber>,
    /// By builder unit: events handed over since then. When each must have sent its last old one,
    /// `known` is of no use any more.
    since_known: Vec<usize>,
    /// Events that are another unit's answer to the last command: those of a lost builder unit.
    named: Vec<TriggerNumber>,
    repeated: u64,
    flushed_at: RunNs,
    failure: Option<String>,
    /// Events that the file did not take, as long as it could be written.
    refused: u64,
    bytes_copied: u64,
    budget: OutputBudget,
    /// The builder unit whose event is held here until the budget has room for it.
    waiting: Option<usize>,
    taken: Taken,
    /// Events that waited when the run was aborted.
    aborted: u64,
    full: Option<DiskFull>,
    /// When the disk was last looked at.
    looked_at: RunNs,
    full_waits: u64,
    full_ns: u64,
}

impl Writer {
    /// A writer at the start of its run.
    pub fn new(mut parts: WriterParts) -> Self {
        let sources = parts.sources;
        Self {
            known: parts.file.take_last_triggers(),
            since_known: vec![0; parts.tickets.len()],
            named: Vec::new(),
            repeated: 0,
            of_builder: (parts.tickets.iter())
                .map(|_| VecDeque::with_capacity(parts.credits))
                .collect(),
            event: PooledEvent::with_capacity(sources, sources * FRAGMENT_PAGES_MAX),
            header: Vec::with_capacity(EventHeader::words(sources, sources)),
            entries: Vec::with_capacity(sources),
            lost: vec![false; parts.tickets.len()],
            budget: OutputBudget::new(parts.output),
            parts,
            counts: RoleCounts::default(),
            flushed_at: RunNs(0),
            failure: None,
            refused: 0,
            bytes_copied: 0,
            waiting: None,
            taken: Taken::Refused,
            aborted: 0,
            full: None,
            looked_at: RunNs(0),
            full_waits: 0,
            full_ns: 0,
        }
    }

    /// Writes the next event of a builder unit; `false` when there is none, or when it waits.
    fn write_next(&mut self, now: RunNs, builder: usize, patience: Patience) -> bool {
        let ready = match self.waiting {
            None => self.take_event(builder),
            Some(waiting) => waiting == builder,
        };
        if !ready {
            return false;
        }
        if !self.admit_and_write(now, patience) {
            self.waiting = Some(builder);
            return false;
        }
        self.answer(builder);
        true
    }

    /// Takes the next ticket of a builder unit, and holds its pages unless the event is to be
    /// passed over; `false` when there is none or no room for the answer.
    fn take_event(&mut self, builder: usize) -> bool {
        if !self.lost[builder] && !self.parts.written[builder].has_room() {
            return false;
        }
        let ticket = self.event.ticket_mut();
        let read = self.parts.tickets[builder].try_pop(|words| ticket.read(words));
        let Ok(Some(read)) = read else { return false };
        self.counts.gauges.received += 1;
        self.taken = if read.is_err() {
            Taken::Refused
        } else if self.is_known(builder) {
            Taken::Repeated
        } else if self.event.hold(&self.parts.pools).is_ok() {
            Taken::Held
        } else {
            Taken::Refused
        };
        true
    }

    /// The event in hand has come to its end here, which its builder unit hears.
    fn answer(&mut self, builder: usize) {
        self.waiting = None;
        self.event.release();
        let trigger = self.event.ticket().trigger;
        let events = &mut self.of_builder[builder];
        if events.len() == self.parts.credits {
            events.pop_front();
        }
        events.push_back(trigger);
        if !self.lost[builder] {
            let done = [trigger.low(), (trigger.0 >> 32) as u32];
            let sent = self.parts.written[builder].try_push(&done);
            // If the builder unit is gone: the event is through here, and is named when the loss is
            // settled, so that it is not built again.
            debug_assert!(is_taken(sent), "a free slot was seen");
        }
    }

    /// Writes the event taken, or counts why not; `false` when it waits for the budget.
    fn admit_and_write(&mut self, now: RunNs, patience: Patience) -> bool {
        match self.taken {
            Taken::Repeated => self.repeated += 1,
            Taken::Refused => self.refused += 1,
            Taken::Held => {
                let (bytes, streams) = (self.event.bytes(), self.event.ticket().streams);
                let admission = match patience {
                    Patience::Waits => self.budget.handle_event(now, bytes, streams),
                    Patience::Now => {
                        self.budget.handle_forced(now, bytes);
                        Admission::Write
                    }
                };
                match admission {
                    Admission::Write => self.refused += u64::from(!self.write_event(now)),
                    Admission::Yield => {}
                    Admission::Wait { .. } => return false,
                }
            }
        }
        true
    }

    /// The run is aborted: nothing waits any more.
    fn abort(&mut self) {
        if let Some(builder) = self.waiting {
            self.aborted += 1;
            self.answer(builder);
        }
    }

    /// Whether the event was put into the file by a writer that died before it could say so.
    fn is_known(&mut self, builder: usize) -> bool {
        if self.known.is_empty() {
            return false;
        }
        self.since_known[builder] += 1;
        let most = self.parts.credits;
        if self.since_known.iter().all(|events| *events > most) {
            // Everything that could come twice has come.
            self.known.clear();
        }
        let trigger = self.event.ticket().trigger;
        match self.known.binary_search(&trigger) {
            Ok(at) => {
                self.known.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// A builder unit is gone: writes what it had handed over, and names those of its events that
    /// came here, the ones that a writer before this one had put into the file included.
    fn lose_builder(&mut self, now: RunNs, builder: usize, triggers: &[TriggerNumber]) {
        let Some(lost) = self.lost.get_mut(builder) else {
            return;
        };
        *lost = true;
        // The event that waits for the budget goes first, whose ever it is.
        if let Some(waiting) = self.waiting {
            self.write_next(now, waiting, Patience::Now);
        }
        while self.write_next(now, builder, Patience::Now) {}
        let came = self.of_builder[builder].drain(..);
        let known = self.known.iter().copied();
        let here = came.chain(known).filter(|event| triggers.contains(event));
        self.named.extend(here);
    }

    /// Puts the event into the file; `false` when it was not taken.
    fn write_event(&mut self, now: RunNs) -> bool {
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
        let (file, streams) = (&mut self.parts.file, ticket.streams);
        let pages: usize = ticket
            .fragments
            .iter()
            .map(|fragment| fragment.pages.len())
            .sum();
        let written = if pages < PARTS {
            let parts: ArrayVec<&[u32], PARTS> = all.collect();
            file.write_event(trigger, time, streams, &parts)
        } else {
            // Events of this many pages are far above the cost of one allocation.
            let parts: Vec<&[u32]> = all.collect();
            file.write_event(trigger, time, streams, &parts)
        };
        self.counts.gauges.bytes += self.event.bytes();
        self.bytes_copied += words as u64 * 4;
        self.note_result(now, written)
    }

    /// Remembers why the file cannot be written, for now or any more; `false` when the event was
    /// not taken.
    fn note_result(&mut self, now: RunNs, written: Result<(), WriteError>) -> bool {
        match written {
            Ok(()) => true,
            Err(WriteError::EventTooLarge { .. }) => false,
            // Of a lost builder unit, while the disk is full: there is nowhere to keep it.
            Err(WriteError::AfterFailure) if self.full.is_some() => false,
            Err(error) => {
                let waits = self.parts.file.plan().full_wait.0 > 0;
                if waits && is_full(&error) {
                    self.note_full(now, cause(&error));
                } else if self.full.is_none() {
                    self.give_up(cause(&error));
                }
                true
            }
        }
    }

    fn note_full(&mut self, now: RunNs, reason: String) {
        if self.full.is_none() {
            self.full_waits += 1;
            self.looked_at = now;
            self.full = Some(DiskFull { since: now, reason });
        }
    }

    /// Looks whether there is room on the disk, and goes on when there is again; `true` while
    /// nothing can be written.
    fn is_disk_full(&mut self, now: RunNs, phase: Phase) -> bool {
        let due = now.since(self.looked_at) >= LOOK_AT_DISK;
        if due && self.failure.is_none() {
            self.looked_at = now;
            let least = self.parts.file.plan().free_bytes_min;
            let free = match least {
                0 => None,
                _ => self.parts.file.free_bytes(),
            };
            match free {
                Some(free) if free < least => {
                    let reason = format!("{free} bytes are free, `free_space_min` is {least}");
                    self.note_full(now, reason);
                }
                _ => self.try_again(now),
            }
        }
        let Some(full) = &self.full else { return false };
        let waited = now.since(full.since);
        let patience = match phase {
            Phase::Running | Phase::Draining => self.parts.file.plan().full_wait,
            _ => DurationNs(0),
        };
        if waited >= patience {
            let reason = full.reason.clone();
            self.full_ns += waited.0;
            self.full = None;
            self.give_up(reason);
        }
        self.full.is_some()
    }

    /// Tries what failed on the full disk once more.
    fn try_again(&mut self, now: RunNs) {
        let Some(full) = self.full.take() else { return };
        match self.parts.file.retry(now) {
            Ok(()) => self.full_ns += now.since(full.since).0,
            Err(error) if is_full(&error) => self.full = Some(full),
            Err(error) => self.give_up(cause(&error)),
        }
    }

    /// No further event is written. What waits for its chunk to be full goes out as far as it can:
    /// it is written when the files are closed, and must be counted as stored.
    fn give_up(&mut self, reason: String) {
        let _as_far_as_it_goes = self.parts.file.flush_chunks();
        self.parts.file.give_up_waiting();
        self.failure = Some(reason);
    }

    fn flush_if_due(&mut self, now: RunNs, phase: Phase) -> usize {
        if self.failure.is_some() || self.full.is_some() {
            return 0;
        }
        let rolled = self.parts.file.roll_if_due(now);
        self.note_result(now, rolled);
        // The last chunk of a run may be the one for which the disk has no room: a run that is to end
        // waits for that as one that goes on does.
        let is_last = phase == Phase::Draining && self.has_nothing_to_take();
        let is_due = is_last || now.since(self.flushed_at) >= FLUSH_AFTER;
        if !is_due || self.full.is_some() || self.parts.file.events_pending() == 0 {
            return 0;
        }
        self.flushed_at = now;
        let flushed = self.parts.file.flush_chunks();
        self.note_result(now, flushed);
        1
    }

    fn has_nothing_to_take(&mut self) -> bool {
        self.waiting.is_none() && self.parts.tickets.iter_mut().all(Consumer::is_empty)
    }

    fn publish(&mut self) {
        let stored = self.parts.file.events_stored();
        self.counts.chain.events_stored = stored;
        // Once a write failed, whatever is not in a complete chunk is lost.
        let stored_here = stored - self.parts.file.events_found();
        let yielded = self.budget.counts().yielded;
        let elsewhere = self.repeated + yielded + self.aborted;
        let lost = match self.failure {
            Some(_) => (self.counts.gauges.received).saturating_sub(stored_here + elsewhere),
            None => self.refused,
        };
        self.counts.gauges.failed = u64::from(self.failure.is_some());
        self.counts.losses = LossCounts::new();
        self.counts.losses.add(LossCause::StoreWriteFailed, lost);
        self.counts.losses.add(LossCause::OutputYielded, yielded);
        self.counts
            .losses
            .add(LossCause::StoreAborted, self.aborted);
        self.counts.gauges.disk_full = u64::from(self.full.is_some());
        self.counts.gauges.held = self.parts.file.events_pending();
        let is_idle = self.has_nothing_to_take() && self.full.is_none();
        self.counts.gauges.idle = u64::from(is_idle);
        self.parts.block.publish(&self.counts);
    }
}

impl Role for Writer {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        let mut work = 0;
        if phase == Phase::Aborting {
            self.abort();
        }
        if self.is_disk_full(now, phase) {
            // What is handed over stays in its pages: back-pressure, in the end dead time.
            self.publish();
            return 0;
        }
        for builder in 0..self.parts.tickets.len() {
            for _ in 0..EVENTS_PER_POLL {
                if self.full.is_some() || !self.write_next(now, builder, Patience::Waits) {
                    break;
                }
                work += 1;
            }
        }
        work += self.flush_if_due(now, phase);
        if work > 0 || phase >= Phase::Draining {
            self.publish();
        }
        work
    }

    fn handle_command(&mut self, now: RunNs, command: RoleCommand) {
        match command {
            RoleCommand::PeerLost { unit, triggers } => {
                let place = self.parts.group.place_of(unit.index);
                if let (UnitKind::Builder, Some(builder)) = (unit.kind, place) {
                    self.lose_builder(now, builder, &triggers);
                }
                self.publish();
            }
            RoleCommand::Decide { .. }
            | RoleCommand::Retire { .. }
            | RoleCommand::NameReleased { .. }
            | RoleCommand::NameUnasked { .. }
            | RoleCommand::NameOpen
            | RoleCommand::EndUnasked { .. }
            | RoleCommand::NameHeld { .. }
            | RoleCommand::Succeed { .. }
            | RoleCommand::Hold { .. }
            | RoleCommand::Pause { .. }
            | RoleCommand::Joined { .. }
            | RoleCommand::StreamBack { .. } => {}
            RoleCommand::PeerBack {
                unit,
                producers,
                consumers,
                ..
            } => {
                let Some(index) = self.parts.group.place_of(unit.index) else {
                    return;
                };
                let written = producers.into_values().next();
                let tickets = consumers.into_values().next();
                if let (UnitKind::Builder, Some(written), Some(tickets)) =
                    (unit.kind, written, tickets)
                    && index < self.lost.len()
                {
                    self.parts.written[index] = written;
                    self.parts.tickets[index] = tickets;
                    self.lost[index] = false;
                }
            }
        }
    }

    fn poll_settled(&mut self) -> Option<Vec<TriggerNumber>> {
        Some(std::mem::take(&mut self.named))
    }

    fn finish(mut self: Box<Self>, now: RunNs) -> RoleResult {
        self.abort();
        if self.failure.is_none() && self.full.is_none() {
            let flushed = self.parts.file.flush_chunks();
            self.note_result(now, flushed);
        }
        if let Some(full) = self.full.take() {
            self.full_ns += now.since(full.since).0;
            self.give_up(full.reason);
        }
        let (slowest, stalls) = self.parts.file.waits();
        self.publish();
        let Self {
            parts,
            counts,
            failure,
            bytes_copied,
            repeated,
            budget,
            full_waits,
            full_ns,
            ..
        } = *self;
        let output = budget.counts();
        let details = [
            ("events_repeated", repeated),
            ("output_waits", output.waited),
            ("output_waited_ns", output.waited_ns),
            ("output_yielded", output.yielded),
            ("output_prescale_max", output.prescale_max.into()),
            ("output_window_bytes_max", output.window_bytes_max),
            ("disk_full_waits", full_waits),
            ("disk_full_ns", full_ns),
            ("disk_stalls", stalls),
            ("disk_write_ns_max", slowest.as_nanos() as u64),
        ];
        RoleResult {
            id: parts.id,
            counts,
            failure: failure.map(|reason| {
                let path = parts.file.path().display();
                format!("cannot write {path}: {reason}")
            }),
            bytes_copied,
            details: details
                .into_iter()
                .map(|(name, n)| (name.to_owned(), n))
                .collect(),
            run_file: Some(ClosingFile::Here(Box::new(parts.file))),
            ..RoleResult::default()
        }
    }
}
