//! Events that this unit was never asked about, and their ends.
//!
//! In two-step building nothing is asked for at the units of the second step until a selection on the
//! first accepts the event; if it rejects it, the release comes without that. A unit that was away
//! when an event was asked for knows as little of it. And what an event manager that is gone had pushed
//! to one builder unit another may have built, of which this unit did not hear. If the builder unit dies
//! and its release was lost, nobody here remembers that the two had anything to do with each other, and
//! the event is in no list of the builder unit's. So after the loss of a builder unit it is looked at
//! what nobody has asked for ([`ReadoutUnit::unasked`]), and what of it is finished, for those who know
//! all accepted triggers ([`crate::AcceptLog`]), is ended ([`ReadoutUnit::end_unasked`]).

use livetime_wire::TriggerNumber;

use super::ReadoutUnit;
use crate::dense_history::Ended;
use crate::held_trigger::{Held, Mark, NO_BUILDER};
use crate::readout_unit::FreeReason;
use crate::trigger_history::Past;

/// Whether a trigger is accepted, and nobody builds it as far as this unit knows.
pub(super) fn is_unasked(held: &Held) -> bool {
    held.is_open() && held.builder == NO_BUILDER && held.has(Mark::Kept)
}

/// Whether a trigger may have been built, and its release been lost, without that this unit knew who
/// builds it.
fn may_be_over(held: &Held) -> bool {
    is_unasked(held) || held.is_open() && held.has(Mark::Uncertain)
}

impl ReadoutUnit {
    /// Whether events are built in two steps.
    #[inline]
    pub fn is_two_step(&self) -> bool {
        self.is_two_step
    }

    /// Kept triggers of which nobody has asked for anything here, or an event manager that is gone, in
    /// order: nobody builds them yet, or somebody their first step, or another than this unit knows, or
    /// the release of a builder unit that is gone was lost. Allocates; this is not the data path.
    pub fn unasked(&mut self) -> Vec<TriggerNumber> {
        let mut triggers = Vec::new();
        for slot in 0..self.held.slot_count() {
            let Some((trigger, _, held)) = self.held.slot(slot) else {
                continue;
            };
            if may_be_over(&held) {
                triggers.push(trigger);
            }
        }
        triggers.sort_unstable();
        triggers
    }

    /// Ends those of these events, which are finished, that [`ReadoutUnit::unasked`] may name. Call it
    /// when nobody reads their pages any more. Returns how many fragments are freed that the selection
    /// on a first step has not rejected, as [`ReadoutUnit::finish_events`] does.
    pub fn end_unasked(&mut self, finished: &[TriggerNumber]) -> u64 {
        let mut freed = 0;
        for trigger in finished {
            let held = self.held.get(*trigger);
            if held.is_some_and(|held| may_be_over(&held)) {
                self.counts.unasked_ended += 1;
                freed += self.finish_event(*trigger);
            }
        }
        freed
    }

    /// An event is released of which nothing was asked for here: the first step's selection has
    /// rejected it, as a decision does. False for any other.
    pub(super) fn drop_unasked(&mut self, trigger: TriggerNumber) -> bool {
        let past = self.past(trigger);
        match self.held.find(trigger) {
            Some((place, mut held)) if held.is_open() && held.builder == NO_BUILDER => {
                held.close(FreeReason::Dropped);
                held.set(Mark::Unasked);
                let dropped = u64::from(held.present.count_ones());
                self.counts.fragments_dropped_by_decision += dropped;
                self.enqueue(trigger, &mut held);
                self.held.set(place, held);
            }
            None if trigger.0 > 0 && past == Past::Open => {
                self.history.record(trigger, Ended::Unasked);
            }
            _ => return false,
        }
        self.newest = self.newest.max(trigger);
        self.counts.triggers_unasked += 1;
        true
    }
}
