//! Clocks of the real machine: the kernel's monotonic clock and the processor's time stamp counter.
//!
//! Reading the counter costs about half of a `clock_gettime`, and is used for measuring; it is
//! trusted only where the processor promises a constant rate in every power state. Protocol code
//! reads no clock at all: it is handed the time.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds since a start of one's choice.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    origin_ns: u64,
}

impl MonotonicClock {
    /// A clock that reads 0 now.
    #[inline]
    pub fn start() -> Self {
        Self {
            origin_ns: monotonic_ns(),
        }
    }

    /// A clock that reads nanoseconds since boot: the same in every process of the machine.
    #[inline]
    pub fn since_boot() -> Self {
        Self { origin_ns: 0 }
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.origin_ns)
    }
}

/// What a [`TscClock`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickSource {
    /// The time stamp counter of the processor, constant and common to all cores.
    TimeStampCounter,
    /// Nanoseconds of `CLOCK_MONOTONIC`: this processor promises no constant counter.
    Monotonic,
}

/// A calibrated tick counter for measuring intervals.
#[derive(Debug, Clone, Copy)]
pub struct TscClock {
    source: TickSource,
    origin_ticks: u64,
    origin_ns: u64,
    /// Nanoseconds per tick, times 2^32.
    ns_per_tick_q32: u64,
}

/// Length of the calibration: the reading error at both ends, some 20 ns, is 1 ppm of it.
const CALIBRATION: Duration = Duration::from_millis(20);

impl TscClock {
    /// Finds out what to count and, for the processor's counter, at which rate (20 ms of spinning).
    pub fn calibrate() -> Self {
        if !is_counter_invariant() {
            return Self::monotonic();
        }
        let (first_ticks, first_ns) = read_both();
        let start = Instant::now();
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (last_ticks, last_ns) = read_both();
        let ticks = last_ticks.wrapping_sub(first_ticks);
        let ns = last_ns.saturating_sub(first_ns);
        match u64::try_from((u128::from(ns) << 32) / u128::from(ticks.max(1))) {
            // A counter below 1 MHz or at a standstill is broken, whatever the processor says.
            Ok(ns_per_tick_q32) if ns_per_tick_q32 > 0 && ns_per_tick_q32 >> 32 < 1000 => Self {
                source: TickSource::TimeStampCounter,
                origin_ticks: last_ticks,
                origin_ns: last_ns,
                ns_per_tick_q32,
            },
            _ => Self::monotonic(),
        }
    }

    /// The clock of this process, calibrated at the first call: for intervals that are measured again
    /// and again. Over hours it runs away from the kernel's clock by some ppm.
    pub fn of_process() -> Self {
        static CLOCK: OnceLock<TscClock> = OnceLock::new();
        *CLOCK.get_or_init(Self::calibrate)
    }

    /// A clock that counts nanoseconds of the monotonic clock.
    #[inline]
    pub fn monotonic() -> Self {
        Self {
            source: TickSource::Monotonic,
            origin_ticks: 0,
            origin_ns: 0,
            ns_per_tick_q32: 1 << 32,
        }
    }

    /// The calibration as words, so that another process of this machine reads the same time.
    pub fn to_words(&self) -> [u64; 4] {
        let source = match self.source {
            TickSource::TimeStampCounter => 1,
            TickSource::Monotonic => 0,
        };
        [
            source,
            self.origin_ticks,
            self.origin_ns,
            self.ns_per_tick_q32,
        ]
    }

    /// The clock of [`TscClock::to_words`]; the words must come from a process of this machine.
    pub fn from_words(words: [u64; 4]) -> Self {
        let [source, origin_ticks, origin_ns, ns_per_tick_q32] = words;
        Self {
            source: match source {
                0 => TickSource::Monotonic,
                _ => TickSource::TimeStampCounter,
            },
            origin_ticks,
            origin_ns,
            ns_per_tick_q32,
        }
    }

    /// What is counted.
    #[inline]
    pub fn source(&self) -> TickSource {
        self.source
    }

    /// Ticks per second.
    #[inline]
    pub fn rate_hz(&self) -> f64 {
        1e9 * (1u64 << 32) as f64 / self.ns_per_tick_q32 as f64
    }

    /// The counter now. Only differences mean anything.
    #[inline]
    pub fn ticks(&self) -> u64 {
        match self.source {
            TickSource::TimeStampCounter => read_counter(),
            TickSource::Monotonic => monotonic_ns(),
        }
    }

    /// A difference of ticks in nanoseconds.
    #[inline]
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick_q32)) >> 32) as u64
    }

    /// Nanoseconds since boot, as [`MonotonicClock::since_boot`] within the calibration error,
    /// which grows by about 1 us per second of run.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.origin_ns
            .saturating_add(self.ticks_to_ns(self.ticks().saturating_sub(self.origin_ticks)))
    }
}

#[inline]
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Both clocks at one moment: the pair with the narrowest bracket of several.
fn read_both() -> (u64, u64) {
    (0..32)
        .map(|_| {
            let before = read_counter();
            let ns = monotonic_ns();
            let width = read_counter().wrapping_sub(before);
            (width, before.wrapping_add(width / 2), ns)
        })
        .min()
        .map_or((0, 0), |(_, ticks, ns)| (ticks, ns))
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn read_counter() -> u64 {
    // SAFETY: RDTSC is part of x86-64 and reads no memory; a system that forbids it to users
    // (PR_SET_TSC) is not supported by the standard library's clock either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn read_counter() -> u64 {
    monotonic_ns()
}

/// Whether the processor promises a constant, common counter (CPUID 8000_0007h, EDX bit 8).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn is_counter_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    const POWER_LEAF: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= POWER_LEAF && __cpuid(POWER_LEAF).edx & (1 << 8) != 0
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn is_counter_invariant() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward_and_agree() {
        let clock = TscClock::calibrate();
        let monotonic = MonotonicClock::since_boot();
        let (ticks, start) = (clock.ticks(), monotonic.now_ns());
        let spin = Instant::now();
        while spin.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        let measured = clock.ticks_to_ns(clock.ticks() - ticks);
        let real = monotonic.now_ns() - start;
        // The bracket of `real` lies inside that of `measured` but for the two outer readings.
        assert!(
            measured >= 5_000_000 * 99 / 100,
            "{measured} ns of at least 5 ms"
        );
        assert!(real >= 5_000_000, "{real} ns of at least 5 ms");
        assert!(clock.rate_hz() > 1e6);
        assert!(clock.now_ns() > 0);
    }

    #[test]
    fn monotonic_fallback_counts_nanoseconds() {
        let clock = TscClock::monotonic();
        assert_eq!(clock.source(), TickSource::Monotonic);
        assert_eq!(clock.ticks_to_ns(123_456_789_012), 123_456_789_012);
        assert_eq!(clock.rate_hz(), 1e9);
        let first = clock.now_ns();
        assert!(clock.now_ns() >= first);
    }

    #[test]
    fn a_clock_of_words_reads_the_same_time() {
        for clock in [TscClock::calibrate(), TscClock::monotonic()] {
            let other = TscClock::from_words(clock.to_words());
            assert_eq!(other.source(), clock.source());
            assert_eq!(other.ticks_to_ns(12_345), clock.ticks_to_ns(12_345));
            let before = clock.now_ns();
            assert!(other.now_ns() >= before);
        }
    }

    #[test]
    fn a_started_clock_begins_at_zero() {
        let boot = MonotonicClock::since_boot();
        let before = boot.now_ns();
        let clock = MonotonicClock::start();
        assert!(clock.now_ns() <= boot.now_ns() - before);
    }
}
