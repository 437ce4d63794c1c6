//! Traffic shaping of a readout unit: its fragments to one builder unit after the other.
//!
//! ```text
//! ReadoutUnit ─► a lane per ─► BarrelShifter: whose turn, ─► link: messages, and as much
//!                builder unit  what the block holds          payload as the blocks hold
//!                          └─► LinearShift: whose phase,  ─► link: messages, and whole fragments;
//!                              which fragments               to the barrier: through with it
//! ```
//! The order, the blocks, the phases and the clock are those of [`livetime_builder::BarrelShifter`] and
//! [`livetime_builder::LinearShift`]; here are the links of a real run. A block is a budget of payload
//! bytes on the way to one builder unit: of a stream the next so many bytes, of datagrams those whose
//! last byte is within it, so that nothing is put together again at the other end. Messages are not
//! held back, and empty blocks are not sent.
//!
//! By back-pressure a turn ends when the kernel has taken the block. With a clock it ends with its
//! step, for all readout units at the same time. With a barrier it ends when the kernel has taken the
//! fragments of the phase; the next begins when all readout units have said so. A builder unit that
//! has not taken its last block or fragments has no turn, so that it stops no other; one that overruns
//! `turn_max` is waited for again once it takes a block at once.
//!
//! Cost of a fragment: 40 bytes written and read in queues whose bounds are those of the credits, and
//! one system call a block or phase. Nothing is allocated after the start.

use livetime_builder::barrel_shifter::ShiftCounts;
use livetime_builder::linear_shift::LinearShiftCounts;
use livetime_builder::{BarrelShifter, BuilderConfig, LinearShift, ShapingConfig, ShapingPace};
use livetime_wire::message::{Envelope, PhaseDemand};
use livetime_wire::{RunNs, SourceId, TriggerNumber};

use super::NetworkLink;
use lanes::Lanes;
use phase_turns::PhaseTurns;

mod block_turns;
mod lanes;
mod phase_turns;

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
    /// Turns in which the block, or the fragments of a phase, were not taken in time.
    pub turns_overrun: u64,
    /// Phases of builder units that had not taken what was sent to them before.
    pub phases_refused: u64,
}

/// Who says whose turn it is.
enum Order {
    /// A barrel shifter.
    Blocks(BarrelShifter),
    /// A linear shift.
    Phases(PhaseTurns),
}

/// The shaper of a readout unit.
pub struct FragmentShaper {
    order: Order,
    lanes: Lanes,
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
        let of_all = config.trigger_window as usize * sources;
        let of_lane = (config.credits as usize * sources).min(of_all);
        let block_bytes = shaping.block_bytes;
        let order =
            match shaping.pace {
                ShapingPace::Barrier { retry, .. } => Order::Phases(PhaseTurns::new(
                    LinearShift::new(schedule, index, block_bytes, of_lane, retry),
                )),
                ShapingPace::BackPressure { .. } | ShapingPace::Clock { .. } => {
                    let pace = shaping.pace();
                    let shifter = BarrelShifter::new(schedule, index, pace, block_bytes, of_lane);
                    Order::Blocks(shifter.with_waiting_max(of_all))
                }
            };
        Self {
            order,
            lanes: Lanes::new(config.builder_units, of_lane, shaping.turn_max()),
        }
    }

    /// Bytes of the send buffers with which the kernel takes blocks no faster than they leave; `None`
    /// where a clock says when they go.
    pub fn send_buffer_bytes(shaping: &ShapingConfig) -> Option<usize> {
        // The kernel doubles what it is asked for.
        let bytes = shaping.block_bytes.max(SEND_BUFFER_BYTES_MIN) as usize;
        shaping.turn_max().map(|_| bytes)
    }

    /// Begins a duty cycle, before fragments are pushed: steps at which nothing was to be sent are not
    /// missed.
    pub fn begin_cycle(&mut self, now: RunNs) {
        if let Order::Blocks(shifter) = &mut self.order
            && shifter.is_empty()
        {
            shifter.skip_to(now);
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
        let Some((lane, counts)) = self.lanes.of_mut(to) else {
            return;
        };
        if lane.has(&fragment) {
            counts.fragments_waiting_already += 1;
            return;
        }
        let pushed = match &mut self.order {
            Order::Blocks(shifter) => shifter.push(to, trigger, source, bytes),
            Order::Phases(turns) => turns.push(to, trigger, source, bytes),
        };
        match pushed {
            Ok(()) => lane.push(fragment),
            Err(_) => counts.fragments_without_room += 1,
        }
    }

    /// Sends what the turns allow; `message` makes the message of a fragment, if it is still on file.
    /// Returns how many blocks with payload were made, or whole fragments sent.
    pub fn poll(
        &mut self,
        now: RunNs,
        link: &mut NetworkLink,
        mut message: impl FnMut(&QueuedFragment) -> Option<Envelope>,
    ) -> usize {
        self.lanes.place_rest(link, &mut message);
        link.flush();
        match &mut self.order {
            Order::Blocks(shifter) => {
                block_turns::poll(shifter, &mut self.lanes, now, link, &mut message)
            }
            Order::Phases(turns) => turns.poll(&mut self.lanes, now, link, &mut message),
        }
    }

    /// What the barrier is to be told, with which phase of a linear shift this unit is through. Call
    /// it behind [`FragmentShaper::poll`].
    pub fn poll_through(&mut self, now: RunNs, link: &NetworkLink) -> Option<(u64, PhaseDemand)> {
        match &mut self.order {
            Order::Blocks(_) => None,
            Order::Phases(turns) => turns.poll_through(&mut self.lanes, now, link),
        }
    }

    /// What the barrier was to be told found its link full: it is told the next time.
    pub fn take_back_through(&mut self) {
        if let Order::Phases(turns) = &mut self.order {
            turns.take_back_through();
        }
    }

    /// The barrier says that a phase has begun.
    pub fn handle_phase(&mut self, phase: u64) {
        if let Order::Phases(turns) = &mut self.order {
            turns.handle_phase(&mut self.lanes, phase);
        }
    }

    /// The run is ended by force: what waits goes out without waiting for others, who may be gone.
    pub fn end_waiting(&mut self) {
        if let Order::Phases(turns) = &mut self.order {
            turns.end_waiting();
        }
    }

    /// A builder unit is lost: what waits for it is not sent.
    pub fn lose(&mut self, builder: u16) {
        match &mut self.order {
            Order::Blocks(shifter) => shifter.withdraw(builder),
            Order::Phases(turns) => turns.withdraw(builder),
        };
        self.lanes.clear(builder);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        let is_empty = match &self.order {
            Order::Blocks(shifter) => shifter.is_empty(),
            Order::Phases(turns) => turns.is_empty(),
        };
        is_empty && self.lanes.are_placed()
    }

    /// What it did besides its turns.
    pub fn counts(&self) -> &ShaperCounts {
        &self.lanes.counts
    }

    /// What it did, by name, for the report.
    pub fn details(&self) -> Vec<(&'static str, u64)> {
        let of_order = match &self.order {
            Order::Blocks(shifter) => block_details(shifter.counts()),
            Order::Phases(turns) => phase_details(turns.counts(), &self.lanes.counts),
        };
        let counts = self.counts();
        let of_lanes = [
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
        ];
        of_order.into_iter().chain(of_lanes).collect()
    }
}

fn block_details(counts: &ShiftCounts) -> Vec<(&'static str, u64)> {
    vec![
        ("shaping_blocks", counts.blocks - counts.blocks_empty),
        ("shaping_turns_empty", counts.blocks_empty),
        ("shaping_block_bytes", counts.payload_bytes),
        ("shaping_turns_missed", counts.blocks_missed),
        ("shaping_turns_refused", counts.steps_given_away),
    ]
}

/// A phase in which something was sent is what a block is to the barrel shifter.
fn phase_details(counts: &LinearShiftCounts, of_lanes: &ShaperCounts) -> Vec<(&'static str, u64)> {
    vec![
        ("shaping_blocks", counts.phases),
        ("shaping_turns_empty", counts.phases_empty),
        ("shaping_block_bytes", counts.payload_bytes),
        ("shaping_turns_missed", counts.phases_missed),
        ("shaping_turns_refused", of_lanes.phases_refused),
        ("shaping_fragments", counts.fragments),
        ("shaping_throughs_repeated", counts.repetitions),
    ]
}

#[cfg(test)]
mod tests;
