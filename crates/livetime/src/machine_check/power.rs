//! Checks 11 and 12: power saving, and settings of the kernel that move or merge pages and timers.

use super::{Check, Context, Entry, Question, Status, pass_if_read};

pub(super) const CHECKS: [Entry; 2] = [(11, power), (12, kernel_settings)];

fn power(context: &Context) -> Check {
    let question = Question {
        id: 11,
        name: "power",
        threshold: "governor performance, /dev/cpu_dma_latency can be held at 0",
        why: "a core that sleeps deeply needs 100 us to wake, one that slows down runs every cut slower",
    };
    let system = &context.system;
    let core = context.hot.first().copied().unwrap_or(0);
    let governor = system.text(&format!(
        "/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"
    ));
    let driver = system
        .text("/sys/devices/system/cpu/cpuidle/current_driver")
        .unwrap_or_else(|| "none".to_owned());
    let states = system.names(&format!("/sys/devices/system/cpu/cpu{core}/cpuidle"));
    let deepest = states.last().and_then(|state| {
        system.text(&format!(
            "/sys/devices/system/cpu/cpu{core}/cpuidle/{state}/name"
        ))
    });
    let latency = std::fs::OpenOptions::new()
        .write(true)
        .open(system.path("/dev/cpu_dma_latency"));
    let may_hold = latency.is_ok();
    let turbo = system.number("/sys/devices/system/cpu/intel_pstate/no_turbo");
    let value = format!(
        "governor {}, idle driver {driver}, deepest state {}, cpu_dma_latency {}{}",
        governor.as_deref().unwrap_or("not visible"),
        deepest.as_deref().unwrap_or("none"),
        if may_hold { "writable" } else { "not writable" },
        turbo.map_or("", |off| if off == 1 { ", no turbo" } else { ", turbo" })
    );
    let is_slow = governor
        .as_deref()
        .is_some_and(|governor| governor != "performance");
    let may_sleep = driver != "none" && !may_hold;
    let status = match (governor.is_none() && driver == "none", is_slow || may_sleep) {
        (true, _) => Status::NotApplicable,
        (false, true) => Status::Warn,
        (false, false) => Status::Pass,
    };
    question.answer(
        status,
        value,
        "cpupower frequency-set -g performance; allow the group of the run to write /dev/cpu_dma_latency",
    )
}

fn kernel_settings(context: &Context) -> Check {
    let question = Question {
        id: 12,
        name: "kernel settings",
        threshold: "numa_balancing 0, ksm off, timer_migration 0, vm.stat_interval 10 or more",
        why: "each of them stops threads for the good of something else",
    };
    let system = &context.system;
    // Each with what it should be at least or at most.
    let settings = [
        (
            "kernel.numa_balancing",
            "/proc/sys/kernel/numa_balancing",
            0..=0,
        ),
        ("ksm", "/sys/kernel/mm/ksm/run", 0..=0),
        (
            "kernel.timer_migration",
            "/proc/sys/kernel/timer_migration",
            0..=0,
        ),
        (
            "vm.stat_interval",
            "/proc/sys/vm/stat_interval",
            10..=i64::MAX,
        ),
    ];
    let mut values = Vec::new();
    let mut fixes = Vec::new();
    for (name, file, allowed) in settings {
        let Some(value) = system.number(file) else {
            continue;
        };
        values.push(format!("{name} {value}"));
        // Stopped, with all pages apart again.
        let is_off = name == "ksm" && value == 2;
        if !allowed.contains(&value) && !is_off {
            fixes.push(match name {
                "ksm" => "echo 0 > /sys/kernel/mm/ksm/run".to_owned(),
                name => format!("sysctl -w {name}={}", allowed.start()),
            });
        }
    }
    let vulnerable = "/sys/devices/system/cpu/vulnerabilities";
    let mitigated = system.names(vulnerable).into_iter().filter(|name| {
        system
            .text(&format!("{vulnerable}/{name}"))
            .is_some_and(|text| text.starts_with("Mitigation"))
    });
    values.push(format!("{} mitigations", mitigated.count()));
    if let Some(tracing) = system.number("/sys/kernel/tracing/tracing_on") {
        values.push(format!("tracing {tracing}"));
    }
    // Not every kernel has every one of them, but each has its number and such a folder.
    let places = ["/proc/sys/kernel/osrelease", "/sys/kernel/mm"];
    let is_read = places.iter().all(|place| system.has(place));
    if !is_read {
        values.push("others unknown".to_owned());
    }
    let status = if fixes.is_empty() {
        pass_if_read(is_read)
    } else {
        Status::Warn
    };
    question.answer(status, values.join(", "), fixes.join("; "))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::super::system::System;
    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn each_setting_that_is_wrong_has_its_own_command() {
        let root = tempfile::tempdir().unwrap();
        let context = Context {
            system: System::at(root.path()),
            hot: vec![1],
            directory: PathBuf::from("."),
            live: Duration::ZERO,
            is_quick: true,
        };
        put(root.path(), "proc/sys/kernel/numa_balancing", "1\n");
        put(root.path(), "proc/sys/kernel/timer_migration", "0\n");
        put(root.path(), "proc/sys/vm/stat_interval", "1\n");
        let found = kernel_settings(&context);
        assert_eq!(
            found.fix,
            "sysctl -w kernel.numa_balancing=0; sysctl -w vm.stat_interval=10"
        );
        // Pages are merged with 1 alone.
        for (run, is_on) in [("0\n", false), ("1\n", true), ("2\n", false)] {
            put(root.path(), "sys/kernel/mm/ksm/run", run);
            let found = kernel_settings(&context);
            assert_eq!(found.fix.contains("ksm"), is_on, "{}", found.fix);
        }
        assert_eq!(power(&context).status, Status::NotApplicable);
        put(
            root.path(),
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
            "powersave\n",
        );
        assert_eq!(power(&context).status, Status::Warn);
    }
}
