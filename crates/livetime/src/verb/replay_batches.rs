//! `livetime replay` of a run whose filter judges batches: the part that has an interpreter.
//!
//! Events of the error stream are asked about one by one and once, so that what the filter fails on
//! is named, with where it failed. What the answers are compared with is in [`super::replay`].

use std::time::{Duration, Instant};

use livetime_node::python_filter::batch_filter::BatchBounds;
use livetime_node::python_filter::interpreter::Surroundings;
use livetime_node::python_filter::{BatchFilter, BatchRow, BatchVerdict, PythonConfig};
use livetime_trigger::FilterOutput;
use livetime_wire::event::{EventHeader, EventView};
use livetime_wire::{RunNs, TriggerNumber};

use crate::console::say;

/// Events judged at a time, unless the filter wants fewer.
const BATCH: usize = 1024;
/// Fragments and words of an event that batches are made for; larger ones come alone.
const SOURCES: usize = 256;
const EVENT_WORDS: usize = 4 << 20;

/// What was recorded of an event, and what the filter says now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) trigger: TriggerNumber,
    /// Reason and streams.
    pub(crate) recorded: (u16, u16),
    /// `None` if the filter fails on it.
    pub(crate) now: Option<FilterOutput>,
}

/// A filter of batches over stored events.
pub(crate) struct BatchReplay {
    filter: BatchFilter,
    waiting: Vec<EventHeader>,
    begun: Instant,
    one_by_one: bool,
}

impl BatchReplay {
    /// Starts the filter; `one_by_one` for the events of the error stream.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(crate) fn start(python: &PythonConfig, one_by_one: bool) -> Result<Self, String> {
        let mut python = python.clone();
        if one_by_one {
            (python.batch, python.retries) = (Some(1), 0);
        }
        let bounds = BatchBounds {
            sources: SOURCES,
            event_words: EVENT_WORDS,
            events: 2 * BATCH,
        };
        let alone = Surroundings::default();
        let filter = BatchFilter::start("replay", &python, bounds, Vec::new(), alone);
        Ok(Self {
            filter: filter.map_err(|error| format!("error: the filter cannot be used: {error}"))?,
            waiting: Vec::new(),
            begun: Instant::now(),
            one_by_one,
        })
    }

    /// Takes an event; answers about it and those before it go to `answer` when a batch is full.
    pub(crate) fn take(&mut self, event: &EventView<'_>, answer: &mut dyn FnMut(Answer)) {
        if !self.filter.has_room_for(event) {
            self.judge(answer);
        }
        let header = event.header();
        if self.one_by_one {
            say(format_args!("trigger {}", header.trigger));
        }
        let row = BatchRow {
            triggered_at: header.triggered_at,
            missing: event.missing().len(),
        };
        self.waiting.push(header);
        if self.filter.push(event, row, |_, _| None) {
            self.judge(answer);
        }
    }

    /// Has the events judged that were taken.
    pub(crate) fn judge(&mut self, answer: &mut dyn FnMut(Answer)) {
        if self.waiting.is_empty() {
            return;
        }
        self.filter.close_batch();
        let slot = loop {
            let now = RunNs(self.begun.elapsed().as_nanos() as u64);
            let work = self.filter.poll(now);
            if let Some((slot, _)) = self.filter.judged() {
                break slot;
            }
            if work == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        };
        for (nth, header) in self.waiting.drain(..).enumerate() {
            let now = match self.filter.verdict(slot, nth) {
                BatchVerdict::Judged(output) => Some(output),
                BatchVerdict::Failed => None,
            };
            answer(Answer {
                trigger: header.trigger,
                recorded: (header.filter_reason, header.streams),
                now,
            });
        }
        self.filter.forget(slot);
        for failure in self.filter.take_failures() {
            let how: Vec<&str> = failure.deaths.iter().map(|(_, how)| how.as_str()).collect();
            say(format_args!(
                "error: the filter fails on trigger {}: {}\n{}",
                failure.trigger,
                how.join(", "),
                failure.traceback.trim_end()
            ));
        }
    }
}
