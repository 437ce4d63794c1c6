//! The wake-up of a node: a timeout that moves, kept as few events in the queue.
//!
//! A core says after each input when it wants to be woken (`poll_timeout`), and the time moves
//! with most inputs. Scheduling each would leave a dead event in the queue for every input;
//! [`WakeUp`] schedules only a deadline earlier than all that are already scheduled, and asks when
//! one fires whether it is still due. So no event of it is wasted but one per time the deadline
//! moved away, and the queue holds a falling list of times per node, usually one.
//!
//! Use: `if let Some(at) = wake_up.arm(deadline) { scheduler.at(at, class, event) }` after each
//! input; when that event comes, `if wake_up.fire(now) { core.handle_timeout(now) }` and arm
//! again in any case.

use crate::time::SimPs;

/// What a node has scheduled for its own timeouts.
#[derive(Debug, Clone, Default)]
pub struct WakeUp {
    deadline: Option<SimPs>,
    /// Times of the events in the queue, each before the one below it.
    scheduled: Vec<SimPs>,
}

impl WakeUp {
    /// Nothing wanted, nothing scheduled.
    pub const fn new() -> Self {
        Self {
            deadline: None,
            scheduled: Vec::new(),
        }
    }

    /// Sets the deadline, `None` for no timeout at all. Returns the time at which an event must be
    /// scheduled for it, if none of those in the queue will do.
    #[must_use = "the wake-up comes only if an event is scheduled at this time"]
    pub fn arm(&mut self, deadline: Option<SimPs>) -> Option<SimPs> {
        self.deadline = deadline;
        let wanted = deadline?;
        if self.scheduled.last().is_some_and(|next| *next <= wanted) {
            return None;
        }
        self.scheduled.push(wanted);
        Some(wanted)
    }

    /// A scheduled event has come. Returns whether the deadline has been reached; arm again
    /// afterwards in either case.
    #[must_use = "the timeout is to be handled only if it is due"]
    pub fn fire(&mut self, now: SimPs) -> bool {
        // An event from before a node's death may come to its successor, which has not scheduled
        // it: then nothing is due that is scheduled for later.
        if self.scheduled.last().is_some_and(|next| *next <= now) {
            self.scheduled.pop();
        }
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The deadline as last set.
    pub const fn deadline(&self) -> Option<SimPs> {
        self.deadline
    }

    /// Number of events in the queue.
    pub fn scheduled(&self) -> usize {
        self.scheduled.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_moves_away_costs_one_event() {
        let mut wake_up = WakeUp::new();
        assert_eq!(wake_up.arm(Some(SimPs(100))), Some(SimPs(100)));
        for later in 101..200 {
            assert_eq!(wake_up.arm(Some(SimPs(later))), None);
        }
        assert!(!wake_up.fire(SimPs(100)), "fires early, is not due");
        assert_eq!(wake_up.arm(wake_up.deadline()), Some(SimPs(199)));
        assert!(wake_up.fire(SimPs(199)));
        assert_eq!(wake_up.arm(None), None);
        assert_eq!(wake_up.scheduled(), 0);
    }

    #[test]
    fn near_and_far_deadlines_in_turn_leave_no_trail() {
        let mut wake_up = WakeUp::new();
        let far = Some(SimPs(1_000_000));
        assert_eq!(wake_up.arm(far), far);
        for near in (10..1_000).step_by(10).map(SimPs) {
            assert_eq!(wake_up.arm(Some(near)), Some(near));
            assert!(wake_up.fire(near));
            assert_eq!(wake_up.arm(far), None, "the far event is still there");
            assert_eq!(wake_up.scheduled(), 1);
        }
    }

    #[test]
    fn an_event_of_a_former_life_is_not_due() {
        let mut wake_up = WakeUp::new();
        assert!(!wake_up.fire(SimPs(5)));
        assert_eq!(wake_up.arm(Some(SimPs(9))), Some(SimPs(9)));
        assert!(!wake_up.fire(SimPs(6)));
        assert!(wake_up.fire(SimPs(9)));
    }
}
