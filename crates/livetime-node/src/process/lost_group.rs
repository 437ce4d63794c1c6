//! A building group that is lost as a whole: its host is gone, or its writer is and no other takes
//! its place. The run goes on with the other groups.
//!
//! Without its writer a group is of no use, so that its builder units are ended with it. Their
//! events are built again by other groups, as those of any lost builder unit, but for what had left
//! the group already. Nobody who lives can say what that is: what the writer had been given is known
//! to none but the dead. Three things tell all the same:
//!
//! ```text
//! readout units   which events were released: a builder unit releases an event when it was rejected,
//!                 or when the writer has put it into its chunk. It cannot be built again, and need
//!                 not be
//! the run file    where it can be read from here: which of the others are in it
//! event manager   of the events that were cleared, how many the filter had accepted
//! ```
//! So an event is in one file, or it is lost: accepted by the group and not in its file, in the chunk
//! that was not complete. That is counted as `writer_lost`. What is not known counts as lost, too: an
//! event that was released and not cleared, unless it is in the file or its filter unit lives; and
//! chunks of a file that cannot be read here, of which its writer had no time to tell.
//!
//! Where the file cannot be read, one of the events that are built again may be in it: handed to the
//! writer, in a chunk that was completed at once, and not yet released. Their number is told, and
//! whoever reads both files has them by their trigger number.
//!
//! The file stays as its writer left it, unless the run is on this machine alone: then it gets its
//! last record here. How one builder unit is settled is in [`super::recovery`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use livetime_store::{FileName, RunReader};
use livetime_wire::{UnitId, UnitKind};

use super::process_group::{GroupLeft, ProcessGroup};
use super::recovery::{Incident, OnLoss};
use crate::building_group::BuildingGroup;
use crate::chain_plan::role_of;
use crate::counter_block::RoleCounts;
use crate::role::RoleResult;
use crate::role::event_manager::accepted_of;
use crate::role_ends::unit_of;
use crate::snapshot::Snapshot;

/// What a lost group left behind, for the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostGroupLeft {
    /// Index of its writer.
    pub writer: u16,
    /// Its events that others built again and that are not known to be in its file: so many may be in
    /// two files at most.
    pub built_again: u64,
}

/// What is known of the groups that are lost, and of those that may be.
#[derive(Debug, Default)]
pub(super) struct LostGroups {
    lost: BTreeMap<u16, LostGroup>,
    /// By group that lost builder units: their events that were at its writer, or are taken to be.
    at_writer: BTreeMap<u16, u64>,
}

#[derive(Debug, Default)]
struct LostGroup {
    /// Events in the file, as its writer said last.
    stored: u64,
    /// Events that were built again by others.
    built_again: BTreeSet<u64>,
}

impl LostGroups {
    /// Whether the group of a unit is lost.
    pub(super) fn has(&self, group: BuildingGroup) -> bool {
        self.lost.contains_key(&group.index)
    }

    /// So many events of a lost builder unit were at the writer of its group.
    pub(super) fn note_at_writer(&mut self, group: BuildingGroup, events: usize) {
        *self.at_writer.entry(group.index).or_default() += events as u64;
    }

    /// These events of a lost builder unit are built again.
    pub(super) fn note_built_again(&mut self, group: BuildingGroup, events: &[u64]) {
        if let Some(lost) = self.lost.get_mut(&group.index) {
            lost.built_again.extend(events);
        }
    }
}

impl ProcessGroup {
    /// The building group that is lost with a process that is gone, if the others go on without it.
    pub(super) fn group_lost_with(&self, index: usize) -> Option<BuildingGroup> {
        let unit = self.processes[index].unit;
        let is_member = match unit.kind {
            UnitKind::Writer | UnitKind::Builder => true,
            // Another host's filter unit is no part of it that it cannot do without.
            UnitKind::Filter => self.is_homeless(unit),
            _ => false,
        };
        let group = BuildingGroup::of(&self.config, unit.index);
        let policy = self.policy;
        let is_stop = policy.writer == OnLoss::Stop || policy.builder == OnLoss::Stop;
        if !is_member || is_stop || self.lost_groups.has(group) {
            return None;
        }
        let writer = group.writer();
        let is_given_up = policy.writer == OnLoss::Continue && !self.lives(writer);
        let has_others = (0..group.count).any(|index| {
            let other = BuildingGroup { index, ..group };
            other != group && self.lives(other.writer()) && !self.is_homeless(other.writer())
        });
        let is_lost = has_others && (is_given_up || self.is_homeless(writer));
        let dead = self.missed.iter().chain([&index]);
        let mut dead = dead.map(|index| self.processes[*index].unit);
        let is_refused = policy.filter == OnLoss::Stop
            && dead.any(|unit| unit.kind == UnitKind::Filter && group.has(unit.index));
        (is_lost && !is_refused).then_some(group)
    }

    /// The lost group that a builder unit, filter unit or writer is in.
    pub(super) fn lost_group_of(&self, unit: UnitId) -> Option<BuildingGroup> {
        let kinds = [UnitKind::Builder, UnitKind::Filter, UnitKind::Writer];
        let group = BuildingGroup::of(&self.config, unit.index);
        (kinds.contains(&unit.kind) && self.lost_groups.has(group)).then_some(group)
    }

    /// Whether the process of a unit is there.
    pub(super) fn lives(&self, unit: UnitId) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|process| process.unit == unit && !process.gone)
    }

    /// Goes on without a group: ends what is left of it and has its events built by others.
    pub(super) fn lose_group(&mut self, group: BuildingGroup) -> Vec<Incident> {
        let missed = std::mem::take(&mut self.missed);
        let of_group = |index: &usize| group.has(self.processes[*index].unit.index);
        let is_member = |index: &usize| {
            let process = &self.processes[*index];
            let is_dead_filter = process.unit.kind == UnitKind::Filter && missed.contains(index);
            let shares_fate = matches!(process.unit.kind, UnitKind::Writer | UnitKind::Builder);
            process.lost.is_none() && of_group(index) && (shares_fate || is_dead_filter)
        };
        let mut members: Vec<usize> = (0..self.processes.len()).filter(is_member).collect();
        // As they depend on each other's pages.
        members.sort_by_key(|index| std::cmp::Reverse(self.processes[*index].unit.kind));
        let others = missed.into_iter().filter(|index| !members.contains(index));
        self.missed = others.collect();
        self.note_lost_group(group);
        // All of them are dead before the first event is given to others.
        let mut incidents = Vec::new();
        for index in &members {
            let is_ended = !self.processes[*index].gone && !self.is_homeless(group.writer());
            let (mut incident, _) = self.bury(*index);
            if is_ended {
                incident.exit = "ended: its writer is gone".to_owned();
            }
            incidents.push(incident);
        }
        for index in 0..self.processes.len() {
            self.forget_verdicts(index, group);
        }
        let mut handled = Ok(OnLoss::Continue);
        for index in members {
            let unit = self.processes[index].unit;
            if unit.kind == UnitKind::Builder {
                let settled = self.settle_builder_loss(unit).map(|()| OnLoss::Continue);
                handled = handled.and(settled);
            }
            self.cuts.forget(unit);
        }
        for incident in &mut incidents {
            incident.handled.clone_from(&handled);
        }
        incidents
    }

    /// How many events a writer had stored, as it said last.
    pub(super) fn said_stored(&self, writer: UnitId) -> u64 {
        let lives = self.processes.iter().filter(|p| p.unit == writer);
        // One that is buried has no such counter any more.
        let said = lives.map(|process| {
            let now = process.counters.read().chain.events_stored;
            now.max(process.stored_last)
        });
        said.max().unwrap_or(0)
    }

    /// Adds what dead processes said last and their blocks have no more, see [`Snapshot::died`].
    pub(crate) fn add_dead(&self, shown: &mut Snapshot) {
        for process in self.processes.iter().filter(|p| p.lost.is_some()) {
            if !shown.died.contains(&process.id) {
                shown.died.push(process.id.clone());
            }
            // The file goes on in the life that is the last one.
            let mut lives = self.processes.iter().rev();
            let last = lives.find(|life| process.is_writer() && life.unit == process.unit);
            let name = last.unwrap_or(process).name();
            let found = shown.roles.iter_mut().find(|(id, _)| *id == name);
            let Some((_, RoleCounts { chain, .. })) = found else {
                continue;
            };
            let [accepted, rejected] = process.verdicts_last;
            chain.filter_accepted = chain.filter_accepted.max(accepted);
            chain.filter_rejected = chain.filter_rejected.max(rejected);
            chain.events_stored = chain.events_stored.max(process.stored_last);
        }
    }

    /// Remembers what the writer of a group said last.
    fn note_lost_group(&mut self, group: BuildingGroup) {
        let lost = LostGroup {
            stored: self.said_stored(group.writer()),
            built_again: BTreeSet::new(),
        };
        self.lost_groups.lost.insert(group.index, lost);
    }

    /// What a dead filter unit of a lost group said of events may be said of them by another once
    /// more: the event manager knows how many had left the group.
    pub(super) fn forget_verdicts(&mut self, index: usize, group: BuildingGroup) {
        let process = &mut self.processes[index];
        let is_its = process.unit.kind == UnitKind::Filter && group.has(process.unit.index);
        if is_its && process.lost.is_some() {
            let mut counts = process.counters.read();
            let chain = &mut counts.chain;
            let said = [chain.filter_accepted, chain.filter_rejected];
            process.verdicts_last = std::array::from_fn(|i| process.verdicts_last[i].max(said[i]));
            (chain.filter_accepted, chain.filter_rejected) = (0, 0);
            process.counters.publish(&counts);
        }
    }

    /// Puts what is known of groups that lost units into the results of their roles; the run files of
    /// lost groups are closed here where nobody else may have them.
    pub(super) fn settle_lost_groups(&mut self, left: &mut GroupLeft) {
        let lost = std::mem::take(&mut self.lost_groups);
        let count = self.config.builder.writers;
        let groups: BTreeSet<u16> = lost
            .at_writer
            .keys()
            .chain(lost.lost.keys())
            .copied()
            .collect();
        for index in groups {
            let group = BuildingGroup { index, count };
            let at_writer = lost.at_writer.get(&index).copied().unwrap_or_default();
            match self.accepted_of_group(group, left) {
                Some(cleared) => self.settle_verdicts(group, cleared + at_writer, left),
                None => self.restore_verdicts(group, left),
            }
        }
        for (index, of_group) in lost.lost {
            let group = BuildingGroup { index, count };
            let mut built_again = of_group.built_again;
            if self.launcher.hosts.is_some() {
                let stored = triggers_of(&self.place_of(group.writer()).path);
                let twice = stored.intersection(&built_again).count();
                let seen = (stored.len() - twice) as u64;
                if let Some(result) = last_life(&mut left.results, &role_of(group.writer())) {
                    result.counts.chain.events_stored = seen.max(of_group.stored);
                }
                if seen >= of_group.stored {
                    // The file is at hand: it says which of them are in it.
                    built_again.retain(|event| stored.contains(event));
                }
            } else {
                built_again.clear();
            }
            left.lost_groups.push(LostGroupLeft {
                writer: index,
                built_again: built_again.len() as u64,
            });
        }
    }

    /// Of a group that has lost builder units: how many of the events that were cleared its filter units
    /// had accepted, if the event manager knows.
    fn accepted_of_group(&self, group: BuildingGroup, left: &GroupLeft) -> Option<u64> {
        if self.lost_kinds().contains(&UnitKind::EventManager) {
            // Of what was cleared before another took its place, nobody knows it any more.
            return None;
        }
        let manager = role_of(UnitId::EVENT_MANAGER);
        let details = left.results.iter().find(|result| result.id == manager);
        let details = &details?.details;
        let of_units = group.builders(&self.config);
        let mut of_units = of_units.filter_map(|unit| details.get(&accepted_of(unit)).copied());
        let first = of_units.next()?;
        Some(first + of_units.sum::<u64>())
    }

    /// Gives the dead filter units of a group the accepted events of it that those that live have not
    /// accepted: so many in all.
    fn settle_verdicts(&self, group: BuildingGroup, accepted: u64, left: &mut GroupLeft) {
        let filters = left.results.iter_mut().filter(|result| {
            let unit = result.id.split('~').next().and_then(unit_of);
            unit.is_some_and(|unit| unit.kind == UnitKind::Filter && group.has(unit.index))
        });
        let (dead, living): (Vec<_>, Vec<_>) = filters.partition(|result| {
            let mut processes = self.processes.iter();
            processes.any(|process| process.name() == result.id && process.lost.is_some())
        });
        let of_living = living.iter().map(|r| r.counts.chain.filter_accepted);
        give_to_dead(dead, accepted.saturating_sub(of_living.sum()));
    }

    /// Where nobody knows better, what dead filter units of a lost group said themselves counts again.
    fn restore_verdicts(&self, group: BuildingGroup, left: &mut GroupLeft) {
        let is_filter = |unit: UnitId| unit.kind == UnitKind::Filter && group.has(unit.index);
        for process in self.processes.iter().filter(|p| is_filter(p.unit)) {
            let name = process.name();
            let result = left.results.iter_mut().find(|result| result.id == name);
            if let Some(RoleResult { counts, .. }) = result {
                let chain = &mut counts.chain;
                let [accepted, rejected] = process.verdicts_last;
                chain.filter_accepted = chain.filter_accepted.max(accepted);
                chain.filter_rejected = chain.filter_rejected.max(rejected);
            }
        }
    }

    /// Whether the run file of a writer stays as it is: others may have it still.
    pub(super) fn leaves_file(&self, writer: u16) -> bool {
        self.launcher.hosts.is_some() && self.lost_groups.lost.contains_key(&writer)
    }
}

/// Counts these accepted events as those of the dead filter units, in place of what each of them said: which
/// of them has accepted which is not known.
fn give_to_dead(dead: Vec<&mut RoleResult>, accepted: u64) {
    let mut rest = accepted;
    for result in dead {
        result.counts.chain.filter_accepted = std::mem::take(&mut rest);
    }
}

/// The result of the last life of a role.
pub(super) fn last_life<'a>(results: &'a mut [RoleResult], id: &str) -> Option<&'a mut RoleResult> {
    // Its lives are in their order.
    let is_it = |result: &&mut RoleResult| result.id.split('~').next() == Some(id);
    results.iter_mut().rev().find(is_it)
}

/// Triggers of the events in all files of the writer whose first one is at a path, as far as they can
/// be read.
pub(super) fn triggers_of(path: &Path) -> BTreeSet<u64> {
    let mut triggers = BTreeSet::new();
    let folder = path.parent().unwrap_or(Path::new("."));
    let name_of = |path: &Path| FileName::parse(path.file_name()?.to_str()?);
    let writer = name_of(path).unwrap_or_default().writer;
    let Ok(entries) = std::fs::read_dir(folder) else {
        return triggers;
    };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let is_its = name_of(&path).is_some_and(|name| name.writer == writer);
        let reader = File::open(&path).ok().filter(|_| is_its);
        let Some(mut reader) = reader.and_then(|file| RunReader::open(file).ok()) else {
            continue;
        };
        if let Ok(index) = reader.event_index() {
            triggers.extend(index.places().iter().map(|place| place.trigger.0));
        }
    }
    triggers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many filter units have died, what they said last is not counted beside what is known.
    #[test]
    fn accepted_events_of_dead_filter_units_count_once() {
        for units in 1..=3 {
            let mut results: Vec<RoleResult> = (0..units).map(|_| RoleResult::default()).collect();
            for result in &mut results {
                let chain = &mut result.counts.chain;
                (chain.filter_accepted, chain.filter_rejected) = (25, 22);
            }
            give_to_dead(results.iter_mut().collect(), 95);
            let accepted = |r: &RoleResult| r.counts.chain.filter_accepted;
            assert_eq!(results.iter().map(accepted).sum::<u64>(), 95);
            let rejected = |r: &RoleResult| r.counts.chain.filter_rejected;
            assert_eq!(results.iter().map(rejected).sum::<u64>(), 22 * units);
        }
    }
}
