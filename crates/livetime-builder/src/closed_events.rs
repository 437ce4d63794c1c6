//! What became of the events of one builder unit.
//!
//! With few builder units each closes a good part of all triggers, and a cell for each number is
//! the fastest. One of hundreds closes few: a log of its own last events then reaches back as far
//! with a small part of the memory, and is exact.

use livetime_wire::TriggerNumber;

use crate::builder_config::BuilderConfig;
use crate::trigger_history::{Closing, Past, TriggerHistory};
use crate::trigger_table::TriggerTable;

/// From so many builder units on each keeps a log.
const LOG_UNITS: u16 = 16;
/// Least number of events in a log.
const LOG_MIN: usize = 64;

/// Closed events of a builder unit.
#[derive(Debug)]
pub(crate) enum ClosedEvents {
    Cells(TriggerHistory),
    Log(ClosedLog),
}

impl ClosedEvents {
    /// As many as a builder unit closes while [`BuilderConfig::history`] triggers come, or more.
    pub(crate) fn new(config: &BuilderConfig) -> Self {
        match config.builder_units {
            ..LOG_UNITS => Self::Cells(TriggerHistory::new(config.history as usize)),
            _ => Self::Log(ClosedLog::new(log_most(config))),
        }
    }

    /// Bytes of them.
    pub(crate) fn memory_bytes(config: &BuilderConfig) -> u64 {
        match config.builder_units {
            ..LOG_UNITS => TriggerHistory::memory_bytes(config.history as usize),
            _ => ClosedLog::memory_bytes(log_most(config)),
        }
    }

    /// Remembers how an event was closed.
    pub(crate) fn record(&mut self, trigger: TriggerNumber, closing: Closing) {
        match self {
            Self::Cells(cells) => cells.record(trigger, closing),
            Self::Log(log) => log.record(trigger, closing),
        }
    }

    pub(crate) fn past(&self, trigger: TriggerNumber) -> Past {
        match self {
            Self::Cells(cells) => cells.past(trigger),
            Self::Log(log) => log.past(trigger),
        }
    }
}

/// Events in the log of a builder unit.
fn log_most(config: &BuilderConfig) -> usize {
    (4 * config.history as usize / usize::from(config.builder_units)).max(LOG_MIN)
}

/// The last events that were closed, however far apart their numbers are.
#[derive(Debug)]
pub(crate) struct ClosedLog {
    closings: TriggerTable<Closing>,
    /// Their triggers, in the order of closing from `oldest` on, round about.
    order: Vec<TriggerNumber>,
    oldest: usize,
    most: usize,
    /// The largest trigger that was put out to make room.
    forgotten: TriggerNumber,
}

impl ClosedLog {
    fn new(most: usize) -> Self {
        Self {
            closings: TriggerTable::new(most),
            order: Vec::with_capacity(most),
            oldest: 0,
            most,
            forgotten: TriggerNumber(0),
        }
    }

    fn memory_bytes(most: usize) -> u64 {
        let order = (most * size_of::<TriggerNumber>()) as u64;
        TriggerTable::<Closing>::memory_bytes(most) + order
    }

    fn record(&mut self, trigger: TriggerNumber, closing: Closing) {
        if let Some(known) = self.closings.get_mut(trigger) {
            *known = closing;
            return;
        }
        if self.order.len() < self.most {
            self.order.push(trigger);
        } else {
            let put_out = core::mem::replace(&mut self.order[self.oldest], trigger);
            self.oldest = (self.oldest + 1) % self.most;
            self.closings.remove(put_out);
            self.forgotten = self.forgotten.max(put_out);
        }
        let is_new = self.closings.insert(trigger, closing);
        debug_assert!(is_new, "there is room, and it was not there");
    }

    fn past(&self, trigger: TriggerNumber) -> Past {
        match self.closings.get(trigger) {
            Some(closing) => Past::Closed(*closing),
            None if trigger <= self.forgotten => Past::Forgotten,
            None => Past::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_exact_for_its_last_events_and_knows_what_it_has_put_out() {
        let mut log = ClosedLog::new(3);
        for trigger in [10, 1_000_000, 20, 30] {
            log.record(TriggerNumber(trigger), Closing::Complete);
        }
        log.record(TriggerNumber(20), Closing::Partial);
        let past = |trigger| log.past(TriggerNumber(trigger));
        assert_eq!(past(10), Past::Forgotten);
        assert_eq!(past(9), Past::Forgotten);
        assert_eq!(past(11), Past::Open);
        assert_eq!(past(20), Past::Closed(Closing::Partial));
        assert_eq!(past(1_000_000), Past::Closed(Closing::Complete));
    }

    #[test]
    fn one_of_many_units_keeps_a_log_of_its_own() {
        let of = |builder_units| {
            ClosedEvents::new(&BuilderConfig {
                builder_units,
                ..BuilderConfig::default()
            })
        };
        assert!(matches!(of(2), ClosedEvents::Cells(_)));
        let ClosedEvents::Log(log) = of(512) else {
            panic!("512 builder units");
        };
        assert_eq!(
            log.most, 512,
            "four times those that come while it looks back"
        );
        let mut events = of(512);
        events.record(TriggerNumber(7), Closing::Dropped);
        assert_eq!(
            events.past(TriggerNumber(7)),
            Past::Closed(Closing::Dropped)
        );
        assert_eq!(events.past(TriggerNumber(8)), Past::Open);
    }
}
