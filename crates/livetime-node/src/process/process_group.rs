//! The parent's side: the role processes of a run, from their start to what they leave.
//!
//! It makes what they share, starts them, learns of their ends by the hang-up of their sockets,
//! steers the settlement and collects results. What a child does is in [`super::role_process`],
//! what is done when one dies in [`super::recovery`].

mod role_process;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use livetime_shm::{Doorbell, PASSED_FDS_MAX, PagePool, PeerError, WaitStrategy, control_pair};
use livetime_store::{FilePlan, Histogram as FilledHistogram, WriterLimits};
use livetime_wire::{RunNs, UnitId, UnitKind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::time::Timespec;

use self::role_process::failed;
pub(super) use self::role_process::{Heard, RoleProcess};
use super::ProcessError;
use super::control_message::{EndName, Message, PROTOCOL, unit_of_code};
use super::cut_streams::CutStreams;
use super::event_watch::{EventWatch, FilterFailure};
use super::filter_steering::JOINS_MAX;
use super::host_agent::{machine, reclaim_pages};
use super::host_document::{BegunFile, Preparation};
use super::lost_group::{LostGroupLeft, LostGroups};
use super::passed_ends::{PassedEnd, Passing};
use super::recovery::{Incident, LossPolicy, ProcessFault};
use super::rest_watch::RestWatch;
use super::returned_readout::ReadoutReturns;
use super::role_child::RoleChild;
use super::role_hosts::RoleHosts;
use super::run_page::{RunPage, SettleStep};
use super::unasked_events::UnaskedLooks;
use super::unit_start::RESTARTS_MAX;
use super::writer_process::{WriterProcess, WritersHeard};
use crate::chain_config::{ChainConfig, FilterConfig, WorkerConfig};
use crate::chain_plan::{ChainPlan, PoolKey, role_of, transport_of};
use crate::counter_block::CounterBlock;
use crate::machine_memory::check_memory;
use crate::role::RoleResult;
use crate::role_ends::{FIRST_EPOCH, unit_of};
use crate::run_clock::RunClock;
use crate::run_file::{ClosingFile, RunFile, RunFiles};
use crate::worker::{Phase, WorkerResult};

/// Epoch of the rings and streams with which a run starts; it grows with each that is made later.
pub(super) const FIRST_RING_EPOCH: u64 = 1;
/// How long a process may take to say hello, to get ready, or to come to rest at the end.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// How long a filter unit may take to get ready that has an interpreter to start.
const FILTER_PATIENCE: Duration = Duration::from_secs(100);
/// How fast a writer reads the file that it takes up, at the least.
const READ_BYTES_PER_S: u64 = 50_000_000;
/// Time between two looks at roles that are to come to rest.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// Asks whether the run is to end at once: while it settles a loss, nobody else does.
pub type AskEnd = Box<dyn FnMut() -> bool + Send>;

/// How role processes are started and told apart from foreign ones.
pub struct Launcher {
    /// The command that serves a role, given its id; its standard input will be the socket.
    pub command: Box<dyn Fn(&str) -> Command + Send>,
    /// Version of the program that is to answer.
    pub version: String,
    /// Identity of the configuration that it is to have read.
    pub identity: String,
    /// The hosts that serve the roles; without them all are children of this process.
    pub hosts: Option<RoleHosts>,
}

/// The run file of a writer, which its process holds.
#[derive(Clone)]
pub(super) struct FilePlace {
    pub(super) path: PathBuf,
    pub(super) limits: WriterLimits,
    pub(super) plan: FilePlan,
}

/// What the roles of a run leave.
pub struct GroupLeft {
    /// Results of all roles, dead ones included.
    pub results: Vec<RoleResult>,
    /// How their processes spent their time.
    pub workers: Vec<WorkerResult>,
    /// Events that filter units crashed or hung on.
    pub filter_failures: Vec<FilterFailure>,
    /// Building groups that the run went on without.
    pub lost_groups: Vec<LostGroupLeft>,
    /// Faults whose role was not there when they were due.
    pub faults_missed: Vec<ProcessFault>,
    /// Deaths at the end of the run that it would have gone on after.
    pub deaths_at_end: Vec<String>,
    /// Roles whose counters are those that were heard last, and that may live.
    pub last_heard: Vec<String>,
}

/// The processes of a run.
pub struct ProcessGroup {
    pub(super) config: ChainConfig,
    pub(super) plan: ChainPlan,
    pub(super) launcher: Launcher,
    pub(super) policy: LossPolicy,
    page: RunPage,
    clock: RunClock,
    /// When triggers could first be taken.
    taking_from: RunNs,
    bells: BTreeMap<UnitId, Doorbell>,
    pub(super) pools: BTreeMap<PoolKey, PagePool>,
    pub(super) processes: Vec<RoleProcess>,
    hear: Sender<(usize, Heard)>,
    pub(super) heard: Receiver<(usize, Heard)>,
    /// By the index of their writers.
    pub(super) files: Vec<FilePlace>,
    pub(super) watch: EventWatch,
    /// Epoch of each unit that is not in its first.
    pub(super) epochs: BTreeMap<UnitId, u32>,
    /// Epoch of the rings made last.
    pub(super) ring_epoch: u64,
    /// Blocks of the run page in use: those of the plan, and one for each process started later.
    pub(super) blocks_used: usize,
    /// Processes that were started again, and filter units that have joined.
    pub(super) restarts: usize,
    pub(super) joins: usize,
    pub(super) faults: Vec<ProcessFault>,
    /// Faults whose role was not there when they were due.
    pub(super) faults_missed: Vec<ProcessFault>,
    /// Stopped processes, and when they go on.
    pub(super) stopped: Vec<(usize, RunNs)>,
    /// Processes heard to be gone without having ended, and not yet dealt with.
    pub(super) missed: Vec<usize>,
    /// Streams that were cut.
    pub(super) cuts: CutStreams,
    /// Building groups that the run goes on without.
    pub(super) lost_groups: LostGroups,
    /// Readout units whose places are taken by others.
    pub(super) returns: ReadoutReturns,
    /// What is still to be looked for after the loss of builder units.
    pub(super) unasked: UnaskedLooks,
    /// What is still to be told of event managers that died while another loss was settled.
    pub(super) managers_lost: Vec<Incident>,
    rest: Mutex<RestWatch>,
    ask_end: Option<AskEnd>,
    is_ended_at_once: bool,
    /// The congestion control of the streams between the roles, if there are any.
    congestion: Option<String>,
}

/// One worker per role, each waiting as the worker that was to have the role.
pub fn workers_of_processes(config: &ChainConfig, cores: usize) -> Vec<WorkerConfig> {
    let roles = config.role_ids();
    let crowded = roles.len() > cores;
    let worker = |id: &String| {
        let listed = config.workers.iter().find(|w| w.roles.contains(id));
        let wait = match listed.map_or(WaitStrategy::Adaptive, |worker| worker.wait) {
            WaitStrategy::Spin if crowded => WaitStrategy::Adaptive,
            wait => wait,
        };
        WorkerConfig {
            name: id.clone(),
            core: listed.and_then(|worker| worker.core).filter(|_| !crowded),
            wait,
            roles: vec![id.clone()],
        }
    };
    roles.iter().map(worker).collect()
}

impl ProcessGroup {
    /// Makes what the roles share, starts all of them and lets them run.
    ///
    /// # Errors
    /// [`ProcessError`]; whatever was started ends again, since its socket hangs up.
    pub fn start(
        config: &ChainConfig,
        launcher: Launcher,
        policy: LossPolicy,
        faults: Vec<ProcessFault>,
        files: RunFiles,
    ) -> Result<Self, ProcessError> {
        let plan = ChainPlan::new(config);
        // Roles of other hosts have the bells and pools of their hosts, which look at their own memory.
        if launcher.hosts.is_none() {
            check_memory(&plan, |_| true)?;
        }
        let page = RunPage::new(plan.roles.len() + RESTARTS_MAX + JOINS_MAX)?;
        let bells: Result<_, ProcessError> = (plan.bells.iter())
            .filter(|_| launcher.hosts.is_none())
            .map(|bell| Ok((bell.unit, Doorbell::shared()?)))
            .collect();
        let mut pools = BTreeMap::new();
        for pool in plan.pools.iter().filter(|_| launcher.hosts.is_none()) {
            pools.insert(pool.key, PagePool::create(&pool.config)?);
        }
        let (hear, heard) = channel();
        let mut group = Self {
            config: config.clone(),
            blocks_used: plan.roles.len(),
            restarts: 0,
            joins: 0,
            plan,
            launcher,
            policy,
            page,
            clock: config.aligned_clock().unwrap_or_else(RunClock::start),
            taking_from: RunNs(0),
            bells: bells?,
            pools,
            processes: Vec::new(),
            hear,
            heard,
            // The files themselves are closed here: the writers' processes open and go on with them.
            files: places_of(config, files),
            watch: EventWatch::new(policy.retries, policy.time_limit),
            epochs: BTreeMap::new(),
            ring_epoch: FIRST_RING_EPOCH,
            faults,
            faults_missed: Vec::new(),
            stopped: Vec::new(),
            missed: Vec::new(),
            cuts: CutStreams::default(),
            lost_groups: LostGroups::default(),
            returns: ReadoutReturns::default(),
            unasked: UnaskedLooks::default(),
            managers_lost: Vec::new(),
            rest: Mutex::default(),
            ask_end: None,
            is_ended_at_once: false,
            congestion: None,
        };
        group.prepare_hosts()?;
        group.start_all()?;
        Ok(group)
    }

    /// Tells the hosts of the run what they need to know before its roles start.
    fn prepare_hosts(&self) -> Result<(), ProcessError> {
        let Some(hosts) = &self.launcher.hosts else {
            return Ok(());
        };
        let mut files = Vec::new();
        for FilePlace { path, .. } in &self.files {
            let begun = std::fs::read(path).map_err(|error| ProcessError::Start {
                role: path.display().to_string(),
                error,
            })?;
            let path = path.display().to_string();
            files.push(BegunFile { path, begun });
        }
        let filter = self.read_filter()?;
        hosts.prepare(&self.page, |preparation| Preparation {
            filter,
            blocks: self.page.blocks() as u64,
            machine: machine(),
            clock: self.clock.to_words(),
            started_unix_ns: self.clock.started_unix_ns(),
            files,
            ..preparation
        })
    }

    /// The file of a filter in Python.
    fn read_filter(&self) -> Result<Option<Vec<u8>>, ProcessError> {
        let FilterConfig::Python(python) = &self.config.filter else {
            return Ok(None);
        };
        let file = python.loaded_file();
        let read = std::fs::read(file).map_err(|error| ProcessError::Start {
            role: file.display().to_string(),
            error,
        });
        read.map(Some)
    }

    /// Ends that are made here, or named for the roles' hosts.
    pub(super) fn passing(&self) -> Passing {
        Passing::new(self.launcher.hosts.is_some())
    }

    fn start_all(&mut self) -> Result<(), ProcessError> {
        let mut passing = self.passing();
        for ring in &self.plan.rings {
            passing.make(ring, self.ring_epoch)?;
        }
        for units in &self.plan.streams {
            let transport = transport_of(&self.config, *units);
            let congestion = passing.connect(*units, transport, self.ring_epoch)?;
            self.congestion = self.congestion.take().or(congestion);
        }
        for units in &self.plan.data_sockets {
            passing.connect(*units, transport_of(&self.config, *units), self.ring_epoch)?;
        }
        let roles = self.plan.roles.clone();
        let filters = self.policy.filters_at_start.unwrap_or(u16::MAX);
        for (block, id) in roles.iter().enumerate() {
            let unit = unit_of(id);
            if unit.is_none_or(|unit| unit.kind != UnitKind::Filter || unit.index < filters) {
                self.spawn(id, block, FIRST_EPOCH)?;
            }
        }
        for index in 0..self.processes.len() {
            let rings = passing.of(&self.processes[index].id);
            self.meet(index)?;
            self.configure(index, &rings)?;
        }
        self.await_all_ready()?;
        // Nobody starts before all that they need is there: a run that has begun is not taken back.
        for index in 0..self.processes.len() {
            self.hear_from(index)?;
        }
        let (sources, others): (Vec<_>, Vec<_>) =
            (self.processes.iter()).partition(|process| process.unit.kind == UnitKind::Source);
        others.into_iter().for_each(RoleProcess::let_run);
        // The source last: it takes triggers from here on, and not while roles are started.
        if !self.config.is_aligned() {
            self.taking_from = self.clock.now();
        }
        sources.into_iter().for_each(RoleProcess::let_run);
        Ok(())
    }

    /// Filter units of the plan without a process.
    pub(super) fn absent_filters(&self) -> Vec<UnitId> {
        let planned = self.plan.roles.iter().filter_map(|id| unit_of(id));
        let is_there = |unit: UnitId| {
            let mut processes = self.processes.iter();
            processes.any(|p| p.unit == unit && !p.gone && !p.leaving)
        };
        planned
            .filter(|unit| unit.kind == UnitKind::Filter && !is_there(*unit))
            .collect()
    }

    /// Units of the plan without a process that others need to know of.
    fn absent_units(&self) -> impl Iterator<Item = UnitId> + '_ {
        let others = self.plan.roles.iter().filter_map(|id| unit_of(id));
        let is_asked = |unit: &UnitId| matches!(unit.kind, UnitKind::Readout | UnitKind::Builder);
        let others = others.filter(is_asked).filter(|unit| !self.lives(*unit));
        self.absent_filters().into_iter().chain(others)
    }

    /// The congestion control of the streams between the roles, if there are any.
    pub fn congestion(&self) -> Option<&str> {
        self.congestion.as_deref()
    }

    /// Whom to ask whether the run is to end at once; while it does, whether its waits are to be cut
    /// short.
    pub fn heed_end(&mut self, ask: AskEnd) {
        self.ask_end = Some(ask);
    }

    /// Whether it was to end at once when that was asked last.
    pub fn is_ended_at_once(&self) -> bool {
        self.is_ended_at_once
    }

    /// Asks whether it is to.
    pub(super) fn ends_at_once(&mut self) -> bool {
        let ask = self.ask_end.as_mut();
        self.is_ended_at_once |= ask.is_some_and(|ask| ask());
        self.is_ended_at_once
    }

    /// The host that a role is on, where there are several.
    pub(crate) fn host_of(&self, role: &str) -> Option<String> {
        self.launcher.hosts.as_ref()?.host_of(role)
    }

    /// The run page.
    pub fn page(&self) -> &RunPage {
        &self.page
    }

    /// The run's clock.
    pub fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// When triggers could first be taken, in the time of the run.
    pub fn taking_from(&self) -> RunNs {
        self.taking_from
    }

    /// Roles with their counters; those of lost processes follow under the names of their lives.
    pub fn blocks(&self) -> Vec<(String, Arc<CounterBlock>)> {
        let (lost, living): (Vec<_>, Vec<_>) =
            (self.processes.iter()).partition(|process| process.has_gone());
        let named = |process: &RoleProcess| (process.name(), Arc::clone(&process.counters));
        let mut blocks: Vec<_> = living.into_iter().map(named).collect();
        let place = |id: &String| self.plan.roles.iter().position(|role| role == id);
        blocks.sort_by_key(|(id, _)| place(id));
        blocks.extend(lost.into_iter().map(named));
        blocks
    }

    /// Kinds of the units that were lost.
    pub fn lost_kinds(&self) -> Vec<UnitKind> {
        let lost = self.processes.iter().filter(|p| p.lost.is_some());
        lost.map(|process| process.unit.kind).collect()
    }

    /// The histograms that filters have filled so far, by each of them.
    pub fn filled(&self) -> impl Iterator<Item = Vec<FilledHistogram>> {
        let processes = self.processes.iter();
        processes.map(|process| process.filled.values().cloned().collect())
    }

    /// Whether no role has done any work since the question before, in some duty cycles.
    pub fn is_at_rest(&self) -> bool {
        let now = self.activities();
        self.rest.lock().is_ok_and(|mut rest| rest.look(now))
    }

    /// Process numbers by role id.
    pub fn process_ids(&self) -> Vec<(String, u32)> {
        let pair = |process: &RoleProcess| (process.id.clone(), process.child.id());
        self.processes.iter().map(pair).collect()
    }

    /// Starts one process; it is not heard yet.
    pub(super) fn spawn(&mut self, id: &str, block: usize, epoch: u32) -> Result<(), ProcessError> {
        let start = |error| ProcessError::Start {
            role: id.to_owned(),
            error,
        };
        let (child, ours) = match &self.launcher.hosts {
            None => self.spawn_here(id)?,
            Some(hosts) => {
                let (role, ours) = hosts.spawn(id, block as u64)?;
                (RoleChild::There(role), ours)
            }
        };
        let socket = UnixStream::from(ours);
        socket.set_read_timeout(Some(PATIENCE)).map_err(start)?;
        self.processes.push(RoleProcess {
            id: id.to_owned(),
            unit: unit_of(id).unwrap_or(UnitId::SUPERVISOR),
            epoch,
            child,
            socket: Some(Arc::new(socket)),
            block,
            counters: block_of(&self.page, block),
            result: RoleResult {
                id: id.to_owned(),
                ..RoleResult::default()
            },
            filled: BTreeMap::new(),
            left: None,
            gone: false,
            lost: None,
            leaving: false,
            over_time: false,
            silent: false,
            settled: false,
            stored_last: 0,
            verdicts_last: [0; 2],
        });
        Ok(())
    }

    /// Starts a child of this process, with our end of the socket to it.
    fn spawn_here(&self, id: &str) -> Result<(RoleChild, OwnedFd), ProcessError> {
        let (ours, theirs) = control_pair().map_err(|error| failed(id, error))?;
        let start = |error| ProcessError::Start {
            role: id.to_owned(),
            error,
        };
        let mut command = (self.launcher.command)(id);
        // A process group of its own: the terminal's Ctrl-C is the parent's to handle.
        command.process_group(0);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let child = command.spawn().map_err(start)?;
        // Closes our copy of the child's end, so that its death hangs up.
        drop(command);
        Ok((RoleChild::Here(child), ours))
    }

    /// Hears who the process is.
    pub(super) fn meet(&self, index: usize) -> Result<(), ProcessError> {
        let launcher = &self.launcher;
        let process = &self.processes[index];
        let message = process.recv("hello")?;
        let Message::Hello {
            protocol,
            version,
            role,
            config,
        } = message
        else {
            return Err(process.out_of_turn(&message, "hello"));
        };
        for (what, found, expected) in [
            ("protocol", protocol.to_string(), PROTOCOL.to_string()),
            ("program version", version, launcher.version.clone()),
            ("role", role, process.id.clone()),
            ("configuration", config, launcher.identity.clone()),
        ] {
            if found != expected {
                return Err(ProcessError::Stranger {
                    role: process.id.clone(),
                    what,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }

    /// Passes everything that a role needs.
    pub(super) fn configure(
        &self,
        index: usize,
        passed: &[(EndName, PassedEnd)],
    ) -> Result<(), ProcessError> {
        let process = &self.processes[index];
        let epochs = self.epochs.iter();
        let begin = Message::Begin {
            run: self.config.run.0,
            block: process.block as u64,
            clock: self.clock.to_words(),
            epoch: process.epoch,
            epochs: epochs
                .map(|(unit, epoch)| (unit.to_code(), *epoch))
                .collect(),
            absent: self.absent_units().map(UnitId::to_code).collect(),
            joined: self.returns.joined(),
            spill_origin_ns: (self.config.spill.as_ref()).map_or(0, |spill| spill.origin.0),
            // Others than writers put what they write beside the first of them.
            file: self.place_of(process.unit).path.display().to_string(),
        };
        let mut fds: Vec<BorrowedFd<'_>> = self.page.fd().into_iter().collect();
        if let (UnitKind::Filter, FilterConfig::Python(_)) =
            (process.unit.kind, &self.config.filter)
        {
            let socket = process.socket()?;
            let patience = socket.set_read_timeout(Some(FILTER_PATIENCE));
            patience.map_err(|error| ProcessError::Start {
                role: process.id.clone(),
                error,
            })?;
        }
        let file = self.open_file(process)?;
        fds.extend(file.as_ref().map(|file| file.as_fd()));
        process.send(&begin, &fds)?;
        let mut ends: Vec<(EndName, Option<BorrowedFd<'_>>)> = Vec::new();
        let pools = self.plan.pools.iter();
        for pool in pools.filter(|pool| pool.roles.contains(&process.id)) {
            let made = self.pools.get(&pool.key).map(PagePool::fd);
            let name = EndName {
                kind: "pool".to_owned(),
                name: pool.key.to_string(),
                epoch: 0,
            };
            ends.push((name, made));
        }
        for bell in &self.plan.bells {
            if process.unit != bell.unit && !bell.ringers.contains(&process.id) {
                continue;
            }
            let name = EndName {
                kind: "bell".to_owned(),
                name: bell.unit.to_string(),
                epoch: 0,
            };
            let made = self.bells.get(&bell.unit).and_then(Doorbell::fd);
            ends.push((name, made));
        }
        ends.extend(passed.iter().map(|(name, end)| (name.clone(), end.fd())));
        for part in ends.chunks(PASSED_FDS_MAX) {
            let names = part.iter().map(|(name, _)| name.clone()).collect();
            // Without descriptors where the role's host makes them.
            let fds: Vec<BorrowedFd<'_>> = part.iter().filter_map(|(_, fd)| *fd).collect();
            process.send(&Message::Ends(names), &fds)?;
        }
        process.send(&Message::Ends(Vec::new()), &[])
    }

    /// Where the run file of a writer is; for other units, that of the first.
    pub(super) fn place_of(&self, unit: UnitId) -> &FilePlace {
        let writer = match unit.kind {
            UnitKind::Writer => usize::from(unit.index),
            _ => 0,
        };
        &self.files[writer]
    }

    /// The run file for a writer's process, nothing for others.
    fn open_file(&self, process: &RoleProcess) -> Result<Option<File>, ProcessError> {
        // Of a run over several hosts, the writer's host opens it.
        if process.unit.kind != UnitKind::Writer || self.launcher.hosts.is_some() {
            return Ok(None);
        }
        let path = &self.place_of(process.unit).path;
        let opened = File::options().read(true).write(true).open(path);
        let start = |error| ProcessError::Start {
            role: process.id.clone(),
            error,
        };
        let file = opened.map_err(start)?;
        // It reads what is in the file before it is ready.
        let bytes = file.metadata().map_or(0, |about| about.len());
        let patience = PATIENCE + Duration::from_secs(bytes / READ_BYTES_PER_S);
        let set = process.socket()?.set_read_timeout(Some(patience));
        set.map_err(start)?;
        Ok(Some(file))
    }

    /// Waits until all roles are ready. They are heard together, and whoever refuses first is told of: one
    /// that cannot connect says so at once, those that wait for it in vain only later.
    fn await_all_ready(&self) -> Result<(), ProcessError> {
        let mut waiting: Vec<usize> = (0..self.processes.len()).collect();
        while let Some(first) = waiting.first() {
            let id = &self.processes[*first].id;
            let kernel = |source| {
                let step = "waiting for ready";
                failed(id, PeerError::Kernel { step, source })
            };
            let sockets = waiting.iter();
            let sockets = sockets.map(|index| Ok(self.processes[*index].socket()?.as_ref()));
            let sockets: Vec<&UnixStream> = sockets.collect::<Result<_, ProcessError>>()?;
            let patience = sockets[0].read_timeout().map_err(kernel)?;
            let said = who_has_said(&sockets, patience.unwrap_or(PATIENCE)).map_err(kernel)?;
            if said.is_empty() {
                return Err(kernel(ErrorKind::TimedOut.into()));
            }
            // Of several at once the last: builder units connect, and readout units before them wait.
            for place in said.into_iter().rev() {
                self.await_ready(waiting.remove(place))?;
            }
        }
        Ok(())
    }

    pub(super) fn await_ready(&self, index: usize) -> Result<(), ProcessError> {
        let process = &self.processes[index];
        match process.recv("ready")? {
            Message::Ready => Ok(()),
            Message::Refused(reason) => Err(ProcessError::Refused {
                role: process.id.clone(),
                reason,
            }),
            other => Err(process.out_of_turn(&other, "ready")),
        }
    }

    /// Rings all sleepers awake, so that they see soon what the run page says.
    fn wake_all(&self) {
        self.bells.values().for_each(Doorbell::ring);
    }

    /// Listens to a process from now on.
    fn hear_from(&self, index: usize) -> Result<(), ProcessError> {
        self.processes[index].listen(index, self.hear.clone())
    }

    /// Listens to a process and tells it to start.
    pub(super) fn let_run(&self, index: usize) -> Result<(), ProcessError> {
        self.hear_from(index)?;
        self.processes[index].let_run();
        Ok(())
    }

    /// Takes in what was heard; returns the events named by a role that has settled a command.
    pub(super) fn take(&mut self, index: usize, heard: Heard) -> Option<Vec<u64>> {
        let process = self.processes.get_mut(index)?;
        match heard {
            Heard::Message(message) => match *message {
                Message::Histogram { name, entries } => process.add_histogram(&name, &entries),
                Message::Result(left) => process.left = Some(left),
                Message::Failure(failure) => self.watch.note_failure(failure),
                Message::Filled(histogram) => {
                    (process.filled).insert(histogram.name().to_owned(), *histogram);
                }
                Message::Settled(triggers) => return Some(triggers),
                Message::Silent(code) => {
                    if let Some(unit) = unit_of_code(code) {
                        self.take_for_dead(unit);
                    }
                }
                Message::Cut(code) if self.page.phase().get() < Phase::Ending => {
                    let unit = self.processes[index].unit;
                    self.cuts.note(unit, unit_of_code(code), Instant::now());
                }
                // Refusals and the like come before the start, and are heard there.
                _ => {}
            },
            Heard::Gone => {
                process.gone = true;
                // Of one that was ended with others this is no news.
                if process.left.is_none() && process.lost.is_none() {
                    self.missed.push(index);
                }
            }
        }
        None
    }

    /// A unit was silent for too long, or a stream to it has ended. Its process is killed, so that
    /// what is believed of it is true; the rest follows from its hang-up, as for any that died.
    pub(super) fn take_for_dead(&mut self, unit: UnitId) {
        if self.page.phase().get() >= Phase::Ending {
            // Roles that have ended hang up.
            return;
        }
        let mut processes = self.processes.iter_mut();
        let found = processes.find(|process| process.unit == unit && !process.gone);
        if let Some(process) = found {
            process.silent = true;
            process.child.kill();
        }
    }

    /// Ends the run and collects what the roles leave; `drained` as the caller has found it.
    pub fn finish(mut self, drained: bool) -> (GroupLeft, Vec<UnitKind>) {
        self.continue_all();
        // From here on it is asked whether the waits are to be cut short.
        self.is_ended_at_once = false;
        let mut rest = RestWatch::default();
        if drained {
            self.page.phase().advance(Phase::Ending);
        } else {
            self.end_by_force(&mut rest);
        }
        // What is left to do is short, and is waited for.
        (self.ask_end, self.is_ended_at_once) = (None, false);
        self.wake_all();
        let until = Instant::now() + PATIENCE;
        // Writers stay until their files are closed; who stood still all the time is ended.
        let is_through = |p: &RoleProcess| match p.is_writer() {
            true => p.gone || p.left.is_some(),
            false => p.gone || rest.is_still(p.block),
        };
        while !self.processes.iter().all(is_through) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((index, heard)) = self.heard.recv_timeout(left) else {
                break;
            };
            self.take(index, heard);
        }
        self.kill_silent();
        let deaths_at_end = self.bury_missed();
        let writers = self.take_writers();
        let mut left = GroupLeft {
            results: Vec::new(),
            workers: Vec::new(),
            filter_failures: self.watch.take_failures(),
            lost_groups: Vec::new(),
            faults_missed: std::mem::take(&mut self.faults_missed),
            deaths_at_end,
            last_heard: self.last_heard(),
        };
        for process in &mut self.processes {
            let exit = process.end();
            let (result, worker) = process.conclude(&exit);
            left.results.push(result);
            left.workers.push(worker);
        }
        let lost = self.lost_kinds();
        for (index, writer) in (0..).zip(writers) {
            match writer {
                Ok((result, worker)) => {
                    left.results.push(result);
                    left.workers.push(worker);
                }
                Err(_) if self.leaves_file(index) => {}
                Err(_) => self.take_up_file(index, &mut left),
            }
        }
        self.settle_lost_groups(&mut left);
        (left, lost)
    }

    /// The results of the writers that live and have left one, whose processes have their run files
    /// still; the role ids of the others.
    fn take_writers(&mut self) -> Vec<Result<(RoleResult, WorkerResult), String>> {
        let (_, none) = channel();
        let heard = Arc::new(WritersHeard::new(std::mem::replace(&mut self.heard, none)));
        let mut taken = BTreeMap::new();
        // From the last one on, so that those before stay at their places.
        for index in (0..self.processes.len()).rev() {
            let process = &self.processes[index];
            if !process.is_writer() || process.gone || process.left.is_none() {
                continue;
            }
            let place = self.place_of(process.unit).clone();
            let mut process = self.processes.remove(index);
            let (mut result, worker) = process.conclude("");
            let id = process.id.clone();
            let writer = WriterProcess::new(place, process, index, Arc::clone(&heard));
            result.run_file = Some(ClosingFile::There(Box::new(writer)));
            taken.insert(id, (result, worker));
        }
        let ids = (0..).map(|index| UnitId {
            kind: UnitKind::Writer,
            index,
        });
        let ids = ids.take(self.files.len()).map(role_of);
        ids.map(|id| taken.remove(&id).ok_or(id)).collect()
    }

    /// Page holds that were dropped of a process that is gone.
    pub(super) fn reclaim_pages(&self, process: &RoleProcess) -> u32 {
        match &self.launcher.hosts {
            None => reclaim_pages(self.pools.values(), process.child.id()),
            Some(hosts) => hosts.holds_dropped(process.block as u64),
        }
    }
}

/// Which of these sockets have something to be read or were hung up, by their places; waits until one has,
/// and finds none after this time.
fn who_has_said(sockets: &[&UnixStream], patience: Duration) -> std::io::Result<Vec<usize>> {
    let watched = sockets
        .iter()
        .map(|socket| PollFd::new(*socket, PollFlags::IN));
    let mut watched: Vec<PollFd<'_>> = watched.collect();
    let patience = Timespec::try_from(patience).map_err(std::io::Error::other)?;
    retry_on_intr(|| poll(&mut watched, Some(&patience)))?;
    let said = watched.iter().zip(0..);
    let said = said.filter(|(fd, _)| !fd.revents().is_empty());
    Ok(said.map(|(_, place)| place).collect())
}

/// Where the run files are, by the index of their writers; the files are closed here.
fn places_of(config: &ChainConfig, files: RunFiles) -> Vec<FilePlace> {
    let place = |file: RunFile| FilePlace {
        path: std::path::absolute(file.path()).unwrap_or_else(|_| file.path().to_owned()),
        limits: config.store,
        plan: config.files.clone(),
    };
    files.into_files().into_iter().map(place).collect()
}

impl Drop for ProcessGroup {
    /// Nothing that was started outlives the run: sockets hang up, and who does not heed that is
    /// killed.
    fn drop(&mut self) {
        self.page.phase().advance(Phase::Aborting);
        self.page.advance(SettleStep::Finish);
        for process in &mut self.processes {
            process.end();
        }
    }
}

pub(super) fn block_of(page: &RunPage, index: usize) -> Arc<CounterBlock> {
    page.block(index)
        .expect("the page was made for all roles of the plan")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn whoever_says_something_first_is_heard_first() {
        let pairs: Vec<_> = (0..3)
            .map(|_| UnixStream::pair().expect("sockets"))
            .collect();
        let (ours, mut theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let ours: Vec<&UnixStream> = ours.iter().collect();
        let said = |patience| who_has_said(&ours, patience).expect("they can be asked");
        assert!(said(Duration::ZERO).is_empty());
        theirs[2].write_all(b"refused").expect("there is room");
        assert_eq!(said(PATIENCE), [2]);
        // A hang-up is heard as well.
        drop(theirs.remove(1));
        assert_eq!(said(PATIENCE), [1, 2]);
    }
}
