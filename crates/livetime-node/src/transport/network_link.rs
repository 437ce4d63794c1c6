//! The link of one unit to its peers over a network: streams or datagrams.
//!
//! Says what both have in common, so that roles know neither. What only streams do, such as telling
//! that they were cut, a link of datagrams answers with "never".

use std::io;

use livetime_builder::{LinkFull, Outgoing};
use livetime_wire::fragment_message::FragmentMessage;
use livetime_wire::message::Envelope;
use livetime_wire::{RunNs, UnitId};

use super::{ReceivePages, TcpFrameLink, UdpFrameLink};
use crate::builder_transport::PeerSocket;

/// A link over a network.
pub enum NetworkLink {
    /// Streams.
    Tcp(Box<TcpFrameLink>),
    /// Datagrams.
    Udp(Box<UdpFrameLink>),
}

impl NetworkLink {
    /// Adds the way to a unit, or replaces the one to its former life.
    ///
    /// # Errors
    /// What the system says; a socket of the other kind is one.
    pub fn add(&mut self, unit: UnitId, socket: PeerSocket) -> io::Result<()> {
        match (self, socket) {
            // Its congestion control was set by who made it.
            (Self::Tcp(link), PeerSocket::Stream(stream)) => link.add(unit, stream, None).map(drop),
            (Self::Udp(link), PeerSocket::Datagrams(socket)) => link.add(unit, socket),
            (_, socket) => {
                let reason = format!("{} of another transport for {unit}", socket.kind());
                Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
            }
        }
    }

    /// A unit is gone: messages to it are dropped, what came of it is still taken.
    pub fn lose(&mut self, unit: UnitId) {
        match self {
            Self::Tcp(link) => link.lose(unit),
            Self::Udp(link) => link.lose(unit),
        }
    }

    /// The next unit to which a stream has ended by itself; as [`TcpFrameLink::poll_cut`].
    #[inline]
    pub fn poll_cut(&mut self, now: RunNs) -> Option<UnitId> {
        match self {
            Self::Tcp(link) => link.poll_cut(now),
            Self::Udp(_) => None,
        }
    }

    /// The pages that fragments are received into.
    pub fn pages_mut(&mut self) -> Option<&mut ReceivePages> {
        match self {
            Self::Tcp(link) => link.pages_mut(),
            Self::Udp(link) => link.pages_mut(),
        }
    }

    /// Hands the kernel as much as it takes. Call it in each duty cycle.
    pub fn flush(&mut self) {
        match self {
            Self::Tcp(link) => link.flush(),
            Self::Udp(link) => link.flush(),
        }
    }

    /// As [`NetworkLink::flush`], to one unit.
    pub fn flush_to(&mut self, unit: UnitId) {
        match self {
            Self::Tcp(link) => link.flush_to(unit),
            Self::Udp(link) => link.flush_to(unit),
        }
    }

    /// Lets so many bytes of the payload that waits for a unit go out, where a shaper decides that.
    pub fn allow(&mut self, unit: UnitId, bytes: u32) {
        match self {
            Self::Tcp(link) => link.allow(unit, bytes),
            Self::Udp(link) => link.allow(unit, bytes),
        }
    }

    /// Whether the kernel has all that may go out to a unit.
    pub fn is_block_taken(&self, unit: UnitId) -> bool {
        match self {
            Self::Tcp(link) => link.is_block_taken(unit),
            Self::Udp(link) => link.is_block_taken(unit),
        }
    }

    /// Whether the kernel has everything.
    pub fn is_flushed(&self) -> bool {
        match self {
            Self::Tcp(link) => link.is_flushed(),
            Self::Udp(link) => link.is_flushed(),
        }
    }

    /// Sends a message, with its payload.
    ///
    /// # Errors
    /// [`LinkFull`] when it cannot be taken now.
    pub fn send(&mut self, outgoing: &Outgoing) -> Result<(), LinkFull> {
        match self {
            Self::Tcp(link) => link.send(outgoing),
            Self::Udp(link) => link.send(outgoing),
        }
    }

    /// As [`NetworkLink::send`], of a fragment that stays on file.
    ///
    /// # Errors
    /// As [`NetworkLink::send`].
    #[inline]
    pub fn send_fragment(
        &mut self,
        to: UnitId,
        message: &FragmentMessage<'_>,
    ) -> Result<(), LinkFull> {
        match self {
            Self::Tcp(link) => link.send_fragment(to, message),
            Self::Udp(link) => link.send(&Outgoing {
                to,
                envelope: message.to_envelope(),
            }),
        }
    }

    /// The next message that has come, from each peer in turn. Returns whether there was one.
    #[inline]
    pub fn take_next(&mut self, handle: impl FnOnce(&Envelope)) -> bool {
        match self {
            Self::Tcp(link) => link.take_next().map(handle).is_some(),
            Self::Udp(link) => link.take().as_ref().map(handle).is_some(),
        }
    }

    /// The streams, where these carry the messages.
    pub fn streams(&mut self) -> Option<&mut TcpFrameLink> {
        match self {
            Self::Tcp(link) => Some(link.as_mut()),
            Self::Udp(_) => None,
        }
    }

    /// What it did, by name, for the report.
    pub fn details(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Tcp(link) => tcp_details(link),
            Self::Udp(link) => udp_details(link),
        }
    }
}

fn tcp_details(link: &TcpFrameLink) -> Vec<(&'static str, u64)> {
    let counts = *link.counts();
    vec![
        ("network_frames_sent", counts.frames_sent),
        ("network_frames_received", counts.frames_received),
        ("network_message_bytes_sent", counts.message_bytes_sent),
        ("network_payload_bytes_sent", counts.payload_bytes_sent),
        (
            "network_payload_bytes_received",
            counts.payload_bytes_received,
        ),
        ("network_payload_bytes_copied", counts.payload_bytes_copied),
        ("network_writes", counts.writes),
        ("network_reads", counts.reads),
        ("network_payloads_damaged", counts.payloads_damaged),
        ("network_waits_for_pages", counts.waits_for_pages),
        ("network_strangers", counts.strangers),
        ("network_streams_ended", counts.streams_ended),
    ]
}

fn udp_details(link: &UdpFrameLink) -> Vec<(&'static str, u64)> {
    let counts = *link.counts();
    vec![
        ("network_frames_sent", counts.frames_sent),
        ("network_frames_received", counts.frames_received),
        ("network_payload_bytes_sent", counts.payload_bytes_sent),
        (
            "network_payload_bytes_received",
            counts.payload_bytes_received,
        ),
        ("network_writes", counts.sends),
        ("network_writes_blocked", counts.sends_blocked),
        ("network_write_errors", counts.send_errors),
        ("network_reads", counts.receives),
        ("network_read_errors", counts.receive_errors),
        ("network_datagrams_sent", counts.datagrams_sent),
        ("network_datagrams_unsent", counts.datagrams_unsent),
        ("network_datagrams_received", counts.datagrams_received),
        ("network_datagrams_lost", counts.datagrams_lost),
        ("network_datagrams_late", counts.datagrams_late),
        ("network_datagrams_repeated", counts.datagrams_repeated),
        ("network_datagrams_bad", counts.datagrams_bad),
        ("network_kernel_drops", counts.kernel_drops),
        ("network_payloads_damaged", counts.payloads_damaged),
        ("network_fragments_given_up", counts.fragments_given_up),
        ("network_pieces_repeated", counts.pieces_repeated),
        ("network_waits_for_pages", counts.waits_for_pages),
        ("network_strangers", counts.strangers),
        ("network_receive_buffer_bytes", counts.receive_buffer_bytes),
    ]
}
