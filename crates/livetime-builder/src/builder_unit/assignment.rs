//! Assignments: an event that is new here, or one that this unit has or had before.
//!
//! The event manager gives an event once, to one unit, and says so again when it has heard nothing of
//! it for long ([`BuilderConfig::probe`](crate::BuilderConfig::probe)). What a unit has closed is known
//! exactly of the last triggers ([`BuilderConfig::history`](crate::BuilderConfig::history)), but an event
//! may be much older when it comes here: it was in a slow filter unit, and its builder unit died. Then
//! the time of the assignment tells: no two have the same, and one that is said again keeps its own. So
//! an event is built however many triggers came after it, and none is built twice.
//!
//! ```text
//! in a slot         in work                               nothing to do
//! closed            the clear was lost, or is on its way  clear again
//! not closed        new                                   build
//! too old to know   of a time that was not heard yet      build
//!                   of one that was                       clear again
//!                   older than the times that are known:
//!                   - no message was ever missed          clear again
//!                   - one was (UDP, or a stream that    give up: counted, its fragments as well
//!                     was cut and made again)
//! ```

use std::collections::VecDeque;

use livetime_wire::message::{BuilderMessage, Envelope};
use livetime_wire::{RunNs, TriggerNumber};

use super::BuilderUnit;
use crate::event_assembly::{Event, Stage};
use crate::message_exchange::Handled;
use crate::trigger_history::Past;

/// Times of assignments that are known, for each credit of a unit: a burst whose messages come past each
/// other is known as a whole.
const TIMES_PER_CREDIT: usize = 4;

/// What the assignments of one event manager say of each other.
#[derive(Debug)]
pub(super) struct AssignmentOrder {
    /// The latest times of assignments that were heard, in their order.
    heard: VecDeque<RunNs>,
    most: usize,
    /// The latest time that was put out to make room.
    forgotten: RunNs,
    /// A message was missed: an assignment that is said again may be the first to come.
    has_gap: bool,
}

/// What an assignment is that is too old for the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// The first time that it is heard.
    New,
    /// Heard before.
    Repeated,
    /// Perhaps not heard before.
    Unclear,
}

impl AssignmentOrder {
    pub(super) fn new(credits: usize) -> Self {
        let most = TIMES_PER_CREDIT * credits;
        Self {
            heard: VecDeque::with_capacity(most + 1),
            most,
            forgotten: RunNs(0),
            has_gap: false,
        }
    }

    /// Another event manager begins.
    fn begin(&mut self) {
        self.heard.clear();
        self.forgotten = RunNs(0);
        self.has_gap = false;
    }

    fn age(&self, assigned_at: RunNs) -> Age {
        // Of an event that this unit has told the event manager to have.
        if assigned_at == RunNs(0) || self.heard.binary_search(&assigned_at).is_ok() {
            return Age::Repeated;
        }
        match (assigned_at > self.forgotten, self.has_gap) {
            (true, _) => Age::New,
            (false, false) => Age::Repeated,
            (false, true) => Age::Unclear,
        }
    }

    /// Notes the time of an assignment that was taken, most probably the latest.
    fn note(&mut self, assigned_at: RunNs) {
        if assigned_at <= self.forgotten {
            return;
        }
        let later = self.heard.iter().rev();
        let later = later.take_while(|time| **time > assigned_at).count();
        self.heard.insert(self.heard.len() - later, assigned_at);
        if self.heard.len() > self.most {
            self.forgotten = self.heard.pop_front().unwrap_or(self.forgotten);
        }
    }
}

impl BuilderUnit {
    /// Checks a message of the event manager, and whether one before it was missed; false when it is
    /// refused.
    pub(super) fn hear_manager(&mut self, envelope: &Envelope) -> bool {
        let messages = &mut self.counts.messages;
        let missing = messages.missing;
        let arrival = self.manager.receive(envelope, messages);
        self.order.has_gap |= messages.missing > missing;
        arrival.is_some()
    }

    /// Another event manager takes over: its messages have numbers of their own, its assignments times
    /// of another clock, and what it asks for again is what this unit said that it has.
    pub(super) fn welcome_manager(&mut self, epoch: u32) {
        self.manager.renew(0, epoch);
        self.order.begin();
        // The answer says that this unit has its credits.
        self.credits_to_request = false;
        self.credits_requested_at = None;
    }

    pub(super) fn handle_assignment(&mut self, now: RunNs, envelope: &Envelope) -> Handled {
        let BuilderMessage::Assignment {
            trigger,
            mask,
            triggered_at,
            assigned_at,
            builder_epoch,
        } = &envelope.message
        else {
            unreachable!("the kinds were sorted out before");
        };
        if !self.hear_manager(envelope) {
            return Handled::Refused;
        }
        if *builder_epoch != self.epoch && !self.takes_any_epoch() {
            // Meant for an earlier life of this unit: the event is another's by now.
            self.counts.assignments_foreign += 1;
            return Handled::Taken;
        }
        let event = Event {
            trigger: *trigger,
            mask: *mask,
            triggered_at: *triggered_at,
            assigned_at: *assigned_at,
            ..Event::VACANT
        };
        self.assign(now, event);
        Handled::Taken
    }

    fn assign(&mut self, now: RunNs, mut event: Event) {
        self.credits_requested_at = None;
        self.credits_to_request = false;
        let trigger = event.trigger;
        let slot = self.slots.get(trigger).copied();
        let early = slot.filter(|slot| self.assembly.event(*slot).is_early);
        if slot.is_some() && early.is_none() {
            self.counts.assignments_repeated += 1;
            return;
        }
        let age = match self.history.past(trigger) {
            Past::Open => Age::New,
            Past::Closed(_) => Age::Repeated,
            Past::Forgotten => self.order.age(event.assigned_at),
        };
        if age == Age::Repeated {
            self.counts.assignments_repeated += 1;
            self.clear_again(trigger);
            return;
        }
        let is_full = early.is_none() && self.slots.is_full();
        if trigger.0 == 0 || is_full && !self.evict_early() {
            self.counts.assignments_refused += 1;
            return;
        }
        self.order.note(event.assigned_at);
        self.counts.assignments += 1;
        // Assignments of one instant are a nanosecond apart, but none comes before it was made.
        event.assigned_at = event.assigned_at.min(now);
        let slot = match early {
            Some(slot) => self.assign_early(now, slot, event),
            None => self.begin(now, event),
        };
        self.counts.assignments_too_old += u64::from(age == Age::Unclear);
        if self.ending || age == Age::Unclear {
            self.give_up(slot);
            return;
        }
        let event = self.assembly.event(slot);
        self.timeout_at = self.timeout_at.min(event.deadline).min(event.retry_at);
        if event.received as usize >= self.sources.len() {
            self.complete(now, slot);
            return;
        }
        if !self.is_pushed {
            self.waiting.push_back(slot);
        }
        self.close_without_absent(now, slot);
    }

    /// Puts a new event into a slot.
    fn begin(&mut self, now: RunNs, event: Event) -> u32 {
        // Fragments that are pushed may come at any time; only if they do not are they asked for.
        let (stage, retry_at) = match self.is_pushed {
            true => (Stage::Building, now.after(self.retry)),
            false => (Stage::Waiting, RunNs::MAX),
        };
        self.open(Event {
            stage,
            deadline: now.after(self.timeout),
            retry_at,
            is_first_step: !self.in_first_step.is_empty(),
            ..event
        })
    }

    /// Remembers to clear an event again; without room the event manager asks once more.
    fn clear_again(&mut self, trigger: TriggerNumber) {
        if self.clears_again.len() < self.credits as usize && !self.clears_again.contains(&trigger)
        {
            self.clears_again.push_back(trigger);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_is_known_by_its_time_however_the_messages_come() {
        let mut order = AssignmentOrder::new(1);
        let ages =
            |order: &AssignmentOrder, times: [u64; 3]| times.map(|time| order.age(RunNs(time)));
        for time in [5, 8, 6, 9] {
            assert_eq!(order.age(RunNs(time)), Age::New);
            order.note(RunNs(time));
            assert_eq!(order.age(RunNs(time)), Age::Repeated);
        }
        assert_eq!(ages(&order, [4, 7, 10]), [Age::New; 3]);
        order.note(RunNs(10));
        assert_eq!(order.forgotten, RunNs(5));
        assert_eq!(ages(&order, [4, 5, 6]), [Age::Repeated; 3]);
        order.note(RunNs(1));
        assert_eq!((order.forgotten, order.heard.len()), (RunNs(5), 4));
        order.has_gap = true;
        assert_eq!(ages(&order, [3, 4, 5]), [Age::Unclear; 3]);
        assert_eq!(ages(&order, [0, 6, 10]), [Age::Repeated; 3]);
        assert_eq!(ages(&order, [7, 11, 99]), [Age::New; 3]);
        order.begin();
        assert_eq!(ages(&order, [4, 5, 6]), [Age::New; 3]);
    }
}
