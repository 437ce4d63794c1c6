//! What a polling thread does when a duty cycle found no work.
//!
//! A worker calls [`Waiter::after`] once per duty cycle with the work done. The waiter knows no
//! ring and no role; it only spends the time. Costs measured on the class of machine this was made
//! on: a spin turn 24 ns, `sched_yield` below 1 us, waking from sleep 46 us across cores.

use std::time::{Duration, Instant};

use crate::doorbell::{Doorbell, Ticket, Waked};

/// How a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitStrategy {
    /// Never gives the core away: lowest latency, one core per worker needed.
    Spin,
    /// Spins for a few microseconds, then yields to other threads, and after 1 ms and a thousand
    /// looks without work sleeps 50 us at a time (100 us with the kernel's default timer slack).
    #[default]
    Adaptive,
    /// Sleeps until its doorbell rings: no load when idle, tens of microseconds to wake up.
    Block,
}

/// Idle duty cycles that an adaptive waiter spins before it yields.
const SPIN_TURNS: u32 = 256;
/// Idle time after which an adaptive waiter parks.
const PARK_AFTER: Duration = Duration::from_millis(1);
/// Idle duty cycles before an adaptive waiter parks, however long they took: a thread that was kept
/// from its core for a millisecond has not looked for work in it, and should not sleep as well.
const PARK_TURNS: u32 = SPIN_TURNS + 1024;
/// Longest sleep of an adaptive waiter: the latency it can add to an unannounced message.
const PARK_TIME: Duration = Duration::from_micros(50);
/// Longest sleep of a blocking waiter, so that stop requests and dead peers are noticed.
const BLOCK_TIME: Duration = Duration::from_millis(10);

/// How often a waiter did what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitCounts {
    /// Duty cycles with work.
    pub busy: u64,
    /// Idle cycles spent in a spin turn.
    pub spins: u64,
    /// Idle cycles spent in a yield.
    pub yields: u64,
    /// Idle cycles spent asleep.
    pub sleeps: u64,
    /// Of them those that the doorbell ended.
    pub rung: u64,
}

/// Spends the idle time of one worker thread.
///
/// # Example
/// ```
/// use livetime_shm::{WaitStrategy, Waiter};
///
/// let mut waiter = Waiter::new(WaitStrategy::Adaptive);
/// let bell = waiter.doorbell().clone(); // for those who send work
/// for work in [1, 0, 0] {
///     // ... a duty cycle doing `work` ...
///     waiter.after(work);
/// }
/// bell.ring();
/// assert_eq!((waiter.counts().busy, waiter.counts().spins), (1, 2));
/// ```
#[derive(Debug)]
pub struct Waiter {
    strategy: WaitStrategy,
    doorbell: Doorbell,
    /// Taken at the end of the last idle call, hence before the duty cycle just done.
    ticket: Option<Ticket>,
    idle_turns: u32,
    idle_since: Option<Instant>,
    counts: WaitCounts,
}

impl Waiter {
    /// A waiter with a doorbell of its own, for threads of this process.
    pub fn new(strategy: WaitStrategy) -> Self {
        Self::with_doorbell(strategy, Doorbell::in_process())
    }

    /// A waiter that sleeps at a given doorbell, such as one shared with other processes.
    pub fn with_doorbell(strategy: WaitStrategy, doorbell: Doorbell) -> Self {
        Self {
            strategy,
            doorbell,
            ticket: None,
            idle_turns: 0,
            idle_since: None,
            counts: WaitCounts::default(),
        }
    }

    /// How this waiter waits.
    pub fn strategy(&self) -> WaitStrategy {
        self.strategy
    }

    /// What senders ring to wake this waiter. Spinning waiters do not need it; adaptive ones wake
    /// up sooner by it.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// How often it did what, since it was made.
    pub fn counts(&self) -> WaitCounts {
        self.counts
    }

    /// Ends a duty cycle that did `work` items of work; returns at once unless that is 0.
    ///
    /// A sleeping strategy sleeps only in the second idle call in a row: the cycle in between is
    /// the look for work that the doorbell asks for.
    #[inline]
    pub fn after(&mut self, work: usize) {
        if work > 0 {
            self.counts.busy += 1;
            self.idle_turns = 0;
            self.idle_since = None;
            self.ticket = None;
            return;
        }
        match self.strategy {
            WaitStrategy::Spin => self.spin(),
            WaitStrategy::Adaptive if self.idle_turns < SPIN_TURNS => {
                self.idle_turns += 1;
                self.spin();
            }
            WaitStrategy::Adaptive => {
                let since = *self.idle_since.get_or_insert_with(Instant::now);
                if self.idle_turns < PARK_TURNS || since.elapsed() < PARK_AFTER {
                    self.idle_turns = self.idle_turns.saturating_add(1);
                    self.counts.yields += 1;
                    std::thread::yield_now();
                } else {
                    self.sleep(PARK_TIME);
                }
            }
            WaitStrategy::Block => self.sleep(BLOCK_TIME),
        }
    }

    #[inline]
    fn spin(&mut self) {
        self.counts.spins += 1;
        std::hint::spin_loop();
    }

    fn sleep(&mut self, longest: Duration) {
        match self.ticket {
            None => self.spin(),
            Some(ticket) => {
                self.counts.sleeps += 1;
                let waked = self.doorbell.wait(ticket, longest);
                self.counts.rung += u64::from(waked == Waked::Rung);
            }
        }
        self.ticket = Some(self.doorbell.ticket());
        self.doorbell.arm();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn work_resets_the_patience() {
        let mut waiter = Waiter::new(WaitStrategy::Adaptive);
        for _ in 0..3 {
            for _ in 0..SPIN_TURNS {
                waiter.after(0);
            }
            waiter.after(5);
        }
        let counts = waiter.counts();
        assert_eq!((counts.busy, counts.spins), (3, 3 * u64::from(SPIN_TURNS)));
        assert_eq!((counts.yields, counts.sleeps), (0, 0));
    }

    #[test]
    fn spinning_never_sleeps() {
        let mut waiter = Waiter::new(WaitStrategy::Spin);
        (0..10_000).for_each(|_| waiter.after(0));
        assert_eq!(
            waiter.counts(),
            WaitCounts {
                spins: 10_000,
                ..WaitCounts::default()
            }
        );
    }

    #[test]
    fn adaptive_goes_from_spinning_over_yielding_to_sleeping() {
        let mut waiter = Waiter::new(WaitStrategy::Adaptive);
        while waiter.counts().sleeps < 2 {
            waiter.after(0);
        }
        assert!(waiter.counts().yields > 0);
        assert!(waiter.counts().spins >= u64::from(SPIN_TURNS));
    }

    #[test]
    fn a_blocking_worker_gets_every_item() {
        const ITEMS: u64 = 2_000;
        let queue = Arc::new(AtomicU64::new(0));
        let mut waiter = Waiter::new(WaitStrategy::Block);
        let (bell, sender) = (waiter.doorbell().clone(), Arc::clone(&queue));
        let producer = std::thread::spawn(move || {
            for item in 0..ITEMS {
                sender.fetch_add(1, Ordering::Release);
                bell.ring();
                if item % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut done = 0;
        while done < ITEMS {
            let work = queue.swap(0, Ordering::Acquire);
            done += work;
            waiter.after(work as usize);
        }
        producer.join().unwrap();
        let counts = waiter.counts();
        assert_eq!(counts.yields, 0);
        assert!(counts.rung <= counts.sleeps);
    }

    #[test]
    fn a_sleep_that_the_doorbell_ended_is_counted() {
        let mut waiter = Waiter::new(WaitStrategy::Block);
        waiter.after(0);
        waiter.doorbell().ring();
        waiter.after(0);
        assert_eq!((waiter.counts().sleeps, waiter.counts().rung), (1, 1));
        waiter.after(0);
        assert_eq!((waiter.counts().sleeps, waiter.counts().rung), (2, 1));
    }
}
