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
/// compared with it; and of those, with one that did not change, the changed ones alone. A change of
/// one condition so costs one comparison with each other one at most, however many filters are
/// equal.
pub(crate) fn find_conflicts<'a>(
    sorted: impl Iterator<Item = &'a Condition>,
    changed: impl Fn(ConditionId) -> bool,
) -> ConflictReport {
    let mut report = ConflictReport::default();
    let mut open = OpenRanges::default();
    for condition in sorted {
        let (first, _) = condition.spec.filter.enclosing();
        open.close_before(first);
        let is_changed = changed(condition.id);
        let compared = if is_changed { &open.all } else { &open.changed };
        for outer in compared {
            if let Some(example) = must_conflict(outer, condition) {
                // The one opened later is reached first by the walk.
                report.add(ConflictPair {
                    first: condition.id,
                    second: outer.id,
                    example,
                });
            }
        }
        open.all.push(condition);
        if is_changed {
            open.changed.push(condition);
        }
    }
    report
}

/// The conditions whose ranges are open, outermost first, and the changed ones among them.
#[derive(Default)]
struct OpenRanges<'a> {
    all: Vec<&'a Condition>,
    changed: Vec<&'a Condition>,
}

impl OpenRanges<'_> {
    /// Closes the ranges that end before `first`.
    fn close_before(&mut self, first: u64) {
        for open in [&mut self.all, &mut self.changed] {
            while open
                .pop_if(|inner| inner.spec.filter.enclosing().1 < first)
                .is_some()
            {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::condition::ConditionSpec;
    use crate::id_filter::IdFilter;
    use crate::ownership::{ClientId, Ownership};
    use crate::sink::SinkId;

    fn equal_conditions(count: u32) -> Vec<Condition> {
        let condition = |order: u32| Condition {
            id: ConditionId::new(order, 0),
            spec: ConditionSpec::new(SinkId(0), IdFilter::ALL, 0),
            ownership: Ownership::created_by(ClientId(1)),
            order: order.into(),
        };
        (0..count).rev().map(condition).collect()
    }

    /// One more of many equal ones: as many looks as there are conditions, not as there are pairs.
    #[test]
    fn a_change_of_one_of_many_equal_conditions_looks_at_each_once() {
        let conditions = equal_conditions(500);
        let looks = Cell::new(0);
        let last = ConditionId::new(499, 0);
        let report = find_conflicts(conditions.iter(), |id| {
            looks.set(looks.get() + 1);
            id == last
        });
        assert_eq!((report.must, looks.get()), (499, 500));
        let all = find_conflicts(conditions.iter(), |_| true);
        assert_eq!((all.must, all.pairs.len()), (500 * 499 / 2, PAIRS_LISTED));
    }
}
