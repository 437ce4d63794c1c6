//! An event manager that takes the place of one that is gone, before it knows what is open.
//!
//! The supervisor tells it the open triggers as accepts, and then how many they were
//! ([`super::manager_path`]); the parent tells it which of them are finished without that a builder
//! unit could say so. Until then it takes nothing of anybody else. From there on it is an
//! event manager that recovers: it asks the builder units, see `livetime_builder::event_manager`.

use livetime_builder::{AcceptLog, AcceptedTrigger, BuilderConfig, EventManager, PeerEpochs};
use livetime_wire::message::{BuilderMessage, Envelope};
use livetime_wire::{TriggerNumber, UnitKind};

use crate::role_ends::FIRST_EPOCH;

/// What is known so far.
pub struct ManagerSuccession {
    config: BuilderConfig,
    epoch: u32,
    builders: Vec<u32>,
    readouts: Vec<u32>,
    open: Vec<AcceptedTrigger>,
    /// Whether these are all.
    is_told: bool,
    finished: Option<Vec<TriggerNumber>>,
}

impl ManagerSuccession {
    /// Of an event manager in its epoch, and those of builder and readout units.
    pub fn new(config: &BuilderConfig, epoch: u32, builders: Vec<u32>, readouts: Vec<u32>) -> Self {
        Self {
            config: config.clone(),
            epoch,
            builders,
            readouts,
            open: Vec::with_capacity(AcceptLog::most(config)),
            is_told: false,
            finished: None,
        }
    }

    /// Takes a message of the supervisor; those of others change nothing.
    pub fn handle_message(&mut self, envelope: &Envelope) {
        if envelope.sender.kind != UnitKind::Supervisor || envelope.epoch != FIRST_EPOCH {
            return;
        }
        match &envelope.message {
            BuilderMessage::L2Accept {
                trigger,
                mask,
                triggered_at,
            } if self.open.len() < self.open.capacity() => {
                self.open.push(AcceptedTrigger {
                    trigger: *trigger,
                    mask: *mask,
                    triggered_at: *triggered_at,
                });
            }
            BuilderMessage::Recover { batch, .. } => {
                self.is_told = *batch as usize == self.open.len();
            }
            _ => {}
        }
    }

    /// These of the open triggers are finished, unless a builder unit says that it holds one.
    pub fn handle_finished(&mut self, finished: Vec<TriggerNumber>) {
        self.finished = Some(finished);
    }

    /// Whether the supervisor has told what is open.
    pub fn is_told(&self) -> bool {
        self.is_told
    }

    /// Whether everything is known, and [`ManagerSuccession::to_core`] may begin.
    pub fn is_complete(&self) -> bool {
        self.is_told && self.finished.is_some()
    }

    /// The event manager, which recovers.
    pub fn to_core(&self) -> EventManager {
        let finished = self.finished.as_deref().unwrap_or_default();
        let peers = PeerEpochs {
            supervisor: FIRST_EPOCH,
            manager: self.epoch,
            builders: &self.builders,
            readouts: &self.readouts,
        };
        // What builder units had handed on that are gone, the supervisor knows to be finished.
        EventManager::recovering(&self.config, self.epoch, peers, &self.open, finished)
    }

    /// How many triggers were open.
    pub fn open(&self) -> u64 {
        self.open.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::message::TriggerList;
    use livetime_wire::{L2Mask, RunNs, UnitId};

    use super::*;

    fn of(sender: UnitId, message: BuilderMessage) -> Envelope {
        Envelope {
            sender,
            epoch: FIRST_EPOCH,
            sequence: 0,
            message,
        }
    }

    fn accept(trigger: u64) -> BuilderMessage {
        BuilderMessage::L2Accept {
            trigger: TriggerNumber(trigger),
            mask: L2Mask(1),
            triggered_at: RunNs(trigger),
        }
    }

    fn all(batch: u32) -> BuilderMessage {
        BuilderMessage::Recover {
            batch,
            triggers: TriggerList::new(),
        }
    }

    #[test]
    fn it_recovers_what_the_supervisor_names_and_begins_when_that_is_all() {
        let config = BuilderConfig {
            builder_units: 2,
            ..BuilderConfig::default()
        };
        let mut succession = ManagerSuccession::new(&config, 2, vec![1, 3], Vec::new());
        let supervisor = UnitId::SUPERVISOR;
        for (sender, message) in [
            (supervisor, accept(4)),
            (supervisor, accept(9)),
            (supervisor, all(1)),
            (UnitId::builder(0), accept(5)),
            (UnitId::builder(0), all(2)),
            (supervisor, BuilderMessage::Alive),
        ] {
            succession.handle_message(&of(sender, message));
            assert!(!succession.is_complete());
        }
        succession.handle_message(&of(supervisor, accept(12)));
        succession.handle_message(&of(supervisor, all(3)));
        assert!(succession.is_told() && !succession.is_complete());
        succession.handle_finished(vec![TriggerNumber(9)]);
        assert!(succession.is_complete());
        let mut core = succession.to_core();
        assert!(core.is_in_recovery());
        let open: Vec<u64> = core.open_triggers().iter().map(|open| open.0).collect();
        assert_eq!(open, [4, 12], "9 is finished");
        let asked: Vec<_> = std::iter::from_fn(|| core.poll_output(RunNs(1))).collect();
        assert_eq!(asked.len(), 2);
        for (index, question) in (0..).zip(asked) {
            assert_eq!(question.to, UnitId::builder(index));
            assert_eq!(question.envelope.epoch, 2);
        }
    }
}
