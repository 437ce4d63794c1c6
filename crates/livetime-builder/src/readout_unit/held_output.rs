//! What is done with a held trigger when its turn comes: a fragment is sent, or all are freed.

use livetime_wire::{TriggerNumber, UnitId};

use super::{FreeReason, ReadoutOutput, ReadoutUnit};
use crate::held_trigger::{Held, Mark};
use crate::held_triggers::Place;
use crate::trigger_history::Closing;

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
        let closing = match reason {
            FreeReason::Dropped | FreeReason::Unasked => Closing::Dropped,
            FreeReason::Released => Closing::Complete,
            FreeReason::Aborted => Closing::Partial,
        };
        self.history.record(trigger, closing);
        let reason = match held.has(Mark::Unasked) {
            true => FreeReason::Unasked,
            false => reason,
        };
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
