//! Control's side of the core's worker: commands in, replies out, messages in.
//!
//! A [`CoreHandle`] is used by one thread at a time; an [`Injector`] by anybody. Waiting for the
//! worker is bounded: one that does not answer within [`PATIENCE`] is reported. The worker itself
//! is [`crate::core_worker`].

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use livetime_shm::{
    Doorbell, OverflowRule, RecordReader, RecordRingConfig, RecordRingError, RecordWriter,
    pin_current_thread, request_fifo,
};
use livetime_timing::{ActionUnitConfig, EmulatedReceiver};
use livetime_wire::{Problem, TaiNs, TimingMessage, TimingRecord};

use crate::core_worker::{
    CoreCommand, CoreEnds, CoreReply, CoreSnapshot, CoreWait, CoreWorker, FLIGHT_RECORDS,
};
use crate::delivery::{Delivery, DeliveryConfig};
use crate::generators::{StartTag, TAGS_MAX};
use crate::tai_clock::TaiClock;
use crate::wake_thread::WakeThread;

/// Commands and replies that can be under way.
const COMMANDS: usize = 64;
/// Messages that can wait for the worker: the bound of the inlet.
pub const INLET_MESSAGES: usize = 1 << 16;
/// Longest wait for the worker.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Longest single sleep while waiting for it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How the core is to be run.
#[derive(Debug, Clone, Default)]
pub struct CoreConfig {
    /// Sizes and times of the action unit.
    pub unit: ActionUnitConfig,
    /// Inputs of the emulated receiver.
    pub inputs: u16,
    /// Bounds of the delivery.
    pub delivery: DeliveryConfig,
    /// How it waits.
    pub wait: CoreWait,
    /// The core of the machine to run on.
    pub cpu: Option<usize>,
    /// Real-time priority to ask for, 1 to 99; a refusal is reported and no error.
    pub fifo_priority: Option<u8>,
}

/// Why the core could not be started or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The configuration has problems.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<Problem>),
    /// The flight recorder has no memory.
    #[error(transparent)]
    Flight(#[from] RecordRingError),
    /// No thread could be started.
    #[error("no thread for the timing core: {}", livetime_shm::with_limit(.0))]
    Thread(#[from] std::io::Error),
    /// The worker does not answer.
    #[error("the timing core does not answer for {} s", PATIENCE.as_secs())]
    Stuck,
    /// The daemon is ending: its worker takes no commands any more.
    #[error("the timing core has stopped; the daemon is ending")]
    Stopped,
}

/// Control's end of the worker.
#[derive(Debug)]
pub struct CoreHandle {
    commands: rtrb::Producer<(u64, CoreCommand)>,
    inlet: Arc<Mutex<Inlet>>,
    replies: rtrb::Consumer<CoreReply>,
    core_bell: Doorbell,
    own_bell: Doorbell,
    flight: std::os::fd::OwnedFd,
    snapshot: Option<Box<CoreSnapshot>>,
    thread: Option<JoinHandle<()>>,
    /// Nobody takes commands any more: whoever still asks is refused and does not wait.
    stopped: bool,
    inputs: u16,
    /// What the machine refused: real-time priority, pinning.
    pub refusals: Arc<Mutex<Vec<String>>>,
}

/// The giving end of the core's inlet, and how many messages went in.
#[derive(Debug)]
struct Inlet {
    messages: rtrb::Producer<TimingMessage>,
    given: u64,
}

/// Puts messages into the core's inlet. Clones share the inlet.
#[derive(Debug, Clone)]
pub struct Injector {
    // The worker has the other end; this lock is among injectors only.
    inlet: Arc<Mutex<Inlet>>,
    bell: Doorbell,
    clock: TaiClock,
}

impl Injector {
    /// Puts in as many of the messages as there is room for; returns how many.
    pub fn inject(&self, messages: &[TimingMessage]) -> usize {
        let mut inlet = self.inlet.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        while count < messages.len() && inlet.messages.push(messages[count]).is_ok() {
            count += 1;
        }
        inlet.given += count as u64;
        drop(inlet);
        self.bell.ring();
        count
    }

    /// The core's clock.
    pub fn clock(&self) -> &TaiClock {
        &self.clock
    }

    /// Moves a virtual clock and tells the core.
    pub fn advance_to(&self, time: TaiNs) -> Option<TaiNs> {
        let now = self.clock.advance_to(time);
        self.bell.ring();
        now
    }
}

/// The parts of a core that is not running yet.
#[derive(Debug)]
pub struct Core {
    /// The worker.
    pub worker: CoreWorker,
    /// Control's end.
    pub handle: CoreHandle,
    /// For those who inject messages.
    pub injector: Injector,
    /// Start tags for the generators.
    pub tags: rtrb::Consumer<StartTag>,
    /// Rung with them.
    pub tag_bell: Doorbell,
}

/// The ends of a running core.
#[derive(Debug)]
pub struct RunningCore {
    /// Control's end.
    pub handle: CoreHandle,
    /// For those who inject messages.
    pub injector: Injector,
    /// Start tags for the generators.
    pub tags: rtrb::Consumer<StartTag>,
    /// Rung with them.
    pub tag_bell: Doorbell,
}

impl Core {
    /// Makes a core; nothing runs yet.
    ///
    /// # Errors
    /// [`CoreError::Config`] or [`CoreError::Flight`].
    pub fn new(config: &CoreConfig, clock: TaiClock) -> Result<Self, CoreError> {
        let receiver =
            EmulatedReceiver::new(config.unit, config.inputs.into()).map_err(CoreError::Config)?;
        let flight = RecordWriter::create(&RecordRingConfig {
            slots: FLIGHT_RECORDS,
            rule: OverflowRule::DropOldest,
            epoch: 0,
        })?;
        let flight_fd = flight.fd().try_clone_to_owned()?;
        let (commands, commands_end) = rtrb::RingBuffer::new(COMMANDS);
        let (replies_end, replies) = rtrb::RingBuffer::new(COMMANDS);
        let (inlet, messages) = rtrb::RingBuffer::new(INLET_MESSAGES);
        let (tags_end, tags) = rtrb::RingBuffer::new(TAGS_MAX);
        let tag_bell = Doorbell::in_process();
        let (core_bell, control_bell) = (Doorbell::in_process(), Doorbell::in_process());
        let ends = CoreEnds {
            commands: commands_end,
            replies: replies_end,
            tags: tags_end,
            tag_bell: tag_bell.clone(),
            messages,
            own_bell: core_bell.clone(),
            control_bell: control_bell.clone(),
        };
        let delivery = Delivery::new(config.delivery);
        let worker = CoreWorker::new(receiver, delivery, clock.clone(), config.wait, ends, flight);
        let inlet = Arc::new(Mutex::new(Inlet {
            messages: inlet,
            given: 0,
        }));
        let injector = Injector {
            inlet: Arc::clone(&inlet),
            bell: core_bell.clone(),
            clock,
        };
        let handle = CoreHandle {
            commands,
            inlet,
            replies,
            core_bell,
            own_bell: control_bell,
            flight: flight_fd,
            snapshot: None,
            thread: None,
            stopped: false,
            inputs: config.inputs,
            refusals: Arc::default(),
        };
        Ok(Self {
            worker,
            handle,
            injector,
            tags,
            tag_bell,
        })
    }

    /// Starts the worker in a thread of its own.
    ///
    /// # Errors
    /// [`CoreError::Thread`].
    pub fn start(self, config: &CoreConfig) -> Result<RunningCore, CoreError> {
        let Self {
            mut worker,
            mut handle,
            injector,
            tags,
            tag_bell,
        } = self;
        let refusals = Arc::clone(&handle.refusals);
        let (cpu, priority) = (config.cpu, config.fifo_priority);
        worker.set_wake_thread(WakeThread::start(cpu, priority)?);
        let thread = std::thread::Builder::new()
            .name("timing-core".to_owned())
            .spawn(move || {
                let mut refused = Vec::new();
                if let Some(Err(error)) = cpu.map(pin_current_thread) {
                    refused.push(error.to_string());
                }
                if let Some(Err(error)) = priority.map(request_fifo) {
                    refused.push(error.to_string());
                }
                refusals
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .append(&mut refused);
                worker.run();
            })?;
        handle.thread = Some(thread);
        Ok(RunningCore {
            handle,
            injector,
            tags,
            tag_bell,
        })
    }
}

impl CoreHandle {
    /// Inputs of the receiver.
    pub fn inputs(&self) -> u16 {
        self.inputs
    }

    /// Sends a command; waits for room.
    ///
    /// # Errors
    /// [`CoreError::Stuck`], or [`CoreError::Stopped`] at once.
    pub fn send(&mut self, command: CoreCommand) -> Result<(), CoreError> {
        if self.stopped {
            return Err(CoreError::Stopped);
        }
        let start = Instant::now();
        let after = self
            .inlet
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .given;
        let mut command = (after, command);
        loop {
            let ticket = self.own_bell.ticket();
            self.collect();
            match self.commands.push(command) {
                Ok(()) => {
                    self.core_bell.ring();
                    return Ok(());
                }
                Err(rtrb::PushError::Full(back)) => command = back,
            }
            if start.elapsed() > PATIENCE {
                return Err(CoreError::Stuck);
            }
            self.own_bell.wait(ticket, LOOK_AGAIN);
        }
    }

    /// Asks for figures and waits for them; commands sent before are done then.
    ///
    /// # Errors
    /// [`CoreError::Stuck`], or [`CoreError::Stopped`] at once.
    pub fn snapshot(&mut self, ask: CoreSnapshot) -> Result<Box<CoreSnapshot>, CoreError> {
        self.snapshot = None;
        self.send(CoreCommand::Snapshot(Box::new(ask)))?;
        let start = Instant::now();
        loop {
            let ticket = self.own_bell.ticket();
            self.collect();
            if let Some(snapshot) = self.snapshot.take() {
                return Ok(snapshot);
            }
            if start.elapsed() > PATIENCE {
                return Err(CoreError::Stuck);
            }
            self.own_bell.wait(ticket, LOOK_AGAIN);
        }
    }

    /// Frees what the worker has sent back.
    pub fn collect(&mut self) {
        while let Ok(reply) = self.replies.pop() {
            if let CoreReply::Snapshot(snapshot) = reply {
                self.snapshot = Some(snapshot);
            }
        }
    }

    /// The last actions, oldest first: what the flight recorder holds.
    ///
    /// # Errors
    /// [`CoreError::Flight`].
    pub fn flight(&self) -> Result<Vec<TimingRecord>, CoreError> {
        let mut reader = RecordReader::open(self.flight.try_clone()?)?;
        let mut records = Vec::new();
        // The writer may be at work: no more than it holds is read.
        for _ in 0..2 * FLIGHT_RECORDS {
            match reader.poll() {
                livetime_shm::Found::Record(words) => {
                    records.extend(TimingRecord::new_checked(&words));
                }
                livetime_shm::Found::Lost { .. } => {}
                livetime_shm::Found::Nothing | livetime_shm::Found::Closed(_) => break,
            }
        }
        Ok(records)
    }

    /// Whether the worker takes no commands any more.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Stops the worker and waits for its end.
    ///
    /// # Errors
    /// [`CoreError::Stuck`].
    pub fn stop(&mut self) -> Result<(), CoreError> {
        if let Some(thread) = self.thread.take() {
            let sent = self.send(CoreCommand::Stop);
            self.stopped = true;
            sent?;
            // A panic of the worker was reported by the program's hook.
            let _ = thread.join();
        }
        self.collect();
        Ok(())
    }
}

impl Drop for CoreHandle {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_worker_that_has_stopped() {
        let config = CoreConfig::default();
        let core = Core::new(&config, TaiClock::standing_at(TaiNs(1))).unwrap();
        let mut running = core.start(&config).unwrap();
        running.handle.stop().unwrap();
        // More than the ring of commands holds, as many clients are cleared away after the end.
        for _ in 0..2 * COMMANDS {
            let sent = running.handle.send(CoreCommand::StopSchedules);
            assert!(matches!(sent, Err(CoreError::Stopped)), "{sent:?}");
        }
        running.handle.stop().unwrap();
    }
}
