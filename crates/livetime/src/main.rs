//! The `livetime` program.
mod config;
fn main() {}
