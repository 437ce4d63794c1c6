//! The event manager: who builds which event.
//!
//! It queues accepted triggers in the order of their numbers and gives each to the builder unit
//! with the most free credits, so that a slow one gets fewer. It sees no fragment and does not know
//! how events end; a cleared event is one that its builder unit is through with. The messages are
//! in [`crate`], the other side is [`crate::builder_unit`].

use std::collections::VecDeque;

use livetime_wire::message::{BuilderMessage, Envelope, TriggerList};
use livetime_wire::{
    DurationNs, L2Mask, LossCause, LossCounts, RunNs, TriggerNumber, UnitId, UnitKind,
};

use crate::accept_log::open_max;
use crate::builder_config::{BuildMode, BuilderConfig};
use crate::liveness::{Life, Liveness};
use crate::message_exchange::{Handled, MessageCounts, Outgoing};
use crate::peer_table::PeerTable;
use crate::probe_pace::ProbePace;
use crate::trigger_history::{Closing, Past, TriggerHistory};
use crate::trigger_table::TriggerTable;

mod push;
mod reassign;
mod recovery;

/// What the event manager did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventManagerCounts {
    /// Messages.
    pub messages: MessageCounts,
    /// Messages of builder units that say nothing but that they live.
    pub heartbeats: u64,
    /// Accepted triggers taken into the queue.
    pub accepts: u64,
    /// Accepted triggers that were there before, or have no valid number.
    pub accepts_repeated: u64,
    /// Credits granted by the builder units.
    pub credits_granted: u64,
    /// Requests for credits beyond the configured number: repetitions, as a rule.
    pub credits_refused: u64,
    /// Events assigned; each spent one credit.
    pub assignments: u64,
    /// Assignments sent again because no clear had come for a probe interval.
    pub assignments_repeated: u64,
    /// Events cleared; each returned one credit.
    pub cleared: u64,
    /// Clears of events that the sender does not have: repetitions, as a rule.
    pub clears_unknown: u64,
    /// Events of a lost builder unit that are built again by another.
    pub reassigned: u64,
    /// Events of a lost builder unit that filter units or the writer had of it already.
    pub handed_on: u64,
    /// Messages that tell readout units to send unasked.
    pub pushes: u64,
    /// Events that were larger than what is set aside for one.
    pub events_oversized: u64,
    /// Builder units taken for dead since they were silent.
    pub builders_silent: u64,
}

/// An accepted trigger: what an `L2Accept` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedTrigger {
    /// Which trigger.
    pub trigger: TriggerNumber,
    /// Decision after prescale.
    pub mask: L2Mask,
    /// When Level 1 accepted it.
    pub triggered_at: RunNs,
}

/// An assigned event that is not cleared.
#[derive(Debug, Clone, Copy, Default)]
struct InFlight {
    mask: L2Mask,
    triggered_at: RunNs,
    /// 0 for one that its builder unit said to have, when this event manager began.
    assigned_at: RunNs,
    builder: u16,
    /// Bytes of its builder unit's credit that are set aside for it.
    bytes: u32,
    /// It was there at the last scan already.
    seen: bool,
    /// Its assignment is to be sent again.
    probe: bool,
}

/// A builder unit's credits: `granted = free + in_flight` at all times, and `bytes_free` plus the
/// bytes set aside for its events is the configured number.
#[derive(Debug, Clone, Copy, Default)]
struct Credits {
    granted: u32,
    free: u32,
    in_flight: u32,
    /// Below 0 only where an event was larger than what is set aside for one.
    bytes_free: i64,
}

/// The event manager. There is one.
#[derive(Debug)]
pub struct EventManager {
    epoch: u32,
    credits_max: u32,
    credit_bytes: i64,
    /// Bytes set aside for an event; 0 without credits in bytes.
    event_bytes: u32,
    probe: DurationNs,
    queue: VecDeque<AcceptedTrigger>,
    queue_max: usize,
    credits: Vec<Credits>,
    free_total: u64,
    /// Builder unit with which the next search for the most free credits begins.
    turn: usize,
    in_flight: TriggerTable<InFlight>,
    /// Events of lost builder units whose fate is not yet known, with their builder unit.
    parked: Vec<(u16, AcceptedTrigger)>,
    history: TriggerHistory,
    supervisor: PeerTable,
    builders: PeerTable,
    readouts: PeerTable,
    /// What is to be told the readout units; `None` where builder units ask.
    push: Option<push::Push>,
    /// Lives of the builder units, where they are judged by silence.
    lives: Option<Liveness>,
    /// By builder unit: it is taken for gone, and nothing of it counts until it is back.
    withdrawn: Vec<bool>,
    /// By builder unit: events of all its lives that it had handed to the writer when it cleared them.
    accepted: Vec<u64>,
    /// Finished triggers of which the supervisor is to be told, where it wants to know.
    closed: Option<VecDeque<TriggerNumber>>,
    /// A builder unit is new, and is to be heard from now on.
    is_expecting: bool,
    /// Builder units that died of silence, not yet told.
    silent: Vec<u16>,
    /// What is not yet known after a restart.
    recovery: Option<recovery::Recovery>,
    scan_at: RunNs,
    /// Time of the last assignment.
    assigned_at: RunNs,
    /// Slot of `in_flight` where the search for probes goes on; past the end when there are none.
    probe_slot: usize,
    pace: ProbePace,
    ending: bool,
    counts: EventManagerCounts,
    losses: LossCounts,
}

impl EventManager {
    /// An event manager of a valid configuration; `epoch` is that of all units at the start.
    pub fn new(config: &BuilderConfig, epoch: u32) -> Self {
        let in_flight = TriggerTable::new(config.credits_total() as usize);
        Self {
            epoch,
            credits_max: config.credits,
            credit_bytes: i64::try_from(config.credit_bytes).unwrap_or(i64::MAX),
            event_bytes: match config.credit_bytes {
                0 => 0,
                _ => u32::try_from(config.event_bytes).unwrap_or(u32::MAX),
            },
            probe: config.probe,
            // Events of lost builder units come back to it on top of its bound.
            queue: VecDeque::with_capacity(
                config.evm_queue as usize + 1 + config.credits_total() as usize,
            ),
            queue_max: config.evm_queue as usize,
            credits: vec![Credits::default(); usize::from(config.builder_units)],
            free_total: 0,
            turn: 0,
            probe_slot: in_flight.slot_count(),
            pace: ProbePace::new(config.repetitions_often()),
            in_flight,
            parked: Vec::with_capacity(config.credits_total() as usize),
            history: TriggerHistory::new(config.history as usize),
            supervisor: PeerTable::new(UnitKind::Supervisor, 1, epoch),
            builders: PeerTable::new(UnitKind::Builder, config.builder_units.into(), epoch)
                .with_mutant(config),
            readouts: PeerTable::new(UnitKind::Readout, config.readout_units.len(), epoch),
            push: (config.mode == BuildMode::Push).then(|| push::Push::new(config)),
            lives: (config.heartbeat > DurationNs(0))
                .then(|| Liveness::new(config.builder_units.into(), config.suspect, config.dead)),
            silent: Vec::with_capacity(config.builder_units.into()),
            recovery: None,
            withdrawn: vec![false; config.builder_units.into()],
            accepted: vec![0; config.builder_units.into()],
            closed: None,
            is_expecting: true,
            scan_at: RunNs::MAX,
            assigned_at: RunNs(0),
            ending: false,
            counts: EventManagerCounts::default(),
            losses: LossCounts::new(),
        }
    }

    /// Takes a message of the supervisor or a builder unit.
    pub fn handle_message(&mut self, now: RunNs, envelope: &Envelope) -> Handled {
        if envelope.sender.kind == UnitKind::Builder {
            return self.handle_builder_message(now, envelope);
        }
        let messages = &mut self.counts.messages;
        match (envelope.sender.kind, &envelope.message) {
            (
                UnitKind::Supervisor,
                BuilderMessage::L2Accept {
                    trigger,
                    mask,
                    triggered_at,
                },
            ) => {
                if !self.ending && self.queue.len() >= self.queue_max {
                    return Handled::Busy;
                }
                if self.supervisor.receive(envelope, messages).is_none() {
                    return Handled::Refused;
                }
                self.accept(AcceptedTrigger {
                    trigger: *trigger,
                    mask: *mask,
                    triggered_at: *triggered_at,
                });
            }
            (UnitKind::Supervisor, _) => {
                messages.unexpected += 1;
                return Handled::Refused;
            }
            _ => {
                messages.strangers += 1;
                return Handled::Refused;
            }
        }
        Handled::Taken
    }

    fn handle_builder_message(&mut self, now: RunNs, envelope: &Envelope) -> Handled {
        let messages = &mut self.counts.messages;
        let builder = envelope.sender.index;
        if !matches!(
            envelope.message,
            BuilderMessage::EventRequest { .. }
                | BuilderMessage::Clear { .. }
                | BuilderMessage::ClearAccepted { .. }
                | BuilderMessage::EventSize { .. }
                | BuilderMessage::Alive
                | BuilderMessage::Recovered { .. }
        ) {
            messages.unexpected += 1;
            return Handled::Refused;
        }
        if self.withdrawn.get(usize::from(builder)) == Some(&true) {
            messages.wrong_epoch += 1;
            return Handled::Refused;
        }
        if self.builders.receive(envelope, messages).is_none() {
            return Handled::Refused;
        }
        if let Some(lives) = &mut self.lives {
            lives.handle_heard(now, builder);
        }
        match &envelope.message {
            BuilderMessage::EventRequest { credits } => self.grant(builder.into(), *credits),
            BuilderMessage::Clear { triggers } => {
                self.clear(builder, triggers);
            }
            BuilderMessage::ClearAccepted { triggers } => {
                let cleared = self.clear(builder, triggers);
                self.accepted[usize::from(builder)] += cleared;
            }
            BuilderMessage::EventSize { sizes } => {
                for (trigger, bytes) in sizes {
                    self.settle_size(builder, *trigger, *bytes);
                }
            }
            BuilderMessage::Recovered {
                manager_epoch,
                batch,
                held,
                closed,
            } if *manager_epoch == self.epoch => {
                self.handle_recovered(builder, *batch, *held, *closed);
            }
            BuilderMessage::Alive => self.counts.heartbeats += 1,
            // An answer to an event manager before this one.
            _ => {}
        }
        Handled::Taken
    }

    /// Queues an accepted trigger in the order of trigger numbers.
    fn accept(&mut self, accepted: AcceptedTrigger) {
        let trigger = accepted.trigger;
        let at = self.place_in_queue(trigger);
        let is_queued = at > 0 && self.queue[at - 1].trigger == trigger;
        if is_queued
            || trigger.0 == 0
            || self.in_flight.get(trigger).is_some()
            || self.is_parked(trigger)
            || self.is_recovering(trigger)
            || self.history.past(trigger) != Past::Open
        {
            self.counts.accepts_repeated += 1;
            return;
        }
        self.counts.accepts += 1;
        self.queue_or_lose(accepted);
    }

    /// Has an accepted trigger wait for a credit, unless the run is ended by force.
    fn queue_or_lose(&mut self, accepted: AcceptedTrigger) {
        if self.ending {
            self.losses.add(LossCause::EventAborted, 1);
            self.history.record(accepted.trigger, Closing::Dropped);
        } else {
            let at = self.place_in_queue(accepted.trigger);
            self.queue.insert(at, accepted);
        }
    }

    /// Where a trigger belongs in the queue: behind all up to its own number.
    fn place_in_queue(&self, trigger: TriggerNumber) -> usize {
        let mut at = self.queue.len();
        while at > 0 && self.queue[at - 1].trigger > trigger {
            at -= 1;
        }
        at
    }

    /// Credits are a window, granted once by a request and returned by clears.
    fn grant(&mut self, builder: usize, credits: u32) {
        let account = &mut self.credits[builder];
        if credits > self.credits_max - account.granted || self.recovery.is_some() {
            self.counts.credits_refused += 1;
            return;
        }
        if account.granted == 0 {
            account.bytes_free = self.credit_bytes;
        }
        account.granted += credits;
        account.free += credits;
        self.free_total += u64::from(credits);
        self.counts.credits_granted += u64::from(credits);
    }

    /// Events that a builder unit is through with; says how many it had.
    fn clear(&mut self, builder: u16, triggers: &TriggerList) -> u64 {
        let before = self.counts.cleared;
        for trigger in triggers {
            let entry = self.in_flight.get(*trigger).copied();
            let Some(entry) = entry.filter(|entry| entry.builder == builder) else {
                self.counts.clears_unknown += 1;
                self.note_cleared(*trigger);
                continue;
            };
            self.in_flight.remove(*trigger);
            self.history.record(*trigger, Closing::Complete);
            self.counts.cleared += 1;
            self.tell_closed(*trigger);
            self.return_credit(usize::from(builder), entry.bytes);
        }
        self.counts.cleared - before
    }

    /// An event is built and its size known: what was set aside beyond it is free again.
    fn settle_size(&mut self, builder: u16, trigger: TriggerNumber, bytes: u32) {
        let Some(entry) = self.in_flight.get_mut(trigger) else {
            return self.note_size(builder, trigger, bytes);
        };
        if entry.builder != builder || self.event_bytes == 0 {
            return;
        }
        if bytes > self.event_bytes && entry.bytes <= self.event_bytes {
            self.counts.events_oversized += 1;
        }
        self.credits[usize::from(builder)].bytes_free += i64::from(entry.bytes) - i64::from(bytes);
        entry.bytes = bytes;
    }

    fn return_credit(&mut self, builder: usize, bytes: u32) {
        let account = &mut self.credits[builder];
        assert!(
            account.free < account.granted && account.in_flight > 0,
            "a credit of bu{builder} returned that was not spent: {account:?}"
        );
        account.free += 1;
        account.in_flight -= 1;
        account.bytes_free += i64::from(bytes);
        self.free_total += 1;
    }

    /// The next message to send; `now`, or the next nanosecond at which there was none, becomes the
    /// time of an assignment.
    pub fn poll_output(&mut self, now: RunNs) -> Option<Outgoing> {
        if self.is_expecting {
            self.expect_builders(now);
        }
        if self.probe_slot < self.in_flight.slot_count()
            && let Some(probe) = self.poll_probe()
        {
            return Some(probe);
        }
        if self.recovery.is_some() {
            return self.poll_recovery(now);
        }
        if self.push.is_some()
            && let Some(push) = self.poll_push(push::Flush::Full)
        {
            return Some(push);
        }
        if let Some(assignment) = self.poll_assignment(now) {
            return Some(assignment);
        }
        match self.push {
            Some(_) => self.poll_push(push::Flush::Any),
            None => None,
        }
    }

    /// Builder units that were never heard are to be heard from now on: one that dies before its
    /// first word is missed, too.
    fn expect_builders(&mut self, now: RunNs) {
        self.is_expecting = false;
        let Some(lives) = &mut self.lives else { return };
        for (builder, withdrawn) in (0_u16..).zip(&self.withdrawn) {
            if !withdrawn && lives.of(builder.into()) == Life::Unknown {
                lives.handle_heard(now, builder);
            }
        }
    }

    /// Spends a credit on the first trigger of the queue.
    fn poll_assignment(&mut self, now: RunNs) -> Option<Outgoing> {
        if self.free_total == 0 || self.queue.is_empty() {
            return None;
        }
        let builder = self.richest()?;
        let accepted = self.queue.pop_front()?;
        if self.in_flight.len() == 0 {
            self.scan_at = now.after(self.probe);
        }
        // Builder units know by it what is said again, so no two are the same.
        self.assigned_at = now.max(RunNs(self.assigned_at.0 + 1));
        let entry = InFlight {
            mask: accepted.mask,
            triggered_at: accepted.triggered_at,
            assigned_at: self.assigned_at,
            builder: builder as u16,
            bytes: self.event_bytes,
            seen: false,
            probe: false,
        };
        let is_new = self.in_flight.insert(accepted.trigger, entry);
        assert!(is_new, "trigger {} assigned twice", accepted.trigger);
        self.turn = builder + 1;
        let account = &mut self.credits[builder];
        account.free -= 1;
        account.in_flight += 1;
        account.bytes_free -= i64::from(self.event_bytes);
        self.free_total -= 1;
        self.counts.assignments += 1;
        if let Some(push) = &mut self.push {
            push.add(builder, accepted.trigger);
        }
        Some(self.assignment(accepted.trigger, entry))
    }

    /// The builder unit with the most free credits, equals in turn; one without the bytes for another
    /// event, or under suspicion, gets none.
    fn richest(&self) -> Option<usize> {
        let turn = self.turn.min(self.credits.len());
        let mut best = None;
        let mut most = 0;
        for builder in (turn..self.credits.len()).chain(0..turn) {
            let account = &self.credits[builder];
            if account.free > most
                && account.bytes_free >= i64::from(self.event_bytes)
                && self.is_trusted(builder)
            {
                (best, most) = (Some(builder), account.free);
            }
        }
        best
    }

    fn is_trusted(&self, builder: usize) -> bool {
        let life = self.lives.as_ref().map(|lives| lives.of(builder));
        !matches!(life, Some(Life::Suspect | Life::Dead))
    }

    fn assignment(&mut self, trigger: TriggerNumber, entry: InFlight) -> Outgoing {
        self.builders.send(
            UnitId::EVENT_MANAGER,
            self.epoch,
            usize::from(entry.builder),
            BuilderMessage::Assignment {
                trigger,
                mask: entry.mask,
                triggered_at: entry.triggered_at,
                assigned_at: entry.assigned_at,
                builder_epoch: self.builders.epoch_of(entry.builder.into()),
            },
            &mut self.counts.messages,
        )
    }

    /// The next assignment to be repeated. Entries move when others are removed, so one may be
    /// passed over; the next scan finds it.
    fn poll_probe(&mut self) -> Option<Outgoing> {
        while self.probe_slot < self.in_flight.slot_count() {
            let slot = self.probe_slot;
            self.probe_slot += 1;
            if let Some((trigger, entry)) = self.in_flight.slot_mut(slot)
                && entry.probe
            {
                entry.probe = false;
                let entry = *entry;
                self.counts.assignments_repeated += 1;
                return Some(self.assignment(trigger, entry));
            }
        }
        None
    }

    /// When [`EventManager::handle_timeout`] is next worth calling.
    pub fn poll_timeout(&self) -> RunNs {
        let scan = match self.in_flight.len() {
            0 => RunNs::MAX,
            _ => self.scan_at,
        };
        let lives = self
            .lives
            .as_ref()
            .map_or(RunNs::MAX, Liveness::poll_timeout);
        scan.min(lives).min(self.recovery_timeout())
    }

    /// Marks the assignments that are to be repeated: those without a clear for one to two probe
    /// intervals, few to builder units that say nothing (`probe_pace.rs`); judges silent builder units. Does nothing before [`EventManager::poll_timeout`].
    pub fn handle_timeout(&mut self, now: RunNs) {
        if now < self.poll_timeout() {
            return;
        }
        let silent = &mut self.silent;
        if let Some(lives) = &mut self.lives {
            lives.handle_timeout(now, |builder| silent.push(builder));
        }
        self.repeat_recovery(now);
        if now < self.scan_at || self.in_flight.len() == 0 {
            return;
        }
        self.scan_at = now.after(self.probe);
        self.pace.begin_look();
        for (_, entry) in self.in_flight.iter_mut() {
            let heard = self.builders.heard_of(entry.builder.into());
            if entry.seen && (self.ending || self.pace.may_repeat(entry.builder, heard)) {
                entry.probe = true;
                self.probe_slot = 0;
            }
            entry.seen = true;
        }
    }

    /// The next builder unit that was silent for too long. Whoever keeps the membership takes its
    /// events away, with [`EventManager::withdraw_builder`] first; if it was only slow, nothing of
    /// its old epoch counts any more.
    pub fn poll_silent(&mut self) -> Option<u16> {
        let builder = self.silent.pop()?;
        self.counts.builders_silent += 1;
        Some(builder)
    }

    /// A builder unit that was lost is back in a new epoch, with nothing in it.
    pub fn handle_builder_back(&mut self, builder: u16, epoch: u32) {
        self.builders.renew(builder, epoch);
        if let Some(withdrawn) = self.withdrawn.get_mut(usize::from(builder)) {
            *withdrawn = false;
        }
        if let Some(lives) = &mut self.lives {
            lives.set(builder, Life::Unknown);
        }
        self.is_expecting = true;
        self.expect_builder(builder);
    }

    /// From here on [`EventManager::poll_closed`] names finished triggers. There is room for as many
    /// as an [`AcceptLog`](crate::AcceptLog) remembers: no more can be open that it was not told of.
    pub fn report_closed(&mut self) {
        let credits = self.credits.len() as u64 * u64::from(self.credits_max);
        let most = open_max(credits, self.queue_max as u64);
        self.closed = Some(VecDeque::with_capacity(most));
    }

    /// A readout unit that was lost is back in a new epoch.
    pub fn handle_readout_back(&mut self, readout: u16, epoch: u32) {
        self.readouts.renew_hearer(readout, epoch);
    }

    /// Whether no accepted trigger is waiting or in flight.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.in_flight.len() == 0
            && self.parked.is_empty()
            && self.recovery.is_none()
            && self.push.as_ref().is_none_or(push::Push::is_empty)
    }

    /// Accepted triggers that wait for a credit.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Credits of a builder unit that are not spent; 0 if there is no such unit.
    pub fn free_credits(&self, builder: u16) -> u32 {
        self.credits
            .get(usize::from(builder))
            .map_or(0, |account| account.free)
    }

    /// Bytes of a builder unit's credit that are not set aside; 0 if there is no such unit.
    pub fn free_bytes(&self, builder: u16) -> i64 {
        self.credits
            .get(usize::from(builder))
            .map_or(0, |account| account.bytes_free)
    }

    /// Whether for every builder unit the granted credits are the free ones plus those of events in
    /// flight, in events and in bytes, counted one by one. For tests and the end of a run: it
    /// allocates.
    pub fn credits_conserved(&self) -> bool {
        let mut in_flight = vec![(0, 0); self.credits.len()];
        for entry in self.in_flight.values() {
            let (events, bytes) = &mut in_flight[usize::from(entry.builder)];
            *events += 1;
            *bytes += i64::from(entry.bytes);
        }
        self.credits
            .iter()
            .zip(in_flight)
            .all(|(account, (events, bytes))| {
                let bytes_granted = match account.granted {
                    0 => 0,
                    _ => self.credit_bytes,
                };
                account.granted == account.free + events
                    && account.in_flight == events
                    && bytes_granted == account.bytes_free + bytes
            })
    }

    /// Ends by force: what is queued, and what is still to come, is counted as lost and not
    /// assigned. Events in flight remain until their builder units clear them.
    pub fn abort(&mut self) {
        self.ending = true;
        for accepted in std::mem::take(&mut self.queue) {
            self.queue_or_lose(accepted);
        }
    }

    /// Counts what is still in flight as given up by force, since its builder unit may live and only be
    /// out of reach; what a lost one had, and nobody has decided, is lost with it. Only for the end,
    /// after the builder units had their chance to clear.
    pub fn close(&mut self) {
        self.abort();
        self.losses
            .add(LossCause::EventAborted, self.in_flight.len() as u64);
        self.in_flight.clear();
        self.losses
            .add(LossCause::BuilderLost, self.parked.len() as u64);
        self.parked.clear();
        self.recovery = None;
        for account in &mut self.credits {
            self.free_total += u64::from(account.in_flight);
            account.free += account.in_flight;
            account.in_flight = 0;
            account.bytes_free = match account.granted {
                0 => 0,
                _ => self.credit_bytes,
            };
        }
    }

    /// What it did.
    pub fn counts(&self) -> &EventManagerCounts {
        &self.counts
    }

    /// What was lost here.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }
}

#[cfg(test)]
mod tests;
