//! How a restarted event manager learns what its predecessor knew.
//!
//! ```text
//! driver                          EVM (new epoch)                     builder units
//!   ├─readout units: its epoch       │                                     │
//!   ├─filter units, writer: which of │                                     │
//!   │ the open triggers have you had │                                     │
//!   ├─recovering(open, handed on)───►│──Recover (32 triggers)─────────────►│ old epoch refused
//!   │                                │◄─Recovered (held, closed)───────────┤ from here on
//!   │                                │ repeated until each has answered    │
//! ```
//! The open triggers are those that the supervisor remembers as accepted and was not told to be
//! closed ([`EventManager::poll_closed`]). Held by a builder unit: in flight there; named as held and
//! closed where it is built, so that its size counts in place of what is set aside for an event: the
//! unit tells it ahead of the answer, which is asked for again while the size is missing. Closed by one,
//! or handed on by one that is gone: done. All others are queued again. Builder units go on
//! building meanwhile; nothing is assigned until all have answered or are withdrawn. What a builder
//! unit says to be closed the supervisor is told at once: the unit may be gone before the rest has
//! answered, and this event manager as well.

use livetime_wire::message::{BuilderMessage, TRIGGERS_MAX, TriggerList};
use livetime_wire::{RunNs, TriggerNumber, UnitId};

use super::{AcceptedTrigger, EventManager, InFlight};
use crate::builder_config::BuilderConfig;
use crate::message_exchange::{Outgoing, PeerEpochs};
use crate::trigger_history::Closing;

/// What is known of an open trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// No builder unit has named it yet.
    Unknown,
    /// A builder unit holds it.
    Held(u16),
    /// It is finished.
    Closed,
    /// Its builder unit is withdrawn; it waits for [`EventManager::reassign`].
    Parked,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    event: AcceptedTrigger,
    fate: Fate,
    /// Its size, from whom, where its builder unit has told it.
    size: Option<(u16, u32)>,
    /// The supervisor was told that it is closed.
    is_told: bool,
}

/// The questions and what came back.
#[derive(Debug)]
pub(super) struct Recovery {
    /// Ordered by trigger; the questions are its pieces of 32.
    open: Vec<Open>,
    batches: usize,
    /// By builder unit and question: whether it is answered.
    answered: Vec<bool>,
    /// Where the next question is; past the end until repeated.
    cursor: usize,
    repeat_at: RunNs,
}

impl Recovery {
    fn find(&mut self, trigger: TriggerNumber) -> Option<&mut Open> {
        let at = self
            .open
            .binary_search_by_key(&trigger, |open| open.event.trigger)
            .ok()?;
        Some(&mut self.open[at])
    }
}

impl EventManager {
    /// An event manager that takes the place of one that is gone. `epoch` is its own and must be
    /// above all of its predecessors'; `open` are the accepted triggers that the supervisor knows
    /// to be open, and `handed_on` those of them that filter units or the writer had. Builder units
    /// that are gone must then be withdrawn, and their events reassigned.
    pub fn recovering(
        config: &BuilderConfig,
        epoch: u32,
        peers: PeerEpochs<'_>,
        open: &[AcceptedTrigger],
        handed_on: &[TriggerNumber],
    ) -> Self {
        let mut manager = Self::new(config, epoch);
        for (builder, epoch) in (0..).zip(peers.builders) {
            manager.builders.renew(builder, *epoch);
        }
        for (readout, epoch) in (0..).zip(peers.readouts) {
            manager.readouts.renew(readout, *epoch);
        }
        manager.supervisor.renew(0, peers.supervisor);
        let mut open: Vec<Open> = open
            .iter()
            .map(|event| Open {
                event: *event,
                fate: match handed_on.contains(&event.trigger) {
                    true => Fate::Closed,
                    false => Fate::Unknown,
                },
                size: None,
                is_told: false,
            })
            .collect();
        open.sort_by_key(|open| open.event.trigger);
        open.dedup_by_key(|open| open.event.trigger);
        let batches = open.len().div_ceil(TRIGGERS_MAX).max(1);
        manager.recovery = Some(Recovery {
            open,
            batches,
            answered: vec![false; batches * usize::from(config.builder_units)],
            cursor: 0,
            repeat_at: RunNs(0),
        });
        manager
    }

    /// Whether it does not yet know what its predecessor knew.
    pub fn is_in_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    /// The next trigger that is finished and need not be remembered by the supervisor any more.
    pub fn poll_closed(&mut self) -> Option<TriggerNumber> {
        self.closed.as_mut()?.pop_front()
    }

    /// Whether a trigger is among those whose fate is not yet known.
    pub(super) fn is_recovering(&self, trigger: TriggerNumber) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| {
            recovery
                .open
                .binary_search_by_key(&trigger, |open| open.event.trigger)
                .is_ok()
        })
    }

    /// The next question, to each builder unit that has not answered it.
    pub(super) fn poll_recovery(&mut self, now: RunNs) -> Option<Outgoing> {
        let probe = self.probe;
        let recovery = self.recovery.as_mut()?;
        if recovery.cursor == 0 {
            recovery.repeat_at = now.after(probe);
        }
        while recovery.cursor < recovery.answered.len() {
            let at = recovery.cursor;
            recovery.cursor += 1;
            if recovery.answered[at] {
                continue;
            }
            let (builder, batch) = (at / recovery.batches, at % recovery.batches);
            let triggers: TriggerList = recovery
                .open
                .iter()
                .skip(batch * TRIGGERS_MAX)
                .take(TRIGGERS_MAX)
                .map(|open| open.event.trigger)
                .collect();
            let message = BuilderMessage::Recover {
                batch: batch as u32,
                triggers,
            };
            let messages = &mut self.counts.messages;
            let sender = UnitId::EVENT_MANAGER;
            return Some(
                self.builders
                    .send(sender, self.epoch, builder, message, messages),
            );
        }
        None
    }

    pub(super) fn recovery_timeout(&self) -> RunNs {
        self.recovery
            .as_ref()
            .map_or(RunNs::MAX, |recovery| recovery.repeat_at)
    }

    pub(super) fn repeat_recovery(&mut self, now: RunNs) {
        if let Some(recovery) = &mut self.recovery
            && recovery.repeat_at <= now
        {
            recovery.cursor = 0;
        }
    }

    pub(super) fn handle_recovered(&mut self, builder: u16, batch: u32, held: u32, closed: u32) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let batch = batch as usize;
        let at = usize::from(builder) * recovery.batches + batch;
        if batch >= recovery.batches || recovery.answered[at] {
            return;
        }
        let mut is_complete = true;
        let mut newly_closed = TriggerList::new();
        let first = batch * TRIGGERS_MAX;
        let of_batch = recovery.open.iter_mut().skip(first).take(TRIGGERS_MAX);
        for (bit, open) in of_batch.enumerate() {
            let (is_held, is_closed) = (held & 1 << bit != 0, closed & 1 << bit != 0);
            // One that was closed meanwhile is not held any more.
            if is_held && !open.is_told {
                // It may be parked as another's that is gone: then this is the better answer. Or
                // handed on and not yet cleared: then its credit is still spent.
                let trigger = open.event.trigger;
                if open.fate != Fate::Closed {
                    self.parked.retain(|(_, event)| event.trigger != trigger);
                }
                open.fate = Fate::Held(builder);
                is_complete &= !is_closed || open.size.is_some_and(|(unit, _)| unit == builder);
            } else if is_closed && !is_held {
                newly_closed.push(open.event.trigger);
            }
        }
        recovery.answered[at] = is_complete;
        for trigger in newly_closed {
            self.note_cleared(trigger);
        }
        self.finish_recovery();
    }

    /// The size of an event whose fate is not yet known to all.
    pub(super) fn note_size(&mut self, builder: u16, trigger: TriggerNumber, bytes: u32) {
        if let Some(open) = self.recovery.as_mut().and_then(|r| r.find(trigger)) {
            open.size = Some((builder, bytes));
        }
    }

    /// A clear that fits nothing in flight: it may have been meant for the predecessor. Parked as
    /// another's that is gone, the event would be built a second time, of nothing.
    pub(super) fn note_cleared(&mut self, trigger: TriggerNumber) {
        if self.close_in_recovery(trigger) {
            self.parked.retain(|(_, event)| event.trigger != trigger);
        }
    }

    /// Whether a trigger is among those whose fate was not known; it is closed then.
    pub(super) fn close_in_recovery(&mut self, trigger: TriggerNumber) -> bool {
        let Some(open) = self.recovery.as_mut().and_then(|r| r.find(trigger)) else {
            return false;
        };
        open.fate = Fate::Closed;
        if !std::mem::replace(&mut open.is_told, true) {
            self.tell_closed(trigger);
        }
        true
    }

    /// A builder unit is withdrawn: it will not answer, and all triggers that nobody is known to
    /// hold may be its.
    pub(super) fn undetermined(&mut self, builder: u16) -> Vec<AcceptedTrigger> {
        let Some(recovery) = &mut self.recovery else {
            return Vec::new();
        };
        let first = usize::from(builder) * recovery.batches;
        recovery.answered[first..first + recovery.batches].fill(true);
        let mut events = Vec::new();
        for open in &mut recovery.open {
            if matches!(open.fate, Fate::Unknown) || open.fate == Fate::Held(builder) {
                open.fate = Fate::Parked;
                events.push(open.event);
            }
        }
        events
    }

    /// A parked event of a withdrawn builder unit that nobody had: another builder unit that has
    /// not answered yet may still hold it. False when there is no recovery.
    pub(super) fn give_back_to_recovery(&mut self, event: AcceptedTrigger) -> bool {
        let Some(open) = self.recovery.as_mut().and_then(|r| r.find(event.trigger)) else {
            return false;
        };
        open.fate = Fate::Unknown;
        true
    }

    /// A builder unit is back in a new life: it holds nothing and knows nothing.
    pub(super) fn expect_builder(&mut self, builder: u16) {
        if let Some(recovery) = &mut self.recovery {
            let first = usize::from(builder) * recovery.batches;
            // It is asked the first question all the same, which tells it the epoch.
            recovery.answered[first] = false;
            recovery.cursor = 0;
        }
    }

    /// Goes to work once everybody has answered and nothing is parked.
    pub(super) fn finish_recovery(&mut self) {
        let is_complete = self.parked.is_empty()
            && self
                .recovery
                .as_ref()
                .is_some_and(|recovery| recovery.answered.iter().all(|answered| *answered));
        if !is_complete {
            return;
        }
        let Some(recovery) = self.recovery.take() else {
            return;
        };
        for builder in 0..self.credits.len() {
            if !self.withdrawn[builder] {
                self.grant(builder, self.credits_max);
            }
        }
        for open in recovery.open {
            let Open {
                event, fate, size, ..
            } = open;
            match fate {
                Fate::Closed => {
                    self.history.record(event.trigger, Closing::Complete);
                    if !open.is_told {
                        self.tell_closed(event.trigger);
                    }
                }
                // One that says to hold more than its credits is not believed of the rest.
                Fate::Held(builder) if self.credits[usize::from(builder)].free > 0 => {
                    let told = size.filter(|(unit, _)| *unit == builder);
                    self.take_over(event, builder, told.map(|(_, bytes)| bytes));
                }
                Fate::Held(_) | Fate::Unknown | Fate::Parked => {
                    self.counts.accepts += 1;
                    self.queue_or_lose(event);
                }
            }
        }
    }

    /// An event that a builder unit holds by its predecessor's assignment, with its size if built.
    fn take_over(&mut self, event: AcceptedTrigger, builder: u16, size: Option<u32>) {
        let bytes = match self.event_bytes {
            0 => 0,
            set_aside => size.unwrap_or(set_aside),
        };
        let entry = InFlight {
            mask: event.mask,
            triggered_at: event.triggered_at,
            builder,
            bytes,
            ..InFlight::default()
        };
        let is_new = self.in_flight.insert(event.trigger, entry);
        let account = &mut self.credits[usize::from(builder)];
        assert!(
            is_new && account.free > 0,
            "bu{builder} holds more than its credits: {account:?}"
        );
        account.free -= 1;
        account.in_flight += 1;
        account.bytes_free -= i64::from(bytes);
        self.free_total -= 1;
        self.scan_at = RunNs(0);
        self.counts.accepts += 1;
    }

    /// Triggers that nobody is known to have finished.
    pub(super) fn open_in_recovery(&self) -> impl Iterator<Item = TriggerNumber> + '_ {
        let recovering = self.recovery.iter().flat_map(|recovery| &recovery.open);
        recovering
            .filter(|open| open.fate != Fate::Closed)
            .map(|open| open.event.trigger)
    }

    /// Remembers that the supervisor is to be told.
    pub(super) fn tell_closed(&mut self, trigger: TriggerNumber) {
        if let Some(closed) = &mut self.closed {
            closed.push_back(trigger);
        }
    }
}
