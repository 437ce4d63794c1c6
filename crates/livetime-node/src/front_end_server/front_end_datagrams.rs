//! Datagrams of front-ends, a frame each.
//!
//! One whose trigger is not open yet is held as long as the trigger in front can go on, and what is
//! behind it stays in the kernel's buffer. Where that one waits for somebody, whose data may be among
//! them, the early one is lost and counted. What finds the kernel's buffer full is lost there, and
//! counted by the kernel (SO_RXQ_OVFL).

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use livetime_source::{FrameTaken, FrontEndEvents};
use livetime_wire::RunNs;
use livetime_wire::front_end_frame::{FrontEndFrame, HEADER_WORDS};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use zerocopy::IntoBytes;

/// Words of the largest datagram.
const DATAGRAM_WORDS: usize = 65_536 / 4;
/// Datagrams taken in one poll.
const DATAGRAMS_AT_ONCE: usize = 64;
/// What the kernel is asked to keep of datagrams that have not been read.
const DATAGRAM_BUFFER_BYTES: usize = 8 << 20;

/// What became of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DatagramCounts {
    /// Received.
    pub(super) received: u64,
    /// Of these, those that came before there was room for their triggers, and were lost.
    pub(super) ahead: u64,
    /// Lost since the kernel's buffer was full, as far as later ones have told.
    pub(super) kernel_drops: u64,
}

/// A socket and the datagram in hand.
#[derive(Debug)]
pub(super) struct FrontEndDatagrams {
    socket: UdpSocket,
    words: Vec<u32>,
    /// Room for what the kernel says of its drops.
    control: Vec<u8>,
    /// Bytes of the datagram that waits for room, if one does.
    held_bytes: Option<usize>,
    counts: DatagramCounts,
}

impl FrontEndDatagrams {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        // The kernel grants less than that where it is told to.
        let _less = setsockopt(&socket, sockopt::RcvBuf, &DATAGRAM_BUFFER_BYTES);
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        Ok(Self {
            socket,
            words: vec![0; DATAGRAM_WORDS],
            control: nix::cmsg_space!(u32),
            held_bytes: None,
            counts: DatagramCounts::default(),
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether there is one in hand, whatever the socket has.
    pub(super) fn has_more(&self) -> bool {
        self.held_bytes.is_some()
    }

    /// Takes frames, at most [`DATAGRAMS_AT_ONCE`]; returns how many.
    pub(super) fn receive(&mut self, now: RunNs, events: &mut FrontEndEvents) -> usize {
        for taken in 0..DATAGRAMS_AT_ONCE {
            let Some(bytes) = self.held_bytes.take().or_else(|| self.read()) else {
                return taken;
            };
            if !self.take(now, bytes, events) {
                if events.is_begun() || events.is_ready(now) {
                    self.held_bytes = Some(bytes);
                    return taken;
                }
                self.counts.ahead += 1;
            }
        }
        DATAGRAMS_AT_ONCE
    }

    /// Nothing is taken any more.
    pub(super) fn end(self) -> DatagramCounts {
        DatagramCounts {
            ahead: self.counts.ahead + u64::from(self.held_bytes.is_some()),
            ..self.counts
        }
    }

    pub(super) fn counts(&self) -> DatagramCounts {
        self.counts
    }

    #[cfg(test)]
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Bytes of the next datagram, if there is one; whatever else the call says, the next poll tries again.
    fn read(&mut self) -> Option<usize> {
        let mut slices = [IoSliceMut::new(self.words.as_mut_bytes())];
        let control = Some(self.control.as_mut_slice());
        let fd = self.socket.as_raw_fd();
        let message = recvmsg::<()>(fd, &mut slices, control, MsgFlags::empty()).ok()?;
        for control in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::RxqOvfl(drops) = control {
                // The kernel's counter has 32 bits.
                let more = drops.wrapping_sub(self.counts.kernel_drops as u32);
                self.counts.kernel_drops += u64::from(more);
            }
        }
        self.counts.received += 1;
        Some(message.bytes)
    }

    /// Takes the frame of a datagram, or counts why it is none that the run takes; whether it is done
    /// with.
    fn take(&self, now: RunNs, bytes: usize, events: &mut FrontEndEvents) -> bool {
        let words = &self.words[..bytes / 4];
        let frame = words.split_first_chunk::<HEADER_WORDS>();
        let frame = frame.filter(|_| bytes.is_multiple_of(4));
        let frame = frame.and_then(|(header, data)| {
            let frame = FrontEndFrame::parse(header).ok()?;
            (frame.data_words() == data.len()).then_some((frame, data))
        });
        let Some((frame, data)) = frame else {
            events.count_refused();
            return true;
        };
        events.check(&frame).is_err() || events.handle_frame(now, &frame, data) != FrameTaken::Ahead
    }
}
