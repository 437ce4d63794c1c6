//! Workers: threads that poll their roles in a fixed order.
//!
//! A role is not a thread. Each duty cycle polls every role of the worker once, and urgent ones, the
//! trigger nodes, again after each other role that had work: a decision does not wait for a whole
//! cycle. The sum of their work tells the waiter how to spend the time until the next. What a role
//! does is in `role/`.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use livetime_shm::{SharedWords, WaitCounts, Waiter, pin_current_thread};
use livetime_store::Histogram;
use livetime_wire::UnitId;

use crate::process::FilterFailure;
use crate::role::{Role, RoleCommand, RoleReport};
use crate::run_clock::RunClock;

/// What the run's driver wants of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Take data.
    Running = 0,
    /// Offer no more triggers; pass on what is there.
    Draining = 1,
    /// Everything has passed: end.
    Ending = 2,
    /// End at once; what is held is counted as lost.
    Aborting = 3,
}

/// The phase, shared by the driver and all workers.
#[derive(Debug, Clone)]
pub struct PhaseCell {
    words: SharedWords,
    index: usize,
}

impl Default for PhaseCell {
    /// A cell for threads of this process.
    fn default() -> Self {
        Self {
            words: SharedWords::on_heap(1),
            index: 0,
        }
    }
}

impl PhaseCell {
    /// The cell at `index` of shared words, which must have such a word.
    pub fn at(words: &SharedWords, index: usize) -> Self {
        assert!(
            index < words.words().len(),
            "the words have a place for the phase"
        );
        Self {
            words: words.clone(),
            index,
        }
    }

    /// The present phase.
    pub fn get(&self) -> Phase {
        // Relaxed: the phase orders nothing; data moves through the rings.
        match self.words.words()[self.index].load(Ordering::Relaxed) {
            0 => Phase::Running,
            1 => Phase::Draining,
            2 => Phase::Ending,
            _ => Phase::Aborting,
        }
    }

    /// Moves on; a phase never goes back.
    pub fn advance(&self, phase: Phase) {
        self.words.words()[self.index].fetch_max(phase as u64, Ordering::Relaxed);
    }
}

/// A worker that is to be started.
pub struct Worker {
    /// Name of the thread.
    pub name: String,
    /// Core to run on, if it is to be pinned.
    pub core: Option<usize>,
    /// How it waits.
    pub waiter: Waiter,
    /// Its roles in the order in which they are polled.
    pub roles: Vec<Box<dyn Role>>,
    /// Where roles tell what they have to tell.
    pub board: ReportBoard,
    /// What the driver wants of its roles.
    pub commands: CommandBox,
}

/// Busy duty cycles between two looks for units that a role takes for dead; idle ones look each time.
const CYCLES_PER_LOOK: u64 = 1024;

/// Commands to the roles of one worker; clones are the same box.
#[derive(Clone, Default)]
pub struct CommandBox(Arc<Commands>);

#[derive(Default)]
struct Commands {
    is_any: AtomicBool,
    waiting: Mutex<VecDeque<(String, RoleCommand)>>,
}

impl CommandBox {
    /// Puts a command to a role in; whoever does rings the worker's bell afterwards.
    pub fn put(&self, role: &str, command: RoleCommand) {
        // Nothing that holds it can panic.
        let Ok(mut waiting) = self.0.waiting.lock() else {
            return;
        };
        waiting.push_back((role.to_owned(), command));
        // Relaxed: the lock orders the commands; seen late, it is seen in a later duty cycle.
        self.0.is_any.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn take(&self) -> Option<(String, RoleCommand)> {
        // Relaxed: as in `put`.
        if !self.0.is_any.load(Ordering::Relaxed) {
            return None;
        }
        let mut waiting = self.0.waiting.lock().ok()?;
        let command = waiting.pop_front();
        self.0.is_any.store(!waiting.is_empty(), Ordering::Relaxed);
        command
    }
}

/// What the roles of this process have told so far; clones are the same board.
#[derive(Debug, Clone, Default)]
pub struct ReportBoard(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    failures: Vec<FilterFailure>,
    cut: Vec<(String, UnitId)>,
    ended: Vec<(String, UnitId)>,
    filled: BTreeMap<String, Vec<Histogram>>,
}

impl ReportBoard {
    fn put(&self, role: &str, report: RoleReport) {
        // Nothing that holds it can panic.
        let Ok(mut told) = self.0.lock() else { return };
        match report {
            RoleReport::Failure(failure) => told.failures.push(failure),
            RoleReport::Histograms(histograms) => {
                told.filled.insert(role.to_owned(), histograms);
            }
        }
    }

    fn note_cut(&self, role: &str, unit: UnitId) {
        if let Ok(mut told) = self.0.lock() {
            told.cut.push((role.to_owned(), unit));
        }
    }

    fn note_ended(&self, role: &str, unit: UnitId) {
        if let Ok(mut told) = self.0.lock() {
            told.ended.push((role.to_owned(), unit));
        }
    }

    /// The units whose streams of the event builder or of a data link have ended by themselves, by a role
    /// at one end; they are forgotten here.
    pub fn take_ended(&self) -> Vec<(String, UnitId)> {
        let told = self.0.lock();
        told.map_or_else(|_| Vec::new(), |mut told| std::mem::take(&mut told.ended))
    }

    /// The units whose streams to a role were cut, by that role; they are forgotten here.
    pub fn take_cut(&self) -> Vec<(String, UnitId)> {
        let told = self.0.lock();
        told.map_or_else(|_| Vec::new(), |mut told| std::mem::take(&mut told.cut))
    }

    /// The events that filters have failed on, which are forgotten here.
    pub fn take_failures(&self) -> Vec<FilterFailure> {
        let told = self.0.lock();
        told.map_or_else(
            |_| Vec::new(),
            |mut told| std::mem::take(&mut told.failures),
        )
    }

    /// The histograms that filters have filled so far, by each of them.
    pub fn filled(&self) -> Vec<Vec<Histogram>> {
        let told = self.0.lock();
        told.map_or_else(
            |_| Vec::new(),
            |told| told.filled.values().cloned().collect(),
        )
    }
}

/// Starts the threads of all workers, each by `spawn`. Where one is not to be had, those that run have
/// ended when this returns: their roles hold files and sockets.
///
/// # Errors
/// What the system says of that one.
pub fn start_workers(
    workers: Vec<Worker>,
    phase: &PhaseCell,
    mut spawn: impl FnMut(Worker) -> io::Result<JoinHandle<WorkerResult>>,
) -> io::Result<Vec<JoinHandle<WorkerResult>>> {
    let mut running = Vec::with_capacity(workers.len());
    for worker in workers {
        let bell = worker.waiter.doorbell().clone();
        match spawn(worker) {
            Ok(thread) => running.push((bell, thread)),
            Err(error) => {
                phase.advance(Phase::Aborting);
                running.iter().for_each(|(bell, _)| bell.ring());
                // A panic of a worker ends the program through the panic hook.
                running
                    .into_iter()
                    .for_each(|(_, thread)| drop(thread.join()));
                return Err(error);
            }
        }
    }
    Ok(running.into_iter().map(|(_, thread)| thread).collect())
}

/// What a worker leaves behind.
pub struct WorkerResult {
    /// Name of its thread.
    pub name: String,
    /// Its roles, to be finished by the run's driver.
    pub roles: Vec<Box<dyn Role>>,
    /// How it spent its time.
    pub waits: WaitCounts,
    /// Why it could not be pinned, if it was to be.
    pub pin_error: Option<String>,
}

/// Polls these of the roles; returns their work.
#[inline]
fn poll_each<'a>(
    roles: &mut [Box<dyn Role>],
    which: impl Iterator<Item = &'a usize>,
    clock: &RunClock,
    phase: Phase,
) -> usize {
    which.map(|at| roles[*at].poll(clock.now(), phase)).sum()
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(self, clock: RunClock, phase: PhaseCell) -> io::Result<JoinHandle<WorkerResult>> {
        let name = self.name.clone();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || self.run(&clock, &phase))
    }

    fn run(self, clock: &RunClock, phase: &PhaseCell) -> WorkerResult {
        let Self {
            name,
            core,
            mut waiter,
            mut roles,
            board,
            commands,
        } = self;
        let pin = core.map(pin_current_thread).transpose();
        let urgent: Vec<usize> = (0..roles.len())
            .filter(|at| roles[*at].is_urgent())
            .collect();
        let mut cycles = 0_u64;
        loop {
            let now_phase = phase.get();
            if now_phase >= Phase::Ending {
                break;
            }
            let mut work = 0;
            while let Some((id, command)) = commands.take() {
                if let Some(role) = roles.iter_mut().find(|role| role.id() == id) {
                    role.handle_command(clock.now(), command);
                }
                work += 1;
            }
            for at in 0..roles.len() {
                let (role, now) = (&mut roles[at], clock.now());
                let of_role = role.poll(now, now_phase);
                if let Some(report) = role.poll_report(now) {
                    board.put(role.id(), report);
                }
                work += of_role;
                let between = urgent.iter().filter(|next| of_role > 0 && **next != at);
                work += poll_each(&mut roles, between, clock, now_phase);
            }
            cycles += 1;
            if work == 0 || cycles.is_multiple_of(CYCLES_PER_LOOK) {
                for role in &mut roles {
                    while let Some(unit) = role.poll_silent() {
                        board.note_cut(role.id(), unit);
                    }
                    while let Some(unit) = role.poll_cut(clock.now()) {
                        board.note_ended(role.id(), unit);
                    }
                }
            }
            waiter.after(work);
        }
        WorkerResult {
            name,
            roles,
            waits: waiter.counts(),
            pin_error: pin.err().map(|error| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use livetime_shm::WaitStrategy;

    use super::*;

    fn worker(name: &str) -> Worker {
        Worker {
            name: name.to_owned(),
            core: None,
            waiter: Waiter::new(WaitStrategy::Block),
            roles: Vec::new(),
            board: ReportBoard::default(),
            commands: CommandBox::default(),
        }
    }

    #[test]
    fn where_a_thread_is_not_to_be_had_those_that_run_end() {
        let phase = PhaseCell::default();
        let ended = Arc::new(AtomicBool::new(false));
        let mut asked = Vec::new();
        let spawn = |worker: Worker| {
            asked.push(worker.name.clone());
            if worker.name == "none" {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let (phase, ended) = (phase.clone(), Arc::clone(&ended));
            Ok(std::thread::spawn(move || {
                let result = worker.run(&RunClock::start(), &phase);
                ended.store(true, Ordering::Relaxed);
                result
            }))
        };
        let workers = ["first", "none", "last"].map(worker).into();
        let started = start_workers(workers, &phase, spawn);
        let error = started.err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::WouldBlock));
        assert_eq!(asked, ["first", "none"]);
        assert_eq!(phase.get(), Phase::Aborting);
        assert!(ended.load(Ordering::Relaxed), "it was waited for");
    }
}
