//! The child's side: a process that serves one role of a run.
//!
//! It opens what it is given, polls its role until the run page says that the run ends, and sends
//! back what the role leaves. A second thread listens at the control socket: it hands on commands,
//! and ends the process at once when the parent is gone, whatever the role is doing. The signals that
//! end programs are the parent's to heed: service managers and batch systems send them to all
//! processes of a run at once, and a role that died of one would be missed in the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use hdrhistogram::Histogram;
use livetime_shm::{
    Consumer, Doorbell, PagePool, PeerError, Producer, WaitCounts, Waiter, open_consumer,
    open_producer, pin_current_thread,
};
use livetime_wire::{RunNumber, TaiNs, TriggerNumber, UnitId, UnitKind};
use nix::sys::signal::{SigSet, Signal};

use super::ProcessError;
use super::control_message::{ENTRIES_MAX, EndName, Message, PROTOCOL, RoleLeft, unit_of_code};
use super::role_loop::{PeerTrouble, run_role};
use super::run_page::RunPage;
use super::writer_lock;
use super::writer_process::records_of;
use crate::builder_transport::PeerSocket;
use crate::chain_config::{ChainConfig, WorkerConfig};
use crate::chain_plan::{ChainPlan, PoolKey, RingKey};
use crate::event_fault::EventFault;
use crate::packet_log::packet_file_of;
use crate::role::{Role, RoleCommand, RoleReport, RoleResult};
use crate::role_ends::{RoleEnds, unit_of};
use crate::run_clock::RunClock;
use crate::run_file::{ClosingFile, RunFile};

/// Exit code of a role whose parent is gone.
const PARENT_GONE: i32 = 3;

/// Everything that the parent sent before the start.
struct Given {
    page: RunPage,
    block: usize,
    clock: RunClock,
    ends: RoleEnds,
    file: Option<RunFile>,
}

/// The role, and what it runs with.
struct Prepared {
    page: RunPage,
    block: usize,
    clock: RunClock,
    bell: Doorbell,
    role: Box<dyn Role>,
}

struct Control<'a> {
    socket: OwnedFd,
    role: &'a str,
}

impl Control<'_> {
    fn failed(&self, error: PeerError) -> ProcessError {
        ProcessError::Control {
            role: self.role.to_owned(),
            error,
        }
    }

    fn send(&self, message: &Message) -> Result<(), ProcessError> {
        message
            .send(&self.socket, &[])
            .map_err(|error| self.failed(error))
    }

    fn recv(&self, expected: &'static str) -> Result<(Message, Vec<OwnedFd>), ProcessError> {
        let received = Message::recv(&self.socket).map_err(|error| self.failed(error))?;
        received.ok_or_else(|| self.out_of_turn("nonsense", expected))
    }

    fn out_of_turn(&self, found: &str, expected: &'static str) -> ProcessError {
        ProcessError::OutOfTurn {
            role: format!("the parent of {}", self.role),
            found: found.to_owned(),
            expected,
        }
    }
}

/// Blocks what asks a program to end, here and in what is started from here: threads, interpreters.
fn leave_signals_to_parent() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        signals.add(signal);
    }
    // It fails for no set of signals that there are; a role that could be ended by one is as it was.
    let _never_fails = signals.thread_block();
}

/// Serves role `id` for the parent at the other end of `socket` until the run ends. `version` and
/// `identity` name program and configuration; the parent refuses others than its own. `worker`
/// says how the role waits and where it runs; filters do not survive the events of `event_faults`.
///
/// # Errors
/// [`ProcessError`] when the role could not be set up or its result not be sent.
pub fn serve_role(
    socket: OwnedFd,
    id: &str,
    version: &str,
    identity: &str,
    mut config: ChainConfig,
    worker: &WorkerConfig,
    event_faults: Vec<EventFault>,
) -> Result<(), ProcessError> {
    leave_signals_to_parent();
    let control = Control { socket, role: id };
    control.send(&Message::Hello {
        protocol: PROTOCOL,
        version: version.to_owned(),
        role: id.to_owned(),
        config: identity.to_owned(),
    })?;
    let Prepared {
        page,
        block,
        clock,
        bell,
        mut role,
    } = prepare(&control, &mut config, event_faults).or_else(|error| {
        control.send(&Message::Refused(error.to_string()))?;
        Err(error)
    })?;
    let (sender, commands) = channel();
    let (close, closing) = channel();
    let commands_bell = (sender, bell.clone());
    await_start(&control, ChainPlan::new(&config), commands_bell, close)?;
    let pin_error = pin(worker);
    bell.claim();
    let mut waiter = Waiter::with_doorbell(worker.wait, bell);
    let settled = |triggers: Vec<TriggerNumber>| {
        let triggers = triggers.into_iter().map(|trigger| trigger.0).collect();
        // A parent that does not hear it is gone, which the other thread finds out.
        let _parent_gone = control.send(&Message::Settled(triggers));
    };
    // As above: a parent that does not hear it is gone.
    let report = |report: RoleReport| drop(send_report(&control, report));
    run_role(
        role.as_mut(),
        (&page, block),
        &clock,
        &mut waiter,
        &commands,
        settled,
        report,
        |trouble| {
            let message = match trouble {
                PeerTrouble::Silent(unit) => Message::Silent(unit.to_code()),
                PeerTrouble::Cut(unit) => Message::Cut(unit.to_code()),
            };
            drop(control.send(&message));
        },
    );
    conclude(
        &control,
        role.finish(clock.now()),
        waiter.counts(),
        pin_error,
        &closing,
    )
}

/// Has all that the role needs, and waits for the start. The thread comes before anything begins: a
/// limit on threads is to end the start, and not the run.
fn await_start(
    control: &Control<'_>,
    plan: ChainPlan,
    commands: (Sender<RoleCommand>, Doorbell),
    close: Sender<(String, bool)>,
) -> Result<(), ProcessError> {
    let let_listen = listen(control, plan, commands, close).or_else(|error| {
        control.send(&Message::Refused(error.to_string()))?;
        Err(error)
    })?;
    control.send(&Message::Ready)?;
    match control.recv("start")? {
        (Message::Start, _) => {}
        (other, _) => return Err(control.out_of_turn(other.name(), "start")),
    }
    // It waits for that and nothing else.
    let _listens = let_listen.send(());
    Ok(())
}

/// Takes what the parent gives and makes the role of it, with its bell.
fn prepare(
    control: &Control<'_>,
    config: &mut ChainConfig,
    event_faults: Vec<EventFault>,
) -> Result<Prepared, ProcessError> {
    let Given {
        page,
        block,
        clock,
        mut ends,
        file,
    } = take_ends(control, config)?;
    ends.event_faults = event_faults;
    // Who serves a role of which others have no bell wakes up by itself.
    let bell = unit_of(control.role).and_then(|unit| ends.bells.remove(&unit));
    let bell = bell.unwrap_or_else(Doorbell::in_process);
    ends.own_bell = Some(bell.clone());
    Ok(Prepared {
        page,
        block,
        clock,
        bell,
        role: ends.into_role(config, file)?,
    })
}

/// Sends what the role did, and closes its run file if it has one.
fn conclude(
    control: &Control<'_>,
    mut result: RoleResult,
    waits: WaitCounts,
    pin_error: Option<String>,
    closing: &Receiver<(String, bool)>,
) -> Result<(), ProcessError> {
    for failure in std::mem::take(&mut result.filter_failures) {
        send_report(control, RoleReport::Failure(failure))?;
    }
    let histograms = std::mem::take(&mut result.histograms);
    send_report(control, RoleReport::Histograms(histograms))?;
    let file = result.run_file.take();
    let waits = [
        waits.busy,
        waits.spins,
        waits.yields,
        waits.sleeps,
        waits.rung,
    ];
    send_result(control, result, waits, pin_error)?;
    match file {
        Some(ClosingFile::Here(file)) => close_file(control, *file, closing),
        _ => Ok(()),
    }
}

/// Waits for the last records of the run file and closes it with them.
fn close_file(
    control: &Control<'_>,
    file: RunFile,
    closing: &Receiver<(String, bool)>,
) -> Result<(), ProcessError> {
    let mut text = String::new();
    // The parent's end hangs up when it has nothing to say; the other thread ends the process then.
    while let Ok((part, last)) = closing.recv() {
        text += &part;
        if last {
            break;
        }
    }
    let failure = match records_of(&text) {
        Some((end, histograms)) => {
            // The parent ends this process to end the wait for a disk.
            let closed = file.close_with_patience(&end, &histograms, &mut || false);
            closed.err().map(|error| error.to_string())
        }
        None => Some("the last records were not understood".to_owned()),
    };
    control.send(&Message::Closed(failure))
}

fn pin(worker: &WorkerConfig) -> Option<String> {
    let pinned = worker.core.map(pin_current_thread).transpose();
    pinned.err().map(|error| error.to_string())
}

/// Puts into the configuration what is not in its text: what the run has been given.
fn fit_to_run(config: &mut ChainConfig, run: u32, spill_origin_ns: u64, file: &Path) {
    config.run = RunNumber(run);
    if let Some(spill) = &mut config.spill {
        spill.origin = TaiNs(spill_origin_ns);
    }
    if let Some(packets) = &mut config.packets {
        packets.path = packet_file_of(file, 0);
    }
}

/// Takes the documents before the start.
fn take_ends(control: &Control<'_>, config: &mut ChainConfig) -> Result<Given, ProcessError> {
    let (message, fds) = control.recv("begin")?;
    let Message::Begin {
        run,
        block,
        clock,
        epoch,
        epochs,
        absent,
        joined,
        spill_origin_ns,
        file: path,
    } = message
    else {
        return Err(control.out_of_turn(message.name(), "begin"));
    };
    let missing = |end: &str| crate::role_ends::MissingEnd {
        role: control.role.to_owned(),
        end: end.to_owned(),
    };
    let mut fds = fds.into_iter();
    let page = RunPage::open(fds.next().ok_or_else(|| missing("run page"))?)?;
    fit_to_run(config, run, spill_origin_ns, Path::new(&path));
    let block = usize::try_from(block).unwrap_or(usize::MAX);
    let counters = page.block(block).ok_or_else(|| missing("counters"))?;
    let is_writer = unit_of(control.role).is_some_and(|unit| unit.kind == UnitKind::Writer);
    let mut file = None;
    if is_writer {
        let fd = fds.next().ok_or_else(|| missing("run file"))?;
        writer_lock::hold(&fd);
        let path = Path::new(&path);
        // Of several files, the parent knows only where the first one is.
        file = Some(match config.files.is_single() {
            true => RunFile::resume(File::from(fd), path, config.store)?.with_plan(&config.files),
            false => RunFile::reopen_all(path, config.store, &config.files)?,
        });
    }
    let mut ends = RoleEnds::new(control.role, counters, RunClock::from_words(clock));
    ends.absent = absent.into_iter().filter_map(unit_of_code).collect();
    ends.epoch = epoch;
    ends.remembers_accepts = true;
    ends.starts_late = true;
    ends.epochs = by_unit(epochs);
    ends.joined = by_unit(joined.into_iter().map(|(code, n)| (code, TriggerNumber(n))));
    let plan = ChainPlan::new(config);
    loop {
        match control.recv("ends")? {
            // An empty list says that there are no more.
            (Message::Ends(names), _) if names.is_empty() => break,
            (Message::Ends(names), fds) => {
                for (name, fd) in names.iter().zip(fds) {
                    open_end(&plan, name, fd, &mut ends)?;
                }
            }
            (other, _) => return Err(control.out_of_turn(other.name(), "ends")),
        }
    }
    Ok(Given {
        page,
        block,
        clock: RunClock::from_words(clock),
        ends,
        file,
    })
}

/// Values of units that came by their codes.
fn by_unit<T>(values: impl IntoIterator<Item = (u16, T)>) -> BTreeMap<UnitId, T> {
    let values = values.into_iter();
    values
        .filter_map(|(code, value)| Some((unit_of_code(code)?, value)))
        .collect()
}

/// Opens one end that came as a descriptor. Names that the plan does not know are left alone: what
/// is missing is found when the role is made.
fn open_end(
    plan: &ChainPlan,
    name: &EndName,
    fd: OwnedFd,
    ends: &mut RoleEnds,
) -> Result<(), ProcessError> {
    match name.kind.as_str() {
        "pool" => {
            if let Some(key) = pool_key(plan, &name.name) {
                ends.pools.insert(key, PagePool::open(fd)?);
            }
        }
        "producer" => {
            if let Some(key) = ring_key(plan, &name.name) {
                ends.producers.insert(key, open_producer(fd, name.epoch)?);
            }
        }
        "consumer" => {
            if let Some(key) = ring_key(plan, &name.name) {
                ends.consumers.insert(key, open_consumer(fd, name.epoch)?);
            }
        }
        "bell" => {
            if let Some(unit) = unit_of(&name.name) {
                ends.bells.insert(unit, Doorbell::open(fd)?);
            }
        }
        kind => {
            let socket = PeerSocket::of_kind(kind, fd);
            if let (Some(name), Some(socket)) = (unit_of(&name.name), socket) {
                ends.put_socket(name, socket);
            }
        }
    }
    Ok(())
}

fn ring_key(plan: &ChainPlan, name: &str) -> Option<RingKey> {
    let mut keys = plan.rings.iter().map(|ring| ring.key);
    keys.find(|key| key.to_string() == name)
}

fn pool_key(plan: &ChainPlan, name: &str) -> Option<PoolKey> {
    let mut keys = plan.pools.iter().map(|pool| pool.key);
    keys.find(|key| key.to_string() == name)
}

/// Starts the thread that listens at the control socket, once it is told to.
fn listen(
    control: &Control<'_>,
    plan: ChainPlan,
    (commands, bell): (Sender<RoleCommand>, Doorbell),
    close: Sender<(String, bool)>,
) -> Result<Sender<()>, ProcessError> {
    let start = |error| ProcessError::Start {
        role: control.role.to_owned(),
        error,
    };
    let socket = control.socket.try_clone().map_err(start)?;
    let role = control.role.to_owned();
    let (let_listen, may_listen) = channel();
    let listener = move || {
        if may_listen.recv().is_err() {
            return;
        }
        // Those of the next command that did not fit into its packet.
        let (mut ends, mut triggers) = (Vec::new(), Vec::new());
        loop {
            match Message::recv(&socket) {
                Ok(Some((Message::Ends(names), fds))) => ends.extend(names.into_iter().zip(fds)),
                Ok(Some((Message::Triggers(part), _))) => triggers.extend(part),
                Ok(Some((Message::Close { part, last }, _))) => drop(close.send((part, last))),
                Ok(Some((mut message, fds))) => {
                    message.take_in(&mut triggers);
                    match to_command(&plan, message, std::mem::take(&mut ends), fds) {
                        // The role is through already when nobody takes it.
                        Ok(Some(command)) => {
                            drop(commands.send(command));
                            bell.ring();
                        }
                        Ok(None) => {}
                        Err(error) => eprintln!("{role}: a command was not understood: {error}"),
                    }
                }
                Ok(None) => eprintln!("{role}: the parent sent nonsense"),
                // Whatever the role is doing: without a parent there is no run.
                Err(error) => {
                    if !matches!(error, PeerError::HungUp) {
                        eprintln!("{role}: the parent cannot be heard any more: {error}");
                    }
                    std::process::exit(PARENT_GONE)
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("control".to_owned());
    thread.spawn(listener).map_err(start)?;
    Ok(let_listen)
}

/// Ends of rings and sockets that came with a command.
struct NewEnds {
    producers: BTreeMap<RingKey, Producer>,
    consumers: BTreeMap<RingKey, Consumer>,
    socket: Option<PeerSocket>,
    /// Of data links, by their front-end.
    data_sockets: BTreeMap<UnitId, PeerSocket>,
}

impl NewEnds {
    fn open(
        plan: &ChainPlan,
        what: &str,
        ends: Vec<(EndName, OwnedFd)>,
    ) -> Result<Self, ProcessError> {
        let mut new = Self {
            producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
            socket: None,
            data_sockets: BTreeMap::new(),
        };
        for (name, fd) in ends {
            let Some(key) = ring_key(plan, &name.name) else {
                let passed = PeerSocket::of_kind(&name.kind, fd);
                match (unit_of(&name.name), passed) {
                    // That of a data link has its name; what is cut is named by the command itself.
                    (Some(link), Some(passed))
                        if link.kind == UnitKind::Source && what == "back" =>
                    {
                        new.data_sockets.insert(link, passed);
                    }
                    (_, passed) => new.socket = passed,
                }
                continue;
            };
            if name.kind == "producer" {
                new.producers.insert(key, open_producer(fd, name.epoch)?);
            } else {
                new.consumers.insert(key, open_consumer(fd, name.epoch)?);
            }
        }
        Ok(new)
    }
}

fn to_command(
    plan: &ChainPlan,
    message: Message,
    mut ends: Vec<(EndName, OwnedFd)>,
    fds: Vec<OwnedFd>,
) -> Result<Option<RoleCommand>, ProcessError> {
    let Message::Command {
        what,
        unit,
        epoch,
        ends: names,
        triggers,
    } = message
    else {
        return Ok(None);
    };
    let Some(unit) = unit_of_code(unit) else {
        return Ok(None);
    };
    ends.extend(names.into_iter().zip(fds));
    let NewEnds {
        producers,
        consumers,
        socket,
        data_sockets,
    } = NewEnds::open(plan, &what, ends)?;
    let triggers = triggers.into_iter().map(TriggerNumber).collect();
    Ok(match what.as_str() {
        "lost" => Some(RoleCommand::PeerLost { unit, triggers }),
        "decide" => Some(RoleCommand::Decide { unit, triggers }),
        "released" => Some(RoleCommand::NameReleased { unit, triggers }),
        "unasked" => Some(RoleCommand::NameUnasked { unit, triggers }),
        "open" => Some(RoleCommand::NameOpen),
        "end" => Some(RoleCommand::EndUnasked { unit, triggers }),
        "retire" => Some(RoleCommand::Retire { unit }),
        "reconnect" => Some(RoleCommand::StreamBack {
            unit,
            stream: socket.and_then(PeerSocket::into_stream),
        }),
        "back" => Some(RoleCommand::PeerBack {
            unit,
            epoch,
            producers,
            consumers,
            socket,
            data_sockets,
        }),
        "held" => Some(RoleCommand::NameHeld { unit }),
        "succeed" => Some(RoleCommand::Succeed { finished: triggers }),
        "hold" => Some(RoleCommand::Hold { unit }),
        "pause" => Some(RoleCommand::Pause { is_on: true }),
        "resume" => Some(RoleCommand::Pause { is_on: false }),
        "joined" => (triggers.first()).map(|newest| RoleCommand::Joined {
            unit,
            newest: *newest,
        }),
        _ => None,
    })
}

fn send_report(control: &Control<'_>, report: RoleReport) -> Result<(), ProcessError> {
    match report {
        RoleReport::Failure(failure) => control.send(&Message::Failure(failure)),
        RoleReport::Histograms(histograms) => {
            for histogram in histograms {
                control.send(&Message::Filled(Box::new(histogram)))?;
            }
            Ok(())
        }
    }
}

fn send_result(
    control: &Control<'_>,
    result: RoleResult,
    waits: [u64; 5],
    pin_error: Option<String>,
) -> Result<(), ProcessError> {
    for (name, histogram) in [
        ("decision", &result.decision_latency),
        ("build", &result.build_latency),
        ("hand_over", &result.hand_over_latency),
    ] {
        let Some(histogram) = histogram else { continue };
        send_histogram(control, name, histogram)?;
    }
    control.send(&Message::Result(RoleLeft {
        details: result.details,
        digest: result.digest.map(|digest| digest.to_bits()),
        dead_time: result.dead_time,
        bytes_copied: result.bytes_copied,
        failure: result.failure,
        waits,
        pin_error,
    }))
}

fn send_histogram(
    control: &Control<'_>,
    name: &str,
    histogram: &Histogram<u64>,
) -> Result<(), ProcessError> {
    let entries: Vec<(u64, u64)> = histogram
        .iter_recorded()
        .map(|value| (value.value_iterated_to(), value.count_at_value()))
        .collect();
    for part in entries.chunks(ENTRIES_MAX) {
        control.send(&Message::Histogram {
            name: name.to_owned(),
            entries: part.to_vec(),
        })?;
    }
    Ok(())
}
