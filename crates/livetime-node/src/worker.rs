//! Workers: threads that poll their roles in a fixed order.
//!
//! A role is not a thread. Each duty cycle polls every role of the worker once; the sum of their
//! work tells the waiter how to spend the time until the next. What a role does is in `role/`.

use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use livetime_shm::{SharedWords, WaitCounts, Waiter, pin_current_thread};

use crate::role::Role;
use crate::run_clock::RunClock;

/// What the run's driver wants of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Take data.
    Running = 0,
    /// Offer no more triggers; pass on what is there.
    Draining = 1,
    /// Everything has passed: end.
    Ending = 2,
    /// End at once; what is held is counted as lost.
    Aborting = 3,
}

/// The phase, shared by the driver and all workers.
#[derive(Debug, Clone)]
pub struct PhaseCell {
    words: SharedWords,
    index: usize,
}

impl Default for PhaseCell {
    /// A cell for threads of this process.
    fn default() -> Self {
        Self {
            words: SharedWords::on_heap(1),
            index: 0,
        }
    }
}

impl PhaseCell {
    /// The cell at `index` of shared words, which must have such a word.
    pub fn at(words: &SharedWords, index: usize) -> Self {
        assert!(
            index < words.words().len(),
            "the words have a place for the phase"
        );
        Self {
            words: words.clone(),
            index,
        }
    }

    /// The present phase.
    pub fn get(&self) -> Phase {
        // Relaxed: the phase orders nothing; data moves through the rings.
        match self.words.words()[self.index].load(Ordering::Relaxed) {
            0 => Phase::Running,
            1 => Phase::Draining,
            2 => Phase::Ending,
            _ => Phase::Aborting,
        }
    }

    /// Moves on; a phase never goes back.
    pub fn advance(&self, phase: Phase) {
        self.words.words()[self.index].fetch_max(phase as u64, Ordering::Relaxed);
    }
}

/// A worker that is to be started.
pub struct Worker {
    /// Name of the thread.
    pub name: String,
    /// Core to run on, if it is to be pinned.
    pub core: Option<usize>,
    /// How it waits.
    pub waiter: Waiter,
    /// Its roles in the order in which they are polled.
    pub roles: Vec<Box<dyn Role>>,
}

/// What a worker leaves behind.
pub struct WorkerResult {
    /// Name of its thread.
    pub name: String,
    /// Its roles, to be finished by the run's driver.
    pub roles: Vec<Box<dyn Role>>,
    /// How it spent its time.
    pub waits: WaitCounts,
    /// Why it could not be pinned, if it was to be.
    pub pin_error: Option<String>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(
        self,
        clock: RunClock,
        phase: PhaseCell,
    ) -> std::io::Result<JoinHandle<WorkerResult>> {
        let name = self.name.clone();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || self.run(&clock, &phase))
    }

    fn run(self, clock: &RunClock, phase: &PhaseCell) -> WorkerResult {
        let Self {
            name,
            core,
            mut waiter,
            mut roles,
        } = self;
        let pin = core.map(pin_current_thread).transpose();
        loop {
            let now_phase = phase.get();
            if now_phase >= Phase::Ending {
                break;
            }
            let mut work = 0;
            for role in &mut roles {
                work += role.poll(clock.now(), now_phase);
            }
            waiter.after(work);
        }
        WorkerResult {
            name,
            roles,
            waits: waiter.counts(),
            pin_error: pin.err().map(|error| error.to_string()),
        }
    }
}
