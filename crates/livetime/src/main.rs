//! The program itself; verbs, modules and everything else are in the library beside it.

use std::process::ExitCode;

use livetime_trigger::AlgorithmRegistry;

fn main() -> ExitCode {
    livetime::run_program(AlgorithmRegistry::new())
}
