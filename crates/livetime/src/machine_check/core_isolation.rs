//! Checks 4 to 7: what else runs on the cores of a loop.

use std::collections::BTreeMap;
use std::time::Duration;

use super::system::{System, cpu_list, parse_cpu_mask};
use super::{Check, Context, Entry, Question, Status, pass_if_read};

pub(super) const CHECKS: [Entry; 4] = [
    (4, isolated_cores),
    (5, siblings),
    (6, interrupts),
    (7, kernel_threads),
];

fn isolated_cores(context: &Context) -> Check {
    let question = Question {
        id: 4,
        name: "isolated cores",
        threshold: "one core or more, not core 0",
        why: "the scheduler puts other programs on every core that is not isolated",
    };
    let system = &context.system;
    let list = |file: &str| system.cores(file).unwrap_or_default();
    let isolated = list("/sys/devices/system/cpu/isolated");
    let tickless = list("/sys/devices/system/cpu/nohz_full");
    let partition = own_partition(system);
    let is_good =
        isolated.iter().any(|core| *core != 0) || partition.as_deref() == Some("isolated");
    let value = format!(
        "isolated {}, nohz_full {}, cgroup partition {}",
        or_none(&isolated),
        or_none(&tickless),
        partition.as_deref().unwrap_or("none")
    );
    let hot = context.hot_names();
    let fix = format!(
        "boot with isolcpus=managed_irq,domain,{hot} nohz_full={hot} rcu_nocbs={hot}, or set \
         cpuset.cpus.partition of a cgroup to isolated"
    );
    let status = match is_good {
        true => Status::Pass,
        false if system.has(CORES) => Status::Warn,
        false => Status::Unknown,
    };
    question.answer(status, value, fix)
}

/// Where the kernel says what its cores are for.
const CORES: &str = "/sys/devices/system/cpu";

fn or_none(cores: &[usize]) -> String {
    if cores.is_empty() {
        "none".to_owned()
    } else {
        cpu_list(cores)
    }
}

/// What kind of partition this process's cgroup is.
fn own_partition(system: &System) -> Option<String> {
    let cgroup = system.text("/proc/self/cgroup")?;
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    system.text(&format!("/sys/fs/cgroup{path}/cpuset.cpus.partition"))
}

fn siblings(context: &Context) -> Check {
    let question = Question {
        id: 5,
        name: "siblings and nodes",
        threshold: "each hot core has its physical core alone, all on one memory node",
        why: "two threads of one physical core halve each other's speed; far memory costs 100 ns a line",
    };
    let system = &context.system;
    let allowed = livetime_shm::allowed_cpus();
    let (mut shared, mut is_read) = (Vec::new(), true);
    for core in &context.hot {
        let file = format!("{CORES}/cpu{core}/topology/thread_siblings_list");
        let others = system.cores(&file);
        is_read &= others.is_some();
        let others = others.into_iter().flatten();
        shared.extend(others.filter(|other| other != core));
    }
    shared.retain(|core| allowed.contains(core));
    let node_of = |core: &usize| {
        let names = system.names(&format!("/sys/devices/system/cpu/cpu{core}"));
        names.into_iter().find(|name| name.starts_with("node"))
    };
    let mut nodes: Vec<String> = context.hot.iter().filter_map(node_of).collect();
    nodes.sort();
    nodes.dedup();
    let value = format!(
        "hot cores {}, siblings in use {}, {}",
        context.hot_names(),
        match is_read {
            true => or_none(&shared),
            false => "unknown".to_owned(),
        },
        if nodes.is_empty() {
            "one memory".to_owned()
        } else {
            nodes.join(" and ")
        }
    );
    let status = if shared.is_empty() && nodes.len() <= 1 {
        pass_if_read(is_read)
    } else {
        Status::Warn
    };
    let fix = format!(
        "echo 0 > /sys/devices/system/cpu/cpu{}/online, or pin workers to cores of one node",
        shared.first().copied().unwrap_or(1)
    );
    question.answer(status, value, fix)
}

/// Interrupts counted on one core, by their name.
fn interrupts_of(system: &System, core: usize) -> BTreeMap<String, u64> {
    let text = system.text("/proc/interrupts").unwrap_or_default();
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let name = format!("CPU{core}");
    let Some(column) = header.split_whitespace().position(|word| word == name) else {
        return BTreeMap::new();
    };
    let count = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let count = rest.split_whitespace().nth(column)?.parse().ok()?;
        Some((name.trim().to_owned(), count))
    };
    lines.filter_map(count).collect()
}

fn interrupts(context: &Context) -> Check {
    let question = Question {
        id: 6,
        name: "interrupts",
        threshold: "no device interrupt may go to a hot core; fewer than 2 timer interrupts a second",
        why: "each one takes the core for 2 to 20 us: the tail that the PULSAR note had to cure first",
    };
    let system = &context.system;
    let mut allowed_here = 0;
    for number in system.names("/proc/irq") {
        let cores = system.cores(&format!("/proc/irq/{number}/smp_affinity_list"));
        let touches = cores.is_some_and(|cores| context.hot.iter().any(|hot| cores.contains(hot)));
        allowed_here += usize::from(touches);
    }
    let counts = || -> Vec<_> {
        let of = |core: &usize| interrupts_of(system, *core);
        context.hot.iter().map(of).collect()
    };
    let before = counts();
    std::thread::sleep(Duration::from_secs(1));
    let (mut timer, mut others) = (0, 0);
    for (before, after) in before.iter().zip(counts()) {
        for (name, count) in after {
            let more = count.saturating_sub(before.get(&name).copied().unwrap_or(0));
            if name == "LOC" {
                timer += more;
            } else {
                others += more;
            }
        }
    }
    let hot = context.hot.len().max(1) as u64;
    let balancer = system.is_running("irqbalance");
    let value = format!(
        "{allowed_here} may go to a hot core; in 1 s {} timer and {others} others on a hot core; irqbalance {}",
        timer / hot,
        if balancer { "runs" } else { "does not run" }
    );
    let status = if allowed_here == 0 && timer / hot < 2 && others == 0 {
        pass_if_read(system.has("/proc/interrupts") && system.has("/proc/irq"))
    } else {
        Status::Warn
    };
    let fix = "stop irqbalance; for each /proc/irq/N write the cores for the kernel to \
               smp_affinity_list; boot with irqaffinity=0 and nohz_full";
    question.answer(status, value, fix)
}

fn kernel_threads(context: &Context) -> Check {
    let question = Question {
        id: 7,
        name: "kernel threads",
        threshold: "work queues, RCU callbacks and the watchdog keep off hot cores",
        why: "the kernel's own work runs where it was asked for, for as long as it takes",
    };
    let system = &context.system;
    let work = system
        .text("/sys/devices/virtual/workqueue/cpumask")
        .and_then(|mask| parse_cpu_mask(&mask));
    let touches = |cores: &[usize]| context.hot.iter().any(|hot| cores.contains(hot));
    let work_here = work.as_deref().is_none_or(touches);
    let rcu_here = system
        .boot_option("rcu_nocbs")
        .is_none_or(|list| !covers(&list, &context.hot));
    let watchdog_here = system.number("/proc/sys/kernel/watchdog") == Some(1)
        && system
            .cores("/proc/sys/kernel/watchdog_cpumask")
            .is_none_or(|cores| touches(&cores));
    let here: Vec<&str> = [
        (work_here, "unbound work queues"),
        (rcu_here, "RCU callbacks"),
        (watchdog_here, "watchdog"),
    ]
    .into_iter()
    .filter_map(|(is_here, name)| is_here.then_some(name))
    .collect();
    let (status, value) = if here.is_empty() {
        (Status::Pass, "none on hot cores".to_owned())
    } else {
        (Status::Warn, format!("on hot cores: {}", here.join(", ")))
    };
    let fix = "write the mask of the other cores to /sys/devices/virtual/workqueue/cpumask and \
               kernel.watchdog_cpumask; boot with rcu_nocbs";
    question.answer(status, value, fix)
}

/// Whether a boot option is for all of these cores: one without a value is for every core, and of a list
/// that only the kernel understands nothing else is known.
fn covers(list: &str, cores: &[usize]) -> bool {
    match list {
        "" | "all" => true,
        list => livetime_shm::parse_cpu_list(list)
            .is_none_or(|listed| cores.iter().all(|core| listed.contains(core))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn context(root: &Path) -> Context {
        Context {
            system: System::at(root),
            hot: vec![3],
            directory: PathBuf::from("."),
            live: Duration::ZERO,
            is_quick: true,
        }
    }

    #[test]
    fn isolation_passes_by_boot_option_or_by_partition() {
        let root = tempfile::tempdir().unwrap();
        let status = || isolated_cores(&context(root.path())).status;
        assert_eq!(status(), Status::Unknown, "nothing can be read");
        put(root.path(), "sys/devices/system/cpu/online", "0-3\n");
        assert_eq!(status(), Status::Warn);
        put(root.path(), "sys/devices/system/cpu/isolated", "0\n");
        assert_eq!(status(), Status::Warn, "core 0 is no core for a loop");
        put(root.path(), "sys/devices/system/cpu/isolated", "2-3\n");
        assert_eq!(status(), Status::Pass);
        put(root.path(), "sys/devices/system/cpu/isolated", "\n");
        put(root.path(), "proc/self/cgroup", "0::/daq\n");
        put(
            root.path(),
            "sys/fs/cgroup/daq/cpuset.cpus.partition",
            "isolated\n",
        );
        assert_eq!(status(), Status::Pass);
    }

    #[test]
    fn siblings_and_kernel_work_are_found() {
        let root = tempfile::tempdir().unwrap();
        let topology = "sys/devices/system/cpu/cpu3/topology/thread_siblings_list";
        let other = livetime_shm::allowed_cpus()[0];
        put(root.path(), topology, &format!("{other}\n"));
        let context = context(root.path());
        assert_eq!(siblings(&context).status, Status::Warn);
        put(root.path(), topology, "3\n");
        assert_eq!(siblings(&context).status, Status::Pass);
        put(root.path(), "proc/cmdline", "rcu_nocbs=3\n");
        put(root.path(), "sys/devices/virtual/workqueue/cpumask", "f\n");
        let found = kernel_threads(&context);
        assert_eq!(found.value, "on hot cores: unbound work queues");
        put(root.path(), "sys/devices/virtual/workqueue/cpumask", "7\n");
        assert_eq!(kernel_threads(&context).status, Status::Pass);
        put(root.path(), "proc/cmdline", "rcu_nocbs=0-2\n");
        let found = kernel_threads(&context).value;
        assert_eq!(found, "on hot cores: RCU callbacks");
        for all in ["rcu_nocbs", "rcu_nocbs=all", "rcu_nocbs=1-N"] {
            put(root.path(), "proc/cmdline", all);
            assert_eq!(kernel_threads(&context).status, Status::Pass, "{all}");
        }
    }

    #[test]
    fn interrupts_are_counted_by_core() {
        let root = tempfile::tempdir().unwrap();
        let text = "            CPU2       CPU3\n  9:   1   2  IO-APIC\nLOC:   30   40  Local timer\nERR:   0\n";
        put(root.path(), "proc/interrupts", text);
        let counts = interrupts_of(&System::at(root.path()), 3);
        assert_eq!(counts.get("9"), Some(&2));
        assert_eq!(counts.get("LOC"), Some(&40));
    }
}
