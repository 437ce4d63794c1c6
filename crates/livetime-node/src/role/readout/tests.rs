//! A readout unit of one link, with the test at the other end of all its rings.

use livetime_builder::BuilderConfig;
use livetime_readout::{AssemblerConfig, BlockEnd, Completed, FragmentBufferConfig};
use livetime_shm::{HugePages, PoolConfig, RingConfig, ring};
use livetime_wire::fragment::{CrcCheck, FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::message::{Envelope, Keep, MESSAGE_WORDS_MAX};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{RunNumber, SourceId};

use super::*;
use crate::completion::COMPLETION_WORDS;

const RUN: RunNumber = RunNumber(1);
const SOURCE: SourceId = SourceId(0x51);
const EPOCH: u32 = 1;
const PAGES: u32 = 16;
const PAGE_WORDS: u32 = 64;
const SLOTS: u32 = 256;

struct Bench {
    role: Readout,
    pool: PagePool,
    block: Arc<CounterBlock>,
    completions: Producer,
    decisions: Producer,
    _pages_back: Consumer,
    page: u32,
    sequence: u32,
}

impl Bench {
    /// The unit, and its link, which begins behind a trigger.
    fn new(after: TriggerNumber) -> Self {
        let config = BuilderConfig {
            readout_units: vec![vec![SOURCE]],
            trigger_window: 256,
            history: 1024,
            ..BuilderConfig::default()
        };
        let pool = PoolConfig {
            pages: PAGES,
            page_bytes: PAGE_WORDS * 4,
            huge_pages: HugePages::Prefer,
        };
        let pool = PagePool::create(&pool).unwrap();
        let ring_of = |slot_words: usize| {
            let slot_words = slot_words as u32;
            let slots = SLOTS;
            ring(&RingConfig { slots, slot_words }).unwrap()
        };
        let (completions, completed) = ring_of(COMPLETION_WORDS);
        let (pages_back, returned) = ring_of(2 * PAGES_PER_MESSAGE);
        let (decisions, decided) = ring_of(MESSAGE_WORDS_MAX);
        let mut assembler = FragmentAssembler::new(AssemblerConfig {
            run: RUN,
            pool: 0,
            page_words: PAGE_WORDS,
            sources: vec![SOURCE],
            crc: CrcCheck::On,
        });
        assembler.expect_after(after);
        let buffer = FragmentBufferConfig {
            triggers_max: config.trigger_window,
        };
        let block = CounterBlock::new();
        let role = Readout::new(ReadoutParts {
            id: "ru0".to_owned(),
            core: ReadoutUnit::new(&config, 0, EPOCH),
            assemblers: vec![assembler],
            first_pages: vec![0, PAGES],
            buffer: FragmentBuffer::new(buffer, &config.sources_of(0)),
            pool: pool.clone(),
            cards: Some(CardEnds {
                completions: completed,
                pages_back,
            }),
            links: Vec::new(),
            inboxes: vec![Inbox::new(UnitId::SUPERVISOR, decided)],
            outbox: Outbox::new(Vec::new()),
            shaper: None,
            block: Arc::clone(&block),
        });
        Self {
            role,
            pool,
            block,
            completions,
            decisions,
            _pages_back: returned,
            page: 0,
            sequence: 0,
        }
    }

    fn decide(&mut self, trigger: u64, keep: Keep) {
        let trigger = TriggerNumber(trigger);
        let message = Envelope {
            sender: UnitId::SUPERVISOR,
            epoch: EPOCH,
            sequence: self.sequence,
            message: BuilderMessage::Decision { trigger, keep },
        };
        self.sequence += 1;
        assert!(self.decisions.try_push(&message.to_words()).is_ok());
        self.role.poll(RunNs(1), Phase::Running);
    }

    /// A sound fragment comes out of the link; returns what the unit has counted then.
    fn give(&mut self, trigger: u64) -> RoleCounts {
        let header = FragmentHeader {
            source: SOURCE,
            run: RUN,
            trigger_low: TriggerNumber(trigger).low(),
            bunch: 0,
            trigger_type: 0,
            event_type: 0,
        };
        let len_words = 3 + OVERHEAD_WORDS;
        let mut page = self.pool.write(PageIndex(self.page)).unwrap();
        header.emit(0, 3, &mut page[..len_words], |data| data.fill(5));
        page.finish();
        let completed = Completed {
            page: self.page,
            len_words: len_words as u32,
            status: FragmentStatus::GOOD,
            begin: None,
            end: None,
            block_end: BlockEnd::EndWord,
        };
        self.page += 1;
        let entry = Completion { link: 0, completed }.to_words();
        assert!(self.completions.try_push(&entry).is_ok());
        self.role.poll(RunNs(1), Phase::Running);
        self.block.read()
    }
}

/// Given sound fragments of triggers that there cannot be, when each is near enough to the one before
/// to be taken for ahead of it, then they are lost, and the next of a right number is filed.
#[test]
fn numbers_far_ahead_do_not_carry_those_behind_them_along() {
    let mut bench = Bench::new(TriggerNumber(0));
    bench.decide(1, Keep::Build);
    for (lost, wrong) in (1..).zip([1_000_000_000, 2_500_000_000, 3_900_000_000]) {
        let counts = bench.give(wrong);
        assert_eq!(counts.losses.of(LossCause::FragmentMalformed), lost);
    }
    let counts = bench.give(1);
    assert_eq!((counts.losses.total(), counts.gauges.held), (3, 1));
}
