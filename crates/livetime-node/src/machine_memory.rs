//! Whether the memory that a run asks for at its start is there on its machine.
//!
//! Pages and rings are touched when they are made. Of more than the machine has it would take all, and
//! the kernel would end some program for it, often another one than this.

use std::fs::read_to_string;

use livetime_wire::{ByteSize, ProblemCode};

use crate::chain_plan::ChainPlan;

/// Pages and rings take more than the memory of the machine that they are to be made on.
pub const MEMORY: ProblemCode = ProblemCode::new(
    "R0106",
    "pages and rings take more than the machine's memory",
);

/// That a machine has less memory than its share of a run takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pages and rings of the run take {needed} here, and this machine has {there} of memory: lower \
     `pages` or `page` of the links, or `[builder] trigger_window`; `livetime explain {}` says more",
    MEMORY.code
)]
pub struct MemoryShort {
    /// Bytes that pools and rings take.
    pub needed: ByteSize,
    /// Bytes of the machine.
    pub there: ByteSize,
}

/// Bytes of memory that this machine has; `None` where it does not say.
pub fn memory_bytes() -> Option<u64> {
    parse_total(&read_to_string("/proc/meminfo").ok()?)
}

/// The total of a text as `/proc/meminfo` has it.
fn parse_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = line?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Whether this machine has the memory of the pools and rings of the roles that are to be `here`.
///
/// # Errors
/// [`MemoryShort`] where it has less.
pub fn check_memory(plan: &ChainPlan, is_here: impl Fn(&str) -> bool) -> Result<(), MemoryShort> {
    check_bytes(plan.memory_bytes(is_here), memory_bytes())
}

fn check_bytes(needed: u64, there: Option<u64>) -> Result<(), MemoryShort> {
    match there.filter(|there| needed > *there) {
        None => Ok(()),
        Some(there) => Err(MemoryShort {
            needed: ByteSize(needed),
            there: ByteSize(there),
        }),
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
    }

    #[test]
    fn more_than_the_machine_has_is_refused_with_both_sizes() {
        assert_eq!(check_bytes(5 << 30, Some(5 << 30)), Ok(()));
        assert_eq!(check_bytes(u64::MAX, None), Ok(()));
        let said = check_bytes(7812 << 30, Some(23 << 30)).map_err(|short| short.to_string());
        let said = said.expect_err("it is more");
        assert!(said.contains("take 7812 GiB here"), "{said}");
        assert!(said.contains("has 23 GiB of memory"), "{said}");
        assert!(said.contains("livetime explain R0106"), "{said}");
    }
}
