//! One host of a run: it starts the roles that it is told to, and makes what they share.
//!
//! The pools, rings and the page of counters are memory of this host; the names of the documents
//! that come for a role become descriptors here. Streams to roles of other hosts are in
//! `host_streams`. What roles say goes on to the coordinator. A role dies with its host's
//! agent, as it does with the parent of a run on one host; who carries orders and reports is the
//! caller's business.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use livetime_shm::{
    Doorbell, PagePool, RingRegion, continue_process, control_pair, recv_fds, send_fds,
    stop_process,
};
use livetime_wire::{UnitId, UnitKind};

use super::begun_file;
use super::control_message::{DOCUMENT_MAX, EndName, Message};
use super::host_document::{BegunFile, BlockState, HostOrder, HostReport, Preparation, RoleSignal};
use super::host_streams::{HostStreams, Occasion};
use super::process_group::FIRST_RING_EPOCH;
use super::run_page::{RunPage, SettleStep};
use crate::builder_transport::{DATAGRAMS, PeerSocket, STREAM};
use crate::chain_config::ChainConfig;
use crate::chain_plan::{ChainPlan, PoolKey, role_of, transport_of, writers};
use crate::machine_memory::check_memory;
use crate::role_ends::unit_of;
use crate::run_clock::RunClock;
use crate::transport::set_congestion;
use crate::worker::Phase;

/// Documents on their way to one role.
const DOCUMENTS_MAX: usize = 1024;
/// How long the roles of a host that ends may take to die, and to be told of. A coordinator that cannot
/// be told misses the host in any case.
const ENDING_PATIENCE: Duration = Duration::from_millis(500);
/// Time between two looks at them.
const ENDING_LOOK: Duration = Duration::from_millis(2);

/// Carries a report to the coordinator.
pub type SendReport = Box<dyn Fn(&HostReport) + Send + Sync>;
/// Makes the command that serves a role.
pub type RoleCommandOf = Box<dyn Fn(&str) -> Command + Send + Sync>;
/// Reads the configuration of a run; gives it and the commands of its roles.
pub type ReadRun = Box<dyn Fn(&Preparation) -> Result<(ChainConfig, RoleCommandOf), String> + Send>;

/// One host of a run.
pub struct HostAgent {
    name: String,
    read: ReadRun,
    reporter: Arc<Reporter>,
    streams: Arc<HostStreams>,
    run: Option<Arc<HostRun>>,
    /// The roles whose end is not told yet, by their blocks: a run may see hundreds of others.
    roles: BTreeMap<u64, Told>,
    /// All blocks that roles were started on.
    blocks: BTreeSet<u64>,
    /// Whether a role that is gone was told to run.
    has_started: bool,
    /// Run files that were put here for it.
    begun: Vec<BegunFile>,
}

/// Sends one report after the other.
struct Reporter {
    send: SendReport,
    /// Held from reading counters to sending them, so that they come in their order.
    turn: Mutex<()>,
}

/// What the roles of a run share on this host.
struct HostRun {
    host: String,
    preparation: Preparation,
    clock: RunClock,
    plan: ChainPlan,
    config: ChainConfig,
    command: RoleCommandOf,
    page: RunPage,
    bells: BTreeMap<UnitId, Doorbell>,
    pools: BTreeMap<PoolKey, PagePool>,
    /// Rings of which one end was asked for.
    rings: Mutex<RingShelf>,
    streams: Arc<HostStreams>,
}

/// Rings by name and epoch that wait for the second of the two that use them, with the block of the
/// first. Who has both ends mapped needs them no more here.
type RingShelf = BTreeMap<(String, u64), (u64, Arc<RingRegion>)>;

/// A role that is told its documents, until this is dropped.
struct Told {
    role: Arc<HostRole>,
    documents: SyncSender<String>,
}

/// A role's process.
struct HostRole {
    block: u64,
    unit: UnitId,
    id: String,
    socket: UnixStream,
    child: Mutex<Child>,
    process: u32,
    gone: Mutex<bool>,
    /// Whether its end was reported.
    is_told: AtomicBool,
    /// Whether it was told to run.
    started: Mutex<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reporter {
    /// Sends what `report` makes; counters that it reads are the last ones sent.
    fn send(&self, report: impl FnOnce() -> Option<HostReport>) {
        let _turn = lock(&self.turn);
        if let Some(report) = report() {
            (self.send)(&report);
        }
    }
}

impl HostAgent {
    /// A host of the run with this key, whose streams come to `address`.
    ///
    /// # Errors
    /// What the system says when nothing can be accepted there.
    pub fn new(
        name: &str,
        key: &str,
        address: IpAddr,
        read: ReadRun,
        send: SendReport,
    ) -> std::io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            read,
            reporter: Arc::new(Reporter {
                send,
                turn: Mutex::default(),
            }),
            streams: HostStreams::listen(address, key)?,
            run: None,
            roles: BTreeMap::new(),
            blocks: BTreeSet::new(),
            has_started: false,
            begun: Vec::new(),
        })
    }

    /// Where it accepts streams.
    pub fn streams_at(&self) -> SocketAddr {
        self.streams.address()
    }

    /// Takes in an order; breaks when it was the last, with why this host does not take part if it does
    /// not. Words that are none change nothing.
    pub fn handle_order(&mut self, bytes: &[u8]) -> ControlFlow<Result<(), String>> {
        match HostOrder::from_bytes(bytes) {
            Some(HostOrder::Prepare(preparation)) => {
                let prepared = self.prepare(*preparation);
                self.reporter
                    .send(|| Some(HostReport::Prepared(prepared.err())));
            }
            Some(HostOrder::Spawn { block, role }) => {
                let process = self.spawn(block, &role);
                self.reporter
                    .send(|| Some(HostReport::Started { block, process }));
                if let Some(told) = self.roles.get(&block) {
                    self.hear(&told.role);
                }
            }
            Some(HostOrder::Say { block, text }) => {
                if let Some(told) = self.roles.get(&block) {
                    // One that takes no more is hung or dead, and is found so.
                    let _not_taken = told.documents.try_send(text);
                }
            }
            Some(HostOrder::HangUp { block }) => {
                if let Some(told) = self.roles.get(&block) {
                    let _already_shut = told.role.socket.shutdown(Shutdown::Both);
                }
            }
            Some(HostOrder::Signal { block, signal }) => {
                if let Some(told) = self.roles.get(&block) {
                    told.role.signal(signal);
                }
            }
            Some(HostOrder::Phase { phase, step }) => self.set_phase(phase, step),
            Some(HostOrder::Quit) => return ControlFlow::Break(Ok(())),
            Some(HostOrder::Refuse(reason)) => return ControlFlow::Break(Err(reason)),
            None => {}
        }
        ControlFlow::Continue(())
    }

    fn prepare(&mut self, preparation: Preparation) -> Result<(), String> {
        let (config, command) = (self.read)(&preparation)?;
        let plan = ChainPlan::new(&config);
        let is_here = |role: &str| {
            let mut placed = preparation.placement.iter();
            placed.any(|(id, host)| id == role && *host == self.name)
        };
        check_memory(&plan, is_here).map_err(|short| short.to_string())?;
        let mut pools = BTreeMap::new();
        for pool in plan
            .pools
            .iter()
            .filter(|p| p.roles.iter().any(|role| is_here(role)))
        {
            let made = PagePool::create(&pool.config);
            pools.insert(pool.key, made.map_err(|error| error.to_string())?);
        }
        let mut bells = BTreeMap::new();
        let is_of_here = |unit: &UnitId| is_here(&role_of(*unit));
        for bell in plan.bells.iter().filter(|bell| is_of_here(&bell.unit)) {
            let made = Doorbell::shared().map_err(|error| error.to_string())?;
            bells.insert(bell.unit, made);
        }
        let files = writers(&config).zip(&preparation.files);
        for (_, file) in files.filter(|(writer, _)| is_of_here(writer)) {
            if begun_file::begin(file, &preparation.files)? {
                self.begun.push(file.clone());
            }
        }
        let blocks = usize::try_from(preparation.blocks).unwrap_or(usize::MAX);
        let clock = match machine() == preparation.machine {
            true => RunClock::from_words(preparation.clock),
            false => RunClock::started_at(preparation.started_unix_ns),
        };
        self.run = Some(Arc::new(HostRun {
            host: self.name.clone(),
            clock,
            plan,
            config,
            command,
            page: RunPage::new(blocks).map_err(|error| error.to_string())?,
            bells,
            pools,
            rings: Mutex::default(),
            streams: Arc::clone(&self.streams),
            preparation,
        }));
        Ok(())
    }

    fn spawn(&mut self, block: u64, id: &str) -> Result<u32, String> {
        let run = self.run.clone().ok_or("no run was prepared")?;
        let unit = unit_of(id).ok_or("there is no such role")?;
        let in_page = usize::try_from(block).is_ok_and(|block| block < run.page.blocks());
        if !in_page || self.blocks.contains(&block) {
            return Err(format!("block {block} is not free"));
        }
        let (ours, theirs) = control_pair().map_err(|error| error.to_string())?;
        let mut command = (run.command)(id);
        command.process_group(0);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| error.to_string())?;
        // Closes our copy of the child's end, so that its death hangs up.
        drop(command);
        let process = child.id();
        let (documents, queue) = sync_channel(DOCUMENTS_MAX);
        let role = Arc::new(HostRole {
            block,
            unit,
            id: id.to_owned(),
            socket: UnixStream::from(ours),
            child: Mutex::new(child),
            process,
            gone: Mutex::new(false),
            is_told: AtomicBool::new(false),
            started: Mutex::new(false),
        });
        let told = Told {
            role: Arc::clone(&role),
            documents,
        };
        self.roles.insert(block, told);
        self.blocks.insert(block);
        let thread = std::thread::Builder::new().name(format!("tell-{id}"));
        let reporter = Arc::clone(&self.reporter);
        let started = thread.spawn(move || run.tell(&role, &queue, &reporter));
        started.map_err(|error| error.to_string())?;
        Ok(process)
    }

    /// Starts the thread that hears a role.
    fn hear(&self, role: &Arc<HostRole>) {
        let Some(run) = self.run.clone() else {
            return;
        };
        let (reporter, role) = (Arc::clone(&self.reporter), Arc::clone(role));
        let thread = std::thread::Builder::new().name(format!("hear-{}", role.id));
        let heard = Arc::clone(&role);
        if thread.spawn(move || run.hear(&heard, &reporter)).is_err() {
            // Nobody could hear it: to the coordinator it stays silent, and is killed for that.
            role.signal(RoleSignal::Kill);
        }
    }

    fn set_phase(&self, phase: u64, step: u64) {
        let Some(run) = &self.run else {
            return;
        };
        let phases = [
            Phase::Running,
            Phase::Draining,
            Phase::Ending,
            Phase::Aborting,
        ];
        let steps = [
            SettleStep::GiveUp,
            SettleStep::CloseBuilders,
            SettleStep::CloseOthers,
            SettleStep::Finish,
        ];
        if let Some(step) = steps.into_iter().find(|known| *known as u64 == step) {
            run.page.advance(step);
        }
        if let Some(phase) = phases.into_iter().find(|known| *known as u64 == phase) {
            run.page.phase().advance(phase);
        }
        run.bells.values().for_each(Doorbell::ring);
    }

    /// Says that this host ends by itself, before the deaths of its roles could be taken for those of
    /// single ones. To be dropped then, which ends them.
    pub fn leave(&self, reason: &str) {
        let reason = reason.to_owned();
        self.reporter.send(|| Some(HostReport::Leaving(reason)));
    }

    /// Reports the counters of the roles that live. To be called some fifty times a second.
    pub fn look(&mut self) {
        self.forget_told();
        let Some(run) = &self.run else {
            self.reporter.send(|| Some(silence()));
            return;
        };
        // The writer sees a command soon.
        run.bells.values().for_each(Doorbell::ring);
        let roles = &self.roles;
        self.reporter.send(|| {
            let roles = roles.values().map(|told| &told.role);
            let living = roles.filter(|role| !*lock(&role.gone));
            Some(HostReport::Counters {
                phase: run.page.phase().get() as u64,
                step: run.page.step() as u64,
                blocks: living.map(|role| (role.block, run.state(role))).collect(),
            })
        });
    }

    /// Gives back what the system keeps of roles whose ends are told, but for their places on the page.
    fn forget_told(&mut self) {
        let is_told = |_: &u64, told: &mut Told| told.role.is_told.load(Ordering::Acquire);
        for (_, told) in self.roles.extract_if(.., is_told) {
            self.has_started |= *lock(&told.role.started);
        }
        if let Some(run) = &self.run {
            // Nobody else is told of rings that one alone has asked for before it died.
            lock(&run.rings).retain(|_, (first, _)| self.roles.contains_key(first));
        }
    }
}

impl Drop for HostAgent {
    /// Nothing that was started outlives the host's agent, and how it ended is reported while there is
    /// somebody to report to.
    fn drop(&mut self) {
        for told in self.roles.values() {
            told.role.signal(RoleSignal::Kill);
        }
        let until = Instant::now() + ENDING_PATIENCE;
        let is_told = |told: &Told| told.role.is_told.load(Ordering::Acquire);
        while !self.roles.values().all(is_told) && Instant::now() < until {
            std::thread::sleep(ENDING_LOOK);
        }
        let mut left = self.roles.values();
        if !self.has_started && !left.any(|told| *lock(&told.role.started)) {
            self.begun.iter().for_each(begun_file::abandon);
        }
    }
}

/// What a host reports that has no run yet.
fn silence() -> HostReport {
    HostReport::Counters {
        phase: 0,
        step: 0,
        blocks: Vec::new(),
    }
}

/// What names this machine as long as it is up; its clocks are those of the run's other hosts on
/// it.
pub fn machine() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

impl HostRole {
    fn signal(&self, signal: RoleSignal) {
        let mut child = lock(&self.child);
        if *lock(&self.gone) {
            return;
        }
        // It can only have died, which its socket tells.
        match signal {
            RoleSignal::Kill => drop(child.kill()),
            RoleSignal::Stop => drop(stop_process(self.process)),
            RoleSignal::Continue => drop(continue_process(self.process)),
        }
    }
}

/// A descriptor that a name stands for.
enum NamedFd {
    Ring(Arc<RingRegion>),
    Owned(OwnedFd),
}

impl NamedFd {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Ring(region) => region.fd(),
            Self::Owned(fd) => Some(fd.as_fd()),
        }
    }
}

impl HostRun {
    /// What stands in the block of a role.
    fn state(&self, role: &HostRole) -> BlockState {
        let index = usize::try_from(role.block).unwrap_or(usize::MAX);
        let activity = self.page.activity(index);
        let block = self.page.block(index).expect("roles start on blocks alone");
        BlockState {
            counts: block.read(),
            activity,
            event: block.event_in_work().map_or(0, |trigger| trigger.0),
        }
    }

    /// Hands a role its documents, with the descriptors that their names stand for.
    fn tell(&self, role: &HostRole, documents: &Receiver<String>, reporter: &Reporter) {
        while let Ok(text) = documents.recv() {
            let told = match Message::from_text(&text) {
                Some(Message::Begin { .. } | Message::Ends(_) | Message::Command { .. }) => {
                    self.tell_with_descriptors(role, &text)
                }
                other => {
                    *lock(&role.started) |= matches!(other, Some(Message::Start));
                    send_fds(&role.socket, text.as_bytes(), &[]).map_err(|e| e.to_string())
                }
            };
            if let Err(reason) = told {
                if !*lock(&role.gone) {
                    self.refuse_for(role, reason, reporter);
                    role.signal(RoleSignal::Kill);
                }
                return;
            }
        }
    }

    /// Says in place of a role why it cannot start with the others, since its death alone would not. One
    /// that takes the place of another is tried again.
    fn refuse_for(&self, role: &HostRole, reason: String, reporter: &Reporter) {
        let is_first = self.plan.roles.get(role.block as usize) == Some(&role.id);
        if !is_first || *lock(&role.started) {
            eprintln!("{}: cannot be told: {reason}", role.id);
            return;
        }
        reporter.send(|| {
            Some(HostReport::Said {
                block: role.block,
                text: Message::Refused(reason).to_text(),
                state: Box::new(self.state(role)),
            })
        });
    }

    fn tell_with_descriptors(&self, role: &HostRole, text: &str) -> Result<(), String> {
        let message = Message::from_text(text).ok_or("nonsense")?;
        let (message, fds) = match message {
            Message::Begin {
                run,
                block,
                epoch,
                epochs,
                absent,
                joined,
                spill_origin_ns,
                file,
                clock: _,
            } => {
                let fds = self.shared_fds(role)?;
                let begin = Message::Begin {
                    run,
                    block,
                    clock: self.clock.to_words(),
                    epoch,
                    epochs,
                    absent,
                    joined,
                    spill_origin_ns,
                    file,
                };
                (begin, fds)
            }
            Message::Ends(names) => {
                let is_first = names.iter().all(|name| name.epoch <= FIRST_RING_EPOCH);
                let occasion = match (is_first, *lock(&role.started)) {
                    (true, _) => Occasion::Start,
                    (false, false) => Occasion::Restart,
                    // Of another that is started while this one runs.
                    (false, true) => Occasion::PeerRestart,
                };
                let fds = self.fds_of(role, &names, occasion)?;
                (Message::Ends(names), fds)
            }
            Message::Command {
                what,
                unit,
                epoch,
                ends,
                triggers,
            } => {
                let fds = match what.as_str() {
                    // Without one it says again that it is cut off, and is told again.
                    "reconnect" => self.fds_of(role, &ends, Occasion::Cut).unwrap_or_default(),
                    _ => self.fds_of(role, &ends, Occasion::PeerRestart)?,
                };
                let command = Message::Command {
                    what,
                    unit,
                    epoch,
                    ends,
                    triggers,
                };
                (command, fds)
            }
            other => (other, Vec::new()),
        };
        let fds: Vec<BorrowedFd<'_>> = fds.iter().filter_map(NamedFd::fd).collect();
        message
            .send(&role.socket, &fds)
            .map_err(|error| error.to_string())
    }

    /// Run page and, for the writer, its file.
    fn shared_fds(&self, role: &HostRole) -> Result<Vec<NamedFd>, String> {
        let owned = |fd: Option<BorrowedFd<'_>>| {
            let fd = fd.ok_or("memory that cannot be passed on")?;
            let cloned = fd.try_clone_to_owned().map(NamedFd::Owned);
            cloned.map_err(|error| error.to_string())
        };
        let mut fds = vec![owned(self.page.fd())?];
        if role.unit.kind == UnitKind::Writer {
            let files = &self.preparation.files;
            let file = files.get(usize::from(role.unit.index));
            let path = &file.ok_or("a writer without a file")?.path;
            let file = File::options().read(true).write(true).open(path);
            let file = file.map_err(|error| format!("{path}: {error}"))?;
            fds.push(NamedFd::Owned(OwnedFd::from(file)));
        }
        Ok(fds)
    }

    /// What names stand for; a socket to another host is waited for.
    fn fds_of(
        &self,
        role: &HostRole,
        names: &[EndName],
        occasion: Occasion,
    ) -> Result<Vec<NamedFd>, String> {
        let of_name = |name: &EndName| {
            let found = match name.kind.as_str() {
                "pool" => self.pool(&name.name),
                STREAM | DATAGRAMS => self.socket(role, name, occasion),
                "bell" => self.bell(name),
                _ => self.ring(role, name),
            };
            found.map_err(|reason| format!("{} {}: {reason}", name.kind, name.name))
        };
        names.iter().map(of_name).collect()
    }

    fn pool(&self, name: &str) -> Result<NamedFd, String> {
        let mut pools = self.pools.iter();
        let found = pools.find(|(key, _)| key.to_string() == name);
        let (_, pool) = found.ok_or("not a pool of this host")?;
        let fd = pool.fd().try_clone_to_owned();
        fd.map(NamedFd::Owned).map_err(|error| error.to_string())
    }

    fn bell(&self, name: &EndName) -> Result<NamedFd, String> {
        let mut bells = self.bells.iter();
        let found = bells.find(|(unit, _)| unit.to_string() == name.name);
        let (_, bell) = found.ok_or("not a bell of this host")?;
        let fd = bell.fd().ok_or("a bell that cannot be passed on")?;
        let fd = fd.try_clone_to_owned();
        fd.map(NamedFd::Owned).map_err(|error| error.to_string())
    }

    /// The ring of a name; whichever end is asked for first makes it, and the other takes it along.
    fn ring(&self, role: &HostRole, name: &EndName) -> Result<NamedFd, String> {
        let mut rings = lock(&self.rings);
        let key = (name.name.clone(), name.epoch);
        if let Some((_, ring)) = rings.remove(&key) {
            return Ok(NamedFd::Ring(ring));
        }
        let mut planned = self.plan.rings.iter();
        let planned = planned.find(|ring| ring.key.to_string() == name.name);
        let planned = planned.ok_or("not a ring of this run")?;
        let ring = RingRegion::create(&planned.config, name.epoch);
        let ring = Arc::new(ring.map_err(|error| error.to_string())?);
        rings.insert(key, (role.block, Arc::clone(&ring)));
        Ok(NamedFd::Ring(ring))
    }

    /// The units at this end and at the other of a socket of a role, by its name.
    fn units_of_socket(&self, role: &HostRole, named: UnitId) -> Result<(UnitId, UnitId), String> {
        match (role.unit.kind, named.kind) {
            (UnitKind::Source, UnitKind::Source) => {
                let mut links = self.plan.data_sockets.iter();
                let link = links.find(|(front_end, _)| *front_end == named);
                link.copied().ok_or("not a data link".to_owned())
            }
            // Of the front-ends' role, the supervisor has all other sockets.
            (UnitKind::Source, _) => Ok((UnitId::SUPERVISOR, named)),
            _ => Ok((role.unit, named)),
        }
    }

    fn socket(
        &self,
        role: &HostRole,
        name: &EndName,
        occasion: Occasion,
    ) -> Result<NamedFd, String> {
        let named = unit_of(&name.name).ok_or("not a unit")?;
        let (unit, peer) = self.units_of_socket(role, named)?;
        let of = |list: &[(String, String)], key: &str| {
            let mut entries = list.iter();
            entries
                .find(|(entry, _)| entry == key)
                .map(|(_, value)| value.clone())
        };
        let host = of(&self.preparation.placement, &role_of(peer)).ok_or("a unit without host")?;
        let transport = transport_of(&self.config, (unit, peer));
        let key = (unit, peer, name.epoch);
        let socket = if host == self.host {
            self.streams.take_local(key, transport)
        } else {
            let at = of(&self.preparation.streams_at, &host).ok_or("a host without address")?;
            let taken = self.streams.take_remote(key, transport, &at, occasion);
            taken.map_err(|error| {
                let here = self.streams.address();
                let reason = format!(
                    "no stream between {unit} on host {} ({here}) and {peer} on host {host} ({at}): \
                     {error}; each host must reach every port of the others' addresses, over TCP and, \
                     with `transport = \"udp\"`, UDP",
                    self.host
                );
                std::io::Error::new(error.kind(), reason)
            })
        };
        let socket = socket.map_err(|error| error.to_string())?;
        if let PeerSocket::Stream(stream) = &socket {
            set_congestion(stream, transport.congestion())
                .map_err(|error| format!("congestion control: {error}"))?;
        }
        Ok(NamedFd::Owned(OwnedFd::from(socket)))
    }

    /// Hears a role until it is gone, and says how it ended.
    fn hear(&self, role: &HostRole, reporter: &Reporter) {
        let block = role.block;
        let mut buffer = vec![0; DOCUMENT_MAX];
        while let Ok(received) = recv_fds(&role.socket, &mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..received.bytes]).into_owned();
            reporter.send(|| {
                Some(HostReport::Said {
                    block,
                    text,
                    state: Box::new(self.state(role)),
                })
            });
        }
        let exit = {
            let mut child = lock(&role.child);
            // One that only hung up is not of use any more.
            drop(child.kill());
            let exit = match child.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            *lock(&role.gone) = true;
            exit
        };
        let holds_dropped = self.reclaim_pages(role.process);
        reporter.send(|| {
            Some(HostReport::Gone {
                block,
                exit,
                holds_dropped,
                state: Box::new(self.state(role)),
            })
        });
        // What was reported is seen by whoever waits for it.
        role.is_told.store(true, Ordering::Release);
    }

    /// Takes back what a dead process held in the pools.
    fn reclaim_pages(&self, process: u32) -> u32 {
        reclaim_pages(self.pools.values(), process)
    }
}

/// Takes back what a dead process held in pools; filled pages stay with the links they belong to.
pub(super) fn reclaim_pages<'a>(pools: impl Iterator<Item = &'a PagePool>, process: u32) -> u32 {
    let mut dropped = 0;
    for pool in pools {
        for (owner, of_process) in pool.owners() {
            if of_process.pid() == process
                && let Ok(reclaimed) = pool.reclaim(owner)
            {
                dropped += reclaimed.holds_dropped;
            }
        }
    }
    dropped
}
