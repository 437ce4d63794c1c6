//! Traffic shaping of a readout unit: its fragments to one builder unit after the other, in blocks.
//!
//! ```text
//! ReadoutUnit ─► a lane per ─► BarrelShifter: whose turn, ─► link: messages, and as much
//!                builder unit  what the block holds          payload as the blocks hold
//! ```
//! The order, the blocks and the clock are those of [`livetime_builder::BarrelShifter`]; here are the
//! links of a real run. A block is a budget of payload bytes on the way to one builder unit: of a
//! stream the next so many bytes, of datagrams those whose last byte is within it, so that nothing
//! is put together again at the other end. Messages are not held back, and empty blocks are not sent.
//!
//! By back-pressure a turn ends when the kernel has taken the block. With a clock it ends with its
//! step, for all readout units at the same time. A builder unit that has not taken its last block has
//! no turn, so that it stops no other; one that overruns [`ShapingPace::BackPressure`]'s `turn_max`
//! is waited for again once it takes a block at once.
//!
//! Cost of a fragment: 40 bytes written and read in queues whose bounds are those of the credits, and
//! one system call a block. Nothing is allocated after the start.

use std::collections::VecDeque;

use livetime_builder::barrel_shifter::{PIECES_MAX, ShiftCounts};
use livetime_builder::{
    BarrelShifter, Block, BuilderConfig, Outgoing, Pace, ShapingConfig, ShapingPace,
};
use livetime_wire::message::Envelope;
use livetime_wire::{RunNs, SourceId, TriggerNumber, UnitId};

use super::NetworkLink;

/// Blocks made in one duty cycle, so that other roles get their turn.
const BLOCKS_PER_POLL: usize = 16;
/// Smallest send buffer that is asked for: less than a packet of the loopback stops a stream.
const SEND_BUFFER_BYTES_MIN: u32 = 64 << 10;

/// A fragment that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedFragment {
    /// To which builder unit, by its index.
    pub to: u16,
    /// Sequence number of its message.
    pub sequence: u32,
    /// Of which trigger.
    pub trigger: TriggerNumber,
    /// Of which source.
    pub source: SourceId,
}

impl QueuedFragment {
    fn key(&self) -> (TriggerNumber, SourceId) {
        (self.trigger, self.source)
    }
}

/// What a shaper did besides its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShaperCounts {
    /// Payload bytes of the fragments that were handed to the link.
    pub payload_bytes: u64,
    /// Fragments that were asked for again while they waited; they are sent once.
    pub fragments_waiting_already: u64,
    /// Fragments that found their queue full; the builder unit asks again.
    pub fragments_without_room: u64,
    /// Fragments that were released while they waited.
    pub fragments_released: u64,
    /// Fragments that waited for a builder unit that was lost.
    pub fragments_withdrawn: u64,
    /// Turns in which the block was not taken in time, by back-pressure.
    pub turns_overrun: u64,
}

/// The way to one builder unit.
struct Lane {
    /// Those of which no byte was sent.
    queue: VecDeque<QueuedFragment>,
    /// The last one in order of trigger and source: what comes behind it does not wait already.
    last: (TriggerNumber, SourceId),
    /// The block of its turn, and how many of its pieces the link has.
    block: Block,
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

    fn is_placed(&self) -> bool {
        self.placed == self.block.pieces.len()
    }
}

/// A turn that has begun, by back-pressure.
#[derive(Debug, Clone, Copy)]
struct Turn {
    to: u16,
    since: RunNs,
}

/// The shaper of a readout unit.
pub struct FragmentShaper {
    shifter: BarrelShifter,
    pace: ShapingPace,
    lanes: Vec<Lane>,
    turn: Option<Turn>,
    counts: ShaperCounts,
}

impl FragmentShaper {
    /// The shaper of readout unit `index`.
    ///
    /// # Panics
    /// If there is no such unit, or the configuration is not valid.
    pub fn new(shaping: &ShapingConfig, config: &BuilderConfig, index: u16) -> Self {
        let readout_units = config.readout_units.len() as u16;
        let schedule = shaping.schedule(readout_units, config.builder_units);
        let sources = config.readout_units[usize::from(index)].len();
        // A builder unit has so many events, and the readout unit no more than its window.
        let of_lane = config.credits as usize * sources;
        let of_all = config.trigger_window as usize * sources;
        let block_bytes = shaping.block_bytes;
        let shifter = BarrelShifter::new(schedule, index, shaping.pace(), block_bytes, of_lane);
        let lanes = (0..config.builder_units).map(|_| Lane::new(of_lane.min(of_all)));
        Self {
            shifter: shifter.with_waiting_max(of_all),
            pace: shaping.pace,
            lanes: lanes.collect(),
            turn: None,
            counts: ShaperCounts::default(),
        }
    }

    /// Bytes of the send buffers with which the kernel takes blocks no faster than they leave; `None`
    /// where a clock says when they go.
    pub fn send_buffer_bytes(shaping: &ShapingConfig) -> Option<usize> {
        match shaping.pace() {
            // The kernel doubles what it is asked for.
            Pace::BackPressure => Some(shaping.block_bytes.max(SEND_BUFFER_BYTES_MIN) as usize),
            Pace::Clock { .. } => None,
        }
    }

    /// Begins a duty cycle, before fragments are pushed: steps at which nothing was to be sent are not
    /// missed.
    pub fn begin_cycle(&mut self, now: RunNs) {
        if self.shifter.is_empty() {
            self.shifter.skip_to(now);
        }
    }

    /// A fragment of so many bytes is to be sent.
    pub fn push(&mut self, fragment: QueuedFragment, bytes: u32) {
        let QueuedFragment {
            to,
            trigger,
            source,
            ..
        } = fragment;
        let Some(lane) = self.lanes.get_mut(usize::from(to)) else {
            return;
        };
        let key = fragment.key();
        if key <= lane.last && lane.queue.iter().any(|waiting| waiting.key() == key) {
            self.counts.fragments_waiting_already += 1;
        } else if self.shifter.push(to, trigger, source, bytes).is_err() {
            self.counts.fragments_without_room += 1;
        } else {
            lane.last = lane.last.max(key);
            lane.queue.push_back(fragment);
        }
    }

    /// Sends what the turns allow; `message` makes the message of a fragment, if it is still on file.
    /// Returns how many blocks with payload were made.
    pub fn poll(
        &mut self,
        now: RunNs,
        link: &mut NetworkLink,
        mut message: impl FnMut(&QueuedFragment) -> Option<Envelope>,
    ) -> usize {
        for to in 0..self.lanes.len() as u16 {
            // A block that has found the link full.
            if !self.lanes[usize::from(to)].is_placed() {
                self.place(to, link, &mut message);
            }
        }
        link.flush();
        let mut blocks = 0;
        while blocks < BLOCKS_PER_POLL
            && let Some(to) = self.next_block(now, link)
        {
            self.place(to, link, &mut message);
            link.flush_to(UnitId::builder(to));
            blocks += 1;
        }
        blocks
    }

    /// The receiver of the next block with payload, which is in its lane, if it is time for one.
    fn next_block(&mut self, now: RunNs, link: &NetworkLink) -> Option<u16> {
        if !self.is_turn_over(now, link) || self.shifter.is_empty() {
            return None;
        }
        let is_ready = |to| self.shifter.waiting(to) > 0 && self.is_taken(to, link);
        let mut lanes = 0..self.lanes.len() as u16;
        if self.shifter.poll_timeout() == RunNs::MAX && !lanes.any(is_ready) {
            // Without a clock turns are given away only to somebody.
            return None;
        }
        for _ in 0..self.lanes.len() {
            let to = self.shifter.poll_turn(now)?;
            if !self.is_taken(to, link) {
                // Of its last block there may be pieces that the link has no room for.
                self.shifter.give_turn_away();
                continue;
            }
            let lane = &mut self.lanes[usize::from(to)];
            lane.placed = 0;
            self.shifter.poll_block_into(now, &mut lane.block);
            if lane.block.pieces.is_empty() {
                continue;
            }
            if let ShapingPace::BackPressure { .. } = self.pace {
                self.turn = Some(Turn { to, since: now });
            }
            return Some(to);
        }
        None
    }

    /// Whether the turn before is over, which with a clock its step alone says.
    fn is_turn_over(&mut self, now: RunNs, link: &NetworkLink) -> bool {
        let (Some(turn), ShapingPace::BackPressure { turn_max }) = (self.turn, self.pace) else {
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

    /// Whether the kernel has the last block of a lane.
    fn is_taken(&self, to: u16, link: &NetworkLink) -> bool {
        let is_placed = self.lanes[usize::from(to)].is_placed();
        is_placed && link.is_block_taken(UnitId::builder(to))
    }

    /// Hands the link the pieces of a lane's block, until it is full.
    fn place(
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

    /// A builder unit is lost: what waits for it is not sent.
    pub fn lose(&mut self, builder: u16) {
        let Some(lane) = self.lanes.get_mut(usize::from(builder)) else {
            return;
        };
        self.counts.fragments_withdrawn += lane.queue.len() as u64;
        self.shifter.withdraw(builder);
        lane.queue.clear();
        lane.block.pieces.clear();
        (lane.placed, lane.is_slow) = (0, false);
        lane.last = (TriggerNumber(0), SourceId(0));
        self.turn = self.turn.filter(|turn| turn.to != builder);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.shifter.is_empty() && self.lanes.iter().all(Lane::is_placed)
    }

    /// What it did besides its turns.
    pub fn counts(&self) -> &ShaperCounts {
        &self.counts
    }

    /// What it did, by name, for the report.
    pub fn details(&self) -> [(&'static str, u64); 10] {
        let ShiftCounts {
            blocks,
            blocks_empty,
            payload_bytes,
            blocks_missed,
            steps_given_away,
            ..
        } = *self.shifter.counts();
        let counts = &self.counts;
        [
            ("shaping_blocks", blocks - blocks_empty),
            ("shaping_turns_empty", blocks_empty),
            ("shaping_block_bytes", payload_bytes),
            ("shaping_turns_missed", blocks_missed),
            ("shaping_turns_refused", steps_given_away),
            ("shaping_turns_overrun", counts.turns_overrun),
            (
                "shaping_fragments_waiting_already",
                counts.fragments_waiting_already,
            ),
            (
                "shaping_fragments_without_room",
                counts.fragments_without_room,
            ),
            ("shaping_fragments_released", counts.fragments_released),
            ("shaping_fragments_withdrawn", counts.fragments_withdrawn),
        ]
    }
}

#[cfg(test)]
mod tests;
