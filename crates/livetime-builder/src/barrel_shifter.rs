//! The barrel shifter of a readout unit: fixed-size blocks to one builder unit after the other, so
//! that no two readout units send to the same one at a time.
//!
//! It decides what each block carries and holds no payload. A fragment may span blocks and a block
//! may hold pieces of several or none: an empty block keeps the step, for all of them keep theirs by
//! nothing but the equal size of blocks. Who sends to whom is in [`crate::shift_schedule`]; how
//! fragments are put together again in [`BlockAssembler`].
//!
//! ```text
//!           step 0   step 1   step 2            block = sequence number, then pieces:
//! ru0 to     bu0      bu1      bu2              trigger, source, offset, bytes, total
//! ru1 to     bu1      bu2      bu0
//! ru2 to     bu2      bu0      bu1
//! ```
//! Work per block: one queue looked at, its pieces copied (32 bytes each); nothing is allocated.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use livetime_wire::{DurationNs, RunNs, SourceId, TriggerNumber};

use crate::shift_schedule::ShiftSchedule;

/// Most pieces of one block; fragments that are smaller than a block divided by this leave room.
pub const PIECES_MAX: usize = 32;

/// When a shifter takes its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// When the link has taken the block before. The links' back-pressure keeps all in step.
    BackPressure,
    /// At `start`, and then every `step`, by a clock that all share. A step that is missed is
    /// passed over, so that a late shifter disturbs nobody.
    Clock {
        /// When step 0 begins.
        start: RunNs,
        /// Time of one step; at least that of a block on the link.
        step: DurationNs,
    },
}

/// Part of a fragment in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Of which trigger.
    pub trigger: TriggerNumber,
    /// Of which source.
    pub source: SourceId,
    /// Bytes of the fragment before this piece.
    pub offset: u32,
    /// Bytes of this piece.
    pub bytes: u32,
    /// Bytes of the whole fragment.
    pub total: u32,
}

/// A block. On the link it always takes as much as every other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Index of the builder unit that it goes to.
    pub to: u16,
    /// The sender's step.
    pub step: u64,
    /// The sender's count of blocks towards this receiver.
    pub sequence: u32,
    /// What it carries, in order.
    pub pieces: ArrayVec<Piece, PIECES_MAX>,
}

impl Block {
    /// Payload bytes in it.
    pub fn payload_bytes(&self) -> u32 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// What a shifter did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShiftCounts {
    /// Blocks made.
    pub blocks: u64,
    /// Those of them without payload.
    pub blocks_empty: u64,
    /// Payload bytes in blocks.
    pub payload_bytes: u64,
    /// Fragments of which the last piece was sent.
    pub fragments: u64,
    /// Steps passed over because they were over before anybody asked (with a clock).
    pub steps_missed: u64,
}

/// The queue towards a builder unit is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue to bu{to} holds {held} fragments, as many as it may")]
pub struct QueueFull {
    /// Index of the builder unit.
    pub to: u16,
    /// Fragments in its queue.
    pub held: usize,
}

/// A fragment that waits, or is partly sent.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    trigger: TriggerNumber,
    source: SourceId,
    bytes: u32,
    sent: u32,
}

/// A readout unit's shifter.
#[derive(Debug)]
pub struct BarrelShifter {
    schedule: ShiftSchedule,
    sender: u16,
    pace: Pace,
    block_bytes: u32,
    queue_max: usize,
    queues: Vec<VecDeque<Waiting>>,
    sequences: Vec<u32>,
    step: u64,
    counts: ShiftCounts,
}

impl BarrelShifter {
    /// The shifter of sender `sender` of a schedule. `block_bytes` is the payload of a full block,
    /// at least 1; `queue_max` fragments may wait for each receiver: the credits of a builder unit
    /// times the sources of the readout unit never fill it.
    ///
    /// # Panics
    /// If the schedule has no such sender, or a block no payload.
    pub fn new(
        schedule: ShiftSchedule,
        sender: u16,
        pace: Pace,
        block_bytes: u32,
        queue_max: usize,
    ) -> Self {
        assert!(usize::from(sender) < schedule.senders(), "sender {sender}");
        assert!(block_bytes > 0, "blocks without payload");
        let receivers = usize::from(schedule.receivers());
        Self {
            schedule,
            sender,
            pace,
            block_bytes,
            queue_max,
            queues: (0..receivers)
                .map(|_| VecDeque::with_capacity(queue_max))
                .collect(),
            sequences: vec![0; receivers],
            step: 0,
            counts: ShiftCounts::default(),
        }
    }

    /// A fragment is to be sent.
    ///
    /// # Errors
    /// [`QueueFull`]; the caller keeps it and asks again after a block.
    ///
    /// # Panics
    /// If there is no such receiver.
    pub fn push(
        &mut self,
        to: u16,
        trigger: TriggerNumber,
        source: SourceId,
        bytes: u32,
    ) -> Result<(), QueueFull> {
        let queue = &mut self.queues[usize::from(to)];
        if queue.len() >= self.queue_max {
            let held = queue.len();
            return Err(QueueFull { to, held });
        }
        queue.push_back(Waiting {
            trigger,
            source,
            bytes,
            sent: 0,
        });
        Ok(())
    }

    /// The next block, if it is time for it. With [`Pace::BackPressure`] ask when the link can take
    /// one: there always is one, if an empty one. With a clock ask at [`BarrelShifter::poll_timeout`].
    pub fn poll_block(&mut self, now: RunNs) -> Option<Block> {
        if let Pace::Clock { start, step } = self.pace {
            let due = now.0.checked_sub(start.0)? / step.0.max(1);
            if due < self.step {
                return None;
            }
            self.counts.steps_missed += due - self.step;
            self.step = due;
        }
        // With as many steps as receivers the first will do; the others rest at some.
        for _ in 0..self.schedule.steps().max(1) {
            let step = self.step;
            self.step += 1;
            match self.schedule.receiver(self.sender, step) {
                Some(to) => return Some(self.fill(to, step)),
                None if matches!(self.pace, Pace::BackPressure) => {}
                None => return None,
            }
        }
        None
    }

    fn fill(&mut self, to: u16, step: u64) -> Block {
        let queue = &mut self.queues[usize::from(to)];
        let mut pieces = ArrayVec::new();
        let mut room = self.block_bytes;
        while room > 0
            && !pieces.is_full()
            && let Some(first) = queue.front_mut()
        {
            let bytes = room.min(first.bytes - first.sent);
            pieces.push(Piece {
                trigger: first.trigger,
                source: first.source,
                offset: first.sent,
                bytes,
                total: first.bytes,
            });
            room -= bytes;
            first.sent += bytes;
            if first.sent == first.bytes {
                queue.pop_front();
                self.counts.fragments += 1;
            }
        }
        let sequence = self.sequences[usize::from(to)];
        self.sequences[usize::from(to)] = sequence.wrapping_add(1);
        self.counts.blocks += 1;
        self.counts.blocks_empty += u64::from(pieces.is_empty());
        self.counts.payload_bytes += u64::from(self.block_bytes - room);
        Block {
            to,
            step,
            sequence,
            pieces,
        }
    }

    /// When the next step begins, by the clock; never with back-pressure alone.
    pub fn poll_timeout(&self) -> RunNs {
        match self.pace {
            Pace::BackPressure => RunNs::MAX,
            Pace::Clock { start, step } => {
                RunNs(start.0.saturating_add(self.step.saturating_mul(step.0)))
            }
        }
    }

    /// Fragments that wait for a receiver, a partly sent one included; 0 if there is none such.
    pub fn waiting(&self, to: u16) -> usize {
        self.queues.get(usize::from(to)).map_or(0, VecDeque::len)
    }

    /// Whether nothing waits. Blocks are made all the same, empty ones.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Takes away what waits for a receiver that is lost; returns how many fragments.
    pub fn withdraw(&mut self, to: u16) -> usize {
        let Some(queue) = self.queues.get_mut(usize::from(to)) else {
            return 0;
        };
        let withdrawn = queue.len();
        queue.clear();
        withdrawn
    }

    /// What it did.
    pub fn counts(&self) -> &ShiftCounts {
        &self.counts
    }
}

/// What became of the blocks of one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AssemblyCounts {
    /// Blocks that came in order.
    pub blocks: u64,
    /// Blocks that never came, by the gaps in the sequence numbers.
    pub blocks_missing: u64,
    /// Blocks that came again or too late; they are passed over.
    pub blocks_repeated: u64,
    /// Fragments put together.
    pub fragments: u64,
    /// Fragments of which a piece is missing, or does not fit; the builder unit asks again.
    pub fragments_broken: u64,
}

/// Puts the fragments of one sender together again.
#[derive(Debug, Default)]
pub struct BlockAssembler {
    next: u32,
    /// The fragment of which a part is here, and how much.
    partial: Option<Piece>,
    counts: AssemblyCounts,
}

impl BlockAssembler {
    /// For a sender at its beginning.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a block; calls `done` with each fragment that is whole: its last piece, whose offset
    /// and bytes are those of all of it.
    pub fn handle_block(&mut self, block: &Block, mut done: impl FnMut(Piece)) {
        let ahead = block.sequence.wrapping_sub(self.next).cast_signed();
        if ahead < 0 {
            self.counts.blocks_repeated += 1;
            return;
        }
        if ahead > 0 {
            self.counts.blocks_missing += u64::from(ahead.cast_unsigned());
            self.give_up();
        }
        self.next = block.sequence.wrapping_add(1);
        self.counts.blocks += 1;
        for piece in &block.pieces {
            self.take(piece, &mut done);
        }
    }

    fn take(&mut self, piece: &Piece, done: &mut impl FnMut(Piece)) {
        let continues = |had: &Piece| {
            (had.trigger, had.source, had.total, had.bytes)
                == (piece.trigger, piece.source, piece.total, piece.offset)
        };
        let had = match self.partial.take_if(|had| continues(had)) {
            Some(had) => had.bytes,
            None => {
                self.give_up();
                0
            }
        };
        let end = piece.offset.checked_add(piece.bytes);
        let is_good = piece.offset == had && end.is_some_and(|end| end <= piece.total);
        if !is_good {
            // The end of one whose beginning was in a lost block, or nonsense.
            self.counts.fragments_broken += u64::from(end == Some(piece.total));
            return;
        }
        let whole = Piece {
            offset: 0,
            bytes: had + piece.bytes,
            ..*piece
        };
        if whole.bytes == whole.total {
            self.counts.fragments += 1;
            done(whole);
        } else {
            self.partial = Some(whole);
        }
    }

    /// The fragment that was begun will not become whole.
    fn give_up(&mut self) {
        self.counts.fragments_broken += u64::from(self.partial.take().is_some());
    }

    /// What it did.
    pub fn counts(&self) -> &AssemblyCounts {
        &self.counts
    }
}

#[cfg(test)]
mod tests;
