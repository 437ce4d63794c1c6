//! Waking another process through a descriptor that it cannot use against the waker.
//!
//! An eventfd alone would do, but whoever holds one can fill its counter and make the next write
//! block. So the waker keeps the eventfd and gives away an epoll descriptor that watches it,
//! edge-triggered: the other process can sleep on it, in [`WakeSource::wait`] or in an event loop
//! of its own, and can do nothing to the eventfd. It carries no data: who wakes up looks for work.
//!
//! Both ends of a pipe lie beside it, in which nothing ever is: the waker's end goes with the waker,
//! however that ends, and the sleeper, whose epoll descriptor watches the other end, is told. So it
//! may sleep without a time limit, which costs a timer each time.
//!
//! Many who are mostly woken together share a [`WakeGroup`], whose eventfd each of their epoll
//! descriptors watches too: one system call then wakes them all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;

/// The waking end, kept by the waker. The other end is abandoned when it is dropped.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
    /// The end whose closing says that nobody wakes any more.
    _life: OwnedFd,
}

/// The sleeping end, given to the process that is woken.
#[derive(Debug)]
pub struct WakeSource {
    epoll: OwnedFd,
    /// Kept open for the epoll descriptor, which would forget it.
    life: OwnedFd,
}

/// How a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeUp {
    /// By a wake-up.
    Woken,
    /// By the time limit or a signal.
    Nothing,
    /// The waker is gone: every further sleep ends like this one.
    Abandoned,
}

/// What the epoll descriptor says of an eventfd.
const WOKEN: u64 = 0;
/// What it says of the pipe.
const ABANDONED: u64 = 1;

/// Makes both ends.
///
/// # Errors
/// What the kernel says, most often that there are no descriptors left.
pub fn wake_pair() -> io::Result<(Waker, WakeSource)> {
    let event = event_descriptor()?;
    let (life, life_of_waker) = pipe_with(PipeFlags::CLOEXEC)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    watch(&epoll, &event)?;
    // Nothing is asked for: that the other end is closed is always said, and said again.
    let (no_flags, data) = (epoll::EventFlags::empty(), ABANDONED);
    epoll::add(&epoll, &life, epoll::EventData::new_u64(data), no_flags)?;
    let waker = Waker {
        event,
        _life: life_of_waker,
    };
    Ok((waker, WakeSource { epoll, life }))
}

fn event_descriptor() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn watch(epoll: &OwnedFd, event: &OwnedFd) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    Ok(epoll::add(
        epoll,
        event,
        epoll::EventData::new_u64(WOKEN),
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
    /// The sleeping end of received descriptors, in the order of [`WakeSource::into_fds`].
    pub fn from_fds(epoll: OwnedFd, life: OwnedFd) -> Self {
        Self { epoll, life }
    }

    /// The descriptors, to be passed on: the one to sleep on, and the one to be kept open.
    pub fn into_fds(self) -> (OwnedFd, OwnedFd) {
        (self.epoll, self.life)
    }

    /// Sleeps until woken or abandoned, or for `timeout`. A wake-up since the last call ends it at
    /// once.
    ///
    /// # Errors
    /// What the kernel says: the descriptor is not what [`wake_pair`] makes.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<WakeUp> {
        let limit = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // Its own event, that of its group and its end may all have come.
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(WOKEN),
        }; 3];
        let count = match epoll::wait(&self.epoll, &mut events[..], limit.as_ref()) {
            Err(Errno::INTR) => 0,
            count => count?,
        };
        let is_wake_up = |event: &epoll::Event| event.data.u64() == WOKEN;
        Ok(match &events[..count] {
            [] => WakeUp::Nothing,
            some if some.iter().any(is_wake_up) => WakeUp::Woken,
            _ => WakeUp::Abandoned,
        })
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

    fn is_woken(source: &WakeSource, timeout: Option<Duration>) -> bool {
        source.wait(timeout).unwrap() == WakeUp::Woken
    }

    #[test]
    fn every_wake_up_wakes_once_also_before_the_sleep() {
        let (waker, source) = wake_pair().unwrap();
        assert!(!is_woken(&source, NO_TIME));
        for _ in 0..3 {
            waker.wake();
            waker.wake();
            assert!(is_woken(&source, LONG));
            assert!(!is_woken(&source, NO_TIME));
        }
        let sleeper = std::thread::spawn(move || is_woken(&source, LONG));
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
                assert!(is_woken(source, NO_TIME));
                assert!(!is_woken(source, NO_TIME));
            }
            assert!(!is_woken(&outside, NO_TIME));
        }
        pairs[2].0.wake();
        let woken = pairs.iter().map(|(_, source)| is_woken(source, NO_TIME));
        assert_eq!(woken.collect::<Vec<_>>(), [false, false, true]);
        let ends: Vec<_> = pairs
            .into_iter()
            .map(|(waker, source)| std::thread::spawn(move || (is_woken(&source, LONG), waker)))
            .collect();
        group.wake();
        assert!(ends.into_iter().all(|end| end.join().unwrap().0));
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
        let (_, life) = source.into_fds();
        assert!(is_woken(&WakeSource::from_fds(given, life), NO_TIME));
    }

    #[test]
    fn a_sleeper_without_a_time_limit_is_told_that_nobody_wakes_it_any_more() {
        let group = WakeGroup::new().unwrap();
        let (waker, source) = group.pair().unwrap();
        let sleeper = std::thread::spawn(move || (source.wait(None).unwrap(), source));
        drop(waker);
        let (end, source) = sleeper.join().unwrap();
        assert_eq!(end, WakeUp::Abandoned);
        assert_eq!(source.wait(None).unwrap(), WakeUp::Abandoned, "again");
        // What was said before comes first, if it is still there.
        group.wake();
        assert_eq!(source.wait(None).unwrap(), WakeUp::Woken);
        assert_eq!(source.wait(None).unwrap(), WakeUp::Abandoned);
    }
}
