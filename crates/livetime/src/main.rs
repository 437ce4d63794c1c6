//! The `livetime` program.
fn main() {}
