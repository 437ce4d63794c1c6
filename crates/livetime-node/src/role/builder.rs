//! A builder unit: assignments in, fragments requested and placed, whole events to filter units, and
//! to the writer what those accept.
//!
//! Drives `livetime_builder::BuilderUnit`. An event is its ticket: page numbers, not bytes.

use std::sync::Arc;

use hdrhistogram::Histogram;
use livetime_builder::BuilderUnit;
use livetime_shm::{Consumer, Doorbell, Producer};
use livetime_wire::message::{EventTicket, FRAGMENT_PAGES_MAX};
use livetime_wire::{RunNs, TriggerNumber, UnitId, UnitKind};

use super::{
    Role, RoleCommand, RoleResult, latency_histogram, network_details, poll_cut, reconnect,
    record_latency, restore_socket,
};
use crate::builder_transport::PeerSocket;
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::hand_over_stamp::{STAMP_WORDS, add_room, stamp};
use crate::message_ring::{Inbox, Outbox, is_taken, receive};
use crate::run_clock::RunClock;
use crate::transport::EventSender;
use crate::worker::Phase;

/// Messages taken from one inbox in one duty cycle.
const MESSAGES_PER_POLL: usize = 128;

/// Everything that a builder unit is made of.
pub struct BuilderParts {
    /// Role id.
    pub id: String,
    /// The core.
    pub core: BuilderUnit,
    /// Messages of the event manager, the readout units and the filter units.
    pub inboxes: Vec<Inbox>,
    /// Messages to event manager and readout units.
    pub outbox: Outbox,
    /// Tickets to the filter units, by their index; `None` for those of other subfarms.
    pub tickets: Vec<Option<Producer>>,
    /// Their bells, rung when a ticket is on its way; `None` for those on the same worker.
    pub filter_bells: Vec<Option<Doorbell>>,
    /// Streams to them, where a network is between; then there are no rings.
    pub streams: Option<EventSender>,
    /// Tickets of accepted events to the writer.
    pub writer: Producer,
    /// Rung when such a ticket is on its way, unless the writer is on the same worker.
    pub writer_bell: Option<Doorbell>,
    /// Events that the writer is through with.
    pub written: Consumer,
    /// What hand-overs are timed with.
    pub clock: RunClock,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
    /// Sources of an event.
    pub sources: usize,
}

/// The builder unit role.
pub struct Builder {
    parts: BuilderParts,
    ticket: EventTicket,
    words: Vec<u32>,
    /// The filter unit whose ring was full for the ticket in `words`.
    waiting: Option<u16>,
    /// Words of the last ticket for the writer.
    accepted: Vec<u32>,
    writer_lost: bool,
    aborted: bool,
    latency: Histogram<u64>,
    /// Tickets that come next and are of events that a filter unit has had which is gone.
    again: u64,
    counts: RoleCounts,
    /// The answer to the last command: events that go to the error stream, or that are asked for.
    named: Vec<TriggerNumber>,
}

impl Builder {
    /// A builder unit at the start of its run.
    pub fn new(parts: BuilderParts) -> Self {
        let words = EventTicket::words_max(parts.sources, FRAGMENT_PAGES_MAX);
        Self {
            ticket: parts.core.empty_ticket(),
            words: Vec::with_capacity(words + STAMP_WORDS),
            waiting: None,
            accepted: Vec::with_capacity(words),
            writer_lost: false,
            aborted: false,
            latency: latency_histogram(),
            again: 0,
            counts: RoleCounts::default(),
            named: Vec::new(),
            parts,
        }
    }

    fn take_messages(&mut self, now: RunNs) -> usize {
        let parts = &mut self.parts;
        let (core, outbox) = (&mut parts.core, &mut parts.outbox);
        let mut work = receive(&mut parts.inboxes, outbox, MESSAGES_PER_POLL, |envelope| {
            core.handle_message(now, envelope)
        });
        for _ in 0..MESSAGES_PER_POLL {
            let answer = parts.streams.as_mut().and_then(EventSender::take);
            let Some(envelope) = answer else { break };
            // Only the supervisor can find a unit busy.
            let _taken_or_refused = parts.core.handle_message(now, &envelope);
            work += 1;
        }
        self.free_pages();
        work
    }

    /// Gives the pages of the network link back that the core needs no more.
    fn free_pages(&mut self) {
        let network = self.parts.outbox.network();
        let Some(pages) = network.and_then(|network| network.pages_mut()) else {
            return;
        };
        while let Some(page) = self.parts.core.poll_freed_page() {
            let taken = pages.give_back(page);
            debug_assert!(taken.is_ok(), "page {page} came filled: {taken:?}");
        }
    }

    /// Counts the event of the ticket. One that has come with its first step alone is not built: it
    /// comes again, or is released. One that a dead filter unit had was counted when that got it.
    fn count_built(&mut self) {
        let was_given = self.again > 0;
        self.again -= u64::from(was_given);
        if was_given || self.ticket.is_first_step() {
            return;
        }
        let build = self.ticket.built_at.since(self.ticket.assigned_at).0;
        record_latency(&mut self.latency, build);
        self.counts.gauges.record_latency(build);
        let fragments = self.ticket.fragments.iter();
        let words: u64 = fragments.map(|fragment| u64::from(fragment.words)).sum();
        self.counts.gauges.bytes += 4 * words;
    }

    /// Hands built events to filter units.
    fn send_tickets(&mut self) -> usize {
        let mut work = 0;
        loop {
            if self.waiting.is_none() {
                let Some(filter) = self.parts.core.poll_ticket(&mut self.ticket) else {
                    break;
                };
                self.count_built();
                if let Some(streams) = &mut self.parts.streams {
                    streams.push(filter.index, &mut self.ticket);
                    continue;
                }
                self.ticket.emit(&mut self.words);
                add_room(&mut self.words);
                self.waiting = Some(filter.index);
            }
            let Some(filter) = self.waiting.map(usize::from) else {
                break;
            };
            let Some(Some(ring)) = self.parts.tickets.get_mut(filter) else {
                break;
            };
            if !ring.has_room() {
                break;
            }
            stamp(&mut self.words, self.parts.clock.now());
            if ring.try_push(&self.words).is_err() {
                break;
            }
            if let Some(Some(bell)) = self.parts.filter_bells.get(filter) {
                bell.ring();
            }
            self.waiting = None;
            work += 1;
        }
        if let Some(streams) = &mut self.parts.streams {
            let core = &self.parts.core;
            streams.end_leaving(|filter| !core.is_any_in_filter(filter));
            work += streams.send();
        }
        work
    }

    /// Hands accepted events to the writer.
    fn send_accepted(&mut self) -> usize {
        let parts = &mut self.parts;
        let mut work = 0;
        while !self.writer_lost
            && parts.writer.has_room()
            && parts.core.poll_accepted(&mut self.ticket)
        {
            self.ticket.emit(&mut self.accepted);
            let sent = parts.writer.try_push(&self.accepted);
            // If the writer is gone: the core keeps the event until it is answered for, and gives it
            // to the next writer; without one it is `writer_lost`.
            debug_assert!(is_taken(sent), "a free slot was seen");
            work += 1;
        }
        if let (Some(bell), true) = (&parts.writer_bell, work > 0) {
            bell.ring();
        }
        work
    }

    /// Takes what the writer is through with.
    fn take_written(&mut self) -> usize {
        let parts = &mut self.parts;
        let mut work = 0;
        while let Ok(Some(trigger)) = parts.written.try_pop(|words| match *words {
            [low, high] => u64::from(low) | u64::from(high) << 32,
            // No event has this number.
            _ => 0,
        }) {
            parts.core.handle_written(TriggerNumber(trigger));
            work += 1;
        }
        work
    }

    fn lose_peer(&mut self, now: RunNs, unit: UnitId, failed: &[TriggerNumber]) {
        self.parts.outbox.lose(unit);
        match unit.kind {
            UnitKind::Writer => self.writer_lost = true,
            UnitKind::Readout => {
                self.parts.core.handle_readout_lost(now, unit.index);
                self.free_pages();
            }
            UnitKind::Filter => {
                if let Some(streams) = &mut self.parts.streams {
                    streams.lose(unit);
                }
                self.waiting = self.waiting.filter(|filter| *filter != unit.index);
                let before = self.parts.core.counts().tickets_again;
                let given_up = self.parts.core.redispatch_filter(unit.index, failed);
                // They wait ahead of all others, so that theirs are the next tickets.
                self.again += self.parts.core.counts().tickets_again - before;
                self.named.extend(given_up);
            }
            _ => {}
        }
    }

    /// Another writer is there: it gets what the one before has not answered for.
    fn welcome_writer(&mut self, tickets: Producer, written: Consumer) {
        (self.parts.writer, self.parts.written) = (tickets, written);
        self.parts.core.handle_writer_back();
        self.writer_lost = false;
    }

    /// A filter unit, readout unit or event manager is back, in another life.
    fn welcome_peer(
        &mut self,
        unit: UnitId,
        producer: Option<Producer>,
        consumer: Option<Consumer>,
        socket: Option<PeerSocket>,
    ) {
        if let (UnitKind::Filter, Some(streams)) = (unit.kind, &mut self.parts.streams) {
            let stream = socket.and_then(PeerSocket::into_stream);
            // One that cannot be used is as good as ended: it is not open then.
            let _is_open = stream.map(|stream| streams.add(unit, stream));
            self.parts.core.handle_filter_back(unit.index);
            return;
        }
        restore_socket(&mut self.parts.outbox, unit, socket);
        let inbox = self.parts.inboxes.iter_mut().find(|i| i.from() == unit);
        if let (Some(inbox), Some(ring)) = (inbox, consumer) {
            inbox.replace(ring);
        }
        let tickets = self.parts.tickets.get_mut(usize::from(unit.index));
        match (unit.kind, producer, tickets) {
            (UnitKind::Readout | UnitKind::EventManager, Some(ring), _) => {
                self.parts.outbox.restore(unit, ring);
            }
            (UnitKind::Filter, Some(ring), Some(tickets)) => {
                *tickets = Some(ring);
                self.parts.core.handle_filter_back(unit.index);
            }
            _ => {}
        }
    }

    fn publish(&mut self) {
        let parts = &mut self.parts;
        let idle = parts.core.is_idle()
            && self.waiting.is_none()
            && parts.outbox.is_empty()
            && parts.streams.as_ref().is_none_or(EventSender::is_empty)
            && parts.inboxes.iter_mut().all(Inbox::is_empty);
        let core = parts.core.counts();
        let chain = &mut self.counts.chain;
        chain.events_built = core.events_built;
        chain.events_incomplete = core.events_incomplete;
        chain.fragments_in_built = core.fragments_in_built;
        chain.fragments_in_incomplete = core.fragments_in_incomplete;
        self.counts.losses = *parts.core.losses();
        self.counts.gauges.idle = u64::from(idle);
        self.counts.gauges.held = parts.core.events_held() as u64;
        self.counts.gauges.done = core.events_done;
        self.counts.gauges.incomplete = core.incomplete_done;
        self.counts.gauges.fragments_in_incomplete = core.fragments_in_incomplete_done;
        self.counts.gauges.fragments = core.fragments_done;
        if parts.core.is_two_step() {
            // An event comes with two tickets, and its first fragments are in both.
            self.counts.gauges.bytes = parts.core.bytes_by_readout().iter().sum();
        }
        parts.block.publish(&self.counts);
    }
}

impl Role for Builder {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        if phase == Phase::Aborting && !self.aborted {
            self.aborted = true;
            self.parts.core.abort();
            // What waited for a filter unit waits no more.
            self.again = 0;
        }
        if phase == Phase::Aborting && self.writer_lost {
            self.parts.core.give_up_writing();
        }
        let heartbeats = self.parts.core.counts().heartbeats;
        let mut work = self.take_messages(now) + self.take_written();
        if self.parts.core.poll_timeout() <= now {
            self.parts.core.handle_timeout(now);
        }
        work += self.send_tickets() + self.send_accepted();
        work += self
            .parts
            .outbox
            .send_all(|| self.parts.core.poll_output(now));
        self.free_pages();
        if work > 0 || phase >= Phase::Draining {
            self.publish();
        }
        // A unit that says that it lives is at rest.
        work.saturating_sub((self.parts.core.counts().heartbeats - heartbeats) as usize)
    }

    fn handle_command(&mut self, now: RunNs, command: RoleCommand) {
        // What the dead unit said before comes first.
        while self.take_messages(now) + self.take_written() > 0 {}
        match command {
            RoleCommand::PeerLost { unit, triggers } => self.lose_peer(now, unit, &triggers),
            RoleCommand::Retire { unit } => {
                if let Some(streams) = &mut self.parts.streams {
                    streams.retire(unit);
                }
                self.parts.core.retire_filter(unit.index);
            }
            RoleCommand::NameHeld { unit } => {
                let held = self.parts.core.events_with(unit.index);
                self.named.extend(held);
            }
            RoleCommand::Joined { unit, newest } => {
                self.parts
                    .core
                    .handle_readout_joined(now, unit.index, newest);
                self.free_pages();
            }
            RoleCommand::Decide { .. }
            | RoleCommand::NameReleased { .. }
            | RoleCommand::NameUnasked { .. }
            | RoleCommand::NameOpen
            | RoleCommand::EndUnasked { .. }
            | RoleCommand::Succeed { .. }
            | RoleCommand::Hold { .. }
            | RoleCommand::Pause { .. } => {}
            RoleCommand::StreamBack { unit, stream } if unit.kind == UnitKind::Filter => {
                if let (Some(streams), Some(stream)) = (&mut self.parts.streams, stream) {
                    // One that cannot be used is as good as cut, and is named again.
                    let _is_open = streams.resume(unit, stream);
                }
            }
            RoleCommand::StreamBack { unit, stream } => {
                reconnect(&mut self.parts.outbox, unit, stream);
                // What was set aside for the stream that was cut.
                self.free_pages();
            }
            RoleCommand::PeerBack {
                unit,
                producers,
                consumers,
                ..
            } if unit.kind == UnitKind::Writer => {
                let tickets = producers.into_values().next();
                let written = consumers.into_values().next();
                if let (Some(tickets), Some(written)) = (tickets, written) {
                    self.welcome_writer(tickets, written);
                }
            }
            RoleCommand::PeerBack {
                unit,
                epoch,
                producers,
                consumers,
                socket,
                ..
            } => {
                // That of an event manager begins with its first question: it says what counts.
                if unit.kind != UnitKind::EventManager {
                    self.parts.core.renew_peer(unit, epoch);
                }
                let producer = producers.into_values().next();
                let consumer = consumers.into_values().next();
                self.welcome_peer(unit, producer, consumer, socket);
            }
        }
    }

    fn poll_settled(&mut self) -> Option<Vec<TriggerNumber>> {
        Some(std::mem::take(&mut self.named))
    }

    fn poll_silent(&mut self) -> Option<UnitId> {
        self.parts.streams.as_mut().and_then(EventSender::poll_cut)
    }

    fn poll_cut(&mut self, now: RunNs) -> Option<UnitId> {
        poll_cut(&mut self.parts.outbox, now)
    }

    fn close(&mut self) {
        if let Some(streams) = &mut self.parts.streams {
            streams.close();
        }
        self.parts.core.close();
    }

    fn finish(mut self: Box<Self>, _now: RunNs) -> RoleResult {
        self.publish();
        let core = *self.parts.core.counts();
        let malformed: u64 = self.parts.inboxes.iter().map(Inbox::malformed).sum();
        let details = [
            ("assignments", core.assignments),
            ("tickets", core.tickets),
            ("tickets_again", core.tickets_again),
            ("events_accepted", core.events_accepted),
            ("events_written_again", core.events_written_again),
            ("fragments_repeated", core.fragments_repeated),
            ("fragments_late", core.fragments_late),
            ("fragments_unknown", core.fragments_unknown),
            ("fragments_stranger", core.fragments_stranger),
            ("requests_repeated", core.requests_repeated),
            ("messages_received", core.messages.received),
            ("messages_sent", core.messages.sent),
            ("messages_malformed", malformed),
        ];
        let of_steps = self.parts.core.is_two_step().then_some([
            ("events_first_step_only", core.events_first_step_only),
            ("events_fetched", core.events_fetched),
            ("events_unjudged", core.events_unjudged),
            ("fetches_refused", core.fetches_refused),
        ]);
        let streams = self.parts.streams.as_ref();
        let sent = streams.map(|streams| {
            let sent = streams.counts();
            [
                ("filter_events_again", streams.repeated()),
                ("filter_payload_bytes_sent", sent.payload_bytes_sent),
                ("filter_frames_sent", sent.frames_sent),
                ("filter_writes", sent.writes),
                ("filter_streams_ended", sent.streams_ended),
            ]
        });
        RoleResult {
            id: self.parts.id,
            counts: self.counts,
            build_latency: Some(self.latency),
            details: details
                .into_iter()
                .chain(of_steps.into_iter().flatten())
                .chain(sent.into_iter().flatten())
                .chain(network_details(&mut self.parts.outbox))
                .map(|(name, n)| (name.to_owned(), n))
                .collect(),
            ..RoleResult::default()
        }
    }
}
