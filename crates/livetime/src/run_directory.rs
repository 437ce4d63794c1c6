//! The directory of a run: its number, its lock, its files.
//!
//! A run number comes from a locked counter file and is never given twice. The lock file is held
//! by an open file handle for as long as the run lives, so that a crash leaves no stale lock. What
//! is written into the directory is the business of the verbs.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use livetime_wire::RunNumber;

/// A directory that this process holds for one run.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    number: RunNumber,
    // Released by the kernel when the process ends, however it ends.
    _lock: File,
}

/// Why no run directory could be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunDirectoryError {
    /// Another run holds the directory.
    #[error("another run is writing to {0}; wait for it or choose another `--out`")]
    Locked(PathBuf),
    /// The directory holds the files of a finished run.
    #[error("{0} already holds a run; choose another `--out`, runs are never overwritten")]
    Occupied(PathBuf),
    /// The counter file does not hold a number.
    #[error("counter file {path} holds \"{found}\", expected the number of the last run")]
    Counter {
        /// The counter file.
        path: PathBuf,
        /// Its content.
        found: String,
    },
    /// The file system refused.
    #[error("cannot use {path}: {error}")]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> RunDirectoryError {
    let path = path.to_owned();
    move |error| RunDirectoryError::Io { path, error }
}

/// Takes the next number from the counter file in `base`.
fn next_number(base: &Path) -> Result<RunNumber, RunDirectoryError> {
    fs::create_dir_all(base).map_err(at(base))?;
    let path = base.join("counter");
    let mut file = (OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false))
    .open(&path)
    .map_err(at(&path))?;
    // Held for microseconds by each starting run, so waiting is right here.
    file.lock().map_err(at(&path))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(at(&path))?;
    let last: u32 = match text.trim() {
        "" => 0,
        digits => digits.parse().map_err(|_| RunDirectoryError::Counter {
            path: path.clone(),
            found: digits.chars().take(40).collect(),
        })?,
    };
    file.rewind().map_err(at(&path))?;
    writeln!(file, "{:06}", last + 1).map_err(at(&path))?;
    file.sync_data().map_err(at(&path))?;
    Ok(RunNumber(last + 1))
}

impl RunDirectory {
    /// Creates and locks `out`, or the directory of the next run number under `base`.
    ///
    /// # Errors
    /// When another run holds the directory, when it already holds a run, or when the file system
    /// refuses.
    pub(crate) fn create(base: &Path, out: Option<&Path>) -> Result<Self, RunDirectoryError> {
        // The lock first: a second run in the same directory must not use up a number.
        if let Some(out) = out {
            let lock = Self::lock(out)?;
            let number = next_number(base)?;
            return Ok(Self {
                path: out.to_owned(),
                number,
                _lock: lock,
            });
        }
        let number = next_number(base)?;
        let path = base.join(number.to_string());
        let lock = Self::lock(&path)?;
        Ok(Self {
            path,
            number,
            _lock: lock,
        })
    }

    fn lock(path: &Path) -> Result<File, RunDirectoryError> {
        fs::create_dir_all(path).map_err(at(path))?;
        let lock_path = path.join("lock");
        let lock = (OpenOptions::new().write(true).create(true).truncate(false))
            .open(&lock_path)
            .map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunDirectoryError::Locked(path.to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(at(&lock_path)(error)),
        }
        if path.join("events.mcap").exists() {
            return Err(RunDirectoryError::Occupied(path.to_owned()));
        }
        Ok(lock)
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The run's number.
    pub(crate) fn number(&self) -> RunNumber {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_reused() -> Result<(), RunDirectoryError> {
        let base = tempfile::tempdir().expect("a temporary directory");
        let first = RunDirectory::create(base.path(), None)?;
        assert_eq!(first.number(), RunNumber(1));
        assert!(first.path().ends_with("000001"));
        drop(first);
        fs::remove_dir_all(base.path().join("000001")).expect("the directory is ours");
        assert_eq!(
            RunDirectory::create(base.path(), None)?.number(),
            RunNumber(2)
        );
        Ok(())
    }

    #[test]
    fn second_run_in_a_directory_is_refused_while_the_first_lives_and_after() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let out = base.path().join("out");
        let first = RunDirectory::create(base.path(), Some(&out)).expect("the first run");
        let second = RunDirectory::create(base.path(), Some(&out));
        assert!(
            matches!(second, Err(RunDirectoryError::Locked(_))),
            "{second:?}"
        );
        fs::write(first.file("events.mcap"), b"x").expect("the directory is ours");
        drop(first);
        let third = RunDirectory::create(base.path(), Some(&out));
        assert!(
            matches!(third, Err(RunDirectoryError::Occupied(_))),
            "{third:?}"
        );
    }

    #[test]
    fn damaged_counter_is_an_error_and_not_run_1() {
        let base = tempfile::tempdir().expect("a temporary directory");
        fs::write(base.path().join("counter"), "many").expect("the directory is ours");
        let run = RunDirectory::create(base.path(), None);
        assert!(
            matches!(run, Err(RunDirectoryError::Counter { .. })),
            "{run:?}"
        );
    }
}
