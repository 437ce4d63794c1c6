//! A link over UDP: numbered datagrams, many per system call, put in order within a window.
//!
//! [`UdpLink`] receives batches of datagrams, puts them in order as far as its window reaches, and
//! hands them to a [`BlockReceiver`]. UDP has no XOFF: while no page is there, datagrams wait in
//! the socket, and what does not fit into its buffer the kernel drops and counts (SO_RXQ_OVFL). The
//! numbers say what is missing; on a network that loses nothing both counts agree, and
//! [`UdpCounters`] holds both as of the same datagram. A datagram is copied by the kernel and once
//! into its page; one that comes too early is copied once more. A tally of the sender counts as a
//! datagram that comes later: what is missing before it is waited for as long, and then lost. Time
//! in which nobody reads is not counted against a datagram: nothing is given up before the socket is
//! found empty.
//!
//! Numbers that nobody can have meant make no losses (`link_place`): a frame that goes back behind what
//! came is refused, what is too far ahead is put aside until the next datagram agrees with it, and
//! nothing is given up for a tally that the sender has not repeated.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;

use arrayvec::ArrayVec;
use livetime_readout::{Completed, LinkConfig, LinkStatus, PageError, PageLink, PageStore};
use livetime_wire::link_frame::{DATA_WORDS_MAX, FrameHeader, HEADER_WORDS, LinkTally};
use livetime_wire::{ByteSize, DurationNs, LossCause, Problem, ProblemCode, RunNs};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg, recvmsg, setsockopt, sockopt,
};
use zerocopy::IntoBytes;

use crate::link::block_receiver::{BlockReceiver, FrameStage};

mod link_place;

pub(super) use link_place::FRAMES_AHEAD_MAX;
use link_place::{Judgement, LinkPlace, Said};

/// Datagrams of one system call.
const BATCH: usize = 32;
/// Most batches in a row that come without the kernel's count of drops.
const BATCHES_UNTOLD: u32 = 15;
/// Widest window.
const WINDOW_MAX: usize = 4096;

/// A figure of a UDP link is out of range.
pub const UDP_LINK: ProblemCode = ProblemCode::new("L0401", "UDP link out of range");

/// The receiving end of a link over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpConfig {
    /// Datagrams that may come out of order: one that is further ahead ends the wait for the
    /// oldest that is missing. 1 to 4096, default 64.
    pub window: usize,
    /// How long a missing datagram is waited for while later ones are there, default 10 ms. Longer
    /// than any reordering of the network; it delays only blocks behind a loss.
    pub patience: DurationNs,
    /// Bytes asked for the socket's buffer, default 4 MiB; the system gives at most
    /// `net.core.rmem_max`. Holds what comes while the receiver waits for pages.
    pub buffer_bytes: usize,
    /// Most data words of a datagram, 1 to 16 370, default all. Longer ones are cut by the kernel,
    /// refused and counted.
    pub data_words_max: usize,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            window: 64,
            patience: DurationNs(10_000_000),
            buffer_bytes: 4 << 20,
            data_words_max: DATA_WORDS_MAX,
        }
    }
}

impl UdpConfig {
    /// Every problem of the configuration; `path` is its key in the file.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let size = |bytes: usize| format!("{:#}", ByteSize(bytes as u64));
        let of_words = |words: usize| size(4 * words);
        let (count, buffer) = (|count: usize| count.to_string(), 1 << 12..=1 << 30);
        // Files have sizes where this counts words and bytes.
        let limits: [(_, _, _, &dyn Fn(usize) -> String); 3] = [
            ("window", self.window, 1..=WINDOW_MAX, &count),
            (
                "data_words_max",
                self.data_words_max,
                1..=DATA_WORDS_MAX,
                &of_words,
            ),
            ("buffer_bytes", self.buffer_bytes, buffer, &size),
        ];
        for (key, value, range, text) in limits {
            if !range.contains(&value) {
                problems.push(Problem::new(
                    UDP_LINK,
                    format!("{path}.{key}"),
                    text(value),
                    format!("{} to {}", text(*range.start()), text(*range.end())),
                    "the defaults suit a network of one hop",
                ));
            }
        }
        problems
    }
}

/// What came over the network, beside the counters of [`BlockReceiver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpCounters {
    /// Datagrams received.
    pub datagrams: u64,
    /// System calls that received some.
    pub calls: u64,
    /// Datagrams that are no frames, of strangers, cut, or of another version; and frames and tallies
    /// with numbers that nobody can have meant. Dropped.
    pub datagrams_bad: u64,
    /// Datagrams that came again, or after they were given up. Dropped.
    pub datagrams_late: u64,
    /// Datagrams that waited in the window.
    pub datagrams_early: u64,
    /// Datagrams that the kernel dropped for want of room in the socket's buffer, as of the last
    /// one that told it.
    pub kernel_drops: u64,
    /// Datagrams known to be missing, before that same datagram, by the numbers: equal to
    /// `kernel_drops` if only this host loses.
    pub missing_at_kernel_drops: u64,
}

/// A datagram that came too early.
#[derive(Debug, Clone)]
struct Early {
    number: u64,
    words: Vec<u32>,
}

/// Where a datagram says that it is whose numbers are doubtful, and where the next one is then.
#[derive(Debug, Clone, Copy)]
struct Doubted {
    at: LinkPlace,
    behind: LinkPlace,
    /// It is too far ahead to be believed alone, and others before it may still come.
    is_in_reach: bool,
}

/// A tally before which something is missing.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    tally: LinkTally,
    since: RunNs,
    /// Another one agrees with it, as the sender repeats itself: what is missing may be given up.
    is_repeated: bool,
}

thread_local! {
    /// What a batched call is described with, without a place for the sender's address: writing it
    /// takes the kernel a tenth of its time for a datagram of 1 KiB, and frames are told apart by
    /// their first words. It holds pointers of the system, so that it stays with its thread, and a
    /// link may move to the worker that polls it.
    static HEADERS: RefCell<MultiHeaders<()>> =
        RefCell::new(MultiHeaders::preallocate(BATCH, None));
}

/// The receiving end of a link over UDP.
pub struct UdpLink<S> {
    socket: UdpSocket,
    config: UdpConfig,
    blocks: BlockReceiver<S>,
    /// For each datagram of a batch, its words, and how many bytes came.
    batch: Vec<Vec<u32>>,
    came: ArrayVec<usize, BATCH>,
    /// Batches since the kernel's count of drops was told.
    untold: u32,
    /// The next datagram of the batch, and how far it is taken.
    next_in_batch: usize,
    stage: FrameStage,
    control: Vec<u8>,
    /// By number modulo the window; a slot whose number is not the one sought is free.
    window: Vec<Early>,
    waiting: usize,
    /// How far the early datagram that is next is taken.
    window_stage: FrameStage,
    next_number: u64,
    /// Behind the last frame that was taken, or at the last tally before which all was given up.
    place: LinkPlace,
    doubted: Option<Doubted>,
    /// The words of the datagram that is doubted; none of a tally.
    doubted_words: Vec<u32>,
    oldest_wait: Option<RunNs>,
    given_up: u64,
    /// A tally before which something is missing.
    tally: Option<Awaited>,
    /// Tallies that came.
    tallies: u64,
    /// Everything before this number has left the socket.
    seen: u64,
    /// Blocks are not taken any more, since the run is ended by force.
    discards: bool,
    counters: UdpCounters,
}

impl<S: PageStore> UdpLink<S> {
    /// A link that listens at `address`; pages as for [`BlockReceiver::new`]. The configurations
    /// have been validated.
    ///
    /// # Errors
    /// What the system says of the address or the socket.
    pub fn bind(
        address: impl ToSocketAddrs,
        config: UdpConfig,
        link: LinkConfig,
        first_page: u32,
        store: S,
    ) -> io::Result<Self> {
        Self::on(UdpSocket::bind(address)?, config, link, first_page, store)
    }

    /// The same over a socket that is there already.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub fn on(
        socket: UdpSocket,
        config: UdpConfig,
        link: LinkConfig,
        first_page: u32,
        store: S,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        setsockopt(&socket, sockopt::RcvBuf, &config.buffer_bytes)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        // One word more than allowed, so that a longer datagram shows.
        let words = HEADER_WORDS + config.data_words_max + 1;
        let early = Early {
            number: u64::MAX,
            words: Vec::new(),
        };
        Ok(Self {
            socket,
            blocks: BlockReceiver::new(link, first_page, store),
            batch: vec![vec![0; words]; BATCH],
            came: ArrayVec::new(),
            untold: 0,
            next_in_batch: 0,
            stage: FrameStage::default(),
            control: nix::cmsg_space!(u32),
            window: vec![early; config.window],
            waiting: 0,
            window_stage: FrameStage::default(),
            next_number: 0,
            place: LinkPlace::default(),
            doubted: None,
            doubted_words: Vec::new(),
            oldest_wait: None,
            given_up: 0,
            tally: None,
            tallies: 0,
            seen: 0,
            discards: false,
            counters: UdpCounters::default(),
            config,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives one batch, as far as there are pages; returns the datagrams that came.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub fn receive(&mut self, now: RunNs) -> io::Result<usize> {
        if !self.advance(now) {
            return Ok(0);
        }
        let is_telling = self.is_telling();
        self.came.clear();
        self.next_in_batch = 0;
        if !is_telling || self.receive_first()? {
            self.receive_more()?;
            self.untold = if is_telling { 0 } else { self.untold + 1 };
        }
        self.counters.calls += u64::from(!self.came.is_empty());
        self.counters.datagrams += self.came.len() as u64;
        let is_empty = self.came.len() < BATCH;
        if self.take_batch(now) && is_empty {
            self.give_up_overdue(now);
        }
        Ok(self.came.len())
    }

    /// Takes what has been received, as far as there are pages; `false` when one is missing.
    pub fn advance(&mut self, now: RunNs) -> bool {
        self.take_batch(now) && self.take_window(now)
    }

    /// Whether something is to be given up, or all before a tally has come: the socket is to be read
    /// then, even if nothing is known to be in it.
    pub fn is_overdue(&self, now: RunNs) -> bool {
        let is_tally_due = self.tally.is_some_and(|awaited| {
            let is_waited_for = awaited.is_repeated && self.is_over(now, awaited.since);
            self.next_number >= awaited.tally.frames || is_waited_for
        });
        is_tally_due
            || self
                .oldest_wait
                .is_some_and(|since| self.is_over(now, since))
    }

    fn is_over(&self, now: RunNs, since: RunNs) -> bool {
        now.since(since).0 >= self.config.patience.0
    }

    /// Gives up what is waited for too long; the socket was found empty.
    fn give_up_overdue(&mut self, now: RunNs) {
        self.give_up_oldest(now);
        if self.take_window(now) {
            self.give_up_before_tally(now);
        }
    }

    /// The counters of the network.
    pub fn counters(&self) -> UdpCounters {
        self.counters
    }

    /// What the link shares with the others: counters, losses, pages.
    pub fn blocks(&self) -> &BlockReceiver<S> {
        &self.blocks
    }

    /// The same, to be worked with.
    pub fn blocks_mut(&mut self) -> &mut BlockReceiver<S> {
        &mut self.blocks
    }

    /// Whether no datagram is held: neither of a batch, for want of a page, nor in the window.
    pub fn is_empty(&self) -> bool {
        self.next_in_batch >= self.came.len() && self.waiting == 0
    }

    /// The socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Everything before this frame has left the socket, or was dropped by it.
    pub fn frames_seen(&self) -> u64 {
        self.seen
    }

    /// Tallies that came.
    pub fn tallies(&self) -> u64 {
        self.tallies
    }

    /// Takes no more blocks: what has not come whole, and what comes from now on, is lost as aborted
    /// as soon as a tally says how much was sent.
    pub fn discard(&mut self, now: RunNs) {
        if !self.discards {
            self.discards = true;
            self.forget(now);
        }
    }

    /// Forgets what is held and not whole.
    fn forget(&mut self, now: RunNs) {
        for early in &mut self.window {
            early.number = u64::MAX;
        }
        (self.waiting, self.oldest_wait) = (0, None);
        self.drop_doubted();
        (self.stage, self.window_stage) = (FrameStage::default(), FrameStage::default());
        self.blocks.cut(now);
    }

    /// Counts everything before a tally that has not come as lost; what of it comes later is late. A
    /// tally that what came since contradicts is dropped.
    fn give_up(&mut self, now: RunNs, tally: LinkTally, cause: LossCause) {
        self.tally = None;
        if self.place.judge(Said::Tally(tally)) != Judgement::Agrees {
            self.counters.datagrams_bad += 1;
            return;
        }
        self.settle_at(now, self.place.at(Said::Tally(tally)), cause);
    }

    /// Counts everything before a place as lost that has not come.
    fn settle_at(&mut self, now: RunNs, place: LinkPlace, cause: LossCause) {
        self.miss_before(now, place.frame);
        self.seen = self.seen.max(self.next_number);
        self.blocks.give_up(now, place.block, cause);
        if place.frame >= self.place.frame && place.block >= self.place.block {
            self.place = place;
        }
    }

    /// Counts the frames before `number` that have not come as missing.
    fn miss_before(&mut self, now: RunNs, number: u64) {
        let missing = number.saturating_sub(self.next_number);
        self.given_up += missing;
        self.next_number += missing;
        self.blocks.handle_missing(now, missing);
    }

    /// Gives up what is missing before a tally that was repeated, once it was waited for; `false` when a
    /// page is missing for what came before it.
    fn give_up_before_tally(&mut self, now: RunNs) -> bool {
        let Some(awaited) = self.tally else {
            return true;
        };
        let tally = awaited.tally;
        if self.next_number >= tally.frames {
            self.give_up(now, tally, LossCause::DatagramLost);
            return true;
        }
        if !awaited.is_repeated || !self.is_over(now, awaited.since) {
            return true;
        }
        if !self.take_window_before(now, tally.frames) {
            return false;
        }
        self.give_up(now, tally, LossCause::DatagramLost);
        self.take_window(now)
    }

    /// Takes the early datagrams before `number`, and gives up what is missing between them; `false`
    /// when a page is missing.
    fn take_window_before(&mut self, now: RunNs, number: u64) -> bool {
        while let Some(oldest) = self.oldest_waiting().filter(|early| *early < number) {
            debug_assert!(oldest >= self.next_number, "nothing waits that was passed");
            if !self.skip_to(now, oldest) || !self.take_window(now) {
                return false;
            }
        }
        true
    }

    /// Takes note of a tally, behind all that came before it; `false` when a page is missing.
    fn take_tally(&mut self, now: RunNs, tally: LinkTally) -> bool {
        match self.is_believed(now, Said::Tally(tally)) {
            None => return false,
            Some(false) => return true,
            Some(true) => {}
        }
        self.tallies += 1;
        if self.discards {
            self.give_up(now, tally, LossCause::LinkAborted);
            return true;
        }
        self.await_all_before(now, tally);
        true
    }

    /// Waits for what is missing before a tally, unless it waits already for what is missing before one
    /// that the sender repeats with it.
    fn await_all_before(&mut self, now: RunNs, tally: LinkTally) {
        if let Some(awaited) = &mut self.tally
            && self.next_number < awaited.tally.frames
        {
            let first = self.place.at(Said::Tally(awaited.tally));
            let is_same =
                tally.frames >= first.frame && first.judge(Said::Tally(tally)) == Judgement::Agrees;
            awaited.is_repeated |= is_same;
            if awaited.is_repeated {
                self.seen = self.seen.max(first.frame);
                return;
            }
            self.counters.datagrams_bad += 1;
        }
        self.tally = Some(Awaited {
            tally,
            since: now,
            is_repeated: false,
        });
    }

    /// Whether the numbers of a datagram can be meant: if they agree with what came, or are further
    /// ahead and agree with the datagram before, which is taken first then. `None` when a page is missing
    /// for that one.
    fn is_believed(&mut self, now: RunNs, said: Said<'_>) -> Option<bool> {
        let is_back = |link: &Self| {
            let is_frame = matches!(said, Said::Frame(..));
            is_frame && link.place.judge(said) == Judgement::Contradicts
        };
        if is_back(self) {
            // One that goes back cannot be taken, whatever others say.
            self.counters.datagrams_bad += 1;
            return Some(false);
        }
        let before = self.doubted.filter(|doubted| {
            let is_behind = said.frame() >= doubted.behind.frame;
            is_behind && doubted.behind.judge(said) == Judgement::Agrees
        });
        if let Some(doubted) = before {
            if doubted.is_in_reach && doubted.at.frame >= self.next_number {
                return self.take_in_reach(now, doubted.at.frame).then_some(true);
            }
            if !self.take_window_before(now, doubted.at.frame) {
                return None;
            }
            if self.doubted_words.is_empty() || doubted.at.frame >= self.next_number {
                return self.take_doubted(now, doubted.at).then_some(true);
            }
            // Another with its number was waiting, and is taken by now.
            if is_back(self) {
                self.counters.datagrams_bad += 1;
                return Some(false);
            }
        }
        self.drop_doubted();
        let agrees = self.place.judge(said) == Judgement::Agrees;
        let window = self.window.len() as u64;
        let is_believed = agrees && self.is_near(said, window);
        if !is_believed {
            let is_in_reach = agrees && self.is_near(said, 2 * window);
            self.doubt(said, is_in_reach);
        }
        Some(is_believed)
    }

    /// Whether a datagram is less than so many frames ahead of all that were seen. Within the window it
    /// pushes out only what is late by then. What is missing before a tally is not given up for it alone.
    fn is_near(&self, said: Said<'_>, frames: u64) -> bool {
        match said {
            Said::Frame(header, _) => {
                let ahead = header
                    .number
                    .saturating_sub(self.next_number.max(self.seen));
                ahead < frames
            }
            Said::Tally(_) => true,
        }
    }

    /// Puts a datagram aside until the next one agrees with it.
    fn doubt(&mut self, said: Said<'_>, is_in_reach: bool) {
        let at = self.place.at(said);
        let behind = match said {
            Said::Frame(header, words) => {
                self.doubted_words.extend_from_slice(words);
                at.behind(header)
            }
            Said::Tally(_) => at,
        };
        self.doubted = Some(Doubted {
            at,
            behind,
            is_in_reach,
        });
    }

    /// Drops the datagram that was put aside: the next one did not agree with it.
    fn drop_doubted(&mut self) {
        if self.doubted.take().is_some() {
            self.counters.datagrams_bad += 1;
            self.doubted_words.clear();
        }
    }

    /// Takes the datagram that was put aside as one that came in its turn: what is missing less than a
    /// window before it may still come. `false` when a page is missing.
    fn take_in_reach(&mut self, now: RunNs, number: u64) -> bool {
        if !self.discards && !self.make_room(now, number) {
            return false;
        }
        self.doubted = None;
        self.seen = self.seen.max(number + 1);
        let words = core::mem::take(&mut self.doubted_words);
        if !self.discards {
            self.keep(now, number, &words);
        }
        self.doubted_words = words;
        self.doubted_words.clear();
        self.take_window(now)
    }

    /// Goes on at `at` with the datagram that was put aside, behind all that waited before it, and gives
    /// up what is missing there: nothing is that late. `false` when a page is missing.
    fn take_doubted(&mut self, now: RunNs, at: LinkPlace) -> bool {
        self.doubted = None;
        let words = core::mem::take(&mut self.doubted_words);
        if words.is_empty() {
            let cause = match self.discards {
                true => LossCause::LinkAborted,
                false => LossCause::DatagramLost,
            };
            self.settle_at(now, at, cause);
        } else if !self.discards {
            self.miss_before(now, at.frame);
            self.place = at;
            self.keep(now, at.frame, &words);
        }
        self.doubted_words = words;
        self.doubted_words.clear();
        self.take_window(now)
    }

    /// Gives a polled page back.
    ///
    /// # Errors
    /// A [`PageError`].
    pub fn recycle(&mut self, page: u32) -> Result<(), PageError> {
        self.blocks.recycle(page)
    }

    /// Whether the first datagram is received alone, since only that call tells the kernel's count
    /// of drops: always but where full batches without a gap follow each other.
    fn is_telling(&self) -> bool {
        self.came.len() < BATCH || self.waiting > 0 || self.untold >= BATCHES_UNTOLD
    }

    fn receive_first(&mut self) -> io::Result<bool> {
        let fd = self.socket.as_raw_fd();
        let mut slices = [IoSliceMut::new(self.batch[0].as_mut_bytes())];
        let control = Some(self.control.as_mut_slice());
        let message = match recvmsg::<()>(fd, &mut slices, control, MsgFlags::empty()) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for control in message.cmsgs()? {
            if let ControlMessageOwned::RxqOvfl(drops) = control {
                // The kernel's counter has 32 bits.
                let more = drops.wrapping_sub(self.counters.kernel_drops as u32);
                self.counters.kernel_drops += u64::from(more);
            }
        }
        let bytes = message.bytes;
        self.came.push(bytes);
        let words = &self.batch[0][..(bytes / 4).min(self.batch[0].len())];
        let header = FrameHeader::parse_whole(words).map(|(header, _)| header.number);
        let tally = tally_of(words).map(|tally| tally.frames);
        let is_near = |number: &u64| number.saturating_sub(self.next_number) <= FRAMES_AHEAD_MAX;
        let number = header.ok().or(tally).filter(is_near);
        if let Some(number) = number.filter(|_| !self.discards) {
            // All up to here that neither came nor waits was lost on its way.
            let waiting = self.waiting + usize::from(!self.doubted_words.is_empty());
            let came = self.taken() + waiting as u64;
            self.counters.missing_at_kernel_drops = number.saturating_sub(came);
        }
        Ok(true)
    }

    /// Numbers that came and are taken.
    fn taken(&self) -> u64 {
        self.next_number - self.given_up
    }

    fn receive_more(&mut self) -> io::Result<()> {
        let fd = self.socket.as_raw_fd();
        let came = &mut self.came;
        let free = BATCH - came.len();
        HEADERS.with_borrow_mut(|headers| {
            let mut places = self.batch[BATCH - free..].iter_mut();
            let mut slices: [[IoSliceMut<'_>; 1]; BATCH] = core::array::from_fn(|_| {
                let words = places.next().map_or(&mut [][..], |words| &mut words[..]);
                [IoSliceMut::new(words.as_mut_bytes())]
            });
            let flags = MsgFlags::empty();
            match recvmmsg(fd, headers, slices[..free].iter_mut(), flags, None) {
                Ok(messages) => {
                    came.extend(messages.map(|message| message.bytes));
                    Ok(())
                }
                Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Takes what the batch still holds; `false` when a page is missing.
    fn take_batch(&mut self, now: RunNs) -> bool {
        while let Some(bytes) = self.came.get(self.next_in_batch).copied() {
            let words = core::mem::take(&mut self.batch[self.next_in_batch]);
            let is_taken = self.take_datagram(now, &words, bytes);
            self.batch[self.next_in_batch] = words;
            if !is_taken {
                return false;
            }
            self.next_in_batch += 1;
        }
        true
    }

    fn take_datagram(&mut self, now: RunNs, words: &[u32], bytes: usize) -> bool {
        let words = words.get(..bytes / 4).unwrap_or_default();
        if let Ok((header, data)) = FrameHeader::parse_whole(words)
            && bytes.is_multiple_of(4)
            && data.len() <= self.config.data_words_max
        {
            return self.take_frame(now, &header, data, words);
        }
        if let Some(tally) = tally_of(words).filter(|_| bytes.is_multiple_of(4)) {
            return self.take_tally(now, tally);
        }
        self.counters.datagrams_bad += 1;
        true
    }

    /// Takes a frame, of which `words` are all and `data` those behind the header; `false` when a page
    /// is missing.
    fn take_frame(
        &mut self,
        now: RunNs,
        header: &FrameHeader,
        data: &[u32],
        words: &[u32],
    ) -> bool {
        if self.stage == FrameStage::default() {
            // What is next may be here and wait for a page: a copy of it is late, and no next one.
            if !self.take_window(now) {
                return false;
            }
            if header.number < self.next_number {
                self.counters.datagrams_late += u64::from(!self.discards);
                return true;
            }
            match self.is_believed(now, Said::Frame(header, words)) {
                None => return false,
                Some(false) => return true,
                Some(true) => self.seen = self.seen.max(header.number + 1),
            }
            if header.number < self.next_number {
                // The one before it was believed for its sake, and its own number was here already.
                self.counters.datagrams_late += u64::from(!self.discards);
                return true;
            }
            if self.discards {
                return true;
            }
            if !self.make_room(now, header.number) {
                return false;
            }
            if header.number > self.next_number {
                self.keep(now, header.number, words);
                return true;
            }
        }
        if !self.blocks.take(now, header, data, &mut self.stage) {
            return false;
        }
        self.stage = FrameStage::default();
        self.handle_taken(header);
        // A stop for want of pages in the window is seen by the next call.
        self.take_window(now);
        true
    }

    /// Moves the window so far that a number is in it: what that pushes out is not waited for any
    /// longer. `false` when a page is missing.
    fn make_room(&mut self, now: RunNs, number: u64) -> bool {
        let window = self.window.len() as u64;
        while number >= self.next_number + window {
            let oldest = number - window + 1;
            let oldest = self.oldest_waiting().unwrap_or(oldest).min(oldest);
            debug_assert!(oldest >= self.next_number, "nothing waits that was passed");
            if !self.skip_to(now, oldest) || !self.take_window(now) {
                return false;
            }
        }
        true
    }

    /// The frame that was next is taken.
    fn handle_taken(&mut self, header: &FrameHeader) {
        self.next_number += 1;
        self.place = self.place.behind(header);
    }

    fn keep(&mut self, now: RunNs, number: u64, words: &[u32]) {
        let slot = (number % self.window.len() as u64) as usize;
        let slot = &mut self.window[slot];
        if slot.number == number {
            let (kept, _) = kept_frame(&slot.words);
            if self.place.judge(Said::Frame(&kept, &[])) == Judgement::Agrees {
                self.counters.datagrams_late += 1;
                return;
            }
            // What came since contradicts the one that was kept.
            self.counters.datagrams_bad += 1;
            self.waiting -= 1;
        }
        slot.number = number;
        slot.words.clear();
        slot.words.extend_from_slice(words);
        self.waiting += 1;
        self.counters.datagrams_early += 1;
        self.oldest_wait.get_or_insert(now);
    }

    /// Takes the early datagrams that are next by now; `false` when a page is missing.
    fn take_window(&mut self, now: RunNs) -> bool {
        while self.waiting > 0 {
            let slot = (self.next_number % self.window.len() as u64) as usize;
            if self.window[slot].number != self.next_number {
                return true;
            }
            let words = core::mem::take(&mut self.window[slot].words);
            let (header, data) = kept_frame(&words);
            // What came since may contradict it; then its number is missing like one that never came.
            let is_good = self.place.judge(Said::Frame(&header, &words)) == Judgement::Agrees;
            let is_done = !is_good || self.blocks.take(now, &header, data, &mut self.window_stage);
            self.window[slot].words = words;
            if !is_done {
                return false;
            }
            self.window_stage = FrameStage::default();
            self.window[slot].number = u64::MAX;
            self.waiting -= 1;
            self.oldest_wait = (self.waiting > 0).then_some(now);
            if !is_good {
                self.counters.datagrams_bad += 1;
                return true;
            }
            self.handle_taken(&header);
        }
        true
    }

    /// The oldest that waits; those that were contradicted by what came since are dropped, for nothing is
    /// to be given up for them.
    fn oldest_waiting(&mut self) -> Option<u64> {
        let Self { window, place, .. } = self;
        let mut dropped = 0;
        let mut oldest = None;
        for early in window.iter_mut().filter(|early| early.number != u64::MAX) {
            let (header, data) = kept_frame(&early.words);
            if place.judge(Said::Frame(&header, data)) == Judgement::Agrees {
                oldest = Some(oldest.map_or(early.number, |first: u64| first.min(early.number)));
            } else {
                early.number = u64::MAX;
                dropped += 1;
            }
        }
        self.waiting -= dropped;
        self.counters.datagrams_bad += dropped as u64;
        if self.waiting == 0 {
            self.oldest_wait = None;
        }
        oldest
    }

    /// Gives up the datagrams before `number`.
    fn skip_to(&mut self, now: RunNs, number: u64) -> bool {
        if self.window_stage != FrameStage::default() {
            // The one that is next waits for a page; it is not missing.
            return self.take_window(now);
        }
        self.miss_before(now, number);
        true
    }

    /// Gives up what was waited for too long.
    fn give_up_oldest(&mut self, now: RunNs) {
        if self
            .oldest_wait
            .is_some_and(|since| self.is_over(now, since))
            && let Some(oldest) = self.oldest_waiting()
        {
            self.skip_to(now, oldest);
            self.oldest_wait = Some(now);
        }
    }
}

/// The tally that is all of `words`, if it is one.
#[inline]
fn tally_of(words: &[u32]) -> Option<LinkTally> {
    words.try_into().ok().and_then(LinkTally::parse)
}

/// A datagram that was kept for later.
fn kept_frame(words: &[u32]) -> (FrameHeader, &[u32]) {
    let frame = FrameHeader::parse_whole(words);
    frame.expect("it was read before it was kept")
}

impl<S: PageStore> PageLink for UdpLink<S> {
    fn post(&mut self, page: u32) -> Result<(), PageError> {
        self.blocks.post(page)
    }

    fn poll(&mut self) -> Option<Completed> {
        self.blocks.poll()
    }

    fn link_status(&self) -> LinkStatus {
        self.blocks.link_status()
    }

    fn reset(&mut self, now: RunNs) {
        self.blocks.reset(now);
    }
}

#[cfg(test)]
mod tests;
