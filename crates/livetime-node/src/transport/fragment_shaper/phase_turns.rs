//! Turns of a linear shift: whole fragments to the builder unit of the phase, then the barrier.
//!
//! A turn begins with the first fragment of a phase and is over when the kernel has all that the phase
//! may hold, or after `turn_max`: then the barrier is told. Of a builder unit that has not taken what
//! was sent to it before, the phase is over at once. The barrier's side is
//! [`livetime_builder::PhaseBarrier`], in the event manager's role.

use livetime_builder::barrel_shifter::{Piece, QueueFull};
use livetime_builder::linear_shift::LinearShiftCounts;
use livetime_builder::{LinearShift, ShiftFragment, ShiftOutput};
use livetime_wire::message::{Envelope, PhaseDemand};
use livetime_wire::{RunNs, SourceId, TriggerNumber, UnitId};

use super::lanes::Lanes;
use super::{NetworkLink, QueuedFragment};

/// Fragments sent in one duty cycle, so that other roles get their turn.
const FRAGMENTS_PER_POLL: usize = 64;

/// The turns of a readout unit.
pub(super) struct PhaseTurns {
    shift: LinearShift,
    /// The last phase in which the builder unit took nothing, so that it is counted once.
    refused: Option<u64>,
    /// Whether phases follow each other without a barrier.
    is_alone: bool,
}

impl PhaseTurns {
    pub(super) fn new(shift: LinearShift) -> Self {
        Self {
            shift,
            refused: None,
            is_alone: false,
        }
    }

    pub(super) fn push(
        &mut self,
        to: u16,
        trigger: TriggerNumber,
        source: SourceId,
        bytes: u32,
    ) -> Result<(), QueueFull> {
        self.shift.push(to, trigger, source, bytes)
    }

    /// Sends fragments of the phase; returns how many.
    pub(super) fn poll(
        &mut self,
        lanes: &mut Lanes,
        now: RunNs,
        link: &mut NetworkLink,
        message: &mut impl FnMut(&QueuedFragment) -> Option<Envelope>,
    ) -> usize {
        let Some(to) = self.shift.receiver() else {
            return 0;
        };
        if !lanes.has_turn() && !lanes.is_taken(to, link) {
            self.refuse(lanes);
            return 0;
        }
        let mut sent = 0;
        while sent < FRAGMENTS_PER_POLL
            && lanes.lanes[usize::from(to)].is_placed()
            && let Some(fragment) = self.shift.poll_fragment()
        {
            let block = lanes.lanes[usize::from(to)].begin_block();
            block.pieces.clear();
            block.pieces.push(whole(&fragment));
            lanes.place(to, link, message);
            sent += 1;
        }
        if sent > 0 {
            if !lanes.has_turn() {
                lanes.begin_turn(to, now);
            }
            link.flush_to(UnitId::builder(to));
        }
        sent
    }

    fn refuse(&mut self, lanes: &mut Lanes) {
        let phase = Some(self.shift.phase());
        if self.shift.has_fragment() && self.refused != phase {
            self.refused = phase;
            lanes.counts.phases_refused += 1;
        }
    }

    /// Whether this unit is through with the phase, or has said so.
    fn is_phase_over(&self, lanes: &mut Lanes, now: RunNs, link: &NetworkLink) -> bool {
        let Some(to) = self.shift.receiver() else {
            return true;
        };
        let may_go_on = self.shift.has_fragment() && lanes.is_taken(to, link);
        !may_go_on && lanes.is_turn_over(now, link)
    }

    /// What the barrier is to be told.
    pub(super) fn poll_through(
        &mut self,
        lanes: &mut Lanes,
        now: RunNs,
        link: &NetworkLink,
    ) -> Option<(u64, PhaseDemand)> {
        if !self.is_phase_over(lanes, now, link) {
            return None;
        }
        let Some(ShiftOutput::Through { phase, demand }) = self.shift.poll_through(now) else {
            return None;
        };
        if self.is_alone {
            if demand == PhaseDemand::Waiting {
                self.handle_phase(lanes, phase + 1);
            }
            return None;
        }
        Some((phase, demand))
    }

    pub(super) fn take_back_through(&mut self) {
        self.shift.take_back_through();
    }

    pub(super) fn handle_phase(&mut self, lanes: &mut Lanes, phase: u64) {
        if phase > self.shift.phase() {
            // Of one that was left out the turn may not be over; its builder unit has none until it
            // has taken everything.
            lanes.end_turn();
        }
        self.shift.handle_phase(phase);
    }

    pub(super) fn end_waiting(&mut self) {
        self.is_alone = true;
        // Who has said that it is through goes on.
        self.shift.take_back_through();
    }

    pub(super) fn withdraw(&mut self, builder: u16) -> usize {
        self.shift.withdraw(builder)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shift.is_empty()
    }

    pub(super) fn counts(&self) -> &LinearShiftCounts {
        self.shift.counts()
    }
}

/// A fragment as the only piece of a block.
fn whole(fragment: &ShiftFragment) -> Piece {
    Piece {
        trigger: fragment.trigger,
        source: fragment.source,
        offset: 0,
        bytes: fragment.bytes,
        total: fragment.bytes,
    }
}
