//! What must hold at every moment of a story.
//!
//! Exactly-once: no event is taken by a filter unit a second time, unless the first one died of it,
//! in whatever life of whatever builder unit it was built; every ticket has one fragment of its
//! trigger per source, but of readout units that have died; a first step has all fragments of its own
//! units. Accepted events are written once, but for those that died with a writer. Pages: freed once, and
//! not while a filter unit or the writer reads them. Bounds: no builder unit holds
//! more events or bytes than it has credits for. Credits: granted = free + in flight, in events and in
//! bytes. Progress: the story ends, with everything empty.

use std::collections::{BTreeMap, BTreeSet};

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

/// An event that a filter unit has taken.
#[derive(Debug)]
struct Taken {
    builder: u16,
    is_first_step: bool,
    /// Sources that are not in it: of a first step, those of the others, too.
    missing: Vec<SourceId>,
    /// Its fragments: the readout unit, and the page there.
    pages: Vec<(u16, u32)>,
}

/// The checker of one story. It keeps the first violation.
#[derive(Debug, Default)]
pub struct Check {
    sources: Vec<SourceId>,
    /// Those that are not in the first of two steps.
    rest: Vec<SourceId>,
    /// Sources of readout units that have died, at any time.
    excused: BTreeSet<SourceId>,
    taken: BTreeMap<TriggerNumber, Taken>,
    /// How often an event was handed to a writer since it was taken.
    handed_over: BTreeMap<TriggerNumber, u32>,
    /// Written and lost with a writer.
    lost_written: BTreeSet<TriggerNumber>,
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
        let taken = self.taken.values();
        taken.filter(|taken| taken.is_first_step).count() as u64
    }

    /// Those of them, built in full, without all fragments.
    pub fn events_incomplete(&self) -> u64 {
        let taken = self.taken.values();
        let whole = taken.filter(|taken| !taken.is_first_step);
        whole.filter(|taken| !taken.missing.is_empty()).count() as u64
    }

    /// Fragments that are in events that filter units took: those of such pages of a readout unit.
    pub(super) fn fragments_taken(&self, readout: u16, is_meant: impl Fn(u32) -> bool) -> u64 {
        let pages = self.taken.values().flat_map(|taken| &taken.pages);
        let of_it = pages.filter(|(unit, page)| *unit == readout && is_meant(*page));
        of_it.count() as u64
    }

    /// How often one of these sources is missing in an event that a filter unit took.
    pub(super) fn fragments_missing(&self, sources: &[SourceId]) -> u64 {
        let missing = self.taken.values().flat_map(|taken| &taken.missing);
        missing.filter(|source| sources.contains(source)).count() as u64
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
        let taken = Taken {
            builder: ticket.builder,
            is_first_step: ticket.is_first_step(),
            missing: ticket.missing.clone(),
            pages: ticket
                .fragments
                .iter()
                .map(|f| (f.pool, f.pages[0]))
                .collect(),
        };
        if self.taken.insert(trigger, taken).is_some() {
            self.report(at, format!("event {trigger} came to a filter unit twice"));
        }
        self.by_builder[usize::from(ticket.builder)] += 1;
        self.look(at, ticket);
    }

    /// Who took it of a builder unit has died and not answered, or that builder unit before it was
    /// written: it may come once more.
    pub(super) fn take_back(&mut self, trigger: TriggerNumber, builder: u16) {
        let taken = self.taken.get(&trigger);
        if taken.is_some_and(|taken| taken.builder == builder) {
            self.taken.remove(&trigger);
            self.handed_over.remove(&trigger);
            self.by_builder[usize::from(builder)] -= 1;
        }
    }

    /// A builder unit hands an event to a writer.
    pub(super) fn hand_over(&mut self, trigger: TriggerNumber) {
        *self.handed_over.entry(trigger).or_default() += 1;
    }

    /// A written event is lost with its writer.
    pub(super) fn lose_written(&mut self, trigger: TriggerNumber) {
        self.lost_written.insert(trigger);
    }

    /// The first event that should be written and is not. What two writers have not answered for is
    /// given up by its name.
    pub(super) fn unwritten(
        &self,
        is_accepted: impl Fn(TriggerNumber) -> bool,
        is_written: impl Fn(TriggerNumber) -> bool,
    ) -> Option<TriggerNumber> {
        let whole = self.taken.iter().filter(|(_, taken)| !taken.is_first_step);
        let mut triggers = whole.map(|(trigger, _)| *trigger);
        triggers.find(|trigger| {
            let is_excused = self.lost_written.contains(trigger)
                || self
                    .handed_over
                    .get(trigger)
                    .is_some_and(|times| *times > 1);
            is_accepted(*trigger) != is_written(*trigger) && !is_excused
        })
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
