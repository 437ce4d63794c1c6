//! Checks 1, 2, 3 and 17: the machine itself, its kernel, its clock and the tools on it.

use std::path::Path;

use livetime_shm::{MonotonicClock, TickSource, TscClock};

use super::system::System;
use super::{Check, Context, Entry, Question, Status};

pub(super) const CHECKS: [Entry; 4] = [
    (1, virtual_machine),
    (2, kernel),
    (3, time_stamp_counter),
    (17, tools),
];

/// Whether the processor says that it is a guest's.
pub(super) fn is_virtual(system: &System) -> bool {
    let cpuinfo = system.text("/proc/cpuinfo").unwrap_or_default();
    has_flag(&cpuinfo, "hypervisor")
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|word| word == flag))
}

/// Time that the host gave to others, as a share of all since boot.
fn steal_share(system: &System) -> Option<f64> {
    let stat = system.text("/proc/stat")?;
    let line = stat.lines().next()?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let all: u64 = ticks.iter().take(8).sum();
    Some(*ticks.get(7)? as f64 / all.max(1) as f64)
}

fn virtual_machine(context: &Context) -> Check {
    let question = Question {
        id: 1,
        name: "virtual machine",
        threshold: "bare metal",
        why: "a host may take the core away at any time: long tails say nothing about the program",
    };
    let is_virtual = is_virtual(&context.system);
    let steal = steal_share(&context.system).unwrap_or(0.0);
    let value = if is_virtual {
        format!("yes, {:.2} % of the time stolen since boot", 100.0 * steal)
    } else {
        "no".to_owned()
    };
    let status = if is_virtual {
        Status::Warn
    } else {
        Status::Pass
    };
    question.answer(
        status,
        value,
        "measure tails on bare metal; counts and medians hold here",
    )
}

fn kernel(context: &Context) -> Check {
    let question = Question {
        id: 2,
        name: "kernel",
        threshold: "PREEMPT_RT, or PREEMPT with NO_HZ_FULL",
        why: "a kernel that can be preempted wakes a waiting thread sooner; a spinning one needs no tick",
    };
    let system = &context.system;
    let release = system.text("/proc/sys/kernel/osrelease");
    let release = release.unwrap_or_else(|| "unknown".to_owned());
    let version = system.text("/proc/sys/kernel/version").unwrap_or_default();
    let is_realtime =
        system.number("/sys/kernel/realtime") == Some(1) || version.contains("PREEMPT_RT");
    let config = system
        .text(&format!("/boot/config-{release}"))
        .unwrap_or_default();
    let hertz = config
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ="))
        .map_or(String::new(), |hertz| format!(", {hertz} Hz"));
    let is_tickless =
        config.contains("CONFIG_NO_HZ_FULL=y") || system.has("/sys/devices/system/cpu/nohz_full");
    let model = if is_realtime {
        "PREEMPT_RT"
    } else if version.contains("PREEMPT_DYNAMIC") {
        "PREEMPT_DYNAMIC"
    } else if version.contains("PREEMPT") {
        "PREEMPT"
    } else {
        "not preemptible"
    };
    let tickless = if is_tickless {
        "NO_HZ_FULL"
    } else {
        "no NO_HZ_FULL"
    };
    let status = if is_realtime || (model.starts_with("PREEMPT") && is_tickless) {
        Status::Pass
    } else {
        Status::Warn
    };
    let value = format!("{release}, {model}, {tickless}{hertz}");
    question.answer(
        status,
        value,
        "install your distribution's real-time kernel, or one with NO_HZ_FULL",
    )
}

fn time_stamp_counter(context: &Context) -> Check {
    let question = Question {
        id: 3,
        name: "time-stamp counter",
        threshold: "constant, nonstop, rdtscp, clocksource tsc, 0.1 % from CLOCK_MONOTONIC",
        why: "latencies are differences of this counter, on two cores",
    };
    let cpuinfo = context.system.text("/proc/cpuinfo").unwrap_or_default();
    let missing: Vec<&str> = ["constant_tsc", "nonstop_tsc", "rdtscp"]
        .into_iter()
        .filter(|flag| !has_flag(&cpuinfo, flag))
        .collect();
    let source = context
        .system
        .text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".to_owned());
    let clock = TscClock::calibrate();
    let (deviation_ppm, offset_ns) = (deviation_ppm(&clock), cross_core_offset_ns(&clock));
    let value = format!(
        "{}, clocksource {source}, {:.0} MHz, {deviation_ppm:.0} ppm from the kernel's clock, \
         {offset_ns} ns between cores at most",
        if missing.is_empty() {
            "all flags".to_owned()
        } else {
            format!("without {}", missing.join(", "))
        },
        clock.rate_hz() * 1e-6
    );
    let fix = "boot with tsc=reliable clocksource=tsc if the processor has the flags";
    let is_tsc = clock.source() == TickSource::TimeStampCounter;
    let status = if is_tsc && (deviation_ppm.abs() > 1000.0 || offset_ns > 10_000) {
        Status::Fail
    } else if !missing.is_empty() || source != "tsc" || !is_tsc || offset_ns > 200 {
        Status::Warn
    } else {
        Status::Pass
    };
    question.answer(status, value, fix)
}

/// How far the calibrated counter runs from the kernel's clock, over 20 ms.
fn deviation_ppm(clock: &TscClock) -> f64 {
    let kernel = MonotonicClock::start();
    let (ticks, start) = (clock.ticks(), kernel.now_ns());
    while kernel.now_ns() - start < 20_000_000 {
        std::hint::spin_loop();
    }
    let (counted, passed) = (
        clock.ticks_to_ns(clock.ticks().wrapping_sub(ticks)),
        kernel.now_ns() - start,
    );
    (counted as f64 / passed as f64 - 1.0) * 1e6
}

/// The largest step back that the counter makes from one core to another: 0 where all agree as far as
/// a hand-over can tell.
fn cross_core_offset_ns(clock: &TscClock) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    const ROUNDS: u64 = 2000;
    let cores = livetime_shm::allowed_cpus();
    let [first, .., last] = cores.as_slice() else {
        return 0;
    };
    let said = AtomicU64::new(0);
    let turn = AtomicU64::new(0);
    // Each side reads its counter after it saw the other's: it may never be earlier.
    let play = |core: usize, side: u64| {
        if livetime_shm::pin_current_thread(core).is_err() {
            return 0;
        }
        let mut back = 0;
        for round in 0..ROUNDS {
            let mine = round * 2 + side;
            let mut polls = 0_u64;
            // Pairs with the Release store of the other side.
            while turn.load(Ordering::Acquire) != mine {
                polls += 1;
                if polls > 1000 {
                    std::thread::yield_now();
                }
            }
            let now = clock.ticks();
            back = back.max(said.load(Ordering::Relaxed).saturating_sub(now));
            said.store(now, Ordering::Relaxed);
            // Pairs with the Acquire load of the other side.
            turn.store(mine + 1, Ordering::Release);
        }
        back
    };
    let back = std::thread::scope(|scope| {
        let sides = [
            scope.spawn(|| play(*first, 0)),
            scope.spawn(|| play(*last, 1)),
        ];
        let backs = sides.map(|side| side.join().unwrap_or(0));
        backs[0].max(backs[1])
    });
    clock.ticks_to_ns(back)
}

fn tools(context: &Context) -> Check {
    let question = Question {
        id: 17,
        name: "tools",
        threshold: "rtla, cyclictest, oslat, hwlatdetect and perf at hand",
        why: "they tell the kernel's, the firmware's and the program's share of a gap apart",
    };
    let wanted = ["rtla", "cyclictest", "oslat", "hwlatdetect", "perf"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &&str| {
        std::env::split_paths(&path).any(|directory| Path::new(&directory).join(tool).is_file())
    };
    let found: Vec<&str> = wanted.into_iter().filter(|tool| is_there(tool)).collect();
    let tracers = context
        .system
        .text("/sys/kernel/tracing/available_tracers")
        .unwrap_or_default();
    let has_hwlat = tracers.split_whitespace().any(|tracer| tracer == "hwlat");
    let value = format!(
        "{}; hwlat tracer {}",
        if found.is_empty() {
            "none".to_owned()
        } else {
            found.join(", ")
        },
        if has_hwlat { "there" } else { "not there" }
    );
    let status = if found.len() == wanted.len() {
        Status::Pass
    } else {
        Status::Warn
    };
    question.answer(status, value, "apt-get install rt-tests linux-perf rtla")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_whole_words() {
        let text = "processor\t: 0\nflags\t\t: fpu tsc_adjust hypervisor\n";
        assert!(has_flag(text, "hypervisor"));
        assert!(!has_flag(text, "tsc"));
    }

    #[test]
    fn stolen_time_is_a_share_of_all() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let stat = "cpu  10 0 10 60 0 0 0 20 0 0\ncpu0 1 1 1 1 1 1 1 1\n";
        std::fs::write(root.path().join("proc/stat"), stat).unwrap();
        let share = steal_share(&System::at(root.path())).unwrap();
        assert!((share - 0.2).abs() < 1e-12);
    }
}
