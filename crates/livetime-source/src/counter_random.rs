//! Random numbers by counter: number `k` of a seed, without the numbers before it.
//!
//! For single draws (a gap, a size); the physics generator, which needs many per event, has a
//! ChaCha8 stream per event instead.

use livetime_wire::decision::mix64;

/// 2^-53: the step of a uniform number.
const STEP: f64 = 1.0 / (1_u64 << 53) as f64;

/// A key made of a seed and what it is used for, so that no two uses share numbers.
pub(crate) fn key(seed: u64, purpose: u64) -> u64 {
    mix64(mix64(seed).wrapping_add(purpose))
}

/// Above 0 and at most 1, so that its logarithm is finite.
pub(crate) fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 * STEP
}

/// A standard normal deviate from two times 64 bits (Box and Muller, 1958).
pub(crate) fn normal(a: u64, b: u64) -> f64 {
    (-2.0 * unit(a).ln()).sqrt() * (core::f64::consts::TAU * unit(b)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_deviates_have_mean_zero_and_width_one() {
        let base = key(7, 1);
        let n = 100_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for k in 0..n {
            let x = normal(mix64(base ^ (2 * k)), mix64(base ^ (2 * k + 1)));
            sum += x;
            squares += x * x;
        }
        let mean = sum / n as f64;
        let width = (squares / n as f64).sqrt();
        // Five standard errors: 1/sqrt(n) and 1/sqrt(2n).
        assert!(mean.abs() < 0.016, "{mean}");
        assert!((width - 1.0).abs() < 0.012, "{width}");
    }

    #[test]
    fn unit_is_never_zero() {
        assert_eq!(unit(0), STEP);
        assert_eq!(unit(u64::MAX), 1.0);
    }
}
