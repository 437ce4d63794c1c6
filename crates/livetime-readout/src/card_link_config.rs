//! The kinds of link cards: how fast they are, how deep, and how they report errors.
//!
//! Rates are costs in hundredths of a 40 MHz user clock, so that a card with a slower line than
//! the user's clock is told by two numbers. The cards themselves are in [`crate::card_link`].

use livetime_wire::Problem;

use crate::problem_code;
use crate::self_test::LinkWidth;

/// Deepest buffer of a card, far above any.
const BUFFER_WORDS_MAX: u32 = 1 << 16;
/// Longest line: 100 000 clocks are 2.5 ms, or 500 km of fibre.
const LATENCY_CLOCKS_MAX: u32 = 100_000;

/// When LDERR# is asserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorReporting {
    /// With the control word after a bad block, and with a bad control word.
    #[default]
    Block,
    /// In addition with each bad data word.
    Word,
}

/// Both cards of a link and the line between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardLinkConfig {
    /// Words that the source card buffers, 1 to 65 536, default 64 (HOLA).
    pub buffer_words: u32,
    /// LFF# is asserted when fewer words than this fit, default 16 (HOLA). Must exceed the words of
    /// grace, or a word is overrun.
    pub full_below: u32,
    /// What a data word costs on the line, in hundredths of a clock, default 100: 160 MB/s.
    pub data_cost_x100: u32,
    /// What a control word costs on the line, in hundredths of a clock, default 128 (125 MB/s).
    pub control_cost_x100: u32,
    /// Clocks from the source card to the destination card, 1 to 100 000, default 20.
    pub latency_clocks: u32,
    /// Period of the return words, in hundredths of a clock, at least 100, default 128.
    pub return_period_x100: u32,
    /// Clocks of a return word on its way, 0 to 100 000, default 20.
    pub return_latency_clocks: u32,
    /// Clocks from a reset, or from plugging in, until the link is up; default 1000. HOLA: 25 ms,
    /// which are 1 000 000.
    pub start_up_clocks: u32,
    /// How errors are reported.
    pub reporting: ErrorReporting,
    /// Data bits, default 32: the self-test of narrower links has shorter cycles.
    pub width: LinkWidth,
}

impl Default for CardLinkConfig {
    /// A HOLA link with a short start.
    fn default() -> Self {
        Self {
            start_up_clocks: 1000,
            ..Self::HOLA
        }
    }
}

impl CardLinkConfig {
    /// HOLA, optical, 2.0 Gb/s: 160 MB/s of data.
    pub const HOLA: Self = Self {
        buffer_words: 64,
        full_below: 16,
        data_cost_x100: 100,
        control_cost_x100: 128,
        latency_clocks: 20,
        return_period_x100: 128,
        return_latency_clocks: 20,
        start_up_clocks: 1_000_000,
        reporting: ErrorReporting::Block,
        width: LinkWidth::Bits32,
    };
    /// ODIN with one serialiser at 32 MHz: 128 MB/s of data, half of it for control words, return
    /// lines at 8 MHz. Buffer and latency as HOLA's, for want of published ones.
    pub const ODIN_SINGLE: Self = Self {
        data_cost_x100: 125,
        control_cost_x100: 250,
        return_period_x100: 500,
        ..Self::HOLA
    };
    /// ODIN with two serialisers: 160 MB/s of data, half of it for control words, return lines at
    /// 5 MHz. Buffer and latency as HOLA's, for want of published ones.
    pub const ODIN_DOUBLE: Self = Self {
        data_cost_x100: 100,
        control_cost_x100: 200,
        return_period_x100: 800,
        ..Self::HOLA
    };

    /// Words that can still arrive after the receiving card was asked for XOFF: those sent until
    /// the return word comes, and those on the line. What is in the source card's buffer waits
    /// there.
    pub fn words_in_flight(&self) -> u32 {
        let period = self.return_period_x100.div_ceil(100);
        self.latency_clocks + self.return_latency_clocks + period + 1
    }

    /// Every problem of the configuration; `path` is its key in the file.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (key, value, least, most) in [
            ("buffer_words", self.buffer_words, 1, BUFFER_WORDS_MAX),
            ("full_below", self.full_below, 3, self.buffer_words),
            ("data_cost_x100", self.data_cost_x100, 100, 10_000),
            ("control_cost_x100", self.control_cost_x100, 100, 10_000),
            ("latency_clocks", self.latency_clocks, 1, LATENCY_CLOCKS_MAX),
            ("return_period_x100", self.return_period_x100, 100, 3_200),
            (
                "return_latency_clocks",
                self.return_latency_clocks,
                0,
                LATENCY_CLOCKS_MAX,
            ),
            ("start_up_clocks", self.start_up_clocks, 1, u32::MAX),
        ] {
            if !(least..=most).contains(&value) {
                problems.push(Problem::new(
                    problem_code::CARD_LINK,
                    format!("{path}.{key}"),
                    value,
                    format!("{least} to {most}"),
                    "take the figures of the card's data sheet; the defaults are those of HOLA",
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_and_bad_values_are_named() {
        for preset in [
            CardLinkConfig::HOLA,
            CardLinkConfig::ODIN_SINGLE,
            CardLinkConfig::ODIN_DOUBLE,
            CardLinkConfig::default(),
        ] {
            assert_eq!(preset.validate("link"), []);
        }
        let bad = CardLinkConfig {
            full_below: 2,
            return_period_x100: 99,
            ..CardLinkConfig::default()
        };
        let paths: Vec<String> = bad.validate("card").into_iter().map(|p| p.path).collect();
        assert_eq!(paths, ["card.full_below", "card.return_period_x100"]);
    }
}
