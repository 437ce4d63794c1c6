//! Streams of frames, however they come in pieces, end or are replaced.

use livetime_readout::{BlockEnd, HeapPages, PageRead};
use proptest::prelude::*;

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
    let mut block = whole.clone();
    block[fifth + 16] ^= 2;
    let mut length = whole.clone();
    length[fifth + 23] = 0xFF;
    for (bytes, text) in [
        (
            &magic[..],
            "frame 4 of the stream is none: frame starts with 0x4c544c47",
        ),
        (&number[..], "frame 5 follows frame 3, a stream loses none"),
        (
            &block[..],
            "frame 4 of the stream is of block 6, which begins, expected 4, which begins",
        ),
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

/// An input that brings pieces of these lengths in turn, each after it has once had nothing.
struct Pieces<'a> {
    bytes: &'a [u8],
    lengths: &'a [usize],
    reads: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.reads.is_multiple_of(2) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = self.lengths[self.reads / 2 % self.lengths.len()];
        let length = length.min(buffer.len()).min(self.bytes.len());
        buffer[..length].copy_from_slice(&self.bytes[..length]);
        self.bytes = &self.bytes[length..];
        Ok(length)
    }
}

/// Takes and returns the pages that are there: the words of each block that ends with them.
fn take<R: Read>(
    link: &mut StreamLink<R, HeapPages>,
    open: &mut Vec<u32>,
    ends: &mut Vec<Vec<u32>>,
) {
    while let Some(completed) = link.poll() {
        let words = link.blocks().store().words(completed.page);
        open.extend(&words[..completed.len_words as usize]);
        if completed.block_end != BlockEnd::MoreToCome {
            ends.push(std::mem::take(open));
        }
        link.recycle(completed.page).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A block of more than a frame, short ones, and pieces that end anywhere; few frames at once and
    /// many.
    #[test]
    fn blocks_come_whole_in_whatever_pieces(
        blocks in prop::collection::vec(prop_oneof![0..40_usize, 0..2000_usize, Just(17_000)], 1..40),
        lengths in prop::collection::vec(prop_oneof![1..50_usize, 1..200_000_usize], 1..8),
        frames_max in 1..9_usize,
    ) {
        let blocks: Vec<Vec<u32>> = (0..).zip(blocks).map(|(at, words)| vec![at; words]).collect();
        let mut bytes = Vec::new();
        let mut source = StreamSource::new(&mut bytes);
        for block in &blocks {
            source.send(block).unwrap();
        }
        let config = LinkConfig { fragment_words_max: 1 << 20, ..LinkConfig::default() };
        let pages = HeapPages::new(0, config.pages, config.page_words);
        let input = Pieces { bytes: &bytes, lengths: &lengths, reads: 0 };
        let mut link = StreamLink::new(input, config, 0, pages);
        let (mut open, mut came) = (Vec::new(), Vec::new());
        while link.state() == StreamState::Open {
            let frames = link.receive(RunNs(0), frames_max).unwrap();
            prop_assert!(frames <= frames_max);
            take(&mut link, &mut open, &mut came);
        }
        prop_assert_eq!(came, blocks);
    }
}

#[test]
fn what_was_read_whole_is_taken_though_the_stream_is_replaced() {
    let mut numbers = Vec::new();
    let mut source = StreamSource::new(&mut numbers);
    for block in 0..4_u32 {
        source.send(&[block; 10]).unwrap();
    }
    let tally = source.numbers().tally();
    let whole = 3 * 4 * (HEADER_WORDS + 10);
    let mut link = link(&numbers[..whole + 30]);
    assert_eq!(link.receive(RunNs(0), 1).unwrap(), 1);
    assert!(link.is_holding(), "two more were read");
    // The fourth was on its way when the stream was cut: a part of it had come.
    let rest = tally.emit();
    link.restore(rest.as_bytes());
    let (mut open, mut came) = (Vec::new(), Vec::new());
    while link.state() == StreamState::Open {
        link.receive(RunNs(0), 1).unwrap();
        take(&mut link, &mut open, &mut came);
    }
    assert_eq!(came, [0, 1, 2].map(|block| vec![block; 10]));
    assert_eq!(link.blocks().losses().of(LossCause::LinkDown), 1);
    assert_eq!((link.frames_settled(), link.tallies()), (4, 1));
    assert!(!link.is_holding());
}

/// Given a stream that is cut inside a frame, or goes on with what is none, and another that takes its
/// place, then each frame that did not come is missing once.
#[test]
fn what_did_not_come_before_a_stream_was_replaced_is_missing_once() {
    let whole = stream(10);
    let fifth = 4 * (4 * HEADER_WORDS + 120);
    let mut damaged = whole.clone();
    damaged[fifth] ^= 1;
    for bytes in [&whole[..fifth + 30], &damaged[..]] {
        let mut link = link(bytes);
        while link.receive(RunNs(0), 100).is_ok() {}
        assert_eq!(link.state(), StreamState::Ended);
        let tally = LinkTally {
            frames: 10,
            blocks_low: 10,
        };
        let rest = tally.emit();
        link.restore(rest.as_bytes());
        while link.state() == StreamState::Open {
            link.receive(RunNs(1), 100).unwrap();
        }
        let counters = link.blocks().counters();
        assert_eq!((counters.frames, counters.frames_missing), (4, 6));
        assert_eq!(link.blocks().losses().of(LossCause::LinkDown), 6);
    }
}
