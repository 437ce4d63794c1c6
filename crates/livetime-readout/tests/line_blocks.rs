//! Blocks taken at once against the same blocks as slices: both ends of the link, and the pages,
//! are to be in the same state after every step, whatever the host and the link do meanwhile.

use livetime_readout::{
    Begun, Completed, FlowControl, HeapPages, LineBlock, LineSlice, LinkConfig, LinkState,
    PageLink, PageRead, PageStore, Receiver, SlinkSource, SourceLinkConfig,
};
use livetime_wire::RunNs;
use livetime_wire::slink::ControlWord;
use proptest::prelude::*;

const PAGES: u32 = 8;
const PAGE_WORDS: u32 = 8;

/// Pages of which each third is shorter than the configuration says.
struct UnequalPages(HeapPages);

impl PageStore for UnequalPages {
    fn words_mut(&mut self, page: u32) -> &mut [u32] {
        let words = if page.is_multiple_of(3) { 5 } else { 8 };
        &mut self.0.words_mut(page)[..words]
    }
}

/// What the line carries at a time.
#[derive(Clone, Copy, PartialEq)]
enum Carries {
    Slices,
    Blocks,
}

/// What happens to a link.
#[derive(Debug, Clone)]
enum Step {
    Send { words: usize },
    Go,
    Poll,
    GiveBack { newest: bool },
    Flow,
    State(LinkState),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..24).prop_map(|words| Step::Send { words }),
        4 => (1usize..9).prop_map(|words| Step::Send { words }),
        4 => Just(Step::Go),
        6 => Just(Step::Poll),
        6 => any::<bool>().prop_map(|newest| Step::GiveBack { newest }),
        3 => Just(Step::Flow),
        1 => Just(Step::State(LinkState::Down)),
        2 => Just(Step::State(LinkState::Up)),
        1 => Just(Step::Reset),
    ]
}

struct Link {
    carries: Carries,
    end: ControlWord,
    source: SlinkSource,
    receiver: Receiver,
    pages: UnequalPages,
    fragment: Vec<u32>,
    polled: Vec<(Completed, Vec<u32>)>,
    held: Vec<u32>,
}

impl Link {
    fn new(carries: Carries, end: ControlWord) -> Self {
        let config = LinkConfig {
            page_words: PAGE_WORDS,
            pages: PAGES,
            request_depth: 3,
            acknowledge_depth: 3,
            xoff_below: 3,
            xon_above: 4,
            fragment_words_max: 20,
            ..LinkConfig::default()
        };
        Self {
            carries,
            end,
            source: SlinkSource::new(SourceLinkConfig {
                end,
                ..SourceLinkConfig::default()
            }),
            receiver: Receiver::new(config, 0),
            pages: UnequalPages(HeapPages::new(0, PAGES, PAGE_WORDS)),
            fragment: Vec::new(),
            polled: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Offers a fragment of which nothing is sent at once, unless LFF# holds it; returns how many
    /// words of it were taken.
    fn pump_block(&mut self, now: RunNs) -> usize {
        let next = self.source.poll_line(&self.fragment, usize::MAX);
        let is_xon = self.source.link_status().flow == FlowControl::Xon;
        if !is_xon || next != Some(LineSlice::Control(ControlWord::BEGIN_FRAGMENT)) {
            return 0;
        }
        let block = LineBlock {
            begin: ControlWord::BEGIN_FRAGMENT,
            data: &self.fragment,
            end: self.end,
        };
        let taken = (self.receiver).handle_block(now, block, &mut self.pages);
        self.source.handle_sent(taken.min(1));
        if taken == block.words() {
            self.source.handle_sent(block.data.len());
            self.source.handle_sent(1);
        }
        taken
    }

    fn pump(&mut self, now: RunNs) {
        if self.carries == Carries::Blocks {
            self.pump_block(now);
        }
        while let Some(slice) = self.source.poll_line(&self.fragment, usize::MAX) {
            let taken = (self.receiver).handle_line(now, slice, &mut self.pages);
            self.source.handle_sent(taken);
            if taken == 0 {
                break;
            }
        }
    }

    fn take(&mut self, step: &Step, now: RunNs) {
        match *step {
            Step::Send { words } => {
                if self.source.is_idle() {
                    self.fragment = (0..words as u32).map(|n| now.0 as u32 * 100 + n).collect();
                    let _ = self.source.begin(words);
                }
                self.pump(now);
            }
            Step::Go => self.pump(now),
            Step::Poll => {
                if let Some(completed) = self.receiver.poll() {
                    let words = self.pages.0.words(completed.page);
                    let words = words[..completed.len_words as usize].to_vec();
                    self.polled.push((completed, words));
                    self.held.push(completed.page);
                }
            }
            Step::GiveBack { newest } => {
                let page = if newest {
                    self.held.pop()
                } else {
                    (!self.held.is_empty()).then(|| self.held.remove(0))
                };
                if let Some(page) = page {
                    assert_eq!(self.receiver.recycle(page), Ok(()));
                }
            }
            Step::Flow => {
                let flow = self.receiver.poll_flow(now);
                self.source.handle_flow(now, flow);
            }
            Step::State(state) => {
                self.source.handle_link(now, state);
                self.receiver.handle_link(now, state, &mut self.pages);
            }
            Step::Reset => self.receiver.reset(now),
        }
    }
}

proptest! {
    #[test]
    fn blocks_and_their_slices_come_to_the_same(
        steps in prop::collection::vec(step(), 1..150),
        is_end_wrong in prop::bool::weighted(0.2),
    ) {
        let end = if is_end_wrong { ControlWord(0x1234_5670) } else { ControlWord::END_FRAGMENT };
        let (mut slices, mut blocks) = (Link::new(Carries::Slices, end), Link::new(Carries::Blocks, end));
        for (at, step) in steps.iter().enumerate() {
            let now = RunNs(at as u64);
            slices.take(step, now);
            blocks.take(step, now);
            prop_assert_eq!(&slices.polled, &blocks.polled);
            prop_assert_eq!(slices.source.counters(now), blocks.source.counters(now));
            prop_assert_eq!(slices.source.losses(), blocks.source.losses());
            let (slices, blocks) = (&slices.receiver, &blocks.receiver);
            prop_assert_eq!(slices.link_status(), blocks.link_status());
            prop_assert_eq!(slices.page_account(), blocks.page_account());
            prop_assert!(blocks.page_account().is_balanced());
            prop_assert_eq!(slices.counters(now), blocks.counters(now));
            prop_assert_eq!(slices.destination_counters(), blocks.destination_counters());
            prop_assert_eq!(slices.losses(), blocks.losses());
        }
    }
}

#[test]
fn what_fits_into_a_page_is_taken_at_once() {
    // Of the pages only the last two, 6 and 3, are short; none is given back.
    let mut link = Link::new(Carries::Blocks, ControlWord::END_FRAGMENT);
    let mut taken = Vec::new();
    for words in [5, 0, 6, 8, 7, 1, 6] {
        link.fragment = vec![7; words];
        assert_eq!(link.source.begin(words), Begun::Sending);
        taken.push(link.pump_block(RunNs(0)));
        link.pump(RunNs(0));
        assert!(link.source.is_idle(), "{words} words");
        while let Some(completed) = link.receiver.poll() {
            link.held.push(completed.page);
        }
    }
    assert_eq!(taken, [7, 0, 8, 10, 9, 3, 1], "held pages: {:?}", link.held);
}
