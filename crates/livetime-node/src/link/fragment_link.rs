//! A data link of a run as the front-end has it: fragments in, over any transport.
//!
//! An emulated link and a file have both their ends here, as a card beside its host, and give out
//! filled pages whose acknowledge entries go to the readout unit. Over a socket the front-end has the
//! sending end alone ([`super::link_sender`]), and the readout unit fills pages at the other one
//! ([`super::link_receiver`]). Every fragment handed over comes out or is in the losses of one of both
//! ends. Frames are [`super`]'s business.

use std::fs::File;
use std::io::{self, BufReader};
use std::net::TcpStream;
use std::path::Path;

use livetime_readout::{Completed, FlowControl, LinkConfig, LinkState, PageLink};
use livetime_shm::PagePool;
use livetime_wire::{LossCause, LossCounts, RunNs};

use super::block_receiver::FrameCounters;
use super::link_sender::LinkSender;
use super::stream_link::{StreamLink, StreamState};
use crate::builder_transport::PeerSocket;
use crate::emulated_link::{EmulatedLink, LinkProgress};
use crate::pooled_page::{LinkPages, LinkStore};

/// What a link over a socket or a file tells beside its losses; zero for an emulated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransportCounters {
    /// Frames taken whole.
    pub frames: u64,
    /// Frames that never came, by their numbers.
    pub frames_missing: u64,
    /// Datagrams that the kernel dropped for want of room in the socket's buffer.
    pub kernel_drops: u64,
    /// Datagrams that came again, or after they were given up.
    pub late: u64,
    /// Datagrams that are no frames, and frames that have numbers that nobody can have meant or go on
    /// with no block.
    pub bad: u64,
    /// Times that no page was there for a frame.
    pub stalls: u64,
    /// Tallies that came.
    pub tallies: u64,
}

impl TransportCounters {
    /// Those of the frames.
    pub(super) fn of_frames(frames: FrameCounters) -> Self {
        Self {
            frames: frames.frames,
            frames_missing: frames.frames_missing,
            bad: frames.frames_of_no_block + frames.frames_backwards,
            stalls: frames.stalls,
            ..Self::default()
        }
    }

    /// Adds those of another link.
    pub fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.frames_missing += other.frames_missing;
        self.kernel_drops += other.kernel_drops;
        self.late += other.late;
        self.bad += other.bad;
        self.stalls += other.stalls;
        self.tallies += other.tallies;
    }

    /// By name, for the report; nothing where there is nothing to tell.
    pub fn details(self) -> impl Iterator<Item = (&'static str, u64)> {
        let is_any = self != Self::default();
        let details = [
            ("link_frames", self.frames),
            ("link_frames_missing", self.frames_missing),
            ("link_kernel_drops", self.kernel_drops),
            ("link_datagrams_late", self.late),
            ("link_frames_bad", self.bad),
            ("link_stalls", self.stalls),
            ("link_tallies_received", self.tallies),
        ];
        details.into_iter().filter(move |_| is_any)
    }
}

/// What of a link the front-end has.
enum Ends {
    Emulated(Box<EmulatedLink>),
    Sender(Box<LinkSender>),
    File(Box<FileEnds>),
}

/// A file that is played: a fragment for each that is asked for.
struct FileEnds {
    link: StreamLink<BufReader<File>, LinkPages>,
    /// Fragments asked for.
    asked: u64,
    /// It cannot be read any more: the link stays down.
    is_broken: bool,
}

/// A data link at its front-end.
pub struct FragmentLink {
    ends: Ends,
    before: Before,
}

/// What a link has counted towards readout units that are gone, and what was lost between two.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    handed: u64,
    words: u64,
    losses: LossCounts,
}

impl FragmentLink {
    /// An emulated link that is up; it fills the pages of `pool` from `first_page` on.
    pub fn emulated(config: LinkConfig, pool: PagePool, first_page: u32) -> Self {
        let link = EmulatedLink::new(config, pool, first_page);
        Self::of(Ends::Emulated(Box::new(link)))
    }

    /// A link that plays the frames of a file into the pages of `pool` from `first_page` on.
    ///
    /// # Errors
    /// What the system says of the file.
    pub fn play(
        path: &Path,
        config: LinkConfig,
        pool: PagePool,
        first_page: u32,
    ) -> io::Result<Self> {
        let input = BufReader::with_capacity(1 << 18, File::open(path)?);
        let link = StreamLink::of_file(input, config, first_page, LinkPages::new(pool));
        Ok(Self::of(Ends::File(Box::new(FileEnds {
            link,
            asked: 0,
            is_broken: false,
        }))))
    }

    /// A link over a socket, whose receiving end is the readout unit's.
    pub fn over_socket(sender: LinkSender) -> Self {
        Self::of(Ends::Sender(Box::new(sender)))
    }

    fn of(ends: Ends) -> Self {
        Self {
            ends,
            before: Before::default(),
        }
    }

    /// Whether the link can take a fragment.
    pub fn is_idle(&self) -> bool {
        match &self.ends {
            Ends::Emulated(link) => link.is_idle(),
            Ends::Sender(sender) => sender.is_idle(),
            Ends::File(file) => file.outstanding() == 0,
        }
    }

    /// Puts a fragment on the link, written by `write` over the contents of the vector given to it;
    /// a file holds its fragment already. A link that is down loses and counts it.
    ///
    /// # Panics
    /// If the link cannot take one: ask [`FragmentLink::is_idle`] first.
    pub fn send(&mut self, now: RunNs, write: impl FnOnce(&mut Vec<u32>)) {
        match &mut self.ends {
            Ends::Emulated(link) => link.send(write),
            Ends::Sender(sender) => sender.send(now, write),
            Ends::File(file) => {
                assert!(file.outstanding() == 0, "the caller asks is_idle first");
                file.asked += 1;
            }
        }
    }

    /// Moves what can be moved towards the pages; over a socket it hears of the other end what is to be
    /// read, if something is.
    pub fn pump(&mut self, now: RunNs, is_readable: bool) -> LinkProgress {
        match &mut self.ends {
            Ends::Emulated(link) => link.pump(now),
            Ends::Sender(sender) => sender.pump(now, is_readable),
            Ends::File(file) => file.pump(now),
        }
    }

    /// Whether the host of the receiving end asks for a pause.
    pub fn poll_flow(&mut self, now: RunNs) -> FlowControl {
        match &mut self.ends {
            Ends::Emulated(link) => link.poll_flow(now),
            Ends::Sender(sender) => sender.flow(),
            Ends::File(file) => file.link.blocks_mut().poll_flow(now),
        }
    }

    /// The oldest page that was filled here.
    pub fn poll_completed(&mut self) -> Option<Completed> {
        match &mut self.ends {
            Ends::Emulated(link) => link.poll_completed(),
            Ends::Sender(_) => None,
            Ends::File(file) => file.link.poll(),
        }
    }

    /// Takes a page back; `false` when it was not one that the host may return.
    pub fn recycle(&mut self, page: u32) -> bool {
        match &mut self.ends {
            Ends::Emulated(link) => link.recycle(page),
            Ends::Sender(_) => false,
            Ends::File(file) => {
                let blocks = file.link.blocks_mut();
                blocks.receiver().owns(page)
                    && blocks.store().take_back(page)
                    && blocks.recycle(page).is_ok()
            }
        }
    }

    /// Whether the link is up.
    pub fn state(&self) -> LinkState {
        match &self.ends {
            Ends::Emulated(link) => link.source().link_status().link,
            Ends::Sender(sender) => sender.state(),
            Ends::File(file) if file.is_broken => LinkState::Down,
            Ends::File(_) => LinkState::Up,
        }
    }

    /// Takes the link down or up. Datagrams of a link that is down are lost on their way; a stream
    /// takes no fragments; a file cannot be unplugged.
    pub fn set_state(&mut self, now: RunNs, state: LinkState) {
        match &mut self.ends {
            Ends::Emulated(link) => link.set_state(now, state),
            Ends::Sender(sender) => sender.set_state(state),
            Ends::File(_) => {}
        }
    }

    /// Takes the link down for good: its readout unit is gone, and with it all that is on its way.
    pub fn end(&mut self, now: RunNs) {
        match &mut self.ends {
            Ends::Emulated(link) => link.set_state(now, LinkState::Down),
            Ends::Sender(sender) => sender.end(),
            Ends::File(file) => file.break_down(now),
        }
    }

    /// Takes back the pages that were filled here for a readout unit that is gone; `false` as long as
    /// one of them is read.
    pub fn free_pages(&mut self) -> bool {
        match &mut self.ends {
            Ends::Emulated(link) => link.free_pages(),
            Ends::Sender(_) | Ends::File(_) => true,
        }
    }

    /// Goes on to a readout unit in the place of the one that is gone, at the beginning of a fragment:
    /// over `socket`, if it is a link over one. What was counted so far stays counted, and what the
    /// former unit did not take is not said here. All pages are to be free
    /// ([`FragmentLink::free_pages`]).
    ///
    /// # Errors
    /// What the system says of the socket; a link without its socket, or from a file, is one.
    pub fn begin_again(&mut self, now: RunNs, socket: Option<PeerSocket>) -> io::Result<()> {
        let (handed, words) = self.handed(now);
        let losses = self.losses();
        match (&mut self.ends, socket) {
            (Ends::Emulated(link), _) => link.begin_again(),
            (Ends::Sender(sender), Some(socket)) => sender.begin_again(socket)?,
            (Ends::Sender(_) | Ends::File(_), _) => {
                let reason = "a link without a way to its readout unit";
                return Err(io::Error::new(io::ErrorKind::NotFound, reason));
            }
        }
        self.before = Before {
            handed,
            words,
            losses,
        };
        Ok(())
    }

    /// Loses a fragment that is not for the readout unit at the other end, as a link that is down
    /// does.
    pub fn lose_fragment(&mut self) {
        self.before.handed += 1;
        self.before.losses.add(LossCause::LinkDown, 1);
    }

    /// Goes on with another stream in place of one that was cut.
    ///
    /// # Errors
    /// What the system says of the stream.
    pub fn restore(&mut self, stream: TcpStream) -> io::Result<()> {
        match &mut self.ends {
            Ends::Sender(sender) => sender.restore(stream),
            _ => Ok(()),
        }
    }

    /// Whether there is nothing left to play: a file that is read to its end, or no more readable.
    pub fn is_played_out(&mut self) -> bool {
        match &mut self.ends {
            Ends::File(file) => file.is_broken || file.link.is_at_end(),
            _ => false,
        }
    }

    /// Fragments handed over and neither in pages nor lost.
    pub fn outstanding(&self) -> u64 {
        match &self.ends {
            Ends::Emulated(link) => u64::from(!link.is_idle()),
            Ends::Sender(sender) => sender.outstanding(),
            Ends::File(file) => file.outstanding(),
        }
    }

    /// Fragments of which the receiving end has said nothing, where it is not waited for any more.
    pub fn unanswered(&self) -> u64 {
        self.sender().map_or(0, LinkSender::unanswered)
    }

    /// Whether everything handed over is in pages, which the host has if they were filled here, or lost;
    /// or nobody says what became of it.
    pub fn is_drained(&self) -> bool {
        if self.sender().is_some_and(LinkSender::is_silent) {
            return self.is_idle();
        }
        let filled = match &self.ends {
            Ends::Emulated(link) => link.receiver().link_status().acknowledge_filled,
            Ends::Sender(_) => 0,
            Ends::File(file) => file.link.link_status().acknowledge_filled,
        };
        self.outstanding() == 0 && filled == 0
    }

    /// The run is at its end, and little more will be sent.
    pub fn handle_end(&mut self) {
        if let Ends::Sender(sender) = &mut self.ends {
            sender.handle_end();
        }
    }

    /// Has what does not come counted as lost. To be called when no more will be sent.
    pub fn settle(&mut self) {
        if let Ends::Sender(sender) = &mut self.ends {
            sender.settle();
        }
    }

    /// Gives up what is on the link, counted as aborted.
    pub fn abort(&mut self, now: RunNs) {
        match &mut self.ends {
            Ends::Emulated(link) => link.abort(),
            Ends::Sender(sender) => sender.abort(now),
            Ends::File(file) => file.give_up(now, LossCause::LinkAborted),
        }
    }

    /// Fragments handed over so far, lost ones included, and the data words that left with them.
    pub fn handed(&self, now: RunNs) -> (u64, u64) {
        let (handed, words) = match &self.ends {
            Ends::Emulated(link) => {
                let counters = link.source().counters(now);
                (counters.handed, counters.data_words)
            }
            Ends::Sender(sender) => sender.handed(),
            Ends::File(file) => {
                let receiver = file.link.blocks().receiver();
                (file.asked, receiver.destination_counters().data_words)
            }
        };
        (self.before.handed + handed, self.before.words + words)
    }

    /// Fragments lost at the ends that are here, by cause.
    pub fn losses(&self) -> LossCounts {
        let mut losses = self.before.losses;
        match &self.ends {
            Ends::Emulated(link) => {
                losses.merge(link.source().losses());
                losses.merge(link.receiver().losses());
            }
            Ends::Sender(sender) => losses.merge(sender.losses()),
            Ends::File(file) => {
                let blocks = file.link.blocks();
                losses.merge(blocks.losses());
                losses.merge(blocks.receiver().losses());
            }
        }
        losses
    }

    /// What the transport tells beside its losses, of what is received here.
    pub fn transport_counters(&self) -> TransportCounters {
        match &self.ends {
            Ends::File(file) => TransportCounters {
                tallies: file.link.tallies(),
                ..TransportCounters::of_frames(file.link.blocks().counters())
            },
            _ => TransportCounters::default(),
        }
    }

    /// The sending end of a link over a socket.
    pub fn sender(&self) -> Option<&LinkSender> {
        match &self.ends {
            Ends::Sender(sender) => Some(sender),
            _ => None,
        }
    }
}

impl FileEnds {
    fn outstanding(&self) -> u64 {
        // No more settle than are asked for: one frame at a time is taken, and a file skips none.
        let settled = self.link.blocks().blocks_settled();
        self.asked.saturating_sub(settled)
    }

    /// Reads frames until as many blocks have come as were asked for.
    fn pump(&mut self, now: RunNs) -> LinkProgress {
        if self.outstanding() == 0 {
            return LinkProgress::Idle;
        }
        if self.is_broken {
            self.give_up(now, LossCause::LinkDown);
            return LinkProgress::Moved;
        }
        let mut progress = LinkProgress::Stalled;
        while self.outstanding() > 0 {
            match self.link.receive(now, 1) {
                Ok(0) if self.link.state() == StreamState::Open => break,
                Ok(1..) => progress = LinkProgress::Moved,
                _ => {
                    self.break_down(now);
                    return LinkProgress::Stalled;
                }
            }
        }
        progress
    }

    fn break_down(&mut self, now: RunNs) {
        self.is_broken = true;
        self.give_up(now, LossCause::LinkDown);
    }

    fn give_up(&mut self, now: RunNs, cause: LossCause) {
        let blocks = self.link.blocks_mut();
        blocks.cut(now);
        blocks.give_up(now, self.asked, cause);
    }
}

#[cfg(test)]
mod tests;
