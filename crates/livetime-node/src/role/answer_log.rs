//! What a filter unit has answered to its builder units, for streams that are made again.
//!
//! Over a new stream comes every event that its builder unit has no answer about. Answers that were
//! lost with the old stream are about as many events as the window has, and they are the last ones:
//! a builder unit that has read one has read all before it. So a log as long as the window says
//! which of those that come again are done with. What is still in work, the filter unit knows.

use std::collections::VecDeque;

use livetime_wire::TriggerNumber;

/// The last answers to one builder unit.
#[derive(Debug, Clone)]
struct Answers {
    triggers: VecDeque<TriggerNumber>,
    /// Of the events that come next, how many may have come before.
    may_repeat: usize,
}

/// The last answers to each builder unit.
#[derive(Debug, Clone)]
pub struct AnswerLog {
    builders: Vec<Answers>,
    window: usize,
}

impl AnswerLog {
    /// For `builders` builder units, of which each has at most `window` events without an answer.
    pub fn new(builders: usize, window: usize) -> Self {
        let answers = || Answers {
            triggers: VecDeque::with_capacity(window),
            may_repeat: 0,
        };
        Self {
            builders: std::iter::repeat_with(answers).take(builders).collect(),
            window,
        }
    }

    /// An event is answered.
    #[inline]
    pub fn note(&mut self, builder: usize, trigger: TriggerNumber) {
        let Some(answers) = self.builders.get_mut(builder) else {
            return;
        };
        if answers.triggers.len() >= self.window {
            answers.triggers.pop_front();
        }
        answers.triggers.push_back(trigger);
    }

    /// An event that is in the log is answered once more: from here on it is the last one.
    pub fn note_again(&mut self, builder: usize, trigger: TriggerNumber) {
        if let Some(answers) = self.builders.get_mut(builder) {
            answers.triggers.retain(|known| *known != trigger);
        }
        self.note(builder, trigger);
    }

    /// The stream from a builder unit is made again.
    pub fn handle_stream_back(&mut self, builder: usize) {
        if let Some(answers) = self.builders.get_mut(builder) {
            answers.may_repeat = self.window;
        }
    }

    /// Whether the event that comes next may have come before; to be asked once for each.
    #[inline]
    pub fn may_repeat(&mut self, builder: usize) -> bool {
        match self.builders.get_mut(builder) {
            Some(answers) if answers.may_repeat > 0 => {
                answers.may_repeat -= 1;
                true
            }
            _ => false,
        }
    }

    /// Whether an event is among those answered last.
    pub fn has(&self, builder: usize, trigger: TriggerNumber) -> bool {
        let answers = self.builders.get(builder);
        answers.is_some_and(|answers| answers.triggers.contains(&trigger))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answers_to_each_builder_unit_are_known() {
        let mut log = AnswerLog::new(2, 3);
        (1..=5).for_each(|trigger| log.note(1, TriggerNumber(trigger)));
        let known = |log: &AnswerLog, builder| -> Vec<u64> {
            (0..9)
                .filter(|trigger| log.has(builder, TriggerNumber(*trigger)))
                .collect()
        };
        assert_eq!((known(&log, 0), known(&log, 1)), (vec![], vec![3, 4, 5]));
        log.note_again(1, TriggerNumber(3));
        assert_eq!(known(&log, 1), [3, 4, 5], "none is forgotten for it");
        log.note(1, TriggerNumber(6));
        assert_eq!(known(&log, 1), [3, 5, 6]);
        assert!(!log.may_repeat(1), "no stream was made again");
        log.handle_stream_back(1);
        let repeated = (0..9).filter(|_| log.may_repeat(1)).count();
        assert_eq!(repeated, 3, "a window of them");
        assert!(!log.may_repeat(0));
    }
}
