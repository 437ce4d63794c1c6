//! The `livetime` program with one more trigger algorithm; everything else is the same.
//!
//! Copy this folder to begin with your own. The algorithm is in `acoplanar_muons.rs`, and the line
//! that registers it is below; `menu.toml` uses it.

mod acoplanar_muons;

use std::process::ExitCode;

use acoplanar_muons::AcoplanarMuons;
use livetime_trigger::AlgorithmRegistry;

fn main() -> ExitCode {
    let mut registry = AlgorithmRegistry::new();
    registry.add("acoplanar_muons", AcoplanarMuons::new_checked);
    livetime::run_program(registry)
}
