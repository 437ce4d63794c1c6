//! What the parent does when a role process dies, and the faults that it can be asked to make.
//!
//! ```text
//! filter unit     its page holds dropped ── writer writes what it had handed over and tells the
//!                 builder units ── builder units count the rest as lost and release it
//! builder unit    event manager withdraws its credits and names its events ── filter units and
//!                 writer finish what they have of it ── readout units free its fragments
//! any other       the run ends by force
//! ```
//! Each step waits until those concerned say that they have settled it. A unit that comes back
//! gets rings, an epoch and counters of its own; what the dead one said last is in its old rings,
//! which are read to their end first. How the counters are settled is in [`super::lost_unit`].

use std::time::{Duration, Instant};

use livetime_shm::{continue_process, stop_process};
use livetime_wire::{DurationNs, RunNs, TriggerNumber, UnitId, UnitKind};

use super::ProcessError;
use super::control_message::{EndName, Message};
use super::process_group::{Passing, ProcessGroup, WRITER_THREAD, take_sides};
use crate::chain_plan::{WRITER, role_of};
use crate::role::RoleCommand;
use crate::role_ends::FIRST_EPOCH;

/// How long the others may take to settle a loss.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
/// Processes that may be started again in one run; then the run ends.
pub const RESTARTS_MAX: usize = 16;

/// What is done when a unit is lost whose loss a run can survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// A new process takes its place in a new epoch.
    #[default]
    Restart,
    /// The others go on without it, as long as there is one.
    Continue,
    /// The run is ended.
    Stop,
}

/// What is done about lost units; the loss of any other ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LossPolicy {
    /// About filter units.
    pub filter: OnLoss,
    /// About builder units.
    pub builder: OnLoss,
}

/// Something that is done to a role process during the run, from a `--fault` option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFault {
    /// Role id.
    pub role: String,
    /// When.
    pub at: RunNs,
    /// For how long it is stopped; `None` kills it.
    pub stopped: Option<DurationNs>,
}

/// A role process that went away without having ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Role id.
    pub role: String,
    /// How its process ended.
    pub exit: String,
    /// Page holds of it that were dropped.
    pub holds_dropped: u32,
    /// What was done; `Err` says why the run has to end.
    pub handled: Result<OnLoss, String>,
}

impl ProcessGroup {
    /// Makes the faults that are due, takes in what was heard since the last look, and deals with
    /// the roles that went away.
    pub fn look(&mut self) -> Vec<Incident> {
        self.make_faults();
        while let Ok((index, heard)) = self.heard.try_recv() {
            self.take(index, heard);
        }
        let mut incidents = Vec::new();
        // Others may be missed while one is dealt with.
        while let Some(index) = self.missed.pop() {
            incidents.push(self.lose(index));
        }
        incidents
    }

    fn make_faults(&mut self) {
        let now = self.clock().now();
        let due = self.stopped.extract_if(.., |(_, until)| *until <= now);
        for (index, _) in due.collect::<Vec<_>>() {
            self.go_on(index);
        }
        let due = self.faults.extract_if(.., |fault| fault.at <= now);
        for fault in due.collect::<Vec<_>>() {
            let mut found = self.processes.iter_mut().enumerate();
            let Some((index, process)) =
                found.find(|(_, process)| process.id == fault.role && !process.gone)
            else {
                continue;
            };
            match fault.stopped {
                // A process that has gone by itself meanwhile needs no fault.
                None => drop(process.child.kill()),
                Some(time) => {
                    if stop_process(process.child.id()).is_ok() {
                        self.stopped.push((index, now.after(time)));
                    }
                }
            }
        }
    }

    /// Lets all processes go on that a fault has stopped.
    pub(super) fn continue_stopped(&mut self) {
        for (index, _) in std::mem::take(&mut self.stopped) {
            self.go_on(index);
        }
    }

    fn go_on(&self, index: usize) {
        if let Some(process) = self.processes.get(index).filter(|process| !process.gone) {
            // It can only have died, which its socket tells.
            let _died = continue_process(process.child.id());
        }
    }

    /// Deals with a process that is gone.
    fn lose(&mut self, index: usize) -> Incident {
        let process = &mut self.processes[index];
        let pid = process.child.id();
        let exit = process.end();
        process.lost = Some(exit.clone());
        let (role, unit) = (process.id.clone(), process.unit);
        // From here on this is the only writer of its counters; it holds nothing any more.
        let mut counts = process.counters.read();
        (counts.gauges.idle, counts.gauges.held) = (1, 0);
        process.counters.publish(&counts);
        let holds_dropped = self.reclaim_pages(pid);
        let policy = match unit.kind {
            UnitKind::Filter => self.policy.filter,
            UnitKind::Builder => self.policy.builder,
            _ => OnLoss::Stop,
        };
        let handled = self.handle_loss(unit, policy).map(|()| policy);
        Incident {
            role,
            exit,
            holds_dropped,
            handled,
        }
    }

    fn handle_loss(&mut self, unit: UnitId, policy: OnLoss) -> Result<(), String> {
        self.settle_loss(unit)?;
        let others = self.processes.iter().filter(|process| !process.gone);
        let has_others = others.into_iter().any(|p| p.unit.kind == unit.kind);
        match policy {
            OnLoss::Restart => self.restart(unit),
            OnLoss::Continue if has_others => Ok(()),
            OnLoss::Continue => Err("it was the last of its kind".to_owned()),
            OnLoss::Stop => Err("a run does not go on without it".to_owned()),
        }
    }

    /// Takes back what a dead process held in the pools.
    fn reclaim_pages(&self, pid: u32) -> u32 {
        let mut dropped = 0;
        for pool in self.pools.values() {
            for (owner, process) in pool.owners() {
                if process.pid() == pid
                    && let Ok(reclaimed) = pool.reclaim(owner)
                {
                    // Filled pages stay with the links that they belong to.
                    dropped += reclaimed.holds_dropped;
                }
            }
        }
        dropped
    }

    /// Tells everybody, in the order in which they depend on each other.
    fn settle_loss(&mut self, unit: UnitId) -> Result<(), String> {
        let order: [&[UnitKind]; 4] = match unit.kind {
            UnitKind::Builder => [
                &[UnitKind::EventManager],
                &[UnitKind::Filter],
                &[UnitKind::Writer],
                &[UnitKind::Readout],
            ],
            _ => [
                &[UnitKind::Writer],
                &[UnitKind::Builder],
                &[UnitKind::EventManager, UnitKind::Readout],
                &[UnitKind::Filter],
            ],
        };
        let mut triggers = Vec::new();
        for kinds in order {
            let named = self.tell_lost(unit, kinds, &triggers)?;
            triggers.extend(named);
        }
        Ok(())
    }

    /// Tells the units of some kinds that a unit is lost, and waits until they have settled it;
    /// returns the events that they name.
    fn tell_lost(
        &mut self,
        unit: UnitId,
        kinds: &[UnitKind],
        triggers: &[u64],
    ) -> Result<Vec<u64>, String> {
        let mut waiting = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            if process.gone || !kinds.contains(&process.unit.kind) {
                continue;
            }
            let message = Message::Command {
                what: "lost".to_owned(),
                unit: unit.to_code(),
                epoch: 0,
                ends: Vec::new(),
                triggers: triggers.to_vec(),
            };
            // One that cannot be told is dying itself, and is dealt with in its turn.
            if process.send(&message, &[]).is_ok() {
                waiting.push(index);
            }
        }
        if let Some(writer) = self
            .writer
            .as_ref()
            .filter(|_| kinds.contains(&UnitKind::Writer))
        {
            let triggers = triggers.iter().copied().map(TriggerNumber).collect();
            if writer
                .commands
                .send(RoleCommand::PeerLost { unit, triggers })
                .is_ok()
            {
                waiting.push(WRITER_THREAD);
            }
        }
        self.await_settled(waiting)
    }

    fn await_settled(&mut self, mut waiting: Vec<usize>) -> Result<Vec<u64>, String> {
        let until = Instant::now() + SETTLE_PATIENCE;
        let mut named = Vec::new();
        while !waiting.is_empty() {
            self.wake_writer();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("{} roles did not settle its loss", waiting.len()));
            }
            let Ok((index, heard)) = self.heard.recv_timeout(left.min(Duration::from_millis(20)))
            else {
                self.make_faults();
                continue;
            };
            let settled = self.take(index, heard);
            let is_gone = self
                .processes
                .get(index)
                .is_some_and(|process| process.gone);
            if settled.is_some() || is_gone {
                waiting.retain(|other| *other != index);
            }
            named.extend(settled.into_iter().flatten());
        }
        Ok(named)
    }

    /// Starts a process in the place of a lost one.
    fn restart(&mut self, unit: UnitId) -> Result<(), String> {
        if self.blocks_used >= self.page().blocks() {
            return Err(format!(
                "{RESTARTS_MAX} processes were started again already"
            ));
        }
        self.try_restart(unit)
            .map_err(|error| format!("it cannot be started again: {error}"))
    }

    fn try_restart(&mut self, unit: UnitId) -> Result<(), ProcessError> {
        self.ring_epoch += 1;
        let epoch = self.epochs.entry(unit).or_insert(FIRST_EPOCH);
        *epoch += 1;
        let epoch = *epoch;
        let mut passing = Passing::default();
        let rings: Vec<_> = self.plan.rings_of(unit).copied().collect();
        for ring in &rings {
            passing.make(ring, self.ring_epoch)?;
        }
        let block = self.blocks_used;
        self.blocks_used += 1;
        let id = role_of(unit);
        self.spawn(&id, block, epoch)?;
        let index = self.processes.len() - 1;
        self.meet(index)?;
        self.configure(index, &passing.of(&id))?;
        self.await_ready(index)?;
        let mut waiting = Vec::new();
        for (peer, process) in self.processes.iter().enumerate() {
            let ends = passing.of(&process.id);
            if process.gone || peer == index || ends.is_empty() {
                continue;
            }
            let names: Vec<EndName> = ends.iter().map(|(name, _)| name.clone()).collect();
            let fds: Vec<_> = ends.iter().filter_map(|(_, region)| region.fd()).collect();
            let message = Message::Command {
                what: "back".to_owned(),
                unit: unit.to_code(),
                epoch,
                ends: names,
                triggers: Vec::new(),
            };
            if process.send(&message, &fds).is_ok() {
                waiting.push(peer);
            }
        }
        let (producers, consumers) = take_sides(&passing.of(&WRITER.to_string()), &self.plan)?;
        if let Some(writer) = &self.writer {
            let command = RoleCommand::PeerBack {
                unit,
                epoch,
                producers,
                consumers,
            };
            if writer.commands.send(command).is_ok() {
                waiting.push(WRITER_THREAD);
            }
        }
        self.await_settled(waiting)
            .map_err(|reason| ProcessError::Refused { role: id, reason })?;
        self.let_run(index)
    }
}
