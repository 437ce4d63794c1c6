//! Which of many sockets have something to be read, found in one call for all of them.
//!
//! A role with a socket for each link would ask the system about each of them whenever it is polled,
//! mostly in vain, and a call costs about as much as a small fragment. A [`SocketWatch`] asks once;
//! only the sockets that it names are read then.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{CreateFlags, Event, EventData, EventFlags, add, create, wait};
use rustix::time::Timespec;

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Sockets that one look finds at most. The system names those that were left out the next time.
const FOUND_MAX: usize = 64;

/// The sockets of a role, by index.
#[derive(Debug)]
pub(crate) struct SocketWatch {
    /// None without sockets, and where the system refuses one: all are read in vain then.
    epoll: Option<OwnedFd>,
    is_ready: Vec<bool>,
    /// Those that the last look has found.
    found: Vec<usize>,
}

impl SocketWatch {
    /// Watches sockets; `None` for an index that has none.
    pub(crate) fn new<'a>(sockets: impl Iterator<Item = Option<BorrowedFd<'a>>>) -> Self {
        let sockets: Vec<_> = sockets.collect();
        let epoll = match sockets.iter().any(Option::is_some) {
            true => create(CreateFlags::CLOEXEC).ok(),
            false => None,
        };
        let epoll = epoll.filter(|epoll| {
            let mut all = (0..).zip(&sockets);
            all.all(|(index, socket)| {
                let data = EventData::new_u64(index);
                (*socket).is_none_or(|socket| add(epoll, socket, data, EventFlags::IN).is_ok())
            })
        });
        Self {
            is_ready: vec![epoll.is_none(); sockets.len()],
            found: Vec::with_capacity(FOUND_MAX),
            epoll,
        }
    }

    /// Looks which have something to be read, or have ended.
    pub(crate) fn look(&mut self) {
        let Some(epoll) = &self.epoll else {
            return;
        };
        for index in self.found.drain(..) {
            self.is_ready[index] = false;
        }
        let mut events = [const { MaybeUninit::<Event>::uninit() }; FOUND_MAX];
        // Interrupted by a signal, nothing is known to be there: the next look finds it.
        let Ok((events, _)) = wait(epoll.as_fd(), &mut events, Some(&AT_ONCE)) else {
            return;
        };
        for event in events {
            let index = event.data.u64() as usize;
            self.is_ready[index] = true;
            self.found.push(index);
        }
    }

    /// Whether a socket had something to be read when it was looked last.
    pub(crate) fn is_ready(&self, index: usize) -> bool {
        self.is_ready.get(index).copied().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn sockets_with_something_to_read_are_named_until_it_is_read() {
        let (mut near, far): (Vec<_>, Vec<_>) = (0..3).map(|_| UnixStream::pair().unwrap()).unzip();
        let sockets = [Some(far[0].as_fd()), None, Some(far[2].as_fd())];
        let mut watch = SocketWatch::new(sockets.into_iter());
        let ready = |watch: &mut SocketWatch| {
            watch.look();
            [0, 1, 2].map(|index| watch.is_ready(index))
        };
        assert_eq!(ready(&mut watch), [false; 3]);
        near[2].write_all(b"ab").unwrap();
        assert_eq!(ready(&mut watch), [false, false, true]);
        (&far[2]).read_exact(&mut [0]).unwrap();
        near[0].write_all(b"c").unwrap();
        assert_eq!(ready(&mut watch), [true, false, true]);
        (&far[2]).read_exact(&mut [0]).unwrap();
        assert_eq!(ready(&mut watch), [true, false, false]);
        // One that has ended is to be read, to find that.
        drop(near.remove(2));
        assert_eq!(ready(&mut watch), [true, false, true]);
    }

    #[test]
    fn without_sockets_nothing_is_asked_of_the_system() {
        let mut watch = SocketWatch::new([None, None].into_iter());
        watch.look();
        assert!(watch.epoll.is_none());
        assert!(watch.is_ready(0), "it may be read, at worst in vain");
    }
}
