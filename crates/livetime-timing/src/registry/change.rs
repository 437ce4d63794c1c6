//! Changes of conditions: a list across any sinks, applied whole or not at all.
//!
//! Each change is checked and made at once, with what it replaced written down; the new table is
//! compiled last, and any error undoes everything in reverse.

use core::fmt;
use std::collections::BTreeSet;

use livetime_wire::EventId;

use super::{
    AccessError, Caller, Condition, ConditionId, ConditionSpec, ConflictPolicy, ConflictReport,
    MatchTable, Operation, Ownership, Registry, SinkId, SinkKind, Slot, authorise, compile_key,
    find_conflicts,
};
use crate::match_table::TableFull;
use crate::sink::{TAG_OFF, TAG_ON};

/// One change of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A new condition, owned by the caller.
    Add(ConditionSpec),
    /// The end of a condition.
    Remove(ConditionId),
    /// A condition takes part, or no longer.
    SetActive(ConditionId, bool),
    /// A condition does something else from now on, in the same sink.
    Replace(ConditionId, ConditionSpec),
    /// Every condition of the sink that the caller may change: active ones become inactive and
    /// the others active.
    Toggle(SinkId),
    /// Every condition of the caller becomes inactive.
    InactivateMine,
    /// Takes a condition that nobody owns.
    Own(ConditionId),
    /// Gives a condition up: permanent from now on, and open to all.
    Disown(ConditionId),
}

/// A condition that conflicts with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictingCondition {
    /// It is there.
    There(ConditionId),
    /// It was to be added by this change, from 0, and has no number.
    New(usize),
}

impl fmt::Display for ConflictingCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::There(id) => write!(f, "condition {id}"),
            Self::New(index) => write!(f, "the new condition of change {index}"),
        }
    }
}

/// Why a transaction changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// The caller may not.
    #[error("change {index}: {error}")]
    Access {
        /// Which change, from 0.
        index: usize,
        /// Why.
        error: AccessError,
    },
    /// There is no such sink.
    #[error("change {index}: there is no {sink}")]
    UnknownSink {
        /// Which change, from 0.
        index: usize,
        /// The sink.
        sink: SinkId,
    },
    /// There is no such condition (any more).
    #[error("change {index}: there is no condition {condition}")]
    UnknownCondition {
        /// Which change, from 0.
        index: usize,
        /// The condition.
        condition: ConditionId,
    },
    /// The offset is outside the sink's bounds.
    #[error("change {index}: {}", offset_text(sink, *offset_ns, *min_ns, *max_ns))]
    Offset {
        /// Which change, from 0.
        index: usize,
        /// Name of the sink.
        sink: String,
        /// Offset asked for.
        offset_ns: i64,
        /// Smallest allowed.
        min_ns: i64,
        /// Largest allowed.
        max_ns: i64,
    },
    /// A tag that says neither on nor off to an output.
    #[error(
        "change {index}: tag {tag} in {sink}, an output; allowed are {TAG_OFF}, which is off, and \
         {TAG_ON}, which is on"
    )]
    OutputTag {
        /// Which change, from 0.
        index: usize,
        /// Name of the sink.
        sink: String,
        /// Tag asked for.
        tag: u32,
    },
    /// A mask with holes or a span in a sink that only hardware serves.
    #[error("change {index}: {sink} matches leading bits only; use a prefix")]
    SoftwareOnly {
        /// Which change, from 0.
        index: usize,
        /// Name of the sink.
        sink: String,
    },
    /// A replacement that would move the condition.
    #[error("change {index}: condition {condition} stays in its sink; add a new one")]
    OtherSink {
        /// Which change, from 0.
        index: usize,
        /// The condition.
        condition: ConditionId,
    },
    /// Every place for conditions is taken.
    #[error("change {index}: all {conditions_max} places for conditions are taken")]
    Full {
        /// Which change, from 0.
        index: usize,
        /// Places there are.
        conditions_max: usize,
    },
    /// The compiled tables are too small.
    #[error(transparent)]
    TableFull(#[from] TableFull),
    /// Conditions of a sink that refuses it must conflict.
    #[error(
        "{} and {} of {sink} conflict for every message with event ID {example}; \
         {must} such pairs in all", pair[0], pair[1]
    )]
    Conflict {
        /// Name of the sink.
        sink: String,
        /// One such pair, of which the second would never act.
        pair: [ConflictingCondition; 2],
        /// The smallest event ID that both match.
        example: EventId,
        /// All such pairs.
        must: u64,
    },
}

/// A sink that its creator gave no name has one that no user knows: there the key is named alone.
fn offset_text(sink: &str, offset_ns: i64, min_ns: i64, max_ns: i64) -> String {
    match sink.starts_with('_') {
        true => format!("offset_ns {offset_ns}, allowed is {min_ns} to {max_ns}"),
        false => format!("offset {offset_ns} ns, allowed in {sink} is {min_ns} to {max_ns} ns"),
    }
}

/// A transaction that took place in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Conditions created, in the order of their changes.
    pub added: Vec<ConditionId>,
    /// New pairs that must conflict in sinks that allow it with a warning.
    pub warnings: Vec<(SinkId, ConflictReport)>,
    /// The table to install in the action unit.
    pub table: Box<MatchTable>,
}

/// What a transaction has done so far.
#[derive(Default)]
struct Progress {
    /// Slots before they were changed, in the order of the changes.
    undo: Vec<(u32, Slot)>,
    added: Vec<ConditionId>,
    /// The change of each of them.
    added_by: Vec<usize>,
    freed: Vec<u32>,
}

impl Progress {
    /// A condition as its user knows it.
    fn named(&self, id: ConditionId) -> ConflictingCondition {
        let added = self.added.iter().zip(&self.added_by);
        let mut of_change = added.filter(|(added, _)| **added == id);
        of_change
            .next()
            .map_or(ConflictingCondition::There(id), |(_, index)| {
                ConflictingCondition::New(*index)
            })
    }
}

impl Registry {
    /// Makes all changes, or none. Nothing takes effect on messages until the returned table is
    /// installed.
    ///
    /// # Errors
    /// The [`TransactionError`] of the first change that breaks a rule, then of the whole.
    pub fn apply(
        &mut self,
        caller: &Caller,
        changes: &[Change],
    ) -> Result<Applied, TransactionError> {
        let mut progress = Progress::default();
        let created = self.created;
        let result = self.make_changes(caller, changes, &mut progress);
        let result = result.and_then(|()| {
            let changed: BTreeSet<u32> = progress.undo.iter().map(|(slot, _)| *slot).collect();
            let sorted = self.sorted_with(&changed);
            let warnings = self.check_conflicts(&sorted, &changed, &progress)?;
            let table = Box::new(self.compile(&sorted)?);
            Ok((sorted, warnings, table))
        });
        match result {
            Ok((sorted, warnings, table)) => {
                self.sorted = sorted;
                self.fill = table.fill();
                self.free.append(&mut progress.freed);
                Ok(Applied {
                    added: progress.added,
                    warnings,
                    table,
                })
            }
            Err(error) => {
                self.undo(progress);
                self.created = created;
                Err(error)
            }
        }
    }

    fn make_changes(
        &mut self,
        caller: &Caller,
        changes: &[Change],
        progress: &mut Progress,
    ) -> Result<(), TransactionError> {
        for (index, change) in changes.iter().enumerate() {
            match *change {
                Change::Add(spec) => self.add(caller, index, spec, progress)?,
                Change::Remove(id) => {
                    self.checked(caller, Operation::Destroy, index, id)?;
                    self.save(id, progress);
                    let slot = &mut self.slots[id.slot()];
                    slot.condition = None;
                    slot.generation = slot.generation.wrapping_add(1);
                    progress.freed.push(id.slot() as u32);
                }
                Change::SetActive(id, active) => {
                    let mut spec = self.changeable(caller, index, id)?.spec;
                    spec.active = active;
                    self.set_spec(id, spec, progress);
                }
                Change::Replace(id, spec) => {
                    let condition = self.changeable(caller, index, id)?;
                    if condition.spec.sink != spec.sink {
                        return Err(TransactionError::OtherSink {
                            index,
                            condition: id,
                        });
                    }
                    self.check_spec(index, &spec)?;
                    self.set_spec(id, spec, progress);
                }
                Change::Toggle(sink) => self.toggle(caller, index, sink, progress)?,
                Change::InactivateMine => self.inactivate(caller, progress),
                Change::Own(id) => {
                    self.checked(caller, Operation::Own, index, id)?;
                    self.save(id, progress);
                    if let Some(condition) = &mut self.slots[id.slot()].condition {
                        condition.ownership.owner = Some(caller.client);
                    }
                }
                Change::Disown(id) => {
                    self.checked(caller, Operation::Disown, index, id)?;
                    self.save(id, progress);
                    if let Some(condition) = &mut self.slots[id.slot()].condition {
                        condition.ownership = condition.ownership.disowned();
                    }
                }
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        caller: &Caller,
        index: usize,
        spec: ConditionSpec,
        progress: &mut Progress,
    ) -> Result<(), TransactionError> {
        self.check_spec(index, &spec)?;
        let operation = self.change_operation(spec.sink);
        let object = self.sink(spec.sink).map(|sink| sink.ownership);
        authorise(caller, operation, object.as_ref())
            .map_err(|error| TransactionError::Access { index, error })?;
        let conditions_max = self.config.conditions_max;
        let slot = match self.free.last() {
            Some(slot) => *slot,
            None if self.slots.len() < conditions_max => self.slots.len() as u32,
            None => {
                return Err(TransactionError::Full {
                    index,
                    conditions_max,
                });
            }
        };
        if self.free.pop().is_none() {
            self.slots.push(Slot::default());
        }
        let place = &mut self.slots[slot as usize];
        progress.undo.push((slot, place.clone()));
        let id = ConditionId::new(slot, place.generation);
        place.condition = Some(Condition {
            id,
            spec,
            ownership: Ownership::created_by(caller.client),
            order: self.created,
        });
        self.created += 1;
        progress.added.push(id);
        progress.added_by.push(index);
        Ok(())
    }

    fn toggle(
        &mut self,
        caller: &Caller,
        index: usize,
        sink: SinkId,
        progress: &mut Progress,
    ) -> Result<(), TransactionError> {
        let ownership = self
            .sink(sink)
            .map(|sink| sink.ownership)
            .ok_or(TransactionError::UnknownSink { index, sink })?;
        let operation = self.change_operation(sink);
        authorise(caller, operation, Some(&ownership))
            .map_err(|error| TransactionError::Access { index, error })?;
        let mine: Vec<(ConditionId, ConditionSpec)> = self
            .conditions()
            .filter(|c| c.spec.sink == sink)
            .filter(|c| authorise(caller, operation, Some(&c.ownership)).is_ok())
            .map(|c| (c.id, c.spec))
            .collect();
        for (id, mut spec) in mine {
            spec.active = !spec.active;
            self.set_spec(id, spec, progress);
        }
        Ok(())
    }

    fn inactivate(&mut self, caller: &Caller, progress: &mut Progress) {
        let mine: Vec<(ConditionId, ConditionSpec)> = self
            .conditions()
            .filter(|c| c.ownership.owner == Some(caller.client) && c.spec.active)
            .map(|c| (c.id, c.spec))
            .collect();
        for (id, mut spec) in mine {
            spec.active = false;
            self.set_spec(id, spec, progress);
        }
    }

    /// A condition that the caller may change as its sink asks for.
    fn changeable(
        &self,
        caller: &Caller,
        index: usize,
        id: ConditionId,
    ) -> Result<&Condition, TransactionError> {
        let operation = self
            .condition(id)
            .map_or(Operation::Read, |c| self.change_operation(c.spec.sink));
        self.checked(caller, operation, index, id)
    }

    fn checked(
        &self,
        caller: &Caller,
        operation: Operation,
        index: usize,
        id: ConditionId,
    ) -> Result<&Condition, TransactionError> {
        let condition = self
            .condition(id)
            .ok_or(TransactionError::UnknownCondition {
                index,
                condition: id,
            })?;
        self.authorise_in(caller, operation, condition.spec.sink, &condition.ownership)
            .map_err(|error| TransactionError::Access { index, error })?;
        Ok(condition)
    }

    fn check_spec(&self, index: usize, spec: &ConditionSpec) -> Result<(), TransactionError> {
        let sink = spec.sink;
        let known = self
            .sink(sink)
            .ok_or(TransactionError::UnknownSink { index, sink })?;
        let (min_ns, max_ns) = (known.spec.offset_min_ns, known.spec.offset_max_ns);
        if !(min_ns..=max_ns).contains(&spec.offset_ns) {
            return Err(TransactionError::Offset {
                index,
                sink: known.spec.name.clone(),
                offset_ns: spec.offset_ns,
                min_ns,
                max_ns,
            });
        }
        let sink = || known.spec.name.clone();
        if known.spec.kind == SinkKind::Output && ![TAG_OFF, TAG_ON].contains(&spec.tag) {
            return Err(TransactionError::OutputTag {
                index,
                sink: sink(),
                tag: spec.tag,
            });
        }
        if known.spec.kind != SinkKind::Software && !spec.filter.is_hardware() {
            return Err(TransactionError::SoftwareOnly {
                index,
                sink: sink(),
            });
        }
        Ok(())
    }

    fn save(&self, id: ConditionId, progress: &mut Progress) {
        let slot = self.slots[id.slot()].clone();
        progress.undo.push((id.slot() as u32, slot));
    }

    fn set_spec(&mut self, id: ConditionId, spec: ConditionSpec, progress: &mut Progress) {
        self.save(id, progress);
        if let Some(condition) = &mut self.slots[id.slot()].condition {
            condition.spec = spec;
        }
    }

    /// Puts everything back, the last change first.
    fn undo(&mut self, progress: Progress) {
        for (slot, before) in progress.undo.into_iter().rev() {
            let was_free = before.condition.is_none();
            self.slots[slot as usize] = before;
            if was_free {
                self.free.push(slot);
            }
        }
    }

    /// The order of compilation after changes: what did not change is in order already, and what
    /// did is merged in.
    fn sorted_with(&self, changed: &BTreeSet<u32>) -> Vec<u32> {
        let key = |slot: &u32| self.at(*slot).map(compile_key);
        let active = |slot: &u32| self.at(*slot).is_some_and(|c| c.spec.active);
        let mut fresh: Vec<u32> = changed.iter().copied().filter(active).collect();
        fresh.sort_unstable_by_key(key);
        let mut fresh = fresh.into_iter().peekable();
        let mut sorted = Vec::with_capacity(self.sorted.len() + fresh.len());
        for slot in self.sorted.iter().filter(|slot| !changed.contains(slot)) {
            while let Some(new) = fresh.next_if(|new| key(new) < key(slot)) {
                sorted.push(new);
            }
            sorted.push(*slot);
        }
        sorted.extend(fresh);
        sorted
    }

    /// New pairs that must conflict: an error in sinks that refuse it, else warnings.
    fn check_conflicts(
        &self,
        sorted: &[u32],
        changed: &BTreeSet<u32>,
        progress: &Progress,
    ) -> Result<Vec<(SinkId, ConflictReport)>, TransactionError> {
        let touched: BTreeSet<SinkId> = changed
            .iter()
            .filter_map(|slot| self.at(*slot))
            .filter(|condition| condition.spec.active)
            .map(|condition| condition.spec.sink)
            .collect();
        let mut warnings = Vec::new();
        for sink in touched {
            let known = self.sink(sink);
            let policy = known.map_or(ConflictPolicy::Ignore, |sink| sink.spec.conflict_policy);
            if policy == ConflictPolicy::Ignore {
                continue;
            }
            let conditions = sorted.iter().filter_map(|slot| self.at(*slot));
            let report = find_conflicts(conditions.filter(|c| c.spec.sink == sink), |id| {
                changed.contains(&(id.slot() as u32))
            });
            let Some(pair) = report.pairs.first() else {
                continue;
            };
            if policy == ConflictPolicy::Reject {
                return Err(TransactionError::Conflict {
                    sink: known.map_or_else(String::new, |sink| sink.spec.name.clone()),
                    pair: [pair.first, pair.second].map(|id| progress.named(id)),
                    example: pair.example,
                    must: report.must,
                });
            }
            warnings.push((sink, report));
        }
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_offset_names_the_sink_if_its_user_knows_its_name() {
        let text = |sink| offset_text(sink, 9, 0, 5);
        assert_eq!(text("IO1"), "offset 9 ns, allowed in IO1 is 0 to 5 ns");
        assert_eq!(text("_2"), "offset_ns 9, allowed is 0 to 5");
    }
}
