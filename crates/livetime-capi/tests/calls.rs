//! The functions called as C calls them: order of calls, misuse, growing files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod support;

use std::ffi::{CStr, CString};
use std::fs::OpenOptions;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::{null, null_mut};

use livetime_capi::call::{
    livetime_close, livetime_damage_at, livetime_find_event, livetime_info_of, livetime_last_error,
    livetime_next_event, livetime_next_fragment, livetime_open, livetime_refresh, livetime_rewind,
    livetime_version,
};
use livetime_capi::record::{Event, Fragment};
use livetime_capi::run::Run;
use livetime_capi::status::Status;

use support::{MASK, run_bytes, write_run};

fn open(path: &Path) -> *mut Run {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let mut run = null_mut();
    // SAFETY: a C string, and a place for the handle.
    let status = unsafe { livetime_open(path.as_ptr(), &raw mut run) };
    assert_eq!(status, Status::Ok);
    assert!(!run.is_null());
    run
}

fn last_error() -> String {
    // SAFETY: a C string that lives until the next error of this thread.
    unsafe { CStr::from_ptr(livetime_last_error()) }
        .to_str()
        .unwrap()
        .to_owned()
}

/// The value that `call` fills in, or its status.
fn filled<T>(call: impl FnOnce(*mut T) -> Status) -> Result<T, Status> {
    let mut value = MaybeUninit::uninit();
    match call(value.as_mut_ptr()) {
        // SAFETY: calls fill in the value where they return `Ok`.
        Status::Ok => Ok(unsafe { value.assume_init() }),
        status => Err(status),
    }
}

fn next_event(run: *mut Run) -> Result<Event, Status> {
    // SAFETY: an open run and a place for the event.
    filled(|event| unsafe { livetime_next_event(run, event) })
}

fn find_event(run: *mut Run, trigger: u64) -> Result<Event, Status> {
    // SAFETY: an open run and a place for the event.
    filled(|event| unsafe { livetime_find_event(run, trigger, event) })
}

fn next_fragment(run: *mut Run) -> Result<Fragment, Status> {
    // SAFETY: an open run and a place for the fragment.
    filled(|fragment| unsafe { livetime_next_fragment(run, fragment) })
}

#[test]
fn event_and_fragments_are_handed_out_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let run = open(&write_run(folder.path(), "run", &run_bytes(20)));
    assert_eq!(
        next_fragment(run).unwrap_err(),
        Status::End,
        "there is no event yet"
    );
    let event = find_event(run, 14).unwrap();
    assert_eq!(
        (event.trigger, event.triggered_at_ns, event.run),
        (14, 14_000, 42)
    );
    assert_eq!(
        u128::from(event.decision[1]) << 64 | u128::from(event.decision[0]),
        MASK
    );
    assert_eq!((event.filter_reason, event.streams), (3, 9));
    assert_eq!((event.fragment_count, event.missing_count), (4, 2));
    // SAFETY: the event is current, so that its pointers and counts hold.
    let (missing, words) = unsafe {
        (
            std::slice::from_raw_parts(event.missing, event.missing_count as usize),
            std::slice::from_raw_parts(event.words, event.word_count),
        )
    };
    assert_eq!(missing, [77, 78]);
    let mut end = 0;
    for source in 0..4u32 {
        let fragment = next_fragment(run).unwrap();
        assert_eq!(
            (fragment.source, fragment.word_count),
            (source, 14 + source as usize)
        );
        assert_eq!(fragment.status, u32::from((14 + source) % 5 == 0));
        // SAFETY: as for the event.
        let data = unsafe { std::slice::from_raw_parts(fragment.words, fragment.word_count) };
        assert_eq!(data[3], 3 * 0x0101 + source);
        assert!(words.as_ptr_range().contains(&data.as_ptr()), "in place");
        end = data.as_ptr_range().end as usize;
    }
    assert_eq!(end, words.as_ptr_range().end as usize);
    assert_eq!(next_fragment(run).unwrap_err(), Status::End);
    assert_eq!(find_event(run, 21).unwrap_err(), Status::End);
    assert_eq!(
        next_fragment(run).unwrap_err(),
        Status::End,
        "the event before is gone"
    );
    assert_eq!(
        next_event(run).unwrap().trigger,
        1,
        "finding does not move the order"
    );
    assert_eq!(next_event(run).unwrap().trigger, 2);
    // SAFETY: an open run.
    assert_eq!(unsafe { livetime_rewind(run) }, Status::Ok);
    assert_eq!(
        next_fragment(run).unwrap_err(),
        Status::End,
        "rewound before the first"
    );
    let triggers: Vec<u64> = std::iter::from_fn(|| next_event(run).ok())
        .map(|e| e.trigger)
        .collect();
    assert_eq!(triggers, (1..=20).collect::<Vec<_>>());
    // SAFETY: an open run and a place for the information.
    let info = filled(|info| unsafe { livetime_info_of(run, info) }).unwrap();
    assert_eq!(
        (info.number, info.closed, info.started_tai_ns),
        (42, true, 17)
    );
    assert_eq!(
        (info.events_stored, info.events_missing, info.damaged_ranges),
        (20, 0, 0)
    );
    // SAFETY: an open run, not used afterwards.
    unsafe { livetime_close(run) };
}

#[test]
fn null_pointers_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let run = open(&write_run(folder.path(), "run", &run_bytes(1)));
    let path = c"nowhere";
    let mut unset = run;
    // SAFETY: null is allowed by every function here; the others are valid.
    unsafe {
        assert_eq!(
            livetime_open(path.as_ptr(), null_mut()),
            Status::ErrorArgument
        );
        assert_eq!(last_error(), "`run` is null");
        assert_eq!(livetime_open(null(), &raw mut unset), Status::ErrorArgument);
        assert_eq!(last_error(), "`path` is null");
        let empty = livetime_open(c"".as_ptr(), &raw mut unset);
        assert_eq!(empty, Status::ErrorArgument);
        assert!(last_error().starts_with("`path` is empty"));
        assert!(unset.is_null());
        assert_eq!(livetime_next_event(run, null_mut()), Status::ErrorArgument);
        assert_eq!(last_error(), "`event` is null");
        assert_eq!(
            livetime_next_fragment(run, null_mut()),
            Status::ErrorArgument
        );
        assert_eq!(livetime_info_of(run, null_mut()), Status::ErrorArgument);
        assert_eq!(
            livetime_damage_at(run, 0, null_mut()),
            Status::ErrorArgument
        );
        assert_eq!(livetime_rewind(null_mut()), Status::ErrorArgument);
        assert_eq!(livetime_refresh(null_mut()), Status::ErrorArgument);
        assert_eq!(last_error(), "`run` is null");
        livetime_close(null_mut());
        livetime_close(run);
        assert_eq!(
            CStr::from_ptr(livetime_version()).to_str(),
            Ok(env!("CARGO_PKG_VERSION"))
        );
    }
}

#[test]
fn growing_file_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = run_bytes(500);
    let path = write_run(folder.path(), "run", &bytes[..bytes.len() / 2]);
    let run = open(&path);
    let count = || std::iter::from_fn(|| next_event(run).ok()).count();
    let first = count();
    assert!((1..500).contains(&first), "{first}");
    // SAFETY: an open run and a place for the information.
    let info = || filled(|info| unsafe { livetime_info_of(run, info) }).unwrap();
    assert!(!info().closed);
    let mut file = OpenOptions::new()
        .append(true)
        .open(path.join("events.mcap"))
        .unwrap();
    file.write_all(&bytes[bytes.len() / 2..]).unwrap();
    assert_eq!(count(), 0, "nothing changes without refresh");
    // SAFETY: an open run.
    assert_eq!(unsafe { livetime_refresh(run) }, Status::Ok);
    assert_eq!(first + count(), 500);
    assert!(info().closed);
    assert_eq!(info().file_bytes, bytes.len() as u64);
    // SAFETY: an open run, not used afterwards.
    unsafe { livetime_close(run) };
}

#[test]
fn a_file_that_is_gone_is_listed_and_one_that_is_cut_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_run(folder.path(), "run", &run_bytes(500));
    let second = path.join("events.0001.mcap");
    std::fs::rename(path.join("events.mcap"), &second).unwrap();
    let run = open(&path);
    // SAFETY: an open run and a place for the information.
    let info = filled(|info| unsafe { livetime_info_of(run, info) }).unwrap();
    assert!(info.closed, "the file that is there says so");
    assert_eq!((info.events_stored, info.damaged_ranges), (500, 1));
    // SAFETY: an open run and a place for the range.
    let lacking = filled(|damage| unsafe { livetime_damage_at(run, 0, damage) }).unwrap();
    // SAFETY: the text lives until the next call.
    let reason = unsafe { CStr::from_ptr(lacking.reason) }.to_str().unwrap();
    assert_eq!(reason, "events.mcap: the file is not there");
    // SAFETY: an open run and a place for the range.
    let behind = filled(|damage| unsafe { livetime_damage_at(run, 1, damage) });
    assert_eq!(behind.unwrap_err(), Status::End);

    let file = OpenOptions::new().write(true).open(&second).unwrap();
    file.set_len(9000).unwrap();
    // SAFETY: an open run.
    assert_eq!(unsafe { livetime_refresh(run) }, Status::ErrorIo);
    let expected = format!("{}: cut to 9000 bytes", second.display());
    assert!(last_error().starts_with(&expected), "{}", last_error());
    // SAFETY: an open run, not used afterwards.
    unsafe { livetime_close(run) };
}

#[test]
fn damage_is_a_status_when_asked_for_and_a_list_when_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = run_bytes(500);
    let middle = bytes.len() / 2;
    let magic = 0x4C54_4556_u32.to_le_bytes();
    let event_at = middle + bytes[middle..].windows(4).position(|w| w == magic).unwrap();
    let trigger = u64::from(bytes[event_at + 16]) | u64::from(bytes[event_at + 17]) << 8;
    // The time in the header, so that the header's CRC is wrong.
    bytes[event_at + 24] ^= 1;
    let run = open(&write_run(folder.path(), "run", &bytes));
    assert_eq!(find_event(run, trigger).unwrap_err(), Status::ErrorDamaged);
    assert!(
        last_error().contains(&format!("event of trigger {trigger}: ")),
        "{}",
        last_error()
    );
    assert_eq!(find_event(run, trigger + 1).unwrap().trigger, trigger + 1);
    let whole = std::iter::from_fn(|| next_event(run).ok()).count();
    assert_eq!(whole, 499, "all but the one");
    // SAFETY: an open run and a place for the range.
    let damage = filled(|damage| unsafe { livetime_damage_at(run, 0, damage) }).unwrap();
    assert!((damage.offset..damage.offset + damage.bytes).contains(&(event_at as u64)));
    // SAFETY: the text lives until the next call.
    let reason = unsafe { CStr::from_ptr(damage.reason) }.to_str().unwrap();
    assert!(reason.starts_with("checksum of the chunk"), "{reason}");
    // Of the chunk, the event that is damaged itself.
    // SAFETY: an open run and a place for the range.
    let event = filled(|damage| unsafe { livetime_damage_at(run, 1, damage) }).unwrap();
    assert_eq!(event.offset, event_at as u64);
    // SAFETY: an open run and a place for the range.
    let behind = filled(|damage| unsafe { livetime_damage_at(run, 2, damage) });
    assert_eq!(behind.unwrap_err(), Status::End);
    // SAFETY: an open run, not used afterwards.
    unsafe { livetime_close(run) };
}
