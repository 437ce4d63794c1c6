//! The linear shift: whole fragments to one builder unit after the other, with a barrier after each
//! phase, as the alternative to the barrel shifter.
//!
//! In phase `p` a readout unit sends what waits for its receiver of that phase, up to a bound, then
//! says that it is through and waits until all are. No clock and no equal sizes are needed, and the
//! slowest sender of each phase sets the pace. Phases carry numbers, so that a message that is lost
//! is repeated and one that comes twice changes nothing. Who meets whom is in
//! [`crate::shift_schedule`].

use std::collections::VecDeque;

use livetime_wire::{DurationNs, RunNs, SourceId, TriggerNumber};

use crate::barrel_shifter::QueueFull;
use crate::shift_schedule::ShiftSchedule;

/// What a sender wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShiftOutput {
    /// Send a whole fragment.
    Send {
        /// Index of the builder unit.
        to: u16,
        /// Of which trigger.
        trigger: TriggerNumber,
        /// Of which source.
        source: SourceId,
        /// Its payload bytes.
        bytes: u32,
    },
    /// Tell the barrier that this sender is through with a phase.
    Through {
        /// Which phase.
        phase: u64,
    },
}

/// A readout unit's side.
#[derive(Debug)]
pub struct LinearShift {
    schedule: ShiftSchedule,
    sender: u16,
    queues: Vec<VecDeque<(TriggerNumber, SourceId, u32)>>,
    queue_max: usize,
    phase_bytes: u32,
    phase: u64,
    sent_bytes: u32,
    /// It has said, or must say, that it is through.
    is_through: bool,
    /// When it says so again.
    repeat_at: RunNs,
    retry: DurationNs,
    /// Fragments sent.
    fragments: u64,
}

impl LinearShift {
    /// The side of sender `sender`. In a phase it sends fragments until `phase_bytes` are reached
    /// (the last one may exceed them); it says again after `retry` that it is through.
    ///
    /// # Panics
    /// If the schedule has no such sender.
    pub fn new(
        schedule: ShiftSchedule,
        sender: u16,
        phase_bytes: u32,
        queue_max: usize,
        retry: DurationNs,
    ) -> Self {
        assert!(usize::from(sender) < schedule.senders(), "sender {sender}");
        let receivers = usize::from(schedule.receivers());
        Self {
            schedule,
            sender,
            queues: (0..receivers)
                .map(|_| VecDeque::with_capacity(queue_max))
                .collect(),
            queue_max,
            phase_bytes,
            phase: 0,
            sent_bytes: 0,
            is_through: false,
            repeat_at: RunNs(0),
            retry,
            fragments: 0,
        }
    }

    /// A fragment is to be sent.
    ///
    /// # Errors
    /// [`QueueFull`]; the caller keeps it.
    ///
    /// # Panics
    /// If there is no such receiver.
    pub fn push(
        &mut self,
        to: u16,
        trigger: TriggerNumber,
        source: SourceId,
        bytes: u32,
    ) -> Result<(), QueueFull> {
        let queue = &mut self.queues[usize::from(to)];
        if queue.len() >= self.queue_max {
            let held = queue.len();
            return Err(QueueFull { to, held });
        }
        queue.push_back((trigger, source, bytes));
        Ok(())
    }

    /// The next thing to do; `None` while it waits for the others.
    pub fn poll_output(&mut self, now: RunNs) -> Option<ShiftOutput> {
        if !self.is_through {
            let to = self.schedule.receiver(self.sender, self.phase);
            if let Some(to) = to
                && self.sent_bytes < self.phase_bytes
                && let Some((trigger, source, bytes)) = self.queues[usize::from(to)].pop_front()
            {
                self.sent_bytes = self.sent_bytes.saturating_add(bytes.max(1));
                self.fragments += 1;
                return Some(ShiftOutput::Send {
                    to,
                    trigger,
                    source,
                    bytes,
                });
            }
            self.is_through = true;
        } else if now < self.repeat_at {
            return None;
        }
        self.repeat_at = now.after(self.retry);
        Some(ShiftOutput::Through { phase: self.phase })
    }

    /// All are through with the phases before `phase`, which begins. Repetitions change nothing.
    pub fn handle_phase(&mut self, phase: u64) {
        if phase > self.phase {
            self.phase = phase;
            self.sent_bytes = 0;
            self.is_through = false;
        }
    }

    /// When it says again that it is through.
    pub fn poll_timeout(&self) -> RunNs {
        match self.is_through {
            true => self.repeat_at,
            false => RunNs(0),
        }
    }

    /// The phase that it is in.
    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// Fragments sent.
    pub fn fragments(&self) -> u64 {
        self.fragments
    }

    /// Fragments that wait, for all receivers together.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Takes away what waits for a receiver that is lost; returns how many fragments.
    pub fn withdraw(&mut self, to: u16) -> usize {
        let Some(queue) = self.queues.get_mut(usize::from(to)) else {
            return 0;
        };
        let withdrawn = queue.len();
        queue.clear();
        withdrawn
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }
}

/// The barrier: whoever says when the next phase begins. The event manager's host, for one.
#[derive(Debug)]
pub struct PhaseBarrier {
    phase: u64,
    through: Vec<bool>,
    waiting: usize,
}

impl PhaseBarrier {
    /// For so many senders, in phase 0.
    pub fn new(senders: usize) -> Self {
        Self {
            phase: 0,
            through: vec![false; senders],
            waiting: senders,
        }
    }

    /// A sender is through with a phase; returns the phase that it is to be in if that is a later
    /// one: the sender did not hear. Once all are through, the next phase begins, and the new
    /// [`PhaseBarrier::phase`] is to be told to all.
    pub fn handle_through(&mut self, sender: usize, phase: u64) -> Option<u64> {
        if phase < self.phase {
            return Some(self.phase);
        }
        if phase == self.phase
            && let Some(through) = self.through.get_mut(sender)
            && !std::mem::replace(through, true)
        {
            self.waiting -= 1;
        }
        if self.waiting == 0 {
            self.phase += 1;
            self.through.fill(false);
            self.waiting = self.through.len();
        }
        None
    }

    /// The phase that all are to be in.
    pub fn phase(&self) -> u64 {
        self.phase
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Messages to and from the barrier are lost and repeated: no two senders are ever at one
        /// receiver, and every fragment is sent once, in the order of its pair.
        #[test]
        fn senders_never_meet_whatever_the_barrier_hears(
            fragments in prop::collection::vec((0..4_u16, 0..3_u16, 0..2000_u32), 1..120),
            seed: u64,
        ) {
            let schedule = ShiftSchedule::in_order(4, 3);
            let mut senders: Vec<_> = (0..4)
                .map(|n| LinearShift::new(schedule.clone(), n, 1500, 200, DurationNs(10)))
                .collect();
            let mut barrier = PhaseBarrier::new(4);
            let mut expected = vec![Vec::new(); 12];
            for (trigger, (from, to, bytes)) in (1..).zip(&fragments) {
                let at = usize::from(*from);
                senders[at].push(*to, TriggerNumber(trigger), SourceId(1), *bytes).unwrap();
                expected[at * 3 + usize::from(*to)].push(trigger);
            }
            let mut came = vec![Vec::new(); 12];
            // SplitMix64 (Steele, Lea, Flood 2014): 0 to 3, where 0 is a loss.
            let mut state = seed;
            let mut luck = || {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                (z ^ (z >> 27)) >> 62
            };
            let mut now = 0;
            while senders.iter().any(|sender| !sender.is_empty()) {
                now += 10;
                prop_assert!(now < 1_000_000, "no progress");
                for at in 0..4 {
                    while let Some(output) = senders[at].poll_output(RunNs(now)) {
                        match output {
                            ShiftOutput::Send { to, trigger, .. } => {
                                // Nobody else may be in a phase that uses this receiver.
                                for other in (0..4).filter(|other| *other != at) {
                                    let phase = senders[other].phase();
                                    let theirs = schedule.receiver(other as u16, phase);
                                    let is_sending = !senders[other].is_through;
                                    prop_assert!(!is_sending || theirs != Some(to));
                                }
                                came[at * 3 + usize::from(to)].push(trigger.0);
                            }
                            ShiftOutput::Through { phase } => {
                                let copies = luck();
                                for _ in 0..copies {
                                    let before = barrier.phase();
                                    let told = barrier.handle_through(at, phase);
                                    if let Some(phase) = told {
                                        senders[at].handle_phase(phase);
                                    }
                                    if barrier.phase() > before {
                                        for sender in &mut senders {
                                            if luck() != 0 {
                                                sender.handle_phase(barrier.phase());
                                            }
                                        }
                                    }
                                }
                                break;
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(came, expected);
        }
    }
}
