//! Filter units that join a run and leave it while it goes on.

use livetime_wire::{UnitId, UnitKind};

use super::control_message::Message;
use super::process_group::ProcessGroup;
use crate::chain_plan::role_of;

/// Filter units that may join in one run, each with counters of its own on the run's page.
pub const JOINS_MAX: usize = 500;

/// What is done to the filter units of a running chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterChange {
    /// One more, in the subfarm that has the fewest.
    Add,
    /// One less: this one, or the last of the subfarm that has the most.
    Remove(Option<UnitId>),
}

impl ProcessGroup {
    /// Adds a filter unit, or lets one leave; says which.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn steer_filters(&mut self, change: FilterChange) -> Result<String, String> {
        let absent = self.absent_filters();
        match change {
            FilterChange::Add => {
                // The loss of one that has died is settled first, by whoever looks for losses.
                let free = |unit: &&UnitId| {
                    let mut processes = self.processes.iter().enumerate();
                    !processes.any(|(index, process)| {
                        process.unit == **unit && (!process.gone || self.missed.contains(&index))
                    })
                };
                let weakest = |unit: &&UnitId| (self.filters_beside(**unit).count(), unit.index);
                let free = absent.iter().filter(free);
                let free = free.filter(|unit| {
                    !self.is_homeless(**unit) && self.lost_group_of(**unit).is_none()
                });
                let Some(unit) = free.min_by_key(weakest).copied() else {
                    return Err(self.why_no_filter(&absent));
                };
                self.join(unit)?;
                Ok(role_of(unit))
            }
            FilterChange::Remove(unit) => {
                let units: Vec<UnitId> = self.filters_there().collect();
                let strongest = |unit: &&UnitId| (self.filters_beside(**unit).count(), unit.index);
                let unit = unit.or(units.iter().max_by_key(strongest).copied());
                let Some(unit) = unit.filter(|unit| units.contains(unit)) else {
                    return Err("there is no such filter unit in the run".to_owned());
                };
                if self.filters_beside(unit).count() == 1 {
                    let of = match self.config.builder.subfarms {
                        1 => "",
                        _ => " of its subfarm",
                    };
                    return Err(format!("{unit} is the last filter unit{of}"));
                }
                self.retire(unit)?;
                Ok(role_of(unit))
            }
        }
    }

    /// Starts a filter unit beside the others.
    fn join(&mut self, unit: UnitId) -> Result<(), String> {
        if self.joins == JOINS_MAX {
            return Err(format!(
                "{JOINS_MAX} filter units have joined in this run, the most allowed"
            ));
        }
        self.joins += 1;
        self.start_unit(unit)
            .map_err(|error| format!("{} cannot be started: {error}", role_of(unit)))
    }

    /// Why none of the filter units that are not there can join.
    fn why_no_filter(&self, absent: &[UnitId]) -> String {
        let mut missed = self.missed.iter().map(|index| self.processes[*index].unit);
        if let Some(unit) = missed.find(|unit| absent.contains(unit)) {
            return format!("{unit} has just died, which is settled first; give the order again");
        }
        let lost = absent
            .iter()
            .filter(|unit| self.is_homeless(**unit) || self.lost_group_of(**unit).is_some());
        let lost: Vec<String> = lost.map(|unit| role_of(*unit)).collect();
        match lost.is_empty() {
            true => "all filter units of `[filter] units_max` are there".to_owned(),
            false => format!(
                "all other filter units of `[filter] units_max` are there; the host or the building group of \
                 {} is gone",
                lost.join(", ")
            ),
        }
    }

    /// Filter units that take events.
    fn filters_there(&self) -> impl Iterator<Item = UnitId> + '_ {
        let there = self.processes.iter().filter(|p| !p.gone && !p.leaving);
        there
            .map(|process| process.unit)
            .filter(|unit| unit.kind == UnitKind::Filter)
    }

    /// Those of them that are in the subfarm of a filter unit, itself included.
    pub(super) fn filters_beside(&self, unit: UnitId) -> impl Iterator<Item = UnitId> + '_ {
        let others = self.filters_there();
        others.filter(move |other| self.stands_in(*other, unit))
    }

    /// Lets a filter unit leave: it gets no more events, and ends when it has finished its last.
    fn retire(&mut self, unit: UnitId) -> Result<(), String> {
        self.tell("retire", unit, &[UnitKind::Builder], &[])?;
        let mut processes = self.processes.iter_mut().enumerate();
        let Some((index, process)) = processes.find(|(_, p)| p.unit == unit && !p.gone) else {
            return Ok(());
        };
        process.leaving = true;
        let message = Message::Command {
            what: "retire".to_owned(),
            unit: unit.to_code(),
            epoch: 0,
            ends: Vec::new(),
            triggers: Vec::new(),
        };
        // One that cannot be told is dying itself, and is dealt with in its turn.
        let told = process.send(&message, &[]).is_ok();
        self.await_settled(told.then_some(index).into_iter().collect())
            .map(|_| ())
    }
}
