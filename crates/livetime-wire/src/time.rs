//! Times: nanoseconds since the start of the run, nanoseconds of TAI, and durations.
//!
//! Cores see only [`RunNs`], given by whoever drives them; nothing here reads a clock. The
//! simulator keeps picoseconds and floors them on entry. Text forms are in [`crate::quantity`].

use core::fmt;
use core::ops::{Add, Sub};

/// Nanoseconds since the start of the run (wraps after 584 years).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunNs(pub u64);

/// Nanoseconds of International Atomic Time since 1970-01-01 00:00:00 TAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaiNs(pub u64);

/// A length of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DurationNs(pub u64);

impl RunNs {
    /// The end of time: a timeout that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The time passed since `earlier`, 0 if it is in the future.
    #[inline]
    pub fn since(self, earlier: Self) -> DurationNs {
        DurationNs(self.0.saturating_sub(earlier.0))
    }

    /// The time `duration` later, at most [`RunNs::MAX`].
    #[must_use]
    #[inline]
    pub fn after(self, duration: DurationNs) -> Self {
        Self(self.0.saturating_add(duration.0))
    }

    /// For how long whoever looks at the time stood still, if a timeout that was due at this time is
    /// seen `now`: 0 below 10 ms, by which any machine is late at times. What came meanwhile may lie
    /// unread, so that nobody is to be blamed for this time.
    #[inline]
    pub fn standstill(self, now: Self) -> DurationNs {
        let late = now.since(self);
        match late >= DurationNs(10 * DurationNs::MILLISECOND.0) {
            true => late,
            false => DurationNs(0),
        }
    }
}

impl TaiNs {
    /// The end of time: a timeout that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The time passed since `earlier`, 0 if it is in the future.
    #[inline]
    pub fn since(self, earlier: Self) -> DurationNs {
        DurationNs(self.0.saturating_sub(earlier.0))
    }

    /// The time `duration` later, at most [`TaiNs::MAX`].
    #[must_use]
    #[inline]
    pub fn after(self, duration: DurationNs) -> Self {
        Self(self.0.saturating_add(duration.0))
    }

    /// The time `ns` later, or earlier if negative; stays within the range.
    #[must_use]
    #[inline]
    pub fn offset_by(self, ns: i64) -> Self {
        Self(self.0.saturating_add_signed(ns))
    }
}

impl fmt::Display for TaiNs {
    /// Seconds since 1970-01-01 TAI with nine decimals: `1700000000.000000001 s TAI`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ns) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        write!(f, "{seconds}.{ns:09} s TAI")
    }
}

impl DurationNs {
    /// One microsecond.
    pub const MICROSECOND: Self = Self(1_000);
    /// One millisecond.
    pub const MILLISECOND: Self = Self(1_000_000);
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// The duration in seconds.
    #[inline]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// A number of seconds, rounded to the nanosecond; negative and NaN become 0.
    #[inline]
    pub fn from_seconds(seconds: f64) -> Self {
        // `as` saturates: negative and NaN become 0, too large becomes the maximum.
        Self((seconds * 1e9).round() as u64)
    }
}

impl Add<DurationNs> for RunNs {
    type Output = Self;
    #[inline]
    fn add(self, rhs: DurationNs) -> Self {
        self.after(rhs)
    }
}

impl Sub for RunNs {
    type Output = DurationNs;
    #[inline]
    fn sub(self, rhs: Self) -> DurationNs {
        self.since(rhs)
    }
}

impl fmt::Display for DurationNs {
    /// Three sensible digits and the unit that fits: `11.2 us`, `1.00 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (ns / 1e3, "us"),
            1_000_000..1_000_000_000 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        let decimals = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_with_sensible_digits() {
        let text = |ns| DurationNs(ns).to_string();
        assert_eq!(text(0), "0 ns");
        assert_eq!(text(999), "999 ns");
        assert_eq!(text(11_234), "11.2 us");
        assert_eq!(text(1_000_000_000), "1.00 s");
        assert_eq!(text(123_400_000), "123 ms");
    }

    #[test]
    fn time_never_runs_backwards_or_overflows() {
        assert_eq!(RunNs(5).since(RunNs(7)), DurationNs(0));
        assert_eq!(RunNs::MAX + DurationNs(1), RunNs::MAX);
        assert_eq!(DurationNs::from_seconds(-1.0), DurationNs(0));
    }

    #[test]
    fn who_is_late_by_milliseconds_stood_still() {
        let late_by = |ns: u64| RunNs(5).standstill(RunNs(5 + ns));
        assert_eq!(late_by(9_999_999), DurationNs(0));
        assert_eq!(late_by(10_000_000), DurationNs(10_000_000));
        assert_eq!(RunNs::MAX.standstill(RunNs(7)), DurationNs(0));
    }
}
