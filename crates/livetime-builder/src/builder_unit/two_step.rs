//! Two-step building: some readout units' fragments first, the rest only where a selection on them
//! accepts.
//!
//! In its first step an event goes to a filter unit with what the first units have; its ticket names
//! all others as missing. The filter unit answers `FetchRest`, and the event is asked for in full and
//! comes to a filter unit again, or `EventDone`, and it is released: readout units that were never
//! asked count its fragments as dropped by the decision, and they never moved. With `EventsAccepted`
//! it is written as it is. An event whose first step lacks a fragment, since it timed out or its
//! readout unit is gone, is not judged by what it has: its rest is fetched at once.

use livetime_wire::{RunNs, TriggerNumber, UnitId};

use super::BuilderUnit;
use crate::builder_config::BuilderConfig;
use crate::event_assembly::{Outcome, Stage};

/// By readout unit: whether it is in the first step; empty if there is only one.
pub(super) fn units_of(config: &BuilderConfig) -> Vec<bool> {
    if config.first_step.is_empty() {
        return Vec::new();
    }
    (0..config.readout_units.len())
        .map(|unit| config.first_step.contains(&(unit as u16)))
        .collect()
}

impl BuilderUnit {
    /// Whether the current group is asked for at a readout unit: in the second step the first ones
    /// have sent already.
    pub(super) fn is_asked(&self, unit: usize) -> bool {
        self.in_first_step
            .get(unit)
            .is_none_or(|is_first| *is_first == self.is_requesting_first)
    }

    /// Whether the current group must still be asked for elsewhere.
    pub(super) fn has_more_to_ask(&self) -> bool {
        let round = &self.request_round;
        if self.in_first_step.is_empty() {
            return round.left > 0;
        }
        let units = self.readout_count();
        (0..round.left).any(|n| self.is_asked(((round.next + n) % units).into()))
    }

    /// Hands an event on once its first step is complete.
    pub(super) fn close_first_step(&mut self, now: RunNs, slot: u32) {
        if self.is_waiting_for_any(slot) {
            return;
        }
        let received = self.assembly.received(slot);
        let is_whole = (0..self.readouts.len())
            .all(|unit| !self.in_first_step[unit] || self.sources.missing_of(unit, received) == 0);
        if !is_whole {
            return self.go_on_unjudged(now, slot);
        }
        let event = self.assembly.event_mut(slot);
        event.built_at = now;
        event.outcome = Outcome::Complete;
        self.assembly.set_stage(slot, Stage::Ready);
        self.dispatch.push(slot);
    }

    /// The first step of an event lacks fragments: no selection can be made on it.
    pub(super) fn go_on_unjudged(&mut self, now: RunNs, slot: u32) {
        self.counts.events_unjudged += 1;
        self.start_second_step(now, slot);
    }

    /// Whether a fragment is one that nobody has asked for: its readout unit looks whether the event
    /// is still in work.
    pub(super) fn is_unasked(&self, slot: u32, unit: u16) -> bool {
        let event = self.assembly.event(slot);
        event.is_first_step && !self.in_first_step[usize::from(unit)]
    }

    /// Asks for the rest of an event.
    fn start_second_step(&mut self, now: RunNs, slot: u32) {
        let event = self.assembly.event_mut(slot);
        event.is_first_step = false;
        event.deadline = now.after(self.timeout);
        event.retry_at = RunNs::MAX;
        self.timeout_at = self.timeout_at.min(event.deadline);
        if event.stage != Stage::Waiting {
            self.assembly.set_stage(slot, Stage::Waiting);
            self.waiting.push_back(slot);
        }
        self.close_without_absent(now, slot);
    }

    /// The selection of a filter unit accepts what it has seen of an event.
    pub(super) fn fetch_rest(&mut self, now: RunNs, trigger: TriggerNumber, from: UnitId) {
        let Some(slot) = self.slots.get(trigger).copied() else {
            self.counts.dones_unknown += 1;
            return;
        };
        let event = self.assembly.event(slot);
        let Stage::Filtering { filter } = event.stage else {
            self.counts.dones_unknown += 1;
            return;
        };
        if !event.is_first_step || from != UnitId::filter(filter) {
            // Said again over a stream that was made again, while the event is whole and waits for
            // its verdict.
            self.counts.fetches_refused += 1;
            return;
        }
        self.counts.events_fetched += 1;
        self.dispatch.done(filter);
        self.start_second_step(now, slot);
    }

    /// An event ends with its first step: it counts with what was gathered.
    pub(super) fn end_first_step(&mut self, slot: u32) {
        let event = self.assembly.event(slot);
        if event.is_first_step && event.outcome == Outcome::Complete {
            self.counts.events_built += 1;
            self.counts.fragments_in_built += u64::from(event.received);
            self.counts.events_first_step_only += 1;
        }
    }

    /// Payload bytes that came, by readout unit: with two steps the first ones send more, and this
    /// shows by how much. Empty for units that count payload by event alone.
    pub fn bytes_by_readout(&self) -> &[u64] {
        &self.bytes_by_readout
    }

    /// Whether events are gathered in two steps.
    #[inline]
    pub fn is_two_step(&self) -> bool {
        !self.in_first_step.is_empty()
    }
}
