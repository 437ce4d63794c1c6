//! Processes that are started while a run goes on, in the place of lost ones or beside the others.
//!
//! Until a process is ready nobody else knows of it: one that fails before leaves nothing behind, and
//! one that dies is tried again. From then on the others have their ends towards it, and its death is
//! settled as any.

use livetime_shm::PeerError;
use livetime_wire::UnitId;

use super::ProcessError;
use super::passed_ends::Passing;
use super::process_group::ProcessGroup;
use crate::chain_plan::{role_of, transport_of};
use crate::role_ends::FIRST_EPOCH;

/// Processes that may be started again in one run; then the run ends.
pub const RESTARTS_MAX: usize = 64;
/// Processes that may die in a row before they are ready, in the place of one.
const STARTS_MAX: usize = 8;

impl ProcessGroup {
    /// Whether one more process may be started again.
    pub(super) fn may_restart(&self) -> bool {
        self.restarts < RESTARTS_MAX
    }

    /// Starts a process in the place of a lost one.
    pub(super) fn restart(&mut self, unit: UnitId) -> Result<(), String> {
        let mut tried = 0;
        loop {
            if !self.may_restart() {
                return Err(format!(
                    "{RESTARTS_MAX} processes were started again already"
                ));
            }
            self.restarts += 1;
            tried += 1;
            match self.start_unit(unit) {
                Ok(()) => return Ok(()),
                Err(error) if has_died(&error) && tried < STARTS_MAX => {}
                Err(error) => return Err(format!("it cannot be started again: {error}")),
            }
        }
    }

    /// Starts a process of a unit that has none, with rings, streams and an epoch of its own.
    pub(super) fn start_unit(&mut self, unit: UnitId) -> Result<(), ProcessError> {
        let passing = self.new_ends(unit)?;
        let id = role_of(unit);
        let epoch = self.epochs.entry(unit).or_insert(FIRST_EPOCH);
        *epoch += 1;
        let epoch = *epoch;
        let block = self.blocks_used;
        self.blocks_used += 1;
        self.spawn(&id, block, epoch)?;
        let index = self.processes.len() - 1;
        if let Err(error) = self.make_ready(index, &passing) {
            self.discard_last();
            return Err(error);
        }
        let mut waiting = Vec::new();
        for (peer, process) in self.processes.iter().enumerate() {
            if !process.gone && peer != index && passing.send_back(process, unit, epoch) {
                waiting.push(peer);
            }
        }
        let settled = self.await_settled(waiting);
        if settled.is_err() {
            self.processes[index].child.kill();
        }
        // One that is dead by now hangs up, and is heard.
        self.let_run(index)?;
        settled
            .map(drop)
            .map_err(|reason| ProcessError::Refused { role: id, reason })
    }

    /// The ends of all rings and sockets of a unit, made anew.
    fn new_ends(&mut self, unit: UnitId) -> Result<Passing, ProcessError> {
        self.ring_epoch += 1;
        let mut passing = self.passing();
        let rings: Vec<_> = self.plan.rings_of(unit).copied().collect();
        for ring in &rings {
            passing.make(ring, self.ring_epoch)?;
        }
        let peers: Vec<_> = self.plan.stream_peers(unit).collect();
        // Nobody accepts streams where a host is gone.
        for peer in peers.into_iter().filter(|peer| !self.is_homeless(*peer)) {
            let transport = transport_of(&self.config, (unit, peer));
            passing.connect((unit, peer), transport, self.ring_epoch)?;
        }
        let links = self.plan.data_sockets.iter();
        for link in links.filter(|(_, readout)| *readout == unit) {
            let transport = transport_of(&self.config, *link);
            passing.connect(*link, transport, self.ring_epoch)?;
        }
        Ok(passing)
    }

    fn make_ready(&self, index: usize, passing: &Passing) -> Result<(), ProcessError> {
        self.meet(index)?;
        self.configure(index, &passing.of(&self.processes[index].id))?;
        self.await_ready(index)
    }

    /// Ends the process that was spawned last, of which nobody has heard.
    fn discard_last(&mut self) {
        if let Some(mut process) = self.processes.pop() {
            process.end();
            self.reclaim_pages(&process);
        }
    }
}

/// Whether a process has died before it was ready, for no reason that it could give.
fn has_died(error: &ProcessError) -> bool {
    let ProcessError::Control { error, .. } = error else {
        return false;
    };
    matches!(error, PeerError::HungUp)
}
