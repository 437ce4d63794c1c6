//! Two-step building on a network: what is gathered first, what the filters then want, and what moved.
//!
//! The units do it by themselves ([`livetime_builder::BuilderConfig::first_step`]); here the filter
//! behind a builder unit decides, by a draw from the trigger number, so that whoever builds an event
//! gets the same answer.

use crate::network::traffic::mixed;

use super::check::{Sizes, words};
use super::placement::is_chosen;

/// Events are gathered in two steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoStep {
    /// Readout units whose fragments are gathered first, spread evenly over all.
    pub first_units: u32,
    /// Share of the events whose rest is fetched, 0 to 1. The others are released.
    pub accept: f64,
}

impl TwoStep {
    /// The readout units of the first step, of so many.
    pub(super) fn units(&self, all: u32) -> Vec<u16> {
        // More than there are is refused with the units' configuration.
        let units = (0..all).map(|unit| unit as u16);
        units
            .filter(|unit| is_chosen(*unit, self.first_units, all, 0))
            .collect()
    }
}

/// What moved in two steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TwoStepOutcome {
    /// Readout units in the first step.
    pub first_units: u32,
    /// Events that were released after it, in all.
    pub events_released: u64,
    /// Share of the counted events whose rest was fetched.
    pub accepted: f64,
    /// Payload of the counted events that moved, as a share of what there was: what a network needs
    /// relative to gathering all at once. The talk (paper 003) gives 0.25 + 0.1 x 0.75 = 0.33.
    pub moved: f64,
    /// Payload bytes per second that a readout unit of the first step sends, on average.
    pub first_bytes_per_s: f64,
    /// That of the other readout units: they are idle while the first ones are busy.
    pub rest_bytes_per_s: f64,
}

/// The steps of a run.
#[derive(Debug)]
pub(super) struct Steps {
    first: Vec<u16>,
    readouts: u16,
    /// Draws below this are accepted.
    accepted_below: u64,
    seed: u64,
    released: u64,
    counted: u64,
    counted_full: u64,
    /// Words of counted events: of first units, of the others that moved, and of these in all.
    words: [u64; 3],
}

impl Steps {
    pub(super) fn new(plan: &TwoStep, first: Vec<u16>, readouts: u16, seed: u64) -> Self {
        Self {
            first,
            readouts,
            accepted_below: (plan.accept * u64::MAX as f64) as u64,
            seed: mixed(seed),
            released: 0,
            counted: 0,
            counted_full: 0,
            words: [0; 3],
        }
    }

    /// Whether the filter fetches the rest of an event.
    pub(super) fn fetches(&self, trigger: u64) -> bool {
        mixed(self.seed ^ mixed(trigger)) < self.accepted_below
    }

    /// Words of an event's first step.
    pub(super) fn first_words(&self, trigger: u64, sizes: &Sizes<'_>) -> u64 {
        let of = |unit: &u16| u64::from(words(sizes.of(trigger, *unit)));
        self.first.iter().map(of).sum()
    }

    /// An event was released after its first step.
    pub(super) fn release(&mut self) {
        self.released += 1;
    }

    /// An event counts, of which so many words moved.
    pub(super) fn count(&mut self, trigger: u64, moved: u64, is_full: bool, sizes: &Sizes<'_>) {
        let first = self.first_words(trigger, sizes);
        let of = |unit| u64::from(words(sizes.of(trigger, unit)));
        let all: u64 = (0..self.readouts).map(of).sum();
        self.counted += 1;
        self.counted_full += u64::from(is_full);
        let words = [first.min(moved), moved.saturating_sub(first), all - first];
        for (sum, of_event) in self.words.iter_mut().zip(words) {
            *sum += of_event;
        }
    }

    /// What moved in so many seconds.
    pub(super) fn outcome(&self, seconds: f64) -> TwoStepOutcome {
        let [first, rest, all_rest] = self.words.map(|words| words as f64);
        let units = self.first.len() as f64;
        TwoStepOutcome {
            first_units: self.first.len() as u32,
            events_released: self.released,
            accepted: self.counted_full as f64 / (self.counted as f64).max(1.0),
            moved: (first + rest) / (first + all_rest).max(1.0),
            first_bytes_per_s: 4.0 * first / units.max(1.0) / seconds,
            rest_bytes_per_s: 4.0 * rest / (f64::from(self.readouts) - units).max(1.0) / seconds,
        }
    }
}
