//! A filter unit: whole events in, accepted ones to the writer, every one back to its builder.
//!
//! Runs an `EventFilter` on events in place. A builder unit hears of an event when the filter
//! rejected it or the writer is through with it, so that its pages stay until then.

use std::sync::Arc;

use livetime_builder::Outgoing;
use livetime_shm::{Consumer, Doorbell, PagePool, Producer};
use livetime_trigger::EventFilter;
use livetime_wire::message::{BuilderMessage, Envelope, EventTicket, TriggerList};
use livetime_wire::{LossCause, RunNs, TriggerNumber, UnitId, UnitKind};

use super::{Role, RoleCommand, RoleResult};
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::message_ring::Outbox;
use crate::pooled_event::PooledEvent;
use crate::worker::Phase;

/// Events handled in one duty cycle.
const EVENTS_PER_POLL: usize = 8;

/// Everything that a filter unit is made of.
pub struct FilterUnitParts {
    /// Role id.
    pub id: String,
    /// Which filter unit.
    pub unit: UnitId,
    /// What it runs.
    pub filter: Box<dyn EventFilter>,
    /// Tickets in, one ring per builder unit.
    pub tickets: Vec<Consumer>,
    /// Pools of the readout units.
    pub pools: Vec<PagePool>,
    /// Tickets of accepted events out.
    pub writer: Producer,
    /// Rung when a ticket is on its way to the writer.
    pub writer_bell: Doorbell,
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
}

/// Events that are to be reported to one builder unit.
#[derive(Default)]
struct Done {
    triggers: TriggerList,
    sequence: u32,
}

/// The filter unit role.
pub struct FilterUnit {
    parts: FilterUnitParts,
    event: PooledEvent,
    words: Vec<u32>,
    /// An accepted event whose ticket found the writer's ring full.
    waiting: bool,
    done: Vec<Done>,
    /// Events that the writer has, by builder unit.
    with_writer: Vec<u64>,
    /// A builder unit that is lost and whose events are still being dealt with.
    lost_builder: Option<usize>,
    reasons: Vec<(u64, u64)>,
    counts: RoleCounts,
    unreadable: u64,
}

impl FilterUnit {
    /// A filter unit at the start of its run.
    pub fn new(parts: FilterUnitParts) -> Self {
        let pages = parts.sources * livetime_wire::message::FRAGMENT_PAGES_MAX;
        Self {
            event: PooledEvent::with_capacity(parts.sources, pages),
            words: Vec::with_capacity(EventTicket::words_max(
                parts.sources,
                livetime_wire::message::FRAGMENT_PAGES_MAX,
            )),
            waiting: false,
            done: parts.tickets.iter().map(|_| Done::default()).collect(),
            with_writer: parts.tickets.iter().map(|_| 0).collect(),
            lost_builder: None,
            reasons: vec![(0, 0); parts.filter.reasons().len()],
            counts: RoleCounts::default(),
            unreadable: 0,
            parts,
        }
    }

    /// Takes the next event of a builder unit; `false` when there is none.
    fn filter_next(&mut self, builder: usize) -> bool {
        let ticket = self.event.ticket_mut();
        let read = self.parts.tickets[builder].try_pop(|words| ticket.read(words));
        let Ok(Some(read)) = read else { return false };
        self.counts.gauges.received += 1;
        if read.is_err() || self.event.hold(&self.parts.pools).is_err() {
            // Only a builder unit that is out of its mind sends this; what it named is not known.
            self.unreadable += 1;
            self.counts.losses.add(LossCause::FilterLost, 1);
            return true;
        }
        let output = self.parts.filter.filter(&self.event);
        self.counts.gauges.bytes += self.event.bytes();
        if let Some((accepted, rejected)) = self.reasons.get_mut(usize::from(output.reason)) {
            *(if output.accept { accepted } else { rejected }) += 1;
        }
        if output.accept {
            self.counts.chain.filter_accepted += 1;
            let ticket = self.event.ticket_mut();
            (ticket.filter_reason, ticket.streams) = (output.reason, output.streams);
            ticket.emit(&mut self.words);
            self.waiting = true;
            self.event.release();
            self.hand_to_writer();
        } else {
            self.counts.chain.filter_rejected += 1;
            let trigger = self.event.ticket().trigger;
            self.event.release();
            self.report_done(builder, trigger);
        }
        true
    }

    fn hand_to_writer(&mut self) -> usize {
        if !self.waiting || self.parts.writer.try_push(&self.words).is_err() {
            return 0;
        }
        self.waiting = false;
        if let Some(count) = self
            .with_writer
            .get_mut(usize::from(self.event.ticket().builder))
        {
            *count += 1;
        }
        self.parts.writer_bell.ring();
        1
    }

    /// Notes that an event's pages are no longer needed; there is room, see [`FilterUnit::poll`].
    fn report_done(&mut self, builder: usize, trigger: TriggerNumber) {
        if let Some(done) = self.done.get_mut(builder) {
            done.triggers.push(trigger);
        }
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
                    Some((builder as usize, u64::from(low) | u64::from(high) << 32))
                }
                _ => None,
            });
            let Ok(Some(written)) = written else { break };
            work += 1;
            if let Some((builder, trigger)) = written {
                if let Some(count) = self.with_writer.get_mut(builder) {
                    *count = count.saturating_sub(1);
                }
                self.report_done(builder, TriggerNumber(trigger));
            }
        }
        work
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

    fn publish(&mut self) {
        let idle = !self.waiting
            && self.with_writer.iter().all(|count| *count == 0)
            && self.parts.outbox.is_empty()
            && self.done.iter().all(|done| done.triggers.is_empty())
            && self.parts.tickets.iter_mut().all(Consumer::is_empty);
        self.counts.gauges.idle = u64::from(idle);
        self.counts.gauges.held = self.with_writer.iter().sum::<u64>() + u64::from(self.waiting);
        self.parts.block.publish(&self.counts);
    }
}

impl Role for FilterUnit {
    fn id(&self) -> &str {
        &self.parts.id
    }

    fn poll(&mut self, _now: RunNs, phase: Phase) -> usize {
        let mut work = self.hand_to_writer() + self.take_written();
        for builder in 0..self.parts.tickets.len() {
            for _ in 0..EVENTS_PER_POLL {
                if self.waiting || !self.has_room() || !self.filter_next(builder) {
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
            RoleCommand::PeerLost { unit, .. } => {
                self.parts.outbox.lose(unit);
                if unit.kind == UnitKind::Builder {
                    self.lost_builder = Some(usize::from(unit.index));
                }
            }
            RoleCommand::PeerBack {
                unit,
                producers,
                consumers,
                ..
            } => {
                let index = usize::from(unit.index);
                let tickets = self.parts.tickets.get_mut(index);
                if let (Some(tickets), Some(ring)) = (tickets, consumers.into_values().next()) {
                    *tickets = ring;
                }
                if let (Some(done), Some(ring)) =
                    (self.done.get_mut(index), producers.into_values().next())
                {
                    *done = Done::default();
                    self.parts.outbox.restore(unit, ring);
                }
            }
        }
    }

    fn poll_settled(&mut self) -> Option<Vec<TriggerNumber>> {
        if let Some(builder) = self.lost_builder {
            let is_through = !self.waiting
                && self.with_writer.get(builder) == Some(&0)
                && self.parts.tickets[builder].is_empty();
            if !is_through {
                return None;
            }
            self.lost_builder = None;
        }
        Some(Vec::new())
    }

    fn finish(mut self: Box<Self>, _now: RunNs) -> RoleResult {
        self.publish();
        let mut details = std::collections::BTreeMap::new();
        for (name, (accepted, rejected)) in self.parts.filter.reasons().iter().zip(&self.reasons) {
            details.insert(format!("reason.{name}.accepted"), *accepted);
            details.insert(format!("reason.{name}.rejected"), *rejected);
        }
        details.insert("unreadable_tickets".to_owned(), self.unreadable);
        RoleResult {
            id: self.parts.id,
            counts: self.counts,
            details,
            ..RoleResult::default()
        }
    }
}
