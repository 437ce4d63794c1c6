//! One receiving link end: destination, FIFOs, the link's pages, and XOFF.
//!
//! [`Receiver`] keeps the request FIFO filled from its free pages and asks for XOFF when these run
//! low; it does not look into fragments ([`crate::fragment_assembler`]) and does not touch page
//! memory but through the store given on each call. Each page of the link is at every moment in
//! exactly one place: free, posted, being filled, completed, or handed out.

use livetime_wire::{DurationNs, LossCounts, RunNs};

use crate::line::{FlowControl, LineBlock, LineSlice, LinkState, LinkStatus};
use crate::link_config::LinkConfig;
use crate::link_destination::{DestinationCounters, SlinkDestination};
use crate::page_fifo::{Completed, PageFifos};
use crate::page_link::{PageError, PageLink};
use crate::page_store::PageStore;
use crate::self_test::{SelfTest, TestChecker};

/// Who has a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageOwner {
    /// In the free list.
    Free,
    /// Posted, being filled, or completed.
    Link,
    /// With the caller.
    Caller,
}

/// Where the pages of a link are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageAccount {
    /// In the free list.
    pub free: u32,
    /// In the request FIFO.
    pub posted: u32,
    /// Being filled (0 or 1).
    pub filling: u32,
    /// In the acknowledge FIFO.
    pub completed: u32,
    /// Polled and not yet given back.
    pub handed_out: u32,
    /// Pages of the link.
    pub pages: u32,
}

impl PageAccount {
    /// Whether every page is somewhere and none is in two places.
    #[inline]
    pub fn is_balanced(&self) -> bool {
        self.free + self.posted + self.filling + self.completed + self.handed_out == self.pages
    }
}

/// Counters of the page bookkeeping and of XOFF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverCounters {
    /// Pages polled.
    pub pages_polled: u64,
    /// Pages given back.
    pub pages_recycled: u64,
    /// Pages refused because they were not handed out (a bug of the caller).
    pub recycles_refused: u64,
    /// Times that XOFF was raised.
    pub xoffs: u64,
    /// Time in XOFF.
    pub xoff_time: DurationNs,
    /// Fewest pages free or posted so far.
    pub pages_available_min: u32,
    /// Times that the link went down.
    pub link_downs: u64,
    /// Resets asked.
    pub resets: u64,
}

/// The receiving end of one link, with its pages.
///
/// ```
/// use livetime_readout::{HeapPages, LineSlice, LinkConfig, PageLink, PageRead, Receiver};
/// use livetime_wire::RunNs;
/// use livetime_wire::slink::ControlWord;
///
/// let config = LinkConfig::default();
/// let mut pages = HeapPages::new(0, config.pages, config.page_words);
/// let mut receiver = Receiver::new(config, 0);
/// for slice in [
///     LineSlice::Control(ControlWord::BEGIN_FRAGMENT),
///     LineSlice::Data(&[1, 2, 3]),
///     LineSlice::Control(ControlWord::END_FRAGMENT),
/// ] {
///     assert_eq!(receiver.handle_line(RunNs(0), slice, &mut pages), slice.words());
/// }
/// let completed = receiver.poll().expect("one fragment");
/// assert!(completed.status.is_good());
/// assert_eq!(pages.words(completed.page)[..completed.len_words as usize], [1, 2, 3]);
/// receiver.recycle(completed.page)?;
/// assert!(receiver.page_account().is_balanced());
/// # Ok::<(), livetime_readout::PageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Receiver {
    config: LinkConfig,
    destination: SlinkDestination,
    fifos: PageFifos,
    first_page: u32,
    owners: Vec<PageOwner>,
    /// Last in, first out: a page just given back is still in the cache.
    free: Vec<u32>,
    flow: FlowControl,
    xoff_since: RunNs,
    resetting: bool,
    counters: ReceiverCounters,
}

impl Receiver {
    /// A receiver on a link that is up, with the `config.pages` pages from `first_page` on.
    pub fn new(config: LinkConfig, first_page: u32) -> Self {
        let mut receiver = Self {
            destination: SlinkDestination::new(&config),
            fifos: PageFifos::new(config.request_depth, config.acknowledge_depth),
            first_page,
            owners: vec![PageOwner::Free; config.pages as usize],
            free: free_pages(first_page, config.pages),
            flow: FlowControl::Xon,
            xoff_since: RunNs(0),
            resetting: false,
            counters: ReceiverCounters {
                pages_available_min: config.pages,
                ..ReceiverCounters::default()
            },
            config,
        };
        receiver.refill();
        receiver
    }

    /// Takes words of the line; returns how many. Fewer than offered means that no page or no
    /// acknowledge slot is free: the line stops, the caller polls and recycles, and the rest is
    /// offered again.
    #[inline]
    pub fn handle_line<S: PageStore + ?Sized>(
        &mut self,
        now: RunNs,
        line: LineSlice<'_>,
        store: &mut S,
    ) -> usize {
        let taken = self.destination.handle_line(line, &mut self.fifos, store);
        self.refill();
        self.poll_flow(now);
        taken
    }

    /// Takes a block at once, with the same result as its slices would have; returns how many words
    /// of it, control words included. What is left, often all, is then offered as slices: a block
    /// that is damaged or longer than a page, or that meets a link that is not ready for it.
    #[inline]
    pub fn handle_block<S: PageStore + ?Sized>(
        &mut self,
        now: RunNs,
        block: LineBlock<'_>,
        store: &mut S,
    ) -> usize {
        if self.flow == FlowControl::Xoff {
            self.poll_flow(now);
        }
        let taken = self.destination.handle_block(block, &mut self.fifos, store);
        if taken > 0 {
            self.refill();
            self.poll_flow(now);
        }
        taken
    }

    /// The link's state (LDOWN#), told at the place in the stream of words where it changed. Going
    /// down cuts an open block; coming up ends a reset.
    #[inline]
    pub fn handle_link<S: PageStore + ?Sized>(
        &mut self,
        now: RunNs,
        link: LinkState,
        store: &mut S,
    ) {
        if link == LinkState::Up {
            self.resetting = false;
        } else if self.destination.link() == LinkState::Up {
            self.counters.link_downs += 1;
        }
        self.destination.handle_link(link, &mut self.fifos, store);
        self.poll_flow(now);
    }

    /// Starts or ends the self-test; an open block is cut.
    #[inline]
    pub fn handle_test<S: PageStore + ?Sized>(&mut self, test: SelfTest, store: &mut S) {
        self.destination.handle_test(test, &mut self.fifos, store);
    }

    /// What the sending end is to do now: XOFF below, XON above the configured numbers of pages
    /// free or posted; XOFF also while the acknowledge FIFO is full, until it is half empty. Call
    /// it after recycling and tell the source each time; the state is level-like.
    pub fn poll_flow(&mut self, now: RunNs) -> FlowControl {
        let available = self.pages_available();
        let least = &mut self.counters.pages_available_min;
        *least = available.min(*least);
        let waiting = self.fifos.acknowledge_filled();
        let depth = self.config.acknowledge_depth;
        match self.flow {
            FlowControl::Xon if available < self.config.xoff_below || waiting >= depth => {
                self.flow = FlowControl::Xoff;
                self.xoff_since = now;
                self.counters.xoffs += 1;
            }
            FlowControl::Xoff if available > self.config.xon_above && waiting <= depth / 2 => {
                self.flow = FlowControl::Xon;
                self.counters.xoff_time.0 += now.since(self.xoff_since).0;
            }
            FlowControl::Xon | FlowControl::Xoff => {}
        }
        self.flow
    }

    /// Whether nothing waits to be polled and no XOFF stands: as long as nothing comes, polling
    /// changes nothing.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.flow == FlowControl::Xon && self.fifos.acknowledge_filled() == 0
    }

    /// Gives a polled page back to the link's free pages.
    ///
    /// # Errors
    /// [`PageError::Foreign`] or [`PageError::NotHandedOut`]; nothing changes and it is counted.
    #[inline]
    pub fn recycle(&mut self, page: u32) -> Result<(), PageError> {
        self.take_back(page, PageOwner::Free)?;
        self.free.push(page);
        self.refill();
        Ok(())
    }

    /// Pages that can still be filled: free or posted.
    #[inline]
    pub fn pages_available(&self) -> u32 {
        self.free.len() as u32 + self.fifos.request_filled()
    }

    /// Whether `page` is one of this link's.
    #[inline]
    pub fn owns(&self, page: u32) -> bool {
        page.wrapping_sub(self.first_page) < self.config.pages
    }

    /// The first of this link's pages.
    #[inline]
    pub fn first_page(&self) -> u32 {
        self.first_page
    }

    /// Where every page is; looks at each page.
    pub fn page_account(&self) -> PageAccount {
        let handed_out = |owner: &&PageOwner| **owner == PageOwner::Caller;
        PageAccount {
            free: self.free.len() as u32,
            posted: self.fifos.request_filled(),
            filling: self.destination.pages_filling(),
            completed: self.fifos.acknowledge_filled(),
            handed_out: self.owners.iter().filter(handed_out).count() as u32,
            pages: self.config.pages,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The counters of pages and XOFF, the time in XOFF up to `now` included.
    pub fn counters(&self, now: RunNs) -> ReceiverCounters {
        let mut counters = self.counters;
        if self.flow == FlowControl::Xoff {
            counters.xoff_time.0 += now.since(self.xoff_since).0;
        }
        counters
    }

    /// The counters of the destination.
    #[inline]
    pub fn destination_counters(&self) -> &DestinationCounters {
        self.destination.counters()
    }

    /// What the self-test has found.
    #[inline]
    pub fn checker(&self) -> &TestChecker {
        self.destination.checker()
    }

    /// Fragments lost here: those whose end word came while the link was down, or alone after it.
    pub fn losses(&self) -> &LossCounts {
        self.destination.losses()
    }

    /// Keeps the request FIFO full.
    #[inline]
    fn refill(&mut self) {
        while self.fifos.request_free() > 0 {
            let Some(page) = self.free.pop() else {
                return;
            };
            self.owners[(page - self.first_page) as usize] = PageOwner::Link;
            self.fifos.post(page).expect("a free slot was seen");
        }
    }

    /// Takes a page from the caller.
    fn take_back(&mut self, page: u32, owner: PageOwner) -> Result<(), PageError> {
        let (first, index) = (self.first_page, page.wrapping_sub(self.first_page));
        let refused = match self.owners.get_mut(index as usize) {
            Some(was) if *was == PageOwner::Caller => {
                *was = owner;
                self.counters.pages_recycled += 1;
                return Ok(());
            }
            Some(_) => PageError::NotHandedOut { page },
            None => PageError::Foreign {
                page,
                first,
                last: first + self.config.pages.saturating_sub(1),
            },
        };
        self.counters.recycles_refused += 1;
        Err(refused)
    }
}

/// The pages of a link in an order in which none follows its neighbour: the reader's processor
/// fetches ahead what lies behind a page just read, and would take the next page away from the
/// writer (measured: 60 ns per page and cache line).
#[inline]
fn free_pages(first_page: u32, pages: u32) -> Vec<u32> {
    // The golden section of the pages, or the next number that visits them all.
    let section = (u64::from(pages) * 382 / 1000).max(1);
    let step = (section..).find(|step| is_coprime(*step, pages.into()));
    let step = step.unwrap_or(1);
    (0..u64::from(pages))
        .map(|n| first_page + (n * step % u64::from(pages)) as u32)
        .collect()
}

#[inline]
fn is_coprime(mut a: u64, mut b: u64) -> bool {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

impl PageLink for Receiver {
    /// Posts a polled page at once. Free pages are posted without being asked, so there is a slot
    /// only when none is free; [`Receiver::recycle`] always finds a place.
    #[inline]
    fn post(&mut self, page: u32) -> Result<(), PageError> {
        if self.fifos.request_free() == 0 {
            return Err(PageError::RequestFull { page });
        }
        self.take_back(page, PageOwner::Link)?;
        self.fifos.post(page).expect("a free slot was seen");
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Option<Completed> {
        let completed = self.fifos.poll_completed()?;
        self.owners[(completed.page - self.first_page) as usize] = PageOwner::Caller;
        self.counters.pages_polled += 1;
        Some(completed)
    }

    #[inline]
    fn link_status(&self) -> LinkStatus {
        LinkStatus {
            link: self.destination.link(),
            flow: self.flow,
            resetting: self.resetting,
            request_free: self.fifos.request_free(),
            acknowledge_filled: self.fifos.acknowledge_filled(),
        }
    }

    /// Completed pages stay in the acknowledge FIFO; the open block is closed as cut by the next
    /// [`Receiver::handle_link`], and words that come before the link is up again are discarded.
    #[inline]
    fn reset(&mut self, _now: RunNs) {
        self.counters.resets += 1;
        self.resetting = true;
        self.destination.hold();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use livetime_wire::slink::ControlWord;

    use super::*;
    use crate::page_fifo::BlockEnd;
    use crate::page_store::{HeapPages, PageRead};

    const BEGIN: LineSlice<'static> = LineSlice::Control(ControlWord::BEGIN_FRAGMENT);
    const END: LineSlice<'static> = LineSlice::Control(ControlWord::END_FRAGMENT);
    const FIRST: u32 = 100;

    fn link() -> (Receiver, HeapPages) {
        let config = LinkConfig {
            page_words: 4,
            pages: 8,
            request_depth: 3,
            acknowledge_depth: 4,
            xoff_below: 3,
            xon_above: 5,
            fragment_words_max: 10,
            ..LinkConfig::default()
        };
        let pages = HeapPages::new(FIRST, config.pages, config.page_words);
        (Receiver::new(config, FIRST), pages)
    }

    fn send(receiver: &mut Receiver, pages: &mut HeapPages, words: &[u32]) -> bool {
        [BEGIN, LineSlice::Data(words), END]
            .into_iter()
            .filter(|line| line.words() > 0)
            .all(|line| receiver.handle_line(RunNs(0), line, pages) == line.words())
    }

    #[test]
    fn free_pages_are_all_there_and_none_follows_its_neighbour() {
        for pages in [8, 15, 16, 100, 256, 1024, 1031] {
            let order = free_pages(7, pages);
            let all: BTreeSet<u32> = order.iter().copied().collect();
            assert!(all.into_iter().eq(7..7 + pages));
            assert!(order.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1));
        }
        assert_eq!(free_pages(3, 1), [3]);
        assert_eq!(free_pages(3, 0), []);
    }

    #[test]
    fn pages_are_in_one_place_each_and_go_round() {
        let (mut receiver, mut pages) = link();
        assert_eq!(receiver.page_account().posted, 3);
        for round in 0..20 {
            assert!(send(&mut receiver, &mut pages, &[round, 1]));
            assert!(receiver.page_account().is_balanced());
            let completed = receiver.poll().unwrap();
            assert_eq!(pages.words(completed.page)[..2], [round, 1]);
            let account = receiver.page_account();
            assert!(account.is_balanced() && account.handed_out == 1);
            receiver.recycle(completed.page).unwrap();
        }
        assert_eq!(receiver.counters(RunNs(0)).pages_recycled, 20);
    }

    #[test]
    fn pages_of_others_and_pages_given_back_twice_are_refused() {
        let (mut receiver, mut pages) = link();
        assert!(send(&mut receiver, &mut pages, &[1]));
        let page = receiver.poll().unwrap().page;
        assert_eq!(
            receiver.recycle(99),
            Err(PageError::Foreign {
                page: 99,
                first: 100,
                last: 107
            })
        );
        receiver.recycle(page).unwrap();
        let twice = Err(PageError::NotHandedOut { page });
        assert_eq!(receiver.recycle(page), twice);
        assert_eq!(
            receiver.recycle(107),
            Err(PageError::NotHandedOut { page: 107 })
        );
        assert_eq!(receiver.counters(RunNs(0)).recycles_refused, 3);
        assert!(receiver.page_account().is_balanced());
        assert!(receiver.owns(107) && !receiver.owns(108) && !receiver.owns(99));
    }

    #[test]
    fn post_takes_a_page_only_into_a_free_slot() {
        let (mut receiver, mut pages) = link();
        let mut polled = Vec::new();
        for _ in 0..8 {
            assert!(send(&mut receiver, &mut pages, &[1]));
            polled.push(receiver.poll().unwrap().page);
        }
        assert_eq!(receiver.page_account().posted, 0);
        for page in &polled[..3] {
            receiver.post(*page).unwrap();
        }
        let page = polled[3];
        assert_eq!(receiver.post(page), Err(PageError::RequestFull { page }));
        receiver.recycle(page).unwrap();
        assert!(receiver.page_account().is_balanced());
        assert_eq!(receiver.page_account().handed_out, 4);
    }

    #[test]
    fn xoff_has_hysteresis_and_its_time_is_counted() {
        let (mut receiver, mut pages) = link();
        let mut polled = Vec::new();
        while receiver.poll_flow(RunNs(10)) == FlowControl::Xon {
            assert!(send(&mut receiver, &mut pages, &[1]));
            polled.push(receiver.poll().unwrap().page);
        }
        assert_eq!((polled.len(), receiver.pages_available()), (6, 2));
        let mut flows = Vec::new();
        for page in polled {
            receiver.recycle(page).unwrap();
            flows.push(receiver.poll_flow(RunNs(50)));
        }
        assert_eq!(flows.iter().filter(|f| **f == FlowControl::Xoff).count(), 3);
        assert_eq!(flows[3], FlowControl::Xon, "six pages are above five");
        let counters = receiver.counters(RunNs(90));
        assert_eq!((counters.xoffs, counters.xoff_time), (1, DurationNs(50)));
        assert_eq!(counters.pages_available_min, 2);
    }

    #[test]
    fn host_that_does_not_poll_is_seen_as_xoff() {
        let (mut receiver, mut pages) = link();
        for _ in 0..4 {
            assert_eq!(receiver.poll_flow(RunNs(0)), FlowControl::Xon);
            assert!(send(&mut receiver, &mut pages, &[1]));
        }
        assert_eq!(receiver.poll_flow(RunNs(0)), FlowControl::Xoff);
        assert!(!send(&mut receiver, &mut pages, &[1]), "the line stops");
        assert_eq!(receiver.destination_counters().stalls, 1);
        for _ in 0..2 {
            assert_eq!(receiver.poll_flow(RunNs(0)), FlowControl::Xoff);
            let page = receiver.poll().unwrap().page;
            receiver.recycle(page).unwrap();
        }
        assert_eq!(receiver.poll_flow(RunNs(0)), FlowControl::Xon);
    }

    #[test]
    fn reset_cuts_the_open_block_and_ends_when_the_link_is_up() {
        let (mut receiver, mut pages) = link();
        assert!(send(&mut receiver, &mut pages, &[1]));
        receiver.handle_line(RunNs(0), BEGIN, &mut pages);
        receiver.handle_line(RunNs(0), LineSlice::Data(&[5, 6]), &mut pages);
        receiver.reset(RunNs(1));
        let status = receiver.link_status();
        assert_eq!((status.link, status.resetting), (LinkState::Down, true));
        assert_eq!(
            receiver.handle_line(RunNs(2), LineSlice::Data(&[7]), &mut pages),
            1
        );
        receiver.handle_link(RunNs(3), LinkState::Down, &mut pages);
        assert!(receiver.link_status().resetting);
        receiver.handle_link(RunNs(4), LinkState::Up, &mut pages);
        assert_eq!(receiver.link_status().link, LinkState::Up);
        assert!(!receiver.link_status().resetting);
        assert!(receiver.poll().unwrap().status.is_good());
        let cut = receiver.poll().unwrap();
        assert_eq!((cut.block_end, cut.len_words), (BlockEnd::LinkDown, 2));
        assert!(send(&mut receiver, &mut pages, &[8]));
        assert!(receiver.poll().unwrap().status.is_good());
        assert_eq!(receiver.counters(RunNs(9)).resets, 1);
        assert_eq!(receiver.counters(RunNs(9)).link_downs, 0);
        assert_eq!(receiver.destination_counters().words_while_down, 1);
        assert!(receiver.page_account().is_balanced());
    }

    #[test]
    fn reset_and_link_up_in_one_step_still_cut_the_open_block() {
        let (mut receiver, mut pages) = link();
        receiver.handle_line(RunNs(0), BEGIN, &mut pages);
        receiver.handle_line(RunNs(0), LineSlice::Data(&[5, 6]), &mut pages);
        receiver.reset(RunNs(1));
        receiver.handle_link(RunNs(1), LinkState::Up, &mut pages);
        assert_eq!(receiver.poll().unwrap().block_end, BlockEnd::LinkDown);
        assert!(send(&mut receiver, &mut pages, &[8]));
        assert!(receiver.poll().unwrap().status.is_good());
    }
}
