//! One role process as its parent has it: what it has said, what it leaves, and its end.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use livetime_shm::{PeerError, WaitCounts};
use livetime_store::Histogram as FilledHistogram;
use livetime_wire::{DecisionDigest, UnitId, UnitKind};

use crate::counter_block::CounterBlock;
use crate::process::ProcessError;
use crate::process::control_message::{Message, RoleLeft};
use crate::process::role_child::RoleChild;
use crate::role::{RoleResult, latency_histogram};
use crate::worker::WorkerResult;

/// What a role was heard to say, or that it is gone.
pub(in crate::process) enum Heard {
    Message(Box<Message>),
    Gone,
}

/// One role process.
pub(in crate::process) struct RoleProcess {
    pub(in crate::process) id: String,
    pub(in crate::process) unit: UnitId,
    pub(in crate::process) epoch: u32,
    pub(in crate::process) child: RoleChild,
    /// Until the process has ended and all that it has said was heard.
    pub(super) socket: Option<Arc<UnixStream>>,
    pub(in crate::process) block: usize,
    pub(in crate::process) counters: Arc<CounterBlock>,
    pub(in crate::process) result: RoleResult,
    /// The histograms that its filter has filled, by name.
    pub(super) filled: BTreeMap<String, FilledHistogram>,
    pub(in crate::process) left: Option<RoleLeft>,
    pub(in crate::process) gone: bool,
    /// How its process ended, when it was lost.
    pub(in crate::process) lost: Option<String>,
    /// It was told to leave while the run goes on.
    pub(in crate::process) leaving: bool,
    /// It was killed because it worked on one event for too long.
    pub(in crate::process) over_time: bool,
    /// It was killed because it was silent for too long.
    pub(in crate::process) silent: bool,
    /// It was lost, and it is decided what of it is built again.
    pub(in crate::process) settled: bool,
    /// What a writer that was lost had counted as stored.
    pub(in crate::process) stored_last: u64,
    /// What a filter unit that was lost had accepted and rejected, where that is not counted as its own
    /// any more.
    pub(in crate::process) verdicts_last: [u64; 2],
}

impl RoleProcess {
    pub(in crate::process) fn is_writer(&self) -> bool {
        self.unit.kind == UnitKind::Writer
    }

    /// Whether it has gone while the run went on.
    pub(super) fn has_gone(&self) -> bool {
        self.lost.is_some() || (self.leaving && self.gone)
    }

    /// Its role id; with the number of its life once it has gone.
    pub(in crate::process) fn name(&self) -> String {
        match self.has_gone() {
            false => self.id.clone(),
            true => format!("{}~{}", self.id, self.epoch),
        }
    }

    pub(in crate::process) fn socket(&self) -> Result<&Arc<UnixStream>, ProcessError> {
        let socket = self.socket.as_ref();
        socket.ok_or_else(|| failed(&self.id, PeerError::HungUp))
    }

    pub(in crate::process) fn send(
        &self,
        message: &Message,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ProcessError> {
        let sent = message.send(self.socket()?.as_ref(), fds);
        sent.map_err(|error| failed(&self.id, error))
    }

    /// Tells it to start. One that cannot be told is dying, which is heard.
    pub(super) fn let_run(&self) {
        let _dying = self.send(&Message::Start, &[]);
    }

    pub(super) fn recv(&self, expected: &'static str) -> Result<Message, ProcessError> {
        let received =
            Message::recv(self.socket()?.as_ref()).map_err(|error| failed(&self.id, error))?;
        let nonsense = || ProcessError::OutOfTurn {
            role: self.id.clone(),
            found: "nonsense".to_owned(),
            expected,
        };
        received.map(|(message, _)| message).ok_or_else(nonsense)
    }

    pub(super) fn out_of_turn(&self, found: &Message, expected: &'static str) -> ProcessError {
        ProcessError::OutOfTurn {
            role: self.id.clone(),
            found: found.name().to_owned(),
            expected,
        }
    }

    /// Starts the thread that hears this process.
    pub(super) fn listen(
        &self,
        index: usize,
        sender: Sender<(usize, Heard)>,
    ) -> Result<(), ProcessError> {
        let start = |error| ProcessError::Start {
            role: self.id.clone(),
            error,
        };
        let ours = self.socket()?;
        let socket = ours.as_fd().try_clone_to_owned().map_err(start)?;
        ours.set_read_timeout(None).map_err(start)?;
        let thread = std::thread::Builder::new().name(format!("hear-{}", self.id));
        let role = self.id.clone();
        thread
            .spawn(move || hear(&role, &socket, index, &sender))
            .map_err(start)?;
        Ok(())
    }

    pub(super) fn add_histogram(&mut self, name: &str, entries: &[(u64, u64)]) {
        let histogram = match name {
            "decision" => &mut self.result.decision_latency,
            "hand_over" => &mut self.result.hand_over_latency,
            _ => &mut self.result.build_latency,
        };
        let histogram = histogram.get_or_insert_with(latency_histogram);
        for (value, count) in entries {
            histogram.saturating_record_n(*value, *count);
        }
    }

    /// The role's result, and how its process spent its time; `exit` is how it ended.
    pub(super) fn conclude(&mut self, exit: &str) -> (RoleResult, WorkerResult) {
        let left = self.left.take();
        let mut result = std::mem::take(&mut self.result);
        result.counts = self.counters.read();
        let lost = left.is_none();
        let left = left.unwrap_or_default();
        result.details = left.details;
        result.digest = left.digest.map(DecisionDigest::from_bits);
        result.dead_time = left.dead_time;
        result.bytes_copied = left.bytes_copied;
        result.failure = result.failure.or(left.failure);
        result.histograms = std::mem::take(&mut self.filled).into_values().collect();
        result.id = self.name();
        if lost && self.lost.is_none() {
            result.failure = Some(format!("the process of {} left no result: {exit}", self.id));
        }
        let [busy, spins, yields, sleeps, rung] = left.waits;
        let waits = WaitCounts {
            busy,
            spins,
            yields,
            sleeps,
            rung,
        };
        let worker = worker_result(&self.id, waits, left.pin_error);
        (result, worker)
    }

    /// Waits for the process, which is killed if it has not gone by itself; says how it ended.
    pub(in crate::process) fn end(&mut self) -> String {
        if !self.gone {
            self.child.kill();
            self.gone = true;
        }
        self.socket = None;
        self.child.wait()
    }

    /// Gives back what the system keeps of a process that has left in order and hung up, once it has
    /// ended: a run may see hundreds of them.
    pub(in crate::process) fn reap(&mut self) {
        if self.gone && self.left.is_some() && self.socket.is_some() && self.child.has_ended() {
            self.socket = None;
        }
    }
}

/// Hears a process until it is gone.
fn hear(role: &str, socket: &OwnedFd, index: usize, sender: &Sender<(usize, Heard)>) {
    let mut ahead = Vec::new();
    loop {
        let heard = match Message::recv(socket) {
            Ok(Some((Message::Triggers(part), _))) => {
                ahead.extend(part);
                continue;
            }
            Ok(Some((mut message, _))) => {
                message.take_in(&mut ahead);
                Heard::Message(Box::new(message))
            }
            Ok(None) => continue,
            Err(PeerError::HungUp) => Heard::Gone,
            Err(error) => {
                eprintln!("{role}: cannot be heard any more: {error}");
                Heard::Gone
            }
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

pub(super) fn failed(role: &str, error: PeerError) -> ProcessError {
    ProcessError::Control {
        role: role.to_owned(),
        error,
    }
}
