//! The hot side: messages in, actions out at their deadlines, with flags and counters.
//!
//! The rules are those of the ECA unit (channel and queue of the White Rabbit cores), with a free
//! choice of sizes. A message that arrives reaches the channels [`ActionUnitConfig::latency_ns`]
//! later; each matching condition gives an action with deadline = message time + offset:
//!
//! - **late**: the deadline is before the arrival at the channel; executed at the arrival;
//! - **early**: the deadline is more than the threshold (2^32 ns) ahead; executed at the arrival;
//! - **conflict**: an earlier action of the same sink had the same deadline (that one is not
//!   flagged);
//! - **delayed**: executed after its deadline, because actions with equal deadlines leave a
//!   channel one per clock cycle of 8 ns, or because the channel was stalled.
//!
//! One flag at most, the first of this list. Late and early actions are not in the list of their
//! deadline and conflict with nothing. An action whose condition does not accept its flag is
//! counted and not delivered. The first flagged action since a flag was last read is kept with its
//! full record, and occupies a place in the queue until it is read.
//!
//! What waits for a sink that is destroyed is not executed and is counted: the next sink in its
//! place gets nothing of it. What waits for a condition that is removed, changed or switched off is
//! executed as it was asked for.
//!
//! An action that finds no place is counted, for its sink and for good, and told by
//! [`ActionUnit::take_unqueued`] to a driver that reports it to whoever waits for it. How sinks share
//! the places of a queue is a [`QueueSharing`].
//!
//! Nothing here allocates after construction, and nothing knows owners or names: those are in
//! [`crate::registry`], whose compiled table is exchanged with [`ActionUnit::install`].

use livetime_wire::{Problem, TaiNs, TimingMessage};

use crate::channel::{Channel, Pending};
use crate::condition::ConditionId;
use crate::flag::ActionFlag;
use crate::match_table::{MatchTable, TableLimits, WalkerEntry};
use crate::problem_code;
use crate::sink::{SinkId, SinkKind};

/// One clock cycle of the channels, ns.
pub const CYCLE_NS: u64 = 8;

/// How the sinks of a channel share its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueSharing {
    /// Who comes first has the place, as in the hardware.
    FirstCome,
    /// A software sink has no more places than are still free: one sink at most half of all, and
    /// where `n` sinks take what they get, a part in `n + 1` is left for the others.
    Fair,
}

/// Sizes and times of the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionUnitConfig {
    /// Places of each channel's queue, 1..=1 048 576; the hardware has 256.
    pub queue: usize,
    /// How its sinks share them.
    pub sharing: QueueSharing,
    /// From the arrival of a message to that of its actions at the channels, ns; 4096 in hardware.
    pub latency_ns: u64,
    /// How far ahead a deadline may be, ns; 2^32 in hardware.
    pub early_ns: u64,
    /// Sinks at most, 1..=65 535.
    pub sinks_max: usize,
}

impl ActionUnitConfig {
    /// The hardware's values: queues of 256, 4096 ns, 2^32 ns; 32 sinks of each kind.
    pub const HARDWARE: Self = Self {
        queue: 256,
        sharing: QueueSharing::FirstCome,
        latency_ns: 4096,
        early_ns: 1 << 32,
        sinks_max: 128,
    };

    /// All problems of the values, under `path`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(1..=1 << 20).contains(&self.queue) {
            problems.push(Problem::new(
                problem_code::QUEUE,
                format!("{path}.queue"),
                self.queue,
                "1 to 1048576 actions",
                "use 256 to model the hardware, more for a receiver in software",
            ));
        }
        if !(1..=usize::from(u16::MAX)).contains(&self.sinks_max) {
            problems.push(Problem::new(
                problem_code::SINKS,
                format!("{path}.sinks"),
                self.sinks_max,
                "1 to 65535 sinks",
                "count one sink for each output, each listening client and each bus",
            ));
        }
        problems
    }
}

impl Default for ActionUnitConfig {
    /// The hardware's times with queues of 131 072, of which each software sink has its share, and
    /// 1024 sinks, for a receiver in software.
    fn default() -> Self {
        Self {
            queue: 1 << 17,
            sharing: QueueSharing::Fair,
            sinks_max: 1024,
            ..Self::HARDWARE
        }
    }
}

/// An action that was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    /// The sink that gets it.
    pub sink: SinkId,
    /// Its kind.
    pub kind: SinkKind,
    /// The condition that asked for it.
    pub condition: ConditionId,
    /// The condition's tag.
    pub tag: u32,
    /// The message that caused it.
    pub message: TimingMessage,
    /// When the message arrived.
    pub arrived: TaiNs,
    /// When it was due.
    pub deadline: TaiNs,
    /// When it was executed.
    pub executed: TaiNs,
    /// What was wrong with it, if anything.
    pub flag: Option<ActionFlag>,
}

/// Counters of a sink since it was created. All matched actions are in exactly one of
/// `delivered`, `refused`, `overflow` and the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinkCounters {
    /// Actions that conditions of the sink asked for.
    pub matched: u64,
    /// Actions delivered, with or without a flag.
    pub delivered: u64,
    /// Actions not delivered because the condition does not accept their flag.
    pub refused: u64,
    /// Actions dropped because they found no place in the channel's queue.
    pub overflow: u64,
    /// Actions executed with each flag, in the order of [`ActionFlag::ALL`].
    pub flagged: [u64; 4],
}

/// The first flagged action since the flag was last read, and how many there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagReport {
    /// Actions with the flag since it was last read, at least 1.
    pub count: u64,
    /// The first of them.
    pub first: Action,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SinkState {
    pub(crate) counters: SinkCounters,
    pub(crate) reports: [Option<FlagReport>; 4],
    /// Deadline of the last action without late or early, to find conflicts.
    pub(crate) last_deadline: Option<TaiNs>,
    /// Actions in the queue, without those of sinks that had the place before.
    pub(crate) queued: usize,
    /// How many sinks had the place before.
    pub(crate) life: u32,
    /// Actions that found no place, since they were last told.
    unqueued: u64,
}

/// Matches messages and executes actions at their deadlines.
#[derive(Debug)]
pub struct ActionUnit {
    config: ActionUnitConfig,
    table: Box<MatchTable>,
    channels: [Channel; SinkKind::ALL.len()],
    sinks: Vec<SinkState>,
    /// Sinks with actions that found no place and were not told yet, each once.
    unqueued: Vec<SinkId>,
    overflow: u64,
    withdrawn: u64,
    messages: u64,
    sequence: u64,
}

impl ActionUnit {
    /// A unit without conditions; allocates all it ever will.
    ///
    /// # Errors
    /// All problems of the configuration.
    pub fn new(config: ActionUnitConfig) -> Result<Self, Vec<Problem>> {
        let problems = config.validate("timing");
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            config,
            table: Box::new(MatchTable::empty(TableLimits::HARDWARE)),
            channels: SinkKind::ALL.map(|_| Channel::new(config.queue)),
            sinks: vec![SinkState::default(); config.sinks_max],
            unqueued: Vec::with_capacity(config.sinks_max),
            overflow: 0,
            withdrawn: 0,
            messages: 0,
            sequence: 0,
        })
    }

    /// Exchanges the table between two messages and gives the old one back, to be freed by
    /// whoever is not in a hurry. Actions already queued stay.
    pub fn install(&mut self, table: Box<MatchTable>) -> Box<MatchTable> {
        core::mem::replace(&mut self.table, table)
    }

    /// The table in use.
    pub fn table(&self) -> &MatchTable {
        &self.table
    }

    /// The configuration.
    pub fn config(&self) -> &ActionUnitConfig {
        &self.config
    }

    /// Takes in a message that arrives now. Returns the number of actions it asks for; those that
    /// find the queue full are counted as overflow of their sink.
    pub fn handle_message(&mut self, now: TaiNs, message: &TimingMessage) -> u32 {
        let Self {
            config,
            table,
            channels,
            sinks,
            unqueued,
            overflow,
            sequence,
            ..
        } = self;
        let at_channel = TaiNs(now.0.saturating_add(config.latency_ns));
        let mut count = 0;
        for entry in table.matches(message.id) {
            count += 1;
            *sequence += 1;
            let sink = &mut sinks[entry.sink.index()];
            sink.counters.matched += 1;
            let channel = &mut channels[entry.kind.channel()];
            let may = match config.sharing {
                QueueSharing::Fair if entry.kind == SinkKind::Software => {
                    sink.queued < channel.free()
                }
                _ => true,
            };
            let pending = pending(entry, message, now, at_channel, config.early_ns, *sequence);
            if may && channel.push(pending, sink.life) {
                sink.queued += 1;
                continue;
            }
            sink.counters.overflow += 1;
            *overflow += 1;
            if sink.unqueued == 0 {
                unqueued.push(entry.sink);
            }
            sink.unqueued += 1;
        }
        self.messages += 1;
        count
    }

    /// The next action executed up to `now`, in the order of execution. Refused actions are
    /// counted on the way. Call until `None`.
    pub fn poll_output(&mut self, now: TaiNs) -> Option<Action> {
        loop {
            let (index, executed) = self.settle(now)?;
            if executed > now {
                return None;
            }
            let (action, accepted) = self.channels[index].pop(executed, &mut self.sinks)?;
            if accepted {
                return Some(action);
            }
        }
    }

    /// When to poll for the next action; at times a cycle or more before it is executed.
    pub fn poll_timeout(&self) -> Option<TaiNs> {
        self.next_channel().map(|(_, executed)| executed)
    }

    /// The output side of a channel cannot take anything before `until`.
    pub fn handle_stall(&mut self, kind: SinkKind, until: TaiNs) {
        self.channels[kind.channel()].stall(until);
    }

    /// Counters of a sink; zeros for a place beyond `sinks_max`.
    pub fn counters(&self, sink: SinkId) -> SinkCounters {
        self.sinks
            .get(sink.index())
            .map(|state| state.counters)
            .unwrap_or_default()
    }

    /// Actions of any sink that found no place in a queue, sinks that are gone included.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Actions that waited when their sink was destroyed, and so were not executed.
    pub fn withdrawn(&self) -> u64 {
        self.withdrawn
    }

    /// A sink, and how many of its actions found no place since that was last asked, at most `max`
    /// of them at a time; call until `None`.
    pub fn take_unqueued(&mut self, max: u64) -> Option<(SinkId, u64)> {
        let sink = *self.unqueued.last()?;
        let left = &mut self.sinks[sink.index()].unqueued;
        let count = (*left).min(max);
        *left -= count;
        if *left == 0 {
            self.unqueued.pop();
        }
        Some((sink, count))
    }

    /// Actions that [`ActionUnit::take_unqueued`] has still to tell of; walks the sinks that have some.
    pub fn untold(&self) -> u64 {
        let sinks = self.unqueued.iter();
        sinks.map(|sink| self.sinks[sink.index()].unqueued).sum()
    }

    /// Whether [`ActionUnit::take_unqueued`] has something to tell.
    #[inline]
    pub fn has_unqueued(&self) -> bool {
        !self.unqueued.is_empty()
    }

    /// Messages taken in.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Reads and clears what was kept of a flag, which frees its place in the queue.
    pub fn take_report(
        &mut self,
        sink: SinkId,
        kind: SinkKind,
        flag: ActionFlag,
    ) -> Option<FlagReport> {
        let state = self.sinks.get_mut(sink.index())?;
        let report = state.reports[flag as usize].take()?;
        self.channels[kind.channel()].release_report();
        Some(report)
    }

    /// What is kept of a flag, without clearing it.
    pub fn report(&self, sink: SinkId, flag: ActionFlag) -> Option<&FlagReport> {
        self.sinks.get(sink.index())?.reports[flag as usize].as_ref()
    }

    /// Actions in the places of a channel, kept reports included, and what is still there of sinks
    /// that are gone.
    pub fn fill(&self, kind: SinkKind) -> usize {
        self.channels[kind.channel()].fill()
    }

    /// The largest fill of a channel since it was last cleared.
    pub fn most_full(&self, kind: SinkKind) -> usize {
        self.channels[kind.channel()].most_full()
    }

    /// Starts the high-water mark of a channel anew from its present fill.
    pub fn clear_most_full(&mut self, kind: SinkKind) {
        self.channels[kind.channel()].clear_most_full();
    }

    /// Forgets counters and reports of a place whose sink is destroyed or newly created, and what
    /// waits there.
    pub fn clear_sink(&mut self, sink: SinkId, kind: SinkKind) {
        for flag in ActionFlag::ALL {
            self.take_report(sink, kind, flag);
        }
        self.unqueued.retain(|other| *other != sink);
        if let Some(state) = self.sinks.get_mut(sink.index()) {
            let queued = state.queued;
            *state = SinkState {
                life: state.life.wrapping_add(1),
                ..SinkState::default()
            };
            self.withdrawn += queued as u64;
            self.channels[kind.channel()].withdraw(queued, &self.sinks);
        }
    }

    /// Gives the actions at the heads of the channels their turns, once they are due; returns the
    /// channel that executes next, and when, as [`ActionUnit::next_channel`].
    #[inline]
    fn settle(&mut self, now: TaiNs) -> Option<(usize, TaiNs)> {
        let mut next: Option<(usize, TaiNs)> = None;
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if !channel.has_turns() {
                continue;
            }
            channel.settle(now, &mut self.sinks);
            if let Some(at) = channel.next_execution()
                && next.is_none_or(|(_, best)| at < best)
            {
                next = Some((index, at));
            }
        }
        next
    }

    /// The channel that executes next, and when; the lower channel of two at the same time.
    fn next_channel(&self) -> Option<(usize, TaiNs)> {
        let mut next: Option<(usize, TaiNs)> = None;
        for (index, channel) in self.channels.iter().enumerate() {
            if let Some(at) = channel.next_execution()
                && next.is_none_or(|(_, best)| at < best)
            {
                next = Some((index, at));
            }
        }
        next
    }
}

#[inline]
fn pending(
    entry: &WalkerEntry,
    message: &TimingMessage,
    arrived: TaiNs,
    at_channel: TaiNs,
    early_ns: u64,
    sequence: u64,
) -> Pending {
    let deadline = message.time.offset_by(entry.offset_ns);
    let flag = if deadline < at_channel {
        Some(ActionFlag::Late)
    } else if deadline.0 - at_channel.0 > early_ns {
        Some(ActionFlag::Early)
    } else {
        None
    };
    Pending {
        due: if flag.is_some() { at_channel } else { deadline },
        sequence,
        accept: entry.accept,
        action: Action {
            sink: entry.sink,
            kind: entry.kind,
            condition: entry.condition,
            tag: entry.tag,
            message: *message,
            arrived,
            deadline,
            executed: deadline,
            flag,
        },
    }
}
