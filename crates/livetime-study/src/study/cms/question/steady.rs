//! What the answers may say of runs: shares with their errors, or that there is no steady state.
//!
//! Triggers that come at random make a poor rate: of N events it is known to 1/sqrt(N) only. So
//! what is asked is not how many were built but what became of those offered. Each is built,
//! refused, or still open; where the backlog keeps its size, the share built is one less the share
//! refused, and its error is by how much the backlog could be growing unseen.

use livetime_fabric::builder_network::{BatchCounts, BuilderNetworkOutcome};
use livetime_fabric::network::Estimate;

/// What is said instead of a number that is not one of the steady state.
pub(super) const NOT_CONVERGED: &str = "not converged";
/// Share of the offered triggers from which they count as carried.
const CARRIED: f64 = 0.99;
/// Half width of the interval above which a share is no number.
const HALF_WIDTH: f64 = 0.01;
/// The same for a share of lost packets, which come in bursts: relative to the mean.
const LOSS_HALF_WIDTH: f64 = 0.2;
/// Standard errors by which a backlog must have grown to be said to grow.
const GROWTH_ERRORS: f64 = 3.0;

/// What became of the triggers that were offered at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Carried {
    /// The backlog keeps its size: this share is built.
    Steady { share: f64, ci95: f64 },
    /// The backlog grows by this share of the offered triggers: there is no steady state.
    Growing { share: f64 },
    /// The run was too short to tell.
    Unknown,
}

impl Carried {
    /// Of the batches of a run, with the triggers that were open at its end.
    pub(super) fn of(batches: &[BatchCounts], open_at_end: u64) -> Self {
        let sum = |of: fn(&BatchCounts) -> u64| batches.iter().map(of).sum::<u64>() as f64;
        let offered = sum(|batch| batch.offered);
        if offered == 0.0 {
            return Self::Unknown;
        }
        let growth = offered - sum(|batch| batch.refused) - sum(|batch| batch.built);
        // A backlog of triggers that come at random varies like their number in the time that one
        // is open; so does the difference between two moments, with twice the variance.
        let open_at_start = (open_at_end as f64 - growth).max(0.0);
        let error = (open_at_start + open_at_end as f64).max(1.0).sqrt();
        if growth > GROWTH_ERRORS * error {
            let share = growth / offered;
            return Self::Growing { share };
        }
        let found_room = |batch: &BatchCounts| match batch.offered {
            0 => 1.0,
            offered => 1.0 - batch.refused as f64 / offered as f64,
        };
        let found_room: Vec<f64> = batches.iter().map(found_room).collect();
        let found_room = Estimate::of(&found_room);
        let ci95 = found_room.ci95.hypot(1.96 * error / offered);
        if !found_room.is_flat || ci95 > HALF_WIDTH {
            return Self::Unknown;
        }
        Self::Steady {
            share: found_room.mean,
            ci95,
        }
    }

    /// Of a whole run.
    pub(super) fn of_run(outcome: &BuilderNetworkOutcome) -> Self {
        Self::of(&outcome.batches, outcome.open)
    }

    /// Whether it is a finding: a share, or that there is none.
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
            Self::Unknown => "is not shown to carry the rate (not converged)".to_owned(),
        }
    }
}

/// Packets lost, of those sent after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lost {
    /// None of so many.
    Nothing { packets: u64 },
    /// A steady share, per million.
    Steady { ppm: f64, ci95: f64 },
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
        match found.is_flat && found.ci95 <= LOSS_HALF_WIDTH * found.mean {
            true => Self::Steady {
                ppm: 1e6 * found.mean,
                ci95: 1e6 * found.ci95,
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
        // Refusals with a trend: the queue has only just filled.
        let mut late = batches(500, 0, 500, 0);
        for batch in &mut late[16..] {
            (batch.refused, batch.built) = (100, 400);
        }
        assert_eq!(Carried::of(&late, 300), Carried::Unknown);
    }

    #[test]
    fn a_loss_is_none_or_a_steady_share_or_not_converged() {
        let none = Lost::of(&batches(1, 0, 1, 0));
        assert!(none.is_known());
        assert_eq!(none.to_text(), "none of 320000");
        let steady = Lost::of(&batches(1, 0, 1, 20));
        assert_eq!(steady.to_text(), "2000 +- 0 per million");
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
