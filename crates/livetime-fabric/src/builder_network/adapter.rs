//! A readout unit's adapter to one network: the shaper, and when the link may have a packet.

use std::collections::VecDeque;
use std::sync::Arc;

use livetime_builder::barrel_shifter::Piece;
use livetime_builder::{
    BarrelShifter, Block, LinearShift, Pace, ReadoutOutput, ShiftFragment, ShiftOutput,
    ShiftSchedule,
};
use livetime_wire::message::PhaseDemand;
use livetime_wire::{DurationNs, RunNs, SourceId, TriggerNumber};

use super::Shaping;
use super::check::Sizes;
use crate::time::{DurationPs, SimPs};

/// A fragment on its way to a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub(super) port: u16,
    pub(super) trigger: TriggerNumber,
    pub(super) bytes: u32,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cargo {
    /// A block of a barrel shifter, which lies beside it, with so many bytes of fragments.
    Block { payload: u32 },
    /// A whole fragment.
    Fragment(Sending),
    /// A part of a larger fragment, by the number of that.
    Part(u32),
    /// A control message: its text and its sequence number.
    Letter { text: u32, sequence: u32 },
}

/// What the adapter wants done.
pub(super) enum Wanted {
    /// Send this many bytes to a port.
    Packet { port: u16, bytes: u32, cargo: Cargo },
    /// Tell the barrier.
    Through { phase: u64, demand: PhaseDemand },
    /// Nothing, until something comes.
    Nothing,
}

#[derive(Debug)]
enum Shaper {
    None(VecDeque<Sending>),
    Barrel(BarrelShifter, u32),
    Linear(LinearShift),
}

/// An adapter. The link's state and the beginning of the shaper are within one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Adapter {
    /// The link waits for a packet.
    pub(super) is_idle: bool,
    /// From when the bus has the next packet ready.
    pub(super) bus_ready: SimPs,
    shaper: Shaper,
    /// The fragment whose next part is sent before anything else.
    pub(super) cut: Option<u32>,
}

impl Adapter {
    /// For readout unit number `sender` of a schedule; `queue_max` fragments may wait for each port,
    /// and `waiting_max` for all.
    pub(super) fn new(
        shaping: Shaping,
        schedule: &Arc<ShiftSchedule>,
        sender: u16,
        (queue_max, waiting_max): (usize, usize),
        retry: DurationNs,
    ) -> Self {
        let shaper = match shaping {
            Shaping::None => Shaper::None(VecDeque::new()),
            Shaping::BarrelShifter { block_bytes, .. } => {
                let pace = Pace::BackPressure;
                let schedule = schedule.clone();
                let shifter = BarrelShifter::new(schedule, sender, pace, block_bytes, queue_max);
                let shifter = shifter.with_waiting_max(waiting_max).lean();
                Shaper::Barrel(shifter, block_bytes)
            }
            Shaping::LinearShift { phase_bytes, .. } => Shaper::Linear(LinearShift::new(
                ShiftSchedule::clone(schedule),
                sender,
                phase_bytes,
                queue_max,
                retry,
            )),
        };
        Self {
            shaper,
            cut: None,
            is_idle: true,
            bus_ready: SimPs::ZERO,
        }
    }

    /// Where a block to a port, or the next one, will be made of.
    #[inline]
    pub(super) fn foresee(&self, port: Option<u16>) -> Option<&u32> {
        let Shaper::Barrel(shifter, _) = &self.shaper else {
            return None;
        };
        shifter.foresee(port.or_else(|| shifter.next_receiver())?)
    }

    /// A fragment is to be sent; false if there is no room, and it is to be kept.
    pub(super) fn push(&mut self, sending: Sending, source: SourceId) -> bool {
        let Sending {
            port,
            trigger,
            bytes,
        } = sending;
        match &mut self.shaper {
            Shaper::None(queue) => {
                queue.push_back(sending);
                true
            }
            Shaper::Barrel(shifter, _) => shifter.push(port, trigger, source, bytes).is_ok(),
            Shaper::Linear(shift) => shift.push(port, trigger, source, bytes).is_ok(),
        }
    }

    /// What comes next; a block is put into `block`. Ask when the link is idle.
    pub(super) fn next(&mut self, now: RunNs, block: &mut Block) -> Wanted {
        match &mut self.shaper {
            Shaper::None(queue) => match queue.pop_front() {
                Some(sending) => Self::fragment(sending),
                None => Wanted::Nothing,
            },
            Shaper::Barrel(shifter, block_bytes) => match shifter.poll_block_into(now, block) {
                true => Wanted::Packet {
                    port: block.to,
                    bytes: *block_bytes,
                    cargo: Cargo::Block {
                        payload: block.payload_bytes(),
                    },
                },
                false => Wanted::Nothing,
            },
            Shaper::Linear(shift) => match shift.poll_output(now) {
                Some(ShiftOutput::Send(ShiftFragment {
                    to, trigger, bytes, ..
                })) => Self::fragment(Sending {
                    port: to,
                    trigger,
                    bytes,
                }),
                Some(ShiftOutput::Through { phase, demand }) => Wanted::Through { phase, demand },
                None => Wanted::Nothing,
            },
        }
    }

    fn fragment(sending: Sending) -> Wanted {
        Wanted::Packet {
            port: sending.port,
            bytes: sending.bytes,
            cargo: Cargo::Fragment(sending),
        }
    }

    /// When it has something to do though nothing comes. Ask when [`Adapter::next`] had nothing.
    pub(super) fn poll_timeout(&self) -> RunNs {
        match &self.shaper {
            Shaper::Linear(shift) if self.is_idle => shift.poll_timeout(),
            _ => RunNs::MAX,
        }
    }

    /// A phase of the linear shift begins.
    pub(super) fn handle_phase(&mut self, phase: u64) {
        if let Shaper::Linear(shift) = &mut self.shaper {
            shift.handle_phase(phase);
        }
    }

    /// Its readout unit begins again. A barrel shifter goes on with its turn: blocks keep all in step.
    pub(super) fn begin_again(&mut self) {
        if let Shaper::Linear(shift) = &mut self.shaper {
            shift.begin_again();
        }
    }

    /// Takes away what waits for the port of a unit that is gone; returns how many fragments.
    pub(super) fn withdraw(&mut self, port: u16) -> u64 {
        match &mut self.shaper {
            Shaper::None(queue) => {
                let before = queue.len();
                queue.retain(|sending| sending.port != port);
                (before - queue.len()) as u64
            }
            Shaper::Barrel(shifter, _) => shifter.withdraw(port) as u64,
            Shaper::Linear(shift) => shift.withdraw(port) as u64,
        }
    }

    /// Bytes of blocks that carried payload, and of all blocks.
    pub(super) fn block_bytes(&self) -> (u64, u64) {
        match &self.shaper {
            Shaper::Barrel(shifter, block_bytes) => {
                let counts = shifter.counts();
                (
                    counts.payload_bytes,
                    counts.blocks * u64::from(*block_bytes),
                )
            }
            _ => (0, 0),
        }
    }

    /// Fragments that wait or are partly sent; `ports` is their number.
    pub(super) fn waiting(&self, ports: u16) -> u64 {
        match &self.shaper {
            Shaper::None(queue) => queue.len() as u64,
            Shaper::Barrel(shifter, _) => (0..ports).map(|port| shifter.waiting(port) as u64).sum(),
            Shaper::Linear(shift) => shift.waiting() as u64,
        }
    }
}

/// Where the fragments of a readout unit go: the shapers of its links.
pub(super) struct Outlet<'a> {
    pub(super) unit: u16,
    /// By rail.
    pub(super) adapters: &'a mut [Adapter],
    /// A fragment that found no room in its shaper.
    pub(super) kept: &'a mut Option<(usize, Sending, SourceId)>,
    /// By builder unit.
    pub(super) ports: &'a [u16],
    pub(super) sizes: &'a Sizes<'a>,
    /// Counts fragments.
    pub(super) sent: &'a mut u64,
}

impl Outlet<'_> {
    /// Hands the fragment that is kept, if one is, to its shaper again.
    pub(super) fn retry(&mut self) {
        if let Some((rail, sending, source)) = self.kept.take() {
            self.push(rail, sending, source);
        }
    }

    /// Whether none is kept.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.kept.is_none()
    }

    /// Hands a fragment that is to be sent to its shaper, or keeps it; whether there is room for more.
    /// The pages of those that are freed are nobody's here.
    #[inline]
    pub(super) fn send(&mut self, output: ReadoutOutput) -> bool {
        let ReadoutOutput::SendFragment {
            to,
            trigger,
            source,
            ..
        } = output
        else {
            return true;
        };
        *self.sent += 1;
        let sending = Sending {
            port: self.ports[usize::from(to.index)],
            trigger,
            bytes: self.sizes.of(trigger.0, self.unit),
        };
        // With one network, as usual, a division would take longer than the rest.
        let rail = match self.adapters.len() {
            1 => 0,
            rails => trigger.0 as usize % rails,
        };
        self.push(rail, sending, source)
    }

    #[inline]
    fn push(&mut self, rail: usize, sending: Sending, source: SourceId) -> bool {
        let is_taken = self.adapters[rail].push(sending, source);
        if !is_taken {
            *self.kept = Some((rail, sending, source));
        }
        is_taken
    }
}

/// Fragments whose last piece is in a block: only the last one may go on in another.
pub(super) fn ends_in(pieces: &[Piece]) -> u64 {
    let goes_on = |last: &Piece| last.offset + last.bytes != last.total;
    pieces.len() as u64 - u64::from(pieces.last().is_some_and(goes_on))
}

/// When a packet that is decided on at `now` may enter the link: after the time that it costs, and
/// when the bus has brought it. The bus works ahead by one packet.
pub(super) fn injection(
    adapter: &mut Adapter,
    now: SimPs,
    cost: DurationPs,
    bytes: u32,
    bus_bytes_per_s: u64,
) -> SimPs {
    let at = (now + cost).max(adapter.bus_ready);
    if bus_bytes_per_s > 0 {
        let time = DurationPs::for_bits(u64::from(bytes) * 8, bus_bytes_per_s.saturating_mul(8));
        adapter.bus_ready = at + time;
    }
    at
}
