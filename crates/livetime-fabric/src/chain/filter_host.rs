//! A filter unit on its host: whole events in, one at a time, accepted ones to the writer, every
//! one back to its builder.
//!
//! Runs an `EventFilter` on events in place. A builder unit hears of an event when the filter
//! rejected it or the writer is through with it, so that its pages stay until then.

use livetime_builder::Outgoing;
use livetime_trigger::{EventFilter, FilterCounts};
use livetime_wire::message::{BuilderMessage, Envelope, EventTicket, TriggerList};
use livetime_wire::{LossCause, LossCounts, TriggerNumber, UnitId};

use super::event_stream::{EventStream, StreamState};
use super::host::{Hall, Surroundings, Unit};
use super::mailbox::Outbox;
use super::simulated_event::SimulatedEvent;
use crate::time::DurationPs;

/// Everything that a filter unit is made of.
pub(crate) struct FilterParts {
    pub(crate) unit: UnitId,
    pub(crate) epoch: u32,
    pub(crate) filter: Box<dyn EventFilter>,
    /// Hops from the builder units, by their index.
    pub(crate) tickets: Vec<u32>,
    /// Hop to the writer.
    pub(crate) writer: u32,
    /// Hop from the writer.
    pub(crate) written: u32,
    pub(crate) outbox: Outbox,
    pub(crate) filter_time: DurationPs,
    /// What brings the events, where they are not in shared memory.
    pub(crate) stream: Option<EventStream>,
}

/// Events that are to be reported to one builder unit.
#[derive(Debug, Clone, Default)]
struct Done {
    triggers: TriggerList,
    sequence: u32,
}

/// A filter unit on its host.
pub(crate) struct FilterHost {
    parts: FilterParts,
    ticket: EventTicket,
    words: Vec<u32>,
    /// An accepted event whose ticket found the hop to the writer full.
    is_waiting: bool,
    done: Vec<Done>,
    with_writer: u64,
    counts: FilterCounts,
    losses: LossCounts,
    /// The builder unit whose event is taken in this cycle.
    planned: Option<usize>,
    /// One from each builder unit, where events come over streams.
    streams: Vec<StreamState>,
    /// Where the search for the next event begins.
    turn: usize,
}

impl FilterHost {
    pub(crate) fn new(parts: FilterParts, ticket: EventTicket) -> Self {
        Self {
            ticket,
            words: Vec::new(),
            is_waiting: false,
            done: vec![Done::default(); parts.tickets.len()],
            with_writer: 0,
            counts: FilterCounts::new(parts.filter.as_ref()),
            losses: LossCounts::new(),
            planned: None,
            streams: match parts.stream {
                Some(stream) => vec![StreamState::new(stream); parts.tickets.len()],
                None => Vec::new(),
            },
            turn: 0,
            parts,
        }
    }

    /// What was accepted and rejected, and why.
    pub(crate) fn counts(&self) -> &FilterCounts {
        &self.counts
    }

    /// What was lost here.
    pub(crate) fn losses(&self) -> &LossCounts {
        &self.losses
    }

    /// The builder unit whose event comes next, if one can be taken.
    fn next_builder(&self, hall: &Hall) -> Option<usize> {
        if self.is_waiting || !self.has_room() {
            return None;
        }
        let builders = self.parts.tickets.len();
        let mut turns = (0..builders).map(|n| (self.turn + n) % builders);
        turns.find(|builder| hall.fabric.waiting(self.parts.tickets[*builder]) > 0)
    }

    /// Whether each builder unit's list has room for one more.
    fn has_room(&self) -> bool {
        self.done.iter().all(|done| !done.triggers.is_full())
    }

    fn filter_next(&mut self, builder: usize, s: &mut Surroundings<'_>) {
        let lane = self.parts.tickets[builder];
        let Some(words) = s.hall.fabric.front(lane) else {
            return;
        };
        let read = self.ticket.read(words);
        s.consume(lane);
        if read.is_err() {
            s.hall.mishaps += 1;
            self.losses.add(LossCause::FilterLost, 1);
            return;
        }
        let event = SimulatedEvent {
            ticket: &self.ticket,
            pools: &s.hall.pools,
        };
        let output = self.parts.filter.filter(&event);
        self.counts.add(&output);
        if output.accept {
            self.ticket.filter_reason = output.reason;
            self.ticket.streams = output.streams;
            self.ticket.emit(&mut self.words);
            self.is_waiting = true;
        } else {
            self.done[builder].triggers.push(self.ticket.trigger);
        }
    }

    fn hand_to_writer(&mut self, s: &mut Surroundings<'_>) {
        if self.is_waiting && s.hall.fabric.has_room(self.parts.writer) {
            s.send(self.parts.writer, &self.words);
            self.is_waiting = false;
            self.with_writer += 1;
        }
    }

    /// What the writer is through with.
    fn take_written(&mut self, s: &mut Surroundings<'_>) {
        while self.has_room()
            && let Some(words) = s.hall.fabric.front(self.parts.written)
        {
            let written = match *words {
                [builder, low, high] => {
                    Some((builder as usize, u64::from(low) | u64::from(high) << 32))
                }
                _ => None,
            };
            s.consume(self.parts.written);
            self.with_writer = self.with_writer.saturating_sub(1);
            match written
                .and_then(|(builder, trigger)| Some((self.done.get_mut(builder)?, trigger)))
            {
                Some((done, trigger)) => done.triggers.push(TriggerNumber(trigger)),
                None => s.hall.mishaps += 1,
            }
        }
    }

    fn send_done(&mut self, s: &mut Surroundings<'_>) {
        let Self { parts, done, .. } = self;
        let (sender, epoch) = (parts.unit, parts.epoch);
        parts.outbox.send_all(s, |_| {
            let mut lists = done.iter_mut().enumerate();
            let (index, done) = lists.find(|(_, done)| !done.triggers.is_empty())?;
            let message = BuilderMessage::EventDone {
                triggers: done.triggers.take(),
            };
            let sequence = done.sequence;
            done.sequence = sequence.wrapping_add(1);
            let envelope = Envelope {
                sender,
                epoch,
                sequence,
                message,
            };
            let to = UnitId::builder(index as u16);
            Some(Outgoing { to, envelope })
        });
    }
}

impl Unit for FilterHost {
    fn plan(&mut self, hall: &Hall) -> DurationPs {
        self.planned = self.next_builder(hall);
        let Some(builder) = self.planned else {
            return DurationPs::ZERO;
        };
        let sent = hall.fabric.front_arrived(self.parts.tickets[builder]);
        let coming = match (self.streams.get_mut(builder), sent) {
            (Some(stream), Some(sent)) => stream.read(sent, hall.now),
            _ => DurationPs::ZERO,
        };
        coming + self.parts.filter_time
    }

    fn work(&mut self, s: &mut Surroundings<'_>) {
        self.hand_to_writer(s);
        self.take_written(s);
        if let Some(builder) = self.planned.take() {
            // A note of the writer that came meanwhile may have filled a list.
            if self.has_room() {
                self.turn = builder + 1;
                self.filter_next(builder, s);
                self.hand_to_writer(s);
            }
        }
        self.send_done(s);
    }

    fn has_work(&self, hall: &Hall) -> bool {
        let has_note = self.has_room() && hall.fabric.waiting(self.parts.written) > 0;
        has_note || self.next_builder(hall).is_some()
    }

    fn is_idle(&self) -> bool {
        !self.is_waiting
            && self.with_writer == 0
            && self.parts.outbox.is_empty()
            && self.done.iter().all(|done| done.triggers.is_empty())
    }
}
