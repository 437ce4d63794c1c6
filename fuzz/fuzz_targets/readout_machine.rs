//! Words of a link, any of them, in any cuts: the receiving end never panics, loses no page, and
//! gives the same fragments, counters and losses however the words are cut into slices.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_fuzz::Choices;
use livetime_readout::{
    Assembled, AssemblerConfig, FragmentAssembler, HeapPages, LineSlice, LinkConfig, LinkState,
    PageLink, PageRead, Receiver,
};
use livetime_wire::fragment::{CrcCheck, FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::slink::ControlWord;
use livetime_wire::{LossArea, RunNs, RunNumber, SourceId, TriggerNumber};

const SOURCE: SourceId = SourceId(3);
const RUN: RunNumber = RunNumber(7);
const FIRST_PAGE: u32 = 50;
const FRAGMENT_WORDS_MAX: u32 = 64 * 4;

fuzz_target!(|data: &[u8]| {
    // The first part says how the words are cut, the rest what comes on the line.
    let mut choices = Choices::new(data);
    let cut_bytes = choices.below(64).min(choices.rest().len());
    let (cuts, stream) = choices.rest().split_at(cut_bytes);
    let items = items(stream);
    let mut whole = Machine::new();
    let mut cut = Machine::new();
    let mut cuts = cuts.iter().cycle();
    for item in &items {
        whole.handle(item, || usize::MAX);
        cut.handle(item, || {
            cuts.next().map_or(1, |cut| 1 + usize::from(*cut % 80))
        });
    }
    whole.end();
    cut.end();
    assert_eq!(cut.found, whole.found);
    let machines = [&whole, &cut];
    let [a, b] = machines.map(|machine| *machine.assembler.counters());
    assert_eq!(a, b);
    let [a, b] = machines.map(|machine| *machine.receiver.losses());
    assert_eq!(a, b);
    let [a, b] = machines.map(|machine| *machine.assembler.losses());
    assert_eq!(a, b);
});

/// What comes on the line.
#[derive(Debug)]
enum Item {
    Control(ControlWord),
    Data(Vec<u32>),
    Link(LinkState),
}

/// Any words, or sound fragments and parts of them.
fn items(stream: &[u8]) -> Vec<Item> {
    let mut choices = Choices::new(stream);
    let mut items = Vec::new();
    let mut trigger = 0;
    while let Some(kind) = choices.byte() {
        match kind % 8 {
            0 => items.push(Item::Control(ControlWord::BEGIN_FRAGMENT)),
            1 => items.push(Item::Control(ControlWord::END_FRAGMENT)),
            2 => items.push(Item::Control(ControlWord(choices.word()))),
            3 => {
                let words = choices.below(8);
                items.push(Item::Data((0..words).map(|_| choices.word()).collect()));
            }
            4 => items.push(Item::Link(LinkState::Down)),
            5 => items.push(Item::Link(LinkState::Up)),
            6 => {
                trigger += 1;
                let words = fragment(trigger, choices.below(300));
                items.push(Item::Control(ControlWord::BEGIN_FRAGMENT));
                items.push(Item::Data(words));
                items.push(Item::Control(ControlWord::END_FRAGMENT));
            }
            _ => {
                trigger += 1;
                let mut words = fragment(trigger, choices.below(300));
                let at = choices.below(words.len());
                words[at] ^= 1 << choices.below(32);
                words.truncate(1 + choices.below(words.len()));
                items.push(Item::Data(words));
            }
        }
    }
    items
}

fn fragment(trigger: u64, data_words: usize) -> Vec<u32> {
    let header = FragmentHeader {
        source: SOURCE,
        run: RUN,
        trigger_low: TriggerNumber(trigger).low(),
        bunch: 3,
        trigger_type: 1,
        event_type: 0,
    };
    let mut words = vec![0; data_words + OVERHEAD_WORDS];
    header.emit(0, data_words, &mut words, |data| data.fill(trigger as u32));
    words
}

/// What came out for a block: the fragment's trigger, status and words, or that it was refused.
type Found = Option<(TriggerNumber, u32, Vec<u32>)>;

/// Receiver and assembler of one link.
struct Machine {
    receiver: Receiver,
    pages: HeapPages,
    assembler: FragmentAssembler,
    found: Vec<Found>,
}

impl Machine {
    fn new() -> Self {
        let config = LinkConfig {
            page_words: 64,
            pages: 40,
            xoff_below: 12,
            xon_above: 16,
            words_in_flight: 70,
            fragment_words_max: FRAGMENT_WORDS_MAX,
            ..LinkConfig::default()
        };
        Self {
            pages: HeapPages::new(FIRST_PAGE, config.pages, config.page_words),
            assembler: FragmentAssembler::new(AssemblerConfig {
                run: RUN,
                pool: 1,
                page_words: config.page_words,
                sources: vec![SOURCE],
                crc: CrcCheck::On,
            }),
            receiver: Receiver::new(config, FIRST_PAGE),
            found: Vec::new(),
        }
    }

    /// Offers an item in slices of at most `words_max` words, until all of it is taken.
    fn handle(&mut self, item: &Item, mut words_max: impl FnMut() -> usize) {
        let mut rest = match item {
            Item::Link(state) => {
                self.receiver.handle_link(RunNs(0), *state, &mut self.pages);
                self.collect();
                return;
            }
            Item::Control(word) => Some(LineSlice::Control(*word)),
            Item::Data(words) => Some(LineSlice::Data(words)),
        };
        while let Some(slice) = rest.filter(|slice| slice.words() > 0) {
            let offered = slice.head(words_max());
            let taken = self
                .receiver
                .handle_line(RunNs(0), offered, &mut self.pages);
            assert!(taken <= offered.words());
            let is_stopped = taken < offered.words();
            rest = slice.rest(taken);
            // Only a line that stopped for want of pages or of room may wait for the host.
            self.collect();
            assert!(!is_stopped || self.receiver.pages_available() > 0);
            assert!(self.receiver.page_account().is_balanced());
        }
    }

    /// Takes what is complete and gives its pages back.
    fn collect(&mut self) {
        while let Some(completed) = self.receiver.poll() {
            let (found, pages) = match self.assembler.handle_completed(&completed, &self.pages) {
                Assembled::MoreToCome => continue,
                Assembled::Fragment { trigger, fragment } => {
                    let mut words = Vec::new();
                    for page in &fragment.pages {
                        words.extend_from_slice(self.pages.words(*page));
                        words.truncate(fragment.words as usize);
                    }
                    let found = Some((trigger, fragment.status.0, words));
                    (found, fragment.pages.iter().copied().collect::<Vec<u32>>())
                }
                Assembled::Refused { pages, .. } => (None, pages.iter().copied().collect()),
            };
            self.found.push(found);
            for page in pages {
                self.receiver.recycle(page).expect("a page handed out once");
            }
        }
    }

    /// The link goes down: an open block is cut, and every page is back.
    fn end(&mut self) {
        self.handle(&Item::Link(LinkState::Down), || 1);
        for page in self.assembler.abort() {
            self.receiver.recycle(page).expect("a page handed out once");
        }
        let account = self.receiver.page_account();
        assert!(account.is_balanced());
        assert_eq!((account.handed_out, account.filling), (0, 0));
        let counters = self.assembler.counters();
        let lost = self.assembler.losses().in_area(LossArea::Readout);
        assert_eq!(counters.received, counters.filed + lost);
    }
}
