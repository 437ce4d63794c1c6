//! What is done with a held trigger when its turn comes: a fragment is sent, or all are freed.

use livetime_wire::{TriggerNumber, UnitId};

use super::{FreeReason, ReadoutOutput, ReadoutUnit};
use crate::dense_history::Ended;
use crate::held_trigger::{Held, Mark};
use crate::held_triggers::Place;

impl ReadoutUnit {
    /// Forgets a closed trigger but for how it was closed; its fragments are to be freed.
    #[inline]
    pub(super) fn end_held(
        &mut self,
        trigger: TriggerNumber,
        place: Place,
        held: Held,
        reason: FreeReason,
    ) -> Option<ReadoutOutput> {
        self.held.take_out(place);
        let reason = match held.has(Mark::Unasked) {
            true => FreeReason::Unasked,
            false => reason,
        };
        let ended = match reason {
            FreeReason::Dropped => Ended::Dropped,
            FreeReason::Unasked => Ended::Unasked,
            FreeReason::Released | FreeReason::Aborted => Ended::Over,
        };
        self.history.record(trigger, ended);
        (held.present != 0).then_some(ReadoutOutput::Free { trigger, reason })
    }

    /// The next unsent fragment of a trigger.
    #[inline]
    pub(super) fn take_fragment(
        &mut self,
        trigger: TriggerNumber,
        held: &mut Held,
    ) -> ReadoutOutput {
        let bit = held.unsent.trailing_zeros();
        held.unsent &= held.unsent - 1;
        self.counts.fragments_sent += 1;
        let builder = self.asked_about(held);
        if builder != held.builder {
            held.set(Mark::Probed);
        }
        ReadoutOutput::SendFragment {
            to: UnitId::builder(builder),
            sequence: self
                .builders
                .next_sequence(builder.into(), &mut self.counts.messages),
            trigger,
            source: self.sources[bit as usize],
        }
    }
}
