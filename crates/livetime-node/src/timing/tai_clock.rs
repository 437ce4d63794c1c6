//! The clock of the timing daemon: International Atomic Time of this machine, or a virtual one.
//!
//! The kernel keeps `CLOCK_TAI` as UTC plus an offset that a time daemon must set; where nobody
//! did, the offset is 0 and TAI would be wrong by 37 s. Then the built-in number of leap seconds
//! is added, and [`TaiClock::source`] says so. Faults of a receiver's clock (drift, steps, loss of
//! lock) are modelled in `livetime-timing`, not here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use livetime_wire::TaiNs;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// TAI minus UTC since 2017-01-01, in seconds; no leap second has been announced since.
pub const LEAP_SECONDS: i64 = 37;

/// Where the time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSource {
    /// The kernel's TAI, its offset set by a time daemon.
    Kernel,
    /// The kernel's UTC and the built-in leap seconds, since the kernel's TAI offset is 0.
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
}

#[derive(Debug, Clone)]
enum Kind {
    Machine { added_ns: u64 },
    Virtual(Arc<AtomicU64>),
}

impl TaiClock {
    /// The machine's clock.
    pub fn machine() -> Self {
        // Between two reads a second can pass; the offset is 0 or tens of seconds.
        let utc = clock_gettime(ClockId::Realtime).tv_sec;
        let is_set = read_kernel().tv_sec - utc > 1;
        let added = if is_set { 0 } else { LEAP_SECONDS };
        Self {
            kind: Kind::Machine {
                added_ns: added as u64 * 1_000_000_000,
            },
        }
    }

    /// A clock that stands at `start` until it is advanced.
    pub fn standing_at(start: TaiNs) -> Self {
        Self {
            kind: Kind::Virtual(Arc::new(AtomicU64::new(start.0))),
        }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> TaiNs {
        match &self.kind {
            Kind::Machine { added_ns } => {
                let time = read_kernel();
                TaiNs(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 + added_ns)
            }
            // Acquire pairs with the Release in `advance_to`: messages injected before are seen.
            Kind::Virtual(now) => TaiNs(now.load(Ordering::Acquire)),
        }
    }

    /// Where the time comes from.
    pub fn source(&self) -> ClockSource {
        match &self.kind {
            Kind::Machine { added_ns: 0 } => ClockSource::Kernel,
            Kind::Machine { .. } => ClockSource::BuiltInLeapSeconds,
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
            Kind::Machine { .. } => None,
            // AcqRel pairs with the Acquire in `now`.
            Kind::Virtual(now) => Some(TaiNs(now.fetch_max(time.0, Ordering::AcqRel).max(time.0))),
        }
    }
}

/// `CLOCK_TAI`, which every Linux since 3.10 has.
#[inline]
fn read_kernel() -> Timespec {
    clock_gettime_dynamic(DynamicClockId::Tai).unwrap_or_else(|_| clock_gettime(ClockId::Realtime))
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
