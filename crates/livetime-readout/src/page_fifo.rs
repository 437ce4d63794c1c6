//! The request and the acknowledge FIFO of one link, as on the FILAR card.
//!
//! The host posts free pages into the request FIFO; the card takes them in order, fills them and
//! puts one entry per page into the acknowledge FIFO. This module only queues; filling is in
//! [`crate::link_destination`], page bookkeeping in [`crate::receiver`].

use std::collections::VecDeque;

use livetime_wire::slink::{ControlWord, FragmentStatus};

/// What closed the block, or the part of a block, that lies in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockEnd {
    /// A control word that can be an end word, right or wrong.
    EndWord,
    /// The page is full; the next completion of this link continues the block.
    MoreToCome,
    /// The begin word of the next block: this one's end word is missing.
    BeginWord,
    /// The link went down, was reset, or went into self-test.
    LinkDown,
}

/// A filled page: one entry of the acknowledge FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Completed {
    /// Which page.
    pub page: u32,
    /// Data words in it.
    pub len_words: u32,
    /// The acknowledge bits of the FILAR and the link's error bits.
    ///
    /// A page that continues a block carries `NO_BEGIN`, one whose block goes on or was cut
    /// carries `NO_END`.
    pub status: FragmentStatus,
    /// The begin word as received, error bits included; `None` when there was none in this page.
    pub begin: Option<ControlWord>,
    /// The end word as received, error bits included; `None` when there was none in this page.
    pub end: Option<ControlWord>,
    /// What closed it.
    pub block_end: BlockEnd,
}

/// The request FIFO has no free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request FIFO is full")]
pub struct RequestFull;

/// The two FIFOs of a link.
#[derive(Debug, Clone)]
pub struct PageFifos {
    request: VecDeque<u32>,
    acknowledge: VecDeque<Completed>,
    request_depth: usize,
    acknowledge_depth: usize,
}

impl PageFifos {
    /// Empty FIFOs of the given depths (15 on the FILAR, 31 on later firmware).
    pub fn new(request_depth: u32, acknowledge_depth: u32) -> Self {
        Self {
            request: VecDeque::with_capacity(request_depth as usize),
            acknowledge: VecDeque::with_capacity(acknowledge_depth as usize),
            request_depth: request_depth as usize,
            acknowledge_depth: acknowledge_depth as usize,
        }
    }

    /// Posts a free page.
    ///
    /// # Errors
    /// [`RequestFull`] when all slots are taken; the page stays with the caller.
    #[inline]
    pub fn post(&mut self, page: u32) -> Result<(), RequestFull> {
        if self.request_free() == 0 {
            return Err(RequestFull);
        }
        self.request.push_back(page);
        Ok(())
    }

    /// Takes the oldest filled page.
    #[inline]
    pub fn poll_completed(&mut self) -> Option<Completed> {
        self.acknowledge.pop_front()
    }

    /// Pages posted and not yet taken.
    #[inline]
    pub fn request_filled(&self) -> u32 {
        self.request.len() as u32
    }

    /// Free slots of the request FIFO.
    #[inline]
    pub fn request_free(&self) -> u32 {
        (self.request_depth - self.request.len()) as u32
    }

    /// Entries waiting in the acknowledge FIFO.
    #[inline]
    pub fn acknowledge_filled(&self) -> u32 {
        self.acknowledge.len() as u32
    }

    /// Takes the next page to fill, if there is one and `completions` more entries fit into the
    /// acknowledge FIFO. The slot of a page being filled is thereby always reserved, so that a
    /// block can be closed at any time.
    #[inline]
    pub(crate) fn take_request(&mut self, completions: usize) -> Option<u32> {
        if self.acknowledge.len() + completions > self.acknowledge_depth {
            return None;
        }
        self.request.pop_front()
    }

    /// The page that [`Self::take_request`] gives next.
    #[inline]
    pub(crate) fn next_request(&self) -> Option<u32> {
        self.request.front().copied()
    }

    /// Puts a filled page into the slot reserved for it.
    #[inline]
    pub(crate) fn complete(&mut self, completed: Completed) {
        assert!(
            self.acknowledge.len() < self.acknowledge_depth,
            "a slot was reserved when filling began"
        );
        self.acknowledge.push_back(completed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifos_are_bounded_and_in_order() {
        let mut fifos = PageFifos::new(2, 1);
        assert_eq!(fifos.post(7), Ok(()));
        assert_eq!(fifos.post(8), Ok(()));
        assert_eq!(fifos.post(9), Err(RequestFull));
        assert_eq!(fifos.request_filled(), 2);
        assert_eq!(fifos.take_request(1), Some(7));
        fifos.complete(Completed {
            page: 7,
            len_words: 0,
            status: FragmentStatus::GOOD,
            begin: None,
            end: None,
            block_end: BlockEnd::EndWord,
        });
        assert_eq!(fifos.take_request(1), None, "no slot for its completion");
        assert_eq!(fifos.poll_completed().map(|c| c.page), Some(7));
        assert_eq!(fifos.take_request(1), Some(8));
    }
}
