//! SLIDAD: a drain at the end of a link, with back-pressure as programmed.
//!
//! [`Slidad`] takes words and throws them away, counting; it raises XOFF by a pattern, so that what
//! a source does about it can be seen. It checks nothing: the checkers of test patterns are in
//! `livetime-source`.

use livetime_wire::slink::LineWord;
use livetime_wire::{DurationNs, Problem, RunNs};

use crate::line::{FlowControl, LineSlice};
use crate::problem_code;

/// When a drain asks for XOFF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DrainPattern {
    /// Never.
    #[default]
    Open,
    /// Always.
    Closed,
    /// For `off_ns` after each `words` words.
    AfterWords {
        /// Words until XOFF, at least 1.
        words: u64,
        /// Length of the XOFF, in nanoseconds.
        off_ns: u64,
    },
    /// The first `off_ns` of each `period_ns`.
    Periodic {
        /// Length of the XOFF, in nanoseconds.
        off_ns: u64,
        /// The period, in nanoseconds, at least 1.
        period_ns: u64,
    },
}

impl DrainPattern {
    /// Every problem of the pattern; `path` is its key in the file.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let (key, value) = match self {
            Self::AfterWords { words: 0, .. } => ("words", 0),
            Self::Periodic { period_ns: 0, .. } => ("period_ns", 0),
            _ => return Vec::new(),
        };
        vec![Problem::new(
            problem_code::CARD,
            format!("{path}.{key}"),
            value,
            "at least 1",
            "give the drain a cycle, or choose the pattern that is always open",
        )]
    }
}

/// A drain.
#[derive(Debug, Clone)]
pub struct Slidad {
    pattern: DrainPattern,
    words_in_cycle: u64,
    off_until: RunNs,
    data_words: u64,
    control_words: u64,
    words_in_xoff: u64,
    blocks: u64,
}

impl Slidad {
    /// A drain that has taken nothing.
    pub fn new(pattern: DrainPattern) -> Self {
        Self {
            pattern,
            words_in_cycle: 0,
            off_until: RunNs(0),
            data_words: 0,
            control_words: 0,
            words_in_xoff: 0,
            blocks: 0,
        }
    }

    /// Takes words, all of them: a drain has no memory to fill.
    pub fn handle_line(&mut self, now: RunNs, line: LineSlice<'_>) {
        let words = line.words() as u64;
        if self.poll_flow(now) == FlowControl::Xoff {
            self.words_in_xoff += words;
        }
        match line {
            LineSlice::Control(_) => {
                self.control_words += 1;
                // Every second control word ends a block.
                self.blocks = self.control_words / 2;
            }
            LineSlice::Data(_) => self.data_words += words,
        }
        if let DrainPattern::AfterWords {
            words: cycle,
            off_ns,
        } = self.pattern
        {
            self.words_in_cycle += words;
            if self.words_in_cycle >= cycle {
                self.words_in_cycle %= cycle;
                self.off_until = now.after(DurationNs(off_ns));
            }
        }
    }

    /// As [`Slidad::handle_line`], for one word.
    pub fn handle_word(&mut self, now: RunNs, word: LineWord) {
        match word {
            LineWord::Control(word) => self.handle_line(now, LineSlice::Control(word)),
            LineWord::Data(word) => self.handle_line(now, LineSlice::Data(&[word])),
        }
    }

    /// What it asks of the source.
    pub fn poll_flow(&self, now: RunNs) -> FlowControl {
        let is_off = match self.pattern {
            DrainPattern::Open => false,
            DrainPattern::Closed => true,
            DrainPattern::AfterWords { .. } => now.0 < self.off_until.0,
            DrainPattern::Periodic { off_ns, period_ns } => now.0 % period_ns < off_ns,
        };
        match is_off {
            true => FlowControl::Xoff,
            false => FlowControl::Xon,
        }
    }

    /// Data words taken.
    pub fn data_words(&self) -> u64 {
        self.data_words
    }

    /// Pairs of control words taken.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Words that came while it asked for XOFF: those under way.
    pub fn words_in_xoff(&self) -> u64 {
        self.words_in_xoff
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card_link::{CardLink, DestinationPins, SourcePins};
    use crate::return_channel::ReturnWord;
    use crate::{Begun, CardLinkConfig, LineFaultPlan, SlinkSource, SourceLinkConfig};

    /// Sends fragments of 98 words through cards into the drain for a while; returns data words,
    /// words under XOFF and words in flight.
    fn drained(pattern: DrainPattern, clocks: u64) -> (u64, u64, u64) {
        assert_eq!(pattern.validate("drain"), []);
        let config = CardLinkConfig::HOLA;
        let mut cards = CardLink::new(config, LineFaultPlan::none());
        let mut source = SlinkSource::new(SourceLinkConfig::default());
        let (mut drain, fragment) = (Slidad::new(pattern), [7; 98]);
        for clock in 0..clocks {
            let now = RunNs(clock * 25);
            if source.is_idle() {
                assert_eq!(source.begin(98), Begun::Sending);
            }
            let word = source.poll_line(&fragment, 1).and_then(|s| s.iter().next());
            source.handle_sent(usize::from(word.is_some()));
            let near = SourcePins {
                word,
                ..SourcePins::IDLE
            };
            let back = ReturnWord {
                flow: drain.poll_flow(now),
                lines: 0,
            };
            let far = DestinationPins {
                back,
                ..DestinationPins::IDLE
            };
            let (near, far) = cards.clock(near, far);
            source.handle_flow(now, near.full);
            if let Some(word) = far.word {
                drain.handle_word(now, word);
            }
        }
        assert_eq!(cards.counters().overruns, 0);
        let flight = u64::from(config.words_in_flight());
        (drain.data_words(), drain.words_in_xoff(), flight)
    }

    #[test]
    fn back_pressure_takes_the_share_that_was_programmed() {
        let (open, _, _) = drained(DrainPattern::Open, 40_000);
        assert!((38_900..39_000).contains(&open), "{open}");
        let half = DrainPattern::Periodic {
            off_ns: 50_000,
            period_ns: 100_000,
        };
        let (words, _, _) = drained(half, 40_000);
        assert!((18_500..21_500).contains(&words), "{words}");
        let (words, in_xoff, flight) = drained(DrainPattern::Closed, 4_000);
        assert!(words + 2 >= in_xoff && in_xoff <= flight, "{in_xoff}");
        let after = DrainPattern::AfterWords {
            words: 1000,
            off_ns: 25_000,
        };
        let (words, _, _) = drained(after, 40_000);
        assert!((19_000..21_500).contains(&words), "{words}");
    }

    #[test]
    fn cycles_of_nothing_are_refused() {
        let periodic = DrainPattern::Periodic {
            off_ns: 1,
            period_ns: 0,
        };
        assert_eq!(periodic.validate("drain")[0].path, "drain.period_ns");
    }

    #[test]
    fn an_xoff_beyond_the_end_of_time_does_not_end() {
        let mut drain = Slidad::new(DrainPattern::AfterWords {
            words: 1,
            off_ns: u64::MAX,
        });
        assert_eq!(drain.poll_flow(RunNs(7)), FlowControl::Xon);
        drain.handle_word(RunNs(7), LineWord::Data(1));
        assert_eq!(drain.poll_flow(RunNs(8)), FlowControl::Xoff);
        assert_eq!(drain.poll_flow(RunNs(1 << 60)), FlowControl::Xoff);
    }
}
