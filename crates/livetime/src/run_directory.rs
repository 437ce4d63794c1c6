//! The directory of a run: its number, its lock, its files.
//!
//! A run number comes from a locked counter file and is never given twice. The lock file is held
//! by an open file handle for as long as the run lives, so that a crash leaves no stale lock. What
//! is written into the directory is the business of the verbs.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use livetime_client::RunFolder;
use livetime_node::packet_log::packet_files_of;
use livetime_wire::RunNumber;

use crate::filter_of_run;

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
    /// The directory holds files of a run.
    #[error(
        "{path} already holds a run, or a part of one: {file}; choose another `--out`, runs are never \
         overwritten"
    )]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// One of them.
        file: String,
    },
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

/// Whether a directory, which must be there, holds no file that a run writes: not its events alone,
/// since a part that is left of another run would end this one when its turn comes.
///
/// # Errors
/// [`RunDirectoryError::Occupied`], or what the file system says.
pub(crate) fn check_free(path: &Path) -> Result<(), RunDirectoryError> {
    let events = RunFolder::paths(path).map_err(at(path))?;
    let others = [
        "summary.json",
        "config.toml",
        "report.html",
        filter_of_run::FILE,
    ];
    let others = others.map(|name| path.join(name));
    let mut files = (events.into_iter())
        .chain(packet_files_of(path))
        .chain(others);
    match files.find(|file| file.exists()) {
        None => Ok(()),
        Some(file) => Err(RunDirectoryError::Occupied {
            path: path.to_owned(),
            file: file.file_name().unwrap_or_default().display().to_string(),
        }),
    }
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
        check_free(path)?;
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
        let path = first.path().to_owned();
        drop(first);
        // Whatever a run writes: a part that is left of one, too.
        for file in [
            "events.mcap",
            "events-1.0003.mcap",
            "packets.mcap",
            "summary.json",
        ] {
            fs::write(path.join(file), b"x").expect("the directory is ours");
            let third = RunDirectory::create(base.path(), Some(&out));
            let said = third.expect_err("it is occupied").to_string();
            assert!(said.contains(&format!("a part of one: {file};")), "{said}");
            fs::remove_file(path.join(file)).expect("it is ours");
        }
        let third = RunDirectory::create(base.path(), Some(&out));
        assert!(third.is_ok(), "{third:?}");
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
