//! Links over streams of bytes: TCP, and files that are replayed.
//!
//! [`StreamLink`] reads frames from any `Read` that says `WouldBlock` when nothing is there, and
//! [`StreamSource`] writes them to any `Write`. A full receiver stops reading, so that TCP stops the
//! sender. Frames of a stream come in order or not at all: one that is none, or whose number does
//! not follow, ends the link, for nothing behind it can be believed.

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

/// The receiving end of a stream.
pub struct StreamLink<R, S> {
    input: R,
    blocks: BlockReceiver<S>,
    /// Bytes of the frame that is being read, as words.
    frame: Vec<u32>,
    filled_bytes: usize,
    /// The frame is whole, and this far taken.
    taking: Option<FrameStage>,
    next_number: u64,
    in_block: bool,
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
            frame: vec![0; HEADER_WORDS + DATA_WORDS_MAX],
            filled_bytes: 0,
            taking: None,
            next_number: 0,
            in_block: false,
            state: StreamState::Open,
            tallies: 0,
            discards: false,
        }
    }

    /// Goes on with another input, of the same sender: its first frame is a tally, and what was sent
    /// before that and has not come is lost.
    pub fn restore(&mut self, input: R) {
        self.input = input;
        self.state = StreamState::Open;
        if self.taking.is_none() {
            self.filled_bytes = 0;
        }
    }

    /// The input.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Frames that came, or are lost for certain.
    pub fn frames_settled(&self) -> u64 {
        self.next_number
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
        while frames < frames_max && self.state == StreamState::Open {
            if self.taking.is_none() && !self.read_frame(now)? {
                break;
            }
            if !self.take_frame(now)? {
                break;
            }
            frames += 1;
        }
        Ok(frames)
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

    /// Reads on in the frame; `true` when it is whole.
    fn read_frame(&mut self, now: RunNs) -> Result<bool, StreamError> {
        loop {
            if let Some(tally) = self.tally() {
                self.take_tally(now, tally)?;
            }
            let wanted = match self.header() {
                None => HEADER_WORDS * 4,
                Some(Ok(header)) => (HEADER_WORDS + header.data_words) * 4,
                Some(Err(error)) => {
                    let number = self.next_number;
                    return Err(self.end(StreamError::Frame { number, error }));
                }
            };
            if self.filled_bytes == wanted && self.filled_bytes > 0 {
                self.taking = Some(FrameStage::default());
                return Ok(true);
            }
            let bytes = self.frame.as_mut_bytes();
            match self.input.read(&mut bytes[self.filled_bytes..wanted]) {
                Ok(0) if self.filled_bytes == 0 && !self.in_block => {
                    self.state = StreamState::Ended;
                    return Ok(false);
                }
                Ok(0) => {
                    let number = self.next_number;
                    return Err(self.end(StreamError::Cut { number }));
                }
                Ok(bytes) => self.filled_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.end(error.into())),
            }
        }
    }

    /// The tally, if that is what is there.
    fn tally(&self) -> Option<LinkTally> {
        let words = self.frame.first_chunk::<HEADER_WORDS>()?;
        let is_there = self.filled_bytes == HEADER_WORDS * 4;
        is_there.then(|| LinkTally::parse(words)).flatten()
    }

    /// What was sent before a tally has come, or was on the way when a stream was cut.
    fn take_tally(&mut self, now: RunNs, tally: LinkTally) -> Result<(), StreamError> {
        let (found, next) = (tally.frames, self.next_number);
        if found < next {
            let before = next.wrapping_sub(1);
            return Err(self.end(StreamError::Number { found, before }));
        }
        let cause = match self.discards {
            true => LossCause::LinkAborted,
            false => LossCause::LinkDown,
        };
        self.blocks.handle_missing(now, found - next);
        let sent = tally.blocks(self.blocks.blocks_settled());
        self.blocks.give_up(now, sent, cause);
        (self.next_number, self.in_block) = (found, false);
        self.filled_bytes = 0;
        self.tallies += 1;
        Ok(())
    }

    /// The header, once its bytes are there.
    fn header(&self) -> Option<Result<FrameHeader, FrameError>> {
        let words = self.frame.first_chunk::<HEADER_WORDS>()?;
        (self.filled_bytes >= HEADER_WORDS * 4).then(|| FrameHeader::parse(words))
    }

    /// Takes the frame that was read; `false` when a page is missing.
    fn take_frame(&mut self, now: RunNs) -> Result<bool, StreamError> {
        let Some(Ok(header)) = self.header() else {
            unreachable!("a frame is taken once it was read")
        };
        if header.number != self.next_number {
            let (found, before) = (header.number, self.next_number.wrapping_sub(1));
            return Err(self.end(StreamError::Number { found, before }));
        }
        let mut stage = self.taking.unwrap_or_default();
        let data = &self.frame[HEADER_WORDS..HEADER_WORDS + header.data_words];
        if !self.discards && !self.blocks.take(now, &header, data, &mut stage) {
            self.taking = Some(stage);
            return Ok(false);
        }
        self.taking = None;
        self.filled_bytes = 0;
        self.next_number += 1;
        self.in_block = !header.ends_block;
        Ok(true)
    }

    /// Whether the input has nothing more and no frame is begun; an input that cannot be read is at
    /// its end too.
    pub fn is_at_end(&mut self) -> bool
    where
        R: BufRead,
    {
        self.state == StreamState::Ended
            || (self.taking.is_none()
                && self.filled_bytes == 0
                && self.input.fill_buf().is_ok_and(<[u8]>::is_empty))
    }

    fn end(&mut self, error: StreamError) -> StreamError {
        self.state = StreamState::Ended;
        self.blocks.handle_missing(RunNs(0), 1);
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
mod tests {
    use livetime_readout::HeapPages;

    use super::*;

    fn link(bytes: &[u8]) -> StreamLink<&[u8], HeapPages> {
        let config = LinkConfig::default();
        let pages = HeapPages::new(0, config.pages, config.page_words);
        StreamLink::new(bytes, config, 0, pages)
    }

    fn stream(blocks: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut source = StreamSource::new(&mut bytes);
        for block in 0..blocks {
            source.send(&vec![block; 20 * block as usize]).unwrap();
        }
        bytes
    }

    #[test]
    fn a_stream_ends_after_its_last_block() {
        let bytes = stream(30);
        let mut link = link(&bytes);
        let mut blocks = 0;
        while link.state() == StreamState::Open {
            link.receive(RunNs(0), 4).unwrap();
            while let Some(completed) = link.poll() {
                assert!(completed.status.is_good());
                assert_eq!(completed.len_words, 20 * blocks);
                blocks += 1;
                link.recycle(completed.page).unwrap();
            }
        }
        assert_eq!(blocks, 30);
        assert_eq!(link.link_status().link, LinkState::Down);
    }

    #[test]
    fn what_is_no_stream_ends_the_link_with_the_place() {
        let whole = stream(5);
        let mut magic = whole.clone();
        // The fifth frame begins behind four of 0, 20, 40 and 60 words.
        let fifth = 4 * (4 * HEADER_WORDS + 120);
        magic[fifth] ^= 1;
        let mut number = whole.clone();
        number[fifth + 8] ^= 1;
        let mut length = whole.clone();
        length[fifth + 23] = 0xFF;
        for (bytes, text) in [
            (
                &magic[..],
                "frame 4 of the stream is none: frame starts with 0x4c544c47",
            ),
            (&number[..], "frame 5 follows frame 3, a stream loses none"),
            (
                &length[..],
                "frame 4 of the stream is none: frame of 4278190160",
            ),
            (
                &whole[..fifth + 30],
                "the stream ends inside frame 4 or its block",
            ),
        ] {
            let mut link = link(bytes);
            let error = loop {
                if let Err(error) = link.receive(RunNs(0), 100) {
                    break error.to_string();
                }
            };
            assert!(error.starts_with(text), "{error}");
            assert_eq!(link.state(), StreamState::Ended);
            assert_eq!(link.blocks().counters().blocks, 4);
        }
    }
}
