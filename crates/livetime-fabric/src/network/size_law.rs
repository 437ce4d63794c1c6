//! Sizes of packets: fixed, drawn from a law, or from a list.
//!
//! Sizes are whole bytes from 1 up; one draw of the stream is taken for each, whatever the law, so
//! that changing the law changes no other random number.

use crate::random::RandomStream;

use super::traffic::mixed;

/// The largest packet, bytes: what a law draws beyond it is cut, as [`SizeLaw::mean`] says.
pub const SIZE_MAX: u32 = 16 << 20;

/// Law of the sizes, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum SizeLaw {
    /// All alike.
    Fixed(u32),
    /// Exponential.
    Exponential {
        /// Mean, bytes.
        mean: f64,
    },
    /// Log-normal.
    LogNormal {
        /// Mean, bytes.
        mean: f64,
        /// Standard deviation, bytes.
        rms: f64,
    },
    /// A list, gone through again and again, each source from another place of it.
    Trace(Vec<u32>),
}

impl SizeLaw {
    /// Mean size of what is drawn, bytes: less than that of the law where it cuts many. That sizes are whole
    /// bytes from 1 on is not in it: of exponential ones with a mean of 2 B it makes a tenth more, of 10 B
    /// half a percent.
    pub fn mean(&self) -> f64 {
        let largest = f64::from(SIZE_MAX);
        match self {
            Self::Fixed(bytes) => f64::from(*bytes),
            Self::Exponential { mean } => mean * (1.0 - (-largest / mean).exp()),
            Self::LogNormal { mean, rms } if *rms > 0.0 => {
                // Of those below the largest size, and of those that are cut to it.
                let width = log_normal_variance(*mean, *rms).sqrt();
                let above = self.share_above(SIZE_MAX.into());
                let sum_below =
                    1.0 - normal_above(log_normal_widths(*mean, width, largest) - width);
                mean * sum_below + largest * above
            }
            Self::LogNormal { mean, .. } => *mean,
            Self::Trace(sizes) => {
                sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / sizes.len().max(1) as f64
            }
        }
    }

    /// The least size, as far as the law has one \[B\].
    pub(crate) fn least(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Exponential { .. } | Self::LogNormal { .. } => 1,
            Self::Trace(sizes) => sizes.iter().copied().min().unwrap_or(1),
        }
    }

    /// What is wrong with it; `None` if nothing is.
    pub fn problem(&self) -> Option<String> {
        let good = |mean: f64| (1.0..=f64::from(SIZE_MAX)).contains(&mean);
        let is_good = match self {
            Self::Fixed(bytes) => (1..=SIZE_MAX).contains(bytes),
            Self::Exponential { mean } => good(*mean),
            Self::LogNormal { mean, rms } => good(*mean) && *rms >= 0.0 && *rms <= 100.0 * mean,
            Self::Trace(sizes) => {
                !sizes.is_empty() && sizes.iter().all(|size| (1..=SIZE_MAX).contains(size))
            }
        };
        (!is_good).then(|| match self {
            Self::Fixed(bytes) => format!("fixed sizes of {bytes} B"),
            Self::Exponential { mean } => format!("exponential sizes with a mean of {mean} B"),
            Self::LogNormal { mean, rms } => {
                format!("log-normal sizes with a mean of {mean} B and an rms of {rms} B")
            }
            Self::Trace(sizes) => match sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
                Some(size) => format!("a list with a size of {size} B"),
                None => "a list without sizes".to_owned(),
            },
        })
    }

    /// Size of packet `number` of a source; `random` is one draw.
    #[inline]
    pub fn size(&self, source: u32, number: u64, random: u64) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Exponential { mean } => cut(-mean * unit(random).ln()),
            Self::LogNormal { mean, rms } => {
                let variance = log_normal_variance(*mean, *rms);
                // Two halves of the draw are the two uniform numbers of Box and Muller.
                let u = ((random >> 32) as f64 + 1.0) / 4_294_967_297.0;
                let angle = (random as u32) as f64 / 4_294_967_296.0 * core::f64::consts::TAU;
                let normal = (-2.0 * u.ln()).sqrt() * angle.cos();
                cut(mean * (variance.sqrt() * normal - variance / 2.0).exp())
            }
            Self::Trace(sizes) => *listed(sizes, source, number),
        }
    }

    /// The share of packets that are larger than so many bytes, of laws that have no largest size.
    pub fn share_above(&self, bytes: u64) -> f64 {
        match self {
            Self::Exponential { mean } => (-(bytes as f64) / mean).exp(),
            Self::LogNormal { mean, rms } if *rms > 0.0 => {
                let width = log_normal_variance(*mean, *rms).sqrt();
                normal_above(log_normal_widths(*mean, width, bytes as f64))
            }
            Self::Fixed(_) | Self::Trace(_) | Self::LogNormal { .. } => 0.0,
        }
    }

    /// Size of a packet, drawn from the stream.
    #[inline]
    pub fn draw(&self, source: u32, number: u64, stream: &mut RandomStream) -> u32 {
        self.size(source, number, stream.next_u64())
    }
}

/// Variance of the logarithm of log-normal sizes.
fn log_normal_variance(mean: f64, rms: f64) -> f64 {
    (1.0 + (rms / mean) * (rms / mean)).ln()
}

/// How many standard deviations of their logarithm, `width`, some bytes are above its mean.
fn log_normal_widths(mean: f64, width: f64, bytes: f64) -> f64 {
    ((bytes / mean).ln() + width * width / 2.0) / width
}

/// The share of a normal distribution above so many of its standard deviations.
fn normal_above(widths: f64) -> f64 {
    libm::erfc(widths / core::f64::consts::SQRT_2) / 2.0
}

/// Where the size of packet `number` of a source is in a list.
#[inline]
pub(crate) fn listed(sizes: &[u32], source: u32, number: u64) -> &u32 {
    let length = sizes.len() as u64;
    let start = mixed(u64::from(source)) % length;
    &sizes[((start + number % length) % length) as usize]
}

/// From just above 0 to 1.
fn unit(random: u64) -> f64 {
    ((random >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
}

fn cut(bytes: f64) -> u32 {
    bytes.round().clamp(1.0, f64::from(SIZE_MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::NodeId;
    use crate::random::{Purpose, RandomStreams};

    #[test]
    fn the_share_of_large_sizes_is_that_of_many_draws() {
        let mut stream = RandomStreams::new(3).stream(NodeId(0), Purpose(0));
        let (mean, rms) = (2000.0, 2000.0);
        for law in [
            SizeLaw::Exponential { mean },
            SizeLaw::LogNormal { mean, rms },
        ] {
            let sizes: Vec<u32> = (0..40_000).map(|n| law.draw(0, n, &mut stream)).collect();
            for bytes in [500, 2_000, 8_000] {
                let above = sizes
                    .iter()
                    .filter(|size| u64::from(**size) > bytes)
                    .count();
                let share = above as f64 / sizes.len() as f64;
                let expected = law.share_above(bytes);
                assert!(
                    (share - expected).abs() < 0.01,
                    "{law:?}, {bytes}: {share}, {expected}"
                );
            }
        }
        // 4.58 widths above the middle: tables of the normal distribution have 2.34 in a million.
        let share = SizeLaw::LogNormal { mean, rms }.share_above(64_000);
        assert!((share * 1e6 - 2.34).abs() < 0.01, "{share}");
        assert_eq!(SizeLaw::Fixed(9_000).share_above(8_000), 0.0);
    }

    /// With the largest ones cut, which are few or most of them.
    #[test]
    fn the_mean_is_that_of_many_draws() {
        let mut stream = RandomStreams::new(1).stream(NodeId(0), Purpose(0));
        let largest = f64::from(SIZE_MAX);
        let log_normal = |mean: f64, of_mean: f64| SizeLaw::LogNormal {
            mean,
            rms: of_mean * mean,
        };
        for law in [
            SizeLaw::Exponential { mean: largest },
            SizeLaw::Exponential {
                mean: largest / 4.0,
            },
            log_normal(largest, 1.0),
            log_normal(largest, 0.0),
            log_normal(largest / 10.0, 10.0),
            log_normal(100_000.0, 100.0),
        ] {
            assert_eq!(law.problem(), None);
            let n = 400_000;
            let sizes = (0..n).map(|i| f64::from(law.draw(0, i, &mut stream)));
            let ratio = sizes.sum::<f64>() / n as f64 / law.mean();
            assert!((ratio - 1.0).abs() < 0.01, "{law:?}: {ratio}");
        }
        // Those that are not cut keep theirs, to the last digit.
        assert_eq!(SizeLaw::Exponential { mean: 2048.5 }.mean(), 2048.5);
        assert_eq!(log_normal(2048.5, 1.0).mean(), 2048.5);
    }

    #[test]
    fn laws_have_their_moments() {
        let mut stream = RandomStreams::new(1).stream(NodeId(0), Purpose(0));
        let laws = [
            (SizeLaw::Fixed(2048), 0.0),
            (SizeLaw::Exponential { mean: 2048.0 }, 2048.0),
            (
                SizeLaw::LogNormal {
                    mean: 2048.0,
                    rms: 1024.0,
                },
                1024.0,
            ),
        ];
        for (law, rms) in laws {
            let n = 200_000;
            let sizes: Vec<f64> = (0..n)
                .map(|i| f64::from(law.draw(0, i, &mut stream)))
                .collect();
            let mean = sizes.iter().sum::<f64>() / n as f64;
            let var = sizes.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / n as f64;
            assert!((mean / 2048.0 - 1.0).abs() < 0.01, "{law:?} mean {mean}");
            assert!((var.sqrt() - rms).abs() < 0.02 * 2048.0, "{law:?} {var}");
        }
        assert!(SizeLaw::Fixed(0).problem().is_some());
        assert!(SizeLaw::Trace(Vec::new()).problem().is_some());
        assert_eq!(SizeLaw::Trace(vec![5]).size(3, 9, 0), 5);
    }
}
