//! The interpreter's process: its start, its requests and answers, its deaths.
//!
//! What is started is a supervisor that loads the filter once and then forks a life of it, and
//! another when that one dies: a new life costs milliseconds, not the import of the filter's
//! modules. Requests and answers are packets over one socket, the supervisor's reports documents
//! over another. Nothing here waits, but for [`Interpreter::start`]'s caller, who may. Which events
//! are asked about is in [`super::batch_filter`].
//!
//! ```text
//! supervisor                         here
//!   │──loaded: batch, wait──────────►│
//!   │◄─begin: memory, bounds─────────│  with the memory's descriptors, at most 16 a packet
//!   │──life: number─────────────────►│  each time that a life begins
//!   │──died: how────────────────────►│  each time that one ended
//!   │◄─kill: life, sequence──────────│
//! life
//!   │◄─life, slot, first, last, seq──│  a request
//!   │──fill, .., done or failed─────►│
//! ```

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use livetime_shm::{Doorbell, PASSED_FDS_MAX, PagePool, PeerError, control_pair, send_fds};
use serde_json::{Value, json};

use super::PythonConfig;
use super::answer_bell::ring_for_answers;
use super::batch_arena::{BatchArena, SLOTS};
use super::filter_fill::FilterFill;
use super::printed_output::{PrintedBytes, empty_pipe};
use crate::event_fault::{EventFault, EventFaultKind};

/// Version of what both sides say.
const PROTOCOL: u64 = 3;
/// The module of the Python package that serves.
const MODULE: &str = "livetime.filter_worker";
/// Longest packet.
const PACKET_MAX: usize = 128 * 1024;
/// Memory of others begins at multiples of this, whatever its pages are.
const REGION_STEP: usize = 2 << 20;

/// What the interpreter maps: the arena at the front, then the pools.
pub struct SharedRegions<'a> {
    arena: &'a BatchArena,
    pools: &'a [PagePool],
}

/// Where the pools begin in what the interpreter maps \[bytes\].
pub fn pool_bases(arena: &BatchArena, pools: &[PagePool]) -> Vec<usize> {
    let mut at = arena.memory_bytes().next_multiple_of(REGION_STEP);
    let base = |pool: &PagePool| {
        let base = at;
        at += pool.memory_bytes().next_multiple_of(REGION_STEP);
        base
    };
    pools.iter().map(base).collect()
}

impl<'a> SharedRegions<'a> {
    /// An arena and the pools of all readout units, in their order.
    pub fn new(arena: &'a BatchArena, pools: &'a [PagePool]) -> Self {
        Self { arena, pools }
    }
}

/// What a filter unit adds to a filter.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Rung when the interpreter has said something: where the unit sleeps.
    pub bell: Option<Doorbell>,
    /// Events that the filter is not to survive.
    pub faults: Vec<EventFault>,
}

/// What was heard of the interpreter.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// The filter is loaded: its own batch size, and its own longest wait \[ms\].
    Loaded {
        /// Most events of a batch.
        batch: u64,
        /// Longest wait for a full batch \[ms\].
        wait_ms: f64,
    },
    /// It is ready for requests: a new life of it has begun.
    Alive,
    /// What the events of a request add to a histogram.
    Fill(FilterFill),
    /// A request is answered; the verdicts are in the arena.
    Done {
        /// Which request.
        sequence: u64,
        /// Time in the filter \[ns\].
        filter_ns: u64,
        /// Processes that the filter has forked so far, in this life.
        forks: u64,
    },
    /// The filter has failed on a request, and lives.
    Failed {
        /// Which request.
        sequence: u64,
        /// In one line.
        reason: String,
        /// Where it came from.
        traceback: String,
    },
    /// A life ended, and another begins.
    Died(String),
    /// The whole interpreter is gone.
    Gone(String),
}

/// One interpreter.
pub struct Interpreter {
    /// The interpreter, for messages.
    name: String,
    child: Child,
    control: UnixStream,
    data: UnixStream,
    /// The other end of `data`, until it is passed.
    far_end: Option<OwnedFd>,
    /// The life that has begun; 0 before the first.
    life: u32,
    buffer: Vec<u8>,
    /// Why it will not start, if it said so.
    refused: Option<String>,
    gone: bool,
}

/// A request for verdicts on some events of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Slot of the batch.
    pub slot: usize,
    /// First event.
    pub first: usize,
    /// One behind the last.
    pub last: usize,
    /// Number of the request, from 1.
    pub sequence: u64,
}

impl Interpreter {
    /// Starts an interpreter for a filter unit; what becomes of it is heard by and by, and rings the
    /// unit's bell.
    ///
    /// # Errors
    /// When the system does not start it.
    pub fn start(
        role: &str,
        config: &PythonConfig,
        surroundings: &Surroundings,
        printed: &PrintedBytes,
    ) -> io::Result<Self> {
        let other = |error: PeerError| io::Error::other(error.to_string());
        let (control, control_end) = control_pair().map_err(other)?;
        let (data, far_end) = control_pair().map_err(other)?;
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(&config.interpreter);
        command.args(["-u", "-m", MODULE]);
        command.arg(&config.file).arg(&config.function);
        command.args(&config.kept);
        for threads in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
            // A filter unit is one process on one core; threads do not survive a fork either.
            if std::env::var_os(threads).is_none() {
                command.env(threads, "1");
            }
        }
        // The terminal's Ctrl-C is the run's to handle.
        command.process_group(0);
        command.stdin(Stdio::from(control_end));
        command.stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn()?;
        drop(command);
        empty_pipe(role, reader, printed.clone())?;
        let (control, data) = (UnixStream::from(control), UnixStream::from(data));
        control.set_nonblocking(true)?;
        data.set_nonblocking(true)?;
        if let Some(bell) = &surroundings.bell {
            let sockets = [control.try_clone()?.into(), data.try_clone()?.into()];
            ring_for_answers(role, sockets, bell.clone())?;
        }
        Ok(Self {
            name: config.interpreter.display().to_string(),
            child,
            control,
            data,
            far_end: Some(far_end),
            life: 0,
            buffer: vec![0; PACKET_MAX],
            refused: None,
            gone: false,
        })
    }

    /// Passes memory and bounds to a supervisor that has loaded its filter.
    ///
    /// # Errors
    /// [`PeerError`]; it is about to be gone.
    pub fn begin(
        &mut self,
        config: &PythonConfig,
        faults: &[EventFault],
        regions: &SharedRegions<'_>,
    ) -> Result<(), PeerError> {
        let SharedRegions { arena, pools } = regions;
        let slots: Vec<usize> = (0..SLOTS).map(|slot| arena.first_byte(slot)).collect();
        let bases = pool_bases(arena, pools);
        let sizes = pools.iter().map(PagePool::memory_bytes);
        let pairs: Vec<(usize, usize)> = bases.into_iter().zip(sizes).collect();
        let word = |kind| match kind {
            EventFaultKind::Crash => "crash",
            EventFaultKind::Hang => "hang",
        };
        let faults = faults
            .iter()
            .map(|fault| (fault.trigger.0, word(fault.kind)));
        let faults: Vec<(u64, &str)> = faults.collect();
        let document = json!(["begin", {
            "protocol": PROTOCOL,
            "arena": arena.memory_bytes(),
            "in_work": arena.first_byte(0) - 64,
            "slots": slots,
            "pools": pairs,
            "streams": config.streams,
            "paths": config.paths,
            "memory_max": config.memory_max.0,
            "faults": faults,
        }]);
        let far_end = self.far_end.take().ok_or(PeerError::HungUp)?;
        let mut fds: Vec<BorrowedFd<'_>> = vec![far_end.as_fd(), arena.fd()];
        fds.extend(pools.iter().map(PagePool::fd));
        let mut parts = fds.chunks(PASSED_FDS_MAX);
        let first = parts.next().unwrap_or(&[]);
        send_fds(&self.control, document.to_string().as_bytes(), first)?;
        for part in parts {
            send_fds(&self.control, b"[\"more\"]", part)?;
        }
        Ok(())
    }

    /// Asks for verdicts.
    ///
    /// # Errors
    /// When the socket takes nothing; the interpreter is about to be gone.
    pub fn ask(&mut self, request: &Request) -> io::Result<()> {
        let mut packet = [0; 24];
        let small = |value: usize| (value as u32).to_le_bytes();
        packet[..4].copy_from_slice(&self.life.to_le_bytes());
        packet[4..8].copy_from_slice(&small(request.slot));
        packet[8..12].copy_from_slice(&small(request.first));
        packet[12..16].copy_from_slice(&small(request.last));
        packet[16..].copy_from_slice(&request.sequence.to_le_bytes());
        self.data.write_all(&packet)
    }

    /// Has the life killed that works at present on a request; its death is heard. Not if it has gone on
    /// to a later request, or is dead and another lives, by the time that the supervisor hears of it.
    pub fn kill_life(&mut self, sequence: u64) {
        let order = json!(["kill", self.life, sequence]).to_string();
        // A supervisor that takes nothing is dead or hung: then all of it has to go.
        if self.control.write_all(order.as_bytes()).is_err() {
            let _already_dead = self.child.kill();
        }
    }

    /// What was heard next; `None` when there is nothing.
    pub fn poll(&mut self) -> Option<Heard> {
        if self.gone {
            return None;
        }
        // Answers first: a life that died after its answer has done its work.
        if let Some(heard) = self.poll_answer() {
            return Some(heard);
        }
        match self.control.read(&mut self.buffer) {
            Ok(0) => Some(self.lose()),
            Ok(length) => self.understand(length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(self.lose()),
        }
    }

    fn poll_answer(&mut self) -> Option<Heard> {
        let length = match self.data.read(&mut self.buffer) {
            Ok(length) if length >= 16 => length,
            _ => return None,
        };
        let packet = &self.buffer[..length];
        let long = |at: usize| {
            packet
                .get(at..at + 8)?
                .try_into()
                .ok()
                .map(u64::from_le_bytes)
        };
        let sequence = long(8)?;
        let text = || serde_json::from_slice::<Value>(&packet[16..]).ok();
        match packet[0] {
            1 => Some(Heard::Done {
                sequence,
                filter_ns: long(16)?,
                forks: long(24)?,
            }),
            2 => {
                let text = text()?;
                let part = |index: usize| text[index].as_str().unwrap_or_default().to_owned();
                Some(Heard::Failed {
                    sequence,
                    reason: part(0),
                    traceback: part(1),
                })
            }
            3 => Some(Heard::Fill(FilterFill::from_json(&text()?)?)),
            _ => None,
        }
    }

    fn understand(&mut self, length: usize) -> Option<Heard> {
        let document: Value = serde_json::from_slice(&self.buffer[..length]).ok()?;
        let body = &document[1];
        match document[0].as_str()? {
            "loaded" => Some(Heard::Loaded {
                batch: body["batch"].as_u64()?,
                wait_ms: body["wait_ms"].as_f64()?,
            }),
            "life" => {
                self.life = u32::try_from(body.as_u64()?).ok()?;
                Some(Heard::Alive)
            }
            "died" => Some(Heard::Died(body.as_str()?.to_owned())),
            "refused" => {
                self.refused = Some(body.as_str()?.to_owned());
                None
            }
            _ => None,
        }
    }

    fn lose(&mut self) -> Heard {
        self.gone = true;
        // Its socket hung up: it has ended, or it has nothing more to say.
        let _already_dead = self.child.kill();
        let exit = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let why = self.refused.take().unwrap_or_else(|| match self.life {
            0 => format!(
                "{} ended ({exit}) before it had loaded the filter: it needs the package \
                 `livetime` (pip install ./python), or LIVETIME_PYTHON names another interpreter",
                self.name
            ),
            _ => exit,
        });
        Heard::Gone(why)
    }
}

impl Drop for Interpreter {
    /// Its supervisor sees the hang-up, ends the life and goes; it is not waited for.
    fn drop(&mut self) {
        if !self.gone {
            let _already_dead = self.control.shutdown(std::net::Shutdown::Both);
            let _reaped = reap(&mut self.child);
        }
    }
}

/// Waits for a supervisor that was told to go, and kills it if it does not.
fn reap(child: &mut Child) -> io::Result<()> {
    for _ in 0..200 {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill()?;
    child.wait().map(drop)
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter")
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}
