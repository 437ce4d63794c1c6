//! A spill structure around a run: a gate for triggers, triggers at fixed times, ramps.
//!
//! The core of `[timing]` in a run. A schedule of timing messages is played again and again into
//! an emulated receiver; its actions open and close the trigger gate, ask for triggers, and start
//! the ramps of up to 64 function generators, each followed by a simulated magnet. Time is TAI where
//! the first turn is aligned to it; else it may be the run's, as [`TaiNs`] since its start, and the
//! run file says at which TAI that was. What is done with a closed gate is the driver's business,
//! and who makes the ramps' coefficient sets is [`crate::waveform`].
//!
//! All outputs are those of the scheduled times, whenever it is advanced; advancing it costs one
//! step per magnet and thirty-second of the magnets' time constant.

use std::collections::{BTreeMap, VecDeque};

use livetime_wire::timing_coefficient::{CoefficientBlockView, emit_block};
use livetime_wire::timing_read_back::ReadBack;
use livetime_wire::{CoefficientSet, DurationNs, EventId, Problem, TaiNs};

use crate::action_unit::{Action, ActionUnitConfig};
use crate::condition::ConditionSpec;
use crate::flag::{ActionFlag, FlagSet};
use crate::function_generator::segment::Segment;
use crate::function_generator::{GeneratorConfig, MasterFunctionGenerator, MasterOutput};
use crate::id_filter::IdFilter;
use crate::magnet::Magnet;
use crate::ownership::{Caller, ClientId, Role};
use crate::problem_code;
use crate::receiver::{EmulatedReceiver, TimingReceiver};
use crate::registry::{Change, Registry, RegistryConfig};
use crate::schedule::{Playback, Schedule, SchedulePlayer};
use crate::sink::{SinkId, SinkKind, SinkSpec, TAG_OFF, TAG_ON};

/// Scheduled triggers that wait to be fetched at most; more are counted as missed.
const TRIGGERS_MAX: usize = 1024;
/// Openings and closings of the gate that are kept, for what comes late.
pub const CHANGES_KEPT: usize = 1024;
/// Largest queue of a channel.
const QUEUE_MAX: u64 = 1 << 20;
/// The start tag of the ramps.
const START_TAG: u32 = 1;
/// Messages come so long before their time.
const LEAD: DurationNs = DurationNs::MILLISECOND;
/// Shortest turn, and the shortest for each of its messages.
const TURN_MIN: DurationNs = DurationNs(100_000);
const MESSAGE_MIN: DurationNs = DurationNs(10_000);
/// Longest grid for the first turn: so long may a run wait for it.
const ALIGN_MAX: DurationNs = DurationNs(3600 * DurationNs::SECOND.0);

/// A spill structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillConfig {
    /// One turn of the schedule.
    pub schedule: Schedule,
    /// From turn to turn; not shorter than the schedule.
    pub period: DurationNs,
    /// The first turn begins at the next multiple of this in TAI, more than 0 and at most an hour;
    /// none: at the start of the run. Until then nothing happens and a gate is closed.
    pub align: Option<DurationNs>,
    /// The message that opens the trigger gate, and the one that closes it; without, it is always
    /// open.
    pub gate: Option<(EventId, EventId)>,
    /// The message that asks for a trigger.
    pub trigger: Option<EventId>,
    /// The message that starts all ramps.
    pub ramp_start: Option<EventId>,
    /// The coefficient sets of each ramp, 0 to 64 of them.
    pub ramps: Vec<Vec<CoefficientSet>>,
    /// Time constant of the simulated magnets.
    pub magnet: DurationNs,
}

impl SpillConfig {
    /// When the first turn of a run begins that starts at `start`.
    pub fn first_turn(&self, start: TaiNs) -> TaiNs {
        let grid = self.align.map_or(1, |align| align.0.max(1));
        TaiNs(start.0.div_ceil(grid).saturating_mul(grid))
    }

    /// The shortest period: that of the schedule, and of as many messages as a front-end can handle
    /// beside its triggers.
    fn period_min(&self) -> DurationNs {
        let messages = self.schedule.entries().len() as u64;
        let of_messages = DurationNs(MESSAGE_MIN.0 * messages);
        self.schedule.length().max(of_messages).max(TURN_MIN)
    }

    /// Plays the schedule from `start` on, turn after turn.
    fn player(&self, start: TaiNs) -> SchedulePlayer {
        let playback = Playback {
            times: None,
            period: self.period,
            align: DurationNs(0),
            lead: LEAD,
        };
        SchedulePlayer::new(self.schedule.clone(), playback, start)
    }

    /// All problems of the values, under `path`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.period < self.period_min() {
            problems.push(Problem::new(
                problem_code::SPILL_PERIOD,
                format!("{path}.period"),
                self.period,
                format!("at least {}", self.period_min()),
                "a turn cannot begin before the one before it has been played, and takes at least 100 us \
                 and 10 us for each message; times of the schedule are in ns",
            ));
        }
        if let Some(align) = self.align
            && !(1..=ALIGN_MAX.0).contains(&align.0)
        {
            problems.push(Problem::new(
                problem_code::SPILL_ALIGN,
                format!("{path}.align"),
                align,
                format!("more than 0 and at most {ALIGN_MAX}"),
                "give the distance of the moments in TAI at which a first turn may begin",
            ));
        }
        problems.extend(self.gate_problem(path));
        problems.extend(self.ramp_problems(path));
        problems
    }

    /// Messages of the gate of which nobody can say what they make of it.
    fn gate_problem(&self, path: &str) -> Option<Problem> {
        let (open, close) = self.gate?;
        if open == close {
            return Some(Problem::new(
                problem_code::SPILL_MESSAGES,
                format!("{path}.gate_close"),
                close,
                "another message than the one that opens the gate",
                "give the gate two event IDs",
            ));
        }
        let entries = self.schedule.entries().iter();
        let of_gate: Vec<_> = entries
            .filter(|entry| entry.id == open || entry.id == close)
            .collect();
        let together = of_gate.windows(2).find(|pair| pair[0].at == pair[1].at);
        let found = match (together, of_gate.first(), of_gate.last()) {
            (Some(pair), ..) => {
                format!(
                    "{} and {} both at {} ns",
                    pair[0].id, pair[1].id, pair[0].at.0
                )
            }
            // Closed at the end of a turn and opened at the start of the next it stays open.
            (None, Some(first), Some(last))
                if first.id == close && last.id == open && self.is_next_turn(last.at, first.at) =>
            {
                format!(
                    "{open} at {} ns and {close} at {} ns of the next turn, at which it begins",
                    last.at.0, first.at.0
                )
            }
            _ => return None,
        };
        Some(Problem::new(
            problem_code::SPILL_MESSAGES,
            format!("{path}.schedule"),
            found,
            "messages of the gate at different times, those that open it before those that close it",
            "give one of them another time, or leave one out",
        ))
    }

    /// Whether a time of one turn and a time of the next are the same moment.
    fn is_next_turn(&self, late: DurationNs, early: DurationNs) -> bool {
        late.0 == early.0.saturating_add(self.period.0)
    }

    /// The shortest time from one start of the ramps to the next.
    fn shortest_cycle(&self) -> DurationNs {
        let entries = self.schedule.entries().iter();
        let starts: Vec<u64> = entries
            .filter(|entry| Some(entry.id) == self.ramp_start)
            .map(|entry| entry.at.0)
            .collect();
        let (Some(first), Some(last)) = (starts.first(), starts.last()) else {
            return self.period;
        };
        // The period may be too short, which is a problem of its own.
        let over_the_end = first.saturating_add(self.period.0).saturating_sub(*last);
        let inside = starts.windows(2).map(|pair| pair[1] - pair[0]);
        DurationNs(inside.fold(over_the_end, u64::min))
    }

    fn ramp_problems(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.ramps.len() > 64 {
            problems.push(Problem::new(
                problem_code::SPILL_RAMP,
                format!("{path}.ramp"),
                format!("{} ramps", self.ramps.len()),
                "at most 64 ramps",
                "a master drives up to 64 function generators",
            ));
        }
        let cycle = self.shortest_cycle();
        // Of ramps as long as each other one is named.
        let mut unfit: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for (index, sets) in self.ramps.iter().enumerate() {
            let length: u64 = sets.iter().map(|set| Segment::new(set).duration().0).sum();
            // Stopped, appended to and armed again before the next start.
            if sets.is_empty() || length.saturating_add(DurationNs::MILLISECOND.0) > cycle.0 {
                unfit.entry(length).or_insert((index, 0)).1 += 1;
            }
        }
        for (length, (first, count)) in unfit {
            let length = DurationNs(length);
            let found = match count {
                1 => format!("ramp {first} of {length}"),
                _ => format!("{count} ramps of {length}, the first of them ramp {first}"),
            };
            problems.push(Problem::new(
                problem_code::SPILL_RAMP,
                format!("{path}.ramp"),
                found,
                format!(
                    "more than 0 and 1 ms less than the {cycle} from one start to the next, in a turn \
                     or over its end"
                ),
                "each ramp is armed again before its next start; shorten it, or start it less often",
            ));
        }
        if !self.ramps.is_empty() && self.ramp_start.is_none() {
            problems.push(Problem::new(
                problem_code::SPILL_RAMP,
                format!("{path}.ramp_start"),
                "missing",
                "the event ID of a message of the schedule",
                "name the message that starts the ramps",
            ));
        }
        problems
    }
}

/// A trigger that the schedule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledTrigger {
    /// When it was asked for.
    pub at: TaiNs,
    /// Whether it can still be taken in the gate, or outside the gates, where it was asked for.
    pub gate: GateSince,
}

/// What has become of the gate since a trigger was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateSince {
    /// It has neither opened nor closed.
    Same,
    /// It has opened or closed: whoever takes the trigger now stamps it where it does not belong.
    Passed,
}

/// What a spill has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpillCounters {
    /// Times that the gate was opened.
    pub gates_opened: u64,
    /// Triggers asked for.
    pub triggers: u64,
    /// Of these, not fetched because too many waited.
    pub triggers_missed: u64,
    /// Ramps started, each generator counted.
    pub ramps_started: u64,
    /// Cycles in which every ramp came to its end.
    pub cycles: u64,
    /// Start messages that found ramps not armed, or ramps that ran dry.
    pub ramp_faults: u64,
    /// Actions of the gate, the triggers and the ramps that found no place in the receiver's queue.
    pub actions_dropped: u64,
}

/// The sinks of a spill structure.
#[derive(Debug, Clone, Copy)]
struct SpillSinks {
    close: SinkId,
    open: SinkId,
    triggers: SinkId,
    ramps: SinkId,
}

impl SpillSinks {
    /// Closing and opening the gate have a channel each, so that the close at the end of a turn and
    /// the open at the start of the next, in one nanosecond, conflict with nothing and both happen in
    /// it: the lower channel first, so that the gate stays open.
    fn add(registry: &mut Registry) -> Self {
        let mut add = |kind, name: &str| {
            registry
                .add_fixed_sink(SinkSpec::new(kind, name))
                .expect("four sinks of different names fit")
        };
        Self {
            close: add(SinkKind::Output, "gate_close"),
            open: add(SinkKind::EmbeddedCpu, "gate_open"),
            triggers: add(SinkKind::Software, "triggers"),
            ramps: add(SinkKind::BusTag, "ramps"),
        }
    }

    fn all(self) -> [SinkId; 4] {
        [self.close, self.open, self.triggers, self.ramps]
    }
}

/// Places of a queue with room for all that a schedule hands out within the lead time.
fn queue_places(config: &SpillConfig) -> usize {
    let turns = (LEAD.0 / config.period.0.max(1)).saturating_add(2);
    let messages = (config.schedule.entries().len() as u64).saturating_mul(turns);
    messages.clamp(ActionUnitConfig::HARDWARE.queue as u64, QUEUE_MAX) as usize
}

/// A spill structure at some time of the run.
#[derive(Debug)]
pub struct Spill {
    receiver: EmulatedReceiver,
    sinks: SpillSinks,
    master: Option<MasterFunctionGenerator>,
    /// All ramps as the block that is appended for each cycle.
    block: Vec<u8>,
    magnets: Vec<Magnet>,
    gate_open: bool,
    /// When the gate opened or closed, the last [`CHANGES_KEPT`] times.
    gate_changes: VecDeque<TaiNs>,
    triggers: VecDeque<TaiNs>,
    counters: SpillCounters,
    /// The counters when the run took no more triggers.
    ended: Option<SpillCounters>,
}

impl Spill {
    /// A spill structure of a run that starts at `start`, where its first turn begins unless it is
    /// aligned.
    ///
    /// # Errors
    /// All problems of the configuration.
    pub fn new(config: &SpillConfig, start: TaiNs) -> Result<Self, Vec<Problem>> {
        let problems = config.validate("timing");
        if !problems.is_empty() {
            return Err(problems);
        }
        let start = config.first_turn(start);
        // A message for the very start of the run has no time for a pipeline.
        let unit = ActionUnitConfig {
            latency_ns: 0,
            queue: queue_places(config),
            ..ActionUnitConfig::HARDWARE
        };
        let mut receiver = EmulatedReceiver::new(unit, 0)?;
        let mut registry = Registry::new(RegistryConfig::HARDWARE)?;
        let sinks = SpillSinks::add(&mut registry);
        let (open, close) = config.gate.unzip();
        let condition = |sink, id: Option<EventId>, tag| {
            let filter = IdFilter::leading(id?, 64).unwrap_or(IdFilter::ALL);
            // Two triggers of one moment are two triggers.
            let accept = FlagSet::USUAL.with(ActionFlag::Conflict);
            Some(Change::Add(ConditionSpec {
                accept,
                ..ConditionSpec::new(sink, filter, tag)
            }))
        };
        let changes: Vec<Change> = [
            condition(sinks.close, close, TAG_OFF),
            condition(sinks.open, open, TAG_ON),
            condition(sinks.triggers, config.trigger, 0),
            condition(sinks.ramps, config.ramp_start, START_TAG),
        ]
        .into_iter()
        .flatten()
        .collect();
        let caller = Caller {
            client: ClientId(0),
            role: Role::Admin,
        };
        let applied = registry.apply(&caller, &changes).map_err(|error| {
            vec![Problem::new(
                problem_code::SPILL_MESSAGES,
                "timing.gate_close",
                error,
                "different messages for opening and closing",
                "give the gate two event IDs",
            )]
        })?;
        receiver.install(applied.table);
        let replaced = receiver.play(config.player(start));
        debug_assert!(replaced.is_none(), "the first of its receiver");
        let mut spill = Self {
            receiver,
            sinks,
            master: None,
            block: Vec::new(),
            magnets: vec![Magnet::new(config.magnet, start); config.ramps.len()],
            gate_open: config.gate.is_none(),
            gate_changes: VecDeque::with_capacity(CHANGES_KEPT),
            triggers: VecDeque::with_capacity(TRIGGERS_MAX),
            counters: SpillCounters::default(),
            ended: None,
        };
        spill.prepare_ramps(config, start)?;
        Ok(spill)
    }

    fn prepare_ramps(&mut self, config: &SpillConfig, start: TaiNs) -> Result<(), Vec<Problem>> {
        let longest = config.ramps.iter().map(Vec::len).max().unwrap_or(0);
        if longest == 0 {
            return Ok(());
        }
        let channels: Vec<&[CoefficientSet]> = config.ramps.iter().map(Vec::as_slice).collect();
        let refused = |error: String| {
            vec![Problem::new(
                problem_code::SPILL_RAMP,
                "timing.ramp",
                error,
                "coefficient sets that a function generator takes",
                "see which set is refused; designed curves have no such sets",
            )]
        };
        self.block = emit_block(&channels).map_err(|error| refused(error.to_string()))?;
        let mut generator = GeneratorConfig {
            queue: longest,
            ..GeneratorConfig::default()
        };
        // Curves made of straight lines may have steps of their tolerance at the joints.
        generator.rules.joint = None;
        // Ramps may start with the run.
        generator.firmware.arm_ns = 0;
        let mut master = MasterFunctionGenerator::new(config.ramps.len(), generator);
        master
            .set_start_tag(START_TAG)
            .map_err(|error| refused(error.to_string()))?;
        self.master = Some(master);
        self.arm(start).map_err(refused)
    }

    /// Appends the ramps of the next cycle and arms them.
    fn arm(&mut self, now: TaiNs) -> Result<(), String> {
        let Some(master) = &mut self.master else {
            return Ok(());
        };
        let block = CoefficientBlockView::new_checked(&self.block).map_err(|e| e.to_string())?;
        master
            .append_block(now, &block)
            .map_err(|e| e.to_string())?;
        master.arm(now).map_err(|e| e.to_string())
    }

    /// Lets everything happen up to `now`, in the order of time.
    pub fn advance(&mut self, now: TaiNs) {
        loop {
            let step = self.magnets.first().map(Magnet::next_step);
            let action = self.receiver.poll_timeout();
            let ramp = self
                .master
                .as_ref()
                .and_then(MasterFunctionGenerator::poll_timeout);
            let Some(at) = [step, action, ramp].into_iter().flatten().min() else {
                return;
            };
            if at > now {
                return;
            }
            self.poll_ramps(at);
            while let Some(action) = self.receiver.poll_output(at) {
                self.handle_action(&action);
            }
            self.poll_ramps(at);
            if step == Some(at) {
                self.step_magnets(at);
            }
        }
    }

    fn handle_action(&mut self, action: &Action) {
        if action.sink == self.sinks.open || action.sink == self.sinks.close {
            let is_open = action.sink == self.sinks.open;
            if is_open != self.gate_open {
                if self.gate_changes.len() == CHANGES_KEPT {
                    self.gate_changes.pop_front();
                }
                self.gate_changes.push_back(action.executed);
            }
            self.gate_open = is_open;
            self.counters.gates_opened += u64::from(self.gate_open);
        } else if action.sink == self.sinks.triggers {
            self.counters.triggers += 1;
            if self.triggers.len() < TRIGGERS_MAX {
                self.triggers.push_back(action.executed);
            } else {
                self.counters.triggers_missed += 1;
            }
        } else if let Some(master) = &mut self.master {
            let started = master
                .handle_start_tag(action.executed, action.tag)
                .count_ones();
            self.counters.ramps_started += u64::from(started);
            let all = started as usize == self.magnets.len();
            self.counters.ramp_faults += u64::from(!all);
        }
    }

    fn poll_ramps(&mut self, at: TaiNs) {
        let mut stopped = None;
        while let Some(output) = self.master.as_mut().and_then(|m| m.poll_output(at)) {
            if let MasterOutput::AllStopped {
                time, underflow, ..
            } = output
            {
                self.counters.cycles += 1;
                self.counters.ramp_faults += u64::from(underflow != 0);
                stopped = Some(time);
            }
        }
        if stopped.is_some() && self.arm(at).is_err() {
            // What was appended once is appended again, so this cannot happen; it is counted.
            self.counters.ramp_faults += 1;
        }
    }

    fn step_magnets(&mut self, at: TaiNs) {
        let Some(master) = &self.master else {
            return;
        };
        for (magnet, member) in self.magnets.iter_mut().zip(master.members()) {
            magnet.handle_output(member.output(at));
        }
    }

    /// When something happens next.
    pub fn poll_timeout(&self) -> Option<TaiNs> {
        let step = self.magnets.first().map(Magnet::next_step);
        let ramp = self
            .master
            .as_ref()
            .and_then(MasterFunctionGenerator::poll_timeout);
        let all = [step, self.receiver.poll_timeout(), ramp];
        all.into_iter().flatten().min()
    }

    /// Whether triggers may be taken.
    pub fn is_gate_open(&self) -> bool {
        self.gate_open
    }

    /// Whether triggers might be taken at a moment before the last advance. What is further back than
    /// the last [`CHANGES_KEPT`] changes of the gate counts as what was before these.
    pub fn was_gate_open(&self, at: TaiNs) -> bool {
        let changes = self.gate_changes.iter().rev();
        let since = changes.take_while(|changed| **changed > at).count();
        self.gate_open == since.is_multiple_of(2)
    }

    /// What the schedule has asked for so far came when triggers were not taken yet: nobody is to take
    /// it, and it is not counted. Of the gates the one that is open is the first.
    pub fn forget_triggers(&mut self) {
        self.triggers.clear();
        let open = u64::from(self.gate_open);
        self.counters.gates_opened = self.counters.gates_opened.min(open);
        self.counters.triggers = 0;
        self.counters.triggers_missed = 0;
    }

    /// The run takes no more triggers: how many the schedule has asked for that nobody has taken. The
    /// schedule goes on while the run drains, and is counted no more.
    pub fn end(&mut self) -> u64 {
        self.ended = self.ended.or(Some(self.counters()));
        let waiting = self.triggers.len() as u64;
        self.triggers.clear();
        waiting + self.counters.triggers_missed
    }

    /// The next trigger that the schedule asks for, and whether the gate is as it was then: a driver
    /// that has stood still, or waited for a buffer, may come to it a gate later. A trigger of the
    /// very moment at which the gate opens or closes comes after that.
    pub fn poll_trigger(&mut self) -> Option<ScheduledTrigger> {
        let at = self.triggers.pop_front()?;
        let gate = match self.gate_changes.back() {
            Some(changed) if *changed > at => GateSince::Passed,
            _ => GateSince::Same,
        };
        Some(ScheduledTrigger { at, gate })
    }

    /// Number of ramps.
    pub fn ramps(&self) -> usize {
        self.magnets.len()
    }

    /// Output and read-back of each generator at `at`, not before the last advance.
    pub fn read_back(&self, at: TaiNs) -> impl ExactSizeIterator<Item = ReadBack> {
        let members = self.master.as_ref().map_or(&[][..], |m| m.members());
        self.magnets
            .iter()
            .enumerate()
            .map(move |(index, magnet)| ReadBack {
                output: members.get(index).map_or(0, |member| member.output(at)),
                read_back: magnet.read_back(),
            })
    }

    /// What has been done until the run took no more triggers.
    pub fn counters(&self) -> SpillCounters {
        if let Some(counters) = self.ended {
            return counters;
        }
        let overflow = |sink| self.receiver.counters(sink).overflow;
        SpillCounters {
            actions_dropped: self.sinks.all().into_iter().map(overflow).sum(),
            ..self.counters
        }
    }
}
