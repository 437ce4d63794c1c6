//! Several starts of one setting: what its run says of another beginning.
//!
//! Where triggers are always there and sizes are alike, packets may find an order that stays. From
//! another seed they find another one, whose rate differs by more than either run's interval says. A
//! setting that is judged runs from several seeds, and what is said of it holds for all of them.
//! Shifts give packets their order: one start says what any would.

use super::option::Verdict;
use super::search::Search;
use super::trial::{Length, Trial};
use crate::builder_network::Shaping;
use crate::network::{Arrival, Estimate};

/// Starts of a setting with at most so many pairs of source and builder unit, fewest pairs first: the
/// fewer there are, the further apart their orders are, and the less a run takes.
const STARTS: [(u64, u64); 2] = [(64, 8), (256, 5)];
/// Starts of one with more pairs, and of any that is far from the rate asked for.
const STARTS_FEW: u64 = 3;
/// A rate is far from the one asked for by this factor: starts differ by less.
const FAR: f64 = 1.25;

/// What several starts of a setting have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    /// Starts, 2 or more.
    pub(super) starts: u64,
    /// The least and most that the rate of one of them may be, hertz.
    pub(super) range_hz: [f64; 2],
    /// Whether two of them have ranges apart.
    pub(super) is_apart: bool,
    /// Starts that have not converged, and how many of these have a trend.
    pub(super) unsteady: [u64; 2],
    /// The rate of the slowest and of the fastest of them, hertz.
    pub(super) ends_hz: [f64; 2],
}

impl Span {
    /// Why it leaves a rate, hertz, open; `None` if not because its starts differ.
    pub(super) fn reason(&self, rate_hz: f64) -> Option<String> {
        let [least, most] = self.range_hz.map(|hz| 100.0 * (hz / rate_hz - 1.0));
        let (starts, differ) = (self.starts, least < 0.0 && most > 0.0);
        (self.is_apart && differ).then(|| {
            format!(
                "its {starts} starts differ, from {least:+.1} % to {most:+.1} % of the rate: by where \
                 it begins"
            )
        })
    }

    /// Whose capacity it is where each start is steady and all together are not.
    pub(super) fn slowest_words(&self) -> String {
        let [slowest, fastest] = self.ends_hz;
        let apart = 100.0 * (fastest / slowest.max(1e-9) - 1.0);
        let starts = self.starts;
        format!("the slowest of {starts} starts, {apart:.1} % apart")
    }

    /// Why there is no capacity where not each start is steady, in so many events.
    pub(super) fn unsteady_words(&self, events: u64) -> String {
        let (starts, [unsteady, leaning]) = (self.starts, self.unsteady);
        let trend = match leaning {
            0 => String::new(),
            leaning => format!(", {leaning} with a trend"),
        };
        format!("{unsteady} of {starts} starts not converged in {events} events{trend}")
    }
}

impl Search<'_> {
    /// How many starts say on which side of the rate asked for a setting is that builds so much, hertz.
    pub(super) fn starts(&self, built_hz: f64) -> u64 {
        if self.sending.shaping(self.request.block_bytes) != Shaping::None {
            return 1;
        }
        if self.is_far(built_hz) {
            return STARTS_FEW;
        }
        let pairs = self.pairs();
        let few = STARTS.iter().find(|(most, _)| pairs <= *most);
        few.map_or(STARTS_FEW, |(_, starts)| *starts)
    }

    /// Whether starts differ by less than what is between a rate and the one asked for, hertz.
    pub(super) fn is_far(&self, built_hz: f64) -> bool {
        let rate = self.request.rate_hz;
        !(rate / FAR..rate * FAR).contains(&built_hz)
    }

    /// A run and those of the same setting from other starts, as one.
    pub(super) fn with_starts(&self, first: Trial, length: Length) -> Trial {
        let is_large = self.request.in_small().is_some();
        let is_clear = self.is_far(first.rate.mean) && first.is_clear(self.request.rate_hz);
        // A run of many nodes takes long.
        if first.lost > 0 || is_large && is_clear {
            return first;
        }
        let starts = self.starts(first.rate.mean);
        let others = self.other_starts(&first, starts, length, Arrival::Saturated);
        Trial::joined(first, &others)
    }

    /// The runs of a setting from so many starts but the first.
    pub(super) fn other_starts(
        &self,
        first: &Trial,
        starts: u64,
        length: Length,
        arrival: Arrival,
    ) -> Vec<Trial> {
        let run = |start| self.trial_from(start, first.setting, length, arrival.clone());
        (1..starts).map(run).collect()
    }
}

impl Trial {
    /// Runs of one setting as one: what limits is what limits the slowest.
    pub(super) fn joined(first: Self, others: &[Self]) -> Self {
        if others.is_empty() {
            return first;
        }
        let all = || core::iter::once(&first).chain(others);
        let ranges: Vec<[f64; 2]> = all().map(Self::range).collect();
        let by = |pick: fn(f64, f64) -> f64, of: fn(&[f64; 2]) -> f64| {
            ranges.iter().map(of).reduce(pick).unwrap_or_default()
        };
        let estimates: Vec<Estimate> = all().map(|trial| trial.rate).collect();
        let count = |is: fn(&&Estimate) -> bool| estimates.iter().filter(is).count() as u64;
        let means = || estimates.iter().map(|rate| rate.mean);
        let slowest = all().min_by(|a, b| a.rate.mean.total_cmp(&b.rate.mean));
        let slowest = slowest.unwrap_or(&first);
        Self {
            rate: Estimate::across(&estimates),
            trend_hz: 0.0,
            events: all().map(|trial| trial.events).min().unwrap_or(0),
            lost: all().map(|trial| trial.lost).sum(),
            refused: all().map(|trial| trial.refused).sum(),
            incomplete: all().map(|trial| trial.incomplete).sum(),
            violation: all().find_map(|trial| trial.violation.clone()),
            bottleneck: slowest.bottleneck,
            next_bottleneck: slowest.next_bottleneck,
            is_filled: all().all(|trial| trial.rate.converged || trial.is_filled),
            span: Some(Span {
                starts: others.len() as u64 + 1,
                range_hz: [
                    by(f64::min, |range| range[0]),
                    by(f64::max, |range| range[1]),
                ],
                // The lowest end of a range is below the highest beginning of one.
                is_apart: by(f64::min, |range| range[1]) < by(f64::max, |range| range[0]),
                unsteady: [
                    count(|rate| !rate.converged),
                    count(|rate| !rate.converged && !rate.is_flat),
                ],
                ends_hz: [
                    means().reduce(f64::min).unwrap_or_default(),
                    means().reduce(f64::max).unwrap_or_default(),
                ],
            }),
            ..first.clone()
        }
    }
}

/// The verdict of starts that do not agree on whether triggers that come evenly are carried.
pub(super) fn split(carried: usize, starts: usize) -> Verdict {
    Verdict::NotShown(format!(
        "triggers that come evenly at the rate are built in {carried} of {starts} starts"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::candidate::candidates;
    use super::super::search::Setting;
    use super::super::tests::request;
    use super::*;
    use crate::time::DurationPs;

    /// A steady start that builds `share` of the rate asked for.
    fn start(share: f64) -> Trial {
        let mut trial = Trial::none(Setting {
            credits: 4,
            requests_per_message: 8,
            interval: DurationPs::ZERO,
        });
        let ripple = |n: i32| share * (1.0 + 0.002 * f64::from(n % 3 - 1));
        let batches = (0..32).map(|n| request().rate_hz * ripple(n));
        trial.rate = Estimate::of(&batches.collect::<Vec<_>>());
        assert!(trial.rate.converged);
        trial
    }

    /// Where a start is not steady there is no capacity, however clear the verdict, and it is said why.
    #[test]
    fn what_a_start_leaves_open_is_named_as_the_reason_for_no_capacity() {
        let asked = request();
        let candidate = candidates(&asked).remove(0);
        let topology = candidate.choice.build().unwrap();
        let search = Search::new(&asked, &candidate, topology, &|_| {});
        // So far apart that together they are no steady state.
        let mut others = [start(1.6), start(1.5)];
        let joined = |others: &[Trial]| search.judge(&Trial::joined(start(1.5), others));
        assert!(joined(&others).capacity_hz.is_some());
        others[0].rate.converged = false;
        others[0].is_filled = true;
        let open = joined(&others);
        assert!(open.holds() && open.capacity_hz.is_none(), "{open:?}");
        assert!(open.margin_bounds.is_some(), "{open:?}");
        let reason = open.capacity_reason.unwrap();
        assert_eq!(reason, "1 of 3 starts not converged in 0 events");
        others[0].rate.is_flat = false;
        let reason = joined(&others).capacity_reason.unwrap();
        assert!(reason.ends_with("events, 1 with a trend"), "{reason}");
        let mut alone = start(1.5);
        alone.rate.converged = false;
        let reason = search.judge(&alone).capacity_reason.unwrap();
        assert!(
            reason.starts_with("not converged in 0 events (+- 0."),
            "{reason}"
        );
    }

    #[test]
    fn a_verdict_is_that_of_all_starts() {
        let asked = request();
        let candidate = candidates(&asked).remove(0);
        let topology = candidate.choice.build().unwrap();
        let search = Search::new(&asked, &candidate, topology, &|_| {});
        let judged = |shares: &[f64]| {
            let mut starts: Vec<Trial> = shares.iter().map(|share| start(*share)).collect();
            let first = starts.remove(0);
            search.judge(&Trial::joined(first, &starts))
        };
        let holds = judged(&[1.10, 1.101, 1.099]);
        assert!(holds.holds() && holds.capacity_hz.is_some(), "{holds:?}");
        assert_eq!(holds.capacity_reason, None);
        // All above the rate, and further apart than a steady-state number may be: what each builds is
        // known, and the slowest says it.
        let holds = judged(&[1.05, 1.2, 1.06]);
        assert!(holds.holds() && holds.starts == 3, "{holds:?}");
        assert!(!holds.event_rate.converged, "{holds:?}");
        let margin = holds.margin.unwrap();
        assert!((margin - 0.05).abs() < 1e-3, "{holds:?}");
        assert_eq!(
            holds.capacity_reason.as_deref(),
            Some("the slowest of 3 starts, 14.3 % apart")
        );
        let [least, most] = holds.margin_bounds.unwrap();
        assert!(
            (0.03..0.05).contains(&least) && (0.2..0.22).contains(&most),
            "{holds:?}"
        );
        assert_eq!(judged(&[0.8, 0.95, 0.9]).verdict, Verdict::Fails);
        let open = judged(&[1.1, 0.95, 1.1]);
        assert!(open.margin.unwrap() < -0.04, "{open:?}");
        for shares in [[0.95, 1.1, 1.1], [1.1, 1.1, 0.95]] {
            let open = judged(&shares);
            let Verdict::NotShown(reason) = &open.verdict else {
                panic!("{open:?}");
            };
            assert!(
                reason.starts_with("its 3 starts differ, from -5."),
                "{reason}"
            );
            let [least, most] = open.margin_bounds.unwrap();
            assert!(least < -0.05 && most > 0.1, "{open:?}");
        }
    }
}
