//! The receiving end of a link: control words off, data words into pages, one completion per page.
//!
//! [`SlinkDestination`] says of each block how it was framed and what the link reported; it does
//! not look into the data ([`crate::fragment_assembler`] does) and owns neither pages nor FIFOs
//! ([`crate::page_fifo`], [`crate::receiver`]). Slices are taken at memory speed; the word-by-word
//! path gives the same completions and is there for models and faults.
//!
//! A block is everything between two control words. Which word closes it, and what is then said:
//!
//! | on the line | completion |
//! |---|---|
//! | begin, data, end | good |
//! | data, end | `NO_BEGIN` |
//! | another word in place of begin, data, end | `WRONG_BEGIN` |
//! | begin, data, another word in place of end | `WRONG_END` |
//! | begin, data, begin | `NO_END`, [`BlockEnd::BeginWord`]; the second begin opens a block |
//! | begin, data, link down | `NO_END`, [`BlockEnd::LinkDown`] |
//! | page full and more data | `NO_END`, [`BlockEnd::MoreToCome`]; the next page has `NO_BEGIN` |
//! | longer than allowed | `TOO_LONG`, rest discarded up to the next control word |
//! | end word alone after the link came up | none; counted as `link_down` |
//! | bit 0 of the word that closes it | `LINK_DATA` |
//! | bit 1 of its begin or end word | `LINK_CONTROL` |

use livetime_wire::slink::{ControlWord, FragmentStatus, LineWord};
use livetime_wire::{LossCause, LossCounts};

use crate::line::{LineBlock, LineSlice, LinkState};
use crate::link_config::LinkConfig;
use crate::page_fifo::{BlockEnd, Completed, PageFifos};
use crate::page_store::PageStore;
use crate::self_test::{SelfTest, TestChecker};

/// Counters of a receiving end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DestinationCounters {
    /// Data words taken.
    pub data_words: u64,
    /// Control words taken.
    pub control_words: u64,
    /// Pages completed.
    pub pages: u64,
    /// Blocks closed, however they were.
    pub blocks: u64,
    /// Blocks closed without any status bit.
    pub blocks_good: u64,
    /// Blocks cut by link down, reset or self-test, those without a data word included.
    pub blocks_cut: u64,
    /// Data words discarded because their block was too long.
    pub words_discarded: u64,
    /// Words that came while the link was down, discarded.
    pub words_while_down: u64,
    /// Calls that left words on the line for want of a page or an acknowledge slot.
    pub stalls: u64,
    /// Errors reported by the link outside any block.
    pub idle_errors: u64,
}

/// A page being filled.
#[derive(Debug, Clone, Copy)]
struct OpenPage {
    page: u32,
    filled: u32,
    capacity: u32,
}

/// A block being received.
#[derive(Debug, Clone, Copy)]
struct OpenBlock {
    begin: Option<ControlWord>,
    /// What is known from the begin word; belongs to the first page.
    begin_status: FragmentStatus,
    /// Whether a page of this block is completed already.
    continued: bool,
    /// Data words stored in all pages.
    words: u32,
    /// Some as soon as the first data word is stored.
    page: Option<OpenPage>,
    too_long: bool,
}

impl OpenBlock {
    #[inline]
    fn without_begin() -> Self {
        Self {
            begin: None,
            begin_status: FragmentStatus::NO_BEGIN,
            continued: false,
            words: 0,
            page: None,
            too_long: false,
        }
    }

    fn begun_by(word: ControlWord, expected: ControlWord) -> Self {
        let mut status = FragmentStatus::GOOD;
        if !word.matches(expected) {
            status.insert(FragmentStatus::WRONG_BEGIN);
        }
        if word.control_error() {
            status.insert(FragmentStatus::LINK_CONTROL);
        }
        Self {
            begin: Some(word),
            begin_status: status,
            ..Self::without_begin()
        }
    }
}

/// The receiving end of a link, without its FIFOs and pages.
///
/// The `handle_*` functions return how many words they took. Fewer than offered means that the
/// request FIFO is empty or the acknowledge FIFO full: the line stops and offers the rest again.
#[derive(Debug, Clone)]
pub struct SlinkDestination {
    begin: ControlWord,
    end: ControlWord,
    page_words: u32,
    fragment_words_max: u32,
    link: LinkState,
    /// The link has come up and no word was received since.
    just_up: bool,
    test: SelfTest,
    checker: TestChecker,
    block: Option<OpenBlock>,
    /// Words of the page completed last: a guess at those of the next one.
    last_page_words: u32,
    counters: DestinationCounters,
    losses: LossCounts,
}

impl SlinkDestination {
    /// An idle destination on a link that is up.
    pub fn new(config: &LinkConfig) -> Self {
        Self {
            begin: config.begin,
            end: config.end,
            page_words: config.page_words,
            fragment_words_max: config.fragment_words_max,
            link: LinkState::Up,
            just_up: false,
            test: SelfTest::Off,
            checker: TestChecker::default(),
            block: None,
            last_page_words: 0,
            counters: DestinationCounters::default(),
            losses: LossCounts::new(),
        }
    }

    /// Sets page size, longest fragment and control words anew; a page being filled keeps its size.
    #[inline]
    pub(crate) fn configure(&mut self, config: &LinkConfig) {
        self.begin = config.begin;
        self.end = config.end;
        self.page_words = config.page_words;
        self.fragment_words_max = config.fragment_words_max;
    }

    /// Takes words of the line; returns how many.
    #[inline]
    pub fn handle_line<S: PageStore + ?Sized>(
        &mut self,
        line: LineSlice<'_>,
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> usize {
        if self.link == LinkState::Down || self.test != SelfTest::Off {
            return self.handle_line_aside(line, fifos, store);
        }
        self.receive(line, fifos, store)
    }

    /// Takes a block at once if it is one to be found good, of one page; returns how many words of
    /// it, control words included: all, or none of one that is to be offered as slices, or 1 when
    /// the page is shorter than the configuration says and the data words are to follow as slices.
    #[inline]
    pub fn handle_block<S: PageStore + ?Sized>(
        &mut self,
        block: LineBlock<'_>,
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> usize {
        let is_clean = |word: ControlWord, expected| {
            word.matches(expected) && !word.data_error() && !word.control_error()
        };
        let words = block.data.len();
        let words_max = self.page_words.min(self.fragment_words_max) as usize;
        let is_plain = self.link == LinkState::Up
            && self.test == SelfTest::Off
            && self.block.is_none()
            && (1..=words_max).contains(&words)
            && is_clean(block.begin, self.begin)
            && is_clean(block.end, self.end);
        if !is_plain {
            return 0;
        }
        let Some(page) = fifos.take_request(1) else {
            return 0;
        };
        self.just_up = false;
        store.start(page);
        if let Some(next) = fifos.next_request() {
            store.prepare(next, self.last_page_words);
        }
        let to = store.words_mut(page);
        let Some(to) = to.get_mut(..words) else {
            let (filled, capacity) = (0, to.len() as u32);
            let mut open = OpenBlock::begun_by(block.begin, self.begin);
            open.page = Some(OpenPage {
                page,
                filled,
                capacity,
            });
            self.block = Some(open);
            self.counters.control_words += 1;
            return 1;
        };
        // Before the copy: the entry is moved to its place as a whole, which would wait until all
        // words of the page have left the processor's store buffer.
        fifos.complete(Completed {
            page,
            len_words: words as u32,
            status: FragmentStatus::GOOD,
            begin: Some(block.begin),
            end: Some(block.end),
            block_end: BlockEnd::EndWord,
        });
        to.copy_from_slice(block.data);
        store.finish(page, words as u32);
        self.last_page_words = words as u32;
        self.counters.control_words += 2;
        self.counters.data_words += words as u64;
        self.counters.pages += 1;
        self.counters.blocks += 1;
        self.counters.blocks_good += 1;
        block.words()
    }

    /// Takes one word; returns how many (0 or 1). The reference for [`Self::handle_line`].
    pub fn handle_word<S: PageStore + ?Sized>(
        &mut self,
        word: LineWord,
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> usize {
        let data = match word {
            LineWord::Control(control) => {
                return self.handle_line(LineSlice::Control(control), fifos, store);
            }
            LineWord::Data(data) => data,
        };
        if self.link == LinkState::Down || self.test != SelfTest::Off {
            return self.handle_line_aside(LineSlice::Data(&[data]), fifos, store);
        }
        self.just_up = false;
        let block = self.block.get_or_insert_with(OpenBlock::without_begin);
        block.too_long |= block.words == self.fragment_words_max;
        if block.too_long {
            self.counters.data_words += 1;
            self.counters.words_discarded += 1;
            return 1;
        }
        if !self.make_room(fifos, store) {
            self.counters.stalls += 1;
            return 0;
        }
        let block = self.block.as_mut().expect("the block was opened above");
        let open = block.page.as_mut().expect("a page with room");
        store.words_mut(open.page)[open.filled as usize] = data;
        open.filled += 1;
        block.words += 1;
        self.counters.data_words += 1;
        1
    }

    /// The link's state (LDOWN#). Going down closes an open block as cut.
    ///
    /// Tell it at the place in the stream where the loss happened: words of the line that came
    /// before it are to be handled first.
    #[inline]
    pub fn handle_link<S: PageStore + ?Sized>(
        &mut self,
        link: LinkState,
        fifos: &mut PageFifos,
        store: &mut S,
    ) {
        if link == LinkState::Down || self.link == LinkState::Down {
            self.cut(fifos, store);
        }
        self.just_up = self.link == LinkState::Down && link == LinkState::Up;
        self.link = link;
    }

    /// Discards words from now on, as with the link down, but leaves an open block to be closed by
    /// the next [`Self::handle_link`]: for a reset, which has no access to page memory.
    #[inline]
    pub fn hold(&mut self) {
        self.link = LinkState::Down;
    }

    /// Starts or ends the self-test; an open block is cut.
    #[inline]
    pub fn handle_test<S: PageStore + ?Sized>(
        &mut self,
        test: SelfTest,
        fifos: &mut PageFifos,
        store: &mut S,
    ) {
        if test != self.test {
            self.cut(fifos, store);
            self.test = test;
        }
    }

    /// The link's state for the user: in self-test it is down.
    #[inline]
    pub fn link(&self) -> LinkState {
        match self.test {
            SelfTest::Off => self.link,
            SelfTest::Check | SelfTest::CheckAndDeliver => LinkState::Down,
        }
    }

    /// Whether a page is being filled: 1 page is then neither posted nor completed.
    #[inline]
    pub fn pages_filling(&self) -> u32 {
        u32::from(self.block.is_some_and(|block| block.page.is_some()))
    }

    /// The counters.
    pub fn counters(&self) -> &DestinationCounters {
        &self.counters
    }

    /// What the self-test has found.
    #[inline]
    pub fn checker(&self) -> &TestChecker {
        &self.checker
    }

    /// Fragments lost here: those whose end word came while the link was down, or alone after it.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }

    fn receive<S: PageStore + ?Sized>(
        &mut self,
        line: LineSlice<'_>,
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> usize {
        let taken = match line {
            LineSlice::Control(word) => {
                let taken = self.handle_control(word, fifos, store);
                self.counters.control_words += taken as u64;
                taken
            }
            LineSlice::Data(words) => {
                let taken = self.handle_data(words, fifos, store);
                self.counters.data_words += taken as u64;
                taken
            }
        };
        self.counters.stalls += u64::from(taken < line.words());
        taken
    }

    /// Words that are not (only) data: the link is down or in self-test.
    fn handle_line_aside<S: PageStore + ?Sized>(
        &mut self,
        line: LineSlice<'_>,
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> usize {
        if self.link == LinkState::Down {
            self.counters.words_while_down += line.words() as u64;
            if matches!(line, LineSlice::Control(word) if word.matches(self.end)) {
                self.losses.add(LossCause::LinkDown, 1);
            }
            return line.words();
        }
        let taken = match self.test {
            SelfTest::CheckAndDeliver => self.receive(line, fifos, store),
            SelfTest::Check | SelfTest::Off => line.words(),
        };
        self.checker.handle_line(line.head(taken));
        taken
    }

    fn handle_control<S: PageStore + ?Sized>(
        &mut self,
        word: ControlWord,
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> usize {
        let is_begin = word.matches(self.begin);
        let is_end = word.matches(self.end);
        let just_up = core::mem::take(&mut self.just_up);
        if self.block.is_none() {
            if !is_end {
                self.counters.idle_errors += u64::from(word.data_error());
                self.block = Some(OpenBlock::begun_by(word, self.begin));
                return 1;
            }
            if just_up {
                // All of this fragment but its end word was lost with the link.
                self.losses.add(LossCause::LinkDown, 1);
                return 1;
            }
            self.block = Some(OpenBlock::without_begin());
            let closed = self.close(BlockEnd::EndWord, Some(word), fifos, store);
            if closed == 0 {
                self.block = None;
            }
            return closed;
        }
        // An error bit of this word speaks of the data before it; the word itself belongs to the
        // block it closes unless it begins the next one (S-LINK specification, error reporting).
        if !is_begin {
            return self.close(BlockEnd::EndWord, Some(word), fifos, store);
        }
        let closed = self.close(BlockEnd::BeginWord, Some(word), fifos, store);
        if closed > 0 {
            self.block = Some(OpenBlock::begun_by(word, self.begin));
        }
        closed
    }

    fn handle_data<S: PageStore + ?Sized>(
        &mut self,
        words: &[u32],
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> usize {
        self.just_up &= words.is_empty();
        let mut rest = words;
        while !rest.is_empty() {
            let block = self.block.get_or_insert_with(OpenBlock::without_begin);
            let allowed = self.fragment_words_max - block.words;
            block.too_long |= allowed == 0;
            if block.too_long {
                self.counters.words_discarded += rest.len() as u64;
                rest = &[];
                break;
            }
            if !self.make_room(fifos, store) {
                break;
            }
            let block = self.block.as_mut().expect("the block was opened above");
            let open = block.page.as_mut().expect("a page with room");
            let room = (open.capacity - open.filled).min(allowed) as usize;
            let (now, later) = rest.split_at(room.min(rest.len()));
            let at = open.filled as usize;
            store.words_mut(open.page)[at..at + now.len()].copy_from_slice(now);
            open.filled += now.len() as u32;
            block.words += now.len() as u32;
            rest = later;
        }
        words.len() - rest.len()
    }

    /// Makes sure that the open block has a page with room for a word, completing a full one.
    ///
    /// A full page is given up only together with its successor, so that an open block with data
    /// always holds a page and can be closed at any time.
    fn make_room<S: PageStore + ?Sized>(&mut self, fifos: &mut PageFifos, store: &mut S) -> bool {
        let full = match self.block.as_ref().and_then(|block| block.page) {
            Some(open) if open.filled < open.capacity => return true,
            full => full,
        };
        let completions = if full.is_some() { 2 } else { 1 };
        let Some(page) = fifos.take_request(completions) else {
            return false;
        };
        if full.is_some() {
            self.complete(BlockEnd::MoreToCome, None, fifos, store);
        }
        store.start(page);
        if let Some(next) = fifos.next_request() {
            store.prepare(next, self.last_page_words);
        }
        let capacity = (store.words_mut(page).len() as u64).min(u64::from(self.page_words)) as u32;
        let block = self.block.as_mut().expect("room is made for an open block");
        block.page = Some(OpenPage {
            page,
            filled: 0,
            capacity,
        });
        capacity > 0
    }

    /// Closes the open block by a control word or the loss of the link. Returns 0, and changes
    /// nothing, if it has no page yet and none can be had.
    fn close<S: PageStore + ?Sized>(
        &mut self,
        block_end: BlockEnd,
        word: Option<ControlWord>,
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> usize {
        let has_page = self.block.as_ref().is_some_and(|b| b.page.is_some());
        if !has_page {
            self.make_room(fifos, store);
            if self.pages_filling() == 0 {
                return 0;
            }
        }
        let end_status = self.complete(block_end, word, fifos, store);
        let block = self.block.take().expect("a block is open");
        self.counters.blocks += 1;
        let good = end_status.is_good() && block.begin_status.is_good();
        self.counters.blocks_good += u64::from(good);
        1
    }

    /// Puts the page of the open block into the acknowledge FIFO and makes the block ready for its
    /// next page. Returns the status bits that belong to the end of the block.
    fn complete<S: PageStore + ?Sized>(
        &mut self,
        block_end: BlockEnd,
        word: Option<ControlWord>,
        fifos: &mut PageFifos,
        store: &mut S,
    ) -> FragmentStatus {
        let block = self.block.as_mut().expect("a block is open");
        let open = block.page.take().expect("a block with a page");
        let mut status = FragmentStatus::GOOD;
        if block_end != BlockEnd::EndWord {
            status.insert(FragmentStatus::NO_END);
        }
        if block.too_long {
            status.insert(FragmentStatus::TOO_LONG);
        }
        if word.is_some_and(ControlWord::data_error) {
            status.insert(FragmentStatus::LINK_DATA);
        }
        let end = word.filter(|_| block_end == BlockEnd::EndWord);
        if end.is_some_and(|word| !word.matches(self.end)) {
            status.insert(FragmentStatus::WRONG_END);
        }
        if end.is_some_and(ControlWord::control_error) {
            status.insert(FragmentStatus::LINK_CONTROL);
        }
        let begin_status = if block.continued {
            FragmentStatus::NO_BEGIN
        } else {
            block.begin_status
        };
        fifos.complete(Completed {
            page: open.page,
            len_words: open.filled,
            status: status.with(begin_status),
            begin: block.begin.take(),
            end,
            block_end,
        });
        store.finish(open.page, open.filled);
        self.last_page_words = open.filled;
        block.continued = true;
        self.counters.pages += 1;
        status
    }

    /// Closes an open block because the link is lost. One without a page leaves no completion.
    fn cut<S: PageStore + ?Sized>(&mut self, fifos: &mut PageFifos, store: &mut S) {
        let Some(block) = &self.block else {
            return;
        };
        self.counters.blocks_cut += 1;
        if block.page.is_some() {
            self.close(BlockEnd::LinkDown, None, fifos, store);
        } else {
            self.block = None;
            self.counters.blocks += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::TestPattern;

    const BEGIN: ControlWord = ControlWord::BEGIN_FRAGMENT;
    const END: ControlWord = ControlWord::END_FRAGMENT;
    const OTHER: ControlWord = ControlWord(0x1234_5670);

    /// A store that insists on the order start, words, finish.
    #[derive(Default)]
    struct StrictStore {
        open: Option<u32>,
        finished: Vec<(u32, u32)>,
        words: Vec<u32>,
    }

    impl PageStore for StrictStore {
        fn start(&mut self, page: u32) {
            assert_eq!(self.open.replace(page), None, "one page at a time");
            self.words = vec![0; 8];
        }

        fn words_mut(&mut self, page: u32) -> &mut [u32] {
            assert_eq!(self.open, Some(page));
            &mut self.words
        }

        fn finish(&mut self, page: u32, len_words: u32) {
            assert_eq!(self.open.take(), Some(page));
            self.finished.push((page, len_words));
        }
    }

    struct Link {
        destination: SlinkDestination,
        fifos: PageFifos,
        store: StrictStore,
    }

    impl Link {
        /// A link with `posted` pages of 8 words, at most 20 words per fragment.
        fn new(posted: u32, acknowledge_depth: u32) -> Self {
            let config = LinkConfig {
                page_words: 8,
                fragment_words_max: 20,
                ..LinkConfig::default()
            };
            let mut fifos = PageFifos::new(15, acknowledge_depth);
            for page in 0..posted {
                fifos.post(page).unwrap();
            }
            Self {
                destination: SlinkDestination::new(&config),
                fifos,
                store: StrictStore::default(),
            }
        }

        fn line(&mut self, line: LineSlice<'_>) -> usize {
            self.destination
                .handle_line(line, &mut self.fifos, &mut self.store)
        }

        fn control(&mut self, word: ControlWord) -> usize {
            self.line(LineSlice::Control(word))
        }

        fn data(&mut self, count: usize) -> usize {
            self.line(LineSlice::Data(&vec![7; count]))
        }

        fn link(&mut self, link: LinkState) {
            self.destination
                .handle_link(link, &mut self.fifos, &mut self.store);
        }

        fn poll(&mut self) -> Completed {
            self.fifos.poll_completed().expect("a completion")
        }
    }

    #[test]
    fn each_row_of_the_table_is_what_is_said() {
        use FragmentStatus as S;
        let (data_error, control_error) =
            (END.with_errors(true, false), END.with_errors(false, true));
        for (first, last, status, block_end) in [
            (Some(BEGIN), END, S::GOOD, BlockEnd::EndWord),
            (None, END, S::NO_BEGIN, BlockEnd::EndWord),
            (Some(OTHER), END, S::WRONG_BEGIN, BlockEnd::EndWord),
            (Some(BEGIN), OTHER, S::WRONG_END, BlockEnd::EndWord),
            (Some(BEGIN), BEGIN, S::NO_END, BlockEnd::BeginWord),
            (Some(BEGIN), data_error, S::LINK_DATA, BlockEnd::EndWord),
            (
                Some(BEGIN),
                control_error,
                S::LINK_CONTROL,
                BlockEnd::EndWord,
            ),
        ] {
            let mut link = Link::new(4, 4);
            first.map(|word| link.control(word));
            assert_eq!(link.data(3), 3);
            assert_eq!(link.control(last), 1);
            let completed = link.poll();
            assert_eq!((completed.status, completed.block_end), (status, block_end));
            assert_eq!(completed.begin, first);
            assert_eq!(completed.len_words, 3);
            assert_eq!(link.store.finished, [(0, 3)]);
        }
    }

    #[test]
    fn error_bits_of_a_begin_word_belong_to_the_block_before_and_to_itself() {
        let mut link = Link::new(4, 4);
        link.control(BEGIN);
        link.data(2);
        link.control(BEGIN.with_errors(true, true));
        link.data(2);
        link.control(END);
        let before = FragmentStatus::NO_END.with(FragmentStatus::LINK_DATA);
        assert_eq!(link.poll().status, before);
        assert_eq!(link.poll().status, FragmentStatus::LINK_CONTROL);
        link.control(BEGIN.with_errors(true, false));
        assert_eq!(link.destination.counters().idle_errors, 1);
        link.data(1);
        link.control(END);
        assert!(link.poll().status.is_good());
    }

    #[test]
    fn link_loss_closes_an_open_block_whatever_its_state() {
        for words in [0, 3, 8, 9, 20, 30] {
            let mut link = Link::new(10, 4);
            link.control(BEGIN);
            link.data(words);
            link.link(LinkState::Down);
            link.link(LinkState::Down);
            assert_eq!(link.destination.pages_filling(), 0);
            assert_eq!(link.destination.counters().blocks_cut, 1);
            let pages = words.min(20).div_ceil(8);
            assert_eq!(link.store.finished.len(), pages);
            for page in 1..=pages {
                let last = page == pages;
                let end = link.poll().block_end;
                assert_eq!(end == BlockEnd::LinkDown, last, "{page} of {pages}");
            }
            link.link(LinkState::Up);
            link.control(BEGIN);
            link.control(END);
            assert!(link.poll().status.is_good());
            assert_eq!(link.destination.losses().total(), 0);
        }
    }

    #[test]
    fn end_words_of_fragments_lost_with_the_link_are_counted() {
        let mut link = Link::new(4, 4);
        link.link(LinkState::Down);
        link.control(BEGIN);
        link.data(5);
        link.control(END);
        link.control(BEGIN);
        link.link(LinkState::Up);
        link.control(END);
        assert_eq!(link.destination.losses().of(LossCause::LinkDown), 2);
        assert_eq!(link.destination.counters().words_while_down, 8);
        assert_eq!(link.fifos.acknowledge_filled(), 0);
        link.control(END);
        assert_eq!(link.poll().status, FragmentStatus::NO_BEGIN);
    }

    #[test]
    fn line_stops_without_a_page_or_an_acknowledge_slot_and_goes_on() {
        let mut link = Link::new(1, 4);
        assert_eq!(link.control(BEGIN), 1);
        assert_eq!(link.data(12), 8);
        assert_eq!(link.data(4), 0);
        link.fifos.post(1).unwrap();
        assert_eq!(link.data(4), 4);
        assert_eq!(link.control(END), 1);
        assert_eq!(link.poll().block_end, BlockEnd::MoreToCome);
        assert_eq!(link.poll().len_words, 4);
        assert_eq!(link.control(END), 0, "no page for an empty block");
        assert_eq!(link.destination.counters().stalls, 3);
        let mut link = Link::new(5, 2);
        link.control(BEGIN);
        assert_eq!(link.data(20), 16, "two slots: one completed, one reserved");
        assert_eq!(link.fifos.acknowledge_filled(), 1);
        link.poll();
        assert_eq!(link.data(4), 4);
        link.link(LinkState::Down);
        assert_eq!(link.fifos.acknowledge_filled(), 2);
    }

    #[test]
    fn self_test_checks_and_delivers_only_if_asked() {
        for (test, delivered) in [(SelfTest::Check, 0), (SelfTest::CheckAndDeliver, 6)] {
            let mut link = Link::new(15, 15);
            link.control(BEGIN);
            link.data(1);
            let (fifos, store) = (&mut link.fifos, &mut link.store);
            link.destination.handle_test(test, fifos, store);
            assert_eq!(link.destination.link(), LinkState::Down);
            assert_eq!(link.poll().block_end, BlockEnd::LinkDown);
            let mut pattern = TestPattern::default();
            for _ in 0..5 {
                let slice = pattern.poll_line(100).unwrap();
                assert_eq!(link.line(slice), slice.words());
                pattern.handle_sent(slice.words());
            }
            let checker = link.destination.checker();
            assert_eq!((checker.errors, checker.cycles_good), (0, 2));
            // Two blocks of 32 words, cut to 20: three pages each.
            assert_eq!(link.fifos.acknowledge_filled(), delivered);
            let (fifos, store) = (&mut link.fifos, &mut link.store);
            link.destination.handle_test(SelfTest::Off, fifos, store);
            while link.fifos.poll_completed().is_some() {}
            assert_eq!(link.destination.link(), LinkState::Up);
            link.control(BEGIN);
            link.control(END);
            assert!(link.poll().status.is_good());
        }
    }

    #[test]
    fn word_by_word_path_obeys_link_loss_and_self_test_too() {
        let mut link = Link::new(15, 15);
        let (fifos, store) = (&mut link.fifos, &mut link.store);
        let destination = &mut link.destination;
        destination.handle_link(LinkState::Down, fifos, store);
        assert_eq!(destination.handle_word(LineWord::Data(1), fifos, store), 1);
        assert_eq!(destination.counters().words_while_down, 1);
        destination.handle_link(LinkState::Up, fifos, store);
        destination.handle_test(SelfTest::Check, fifos, store);
        let control = LineWord::Control(ControlWord(0));
        assert_eq!(destination.handle_word(control, fifos, store), 1);
        assert_eq!(destination.handle_word(LineWord::Data(1), fifos, store), 1);
        assert_eq!(destination.checker().words_checked, 2);
        assert_eq!(fifos.acknowledge_filled(), 0);
    }
}
