//! When triggers come: as a Poisson process, at a fixed gap, or as fast as they are taken.
//!
//! The gap before trigger `k` depends only on (seed, `k`), so the times are the same whoever asks
//! and however often. Times are counted from when triggers are first taken.

use livetime_wire::decision::mix64;
use livetime_wire::{Problem, RateHz, RunNs};

use crate::counter_random::{key, unit};
use crate::problem_code::RATE;

/// Separates the gaps from other uses of the seed.
const PURPOSE: u64 = 0x4152_5249;

/// How triggers follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArrivalKind {
    /// Independent of each other, with exponential gaps.
    #[default]
    Poisson,
    /// All gaps equal; the first trigger comes one gap after the start.
    FixedGap,
    /// Always due: the receiver sets the pace. Only where nothing is refused.
    Unpaced,
}

/// The arrival of triggers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrivalConfig {
    /// How they follow each other. Default Poisson.
    pub kind: ArrivalKind,
    /// Mean rate, 0.001 Hz to 10 MHz. Default 10 kHz. Unpaced arrival ignores it.
    pub rate: RateHz,
}

impl Default for ArrivalConfig {
    fn default() -> Self {
        Self {
            kind: ArrivalKind::Poisson,
            rate: RateHz(10_000.0),
        }
    }
}

impl ArrivalConfig {
    /// Every problem of this arrival; `path` is its key path.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let allowed = 0.001..=1e7;
        if self.kind == ArrivalKind::Unpaced || allowed.contains(&self.rate.0) {
            return Vec::new();
        }
        let help = match self.rate.0 > *allowed.end() {
            true => "set it to at most 10 MHz: what a chain cannot take of it is dead time",
            false => "set it to at least 0.001 Hz: without triggers there is no run",
        };
        vec![Problem::new(
            RATE,
            format!("{path}.rate"),
            // Rounded it could read as nothing, or as what is allowed.
            format!("{:#}", self.rate),
            "0.001 Hz to 10 MHz",
            help,
        )]
    }
}

/// The sequence of arrival times.
#[derive(Debug, Clone)]
pub struct ArrivalProcess {
    kind: ArrivalKind,
    gap_ns: f64,
    key: u64,
    count: u64,
    /// Sum of the gaps so far; `f64` loses less than a nanosecond a month.
    elapsed_ns: f64,
}

impl ArrivalProcess {
    /// The times of `seed`; `config` has been validated.
    pub fn new(config: &ArrivalConfig, seed: u64) -> Self {
        Self {
            kind: config.kind,
            gap_ns: 1e9 / config.rate.0,
            key: key(seed, PURPOSE),
            count: 0,
            elapsed_ns: 0.0,
        }
    }

    /// The next trigger's time, never before the last one's.
    pub fn next_offer(&mut self) -> RunNs {
        self.count += 1;
        self.elapsed_ns = match self.kind {
            ArrivalKind::Unpaced => 0.0,
            // Multiplied, not added up, so that no rounding accumulates.
            ArrivalKind::FixedGap => self.count as f64 * self.gap_ns,
            ArrivalKind::Poisson => {
                self.elapsed_ns - unit(mix64(self.key ^ mix64(self.count))).ln() * self.gap_ns
            }
        };
        // `as` saturates and rounds down.
        RunNs(self.elapsed_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(kind: ArrivalKind, hz: f64) -> ArrivalConfig {
        ArrivalConfig {
            kind,
            rate: RateHz(hz),
        }
    }

    #[test]
    fn a_rate_that_cannot_be_produced_is_named_as_it_was_given() {
        for (hz, found) in [(0.0001, "0.0001 Hz"), (0.0, "0 Hz"), (2e7, "20 MHz")] {
            let problems = config(ArrivalKind::Poisson, hz).validate("source[0]");
            let said: Vec<&str> = problems.iter().map(|p| p.found.as_str()).collect();
            assert_eq!(said, [found]);
        }
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_width_of_an_exponential() {
        let mut process = ArrivalProcess::new(&config(ArrivalKind::Poisson, 10_000.0), 42);
        let (mut last, mut squares, n) = (RunNs(0), 0.0, 200_000);
        for _ in 0..n {
            let at = process.next_offer();
            squares += (at.since(last).0 as f64).powi(2);
            last = at;
        }
        let mean = last.0 as f64 / f64::from(n);
        // Five standard errors; for an exponential the mean square is twice the squared mean.
        assert!((mean / 100_000.0 - 1.0).abs() < 0.0112, "{mean}");
        let ratio = squares / f64::from(n) / (2.0 * mean * mean);
        assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
    }

    #[test]
    fn fixed_gaps_do_not_drift_and_equal_seeds_give_equal_times() {
        let mut fixed = ArrivalProcess::new(&config(ArrivalKind::FixedGap, 30_000.0), 1);
        let last = (0..3_000_000).map(|_| fixed.next_offer()).last();
        assert_eq!(last, Some(RunNs(100_000_000_000)));

        let poisson = |seed| {
            let mut process = ArrivalProcess::new(&config(ArrivalKind::Poisson, 1e6), seed);
            (0..100).map(|_| process.next_offer()).collect::<Vec<_>>()
        };
        assert_eq!(poisson(5), poisson(5));
        assert_ne!(poisson(5), poisson(6));
        assert!(poisson(5).is_sorted());
    }

    #[test]
    fn unpaced_triggers_are_always_due_and_impossible_rates_are_refused() {
        let mut unpaced = ArrivalProcess::new(&config(ArrivalKind::Unpaced, 0.0), 1);
        assert_eq!(unpaced.next_offer(), RunNs(0));
        assert_eq!(config(ArrivalKind::Unpaced, 0.0).validate("a"), []);
        for hz in [0.0, -1.0, f64::NAN, 1e9] {
            let problems = config(ArrivalKind::Poisson, hz).validate("a");
            assert_eq!(problems.len(), 1, "{hz}");
            assert_eq!(problems[0].path, "a.rate");
        }
    }
}
