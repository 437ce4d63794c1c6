//! The accounts of units that died: settled from what their neighbours counted.
//!
//! A killed process leaves the counters of its last publication, which may be a duty cycle old,
//! and some of what it published is done again by another. So what a dead unit counted is replaced
//! by what follows from the living on both sides of it, and what went in and did not come out is
//! lost under its cause. Hops between living units are left alone, and are checked as in any run.
//!
//! What was heard last of a dead unit is the least that it has counted, and may be seconds old where its
//! host could not be heard: what its neighbours have beyond that raises its counters, and takes nothing
//! off a loss that somebody has seen happen.

use livetime_wire::{ChainCounts, LossArea, LossCause, LossCounts, UnitKind};

use crate::counter_block::RoleCounts;

/// What the living know of the hops around dead units.
#[derive(Debug, Clone, Copy, Default)]
pub struct Neighbours {
    /// Level-2 accepts that the event manager took: one that died, at least so many.
    pub accepts: u64,
    /// Whether the run was ended by force when no event manager was there: nobody has said which
    /// events are not built.
    pub nobody_knows_open: bool,
    /// Whether the run was ended by force: what was on its way to a file stays away.
    pub ended_by_force: bool,
    /// Events of the builder units that filter units or the writer were through with.
    pub events_done: u64,
    /// What the filter units judged; `None` where one of them died.
    pub judged: Option<Judged>,
    /// What the dead builder units had closed, and nobody was known to be through with.
    pub unfinished: Unfinished,
}

/// Closed events of builder units that nobody was known to be through with. Those of a dead unit are
/// built again, but for the ones that others had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unfinished {
    /// Complete ones.
    pub built: u64,
    /// Incomplete ones.
    pub incomplete: u64,
    /// Fragments in the complete ones.
    pub fragments_in_built: u64,
    /// Fragments in the incomplete ones.
    pub fragments_in_incomplete: u64,
}

impl Unfinished {
    /// Those of some builder units, by what they have published.
    pub fn of<'a>(units: impl Iterator<Item = &'a RoleCounts>) -> Self {
        let mut sum = Self::default();
        for RoleCounts { chain, gauges, .. } in units {
            // A unit counts both at once; but what a process has written is input.
            let less = u64::saturating_sub;
            let complete = less(gauges.done, gauges.incomplete);
            let fragments = less(gauges.fragments, gauges.fragments_in_incomplete);
            sum.built += less(chain.events_built, complete);
            sum.incomplete += less(chain.events_incomplete, gauges.incomplete);
            sum.fragments_in_built += less(chain.fragments_in_built, fragments);
            sum.fragments_in_incomplete += less(
                chain.fragments_in_incomplete,
                gauges.fragments_in_incomplete,
            );
        }
        sum
    }
}

/// What filter units found in the events that they judged.
#[derive(Debug, Clone, Copy, Default)]
pub struct Judged {
    /// Events that lack fragments.
    pub incomplete: u64,
    /// Fragments in those.
    pub fragments_in_incomplete: u64,
    /// Fragments in all of them.
    pub fragments: u64,
}

/// Settles the counters of a run in which units of the kinds in `lost` died.
pub fn settle_lost(
    counts: &mut ChainCounts,
    losses: &mut LossCounts,
    lost: &[UnitKind],
    neighbours: Neighbours,
) {
    let any = |kinds: &[UnitKind]| lost.iter().any(|kind| kinds.contains(kind));
    if any(&[UnitKind::Source]) {
        counts.l2_accepted = counts.l2_accepted.max(neighbours.accepts);
    }
    // From the file backwards, as what comes out is what is certain.
    settle_store(counts, losses, lost, neighbours.ended_by_force);
    settle_filter(counts, losses, lost, neighbours);
    if any(&[UnitKind::Source, UnitKind::EventManager, UnitKind::Builder]) {
        let right = counts.events_built + counts.events_incomplete;
        let cause = if neighbours.nobody_knows_open {
            // It would have had others build those of a dead builder unit.
            LossCause::ManagerLost
        } else if any(&[UnitKind::Builder]) {
            LossCause::BuilderLost
        } else if any(&[UnitKind::EventManager]) {
            LossCause::ManagerLost
        } else {
            LossCause::EventAborted
        };
        if !are_accepts_known(lost) {
            let came = right + losses.in_area(LossArea::Builder);
            counts.l2_accepted = counts.l2_accepted.max(came);
        }
        let over = balance(losses, cause, counts.l2_accepted, right);
        counts.l2_accepted += over;
    } else if any(&[UnitKind::Readout]) {
        // A builder unit that could not tell the dead one that it had given events up told nobody.
        let right = counts.events_built + counts.events_incomplete;
        let surplus =
            (right + losses.in_area(LossArea::Builder)).saturating_sub(counts.l2_accepted);
        let taken = take(losses, LossCause::BuilderLost, surplus);
        take(losses, LossCause::EventAborted, surplus - taken);
    }
    if any(&[UnitKind::Trigger, UnitKind::Source]) {
        // Whoever waited for a decision in the end waited for the dead one.
        let undecided = take(losses, LossCause::DecisionAborted, u64::MAX);
        losses.add(LossCause::DecisionLost, undecided);
    }
    if any(&[UnitKind::Source]) {
        let right = counts.l2_accepted + counts.l2_rejected;
        let given = right + seen_lost(losses, LossArea::Trigger);
        counts.triggers = counts.triggers.max(given);
        balance(losses, LossCause::DecisionLost, counts.triggers, right);
        counts.offered = counts.refused + counts.triggers;
    }
    settle_fragments(counts, losses, lost, neighbours);
}

/// Whether somebody knows how many triggers were accepted: else what was heard of that is the least.
fn are_accepts_known(lost: &[UnitKind]) -> bool {
    !(lost.contains(&UnitKind::Source) && lost.contains(&UnitKind::EventManager))
}

/// Names what an end by force has cut off in filter units. Builder units count it as lost with those, since
/// they know of no verdict and not why; where no filter unit died it had only not been filtered yet.
pub fn name_cut_off(losses: &mut LossCounts, lost: &[UnitKind]) {
    if !lost.contains(&UnitKind::Filter) {
        let cut_off = take(losses, LossCause::FilterLost, u64::MAX);
        losses.add(LossCause::FilterAborted, cut_off);
    }
}

/// A filter unit that dies with its builder unit may have accepted what is then built again: not more
/// events are accepted than came.
pub fn count_accepted_once(counts: &mut ChainCounts, losses: &LossCounts, lost: &[UnitKind]) {
    let may_be_twice = lost.contains(&UnitKind::Filter) && lost.contains(&UnitKind::Builder);
    if may_be_twice && are_accepts_known(lost) {
        let before = losses.in_area(LossArea::Builder) + losses.in_area(LossArea::Filter);
        let came = counts.l2_accepted.saturating_sub(before);
        counts.filter_accepted = counts.filter_accepted.min(came);
    }
}

/// Accepted events against the file.
fn settle_store(
    counts: &mut ChainCounts,
    losses: &mut LossCounts,
    lost: &[UnitKind],
    ended_by_force: bool,
) {
    let filter_lost = lost.contains(&UnitKind::Filter);
    let writer_lost = lost.contains(&UnitKind::Writer);
    let stored = counts.events_stored;
    let certain = stored + losses.in_area(LossArea::Store);
    if filter_lost {
        // What a dead filter unit published may be behind, or be done again by another.
        counts.filter_accepted = match writer_lost {
            true => counts.filter_accepted.max(certain),
            false => certain,
        };
        count_accepted_once(counts, losses, lost);
        counts.filter_accepted = counts.filter_accepted.max(certain);
    }
    if writer_lost {
        let over = balance(
            losses,
            LossCause::WriterLost,
            counts.filter_accepted,
            stored,
        );
        counts.filter_accepted += over;
    }
    if ended_by_force && lost.contains(&UnitKind::Builder) && !filter_lost && !writer_lost {
        // An event goes to its file through its builder unit: what filter units have accepted of a dead
        // one is built again, which an end by force does not wait for.
        let missing = counts.filter_accepted.saturating_sub(certain);
        losses.add(LossCause::StoreAborted, missing);
    }
}

/// Built events against those that left the filter units.
fn settle_filter(
    counts: &mut ChainCounts,
    losses: &mut LossCounts,
    lost: &[UnitKind],
    neighbours: Neighbours,
) {
    if lost.contains(&UnitKind::Writer) && !lost.contains(&UnitKind::Filter) {
        // An accepted event that a dead writer did not answer for is lost there, and not once more
        // in the filter unit that still waits.
        let left = counts.events_built + counts.events_incomplete;
        let right = counts.filter_accepted + counts.filter_rejected;
        let surplus = (right + losses.in_area(LossArea::Filter)).saturating_sub(left);
        take(losses, LossCause::FilterLost, surplus);
    }
    let in_filter = losses.in_area(LossArea::Filter);
    let builder_lost = lost.contains(&UnitKind::Builder);
    if lost.contains(&UnitKind::Filter) {
        let open = losses.in_area(LossArea::Builder);
        let came = counts.l2_accepted.saturating_sub(open);
        let judged = counts.filter_accepted + counts.filter_rejected + in_filter;
        let events = match (builder_lost, are_accepts_known(lost)) {
            // What has no verdict that was published may not be built: it is lost, rather than rejected.
            (true, true) if neighbours.nobody_knows_open => judged.min(came),
            (true, false) if neighbours.nobody_knows_open => judged,
            (true, true) => came,
            (true, false) => judged.max(came),
            (false, _) => neighbours.events_done + in_filter,
        };
        let left = events.saturating_sub(in_filter);
        counts.filter_rejected = left.saturating_sub(counts.filter_accepted);
    }
    if builder_lost {
        // What came out of the builder units; an event built a second time counts once.
        let out = counts.filter_accepted + counts.filter_rejected + in_filter;
        match neighbours.judged.filter(|_| in_filter == 0) {
            Some(judged) => {
                counts.events_incomplete = judged.incomplete.min(out);
                counts.events_built = out - counts.events_incomplete;
            }
            None => count_closed_once(counts, out, neighbours.unfinished),
        }
    }
}

/// Of the events that a dead builder unit had closed, others have closed those once more that nobody
/// had: beyond the `out` that came out of all units they count twice, with fragments that the second
/// one may not have had, since a readout unit died as well. They are taken off the incomplete ones
/// first: what a unit closes before it dies is what it has handed on last, and a readout unit that died
/// before it left that incomplete. A unit may also have closed events that it had no time to publish.
fn count_closed_once(counts: &mut ChainCounts, out: u64, unfinished: Unfinished) {
    let closed = counts.events_built + counts.events_incomplete;
    let twice = closed.saturating_sub(out).min(unfinished.incomplete);
    let in_twice = share(
        unfinished.fragments_in_incomplete,
        twice,
        unfinished.incomplete,
    );
    counts.fragments_in_incomplete = counts.fragments_in_incomplete.saturating_sub(in_twice);
    counts.events_incomplete = counts.events_incomplete.saturating_sub(twice).min(out);
    let built = out - counts.events_incomplete;
    let (in_built, of) = match unfinished.built {
        0 => (counts.fragments_in_built, counts.events_built),
        of => (unfinished.fragments_in_built, of),
    };
    let more = share(in_built, built.saturating_sub(counts.events_built), of);
    let less = share(in_built, counts.events_built.saturating_sub(built), of);
    counts.fragments_in_built = (counts.fragments_in_built + more).saturating_sub(less);
    counts.events_built = built;
}

/// The fragments in `n` events, of which so many have `fragments`.
fn share(fragments: u64, n: u64, of: u64) -> u64 {
    let share = (u128::from(fragments) * u128::from(n)).checked_div(of.into());
    share.map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX))
}

/// Fragments from the links to the events.
fn settle_fragments(
    counts: &mut ChainCounts,
    losses: &mut LossCounts,
    lost: &[UnitKind],
    neighbours: Neighbours,
) {
    let all_judged = neighbours
        .judged
        .filter(|_| losses.in_area(LossArea::Filter) == 0);
    let builder_lost = lost.contains(&UnitKind::Builder);
    if let Some(judged) = all_judged.filter(|_| builder_lost) {
        counts.fragments_in_incomplete = judged.fragments_in_incomplete;
        counts.fragments_in_built = judged.fragments - judged.fragments_in_incomplete;
    } else if builder_lost && !lost.contains(&UnitKind::Readout) {
        let elsewhere = counts.fragments_dropped_by_decision
            + counts.fragments_in_incomplete
            + losses.in_area(LossArea::Readout);
        let in_events = counts.fragments_received.saturating_sub(elsewhere);
        counts.fragments_in_built = match neighbours.nobody_knows_open {
            // Readout units may have freed those of events that were not built.
            true => counts.fragments_in_built.min(in_events),
            false => in_events,
        };
    }
    let left = counts.fragments_received;
    let right = counts.fragments_dropped_by_decision
        + counts.fragments_in_built
        + counts.fragments_in_incomplete;
    if lost.contains(&UnitKind::Readout) {
        // What its events have of a fragment had come, whatever was heard of it.
        let came = left.max(right + seen_lost(losses, LossArea::Readout));
        balance(losses, LossCause::ReadoutLost, came, right);
        counts.fragments_received = came;
    } else if builder_lost {
        // A readout unit may not know what the dead one has closed without a fragment of its own, nor
        // that one has come late and is in an event: what was judged is certain.
        let cause = match neighbours.nobody_knows_open {
            true => LossCause::FragmentAborted,
            false => LossCause::FragmentLate,
        };
        let over = balance(losses, cause, left, right);
        counts.fragments_dropped_by_decision -= over.min(counts.fragments_dropped_by_decision);
    }
    let cause = match lost.contains(&UnitKind::Source) {
        true => LossCause::SourceLost,
        false => LossCause::LinkAborted,
    };
    if lost.contains(&UnitKind::Source) || lost.contains(&UnitKind::Readout) {
        let right = counts.fragments_received;
        if lost.contains(&UnitKind::Source) {
            let sent = right + seen_lost(losses, LossArea::Link);
            counts.fragments_sent = counts.fragments_sent.max(sent);
        }
        let over = balance(losses, cause, counts.fragments_sent, right);
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
    // What was concluded before what somebody has seen, the named cause before the others of the area,
    // then the counters themselves.
    let of_area = LossCause::ALL.iter().filter(|other| other.area() == area);
    let mut causes: Vec<LossCause> = of_area.copied().collect();
    causes.sort_by_key(|other| (is_seen(*other), *other != cause));
    for cause in causes {
        let taken = take(losses, cause, surplus);
        surplus -= taken;
    }
    surplus
}

/// Whether somebody counts this cause when it sees that something is lost, and not by concluding what has
/// become of the rest when a unit or the run has ended.
fn is_seen(cause: LossCause) -> bool {
    use LossCause::{
        BuilderLost, DecisionAborted, DecisionLost, EventAborted, FilterAborted, FilterLost,
        FragmentAborted, LinkAborted, ManagerLost, ReadoutLost, SourceLost, StoreAborted,
        WriterLost,
    };
    !matches!(
        cause,
        DecisionAborted
            | DecisionLost
            | LinkAborted
            | SourceLost
            | FragmentAborted
            | ReadoutLost
            | EventAborted
            | BuilderLost
            | ManagerLost
            | FilterAborted
            | FilterLost
            | StoreAborted
            | WriterLost
    )
}

/// What was seen to be lost in an area.
fn seen_lost(losses: &LossCounts, area: LossArea) -> u64 {
    let in_area = losses.iter().filter(|(cause, _)| cause.area() == area);
    let seen = in_area.filter(|(cause, _)| is_seen(*cause));
    seen.map(|(_, n)| n).sum()
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
    use proptest::prelude::*;

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
            events_done: 40,
            ..Neighbours::default()
        };
        settle_lost(&mut counts, &mut losses, lost, neighbours);
        assert_eq!(counts.problems(&losses), [], "{lost:?}");
        assert_eq!(counts.events_stored, 15, "the file is certain");
        losses
    }

    #[test]
    fn what_an_end_cuts_off_in_filter_units_is_lost_with_those_that_died_alone() {
        for (lost, aborted, with_units) in [
            (&[][..], 5, 0),
            (&[UnitKind::Writer], 5, 0),
            (&[UnitKind::Filter], 2, 3),
        ] {
            let mut losses = LossCounts::new();
            losses.add(LossCause::FilterLost, 3);
            losses.add(LossCause::FilterAborted, 2);
            losses.add(LossCause::EventAborted, 1);
            name_cut_off(&mut losses, lost);
            let named = [LossCause::FilterAborted, LossCause::FilterLost];
            assert_eq!(named.map(|cause| losses.of(cause)), [aborted, with_units]);
            assert_eq!(losses.total(), 6, "{lost:?}");
        }
    }

    #[test]
    fn nothing_changes_where_everything_is_accounted_for() {
        for kind in UnitKind::ALL {
            assert_eq!(settled(good(), LossCounts::new(), &[kind]).total(), 0);
        }
    }

    #[test]
    fn an_event_that_two_filter_units_accepted_counts_once() {
        let mut counts = good();
        (counts.filter_accepted, counts.filter_rejected) = (42, 0);
        let lost = [UnitKind::Builder, UnitKind::Filter, UnitKind::Writer];
        let mut before = counts;
        count_accepted_once(&mut before, &LossCounts::new(), &lost[1..]);
        assert_eq!(before, counts, "its builder unit lives");
        count_accepted_once(&mut before, &LossCounts::new(), &lost);
        assert_eq!(before.filter_accepted, 40);
        let losses = settled(counts, LossCounts::new(), &lost);
        assert_eq!(losses.total(), losses.of(LossCause::WriterLost));
        assert_eq!(losses.total(), 25, "15 of 40 are in the file");
    }

    #[test]
    fn what_a_dead_unit_held_is_lost_under_its_cause() {
        let mut counts = good();
        (counts.l2_rejected, counts.fragments_sent) = (55, 790);
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Source]);
        assert_eq!(losses.of(LossCause::DecisionLost), 5);

        let mut counts = good();
        counts.fragments_received = 780;
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Readout]);
        assert_eq!(losses.total(), 0, "what was built had been received");

        let mut counts = good();
        counts.fragments_dropped_by_decision = 470;
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Readout]);
        assert_eq!(losses.of(LossCause::ReadoutLost), 10);

        let mut counts = good();
        (counts.filter_accepted, counts.filter_rejected) = (18, 22);
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Writer]);
        assert_eq!(losses.of(LossCause::WriterLost), 3, "15 are in the file");

        let mut losses = LossCounts::new();
        losses.add(LossCause::DecisionAborted, 4);
        let mut counts = good();
        counts.l2_rejected = 56;
        let losses = settled(counts, losses, &[UnitKind::Trigger]);
        assert_eq!(losses.of(LossCause::DecisionLost), 4);
    }

    /// Whoever pushes into the ring of a peer that is gone has counted what it pushed: the hop is out
    /// of balance by just that, and it is lost under the cause of the dead unit.
    #[test]
    fn what_went_to_a_unit_that_was_gone_is_lost_under_its_cause() {
        // Acknowledge entries to a readout unit: fragments that nobody received.
        let mut counts = good();
        counts.fragments_sent += 7;
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Readout]);
        assert_eq!((losses.of(LossCause::LinkAborted), losses.total()), (7, 7));
        // Decisions to it: fragments that nobody dropped.
        let mut counts = good();
        (counts.fragments_sent, counts.fragments_received) = (807, 807);
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Readout]);
        assert_eq!((losses.of(LossCause::ReadoutLost), losses.total()), (7, 7));
        // Accepts to an event manager: triggers that nobody built.
        let mut counts = good();
        (counts.l2_accepted, counts.l2_rejected) = (42, 58);
        let losses = settled(counts, LossCounts::new(), &[UnitKind::EventManager]);
        assert_eq!((losses.of(LossCause::ManagerLost), losses.total()), (2, 2));
        // Replies to a supervisor: triggers without a decision.
        let mut counts = good();
        counts.l2_rejected = 57;
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Source]);
        assert_eq!((losses.of(LossCause::DecisionLost), losses.total()), (3, 3));
        // Accepted events to a writer.
        let mut counts = good();
        (counts.filter_accepted, counts.filter_rejected) = (16, 24);
        let losses = settled(counts, LossCounts::new(), &[UnitKind::Writer]);
        assert_eq!((losses.of(LossCause::WriterLost), losses.total()), (1, 1));
    }

    /// A builder unit dies with an accepted event in its hands, and no other builds it again any more.
    #[test]
    fn what_an_end_cuts_off_between_filter_and_file_is_lost_where_no_builder_unit_has_it() {
        let mut accepted = good();
        (accepted.filter_accepted, accepted.filter_rejected) = (16, 24);
        let settle = |ended_by_force, lost: &[UnitKind], mut losses: LossCounts| {
            let mut counts = accepted;
            let neighbours = Neighbours {
                accepts: 40,
                events_done: 39,
                ended_by_force,
                ..Neighbours::default()
            };
            settle_lost(&mut counts, &mut losses, lost, neighbours);
            assert_eq!(counts.events_stored, 15, "the file is certain");
            (counts.problems(&losses).len(), losses)
        };
        for lost in [
            &[UnitKind::Builder][..],
            &[UnitKind::Builder, UnitKind::Readout],
        ] {
            let (problems, losses) = settle(true, lost, LossCounts::new());
            assert_eq!((problems, losses.total()), (0, 1), "{lost:?}");
            assert_eq!(losses.of(LossCause::StoreAborted), 1, "{lost:?}");
            // In a run that was drained it is a fault of ours, and not lost.
            let (problems, losses) = settle(false, lost, LossCounts::new());
            assert_eq!((problems, losses.total()), (1, 0), "{lost:?}");
        }
        // The writer had it when the run was ended.
        let mut losses = LossCounts::new();
        losses.add(LossCause::StoreAborted, 1);
        let (problems, losses) = settle(true, &[UnitKind::Builder], losses);
        assert_eq!((problems, losses.total()), (0, 1));
        // Of a dead filter unit the file says what was accepted.
        let lost = [UnitKind::Builder, UnitKind::Filter];
        let (problems, losses) = settle(true, &lost, LossCounts::new());
        assert_eq!((problems, losses.total()), (0, 0));
    }

    /// A dead filter or builder unit published too little, or what another did again: neither is a
    /// loss.
    #[test]
    fn what_the_neighbours_know_replaces_what_the_dead_published() {
        for (accepted, rejected) in [(14, 20), (17, 28), (0, 0)] {
            let mut counts = good();
            (counts.filter_accepted, counts.filter_rejected) = (accepted, rejected);
            let losses = settled(counts, LossCounts::new(), &[UnitKind::Filter]);
            assert_eq!(losses.total(), 0);
            for built in [0, 33, 47] {
                let mut counts = counts;
                (counts.events_built, counts.fragments_in_built) = (built, built * 8);
                let both = [UnitKind::Filter, UnitKind::Builder];
                assert_eq!(settled(counts, LossCounts::new(), &both).total(), 0);
            }
        }
        for built in [0, 33, 47] {
            let mut counts = good();
            (counts.events_built, counts.fragments_in_built) = (built, built * 8);
            let losses = settled(counts, LossCounts::new(), &[UnitKind::Builder]);
            assert_eq!(losses.total(), 0);
        }
    }

    /// An event that a builder unit closed before it died, and that another closed again, counts once:
    /// as the filter unit saw it that judged it.
    #[test]
    fn an_event_that_two_builder_units_closed_counts_once() {
        let mut counts = good();
        // 4 of 5 are incomplete twice, and two complete ones were built twice.
        (counts.events_incomplete, counts.fragments_in_incomplete) = (9, 9 * 4);
        (counts.fragments_in_built, counts.events_built) = (37 * 8, 37);
        (counts.fragments_sent, counts.fragments_received) = (780, 780);
        let judged = Judged {
            incomplete: 5,
            fragments_in_incomplete: 5 * 4,
            fragments: 35 * 8 + 5 * 4,
        };
        let neighbours = Neighbours {
            accepts: 40,
            events_done: 33,
            judged: Some(judged),
            ..Neighbours::default()
        };
        for lost in [
            &[UnitKind::Builder][..],
            &[UnitKind::Readout, UnitKind::Builder],
        ] {
            let (mut counts, mut losses) = (counts, LossCounts::new());
            settle_lost(&mut counts, &mut losses, lost, neighbours);
            assert_eq!(counts.problems(&losses), []);
            assert_eq!(losses.total(), 0);
            assert_eq!((counts.events_built, counts.events_incomplete), (35, 5));
            assert_eq!(counts.fragments_in_incomplete, 20);
            assert_eq!(counts.fragments_sent, 780);
        }
    }

    /// A filter unit that dies with its builder unit has judged what nobody knows, and the fragments of
    /// the events in its hands are gone if their readout unit dies, too: another builder unit closes
    /// those without them, and what the first one had built of them is in no event.
    #[test]
    fn fragments_of_an_event_that_lost_them_are_lost_and_in_no_other() {
        let lost = [UnitKind::Filter, UnitKind::Builder, UnitKind::Readout];
        // What the dead one had closed, by how many of both kinds nobody was through with, and what
        // others closed of it once more.
        let settle = |built: u64, incomplete: u64, again: u64, again_incomplete: u64| {
            let mut dead = RoleCounts::default();
            // Of these it knows that they are done: 8 fragments each, and 3 in an incomplete one.
            (dead.gauges.done, dead.gauges.incomplete) = (6, 1);
            (dead.gauges.fragments, dead.gauges.fragments_in_incomplete) = (43, 3);
            (dead.chain.events_built, dead.chain.events_incomplete) = (5 + built, 1 + incomplete);
            dead.chain.fragments_in_built = 8 * (5 + built);
            dead.chain.fragments_in_incomplete = 3 + 4 * incomplete;
            let unfinished = Unfinished::of([dead].iter());
            let others = 40 - 6 - again - again_incomplete;
            let mut counts = ChainCounts {
                events_built: dead.chain.events_built + others + again,
                events_incomplete: dead.chain.events_incomplete + again_incomplete,
                fragments_in_built: dead.chain.fragments_in_built + 8 * (others + again),
                fragments_in_incomplete: dead.chain.fragments_in_incomplete + 2 * again_incomplete,
                ..good()
            };
            let neighbours = Neighbours {
                accepts: 40,
                unfinished,
                ..Neighbours::default()
            };
            let mut losses = LossCounts::new();
            settle_lost(&mut counts, &mut losses, &lost, neighbours);
            assert_eq!(counts.problems(&losses), []);
            assert_eq!(counts.fragments_in_built, 8 * counts.events_built);
            let lost = losses.of(LossCause::ReadoutLost);
            assert_eq!(losses.total(), lost);
            (
                counts.events_incomplete,
                counts.fragments_in_incomplete,
                lost,
            )
        };
        assert_eq!(settle(0, 0, 0, 0), (1, 3, 5));
        // Built, and built again, whole or without the dead readout unit.
        assert_eq!(settle(1, 0, 1, 0), (1, 3, 5));
        assert_eq!(settle(1, 0, 0, 1), (2, 5, 11));
        assert_eq!(settle(3, 0, 1, 2), (3, 7, 17));
        // Incomplete already the first time.
        assert_eq!(settle(0, 2, 0, 2), (3, 7, 17));
        assert_eq!(settle(2, 1, 1, 2), (3, 7, 17));
        // The writer had one of those built, so that nobody has closed it again.
        assert_eq!(settle(1, 1, 0, 1), (2, 5, 11));
        // One was closed, and handed on, when there was no time to publish it.
        let mut counts = good();
        (counts.events_built, counts.fragments_in_built) = (39, 39 * 8);
        count_closed_once(&mut counts, 40, Unfinished::default());
        assert_eq!((counts.events_built, counts.fragments_in_built), (40, 320));
    }

    /// What filter units have seen in events is certain: a readout unit that thinks otherwise was told
    /// too little, since a builder unit has died.
    #[test]
    fn a_fragment_in_a_judged_event_was_neither_dropped_nor_lost() {
        let neighbours = Neighbours {
            accepts: 40,
            events_done: 33,
            judged: Some(Judged {
                fragments: 320,
                ..Judged::default()
            }),
            ..Neighbours::default()
        };
        let settle = |received, dropped, aborted| {
            let mut losses = LossCounts::new();
            losses.add(LossCause::FragmentAborted, aborted);
            let mut counts = ChainCounts {
                fragments_sent: received,
                fragments_received: received,
                fragments_dropped_by_decision: dropped,
                ..good()
            };
            settle_lost(&mut counts, &mut losses, &[UnitKind::Builder], neighbours);
            assert_eq!(counts.problems(&losses), []);
            assert_eq!(losses.total(), losses.in_area(LossArea::Readout));
            let dropped = counts.fragments_dropped_by_decision;
            (dropped, losses.of(LossCause::FragmentLate), losses.total())
        };
        assert_eq!(settle(800, 480, 3), (480, 0, 0));
        assert_eq!(settle(800, 483, 2), (480, 0, 0));
        assert_eq!(settle(801, 480, 1), (480, 0, 1));
        // It came when the dead one had closed the event without it.
        assert_eq!(settle(802, 480, 0), (480, 2, 2));
    }

    /// When event manager, builder unit and filter unit are all dead in the end, events that nobody has
    /// judged were not rejected, and their fragments are in none.
    #[test]
    fn what_nobody_built_is_lost_with_the_event_manager_and_not_rejected() {
        let kinds = [UnitKind::EventManager, UnitKind::Builder, UnitKind::Filter];
        let neighbours = Neighbours {
            nobody_knows_open: true,
            ..Neighbours::default()
        };
        for lost in [&kinds[..], &kinds[..2]] {
            let mut counts = good();
            // 9 of the 25 were not built; fragments of 4 of them were freed at the readout units.
            (counts.filter_rejected, counts.events_built) = (16, 31);
            counts.fragments_in_built = 31 * 8;
            let mut losses = LossCounts::new();
            losses.add(LossCause::FragmentAborted, 5 * 8);
            settle_lost(&mut counts, &mut losses, lost, neighbours);
            assert_eq!(counts.problems(&losses), []);
            assert_eq!((counts.filter_rejected, counts.events_built), (16, 31));
            assert_eq!(counts.fragments_in_built, 31 * 8);
            assert_eq!(losses.of(LossCause::ManagerLost), 9);
            assert_eq!(losses.of(LossCause::FragmentAborted), 9 * 8);
            assert_eq!(losses.total(), 9 * 9);
        }
    }

    #[test]
    fn what_two_counted_is_counted_once() {
        let mut losses = LossCounts::new();
        losses.add(LossCause::BuilderLost, 2);
        assert_eq!(settled(good(), losses, &[UnitKind::Builder]).total(), 0);
        let mut losses = LossCounts::new();
        losses.add(LossCause::FilterLost, 3);
        assert_eq!(settled(good(), losses, &[UnitKind::Writer]).total(), 0);
        let mut losses = LossCounts::new();
        losses.add(LossCause::FragmentAborted, 16);
        losses.add(LossCause::BuilderLost, 1);
        losses.add(LossCause::EventAborted, 1);
        assert_eq!(settled(good(), losses, &[UnitKind::Readout]).total(), 0);
    }

    /// A host that is not heard may have been at work for a while: what its roles counted meanwhile nobody
    /// has heard, and others have what came of it.
    #[test]
    fn what_was_heard_last_is_the_least_and_no_loss_that_was_seen_vanishes() {
        let settle = |mut counts: ChainCounts, seen, lost: &[UnitKind], accepts| {
            let mut losses = LossCounts::new();
            losses.add(seen, 6);
            let neighbours = Neighbours {
                accepts,
                events_done: 40,
                nobody_knows_open: lost.contains(&UnitKind::EventManager),
                ..Neighbours::default()
            };
            let heard = counts;
            settle_lost(&mut counts, &mut losses, lost, neighbours);
            assert_eq!(counts.problems(&losses), [], "{lost:?}");
            assert_eq!(losses.of(seen), 6, "{lost:?}");
            for ((name, before), (_, after)) in heard.entries().iter().zip(counts.entries()) {
                assert!(
                    after >= *before,
                    "{name}: {before} became {after}, {lost:?}"
                );
            }
            (counts, losses)
        };
        // A readout unit whose newest fragments are in events.
        let stale = |received, dropped| ChainCounts {
            fragments_received: received,
            fragments_dropped_by_decision: dropped,
            ..good()
        };
        let late = LossCause::FragmentLate;
        let (counts, losses) = settle(stale(620, 440), late, &[UnitKind::Readout], 40);
        assert_eq!(counts.fragments_received, 440 + 320 + 6);
        assert_eq!(losses.of(LossCause::LinkAborted), 800 - 766);
        // Front-ends that had gone on: the event manager has more accepts than they were heard to give.
        let stale = ChainCounts {
            triggers: 81,
            offered: 91,
            l2_accepted: 30,
            l2_rejected: 45,
            fragments_sent: 640,
            ..good()
        };
        let gone = [UnitKind::Source];
        let (counts, _) = settle(stale, LossCause::DecisionTimeout, &gone, 40);
        assert_eq!((counts.triggers, counts.l2_accepted), (40 + 45 + 6, 40));
        let (counts, _) = settle(stale, LossCause::LinkDown, &gone, 40);
        assert_eq!(counts.fragments_sent, 806);
        // The event manager with them.
        let gone = [UnitKind::Source, UnitKind::EventManager];
        let (counts, _) = settle(stale, LossCause::DecisionTimeout, &gone, 31);
        assert_eq!(counts.l2_accepted, 40);
        // A building host before them: its filter unit's verdicts are its own, and the file lacks 2.
        let stored = ChainCounts {
            events_stored: 13,
            ..stale
        };
        let [builder, filter, writer] = [UnitKind::Builder, UnitKind::Filter, UnitKind::Writer];
        let gone = [builder, filter, writer, gone[0], gone[1]];
        let (counts, losses) = settle(stored, LossCause::DecisionTimeout, &gone, 31);
        assert_eq!((counts.filter_accepted, counts.filter_rejected), (15, 25));
        assert_eq!(losses.of(LossCause::WriterLost), 2);
        assert_eq!((counts.l2_accepted, counts.events_built), (40, 40));
    }

    /// What builder units that live have given up at the end is lost beside what they have built.
    #[test]
    fn where_nobody_knows_the_accepts_what_was_given_up_came_as_well() {
        let mut counts = good();
        (counts.triggers, counts.l2_accepted, counts.l2_rejected) = (85, 30, 55);
        let mut losses = LossCounts::new();
        losses.add(LossCause::EventAborted, 3);
        let gone = [UnitKind::Source, UnitKind::EventManager];
        let neighbours = Neighbours {
            nobody_knows_open: true,
            ..Neighbours::default()
        };
        settle_lost(&mut counts, &mut losses, &gone, neighbours);
        assert_eq!(counts.problems(&losses), []);
        assert_eq!(counts.l2_accepted, 43);
        assert_eq!((losses.of(LossCause::EventAborted), losses.total()), (3, 3));
    }

    #[test]
    fn living_hops_are_left_alone() {
        let mut counts = good();
        counts.fragments_sent += 1;
        let mut losses = LossCounts::new();
        settle_lost(
            &mut counts,
            &mut losses,
            &[UnitKind::Filter, UnitKind::Builder, UnitKind::Writer],
            Neighbours {
                events_done: 40,
                ..Neighbours::default()
            },
        );
        assert_eq!(counts.problems(&losses).len(), 1);
    }

    /// What becomes of a trigger, from a random number.
    struct Fate {
        is_timed_out: bool,
        is_accepted: bool,
        is_kept: bool,
        /// By readout unit: the link was down, and else the fragment came after its event was closed.
        fragments: [(bool, bool); 2],
    }

    impl Fate {
        fn of(bits: u16) -> Self {
            let none_of = |shift: u16, mask: u16| (bits >> shift) & mask == 0;
            Self {
                is_timed_out: none_of(0, 7),
                is_accepted: none_of(3, 1),
                is_kept: none_of(4, 1),
                fragments: [
                    (none_of(5, 7), none_of(8, 7)),
                    (none_of(11, 7), none_of(14, 3)),
                ],
            }
        }

        fn is_event(&self) -> bool {
            self.is_accepted && !self.is_timed_out
        }

        fn in_event(&self) -> u64 {
            let there = self.fragments.iter();
            there.filter(|(down, late)| !down && !late).count() as u64
        }

        /// What a unit counts of it; the second readout unit has the index 1.
        fn count(&self, unit: (UnitKind, usize)) -> (ChainCounts, LossCounts) {
            let (mut counts, mut losses) = (ChainCounts::default(), LossCounts::new());
            let (is_event, in_event) = (self.is_event(), self.in_event());
            let is_whole = in_event == 2;
            match unit.0 {
                UnitKind::Source => {
                    (counts.offered, counts.triggers, counts.fragments_sent) = (1, 1, 2);
                    counts.l2_accepted = is_event.into();
                    counts.l2_rejected = (!self.is_accepted && !self.is_timed_out).into();
                    losses.add(LossCause::DecisionTimeout, self.is_timed_out.into());
                    let down = self.fragments.iter().filter(|(down, _)| *down);
                    losses.add(LossCause::LinkDown, down.count() as u64);
                }
                UnitKind::Readout => {
                    let (is_down, is_late) = self.fragments[unit.1];
                    counts.fragments_received = (!is_down).into();
                    counts.fragments_dropped_by_decision = (!is_down && !is_event).into();
                    let late = !is_down && is_late && is_event;
                    losses.add(LossCause::FragmentLate, late.into());
                }
                UnitKind::Builder if is_event && is_whole => {
                    (counts.events_built, counts.fragments_in_built) = (1, 2);
                }
                UnitKind::Builder if is_event => {
                    (counts.events_incomplete, counts.fragments_in_incomplete) = (1, in_event);
                }
                UnitKind::Filter if is_event && self.is_kept => counts.filter_accepted = 1,
                UnitKind::Filter if is_event => counts.filter_rejected = 1,
                UnitKind::Writer => counts.events_stored = (is_event && self.is_kept).into(),
                _ => {}
            }
            (counts, losses)
        }
    }

    proptest! {
        /// Units are lost of which only the beginning was heard. In the end no counter is below what was
        /// heard of it and none above what it was, and every loss that was seen is there.
        #[test]
        fn what_is_settled_lies_between_what_was_heard_and_what_was(
            fates in proptest::collection::vec(any::<u16>(), 1..60),
            heard in [0_usize..60, 0..60, 0..60],
            lost in 0_usize..7,
        ) {
            use UnitKind::{Builder, EventManager, Filter, Readout, Source, Writer};
            let lost: &[UnitKind] = [
                &[Readout][..],
                &[Source],
                &[Source, Readout],
                &[Source, EventManager],
                &[Source, EventManager, Readout],
                &[Source, EventManager, Builder, Filter, Writer],
                &[EventManager],
            ][lost];
            let fates: Vec<Fate> = fates.into_iter().map(Fate::of).collect();
            let units = [Source, Readout, Readout, EventManager, Builder, Filter, Writer];
            let (mut counts, mut losses) = (ChainCounts::default(), LossCounts::new());
            let (mut truth, mut neighbours) = (ChainCounts::default(), Neighbours::default());
            for (place, kind) in units.into_iter().enumerate() {
                let is_stale = lost.contains(&kind) && place != 1 && kind != Writer;
                // A building host was lost before, with all of its units at once.
                let until = if is_stale { heard[place.min(4) / 2] } else { fates.len() };
                for (n, fate) in fates.iter().enumerate() {
                    let (of_chain, of_losses) = fate.count((kind, place.saturating_sub(1) % 2));
                    truth.merge(&of_chain);
                    if n < until {
                        counts.merge(&of_chain);
                        losses.merge(&of_losses);
                        let is_accept = kind == EventManager && fate.is_event();
                        neighbours.accepts += u64::from(is_accept);
                    }
                }
            }
            neighbours.nobody_knows_open = lost.contains(&EventManager);
            if lost.contains(&Writer) {
                // What it has written was accepted; of the rest nobody has heard.
                counts.events_stored = counts.events_stored.min(counts.filter_accepted);
            }
            let (was, seen) = (counts, losses);
            settle_lost(&mut counts, &mut losses, lost, neighbours);
            prop_assert_eq!(counts.problems(&losses), []);
            for (cause, n) in seen.iter() {
                prop_assert!(losses.of(cause) >= n, "{:?}: {} of {}", cause, losses.of(cause), n);
            }
            let counted = was.entries().into_iter().zip(counts.entries()).zip(truth.entries());
            for (((name, was), (_, now)), (_, truth)) in counted {
                prop_assert!((was..=truth).contains(&now), "{name}: {was}, {now}, {truth}");
            }
        }
    }
}
