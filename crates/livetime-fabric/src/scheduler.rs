//! What a world holds while it handles an event: the clock, and the way to schedule more.
//!
//! The scheduler gives out the keys that order all events, refuses the past, and keeps the trace.
//! It does not call the world; [`Simulation`](crate::kernel::Simulation) does. There is no way to
//! cancel an event: a timeout that moved is asked about when it fires, see [`crate::wake_up`].

use crate::queue::{EventClass, EventKey, EventQueue, Lane, QueueKind};
use crate::time::{DurationPs, SimPs};
use crate::trace::{EventLabel, Trace, TraceRecord};

/// The clock and the pending events of a simulation.
#[derive(Debug, Clone)]
pub struct Scheduler<E> {
    queue: EventQueue<E>,
    now: SimPs,
    /// Key of the event that is being handled.
    handling: EventKey,
    /// Number of events scheduled so far, and the next one's sequence.
    scheduled: u64,
    pending_peak: usize,
    halt_requested: bool,
    trace: Trace,
}

impl<E> Scheduler<E> {
    pub(crate) fn new(queue: QueueKind, trace_ring: usize) -> Self {
        Self {
            queue: EventQueue::new(queue),
            now: SimPs::ZERO,
            handling: EventKey::new(SimPs::ZERO, EventClass(0), 0),
            scheduled: 0,
            pending_peak: 0,
            halt_requested: false,
            trace: Trace::new(trace_ring),
        }
    }

    /// The time of the event that is being handled.
    pub const fn now(&self) -> SimPs {
        self.now
    }

    /// Schedules an event. At the present instant it comes after all that was scheduled for it in
    /// the same class, and before all of higher classes.
    ///
    /// # Panics
    /// If `time` is in the past: a world that changes the past has no order of events, so it is a
    /// bug of the model.
    #[inline]
    pub fn at(&mut self, time: SimPs, class: EventClass, event: E) {
        let key = self.reserve(time, class);
        self.queue.push(key, event);
        self.pending_peak = self.pending_peak.max(self.queue.len());
    }

    /// Reserves the place in the order that an event scheduled now would have, for
    /// [`Scheduler::enter`]. A node that knows many of its events in their order keeps them itself and
    /// enters each when the one before it has come: the order of all events is the same, and the
    /// queue holds one of them.
    ///
    /// # Panics
    /// As [`Scheduler::at`], if `time` is in the past.
    #[inline]
    pub fn reserve(&mut self, time: SimPs, class: EventClass) -> EventKey {
        assert!(
            time >= self.now,
            "event scheduled at {time}, before the present {}",
            self.now
        );
        let key = EventKey::new(time, class, self.scheduled);
        self.scheduled += 1;
        key
    }

    /// Schedules an event at a place that was reserved, once.
    ///
    /// # Panics
    /// If the place is before that of the event that is being handled.
    #[inline]
    pub fn enter(&mut self, key: EventKey, event: E) {
        self.check_place(key);
        self.queue.push(key, event);
        self.pending_peak = self.pending_peak.max(self.queue.len());
    }

    /// As [`Scheduler::at`], for an event that comes after all of its lane as a rule.
    ///
    /// # Panics
    /// As [`Scheduler::at`], if `time` is in the past.
    #[inline]
    pub fn at_in_order(&mut self, lane: Lane, time: SimPs, class: EventClass, event: E) {
        let key = self.reserve(time, class);
        self.queue.push_in_order(lane, key, event);
        self.pending_peak = self.pending_peak.max(self.queue.len());
    }

    /// As [`Scheduler::enter`], for an event that comes after all of its lane as a rule.
    ///
    /// # Panics
    /// As [`Scheduler::enter`], if the place is over.
    #[inline]
    pub fn enter_in_order(&mut self, lane: Lane, key: EventKey, event: E) {
        self.check_place(key);
        self.queue.push_in_order(lane, key, event);
        self.pending_peak = self.pending_peak.max(self.queue.len());
    }

    #[inline]
    fn check_place(&self, key: EventKey) {
        assert!(
            key > self.handling,
            "event entered at {}, which is over",
            key.time
        );
    }

    /// Schedules an event `delay` from now.
    #[inline]
    pub fn after(&mut self, delay: DurationPs, class: EventClass, event: E) {
        self.at(self.now + delay, class, event);
    }

    /// Puts the event that is being handled off to a later time, to be handled there in its old
    /// order: two events that are put off to one instant keep the order of their scheduling, and
    /// come before what was scheduled after them. Call it once for an event.
    ///
    /// # Panics
    /// If `until` is not in the future.
    pub fn put_off(&mut self, until: SimPs, event: E) {
        assert!(
            until > self.now,
            "event put off to {until}, which is not after {}",
            self.now
        );
        self.queue.push(self.handling.moved_to(until), event);
    }

    /// Adds to the trace what is no event of its own: an output, a decision, a digest.
    pub fn note(&mut self, label: EventLabel) {
        self.trace.record(TraceRecord {
            time: self.now,
            class: self.handling.class(),
            label,
        });
    }

    /// Ends the run after this event; what is pending stays.
    pub const fn halt(&mut self) {
        self.halt_requested = true;
    }

    /// Number of events that wait.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// The most events that ever waited.
    pub const fn pending_peak(&self) -> usize {
        self.pending_peak
    }

    /// Number of events scheduled so far; putting off does not count.
    pub const fn scheduled(&self) -> u64 {
        self.scheduled
    }

    /// The trace so far.
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Takes the next event if it is due by `horizon` and moves the clock to it.
    #[inline]
    pub(crate) fn take_until(&mut self, horizon: SimPs) -> Option<(EventKey, E)> {
        let (key, event) = self.queue.pop_until(horizon)?;
        debug_assert!(key.time >= self.now);
        self.now = key.time;
        self.handling = key;
        Some((key, event))
    }

    /// The event that probably comes after so many others; `None` where the queue does not know. A
    /// world whose nodes do not fit into the cache can ask for what it will touch, so that this comes
    /// while the others are handled; nothing may depend on it.
    #[inline]
    pub(crate) fn coming(&self, others: usize) -> Option<&E> {
        self.queue.coming(others)
    }

    #[inline]
    pub(crate) fn record(&mut self, key: EventKey, label: EventLabel) {
        self.trace.record(TraceRecord {
            time: key.time,
            class: key.class(),
            label,
        });
    }

    /// Moves the clock forward to `time` when no event is due until then.
    pub(crate) fn pass_to(&mut self, time: SimPs) {
        self.now = self.now.max(time);
    }

    /// Whether the world asked for the end, once.
    pub(crate) const fn take_halt(&mut self) -> bool {
        core::mem::replace(&mut self.halt_requested, false)
    }
}
