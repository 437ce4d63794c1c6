//! Waiting for a peer that may never answer: connecting to a socket, and any future, for so long.

use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use zbus::block_on;

/// Pause between two looks whether a peer whose queue of connections is full takes one more.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(20);

/// Connects to a socket; `None` when its queue of connections was full until `until`, since nobody
/// accepts there.
pub(crate) fn connect_until(path: &Path, until: Instant) -> io::Result<Option<UnixStream>> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(Some(socket.into())),
            // A socket that blocks would wait in the call, for ever.
            Err(Errno::AGAIN) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(None);
                }
                std::thread::sleep(left.min(QUEUE_FULL_PAUSE));
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[derive(Default)]
struct Alarm {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Alarm {
    fn waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // SeqCst, with the load in `block_on_until`: either the future is polled after this, or its
        // waker is there to be woken.
        self.rung.store(true, Ordering::SeqCst);
        if let Some(waker) = self.waker().take() {
            waker.wake();
        }
    }
}

/// What `future` gives, or `None` when it gives nothing until `until`; it is dropped then.
///
/// # Errors
/// When there is no thread for the alarm.
pub(crate) fn block_on_until<T>(
    until: Instant,
    future: impl Future<Output = T>,
) -> io::Result<Option<T>> {
    let alarm = Arc::new(Alarm::default());
    let (given, waiting) = mpsc::channel::<()>();
    let ringing = Arc::clone(&alarm);
    std::thread::Builder::new()
        .name("timing-deadline".to_owned())
        .spawn(move || {
            let left = until.saturating_duration_since(Instant::now());
            // Nothing is sent: it ends early with the other end of the channel.
            if waiting.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Timeout) {
                ringing.ring();
            }
        })?;
    let mut future = pin!(future);
    let found = block_on(poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        *alarm.waker() = Some(context.waker().clone());
        if alarm.rung.load(Ordering::SeqCst) {
            return Poll::Ready(None);
        }
        Poll::Pending
    }));
    drop(given);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_that_gives_nothing_is_left_and_another_one_is_not() {
        let soon = Instant::now() + Duration::from_millis(5);
        let found = block_on_until(soon, std::future::pending::<u8>());
        assert_eq!(found.unwrap(), None);
        let late = Instant::now() + Duration::from_secs(3600);
        assert_eq!(block_on_until(late, async { 7 }).unwrap(), Some(7));
        // What is there already is given however late it is.
        assert_eq!(block_on_until(soon, async { 8 }).unwrap(), Some(8));
    }

    #[test]
    fn a_socket_where_nobody_accepts_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full.sock");
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let soon = || Instant::now() + Duration::from_millis(5);
        let queued = connect_until(&path, soon()).unwrap();
        assert!(queued.is_some(), "one waits in the queue");
        assert!(connect_until(&path, soon()).unwrap().is_none());
        let nobody = connect_until(&folder.path().join("none.sock"), soon());
        assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
