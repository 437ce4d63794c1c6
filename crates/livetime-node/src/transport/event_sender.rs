//! Whole events over streams, the builder unit's side: one stream to each of its filter units.
//!
//! An event is an [`BuilderMessage::Event`] and its fragments as [`BuilderMessage::FragmentData`],
//! written from the pages where they lie; what filter units answer comes back on the same stream.
//! Each filter unit has a queue of its own, as long as its window, so that one whose stream is full
//! holds up nobody else. What was sent is kept until it is answered: over a stream that is made again
//! it goes once more. The other side is in [`super::event_receiver`].

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;

use livetime_builder::Outgoing;
use livetime_shm::PagePool;
use livetime_wire::message::{BuilderMessage, Envelope, EventTicket};
use livetime_wire::{TriggerNumber, UnitId};

use super::{TcpFrameCounts, TcpFrameLink};

/// What is to go to one filter unit.
struct Queue {
    tickets: VecDeque<EventTicket>,
    /// Messages of the first ticket that the link has.
    sent: usize,
    /// Events that the link has whole and that the filter unit has not answered, oldest first.
    unanswered: VecDeque<EventTicket>,
    /// Of the tickets those that are sent again, and whether the kernel does not have all of them.
    again: usize,
    is_resuming: bool,
    /// What came meanwhile: the pages of an event stay until it is sent again, answered or not.
    held: VecDeque<Envelope>,
    sequence: u32,
    /// Whether the end of its stream would be news.
    is_watched: bool,
    /// Whether its stream is to be ended when it has answered for all events.
    is_leaving: bool,
}

/// A builder unit's streams to its filter units.
pub struct EventSender {
    link: TcpFrameLink,
    unit: UnitId,
    epoch: u32,
    /// By index of the filter unit; those of other subfarms have no stream.
    queues: Vec<Queue>,
    /// Tickets in no queue: as many as all windows together.
    spare: Vec<EventTicket>,
    /// Answers that are held back, of all filter units.
    held: usize,
    /// Events that were sent again.
    repeated: u64,
}

impl EventSender {
    /// For builder unit `unit`, whose events lie in `pools`, and `filters` filter units, of which
    /// `served` take `window` events each. A ticket has room for `sources` fragments.
    pub fn new(
        unit: UnitId,
        epoch: u32,
        pools: Vec<PagePool>,
        (filters, served, window): (usize, usize, usize),
        sources: usize,
    ) -> Self {
        let queue = || Queue {
            tickets: VecDeque::with_capacity(window),
            sent: 0,
            unanswered: VecDeque::with_capacity(window),
            again: 0,
            is_resuming: false,
            held: VecDeque::new(),
            sequence: 0,
            is_watched: false,
            is_leaving: false,
        };
        Self {
            link: TcpFrameLink::new(pools, None),
            unit,
            epoch,
            queues: std::iter::repeat_with(queue).take(filters).collect(),
            spare: std::iter::repeat_with(|| EventTicket::with_capacity(sources))
                .take(served * window)
                .collect(),
            held: 0,
            repeated: 0,
        }
    }

    /// The stream to a filter unit, or to its next life. One that cannot be used is as good as cut.
    ///
    /// # Errors
    /// What the system says about the stream.
    pub fn add(&mut self, unit: UnitId, stream: TcpStream) -> io::Result<()> {
        self.lose(unit);
        if let Some(queue) = self.queues.get_mut(usize::from(unit.index)) {
            (queue.sequence, queue.is_watched) = (0, true);
        }
        // Its congestion control was set by who made it.
        self.link.add(unit, stream, None)?;
        Ok(())
    }

    /// The stream to a filter unit that is as it was is made again: every event that it has not
    /// answered goes over the new one, in the order of before. Allocates for answers that come
    /// meanwhile, two for each event at most; this is not the data path.
    ///
    /// # Errors
    /// What the system says about the stream.
    pub fn resume(&mut self, unit: UnitId, stream: TcpStream) -> io::Result<()> {
        if let Some(queue) = self.queues.get_mut(usize::from(unit.index)) {
            (queue.sent, queue.is_watched, queue.is_resuming) = (0, true, true);
            self.repeated += queue.unanswered.len() as u64;
            queue.again += queue.unanswered.len();
            while let Some(ticket) = queue.unanswered.pop_back() {
                queue.tickets.push_front(ticket);
            }
        }
        self.link.add(unit, stream, None)?;
        Ok(())
    }

    /// A filter unit is gone: what waits for it is dropped.
    pub fn lose(&mut self, unit: UnitId) {
        self.link.lose(unit);
        if let Some(queue) = self.queues.get_mut(usize::from(unit.index)) {
            (queue.is_watched, queue.is_leaving) = (false, false);
            queue.sent = 0;
            self.spare.extend(queue.tickets.drain(..));
            self.spare.extend(queue.unanswered.drain(..));
            (queue.again, queue.is_resuming) = (0, false);
            self.held -= queue.held.len();
            queue.held.clear();
        }
    }

    /// A filter unit is to leave: it stays until [`EventSender::end_leaving`] ends its stream.
    pub fn retire(&mut self, unit: UnitId) {
        if let Some(queue) = self.queues.get_mut(usize::from(unit.index)) {
            (queue.is_watched, queue.is_leaving) = (false, true);
        }
    }

    /// Ends the streams of those that are to leave and have answered for all events, as `is_through`
    /// says of a filter unit.
    pub fn end_leaving(&mut self, is_through: impl Fn(u16) -> bool) {
        for filter in 0..self.queues.len() as u16 {
            if self.queues[usize::from(filter)].is_leaving && is_through(filter) {
                self.lose(UnitId::filter(filter));
            }
        }
    }

    /// Takes the event in `ticket` for a filter unit, and leaves a ticket that can be used again.
    ///
    /// # Panics
    /// If more events are given out than the windows allow.
    pub fn push(&mut self, filter: u16, ticket: &mut EventTicket) {
        let spare = self.spare.pop();
        let spare = spare.expect("a filter unit is given no more events than its window");
        let event = std::mem::replace(ticket, spare);
        match self.queues.get_mut(usize::from(filter)) {
            Some(queue) => queue.tickets.push_back(event),
            None => self.spare.push(event),
        }
    }

    /// Hands the streams what they take; returns the number of messages.
    pub fn send(&mut self) -> usize {
        let mut messages = 0;
        for filter in 0..self.queues.len() {
            messages += self.send_to(filter);
        }
        self.link.flush();
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let unit = UnitId::filter(index as u16);
            queue.is_resuming &= queue.again > 0 || !self.link.is_flushed_to(unit);
        }
        messages
    }

    fn send_to(&mut self, filter: usize) -> usize {
        let (to, queue) = (UnitId::filter(filter as u16), &mut self.queues[filter]);
        let mut messages = 0;
        while let Some(ticket) = queue.tickets.front() {
            while queue.sent <= ticket.fragments.len() {
                let envelope = Envelope {
                    sender: self.unit,
                    epoch: self.epoch,
                    sequence: queue.sequence,
                    message: message_of(ticket, queue.sent),
                };
                if self.link.send(&Outgoing { to, envelope }).is_err() {
                    return messages;
                }
                queue.sequence = queue.sequence.wrapping_add(1);
                queue.sent += 1;
                messages += 1;
            }
            queue.sent = 0;
            queue.unanswered.extend(queue.tickets.pop_front());
            queue.again = queue.again.saturating_sub(1);
        }
        messages
    }

    /// The next answer of a filter unit.
    pub fn take(&mut self) -> Option<Envelope> {
        loop {
            let mut next = match self.take_held() {
                None => self.link.take()?,
                Some(held) => held,
            };
            let filter = usize::from(next.sender.index);
            if let Some(queue) = self.queues.get_mut(filter)
                && queue.is_resuming
            {
                queue.held.push_back(next);
                self.held += 1;
            } else if self.hear(filter, &mut next.message) {
                return Some(next);
            }
        }
    }

    /// Takes note of an answer, and leaves those events out of it that the filter unit does not have:
    /// their builder unit would take the places in its windows for free that they still fill. Whether
    /// anything is left of the message.
    fn hear(&mut self, filter: usize, message: &mut BuilderMessage) -> bool {
        match message {
            BuilderMessage::EventDone { triggers } => {
                triggers.retain(|trigger| self.forget(filter, *trigger, |_| true));
                !triggers.is_empty()
            }
            BuilderMessage::EventsAccepted { events } => {
                events.retain(|event| self.forget(filter, event.trigger, |_| true));
                !events.is_empty()
            }
            // Said twice, it is not about the whole event that may be there by now.
            BuilderMessage::FetchRest { triggers } => {
                triggers
                    .retain(|trigger| self.forget(filter, *trigger, EventTicket::is_first_step));
                !triggers.is_empty()
            }
            _ => true,
        }
    }

    /// The oldest answer that need not be held back any more.
    fn take_held(&mut self) -> Option<Envelope> {
        if self.held == 0 {
            return None;
        }
        let mut queues = self.queues.iter_mut().filter(|queue| !queue.is_resuming);
        let held = queues.find_map(|queue| queue.held.pop_front())?;
        self.held -= 1;
        Some(held)
    }

    /// An event is answered: it is not sent again. `false` if it has not left, or to another filter unit.
    fn forget(
        &mut self,
        filter: usize,
        trigger: TriggerNumber,
        is_meant: impl Fn(&EventTicket) -> bool,
    ) -> bool {
        if let Some(queue) = self.queues.get_mut(filter) {
            let mut unanswered = queue.unanswered.iter();
            let nth = unanswered.position(|ticket| ticket.trigger == trigger && is_meant(ticket));
            if let Some(found) = nth.and_then(|nth| queue.unanswered.remove(nth)) {
                self.spare.push(found);
                return true;
            }
        }
        let mut queues = self.queues.iter().enumerate();
        let is_here = queues.any(|(of, queue)| {
            let elsewhere = queue.unanswered.iter().filter(|_| of != filter);
            let mut kept = queue.tickets.iter().chain(elsewhere);
            kept.any(|ticket| ticket.trigger == trigger)
        });
        !is_here
    }

    /// Events that were sent again, over streams that were made again.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// A filter unit whose stream has ended although it was neither lost nor to leave; named once.
    pub fn poll_cut(&mut self) -> Option<UnitId> {
        let link = &self.link;
        let queues = self.queues.iter_mut().enumerate();
        let mut queues = queues.map(|(index, queue)| (UnitId::filter(index as u16), queue));
        let (unit, queue) =
            queues.find(|(unit, queue)| queue.is_watched && !link.is_open(*unit))?;
        queue.is_watched = false;
        Some(unit)
    }

    /// Drops everything that waits, so that no page is held.
    pub fn close(&mut self) {
        for filter in 0..self.queues.len() {
            self.lose(UnitId::filter(filter as u16));
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.link.is_flushed() && self.queues.iter().all(|queue| queue.tickets.is_empty())
    }

    /// What the streams carried.
    pub fn counts(&self) -> &TcpFrameCounts {
        self.link.counts()
    }
}

/// The `nth` message of an event: its head, then its fragments.
fn message_of(ticket: &EventTicket, nth: usize) -> BuilderMessage {
    match nth.checked_sub(1) {
        None => BuilderMessage::Event {
            trigger: ticket.trigger,
            mask: ticket.mask,
            triggered_at: ticket.triggered_at,
            assigned_at: ticket.assigned_at,
            built_at: ticket.built_at,
            streams: ticket.streams,
            fragments: ticket.fragments.len() as u16,
        },
        Some(fragment) => BuilderMessage::FragmentData {
            trigger: ticket.trigger,
            fragment: ticket.fragments[fragment].clone(),
        },
    }
}
