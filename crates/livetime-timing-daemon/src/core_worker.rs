//! The worker that owns the timing receiver's core: messages in, actions out at their deadlines.
//!
//! One thread drives a receiver, the emulated one of `livetime-timing`, and the [`Delivery`]. Control reaches it
//! through two bounded rings only ([`CoreCommand`], [`CoreReply`]); what has to be freed travels
//! back, so that nothing is allocated or freed here and no lock is shared. It decides no rules;
//! [`crate::core_handle`] is the other side.
//!
//! A turn is bounded: [`COMMANDS_PER_TURN`] commands, [`MESSAGES_PER_TURN`] messages of each
//! source, [`BATCHES_PER_TURN`] times [`ACTIONS_PER_TURN`] actions, [`UNQUEUED_PER_TURN`] actions
//! that found no place in a queue, then idle records if there was nothing else. Between turns the
//! worker sleeps until shortly before the next deadline and spins the rest: reading the clock and
//! looking at its rings, nothing else. Within the last microsecond it executes what is due and holds
//! it back until the deadline, so that then only the rings are written; a message that comes
//! meanwhile needs longer than that to the channels.
//!
//! Times of messages and actions are the receiver's, times of waiting the machine's: with a fault
//! of the receiver's clock they differ.

use std::cell::Cell;
use std::time::Duration;

use livetime_shm::{Doorbell, RecordWriter};
use livetime_timing::{
    Action, ActionFlag, ClockFault, EmulatedReceiver, FlagReport, InputConfig, LockState,
    MatchTable, SchedulePlayer, SinkCounters, SinkId, SinkKind, TimingReceiver,
};
use livetime_wire::{PriorityClass, RecordFlags, TaiNs, TimingMessage};

use crate::delivery::{Delivery, Routing};
use crate::executed_action::{ExecutedAction, condition_cookie};
use crate::generators::StartTag;
use crate::subscription::Subscription;
use crate::tai_clock::{ClockReading, TaiClock};
use crate::wake_thread::WakeThread;

/// Commands taken per turn.
pub const COMMANDS_PER_TURN: usize = 8;
/// Messages taken per turn.
pub const MESSAGES_PER_TURN: usize = 64;
/// Actions executed and delivered at a time.
pub const ACTIONS_PER_TURN: usize = 64;
/// Such batches per turn.
pub const BATCHES_PER_TURN: usize = 16;
/// Actions without a place in a queue that are reported as lost per turn.
pub const UNQUEUED_PER_TURN: u64 = 1024;
/// Records of the flight recorder.
pub const FLIGHT_RECORDS: u32 = 4096;
/// Longest sleep without any reason to wake up.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Looks at clock and rings between two turns while spinning: less than a millisecond of them, so
/// that idle records and the end are not forgotten.
const SPINS_MAX: u32 = 16_384;
/// Looks between two readings of the clock; in between the tick counter goes on.
const SPINS_PER_READING: u32 = 128;
/// What is due is executed so long ahead of its deadline while the worker spins, and delivered at
/// the deadline, ns. Less than the time that a message takes to the channels: nothing that comes
/// meanwhile can be due before.
const AHEAD_NS: u64 = 1_500;
/// What the receiver missed while the worker was held up longer than this arrives so long ago, ns.
const CATCH_UP_NS: u64 = 10_000_000;
/// A delivery that the worker itself made later than this is counted.
const LATE_DELIVERY_NS: u64 = 1_000_000;

/// How the worker waits for a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreWait {
    /// Sleeps, and wakes up `spin_ahead_ns` before the deadline to spin the rest of the time. The
    /// kernel wakes a thread up to some 100 us late; what it is later than that is our latency.
    SleepThenSpin {
        /// Time before a deadline that is spent spinning.
        spin_ahead_ns: u64,
    },
    /// Never sleeps: a core of its own.
    Spin,
}

impl Default for CoreWait {
    /// Sleeps, and spins the last 200 us.
    fn default() -> Self {
        Self::SleepThenSpin {
            spin_ahead_ns: 200_000,
        }
    }
}

/// What the worker does between two turns that had nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    Sleep(Duration),
    /// Until this time of the machine, or until something comes.
    Spin(Option<TaiNs>),
}

/// What control asks of the worker.
#[derive(Debug)]
pub enum CoreCommand {
    /// Takes effect between two messages.
    Install(Box<MatchTable>),
    /// A subscription comes or goes, with the new table of listeners.
    Exchange {
        /// Its place.
        place: u16,
        /// What comes there.
        subscription: Option<Box<Subscription>>,
        /// The new table.
        routing: Box<Routing>,
    },
    /// A place for a sink is given to another.
    ClearSink(SinkId, SinkKind),
    /// Starts a channel's high-water mark anew.
    ClearMostFull(SinkKind),
    /// Fills in the figures and sends them back.
    Snapshot(Box<CoreSnapshot>),
    /// Plays messages beside those that are playing; control has seen that there is a place.
    Play(SchedulePlayer),
    /// Ends all schedules that are playing.
    StopSchedules,
    /// The output side of a channel takes nothing until then.
    Stall(SinkKind, TaiNs),
    /// Something happened to the receiver's clock at this time of the machine.
    Fault(TaiNs, ClockFault),
    /// Changes how an input makes messages; checked before.
    ConfigureInput(u16, InputConfig),
    /// The level of an input from this time of the machine on.
    InputLevel(u16, TaiNs, bool),
    /// Sets an output at once.
    WriteOutput(SinkId, bool),
    /// Advances a virtual clock, after the messages injected before.
    Advance(TaiNs),
    /// Ends the worker.
    Stop,
}

/// What the worker sends back.
#[derive(Debug)]
pub enum CoreReply {
    /// The table that was in use.
    Table(Box<MatchTable>),
    /// The subscription that was in the place, and the table of listeners.
    Exchanged(Option<Box<Subscription>>, Box<Routing>),
    /// The figures.
    Snapshot(Box<CoreSnapshot>),
    /// What was played before, and has ended.
    Played(SchedulePlayer),
}

/// Figures of the core, copied in one go between two messages.
#[derive(Debug, Clone)]
pub struct CoreSnapshot {
    /// When, in the receiver's time.
    pub now: TaiNs,
    /// When, in the machine's time.
    pub machine: TaiNs,
    /// Something is due by then and not done yet.
    pub behind: bool,
    /// Messages taken in.
    pub messages: u64,
    /// Actions executed.
    pub actions: u64,
    /// Deadlines met later than a millisecond by the worker itself.
    pub slow_deliveries: u64,
    /// Actions that found no place in a queue, those of sinks that are gone included.
    pub unqueued: u64,
    /// Actions that waited when their sink was destroyed, and were not executed.
    pub withdrawn: u64,
    /// Start tags that the generators' thread was too slow for.
    pub tags_lost: u64,
    /// Turns of the worker.
    pub turns: u64,
    /// Times that it slept.
    pub sleeps: u64,
    /// Messages of schedules still to be sent.
    pub playing: u64,
    /// Schedules that they are of.
    pub schedules: usize,
    /// Whether the receiver follows the network.
    pub lock: LockState,
    /// Drift of its oscillator, parts in 10^9; felt while it is not locked.
    pub drift_ppb: i32,
    /// Of each input the level, the edges that stayed, and those that did not.
    pub inputs: Vec<(bool, u64, u64)>,
    /// Actions waiting in each channel.
    pub fill: [usize; 4],
    /// Largest number of them since last cleared.
    pub most_full: [usize; 4],
    /// Counters of the sinks asked for, by place.
    pub sinks: Vec<(SinkId, SinkCounters)>,
    /// Reports of flagged actions, taken out of the core if that was asked for; of each sink and
    /// flag the first action and how many there were.
    pub reports: Vec<(SinkId, FlagReport)>,
    /// Level of each output, by place of its sink; changes so far.
    pub outputs: Vec<(bool, u64)>,
    /// Kinds of the sinks asked for.
    kinds: Vec<SinkKind>,
}

impl CoreSnapshot {
    /// An empty one that asks for these sinks; with room for all it can get, so that the worker
    /// allocates nothing.
    pub fn asking_for(
        sinks: impl IntoIterator<Item = (SinkId, SinkKind)>,
        sinks_max: usize,
        inputs: usize,
        with_reports: bool,
    ) -> Self {
        let (kinds, sinks): (Vec<_>, Vec<_>) = sinks
            .into_iter()
            .map(|(sink, kind)| (kind, (sink, SinkCounters::default())))
            .unzip();
        let reports = if with_reports { sinks.len() * 4 } else { 0 };
        Self {
            now: TaiNs(0),
            machine: TaiNs(0),
            behind: false,
            messages: 0,
            actions: 0,
            slow_deliveries: 0,
            unqueued: 0,
            withdrawn: 0,
            tags_lost: 0,
            turns: 0,
            sleeps: 0,
            playing: 0,
            schedules: 0,
            lock: LockState::Unlocked,
            drift_ppb: 0,
            inputs: Vec::with_capacity(inputs),
            fill: [0; 4],
            most_full: [0; 4],
            sinks,
            kinds,
            reports: Vec::with_capacity(reports),
            outputs: vec![(false, 0); sinks_max],
        }
    }
}

/// The worker's ends of the rings to control.
#[derive(Debug)]
pub struct CoreEnds {
    /// From control, each with the number of messages that it comes after.
    pub commands: rtrb::Consumer<(u64, CoreCommand)>,
    /// To control.
    pub replies: rtrb::Producer<CoreReply>,
    /// Start tags to the generators, and their bell.
    pub tags: rtrb::Producer<StartTag>,
    /// Rung with them.
    pub tag_bell: Doorbell,
    /// Messages from whoever injects them.
    pub messages: rtrb::Consumer<TimingMessage>,
    /// Rung by control and injectors.
    pub own_bell: Doorbell,
    /// Rung for control.
    pub control_bell: Doorbell,
}

/// The core and what it drives.
#[derive(Debug)]
pub struct CoreWorker {
    receiver: EmulatedReceiver,
    delivery: Delivery,
    clock: TaiClock,
    wait: CoreWait,
    ends: CoreEnds,
    flight: RecordWriter,
    actions: Vec<ExecutedAction>,
    /// Executed with them, by sinks that have no records.
    other_actions: Vec<ExecutedAction>,
    outputs: Vec<(bool, u64)>,
    messages_taken: u64,
    /// Actions without a place in a queue of which listeners were told.
    told: u64,
    /// How many those are when the listeners may change, while a change waits for that.
    change_at: Option<u64>,
    executed: u64,
    slow_deliveries: u64,
    tags_lost: u64,
    turns: u64,
    sleeps: u64,
    stopping: bool,
}

impl CoreWorker {
    /// A worker around a receiver; it allocates all it ever will.
    pub fn new(
        mut receiver: EmulatedReceiver,
        delivery: Delivery,
        clock: TaiClock,
        wait: CoreWait,
        ends: CoreEnds,
        flight: RecordWriter,
    ) -> Self {
        let outputs = vec![(false, 0); receiver.actions().config().sinks_max];
        if !clock.is_virtual() {
            receiver.set_catch_up(CATCH_UP_NS);
        }
        Self {
            receiver,
            delivery,
            clock,
            wait,
            ends,
            flight,
            actions: Vec::with_capacity(ACTIONS_PER_TURN),
            other_actions: Vec::with_capacity(ACTIONS_PER_TURN),
            outputs,
            messages_taken: 0,
            told: 0,
            change_at: None,
            executed: 0,
            slow_deliveries: 0,
            tags_lost: 0,
            turns: 0,
            sleeps: 0,
            stopping: false,
        }
    }

    /// Leaves it to this thread to wake many clients at once.
    pub fn set_wake_thread(&mut self, thread: WakeThread) {
        self.delivery.set_wake_thread(thread);
    }

    /// Works until told to stop.
    pub fn run(&mut self) {
        let mut reading = self.clock.read();
        while !self.stopping {
            // Before the look for work, so that no ring of the bell is lost.
            let ticket = self.ends.own_bell.ticket();
            if self.turn_from(reading) == 0 {
                match self.pause() {
                    Pause::Sleep(time) => {
                        self.sleeps += 1;
                        self.ends.own_bell.wait(ticket, time);
                    }
                    Pause::Spin(until) => {
                        reading = self.spin(until);
                        if let Some(until) = until {
                            self.meet(until, &reading);
                        }
                        continue;
                    }
                }
            }
            reading = self.clock.read();
        }
    }

    /// One turn; returns the number of things done.
    pub fn turn(&mut self) -> usize {
        self.turn_from(self.clock.read())
    }

    /// One turn that begins soon after the clock was read.
    fn turn_from(&mut self, mut reading: ClockReading) -> usize {
        self.turns += 1;
        let mut work = 0;
        // Messages of schedule and inputs.
        let mut budget = MESSAGES_PER_TURN;
        for batch in 0..BATCHES_PER_TURN {
            if batch > 0 {
                reading = self.clock.read();
            }
            let executed = self.execute(&reading, &mut budget);
            work += executed;
            if executed < ACTIONS_PER_TURN {
                break;
            }
        }
        let all = work == BATCHES_PER_TURN * ACTIONS_PER_TURN;
        work += self.report_unqueued(UNQUEUED_PER_TURN);
        if all {
            // More is due: messages wait in their inlet, where there is room, and not as actions
            // in the queues, which drop what does not fit.
            return work;
        }
        work += MESSAGES_PER_TURN - budget;
        work += self.handle_inputs();
        if work == 0 {
            let (clock, receiver) = (&self.clock, &self.receiver);
            let now = || receiver.time(clock.now());
            work += self.delivery.deliver_idle(&now);
        }
        work
    }

    /// Tells listeners of at most so many actions that found no place in a queue; returns of how
    /// many.
    fn report_unqueued(&mut self, max: u64) -> usize {
        let mut reported = 0;
        while reported < max
            && let Some((sink, count)) = self.receiver.actions_mut().take_unqueued(max - reported)
        {
            let now = self.receiver.time(self.clock.now());
            self.delivery.deliver_unqueued(sink.0, count, now);
            reported += count;
        }
        self.told += reported;
        reported as usize
    }

    /// Whether the next command changes who listens and has to wait: those who listened before are told
    /// of what was lost before, and nobody else, some of it in each turn. What is lost meanwhile, of
    /// schedules, delays it no further.
    fn must_tell_first(&mut self) -> bool {
        let next = self.ends.commands.peek();
        if !matches!(next, Ok((_, CoreCommand::Exchange { .. }))) {
            return false;
        }
        let all = self.told + self.receiver.actions().untold();
        let waits = self.told < *self.change_at.get_or_insert(all);
        if !waits {
            self.change_at = None;
        }
        waits
    }

    /// What to do while nothing is due.
    fn pause(&self) -> Pause {
        let next = self.receiver.poll_timeout();
        let CoreWait::SleepThenSpin { spin_ahead_ns } = self.wait else {
            return Pause::Spin(next);
        };
        let Some(next) = next else {
            return Pause::Sleep(SLEEP_MAX);
        };
        let now = self.clock.now();
        if self.clock.is_virtual() {
            // Whoever advances the clock rings the bell.
            return if next > now {
                Pause::Sleep(SLEEP_MAX)
            } else {
                Pause::Spin(Some(next))
            };
        }
        let ahead = next.0.saturating_sub(now.0);
        if ahead <= spin_ahead_ns {
            return Pause::Spin(Some(next));
        }
        Pause::Sleep(Duration::from_nanos(ahead - spin_ahead_ns).min(SLEEP_MAX))
    }

    /// How long ahead of its deadline an action may be executed, ns.
    fn ahead_ns(&self) -> u64 {
        let latency_ns = self.receiver.actions().config().latency_ns;
        // On a virtual clock nothing happens ahead; and it may stand.
        let may = latency_ns > AHEAD_NS && !self.clock.is_virtual();
        if may { AHEAD_NS } else { 0 }
    }

    /// Looks at clock and rings until something is nearly due or has come; returns the reading of
    /// the clock by which it is.
    #[inline]
    fn spin(&self, until: Option<TaiNs>) -> ClockReading {
        let ahead_ns = self.ahead_ns();
        let until = until.map(|until| TaiNs(until.0.saturating_sub(ahead_ns)));
        let mut reading = self.clock.read();
        for look in 1..=SPINS_MAX {
            let due = until.is_some_and(|until| self.clock.now_from(&reading) >= until);
            if due || !self.ends.messages.is_empty() || !self.ends.commands.is_empty() {
                break;
            }
            if until.is_none() {
                std::hint::spin_loop();
            }
            if look % SPINS_PER_READING == 0 {
                reading = self.clock.read();
            }
        }
        reading
    }

    /// Executes what is due at a time that is near, and delivers it then: between the deadline and
    /// the clients' rings nothing is left to do but to write them.
    fn meet(&mut self, until: TaiNs, reading: &ClockReading) {
        let now = self.clock.now_from(reading);
        if now >= until || until.0 - now.0 > self.ahead_ns() {
            return;
        }
        let mut budget = MESSAGES_PER_TURN;
        let count = self.collect(until, &mut budget);
        self.delivery.prepare(&self.actions);
        let now = wait_out(now, until, || self.clock.now_from(reading));
        self.delivery.publish_prepared(self.receiver.time(now));
        self.deliver(count, now, reading);
    }

    /// Takes commands and messages in the order in which they were given: what was injected before
    /// a change meets the old conditions, what comes after it the new ones.
    fn handle_inputs(&mut self) -> usize {
        // Counted before the look for commands: a message after a command that is not seen yet is
        // not among these.
        let mut messages = self.ends.messages.slots().min(MESSAGES_PER_TURN);
        let (mut commands, mut done) = (0, 0);
        loop {
            // A command is taken only when its reply has room: control collects them as it waits.
            let may = commands < COMMANDS_PER_TURN && !self.ends.replies.is_full();
            let next = self.ends.commands.peek().ok().map(|(after, _)| *after);
            match next {
                Some(after) if after <= self.messages_taken => {
                    if !may || self.must_tell_first() {
                        break;
                    }
                    commands += 1;
                    self.take_command();
                }
                _ => {
                    let until = next.map_or(u64::MAX, |after| after - self.messages_taken);
                    let count = messages.min(usize::try_from(until).unwrap_or(usize::MAX));
                    let taken = self.take_messages(count);
                    messages -= taken;
                    done += taken;
                    if taken == 0 || messages == 0 {
                        break;
                    }
                }
            }
        }
        if commands > 0 {
            self.ends.control_bell.ring();
        }
        commands + done
    }

    fn take_command(&mut self) {
        let Ok((_, command)) = self.ends.commands.pop() else {
            return;
        };
        if let Some(reply) = self.handle_command(command) {
            let sent = self.ends.replies.push(reply);
            debug_assert!(sent.is_ok(), "room was seen, and nobody else pushes");
        }
    }

    fn take_messages(&mut self, count: usize) -> usize {
        let mut taken = 0;
        while taken < count {
            let Ok(message) = self.ends.messages.pop() else {
                break;
            };
            self.receiver.inject(self.clock.now(), &message);
            taken += 1;
        }
        self.messages_taken += taken as u64;
        taken
    }

    fn handle_command(&mut self, command: CoreCommand) -> Option<CoreReply> {
        match command {
            CoreCommand::Install(table) => Some(CoreReply::Table(self.receiver.install(table))),
            CoreCommand::Exchange {
                place,
                subscription,
                routing,
            } => {
                let (old, routing) = self.delivery.exchange(place, subscription, routing);
                Some(CoreReply::Exchanged(old, routing))
            }
            CoreCommand::ClearSink(sink, kind) => {
                self.receiver.actions_mut().clear_sink(sink, kind);
                if let Some(output) = self.outputs.get_mut(sink.index()) {
                    *output = (false, 0);
                }
                None
            }
            CoreCommand::ClearMostFull(kind) => {
                self.receiver.actions_mut().clear_most_full(kind);
                None
            }
            CoreCommand::Snapshot(mut snapshot) => {
                self.fill_in(&mut snapshot);
                Some(CoreReply::Snapshot(snapshot))
            }
            CoreCommand::Play(mut player) => {
                player.ask(self.receiver.time(self.clock.now()));
                self.receiver.play(player).map(CoreReply::Played)
            }
            CoreCommand::StopSchedules => {
                self.receiver.stop_players();
                None
            }
            CoreCommand::Stall(kind, until) => {
                self.receiver.actions_mut().handle_stall(kind, until);
                None
            }
            CoreCommand::Fault(at, fault) => {
                let done = self.receiver.handle_fault(at, fault);
                debug_assert!(done.is_ok(), "control has checked it on its own clock");
                None
            }
            CoreCommand::ConfigureInput(input, config) => {
                let done = self.receiver.configure_input(input.into(), config);
                debug_assert!(matches!(done, Some(Ok(()))), "control has checked it");
                None
            }
            CoreCommand::InputLevel(input, at, level) => {
                self.receiver.handle_level(at, input.into(), level);
                None
            }
            CoreCommand::WriteOutput(sink, on) => {
                self.set_output(sink, on);
                None
            }
            CoreCommand::Advance(time) => {
                self.clock.advance_to(time);
                None
            }
            CoreCommand::Stop => {
                self.stopping = true;
                None
            }
        }
    }

    /// Executes what is due and delivers it.
    #[inline]
    fn execute(&mut self, reading: &ClockReading, budget: &mut usize) -> usize {
        let now = self.clock.now_from(reading);
        let count = self.collect(now, budget);
        self.deliver(count, self.clock.now_from(reading), reading);
        count
    }

    /// Executes what is due at `now`; what is for software sinks waits to be delivered.
    #[inline]
    fn collect(&mut self, now: TaiNs, budget: &mut usize) -> usize {
        let mut count = 0;
        self.actions.clear();
        self.other_actions.clear();
        while count < ACTIONS_PER_TURN {
            let Some(action) = self.receiver.poll_bounded(now, budget) else {
                break;
            };
            count += 1;
            if action.kind != SinkKind::Software {
                self.other_actions.push(to_executed(&action));
            }
            match action.kind {
                SinkKind::Software => self.actions.push(to_executed(&action)),
                SinkKind::Output => {
                    self.set_output(action.sink, action.tag == livetime_timing::TAG_ON)
                }
                SinkKind::BusTag => {
                    // The generators run on the machine's time, whatever the receiver believes.
                    let at = self.receiver.clock().true_time(action.executed);
                    let tag = StartTag {
                        at,
                        tag: action.tag,
                    };
                    if self.ends.tags.push(tag).is_err() {
                        self.tags_lost += 1;
                    }
                    self.ends.tag_bell.ring();
                }
                SinkKind::EmbeddedCpu => {}
            }
        }
        count
    }

    /// Delivers what was executed, `count` actions with those of other sinks. It is `start` by the
    /// reading: the first record that is written takes that for its time.
    #[inline]
    fn deliver(&mut self, count: usize, start: TaiNs, reading: &ClockReading) {
        if count == 0 {
            return;
        }
        self.executed += count as u64;
        let (clock, receiver) = (&self.clock, &self.receiver);
        let start = Cell::new(Some(start));
        let now = || receiver.time(start.take().unwrap_or_else(|| clock.now_from(reading)));
        self.delivery.deliver(&self.actions, &now);
        self.record_flight();
    }

    /// After the clients were served: what the flight recorder keeps.
    fn record_flight(&mut self) {
        let now = self.receiver.time(self.clock.now());
        let delay_ns = |action: &ExecutedAction| now.0.saturating_sub(action.executed.0);
        let late = |action: &&ExecutedAction| delay_ns(action) > LATE_DELIVERY_NS;
        self.slow_deliveries += self.actions.iter().filter(late).count() as u64;
        let (mut records, mut others) = (self.actions.iter(), self.other_actions.iter());
        let (mut record, mut other) = (records.next(), others.next());
        // Both are in the order of execution.
        loop {
            let action = match (record, other) {
                (Some(first), Some(second)) if second.executed < first.executed => {
                    other = others.next();
                    second
                }
                (Some(first), _) => {
                    record = records.next();
                    first
                }
                (None, Some(second)) => {
                    other = others.next();
                    second
                }
                (None, None) => break,
            };
            let delay_ns = delay_ns(action);
            let record = action.record(PriorityClass::Generic, delay_ns, action.sink.into());
            self.flight.offer(&record.to_words());
        }
    }

    fn set_output(&mut self, sink: SinkId, on: bool) {
        if let Some((level, changes)) = self.outputs.get_mut(sink.index())
            && *level != on
        {
            *level = on;
            *changes += 1;
        }
    }

    fn fill_in(&mut self, snapshot: &mut CoreSnapshot) {
        let unit = self.receiver.actions();
        snapshot.machine = self.clock.now();
        snapshot.now = self.receiver.time(snapshot.machine);
        snapshot.behind = self
            .receiver
            .poll_timeout()
            .is_some_and(|next| next <= snapshot.machine)
            || unit.has_unqueued();
        snapshot.unqueued = unit.overflow();
        snapshot.withdrawn = unit.withdrawn();
        snapshot.messages = unit.messages();
        snapshot.actions = self.executed;
        snapshot.slow_deliveries = self.slow_deliveries;
        snapshot.tags_lost = self.tags_lost;
        snapshot.turns = self.turns;
        snapshot.sleeps = self.sleeps;
        let remaining = self.receiver.players().map(SchedulePlayer::remaining);
        snapshot.playing = remaining
            .map(|messages| messages.unwrap_or(u64::MAX))
            .fold(0, u64::saturating_add);
        snapshot.schedules = self.receiver.players().count();
        snapshot.lock = self.receiver.lock_state();
        snapshot.drift_ppb = self.receiver.clock().drift();
        let inputs = self.receiver.inputs().iter();
        let inputs = inputs.map(|input| (input.level(), input.edges(), input.glitches()));
        snapshot.inputs.extend(inputs);
        for kind in SinkKind::ALL {
            snapshot.fill[kind.channel()] = unit.fill(kind);
            snapshot.most_full[kind.channel()] = unit.most_full(kind);
        }
        for (sink, counters) in &mut snapshot.sinks {
            *counters = unit.counters(*sink);
        }
        if snapshot.reports.capacity() > 0 {
            for ((sink, counters), kind) in snapshot.sinks.iter().zip(&snapshot.kinds) {
                if counters.flagged == [0; 4] {
                    continue;
                }
                for flag in ActionFlag::ALL {
                    if let Some(report) =
                        self.receiver.actions_mut().take_report(*sink, *kind, flag)
                    {
                        snapshot.reports.push((*sink, report));
                    }
                }
            }
        }
        for (to, from) in snapshot.outputs.iter_mut().zip(&self.outputs) {
            *to = *from;
        }
    }
}

/// Looks at a clock that shows `first` until it shows `until`, which is near; returns what it shows then.
/// A clock that is set back meanwhile is not followed: it may take hours to come there again, and what
/// is held back was nearly due before.
#[inline]
fn wait_out(first: TaiNs, until: TaiNs, mut look: impl FnMut() -> TaiNs) -> TaiNs {
    let mut now = first;
    while (first..until).contains(&now) {
        now = look();
    }
    now
}

fn to_executed(action: &Action) -> ExecutedAction {
    ExecutedAction {
        sink: action.sink.0,
        condition: condition_cookie(action.condition),
        id: action.message.id.0,
        param: action.message.param,
        tef: action.message.tef,
        deadline: action.deadline,
        executed: action.executed,
        matched: action.arrived,
        flags: RecordFlags(action.flag.map_or(0, |flag| flag.bit().into())),
    }
}

#[cfg(test)]
mod tests;
