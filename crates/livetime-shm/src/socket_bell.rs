//! Sockets that ring a doorbell: for whoever sleeps at a bell and hears of some work over sockets.
//!
//! A futex and sockets cannot be slept on together. So a thread sleeps on the sockets and rings the
//! bell; it does so once for each time that it is armed, which the sleeper does before its last look
//! for work. While the sleeper is awake nothing is armed, and what comes costs no switch of threads.
//! Nothing is read here.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::doorbell::Doorbell;

const SOCKETS: u64 = 0;
const END: u64 = 1;

/// The sockets, and the thread that sleeps on them; it ends with the value.
#[derive(Debug)]
pub(crate) struct SocketBell {
    /// Ready as long as there is something to read on any of them.
    sockets: OwnedFd,
    /// What the thread sleeps on: the sockets while armed, and the end.
    slept_on: Arc<OwnedFd>,
    /// The thread has it too: closed right after it was written to, it would not wake anybody.
    end: Arc<OwnedFd>,
}

impl SocketBell {
    /// No sockets yet, and a thread that will ring `bell`.
    ///
    /// # Errors
    /// What the system says: there are no descriptors or threads left.
    pub(crate) fn start(bell: Doorbell) -> io::Result<Self> {
        let sockets = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let slept_on = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        // Not armed: nothing is waited for.
        let unarmed = epoll::EventFlags::ONESHOT;
        epoll::add(
            &*slept_on,
            &sockets,
            epoll::EventData::new_u64(SOCKETS),
            unarmed,
        )?;
        let to_read = epoll::EventFlags::IN;
        epoll::add(&*slept_on, &*end, epoll::EventData::new_u64(END), to_read)?;
        let thread = std::thread::Builder::new().name("socket-bell".to_owned());
        let (of_thread, open_end) = (Arc::clone(&slept_on), Arc::clone(&end));
        thread.spawn(move || {
            ring_until_end(&of_thread, &bell);
            drop(open_end);
        })?;
        Ok(Self {
            sockets,
            slept_on,
            end,
        })
    }

    /// Adds a socket; one that is closed is taken out by the kernel.
    ///
    /// # Errors
    /// What the system says about the socket.
    pub(crate) fn add(&self, socket: impl AsFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(SOCKETS);
        Ok(epoll::add(
            &self.sockets,
            socket,
            data,
            epoll::EventFlags::IN,
        )?)
    }

    #[cfg(test)]
    pub(crate) fn slept_on(&self) -> &Arc<OwnedFd> {
        &self.slept_on
    }

    /// Has the bell rung once when there is something to read, at once if there is already.
    pub(crate) fn arm(&self) {
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        let data = epoll::EventData::new_u64(SOCKETS);
        // Both descriptors live as long as `self`.
        let _armed = epoll::modify(&*self.slept_on, &self.sockets, data, once);
    }
}

impl Drop for SocketBell {
    fn drop(&mut self) {
        // It takes 2^64 writes to fill it.
        let _ended = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
    }
}

fn ring_until_end(slept_on: &OwnedFd, bell: &Doorbell) {
    let nothing = epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(SOCKETS),
    };
    let mut events = [nothing; 2];
    loop {
        let count = match epoll::wait(slept_on, &mut events[..], None) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        // A packed field of the kernel's is copied before it is looked at.
        if events[..count]
            .iter()
            .any(|event| { event.data }.u64() == END)
        {
            return;
        }
        bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::doorbell::Waked;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_comes_while_armed_rings_once_and_else_not_at_all() {
        let bell = Doorbell::in_process();
        let (mut far, mut near) = UnixStream::pair().unwrap();
        let (other_far, other_near) = UnixStream::pair().unwrap();
        bell.watch(&near).unwrap();
        bell.watch(&other_near).unwrap();
        for round in 0..3 {
            let ticket = bell.ticket();
            far.write_all(b"event").unwrap();
            assert_eq!(ticket, bell.ticket(), "round {round}: not armed");
            bell.arm();
            assert_eq!(bell.wait(ticket, LONG), Waked::Rung);
            let ticket = bell.ticket();
            far.write_all(b"more").unwrap();
            assert_eq!(ticket, bell.ticket(), "armed for one time");
            near.read_exact(&mut [0; 9]).unwrap();
            bell.arm();
            far.write_all(b"next").unwrap();
            assert_eq!(bell.wait(ticket, LONG), Waked::Rung);
            near.read_exact(&mut [0; 4]).unwrap();
        }
        // So does the end of a socket.
        let ticket = bell.ticket();
        bell.arm();
        drop(other_far);
        assert_eq!(bell.wait(ticket, LONG), Waked::Rung);
    }

    #[test]
    fn the_thread_ends_with_the_last_handle() {
        let bell = Doorbell::in_process();
        let (_far, near) = UnixStream::pair().unwrap();
        bell.watch(&near).unwrap();
        let slept_on = Arc::downgrade(bell.slept_on().unwrap());
        drop(bell);
        while slept_on.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
