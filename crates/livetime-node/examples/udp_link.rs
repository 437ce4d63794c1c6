//! A front-end of one's own: fragments that come as UDP datagrams, behind `PageLink`.
//!
//! The contract is small: pages go in empty, come out filled and in order, and belong to the
//! caller in between. What follows the link (checks, filing) is the code of every run. The sending
//! half stands for a board; it sends 1000 fragments over the loopback interface, one datagram each.
//! UDP may lose datagrams: a fragment that never came is missing from its event, and the builder
//! names it. `docs/integrator.md` goes on from here. Run it with
//! `cargo run --release --package livetime-node --example udp_link`.

use std::collections::VecDeque;
use std::error::Error;
use std::io::ErrorKind;
use std::net::UdpSocket;

use livetime_readout::{
    Assembled, AssemblerConfig, BlockEnd, Completed, FlowControl, FragmentAssembler,
    FragmentBuffer, FragmentBufferConfig, HeapPages, LinkState, LinkStatus, PageError, PageLink,
    PageStore,
};
use livetime_wire::fragment::{CrcCheck, FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::slink::{ControlWord, FragmentStatus};
use livetime_wire::{RunNs, RunNumber, SourceId, TriggerNumber};

const SOURCE: SourceId = SourceId(0x51_0000);
const RUN: RunNumber = RunNumber(1);
const FRAGMENTS: u64 = 1000;
const DATA_WORDS: usize = 500;
/// A datagram must fit into a page here; a link that splits a block over pages completes all but
/// the last with [`BlockEnd::MoreToCome`].
const PAGE_WORDS: u32 = 1024;
const PAGES: u32 = 64;
const FIFO_DEPTH: usize = 32;

/// A socket as a link: one datagram is one block.
struct UdpLink {
    socket: UdpSocket,
    pages: HeapPages,
    request: VecDeque<u32>,
    acknowledge: VecDeque<Completed>,
    datagram: Vec<u8>,
}

impl UdpLink {
    fn new(socket: UdpSocket) -> Self {
        Self {
            socket,
            pages: HeapPages::new(0, PAGES, PAGE_WORDS),
            request: VecDeque::with_capacity(FIFO_DEPTH),
            acknowledge: VecDeque::with_capacity(FIFO_DEPTH),
            datagram: vec![0; PAGE_WORDS as usize * 4],
        }
    }

    /// Puts datagrams into posted pages. Without a page, or a place for its entry, they wait in
    /// the socket: bounded, but a board that cannot wait loses them there. Size the pages for it.
    fn receive(&mut self) -> std::io::Result<()> {
        while self.acknowledge.len() < FIFO_DEPTH {
            let Some(&page) = self.request.front() else {
                break;
            };
            let bytes = match self.socket.recv(&mut self.datagram) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            self.request.pop_front();
            let (words, _) = self.datagram[..bytes].as_chunks::<4>();
            for (to, word) in self.pages.words_mut(page).iter_mut().zip(words) {
                *to = u32::from_le_bytes(*word);
            }
            self.acknowledge.push_back(Completed {
                page,
                len_words: words.len() as u32,
                status: FragmentStatus::GOOD,
                begin: Some(ControlWord::BEGIN_FRAGMENT),
                end: Some(ControlWord::END_FRAGMENT),
                block_end: BlockEnd::EndWord,
            });
        }
        Ok(())
    }
}

impl PageLink for UdpLink {
    fn post(&mut self, page: u32) -> Result<(), PageError> {
        if page >= PAGES {
            let (first, last) = (0, PAGES - 1);
            return Err(PageError::Foreign { page, first, last });
        }
        if self.request.len() == FIFO_DEPTH {
            return Err(PageError::RequestFull { page });
        }
        self.request.push_back(page);
        Ok(())
    }

    fn poll(&mut self) -> Option<Completed> {
        self.acknowledge.pop_front()
    }

    fn link_status(&self) -> LinkStatus {
        LinkStatus {
            link: LinkState::Up,
            flow: FlowControl::Xon,
            resetting: false,
            request_free: (FIFO_DEPTH - self.request.len()) as u32,
            acknowledge_filled: self.acknowledge.len() as u32,
        }
    }

    /// A socket has nothing to reset: no block is ever open.
    fn reset(&mut self, _now: RunNs) {}
}

/// The board: sends the fragment of a trigger.
fn send(board: &UdpSocket, trigger: TriggerNumber) -> std::io::Result<()> {
    let header = FragmentHeader {
        source: SOURCE,
        run: RUN,
        trigger_low: trigger.low(),
        bunch: 0,
        trigger_type: 1,
        event_type: 0,
    };
    let mut words = [0; DATA_WORDS + OVERHEAD_WORDS];
    header.emit(0, DATA_WORDS, &mut words, |data| data.fill(0xC0FF_EE00));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    board.send(&bytes).map(|_| ())
}

fn main() -> Result<(), Box<dyn Error>> {
    let host = UdpSocket::bind("127.0.0.1:0")?;
    host.set_nonblocking(true)?;
    let board = UdpSocket::bind("127.0.0.1:0")?;
    board.connect(host.local_addr()?)?;

    let mut link = UdpLink::new(host);
    let mut free: VecDeque<u32> = (0..PAGES).collect();
    let mut assembler = FragmentAssembler::new(AssemblerConfig {
        run: RUN,
        pool: 0,
        page_words: PAGE_WORDS,
        sources: vec![SOURCE],
        crc: CrcCheck::On,
    });
    let mut buffer = FragmentBuffer::new(FragmentBufferConfig { triggers_max: 16 }, &[SOURCE]);

    for trigger in (1..=FRAGMENTS).map(TriggerNumber) {
        send(&board, trigger)?;
        while link.link_status().request_free > 0
            && let Some(page) = free.pop_front()
        {
            link.post(page)?;
        }
        link.receive()?;
        while let Some(completed) = link.poll() {
            match assembler.handle_completed(&completed, &link.pages) {
                Assembled::MoreToCome => {}
                Assembled::Fragment { trigger, fragment } => {
                    if let Err(refused) = buffer.insert(trigger, fragment) {
                        free.extend(refused.fragment.pages);
                    }
                    // A readout unit keeps the fragment until its event is rejected or written.
                    buffer.remove(trigger, |fragment| free.extend(fragment.pages));
                }
                Assembled::Refused { pages, .. } => free.extend(pages),
            }
        }
    }
    let counters = assembler.counters();
    println!(
        "{FRAGMENTS} sent, {} received, {} filed, {} flagged, {} lost here",
        counters.received,
        counters.filed,
        counters.flagged,
        assembler.losses().total()
    );
    Ok(())
}
