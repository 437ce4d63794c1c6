//! Who may write into a run file: the process of its writer, as long as it lives.
//!
//! Of a run over several hosts the coordinator closes the file of a writer that died. A host that is
//! not heard any more may live, though, and its writer go on: two that write into one file damage it.
//! So each writer's process holds a lock on its run file, which the system drops when the process has
//! ended, however it did; whoever else would write asks for the lock first. It is the lock of a
//! network's file system as well. Where there are no locks, nothing is known, and nothing is written.

use std::fs::File;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long a writer may take to end whose host has just ended.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two questions.
const LOOK: Duration = Duration::from_millis(5);

/// Locks the run file of this process until it ends.
pub(super) fn hold(file: &OwnedFd) {
    // Without a lock nobody else writes into the file either.
    if let Ok(file) = file.try_clone().and_then(lock) {
        // The system alone gives it back.
        let _held = file.into_raw_fd();
    }
}

/// Locks a file for as long as there is a handle that was made of this one.
fn lock(file: OwnedFd) -> std::io::Result<OwnedFd> {
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Whether it is certain that no writer's process has a run file; one that is just ending is waited
/// for.
pub(super) fn is_free(path: &Path) -> bool {
    let Ok(file) = File::options().read(true).write(true).open(path) else {
        return false;
    };
    let until = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return true,
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOOK),
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_free_when_nobody_has_any_handle_of_its_writer() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("events.mcap");
        assert!(!is_free(&path), "there is none");
        let file = File::create(&path).expect("a writable folder");
        let passed = file.try_clone().expect("a descriptor");
        let held = lock(OwnedFd::from(file)).expect("a file system with locks");
        assert!(!is_free(&path));
        drop(held);
        assert!(!is_free(&path), "who writes through another handle");
        drop(passed);
        assert!(is_free(&path));
        assert!(is_free(&path), "asking takes nothing");
        let file = OwnedFd::from(File::open(&path).expect("it is there"));
        hold(&file);
        drop(file);
        assert!(!is_free(&path), "this process has not ended");
    }
}
