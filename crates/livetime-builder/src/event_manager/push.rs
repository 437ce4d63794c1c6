//! What the event manager tells the readout units in push mode: whose an event is, so that they
//! send unasked.
//!
//! Assignments go out at once; what is told the readout units is grouped by builder unit, up to
//! [`BuilderConfig::requests_per_message`] triggers, and goes out when a group is full or nothing
//! more can be assigned. Nobody waits for an answer: where it is lost, the builder unit asks.

use livetime_wire::TriggerNumber;
use livetime_wire::UnitId;
use livetime_wire::message::{BuilderMessage, TRIGGERS_MAX, TriggerList};

use super::EventManager;
use crate::builder_config::BuilderConfig;
use crate::message_exchange::Outgoing;

/// Which groups may go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// Those that can take no more, and the one that is going out.
    Full,
    /// All.
    Any,
}

/// Groups of assigned events, by builder unit.
#[derive(Debug)]
pub(super) struct Push {
    groups: Vec<TriggerList>,
    group_max: usize,
    /// Events in all groups.
    waiting: usize,
    /// Builder unit whose group is full.
    full: Option<usize>,
    /// The group that is going out.
    round: Option<Round>,
    /// Where the search for a group begins.
    next: usize,
}

#[derive(Debug)]
struct Round {
    builder: usize,
    triggers: TriggerList,
    readout: usize,
    left: usize,
}

impl Push {
    pub(super) fn new(config: &BuilderConfig) -> Self {
        Self {
            groups: vec![TriggerList::new(); config.builder_units.into()],
            group_max: (config.requests_per_message as usize).min(TRIGGERS_MAX),
            waiting: 0,
            full: None,
            round: None,
            next: 0,
        }
    }

    /// An event was assigned. The caller sends a full group before it assigns another.
    pub(super) fn add(&mut self, builder: usize, trigger: TriggerNumber) {
        let group = &mut self.groups[builder];
        group.push(trigger);
        self.waiting += 1;
        if group.len() >= self.group_max {
            self.full = Some(builder);
        }
    }

    /// A builder unit is lost: nothing is sent to it any more.
    pub(super) fn withdraw(&mut self, builder: u16) {
        let builder = usize::from(builder);
        self.waiting -= self.groups[builder].len();
        self.groups[builder].clear();
        self.full = self.full.filter(|full| *full != builder);
        self.round.take_if(|round| round.builder == builder);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0 && self.round.is_none()
    }

    /// The builder unit whose group goes out next.
    fn choose(&mut self, flush: Flush) -> Option<usize> {
        if let Some(full) = self.full.take() {
            return Some(full);
        }
        if flush == Flush::Full || self.waiting == 0 {
            return None;
        }
        let units = self.groups.len();
        let found = (0..units)
            .map(|n| (self.next + n) % units)
            .find(|builder| !self.groups[*builder].is_empty())?;
        self.next = found + 1;
        Some(found)
    }
}

impl EventManager {
    /// The next message to a readout unit.
    pub(super) fn poll_push(&mut self, flush: Flush) -> Option<Outgoing> {
        let readouts = self.readouts.len();
        let push = self.push.as_mut()?;
        if push.round.is_none() {
            let builder = push.choose(flush)?;
            let triggers = std::mem::take(&mut push.groups[builder]);
            push.waiting -= triggers.len();
            push.round = Some(Round {
                builder,
                triggers,
                // Each builder unit begins elsewhere, so that not all send to it at once first.
                readout: builder % readouts,
                left: readouts,
            });
        }
        let round = push.round.as_mut()?;
        let to = round.readout;
        round.readout = (to + 1) % readouts;
        round.left -= 1;
        let message = BuilderMessage::Push {
            builder: round.builder as u16,
            builder_epoch: self.builders.epoch_of(round.builder),
            triggers: round.triggers.clone(),
        };
        if round.left == 0 {
            push.round = None;
        }
        self.counts.pushes += 1;
        let messages = &mut self.counts.messages;
        let sender = UnitId::EVENT_MANAGER;
        Some(
            self.readouts
                .send(sender, self.epoch, to, message, messages),
        )
    }
}
