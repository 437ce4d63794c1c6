//! Stories of the whole chain in simulated time: given a chain, when this happens, then so much is
//! counted.
//!
//! Each ends with every conservation equation, the account of pages and that of credits
//! ([`story::tell`]). Runs and their troubles are told in [`run_stories`], what messages suffer on
//! their way in [`message_faults`], all of it together in [`any_trouble`], what a run depends on in
//! [`determinism`].

#![expect(clippy::unwrap_used, reason = "a story that cannot go on may panic")]

mod any_trouble;
mod determinism;
mod message_faults;
mod run_stories;
mod spill;
mod story;
