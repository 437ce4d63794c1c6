//! A builder unit on its host: assignments in, fragments requested and placed, whole events to
//! filter units, and to the writer what those accept.
//!
//! Drives `livetime_builder::BuilderUnit`. An event is its ticket: page numbers, not bytes.

use livetime_builder::BuilderUnit;
use livetime_wire::message::EventTicket;
use livetime_wire::{RunNs, TriggerNumber};

use super::host::{Hall, Surroundings, Unit, record_latency};
use super::mailbox::{Intake, Outbox};
use crate::time::DurationPs;

/// Hops between a builder unit and the writer.
pub(crate) struct WriterLanes {
    /// Accepted events.
    pub(crate) tickets: u32,
    /// Events that the writer is through with.
    pub(crate) written: u32,
}

/// A builder unit on its host.
pub(crate) struct BuilderHost {
    pub(crate) core: BuilderUnit,
    intake: Intake,
    outbox: Outbox,
    /// Hops to the filter units, by their index.
    tickets: Vec<u32>,
    writer: WriterLanes,
    ticket: EventTicket,
    /// Words of the last ticket for the writer.
    accepted: Vec<u32>,
    words: Vec<u32>,
    /// The filter unit whose hop was full for the ticket in `words`.
    waiting: Option<u16>,
    message_time: DurationPs,
}

impl BuilderHost {
    pub(crate) fn new(
        core: BuilderUnit,
        intake: Intake,
        outbox: Outbox,
        tickets: Vec<u32>,
        writer: WriterLanes,
        message_time: DurationPs,
    ) -> Self {
        Self {
            ticket: core.empty_ticket(),
            core,
            intake,
            outbox,
            tickets,
            writer,
            accepted: Vec::new(),
            words: Vec::new(),
            waiting: None,
            message_time,
        }
    }

    /// Hands built events to filter units.
    fn send_tickets(&mut self, s: &mut Surroundings<'_>) {
        loop {
            if self.waiting.is_none() {
                let Some(filter) = self.core.poll_ticket(&mut self.ticket) else {
                    return;
                };
                if !self.ticket.is_first_step() {
                    let build = self.ticket.built_at.since(self.ticket.assigned_at);
                    record_latency(&mut s.hall.latencies.build, build);
                }
                self.ticket.emit(&mut self.words);
                self.waiting = Some(filter.index);
            }
            let lane = self.waiting.map(|filter| self.tickets[usize::from(filter)]);
            let Some(lane) = lane.filter(|lane| s.hall.fabric.has_room(*lane)) else {
                return;
            };
            s.send(lane, &self.words);
            self.waiting = None;
        }
    }

    /// Hands accepted events to the writer.
    fn send_accepted(&mut self, s: &mut Surroundings<'_>) {
        let lane = self.writer.tickets;
        while s.hall.fabric.has_room(lane) && self.core.poll_accepted(&mut self.ticket) {
            self.ticket.emit(&mut self.accepted);
            s.send(lane, &self.accepted);
        }
    }

    /// What the writer is through with.
    fn take_written(&mut self, s: &mut Surroundings<'_>) {
        let lane = self.writer.written;
        while let Some(words) = s.hall.fabric.front(lane) {
            let written = match *words {
                [low, high] => Some(u64::from(low) | u64::from(high) << 32),
                _ => None,
            };
            s.consume(lane);
            match written {
                Some(trigger) => self.core.handle_written(TriggerNumber(trigger)),
                None => s.hall.mishaps += 1,
            }
        }
    }
}

impl Unit for BuilderHost {
    fn plan(&mut self, hall: &Hall) -> DurationPs {
        self.message_time * self.intake.plan(hall)
    }

    fn work(&mut self, s: &mut Surroundings<'_>) {
        let core = &mut self.core;
        self.intake
            .take(s, |now, envelope| core.handle_message(now, envelope));
        if self.core.poll_timeout() <= s.now() {
            self.core.handle_timeout(s.now());
        }
        self.take_written(s);
        self.send_tickets(s);
        self.send_accepted(s);
        let core = &mut self.core;
        self.outbox.send_all(s, |now| core.poll_output(now));
    }

    fn has_work(&self, hall: &Hall) -> bool {
        self.intake.has_work(hall) || hall.fabric.waiting(self.writer.written) > 0
    }

    fn deadline(&self) -> RunNs {
        self.core.poll_timeout()
    }

    fn is_idle(&self) -> bool {
        self.core.is_idle() && self.outbox.is_empty() && self.waiting.is_none()
    }
}
