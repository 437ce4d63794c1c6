//! Placement of threads and memory: pinning, real-time priority, locking pages.
//!
//! All of it is a request that a container or a limit may refuse; a caller reports the refusal and
//! goes on. None of it is done unasked.

use std::io;

use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Why a thread or the memory could not be placed as asked.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The core does not exist, or this process may not use it.
    #[error("core {cpu} is not one of the allowed cores {allowed:?}")]
    Cpu {
        /// The core asked for.
        cpu: usize,
        /// The cores that can be asked for.
        allowed: Vec<usize>,
    },
    /// Real-time priorities go from 1 to 99.
    #[error("real-time priority {priority} is not between 1 and 99")]
    Priority {
        /// The priority asked for.
        priority: u8,
    },
    /// The kernel refused real-time scheduling: missing privilege, or a cgroup without a share.
    #[error("the kernel refuses real-time priority {priority}")]
    RealTime {
        /// The priority asked for.
        priority: u8,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused to lock the memory, most often by `RLIMIT_MEMLOCK`.
    #[error("the kernel refuses to lock the memory of this process")]
    Lock(#[source] io::Error),
}

/// The cores this thread may run on, in ascending order; never empty.
pub fn allowed_cpus() -> Vec<usize> {
    let listed: Vec<usize> = match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect(),
        // A machine with more cores than the set can hold: fall back on their number.
        Err(_) => Vec::new(),
    };
    if listed.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        return (0..count).collect();
    }
    listed
}

/// The cores this thread may run on, those first that are physical cores of their own: two threads of
/// one physical core halve each other's speed. Never empty.
pub fn cpus_apart() -> Vec<usize> {
    apart(&allowed_cpus(), |cpu| {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let list = std::fs::read_to_string(file).unwrap_or_default();
        parse_cpu_list(&list).unwrap_or_default()
    })
}

/// Two cores for a pair of threads, the first of [`cpus_apart`]; the same one twice where there is only
/// one.
pub fn two_cpus() -> [usize; 2] {
    let cpus = cpus_apart();
    [cpus[0], cpus[cpus.len().min(2) - 1]]
}

fn apart(allowed: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for &cpu in allowed {
        let siblings = siblings(cpu);
        let is_taken = first.iter().any(|first| siblings.contains(first));
        if is_taken { &mut others } else { &mut first }.push(cpu);
    }
    first.append(&mut others);
    first
}

/// The cores of a list such as `0-3,8`; `None` for other texts, empty for an empty one.
pub fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last > 65_535 {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

/// Binds the calling thread to one core.
///
/// # Errors
/// [`PlacementError::Cpu`] with the cores that are allowed.
pub fn pin_current_thread(cpu: usize) -> Result<(), PlacementError> {
    if cpu < CpuSet::MAX_CPU {
        let mut set = CpuSet::new();
        set.set(cpu);
        if sched_setaffinity(None, &set).is_ok() {
            return Ok(());
        }
    }
    Err(PlacementError::Cpu {
        cpu,
        allowed: allowed_cpus(),
    })
}

/// Keeps the calling thread away from one core; where there is no other it stays.
///
/// # Errors
/// [`PlacementError::Cpu`] with the cores that are allowed.
pub fn avoid_cpu(cpu: usize) -> Result<(), PlacementError> {
    let mut set = CpuSet::new();
    for other in allowed_cpus() {
        if other != cpu && other < CpuSet::MAX_CPU {
            set.set(other);
        }
    }
    if set.count() == 0 || sched_setaffinity(None, &set).is_ok() {
        return Ok(());
    }
    Err(PlacementError::Cpu {
        cpu,
        allowed: allowed_cpus(),
    })
}

/// Locks all present and future memory of the process, so that nothing is paged out.
///
/// # Errors
/// [`PlacementError::Lock`] when the limit is too low.
pub fn lock_memory() -> Result<(), PlacementError> {
    rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)
        .map_err(|errno| PlacementError::Lock(errno.into()))
}

/// Asks for `SCHED_FIFO` at `priority` (1 lowest, 99 highest) for the calling thread.
///
/// Never a default: the kernel takes 50 ms of each second away from a thread that spins under it,
/// unless `kernel.sched_rt_runtime_us` is -1, and a spinning thread starves every other on its
/// core. Set the affinity of children before calling this; they inherit the core.
///
/// # Errors
/// [`PlacementError::Priority`] out of range, [`PlacementError::RealTime`] when refused.
pub fn request_fifo(priority: u8) -> Result<(), PlacementError> {
    if !(1..=99).contains(&priority) {
        return Err(PlacementError::Priority { priority });
    }
    set_scheduler(libc::SCHED_FIFO, priority).map_err(|errno| PlacementError::RealTime {
        priority,
        source: errno.into(),
    })
}

/// Returns the calling thread to the normal scheduler.
///
/// # Errors
/// [`PlacementError::RealTime`] with priority 0 if the kernel refuses even that.
pub fn request_normal() -> Result<(), PlacementError> {
    set_scheduler(libc::SCHED_OTHER, 0).map_err(|errno| PlacementError::RealTime {
        priority: 0,
        source: errno.into(),
    })
}

fn set_scheduler(policy: libc::c_int, priority: u8) -> Result<(), Errno> {
    let parameters = libc::sched_param {
        sched_priority: libc::c_int::from(priority),
    };
    // SAFETY: 0 is the calling thread, and the kernel only reads the parameters during the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::PERM)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core() {
        std::thread::spawn(|| {
            let cpus = allowed_cpus();
            assert!(!cpus.is_empty());
            let last = cpus[cpus.len() - 1];
            pin_current_thread(last).unwrap();
            assert_eq!(allowed_cpus(), [last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn physical_cores_come_first() {
        let pairs = |cpu| vec![cpu & !1, cpu | 1];
        assert_eq!(apart(&[0, 1, 2, 3], pairs), [0, 2, 1, 3]);
        assert_eq!(apart(&[1, 4, 5], pairs), [1, 4, 5]);
        assert_eq!(apart(&[2, 3], pairs), [2, 3]);
        assert_eq!(apart(&[0, 1], |_| Vec::new()), [0, 1]);
        let mut cpus = cpus_apart();
        assert!(two_cpus().iter().all(|cpu| cpus.contains(cpu)));
        cpus.sort_unstable();
        assert_eq!(cpus, allowed_cpus());
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(parse_cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpu_list(""), Some(vec![]));
        assert_eq!(parse_cpu_list("3-1"), None);
        assert_eq!(parse_cpu_list("(null)"), None);
    }

    #[test]
    fn impossible_cores_are_refused_with_the_possible_ones() {
        for cpu in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            match pin_current_thread(cpu) {
                Err(PlacementError::Cpu {
                    cpu: found,
                    allowed,
                }) => {
                    assert_eq!(found, cpu);
                    assert!(!allowed.is_empty());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn real_time_is_checked_and_refusal_is_an_error() {
        for priority in [0, 100] {
            assert!(matches!(
                request_fifo(priority),
                Err(PlacementError::Priority { .. })
            ));
        }
        std::thread::spawn(|| match request_fifo(1) {
            Ok(()) => request_normal().unwrap(),
            Err(PlacementError::RealTime { priority: 1, .. }) => {}
            Err(other) => panic!("{other:?}"),
        })
        .join()
        .unwrap();
    }
}
