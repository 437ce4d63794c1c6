//! Small files that a program keeps or is told of: locks, counters, states, rules.
//!
//! A pipe in the place of such a file holds whoever opens it until somebody comes to its other end, and
//! a device may never end. Here nothing is waited for, nothing but a plain file is taken, and no more is
//! read than a bound. What may well come out of a pipe, such as a configuration, is not opened here.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Bytes of a text that people write or this program keeps, at most.
pub const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Names of unfinished files that are tried at most, each of which is taken.
const PARTS_MAX: u32 = 1_000;

/// Unfinished files of this process so far; each has a number, which pairs with nothing.
static PARTS: AtomicU64 = AtomicU64::new(0);

/// Why a file is not taken, inside an [`io::Error`].
#[derive(Debug, thiserror::Error)]
pub enum PlainFileError {
    /// Something else is there.
    #[error("no plain file but a {found}")]
    Other {
        /// What is there.
        found: &'static str,
    },
    /// It is too long.
    #[error("it has more than the {max} bytes that are allowed")]
    TooLong {
        /// Most bytes allowed.
        max: u64,
    },
    /// It is to be a text and is none.
    #[error("it is not UTF-8: byte {column} of line {line} is 0x{byte:02x}")]
    NotUtf8 {
        /// The line, from 1.
        line: usize,
        /// The first byte of the line that is in no character, from 1.
        column: usize,
        /// Its value.
        byte: u8,
    },
}

impl From<PlainFileError> for io::Error {
    fn from(error: PlainFileError) -> Self {
        Self::new(ErrorKind::InvalidInput, error)
    }
}

/// Opens a plain file with these options, whose flags are set here.
///
/// # Errors
/// [`PlainFileError::Other`], or what the system says.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_with(path, options, OFlags::empty())
}

/// As [`open`], but a symbolic link in its place is an error: whoever may write in the folder shall not
/// choose the file.
///
/// # Errors
/// As [`open`].
pub fn open_unlinked(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_with(path, options, OFlags::NOFOLLOW)
}

fn open_with(path: &Path, options: &mut OpenOptions, flags: OFlags) -> io::Result<File> {
    // To open some devices does something to them.
    check_place(path)?;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    // It may have come there meanwhile.
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Creates a file beside `path`, to take its place when it is whole: under a name that nothing has, not even
/// a link, and that is not made of the file's own, which may be as long as a name can be.
///
/// # Errors
/// What the system says.
pub fn create_part(path: &Path) -> io::Result<(File, PathBuf)> {
    let process = std::process::id();
    let mut tries = 0;
    loop {
        let number = PARTS.fetch_add(1, Ordering::Relaxed);
        let part = path.with_file_name(format!(".livetime-{process}-{number}.part"));
        tries += 1;
        match File::create_new(&part) {
            // A process with this number was killed at it, or one of another host writes here.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < PARTS_MAX => {}
            created => return created.map(|file| (file, part)),
        }
    }
}

/// Whether a plain file is at a place, or nothing that can be found there.
///
/// # Errors
/// [`PlainFileError::Other`].
pub fn check_place(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) => check(there.file_type()),
        // Whoever opens it hears why.
        Err(_) => Ok(()),
    }
}

fn check(kind: FileType) -> io::Result<()> {
    let found = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => return Err(Errno::ISDIR.into()),
        kind if kind.is_fifo() => "pipe",
        kind if kind.is_socket() => "socket",
        _ => "device",
    };
    Err(PlainFileError::Other { found }.into())
}

/// Reads a plain file, whole.
///
/// # Errors
/// [`PlainFileError`], or what the system says.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_within(open(path, OpenOptions::new().read(true))?, bytes_max)
}

/// Reads a plain file with a text, whole.
///
/// # Errors
/// As [`read`], and of what is no UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_of(read(path, bytes_max)?)
}

/// Reads a text out of anything that has an end, also a pipe, whose writer is waited for: of what a person
/// hands over.
///
/// # Errors
/// [`PlainFileError::TooLong`], or what the system says.
pub fn read_text_from_any(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_of(read_within(File::open(path)?, bytes_max)?)
}

fn read_within(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(PlainFileError::TooLong { max: bytes_max }.into()),
        false => Ok(bytes),
    }
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..at];
        let line_start = before.iter().rposition(|byte| *byte == b'\n');
        let line_start = line_start.map_or(0, |end| end + 1);
        let no_text = PlainFileError::NotUtf8 {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + at - line_start,
            byte: error.as_bytes().get(at).copied().unwrap_or_default(),
        };
        io::Error::new(ErrorKind::InvalidData, no_text)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType as Kind, Mode};

    use super::*;

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("livetime-plain-file-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _stays = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_pipe_a_socket_and_a_device_are_refused_at_once_and_a_file_is_opened() {
        let folder = Folder::new("kinds");
        let at = |name: &str| folder.at(name);
        rustix::fs::mknodat(CWD, at("pipe"), Kind::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        for (path, found) in [
            (at("pipe"), "pipe"),
            (at("socket"), "socket"),
            ("/dev/zero".into(), "device"),
        ] {
            let mut ways = [OpenOptions::new(), OpenOptions::new(), OpenOptions::new()];
            ways[0].read(true);
            ways[1].write(true).create(true).truncate(true);
            ways[2].read(true).write(true).create(true);
            for mut way in ways {
                let said = open(&path, &mut way).unwrap_err();
                assert_eq!(said.to_string(), format!("no plain file but a {found}"));
            }
            read_text(&path, 10).unwrap_err();
        }
        let said = read(&folder.0, 10).unwrap_err();
        assert_eq!(said.kind(), ErrorKind::IsADirectory);
        fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        assert_eq!(read_text(&at("link"), 4).unwrap(), "text");
        open_unlinked(&at("link"), OpenOptions::new().read(true)).unwrap_err();
        open_unlinked(&at("file"), OpenOptions::new().read(true)).unwrap();
    }

    #[test]
    fn no_more_is_read_than_the_bound() {
        let folder = Folder::new("bound");
        let path = folder.at("file");
        fs::write(&path, "text").unwrap();
        for read in [read_text, read_text_from_any] {
            assert_eq!(read(&path, 4).unwrap(), "text");
            let said = read(&path, 3).unwrap_err().to_string();
            assert_eq!(said, "it has more than the 3 bytes that are allowed");
        }
        let said = read_text_from_any(Path::new("/dev/zero"), 100).unwrap_err();
        assert!(said.to_string().contains("more than the 100"), "{said}");
        fs::write(&path, b"\xff").unwrap();
        let said = read_text(&path, 4).unwrap_err();
        assert_eq!(said.kind(), ErrorKind::InvalidData);
    }
}
