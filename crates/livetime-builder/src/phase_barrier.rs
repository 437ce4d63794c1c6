//! The barrier of the linear shift: whoever says when the next phase begins.
//!
//! It hears from each sender that it is through with a phase, and tells all when all are, if anybody
//! has something to send. It keeps no fragments and no schedule; the senders' side is
//! [`crate::linear_shift`].
//!
//! In a run it lives with the event manager. That is where pushing readout units have their orders
//! from, so that the links are those of `mode = "push"`, one for each readout unit and none between
//! them; and it is the one unit without which nothing is built anyway, so that nobody waits for it who
//! could go on. A builder unit would need no links at all, but may die or stand still while the run
//! goes on, and so may a readout unit. One that takes the place of another, with its event manager,
//! goes on with the latest phase that it hears of.
//!
//! ```text
//! sender   Through p, idle | waiting ──►  barrier   all are through, and one of them waits:
//!          ◄── Phase p+1                            the next phase, told to all
//!          Through p, waiting, again ──►            the others are asked: Phase p once more
//!          Through of an earlier one ──►            it did not hear: Phase of now
//! ```
//! Whoever waits asks again, so that a message that is lost costs time only; all are idle while none
//! waits. A sender that is lost leaves the barrier; one that is not through for far longer than a
//! phase may take is left out until it speaks. It meets others then, which costs speed and nothing
//! else.

use livetime_wire::message::PhaseDemand;
use livetime_wire::{DurationNs, RunNs};

/// What a barrier did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PhaseCounts {
    /// Phases that have begun after the first one.
    pub phases: u64,
    /// Times that somebody said that it was through with a phase.
    pub throughs: u64,
    /// Those of them that were said before, or were of a phase that is over.
    pub repetitions: u64,
    /// Times that a sender was not waited for any longer.
    pub left_out: u64,
}

/// How a sender takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It is waited for.
    Awaited,
    /// It was silent for too long, and is not waited for until it speaks.
    Silent,
    /// It is gone.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Sender {
    part: Part,
    /// What it said at the end of this phase.
    said: Option<PhaseDemand>,
    /// It is to be told the phase.
    is_told_next: bool,
    /// How often it was told a phase that it may have known: each time it says once more that it is
    /// through. Such an answer says nothing of others that were not heard.
    answers_due: u32,
}

/// The barrier.
#[derive(Debug)]
pub struct PhaseBarrier {
    phase: u64,
    senders: Vec<Sender>,
    /// Those that are waited for and not through.
    missing: usize,
    /// Since when somebody waits for the next phase.
    wanted_since: Option<RunNs>,
    patience: DurationNs,
    /// It took the place of another: senders may be ahead of it, whatever it has heard before. A
    /// message from before the change may come late, and of all first.
    is_resuming: bool,
    counts: PhaseCounts,
}

impl PhaseBarrier {
    /// For so many senders, in phase 0. Who is not through `patience` after the first that waits for
    /// the next phase is left out.
    pub fn new(senders: usize, patience: DurationNs) -> Self {
        let sender = Sender {
            part: Part::Awaited,
            said: None,
            is_told_next: false,
            answers_due: 0,
        };
        Self {
            phase: 0,
            senders: vec![sender; senders],
            missing: senders,
            wanted_since: None,
            patience,
            is_resuming: false,
            counts: PhaseCounts::default(),
        }
    }

    /// As [`PhaseBarrier::new`], in the place of one that is gone: its phase is that of the sender
    /// that is ahead of all.
    pub fn resuming(senders: usize, patience: DurationNs) -> Self {
        Self {
            is_resuming: true,
            ..Self::new(senders, patience)
        }
    }

    /// A sender is through with a phase.
    pub fn handle_through(&mut self, now: RunNs, sender: usize, phase: u64, demand: PhaseDemand) {
        let Some(speaker) = self.senders.get_mut(sender) else {
            return;
        };
        match speaker.part {
            // Said before it was lost.
            Part::Lost => return,
            Part::Silent => {
                speaker.part = Part::Awaited;
                speaker.said = None;
                self.missing += 1;
            }
            Part::Awaited => {}
        }
        self.counts.throughs += 1;
        if self.is_resuming && phase > self.phase && phase < u64::MAX {
            self.go_on_with(phase);
        }
        let Some(speaker) = self.senders.get_mut(sender) else {
            return;
        };
        if phase != self.phase {
            // It did not hear; a phase to come is none.
            self.counts.repetitions += 1;
            if phase < self.phase {
                speaker.tell_again();
            }
            return;
        }
        match speaker.said.replace(demand) {
            None => self.missing -= 1,
            Some(said) if said == demand => {
                self.counts.repetitions += 1;
                if speaker.answers_due > 0 {
                    // Would it ask others, who would answer so, there were ever more messages.
                    speaker.answers_due -= 1;
                } else if demand == PhaseDemand::Waiting {
                    // It has waited since: those that are missing may not have been heard.
                    self.ask_the_missing();
                }
            }
            Some(_) => {}
        }
        if demand == PhaseDemand::Waiting && self.wanted_since.is_none() {
            self.wanted_since = Some(now);
        }
        self.begin_if_all_are_through();
    }

    /// The one before has told a phase that this one did not know: who has not heard it is told.
    fn go_on_with(&mut self, phase: u64) {
        self.phase = phase;
        self.wanted_since = None;
        self.missing = 0;
        for sender in &mut self.senders {
            sender.is_told_next |= sender.said.take().is_some();
            sender.answers_due = 0;
            self.missing += usize::from(sender.is_missing());
        }
    }

    fn ask_the_missing(&mut self) {
        let missing = self.senders.iter_mut().filter(|sender| sender.is_missing());
        missing.for_each(Sender::tell_again);
    }

    fn begin_if_all_are_through(&mut self) {
        if self.missing > 0 || self.wanted_since.is_none() {
            return;
        }
        self.phase += 1;
        self.counts.phases += 1;
        self.wanted_since = None;
        for sender in &mut self.senders {
            (sender.said, sender.answers_due) = (None, 0);
            // One that is silent takes no messages, or none in time: it is told once it speaks.
            sender.is_told_next = sender.part == Part::Awaited;
            self.missing += usize::from(sender.part == Part::Awaited);
        }
    }

    /// A sender is gone: nobody waits for it any more.
    pub fn handle_lost(&mut self, sender: usize) {
        let Some(lost) = self.senders.get_mut(sender) else {
            return;
        };
        self.missing -= usize::from(lost.is_missing());
        (lost.part, lost.is_told_next) = (Part::Lost, false);
        self.begin_if_all_are_through();
    }

    /// A sender is back in another life, which begins in phase 0 and is told of the one that it is.
    pub fn handle_back(&mut self, sender: usize) {
        if let Some(back) = self.senders.get_mut(sender) {
            self.missing += usize::from(!back.is_missing());
            (back.part, back.said, back.answers_due) = (Part::Awaited, None, 0);
        }
    }

    /// Leaves out who is not through in time.
    pub fn handle_timeout(&mut self, now: RunNs) {
        if self.wanted_since.is_none() || now < self.poll_timeout() {
            return;
        }
        for sender in self.senders.iter_mut().filter(|sender| sender.is_missing()) {
            (sender.part, sender.is_told_next) = (Part::Silent, false);
            self.counts.left_out += 1;
        }
        self.missing = 0;
        self.begin_if_all_are_through();
    }

    /// When [`PhaseBarrier::handle_timeout`] is next worth calling.
    pub fn poll_timeout(&self) -> RunNs {
        let since = self.wanted_since;
        since.map_or(RunNs::MAX, |since| since.after(self.patience))
    }

    /// The next sender that is to be told a phase, and which.
    pub fn poll_output(&mut self) -> Option<(usize, u64)> {
        let to = self.senders.iter().position(|sender| sender.is_told_next)?;
        self.senders[to].is_told_next = false;
        Some((to, self.phase))
    }

    /// The phase that all are to be in.
    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// What it did.
    pub fn counts(&self) -> &PhaseCounts {
        &self.counts
    }
}

impl Sender {
    /// It is told the phase, which it may know: what is to be told already is told once.
    fn tell_again(&mut self) {
        self.answers_due += u32::from(!self.is_told_next);
        self.is_told_next = true;
    }

    /// Whether it is waited for and not through.
    fn is_missing(&self) -> bool {
        self.part == Part::Awaited && self.said.is_none()
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::message::PhaseDemand::{Idle, Waiting};
    use proptest::prelude::*;

    use super::*;

    const PATIENCE: DurationNs = DurationNs(100);

    fn told(barrier: &mut PhaseBarrier) -> Vec<(usize, u64)> {
        std::iter::from_fn(|| barrier.poll_output()).collect()
    }

    #[test]
    fn a_phase_begins_when_all_are_through_and_somebody_waits() {
        let mut barrier = PhaseBarrier::new(3, PATIENCE);
        for sender in 0..3 {
            barrier.handle_through(RunNs(1), sender, 0, Idle);
        }
        assert_eq!((barrier.phase(), told(&mut barrier)), (0, vec![]));
        assert_eq!(barrier.poll_timeout(), RunNs::MAX);
        barrier.handle_through(RunNs(2), 1, 0, Waiting);
        assert_eq!(told(&mut barrier), [(0, 1), (1, 1), (2, 1)]);
        // Those that are missing are asked again when one repeats that it waits.
        barrier.handle_through(RunNs(3), 1, 1, Waiting);
        barrier.handle_through(RunNs(3), 0, 1, Idle);
        barrier.handle_through(RunNs(4), 0, 1, Idle);
        assert_eq!(told(&mut barrier), []);
        barrier.handle_through(RunNs(5), 1, 1, Waiting);
        assert_eq!(told(&mut barrier), [(2, 1)]);
        // One that did not hear, one that cannot be, and nobody.
        barrier.handle_through(RunNs(6), 2, 0, Idle);
        barrier.handle_through(RunNs(6), 2, u64::MAX, Waiting);
        barrier.handle_through(RunNs(6), 3, 1, Waiting);
        assert_eq!((told(&mut barrier), barrier.phase()), (vec![(2, 1)], 1));
        barrier.handle_through(RunNs(7), 2, 1, Idle);
        assert_eq!(barrier.phase(), 2);
        assert_eq!(barrier.counts().repetitions, 4);
    }

    /// Two that are asked while what they said is under way would ask each other for ever more.
    #[test]
    fn who_answers_asks_nobody() {
        let mut barrier = PhaseBarrier::new(3, PATIENCE);
        barrier.handle_through(RunNs(1), 0, 0, Waiting);
        barrier.handle_through(RunNs(2), 0, 0, Waiting);
        assert_eq!(told(&mut barrier), [(1, 0), (2, 0)]);
        barrier.handle_through(RunNs(3), 1, 0, Waiting);
        barrier.handle_through(RunNs(4), 1, 0, Waiting);
        assert_eq!(told(&mut barrier), [], "that was its answer");
        barrier.handle_through(RunNs(5), 1, 0, Waiting);
        assert_eq!(
            told(&mut barrier),
            [(2, 0)],
            "it waits, and nothing follows"
        );
        barrier.handle_through(RunNs(6), 2, 0, Waiting);
        assert_eq!(told(&mut barrier), [(0, 1), (1, 1), (2, 1)]);
        // So does one that said more before it heard of the phase.
        barrier.handle_through(RunNs(7), 2, 0, Waiting);
        assert_eq!(told(&mut barrier), [(2, 1)]);
        barrier.handle_through(RunNs(8), 2, 1, Waiting);
        barrier.handle_through(RunNs(9), 2, 1, Waiting);
        assert_eq!(told(&mut barrier), []);
    }

    #[test]
    fn who_is_lost_or_silent_stops_nobody_and_may_come_back() {
        let mut barrier = PhaseBarrier::new(3, PATIENCE);
        barrier.handle_through(RunNs(5), 0, 0, Waiting);
        barrier.handle_lost(1);
        barrier.handle_lost(1);
        assert_eq!((barrier.phase(), barrier.poll_timeout()), (0, RunNs(105)));
        barrier.handle_timeout(RunNs(104));
        assert_eq!(barrier.phase(), 0);
        barrier.handle_timeout(RunNs(105));
        assert_eq!(told(&mut barrier), [(0, 1)], "2 is silent");
        assert_eq!(barrier.counts().left_out, 1);
        barrier.handle_through(RunNs(200), 0, 1, Waiting);
        assert_eq!(told(&mut barrier), [(0, 2)]);
        // What 1 said before it was lost; 2 speaks and is waited for again.
        barrier.handle_through(RunNs(201), 1, 2, Waiting);
        barrier.handle_through(RunNs(202), 2, 0, Waiting);
        assert_eq!(told(&mut barrier), [(2, 2)]);
        barrier.handle_through(RunNs(203), 0, 2, Waiting);
        assert_eq!(barrier.phase(), 2);
        barrier.handle_back(1);
        barrier.handle_through(RunNs(204), 2, 2, Waiting);
        assert_eq!(barrier.phase(), 2, "1 is waited for");
        barrier.handle_through(RunNs(205), 1, 0, Idle);
        assert_eq!(told(&mut barrier), [(1, 2)]);
        barrier.handle_through(RunNs(206), 1, 2, Idle);
        assert_eq!(told(&mut barrier), [(0, 3), (1, 3), (2, 3)]);
        // All are lost: nothing begins.
        (0..3).for_each(|sender| barrier.handle_lost(sender));
        barrier.handle_timeout(RunNs(u64::MAX));
        assert_eq!((told(&mut barrier), barrier.phase()), (vec![], 3));
    }

    #[test]
    fn one_in_the_place_of_another_goes_on_with_the_latest_phase() {
        let mut barrier = PhaseBarrier::resuming(3, PATIENCE);
        // 0 and 1 did not hear that the one before had begun phase 7; 2 did.
        barrier.handle_through(RunNs(1), 0, 6, Waiting);
        barrier.handle_through(RunNs(2), 1, 6, Idle);
        assert_eq!((barrier.phase(), told(&mut barrier)), (6, vec![]));
        barrier.handle_through(RunNs(3), 2, 7, Idle);
        assert_eq!(told(&mut barrier), [(0, 7), (1, 7)]);
        assert_eq!(barrier.poll_timeout(), RunNs::MAX, "nobody waits in it");
        barrier.handle_through(RunNs(4), 0, 7, Waiting);
        barrier.handle_through(RunNs(5), 1, 7, Idle);
        assert_eq!(told(&mut barrier), [(0, 8), (1, 8), (2, 8)]);
        assert_eq!(barrier.counts().left_out, 0);
        // That of the first one knows all phases: none is to come.
        let mut barrier = PhaseBarrier::new(1, PATIENCE);
        barrier.handle_through(RunNs(1), 0, 9, Waiting);
        assert_eq!((barrier.phase(), told(&mut barrier)), (0, vec![]));
    }

    /// What a sender had said long before comes first, late, and begins a phase that is over.
    #[test]
    fn one_in_the_place_of_another_does_not_stay_behind_for_a_late_message() {
        let mut barrier = PhaseBarrier::resuming(1, PATIENCE);
        barrier.handle_through(RunNs(1), 0, 3, Waiting);
        assert_eq!(
            told(&mut barrier),
            [(0, 4)],
            "it is in phase 8 and does not care"
        );
        barrier.handle_through(RunNs(2), 0, 8, Waiting);
        assert_eq!(told(&mut barrier), [(0, 9)]);
    }

    proptest! {
        /// Whatever it hears of whomever: it counts those that are missing right, a phase begins only
        /// when none is, and no sender is told anything while it is lost.
        #[test]
        fn it_waits_for_those_that_are_there(
            steps in prop::collection::vec((0..5_u8, 0..4_usize, 0..3_u64, any::<bool>()), 1..300),
        ) {
            let mut barrier = PhaseBarrier::new(3, PATIENCE);
            let mut is_lost = [false; 3];
            for (now, (step, sender, back, is_waiting)) in (0..).zip(steps) {
                let now = RunNs(now * 30);
                let before = barrier.phase();
                let missing = barrier.missing;
                let demand = if is_waiting { Waiting } else { Idle };
                match step {
                    0 if sender < 3 => {
                        barrier.handle_lost(sender);
                        is_lost[sender] = true;
                    }
                    1 if sender < 3 => {
                        barrier.handle_back(sender);
                        is_lost[sender] = false;
                    }
                    2 => barrier.handle_timeout(now),
                    _ => {
                        let phase = barrier.phase().saturating_sub(back);
                        barrier.handle_through(now, sender, phase, demand);
                    }
                }
                let count = barrier.senders.iter().filter(|s| s.is_missing()).count();
                prop_assert_eq!(count, barrier.missing);
                if barrier.phase() > before {
                    prop_assert!(missing <= 1 || step == 2);
                    prop_assert_eq!(barrier.phase(), before + 1);
                }
                while let Some((to, phase)) = barrier.poll_output() {
                    prop_assert!(!is_lost[to]);
                    prop_assert_eq!(phase, barrier.phase());
                }
            }
        }
    }
}
