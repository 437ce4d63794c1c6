//! The accounts of a story at its end: what came in went out, or is counted as lost under its cause.

use livetime_builder::EventManager;
use livetime_wire::{LossArea, LossCounts};

use super::world::SwarmWorld;
use crate::time::SimPs;

/// Losses by their names.
fn list(losses: &LossCounts) -> String {
    let lost = losses.iter().filter(|(_, count)| *count > 0);
    let lost = lost.map(|(cause, count)| format!("{} {count}", cause.key()));
    let lost: Vec<String> = lost.collect();
    match lost.is_empty() {
        true => "none".to_owned(),
        false => lost.join(", "),
    }
}

impl SwarmWorld {
    /// Events and fragments are accounted for, credits are whole and all pages free.
    pub(super) fn check_accounts(&mut self, now: SimPs) {
        let (accepted, taken) = (self.accepted, self.check.events_taken());
        let losses = self.event_losses();
        let lost = losses.in_area(LossArea::Builder) + losses.in_area(LossArea::Filter);
        self.check.expect(now, accepted == taken + lost, || {
            format!(
                "{accepted} events were accepted, {taken} came to a filter unit, lost are {}",
                list(&losses)
            )
        });
        self.check_freed(now);
        self.check_manager(now);
        self.check_fragments(now);
    }

    fn check_freed(&mut self, now: SimPs) {
        for (unit, readout) in self.readouts.iter().enumerate() {
            let left = readout.pages.len();
            self.check.expect(now, left == 0, || {
                format!("ru{unit} never frees {left} pages")
            });
        }
    }

    /// What event manager and builder units have lost.
    fn event_losses(&self) -> LossCounts {
        let losses = self.builders.iter().map(|host| host.core.losses());
        let losses = losses.chain(self.manager.iter().map(EventManager::losses));
        losses.fold(LossCounts::new(), |mut sum, lost| {
            sum.merge(lost);
            sum
        })
    }

    /// What came into the readout units is in events, was dropped, or is lost under its cause. What is
    /// in no event of a builder unit that was lost it alone knew: a run finds it by its sums.
    fn check_fragments(&mut self, now: SimPs) {
        let built_and_lost = self.event_losses().in_area(LossArea::Filter);
        for (unit, host) in (0..).zip(&self.readouts) {
            let Some(core) = &host.core else { continue };
            let received = host.received;
            let in_events = self
                .check
                .fragments_taken(unit, |page| host.is_present(page));
            let dropped = core.counts().fragments_dropped_by_decision;
            let lost = core.losses();
            let named = in_events + dropped + lost.total();
            let sources = self.config.sources_of(unit);
            let unnamed = match self.faults.contains_key("builder_lost") {
                true => self.check.fragments_missing(&sources),
                false => 0,
            };
            // Some were built, and nobody outside the builder unit has seen them.
            let unseen = built_and_lost * sources.len() as u64;
            let is_sum = (named..=named + unnamed + unseen).contains(&received);
            self.check.expect(now, is_sum, || {
                format!(
                    "ru{unit} received {received} fragments: {in_events} are in events, {dropped} were \
                     dropped, lost are {}",
                    list(lost)
                )
            });
        }
        let has_died = |fault| self.faults.contains_key(fault);
        if !has_died("builder_lost") && !has_died("readout_killed") {
            self.check_fragments_built(now);
        }
        self.check_whole_events(now);
    }

    /// A complete event has a fragment of each source, and is counted with them; one that ends with its
    /// first step has fewer.
    fn check_whole_events(&mut self, now: SimPs) {
        if !self.config.first_step.is_empty() {
            return;
        }
        let units = 0..self.readouts.len() as u16;
        let sources: usize = units.map(|unit| self.config.sources_of(unit).len()).sum();
        for (unit, host) in self.builders.iter().enumerate() {
            let counts = host.core.counts();
            let (events, fragments) = (counts.events_built, counts.fragments_in_built);
            let are_whole = fragments == events * sources as u64;
            self.check.expect(now, are_whole, || {
                format!("bu{unit} has {fragments} of {sources} fragments each in {events} events")
            });
        }
    }

    /// The builder units have in their events what the readout units have sent and not lost.
    fn check_fragments_built(&mut self, now: SimPs) {
        let sent = self.readouts.iter().map(|host| {
            let core = host.core.as_ref().expect("none has died");
            let dropped = core.counts().fragments_dropped_by_decision;
            host.received.wrapping_sub(dropped + core.losses().total())
        });
        let sent: u64 = sent.sum();
        let counts = self.builders.iter().map(|host| host.core.counts());
        let built = counts.map(|counts| counts.fragments_in_built + counts.fragments_in_incomplete);
        let built: u64 = built.sum();
        self.check.expect(now, sent == built, || {
            format!("builder units have {built} fragments in events, readout units count {sent}")
        });
    }
}
