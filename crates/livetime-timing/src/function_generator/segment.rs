//! The arithmetic of one segment: a double accumulator of 64 bits with 32 fraction bits.
//!
//! ```text
//! at the start   X = c << 32        Q = b << shift_b        A = a << shift_a
//! each sample    X += Q, then Q += A                       (two's complement, wrapping)
//! output         bits 63:32 of X
//! so             X(n) = c 2^32 + n Q0 + n (n - 1) / 2 A
//! ```
//!
//! A segment of N samples puts out n = 0 .. N-1, sample n at its start plus n periods, and the
//! next segment begins at N periods; X(N) is only compared with the next start value. Periods are
//! the nominal ones. [`Accumulator`] steps as the hardware does; [`Segment`] jumps, and a test
//! holds both against each other and against plain big integers.

use livetime_wire::{CoefficientSet, DurationNs};

/// Sample periods by frequency index, ns: 16, 32, 64, 125, 250, 500, 1000, 2000 kHz.
pub const PERIODS_NS: [u64; 8] = [62_500, 31_250, 15_625, 8_000, 4_000, 2_000, 1_000, 500];

/// Largest step index: 32 000 samples.
pub const STEP_MAX: u8 = 7;
/// Largest frequency index: 2 MHz.
pub const FREQUENCY_MAX: u8 = 7;
/// Largest sensible shift.
pub const SHIFT_MAX: u8 = 48;

/// Samples of a step index: 250 x 2^step; an index beyond 7 counts as 7.
#[inline]
pub fn samples(step: u8) -> u64 {
    250 << step.min(STEP_MAX)
}

/// Sample period of a frequency index in ns; an index beyond 7 counts as 7.
#[inline]
pub fn period_ns(frequency: u8) -> u64 {
    PERIODS_NS[usize::from(frequency.min(FREQUENCY_MAX))]
}

/// A coefficient set made ready for arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    start: i64,
    slope: i64,
    curvature: i64,
    samples: u64,
    period_ns: u64,
}

impl Segment {
    /// The segment of a set. Fields out of range (see [`crate::function_generator::validation`])
    /// count as the largest allowed.
    #[inline]
    pub fn new(set: &CoefficientSet) -> Self {
        let shift = |value: i16, by: u8| i64::from(value).wrapping_shl(u32::from(by.min(63)));
        Self {
            start: i64::from(set.c) << 32,
            slope: shift(set.b, set.shift_b),
            curvature: shift(set.a, set.shift_a),
            samples: samples(set.step),
            period_ns: period_ns(set.frequency),
        }
    }

    /// Number of samples, 250..=32 000.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Time between samples, ns.
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Length of the segment: 125 us to 2 s.
    #[inline]
    pub fn duration(&self) -> DurationNs {
        DurationNs(self.samples * self.period_ns)
    }

    /// The accumulator after `n` samples, wrapped to 64 bits as in the hardware.
    #[inline]
    pub fn accumulator_at(&self, n: u64) -> i64 {
        // n (n - 1) / 2 is below 2^29, so only the products wrap.
        let pairs = (n * n.saturating_sub(1) / 2).cast_signed();
        self.start
            .wrapping_add(n.cast_signed().wrapping_mul(self.slope))
            .wrapping_add(pairs.wrapping_mul(self.curvature))
    }

    /// The accumulator after `n` samples without wrapping.
    pub fn exact_at(&self, n: u64) -> i128 {
        let pairs = i128::from(n * n.saturating_sub(1) / 2);
        i128::from(self.start)
            + i128::from(n) * i128::from(self.slope)
            + pairs * i128::from(self.curvature)
    }

    /// The output of sample `n`.
    pub fn output_at(&self, n: u64) -> i32 {
        (self.accumulator_at(n) >> 32) as i32
    }

    /// The value that the next segment should start with, to the nearest unit of the output.
    pub fn end_value(&self) -> i64 {
        let end = self.exact_at(self.samples) + (1 << 31);
        // The exact value may be anywhere within 2^93; what is far out of range is cut there.
        i64::try_from(end >> 32).unwrap_or(if end < 0 { i64::MIN } else { i64::MAX })
    }

    /// Smallest and largest accumulator of n = 0 .. N, not wrapped.
    pub fn exact_range(&self) -> (i128, i128) {
        let (first, last) = (self.exact_at(0), self.exact_at(self.samples));
        let mut range = (first.min(last), first.max(last));
        if self.curvature != 0 {
            // X(n + 1) - X(n) = Q0 + n A changes its sign next to n = -Q0 / A.
            let (slope, curvature) = (i128::from(self.slope), i128::from(self.curvature));
            let turn = (-slope).div_euclid(curvature);
            for n in turn - 1..=turn + 1 {
                if let Ok(n) = u64::try_from(n)
                    && n <= self.samples
                {
                    let value = self.exact_at(n);
                    range = (range.0.min(value), range.1.max(value));
                }
            }
        }
        range
    }

    /// [`Segment::end_value`] if the accumulator stays within a magnitude below `limit`, which is
    /// at most 2^63 - 2^32, and a quick look shows it; most segments are far inside.
    #[inline]
    pub(crate) fn end_if_within(&self, limit: u64) -> Option<i64> {
        let (slope, curvature) = (self.slope.unsigned_abs(), self.curvature.unsigned_abs());
        if slope >> 46 != 0 || curvature >> 32 != 0 {
            return None;
        }
        // n is below 2^15: the products are below 2^61, and the sum is below 2^64.
        let n = self.samples;
        let bound = self.start.unsigned_abs() + n * slope + n * n / 2 * curvature;
        // Nothing wraps that is within the limit.
        let end = || (self.accumulator_at(n) + (1 << 31)) >> 32;
        (bound < limit).then(end)
    }

    /// An upper bound of the accumulator's magnitude, quickly.
    pub(crate) fn magnitude_bound(&self) -> u128 {
        let n = u128::from(self.samples);
        u128::from(self.start.unsigned_abs())
            + n * u128::from(self.slope.unsigned_abs())
            + n * n / 2 * u128::from(self.curvature.unsigned_abs())
    }
}

/// The hardware's registers, stepped sample by sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accumulator {
    value: i64,
    slope: i64,
    curvature: i64,
}

impl Accumulator {
    /// The registers at the start of a segment.
    pub fn new(segment: &Segment) -> Self {
        Self {
            value: segment.start,
            slope: segment.slope,
            curvature: segment.curvature,
        }
    }

    /// The present output.
    pub fn output(&self) -> i32 {
        (self.value >> 32) as i32
    }

    /// Goes to the next sample.
    pub fn step(&mut self) {
        self.value = self.value.wrapping_add(self.slope);
        self.slope = self.slope.wrapping_add(self.curvature);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_quick_end_is_the_end_and_stays_within(
            a: i16, b: i16, c: i32, step in 0u8..8, shift_a in 0u8..49, shift_b in 0u8..49,
            bits in 32u32..63,
        ) {
            let set = CoefficientSet { a, b, c, step, frequency: 0, shift_a, shift_b };
            let segment = Segment::new(&set);
            let limit = ((1 << bits) - 1) >> 32 << 32;
            if let Some(end) = segment.end_if_within(limit) {
                prop_assert_eq!(end, segment.end_value());
                let (lowest, highest) = segment.exact_range();
                prop_assert!(-i128::from(limit) < lowest && highest < i128::from(limit));
            }
        }
    }

    #[test]
    fn most_segments_have_a_quick_end() {
        let set = CoefficientSet {
            a: -3,
            b: 7000,
            c: -1_000_000,
            step: 7,
            shift_a: 8,
            shift_b: 20,
            ..CoefficientSet::default()
        };
        let limit = (u64::from(u32::MAX) >> 1) << 32;
        let segment = Segment::new(&set);
        assert_eq!(segment.end_if_within(limit), Some(segment.end_value()));
        assert_eq!(segment.end_if_within(1 << 32), None);
    }
}
