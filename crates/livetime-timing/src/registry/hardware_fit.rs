//! Which conditions a receiver's own tables could hold.
//!
//! A receiver in software holds what hardware cannot: more conditions, and masks with holes. This
//! says, in the order of creation, up to where the active conditions would fit.

use super::{Condition, ConditionId, MatchTable, SinkId, SinkKind, TableFill, TableLimits};
use crate::match_table::compile_key;

/// The answer, each list in the order of creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareFit {
    /// Conditions that fit.
    pub fits: Vec<ConditionId>,
    /// Prefixes for which no entry is left.
    pub beyond: Vec<ConditionId>,
    /// Masks with holes and spans, which hardware cannot compile.
    pub software_only: Vec<ConditionId>,
    /// The tables with all that fits.
    pub fill: TableFill,
}

pub(super) fn hardware_fit<'a>(
    conditions: impl Iterator<Item = &'a Condition>,
    kind: impl Fn(SinkId) -> SinkKind,
    limits: TableLimits,
) -> HardwareFit {
    let mut active: Vec<&Condition> = conditions.filter(|c| c.spec.active).collect();
    active.sort_unstable_by_key(|c| c.order);
    let (prefixes, software): (Vec<&Condition>, Vec<&Condition>) = active
        .into_iter()
        .partition(|c| c.spec.filter.is_hardware());
    let compile = |count: usize| {
        let mut sorted = prefixes[..count].to_vec();
        sorted.sort_unstable_by_key(|c| compile_key(c));
        MatchTable::compile(sorted.into_iter().map(|c| (c, kind(c.spec.sink))), limits)
    };
    // One more condition never needs fewer entries, so the first count that fails bounds the rest.
    let counts: Vec<usize> = (1..=prefixes.len()).collect();
    let fitting = counts.partition_point(|count| compile(*count).is_ok());
    let fill = compile(fitting).map_or(MatchTable::empty(limits).fill(), |table| table.fill());
    let ids = |list: &[&Condition]| list.iter().map(|c| c.id).collect();
    HardwareFit {
        fits: ids(&prefixes[..fitting]),
        beyond: ids(&prefixes[fitting..]),
        software_only: ids(&software),
        fill,
    }
}
