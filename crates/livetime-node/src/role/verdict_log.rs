//! What a filter unit has said about its last events, by builder unit.
//!
//! Over a stream that is made again comes every event that its builder unit has no answer about.
//! Answers that were lost with the old stream are the last ones: a builder unit that has read one has
//! read all before it, but for those that were told together with it. So a log as long as its credits
//! and one group says which of those that come again are done with, and what the answer was. What is still in work, the filter unit knows. The same log says which
//! events of a builder unit that is gone were rejected, so that nobody builds them again.

use std::collections::VecDeque;

use livetime_trigger::FilterOutput;
use livetime_wire::TriggerNumber;
use livetime_wire::message::{SIZES_MAX, TRIGGERS_MAX};

/// Most events that are told together: a message of each kind.
const GROUP_MAX: usize = TRIGGERS_MAX + SIZES_MAX;

/// What was said about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Which trigger.
    pub trigger: TriggerNumber,
    /// Whether it is accepted, why, and for which streams.
    pub output: FilterOutput,
    /// Whether the filter has said so about the whole event; else its reason means nothing.
    pub is_judged: bool,
    /// How many fragments it has.
    pub fragments: u16,
    /// Whether some are missing that should be there.
    pub is_incomplete: bool,
}

/// The last verdicts to one builder unit.
#[derive(Debug, Clone)]
struct Said {
    verdicts: VecDeque<Verdict>,
    /// Of the events that come next, how many may have come before.
    may_repeat: usize,
}

/// The last verdicts to each builder unit.
#[derive(Debug, Clone)]
pub struct VerdictLog {
    builders: Vec<Said>,
    window: usize,
}

impl VerdictLog {
    /// For `builders` builder units, of which each has at most `credits` events.
    pub fn new(builders: usize, credits: usize) -> Self {
        let window = credits + GROUP_MAX;
        let said = || Said {
            verdicts: VecDeque::with_capacity(window),
            may_repeat: 0,
        };
        Self {
            builders: std::iter::repeat_with(said).take(builders).collect(),
            window,
        }
    }

    /// An event is judged.
    #[inline]
    pub fn note(&mut self, builder: usize, verdict: Verdict) {
        let Some(said) = self.builders.get_mut(builder) else {
            return;
        };
        if said.verdicts.len() >= self.window {
            said.verdicts.pop_front();
        }
        said.verdicts.push_back(verdict);
    }

    /// What was said about an event that has come once more: from here on it is the last one.
    pub fn say_again(&mut self, builder: usize, trigger: TriggerNumber) -> Option<Verdict> {
        let said = self.builders.get_mut(builder)?;
        let mut verdicts = said.verdicts.iter();
        let nth = verdicts.position(|verdict| verdict.trigger == trigger)?;
        let verdict = said.verdicts.remove(nth)?;
        said.verdicts.push_back(verdict);
        Some(verdict)
    }

    /// The stream from a builder unit is made again.
    pub fn handle_stream_back(&mut self, builder: usize) {
        if let Some(said) = self.builders.get_mut(builder) {
            said.may_repeat = self.window;
        }
    }

    /// Whether the event that comes next may have come before; to be asked once for each.
    #[inline]
    pub fn may_repeat(&mut self, builder: usize) -> bool {
        match self.builders.get_mut(builder) {
            Some(said) if said.may_repeat > 0 => {
                said.may_repeat -= 1;
                true
            }
            _ => false,
        }
    }

    /// Whether an event is among those judged last.
    pub fn has(&self, builder: usize, trigger: TriggerNumber) -> bool {
        let mut said = self.builders.get(builder).into_iter();
        said.any(|said| said.verdicts.iter().any(|known| known.trigger == trigger))
    }

    /// A builder unit is gone: everything that it was told, which is forgotten here.
    pub fn take(&mut self, builder: usize) -> Vec<Verdict> {
        let said = self.builders.get_mut(builder);
        said.map_or_else(Vec::new, |said| said.verdicts.drain(..).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(trigger: u64) -> Verdict {
        Verdict {
            trigger: TriggerNumber(trigger),
            output: FilterOutput {
                accept: trigger.is_multiple_of(2),
                reason: 1,
                streams: 1,
            },
            is_judged: true,
            fragments: 8,
            is_incomplete: false,
        }
    }

    #[test]
    fn the_last_verdicts_to_each_builder_unit_are_known() {
        let mut log = VerdictLog::new(2, 3);
        // Those before 3 are forgotten.
        let last = 2 + 3 + GROUP_MAX as u64;
        (1..=last).for_each(|trigger| log.note(1, verdict(trigger)));
        let known = |log: &VerdictLog, builder| -> Vec<u64> {
            (0..last + 3)
                .filter(|trigger| log.has(builder, TriggerNumber(*trigger)))
                .collect()
        };
        let of = |range: std::ops::RangeInclusive<u64>| range.collect::<Vec<u64>>();
        assert_eq!((known(&log, 0), known(&log, 1)), (vec![], of(3..=last)));
        assert_eq!(log.say_again(1, TriggerNumber(3)), Some(verdict(3)));
        assert_eq!(log.say_again(1, TriggerNumber(1)), None, "forgotten");
        assert_eq!(known(&log, 1), of(3..=last), "none is forgotten for it");
        log.note(1, verdict(last + 1));
        let mut left = vec![3];
        left.extend(5..=last + 1);
        assert_eq!(known(&log, 1), left);
        assert!(!log.may_repeat(1), "no stream was made again");
        log.handle_stream_back(1);
        let repeated = (0..1000).filter(|_| log.may_repeat(1)).count();
        assert_eq!(repeated, 3 + GROUP_MAX, "as many as it may hold");
        assert!(!log.may_repeat(0));
        assert_eq!(log.take(1).len(), 3 + GROUP_MAX);
        assert_eq!(known(&log, 1), Vec::<u64>::new());
    }
}
