//! The builder unit: asks the readout units for the fragments of its events, completes them or
//! closes them at their timeout, hands them to filter units, and to the writer what those accept, and
//! releases them.
//!
//! It never moves payload: an event is a ticket of descriptors. It is never given more events than
//! it has credits, so every table here has `credits` entries. Who gets which event is decided in
//! [`crate::event_manager`]; where fragments wait is [`crate::readout_unit`]'s.
//!
//! Work per fragment: one hash look-up, one binary search, one descriptor copied in and one out
//! (88 bytes each), so four or five cache lines; messages are grouped, with no more than one
//! request and one release per event and readout unit.

use std::collections::VecDeque;
use std::sync::Arc;

use livetime_wire::message::{
    BuilderMessage, Envelope, EventTicket, FragmentDescriptor, SIZES_MAX, TRIGGERS_MAX, TriggerList,
};
use livetime_wire::{DurationNs, LossCause, LossCounts, RunNs, TriggerNumber, UnitId, UnitKind};

use crate::builder_config::{BuildMode, BuilderConfig};
use crate::closed_events::ClosedEvents;
use crate::event_assembly::{Event, EventAssembly, Outcome, Payload, Stage};
use crate::filter_dispatch::FilterDispatch;
use crate::message_exchange::{Handled, MessageCounts, Outgoing};
use crate::partial_log::PartialLog;
use crate::peer_table::PeerTable;
use crate::source_map::SourceMap;
use crate::trigger_history::{Closing, Past};
use crate::trigger_table::TriggerTable;

mod assignment;
mod copies;
mod counted;
mod early;
mod freed_pages;
mod grouping;
mod heartbeat;
mod lost_peer;
mod redispatch;
mod repetition;
mod two_step;
mod writing;

use assignment::AssignmentOrder;
pub use copies::MessageCopy;
use grouping::Hold;
use heartbeat::Heartbeat;

/// Most repeated releases that may wait to be sent; further ones are asked for again.
const RELEASES_AGAIN_MAX: usize = 64;

/// What a builder unit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BuilderCounts {
    /// Messages.
    pub messages: MessageCounts,
    /// Events assigned to this unit.
    pub assignments: u64,
    /// Assignments that came again.
    pub assignments_repeated: u64,
    /// Assignments refused because no credit of this unit covers them, or without a valid number.
    pub assignments_refused: u64,
    /// Assignments that were meant for another life of this unit.
    pub assignments_foreign: u64,
    /// Assignments of triggers so old that it is not known whether they were built here: not
    /// built, cleared and counted as lost.
    pub assignments_too_old: u64,
    /// Events with all fragments.
    pub events_built: u64,
    /// Events closed by the timeout.
    pub events_incomplete: u64,
    /// Fragments in complete events.
    pub fragments_in_built: u64,
    /// Fragments in incomplete events.
    pub fragments_in_incomplete: u64,
    /// Fragments that were there already: duplicates of the network, sent again, or sent by a
    /// readout unit that asks for a release.
    pub fragments_repeated: u64,
    /// Fragments for closed events; the readout unit that holds them counts the loss.
    pub fragments_late: u64,
    /// Fragments for events that this unit never had.
    pub fragments_unknown: u64,
    /// Fragments of sources that do not belong to their sender.
    pub fragments_stranger: u64,
    /// Requests for missing fragments sent again.
    pub requests_repeated: u64,
    /// Releases sent again to readout units that asked.
    pub releases_repeated: u64,
    /// Tickets handed to filter units.
    pub tickets: u64,
    /// Events that wait for a filter unit again because theirs went away.
    pub tickets_again: u64,
    /// Events that filter units accepted.
    pub events_accepted: u64,
    /// Events that were given to a second writer.
    pub events_written_again: u64,
    /// Events that filter units rejected, that the writer is through with, or that it took with it.
    pub events_done: u64,
    /// Incomplete events among them.
    pub incomplete_done: u64,
    /// Fragments in those.
    pub fragments_in_incomplete_done: u64,
    /// Fragments in all events that are done.
    pub fragments_done: u64,
    /// Answers of filter units or the writer for events that are not theirs.
    pub dones_unknown: u64,
    /// Events cleared; each returned its credit.
    pub cleared: u64,
    /// Clears sent again because their event was assigned again.
    pub clears_repeated: u64,
    /// Events of which the first step alone was gathered: the selection rejected them.
    pub events_first_step_only: u64,
    /// Events of which the rest was fetched after the first step.
    pub events_fetched: u64,
    /// Requests for the rest of an event that is in no first step, or that another filter unit has;
    /// ignored.
    pub fetches_refused: u64,
    /// Events of which the first step lacked a fragment, so that the rest was fetched without a
    /// selection.
    pub events_unjudged: u64,
    /// Events whose first fragment came before their assignment (push mode).
    pub events_early: u64,
    /// Such events whose assignment did not come; their fragments stay where they are.
    pub events_early_forgotten: u64,
    /// Questions of a restarted event manager that were answered.
    pub recoveries: u64,
    /// Messages that say nothing but that it lives.
    pub heartbeats: u64,
}

/// One message to each readout unit in turn, from `next` on until all had it.
#[derive(Debug, Default)]
struct Round {
    next: u16,
    left: u16,
}

impl Round {
    fn start(&mut self, first: u16, units: u16) {
        self.next = first % units;
        self.left = units;
    }

    /// The next unit of the round.
    fn step(&mut self, units: u16) -> usize {
        let unit = self.next;
        // A division would take longer than all else that is done for a copy.
        self.next = if unit + 1 < units { unit + 1 } else { 0 };
        self.left -= 1;
        unit.into()
    }

    /// All units that are left of the round, which ends.
    fn take_rest(&mut self, units: u16) -> impl Iterator<Item = u16> + use<> {
        let (next, left) = (self.next, core::mem::take(&mut self.left));
        let up_to_last = left.min(units - next);
        (next..next + up_to_last).chain(0..left - up_to_last)
    }
}

/// What the current round of releases says.
#[derive(Debug, Clone, Copy)]
enum Releasing {
    /// That many of the first finished events, all complete.
    Whole(usize),
    /// This one is not: each readout unit hears what was missing of its sources.
    Partial(u32),
}

/// A builder unit. What each fragment touches comes first, in few cache lines: a driver of hundreds
/// of units waits for these.
#[derive(Debug)]
#[repr(C)]
pub struct BuilderUnit {
    readouts: PeerTable,
    sources: Arc<SourceMap>,
    /// Slot of each event in hand.
    slots: TriggerTable<u32>,
    assembly: EventAssembly,
    /// The largest of `absent`.
    absent_most: TriggerNumber,
    /// Payload bytes that came, by readout unit; empty where payload is counted by event alone.
    bytes_by_readout: Vec<u64>,
    dispatch: FilterDispatch,
    counts: BuilderCounts,
    /// By readout unit: its fragments are gathered first; empty for whole events at once.
    in_first_step: Vec<bool>,
    epoch: u32,
    index: u16,
    credits: u32,
    group_max: usize,
    timeout: DurationNs,
    retry: DurationNs,
    history: ClosedEvents,
    partials: PartialLog,
    /// Slots whose fragments are to be asked for.
    waiting: VecDeque<u32>,
    requests_held: Hold,
    requesting: TriggerList,
    request_round: Round,
    /// Slots whose missing fragments are to be asked for again, and the round of the first.
    repeating: VecDeque<u32>,
    repeat_round: Round,
    /// Slots to be released, the current round's included.
    finished: VecDeque<u32>,
    releases_held: Hold,
    releasing: Option<Releasing>,
    release_round: Round,
    /// Slots that every readout unit was told to release, by whether the writer has taken the event: a
    /// clear tells of one kind.
    clearing: [VecDeque<u32>; 2],
    clears_again: VecDeque<TriggerNumber>,
    releases_again: VecDeque<(u16, TriggerNumber)>,
    /// Slots of accepted events that the writer does not have yet.
    accepted: VecDeque<u32>,
    manager: PeerTable,
    /// Tells new assignments from those that are said again.
    order: AssignmentOrder,
    filters: PeerTable,
    /// Number of subfarms; it serves the filter units of its own.
    subfarms: u16,
    /// When the request for credits is repeated; `None` once an assignment came.
    credits_requested_at: Option<RunNs>,
    credits_to_request: bool,
    /// How often credits were requested since the unit was made, until an assignment comes.
    credit_requests: u8,
    /// No timeout strikes before this.
    timeout_at: RunNs,
    /// Whether readout units send unasked.
    is_pushed: bool,
    /// Whether the event manager wants to know how large events are.
    are_sizes_wanted: bool,
    /// Sizes of built events that are to be told.
    sizes: VecDeque<(TriggerNumber, u32)>,
    heartbeat: Heartbeat,
    /// By readout unit: up to this trigger nothing of it is waited for, since it is or was gone; 0
    /// for one that was always there.
    /// Empty until one is.
    absent: Vec<TriggerNumber>,
    /// Whether the group that is asked for is in its first step.
    is_requesting_first: bool,
    /// Answers to a restarted event manager: its epoch, question, held, closed.
    answers: VecDeque<(u32, u32, u32, u32)>,
    /// Pages that nobody needs any more, where payload lies in pages of this unit.
    freed_pages: Option<VecDeque<u32>>,
    #[cfg(feature = "mutants")]
    mutant: Option<crate::mutant::Mutant>,
    ending: bool,
    losses: LossCounts,
}

impl BuilderUnit {
    /// Builder unit `index` of a valid configuration; `epoch` is that of all units at the start.
    /// Its first output asks for its credits.
    pub fn new(config: &BuilderConfig, index: u16, epoch: u32) -> Self {
        let sources = Arc::new(SourceMap::new(config));
        Self::with_payload(config, index, epoch, sources, Payload::Described)
    }

    fn with_payload(
        config: &BuilderConfig,
        index: u16,
        epoch: u32,
        sources: Arc<SourceMap>,
        payload: Payload,
    ) -> Self {
        let credits = config.credits as usize;
        let assembly = EventAssembly::new(credits, sources.len(), payload);
        let peers = |kind, count: usize| PeerTable::new(kind, count, epoch);
        Self {
            index,
            epoch,
            credits: config.credits,
            group_max: (config.requests_per_message as usize).min(TRIGGERS_MAX),
            timeout: config.timeout,
            retry: config.retry,
            slots: TriggerTable::new(credits),
            history: ClosedEvents::new(config),
            partials: PartialLog::new(config, assembly.words_per_event(), payload),
            waiting: VecDeque::with_capacity(credits),
            requests_held: Hold::NONE,
            requesting: TriggerList::new(),
            request_round: Round::default(),
            repeating: VecDeque::with_capacity(credits),
            repeat_round: Round::default(),
            finished: VecDeque::with_capacity(credits),
            releases_held: Hold::NONE,
            releasing: None,
            release_round: Round::default(),
            clearing: [(); 2].map(|()| VecDeque::with_capacity(credits)),
            clears_again: VecDeque::with_capacity(credits),
            releases_again: VecDeque::with_capacity(payload.reserved(RELEASES_AGAIN_MAX)),
            dispatch: dispatch_of(config, index),
            accepted: VecDeque::with_capacity(credits),
            subfarms: config.subfarms.max(1),
            manager: peers(UnitKind::EventManager, 1).with_mutant(config),
            order: AssignmentOrder::new(credits),
            readouts: peers(UnitKind::Readout, config.readout_units.len()).with_mutant(config),
            filters: peers(UnitKind::Filter, config.filter_units.into()),
            sources,
            assembly,
            credits_requested_at: None,
            credits_to_request: true,
            credit_requests: 0,
            timeout_at: RunNs::MAX,
            is_pushed: config.mode == BuildMode::Push,
            are_sizes_wanted: config.credit_bytes > 0,
            sizes: VecDeque::with_capacity(credits),
            heartbeat: Heartbeat::new(config.heartbeat),
            absent: Vec::new(),
            absent_most: TriggerNumber(0),
            in_first_step: two_step::units_of(config),
            is_requesting_first: false,
            bytes_by_readout: match payload {
                Payload::Described => vec![0; config.readout_units.len()],
                Payload::Counted => Vec::new(),
            },
            answers: VecDeque::with_capacity(payload.reserved(lost_peer::ANSWERS_MAX)),
            freed_pages: None,
            #[cfg(feature = "mutants")]
            mutant: config.mutant,
            ending: false,
            counts: BuilderCounts::default(),
            losses: LossCounts::new(),
        }
    }

    /// A ticket with room for this builder's events, for [`BuilderUnit::poll_ticket`].
    pub fn empty_ticket(&self) -> EventTicket {
        EventTicket::with_capacity(self.sources.len())
    }

    /// Takes a message of the event manager, a readout unit or a filter unit.
    pub fn handle_message(&mut self, now: RunNs, envelope: &Envelope) -> Handled {
        let handled = self.take_message(now, envelope);
        if handled == Handled::Refused
            && let BuilderMessage::FragmentData { fragment, .. } = &envelope.message
        {
            self.free_pages(fragment);
        }
        handled
    }

    fn take_message(&mut self, now: RunNs, envelope: &Envelope) -> Handled {
        let messages = &mut self.counts.messages;
        let sender = envelope.sender;
        let table = match (sender.kind, &envelope.message) {
            (UnitKind::EventManager, BuilderMessage::Recover { batch, triggers }) => {
                return self.answer(envelope, *batch, triggers);
            }
            (UnitKind::EventManager, BuilderMessage::Assignment { .. }) => {
                return self.handle_assignment(now, envelope);
            }
            (UnitKind::Readout, BuilderMessage::FragmentData { .. }) => &mut self.readouts,
            (
                UnitKind::Filter,
                BuilderMessage::EventDone { .. }
                | BuilderMessage::EventsAccepted { .. }
                | BuilderMessage::FetchRest { .. },
            ) => &mut self.filters,
            (UnitKind::EventManager | UnitKind::Readout | UnitKind::Filter, _) => {
                messages.unexpected += 1;
                return Handled::Refused;
            }
            _ => {
                messages.strangers += 1;
                return Handled::Refused;
            }
        };
        if table.receive(envelope, messages).is_none() {
            return Handled::Refused;
        }
        match &envelope.message {
            BuilderMessage::FragmentData { trigger, fragment } => {
                self.place(now, sender.index, *trigger, fragment);
            }
            BuilderMessage::EventDone { triggers } => {
                for trigger in triggers {
                    self.done(*trigger);
                }
            }
            BuilderMessage::EventsAccepted { events } => {
                for event in events {
                    self.accept(event);
                }
            }
            BuilderMessage::FetchRest { triggers } => {
                for trigger in triggers {
                    self.fetch_rest(now, *trigger, sender);
                }
            }
            _ => unreachable!("the kinds were sorted out above"),
        }
        Handled::Taken
    }

    /// Puts an event into a vacant slot.
    fn open(&mut self, event: Event) -> u32 {
        let slot = self.assembly.open(event);
        let slot = slot.expect("as many slots as entries in the table");
        let is_new = self.slots.insert(event.trigger, slot);
        debug_assert!(is_new);
        slot
    }

    fn place(
        &mut self,
        now: RunNs,
        readout: u16,
        trigger: TriggerNumber,
        fragment: &FragmentDescriptor,
    ) {
        let rank = match self.sources.find(fragment.source) {
            Some((rank, place)) if place.readout == readout => rank,
            _ => {
                self.counts.fragments_stranger += 1;
                return self.free_pages(fragment);
            }
        };
        let slot = self.slots.get(trigger).copied();
        let Some(slot) = slot.or_else(|| self.open_early(now, trigger)) else {
            self.free_pages(fragment);
            let past = self.history.past(trigger);
            if trigger.0 == 0 || past == Past::Open {
                self.counts.fragments_unknown += 1;
                return;
            }
            self.counts.fragments_late += 1;
            // A pushed one whose assignment is still to come may find no slot.
            let is_no_answer = self.is_pushed && past == Past::Forgotten && self.slots.is_full();
            if !is_no_answer || self.ending {
                self.release_again(readout, trigger);
            }
            return;
        };
        if self.assembly.has(slot, rank) && !self.counts_duplicates() {
            self.counts.fragments_repeated += 1;
            self.free_pages(fragment);
        } else if !self.assembly.event(slot).is_open() || self.is_unasked(slot, readout) {
            self.counts.fragments_late += 1;
            self.free_pages(fragment);
        } else {
            let is_last = self.assembly.place(now, slot, rank, fragment);
            self.note_progress(now, slot);
            if let Some(bytes) = self.bytes_by_readout.get_mut(usize::from(readout)) {
                *bytes += u64::from(fragment.words) * 4;
            }
            if self.assembly.event(slot).is_early {
                // Whether it is this unit's event, only the assignment says.
            } else if self.assembly.event(slot).is_first_step {
                self.close_first_step(now, slot);
            } else if is_last {
                self.complete(now, slot);
            } else {
                self.close_without_absent(now, slot);
            }
        }
    }

    /// An event has all its fragments.
    fn complete(&mut self, now: RunNs, slot: u32) {
        self.counts.events_built += 1;
        self.counts.fragments_in_built += self.sources.len() as u64;
        self.close_event(now, slot, Outcome::Complete);
    }

    /// An event is closed without some of its fragments.
    fn close_incomplete(&mut self, now: RunNs, slot: u32) {
        let received = self.assembly.event(slot).received;
        self.counts.events_incomplete += 1;
        self.counts.fragments_in_incomplete += u64::from(received);
        self.close_event(now, slot, Outcome::Incomplete);
    }

    #[cfg(feature = "mutants")]
    fn takes_any_epoch(&self) -> bool {
        self.mutant == Some(crate::mutant::Mutant::NoEpoch)
    }

    #[cfg(not(feature = "mutants"))]
    const fn takes_any_epoch(&self) -> bool {
        false
    }

    #[cfg(feature = "mutants")]
    fn counts_duplicates(&self) -> bool {
        self.mutant == Some(crate::mutant::Mutant::NoDuplicateCheck)
    }

    #[cfg(not(feature = "mutants"))]
    const fn counts_duplicates(&self) -> bool {
        false
    }

    /// An event takes no more fragments and goes to a filter unit.
    fn close_event(&mut self, now: RunNs, slot: u32, outcome: Outcome) {
        let event = self.assembly.event_mut(slot);
        event.built_at = now;
        event.outcome = outcome;
        if self.are_sizes_wanted {
            self.sizes.push_back((event.trigger, event.bytes));
        }
        self.assembly.set_stage(slot, Stage::Ready);
        self.dispatch.push(slot);
    }

    fn done(&mut self, trigger: TriggerNumber) {
        let slot = self.slots.get(trigger).copied();
        let stage = slot.map(|slot| self.assembly.event(slot).stage);
        let (Some(slot), Some(Stage::Filtering { filter })) = (slot, stage) else {
            self.counts.dones_unknown += 1;
            return;
        };
        self.note_done(slot);
        self.dispatch.done(filter);
        self.end_first_step(slot);
        self.finish(slot);
    }

    /// Counts an event that filter units or the writer are through with, and what it is: should this
    /// unit die, all else that it has closed may be built again.
    fn note_done(&mut self, slot: u32) {
        let event = self.assembly.event(slot);
        let fragments = u64::from(event.received);
        self.counts.events_done += 1;
        self.counts.fragments_done += fragments;
        if event.outcome == Outcome::Incomplete {
            self.counts.incomplete_done += 1;
            self.counts.fragments_in_incomplete_done += fragments;
        }
    }

    fn finish(&mut self, slot: u32) {
        self.assembly.set_stage(slot, Stage::Finished);
        self.finished.push_back(slot);
    }

    /// The next ticket for a filter unit: fills `ticket` and says whose it is.
    pub fn poll_ticket(&mut self, ticket: &mut EventTicket) -> Option<UnitId> {
        let (slot, filter) = self.dispatch.poll()?;
        self.assembly.set_stage(slot, Stage::Filtering { filter });
        self.assembly.fill(slot, self.index, &self.sources, ticket);
        self.counts.tickets += 1;
        #[cfg(feature = "mutants")]
        if self.mutant == Some(crate::mutant::Mutant::EarlyClear) {
            self.dispatch.done(filter);
            self.finish(slot);
        }
        Some(UnitId::filter(filter))
    }

    /// The next message to send. Hand in all messages that have come before polling: what they
    /// bring goes out in groups. Nothing is held back to fill a group up, but after
    /// [`BuilderUnit::group_messages`].
    pub fn poll_output(&mut self, now: RunNs) -> Option<Outgoing> {
        let output = self.poll_message(now);
        if self.heartbeat.is_off() {
            return output;
        }
        let output = match output {
            None if self.heartbeat.due() <= now => {
                self.counts.heartbeats += 1;
                self.send_manager(BuilderMessage::Alive)
            }
            output => output?,
        };
        if output.to == UnitId::EVENT_MANAGER {
            self.heartbeat.restart(now);
        }
        Some(output)
    }

    fn poll_message(&mut self, now: RunNs) -> Option<Outgoing> {
        if let Some(answer) = self.poll_answer() {
            return Some(answer);
        }
        if self.credits_to_request {
            self.credits_to_request = false;
            let again = self.credits_again();
            let retry_at = now.after(again);
            self.credits_requested_at = Some(retry_at);
            self.timeout_at = self.timeout_at.min(retry_at);
            let credits = self.credits;
            return Some(self.send_manager(BuilderMessage::EventRequest { credits }));
        }
        self.poll_request(now)
            .or_else(|| self.poll_repetition())
            .or_else(|| self.poll_release(now))
            .or_else(|| self.poll_release_again())
            .or_else(|| self.poll_sizes())
            .or_else(|| self.poll_clear())
    }

    /// Tells how large built events are, so that what was set aside beyond it is free again.
    fn poll_sizes(&mut self) -> Option<Outgoing> {
        if self.sizes.is_empty() {
            return None;
        }
        let most = self.group_max.min(SIZES_MAX).min(self.sizes.len());
        let sizes = self.sizes.drain(..most).collect();
        Some(self.send_manager(BuilderMessage::EventSize { sizes }))
    }

    fn send_manager(&mut self, message: BuilderMessage) -> Outgoing {
        let sender = UnitId::builder(self.index);
        let messages = &mut self.counts.messages;
        self.manager.send(sender, self.epoch, 0, message, messages)
    }

    fn send_readout(&mut self, to: usize, message: BuilderMessage) -> Outgoing {
        let sender = UnitId::builder(self.index);
        let messages = &mut self.counts.messages;
        self.readouts
            .send(sender, self.epoch, to, message, messages)
    }

    fn readout_count(&self) -> u16 {
        self.readouts.len() as u16
    }

    /// Asks every readout unit for the fragments of a group of events, then the next group. Each
    /// builder unit starts its rounds elsewhere, so that they do not all ask the first one first.
    fn poll_request(&mut self, now: RunNs) -> Option<Outgoing> {
        let units = self.readout_count();
        if self.request_round.left == 0 {
            if self.holds_requests(now) {
                return None;
            }
            self.requesting.clear();
            while self.requesting.len() < self.group_max
                && let Some(slot) = self.waiting.front()
            {
                let event = self.assembly.event(*slot);
                if event.stage == Stage::Waiting {
                    if self.requesting.is_empty() {
                        self.is_requesting_first = event.is_first_step;
                    } else if self.is_requesting_first != event.is_first_step {
                        break;
                    }
                    self.requesting.push(event.trigger);
                }
                self.waiting.pop_front();
            }
            if self.requesting.is_empty() {
                return None;
            }
            self.request_round.start(self.index, units);
            self.releases_held.end();
        }
        let to = self.next_to_ask(now);
        let triggers = self.requesting.clone();
        Some(self.send_readout(to, BuilderMessage::FragmentRequest { triggers }))
    }

    /// Every readout unit was asked for the current group: retries are counted from here.
    fn start_building(&mut self, now: RunNs) {
        let retry_at = now.after(self.retry);
        for trigger in &self.requesting {
            if let Some(slot) = self.slots.get(*trigger)
                && let event = self.assembly.event_mut(*slot)
                && event.stage == Stage::Waiting
            {
                event.stage = Stage::Building;
                event.retry_at = retry_at;
                self.timeout_at = self.timeout_at.min(retry_at);
            }
        }
    }

    /// Tells every readout unit to release a group of complete events, or an incomplete one.
    fn poll_release(&mut self, now: RunNs) -> Option<Outgoing> {
        let units = self.readout_count();
        let releasing = match self.releasing {
            Some(releasing) => releasing,
            None => {
                if self.holds_releases(now) {
                    return None;
                }
                let next = self.next_releasing()?;
                self.release_round.start(self.index, units);
                *self.releasing.insert(next)
            }
        };
        let to = usize::from(self.release_round.next);
        let message = match releasing {
            Releasing::Whole(events) => BuilderMessage::Release {
                triggers: self.finished_events().take(events).collect(),
            },
            Releasing::Partial(slot) => {
                let trigger = self.assembly.event(slot).trigger;
                self.partial_release(to, trigger, slot)
            }
        };
        self.next_to_release(releasing);
        Some(self.send_readout(to, message))
    }

    /// What the next round of releases says: the first of `finished`, grouped with those behind it.
    fn next_releasing(&self) -> Option<Releasing> {
        let first = *self.finished.front()?;
        if self.assembly.event(first).outcome != Outcome::Complete {
            return Some(Releasing::Partial(first));
        }
        let complete = self
            .finished
            .iter()
            .take(self.group_max)
            .take_while(|slot| self.assembly.event(**slot).outcome == Outcome::Complete);
        Some(Releasing::Whole(complete.count()))
    }

    fn finished_events(&self) -> impl Iterator<Item = TriggerNumber> {
        let slots = self.finished.iter();
        slots.map(|slot| self.assembly.event(*slot).trigger)
    }

    /// The release of an event that is not complete, as one readout unit must hear it. Nothing of
    /// an aborted event is in an event.
    fn partial_release(&self, to: usize, trigger: TriggerNumber, slot: u32) -> BuilderMessage {
        let missing = match self.assembly.event(slot).outcome {
            Outcome::Aborted => self.sources.all_of(to),
            _ => self.sources.missing_of(to, self.assembly.received(slot)),
        };
        BuilderMessage::ReleasePartial { trigger, missing }
    }

    /// Remembers to release an event again; without room the readout unit asks once more.
    fn release_again(&mut self, readout: u16, trigger: TriggerNumber) {
        let again = (readout, trigger);
        let has_room = self.releases_again.len() < RELEASES_AGAIN_MAX;
        if has_room && !self.releases_again.contains(&again) {
            self.releases_again.push_back(again);
        }
    }

    /// Releases an event again to a readout unit that sent a fragment of it after the fact.
    fn poll_release_again(&mut self) -> Option<Outgoing> {
        let (to, trigger) = self.releases_again.pop_front()?;
        let to = usize::from(to);
        let message = match (self.history.past(trigger), self.partials.received(trigger)) {
            (Past::Closed(Closing::Dropped), _) => BuilderMessage::ReleasePartial {
                trigger,
                missing: self.sources.all_of(to),
            },
            (Past::Closed(Closing::Partial) | Past::Forgotten, Some(received)) => {
                BuilderMessage::ReleasePartial {
                    trigger,
                    missing: self.sources.missing_of(to, received),
                }
            }
            (Past::Forgotten, None) => BuilderMessage::Forgotten { trigger },
            _ => BuilderMessage::Release {
                triggers: [trigger].into_iter().collect(),
            },
        };
        self.counts.releases_repeated += 1;
        Some(self.send_readout(to, message))
    }

    /// Returns the credits of released events; only now are their slots vacant. What a clear that was
    /// lost has said of the filter is not remembered: said again, it might have been accepted.
    fn poll_clear(&mut self) -> Option<Outgoing> {
        let mut triggers = TriggerList::new();
        // The kind of which there are more: none waits for ever.
        let are_accepted = self.clearing[1].len() >= self.clearing[0].len();
        while triggers.len() < self.group_max
            && let Some(slot) = self.clearing[usize::from(are_accepted)].pop_front()
        {
            let event = *self.assembly.event(slot);
            let closing = match event.outcome {
                Outcome::Complete => Closing::Complete,
                Outcome::Incomplete => Closing::Partial,
                Outcome::Aborted => Closing::Dropped,
            };
            if event.outcome == Outcome::Incomplete {
                self.partials
                    .record(event.trigger, self.assembly.received(slot));
            }
            self.history.record(event.trigger, closing);
            self.slots.remove(event.trigger);
            self.vacate(slot);
            self.counts.cleared += 1;
            triggers.push(event.trigger);
        }
        while are_accepted
            && triggers.len() < self.group_max
            && let Some(trigger) = self.clears_again.pop_front()
        {
            self.counts.clears_repeated += 1;
            triggers.push(trigger);
        }
        if triggers.is_empty() {
            return None;
        }
        Some(self.send_manager(match are_accepted {
            true => BuilderMessage::ClearAccepted { triggers },
            false => BuilderMessage::Clear { triggers },
        }))
    }

    /// When [`BuilderUnit::handle_timeout`] is next worth calling; it may turn out that nothing was
    /// due.
    pub fn poll_timeout(&self) -> RunNs {
        let held = self.requests_held.due.min(self.releases_held.due);
        self.timeout_at.min(self.heartbeat.due()).min(held)
    }

    /// Closes events whose time is over, and asks again for what is missing in others. Does nothing
    /// before [`BuilderUnit::poll_timeout`]. Called 10 ms later than that or more, it closes no event
    /// yet: each has as much time again, up to the timeout, for what came while nobody looked.
    pub fn handle_timeout(&mut self, now: RunNs) {
        self.requests_held.handle_timeout(now);
        self.releases_held.handle_timeout(now);
        if now < self.timeout_at {
            return;
        }
        // Who stood still has not read all that came, and more waits at readout units whose way was full.
        let pardoned = now.after(self.timeout_at.standstill(now).min(self.timeout));
        self.timeout_at = RunNs::MAX;
        if let Some(retry_at) = self.credits_requested_at {
            self.credits_to_request |= retry_at <= now;
            if retry_at > now {
                self.timeout_at = retry_at;
            }
        }
        for slot in 0..self.assembly.slots() {
            let event = self.assembly.event_mut(slot);
            if !event.is_open() {
                continue;
            }
            event.deadline = event.deadline.max(pardoned);
            if event.deadline <= now {
                match (event.is_early, event.is_first_step) {
                    (true, _) => self.end_early(slot),
                    (false, true) => self.go_on_unjudged(now, slot),
                    (false, false) => self.close_incomplete(now, slot),
                }
                continue;
            }
            if event.stage == Stage::Building && !event.is_early && event.retry_at <= now {
                self.ask_again(now, slot);
            }
            let event = self.assembly.event(slot);
            let next = event.deadline.min(event.retry_at);
            self.timeout_at = self.timeout_at.min(next);
        }
    }

    /// Whether it holds no event and has nothing to send.
    pub fn is_idle(&self) -> bool {
        self.slots.len() == 0
            && self.clears_again.is_empty()
            && self.releases_again.is_empty()
            && self.answers.is_empty()
            && !self.credits_to_request
    }

    /// Number of events in hand, from assignment to clear; at most the credits.
    pub fn events_held(&self) -> usize {
        self.slots.len()
    }

    /// Number of closed events that wait for a filter unit.
    pub fn events_ready(&self) -> usize {
        self.dispatch.waiting()
    }

    /// Ends by force: unfinished events are given up, events that no filter unit has are lost, and
    /// so is what is still to come; all are released and cleared. Events in filter units and at the
    /// writer remain until those answer.
    pub fn abort(&mut self) {
        self.ending = true;
        self.credits_to_request = false;
        self.credits_requested_at = None;
        while let Some(slot) = self.dispatch.withdraw() {
            self.losses.add(LossCause::FilterAborted, 1);
            self.end_first_step(slot);
            self.finish(slot);
        }
        for slot in 0..self.assembly.slots() {
            let event = self.assembly.event(slot);
            match (event.is_open(), event.is_early) {
                (true, true) => self.forget_early(slot),
                (true, false) => self.give_up(slot),
                _ => {}
            }
        }
    }

    /// An unfinished event becomes none.
    fn give_up(&mut self, slot: u32) {
        self.losses.add(LossCause::EventAborted, 1);
        self.assembly.event_mut(slot).outcome = Outcome::Aborted;
        self.finish(slot);
    }

    /// Counts the events in filter units and at the writer as lost, so that they are released and
    /// cleared. Only for the end, when nobody reads their pages any more.
    pub fn close(&mut self) {
        self.abort();
        self.lose_filtering(|_| true);
        self.give_up_writing();
    }

    /// What it did.
    pub fn counts(&self) -> &BuilderCounts {
        &self.counts
    }

    /// What was lost here.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }
}

/// Room in the filter units that a builder unit serves; all others stay away.
fn dispatch_of(config: &BuilderConfig, builder: u16) -> FilterDispatch {
    let filters = config.filter_units;
    let (window, credits) = (config.filter_in_flight, config.credits as usize);
    let mut dispatch = FilterDispatch::new(filters.into(), window, credits);
    for filter in (0..filters).filter(|filter| !config.serves(builder, *filter)) {
        dispatch.remove_filter(filter);
    }
    dispatch
}

#[cfg(test)]
mod tests;
