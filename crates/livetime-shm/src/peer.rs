//! The other process: noticing its death, and passing descriptors to it.
//!
//! A dead peer is noticed by the kernel, not by a timeout: its process descriptor becomes
//! readable, or its end of a passed socket hangs up. A peer that is merely stopped does neither,
//! so a false death cannot happen. What is done about it is up to the caller.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::time::Timespec;

/// Most descriptors in one message.
pub const PASSED_FDS_MAX: usize = 16;

/// Why a peer could not be watched or talked to.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// There is no such process (any more).
    #[error("process {pid} does not exist")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// A message carries at least one byte and at most [`PASSED_FDS_MAX`] descriptors.
    #[error("{bytes} bytes with {fds} descriptors are not a possible message")]
    Message {
        /// Bytes given.
        bytes: usize,
        /// Descriptors given.
        fds: usize,
    },
    /// A message by this name is longer than its receiver takes.
    #[error("the message `{name}` has {bytes} bytes, {bytes_max} are allowed")]
    TooLong {
        /// What it is.
        name: &'static str,
        /// Its bytes.
        bytes: usize,
        /// Most bytes of one.
        bytes_max: usize,
    },
    /// The peer has closed its end.
    #[error("the peer has closed its end of the socket")]
    HungUp,
    /// The peer sent more bytes or descriptors than a message may carry; they are discarded.
    #[error("the peer sent more than a message may carry")]
    Truncated,
    /// Descriptors of a message could not be opened here; all of them are discarded.
    #[error(
        "the peer sent descriptors that could not be opened: either this process has as many files open \
         as it may, see `ulimit -n`, or they were more than the {PASSED_FDS_MAX} allowed in a message"
    )]
    DescriptorsLost,
    /// The kernel refused a step.
    #[error("{step} failed")]
    Kernel {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A pair of connected sockets that keep messages apart: one for each process.
///
/// Both are closed on exec; hand one to a child as a standard stream or by an explicit descriptor.
///
/// # Errors
/// [`PeerError::Kernel`].
pub fn control_pair() -> Result<(OwnedFd, OwnedFd), PeerError> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| kernel("making a socket pair", errno))
}

/// Stops a process (`SIGSTOP`): it does nothing and holds everything, and is not dead.
///
/// # Errors
/// [`PeerError::NoProcess`], or [`PeerError::Kernel`].
pub fn stop_process(pid: u32) -> Result<(), PeerError> {
    signal(pid, Signal::STOP)
}

/// Lets a stopped process go on (`SIGCONT`).
///
/// # Errors
/// [`PeerError::NoProcess`], or [`PeerError::Kernel`].
pub fn continue_process(pid: u32) -> Result<(), PeerError> {
    signal(pid, Signal::CONT)
}

fn signal(pid: u32, signal: Signal) -> Result<(), PeerError> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match raw.map(|raw| kill_process(raw, signal)) {
        Some(Ok(())) => Ok(()),
        None | Some(Err(Errno::SRCH)) => Err(PeerError::NoProcess { pid }),
        Some(Err(errno)) => Err(kernel("signalling a process", errno)),
    }
}

/// Notices the end of another process.
#[derive(Debug)]
pub struct PeerWatch {
    fd: OwnedFd,
    kind: WatchKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchKind {
    Process,
    Socket,
}

impl PeerWatch {
    /// Watches a process by its number: best a child not yet waited for, whose number cannot have
    /// been given to another.
    ///
    /// # Errors
    /// [`PeerError::NoProcess`], or [`PeerError::Kernel`].
    pub fn process(pid: u32) -> Result<Self, PeerError> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let fd = match raw.map(|raw| pidfd_open(raw, PidfdFlags::empty())) {
            Some(Ok(fd)) => fd,
            None | Some(Err(Errno::SRCH | Errno::INVAL)) => {
                return Err(PeerError::NoProcess { pid });
            }
            Some(Err(errno)) => return Err(kernel("opening a process descriptor", errno)),
        };
        Ok(Self {
            fd,
            kind: WatchKind::Process,
        })
    }

    /// Watches the peer that holds the other end of a connected socket. Messages may be sent and
    /// received over a duplicate of `socket` meanwhile.
    ///
    /// It tells when the last copy of that end is closed: a child that inherited it counts too.
    pub fn socket(socket: OwnedFd) -> Self {
        Self {
            fd: socket,
            kind: WatchKind::Socket,
        }
    }

    /// Whether the peer is gone; does not wait.
    ///
    /// # Errors
    /// [`PeerError::Kernel`].
    pub fn is_gone(&self) -> Result<bool, PeerError> {
        self.wait_gone(Duration::ZERO)
    }

    /// Waits until the peer is gone, or for `timeout`; returns whether it is gone.
    ///
    /// # Errors
    /// [`PeerError::Kernel`].
    pub fn wait_gone(&self, timeout: Duration) -> Result<bool, PeerError> {
        // A hang-up is always reported; asking for input too would wake up for each message.
        let wanted = match self.kind {
            WatchKind::Process => PollFlags::IN,
            WatchKind::Socket => PollFlags::RDHUP,
        };
        let limit = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&self.fd, wanted)];
        match poll(&mut fds, Some(&limit)) {
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(kernel("polling for a peer's end", errno)),
        }
    }
}

impl AsFd for PeerWatch {
    /// For an event loop of one's own: readable (process) or hung up (socket) when gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sends one message with descriptors (`SCM_RIGHTS`) over a connected Unix socket.
///
/// # Errors
/// [`PeerError::Message`] for an empty message or too many descriptors, [`PeerError::HungUp`].
pub fn send_fds(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), PeerError> {
    if bytes.is_empty() || fds.len() > PASSED_FDS_MAX {
        return Err(PeerError::Message {
            bytes: bytes.len(),
            fds: fds.len(),
        });
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(PeerError::Message {
            bytes: bytes.len(),
            fds: fds.len(),
        });
    }
    loop {
        match sendmsg(
            &socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        ) {
            Ok(sent) if sent == bytes.len() => return Ok(()),
            Ok(_) => return Err(kernel("sending to a peer", Errno::MSGSIZE)),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(PeerError::HungUp),
            Err(errno) => return Err(kernel("sending to a peer", errno)),
        }
    }
}

/// A message received with its descriptors.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message, at the front of the buffer.
    pub bytes: usize,
    /// The descriptors, in the sender's order; closed on exec.
    pub fds: Vec<OwnedFd>,
}

/// Receives one message with its descriptors from a connected Unix socket into `buffer`.
///
/// # Errors
/// [`PeerError::HungUp`] when the peer is gone, [`PeerError::Truncated`] when the message does not
/// fit, [`PeerError::DescriptorsLost`] when this process cannot have its descriptors,
/// [`PeerError::Kernel`] (`WouldBlock` on a non-blocking socket without a message).
pub fn recv_fds(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received, PeerError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Err(PeerError::HungUp),
            Err(errno) => return Err(kernel("receiving from a peer", errno)),
        }
    };
    // Collected in any case, so that descriptors of a refused message are closed.
    let fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(PeerError::Truncated);
    }
    // The kernel says this of more descriptors than there is room for, and also of any that would
    // exceed the limit of this process.
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(PeerError::DescriptorsLost);
    }
    if message.bytes == 0 {
        return Err(PeerError::HungUp);
    }
    Ok(Received {
        bytes: message.bytes,
        fds,
    })
}

fn kernel(step: &'static str, errno: Errno) -> PeerError {
    PeerError::Kernel {
        step,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn descriptors_arrive_in_order_and_work() {
        let (ours, theirs) = control_pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        send_fds(&ours, b"pipe", &[read.as_fd(), write.as_fd()]).unwrap();
        send_fds(&ours, b"plain", &[]).unwrap();

        let mut buffer = [0; 16];
        let received = recv_fds(&theirs, &mut buffer).unwrap();
        assert_eq!(&buffer[..received.bytes], b"pipe");
        let [far_read, far_write] = <[OwnedFd; 2]>::try_from(received.fds).unwrap();
        rustix::io::write(&far_write, b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&read, &mut byte), Ok(1));
        rustix::io::write(&write, b"y").unwrap();
        assert_eq!(rustix::io::read(&far_read, &mut byte), Ok(1));
        assert_eq!(&byte, b"y");

        let plain = recv_fds(&theirs, &mut buffer).unwrap();
        assert_eq!(
            (&buffer[..plain.bytes], plain.fds.len()),
            (&b"plain"[..], 0)
        );
    }

    #[test]
    fn impossible_and_oversized_messages_are_refused() {
        let (ours, theirs) = control_pair().unwrap();
        assert!(matches!(
            send_fds(&ours, b"", &[]),
            Err(PeerError::Message { .. })
        ));
        let many = [ours.as_fd(); PASSED_FDS_MAX + 1];
        assert!(matches!(
            send_fds(&ours, b"x", &many),
            Err(PeerError::Message { .. })
        ));
        send_fds(&ours, b"longer", &[ours.as_fd()]).unwrap();
        assert!(matches!(
            recv_fds(&theirs, &mut [0; 3]),
            Err(PeerError::Truncated)
        ));
    }

    #[test]
    fn a_closed_end_is_noticed_even_behind_unread_messages() {
        let (ours, theirs) = control_pair().unwrap();
        let watch = PeerWatch::socket(ours.try_clone().unwrap());
        send_fds(&theirs, b"last words", &[]).unwrap();
        assert!(!watch.is_gone().unwrap());
        drop(theirs);
        assert!(watch.is_gone().unwrap());
        let mut buffer = [0; 16];
        assert_eq!(recv_fds(&ours, &mut buffer).unwrap().bytes, 10);
        assert!(matches!(
            recv_fds(&ours, &mut buffer),
            Err(PeerError::HungUp)
        ));
        assert!(matches!(send_fds(&ours, b"x", &[]), Err(PeerError::HungUp)));
    }

    #[test]
    fn a_killed_process_is_noticed_by_number_and_by_socket() {
        let (ours, theirs) = control_pair().unwrap();
        let mut child = Command::new("cat")
            .stdin(Stdio::from(theirs))
            .spawn()
            .unwrap();
        let by_socket = PeerWatch::socket(ours);
        let by_number = PeerWatch::process(child.id()).unwrap();
        assert!(!by_number.is_gone().unwrap());
        assert!(!by_socket.is_gone().unwrap());
        child.kill().unwrap();
        assert!(by_number.wait_gone(LONG).unwrap());
        assert!(by_socket.wait_gone(LONG).unwrap());
        child.wait().unwrap();
        assert!(by_number.is_gone().unwrap());
    }

    #[test]
    fn a_process_that_never_was_cannot_be_watched() {
        for pid in [0, i32::MAX as u32, u32::MAX] {
            let watch = PeerWatch::process(pid);
            assert!(
                matches!(watch, Err(PeerError::NoProcess { .. })),
                "{watch:?}"
            );
        }
    }
}
