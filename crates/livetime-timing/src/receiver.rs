//! The receiver behind a trait, and the emulated one.
//!
//! [`TimingReceiver`] is what a driver polls, whatever is behind it. [`EmulatedReceiver`] is a
//! receiver in software: a clock with faults, inputs, a schedule in place of a data master, and
//! the action unit.
//!
//! **A hardware receiver** (PCIe or Etherbone) goes here: a type of its driver crate with this
//! trait. `install` writes the search and walker entries of the [`MatchTable`] into the inactive
//! half of its tables and flips them; `inject` writes eight words to the receiver's address;
//! `poll_output` reads the action queues that its interrupts announce and fills in the flags;
//! `counters` reads and sums the registers that clear on reading; `time` reads the receiver's own
//! clock. Nothing above the trait changes.

use livetime_wire::{Problem, TaiNs, TimingMessage};

use crate::action_unit::{Action, ActionUnit, ActionUnitConfig, SinkCounters};
use crate::clock::{ClockFault, ClockModel, LockState};
use crate::input::{Input, InputConfig};
use crate::match_table::MatchTable;
use crate::schedule::SchedulePlayer;
use crate::sink::SinkId;

/// A timing receiver. `now` is the driver's true time; the times in actions are the receiver's.
pub trait TimingReceiver {
    /// Exchanges the table of conditions between two messages; gives the old one back.
    fn install(&mut self, table: Box<MatchTable>) -> Box<MatchTable>;
    /// Hands a message to the receiver as if the network had brought it. Poll up to `now` first.
    fn inject(&mut self, now: TaiNs, message: &TimingMessage);
    /// The next action executed up to `now`; call until `None`.
    fn poll_output(&mut self, now: TaiNs) -> Option<Action>;
    /// The true time at which to poll again; `None` if nothing is pending.
    fn poll_timeout(&self) -> Option<TaiNs>;
    /// Whether the receiver follows the network.
    fn lock_state(&self) -> LockState;
    /// The receiver's time.
    fn time(&self, now: TaiNs) -> TaiNs;
    /// Counters of a sink.
    fn counters(&self, sink: SinkId) -> SinkCounters;
}

/// A receiver in software.
#[derive(Debug)]
pub struct EmulatedReceiver {
    clock: ClockModel,
    actions: ActionUnit,
    inputs: Vec<Input>,
    /// Those that are playing, and some that have ended.
    players: Vec<SchedulePlayer>,
    catch_up_ns: u64,
}

/// Most schedules that play at a time.
pub const SCHEDULES_MAX: usize = 16;

/// Where the next message comes from, unless from whoever injects one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageSource {
    Input(usize),
    Player(usize),
}

/// Messages of schedule and inputs that one change of a clock or level takes in beforehand at most.
const FEED_MAX: usize = 4096;

impl EmulatedReceiver {
    /// A locked receiver with inputs that are all low and disabled.
    ///
    /// # Errors
    /// All problems of the configuration.
    pub fn new(config: ActionUnitConfig, inputs: usize) -> Result<Self, Vec<Problem>> {
        let inputs = (0..inputs).map(|_| Input::new(InputConfig::default()));
        Ok(Self {
            clock: ClockModel::locked(),
            actions: ActionUnit::new(config)?,
            inputs: inputs.collect::<Result<_, _>>()?,
            players: Vec::with_capacity(SCHEDULES_MAX),
            catch_up_ns: u64::MAX,
        })
    }

    /// A driver that was held up longer than this, ns, takes what schedule and inputs had in the
    /// meantime as arriving so long ago, so that a flood of messages of the past cannot hold up
    /// the present. Without end unless set: on a virtual clock every message arrives in its time.
    pub fn set_catch_up(&mut self, ns: u64) {
        self.catch_up_ns = ns;
    }

    /// The action unit, to read reports and marks.
    pub fn actions(&self) -> &ActionUnit {
        &self.actions
    }

    /// The action unit, to read and clear reports and marks.
    pub fn actions_mut(&mut self) -> &mut ActionUnit {
        &mut self.actions
    }

    /// The clock.
    pub fn clock(&self) -> &ClockModel {
        &self.clock
    }

    /// Lets something happen to the clock.
    ///
    /// # Errors
    /// See [`ClockModel::handle_fault`].
    #[expect(
        clippy::result_large_err,
        reason = "a rare call, and the problem is complete"
    )]
    pub fn handle_fault(&mut self, now: TaiNs, fault: ClockFault) -> Result<(), Problem> {
        self.feed(now);
        self.clock.handle_fault(now, fault)
    }

    /// The inputs.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Changes how an input makes messages; `None` if there is no such input.
    pub fn configure_input(
        &mut self,
        input: usize,
        config: InputConfig,
    ) -> Option<Result<(), Vec<Problem>>> {
        Some(self.inputs.get_mut(input)?.configure(config))
    }

    /// The level of an input is `level` from now on; an input that does not exist is ignored.
    pub fn handle_level(&mut self, now: TaiNs, input: usize, level: bool) {
        self.feed(now);
        let at = self.clock.time(now);
        let Some(input) = self.inputs.get_mut(input) else {
            return;
        };
        if let Some(message) = input.handle_level(at, level) {
            self.actions.handle_message(at, &message);
        }
    }

    /// Plays a schedule from now on, beside those that are playing; its times are the receiver's. Gives
    /// back one that has ended and whose place it takes, or itself if [`SCHEDULES_MAX`] are playing.
    pub fn play(&mut self, player: SchedulePlayer) -> Option<SchedulePlayer> {
        if let Some(ended) = self.players.iter_mut().find(|player| player.has_ended()) {
            return Some(core::mem::replace(ended, player));
        }
        if self.players.len() == SCHEDULES_MAX {
            return Some(player);
        }
        self.players.push(player);
        None
    }

    /// Ends the schedules that are playing: what they have not sent yet is not sent.
    pub fn stop_players(&mut self) {
        self.players.iter_mut().for_each(SchedulePlayer::stop);
    }

    /// The schedules that are playing.
    pub fn players(&self) -> impl Iterator<Item = &SchedulePlayer> {
        self.players.iter().filter(|player| !player.has_ended())
    }

    /// Whose message is the next, and when it arrives if looked at `until`.
    #[inline]
    fn next_source(&self, until: TaiNs) -> Option<(TaiNs, MessageSource)> {
        let mut next = None;
        let mut consider = |at: Option<TaiNs>, source| {
            if let Some(at) = at
                && next.is_none_or(|(first, _)| at < first)
            {
                next = Some((at, source));
            }
        };
        // Of equal times a schedule's comes first.
        for (index, player) in self.players.iter().enumerate() {
            consider(player.poll_timeout(), MessageSource::Player(index));
        }
        for (index, input) in self.inputs.iter().enumerate() {
            consider(input.poll_timeout(), MessageSource::Input(index));
        }
        let earliest = TaiNs(until.0.saturating_sub(self.catch_up_ns));
        next.map(|(at, source)| (at.max(earliest), source))
    }

    /// Hands the next message on, which arrives at `at`.
    fn take_in(&mut self, at: TaiNs, source: MessageSource) {
        let message = match source {
            MessageSource::Input(index) => self.inputs[index].poll_output(at),
            MessageSource::Player(index) => self.players[index].poll_output(at),
        };
        if let Some(message) = message {
            self.actions.handle_message(at, &message);
        }
    }

    /// Hands on messages of schedule and inputs that are there by `now`, in the order of time.
    fn feed(&mut self, now: TaiNs) {
        let until = self.clock.time(now);
        for _ in 0..FEED_MAX {
            match self.next_source(until) {
                Some((at, source)) if at <= until => self.take_in(at, source),
                _ => return,
            }
        }
    }

    /// The next action executed up to `now`, as [`TimingReceiver::poll_output`], taking in at most
    /// `budget` messages of schedule and inputs, which is lowered by them. What a driver with much
    /// else to do calls: when nothing comes and nothing is left of the budget, there may be more.
    ///
    /// Actions and messages alternate in the order of their times, so that the queues hold no more
    /// than they would if every moment had been looked at.
    #[inline]
    pub fn poll_bounded(&mut self, now: TaiNs, budget: &mut usize) -> Option<Action> {
        let until = self.clock.time(now);
        loop {
            let next = self.next_source(until).filter(|(at, _)| *at <= until);
            let limit = next.map_or(until, |(at, _)| at);
            if let Some(action) = self.actions.poll_output(limit) {
                return Some(action);
            }
            let (at, source) = next?;
            *budget = budget.checked_sub(1)?;
            self.take_in(at, source);
        }
    }
}

impl TimingReceiver for EmulatedReceiver {
    fn install(&mut self, table: Box<MatchTable>) -> Box<MatchTable> {
        self.actions.install(table)
    }

    fn inject(&mut self, now: TaiNs, message: &TimingMessage) {
        let at = self.clock.time(now);
        self.actions.handle_message(at, message);
    }

    fn poll_output(&mut self, now: TaiNs) -> Option<Action> {
        let mut budget = usize::MAX;
        self.poll_bounded(now, &mut budget)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<TaiNs> {
        let source = self.next_source(TaiNs(0)).map(|(at, _)| at);
        let first = [source, self.actions.poll_timeout()]
            .into_iter()
            .flatten()
            .min()?;
        Some(self.clock.true_time(first))
    }

    fn lock_state(&self) -> LockState {
        self.clock.lock_state()
    }

    fn time(&self, now: TaiNs) -> TaiNs {
        self.clock.time(now)
    }

    fn counters(&self, sink: SinkId) -> SinkCounters {
        self.actions.counters(sink)
    }
}
