//! Listeners by the clock: when gaps and restarts are, how long a wait is; and what C is told.

use std::ffi::{CStr, c_char};
use std::os::unix::net::UnixListener;
use std::ptr::null_mut;
use std::time::Duration;

use livetime_capi::call::livetime_last_error;
use livetime_capi::status::Status;
use livetime_capi::timing::{TimingFilter, TimingListener};
use livetime_capi::timing_call::{
    livetime_timing_close, livetime_timing_inject, livetime_timing_open,
};
use livetime_client::{
    Address, EventId, Filter, Listener, RecordKind, SubscriptionOptions, TaiNs, TimingClient,
    TimingRecord,
};
use livetime_timing_daemon::{AccessRules, Daemon};

use crate::stage::{LONG, Stage, config, stage, stage_with, uid};

fn next(listener: &mut Listener) -> TimingRecord {
    listener.next(LONG).unwrap().unwrap()
}

fn socket_of(stage: &Stage) -> std::path::PathBuf {
    match &stage.address {
        Address::Socket(socket) => socket.clone(),
        other => panic!("{other} is no socket"),
    }
}

/// The clock is the machine's, of which TAI is some tens of seconds ahead of UTC.
#[test]
fn gaps_and_restarts_have_the_time_of_the_messages() {
    let stage = stage_with(|config| config.virtual_start = None);
    let options = SubscriptionOptions {
        slots: 4,
        ..SubscriptionOptions::default()
    };
    let mut listener = Listener::start(&stage.address, &[Filter::ALL], &options).unwrap();
    let time = |listener: &Listener| listener.client().unwrap().raw_time().unwrap();
    for n in 0..10 {
        let client = listener.client().unwrap();
        client.inject(EventId(1), n, TaiNs(0)).unwrap();
    }
    while listener.subscription().unwrap().behind() < 10 {
        std::thread::yield_now();
    }
    let gap = next(&mut listener);
    assert_eq!(gap.kind, RecordKind::Gap);
    for _ in gap.id..10 {
        let message = next(&mut listener);
        assert_eq!(message.kind, RecordKind::Message);
        assert!(message.executed <= gap.executed, "{message:?} {gap:?}");
    }
    let before = time(&listener);
    assert!(gap.executed <= before, "{gap:?} {before:?}");
    let socket = socket_of(&stage);
    let Stage { daemon, folder, .. } = stage;
    drop(daemon);
    let mut config = config(socket);
    config.virtual_start = None;
    let daemon = Daemon::start(&config).unwrap();
    let restart = next(&mut listener);
    assert_eq!(restart.kind, RecordKind::Restart);
    assert!((before..=time(&listener)).contains(&restart.executed));
    drop((daemon, folder));
}

/// What an admin destroys is made anew, which is no restart of the daemon and is not counted as one.
#[test]
fn a_listener_whose_sink_or_condition_is_destroyed_says_so_and_listens_on() {
    let stage = stage();
    let options = SubscriptionOptions::default();
    let mut listener = Listener::start(&stage.address, &[Filter::ALL], &options).unwrap();
    let admin = TimingClient::connect(&stage.address).unwrap();
    let epoch = admin.epoch().unwrap();
    for turn in 0..4 {
        let (sink, condition) = stage.daemon.control().read(|registry| {
            let condition = registry.conditions().next().unwrap();
            let sink = registry.sink(condition.spec.sink).unwrap();
            let sink = format!("/org/livetime/Timing1/tr0/{}", sink.spec.name);
            let id = condition.id;
            let condition = format!("{sink}/c{}_{}", id.slot(), id.generation());
            (sink, condition)
        });
        let path = if turn % 2 == 0 { sink } else { condition };
        admin.destroy(&path).unwrap();
        let renewal = next(&mut listener);
        assert!(renewal.is_renewal(), "{path}: {renewal:?}");
        assert_eq!(renewal.epoch, epoch);
        let now = admin.raw_time().unwrap();
        admin
            .inject(EventId(1), turn, TaiNs(now.0 + 50_000))
            .unwrap();
        admin.advance_clock(TaiNs(now.0 + 60_000)).unwrap();
        assert_eq!(next(&mut listener).param, turn, "{path}");
    }
    assert_eq!(listener.restarts(), 0);
}

/// Whoever takes the place of a daemon and does not answer makes no wait longer, and the next
/// daemon is found.
#[test]
fn a_wait_ends_at_its_timeout_while_nobody_answers_at_the_daemons_place() {
    let stage = stage();
    let options = SubscriptionOptions::default();
    let mut listener = Listener::start(&stage.address, &[Filter::ALL], &options).unwrap();
    let socket = socket_of(&stage);
    let Stage { daemon, folder, .. } = stage;
    drop(daemon);
    let _ = std::fs::remove_file(&socket);
    let mute = UnixListener::bind(&socket).unwrap();
    let short = Some(Duration::from_millis(5));
    assert_eq!(listener.next(short).unwrap(), None);
    let taken = mute.accept().unwrap();
    assert_eq!(listener.next(short).unwrap(), None);
    assert!(listener.client().is_none());
    std::fs::remove_file(&socket).unwrap();
    let daemon = Daemon::start(&config(socket)).unwrap();
    drop((mute, taken));
    assert_eq!(next(&mut listener).kind, RecordKind::Restart);
    drop((daemon, folder));
}

fn last_error() -> String {
    // SAFETY: a C string that lives until the next error of this thread.
    let text = unsafe { CStr::from_ptr(livetime_last_error()) };
    text.to_str().unwrap().to_owned()
}

fn open(address: *const c_char, slots: u32) -> (Status, *mut TimingListener) {
    let filter = TimingFilter {
        id: 0,
        mask: 0,
        offset_ns: 0,
        slots,
        spin: false,
    };
    let mut listener = null_mut();
    // SAFETY: a C string or null, a filter, and a place for the handle.
    let status = unsafe { livetime_timing_open(address, &raw const filter, &raw mut listener) };
    (status, listener)
}

#[test]
fn what_the_daemon_refuses_has_a_status_of_its_own() {
    let stage = stage_with(|config| {
        let rules = format!("user {} observe", uid());
        config.rules = AccessRules::parse(&rules).unwrap();
    });
    let address = std::ffi::CString::new(stage.address.to_string()).unwrap();
    assert_eq!(
        open(address.as_ptr(), 3),
        (Status::ErrorRefused, null_mut())
    );
    assert!(last_error().contains("3 slots"), "{}", last_error());
    let (status, listener) = open(address.as_ptr(), 0);
    assert_eq!(status, Status::Ok);
    // SAFETY: an open listener, closed once and not used afterwards.
    unsafe {
        let status = livetime_timing_inject(listener, 1, 1, 1);
        assert_eq!(status, Status::ErrorRefused);
        assert!(last_error().contains("operate"), "{}", last_error());
        livetime_timing_close(listener);
    }
    assert_eq!(open(c"".as_ptr(), 0), (Status::ErrorArgument, null_mut()));
    assert!(
        last_error().contains("`` is no address"),
        "{}",
        last_error()
    );
    let nobody = stage.folder.path().join("none.sock").display().to_string();
    let nobody = std::ffi::CString::new(nobody).unwrap();
    assert_eq!(open(nobody.as_ptr(), 0), (Status::ErrorIo, null_mut()));
}

#[test]
fn whom_the_daemon_turns_away_is_refused() {
    let stage = stage_with(|config| config.rules = AccessRules::parse("others none").unwrap());
    let address = std::ffi::CString::new(stage.address.to_string()).unwrap();
    assert_eq!(
        open(address.as_ptr(), 0),
        (Status::ErrorRefused, null_mut())
    );
    assert!(last_error().contains("no role"), "{}", last_error());
}
