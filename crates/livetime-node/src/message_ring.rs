//! Builder messages in rings: one inbox per sender, one outbox per role. Peers of an outbox may be
//! behind a network link instead, which then brings their messages, too.
//!
//! A message that a core cannot take yet stays in its inbox; one whose ring is full stays in the
//! outbox, and the role polls its core no further until it is gone. That is how back-pressure
//! travels, and why no ring needs to be larger than its regular work.

use std::io;
use std::net::TcpStream;

use livetime_builder::{Handled, Outgoing};
use livetime_shm::{Consumer, Producer, PushError};
use livetime_wire::fragment_message::FragmentMessage;
use livetime_wire::message::Envelope;
use livetime_wire::{RunNs, UnitId};

use crate::builder_transport::PeerSocket;
use crate::transport::{NetworkLink, TcpFrameLink};

/// Where messages of one sender come in.
enum Incoming {
    Ring(Consumer),
    /// A link with the one stream of a sender on another host.
    Stream(Box<TcpFrameLink>),
}

/// Messages from one sender.
pub struct Inbox {
    from: UnitId,
    incoming: Incoming,
    kept: Option<Envelope>,
    malformed: u64,
}

impl Inbox {
    /// The receiving end of a ring from a unit.
    pub fn new(from: UnitId, ring: Consumer) -> Self {
        Self::of(from, Incoming::Ring(ring))
    }

    /// The receiving end of a stream from a unit, the only one of its link: a message that the core
    /// cannot take yet stops this stream and no other.
    pub fn over_stream(from: UnitId, link: TcpFrameLink) -> Self {
        Self::of(from, Incoming::Stream(Box::new(link)))
    }

    fn of(from: UnitId, incoming: Incoming) -> Self {
        Self {
            from,
            incoming,
            kept: None,
            malformed: 0,
        }
    }

    /// Who sends.
    #[inline]
    pub fn from(&self) -> UnitId {
        self.from
    }

    /// Goes on with the ring of the sender's next life; what the old one still holds is dropped.
    #[inline]
    pub fn replace(&mut self, ring: Consumer) {
        self.incoming = Incoming::Ring(ring);
        self.kept = None;
    }

    /// The next message, the kept one first. Words that are no message are counted and skipped.
    pub fn take(&mut self) -> Option<Envelope> {
        // An envelope is some 300 bytes: looked at before it is moved, since this runs idle most.
        if self.kept.is_some() {
            return self.kept.take();
        }
        let ring = match &mut self.incoming {
            Incoming::Ring(ring) => ring,
            Incoming::Stream(link) => return link.take(),
        };
        if ring.is_empty() {
            return None;
        }
        loop {
            match ring.try_pop(Envelope::parse) {
                Ok(Some(Ok(envelope))) => return Some(envelope),
                Ok(Some(Err(_))) => self.malformed += 1,
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Its sender, if the stream from it has ended by itself; as [`TcpFrameLink::poll_cut`].
    #[inline]
    pub fn poll_cut(&mut self, now: RunNs) -> Option<UnitId> {
        match &mut self.incoming {
            Incoming::Ring(_) => None,
            Incoming::Stream(link) => link.poll_cut(now),
        }
    }

    /// Says something back over the stream to the sender; `false` without room for it, or without
    /// a stream.
    pub fn say_back(&mut self, envelope: &Envelope) -> bool {
        let Incoming::Stream(link) = &mut self.incoming else {
            return false;
        };
        let outgoing = Outgoing {
            to: self.from,
            envelope: envelope.clone(),
        };
        let is_sent = link.send(&outgoing).is_ok();
        link.flush();
        is_sent
    }

    /// Keeps a message that could not be taken; it comes first next time.
    #[inline]
    pub fn keep(&mut self, envelope: Envelope) {
        self.kept = Some(envelope);
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        let is_empty = match &mut self.incoming {
            Incoming::Ring(ring) => ring.is_empty(),
            Incoming::Stream(link) => !link.has_message(),
        };
        self.kept.is_none() && is_empty
    }

    /// Messages that could not be read.
    #[inline]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}

/// Hands what has come to `handle`, from each peer at most `most` messages; one that is busy is
/// asked again next time. Returns how many were handed in.
pub fn receive(
    inboxes: &mut [Inbox],
    outbox: &mut Outbox,
    most: usize,
    mut handle: impl FnMut(&Envelope) -> Handled,
) -> usize {
    let mut work = 0;
    for inbox in inboxes {
        for _ in 0..most {
            let Some(envelope) = inbox.take() else { break };
            if handle(&envelope) == Handled::Busy {
                inbox.keep(envelope);
                break;
            }
            work += 1;
        }
    }
    if let Some(network) = &mut outbox.network {
        for _ in 0..most {
            // Only the supervisor can find a unit busy, and it has an inbox of its own.
            let has_come = network.take_next(|envelope| {
                let _taken_or_refused = handle(envelope);
            });
            if !has_come {
                break;
            }
            work += 1;
        }
    }
    work
}

/// Whether a ring has taken a message. What goes to a peer that is gone is taken as well, and is lost
/// with it like what it had not read when it went.
///
/// No cause is counted here, since that would count it twice: each hop has a counter at either end,
/// and its sender counts what it hands on, whoever reads it. A peer closes its side in three cases.
/// The run ends in order: its equations hold already, and what is still said is in none of them. It
/// ends by force: roles stay until nothing moves, and a fragment after that would leave an equation
/// open, which the summary reports. Or the peer died, or left: then the parent balances the hop under
/// the cause of the dead unit ([`crate::process::lost_unit`]). What that is for each ring is said
/// where it is written.
#[inline]
pub(crate) fn is_taken(pushed: Result<(), PushError>) -> bool {
    matches!(pushed, Ok(()) | Err(PushError::PeerGone))
}

/// The way of messages to one receiver that is asked for room before a message is made.
pub enum MessageSender {
    /// It shares memory with the sender.
    Ring(Producer),
    /// It is on another host, at the end of the only stream of the link.
    Stream {
        /// The receiver.
        to: UnitId,
        /// The link.
        link: Box<TcpFrameLink>,
    },
}

impl MessageSender {
    /// The way to a unit at the other end of a stream.
    ///
    /// # Errors
    /// What the system says of the stream.
    pub fn over_stream(to: UnitId, stream: TcpStream) -> io::Result<Self> {
        let mut link = Box::new(TcpFrameLink::new(None, None));
        // Its congestion control was set by who made it.
        link.add(to, stream, None)?;
        Ok(Self::Stream { to, link })
    }

    /// Whether a message can be sent now.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        match self {
            Self::Ring(ring) => ring.has_room(),
            Self::Stream { to, link } => link.has_room(*to),
        }
    }

    /// Sends a message; `false` without room for it. One to a receiver that is gone is dropped: an
    /// accept that the event manager does not get is `event_manager_lost`, since the supervisor has
    /// counted it and nobody builds it; without a decision the fragments of a readout unit are its
    /// own loss, `readout_lost`.
    #[inline]
    pub fn send(&mut self, envelope: Envelope) -> bool {
        match self {
            Self::Ring(ring) => is_taken(ring.try_push(&envelope.to_words())),
            Self::Stream { to, link } => link.send(&Outgoing { to: *to, envelope }).is_ok(),
        }
    }

    /// The next message that came back over the stream; none does over a ring.
    pub fn take(&mut self) -> Option<Envelope> {
        match self {
            Self::Ring(_) => None,
            Self::Stream { link, .. } => link.take(),
        }
    }

    /// Hands on what is held back to go out at once. Call it in each duty cycle.
    #[inline]
    pub fn flush(&mut self) {
        if let Self::Stream { link, .. } = self {
            link.flush();
        }
    }

    /// Whether nothing is held back.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        match self {
            Self::Ring(_) => true,
            Self::Stream { link, .. } => link.is_flushed(),
        }
    }
}

/// How a receiver is reached.
enum Route {
    Ring(Producer),
    Network,
    /// It is gone.
    Lost,
}

/// Messages to several receivers.
pub struct Outbox {
    routes: Vec<(UnitId, Route)>,
    network: Option<NetworkLink>,
    pending: Option<Outgoing>,
    unroutable: u64,
}

impl Outbox {
    /// The sending ends of the rings, by receiver.
    pub fn new(routes: Vec<(UnitId, Producer)>) -> Self {
        let routes = (routes.into_iter())
            .map(|(to, ring)| (to, Route::Ring(ring)))
            .collect();
        Self {
            routes,
            network: None,
            pending: None,
            unroutable: 0,
        }
    }

    /// Adds a network link and the receivers behind it.
    #[inline]
    pub fn with_network(mut self, link: NetworkLink, to: impl Iterator<Item = UnitId>) -> Self {
        self.routes.extend(to.map(|to| (to, Route::Network)));
        self.network = Some(link);
        self
    }

    /// The network link, if there is one.
    #[inline]
    pub fn network(&mut self) -> Option<&mut NetworkLink> {
        self.network.as_mut()
    }

    /// The streams, where the network link has some.
    #[inline]
    pub fn streams(&mut self) -> Option<&mut TcpFrameLink> {
        self.network.as_mut()?.streams()
    }

    /// A receiver is lost: messages to it are dropped from now on.
    #[inline]
    pub fn lose(&mut self, unit: UnitId) {
        for (to, route) in &mut self.routes {
            if *to == unit {
                *route = Route::Lost;
            }
        }
        if let Some(network) = &mut self.network {
            network.lose(unit);
        }
    }

    /// A receiver is back behind a new socket.
    ///
    /// # Errors
    /// What the system says about the socket.
    pub fn restore_socket(&mut self, unit: UnitId, socket: PeerSocket) -> io::Result<()> {
        let Some(network) = &mut self.network else {
            return Ok(());
        };
        network.add(unit, socket)?;
        if let Some((_, route)) = self.routes.iter_mut().find(|(to, _)| *to == unit) {
            *route = Route::Network;
        }
        Ok(())
    }

    /// A receiver is back behind a new ring.
    #[inline]
    pub fn restore(&mut self, unit: UnitId, producer: Producer) {
        if let Some((_, route)) = self.routes.iter_mut().find(|(to, _)| *to == unit) {
            *route = Route::Ring(producer);
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
        self.flush();
        sent
    }

    /// Sends a fragment that stays on file; `false` when its ring is full: then it is kept, and no other
    /// may be sent before [`Outbox::send_all`] has sent it.
    pub fn send_fragment(&mut self, to: UnitId, message: &FragmentMessage<'_>) -> bool {
        debug_assert!(self.pending.is_none(), "one message is kept");
        let route = self.routes.iter().find(|(unit, _)| *unit == to);
        if let (Some((_, Route::Network)), Some(network)) = (route, &mut self.network)
            && network.send_fragment(to, message).is_ok()
        {
            return true;
        }
        let envelope = message.to_envelope();
        let outgoing = Outgoing { to, envelope };
        let is_sent = self.try_send(&outgoing);
        if !is_sent {
            self.pending = Some(outgoing);
        }
        is_sent
    }

    /// Whether a message waits for room.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.pending.is_some()
    }

    /// Hands the kernel what goes over a network.
    pub fn flush(&mut self) {
        if let Some(network) = &mut self.network {
            network.flush();
        }
    }

    /// Sends one message; `false` when its ring is full, or its receiver has ended its side: it is
    /// kept until there is room, or until [`Outbox::lose`] says that the receiver is gone. What is
    /// dropped then needs no count: a readout unit keeps a fragment until its release, and an event
    /// whose messages are lost with a unit is built or filtered again.
    fn try_send(&mut self, outgoing: &Outgoing) -> bool {
        let route = self.routes.iter_mut().find(|(to, _)| *to == outgoing.to);
        match (route, &mut self.network) {
            (Some((_, Route::Ring(ring))), _) => {
                ring.has_room() && ring.try_push(&outgoing.envelope.to_words()).is_ok()
            }
            (Some((_, Route::Network)), Some(network)) => network.send(outgoing).is_ok(),
            (Some(_), _) => true,
            (None, _) => {
                // A core only names units of its configuration, for which routes were made.
                self.unroutable += 1;
                true
            }
        }
    }

    /// Whether nothing waits for room.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending.is_none() && self.network.as_ref().is_none_or(NetworkLink::is_flushed)
    }

    /// Messages to units that there are not.
    #[inline]
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }
}
