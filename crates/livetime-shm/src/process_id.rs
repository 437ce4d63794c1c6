//! Who a process is, in one word that fits an atomic.
//!
//! A process number alone is reused by the kernel; together with the start time it is not. Both
//! are packed into one `u64`, so that a process claims a place in shared memory in one step.

use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Start times are kept in 41 bits: 700 years of uptime at 100 ticks per second.
const START_BITS: u32 = 41;
const START_MASK: u64 = (1 << START_BITS) - 1;

/// A process number (at most 2^22 on Linux) with the time the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId {
    pid: u32,
    start_ticks: u64,
}

impl ProcessId {
    /// This process.
    ///
    /// Where `/proc` is not mounted, or cannot be read now, the start time is 0, and reuse of the number
    /// goes unnoticed.
    pub fn current() -> Self {
        let pid = std::process::id();
        let start_ticks = read_stat(pid).map_or(0, |stat| stat.start_ticks);
        Self { pid, start_ticks }
    }

    /// The process number.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Start time of the process in clock ticks since boot (`starttime` of `proc(5)`).
    pub fn start_ticks(self) -> u64 {
        self.start_ticks
    }

    /// Whether this very process still runs; an exited one that nobody has reaped does not.
    ///
    /// It sees only processes of its own process-number namespace. Where `/proc` does not tell, as
    /// without it, with `hidepid` or at a limit on open files, any process of this number counts: what
    /// a living one holds must not be taken from it.
    pub fn is_alive(self) -> bool {
        match read_stat(self.pid) {
            Ok(stat) => {
                !matches!(stat.state, b'Z' | b'X')
                    && (self.start_ticks == 0 || stat.start_ticks == self.start_ticks)
            }
            Err(_) => is_there(self.pid),
        }
    }

    /// The identity as one non-zero word below 2^63.
    pub fn to_word(self) -> u64 {
        (u64::from(self.pid) << START_BITS) | self.start_ticks
    }

    /// The identity in `word`; whatever `word` is, the result is safe to ask about.
    pub fn from_word(word: u64) -> Self {
        Self {
            pid: (word >> START_BITS) as u32 & 0x3f_ffff,
            start_ticks: word & START_MASK,
        }
    }
}

/// Whether the kernel knows a process of this number, ours or not.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)))
}

struct ProcessStat {
    state: u8,
    start_ticks: u64,
}

/// Reads state (field 3) and start time (field 22) of `/proc/PID/stat`.
fn read_stat(pid: u32) -> io::Result<ProcessStat> {
    let line = fs::read(format!("/proc/{pid}/stat"))?;
    parse_stat(&line).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_stat(line: &[u8]) -> Option<ProcessStat> {
    // The command name in field 2 may hold spaces and brackets: count from its last bracket.
    let after_name = line.iter().rposition(|&byte| byte == b')')? + 2;
    let rest = std::str::from_utf8(line.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let start_ticks: u64 = fields.nth(18)?.parse().ok()?;
    Some(ProcessStat {
        state,
        start_ticks: start_ticks & START_MASK,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn this_process_lives_and_survives_packing() {
        let own = ProcessId::current();
        assert!(own.is_alive());
        assert_eq!(ProcessId::from_word(own.to_word()), own);
        assert!(own.to_word() != 0 && own.to_word() < 1 << 63);
    }

    #[test]
    fn another_start_time_is_another_process() {
        let own = ProcessId::current();
        let earlier = ProcessId {
            pid: own.pid,
            start_ticks: own.start_ticks - 1,
        };
        assert!(!earlier.is_alive());
    }

    #[test]
    fn an_exited_child_is_dead_before_it_is_reaped() {
        let mut child = Command::new("true").spawn().unwrap();
        let watch = crate::peer::PeerWatch::process(child.id()).unwrap();
        assert!(watch.wait_gone(std::time::Duration::from_secs(60)).unwrap());
        assert!(
            !ProcessId {
                pid: child.id(),
                start_ticks: 0
            }
            .is_alive()
        );
        child.wait().unwrap();
    }

    #[test]
    fn any_word_can_be_asked_about() {
        for word in [0, 1, u64::MAX, 1 << 63, START_MASK] {
            let id = ProcessId::from_word(word);
            assert!(!id.is_alive(), "{id:?}");
        }
    }
}
