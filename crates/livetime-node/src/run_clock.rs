//! The clock of a run: nanoseconds since its start, the same for all workers.

use std::time::SystemTime;

use livetime_shm::TscClock;
use livetime_shm::tai_offset::tai_minus_utc_ns;
use livetime_wire::{RunNs, TaiNs};

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

    /// The clock of a run that began at this time of the system \[ns since 1970\]: for another
    /// machine, as right as both machines' times.
    pub fn started_at(unix_ns: u64) -> Self {
        let mut clock = Self::start();
        let gone_by = unix_now_ns().saturating_sub(unix_ns);
        clock.start_ns = clock.start_ns.saturating_sub(gone_by);
        clock
    }

    /// The clock of a run that began at this time of the system, as TAI: what the file of a run says
    /// it began at is then exactly where its time is 0.
    pub fn started_at_tai(tai: TaiNs) -> Self {
        Self::started_at(tai.0.saturating_sub(tai_minus_utc_ns()))
    }

    /// When the run's time began \[ns since 1970\].
    pub fn started_unix_ns(&self) -> u64 {
        unix_now_ns().saturating_sub(self.now().0)
    }

    /// The same clock with its start now.
    #[inline]
    #[must_use]
    pub fn restarted(&self) -> Self {
        let clock = self.clock;
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

fn unix_now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_another_machine_goes_on_from_the_same_beginning() {
        let clock = RunClock::start();
        let other = RunClock::started_at(clock.started_unix_ns() - 5_000_000_000);
        assert!(other.now().0 >= 5_000_000_000);
    }
}
