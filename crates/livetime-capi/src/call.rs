//! The functions of the library.
//!
//! Each checks the pointers that it is given, does its work in [`Run`] under the guard of
//! [`crate::status`], and writes the result through the caller's pointer. A run may be used by any
//! thread, by one at a time.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use livetime_wire::TriggerNumber;

use crate::record::{Damage, Event, Fragment, RunInfo};
use crate::run::Run;
use crate::status::{Failure, Status, guard, last_error};

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn livetime_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What the last call of this thread that failed said, in words; empty before the first. While the
/// thread ends it may be empty: in destructors of its thread-specific data and, of the main thread,
/// in what `atexit` calls and in destructors of libraries. Valid until the next call of this thread
/// that fails.
#[unsafe(no_mangle)]
pub extern "C" fn livetime_last_error() -> *const c_char {
    last_error()
}

/// Opens a run directory such as `runs/000042`, or its `events.mcap`, and sets `*run`.
///
/// The run need not be finished: of a file that is being written, or was cut off, what is complete
/// is read. On an error `*run` is null.
///
/// # Safety
/// `path` is a C string or null, `run` valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_open(path: *const c_char, run: *mut *mut Run) -> Status {
    guard(|| {
        if run.is_null() {
            return Err(Failure::null("run"));
        }
        // SAFETY: not null, and valid for writing by this function's contract.
        unsafe { run.write(std::ptr::null_mut()) };
        if path.is_null() {
            return Err(Failure::null("path"));
        }
        // SAFETY: not null, and a C string by this function's contract.
        let path = unsafe { CStr::from_ptr(path) };
        if path.is_empty() {
            let text = "`path` is empty; give a run directory or a run file";
            return Err(Failure::new(Status::ErrorArgument, text));
        }
        let opened = Run::open(Path::new(OsStr::from_bytes(path.to_bytes())))?;
        // SAFETY: as above.
        unsafe { run.write(Box::into_raw(Box::new(opened))) };
        Ok(Status::Ok)
    })
}

/// Closes a run; everything that it handed out is invalid then. Null is allowed.
///
/// # Safety
/// `run` is null or comes from `livetime_open` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_close(run: *mut Run) {
    guard(|| {
        if !run.is_null() {
            // SAFETY: made by `Box::into_raw` in `livetime_open` and not closed since, by this
            // function's contract.
            drop(unsafe { Box::from_raw(run) });
        }
        Ok(Status::Ok)
    });
}

/// Fills in what is known about the run so far.
///
/// # Safety
/// `run` is null or open, `info` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_info_of(run: *mut Run, info: *mut RunInfo) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { fill(run, info, "info", |run| Ok(Some(run.info()))) }
}

/// Goes to the next event that is whole, in the order of the file, and fills it in;
/// `LIVETIME_STATUS_END` after the last. Damaged events are passed over and listed.
///
/// # Safety
/// `run` is null or open, `event` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_next_event(run: *mut Run, event: *mut Event) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { fill(run, event, "event", Run::next_event) }
}

/// Goes to the event of a trigger and fills it in; `LIVETIME_STATUS_END` if there is none. The
/// order of `livetime_next_event` goes on where it was.
///
/// # Safety
/// `run` is null or open, `event` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_find_event(
    run: *mut Run,
    trigger: u64,
    event: *mut Event,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        fill(run, event, "event", |run| {
            run.find_event(TriggerNumber(trigger))
        })
    }
}

/// Fills in the next fragment of the event that was handed out last; `LIVETIME_STATUS_END` after
/// the last.
///
/// # Safety
/// `run` is null or open, `fragment` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_next_fragment(run: *mut Run, fragment: *mut Fragment) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { fill(run, fragment, "fragment", |run| Ok(run.next_fragment())) }
}

/// Starts again at the first event.
///
/// # Safety
/// `run` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_rewind(run: *mut Run) -> Status {
    let rewind = |run: &mut Run| {
        run.rewind();
        Ok(Some(()))
    };
    // SAFETY: the contracts are the same, and the unit type needs no memory.
    unsafe { fill(run, std::ptr::NonNull::dangling().as_ptr(), "run", rewind) }
}

/// Takes up what was written since the run was opened; `livetime_next_event` then goes on. The files
/// are looked for where they were when the run was opened, whatever the working directory is now.
/// That one of them was cut or replaced is `LIVETIME_STATUS_ERROR_IO`, and the run as it was.
///
/// # Safety
/// `run` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_refresh(run: *mut Run) -> Status {
    // SAFETY: the contracts are the same, and the unit type needs no memory.
    unsafe {
        fill(run, std::ptr::NonNull::dangling().as_ptr(), "run", |run| {
            run.refresh().map(Some)
        })
    }
}

/// Fills in one of the ranges of the files that were passed over so far, counted from 0, and behind
/// them the files that are not there or cannot be read; `LIVETIME_STATUS_END` behind the last. At
/// most 1024 ranges of each file are kept.
///
/// # Safety
/// `run` is null or open, `damage` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_damage_at(
    run: *mut Run,
    index: usize,
    damage: *mut Damage,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { fill(run, damage, "damage", |run| Ok(run.damage(index))) }
}

/// Does `call` on the run and writes what it gives to `out`; nothing is written for `End` and
/// errors.
///
/// # Safety
/// `run` is null, or comes from `livetime_open`, was not closed and is not used by another thread
/// meanwhile; `out` is null or valid for writing.
unsafe fn fill<T>(
    run: *mut Run,
    out: *mut T,
    name: &str,
    call: impl FnOnce(&mut Run) -> Result<Option<T>, Failure>,
) -> Status {
    guard(|| {
        // SAFETY: null or valid and not used elsewhere, by this function's contract.
        let run = unsafe { run.as_mut() }.ok_or_else(|| Failure::null("run"))?;
        if out.is_null() {
            return Err(Failure::null(name));
        }
        run.enter(|run| match call(run)? {
            Some(value) => {
                // SAFETY: not null, and valid for writing by this function's contract.
                unsafe { out.write(value) };
                Ok(Status::Ok)
            }
            None => Ok(Status::End),
        })
    })
}
