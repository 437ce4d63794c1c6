//! Whether the memory that a run asks for at its start is there for it on its machine.
//!
//! Pages, rings and the tables of units are touched when they are made. Of more than there is they would
//! take all, and the kernel would end some program for it, often another one than this. What is there is
//! the machine's memory, or less: in a container or a batch job its control group allows a part of it.

use std::fmt;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use livetime_wire::{ByteSize, ProblemCode};
use rustix::process::{Resource, getrlimit};

use crate::chain_plan::ChainPlan;

/// Pages, rings and tables take more than the memory of the machine that they are to be made on.
pub const MEMORY: ProblemCode = ProblemCode::new(
    "R0106",
    "pages, rings and tables take more than the machine's memory",
);

/// What says how much memory a run may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryBound {
    /// There is no more, beside what its system needs.
    Machine,
    /// The control group of this program, or one around it.
    ControlGroup,
    /// What this process may map, as `ulimit -v` sets it.
    AddressSpace,
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "beside its system this machine has",
            Self::ControlGroup => "the control group of this program allows",
            Self::AddressSpace => "`ulimit -v` allows",
        })
    }
}

/// How much memory a run may take, and what says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryThere {
    /// So many bytes.
    pub bytes: ByteSize,
    /// Of whom.
    pub bound: MemoryBound,
}

impl fmt::Display for MemoryThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of memory", self.bound, self.bytes)
    }
}

/// That there is less memory for a run than its share here takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pages, rings and tables of the run take {needed} here, and {there}: lower `pages` or `page` of \
     the links, `[builder] trigger_window` or `[store] events_indexed_max`; `livetime explain {}` says \
     more",
    MEMORY.code
)]
pub struct MemoryShort {
    /// Bytes that pools, rings and tables take.
    pub needed: ByteSize,
    /// What there is.
    pub there: MemoryThere,
}

/// Bytes of memory that this machine has; `None` where it does not say.
pub fn memory_bytes() -> Option<u64> {
    parse_total(&read_to_string("/proc/meminfo").ok()?)
}

/// Of the memory of a machine one part in so many is left to its system: its tables, buffers of
/// sockets and files, and the programs that are there anyway.
const SYSTEM_SHARE: u64 = 16;

/// The least of what the machine has and of what its limits allow this program; `None` where nothing
/// says it.
pub fn memory_there() -> Option<MemoryThere> {
    let bounds = [
        (
            MemoryBound::Machine,
            memory_bytes().map(|total| total - total / SYSTEM_SHARE),
        ),
        (MemoryBound::ControlGroup, control_group_bytes()),
        (MemoryBound::AddressSpace, getrlimit(Resource::As).current),
    ];
    least(bounds)
}

/// The first of the smallest ones.
fn least(bounds: impl IntoIterator<Item = (MemoryBound, Option<u64>)>) -> Option<MemoryThere> {
    let known = bounds.into_iter().filter_map(|(bound, bytes)| {
        let bytes = ByteSize(bytes?);
        Some(MemoryThere { bytes, bound })
    });
    known.min_by_key(|there| there.bytes)
}

/// The total of a text as `/proc/meminfo` has it.
fn parse_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = line?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The smallest limit of this program's control group and those around it, of either version.
fn control_group_bytes() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let mounts = read_to_string("/proc/self/mountinfo").ok()?;
    let limits = limit_files(&groups, &mounts).into_iter();
    // "max" is no limit.
    limits
        .filter_map(|file| read_to_string(file).ok()?.trim().parse().ok())
        .min()
}

/// Files with the memory limits of the groups of a process, innermost first, where such groups are
/// mounted; texts as `/proc/self/cgroup` and `/proc/self/mountinfo` have them.
fn limit_files(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for mount in mounts.lines().filter_map(GroupMount::parse) {
        let of_mount = groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_of_it = match mount.is_unified {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|name| name == "memory"),
            };
            is_of_it.then_some(path)
        });
        let Some(path) = of_mount else { continue };
        // In a container the path may be that of the host: its own group is then what is mounted.
        let below = Path::new(path).strip_prefix(mount.root);
        let inner = mount.at.join(below.unwrap_or(Path::new("")));
        let around = inner.ancestors().take_while(|at| at.starts_with(mount.at));
        files.extend(around.map(|at| at.join(mount.limit())));
    }
    files
}

/// Where the groups that limit memory are mounted.
struct GroupMount<'a> {
    is_unified: bool,
    /// Which group is the mount's root.
    root: &'a str,
    at: &'a Path,
}

impl<'a> GroupMount<'a> {
    /// From a line of `/proc/self/mountinfo`, if it is such a mount.
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let (mut place, mut kind) = (place.split(' ').skip(3), kind.split(' '));
        let (root, at) = (place.next()?, Path::new(place.next()?));
        let is_unified = match (kind.next()?, kind.nth(1)) {
            ("cgroup2", _) => true,
            ("cgroup", Some(options)) if options.split(',').any(|name| name == "memory") => false,
            _ => return None,
        };
        Some(Self {
            is_unified,
            root,
            at,
        })
    }

    fn limit(&self) -> &'static str {
        match self.is_unified {
            true => "memory.max",
            false => "memory.limit_in_bytes",
        }
    }
}

/// Whether there is memory here for the pools, rings and tables of the roles that are to be `here`.
///
/// # Errors
/// [`MemoryShort`] where there is less.
pub fn check_memory(plan: &ChainPlan, is_here: impl Fn(&str) -> bool) -> Result<(), MemoryShort> {
    check_bytes(ByteSize(plan.memory_bytes(is_here)), memory_there())
}

fn check_bytes(needed: ByteSize, there: Option<MemoryThere>) -> Result<(), MemoryShort> {
    match there.filter(|there| needed > there.bytes) {
        None => Ok(()),
        Some(there) => Err(MemoryShort { needed, there }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_bytes() {
        let text = "MemFree:  1 kB\nMemTotal:       24689764 kB\nMemAvailable:   5 kB\n";
        assert_eq!(parse_total(text), Some(24_689_764 << 10));
        for text in ["", "MemTotal:", "MemTotal: many kB", "MemTotal: 5"] {
            assert_eq!(parse_total(text), None, "{text}");
        }
        assert!(memory_bytes() > Some(0), "this machine says it");
        assert!(
            memory_there().is_some_and(|there| there.bytes < ByteSize(memory_bytes().unwrap())),
            "the system has a part of it"
        );
    }

    #[test]
    fn limits_of_control_groups_are_looked_for_where_they_are_mounted() {
        let of = |groups, mounts| -> Vec<String> {
            let files = limit_files(groups, mounts).into_iter();
            files.map(|file| file.display().to_string()).collect()
        };
        let unified =
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            of("0::/user.slice/job.scope\n", unified),
            [
                "/sys/fs/cgroup/user.slice/job.scope/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        let split = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                     36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                     37 31 0:34 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";
        assert_eq!(
            of("4:memory:/a\n1:cpu:/b\n0::/\n", split),
            [
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/unified/memory.max"
            ]
        );
        // The host's paths, of which a container sees its own group alone.
        let inside = "35 31 0:32 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(
            of("4:memory:/docker/1f/x\n", inside),
            [
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        let elsewhere = of("4:memory:/other\n", inside);
        assert_eq!(elsewhere, ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
        for (groups, mounts) in [
            ("", split),
            ("no colon\n", split),
            ("0::/\n", "- cgroup2\n"),
        ] {
            assert!(of(groups, mounts).is_empty(), "{groups:?} {mounts:?}");
        }
    }

    #[test]
    fn more_than_there_is_is_refused_with_both_sizes_and_who_says_so() {
        let bounds = |machine, group| {
            let machine = (MemoryBound::Machine, machine);
            least([machine, (MemoryBound::ControlGroup, group)])
        };
        let there = bounds(Some(5 << 30), None);
        assert_eq!(check_bytes(ByteSize(5 << 30), there), Ok(()));
        assert_eq!(check_bytes(ByteSize(u64::MAX), bounds(None, None)), Ok(()));
        let said = |needed, there| {
            let short = check_bytes(ByteSize(needed), there).expect_err("it is more");
            short.to_string()
        };
        let of_machine = said(7812 << 30, bounds(Some(23 << 30), Some(i64::MAX as u64)));
        for part in [
            "take 7812 GiB here",
            "this machine has 23 GiB of memory",
            "livetime explain R0106",
        ] {
            assert!(of_machine.contains(part), "{part} is not in {of_machine}");
        }
        let of_group = said(3 << 30, bounds(Some(23 << 30), Some(2 << 30)));
        let part = "the control group of this program allows 2 GiB of memory";
        assert!(of_group.contains(part), "{of_group}");
    }
}
