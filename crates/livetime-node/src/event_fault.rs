//! Faults of filters on purpose: an event that crashes every filter unit, or hangs it.
//!
//! They are asked for on the command line, to see what a run does about a filter that does not
//! survive one of its events. What it does is in [`crate::process::event_watch`].

use livetime_trigger::{EventFilter, FilterOutput};
use livetime_wire::TriggerNumber;
use livetime_wire::event::EventAccess;

/// What an event does to the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventFaultKind {
    /// Its process aborts.
    Crash,
    /// It never comes back.
    Hang,
}

/// An event that a filter does not survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFault {
    /// The event.
    pub trigger: TriggerNumber,
    /// What it does.
    pub kind: EventFaultKind,
}

/// A filter with faults.
pub struct FaultyFilter {
    filter: Box<dyn EventFilter>,
    faults: Vec<EventFault>,
}

impl FaultyFilter {
    /// `filter`, which does not survive the events of `faults`; itself if there are none.
    pub fn over(filter: Box<dyn EventFilter>, faults: Vec<EventFault>) -> Box<dyn EventFilter> {
        if faults.is_empty() {
            return filter;
        }
        Box::new(Self { filter, faults })
    }
}

impl EventFilter for FaultyFilter {
    fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput {
        let trigger = event.trigger();
        match self.faults.iter().find(|fault| fault.trigger == trigger) {
            None => self.filter.filter(event),
            Some(fault) => match fault.kind {
                EventFaultKind::Crash => std::process::abort(),
                EventFaultKind::Hang => loop {
                    std::hint::spin_loop();
                },
            },
        }
    }

    /// It dies of whole events only.
    fn wants_rest(&mut self, first: &dyn EventAccess) -> bool {
        self.filter.wants_rest(first)
    }

    fn reasons(&self) -> &[&str] {
        self.filter.reasons()
    }

    fn reason_names(&self) -> Vec<String> {
        self.filter.reason_names()
    }

    fn details(&self) -> Vec<(String, u64)> {
        self.filter.details()
    }
}
