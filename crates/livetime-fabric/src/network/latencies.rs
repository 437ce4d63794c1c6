//! A distribution of latencies whose least, greatest and mean value are exact.
//!
//! Percentiles are those of a histogram, whose bins have ends of their own; the figures that need no
//! bins are kept beside it.

use hdrhistogram::Histogram;

/// The longest latency that is told from longer ones in percentiles, nanoseconds: a thousand seconds.
const LATENCY_NS_MAX: u64 = 1_000_000_000_000;

/// Latencies in nanoseconds.
#[derive(Debug, Clone)]
pub struct Latencies {
    bins: Histogram<u64>,
    least: u64,
    greatest: u64,
    sum: u128,
}

impl Latencies {
    /// None yet; percentiles will have so many significant digits.
    pub(crate) fn with_digits(digits: u8) -> Self {
        let bins = Histogram::new_with_bounds(1, LATENCY_NS_MAX, digits);
        Self {
            bins: bins.expect("digits from 0 to 5 and bounds in order"),
            least: u64::MAX,
            greatest: 0,
            sum: 0,
        }
    }

    /// Counts one.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.bins.saturating_record(ns);
        self.least = self.least.min(ns);
        self.greatest = self.greatest.max(ns);
        self.sum += u128::from(ns);
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.bins.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// The least, exactly; 0 of none.
    pub fn min(&self) -> u64 {
        self.least.min(self.greatest)
    }

    /// The greatest, exactly; 0 of none.
    pub const fn max(&self) -> u64 {
        self.greatest
    }

    /// The mean, exactly; 0 of none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.len().max(1) as f64
    }

    /// The value at or below which this share of them is, 0 to 1: to the digits of the histogram, and
    /// within the least and the greatest.
    pub fn value_at_quantile(&self, quantile: f64) -> u64 {
        let value = self.bins.value_at_quantile(quantile);
        value.clamp(self.min(), self.max())
    }

    /// How many are longer than so many nanoseconds, to the digits of the histogram.
    pub fn count_above(&self, ns: u64) -> u64 {
        match self.greatest > ns {
            true => self.len() - self.bins.count_between(0, ns),
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_bins_is_exact() {
        let mut latencies = Latencies::with_digits(3);
        assert_eq!((latencies.min(), latencies.max()), (0, 0));
        assert!(latencies.is_empty() && latencies.mean() == 0.0);
        latencies.record(27_000);
        for quantile in [0.0, 0.5, 1.0] {
            assert_eq!(latencies.value_at_quantile(quantile), 27_000);
        }
        latencies.record(20_001);
        let ends = (latencies.min(), latencies.max(), latencies.mean());
        assert_eq!(ends, (20_001, 27_000, 23_500.5));
        assert_eq!(
            [27_000, 24_000, 1].map(|ns| latencies.count_above(ns)),
            [0, 1, 2]
        );
    }
}
