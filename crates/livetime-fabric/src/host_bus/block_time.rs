//! One block from a data source to a host that waits for it: the time against its length.
//!
//! The measurement of the PULSAR note: the host triggers a SLIDAS, its block goes over a link into
//! an S32PCI64, and the host polls until the block is acknowledged. Short blocks are stored by the
//! card and then moved in one burst, so that the two rates add up; of long ones all but the last
//! burst is moved while the link still sends. The events are those of the kernel.

use livetime_readout::LineSlice;
use livetime_readout::card::receiver_register as register;
use livetime_readout::card::{PageMemory, ReceiverCard, ReceiverCardConfig, ReceiverKind};
use livetime_wire::slink::ControlWord;

use super::bus_parameters::BusParameters;
use super::pci_segment::PciSegment;
use crate::address::NodeId;
use crate::kernel::{RunLimits, Simulation, SimulationConfig, World};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;

/// Bytes of the page; blocks are at most this long.
const PAGE_BYTES: u32 = 64 << 10;

/// What the host adds to the times of bus and link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockTiming {
    /// From the host's clock read to the source's first word: pulsing the trigger pin.
    /// Fitted on the note's 3.6 us for small blocks.
    pub trigger: DurationPs,
    /// From the trigger to the first look at the acknowledge register, beside `poll_pause`: real
    /// hosts look at any phase, so a mean over several is what is compared.
    pub first_look: DurationPs,
    /// Between two looks at the acknowledge register, beside the read itself.
    pub poll_pause: DurationPs,
}

impl Default for BlockTiming {
    fn default() -> Self {
        Self {
            trigger: DurationPs(1_720_000),
            first_look: DurationPs(0),
            poll_pause: DurationPs(50_000),
        }
    }
}

/// A straight line through times against lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LineFit {
    /// Time of a block of no length, in microseconds.
    pub latency_us: f64,
    /// Inverse slope, in MB/s.
    pub megabytes_per_s: f64,
}

/// The least-squares line of times (in microseconds) against bytes.
pub fn line_fit(points: &[(f64, f64)]) -> LineFit {
    let n = points.len() as f64;
    let (mean_x, mean_y) = (
        points.iter().map(|point| point.0).sum::<f64>() / n,
        points.iter().map(|point| point.1).sum::<f64>() / n,
    );
    let covariance: f64 = (points.iter())
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = covariance / variance;
    LineFit {
        latency_us: mean_y - slope * mean_x,
        megabytes_per_s: 1.0 / slope,
    }
}

/// Events of this world.
#[derive(Debug, Clone, Copy)]
enum Event {
    Chunk { bytes: u64, is_last: bool },
    BusFree,
    Look,
}

#[derive(Debug, Clone, Copy)]
enum Transfer {
    Burst { bytes: u64, is_last: bool },
    Look,
}

struct OneBlock {
    parameters: BusParameters,
    timing: BlockTiming,
    card: ReceiverCard,
    memory: PageMemory,
    bus: PciSegment<Transfer>,
    data: Vec<u32>,
    is_begun: bool,
    seen_at: Option<SimPs>,
}

/// The time from the host's clock read before the trigger to its clock read after it saw the
/// acknowledge of a block of `words` words (1 to 16 384).
///
/// # Panics
/// If there are no words, or more than a page holds.
pub fn block_time(parameters: &BusParameters, timing: &BlockTiming, words: u64) -> DurationPs {
    assert!((1..=u64::from(PAGE_BYTES) / 4).contains(&words), "one page");
    let memory = PageMemory::new(0x1000_0000, 2, PAGE_BYTES);
    let config = ReceiverCardConfig {
        kind: ReceiverKind::S32Pci64,
        ..ReceiverCardConfig::default()
    };
    let mut card = ReceiverCard::new(config, memory.map());
    card.write_register(register::OCR, 5 << register::OCR_PAGE_SIZE_SHIFT);
    card.write_register(register::req(0), 0x1000_0000);
    let world = OneBlock {
        parameters: *parameters,
        timing: *timing,
        card,
        memory,
        bus: PciSegment::new(),
        data: (0..words as u32).collect(),
        is_begun: false,
        seen_at: None,
    };
    let mut simulation = Simulation::new(world, SimulationConfig::default());
    // The source sends in chunks of a burst; control words go with the first and the last.
    let (mut at, mut left) = (timing.trigger + parameters.link_latency, words * 4);
    let mut is_first = true;
    while left > 0 {
        let bytes = left.min(parameters.burst_bytes);
        let is_last = bytes == left;
        at = DurationPs(at.0 + bytes / 4 * parameters.link_word.0);
        for is_at_edge in [is_first, is_last] {
            at = DurationPs(at.0 + u64::from(is_at_edge) * parameters.link_control_word.0);
        }
        let event = Event::Chunk { bytes, is_last };
        simulation.schedule(SimPs(at.0), EventClass(0), event);
        left -= bytes;
        is_first = false;
    }
    let first_look = SimPs(timing.trigger.0 + timing.first_look.0);
    simulation.schedule(first_look, EventClass(2), Event::Look);
    simulation.run(RunLimits::new(SimPs::MAX, 1 << 20));
    let seen = simulation
        .world()
        .seen_at
        .expect("the block is acknowledged");
    seen.since(SimPs::ZERO)
}

impl OneBlock {
    fn ask(&mut self, transfer: Transfer, scheduler: &mut Scheduler<Event>) {
        let duration = match transfer {
            Transfer::Burst { bytes, .. } => self.parameters.write_burst(bytes),
            Transfer::Look => self.parameters.clocks(self.parameters.register_read_clocks),
        };
        match transfer {
            Transfer::Burst { .. } => self.bus.request(transfer, duration),
            Transfer::Look => self.bus.request_by_host(transfer, duration),
        }
        self.start_bus(scheduler);
    }

    fn start_bus(&mut self, scheduler: &mut Scheduler<Event>) {
        let now = scheduler.now();
        if let Some(end) = self.bus.start(now, |_, duration| duration) {
            scheduler.at(end, EventClass(1), Event::BusFree);
        }
    }

    fn finish_burst(&mut self, bytes: u64, is_last: bool) {
        let (now, later) = self.data.split_at(bytes as usize / 4);
        let begin = LineSlice::Control(ControlWord::BEGIN_FRAGMENT);
        let end = LineSlice::Control(ControlWord::END_FRAGMENT);
        let begin = (!self.is_begun).then_some(begin);
        let slices = begin.into_iter().chain([LineSlice::Data(now)]);
        for slice in slices.chain(is_last.then_some(end)) {
            self.card.handle_line(0, slice, &mut self.memory);
        }
        self.is_begun = true;
        self.data = later.to_vec();
    }
}

impl World for OneBlock {
    type Event = Event;

    fn label(&self, event: &Event) -> EventLabel {
        let (kind, key) = match *event {
            Event::Chunk { bytes, .. } => (0, bytes),
            Event::BusFree => (1, 0),
            Event::Look => (2, 0),
        };
        EventLabel {
            node: NodeId(0),
            kind,
            key,
        }
    }

    fn handle(&mut self, now: SimPs, event: Event, scheduler: &mut Scheduler<Event>) {
        match event {
            Event::Chunk { bytes, is_last } => {
                self.ask(Transfer::Burst { bytes, is_last }, scheduler);
            }
            Event::Look => self.ask(Transfer::Look, scheduler),
            Event::BusFree => {
                match self.bus.finish() {
                    Transfer::Burst { bytes, is_last } => self.finish_burst(bytes, is_last),
                    Transfer::Look => {
                        if self.card.read_register(register::FIFOSTAT) & 0xF > 0 {
                            self.seen_at = Some(now);
                            scheduler.halt();
                        } else {
                            let pause = self.timing.poll_pause;
                            scheduler.after(pause, EventClass(2), Event::Look);
                        }
                    }
                }
                self.start_bus(scheduler);
            }
        }
    }
}
