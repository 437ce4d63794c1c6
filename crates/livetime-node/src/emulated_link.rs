//! One emulated link: S-LINK source card, line, and receiver card, joined word slice by word slice.
//!
//! It stands for the hardware of a link: what it is given as fragments comes out as filled pages.
//! The line is free of loss and delay unless it is taken down. Who gives it fragments is in
//! `role/front_end.rs`; other links implement the same `PageLink` contract.

use livetime_readout::{
    Begun, Completed, FlowControl, LinkConfig, LinkState, PageLink, Receiver, SlinkSource,
    SourceLinkConfig,
};
use livetime_shm::PagePool;
use livetime_wire::RunNs;

use crate::pooled_page::{LinkPages, LinkStore};

/// Both ends of a link and the fragment that is on it. Its pages are those of a shared pool, or of
/// its own where what is in them is passed on as messages ([`crate::packet_link`]).
pub struct EmulatedLink<P = LinkPages> {
    source: SlinkSource,
    receiver: Receiver,
    pages: P,
    fragment: Vec<u32>,
}

/// How far a fragment came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkProgress {
    /// Nothing is on the link.
    Idle,
    /// Words moved.
    Moved,
    /// The receiver has no page, or XOFF stands.
    Stalled,
}

impl EmulatedLink {
    /// A link that is up; it fills the pages of `pool` from `first_page` on.
    pub fn new(config: LinkConfig, pool: PagePool, first_page: u32) -> Self {
        Self::on_pages(config, LinkPages::new(pool), first_page)
    }

    /// Takes all pages back from a host that is gone; `false` as long as one of them is read.
    pub fn free_pages(&mut self) -> bool {
        let first = self.receiver.first_page();
        let pages = first..first + self.receiver.config().pages;
        self.pages.free_range(pages)
    }

    /// Goes on as a link that is up and has carried nothing, to another host: its counters begin
    /// again, and all of its pages are to be free ([`EmulatedLink::free_pages`]).
    pub fn begin_again(&mut self) {
        let config = self.receiver.config().clone();
        self.source = source_of(&config);
        self.receiver = Receiver::new(config, self.receiver.first_page());
    }
}

impl<P: LinkStore> EmulatedLink<P> {
    /// A link that is up; it fills `pages` from `first_page` on.
    pub(crate) fn on_pages(config: LinkConfig, pages: P, first_page: u32) -> Self {
        let words_max = config.fragment_words_max as usize;
        Self {
            source: source_of(&config),
            receiver: Receiver::new(config, first_page),
            pages,
            fragment: Vec::with_capacity(words_max),
        }
    }

    /// Puts a fragment on the link, written by `write` over the contents of the vector given to
    /// it. A link that is down loses and counts it.
    ///
    /// # Panics
    /// If the fragment before is still on the link.
    #[inline]
    pub fn send(&mut self, write: impl FnOnce(&mut Vec<u32>)) {
        write(&mut self.fragment);
        let begun = self.source.begin(self.fragment.len());
        assert!(begun != Begun::Busy, "the caller asks is_idle first");
    }

    /// Whether the link can take a fragment.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.source.is_idle()
    }

    /// Whether nothing is on the link and nothing waits at its end: polling it changes nothing.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.source.is_idle() && self.receiver.is_settled()
    }

    /// Moves words until the fragment is through or the receiver takes no more.
    pub fn pump(&mut self, now: RunNs) -> LinkProgress {
        if self.source.is_idle() {
            return LinkProgress::Idle;
        }
        let mut progress = LinkProgress::Stalled;
        // The usual case, at a third of the cost: nothing holds the fragment up.
        if let Some(block) = self.source.poll_block(&self.fragment) {
            let taken = self.receiver.handle_block(now, block, &mut self.pages);
            if taken == block.words() {
                self.source.handle_block_sent();
                return LinkProgress::Moved;
            }
            self.source.handle_sent(taken);
            if taken > 0 {
                progress = LinkProgress::Moved;
            }
        }
        while let Some(slice) = self.source.poll_line(&self.fragment, usize::MAX) {
            let taken = self.receiver.handle_line(now, slice, &mut self.pages);
            self.source.handle_sent(taken);
            if taken == 0 {
                break;
            }
            progress = LinkProgress::Moved;
        }
        progress
    }

    /// Passes XON or XOFF back to the source; returns what stands.
    #[inline]
    pub fn poll_flow(&mut self, now: RunNs) -> FlowControl {
        let flow = self.receiver.poll_flow(now);
        self.source.handle_flow(now, flow);
        flow
    }

    /// The oldest filled page.
    #[inline]
    pub fn poll_completed(&mut self) -> Option<Completed> {
        self.receiver.poll()
    }

    /// Takes a page back; `false` when it was not one that the host may return.
    #[inline]
    pub fn recycle(&mut self, page: u32) -> bool {
        self.receiver.owns(page)
            && self.pages.take_back(page)
            && self.receiver.recycle(page).is_ok()
    }

    /// Takes the link down or up, at both ends at the same place in the stream of words.
    #[inline]
    pub fn set_state(&mut self, now: RunNs, state: LinkState) {
        self.source.handle_link(now, state);
        self.receiver.handle_link(now, state, &mut self.pages);
    }

    /// What the link fills.
    #[inline]
    pub(crate) fn pages(&self) -> &P {
        &self.pages
    }

    /// The sending end.
    #[inline]
    pub fn source(&self) -> &SlinkSource {
        &self.source
    }

    /// The receiving end.
    #[inline]
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Gives up the fragment that is on the link, counted as aborted.
    #[inline]
    pub fn abort(&mut self) {
        self.source.abort();
    }
}

/// The sending end of a link that is up.
fn source_of(config: &LinkConfig) -> SlinkSource {
    SlinkSource::new(SourceLinkConfig {
        begin: config.begin,
        end: config.end,
        ..SourceLinkConfig::default()
    })
}
