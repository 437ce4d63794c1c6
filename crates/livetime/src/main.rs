//! The `livetime` program: one verb per file in `verb/`, the configuration in `config/`.
//!
//! It reads what people write (configurations, options) and prints what they read; the chain itself
//! is in `livetime-node`. Exit codes: 0 good, 1 a problem or a FAIL, 2 usage, 70 our own bug.

mod config;
mod run_directory;

fn main() {}
