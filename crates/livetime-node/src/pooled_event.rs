//! A built event read in place, in the pages of the readout units' pools.
//!
//! Made from an event ticket by taking a reader on each page; nothing is copied. The same access
//! trait is implemented by events in files, so that a filter does not know where it runs.

use livetime_shm::{PageError, PageIndex, PagePool, PageReader};
use livetime_wire::event::{EventAccess, FragmentEntry, FragmentParts};
use livetime_wire::message::EventTicket;
use livetime_wire::{L2Mask, TriggerNumber};

/// The event of a ticket, with its pages held.
pub struct PooledEvent {
    ticket: EventTicket,
    /// Pages of all fragments in order; `first_page[i]` is where those of fragment `i` begin.
    readers: Vec<PageReader>,
    first_page: Vec<usize>,
}

/// A ticket whose pages cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// The pool does not exist.
    #[error("fragment {fragment} lies in pool {pool}, which does not exist")]
    Pool {
        /// Which fragment of the ticket.
        fragment: usize,
        /// The pool that it names.
        pool: u16,
    },
    /// A page is not readable.
    #[error("page of fragment {fragment} cannot be read: {error}")]
    Page {
        /// Which fragment of the ticket.
        fragment: usize,
        /// Why.
        error: PageError,
    },
    /// The pages hold fewer words than the fragment has.
    #[error("fragment {fragment} names {words} words in pages of {room} words")]
    Length {
        /// Which fragment of the ticket.
        fragment: usize,
        /// Words named.
        words: u32,
        /// Words of its pages.
        room: usize,
    },
}

impl PooledEvent {
    /// An empty event with room for `sources` fragments of `pages` pages in all.
    pub fn with_capacity(sources: usize, pages: usize) -> Self {
        Self {
            ticket: EventTicket::with_capacity(sources),
            readers: Vec::with_capacity(pages),
            first_page: Vec::with_capacity(sources),
        }
    }

    /// The ticket, to be read into before [`PooledEvent::hold`].
    #[inline]
    pub fn ticket_mut(&mut self) -> &mut EventTicket {
        &mut self.ticket
    }

    /// The ticket.
    #[inline]
    pub fn ticket(&self) -> &EventTicket {
        &self.ticket
    }

    /// Takes readers on all pages of the ticket.
    ///
    /// # Errors
    /// A [`TicketError`]; no page is held then.
    pub fn hold(&mut self, pools: &[PagePool]) -> Result<(), TicketError> {
        self.release();
        let Self {
            ticket,
            readers,
            first_page,
        } = self;
        let held = hold_pages(ticket, readers, first_page, pools);
        if held.is_err() {
            self.release();
        }
        held
    }

    /// Lets all pages go.
    #[inline]
    pub fn release(&mut self) {
        self.readers.clear();
        self.first_page.clear();
    }

    /// Pool and first page of a fragment whose pages lie one behind the other, so that its words
    /// do as well.
    ///
    /// # Panics
    /// If there is no such fragment.
    #[inline]
    pub fn place(&self, index: usize) -> Option<(usize, u32)> {
        let fragment = &self.ticket.fragments[index];
        let first = *fragment.pages.first()?;
        let mut pages = (first..).zip(&fragment.pages);
        let follows = pages.all(|(expected, page)| expected == *page);
        follows.then(|| (usize::from(fragment.pool), first))
    }

    /// Payload bytes of all fragments.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.ticket
            .fragments
            .iter()
            .map(|fragment| u64::from(fragment.words) * 4)
            .sum()
    }
}

fn hold_pages(
    ticket: &EventTicket,
    readers: &mut Vec<PageReader>,
    first_page: &mut Vec<usize>,
    pools: &[PagePool],
) -> Result<(), TicketError> {
    for (fragment, descriptor) in ticket.fragments.iter().enumerate() {
        let pool = descriptor.pool;
        let found = pools
            .get(usize::from(pool))
            .ok_or(TicketError::Pool { fragment, pool })?;
        first_page.push(readers.len());
        for page in &descriptor.pages {
            let reader = found.read(PageIndex(*page));
            readers.push(reader.map_err(|error| TicketError::Page { fragment, error })?);
        }
        let room = descriptor.pages.len() * found.page_words();
        if descriptor.words as usize > room {
            return Err(TicketError::Length {
                fragment,
                words: descriptor.words,
                room,
            });
        }
    }
    Ok(())
}

impl EventAccess for PooledEvent {
    #[inline]
    fn trigger(&self) -> TriggerNumber {
        self.ticket.trigger
    }

    #[inline]
    fn mask(&self) -> L2Mask {
        self.ticket.mask
    }

    #[inline]
    fn is_incomplete(&self) -> bool {
        !self.ticket.missing.is_empty()
    }

    #[inline]
    fn fragment_count(&self) -> usize {
        self.ticket.fragments.len()
    }

    #[inline]
    fn entry(&self, index: usize) -> FragmentEntry {
        let fragment = &self.ticket.fragments[index];
        FragmentEntry {
            source: fragment.source,
            words: fragment.words,
            status: fragment.status,
            crc: fragment.crc,
        }
    }

    fn parts(&self, index: usize) -> FragmentParts<'_> {
        let fragment = &self.ticket.fragments[index];
        let mut words = fragment.words as usize;
        let mut parts = FragmentParts::default();
        for reader in &self.readers[self.first_page[index]..][..fragment.pages.len()] {
            let part = &reader[..words.min(reader.len())];
            words -= part.len();
            parts.parts.push(part);
        }
        parts
    }
}
