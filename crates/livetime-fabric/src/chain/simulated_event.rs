//! A built event read in place, in the pages of the readout units.

use livetime_readout::{HeapPages, PageRead};
use livetime_wire::event::{EventAccess, FragmentEntry, FragmentParts};
use livetime_wire::message::EventTicket;
use livetime_wire::{L2Mask, TriggerNumber};

/// The event of a ticket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimulatedEvent<'a> {
    pub(crate) ticket: &'a EventTicket,
    pub(crate) pools: &'a [HeapPages],
}

impl EventAccess for SimulatedEvent<'_> {
    fn trigger(&self) -> TriggerNumber {
        self.ticket.trigger
    }

    fn mask(&self) -> L2Mask {
        self.ticket.mask
    }

    fn is_incomplete(&self) -> bool {
        !self.ticket.missing.is_empty()
    }

    fn fragment_count(&self) -> usize {
        self.ticket.fragments.len()
    }

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
        let pool = &self.pools[usize::from(fragment.pool)];
        let mut left = fragment.words as usize;
        let mut parts = FragmentParts::default();
        for page in &fragment.pages {
            let words = pool.words(*page);
            let part = &words[..left.min(words.len())];
            left -= part.len();
            parts.parts.push(part);
        }
        parts
    }
}
