//! The events of a filter unit that judges batches: their pages are held while they are judged.
//!
//! It joins a `BatchFilter` with the events that it is asked about. When a batch is sent off,
//! because it is full, its events have waited long enough, or no more can be held, is decided here;
//! what becomes of judged events is the filter unit's business.

use livetime_wire::message::FRAGMENT_PAGES_MAX;
use livetime_wire::{RunNs, TriggerNumber};

use crate::pooled_event::PooledEvent;
use crate::python_filter::batch_arena::SLOTS;
use crate::python_filter::{BatchFilter, BatchRow, BatchVerdict};

/// Time between two reports of the histograms \[ns\].
const REPORT_NS: u64 = 500_000_000;

/// Batches and their events.
pub struct FilterBatches {
    filter: BatchFilter,
    events: [Vec<PooledEvent>; SLOTS],
    /// The event that is taken in, and whether it waits for room.
    incoming: PooledEvent,
    waits: bool,
    /// When the first event of the batch that is filled came.
    filled_since: RunNs,
    /// The next event of the judged batch that is dealt with.
    next: usize,
    reported_at: RunNs,
    reported_events: u64,
}

impl FilterBatches {
    /// Batches of events with at most `sources` fragments.
    pub fn new(filter: BatchFilter, sources: usize) -> Self {
        let pages = sources * FRAGMENT_PAGES_MAX;
        let event = || PooledEvent::with_capacity(sources, pages);
        let batch = || {
            std::iter::repeat_with(event)
                .take(filter.batch_max())
                .collect()
        };
        Self {
            events: [batch(), batch()],
            incoming: event(),
            waits: false,
            filter,
            filled_since: RunNs(0),
            next: 0,
            reported_at: RunNs(0),
            reported_events: 0,
        }
    }

    /// Whether another event can be taken in.
    pub fn takes(&self) -> bool {
        !self.waits && self.filter.filling().is_some()
    }

    /// The event that is to be taken in next.
    pub fn incoming(&mut self) -> &mut PooledEvent {
        &mut self.incoming
    }

    /// Takes in the incoming event, whose pages are held.
    pub fn take(&mut self, now: RunNs) {
        if self.filter.filling().is_some() && !self.filter.has_room_for(&self.incoming) {
            self.filter.close_batch();
        }
        let filling = self.filter.filling();
        // Both batches may be full of large events: there is room when one is judged.
        self.waits = filling.is_none();
        let Some((slot, nth)) = filling else {
            return;
        };
        if nth == 0 {
            self.filled_since = now;
        }
        let event = &self.incoming;
        let row = BatchRow {
            triggered_at: event.ticket().triggered_at,
            missing: event.ticket().missing.len(),
        };
        let is_full = self.filter.push(event, row, |filter, fragment| {
            let (pool, page) = event.place(fragment)?;
            filter.word_of_page(pool, page)
        });
        std::mem::swap(&mut self.events[slot][nth], &mut self.incoming);
        if is_full {
            self.filter.close_batch();
        }
    }

    /// Goes on; `at_once` sends off what there is. Returns the work done.
    pub fn poll(&mut self, now: RunNs, at_once: bool) -> usize {
        if self.waits {
            self.take(now);
        }
        if let Some((_, held)) = self.filter.filling()
            && held > 0
            && (at_once || now.since(self.filled_since) >= self.filter.wait())
        {
            self.filter.close_batch();
        }
        self.filter.poll(now)
    }

    /// The next event that has a verdict, put into `event`.
    pub fn next_judged(&mut self, event: &mut PooledEvent) -> Option<BatchVerdict> {
        let (slot, count) = self.filter.judged()?;
        let verdict = self.filter.verdict(slot, self.next);
        std::mem::swap(&mut self.events[slot][self.next], event);
        self.next += 1;
        if self.next == count {
            self.filter.forget(slot);
            self.next = 0;
        }
        Some(verdict)
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.filter.is_empty() && !self.waits
    }

    /// Events held.
    pub fn held(&self) -> usize {
        self.filter.held() - self.next + usize::from(self.waits)
    }

    /// Whether events of a builder unit are held.
    pub fn has_any_of(&self, builder: usize) -> bool {
        self.has_any(|event| usize::from(event.ticket().builder) == builder)
    }

    /// Whether an event is held.
    pub fn has(&self, builder: usize, trigger: TriggerNumber) -> bool {
        self.has_any(|event| {
            let ticket = event.ticket();
            (usize::from(ticket.builder), ticket.trigger) == (builder, trigger)
        })
    }

    fn has_any(&self, is_meant: impl Fn(&PooledEvent) -> bool) -> bool {
        let judged = self.filter.judged().map(|(slot, _)| slot);
        let mut batches = self.events.iter().enumerate();
        let in_batches = batches.any(|(slot, events)| {
            let passed = if judged == Some(slot) { self.next } else { 0 };
            events[passed..self.filter.batch_len(slot)]
                .iter()
                .any(&is_meant)
        });
        in_batches || (self.waits && is_meant(&self.incoming))
    }

    /// The run is ended by force: what has no verdict stays with its builder unit, which counts it.
    pub fn abandon(&mut self) {
        self.filter.abandon();
        let judged = self.filter.judged().map(|(slot, _)| slot);
        for (slot, events) in self.events.iter_mut().enumerate() {
            if judged != Some(slot) {
                events.iter_mut().for_each(PooledEvent::release);
            }
        }
        self.incoming.release();
        self.waits = false;
    }

    /// The filter.
    pub fn filter(&self) -> &BatchFilter {
        &self.filter
    }

    /// The filter, to be asked for what it has to tell.
    pub fn filter_mut(&mut self) -> &mut BatchFilter {
        &mut self.filter
    }

    /// Whether the histograms have changed and a report is due.
    pub fn is_report_due(&mut self, now: RunNs) -> bool {
        let events = self.filter.counts().events;
        let due = now.since(self.reported_at).0 >= REPORT_NS
            && events != self.reported_events
            && !self.filter.histograms().is_empty();
        if due {
            (self.reported_at, self.reported_events) = (now, events);
        }
        due
    }
}
