//! A filter unit: whole events in, a verdict about each back to its builder unit.
//!
//! Runs an `EventFilter` on events in place, or a filter of batches, see [`super::filter_batch`]. The
//! builder unit keeps an event until it hears what becomes of it, and hands what is accepted to the
//! writer: so nothing but verdicts leaves a filter unit, which may be on another host.

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpStream;
use std::sync::Arc;

use hdrhistogram::Histogram;
use livetime_builder::FilterAnswers;
use livetime_shm::{Consumer, Doorbell, PagePool};
use livetime_trigger::{EventFilter, FilterOutput, FirstStep, FirstStepVerdict};
use livetime_wire::event::EventHeader;
use livetime_wire::message::{AcceptedEvent, EventTicket, FRAGMENT_PAGES_MAX};
use livetime_wire::{RunNs, TriggerNumber, UnitId, UnitKind};

use super::filter_batch::FilterBatches;
use super::verdict_log::{Verdict, VerdictLog};
use super::{
    Role, RoleCommand, RoleReport, RoleResult, latency_histogram, network_details, record_latency,
    restore_socket,
};
use crate::builder_transport::PeerSocket;
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
    /// Its own bell, which streams are to ring, where it sleeps at one.
    pub bell: Option<Doorbell>,
    /// What hand-overs are timed with.
    pub clock: RunClock,
    /// Verdicts out.
    pub outbox: Outbox,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
    /// Sources of an event.
    pub sources: usize,
    /// Epoch of the messages.
    pub epoch: u32,
    /// Events that one builder unit may hold at most.
    pub credits: usize,
    /// The selection on the first step of events, where they are built in two.
    pub first_step: Option<FirstStep>,
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
    /// Verdicts that are to be told.
    answers: FilterAnswers,
    /// The last verdicts to each builder unit.
    log: VerdictLog,
    /// Events that came again.
    repeated: u64,
    /// A builder unit that is lost and whose events are still being dealt with, and those of them
    /// that the writer does not have.
    lost_builder: Option<(usize, Vec<TriggerNumber>)>,
    leaving: bool,
    to_error_stream: u64,
    /// Accepted events that were lost with their builder unit and are built again.
    withdrawn: u64,
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
        let builders = parts.tickets.len();
        Self {
            event: PooledEvent::with_capacity(parts.sources, pages),
            answers: FilterAnswers::new(parts.unit, parts.epoch, builders),
            log: VerdictLog::new(builders, parts.credits),
            repeated: 0,
            lost_builder: None,
            leaving: false,
            to_error_stream: 0,
            withdrawn: 0,
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
        if is_ours && self.log.may_repeat(builder) {
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
        self.counts.gauges.bytes += event.bytes();
        let has_failed = event.ticket().streams & EventHeader::ERROR_STREAM != 0;
        if event.ticket().is_first_step() {
            if let Judge::Batch(batches) = &mut self.judge {
                std::mem::swap(batches.incoming(), &mut self.event);
            }
            self.judge_first_step(has_failed);
            return true;
        }
        match &mut self.judge {
            // Other filter units have died of it: it is kept as it is.
            Judge::Event(_) if has_failed => self.keep_failed(),
            Judge::Batch(batches) if has_failed => {
                std::mem::swap(batches.incoming(), &mut self.event);
                self.keep_failed();
            }
            Judge::Event(_) => self.select(trigger),
            Judge::Batch(batches) => batches.take(now),
        }
        true
    }

    /// The first step of the event in hand is there: its rest is asked for, or it is rejected.
    fn judge_first_step(&mut self, has_failed: bool) {
        let ticket = self.event.ticket();
        let (builder, trigger) = (usize::from(ticket.builder), ticket.trigger);
        let verdict = match &mut self.parts.first_step {
            // One that is kept as it is, is kept whole.
            Some(selection) if !has_failed => {
                let filter = match &mut self.judge {
                    Judge::Event(filter) => Some(filter.as_mut()),
                    Judge::Batch(_) => None,
                };
                self.parts.block.note_event(Some(trigger));
                let verdict = selection.judge(&self.event, filter.map(|filter| filter as _));
                self.parts.block.note_event(None);
                verdict
            }
            _ => FirstStepVerdict::Fetch,
        };
        match verdict {
            FirstStepVerdict::Release => self.tell(
                FilterOutput {
                    accept: false,
                    reason: 0,
                    streams: 0,
                },
                false,
            ),
            FirstStepVerdict::Fetch => {
                self.event.release();
                free_pages(&mut self.parts.outbox, self.event.ticket());
                self.answers.fetch(builder, trigger);
            }
        }
    }

    /// Whether an event has come before, over a stream that was cut.
    fn was_here(&self, builder: usize, trigger: TriggerNumber) -> bool {
        let in_batch = match &self.judge {
            Judge::Event(_) => false,
            Judge::Batch(batches) => batches.has(builder, trigger),
        };
        in_batch || self.log.has(builder, trigger)
    }

    /// The event that has come has come before: what was said about it is said again.
    fn pass_over(&mut self, builder: usize, trigger: TriggerNumber) {
        self.repeated += 1;
        let event = match &mut self.judge {
            Judge::Event(_) => &mut self.event,
            Judge::Batch(batches) => batches.incoming(),
        };
        free_pages(&mut self.parts.outbox, event.ticket());
        if let Some(verdict) = self.log.say_again(builder, trigger) {
            self.say(builder, verdict);
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
        self.tell(output, true);
    }

    /// The event in hand has no answer of the filter: it is kept in the error stream.
    fn keep_failed(&mut self) {
        let output = FilterOutput {
            accept: true,
            reason: 0,
            streams: EventHeader::ERROR_STREAM,
        };
        self.tell(output, false);
    }

    /// Tells the builder unit what becomes of the event in hand, which is not needed here any more;
    /// there is room, see [`FilterUnit::poll`]. `is_judged` is as in [`Verdict`].
    fn tell(&mut self, output: FilterOutput, is_judged: bool) {
        self.event.release();
        let ticket = self.event.ticket();
        let builder = usize::from(ticket.builder);
        let verdict = Verdict {
            trigger: ticket.trigger,
            output,
            is_judged,
            fragments: ticket.fragments.len() as u16,
            is_incomplete: !ticket.is_first_step() && !ticket.missing.is_empty(),
        };
        free_pages(&mut self.parts.outbox, ticket);
        self.count(verdict);
        self.log.note(builder, verdict);
        self.say(builder, verdict);
    }

    /// Counts an event that is judged: what it is, too, since its builder unit may count no more.
    fn count(&mut self, verdict: Verdict) {
        let RoleCounts { chain, gauges, .. } = &mut self.counts;
        *(match verdict.output.accept {
            true => &mut chain.filter_accepted,
            false => &mut chain.filter_rejected,
        }) += 1;
        let fragments = u64::from(verdict.fragments);
        gauges.fragments += fragments;
        if verdict.is_incomplete {
            gauges.incomplete += 1;
            gauges.fragments_in_incomplete += fragments;
        }
        let FilterOutput {
            accept,
            reason,
            streams,
        } = verdict.output;
        if verdict.is_judged
            && let Some((accepted, rejected)) = self.reasons.get_mut(usize::from(reason))
        {
            *(if accept { accepted } else { rejected }) += 1;
        }
        self.to_error_stream += u64::from(is_of_error_stream(streams));
    }

    /// Takes back that an accepted event was counted: it is built again.
    fn withdraw(&mut self, verdict: Verdict) {
        self.withdrawn += 1;
        let RoleCounts { chain, gauges, .. } = &mut self.counts;
        chain.filter_accepted -= 1;
        let fragments = u64::from(verdict.fragments);
        gauges.fragments -= fragments;
        if verdict.is_incomplete {
            gauges.incomplete -= 1;
            gauges.fragments_in_incomplete -= fragments;
        }
        let FilterOutput {
            reason, streams, ..
        } = verdict.output;
        // One over its time is of the error stream, and has a reason of the filter all the same.
        if verdict.is_judged
            && let Some((accepted, _)) = self.reasons.get_mut(usize::from(reason))
        {
            *accepted -= 1;
        }
        self.to_error_stream -= u64::from(is_of_error_stream(streams));
    }

    fn say(&mut self, builder: usize, verdict: Verdict) {
        let Verdict {
            trigger, output, ..
        } = verdict;
        match output.accept {
            true => {
                let event = AcceptedEvent {
                    trigger,
                    reason: output.reason,
                    streams: output.streams,
                };
                self.answers.accept(builder, event);
            }
            false => self.answers.reject(builder, trigger),
        }
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
        while self.answers.has_room()
            && let Judge::Batch(batches) = &mut self.judge
            && let Some(verdict) = batches.next_judged(&mut self.event)
        {
            work += 1;
            match verdict {
                BatchVerdict::Judged(output) => self.tell(output, true),
                BatchVerdict::Failed => self.keep_failed(),
            }
        }
        work
    }

    /// A stream from a builder unit is there, or is there again.
    fn take_stream(&mut self, unit: UnitId, stream: TcpStream) {
        if let Some(bell) = &self.parts.bell {
            // Without it the unit looks now and then.
            let _rings = bell.watch(&stream);
        }
        let socket = PeerSocket::Stream(stream);
        restore_socket(&mut self.parts.outbox, unit, Some(socket));
    }

    /// Takes what has come over streams.
    fn take_events(&mut self) -> usize {
        let FilterUnitParts {
            streams, outbox, ..
        } = &mut self.parts;
        match (streams, outbox.streams()) {
            (Some(streams), Some(link)) => streams.poll(link),
            _ => 0,
        }
    }

    /// A builder unit is gone, and with it the accepted events that the writer does not have: those
    /// are built again. Returns the rejected ones of `triggers`, which are not.
    fn settle_verdicts(
        &mut self,
        builder: usize,
        triggers: &[TriggerNumber],
    ) -> Vec<TriggerNumber> {
        let mut rejected = Vec::new();
        for verdict in self.log.take(builder) {
            if !triggers.contains(&verdict.trigger) {
                continue;
            }
            match verdict.output.accept {
                true => self.withdraw(verdict),
                false => rejected.push(verdict.trigger),
            }
        }
        rejected
    }

    fn is_empty(&mut self) -> bool {
        self.parts.outbox.is_empty()
            && self.answers.is_empty()
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
        self.counts.gauges.held = self.in_batches() as u64;
        if let Judge::Batch(batches) = &self.judge {
            self.counts.gauges.filter_work_ns = batches.filter().work_ns();
            self.counts.gauges.filter_failures = batches.filter().counts().failed;
        }
        self.parts.block.publish(&self.counts);
    }
}

impl Role for FilterUnit {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        let mut work = self.take_events();
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
                if !self.answers.has_room() || !self.filter_next(builder, now) {
                    break;
                }
                work += 1;
            }
        }
        let answers = &mut self.answers;
        work += self.parts.outbox.send_all(|| answers.poll_output());
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
                    if let (Some(streams), Some(link)) = (streams, outbox.streams()) {
                        streams.lose(unit, link);
                    }
                }
                self.parts.outbox.lose(unit);
                if unit.kind == UnitKind::Builder {
                    self.lost_builder = Some((usize::from(unit.index), triggers));
                }
            }
            RoleCommand::PeerBack {
                unit,
                producers,
                consumers,
                socket,
                ..
            } => {
                let index = usize::from(unit.index);
                if unit.kind != UnitKind::Builder {
                    return;
                }
                self.answers.renew(index);
                if let Some(stream) = socket.and_then(PeerSocket::into_stream) {
                    self.take_stream(unit, stream);
                }
                let messages = producers.into_values().next();
                let tickets = consumers.into_values().next();
                if let (Some(messages), Some(tickets)) = (messages, tickets)
                    && let Some(ring) = self.parts.tickets.get_mut(index)
                {
                    *ring = Some(tickets);
                    self.parts.outbox.restore(unit, messages);
                }
            }
            RoleCommand::StreamBack {
                unit,
                stream: Some(stream),
            } => {
                let FilterUnitParts {
                    streams, outbox, ..
                } = &mut self.parts;
                if let (Some(streams), Some(link)) = (streams, outbox.streams()) {
                    streams.restart(unit, link);
                }
                self.take_stream(unit, stream);
                self.log.handle_stream_back(unit.index.into());
            }
            RoleCommand::Retire { .. } => self.leaving = true,
            RoleCommand::Decide { .. }
            | RoleCommand::NameReleased { .. }
            | RoleCommand::NameUnasked { .. }
            | RoleCommand::NameOpen
            | RoleCommand::EndUnasked { .. }
            | RoleCommand::NameHeld { .. }
            | RoleCommand::Hold { .. }
            | RoleCommand::Pause { .. }
            | RoleCommand::Joined { .. }
            | RoleCommand::Succeed { .. }
            | RoleCommand::StreamBack { stream: None, .. } => {}
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
        let is_through = !in_batch
            && (self.parts.tickets.get_mut(builder).into_iter().flatten()).all(Consumer::is_empty)
            && (self.parts.streams.as_ref()).is_none_or(|streams| streams.is_empty(builder));
        if !is_through {
            self.lost_builder = Some((builder, triggers));
            return None;
        }
        Some(self.settle_verdicts(builder, &triggers))
    }

    fn has_left(&mut self) -> bool {
        let FilterUnitParts {
            streams, outbox, ..
        } = &mut self.parts;
        let is_expecting = match (streams, outbox.streams()) {
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
            ("events_withdrawn", self.withdrawn),
            ("events_to_error_stream", self.to_error_stream),
        ] {
            details.insert(name.to_owned(), count);
        }
        if let Some(selection) = &self.parts.first_step {
            for (name, count) in selection.counts().entries() {
                details.insert(format!("first_step.{name}"), count);
            }
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

#[inline]
fn is_of_error_stream(streams: u16) -> bool {
    streams & EventHeader::ERROR_STREAM != 0
}

/// The pages of an event that a network has brought are needed no more.
fn free_pages(outbox: &mut Outbox, ticket: &EventTicket) {
    if let Some(link) = outbox.streams() {
        free_event(link, ticket);
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

#[cfg(test)]
mod tests {
    use livetime_shm::{RingConfig, heap_ring};
    use livetime_wire::event::EventAccess;

    use super::*;

    const BUILDER: UnitId = UnitId::builder(0);

    /// Takes too long for every event.
    struct TooSlow;

    impl EventFilter for TooSlow {
        fn filter(&mut self, _event: &dyn EventAccess) -> FilterOutput {
            FilterOutput {
                accept: true,
                reason: 1,
                streams: EventHeader::ERROR_STREAM,
            }
        }

        fn reasons(&self) -> &[&str] {
            &["no_path", "over_time"]
        }
    }

    /// What a filter unit leaves that has judged events 1 and 2 and was given 3 to keep as it is, of
    /// which those that are `lost` went away with their builder unit.
    fn left_with(lost: &[u64]) -> BTreeMap<String, u64> {
        let ring = || {
            heap_ring(&RingConfig {
                slots: 8,
                slot_words: 126,
            })
            .expect("a possible size")
        };
        let ((mut tickets, taken), (answers, _heard)) = (ring(), ring());
        let parts = FilterUnitParts {
            id: "fu0".to_owned(),
            unit: UnitId::filter(0),
            tickets: vec![Some(taken)],
            streams: None,
            pools: Vec::new(),
            bell: None,
            clock: RunClock::start(),
            outbox: Outbox::new(vec![(BUILDER, answers)]),
            block: CounterBlock::new(),
            sources: 1,
            epoch: 1,
            credits: 8,
            first_step: None,
        };
        let mut unit = Box::new(FilterUnit::new(parts, UnitFilter::Event(Box::new(TooSlow))));
        let mut ticket = EventTicket::with_capacity(1);
        let mut words = Vec::new();
        for (trigger, streams) in [(1, 0), (2, 0), (3, EventHeader::ERROR_STREAM)] {
            (ticket.trigger, ticket.streams) = (TriggerNumber(trigger), streams);
            ticket.emit(&mut words);
            tickets.try_push(&words).expect("the ring has room");
        }
        unit.poll(RunNs(0), Phase::Running);
        if !lost.is_empty() {
            let triggers = lost.iter().copied().map(TriggerNumber).collect();
            let unit_lost = RoleCommand::PeerLost {
                unit: BUILDER,
                triggers,
            };
            unit.handle_command(RunNs(0), unit_lost);
            assert_eq!(unit.poll_settled(), Some(Vec::new()), "none was rejected");
        }
        unit.finish(RunNs(0)).details
    }

    #[test]
    fn each_event_of_the_error_stream_is_counted_until_it_is_withdrawn() {
        let names = [
            "events_to_error_stream",
            "reason.over_time.accepted",
            "events_withdrawn",
        ];
        let of = |lost: &[u64]| names.map(|name| left_with(lost)[name]);
        assert_eq!(of(&[]), [3, 2, 0]);
        assert_eq!(of(&[2]), [2, 1, 1]);
        assert_eq!(of(&[2, 3]), [1, 1, 2]);
    }
}
