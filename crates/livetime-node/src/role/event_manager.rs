//! The event manager role: accepts in, assignments out, credits back.
//!
//! Drives `livetime_builder::EventManager`, which says what happens and why, and where readout units
//! send in phases the barrier between these, [`super::manager_barrier`].

use std::sync::Arc;

use livetime_builder::EventManager;
use livetime_wire::{RunNs, TriggerNumber, UnitId, UnitKind};

use super::manager_barrier::ManagerBarrier;
use super::{Role, RoleCommand, RoleResult, network_details, poll_cut, reconnect, restore_socket};
use crate::counter_block::{CounterBlock, RoleCounts};
use crate::message_ring::{Inbox, Outbox, receive};
use crate::worker::Phase;

/// Messages taken from one inbox in one duty cycle.
const MESSAGES_PER_POLL: usize = 64;

/// Name of the counter of a builder unit's events that were at the writer when it cleared them; there
/// is none in a run that lost no builder unit.
pub(crate) fn accepted_of(builder: UnitId) -> String {
    format!("events_accepted.{builder}")
}

/// Everything that an event manager is made of.
pub struct EventManagerParts {
    /// Role id.
    pub id: String,
    /// The protocol core.
    pub core: EventManager,
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
        let (core, outbox, barrier) = (&mut self.core, &mut self.outbox, &mut self.barrier);
        receive(&mut self.inboxes, outbox, MESSAGES_PER_POLL, |envelope| {
            let barrier = barrier.as_mut();
            let of_barrier = barrier.and_then(|barrier| barrier.handle_message(now, envelope));
            of_barrier.unwrap_or_else(|| core.handle_message(now, envelope))
        })
    }

    fn publish(&mut self) {
        let idle = self.core.is_idle()
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
        let mut work = self.take_messages(now);
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
        if work > 0 || phase >= Phase::Draining {
            self.publish();
        }
        work
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
                    self.named.extend(self.core.withdraw_builder(unit.index));
                }
            }
            RoleCommand::Decide { unit, triggers } => {
                let again = self.core.reassign(unit.index, &triggers);
                self.named.extend(again);
            }
            RoleCommand::Retire { .. }
            | RoleCommand::NameReleased { .. }
            | RoleCommand::NameHeld { .. }
            | RoleCommand::Hold { .. }
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
        Some(std::mem::take(&mut self.named))
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
                .chain(self.barrier.iter().flat_map(ManagerBarrier::details))
                .chain(network_details(&mut self.outbox))
                .map(|(name, n)| (name.to_owned(), n))
                .chain(accepted)
                .collect(),
            ..RoleResult::default()
        }
    }
}
