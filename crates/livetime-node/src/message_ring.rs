//! Builder messages in rings: one inbox per sender, one outbox per role.
//!
//! A message that a core cannot take yet stays in its inbox; one whose ring is full stays in the
//! outbox, and the role polls its core no further until it is gone. That is how back-pressure
//! travels, and why no ring needs to be larger than its regular work.

use livetime_builder::Outgoing;
use livetime_shm::{Consumer, Producer};
use livetime_wire::UnitId;
use livetime_wire::message::Envelope;

/// Messages from one sender.
pub struct Inbox {
    from: UnitId,
    ring: Consumer,
    kept: Option<Envelope>,
    malformed: u64,
}

impl Inbox {
    /// The receiving end of a ring from a unit.
    pub fn new(from: UnitId, ring: Consumer) -> Self {
        Self {
            from,
            ring,
            kept: None,
            malformed: 0,
        }
    }

    /// Who sends.
    pub fn from(&self) -> UnitId {
        self.from
    }

    /// Goes on with the ring of the sender's next life; what the old one still holds is dropped.
    pub fn replace(&mut self, ring: Consumer) {
        self.ring = ring;
        self.kept = None;
    }

    /// The next message, the kept one first. Words that are no message are counted and skipped.
    pub fn take(&mut self) -> Option<Envelope> {
        // An envelope is some 300 bytes: looked at before it is moved, since this runs idle most.
        if self.kept.is_some() {
            return self.kept.take();
        }
        if self.ring.is_empty() {
            return None;
        }
        loop {
            match self.ring.try_pop(Envelope::parse) {
                Ok(Some(Ok(envelope))) => return Some(envelope),
                Ok(Some(Err(_))) => self.malformed += 1,
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Keeps a message that could not be taken; it comes first next time.
    pub fn keep(&mut self, envelope: Envelope) {
        self.kept = Some(envelope);
    }

    /// Whether nothing waits.
    pub fn is_empty(&mut self) -> bool {
        self.kept.is_none() && self.ring.is_empty()
    }

    /// Messages that could not be read.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}

/// Messages to several receivers.
pub struct Outbox {
    /// Rings by receiver; `None` where the receiver is lost.
    routes: Vec<(UnitId, Option<Producer>)>,
    pending: Option<Outgoing>,
    unroutable: u64,
}

impl Outbox {
    /// The sending ends of the rings, by receiver.
    pub fn new(routes: Vec<(UnitId, Producer)>) -> Self {
        let routes = (routes.into_iter())
            .map(|(to, ring)| (to, Some(ring)))
            .collect();
        Self {
            routes,
            pending: None,
            unroutable: 0,
        }
    }

    /// A receiver is lost: messages to it are dropped from now on.
    pub fn lose(&mut self, unit: UnitId) {
        for (to, ring) in &mut self.routes {
            if *to == unit {
                *ring = None;
            }
        }
    }

    /// A receiver is back behind a new ring.
    pub fn restore(&mut self, unit: UnitId, producer: Producer) {
        if let Some((_, ring)) = self.routes.iter_mut().find(|(to, _)| *to == unit) {
            *ring = Some(producer);
        }
    }

    /// Sends what was kept, then what `poll` gives, until it gives nothing or a ring is full.
    /// Returns how many messages were sent.
    pub fn send_all(&mut self, mut poll: impl FnMut() -> Option<Outgoing>) -> usize {
        let mut sent = 0;
        loop {
            let next = if self.pending.is_some() {
                self.pending.take()
            } else {
                poll()
            };
            let Some(outgoing) = next else { break };
            if !self.try_send(&outgoing) {
                self.pending = Some(outgoing);
                break;
            }
            sent += 1;
        }
        sent
    }

    /// Sends one message; `false` when its ring is full.
    fn try_send(&mut self, outgoing: &Outgoing) -> bool {
        let route = self.routes.iter_mut().find(|(to, _)| *to == outgoing.to);
        let Some((_, ring)) = route else {
            // A core only names units of its configuration, for which routes were made.
            self.unroutable += 1;
            return true;
        };
        let Some(ring) = ring else { return true };
        ring.has_room() && ring.try_push(&outgoing.envelope.to_words()).is_ok()
    }

    /// Whether nothing waits for room.
    pub fn is_empty(&self) -> bool {
        self.pending.is_none()
    }

    /// Free slots of the ring to a receiver.
    pub fn free_slots(&mut self, to: UnitId) -> u32 {
        let route = self.routes.iter_mut().find(|(unit, _)| *unit == to);
        match route {
            Some((_, Some(ring))) => ring.free_slots(),
            _ => 0,
        }
    }

    /// Messages to units that there are not.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }
}
