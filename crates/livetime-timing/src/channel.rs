//! One channel: a bounded queue of pending actions by deadline, and the output behind it.
//!
//! The rules are told in [`crate::action_unit`], which owns four of these.

use livetime_wire::TaiNs;

use crate::action_unit::{Action, CYCLE_NS, FlagReport, SinkState};
use crate::flag::{ActionFlag, FlagSet};

mod turn_queue;

use turn_queue::{Turn, TurnQueue};

/// An action waiting for its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    /// When it leaves the queue: its deadline, or its arrival if it is late or early.
    pub(crate) due: TaiNs,
    /// Order of arrival.
    pub(crate) sequence: u64,
    pub(crate) accept: FlagSet,
    pub(crate) action: Action,
}

/// What lies in a place of the queue.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    accept: FlagSet,
    /// Its sink, among those that have the place one after the other.
    life: u32,
    action: Action,
}

impl Waiting {
    /// Whether the sink that it is meant for is gone.
    #[inline]
    fn is_withdrawn(&self, sinks: &[SinkState]) -> bool {
        sinks[self.action.sink.index()].life != self.life
    }
}

#[derive(Debug)]
pub(crate) struct Channel {
    turns: TurnQueue,
    /// The actions by place, and the places that are free.
    actions: Vec<Waiting>,
    free: Vec<u32>,
    capacity: usize,
    /// Those in the queue whose sinks are gone.
    withdrawn: usize,
    /// Reports of flagged actions that nobody has read.
    reports: usize,
    most_full: usize,
    /// The deadline settled last, and how many actions it has had.
    list: Option<(TaiNs, u64)>,
    /// Nothing leaves before this.
    blocked_until: TaiNs,
}

impl Channel {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            turns: TurnQueue::new(capacity),
            actions: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            capacity,
            withdrawn: 0,
            reports: 0,
            most_full: 0,
            list: None,
            blocked_until: TaiNs(0),
        }
    }

    /// Queues an action of the sink that is this one at its place; `false` if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, pending: Pending, life: u32) -> bool {
        if self.fill() >= self.capacity {
            return false;
        }
        let waiting = Waiting {
            accept: pending.accept,
            life,
            action: pending.action,
        };
        // The place freed last is the one still in the cache.
        let place = match self.free.pop() {
            Some(place) => {
                self.actions[place as usize] = waiting;
                place
            }
            None => {
                self.actions.push(waiting);
                self.actions.len() as u32 - 1
            }
        };
        self.turns.push(Turn {
            due: pending.due,
            sequence: pending.sequence,
            place,
            settled: false,
        });
        self.most_full = self.most_full.max(self.fill());
        true
    }

    /// Whether actions wait.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        self.turns.len() > 0
    }

    #[inline]
    pub(crate) fn fill(&self) -> usize {
        self.turns.len() + self.reports
    }

    /// Places that nothing is in.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.capacity.saturating_sub(self.fill())
    }

    pub(crate) fn most_full(&self) -> usize {
        self.most_full
    }

    pub(crate) fn clear_most_full(&mut self) {
        self.most_full = self.fill();
    }

    pub(crate) fn release_report(&mut self) {
        self.reports = self.reports.saturating_sub(1);
    }

    pub(crate) fn stall(&mut self, until: TaiNs) {
        self.blocked_until = self.blocked_until.max(until);
    }

    /// The sink of so many actions is gone, and none of them is executed.
    ///
    /// They leave the queue when they are due, or all together once they are more than half of what
    /// waits: so one costs no more than its way in, however often sinks come and go, and they never
    /// hold more places than the others.
    pub(crate) fn withdraw(&mut self, count: usize, sinks: &[SinkState]) {
        self.withdrawn += count;
        if 2 * self.withdrawn <= self.turns.len() {
            return;
        }
        let (actions, free) = (&self.actions, &mut self.free);
        self.turns.retain(|turn| {
            let is_withdrawn = actions[turn.place as usize].is_withdrawn(sinks);
            if is_withdrawn {
                free.push(turn.place);
            }
            !is_withdrawn
        });
        self.withdrawn = 0;
    }

    /// Gives the action at the head its turn among those of the same deadline, once it is due;
    /// those whose sinks are gone leave the queue there, and take nobody's turn.
    ///
    /// Late and early actions have their flag and are in nobody's list.
    #[inline]
    pub(crate) fn settle(&mut self, now: TaiNs, sinks: &mut [SinkState]) {
        while let Some(first) = self.turns.first()
            && first.due <= now
        {
            let mut turn = *first;
            let waiting = &mut self.actions[turn.place as usize];
            if self.withdrawn > 0 && waiting.is_withdrawn(sinks) {
                self.withdrawn -= 1;
                self.turns.pop();
                self.free.push(turn.place);
                continue;
            }
            if turn.settled {
                return;
            }
            turn.settled = true;
            let action = &mut waiting.action;
            if action.flag.is_some() {
                self.turns.replace_first(turn);
                continue;
            }
            let deadline = action.deadline;
            let position = match self.list {
                Some((listed, count)) if listed == deadline => count,
                _ => 0,
            };
            self.list = Some((deadline, position + 1));
            turn.due = TaiNs(deadline.0.saturating_add(position.saturating_mul(CYCLE_NS)));
            let sink = &mut sinks[action.sink.index()];
            action.flag = if sink.last_deadline == Some(deadline) {
                Some(ActionFlag::Conflict)
            } else {
                (position > 0).then_some(ActionFlag::Delayed)
            };
            sink.last_deadline = Some(deadline);
            self.turns.replace_first(turn);
        }
    }

    /// When to look at the first action of the queue; exact once it is settled.
    #[inline]
    pub(crate) fn next_execution(&self) -> Option<TaiNs> {
        let first = self.turns.first()?;
        Some(first.due.max(self.blocked_until))
    }

    /// Executes the first action, settled, at the time of [`Channel::next_execution`]; also says
    /// whether its condition accepts it.
    #[inline]
    pub(crate) fn pop(
        &mut self,
        executed: TaiNs,
        sinks: &mut [SinkState],
    ) -> Option<(Action, bool)> {
        let Turn { due, place, .. } = self.turns.pop()?;
        self.free.push(place);
        let Waiting {
            accept, mut action, ..
        } = self.actions[place as usize];
        action.executed = executed;
        if executed > due {
            // What a stall has held back leaves one per cycle.
            self.blocked_until = TaiNs(executed.0.saturating_add(CYCLE_NS));
            action.flag = action.flag.or(Some(ActionFlag::Delayed));
        }
        let sink = &mut sinks[action.sink.index()];
        sink.queued -= 1;
        let accepted = action.flag.is_none_or(|flag| accept.contains(flag));
        if let Some(flag) = action.flag {
            self.count_flag(&action, flag, sink);
        }
        if accepted {
            sink.counters.delivered += 1;
        } else {
            sink.counters.refused += 1;
        }
        Some((action, accepted))
    }

    fn count_flag(&mut self, action: &Action, flag: ActionFlag, sink: &mut SinkState) {
        sink.counters.flagged[flag as usize] += 1;
        match &mut sink.reports[flag as usize] {
            Some(report) => report.count += 1,
            empty => {
                *empty = Some(FlagReport {
                    count: 1,
                    first: *action,
                });
                // The action has just left its place, so there is one.
                self.reports += 1;
            }
        }
    }
}
