//! Reports and plots of runs and benches.
//!
//! It turns results into pages and never takes data itself. Start with [`report`]; the drawing is
//! in [`plot`].

pub mod plot;
pub mod report;
