//! What two-step building did in a run: events by step, bytes that moved and that did not, and how
//! unevenly the readout units sent.
//!
//! It is made of the counters that the roles leave by name. A unit that died has left none: what it
//! counted is missing here, and the equations between builder and filter units are not checked then.

use std::collections::BTreeMap;

use livetime_wire::ConservationProblem;
use serde::{Deserialize, Serialize};

/// Two-step building in a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TwoStepSummary {
    /// Events whose rest was fetched after their first step (counted by the builder units).
    pub events_fetched: u64,
    /// Events that ended with their first step: the selection rejected them.
    pub events_released: u64,
    /// Events whose rest was fetched without a selection, since their first step lacked a fragment.
    pub events_unjudged: u64,
    /// Why events were fetched and released (counted by the filter units).
    pub causes: BTreeMap<String, u64>,
    /// Payload bytes that readout units of the first step sent.
    pub bytes_first_step: u64,
    /// Payload bytes that the others sent.
    pub bytes_second_step: u64,
    /// Payload bytes of accepted triggers that were never asked for.
    pub bytes_unasked: u64,
    /// All payload bytes of accepted triggers over those that were sent: what two steps save.
    pub saving_factor: f64,
    /// Bytes of the readout unit that sent most, over the mean of all.
    pub imbalance: f64,
    /// By readout unit.
    pub readout_units: BTreeMap<String, TwoStepUnit>,
}

/// A readout unit in two-step building.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TwoStepUnit {
    /// Whether its fragments are gathered first.
    pub first_step: bool,
    /// Payload bytes that it sent to builder units, repetitions included.
    pub bytes_sent: u64,
    /// Fragments that nobody asked for, since the first step rejected their events.
    pub fragments_unasked: u64,
    /// Their payload bytes.
    pub bytes_unasked: u64,
}

/// Counters by role and name.
type Roles = BTreeMap<String, BTreeMap<String, u64>>;

impl TwoStepSummary {
    /// From the counters of the roles; `first_step` names the readout units of the first step.
    pub fn of_roles(roles: &Roles, first_step: &[String]) -> Self {
        let mut summary = Self {
            events_fetched: sum(roles, "bu", "events_fetched"),
            events_released: sum(roles, "bu", "events_first_step_only"),
            events_unjudged: sum(roles, "bu", "events_unjudged"),
            ..Self::default()
        };
        let filters = roles.iter().filter(|(id, _)| id.starts_with("fu"));
        for (name, count) in filters.flat_map(|(_, counts)| counts) {
            if let Some(cause) = name.strip_prefix("first_step.") {
                *summary.causes.entry(cause.to_owned()).or_default() += count;
            }
        }
        for (life, counts) in roles.iter().filter(|(id, _)| id.starts_with("ru")) {
            let count = |name: &str| counts.get(name).copied().unwrap_or(0);
            // All lives of a unit are one.
            let id = life.split('~').next().unwrap_or(life).to_owned();
            let first_step = first_step.contains(&id);
            let unit = summary.readout_units.entry(id).or_default();
            unit.first_step = first_step;
            unit.bytes_sent += count("bytes_sent_to_builders");
            unit.fragments_unasked += count("fragments_unasked");
            unit.bytes_unasked += count("bytes_unasked");
        }
        for unit in summary.readout_units.values() {
            *match unit.first_step {
                true => &mut summary.bytes_first_step,
                false => &mut summary.bytes_second_step,
            } += unit.bytes_sent;
            summary.bytes_unasked += unit.bytes_unasked;
        }
        let sent = summary.bytes_first_step + summary.bytes_second_step;
        let units = summary.readout_units.values();
        let most = units.map(|unit| unit.bytes_sent).max().unwrap_or(0);
        let mean = sent as f64 / summary.readout_units.len().max(1) as f64;
        summary.saving_factor = (sent + summary.bytes_unasked) as f64 / sent.max(1) as f64;
        summary.imbalance = most as f64 / mean.max(1.0);
        summary
    }

    /// Where builder and filter units do not agree about the events of the first step;
    /// `lost_in_filter` are the losses of that area.
    pub fn problems(&self, roles: &Roles, lost_in_filter: u64) -> Vec<ConservationProblem> {
        let units = roles.iter();
        let mut units = units.filter(|(id, _)| id.starts_with("bu") || id.starts_with("fu"));
        // A unit that died has left no counters, and its next life bears another name.
        if units.any(|(id, counts)| counts.is_empty() || id.contains('~')) {
            return Vec::new();
        }
        let by = |prefix: &str| {
            let causes = self.causes.iter();
            let causes = causes.filter(|(name, _)| name.starts_with(prefix));
            causes.map(|(_, count)| count).sum::<u64>()
        };
        // A builder unit counts an event that it lost in a filter unit as well, and a filter unit an
        // event that came again since its answer was lost with a stream.
        let mut problems = Vec::new();
        let (released, rejected) = (self.events_released, by("released"));
        if released < rejected || released > rejected + lost_in_filter {
            problems.push(ConservationProblem {
                equation: "events released after their first step by builder units = by filter units",
                left: released,
                right: rejected,
            });
        }
        let (fetched, wanted) = (self.events_fetched, by("fetched"));
        if fetched > wanted {
            problems.push(ConservationProblem {
                equation: "events fetched by builder units <= events that filter units wanted",
                left: fetched,
                right: wanted,
            });
        }
        problems
    }
}

/// A counter, summed over the roles of a kind.
fn sum(roles: &Roles, prefix: &str, name: &str) -> u64 {
    let roles = roles.iter().filter(|(id, _)| id.starts_with(prefix));
    roles.filter_map(|(_, counts)| counts.get(name)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles() -> Roles {
        let counts = |counts: &[(&str, u64)]| {
            let counts = counts.iter();
            counts.map(|(name, n)| ((*name).to_owned(), *n)).collect()
        };
        let unit = |sent, unasked| {
            counts(&[
                ("bytes_sent_to_builders", sent),
                ("fragments_unasked", unasked / 10),
                ("bytes_unasked", unasked),
            ])
        };
        let builder = [("events_fetched", 10), ("events_first_step_only", 90)];
        let filter = [
            ("first_step.fetched", 8),
            ("first_step.fetched_as_sample", 2),
            ("first_step.released_by_selection", 90),
            ("tickets", 5),
        ];
        [
            ("ru0", unit(1000, 0)),
            ("ru1", unit(100, 900)),
            ("ru2", unit(100, 900)),
            ("ru3", unit(100, 900)),
            ("bu0", counts(&builder)),
            ("fu0", counts(&filter)),
        ]
        .map(|(id, counts)| (id.to_owned(), counts))
        .into()
    }

    #[test]
    fn bytes_and_events_are_told_by_step() {
        let roles = roles();
        let summary = TwoStepSummary::of_roles(&roles, &["ru0".to_owned()]);
        assert_eq!((summary.events_fetched, summary.events_released), (10, 90));
        assert_eq!(summary.causes["fetched_as_sample"], 2);
        assert_eq!(summary.causes.len(), 3);
        assert_eq!(summary.bytes_first_step, 1000);
        assert_eq!(summary.bytes_second_step, 300);
        assert_eq!(summary.bytes_unasked, 2700);
        // A quarter of the data first, and one event in ten accepted.
        assert!((summary.saving_factor - 1.0 / 0.325).abs() < 1e-12);
        assert!((summary.imbalance - 1000.0 / 325.0).abs() < 1e-12);
        assert_eq!(summary.readout_units["ru1"].fragments_unasked, 90);
        assert_eq!(summary.problems(&roles, 0), []);
    }

    #[test]
    fn units_that_do_not_agree_are_a_problem_unless_one_died() {
        let mut roles = roles();
        let released = roles
            .get_mut("bu0")
            .and_then(|u| u.get_mut("events_first_step_only"));
        *released.expect("it is there") += 1;
        let of = |roles: &Roles| TwoStepSummary::of_roles(roles, &[]).problems(roles, 0);
        assert_eq!(of(&roles).len(), 1);
        let summary = TwoStepSummary::of_roles(&roles, &[]);
        assert_eq!(summary.problems(&roles, 1), [], "one was lost there");
        roles.insert("fu1".to_owned(), BTreeMap::new());
        assert_eq!(of(&roles), []);
    }
}
