//! A channel of a receiver card as a [`PageLink`], through its registers alone.
//!
//! What a driver does on the bus is done here with the same accesses: an address into REQ, FIFOSTAT
//! for what waits, ACK, and the received control words after it. With the DMA protocol the card is
//! given blocks instead. The channels of a card share it; the library over them is
//! [`crate::driver::LinkLibrary`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use livetime_wire::RunNs;
use livetime_wire::slink::{ControlWord, FragmentStatus};

use crate::card::bus_map::BusMap;
use crate::card::dma_block::{
    COMPLETION_WORDS_MAX, CompletionEntry, DESCRIPTOR_WORDS_MAX, DMA_CHANNELS, DescriptorBlock,
    ENTRIES_MAX,
};
use crate::card::page_memory::PageMemory;
use crate::card::receiver_card::{DmaTransfer, ReceiverCard, ReceiverKind};
use crate::card::receiver_register as register;
use crate::line::{FlowControl, LinkState, LinkStatus};
use crate::page_fifo::{BlockEnd, Completed};
use crate::page_link::{PageError, PageLink};

/// A card with the memory that it masters, and what its driver keeps for all its channels.
#[derive(Debug)]
pub struct SharedCard {
    /// The card.
    pub card: ReceiverCard,
    /// The host's memory.
    pub memory: PageMemory,
    map: BusMap,
    /// Bus addresses of the two blocks (DMA protocol).
    descriptor_at: u32,
    completion_at: u32,
    /// Per channel: addresses that go into the next block, and entries that came with one.
    to_post: Vec<Vec<u32>>,
    came: Vec<VecDeque<CompletionEntry>>,
    /// Pages posted and not completed, in their order, per channel: the card does not say which.
    posted: Vec<VecDeque<u32>>,
}

impl SharedCard {
    /// A card with its memory; the last pages of the memory, [`SharedCard::block_pages`] of them,
    /// hold the blocks of the DMA protocol and are no link's and no segment's.
    ///
    /// # Panics
    /// If the memory has no page besides those, or a segment lies in them.
    pub fn new(card: ReceiverCard, mut memory: PageMemory) -> Rc<RefCell<Self>> {
        let map = memory.map();
        let of_blocks = Self::block_pages(map.page_bytes);
        memory.reserve_end(of_blocks);
        let channels = card.config().kind.channels() as usize;
        let depth = card.config().fifo_depth as usize;
        let at = |page: u32| map.base + page * map.page_bytes;
        let of_completions = pages_of(COMPLETION_WORDS_MAX, map.page_bytes);
        let descriptor_at = at(map.pages - of_blocks);
        let completion_at = at(map.pages - of_completions);
        let mut shared = Self {
            card,
            memory,
            map,
            descriptor_at,
            completion_at,
            to_post: vec![Vec::with_capacity(depth); channels],
            came: vec![VecDeque::with_capacity(ENTRIES_MAX * 2); channels],
            posted: vec![VecDeque::with_capacity(2 * depth + 2); channels],
        };
        shared
            .card
            .write_register(register::COMPLETION, completion_at);
        Rc::new(RefCell::new(shared))
    }

    /// Pages that the two blocks of the DMA protocol take at their longest.
    pub fn block_pages(page_bytes: u32) -> u32 {
        pages_of(DESCRIPTOR_WORDS_MAX, page_bytes) + pages_of(COMPLETION_WORDS_MAX, page_bytes)
    }

    fn is_dma(&self) -> bool {
        self.card.config().kind == ReceiverKind::FilarDma
    }

    /// Hands the collected addresses over, and takes the completions of a block that is due
    /// (DMA protocol; nothing otherwise).
    pub fn exchange_blocks(&mut self) {
        if !self.is_dma() {
            return;
        }
        if self.to_post.iter().any(|addresses| !addresses.is_empty()) {
            let mut block = [0; DESCRIPTOR_WORDS_MAX];
            let lists: [&[u32]; DMA_CHANNELS] =
                core::array::from_fn(|n| self.to_post[n].as_slice());
            let words = DescriptorBlock::emit(lists, &mut block);
            let out = self.memory.at_mut(self.descriptor_at, words);
            out.expect("the block's pages are in the memory")
                .copy_from_slice(&block[..words]);
            self.to_post.iter_mut().for_each(Vec::clear);
            let card = &mut self.card;
            card.write_register(register::DESCRIPTOR_WORDS, words as u32);
            card.write_register(register::DESCRIPTOR, self.descriptor_at);
        }
        while let Some(transfer) = self.card.run_dma(&mut self.memory) {
            if let DmaTransfer::Completions { words } = transfer {
                let block = self.memory.at(self.completion_at, words as usize);
                let entries =
                    CompletionEntry::read_all(block.expect("the block's pages are in the memory"));
                for entry in entries.expect("the card writes sound blocks") {
                    self.came[entry.channel as usize].push_back(entry);
                }
            }
        }
    }

    /// The next completion of a channel.
    fn next_entry(&mut self, channel: u32) -> Option<CompletionEntry> {
        if self.is_dma() {
            return self.came[channel as usize].pop_front();
        }
        let card = &mut self.card;
        if card.read_register(register::FIFOSTAT) >> (8 * channel) & 0xF == 0 {
            return None;
        }
        Some(CompletionEntry {
            channel,
            ack: card.read_register(register::ack(channel)),
            start: card.read_register(register::SCW),
            end: card.read_register(register::ECW),
        })
    }
}

/// Whole pages for a block of so many words.
fn pages_of(words: usize, page_bytes: u32) -> u32 {
    (words as u32 * 4).div_ceil(page_bytes)
}

/// A channel of a card.
#[derive(Debug, Clone)]
pub struct CardChannel {
    shared: Rc<RefCell<SharedCard>>,
    channel: u32,
}

impl CardChannel {
    /// Channel `channel` of a card, from 0.
    ///
    /// # Panics
    /// If the card has no such channel.
    pub fn new(shared: &Rc<RefCell<SharedCard>>, channel: u32) -> Self {
        let channels = shared.borrow().card.config().kind.channels();
        assert!(channel < channels, "the card has {channels} channels");
        Self {
            shared: Rc::clone(shared),
            channel,
        }
    }

    /// The card.
    pub fn shared(&self) -> &Rc<RefCell<SharedCard>> {
        &self.shared
    }

    fn free_slots(&self, shared: &SharedCard) -> u32 {
        let depth = shared.card.config().fifo_depth;
        let posted = shared.posted[self.channel as usize].len() as u32;
        // What is completed and not read yet has left the request FIFO, but the driver counts as
        // the real one does: never more addresses out than slots.
        depth.saturating_sub(posted)
    }
}

impl PageLink for CardChannel {
    fn post(&mut self, page: u32) -> Result<(), PageError> {
        let mut shared = self.shared.borrow_mut();
        let of_blocks = SharedCard::block_pages(shared.map.page_bytes);
        let (first, last) = (0, shared.map.pages - of_blocks - 1);
        if page > last {
            return Err(PageError::Foreign { page, first, last });
        }
        if shared.posted.iter().any(|posted| posted.contains(&page)) {
            return Err(PageError::NotHandedOut { page });
        }
        if self.free_slots(&shared) == 0 {
            return Err(PageError::RequestFull { page });
        }
        let address = shared.map.address(page).expect("the page is in the memory");
        let channel = self.channel as usize;
        shared.posted[channel].push_back(page);
        if shared.is_dma() {
            shared.to_post[channel].push(address);
        } else {
            shared
                .card
                .write_register(register::req(self.channel), address);
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Completed> {
        let mut shared = self.shared.borrow_mut();
        let entry = shared.next_entry(self.channel)?;
        let page = shared.posted[self.channel as usize].pop_front();
        Some(completed(&entry, page.expect("an entry has its page")))
    }

    fn link_status(&self) -> LinkStatus {
        let mut shared = self.shared.borrow_mut();
        let status = shared.card.read_register(register::OSR);
        let control = shared.card.read_register(register::OCR);
        let fifos = shared.card.read_register(register::FIFOSTAT) >> (8 * self.channel);
        LinkStatus {
            link: match status & register::osr_down(self.channel) {
                0 => LinkState::Up,
                _ => LinkState::Down,
            },
            flow: match status & register::osr_xoff(self.channel) {
                0 => FlowControl::Xon,
                _ => FlowControl::Xoff,
            },
            resetting: control & register::ocr_ureset(self.channel) != 0,
            request_free: self.free_slots(&shared),
            acknowledge_filled: (fifos & 0xF) + shared.came[self.channel as usize].len() as u32,
        }
    }

    /// Drives URESET of the channel; [`CardChannel::release_reset`] ends it.
    fn reset(&mut self, _now: RunNs) {
        let mut shared = self.shared.borrow_mut();
        let control = shared.card.read_register(register::OCR);
        let ureset = register::ocr_ureset(self.channel);
        shared.card.write_register(register::OCR, control | ureset);
    }
}

impl CardChannel {
    /// Releases URESET once LDOWN# has released; `false` while the link is still down.
    pub fn release_reset(&mut self) -> bool {
        if self.link_status().link == LinkState::Down {
            return false;
        }
        let mut shared = self.shared.borrow_mut();
        let control = shared.card.read_register(register::OCR);
        let ureset = register::ocr_ureset(self.channel);
        shared.card.write_register(register::OCR, control & !ureset);
        true
    }
}

/// What the registers said, as every link says it.
fn completed(entry: &CompletionEntry, page: u32) -> Completed {
    let word = |word: u32| (word != 0).then_some(ControlWord(word));
    let (begin, end) = (word(entry.start), word(entry.end));
    let mut status = FragmentStatus::GOOD;
    for (bit, flag) in [
        (register::ACK_NO_START, FragmentStatus::NO_BEGIN),
        (register::ACK_WRONG_START, FragmentStatus::WRONG_BEGIN),
        (register::ACK_NO_END, FragmentStatus::NO_END),
        (register::ACK_WRONG_END, FragmentStatus::WRONG_END),
    ] {
        if entry.ack & bit != 0 {
            status.insert(flag);
        }
    }
    if end.is_some_and(ControlWord::data_error) {
        status.insert(FragmentStatus::LINK_DATA);
    }
    if [begin, end]
        .into_iter()
        .flatten()
        .any(ControlWord::control_error)
    {
        status.insert(FragmentStatus::LINK_CONTROL);
    }
    Completed {
        page,
        len_words: entry.len_words(),
        status,
        begin,
        end,
        // The registers do not tell a page that is full from a block that was cut: more to come.
        block_end: match entry.ack & register::ACK_NO_END {
            0 => BlockEnd::EndWord,
            _ => BlockEnd::MoreToCome,
        },
    }
}
