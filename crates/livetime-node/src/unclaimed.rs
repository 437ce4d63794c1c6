//! Fragments that nobody claims when a run ends in order: they belong to no trigger, or nobody says what
//! became of them.
//!
//! Both are known only when everything else is at rest, and only from the counters of several roles. What
//! a run that is ended by force leaves is counted by the roles themselves ([`crate::settlement`]).

use livetime_wire::{ChainCounts, LossArea, LossCause, LossCounts, UnitKind};

use crate::counter_block::RoleCounts;
use crate::role_ends::unit_of;

fn of_kind(roles: &[(String, RoleCounts)], kind: UnitKind) -> impl Iterator<Item = &RoleCounts> {
    let is_kind = move |id: &str| unit_of(id).is_some_and(|unit| unit.kind == kind);
    let roles = roles.iter();
    roles.filter_map(move |(id, role)| is_kind(id).then_some(role))
}

/// Fragments that idle readout units hold for triggers which the supervisor, with all given triggers
/// decided, has not given: their numbers were damaged.
pub(crate) fn of_no_trigger(triggers: u64, roles: &[(String, RoleCounts)]) -> u64 {
    let units = of_kind(roles, UnitKind::Readout).map(|role| role.gauges);
    let idle = units.filter(|unit| unit.idle == 1 && unit.newest >= triggers);
    idle.map(|unit| unit.held).sum()
}

/// Fragments of which the receiving ends of their links say nothing any more, as far as the sending ends
/// know.
pub(crate) fn unanswered(roles: &[(String, RoleCounts)]) -> u64 {
    let front_ends = of_kind(roles, UnitKind::Source);
    front_ends.map(|role| role.gauges.held).sum()
}

/// Counts those of the fragments without an answer that no readout unit has counted: they never came.
/// Where only the answers were lost there are none.
pub(crate) fn settle_unanswered(
    counts: &ChainCounts,
    losses: &mut LossCounts,
    roles: &[(String, RoleCounts)],
    cause: LossCause,
) {
    let settled = counts.fragments_received + losses.in_area(LossArea::Link);
    let missing = counts.fragments_sent.saturating_sub(settled);
    losses.add(cause, missing.min(unanswered(roles)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(id: &str, change: impl FnOnce(&mut RoleCounts)) -> (String, RoleCounts) {
        let mut counts = RoleCounts::default();
        counts.gauges.idle = 1;
        change(&mut counts);
        (id.to_owned(), counts)
    }

    /// Given 40 fragments without an answer, then those are lost that no readout unit has counted, and
    /// never more than 40.
    #[test]
    fn what_nobody_answered_for_is_lost_as_far_as_nobody_has_it() {
        let roles = [role("src0", |counts| counts.gauges.held = 40)];
        for (received, lost_before, expected) in [
            (1000, 0, 0),
            (960, 0, 40),
            (960, 25, 15),
            (975, 0, 25),
            (900, 0, 40),
            (990, 20, 0),
        ] {
            let counts = ChainCounts {
                fragments_sent: 1000,
                fragments_received: received,
                ..ChainCounts::default()
            };
            let mut losses = LossCounts::new();
            losses.add(LossCause::LinkDown, lost_before);
            settle_unanswered(&counts, &mut losses, &roles, LossCause::DatagramLost);
            assert_eq!(losses.of(LossCause::DatagramLost), expected, "{received}");
        }
    }

    /// Given a readout unit that has not heard of the last trigger, or works, then what it holds may
    /// still be of one.
    #[test]
    fn a_fragment_is_of_no_trigger_once_all_are_known_where_it_is() {
        let unit = |newest, idle| {
            role("ru1", move |counts| {
                (counts.gauges.held, counts.gauges.newest) = (3, newest);
                counts.gauges.idle = idle;
            })
        };
        for (newest, idle, expected) in [(200, 1, 3), (199, 1, 0), (200, 0, 0)] {
            let roles = [
                role("bu0", |counts| counts.gauges.held = 5),
                unit(newest, idle),
            ];
            assert_eq!(of_no_trigger(200, &roles), expected);
        }
    }
}
