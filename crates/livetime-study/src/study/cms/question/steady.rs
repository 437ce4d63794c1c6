//! What the answers may say of runs: shares with their errors, bounds, or that there is no steady
//! state.
//!
//! Triggers that come at random make a poor rate: of N events it is known to 1/sqrt(N) only. So
//! what is asked is not how many were built but what became of those offered. Each is built,
//! refused, or still open; where the backlog keeps its size, the share built is one less the share
//! refused, and its error is by how much the backlog could be growing unseen. A run that has not
//! settled may still show a bound: what its late half could carry, and once more the rise that led
//! there, is less than the rate.

use livetime_fabric::builder_network::{BatchCounts, BuilderNetworkOutcome};
use livetime_fabric::network::Estimate;

/// What is said instead of a number that is not one of the steady state.
pub(super) const NOT_CONVERGED: &str = "not converged";
/// Share of the offered triggers from which they count as carried.
const CARRIED: f64 = 0.99;
/// Half width of the interval above which a share is no number. A trend over the run that is
/// smaller than this is none.
const HALF_WIDTH: f64 = 0.01;
/// The same for a share of lost packets, which come in bursts: relative to the mean.
const LOSS_HALF_WIDTH: f64 = 0.2;
/// Standard errors by which a backlog must have grown to be said to grow.
const GROWTH_ERRORS: f64 = 3.0;
/// Standard errors of a 95 % interval.
const CI95_ERRORS: f64 = 1.96;

/// Triggers that were open, at three moments of a run.
#[derive(Debug, Clone, Copy)]
struct Backlog {
    start: f64,
    middle: f64,
    end: f64,
}

impl Backlog {
    fn of(batches: &[BatchCounts], open_at_end: u64) -> Self {
        let growth = |batches: &[BatchCounts]| {
            let grown = |b: &BatchCounts| b.offered as f64 - (b.refused + b.built) as f64;
            batches.iter().map(grown).sum::<f64>()
        };
        let (early, late) = batches.split_at(batches.len() / 2);
        let end = open_at_end as f64;
        let middle = (end - growth(late)).max(0.0);
        let start = (middle - growth(early)).max(0.0);
        Self { start, middle, end }
    }

    /// Standard error of the growth between two moments. A backlog of triggers that come at random
    /// varies like their number in the time that one is open; so does the difference between two
    /// moments, with twice the variance.
    fn error(from: f64, to: f64) -> f64 {
        (from + to).max(1.0).sqrt()
    }

    fn grew(from: f64, to: f64) -> bool {
        to - from > GROWTH_ERRORS * Self::error(from, to)
    }

    /// Whether it grew in the late half as well as in the early one: one that only fills up grows
    /// ever slower.
    fn grows_on(self) -> bool {
        let (early, late) = (self.middle - self.start, self.end - self.middle);
        Self::grew(self.start, self.middle)
            && Self::grew(self.middle, self.end)
            && late >= early / 2.0
    }
}

/// What became of the triggers that were offered at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Carried {
    /// The backlog keeps its size: this share is built.
    Steady { share: f64, ci95: f64 },
    /// The backlog grows by this share of the offered triggers: there is no steady state.
    Growing { share: f64 },
    /// There is no share, but it is less than this one, which is less than all.
    Below { most: f64 },
    /// The run was too short to tell.
    Unknown,
}

impl Carried {
    /// Of the batches of a run, with the triggers that were open at its end.
    pub(super) fn of(batches: &[BatchCounts], open_at_end: u64) -> Self {
        let offered_in = |batches: &[BatchCounts]| batches.iter().map(|b| b.offered).sum::<u64>();
        let (early, late) = batches.split_at(batches.len() / 2);
        let offered = offered_in(batches) as f64;
        if offered == 0.0 {
            return Self::Unknown;
        }
        let backlog = Backlog::of(batches, open_at_end);
        if backlog.grows_on() {
            let share = (backlog.end - backlog.start) / offered;
            return Self::Growing { share };
        }
        let (all, early, late_room) = (room(batches), room(early), room(late));
        let rise = late_room.mean - early.mean;
        let error = Backlog::error(backlog.start, backlog.end);
        let ci95 = all.ci95.hypot(CI95_ERRORS * error / offered);
        let is_flat = all.is_flat || rise.abs() <= HALF_WIDTH;
        if is_flat && ci95 <= HALF_WIDTH && !Backlog::grew(backlog.start, backlog.end) {
            let share = all.mean;
            return Self::Steady { share, ci95 };
        }
        let error = Backlog::error(backlog.middle, backlog.end);
        let error = CI95_ERRORS * error / offered_in(late).max(1) as f64;
        // Should it rise once more as it rose between the halves.
        let most = late_room.mean + late_room.ci95 + error + rise.max(0.0);
        match most < CARRIED {
            true => Self::Below { most },
            false => Self::Unknown,
        }
    }

    /// Of a whole run.
    pub(super) fn of_run(outcome: &BuilderNetworkOutcome) -> Self {
        Self::of(&outcome.batches, outcome.open)
    }

    /// Of runs that differ in their seed, together.
    pub(super) fn of_runs(outcomes: &[BuilderNetworkOutcome]) -> Self {
        let batches: Vec<&[BatchCounts]> = outcomes.iter().map(|o| &o.batches[..]).collect();
        Self::of(&added(&batches), outcomes.iter().map(|o| o.open).sum())
    }

    /// Whether it is a finding: a share, a bound below all, or that there is none.
    pub(super) const fn is_known(self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Whether the offered triggers are carried, as far as can be told.
    pub(super) fn is_carried(self) -> bool {
        matches!(self, Self::Steady { share, ci95 } if share + ci95 >= CARRIED)
    }

    /// For a table.
    pub(super) fn to_text(self) -> String {
        match self {
            Self::Steady { share, ci95 } => {
                format!("{:.1} % +- {:.1}", 100.0 * share, 100.0 * ci95)
            }
            Self::Growing { share } => {
                format!("no steady state: {:.0} % stay behind", 100.0 * share)
            }
            Self::Below { most } => format!("less than {}, not settled", whole_percent(most)),
            Self::Unknown => NOT_CONVERGED.to_owned(),
        }
    }

    /// As the end of a sentence about what is carried.
    pub(super) fn to_clause(self) -> String {
        match self {
            Self::Steady { .. } if self.is_carried() => {
                format!("carries the rate ({})", self.to_text())
            }
            Self::Steady { .. } => format!("carries only {} of the rate", self.to_text()),
            Self::Growing { share } => format!(
                "does not carry the rate: the backlog grows by {:.0} % of what comes, without end",
                100.0 * share
            ),
            Self::Below { most } => format!(
                "does not carry the rate: how much it carries has not settled, but it is less than \
                 {}",
                whole_percent(most)
            ),
            Self::Unknown => "is not shown to carry the rate (not converged)".to_owned(),
        }
    }
}

/// The share of the triggers that found room, over batches.
fn room(batches: &[BatchCounts]) -> Estimate {
    let of = |batch: &BatchCounts| match batch.offered {
        0 => 1.0,
        offered => 1.0 - batch.refused as f64 / offered as f64,
    };
    Estimate::of(&batches.iter().map(of).collect::<Vec<f64>>())
}

/// A bound, rounded up so that it stays one.
fn whole_percent(most: f64) -> String {
    format!("{:.0} %", (100.0 * most).ceil())
}

/// The counts of equal batches of several runs.
fn added(runs: &[&[BatchCounts]]) -> Vec<BatchCounts> {
    let batches = runs.iter().map(|run| run.len()).min().unwrap_or(0);
    let of_all = |batch: usize| {
        let sum = |of: fn(&BatchCounts) -> u64| runs.iter().map(|run| of(&run[batch])).sum();
        BatchCounts {
            offered: sum(|b| b.offered),
            refused: sum(|b| b.refused),
            built: sum(|b| b.built),
            fragments: sum(|b| b.fragments),
            packets: sum(|b| b.packets),
            packets_lost: sum(|b| b.packets_lost),
        }
    };
    (0..batches).map(of_all).collect()
}

/// Packets lost, of those sent after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lost {
    /// None of so many.
    Nothing { packets: u64 },
    /// A steady share, per million.
    Steady { ppm: f64, ci95: f64 },
    /// There is no share, but it is more than this one, per million.
    Above { least_ppm: f64 },
    /// Some, whose share has not settled.
    Some { lost: u64, packets: u64 },
}

impl Lost {
    /// Of the batches of a run.
    pub(super) fn of(batches: &[BatchCounts]) -> Self {
        let packets: u64 = batches.iter().map(|batch| batch.packets).sum();
        let lost: u64 = batches.iter().map(|batch| batch.packets_lost).sum();
        if lost == 0 {
            return Self::Nothing { packets };
        }
        let each = packets as f64 / batches.len() as f64;
        let shares = batches.iter().map(|batch| batch.packets_lost as f64 / each);
        let shares: Vec<f64> = shares.collect();
        let found = Estimate::of(&shares);
        if found.is_flat && found.ci95 <= LOSS_HALF_WIDTH * found.mean {
            return Self::Steady {
                ppm: 1e6 * found.mean,
                ci95: 1e6 * found.ci95,
            };
        }
        let (early, late) = shares.split_at(shares.len() / 2);
        let (early, late) = (Estimate::of(early), Estimate::of(late));
        // Should it fall once more as it fell between the halves.
        let least = late.mean - late.ci95 - (early.mean - late.mean).max(0.0);
        match least > 0.0 {
            true => Self::Above {
                least_ppm: 1e6 * least,
            },
            false => Self::Some { lost, packets },
        }
    }

    /// Whether it is a finding.
    pub(super) const fn is_known(self) -> bool {
        !matches!(self, Self::Some { .. })
    }

    /// For a table and in sentences.
    pub(super) fn to_text(self) -> String {
        match self {
            Self::Nothing { packets } => format!("none of {packets}"),
            Self::Steady { ppm, ci95 } => format!("{ppm:.0} +- {ci95:.0} per million"),
            Self::Above { least_ppm } => {
                format!(
                    "more than {:.0} per million, not settled",
                    least_ppm.floor()
                )
            }
            Self::Some { lost, packets } => {
                format!("{lost} of {packets}; share {NOT_CONVERGED}")
            }
        }
    }
}

/// Events per second, kHz.
pub(super) fn throughput_text(rate: Estimate) -> String {
    match rate.converged {
        true => format!("{:.1} kHz +- {:.1}", rate.mean / 1e3, rate.ci95 / 1e3),
        false => NOT_CONVERGED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(offered: u64, refused: u64, built: u64, lost: u64) -> Vec<BatchCounts> {
        let batch = BatchCounts {
            offered,
            refused,
            built,
            fragments: 500 * built,
            packets: 10_000,
            packets_lost: lost,
        };
        vec![batch; 32]
    }

    #[test]
    fn a_share_is_one_less_what_is_refused_where_the_backlog_keeps_its_size() {
        let all = Carried::of(&batches(500, 0, 500, 0), 300);
        assert!(all.is_known() && all.is_carried());
        assert_eq!(all.to_text(), "100.0 % +- 0.3");
        assert!(all.to_clause().starts_with("carries the rate ("));
        let most = Carried::of(&batches(500, 50, 450, 0), 300);
        assert!(most.is_known() && !most.is_carried());
        assert_eq!(most.to_clause(), "carries only 90.0 % +- 0.3 of the rate");
    }

    #[test]
    fn a_backlog_that_grows_is_no_steady_state_and_a_short_run_no_number() {
        let grows = Carried::of(&batches(500, 0, 400, 0), 4_000);
        assert!(grows.is_known() && !grows.is_carried());
        assert_eq!(grows.to_text(), "no steady state: 20 % stay behind");
        assert!(grows.to_clause().contains("grows by 20 %"));
        let short = Carried::of(&batches(20, 0, 20, 0), 300);
        assert!(!short.is_known() && !short.is_carried());
        assert_eq!(short.to_text(), NOT_CONVERGED);
        assert!(short.to_clause().contains(NOT_CONVERGED));
        assert_eq!(Carried::of(&[], 0), Carried::Unknown);
    }

    #[test]
    fn a_backlog_that_only_fills_up_does_not_grow_without_end() {
        // By 100 in each batch, and after the middle by so many.
        let after = |growth: u64| {
            let mut batches = batches(500, 0, 400, 0);
            for batch in &mut batches[16..] {
                batch.built = 500 - growth;
            }
            Carried::of(&batches, 5_000)
        };
        assert!(matches!(after(60), Carried::Growing { share } if (share - 0.16).abs() < 1e-9));
        assert_eq!(after(40), Carried::Unknown);
        assert_eq!(after(0), Carried::Unknown);
        // What grows by less than chance allows is steady, with an error.
        let chance = Carried::of(&batches(500, 0, 499, 0), 300);
        assert!(matches!(chance, Carried::Steady { ci95, .. } if ci95 > 0.0025));
    }

    /// 0 or 1 for each of 32 batches, half of them 1, without an order.
    fn irregular(batch: usize) -> u64 {
        u64::from(0b1011_0010_1110_0001_0110_1001_0100_1101_u32 >> batch & 1)
    }

    #[test]
    fn a_run_that_has_not_settled_may_show_that_the_rate_is_not_carried() {
        let refused = |share: fn(usize) -> u64| {
            let mut batches = batches(500, 0, 500, 0);
            for (i, batch) in batches.iter_mut().enumerate() {
                (batch.refused, batch.built) = (share(i), 500 - share(i));
            }
            Carried::of(&batches, 300)
        };
        // From 20 to 50 % built, and maybe on to 80 %.
        let rising = refused(|i| if i < 16 { 400 } else { 250 });
        assert!(rising.is_known() && !rising.is_carried());
        assert_eq!(rising.to_text(), "less than 81 %, not settled");
        assert!(rising.to_clause().ends_with("but it is less than 81 %"));
        // It could yet rise to all, or is not known well enough.
        assert_eq!(
            refused(|i| if i < 16 { 400 } else { 150 }),
            Carried::Unknown
        );
        // Swings of all and a tenth have a mean of 55 %, known to within 25 %.
        let swings = refused(|i| 450 * irregular(i));
        assert_eq!(swings.to_text(), "less than 81 %, not settled");
        // Rare ones come close to all of the offered and show nothing.
        let rare = refused(|i| if i % 16 == 8 { 400 } else { 0 });
        assert_eq!(rare, Carried::Unknown);
        // The queue has only just filled.
        let falling = refused(|i| if i < 16 { 0 } else { 100 });
        assert_eq!(falling.to_text(), "less than 81 %, not settled");
        // A trend that is smaller than what is called a number is none.
        let trend = refused(|i| if i < 16 { 50 } else { 52 });
        assert_eq!(trend.to_text(), "89.8 % +- 0.3");
        assert!(matches!(
            refused(|i| if i < 16 { 50 } else { 57 }),
            Carried::Below { .. }
        ));
    }

    #[test]
    fn runs_with_several_seeds_are_counted_together() {
        let (one, two) = (batches(500, 50, 450, 3), batches(100, 0, 100, 0));
        let both = added(&[&one, &two]);
        assert_eq!(both.len(), 32);
        assert_eq!((both[5].offered, both[5].refused), (600, 50));
        assert_eq!((both[5].built, both[5].packets_lost), (550, 3));
        assert_eq!((both[5].packets, both[5].fragments), (20_000, 275_000));
        assert!(added(&[]).is_empty());
    }

    #[test]
    fn a_loss_is_none_or_a_steady_share_or_not_converged() {
        let none = Lost::of(&batches(1, 0, 1, 0));
        assert!(none.is_known());
        assert_eq!(none.to_text(), "none of 320000");
        let steady = Lost::of(&batches(1, 0, 1, 20));
        assert_eq!(steady.to_text(), "2000 +- 0 per million");
        let mut bursts = batches(1, 0, 1, 0);
        for (i, batch) in bursts.iter_mut().enumerate() {
            batch.packets_lost = 1_000 * irregular(i);
        }
        let bursts = Lost::of(&bursts);
        assert!(bursts.is_known());
        assert_eq!(bursts.to_text(), "more than 22483 per million, not settled");
        let mut once = batches(1, 0, 1, 0);
        once[3].packets_lost = 7;
        let once = Lost::of(&once);
        assert!(!once.is_known());
        assert_eq!(once.to_text(), "7 of 320000; share not converged");
    }

    #[test]
    fn a_throughput_is_a_number_only_of_the_steady_state() {
        let flat = Estimate::of(&[50e3; 32]);
        assert_eq!(throughput_text(flat), "50.0 kHz +- 0.0");
        let ramp: Vec<f64> = (0..32).map(|i| f64::from(i) * 1e3).collect();
        assert_eq!(throughput_text(Estimate::of(&ramp)), NOT_CONVERGED);
    }
}
