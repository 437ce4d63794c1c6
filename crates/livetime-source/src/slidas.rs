//! The data source SLIDAS with its switches: pattern, framing, delivery.
//!
//! [`Slidas`] gives the words of a link, control words included, when they are due: at a block rate
//! with the missed triggers made up for after an XOFF, as fast as the link takes them, or at the
//! push of a button. The words of a block are [`crate::pattern`]'s, when they are due
//! [`crate::pattern_source`]'s; the link is the caller's.

use livetime_wire::slink::{ControlWord, LineWord};
use livetime_wire::{Problem, RateHz, RunNs};

use crate::arrival::{ArrivalConfig, ArrivalKind};
use crate::pattern::{PatternConfig, PatternCounts, PatternGenerator};
use crate::pattern_source::{LinkFlow, PatternPoll, PatternSource, PatternSourceCounts};
use crate::problem_code::SLIDAS;

/// The begin word of the second set of control words.
pub const OTHER_BEGIN: ControlWord = ControlWord(0x1111_1110);
/// The end word of the second set of control words.
pub const OTHER_END: ControlWord = ControlWord(0xFFFF_FFF0);

/// What goes around the data of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlidasFraming {
    /// 0xB0F00000, data, 0xE0F00000.
    #[default]
    Framed,
    /// 0x11111110, data, 0xFFFFFFF0.
    OtherWords,
    /// Begin and end words without data.
    ControlOnly,
    /// Data without control words: one endless block at the receiver.
    DataOnly,
}

/// When words are sent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum SlidasDelivery {
    /// One word for each push of the button.
    SingleStep,
    /// One block for each push of the button, or pulse of the trigger input.
    Block,
    /// Block after block.
    #[default]
    Continuous,
    /// Blocks at a rate, 25 to 150 kHz; those missed under XOFF are sent afterwards.
    Rate(RateHz),
}

/// The switches of the card.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SlidasConfig {
    /// The data of a block.
    pub pattern: PatternConfig,
    /// What goes around them. Default 0xB0F00000 and 0xE0F00000.
    pub framing: SlidasFraming,
    /// When blocks are sent. Default one after the other.
    pub delivery: SlidasDelivery,
}

impl SlidasConfig {
    /// Every problem of the switches; `path` is their key path.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = self.pattern.validate(path);
        if let SlidasDelivery::Rate(rate) = self.delivery
            && !(25e3..=150e3).contains(&rate.0)
        {
            problems.push(Problem::new(
                SLIDAS,
                format!("{path}.rate"),
                rate,
                "25 kHz to 150 kHz",
                "the card has no other block rates; push the button, or let it run free",
            ));
        }
        problems
    }
}

/// A SLIDAS.
#[derive(Debug, Clone)]
pub struct Slidas {
    config: SlidasConfig,
    generator: PatternGenerator,
    source: PatternSource,
    /// After so many blocks it stops.
    blocks_max: u64,
    /// Pushes of the button that are not served yet.
    pushes: u64,
    block: Vec<u32>,
    /// Words of the current block that were given in single steps.
    stepped: usize,
    words: u64,
}

impl Slidas {
    /// A card at its first block, which stops after `blocks_max` blocks (`u64::MAX` for no end);
    /// `config` has been validated.
    pub fn new(config: &SlidasConfig, blocks_max: u64) -> Self {
        let arrival = match config.delivery {
            SlidasDelivery::Rate(rate) => ArrivalConfig {
                kind: ArrivalKind::FixedGap,
                rate,
            },
            _ => ArrivalConfig {
                kind: ArrivalKind::Unpaced,
                ..ArrivalConfig::default()
            },
        };
        Self {
            config: *config,
            generator: PatternGenerator::new(&config.pattern),
            source: PatternSource::new(&arrival, config.pattern.seed, blocks_max),
            blocks_max,
            pushes: 0,
            block: Vec::with_capacity(config.pattern.words),
            stepped: usize::MAX,
            words: 0,
        }
    }

    /// Pushes the button.
    pub fn push(&mut self) {
        self.pushes += 1;
    }

    /// The words that are due at `now` instead of what `out` holds: a block, in single steps one
    /// word; nothing unless [`PatternPoll::Send`] is returned.
    pub fn poll(&mut self, now: RunNs, flow: LinkFlow, out: &mut Vec<LineWord>) -> PatternPoll {
        out.clear();
        let by_button = matches!(
            self.config.delivery,
            SlidasDelivery::SingleStep | SlidasDelivery::Block
        );
        let is_new = self.config.delivery != SlidasDelivery::SingleStep
            || self.stepped >= self.block_words();
        // At the end nobody waits for the button any more.
        let is_over = is_new && self.source.counts().sent >= self.blocks_max;
        if by_button && self.pushes == 0 && !is_over {
            return PatternPoll::Wait {
                until: RunNs(u64::MAX),
            };
        }
        if is_new {
            let due = self.source.poll(now, flow);
            if due != PatternPoll::Send {
                return due;
            }
            self.generator.next_block(&mut self.block);
            self.stepped = 0;
        } else if flow == LinkFlow::Off {
            return PatternPoll::Blocked;
        }
        self.pushes -= u64::from(by_button);
        if self.config.delivery == SlidasDelivery::SingleStep {
            out.push(self.word(self.stepped));
            self.stepped += 1;
        } else {
            out.extend((0..self.block_words()).map(|index| self.word(index)));
        }
        self.words += out.len() as u64;
        PatternPoll::Send
    }

    /// Blocks made, and the bits flipped in them on purpose.
    pub fn pattern_counts(&self) -> PatternCounts {
        self.generator.counts()
    }

    /// Triggers, missed ones and blocks sent.
    pub fn source_counts(&self) -> PatternSourceCounts {
        self.source.counts()
    }

    /// Words given out, control words included.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Words of a block on the link.
    fn block_words(&self) -> usize {
        match self.config.framing {
            SlidasFraming::Framed | SlidasFraming::OtherWords => self.block.len() + 2,
            SlidasFraming::ControlOnly => 2,
            SlidasFraming::DataOnly => self.block.len(),
        }
    }

    fn word(&self, index: usize) -> LineWord {
        let (begin, end) = match self.config.framing {
            SlidasFraming::OtherWords => (OTHER_BEGIN, OTHER_END),
            SlidasFraming::DataOnly => return LineWord::Data(self.block[index]),
            _ => (ControlWord::BEGIN_FRAGMENT, ControlWord::END_FRAGMENT),
        };
        if index == 0 {
            LineWord::Control(begin)
        } else if index + 1 == self.block_words() {
            LineWord::Control(end)
        } else {
            LineWord::Data(self.block[index - 1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    fn config(framing: SlidasFraming, delivery: SlidasDelivery) -> SlidasConfig {
        SlidasConfig {
            pattern: PatternConfig {
                pattern: Pattern::WalkingOne,
                words: 3,
                ..PatternConfig::default()
            },
            framing,
            delivery,
        }
    }

    fn data(word: u32) -> LineWord {
        LineWord::Data(word)
    }

    fn control(word: u32) -> LineWord {
        LineWord::Control(ControlWord(word))
    }

    #[test]
    fn each_framing_is_what_it_says() {
        let (b, e) = (control(0xB0F0_0000), control(0xE0F0_0000));
        let (other_b, other_e) = (control(0x1111_1110), control(0xFFFF_FFF0));
        let [one, two, four] = [1, 2, 4].map(data);
        for (framing, expected) in [
            (SlidasFraming::Framed, vec![b, one, two, four, e]),
            (
                SlidasFraming::OtherWords,
                vec![other_b, one, two, four, other_e],
            ),
            (SlidasFraming::ControlOnly, vec![b, e]),
            (SlidasFraming::DataOnly, vec![one, two, four]),
        ] {
            let config = config(framing, SlidasDelivery::Continuous);
            assert_eq!(config.validate("slidas"), []);
            let (mut slidas, mut out) = (Slidas::new(&config, 2), Vec::new());
            for _ in 0..2 {
                let due = slidas.poll(RunNs(0), LinkFlow::On, &mut out);
                assert_eq!((due, &out), (PatternPoll::Send, &expected));
            }
            let due = slidas.poll(RunNs(0), LinkFlow::On, &mut out);
            assert_eq!((due, out.len()), (PatternPoll::Finished, 0));
            assert_eq!(slidas.words(), 2 * expected.len() as u64);
        }
    }

    #[test]
    fn the_button_gives_a_word_or_a_block_and_waits_under_xoff() {
        for (delivery, first) in [(SlidasDelivery::SingleStep, 1), (SlidasDelivery::Block, 5)] {
            let config = config(SlidasFraming::Framed, delivery);
            let (mut slidas, mut out) = (Slidas::new(&config, 10), Vec::new());
            let idle = slidas.poll(RunNs(0), LinkFlow::On, &mut out);
            assert!(matches!(idle, PatternPoll::Wait { .. }));
            slidas.push();
            slidas.poll(RunNs(0), LinkFlow::On, &mut out);
            assert_eq!(out.len(), first);
            slidas.push();
            let off = slidas.poll(RunNs(0), LinkFlow::Off, &mut out);
            assert_eq!((off, out.len()), (PatternPoll::Blocked, 0));
            let mut words = Vec::new();
            for _ in 0..9 {
                slidas.poll(RunNs(0), LinkFlow::On, &mut out);
                words.append(&mut out);
                slidas.push();
            }
            assert_eq!(words.len(), 9 * first);
            let begins = words.iter().filter(|word| **word == control(0xB0F0_0000));
            let expected = if first == 1 { 1 } else { 9 };
            assert_eq!(begins.count(), expected);
        }
    }

    #[test]
    fn the_button_is_not_waited_for_after_the_last_block() {
        for (delivery, pushes) in [(SlidasDelivery::SingleStep, 10), (SlidasDelivery::Block, 2)] {
            let config = config(SlidasFraming::Framed, delivery);
            let (mut slidas, mut out) = (Slidas::new(&config, 2), Vec::new());
            for _ in 0..pushes {
                let idle = slidas.poll(RunNs(0), LinkFlow::On, &mut out);
                assert!(matches!(idle, PatternPoll::Wait { .. }), "{idle:?}");
                slidas.push();
                let due = slidas.poll(RunNs(0), LinkFlow::On, &mut out);
                assert_eq!(due, PatternPoll::Send);
            }
            assert_eq!(slidas.words(), 10);
            for flow in [LinkFlow::On, LinkFlow::Off] {
                let due = slidas.poll(RunNs(0), flow, &mut out);
                assert_eq!((due, out.len()), (PatternPoll::Finished, 0));
            }
        }
        let none = config(SlidasFraming::Framed, SlidasDelivery::Block);
        let due = Slidas::new(&none, 0).poll(RunNs(0), LinkFlow::On, &mut Vec::new());
        assert_eq!(due, PatternPoll::Finished);
    }

    #[test]
    fn missed_triggers_are_made_up_for_so_that_the_mean_rate_is_kept() {
        let delivery = SlidasDelivery::Rate(RateHz(100e3));
        let config = config(SlidasFraming::Framed, delivery);
        let (mut slidas, mut out) = (Slidas::new(&config, u64::MAX), Vec::new());
        let mut sent = 0;
        // XOFF for the first 0.4 ms of each millisecond, for 20 ms.
        for step in 0..20_000u64 {
            let now = RunNs(step * 1000);
            let flow = if step % 1000 < 400 {
                LinkFlow::Off
            } else {
                LinkFlow::On
            };
            while slidas.poll(now, flow, &mut out) == PatternPoll::Send {
                assert_eq!(flow, LinkFlow::On);
                sent += 1;
            }
        }
        let counts = slidas.source_counts();
        assert_eq!((sent, counts.sent), (1999, 1999));
        assert!((780..=800).contains(&counts.missed), "{}", counts.missed);
        let slow = SlidasDelivery::Rate(RateHz(1e3));
        let problems = self::config(SlidasFraming::Framed, slow).validate("slidas");
        assert_eq!(problems[0].path, "slidas.rate");
    }
}
