//! The readout unit: what happens to the fragments of each trigger that its links bring.
//!
//! It holds a few bytes per live trigger (which sources came, who asked for them) and no fragment:
//! descriptors and pages are the driver's, who asks here before filing a fragment, sends the
//! fragments it is told to send and frees those it is told to free. Fragments that were sent stay
//! until the release, so that they can be sent again. The messages are in [`crate`].

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use livetime_wire::fragment_message::FragmentMessage;
use livetime_wire::message::{BuilderMessage, Envelope, FragmentDescriptor, Keep, PhaseDemand};
use livetime_wire::{
    DurationNs, LossCause, LossCounts, RunNs, SourceId, TriggerNumber, UnitId, UnitKind,
};

use crate::builder_config::{BuildMode, BuilderConfig, READOUT_SOURCES_MAX};
use crate::dense_history::{DenseHistory, Ended};
use crate::held_trigger::{Held, Mark, NO_BUILDER, Stage};
use crate::held_triggers::HeldTriggers;
use crate::message_exchange::{Handled, MessageCounts, PeerEpochs};
use crate::peer_table::{Arrival, PeerTable};
use crate::probe_pace::ProbePace;
use crate::trigger_history::Past;

mod at_once;
mod disowned;
mod forgotten_triggers;
mod fragment_run;
mod held_output;
mod probing;
mod unasked;

use at_once::{AtOnce, Take};
use disowned::Disowned;
use forgotten_triggers::ForgottenTriggers;

/// Triggers in the work queue for which a lean unit has memory: it is emptied after each message.
const WORK_USUAL: usize = 128;

/// What a readout unit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadoutCounts {
    /// Messages; each fragment sent is one.
    pub messages: MessageCounts,
    /// Fragments that may stay.
    pub fragments_filed: u64,
    /// Fragments freed because their trigger was rejected, before or after they came.
    pub fragments_dropped_by_decision: u64,
    /// Fragments sent, repetitions included.
    pub fragments_sent: u64,
    /// Repetitions among them: asked for again, or sent to ask for a release.
    pub fragments_sent_again: u64,
    /// Triggers that the supervisor kept.
    pub triggers_kept: u64,
    /// Triggers that the supervisor dropped.
    pub triggers_dropped: u64,
    /// Triggers released by a builder unit.
    pub triggers_released: u64,
    /// Triggers of which a fragment was asked for, first requests only.
    pub triggers_requested: u64,
    /// Decisions on triggers that were decided or closed before.
    pub decisions_repeated: u64,
    /// Drops of triggers that were kept or requested before, and keeps of dropped ones; refused.
    pub decisions_conflicting: u64,
    /// Requests of the builder unit that has asked before.
    pub requests_repeated: u64,
    /// Requests for dropped or released triggers; nothing is sent.
    pub requests_closed: u64,
    /// Requests and releases of another builder unit than the one that has the event; refused.
    pub requests_conflicting: u64,
    /// Requests for triggers without a fragment that found the table full; the builder unit asks
    /// again.
    pub requests_without_room: u64,
    /// Releases of triggers that were closed before.
    pub releases_repeated: u64,
    /// Requested or kept triggers of which no fragment came, forgotten since no release came
    /// either.
    pub requests_forgotten: u64,
    /// Messages of the event manager that name a builder unit that there is not, or not in this
    /// life; refused.
    pub pushes_foreign: u64,
    /// Triggers released without that their fragments were ever asked for: the first step has
    /// rejected them.
    pub triggers_unasked: u64,
    /// Triggers that nobody had asked for, ended since a builder unit that is gone had finished them.
    pub unasked_ended: u64,
    /// Triggers that nobody had asked for, ended since no builder unit knows them any more.
    pub triggers_disowned: u64,
    /// Triggers taken back from a lost builder unit, to be built by another.
    pub triggers_taken_back: u64,
}

/// What the driver does with a fragment that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum FragmentVerdict {
    /// File it until [`ReadoutOutput::Free`].
    Hold,
    /// Free its pages now: it is not wanted, and it is counted.
    Discard {
        /// The loss that it is counted under; `None` if its trigger was rejected.
        loss: Option<LossCause>,
    },
    /// As one whose trigger was rejected: the selection on a first step, in which this unit is not, has
    /// rejected the event before the fragment came.
    DiscardUnasked,
    /// One is on file that no builder unit has seen: keep the better of the two and free the other's
    /// pages, which is counted as [`LossCause::FragmentDuplicate`].
    KeepBetter,
    /// The table is full: leave it where it is and ask again later.
    Wait,
}

/// Why the fragments of a trigger are freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeReason {
    /// The trigger was rejected.
    Dropped,
    /// The selection on a first step rejected it, in which this unit is not.
    Unasked,
    /// A builder unit released them.
    Released,
    /// The run was ended by force.
    Aborted,
}

/// What a readout unit wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadoutOutput {
    /// Send one fragment that is on file, with [`ReadoutUnit::fragment_message`]; it stays there.
    SendFragment {
        /// To whom.
        to: UnitId,
        /// The message's sequence number.
        sequence: u32,
        /// Of which trigger.
        trigger: TriggerNumber,
        /// Of which source.
        source: SourceId,
    },
    /// Take all fragments of a trigger off the file and free their pages.
    Free {
        /// Of which trigger.
        trigger: TriggerNumber,
        /// Why.
        reason: FreeReason,
    },
}

/// A readout unit. What each message touches comes first, in few cache lines: a driver of hundreds of
/// units waits for these.
#[derive(Debug)]
#[repr(C)]
pub struct ReadoutUnit {
    held: HeldTriggers,
    builders: PeerTable,
    /// Triggers with something to send or to free.
    work: VecDeque<TriggerNumber>,
    /// Largest number that a message named: fragments may be ahead of it, but not far.
    newest: TriggerNumber,
    ahead_max: u64,
    /// Triggers up to this one were there before this unit; 0 for none.
    joined_after: TriggerNumber,
    history: DenseHistory,
    scan_at: RunNs,
    index: u16,
    epoch: u32,
    ending: bool,
    /// Whether events may be released of which nothing was asked for here.
    is_two_step: bool,
    /// Whether the event manager has fragments sent, and not the builder unit itself.
    is_pushed: bool,
    counts: ReadoutCounts,
    /// Ordered; bit `n` of a mask is the `n`-th.
    sources: ArrayVec<SourceId, READOUT_SOURCES_MAX>,
    work_max: usize,
    supervisor: PeerTable,
    manager: PeerTable,
    probe: DurationNs,
    /// Who is sent fragments of triggers that nobody asked for, at this scan.
    probed_builder: u16,
    /// Scans that count as one where the timeout is many of them.
    scans_per_count: u64,
    /// Counts after which nobody asks any more: a request without any fragment is forgotten.
    scans_max: u8,
    scans: u64,
    disowned: Disowned,
    forgotten: ForgottenTriggers,
    pace: ProbePace,
    /// A mutant: what was meant for another life of a builder unit counts.
    any_epoch: bool,
    losses: LossCounts,
}

/// Whether the configuration wants epochs ignored.
#[cfg(feature = "mutants")]
fn is_any_epoch(config: &BuilderConfig) -> bool {
    config.mutant == Some(crate::mutant::Mutant::NoEpoch)
}

#[cfg(not(feature = "mutants"))]
const fn is_any_epoch(_config: &BuilderConfig) -> bool {
    false
}

impl ReadoutUnit {
    /// Readout unit `index` of a valid configuration; `epoch` is that of all units at the start.
    ///
    /// # Panics
    /// If the configuration has no such unit.
    pub fn new(config: &BuilderConfig, index: u16, epoch: u32) -> Self {
        let mut unit = Self::lean(config, index, epoch);
        unit.work.reserve_exact(unit.work_max);
        unit.held.reserve();
        unit.history.reserve();
        unit
    }

    /// As [`ReadoutUnit::new`], with memory for what is usual alone: it takes more when it needs it.
    /// For hundreds of units in one simulation.
    ///
    /// # Panics
    /// If the configuration has no such unit.
    pub fn lean(config: &BuilderConfig, index: u16, epoch: u32) -> Self {
        let held = config.trigger_window as usize;
        let sources = config.sources_of(index);
        // A builder unit has closed the event by then, whatever became of its messages.
        let scans = 2 * config.timeout.0 / config.probe.0.max(1) + 3;
        let scans_per_count = scans.div_ceil(u8::MAX.into());
        Self {
            index,
            epoch,
            held: HeldTriggers::lean(held, sources.len()),
            sources: sources.into_iter().collect(),
            history: DenseHistory::lean(config.history as usize),
            work: VecDeque::with_capacity(WORK_USUAL.min(held + 1)),
            work_max: held + 1,
            newest: TriggerNumber(0),
            joined_after: TriggerNumber(0),
            ahead_max: held as u64,
            supervisor: PeerTable::new(UnitKind::Supervisor, 1, epoch),
            manager: PeerTable::new(UnitKind::EventManager, 1, epoch).with_mutant(config),
            builders: PeerTable::new(UnitKind::Builder, config.builder_units.into(), epoch)
                .with_mutant(config),
            is_two_step: !config.first_step.is_empty(),
            is_pushed: config.mode == BuildMode::Push,
            any_epoch: is_any_epoch(config),
            probe: config.probe,
            probed_builder: 0,
            scans_per_count,
            scans_max: scans.div_ceil(scans_per_count) as u8,
            scans: 0,
            disowned: Disowned::default(),
            forgotten: ForgottenTriggers::default(),
            pace: ProbePace::new(config.repetitions_often()),
            scan_at: RunNs::MAX,
            ending: false,
            counts: ReadoutCounts::default(),
            losses: LossCounts::new(),
        }
    }

    /// Says whether a fragment that came out of a link may stay. Ask once for each, before filing
    /// it, and again only after [`FragmentVerdict::Wait`]: duplicates, strangers and late ones are
    /// counted here. A fragment buffer for at least [`BuilderConfig::trigger_window`] triggers
    /// never refuses what may stay; were it asked first, it might replace a fragment whose pages a
    /// builder unit reads. A damaged trigger number may have taken the place of a good fragment:
    /// as long as nobody reads that one's pages the good one still gets it.
    // In line, as all that is called for each fragment: large programs do not by themselves.
    #[inline(always)]
    pub fn handle_fragment(
        &mut self,
        now: RunNs,
        trigger: TriggerNumber,
        source: SourceId,
    ) -> FragmentVerdict {
        let Ok(bit) = self.sources.binary_search(&source) else {
            return self.lose(LossCause::FragmentStranger);
        };
        if let Some((place, mut held)) = self.held.find(trigger) {
            match held.stage() {
                Stage::Open if held.present & (1 << bit) != 0 => {
                    let lost = self.lose(LossCause::FragmentDuplicate);
                    let is_unseen = held.builder == NO_BUILDER && !held.has(Mark::Probed);
                    return match is_unseen && held.unsent == 0 {
                        true => FragmentVerdict::KeepBetter,
                        false => lost,
                    };
                }
                Stage::Open => {
                    held.present |= 1 << bit;
                    held.scans = 0;
                    self.counts.fragments_filed += 1;
                    if held.builder != NO_BUILDER {
                        held.unsent |= 1 << bit;
                        self.enqueue(trigger, &mut held);
                    }
                    self.held.set(place, held);
                    return FragmentVerdict::Hold;
                }
                Stage::Closed(FreeReason::Dropped | FreeReason::Unasked) => {
                    return self.drop_fragment(held.has(Mark::Unasked));
                }
                Stage::Closed(FreeReason::Released) => return self.lose(self.late_cause()),
                Stage::Closed(FreeReason::Aborted) => {
                    return self.lose(LossCause::FragmentAborted);
                }
            }
        }
        match self.past(trigger) {
            Past::Closed(Ended::Dropped) => return self.drop_fragment(false),
            Past::Closed(Ended::Unasked) => return self.drop_fragment(true),
            Past::Closed(_) | Past::Forgotten => return self.lose(self.late_cause()),
            Past::Open => {}
        }
        if self.ending {
            return self.lose(LossCause::FragmentAborted);
        }
        if trigger.0 == 0 || trigger.0 > self.newest.0.saturating_add(self.ahead_max) {
            // No decision can come for it within the life of its page: the number is damaged.
            return self.lose(LossCause::FragmentMalformed);
        }
        let entry = Held {
            present: 1 << bit,
            ..Held::default()
        };
        if !self.hold(now, trigger, entry) {
            return FragmentVerdict::Wait;
        }
        self.counts.fragments_filed += 1;
        FragmentVerdict::Hold
    }

    fn lose(&mut self, cause: LossCause) -> FragmentVerdict {
        self.losses.add(cause, 1);
        FragmentVerdict::Discard { loss: Some(cause) }
    }

    fn drop_fragment(&mut self, is_unasked: bool) -> FragmentVerdict {
        self.counts.fragments_dropped_by_decision += 1;
        match is_unasked {
            true => FragmentVerdict::DiscardUnasked,
            false => FragmentVerdict::Discard { loss: None },
        }
    }

    /// What fragments are lost to that no event took.
    fn late_cause(&self) -> LossCause {
        if self.ending {
            LossCause::FragmentAborted
        } else {
            LossCause::FragmentLate
        }
    }

    fn hold(&mut self, now: RunNs, trigger: TriggerNumber, entry: Held) -> bool {
        if self.held.len() == 0 {
            self.scan_at = now.after(self.probe);
        }
        self.held.insert(trigger, entry)
    }

    /// Puts a trigger at the end of the work queue unless it is in it, and marks it.
    #[inline(always)]
    fn enqueue(&mut self, trigger: TriggerNumber, held: &mut Held) {
        if held.has(Mark::Queued) {
            return;
        }
        held.set(Mark::Queued);
        if self.work.len() == self.work_max {
            self.make_room_for_work();
        }
        self.work.push_back(trigger);
    }

    /// Takes triggers off the work queue that were forgotten meanwhile; each live one is in the queue
    /// once at most.
    #[cold]
    fn make_room_for_work(&mut self) {
        let live = &self.held;
        self.work.retain(|trigger| {
            let held = live.get(*trigger);
            held.is_some_and(|held| held.has(Mark::Queued))
        });
        assert!(self.work.len() < self.work_max, "work queue has a bound");
    }

    /// Takes a message of the supervisor or a builder unit.
    // In line, as above.
    #[inline(always)]
    pub fn handle_message(&mut self, now: RunNs, envelope: &Envelope) -> Handled {
        self.take_message(now, envelope, AtOnce::nothing())
    }

    fn take_message(
        &mut self,
        now: RunNs,
        envelope: &Envelope,
        mut at_once: AtOnce<impl Take>,
    ) -> Handled {
        let messages = &mut self.counts.messages;
        let sender = envelope.sender;
        let table = match (sender.kind, &envelope.message) {
            (UnitKind::Supervisor, BuilderMessage::Decision { .. }) => &mut self.supervisor,
            (
                UnitKind::Builder,
                BuilderMessage::FragmentRequest { .. }
                | BuilderMessage::Release { .. }
                | BuilderMessage::ReleasePartial { .. }
                | BuilderMessage::Forgotten { .. },
            ) => &mut self.builders,
            (UnitKind::EventManager, BuilderMessage::Push { .. }) => &mut self.manager,
            (UnitKind::Supervisor | UnitKind::EventManager | UnitKind::Builder, _) => {
                messages.unexpected += 1;
                return Handled::Refused;
            }
            _ => {
                messages.strangers += 1;
                return Handled::Refused;
            }
        };
        let Some(arrival) = table.receive(envelope, messages) else {
            return Handled::Refused;
        };
        match &envelope.message {
            BuilderMessage::Decision { trigger, keep } => self.decide(now, *trigger, *keep),
            BuilderMessage::FragmentRequest { triggers } => {
                for trigger in triggers {
                    self.request(now, *trigger, sender.index, arrival, &mut at_once);
                }
            }
            BuilderMessage::Push {
                builder,
                builder_epoch,
                triggers,
            } => {
                if self.is_foreign(*builder, *builder_epoch) {
                    self.counts.pushes_foreign += 1;
                    return Handled::Refused;
                }
                for trigger in triggers {
                    self.request(now, *trigger, *builder, arrival, &mut at_once);
                }
            }
            BuilderMessage::Release { triggers } => {
                for trigger in triggers {
                    if self.is_two_step && self.drop_unasked(*trigger) {
                        at_once.is_open = false;
                        continue;
                    }
                    self.release(*trigger, sender.index, 0, &mut at_once);
                }
            }
            BuilderMessage::ReleasePartial { trigger, missing } => {
                self.release(*trigger, sender.index, *missing, &mut at_once);
            }
            BuilderMessage::Forgotten { trigger } => {
                self.disown(*trigger, sender.index, &mut at_once);
            }
            _ => unreachable!("the kinds were sorted out above"),
        }
        Handled::Taken
    }

    /// Whether there is no such builder unit, or not in this life.
    fn is_foreign(&self, builder: u16, epoch: u32) -> bool {
        usize::from(builder) >= self.builders.len()
            || self.builders.epoch_of(builder.into()) != epoch && !self.any_epoch
    }

    fn decide(&mut self, now: RunNs, trigger: TriggerNumber, keep: Keep) {
        self.newest = self.newest.max(trigger);
        let Some((place, mut held)) = self.held.find(trigger) else {
            self.decide_absent(now, trigger, keep);
            return;
        };
        let is_wanted = held.has(Mark::Kept) || held.builder != NO_BUILDER;
        match (held.stage(), keep) {
            (Stage::Open, Keep::Build) if held.has(Mark::Kept) => {
                self.counts.decisions_repeated += 1
            }
            (Stage::Open, Keep::Build) => {
                held.set(Mark::Kept);
                self.counts.triggers_kept += 1;
            }
            (Stage::Open, Keep::Drop) if is_wanted => self.counts.decisions_conflicting += 1,
            (Stage::Open, Keep::Drop) => {
                held.close(FreeReason::Dropped);
                self.counts.triggers_dropped += 1;
                self.counts.fragments_dropped_by_decision += u64::from(held.present.count_ones());
                self.enqueue(trigger, &mut held);
            }
            (Stage::Closed(FreeReason::Dropped | FreeReason::Unasked), Keep::Build) => {
                self.counts.decisions_conflicting += 1;
            }
            (Stage::Closed(_), _) => self.counts.decisions_repeated += 1,
        }
        self.held.set(place, held);
    }

    /// A decision on a trigger of which nothing came yet. A keep is worth an entry only to see a
    /// later drop; without room it does without.
    fn decide_absent(&mut self, now: RunNs, trigger: TriggerNumber, keep: Keep) {
        if trigger.0 == 0 || self.past(trigger) != Past::Open {
            self.counts.decisions_repeated += 1;
            return;
        }
        match keep {
            Keep::Build => {
                self.counts.triggers_kept += 1;
                let entry = Held::default().with(Mark::Kept);
                if !self.ending {
                    self.hold(now, trigger, entry);
                }
            }
            Keep::Drop => {
                self.counts.triggers_dropped += 1;
                self.history.record(trigger, Ended::Dropped);
            }
        }
    }

    fn request(
        &mut self,
        now: RunNs,
        trigger: TriggerNumber,
        builder: u16,
        arrival: Arrival,
        at_once: &mut AtOnce<impl Take>,
    ) {
        self.newest = self.newest.max(trigger);
        if let Some((place, mut held)) = self.held.find(trigger) {
            match held.stage() {
                Stage::Closed(_) => self.counts.requests_closed += 1,
                Stage::Open
                    if held.builder == NO_BUILDER
                        || held.has(Mark::Uncertain) && held.builder != builder =>
                {
                    held.builder = builder;
                    held.unset(Mark::Uncertain);
                    held.unsent = held.present;
                    held.scans = 0;
                    self.counts.triggers_requested += 1;
                    while at_once.is_open && held.unsent != 0 {
                        let fragment = self.take_fragment(trigger, &mut held);
                        at_once.give(fragment);
                    }
                    if !at_once.is_open {
                        self.enqueue(trigger, &mut held);
                    }
                }
                Stage::Open if held.builder != builder => {
                    self.counts.requests_conflicting += 1;
                }
                Stage::Open => {
                    self.counts.requests_repeated += 1;
                    // A repeated message is the network's doing, a new one the builder unit's.
                    if arrival == Arrival::Fresh && held.present != 0 {
                        let again = held.present & !held.unsent;
                        self.counts.fragments_sent_again += u64::from(again.count_ones());
                        held.unsent = held.present;
                        held.scans = 0;
                        self.enqueue(trigger, &mut held);
                        at_once.is_open = false;
                    }
                }
            }
            self.held.set(place, held);
        } else if trigger.0 == 0 || self.past(trigger) != Past::Open || self.ending {
            self.counts.requests_closed += 1;
        } else {
            let entry = Held {
                builder,
                ..Held::default()
            };
            if self.hold(now, trigger, entry) {
                self.counts.triggers_requested += 1;
            } else {
                self.counts.requests_without_room += 1;
            }
        }
    }

    /// Closes a trigger. Fragments in `missing` that are here came too late for the event, or were
    /// lost on their way to the builder unit.
    fn release(
        &mut self,
        trigger: TriggerNumber,
        builder: u16,
        missing: u32,
        at_once: &mut AtOnce<impl Take>,
    ) {
        self.newest = self.newest.max(trigger);
        let cause = self.late_cause();
        if let Some((place, mut held)) = self.held.find(trigger) {
            match held.stage() {
                Stage::Closed(_) => {
                    self.counts.releases_repeated += 1;
                    self.forgotten.remove(trigger);
                }
                Stage::Open
                    if held.builder != builder
                        && held.builder != NO_BUILDER
                        && !held.has(Mark::Uncertain) =>
                {
                    self.counts.requests_conflicting += 1;
                }
                Stage::Open => {
                    held.close(FreeReason::Released);
                    // Of one that nobody has asked for here nothing is in the event, though its
                    // builder unit may not know any more what that lacks.
                    let is_unseen = held.builder == NO_BUILDER && !held.has(Mark::Probed);
                    let lost = match is_unseen && !self.is_two_step {
                        true => held.present,
                        false => held.present & missing,
                    };
                    if lost != 0 {
                        self.losses.add(cause, u64::from(lost.count_ones()));
                    }
                    self.counts.triggers_released += 1;
                    if at_once.is_open {
                        if let Some(free) =
                            self.end_held(trigger, place, held, FreeReason::Released)
                        {
                            at_once.give(free);
                        }
                    } else {
                        self.enqueue(trigger, &mut held);
                        self.held.set(place, held);
                    }
                }
            }
        } else if trigger.0 == 0 || self.past(trigger) != Past::Open {
            self.counts.releases_repeated += 1;
            self.forgotten.remove(trigger);
        } else {
            self.counts.triggers_released += 1;
            self.history.record(trigger, Ended::Over);
        }
    }

    /// The next thing to do. Fragments of one event go out together, events in the order in which
    /// they were asked for.
    // In line, as above.
    #[inline(always)]
    pub fn poll_output(&mut self) -> Option<ReadoutOutput> {
        while let Some(trigger) = self.work.front().copied() {
            let Some((place, mut held)) = self.held.find(trigger) else {
                self.end_work();
                continue;
            };
            if let Stage::Closed(reason) = held.stage() {
                self.end_work();
                match self.end_held(trigger, place, held, reason) {
                    None => continue,
                    free => return free,
                }
            }
            if held.unsent == 0 {
                held.unset(Mark::Queued);
                self.held.set(place, held);
                self.end_work();
                continue;
            }
            let fragment = self.take_fragment(trigger, &mut held);
            if held.unsent == 0 {
                held.unset(Mark::Queued);
                self.end_work();
            }
            self.held.set(place, held);
            return Some(fragment);
        }
        None
    }

    /// Takes the first trigger off the work queue. An empty queue begins again at the beginning of
    /// its memory, so that what is touched is as much as ever waited.
    #[inline]
    fn end_work(&mut self) {
        self.work.pop_front();
        if self.work.is_empty() {
            self.work.clear();
        }
    }

    /// The message for a [`ReadoutOutput::SendFragment`].
    pub fn fragment_message(
        &self,
        sequence: u32,
        trigger: TriggerNumber,
        fragment: FragmentDescriptor,
    ) -> Envelope {
        Envelope {
            sender: UnitId::readout(self.index),
            epoch: self.epoch,
            sequence,
            message: BuilderMessage::FragmentData { trigger, fragment },
        }
    }

    /// As [`ReadoutUnit::fragment_message`], of a fragment that stays on file.
    #[inline]
    pub fn fragment_on_file<'a>(
        &self,
        sequence: u32,
        trigger: TriggerNumber,
        fragment: &'a FragmentDescriptor,
    ) -> FragmentMessage<'a> {
        FragmentMessage {
            sender: UnitId::readout(self.index),
            epoch: self.epoch,
            sequence,
            trigger,
            fragment,
        }
    }

    /// The message that tells the barrier of a linear shift that this unit is through with a phase.
    pub fn through_message(&self, phase: u64, demand: PhaseDemand) -> Envelope {
        Envelope {
            sender: UnitId::readout(self.index),
            epoch: self.epoch,
            sequence: phase as u32,
            message: BuilderMessage::Through { phase, demand },
        }
    }

    /// A builder unit went away with the events `lost`: the fragments of all its triggers are freed
    /// and counted as lost, and those of `lost` that are still to come will be. Call it when no
    /// filter unit or writer reads their pages any more.
    pub fn handle_builder_lost(&mut self, now: RunNs, builder: u16, lost: &[TriggerNumber]) {
        for trigger in lost {
            let past = self.past(*trigger);
            match self.held.find(*trigger) {
                Some((place, held)) if held.builder == NO_BUILDER => {
                    self.held.set(place, Held { builder, ..held });
                }
                Some(_) => {}
                // An entry without fragments is closed below and thereby remembered.
                None if past == Past::Open => {
                    let entry = Held {
                        builder,
                        ..Held::default()
                    };
                    self.hold(now, *trigger, entry);
                }
                None => {}
            }
        }
        self.free_open(|held| held.builder == builder);
    }

    /// A builder unit went away and others build its unfinished events. `open` are the triggers that
    /// are not finished ([`EventManager::open_triggers`](crate::EventManager::open_triggers), after
    /// the reassignment): their fragments wait for the next one that asks. All else that the unit
    /// had asked for was handed on by it and is freed. Returns how many fragments are freed; those
    /// that are in no event are the difference to what the lost unit had placed. Call it when no
    /// filter unit or writer reads the freed pages any more, and tell the unit's new epoch with
    /// [`ReadoutUnit::handle_builder_back`], so that nothing that the old one still says counts.
    pub fn take_back(&mut self, builder: u16, open: &[TriggerNumber]) -> u64 {
        let mut open: Vec<TriggerNumber> = open.to_vec();
        open.sort_unstable();
        let mut freed = 0;
        for slot in 0..self.held.slot_count() {
            let Some((trigger, place, mut held)) = self.held.slot(slot) else {
                continue;
            };
            if held.builder != builder || !held.is_open() {
                continue;
            }
            held.unsent = 0;
            held.scans = 0;
            if open.binary_search(&trigger).is_ok() {
                held.builder = NO_BUILDER;
                held.set(Mark::Kept);
                held.unset(Mark::Uncertain);
                self.counts.triggers_taken_back += 1;
            } else {
                held.close(FreeReason::Released);
                freed += u64::from(held.present.count_ones());
                self.counts.triggers_released += 1;
                self.enqueue(trigger, &mut held);
            }
            self.held.set(place, held);
        }
        freed
    }

    /// A builder unit is gone together with all who could say what it had handed on: which of its
    /// unfinished events it had released here, so that they cannot be built again. From here on nothing
    /// that it said counts. Follow it up with [`ReadoutUnit::take_back`]. Allocates; this is not the
    /// data path.
    pub fn released_by(&mut self, builder: u16, events: &[TriggerNumber]) -> Vec<TriggerNumber> {
        let epoch = self.builders.epoch_of(builder.into());
        self.builders.renew(builder, epoch.wrapping_add(1));
        let is_released = |trigger: &TriggerNumber| match self.held.get(*trigger) {
            // Closed since nothing came of it: of its event that says nothing.
            _ if self.forgotten.has(*trigger) => false,
            Some(held) => !held.is_open(),
            // One that came before this unit did was never here.
            None => *trigger > self.joined_after && self.past(*trigger) != Past::Open,
        };
        events.iter().copied().filter(is_released).collect()
    }

    /// Events that are finished, though the builder unit that would say so is gone: those that it
    /// had handed on. It may not have asked for their fragments here, if this unit was away then.
    /// Call it when no filter unit or writer reads their pages any more, whoever built them.
    /// Returns how many fragments are freed; those of events that are closed are freed already.
    pub fn finish_events(&mut self, finished: &[TriggerNumber]) -> u64 {
        let mut freed = 0;
        for trigger in finished {
            freed += self.finish_event(*trigger);
        }
        freed
    }

    fn finish_event(&mut self, trigger: TriggerNumber) -> u64 {
        // Of one that the selection rejected nothing was asked for in the second step's units.
        if self.is_two_step && self.drop_unasked(trigger) {
            return 0;
        }
        let past = self.past(trigger);
        match self.held.find(trigger) {
            Some((place, mut held)) if held.is_open() => {
                held.close(FreeReason::Released);
                self.counts.triggers_released += 1;
                self.enqueue(trigger, &mut held);
                self.held.set(place, held);
                return held.present.count_ones().into();
            }
            None if past == Past::Open => self.history.record(trigger, Ended::Over),
            _ => {}
        }
        0
    }

    /// A builder unit that was lost is back in a new epoch.
    pub fn handle_builder_back(&mut self, builder: u16, epoch: u32) {
        self.builders.renew(builder, epoch);
    }

    /// The event manager was lost and is back in a new epoch. Tell it before the new one assigns
    /// anything. Whose an event is, is no longer certain: it may have been pushed to a builder unit
    /// that never heard of it, and the one that is to build it asks.
    pub fn handle_manager_back(&mut self, epoch: u32) {
        self.manager.renew(0, epoch);
        for slot in 0..self.held.slot_count() {
            if let Some((_, place, held)) = self.held.slot(slot)
                && held.is_open()
                && held.builder != NO_BUILDER
            {
                self.held.set(place, held.with(Mark::Uncertain));
            }
        }
    }

    /// A readout unit that takes the place of one that is gone, with nothing of what that held.
    /// `newest` is the largest trigger number that the supervisor had given when its messages began
    /// to come here: up to it nothing is known here, and nothing is taken or sent. As long as it is
    /// not known, the largest of all stands in for it, until [`ReadoutUnit::handle_joined`].
    pub fn rejoining(
        config: &BuilderConfig,
        index: u16,
        epoch: u32,
        peers: PeerEpochs<'_>,
        newest: TriggerNumber,
    ) -> Self {
        let mut unit = Self::new(config, index, epoch);
        for (builder, epoch) in (0..).zip(peers.builders) {
            unit.builders.renew(builder, *epoch);
        }
        unit.manager.renew(0, peers.manager);
        unit.supervisor.renew(0, peers.supervisor);
        unit.builders.take_any_number();
        unit.manager.take_any_number();
        unit.newest = newest;
        unit.joined_after = newest;
        unit
    }

    /// The number of the last trigger that was given before this unit joined is known. No message or
    /// fragment of a later one may have come before.
    pub fn handle_joined(&mut self, newest: TriggerNumber) {
        self.newest = newest;
        self.joined_after = newest;
    }

    /// The last trigger that was given before this unit joined; 0 if it was there from the start.
    pub fn joined_after(&self) -> TriggerNumber {
        self.joined_after
    }

    /// What became of a trigger that is not held.
    fn past(&self, trigger: TriggerNumber) -> Past<Ended> {
        if trigger <= self.joined_after && self.joined_after.0 > 0 {
            return Past::Closed(Ended::Over);
        }
        self.history.past(trigger)
    }

    /// The newest trigger that a message named.
    pub fn newest(&self) -> TriggerNumber {
        self.newest
    }

    /// Whether all that is held is of triggers behind the newest one that a message named, so that it is
    /// of none if that was the last.
    pub fn holds_only_ahead(&mut self) -> bool {
        (0..self.held.slot_count()).all(|slot| {
            let held = self.held.slot(slot);
            held.is_none_or(|(trigger, _, held)| held.is_open() && trigger > self.newest)
        })
    }

    /// Whether no fragment is held and no request waits for one.
    pub fn is_idle(&self) -> bool {
        self.held.len() == 0
    }

    /// Where a message of a builder unit is checked, for drivers that have many units, know what comes
    /// and read it ahead; what is there means nothing to them.
    #[inline]
    pub fn foresee_message(&self, builder: u16) -> Option<&u32> {
        self.builders.foresee(builder.into())
    }

    /// As [`ReadoutUnit::foresee_message`]: where a fragment, request or release of a trigger is noted.
    #[inline]
    pub fn foresee_trigger(&self, trigger: TriggerNumber) -> Option<&u32> {
        self.held.foresee(trigger)
    }

    /// As [`ReadoutUnit::foresee_message`]: where it is noted that a trigger is closed.
    #[inline]
    pub fn foresee_closing(&self, trigger: TriggerNumber) -> Option<&u64> {
        self.history.foresee(trigger)
    }

    /// Number of triggers with fragments or requests.
    pub fn triggers_held(&self) -> usize {
        self.held.len()
    }

    /// Ends by force: fragments that nobody asked for are freed and counted as lost, and so is
    /// what is still to come. Those that may be in a builder unit's hands remain until it releases
    /// them; a request that was lost does not say that the event was not built.
    pub fn abort(&mut self) {
        self.ending = true;
        self.free_open(|held| held.builder == NO_BUILDER && !held.has(Mark::Probed));
    }

    /// Frees and counts everything that is left. Only for the end, when no builder or filter unit
    /// reads the pages any more.
    pub fn close(&mut self) {
        self.ending = true;
        self.free_open(|_| true);
    }

    fn free_open(&mut self, is_freed: impl Fn(&Held) -> bool) {
        for slot in 0..self.held.slot_count() {
            if let Some((trigger, place, mut held)) = self.held.slot(slot)
                && held.is_open()
                && is_freed(&held)
            {
                held.close(FreeReason::Aborted);
                let lost = u64::from(held.present.count_ones());
                self.losses.add(LossCause::FragmentAborted, lost);
                self.enqueue(trigger, &mut held);
                self.held.set(place, held);
            }
        }
    }

    /// What it did.
    pub fn counts(&self) -> &ReadoutCounts {
        &self.counts
    }

    /// What was lost here.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }
}

#[cfg(test)]
mod tests;
