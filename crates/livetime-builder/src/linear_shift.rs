//! The linear shift: whole fragments to one builder unit after the other, with a barrier after each
//! phase, as the alternative to the barrel shifter.
//!
//! In phase `p` a readout unit sends what waits for its receiver of that phase, up to a bound, then
//! says that it is through and waits until all are. No clock and no equal sizes are needed, and the
//! slowest sender of each phase sets the pace. Phases carry numbers, so that a message that is lost
//! is repeated and one that comes twice changes nothing. Who meets whom is in
//! [`crate::shift_schedule`], who says that a phase begins in [`crate::phase_barrier`].
//!
//! A readout unit that is through says whether anything waits. As long as nothing does, anywhere, no
//! phase begins, and no message is sent: phases cost nothing while there is nothing to shift.

use std::collections::VecDeque;

use livetime_wire::message::PhaseDemand;
use livetime_wire::{DurationNs, RunNs, SourceId, TriggerNumber};

use crate::barrel_shifter::QueueFull;
use crate::shift_schedule::ShiftSchedule;

/// A fragment whose turn it is; it is sent whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShiftFragment {
    /// Index of the builder unit.
    pub to: u16,
    /// Of which trigger.
    pub trigger: TriggerNumber,
    /// Of which source.
    pub source: SourceId,
    /// Its payload bytes.
    pub bytes: u32,
}

/// What a sender wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShiftOutput {
    /// Send a whole fragment.
    Send(ShiftFragment),
    /// Tell the barrier that this sender is through with a phase.
    Through {
        /// Which phase.
        phase: u64,
        /// Whether something waits for a later one.
        demand: PhaseDemand,
    },
}

/// What a sender did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinearShiftCounts {
    /// Phases in which it sent fragments.
    pub phases: u64,
    /// Phases of a receiver for which nothing waited, while something did for others.
    pub phases_empty: u64,
    /// Phases that were over when it heard of a later one, while something waited.
    pub phases_missed: u64,
    /// Fragments sent.
    pub fragments: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// Times that it said again that it was through, since nothing followed or it was asked.
    pub repetitions: u64,
}

/// A readout unit's side.
#[derive(Debug)]
pub struct LinearShift {
    schedule: ShiftSchedule,
    sender: u16,
    queues: Vec<VecDeque<(TriggerNumber, SourceId, u32)>>,
    /// Fragments in all of them.
    waiting: usize,
    queue_max: usize,
    phase_bytes: u32,
    phase: u64,
    sent_bytes: u32,
    /// What it has said at the end of this phase; `None` before.
    said: Option<PhaseDemand>,
    /// The barrier asks for what it has said.
    is_asked: bool,
    /// When it says so again, if something waits.
    repeat_at: RunNs,
    retry: DurationNs,
    counts: LinearShiftCounts,
}

impl LinearShift {
    /// The side of sender `sender`. In a phase it sends fragments until `phase_bytes` are reached
    /// (the last one may exceed them); while something waits it says again after `retry` that it is
    /// through.
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
            waiting: 0,
            queue_max,
            phase_bytes,
            phase: 0,
            sent_bytes: 0,
            said: None,
            is_asked: false,
            repeat_at: RunNs(0),
            retry,
            counts: LinearShiftCounts::default(),
        }
    }

    /// Begins its next life: in phase 0, with nothing to send.
    pub fn begin_again(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        (self.waiting, self.phase, self.sent_bytes) = (0, 0, 0);
        (self.said, self.is_asked) = (None, false);
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
        self.waiting += 1;
        Ok(())
    }

    /// Whom it sends to now; `None` where it rests, or has said that it is through.
    pub fn receiver(&self) -> Option<u16> {
        match self.said {
            None => self.schedule.receiver(self.sender, self.phase),
            Some(_) => None,
        }
    }

    /// Whether it has a fragment that may be sent in this phase.
    pub fn has_fragment(&self) -> bool {
        let waits = |to: u16| !self.queues[usize::from(to)].is_empty();
        self.sent_bytes < self.phase_bytes && self.receiver().is_some_and(waits)
    }

    /// The next fragment of this phase.
    pub fn poll_fragment(&mut self) -> Option<ShiftFragment> {
        let to = self.receiver().filter(|_| self.has_fragment())?;
        let (trigger, source, bytes) = self.queues[usize::from(to)].pop_front()?;
        self.waiting -= 1;
        self.counts.phases += u64::from(self.sent_bytes == 0);
        self.sent_bytes = self.sent_bytes.saturating_add(bytes.max(1));
        self.counts.fragments += 1;
        self.counts.payload_bytes += u64::from(bytes);
        Some(ShiftFragment {
            to,
            trigger,
            source,
            bytes,
        })
    }

    /// What the barrier is to be told, if it is time for it. Ask when the link has taken what was
    /// sent in this phase, or is not waited for any longer: the phase is over for this sender then.
    pub fn poll_through(&mut self, now: RunNs) -> Option<ShiftOutput> {
        let demand = match self.waiting {
            0 => PhaseDemand::Idle,
            _ => PhaseDemand::Waiting,
        };
        let is_waiting = demand == PhaseDemand::Waiting;
        match self.said {
            None => {
                let is_empty = self.sent_bytes == 0 && self.receiver().is_some();
                self.counts.phases_empty += u64::from(is_empty && is_waiting);
            }
            // Something has come meanwhile.
            Some(PhaseDemand::Idle) if is_waiting => {}
            Some(_) if self.is_asked || (is_waiting && now >= self.repeat_at) => {
                self.counts.repetitions += 1;
            }
            Some(_) => return None,
        }
        self.said = Some(demand);
        self.is_asked = false;
        self.repeat_at = now.after(self.retry);
        let phase = self.phase;
        Some(ShiftOutput::Through { phase, demand })
    }

    /// What the barrier was to be told could not be sent: it is to be told the next time.
    pub fn take_back_through(&mut self) {
        self.is_asked = self.said.is_some();
    }

    /// The next thing to do; `None` while it waits for the others. Ask when the link is idle.
    pub fn poll_output(&mut self, now: RunNs) -> Option<ShiftOutput> {
        match self.poll_fragment() {
            Some(fragment) => Some(ShiftOutput::Send(fragment)),
            None => self.poll_through(now),
        }
    }

    /// All are through with the phases before `phase`, which begins. The one that it is in already
    /// asks whether it is through. Earlier ones change nothing.
    pub fn handle_phase(&mut self, phase: u64) {
        if phase > self.phase {
            // One that begins in a run that goes on was in none of them.
            if self.waiting > 0 && self.phase > 0 {
                self.counts.phases_missed += phase - self.phase - 1;
            }
            self.phase = phase;
            self.sent_bytes = 0;
            self.said = None;
            self.is_asked = false;
        } else if phase == self.phase && self.said.is_some() {
            self.is_asked = true;
        }
    }

    /// When it has something to do though nothing comes: [`RunNs::MAX`] while nothing waits.
    pub fn poll_timeout(&self) -> RunNs {
        match self.said {
            None => RunNs(0),
            Some(_) if self.is_asked => RunNs(0),
            Some(PhaseDemand::Idle) if self.waiting > 0 => RunNs(0),
            Some(_) if self.waiting > 0 => self.repeat_at,
            Some(_) => RunNs::MAX,
        }
    }

    /// The phase that it is in.
    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// What it did.
    pub fn counts(&self) -> &LinearShiftCounts {
        &self.counts
    }

    /// Fragments that wait, for all receivers together.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes away what waits for a receiver that is lost; returns how many fragments.
    pub fn withdraw(&mut self, to: u16) -> usize {
        let Some(queue) = self.queues.get_mut(usize::from(to)) else {
            return 0;
        };
        let withdrawn = queue.len();
        queue.clear();
        self.waiting -= withdrawn;
        withdrawn
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::phase_barrier::PhaseBarrier;

    const PATIENCE: DurationNs = DurationNs(u64::MAX);

    fn through(phase: u64, demand: PhaseDemand) -> Option<ShiftOutput> {
        Some(ShiftOutput::Through { phase, demand })
    }

    #[test]
    fn it_says_once_that_nothing_waits_and_again_only_while_something_does() {
        let schedule = ShiftSchedule::in_order(1, 2);
        let mut shift = LinearShift::new(schedule, 0, 1000, 4, DurationNs(10));
        assert_eq!(shift.poll_output(RunNs(1)), through(0, PhaseDemand::Idle));
        assert_eq!(shift.poll_timeout(), RunNs::MAX);
        assert_eq!(shift.poll_output(RunNs(1000)), None);
        // Of the next phase: that is said at once, and again after a while.
        shift.push(1, TriggerNumber(1), SourceId(1), 5).unwrap();
        assert_eq!(shift.poll_timeout(), RunNs(0));
        let waiting = through(0, PhaseDemand::Waiting);
        assert_eq!(shift.poll_output(RunNs(1001)), waiting);
        assert_eq!(shift.poll_output(RunNs(1010)), None);
        assert_eq!(shift.poll_timeout(), RunNs(1011));
        assert_eq!(shift.poll_output(RunNs(1011)), waiting);
        // What could not be sent is said the next time; who asks is answered.
        shift.take_back_through();
        assert_eq!(shift.poll_output(RunNs(1012)), waiting);
        shift.handle_phase(0);
        assert_eq!(shift.poll_output(RunNs(1013)), waiting);
        assert_eq!(shift.counts().repetitions, 3);
        shift.handle_phase(1);
        assert_eq!(shift.receiver(), Some(1));
        let sent = shift.poll_output(RunNs(1014));
        assert!(matches!(sent, Some(ShiftOutput::Send(fragment)) if fragment.bytes == 5));
        // An old phase, heard late.
        shift.handle_phase(0);
        assert_eq!(
            shift.poll_output(RunNs(1015)),
            through(1, PhaseDemand::Idle)
        );
        assert_eq!(shift.poll_output(RunNs(9999)), None);
    }

    #[test]
    fn a_phase_holds_so_many_bytes_and_what_is_late_for_one_is_counted() {
        let schedule = ShiftSchedule::in_order(1, 3);
        let mut shift = LinearShift::new(schedule, 0, 1000, 4, DurationNs(10));
        for trigger in 1..=4 {
            let pushed = shift.push(0, TriggerNumber(trigger), SourceId(1), 600);
            assert_eq!(pushed, Ok(()));
        }
        let full = QueueFull { to: 0, held: 4 };
        let pushed = shift.push(0, TriggerNumber(5), SourceId(1), 1);
        assert_eq!(pushed, Err(full));
        // The second one exceeds them.
        let sent = std::iter::from_fn(|| shift.poll_fragment()).count();
        assert_eq!((sent, shift.has_fragment()), (2, false));
        let waiting = through(0, PhaseDemand::Waiting);
        assert_eq!(shift.poll_through(RunNs(0)), waiting);
        assert_eq!(shift.receiver(), None, "it has said so");
        shift.handle_phase(1);
        assert!(shift.poll_through(RunNs(0)).is_some());
        // It did not hear of phase 2.
        shift.handle_phase(3);
        // It was not in those before the one that it is told of first.
        let mut late = LinearShift::new(ShiftSchedule::in_order(1, 3), 0, 1, 4, DurationNs(1));
        late.push(0, TriggerNumber(1), SourceId(1), 1).unwrap();
        late.handle_phase(1000);
        assert_eq!(late.counts().phases_missed, 0);
        let counts = *shift.counts();
        assert_eq!((counts.phases, counts.phases_empty), (1, 1));
        assert_eq!((counts.phases_missed, counts.payload_bytes), (1, 1200));
        assert_eq!(shift.withdraw(0), 2);
        assert!(shift.is_empty() && shift.waiting() == 0);
    }

    proptest! {
        /// Messages to and from the barrier are lost and repeated: no two senders are ever at one
        /// receiver, every fragment is sent once, in the order of its pair, and in the end nobody
        /// says anything.
        #[test]
        fn senders_never_meet_whatever_the_barrier_hears(
            fragments in prop::collection::vec((0..4_u16, 0..3_u16, 0..2000_u32, 0..300_u64), 1..120),
            seed: u64,
        ) {
            let schedule = ShiftSchedule::in_order(4, 3);
            let mut senders: Vec<_> = (0..4)
                .map(|n| LinearShift::new(schedule.clone(), n, 1500, 200, DurationNs(10)))
                .collect();
            let mut barrier = PhaseBarrier::new(4, PATIENCE);
            let mut expected = vec![Vec::new(); 12];
            let mut coming = fragments.clone();
            coming.sort_by_key(|(.., at)| *at);
            let mut coming = (1..).zip(coming).peekable();
            let mut came = vec![Vec::new(); 12];
            // SplitMix64 (Steele, Lea, Flood 2014): 0 to 3, where 0 is a loss.
            let mut state = seed;
            let mut luck = || {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                (z ^ (z >> 27)) >> 62
            };
            let mut now = 0;
            while coming.peek().is_some() || senders.iter().any(|sender| !sender.is_empty()) {
                now += 10;
                prop_assert!(now < 1_000_000, "no progress");
                while let Some((trigger, (from, to, bytes, _))) =
                    coming.next_if(|(_, (.., at))| 10 * at <= now)
                {
                    let at = usize::from(from);
                    senders[at].push(to, TriggerNumber(trigger), SourceId(1), bytes).unwrap();
                    expected[at * 3 + usize::from(to)].push(trigger);
                }
                for at in 0..4 {
                    while let Some(output) = senders[at].poll_output(RunNs(now)) {
                        match output {
                            ShiftOutput::Send(ShiftFragment { to, trigger, .. }) => {
                                // Nobody else may be in a phase that uses this receiver.
                                for other in (0..4).filter(|other| *other != at) {
                                    prop_assert!(senders[other].receiver() != Some(to));
                                }
                                came[at * 3 + usize::from(to)].push(trigger.0);
                            }
                            ShiftOutput::Through { phase, demand } => {
                                for _ in 0..luck() {
                                    barrier.handle_through(RunNs(now), at, phase, demand);
                                }
                                while let Some((to, phase)) = barrier.poll_output() {
                                    for _ in 0..luck() {
                                        senders[to].handle_phase(phase);
                                    }
                                }
                                break;
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(came, expected);
            // What was asked is answered, and a phase that has begun is gone through; then there is
            // nothing to be said.
            for sender in &mut senders {
                let said = std::iter::from_fn(|| sender.poll_output(RunNs(now + 1000)));
                prop_assert!(said.take(3).count() <= 1);
                prop_assert_eq!(sender.poll_output(RunNs(now + 1_000_000)), None);
            }
        }
    }
}
