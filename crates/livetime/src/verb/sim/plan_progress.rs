//! What is said while a plan is made: an option of a large network takes minutes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use livetime_fabric::plan::{PlanOption, PlanRun, Sending};

use super::plan::{margin_words, verdict_words};

/// At most one line in this time, but for options that are through.
const PACE: Duration = Duration::from_secs(5);
/// A plan that takes longer says what becomes of each option.
const LONG: Duration = Duration::from_secs(30);

/// Counts the options that are through, from all threads.
pub(super) struct PlanProgress {
    all: usize,
    started: Instant,
    /// Options that are through, and when that was last said.
    through: Mutex<(usize, Instant)>,
}

impl PlanProgress {
    pub(super) fn new(all: usize, started: Instant) -> Self {
        Self {
            all,
            started,
            through: Mutex::new((0, started)),
        }
    }

    /// An option is through, `None` for one that does not exist; a line if it is time for one.
    pub(super) fn through(&self, option: Option<&PlanOption>, now: Instant) -> Option<String> {
        let what = || option.map_or_else(String::new, outcome);
        let is_long = now.duration_since(self.started) >= LONG;
        self.line(1, option.is_some() && is_long, what, now)
    }

    /// A run of an option begins; a line if it is time for one.
    pub(super) fn begun(&self, run: &PlanRun<'_>, now: Instant) -> Option<String> {
        let what = || {
            let (name, sources) = (name(run.network, run.sending), run.sources);
            let (number, credits) = (run.number, run.credits);
            format!("; {name}: run {number} of {sources} sources, {credits} credits")
        };
        self.line(0, false, what, now)
    }

    fn line(
        &self,
        more: usize,
        is_due: bool,
        what: impl Fn() -> String,
        now: Instant,
    ) -> Option<String> {
        // Nothing in here panics with the lock in hand.
        let mut through = self.through.lock().unwrap_or_else(|held| held.into_inner());
        through.0 += more;
        let (all, count) = (self.all, through.0);
        let is_due = is_due || now.duration_since(through.1) >= PACE;
        if count == all || !is_due {
            return None;
        }
        through.1 = now;
        let seconds = now.duration_since(self.started).as_secs();
        let what = what();
        Some(format!("{count} of {all} options after {seconds} s{what}"))
    }
}

fn name(network: &str, sending: Sending) -> String {
    let (switches, protocol) = (sending.switches(), sending.protocol().name());
    format!("{network}, {switches}, {protocol}")
}

/// What became of an option.
fn outcome(option: &PlanOption) -> String {
    let name = name(&option.network, option.sending);
    let (verdict, _) = verdict_words(&option.verdict);
    let margin = margin_words(option).map(|margin| format!(", margin {margin}"));
    let margin = margin.unwrap_or_default();
    format!("; {name}: {verdict}{margin}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use livetime_fabric::DurationPs;
    use livetime_fabric::network::Estimate;
    use livetime_fabric::plan::{Bottleneck, Verdict};

    #[test]
    fn a_line_comes_when_it_is_time_and_says_what_was_found() {
        let option = PlanOption {
            next_bottleneck: None,
            network: "one switch of 4 ports".to_owned(),
            elements: 1,
            sending: Sending::BarrelShifter,
            credits: 4,
            requests_per_message: 8,
            interval: DurationPs::ZERO,
            capacity_hz: Some(1.2e5),
            capacity_reason: None,
            efficiency: None,
            margin: Some(0.2),
            margin_bounds: None,
            starts: 1,
            event_rate: Estimate::of(&[]),
            events: 100,
            lost: 0,
            verdict: Verdict::Holds,
            bottleneck: Bottleneck::SourceLinks,
        };
        let start = Instant::now();
        let progress = PlanProgress::new(6, start);
        let after = |s| start + Duration::from_secs(s);
        assert_eq!(progress.through(Some(&option), after(4)), None);
        let line = progress.through(Some(&option), after(5));
        assert_eq!(
            line.as_deref(),
            Some(
                "2 of 6 options after 5 s; one switch of 4 ports, no buffers, barrel shifter: \
                 holds, margin +20 %"
            )
        );
        let run = PlanRun {
            network: "one switch of 4 ports",
            sending: Sending::PullLossy,
            sources: 64,
            credits: 16,
            number: 3,
        };
        assert_eq!(progress.begun(&run, after(9)), None);
        let line = progress.begun(&run, after(10));
        assert_eq!(
            line.as_deref(),
            Some(
                "2 of 6 options after 10 s; one switch of 4 ports, output queues, no flow control, \
                 pull: run 3 of 64 sources, 16 credits"
            )
        );
        assert_eq!(progress.through(None, after(11)), None);
        let line = progress.through(None, after(61));
        assert_eq!(line.as_deref(), Some("4 of 6 options after 61 s"));
        // Of a plan that takes long each is told.
        assert_eq!(progress.begun(&run, after(62)), None);
        let line = progress.through(Some(&option), after(63));
        let line = line.expect("an option of a long plan");
        assert!(
            line.starts_with("5 of 6 options after 63 s; one switch"),
            "{line}"
        );
        // The answer follows at once.
        assert_eq!(progress.through(Some(&option), after(90)), None);
    }
}
