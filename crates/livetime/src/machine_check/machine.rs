//! Checks 1, 2, 3 and 17: the machine itself, its kernel, its clock and the tools on it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

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
    let system = &context.system;
    let (status, value) = match (is_virtual(system), system.text("/proc/cpuinfo")) {
        (true, _) => {
            let stolen = match steal_share(system) {
                Some(share) => format!("{:.2} % of the time stolen since boot", 100.0 * share),
                None => "stolen time unknown".to_owned(),
            };
            (Status::Warn, format!("yes, {stolen}"))
        }
        (false, Some(_)) => (Status::Pass, "no".to_owned()),
        (false, None) => (Status::Unknown, "unknown".to_owned()),
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
    let version = system.text("/proc/sys/kernel/version");
    let is_known = version.is_some();
    let version = version.unwrap_or_default();
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
    } else if is_known {
        "not preemptible"
    } else {
        "preemption unknown"
    };
    let tickless = if is_tickless {
        "NO_HZ_FULL"
    } else {
        "no NO_HZ_FULL"
    };
    let status = if is_realtime || (model.starts_with("PREEMPT") && is_tickless) {
        Status::Pass
    } else if is_known {
        Status::Warn
    } else {
        Status::Unknown
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
    let cpuinfo = context.system.text("/proc/cpuinfo");
    let is_known = cpuinfo.is_some();
    let cpuinfo = cpuinfo.unwrap_or_default();
    let missing: Vec<&str> = ["constant_tsc", "nonstop_tsc", "rdtscp"]
        .into_iter()
        .filter(|flag| !has_flag(&cpuinfo, flag))
        .collect();
    let source = context
        .system
        .text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".to_owned());
    let clock = TscClock::calibrate();
    let deviation_ppm = deviation_ppm(&clock);
    let patience = match context.is_quick {
        true => HAND_OVERS_QUICK,
        false => HAND_OVERS_LONG,
    };
    let measured = cross_core_offset_ns(&clock, &livetime_shm::allowed_cpus(), patience);
    let between_cores = match measured {
        Some(offset_ns) => format!("{offset_ns} ns between cores at most"),
        None => "not measured between cores: they are too busy".to_owned(),
    };
    let value = format!(
        "{}, clocksource {source}, {:.0} MHz, {deviation_ppm:.0} ppm from the kernel's clock, \
         {between_cores}",
        if missing.is_empty() {
            "all flags".to_owned()
        } else if !is_known {
            "flags unknown".to_owned()
        } else {
            format!("without {}", missing.join(", "))
        },
        clock.rate_hz() * 1e-6
    );
    let fix = match measured {
        Some(_) => "boot with tsc=reliable clocksource=tsc if the processor has the flags",
        None => "stop what keeps the cores busy, and check again",
    };
    let offset_ns = measured.unwrap_or(0);
    let is_tsc = clock.source() == TickSource::TimeStampCounter;
    let status = if is_tsc && (deviation_ppm.abs() > 1000.0 || offset_ns > 10_000) {
        Status::Fail
    } else if !is_known || source == "unknown" {
        Status::Unknown
    } else if !missing.is_empty()
        || source != "tsc"
        || !is_tsc
        || offset_ns > 200
        || measured.is_none()
    {
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

/// How long the hand-overs between two cores may take where a run waits for them, at its end.
const HAND_OVERS_QUICK: Duration = Duration::from_millis(100);
/// How long they may take where somebody asks for them.
const HAND_OVERS_LONG: Duration = Duration::from_secs(1);
/// Hand-overs to and fro, which take a millisecond where nobody else wants the cores.
const ROUNDS: u64 = 2000;
/// So many of them say something.
const ROUNDS_MIN: u64 = 200;

/// What two threads hand to and fro.
struct HandOvers {
    clock: TscClock,
    /// Whose turn it is: even numbers are those of side 0.
    turn: AtomicU64,
    /// The counter as the other side has read it.
    said: AtomicU64,
    ends: Instant,
}

impl HandOvers {
    /// Plays one side on a core: the largest step back that it has seen in ticks, and its rounds.
    fn play(&self, core: usize, side: u64) -> (u64, u64) {
        if livetime_shm::pin_current_thread(core).is_err() {
            return (0, 0);
        }
        let mut back = 0;
        for round in 0..ROUNDS {
            if round.is_multiple_of(64) && Instant::now() >= self.ends {
                return (back, round);
            }
            let mine = round * 2 + side;
            let mut polls = 0_u64;
            // Pairs with the Release store of the other side.
            while self.turn.load(Ordering::Acquire) != mine {
                std::hint::spin_loop();
                polls += 1;
                if polls.is_multiple_of(1024) && Instant::now() >= self.ends {
                    return (back, round);
                }
            }
            // Read after the other's was seen: it may never be earlier.
            let now = self.clock.ticks();
            back = back.max(self.said.load(Ordering::Relaxed).saturating_sub(now));
            self.said.store(now, Ordering::Relaxed);
            // Pairs with the Acquire load of the other side.
            self.turn.store(mine + 1, Ordering::Release);
        }
        (back, ROUNDS)
    }
}

/// The largest step back that the counter makes from the first of these cores to the last: 0 where both
/// agree as far as a hand-over can tell, `None` where there were too few within `patience`, since
/// others had the cores.
fn cross_core_offset_ns(clock: &TscClock, cores: &[usize], patience: Duration) -> Option<u64> {
    let [first, .., last] = cores else {
        return Some(0);
    };
    let shared = Arc::new(HandOvers {
        clock: *clock,
        turn: AtomicU64::new(0),
        said: AtomicU64::new(0),
        ends: Instant::now() + patience,
    });
    let (report, reports) = mpsc::channel();
    for (core, side) in [(*first, 0), (*last, 1)] {
        let (shared, report) = (Arc::clone(&shared), report.clone());
        // Not joined: a core may be with somebody who does not let go of it.
        let side = move || report.send(shared.play(core, side));
        std::thread::Builder::new().spawn(side).ok()?;
    }
    let (mut back, mut rounds) = (0, ROUNDS);
    for _ in 0..2 {
        // Whoever has not had its core by the end sees that late.
        let left = (shared.ends + patience).saturating_duration_since(Instant::now());
        let (back_here, rounds_here) = reports.recv_timeout(left).ok()?;
        (back, rounds) = (back.max(back_here), rounds.min(rounds_here));
    }
    (rounds >= ROUNDS_MIN || back > 0).then(|| clock.ticks_to_ns(back))
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

    #[test]
    fn hand_overs_that_do_not_come_are_not_waited_for() {
        let (clock, core) = (TscClock::of_process(), livetime_shm::allowed_cpus()[0]);
        let offset = |cores: &[usize], patience| cross_core_offset_ns(&clock, cores, patience);
        // Nobody answers from a core that is not there.
        let nobody = livetime_shm::allowed_cpus().len() + 100_000;
        assert_eq!(offset(&[core, nobody], Duration::from_millis(10)), None);
        assert_eq!(offset(&[core, core], Duration::ZERO), None);
        assert_eq!(offset(&[core], Duration::ZERO), Some(0), "nothing differs");
    }
}
