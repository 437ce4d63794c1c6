//! Event filters: what a filter unit runs on whole events.
//!
//! A filter sees one event through [`EventAccess`] and says keep or not, why, and for which
//! streams. The same filter runs on line, in the simulator and over a file, and must give the same
//! answers there: an answer depends on the event alone, never on what came before. Built in are
//! [`AcceptAll`], [`crate::mass_window::MassWindow`], the menu of [`crate::event_menu`] and the chains
//! of stages of [`crate::filter_stage`].

use livetime_wire::event::EventAccess;

/// What a filter says about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterOutput {
    /// Whether the event goes to the file.
    pub accept: bool,
    /// Why: an index into [`EventFilter::reason_names`].
    pub reason: u16,
    /// Streams that it belongs to, one bit each.
    pub streams: u16,
}

/// A filter of whole events.
///
/// Filter units are moved to their worker threads, so a filter is [`Send`].
///
/// ```
/// use livetime_trigger::{EventFilter, FilterOutput};
/// use livetime_wire::event::EventAccess;
///
/// /// Keeps complete events.
/// struct Complete;
///
/// impl EventFilter for Complete {
///     fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput {
///         let accept = !event.is_incomplete();
///         FilterOutput { accept, reason: u16::from(!accept), streams: u16::from(accept) }
///     }
///
///     fn reasons(&self) -> &[&str] {
///         &["complete", "incomplete"]
///     }
/// }
/// ```
pub trait EventFilter: Send {
    /// Judges an event. The answer depends on the event alone: no counters and no clock, but for an
    /// event over its `event_limit`, which goes to the error stream.
    fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput;

    /// Whether the rest of an event is worth fetching, where events are built in two steps: `first`
    /// has the fragments of the first step, and all other sources are missing. `false` rejects the
    /// event for good. The answer depends on the event alone, and by default the rest is fetched.
    fn wants_rest(&mut self, _first: &dyn EventAccess) -> bool {
        true
    }

    /// Names of the reasons, by their index, where the code names them; never empty and always the
    /// same. A filter whose reasons are named by its configuration gives [`Self::reason_names`] too.
    fn reasons(&self) -> &[&str];

    /// Names of the reasons, by their index: those of [`Self::reasons`], or those of the configuration.
    #[inline]
    fn reason_names(&self) -> Vec<String> {
        self.reasons()
            .iter()
            .map(|name| (*name).to_owned())
            .collect()
    }

    /// What it has counted beside accepted and rejected events, by name; nothing by default.
    fn details(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// Keeps every event, for sources without physics in them.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptAll;

impl EventFilter for AcceptAll {
    #[inline]
    fn filter(&mut self, _event: &dyn EventAccess) -> FilterOutput {
        FilterOutput {
            accept: true,
            reason: 0,
            streams: 1,
        }
    }

    #[inline]
    fn reasons(&self) -> &[&str] {
        &["all"]
    }
}

/// Events by what was done with them and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterCounts {
    /// Events accepted.
    pub accepted: u64,
    /// Events rejected.
    pub rejected: u64,
    /// Accepted and rejected events of each reason; the last entry takes reasons without a name.
    by_reason: Vec<(u64, u64)>,
}

impl FilterCounts {
    /// Counters for the reasons of `filter`.
    pub fn new(filter: &dyn EventFilter) -> Self {
        Self {
            accepted: 0,
            rejected: 0,
            by_reason: vec![(0, 0); filter.reason_names().len() + 1],
        }
    }

    /// Counts an answer.
    pub fn add(&mut self, output: &FilterOutput) {
        let last = self.by_reason.len() - 1;
        let entry = &mut self.by_reason[usize::from(output.reason).min(last)];
        if output.accept {
            self.accepted += 1;
            entry.0 += 1;
        } else {
            self.rejected += 1;
            entry.1 += 1;
        }
    }

    /// Accepted and rejected events of a reason; an index without a name gives those of all such.
    #[inline]
    pub fn of(&self, reason: u16) -> (u64, u64) {
        self.by_reason[usize::from(reason).min(self.by_reason.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_reason_even_without_a_name() {
        let mut counts = FilterCounts::new(&AcceptAll);
        let answer = |accept, reason| FilterOutput {
            accept,
            reason,
            streams: 0,
        };
        counts.add(&answer(true, 0));
        counts.add(&answer(false, 0));
        counts.add(&answer(false, 0));
        counts.add(&answer(false, 7));
        assert_eq!((counts.accepted, counts.rejected), (1, 3));
        assert_eq!(counts.of(0), (1, 2));
        assert_eq!(counts.of(1), (0, 1));
        assert_eq!(counts.of(7), counts.of(1));
    }
}
