//! The functions of the timing client.
//!
//! Each checks the pointers that it is given and does its work in [`TimingListener`] under the
//! guard of [`crate::status`].

use std::ffi::{CStr, c_char};

use crate::status::{Failure, Status, guard};
use crate::timing::{TimingFilter, TimingListener, TimingRecord};

/// Connects to the timing daemon and listens, and sets `*listener`. `address` is the path of its
/// socket, `session`, `system` or `bus:ADDRESS`; null is the usual one. On an error `*listener` is
/// null. Waits at most 20 s for the connection, and for each answer of the daemon. The listener
/// connects again by itself when the daemon is restarted. It is of the process that opened it: a
/// child made by `fork` may close its copy, which the parent's does not notice, and do nothing else
/// with it. Once a process has called this function, children that it forks are refused with
/// `LIVETIME_STATUS_ERROR_ARGUMENT`, unless they call `exec`: fork before the first call.
///
/// # Safety
/// `address` is a C string or null, `filter` null or valid for reading, `listener` null or valid
/// for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_timing_open(
    address: *const c_char,
    filter: *const TimingFilter,
    listener: *mut *mut TimingListener,
) -> Status {
    guard(|| {
        if listener.is_null() {
            return Err(Failure::null("listener"));
        }
        // SAFETY: not null, and valid for writing by this function's contract.
        unsafe { listener.write(std::ptr::null_mut()) };
        // SAFETY: null or valid for reading by this function's contract.
        let filter = unsafe { filter.as_ref() }.ok_or_else(|| Failure::null("filter"))?;
        let address = if address.is_null() {
            None
        } else {
            // SAFETY: not null, and a C string by this function's contract.
            let text = unsafe { CStr::from_ptr(address) }.to_str();
            let not_utf8 = |_| Failure::new(Status::ErrorArgument, "`address` is not UTF-8");
            Some(text.map_err(not_utf8)?)
        };
        let opened = TimingListener::open(address, filter)?;
        // SAFETY: as above.
        unsafe { listener.write(Box::into_raw(Box::new(opened))) };
        Ok(Status::Ok)
    })
}

/// Ends listening. Null is allowed.
///
/// # Safety
/// `listener` is null or comes from `livetime_timing_open` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_timing_close(listener: *mut TimingListener) {
    guard(|| {
        if !listener.is_null() {
            // SAFETY: made by `Box::into_raw` in `livetime_timing_open` and not closed since, by
            // this function's contract.
            drop(unsafe { Box::from_raw(listener) });
        }
        Ok(Status::Ok)
    });
}

/// Waits at most `timeout_ms` milliseconds (negative: for ever) for the next record and writes it
/// to `*record`; `LIVETIME_STATUS_END` when there was none. A daemon that is gone is looked for
/// meanwhile, and after the call.
///
/// # Safety
/// `listener` is null or open, `record` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_timing_next(
    listener: *mut TimingListener,
    timeout_ms: i64,
    record: *mut TimingRecord,
) -> Status {
    guard(|| {
        // SAFETY: null or open, and used by one thread at a time, by this function's contract.
        let listener = unsafe { listener.as_mut() }.ok_or_else(|| Failure::null("listener"))?;
        if record.is_null() {
            return Err(Failure::null("record"));
        }
        match listener.next(timeout_ms)? {
            Some(next) => {
                // SAFETY: not null, and valid for writing by this function's contract.
                unsafe { record.write(next) };
                Ok(Status::Ok)
            }
            None => Ok(Status::End),
        }
    })
}

/// Injects a timing message that is due `lead_ns` nanoseconds from now. More than 2^32 ns ahead
/// it is executed at once and flagged early, by the rules of the hardware; a lead that ends after
/// the last time of 64 bits is refused. Waits at most 20 s for each of two answers of the daemon.
///
/// # Safety
/// `listener` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_timing_inject(
    listener: *mut TimingListener,
    id: u64,
    param: u64,
    lead_ns: u64,
) -> Status {
    guard(|| {
        // SAFETY: null or open, and used by one thread at a time, by this function's contract.
        let listener = unsafe { listener.as_mut() }.ok_or_else(|| Failure::null("listener"))?;
        listener.inject(id, param, lead_ns)?;
        Ok(Status::Ok)
    })
}
