//! What becomes of an option whose setting is chosen: its verdict, and what goes with it.

use super::option::{Bottleneck, PlanOption, Verdict};
use super::search::{Search, Setting};
use super::starts::split;
use super::trial::{CARRIED, Trial};
use crate::network::{Arrival, Estimate};
use crate::time::DurationPs;

/// Rates at which a lossy network is looked at, as shares of the one asked for.
const LOSSY_RATES: [f64; 5] = [2.0, 1.25, 1.0, 0.5, 0.25];

/// What is carried without a loss.
pub(super) struct Carried {
    /// The last run that was tried.
    pub(super) last: Trial,
    /// The share of the rate; `None` for none of those tried.
    pub(super) share: Option<f64>,
    /// The verdict where starts do not agree on the rate itself.
    split: Option<Verdict>,
}

/// A capacity, hertz, and why there is none, or whose it is where it is not that of all starts together.
struct Capacity {
    hz: Option<f64>,
    reason: Option<String>,
}

impl Capacity {
    fn none(reason: impl Into<String>) -> Self {
        Self {
            hz: None,
            reason: Some(reason.into()),
        }
    }

    /// No more than a rate, hertz.
    fn at_most(self, hz: f64) -> Self {
        Self {
            hz: self.hz.map(|found| found.min(hz)),
            ..self
        }
    }

    /// The lower of two; none where one of them is none.
    fn and(self, other: Self) -> Self {
        match (self.hz, other.hz) {
            (Some(one), Some(two)) if one <= two => self,
            (None, _) => self,
            (Some(_), _) => other,
        }
    }
}

impl Search<'_> {
    /// The answer of a run without losses.
    pub(super) fn judge(&self, trial: &Trial) -> PlanOption {
        let rate = self.request.rate_hz;
        let estimate = trial.rate;
        let (what, bound) = self.bound();
        let verdict = if let Some(violation) = &trial.violation {
            Verdict::NotShown(format!("a promise was broken: {violation}"))
        } else if bound < 1.0 {
            Verdict::Fails
        } else if trial.incomplete > 0 {
            Verdict::NotShown(incomplete_words(trial.incomplete))
        } else if trial.is_clear(rate) {
            match estimate.mean > rate {
                true => Verdict::Holds,
                false if trial.is_open => {
                    Verdict::NotShown("settings that were not tried may carry it".to_owned())
                }
                false => Verdict::Fails,
            }
        } else if let Some(reason) = trial.span.and_then(|span| span.reason(rate)) {
            Verdict::NotShown(reason)
        } else if estimate.converged {
            let error = error_percent(&estimate);
            Verdict::NotShown(format!("within +- {error:.1} % of the rate"))
        } else {
            Verdict::NotShown(not_converged_words(&estimate, trial.events))
        };
        // Where the run leaves it open, what it cannot be is left.
        let is_known = trial
            .bounds()
            .is_some_and(|[_, most]| estimate.converged || most < bound * rate);
        let (bottleneck, next_bottleneck) = match bound < 1.0 && !is_known {
            true => (what, None),
            false => (trial.bottleneck, trial.next_bottleneck),
        };
        // What a short run builds above the bound is chance.
        let capacity = capacity(trial).at_most(bound * rate);
        let margin = |hz: f64| (hz / rate).min(bound) - 1.0;
        PlanOption {
            margin_bounds: trial.bounds().map(|hz| hz.map(margin)),
            next_bottleneck,
            ..self.answer(trial, capacity, verdict, bottleneck)
        }
    }

    /// The answer of an option that holds where there are always triggers, with those that come evenly at
    /// the rate itself: then fewer of them share a message, and an event manager that sends to every
    /// readout unit may have no time for so many.
    pub(super) fn confirm(&self, option: PlanOption, trial: &Trial) -> PlanOption {
        let rate = self.request.rate_hz;
        let first = self.trial(trial.setting, self.long(rate), evenly(rate));
        // What builds much more is slowed by its messages, if at all, and not by an order of packets.
        let starts = match self.is_far(trial.rate.mean) {
            true => 1,
            false => self.starts(trial.rate.mean),
        };
        let others = self.other_starts(&first, starts, self.long(rate), evenly(rate));
        let is_carried = |even: &&Trial| even.carries(rate);
        let carried = core::iter::once(&first).chain(&others).filter(is_carried);
        let (carried, starts) = (carried.count(), others.len() + 1);
        if carried == starts {
            return option;
        }
        let mut even = Trial::joined(first, &others);
        if even.bottleneck == Bottleneck::Credits {
            // Short runs found out whether more of them help.
            even.bottleneck = self.beyond_credits();
        }
        let verdict = match &even.violation {
            Some(violation) => Verdict::NotShown(format!("a promise was broken: {violation}")),
            None if even.incomplete > 0 && even.lost == 0 => {
                Verdict::NotShown(incomplete_words(even.incomplete))
            }
            None if carried > 0 => split(carried, starts),
            None if trial.is_open => {
                Verdict::NotShown("settings that were not tried may carry it".to_owned())
            }
            None => Verdict::Fails,
        };
        let before = Capacity {
            hz: option.capacity_hz,
            reason: option.capacity_reason,
        };
        let capacity = before.and(capacity(&even));
        let margin = |hz: f64| hz.min(rate) / rate - 1.0;
        PlanOption {
            margin_bounds: even.bounds().map(|hz| hz.map(margin)),
            next_bottleneck: even.next_bottleneck,
            ..self.answer(&even, capacity, verdict, even.bottleneck)
        }
    }

    /// The answer without a run, where the rate alone loads something by more than it can do.
    pub(super) fn hopeless(&self, setting: Setting) -> PlanOption {
        let (what, bound) = self.bound();
        let trial = Trial::none(setting);
        PlanOption {
            margin_bounds: Some([-1.0, bound - 1.0]),
            ..self.answer(
                &trial,
                Capacity::none("not run: the rate alone is too much"),
                Verdict::Fails,
                what,
            )
        }
    }

    /// The answer where packets are lost when there are always triggers, for every setting tried:
    /// the highest of some rates that is carried without a loss. In small it is known to be this
    /// share, if it was looked for.
    pub(super) fn judge_lossy(&self, trial: &Trial, in_small: Option<f64>) -> PlanOption {
        let bottleneck = Bottleneck::Buffers;
        // The next higher one may be carried by the whole.
        let share_max = in_small.map_or(f64::MAX, |share| {
            let higher = LOSSY_RATES.into_iter().rev().find(|rate| *rate > share);
            higher.unwrap_or(f64::MAX)
        });
        let Carried { last, share, split } = self.carried(trial, share_max);
        let Some(share) = share else {
            let verdict = match last.lost {
                _ if split.is_some() => split.unwrap_or(Verdict::Fails),
                0 if last.incomplete > 0 => Verdict::NotShown(incomplete_words(last.incomplete)),
                _ => Verdict::Fails,
            };
            let none = Capacity::none("none of the rates tried is carried without a loss");
            return self.answer(&last, none, verdict, bottleneck);
        };
        let found = capacity(&last);
        let verdict = match &last.violation {
            Some(violation) => Verdict::NotShown(format!("a promise was broken: {violation}")),
            None if found.hz.is_none() => {
                let events = last.events;
                Verdict::NotShown(format!("no loss, but not converged in {events} events"))
            }
            None if share >= 1.0 => Verdict::Holds,
            None => split.unwrap_or(Verdict::Fails),
        };
        let capacity = match found.hz {
            Some(_) => Capacity {
                hz: Some(share * self.request.rate_hz),
                reason: None,
            },
            None => found,
        };
        self.answer(&last, capacity, verdict, bottleneck)
    }

    /// The highest share of the rate, among some up to `share_max`, that is carried without a loss from
    /// every start.
    pub(super) fn carried(&self, trial: &Trial, share_max: f64) -> Carried {
        let most = self.bound().1.min(share_max);
        let mut last = trial.clone();
        let mut split = None;
        for share in LOSSY_RATES.into_iter().filter(|share| *share <= most) {
            let hz = share * self.request.rate_hz;
            let is_carried = |trial: &Trial| trial.is_whole() && trial.rate.mean >= CARRIED * hz;
            last = self.trial(trial.setting, self.long(hz), evenly(hz));
            let is_first = is_carried(&last);
            // Of the rate itself it is to be known whether starts agree.
            if !is_first && share != 1.0 {
                continue;
            }
            let starts = self.starts(hz);
            let others = self.other_starts(&last, starts, self.long(hz), evenly(hz));
            let carried = others.iter().filter(|start| is_carried(start)).count();
            let (carried, starts) = (carried + usize::from(is_first), others.len() + 1);
            last = Trial::joined(last, &others);
            if carried == starts {
                let share = Some(share);
                return Carried { last, share, split };
            }
            if share == 1.0 && carried > 0 {
                split = Some(super::starts::split(carried, starts));
            }
        }
        let share = None;
        Carried { last, share, split }
    }

    fn answer(
        &self,
        trial: &Trial,
        capacity: Capacity,
        verdict: Verdict,
        bottleneck: Bottleneck,
    ) -> PlanOption {
        let capacity_hz = capacity.hz;
        let rate = self.request.rate_hz;
        let shaping = self.sending.shaping(self.request.block_bytes);
        let (source, builder) = self.request.link_loads(shaping);
        PlanOption {
            network: self.candidate.name.clone(),
            elements: self.topology.elements().len(),
            sending: self.sending,
            credits: trial.setting.credits,
            requests_per_message: trial.setting.requests_per_message,
            interval: trial.setting.interval,
            capacity_hz,
            capacity_reason: capacity.reason,
            efficiency: capacity_hz.map(|hz| source.max(builder) * hz / rate),
            margin: capacity_hz.map(|hz| hz / rate - 1.0),
            margin_bounds: None,
            starts: match trial.span {
                Some(span) => span.starts,
                None => u64::from(trial.events > 0),
            },
            event_rate: trial.rate,
            events: trial.events,
            lost: trial.lost,
            verdict,
            bottleneck,
            next_bottleneck: None,
        }
    }
}

/// What a run with triggers that are always there says of the capacity. Of several starts that are each steady
/// all are known, and the slowest builds what any of them does, also where so few of them say little
/// of others.
fn capacity(trial: &Trial) -> Capacity {
    let Trial { rate, events, .. } = *trial;
    if trial.incomplete > 0 {
        return Capacity::none(incomplete_words(trial.incomplete));
    }
    if trial.lost > 0 {
        return Capacity::none(format!("{} packets were lost", trial.lost));
    }
    if rate.converged {
        return Capacity {
            hz: Some(rate.mean),
            reason: None,
        };
    }
    match trial.span {
        Some(span) if span.unsteady[0] == 0 => Capacity {
            hz: Some(span.ends_hz[0]),
            reason: Some(span.slowest_words()),
        },
        Some(span) => Capacity::none(span.unsteady_words(events)),
        None => Capacity::none(not_converged_words(&rate, events)),
    }
}

/// Triggers that come so often, all at one distance.
fn evenly(rate_hz: f64) -> Arrival {
    let interval = DurationPs((1e12 / rate_hz).round().max(1.0) as u64);
    Arrival::Fixed { interval }
}

/// Half width of the interval, per cent of the rate.
fn error_percent(rate: &Estimate) -> f64 {
    100.0 * rate.ci95 / rate.mean.max(1e-9)
}

/// Why a run is no steady state.
fn not_converged_words(rate: &Estimate, events: u64) -> String {
    let error = error_percent(rate);
    let trend = if rate.is_flat { "" } else { ", with a trend" };
    format!("not converged in {events} events (+- {error:.1} %{trend})")
}

/// Why a run whose events were not whole shows nothing, although nothing was lost.
fn incomplete_words(events: u64) -> String {
    format!("{events} events were closed without fragments that were still to come")
}
