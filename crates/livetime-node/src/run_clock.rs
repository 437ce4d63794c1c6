//! The clock of a run: nanoseconds since its start, the same for all workers.

use livetime_shm::TscClock;
use livetime_wire::RunNs;

/// Reads the time since the start of the run; cheap to clone, monotonic, the same for all threads.
#[derive(Debug, Clone)]
pub struct RunClock {
    clock: TscClock,
    start_ns: u64,
}

impl RunClock {
    /// Starts the run's time now; takes some milliseconds to calibrate the time-stamp counter.
    #[inline]
    pub fn start() -> Self {
        let clock = TscClock::calibrate();
        let start_ns = clock.now_ns();
        Self { clock, start_ns }
    }

    /// The clock as words, so that another process of this machine reads the same time.
    #[inline]
    pub fn to_words(&self) -> [u64; 5] {
        let [a, b, c, d] = self.clock.to_words();
        [self.start_ns, a, b, c, d]
    }

    /// The clock of [`RunClock::to_words`].
    #[inline]
    pub fn from_words(words: [u64; 5]) -> Self {
        let [start_ns, a, b, c, d] = words;
        let clock = TscClock::from_words([a, b, c, d]);
        Self { clock, start_ns }
    }

    /// The time since the start.
    #[inline]
    pub fn now(&self) -> RunNs {
        RunNs(self.clock.now_ns().saturating_sub(self.start_ns))
    }

    /// What the clock reads: the time-stamp counter, or the system's clock where that is not
    /// invariant.
    pub fn source(&self) -> String {
        format!("{:?}", self.clock.source())
    }
}
