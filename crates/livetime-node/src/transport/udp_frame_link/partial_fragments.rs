//! Fragments of several pages whose pieces come one by one, in any order.
//!
//! A piece stays in the page that it came into. A fragment that is sent again completes what is here
//! of it; the oldest one is given up when the table is full, and its pages return. The builder unit
//! asks again for what was given up.

use arrayvec::ArrayVec;
use livetime_shm::PageWriter;
use livetime_wire::crc::Crc32c;
use livetime_wire::message::FRAGMENT_PAGES_MAX;
use livetime_wire::message_datagram::Piece;
use livetime_wire::{SourceId, TriggerNumber};

use super::super::receive_pages::ReceivePages;
use super::UdpFrameCounts;

/// Fragments of one sender that may be incomplete at a time. A sender sends one after the other, so
/// that more of them have lost pieces.
pub const PARTIAL_FRAGMENTS_MAX: usize = 8;

/// Which fragment, and what it is to be; one sent again is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FragmentKey {
    pub(super) trigger: TriggerNumber,
    pub(super) source: SourceId,
    pub(super) words: u32,
    pub(super) crc: Option<u32>,
    pub(super) pieces: usize,
}

/// A fragment of which some pieces are here.
struct Partial {
    key: FragmentKey,
    pieces: [Option<PageWriter>; FRAGMENT_PAGES_MAX],
    missing: usize,
}

/// The pages of a whole fragment.
pub(super) struct WholePayload {
    pub(super) pages: ArrayVec<u32, FRAGMENT_PAGES_MAX>,
    /// Whether its words do not have the CRC that its message names.
    pub(super) is_damaged: bool,
}

/// The incomplete fragments of one sender, the oldest first.
pub(super) struct PartialFragments {
    partials: ArrayVec<Partial, PARTIAL_FRAGMENTS_MAX>,
}

impl PartialFragments {
    pub(super) fn new() -> Self {
        Self {
            partials: ArrayVec::new(),
        }
    }

    /// Takes a piece in its page; the fragment, if it is whole now.
    pub(super) fn place(
        &mut self,
        key: FragmentKey,
        piece: Piece,
        page: PageWriter,
        pages: &mut ReceivePages,
        counts: &mut UdpFrameCounts,
    ) -> Option<WholePayload> {
        let mut partials = self.partials.iter();
        let at = match partials.position(|partial| partial.key == key) {
            Some(at) => at,
            None => self.begin(key, pages, counts),
        };
        let partial = &mut self.partials[at];
        let place = &mut partial.pieces[piece.index];
        if place.is_some() {
            counts.pieces_repeated += 1;
            pages.give_back_unfilled(page);
            return None;
        }
        *place = Some(page);
        partial.missing -= 1;
        if partial.missing > 0 {
            return None;
        }
        Some(self.partials.remove(at).into_whole())
    }

    /// Makes room for a fragment and returns its place.
    fn begin(
        &mut self,
        key: FragmentKey,
        pages: &mut ReceivePages,
        counts: &mut UdpFrameCounts,
    ) -> usize {
        if self.partials.is_full() {
            self.give_up_oldest(pages, counts);
        }
        self.partials.push(Partial {
            key,
            pieces: [const { None }; FRAGMENT_PAGES_MAX],
            missing: key.pieces,
        });
        self.partials.len() - 1
    }

    /// Gives the oldest one up; false when there is none.
    pub(super) fn give_up_oldest(
        &mut self,
        pages: &mut ReceivePages,
        counts: &mut UdpFrameCounts,
    ) -> bool {
        if self.partials.is_empty() {
            return false;
        }
        counts.fragments_given_up += 1;
        for page in self.partials.remove(0).pieces.into_iter().flatten() {
            pages.give_back_unfilled(page);
        }
        true
    }

    /// Pages with pieces in them.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        let pieces = self.partials.iter().map(|p| p.key.pieces - p.missing);
        pieces.sum()
    }
}

impl Partial {
    /// Its pages in order, of which all but the last are full.
    fn into_whole(self) -> WholePayload {
        let mut crc = Crc32c::new();
        let mut left = self.key.words as usize;
        let mut pages = ArrayVec::new();
        for page in self.pieces.into_iter().flatten() {
            let words = left.min(page.len());
            if self.key.crc.is_some() {
                crc.update(&page[..words]);
            }
            left -= words;
            pages.push(page.finish().0);
        }
        WholePayload {
            pages,
            is_damaged: self.key.crc.is_some_and(|named| named != crc.value()),
        }
    }
}
