//! The rates of a run over its time, in equal intervals, of which there are never too many.

use std::time::Duration;

use livetime_node::{RateSample, RateTotals, Snapshot};
use livetime_wire::{DurationNs, RunNs};

/// The first length of an interval, and that of the rates of now.
const RATE_INTERVAL: Duration = Duration::from_secs(1);
/// Most intervals that are kept: a summary must stay readable, however long the run.
const INTERVALS_MAX: usize = 1 << 16;

/// The rates of a run, one for each interval from when triggers are taken until it ends. Where there
/// would be too many intervals, two become one: a run of a day has intervals of 2 s.
pub(crate) struct RunRates {
    from: RunNs,
    /// The totals at the end of each interval that is kept.
    ends: Vec<RateTotals>,
    /// Seconds of an interval that is kept, and those that have passed in the one that has begun.
    seconds: u32,
    passed: u32,
    /// Rates of the last second, also of one of the drain.
    shown: Option<RateSample>,
    /// The totals where the last second has ended, and when that was.
    since: (RateTotals, RunNs),
    /// Those at the last look.
    last: (RateTotals, RunNs),
    is_over: bool,
}

impl RunRates {
    /// Those of a run that takes triggers from `from` on, when nothing was counted yet.
    pub(crate) fn new(from: RunNs) -> Self {
        let first = (RateTotals::default(), from);
        Self {
            from,
            ends: Vec::new(),
            seconds: 1,
            passed: 0,
            shown: None,
            since: first,
            last: first,
            is_over: false,
        }
    }

    /// Takes the seconds that have ended since the last look. What came between the two looks is taken
    /// for even: of seconds that the watcher has missed, since it stood still, nobody knows how much
    /// was in which, and in all of them together is what was counted. One that was nearly over when the
    /// run ended has its rates, too; those of the drain are only shown.
    pub(crate) fn look(&mut self, now: &Snapshot, is_ending: bool) {
        let second = DurationNs(RATE_INTERVAL.as_nanos() as u64);
        let (totals, at) = (RateTotals::of(now), now.at);
        let early = match is_ending && !self.is_over {
            true => second.0 / 10,
            false => 0,
        };
        while at.0 + early >= self.since.1.0 + second.0 {
            let end = RunNs(self.since.1.0 + second.0);
            let between = at.since(self.last.1).as_seconds();
            let share = match end < at && between > 0.0 {
                true => end.since(self.last.1).as_seconds() / between,
                false => 1.0,
            };
            let reached = self.last.0.towards(&totals, share);
            let seconds = RATE_INTERVAL.as_secs_f64();
            let at_s = end.0 as f64 * 1e-9;
            self.shown = Some(RateSample::of_totals(
                &self.since.0,
                &reached,
                seconds,
                at_s,
            ));
            if !self.is_over {
                self.keep(reached);
            }
            self.since = (reached, end);
        }
        self.last = (totals, at);
        self.is_over = is_ending;
    }

    /// Keeps the totals at the end of a second if an interval ends with it.
    fn keep(&mut self, reached: RateTotals) {
        self.passed += 1;
        if self.passed < self.seconds {
            return;
        }
        self.passed = 0;
        self.ends.push(reached);
        if self.ends.len() == INTERVALS_MAX {
            let mut is_second = true;
            self.ends.retain(|_| {
                is_second = !is_second;
                is_second
            });
            self.seconds *= 2;
        }
    }

    /// Length of an interval \[s\].
    pub(crate) fn interval_s(&self) -> f64 {
        f64::from(self.seconds) * RATE_INTERVAL.as_secs_f64()
    }

    /// The rates of each interval.
    pub(crate) fn samples(&self) -> Vec<RateSample> {
        let interval = self.interval_s();
        let mut before = RateTotals::default();
        let mut end = self.from.0 as f64 * 1e-9;
        let sample = |reached: &RateTotals| {
            end += interval;
            let sample = RateSample::of_totals(&before, reached, interval, end);
            before = *reached;
            sample
        };
        self.ends.iter().map(sample).collect()
    }

    /// The rates now, and over which time \[s\]: since the last second, or those of the last one where
    /// that has just ended.
    pub(crate) fn present(&self, now: &Snapshot) -> (Option<RateSample>, f64) {
        let (totals, at) = self.since;
        let seconds = now.at.since(at).as_seconds();
        let is_new = seconds < RATE_INTERVAL.as_secs_f64() / 2.0;
        match self.shown {
            Some(sample) if is_new => (Some(sample), RATE_INTERVAL.as_secs_f64()),
            _ => {
                let until = RateTotals::of(now);
                let at_s = now.at.0 as f64 * 1e-9;
                let sample =
                    (seconds > 0.0).then(|| RateSample::of_totals(&totals, &until, seconds, at_s));
                (sample, seconds)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use livetime_node::counter_block::RoleCounts;

    use super::*;

    /// The counters after so many triggers.
    pub(crate) fn snapshot(at_ms: u64, triggers: u64) -> Snapshot {
        let mut counts = RoleCounts::default();
        counts.chain.triggers = triggers;
        Snapshot {
            at: RunNs(at_ms * 1_000_000),
            roles: vec![("src0".to_owned(), counts)],
            died: Vec::new(),
        }
    }

    #[test]
    fn intervals_that_were_missed_have_what_was_counted_in_all_of_them() {
        let mut rates = RunRates::new(RunNs(0));
        // The watch stood still from 2 s to 7.5 s, and so did the source, which then made up for it.
        for (at_ms, triggers) in [
            (980, 980),
            (1000, 1000),
            (2000, 2000),
            (7500, 2550),
            (7520, 6000),
            (7990, 7990),
        ] {
            rates.look(&snapshot(at_ms, triggers), at_ms == 7990);
        }
        let samples = rates.samples();
        let hz: Vec<f64> = samples.iter().map(|s| s.trigger_hz.round()).collect();
        assert_eq!(
            hz,
            [1000.0, 1000.0, 100.0, 100.0, 100.0, 100.0, 100.0, 5490.0]
        );
        let times: Vec<f64> = samples.iter().map(|s| s.at_s.round()).collect();
        assert_eq!(times, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        rates.look(&snapshot(9500, 9500), true);
        assert_eq!(rates.samples().len(), 8, "it is over");
        // Whoever asks in a long drain hears of its last second.
        rates.look(&snapshot(60_000, 9500), true);
        let (shown, interval) = rates.present(&snapshot(60_100, 9500));
        let shown = shown.expect("the rates of an interval");
        assert_eq!(
            (shown.trigger_hz, shown.at_s.round(), interval),
            (0.0, 60.0, 1.0)
        );
    }

    /// Given triggers from 3 s on, and a watch that looks at them later, then the first interval begins
    /// with them and has all of them.
    #[test]
    fn intervals_begin_when_triggers_are_taken() {
        let mut rates = RunRates::new(RunNs(3_000_000_000));
        for at_ms in [3400, 3900, 4100, 5000] {
            rates.look(&snapshot(at_ms, at_ms - 3000), false);
        }
        let samples = rates.samples();
        let samples = samples
            .iter()
            .map(|s| (s.at_s.round(), s.trigger_hz.round()));
        let samples: Vec<_> = samples.collect();
        assert_eq!(samples, [(4.0, 1000.0), (5.0, 1000.0)]);
    }

    /// Given a run of three times as many seconds as intervals are kept, with as many triggers in each as
    /// have passed, then the intervals are as long as they must be, all alike, and have all triggers but
    /// those of the last one, which is not over.
    #[test]
    fn intervals_of_a_long_run_become_longer_and_not_more() {
        let seconds = 3 * INTERVALS_MAX as u64 + 3;
        let mut rates = RunRates::new(RunNs(0));
        let triggers = |second: u64| second * (second + 1) / 2;
        for second in 1..=seconds {
            rates.look(&snapshot(1000 * second, triggers(second)), false);
        }
        assert_eq!(rates.interval_s().round(), 4.0);
        let samples = rates.samples();
        assert_eq!(samples.len() as u64, seconds / 4);
        for (n, sample) in (1_u64..).zip(&samples) {
            let come = triggers(4 * n) - triggers(4 * n - 4);
            assert_eq!((4.0 * sample.trigger_hz).round() as u64, come);
            assert_eq!(sample.at_s.round() as u64, 4 * n);
        }
    }
}
