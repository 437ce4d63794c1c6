//! Bare UDP, as the floor of [`super::builder_network`]: datagrams as long as the builder's, as many in a
//! `sendmmsg`, through as many pairs of sockets, on the same two threads, and a `recvmmsg` into buffers.
//!
//! A sender that is faster than its receiver would measure what the kernel drops. So no more is on its
//! way than the receive buffer in force holds, or the credits of the builder allow; the receiver says
//! in memory how far it is. Each datagram is counted at both ends: one that is lost ends the bench.

use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use livetime_node::transport::udp_frame_link::BATCH;
use livetime_wire::message_datagram::PAYLOAD_AT;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, getsockopt, recvmmsg, sendmmsg, setsockopt, sockopt,
};

use super::BenchError;
use super::builder::{SOURCES_PER_UNIT, Shape};
use super::builder_network::{buffer_bytes, sockets, system};
use super::pinned_threads::time_pair;

/// Pairs of sockets, and how far each has come.
pub(super) struct RawUdp {
    pairs: Vec<Pair>,
    datagram_bytes: usize,
    /// Datagrams on their way between two sockets at most.
    window: u64,
}

struct Pair {
    near: UdpSocket,
    far: UdpSocket,
    /// Datagrams that have come.
    received: AtomicU64,
}

impl RawUdp {
    pub(super) fn new(shape: Shape) -> Result<Self, BenchError> {
        let count = usize::from(shape.readout_units) * usize::from(shape.builder_units);
        let datagram_bytes = shape.fragment_bytes() as usize + 4 * PAYLOAD_AT;
        let mut window = u64::from(shape.config().credits * SOURCES_PER_UNIT);
        let mut pairs = Vec::new();
        for _ in 0..count {
            let (near, far) = sockets()?;
            let in_force = set_up(&near, &far, buffer_bytes(shape))
                .map_err(|errno| system("setting up a socket")(errno.into()))?;
            // As `buffer_bytes`, of what the kernel has doubled.
            let of_datagram = 2 * (datagram_bytes + 1024).next_power_of_two();
            window = window.min((in_force / of_datagram).max(1) as u64);
            pairs.push(Pair {
                near,
                far,
                received: AtomicU64::new(0),
            });
        }
        Ok(Self {
            pairs,
            datagram_bytes,
            window,
        })
    }

    /// Bytes of a datagram, without those of IP and UDP.
    pub(super) fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    /// Sends so many datagrams through every pair, at most `per_call` in a call; datagrams a second of
    /// all.
    pub(super) fn measure(&mut self, datagrams: u64, per_call: usize) -> Result<f64, BenchError> {
        let Self {
            pairs,
            datagram_bytes,
            window,
        } = self;
        let (pairs, bytes, window) = (&*pairs, *datagram_bytes, *window);
        let per_call = per_call.clamp(1, BATCH);
        let total = datagrams * pairs.len() as u64;
        for pair in pairs {
            pair.received.store(0, Ordering::Relaxed);
        }
        let seconds = time_pair(
            |mut patience| {
                let (payload, mut headers) = (vec![0x5A; bytes], headers());
                let mut sent = vec![0; pairs.len()];
                while sent.iter().any(|sent| *sent < datagrams) {
                    let mut moved = 0;
                    for (pair, sent) in pairs.iter().zip(&mut sent) {
                        // Acquire pairs with the release of the receiver; no data goes with it.
                        let on_way = *sent - pair.received.load(Ordering::Acquire);
                        let room = (window - on_way).min(datagrams - *sent) as usize;
                        let count = send(&pair.near, &payload, room.min(per_call), &mut headers)?;
                        *sent += count;
                        moved += count;
                    }
                    patience.after(moved > 0)?;
                }
                Ok(())
            },
            |mut patience| {
                let mut buffers: [Vec<u8>; BATCH] = std::array::from_fn(|_| vec![0; bytes]);
                let mut headers = headers();
                let mut came = 0;
                while came < total {
                    let mut moved = 0;
                    for pair in pairs {
                        let count = receive(&pair.far, &mut buffers, &mut headers)?;
                        pair.received.fetch_add(count, Ordering::Release);
                        moved += count;
                    }
                    came += moved;
                    patience.after(moved > 0)?;
                }
                Ok(())
            },
        )?;
        Ok(total as f64 / seconds)
    }
}

fn headers() -> MultiHeaders<()> {
    MultiHeaders::preallocate(BATCH, None)
}

/// Sets the buffers, which neither end blocks on; returns the bytes of the receive buffer in force.
fn set_up(near: &UdpSocket, far: &UdpSocket, bytes: usize) -> Result<usize, Errno> {
    for socket in [near, far] {
        let is_set = socket.set_nonblocking(true);
        is_set.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    }
    if setsockopt(near, sockopt::SndBufForce, &bytes).is_err() {
        setsockopt(near, sockopt::SndBuf, &bytes)?;
    }
    if setsockopt(far, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(far, sockopt::RcvBuf, &bytes)?;
    }
    getsockopt(far, sockopt::RcvBuf)
}

fn send(
    socket: &UdpSocket,
    payload: &[u8],
    count: usize,
    headers: &mut MultiHeaders<()>,
) -> Result<u64, BenchError> {
    if count == 0 {
        return Ok(0);
    }
    let slices: [[IoSlice<'_>; 1]; BATCH] = std::array::from_fn(|_| [IoSlice::new(payload)]);
    let no_control: [ControlMessage<'_>; 0] = [];
    let sent = sendmmsg(
        socket.as_raw_fd(),
        headers,
        &slices[..count],
        [None; BATCH],
        no_control,
        MsgFlags::empty(),
    );
    match sent {
        Ok(sent) => Ok(sent.count() as u64),
        Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => Ok(0),
        Err(errno) => Err(system("sending bare UDP")(errno.into())),
    }
}

fn receive(
    socket: &UdpSocket,
    buffers: &mut [Vec<u8>; BATCH],
    headers: &mut MultiHeaders<()>,
) -> Result<u64, BenchError> {
    let mut slices = buffers.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
    let came = recvmmsg(
        socket.as_raw_fd(),
        headers,
        slices.iter_mut(),
        MsgFlags::MSG_DONTWAIT,
        None,
    );
    match came {
        Ok(came) => Ok(came.count() as u64),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        Err(errno) => Err(system("receiving bare UDP")(errno.into())),
    }
}
