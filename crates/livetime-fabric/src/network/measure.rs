//! Steady-state numbers with their errors: batch means, convergence, fairness.
//!
//! A simulated throughput is a mean over batches of simulated time after a warm-up; it is a
//! steady-state number only if the batches show no trend and the confidence interval is narrow.
//! Otherwise the result says so, and nothing else is printed as one.
//!
//! The interval is that of independent batches. Of batches that are shorter than the memory of the
//! network it would be too narrow, of some that are shorter than the round of a pattern too wide:
//! where the means of 8 longer batches vary otherwise than independent ones would, those are taken.
//! Where neighbours are alike, by more than chance, the interval is at least that of a sequence in
//! which each batch takes over that share of its neighbour (Fishman, Management Science 18, 1971).

use std::borrow::Cow;
use std::ops::RangeInclusive;

/// Batches of a run after its warm-up.
pub const BATCHES: usize = 32;
/// Fewest batches that say anything.
const BATCHES_MIN: usize = 8;
/// Square of the error that longer batches give, over that of all batches, where these are
/// independent: in 95 of 100 cases (analysis of variance of 8 groups of 2 or 4).
const AS_INDEPENDENT: RangeInclusive<f64> = 0.3..=2.0;
/// Correlation of neighbours that is more than chance, in its error for independent batches, the root
/// of their number: 15 of 100 independent sequences have as much.
const CORRELATION_ERRORS: f64 = 0.85;
/// Most that is believed of a correlation: the interval is four times that of independent batches.
const CORRELATION_MAX: f64 = 0.9;
/// Student's t for 95 % of 1 to 6 degrees of freedom, for which the expansion is too far off.
const STUDENT_95: [f64; 6] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447];
/// Deviate of the normal distribution for 95 %.
const NORMAL_95: f64 = 1.959_964;
/// Half width of the interval, as a share of the mean, below which a run has converged.
const RELATIVE_HALF_WIDTH: f64 = 0.01;
/// Difference between the halves of a run that is no trend, in their standard errors.
const TREND_ERRORS: f64 = 3.0;
/// Difference between the halves, as a share of the mean, that is always too small to matter.
const TREND_SHARE: f64 = 0.004;
/// Growth that is no chance, in the error of a sum of independent steps.
const GROWTH_ERRORS: f64 = 3.0;
/// Growth of the second half of a run over that of the first one from which on it goes on. What comes to rest
/// as slowly as at full load grows with the root of time: 0.6 times as much, after a tenth more of warm-up.
const GROWTH_GOES_ON: f64 = 0.7;

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
        if batches.len() < BATCHES_MIN {
            return Self {
                mean,
                ci95: f64::INFINITY,
                is_flat: false,
                converged: false,
            };
        }
        let (independent, is_round) = independent(batches);
        let (early, late) = independent.split_at(independent.len() / 2);
        let errors = standard_error(early).hypot(standard_error(late));
        let trend = (self::mean(late) - self::mean(early)).abs();
        let is_flat = trend <= (TREND_ERRORS * errors).max(TREND_SHARE * mean.abs());
        let mut ci95 = student_95(independent.len() - 1) * standard_error(&independent);
        // With a trend all neighbours are alike for it; those in the round of a pattern are, too, and
        // the rounds are the same.
        if is_flat && !is_round {
            ci95 = ci95.max(half_width_of_alike(batches));
        }
        Self {
            mean,
            ci95,
            is_flat,
            // Nothing at all is no steady state: more often it is a run that was too short.
            converged: mean != 0.0 && is_flat && ci95 <= RELATIVE_HALF_WIDTH * mean.abs(),
        }
    }

    /// The same with an interval that is wider by `by` to either side.
    pub fn widened(self, by: f64) -> Self {
        let ci95 = self.ci95 + by;
        Self {
            ci95,
            converged: self.converged && ci95 <= RELATIVE_HALF_WIDTH * self.mean.abs(),
            ..self
        }
    }

    /// The mean over independent starts of one system, each with its own estimate. Where starts lock
    /// into orders that stay, each is steady and they differ: the interval is that of their means, or
    /// that of the starts themselves where it is wider. Not converged for fewer than 2.
    pub fn across(starts: &[Self]) -> Self {
        let means: Vec<f64> = starts.iter().map(|start| start.mean).collect();
        let mean = mean(&means);
        let is_flat = starts.len() > 1 && starts.iter().all(|start| start.is_flat);
        let ci95 = match starts.len() {
            0 | 1 => f64::INFINITY,
            count => {
                let within: f64 = starts.iter().map(|start| start.ci95 * start.ci95).sum();
                let between = student_95(count - 1) * standard_error(&means);
                between.max(within.sqrt() / count as f64)
            }
        };
        Self {
            mean,
            ci95,
            is_flat,
            converged: mean != 0.0 && is_flat && ci95 <= RELATIVE_HALF_WIDTH * mean.abs(),
        }
    }
}

/// Whether values in the order of time grow all along, by more than `least` in half of the time: more than
/// so many independent steps of their size would come to by chance, and in the second half about as
/// much as in the first.
pub fn grows(values: &[f64], least: f64) -> bool {
    if values.len() < BATCHES_MIN {
        return false;
    }
    let (early, late) = values.split_at(values.len() / 2);
    let growth = |half: &[f64]| half[half.len() - 1] - half[0];
    let steps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // That of a mean of so many steps, and so of half of them together.
    let n = steps.len() as f64;
    let of_half = standard_error(&steps) * (n * late.len() as f64).sqrt();
    let most = least.max(GROWTH_ERRORS * of_half);
    growth(late) > most && growth(late) >= GROWTH_GOES_ON * growth(early)
}

/// The batches, or 8 longer ones if those vary more or less than independent batches let expect; and
/// whether they vary less, as the rounds of a pattern do.
fn independent(batches: &[f64]) -> (Cow<'_, [f64]>, bool) {
    let joined = batches.len() / BATCHES_MIN;
    if joined < 2 {
        return (Cow::Borrowed(batches), false);
    }
    let longer: Vec<f64> = batches.chunks_exact(joined).map(mean).collect();
    let square = (standard_error(&longer) / standard_error(batches)).powi(2);
    // Not a number where all are equal.
    if square.is_nan() || AS_INDEPENDENT.contains(&square) {
        return (Cow::Borrowed(batches), false);
    }
    (Cow::Owned(longer), square < *AS_INDEPENDENT.start())
}

/// Half width of the 95 % interval of a mean of batches that are like their neighbours as far as those
/// show: `r` of the correlation makes `(1 - r) / (1 + r)` times as many independent ones of them.
fn half_width_of_alike(batches: &[f64]) -> f64 {
    let n = batches.len() as f64;
    let correlation = correlation_of_neighbours(batches);
    if correlation * n.sqrt() < CORRELATION_ERRORS {
        return student_95(batches.len() - 1) * standard_error(batches);
    }
    let correlation = correlation.min(CORRELATION_MAX);
    let inflation = (1.0 + correlation) / (1.0 - correlation);
    let freedom = ((n - 1.0) / inflation) as usize;
    student_95(freedom.max(2)) * standard_error(batches) * inflation.sqrt()
}

/// Correlation of each batch with the next one, 0 where they are all equal. That of few batches comes
/// out too small by one over their number, since their mean is taken from them.
fn correlation_of_neighbours(batches: &[f64]) -> f64 {
    let mean = mean(batches);
    let squares: f64 = batches.iter().map(|v| (v - mean) * (v - mean)).sum();
    let pairs = batches.windows(2);
    let products: f64 = pairs.map(|p| (p[0] - mean) * (p[1] - mean)).sum();
    if squares == 0.0 {
        return 0.0;
    }
    products / squares + 1.0 / batches.len() as f64
}

/// Student's t for 95 %, from 1 degree of freedom on: from 7 on by its expansion, right to 0.1 % there.
fn student_95(freedom: usize) -> f64 {
    if let Some(tabled) = STUDENT_95.get(freedom.saturating_sub(1)) {
        return *tabled;
    }
    let (n, z) = (freedom as f64, NORMAL_95);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / n + second / (n * n) + third / (n * n * n)
}

fn mean(values: &[f64]) -> f64 {
    // The sum of nothing is a negative zero in the standard library.
    values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64
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
        let nothing = Estimate::of(&[]);
        assert!(!nothing.converged && nothing.mean.is_sign_positive());
    }

    #[test]
    fn an_interval_that_is_widened_too_much_is_no_steady_state() {
        let narrow = Estimate::of(
            &noise(7)
                .take(32)
                .map(|n| 10.0 + 0.1 * n)
                .collect::<Vec<_>>(),
        );
        assert!(narrow.converged, "{narrow:?}");
        let room = RELATIVE_HALF_WIDTH * narrow.mean - narrow.ci95;
        let still = narrow.widened(0.9 * room);
        assert!(still.converged && still.is_flat, "{still:?}");
        let wide = narrow.widened(1.1 * room);
        assert!(!wide.converged && wide.is_flat, "{wide:?}");
        assert!(wide.ci95 > still.ci95 && (wide.mean - narrow.mean).abs() < 1e-12);
    }

    #[test]
    fn what_grows_grows_on_and_more_than_by_chance() {
        let values =
            |value: fn(f64) -> f64| -> Vec<f64> { (0..32).map(|i| value(f64::from(i))).collect() };
        let ramp = values(|i| 5.0 + 0.5 * i);
        assert!(grows(&ramp, 7.0) && !grows(&ramp, 8.0));
        let noisy = values(|i| 0.5 * i + (i * 7.0) % 3.0);
        assert!(!grows(&noisy, 0.0) && grows(&values(|i| 3.0 * i + (i * 7.0) % 3.0), 0.0));
        assert!(
            !grows(&values(|i| (i + 3.0).sqrt()), 0.0),
            "it comes to rest"
        );
        assert!(!grows(&values(|i| -i), 0.0) && !grows(&[1.0; 32], 0.0));
        assert!(!grows(&[], 0.0));
    }

    #[test]
    fn the_interval_of_correlated_batches_is_that_of_longer_ones() {
        // Eight rounds of a pattern, cut into four each: every round is the same.
        let round = [0.6, 0.5, 0.4, 0.5];
        let rounds: Vec<f64> = (0..32).map(|i| round[i % 4]).collect();
        let estimate = Estimate::of(&rounds);
        assert!(estimate.converged && estimate.ci95 < 1e-9, "{estimate:?}");
        // Each level stays for four batches: eight values are known, not thirty-two.
        let levels = [0.50, 0.49, 0.51, 0.49, 0.50, 0.51, 0.49, 0.51];
        let levels: Vec<f64> = (0..32).map(|i| levels[i / 4]).collect();
        let alike = Estimate::of(&levels);
        let naive = student_95(31) * standard_error(&levels);
        assert!(alike.ci95 > 2.0 * naive, "{alike:?}, {naive}");
        // Independent ones are left alone.
        let noise: Vec<f64> = noise(7).take(32).collect();
        let left = student_95(31) * standard_error(&noise);
        assert_eq!(Estimate::of(&noise).ci95, left);
    }

    /// Independent numbers around 0.
    fn noise(seed: u64) -> impl Iterator<Item = f64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1 << 23) as f64 - 1.0
        })
    }

    /// In how many of 1000 sequences without a trend the interval of 32 batches holds the true mean, 0,
    /// and how wide it is over that of independent batches; each takes over a share of the one before.
    fn held_and_width(share: f64) -> (usize, f64) {
        let (mut held, mut flat, mut width, mut naive) = (0, 0, 0.0, 0.0);
        for seed in 0..1000 {
            let mut value = 0.0;
            let alike = noise(seed * 7919 + 1).map(|number| {
                value = share * value + number;
                value
            });
            let batches: Vec<f64> = alike.skip(100).take(32).collect();
            let estimate = Estimate::of(&batches);
            if !estimate.is_flat {
                continue;
            }
            flat += 1;
            held += usize::from(estimate.mean.abs() <= estimate.ci95);
            width += estimate.ci95;
            naive += student_95(31) * standard_error(&batches);
        }
        assert!(flat > 800, "{flat}");
        (1000 * held / flat, width / naive)
    }

    #[test]
    fn the_interval_holds_the_mean_as_often_as_it_says_where_batches_are_like_their_neighbours() {
        let (held, width) = held_and_width(0.0);
        assert!(held >= 940 && width < 1.1, "independent: {held}, {width}");
        for (share, least) in [(0.2, 910), (0.4, 900), (0.6, 880)] {
            let (held, _) = held_and_width(share);
            assert!(held >= least, "{share} of the one before: {held}");
        }
    }

    /// Each start is steady to a thousandth, and they differ by a tenth.
    #[test]
    fn starts_that_differ_are_no_steady_state_however_steady_each_is() {
        let start = |mean: f64| Estimate {
            mean,
            ci95: 0.001 * mean,
            is_flat: true,
            converged: true,
        };
        let apart = Estimate::across(&[45.0, 50.0, 45.0, 45.0].map(start));
        assert!(apart.is_flat && !apart.converged, "{apart:?}");
        assert!((apart.mean - 46.25).abs() < 1e-9 && (apart.ci95 - 3.182 * 1.25).abs() < 1e-9);
        let alike = Estimate::across(&[45.0, 45.1, 44.9, 45.0].map(start));
        assert!(alike.converged && alike.ci95 < 0.2, "{alike:?}");
        // Those that agree by chance are not known better than each is.
        let same = Estimate::across(&[45.0; 4].map(start));
        assert!((same.ci95 - 0.0225).abs() < 1e-9, "{same:?}");
        let mut leaning = [45.0; 4].map(start);
        leaning[2].is_flat = false;
        assert!(!Estimate::across(&leaning).converged);
        assert!(!Estimate::across(&[start(45.0)]).converged && !Estimate::across(&[]).converged);
    }

    #[test]
    fn students_deviates_are_those_of_the_tables() {
        for (freedom, published) in [
            (1, 12.7062),
            (2, 4.3027),
            (6, 2.4469),
            (7, 2.3646),
            (15, 2.1314),
            (31, 2.0395),
        ] {
            let t = student_95(freedom);
            assert!((t - published).abs() < 0.001, "{freedom}: {t}");
        }
    }

    #[test]
    fn fairness_of_the_extremes() {
        assert_eq!(fairness(&[5, 5, 5, 5]), 1.0);
        assert_eq!(fairness(&[8, 0, 0, 0]), 0.25);
        assert_eq!(fairness(&[0, 0]), 1.0);
    }
}
