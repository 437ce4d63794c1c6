//! What the bare machine does: the floors beside which every result is reported.
//!
//! A virtual machine's floor is not one number (its cores may be near or far from each other, and
//! change place within minutes), so floors are measured in the same run, just before and after
//! what they belong to. Each function here runs a stated number of rounds or a stated time and
//! returns plain samples; judging them is left to the caller.

mod kernel_round_trip;
mod memory_copy;
mod ping_pong;
mod poll_gaps;
mod samples;
mod two_threads;

use std::io;

pub use kernel_round_trip::{
    KernelOneWay, KernelRoundTrip, TcpWait, eventfd_one_way, eventfd_round_trip, pipe_round_trip,
    tcp_round_trip,
};
pub use memory_copy::{MemoryCopy, memcpy_through_pool};
pub use ping_pong::{PING_PONG_BYTES_MAX, PingPong, cache_line_ping_pong};
pub use poll_gaps::{POLL_GAP_BOUNDS_NS, PollGaps, poll_gap_histogram};
pub use samples::Samples;

use crate::affinity::PlacementError;
use crate::page_pool::PageError;
use crate::system_limit::with_limit;

/// Why a floor could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// More bytes than the measurement is made for.
    #[error("{bytes} bytes are more than the {max} this measurement can carry")]
    TooLarge {
        /// Bytes asked for.
        bytes: usize,
        /// Most bytes possible.
        max: usize,
    },
    /// The pool has no free page to copy through.
    #[error("the pool has no free page to copy through")]
    NoFreePage,
    /// A page of the pool could not be had.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A thread could not be placed on its core.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The kernel refused a step.
    #[error("{step} failed")]
    Kernel {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The partner did not answer for ten seconds.
    #[error("the partner thread does not answer")]
    Stuck,
    /// A measuring thread ended by a panic.
    #[error("a measuring thread panicked")]
    Thread,
    /// The system gives no thread to measure with.
    #[error("cannot start a measuring thread: {}", with_limit(.0))]
    NoThread(io::Error),
}

impl FloorError {
    fn kernel(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Kernel { step, source }
    }
}
