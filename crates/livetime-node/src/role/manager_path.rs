//! The supervisor's way to the event manager: accepts out, and what need not be remembered in.
//!
//! Where the event manager may die and another take its place, each accept is kept in an
//! [`AcceptLog`] until the event manager says that its trigger is finished, many at a time. While
//! there is none, accepts go into the log alone; the next one is told all that are open, in order,
//! and how many they were, before it gets any other. A full log takes no accept: then triggers wait,
//! which is dead time. What the next one does with them is in `livetime_builder::event_manager`.

use std::collections::VecDeque;

use livetime_builder::{AcceptLog, AcceptedTrigger, BuilderConfig};
use livetime_wire::message::{BuilderMessage, Envelope, TriggerList};
use livetime_wire::{TriggerNumber, UnitId};

use crate::message_ring::{Inbox, MessageSender};

/// Duty cycles between two looks at a stream, each of which is a system call.
const CYCLES_PER_LOOK: u32 = 256;

/// The way to the event manager.
pub struct ManagerPath {
    sender: MessageSender,
    /// What is finished, where it comes over a ring; over a stream it comes back on that.
    closings: Option<Inbox>,
    /// Accepts that are not known to be finished, where another event manager may ask for them.
    log: Option<AcceptLog>,
    /// Triggers within which builder units surely know what they have finished.
    history: u64,
    epoch: u32,
    sequence: u32,
    /// The trigger whose accept is about to come: readout units may know its decision already.
    announced: Option<TriggerNumber>,
    /// There is no event manager now.
    is_lost: bool,
    /// Nobody waits for room any more.
    is_ending: bool,
    /// Open triggers that the next event manager is still to be told, and how many it will be.
    again: VecDeque<AcceptedTrigger>,
    open: Option<u32>,
    told_again: u64,
    cycles: u32,
}

impl ManagerPath {
    /// A way without a log: the event manager lives as long as the supervisor.
    pub fn new(sender: MessageSender, epoch: u32) -> Self {
        Self {
            sender,
            closings: None,
            log: None,
            history: 0,
            epoch,
            sequence: 0,
            announced: None,
            is_lost: false,
            is_ending: false,
            again: VecDeque::new(),
            open: None,
            told_again: 0,
            cycles: 0,
        }
    }

    /// Keeps accepts in a log for this builder until they are closed by what comes in `closings`, or
    /// over the stream where there is no ring.
    #[must_use]
    pub fn with_log(mut self, builder: &BuilderConfig, closings: Option<Inbox>) -> Self {
        self.log = Some(AcceptLog::new(builder));
        self.history = builder.history.into();
        self.closings = closings;
        self
    }

    /// Whether an accept would be taken now.
    pub fn has_room(&mut self) -> bool {
        let is_remembered = self.log.as_ref().is_none_or(AcceptLog::has_room) || self.is_ending;
        is_remembered && self.open.is_none() && (self.is_lost || self.sender.has_room())
    }

    /// The decision to build a trigger goes out, and its accept comes next.
    #[inline]
    pub fn announce(&mut self, trigger: TriggerNumber) {
        self.announced = Some(trigger);
    }

    /// Sends an accept, for which there is room.
    pub fn send(&mut self, accepted: AcceptedTrigger) {
        self.announced = None;
        if let Some(log) = &mut self.log {
            let is_kept = log.add(accepted);
            debug_assert!(is_kept || self.is_ending, "room was seen");
        }
        if !self.is_lost {
            let sent = self.say(message_of(accepted));
            debug_assert!(sent, "a free slot was seen");
        }
    }

    fn say(&mut self, message: BuilderMessage) -> bool {
        if !self.sender.has_room() {
            return false;
        }
        let envelope = Envelope {
            sender: UnitId::SUPERVISOR,
            epoch: self.epoch,
            sequence: self.sequence,
            message,
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.sender.send(envelope)
    }

    /// Takes in which triggers are finished; returns how many messages said so.
    pub fn take_closings(&mut self) -> usize {
        let Some(log) = &mut self.log else { return 0 };
        if self.closings.is_none() {
            self.cycles = self.cycles.wrapping_add(1);
            let is_due = self.cycles.is_multiple_of(CYCLES_PER_LOOK) || !log.has_room();
            if !is_due {
                return 0;
            }
        }
        let mut work = 0;
        while let Some(envelope) = match &mut self.closings {
            Some(inbox) => inbox.take(),
            None => self.sender.take(),
        } {
            work += 1;
            if let BuilderMessage::Clear { triggers } = &envelope.message {
                triggers.iter().for_each(|trigger| log.close(*trigger));
            }
        }
        work
    }

    /// Tells an event manager that took the place of another what is open, as far as there is room;
    /// returns how many messages that took.
    pub fn tell_again(&mut self) -> usize {
        let Some(open) = self.open.filter(|_| !self.is_lost) else {
            return 0;
        };
        let mut work = 0;
        while let Some(accepted) = self.again.front().copied() {
            if !self.say(message_of(accepted)) {
                return work;
            }
            self.again.pop_front();
            self.told_again += 1;
            work += 1;
        }
        let all = BuilderMessage::Recover {
            batch: open,
            triggers: TriggerList::new(),
        };
        if self.say(all) {
            self.open = None;
            work += 1;
        }
        work
    }

    /// The event manager is gone; `newest` is the last trigger that was given. What it said before
    /// comes first. Names the open triggers that lie so far back that the builder unit which has
    /// finished one may not know it any more. Allocates.
    pub fn lose(&mut self, newest: TriggerNumber) -> Vec<TriggerNumber> {
        // A stream is looked at as well: the next look may be due much later.
        self.cycles = CYCLES_PER_LOOK - 1;
        self.take_closings();
        let Some(log) = &mut self.log else {
            return Vec::new();
        };
        self.is_lost = true;
        self.again.clear();
        self.open = None;
        let open = log.to_vec().into_iter().map(|accepted| accepted.trigger);
        open.filter(|trigger| trigger.0.saturating_add(self.history) <= newest.0)
            .collect()
    }

    /// Another event manager is there, behind these: it is told what is open. Allocates; this is
    /// not the data path.
    pub fn welcome(&mut self, sender: MessageSender, closings: Option<Inbox>) {
        let Some(log) = &mut self.log else { return };
        self.again = log.to_vec().into();
        self.open = Some(u32::try_from(self.again.len()).unwrap_or(u32::MAX));
        self.sender = sender;
        self.closings = closings;
        self.sequence = 0;
        self.is_lost = false;
    }

    /// These triggers are finished, as the parent knows of a builder unit that is gone.
    pub fn close(&mut self, triggers: &[TriggerNumber]) {
        if let Some(log) = &mut self.log {
            triggers.iter().for_each(|trigger| log.close(*trigger));
        }
    }

    /// Those of these accepted triggers that are known to be finished; none where that is not known of
    /// all: without a log, or when the run ends by force.
    pub fn finished_of(&mut self, accepted: &[TriggerNumber]) -> Vec<TriggerNumber> {
        self.cycles = CYCLES_PER_LOOK - 1;
        self.take_closings();
        let Some(log) = self.log.as_ref().filter(|_| !self.is_ending) else {
            return Vec::new();
        };
        let is_finished = |t: &&TriggerNumber| !log.is_open(**t) && self.announced != Some(**t);
        accepted.iter().filter(is_finished).copied().collect()
    }

    /// The run ends by force: an accept for which there is no room in the log is not kept back.
    #[inline]
    pub fn end_waiting(&mut self) {
        self.is_ending = true;
    }

    /// Hands on what is held back to go out at once. Call it in each duty cycle.
    #[inline]
    pub fn flush(&mut self) {
        self.sender.flush();
    }

    /// Whether nothing is held back.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.is_lost || (self.open.is_none() && self.sender.is_flushed())
    }

    /// Counters for the report, where accepts are remembered.
    pub fn details(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let open = self.log.as_ref().map(|log| log.len() as u64);
        let told_again = self.told_again;
        let details = open.map(|open| [("accepts_open", open), ("accepts_told_again", told_again)]);
        details.into_iter().flatten()
    }
}

fn message_of(accepted: AcceptedTrigger) -> BuilderMessage {
    BuilderMessage::L2Accept {
        trigger: accepted.trigger,
        mask: accepted.mask,
        triggered_at: accepted.triggered_at,
    }
}

#[cfg(test)]
mod tests {
    use livetime_shm::{Consumer, Producer, RingConfig, ring};
    use livetime_wire::message::MESSAGE_WORDS_MAX;
    use livetime_wire::{L2Mask, RunNs};

    use super::*;

    fn ends() -> (Producer, Consumer) {
        let config = RingConfig {
            slots: 16,
            slot_words: MESSAGE_WORDS_MAX as u32,
        };
        ring(&config).unwrap()
    }

    fn accepted(trigger: u64) -> AcceptedTrigger {
        AcceptedTrigger {
            trigger: TriggerNumber(trigger),
            mask: L2Mask(trigger.into()),
            triggered_at: RunNs(trigger),
        }
    }

    /// A way, and the ends of the event manager: accepts in, closings out.
    fn path() -> (ManagerPath, Inbox, Producer) {
        let config = BuilderConfig {
            builder_units: 1,
            credits: 1,
            evm_queue: 1,
            history: 64,
            ..BuilderConfig::default()
        };
        let (sender, closings, accepts, closed) = renewed();
        let path = ManagerPath::new(sender, 1).with_log(&config, Some(closings));
        (path, accepts, closed)
    }

    fn renewed() -> (MessageSender, Inbox, Inbox, Producer) {
        let ((to, from), (closed, closings)) = (ends(), ends());
        let sender = MessageSender::Ring(to);
        let accepts = Inbox::new(UnitId::SUPERVISOR, from);
        let closings = Inbox::new(UnitId::EVENT_MANAGER, closings);
        (sender, closings, accepts, closed)
    }

    fn close(closed: &mut Producer, triggers: &[u64]) {
        let triggers = triggers.iter().copied().map(TriggerNumber).collect();
        let envelope = Envelope {
            sender: UnitId::EVENT_MANAGER,
            epoch: 1,
            sequence: 0,
            message: BuilderMessage::Clear { triggers },
        };
        closed.try_push(&envelope.to_words()).unwrap();
    }

    /// What the event manager hears: triggers, and the number that ends those told again.
    fn heard(accepts: &mut Inbox) -> (Vec<u64>, Vec<u32>) {
        let (mut triggers, mut ends) = (Vec::new(), Vec::new());
        for (sequence, envelope) in (0..).zip(std::iter::from_fn(|| accepts.take())) {
            assert_eq!(envelope.sequence, sequence);
            match envelope.message {
                BuilderMessage::L2Accept {
                    trigger,
                    mask,
                    triggered_at,
                } => {
                    assert_eq!(
                        (mask, triggered_at),
                        (L2Mask(trigger.0.into()), RunNs(trigger.0))
                    );
                    triggers.push(trigger.0);
                }
                BuilderMessage::Recover { batch, .. } => ends.push(batch),
                other => panic!("{other:?}"),
            }
        }
        (triggers, ends)
    }

    #[test]
    fn the_next_event_manager_is_told_what_is_open_and_then_what_comes() {
        let (mut path, mut accepts, mut closed) = path();
        for trigger in 1..=5 {
            assert!(path.has_room());
            path.send(accepted(trigger));
        }
        assert_eq!(heard(&mut accepts), (vec![1, 2, 3, 4, 5], vec![]));
        close(&mut closed, &[2, 4]);
        // Which 1 and 3 are so old that whoever has finished one may not know it any more.
        let old = path.lose(TriggerNumber(67));
        assert_eq!(old, [1, 3].map(TriggerNumber));
        // What it said is read; accepts that come while there is none are kept.
        path.close(&[TriggerNumber(5)]);
        assert!(path.has_room() && path.is_flushed());
        path.send(accepted(6));
        assert_eq!(path.tell_again(), 0);
        let (sender, closings, mut accepts, mut closed) = renewed();
        path.welcome(sender, Some(closings));
        assert!(!path.has_room() && !path.is_flushed());
        assert_eq!(path.tell_again(), 4);
        assert_eq!(path.tell_again(), 0);
        path.send(accepted(7));
        assert_eq!(heard(&mut accepts), (vec![1, 3, 6, 7], vec![3]));
        close(&mut closed, &[1, 3, 6, 7]);
        assert_eq!(path.take_closings(), 1);
        assert!(
            path.details()
                .eq([("accepts_open", 0), ("accepts_told_again", 3)])
        );
    }

    #[test]
    fn what_is_finished_is_known_by_the_log_alone() {
        let (mut path, mut accepts, mut closed) = path();
        (1..=3).for_each(|trigger| path.send(accepted(trigger)));
        close(&mut closed, &[1, 3]);
        // Readout units may know the decision on one whose accept is still to come.
        path.announce(TriggerNumber(4));
        let asked = [1, 2, 3, 4].map(TriggerNumber);
        assert_eq!(path.finished_of(&asked), [1, 3].map(TriggerNumber));
        path.send(accepted(4));
        assert_eq!(path.finished_of(&asked), [1, 3].map(TriggerNumber));
        assert_eq!(heard(&mut accepts).0, [1, 2, 3, 4]);
        path.close(&[TriggerNumber(4)]);
        assert_eq!(path.finished_of(&asked), [1, 3, 4].map(TriggerNumber));
        path.end_waiting();
        assert_eq!(
            path.finished_of(&asked),
            [],
            "accepts are not kept any more"
        );
        let (sender, ..) = renewed();
        let mut without_log = ManagerPath::new(sender, 1);
        assert_eq!(without_log.finished_of(&asked), []);
    }

    #[test]
    fn a_full_log_takes_no_accept_until_something_is_closed_or_the_run_ends() {
        let (mut path, mut accepts, mut closed) = path();
        for trigger in 1..=68 {
            assert!(path.has_room(), "{trigger}");
            path.send(accepted(trigger));
            heard_any(&mut accepts);
        }
        assert!(!path.has_room());
        close(&mut closed, &[40]);
        path.take_closings();
        assert!(path.has_room());
        path.send(accepted(69));
        heard_any(&mut accepts);
        assert!(!path.has_room());
        path.end_waiting();
        assert!(path.has_room());
        path.send(accepted(70));
        // As many as the ring has room for at a time, and one that dies meanwhile is told nothing more.
        assert_eq!(path.lose(TriggerNumber(64)), []);
        for told in [16, 16] {
            let (sender, closings, mut accepts, _closed) = renewed();
            path.welcome(sender, Some(closings));
            assert_eq!(path.tell_again(), told);
            assert_eq!(path.tell_again(), 0, "its ring is full");
            assert_eq!(heard(&mut accepts).0[..2], [1, 2]);
            assert_eq!(path.tell_again(), told);
            path.lose(TriggerNumber(70));
        }
    }

    fn heard_any(accepts: &mut Inbox) {
        assert!(accepts.take().is_some());
    }
}
