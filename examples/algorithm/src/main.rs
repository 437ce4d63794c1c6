//! The `livetime` program with one more trigger algorithm and one more filter; everything else is the
//! same.
//!
//! Copy this folder to begin with your own. The algorithm is in `acoplanar_muons.rs`, the filter in
//! `z_candidates.rs`, and the lines that register them are below; `menu.toml` and `filter.toml` use
//! them.

mod acoplanar_muons;
mod z_candidates;

use std::process::ExitCode;

use acoplanar_muons::AcoplanarMuons;
use livetime::Extensions;
use z_candidates::z_candidates;

fn main() -> ExitCode {
    let mut offered = Extensions::default();
    let algorithms = &mut offered.algorithms;
    algorithms.add("acoplanar_muons", AcoplanarMuons::new_checked);
    offered.filters.add("z_candidates", z_candidates);
    livetime::run_program(offered)
}
