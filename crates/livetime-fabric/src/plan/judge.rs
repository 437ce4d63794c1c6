//! What becomes of an option whose setting is chosen: its verdict, and what goes with it.

use super::option::{Bottleneck, PlanOption, Verdict};
use super::search::{Search, Setting};
use super::trial::{CARRIED, Trial};
use crate::network::Arrival;
use crate::time::DurationPs;

/// Rates at which a lossy network is looked at, as shares of the one asked for.
const LOSSY_RATES: [f64; 5] = [2.0, 1.25, 1.0, 0.5, 0.25];

impl Search<'_> {
    /// The answer of a run without losses.
    pub(super) fn judge(&self, trial: &Trial) -> PlanOption {
        let rate = self.request.rate_hz;
        let estimate = trial.rate;
        let (what, bound) = self.bound();
        let error = 100.0 * estimate.ci95 / estimate.mean.max(1e-9);
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
        } else if estimate.converged {
            Verdict::NotShown(format!("within +- {error:.1} % of the rate"))
        } else {
            let events = trial.events;
            let trend = if estimate.is_flat {
                ""
            } else {
                ", with a trend"
            };
            Verdict::NotShown(format!(
                "not converged in {events} events (+- {error:.1} %{trend})"
            ))
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
        let is_capacity = estimate.converged && trial.is_whole();
        let capacity = is_capacity.then(|| estimate.mean.min(bound * rate));
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
        let mut even = self.trial(trial.setting, self.long(rate), evenly(rate));
        if even.carries(rate) {
            return option;
        }
        if even.bottleneck == Bottleneck::Credits {
            // Short runs found out whether more of them help.
            even.bottleneck = self.beyond_credits();
        }
        let verdict = match &even.violation {
            Some(violation) => Verdict::NotShown(format!("a promise was broken: {violation}")),
            None if even.incomplete > 0 && even.lost == 0 => {
                Verdict::NotShown(incomplete_words(even.incomplete))
            }
            None if trial.is_open => {
                Verdict::NotShown("settings that were not tried may carry it".to_owned())
            }
            None => Verdict::Fails,
        };
        let is_capacity = even.rate.converged && even.is_whole();
        let capacity = option.capacity_hz.filter(|_| is_capacity);
        let margin = |hz: f64| hz.min(rate) / rate - 1.0;
        PlanOption {
            margin_bounds: even.bounds().map(|hz| hz.map(margin)),
            next_bottleneck: even.next_bottleneck,
            ..self.answer(
                &even,
                capacity.map(|hz| hz.min(even.rate.mean)),
                verdict,
                even.bottleneck,
            )
        }
    }

    /// The answer without a run, where the rate alone loads something by more than it can do.
    pub(super) fn hopeless(&self, setting: Setting) -> PlanOption {
        let (what, bound) = self.bound();
        let trial = Trial::none(setting);
        PlanOption {
            margin_bounds: Some([-1.0, bound - 1.0]),
            ..self.answer(&trial, None, Verdict::Fails, what)
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
        let (last, share) = self.carried(trial, share_max);
        let Some(share) = share else {
            let verdict = match last.lost {
                0 if last.incomplete > 0 => Verdict::NotShown(incomplete_words(last.incomplete)),
                _ => Verdict::Fails,
            };
            return self.answer(&last, None, verdict, bottleneck);
        };
        let verdict = match &last.violation {
            Some(violation) => Verdict::NotShown(format!("a promise was broken: {violation}")),
            None if !last.rate.converged => {
                let events = last.events;
                Verdict::NotShown(format!("no loss, but not converged in {events} events"))
            }
            None if share >= 1.0 => Verdict::Holds,
            None => Verdict::Fails,
        };
        let capacity = share * self.request.rate_hz;
        let capacity = last.rate.converged.then_some(capacity);
        self.answer(&last, capacity, verdict, bottleneck)
    }

    /// The highest share of the rate, among some up to `share_max`, that is carried without a loss,
    /// with the last run that was tried for it.
    pub(super) fn carried(&self, trial: &Trial, share_max: f64) -> (Trial, Option<f64>) {
        let most = self.bound().1.min(share_max);
        let mut last = trial.clone();
        for share in LOSSY_RATES.into_iter().filter(|share| *share <= most) {
            let hz = share * self.request.rate_hz;
            last = self.trial(trial.setting, self.long(hz), evenly(hz));
            if last.is_whole() && last.rate.mean >= CARRIED * hz {
                return (last, Some(share));
            }
        }
        (last, None)
    }

    fn answer(
        &self,
        trial: &Trial,
        capacity_hz: Option<f64>,
        verdict: Verdict,
        bottleneck: Bottleneck,
    ) -> PlanOption {
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
            efficiency: capacity_hz.map(|hz| source.max(builder) * hz / rate),
            margin: capacity_hz.map(|hz| hz / rate - 1.0),
            margin_bounds: None,
            event_rate: trial.rate,
            events: trial.events,
            lost: trial.lost,
            verdict,
            bottleneck,
            next_bottleneck: None,
        }
    }
}

/// Triggers that come so often, all at one distance.
fn evenly(rate_hz: f64) -> Arrival {
    let interval = DurationPs((1e12 / rate_hz).round().max(1.0) as u64);
    Arrival::Fixed { interval }
}

/// Why a run whose events were not whole shows nothing, although nothing was lost.
fn incomplete_words(events: u64) -> String {
    format!("{events} events were closed without fragments that were still to come")
}
