//! The selection on the first step of two-step building: whether the rest of an event is worth
//! fetching.
//!
//! Two things are asked, and both must agree: the [`FirstStepConfig`] of the run, by Level-2 bits and
//! by leptons in what was gathered, and the filter itself ([`EventFilter::wants_rest`]), which knows
//! of some events that it will reject them whatever the rest is. What the first one loses shows in a
//! sample of its rejects that is fetched all the same. Answers depend on the event alone. How the
//! fragments come in two steps is the builder's business.

use livetime_wire::decision::mix64;
use livetime_wire::event::EventAccess;
use livetime_wire::object::ObjectKind;

use crate::candidate::Leptons;
use crate::filter::EventFilter;

/// What is asked of an event on its first step; the default asks nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FirstStepConfig {
    /// Level-2 bits, 0 to 127, of which one must be set; empty, the default, for any decision.
    pub l2: Vec<u8>,
    /// So many muons and electrons must be in the fragments of the first step. Default 0. Leptons in
    /// other fragments do not count: they are not there yet.
    pub leptons: usize,
    /// Their least transverse momentum \[GeV\]. Default 0.
    pub pt_min_gev: f64,
    /// One in so many of those that fail is fetched all the same, chosen by a hash of the trigger
    /// number; 0, the default, for none.
    pub keep_one_in: u32,
}

impl FirstStepConfig {
    /// Whether it asks nothing.
    pub fn is_empty(&self) -> bool {
        self.l2.is_empty() && self.leptons == 0
    }
}

/// What becomes of an event after its first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstStepVerdict {
    /// The rest is fetched, and the filter judges the whole event.
    Fetch,
    /// It is rejected; the rest never moves.
    Release,
}

/// Events by what their first step led to, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirstStepCounts {
    /// Fetched: the selection accepts them.
    pub fetched: u64,
    /// Fetched as a sample of those that the selection rejects.
    pub fetched_as_sample: u64,
    /// Fetched since a fragment of the first step was damaged: what it would have shown is not known.
    pub fetched_unreadable: u64,
    /// Released: the selection rejects them.
    pub released_by_selection: u64,
    /// Released: the filter would reject them whatever the rest is.
    pub released_by_filter: u64,
}

impl FirstStepCounts {
    /// Names and values.
    pub fn entries(&self) -> [(&'static str, u64); 5] {
        [
            ("fetched", self.fetched),
            ("fetched_as_sample", self.fetched_as_sample),
            ("fetched_unreadable", self.fetched_unreadable),
            ("released_by_selection", self.released_by_selection),
            ("released_by_filter", self.released_by_filter),
        ]
    }
}

/// The selection at work.
#[derive(Debug, Clone, Default)]
pub struct FirstStep {
    config: FirstStepConfig,
    leptons: Leptons,
    counts: FirstStepCounts,
}

impl FirstStep {
    /// A selection.
    pub fn new(config: FirstStepConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Judges the first step of an event; `filter` is asked, too, where there is one of single
    /// events.
    pub fn judge(
        &mut self,
        first: &dyn EventAccess,
        filter: Option<&mut dyn EventFilter>,
    ) -> FirstStepVerdict {
        // Its fragments are few, and each of them may be the one with the lepton.
        let is_damaged = (0..first.fragment_count()).any(|n| !first.entry(n).status.is_good());
        let counts = &mut self.counts;
        let count = if is_damaged {
            &mut counts.fetched_unreadable
        } else if !passes(&self.config, &mut self.leptons, first) {
            match is_sampled(&self.config, first) {
                true => &mut counts.fetched_as_sample,
                false => {
                    counts.released_by_selection += 1;
                    return FirstStepVerdict::Release;
                }
            }
        } else if filter.is_some_and(|filter| !filter.wants_rest(first)) {
            counts.released_by_filter += 1;
            return FirstStepVerdict::Release;
        } else {
            &mut counts.fetched
        };
        *count += 1;
        FirstStepVerdict::Fetch
    }

    /// What became of the events so far.
    pub fn counts(&self) -> &FirstStepCounts {
        &self.counts
    }
}

fn passes(config: &FirstStepConfig, leptons: &mut Leptons, first: &dyn EventAccess) -> bool {
    let mask = first.mask().0;
    if !config.l2.is_empty() && !config.l2.iter().any(|bit| mask >> bit & 1 == 1) {
        return false;
    }
    if config.leptons == 0 {
        return true;
    }
    leptons.unpack(first);
    let of = |kind| leptons.count(kind, config.pt_min_gev);
    of(ObjectKind::Muon) + of(ObjectKind::Electron) >= config.leptons
}

/// The salt is that of no path of a Level-3 menu, so that this sample is none of theirs.
fn is_sampled(config: &FirstStepConfig, first: &dyn EventAccess) -> bool {
    let hash = mix64(first.trigger().0 ^ 0xFFFF << 48);
    config.keep_one_in > 0 && hash.is_multiple_of(u64::from(config.keep_one_in))
}

#[cfg(test)]
mod tests {
    use livetime_wire::event::{FragmentEntry, FragmentParts};
    use livetime_wire::slink::FragmentStatus;
    use livetime_wire::{L2Mask, SourceId, TriggerNumber};

    use super::*;
    use crate::filter::{AcceptAll, FilterOutput};

    /// A first step of one fragment without objects.
    struct Gathered {
        trigger: u64,
        mask: u128,
        status: FragmentStatus,
    }

    impl EventAccess for Gathered {
        fn trigger(&self) -> TriggerNumber {
            TriggerNumber(self.trigger)
        }

        fn mask(&self) -> L2Mask {
            L2Mask(self.mask)
        }

        fn is_incomplete(&self) -> bool {
            true
        }

        fn fragment_count(&self) -> usize {
            1
        }

        fn entry(&self, _index: usize) -> FragmentEntry {
            FragmentEntry {
                source: SourceId(1),
                words: 0,
                status: self.status,
                crc: 0,
            }
        }

        fn parts(&self, _index: usize) -> FragmentParts<'_> {
            FragmentParts::default()
        }
    }

    struct Never;

    impl EventFilter for Never {
        fn filter(&mut self, event: &dyn EventAccess) -> FilterOutput {
            AcceptAll.filter(event)
        }

        fn reasons(&self) -> &[&str] {
            &["never"]
        }

        fn wants_rest(&mut self, _first: &dyn EventAccess) -> bool {
            false
        }
    }

    fn gathered(trigger: u64, bit: u32) -> Gathered {
        Gathered {
            trigger,
            mask: 1 << bit,
            status: FragmentStatus::GOOD,
        }
    }

    #[test]
    fn bits_are_asked_for_and_a_sample_of_the_rest_is_fetched() {
        let mut selection = FirstStep::new(FirstStepConfig {
            l2: vec![3, 100],
            keep_one_in: 10,
            ..FirstStepConfig::default()
        });
        for trigger in 1..=1000 {
            let bit = [3, 100, 4, 5][trigger as usize % 4];
            selection.judge(&gathered(trigger, bit), Some(&mut AcceptAll));
        }
        let counts = *selection.counts();
        assert_eq!(counts.fetched, 500);
        assert_eq!(counts.fetched_as_sample + counts.released_by_selection, 500);
        assert!((30..70).contains(&counts.fetched_as_sample), "{counts:?}");
    }

    #[test]
    fn leptons_are_asked_for_and_what_is_damaged_is_fetched() {
        let mut selection = FirstStep::new(FirstStepConfig {
            leptons: 1,
            ..FirstStepConfig::default()
        });
        // A fragment that cannot be read counts as damaged by its status alone.
        let mut event = gathered(1, 0);
        assert_eq!(selection.judge(&event, None), FirstStepVerdict::Release);
        event.status = FragmentStatus(1);
        assert_eq!(selection.judge(&event, None), FirstStepVerdict::Fetch);
        assert_eq!(selection.counts().fetched_unreadable, 1);
    }

    #[test]
    fn the_filter_has_the_last_word_on_what_the_selection_accepts() {
        let mut selection = FirstStep::new(FirstStepConfig::default());
        let event = gathered(1, 0);
        let verdict = selection.judge(&event, Some(&mut Never));
        assert_eq!(verdict, FirstStepVerdict::Release);
        assert_eq!(selection.judge(&event, None), FirstStepVerdict::Fetch);
        let counts = selection.counts().entries().map(|(_, count)| count);
        assert_eq!(counts, [1, 0, 0, 0, 1]);
    }
}
