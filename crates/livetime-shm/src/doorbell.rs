//! A doorbell: how an idle thread or process is woken.
//!
//! Two words in shared memory: a count of rings, which is also the futex, and the number of
//! sleepers. Ringing an awake listener costs no system call. It carries no data: whoever wakes up
//! looks for work. Waking another core costs tens of microseconds, so doorbells are for idle and
//! control, not for the trigger loop; see [`crate::wait`].
//!
//! The order that loses no wake-up: take a [`Ticket`], look for work, and only then wait with
//! that ticket. A ring after the ticket was taken ends the wait at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::mapping::{HugePages, Mapping, MappingError};
use crate::socket_bell::SocketBell;

const MAGIC: u64 = u64::from_le_bytes(*b"LTBELL01");

#[repr(C, align(128))]
#[derive(Debug)]
struct BellWords {
    magic: AtomicU64,
    /// Rings so far, wrapping; the word slept on.
    rings: AtomicU32,
    /// Listeners that sleep or are about to.
    sleepers: AtomicU32,
}

/// Why a doorbell could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum DoorbellError {
    /// The memory could not be had.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The memory is not a doorbell.
    #[error("not a doorbell: magic is {found:#x}")]
    Layout {
        /// Value found in place of the magic.
        found: u64,
    },
}

#[derive(Debug)]
enum Memory {
    Heap(BellWords),
    Mapped(Mapping),
}

/// A doorbell shared by those who ring and those who wait. Clones are the same doorbell.
#[derive(Debug, Clone)]
pub struct Doorbell {
    memory: Arc<Memory>,
    /// Sockets that ring it, of this process.
    sockets: Arc<OnceLock<SocketBell>>,
}

/// How often a doorbell had rung at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u32);

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waked {
    /// The doorbell has rung since the ticket was taken.
    Rung,
    /// The time is over, or a signal came.
    TimedOut,
}

impl Doorbell {
    /// A doorbell between threads of this process.
    pub fn in_process() -> Self {
        let words = BellWords {
            magic: AtomicU64::new(MAGIC),
            rings: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        };
        Self::of(Memory::Heap(words))
    }

    fn of(memory: Memory) -> Self {
        Self {
            memory: Arc::new(memory),
            sockets: Arc::default(),
        }
    }

    /// A doorbell that can be passed to another process by its descriptor.
    ///
    /// # Errors
    /// [`DoorbellError`] when there is no memory.
    pub fn shared() -> Result<Self, DoorbellError> {
        let bytes = size_of::<BellWords>();
        let mapping = Mapping::create("livetime-bell", bytes, HugePages::Never)?;
        let bell = Self::of(Memory::Mapped(mapping));
        // Release pairs with the Acquire in `open`.
        bell.words().magic.store(MAGIC, Ordering::Release);
        Ok(bell)
    }

    /// Opens a doorbell received from another process.
    ///
    /// # Errors
    /// [`DoorbellError`] when it is none.
    pub fn open(fd: OwnedFd) -> Result<Self, DoorbellError> {
        let bell = Self::of(Memory::Mapped(Mapping::open(fd)?));
        // Acquire pairs with the Release in `shared`.
        let found = bell.words().magic.load(Ordering::Acquire);
        if found != MAGIC {
            return Err(DoorbellError::Layout { found });
        }
        if let Memory::Mapped(mapping) = &*bell.memory {
            mapping.prefault()?;
        }
        Ok(bell)
    }

    /// The descriptor to pass to another process, if the doorbell is shared.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &*self.memory {
            Memory::Heap(_) => None,
            Memory::Mapped(mapping) => Some(mapping.fd()),
        }
    }

    /// Wakes everybody who waits. Call it after the work is visible (a push has returned).
    #[inline]
    pub fn ring(&self) {
        let words = self.words();
        // SeqCst, both, pair with the two in `wait`: either we see the sleeper here, or its kernel
        // sees the new count there and does not sleep.
        words.rings.fetch_add(1, Ordering::SeqCst);
        if words.sleepers.load(Ordering::SeqCst) != 0 {
            // A failure would mean a bad address, which a live mapping is not.
            let _ = futex::wake(&words.rings, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Says that nobody sleeps here: by the only listener, when it takes the place of one that died
    /// asleep. Otherwise each ring would go on to call the kernel for the dead.
    pub fn claim(&self) {
        // SeqCst pairs with the load in `ring`; whoever rings before the claimant sleeps need not
        // wake it.
        self.words().sleepers.store(0, Ordering::SeqCst);
    }

    /// A ticket for a later [`Doorbell::wait`]; take it before looking for work.
    #[inline]
    pub fn ticket(&self) -> Ticket {
        // SeqCst pairs with the addition in `ring`: work published before a ring that this ticket
        // counts is visible to the look that follows.
        Ticket(self.words().rings.load(Ordering::SeqCst))
    }

    /// Sleeps until the doorbell rings, unless it has rung since the ticket, or time is over.
    ///
    /// The timeout bounds what a dead peer can cost, so there is no wait without one.
    pub fn wait(&self, ticket: Ticket, timeout: Duration) -> Waked {
        let words = self.words();
        let start = Instant::now();
        // SeqCst, this and the kernel's look at the count, pair with the two in `ring`.
        words.sleepers.fetch_add(1, Ordering::SeqCst);
        let waked = loop {
            let left = timeout.saturating_sub(start.elapsed());
            let limit = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let slept = futex::wait(&words.rings, futex::Flags::empty(), ticket.0, Some(&limit));
            match slept {
                // The count differed from the ticket already.
                Err(Errno::AGAIN) => break Waked::Rung,
                _ if self.ticket() != ticket => break Waked::Rung,
                // Somebody who rang before the ticket was taken calls the kernel only now.
                Ok(()) => {}
                Err(_) => break Waked::TimedOut,
            }
        };
        // Relaxed: a ringer that still sees us makes one system call for nothing.
        words.sleepers.fetch_sub(1, Ordering::Relaxed);
        waked
    }

    /// Has a socket ring this bell while its listener sleeps, until the socket is closed; the first
    /// one starts a thread, which ends with the last clone of this handle. A listener that is not a
    /// [`crate::Waiter`] calls [`Doorbell::arm`].
    ///
    /// # Errors
    /// What the system says: there are no descriptors or threads left.
    pub fn watch(&self, socket: impl AsFd) -> io::Result<()> {
        if self.sockets.get().is_none() {
            let memory = Arc::clone(&self.memory);
            // Of its own: the thread must not keep itself alive.
            let sockets = Arc::default();
            let made = SocketBell::start(Self { memory, sockets })?;
            // Another thread may have been first; then this one's ends.
            let _first = self.sockets.set(made);
        }
        match self.sockets.get() {
            Some(sockets) => sockets.add(socket),
            None => Ok(()),
        }
    }

    /// Lets the sockets ring once more, at once if there is something to read: between taking a
    /// ticket and the look for work before the wait.
    #[inline]
    pub fn arm(&self) {
        if let Some(sockets) = self.sockets.get() {
            sockets.arm();
        }
    }

    #[cfg(test)]
    pub(crate) fn slept_on(&self) -> Option<&Arc<OwnedFd>> {
        self.sockets.get().map(SocketBell::slept_on)
    }

    #[inline]
    fn words(&self) -> &BellWords {
        match &*self.memory {
            Memory::Heap(words) => words,
            // SAFETY: a mapping is page aligned, at least one page long and alive as long as
            // `self`; the words are atomics, for which any bytes are valid.
            Memory::Mapped(mapping) => unsafe { mapping.base().cast::<BellWords>().as_ref() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_ring_after_the_ticket_is_not_lost() {
        for bell in [Doorbell::in_process(), Doorbell::shared().unwrap()] {
            let ticket = bell.ticket();
            bell.ring();
            assert_eq!(bell.wait(ticket, LONG), Waked::Rung);
            assert_eq!(
                bell.wait(bell.ticket(), Duration::from_micros(10)),
                Waked::TimedOut
            );
        }
    }

    #[test]
    fn a_sleeper_is_woken_each_time() {
        const ROUNDS: u32 = 200;
        let there = Doorbell::shared().unwrap();
        let back = Doorbell::in_process();
        let far = Doorbell::open(there.fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        let answer = back.clone();
        let first = far.ticket();
        let echo = std::thread::spawn(move || {
            let mut ticket = first;
            for _ in 0..ROUNDS {
                assert_eq!(far.wait(ticket, LONG), Waked::Rung);
                ticket = far.ticket();
                answer.ring();
            }
        });
        for _ in 0..ROUNDS {
            let ticket = back.ticket();
            there.ring();
            assert_eq!(back.wait(ticket, LONG), Waked::Rung);
        }
        echo.join().unwrap();
    }

    #[test]
    fn a_call_of_an_earlier_ring_that_comes_late_does_not_end_the_wait() {
        let bell = Doorbell::in_process();
        let ticket = bell.ticket();
        let listener = bell.clone();
        let asleep = std::thread::spawn(move || listener.wait(ticket, LONG));
        let wake = || futex::wake(&bell.words().rings, futex::Flags::empty(), 1);
        while wake().unwrap() == 0 {
            std::thread::yield_now();
        }
        bell.ring();
        assert_eq!(asleep.join().unwrap(), Waked::Rung);
    }

    #[test]
    fn a_claimed_doorbell_forgets_who_died_asleep() {
        let bell = Doorbell::shared().unwrap();
        bell.words().sleepers.store(1, Ordering::SeqCst);
        bell.claim();
        assert_eq!(bell.words().sleepers.load(Ordering::SeqCst), 0);
        let ticket = bell.ticket();
        bell.ring();
        assert_eq!(bell.wait(ticket, LONG), Waked::Rung);
    }

    #[test]
    fn other_memory_is_no_doorbell() {
        let mapping = Mapping::create("test", 4096, HugePages::Never).unwrap();
        let fd = mapping.fd().try_clone_to_owned().unwrap();
        assert!(matches!(
            Doorbell::open(fd),
            Err(DoorbellError::Layout { found: 0 })
        ));
    }
}
