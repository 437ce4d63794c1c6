//! Traffic shaping in a story: fragments wait in a readout unit for the turn of their builder unit.
//!
//! The shapers are those of `livetime-builder`; here are the links of a story, which take a block in
//! one turn. A fragment goes along with the block that has its last piece, if it is on file then; what
//! of it came earlier is for the assembler at the other end to say, who puts it together from the
//! blocks that come. In phases fragments go as they are.

use std::collections::BTreeMap;

use livetime_builder::barrel_shifter::Piece;
use livetime_builder::{BarrelShifter, Block, BuilderConfig, LinearShift, ShiftOutput};
use livetime_wire::message::PhaseDemand;
use livetime_wire::{RunNs, SourceId, TriggerNumber};

use super::scenario::{SwarmShaping, TURN};

/// Fragments that may wait for a builder unit, or a readout unit's shaper: more are asked for again.
const QUEUE_MAX: usize = 24;

/// What a shaper wants sent.
pub(super) enum Shaped {
    /// A block, and the numbers of the messages of fragments that end in it.
    Block(Box<Block>, Vec<(Piece, u32)>),
    /// A fragment, whose message has this number.
    Fragment {
        to: u16,
        trigger: TriggerNumber,
        source: SourceId,
        sequence: u32,
    },
    /// To the barrier.
    Through(u64, PhaseDemand),
}

/// The order in which builder units have their turns.
#[derive(Debug)]
enum Order {
    Blocks(BarrelShifter),
    Phases(LinearShift),
}

/// Fragments of a readout unit that wait for their turn.
#[derive(Debug)]
pub(super) struct SwarmShaper {
    order: Order,
    /// Numbers of the messages of those that wait.
    waiting: BTreeMap<(u16, TriggerNumber, SourceId), u32>,
    /// The link takes the next block then.
    next_turn: RunNs,
}

impl SwarmShaper {
    /// The shaper of a readout unit; `None` where fragments go out as they are asked for.
    pub(super) fn new(shaping: SwarmShaping, config: &BuilderConfig, readout: u16) -> Option<Self> {
        let readouts = config.readout_units.len() as u16;
        let shaping = shaping.config()?;
        let schedule = shaping.schedule(readouts, config.builder_units);
        let bytes = shaping.block_bytes;
        let order = if shaping.is_linear() {
            let retry = config.retry;
            Order::Phases(LinearShift::new(schedule, readout, bytes, QUEUE_MAX, retry))
        } else {
            let pace = shaping.pace();
            Order::Blocks(BarrelShifter::new(
                schedule, readout, pace, bytes, QUEUE_MAX,
            ))
        };
        Some(Self {
            order,
            waiting: BTreeMap::new(),
            next_turn: RunNs(0),
        })
    }

    /// A fragment is to be sent. One that waits already is sent once; one that finds no room is asked
    /// for again.
    pub(super) fn push(
        &mut self,
        now: RunNs,
        (to, trigger, source): (u16, TriggerNumber, SourceId),
        sequence: u32,
        bytes: u32,
    ) {
        if self.waiting.contains_key(&(to, trigger, source)) {
            return;
        }
        let pushed = match &mut self.order {
            Order::Blocks(shifter) => {
                if shifter.is_empty() {
                    shifter.skip_to(now);
                }
                shifter.push(to, trigger, source, bytes)
            }
            Order::Phases(shift) => shift.push(to, trigger, source, bytes),
        };
        if pushed.is_ok() {
            self.waiting.insert((to, trigger, source), sequence);
        }
    }

    /// The next thing to send, if it is time for one.
    pub(super) fn poll(&mut self, now: RunNs) -> Option<Shaped> {
        match &mut self.order {
            Order::Blocks(shifter) if shifter.is_empty() || now < self.next_turn => None,
            Order::Blocks(shifter) => {
                let block = shifter.poll_block(now)?;
                self.next_turn = now.after(TURN);
                let mut ended = Vec::new();
                for piece in &block.pieces {
                    if piece.offset + piece.bytes == piece.total {
                        let key = (block.to, piece.trigger, piece.source);
                        ended.extend(self.waiting.remove(&key).map(|number| (*piece, number)));
                    }
                }
                Some(Shaped::Block(Box::new(block), ended))
            }
            Order::Phases(shift) => match shift.poll_output(now)? {
                ShiftOutput::Send(fragment) => {
                    let key = (fragment.to, fragment.trigger, fragment.source);
                    let sequence = self.waiting.remove(&key).unwrap_or_default();
                    Some(Shaped::Fragment {
                        to: fragment.to,
                        trigger: fragment.trigger,
                        source: fragment.source,
                        sequence,
                    })
                }
                ShiftOutput::Through { phase, demand } => Some(Shaped::Through(phase, demand)),
            },
        }
    }

    /// When [`SwarmShaper::poll`] is next worth a call, though nothing comes.
    pub(super) fn poll_timeout(&self) -> RunNs {
        match &self.order {
            Order::Blocks(shifter) if shifter.is_empty() => RunNs::MAX,
            Order::Blocks(shifter) => match shifter.poll_timeout() {
                RunNs::MAX => self.next_turn,
                step => step.max(self.next_turn),
            },
            Order::Phases(shift) => shift.poll_timeout(),
        }
    }

    /// The barrier says that a phase has begun.
    pub(super) fn handle_phase(&mut self, phase: u64) {
        if let Order::Phases(shift) = &mut self.order {
            shift.handle_phase(phase);
        }
    }

    /// A builder unit is lost: what waits for it is not sent.
    pub(super) fn lose(&mut self, builder: u16) {
        match &mut self.order {
            Order::Blocks(shifter) => shifter.withdraw(builder),
            Order::Phases(shift) => shift.withdraw(builder),
        };
        self.waiting.retain(|(to, ..), _| *to != builder);
    }
}
