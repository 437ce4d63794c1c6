//! The barrel shifter of a readout unit: fixed-size blocks to one builder unit after the other, so
//! that no two readout units send to the same one at a time.
//!
//! It decides what each block carries and holds no payload. A fragment may span blocks and a block
//! may hold pieces of several or none: an empty block keeps the step, for all of them keep theirs by
//! nothing but the equal size of blocks. Who sends to whom is in [`crate::shift_schedule`]; how
//! fragments are put together again in [`crate::block_assembler`].
//!
//! ```text
//!           step 0   step 1   step 2            block = sequence number, then pieces:
//! ru0 to     bu0      bu1      bu2              trigger, source, offset, bytes, total
//! ru1 to     bu1      bu2      bu0
//! ru2 to     bu2      bu0      bu1
//! ```
//! Work per block: one queue looked at, its pieces copied (32 bytes each); nothing is allocated. A
//! queue is a cache line with its first four fragments, which is all that most of them hold; what
//! is behind these lies in a store that all share, 16 bytes each.

use std::sync::Arc;

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

/// A block. On the link it always takes as much as every other. With its first pieces, which are all of
/// most, its head is in two cache lines: drivers have hundreds of them under way.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Block {
    /// Index of the builder unit that it goes to.
    pub to: u16,
    /// The sender's count of blocks towards this receiver.
    pub sequence: u32,
    /// The sender's step.
    pub step: u64,
    /// What it carries, in order.
    pub pieces: ArrayVec<Piece, PIECES_MAX>,
}

impl Block {
    /// One without payload, to be filled.
    pub const EMPTY: Self = Self {
        to: 0,
        step: 0,
        sequence: 0,
        pieces: ArrayVec::new_const(),
    };

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
    /// Those of them at which something waited for their receiver.
    pub blocks_missed: u64,
    /// Steps given away by the driver, since the receiver's link could not take a block.
    pub steps_given_away: u64,
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

/// No fragment.
const NONE: u32 = u32::MAX;

/// Fragments of a queue that lie in its lane.
const NEAR: usize = 4;

/// Fragments behind the lanes for which a lean shifter has memory.
const BEHIND_USUAL: usize = 64;

/// A fragment that waits, or is partly sent.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// The low bits of its trigger, as on a link.
    trigger_low: u32,
    source: SourceId,
    bytes: u32,
}

impl Waiting {
    const NOTHING: Self = Self {
        trigger_low: 0,
        source: SourceId(0),
        bytes: 0,
    };
}

/// A fragment behind those in its lane.
#[derive(Debug, Clone, Copy)]
struct Behind {
    fragment: Waiting,
    /// The next of its queue, the first of it after the last; or the next unused one.
    next: u32,
}

/// The queue towards a receiver: one cache line, since hundreds of them are used in turn.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Lane {
    /// The first fragments, `held` of them if there are fewer, round about.
    near: [Waiting; NEAR],
    /// What is sent of the very first.
    sent: u32,
    /// Bits 1:0 the place of the very first, 31:2 how many fragments are in the queue, those behind
    /// included.
    filling: u32,
    /// Number of the next block.
    sequence: u32,
    /// The last of those behind, if there are any.
    last: u32,
}

const _: () = assert!(size_of::<Lane>() == 64 && NEAR == 4);

/// The most fragments of a queue.
const HELD_MAX: usize = u32::MAX as usize >> 2;

impl Lane {
    const EMPTY: Self = Self {
        near: [Waiting::NOTHING; NEAR],
        sent: 0,
        filling: 0,
        sequence: 0,
        last: NONE,
    };

    /// Fragments in the queue.
    #[inline]
    const fn held(&self) -> usize {
        (self.filling >> 2) as usize
    }

    /// Place of the fragment after so many.
    #[inline]
    const fn place(&self, after: usize) -> usize {
        (self.filling as usize + after) % NEAR
    }

    /// The first fragment is sent, and one of those behind, if there are any, takes its place.
    #[inline]
    fn advance(&mut self, behind: &mut [Behind], unused: &mut u32) {
        let (held, place) = (self.held(), self.place(0));
        if held > NEAR {
            let first = behind[self.last as usize].next;
            let next = &mut behind[first as usize];
            self.near[place] = next.fragment;
            let after = core::mem::replace(&mut next.next, *unused);
            *unused = first;
            if held > NEAR + 1 {
                behind[self.last as usize].next = after;
            }
        }
        self.sent = 0;
        self.filling = (self.filling - (1 << 2)) & !3 | self.place(1) as u32;
    }
}

/// A readout unit's shifter. What each fragment and block touches comes first, in three cache lines: a
/// driver of hundreds of shifters waits for these.
#[derive(Debug)]
#[repr(C)]
pub struct BarrelShifter {
    schedule: Arc<ShiftSchedule>,
    sender: u16,
    /// Where in the cycle of the schedule the step is.
    place: u16,
    block_bytes: u32,
    step: u64,
    lanes: Vec<Lane>,
    /// Fragments in all queues.
    waiting: u32,
    waiting_max: u32,
    queue_max: u32,
    /// First of the unused ones of those that are not in the lanes.
    unused: u32,
    /// The last trigger that came: all that wait are within 2^31 of it.
    newest: TriggerNumber,
    pace: Pace,
    counts: ShiftCounts,
    /// Those that are not in the lanes.
    behind: Vec<Behind>,
}

impl BarrelShifter {
    /// The shifter of sender `sender` of a schedule. `block_bytes` is the payload of a full block,
    /// at least 1; `queue_max` fragments may wait for each receiver: the credits of a builder unit
    /// times the sources of the readout unit never fill it.
    ///
    /// # Panics
    /// If the schedule has no such sender, or a block no payload.
    pub fn new(
        schedule: impl Into<Arc<ShiftSchedule>>,
        sender: u16,
        pace: Pace,
        block_bytes: u32,
        queue_max: usize,
    ) -> Self {
        let schedule = schedule.into();
        assert!(usize::from(sender) < schedule.senders(), "sender {sender}");
        assert!(block_bytes > 0, "blocks without payload");
        let receivers = usize::from(schedule.receivers());
        Self {
            place: schedule.place(sender, 0),
            schedule,
            sender,
            pace,
            block_bytes,
            queue_max: queue_max.min(HELD_MAX) as u32,
            lanes: vec![Lane::EMPTY; receivers],
            waiting: 0,
            waiting_max: u32::try_from(receivers * queue_max).unwrap_or(u32::MAX),
            behind: Vec::new(),
            unused: NONE,
            newest: TriggerNumber(0),
            step: 0,
            counts: ShiftCounts::default(),
        }
        .with_waiting_max(usize::MAX)
    }

    /// With room for so many fragments towards all receivers together: what a readout unit holds
    /// never fills more than its trigger window times its sources.
    #[must_use]
    pub fn with_waiting_max(mut self, fragments: usize) -> Self {
        self.waiting_max = u32::try_from(fragments).map_or(self.waiting_max, |fragments| {
            self.waiting_max.min(fragments)
        });
        self.behind = Vec::with_capacity(self.waiting_max as usize);
        self
    }

    /// With memory for what is usual alone: it takes more when it needs it. For hundreds of shifters in
    /// one simulation.
    #[must_use]
    pub fn lean(mut self) -> Self {
        self.behind = Vec::with_capacity(BEHIND_USUAL.min(self.waiting_max as usize));
        self
    }

    /// A fragment is to be sent.
    ///
    /// # Errors
    /// [`QueueFull`]; the caller keeps it and asks again after a block.
    ///
    /// # Panics
    /// If there is no such receiver.
    #[inline]
    pub fn push(
        &mut self,
        to: u16,
        trigger: TriggerNumber,
        source: SourceId,
        bytes: u32,
    ) -> Result<(), QueueFull> {
        let lane = &mut self.lanes[usize::from(to)];
        let held = lane.held();
        if held >= self.queue_max as usize || self.waiting >= self.waiting_max {
            return Err(QueueFull { to, held });
        }
        let fragment = Waiting {
            trigger_low: trigger.low(),
            source,
            bytes,
        };
        self.newest = trigger;
        self.waiting += 1;
        lane.filling += 1 << 2;
        if held < NEAR {
            lane.near[lane.place(held)] = fragment;
        } else {
            self.push_behind(to, fragment);
        }
        Ok(())
    }

    /// Adds a fragment to a queue whose lane is full.
    fn push_behind(&mut self, to: u16, fragment: Waiting) {
        let lane = &mut self.lanes[usize::from(to)];
        let entry = Behind {
            fragment,
            next: NONE,
        };
        let index = match self.unused {
            NONE => {
                self.behind.push(entry);
                self.behind.len() as u32 - 1
            }
            index => {
                let unused = core::mem::replace(&mut self.behind[index as usize], entry);
                self.unused = unused.next;
                index
            }
        };
        // It is counted already: with the first one behind there is one more than there are near.
        let first = match lane.held() - NEAR {
            1 => index,
            _ => core::mem::replace(&mut self.behind[lane.last as usize].next, index),
        };
        self.behind[index as usize].next = first;
        lane.last = index;
    }

    /// The next block, if it is time for it. With [`Pace::BackPressure`] ask when the link can take
    /// one: there always is one, if an empty one. With a clock ask at [`BarrelShifter::poll_timeout`].
    pub fn poll_block(&mut self, now: RunNs) -> Option<Block> {
        let mut block = Block::EMPTY;
        self.poll_block_into(now, &mut block).then_some(block)
    }

    /// As [`BarrelShifter::poll_block`], in place of what is in `block`; false if there is none.
    // In line: in a simulated network this is a good part of what a block costs.
    #[inline(always)]
    pub fn poll_block_into(&mut self, now: RunNs, block: &mut Block) -> bool {
        let Some(to) = self.poll_turn(now) else {
            return false;
        };
        (block.to, block.step) = (to, self.step);
        self.take_step();
        self.fill(block);
        true
    }

    /// Whose turn it is, for drivers that ask whether its link can take a block before they take one:
    /// at [`BarrelShifter::poll_block_into`], or give the turn away. `None` before the next step, or
    /// where this sender rests at it.
    pub fn poll_turn(&mut self, now: RunNs) -> Option<u16> {
        if let Pace::Clock { .. } = self.pace {
            let due = self.step_at(now)?;
            if due < self.step {
                return None;
            }
            if due > self.step {
                self.miss_until(due);
            }
        }
        // With as many steps as receivers the first will do; the others rest at some.
        for _ in 0..self.schedule.steps().max(1) {
            match self.next_receiver() {
                Some(to) => return Some(to),
                None => self.take_step(),
            }
            if !matches!(self.pace, Pace::BackPressure) {
                return None;
            }
        }
        None
    }

    /// Gives the present turn away: its receiver's link cannot take a block.
    pub fn give_turn_away(&mut self) {
        self.take_step();
        self.counts.steps_given_away += 1;
    }

    /// Goes on with the step that is on by the clock, without a count of those before it: nothing
    /// was to be sent. Without a clock there is none to go on with.
    pub fn skip_to(&mut self, now: RunNs) {
        if let Some(due) = self.step_at(now)
            && due > self.step
        {
            self.set_step(due);
        }
    }

    #[inline]
    fn take_step(&mut self) {
        self.step += 1;
        self.place = self.schedule.place_after(self.place);
    }

    fn set_step(&mut self, step: u64) {
        self.step = step;
        self.place = self.schedule.place(self.sender, step);
    }

    /// The step that is on by the clock, if there is one and it has begun.
    fn step_at(&self, now: RunNs) -> Option<u64> {
        let Pace::Clock { start, step } = self.pace else {
            return None;
        };
        Some(now.0.checked_sub(start.0)? / step.0.max(1))
    }

    /// Passes over all steps before `due`. Of a cycle of them each receiver has one.
    fn miss_until(&mut self, due: u64) {
        let missed = due - self.step;
        let steps = u64::from(self.schedule.steps().max(1));
        for ahead in 0..missed.min(steps) {
            let to = self.schedule.receiver(self.sender, self.step + ahead);
            if to.is_some_and(|to| self.lanes[usize::from(to)].held() > 0) {
                self.counts.blocks_missed += 1 + (missed - ahead - 1) / steps;
            }
        }
        self.counts.steps_missed += missed;
        self.set_step(due);
    }

    fn fill(&mut self, block: &mut Block) {
        let lane = &mut self.lanes[usize::from(block.to)];
        block.pieces.clear();
        let mut room = self.block_bytes;
        while room > 0 && lane.held() > 0 && !block.pieces.is_full() {
            let first = lane.near[lane.place(0)];
            let bytes = room.min(first.bytes - lane.sent);
            block.pieces.push(Piece {
                trigger: self.newest.extend(first.trigger_low),
                source: first.source,
                offset: lane.sent,
                bytes,
                total: first.bytes,
            });
            room -= bytes;
            lane.sent += bytes;
            if lane.sent == first.bytes {
                lane.advance(&mut self.behind, &mut self.unused);
                self.waiting -= 1;
                self.counts.fragments += 1;
            }
        }
        block.sequence = lane.sequence;
        lane.sequence = lane.sequence.wrapping_add(1);
        self.counts.blocks += 1;
        self.counts.blocks_empty += u64::from(block.pieces.is_empty());
        self.counts.payload_bytes += u64::from(self.block_bytes - room);
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
        let lane = self.lanes.get(usize::from(to));
        lane.map_or(0, Lane::held)
    }

    /// Receiver of the next block; `None` if it rests at the next step.
    #[inline]
    pub fn next_receiver(&self) -> Option<u16> {
        self.schedule.receiver_at(self.place)
    }

    /// Where a block to a receiver, or a fragment for it, is made of, for drivers that have many
    /// shifters, know what comes and read it ahead; what is there means nothing to them.
    #[inline]
    pub fn foresee(&self, to: u16) -> Option<&u32> {
        Some(&self.lanes.get(usize::from(to))?.filling)
    }

    /// Whether nothing waits. Blocks are made all the same, empty ones.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Takes away what waits for a receiver that is lost; returns how many fragments.
    pub fn withdraw(&mut self, to: u16) -> usize {
        let Some(lane) = self.lanes.get_mut(usize::from(to)) else {
            return 0;
        };
        let sequence = lane.sequence;
        let withdrawn = core::mem::replace(
            lane,
            Lane {
                sequence,
                ..Lane::EMPTY
            },
        );
        let held = withdrawn.held();
        if held > NEAR {
            let last = &mut self.behind[withdrawn.last as usize].next;
            self.unused = core::mem::replace(last, self.unused);
        }
        self.waiting -= held as u32;
        held
    }

    /// What it did.
    pub fn counts(&self) -> &ShiftCounts {
        &self.counts
    }
}

#[cfg(test)]
mod tests;
