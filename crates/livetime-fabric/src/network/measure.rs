//! Steady-state numbers with their errors: batch means, convergence, fairness.
//!
//! A simulated throughput is a mean over batches of simulated time after a warm-up; it is a
//! steady-state number only if the batches show no trend and the confidence interval is narrow.
//! Otherwise the result says so, and nothing else is printed as one.

/// Batches of a run after its warm-up.
pub const BATCHES: usize = 32;
/// Student's t for 95 % and 31 degrees of freedom.
const STUDENT: f64 = 2.04;
/// Half width of the interval, as a share of the mean, below which a run has converged.
const RELATIVE_HALF_WIDTH: f64 = 0.01;
/// Difference between the halves of a run that is no trend, in their standard errors.
const TREND_ERRORS: f64 = 3.0;
/// Difference between the halves, as a share of the mean, that is always too small to matter.
const TREND_SHARE: f64 = 0.004;

/// A mean over batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half width of its 95 % confidence interval.
    pub ci95: f64,
    /// Whether there is no trend between its halves, however wide the interval is.
    pub is_flat: bool,
    /// Whether it is a steady-state number.
    pub converged: bool,
}

impl Estimate {
    /// The mean of batch values in the order of time; not converged for fewer than 8.
    pub fn of(batches: &[f64]) -> Self {
        let mean = mean(batches);
        if batches.len() < 8 {
            return Self {
                mean,
                ci95: f64::INFINITY,
                is_flat: false,
                converged: false,
            };
        }
        let error = standard_error(batches);
        let ci95 = STUDENT * error;
        let (early, late) = batches.split_at(batches.len() / 2);
        let errors = standard_error(early).hypot(standard_error(late));
        let trend = (self::mean(late) - self::mean(early)).abs();
        let is_flat = trend <= (TREND_ERRORS * errors).max(TREND_SHARE * mean.abs());
        Self {
            mean,
            ci95,
            is_flat,
            // Nothing at all is no steady state: more often it is a run that was too short.
            converged: mean != 0.0 && is_flat && ci95 <= RELATIVE_HALF_WIDTH * mean.abs(),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (squares / (n - 1.0).max(1.0) / n).sqrt()
}

/// Jain's fairness index of shares: 1 when all are equal, 1/n when one has all.
pub fn fairness(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares
        .iter()
        .map(|share| (*share as f64) * (*share as f64))
        .sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_is_not_steady_and_noise_is() {
        let noise: Vec<f64> = (0..32)
            .map(|i| 0.5 + if i % 2 == 0 { 0.001 } else { -0.001 })
            .collect();
        let estimate = Estimate::of(&noise);
        assert!(estimate.converged && (estimate.mean - 0.5).abs() < 1e-9);
        let ramp: Vec<f64> = (0..32).map(|i| 0.5 + 0.001 * f64::from(i)).collect();
        assert!(!Estimate::of(&ramp).converged);
        let wild: Vec<f64> = (0..32).map(|i| f64::from(i % 3)).collect();
        let wild = Estimate::of(&wild);
        assert!(wild.is_flat && !wild.converged && !Estimate::of(&ramp).is_flat);
        assert!(!Estimate::of(&[1.0; 3]).converged);
        assert!(!Estimate::of(&[0.0; 32]).converged);
    }

    #[test]
    fn fairness_of_the_extremes() {
        assert_eq!(fairness(&[5, 5, 5, 5]), 1.0);
        assert_eq!(fairness(&[8, 0, 0, 0]), 0.25);
        assert_eq!(fairness(&[0, 0]), 1.0);
    }
}
