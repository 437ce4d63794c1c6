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

use crate::builder_config::BuilderConfig;
use crate::message_exchange::{Handled, MessageCounts, Outgoing};
use crate::peer_table::PeerTable;
use crate::trigger_history::{Closing, Past, TriggerHistory};
use crate::trigger_table::TriggerTable;

/// What the event manager did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventManagerCounts {
    /// Messages.
    pub messages: MessageCounts,
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
}

/// An accepted trigger that waits for a credit.
#[derive(Debug, Clone, Copy)]
struct Accepted {
    trigger: TriggerNumber,
    mask: L2Mask,
    triggered_at: RunNs,
}

/// An assigned event that is not cleared.
#[derive(Debug, Clone, Copy, Default)]
struct InFlight {
    mask: L2Mask,
    triggered_at: RunNs,
    assigned_at: RunNs,
    builder: u16,
    /// It was there at the last scan already.
    seen: bool,
    /// Its assignment is to be sent again.
    probe: bool,
}

/// A builder unit's credits: `granted = free + in_flight` at all times.
#[derive(Debug, Clone, Copy, Default)]
struct Credits {
    granted: u32,
    free: u32,
    in_flight: u32,
}

/// The event manager. There is one.
#[derive(Debug)]
pub struct EventManager {
    epoch: u32,
    credits_max: u32,
    probe: DurationNs,
    queue: VecDeque<Accepted>,
    queue_max: usize,
    credits: Vec<Credits>,
    free_total: u64,
    in_flight: TriggerTable<InFlight>,
    history: TriggerHistory,
    supervisor: PeerTable,
    builders: PeerTable,
    scan_at: RunNs,
    /// Slot of `in_flight` where the search for probes goes on; past the end when there are none.
    probe_slot: usize,
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
            probe: config.probe,
            queue: VecDeque::with_capacity(config.evm_queue as usize + 1),
            queue_max: config.evm_queue as usize,
            credits: vec![Credits::default(); usize::from(config.builder_units)],
            free_total: 0,
            probe_slot: in_flight.slot_count(),
            in_flight,
            history: TriggerHistory::new(config.history as usize),
            supervisor: PeerTable::new(UnitKind::Supervisor, 1, epoch),
            builders: PeerTable::new(UnitKind::Builder, config.builder_units.into(), epoch),
            scan_at: RunNs::MAX,
            ending: false,
            counts: EventManagerCounts::default(),
            losses: LossCounts::new(),
        }
    }

    /// Takes a message of the supervisor or a builder unit.
    pub fn handle_message(&mut self, _now: RunNs, envelope: &Envelope) -> Handled {
        let messages = &mut self.counts.messages;
        let sender = envelope.sender;
        match (sender.kind, &envelope.message) {
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
                self.accept(Accepted {
                    trigger: *trigger,
                    mask: *mask,
                    triggered_at: *triggered_at,
                });
            }
            (UnitKind::Builder, BuilderMessage::EventRequest { credits }) => {
                if self.builders.receive(envelope, messages).is_none() {
                    return Handled::Refused;
                }
                self.grant(usize::from(sender.index), *credits);
            }
            (UnitKind::Builder, BuilderMessage::Clear { triggers }) => {
                if self.builders.receive(envelope, messages).is_none() {
                    return Handled::Refused;
                }
                self.clear(sender.index, triggers);
            }
            (UnitKind::Supervisor | UnitKind::Builder, _) => {
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

    /// Queues an accepted trigger in the order of trigger numbers.
    fn accept(&mut self, accepted: Accepted) {
        let trigger = accepted.trigger;
        let mut at = self.queue.len();
        while at > 0 && self.queue[at - 1].trigger > trigger {
            at -= 1;
        }
        let is_queued = at > 0 && self.queue[at - 1].trigger == trigger;
        if is_queued
            || trigger.0 == 0
            || self.in_flight.get(trigger).is_some()
            || self.history.past(trigger) != Past::Open
        {
            self.counts.accepts_repeated += 1;
            return;
        }
        self.counts.accepts += 1;
        if self.ending {
            self.losses.add(LossCause::EventAborted, 1);
            self.history.record(trigger, Closing::Dropped);
        } else {
            self.queue.insert(at, accepted);
        }
    }

    /// Credits are a window, granted once by a request and returned by clears.
    fn grant(&mut self, builder: usize, credits: u32) {
        let account = &mut self.credits[builder];
        if credits > self.credits_max - account.granted {
            self.counts.credits_refused += 1;
            return;
        }
        account.granted += credits;
        account.free += credits;
        self.free_total += u64::from(credits);
        self.counts.credits_granted += u64::from(credits);
    }

    fn clear(&mut self, builder: u16, triggers: &TriggerList) {
        for trigger in triggers {
            let entry = self.in_flight.get(*trigger);
            if entry.is_none_or(|entry| entry.builder != builder) {
                self.counts.clears_unknown += 1;
                continue;
            }
            self.in_flight.remove(*trigger);
            self.history.record(*trigger, Closing::Complete);
            self.counts.cleared += 1;
            self.return_credit(usize::from(builder));
        }
    }

    fn return_credit(&mut self, builder: usize) {
        let account = &mut self.credits[builder];
        assert!(
            account.free < account.granted && account.in_flight > 0,
            "a credit of bu{builder} returned that was not spent: {account:?}"
        );
        account.free += 1;
        account.in_flight -= 1;
        self.free_total += 1;
    }

    /// The next message to send; `now` becomes the time of an assignment.
    pub fn poll_output(&mut self, now: RunNs) -> Option<Outgoing> {
        if self.probe_slot < self.in_flight.slot_count()
            && let Some(probe) = self.poll_probe()
        {
            return Some(probe);
        }
        if self.free_total == 0 {
            return None;
        }
        let accepted = self.queue.pop_front()?;
        let builder = self.richest();
        if self.in_flight.len() == 0 {
            self.scan_at = now.after(self.probe);
        }
        let entry = InFlight {
            mask: accepted.mask,
            triggered_at: accepted.triggered_at,
            assigned_at: now,
            builder: builder as u16,
            seen: false,
            probe: false,
        };
        let is_new = self.in_flight.insert(accepted.trigger, entry);
        assert!(is_new, "trigger {} assigned twice", accepted.trigger);
        let account = &mut self.credits[builder];
        account.free -= 1;
        account.in_flight += 1;
        self.free_total -= 1;
        self.counts.assignments += 1;
        Some(self.assignment(accepted.trigger, entry))
    }

    /// The builder unit with the most free credits, the first of equals.
    fn richest(&self) -> usize {
        let mut best = 0;
        for (builder, account) in self.credits.iter().enumerate() {
            if account.free > self.credits[best].free {
                best = builder;
            }
        }
        best
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
        if self.in_flight.len() == 0 {
            RunNs::MAX
        } else {
            self.scan_at
        }
    }

    /// Marks the assignments that are to be repeated: those without a clear for one to two probe
    /// intervals. Does nothing before [`EventManager::poll_timeout`].
    pub fn handle_timeout(&mut self, now: RunNs) {
        if now < self.poll_timeout() {
            return;
        }
        self.scan_at = now.after(self.probe);
        for (_, entry) in self.in_flight.iter_mut() {
            if entry.seen {
                entry.probe = true;
                self.probe_slot = 0;
            }
            entry.seen = true;
        }
    }

    /// A builder unit went away: its credits are withdrawn, and the events that it had not cleared
    /// are counted as lost with it and named. Some of them may have been built and handed on
    /// before; who settles the accounts of the dead unit takes those off again.
    pub fn handle_builder_lost(&mut self, builder: u16) -> Vec<TriggerNumber> {
        let Some(account) = self.credits.get_mut(usize::from(builder)) else {
            return Vec::new();
        };
        self.free_total -= u64::from(account.free);
        *account = Credits::default();
        let held = self.in_flight.iter_mut();
        let lost: Vec<TriggerNumber> = held
            .filter(|(_, entry)| entry.builder == builder)
            .map(|(trigger, _)| trigger)
            .collect();
        for trigger in &lost {
            self.in_flight.remove(*trigger);
            self.history.record(*trigger, Closing::Dropped);
        }
        self.losses.add(LossCause::BuilderLost, lost.len() as u64);
        lost
    }

    /// A builder unit that was lost is back in a new epoch, with nothing in it.
    pub fn handle_builder_back(&mut self, builder: u16, epoch: u32) {
        self.builders.renew(builder, epoch);
    }

    /// Whether no accepted trigger is waiting or in flight.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.len() == 0
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

    /// Whether for every builder unit the granted credits are the free ones plus those of events in
    /// flight, counted one by one. For tests and the end of a run: it allocates.
    pub fn credits_conserved(&self) -> bool {
        let mut in_flight = vec![0; self.credits.len()];
        for entry in self.in_flight.values() {
            in_flight[usize::from(entry.builder)] += 1;
        }
        self.credits
            .iter()
            .zip(in_flight)
            .all(|(account, counted)| {
                account.granted == account.free + counted && account.in_flight == counted
            })
    }

    /// Ends by force: what is queued, and what is still to come, is counted as lost and not
    /// assigned. Events in flight remain until their builder units clear them.
    pub fn abort(&mut self) {
        self.ending = true;
        for accepted in self.queue.drain(..) {
            self.losses.add(LossCause::EventAborted, 1);
            self.history.record(accepted.trigger, Closing::Dropped);
        }
    }

    /// Counts what is still in flight as lost with its builder unit. Only for the end, after the
    /// builder units had their chance to clear.
    pub fn close(&mut self) {
        self.abort();
        self.losses
            .add(LossCause::BuilderLost, self.in_flight.len() as u64);
        self.in_flight.clear();
        for account in &mut self.credits {
            self.free_total += u64::from(account.in_flight);
            account.free += account.in_flight;
            account.in_flight = 0;
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
mod tests {
    use super::*;

    const SECOND: u64 = DurationNs::SECOND.0;

    struct Bench {
        evm: EventManager,
        sequences: [u32; 4],
    }

    impl Bench {
        /// Two builder units with 3 credits each, a queue of 4.
        fn new() -> Self {
            let config = BuilderConfig {
                credits: 3,
                evm_queue: 4,
                ..BuilderConfig::default()
            };
            Self {
                evm: EventManager::new(&config, 5),
                sequences: [0; 4],
            }
        }

        fn granted() -> Self {
            let mut bench = Self::new();
            bench.grant(0, 3);
            bench.grant(1, 3);
            bench
        }

        fn send(&mut self, sender: UnitId, message: BuilderMessage) -> Handled {
            let lane = match sender.kind {
                UnitKind::Supervisor => 3,
                _ => usize::from(sender.index) % 3,
            };
            let envelope = Envelope {
                sender,
                epoch: 5,
                sequence: self.sequences[lane],
                message,
            };
            let handled = self.evm.handle_message(RunNs(0), &envelope);
            self.sequences[lane] += u32::from(handled == Handled::Taken);
            handled
        }

        fn offer(&mut self, trigger: u64) -> Handled {
            self.send(
                UnitId::SUPERVISOR,
                BuilderMessage::L2Accept {
                    trigger: TriggerNumber(trigger),
                    mask: L2Mask(u128::from(trigger)),
                    triggered_at: RunNs(trigger),
                },
            )
        }

        fn accept(&mut self, trigger: u64) {
            assert_eq!(self.offer(trigger), Handled::Taken);
        }

        fn grant(&mut self, builder: u16, credits: u32) {
            let request = BuilderMessage::EventRequest { credits };
            assert_eq!(self.send(UnitId::builder(builder), request), Handled::Taken);
        }

        fn clear(&mut self, builder: u16, trigger: u64) {
            let triggers = [TriggerNumber(trigger)].into_iter().collect();
            let clear = BuilderMessage::Clear { triggers };
            assert_eq!(self.send(UnitId::builder(builder), clear), Handled::Taken);
        }

        /// Polls one assignment: trigger and builder unit.
        fn assigned(&mut self) -> Option<(u64, u16)> {
            let outgoing = self.evm.poll_output(RunNs(100))?;
            assert_eq!(outgoing.envelope.sender, UnitId::EVENT_MANAGER);
            match outgoing.envelope.message {
                BuilderMessage::Assignment {
                    trigger,
                    mask,
                    triggered_at,
                    assigned_at,
                } => {
                    assert_eq!((mask.0, triggered_at.0), (trigger.0.into(), trigger.0));
                    assert_eq!(assigned_at, RunNs(100));
                    Some((trigger.0, outgoing.to.index))
                }
                other => panic!("event manager sent {other:?}"),
            }
        }
    }

    #[test]
    fn events_go_in_trigger_order_to_the_unit_with_most_credits() {
        let mut bench = Bench::granted();
        for trigger in [10, 30, 20] {
            bench.accept(trigger);
        }
        assert_eq!(bench.assigned(), Some((10, 0)), "first of equals");
        assert_eq!(bench.assigned(), Some((20, 1)));
        assert_eq!(bench.assigned(), Some((30, 0)));
        assert_eq!(bench.assigned(), None);
        bench.clear(0, 10);
        bench.clear(0, 30);
        assert_eq!(bench.evm.free_credits(0), 3);
        bench.accept(40);
        assert_eq!(bench.assigned(), Some((40, 0)), "bu1 is behind");
        assert!(bench.evm.credits_conserved());
        assert_eq!(bench.evm.counts().cleared, 2);
    }

    /// The talk slows one builder unit down by half: the others keep their pace.
    #[test]
    fn a_builder_of_half_the_speed_gets_half_the_events() {
        let mut bench = Bench::granted();
        let mut building: [VecDeque<u64>; 2] = Default::default();
        let mut next = 1;
        for cycle in 0..300 {
            while bench.evm.queued() < 4 {
                bench.accept(next);
                next += 1;
            }
            while let Some((trigger, builder)) = bench.assigned() {
                building[usize::from(builder)].push_back(trigger);
            }
            for builder in 0..2_u16 {
                if builder == 0 || cycle % 2 == 0 {
                    let done = building[usize::from(builder)].pop_front();
                    bench.clear(builder, done.expect("never without work"));
                }
            }
        }
        assert_eq!(bench.evm.counts().cleared, 300 + 150);
    }

    #[test]
    fn without_credits_the_queue_fills_and_the_supervisor_waits() {
        let mut bench = Bench::new();
        for trigger in 1..=4 {
            bench.accept(trigger);
        }
        assert_eq!(bench.offer(5), Handled::Busy);
        assert_eq!(bench.assigned(), None);
        bench.grant(1, 1);
        assert_eq!(bench.assigned(), Some((1, 1)));
        assert_eq!(bench.assigned(), None);
        assert_eq!(bench.offer(5), Handled::Taken, "handed in again");
        assert_eq!(bench.evm.counts().messages.missing, 0);
        assert_eq!(bench.evm.queued(), 4);
    }

    #[test]
    fn repetitions_change_nothing() {
        let mut bench = Bench::granted();
        bench.grant(0, 3);
        assert_eq!(bench.evm.free_credits(0), 3, "never beyond the window");
        bench.accept(1);
        bench.accept(1);
        assert_eq!(bench.assigned(), Some((1, 0)));
        bench.accept(1);
        bench.clear(1, 1);
        assert_eq!(bench.evm.free_credits(1), 3, "not its event");
        bench.clear(0, 1);
        bench.clear(0, 1);
        bench.accept(1);
        bench.accept(0);
        assert_eq!(bench.assigned(), None);
        let counts = bench.evm.counts();
        assert_eq!((counts.credits_refused, counts.credits_granted), (1, 6));
        assert_eq!((counts.accepts, counts.accepts_repeated), (1, 4));
        assert_eq!((counts.cleared, counts.clears_unknown), (1, 2));
        assert!(bench.evm.is_idle());
        assert!(bench.evm.credits_conserved());
    }

    #[test]
    fn foreign_messages_are_refused_and_counted() {
        let mut bench = Bench::granted();
        let drop = BuilderMessage::EventRequest { credits: 1 };
        assert_eq!(
            bench.send(UnitId::readout(0), drop.clone()),
            Handled::Refused
        );
        assert_eq!(
            bench.send(UnitId::SUPERVISOR, drop.clone()),
            Handled::Refused
        );
        assert_eq!(bench.send(UnitId::builder(2), drop), Handled::Refused);
        let messages = bench.evm.counts().messages;
        assert_eq!((messages.strangers, messages.unexpected), (2, 1));
        let envelope = Envelope {
            sender: UnitId::builder(0),
            epoch: 4,
            sequence: 1,
            message: BuilderMessage::EventRequest { credits: 1 },
        };
        assert_eq!(
            bench.evm.handle_message(RunNs(0), &envelope),
            Handled::Refused
        );
        assert_eq!(bench.evm.counts().messages.wrong_epoch, 1);
    }

    #[test]
    fn uncleared_events_are_assigned_again_to_the_same_unit() {
        let mut bench = Bench::granted();
        assert_eq!(bench.evm.poll_timeout(), RunNs::MAX);
        bench.accept(1);
        bench.accept(2);
        assert_eq!(bench.assigned(), Some((1, 0)));
        assert_eq!(bench.assigned(), Some((2, 1)));
        let first = bench.evm.poll_timeout();
        assert_eq!(first, RunNs(100 + SECOND));
        bench.evm.handle_timeout(RunNs(SECOND));
        bench.evm.handle_timeout(first);
        assert!(bench.evm.poll_output(first).is_none(), "seen once");
        bench.clear(0, 1);
        bench.evm.handle_timeout(bench.evm.poll_timeout());
        assert_eq!(bench.assigned(), Some((2, 1)));
        assert_eq!(bench.assigned(), None);
        let counts = bench.evm.counts();
        assert_eq!((counts.assignments, counts.assignments_repeated), (2, 1));
        assert!(bench.evm.credits_conserved());
    }

    #[test]
    fn aborted_events_are_counted_once_under_their_cause() {
        let mut bench = Bench::granted();
        for trigger in 1..=4 {
            bench.accept(trigger);
        }
        for _ in 0..2 {
            bench.assigned().unwrap();
        }
        bench.evm.abort();
        assert_eq!(bench.assigned(), None);
        bench.accept(5);
        assert_eq!(bench.evm.losses().of(LossCause::EventAborted), 3);
        bench.clear(0, 1);
        assert!(!bench.evm.is_idle());
        bench.evm.close();
        assert_eq!(bench.evm.losses().of(LossCause::BuilderLost), 1);
        assert!(bench.evm.is_idle());
        assert!(bench.evm.credits_conserved());
        assert_eq!(bench.evm.losses().total() + bench.evm.counts().cleared, 5);
    }

    #[test]
    fn a_lost_builder_unit_takes_its_events_and_credits_and_comes_back_empty() {
        let mut bench = Bench::granted();
        (1..=4).for_each(|trigger| bench.accept(trigger));
        let assigned: Vec<_> = std::iter::from_fn(|| bench.assigned()).collect();
        assert_eq!(assigned, [(1, 0), (2, 1), (3, 0), (4, 1)]);
        bench.clear(0, 1);
        let lost = bench.evm.handle_builder_lost(0);
        assert_eq!(lost, [TriggerNumber(3)]);
        assert_eq!(bench.evm.losses().of(LossCause::BuilderLost), 1);
        assert!(bench.evm.credits_conserved());
        (5..=6).for_each(|trigger| bench.accept(trigger));
        assert_eq!(bench.assigned(), Some((5, 1)), "the other one has a credit");
        assert_eq!(bench.assigned(), None, "nobody else has");
        assert_eq!(bench.evm.handle_builder_lost(0), [], "it holds nothing");
        assert_eq!(
            bench.evm.handle_builder_lost(77),
            [],
            "there is no such unit"
        );

        bench.evm.handle_builder_back(0, 6);
        let request = BuilderMessage::EventRequest { credits: 3 };
        let old = bench.send(UnitId::builder(0), request.clone());
        assert_eq!(old, Handled::Refused, "a message of its past");
        let envelope = Envelope {
            sender: UnitId::builder(0),
            epoch: 6,
            sequence: 0,
            message: request,
        };
        let fresh = bench.evm.handle_message(RunNs(0), &envelope);
        assert_eq!(fresh, Handled::Taken);
        assert_eq!(bench.assigned(), Some((6, 0)));
        bench.accept(3);
        assert_eq!(bench.assigned(), None, "what is lost is not assigned again");
        assert!(bench.evm.credits_conserved());
    }
}
