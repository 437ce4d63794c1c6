//! The table of line faults, through both cards of a link: one fault in a block looks exactly as
//! `observable` says, with several every damaged block is flagged and no clean one, and fragments
//! in are fragments out and losses by cause.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod line;

use std::collections::BTreeSet;

use livetime_readout::card_link::{DestinationPins, SourcePins};
use livetime_readout::line_fault::{FaultPlace, Observable, observable};
use livetime_readout::{
    Assembled, AssemblerConfig, AssemblerCounters, Begun, CardLink, CardLinkConfig, FaultRates,
    FlowControl, FragmentAssembler, HeapPages, LineFault, LineFaultPlan, LineSlice, LinkConfig,
    LinkState, PageLink, Receiver, ResetPin, ReturnWord, SelfTest, SlinkSource, SourceLinkConfig,
    SourceTest,
};
use livetime_wire::fragment::CrcCheck;
use livetime_wire::slink::{FragmentStatus, LineWord};
use livetime_wire::{LossCause, LossCounts, RunNs};
use proptest::prelude::*;

use line::{RUN, SOURCE, block, fragment};

/// A link with its cards, from fragments to checked fragments.
struct Chain {
    source: SlinkSource,
    cards: CardLink,
    receiver: Receiver,
    pages: HeapPages,
    assembler: FragmentAssembler,
    near: SourcePins,
    far: DestinationPins,
    source_link: LinkState,
    far_link: LinkState,
    now: u64,
    filed: Vec<(u64, FragmentStatus)>,
    /// The trigger of the fragment that each word on the line belongs to, by number of the word.
    words: Vec<u64>,
}

/// What came of a run.
struct Outcome {
    filed: Vec<(u64, FragmentStatus)>,
    counters: AssemblerCounters,
    /// Of both ends and of the cards.
    losses: LossCounts,
    handed: u64,
    words: Vec<u64>,
}

impl Chain {
    fn new(config: CardLinkConfig, faults: LineFaultPlan) -> Self {
        let link = LinkConfig {
            page_words: 64,
            words_in_flight: config.words_in_flight(),
            ..LinkConfig::default()
        };
        let assembler = FragmentAssembler::new(AssemblerConfig {
            run: RUN,
            pool: 0,
            page_words: link.page_words,
            sources: vec![SOURCE],
            crc: CrcCheck::On,
        });
        Self {
            source: SlinkSource::new(SourceLinkConfig::default()),
            cards: CardLink::new(config, faults),
            pages: HeapPages::new(0, link.pages, link.page_words),
            receiver: Receiver::new(link, 0),
            assembler,
            near: SourcePins::IDLE,
            far: DestinationPins::IDLE,
            source_link: LinkState::Up,
            far_link: LinkState::Up,
            now: 0,
            filed: Vec::new(),
            words: Vec::new(),
        }
    }

    /// One clock of 25 ns.
    fn clock(&mut self, trigger: u64, fragment: &[u32]) {
        let now = RunNs(self.now * 25);
        self.now += 1;
        let slice = self.source.poll_line(fragment, 1);
        let word = slice.and_then(|slice| slice.iter().next());
        if word.is_some() {
            self.source.handle_sent(1);
            self.words.push(trigger);
        }
        self.near = SourcePins {
            word,
            test: SourceTest::Off,
            reset: ResetPin::Released,
        };
        let (near, far) = self.cards.clock(self.near, self.far);
        if near.link != self.source_link {
            self.source_link = near.link;
            self.source.handle_link(now, near.link);
        }
        self.source.handle_flow(now, near.full);
        if far.link != self.far_link {
            self.far_link = far.link;
            self.receiver.handle_link(now, far.link, &mut self.pages);
        }
        if let Some(word) = far.word {
            let slice = match &word {
                LineWord::Data(data) => LineSlice::Data(core::slice::from_ref(data)),
                LineWord::Control(word) => LineSlice::Control(*word),
            };
            let taken = self.receiver.handle_line(now, slice, &mut self.pages);
            assert_eq!(taken, 1, "XOFF came in time for all words under way");
        }
        self.poll();
        let flow = self.receiver.poll_flow(now);
        self.far = DestinationPins {
            back: ReturnWord { flow, lines: 0 },
            test: SelfTest::Off,
            reset: ResetPin::Released,
        };
    }

    fn poll(&mut self) {
        while let Some(completed) = self.receiver.poll() {
            let pages: Vec<u32> = match self.assembler.handle_completed(&completed, &self.pages) {
                Assembled::MoreToCome => continue,
                Assembled::Fragment { trigger, fragment } => {
                    self.filed.push((trigger.0, fragment.status));
                    fragment.pages.to_vec()
                }
                Assembled::Refused { pages, .. } => pages.to_vec(),
            };
            pages
                .iter()
                .for_each(|page| self.receiver.recycle(*page).unwrap());
        }
    }

    /// Sends fragments of these lengths, the trigger numbers from 1, with clocks between them.
    fn run(mut self, lengths: &[usize], gap_clocks: u64) -> Outcome {
        let mut trigger = 0;
        for length in lengths {
            trigger += 1;
            let words = fragment(trigger, *length);
            if self.source.begin(words.len()) == Begun::Sending {
                while !self.source.is_idle() {
                    self.clock(trigger, &words);
                }
            }
            for _ in 0..gap_clocks {
                self.clock(trigger, &[]);
            }
        }
        for _ in 0..5000 {
            self.clock(trigger, &[]);
        }
        assert!(self.cards.is_empty());
        assert!(self.receiver.page_account().is_balanced());
        let mut losses = *self.source.losses();
        losses.merge(self.receiver.losses());
        losses.merge(self.assembler.losses());
        losses.add(
            LossCause::LinkTruncated,
            self.cards.counters().end_words_lost,
        );
        Outcome {
            filed: self.filed,
            counters: *self.assembler.counters(),
            losses,
            handed: self.source.counters(RunNs(0)).handed,
            words: self.words,
        }
    }
}

fn config() -> CardLinkConfig {
    CardLinkConfig {
        start_up_clocks: 100,
        ..CardLinkConfig::HOLA
    }
}

/// Three fragments of 20 data words; the fault strikes the second.
const DATA_WORDS: usize = 20;
const FRAGMENT_WORDS: u64 = DATA_WORDS as u64 + 14;

fn one_fault(fault: LineFault, word_of_block: u64) -> Outcome {
    let at = FRAGMENT_WORDS + 2 + word_of_block;
    let plan = LineFaultPlan::scripted(vec![(at, fault)]);
    // The fragments after a lost link wait until it is up again.
    Chain::new(config(), plan).run(&[DATA_WORDS; 4], 400)
}

fn faults() -> Vec<LineFault> {
    let flips = (0..32).map(LineFault::FlipBit);
    flips
        .chain([
            LineFault::DropWord,
            LineFault::RepeatWord,
            LineFault::FlipControlFlag,
            LineFault::LinkLoss,
        ])
        .collect()
}

fn place_of(word: u64) -> Option<FaultPlace> {
    match word {
        0 => Some(FaultPlace::Begin),
        10..=29 => Some(FaultPlace::Payload),
        35 => Some(FaultPlace::End),
        _ => None,
    }
}

#[test]
fn one_fault_in_a_block_is_classified_as_the_table_says() {
    for fault in faults() {
        for word in 0..FRAGMENT_WORDS + 2 {
            let outcome = one_fault(fault, word);
            let what = format!("{fault:?} at word {word}: {:?}", outcome.filed);
            for clean in [1, 3, 4] {
                assert!(
                    outcome.filed.contains(&(clean, FragmentStatus::GOOD)),
                    "{what}"
                );
            }
            let clean =
                |(trigger, status): &(u64, FragmentStatus)| *trigger != 2 && status.is_good();
            let others: Vec<_> = outcome.filed.iter().filter(|filed| !clean(filed)).collect();
            // A damaged header can name another trigger; it is flagged all the same.
            let status = others.first().map(|(_, status)| *status);
            assert!(others.len() <= 1, "{what}");
            let lost: Vec<_> = outcome.losses.iter().filter(|(_, n)| *n > 0).collect();
            match place_of(word).map(|place| observable(fault, place)) {
                Some(Observable::Filed(expected)) => {
                    assert_eq!((status, lost), (Some(expected), vec![]), "{what}");
                }
                Some(Observable::FiledAndStray) => {
                    assert_eq!(
                        (status, lost),
                        (Some(FragmentStatus::GOOD), vec![]),
                        "{what}"
                    );
                    assert_eq!(outcome.counters.blocks_stray, 1, "{what}");
                }
                Some(Observable::Lost(cause)) => {
                    assert_eq!((status, lost), (None, vec![(cause, 1)]), "{what}");
                }
                Some(Observable::Cut) => {
                    let cut = vec![(LossCause::LinkTruncated, 1)];
                    assert_eq!((status, lost), (None, cut), "{what}");
                }
                // In the fragment's own header and trailer it depends on the word.
                None => match status {
                    Some(status) => assert!(
                        status.contains(FragmentStatus::LINK_DATA)
                            || status.contains(FragmentStatus::LINK_CONTROL),
                        "{what}"
                    ),
                    None => assert_eq!(lost.len(), 1, "{what}"),
                },
            }
            assert_eq!(
                outcome.handed,
                outcome.filed.len() as u64 + outcome.losses.total(),
                "{what}"
            );
        }
    }
}

#[test]
fn documented_table_is_the_one_of_the_code() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/links.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (fault, fault_name) in [
        (LineFault::FlipBit(0), "bit flipped"),
        (LineFault::DropWord, "word lost"),
        (LineFault::RepeatWord, "word repeated"),
        (LineFault::FlipControlFlag, "control flag flipped"),
        (LineFault::LinkLoss, "link lost"),
    ] {
        let cells: Vec<String> = [FaultPlace::Begin, FaultPlace::Payload, FaultPlace::End]
            .into_iter()
            .map(|place| match observable(fault, place) {
                Observable::Filed(status) => format!("`{status:?}`").replace('|', "` `"),
                Observable::FiledAndStray => "good, one stray block".to_owned(),
                Observable::Lost(cause) => format!("lost: `{}`", cause.key()),
                Observable::Cut => format!("cut: `{}`", LossCause::LinkTruncated.key()),
            })
            .collect();
        let row = format!("| {fault_name} | {} |", cells.join(" | "));
        assert!(page.contains(&row), "docs/links.md lacks the row\n{row}");
    }
}

/// Triggers that a run of faults touches: those whose words were hit, and the next one where the
/// fault can reach into it.
fn touched(plan: &LineFaultPlan, words: &[u64]) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let (mut damaged, mut touched) = (BTreeSet::new(), BTreeSet::new());
    for (index, trigger) in words.iter().enumerate() {
        if let Some(fault) = plan.fault(index as u64) {
            // A repeated control word harms nothing.
            let is_first = index == 0 || words[index - 1] != *trigger;
            let is_last = words.get(index + 1) != Some(trigger);
            if fault != LineFault::RepeatWord || !(is_first || is_last) {
                damaged.insert(*trigger);
            }
            touched.extend([*trigger, trigger + 1]);
        }
    }
    (damaged, touched)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Many faults: every damaged fragment is flagged or lost, no untouched one is.
    #[test]
    fn several_faults_flag_every_damaged_block_and_no_clean_one(
        seed in any::<u64>(),
        lengths in prop::collection::vec(0usize..100, 5..60),
        ppm in 100u32..5_000,
    ) {
        let rates = FaultRates {
            flip_ppm: ppm,
            drop_ppm: ppm,
            repeat_ppm: ppm,
            flag_ppm: ppm / 2,
            link_loss_ppm: 0,
            return_loss_ppm: 100_000,
        };
        let plan = LineFaultPlan::seeded(seed, rates);
        let outcome = Chain::new(config(), plan.clone()).run(&lengths, 3);
        let (damaged, touched) = touched(&plan, &outcome.words);
        let good: BTreeSet<u64> = (outcome.filed.iter())
            .filter(|(_, status)| status.is_good())
            .map(|(trigger, _)| *trigger)
            .collect();
        for trigger in 1..=lengths.len() as u64 {
            if damaged.contains(&trigger) {
                prop_assert!(!good.contains(&trigger), "{} passes for clean", trigger);
            } else if !touched.contains(&trigger) {
                prop_assert!(good.contains(&trigger), "{} is clean", trigger);
            }
        }
        let counters = outcome.counters;
        prop_assert_eq!(
            counters.received,
            counters.filed + outcome.losses.of(LossCause::FragmentMalformed)
        );
    }

    /// Link losses at any place: each fragment comes whole, or is lost once under a cause.
    #[test]
    fn link_losses_lose_each_fragment_once(
        seed in any::<u64>(),
        lengths in prop::collection::vec(0usize..100, 5..60),
        gap in 0u64..300,
    ) {
        let rates = FaultRates { link_loss_ppm: 3_000, ..FaultRates::default() };
        let plan = LineFaultPlan::seeded(seed, rates);
        let outcome = Chain::new(config(), plan).run(&lengths, gap);
        prop_assert!(outcome.filed.iter().all(|(_, status)| status.is_good()));
        prop_assert_eq!(outcome.handed, lengths.len() as u64);
        prop_assert_eq!(outcome.handed, outcome.filed.len() as u64 + outcome.losses.total());
    }

    /// Without faults the cards change nothing: same completions as slices of any length.
    #[test]
    fn word_by_word_through_the_cards_equals_slices(
        lengths in prop::collection::vec(0usize..200, 1..12),
        words_max in 1usize..300,
    ) {
        let outcome = Chain::new(config(), LineFaultPlan::none()).run(&lengths, 0);
        let by_slice = by_slices(&lengths, words_max);
        prop_assert_eq!(outcome.filed, by_slice);
    }
}

fn by_slices(lengths: &[usize], words_max: usize) -> Vec<(u64, FragmentStatus)> {
    let mut chain = Chain::new(config(), LineFaultPlan::none());
    for (index, length) in lengths.iter().enumerate() {
        let words = fragment(index as u64 + 1, *length);
        assert_eq!(block(&words).len(), words.len() + 2);
        assert_eq!(chain.source.begin(words.len()), Begun::Sending);
        while let Some(slice) = chain.source.poll_line(&words, words_max) {
            let taken = chain
                .receiver
                .handle_line(RunNs(0), slice, &mut chain.pages);
            chain.source.handle_sent(taken);
            chain.poll();
        }
        assert_eq!(chain.receiver.poll_flow(RunNs(0)), FlowControl::Xon);
    }
    chain.filed
}
