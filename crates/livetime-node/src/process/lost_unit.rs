//! The accounts of units that died: settled from what their neighbours counted.
//!
//! A killed process leaves the counters of its last publication, which may be a duty cycle old,
//! and what it held is known to nobody. So at each hop with a dead end the difference between the
//! two sides is given to the dead one: what went in and did not come out is lost under its cause,
//! what came out without having been published was done all the same. Hops between living units
//! are left alone, and are checked as in any run.

use livetime_wire::{ChainCounts, LossArea, LossCause, LossCounts, UnitKind};

/// What the living know of the hops around dead units.
#[derive(Debug, Clone, Copy, Default)]
pub struct Neighbours {
    /// Level-2 accepts that the event manager took.
    pub accepts: u64,
    /// Whether the event manager itself lives.
    pub event_manager_lives: bool,
}

/// Settles the counters of a run in which units of the kinds in `lost` died.
pub fn settle_lost(
    counts: &mut ChainCounts,
    losses: &mut LossCounts,
    lost: &[UnitKind],
    neighbours: Neighbours,
) {
    let any = |kinds: &[UnitKind]| lost.iter().any(|kind| kinds.contains(kind));
    // From the file backwards, as what comes out is what is certain.
    if any(&[UnitKind::Filter]) {
        counts.filter_accepted = counts.events_stored + losses.in_area(LossArea::Store);
    }
    if any(&[UnitKind::Filter, UnitKind::Builder]) {
        let right = counts.filter_accepted + counts.filter_rejected;
        let left = counts.events_built + counts.events_incomplete;
        let over = balance(losses, LossCause::FilterLost, left, right);
        if any(&[UnitKind::Builder]) {
            // Events that the dead builder unit handed over before it published them.
            counts.events_built += over;
        } else {
            // Rejected events of which the builder unit did not hear any more.
            counts.filter_rejected -= over.min(counts.filter_rejected);
        }
    }
    if any(&[UnitKind::Source]) && neighbours.event_manager_lives {
        counts.l2_accepted = counts.l2_accepted.max(neighbours.accepts);
    }
    if any(&[UnitKind::Source, UnitKind::EventManager, UnitKind::Builder]) {
        let right = counts.events_built + counts.events_incomplete;
        let cause = match any(&[UnitKind::Builder]) {
            true => LossCause::BuilderLost,
            false => LossCause::EventAborted,
        };
        let over = balance(losses, cause, counts.l2_accepted, right);
        counts.l2_accepted += over;
    }
    if any(&[UnitKind::Source]) {
        let right = counts.l2_accepted + counts.l2_rejected;
        let over = balance(losses, LossCause::DecisionAborted, counts.triggers, right);
        counts.triggers += over;
        counts.offered = counts.refused + counts.triggers;
    }
    if any(&[UnitKind::Readout, UnitKind::Builder]) {
        let right = counts.fragments_dropped_by_decision
            + counts.fragments_in_built
            + counts.fragments_in_incomplete;
        let left = counts.fragments_received;
        let over = balance(losses, LossCause::FragmentAborted, left, right);
        counts.fragments_received += over;
    }
    if any(&[UnitKind::Source, UnitKind::Readout]) {
        let (left, right) = (counts.fragments_sent, counts.fragments_received);
        let over = balance(losses, LossCause::LinkAborted, left, right);
        counts.fragments_sent += over;
    }
}

/// Makes `left = right + losses of the cause's area`: the difference is lost under `cause`, or,
/// where more is lost than there was, was counted by two and is taken off again. Returns by how
/// much the right side alone is above the left one.
fn balance(losses: &mut LossCounts, cause: LossCause, left: u64, right: u64) -> u64 {
    let area = cause.area();
    let lost = losses.in_area(area);
    if left >= right + lost {
        losses.add(cause, left - right - lost);
        return 0;
    }
    let mut surplus = right + lost - left;
    // The named cause first, then the others of the area, then the counters themselves.
    let others = LossCause::ALL.iter().copied();
    let causes = std::iter::once(cause).chain(others.filter(|other| *other != cause));
    for cause in causes.filter(|other| other.area() == area) {
        let taken = take(losses, cause, surplus);
        surplus -= taken;
    }
    surplus
}

/// Takes up to `n` off a cause; returns how many.
fn take(losses: &mut LossCounts, cause: LossCause, n: u64) -> u64 {
    let mut kept = LossCounts::new();
    let mut taken = 0;
    for (other, count) in losses.iter() {
        let off = if other == cause { n.min(count) } else { 0 };
        taken += off;
        kept.add(other, count - off);
    }
    *losses = kept;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ChainCounts {
        ChainCounts {
            offered: 110,
            refused: 10,
            triggers: 100,
            l2_accepted: 40,
            l2_rejected: 60,
            fragments_sent: 800,
            fragments_received: 800,
            fragments_dropped_by_decision: 480,
            fragments_in_built: 320,
            events_built: 40,
            filter_accepted: 15,
            filter_rejected: 25,
            events_stored: 15,
            ..ChainCounts::default()
        }
    }

    fn settled(counts: ChainCounts, mut losses: LossCounts, lost: &[UnitKind]) -> LossCounts {
        let mut counts = counts;
        let neighbours = Neighbours {
            accepts: 40,
            event_manager_lives: true,
        };
        settle_lost(&mut counts, &mut losses, lost, neighbours);
        assert_eq!(counts.problems(&losses), [], "{lost:?}");
        losses
    }

    #[test]
    fn nothing_changes_where_everything_is_accounted_for() {
        for kind in UnitKind::ALL {
            assert_eq!(settled(good(), LossCounts::new(), &[kind]).total(), 0);
        }
    }

    #[test]
    fn what_a_dead_unit_held_is_lost_under_its_cause() {
        let mut counts = good();
        (counts.filter_rejected, counts.filter_accepted) = (20, 14);
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Filter]);
        assert_eq!(losses.of(LossCause::FilterLost), 5, "15 are in the file");

        let mut counts = good();
        (counts.l2_rejected, counts.fragments_sent) = (55, 790);
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Source]);
        assert_eq!(losses.of(LossCause::DecisionAborted), 5);

        let mut counts = good();
        counts.fragments_received = 780;
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Readout]);
        assert_eq!(losses.total(), 0, "what was built had been received");
    }

    #[test]
    fn what_two_counted_is_counted_once() {
        let mut losses = LossCounts::new();
        losses.add(LossCause::FilterLost, 3);
        losses.add(LossCause::BuilderLost, 2);
        losses.add(LossCause::FragmentAborted, 16);
        assert_eq!(settled(good(), losses, &[UnitKind::Builder]).total(), 0);
    }

    #[test]
    fn living_hops_are_left_alone() {
        let mut counts = good();
        counts.fragments_sent += 1;
        let mut losses = LossCounts::new();
        settle_lost(
            &mut counts,
            &mut losses,
            &[UnitKind::Filter, UnitKind::Builder],
            Neighbours::default(),
        );
        assert_eq!(counts.problems(&losses).len(), 1);
    }
}
