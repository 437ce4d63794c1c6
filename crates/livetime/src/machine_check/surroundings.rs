//! Checks 13 to 15: network, storage and time of day.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};

use super::{Check, Context, Entry, Question, Status};

pub(super) const CHECKS: [Entry; 3] = [(13, network), (14, storage), (15, time_of_day)];

/// Socket buffer that a builder unit takes from many readout units at once.
const RECEIVE_BUFFER: i64 = 8 << 20;
/// Bytes of one block of the write test.
const BLOCK: usize = 1 << 20;
/// Free space of a run of some minutes.
const FREE_NEEDED: u64 = 1 << 30;

fn network(context: &Context) -> Check {
    let question = Question {
        id: 13,
        name: "network",
        threshold: "net.core.rmem_max 8 MiB or more; MTU 9000 on data interfaces",
        why: "exhausted socket buffers were where the Level-3 farm lost its events",
    };
    let system = &context.system;
    let interfaces: Vec<String> = system
        .names("/sys/class/net")
        .into_iter()
        .filter(|name| name != "lo")
        .map(|name| {
            let mtu = system.number(&format!("/sys/class/net/{name}/mtu"));
            let queues = system.names(&format!("/sys/class/net/{name}/queues"));
            let receive = queues
                .iter()
                .filter(|queue| queue.starts_with("rx"))
                .count();
            format!(
                "{name} MTU {} with {receive} receive queues",
                mtu.unwrap_or(0)
            )
        })
        .collect();
    let has_list = system.has("/sys/class/net");
    let maximum = system.number("/proc/sys/net/core/rmem_max");
    let poll = system.number("/proc/sys/net/core/busy_poll").unwrap_or(0);
    let value = format!(
        "rmem_max {}, busy_poll {poll} us, {}",
        maximum.map_or("unknown".to_owned(), |bytes| format!("{} KiB", bytes >> 10)),
        match (interfaces.is_empty(), has_list) {
            (true, true) => "no interface".to_owned(),
            (true, false) => "interfaces unknown".to_owned(),
            (false, _) => interfaces.join(", "),
        }
    );
    let status = match maximum {
        _ if !has_list => Status::Unknown,
        _ if interfaces.is_empty() => Status::NotApplicable,
        None => Status::Unknown,
        Some(bytes) if bytes >= RECEIVE_BUFFER => Status::Pass,
        Some(_) => Status::Warn,
    };
    let fix = "sysctl -w net.core.rmem_max=16777216 net.core.wmem_max=16777216; on data interfaces \
               ip link set dev NAME mtu 9000 and ethtool -C NAME rx-usecs 0";
    question.answer(status, value, fix)
}

fn storage(context: &Context) -> Check {
    let question = Question {
        id: 14,
        name: "storage",
        threshold: "1 GiB free or more, 100 MB/s written, 99 % of syncs in 50 ms",
        why: "a disk that is full or stalls stops the run, or raises its dead time",
    };
    let free = rustix::fs::statvfs(&context.directory).map(|stat| stat.f_bavail * stat.f_frsize);
    let written = write_test(&context.directory, Duration::from_secs(2));
    let fix = "give the run a directory on another disk with --directory or [run] directory";
    match (free, written) {
        (Ok(free), Ok(test)) => {
            let value = format!(
                "{} MiB free, {:.0} MB/s, sync median {:.1} ms, 99 % {:.1} ms",
                free >> 20,
                test.mb_per_s,
                test.sync_p50_ms,
                test.sync_p99_ms
            );
            let status = if free < FREE_NEEDED / 16 {
                Status::Fail
            } else if free < FREE_NEEDED || test.mb_per_s < 100.0 || test.sync_p99_ms > 50.0 {
                Status::Warn
            } else {
                Status::Pass
            };
            question.answer(status, value, fix)
        }
        (free, written) => {
            let error = (free.err().map(|error| error.to_string()))
                .or(written.err().map(|error| error.to_string()))
                .unwrap_or_default();
            let value = format!("{} cannot be written: {error}", context.directory.display());
            question.answer(Status::Fail, value, fix)
        }
    }
}

struct WriteTest {
    mb_per_s: f64,
    sync_p50_ms: f64,
    sync_p99_ms: f64,
}

/// Writes and syncs blocks to a file without a name for a while.
fn write_test(directory: &Path, duration: Duration) -> std::io::Result<WriteTest> {
    let path = directory.join(format!(".livetime-doctor-{}", std::process::id()));
    let mut file = File::create_new(&path)?;
    // Removed at once: nothing is left behind whatever happens.
    std::fs::remove_file(&path)?;
    let block = vec![0x5A_u8; BLOCK];
    let (start, mut bytes, mut syncs_ms) = (Instant::now(), 0_u64, Vec::new());
    while start.elapsed() < duration && bytes < 512 << 20 {
        file.write_all(&block)?;
        let sync = Instant::now();
        file.sync_data()?;
        syncs_ms.push(sync.elapsed().as_secs_f64() * 1e3);
        bytes += BLOCK as u64;
    }
    let mb_per_s = bytes as f64 * 1e-6 / start.elapsed().as_secs_f64();
    syncs_ms.sort_by(f64::total_cmp);
    let at = |share: f64| syncs_ms[((syncs_ms.len() - 1) as f64 * share).round() as usize];
    Ok(WriteTest {
        mb_per_s,
        sync_p50_ms: at(0.5),
        sync_p99_ms: at(0.99),
    })
}

fn time_of_day(context: &Context) -> Check {
    let question = Question {
        id: 15,
        name: "time of day",
        threshold: "a synchronised clock, TAI offset set",
        why: "events of several hosts are put in order by their times; TAI has no leap seconds",
    };
    let system = &context.system;
    let daemons: Vec<&str> = ["chronyd", "ptp4l", "phc2sys", "systemd-timesyn", "ntpd"]
        .into_iter()
        .filter(|daemon| system.is_running(daemon))
        .collect();
    let sees_processes = system.has("/proc/self");
    let offset = tai_offset_s();
    let has_ptp = !system.names("/sys/class/ptp").is_empty();
    let value = format!(
        "{}, TAI {offset} s ahead of UTC, {}",
        match (daemons.is_empty(), sees_processes) {
            (true, true) => "nothing synchronises the clock".to_owned(),
            (true, false) => "what synchronises the clock is unknown".to_owned(),
            (false, _) => daemons.join(", "),
        },
        if has_ptp {
            "PTP clock there"
        } else {
            "no PTP clock"
        }
    );
    let status = match (daemons.is_empty(), offset) {
        (_, 0) => Status::Warn,
        (true, _) if sees_processes => Status::Warn,
        (true, _) => Status::Unknown,
        (false, _) => Status::Pass,
    };
    let fix = "start chronyd (or ptp4l and phc2sys), with leapsectz right/UTC so that it sets the TAI offset";
    question.answer(status, value, fix)
}

/// Seconds by which the kernel's TAI is ahead of its UTC; 0 if nobody told it.
fn tai_offset_s() -> i64 {
    let Ok(tai) = clock_gettime_dynamic(DynamicClockId::Tai) else {
        return 0;
    };
    let utc = clock_gettime(ClockId::Realtime);
    let ns = (tai.tv_sec - utc.tv_sec) * 1_000_000_000 + (tai.tv_nsec - utc.tv_nsec);
    (ns + 500_000_000).div_euclid(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_write_test_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let test = write_test(directory.path(), Duration::from_millis(20)).unwrap();
        assert!(test.mb_per_s > 0.0 && test.sync_p99_ms >= test.sync_p50_ms);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let missing = directory.path().join("none");
        assert!(write_test(&missing, Duration::ZERO).is_err());
    }
}
