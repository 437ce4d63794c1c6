//! The receiver cards: words of one to four links into pages, reported through registers.
//!
//! [`ReceiverCard`] is FILAR in both firmware versions, and S32PCI64. Per channel it has a small
//! word buffer, an S-LINK destination, a request and an acknowledge FIFO; the host reaches all of it
//! through [`read_register`](ReceiverCard::read_register) and
//! [`write_register`](ReceiverCard::write_register) alone, and with the DMA protocol through blocks
//! in memory. It knows no time and owns no pages. The offsets are in
//! [`crate::card::receiver_register`], the blocks in [`crate::card::dma_block`].

use std::collections::VecDeque;

use livetime_wire::slink::{ControlWord, FragmentStatus, LineWord};
use livetime_wire::{LossCounts, Problem};

use crate::card::bus_map::BusMap;
use crate::card::dma_block::{
    COMPLETION_WORDS_MAX, CompletionEntry, DMA_CHANNELS, DescriptorBlock, ENTRIES_MAX, ENTRY_WORDS,
};
use crate::card::page_memory::PageMemory;
use crate::card::receiver_register as register;
use crate::line::{FlowControl, LineSlice, LinkState};
use crate::link_config::LinkConfig;
use crate::link_destination::{DestinationCounters, SlinkDestination};
use crate::page_fifo::{Completed, PageFifos};
use crate::page_store::PageStore;
use crate::problem_code;
use crate::reset_handshake::ResetPin;

/// Deepest FIFO of a card.
const FIFO_DEPTH_MAX: u32 = 63;

/// Which card with which firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverKind {
    /// FILAR, single-cycle firmware: four channels.
    FilarSingleCycle,
    /// FILAR, DMA-protocol firmware: three channels, the fourth's memory holds the blocks.
    FilarDma,
    /// S32PCI64: one channel. Its registers are modelled after FILAR's, which was derived from it.
    S32Pci64,
}

impl ReceiverKind {
    /// Channels that this card has.
    pub fn channels(self) -> u32 {
        match self {
            Self::FilarSingleCycle => 4,
            Self::FilarDma => DMA_CHANNELS as u32,
            Self::S32Pci64 => 1,
        }
    }
}

/// A receiver card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverCardConfig {
    /// The card. Default FILAR with single-cycle firmware.
    pub kind: ReceiverKind,
    /// Depth of the REQ and ACK FIFOs, 1 to 63, default 15 (31 on later firmware). The status
    /// nibbles saturate at 15.
    pub fifo_depth: u32,
    /// Words that each channel buffers while no page is there, 4 to 65 536, default 1024. XOFF is
    /// raised when half of them are taken; ours, since no public text says how many there are.
    pub buffer_words: u32,
    /// Temperature that the sensor reports, in degrees Celsius. Default 35.
    pub temperature: u8,
}

impl Default for ReceiverCardConfig {
    fn default() -> Self {
        Self {
            kind: ReceiverKind::FilarSingleCycle,
            fifo_depth: 15,
            buffer_words: 1024,
            temperature: 35,
        }
    }
}

impl ReceiverCardConfig {
    /// Every problem of the configuration; `path` is its key in the file.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (key, value, least, most) in [
            ("fifo_depth", self.fifo_depth, 1, FIFO_DEPTH_MAX),
            ("buffer_words", self.buffer_words, 4, 1 << 16),
        ] {
            if !(least..=most).contains(&value) {
                problems.push(Problem::new(
                    problem_code::CARD,
                    format!("{path}.{key}"),
                    value,
                    format!("{least} to {most}"),
                    "set what the card has: FIFOs of 15, or 31 with later firmware",
                ));
            }
        }
        problems
    }
}

/// What a host did wrong, and what a channel lost by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverCardCounters {
    /// Register reads.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
    /// Accesses to offsets where there is no register; they read 0.
    pub bad_offsets: u64,
    /// REQ writes with an address where no page begins; lost.
    pub bad_addresses: u64,
    /// REQ writes while the FIFO was full; lost.
    pub requests_lost: u64,
    /// ACK reads while there was no entry; they read 0.
    pub empty_reads: u64,
    /// Descriptor blocks that could not be read.
    pub bad_blocks: u64,
    /// Descriptor blocks fetched.
    pub blocks_fetched: u64,
    /// Completion blocks written.
    pub blocks_written: u64,
    /// Words lost because a channel's buffer was full.
    pub words_overflowed: u64,
    /// Words discarded on disabled channels.
    pub words_disabled: u64,
}

/// A transfer that the card will do as bus master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmaTransfer {
    /// Reads a descriptor block of so many words.
    Descriptors {
        /// Its words.
        words: u32,
    },
    /// Writes a completion block of so many words.
    Completions {
        /// Its words.
        words: u32,
    },
}

#[derive(Debug, Clone)]
struct Channel {
    destination: SlinkDestination,
    fifos: PageFifos,
    buffer: VecDeque<LineWord>,
    is_overflowed: bool,
    /// Begin and end word of the entry read last.
    received: (u32, u32),
}

/// A receiver card.
///
/// ```
/// use livetime_readout::LineSlice;
/// use livetime_readout::card::receiver_register as register;
/// use livetime_readout::card::{PageMemory, ReceiverCard, ReceiverCardConfig};
/// use livetime_wire::slink::ControlWord;
///
/// let mut memory = PageMemory::new(0x1000_0000, 4, 1024);
/// let mut card = ReceiverCard::new(ReceiverCardConfig::default(), memory.map());
/// card.write_register(register::req(2), 0x1000_0400);
/// for slice in [
///     LineSlice::Control(ControlWord::BEGIN_FRAGMENT),
///     LineSlice::Data(&[1, 2, 3]),
///     LineSlice::Control(ControlWord::END_FRAGMENT),
/// ] {
///     card.handle_line(2, slice, &mut memory);
/// }
/// assert_eq!(card.read_register(register::FIFOSTAT), 0xF0_F1_F0_F0);
/// assert_eq!(card.read_register(register::ack(2)), 3);
/// assert_eq!(memory.at(0x1000_0400, 3), Some(&[1, 2, 3][..]));
/// ```
#[derive(Debug, Clone)]
pub struct ReceiverCard {
    config: ReceiverCardConfig,
    map: BusMap,
    channels: Vec<Channel>,
    control: u32,
    mask: u32,
    expected: (ControlWord, ControlWord),
    /// Channel of the entry read last.
    last_ack: u32,
    descriptor: (u32, u32),
    fetch_pending: bool,
    completion_at: u32,
    threshold: u32,
    flush: bool,
    counters: ReceiverCardCounters,
}

impl ReceiverCard {
    /// A card after power-on, whose pages are those of `map`; its links are up.
    pub fn new(config: ReceiverCardConfig, map: BusMap) -> Self {
        let mut card = Self {
            map,
            channels: Vec::with_capacity(config.kind.channels() as usize),
            control: 0,
            mask: 0,
            expected: (ControlWord::BEGIN_FRAGMENT, ControlWord::END_FRAGMENT),
            last_ack: 0,
            descriptor: (0, 0),
            fetch_pending: false,
            completion_at: 0,
            threshold: 1,
            flush: false,
            counters: ReceiverCardCounters::default(),
            config,
        };
        card.reset_card();
        card
    }

    /// Reads the register at an offset; reading an ACK takes its entry.
    pub fn read_register(&mut self, offset: u32) -> u32 {
        self.counters.reads += 1;
        match offset {
            register::OCR => self.control,
            register::OSR => self.status(),
            register::IMASK => self.mask,
            register::FIFOSTAT => self.fifo_status(),
            register::SCW => self.received().0,
            register::ECW => self.received().1,
            register::THRESHOLD if self.is_dma() => self.threshold,
            _ => match self.channel_at(offset, register::ack(0)) {
                Some(channel) if !self.is_dma() => self.take_ack(channel),
                _ => {
                    self.counters.bad_offsets += 1;
                    0
                }
            },
        }
    }

    /// Writes the register at an offset.
    pub fn write_register(&mut self, offset: u32, value: u32) {
        self.counters.writes += 1;
        match offset {
            register::OCR => self.write_control(value),
            register::IMASK => self.mask = value,
            register::SCW => self.expect(ControlWord(value), self.expected.1),
            register::ECW => self.expect(self.expected.0, ControlWord(value)),
            register::TESTIN => self.test_input(value),
            register::DESCRIPTOR if self.is_dma() => {
                self.descriptor.0 = value;
                self.fetch_pending = true;
            }
            register::DESCRIPTOR_WORDS if self.is_dma() => self.descriptor.1 = value,
            register::COMPLETION if self.is_dma() => self.completion_at = value,
            register::THRESHOLD if self.is_dma() => {
                self.flush |= value & register::THRESHOLD_FLUSH != 0;
                let threshold = value & !register::THRESHOLD_FLUSH;
                if threshold > 0 {
                    self.threshold = threshold.min(ENTRIES_MAX as u32);
                }
            }
            _ => match self.channel_at(offset, register::req(0)) {
                Some(channel) if !self.is_dma() => self.request(channel, value),
                _ => self.counters.bad_offsets += 1,
            },
        }
    }

    /// Whether the interrupt line is asserted: a condition of OSR whose bit is set in IMASK, or the
    /// temperature at or above its alarm.
    pub fn has_interrupt(&self) -> bool {
        let alarm = self.mask >> register::TEMPERATURE_SHIFT & 0xFF;
        let conditions = self.status() & !(0xFF << register::TEMPERATURE_SHIFT);
        conditions & self.mask != 0 || (alarm != 0 && u32::from(self.config.temperature) >= alarm)
    }

    /// Takes words of a channel's line as the page bookkeeping allows; returns how many. The rest
    /// stays on the line.
    ///
    /// # Panics
    /// If the card has no such channel.
    pub fn handle_line<S: PageStore + ?Sized>(
        &mut self,
        channel: u32,
        line: LineSlice<'_>,
        store: &mut S,
    ) -> usize {
        if self.is_disabled(channel) {
            self.counters.words_disabled += line.words() as u64;
            return line.words();
        }
        self.drain_buffer(channel, store);
        let state = &mut self.channels[channel as usize];
        if !state.buffer.is_empty() {
            return 0;
        }
        let mut store = Swapping::new(store, self.control);
        state
            .destination
            .handle_line(line, &mut state.fifos, &mut store)
    }

    /// Takes one word that a link card delivers and does not keep: without a page it goes into the
    /// channel's buffer, and is lost when that is full (the overflow bit).
    ///
    /// # Panics
    /// If the card has no such channel.
    pub fn handle_word<S: PageStore + ?Sized>(
        &mut self,
        channel: u32,
        word: LineWord,
        store: &mut S,
    ) {
        let slice = match &word {
            LineWord::Data(data) => LineSlice::Data(core::slice::from_ref(data)),
            LineWord::Control(word) => LineSlice::Control(*word),
        };
        if self.handle_line(channel, slice, store) == 1 {
            return;
        }
        let state = &mut self.channels[channel as usize];
        if state.buffer.len() < self.config.buffer_words as usize {
            state.buffer.push_back(word);
        } else {
            state.is_overflowed = true;
            self.counters.words_overflowed += 1;
        }
    }

    /// Moves buffered words on into pages posted meanwhile.
    pub fn pump<S: PageStore + ?Sized>(&mut self, store: &mut S) {
        for channel in 0..self.config.kind.channels() {
            self.drain_buffer(channel, store);
        }
    }

    /// LDOWN# of a channel's link.
    ///
    /// # Panics
    /// If the card has no such channel.
    pub fn handle_link<S: PageStore + ?Sized>(
        &mut self,
        channel: u32,
        link: LinkState,
        store: &mut S,
    ) {
        self.drain_buffer(channel, store);
        let mut store = Swapping::new(store, self.control);
        let state = &mut self.channels[channel as usize];
        state
            .destination
            .handle_link(link, &mut state.fifos, &mut store);
    }

    /// The URESET# pin of a channel's link.
    pub fn reset_pin(&self, channel: u32) -> ResetPin {
        match self.control & register::ocr_ureset(channel) {
            0 => ResetPin::Released,
            _ => ResetPin::Driven,
        }
    }

    /// URL\[3:0\] of a channel's link.
    pub fn return_lines(&self, channel: u32) -> u8 {
        (self.control >> register::ocr_return_lines_shift(channel) & 0xF) as u8
    }

    /// What a channel asks of its source: XOFF while half of its buffer is taken, or no page is
    /// there to fill.
    ///
    /// # Panics
    /// If the card has no such channel.
    pub fn flow(&self, channel: u32) -> FlowControl {
        let state = &self.channels[channel as usize];
        let is_half_full = state.buffer.len() >= self.config.buffer_words as usize / 2;
        let is_starved =
            state.fifos.request_filled() == 0 && state.destination.pages_filling() == 0;
        match self.is_disabled(channel) {
            false if is_half_full || is_starved => FlowControl::Xoff,
            _ => FlowControl::Xon,
        }
    }

    /// Entries in a channel's ACK FIFO, which FIFOSTAT shows as 15 at most.
    ///
    /// # Panics
    /// If the card has no such channel.
    pub fn waiting(&self, channel: u32) -> u32 {
        self.channels[channel as usize].fifos.acknowledge_filled()
    }

    /// The transfer that the card does next as bus master, if any (DMA protocol).
    pub fn next_dma(&self) -> Option<DmaTransfer> {
        if self.fetch_pending {
            let words = self.descriptor.1;
            return Some(DmaTransfer::Descriptors { words });
        }
        let waiting = self.acknowledges().min(ENTRIES_MAX as u32);
        let due = waiting >= self.threshold || (self.flush && waiting > 0);
        (self.is_dma() && due).then_some(DmaTransfer::Completions {
            words: 1 + waiting * ENTRY_WORDS as u32,
        })
    }

    /// Does that transfer.
    pub fn run_dma(&mut self, memory: &mut PageMemory) -> Option<DmaTransfer> {
        let transfer = self.next_dma()?;
        match transfer {
            DmaTransfer::Descriptors { .. } => self.fetch(memory),
            DmaTransfer::Completions { .. } => self.write_completions(memory),
        }
        Some(transfer)
    }

    /// The configuration.
    pub fn config(&self) -> &ReceiverCardConfig {
        &self.config
    }

    /// The counters of the card.
    pub fn counters(&self) -> ReceiverCardCounters {
        self.counters
    }

    /// The counters of a channel's destination.
    ///
    /// # Panics
    /// If the card has no such channel.
    pub fn destination_counters(&self, channel: u32) -> &DestinationCounters {
        self.channels[channel as usize].destination.counters()
    }

    /// Fragments lost at a channel's destination.
    ///
    /// # Panics
    /// If the card has no such channel.
    pub fn losses(&self, channel: u32) -> &LossCounts {
        self.channels[channel as usize].destination.losses()
    }

    fn is_dma(&self) -> bool {
        self.config.kind == ReceiverKind::FilarDma
    }

    fn is_disabled(&self, channel: u32) -> bool {
        self.control & register::ocr_disable(channel) != 0
    }

    fn channel_at(&self, offset: u32, first: u32) -> Option<u32> {
        let distance = offset.checked_sub(first)?;
        let channel = distance / 16;
        (distance.is_multiple_of(16) && channel < self.config.kind.channels()).then_some(channel)
    }

    fn link_config(&self) -> LinkConfig {
        let size = self.control >> register::OCR_PAGE_SIZE_SHIFT & 0b111;
        // The length field of the ACK has 20 bits, and pages are no longer than their place.
        let page_bytes = register::PAGE_BYTES[size as usize].min(self.map.page_bytes);
        LinkConfig {
            page_words: page_bytes / 4,
            fragment_words_max: u32::MAX,
            begin: self.expected.0,
            end: self.expected.1,
            ..LinkConfig::default()
        }
    }

    fn reset_card(&mut self) {
        self.control = 0;
        self.mask = 0;
        self.fetch_pending = false;
        self.flush = false;
        let link = self.link_config();
        let config = self.config;
        self.channels.clear();
        self.channels
            .extend((0..config.kind.channels()).map(|_| Channel {
                destination: SlinkDestination::new(&link),
                fifos: PageFifos::new(config.fifo_depth, config.fifo_depth),
                buffer: VecDeque::with_capacity(config.buffer_words as usize),
                is_overflowed: false,
                received: (0, 0),
            }));
    }

    fn write_control(&mut self, value: u32) {
        if value & register::OCR_RESET != 0 {
            self.reset_card();
        }
        let changed = self.control ^ value;
        self.control = value;
        for channel in 0..self.config.kind.channels() {
            let state = &mut self.channels[channel as usize];
            let ureset = register::ocr_ureset(channel);
            if changed & value & ureset != 0 {
                state.destination.hold();
                state.is_overflowed = false;
            }
        }
        if changed >> register::OCR_PAGE_SIZE_SHIFT & 0b111 != 0 {
            self.configure();
        }
    }

    fn expect(&mut self, start: ControlWord, end: ControlWord) {
        self.expected = (start, end);
        self.configure();
    }

    fn configure(&mut self) {
        let link = self.link_config();
        for state in &mut self.channels {
            state.destination.configure(&link);
        }
    }

    fn test_input(&mut self, word: u32) {
        if self.control & register::OCR_TEST == 0 {
            return;
        }
        for channel in 0..self.config.kind.channels() {
            let is_disabled = self.is_disabled(channel);
            let buffer = &mut self.channels[channel as usize].buffer;
            if !is_disabled && buffer.len() < self.config.buffer_words as usize {
                buffer.push_back(LineWord::Data(word));
            }
        }
    }

    fn status(&self) -> u32 {
        let mut status = u32::from(self.config.temperature) << register::TEMPERATURE_SHIFT;
        for channel in 0..4 {
            let Some(state) = self.channels.get(channel as usize) else {
                status |= register::osr_absent(channel);
                continue;
            };
            let bits = [
                (state.fifos.request_free() > 0, register::OSR_REQ_SPACE),
                (
                    state.fifos.acknowledge_filled() > 0,
                    register::OSR_ACK_WAITING,
                ),
                (
                    state.destination.link() == LinkState::Down,
                    register::osr_down(channel),
                ),
                (state.is_overflowed, register::osr_overflow(channel)),
                (
                    self.flow(channel) == FlowControl::Xoff,
                    register::osr_xoff(channel),
                ),
            ];
            status |= bits
                .iter()
                .filter(|(is_set, _)| *is_set)
                .fold(0, |bits, (_, bit)| bits | bit);
        }
        status
    }

    fn fifo_status(&self) -> u32 {
        let channels = self.channels.iter().enumerate();
        channels.fold(0, |status, (channel, state)| {
            let entries = state.fifos.acknowledge_filled().min(15);
            let free = state.fifos.request_free().min(15);
            status | (free << 4 | entries) << (8 * channel)
        })
    }

    fn received(&self) -> (u32, u32) {
        self.channels[self.last_ack as usize].received
    }

    fn request(&mut self, channel: u32, address: u32) {
        let Some(page) = self.map.page(address) else {
            self.counters.bad_addresses += 1;
            return;
        };
        let posted = self.channels[channel as usize].fifos.post(page);
        self.counters.requests_lost += u64::from(posted.is_err());
    }

    fn take_ack(&mut self, channel: u32) -> u32 {
        let state = &mut self.channels[channel as usize];
        let Some(completed) = state.fifos.poll_completed() else {
            self.counters.empty_reads += 1;
            return 0;
        };
        state.received = control_words(&completed);
        self.last_ack = channel;
        ack_word(&completed)
    }

    fn acknowledges(&self) -> u32 {
        let filled = self.channels.iter().map(|c| c.fifos.acknowledge_filled());
        filled.sum()
    }

    fn fetch(&mut self, memory: &PageMemory) {
        self.fetch_pending = false;
        let (address, words) = self.descriptor;
        let block = memory.at(address, words as usize);
        let Some(Ok(block)) = block.map(DescriptorBlock::new_checked) else {
            self.counters.bad_blocks += 1;
            return;
        };
        self.counters.blocks_fetched += 1;
        for channel in 0..DMA_CHANNELS {
            for address in block.addresses(channel) {
                self.request(channel as u32, *address);
            }
        }
    }

    /// Entries in turn over the channels, oldest first within each.
    fn write_completions(&mut self, memory: &mut PageMemory) {
        let waiting = (self.acknowledges() as usize).min(ENTRIES_MAX);
        let words = 1 + waiting * ENTRY_WORDS;
        let mut block = [0; COMPLETION_WORDS_MAX];
        block[0] = waiting as u32;
        let Some(out) = memory.at_mut(self.completion_at, words) else {
            // A bus error: the entries stay, and nothing is due until a good address comes.
            self.counters.bad_blocks += 1;
            self.threshold = u32::MAX;
            self.flush = false;
            return;
        };
        let (entries, _) = block[1..].as_chunks_mut::<ENTRY_WORDS>();
        let mut entries = entries.iter_mut();
        let mut left = waiting;
        while left > 0 {
            for (channel, state) in self.channels.iter_mut().enumerate() {
                if left > 0
                    && let Some(completed) = state.fifos.poll_completed()
                {
                    let (start, end) = control_words(&completed);
                    let entry = CompletionEntry {
                        channel: channel as u32,
                        ack: ack_word(&completed),
                        start,
                        end,
                    };
                    entry.emit(entries.next().expect("as many entries as wait"));
                    left -= 1;
                }
            }
        }
        out.copy_from_slice(&block[..words]);
        self.flush &= self.acknowledges() > 0;
        self.counters.blocks_written += 1;
    }

    fn drain_buffer<S: PageStore + ?Sized>(&mut self, channel: u32, store: &mut S) {
        let mut store = Swapping::new(store, self.control);
        let state = &mut self.channels[channel as usize];
        while let Some(word) = state.buffer.front().copied() {
            let (fifos, destination) = (&mut state.fifos, &mut state.destination);
            if destination.handle_word(word, fifos, &mut store) == 0 {
                return;
            }
            state.buffer.pop_front();
        }
    }
}

/// The control words received with an entry, 0 where there was none.
fn control_words(completed: &Completed) -> (u32, u32) {
    let word = |word: Option<ControlWord>| word.map_or(0, |word| word.0);
    (word(completed.begin), word(completed.end))
}

/// An entry as the ACK register gives it.
fn ack_word(completed: &Completed) -> u32 {
    let status = completed.status;
    let bit = |flag: FragmentStatus, bit: u32| if status.contains(flag) { bit } else { 0 };
    completed.len_words & register::ACK_LENGTH
        | bit(FragmentStatus::NO_BEGIN, register::ACK_NO_START)
        | bit(FragmentStatus::WRONG_BEGIN, register::ACK_WRONG_START)
        | bit(FragmentStatus::NO_END, register::ACK_NO_END)
        | bit(FragmentStatus::WRONG_END, register::ACK_WRONG_END)
}

/// Pages whose words are swapped as OCR says when they are full.
struct Swapping<'s, S: PageStore + ?Sized> {
    store: &'s mut S,
    control: u32,
}

impl<'s, S: PageStore + ?Sized> Swapping<'s, S> {
    fn new(store: &'s mut S, control: u32) -> Self {
        Self { store, control }
    }
}

impl<S: PageStore + ?Sized> PageStore for Swapping<'_, S> {
    fn prepare(&mut self, page: u32, len_words: u32) {
        self.store.prepare(page, len_words);
    }

    fn start(&mut self, page: u32) {
        self.store.start(page);
    }

    fn words_mut(&mut self, page: u32) -> &mut [u32] {
        self.store.words_mut(page)
    }

    fn finish(&mut self, page: u32, len_words: u32) {
        let words = self.store.words_mut(page);
        let len = len_words as usize;
        if self.control & register::OCR_SWAP_BYTES != 0 {
            for word in &mut words[..len] {
                *word = word.swap_bytes();
            }
        }
        if self.control & register::OCR_SWAP_WORDS != 0 {
            // The bus is 64 bits wide: an odd last word takes its partner's place.
            let end = len.next_multiple_of(2).min(words.len());
            for pair in words[..end].chunks_exact_mut(2) {
                pair.swap(0, 1);
            }
        }
        self.store.finish(page, len_words);
    }
}

#[cfg(test)]
mod tests;
