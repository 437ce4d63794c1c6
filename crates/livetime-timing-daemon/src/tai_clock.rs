//! The clock of the timing daemon: International Atomic Time of this machine, or a virtual one.
//!
//! The kernel keeps `CLOCK_TAI` as UTC plus an offset that a time daemon must set; where nobody
//! did when a clock is made, the offset is 0 and TAI would be wrong by 37 s. Then the time is UTC and the
//! built-in number of leap seconds for as long as the clock lives, and [`TaiClock::source`] says so:
//! an offset that is set later moves nothing. Faults of a receiver's clock (drift, steps, loss of
//! lock) are modelled in `livetime-timing`, not here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use livetime_shm::TscClock;
use livetime_shm::tai_offset::{BUILT_IN_TAI_MINUS_UTC_NS, kernel_tai_minus_utc_ns};
use livetime_wire::TaiNs;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// Longest time that is taken from the tick counter after a reading, ns: the rate at which a time
/// daemon slews the kernel's clock, at most 500 ppm, is 25 ns of it.
const READING_NS_MAX: u64 = 50_000;

/// Where the time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSource {
    /// The kernel's TAI, its offset set by a time daemon.
    Kernel,
    /// The kernel's UTC and the built-in leap seconds, since the kernel's TAI offset was 0 at the start.
    BuiltInLeapSeconds,
    /// A virtual clock that somebody advances.
    Virtual,
}

impl ClockSource {
    /// `kernel`, `built-in leap seconds` or `virtual`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::BuiltInLeapSeconds => "built-in leap seconds",
            Self::Virtual => "virtual",
        }
    }
}

/// Reads TAI; clones read the same clock.
#[derive(Debug, Clone)]
pub struct TaiClock {
    kind: Kind,
    ticks: TscClock,
}

/// A reading of a clock, from which [`TaiClock::now_from`] goes on.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    at: TaiNs,
    ticks: u64,
}

#[derive(Debug, Clone)]
enum Kind {
    Machine(MachineTime),
    Virtual(Arc<AtomicU64>),
}

/// Which of the kernel's clocks is read, chosen once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MachineTime {
    KernelTai,
    /// Not the kernel's TAI and a number: that would jump when somebody tells the kernel its offset.
    UtcAndBuiltIn,
}

impl MachineTime {
    /// Chosen by what the kernel adds to UTC, if somebody has told it.
    fn of_offset(kernel_ns: Option<u64>) -> Self {
        match kernel_ns {
            Some(_) => Self::KernelTai,
            None => Self::UtcAndBuiltIn,
        }
    }

    #[inline]
    fn now(self, utc: impl FnOnce() -> Timespec, tai: impl FnOnce() -> Timespec) -> TaiNs {
        let ns = |time: Timespec| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        TaiNs(match self {
            Self::KernelTai => ns(tai()),
            Self::UtcAndBuiltIn => ns(utc()) + BUILT_IN_TAI_MINUS_UTC_NS,
        })
    }
}

impl TaiClock {
    /// The machine's clock.
    pub fn machine() -> Self {
        Self {
            kind: Kind::Machine(MachineTime::of_offset(kernel_tai_minus_utc_ns())),
            ticks: TscClock::of_process(),
        }
    }

    /// A clock that stands at `start` until it is advanced.
    pub fn standing_at(start: TaiNs) -> Self {
        Self {
            kind: Kind::Virtual(Arc::new(AtomicU64::new(start.0))),
            ticks: TscClock::monotonic(),
        }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> TaiNs {
        match &self.kind {
            Kind::Machine(time) => time.now(read_utc, read_tai),
            // Acquire pairs with the Release in `advance_to`: messages injected before are seen.
            Kind::Virtual(now) => TaiNs(now.load(Ordering::Acquire)),
        }
    }

    /// Reads the time, for [`TaiClock::now_from`].
    #[inline]
    pub fn read(&self) -> ClockReading {
        match &self.kind {
            // The clock first: the time from a reading is behind the clock, never ahead.
            Kind::Machine(_) => ClockReading {
                at: self.now(),
                ticks: self.ticks.ticks(),
            },
            Kind::Virtual(_) => ClockReading {
                at: self.now(),
                ticks: 0,
            },
        }
    }

    /// The time, at less cost than [`TaiClock::now`] as long as the reading is not older than some
    /// microseconds.
    #[inline]
    pub fn now_from(&self, reading: &ClockReading) -> TaiNs {
        match &self.kind {
            Kind::Machine(_) => {
                let passed = self.ticks.ticks().saturating_sub(reading.ticks);
                let passed_ns = self.ticks.ticks_to_ns(passed);
                if passed_ns > READING_NS_MAX {
                    return self.now();
                }
                TaiNs(reading.at.0 + passed_ns)
            }
            Kind::Virtual(_) => self.now(),
        }
    }

    /// Where the time comes from.
    pub fn source(&self) -> ClockSource {
        match &self.kind {
            Kind::Machine(MachineTime::KernelTai) => ClockSource::Kernel,
            Kind::Machine(MachineTime::UtcAndBuiltIn) => ClockSource::BuiltInLeapSeconds,
            Kind::Virtual(_) => ClockSource::Virtual,
        }
    }

    /// Whether the clock moves only by [`TaiClock::advance_to`].
    pub fn is_virtual(&self) -> bool {
        matches!(self.kind, Kind::Virtual(_))
    }

    /// Moves a virtual clock; it never goes back. Returns the time then, `None` for a machine's.
    pub fn advance_to(&self, time: TaiNs) -> Option<TaiNs> {
        match &self.kind {
            Kind::Machine(_) => None,
            // AcqRel pairs with the Acquire in `now`.
            Kind::Virtual(now) => Some(TaiNs(now.fetch_max(time.0, Ordering::AcqRel).max(time.0))),
        }
    }
}

/// `CLOCK_TAI`, which every Linux since 3.10 has.
#[inline]
fn read_tai() -> Timespec {
    clock_gettime_dynamic(DynamicClockId::Tai).unwrap_or_else(|_| read_utc())
}

#[inline]
fn read_utc() -> Timespec {
    clock_gettime(ClockId::Realtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_reads_tai_ahead_of_utc() {
        let clock = TaiClock::machine();
        let utc = clock_gettime(ClockId::Realtime).tv_sec as u64;
        let ahead = clock.now().0 / 1_000_000_000 - utc;
        assert!((10..60).contains(&ahead), "{ahead} s, {:?}", clock.source());
        assert_eq!(clock.advance_to(TaiNs(5)), None);
    }

    #[test]
    fn an_offset_that_the_kernel_is_told_later_moves_nothing() {
        let at = |tv_sec| move || Timespec { tv_sec, tv_nsec: 5 };
        let (utc, ahead) = (1_000_000, 37);
        let expected = TaiNs((utc + ahead) as u64 * 1_000_000_000 + 5);
        let untold = MachineTime::of_offset(None);
        for tai in [utc, utc + ahead] {
            assert_eq!(untold.now(at(utc), at(tai)), expected);
        }
        let told = MachineTime::of_offset(Some(BUILT_IN_TAI_MINUS_UTC_NS));
        assert_eq!(told.now(at(utc), at(utc + ahead)), expected);
        let sources = [told, untold].map(|time| {
            let ticks = TscClock::monotonic();
            let kind = Kind::Machine(time);
            TaiClock { kind, ticks }.source()
        });
        let expected = [ClockSource::Kernel, ClockSource::BuiltInLeapSeconds];
        assert_eq!(sources, expected);
    }

    #[test]
    fn the_time_from_a_reading_lies_between_the_reading_and_the_clock() {
        let clock = TaiClock::machine();
        for _ in 0..1000 {
            let before = clock.now();
            let reading = clock.read();
            let times = [(); 3].map(|()| clock.now_from(&reading));
            assert!(before <= reading.at && reading.at <= times[0]);
            assert!(times.is_sorted(), "{times:?}");
            // The counter is read in the clock's call at the earliest, and calibrated to some ppm.
            assert!(times[2].0 <= clock.now().0 + 10, "{times:?}");
        }
        let virtual_clock = TaiClock::standing_at(TaiNs(100));
        let reading = virtual_clock.read();
        virtual_clock.advance_to(TaiNs(1_000_000));
        assert_eq!(virtual_clock.now_from(&reading), TaiNs(1_000_000));
    }

    #[test]
    fn a_virtual_clock_stands_and_never_goes_back() {
        let clock = TaiClock::standing_at(TaiNs(100));
        let same = clock.clone();
        assert_eq!(same.advance_to(TaiNs(150)), Some(TaiNs(150)));
        assert_eq!(same.advance_to(TaiNs(120)), Some(TaiNs(150)));
        assert_eq!(
            (clock.now(), clock.source()),
            (TaiNs(150), ClockSource::Virtual)
        );
    }
}
