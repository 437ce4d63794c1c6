//! A set of measured times, sorted, with its quantiles.

/// Measured times in nanoseconds. Holds every sample, so that quantiles are exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Samples {
    sorted_ns: Vec<u64>,
    sum_ns: u128,
}

impl Samples {
    /// Takes samples in any order; an empty set has 0 everywhere.
    pub fn from_unsorted(mut samples_ns: Vec<u64>) -> Self {
        samples_ns.sort_unstable();
        let sum_ns = samples_ns.iter().map(|&ns| u128::from(ns)).sum();
        Self {
            sorted_ns: samples_ns,
            sum_ns,
        }
    }

    /// All samples, ascending, in nanoseconds.
    pub fn sorted_ns(&self) -> &[u64] {
        &self.sorted_ns
    }

    /// Number of samples.
    pub fn count(&self) -> usize {
        self.sorted_ns.len()
    }

    /// The smallest sample such that a share of at least `fraction` (0 to 1) is not above it.
    pub fn quantile(&self, fraction: f64) -> u64 {
        let count = self.sorted_ns.len();
        if count == 0 {
            return 0;
        }
        let rank = (fraction.clamp(0.0, 1.0) * count as f64).ceil() as usize;
        self.sorted_ns[rank.clamp(1, count) - 1]
    }

    /// Smallest sample in ns.
    pub fn min(&self) -> u64 {
        self.sorted_ns.first().copied().unwrap_or(0)
    }

    /// Median in ns.
    pub fn p50(&self) -> u64 {
        self.quantile(0.5)
    }

    /// 90 % of the samples are not above this many ns.
    pub fn p90(&self) -> u64 {
        self.quantile(0.9)
    }

    /// 99 % of the samples are not above this many ns.
    pub fn p99(&self) -> u64 {
        self.quantile(0.99)
    }

    /// 99.9 % of the samples are not above this many ns.
    pub fn p99_9(&self) -> u64 {
        self.quantile(0.999)
    }

    /// 99.99 % of the samples are not above this many ns.
    pub fn p99_99(&self) -> u64 {
        self.quantile(0.9999)
    }

    /// Greatest sample in ns.
    pub fn max(&self) -> u64 {
        self.sorted_ns.last().copied().unwrap_or(0)
    }

    /// Mean in ns.
    pub fn mean(&self) -> f64 {
        match self.sorted_ns.len() {
            0 => 0.0,
            count => self.sum_ns as f64 / count as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_set() {
        let samples = Samples::from_unsorted((1..=10_000).rev().collect());
        assert_eq!(
            (samples.min(), samples.max(), samples.count()),
            (1, 10_000, 10_000)
        );
        assert_eq!(
            (samples.p50(), samples.p90(), samples.p99()),
            (5_000, 9_000, 9_900)
        );
        assert_eq!((samples.p99_9(), samples.p99_99()), (9_990, 9_999));
        assert_eq!(samples.mean(), 5_000.5);
        assert_eq!((samples.quantile(-1.0), samples.quantile(2.0)), (1, 10_000));
    }

    #[test]
    fn an_empty_set_is_all_zero() {
        let samples = Samples::from_unsorted(Vec::new());
        assert_eq!((samples.min(), samples.p99_99(), samples.max()), (0, 0, 0));
        assert_eq!(samples.mean(), 0.0);
    }
}
