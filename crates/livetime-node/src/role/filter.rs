//! A filter unit: whole events in, accepted ones to the writer, every one back to its builder.
//!
//! Runs an `EventFilter` on events in place, or a filter of batches, see [`super::filter_batch`]. A
//! builder unit hears of an event when the filter
//! rejected it or the writer is through with it, so that its pages stay until then. Tickets that the
//! writer has not answered are kept, so that the next writer can have them.

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpStream;
use std::sync::Arc;

use hdrhistogram::Histogram;
use livetime_builder::Outgoing;
use livetime_shm::{Consumer, Doorbell, PagePool, Producer};
use livetime_trigger::{EventFilter, FilterOutput};
use livetime_wire::event::EventHeader;
use livetime_wire::message::{
    BuilderMessage, Envelope, EventTicket, FRAGMENT_PAGES_MAX, TriggerList,
};
use livetime_wire::{LossCause, RunNs, TriggerNumber, UnitId, UnitKind};

use super::answer_log::AnswerLog;
use super::filter_batch::FilterBatches;
use super::ticket_shelf::TicketShelf;
use super::{
    Role, RoleCommand, RoleReport, RoleResult, latency_histogram, network_details, record_latency,
    restore_stream,
};
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::hand_over_stamp::stamp_of;
use crate::message_ring::Outbox;
use crate::pooled_event::PooledEvent;
use crate::process::FilterFailure;
use crate::python_filter::batch_filter::REASONS;
use crate::python_filter::{BatchFilter, BatchVerdict};
use crate::run_clock::RunClock;
use crate::transport::EventReceiver;
use crate::transport::event_receiver::free_event;
use crate::worker::Phase;

/// Events handled in one duty cycle.
const EVENTS_PER_POLL: usize = 8;
/// Events taken into a batch in one duty cycle.
const EVENTS_PER_BATCH_POLL: usize = 64;

/// What a filter unit runs.
pub enum UnitFilter {
    /// A filter of events one by one.
    Event(Box<dyn EventFilter>),
    /// A filter of batches.
    Batch(Box<BatchFilter>),
}

impl UnitFilter {
    fn reasons(&self) -> Vec<String> {
        match self {
            Self::Event(filter) => filter.reason_names(),
            Self::Batch(_) => REASONS.map(str::to_owned).to_vec(),
        }
    }
}

/// Everything that a filter unit is made of.
pub struct FilterUnitParts {
    /// Role id.
    pub id: String,
    /// Which filter unit.
    pub unit: UnitId,
    /// Tickets in, one ring per builder unit; `None` for those of other subfarms.
    pub tickets: Vec<Option<Consumer>>,
    /// What makes events of the outbox's streams, where a network brings them; then there are no
    /// rings.
    pub streams: Option<EventReceiver>,
    /// Pools in which events lie: its own where a network brings them.
    pub pools: Vec<PagePool>,
    /// The index of its own pool among those that the writer has.
    pub own_pool: u16,
    /// Tickets of accepted events out.
    pub writer: Producer,
    /// Its own bell, which streams are to ring, where it sleeps at one.
    pub bell: Option<Doorbell>,
    /// Rung when a ticket is on its way to the writer, unless it is on the same worker.
    pub writer_bell: Option<Doorbell>,
    /// What hand-overs are timed with.
    pub clock: RunClock,
    /// Events that the writer is through with: builder index, trigger number.
    pub written: Consumer,
    /// `EventDone` messages out.
    pub outbox: Outbox,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
    /// Sources of an event.
    pub sources: usize,
    /// Epoch of the messages.
    pub epoch: u32,
    /// Events that the writer may have of this unit.
    pub in_filter: usize,
    /// Events that one builder unit may hold at most.
    pub credits: usize,
}

/// Events that are to be reported to one builder unit.
#[derive(Default)]
struct Done {
    triggers: TriggerList,
    sequence: u32,
}

/// What a filter unit has of its filter.
enum Judge {
    Event(Box<dyn EventFilter>),
    Batch(Box<FilterBatches>),
}

/// The filter unit role.
pub struct FilterUnit {
    parts: FilterUnitParts,
    judge: Judge,
    /// Failures of the filter that are still to be told.
    failures: VecDeque<FilterFailure>,
    reason_names: Vec<String>,
    event: PooledEvent,
    words: Vec<u32>,
    /// The event whose pages were freed last.
    freed: EventTicket,
    /// An accepted event whose ticket found the writer's ring full.
    waiting: bool,
    done: Vec<Done>,
    /// What was answered last, for events that come again.
    answers: AnswerLog,
    /// Events that came again.
    repeated: u64,
    /// Events that the writer has.
    with_writer: TicketShelf,
    writer_lost: bool,
    /// Events that are to be reported and found no room when the writer died, by builder unit.
    late: Vec<(usize, TriggerNumber)>,
    /// By builder unit: its last events that came here, as many as it may hold.
    of_builder: Vec<VecDeque<TriggerNumber>>,
    /// A builder unit that is lost and whose events are still being dealt with, and those that it
    /// had.
    lost_builder: Option<(usize, Vec<TriggerNumber>)>,
    leaving: bool,
    failed_events: u64,
    answers_unknown: u64,
    reasons: Vec<(u64, u64)>,
    hand_over: Histogram<u64>,
    counts: RoleCounts,
    unreadable: u64,
}

impl FilterUnit {
    /// A filter unit at the start of its run.
    pub fn new(parts: FilterUnitParts, filter: UnitFilter) -> Self {
        let reason_names = filter.reasons();
        let judge = match filter {
            UnitFilter::Event(filter) => Judge::Event(filter),
            UnitFilter::Batch(filter) => {
                Judge::Batch(Box::new(FilterBatches::new(*filter, parts.sources)))
            }
        };
        let pages = parts.sources * FRAGMENT_PAGES_MAX;
        let words = EventTicket::words_max(parts.sources, FRAGMENT_PAGES_MAX);
        let recent = |_: &Option<Consumer>| VecDeque::with_capacity(parts.credits);
        Self {
            event: PooledEvent::with_capacity(parts.sources, pages),
            words: Vec::with_capacity(words),
            freed: EventTicket::with_capacity(parts.sources),
            waiting: false,
            done: parts.tickets.iter().map(|_| Done::default()).collect(),
            answers: match parts.streams {
                Some(_) => AnswerLog::new(parts.tickets.len(), parts.in_filter),
                None => AnswerLog::new(0, 0),
            },
            repeated: 0,
            with_writer: TicketShelf::new(parts.in_filter, words),
            writer_lost: false,
            late: Vec::new(),
            of_builder: parts.tickets.iter().map(recent).collect(),
            lost_builder: None,
            leaving: false,
            failed_events: 0,
            answers_unknown: 0,
            reasons: vec![(0, 0); reason_names.len()],
            reason_names,
            judge,
            failures: VecDeque::new(),
            hand_over: latency_histogram(),
            counts: RoleCounts::default(),
            unreadable: 0,
            parts,
        }
    }

    /// Takes the next event of a builder unit; `false` when there is none.
    fn filter_next(&mut self, builder: usize, now: RunNs) -> bool {
        let event = match &mut self.judge {
            Judge::Event(_) => &mut self.event,
            Judge::Batch(batches) if batches.takes() => batches.incoming(),
            Judge::Batch(_) => return false,
        };
        let ticket = event.ticket_mut();
        let clock = &self.parts.clock;
        let ring = self.parts.tickets.get_mut(builder);
        let read = match (&mut self.parts.streams, ring) {
            (Some(streams), _) => Ok(streams.next(builder, ticket).then_some((Ok(()), None))),
            (None, Some(Some(ring))) => ring.try_pop(|words| {
                let waited = stamp_of(words).map(|handed_over| clock.now().since(handed_over));
                (ticket.read(words), waited)
            }),
            _ => return false,
        };
        let Ok(Some((read, waited))) = read else {
            return false;
        };
        let is_ours = read.is_ok() && usize::from(event.ticket().builder) == builder;
        if is_ours && self.answers.may_repeat(builder) {
            let trigger = event.ticket().trigger;
            if self.was_here(builder, trigger) {
                self.pass_over(builder, trigger);
                return true;
            }
        }
        let event = match &mut self.judge {
            Judge::Event(_) => &mut self.event,
            Judge::Batch(batches) => batches.incoming(),
        };
        self.counts.gauges.received += 1;
        if !is_ours || event.hold(&self.parts.pools).is_err() {
            // Only a builder unit that is out of its mind sends this. Which event it meant is not
            // known: the builder unit has it still.
            self.unreadable += 1;
            return true;
        }
        if let Some(waited) = waited {
            record_latency(&mut self.hand_over, waited.0);
        }
        let trigger = event.ticket().trigger;
        let recent = &mut self.of_builder[builder];
        if recent.len() == self.parts.credits {
            recent.pop_front();
        }
        recent.push_back(trigger);
        self.counts.gauges.bytes += event.bytes();
        let has_failed = event.ticket().streams & EventHeader::ERROR_STREAM != 0;
        match &mut self.judge {
            // Other filter units have died of it: it is kept as it is.
            Judge::Event(_) if has_failed => {
                self.failed_events += 1;
                self.keep();
            }
            Judge::Batch(batches) if has_failed => {
                std::mem::swap(batches.incoming(), &mut self.event);
                self.failed_events += 1;
                self.keep();
            }
            Judge::Event(_) => self.select(trigger),
            Judge::Batch(batches) => batches.take(now),
        }
        true
    }

    /// Whether an event has come before, over a stream that was cut.
    fn was_here(&self, builder: usize, trigger: TriggerNumber) -> bool {
        let in_batch = match &self.judge {
            Judge::Event(_) => false,
            Judge::Batch(batches) => batches.has(builder, trigger),
        };
        in_batch
            || self.with_writer.has(builder as u16, trigger)
            || self.answers.has(builder, trigger)
    }

    /// The event that has come has come before: it is answered again if it was answered.
    fn pass_over(&mut self, builder: usize, trigger: TriggerNumber) {
        self.repeated += 1;
        let event = match &mut self.judge {
            Judge::Event(_) => &mut self.event,
            Judge::Batch(batches) => batches.incoming(),
        };
        free_pages(&mut self.parts.outbox, event.ticket());
        if self.answers.has(builder, trigger) {
            if let Some(done) = self.done.get_mut(builder) {
                done.triggers.push(trigger);
            }
            self.answers.note_again(builder, trigger);
        }
    }

    /// Runs the filter on the event in hand.
    fn select(&mut self, trigger: TriggerNumber) {
        let Judge::Event(filter) = &mut self.judge else {
            return;
        };
        self.parts.block.note_event(Some(trigger));
        let output = filter.filter(&self.event);
        self.parts.block.note_event(None);
        self.conclude(output);
    }

    /// Acts on the answer about the event in hand.
    fn conclude(&mut self, output: FilterOutput) {
        if let Some((accepted, rejected)) = self.reasons.get_mut(usize::from(output.reason)) {
            *(if output.accept { accepted } else { rejected }) += 1;
        }
        let ticket = self.event.ticket_mut();
        (ticket.filter_reason, ticket.streams) = (output.reason, output.streams);
        if output.accept {
            self.keep();
            return;
        }
        let (builder, trigger) = (usize::from(ticket.builder), ticket.trigger);
        self.counts.chain.filter_rejected += 1;
        self.event.release();
        free_pages(&mut self.parts.outbox, self.event.ticket());
        self.report_done(builder, trigger);
    }

    /// Hands the event in hand on to the writer.
    fn keep(&mut self) {
        self.counts.chain.filter_accepted += 1;
        if self.parts.streams.is_some() {
            // The writer has the pools of all its filter units.
            let own = self.parts.own_pool;
            let fragments = &mut self.event.ticket_mut().fragments;
            fragments
                .iter_mut()
                .for_each(|fragment| fragment.pool = own);
        }
        self.event.ticket().emit(&mut self.words);
        self.waiting = true;
        self.event.release();
        self.hand_to_writer();
    }

    /// Goes on with the batches, and deals with what is judged.
    fn judge_batches(&mut self, now: RunNs, phase: Phase) -> usize {
        let Judge::Batch(batches) = &mut self.judge else {
            return 0;
        };
        if phase == Phase::Aborting {
            batches.abandon();
        }
        let mut work = batches.poll(now, phase == Phase::Draining);
        let failures = batches.filter_mut().take_failures();
        self.failures.extend(failures);
        while !self.waiting
            && self.has_room()
            && let Judge::Batch(batches) = &mut self.judge
            && let Some(verdict) = batches.next_judged(&mut self.event)
        {
            work += 1;
            match verdict {
                BatchVerdict::Judged(output) => self.conclude(output),
                BatchVerdict::Failed => {
                    self.failed_events += 1;
                    self.event.ticket_mut().streams = EventHeader::ERROR_STREAM;
                    self.keep();
                }
            }
        }
        work
    }

    fn hand_to_writer(&mut self) -> usize {
        if !self.waiting || self.writer_lost || self.with_writer.is_full() {
            return 0;
        }
        if self.parts.writer.try_push(&self.words).is_err() {
            return 0;
        }
        self.waiting = false;
        let ticket = self.event.ticket();
        (self.with_writer).push(ticket.builder, ticket.trigger, &self.words);
        self.ring_writer();
        1
    }

    #[inline]
    fn ring_writer(&self) {
        if let Some(bell) = &self.parts.writer_bell {
            bell.ring();
        }
    }

    /// Notes that an event's pages are no longer needed; there is room, see [`FilterUnit::poll`].
    fn report_done(&mut self, builder: usize, trigger: TriggerNumber) {
        if let Some(done) = self.done.get_mut(builder) {
            done.triggers.push(trigger);
        }
        self.answers.note(builder, trigger);
    }

    /// A stream from a builder unit is there, or is there again.
    fn take_stream(&mut self, unit: UnitId, stream: TcpStream) {
        if let Some(bell) = &self.parts.bell {
            // Without it the unit looks now and then.
            let _rings = bell.watch(&stream);
        }
        restore_stream(&mut self.parts.outbox, unit, Some(stream));
    }

    /// Whether each builder unit's list has room for one more.
    fn has_room(&self) -> bool {
        self.done.iter().all(|done| !done.triggers.is_full())
    }

    fn take_written(&mut self) -> usize {
        let mut work = 0;
        while self.has_room() {
            let written = self.parts.written.try_pop(|words| match *words {
                [builder, low, high] => {
                    let builder = u16::try_from(builder).ok()?;
                    Some((builder, u64::from(low) | u64::from(high) << 32))
                }
                _ => None,
            });
            let Ok(Some(written)) = written else { break };
            work += 1;
            let event = written.map(|(builder, low)| (builder, TriggerNumber(low)));
            let kept = event.and_then(|(builder, trigger)| {
                let words = self.with_writer.remove(builder, trigger)?;
                free_pages_of(&mut self.parts.outbox, &mut self.freed, words);
                Some((builder, trigger))
            });
            match kept {
                Some((builder, trigger)) => self.report_done(builder.into(), trigger),
                // An answer about what the writer was not given changes nothing.
                None => self.answers_unknown += 1,
            }
        }
        work
    }

    /// Takes what has come over streams.
    fn take_events(&mut self) -> usize {
        let FilterUnitParts {
            streams, outbox, ..
        } = &mut self.parts;
        match (streams, outbox.network()) {
            (Some(streams), Some(link)) => streams.poll(link),
            _ => 0,
        }
    }

    /// The writer died: its last answers are read whatever room there is for them.
    fn lose_writer(&mut self) {
        self.writer_lost = true;
        loop {
            let before = self.late.len();
            while let Some(done) = self.done.iter().position(|done| done.triggers.is_full()) {
                let triggers = self.done[done].triggers.take();
                self.late.extend(triggers.into_iter().map(|t| (done, t)));
            }
            if self.take_written() == 0 && self.late.len() == before {
                return;
            }
        }
    }

    /// Reports what found no room before.
    fn report_late(&mut self) -> usize {
        let mut work = 0;
        while self.has_room()
            && let Some((builder, trigger)) = self.late.pop()
        {
            self.report_done(builder, trigger);
            work += 1;
        }
        work
    }

    /// The writer died and the run ends without another: what it was to store is lost with it.
    fn give_up_stores(&mut self) -> usize {
        let waiting = std::mem::take(&mut self.waiting).then(|| {
            let ticket = self.event.ticket();
            (ticket.builder, ticket.trigger)
        });
        let mut work = 0;
        while let Some((builder, trigger)) = self.with_writer.first() {
            self.with_writer.pop();
            self.late.push((builder.into(), trigger));
            work += 1;
        }
        if let Some((builder, trigger)) = waiting {
            self.late.push((builder.into(), trigger));
            work += 1;
        }
        self.counts.losses.add(LossCause::WriterLost, work);
        work as usize
    }

    /// Another writer is there: it gets what the one before has not answered. An event that two
    /// have not answered is given up.
    fn welcome_writer(&mut self, tickets: Producer, written: Consumer) {
        (self.parts.writer, self.parts.written) = (tickets, written);
        self.writer_lost = false;
        let Self {
            parts,
            with_writer,
            counts,
            late,
            freed,
            ..
        } = self;
        let FilterUnitParts { writer, outbox, .. } = parts;
        with_writer.hand_over_again(
            |builder, trigger, words| {
                counts.losses.add(LossCause::WriterLost, 1);
                free_pages_of(outbox, freed, words);
                late.push((builder.into(), trigger));
            },
            |words| {
                let sent = writer.try_push(words);
                debug_assert!(sent.is_ok(), "a new ring has room for all");
            },
        );
        self.ring_writer();
    }

    fn is_empty(&mut self) -> bool {
        !self.waiting
            && self.with_writer.is_empty()
            && self.late.is_empty()
            && self.parts.outbox.is_empty()
            && self.done.iter().all(|done| done.triggers.is_empty())
            && (self.parts.tickets.iter_mut().flatten()).all(Consumer::is_empty)
            && (self.parts.streams.as_ref()).is_none_or(EventReceiver::is_all_empty)
            && match &self.judge {
                Judge::Event(_) => true,
                Judge::Batch(batches) => batches.is_empty(),
            }
    }

    /// Events in batches.
    fn in_batches(&self) -> usize {
        match &self.judge {
            Judge::Event(_) => 0,
            Judge::Batch(batches) => batches.held(),
        }
    }

    fn send_done(&mut self) -> usize {
        let Self { parts, done, .. } = self;
        let (sender, epoch) = (parts.unit, parts.epoch);
        let mut poll = || {
            let (index, done) = done
                .iter_mut()
                .enumerate()
                .find(|(_, done)| !done.triggers.is_empty())?;
            let message = BuilderMessage::EventDone {
                triggers: done.triggers.take(),
            };
            let sequence = done.sequence;
            done.sequence = sequence.wrapping_add(1);
            let to = UnitId::builder(index as u16);
            Some(Outgoing {
                to,
                envelope: Envelope {
                    sender,
                    epoch,
                    sequence,
                    message,
                },
            })
        };
        parts.outbox.send_all(&mut poll)
    }

    /// What its filter of batches has done so far, by name; empty for other filters.
    pub fn filter_details(&self) -> BTreeMap<String, u64> {
        match &self.judge {
            Judge::Event(_) => BTreeMap::new(),
            Judge::Batch(batches) => batch_details(batches.filter()).into(),
        }
    }

    fn publish(&mut self) {
        let idle = self.is_empty();
        self.counts.gauges.idle = u64::from(idle);
        let held = self.with_writer.len() + self.in_batches();
        self.counts.gauges.held = held as u64 + u64::from(self.waiting);
        self.parts.block.publish(&self.counts);
    }
}

impl Role for FilterUnit {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        let mut work = self.report_late() + self.hand_to_writer() + self.take_written();
        work += self.take_events();
        if self.writer_lost && phase == Phase::Aborting {
            work += self.give_up_stores();
        }
        work += self.judge_batches(now, phase);
        let is_batched = matches!(self.judge, Judge::Batch(_));
        let most = match is_batched {
            // What has no verdict when a run is ended by force gets none.
            true if phase == Phase::Aborting => 0,
            true => EVENTS_PER_BATCH_POLL,
            false => EVENTS_PER_POLL,
        };
        for builder in 0..self.parts.tickets.len() {
            for _ in 0..most {
                if self.waiting || !self.has_room() || !self.filter_next(builder, now) {
                    break;
                }
                work += 1;
            }
        }
        work += self.send_done();
        if work > 0 || phase >= Phase::Draining {
            self.publish();
        }
        work
    }

    fn handle_command(&mut self, _now: RunNs, command: RoleCommand) {
        match command {
            RoleCommand::PeerLost { unit, triggers } => {
                if unit.kind == UnitKind::Builder {
                    let FilterUnitParts {
                        streams, outbox, ..
                    } = &mut self.parts;
                    if let (Some(streams), Some(link)) = (streams, outbox.network()) {
                        streams.lose(unit, link);
                    }
                }
                self.parts.outbox.lose(unit);
                match unit.kind {
                    UnitKind::Builder => {
                        self.lost_builder = Some((usize::from(unit.index), triggers));
                    }
                    UnitKind::Writer => self.lose_writer(),
                    _ => {}
                }
            }
            RoleCommand::PeerBack {
                unit,
                producers,
                consumers,
                stream,
                ..
            } => {
                let index = usize::from(unit.index);
                if let (UnitKind::Builder, Some(stream)) = (unit.kind, stream) {
                    self.take_stream(unit, stream);
                    if let Some(done) = self.done.get_mut(index) {
                        *done = Done::default();
                    }
                }
                let ends = (
                    producers.into_values().next(),
                    consumers.into_values().next(),
                );
                match (unit.kind, ends, self.done.get_mut(index)) {
                    (UnitKind::Writer, (Some(tickets), Some(written)), _) => {
                        self.welcome_writer(tickets, written);
                    }
                    (UnitKind::Builder, (Some(messages), Some(tickets)), Some(done)) => {
                        self.parts.tickets[index] = Some(tickets);
                        *done = Done::default();
                        self.parts.outbox.restore(unit, messages);
                    }
                    _ => {}
                }
            }
            RoleCommand::StreamBack {
                unit,
                stream: Some(stream),
            } => {
                let FilterUnitParts {
                    streams, outbox, ..
                } = &mut self.parts;
                if let (Some(streams), Some(link)) = (streams, outbox.network()) {
                    streams.restart(unit, link);
                }
                self.take_stream(unit, stream);
                self.answers.handle_stream_back(unit.index.into());
            }
            RoleCommand::Retire { .. } => self.leaving = true,
            RoleCommand::Decide { .. } | RoleCommand::StreamBack { stream: None, .. } => {}
        }
    }

    fn poll_settled(&mut self) -> Option<Vec<TriggerNumber>> {
        let Some((builder, triggers)) = self.lost_builder.take() else {
            return Some(Vec::new());
        };
        let in_batch = match &self.judge {
            Judge::Event(_) => false,
            Judge::Batch(batches) => batches.has_any_of(builder),
        };
        let is_through = !self.waiting
            && !in_batch
            && !self.with_writer.has_any_of(builder as u16)
            && (self.parts.tickets.get_mut(builder).into_iter().flatten()).all(Consumer::is_empty)
            && (self.parts.streams.as_ref()).is_none_or(|streams| streams.is_empty(builder));
        if !is_through {
            self.lost_builder = Some((builder, triggers));
            return None;
        }
        let had = self.of_builder.get_mut(builder).into_iter();
        let had = had.flat_map(|events| events.drain(..));
        Some(had.filter(|event| triggers.contains(event)).collect())
    }

    fn has_left(&mut self) -> bool {
        let FilterUnitParts {
            streams, outbox, ..
        } = &mut self.parts;
        let is_expecting = match (streams, outbox.network()) {
            // What is on its way shows only when the stream has ended.
            (Some(streams), Some(link)) => !streams.is_ended(link),
            _ => false,
        };
        self.leaving && !is_expecting && self.is_empty()
    }

    fn poll_report(&mut self, now: RunNs) -> Option<RoleReport> {
        if let Some(failure) = self.failures.pop_front() {
            return Some(RoleReport::Failure(failure));
        }
        let Judge::Batch(batches) = &mut self.judge else {
            return None;
        };
        batches
            .is_report_due(now)
            .then(|| RoleReport::Histograms(batches.filter().histograms().to_vec()))
    }

    fn finish(mut self: Box<Self>, _now: RunNs) -> RoleResult {
        self.publish();
        let mut details = self.filter_details();
        let mut histograms = Vec::new();
        match &mut self.judge {
            Judge::Event(filter) => details.extend(filter.details()),
            Judge::Batch(batches) => {
                histograms = batches.filter().histograms().to_vec();
            }
        }
        for (name, (accepted, rejected)) in self.reason_names.iter().zip(&self.reasons) {
            details.insert(format!("reason.{name}.accepted"), *accepted);
            details.insert(format!("reason.{name}.rejected"), *rejected);
        }
        for (name, count) in [
            ("unreadable_tickets", self.unreadable),
            ("unknown_answers", self.answers_unknown),
            ("events_to_error_stream", self.failed_events),
        ] {
            details.insert(name.to_owned(), count);
        }
        if let Some(streams) = &self.parts.streams {
            details.insert("network_streams_refused".to_owned(), streams.refused());
            details.insert("network_events_again".to_owned(), self.repeated);
        }
        let network = network_details(&mut self.parts.outbox).into_iter();
        details.extend(network.map(|(name, count)| (name.to_owned(), count)));
        RoleResult {
            id: self.parts.id,
            counts: self.counts,
            details,
            filter_failures: self.failures.into(),
            histograms,
            hand_over_latency: Some(self.hand_over),
            ..RoleResult::default()
        }
    }
}

/// The pages of an event that a network has brought are needed no more.
fn free_pages(outbox: &mut Outbox, ticket: &EventTicket) {
    if let Some(link) = outbox.network() {
        free_event(link, ticket);
    }
}

/// The same for the event whose ticket has these words; `freed` is any ticket to read them into.
fn free_pages_of(outbox: &mut Outbox, freed: &mut EventTicket, words: &[u32]) {
    if outbox.network().is_some() && freed.read(words).is_ok() {
        free_pages(outbox, freed);
    }
}

/// What a filter of batches did, by name.
fn batch_details(filter: &BatchFilter) -> [(String, u64); 12] {
    let counts = filter.counts();
    [
        ("filter.batches", counts.batches),
        ("filter.requests", counts.requests),
        ("filter.events_in_histograms", counts.events),
        ("filter.failed_events", counts.failed),
        ("filter.exceptions", counts.exceptions),
        ("filter.deaths", counts.deaths),
        ("filter.over_time", counts.over_time),
        ("filter.forks", counts.forks),
        ("filter.time_ns", counts.filter_ns),
        ("filter.asked_ns", counts.asked_ns),
        ("filter.printed_bytes", filter.printed_bytes()),
        ("filter.fills_refused", filter.histograms().refused()),
    ]
    .map(|(name, count)| (name.to_owned(), count))
}
