//! Benches of the chain's parts, and reports and plots of runs.
//!
//! It turns results into pages and never takes data of a run itself. Start with [`bench`](mod@bench)
//! for what is measured and how, and with [`report`] for the page of a run; the drawing is in
//! [`plot`].

pub mod bench;
pub mod plot;
pub mod report;
pub mod study;
