//! A data link of a run: fragments in at the front-end, filled pages out, over any transport.
//!
//! Both ends belong to the front-end's worker, as with an emulated link: what crosses to the readout
//! unit are acknowledge entries. Between the ends are an S-LINK, a pair of sockets or a file. Every
//! fragment handed over comes out or is in the losses: those of a socket are settled when it is
//! certain that nothing more can come ([`FragmentLink::settle`]). Frames are [`super`]'s business.
//!
//! Over sockets a payload byte is copied into the frame, by the kernel twice, and into its page.

use std::fs::File;
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use livetime_readout::{Completed, FlowControl, LinkConfig, LinkState, PageLink};
use livetime_shm::PagePool;
use livetime_wire::{DurationNs, LossCause, LossCounts, RunNs};

use super::block_receiver::BlockReceiver;
use super::stream_link::{StreamLink, StreamSource, StreamState};
use super::transport::LinkTransport;
use super::udp_link::UdpLink;
use super::udp_source::UdpSource;
use crate::emulated_link::{EmulatedLink, LinkProgress};
use crate::pooled_page::{LinkPages, LinkStore};

/// Frames taken from a stream at once, so that the other links get their turn.
const FRAMES_AT_ONCE: usize = 64;
/// How long nothing may come, with fragments on their way, before the rest of a run is taken to be
/// lost. On one machine what was sent is there at once.
const QUIET: DurationNs = DurationNs(50_000_000);

/// What a link over sockets or a file tells beside its losses; zero for an emulated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransportCounters {
    /// Frames taken whole.
    pub frames: u64,
    /// Frames that never came, by their numbers.
    pub frames_missing: u64,
    /// Datagrams that the kernel dropped for want of room in the socket's buffer.
    pub kernel_drops: u64,
    /// Times that no page was there for a frame.
    pub stalls: u64,
}

/// Both ends of a link.
enum Ends {
    Emulated(Box<EmulatedLink>),
    Udp(Box<(UdpSource, UdpLink<LinkPages>)>),
    Tcp(Box<(StreamSource<TcpStream>, StreamLink<TcpStream, LinkPages>)>),
    File(Box<StreamLink<BufReader<File>, LinkPages>>),
}

/// A data link with both its ends.
pub struct FragmentLink {
    ends: Ends,
    state: LinkState,
    /// The stream broke: the link stays down.
    is_broken: bool,
    fragment: Vec<u32>,
    /// Fragments handed over, and their words; an emulated link counts its own.
    handed: u64,
    words: u64,
    /// Fragments that did not get as far as the frames.
    losses: LossCounts,
    /// Of these, without a number; a file's are in its numbers.
    unnumbered: u64,
    /// When something came last.
    came_at: RunNs,
}

impl FragmentLink {
    /// A link that is up and fills the pages of `pool` from `first_page` on.
    ///
    /// # Errors
    /// What the system says of a socket or the file.
    pub fn open(
        transport: &LinkTransport,
        config: LinkConfig,
        pool: PagePool,
        first_page: u32,
    ) -> io::Result<Self> {
        let words_max = config.fragment_words_max as usize;
        let pages = LinkPages::new(pool.clone());
        let ends = match transport {
            LinkTransport::Emulated => {
                Ends::Emulated(Box::new(EmulatedLink::new(config, pool, first_page)))
            }
            LinkTransport::Udp {
                config: udp,
                datagram_words,
            } => {
                let address = (Ipv4Addr::LOCALHOST, 0);
                let link = UdpLink::bind(address, *udp, config, first_page, pages)?;
                let source = UdpSource::new(link.local_address()?, *datagram_words)?;
                Ends::Udp(Box::new((source, link)))
            }
            LinkTransport::Tcp => {
                let (output, input) = stream_pair()?;
                let link = StreamLink::new(input, config, first_page, pages);
                Ends::Tcp(Box::new((StreamSource::new(output), link)))
            }
            LinkTransport::File { path } => {
                let input = BufReader::with_capacity(1 << 18, File::open(path)?);
                let link = StreamLink::new(input, config, first_page, pages);
                Ends::File(Box::new(link))
            }
        };
        Ok(Self {
            ends,
            state: LinkState::Up,
            is_broken: false,
            fragment: Vec::with_capacity(words_max),
            handed: 0,
            words: 0,
            losses: LossCounts::new(),
            unnumbered: 0,
            came_at: RunNs(0),
        })
    }

    /// Whether the link can take a fragment.
    pub fn is_idle(&self) -> bool {
        match &self.ends {
            Ends::Emulated(link) => link.is_idle(),
            Ends::Udp(_) => true,
            Ends::Tcp(ends) => ends.0.is_flushed(),
            Ends::File(link) => self.outstanding_of(link.blocks()) == 0,
        }
    }

    /// Puts a fragment on the link, written by `write` over the contents of the vector given to it;
    /// a file holds its fragment already. A link that is down loses and counts it.
    ///
    /// # Panics
    /// If the link cannot take one: ask [`FragmentLink::is_idle`] first.
    pub fn send(&mut self, now: RunNs, write: impl FnOnce(&mut Vec<u32>)) {
        if let Ends::Emulated(link) = &mut self.ends {
            link.send(write);
            return;
        }
        assert!(self.is_idle(), "the caller asks is_idle first");
        if self.outstanding() == 0 {
            self.came_at = now;
        }
        self.handed += 1;
        let is_up = self.state() == LinkState::Up;
        match &mut self.ends {
            Ends::Emulated(_) => unreachable!("it is dealt with above"),
            Ends::File(_) => {}
            Ends::Udp(ends) => {
                write(&mut self.fragment);
                self.words += self.fragment.len() as u64;
                // What the system does not send, a network that loses it would not bring either:
                // the numbers will tell.
                if !is_up || ends.0.send(&self.fragment).is_err() {
                    ends.0.skip_rest(self.handed, self.fragment.len());
                }
            }
            Ends::Tcp(ends) => {
                write(&mut self.fragment);
                self.words += self.fragment.len() as u64;
                if !is_up {
                    self.losses.add(LossCause::LinkDown, 1);
                    self.unnumbered += 1;
                } else if ends.0.send_some(&self.fragment).is_err() {
                    self.break_down(now);
                }
            }
        }
    }

    /// Moves what can be moved towards the pages.
    pub fn pump(&mut self, now: RunNs) -> LinkProgress {
        if let Ends::Emulated(link) = &mut self.ends {
            return link.pump(now);
        }
        if self.outstanding() == 0 {
            return LinkProgress::Idle;
        }
        let came = match &mut self.ends {
            Ends::Emulated(_) => unreachable!("it is dealt with above"),
            Ends::Udp(ends) => ends.1.receive(now).map_err(|_| ()),
            Ends::Tcp(ends) => {
                let flushed = ends.0.flush_some().map_err(|_| ());
                let came = ends.1.receive(now, FRAMES_AT_ONCE).map_err(|_| ());
                flushed.and(came)
            }
            Ends::File(link) => play_next(now, link, self.handed),
        };
        match came {
            Ok(0) => LinkProgress::Stalled,
            Ok(_) => {
                self.came_at = now;
                LinkProgress::Moved
            }
            Err(()) => {
                self.break_down(now);
                LinkProgress::Stalled
            }
        }
    }

    /// Whether the host of the receiving end asks for a pause. UDP and files carry no XOFF; the
    /// trigger supervisor hears of it all the same.
    pub fn poll_flow(&mut self, now: RunNs) -> FlowControl {
        match &mut self.ends {
            Ends::Emulated(link) => link.poll_flow(now),
            Ends::Udp(ends) => ends.1.blocks_mut().poll_flow(now),
            Ends::Tcp(ends) => ends.1.blocks_mut().poll_flow(now),
            Ends::File(link) => link.blocks_mut().poll_flow(now),
        }
    }

    /// The oldest filled page.
    pub fn poll_completed(&mut self) -> Option<Completed> {
        match &mut self.ends {
            Ends::Emulated(link) => link.poll_completed(),
            Ends::Udp(ends) => ends.1.poll(),
            Ends::Tcp(ends) => ends.1.poll(),
            Ends::File(link) => link.poll(),
        }
    }

    /// Takes a page back; `false` when it was not one that the host may return.
    pub fn recycle(&mut self, page: u32) -> bool {
        match &mut self.ends {
            Ends::Emulated(link) => link.recycle(page),
            Ends::Udp(ends) => recycle(ends.1.blocks_mut(), page),
            Ends::Tcp(ends) => recycle(ends.1.blocks_mut(), page),
            Ends::File(link) => recycle(link.blocks_mut(), page),
        }
    }

    /// Whether the link is up.
    pub fn state(&self) -> LinkState {
        match &self.ends {
            Ends::Emulated(link) => link.source().link_status().link,
            _ if self.is_broken => LinkState::Down,
            _ => self.state,
        }
    }

    /// Takes the link down or up. Datagrams of a link that is down are lost on their way; a stream
    /// takes no fragments; a file cannot be unplugged.
    pub fn set_state(&mut self, now: RunNs, state: LinkState) {
        match &mut self.ends {
            Ends::Emulated(link) => link.set_state(now, state),
            Ends::Udp(_) | Ends::Tcp(_) => self.state = state,
            Ends::File(_) => {}
        }
    }

    /// Takes the link down for good: its receiving end is gone, and with it all that is on its way.
    pub fn end(&mut self, now: RunNs) {
        match &mut self.ends {
            Ends::Emulated(link) => link.set_state(now, LinkState::Down),
            _ => self.break_down(now),
        }
    }

    /// Whether there is nothing left to play: a file that is read to its end, or no more readable.
    pub fn is_played_out(&mut self) -> bool {
        match &mut self.ends {
            Ends::File(link) => self.is_broken || link.is_at_end(),
            _ => false,
        }
    }

    /// Fragments handed over and neither in pages nor lost.
    pub fn outstanding(&self) -> u64 {
        match &self.ends {
            Ends::Emulated(link) => u64::from(!link.is_idle()),
            Ends::Udp(ends) => self.outstanding_of(ends.1.blocks()),
            Ends::Tcp(ends) => self.outstanding_of(ends.1.blocks()),
            Ends::File(link) => self.outstanding_of(link.blocks()),
        }
    }

    fn outstanding_of<S: livetime_readout::PageStore>(&self, blocks: &BlockReceiver<S>) -> u64 {
        self.handed - self.unnumbered - blocks.blocks_settled()
    }

    /// Whether everything handed over is in pages that the host has, or lost.
    pub fn is_drained(&self) -> bool {
        self.outstanding() == 0 && self.acknowledge_filled() == 0
    }

    /// Counts what is still on its way as lost once nothing has come for a while and nothing is
    /// waiting for a page. To be called when no more will be sent: what came then would be late.
    pub fn settle(&mut self, now: RunNs) {
        if let Ends::Udp(ends) = &self.ends
            && ends.1.is_empty()
            && self.outstanding() > 0
            && now.since(self.came_at).0 >= QUIET.0
        {
            self.give_up(now, LossCause::DatagramLost);
        }
    }

    /// Gives up what is on the link, counted as aborted.
    pub fn abort(&mut self, now: RunNs) {
        match &mut self.ends {
            Ends::Emulated(link) => link.abort(),
            _ => self.give_up(now, LossCause::LinkAborted),
        }
    }

    fn break_down(&mut self, now: RunNs) {
        self.is_broken = true;
        self.give_up(now, LossCause::LinkDown);
    }

    fn give_up(&mut self, now: RunNs, cause: LossCause) {
        let sent = self.handed - self.unnumbered;
        match &mut self.ends {
            Ends::Emulated(_) => {}
            Ends::Udp(ends) => ends.1.give_up(now, ends.0.numbers(), cause),
            Ends::Tcp(ends) => {
                ends.0.discard();
                ends.1.blocks_mut().give_up(now, sent, cause);
                // The rest of the stream starts inside a frame: nothing behind it can be read.
                ends.1.close();
                self.is_broken = true;
            }
            Ends::File(link) => link.blocks_mut().give_up(now, sent, cause),
        }
    }

    fn acknowledge_filled(&self) -> u32 {
        let status = match &self.ends {
            Ends::Emulated(link) => link.receiver().link_status(),
            Ends::Udp(ends) => ends.1.link_status(),
            Ends::Tcp(ends) => ends.1.link_status(),
            Ends::File(link) => link.link_status(),
        };
        status.acknowledge_filled
    }

    /// Fragments handed over so far, lost ones included, and the data words that left with them.
    pub fn handed(&self, now: RunNs) -> (u64, u64) {
        match &self.ends {
            Ends::Emulated(link) => {
                let counters = link.source().counters(now);
                (counters.handed, counters.data_words)
            }
            Ends::File(link) => {
                let words = link.blocks().receiver().destination_counters().data_words;
                (self.handed, words)
            }
            _ => (self.handed, self.words),
        }
    }

    /// Fragments lost, by cause.
    pub fn losses(&self) -> LossCounts {
        let mut losses = self.losses;
        let (blocks, receiver) = match &self.ends {
            Ends::Emulated(link) => (link.source().losses(), link.receiver().losses()),
            Ends::Udp(ends) => of_blocks(ends.1.blocks()),
            Ends::Tcp(ends) => of_blocks(ends.1.blocks()),
            Ends::File(link) => of_blocks(link.blocks()),
        };
        losses.merge(blocks);
        losses.merge(receiver);
        losses
    }

    /// What the transport tells beside its losses.
    pub fn transport_counters(&self) -> TransportCounters {
        let (frames, kernel_drops) = match &self.ends {
            Ends::Emulated(_) => return TransportCounters::default(),
            Ends::Udp(ends) => (ends.1.blocks().counters(), ends.1.counters().kernel_drops),
            Ends::Tcp(ends) => (ends.1.blocks().counters(), 0),
            Ends::File(link) => (link.blocks().counters(), 0),
        };
        TransportCounters {
            frames: frames.frames,
            frames_missing: frames.frames_missing,
            kernel_drops,
            stalls: frames.stalls,
        }
    }
}

/// The losses of the frames, and of the receiver behind them.
fn of_blocks(blocks: &BlockReceiver<LinkPages>) -> (&LossCounts, &LossCounts) {
    (blocks.losses(), blocks.receiver().losses())
}

fn recycle(blocks: &mut BlockReceiver<LinkPages>, page: u32) -> bool {
    blocks.receiver().owns(page) && blocks.store().take_back(page) && blocks.recycle(page).is_ok()
}

/// Both ends of a connection over the loopback interface; neither waits.
fn stream_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let output = TcpStream::connect(listener.local_addr()?)?;
    let ours = output.local_addr()?;
    // Whoever else connects to the port in between is not the other end.
    let input = loop {
        let (input, peer) = listener.accept()?;
        if peer == ours {
            break input;
        }
    };
    for end in [&output, &input] {
        end.set_nonblocking(true)?;
        end.set_nodelay(true)?;
    }
    Ok((output, input))
}

/// Reads frames until as many blocks have come as were asked for.
fn play_next<R: io::Read>(
    now: RunNs,
    link: &mut StreamLink<R, LinkPages>,
    asked: u64,
) -> Result<usize, ()> {
    let mut frames = 0;
    while link.blocks().blocks_settled() < asked {
        let taken = link.receive(now, 1).map_err(|_| ())?;
        if taken == 0 && link.state() == StreamState::Ended {
            return Err(());
        }
        if taken == 0 {
            break;
        }
        frames += taken;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests;
