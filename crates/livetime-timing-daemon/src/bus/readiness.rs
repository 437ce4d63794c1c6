//! Wakes tasks whose socket can be read or written: one thread for all peers.
//!
//! A [`Watched`] socket is looked at by the kernel only while a task waits for it. Woken tasks try
//! again, and wait again if it was for the other direction. [`super::peer_stream`] is the user.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// Token of the end of the thread.
const END: u64 = 0;
/// Sockets told of at a time.
const EVENTS: usize = 64;

/// What a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Read = 0,
    Write = 1,
}

/// Who waits for one socket, by direction.
type Waiting = [Option<Waker>; 2];

#[derive(Debug)]
struct Shared {
    epoll: OwnedFd,
    waiting: Mutex<BTreeMap<u64, Waiting>>,
}

/// The thread that wakes; it ends when the last user is gone.
#[derive(Debug)]
pub(super) struct Readiness {
    shared: Arc<Shared>,
    tokens: AtomicU64,
    /// The thread sees its other end hang up.
    _end: UnixStream,
}

impl Readiness {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no descriptor or no thread.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let (end, watched) = UnixStream::pair()?;
        epoll::add(&epoll, &watched, EventData::new_u64(END), EventFlags::IN)?;
        let shared = Arc::new(Shared {
            epoll,
            waiting: Mutex::default(),
        });
        let its = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("timing-readiness".to_owned())
            .spawn(move || {
                its.run();
                drop(watched);
            })?;
        Ok(Arc::new(Self {
            shared,
            tokens: AtomicU64::new(END + 1),
            _end: end,
        }))
    }

    /// Watches a socket, which does not block from now on.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn watch(self: &Arc<Self>, stream: UnixStream) -> io::Result<Watched> {
        stream.set_nonblocking(true)?;
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        let data = EventData::new_u64(token);
        epoll::add(&self.shared.epoll, &stream, data, EventFlags::ONESHOT)?;
        Ok(Watched {
            stream,
            token,
            readiness: Arc::clone(self),
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                // Only of a descriptor that is none.
                Err(_) => return,
            }
            for event in &events {
                let data = event.data;
                if data.u64() == END {
                    return;
                }
                let waiting = self.lock().remove(&data.u64());
                for waker in waiting.into_iter().flatten().flatten() {
                    waker.wake();
                }
            }
        }
    }
}

/// A socket that tasks can wait for.
#[derive(Debug)]
pub(super) struct Watched {
    stream: UnixStream,
    token: u64,
    readiness: Arc<Readiness>,
}

impl Watched {
    /// The socket.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Waits until it may be ready: try, and wait again if it is not. One task for each direction.
    pub(super) async fn ready(&self, direction: Direction) -> io::Result<()> {
        let shared = &self.readiness.shared;
        let mut armed = false;
        poll_fn(|context| {
            let mut all = shared.lock();
            let waiting = all.entry(self.token).or_default();
            let place = &mut waiting[direction as usize];
            if armed && place.is_none() {
                if waiting.iter().all(Option::is_none) {
                    all.remove(&self.token);
                }
                return Poll::Ready(Ok(()));
            }
            *place = Some(context.waker().clone());
            if armed {
                return Poll::Pending;
            }
            armed = true;
            let mut flags = EventFlags::ONESHOT;
            let of = [EventFlags::IN, EventFlags::OUT];
            for (place, flag) in waiting.iter().zip(of) {
                flags.set(flag, place.is_some());
            }
            let data = EventData::new_u64(self.token);
            match epoll::modify(&shared.epoll, &self.stream, data, flags) {
                Ok(()) => Poll::Pending,
                Err(errno) => Poll::Ready(Err(errno.into())),
            }
        })
        .await
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It goes with its descriptor anyway, unless another process has that too.
        let _ = epoll::delete(&self.readiness.shared.epoll, &self.stream);
        self.readiness.shared.lock().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_task_is_woken_by_what_it_waits_for_and_by_the_end_of_the_peer() {
        let readiness = Readiness::start().unwrap();
        let (own, mut peer) = UnixStream::pair().unwrap();
        let own = readiness.watch(own).unwrap();
        let would_block = io::ErrorKind::WouldBlock;
        assert_eq!(own.stream().read(&mut [0]).unwrap_err().kind(), would_block);
        let mut left = peer.try_clone().unwrap();
        let writer = std::thread::spawn(move || left.write_all(&[7]).unwrap());
        let mut byte = [0];
        zbus::block_on(async {
            while own.stream().read(&mut byte).is_err() {
                own.ready(Direction::Read).await.unwrap();
            }
        });
        writer.join().unwrap();
        assert_eq!(byte, [7]);
        while own.stream().write(&[0; 4096]).is_ok() {}
        let reader = std::thread::spawn(move || peer.read_exact(&mut [0; 4096]).unwrap());
        zbus::block_on(async {
            while matches!(own.stream().write(&[0; 4096]), Err(e) if e.kind() == would_block) {
                own.ready(Direction::Write).await.unwrap();
            }
        });
        // The other end is gone with its thread.
        reader.join().unwrap();
        zbus::block_on(own.ready(Direction::Read)).unwrap();
    }
}
