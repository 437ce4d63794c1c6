//! What an interpreter prints: passed on up to a bound, and counted.
//!
//! Its standard output and error are one pipe, which a thread of its own empties, so that a filter
//! that prints a megabyte neither stops nor fills anybody's memory.

use std::io::{PipeReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of one interpreter that are passed on.
const PASSED_ON_MAX: u64 = 16 * 1024;
/// Bytes read at once: with what is said of them they find room in a pipe that has some.
const PART_BYTES: usize = 2048;

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

/// Whether standard error takes a part at once: who does not read is not to hold a filter up.
fn is_read() -> bool {
    let err = std::io::stderr();
    let mut waited = [PollFd::new(&err, PollFlags::OUT)];
    poll(&mut waited, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Empties `pipe` until the other end is closed.
///
/// # Errors
/// When the system gives no thread.
pub fn empty_pipe(role: &str, pipe: PipeReader, printed: PrintedBytes) -> std::io::Result<()> {
    let role = role.to_owned();
    let drain = move || pass_on(&role, pipe, &printed, std::io::stderr(), is_read);
    let thread = std::thread::Builder::new().name("filter-prints".to_owned());
    thread.spawn(drain).map(drop)
}

/// Writes the first of what comes to `out`; what comes while nobody reads there is counted, and told when
/// somebody does again.
fn pass_on(
    role: &str,
    mut pipe: impl Read,
    printed: &PrintedBytes,
    mut out: impl Write,
    mut is_read: impl FnMut() -> bool,
) {
    let mut buffer = [0; PART_BYTES];
    let (mut passed_on, mut not_shown) = (0, 0);
    while let Ok(count) = pipe.read(&mut buffer) {
        if count == 0 {
            break;
        }
        printed.0.fetch_add(count as u64, Ordering::Relaxed);
        let room = usize::try_from(PASSED_ON_MAX - passed_on).unwrap_or(usize::MAX);
        let part = &buffer[..count.min(room)];
        if part.is_empty() {
            continue;
        }
        if !is_read() {
            not_shown += part.len();
            continue;
        }
        passed_on += part.len() as u64;
        let mut text = Vec::new();
        if not_shown > 0 {
            let said = format!("\n{role}: {not_shown} bytes of its filter were not shown\n");
            text.extend(said.into_bytes());
            not_shown = 0;
        }
        text.extend(part);
        if passed_on == PASSED_ON_MAX {
            let said = format!("\n{role}: its filter prints more than is shown\n");
            text.extend(said.into_bytes());
        }
        // A closed standard error takes nothing: the bytes are counted all the same.
        let _closed = out.write_all(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_prints_is_not_held_up_by_who_does_not_read() {
        let printed = PrintedBytes::default();
        let text = vec![b'x'; 4 * PART_BYTES];
        let (mut out, mut looks) = (Vec::new(), 0);
        pass_on("fu0", &text[..], &printed, &mut out, || {
            looks += 1;
            looks == 1 || looks == 4
        });
        assert_eq!(printed.get(), text.len() as u64);
        let shown = "x".repeat(PART_BYTES);
        let told = format!(
            "\nfu0: {} bytes of its filter were not shown\n",
            2 * PART_BYTES
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("{shown}{told}{shown}")
        );
    }
}
