//! What must hold at every moment of a story.
//!
//! Exactly-once: no event is taken by a filter unit a second time, in whatever life of whatever
//! builder unit it was built; every ticket has one fragment of its trigger per source, but of
//! readout units that have died. Pages: freed once, and not while a filter unit reads them. Bounds:
//! no builder unit holds more events or bytes than it has credits for. Credits: granted = free + in
//! flight, in events and in bytes. Progress: the story ends, with everything empty.

use std::collections::BTreeSet;

use livetime_wire::message::EventTicket;
use livetime_wire::{SourceId, TriggerNumber};

use crate::time::SimPs;

/// Something that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When it was seen.
    pub at: SimPs,
    /// What it was.
    pub what: String,
}

/// The checker of one story. It keeps the first violation.
#[derive(Debug, Default)]
pub struct Check {
    sources: Vec<SourceId>,
    /// Sources of readout units that have died, at any time.
    excused: BTreeSet<SourceId>,
    taken: BTreeSet<TriggerNumber>,
    incomplete: u64,
    by_builder: Vec<u64>,
    violation: Option<Violation>,
}

impl Check {
    /// A checker for events of these sources.
    pub(super) fn new(mut sources: Vec<SourceId>, builders: u16) -> Self {
        sources.sort();
        Self {
            sources,
            by_builder: vec![0; builders.into()],
            ..Self::default()
        }
    }

    /// The first thing that did not hold.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Events that filter units took.
    pub fn events_taken(&self) -> u64 {
        self.taken.len() as u64
    }

    /// Those of them without all fragments.
    pub fn events_incomplete(&self) -> u64 {
        self.incomplete
    }

    /// By builder unit: events of it that filter units took.
    pub fn events_by_builder(&self) -> &[u64] {
        &self.by_builder
    }

    pub(super) fn report(&mut self, at: SimPs, what: String) {
        self.violation.get_or_insert(Violation { at, what });
    }

    /// Reports unless something holds.
    pub(super) fn expect(&mut self, at: SimPs, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.report(at, what());
        }
    }

    /// A readout unit died: from now on its sources may be missing.
    pub(super) fn excuse(&mut self, sources: impl IntoIterator<Item = SourceId>) {
        self.excused.extend(sources);
    }

    /// A filter unit takes an event.
    pub(super) fn take(&mut self, at: SimPs, ticket: &EventTicket) {
        let trigger = ticket.trigger;
        if !self.taken.insert(trigger) {
            self.report(at, format!("event {trigger} came to a filter unit twice"));
        }
        self.by_builder[usize::from(ticket.builder)] += 1;
        self.incomplete += u64::from(!ticket.missing.is_empty());
        let mut sources: Vec<SourceId> = ticket.fragments.iter().map(|f| f.source).collect();
        sources.extend(&ticket.missing);
        sources.sort();
        if sources != self.sources {
            self.report(
                at,
                format!("event {trigger} does not name each source once"),
            );
        }
        for source in &ticket.missing {
            if !self.excused.contains(source) {
                self.report(
                    at,
                    format!("event {trigger} misses source {source}, whose readout unit lives"),
                );
            }
        }
        for fragment in &ticket.fragments {
            if fragment.crc != trigger.low() {
                self.report(at, format!("event {trigger} has a fragment of another"));
            }
        }
    }
}
