//! The chain: pools, rings and roles joined, and the threads that run them.
//!
//! [`Chain::start`] builds everything that will ever be allocated, [`Chain::snapshot`] looks at
//! the run, [`Chain::finish`] collects what is left. When to stop is the caller's decision; how a
//! run that was ended by force is settled is in `settlement.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use livetime_shm::{Doorbell, PagePool, PoolError, RingError, Waiter, ring};
use livetime_wire::{LossArea, RunNumber, UnitKind};

use crate::chain_config::ChainConfig;
use crate::chain_outcome::ChainOutcome;
use crate::chain_plan::{ChainPlan, WRITER, role_of};
use crate::counter_block::CounterBlock;
use crate::process::lost_unit::{Neighbours, settle_lost};
use crate::process::{Incident, Launcher, LossPolicy, ProcessError, ProcessFault, ProcessGroup};
use crate::role::Role;
use crate::role::writer::RunFile;
use crate::role_ends::{MissingEnd, RoleEnds, WriterEnds};
use crate::run_clock::RunClock;
use crate::settlement::settle;
use crate::snapshot::Snapshot;
use crate::worker::{Phase, PhaseCell, Worker, WorkerResult};

/// Why a chain could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// No memory for pages.
    #[error("cannot create a page pool: {0}")]
    Pool(#[from] PoolError),
    /// No memory for a ring.
    #[error("cannot create a ring: {0}")]
    Ring(#[from] RingError),
    /// The plan lacks an end that a role needs.
    #[error("the plan of the chain is incomplete: {0}")]
    Plan(#[from] MissingEnd),
    /// The roles' processes did not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// No thread.
    #[error("cannot start a worker: {0}")]
    Thread(#[from] std::io::Error),
}

/// A running chain.
pub struct Chain {
    run: RunNumber,
    clock: RunClock,
    phase: PhaseCell,
    blocks: Vec<(String, Arc<CounterBlock>)>,
    threads: Vec<JoinHandle<WorkerResult>>,
    writer_failed: Arc<AtomicBool>,
    processes: Option<ProcessGroup>,
}

/// Makes every ring and pool of a plan and gives each role its ends.
fn make_ends(plan: &ChainPlan, bell: &Doorbell) -> Result<BTreeMap<String, RoleEnds>, ChainError> {
    let ends = |id: &String| {
        (
            id.clone(),
            RoleEnds::new(id, CounterBlock::new(), bell.clone()),
        )
    };
    let mut roles: BTreeMap<String, RoleEnds> = plan.roles.iter().map(ends).collect();
    for planned in &plan.pools {
        let pool = PagePool::create(&planned.config)?;
        for role in &planned.roles {
            if let Some(ends) = roles.get_mut(role) {
                ends.pools.insert(planned.key, pool.clone());
            }
        }
    }
    for planned in &plan.rings {
        let (producer, consumer) = ring(&planned.config)?;
        if let Some(ends) = roles.get_mut(&role_of(planned.key.from)) {
            ends.producers.insert(planned.key, producer);
        }
        if let Some(ends) = roles.get_mut(&role_of(planned.key.to)) {
            ends.consumers.insert(planned.key, consumer);
        }
    }
    Ok(roles)
}

/// What the living units next to lost ones have counted.
fn neighbours(snapshot: &Snapshot, lost: &[UnitKind]) -> Neighbours {
    Neighbours {
        accepts: snapshot.role("evm").gauges.received,
        event_manager_lives: !lost.contains(&UnitKind::EventManager),
    }
}

impl Chain {
    /// Builds the chain and starts its workers; triggers come at once.
    ///
    /// # Errors
    /// [`ChainError`] when memory or threads cannot be had.
    ///
    /// # Panics
    /// If the configuration was not validated.
    pub fn start(config: &ChainConfig, file: RunFile) -> Result<Self, ChainError> {
        let plan = ChainPlan::new(config);
        let writer_bell = Doorbell::in_process();
        let failed = Arc::new(AtomicBool::new(false));
        let mut ends = make_ends(&plan, &writer_bell)?;
        let mut writer = Some(WriterEnds {
            file,
            failed: failed.clone(),
        });
        let mut blocks = Vec::new();
        let mut roles: BTreeMap<String, Box<dyn Role>> = BTreeMap::new();
        for id in &plan.roles {
            let Some(ends) = ends.remove(id) else {
                continue;
            };
            blocks.push((id.clone(), ends.block.clone()));
            let writer = writer.take_if(|_| *id == WRITER.to_string());
            roles.insert(id.clone(), ends.into_role(config, writer)?);
        }
        let phase = PhaseCell::default();
        let clock = RunClock::start();
        let mut threads = Vec::new();
        for worker in &config.workers {
            let of_worker = worker
                .roles
                .iter()
                .filter_map(|id| roles.remove(id))
                .collect();
            let has_writer = worker.roles.iter().any(|id| *id == WRITER.to_string());
            let waiter = if has_writer {
                Waiter::with_doorbell(worker.wait, writer_bell.clone())
            } else {
                Waiter::new(worker.wait)
            };
            let worker = Worker {
                name: worker.name.clone(),
                core: worker.core,
                waiter,
                roles: of_worker,
            };
            threads.push(worker.spawn(clock.clone(), phase.clone())?);
        }
        assert!(
            roles.is_empty(),
            "validated configurations place every role"
        );
        Ok(Self {
            run: config.run,
            clock,
            phase,
            blocks,
            threads,
            writer_failed: failed,
            processes: None,
        })
    }

    /// Builds the chain with a process per role, but for the writer, and lets it run.
    ///
    /// # Errors
    /// [`ChainError`] when memory cannot be had, or a role process did not start or is not ours.
    pub fn start_processes(
        config: &ChainConfig,
        file: RunFile,
        launcher: Launcher,
        policy: LossPolicy,
        faults: Vec<ProcessFault>,
    ) -> Result<Self, ChainError> {
        let failed = Arc::new(AtomicBool::new(false));
        let writer = WriterEnds {
            file,
            failed: failed.clone(),
        };
        let group = ProcessGroup::start(config, launcher, policy, faults, writer)?;
        Ok(Self {
            run: config.run,
            clock: group.clock().clone(),
            phase: group.page().phase(),
            blocks: group.blocks(),
            threads: Vec::new(),
            writer_failed: failed,
            processes: Some(group),
        })
    }

    /// Deals with roles whose processes went away since the last look, and makes the faults that
    /// are due; there is nothing to do where roles are threads.
    pub fn supervise(&mut self) -> Vec<Incident> {
        let Some(group) = &mut self.processes else {
            return Vec::new();
        };
        let incidents = group.look();
        if !incidents.is_empty() {
            self.blocks = group.blocks();
        }
        incidents
    }

    /// The counters of all roles now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::read(self.clock.now(), &self.blocks)
    }

    /// Whether the source has sent its last trigger and every one of them is decided.
    pub fn is_source_finished(&self) -> bool {
        self.snapshot().role("src0").gauges.idle == 1
    }

    /// Whether the run file can no longer be written.
    pub fn has_writer_failed(&self) -> bool {
        self.writer_failed.load(Ordering::Relaxed)
    }

    /// Offers no more triggers and lets everything pass through.
    pub fn stop(&self) {
        self.phase.advance(Phase::Draining);
    }

    /// Whether nothing is on its way any more; to be asked after [`Chain::stop`].
    pub fn is_drained(&self) -> bool {
        let snapshot = self.snapshot();
        let (mut counts, mut losses) = (snapshot.counts(), snapshot.losses());
        // Events in the chunk that is not full yet count as stored when the file is closed.
        counts.events_stored = counts
            .filter_accepted
            .saturating_sub(losses.in_area(LossArea::Store));
        let in_writer = snapshot
            .kind("wr")
            .map(|role| role.gauges.received)
            .sum::<u64>();
        if !snapshot.is_idle() {
            return false;
        }
        if let Some(group) = &self.processes {
            let lost = group.lost_kinds();
            if !lost.is_empty() {
                // The dead have not said all they did: what is on its way shows in the living.
                counts.events_stored = in_writer.saturating_sub(losses.in_area(LossArea::Store));
                settle_lost(
                    &mut counts,
                    &mut losses,
                    &lost,
                    neighbours(&snapshot, &lost),
                );
                return group.is_at_rest() && counts.problems(&losses).is_empty();
            }
        }
        in_writer == counts.filter_accepted && counts.problems(&losses).is_empty()
    }

    /// Ends the run: in order after [`Chain::is_drained`], else by force, which gives up what is
    /// still on its way and counts it.
    pub fn finish(self) -> ChainOutcome {
        let drained = self.is_drained();
        if let Some(group) = self.processes {
            let ended_at = self.clock.now();
            let (results, workers, lost) = group.finish(drained);
            let mut outcome = ChainOutcome::collect(self.run, results, workers, ended_at, drained);
            if !lost.is_empty() {
                let roles = outcome.roles.clone();
                let snapshot = Snapshot {
                    at: ended_at,
                    roles,
                };
                let neighbours = neighbours(&snapshot, &lost);
                settle_lost(&mut outcome.counts, &mut outcome.losses, &lost, neighbours);
            }
            return outcome;
        }
        self.phase.advance(if drained {
            Phase::Ending
        } else {
            Phase::Aborting
        });
        let ended_at = self.clock.now();
        let mut roles = Vec::new();
        let mut workers = Vec::new();
        for thread in self.threads {
            // A panic of a worker ends the program through the panic hook, so joining succeeds.
            let Ok(mut result) = thread.join() else {
                continue;
            };
            roles.append(&mut result.roles);
            workers.push(result);
        }
        if !drained {
            settle(&mut roles, &self.clock);
        }
        let results = roles
            .into_iter()
            .map(|role| role.finish(self.clock.now()))
            .collect();
        ChainOutcome::collect(self.run, results, workers, ended_at, drained)
    }
}
