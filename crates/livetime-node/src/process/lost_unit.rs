//! The accounts of units that died: settled from what their neighbours counted.
//!
//! A killed process leaves the counters of its last publication, which may be a duty cycle old,
//! and some of what it published is done again by another. So what a dead unit counted is replaced
//! by what follows from the living on both sides of it, and what went in and did not come out is
//! lost under its cause. Hops between living units are left alone, and are checked as in any run.

use livetime_wire::{ChainCounts, LossArea, LossCause, LossCounts, UnitKind};

use crate::counter_block::RoleCounts;

/// What the living know of the hops around dead units.
#[derive(Debug, Clone, Copy, Default)]
pub struct Neighbours {
    /// Level-2 accepts that the event manager took.
    pub accepts: u64,
    /// Whether the event manager itself lives.
    pub event_manager_lives: bool,
    /// Whether the run was ended by force when no event manager was there: nobody has said which
    /// events are not built.
    pub nobody_knows_open: bool,
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
    // From the file backwards, as what comes out is what is certain.
    settle_store(counts, losses, lost);
    if any(&[UnitKind::Source]) && neighbours.event_manager_lives {
        counts.l2_accepted = counts.l2_accepted.max(neighbours.accepts);
    }
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
        let over = balance(losses, LossCause::DecisionLost, counts.triggers, right);
        counts.triggers += over;
        counts.offered = counts.refused + counts.triggers;
    }
    settle_fragments(counts, losses, lost, neighbours);
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
    if lost.contains(&UnitKind::Filter) && lost.contains(&UnitKind::Builder) {
        let before = losses.in_area(LossArea::Builder) + losses.in_area(LossArea::Filter);
        let came = counts.l2_accepted.saturating_sub(before);
        counts.filter_accepted = counts.filter_accepted.min(came);
    }
}

/// Accepted events against the file.
fn settle_store(counts: &mut ChainCounts, losses: &mut LossCounts, lost: &[UnitKind]) {
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
        let events = match builder_lost {
            // What has no verdict that was published may not be built: it is lost, rather than rejected.
            true if neighbours.nobody_knows_open => {
                let judged = counts.filter_accepted + counts.filter_rejected + in_filter;
                judged.min(counts.l2_accepted.saturating_sub(open))
            }
            true => counts.l2_accepted.saturating_sub(open),
            false => neighbours.events_done + in_filter,
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
        let over = balance(losses, LossCause::ReadoutLost, left, right);
        counts.fragments_received += over;
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
        let (left, right) = (counts.fragments_sent, counts.fragments_received);
        let over = balance(losses, cause, left, right);
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
            event_manager_lives: true,
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
                event_manager_lives: true,
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
            event_manager_lives: true,
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
}
