//! Rings of messages between the units of an event builder, each with one sender and one receiver.

use livetime_builder::{Handled, Outgoing};
use livetime_shm::{Consumer, Producer, RingConfig, ring};
use livetime_wire::UnitId;
use livetime_wire::message::{Envelope, MESSAGE_WORDS_MAX};

use super::BenchError;

/// A ring for so many messages, or the next power of two.
pub(super) fn message_ring(slots: u64) -> Result<(Producer, Consumer), BenchError> {
    let slots = u32::try_from(slots.next_power_of_two())
        .unwrap_or(1 << 16)
        .max(16);
    Ok(ring(&RingConfig {
        slots,
        slot_words: MESSAGE_WORDS_MAX as u32,
    })?)
}

/// Hands every message that came to a unit.
pub(super) fn receive(
    inboxes: &mut [Inbox],
    mut handle: impl FnMut(&Envelope) -> Handled,
) -> usize {
    let mut count = 0;
    for inbox in inboxes {
        while let Some(envelope) = inbox.poll() {
            if handle(&envelope) == Handled::Busy {
                inbox.kept = Some(envelope);
                break;
            }
            count += 1;
        }
    }
    count
}

/// Messages from one sender; one that cannot be taken yet is kept.
pub(super) struct Inbox {
    ring: Consumer,
    kept: Option<Envelope>,
}

impl Inbox {
    fn new(ring: Consumer) -> Self {
        Self { ring, kept: None }
    }

    fn poll(&mut self) -> Option<Envelope> {
        if self.kept.is_some() {
            return self.kept.take();
        }
        self.ring.try_pop(Envelope::parse).ok()??.ok()
    }
}

/// Messages to several receivers; one whose ring is full is kept, and nothing more is sent.
pub(super) struct Outbox {
    routes: Vec<(UnitId, Producer)>,
    kept: Option<Outgoing>,
}

impl Outbox {
    pub(super) fn send_all(&mut self, mut poll: impl FnMut() -> Option<Outgoing>) -> usize {
        let mut sent = 0;
        while let Some(outgoing) = self.kept.take().or_else(&mut poll) {
            let route = self.routes.iter_mut().find(|(to, _)| *to == outgoing.to);
            let words = outgoing.envelope.to_words();
            // A message to nobody stays and shows as a run that does not end.
            if route.is_none_or(|(_, ring)| ring.try_push(&words).is_err()) {
                self.kept = Some(outgoing);
                break;
            }
            sent += 1;
        }
        sent
    }
}

/// Rings by sender and receiver while units are being made: each is made when its first end is
/// asked for.
pub(super) struct Rings {
    slots: u64,
    rings: Vec<RingEnds>,
}

/// The ends of a ring that nobody has taken yet.
struct RingEnds {
    from: UnitId,
    to: UnitId,
    producer: Option<Producer>,
    consumer: Option<Consumer>,
}

impl Rings {
    /// No ring yet; each is to have so many slots.
    pub(super) fn new(slots: u64) -> Self {
        Self {
            slots,
            rings: Vec::new(),
        }
    }

    fn ring(&mut self, from: UnitId, to: UnitId) -> Result<&mut RingEnds, BenchError> {
        let found = self
            .rings
            .iter()
            .position(|ring| (ring.from, ring.to) == (from, to));
        let index = match found {
            Some(index) => index,
            None => {
                let (producer, consumer) = message_ring(self.slots)?;
                let (producer, consumer) = (Some(producer), Some(consumer));
                self.rings.push(RingEnds {
                    from,
                    to,
                    producer,
                    consumer,
                });
                self.rings.len() - 1
            }
        };
        Ok(&mut self.rings[index])
    }

    pub(super) fn inboxes(
        &mut self,
        to: UnitId,
        from: &[UnitId],
    ) -> Result<Vec<Inbox>, BenchError> {
        let end = |&from| Ok(self.ring(from, to)?.consumer.take().map(Inbox::new));
        let ends: Result<Vec<Option<Inbox>>, BenchError> = from.iter().map(end).collect();
        Ok(ends?.into_iter().flatten().collect())
    }

    pub(super) fn outbox(&mut self, from: UnitId, to: &[UnitId]) -> Result<Outbox, BenchError> {
        let end = |&to| {
            let producer = self.ring(from, to)?.producer.take();
            Ok(producer.map(|producer| (to, producer)))
        };
        let ends: Result<Vec<Option<_>>, BenchError> = to.iter().map(end).collect();
        let routes = ends?.into_iter().flatten().collect();
        Ok(Outbox { routes, kept: None })
    }
}
