//! How fast a replay goes: as the run did, at a fixed rate, or as fast as possible.

use std::str::FromStr;
use std::time::{Duration, Instant};

use livetime_wire::{RateHz, RunNs};

/// What sets the pace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Nothing.
    Max,
    /// The times of the run.
    Own,
    /// So many a second.
    Rate(f64),
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Self::Max),
            "own" => Ok(Self::Own),
            _ => match crate::config::parse_quantity::<RateHz>(text) {
                Ok(RateHz(hz)) if hz.is_finite() && hz > 0.0 => Ok(Self::Rate(hz)),
                _ => Err("expected max, own, or a rate such as 1kHz".to_owned()),
            },
        }
    }
}

/// Waits until the next one is due.
#[derive(Debug)]
pub(super) struct Pacer {
    pace: Pace,
    start: Instant,
    first: Option<RunNs>,
    done: u64,
}

impl Pacer {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            pace,
            start: Instant::now(),
            first: None,
            done: 0,
        }
    }

    /// When the next one is due after the start of the replay; `at` is its time in the run.
    fn due(&mut self, at: RunNs) -> Duration {
        let first = *self.first.get_or_insert(at);
        let due = match self.pace {
            Pace::Max => Duration::ZERO,
            // Events are stored about in the order of their times: one that is late is due at once.
            Pace::Own => Duration::from_nanos(at.0.saturating_sub(first.0)),
            // Beyond all times at a rate of next to nothing.
            Pace::Rate(hz) => {
                Duration::try_from_secs_f64(self.done as f64 / hz).unwrap_or(Duration::MAX)
            }
        };
        self.done += 1;
        due
    }

    /// Sleeps until the next one is due.
    pub(super) fn wait(&mut self, at: RunNs) {
        let due = self.due(at);
        let left = due.saturating_sub(self.start.elapsed());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }

    /// Seconds since the start.
    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_named_and_others_are_refused() {
        assert_eq!("max".parse(), Ok(Pace::Max));
        assert_eq!("own".parse(), Ok(Pace::Own));
        assert_eq!("2 kHz".parse(), Ok(Pace::Rate(2000.0)));
        for text in ["", "fast", "0 Hz", "3"] {
            assert!(text.parse::<Pace>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_due_follows_from_the_pace() {
        let due = |pace| {
            let mut pacer = Pacer::new(pace);
            [5_000, 9_000, 7_000].map(|at| pacer.due(RunNs(at)).as_nanos())
        };
        assert_eq!(due(Pace::Max), [0, 0, 0]);
        assert_eq!(due(Pace::Own), [0, 4_000, 2_000]);
        assert_eq!(due(Pace::Rate(1e6)), [0, 1_000, 2_000]);
        let never = Duration::MAX.as_nanos();
        assert_eq!(due(Pace::Rate(1e-20)), [0, never, never]);
    }
}
