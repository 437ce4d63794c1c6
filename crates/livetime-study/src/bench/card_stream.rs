//! Cards and their host: up to twelve links and more, one producing and one consuming core.
//!
//! Each channel is an S-LINK with both ends and its pages, in a data source that keeps its mean rate:
//! what a pause of the receiver made it miss it sends afterwards, and counts. Acknowledge entries go
//! to the host over a ring, one to a message as through the registers of the single-cycle firmware,
//! or as completion blocks of `batch` entries as with the DMA protocol, and page numbers come back
//! the same way. A block tells the host of its pages ahead, so that their lines are on the way while
//! it works on the pages before, and so that it holds several at a time: the locked instructions that
//! hold a page and let it go keep the processor from working on two fragments side by side. The host
//! checks each fragment (framing, lengths, CRC-32C), files it, and takes it off the file again.
//!
//! Budget per fragment of 1000 B: one write and one read of its payload, six words of the
//! acknowledge entry and two of the page number over the rings.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use livetime_node::completion::{COMPLETION_WORDS, Completion};
use livetime_node::pooled_page::{HeldPages, LinkPages};
use livetime_readout::{
    Assembled, AssemblerConfig, Begun, FlowControl, FragmentAssembler, FragmentBuffer,
    FragmentBufferConfig, LinkConfig, PageLink, Receiver, SlinkSource, SourceLinkConfig,
};
use livetime_shm::{
    Consumer, HugePages, PagePool, PoolConfig, Producer, RingConfig, TscClock, ring,
};
use livetime_wire::fragment::CrcCheck;
use livetime_wire::{RunNs, TriggerNumber};

use super::BenchError;
use super::pinned_threads::{Patience, run_pair};
use super::readout::{FRAGMENTS, RUN, SOURCE, fragment};

/// Pages of a channel.
const PAGES: u32 = 64;
/// Messages that wait on each of the two rings at most; a full one stops the cards, never the host.
const MESSAGES: u32 = 256;
/// Smallest page of a card, 256 B.
const PAGE_WORDS_MIN: u32 = 64;
/// Words of a cache line.
const LINE_WORDS: u32 = 16;
/// Words of a page number on its way back: its channel, and the number.
const PAGE_BACK_WORDS: usize = 2;
/// Pages of a block that are held and checked together, while the lines of as many behind them are
/// on their way.
const TOGETHER: usize = 4;
/// Triggers on file per channel, so that pages do not come back in the order of the acknowledges.
const ON_FILE: usize = 16;
/// Longest fragment: a page of the largest card.
pub const BYTES_MAX: usize = 64 * 1024;
/// Most channels.
pub const CHANNELS_MAX: usize = 64;

/// What is streamed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stream {
    /// Channels, 1 to 64.
    pub channels: usize,
    /// Bytes of a fragment, 64 to 65 536, a multiple of 4.
    pub bytes: usize,
    /// Acknowledge entries of a block; 1 is the single-cycle firmware.
    pub batch: usize,
    /// Fragments per second and channel, and for how many seconds; without a rate as fast as it goes.
    pub rate_hz: Option<f64>,
    /// Seconds during which fragments are sent.
    pub seconds: f64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Streamed {
    /// From the first fragment to the last one filed, in seconds.
    pub seconds: f64,
    /// Fragments sent by each channel.
    pub sent: Vec<u64>,
    /// Fragments checked, found good and filed.
    pub filed: u64,
    /// Fragments with a fault.
    pub flagged: u64,
    /// Fragments lost at the host, by any cause.
    pub lost: u64,
    /// Share of the time of the cards that XOFF stood, of the channel with most; 0 to 1.
    pub xoff_share: f64,
    /// Fragments that were a period late or more, and were sent all the same.
    pub caught_up: u64,
    /// Time of the host per fragment, waiting not included, in ns.
    pub host_ns: f64,
    /// Messages read by the host, which are wake-ups of a driver.
    pub blocks: u64,
}

impl Streamed {
    /// All fragments of all channels.
    pub fn sent_total(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// Fragments per second, all channels together.
    pub fn per_s(&self) -> f64 {
        self.sent_total() as f64 / self.seconds
    }

    /// Whether every fragment was filed without a fault.
    ///
    /// # Errors
    /// [`BenchError::Conservation`].
    pub fn check(&self) -> Result<(), BenchError> {
        for (what, found, expected) in [
            ("fragments filed", self.filed, self.sent_total()),
            ("fragments with a fault", self.flagged, 0),
            ("fragments lost", self.lost, 0),
        ] {
            if found != expected {
                return Err(BenchError::Conservation {
                    what,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// Streams on two cores.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or a thread stops.
pub fn stream(config: &Stream) -> Result<Streamed, BenchError> {
    let clock = TscClock::of_process();
    let page_words = (config.bytes as u32 / 4)
        .max(PAGE_WORDS_MIN)
        .next_multiple_of(LINE_WORDS);
    let pool = PagePool::create(&PoolConfig {
        pages: PAGES * config.channels as u32,
        page_bytes: page_stride_words(page_words) * 4,
        huge_pages: HugePages::Prefer,
    })?;
    let message_ring = |words: usize| {
        ring(&RingConfig {
            slots: MESSAGES,
            slot_words: (words * config.batch) as u32,
        })
    };
    let (entries, entries_in) = message_ring(COMPLETION_WORDS)?;
    let (pages_back, pages_in) = message_ring(PAGE_BACK_WORDS)?;
    let over = AtomicBool::new(false);
    // Each thread makes its end itself, so that they share no cache line, and gives it back: a ring
    // whose other end is gone takes nothing.
    let ((sending, _cards), (filing, _host)) = run_pair(
        |patience| {
            let mut cards = Cards::new(config, page_words, &pool, entries, pages_in, clock);
            let sent = cards.run(patience);
            // Release pairs with the Acquire in the host's loop.
            over.store(true, Ordering::Release);
            Ok((sent?, cards))
        },
        |patience| {
            let mut host = Host::new(config, page_words, &pool, entries_in, pages_back, clock);
            Ok((host.run(patience, &over)?, host))
        },
    )?;
    let ns = clock.ticks_to_ns(filing.end.wrapping_sub(sending.start));
    Ok(Streamed {
        seconds: ns as f64 * 1e-9,
        sent: sending.sent,
        filed: filing.filed,
        flagged: filing.flagged,
        lost: filing.lost,
        // The cards end later than the host where they lose their core after the last fragment.
        xoff_share: sending.xoff_ns as f64 / sending.ns.max(1) as f64,
        caught_up: sending.caught_up,
        host_ns: clock.ticks_to_ns(filing.busy) as f64 / filing.filed.max(1) as f64,
        blocks: filing.blocks,
    })
}

/// Words from page to page of the pool: an odd number of cache lines. With the powers of two that
/// cards have, the first lines of all pages would share a few sets of each cache.
fn page_stride_words(page_words: u32) -> u32 {
    ((page_words / LINE_WORDS) | 1) * LINE_WORDS
}

/// A link of a card, and the fragment on it.
struct Channel {
    source: SlinkSource,
    receiver: Receiver,
    pages: LinkPages,
    sent: u64,
    /// Which of the fragments is on the link.
    current: usize,
}

/// What the cards did.
struct Sending {
    start: u64,
    sent: Vec<u64>,
    xoff_ns: u64,
    /// From the start to the end of the cards.
    ns: u64,
    caught_up: u64,
}

/// The producing side.
struct Cards {
    config: Stream,
    channels: Vec<Channel>,
    fragments: Vec<Vec<u32>>,
    entries: Producer,
    pages_in: Consumer,
    clock: TscClock,
    /// Entries that wait for their block to be full, or for room on the ring.
    block: Vec<u32>,
    caught_up: u64,
}

impl Cards {
    fn new(
        config: &Stream,
        page_words: u32,
        pool: &PagePool,
        entries: Producer,
        pages_in: Consumer,
        clock: TscClock,
    ) -> Self {
        let link = LinkConfig {
            page_words,
            pages: PAGES,
            fragment_words_max: page_words,
            ..link_config()
        };
        let channel = |index: u32| Channel {
            source: SlinkSource::new(SourceLinkConfig::default()),
            receiver: Receiver::new(link.clone(), index * PAGES),
            pages: LinkPages::new(pool.clone()),
            sent: 0,
            current: 0,
        };
        Self {
            config: *config,
            channels: (0..config.channels as u32).map(channel).collect(),
            fragments: (1..=FRAGMENTS as u64)
                .map(|trigger| fragment(trigger, config.bytes))
                .collect(),
            entries,
            pages_in,
            clock,
            block: Vec::with_capacity(config.batch * COMPLETION_WORDS),
            caught_up: 0,
        }
    }

    fn run(&mut self, mut patience: Patience<'_>) -> Result<Sending, BenchError> {
        let start = self.clock.ticks();
        let end_ns = (self.config.seconds * 1e9) as u64;
        let owed_in_all = self.owed(end_ns);
        loop {
            let now = self.clock.ticks_to_ns(self.clock.ticks() - start);
            let owed = self.owed(now.min(end_ns));
            let mut worked = self.take_pages_back()?;
            let mut is_idle = now >= end_ns;
            for index in 0..self.channels.len() {
                worked |= self.begin(index, owed, RunNs(now));
                worked |= self.pump(index, RunNs(now))?;
                let channel = &self.channels[index];
                is_idle &= channel.source.is_idle() && channel.sent >= owed_in_all;
            }
            if !worked {
                // As after the card's time limit: a block that does not fill is sent.
                self.send_block()?;
            }
            if is_idle && self.block.is_empty() && self.is_polled_empty() {
                break;
            }
            if worked {
                patience.restart();
            } else {
                patience.idle()?;
            }
        }
        let ns = self.clock.ticks_to_ns(self.clock.ticks() - start);
        let receivers = self.channels.iter().map(|channel| &channel.receiver);
        let xoff = receivers.map(|receiver| receiver.counters(RunNs(ns)).xoff_time.0);
        Ok(Sending {
            start,
            xoff_ns: xoff.max().unwrap_or(0),
            ns,
            sent: self.channels.iter().map(|channel| channel.sent).collect(),
            caught_up: self.caught_up,
        })
    }

    /// Fragments that a channel owes at a time.
    fn owed(&self, ns: u64) -> u64 {
        match self.config.rate_hz {
            Some(rate) => (ns as f64 * 1e-9 * rate) as u64,
            None if ns < (self.config.seconds * 1e9) as u64 => u64::MAX,
            None => 0,
        }
    }

    /// Begins the next fragment of a channel if it is due.
    fn begin(&mut self, index: usize, owed: u64, now: RunNs) -> bool {
        let channel = &mut self.channels[index];
        let flow = channel.receiver.poll_flow(now);
        channel.source.handle_flow(now, flow);
        if channel.sent >= owed || !channel.source.is_idle() || flow == FlowControl::Xoff {
            return false;
        }
        // More than one is owed: this one missed its time.
        let is_paced = self.config.rate_hz.is_some();
        self.caught_up += u64::from(is_paced && owed - channel.sent > 1);
        channel.current = (channel.sent % FRAGMENTS as u64) as usize;
        let begun = (channel.source).begin(self.fragments[channel.current].len());
        debug_assert!(begun == Begun::Sending, "the link is up and idle");
        channel.sent += 1;
        true
    }

    /// Moves words to the pages, and acknowledge entries to the host.
    fn pump(&mut self, index: usize, now: RunNs) -> Result<bool, BenchError> {
        let channel = &mut self.channels[index];
        let mut worked = false;
        let words = &self.fragments[channel.current];
        // As on the links of a run: in one piece where nothing holds the fragment up.
        if let Some(block) = channel.source.poll_block(words) {
            let taken = (channel.receiver).handle_block(now, block, &mut channel.pages);
            if taken == block.words() {
                channel.source.handle_block_sent();
                worked = true;
            } else {
                channel.source.handle_sent(taken);
            }
        }
        while let Some(slice) = channel.source.poll_line(words, usize::MAX) {
            let taken = channel.receiver.handle_line(now, slice, &mut channel.pages);
            channel.source.handle_sent(taken);
            if taken == 0 {
                break;
            }
            worked = true;
        }
        // While the ring is full the entries stay in the acknowledge FIFO, which stops the link.
        while self.has_room()? {
            let Some(completed) = self.channels[index].receiver.poll() else {
                break;
            };
            let link = index as u16;
            let entry = Completion { link, completed }.to_words();
            self.block.extend_from_slice(&entry);
            worked = true;
            if self.block.len() >= self.config.batch * COMPLETION_WORDS {
                self.send_block()?;
            }
        }
        Ok(worked)
    }

    /// Whether the block takes another entry; a full one is sent if the ring has room.
    fn has_room(&mut self) -> Result<bool, BenchError> {
        let is_full = |block: &[u32], batch| block.len() >= batch * COMPLETION_WORDS;
        if is_full(&self.block, self.config.batch) {
            self.send_block()?;
        }
        Ok(!is_full(&self.block, self.config.batch))
    }

    /// Sends the block, full or not, if there is one and the ring has room.
    fn send_block(&mut self) -> Result<(), BenchError> {
        if !self.block.is_empty() && self.entries.has_room() {
            self.entries.try_push(&self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    fn is_polled_empty(&self) -> bool {
        let statuses = self.channels.iter().map(|c| c.receiver.link_status());
        statuses
            .map(|status| status.acknowledge_filled)
            .sum::<u32>()
            == 0
    }

    /// Pages that the host has returned.
    fn take_pages_back(&mut self) -> Result<bool, BenchError> {
        let channels = &mut self.channels;
        let (mut is_good, mut worked) = (true, false);
        while is_good
            && let Some(()) = self.pages_in.try_pop(|words| {
                let (pages, _) = words.as_chunks::<PAGE_BACK_WORDS>();
                if let [_, later @ ..] = pages {
                    for [link, page] in later {
                        channels[*link as usize].pages.prepare_to_release(*page);
                    }
                }
                for [link, page] in pages {
                    let channel = &mut channels[*link as usize];
                    is_good &= channel.pages.release(*page).is_ok()
                        && channel.receiver.recycle(*page).is_ok();
                }
            })?
        {
            worked = true;
        }
        if is_good {
            return Ok(worked);
        }
        Err(BenchError::Conservation {
            what: "pages that are those of their link",
            found: 0,
            expected: 1,
        })
    }
}

/// What the host did.
struct Filing {
    end: u64,
    filed: u64,
    flagged: u64,
    lost: u64,
    busy: u64,
    blocks: u64,
}

/// The file of one channel.
struct Shelf {
    assembler: FragmentAssembler,
    buffer: FragmentBuffer,
    on_file: VecDeque<TriggerNumber>,
}

/// The consuming side.
struct Host {
    batch: usize,
    shelves: Vec<Shelf>,
    held: HeldPages,
    entries: Consumer,
    pages_back: Producer,
    clock: TscClock,
    /// Page numbers that wait for their block to be full, or for room on the ring.
    block: Vec<u32>,
    completions: VecDeque<Completion>,
    /// Of these, how many from the front on have had their lines asked for.
    prepared: usize,
    /// Most entries that are worked on together.
    together: usize,
    /// Messages read.
    blocks: u64,
}

impl Host {
    fn new(
        config: &Stream,
        page_words: u32,
        pool: &PagePool,
        entries: Consumer,
        pages_back: Producer,
        clock: TscClock,
    ) -> Self {
        let on_file = FragmentBufferConfig {
            triggers_max: 2 * ON_FILE as u32,
        };
        let shelf = |_| Shelf {
            assembler: FragmentAssembler::new(AssemblerConfig {
                run: RUN,
                pool: 0,
                page_words,
                sources: vec![SOURCE],
                crc: CrcCheck::On,
            }),
            buffer: FragmentBuffer::new(on_file, &[SOURCE]),
            on_file: VecDeque::with_capacity(ON_FILE + 1),
        };
        Self {
            batch: config.batch,
            shelves: (0..config.channels).map(shelf).collect(),
            held: HeldPages::new(pool.clone(), TOGETHER),
            entries,
            pages_back,
            clock,
            block: Vec::with_capacity(config.batch * PAGE_BACK_WORDS),
            completions: VecDeque::with_capacity(config.batch + 2 * TOGETHER),
            prepared: 0,
            together: TOGETHER.min(config.batch),
            blocks: 0,
        }
    }

    fn run(&mut self, mut patience: Patience<'_>, over: &AtomicBool) -> Result<Filing, BenchError> {
        let start = self.clock.ticks();
        let mut idle = 0;
        // The clock is read where work and waiting meet, not for each fragment.
        let mut idle_since = Some(start);
        loop {
            // Before the look at the ring: what was pushed before the end is then seen.
            let is_over = over.load(Ordering::Acquire);
            if self.read_entries()? {
                if let Some(since) = idle_since.take() {
                    idle += self.clock.ticks() - since;
                    patience.restart();
                }
                while self.file_next(&mut patience, over)? {}
                continue;
            }
            self.send_pages_back(&mut patience, over)?;
            let since = *idle_since.get_or_insert_with(|| self.clock.ticks());
            if is_over {
                return Ok(self.filing(since, since - start - idle));
            }
            patience.idle()?;
        }
    }

    fn filing(&self, end: u64, busy: u64) -> Filing {
        let sum = |of: fn(&Shelf) -> u64| self.shelves.iter().map(of).sum();
        Filing {
            end,
            filed: sum(|shelf| shelf.buffer.counters().inserted),
            flagged: sum(|shelf| shelf.assembler.counters().flagged),
            lost: sum(|shelf| shelf.assembler.losses().total() + shelf.buffer.losses().total()),
            busy,
            blocks: self.blocks,
        }
    }

    /// Reads one entry, or a block of them.
    fn read_entries(&mut self) -> Result<bool, BenchError> {
        let completions = &mut self.completions;
        let read = self.entries.try_pop(|words| {
            let (entries, _) = words.as_chunks::<COMPLETION_WORDS>();
            completions.extend(entries.iter().flat_map(|entry| Completion::parse(entry)));
        })?;
        self.blocks += u64::from(read.is_some());
        Ok(read.is_some())
    }

    /// Checks and files the next fragments, several of a block together, and takes the oldest of their
    /// channels off the file; `false` when there is none.
    fn file_next(
        &mut self,
        patience: &mut Patience<'_>,
        over: &AtomicBool,
    ) -> Result<bool, BenchError> {
        self.prepare_next()?;
        let count = self.completions.len().min(self.together);
        for index in 0..count {
            self.held.hold(self.completions[index].completed.page)?;
        }
        for index in 0..count {
            self.file(self.completions[index]);
        }
        self.held.clear();
        for _ in 0..count {
            if let Some(Completion { link, .. }) = self.completions.pop_front() {
                self.take_oldest_off(link, patience, over)?;
            }
        }
        self.prepared = self.prepared.saturating_sub(count);
        Ok(count > 0)
    }

    /// Checks and files the fragment of an entry whose page is held.
    #[inline]
    fn file(&mut self, Completion { link, completed }: Completion) {
        let shelf = &mut self.shelves[usize::from(link)];
        let assembled = shelf.assembler.handle_completed(&completed, &self.held);
        if let Assembled::Fragment { trigger, fragment } = assembled
            && fragment.status.is_good()
            && shelf.buffer.insert(trigger, fragment).is_ok()
        {
            shelf.on_file.push_back(trigger);
        }
    }

    /// Has the pages behind the next ones on their way. The next block is read before this one is
    /// through; a single entry says nothing about what comes after it.
    fn prepare_next(&mut self) -> Result<(), BenchError> {
        if self.batch > 1 && self.completions.len() < 2 * self.together {
            self.read_entries()?;
        }
        let end = self.completions.len().min(2 * self.together);
        for index in self.prepared..end {
            let Completion { completed, .. } = self.completions[index];
            self.held.prepare(completed.page, completed.len_words);
        }
        self.prepared = end;
        Ok(())
    }

    /// Takes the oldest fragment of a channel off the file if there are enough.
    #[inline]
    fn take_oldest_off(
        &mut self,
        link: u16,
        patience: &mut Patience<'_>,
        over: &AtomicBool,
    ) -> Result<(), BenchError> {
        let shelf = &mut self.shelves[usize::from(link)];
        if shelf.on_file.len() > ON_FILE
            && let Some(oldest) = shelf.on_file.pop_front()
        {
            let block = &mut self.block;
            shelf.buffer.remove(oldest, |fragment| {
                let pages = fragment.pages.iter();
                block.extend(pages.flat_map(|page| [u32::from(link), *page]));
            });
            if self.block.len() >= self.batch * PAGE_BACK_WORDS {
                self.send_pages_back(patience, over)?;
            }
        }
        Ok(())
    }

    /// Sends the block, full or not. The cards take pages back whatever else they wait for; once they
    /// are through they take none and need none.
    fn send_pages_back(
        &mut self,
        patience: &mut Patience<'_>,
        over: &AtomicBool,
    ) -> Result<(), BenchError> {
        if self.block.is_empty() {
            return Ok(());
        }
        while !self.pages_back.has_room() {
            // Acquire pairs with the Release after the cards' loop.
            if over.load(Ordering::Acquire) {
                self.block.clear();
                return Ok(());
            }
            patience.idle()?;
        }
        patience.restart();
        self.pages_back.try_push(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

/// As of a card whose pages are nearly all in use.
fn link_config() -> LinkConfig {
    LinkConfig {
        words_in_flight: 0,
        xoff_below: 16,
        xon_above: 32,
        ..LinkConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fragment_of_every_channel_is_filed_with_either_firmware() {
        for (channels, bytes, batch) in [(1, 64, 1), (3, 1000, 8), (4, 5000, 1), (12, 256, 32)] {
            let config = Stream {
                channels,
                bytes,
                batch,
                rate_hz: None,
                seconds: 0.01,
            };
            let streamed = stream(&config).unwrap();
            streamed.check().unwrap();
            assert!(streamed.sent.iter().all(|sent| *sent > 0), "{streamed:?}");
            assert!(streamed.host_ns > 0.0 && streamed.blocks > 0);
            assert_eq!(streamed.caught_up, 0);
            let xoff = streamed.xoff_share;
            assert!((0.0..=1.0).contains(&xoff), "{xoff} of the time");
        }
    }

    #[test]
    fn a_rate_is_kept_on_the_mean_and_what_was_missed_is_sent_later() {
        let config = Stream {
            channels: 3,
            bytes: 200,
            batch: 4,
            rate_hz: Some(5000.0),
            seconds: 0.04,
        };
        let streamed = stream(&config).unwrap();
        streamed.check().unwrap();
        // 200 each, however often this machine took a core away.
        assert_eq!(streamed.sent, [200; 3], "{streamed:?}");
    }
}
