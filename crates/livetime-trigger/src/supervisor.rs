//! The trigger supervisor: gives trigger numbers, holds the Level-2 buffers, closes each trigger.
//!
//! A trigger is accepted into a free buffer or refused with a reason, so that dead time is exact;
//! it leaves its buffer by a reply, by the decision timeout or by an abort, exactly once, and the
//! readout units are told each time. The supervisor decides nothing itself and sends nothing:
//! decisions come from [`crate::level_two_node`], and whoever drives it fetches
//! [`SupervisorOutput`]s. Read [`crate::dead_time`] next.
//!
//! At every moment `triggers = l2_accepted + l2_rejected + losses + in_flight`. Nothing is
//! allocated after construction.

use std::collections::VecDeque;

use livetime_wire::slink::FragmentStatus;
use livetime_wire::{
    DecisionDigest, DurationNs, L2Mask, L2Reply, LossCause, LossCounts, Problem, RunNs,
    TriggerNumber,
};

use crate::dead_time::{DeadTime, DeadTimeMeter, RefusedBy};
use crate::problem_code::{DEADLINE, L2_BUFFERS, OUTPUT_QUEUE, TIMEOUT};

/// Most Level-2 buffers: the field of the trigger packet has two bits.
pub const L2_BUFFERS_MAX: usize = 4;
/// Most outputs that one trigger brings about: a decision and an accept.
const OUTPUTS_PER_TRIGGER: usize = 2;
/// Timed-out triggers that are remembered, so that their late replies are told from duplicates.
const LATE_MEMORY: usize = 1024;

/// Parameters of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupervisorConfig {
    /// Level-2 buffers: triggers that may wait for their decision at once, 1 to 4. Default 4, as
    /// at CDF. Fewer raise the dead time.
    pub l2_buffers: u8,
    /// A decision is to be back within this time, above 0 and below [`Self::TIMEOUT_MAX`]. Default
    /// 20 us; later ones are counted and used.
    pub deadline: DurationNs,
    /// Without a reply for this time a trigger is given up and dropped. Default 100 ms, above the
    /// deadline and at most 60 s. Too short loses triggers to a stalled machine; too long blocks a
    /// buffer for that time with each lost packet.
    pub decision_timeout: DurationNs,
    /// Outputs that may wait to be fetched, at least 2 per Level-2 buffer. Default 64. Triggers
    /// are refused while there is no room for those of one more.
    pub output_queue: usize,
}

impl Default for SupervisorConfig {
    fn default() -> Self {
        Self {
            l2_buffers: 4,
            deadline: DurationNs(20_000),
            decision_timeout: DurationNs(100_000_000),
            output_queue: 64,
        }
    }
}

impl SupervisorConfig {
    /// Largest decision timeout.
    pub const TIMEOUT_MAX: DurationNs = DurationNs(60_000_000_000);
    /// Longest output queue.
    pub const OUTPUT_QUEUE_MAX: usize = 65_536;

    /// Checks the values; `path` is the prefix of their keys, such as `trigger`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(1..=L2_BUFFERS_MAX).contains(&usize::from(self.l2_buffers)) {
            problems.push(Problem::new(
                L2_BUFFERS,
                format!("{path}.l2_buffers"),
                self.l2_buffers,
                format!("1 to {L2_BUFFERS_MAX}"),
                "the trigger packet names a buffer with two bits; 4 gives the least dead time",
            ));
        }
        // A trigger is given up later than its deadline.
        let is_beyond = self.deadline >= Self::TIMEOUT_MAX;
        if self.deadline.0 == 0 || is_beyond {
            problems.push(Problem::new(
                DEADLINE,
                format!("{path}.deadline"),
                self.deadline,
                format!("more than 0, less than {}", Self::TIMEOUT_MAX),
                "set the time within which a decision is to be back, for example \"20 us\"",
            ));
        }
        let is_too_long = self.decision_timeout > Self::TIMEOUT_MAX;
        if is_too_long || (self.decision_timeout <= self.deadline && !is_beyond) {
            let least = match is_beyond {
                true => "the deadline".to_owned(),
                false => self.deadline.to_string(),
            };
            let problem = Problem::new(
                TIMEOUT,
                format!("{path}.decision_timeout"),
                self.decision_timeout,
                format!("above {least}, at most {}", Self::TIMEOUT_MAX),
                "set it far above the deadline: what it ends is lost",
            );
            // Beyond the largest it is wrong whatever the deadline is.
            problems.push(match is_too_long {
                true => problem,
                false => problem.with_related(format!("{path}.deadline"), "deadline set here"),
            });
        }
        let outputs_min = OUTPUTS_PER_TRIGGER * usize::from(self.l2_buffers);
        if !(outputs_min..=Self::OUTPUT_QUEUE_MAX).contains(&self.output_queue) {
            problems.push(Problem::new(
                OUTPUT_QUEUE,
                format!("{path}.output_queue"),
                self.output_queue,
                format!("{outputs_min} to {}", Self::OUTPUT_QUEUE_MAX),
                "give it room for two outputs of each Level-2 buffer, or triggers are refused",
            ));
        }
        problems
    }
}

/// What became of an offered trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Taken.
    Accepted {
        /// The number it got.
        trigger: TriggerNumber,
        /// The Level-2 buffer it occupies, for the trigger packet.
        l2_buffer: u8,
    },
    /// Not taken.
    Refused(RefusedBy),
}

/// What the supervisor has to say to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupervisorOutput {
    /// To all readout units.
    Decision {
        /// Which trigger.
        trigger: TriggerNumber,
        /// Whether its fragments are kept for building.
        keep: bool,
    },
    /// To the event manager.
    L2Accept {
        /// Which trigger.
        trigger: TriggerNumber,
        /// The decision after prescale.
        mask: L2Mask,
        /// When it was accepted by Level 1.
        triggered_at: RunNs,
    },
}

/// What became of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// It closed its trigger.
    Decided(DecisionSample),
    /// Its trigger was never given.
    Stranger,
    /// Its trigger is decided already.
    Duplicate,
    /// Its trigger was given up by the decision timeout before.
    Late,
    /// It is no reply, or the link damaged it.
    Malformed,
}

/// One closed trigger, for histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionSample {
    /// Which trigger.
    pub trigger: TriggerNumber,
    /// The decision after prescale.
    pub mask: L2Mask,
    /// From the first word written by the source to the last word of the reply.
    pub latency: DurationNs,
    /// Whether the deadline was met.
    pub on_time: bool,
}

/// Counters of the supervisor; losses are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SupervisorCounters {
    /// Triggers offered.
    pub offers: u64,
    /// Offers refused because the run was being stopped.
    pub refused_stopped: u64,
    /// Offers refused because of XOFF.
    pub refused_xoff: u64,
    /// Offers refused because all Level-2 buffers were full.
    pub refused_buffers_full: u64,
    /// Offers refused because outputs had not been fetched.
    pub refused_outputs_full: u64,
    /// Trigger numbers given.
    pub triggers: u64,
    /// Triggers with a non-zero decision.
    pub l2_accepted: u64,
    /// Triggers with a zero decision.
    pub l2_rejected: u64,
    /// Decisions that came after the deadline; used all the same.
    pub deadline_misses: u64,
    /// Replies whose trigger was never given.
    pub replies_stranger: u64,
    /// Replies whose trigger was decided already.
    pub replies_duplicate: u64,
    /// Replies that came after the decision timeout.
    pub replies_late: u64,
    /// Replies of a wrong length or damaged by the link.
    pub replies_malformed: u64,
}

impl SupervisorCounters {
    /// Offers refused for any reason.
    #[inline]
    pub fn refused(&self) -> u64 {
        self.refused_stopped
            + self.refused_xoff
            + self.refused_buffers_full
            + self.refused_outputs_full
    }
}

/// A trigger in its Level-2 buffer.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    trigger: TriggerNumber,
    triggered_at: RunNs,
    first_word_at: Option<RunNs>,
    /// When it is given up.
    due: RunNs,
}

/// The supervisor of one run.
///
/// Inputs are `offer` and `handle_*`, each with the present time; after each of them outputs may
/// wait in [`TriggerSupervisor::poll_output`], and [`TriggerSupervisor::handle_timeout`] is to be
/// called at [`TriggerSupervisor::poll_timeout`]. Times may be equal; one that lies before an
/// earlier one is harmless.
#[derive(Debug, Clone)]
pub struct TriggerSupervisor {
    config: SupervisorConfig,
    buffers: [Option<InFlight>; L2_BUFFERS_MAX],
    next: TriggerNumber,
    xoff: bool,
    stopped: bool,
    outputs: VecDeque<SupervisorOutput>,
    timed_out: VecDeque<TriggerNumber>,
    counters: SupervisorCounters,
    losses: LossCounts,
    digest: DecisionDigest,
    dead_time: DeadTimeMeter,
}

impl TriggerSupervisor {
    /// A supervisor of a run that starts at `start`.
    ///
    /// # Panics
    /// If [`SupervisorConfig::validate`] finds a problem.
    pub fn new(config: SupervisorConfig, start: RunNs) -> Self {
        let problems = config.validate("trigger");
        assert!(problems.is_empty(), "unchecked configuration: {problems:?}");
        Self {
            config,
            buffers: [None; L2_BUFFERS_MAX],
            next: TriggerNumber::FIRST,
            xoff: false,
            stopped: false,
            outputs: VecDeque::with_capacity(config.output_queue),
            timed_out: VecDeque::with_capacity(LATE_MEMORY),
            counters: SupervisorCounters::default(),
            losses: LossCounts::new(),
            digest: DecisionDigest::default(),
            dead_time: DeadTimeMeter::new(start),
        }
    }

    /// Triggers are taken from `now` on, and none has come yet: dead time counts from here.
    pub fn begin(&mut self, now: RunNs) {
        self.dead_time = DeadTimeMeter::new(now);
        self.note_state();
    }

    /// Level 1 accepted a trigger; `xoff` says whether back-pressure stands at this moment.
    ///
    /// The number and the buffer go into the trigger packet and the fragments. A source that waits
    /// instead of being refused asks [`TriggerSupervisor::refusal`] first.
    pub fn offer(&mut self, now: RunNs, xoff: bool) -> Offer {
        self.handle_xoff(now, xoff);
        self.counters.offers += 1;
        let refusal = self.refusal();
        self.dead_time.count_offer(refusal);
        if let Some(by) = refusal {
            *match by {
                RefusedBy::Stopped => &mut self.counters.refused_stopped,
                RefusedBy::Xoff => &mut self.counters.refused_xoff,
                RefusedBy::BuffersFull => &mut self.counters.refused_buffers_full,
                RefusedBy::OutputsFull => &mut self.counters.refused_outputs_full,
            } += 1;
            return Offer::Refused(by);
        }
        let l2_buffer = self.free_buffer().expect("full buffers are a refusal");
        let trigger = self.next;
        self.next = trigger.next();
        self.buffers[l2_buffer] = Some(InFlight {
            trigger,
            triggered_at: now,
            first_word_at: None,
            due: now + self.config.decision_timeout,
        });
        self.counters.triggers += 1;
        self.note_state();
        Offer::Accepted {
            trigger,
            l2_buffer: l2_buffer as u8,
        }
    }

    /// Why an offer would be refused now, with the XOFF told last; `None` if it would be taken.
    pub fn refusal(&self) -> Option<RefusedBy> {
        let reserved = OUTPUTS_PER_TRIGGER * (self.in_flight() + 1);
        if self.stopped {
            Some(RefusedBy::Stopped)
        } else if self.xoff {
            Some(RefusedBy::Xoff)
        } else if self.free_buffer().is_none() {
            Some(RefusedBy::BuffersFull)
        } else if self.outputs.len() + reserved > self.config.output_queue {
            Some(RefusedBy::OutputsFull)
        } else {
            None
        }
    }

    /// Back-pressure was raised or lifted. Offers tell it as well; telling each change here makes
    /// the busy time exact.
    #[inline]
    pub fn handle_xoff(&mut self, now: RunNs, xoff: bool) {
        self.dead_time.advance(now);
        self.xoff = xoff;
        self.note_state();
    }

    /// The source wrote the first word of the trigger's packet: its decision latency starts here.
    /// Without this it starts with the offer. Nothing happens for a trigger that is not in flight.
    #[inline]
    pub fn handle_first_word(&mut self, now: RunNs, trigger: TriggerNumber) {
        let mut in_flight = self.buffers.iter_mut().flatten();
        if let Some(entry) = in_flight.find(|entry| entry.trigger == trigger) {
            entry.first_word_at.get_or_insert(now);
        }
    }

    /// The words of a reply came, with what the receiver found about the link.
    #[inline]
    pub fn handle_reply_words(
        &mut self,
        now: RunNs,
        words: &[u32],
        status: FragmentStatus,
    ) -> ReplyOutcome {
        match L2Reply::parse(words) {
            // A reply has no checksum of its own: a damaged one is not to be believed.
            Ok(reply) if status.is_good() => self.handle_reply(now, &reply),
            _ => {
                self.counters.replies_malformed += 1;
                ReplyOutcome::Malformed
            }
        }
    }

    /// A reply came; `now` is the time of its last word. Replies may come in any order.
    pub fn handle_reply(&mut self, now: RunNs, reply: &L2Reply) -> ReplyOutcome {
        self.dead_time.advance(now);
        let Some(buffer) = self.buffers.iter().position(|buffer| {
            buffer.is_some_and(|entry| entry.trigger.low() == reply.trigger_low)
        }) else {
            return self.count_unmatched(reply.trigger_low);
        };
        let entry = self.buffers[buffer].take().expect("position found it");
        let mask = reply.mask;
        self.digest.add(entry.trigger, mask);
        self.close(entry.trigger, mask.is_accept());
        if mask.is_accept() {
            self.counters.l2_accepted += 1;
            self.push_output(SupervisorOutput::L2Accept {
                trigger: entry.trigger,
                mask,
                triggered_at: entry.triggered_at,
            });
        } else {
            self.counters.l2_rejected += 1;
        }
        self.note_state();
        let latency = now.since(entry.first_word_at.unwrap_or(entry.triggered_at));
        let on_time = latency <= self.config.deadline;
        self.counters.deadline_misses += u64::from(!on_time);
        ReplyOutcome::Decided(DecisionSample {
            trigger: entry.trigger,
            mask,
            latency,
            on_time,
        })
    }

    /// When [`TriggerSupervisor::handle_timeout`] is next to be called; [`RunNs::MAX`] if never.
    #[inline]
    pub fn poll_timeout(&self) -> RunNs {
        let timeouts = self.buffers.iter().flatten();
        timeouts.map(|entry| entry.due).min().unwrap_or(RunNs::MAX)
    }

    /// Gives up the triggers whose decision timeout has passed. Called 10 ms too late or more, it gives
    /// up none yet: each has as much time again, up to the timeout, since a caller that stood still has
    /// not read all replies, and may hold packets itself.
    pub fn handle_timeout(&mut self, now: RunNs) {
        self.dead_time.advance(now);
        let standstill = self.poll_timeout().standstill(now);
        let pardoned = now + standstill.min(self.config.decision_timeout);
        for buffer in 0..L2_BUFFERS_MAX {
            let is_due = |entry: &mut InFlight| {
                entry.due = entry.due.max(pardoned);
                entry.due <= now
            };
            if let Some(entry) = self.buffers[buffer].take_if(is_due) {
                self.losses.add(LossCause::DecisionTimeout, 1);
                if self.timed_out.len() == LATE_MEMORY {
                    self.timed_out.pop_front();
                }
                self.timed_out.push_back(entry.trigger);
                self.close(entry.trigger, false);
            }
        }
        self.note_state();
    }

    /// What is to be sent next, in the order in which it came about. Taken to be fetched at the
    /// time of the last input.
    #[inline]
    pub fn poll_output(&mut self) -> Option<SupervisorOutput> {
        let output = self.outputs.pop_front();
        if output.is_some() {
            self.note_state();
        }
        output
    }

    /// Stops the run: from now on every offer is refused, and dead time is no longer counted.
    #[inline]
    pub fn stop(&mut self, now: RunNs) {
        self.dead_time.advance(now);
        self.stopped = true;
        self.note_state();
    }

    /// Whether the run is stopped, every trigger closed and every output fetched.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.stopped && self.in_flight() == 0 && self.outputs.is_empty()
    }

    /// Ends the run by force: triggers in flight are lost, their fragments dropped.
    #[inline]
    pub fn abort(&mut self, now: RunNs) {
        self.stop(now);
        for buffer in 0..L2_BUFFERS_MAX {
            if let Some(entry) = self.buffers[buffer].take() {
                self.losses.add(LossCause::DecisionAborted, 1);
                self.close(entry.trigger, false);
            }
        }
    }

    /// Triggers that wait for their decision.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.buffers.iter().flatten().count()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &SupervisorCounters {
        &self.counters
    }

    /// Triggers lost so far.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }

    /// Digest over trigger number and mask after prescale of every decided trigger.
    #[inline]
    pub fn digest(&self) -> DecisionDigest {
        self.digest
    }

    /// Dead time from the start to `now`, or to the stop.
    #[inline]
    pub fn dead_time(&self, now: RunNs) -> DeadTime {
        self.dead_time.dead_time(now)
    }

    #[inline]
    fn free_buffer(&self) -> Option<usize> {
        let usable = &self.buffers[..usize::from(self.config.l2_buffers)];
        usable.iter().position(Option::is_none)
    }

    /// Keeps the dead time's idea of the state; to be called after every change.
    #[inline]
    fn note_state(&mut self) {
        let state = self.refusal();
        self.dead_time.set_state(state);
    }

    #[inline]
    fn close(&mut self, trigger: TriggerNumber, keep: bool) {
        self.push_output(SupervisorOutput::Decision { trigger, keep });
    }

    #[inline]
    fn push_output(&mut self, output: SupervisorOutput) {
        assert!(
            self.outputs.len() < self.config.output_queue,
            "room was reserved when the trigger was accepted"
        );
        self.outputs.push_back(output);
    }

    /// Counts a reply that closes no trigger in flight.
    fn count_unmatched(&mut self, trigger_low: u32) -> ReplyOutcome {
        // The number nearest to the last one given: the only one a sane node can mean.
        let trigger = self.next.extend(trigger_low);
        if trigger < TriggerNumber::FIRST || trigger >= self.next {
            self.counters.replies_stranger += 1;
            return ReplyOutcome::Stranger;
        }
        let timed_out = self.timed_out.iter().position(|late| *late == trigger);
        if let Some(index) = timed_out {
            self.timed_out.remove(index);
            self.counters.replies_late += 1;
            ReplyOutcome::Late
        } else {
            self.counters.replies_duplicate += 1;
            ReplyOutcome::Duplicate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCEPT: L2Mask = L2Mask(1 << 100);

    fn supervisor(edit: impl FnOnce(&mut SupervisorConfig)) -> TriggerSupervisor {
        let mut config = SupervisorConfig::default();
        edit(&mut config);
        TriggerSupervisor::new(config, RunNs(0))
    }

    fn taken(offer: Offer) -> (u64, u8) {
        match offer {
            Offer::Accepted { trigger, l2_buffer } => (trigger.0, l2_buffer),
            Offer::Refused(by) => panic!("refused by {by:?}"),
        }
    }

    fn reply(trigger: u64, mask: L2Mask) -> L2Reply {
        L2Reply {
            trigger_low: TriggerNumber(trigger).low(),
            mask,
        }
    }

    fn decided(outcome: ReplyOutcome) -> DecisionSample {
        match outcome {
            ReplyOutcome::Decided(sample) => sample,
            other => panic!("{other:?}"),
        }
    }

    fn outputs(supervisor: &mut TriggerSupervisor) -> Vec<SupervisorOutput> {
        core::iter::from_fn(|| supervisor.poll_output()).collect()
    }

    #[test]
    fn four_buffers_then_refusal_until_a_reply_frees_one() {
        let mut supervisor = supervisor(|_| {});
        for expected in [(1, 0), (2, 1), (3, 2), (4, 3)] {
            assert_eq!(taken(supervisor.offer(RunNs(10), false)), expected);
        }
        let full = Offer::Refused(RefusedBy::BuffersFull);
        assert_eq!(supervisor.offer(RunNs(20), false), full);
        decided(supervisor.handle_reply(RunNs(30), &reply(3, L2Mask::NONE)));
        assert_eq!(
            taken(supervisor.offer(RunNs(40), false)),
            (5, 2),
            "numbers stay dense"
        );
        let counters = supervisor.counters();
        assert_eq!((counters.offers, counters.triggers), (6, 5));
        assert_eq!(counters.refused_buffers_full, 1);
        assert_eq!(counters.refused(), 1);
    }

    #[test]
    fn accepts_go_to_readout_units_and_event_manager_rejects_to_readout_units() {
        let mut supervisor = supervisor(|_| {});
        supervisor.offer(RunNs(10), false);
        supervisor.offer(RunNs(11), false);
        decided(supervisor.handle_reply(RunNs(20), &reply(2, ACCEPT)));
        decided(supervisor.handle_reply(RunNs(21), &reply(1, L2Mask::NONE)));
        let (first, second) = (TriggerNumber(1), TriggerNumber(2));
        assert_eq!(
            outputs(&mut supervisor),
            [
                SupervisorOutput::Decision {
                    trigger: second,
                    keep: true
                },
                SupervisorOutput::L2Accept {
                    trigger: second,
                    mask: ACCEPT,
                    triggered_at: RunNs(11),
                },
                SupervisorOutput::Decision {
                    trigger: first,
                    keep: false
                },
            ]
        );
        assert_eq!(supervisor.counters().l2_accepted, 1);
        assert_eq!(supervisor.counters().l2_rejected, 1);
        let mut expected = DecisionDigest::default();
        expected.add(first, L2Mask::NONE);
        expected.add(second, ACCEPT);
        assert_eq!(supervisor.digest(), expected);
    }

    #[test]
    fn latency_runs_from_the_first_word_and_the_deadline_is_inclusive() {
        let mut supervisor = supervisor(|_| {});
        for _ in 0..3 {
            supervisor.offer(RunNs(1000), false);
        }
        supervisor.handle_first_word(RunNs(1500), TriggerNumber(1));
        supervisor.handle_first_word(RunNs(9999), TriggerNumber(1));
        supervisor.handle_first_word(RunNs(1500), TriggerNumber(77));
        let sample = |s: &mut TriggerSupervisor, now, trigger| {
            let sample = decided(s.handle_reply(RunNs(now), &reply(trigger, ACCEPT)));
            (sample.latency.0, sample.on_time)
        };
        assert_eq!(sample(&mut supervisor, 21_500, 1), (20_000, true));
        assert_eq!(
            sample(&mut supervisor, 21_001, 2),
            (20_001, false),
            "from the offer"
        );
        assert_eq!(
            sample(&mut supervisor, 900, 3),
            (0, true),
            "a clock that ran back"
        );
        assert_eq!(supervisor.counters().deadline_misses, 1);
        assert_eq!(supervisor.counters().l2_accepted, 3);
    }

    #[test]
    fn strangers_duplicates_and_malformed_replies_change_nothing_but_their_counts() {
        let mut supervisor = supervisor(|_| {});
        for _ in 0..2 {
            supervisor.offer(RunNs(0), false);
        }
        decided(supervisor.handle_reply(RunNs(1), &reply(1, ACCEPT)));
        outputs(&mut supervisor);
        let mut send = |trigger| supervisor.handle_reply(RunNs(2), &reply(trigger, ACCEPT));
        assert_eq!(send(1), ReplyOutcome::Duplicate);
        assert_eq!(send(0), ReplyOutcome::Stranger);
        assert_eq!(send(3), ReplyOutcome::Stranger);
        assert_eq!(send(0x8000_0000), ReplyOutcome::Stranger);
        assert_eq!(send(0xFFFF_FFFF), ReplyOutcome::Stranger);
        let good = reply(2, ACCEPT).to_words();
        let mut send = |words: &[u32], status| {
            let outcome = supervisor.handle_reply_words(RunNs(3), words, status);
            matches!(outcome, ReplyOutcome::Malformed)
        };
        assert!(send(&good[..4], FragmentStatus::GOOD));
        assert!(send(&[], FragmentStatus::GOOD));
        assert!(send(&good, FragmentStatus::LINK_DATA));
        assert_eq!(outputs(&mut supervisor), []);
        assert_eq!(supervisor.in_flight(), 1);
        let outcome = supervisor.handle_reply_words(RunNs(4), &good, FragmentStatus::GOOD);
        assert_eq!(decided(outcome).trigger, TriggerNumber(2));
        let counters = supervisor.counters();
        assert_eq!(counters.replies_duplicate, 1);
        assert_eq!(counters.replies_stranger, 4);
        assert_eq!(counters.replies_malformed, 3);
        assert_eq!(counters.l2_accepted, 2);
    }

    #[test]
    fn replies_match_across_the_wrap_of_the_link_number() {
        let mut supervisor = supervisor(|_| {});
        supervisor.next = TriggerNumber(0xFFFF_FFFF);
        supervisor.offer(RunNs(0), false);
        supervisor.offer(RunNs(0), false);
        let low = |trigger_low| L2Reply {
            trigger_low,
            mask: ACCEPT,
        };
        let sample = decided(supervisor.handle_reply(RunNs(1), &low(0)));
        assert_eq!(sample.trigger, TriggerNumber(0x1_0000_0000));
        let sample = decided(supervisor.handle_reply(RunNs(1), &low(0xFFFF_FFFF)));
        assert_eq!(sample.trigger, TriggerNumber(0xFFFF_FFFF));
        let again = supervisor.handle_reply(RunNs(1), &low(0xFFFF_FFFF));
        assert_eq!(again, ReplyOutcome::Duplicate);
    }

    #[test]
    fn a_decision_timeout_loses_the_trigger_by_name_and_frees_its_buffer() {
        let mut supervisor = supervisor(|config| {
            config.l2_buffers = 1;
            config.decision_timeout = DurationNs(50_000);
        });
        assert_eq!(supervisor.poll_timeout(), RunNs::MAX);
        supervisor.offer(RunNs(100), false);
        assert_eq!(supervisor.poll_timeout(), RunNs(50_100));
        supervisor.handle_timeout(RunNs(50_099));
        assert_eq!(supervisor.in_flight(), 1);
        supervisor.handle_timeout(RunNs(50_100));
        assert_eq!(supervisor.in_flight(), 0);
        assert_eq!(supervisor.poll_timeout(), RunNs::MAX);
        assert_eq!(supervisor.losses().of(LossCause::DecisionTimeout), 1);
        let dropped = SupervisorOutput::Decision {
            trigger: TriggerNumber(1),
            keep: false,
        };
        assert_eq!(outputs(&mut supervisor), [dropped]);
        let mut late = || supervisor.handle_reply(RunNs(60_000), &reply(1, ACCEPT));
        assert_eq!(late(), ReplyOutcome::Late);
        assert_eq!(late(), ReplyOutcome::Duplicate, "late only once");
        assert_eq!(taken(supervisor.offer(RunNs(70_000), false)), (2, 0));
        assert_eq!(supervisor.digest(), DecisionDigest::default());
    }

    #[test]
    fn time_in_which_the_caller_stood_still_is_no_time_of_a_trigger() {
        let (timeout, stop) = (DurationNs(100_000_000), DurationNs(3_000_000_000));
        let mut supervisor = supervisor(|config| config.decision_timeout = timeout);
        for offered in [0, 1] {
            taken(supervisor.offer(RunNs(offered), false));
        }
        let resumed = RunNs(0) + stop;
        supervisor.handle_timeout(resumed);
        assert_eq!(supervisor.poll_timeout(), resumed + timeout);
        decided(supervisor.handle_reply(resumed, &reply(1, ACCEPT)));
        supervisor.handle_timeout(resumed + timeout);
        let lost = supervisor.losses().of(LossCause::DecisionTimeout);
        assert_eq!((supervisor.in_flight(), lost), (0, 1));
    }

    #[test]
    fn more_timeouts_than_are_remembered_make_old_late_replies_duplicates() {
        let mut supervisor = supervisor(|config| config.decision_timeout = DurationNs(50_000));
        for trigger in 0..=LATE_MEMORY as u64 {
            let now = RunNs(trigger * 100_000);
            taken(supervisor.offer(now, false));
            supervisor.handle_timeout(now + DurationNs(50_000));
            outputs(&mut supervisor);
        }
        let mut late = |trigger| supervisor.handle_reply(RunNs::MAX, &reply(trigger, ACCEPT));
        assert_eq!(late(1), ReplyOutcome::Duplicate);
        assert_eq!(late(2), ReplyOutcome::Late);
    }

    #[test]
    fn xoff_refuses_and_is_dead_time_under_its_name() {
        let mut supervisor = supervisor(|_| {});
        supervisor.handle_xoff(RunNs(100), true);
        assert_eq!(supervisor.refusal(), Some(RefusedBy::Xoff));
        assert_eq!(
            supervisor.offer(RunNs(150), true),
            Offer::Refused(RefusedBy::Xoff)
        );
        supervisor.handle_xoff(RunNs(300), false);
        taken(supervisor.offer(RunNs(400), false));
        let dead = supervisor.dead_time(RunNs(1000));
        assert_eq!(dead.busy, [200, 0, 0].map(DurationNs));
        assert_eq!((dead.offered, dead.refused), (2, [1, 0, 0]));
        assert!((dead.busy_fraction() - 0.2).abs() < 1e-12);
    }

    #[test]
    fn unfetched_outputs_refuse_offers_and_never_overflow() {
        let mut supervisor = supervisor(|config| config.output_queue = 8);
        for trigger in 1..=3 {
            taken(supervisor.offer(RunNs(trigger), false));
            decided(supervisor.handle_reply(RunNs(trigger), &reply(trigger, ACCEPT)));
        }
        taken(supervisor.offer(RunNs(4), false));
        let full = Offer::Refused(RefusedBy::OutputsFull);
        assert_eq!(supervisor.offer(RunNs(5), false), full);
        decided(supervisor.handle_reply(RunNs(6), &reply(4, ACCEPT)));
        assert_eq!(supervisor.offer(RunNs(7), false), full);
        assert_eq!(supervisor.dead_time(RunNs(10)).busy[2], DurationNs(6));
        supervisor.poll_output();
        assert_eq!(supervisor.offer(RunNs(10), false), full);
        supervisor.poll_output();
        taken(supervisor.offer(RunNs(10), false));
        assert_eq!(supervisor.counters().refused_outputs_full, 3);
    }

    #[test]
    fn stop_refuses_drains_and_freezes_dead_time() {
        let mut supervisor = supervisor(|_| {});
        supervisor.offer(RunNs(0), false);
        supervisor.stop(RunNs(100));
        assert_eq!(
            supervisor.offer(RunNs(110), false),
            Offer::Refused(RefusedBy::Stopped)
        );
        assert!(!supervisor.is_drained());
        decided(supervisor.handle_reply(RunNs(200), &reply(1, L2Mask::NONE)));
        assert!(!supervisor.is_drained(), "the decision is not fetched yet");
        outputs(&mut supervisor);
        assert!(supervisor.is_drained());
        let dead = supervisor.dead_time(RunNs(1000));
        assert_eq!((dead.time, dead.offered), (DurationNs(100), 1));
        assert_eq!(supervisor.counters().refused_stopped, 1);
    }

    #[test]
    fn abort_loses_what_is_in_flight_by_name() {
        let mut supervisor = supervisor(|_| {});
        for _ in 0..3 {
            supervisor.offer(RunNs(0), false);
        }
        decided(supervisor.handle_reply(RunNs(1), &reply(2, ACCEPT)));
        supervisor.abort(RunNs(2));
        assert_eq!(supervisor.losses().of(LossCause::DecisionAborted), 2);
        assert_eq!(supervisor.in_flight(), 0);
        assert_eq!(outputs(&mut supervisor).len(), 4);
        assert!(supervisor.is_drained());
    }

    #[test]
    fn configuration_problems_are_reported_at_once() {
        assert_eq!(SupervisorConfig::default().validate("trigger"), []);
        let config = SupervisorConfig {
            l2_buffers: 5,
            deadline: DurationNs(0),
            decision_timeout: DurationNs(60_000_000_001),
            output_queue: 9,
        };
        let found: Vec<_> = config
            .validate("trigger")
            .into_iter()
            .map(|problem| (problem.code.code, problem.path))
            .collect();
        let expected: [(&str, String); 4] = [
            ("T0201", "l2_buffers"),
            ("T0202", "deadline"),
            ("T0203", "decision_timeout"),
            ("T0204", "output_queue"),
        ]
        .map(|(code, key)| (code, format!("trigger.{key}")));
        assert_eq!(found, expected);
    }

    #[test]
    fn no_range_that_is_allowed_is_empty() {
        let max = SupervisorConfig::TIMEOUT_MAX;
        let with = |deadline: DurationNs, decision_timeout: DurationNs| {
            let config = SupervisorConfig {
                deadline,
                decision_timeout,
                ..SupervisorConfig::default()
            };
            let problems = config.validate("trigger").into_iter();
            let problems = problems.map(|problem| (problem.code.code, problem.allowed));
            problems.collect::<Vec<_>>()
        };
        let hour = DurationNs(3_600_000_000_000);
        let of_deadline = ("T0202", format!("more than 0, less than {max}"));
        let of_timeout = |least: &str| ("T0203", format!("above {least}, at most {max}"));
        assert_eq!(with(hour, max), std::slice::from_ref(&of_deadline));
        assert_eq!(with(max, max), std::slice::from_ref(&of_deadline));
        assert_eq!(with(hour, hour), [of_deadline, of_timeout("the deadline")]);
        let second = DurationNs::SECOND;
        assert_eq!(with(second, second), [of_timeout(&second.to_string())]);
        assert_eq!(with(DurationNs(max.0 - 1), max), []);
    }
}
