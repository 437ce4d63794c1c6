//! The socket of a peer, which is not read on while the peer does not read what it asked for.
//!
//! The library serves calls of the standard interfaces in tasks of their own, each of which keeps
//! its answer until there is room in the socket; so that a peer that calls and does not read would
//! have the daemon keep answers without bound. Here the next message is read only while fewer than
//! [`CALLS_UNANSWERED`] calls have no answer yet and nothing is being written: such a peer stops
//! itself, whatever it calls.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zbus::Message;
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;
use zbus::fdo::ConnectionCredentials;
use zbus::message::{Flags, Type};

use super::readiness::{Direction, Readiness, Watched};

/// Calls of one peer that are read before the first of them is answered.
pub const CALLS_UNANSWERED: usize = 8;
/// Descriptors that come with a message at most, as the kernel allows.
const FDS_MAX: usize = 253;

#[derive(Debug, Default)]
struct GateState {
    unanswered: usize,
    writing: bool,
    /// Nothing can be written any more: the reader shall see the end.
    broken: bool,
    reader: Option<Waker>,
}

/// Whether the next message of a peer is read.
#[derive(Debug, Default)]
struct Gate(Mutex<GateState>);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        let mut state = self.lock();
        change(&mut state);
        if state.is_open()
            && let Some(reader) = state.reader.take()
        {
            reader.wake();
        }
    }

    /// Waits until the next message may be read.
    async fn pass(&self) {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.is_open() {
                return Poll::Ready(());
            }
            state.reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn handle_received(&self, message: &Message) {
        let header = message.primary_header();
        let is_call = header.msg_type() == Type::MethodCall;
        if is_call && !header.flags().contains(Flags::NO_REPLY_EXPECTED) {
            self.change(|state| state.unanswered += 1);
        }
    }

    fn handle_sent(&self, message: &Message, result: &zbus::Result<()>) {
        let is_answer = matches!(message.message_type(), Type::MethodReturn | Type::Error);
        self.change(|state| {
            if is_answer {
                // An error may answer a call that wanted no answer.
                state.unanswered = state.unanswered.saturating_sub(1);
            }
            state.broken |= result.is_err();
        });
    }
}

impl GateState {
    fn is_open(&self) -> bool {
        self.broken || (!self.writing && self.unanswered < CALLS_UNANSWERED)
    }
}

/// As long as a message is being written, also when that is given up.
struct Writing<'a>(&'a Gate);

impl<'a> Writing<'a> {
    fn begin(gate: &'a Gate) -> Self {
        gate.change(|state| state.writing = true);
        Self(gate)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.writing = false);
    }
}

/// The socket of a peer.
#[derive(Debug)]
pub(super) struct PeerStream {
    watched: Arc<Watched>,
    uid: u32,
}

impl PeerStream {
    /// A peer of this user.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn new(
        stream: UnixStream,
        uid: u32,
        readiness: &Arc<Readiness>,
    ) -> io::Result<Self> {
        Ok(Self {
            watched: Arc::new(readiness.watch(stream)?),
            uid,
        })
    }

    /// What hangs it up.
    pub(super) fn hang_up(&self) -> HangUp {
        HangUp(Arc::clone(&self.watched))
    }
}

/// Hangs a peer up, also one that does not read.
#[derive(Debug)]
pub struct HangUp(Arc<Watched>);

impl HangUp {
    /// Ends reading and writing at once.
    pub fn hang_up(&self) {
        // One that has hung up itself is as well gone.
        let _ = self.0.stream().shutdown(Shutdown::Both);
    }
}

impl Socket for PeerStream {
    type ReadHalf = PeerReader;
    type WriteHalf = PeerWriter;

    fn split(self) -> Split<PeerReader, PeerWriter> {
        let gate = Arc::new(Gate::default());
        let reader = PeerReader {
            bytes: BytesReader {
                watched: Arc::clone(&self.watched),
                uid: self.uid,
            },
            gate: Arc::clone(&gate),
        };
        let writer = PeerWriter {
            bytes: BytesWriter {
                watched: self.watched,
                uid: self.uid,
            },
            gate,
        };
        Split::new(reader, writer)
    }
}

/// Reads bytes, of which the library makes messages.
#[derive(Debug)]
struct BytesReader {
    watched: Arc<Watched>,
    uid: u32,
}

#[async_trait]
impl ReadHalf for BytesReader {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        loop {
            match receive(self.watched.stream(), buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.watched.ready(Direction::Read).await?;
                }
                received => return received,
            }
        }
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }

    async fn peer_credentials(&mut self) -> io::Result<ConnectionCredentials> {
        Ok(credentials_of(self.uid))
    }
}

fn credentials_of(uid: u32) -> ConnectionCredentials {
    ConnectionCredentials::default().set_unix_user_id(uid)
}

fn receive(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut places = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::io::retry_on_intr(|| recvmsg(stream, &mut places, &mut ancillary, flags))?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    Ok((received.bytes, fds))
}

/// The reading half.
#[derive(Debug)]
pub(super) struct PeerReader {
    bytes: BytesReader,
    gate: Arc<Gate>,
}

#[async_trait]
impl ReadHalf for PeerReader {
    async fn receive_message(
        &mut self,
        seq: u64,
        already_received_bytes: &mut Vec<u8>,
        already_received_fds: &mut Vec<OwnedFd>,
    ) -> zbus::Result<Message> {
        self.gate.pass().await;
        let received = self
            .bytes
            .receive_message(seq, already_received_bytes, already_received_fds)
            .await;
        if let Ok(message) = &received {
            self.gate.handle_received(message);
        }
        received
    }

    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.bytes.recvmsg(buffer).await
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }

    async fn peer_credentials(&mut self) -> io::Result<ConnectionCredentials> {
        self.bytes.peer_credentials().await
    }
}

/// Writes the bytes of messages.
#[derive(Debug)]
struct BytesWriter {
    watched: Arc<Watched>,
    uid: u32,
}

#[async_trait]
impl WriteHalf for BytesWriter {
    async fn sendmsg(&mut self, buffer: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        loop {
            match send(self.watched.stream(), buffer, fds) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.watched.ready(Direction::Write).await?;
                }
                sent => return sent,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.watched.stream().shutdown(Shutdown::Both)
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }

    async fn peer_credentials(&mut self) -> io::Result<ConnectionCredentials> {
        Ok(credentials_of(self.uid))
    }
}

fn send(stream: &UnixStream, buffer: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = [IoSlice::new(buffer)];
    let flags = SendFlags::NOSIGNAL;
    Ok(rustix::io::retry_on_intr(|| {
        sendmsg(stream, &bytes, &mut ancillary, flags)
    })?)
}

/// The writing half.
#[derive(Debug)]
pub(super) struct PeerWriter {
    bytes: BytesWriter,
    gate: Arc<Gate>,
}

#[async_trait]
impl WriteHalf for PeerWriter {
    async fn send_message(&mut self, message: &Message) -> zbus::Result<()> {
        let writing = Writing::begin(&self.gate);
        let sent = self.bytes.send_message(message).await;
        drop(writing);
        self.gate.handle_sent(message, &sent);
        sent
    }

    async fn sendmsg(&mut self, buffer: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.bytes.sendmsg(buffer, fds).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.bytes.close().await
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }

    async fn peer_credentials(&mut self) -> io::Result<ConnectionCredentials> {
        self.bytes.peer_credentials().await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    fn is_open(gate: &Gate) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(gate.pass()).poll(&mut context).is_ready()
    }

    #[test]
    fn a_peer_is_read_on_when_it_reads() {
        let gate = Gate::default();
        let call = Message::method_call("/a", "B").build(&()).unwrap();
        let answer = Message::method_return(&call.header()).build(&()).unwrap();
        let signal = Message::signal("/a", "b.c", "D").build(&()).unwrap();
        for read in 0..CALLS_UNANSWERED {
            assert!(is_open(&gate), "{read}");
            gate.handle_received(&call);
        }
        assert!(!is_open(&gate));
        gate.handle_sent(&signal, &Ok(()));
        assert!(!is_open(&gate), "a signal answers nothing");
        gate.handle_sent(&answer, &Ok(()));
        assert!(is_open(&gate));
        let writing = Writing::begin(&gate);
        assert!(!is_open(&gate));
        drop(writing);
        assert!(is_open(&gate));
        gate.handle_received(&call);
        assert!(!is_open(&gate));
        // The end of the peer is seen by its reader.
        gate.handle_sent(
            &signal,
            &Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        );
        assert!(is_open(&gate));
    }
}
