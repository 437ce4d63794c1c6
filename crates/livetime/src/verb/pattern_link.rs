//! The links that a test pattern can go through, each from its sending end to whole blocks.
//!
//! All of them run in this process: the emulated S-LINK on slices, the same word by word through
//! both card models and a receiver card's registers, UDP and TCP over the loopback interface, and a
//! file that is written and replayed. What is sent and checked is [`crate::verb::pattern`]'s.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use livetime_node::link::stream_link::StreamState;
use livetime_node::link::{StreamLink, StreamSource, UdpConfig, UdpLink, UdpSource};
use livetime_readout::card::receiver_register as register;
use livetime_readout::card::{PageMemory, ReceiverCard, ReceiverCardConfig};
use livetime_readout::card_link::{DestinationPins, SourcePins};
use livetime_readout::driver::{CardChannel, SharedCard};
use livetime_readout::{
    Begun, BlockEnd, CardLink, CardLinkConfig, Completed, FlowControl, HeapPages, LineFaultPlan,
    LinkConfig, PageLink, PageRead, Receiver, ReturnWord, SlinkSource, SourceLinkConfig,
};
use livetime_wire::{DurationNs, RunNs};

/// Pages of a link here.
const PAGES: u32 = 256;
/// Tallies after which a link of datagrams that has not settled all blocks is broken: two are needed where
/// something was lost.
const TALLIES_AT_END_MAX: u32 = 4;

/// What takes the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LinkKind {
    /// Both ends of an S-LINK, on slices of words
    Slink,
    /// An S-LINK word by word through its cards, into a FILAR by its registers
    Cards,
    /// Datagrams over the loopback interface
    Udp,
    /// A stream over the loopback interface
    Tcp,
    /// A file, written and replayed
    File,
}

impl LinkKind {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Slink => "slink",
            Self::Cards => "cards",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::File => "file",
        }
    }
}

/// Takes a whole block.
type Take<'t> = &'t mut dyn FnMut(&[u32]);

/// A link from its sending end to whole blocks.
pub(crate) trait PatternLink {
    /// Sends a block, and gives the blocks that have come.
    fn send(&mut self, block: &[u32], take: Take<'_>) -> Result<(), String>;
    /// Gives the blocks that are still on their way.
    fn finish(&mut self, take: Take<'_>) -> Result<(), String>;
    /// Data words received.
    fn data_words(&self) -> u64;
    /// Blocks known to be lost.
    fn blocks_lost(&self) -> u64;
}

/// Makes a link for blocks of at most `words` words.
pub(crate) fn open(kind: LinkKind, words: usize) -> Result<Box<dyn PatternLink>, String> {
    let text = |error: std::io::Error| error.to_string();
    Ok(match kind {
        LinkKind::Slink => Box::new(SlicedLink::new(words)),
        LinkKind::Cards => Box::new(CardsLink::new(words)?),
        LinkKind::Udp => Box::new(DatagramLink::new(words, UdpConfig::default()).map_err(text)?),
        LinkKind::Tcp => Box::new(TcpLink::new(words).map_err(text)?),
        LinkKind::File => Box::new(FileLink::new(words).map_err(text)?),
    })
}

fn link_config(words: usize) -> LinkConfig {
    let page_words = (words as u32).clamp(64, 1 << 18).next_multiple_of(16);
    LinkConfig {
        page_words,
        pages: PAGES,
        fragment_words_max: page_words * 16,
        ..LinkConfig::default()
    }
}

fn pages(config: &LinkConfig) -> HeapPages {
    HeapPages::new(0, config.pages, config.page_words)
}

/// Puts the pages of a block together.
#[derive(Default)]
struct Joined {
    words: Vec<u32>,
    data_words: u64,
}

impl Joined {
    fn add(&mut self, completed: &Completed, page: &[u32], take: Take<'_>) {
        let words = &page[..completed.len_words as usize];
        self.data_words += words.len() as u64;
        self.words.extend_from_slice(words);
        if completed.block_end != BlockEnd::MoreToCome {
            if completed.block_end != BlockEnd::LinkDown {
                take(&self.words);
            }
            self.words.clear();
        }
    }
}

struct SlicedLink {
    source: SlinkSource,
    receiver: Receiver,
    pages: HeapPages,
    joined: Joined,
}

impl SlicedLink {
    fn new(words: usize) -> Self {
        let config = link_config(words);
        Self {
            source: SlinkSource::new(SourceLinkConfig::default()),
            pages: pages(&config),
            receiver: Receiver::new(config, 0),
            joined: Joined::default(),
        }
    }

    fn take_pages(&mut self, take: Take<'_>) {
        while let Some(completed) = self.receiver.poll() {
            self.joined
                .add(&completed, self.pages.words(completed.page), take);
            let recycled = self.receiver.recycle(completed.page);
            debug_assert!(recycled.is_ok(), "the page was just handed out");
        }
    }
}

impl PatternLink for SlicedLink {
    fn send(&mut self, block: &[u32], take: Take<'_>) -> Result<(), String> {
        let begun = self.source.begin(block.len());
        assert!(begun == Begun::Sending, "the link is up and idle");
        while let Some(slice) = self.source.poll_line(block, usize::MAX) {
            let taken = self.receiver.handle_line(RunNs(0), slice, &mut self.pages);
            self.source.handle_sent(taken);
            if taken == 0 {
                self.take_pages(take);
            }
        }
        self.take_pages(take);
        Ok(())
    }

    fn finish(&mut self, _take: Take<'_>) -> Result<(), String> {
        Ok(())
    }

    fn data_words(&self) -> u64 {
        self.receiver.destination_counters().data_words
    }

    fn blocks_lost(&self) -> u64 {
        self.source.losses().total()
    }
}

/// The source, both link cards, a receiver card, and the driver's view of a channel.
struct CardsLink {
    source: SlinkSource,
    cards: CardLink,
    card: Rc<RefCell<SharedCard>>,
    channel: CardChannel,
    now: u64,
    joined: Joined,
}

impl CardsLink {
    fn new(words: usize) -> Result<Self, String> {
        let size = register::PAGE_BYTES
            .iter()
            .position(|b| *b as usize >= words * 4);
        let size = size.ok_or("a FILAR's pages hold 1 048 574 words")?;
        let page_bytes = register::PAGE_BYTES[size];
        let memory = PageMemory::new(0x1000_0000, 32, page_bytes);
        let mut card = ReceiverCard::new(ReceiverCardConfig::default(), memory.map());
        let control = (size as u32) << register::OCR_PAGE_SIZE_SHIFT;
        card.write_register(register::OCR, control);
        let card = SharedCard::new(card, memory);
        let mut channel = CardChannel::new(&card, 0);
        let depth = card.borrow().card.config().fifo_depth;
        for page in 0..depth {
            channel.post(page).map_err(|error| error.to_string())?;
        }
        Ok(Self {
            source: SlinkSource::new(SourceLinkConfig::default()),
            cards: CardLink::new(CardLinkConfig::HOLA, LineFaultPlan::none()),
            card,
            channel,
            now: 0,
            joined: Joined::default(),
        })
    }

    /// One clock of 25 ns.
    fn clock(&mut self, block: &[u32]) {
        self.now += 1;
        let word = self.source.poll_line(block, 1);
        let word = word.and_then(|slice| slice.iter().next());
        self.source.handle_sent(usize::from(word.is_some()));
        let mut shared = self.card.borrow_mut();
        let SharedCard { card, memory, .. } = &mut *shared;
        let flow = card.flow(0);
        let near = SourcePins {
            word,
            ..SourcePins::IDLE
        };
        let far = DestinationPins {
            back: ReturnWord { flow, lines: 0 },
            ..DestinationPins::IDLE
        };
        let (near, far) = self.cards.clock(near, far);
        self.source.handle_flow(RunNs(self.now * 25), near.full);
        if let Some(word) = far.word {
            card.handle_word(0, word, memory);
        }
    }

    fn take_pages(&mut self, take: Take<'_>) -> Result<(), String> {
        while let Some(completed) = self.channel.poll() {
            let page = completed.page;
            self.joined
                .add(&completed, self.card.borrow().memory.words(page), take);
            self.channel.post(page).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl PatternLink for CardsLink {
    fn send(&mut self, block: &[u32], take: Take<'_>) -> Result<(), String> {
        let begun = self.source.begin(block.len());
        assert!(begun == Begun::Sending, "the link is up and idle");
        while !self.source.is_idle() {
            self.clock(block);
            if self.source.link_status().flow == FlowControl::Xoff {
                self.take_pages(take)?;
            }
        }
        self.take_pages(take)
    }

    fn finish(&mut self, take: Take<'_>) -> Result<(), String> {
        while !self.cards.is_empty() {
            self.clock(&[]);
            self.take_pages(take)?;
        }
        self.take_pages(take)
    }

    fn data_words(&self) -> u64 {
        self.card.borrow().card.destination_counters(0).data_words
    }

    fn blocks_lost(&self) -> u64 {
        self.source.losses().total() + self.cards.counters().end_words_lost
    }
}

struct DatagramLink {
    source: UdpSource,
    link: UdpLink<HeapPages>,
    patience: DurationNs,
    now: u64,
    joined: Joined,
}

impl DatagramLink {
    fn new(words: usize, udp: UdpConfig) -> std::io::Result<Self> {
        let config = link_config(words);
        let store = pages(&config);
        let link = UdpLink::bind("127.0.0.1:0", udp, config, 0, store)?;
        Ok(Self {
            source: UdpSource::new(link.local_address()?, 362)?,
            link,
            patience: udp.patience,
            now: 0,
            joined: Joined::default(),
        })
    }

    /// Takes what has come; `false` when nothing had.
    fn take_pages(&mut self, take: Take<'_>) -> Result<bool, String> {
        self.now += 1;
        let datagrams = self.link.receive(RunNs(self.now));
        let mut has_come = datagrams.map_err(|error| error.to_string())? > 0;
        while let Some(completed) = self.link.poll() {
            has_come = true;
            let page = completed.page;
            self.joined
                .add(&completed, self.link.blocks().store().words(page), take);
            self.link.recycle(page).map_err(|error| error.to_string())?;
        }
        Ok(has_come)
    }

    fn take_all(&mut self, take: Take<'_>) -> Result<(), String> {
        while self.take_pages(take)? {}
        Ok(())
    }
}

impl PatternLink for DatagramLink {
    fn send(&mut self, block: &[u32], take: Take<'_>) -> Result<(), String> {
        self.source.send(block).map_err(|error| error.to_string())?;
        self.take_pages(take)?;
        Ok(())
    }

    /// Nothing is sent behind the last block that would tell of its loss but a tally.
    fn finish(&mut self, take: Take<'_>) -> Result<(), String> {
        let blocks = self.source.numbers().blocks_made();
        for _ in 0..TALLIES_AT_END_MAX {
            self.take_all(take)?;
            self.source.send_tally();
            self.take_all(take)?;
            // What the loopback interface has not brought by now it has dropped: the time here is no
            // clock's, and nothing needs to be waited for.
            self.now += self.patience.0;
            self.take_all(take)?;
            if self.link.blocks().blocks_settled() >= blocks {
                return Ok(());
            }
        }
        let settled = self.link.blocks().blocks_settled();
        Err(format!(
            "{settled} of {blocks} blocks came or are known to be lost"
        ))
    }

    fn data_words(&self) -> u64 {
        self.joined.data_words
    }

    fn blocks_lost(&self) -> u64 {
        self.link.blocks().counters().blocks_lost
    }
}

struct TcpLink {
    source: StreamSource<TcpStream>,
    link: StreamLink<TcpStream, HeapPages>,
    joined: Joined,
}

impl TcpLink {
    fn new(words: usize) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let output = TcpStream::connect(listener.local_addr()?)?;
        let (input, _) = listener.accept()?;
        input.set_nonblocking(true)?;
        output.set_nonblocking(true)?;
        let config = link_config(words);
        let store = pages(&config);
        Ok(Self {
            source: StreamSource::new(output),
            link: StreamLink::new(input, config, 0, store),
            joined: Joined::default(),
        })
    }
}

/// Takes what a stream has, at most `frames` frames.
fn take_stream<R: std::io::Read>(
    link: &mut StreamLink<R, HeapPages>,
    joined: &mut Joined,
    frames: usize,
    take: Take<'_>,
) -> Result<(), String> {
    link.receive(RunNs(0), frames)
        .map_err(|error| error.to_string())?;
    while let Some(completed) = link.poll() {
        let page = completed.page;
        joined.add(&completed, link.blocks().store().words(page), take);
        link.recycle(page).map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl PatternLink for TcpLink {
    fn send(&mut self, block: &[u32], take: Take<'_>) -> Result<(), String> {
        // The stream does not wait: what it does not take now is taken once this end was read.
        while !self
            .source
            .send_some(block)
            .map_err(|error| error.to_string())?
        {
            take_stream(&mut self.link, &mut self.joined, 16, take)?;
        }
        take_stream(&mut self.link, &mut self.joined, 16, take)
    }

    fn finish(&mut self, take: Take<'_>) -> Result<(), String> {
        while !self
            .source
            .flush_some()
            .map_err(|error| error.to_string())?
        {
            take_stream(&mut self.link, &mut self.joined, 16, take)?;
        }
        let shut = self.source.output().shutdown(std::net::Shutdown::Write);
        shut.map_err(|error| error.to_string())?;
        while self.link.state() == StreamState::Open {
            take_stream(&mut self.link, &mut self.joined, 16, take)?;
        }
        Ok(())
    }

    fn data_words(&self) -> u64 {
        self.joined.data_words
    }

    fn blocks_lost(&self) -> u64 {
        self.link.blocks().counters().blocks_lost
    }
}

/// A file in the folder for temporary files, removed at the end.
struct FileLink {
    path: PathBuf,
    source: StreamSource<BufWriter<File>>,
    config: LinkConfig,
    joined: Joined,
    lost: u64,
}

impl FileLink {
    fn new(words: usize) -> std::io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Only to tell the files of one process apart.
        let file = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("livetime-pattern-{}-{file}.frames", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create(&path)?;
        Ok(Self {
            path,
            source: StreamSource::new(BufWriter::new(file)),
            config: link_config(words),
            joined: Joined::default(),
            lost: 0,
        })
    }
}

impl PatternLink for FileLink {
    fn send(&mut self, block: &[u32], _take: Take<'_>) -> Result<(), String> {
        self.source.send(block).map_err(|error| error.to_string())
    }

    fn finish(&mut self, take: Take<'_>) -> Result<(), String> {
        self.source.flush().map_err(|error| error.to_string())?;
        let file = File::open(&self.path).map_err(|error| error.to_string())?;
        let store = pages(&self.config);
        let input = BufReader::new(file);
        let mut link = StreamLink::new(input, self.config.clone(), 0, store);
        while link.state() == StreamState::Open {
            take_stream(&mut link, &mut self.joined, 16, take)?;
        }
        self.lost = link.blocks().counters().blocks_lost;
        Ok(())
    }

    fn data_words(&self) -> u64 {
        self.joined.data_words
    }

    fn blocks_lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for FileLink {
    fn drop(&mut self) {
        // Nothing can be done about a file that is gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long blocks, of which a socket with the least buffer drops parts, the last ones too.
    #[test]
    fn every_block_over_datagrams_comes_or_is_lost() {
        for (words, blocks) in [(100, 40_u64), (2000, 40), (20_000, 30), (100_000, 20)] {
            let udp = UdpConfig {
                buffer_bytes: 4096,
                ..UdpConfig::default()
            };
            let mut link = DatagramLink::new(words, udp).unwrap();
            let block: Vec<u32> = (0..words as u32).collect();
            let mut came = 0;
            let mut take = |taken: &[u32]| {
                assert_eq!(taken, block);
                came += 1;
            };
            for _ in 0..blocks {
                link.send(&block, &mut take).unwrap();
            }
            link.finish(&mut take).unwrap();
            assert_eq!(came + link.blocks_lost(), blocks, "{words}");
            assert_eq!(link.blocks_lost() > 0, words > 1000, "{words}");
        }
    }
}
