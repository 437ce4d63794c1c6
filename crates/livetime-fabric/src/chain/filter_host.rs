//! A filter unit on its host: whole events in, one at a time, a verdict about each back to its builder
//! unit, which hands accepted ones to the writer.

use livetime_builder::FilterAnswers;
use livetime_trigger::{EventFilter, FilterCounts, FirstStep, FirstStepVerdict};
use livetime_wire::message::{AcceptedEvent, EventTicket};
use livetime_wire::{LossCause, LossCounts, UnitId};

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
    /// The selection on the first step of events, where they are built in two.
    pub(crate) first_step: FirstStep,
    /// Hops from the builder units, by their index.
    pub(crate) tickets: Vec<u32>,
    pub(crate) outbox: Outbox,
    pub(crate) filter_time: DurationPs,
    /// What brings the events, where they are not in shared memory.
    pub(crate) stream: Option<EventStream>,
}

/// A filter unit on its host.
pub(crate) struct FilterHost {
    parts: FilterParts,
    ticket: EventTicket,
    answers: FilterAnswers,
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
            answers: FilterAnswers::new(parts.unit, parts.epoch, parts.tickets.len()),
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

    /// What the filter has counted by name.
    pub(crate) fn details(&self) -> Vec<(String, u64)> {
        self.parts.filter.details()
    }

    /// What was lost here.
    pub(crate) fn losses(&self) -> &LossCounts {
        &self.losses
    }

    /// The builder unit whose event comes next, if one can be taken.
    fn next_builder(&self, hall: &Hall) -> Option<usize> {
        if !self.answers.has_room() {
            return None;
        }
        let builders = self.parts.tickets.len();
        let mut turns = (0..builders).map(|n| (self.turn + n) % builders);
        turns.find(|builder| hall.fabric.waiting(self.parts.tickets[*builder]) > 0)
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
        if self.ticket.is_first_step() {
            let trigger = self.ticket.trigger;
            let filter = self.parts.filter.as_mut();
            match self.parts.first_step.judge(&event, Some(filter)) {
                FirstStepVerdict::Fetch => self.answers.fetch(builder, trigger),
                FirstStepVerdict::Release => {
                    self.counts.rejected += 1;
                    self.answers.reject(builder, trigger);
                }
            }
            return;
        }
        let output = self.parts.filter.filter(&event);
        self.counts.add(&output);
        let trigger = self.ticket.trigger;
        if output.accept {
            let event = AcceptedEvent {
                trigger,
                reason: output.reason,
                streams: output.streams,
            };
            self.answers.accept(builder, event);
        } else {
            self.answers.reject(builder, trigger);
        }
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
        if let Some(builder) = self.planned.take() {
            self.turn = builder + 1;
            self.filter_next(builder, s);
        }
        let answers = &mut self.answers;
        self.parts.outbox.send_all(s, |_| answers.poll_output());
    }

    fn has_work(&self, hall: &Hall) -> bool {
        self.next_builder(hall).is_some()
    }

    fn is_idle(&self) -> bool {
        self.parts.outbox.is_empty() && self.answers.is_empty()
    }
}
