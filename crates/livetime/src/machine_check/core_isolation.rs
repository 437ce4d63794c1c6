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
    let isolated = listed(system, "/sys/devices/system/cpu/isolated");
    let tickless = listed(system, "/sys/devices/system/cpu/nohz_full");
    let partition = own_partition(system);
    let is_good = isolated.iter().flatten().any(|core| *core != 0)
        || partition.as_deref() == Some("isolated");
    let value = format!(
        "isolated {}, nohz_full {}, cgroup partition {}",
        or_unknown(isolated.as_deref()),
        or_unknown(tickless.as_deref()),
        partition.as_deref().unwrap_or("none")
    );
    let hot = context.hot_names();
    let fix = format!(
        "boot with isolcpus=managed_irq,domain,{hot} nohz_full={hot} rcu_nocbs={hot}, or set \
         cpuset.cpus.partition of a cgroup to isolated"
    );
    let status = match is_good {
        true => Status::Pass,
        false if isolated.is_some() => Status::Warn,
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

fn or_unknown(cores: Option<&[usize]>) -> String {
    cores.map_or("unknown".to_owned(), or_none)
}

/// The cores of a list that not every kernel has: none where there is none beside its cores, and nothing
/// where those cannot be read.
fn listed(system: &System, file: &str) -> Option<Vec<usize>> {
    let is_read = system.has(file) || system.has(CORES);
    is_read.then(|| system.cores(file).unwrap_or_default())
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
        or_unknown(is_read.then_some(&shared)),
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
    let mut fixes: Vec<String> = shared
        .iter()
        .map(|core| format!("echo 0 > {CORES}/cpu{core}/online"))
        .collect();
    if nodes.len() > 1 {
        fixes.push("pin workers to cores of one node".to_owned());
    }
    let fix = fixes.join("; ");
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
    let (has_targets, has_counts) = (system.has("/proc/irq"), system.has("/proc/interrupts"));
    let value = format!(
        "{} may go to a hot core; in 1 s {} on a hot core; irqbalance {}",
        match has_targets {
            true => allowed_here.to_string(),
            false => "an unknown number".to_owned(),
        },
        match has_counts {
            true => format!("{} timer and {others} others", timer / hot),
            false => "an unknown number".to_owned(),
        },
        match (balancer, system.has("/proc")) {
            (true, _) => "runs",
            (false, true) => "does not run",
            (false, false) => "unknown",
        }
    );
    let status = if allowed_here == 0 && timer / hot < 2 && others == 0 {
        pass_if_read(has_targets && has_counts)
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
    let touches = |cores: &[usize]| context.hot.iter().any(|hot| cores.contains(hot));
    let work = system
        .text("/sys/devices/virtual/workqueue/cpumask")
        .and_then(|mask| parse_cpu_mask(&mask));
    let rcu_is_here = |_| {
        let kept_off = system.boot_option("rcu_nocbs");
        kept_off.is_none_or(|list| !covers(&list, &context.hot))
    };
    let found = [
        (work.as_deref().map(touches), "unbound work queues"),
        (
            system.text("/proc/cmdline").map(rcu_is_here),
            "RCU callbacks",
        ),
        (watchdog_touches(system, touches), "watchdog"),
    ];
    let named = |wanted: Option<bool>| {
        let names = found.iter().filter(|(is_here, _)| *is_here == wanted);
        names.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    };
    let (here, unread) = (named(Some(true)), named(None));
    let status = match here.is_empty() {
        true => pass_if_read(unread.is_empty()),
        false => Status::Warn,
    };
    let value = match (here.as_str(), unread.as_str()) {
        ("", "") => "none on hot cores".to_owned(),
        ("", unread) => format!("unknown: {unread}"),
        (here, "") => format!("on hot cores: {here}"),
        (here, unread) => format!("on hot cores: {here}; unknown: {unread}"),
    };
    let fix = "write the mask of the other cores to /sys/devices/virtual/workqueue/cpumask and \
               kernel.watchdog_cpumask; boot with rcu_nocbs";
    question.answer(status, value, fix)
}

/// Whether the watchdog runs on cores that `touches` is true of, if that can be read. A kernel without one
/// has no file for it among its others.
fn watchdog_touches(system: &System, touches: impl Fn(&[usize]) -> bool) -> Option<bool> {
    if !system.has("/proc/sys/kernel/watchdog") {
        return system.has("/proc/sys/kernel").then_some(false);
    }
    if system.number("/proc/sys/kernel/watchdog")? != 1 {
        return Some(false);
    }
    let cores = system.cores("/proc/sys/kernel/watchdog_cpumask")?;
    Some(touches(&cores))
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
        put(root.path(), "proc/sys/kernel/watchdog", "0\n");
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

    /// Of each file one after the other: what cannot be read is neither said to be on hot cores nor not.
    #[test]
    fn kernel_work_that_cannot_be_read_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let found = || {
            let check = kernel_threads(&context(root.path()));
            (check.status, check.value)
        };
        let unknown = |what: &str| (Status::Unknown, format!("unknown: {what}"));
        let all = "unbound work queues, RCU callbacks, watchdog";
        assert_eq!(found(), unknown(all));
        put(root.path(), "proc/cmdline", "quiet\n");
        let value = "on hot cores: RCU callbacks; unknown: unbound work queues, watchdog";
        assert_eq!(found(), (Status::Warn, value.to_owned()));
        put(root.path(), "proc/cmdline", "rcu_nocbs=3\n");
        assert_eq!(found(), unknown("unbound work queues, watchdog"));
        put(
            root.path(),
            "sys/devices/virtual/workqueue/cpumask",
            "no mask\n",
        );
        assert_eq!(found(), unknown("unbound work queues, watchdog"));
        put(root.path(), "sys/devices/virtual/workqueue/cpumask", "7\n");
        put(root.path(), "proc/sys/kernel/watchdog", "1\n");
        assert_eq!(found(), unknown("watchdog"));
        put(root.path(), "proc/sys/kernel/watchdog_cpumask", "0-3\n");
        let value = "on hot cores: watchdog".to_owned();
        assert_eq!(found(), (Status::Warn, value));
        put(root.path(), "proc/sys/kernel/watchdog_cpumask", "0-2\n");
        assert_eq!(found(), (Status::Pass, "none on hot cores".to_owned()));
        std::fs::remove_file(root.path().join("proc/sys/kernel/watchdog")).unwrap();
        assert_eq!(found().0, Status::Pass, "a kernel without a watchdog");
    }

    #[test]
    fn advice_on_siblings_names_the_cores_that_were_found() {
        let root = tempfile::tempdir().unwrap();
        let mut context = context(root.path());
        context.hot = vec![3, 2];
        for (core, node) in [(2, 0), (3, 1)] {
            let cpu = format!("sys/devices/system/cpu/cpu{core}");
            put(root.path(), &format!("{cpu}/node{node}/cpulist"), "");
            let list = format!("{cpu}/topology/thread_siblings_list");
            put(root.path(), &list, &format!("{core}\n"));
        }
        let check = siblings(&context);
        assert_eq!(check.status, Status::Warn);
        assert!(
            check
                .value
                .ends_with("siblings in use none, node0 and node1")
        );
        assert_eq!(check.fix, "pin workers to cores of one node");
        let other = livetime_shm::allowed_cpus()[0];
        context.hot = vec![other + 1];
        let list = format!("sys/devices/system/cpu/cpu{}/topology", other + 1);
        let siblings_of = format!("{other},{}\n", other + 1);
        put(
            root.path(),
            &format!("{list}/thread_siblings_list"),
            &siblings_of,
        );
        let fix = format!("echo 0 > /sys/devices/system/cpu/cpu{other}/online");
        assert_eq!(siblings(&context).fix, fix);
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
