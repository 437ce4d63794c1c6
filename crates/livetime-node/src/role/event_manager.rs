//! The event manager role: accepts in, assignments out, credits back.
//!
//! Drives `livetime_builder::EventManager`, which says what happens and why, and where readout units
//! send in phases the barrier between these, [`super::manager_barrier`]. One that takes the place of
//! another begins with [`super::manager_succession`]. What is finished it tells the supervisor, many
//! triggers at a time, if another may take its own place.

use std::sync::Arc;

use livetime_builder::EventManager;
use livetime_shm::Producer;
use livetime_wire::message::{BuilderMessage, Envelope, TriggerList};
use livetime_wire::{RunNs, TriggerNumber, UnitId, UnitKind};

use super::manager_barrier::ManagerBarrier;
use super::manager_succession::ManagerSuccession;
use super::{Role, RoleCommand, RoleResult, network_details, poll_cut, reconnect, restore_socket};
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::message_ring::{Inbox, Outbox, is_taken, receive};
use crate::worker::Phase;

/// Messages taken from one inbox in one duty cycle.
const MESSAGES_PER_POLL: usize = 64;

/// Name of the counter of a builder unit's events that were at the writer when it cleared them; there
/// is none in a run that lost no builder unit.
pub(crate) fn accepted_of(builder: UnitId) -> String {
    format!("events_accepted.{builder}")
}

/// What tells the supervisor which triggers need not be remembered any more.
pub struct ManagerClosings {
    /// The ring to it; without one, its stream is taken.
    ring: Option<Producer>,
    epoch: u32,
    sequence: u32,
    /// Those that are told next.
    next: TriggerList,
}

impl ManagerClosings {
    /// Over a ring, or else over the supervisor's stream; in the event manager's epoch.
    pub fn new(ring: Option<Producer>, epoch: u32) -> Self {
        Self {
            ring,
            epoch,
            sequence: 0,
            next: TriggerList::new(),
        }
    }

    /// Tells what is finished: a full message, or with `is_idle` what there is. Returns how many
    /// messages that took.
    fn tell(&mut self, core: &mut EventManager, inboxes: &mut [Inbox], is_idle: bool) -> usize {
        let mut work = 0;
        loop {
            while !self.next.is_full()
                && let Some(trigger) = core.poll_closed()
            {
                self.next.push(trigger);
            }
            let is_due = self.next.is_full() || is_idle && !self.next.is_empty();
            if !is_due || !self.send(inboxes) {
                return work;
            }
            self.next.clear();
            work += 1;
        }
    }

    fn send(&mut self, inboxes: &mut [Inbox]) -> bool {
        let envelope = Envelope {
            sender: UnitId::EVENT_MANAGER,
            epoch: self.epoch,
            sequence: self.sequence,
            message: BuilderMessage::Clear {
                triggers: self.next.clone(),
            },
        };
        let is_sent = match &mut self.ring {
            Some(ring) => ring.has_room() && is_taken(ring.try_push(&envelope.to_words())),
            None => {
                let mut inboxes = inboxes.iter_mut();
                let of_supervisor = inboxes.find(|inbox| inbox.from() == UnitId::SUPERVISOR);
                of_supervisor.is_some_and(|inbox| inbox.say_back(&envelope))
            }
        };
        self.sequence = self.sequence.wrapping_add(u32::from(is_sent));
        is_sent
    }
}

/// Everything that an event manager is made of.
pub struct EventManagerParts {
    /// Role id.
    pub id: String,
    /// The protocol core; of one that takes the place of another, as long as it is in succession,
    /// only a place for it.
    pub core: EventManager,
    /// What it does not know yet, if it takes the place of another.
    pub succession: Option<ManagerSuccession>,
    /// What tells the supervisor what is finished, if that remembers accepts.
    pub closings: Option<ManagerClosings>,
    /// Messages of the supervisor and of units that share memory with it.
    pub inboxes: Vec<Inbox>,
    /// Messages to builder and readout units.
    pub outbox: Outbox,
    /// The barrier of readout units that send in phases.
    pub barrier: Option<ManagerBarrier>,
    /// Where the counters are published.
    pub block: Arc<CounterBlock>,
}

/// The event manager role.
pub struct EventManagerRole {
    id: String,
    core: EventManager,
    succession: Option<ManagerSuccession>,
    closings: Option<ManagerClosings>,
    /// Triggers that were open when it took the place of another; `None` for the first.
    recovered: Option<u64>,
    /// Builder units that were lost before it knew what is open.
    lost_before: Vec<u16>,
    inboxes: Vec<Inbox>,
    outbox: Outbox,
    barrier: Option<ManagerBarrier>,
    block: Arc<CounterBlock>,
    counts: RoleCounts,
    aborted: bool,
    /// Whether a builder unit was ever lost.
    builder_lost: bool,
    /// The answer to the last command: events of a lost builder unit.
    named: Vec<TriggerNumber>,
}

impl EventManagerRole {
    /// An event manager at the start of its run.
    pub fn new(parts: EventManagerParts) -> Self {
        Self {
            id: parts.id,
            core: parts.core,
            recovered: parts.succession.as_ref().map(ManagerSuccession::open),
            succession: parts.succession,
            closings: parts.closings,
            lost_before: Vec::new(),
            inboxes: parts.inboxes,
            outbox: parts.outbox,
            barrier: parts.barrier,
            block: parts.block,
            counts: RoleCounts::default(),
            aborted: false,
            builder_lost: false,
            named: Vec::new(),
        }
    }

    fn take_messages(&mut self, now: RunNs) -> usize {
        if self.succession.is_some() {
            return self.take_open();
        }
        let (core, outbox, barrier) = (&mut self.core, &mut self.outbox, &mut self.barrier);
        receive(&mut self.inboxes, outbox, MESSAGES_PER_POLL, |envelope| {
            let barrier = barrier.as_mut();
            let of_barrier = barrier.and_then(|barrier| barrier.handle_message(now, envelope));
            of_barrier.unwrap_or_else(|| core.handle_message(now, envelope))
        })
    }

    /// Hears from the supervisor what is open, and begins with it. What others say waits.
    fn take_open(&mut self) -> usize {
        let mut inboxes = self.inboxes.iter_mut();
        let of_supervisor = inboxes.find(|inbox| inbox.from() == UnitId::SUPERVISOR);
        let (Some(inbox), Some(succession)) = (of_supervisor, &mut self.succession) else {
            return 0;
        };
        let mut work = 0;
        // What comes behind is for the event manager that it will be.
        while work < MESSAGES_PER_POLL && !succession.is_told() {
            let Some(envelope) = inbox.take() else { break };
            succession.handle_message(&envelope);
            work += 1;
        }
        self.succeed();
        work
    }

    /// Begins in the place of another, once everything is known.
    fn succeed(&mut self) {
        let Some(succession) = self.succession.take_if(|s| s.is_complete()) else {
            return;
        };
        self.core = succession.to_core();
        self.core.report_closed();
        self.recovered = Some(succession.open());
        if self.aborted {
            self.core.abort();
        }
        for builder in std::mem::take(&mut self.lost_before) {
            self.withdraw(builder);
        }
    }

    fn withdraw(&mut self, builder: u16) {
        if self.succession.is_some() {
            self.lost_before.push(builder);
        } else {
            self.named.extend(self.core.withdraw_builder(builder));
        }
    }

    fn publish(&mut self) {
        let idle = self.core.is_idle()
            && self.succession.is_none()
            && self.outbox.is_empty()
            && self.inboxes.iter_mut().all(Inbox::is_empty);
        self.counts.losses = *self.core.losses();
        self.counts.gauges.idle = u64::from(idle);
        self.counts.gauges.held = self.core.queued() as u64;
        self.counts.gauges.received = self.core.counts().accepts;
        self.block.publish(&self.counts);
    }
}

impl Role for EventManagerRole {
    fn id(&self) -> &str {
        &self.id
    }

    fn poll(&mut self, now: RunNs, phase: Phase) -> usize {
        if phase == Phase::Aborting && !self.aborted {
            self.aborted = true;
            self.core.abort();
        }
        let heartbeats = self.core.counts().heartbeats;
        let mut work = self.take_messages(now);
        if self.succession.is_some() {
            return work;
        }
        if self.core.poll_timeout() <= now {
            self.core.handle_timeout(now);
        }
        if let Some(barrier) = &mut self.barrier {
            barrier.handle_timeout(now);
        }
        work += self.outbox.send_all(|| {
            let of_barrier = self.barrier.as_mut().and_then(ManagerBarrier::poll_output);
            of_barrier.or_else(|| self.core.poll_output(now))
        });
        if let Some(closings) = &mut self.closings {
            work += closings.tell(&mut self.core, &mut self.inboxes, work == 0);
        }
        if work > 0 || phase >= Phase::Draining {
            self.publish();
        }
        // Who hears that others live is at rest.
        work.saturating_sub((self.core.counts().heartbeats - heartbeats) as usize)
    }

    fn handle_command(&mut self, now: RunNs, command: RoleCommand) {
        match command {
            RoleCommand::PeerLost { unit, .. } => {
                if unit.kind == UnitKind::Builder {
                    // What the dead unit said before comes first.
                    while self.take_messages(now) > 0 {}
                }
                self.outbox.lose(unit);
                if let Some(barrier) = &mut self.barrier {
                    barrier.lose(unit);
                }
                if unit.kind == UnitKind::Builder {
                    self.builder_lost = true;
                    self.withdraw(unit.index);
                }
            }
            RoleCommand::Succeed { finished } => {
                if let Some(succession) = &mut self.succession {
                    succession.handle_finished(finished);
                }
                self.succeed();
            }
            RoleCommand::Decide { unit, triggers } => {
                let again = self.core.reassign(unit.index, &triggers);
                self.named.extend(again);
            }
            RoleCommand::NameOpen => self.named.extend(self.core.open_triggers()),
            RoleCommand::Retire { .. }
            | RoleCommand::NameReleased { .. }
            | RoleCommand::NameUnasked { .. }
            | RoleCommand::EndUnasked { .. }
            | RoleCommand::NameHeld { .. }
            | RoleCommand::Hold { .. }
            | RoleCommand::Pause { .. }
            | RoleCommand::Joined { .. } => {}
            RoleCommand::StreamBack { unit, stream } => {
                reconnect(&mut self.outbox, unit, stream);
            }
            RoleCommand::PeerBack {
                unit,
                epoch,
                producers,
                consumers,
                socket,
                ..
            } => {
                match unit.kind {
                    UnitKind::Readout => self.core.handle_readout_back(unit.index, epoch),
                    _ => self.core.handle_builder_back(unit.index, epoch),
                }
                if let Some(barrier) = &mut self.barrier {
                    barrier.restore(unit);
                }
                restore_socket(&mut self.outbox, unit, socket);
                let inbox = self.inboxes.iter_mut().find(|i| i.from() == unit);
                if let (Some(inbox), Some(ring)) = (inbox, consumers.into_values().next()) {
                    inbox.replace(ring);
                }
                if let Some(ring) = producers.into_values().next() {
                    self.outbox.restore(unit, ring);
                }
            }
        }
    }

    fn poll_settled(&mut self) -> Option<Vec<TriggerNumber>> {
        let is_settled = self.succession.is_none();
        is_settled.then(|| std::mem::take(&mut self.named))
    }

    fn poll_silent(&mut self) -> Option<UnitId> {
        self.core.poll_silent().map(UnitId::builder)
    }

    fn poll_cut(&mut self, now: RunNs) -> Option<UnitId> {
        let inboxes = &mut self.inboxes;
        let cut = inboxes.iter_mut().find_map(|inbox| inbox.poll_cut(now));
        cut.or_else(|| poll_cut(&mut self.outbox, now))
    }

    fn close(&mut self) {
        self.core.close();
    }

    fn finish(mut self: Box<Self>, _now: RunNs) -> RoleResult {
        self.publish();
        let counts = *self.core.counts();
        let malformed: u64 = self.inboxes.iter().map(Inbox::malformed).sum();
        let details = [
            ("assignments", counts.assignments),
            ("assignments_repeated", counts.assignments_repeated),
            ("cleared", counts.cleared),
            ("reassigned", counts.reassigned),
            ("handed_on", counts.handed_on),
            ("events_oversized", counts.events_oversized),
            ("credits_granted", counts.credits_granted),
            ("builders_silent", counts.builders_silent),
            ("messages_received", counts.messages.received),
            ("messages_sent", counts.messages.sent),
            ("messages_malformed", malformed),
        ];
        let recovered = (self.recovered).map(|open| ("triggers_recovered", open));
        let accepted = self.core.accepted_of_builders();
        let accepted: Vec<_> = accepted
            .filter(|_| self.builder_lost)
            .map(|(builder, n)| (accepted_of(UnitId::builder(builder)), n))
            .collect();
        RoleResult {
            id: self.id,
            counts: self.counts,
            details: details
                .into_iter()
                .chain(recovered)
                .chain(self.barrier.iter().flat_map(ManagerBarrier::details))
                .chain(network_details(&mut self.outbox))
                .map(|(name, n)| (name.to_owned(), n))
                .chain(accepted)
                .collect(),
            ..RoleResult::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use livetime_builder::{BuilderConfig, Handled};
    use livetime_shm::{RingConfig, ring};
    use livetime_wire::L2Mask;
    use livetime_wire::message::MESSAGE_WORDS_MAX;

    use super::*;

    const NOW: RunNs = RunNs(1);

    /// An event manager to whom one builder unit has cleared so many events.
    fn cleared(count: u64) -> EventManager {
        let config = BuilderConfig {
            builder_units: 1,
            credits: 64,
            ..BuilderConfig::default()
        };
        let mut core = EventManager::new(&config, 1);
        core.report_closed();
        let mut say = |sender, message| {
            let envelope = Envelope {
                sender,
                epoch: 1,
                sequence: 0,
                message,
            };
            assert_eq!(core.handle_message(NOW, &envelope), Handled::Taken);
            while core.poll_output(NOW).is_some() {}
        };
        let builder = UnitId::builder(0);
        let credits = config.credits;
        say(builder, BuilderMessage::EventRequest { credits });
        for trigger in (1..=count).map(TriggerNumber) {
            let accept = BuilderMessage::L2Accept {
                trigger,
                mask: L2Mask(1),
                triggered_at: NOW,
            };
            say(UnitId::SUPERVISOR, accept);
            let triggers = [trigger].into_iter().collect();
            say(builder, BuilderMessage::Clear { triggers });
        }
        core
    }

    #[test]
    fn what_is_finished_is_told_in_full_messages_and_the_rest_when_nothing_else_is_done() {
        let config = RingConfig {
            slots: 16,
            slot_words: MESSAGE_WORDS_MAX as u32,
        };
        let (producer, consumer) = ring(&config).unwrap();
        let mut told = Inbox::new(UnitId::EVENT_MANAGER, consumer);
        let mut closings = ManagerClosings::new(Some(producer), 1);
        let mut core = cleared(40);
        let mut triggers = Vec::new();
        for (is_idle, expected) in [(false, 1), (false, 0), (true, 1), (true, 0)] {
            assert_eq!(closings.tell(&mut core, &mut [], is_idle), expected);
            if let Some(envelope) = told.take() {
                assert_eq!(expected, 1);
                let BuilderMessage::Clear { triggers: some } = envelope.message else {
                    panic!("{envelope:?}");
                };
                triggers.push(some.iter().map(|trigger| trigger.0).collect::<Vec<_>>());
            }
        }
        assert_eq!(
            triggers,
            [(1..=32).collect::<Vec<_>>(), (33..=40).collect()]
        );
    }
}
