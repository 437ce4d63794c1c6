//! Static check: which pairs of conditions must conflict, whatever the schedule.
//!
//! Two actions of one sink conflict if they have the same deadline. Two active conditions of one
//! sink with equal offsets therefore conflict for every message that both match: that is found
//! here, with an example ID. Any other pair, and any condition with itself, can conflict only
//! between two messages; those are counted as possible. What actually conflicts is flagged by
//! [`crate::action_unit`].

use livetime_wire::EventId;

use crate::condition::{Condition, ConditionId};

/// Pairs listed by name; beyond it they are only counted.
pub const PAIRS_LISTED: usize = 100;

/// Two conditions that conflict for every message that both match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConflictPair {
    /// The one whose action comes first and is not flagged.
    pub first: ConditionId,
    /// The one whose action is flagged.
    pub second: ConditionId,
    /// The smallest event ID that both match.
    pub example: EventId,
}

/// What the check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConflictReport {
    /// The first [`PAIRS_LISTED`] pairs that must conflict.
    pub pairs: Vec<ConflictPair>,
    /// All pairs that must conflict.
    pub must: u64,
}

impl ConflictReport {
    fn add(&mut self, pair: ConflictPair) {
        self.must += 1;
        if self.pairs.len() < PAIRS_LISTED {
            self.pairs.push(pair);
        }
    }
}

/// Whether two active conditions must conflict, with the smallest ID for which they do.
pub fn must_conflict(a: &Condition, b: &Condition) -> Option<EventId> {
    let same = a.spec.sink == b.spec.sink
        && a.spec.offset_ns == b.spec.offset_ns
        && a.spec.active
        && b.spec.active
        && a.id != b.id;
    same.then(|| a.spec.filter.overlap(&b.spec.filter))
        .flatten()
}

/// Whether two active conditions (or one with itself) may conflict between two messages.
pub fn may_conflict(a: &Condition, b: &Condition) -> bool {
    a.spec.sink == b.spec.sink && a.spec.active && b.spec.active
}

/// Finds the pairs that must conflict among the conditions of one sink, given in the order of the
/// match table, of which at least one is `changed`.
///
/// Prefixes around overlapping filters are nested, so only the prefixes open at a condition are
/// compared with it.
pub(crate) fn find_conflicts<'a>(
    sorted: impl Iterator<Item = &'a Condition>,
    changed: impl Fn(ConditionId) -> bool,
) -> ConflictReport {
    let mut report = ConflictReport::default();
    let mut open: Vec<&Condition> = Vec::new();
    for condition in sorted {
        let (first, _) = condition.spec.filter.enclosing();
        while open
            .last()
            .is_some_and(|outer| outer.spec.filter.enclosing().1 < first)
        {
            open.pop();
        }
        for outer in &open {
            if !(changed(outer.id) || changed(condition.id)) {
                continue;
            }
            if let Some(example) = must_conflict(outer, condition) {
                // The one opened later is reached first by the walk.
                report.add(ConflictPair {
                    first: condition.id,
                    second: outer.id,
                    example,
                });
            }
        }
        open.push(condition);
    }
    report
}
