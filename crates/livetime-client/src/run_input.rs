//! A file of a run as the input of its reader, open only while it is among those that were used last.
//!
//! A run may have thousands of files, and a process may open about a thousand. The inputs of a run
//! share an `OpenFiles`, which closes the file that was not used for longest; one that is needed again is
//! opened again, and must still be the file that it was. How the files make a run is in
//! [`crate::run_folder`].

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Most files of a run that are open at once: more than are read in turn, few beside a usual limit of 1024.
/// Of a smaller limit (`ulimit -n`) a reader takes a quarter: whoever reads a run has something to write, too.
pub const OPEN_FILES_MAX: usize = 64;

/// What happened to a file since it was opened, inside an [`io::Error`].
#[derive(Debug, thiserror::Error)]
pub enum InputChange {
    /// Another file has its path.
    #[error("another file is there than the one that was opened; open the run anew")]
    Replaced,
    /// It is shorter than it was.
    #[error("cut to {bytes} bytes since it was opened, of at least {expected}; open the run anew")]
    Cut {
        /// Bytes that it has.
        bytes: u64,
        /// Bytes that it had, at least.
        expected: u64,
    },
    /// It cannot be opened once more.
    #[error("the file, which was closed to open others, cannot be opened again: {0}")]
    NotOpened(io::Error),
}

impl InputChange {
    /// Whether the file that was opened is gone from its place, so that nothing more is read of it.
    pub(crate) fn is_for_good(&self) -> bool {
        match self {
            Self::Replaced => true,
            Self::NotOpened(error) => !is_too_many(error),
            // What is left of it is read.
            Self::Cut { .. } => false,
        }
    }
}

impl From<InputChange> for io::Error {
    fn from(change: InputChange) -> Self {
        let kind = match change {
            // What a reader takes for an error of the whole input, and not of a place in it.
            InputChange::Replaced | InputChange::NotOpened(_) => {
                io::ErrorKind::StaleNetworkFileHandle
            }
            InputChange::Cut { .. } => io::ErrorKind::UnexpectedEof,
        };
        Self::new(kind, change)
    }
}

/// What tells a file from all others of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// When it was made, where the file system knows: the inode of a file that is gone is used again.
    created: Option<SystemTime>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            created: metadata.created().ok(),
        }
    }
}

/// Which file an input is of.
#[derive(Debug)]
pub(crate) struct FilePlace {
    /// Absolute, so that it is found again wherever the program goes.
    path: PathBuf,
    identity: Identity,
}

impl FilePlace {
    /// Looks whether it is still there, with at least as many bytes.
    ///
    /// # Errors
    /// [`InputChange`], or that of the system.
    pub(crate) fn check(&self, bytes_least: u64) -> io::Result<()> {
        let found = fs::metadata(&self.path)?;
        if Identity::of(&found) != self.identity {
            return Err(InputChange::Replaced.into());
        }
        match found.len() {
            bytes if bytes < bytes_least => Err(InputChange::Cut {
                bytes,
                expected: bytes_least,
            }
            .into()),
            _ => Ok(()),
        }
    }
}

/// Open files in the order of their last use.
type FileQueue = VecDeque<(Identity, Arc<File>)>;

/// The files of a run that are open, the one that was used last at the end.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenFiles(Arc<Mutex<FileQueue>>);

impl OpenFiles {
    /// The file of a place, opened if it is not.
    fn file(&self, place: &FilePlace) -> io::Result<Arc<File>> {
        // What a panic left is a list of open files like any other.
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().rposition(|(of, _)| *of == place.identity);
        let used = at.and_then(|at| open.remove(at));
        let file = match used {
            Some((_, file)) => file,
            None => {
                let file = open_with_room(&mut open, &place.path);
                let file = file.map_err(InputChange::NotOpened)?;
                if Identity::of(&file.metadata()?) != place.identity {
                    return Err(InputChange::Replaced.into());
                }
                Arc::new(file)
            }
        };
        keep(&mut open, place.identity, &file);
        Ok(file)
    }

    /// Opens a file for the first time.
    fn begin(&self, path: &Path) -> io::Result<Identity> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open_with_room(&mut open, path)?;
        let identity = Identity::of(&file.metadata()?);
        open.retain(|(of, _)| *of != identity);
        keep(&mut open, identity, &Arc::new(file));
        Ok(identity)
    }
}

/// How many files of a run may be open where a process may open so many, `None` for any number.
fn open_files_max(limit: Option<u64>) -> usize {
    let share = limit.and_then(|limit| usize::try_from(limit / 4).ok());
    share.unwrap_or(OPEN_FILES_MAX).clamp(1, OPEN_FILES_MAX)
}

fn keep(open: &mut FileQueue, identity: Identity, file: &Arc<File>) {
    static MOST: OnceLock<usize> = OnceLock::new();
    let most = *MOST.get_or_init(|| open_files_max(getrlimit(Resource::Nofile).current));
    while open.len() >= most {
        open.pop_front();
    }
    open.push_back((identity, Arc::clone(file)));
}

/// Opens a file; where the process has no room for one more, others are closed for it.
fn open_with_room(open: &mut FileQueue, path: &Path) -> io::Result<File> {
    loop {
        match File::open(path) {
            Err(error) if is_too_many(&error) && open.pop_front().is_some() => {}
            opened => return opened,
        }
    }
}

/// Whether a file could not be opened for want of room in the process or the machine: the file is not to
/// blame.
pub(crate) fn is_too_many(error: &io::Error) -> bool {
    let full = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    let full = full.map(|errno| Some(errno.raw_os_error()));
    full.contains(&error.raw_os_error())
}

/// The input of a reader: a file, and where in it the reader is.
#[derive(Debug, Clone)]
pub struct RunInput {
    place: Arc<FilePlace>,
    files: OpenFiles,
    position: u64,
}

impl RunInput {
    /// Opens a file by its absolute path.
    pub(crate) fn open(path: &Path, files: &OpenFiles) -> io::Result<Self> {
        // Opening a FIFO would wait for its writer.
        if !fs::metadata(path)?.is_file() {
            let text = "no plain file, as every run file is; copy what comes out of it into one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let place = FilePlace {
            path: path.to_owned(),
            identity: files.begin(path)?,
        };
        Ok(Self {
            place: Arc::new(place),
            files: files.clone(),
            position: 0,
        })
    }

    /// Which file it is of.
    pub(crate) fn place(&self) -> &Arc<FilePlace> {
        &self.place
    }
}

impl Read for RunInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.files.file(&self.place)?;
        let bytes = file.read_at(buffer, self.position)?;
        self.position += bytes as u64;
        Ok(bytes)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let file = self.files.file(&self.place)?;
        let expected = self.position.saturating_add(buffer.len() as u64);
        match file.read_exact_at(buffer, self.position) {
            // Readers ask for no more than was there.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let bytes = file.metadata()?.len();
                Err(InputChange::Cut { bytes, expected }.into())
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.position = expected;
                Ok(())
            }
        }
    }
}

impl Seek for RunInput {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => {
                let bytes = self.files.file(&self.place)?.metadata()?.len();
                bytes.checked_add_signed(by)
            }
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a place before the file");
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &mut RunInput) -> io::Result<u8> {
        let mut byte = [0];
        input.seek(SeekFrom::Start(0))?;
        input.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    #[test]
    fn of_a_small_limit_on_open_files_most_is_left_to_others() {
        let of = |limit| open_files_max(Some(limit));
        assert_eq!([of(3), of(20), of(68)], [1, 5, 17]);
        assert_eq!([of(256), of(u64::MAX)], [OPEN_FILES_MAX; 2]);
        assert_eq!(open_files_max(None), OPEN_FILES_MAX);
    }

    #[test]
    fn few_of_many_files_are_open_and_each_is_read_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let files = OpenFiles::default();
        let mut inputs: Vec<RunInput> = Vec::new();
        for index in 0..=OPEN_FILES_MAX as u8 * 2 {
            let path = folder.path().join(index.to_string());
            fs::write(&path, [index]).unwrap();
            inputs.push(RunInput::open(&path, &files).unwrap());
        }
        for stride in [1, 7, 100] {
            for step in 0..inputs.len() {
                let index = step * stride % inputs.len();
                assert_eq!(read(&mut inputs[index]).unwrap(), index as u8);
            }
            assert_eq!(files.0.lock().unwrap().len(), OPEN_FILES_MAX);
        }
    }

    #[test]
    fn a_file_that_was_replaced_cut_or_removed_is_not_taken_for_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let files = OpenFiles::default();
        fs::write(&path, [1, 2]).unwrap();
        let mut input = RunInput::open(&path, &files).unwrap();
        input.place().check(2).unwrap();
        let said = input.place().check(3).unwrap_err().to_string();
        assert!(
            said.starts_with("cut to 2 bytes since it was opened, of at least 3"),
            "{said}"
        );
        fs::write(&path, []).unwrap();
        let said = read(&mut input).unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::UnexpectedEof);
        assert!(said.to_string().starts_with("cut to 0 bytes"), "{said}");

        fs::write(folder.path().join("b"), [3]).unwrap();
        fs::rename(folder.path().join("b"), &path).unwrap();
        files.0.lock().unwrap().clear();
        for said in [
            read(&mut input).unwrap_err(),
            input.place().check(0).unwrap_err(),
        ] {
            assert!(
                said.to_string().starts_with("another file is there"),
                "{said}"
            );
        }
        fs::remove_file(&path).unwrap();
        let said = input.place().check(0).unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::NotFound);
        let said = read(&mut input).unwrap_err();
        assert!(
            said.to_string().contains("cannot be opened again: "),
            "{said}"
        );
    }
}
