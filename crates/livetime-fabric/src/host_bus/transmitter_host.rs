//! A transmitter card in a host: pages out of memory, over the bus, onto links.
//!
//! [`transmitter_throughput`] drives the QUEST model with time: bursts read memory, which is slower than
//! writing it, and each channel's link sends what its buffer holds. It yields the throughput of one
//! to four channels; registers are written ahead of need, as the driver of the measurements does.

use livetime_readout::card::receiver_register as register;
use livetime_readout::card::solar_card::{SIZE_BEGIN, SIZE_END};
use livetime_readout::card::{PageMemory, QuestCard, QuestFirmware};

use super::bus_parameters::BusParameters;
use super::pci_segment::PciSegment;
use crate::address::NodeId;
use crate::kernel::{RunLimits, Simulation, SimulationConfig, World};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;

const PAGES: u32 = 64;
const PAGE_BYTES: u32 = 64 << 10;
/// Requests that a channel takes.
const FIFO_DEPTH: u32 = 15;

#[derive(Debug, Clone, Copy)]
enum Event {
    BusFree,
    /// A link has sent what it was given.
    Sent {
        channel: u32,
    },
}

#[derive(Debug, Clone, Copy)]
enum Transfer {
    Burst { channel: u32, bytes: u64 },
    Registers { channel: u32 },
}

#[derive(Debug, Clone, Copy, Default)]
struct Channel {
    /// Bytes of the current fragment fetched from memory.
    fetched: u64,
    /// Bursts in the card's buffer or on their way there.
    bursts: usize,
    waiting: u64,
    is_sending: bool,
    is_asking: bool,
}

/// A transmitter card with its host and links.
struct TransmitterHost {
    parameters: BusParameters,
    fragment_bytes: u64,
    card: QuestCard,
    memory: PageMemory,
    bus: PciSegment<Transfer>,
    channels: Vec<Channel>,
    bytes: u64,
}

/// The throughput in MB/s of `channels` channels (1 to 4) that send fragments of
/// `fragment_bytes` bytes (whole words, at most 64 KiB), over `megabytes` MB.
///
/// # Panics
/// If channels or bytes are out of range.
pub fn transmitter_throughput(
    parameters: &BusParameters,
    channels: u32,
    fragment_bytes: u64,
    megabytes: u64,
) -> f64 {
    assert!((1..=4).contains(&channels), "a card has four channels");
    assert!(
        (4..=u64::from(PAGE_BYTES)).contains(&fragment_bytes),
        "one page"
    );
    let memory = PageMemory::new(0x1000_0000, PAGES, PAGE_BYTES);
    let world = TransmitterHost {
        parameters: *parameters,
        fragment_bytes,
        card: QuestCard::new(QuestFirmware::Transmitter, FIFO_DEPTH, memory.map()),
        memory,
        bus: PciSegment::new(),
        channels: vec![Channel::default(); channels as usize],
        bytes: 0,
    };
    let mut simulation = Simulation::new(world, SimulationConfig::default());
    let (world, scheduler) = simulation.parts_mut();
    for channel in 0..channels {
        (0..FIFO_DEPTH).for_each(|_| world.request(channel));
        world.fetch(channel, scheduler);
    }
    let mut events = 0;
    while simulation.world().bytes < megabytes * 1_000_000 {
        events += 1000;
        simulation.run(RunLimits::new(SimPs::MAX, events));
    }
    let report = simulation.run(RunLimits::new(SimPs::MAX, events));
    simulation.world().bytes as f64 / 1e6 / (report.now.0 as f64 / 1e12)
}

impl TransmitterHost {
    /// Two register writes make a request.
    fn request(&mut self, channel: u32) {
        let address = self.memory.map().base + channel * PAGE_BYTES;
        self.card.write_register(register::req(channel), address);
        let size = (self.fragment_bytes / 4) as u32 | SIZE_BEGIN | SIZE_END;
        self.card.write_register(register::ack(channel), size);
    }

    /// Asks for the next burst of a channel if its buffer has room and a request waits.
    fn fetch(&mut self, channel: u32, scheduler: &mut Scheduler<Event>) {
        let state = &mut self.channels[channel as usize];
        let has_request = !self.card.channel(channel).is_idle() || state.fetched > 0;
        if state.is_asking || state.bursts >= self.parameters.channel_bursts || !has_request {
            return;
        }
        let left = self.fragment_bytes - state.fetched;
        let bytes = left.min(self.parameters.burst_bytes);
        state.fetched = if bytes == left {
            0
        } else {
            state.fetched + bytes
        };
        state.is_asking = true;
        state.bursts += 1;
        let duration = self.parameters.read_burst(bytes);
        self.bus
            .request(Transfer::Burst { channel, bytes }, duration);
        self.start_bus(scheduler);
    }

    fn start_bus(&mut self, scheduler: &mut Scheduler<Event>) {
        let now = scheduler.now();
        if let Some(end) = self.bus.start(now, |_, duration| duration) {
            scheduler.at(end, EventClass(1), Event::BusFree);
        }
    }

    fn send(&mut self, channel: u32, scheduler: &mut Scheduler<Event>) {
        let state = &mut self.channels[channel as usize];
        if state.is_sending || state.waiting == 0 {
            return;
        }
        let bytes = state.waiting.min(self.parameters.burst_bytes);
        state.is_sending = true;
        let words = bytes / 4;
        scheduler.after(
            DurationPs(words * self.parameters.link_word.0),
            EventClass(0),
            Event::Sent { channel },
        );
    }

    /// The words that a link has sent leave the card model; a fragment that ended makes room for a
    /// request.
    fn handle_sent(&mut self, channel: u32, scheduler: &mut Scheduler<Event>) {
        let burst_bytes = self.parameters.burst_bytes;
        let state = &mut self.channels[channel as usize];
        let bytes = state.waiting.min(burst_bytes);
        state.waiting -= bytes;
        state.bursts -= 1;
        state.is_sending = false;
        self.bytes += bytes;
        let transmitter = self.card.channel_mut(channel);
        let (sent_before, mut words) = (transmitter.counters().sent, bytes / 4);
        // Control words leave with the data around them.
        while let Some(slice) = transmitter.poll_line(&self.memory, words.max(1) as usize) {
            let is_data = matches!(slice, livetime_readout::LineSlice::Data(_));
            if is_data && words == 0 {
                break;
            }
            transmitter.handle_sent(slice.words());
            if is_data {
                words -= slice.words() as u64;
            } else if words == 0 {
                break;
            }
        }
        let ended = transmitter.counters().sent - sent_before;
        for _ in 0..ended {
            let clocks = 2 * self.parameters.register_write_clocks;
            let duration = self.parameters.clocks(clocks);
            self.bus
                .request_by_host(Transfer::Registers { channel }, duration);
        }
        self.start_bus(scheduler);
        self.fetch(channel, scheduler);
        self.send(channel, scheduler);
    }
}

impl World for TransmitterHost {
    type Event = Event;

    fn label(&self, event: &Event) -> EventLabel {
        let (kind, key) = match *event {
            Event::BusFree => (0, 0),
            Event::Sent { channel } => (1, channel),
        };
        EventLabel {
            node: NodeId(0),
            kind,
            key: key.into(),
        }
    }

    fn handle(&mut self, _now: SimPs, event: Event, scheduler: &mut Scheduler<Event>) {
        match event {
            Event::Sent { channel } => self.handle_sent(channel, scheduler),
            Event::BusFree => {
                match self.bus.finish() {
                    Transfer::Registers { channel } => {
                        self.request(channel);
                        self.fetch(channel, scheduler);
                    }
                    Transfer::Burst { channel, bytes } => {
                        let state = &mut self.channels[channel as usize];
                        state.is_asking = false;
                        state.waiting += bytes;
                        self.fetch(channel, scheduler);
                        self.send(channel, scheduler);
                    }
                }
                self.start_bus(scheduler);
            }
        }
    }
}
