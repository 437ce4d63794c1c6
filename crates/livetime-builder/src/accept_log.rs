//! Accepted triggers that are not known to be finished: what a restarted event manager is told.
//!
//! Kept beside the supervisor, who outlives the event manager. It is told by
//! [`crate::EventManager::poll_closed`] what is finished; what else is known of open triggers, the
//! builder units know ([`crate::event_manager`]).

use livetime_wire::{L2Mask, RunNs, TriggerNumber};

use crate::builder_config::BuilderConfig;
use crate::event_manager::AcceptedTrigger;
use crate::trigger_table::TriggerTable;

/// The log. 48 bytes per trigger, of twice the triggers that can be open at a time.
#[derive(Debug)]
pub struct AcceptLog {
    open: TriggerTable<(L2Mask, RunNs)>,
}

impl AcceptLog {
    /// An empty log for the triggers that may be open in a builder of this configuration.
    pub fn new(config: &BuilderConfig) -> Self {
        Self {
            open: TriggerTable::new(Self::most(config)),
        }
    }

    /// Triggers that a log for this configuration has room for.
    pub fn most(config: &BuilderConfig) -> usize {
        open_max(config.credits_total(), config.evm_queue.into())
    }

    /// Whether another trigger can be added.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.open.is_full()
    }

    /// Remembers an accepted trigger; false when there is no room, and the trigger must wait.
    #[must_use]
    pub fn add(&mut self, event: AcceptedTrigger) -> bool {
        self.open.get(event.trigger).is_some()
            || self
                .open
                .insert(event.trigger, (event.mask, event.triggered_at))
    }

    /// A trigger is finished; repetitions change nothing.
    pub fn close(&mut self, trigger: TriggerNumber) {
        self.open.remove(trigger);
    }

    /// Whether a trigger is not known to be finished.
    #[inline]
    pub fn is_open(&self, trigger: TriggerNumber) -> bool {
        self.open.get(trigger).is_some()
    }

    /// Number of open triggers.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no trigger is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The open triggers in the order of their numbers. Allocates; for restarts.
    pub fn to_vec(&mut self) -> Vec<AcceptedTrigger> {
        let mut open: Vec<AcceptedTrigger> = self
            .open
            .iter_mut()
            .map(|(trigger, (mask, triggered_at))| AcceptedTrigger {
                trigger,
                mask: *mask,
                triggered_at: *triggered_at,
            })
            .collect();
        open.sort_by_key(|event| event.trigger);
        open
    }
}

/// Most triggers that are remembered with so many credits and so long a queue.
pub(crate) fn open_max(credits: u64, queue: u64) -> usize {
    usize::try_from(2 * (credits + queue) + 64).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_triggers_are_kept_in_order_until_closed() {
        let config = BuilderConfig {
            builder_units: 1,
            credits: 1,
            evm_queue: 1,
            ..BuilderConfig::default()
        };
        let mut log = AcceptLog::new(&config);
        let event = |trigger| AcceptedTrigger {
            trigger: TriggerNumber(trigger),
            mask: L2Mask(trigger.into()),
            triggered_at: RunNs(trigger),
        };
        for trigger in (1..=68).rev() {
            assert!(log.has_room() && log.add(event(trigger)));
        }
        assert!(!log.has_room() && AcceptLog::most(&config) == 68);
        assert!(log.add(event(5)), "it is there");
        assert!(!log.add(event(69)), "no room");
        (2..=67).for_each(|trigger| log.close(TriggerNumber(trigger)));
        log.close(TriggerNumber(2));
        assert_eq!(log.to_vec(), [event(1), event(68)]);
        let is_open = |trigger| log.is_open(TriggerNumber(trigger));
        assert!(is_open(1) && is_open(68) && !is_open(2) && !is_open(69));
        assert!(!log.is_empty());
    }
}
