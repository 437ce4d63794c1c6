//! Switches that move fixed cells in synchronous slots: the models of switch theory.
//!
//! Each model is a short loop over slots with seeded randomness, one file for each architecture;
//! all loads and throughputs are cells per port and slot. Variable sizes and real times are in
//! [`crate::network`]; the closed forms that some of these models have are in
//! [`crate::analytic::crossbar`].

pub mod buffered_delta;
pub mod dropping_delta;
pub mod fifo_crossbar;
pub mod matching;
pub mod output_queue;

pub use buffered_delta::{BufferedDelta, Refill};
pub use fifo_crossbar::FifoCrossbar;
pub use matching::{MatchedSwitch, Matching, Offered};

use crate::address::NodeId;
use crate::random::{Purpose, RandomStream, RandomStreams};

/// The stream of a model.
fn stream(seed: u64) -> RandomStream {
    RandomStreams::new(seed).stream(NodeId(0), Purpose(16))
}
