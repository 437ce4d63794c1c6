//! What a call came to: a status for the caller to compare, a text for people.
//!
//! The text is kept per thread. Panics end here: a call that panics returns
//! [`Status::ErrorInternal`].

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use livetime_client::FileError;
use livetime_store::{OpenError, ReadError};

/// What a call came to.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// There is no further event or fragment, or no such one.
    End = 1,
    /// A pointer is null, a path or a value is not usable, or a child made by `fork` uses what is its
    /// parent's.
    ErrorArgument = 2,
    /// The file cannot be read; or the timing daemon is not there, or does not answer.
    ErrorIo = 3,
    /// The file is not a run file.
    ErrorFormat = 4,
    /// What was asked for is there and damaged.
    ErrorDamaged = 5,
    /// A bug of this library; the handle can only be closed.
    ErrorInternal = 6,
    /// The timing daemon refuses: the user may not do this or come at all, a value is not one that
    /// it takes, or all that it has of something, as places for clients, is taken.
    ErrorRefused = 7,
}

/// A call that did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::new(Status::ErrorArgument, format!("`{name}` is null"))
    }

    pub(crate) fn open(path: &str, error: &OpenError) -> Self {
        match error {
            OpenError::Io(error) => Self::io(path, error),
            OpenError::NotRunFile { .. } | OpenError::OtherRun { .. } | OpenError::Copy { .. } => {
                Self::new(Status::ErrorFormat, format!("{path}: {error}"))
            }
        }
    }

    pub(crate) fn io(path: &str, error: &std::io::Error) -> Self {
        let inner = error.get_ref();
        let of_file = inner.and_then(|inner| inner.downcast_ref::<FileError>());
        let text = match of_file {
            Some(FileError { path, error }) => format!("{}: {error}", path.display()),
            None => format!("{path}: {error}"),
        };
        Self::new(Status::ErrorIo, text)
    }

    pub(crate) fn read(path: &str, error: &ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::io(path, error),
            ReadError::Damaged { .. } => {
                Self::new(Status::ErrorDamaged, format!("{path}: {error}"))
            }
        }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs the work of one call; an error becomes a status and the thread's last error, a panic too.
pub(crate) fn guard(work: impl FnOnce() -> Result<Status, Failure>) -> Status {
    // The handle notices that it was left in the middle of a call, see `Run::enter`.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        // A payload whose drop panics would unwind into C.
        std::mem::forget(panic);
        let text = "a bug of the library; please report it with what stderr says";
        Err(Failure::new(Status::ErrorInternal, text))
    });
    match result {
        Ok(status) => status,
        Err(Failure { status, text }) => {
            set_last_error(&text);
            status
        }
    }
}

fn set_last_error(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // Fails only while the thread ends.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
}

/// The text of the thread's last error, empty before the first; valid until the next one.
pub(crate) fn last_error() -> *const c_char {
    let none: &'static CStr = c"";
    LAST_ERROR
        .try_with(|last| last.borrow().as_ptr())
        .unwrap_or(none.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error_text() -> String {
        // SAFETY: `last_error` returns a C string that lives until the next error of this thread.
        let text = unsafe { CStr::from_ptr(last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn panics_and_errors_become_status_and_text() {
        assert_eq!(last_error_text(), "");
        let status = guard(|| panic!("this panic is part of a test"));
        assert_eq!(status, Status::ErrorInternal);
        assert!(last_error_text().starts_with("a bug of the library"));
        assert_eq!(
            guard(|| Err(Failure::new(Status::ErrorIo, "a\0b"))),
            Status::ErrorIo
        );
        assert_eq!(last_error_text(), "a b");
        assert_eq!(guard(|| Ok(Status::End)), Status::End);
        assert_eq!(last_error_text(), "a b", "a success leaves it");
        let other_thread = std::thread::spawn(last_error_text).join();
        assert_eq!(other_thread.unwrap(), "");
    }
}
