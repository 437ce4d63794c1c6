//! The chain: pools, rings and roles joined, and the threads that run them.
//!
//! [`Chain::start`] builds everything that will ever be allocated, [`Chain::snapshot`] looks at
//! the run, [`Chain::finish`] collects what is left. When to stop is the caller's decision; how a
//! run that was ended by force is settled is in `settlement.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use livetime_shm::{Doorbell, PagePool, PoolError, RingError, Waiter, ring};
use livetime_store::Histogram;
use livetime_wire::{
    ConservationProblem, DurationNs, LossArea, LossCause, RunNs, RunNumber, UnitId, UnitKind,
};

use crate::builder_transport::SocketPair;
use crate::chain_config::{ChainConfig, WorkerConfig};
use crate::chain_outcome::ChainOutcome;
use crate::chain_plan::{ChainPlan, FRONT_END, name_of_socket, role_of, transport_of, writers};
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::machine_memory::{MemoryShort, check_memory};
use crate::process::lost_unit::{
    Judged, Neighbours, Unfinished, count_accepted_once, name_cut_off, settle_lost,
};
use crate::process::{
    AskEnd, FilterChange, Incident, Launcher, LossPolicy, ProcessError, ProcessFault, ProcessGroup,
    with_limit,
};
use crate::python_filter::FilterHistograms;
use crate::role::{Role, RoleCommand};
use crate::role_ends::{MissingEnd, RoleEnds, unit_of};
use crate::run_clock::RunClock;
use crate::run_file::{RunFile, RunFiles};
use crate::settlement::{longest_repair, settle};
use crate::snapshot::Snapshot;
use crate::stream_mender::{Addressee, CutStream, StreamFault, StreamMender};
use crate::unclaimed::{of_no_trigger, settle_unanswered, unanswered};
use crate::worker::{
    CommandBox, Phase, PhaseCell, ReportBoard, Worker, WorkerResult, start_workers,
};

/// Why a chain could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The machine has less memory than the chain takes.
    #[error(transparent)]
    Memory(#[from] MemoryShort),
    /// No memory for pages.
    #[error("cannot create a page pool: {0}")]
    Pool(#[from] PoolError),
    /// No memory for a ring.
    #[error("cannot create a ring: {0}")]
    Ring(#[from] RingError),
    /// The plan lacks an end that a role needs.
    #[error("the chain cannot be made: {0}")]
    Plan(#[from] MissingEnd),
    /// The roles' processes did not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Two roles could not be connected.
    #[error("cannot connect the roles: {0}")]
    Stream(#[source] std::io::Error),
    /// No thread.
    #[error("cannot start a worker: {}", with_limit(.0))]
    Thread(#[from] std::io::Error),
}

/// A running chain.
pub struct Chain {
    run: RunNumber,
    clock: RunClock,
    phase: PhaseCell,
    blocks: Vec<(String, Arc<CounterBlock>)>,
    threads: Vec<JoinHandle<WorkerResult>>,
    processes: Option<ProcessGroup>,
    /// What the front-ends are told by, where they are a thread, and their worker's bell.
    front_end: Option<(CommandBox, Doorbell)>,
    is_paused: bool,
    board: ReportBoard,
    mender: StreamMender,
    congestion: Option<String>,
    /// How long the repair of what a network has lost may take.
    repair: Duration,
}

/// Two units and the sockets between them.
type Connected = ((UnitId, UnitId), SocketPair);

/// Makes every ring and pool of a plan and gives each role its ends.
fn make_ends(
    plan: &ChainPlan,
    clock: &RunClock,
    connected: Vec<Connected>,
) -> Result<BTreeMap<String, RoleEnds>, ChainError> {
    let ends = |id: &String| {
        let ends = RoleEnds::new(id, CounterBlock::new(), clock.clone());
        (id.clone(), ends)
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
    for ((a, b), pair) in connected {
        for ((unit, peer), socket) in [(a, b), (b, a)].into_iter().zip(pair.ends) {
            if let Some(ends) = roles.get_mut(&role_of(unit)) {
                ends.put_socket(name_of_socket(unit, peer), socket);
            }
        }
    }
    Ok(roles)
}

/// Gives the roles the bells of units on other workers; bells are by worker.
fn hand_out_bells(
    plan: &ChainPlan,
    workers: &[WorkerConfig],
    bells: &[Doorbell],
    roles: &mut BTreeMap<String, RoleEnds>,
) {
    let worker_of = |id: &String| workers.iter().position(|worker| worker.roles.contains(id));
    for planned in &plan.bells {
        let sleeper = role_of(planned.unit);
        let place = worker_of(&sleeper);
        if let (Some(ends), Some(place)) = (roles.get_mut(&sleeper), place) {
            ends.own_bell = Some(bells[place].clone());
        }
        let others = planned.ringers.iter().filter(|id| worker_of(id) != place);
        for ringer in others {
            if let (Some(ends), Some(place)) = (roles.get_mut(ringer), place) {
                ends.bells.insert(planned.unit, bells[place].clone());
            }
        }
    }
}

/// What makes streams again between roles of these workers, by their boxes and bells.
fn mender_of(
    config: &ChainConfig,
    plan: &ChainPlan,
    commands: &[CommandBox],
    bells: &[Doorbell],
) -> StreamMender {
    let workers = config.workers.iter().zip(commands).zip(bells);
    let workers = workers.map(|((worker, commands), bell)| Addressee {
        roles: worker.roles.clone(),
        commands: commands.clone(),
        bell: bell.clone(),
    });
    let pairs = plan.streams.iter().chain(&plan.data_sockets);
    let transports = pairs.map(|pair| (*pair, transport_of(config, *pair).clone()));
    let congestion = config.filter_transport.congestion();
    StreamMender::new(workers.collect(), congestion, transports.collect())
}

/// Connects the units of a plan that have a network between them.
fn connect_units(config: &ChainConfig, plan: &ChainPlan) -> Result<Vec<Connected>, ChainError> {
    let connect = |units: &(UnitId, UnitId)| {
        let pair = SocketPair::connect(transport_of(config, *units));
        pair.map(|pair| (*units, pair)).map_err(ChainError::Stream)
    };
    let all = plan.streams.iter().chain(&plan.data_sockets);
    all.map(connect).collect()
}

/// What the living units next to lost ones have counted.
fn neighbours(snapshot: &Snapshot, lost: &[UnitKind]) -> Neighbours {
    let judged = (!lost.contains(&UnitKind::Filter)).then(|| {
        let filters = || lives_of(snapshot, UnitKind::Filter).map(|(_, role)| &role.gauges);
        Judged {
            incomplete: filters().map(|role| role.incomplete).sum(),
            fragments_in_incomplete: filters().map(|role| role.fragments_in_incomplete).sum(),
            fragments: filters().map(|role| role.fragments).sum(),
        }
    });
    let builders = lives_of(snapshot, UnitKind::Builder);
    let dead_builders = builders.filter(|(is_dead, _)| *is_dead);
    let managers = lives_of(snapshot, UnitKind::EventManager);
    Neighbours {
        // One in the place of another hears of those that are open, and of later ones.
        accepts: managers
            .map(|(_, role)| role.gauges.received)
            .max()
            .unwrap_or_default(),
        // Of one that has ended in order, nothing is open.
        nobody_knows_open: false,
        ended_by_force: false,
        events_done: lives_of(snapshot, UnitKind::Builder)
            .map(|(_, role)| role.gauges.done)
            .sum(),
        judged,
        unfinished: Unfinished::of(dead_builders.map(|(_, role)| role)),
    }
}

/// What the units of a kind have counted in each of their lives, and whether that is over.
fn lives_of(snapshot: &Snapshot, kind: UnitKind) -> impl Iterator<Item = (bool, &RoleCounts)> {
    let roles = snapshot.roles.iter();
    roles.filter_map(move |(name, role)| {
        let id = name.split('~').next()?;
        let unit = unit_of(id).filter(|unit| unit.kind == kind);
        unit.map(|_| (id != name, role))
    })
}

/// Whether the last life of a unit has ended in order, with counters of its own.
fn has_ended(snapshot: &Snapshot, unit: UnitId) -> bool {
    let role = role_of(unit);
    snapshot.roles.iter().any(|(id, _)| *id == role)
}

/// What a role has that is not idle, as far as it counts that.
fn what_is_held(id: &str, role: &RoleCounts) -> String {
    use UnitKind::{Builder, EventManager, Filter, Readout, Writer};
    let kind = unit_of(id).map(|unit| unit.kind);
    match (role.gauges.held, kind) {
        // It counts those that it has not given to any.
        (0, Some(EventManager)) => "events that builder units have not cleared".to_owned(),
        (held @ 1.., Some(Readout)) => format!("{held} fragments"),
        (held @ 1.., Some(EventManager | Builder | Filter | Writer)) => format!("{held} events"),
        _ => "something".to_owned(),
    }
}

/// Gives each worker its roles.
fn make_workers(
    configs: &[WorkerConfig],
    mut roles: BTreeMap<String, Box<dyn Role>>,
    bells: Vec<Doorbell>,
    commands: Vec<CommandBox>,
    board: &ReportBoard,
) -> Vec<Worker> {
    let with_bells = configs.iter().zip(bells).zip(commands);
    let workers = with_bells.map(|((config, bell), commands)| Worker {
        name: config.name.clone(),
        core: config.core,
        waiter: Waiter::with_doorbell(config.wait, bell),
        roles: (config.roles.iter())
            .filter_map(|id| roles.remove(id))
            .collect(),
        board: board.clone(),
        commands,
    });
    let workers = workers.collect();
    assert!(
        roles.is_empty(),
        "validated configurations place every role"
    );
    workers
}

impl Chain {
    /// Builds the chain and starts its workers; triggers come at once.
    ///
    /// # Errors
    /// [`ChainError`] when memory or threads cannot be had.
    ///
    /// # Panics
    /// If the configuration was not validated.
    pub fn start(config: &ChainConfig, files: impl Into<RunFiles>) -> Result<Self, ChainError> {
        let mut config = config.clone();
        // Threads do not die alone: there is nothing that could be done about a silent one.
        config.builder.heartbeat = DurationNs(0);
        let config = &config;
        let plan = ChainPlan::new(config);
        check_memory(&plan, |_| true)?;
        let bells: Vec<Doorbell> = (config.workers.iter())
            .map(|_| Doorbell::in_process())
            .collect();
        let connected = connect_units(config, &plan)?;
        let of_builder = plan.streams.len();
        let mut pairs = connected.iter().take(of_builder);
        let congestion = pairs.find_map(|(_, pair)| pair.congestion.clone());
        let commands: Vec<CommandBox> = (config.workers.iter())
            .map(|_| CommandBox::default())
            .collect();
        let mut mender = mender_of(config, &plan, &commands, &bells);
        for (units, pair) in &connected {
            mender.note(*units, &pair.ends);
        }
        let clock = RunClock::start();
        let mut ends = make_ends(&plan, &clock, connected)?;
        hand_out_bells(&plan, &config.workers, &bells, &mut ends);
        let writers = writers(config).map(role_of);
        let mut files: BTreeMap<String, RunFile> = writers.zip(files.into().into_files()).collect();
        let mut blocks = Vec::new();
        let mut roles: BTreeMap<String, Box<dyn Role>> = BTreeMap::new();
        for id in &plan.roles {
            let Some(ends) = ends.remove(id) else {
                continue;
            };
            blocks.push((id.clone(), ends.block.clone()));
            roles.insert(id.clone(), ends.into_role(config, files.remove(id))?);
        }
        let phase = PhaseCell::default();
        // The run begins when all roles are made, which may take a filter some seconds.
        let clock = (config.aligned_clock()).unwrap_or_else(|| clock.restarted());
        let board = ReportBoard::default();
        let has_front_end = |worker: &WorkerConfig| worker.roles.iter().any(|id| id == FRONT_END);
        let place = config.workers.iter().position(has_front_end);
        let front_end = place.map(|place| (commands[place].clone(), bells[place].clone()));
        let workers = make_workers(&config.workers, roles, bells, commands, &board);
        let spawn = |worker: Worker| worker.spawn(clock.clone(), phase.clone());
        let threads = start_workers(workers, &phase, spawn)?;
        Ok(Self {
            run: config.run,
            clock,
            phase,
            blocks,
            threads,
            processes: None,
            front_end,
            is_paused: config.source.triggers.starts_paused,
            board,
            mender,
            congestion,
            repair: longest_repair(config),
        })
    }

    /// Builds the chain with a process per role, and lets it run.
    ///
    /// # Errors
    /// [`ChainError`] when memory cannot be had, or a role process did not start or is not ours.
    pub fn start_processes(
        config: &ChainConfig,
        files: impl Into<RunFiles>,
        launcher: Launcher,
        policy: LossPolicy,
        faults: Vec<ProcessFault>,
    ) -> Result<Self, ChainError> {
        let group = ProcessGroup::start(config, launcher, policy, faults, files.into())?;
        Ok(Self {
            run: config.run,
            clock: group.clock().clone(),
            phase: group.page().phase(),
            blocks: group.blocks(),
            threads: Vec::new(),
            congestion: group.congestion().map(str::to_owned),
            processes: Some(group),
            front_end: None,
            is_paused: config.source.triggers.starts_paused,
            board: ReportBoard::default(),
            mender: StreamMender::default(),
            repair: longest_repair(config),
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

    /// Whom to ask, while the loss of a process is settled, whether the run is to end at once; while it
    /// is ended by force, whether that is to wait for nothing more.
    pub fn heed_end(&mut self, ask: AskEnd) {
        if let Some(group) = &mut self.processes {
            group.heed_end(ask);
        }
    }

    /// Whether the run was to end at once when that was asked.
    pub fn is_ended_at_once(&self) -> bool {
        let group = self.processes.as_ref();
        group.is_some_and(ProcessGroup::is_ended_at_once)
    }

    /// The pairs of roles whose stream was cut, and that got another since the last call.
    pub fn take_mended_streams(&mut self) -> Vec<(UnitId, UnitId)> {
        match &mut self.processes {
            Some(group) => group.take_mended(),
            None => self.mender.take_mended(),
        }
    }

    /// Why streams between processes that were cut stay away, of those since the last call; units whose
    /// stream stays away say so again.
    pub fn take_streams_away(&mut self) -> Vec<String> {
        let group = self.processes.as_mut();
        group.map(ProcessGroup::take_stay_away).unwrap_or_default()
    }

    /// Cuts streams of filter units when their time comes; where roles are threads, and looked at by
    /// [`Chain::mend_streams`].
    pub fn plan_stream_faults(&mut self, faults: Vec<StreamFault>) {
        self.mender.plan(faults);
    }

    /// Makes the streams again that were cut since the last look, and the faults that are due; there
    /// is nothing to do where roles are processes.
    pub fn mend_streams(&mut self) -> Vec<CutStream> {
        if self.processes.is_some() {
            return Vec::new();
        }
        if self.mender.has_faults() {
            let triggers = self.snapshot().role("src0").chain.triggers;
            self.mender.make_faults(self.clock.now(), triggers);
        }
        let cut = self.board.take_cut();
        let mended = cut.iter().map(|(role, unit)| self.mender.mend(role, *unit));
        let mut mended: Vec<CutStream> = mended.flatten().collect();
        let now = Instant::now();
        for (role, unit) in self.board.take_ended() {
            self.mender.note_ended(&role, unit, now);
        }
        // Those that have another stream are named by `take_mended_streams`.
        let again = std::iter::from_fn(|| self.mender.mend_ended(now));
        mended.extend(again.filter(|cut| cut.mended.is_err()));
        mended
    }

    /// Adds a filter unit to the running chain, or lets one leave it; says which.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn steer_filters(&mut self, change: FilterChange) -> Result<String, String> {
        let Some(group) = &mut self.processes else {
            return Err("the roles of this run are threads; it takes `--processes`".to_owned());
        };
        let changed = group.steer_filters(change);
        self.blocks = group.blocks();
        changed
    }

    /// The histograms that filters have filled so far, those of all units in one.
    pub fn filter_histograms(&self) -> Vec<Histogram> {
        let mut merged = FilterHistograms::default();
        let of_threads = self.board.filled().into_iter();
        let of_processes = self.processes.iter().flat_map(ProcessGroup::filled);
        of_threads
            .chain(of_processes)
            .for_each(|filled| merged.merge(&filled));
        merged.to_vec()
    }

    /// The number of the run.
    pub fn run(&self) -> RunNumber {
        self.run
    }

    /// When triggers could first be taken, in the time of the run: with processes, that goes on while
    /// these are started, unless the run is aligned to TAI.
    pub fn taking_from(&self) -> RunNs {
        let group = self.processes.as_ref();
        group.map_or(RunNs(0), ProcessGroup::taking_from)
    }

    /// The counters of all roles now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::read(self.clock.now(), &self.blocks)
    }

    /// The same with what dead roles had counted, for who shows totals: no sum falls when a role dies.
    /// What others do once more counts twice until the run ends.
    pub fn with_dead(&self, snapshot: &Snapshot) -> Snapshot {
        let mut shown = snapshot.clone();
        if let Some(group) = &self.processes {
            group.add_dead(&mut shown);
        }
        shown
    }

    /// The host that a role is on, where there are several.
    pub fn host_of(&self, role: &str) -> Option<String> {
        self.processes.as_ref()?.host_of(role)
    }

    /// The congestion control of the streams between the roles, where there are streams.
    pub fn congestion(&self) -> Option<&str> {
        self.congestion.as_deref()
    }

    /// Holds triggers back until [`Chain::resume`]; what is on its way passes. Those that come
    /// meanwhile are refused, which is no dead time, or wait in a lossless run.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn pause(&mut self) -> Result<(), String> {
        if std::mem::replace(&mut self.is_paused, true) {
            return Err("the run is paused already".to_owned());
        }
        self.tell_front_end("pause", RoleCommand::Pause { is_on: true })
    }

    /// Takes triggers again.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn resume(&mut self) -> Result<(), String> {
        if !std::mem::replace(&mut self.is_paused, false) {
            return Err("the run is not paused".to_owned());
        }
        self.tell_front_end("resume", RoleCommand::Pause { is_on: false })
    }

    /// Whether an operator holds triggers back.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    fn tell_front_end(&mut self, what: &str, command: RoleCommand) -> Result<(), String> {
        match (&mut self.processes, &self.front_end) {
            (Some(group), _) => group.tell_front_end(what),
            (None, Some((commands, bell))) => {
                commands.put(FRONT_END, command);
                bell.ring();
                Ok(())
            }
            (None, None) => Err("this run has no front-end".to_owned()),
        }
    }

    /// Whether the source has sent its last trigger and every one of them is decided.
    pub fn is_source_finished(&self) -> bool {
        self.snapshot().role("src0").gauges.idle == 1
    }

    /// Whether the source gives no more triggers, though not all that it gave may be settled.
    pub fn has_source_ended(&self) -> bool {
        self.snapshot().role("src0").gauges.ended == 1
    }

    /// Whether a run file can no longer be written.
    pub fn has_writer_failed(&self) -> bool {
        let snapshot = self.snapshot();
        let prefix = UnitKind::Writer.prefix();
        snapshot
            .kind(prefix)
            .any(|writer| writer.gauges.failed == 1)
    }

    /// Offers no more triggers and lets everything pass through.
    pub fn stop(&self) {
        self.phase.advance(Phase::Draining);
    }

    /// Whether nothing is on its way any more; to be asked after [`Chain::stop`].
    pub fn is_drained(&self) -> bool {
        let snapshot = self.snapshot();
        // What is in a chunk yet is to find room in its file, or be waited for.
        let mut writers = snapshot.kind("wr").map(|writer| writer.gauges);
        let is_written = writers.all(|writer| writer.held == 0 || writer.failed == 1);
        if !snapshot.is_idle() || !is_written {
            return false;
        }
        let (accepted, problems) = self.unsettled(&snapshot);
        let is_at_rest = match self.processes.as_ref() {
            Some(group) if !group.lost_kinds().is_empty() => group.is_at_rest(),
            _ => {
                let written = snapshot.kind("wr").map(|role| role.gauges.received);
                written.sum::<u64>() == accepted
            }
        };
        is_at_rest && problems.is_empty() && (unanswered(&snapshot.roles) == 0 || !self.is_still())
    }

    /// Whether a process stands still: it may have what nobody has answered for.
    fn is_still(&self) -> bool {
        let still = self.processes.as_ref().map(ProcessGroup::standing_still);
        still.is_some_and(|still| !still.is_empty())
    }

    /// Why a drain does not end: the roles that stand still, those that hold something, the equations
    /// that do not hold, or that events were not written or some role still works.
    pub fn drain_obstacles(&self) -> Vec<String> {
        let still = self.processes.as_ref().map(ProcessGroup::standing_still);
        let still = still.unwrap_or_default();
        let snapshot = self.snapshot();
        let is_still = |id: &str| still.iter().any(|(role, _)| role == id);
        let busy = snapshot.busy_roles().filter(|id| !is_still(id));
        let busy = busy.map(|id| {
            let host = self.host_of(id);
            let there = host.map_or(String::new(), |host| format!(" on host {host}"));
            format!("{id}{there} holds {}", what_is_held(id, &snapshot.role(id)))
        });
        let named = still.iter().map(|(role, why)| format!("{role}: {why}"));
        let mut obstacles: Vec<String> = named.chain(busy).collect();
        if obstacles.is_empty() {
            let (_, problems) = self.unsettled(&snapshot);
            obstacles.extend(problems.iter().map(ToString::to_string));
        }
        if obstacles.is_empty() {
            let accepted = snapshot.counts().filter_accepted;
            let taken = snapshot.kind("wr").map(|role| role.gauges.received);
            let taken: u64 = taken.sum();
            obstacles.push(match taken < accepted {
                true => format!("of {accepted} accepted events {taken} have come to a writer"),
                false => {
                    "no role holds anything, and some still work or are not written".to_owned()
                }
            });
        }
        obstacles
    }

    /// Accepted events, and the equations that would not hold if the run ended now.
    fn unsettled(&self, snapshot: &Snapshot) -> (u64, Vec<ConservationProblem>) {
        let (mut counts, mut losses) = (snapshot.counts(), snapshot.losses());
        let lost = self.processes.as_ref().map(ProcessGroup::lost_kinds);
        let lost = lost.unwrap_or_default();
        count_accepted_once(&mut counts, &losses, &lost);
        // Events in the chunk that is not full yet count as stored when the file is closed.
        counts.events_stored = counts
            .filter_accepted
            .saturating_sub(losses.in_area(LossArea::Store));
        let accepted = counts.filter_accepted;
        if !lost.is_empty() {
            let neighbours = neighbours(snapshot, &lost);
            settle_lost(&mut counts, &mut losses, &lost, neighbours);
        }
        let roles = &snapshot.roles;
        let left = of_no_trigger(counts.triggers, roles);
        losses.add(LossCause::FragmentMalformed, left);
        settle_unanswered(&counts, &mut losses, roles, LossCause::DatagramLost);
        (accepted, counts.problems(&losses))
    }

    /// Ends the run: in order after [`Chain::is_drained`], else by force, which gives up what is
    /// still on its way and counts it.
    pub fn finish(self) -> ChainOutcome {
        let drained = self.is_drained();
        if let Some(group) = self.processes {
            let ended_at = self.clock.now();
            let (left, lost) = group.finish(drained);
            let (results, workers) = (left.results, left.workers);
            let mut outcome = ChainOutcome::collect(self.run, results, workers, ended_at, drained);
            outcome.filter_failures.extend(left.filter_failures);
            outcome.lost_groups = left.lost_groups;
            outcome.faults_missed = left.faults_missed;
            outcome.deaths_at_end = left.deaths_at_end;
            outcome.last_heard = left.last_heard;
            outcome.congestion = self.congestion;
            if !lost.is_empty() {
                let roles = outcome.roles.clone();
                let snapshot = Snapshot {
                    at: ended_at,
                    roles,
                    died: Vec::new(),
                };
                let neighbours = Neighbours {
                    nobody_knows_open: !drained && !has_ended(&snapshot, UnitId::EVENT_MANAGER),
                    ended_by_force: !drained,
                    ..neighbours(&snapshot, &lost)
                };
                settle_lost(&mut outcome.counts, &mut outcome.losses, &lost, neighbours);
            }
            outcome.settle_unanswered();
            name_cut_off(&mut outcome.losses, &lost);
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
            let snapshot = || Snapshot::read(self.clock.now(), &self.blocks);
            settle(&mut roles, &self.clock, self.repair, || {
                snapshot().are_units_idle()
            });
        }
        let results = roles
            .into_iter()
            .map(|role| role.finish(self.clock.now()))
            .collect();
        let mut outcome = ChainOutcome::collect(self.run, results, workers, ended_at, drained);
        let told = self.board.take_failures();
        outcome.filter_failures.splice(..0, told);
        outcome.settle_unanswered();
        name_cut_off(&mut outcome.losses, &[]);
        outcome.congestion = self.congestion;
        outcome
    }
}
