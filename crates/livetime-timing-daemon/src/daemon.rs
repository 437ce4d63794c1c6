//! The daemon put together: core, control, sockets and buses, and an orderly end.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use livetime_timing::{ConflictPolicy, GeneratorConfig, RegistryConfig, SinkKind, SinkSpec};
use livetime_wire::{Problem, TaiNs};

use crate::access::AccessRules;
use crate::bus::Server;
use crate::bus::generator_object::send_output;
use crate::bus::listener::{BusChoice, ListenError, PeerSocket, clear_place, join_bus, listen};
use crate::bus::server::TICK;
use crate::control::{Control, ControlError};
use crate::core_handle::{Core, CoreConfig, CoreError, Injector, RunningCore};
use crate::epoch::{EpochError, StartTurn};
use crate::generators::Generators;
use crate::kept_state::{KeptError, StateKeeper};
use crate::tai_clock::TaiClock;

/// What the daemon is to be.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    /// The core and its worker.
    pub core: CoreConfig,
    /// Sizes of the registry; its number of sinks is used for the core too.
    pub registry: RegistryConfig,
    /// Who may what.
    pub rules: AccessRules,
    /// Time at which a virtual clock starts; the machine's clock without it.
    pub virtual_start: Option<TaiNs>,
    /// Which start of the daemon this is, at least: at a socket the next one that no start there
    /// has had.
    pub epoch: u32,
    /// Outputs that the receiver has, `IO1` and so on.
    pub outputs: u16,
    /// Inputs that the receiver has, `IN1` and so on.
    pub inputs: u16,
    /// Sinks for tags on a bus, `bus1` and so on.
    pub bus_sinks: u16,
    /// Function generators, 1 to 64.
    pub generators: u8,
    /// Sizes and rules of each.
    pub generator: GeneratorConfig,
    /// Socket for peers.
    pub socket: Option<PathBuf>,
    /// Buses to be on; two for two priorities.
    pub buses: Vec<BusChoice>,
    /// File in which conditions and sinks that were given up outlive the daemon; nothing does
    /// without it.
    pub state_file: Option<PathBuf>,
}

impl DaemonConfig {
    /// The usual daemon for a user: three outputs, one bus, nothing to be reached by yet.
    pub fn for_user(uid: u32) -> Self {
        Self {
            core: CoreConfig::default(),
            registry: RegistryConfig::default(),
            rules: AccessRules::for_user(uid),
            virtual_start: None,
            epoch: 1,
            outputs: 3,
            inputs: 2,
            bus_sinks: 1,
            generators: 12,
            generator: GeneratorConfig::default(),
            socket: None,
            buses: Vec::new(),
            state_file: None,
        }
    }
}

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration has problems.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<Problem>),
    /// The core did not start.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// A fixed sink could not be made.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// What it was to keep cannot be restored.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// It has no epoch.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// It cannot be reached.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No thread could be started.
    #[error("no thread for the daemon: {}", livetime_shm::with_limit(.0))]
    Thread(std::io::Error),
}

/// A running daemon. It ends when dropped.
#[derive(Debug)]
pub struct Daemon {
    server: Arc<Server>,
    /// It has the keeper of the state file, and gives it back at its end.
    ticker: Option<JoinHandle<Option<StateKeeper>>>,
    generator_thread: Option<JoinHandle<()>>,
    _socket: Option<PeerSocket>,
}

impl Daemon {
    /// Starts the core, then control, then what clients reach it by.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn start(config: &DaemonConfig) -> Result<Self, DaemonError> {
        // Held until this one listens.
        let turn = config.socket.as_deref().map(StartTurn::wait).transpose()?;
        if let Some(socket) = &config.socket {
            // A daemon that listens there goes on with its own epoch.
            clear_place(socket)?;
        }
        let epoch = match &turn {
            Some(turn) => turn.take_epoch(config.epoch)?,
            None => config.epoch,
        };
        let mut core_config = config.core.clone();
        core_config.unit.sinks_max = config.registry.sinks_max;
        core_config.inputs = config.inputs;
        let clock = match config.virtual_start {
            Some(start) => TaiClock::standing_at(start),
            None => TaiClock::machine(),
        };
        let core = Core::new(&core_config, clock)?;
        let RunningCore {
            handle,
            injector,
            tags,
            tag_bell,
        } = core.start(&core_config)?;
        let generators = Arc::new(Generators::new(
            usize::from(config.generators.clamp(1, 64)),
            config.generator,
            tags,
            tag_bell,
            injector.clock().clone(),
        ));
        let control = Control::new(
            config.registry,
            handle,
            injector,
            config.rules.clone(),
            core_config.unit,
            epoch,
        )
        .map_err(DaemonError::Config)?;
        add_fixed_sinks(&control, config)?;
        let keeper = match &config.state_file {
            Some(path) => Some(StateKeeper::restore(path, &control)?),
            None => None,
        };
        let server = Server::new(Arc::new(control), generators);
        // From here on it ends in order, whatever fails.
        let mut daemon = Self {
            server,
            ticker: None,
            generator_thread: None,
            _socket: None,
        };
        let ticker = start_ticker(&daemon.server, keeper).map_err(DaemonError::Thread)?;
        daemon.ticker = Some(ticker);
        let generators = start_generators(&daemon.server).map_err(DaemonError::Thread)?;
        daemon.generator_thread = Some(generators);
        for bus in &config.buses {
            join_bus(&daemon.server, bus)?;
        }
        if let Some(path) = &config.socket {
            daemon._socket = Some(listen(&daemon.server, path)?);
        }
        drop(turn);
        Ok(daemon)
    }

    /// Waits until a client with that right wants the end, at most so long; returns whether.
    pub fn wait_quit(&self, timeout: Duration) -> bool {
        self.server.wait_quit(timeout)
    }

    /// Control, for those in this process.
    pub fn control(&self) -> &Arc<Control> {
        &self.server.control
    }

    /// The core's inlet and clock.
    pub fn injector(&self) -> &Injector {
        self.server.control.injector()
    }

    /// The function generators.
    pub fn generators(&self) -> &Arc<Generators> {
        &self.server.generators
    }

    /// Connections open.
    pub fn connections(&self) -> usize {
        self.server.link_count()
    }

    /// Buses that have gone away since this was asked last. The daemon is not on them again, even
    /// when they come back.
    pub fn take_lost_buses(&self) -> Vec<String> {
        self.server.take_lost_buses()
    }

    /// Ends it in order: subscriptions get what was put off and their end, then the core stops. What is
    /// answered until nobody is connected any more is in the state file.
    ///
    /// # Errors
    /// [`CoreError::Stuck`] as a [`DaemonError::Control`].
    pub fn stop(&mut self) -> Result<(), DaemonError> {
        self.server.quit();
        // A panic was reported by the program's hook.
        let keeper = self.ticker.take().and_then(|thread| thread.join().ok());
        let _ = self.generator_thread.take().map(JoinHandle::join);
        let stopped = self.server.control.stop();
        self.server.close_links();
        keep(keeper.flatten().as_mut(), &self.server.control);
        Ok(stopped?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Makes the sinks that the receiver has: its outputs, and those for tags on a bus.
fn add_fixed_sinks(control: &Control, config: &DaemonConfig) -> Result<(), ControlError> {
    let fixed = (1..=config.outputs)
        .map(|n| (SinkKind::Output, format!("IO{n}")))
        .chain((1..=config.bus_sinks).map(|n| (SinkKind::BusTag, format!("bus{n}"))));
    for (kind, name) in fixed {
        control.add_fixed_sink(SinkSpec {
            conflict_policy: ConflictPolicy::Reject,
            ..SinkSpec::new(kind, name)
        })?;
    }
    Ok(())
}

/// Brings the state file up to date, if there is one.
fn keep(keeper: Option<&mut StateKeeper>, control: &Control) {
    if let Some(keeper) = keeper {
        let kept = keeper.look(control);
        control.set_kept_error(kept.err().map(|error| error.to_string()));
    }
}

/// Starts the thread that sends signals, ends leases and handshakes and keeps the state file up to date.
fn start_ticker(
    server: &Arc<Server>,
    mut keeper: Option<StateKeeper>,
) -> std::io::Result<JoinHandle<Option<StateKeeper>>> {
    let server = Arc::clone(server);
    std::thread::Builder::new()
        .name("timing-ticker".to_owned())
        .spawn(move || {
            while !server.wait_quit(TICK) {
                server.tick();
                server.handshakes.expire(Instant::now());
                zbus::block_on(server.expire_leases());
                keep(keeper.as_mut(), &server.control);
            }
            keeper
        })
}

/// Starts the thread of the function generators.
fn start_generators(server: &Arc<Server>) -> std::io::Result<JoinHandle<()>> {
    let server = Arc::clone(server);
    std::thread::Builder::new()
        .name("timing-generators".to_owned())
        .spawn(move || {
            let stopping = || server.is_quitting();
            let generators = Arc::clone(&server.generators);
            generators.run(&stopping, |output| send_output(&server, output));
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use livetime_timing::{Caller, Change, ClientId, ConditionSpec, IdFilter, Role, SinkId};
    use livetime_wire::EventId;

    use super::*;
    use crate::bus::server::SIGNAL_RATE_NS_USUAL;

    const ADMIN: Caller = Caller {
        client: ClientId(0),
        role: Role::Admin,
    };

    /// A daemon on a virtual clock, with a state file in a folder.
    fn start_in(folder: &std::path::Path) -> Daemon {
        let mut config = DaemonConfig::for_user(0);
        config.virtual_start = Some(TaiNs(1_000_000_000_000));
        config.state_file = Some(folder.join("kept.json"));
        Daemon::start(&config).unwrap()
    }

    fn first_sink(daemon: &Daemon) -> SinkId {
        let control = daemon.control();
        control.read(|registry| registry.sink_by_name("IO1").unwrap().id)
    }

    #[test]
    fn a_start_waits_for_another_at_its_socket_before_it_touches_it() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("t.sock");
        // What a dead daemon left.
        drop(UnixListener::bind(&socket).unwrap());
        let turn = StartTurn::wait(&socket).unwrap();
        let mut config = DaemonConfig::for_user(0);
        config.virtual_start = Some(TaiNs(1_000_000_000_000));
        config.socket = Some(socket.clone());
        let starting = std::thread::spawn(move || Daemon::start(&config));
        let waits = format!("-> FLOCK  ADVISORY  WRITE {}", std::process::id());
        let is_waiting =
            || std::fs::read_to_string("/proc/locks").is_ok_and(|l| l.contains(&waits));
        let begin = Instant::now();
        while !is_waiting() && !starting.is_finished() {
            assert!(begin.elapsed() < Duration::from_secs(60), "nobody waits");
            std::thread::yield_now();
        }
        // The other one takes the place over.
        std::fs::remove_file(&socket).unwrap();
        let living = UnixListener::bind(&socket).unwrap();
        drop(turn);
        let error = starting.join().unwrap().unwrap_err();
        assert!(
            matches!(&error, DaemonError::Listen(ListenError::InUse { .. })),
            "{error}"
        );
        assert!(UnixStream::connect(&socket).is_ok());
        drop(living);
    }

    #[test]
    fn what_is_answered_while_the_daemon_ends_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = start_in(folder.path());
        daemon.server.quit();
        while !daemon.ticker.as_ref().unwrap().is_finished() {
            std::thread::yield_now();
        }
        let filter = IdFilter::leading(EventId(0x77), 64).unwrap();
        let add = Change::Add(ConditionSpec::new(first_sink(&daemon), filter, 2));
        let added = daemon.control().apply(&ADMIN, &[add]).unwrap().added;
        let disown = Change::Disown(added[0]);
        daemon.control().apply(&ADMIN, &[disown]).unwrap();
        daemon.stop().unwrap();
        assert_eq!(daemon.control().kept_error(), None);
        let again = start_in(folder.path());
        let kept = again.control().read(|registry| {
            let filters = registry.conditions().map(|condition| condition.spec.filter);
            filters.collect::<Vec<_>>()
        });
        assert_eq!(kept, [filter]);
    }

    #[test]
    fn figures_are_not_those_of_another_sink() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = start_in(folder.path());
        let control = daemon.control();
        let there = |id| {
            let figures = control.figures().unwrap();
            figures.sinks.iter().any(|(sink, _)| *sink == id)
        };
        let make = |name| {
            let spec = SinkSpec::new(SinkKind::Software, name);
            control.create_sink(&ADMIN, spec).unwrap()
        };
        let filter = IdFilter::masked(EventId(0), 0).unwrap();
        let sink = make("first");
        let add = Change::Add(ConditionSpec::new(sink, filter, 2));
        control.apply(&ADMIN, &[add]).unwrap();
        let message = livetime_wire::TimingMessage::new(EventId(1), 2, control.time());
        control.inject(&ADMIN, &[message]).unwrap();
        let matched = || {
            let figures = control.figures().unwrap();
            let of_it = figures.sinks.iter().find(|(id, _)| *id == sink);
            of_it.map(|(_, counters)| counters.matched)
        };
        while control.fresh_figures().unwrap().messages == 0 {
            std::thread::yield_now();
        }
        assert_eq!(matched(), Some(1));
        control.destroy_sink(&ADMIN, sink).unwrap();
        assert!(!there(sink));
        assert_eq!(make("second"), sink);
        assert_eq!(matched(), Some(0));
    }

    #[test]
    fn a_sink_has_nothing_of_the_one_that_had_its_place() {
        let mut config = DaemonConfig::for_user(0);
        config.virtual_start = Some(TaiNs(1_000_000_000_000));
        let daemon = Daemon::start(&config).unwrap();
        let (server, control) = (&daemon.server, daemon.control());
        let make = |name| {
            let spec = SinkSpec::new(SinkKind::Software, name);
            control.create_sink(&ADMIN, spec).unwrap()
        };
        let first = make("first");
        control.destroy_sink(&ADMIN, first).unwrap();
        // Of a call that was under way when the sink went.
        server.set_signal_rate(first, 1);
        assert_eq!(make("second"), first);
        assert_eq!(server.signal_rate(first), SIGNAL_RATE_NS_USUAL);
        server.set_signal_rate(first, 1);
        assert_eq!(server.signal_rate(first), 1);
    }
}
