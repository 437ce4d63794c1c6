//! Cards and their host: up to twelve links and more, one producing and one consuming core.
//!
//! Each channel is an S-LINK with both ends and its pages, in a data source that keeps its mean rate:
//! what a pause of the receiver made it miss it sends afterwards, and counts. Acknowledge entries go
//! to the host over a ring, one by one as through the registers of the single-cycle firmware, or in
//! blocks of `batch` as with the DMA protocol, and page numbers come back the same way. The host
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
use super::readout::{FRAGMENTS, RUN, SOURCE, fragment};
use super::two_cores::{Patience, run_pair};

/// Pages of a channel.
const PAGES: u32 = 128;
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
    /// Share of the time that XOFF stood, of the channel with most.
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
    let clock = TscClock::calibrate();
    let page_words = (config.bytes.max(4096) as u32 / 4).next_multiple_of(16);
    let pool = PagePool::create(&PoolConfig {
        pages: PAGES * config.channels as u32,
        page_bytes: page_words * 4,
        huge_pages: HugePages::Prefer,
    })?;
    // A slot for every page, so that neither side ever waits for room.
    let message_ring = |slot_words: usize| {
        ring(&RingConfig {
            slots: (PAGES * config.channels as u32).next_power_of_two(),
            slot_words: slot_words as u32,
        })
    };
    let (entries, entries_in) = message_ring(COMPLETION_WORDS)?;
    let (pages_back, pages_in) = message_ring(2)?;
    // Both live until both threads are done: a ring whose other end is gone takes nothing.
    let mut cards = Cards::new(config, page_words, &pool, entries, pages_in, clock);
    let mut host = Host::new(config, page_words, &pool, entries_in, pages_back, clock);
    let over = AtomicBool::new(false);
    let (sending, filing) = run_pair(
        |patience| {
            let sent = cards.run(patience);
            // Release pairs with the Acquire in the host's loop.
            over.store(true, Ordering::Release);
            sent
        },
        |patience| host.run(patience, &over),
    )?;
    let ns = clock.ticks_to_ns(filing.end.wrapping_sub(sending.start));
    Ok(Streamed {
        seconds: ns as f64 * 1e-9,
        sent: sending.sent,
        filed: filing.filed,
        flagged: filing.flagged,
        lost: filing.lost,
        xoff_share: sending.xoff_ns as f64 / ns.max(1) as f64,
        caught_up: sending.caught_up,
        host_ns: clock.ticks_to_ns(filing.busy) as f64 / filing.filed.max(1) as f64,
        blocks: filing.blocks,
    })
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
    /// Entries that wait for their block to be full.
    block: Vec<[u32; COMPLETION_WORDS]>,
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
            block: Vec::with_capacity(config.batch),
            caught_up: 0,
        }
    }

    fn run(&mut self, mut patience: Patience<'_>) -> Result<Sending, BenchError> {
        let start = self.clock.ticks();
        let end_ns = (self.config.seconds * 1e9) as u64;
        loop {
            let now = self.clock.ticks_to_ns(self.clock.ticks() - start);
            let mut worked = self.take_pages_back()?;
            let mut is_idle = now >= end_ns;
            for index in 0..self.channels.len() {
                worked |= self.begin(index, now.min(end_ns), now);
                worked |= self.pump(index, RunNs(now))?;
                is_idle &= self.channels[index].source.is_idle() && !self.is_due(index, end_ns);
            }
            if !worked {
                // As after the card's time limit: a block that does not fill is sent.
                self.flush()?;
            }
            if is_idle && self.block.is_empty() {
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

    fn is_due(&self, index: usize, ns: u64) -> bool {
        self.channels[index].sent < self.owed(ns)
    }

    /// Begins the next fragment of a channel if it is due.
    fn begin(&mut self, index: usize, due_ns: u64, now: u64) -> bool {
        let owed = self.owed(due_ns);
        let channel = &mut self.channels[index];
        let flow = channel.receiver.poll_flow(RunNs(now));
        channel.source.handle_flow(RunNs(now), flow);
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
        while let Some(slice) = channel.source.poll_line(words, usize::MAX) {
            let taken = channel.receiver.handle_line(now, slice, &mut channel.pages);
            channel.source.handle_sent(taken);
            if taken == 0 {
                break;
            }
            worked = true;
        }
        while let Some(completed) = channel.receiver.poll() {
            let link = index as u16;
            let entry = Completion { link, completed }.to_words();
            worked = true;
            if self.config.batch == 1 {
                self.entries.try_push(&entry)?;
                continue;
            }
            self.block.push(entry);
            if self.block.len() >= self.config.batch {
                self.entries.push_batch(&self.block)?;
                self.block.clear();
            }
        }
        Ok(worked)
    }

    fn flush(&mut self) -> Result<(), BenchError> {
        if !self.block.is_empty() {
            self.entries.push_batch(&self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    /// Pages that the host has returned.
    fn take_pages_back(&mut self) -> Result<bool, BenchError> {
        let channels = &mut self.channels;
        let mut is_good = true;
        let mut recycle = |words: &[u32]| {
            let channel = &mut channels[words[0] as usize];
            is_good &= channel.pages.release(words[1]).is_ok()
                && channel.receiver.recycle(words[1]).is_ok();
        };
        let count = match self.config.batch {
            1 => {
                let mut count = 0;
                while self.pages_in.try_pop(&mut recycle)?.is_some() {
                    count += 1;
                }
                count
            }
            batch => self.pages_in.pop_batch(batch as u32, &mut recycle)?,
        };
        if is_good {
            return Ok(count > 0);
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
    /// Page numbers that wait for their block to be full.
    block: Vec<[u32; 2]>,
    completions: Vec<Completion>,
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
        let shelf = |_| Shelf {
            assembler: FragmentAssembler::new(AssemblerConfig {
                run: RUN,
                pool: 0,
                page_words,
                sources: vec![SOURCE],
                crc: CrcCheck::On,
            }),
            buffer: FragmentBuffer::new(FragmentBufferConfig::default(), &[SOURCE]),
            on_file: VecDeque::with_capacity(ON_FILE + 1),
        };
        Self {
            batch: config.batch,
            shelves: (0..config.channels).map(shelf).collect(),
            held: HeldPages::new(pool.clone(), 1),
            entries,
            pages_back,
            clock,
            block: Vec::with_capacity(config.batch),
            completions: Vec::with_capacity(config.batch),
        }
    }

    fn run(&mut self, mut patience: Patience<'_>, over: &AtomicBool) -> Result<Filing, BenchError> {
        let (mut busy, mut blocks, mut end) = (0, 0, self.clock.ticks());
        loop {
            // Before the look at the ring: what was pushed before the end is then seen.
            let is_over = over.load(Ordering::Acquire);
            let start = self.clock.ticks();
            if self.read_entries()? {
                self.file_entries()?;
                end = self.clock.ticks();
                busy += end - start;
                blocks += 1;
                patience.restart();
            } else if is_over {
                break;
            } else {
                self.send_pages_back()?;
                patience.idle()?;
            }
        }
        let sum = |of: fn(&Shelf) -> u64| self.shelves.iter().map(of).sum();
        Ok(Filing {
            end,
            filed: sum(|shelf| shelf.buffer.counters().inserted),
            flagged: sum(|shelf| shelf.assembler.counters().flagged),
            lost: sum(|shelf| shelf.assembler.losses().total() + shelf.buffer.losses().total()),
            busy,
            blocks,
        })
    }

    /// Reads one entry, or a block of them.
    fn read_entries(&mut self) -> Result<bool, BenchError> {
        let completions = &mut self.completions;
        completions.clear();
        let mut take = |words: &[u32]| completions.extend(Completion::parse(words));
        match self.batch {
            1 => {
                self.entries.try_pop(&mut take)?;
            }
            batch => {
                self.entries.pop_batch(batch as u32, &mut take)?;
            }
        }
        Ok(!self.completions.is_empty())
    }

    fn file_entries(&mut self) -> Result<(), BenchError> {
        for index in 0..self.completions.len() {
            let Completion { link, completed } = self.completions[index];
            let shelf = &mut self.shelves[usize::from(link)];
            self.held.prepare(completed.page, completed.len_words);
            self.held.hold(completed.page)?;
            let assembled = shelf.assembler.handle_completed(&completed, &self.held);
            self.held.clear();
            if let Assembled::Fragment { trigger, fragment } = assembled
                && fragment.status.is_good()
                && shelf.buffer.insert(trigger, fragment).is_ok()
            {
                shelf.on_file.push_back(trigger);
            }
            if shelf.on_file.len() > ON_FILE
                && let Some(oldest) = shelf.on_file.pop_front()
            {
                let block = &mut self.block;
                shelf.buffer.remove(oldest, |fragment| {
                    block.extend(fragment.pages.iter().map(|page| [u32::from(link), *page]));
                });
                if self.block.len() >= self.batch {
                    self.send_pages_back()?;
                }
            }
        }
        Ok(())
    }

    fn send_pages_back(&mut self) -> Result<(), BenchError> {
        match self.block.as_slice() {
            [] => {}
            [one] => self.pages_back.try_push(one)?,
            several => {
                self.pages_back.push_batch(several)?;
            }
        }
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
