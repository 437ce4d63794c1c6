//! The ways to the builder units: what waits for each, and how much of its turn the link has.
//!
//! Whose turn it is and what it holds is said by [`super::block_turns`] and [`super::phase_turns`].

use std::collections::VecDeque;

use livetime_builder::barrel_shifter::PIECES_MAX;
use livetime_builder::{Block, Outgoing};
use livetime_wire::message::Envelope;
use livetime_wire::{DurationNs, RunNs, SourceId, TriggerNumber, UnitId};

use super::{NetworkLink, QueuedFragment, ShaperCounts};

/// The way to one builder unit.
pub(super) struct Lane {
    /// Those of which no byte was sent.
    pub(super) queue: VecDeque<QueuedFragment>,
    /// The last one in order of trigger and source: what comes behind it does not wait already.
    last: (TriggerNumber, SourceId),
    /// The block of its turn, or one fragment of its phase, and how many of its pieces the link has.
    pub(super) block: Block,
    placed: usize,
    /// Whether the link has the fragment of the last piece.
    is_sent: bool,
    /// Whether it has overrun its last turn.
    is_slow: bool,
}

impl Lane {
    fn new(fragments: usize) -> Self {
        Self {
            // Those of the block of which the link has not everything come on top.
            queue: VecDeque::with_capacity(fragments + PIECES_MAX),
            last: (TriggerNumber(0), SourceId(0)),
            block: Block::EMPTY,
            placed: 0,
            is_sent: false,
            is_slow: false,
        }
    }

    pub(super) fn is_placed(&self) -> bool {
        self.placed == self.block.pieces.len()
    }

    /// Whether a fragment waits already.
    pub(super) fn has(&self, fragment: &QueuedFragment) -> bool {
        let key = fragment.key();
        key <= self.last && self.queue.iter().any(|waiting| waiting.key() == key)
    }

    pub(super) fn push(&mut self, fragment: QueuedFragment) {
        self.last = self.last.max(fragment.key());
        self.queue.push_back(fragment);
    }

    /// Its block is another one, of which the link has nothing.
    pub(super) fn begin_block(&mut self) -> &mut Block {
        self.placed = 0;
        &mut self.block
    }
}

/// A turn that has begun, of which the link says when it is over.
#[derive(Debug, Clone, Copy)]
struct Turn {
    to: u16,
    since: RunNs,
}

/// The ways to all builder units.
pub(super) struct Lanes {
    pub(super) lanes: Vec<Lane>,
    turn: Option<Turn>,
    /// Longest time of a turn; without one a clock ends them.
    turn_max: Option<DurationNs>,
    pub(super) counts: ShaperCounts,
}

impl Lanes {
    /// To so many builder units, with room for so many fragments each.
    pub(super) fn new(builder_units: u16, fragments: usize, turn_max: Option<DurationNs>) -> Self {
        Self {
            lanes: (0..builder_units).map(|_| Lane::new(fragments)).collect(),
            turn: None,
            turn_max,
            counts: ShaperCounts::default(),
        }
    }

    pub(super) fn len(&self) -> u16 {
        self.lanes.len() as u16
    }

    pub(super) fn of_mut(&mut self, to: u16) -> Option<(&mut Lane, &mut ShaperCounts)> {
        let lane = self.lanes.get_mut(usize::from(to))?;
        Some((lane, &mut self.counts))
    }

    /// Whether the link has every block.
    pub(super) fn are_placed(&self) -> bool {
        self.lanes.iter().all(Lane::is_placed)
    }

    /// Whether the kernel has the last block of a lane.
    pub(super) fn is_taken(&self, to: u16, link: &NetworkLink) -> bool {
        let is_placed = self.lanes[usize::from(to)].is_placed();
        is_placed && link.is_block_taken(UnitId::builder(to))
    }

    /// The turn of a builder unit begins, unless a clock will end it.
    pub(super) fn begin_turn(&mut self, to: u16, now: RunNs) {
        if self.turn_max.is_some() {
            self.turn = Some(Turn { to, since: now });
        }
    }

    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Nobody has a turn.
    pub(super) fn end_turn(&mut self) {
        self.turn = None;
    }

    /// Whether the turn before is over, which with a clock its step alone says.
    pub(super) fn is_turn_over(&mut self, now: RunNs, link: &NetworkLink) -> bool {
        let (Some(turn), Some(turn_max)) = (self.turn, self.turn_max) else {
            return true;
        };
        let is_taken = self.is_taken(turn.to, link);
        let lane = &mut self.lanes[usize::from(turn.to)];
        if is_taken {
            // One that was slow is waited for again once it takes its block at once.
            lane.is_slow &= now > turn.since;
        } else if lane.is_slow || now >= turn.since.after(turn_max) {
            lane.is_slow = true;
            self.counts.turns_overrun += 1;
        } else {
            return false;
        }
        self.turn = None;
        true
    }

    /// Hands the link what is left of blocks that have found it full.
    pub(super) fn place_rest(
        &mut self,
        link: &mut NetworkLink,
        message: &mut impl FnMut(&QueuedFragment) -> Option<Envelope>,
    ) {
        for to in 0..self.len() {
            if !self.lanes[usize::from(to)].is_placed() {
                self.place(to, link, message);
            }
        }
    }

    /// Hands the link the pieces of a lane's block, until it is full.
    pub(super) fn place(
        &mut self,
        to: u16,
        link: &mut NetworkLink,
        message: &mut impl FnMut(&QueuedFragment) -> Option<Envelope>,
    ) {
        let (lane, counts) = (&mut self.lanes[usize::from(to)], &mut self.counts);
        let to = UnitId::builder(to);
        while let Some(piece) = lane.block.pieces.get(lane.placed) {
            if piece.offset == 0 {
                let envelope = lane.queue.front().and_then(&mut *message);
                let outgoing = envelope.map(|envelope| Outgoing { to, envelope });
                match &outgoing {
                    Some(outgoing) if link.send(outgoing).is_err() => return,
                    Some(_) => counts.payload_bytes += u64::from(piece.total),
                    None => counts.fragments_released += 1,
                }
                lane.is_sent = outgoing.is_some();
                lane.queue.pop_front();
            }
            if lane.is_sent {
                link.allow(to, piece.bytes);
            }
            lane.placed += 1;
        }
    }

    /// What waits for a builder unit is not sent.
    pub(super) fn clear(&mut self, builder: u16) {
        let Some(lane) = self.lanes.get_mut(usize::from(builder)) else {
            return;
        };
        self.counts.fragments_withdrawn += lane.queue.len() as u64;
        lane.queue.clear();
        lane.block.pieces.clear();
        (lane.placed, lane.is_slow) = (0, false);
        lane.last = (TriggerNumber(0), SourceId(0));
        self.turn = self.turn.filter(|turn| turn.to != builder);
    }
}
