//! What must hold at every moment of a story.
//!
//! Exactly-once: no event is taken by a filter unit a second time, unless the first one died of it,
//! in whatever life of whatever builder unit it was built; every ticket has one fragment of its
//! trigger per source, but of readout units that have died; a first step has all fragments of its own
//! units. Pages: freed once, and not while a filter unit reads them. Bounds: no builder unit holds
//! more events or bytes than it has credits for. Credits: granted = free + in flight, in events and in
//! bytes. Progress: the story ends, with everything empty.

use std::collections::BTreeSet;

use livetime_builder::BuilderConfig;
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
    /// Those that are not in the first of two steps.
    rest: Vec<SourceId>,
    /// Sources of readout units that have died, at any time.
    excused: BTreeSet<SourceId>,
    taken: BTreeSet<TriggerNumber>,
    incomplete: u64,
    released: u64,
    by_builder: Vec<u64>,
    violation: Option<Violation>,
}

impl Check {
    /// A checker for the events of a builder.
    pub(super) fn new(config: &BuilderConfig) -> Self {
        let mut sources = config.readout_units.concat();
        sources.sort();
        let units = (0..).zip(&config.readout_units);
        let rest = units.filter(|(unit, _)| !config.first_step.contains(unit));
        let mut rest: Vec<SourceId> = rest.flat_map(|(_, sources)| sources.clone()).collect();
        rest.sort();
        Self {
            sources,
            rest,
            by_builder: vec![0; config.builder_units.into()],
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

    /// Those of them that were released after their first step.
    pub fn events_released(&self) -> u64 {
        self.released
    }

    /// Those of them, built in full, without all fragments.
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
        if ticket.is_first_step() {
            self.released += 1;
        } else {
            self.incomplete += u64::from(!ticket.missing.is_empty());
        }
        self.look(at, ticket);
    }

    /// The filter unit that took it has died and not answered: it may come once more.
    pub(super) fn take_back(&mut self, ticket: &EventTicket) {
        self.taken.remove(&ticket.trigger);
        self.by_builder[usize::from(ticket.builder)] -= 1;
        if ticket.is_first_step() {
            self.released -= 1;
        } else {
            self.incomplete -= u64::from(!ticket.missing.is_empty());
        }
    }

    /// A filter unit is given an event, or the first step of one.
    pub(super) fn look(&mut self, at: SimPs, ticket: &EventTicket) {
        let trigger = ticket.trigger;
        let mut sources: Vec<SourceId> = ticket.fragments.iter().map(|f| f.source).collect();
        sources.extend(&ticket.missing);
        sources.sort();
        if sources != self.sources {
            let what = format!("event {trigger} does not name each source once");
            self.report(at, what);
        }
        if ticket.is_first_step() {
            // One that lacks a fragment is not judged by its first step.
            let is_whole = ticket.missing == self.rest;
            self.expect(at, is_whole, || {
                let missing = &ticket.missing;
                format!("the first step of event {trigger} misses {missing:?}")
            });
        } else {
            let lives = |source: &&SourceId| !self.excused.contains(source);
            if let Some(source) = ticket.missing.iter().find(lives) {
                let what =
                    format!("event {trigger} misses source {source}, whose readout unit lives");
                self.report(at, what);
            }
        }
        for fragment in &ticket.fragments {
            if fragment.crc != trigger.low() {
                self.report(at, format!("event {trigger} has a fragment of another"));
            }
        }
    }
}
