//! Source, line, receiver, assembler and buffer together: whatever happens on the link, fragments
//! in are fragments out plus losses by cause, and every page is somewhere.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod line;

use std::collections::VecDeque;

use livetime_readout::{
    Assembled, AssemblerConfig, Begun, FlowControl, FragmentAssembler, FragmentBuffer,
    FragmentBufferConfig, HeapPages, LineSlice, LinkConfig, LinkState, PageLink, Receiver,
    RefusedReason, SlinkSource, SourceLinkConfig,
};
use livetime_wire::fragment::CrcCheck;
use livetime_wire::message::FragmentDescriptor;
use livetime_wire::slink::{ControlWord, FragmentStatus, LineWord};
use livetime_wire::{LossArea, LossCause, LossCounts, RunNs, TriggerNumber};
use proptest::prelude::*;

use line::{RUN, SOURCE, fragment};

/// What travels on the line, in order.
#[derive(Debug, Clone, Copy)]
enum Item {
    Word(LineWord),
    Link(LinkState),
    Reset,
}

/// One link from source to buffer.
struct Chain {
    now: RunNs,
    source: SlinkSource,
    sending: Vec<u32>,
    sent: u64,
    line: VecDeque<Item>,
    /// XON/XOFF on its way back, oldest first.
    returning: VecDeque<FlowControl>,
    return_latency: usize,
    receiver: Receiver,
    pages: HeapPages,
    assembler: FragmentAssembler,
    buffer: FragmentBuffer,
    waiting: Option<(TriggerNumber, FragmentDescriptor)>,
    filed: VecDeque<TriggerNumber>,
    flagged: u64,
}

impl Chain {
    fn new(config: LinkConfig, triggers_max: u32, return_latency: usize) -> Self {
        Self {
            now: RunNs(0),
            source: SlinkSource::new(SourceLinkConfig::default()),
            sending: Vec::new(),
            sent: 0,
            line: VecDeque::new(),
            returning: VecDeque::new(),
            return_latency,
            pages: HeapPages::new(50, config.pages, config.page_words),
            assembler: FragmentAssembler::new(AssemblerConfig {
                run: RUN,
                pool: 1,
                page_words: config.page_words,
                sources: vec![SOURCE],
                crc: CrcCheck::On,
            }),
            receiver: Receiver::new(config, 50),
            buffer: FragmentBuffer::new(FragmentBufferConfig { triggers_max }, &[SOURCE]),
            waiting: None,
            filed: VecDeque::new(),
            flagged: 0,
        }
    }

    /// Hands the next fragment over if the source is free.
    fn begin(&mut self, data_words: usize) {
        if self.source.is_idle() {
            self.sent += 1;
            self.sending = fragment(self.sent, data_words);
            let begun = self.source.begin(self.sending.len());
            assert_ne!(begun, Begun::Busy);
        }
    }

    /// Moves at most `words` words onto the line.
    fn transmit(&mut self, words: usize) {
        let slice = self.source.poll_line(&self.sending, words);
        if let Some(slice) = slice {
            self.line.extend(slice.iter().map(Item::Word));
            self.source.handle_sent(slice.words());
        }
    }

    /// Takes at most `count` items off the line.
    fn receive(&mut self, count: usize) {
        for _ in 0..count {
            let Some(item) = self.line.front() else {
                break;
            };
            let taken = match *item {
                Item::Link(state) => {
                    self.receiver.handle_link(self.now, state, &mut self.pages);
                    1
                }
                Item::Reset => {
                    self.receiver.reset(self.now);
                    1
                }
                Item::Word(LineWord::Data(word)) => {
                    let slice = LineSlice::Data(&[word]);
                    self.receiver.handle_line(self.now, slice, &mut self.pages)
                }
                Item::Word(LineWord::Control(word)) => {
                    let slice = LineSlice::Control(word);
                    self.receiver.handle_line(self.now, slice, &mut self.pages)
                }
            };
            if taken == 0 {
                break;
            }
            self.line.pop_front();
        }
        self.returning.push_back(self.receiver.poll_flow(self.now));
        while self.returning.len() > self.return_latency {
            let flow = self.returning.pop_front().unwrap();
            self.source.handle_flow(self.now, flow);
        }
    }

    /// Files what is complete, as long as the buffer takes it.
    fn file(&mut self) {
        loop {
            if let Some((trigger, fragment)) = self.waiting.take() {
                let flagged = !fragment.status.is_good();
                match self.buffer.insert(trigger, fragment) {
                    Ok(()) => {
                        self.filed.push_back(trigger);
                        self.flagged += u64::from(flagged);
                    }
                    Err(refused) if refused.reason == RefusedReason::Full => {
                        self.waiting = Some((trigger, refused.fragment));
                        return;
                    }
                    Err(refused) => {
                        let pages = refused.fragment.pages;
                        pages
                            .iter()
                            .for_each(|p| self.receiver.recycle(*p).unwrap());
                    }
                }
            }
            let Some(completed) = self.receiver.poll() else {
                return;
            };
            match self.assembler.handle_completed(&completed, &self.pages) {
                Assembled::MoreToCome => {}
                Assembled::Fragment { trigger, fragment } => {
                    self.waiting = Some((trigger, fragment));
                }
                Assembled::Refused { pages, .. } => {
                    pages
                        .iter()
                        .for_each(|p| self.receiver.recycle(*p).unwrap());
                }
            }
        }
    }

    /// Releases the oldest `count` triggers.
    fn release(&mut self, count: usize) {
        for _ in 0..count {
            let Some(trigger) = self.filed.pop_front() else {
                return;
            };
            let receiver = &mut self.receiver;
            let removed = self.buffer.remove(trigger, |fragment| {
                fragment
                    .pages
                    .iter()
                    .for_each(|p| receiver.recycle(*p).unwrap());
            });
            assert_eq!(removed, 1);
        }
    }

    /// The link goes down or up at both ends, at one place in the stream.
    fn link(&mut self, state: LinkState) {
        self.source.handle_link(self.now, state);
        self.line.push_back(Item::Link(state));
    }

    /// Runs until nothing moves any more.
    fn drain(&mut self) {
        self.link(LinkState::Up);
        for _ in 0..200_000 {
            let idle = self.source.is_idle() && self.line.is_empty();
            if idle && self.waiting.is_none() && self.filed.is_empty() {
                return;
            }
            self.transmit(64);
            self.receive(64);
            self.file();
            self.release(64);
        }
        panic!("the chain does not drain");
    }

    fn losses(&self) -> LossCounts {
        let mut losses = *self.source.losses();
        losses.merge(self.receiver.losses());
        losses.merge(self.assembler.losses());
        losses.merge(self.buffer.losses());
        losses
    }

    fn assert_conserved(&self) {
        let account = self.receiver.page_account();
        assert!(account.is_balanced(), "{account:?}");
        assert_eq!(account.handed_out, 0, "{account:?}");
        assert_eq!(self.assembler.pages_held(), 0);
        let losses = self.losses();
        let handed = self.source.counters(self.now).handed;
        let received = self.assembler.counters().received;
        assert_eq!(handed, self.sent);
        assert_eq!(
            handed,
            received + losses.in_area(LossArea::Link),
            "{losses:?}"
        );
        let out = self.buffer.counters().removed;
        assert_eq!(
            received,
            out + losses.in_area(LossArea::Readout),
            "{losses:?}"
        );
    }
}

fn small() -> LinkConfig {
    let config = LinkConfig {
        page_words: 64,
        pages: 40,
        xoff_below: 12,
        xon_above: 16,
        words_in_flight: 70,
        fragment_words_max: 64 * 8,
        ..LinkConfig::default()
    };
    assert_eq!(config.validate("link[0]"), []);
    config
}

#[test]
fn link_down_at_each_word_of_a_fragment_costs_that_fragment_only() {
    for data_words in [0, 5, 50, 51, 120] {
        for place in 0..data_words + 14 + 3 {
            let mut chain = Chain::new(small(), 64, 0);
            chain.begin(3);
            while !chain.source.is_idle() {
                chain.transmit(100);
            }
            chain.begin(data_words);
            for _ in 0..place {
                chain.transmit(1);
            }
            let whole = chain.source.is_idle();
            chain.link(LinkState::Down);
            // One more fragment is lost while the link is down.
            chain.begin(9);
            chain.link(LinkState::Up);
            chain.begin(9);
            chain.drain();
            chain.assert_conserved();
            let losses = chain.losses();
            let truncated = !whole && place > 0;
            assert_eq!(losses.of(LossCause::LinkTruncated), u64::from(truncated));
            let down = 1 + u64::from(place == 0);
            assert_eq!(
                losses.of(LossCause::LinkDown),
                down,
                "at {place} of {data_words}"
            );
            assert_eq!(chain.buffer.counters().removed, 2 + u64::from(whole));
            assert_eq!(chain.flagged, 0);
        }
    }
}

#[test]
fn link_loss_seen_only_by_the_receiver_is_counted_there() {
    for place in 0..40 {
        for length in 1..60 {
            let mut chain = Chain::new(small(), 64, 0);
            let mut words = 0;
            for _ in 0..3 {
                chain.begin(10);
                while !chain.source.is_idle() {
                    chain.transmit(1);
                    words += 1;
                    if words == place {
                        chain.line.push_back(Item::Link(LinkState::Down));
                    }
                    if words == place + length {
                        chain.line.push_back(Item::Link(LinkState::Up));
                    }
                }
            }
            chain.drain();
            chain.assert_conserved();
        }
    }
}

#[test]
fn words_in_flight_after_xoff_always_find_pages() {
    // The shortest blocks take the most pages per word; the line here cannot wait.
    let mut config = small();
    config.pages = 80;
    for words_in_flight in [2, 20, 69] {
        config.words_in_flight = words_in_flight;
        config.xoff_below = config.xoff_below_min();
        config.xon_above = config.xoff_below + 4;
        assert_eq!(config.validate("link[0]"), []);
        let mut pages = HeapPages::new(0, config.pages, config.page_words);
        let mut receiver = Receiver::new(config.clone(), 0);
        let mut left = words_in_flight;
        let mut block = Vec::new();
        while left > 0 {
            if block.is_empty() {
                block = line::block(&[0, 1, 2, 3, 4]);
            }
            let taken = match block.remove(0) {
                LineWord::Data(data) => {
                    receiver.handle_line(RunNs(0), LineSlice::Data(&[data]), &mut pages)
                }
                LineWord::Control(word) => {
                    receiver.handle_line(RunNs(0), LineSlice::Control(word), &mut pages)
                }
            };
            assert_eq!(taken, 1, "no page for a word in flight");
            while receiver.poll().is_some() {}
            if receiver.poll_flow(RunNs(0)) == FlowControl::Xoff {
                left -= 1;
            }
        }
        assert_eq!(receiver.destination_counters().stalls, 0);
    }
}

#[test]
fn source_that_is_paused_loses_nothing_and_counts_its_pauses() {
    let mut chain = Chain::new(small(), 8, 3);
    for step in 0..4000u64 {
        chain.now = RunNs(step * 100);
        chain.begin((step % 90) as usize);
        chain.transmit(7);
        chain.receive(9);
        chain.file();
        if step % 40 == 0 {
            chain.release(2);
        }
    }
    chain.drain();
    chain.assert_conserved();
    let counters = chain.source.counters(chain.now);
    assert!(counters.xoffs > 5 && counters.grace_words > 0);
    assert!(counters.xoff_time.0 > 0);
    assert_eq!(chain.losses().total(), 0);
    assert_eq!(chain.flagged, 0);
    assert!(
        chain.buffer.counters().full > 0,
        "the buffer's bound was reached"
    );
    assert_eq!(chain.buffer.counters().triggers_high_water, 8);
}

#[derive(Debug, Clone)]
enum Step {
    Begin(usize),
    Transmit(usize),
    Receive(usize),
    Release(usize),
    Link(LinkState),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..200).prop_map(Step::Begin),
        10 => (1usize..80).prop_map(Step::Transmit),
        8 => (1usize..120).prop_map(Step::Receive),
        2 => (1usize..6).prop_map(Step::Release),
        1 => Just(Step::Link(LinkState::Down)),
        2 => Just(Step::Link(LinkState::Up)),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    #[test]
    fn fragments_and_pages_are_conserved_over_random_histories(
        steps in prop::collection::vec(step(), 1..400),
        triggers_max in 1u32..40,
        return_latency in 0usize..6,
    ) {
        let mut chain = Chain::new(small(), triggers_max, return_latency);
        for step in steps {
            chain.now.0 += 10;
            match step {
                Step::Begin(words) => chain.begin(words),
                Step::Transmit(words) => chain.transmit(words),
                Step::Receive(count) => {
                    chain.receive(count);
                    chain.file();
                }
                Step::Release(count) => chain.release(count),
                Step::Link(state) => chain.link(state),
                Step::Reset => {
                    // Both ends in a fixed order, each held until the link is up.
                    chain.source.reset(chain.now);
                    chain.line.push_back(Item::Reset);
                    chain.link(LinkState::Up);
                    prop_assert!(!chain.source.link_status().resetting);
                }
            }
            prop_assert!(chain.receiver.page_account().is_balanced());
        }
        chain.drain();
        chain.assert_conserved();
        prop_assert_eq!(chain.flagged, 0, "a clean fragment was flagged");
    }

    #[test]
    fn garbage_on_the_line_never_panics_and_loses_no_page(
        words in prop::collection::vec(garbage(), 0..1500),
        recycle_every in 1usize..40,
    ) {
        let mut chain = Chain::new(small(), 16, 0);
        for (index, item) in words.into_iter().enumerate() {
            chain.line.push_back(item);
            if index % recycle_every == 0 {
                chain.receive(usize::MAX >> 1);
                chain.file();
                chain.release(3);
            }
            prop_assert!(chain.receiver.page_account().is_balanced());
        }
        chain.drain();
        // An open block at the end holds one page; losing the link gives it back.
        chain.link(LinkState::Down);
        chain.drain();
        let account = chain.receiver.page_account();
        prop_assert!(account.is_balanced());
        prop_assert_eq!((account.handed_out, account.filling), (0, 0));
        let counters = *chain.assembler.counters();
        let losses = chain.assembler.losses().in_area(LossArea::Readout);
        prop_assert_eq!(counters.received, counters.filed + losses);
        let out = chain.buffer.counters().removed;
        let refused = chain.buffer.losses().total();
        prop_assert_eq!(counters.filed, out + refused);
    }
}

/// Anything: control words of all kinds, header words, whole fragments, link losses.
fn garbage() -> impl Strategy<Value = Item> {
    let near_header = prop_oneof![
        Just(0xEE12_34EEu32),
        Just(9),
        Just(SOURCE.0),
        Just(RUN.0),
        Just(1),
        Just(2),
        0u32..20,
    ];
    prop_oneof![
        10 => near_header.prop_map(|word| Item::Word(LineWord::Data(word))),
        5 => any::<u32>().prop_map(|word| Item::Word(LineWord::Data(word))),
        2 => (0u32..16).prop_map(|e| control(0xB0F0_0000 | e)),
        2 => (0u32..16).prop_map(|e| control(0xE0F0_0000 | e)),
        1 => any::<u32>().prop_map(control),
        1 => prop_oneof![Just(LinkState::Down), Just(LinkState::Up)].prop_map(Item::Link),
    ]
}

fn control(word: u32) -> Item {
    Item::Word(LineWord::Control(ControlWord(word)))
}

#[test]
fn fragments_larger_than_a_page_and_too_large_are_told_apart() {
    let mut chain = Chain::new(small(), 64, 0);
    let longest = 64 * 8 - 14;
    for data_words in [longest, longest + 1, longest * 3, 7] {
        chain.begin(data_words);
        while !chain.source.is_idle() {
            chain.transmit(1000);
            chain.receive(usize::MAX >> 1);
            chain.file();
        }
    }
    let first = chain.buffer.fragments(TriggerNumber(1)).next().unwrap();
    assert_eq!((first.pages.len(), first.status), (8, FragmentStatus::GOOD));
    chain.drain();
    chain.assert_conserved();
    assert_eq!(chain.losses().of(LossCause::FragmentTooLong), 2);
    assert_eq!(chain.buffer.counters().removed, 2);
    assert_eq!(
        chain.receiver.destination_counters().words_discarded as usize,
        1 + longest * 2
    );
}
