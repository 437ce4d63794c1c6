//! Waking another process through a descriptor that it cannot use against the waker.
//!
//! An eventfd alone would do, but whoever holds one can fill its counter and make the next write
//! block. So the waker keeps the eventfd and gives away an epoll descriptor that watches it,
//! edge-triggered: the other process can sleep on it, in [`WakeSource::wait`] or in an event loop
//! of its own, and can do nothing to the eventfd. It carries no data: who wakes up looks for work.
//!
//! Many who are mostly woken together share a [`WakeGroup`], whose eventfd each of their epoll
//! descriptors watches too: one system call then wakes them all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::time::Timespec;

/// The waking end, kept by the waker.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

/// The sleeping end, given to the process that is woken.
#[derive(Debug)]
pub struct WakeSource {
    epoll: OwnedFd,
}

/// Makes both ends.
///
/// # Errors
/// What the kernel says, most often that there are no descriptors left.
pub fn wake_pair() -> io::Result<(Waker, WakeSource)> {
    let event = event_descriptor()?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    watch(&epoll, &event)?;
    Ok((Waker { event }, WakeSource { epoll }))
}

fn event_descriptor() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn watch(epoll: &OwnedFd, event: &OwnedFd) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    Ok(epoll::add(
        epoll,
        event,
        epoll::EventData::new_u64(0),
        flags,
    )?)
}

#[inline]
fn add_one(event: &OwnedFd) {
    // Only our side can write: the counter takes 2^64 wake-ups, and a failure to add one more
    // would leave the descriptor as ready as it is.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Sleepers that can be woken all at once. Clones are the same group.
#[derive(Debug, Clone)]
pub struct WakeGroup {
    event: Arc<OwnedFd>,
}

impl WakeGroup {
    /// A group without sleepers.
    ///
    /// # Errors
    /// What the kernel says, most often that there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: Arc::new(event_descriptor()?),
        })
    }

    /// Makes both ends of a pair, as [`wake_pair`], whose sleeping end the group wakes too.
    ///
    /// # Errors
    /// As [`wake_pair`].
    pub fn pair(&self) -> io::Result<(Waker, WakeSource)> {
        let (waker, source) = wake_pair()?;
        watch(&source.epoll, &self.event)?;
        Ok((waker, source))
    }

    /// Wakes all sleeping ends of the group; one system call that never blocks.
    #[inline]
    pub fn wake(&self) {
        add_one(&self.event);
    }
}

impl Waker {
    /// Wakes the other end; one system call that never blocks.
    #[inline]
    pub fn wake(&self) {
        add_one(&self.event);
    }
}

impl AsFd for Waker {
    /// For an event loop of the waking process itself.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl WakeSource {
    /// The sleeping end of a received descriptor.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { epoll: fd }
    }

    /// The descriptor, to be passed on.
    pub fn into_fd(self) -> OwnedFd {
        self.epoll
    }

    /// Sleeps until woken or for `timeout`, for ever without one; returns whether it was woken.
    /// A wake-up since the last call ends it at once.
    ///
    /// # Errors
    /// What the kernel says: the descriptor is not what [`wake_pair`] makes.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let limit = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // Both its own event and that of its group may have come.
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 2];
        match epoll::wait(&self.epoll, &mut events[..], limit.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for WakeSource {
    /// Readable when woken, until the next [`WakeSource::wait`]: for event loops.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));
    const NO_TIME: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn every_wake_up_wakes_once_also_before_the_sleep() {
        let (waker, source) = wake_pair().unwrap();
        assert!(!source.wait(NO_TIME).unwrap());
        for _ in 0..3 {
            waker.wake();
            waker.wake();
            assert!(source.wait(LONG).unwrap());
            assert!(!source.wait(NO_TIME).unwrap());
        }
        let sleeper = std::thread::spawn(move || source.wait(LONG).unwrap());
        waker.wake();
        assert!(sleeper.join().unwrap());
    }

    #[test]
    fn a_group_wakes_all_of_its_own_and_each_can_be_woken_alone() {
        let group = WakeGroup::new().unwrap();
        let pairs: Vec<_> = (0..3).map(|_| group.pair().unwrap()).collect();
        let (_other, outside) = wake_pair().unwrap();
        for _ in 0..2 {
            group.clone().wake();
            pairs[1].0.wake();
            for (_, source) in &pairs {
                assert!(source.wait(NO_TIME).unwrap());
                assert!(!source.wait(NO_TIME).unwrap());
            }
            assert!(!outside.wait(NO_TIME).unwrap());
        }
        pairs[2].0.wake();
        let woken = pairs
            .iter()
            .map(|(_, source)| source.wait(NO_TIME).unwrap());
        assert_eq!(woken.collect::<Vec<_>>(), [false, false, true]);
        let ends: Vec<_> = pairs
            .into_iter()
            .map(|(_waker, source)| std::thread::spawn(move || source.wait(LONG).unwrap()))
            .collect();
        group.wake();
        assert!(ends.into_iter().all(|end| end.join().unwrap()));
    }

    #[test]
    fn the_sleeping_end_cannot_be_turned_against_the_waker() {
        let (waker, source) = wake_pair().unwrap();
        let given = source.as_fd().try_clone_to_owned().unwrap();
        // Neither written nor read, and making it blocking changes nothing for the waker.
        assert!(rustix::io::write(&given, &u64::MAX.to_ne_bytes()).is_err());
        assert!(rustix::io::read(&given, &mut [0u8; 8]).is_err());
        rustix::fs::fcntl_setfl(&given, rustix::fs::OFlags::empty()).unwrap();
        for _ in 0..1000 {
            waker.wake();
        }
        assert!(WakeSource::from_fd(given).wait(NO_TIME).unwrap());
    }
}
