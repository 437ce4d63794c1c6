//! Messages of the event builder at a host: the inboxes it takes from, the outbox it sends by.
//!
//! A message that a core cannot take yet stays in its inbox; one whose hop is full stays in the
//! outbox, and the core is polled no further until it is gone, as in the real program.

use livetime_builder::{Handled, Outgoing};
use livetime_wire::RunNs;
use livetime_wire::message::Envelope;

use super::host::{Hall, Route, Surroundings};

/// Most messages taken from one sender in a cycle.
const MESSAGES_PER_CYCLE: usize = 128;

/// Inboxes of one host, one per sender.
#[derive(Debug, Clone)]
pub(crate) struct Intake {
    lanes: Vec<u32>,
    planned: Vec<usize>,
    /// Senders whose oldest message the core cannot take.
    held_up: Vec<bool>,
}

impl Intake {
    pub(crate) fn new(lanes: Vec<u32>) -> Self {
        Self {
            planned: vec![0; lanes.len()],
            held_up: vec![false; lanes.len()],
            lanes,
        }
    }

    /// Notes how many messages are to be taken from each sender, and returns how many in all.
    pub(crate) fn plan(&mut self, hall: &Hall) -> u64 {
        for (planned, lane) in self.planned.iter_mut().zip(&self.lanes) {
            *planned = hall.fabric.waiting(*lane).min(MESSAGES_PER_CYCLE);
        }
        self.planned.iter().sum::<usize>() as u64
    }

    /// Takes the planned messages.
    pub(crate) fn take(
        &mut self,
        s: &mut Surroundings<'_>,
        mut handle: impl FnMut(RunNs, &Envelope) -> Handled,
    ) {
        let now = s.now();
        for ((lane, planned), held_up) in self
            .lanes
            .iter()
            .zip(&mut self.planned)
            .zip(&mut self.held_up)
        {
            *held_up = false;
            for _ in 0..std::mem::take(planned) {
                let Some(words) = s.hall.fabric.front(*lane) else {
                    break;
                };
                match Envelope::parse(words) {
                    Ok(envelope) => {
                        if handle(now, &envelope) == Handled::Busy {
                            *held_up = true;
                            break;
                        }
                    }
                    Err(_) => s.hall.mishaps += 1,
                }
                s.consume(*lane);
            }
        }
    }

    /// Room was made in the core: what it could not take, it may be able to take now.
    pub(crate) fn retry(&mut self) {
        self.held_up.fill(false);
    }

    /// Whether a message waits that is not held up.
    pub(crate) fn has_work(&self, hall: &Hall) -> bool {
        let mut inboxes = self.lanes.iter().zip(&self.held_up);
        inboxes.any(|(lane, held_up)| !held_up && hall.fabric.waiting(*lane) > 0)
    }
}

/// Messages to several receivers.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    routes: Vec<Route>,
    pending: Option<Outgoing>,
}

impl Outbox {
    pub(crate) fn new(routes: Vec<Route>) -> Self {
        Self {
            routes,
            pending: None,
        }
    }

    /// Sends what was kept, then what `poll` gives, until it gives nothing or a hop is full.
    /// Returns how many messages were sent.
    pub(crate) fn send_all(
        &mut self,
        s: &mut Surroundings<'_>,
        mut poll: impl FnMut(RunNs) -> Option<Outgoing>,
    ) -> usize {
        let now = s.now();
        let mut sent = 0;
        while let Some(outgoing) = self.pending.take().or_else(|| poll(now)) {
            let Some(route) = self.routes.iter().find(|route| route.to == outgoing.to) else {
                s.hall.mishaps += 1;
                continue;
            };
            if !s.hall.fabric.has_room(route.lane) {
                self.pending = Some(outgoing);
                break;
            }
            s.send(route.lane, &outgoing.envelope.to_words());
            sent += 1;
        }
        sent
    }

    /// Whether nothing waits for room.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_none()
    }
}
