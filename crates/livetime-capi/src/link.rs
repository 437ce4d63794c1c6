//! The handle of the link library: card models, their memory, and data sources at their inputs.
//!
//! A program written for the cards' driver package runs against it: the calls and their order are
//! the same, the bus addresses are those of [`PageMemory`]. There is no card behind it: each
//! channel can be given a SLIDAS data source, which sends as far as the card has pages.

use std::cell::RefCell;
use std::rc::Rc;

use livetime_readout::card::receiver_register as register;
use livetime_readout::card::{
    PageMemory, ReceiverCard, ReceiverCardConfig, ReceiverKind, SegmentError, SegmentId,
};
use livetime_readout::driver::link_library::{CHANNELS_PER_CARD, LibraryError, PAGES_MAX};
use livetime_readout::driver::{CardChannel, LinkLibrary, LinkLibraryConfig, PagesOut, SharedCard};
use livetime_readout::{BlockEnd, LineSlice, LinkState};
use livetime_source::pattern::{Pattern, PatternConfig, WORDS_MAX};
use livetime_source::pattern_source::{LinkFlow, PatternPoll};
use livetime_source::{Slidas, SlidasConfig};
use livetime_wire::RunNs;
use livetime_wire::slink::{ControlWord, LineWord};

use crate::link_record::{Firmware, LinkChannel, LinksConfig, PageBatch, PagesFilled};
use crate::status::{Failure, Status};

/// Cards at most.
const CARDS_MAX: u32 = 4;
/// Bus address of the first card's memory, and the distance to the next card's.
const MEMORY_BASE: u32 = 0x2000_0000;
const MEMORY_STEP: u32 = 0x1000_0000;
/// Pages of a card's memory, those of the DMA protocol's blocks included.
const MEMORY_PAGES: u32 = 1024;

/// Cards, their memory, their data sources, and the library over them.
pub struct Links {
    library: LinkLibrary<CardChannel>,
    cards: Vec<Rc<RefCell<SharedCard>>>,
    /// Per channel number.
    sources: Vec<Option<DataSource>>,
    filled: PagesOut,
    calls: u64,
    /// Set while a call is under way: still set at the next one, a panic cut the call short.
    busy: bool,
}

/// A SLIDAS at a channel, and the block that the card has not taken whole.
struct DataSource {
    slidas: Slidas,
    block: Vec<LineWord>,
    next: usize,
}

impl Links {
    pub(crate) fn open(config: &LinksConfig) -> Result<Self, Failure> {
        let refuse = |text: String| Err(Failure::new(Status::ErrorArgument, text));
        if !(1..=CARDS_MAX).contains(&config.cards) {
            return refuse(format!(
                "{} cards, there can be 1 to {CARDS_MAX}",
                config.cards
            ));
        }
        let size = register::PAGE_BYTES
            .iter()
            .position(|b| *b == config.page_bytes);
        let Some(size) = size.filter(|_| config.page_bytes <= 1 << 16) else {
            let bytes = config.page_bytes;
            return refuse(format!(
                "pages of {bytes} B, a card has 256 B and 1, 2, 4, 16, 64 KiB"
            ));
        };
        let kind = match config.firmware {
            single if single == Firmware::SingleCycle as u32 => ReceiverKind::FilarSingleCycle,
            dma if dma == Firmware::DmaProtocol as u32 => ReceiverKind::FilarDma,
            other => return refuse(format!("firmware {other}, there are 0 and 1")),
        };
        let [start, end] = [config.start_word, config.end_word];
        if ControlWord(start).matches(ControlWord(end)) {
            return refuse(format!(
                "start word {start:#010x} and end word {end:#010x} are the same above bit 3; a card \
                 would take each end of a block for the start of another one, so give words that \
                 differ there, such as 0xb0f00000 and 0xe0f00000"
            ));
        }
        let mut cards = Vec::new();
        let mut channels = Vec::new();
        for number in 0..config.cards {
            let base = MEMORY_BASE + number * MEMORY_STEP;
            let memory = PageMemory::new(base, MEMORY_PAGES, config.page_bytes);
            let card = ReceiverCardConfig {
                kind,
                ..ReceiverCardConfig::default()
            };
            let mut card = ReceiverCard::new(card, memory.map());
            let swap = (u32::from(config.swap_bytes) * register::OCR_SWAP_BYTES)
                | (u32::from(config.swap_words) * register::OCR_SWAP_WORDS);
            let control = (size as u32) << register::OCR_PAGE_SIZE_SHIFT | swap;
            card.write_register(register::OCR, control);
            card.write_register(register::SCW, config.start_word);
            card.write_register(register::ECW, config.end_word);
            let shared = SharedCard::new(card, memory);
            channels.extend((0..CHANNELS_PER_CARD).map(|channel| {
                let is_there = channel < kind.channels();
                is_there.then(|| CardChannel::new(&shared, channel))
            }));
            cards.push(shared);
        }
        let sources = channels.iter().map(|_| None).collect();
        let library = LinkLibrary::open(LinkLibraryConfig::default(), channels);
        Ok(Self {
            library: library.map_err(refused)?,
            cards,
            sources,
            filled: PagesOut::default(),
            calls: 0,
            busy: false,
        })
    }

    /// Runs one call; refuses if an earlier one never came back.
    pub(crate) fn enter(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        if self.busy {
            let text = "an earlier call failed with a bug; the links can only be closed";
            return Err(Failure::new(Status::ErrorInternal, text));
        }
        self.busy = true;
        self.calls += 1;
        let result = call(self);
        self.busy = false;
        result
    }

    pub(crate) fn init(&mut self, channels: &[u32]) -> Result<(), Failure> {
        self.library.init(channels).map_err(refused)
    }

    pub(crate) fn allocate(&mut self, card: u32, bytes: u64, name: &str) -> Result<u32, Failure> {
        let mut shared = self.card(card)?.borrow_mut();
        let id = shared.memory.allocate(bytes, name).map_err(no_segment)?;
        Ok(id.0)
    }

    pub(crate) fn free(&mut self, card: u32, segment: u32) -> Result<(), Failure> {
        let mut shared = self.card(card)?.borrow_mut();
        let pages = shared
            .memory
            .pages(SegmentId(segment))
            .map_err(no_segment)?;
        let mut held = self.library.pages_held(card);
        if let Some(page) = held.find(|page| pages.contains(page)) {
            let address = shared.memory.map().address(page).unwrap_or(0);
            let text = format!(
                "segment {segment} has the page at bus address {address:#010x}, which is with a \
                 channel; free it when all its pages came out, or close the links"
            );
            return Err(Failure::new(Status::ErrorArgument, text));
        }
        shared.memory.free(SegmentId(segment)).map_err(no_segment)
    }

    pub(crate) fn bus_address(&mut self, card: u32, segment: u32) -> Result<u32, Failure> {
        let shared = self.card(card)?.borrow();
        let address = shared.memory.bus_address(SegmentId(segment));
        address.map_err(no_segment)
    }

    /// Where a bus address lies in this process.
    pub(crate) fn memory_at(&mut self, address: u32, words: usize) -> Result<*const u32, Failure> {
        let memories = self.cards.iter().map(|card| card.borrow());
        let mut found = memories.filter_map(|s| s.memory.at(address, words).map(<[u32]>::as_ptr));
        found.next().ok_or_else(|| {
            let text = format!("no memory of {words} words at bus address {address:#010x}");
            Failure::new(Status::ErrorArgument, text)
        })
    }

    /// Gives pages to a channel; how many were taken, and why the one behind them was not.
    pub(crate) fn pages_in(
        &mut self,
        batch: &PageBatch,
    ) -> Result<(u32, Option<Failure>), Failure> {
        let count = batch.count as usize;
        let refuse = |text: String| Failure::new(Status::ErrorArgument, text);
        let Some(addresses) = batch.addresses.get(..count) else {
            return Err(refuse(format!(
                "{count} pages, a call takes at most {PAGES_MAX}"
            )));
        };
        self.library.link_status(batch.channel).map_err(refused)?;
        let card = self.card(batch.channel / CHANNELS_PER_CARD)?;
        let mut pages = [0; PAGES_MAX];
        let mut good = 0;
        {
            let memory = &card.borrow().memory;
            let page_of = |address| {
                let page = memory.map().page(address);
                page.filter(|page| memory.is_allocated(*page))
            };
            for (slot, address) in pages.iter_mut().zip(addresses) {
                let Some(page) = page_of(*address) else { break };
                *slot = page;
                good += 1;
            }
        }
        let given = self.library.pages_in(batch.channel, &pages[..good]);
        let given = given.map_err(refused)?;
        let place = |index: usize| {
            let address = addresses[index];
            format!("page {index} of those given, at bus address {address:#010x},")
        };
        let failure = if given.refused.is_some() {
            let place = place(given.taken);
            Some(format!(
                "{place} is with a channel already; give it again when it came out"
            ))
        } else if given.taken == good && good < count {
            let place = place(good);
            Some(format!(
                "{place} is not the start of one in a segment of the card"
            ))
        } else {
            None
        };
        Ok((given.taken as u32, failure.map(refuse)))
    }

    /// Exchanges pages with the cards, and lets the data sources send as far as there are pages.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let now = RunNs(self.calls);
        self.library.flush(now).map_err(refused)?;
        for card in &self.cards {
            card.borrow_mut().exchange_blocks();
        }
        self.feed(now);
        for card in &self.cards {
            let mut shared = card.borrow_mut();
            // What waits below the threshold is asked for.
            shared
                .card
                .write_register(register::THRESHOLD, register::THRESHOLD_FLUSH);
            shared.exchange_blocks();
        }
        self.library.flush(now).map_err(refused)?;
        Ok(())
    }

    pub(crate) fn pages_out(&mut self, channel: u32) -> Result<PagesFilled, Failure> {
        self.library
            .pages_out(channel, &mut self.filled)
            .map_err(refused)?;
        let map = self
            .card(channel / CHANNELS_PER_CARD)?
            .borrow()
            .memory
            .map();
        let mut out = PagesFilled {
            channel,
            count: self.filled.pages.len() as u32,
            ..PagesFilled::default()
        };
        for (index, completed) in self.filled.pages.iter().enumerate() {
            out.addresses[index] = map.address(completed.page).unwrap_or(0);
            out.words[index] = completed.len_words;
            out.status[index] = completed.status.0;
            out.start_words[index] = completed.begin.map_or(0, |word| word.0);
            out.end_words[index] = completed.end.map_or(0, |word| word.0);
            out.more_to_come[index] = completed.block_end == BlockEnd::MoreToCome;
        }
        Ok(out)
    }

    pub(crate) fn in_free(&mut self, channel: u32) -> Result<u32, Failure> {
        Ok(self.library.in_free(channel).map_err(refused)? as u32)
    }

    pub(crate) fn channel(&mut self, index: usize) -> Option<LinkChannel> {
        let info = self.library.info().get(index).copied()?;
        Some(LinkChannel {
            channel: info.channel,
            card: info.card,
            enabled: info.is_enabled,
            link_down: info.status.link == LinkState::Down,
            resetting: info.status.resetting,
            xoff: info.status.flow == livetime_readout::FlowControl::Xoff,
            request_free: info.status.request_free,
            pages_in: info.pages_in,
            pages_out: info.pages_out,
            pages_returned: info.pages_returned,
        })
    }

    /// Resets a link from begin to end: URESET is driven, the link goes down and comes up, URESET
    /// is released.
    pub(crate) fn link_reset(&mut self, channel: u32) -> Result<(), Failure> {
        let now = RunNs(self.calls);
        self.library.link_reset(now, channel).map_err(refused)?;
        self.bring_up(channel)
    }

    pub(crate) fn reset(&mut self, card: u32) -> Result<(), Failure> {
        let now = RunNs(self.calls);
        self.library.reset(now, card).map_err(refused)?;
        let first = card * CHANNELS_PER_CARD;
        let channels: Vec<u32> = self
            .library
            .info()
            .iter()
            .map(|info| info.channel)
            .collect();
        let of_card = |channel: &u32| (first..first + CHANNELS_PER_CARD).contains(channel);
        for channel in channels.into_iter().filter(of_card) {
            self.bring_up(channel)?;
        }
        Ok(())
    }

    /// Puts a SLIDAS at a channel: pattern as on the card's switch, words of a block.
    pub(crate) fn connect_source(
        &mut self,
        channel: u32,
        pattern: u32,
        words: u32,
        blocks: u64,
    ) -> Result<(), Failure> {
        self.library.link_status(channel).map_err(refused)?;
        let refuse = |text: String| Failure::new(Status::ErrorArgument, text);
        let known = [1, 2, 3, 4, 8].contains(&pattern);
        let kind = (pattern.to_string().parse::<Pattern>().ok()).filter(|_| known);
        let kind = kind.ok_or_else(|| {
            let text = format!("there is no pattern {pattern}, there are 1, 2, 3, 4 and 8");
            refuse(text)
        })?;
        let allowed = kind.words_min()..=WORDS_MAX;
        if !allowed.contains(&(words as usize)) {
            let (least, most) = allowed.into_inner();
            return Err(refuse(format!(
                "blocks of {words} words, those of pattern {pattern} have {least} to {most}"
            )));
        }
        let config = SlidasConfig {
            pattern: PatternConfig {
                pattern: kind,
                words: words as usize,
                ..PatternConfig::default()
            },
            ..SlidasConfig::default()
        };
        self.sources[channel as usize] = Some(DataSource {
            slidas: Slidas::new(&config, blocks),
            block: Vec::new(),
            next: 0,
        });
        Ok(())
    }

    fn feed(&mut self, now: RunNs) {
        for (number, source) in (0u32..).zip(&mut self.sources) {
            let Some(source) = source else { continue };
            let mut shared = self.cards[(number / CHANNELS_PER_CARD) as usize].borrow_mut();
            while source.send(now, number % CHANNELS_PER_CARD, &mut shared) {}
        }
    }

    fn bring_up(&mut self, channel: u32) -> Result<(), Failure> {
        let link = self.library.link_mut(channel).map_err(refused)?;
        let on_card = channel % CHANNELS_PER_CARD;
        {
            let mut shared = link.shared().borrow_mut();
            let SharedCard { card, memory, .. } = &mut *shared;
            card.handle_link(on_card, LinkState::Down, memory);
            card.handle_link(on_card, LinkState::Up, memory);
        }
        if let Some(source) = &mut self.sources[channel as usize] {
            // The block that was cut is not sent on.
            source.next = source.block.len();
        }
        link.release_reset();
        Ok(())
    }

    fn card(&self, card: u32) -> Result<&Rc<RefCell<SharedCard>>, Failure> {
        self.cards.get(card as usize).ok_or_else(|| {
            let cards = self.cards.len();
            refused(LibraryError::NoCard { card, cards })
        })
    }
}

impl DataSource {
    /// Sends the next word of its block; `false` when the card does not take it or none is left.
    fn send(&mut self, now: RunNs, channel: u32, shared: &mut SharedCard) -> bool {
        if self.next == self.block.len() {
            self.next = 0;
            if self.slidas.poll(now, LinkFlow::On, &mut self.block) != PatternPoll::Send {
                self.block.clear();
                return false;
            }
        }
        let SharedCard { card, memory, .. } = shared;
        let word = &self.block[self.next];
        let slice = match word {
            LineWord::Data(data) => LineSlice::Data(core::slice::from_ref(data)),
            LineWord::Control(word) => LineSlice::Control(*word),
        };
        let taken = card.handle_line(channel, slice, memory);
        self.next += taken;
        taken > 0
    }
}

fn refused(error: LibraryError) -> Failure {
    Failure::new(Status::ErrorArgument, error.to_string())
}

fn no_segment(error: SegmentError) -> Failure {
    Failure::new(Status::ErrorArgument, error.to_string())
}
