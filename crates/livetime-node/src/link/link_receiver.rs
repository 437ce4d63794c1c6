//! The receiving end of a data link over a socket, in the readout unit's role.
//!
//! A [`LinkReceiver`] fills pages from the frames of a [`super::link_sender`], counts what does not
//! come, by its numbers, and says back how far it has got and whether its pages run out. Where the
//! sender is, in another thread, process or host, it does not know. A stream that is cut is told of
//! and may be replaced; of datagrams there is nothing to be cut.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use livetime_readout::{Completed, FlowControl, LinkConfig, PageLink};
use livetime_shm::PagePool;
use livetime_wire::link_return::{LinkReturn, RETURN_WORDS};
use livetime_wire::{DurationNs, LossCounts, RunNs};
use nix::sys::socket::{getsockopt, sockopt};
use zerocopy::IntoBytes;

use super::block_receiver::BlockReceiver;
use super::fragment_link::TransportCounters;
use super::stream_link::{StreamLink, StreamState};
use super::transport::LinkTransport;
use super::udp_link::UdpLink;
use crate::builder_transport::PeerSocket;
use crate::pooled_page::{LinkPages, LinkStore};

/// Frames taken from a stream at once, so that the other links get their turn.
const FRAMES_AT_ONCE: usize = 64;
/// Frames after which the sender hears of them although more are there.
const FRAMES_UNTOLD: u64 = 64;
/// Polls that bring nothing, after which the sender of a stream hears of fewer frames: it waits for none
/// of them, and a return costs as much as a fragment. A sender of datagrams hears of them at once, for
/// the room that they leave.
const QUIET_POLLS: u32 = 16;

enum Way {
    Udp(Box<UdpLink<LinkPages>>),
    Tcp(Box<StreamLink<TcpStream, LinkPages>>),
}

/// The receiving end of a link.
pub struct LinkReceiver {
    way: Way,
    /// What was said last, and the tallies that were answered with it.
    told: LinkReturn,
    answered: u64,
    /// Polls in a row that have brought nothing.
    quiet_polls: u32,
    /// A return on a stream that has not taken it whole, and how much of it is out.
    returning: [u32; RETURN_WORDS],
    returned_bytes: usize,
    room_bytes: u32,
    /// When it is to be told that the stream has ended; `None` unless it has.
    cut_due: Option<RunNs>,
}

/// Why a receiving end cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A socket of another kind than the configuration says.
    #[error("its socket is for {found}, the link is configured for {expected}")]
    Kind {
        /// What the socket is for.
        found: &'static str,
        /// What it was to be for.
        expected: &'static str,
    },
}

impl LinkReceiver {
    /// The receiving end of a link over `socket`, which fills the pages of `pool` from `first_page` on.
    ///
    /// # Errors
    /// An [`OpenError`].
    pub fn open(
        socket: PeerSocket,
        transport: &LinkTransport,
        config: LinkConfig,
        pool: PagePool,
        first_page: u32,
    ) -> Result<Self, OpenError> {
        let pages = LinkPages::new(pool);
        let mut room_bytes = 0;
        let way = match (socket, transport) {
            (PeerSocket::Datagrams(socket), LinkTransport::Udp { config: udp, .. }) => {
                let link = UdpLink::on(socket, *udp, config, first_page, pages)?;
                let room = getsockopt(link.socket(), sockopt::RcvBuf).map_err(io::Error::from)?;
                room_bytes = u32::try_from(room).unwrap_or(u32::MAX);
                Way::Udp(Box::new(link))
            }
            (PeerSocket::Stream(stream), LinkTransport::Tcp) => {
                prepare(&stream)?;
                let link = StreamLink::new(stream, config, first_page, pages);
                Way::Tcp(Box::new(link))
            }
            (socket, transport) => {
                let (found, expected) = (socket.kind(), transport.name());
                return Err(OpenError::Kind { found, expected });
            }
        };
        Ok(Self {
            way,
            told: LinkReturn::default(),
            answered: 0,
            quiet_polls: 0,
            returning: [0; RETURN_WORDS],
            returned_bytes: 4 * RETURN_WORDS,
            room_bytes,
            cut_due: None,
        })
    }

    /// Takes what has come, as far as there are pages, and says back what is to be said; returns the
    /// amount of work. Nothing is read from a socket that has nothing to be read.
    pub fn poll(&mut self, now: RunNs, is_readable: bool) -> usize {
        let came = match &mut self.way {
            // What the system says of a datagram's socket is of one datagram; its number tells.
            Way::Udp(link) if is_readable || link.is_overdue(now) => link.receive(now).unwrap_or(0),
            Way::Udp(link) => {
                link.advance(now);
                0
            }
            Way::Tcp(link) if link.state() == StreamState::Ended => 0,
            Way::Tcp(link) if !is_readable && !link.is_holding() => 0,
            Way::Tcp(link) => {
                let came = link.receive(now, FRAMES_AT_ONCE).unwrap_or(0);
                if link.state() == StreamState::Ended {
                    self.cut_due = Some(now);
                }
                came
            }
        };
        self.quiet_polls = match came {
            0 => self.quiet_polls.saturating_add(1),
            _ => 0,
        };
        came + usize::from(self.tell(now))
    }

    /// Says how far it has got, where that is due; whether something was said.
    fn tell(&mut self, now: RunNs) -> bool {
        self.send_return();
        let flow = self.blocks_mut().poll_flow(now);
        let (frames_seen, tallies, quiet_polls) = match &self.way {
            Way::Udp(link) => (link.frames_seen(), link.tallies(), 1),
            Way::Tcp(link) => (link.frames_settled(), link.tallies(), QUIET_POLLS),
        };
        let stands = LinkReturn {
            is_xoff: flow == FlowControl::Xoff,
            frames_seen,
            blocks_settled: self.blocks().blocks_settled(),
            room_bytes: self.room_bytes,
        };
        let told = self.told;
        let untold = stands.frames_seen.saturating_sub(told.frames_seen);
        let is_due = stands.is_xoff != told.is_xoff
            || stands.room_bytes != told.room_bytes
            || tallies != self.answered
            || untold >= FRAMES_UNTOLD
            || (self.quiet_polls >= quiet_polls && stands != told);
        if !is_due || self.returned_bytes < 4 * RETURN_WORDS || self.cut_due.is_some() {
            return false;
        }
        (self.told, self.answered) = (stands, tallies);
        (self.returning, self.returned_bytes) = (stands.emit(), 0);
        self.send_return();
        true
    }

    fn send_return(&mut self) {
        let bytes = self.returning.as_bytes();
        let Some(rest) = bytes
            .get(self.returned_bytes..)
            .filter(|rest| !rest.is_empty())
        else {
            return;
        };
        self.returned_bytes += match &self.way {
            Way::Udp(link) => {
                // One that is lost is asked for again, with a tally.
                let _sent = link.socket().send(rest);
                rest.len()
            }
            // A stream that has ended is found by reading it.
            Way::Tcp(link) => link.input().write(rest).unwrap_or(0),
        };
    }

    /// Its socket, to be watched.
    pub fn socket(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Udp(link) => link.socket().as_fd(),
            Way::Tcp(link) => link.input().as_fd(),
        }
    }

    /// Whether the stream has ended by itself, once a second until there is another.
    pub fn poll_cut(&mut self, now: RunNs) -> bool {
        let is_due = self.cut_due.is_some_and(|due| due <= now);
        if is_due {
            self.cut_due = Some(now.after(DurationNs::SECOND));
        }
        is_due
    }

    /// Goes on with another stream in place of one that was cut.
    ///
    /// # Errors
    /// What the system says of the stream.
    pub fn restore(&mut self, stream: TcpStream) -> io::Result<()> {
        prepare(&stream)?;
        if let Way::Tcp(link) = &mut self.way {
            link.restore(stream);
            self.cut_due = None;
            self.returned_bytes = 4 * RETURN_WORDS;
            // The sender hears at once how much has come.
            self.answered = u64::MAX;
        }
        Ok(())
    }

    /// The oldest filled page.
    pub fn poll_completed(&mut self) -> Option<Completed> {
        match &mut self.way {
            Way::Udp(link) => link.poll(),
            Way::Tcp(link) => link.poll(),
        }
    }

    /// Takes a page back; `false` when it was not one that the host may return.
    pub fn recycle(&mut self, page: u32) -> bool {
        let blocks = self.blocks_mut();
        blocks.receiver().owns(page)
            && blocks.store().take_back(page)
            && blocks.recycle(page).is_ok()
    }

    /// Whether nothing is here that the readout unit has not taken.
    pub fn is_empty(&self) -> bool {
        match &self.way {
            Way::Udp(link) => link.is_empty() && link.link_status().acknowledge_filled == 0,
            Way::Tcp(link) => link.link_status().acknowledge_filled == 0,
        }
    }

    /// The run is ended by force: no more fragments are taken, and those that were sent are counted as
    /// aborted.
    pub fn abort(&mut self, now: RunNs) {
        match &mut self.way {
            Way::Udp(link) => link.discard(now),
            Way::Tcp(link) => link.discard(now),
        }
    }

    /// Fragments that were sent and did not come whole, by cause.
    pub fn losses(&self) -> LossCounts {
        let mut losses = *self.blocks().losses();
        losses.merge(self.blocks().receiver().losses());
        losses
    }

    /// What the transport tells beside its losses.
    pub fn transport_counters(&self) -> TransportCounters {
        let of_frames = TransportCounters::of_frames(self.blocks().counters());
        match &self.way {
            Way::Udp(link) => TransportCounters {
                kernel_drops: link.counters().kernel_drops,
                late: link.counters().datagrams_late,
                bad: link.counters().datagrams_bad + of_frames.bad,
                tallies: link.tallies(),
                ..of_frames
            },
            Way::Tcp(link) => TransportCounters {
                tallies: link.tallies(),
                ..of_frames
            },
        }
    }

    fn blocks(&self) -> &BlockReceiver<LinkPages> {
        match &self.way {
            Way::Udp(link) => link.blocks(),
            Way::Tcp(link) => link.blocks(),
        }
    }

    fn blocks_mut(&mut self) -> &mut BlockReceiver<LinkPages> {
        match &mut self.way {
            Way::Udp(link) => link.blocks_mut(),
            Way::Tcp(link) => link.blocks_mut(),
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)
}
