//! The compiled conditions: a sorted search table and lists of walker entries.
//!
//! As in the hardware (search and walker tables of the ECA unit, White Rabbit cores): the largest
//! threshold not above an event ID leads to a list, and the list holds every condition that
//! matches, the narrowest first and of equal ones the oldest first. Ranges of prefixes are nested
//! or disjoint, so each condition needs exactly one walker entry, and lists share their tails.
//! Masks with holes and spans are filed under the prefix around them and compared once more.
//!
//! A table never changes; a driver swaps the whole table between two messages. Cost of a look-up:
//! one binary search (about 15 steps for 10 000 conditions) and one step per entry in the list.
//! Who may change conditions is in [`crate::registry`].

use livetime_wire::EventId;

use crate::condition::{Condition, ConditionId};
use crate::flag::FlagSet;
use crate::id_filter::IdFilter;
use crate::sink::{SinkId, SinkKind};

/// End of a list.
const NONE: u32 = u32::MAX;

/// Sizes of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLimits {
    /// Entries of the search table.
    pub search: usize,
    /// Entries of the walker table.
    pub walker: usize,
}

impl TableLimits {
    /// The tables of the receiver hardware: 512 search and 256 walker entries.
    pub const HARDWARE: Self = Self {
        search: 512,
        walker: 256,
    };

    /// Tables that never fill before `conditions` conditions exist.
    pub const fn for_conditions(conditions: usize) -> Self {
        Self {
            search: 2 * conditions + 1,
            walker: conditions,
        }
    }
}

/// How full the tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFill {
    /// Search entries in use.
    pub search: usize,
    /// Walker entries in use: one per active condition.
    pub walker: usize,
    /// Sizes.
    pub limits: TableLimits,
}

impl TableFill {
    /// Conditions that can still be activated whatever their filters are: each takes one walker
    /// entry and at most two search entries.
    pub fn free(&self) -> usize {
        let walker = self.limits.walker.saturating_sub(self.walker);
        let search = self.limits.search.saturating_sub(self.search) / 2;
        walker.min(search)
    }
}

/// One step of a list: what to do for a matching condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkerEntry {
    next: u32,
    /// Index into `software`, or `NONE`.
    software: u32,
    /// The condition.
    pub condition: ConditionId,
    /// Deadline of the action minus time of the message, ns.
    pub offset_ns: i64,
    /// Tag for the sink.
    pub tag: u32,
    /// The sink.
    pub sink: SinkId,
    /// Its channel.
    pub kind: SinkKind,
    /// Flags with which the action is delivered.
    pub accept: FlagSet,
}

/// The compiled form of a set of active conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchTable {
    thresholds: Vec<u64>,
    heads: Vec<u32>,
    walker: Vec<WalkerEntry>,
    software: Vec<IdFilter>,
    limits: TableLimits,
}

/// The tables are too small for the active conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "active conditions need {search} search and {walker} walker entries, \
     allowed is {} and {}", limits.search, limits.walker
)]
pub struct TableFull {
    /// Search entries needed.
    pub search: usize,
    /// Walker entries needed.
    pub walker: usize,
    /// Sizes of the tables.
    pub limits: TableLimits,
}

/// The key by which conditions are compiled: where the range begins, widest first, newest first
/// (so that the oldest of equal ones is opened last and reached first).
pub(crate) fn compile_key(condition: &Condition) -> (u64, u64, u64) {
    let (first, last) = condition.spec.filter.enclosing();
    (first, u64::MAX - last, u64::MAX - condition.order)
}

impl MatchTable {
    /// The table that matches nothing.
    pub fn empty(limits: TableLimits) -> Self {
        Self {
            thresholds: vec![0],
            heads: vec![NONE],
            walker: Vec::new(),
            software: Vec::new(),
            limits,
        }
    }

    /// Compiles conditions that come in the order of [`compile_key`], each with its channel.
    ///
    /// # Errors
    /// [`TableFull`] with the exact need.
    pub(crate) fn compile<'a>(
        sorted: impl Iterator<Item = (&'a Condition, SinkKind)>,
        limits: TableLimits,
    ) -> Result<Self, TableFull> {
        let mut table = Self::empty(limits);
        let mut open: Vec<(u64, u32)> = Vec::new();
        for (condition, kind) in sorted {
            let (first, last) = condition.spec.filter.enclosing();
            while open.last().is_some_and(|(end, _)| *end < first) {
                table.close(&mut open);
            }
            let head =
                table.add_entry(condition, kind, open.last().map_or(NONE, |(_, head)| *head));
            open.push((last, head));
            table.add_threshold(first, head);
        }
        while !open.is_empty() {
            table.close(&mut open);
        }
        if table.thresholds.len() > limits.search || table.walker.len() > limits.walker {
            return Err(TableFull {
                search: table.thresholds.len(),
                walker: table.walker.len(),
                limits,
            });
        }
        Ok(table)
    }

    /// Ends the innermost open range: after it, the list of the range around it goes on.
    fn close(&mut self, open: &mut Vec<(u64, u32)>) {
        let Some((end, _)) = open.pop() else {
            return;
        };
        let head = open.last().map_or(NONE, |(_, head)| *head);
        // A range up to the largest ID has nothing after it.
        if let Some(after) = end.checked_add(1) {
            self.add_threshold(after, head);
        }
    }

    fn add_entry(&mut self, condition: &Condition, kind: SinkKind, next: u32) -> u32 {
        let spec = &condition.spec;
        let software = if spec.filter.is_hardware() {
            NONE
        } else {
            self.software.push(spec.filter);
            self.software.len() as u32 - 1
        };
        self.walker.push(WalkerEntry {
            next,
            software,
            condition: condition.id,
            offset_ns: spec.offset_ns,
            tag: spec.tag,
            sink: spec.sink,
            kind,
            accept: spec.accept,
        });
        self.walker.len() as u32 - 1
    }

    /// From `threshold` on, `head` is the list. Later calls for the same threshold win; a
    /// threshold that changes nothing is left out.
    fn add_threshold(&mut self, threshold: u64, head: u32) {
        if self.thresholds.last() == Some(&threshold) {
            self.thresholds.pop();
            self.heads.pop();
        }
        if self.heads.last() != Some(&head) {
            self.thresholds.push(threshold);
            self.heads.push(head);
        }
    }

    /// The conditions that match an ID, in the order of their actions.
    #[inline]
    pub fn matches(&self, id: EventId) -> Matches<'_> {
        let after = self
            .thresholds
            .partition_point(|threshold| *threshold <= id.0);
        // The first threshold is 0, so there is one not above any ID.
        Matches {
            table: self,
            id,
            next: self.heads[after - 1],
        }
    }

    /// How full it is.
    pub fn fill(&self) -> TableFill {
        TableFill {
            search: self.thresholds.len(),
            walker: self.walker.len(),
            limits: self.limits,
        }
    }
}

/// Walks the list of one event ID.
#[derive(Debug, Clone)]
pub struct Matches<'a> {
    table: &'a MatchTable,
    id: EventId,
    next: u32,
}

impl<'a> Iterator for Matches<'a> {
    type Item = &'a WalkerEntry;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.next != NONE {
            let entry = &self.table.walker[self.next as usize];
            self.next = entry.next;
            let matched = entry.software == NONE
                || self.table.software[entry.software as usize].matches(self.id);
            if matched {
                return Some(entry);
            }
        }
        None
    }
}
