//! Links over streams of bytes: TCP, and files that are replayed.
//!
//! [`StreamLink`] reads frames from any `Read` that says `WouldBlock` when nothing is there, as many as
//! there are in one call, and [`StreamSource`] writes them to any `Write`. A full receiver stops
//! reading, so that TCP stops the sender. Frames of a stream come in order or not at all: one that is
//! none, or whose number does not follow, ends the link, for nothing behind it can be believed.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use livetime_readout::{
    Completed, LinkConfig, LinkState, LinkStatus, PageError, PageLink, PageStore,
};
use livetime_wire::link_frame::{
    DATA_WORDS_MAX, FrameError, FrameHeader, FrameNumbers, HEADER_WORDS, LinkTally,
};
use livetime_wire::{LossCause, RunNs};
use zerocopy::IntoBytes;

use crate::link::block_receiver::{BlockReceiver, FrameStage};
use crate::link::frame_order::{FrameHead, FrameOrder};

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The system refused.
    #[error("the stream of frames cannot be read")]
    Io(#[from] io::Error),
    /// Words that are no frame.
    #[error("frame {number} of the stream is none: {error}")]
    Frame {
        /// Frames before it.
        number: u64,
        /// What is wrong.
        error: FrameError,
    },
    /// A number that does not follow.
    #[error("frame {found} follows frame {before}, a stream loses none")]
    Number {
        /// The number found.
        found: u64,
        /// The number before.
        before: u64,
    },
    /// A frame of another block than the one that goes on or comes next.
    #[error("frame {number} of the stream is of block {found}, expected {expected}")]
    Block {
        /// The frame's number.
        number: u64,
        /// The block that it names, low half, and whether it begins there.
        found: String,
        /// What follows.
        expected: String,
    },
    /// A tally that does not count what came before it, where nothing can be lost.
    #[error(
        "a tally says {frames_told} frames and {blocks_told} blocks where {frames} and {blocks} came"
    )]
    Tally {
        /// The frames that it counts.
        frames_told: u64,
        /// The blocks that it counts, low half.
        blocks_told: u32,
        /// Frames that came.
        frames: u64,
        /// Blocks that came whole, low half.
        blocks: u32,
    },
    /// The stream ends inside a frame or a block.
    #[error("the stream ends inside frame {number} or its block")]
    Cut {
        /// The frame's number.
        number: u64,
    },
}

/// Whether more is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// Frames may come.
    Open,
    /// The sender closed the stream after a whole block.
    Ended,
}

/// Words of the longest frame.
const FRAME_WORDS_MAX: usize = HEADER_WORDS + DATA_WORDS_MAX;
/// Words that are read at once at most: behind the longest part of a frame there is room for the rest.
const BUFFER_WORDS: usize = 2 * FRAME_WORDS_MAX;

/// What begins at a place of the buffer.
enum Found {
    /// Nothing, or a part of something.
    Part,
    Tally(LinkTally),
    Frame(FrameHeader),
    NoFrame(FrameError),
}

/// The receiving end of a stream.
pub struct StreamLink<R, S> {
    input: R,
    blocks: BlockReceiver<S>,
    /// What was read, as words: frames one behind the other, the last of which may be a part.
    buffer: Vec<u32>,
    /// The word at which the next of them begins.
    next_at: usize,
    filled_bytes: usize,
    /// The next frame is whole, and this far taken.
    taking: Option<FrameStage>,
    order: FrameOrder,
    /// A tally may be ahead of what came, as on a stream that took the place of one that was cut.
    may_skip: bool,
    state: StreamState,
    /// Tallies that came.
    tallies: u64,
    /// Blocks are not taken any more, since the run is ended by force.
    discards: bool,
}

impl<R: Read, S: PageStore> StreamLink<R, S> {
    /// A link that reads `input`, set to not block; pages as for [`BlockReceiver::new`].
    pub fn new(input: R, config: LinkConfig, first_page: u32, store: S) -> Self {
        Self {
            input,
            blocks: BlockReceiver::new(config, first_page, store),
            buffer: vec![0; BUFFER_WORDS],
            next_at: 0,
            filled_bytes: 0,
            taking: None,
            order: FrameOrder::default(),
            may_skip: true,
            state: StreamState::Open,
            tallies: 0,
            discards: false,
        }
    }

    /// A link that plays a file, which has lost nothing: a tally that does not count what came before
    /// it ends the link.
    pub fn of_file(input: R, config: LinkConfig, first_page: u32, store: S) -> Self {
        Self {
            may_skip: false,
            ..Self::new(input, config, first_page, store)
        }
    }

    /// Goes on with another input, of the same sender: its first frame is a tally, and what was sent
    /// before that and has not come is lost.
    pub fn restore(&mut self, input: R) {
        self.input = input;
        self.state = StreamState::Open;
        // The rest of a part will not come.
        let mut whole = self.next_at;
        loop {
            whole += match self.found(whole) {
                Found::Frame(header) => HEADER_WORDS + header.data_words,
                Found::Tally(_) => HEADER_WORDS,
                Found::Part | Found::NoFrame(_) => break,
            };
        }
        self.filled_bytes = 4 * whole;
    }

    /// The input.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Frames that came, or are lost for certain.
    pub fn frames_settled(&self) -> u64 {
        self.order.next_number()
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
            self.blocks.cut(now);
        }
    }

    /// Reads what is there, as far as there are pages, at most `frames_max` frames; returns how
    /// many were taken whole.
    ///
    /// # Errors
    /// A [`StreamError`]; the link is down from then on.
    pub fn receive(&mut self, now: RunNs, frames_max: usize) -> Result<usize, StreamError> {
        let mut frames = 0;
        let mut may_be_more = true;
        while frames < frames_max && self.state == StreamState::Open {
            if self.taking.is_some() || self.find_frame(now)? {
                if !self.take_frame(now)? {
                    break;
                }
                frames += 1;
            } else if may_be_more {
                may_be_more = self.read()?;
            } else {
                break;
            }
        }
        Ok(frames)
    }

    /// Whether something whole was read and waits to be taken.
    pub fn is_holding(&self) -> bool {
        self.taking.is_some() || !matches!(self.found(self.next_at), Found::Part)
    }

    /// Whether more is to come.
    pub fn state(&self) -> StreamState {
        self.state
    }

    /// What the link shares with the others: counters, losses, pages.
    pub fn blocks(&self) -> &BlockReceiver<S> {
        &self.blocks
    }

    /// The same, to be worked with.
    pub fn blocks_mut(&mut self) -> &mut BlockReceiver<S> {
        &mut self.blocks
    }

    /// Reads no further.
    pub fn close(&mut self) {
        self.state = StreamState::Ended;
    }

    /// Gives a polled page back.
    ///
    /// # Errors
    /// A [`PageError`].
    pub fn recycle(&mut self, page: u32) -> Result<(), PageError> {
        self.blocks.recycle(page)
    }

    /// Finds the next whole frame in what was read; `false` if there is none.
    fn find_frame(&mut self, now: RunNs) -> Result<bool, StreamError> {
        loop {
            match self.found(self.next_at) {
                Found::Part => return Ok(false),
                Found::Tally(tally) => self.take_tally(now, tally)?,
                Found::Frame(_) => {
                    self.taking = Some(FrameStage::default());
                    return Ok(true);
                }
                Found::NoFrame(error) => {
                    let number = self.order.next_number();
                    return Err(self.end(StreamError::Frame { number, error }));
                }
            }
        }
    }

    /// What begins at a word.
    fn found(&self, at: usize) -> Found {
        let words = self.buffer[at..self.filled_bytes / 4].first_chunk::<HEADER_WORDS>();
        let Some(words) = words else {
            return Found::Part;
        };
        let whole = |header: &FrameHeader| 4 * (at + HEADER_WORDS + header.data_words);
        match FrameHead::parse(words) {
            Ok(FrameHead::Tally(tally)) => Found::Tally(tally),
            Ok(FrameHead::Frame(header)) if self.filled_bytes < whole(&header) => Found::Part,
            Ok(FrameHead::Frame(header)) => Found::Frame(header),
            Err(error) => Found::NoFrame(error),
        }
    }

    /// Reads behind what is there; `false` if there was no more than what came.
    fn read(&mut self) -> Result<bool, StreamError> {
        self.make_room();
        let may_end = self.is_between_blocks();
        let bytes = &mut self.buffer.as_mut_bytes()[self.filled_bytes..];
        match self.input.read(bytes) {
            Ok(0) if may_end => {
                self.state = StreamState::Ended;
                Ok(false)
            }
            Ok(0) => {
                let number = self.order.next_number();
                Err(self.end(StreamError::Cut { number }))
            }
            Ok(came) => {
                let is_full = came == bytes.len();
                self.filled_bytes += came;
                Ok(is_full)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(self.end(error.into())),
        }
    }

    /// Begins again at the front of the buffer, with the part of a frame that is there. As long as
    /// there is room for the longest, it stays where it is: most are short.
    fn make_room(&mut self) {
        let next = 4 * self.next_at;
        if self.filled_bytes > next && self.next_at <= BUFFER_WORDS - FRAME_WORDS_MAX {
            return;
        }
        self.buffer
            .as_mut_bytes()
            .copy_within(next..self.filled_bytes, 0);
        self.filled_bytes -= next;
        self.next_at = 0;
    }

    /// What was sent before a tally has come, or was on the way when a stream was cut.
    fn take_tally(&mut self, now: RunNs, tally: LinkTally) -> Result<(), StreamError> {
        let judged = match self.may_skip {
            true => Ok(()),
            false => self.order.check_tally(&tally),
        };
        let before = self.order.next_number();
        let passed = judged.and_then(|()| self.order.skip_to(&tally));
        passed.map_err(|error| self.end(error))?;
        let cause = match self.discards {
            true => LossCause::LinkAborted,
            false => LossCause::LinkDown,
        };
        self.blocks.handle_missing(now, tally.frames - before);
        let sent = tally.blocks(self.blocks.blocks_settled());
        self.blocks.give_up(now, sent, cause);
        self.pass_tally();
        Ok(())
    }

    fn pass_tally(&mut self) {
        self.next_at += HEADER_WORDS;
        self.tallies += 1;
    }

    /// Takes the frame that was read; `false` when a page is missing.
    fn take_frame(&mut self, now: RunNs) -> Result<bool, StreamError> {
        let Found::Frame(header) = self.found(self.next_at) else {
            unreachable!("a frame is taken once it was found")
        };
        let judged = self.order.check_frame(&header);
        judged.map_err(|error| self.end(error))?;
        let mut stage = self.taking.unwrap_or_default();
        let data = &self.buffer[self.next_at + HEADER_WORDS..][..header.data_words];
        if !self.discards && !self.blocks.take(now, &header, data, &mut stage) {
            self.taking = Some(stage);
            return Ok(false);
        }
        self.taking = None;
        self.next_at += HEADER_WORDS + header.data_words;
        self.order.pass_frame(&header);
        Ok(true)
    }

    /// Whether the input has nothing more that brings a block: tallies that count what came are taken.
    /// What will end the link is for [`StreamLink::receive`] to find.
    pub fn is_at_end(&mut self) -> bool
    where
        R: BufRead,
    {
        while self.state == StreamState::Open && self.taking.is_none() {
            match self.found(self.next_at) {
                Found::Tally(tally) if self.order.check_tally(&tally).is_ok() => self.pass_tally(),
                Found::Part => match self.input.fill_buf().map(<[u8]>::is_empty) {
                    Ok(true) => return self.is_between_blocks(),
                    Ok(false) if self.read().is_ok() => {}
                    _ => return false,
                },
                _ => return false,
            }
        }
        self.state == StreamState::Ended
    }

    /// Whether all that was read is taken, and no block is open.
    fn is_between_blocks(&self) -> bool {
        self.filled_bytes == 4 * self.next_at && !self.order.is_in_block()
    }

    fn end(&mut self, error: StreamError) -> StreamError {
        self.state = StreamState::Ended;
        (self.taking, self.next_at, self.filled_bytes) = (None, 0, 0);
        match self.may_skip {
            // The next tally, if there is one, counts what did not come.
            true => self.blocks.cut(RunNs(0)),
            false => self.blocks.handle_missing(RunNs(0), 1),
        }
        error
    }
}

impl<R: Read, S: PageStore> PageLink for StreamLink<R, S> {
    fn post(&mut self, page: u32) -> Result<(), PageError> {
        self.blocks.post(page)
    }

    fn poll(&mut self) -> Option<Completed> {
        self.blocks.poll()
    }

    fn link_status(&self) -> LinkStatus {
        let link = match self.state {
            StreamState::Open => LinkState::Up,
            StreamState::Ended => LinkState::Down,
        };
        LinkStatus {
            link,
            ..self.blocks.link_status()
        }
    }

    fn reset(&mut self, now: RunNs) {
        self.blocks.reset(now);
    }
}

/// The sending end of a stream.
#[derive(Debug)]
pub struct StreamSource<W> {
    output: W,
    numbers: FrameNumbers,
    /// A block that the output has not taken whole, and how many of its bytes it has.
    pending: Vec<u8>,
    pending_sent: usize,
}

impl<W: Write> StreamSource<W> {
    /// A source that writes to `output`; a buffer around it saves calls.
    pub fn new(output: W) -> Self {
        Self {
            output,
            numbers: FrameNumbers::default(),
            pending: Vec::new(),
            pending_sent: 0,
        }
    }

    /// Sends a block on an output that does not wait; `false`, and nothing is taken, while the
    /// block before is still here.
    ///
    /// # Errors
    /// What the output says, other than that it cannot take more now.
    pub fn send_some(&mut self, block: &[u32]) -> io::Result<bool> {
        if !self.flush_some()? {
            return Ok(false);
        }
        for (header, range) in self.numbers.frames(block.len(), DATA_WORDS_MAX) {
            self.pending.extend_from_slice(header.emit().as_bytes());
            self.pending.extend_from_slice(block[range].as_bytes());
        }
        self.flush_some()?;
        Ok(true)
    }

    /// Hands over what is still here; `true` once nothing is.
    ///
    /// # Errors
    /// As [`StreamSource::send_some`].
    pub fn flush_some(&mut self) -> io::Result<bool> {
        while self.pending_sent < self.pending.len() {
            match self.output.write(&self.pending[self.pending_sent..]) {
                Ok(bytes) => self.pending_sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        self.pending_sent = 0;
        Ok(true)
    }

    /// Says how much was sent, behind what is held back.
    ///
    /// # Errors
    /// As [`StreamSource::send_some`].
    pub fn send_tally(&mut self) -> io::Result<bool> {
        let tally = self.numbers.tally().emit();
        self.pending.extend_from_slice(tally.as_bytes());
        self.flush_some()
    }

    /// Goes on with another output; what was held back is forgotten.
    pub fn restore(&mut self, output: W) {
        self.output = output;
        self.discard();
    }

    /// Whether nothing is held back.
    pub fn is_flushed(&self) -> bool {
        self.pending.is_empty()
    }

    /// Forgets what is held back; the stream ends inside a frame then.
    pub fn discard(&mut self) {
        self.pending.clear();
        self.pending_sent = 0;
    }

    /// The output.
    pub fn output(&self) -> &W {
        &self.output
    }

    /// Sends a block; waits as `output` does.
    ///
    /// # Errors
    /// What the output says.
    pub fn send(&mut self, block: &[u32]) -> io::Result<()> {
        for (header, range) in self.numbers.frames(block.len(), DATA_WORDS_MAX) {
            self.output.write_all(header.emit().as_bytes())?;
            self.output.write_all(block[range].as_bytes())?;
        }
        Ok(())
    }

    /// Hands over what is buffered.
    ///
    /// # Errors
    /// What the output says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Frames and blocks sent so far.
    pub fn numbers(&self) -> FrameNumbers {
        self.numbers
    }
}

#[cfg(test)]
mod tests;
