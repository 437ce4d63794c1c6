//! The sending end of a data link over a socket, in the front-end's role.
//!
//! A [`LinkSender`] numbers fragments as blocks of frames and sends them; the receiving end
//! ([`super::link_receiver`]) is the readout unit's, in whatever thread, process or host that is, and
//! says back what it has seen and whether it asks for a pause. A fragment for which there is no room
//! is held back, and the front-end waits. Every fragment handed over is numbered, and then the
//! receiving end finds what did not come; or it is counted here as lost, and the other end never
//! hears of it. Frames and returns are specified in `docs/formats/link-frame.md`.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use livetime_readout::{FlowControl, LinkState};
use livetime_wire::link_frame::FrameNumbers;
use livetime_wire::link_return::{LinkReturn, RETURN_WORDS};
use livetime_wire::{DurationNs, LossCause, LossCounts, RunNs};
use zerocopy::IntoBytes;

use super::socket_window::{SocketWindow, set_aside};
use super::stream_link::StreamSource;
use super::udp_link::FRAMES_AHEAD_MAX;
use super::udp_source::UdpSource;
use crate::builder_transport::PeerSocket;
use crate::emulated_link::LinkProgress;

/// Time from one tally to the next while the other end is waited for, at first and at most.
const ASK_AGAIN: DurationNs = DurationNs(1_000_000);
const ASK_AGAIN_MAX: DurationNs = DurationNs(256_000_000);
/// Tallies in a row without an answer after which nobody is waited for any more: about a minute, and at
/// the end of a run more than 5 s.
const ASKED_MAX: u32 = 240;
const ASKED_AT_END_MAX: u32 = 30;
/// Bytes of a return.
const RETURN_BYTES: usize = 4 * RETURN_WORDS;
/// Bytes that are read of a stream at once: more than are there as a rule.
const READ_BYTES: usize = 4 * RETURN_BYTES;

/// What carries the frames.
enum Way {
    Udp {
        source: UdpSource,
        window: SocketWindow,
    },
    Tcp {
        source: StreamSource<TcpStream>,
        /// Whether the stream is there.
        is_open: bool,
        /// One that is not was closed from here, too.
        is_closed: bool,
        /// What was read: the last return may be a part.
        bytes: [u8; READ_BYTES],
        filled: usize,
    },
}

/// The sending end of a link.
pub struct LinkSender {
    way: Way,
    state: LinkState,
    /// Nobody is at the other end any more.
    has_ended: bool,
    /// The run is at its end: nobody is waited for as long as before.
    is_at_end: bool,
    /// All that will be sent is sent: the other end is to settle it.
    is_settling: bool,
    /// The run is ended by force.
    is_aborting: bool,
    fragment: Vec<u32>,
    /// The fragment is not sent yet.
    is_held: bool,
    handed: u64,
    words: u64,
    losses: LossCounts,
    /// What the other end said last.
    heard: LinkReturn,
    /// Tallies sent since something was heard, and when the next is due.
    asked: u32,
    ask_at: RunNs,
    /// Tallies in a row to which nobody said anything.
    unanswered: u32,
    tallies: u64,
    waits: u64,
}

impl LinkSender {
    /// A link that is up; fragments have at most `words_max` words, datagrams `datagram_words`.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub fn new(socket: PeerSocket, words_max: usize, datagram_words: usize) -> io::Result<Self> {
        let way = match socket {
            PeerSocket::Datagrams(socket) => {
                socket.set_nonblocking(true)?;
                Way::Udp {
                    source: UdpSource::on(socket, datagram_words),
                    window: SocketWindow::new(),
                }
            }
            PeerSocket::Stream(stream) => {
                prepare(&stream)?;
                Way::Tcp {
                    source: StreamSource::new(stream),
                    is_open: true,
                    is_closed: false,
                    bytes: [0; READ_BYTES],
                    filled: 0,
                }
            }
        };
        Ok(Self {
            way,
            state: LinkState::Up,
            has_ended: false,
            is_at_end: false,
            is_settling: false,
            is_aborting: false,
            fragment: Vec::with_capacity(words_max),
            is_held: false,
            handed: 0,
            words: 0,
            losses: LossCounts::new(),
            heard: LinkReturn::default(),
            asked: 0,
            ask_at: RunNs(0),
            unanswered: 0,
            tallies: 0,
            waits: 0,
        })
    }

    /// Whether the link can take a fragment.
    pub fn is_idle(&self) -> bool {
        match &self.way {
            Way::Udp { .. } => !self.is_held,
            Way::Tcp {
                source, is_open, ..
            } => !*is_open || source.is_flushed(),
        }
    }

    /// Puts a fragment on the link, written by `write` over the contents of the vector given to it. A
    /// link that is down, or whose other end says nothing, loses it: datagrams on their way, so that the
    /// other end misses their numbers; a stream takes none, and the fragment is counted here.
    ///
    /// # Panics
    /// If the link cannot take one: ask [`LinkSender::is_idle`] first.
    pub fn send(&mut self, now: RunNs, write: impl FnOnce(&mut Vec<u32>)) {
        assert!(self.is_idle(), "the caller asks is_idle first");
        write(&mut self.fragment);
        self.handed += 1;
        self.words += self.fragment.len() as u64;
        let is_up = self.state == LinkState::Up && !self.is_silent();
        match &mut self.way {
            _ if self.has_ended => self.losses.add(LossCause::LinkDown, 1),
            Way::Udp { source, .. } if !is_up => source.skip(self.fragment.len()),
            Way::Udp { .. } => {
                self.is_held = true;
                self.send_held();
            }
            Way::Tcp { is_open, .. } if !*is_open || !is_up => {
                self.losses.add(LossCause::LinkDown, 1);
            }
            Way::Tcp {
                source, is_open, ..
            } => *is_open = source.send_some(&self.fragment).is_ok(),
        }
        self.close_if_cut();
        if !self.is_idle() {
            self.waits += 1;
            self.ask_at = now.after(ASK_AGAIN);
        }
    }

    /// Sends the fragment that is held back, as far as there is room for it.
    fn send_held(&mut self) -> bool {
        let Way::Udp { source, window } = &mut self.way else {
            return false;
        };
        let bytes = set_aside(source.datagrams(self.fragment.len()));
        if !self.is_held || !window.has_room(bytes) || !source.send_some(&self.fragment) {
            return false;
        }
        window.note_sent(source.numbers().frames_made(), bytes);
        self.is_held = false;
        true
    }

    /// Moves what can be moved, and hears what the other end says, if there is something to be read.
    pub fn pump(&mut self, now: RunNs, is_readable: bool) -> LinkProgress {
        if self.has_ended || !self.is_waiting() {
            return LinkProgress::Idle;
        }
        let mut has_moved = (is_readable && self.hear(now)) | self.send_held();
        if let Way::Tcp {
            source, is_open, ..
        } = &mut self.way
            && *is_open
            && !source.is_flushed()
        {
            *is_open = source.flush_some().is_ok();
            has_moved |= source.is_flushed();
        }
        has_moved |= self.ask(now);
        self.close_if_cut();
        if self.is_silent() {
            has_moved |= self.drop_held();
        }
        match has_moved {
            true => LinkProgress::Moved,
            false => LinkProgress::Stalled,
        }
    }

    /// Closes a stream that is of no use any more: the other end sees that, and has it replaced.
    fn close_if_cut(&mut self) {
        if let Way::Tcp {
            source,
            is_open: false,
            is_closed: is_closed @ false,
            ..
        } = &mut self.way
        {
            *is_closed = true;
            source.discard();
            // One that is gone already is closed.
            let _gone = source.output().shutdown(Shutdown::Write);
        }
    }

    /// Counts a fragment that is held back as sent, as a network that loses it would; whether there was
    /// one.
    fn drop_held(&mut self) -> bool {
        let is_held = std::mem::take(&mut self.is_held);
        if let Way::Udp { source, .. } = &mut self.way
            && is_held
        {
            source.skip(self.fragment.len());
        }
        is_held
    }

    /// Whether the other end has left so many tallies without any answer that it is not waited for: the
    /// way to it is dead, or back from it. One that has asked for a pause reads none as long as it has no
    /// page, and is waited for, but in a run that is ended by force.
    pub fn is_silent(&self) -> bool {
        let unanswered_max = match self.is_at_end || self.is_settling || self.is_aborting {
            true => ASKED_AT_END_MAX,
            false => ASKED_MAX,
        };
        let is_pausing = self.heard.is_xoff && !self.is_aborting;
        matches!(self.way, Way::Udp { .. }) && self.unanswered >= unanswered_max && !is_pausing
    }

    /// Whether something is to be heard of the other end.
    fn is_waiting(&self) -> bool {
        let is_known = match &self.way {
            Way::Udp { window, .. } => window.is_known(),
            Way::Tcp { .. } => true,
        };
        !is_known || self.heard.is_xoff || self.outstanding() > 0 || !self.is_idle()
    }

    /// Takes in what the other end has said; whether it has got further.
    fn hear(&mut self, now: RunNs) -> bool {
        let mut newest = None;
        match &mut self.way {
            Way::Udp { source, .. } => {
                let made = source.numbers();
                let mut words = [0; RETURN_WORDS + 1];
                loop {
                    match source.socket().recv(words.as_mut_bytes()) {
                        Ok(RETURN_BYTES) => {
                            newest = return_to(made, &words[..RETURN_WORDS]).or(newest);
                        }
                        // Somebody else's, or the answer to a datagram that nobody took.
                        Ok(_) => {}
                        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                        Err(_) => break,
                    }
                }
            }
            Way::Tcp {
                source,
                is_open,
                bytes,
                filled,
                ..
            } => {
                while *is_open {
                    match source.output().read(&mut bytes[*filled..]) {
                        Ok(0) => *is_open = false,
                        Ok(came) => *filled += came,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        Err(_) => *is_open = false,
                    }
                    let may_be_more = *filled == READ_BYTES;
                    match take_returns(source.numbers(), bytes, filled) {
                        Some(said) => newest = said.or(newest),
                        None => *is_open = false,
                    }
                    if !may_be_more {
                        break;
                    }
                }
            }
        }
        if newest.is_some() {
            self.unanswered = 0;
        }
        newest.is_some_and(|said| self.take_return(now, said))
    }

    fn take_return(&mut self, now: RunNs, said: LinkReturn) -> bool {
        let before = self.heard;
        // One that came out of order says less than one before.
        self.heard = LinkReturn {
            frames_seen: said.frames_seen.max(before.frames_seen),
            blocks_settled: said.blocks_settled.max(before.blocks_settled),
            ..said
        };
        if let Way::Udp { window, .. } = &mut self.way {
            window.handle_seen(self.heard.frames_seen, said.room_bytes);
        }
        let has_moved = self.heard != before;
        if has_moved {
            self.asked = 0;
            self.ask_at = now.after(ASK_AGAIN);
        }
        has_moved
    }

    /// Sends a tally where one is due, which the other end answers; whether it is still worth waiting
    /// for an answer when the run is ended by force.
    fn ask(&mut self, now: RunNs) -> bool {
        let is_last = self.is_aborting || self.is_settling;
        let is_asking = match &self.way {
            // It is reliable: one is enough.
            Way::Tcp {
                source, is_open, ..
            } => *is_open && is_last && self.asked == 0 && source.is_flushed(),
            Way::Udp { window, .. } => {
                let is_stopped = self.is_held || self.heard.is_xoff || !window.is_known();
                is_last || is_stopped || self.is_silent()
            }
        };
        if is_asking && now >= self.ask_at {
            self.asked = self.asked.saturating_add(1);
            self.unanswered = self.unanswered.saturating_add(1);
            self.tallies += 1;
            let pause = ASK_AGAIN.0 << self.asked.min(8);
            self.ask_at = now.after(DurationNs(pause.min(ASK_AGAIN_MAX.0)));
            match &mut self.way {
                Way::Udp { source, .. } => source.send_tally(),
                Way::Tcp {
                    source, is_open, ..
                } => *is_open = source.send_tally().is_ok(),
            }
        }
        self.is_aborting
            && self.outstanding() > 0
            && self.asked < ASKED_AT_END_MAX
            && self.is_there()
    }

    /// Its socket, to be watched.
    pub fn socket(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Udp { source, .. } => source.socket().as_fd(),
            Way::Tcp { source, .. } => source.output().as_fd(),
        }
    }

    fn is_there(&self) -> bool {
        !matches!(self.way, Way::Tcp { is_open: false, .. })
    }

    /// What the other end asks for, as far as it was heard.
    pub fn flow(&self) -> FlowControl {
        match self.heard.is_xoff && !self.has_ended {
            true => FlowControl::Xoff,
            false => FlowControl::Xon,
        }
    }

    /// Whether the link is up, as far as nobody has taken it down.
    pub fn state(&self) -> LinkState {
        match self.has_ended {
            true => LinkState::Down,
            false => self.state,
        }
    }

    /// Takes the link down or up.
    pub fn set_state(&mut self, state: LinkState) {
        self.state = state;
    }

    /// Takes the link down for good: its receiving end is gone, and with it all that is on its way,
    /// which is settled from what the readout unit had counted.
    pub fn end(&mut self) {
        self.has_ended = true;
        self.is_held = false;
        if let Way::Tcp {
            source, is_open, ..
        } = &mut self.way
        {
            source.discard();
            *is_open = false;
        }
        self.close_if_cut();
    }

    /// Goes on with another stream in place of one that was cut. What was on its way is lost, and
    /// counted by the other end.
    ///
    /// # Errors
    /// What the system says of the stream.
    pub fn restore(&mut self, stream: TcpStream) -> io::Result<()> {
        prepare(&stream)?;
        if let Way::Tcp {
            source,
            is_open,
            is_closed,
            filled,
            ..
        } = &mut self.way
        {
            source.restore(stream);
            (*filled, *is_closed) = (0, false);
            *is_open = source.send_tally().is_ok();
            self.tallies += 1;
            self.asked = 0;
        }
        self.close_if_cut();
        Ok(())
    }

    /// Goes on as a link that has carried nothing, over another socket, to a receiving end in the
    /// place of the one that is gone. Its counters begin again, but for those of waits and tallies.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub fn begin_again(&mut self, socket: PeerSocket) -> io::Result<()> {
        let datagram_words = match &self.way {
            Way::Udp { source, .. } => source.data_words_max(),
            // A stream has none.
            Way::Tcp { .. } => 0,
        };
        *self = Self {
            tallies: self.tallies,
            waits: self.waits,
            state: self.state,
            is_at_end: self.is_at_end,
            is_settling: self.is_settling,
            ..Self::new(socket, self.fragment.capacity(), datagram_words)?
        };
        Ok(())
    }

    /// Fragments handed over and neither settled at the other end nor lost here.
    pub fn outstanding(&self) -> u64 {
        let lost = self.losses.total();
        (self.handed - lost).saturating_sub(self.heard.blocks_settled)
    }

    /// Fragments of which the other end has said nothing, where it is not waited for any more: who came
    /// and who is lost only that end knows, if anybody does.
    pub fn unanswered(&self) -> u64 {
        match (self.is_silent() || self.is_aborting) && !self.has_ended {
            true => self.outstanding(),
            false => 0,
        }
    }

    /// The run is at its end, and little more will be sent: a receiving end that says nothing is waited
    /// for some seconds only.
    pub fn handle_end(&mut self) {
        self.is_at_end = true;
    }

    /// All that will be sent is sent: the other end is to say what it has not got.
    pub fn settle(&mut self) {
        self.is_settling = true;
    }

    /// The run is ended by force: what is held back is not sent any more, and the other end is told how
    /// much was.
    pub fn abort(&mut self, now: RunNs) {
        if self.is_aborting {
            return;
        }
        (self.is_aborting, self.asked, self.ask_at) = (true, 0, now);
        self.drop_held();
    }

    /// Fragments handed over so far, lost ones included, and their words.
    pub fn handed(&self) -> (u64, u64) {
        (self.handed, self.words)
    }

    /// Fragments that the other end never hears of, by cause.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }

    /// Times that a fragment waited for room at the other end, and tallies sent.
    pub fn waits_and_tallies(&self) -> (u64, u64) {
        (self.waits, self.tallies)
    }
}

/// Takes the whole returns out of what was read of a stream; the newest, if there is one. `None` where
/// words are no return: nothing behind them can be believed.
fn take_returns(
    made: FrameNumbers,
    bytes: &mut [u8; READ_BYTES],
    filled: &mut usize,
) -> Option<Option<LinkReturn>> {
    let whole = *filled - *filled % RETURN_BYTES;
    let mut newest = None;
    for said in bytes[..whole].chunks_exact(RETURN_BYTES) {
        let mut words = [0; RETURN_WORDS];
        words.as_mut_bytes().copy_from_slice(said);
        newest = Some(return_to(made, &words)?);
    }
    bytes.copy_within(whole..*filled, 0);
    *filled -= whole;
    Some(newest)
}

/// Reads a return to who has made so many frames. One that is far ahead of them is none. The other end
/// may be a little ahead where a frame came that nobody sent: then it has seen all that was.
fn return_to(made: FrameNumbers, words: &[u32]) -> Option<LinkReturn> {
    let said = LinkReturn::parse(words)?;
    let (frames, blocks) = (made.frames_made(), made.blocks_made());
    let frames_ahead = said.frames_seen.saturating_sub(frames);
    let blocks_ahead = said.blocks_settled.saturating_sub(blocks);
    (frames_ahead.max(blocks_ahead) <= FRAMES_AHEAD_MAX).then_some(LinkReturn {
        frames_seen: said.frames_seen.min(frames),
        blocks_settled: said.blocks_settled.min(blocks),
        ..said
    })
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)
}

#[cfg(test)]
mod tests;
