//! One stream of a front-end: bytes in, whole frames out, answers back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use livetime_source::{FrameTaken, FrontEndEvents};
use livetime_wire::front_end_frame::{
    FrameRefusal, FrontEndAnswer, FrontEndFrame, HEADER_WORDS, Said,
};
use livetime_wire::{RunNs, RunNumber, TriggerNumber};
use zerocopy::IntoBytes;

/// Words that are read at once, at least.
const BUFFER_WORDS_LEAST: usize = 16 * 1024;
/// Frames taken in one poll, so that the others have their turn.
const FRAMES_AT_ONCE: usize = 64;
/// What is read of a stream that was refused, so that its sender may hear why.
const PASSED_OVER_MAX: usize = 16 << 20;
/// Bytes of a word.
const WORD: usize = 4;

/// What came of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// So many frames.
    Frames(usize),
    /// The stream has ended.
    End {
        /// Within a frame.
        is_cut: bool,
    },
    /// It has sent what the run does not take.
    Refused {
        refusal: FrameRefusal,
        trigger: TriggerNumber,
    },
}

/// What the bytes in hand begin with.
enum First {
    /// A whole frame, of so many words.
    Whole(FrontEndFrame, usize),
    /// A part of one.
    Part,
    /// Nothing that the run takes.
    Refused(FrameRefusal, TriggerNumber),
}

/// A stream and what of it is not taken yet.
#[derive(Debug)]
pub(super) struct FrontEndStream {
    stream: TcpStream,
    /// Room for a whole frame of any size; whole words from `begin` on, of `filled` bytes in all.
    buffer: Vec<u32>,
    begin: usize,
    filled: usize,
    /// There may be a whole frame in hand: one that waits, or more than were taken in one poll.
    has_more: bool,
    is_refused: bool,
    /// Bytes that were read and not kept.
    passed_over: usize,
}

impl FrontEndStream {
    pub(super) fn new(stream: TcpStream, words_max: usize) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let words = (HEADER_WORDS + words_max).max(BUFFER_WORDS_LEAST);
        Ok(Self {
            stream,
            buffer: vec![0; words],
            begin: 0,
            filled: 0,
            has_more: false,
            is_refused: false,
            passed_over: 0,
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether there may be a frame in hand, whatever the socket has.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Takes frames, at most [`FRAMES_AT_ONCE`]. After the end of the run, or what was refused, what
    /// comes is not kept.
    pub(super) fn receive(
        &mut self,
        now: RunNs,
        events: &mut FrontEndEvents,
        has_ended: bool,
    ) -> Received {
        if has_ended || self.is_refused {
            return self.pass_over();
        }
        let mut frames = 0;
        while frames < FRAMES_AT_ONCE {
            match self.first(events) {
                First::Refused(refusal, trigger) => {
                    self.is_refused = true;
                    return Received::Refused { refusal, trigger };
                }
                First::Whole(frame, words) => {
                    let data = &self.buffer[self.begin + HEADER_WORDS..self.begin + words];
                    if events.handle_frame(now, &frame, data) == FrameTaken::Ahead {
                        self.has_more = true;
                        return Received::Frames(frames);
                    }
                    self.begin += words;
                    frames += 1;
                }
                First::Part => match self.read() {
                    Ok(0) => return self.ended(),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.has_more = false;
                        return Received::Frames(frames);
                    }
                    // One that closes and has not read its answers resets the stream, and what had not come
                    // is lost: the guide says how to close.
                    Err(_) => return self.ended(),
                },
            }
        }
        self.has_more = true;
        Received::Frames(frames)
    }

    /// Says something to the front-end. A stream that does not take these few bytes has a peer that
    /// does not read what it is told.
    pub(super) fn say(&mut self, run: RunNumber, trigger: TriggerNumber, said: Said) {
        let answer = FrontEndAnswer { run, trigger, said };
        let _unheard = self.stream.write_all(answer.emit().as_bytes());
        if !matches!(said, Said::Welcome { .. }) {
            let _gone = self.stream.shutdown(Shutdown::Write);
        }
    }

    fn ended(&self) -> Received {
        let is_cut = self.filled > self.begin * WORD;
        Received::End { is_cut }
    }

    fn first(&self, events: &mut FrontEndEvents) -> First {
        let in_hand = &self.buffer[self.begin..self.filled / WORD];
        let Some(header) = in_hand.first_chunk::<HEADER_WORDS>() else {
            return First::Part;
        };
        let frame = match FrontEndFrame::parse(header) {
            Ok(frame) => frame,
            Err(refusal) => {
                events.count_refused();
                let trigger = match refusal {
                    FrameRefusal::NoFrame => 0,
                    _ => u64::from(header[5]) << 32 | u64::from(header[4]),
                };
                return First::Refused(refusal, TriggerNumber(trigger));
            }
        };
        match events.check(&frame) {
            Err(refusal) => First::Refused(refusal, frame.trigger),
            Ok(words) if in_hand.len() < HEADER_WORDS + words => First::Part,
            Ok(words) => First::Whole(frame, HEADER_WORDS + words),
        }
    }

    /// Reads into the room behind what is in hand, which moves to the front if that is too little.
    fn read(&mut self) -> std::io::Result<usize> {
        let begin = self.begin * WORD;
        let bytes = self.buffer.as_mut_bytes();
        if begin > 0 && (begin == self.filled || self.filled > bytes.len() / 2) {
            bytes.copy_within(begin..self.filled, 0);
            self.filled -= begin;
            self.begin = 0;
        }
        let came = self.stream.read(&mut bytes[self.filled..])?;
        self.filled += came;
        Ok(came)
    }

    fn pass_over(&mut self) -> Received {
        (self.begin, self.filled, self.has_more) = (0, 0, false);
        for frames in 0..FRAMES_AT_ONCE {
            match self.read() {
                Ok(0) => return Received::End { is_cut: false },
                Ok(bytes) => {
                    self.filled = 0;
                    self.passed_over += bytes;
                    if self.is_refused && self.passed_over > PASSED_OVER_MAX {
                        return Received::End { is_cut: false };
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Received::Frames(frames);
                }
                Err(_) => return Received::End { is_cut: false },
            }
        }
        Received::Frames(FRAMES_AT_ONCE)
    }
}
