//! Fragments of triggers one after the other, as a link brings them: new ones are noted in one go.

use std::ops::Range;

use livetime_wire::{RunNs, SourceId, TriggerNumber};

use super::{FragmentVerdict, ReadoutUnit};
use crate::held_trigger::Held;
use crate::trigger_history::Past;

impl ReadoutUnit {
    /// As [`ReadoutUnit::handle_fragment`] for the fragments of a source of triggers one after the
    /// other, for drivers whose fragments have no pages that they would free: what is discarded is
    /// counted, and the numbers that must wait are left.
    pub fn handle_fragments(
        &mut self,
        now: RunNs,
        mut triggers: Range<u64>,
        source: SourceId,
    ) -> Range<u64> {
        triggers.start += self.hold_new(now, &triggers, source);
        while triggers.start < triggers.end {
            let trigger = TriggerNumber(triggers.start);
            if self.handle_fragment(now, trigger, source) == FragmentVerdict::Wait {
                break;
            }
            triggers.start += 1;
        }
        triggers
    }

    /// Holds the fragments of the first of these triggers that are new, as all are as a rule; returns
    /// how many.
    fn hold_new(&mut self, now: RunNs, triggers: &Range<u64>, source: SourceId) -> u64 {
        let Ok(bit) = self.sources.binary_search(&source) else {
            return 0;
        };
        let most = self.newest.0.saturating_add(self.ahead_max);
        let end = triggers.end.min(most.saturating_add(1));
        if self.ending || triggers.start <= self.joined_after.0 {
            return 0;
        }
        let is_new = |trigger: &u64| self.history.past(TriggerNumber(*trigger)) == Past::Open;
        let new = (triggers.start..end).take_while(is_new).count() as u64;
        let entry = Held {
            present: 1 << bit,
            ..Held::default()
        };
        let was_empty = self.held.len() == 0;
        let held = (self.held).append(triggers.start..triggers.start + new, entry);
        if was_empty && held > 0 {
            self.scan_at = now.after(self.probe);
        }
        self.counts.fragments_filed += held;
        held
    }
}
