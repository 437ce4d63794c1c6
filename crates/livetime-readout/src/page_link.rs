//! The trait behind which every source of filled pages stands.
//!
//! The emulated S-LINK of [`crate::receiver`] is the first; card models, network front-ends and
//! files follow the same contract. What is done with a filled page is in
//! [`crate::fragment_assembler`].

use livetime_wire::RunNs;

use crate::line::LinkStatus;
use crate::page_fifo::Completed;

/// Why a page is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The page is not one of this link's.
    #[error("page {page} does not belong to this link, which has {first} to {last}")]
    Foreign {
        /// The page.
        page: u32,
        /// First page of the link.
        first: u32,
        /// Last page of the link.
        last: u32,
    },
    /// The page is with the link already: returned twice, or never handed out.
    #[error("page {page} is already with the link")]
    NotHandedOut {
        /// The page.
        page: u32,
    },
    /// No free slot; the page stays with the caller.
    #[error("the request FIFO is full, page {page} stays with the caller")]
    RequestFull {
        /// The page.
        page: u32,
    },
}

/// Fragments in: pages go in empty and come out filled.
///
/// Contract: completions of one link come in order, a completion with
/// [`BlockEnd::MoreToCome`](crate::BlockEnd::MoreToCome) is a full page and the next completion
/// continues the same block, and a page belongs to the caller from `poll` to `post`.
pub trait PageLink {
    /// Gives a page to be filled.
    ///
    /// # Errors
    /// A [`PageError`]; the page then stays with the caller.
    fn post(&mut self, page: u32) -> Result<(), PageError>;

    /// Takes the oldest filled page.
    fn poll(&mut self) -> Option<Completed>;

    /// The state of the link.
    fn link_status(&self) -> LinkStatus;

    /// Drives URESET#: the link goes down, an open block is cut, and the reset ends when the link
    /// comes up again (hold until LDOWN# releases, then release).
    fn reset(&mut self, now: RunNs);
}
