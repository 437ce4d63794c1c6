//! A readout unit that takes the place of a lost one, in the middle of a run.
//!
//! What the dead one held is gone, and settled as in a run that goes on without it
//! ([`super::recovery`]). Then
//!
//! ```text
//! builder units   name the events with fragments of the dead one. As long as there are any, somebody
//!                 may read its pages, and nothing is done; where a network carries the fragments,
//!                 they were copied, and nobody does
//! all             get rings and sockets to the new process, which takes nothing yet. The links of the
//!                 front-ends begin again, with all of their pages free
//! front-ends      give no more triggers, and name the last one
//! new unit,       have nothing of that one and all before; what is missing of them is
//! builder units   not waited for
//! front-ends      send fragments of later triggers, and give triggers again
//! ```
//! So each trigger is on one side of the boundary for everybody, and no event waits for fragments that
//! cannot come. The price is dead time (XOFF) for as long as two commands take. Fragments up to the
//! boundary are lost with the links that were down; how they are counted is in [`super::lost_unit`].

use std::collections::BTreeMap;

use livetime_wire::{UnitId, UnitKind};

use super::process_group::ProcessGroup;
use super::recovery::{Incident, OnLoss};
use crate::worker::Phase;

/// Readout units that were lost and whose places are taken by others.
#[derive(Debug, Default)]
pub(super) struct ReadoutReturns {
    /// Lost ones whose pages may be read, and what is to be told of them; each at most once.
    waiting: Vec<(UnitId, Incident)>,
    /// Of those that are back, the last trigger given before they joined.
    joined: BTreeMap<UnitId, u64>,
}

impl ReadoutReturns {
    /// Units that are back, by their code, and the last triggers given before they joined.
    pub(super) fn joined(&self) -> Vec<(u16, u64)> {
        let joined = self.joined.iter();
        joined
            .map(|(unit, newest)| (unit.to_code(), *newest))
            .collect()
    }
}

impl ProcessGroup {
    /// Keeps what is to be told of a readout unit until another has taken its place; hands back any
    /// other incident.
    pub(super) fn await_return(&mut self, index: usize, incident: Incident) -> Option<Incident> {
        let unit = self.processes[index].unit;
        if unit.kind != UnitKind::Readout {
            return Some(incident);
        }
        self.returns.joined.remove(&unit);
        if incident.handled != Ok(OnLoss::Restart) {
            return Some(incident);
        }
        self.returns.waiting.push((unit, incident));
        None
    }

    /// Starts processes in the places of lost readout units whose pages nobody reads any more. Of a run
    /// that is ending they are of no use.
    pub(super) fn bring_readouts_back(&mut self, is_ending: bool) -> Vec<Incident> {
        let is_ending = is_ending || self.page().phase().get() >= Phase::Draining;
        let mut told = Vec::new();
        for (unit, mut incident) in std::mem::take(&mut self.returns.waiting) {
            // Nothing can be started where a host is gone.
            if is_ending || self.is_homeless(unit) {
                incident.handled = Ok(OnLoss::Continue);
                incident.at_end = is_ending;
                told.push(incident);
                continue;
            }
            match self.bring_back(unit) {
                Ok(false) => {
                    self.returns.waiting.push((unit, incident));
                    continue;
                }
                Ok(true) => {}
                // It has gone meanwhile.
                Err(_) if self.is_homeless(unit) => incident.handled = Ok(OnLoss::Continue),
                Err(reason) => incident.handled = Err(reason),
            }
            told.push(incident);
        }
        told
    }

    /// Starts a process in the place of a lost readout unit and lets it join; `false` if that has to
    /// wait.
    fn bring_back(&mut self, unit: UnitId) -> Result<bool, String> {
        // Others that died are dealt with first: their events may be read by filter units and writer.
        if !self.missed.is_empty() || self.is_read(unit)? || !self.missed.is_empty() {
            return Ok(false);
        }
        self.restart(unit)?;
        let given = self.tell("hold", unit, &[UnitKind::Source], &[])?;
        let newest = *given.first().ok_or("the front-ends have no way to it")?;
        self.returns.joined.insert(unit, newest);
        let kinds = [UnitKind::Readout, UnitKind::Builder];
        self.tell("joined", unit, &kinds, &[newest])?;
        self.tell("joined", unit, &[UnitKind::Source], &[newest])?;
        Ok(true)
    }

    /// Whether somebody may read pages of a readout unit.
    fn is_read(&mut self, unit: UnitId) -> Result<bool, String> {
        if self.config.transport.is_network() {
            return Ok(false);
        }
        let held = self.tell("held", unit, &[UnitKind::Builder], &[])?;
        Ok(!held.is_empty())
    }
}
