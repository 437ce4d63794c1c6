//! A bus segment: one transfer after the other, those of the host before those of the cards.
//!
//! A [`PciSegment`] keeps who waits for the bus; how long a transfer takes is said by
//! [`BusParameters`](super::BusParameters), what it does by the world that owns the segment.

use std::collections::VecDeque;

use crate::time::{DurationPs, SimPs};

/// Transfers that may wait; a card has a handful.
const WAITING_MAX: usize = 4096;

/// A segment whose transfers are `T`.
#[derive(Debug, Clone)]
pub(super) struct PciSegment<T> {
    host: VecDeque<(T, DurationPs)>,
    cards: VecDeque<(T, DurationPs)>,
    current: Option<T>,
    busy: DurationPs,
}

impl<T> PciSegment<T> {
    pub(super) fn new() -> Self {
        Self {
            host: VecDeque::new(),
            cards: VecDeque::new(),
            current: None,
            busy: DurationPs(0),
        }
    }

    /// Asks for the bus for a card. Accesses of the host go first; it is one processor with a few
    /// accesses waiting, so that it never shuts the cards out.
    pub(super) fn request(&mut self, transfer: T, duration: DurationPs) {
        assert!(
            self.cards.len() < WAITING_MAX,
            "a model that floods its bus"
        );
        self.cards.push_back((transfer, duration));
    }

    /// Asks for the bus for a register access of the host.
    pub(super) fn request_by_host(&mut self, transfer: T, duration: DurationPs) {
        assert!(self.host.len() < WAITING_MAX, "a model that floods its bus");
        self.host.push_back((transfer, duration));
    }

    /// Starts the next transfer if the bus is free; returns its end. `stretch` may make it longer.
    pub(super) fn start(
        &mut self,
        now: SimPs,
        stretch: impl FnOnce(&T, DurationPs) -> DurationPs,
    ) -> Option<SimPs> {
        if self.current.is_some() {
            return None;
        }
        let next = self.host.pop_front().or_else(|| self.cards.pop_front());
        let (transfer, duration) = next?;
        let duration = stretch(&transfer, duration);
        self.current = Some(transfer);
        self.busy = DurationPs(self.busy.0 + duration.0);
        Some(now + duration)
    }

    /// The transfer that has ended.
    pub(super) fn finish(&mut self) -> T {
        self.current.take().expect("a transfer was started")
    }

    /// Time that the bus was in use.
    pub(super) fn busy(&self) -> DurationPs {
        self.busy
    }
}
