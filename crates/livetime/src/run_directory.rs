//! The directory of a run: its number, its lock, its files.
//!
//! A run number comes from a locked counter file and is never given twice. The lock file is held
//! by an open file handle for as long as the run lives, so that a crash leaves no stale lock. What
//! is written into the directory is the business of the verbs.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use livetime_client::RunFolder;
use livetime_node::packet_log::packet_files_of;
use livetime_shm::{plain_file, with_limit};
use livetime_wire::RunNumber;

use crate::console::say;
use crate::{filter_of_run, run_control, run_histograms};

/// Bytes that are read of a counter file: any number, and more than is shown of anything else.
const COUNTER_BYTES_MAX: u64 = 256;
/// The lock file of a directory.
const LOCK: &str = "lock";
/// Longer than [`is_held`] has the lock.
const ASKED_FOR: Duration = Duration::from_millis(50);

/// A directory that this process holds for one run.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    number: RunNumber,
    /// Whether it was made for this run.
    is_new: bool,
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
    #[error(
        "counter file {path} holds \"{found}\", expected the number of the last run; write it there, \
         0 for none, so that no number is given twice"
    )]
    Counter {
        /// The counter file.
        path: PathBuf,
        /// Its content.
        found: String,
    },
    /// The last number that there is has been given.
    #[error(
        "counter file {0} holds {max}, above which there is no run number; choose another `directory` \
         in `[run]`",
        max = u32::MAX
    )]
    UsedUp(PathBuf),
    /// The file system refused.
    #[error("cannot use {path}: {}{}", with_limit(error), of_nowhere(path))]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

/// That a path leads nowhere since the directory that it is from is gone.
fn of_nowhere(path: &Path) -> &'static str {
    match path.is_relative() && std::env::current_dir().is_err() {
        true => {
            "; the working directory was removed, and that path is from there: set `directory` in `[run]` \
             or go elsewhere"
        }
        false => "",
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> RunDirectoryError {
    let path = path.to_owned();
    move |error| RunDirectoryError::Io { path, error }
}

/// Opens the counter file in `base`, which is made where there is none.
fn open_counter(base: &Path) -> Result<(PathBuf, File), RunDirectoryError> {
    fs::create_dir_all(base).map_err(at(base))?;
    let path = base.join("counter");
    if !path.exists() {
        let last = highest_run(base).map_err(at(base))?;
        if create_counter(&path, last).map_err(at(&path))? && last > 0 {
            say(format_args!(
                "note: counter file {} was not there: run numbers go on after {}, the highest of the \
                 directories there",
                path.display(),
                RunNumber(last)
            ));
        }
    }
    let file = plain_file::open(&path, OpenOptions::new().read(true).write(true));
    let file = file.map_err(at(&path))?;
    Ok((path, file))
}

/// The highest number that a directory in `base` has as its name, 0 without one.
fn highest_run(base: &Path) -> io::Result<u32> {
    let mut highest = 0;
    for entry in fs::read_dir(base)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let is_runs = |number: &u32| *name == *RunNumber(*number).to_string();
        highest = number.filter(is_runs).unwrap_or(0).max(highest);
    }
    Ok(highest)
}

/// Makes a counter file, of this last run, that is whole from the first moment: an empty one, as a power
/// cut or a full disk would leave, is refused. One that another run has made meanwhile stays; then
/// `false` comes back.
fn create_counter(path: &Path, last: u32) -> io::Result<bool> {
    // Process numbers are the same on several hosts or in several containers.
    let random = RandomState::new().build_hasher().finish();
    let fresh = path.with_extension(format!("{random:016x}"));
    let mut file = File::create_new(&fresh)?;
    let placed = file
        .write_all(format!("{last:06}\n").as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| match fs::hard_link(&fresh, path) {
            // Some file systems know no links.
            Err(_) if !path.exists() => fs::rename(&fresh, path).map(|()| true),
            linked => Ok(linked.is_ok()),
        });
    let _gone = fs::remove_file(&fresh);
    // Its name, too, is on the disk before a number is given.
    if let Some(Ok(folder)) = path.parent().map(File::open) {
        let _unless_unsupported = folder.sync_all();
    }
    placed
}

/// Takes the next number from the counter file in `base`.
fn next_number(base: &Path) -> Result<RunNumber, RunDirectoryError> {
    let (path, mut file) = open_counter(base)?;
    // Held for microseconds by each starting run, so waiting is right here.
    file.lock().map_err(at(&path))?;
    let mut text = String::new();
    let read = (&file).take(COUNTER_BYTES_MAX).read_to_string(&mut text);
    read.map_err(at(&path))?;
    let digits = text.trim();
    let last: u32 = digits.parse().map_err(|_| RunDirectoryError::Counter {
        path: path.clone(),
        found: digits.chars().take(40).collect(),
    })?;
    // A directory that is there was another run's, whatever the counter says.
    let is_free = |number: &u32| !base.join(RunNumber(*number).to_string()).exists();
    let Some(next) = (last..u32::MAX).map(|last| last + 1).find(is_free) else {
        return Err(RunDirectoryError::UsedUp(path));
    };
    // In one write and cut only then: never without a number.
    let line = format!("{next:06}\n");
    file.rewind()
        .and_then(|()| file.write_all(line.as_bytes()))
        .and_then(|()| file.set_len(line.len() as u64))
        .and_then(|()| file.sync_data())
        .map_err(at(&path))?;
    Ok(RunNumber(next))
}

/// Whether a run that lives holds a directory.
pub(crate) fn is_held(path: &Path) -> bool {
    let lock = plain_file::open(&path.join(LOCK), OpenOptions::new().read(true));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
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
        run_histograms::FILE,
        filter_of_run::FILE,
    ];
    let others = others.map(|name| path.join(name));
    let control = path.join(run_control::SOCKET);
    // A socket there is what a run has left that crashed before it had a file.
    let is_socket = |about: fs::Metadata| about.file_type().is_socket();
    let is_foreign = !fs::symlink_metadata(&control).is_ok_and(is_socket);
    let mut files = (events.into_iter())
        .chain(packet_files_of(path))
        .chain(others)
        .chain(is_foreign.then_some(control));
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
            let is_new = !out.exists();
            let lock = Self::lock_made(out, is_new)?;
            let number = next_number(base).inspect_err(|_| {
                let _stays = fs::remove_file(out.join(LOCK));
                if is_new {
                    let _stays = fs::remove_dir(out);
                }
            })?;
            return Ok(Self {
                path: out.to_owned(),
                number,
                is_new,
                _lock: lock,
            });
        }
        let number = next_number(base)?;
        let path = base.join(number.to_string());
        let is_new = !path.exists();
        let lock = Self::lock_made(&path, is_new)?;
        Ok(Self {
            path,
            number,
            is_new,
            _lock: lock,
        })
    }

    /// Removes what a run has put here that could not start: it has no event, and would be in the way
    /// of the next.
    pub(crate) fn abandon(&self) {
        let mut files = RunFolder::paths(&self.path).unwrap_or_default();
        let others = ["config.toml", filter_of_run::FILE, LOCK];
        files.extend(packet_files_of(&self.path));
        files.extend(others.map(|name| self.file(name)));
        for file in files {
            // What cannot be removed stays, as all of it would have.
            let _stays = fs::remove_file(file);
        }
        if self.is_new {
            // Unless somebody else has put something there.
            let _stays = fs::remove_dir(&self.path);
        }
    }

    /// As [`Self::lock`]; of a directory that was made for it nothing is left where that fails.
    fn lock_made(path: &Path, is_new: bool) -> Result<File, RunDirectoryError> {
        Self::lock(path).inspect_err(|_| {
            if is_new {
                // Unless somebody else has put something there.
                let _stays = fs::remove_dir(path);
            }
        })
    }

    fn lock(path: &Path) -> Result<File, RunDirectoryError> {
        fs::create_dir_all(path).map_err(at(path))?;
        let lock_path = path.join(LOCK);
        let is_first = !lock_path.exists();
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let lock = plain_file::open(&lock_path, options).map_err(at(&lock_path))?;
        let mut locked = lock.try_lock();
        if matches!(locked, Err(TryLockError::WouldBlock)) {
            // Whoever asks whether a run lives has it for a moment.
            std::thread::sleep(ASKED_FOR);
            locked = lock.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunDirectoryError::Locked(path.to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(at(&lock_path)(error)),
        }
        // What is not for a run is left as it was.
        check_free(path).inspect_err(|_| drop(is_first.then(|| fs::remove_file(&lock_path))))?;
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
            "histograms.json",
            "control",
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
    fn a_directory_that_is_refused_is_left_as_it_was() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let out = base.path().join("out");
        fs::create_dir(&out).expect("the directory is ours");
        fs::write(out.join("report.html"), "mine").expect("the directory is ours");
        RunDirectory::create(base.path(), Some(&out)).expect_err("it is occupied");
        let names = fs::read_dir(&out).expect("it is there").flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["report.html"]);
        fs::write(base.path().join("counter"), "none").expect("the directory is ours");
        let new = base.path().join("new");
        RunDirectory::create(base.path(), Some(&new)).expect_err("there is no number");
        assert!(!new.exists());
    }

    #[test]
    fn without_a_counter_numbers_go_on_after_the_highest_directory() -> Result<(), RunDirectoryError>
    {
        let base = tempfile::tempdir().expect("a temporary directory");
        for folder in ["000003", "000007", "12", "0000019", "notes"] {
            fs::create_dir(base.path().join(folder)).expect("the directory is ours");
        }
        let next = || RunDirectory::create(base.path(), None).map(|run| run.number().0);
        assert_eq!([next()?, next()?], [8, 9]);
        // Nor does a counter that is set back give a number of one that is there.
        fs::write(base.path().join("counter"), "6").expect("the directory is ours");
        assert_eq!([next()?, next()?], [10, 11]);
        Ok(())
    }

    #[test]
    fn damaged_counter_is_an_error_and_not_run_1() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let counter = base.path().join("counter");
        for damaged in ["many", "", "\n", "4294967296"] {
            fs::write(&counter, damaged).expect("the directory is ours");
            let run = RunDirectory::create(base.path(), None);
            assert!(
                matches!(run, Err(RunDirectoryError::Counter { .. })),
                "{run:?}"
            );
            assert_eq!(fs::read_to_string(&counter).ok().as_deref(), Some(damaged));
        }
    }

    #[test]
    fn a_pipe_in_the_place_of_lock_or_counter_is_refused_and_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let base = tempfile::tempdir().expect("a temporary directory");
        let pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
        let out = base.path().join("out");
        fs::create_dir(&out).expect("the directory is ours");
        pipe(&out.join("lock")).expect("the directory is ours");
        let refused = RunDirectory::create(base.path(), Some(&out));
        let said = refused.expect_err("it is no lock").to_string();
        assert!(
            said.ends_with("out/lock: no plain file but a pipe"),
            "{said}"
        );
        assert!(
            !base.path().join("counter").exists(),
            "no number is used up"
        );
        pipe(&base.path().join("counter")).expect("the directory is ours");
        let refused = RunDirectory::create(base.path(), None);
        let said = refused.expect_err("it holds no number").to_string();
        assert!(
            said.ends_with("counter: no plain file but a pipe"),
            "{said}"
        );
    }

    #[test]
    fn numbers_end_and_do_not_begin_again() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let counter = base.path().join("counter");
        fs::write(&counter, "   4294967294   \n").expect("the directory is ours");
        let last = RunDirectory::create(base.path(), None).expect("there is one more");
        assert_eq!(last.number(), RunNumber(u32::MAX));
        let held = || fs::read_to_string(&counter).expect("it is there");
        assert_eq!(held(), "4294967295\n");
        let none = RunDirectory::create(base.path(), None);
        assert!(
            matches!(none, Err(RunDirectoryError::UsedUp(_))),
            "{none:?}"
        );
        assert_eq!(held(), "4294967295\n");
    }

    #[test]
    fn first_runs_at_one_moment_have_numbers_of_their_own() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let mut numbers = std::thread::scope(|scope| {
            let first = || RunDirectory::create(base.path(), None).map(|run| run.number().0);
            let runs: Vec<_> = (0..8).map(|_| scope.spawn(first)).collect();
            let runs = runs.into_iter().map(|run| run.join().expect("no panic"));
            runs.collect::<Result<Vec<_>, _>>()
        })
        .expect("all begin");
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
        let left = fs::read_dir(base.path()).expect("it is there").count();
        assert_eq!(left, 9, "eight runs and the counter");
    }
}
