//! Simulated time: integer picoseconds, so that a bit on a 10 Gb/s link (100 ps) is exact.
//!
//! [`SimPs`] is an instant since the start of the run and [`DurationPs`] a length of time; both
//! reach 213 days and saturate there, and neither is ever a floating-point number. The protocol
//! cores know only [`RunNs`]: [`SimPs::to_run_ns`] floors on entry, and a deadline that a core
//! asks for comes back exact. Who orders events of one instant is told in [`crate::queue`].

use core::fmt;
use core::ops::{Add, Mul, Sub};

use livetime_wire::{DurationNs, RunNs};

/// Picoseconds in a nanosecond.
const PS_PER_NS: u64 = 1_000;
/// Picoseconds in a second.
const PS_PER_S: u64 = 1_000_000_000_000;

/// An instant of simulated time, in picoseconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimPs(pub u64);

/// A length of simulated time, in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DurationPs(pub u64);

impl SimPs {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// The end of time: an instant that no finite horizon reaches.
    pub const MAX: Self = Self(u64::MAX);

    /// The first instant that a core sees as `time`; past the range it is [`SimPs::MAX`].
    pub const fn from_run_ns(time: RunNs) -> Self {
        Self(time.0.saturating_mul(PS_PER_NS))
    }

    /// What a core is told: the whole nanoseconds that have passed.
    pub const fn to_run_ns(self) -> RunNs {
        RunNs(self.0 / PS_PER_NS)
    }

    /// The time passed since `earlier`, 0 if it is in the future.
    pub const fn since(self, earlier: Self) -> DurationPs {
        DurationPs(self.0.saturating_sub(earlier.0))
    }

    /// The instant `duration` later, at most [`SimPs::MAX`].
    #[must_use]
    pub const fn after(self, duration: DurationPs) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

impl DurationPs {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// A wait that never ends.
    pub const MAX: Self = Self(u64::MAX);

    /// A number of nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(PS_PER_NS))
    }

    /// A number of microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000 * PS_PER_NS))
    }

    /// A number of milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000 * PS_PER_NS))
    }

    /// The same length as a core or a configuration gives it.
    pub const fn from_duration_ns(duration: DurationNs) -> Self {
        Self::from_ns(duration.0)
    }

    /// How long `bits` occupy a link of `bits_per_second`, rounded up to the picosecond, so that
    /// a link never carries more than its rate. A link of rate 0 takes [`DurationPs::MAX`].
    pub const fn for_bits(bits: u64, bits_per_second: u64) -> Self {
        if bits_per_second == 0 {
            return Self::MAX;
        }
        // Packets are small: the long division is for what takes 2 MB and more.
        if let Some(scaled) = bits.checked_mul(PS_PER_S) {
            return Self(scaled.div_ceil(bits_per_second));
        }
        let ps = (bits as u128 * PS_PER_S as u128).div_ceil(bits_per_second as u128);
        if ps > u64::MAX as u128 {
            Self::MAX
        } else {
            Self(ps as u64)
        }
    }
}

/// How long bytes occupy a link: [`DurationPs::for_bits`] of one rate, without its division where a
/// byte takes whole picoseconds, as on links of round rates. A division takes longer than all else
/// that a packet's last step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteTime {
    bits_per_second: u64,
    /// Of a byte; 0 if it is none in whole picoseconds.
    ps: u64,
}

impl ByteTime {
    /// For links of this rate.
    pub(crate) const fn new(bits_per_second: u64) -> Self {
        let is_whole = (8 * PS_PER_S).is_multiple_of(bits_per_second);
        Self {
            bits_per_second,
            ps: if is_whole {
                8 * PS_PER_S / bits_per_second
            } else {
                0
            },
        }
    }

    /// The time of so many bytes, below 2^61 of them.
    #[inline]
    pub(crate) const fn of(self, bytes: u64) -> DurationPs {
        match self.ps {
            0 => DurationPs::for_bits(bytes * 8, self.bits_per_second),
            ps => DurationPs(bytes.saturating_mul(ps)),
        }
    }
}

impl Add<DurationPs> for SimPs {
    type Output = Self;
    fn add(self, rhs: DurationPs) -> Self {
        self.after(rhs)
    }
}

impl Sub for SimPs {
    type Output = DurationPs;
    fn sub(self, rhs: Self) -> DurationPs {
        self.since(rhs)
    }
}

impl Add for DurationPs {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Mul<u64> for DurationPs {
    type Output = Self;
    fn mul(self, rhs: u64) -> Self {
        Self(self.0.saturating_mul(rhs))
    }
}

impl fmt::Display for SimPs {
    /// Exact, in nanoseconds: `12345.678 ns`, since two events of a trace may be 1 ps apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} ns", self.0 / PS_PER_NS, self.0 % PS_PER_NS)
    }
}

impl fmt::Display for DurationPs {
    /// Exact, in nanoseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SimPs(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_sees_whole_nanoseconds_and_gets_its_deadline_back_exactly() {
        assert_eq!(SimPs(1_999).to_run_ns(), RunNs(1));
        assert_eq!(SimPs(2_000).to_run_ns(), RunNs(2));
        for ns in [0, 1, 7, 1_000_000_007, u64::MAX / PS_PER_NS] {
            assert_eq!(SimPs::from_run_ns(RunNs(ns)).to_run_ns(), RunNs(ns));
        }
        assert_eq!(
            SimPs::from_run_ns(RunNs::MAX),
            SimPs::MAX,
            "a timeout that never comes"
        );
    }

    #[test]
    fn a_link_never_carries_more_than_its_rate() {
        assert_eq!(DurationPs::for_bits(1, 10_000_000_000), DurationPs(100));
        // 3 Gb/s: one bit takes 333.3 ps, which must not become 333.
        assert_eq!(DurationPs::for_bits(1, 3_000_000_000), DurationPs(334));
        // A 2 KiB fragment on S-LINK, 160 MB/s.
        assert_eq!(
            DurationPs::for_bits(2048 * 8, 1_280_000_000),
            DurationPs::from_ns(12_800)
        );
        // On both sides of where the short division ends.
        for (bits, ps) in [
            (18_446_744, 6_148_914_666_667),
            (18_446_745, 6_148_915_000_000),
        ] {
            assert_eq!(DurationPs::for_bits(bits, 3_000_000), DurationPs(ps));
        }
        assert_eq!(DurationPs::for_bits(8, 0), DurationPs::MAX);
        assert_eq!(DurationPs::for_bits(u64::MAX, 1), DurationPs::MAX);
    }

    #[test]
    fn bytes_take_as_long_as_their_bits() {
        let (giga, tera) = (1_000_000_000, 1_000_000_000_000);
        for rate in [0, 1, 3, 1000, giga, 3 * giga, 7 * tera, 8 * tera, 9 * tera] {
            for bytes in [0, 1, 2, 4096, 2_305_844, u64::MAX / 8] {
                let expected = DurationPs::for_bits(bytes * 8, rate);
                assert_eq!(ByteTime::new(rate).of(bytes), expected, "{bytes} at {rate}");
            }
        }
    }

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(SimPs::MAX + DurationPs(1), SimPs::MAX);
        assert_eq!(SimPs(5) - SimPs(7), DurationPs::ZERO);
        assert_eq!(DurationPs::from_ms(u64::MAX), DurationPs::MAX);
        assert_eq!(DurationPs::from_us(3) * 2, DurationPs::from_ns(6_000));
        assert_eq!(
            DurationPs::from_duration_ns(DurationNs(2)),
            DurationPs(2_000)
        );
    }

    #[test]
    fn times_print_to_the_picosecond() {
        assert_eq!(SimPs(12_345_678).to_string(), "12345.678 ns");
        assert_eq!(DurationPs(7).to_string(), "0.007 ns");
    }
}
