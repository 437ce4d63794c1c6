//! The writer of a story: accepted events into a file, in chunks.
//!
//! What it has put into a chunk it answers for at once, as in a run; a chunk that is not in the file
//! when the writer dies is lost, and the loss is named. The next writer finds in the file what was
//! written and not answered for, and answers for it without writing it again. When a builder unit is
//! lost, the writer writes what is on its way from it and names what it has had: those events are not
//! built again.

use std::collections::BTreeSet;

use livetime_wire::TriggerNumber;
use livetime_wire::message::EventTicket;

use super::interruption::Interruption;
use super::membership::{Active, Matter};
use super::world::{FIRST_EPOCH, SwarmEvent, SwarmWorld};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::DurationPs;

/// One of so many events is the last of its chunk.
const CHUNK: u64 = 4;
/// Microseconds that an event waits for the writer, and its answer for the builder unit, at most.
const WAIT_MAX_US: u64 = 8_000;

/// The writer's process and its file.
pub(super) struct WriterHost {
    /// Its process is there.
    pub(super) is_up: bool,
    pub(super) interruption: Interruption,
    /// Its life: builder units hand events to the one that they were told of.
    pub(super) life: u32,
    /// By builder unit: what comes of earlier epochs is not there any more.
    fences: Vec<u32>,
    /// By builder unit: the events of its present life that have come in the writer's present life.
    had: Vec<BTreeSet<TriggerNumber>>,
    /// What a writer before this one had written.
    known: BTreeSet<TriggerNumber>,
    file: BTreeSet<TriggerNumber>,
    chunk: BTreeSet<TriggerNumber>,
}

impl WriterHost {
    pub(super) fn new(builders: usize) -> Self {
        Self {
            is_up: true,
            interruption: Interruption::NONE,
            life: FIRST_EPOCH,
            fences: vec![FIRST_EPOCH; builders],
            had: vec![BTreeSet::new(); builders],
            known: BTreeSet::new(),
            file: BTreeSet::new(),
            chunk: BTreeSet::new(),
        }
    }

    /// Whether an event is written, or will be.
    pub(super) fn has(&self, trigger: TriggerNumber) -> bool {
        self.file.contains(&trigger) || self.chunk.contains(&trigger)
    }
}

/// An event on its way to the writer, and back as an answer.
pub(super) struct HandedOver {
    ticket: EventTicket,
    /// Life of the builder unit that hands it over.
    epoch: u32,
    /// Life of the writer that it goes to.
    life: u32,
    is_answered: bool,
}

impl HandedOver {
    /// Whether it is an event of that builder unit.
    pub(super) fn is_of(&self, builder: u16) -> bool {
        self.ticket.builder == builder
    }
}

impl SwarmWorld {
    /// A builder unit hands an accepted event over.
    pub(super) fn hand_over(
        &mut self,
        ticket: EventTicket,
        (epoch, life): (u32, u32),
        s: &mut Scheduler<SwarmEvent>,
    ) {
        let index = self.handed_over.len() as u32;
        self.check.hand_over(ticket.trigger);
        self.handed_over.push(Some(HandedOver {
            ticket,
            epoch,
            life,
            is_answered: false,
        }));
        let wait = self.between_us(10, WAIT_MAX_US);
        s.after(wait, EventClass(0), SwarmEvent::Write(index));
    }

    /// An event comes to the writer.
    pub(super) fn write(&mut self, index: u32, s: &mut Scheduler<SwarmEvent>) {
        let Some(handed) = &mut self.handed_over[index as usize] else {
            return;
        };
        let writer = &self.writer;
        if let Some(until) = writer.interruption.stopped(s.now()) {
            return s.at(until, EventClass(0), SwarmEvent::Write(index));
        }
        let is_past = handed.epoch < writer.fences[usize::from(handed.ticket.builder)];
        if is_past || !writer.is_up || handed.life != writer.life {
            // It was in a ring that is gone.
            self.handed_over[index as usize] = None;
            return;
        }
        handed.is_answered = true;
        self.store(index, s);
        let wait = self.between_us(10, WAIT_MAX_US);
        s.after(wait, EventClass(0), SwarmEvent::Written(index));
    }

    /// Puts an event into the chunk, from its pages.
    fn store(&mut self, index: u32, s: &mut Scheduler<SwarmEvent>) {
        let Some(HandedOver { ticket, .. }) = &self.handed_over[index as usize] else {
            return;
        };
        let trigger = ticket.trigger;
        let writer = &mut self.writer;
        writer.had[usize::from(ticket.builder)].insert(trigger);
        if writer.known.remove(&trigger) {
            // Its pages are not looked at: they may be freed.
            return;
        }
        for fragment in &ticket.fragments {
            let readout = &self.readouts[usize::from(fragment.pool)];
            let is_there = readout.is_readable(fragment.pages[0]);
            self.check.expect(s.now(), is_there, || {
                format!("a page of event {trigger} was freed before it was written")
            });
        }
        let is_new = !writer.has(trigger);
        writer.chunk.insert(trigger);
        self.check.expect(s.now(), is_new, || {
            format!("event {trigger} is written twice")
        });
        if self.random.below(CHUNK) == 0 {
            self.writer.file.append(&mut self.writer.chunk);
        }
    }

    /// A builder unit hears that an event is written.
    pub(super) fn written(&mut self, index: u32, s: &mut Scheduler<SwarmEvent>) {
        let Some(handed) = &self.handed_over[index as usize] else {
            return;
        };
        let (builder, trigger) = (handed.ticket.builder, handed.ticket.trigger);
        let host = &mut self.builders[usize::from(builder)];
        if host.epoch == handed.epoch {
            if let Some(until) = host.interruption.stopped(s.now()) {
                return s.at(until, EventClass(0), SwarmEvent::Written(index));
            }
            if host.is_up {
                host.core.handle_written(trigger);
            }
        }
        self.handed_over[index as usize] = None;
        self.pump_builder(builder, s);
    }

    /// The writer dies with the chunk in it, and is back after a while.
    pub(super) fn kill_writer(&mut self, for_ms: u64, s: &mut Scheduler<SwarmEvent>) {
        if !self.writer.is_up {
            return;
        }
        if self.random.below(2) == 0 {
            self.write_unanswered(s);
        }
        let writer = &mut self.writer;
        writer.is_up = false;
        writer.interruption.begin_life();
        for trigger in std::mem::take(&mut writer.chunk) {
            self.check.lose_written(trigger);
        }
        self.count("writer_killed");
        let back = s.now() + DurationPs::from_ms(for_ms);
        self.settle(Matter::WriterLost, s.now(), s);
        self.settle(Matter::WriterBack, back, s);
    }

    /// The last that it does is to write an event, for which it does not come to answer.
    fn write_unanswered(&mut self, s: &mut Scheduler<SwarmEvent>) {
        let writer = &self.writer;
        let is_next = |handed: &HandedOver| {
            let is_there = handed.epoch >= writer.fences[usize::from(handed.ticket.builder)];
            is_there && handed.life == writer.life && !handed.is_answered
        };
        let mut handed = self.handed_over.iter();
        if let Some(next) = handed.position(|handed| handed.as_ref().is_some_and(is_next)) {
            self.store(next as u32, s);
            self.writer.file.append(&mut self.writer.chunk);
            self.count("writer_silent");
        }
    }

    /// Builder units hear, one after the other, that the writer is gone; true when all have.
    pub(super) fn tell_writer_lost(
        &mut self,
        active: &mut Active,
        s: &mut Scheduler<SwarmEvent>,
    ) -> bool {
        if let Some(host) = self.builders.get_mut(active.next) {
            if host.interruption.leaves_unread(s.now()) {
                // It reads nothing, the last answers included.
                return false;
            }
            host.writer_life = None;
            self.read_answers(active.next as u16, s);
        }
        active.next += 1;
        active.next >= self.builders.len()
    }

    /// A builder unit reads what the writer has still answered.
    fn read_answers(&mut self, builder: u16, s: &mut Scheduler<SwarmEvent>) {
        for index in 0..self.handed_over.len() {
            let handed = self.handed_over[index].as_ref();
            let is_of_it = |h: &&HandedOver| h.is_answered && h.ticket.builder == builder;
            if handed.filter(is_of_it).is_some() {
                self.written(index as u32, s);
            }
        }
    }

    /// Another writer takes the file up, and builder units hear of it; true when all have.
    pub(super) fn tell_writer_back(
        &mut self,
        active: &mut Active,
        s: &mut Scheduler<SwarmEvent>,
    ) -> bool {
        let writer = &mut self.writer;
        if active.next == 0 {
            writer.is_up = true;
            writer.life += 1;
            writer.known = writer.file.clone();
            writer.had.iter_mut().for_each(BTreeSet::clear);
            writer.fences.clone_from(&self.builder_epochs);
        }
        let life = writer.life;
        if let Some(host) = self.builders.get_mut(active.next) {
            // One that began meanwhile was told at its beginning.
            if host.writer_life.replace(life) != Some(life) {
                host.core.handle_writer_back();
                self.pump_builder(active.next as u16, s);
            }
        }
        active.next += 1;
        active.next >= self.builders.len()
    }

    /// The writer writes what is on its way from a lost builder unit; returns those of its events
    /// that are written. `None` while it stands still.
    pub(super) fn find_written(
        &mut self,
        builder: u16,
        events: &[TriggerNumber],
        s: &mut Scheduler<SwarmEvent>,
    ) -> Option<Vec<TriggerNumber>> {
        let at = usize::from(builder);
        let mut found: BTreeSet<TriggerNumber> = BTreeSet::new();
        if self.writer.is_up {
            if self.writer.interruption.leaves_unread(s.now()) {
                return None;
            }
            let (life, epoch) = (self.writer.life, self.builder_epochs[at]);
            for index in 0..self.handed_over.len() {
                let on_its_way = self.handed_over[index].as_ref().is_some_and(|handed| {
                    let is_of_it = handed.ticket.builder == builder && handed.epoch < epoch;
                    is_of_it && handed.life == life && !handed.is_answered
                });
                if on_its_way {
                    self.store(index as u32, s);
                    self.handed_over[index] = None;
                }
            }
            let writer = &mut self.writer;
            writer.fences[at] = epoch;
            found.append(&mut writer.had[at]);
            found.extend(&writer.known);
        }
        // The last that was written before it, too.
        if self.writer.life > FIRST_EPOCH || !self.writer.is_up {
            found.extend(&self.writer.file);
        }
        let is_found = |trigger: &TriggerNumber| found.contains(trigger);
        Some(events.iter().copied().filter(is_found).collect())
    }
}
