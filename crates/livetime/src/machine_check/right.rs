//! Checks 8 to 10: what this user may do: real-time scheduling, locked memory, huge pages.

use super::system::System;
use super::{Check, Context, Entry, Question, Status, pass_if_read};

pub(super) const CHECKS: [Entry; 3] = [(8, real_time_scheduling), (9, memory), (10, huge_pages)];

/// Priority that is tried.
const PRIORITY: u8 = 10;
/// Huge pages of 2 MiB that the default pools of a run take.
const HUGE_PAGES_NEEDED: u64 = 32;

/// Tries something on a thread of its own, which ends with it; `None` where the system gives no thread.
fn on_a_thread<T: Send>(what: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, what);
        thread.ok()?.join().ok()
    })
}

fn real_time_scheduling(context: &Context) -> Check {
    let question = Question {
        id: 8,
        name: "real-time scheduling",
        threshold: "SCHED_FIFO may be had, throttling is off",
        why: "with normal scheduling any program may take the core; throttled FIFO loses 50 ms a second",
    };
    let asked = on_a_thread(|| livetime_shm::request_fifo(PRIORITY).is_ok());
    let granted = asked == Some(true);
    let runtime = context
        .system
        .number("/proc/sys/kernel/sched_rt_runtime_us");
    let is_unthrottled = runtime == Some(-1);
    let value = format!(
        "FIFO {}, runtime {}",
        match asked {
            Some(true) => "granted",
            Some(false) => "refused",
            None => "unknown: no thread to ask on",
        },
        match runtime {
            Some(-1) => "not limited".to_owned(),
            Some(us) => format!("{us} us of each second"),
            None => "unknown".to_owned(),
        }
    );
    let status = match (asked, runtime) {
        (Some(false), _) => Status::Warn,
        (Some(true), Some(_)) if is_unthrottled => Status::Pass,
        (Some(true), Some(_)) => Status::Warn,
        (None, _) | (_, None) => Status::Unknown,
    };
    let fix = if granted {
        "sysctl -w kernel.sched_rt_runtime_us=-1, with a core left for everything else"
    } else {
        "allow rtprio in /etc/security/limits.d, or setcap cap_sys_nice=ep on the program"
    };
    question.answer(status, value, fix)
}

/// The field of a line such as `SwapTotal: 12 kB`.
fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn memory(context: &Context) -> Check {
    let question = Question {
        id: 9,
        name: "memory",
        threshold: "512 MiB or more may be locked, no swap in use, no page fault in a loop",
        why: "a page that is fetched back stops the loop for microseconds, from disk for milliseconds",
    };
    let system = &context.system;
    let limits = system.text("/proc/self/limits");
    let meminfo = system.text("/proc/meminfo");
    let is_read = limits.is_some() && meminfo.is_some();
    let locked = (limits.unwrap_or_default())
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))
        .and_then(|rest| rest.split_whitespace().next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned());
    let is_enough = locked == "unlimited"
        || locked
            .parse()
            .map_or(!is_read, |bytes: u64| bytes >= 512 << 20);
    let meminfo = meminfo.unwrap_or_default();
    let total = field_kib(&meminfo, "SwapTotal").unwrap_or(0);
    let used = total - field_kib(&meminfo, "SwapFree").unwrap_or(total).min(total);
    let faults = if context.is_quick {
        None
    } else {
        on_a_thread(|| faults_of_a_loop(system)).flatten()
    };
    let value = format!(
        "{} may be locked, {} of swap in use, swappiness {}{}",
        match locked.parse::<u64>() {
            Ok(bytes) => format!("{} KiB", bytes >> 10),
            Err(_) => locked.clone(),
        },
        match meminfo.is_empty() {
            true => "unknown".to_owned(),
            false => format!("{used} KiB"),
        },
        (system.text("/proc/sys/vm/swappiness")).unwrap_or_else(|| "unknown".to_owned()),
        faults.map_or(String::new(), |n| format!(", {n} page faults in a loop"))
    );
    let status = if is_enough && used == 0 && faults.unwrap_or(0) == 0 {
        pass_if_read(is_read)
    } else {
        Status::Warn
    };
    question.answer(
        status,
        value,
        "allow memlock unlimited in /etc/security/limits.d; swapoff -a; sysctl -w vm.swappiness=0",
    )
}

/// Page faults of this thread over a tenth of a second of looking at memory it had touched.
fn faults_of_a_loop(system: &System) -> Option<u64> {
    let faults = || {
        let stat = system.text("/proc/thread-self/stat")?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(field(7)? + field(9)?)
    };
    // Not zero: zeroed memory is only there when it is first touched.
    let mut touched = vec![1_u8; 1 << 20];
    // The first reading allocates, so that the second finds its memory there.
    faults()?;
    let before = faults()?;
    let start = std::time::Instant::now();
    let mut sum = 0_u64;
    while start.elapsed().as_millis() < 100 {
        for byte in touched.iter_mut().step_by(4096) {
            *byte = byte.wrapping_add(1);
            sum += u64::from(*byte);
        }
    }
    std::hint::black_box(sum);
    // Reading the file may itself fault once or twice.
    Some(faults()?.saturating_sub(before).saturating_sub(4))
}

fn huge_pages(context: &Context) -> Check {
    let question = Question {
        id: 10,
        name: "huge pages",
        threshold: "32 free pages of 2 MiB; transparent ones on request or never",
        why: "pools in huge pages miss the translation cache less; the kernel's own merging stops threads",
    };
    let meminfo = context.system.text("/proc/meminfo");
    let free = (meminfo.as_deref()).map(|text| field_kib(text, "HugePages_Free").unwrap_or(0));
    let transparent = context
        .system
        .choice("/sys/kernel/mm/transparent_hugepage/enabled")
        .unwrap_or_else(|| "unknown".to_owned());
    let is_mounted = context
        .system
        .text("/proc/mounts")
        .is_some_and(|mounts| mounts.contains(" hugetlbfs "));
    let is_good = free.is_none_or(|free| free >= HUGE_PAGES_NEEDED) && transparent != "always";
    let status = match is_good {
        true => pass_if_read(free.is_some() && transparent != "unknown"),
        false => Status::Warn,
    };
    let value = format!(
        "{} free, transparent {transparent}, hugetlbfs {}",
        free.map_or("unknown".to_owned(), |free| free.to_string()),
        if is_mounted { "mounted" } else { "not mounted" }
    );
    let fix =
        "sysctl -w vm.nr_hugepages=64; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    question.answer(status, value, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_meminfo_are_read() {
        let text = "MemTotal: 100 kB\nSwapTotal:  2048 kB\nHugePages_Free:  7\n";
        assert_eq!(field_kib(text, "SwapTotal"), Some(2048));
        assert_eq!(field_kib(text, "HugePages_Free"), Some(7));
        assert_eq!(field_kib(text, "SwapFree"), None);
    }
}
