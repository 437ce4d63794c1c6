//! Which start of the daemon this is: a number that no two starts at one socket share.
//!
//! Clients tell messages of two starts apart by it. The number of the last start is kept in a file
//! beside the socket, which stays; a start takes the seconds since 1970 that it is given, or one more
//! than the last where that is as far already. Its lock is what starts at one socket wait for: of two at
//! the same time neither takes away what the other has just bound.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use livetime_shm::plain_file;

/// Longest number that is read, bytes.
const TEXT_MAX: u64 = 16;

/// Why there is no epoch.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the epoch beside the socket, in {path}: {source}; name a socket elsewhere")]
pub struct EpochError {
    /// Which file.
    path: PathBuf,
    /// Why.
    source: io::Error,
}

/// The file beside a socket.
fn path_beside(socket: &Path) -> PathBuf {
    let mut path = socket.to_owned().into_os_string();
    path.push(".epoch");
    path.into()
}

/// The turn of a start at a socket: another one waits until this is dropped.
#[derive(Debug)]
pub struct StartTurn {
    path: PathBuf,
    file: File,
}

impl StartTurn {
    /// Waits for the turn.
    ///
    /// # Errors
    /// [`EpochError`].
    pub fn wait(socket: &Path) -> Result<Self, EpochError> {
        let path = path_beside(socket);
        match open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(EpochError { path, source }),
        }
    }

    /// Takes an epoch: `at_least`, or one more than that of the last start.
    ///
    /// # Errors
    /// [`EpochError`].
    pub fn take_epoch(&self, at_least: u32) -> Result<u32, EpochError> {
        let taken = next_of(&self.file, at_least);
        taken.map_err(|source| EpochError {
            path: self.path.clone(),
            source,
        })
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // Whoever may write beside the socket shall not have us write elsewhere, nor hold the lock.
    options.mode(0o600);
    let file = plain_file::open_unlinked(path, &mut options)?;
    file.lock()?;
    Ok(file)
}

/// What is in the file is no number after a crash at the first start; then there was none.
fn next_of(mut file: &File, at_least: u32) -> io::Result<u32> {
    let mut text = String::new();
    let read = file.take(TEXT_MAX).read_to_string(&mut text);
    let last: Option<u32> = read.ok().and_then(|_| text.trim().parse().ok());
    let next = last.and_then(|last| last.checked_add(1));
    let epoch = next.map_or(at_least, |next| next.max(at_least));
    file.rewind()?;
    // Never shorter than what is there, so that it is one number or the other at every moment.
    let text = format!("{epoch:010}\n");
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)?;
    file.sync_all()?;
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_epoch(socket: &Path, at_least: u32) -> Result<u32, EpochError> {
        StartTurn::wait(socket)?.take_epoch(at_least)
    }

    #[test]
    fn no_two_starts_share_an_epoch_also_within_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("t.sock");
        let take = |at_least| take_epoch(&socket, at_least).unwrap();
        assert_eq!([take(100), take(100), take(100)], [100, 101, 102]);
        assert_eq!([take(200), take(150)], [200, 201]);
        let other = take_epoch(&folder.path().join("other.sock"), 200);
        assert_eq!(other.unwrap(), 200);
        let file = path_beside(&socket);
        for damaged in [
            "",
            "x",
            "4294967296",
            "-1",
            "0000000001\nand more than there may be",
        ] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!([take(300), take(300)], [300, 301], "{damaged}");
        }
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(folder.path().join("mine"), &file).unwrap();
        let error = take_epoch(&socket, 1).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot keep the epoch beside "),
            "{error}"
        );
        assert!(!folder.path().join("mine").exists());
        std::fs::remove_file(&file).unwrap();
        let both = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, both, 0).unwrap();
        let error = take_epoch(&socket, 1).unwrap_err().to_string();
        assert!(error.contains(": no plain file but a pipe; "), "{error}");
    }
}
