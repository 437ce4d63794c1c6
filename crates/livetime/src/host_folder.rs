//! The folder of a `livetime host` for the time of a run, and what others have left of theirs.
//!
//! One that is killed leaves its folder behind. A lock on a file in it, which the system drops with the
//! process, says whether its host lives; the next host on the machine removes what has none.

use std::fs::{self, DirEntry, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use livetime_shm::plain_file;

/// How its name begins.
const PREFIX: &str = "livetime-";
/// Digits of the key of a run.
const KEY_DIGITS: usize = 16;
/// The file with the lock.
const LOCK: &str = "lock";
/// One that is not older may be on its way to its lock.
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// A folder of this host for the time of the run.
pub(crate) struct HostFolder {
    path: PathBuf,
    /// Locked as long as this process lives.
    _lock: File,
}

impl HostFolder {
    /// Where that of a host of the run with this key is.
    pub(crate) fn path_of(key: &str, host: &str) -> PathBuf {
        std::env::temp_dir().join(format!("{PREFIX}{key}-{host}"))
    }

    /// Makes it, or takes over that of a dead one; removes what dead hosts of other runs have left.
    ///
    /// # Errors
    /// What the file system says, or that the host of this name lives here.
    pub(crate) fn create(path: PathBuf) -> Result<Self, String> {
        remove_left(&std::env::temp_dir(), LEFT_AFTER);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(&path).map_err(failed)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let lock = plain_file::open_unlinked(&path.join(LOCK), options).map_err(failed)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => Err(format!(
                "it is there already on this machine: {} is in use",
                path.display()
            )),
            // Where there are no locks, nobody takes it for left.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self { path, _lock: lock }),
        }
    }
}

impl Drop for HostFolder {
    fn drop(&mut self) {
        // What stays is a configuration in the folder for temporary files.
        let _stays = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of hosts that have died, of those that are older.
fn remove_left(folder: &Path, age: Duration) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_of_host(entry, age)) {
        let path = entry.path();
        // Anybody may have put it there: a pipe would keep this host waiting.
        let lock = plain_file::open_unlinked(&path.join(LOCK), OpenOptions::new().read(true));
        let Ok(lock) = lock else {
            continue;
        };
        if lock.try_lock().is_ok() {
            // That of another user stays.
            let _stays = fs::remove_dir_all(path);
        }
    }
}

/// Whether this is the folder of a host, and old enough.
fn is_of_host(entry: &DirEntry, age: Duration) -> bool {
    let name = entry.file_name();
    let key = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    let key = key.and_then(|rest| rest.split_once('-'));
    let is_named = key.is_some_and(|(key, host)| {
        let mut digits = key.bytes();
        key.len() == KEY_DIGITS && digits.all(|digit| digit.is_ascii_hexdigit()) && !host.is_empty()
    });
    let about = entry.metadata().ok().filter(|about| about.is_dir());
    let changed = about.and_then(|about| about.modified().ok());
    is_named && changed.is_some_and(|at| at.elapsed().is_ok_and(|old| old >= age))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_hosts_have_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = |name: &str, has_lock: bool| {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("it is ours");
            if has_lock {
                fs::write(path.join(LOCK), "").expect("it is ours");
            }
            path
        };
        let left = made("livetime-0123456789abcdef-far", true);
        let others = [
            made("livetime-0123456789abcdef-old", false),
            made("livetime-0123-far", true),
            made("livetime-0123456789abcdef-", true),
            made("other-0123456789abcdef-far", true),
            made("livetime-0123456789abcdef-pipe", false),
        ];
        let both = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, others[4].join(LOCK), kind, both, 0).expect("ours");
        let path = folder.path().join("livetime-0123456789abcdef-near");
        let lives = HostFolder::create(path.clone()).expect("it is ours");
        remove_left(folder.path(), LEFT_AFTER);
        assert!(left.exists(), "it is new");
        remove_left(folder.path(), Duration::ZERO);
        assert!(!left.exists());
        assert!(path.exists() && others.iter().all(|other| other.exists()));
        let refused = HostFolder::create(path.clone()).map(drop).unwrap_err();
        assert!(refused.contains("it is there already"), "{refused}");
        drop(lives);
        assert!(!path.exists());
    }
}
