//! The destination against an independent model of blocks, and its slice path against its
//! word-by-word path, for every split.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod line;

use livetime_readout::{
    BlockEnd, Completed, HeapPages, LineSlice, LinkConfig, PageFifos, PageRead, SlinkDestination,
};
use livetime_wire::slink::{ControlWord, FragmentStatus, LineWord};
use proptest::prelude::*;

use line::{BEGIN, END};

/// A completion with its words; the page number does not matter.
type Seen = (Completed, Vec<u32>);

/// A destination with pages that are posted again as soon as they are completed.
struct Link {
    destination: SlinkDestination,
    fifos: PageFifos,
    pages: HeapPages,
    seen: Vec<Seen>,
}

impl Link {
    fn new(page_words: u32, fragment_words_max: u32, depth: u32) -> Self {
        let config = LinkConfig {
            page_words,
            fragment_words_max,
            ..LinkConfig::default()
        };
        let mut fifos = PageFifos::new(depth, depth.max(2));
        for page in 0..depth {
            fifos.post(page).unwrap();
        }
        Self {
            destination: SlinkDestination::new(&config),
            fifos,
            pages: HeapPages::new(0, depth, page_words),
            seen: Vec::new(),
        }
    }

    fn drain(&mut self) {
        while let Some(completed) = self.fifos.poll_completed() {
            let words = self.pages.words(completed.page)[..completed.len_words as usize].to_vec();
            self.fifos.post(completed.page).unwrap();
            let page = 0;
            self.seen.push((Completed { page, ..completed }, words));
        }
    }

    fn word(&mut self, word: LineWord) {
        while self
            .destination
            .handle_word(word, &mut self.fifos, &mut self.pages)
            == 0
        {
            let before = self.seen.len();
            self.drain();
            assert!(self.seen.len() > before, "the line stalled for good");
        }
    }

    fn slice(&mut self, slice: LineSlice<'_>) {
        let mut rest = Some(slice);
        while let Some(slice) = rest {
            let taken = self
                .destination
                .handle_line(slice, &mut self.fifos, &mut self.pages);
            rest = slice.rest(taken);
            if rest.is_some() {
                let before = self.seen.len();
                self.drain();
                assert!(self.seen.len() > before, "the line stalled for good");
            }
        }
    }

    fn finish(mut self) -> (Vec<Seen>, SlinkDestination) {
        self.drain();
        (self.seen, self.destination)
    }
}

/// A block as the model sees it.
#[derive(Clone)]
struct ModelBlock {
    begin: Option<ControlWord>,
    data: Vec<u32>,
}

/// What the line's words mean, straight from the table of the S-LINK framing.
fn model(words: &[LineWord], page_words: u32, fragment_words_max: u32) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut open: Option<ModelBlock> = None;
    for word in words {
        let control = match word {
            LineWord::Data(data) => {
                let block = open.get_or_insert(ModelBlock {
                    begin: None,
                    data: Vec::new(),
                });
                block.data.push(*data);
                continue;
            }
            LineWord::Control(control) => *control,
        };
        let fresh = ModelBlock {
            begin: Some(control),
            data: Vec::new(),
        };
        let none = ModelBlock {
            begin: None,
            data: Vec::new(),
        };
        let is_begin = control.matches(ControlWord::BEGIN_FRAGMENT);
        let is_end = control.matches(ControlWord::END_FRAGMENT);
        match open.take() {
            None if is_end => push(&mut seen, none, control, page_words, fragment_words_max),
            None => open = Some(fresh),
            Some(block) => {
                push(&mut seen, block, control, page_words, fragment_words_max);
                open = is_begin.then_some(fresh);
            }
        }
    }
    // The rest of an open block: its full pages are completed as soon as more data came.
    if let Some(block) = open {
        let stored = block.data.len().min(fragment_words_max as usize);
        let pages = stored.div_ceil(page_words as usize);
        let mut part = Vec::new();
        push(
            &mut part,
            block,
            ControlWord::END_FRAGMENT,
            page_words,
            fragment_words_max,
        );
        part.truncate(pages.saturating_sub(1));
        seen.extend(part);
    }
    seen
}

fn push(
    seen: &mut Vec<Seen>,
    block: ModelBlock,
    closing: ControlWord,
    page_words: u32,
    fragment_words_max: u32,
) {
    let is_begin = closing.matches(ControlWord::BEGIN_FRAGMENT);
    let too_long = block.data.len() > fragment_words_max as usize;
    let stored = &block.data[..block.data.len().min(fragment_words_max as usize)];
    let mut pages: Vec<&[u32]> = stored.chunks(page_words as usize).collect();
    if pages.is_empty() {
        pages.push(&[]);
    }
    let last = pages.len() - 1;
    for (index, page) in pages.into_iter().enumerate() {
        let mut bits = Vec::new();
        let begin = block.begin.filter(|_| index == 0);
        match begin {
            None => bits.push(FragmentStatus::NO_BEGIN),
            Some(word) => {
                if !word.matches(ControlWord::BEGIN_FRAGMENT) {
                    bits.push(FragmentStatus::WRONG_BEGIN);
                }
                if word.control_error() {
                    bits.push(FragmentStatus::LINK_CONTROL);
                }
            }
        }
        let mut end = None;
        let block_end = if index < last {
            bits.push(FragmentStatus::NO_END);
            BlockEnd::MoreToCome
        } else {
            if too_long {
                bits.push(FragmentStatus::TOO_LONG);
            }
            if closing.data_error() {
                bits.push(FragmentStatus::LINK_DATA);
            }
            if is_begin {
                bits.push(FragmentStatus::NO_END);
                BlockEnd::BeginWord
            } else {
                end = Some(closing);
                if !closing.matches(ControlWord::END_FRAGMENT) {
                    bits.push(FragmentStatus::WRONG_END);
                }
                if closing.control_error() {
                    bits.push(FragmentStatus::LINK_CONTROL);
                }
                BlockEnd::EndWord
            }
        };
        let mut status = FragmentStatus::GOOD;
        bits.into_iter().for_each(|bit| status.insert(bit));
        let completed = Completed {
            page: 0,
            len_words: page.len() as u32,
            status,
            begin,
            end,
            block_end,
        };
        seen.push((completed, page.to_vec()));
    }
}

/// The words in slices; a run of data words is cut after the word at `index` if `cut(index)`.
fn for_each_slice(
    words: &[LineWord],
    mut cut: impl FnMut(usize) -> bool,
    mut handle: impl FnMut(LineSlice<'_>),
) {
    let mut run = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match word {
            LineWord::Data(data) => {
                run.push(*data);
                if cut(index) {
                    handle(LineSlice::Data(&run));
                    run.clear();
                }
            }
            LineWord::Control(control) => {
                if !run.is_empty() {
                    handle(LineSlice::Data(&run));
                    run.clear();
                }
                handle(LineSlice::Control(*control));
            }
        }
    }
    if !run.is_empty() {
        handle(LineSlice::Data(&run));
    }
}

#[test]
fn slice_path_equals_word_path_for_every_split_of_short_fragments() {
    let data = |range: core::ops::Range<u32>| range.map(LineWord::Data);
    // Two blocks; 10 + 3 data words, so 9 + 2 places to cut.
    let words: Vec<LineWord> = [BEGIN]
        .into_iter()
        .chain(data(0..10))
        .chain([END, BEGIN])
        .chain(data(20..23))
        .chain([END])
        .collect();
    for page_words in 1..=5 {
        for fragment_words_max in [4, 9, 10, 100] {
            let mut reference = Link::new(page_words, fragment_words_max, 3);
            words.iter().for_each(|word| reference.word(*word));
            let (expected, reference) = reference.finish();
            assert_eq!(expected, model(&words, page_words, fragment_words_max));
            for cuts in 0u32..1 << 11 {
                let mut link = Link::new(page_words, fragment_words_max, 3);
                let cut = |index: usize| match index {
                    1..=9 => cuts >> (index - 1) & 1 == 1,
                    13..=14 => cuts >> (index - 4) & 1 == 1,
                    _ => false,
                };
                for_each_slice(&words, cut, |slice| link.slice(slice));
                let (seen, destination) = link.finish();
                assert_eq!(seen, expected);
                let (a, b) = (destination.counters(), reference.counters());
                assert_eq!((a.data_words, a.blocks_good), (b.data_words, b.blocks_good));
                assert_eq!(a.words_discarded, b.words_discarded);
            }
        }
    }
}

/// Words with every kind of control word, error bits included.
fn line_word() -> impl Strategy<Value = LineWord> {
    let errors = 0u32..4;
    prop_oneof![
        8 => any::<u32>().prop_map(LineWord::Data),
        1 => errors.clone().prop_map(|e| LineWord::Control(ControlWord(0xB0F0_0000 | e))),
        1 => errors.clone().prop_map(|e| LineWord::Control(ControlWord(0xE0F0_0000 | e))),
        1 => (any::<u32>(), errors).prop_map(|(w, e)| LineWord::Control(ControlWord(w & !0xF | e))),
    ]
}

proptest! {
    #[test]
    fn both_paths_equal_the_model_for_random_words_and_splits(
        words in prop::collection::vec(line_word(), 0..300),
        cuts in prop::collection::vec(any::<bool>(), 300),
        page_words in 1u32..20,
        fragment_words_max in 1u32..60,
        depth in 1u32..6,
    ) {
        let expected = model(&words, page_words, fragment_words_max);
        // With one page in all the next is never there when the first is full: two are needed.
        let depth = depth.max(2);
        let mut reference = Link::new(page_words, fragment_words_max, depth);
        words.iter().for_each(|word| reference.word(*word));
        let (by_word, reference) = reference.finish();
        prop_assert_eq!(&by_word, &expected);
        let mut link = Link::new(page_words, fragment_words_max, depth);
        for_each_slice(&words, |index| cuts[index], |slice| link.slice(slice));
        let (by_slice, destination) = link.finish();
        prop_assert_eq!(&by_slice, &expected);
        let (a, b) = (destination.counters(), reference.counters());
        prop_assert_eq!(a.data_words, b.data_words);
        prop_assert_eq!(a.control_words, b.control_words);
        prop_assert_eq!((a.blocks, a.blocks_good), (b.blocks, b.blocks_good));
        prop_assert_eq!(a.words_discarded, b.words_discarded);
        prop_assert_eq!(a.pages, expected.len() as u64);
    }

    #[test]
    fn long_fragments_arrive_as_sent_for_random_splits(
        lengths in prop::collection::vec(0usize..3000, 1..6),
        seed in any::<u64>(),
        page_words in 64u32..512,
    ) {
        let words: Vec<LineWord> = lengths
            .iter()
            .enumerate()
            .flat_map(|(i, n)| line::block(&line::fragment(i as u64 + 1, *n)))
            .collect();
        let mut state = seed | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut link = Link::new(page_words, u32::MAX, 15);
        for_each_slice(&words, |_| random() % 97 == 0, |slice| link.slice(slice));
        let (seen, destination) = link.finish();
        prop_assert_eq!(&seen, &model(&words, page_words, u32::MAX));
        let mut sent = lengths.iter().enumerate().map(|(i, n)| line::fragment(i as u64 + 1, *n));
        let mut parts = Vec::new();
        for (completed, part) in seen {
            parts.extend(part);
            if completed.block_end == BlockEnd::EndWord {
                prop_assert_eq!(Some(std::mem::take(&mut parts)), sent.next());
            }
        }
        prop_assert_eq!(destination.counters().blocks_good, lengths.len() as u64);
    }
}
