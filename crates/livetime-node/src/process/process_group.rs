//! The parent's side: the role processes of a run, from their start to what they leave.
//!
//! It makes what they share, starts them, learns of their ends by the hang-up of their sockets,
//! steers the settlement and collects results. The writer runs here, in a thread of its own, since
//! it holds the run file. What a child does is in [`super::role_process`].

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use livetime_shm::{
    Doorbell, PASSED_FDS_MAX, PagePool, PeerError, RingRegion, WaitCounts, WaitStrategy, Waiter,
    control_pair,
};
use livetime_wire::{DecisionDigest, UnitId};

use super::ProcessError;
use super::control_message::{EndName, Message, PROTOCOL, RoleLeft};
use super::role_loop::run_role;
use super::run_page::{Activity, RunPage, SettleStep};
use crate::chain_config::{ChainConfig, WorkerConfig};
use crate::chain_plan::{ChainPlan, PoolKey, RingPlan, WRITER, role_of};
use crate::counter_block::CounterBlock;
use crate::role::{Role, RoleCommand, RoleResult, latency_histogram};
use crate::role_ends::{FIRST_EPOCH, RoleEnds, WriterEnds};
use crate::run_clock::RunClock;
use crate::worker::{Phase, WorkerResult};

/// How long a process may take to say hello, to get ready, or to come to rest at the end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks at roles that are to come to rest.
const LOOK: Duration = Duration::from_millis(5);
/// Duty cycles between two looks without work in any role, after which nothing is on its way.
const QUIET_CYCLES: u64 = 3;

/// How role processes are started and told apart from foreign ones.
pub struct Launcher {
    /// The command that serves a role, given its id; its standard input will be the socket.
    pub command: Box<dyn Fn(&str) -> Command + Send>,
    /// Version of the program that is to answer.
    pub version: String,
    /// Identity of the configuration that it is to have read.
    pub identity: String,
}

/// What a role process was heard to say, or that it is gone.
enum Heard {
    Message(Box<Message>),
    Gone,
}

/// One role process.
struct RoleProcess {
    id: String,
    child: Child,
    socket: UnixStream,
    block: usize,
    counters: Arc<CounterBlock>,
    result: RoleResult,
    left: Option<RoleLeft>,
    gone: bool,
}

/// The thread of the writer.
struct WriterThread {
    block: usize,
    thread: JoinHandle<(Box<dyn Role>, WaitCounts)>,
    /// Keeps the channel open; commands to the writer go here.
    _commands: Sender<RoleCommand>,
}

/// The processes of a run.
pub struct ProcessGroup {
    page: RunPage,
    clock: RunClock,
    workers: Vec<WorkerConfig>,
    processes: Vec<RoleProcess>,
    heard: Receiver<(usize, Heard)>,
    writer: Option<WriterThread>,
    /// Parent's own handles keep the memory of all alive.
    _pools: BTreeMap<PoolKey, PagePool>,
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

/// The ends of all roles, as they are made.
#[derive(Default)]
struct Passing {
    /// Names and memory by role id.
    rings: BTreeMap<String, Vec<(EndName, Arc<RingRegion>)>>,
}

impl Passing {
    /// Makes a ring and notes its two ends.
    fn make(&mut self, ring: &RingPlan, epoch: u64) -> Result<Arc<RingRegion>, ProcessError> {
        let region = Arc::new(RingRegion::create(&ring.config, epoch)?);
        for (kind, unit) in [("producer", ring.key.from), ("consumer", ring.key.to)] {
            let name = EndName {
                kind: kind.to_owned(),
                name: ring.key.to_string(),
                epoch,
            };
            let ends = self.rings.entry(role_of(unit)).or_default();
            ends.push((name, Arc::clone(&region)));
        }
        Ok(region)
    }
}

impl ProcessGroup {
    /// Makes what the roles share, starts all of them and lets them run.
    ///
    /// # Errors
    /// [`ProcessError`]; whatever was started ends again, since its socket hangs up.
    pub fn start(
        config: &ChainConfig,
        launcher: &Launcher,
        writer: WriterEnds,
    ) -> Result<Self, ProcessError> {
        let plan = ChainPlan::new(config);
        let page = RunPage::new(plan.roles.len())?;
        let bell = Doorbell::shared()?;
        let mut pools = BTreeMap::new();
        for pool in &plan.pools {
            pools.insert(pool.key, PagePool::create(&pool.config)?);
        }
        let mut passing = Passing::default();
        let mut writer_ends = RoleEnds::new(&WRITER.to_string(), block_of(&page, 0), bell.clone());
        for ring in &plan.rings {
            let region = passing.make(ring, u64::from(FIRST_EPOCH))?;
            if ring.key.from == WRITER {
                writer_ends.producers.insert(ring.key, region.producer()?);
            } else if ring.key.to == WRITER {
                writer_ends.consumers.insert(ring.key, region.consumer()?);
            }
        }
        writer_ends.pools = pools.clone();
        let (sender, heard) = channel();
        let mut group = Self {
            page,
            clock: RunClock::start(),
            workers: workers_of_processes(config, livetime_shm::allowed_cpus().len()),
            processes: Vec::new(),
            heard,
            writer: None,
            _pools: pools,
        };
        let mut writer_block = 0;
        for (block, id) in plan.roles.iter().enumerate() {
            if *id == WRITER.to_string() {
                writer_block = block;
                continue;
            }
            group.spawn(id, block, launcher)?;
        }
        for index in 0..group.processes.len() {
            let id = group.processes[index].id.clone();
            let rings = passing.rings.remove(&id).unwrap_or_default();
            group.meet(index, launcher)?;
            group.configure(index, config, &plan, &bell, &rings)?;
        }
        for index in 0..group.processes.len() {
            group.await_ready(index)?;
        }
        writer_ends.block = block_of(&group.page, writer_block);
        let role = writer_ends.into_role(config, Some(writer))?;
        group.start_writer(role, writer_block, &bell)?;
        group.let_run(sender)?;
        Ok(group)
    }

    /// The run page.
    pub fn page(&self) -> &RunPage {
        &self.page
    }

    /// The run's clock.
    pub fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// Roles with their counters, in the order of the data.
    pub fn blocks(&self, config: &ChainConfig) -> Vec<(String, Arc<CounterBlock>)> {
        let roles = config.role_ids().into_iter().enumerate();
        roles
            .map(|(block, id)| (id, block_of(&self.page, block)))
            .collect()
    }

    /// Process numbers by role id.
    pub fn process_ids(&self) -> Vec<(String, u32)> {
        let pair = |process: &RoleProcess| (process.id.clone(), process.child.id());
        self.processes.iter().map(pair).collect()
    }

    /// Starts one process; it is not heard yet.
    fn spawn(&mut self, id: &str, block: usize, launcher: &Launcher) -> Result<(), ProcessError> {
        let (ours, theirs) = control_pair().map_err(|error| failed(id, error))?;
        let start = |error| ProcessError::Start {
            role: id.to_owned(),
            error,
        };
        let mut command = (launcher.command)(id);
        // A process group of its own: the terminal's Ctrl-C is the parent's to handle.
        command.process_group(0);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let child = command.spawn().map_err(start)?;
        // Closes our copy of the child's end, so that its death hangs up.
        drop(command);
        let socket = UnixStream::from(ours);
        socket.set_read_timeout(Some(PATIENCE)).map_err(start)?;
        self.processes.push(RoleProcess {
            id: id.to_owned(),
            child,
            socket,
            block,
            counters: block_of(&self.page, block),
            result: RoleResult {
                id: id.to_owned(),
                ..RoleResult::default()
            },
            left: None,
            gone: false,
        });
        Ok(())
    }

    /// Hears who the process is.
    fn meet(&self, index: usize, launcher: &Launcher) -> Result<(), ProcessError> {
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
    fn configure(
        &self,
        index: usize,
        config: &ChainConfig,
        plan: &ChainPlan,
        bell: &Doorbell,
        rings: &[(EndName, Arc<RingRegion>)],
    ) -> Result<(), ProcessError> {
        let process = &self.processes[index];
        let begin = Message::Begin {
            run: config.run.0,
            block: process.block as u64,
            clock: self.clock.to_words(),
            epoch: FIRST_EPOCH,
            epochs: Vec::new(),
        };
        let shared = [self.page.fd(), bell.fd()];
        let fds: Vec<BorrowedFd<'_>> = shared.into_iter().flatten().collect();
        process.send(&begin, &fds)?;
        let mut ends: Vec<(EndName, BorrowedFd<'_>)> = Vec::new();
        for pool in plan.pools.iter().filter(|p| p.roles.contains(&process.id)) {
            let Some(made) = self._pools.get(&pool.key) else {
                continue;
            };
            let name = EndName {
                kind: "pool".to_owned(),
                name: pool.key.to_string(),
                epoch: 0,
            };
            ends.push((name, made.fd()));
        }
        for (name, region) in rings {
            ends.extend(region.fd().map(|fd| (name.clone(), fd)));
        }
        for part in ends.chunks(PASSED_FDS_MAX) {
            let names = part.iter().map(|(name, _)| name.clone()).collect();
            let fds: Vec<BorrowedFd<'_>> = part.iter().map(|(_, fd)| *fd).collect();
            process.send(&Message::Ends(names), &fds)?;
        }
        process.send(&Message::Ends(Vec::new()), &[])
    }

    fn await_ready(&self, index: usize) -> Result<(), ProcessError> {
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

    fn start_writer(
        &mut self,
        mut role: Box<dyn Role>,
        block: usize,
        bell: &Doorbell,
    ) -> Result<(), ProcessError> {
        let id = WRITER.to_string();
        let (commands, received) = channel();
        let (page, clock) = (self.page.clone(), self.clock.clone());
        let listed = self.workers.iter().find(|worker| worker.name == id);
        let wait = listed.map_or(WaitStrategy::Block, |worker| worker.wait);
        let mut waiter = Waiter::with_doorbell(wait, bell.clone());
        let thread = std::thread::Builder::new().name(id.clone());
        let thread = thread.spawn(move || {
            run_role(role.as_mut(), &page, block, &clock, &mut waiter, &received);
            (role, waiter.counts())
        });
        self.writer = Some(WriterThread {
            block,
            thread: thread.map_err(|error| ProcessError::Start { role: id, error })?,
            _commands: commands,
        });
        Ok(())
    }

    /// Tells all processes to start, and listens to each from now on.
    fn let_run(&self, sender: Sender<(usize, Heard)>) -> Result<(), ProcessError> {
        for (index, process) in self.processes.iter().enumerate() {
            process.send(&Message::Start, &[])?;
            process.listen(index, sender.clone())?;
        }
        Ok(())
    }

    /// Takes in what was heard since the last look; returns the roles that went away without
    /// having ended.
    pub fn look(&mut self) -> Vec<String> {
        let mut lost = Vec::new();
        while let Ok((index, heard)) = self.heard.try_recv() {
            lost.extend(self.take(index, heard));
        }
        lost
    }

    fn take(&mut self, index: usize, heard: Heard) -> Option<String> {
        let process = self.processes.get_mut(index)?;
        match heard {
            Heard::Message(message) => match *message {
                Message::Histogram { name, entries } => process.add_histogram(&name, &entries),
                Message::Result(left) => process.left = Some(left),
                _ => {}
            },
            Heard::Gone => {
                process.gone = true;
                return process.left.is_none().then(|| process.id.clone());
            }
        }
        None
    }

    /// Ends the run and collects what the roles leave; `drained` as the caller has found it.
    pub fn finish(mut self, drained: bool) -> (Vec<RoleResult>, Vec<WorkerResult>) {
        let phase = self.page.phase();
        if drained {
            phase.advance(Phase::Ending);
        } else {
            phase.advance(Phase::Aborting);
            for step in [
                SettleStep::CloseBuilders,
                SettleStep::CloseOthers,
                SettleStep::Finish,
            ] {
                self.await_rest();
                self.page.advance(step);
            }
        }
        let until = Instant::now() + PATIENCE;
        while self.processes.iter().any(|process| !process.gone) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((index, heard)) = self.heard.recv_timeout(left) else {
                break;
            };
            self.take(index, heard);
        }
        let mut results = Vec::new();
        let mut workers = Vec::new();
        for process in &mut self.processes {
            let (result, worker) = process.conclude();
            results.push(result);
            workers.push(worker);
        }
        // A panic of the writer ends the program through the panic hook, so joining succeeds.
        if let Some(writer) = self.writer.take()
            && let Ok((role, waits)) = writer.thread.join()
        {
            workers.push(worker_result(role.id(), waits, None));
            results.push(role.finish(self.clock.now()));
        }
        (results, workers)
    }

    /// Waits until no role does any work, as long as patience lasts.
    fn await_rest(&mut self) {
        let until = Instant::now() + PATIENCE;
        let mut before = self.activities();
        while Instant::now() < until {
            std::thread::sleep(LOOK);
            self.look();
            let now = self.activities();
            let same_roles = now.len() == before.len();
            let pairs = || now.iter().zip(&before);
            let is_quiet = pairs().all(|(now, before)| {
                now.work == before.work && now.cycles >= before.cycles + QUIET_CYCLES
            });
            if same_roles && is_quiet {
                return;
            }
            if !same_roles || pairs().any(|(now, before)| now.work != before.work) {
                before = now;
            }
        }
    }

    /// What each living role has done.
    fn activities(&self) -> Vec<Activity> {
        let blocks = self.processes.iter().filter(|process| !process.gone);
        let blocks = blocks.map(|process| process.block);
        let writer = self.writer.iter().map(|writer| writer.block);
        blocks
            .chain(writer)
            .map(|block| self.page.activity(block))
            .collect()
    }
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

impl RoleProcess {
    fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), ProcessError> {
        let sent = message.send(&self.socket, fds);
        sent.map_err(|error| failed(&self.id, error))
    }

    fn recv(&self, expected: &'static str) -> Result<Message, ProcessError> {
        let received = Message::recv(&self.socket).map_err(|error| failed(&self.id, error))?;
        let nonsense = || ProcessError::OutOfTurn {
            role: self.id.clone(),
            found: "nonsense".to_owned(),
            expected,
        };
        received.map(|(message, _)| message).ok_or_else(nonsense)
    }

    fn out_of_turn(&self, found: &Message, expected: &'static str) -> ProcessError {
        ProcessError::OutOfTurn {
            role: self.id.clone(),
            found: found.name().to_owned(),
            expected,
        }
    }

    /// Starts the thread that hears this process.
    fn listen(&self, index: usize, sender: Sender<(usize, Heard)>) -> Result<(), ProcessError> {
        let start = |error| ProcessError::Start {
            role: self.id.clone(),
            error,
        };
        let socket = self.socket.as_fd().try_clone_to_owned().map_err(start)?;
        self.socket.set_read_timeout(None).map_err(start)?;
        let thread = std::thread::Builder::new().name(format!("hear-{}", self.id));
        thread
            .spawn(move || hear(&socket, index, &sender))
            .map_err(start)?;
        Ok(())
    }

    fn add_histogram(&mut self, name: &str, entries: &[(u64, u64)]) {
        let histogram = match name {
            "decision" => &mut self.result.decision_latency,
            _ => &mut self.result.build_latency,
        };
        let histogram = histogram.get_or_insert_with(latency_histogram);
        for (value, count) in entries {
            histogram.saturating_record_n(*value, *count);
        }
    }

    /// The role's result, and its process reaped.
    fn conclude(&mut self) -> (RoleResult, WorkerResult) {
        let exit = self.end();
        let left = self.left.take();
        let mut result = std::mem::take(&mut self.result);
        result.counts = self.counters.read();
        let lost = left.is_none();
        let left = left.unwrap_or_default();
        result.details = left.details;
        result.digest = left.digest.map(DecisionDigest::from_bits);
        result.dead_time = left.dead_time;
        result.bytes_copied = left.bytes_copied;
        result.failure = left.failure;
        if lost {
            result.failure = Some(format!("the process of {} was lost: {exit}", self.id));
        }
        let [busy, spins, yields, sleeps] = left.waits;
        let waits = WaitCounts {
            busy,
            spins,
            yields,
            sleeps,
        };
        let worker = worker_result(&self.id, waits, left.pin_error);
        (result, worker)
    }

    /// Waits for the process, which is killed if it has not gone by itself; says how it ended.
    fn end(&mut self) -> String {
        if !self.gone {
            // It cannot have exited and been reaped: only this method waits for it.
            let _already_dead = self.child.kill();
            self.gone = true;
        }
        match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

/// Hears a process until it is gone.
fn hear(socket: &OwnedFd, index: usize, sender: &Sender<(usize, Heard)>) {
    loop {
        let heard = match Message::recv(socket) {
            Ok(Some((message, _))) => Heard::Message(Box::new(message)),
            Ok(None) => continue,
            Err(_) => Heard::Gone,
        };
        let gone = matches!(heard, Heard::Gone);
        if sender.send((index, heard)).is_err() || gone {
            return;
        }
    }
}

fn worker_result(id: &str, waits: WaitCounts, pin_error: Option<String>) -> WorkerResult {
    WorkerResult {
        name: id.to_owned(),
        roles: Vec::new(),
        waits,
        pin_error,
    }
}

fn block_of(page: &RunPage, index: usize) -> Arc<CounterBlock> {
    page.block(index)
        .expect("the page was made for all roles of the plan")
}

fn failed(role: &str, error: PeerError) -> ProcessError {
    ProcessError::Control {
        role: role.to_owned(),
        error,
    }
}

/// The unit of a role process.
pub fn unit_of_role(id: &str) -> Option<UnitId> {
    crate::role_ends::unit_of(id)
}
