//! Receiver cards in a host: links into cards, bursts over buses, a driver that gives pages.
//!
//! [`receiver_throughput`] drives the very card models of `livetime-readout` with time: each link sends
//! fragments as its card's buffer allows, each card moves them into memory in bursts over its
//! segment, and one processor runs the driver, which waits for its register reads. It yields rates
//! as functions of fragment length, channels, cards and firmware.

use std::collections::VecDeque;

use livetime_readout::card::dma_block::{
    CompletionEntry, DESCRIPTOR_WORDS_MAX, DMA_CHANNELS, DescriptorBlock,
};
use livetime_readout::card::receiver_register as register;
use livetime_readout::card::{
    DmaTransfer, PageMemory, ReceiverCard, ReceiverCardConfig, ReceiverKind,
};
use livetime_readout::{FlowControl, LineSlice};
use livetime_wire::slink::ControlWord;

use super::bus_parameters::BusParameters;
use super::pci_segment::PciSegment;
use crate::address::NodeId;
use crate::kernel::{RunLimits, Simulation, SimulationConfig, StopReason, World};
use crate::queue::EventClass;
use crate::scheduler::Scheduler;
use crate::time::{DurationPs, SimPs};
use crate::trace::EventLabel;

/// Pages of a card's memory; the last two hold the blocks of the DMA protocol.
const PAGES: u32 = 64 + 2;
/// Bytes of a page.
const PAGE_BYTES: u32 = 64 << 10;
/// Their size in OCR.
const PAGE_SIZE_CODE: u32 = 5;
/// Longest fragment, in bytes.
pub const FRAGMENT_BYTES_MAX: u64 = PAGE_BYTES as u64;

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverHostConfig {
    /// The times.
    pub parameters: BusParameters,
    /// Cards, each on a segment of its own.
    pub cards: u32,
    /// Their kind.
    pub kind: ReceiverKind,
    /// Channels of each card that are used.
    pub channels: u32,
    /// Bytes of each fragment, a multiple of 4, 4 to 65 536.
    pub fragment_bytes: u64,
}

/// What a simulation yields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// All channels together, in MB/s.
    pub megabytes_per_s: f64,
    /// Fragments per second and channel.
    pub rate_hz: f64,
    /// Share of time that the busiest segment was in use.
    pub bus_use: f64,
    /// Share of time that the processor was in the driver, waits for registers included.
    pub cpu_use: f64,
    /// Register accesses per fragment.
    pub accesses_per_fragment: f64,
}

/// Events of this world.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A link has sent a chunk.
    Chunk { link: u32 },
    /// The transfer on a segment has ended.
    BusFree { card: u32 },
    /// The driver goes on.
    Host,
    /// The driver is woken.
    Interrupt,
}

/// A transfer on a segment.
#[derive(Debug, Clone, Copy)]
enum Transfer {
    Burst {
        link: u32,
        bytes: u64,
        is_last: bool,
    },
    ReadStatus,
    ReadAck {
        channel: u32,
    },
    WriteRequest {
        channel: u32,
        page: u32,
    },
    WriteDescriptor,
    Descriptors,
    Completions,
}

/// A step of the driver.
#[derive(Debug, Clone, Copy)]
enum Step {
    ReadStatus {
        card: u32,
    },
    ReadAck {
        card: u32,
        channel: u32,
    },
    Work(DurationPs),
    GiveBack {
        card: u32,
        channel: u32,
    },
    /// A page that was read goes into the next descriptor block.
    Collect {
        card: u32,
        channel: u32,
        page: u32,
    },
    WriteDescriptors {
        card: u32,
    },
}

/// A link and the buffer of its channel.
#[derive(Debug, Clone)]
struct Link {
    card: u32,
    channel: u32,
    /// Bytes of the fragment being sent that have left.
    sent: u64,
    is_sending: bool,
    /// Chunks that have come and wait for the bus: bytes, and whether the fragment ends.
    chunks: VecDeque<(u64, bool)>,
    /// The first of them has asked for the bus.
    is_asking: bool,
    /// The begin word of the fragment whose chunks come was given to the card.
    is_begun: bool,
}

struct Card {
    model: ReceiverCard,
    memory: PageMemory,
    bus: PciSegment<Transfer>,
    dma_asked: bool,
    /// A descriptor block waits until the card has done what it asked the bus for.
    descriptors_wait: bool,
    /// Pages to post again, by channel (DMA protocol).
    to_post: Vec<Vec<u32>>,
    /// Pages posted, in their order, by channel.
    posted: Vec<VecDeque<u32>>,
}

/// Cards, links and a processor.
struct ReceiverHost {
    config: ReceiverHostConfig,
    cards: Vec<Card>,
    links: Vec<Link>,
    steps: VecDeque<Step>,
    /// The driver waits for the bus or for its own work.
    is_busy: bool,
    interrupt_pending: bool,
    cpu_busy: DurationPs,
    busy_since: SimPs,
    memory_free: SimPs,
    data: Vec<u32>,
    fragments: u64,
    bytes: u64,
}

/// Runs for `fragments` fragments in all, the first tenth not counted.
///
/// # Panics
/// If the configuration is out of its ranges.
pub fn receiver_throughput(config: ReceiverHostConfig, fragments: u64) -> Throughput {
    let is_sound = config.channels <= config.kind.channels()
        && (4..=FRAGMENT_BYTES_MAX).contains(&config.fragment_bytes)
        && config.fragment_bytes.is_multiple_of(4);
    assert!(
        is_sound,
        "a card with these channels and fragments of whole words"
    );
    let mut simulation = Simulation::new(ReceiverHost::new(config), SimulationConfig::default());
    let (world, scheduler) = simulation.parts_mut();
    for link in 0..world.links.len() as u32 {
        world.send(link, scheduler);
    }
    let mut events = 0;
    let mut until = |fragments: u64| {
        loop {
            events += 1000;
            let report = simulation.run(RunLimits::new(SimPs::MAX, events));
            assert_ne!(report.stop, StopReason::Drained, "the model stands still");
            if simulation.world().fragments >= fragments {
                let world = simulation.world();
                return (report.now, world.sample(report.now));
            }
        }
    };
    let (start, before) = until(fragments / 10);
    let (end, after) = until(fragments);
    let seconds = end.since(start).0 as f64 / 1e12;
    let fragments = (after.fragments - before.fragments) as f64;
    Throughput {
        megabytes_per_s: (after.bytes - before.bytes) as f64 / 1e6 / seconds,
        rate_hz: fragments / seconds / f64::from(config.cards * config.channels),
        bus_use: (after.bus_busy - before.bus_busy) as f64 / 1e12 / seconds,
        cpu_use: (after.cpu_busy - before.cpu_busy) as f64 / 1e12 / seconds,
        accesses_per_fragment: (after.accesses - before.accesses) as f64 / fragments,
    }
}

impl ReceiverHost {
    fn new(config: ReceiverHostConfig) -> Self {
        let cards = (0..config.cards).map(|_| Card::new(&config)).collect();
        let links = (0..config.cards * config.channels).map(|link| Link {
            card: link / config.channels,
            channel: link % config.channels,
            sent: 0,
            is_sending: false,
            chunks: VecDeque::new(),
            is_asking: false,
            is_begun: false,
        });
        Self {
            cards,
            links: links.collect(),
            steps: VecDeque::new(),
            is_busy: false,
            interrupt_pending: false,
            cpu_busy: DurationPs(0),
            busy_since: SimPs::ZERO,
            memory_free: SimPs::ZERO,
            data: vec![0x5555_5555; config.parameters.burst_bytes as usize / 4],
            fragments: 0,
            bytes: 0,
            config,
        }
    }

    /// Sends the next chunk of a link if there is room for it.
    fn send(&mut self, link: u32, scheduler: &mut Scheduler<Event>) {
        let parameters = &self.config.parameters;
        let state = &mut self.links[link as usize];
        if state.is_sending || state.chunks.len() >= parameters.channel_bursts {
            return;
        }
        let left = self.config.fragment_bytes - state.sent;
        let bytes = left.min(parameters.burst_bytes);
        let mut time = bytes / 4 * parameters.link_word.0;
        // Begin and end word go with the first and the last chunk.
        for is_at_edge in [state.sent == 0, bytes == left] {
            time += u64::from(is_at_edge) * parameters.link_control_word.0;
        }
        state.is_sending = true;
        let event = Event::Chunk { link };
        scheduler.after(DurationPs(time), EventClass(0), event);
    }

    /// A chunk has come; the next may leave.
    fn handle_chunk(&mut self, link: u32, scheduler: &mut Scheduler<Event>) {
        let burst_bytes = self.config.parameters.burst_bytes;
        let state = &mut self.links[link as usize];
        let left = self.config.fragment_bytes - state.sent;
        let bytes = left.min(burst_bytes);
        state.is_sending = false;
        state.sent = if bytes == left { 0 } else { state.sent + bytes };
        state.chunks.push_back((bytes, bytes == left));
        self.ask_for_burst(link, scheduler);
        self.send(link, scheduler);
    }

    /// Asks for the bus for the oldest chunk of a link, if its card has a page for it.
    fn ask_for_burst(&mut self, link: u32, scheduler: &mut Scheduler<Event>) {
        let state = &mut self.links[link as usize];
        let card = &mut self.cards[state.card as usize];
        let has_page = state.is_begun || card.model.flow(state.channel) == FlowControl::Xon;
        let Some((bytes, is_last)) = state.chunks.front().copied() else {
            return;
        };
        if state.is_asking || !has_page {
            return;
        }
        state.is_asking = true;
        let transfer = Transfer::Burst {
            link,
            bytes,
            is_last,
        };
        let duration = self.config.parameters.write_burst(bytes);
        card.bus.request(transfer, duration);
        let card = state.card;
        self.start_bus(card, scheduler);
    }

    fn start_bus(&mut self, card: u32, scheduler: &mut Scheduler<Event>) {
        let now = scheduler.now();
        let (parameters, memory_free) = (&self.config.parameters, &mut self.memory_free);
        let stretch = |transfer: &Transfer, duration: DurationPs| {
            let Transfer::Burst { bytes, .. } = transfer else {
                return duration;
            };
            // The memory takes bursts of all segments one after the other.
            let end = (*memory_free).max(now) + parameters.memory(*bytes);
            *memory_free = end;
            duration.max(end.since(now))
        };
        if let Some(end) = self.cards[card as usize].bus.start(now, stretch) {
            scheduler.at(end, EventClass(1), Event::BusFree { card });
        }
    }

    fn handle_bus_free(&mut self, card: u32, scheduler: &mut Scheduler<Event>) {
        match self.cards[card as usize].bus.finish() {
            Transfer::Burst {
                link,
                bytes,
                is_last,
            } => self.finish_burst(link, bytes, is_last, scheduler),
            Transfer::ReadStatus => {
                self.read_status(card);
                self.go_on(scheduler);
            }
            Transfer::ReadAck { channel } => {
                let state = &mut self.cards[card as usize];
                let ack = state.model.read_register(register::ack(channel));
                self.count(ack & register::ACK_LENGTH);
                self.go_on(scheduler);
            }
            Transfer::WriteRequest { channel, page } => {
                let state = &mut self.cards[card as usize];
                state.post(channel, page);
                self.ask_for_burst(card * self.config.channels + channel, scheduler);
            }
            Transfer::WriteDescriptor => {
                self.cards[card as usize].descriptors_wait = true;
                self.ask_for_dma(card, scheduler);
            }
            Transfer::Descriptors => {
                let state = &mut self.cards[card as usize];
                state.model.run_dma(&mut state.memory);
                state.dma_asked = false;
                for channel in 0..self.config.channels {
                    self.ask_for_burst(card * self.config.channels + channel, scheduler);
                }
                self.ask_for_dma(card, scheduler);
            }
            Transfer::Completions => {
                self.finish_completions(card);
                self.ask_for_dma(card, scheduler);
                self.notify(scheduler);
            }
        }
        self.start_bus(card, scheduler);
    }

    /// A burst is in memory: the card model takes its words.
    fn finish_burst(
        &mut self,
        link: u32,
        bytes: u64,
        is_last: bool,
        scheduler: &mut Scheduler<Event>,
    ) {
        let state = &mut self.links[link as usize];
        let card = &mut self.cards[state.card as usize];
        let words = LineSlice::Data(&self.data[..bytes as usize / 4]);
        let begin = LineSlice::Control(ControlWord::BEGIN_FRAGMENT);
        let end = LineSlice::Control(ControlWord::END_FRAGMENT);
        let begin = (!state.is_begun).then_some(begin);
        for slice in begin
            .into_iter()
            .chain([words])
            .chain(is_last.then_some(end))
        {
            let taken = card
                .model
                .handle_line(state.channel, slice, &mut card.memory);
            assert_eq!(taken, slice.words(), "a page was there before the burst");
        }
        state.is_begun = !is_last;
        state.chunks.pop_front();
        state.is_asking = false;
        let card = state.card;
        self.ask_for_burst(link, scheduler);
        self.send(link, scheduler);
        if !is_last {
            return;
        }
        if self.config.kind == ReceiverKind::FilarDma {
            self.ask_for_dma(card, scheduler);
        } else {
            self.notify(scheduler);
        }
    }

    /// Asks for the bus for what the card does as master.
    fn ask_for_dma(&mut self, card: u32, scheduler: &mut Scheduler<Event>) {
        let parameters = self.config.parameters;
        let state = &mut self.cards[card as usize];
        if state.dma_asked {
            return;
        }
        let has_pages = state.to_post.iter().any(|pages| !pages.is_empty());
        if core::mem::take(&mut state.descriptors_wait) && has_pages {
            state.write_descriptors();
        }
        let (transfer, duration) = match state.model.next_dma() {
            None => return,
            Some(DmaTransfer::Descriptors { words }) => {
                let bytes = u64::from(words) * 4;
                (Transfer::Descriptors, parameters.read_burst(bytes))
            }
            Some(DmaTransfer::Completions { words }) => {
                let bytes = u64::from(words) * 4;
                (Transfer::Completions, parameters.write_burst(bytes))
            }
        };
        state.dma_asked = true;
        state.bus.request(transfer, duration);
        self.start_bus(card, scheduler);
    }

    fn finish_completions(&mut self, card: u32) {
        let work = self.config.parameters.cpu_dma;
        let state = &mut self.cards[card as usize];
        let transfer = state.model.run_dma(&mut state.memory);
        state.dma_asked = false;
        let Some(DmaTransfer::Completions { words }) = transfer else {
            unreachable!("the transfer was asked for")
        };
        let block = state.memory.at(state.block_at(1), words as usize);
        let entries = CompletionEntry::read_all(block.expect("the block's page"));
        let entries: Vec<_> = entries.expect("the card writes sound blocks").collect();
        for entry in entries {
            let state = &mut self.cards[card as usize];
            let page = state.posted[entry.channel as usize].pop_front();
            let page = page.expect("an entry has its page");
            let channel = entry.channel;
            self.count(entry.len_words());
            self.steps.push_back(Step::Work(work));
            self.steps.push_back(Step::Collect {
                card,
                channel,
                page,
            });
        }
        self.steps.push_back(Step::WriteDescriptors { card });
    }

    /// What FIFOSTAT says waits becomes steps of the driver.
    fn read_status(&mut self, card: u32) {
        let work = self.config.parameters.cpu_single_cycle;
        let state = &mut self.cards[card as usize];
        let status = state.model.read_register(register::FIFOSTAT);
        for channel in 0..self.config.channels {
            for _ in 0..status >> (8 * channel) & 0xF {
                self.steps.push_back(Step::ReadAck { card, channel });
                self.steps.push_back(Step::Work(work));
                self.steps.push_back(Step::GiveBack { card, channel });
            }
        }
    }

    fn count(&mut self, words: u32) {
        assert_eq!(u64::from(words) * 4, self.config.fragment_bytes);
        self.fragments += 1;
        self.bytes += u64::from(words) * 4;
    }

    /// Wakes the driver if a card has enough for it.
    fn notify(&mut self, scheduler: &mut Scheduler<Event>) {
        let threshold = self.config.parameters.threshold;
        let is_due = self.config.kind == ReceiverKind::FilarDma
            || self.cards.iter().any(|card| card.waiting() >= threshold);
        if is_due && !self.is_busy && !self.interrupt_pending {
            self.interrupt_pending = true;
            let interrupt = self.config.parameters.interrupt;
            scheduler.after(interrupt, EventClass(2), Event::Interrupt);
        }
    }

    fn handle_interrupt(&mut self, scheduler: &mut Scheduler<Event>) {
        self.interrupt_pending = false;
        self.busy_since = scheduler.now();
        self.is_busy = true;
        self.go_on(scheduler);
    }

    /// The driver does its next step; without one it looks at all cards, and sleeps if none has
    /// enough.
    fn go_on(&mut self, scheduler: &mut Scheduler<Event>) {
        loop {
            let Some(step) = self.steps.pop_front() else {
                let threshold = self.config.parameters.threshold;
                let is_dma = self.config.kind == ReceiverKind::FilarDma;
                for (number, card) in (0..).zip(&self.cards) {
                    if !is_dma && card.waiting() >= threshold {
                        self.steps.push_back(Step::ReadStatus { card: number });
                    }
                }
                if self.steps.is_empty() {
                    self.is_busy = false;
                    let awake = scheduler.now().since(self.busy_since);
                    self.cpu_busy = DurationPs(self.cpu_busy.0 + awake.0);
                    return;
                }
                continue;
            };
            let parameters = &self.config.parameters;
            let read = parameters.clocks(parameters.register_read_clocks);
            let write = parameters.clocks(parameters.register_write_clocks);
            let (card, transfer, duration, waits) = match step {
                Step::Work(work) => {
                    scheduler.after(work, EventClass(2), Event::Host);
                    return;
                }
                Step::Collect {
                    card,
                    channel,
                    page,
                } => {
                    self.cards[card as usize].to_post[channel as usize].push(page);
                    continue;
                }
                Step::ReadStatus { card } => (card, Transfer::ReadStatus, read, true),
                Step::ReadAck { card, channel } => {
                    (card, Transfer::ReadAck { channel }, read, true)
                }
                Step::GiveBack { card, channel } => {
                    let page = self.cards[card as usize].posted[channel as usize].pop_front();
                    let page = page.expect("a page was acknowledged");
                    let transfer = Transfer::WriteRequest { channel, page };
                    (card, transfer, write, false)
                }
                // Two registers: the block's words and its address.
                Step::WriteDescriptors { card } => {
                    let twice = DurationPs(2 * write.0);
                    (card, Transfer::WriteDescriptor, twice, false)
                }
            };
            let bus = &mut self.cards[card as usize].bus;
            bus.request_by_host(transfer, duration);
            self.start_bus(card, scheduler);
            if waits {
                return;
            }
        }
    }

    fn sample(&self, now: SimPs) -> Sample {
        // The driver may be awake since long.
        let awake = match self.is_busy {
            true => now.since(self.busy_since).0,
            false => 0,
        };
        let accesses = self.cards.iter().map(|card| {
            let counters = card.model.counters();
            counters.reads + counters.writes
        });
        Sample {
            fragments: self.fragments,
            bytes: self.bytes,
            cpu_busy: self.cpu_busy.0 + awake,
            bus_busy: (self.cards.iter().map(|card| card.bus.busy().0))
                .max()
                .unwrap_or(0),
            accesses: accesses.sum(),
        }
    }
}

struct Sample {
    fragments: u64,
    bytes: u64,
    cpu_busy: u64,
    bus_busy: u64,
    accesses: u64,
}

impl Card {
    /// A card whose FIFOs hold all pages that it can take.
    fn new(config: &ReceiverHostConfig) -> Self {
        let memory = PageMemory::new(0x1000_0000, PAGES, PAGE_BYTES);
        let card = ReceiverCardConfig {
            kind: config.kind,
            ..ReceiverCardConfig::default()
        };
        let mut model = ReceiverCard::new(card, memory.map());
        let control = PAGE_SIZE_CODE << register::OCR_PAGE_SIZE_SHIFT;
        model.write_register(register::OCR, control);
        let channels = config.kind.channels() as usize;
        let mut made = Self {
            model,
            memory,
            bus: PciSegment::new(),
            dma_asked: false,
            descriptors_wait: false,
            to_post: vec![Vec::new(); channels],
            posted: vec![VecDeque::new(); channels],
        };
        let completion_at = made.block_at(1);
        made.model
            .write_register(register::COMPLETION, completion_at);
        let threshold = config.parameters.threshold;
        made.model.write_register(register::THRESHOLD, threshold);
        for channel in 0..config.channels {
            for page in 0..card.fifo_depth {
                let page = channel * card.fifo_depth + page;
                match config.kind {
                    ReceiverKind::FilarDma => made.to_post[channel as usize].push(page),
                    _ => made.post(channel, page),
                }
            }
        }
        if config.kind == ReceiverKind::FilarDma {
            made.write_descriptors();
            made.model.run_dma(&mut made.memory);
        }
        made
    }

    /// The bus address of the descriptor block (0) or the completion block (1).
    fn block_at(&self, which: u32) -> u32 {
        let map = self.memory.map();
        map.base + (PAGES - 2 + which) * map.page_bytes
    }

    fn post(&mut self, channel: u32, page: u32) {
        let address = self.memory.map().address(page).expect("a page of the card");
        self.posted[channel as usize].push_back(page);
        self.model.write_register(register::req(channel), address);
    }

    fn write_descriptors(&mut self) {
        let map = self.memory.map();
        let mut addresses: [Vec<u32>; DMA_CHANNELS] = Default::default();
        for (channel, pages) in self.to_post.iter_mut().enumerate() {
            for page in pages.drain(..) {
                addresses[channel].push(map.address(page).expect("a page of the card"));
                self.posted[channel].push_back(page);
            }
        }
        let mut block = [0; DESCRIPTOR_WORDS_MAX];
        let lists: [&[u32]; DMA_CHANNELS] = core::array::from_fn(|n| addresses[n].as_slice());
        let words = DescriptorBlock::emit(lists, &mut block);
        let at = self.block_at(0);
        let out = self.memory.at_mut(at, words).expect("the block's page");
        out.copy_from_slice(&block[..words]);
        self.model
            .write_register(register::DESCRIPTOR_WORDS, words as u32);
        self.model.write_register(register::DESCRIPTOR, at);
    }

    /// Fragments acknowledged and not read.
    fn waiting(&self) -> u32 {
        (0..self.model.config().kind.channels())
            .map(|channel| self.model.waiting(channel))
            .max()
            .unwrap_or(0)
    }
}

impl World for ReceiverHost {
    type Event = Event;

    fn label(&self, event: &Event) -> EventLabel {
        let (kind, key) = match *event {
            Event::Chunk { link } => (0, link),
            Event::BusFree { card } => (1, card),
            Event::Host => (2, 0),
            Event::Interrupt => (3, 0),
        };
        EventLabel {
            node: NodeId(0),
            kind,
            key: key.into(),
        }
    }

    fn handle(&mut self, _now: SimPs, event: Event, scheduler: &mut Scheduler<Event>) {
        match event {
            Event::Chunk { link } => self.handle_chunk(link, scheduler),
            Event::BusFree { card } => self.handle_bus_free(card, scheduler),
            Event::Host => self.go_on(scheduler),
            Event::Interrupt => self.handle_interrupt(scheduler),
        }
    }
}
