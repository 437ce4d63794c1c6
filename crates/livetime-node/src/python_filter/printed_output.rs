//! What an interpreter prints: passed on up to a bound, and counted.
//!
//! Its standard output and error are one pipe, which a thread of its own empties, so that a filter
//! that prints a megabyte neither stops nor fills anybody's memory.

use std::io::{PipeReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one interpreter that are passed on.
const PASSED_ON_MAX: u64 = 16 * 1024;

/// Bytes printed so far.
#[derive(Debug, Clone, Default)]
pub struct PrintedBytes(Arc<AtomicU64>);

impl PrintedBytes {
    /// How many.
    pub fn get(&self) -> u64 {
        // Relaxed: an observation.
        self.0.load(Ordering::Relaxed)
    }
}

/// Empties `pipe` until the other end is closed.
///
/// # Errors
/// When the system gives no thread.
pub fn empty_pipe(role: &str, mut pipe: PipeReader, printed: PrintedBytes) -> std::io::Result<()> {
    let role = role.to_owned();
    let drain = move || {
        let mut buffer = [0; 4096];
        let mut passed_on = 0;
        while let Ok(count) = pipe.read(&mut buffer) {
            if count == 0 {
                break;
            }
            printed.0.fetch_add(count as u64, Ordering::Relaxed);
            let room = usize::try_from(PASSED_ON_MAX - passed_on).unwrap_or(usize::MAX);
            let part = &buffer[..count.min(room)];
            passed_on += part.len() as u64;
            // A closed standard error takes nothing: the bytes are counted all the same.
            let _closed = std::io::stderr().write_all(part);
            if !part.is_empty() && passed_on == PASSED_ON_MAX {
                eprintln!("\n{role}: its filter prints more than is shown");
            }
        }
    };
    let thread = std::thread::Builder::new().name("filter-prints".to_owned());
    thread.spawn(drain).map(drop)
}
