//! Triggers that a readout unit has closed though nobody had released them.

use std::collections::VecDeque;

use livetime_wire::TriggerNumber;

/// Most that are known: more than builder units have in their hands at a time.
const MOST: usize = 4096;

/// The last triggers of which no fragment came and no release either. They look as if their events
/// were handed on, which nobody knows here. Takes memory when there are some, which is rare.
#[derive(Debug, Default)]
pub(super) struct ForgottenTriggers {
    triggers: VecDeque<TriggerNumber>,
}

impl ForgottenTriggers {
    pub(super) fn add(&mut self, trigger: TriggerNumber) {
        if self.triggers.len() == MOST {
            self.triggers.pop_front();
        }
        self.triggers.push_back(trigger);
    }

    /// A release has come after all.
    #[inline]
    pub(super) fn remove(&mut self, trigger: TriggerNumber) {
        if !self.triggers.is_empty() {
            self.triggers.retain(|known| *known != trigger);
        }
    }

    pub(super) fn has(&self, trigger: TriggerNumber) -> bool {
        self.triggers.contains(&trigger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known_until_they_are_released() {
        let mut forgotten = ForgottenTriggers::default();
        let triggers = 1..=MOST as u64 + 1;
        triggers.for_each(|trigger| forgotten.add(TriggerNumber(trigger)));
        assert!(!forgotten.has(TriggerNumber(1)));
        assert!(forgotten.has(TriggerNumber(2)));
        forgotten.remove(TriggerNumber(2));
        assert!(!forgotten.has(TriggerNumber(2)));
        assert_eq!(forgotten.triggers.len(), MOST - 1);
    }
}
