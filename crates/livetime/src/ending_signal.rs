//! The signals that end a run or a daemon in order: Ctrl-C, SIGTERM, and the end of its terminal,
//! unless that is to be outlived (`nohup`). That of a file that may not grow ends nothing.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// Which they are for this process. They come to the thread that asks, whatever was blocked by the
/// program that started this one.
pub(crate) fn ending_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    let named = signals
        .iter()
        .filter_map(|number| Signal::try_from(*number).ok());
    // It fails for no set of signals that there are.
    let _never_fails = named.collect::<SigSet>().thread_unblock();
    signals
}

/// Makes of a file beyond `ulimit -f` an error of the write, as of a disk that is full: the signal that
/// comes with it ends a program before it has said or closed anything.
pub(crate) fn outlive_file_limit() {
    // A handler, since an exec takes none along: a program that is started from here has its own way.
    let _seen = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Whether a terminal that ends tells so. It may say it twice, and means no more by that.
pub(crate) fn is_hang_up(signal: i32) -> bool {
    signal == SIGHUP
}

/// Whether a process ignores a signal, as its status in `/proc` says.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_status() {
        let status = "Name:\tlivetime\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP), "nothing is known");
    }
}
