//! One function generator: queue, state machine, signals.
//!
//! ```text
//!            arm              acknowledged           start tag            end of data
//! disabled ------> arming -------------------> armed ----------> running ------------> disabled
//!                    |  abort or time-out        |  abort           |  abort
//!                    +--------> aborting <-------+------------------+
//! ```
//!
//! Signals of a good cycle, in order: enabled, armed; at the start not armed, running, started;
//! refill as needed; not running, stopped, not enabled. Times are those of the hardware, not of
//! the poll. When a waveform runs dry although the queue here has more (the driver was too late)
//! or the hardware was starved, the stop says so and what is left is discarded: it must not be
//! played from its middle at the next start. An abort that the hardware does not acknowledge ends
//! by itself after [`GeneratorConfig::abort_timeout_ns`].

use std::collections::VecDeque;

use livetime_wire::{CoefficientSet, TaiNs};

use super::firmware::{Firmware, FirmwareConfig, FirmwareFault, FirmwareReport};
use super::segment::Segment;
use super::validation::{
    SequenceStart, SetProblem, SetRule, ValidationMode, ValidationRules, validate_sets,
};

/// Signals that wait to be fetched at most; changes of state are refused beyond.
const SIGNALS_MAX: usize = 32;
/// The most signals of one change of state.
const SIGNALS_OF_CHANGE: usize = 6;

/// Sizes, times and rules of a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratorConfig {
    /// Sets that fit the queue in front of the firmware's.
    pub queue: usize,
    /// Clients are asked for more when fewer sets are queued in all; twice the firmware's places.
    pub refill_below: usize,
    /// Bits of the output that are driven, 1..=32, from the top.
    pub output_bits: u8,
    /// Longest wait for the acknowledgement of arming, ns.
    pub arm_timeout_ns: u64,
    /// Longest wait for the acknowledgement of an abort, ns.
    pub abort_timeout_ns: u64,
    /// Checks of what is appended.
    pub rules: ValidationRules,
    /// The emulated channel.
    pub firmware: FirmwareConfig,
}

impl Default for GeneratorConfig {
    /// 16 384 sets, refill below 242, all bits, 2 s to arm, 1 s to abort.
    fn default() -> Self {
        Self {
            queue: 16_384,
            refill_below: 242,
            output_bits: 32,
            arm_timeout_ns: 2_000_000_000,
            abort_timeout_ns: 1_000_000_000,
            rules: ValidationRules::default(),
            firmware: FirmwareConfig::default(),
        }
    }
}

/// What a generator is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GeneratorState {
    /// Nothing; the only state for flush and start tag.
    Disabled,
    /// Waiting for the hardware to acknowledge arming.
    Arming,
    /// Waiting for the start tag.
    Armed,
    /// Putting out a waveform.
    Running,
    /// Waiting for the hardware to acknowledge an abort.
    Aborting,
}

impl GeneratorState {
    /// The word in texts and JSON documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Arming => "arming",
            Self::Armed => "armed",
            Self::Running => "running",
            Self::Aborting => "aborting",
        }
    }
}

/// What a generator tells its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratorSignal {
    /// It is in use, or free again.
    Enabled(bool),
    /// It waits for its start tag, or no longer.
    Armed(bool),
    /// It puts out a waveform, or no longer.
    Running(bool),
    /// The waveform has begun.
    Started {
        /// Start of the first segment.
        time: TaiNs,
    },
    /// Few sets are queued: append more, or the waveform ends.
    Refill {
        /// When the waveform ends without more data.
        dry_at: TaiNs,
    },
    /// The waveform has ended.
    Stopped {
        /// When.
        time: TaiNs,
        /// By an abort, or by arming that was not acknowledged.
        abort: bool,
        /// The hardware was not fed in time by its controller.
        hardware_underflow: bool,
        /// The controller was not fed in time from the queue here.
        controller_underflow: bool,
    },
}

/// Why a generator does not do what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GeneratorError {
    /// Not in this state.
    #[error("function generator is {}, it must be {}", found.key(), needed.key())]
    State {
        /// Present state.
        found: GeneratorState,
        /// State that is needed.
        needed: GeneratorState,
    },
    /// Nothing is queued.
    #[error("function generator has no data; append coefficient sets before arming")]
    Empty,
    /// The queue cannot take so many sets.
    #[error("{sets} sets do not fit, the queue has room for {room}")]
    Full {
        /// Sets to be appended.
        sets: usize,
        /// Places free.
        room: usize,
    },
    /// A set breaks a rule.
    #[error(transparent)]
    Set(#[from] SetProblem),
    /// Signals were not fetched for many changes of state.
    #[error("{waiting} signals wait to be fetched; poll the generator first")]
    Signals {
        /// Signals waiting.
        waiting: usize,
    },
}

/// What an append has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Whether more data are wanted.
    pub low_fill: bool,
    /// Findings of the checks in mode warn.
    pub warnings: usize,
    /// The first of them.
    pub first_warning: Option<SetProblem>,
}

/// A function generator with its emulated hardware.
#[derive(Debug, Clone)]
pub struct FunctionGenerator {
    config: GeneratorConfig,
    state: GeneratorState,
    /// When arming or aborting began.
    since: TaiNs,
    start_tag: u32,
    queue: VecDeque<CoefficientSet>,
    queued_ns: u64,
    /// End value of the set appended last.
    end_value: Option<i64>,
    firmware: Firmware,
    refill_signalled: bool,
    started: bool,
    discarded: u64,
    signals: VecDeque<GeneratorSignal>,
}

impl FunctionGenerator {
    /// A disabled generator that holds the output 0. Allocates all it ever will.
    ///
    /// # Panics
    /// If a queue has no place, `refill_at` is not below the firmware's queue, or `output_bits` is
    /// not 1 to 32.
    pub fn new(config: GeneratorConfig) -> Self {
        assert!(
            config.queue > 0 && config.firmware.queue > 0,
            "queues hold something"
        );
        assert!(
            config.firmware.refill_at < config.firmware.queue,
            "a full queue does not ask for more"
        );
        assert!((1..=32).contains(&config.output_bits), "outputs have bits");
        Self {
            config,
            state: GeneratorState::Disabled,
            since: TaiNs(0),
            start_tag: 0,
            queue: VecDeque::with_capacity(config.queue),
            queued_ns: 0,
            end_value: None,
            firmware: Firmware::new(config.firmware),
            refill_signalled: false,
            started: false,
            discarded: 0,
            signals: VecDeque::with_capacity(SIGNALS_MAX + SIGNALS_OF_CHANGE),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &GeneratorConfig {
        &self.config
    }

    /// What it is doing, as of the last call with a time.
    pub fn state(&self) -> GeneratorState {
        self.state
    }

    /// The emulated hardware.
    pub fn firmware(&self) -> &Firmware {
        &self.firmware
    }

    /// Breaks or repairs the emulated hardware.
    pub fn set_fault(&mut self, fault: FirmwareFault) {
        self.firmware.set_fault(fault);
    }

    /// Sets queued, the firmware's included, the one in progress not.
    pub fn queued(&self) -> usize {
        self.queue.len() + self.firmware.queued()
    }

    /// Length of what is queued, ns.
    pub fn fill_ns(&self) -> u64 {
        self.queued_ns + self.firmware.queued_ns()
    }

    /// Sets whose execution has begun since the last start.
    pub fn executed(&self) -> u64 {
        self.firmware.executed()
    }

    /// Sets thrown away by aborts, flushes and underflows.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// The tag that starts it.
    pub fn start_tag(&self) -> u32 {
        self.start_tag
    }

    /// Sets that still fit.
    pub fn room(&self) -> usize {
        self.config.queue - self.queue.len()
    }

    /// Output at a time not before the last call with a time: the top `output_bits` bits.
    pub fn output(&self, at: TaiNs) -> i32 {
        let unused = u32::from(32 - self.config.output_bits);
        self.firmware.output(at) >> unused << unused
    }

    /// Checks sets as [`FunctionGenerator::append`] would, and changes nothing.
    ///
    /// # Errors
    /// [`GeneratorError::State`], [`GeneratorError::Full`] or [`GeneratorError::Set`].
    pub fn check(&self, now: TaiNs, sets: &[CoefficientSet]) -> Result<Appended, GeneratorError> {
        if self.state == GeneratorState::Aborting {
            // They would be thrown away with the rest when it has stopped.
            self.need(GeneratorState::Disabled)?;
        }
        let room = self.room();
        if sets.len() > room {
            return Err(GeneratorError::Full {
                sets: sets.len(),
                room,
            });
        }
        let first = self.queued() == 0 && self.state != GeneratorState::Running;
        let start = SequenceStart {
            end_before: self.end_value.filter(|_| !first),
            held: first.then(|| self.firmware.output(now)),
            queued_ns: self.fill_ns(),
        };
        let rules = &self.config.rules;
        let (mut refused, mut warnings, mut first_warning) = (None, 0, None);
        validate_sets(sets.iter(), &start, rules, |problem| {
            let range = matches!(problem.rule, SetRule::Range { .. });
            if range || rules.mode == ValidationMode::Reject {
                refused = Some(problem);
                return false;
            }
            warnings += 1;
            first_warning.get_or_insert(problem);
            true
        });
        match refused {
            Some(problem) => Err(problem.into()),
            None => Ok(Appended {
                low_fill: self.queued() + sets.len() < self.config.refill_below,
                warnings,
                first_warning,
            }),
        }
    }

    /// Appends sets to the waveform: all, or none.
    ///
    /// # Errors
    /// [`GeneratorError::State`] while it is aborting, [`GeneratorError::Full`] if they do not fit,
    /// [`GeneratorError::Set`] naming the first set that breaks a rule.
    pub fn append(
        &mut self,
        now: TaiNs,
        sets: &[CoefficientSet],
    ) -> Result<Appended, GeneratorError> {
        self.end_abort(now);
        let appended = self.check(now, sets)?;
        self.append_checked(sets);
        Ok(appended)
    }

    /// Lets an abort end that is over by now, also where nobody has polled since.
    pub(super) fn end_abort(&mut self, now: TaiNs) {
        if self.state == GeneratorState::Aborting {
            self.advance(now);
        }
    }

    /// Appends what [`FunctionGenerator::check`] has accepted.
    pub(crate) fn append_checked(&mut self, sets: &[CoefficientSet]) {
        let length_ns = |set| Segment::new(set).duration().0;
        self.queued_ns += sets.iter().map(length_ns).sum::<u64>();
        self.queue.extend(sets);
        if let Some(last) = sets.last() {
            self.end_value = Some(Segment::new(last).end_value());
        }
        if self.queued() >= self.config.refill_below {
            self.refill_signalled = false;
        }
    }

    /// Sets the tag that starts it.
    ///
    /// # Errors
    /// [`GeneratorError::State`] unless it is disabled.
    pub fn set_start_tag(&mut self, tag: u32) -> Result<(), GeneratorError> {
        self.need(GeneratorState::Disabled)?;
        self.start_tag = tag;
        Ok(())
    }

    /// Throws the queue away.
    ///
    /// # Errors
    /// [`GeneratorError::State`] unless it is disabled.
    pub fn flush(&mut self) -> Result<(), GeneratorError> {
        self.need(GeneratorState::Disabled)?;
        self.discard();
        Ok(())
    }

    /// Loads the hardware and arms it; armed is signalled when the hardware acknowledges.
    ///
    /// # Errors
    /// [`GeneratorError::State`] unless it is disabled, [`GeneratorError::Empty`] without data,
    /// [`GeneratorError::Signals`] if nobody fetches signals.
    pub fn arm(&mut self, now: TaiNs) -> Result<(), GeneratorError> {
        self.advance(now);
        self.need(GeneratorState::Disabled)?;
        if self.queued() == 0 {
            return Err(GeneratorError::Empty);
        }
        self.need_room_for_signals()?;
        self.top_up();
        self.state = GeneratorState::Arming;
        self.since = now;
        self.started = false;
        Ok(())
    }

    /// Whether the signals of arming have room.
    pub(super) fn need_room_for_signals(&self) -> Result<(), GeneratorError> {
        match self.signals.len() {
            waiting if waiting > SIGNALS_MAX - SIGNALS_OF_CHANGE => {
                Err(GeneratorError::Signals { waiting })
            }
            _ => Ok(()),
        }
    }

    /// A start tag appears on the bus: starts the generator if it is armed and the tag is its own.
    /// Returns whether it did.
    pub fn handle_start_tag(&mut self, at: TaiNs, tag: u32) -> bool {
        self.advance(at);
        if self.state != GeneratorState::Armed || tag != self.start_tag {
            return false;
        }
        self.state = GeneratorState::Running;
        self.started = true;
        self.firmware.start(at);
        self.signals.extend([
            GeneratorSignal::Armed(false),
            GeneratorSignal::Running(true),
            GeneratorSignal::Started { time: at },
        ]);
        true
    }

    /// Stops whatever it does and throws the queue away; stopped is signalled when the hardware
    /// acknowledges, or after the time-out. Does nothing if it is disabled or already aborting.
    pub fn abort(&mut self, now: TaiNs) {
        self.advance(now);
        if !matches!(
            self.state,
            GeneratorState::Disabled | GeneratorState::Aborting
        ) {
            self.state = GeneratorState::Aborting;
            self.since = now;
        }
    }

    /// The next signal up to `now`. Call until `None`.
    pub fn poll_output(&mut self, now: TaiNs) -> Option<GeneratorSignal> {
        if self.signals.is_empty() {
            self.advance(now);
        }
        self.signals.pop_front()
    }

    /// How many signals wait to be fetched.
    pub(super) fn waiting(&self) -> usize {
        self.signals.len()
    }

    /// One of the signals that wait, the oldest at 0.
    pub(super) fn waiting_signal(&self, index: usize) -> Option<GeneratorSignal> {
        self.signals.get(index).copied()
    }

    /// Forgets the signals that wait, but not that a running waveform wants more data.
    pub(super) fn forget_signals(&mut self) {
        let is_running = self.state == GeneratorState::Running;
        self.signals
            .retain(|signal| is_running && matches!(signal, GeneratorSignal::Refill { .. }));
    }

    /// When to poll again: the end of the present segment, or of a wait.
    pub fn poll_timeout(&self) -> Option<TaiNs> {
        if !self.signals.is_empty() {
            return Some(self.since);
        }
        match self.state {
            GeneratorState::Disabled | GeneratorState::Armed => None,
            GeneratorState::Arming | GeneratorState::Aborting => Some(self.wait_end().0),
            GeneratorState::Running => self.firmware.segment_end(),
        }
    }

    /// When the waveform ends without more data, if it is running.
    pub fn dry_at(&self) -> Option<TaiNs> {
        let end = self.firmware.segment_end()?;
        Some(TaiNs(end.0.saturating_add(self.fill_ns())))
    }

    /// End of the present wait, and whether it is a time-out.
    fn wait_end(&self) -> (TaiNs, bool) {
        let firmware = self.firmware.config();
        let (answer, timeout) = match self.state {
            GeneratorState::Arming => (firmware.arm_ns, self.config.arm_timeout_ns),
            _ => (firmware.abort_ns, self.config.abort_timeout_ns),
        };
        let silent = self.firmware.is_silent() || answer > timeout;
        let wait = if silent { timeout } else { answer };
        (TaiNs(self.since.0.saturating_add(wait)), silent)
    }

    fn need(&self, needed: GeneratorState) -> Result<(), GeneratorError> {
        if self.state == needed {
            Ok(())
        } else {
            Err(GeneratorError::State {
                found: self.state,
                needed,
            })
        }
    }

    /// Lets everything happen that happens up to `now`.
    pub(super) fn advance(&mut self, now: TaiNs) {
        match self.state {
            GeneratorState::Disabled | GeneratorState::Armed => {}
            GeneratorState::Arming => {
                let (at, timed_out) = self.wait_end();
                if now < at {
                    return;
                }
                if timed_out {
                    self.signals.push_back(GeneratorSignal::Enabled(true));
                    self.finish(at, true, false, false);
                } else {
                    self.state = GeneratorState::Armed;
                    self.signals
                        .extend([GeneratorSignal::Enabled(true), GeneratorSignal::Armed(true)]);
                }
            }
            GeneratorState::Running => self.run(now),
            GeneratorState::Aborting => {
                let (at, _) = self.wait_end();
                if now >= at {
                    self.firmware.stop(at);
                    self.finish(at, true, false, false);
                }
            }
        }
    }

    fn run(&mut self, now: TaiNs) {
        let mut refill = false;
        while let Some(report) = self.firmware.poll(now) {
            match report {
                FirmwareReport::Refill { .. } => refill = true,
                FirmwareReport::Stopped { time, starved } => {
                    let dry = !self.queue.is_empty();
                    self.finish(time, false, starved, dry && !starved);
                    return;
                }
            }
        }
        if refill {
            self.top_up();
        }
        let low = self.queued() < self.config.refill_below;
        if low
            && !self.refill_signalled
            && let Some(dry_at) = self.dry_at()
        {
            self.refill_signalled = true;
            match self.signals.back_mut() {
                // Nobody has fetched the one before: it says the newer time, and there is one at most.
                Some(GeneratorSignal::Refill { dry_at: waiting }) => *waiting = dry_at,
                _ => self.signals.push_back(GeneratorSignal::Refill { dry_at }),
            }
        }
    }

    /// Moves sets into the firmware's queue.
    fn top_up(&mut self) {
        for _ in 0..self.firmware.room() {
            let Some(set) = self.queue.pop_front() else {
                return;
            };
            self.queued_ns -= Segment::new(&set).duration().0;
            self.firmware.push(set);
        }
    }

    fn finish(&mut self, time: TaiNs, abort: bool, hardware: bool, controller: bool) {
        self.signals.push_back(if self.started {
            GeneratorSignal::Running(false)
        } else {
            GeneratorSignal::Armed(false)
        });
        self.signals.extend([
            GeneratorSignal::Stopped {
                time,
                abort,
                hardware_underflow: hardware,
                controller_underflow: controller,
            },
            GeneratorSignal::Enabled(false),
        ]);
        self.state = GeneratorState::Disabled;
        self.started = false;
        self.discard();
    }

    fn discard(&mut self) {
        self.discarded += self.queued() as u64;
        self.queue.clear();
        self.queued_ns = 0;
        self.firmware.clear();
        self.end_value = None;
        self.refill_signalled = false;
    }
}
