//! From completed pages to checked fragments.
//!
//! [`FragmentAssembler`] joins the pages of one block, checks header, lengths and CRC-32C, extends
//! the trigger number, and says what is wrong in the fragment's status. It copies nothing and
//! keeps no page: each page that it is given comes back in a descriptor or as refused. Where the
//! descriptors are filed: [`crate::fragment_buffer`].
//!
//! | found | becomes |
//! |---|---|
//! | framing or link errors, header readable | fragment with the bits of the completion |
//! | CRC differs | fragment with `BAD_CRC` |
//! | trailer and length differ | fragment with `BAD_LENGTH` |
//! | another run | fragment with `WRONG_RUN` |
//! | a source that is not the link's | fragment with `WRONG_SOURCE`, of the link's only source: in the place of another link it would push out that one's |
//! | header unreadable, or damaged and its trigger number far off | lost, `fragment_malformed` |
//! | longer than allowed | lost, `fragment_too_long` |
//! | no end word, and not complete | lost, `link_truncated` |
//! | cut by the loss of the link | refused; the sending end has counted it |

use arrayvec::ArrayVec;
use livetime_wire::crc::Crc32c;
use livetime_wire::fragment::{CrcCheck, FragmentError, FragmentHeader, HEADER_WORDS, check_parts};
use livetime_wire::message::{FRAGMENT_PAGES_MAX, FragmentDescriptor};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{LossCause, LossCounts, RunNumber, SourceId, TriggerNumber};

use crate::page_fifo::{BlockEnd, Completed};
use crate::page_store::PageRead;

/// A damaged fragment is filed only if its trigger number is this near to that of the last sound
/// one; beyond, the number itself must be taken for damaged.
pub const DAMAGED_TRIGGER_DISTANCE_MAX: u64 = 4096;

/// Pages that are refused together: those of the longest fragment and one more.
pub type RefusedPages = ArrayVec<u32, { FRAGMENT_PAGES_MAX + 1 }>;

/// What the fragments of one link are checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssemblerConfig {
    /// This run's number.
    pub run: RunNumber,
    /// The readout unit whose pool the link's pages belong to; goes into the descriptors.
    pub pool: u16,
    /// Words of a page.
    pub page_words: u32,
    /// The sources on this link.
    pub sources: Vec<SourceId>,
    /// Whether the CRC is checked.
    pub crc: CrcCheck,
}

/// What became of a completed page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Assembled {
    /// The fragment continues in the next page.
    MoreToCome,
    /// A fragment that can be filed, with its faults in its status.
    Fragment {
        /// The trigger that it belongs to.
        trigger: TriggerNumber,
        /// Where it lies.
        fragment: FragmentDescriptor,
    },
    /// No fragment: these pages go back to the link.
    Refused {
        /// Why.
        why: Refusal,
        /// The pages.
        pages: RefusedPages,
    },
}

/// Why pages hold no fragment that can be filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A fragment is lost, and counted here.
    Lost(LossCause),
    /// The loss of the link cut it; counted at the sending end.
    Cut,
    /// A control word without data: repeated, or its fragment was counted already.
    NoData,
    /// The rest of a fragment that a wrong control word split; its first part was counted.
    Leftover,
    /// More pages than a fragment may have; the verdict on the fragment follows with its last page.
    Excess,
}

/// Counters of the assembled fragments of a link.
///
/// `received` = `filed` + losses here of the readout area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AssemblerCounters {
    /// Fragments that came out of the link, damaged ones included.
    pub received: u64,
    /// Fragments given out as descriptors.
    pub filed: u64,
    /// Of these, fragments with a status bit.
    pub flagged: u64,
    /// Fragments with each status bit, filed or lost, in the order of [`FragmentStatus::NAMES`].
    pub by_status: [u64; FragmentStatus::NAMES.len()],
    /// Words of the filed fragments.
    pub words: u64,
    /// Filed fragments in which the front-end has set its own status flags.
    pub front_end_flagged: u64,
    /// Blocks cut by the loss of the link.
    pub blocks_cut: u64,
    /// Control words without data, and leftovers of split fragments.
    pub blocks_stray: u64,
}

/// Pages of a block whose end has not come.
#[derive(Debug, Clone)]
struct Chain {
    pages: ArrayVec<u32, FRAGMENT_PAGES_MAX>,
    status: FragmentStatus,
    /// A page before the last was not full, which only a foreign link does.
    uneven: bool,
}

impl Chain {
    fn empty() -> Self {
        Self {
            pages: ArrayVec::new(),
            status: FragmentStatus::GOOD,
            uneven: false,
        }
    }
}

/// Makes fragments of the completions of one link, in their order.
#[derive(Debug, Clone)]
pub struct FragmentAssembler {
    config: AssemblerConfig,
    chain: Chain,
    /// Trigger number of the last sound fragment; others are extended to the nearest.
    near: TriggerNumber,
    /// The block before ended with a wrong control word: what follows without a begin word may be
    /// its rest.
    after_wrong_end: bool,
    counters: AssemblerCounters,
    losses: LossCounts,
}

impl FragmentAssembler {
    /// An assembler at the start of a run.
    pub fn new(mut config: AssemblerConfig) -> Self {
        config.sources.sort_unstable();
        Self {
            config,
            chain: Chain::empty(),
            near: TriggerNumber(0),
            after_wrong_end: false,
            counters: AssemblerCounters::default(),
            losses: LossCounts::new(),
        }
    }

    /// The next fragment is of a trigger behind this one: the link begins in the middle of a run.
    pub fn expect_after(&mut self, trigger: TriggerNumber) {
        self.near = trigger;
    }

    /// Takes the next completion of the link; `pages` gives the words of it and of the pages held.
    #[inline]
    pub fn handle_completed<P: PageRead + ?Sized>(
        &mut self,
        completed: &Completed,
        pages: &P,
    ) -> Assembled {
        if !self.chain.pages.is_empty() || completed.block_end == BlockEnd::MoreToCome {
            return self.handle_part(completed, pages);
        }
        let words = page_words(pages, completed);
        match self.judge(&[words], completed.status, completed.block_end) {
            Ok(judged) => judged.with_pages(self.config.pool, &[completed.page]),
            Err(why) => refused(why, &[completed.page]),
        }
    }

    /// Gives back the pages held because the run is ended by force.
    #[inline]
    pub fn abort(&mut self) -> RefusedPages {
        let pages = self.chain.pages.iter().copied().collect();
        self.chain.pages.clear();
        pages
    }

    /// Pages held: those of a block whose end has not come.
    #[inline]
    pub fn pages_held(&self) -> u32 {
        self.chain.pages.len() as u32
    }

    /// The sources on this link, in order.
    pub fn sources(&self) -> &[SourceId] {
        &self.config.sources
    }

    /// The counters.
    pub fn counters(&self) -> &AssemblerCounters {
        &self.counters
    }

    /// Fragments lost here, by cause.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }

    /// A page of a block of several.
    fn handle_part<P: PageRead + ?Sized>(&mut self, completed: &Completed, pages: &P) -> Assembled {
        let mut status = completed.status;
        if !self.chain.pages.is_empty() {
            status.0 &= !FragmentStatus::NO_BEGIN.0;
        }
        let more = completed.block_end == BlockEnd::MoreToCome;
        if more {
            status.0 &= !FragmentStatus::NO_END.0;
            self.chain.uneven |= completed.len_words != self.config.page_words;
        }
        self.chain.status.insert(status);
        let excess = self.chain.pages.try_push(completed.page).is_err();
        if excess {
            self.chain.status.insert(FragmentStatus::TOO_LONG);
        }
        if more {
            return match excess {
                true => refused(Refusal::Excess, &[completed.page]),
                false => Assembled::MoreToCome,
            };
        }
        let chain = core::mem::replace(&mut self.chain, Chain::empty());
        let mut parts = ArrayVec::<&[u32], FRAGMENT_PAGES_MAX>::new();
        if !excess && !chain.uneven {
            for page in &chain.pages[..chain.pages.len() - 1] {
                let words = pages.words(*page);
                parts.push(&words[..words.len().min(self.config.page_words as usize)]);
            }
            parts.push(page_words(pages, completed));
        }
        match self.judge(&parts, chain.status, completed.block_end) {
            Ok(judged) => judged.with_pages(self.config.pool, &chain.pages),
            Err(why) => {
                let mut pages: RefusedPages = chain.pages.iter().copied().collect();
                if excess {
                    pages.push(completed.page);
                }
                Assembled::Refused { why, pages }
            }
        }
    }

    /// Decides on a whole block; no parts at all if its pages do not make up one.
    fn judge(
        &mut self,
        parts: &[&[u32]],
        status: FragmentStatus,
        block_end: BlockEnd,
    ) -> Result<Judged, Refusal> {
        let after_wrong_end = core::mem::replace(
            &mut self.after_wrong_end,
            status.contains(FragmentStatus::WRONG_END),
        );
        if block_end == BlockEnd::LinkDown {
            self.counters.blocks_cut += 1;
            return Err(Refusal::Cut);
        }
        if status.contains(FragmentStatus::TOO_LONG) {
            self.counters.received += 1;
            return Err(self.lose(LossCause::FragmentTooLong, status));
        }
        let unframed = FragmentStatus::NO_BEGIN.with(FragmentStatus::NO_END).0 & status.0 != 0;
        if unframed && matches!(parts, [[]]) {
            self.counters.blocks_stray += 1;
            return Err(Refusal::NoData);
        }
        match self.check(parts, status) {
            Ok(judged) => {
                self.counters.received += 1;
                Ok(self.file(judged))
            }
            Err(status) if status.contains(FragmentStatus::NO_END) => {
                Err(self.lose(LossCause::LinkTruncated, status))
            }
            Err(status) if status.contains(FragmentStatus::NO_BEGIN) && after_wrong_end => {
                self.counters.blocks_stray += 1;
                Err(Refusal::Leftover)
            }
            Err(status) => {
                self.counters.received += 1;
                Err(self.lose(LossCause::FragmentMalformed, status))
            }
        }
    }

    /// Checks the words of a block: what can be filed, or the status of what cannot.
    fn check(
        &self,
        parts: &[&[u32]],
        mut status: FragmentStatus,
    ) -> Result<Judged, FragmentStatus> {
        let no_end = status.contains(FragmentStatus::NO_END);
        let (header, front_end_status, crc) = match check_parts(parts, self.config.crc) {
            Ok(check) => {
                if check.crc_good == Some(false) {
                    status.insert(FragmentStatus::BAD_CRC);
                }
                (check.header, check.front_end_status, check.crc_all)
            }
            Err(FragmentError::Header { .. }) => {
                return Err(status.with(FragmentStatus::BAD_HEADER));
            }
            Err(FragmentError::Trailer { .. } | FragmentError::TooShort { .. }) => {
                status.insert(FragmentStatus::BAD_LENGTH);
                let header = header_of(parts).filter(|_| !no_end).ok_or(status)?;
                (header, 0, self.crc_of(parts))
            }
        };
        if header.run != self.config.run {
            status.insert(FragmentStatus::WRONG_RUN);
        }
        if self.config.sources.binary_search(&header.source).is_err() {
            status.insert(FragmentStatus::WRONG_SOURCE);
        }
        let trigger = header.trigger(self.near);
        let sound = self.is_sound(status);
        if !sound && trigger.0.abs_diff(self.near.0) > DAMAGED_TRIGGER_DISTANCE_MAX {
            return Err(status.with(FragmentStatus::BAD_HEADER));
        }
        Ok(Judged {
            trigger,
            source: self.source_of(&header),
            words: parts.iter().map(|part| part.len() as u32).sum(),
            status,
            crc,
            sound,
            front_end_status,
        })
    }

    /// Whose fragment it is: a link of one source carries those of no other, whatever they say.
    #[inline]
    fn source_of(&self, header: &FragmentHeader) -> SourceId {
        match self.config.sources[..] {
            [own] => own,
            _ => header.source,
        }
    }

    /// Whether the header can be believed.
    #[inline]
    fn is_sound(&self, status: FragmentStatus) -> bool {
        let mut doubtful = FragmentStatus::BAD_CRC
            .with(FragmentStatus::BAD_LENGTH)
            .with(FragmentStatus::WRONG_RUN);
        if self.config.crc == CrcCheck::Off {
            doubtful.insert(FragmentStatus::LINK_DATA);
        }
        status.0 & doubtful.0 == 0
    }

    #[inline]
    fn crc_of(&self, parts: &[&[u32]]) -> u32 {
        if self.config.crc == CrcCheck::Off {
            return 0;
        }
        let mut crc = Crc32c::new();
        parts.iter().for_each(|part| crc.update(part));
        crc.value()
    }

    fn file(&mut self, judged: Judged) -> Judged {
        if judged.sound {
            self.near = judged.trigger;
        }
        self.counters.filed += 1;
        self.counters.words += u64::from(judged.words);
        self.counters.front_end_flagged += u64::from(judged.front_end_status != 0);
        if !judged.status.is_good() {
            self.counters.flagged += 1;
            self.count_status(judged.status);
        }
        judged
    }

    #[inline]
    fn lose(&mut self, cause: LossCause, status: FragmentStatus) -> Refusal {
        self.losses.add(cause, 1);
        self.count_status(status);
        Refusal::Lost(cause)
    }

    #[inline]
    fn count_status(&mut self, status: FragmentStatus) {
        for (count, (bit, _)) in self
            .counters
            .by_status
            .iter_mut()
            .zip(FragmentStatus::NAMES)
        {
            *count += u64::from(status.contains(bit));
        }
    }
}

/// A block that can be filed, without its pages.
struct Judged {
    trigger: TriggerNumber,
    source: SourceId,
    words: u32,
    status: FragmentStatus,
    crc: u32,
    sound: bool,
    front_end_status: u32,
}

impl Judged {
    fn with_pages(self, pool: u16, pages: &[u32]) -> Assembled {
        Assembled::Fragment {
            trigger: self.trigger,
            fragment: FragmentDescriptor {
                source: self.source,
                pool,
                words: self.words,
                status: self.status,
                crc: self.crc,
                pages: pages.iter().copied().collect(),
            },
        }
    }
}

#[inline]
fn refused(why: Refusal, pages: &[u32]) -> Assembled {
    Assembled::Refused {
        why,
        pages: pages.iter().copied().collect(),
    }
}

/// The words of a completed page.
#[inline]
fn page_words<'a, P: PageRead + ?Sized>(pages: &'a P, completed: &Completed) -> &'a [u32] {
    let words = pages.words(completed.page);
    &words[..words.len().min(completed.len_words as usize)]
}

/// The header of a block that lies in several parts.
#[inline]
fn header_of(parts: &[&[u32]]) -> Option<FragmentHeader> {
    let words = parts.iter().flat_map(|part| *part).copied();
    let start: ArrayVec<u32, HEADER_WORDS> = words.take(HEADER_WORDS).collect();
    FragmentHeader::parse(&start).ok()
}

#[cfg(test)]
mod tests {
    use livetime_wire::fragment::OVERHEAD_WORDS;
    use livetime_wire::slink::ControlWord;

    use super::*;
    use crate::page_store::{HeapPages, PageStore};

    const PAGE_WORDS: u32 = 32;
    const SOURCE: SourceId = SourceId(0x0101);
    const RUN: RunNumber = RunNumber(42);

    /// An assembler, its pages, and the next page to be filled.
    struct Bench {
        assembler: FragmentAssembler,
        pages: HeapPages,
        next: u32,
    }

    impl Bench {
        fn new(crc: CrcCheck) -> Self {
            let config = AssemblerConfig {
                run: RUN,
                pool: 3,
                page_words: PAGE_WORDS,
                sources: vec![SOURCE],
                crc,
            };
            Self {
                assembler: FragmentAssembler::new(config),
                pages: HeapPages::new(0, 64, PAGE_WORDS),
                next: 0,
            }
        }

        /// Completes `words` in as many pages as they take, with `status` on the last page.
        fn complete(
            &mut self,
            words: &[u32],
            status: FragmentStatus,
            block_end: BlockEnd,
        ) -> Assembled {
            let mut rest = words;
            loop {
                let page = self.next % 64;
                self.next += 1;
                let (now, later) = rest.split_at(rest.len().min(PAGE_WORDS as usize));
                self.pages.words_mut(page)[..now.len()].copy_from_slice(now);
                rest = later;
                let last = rest.is_empty();
                let more = if last { status } else { FragmentStatus::NO_END };
                let completed = Completed {
                    page,
                    len_words: now.len() as u32,
                    status: more,
                    begin: Some(ControlWord::BEGIN_FRAGMENT),
                    end: None,
                    block_end: if last {
                        block_end
                    } else {
                        BlockEnd::MoreToCome
                    },
                };
                let assembled = self.assembler.handle_completed(&completed, &self.pages);
                if last {
                    return assembled;
                }
                assert_eq!(assembled, Assembled::MoreToCome);
            }
        }

        fn good(&mut self, words: &[u32]) -> Assembled {
            self.complete(words, FragmentStatus::GOOD, BlockEnd::EndWord)
        }
    }

    fn fragment(trigger: TriggerNumber, data_words: usize) -> Vec<u32> {
        let header = FragmentHeader {
            source: SOURCE,
            run: RUN,
            trigger_low: trigger.low(),
            bunch: 1,
            trigger_type: 2,
            event_type: 3,
        };
        let mut words = vec![0; data_words + OVERHEAD_WORDS];
        header.emit(0, data_words, &mut words, |data| data.fill(0x55AA));
        words
    }

    fn filed(assembled: Assembled) -> (TriggerNumber, FragmentDescriptor) {
        match assembled {
            Assembled::Fragment { trigger, fragment } => (trigger, fragment),
            other => panic!("not filed: {other:?}"),
        }
    }

    fn why(assembled: &Assembled) -> Refusal {
        match assembled {
            Assembled::Refused { why, .. } => *why,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn good_fragments_of_one_and_of_many_pages_are_filed_under_their_header() {
        let mut bench = Bench::new(CrcCheck::On);
        for data_words in [0, 17, 18, 19, 100, 16 * 32 - OVERHEAD_WORDS] {
            let words = fragment(TriggerNumber(5), data_words);
            let (trigger, descriptor) = filed(bench.good(&words));
            assert_eq!(trigger, TriggerNumber(5));
            assert!(descriptor.status.is_good());
            assert_eq!((descriptor.source, descriptor.pool), (SOURCE, 3));
            assert_eq!(descriptor.words as usize, words.len());
            assert_eq!(descriptor.pages.len(), words.len().div_ceil(32));
            assert_eq!(descriptor.crc, livetime_wire::crc::crc32c(&words));
        }
        assert_eq!(bench.assembler.counters().received, 6);
        assert_eq!(bench.assembler.pages_held(), 0);
    }

    #[test]
    fn faults_that_leave_the_header_readable_become_status_bits() {
        let mut bench = Bench::new(CrcCheck::On);
        let words = fragment(TriggerNumber(1), 4);
        let mut bad_crc = words.clone();
        bad_crc[10] ^= 1;
        let mut bad_length = words.clone();
        bad_length.push(0);
        let mut wrong_run = words.clone();
        wrong_run[4] ^= 1;
        let mut wrong_source = words.clone();
        wrong_source[3] = 0x999;
        for (words, bit) in [
            (bad_crc, FragmentStatus::BAD_CRC),
            (bad_length, FragmentStatus::BAD_LENGTH),
            (wrong_run, FragmentStatus::WRONG_RUN),
            (wrong_source, FragmentStatus::WRONG_SOURCE),
        ] {
            let (trigger, descriptor) = filed(bench.good(&words));
            assert_eq!(trigger, TriggerNumber(1));
            assert!(descriptor.status.contains(bit), "{:?}", descriptor.status);
            assert_eq!(descriptor.source, SOURCE, "in the place of the link's own");
            assert_eq!(descriptor.crc, livetime_wire::crc::crc32c(&words));
        }
        let framing = FragmentStatus::WRONG_END.with(FragmentStatus::LINK_CONTROL);
        let (_, descriptor) = filed(bench.complete(&words, framing, BlockEnd::EndWord));
        assert_eq!(descriptor.status, framing);
        let counters = bench.assembler.counters();
        assert_eq!(
            (counters.received, counters.filed, counters.flagged),
            (5, 5, 5)
        );
        assert_eq!(counters.by_status.iter().sum::<u64>(), 8);
    }

    #[test]
    fn a_link_of_several_sources_files_each_under_its_own() {
        let mut bench = Bench::new(CrcCheck::On);
        bench.assembler.config.sources = vec![SourceId(0x0100), SOURCE];
        let (_, descriptor) = filed(bench.good(&fragment(TriggerNumber(1), 4)));
        assert_eq!(descriptor.source, SOURCE);
        assert!(descriptor.status.is_good());
    }

    #[test]
    fn checksum_off_files_without_comparing() {
        let mut bench = Bench::new(CrcCheck::Off);
        let mut words = fragment(TriggerNumber(1), 4);
        words[10] ^= 1;
        let (_, descriptor) = filed(bench.good(&words));
        assert!(descriptor.status.is_good());
        assert_eq!(descriptor.crc, 0);
    }

    #[test]
    fn losses_have_the_cause_that_the_table_says_and_give_all_pages_back() {
        let words = fragment(TriggerNumber(1), 60);
        let mut unreadable = words.clone();
        unreadable[0] ^= 1;
        let (good, no_end) = (FragmentStatus::GOOD, FragmentStatus::NO_END);
        let lost = Refusal::Lost;
        for (words, status, end, expected) in [
            (
                &unreadable[..],
                good,
                BlockEnd::EndWord,
                lost(LossCause::FragmentMalformed),
            ),
            (
                &words[..5],
                good,
                BlockEnd::EndWord,
                lost(LossCause::FragmentMalformed),
            ),
            (
                &[],
                good,
                BlockEnd::EndWord,
                lost(LossCause::FragmentMalformed),
            ),
            (
                &words[..40],
                no_end,
                BlockEnd::BeginWord,
                lost(LossCause::LinkTruncated),
            ),
            (
                &words[..5],
                no_end,
                BlockEnd::BeginWord,
                lost(LossCause::LinkTruncated),
            ),
            (&words[..40], no_end, BlockEnd::LinkDown, Refusal::Cut),
            (&[], no_end, BlockEnd::BeginWord, Refusal::NoData),
            (
                &[],
                FragmentStatus::NO_BEGIN,
                BlockEnd::EndWord,
                Refusal::NoData,
            ),
            (
                &words[..],
                FragmentStatus::TOO_LONG,
                BlockEnd::EndWord,
                lost(LossCause::FragmentTooLong),
            ),
        ] {
            let mut bench = Bench::new(CrcCheck::On);
            let assembled = bench.complete(words, status, end);
            assert_eq!(why(&assembled), expected);
            let Assembled::Refused { pages, .. } = assembled else {
                unreachable!()
            };
            assert_eq!(pages.len(), words.len().div_ceil(32).max(1));
            let counters = bench.assembler.counters();
            let in_readout = [LossCause::FragmentMalformed, LossCause::FragmentTooLong]
                .map(|cause| bench.assembler.losses().of(cause));
            assert_eq!(
                counters.received,
                counters.filed + in_readout.iter().sum::<u64>()
            );
        }
    }

    #[test]
    fn complete_fragment_without_its_end_word_is_filed() {
        let mut bench = Bench::new(CrcCheck::On);
        let words = fragment(TriggerNumber(1), 4);
        let no_end = FragmentStatus::NO_END;
        let (_, descriptor) = filed(bench.complete(&words, no_end, BlockEnd::BeginWord));
        assert_eq!(descriptor.status, no_end);
    }

    #[test]
    fn rest_of_a_split_fragment_is_not_counted_twice() {
        let mut bench = Bench::new(CrcCheck::On);
        let words = fragment(TriggerNumber(1), 10);
        let wrong_end = FragmentStatus::WRONG_END;
        let (_, first) = filed(bench.complete(&words[..12], wrong_end, BlockEnd::EndWord));
        assert!(first.status.contains(FragmentStatus::BAD_LENGTH));
        let no_begin = FragmentStatus::NO_BEGIN;
        let rest = bench.complete(&words[13..], no_begin, BlockEnd::EndWord);
        assert_eq!(why(&rest), Refusal::Leftover);
        assert_eq!(bench.assembler.counters().received, 1);
        let rest = bench.complete(&words[13..], no_begin, BlockEnd::EndWord);
        assert_eq!(why(&rest), Refusal::Lost(LossCause::FragmentMalformed));
    }

    #[test]
    fn trigger_numbers_are_extended_across_the_wrap_and_not_by_damaged_ones() {
        let mut bench = Bench::new(CrcCheck::On);
        bench.assembler.near = TriggerNumber(0xFFFF_FFF0);
        for number in 0xFFFF_FFF1u64..0x1_0000_0010 {
            let (trigger, _) = filed(bench.good(&fragment(TriggerNumber(number), 2)));
            assert_eq!(trigger, TriggerNumber(number));
            // A damaged number far off is not believed, one nearby is filed but moves nothing.
            let mut far = fragment(TriggerNumber(number), 2);
            far[5] ^= 0x4000_0000;
            let malformed = Refusal::Lost(LossCause::FragmentMalformed);
            assert_eq!(why(&bench.good(&far)), malformed);
            let mut nearby = fragment(TriggerNumber(number), 2);
            nearby[5] ^= 0x0000_0800;
            let (trigger, descriptor) = filed(bench.good(&nearby));
            assert_ne!(trigger, TriggerNumber(number));
            assert!(descriptor.status.contains(FragmentStatus::BAD_CRC));
            assert_eq!(bench.assembler.near, TriggerNumber(number));
        }
    }

    #[test]
    fn a_link_that_begins_in_the_middle_of_a_run_extends_from_there() {
        let mut bench = Bench::new(CrcCheck::On);
        bench.assembler.expect_after(TriggerNumber(0x5_FFFF_FFFF));
        let (trigger, _) = filed(bench.good(&fragment(TriggerNumber(0x6_0000_0000), 2)));
        assert_eq!(trigger, TriggerNumber(0x6_0000_0000));
    }

    #[test]
    fn foreign_link_with_too_many_or_uneven_pages_loses_no_page() {
        let mut bench = Bench::new(CrcCheck::On);
        let part = |page, len_words, block_end| Completed {
            page,
            len_words,
            status: FragmentStatus::GOOD,
            begin: None,
            end: None,
            block_end,
        };
        let mut back = 0;
        for page in 0..20 {
            let end = if page < 19 {
                BlockEnd::MoreToCome
            } else {
                BlockEnd::EndWord
            };
            match bench
                .assembler
                .handle_completed(&part(page, 32, end), &bench.pages)
            {
                Assembled::Refused { why, pages } => {
                    let expected = match page {
                        19 => Refusal::Lost(LossCause::FragmentTooLong),
                        _ => Refusal::Excess,
                    };
                    assert_eq!(why, expected);
                    back += pages.len();
                }
                other => assert_eq!(other, Assembled::MoreToCome),
            }
        }
        assert_eq!(back, 20);
        let uneven = part(1, 20, BlockEnd::MoreToCome);
        let more = bench.assembler.handle_completed(&uneven, &bench.pages);
        assert_eq!(more, Assembled::MoreToCome);
        let last = part(2, 20, BlockEnd::EndWord);
        let refused = bench.assembler.handle_completed(&last, &bench.pages);
        assert_eq!(why(&refused), Refusal::Lost(LossCause::FragmentMalformed));
        let Assembled::Refused { pages, .. } = refused else {
            unreachable!()
        };
        assert_eq!(pages.as_slice(), [1, 2]);
    }

    #[test]
    fn abort_gives_the_held_pages_back() {
        let mut bench = Bench::new(CrcCheck::On);
        let completed = Completed {
            page: 9,
            len_words: 32,
            status: FragmentStatus::NO_END,
            begin: None,
            end: None,
            block_end: BlockEnd::MoreToCome,
        };
        let more = bench.assembler.handle_completed(&completed, &bench.pages);
        assert_eq!(
            (more, bench.assembler.pages_held()),
            (Assembled::MoreToCome, 1)
        );
        assert_eq!(bench.assembler.abort().as_slice(), [9]);
        assert_eq!(bench.assembler.pages_held(), 0);
    }
}
