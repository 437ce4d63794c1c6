//! Configuration of the receiving end of a link.
//!
//! Says what each number bounds and refuses combinations that could lose data or stall for ever;
//! the words that the program reads from a file are not its business. The machine that obeys it is
//! [`crate::receiver`].

use livetime_wire::Problem;
use livetime_wire::fragment::CrcCheck;
use livetime_wire::message::FRAGMENT_PAGES_MAX;
use livetime_wire::slink::ControlWord;

use crate::problem_code;

/// Data words and control words of the shortest block that Livetime sends: the Level-2 reply.
const SHORTEST_BLOCK_WORDS: u32 = 5 + 2;
/// Smallest page: 256 bytes, as on the FILAR.
const PAGE_WORDS_MIN: u32 = 64;
/// Largest page: 4 MiB less 8 bytes, as on the FILAR (the length field has 20 bits).
const PAGE_WORDS_MAX: u32 = (4 << 20) / 4 - 2;
/// Deepest FIFO: far above any card's.
const FIFO_DEPTH_MAX: u32 = 1024;

/// The receiving end of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Words of a page, 64 to 1 048 574, default 1024 (4 KiB). About twice the mean fragment: a
    /// fragment always takes whole pages, and a longer one takes up to 16.
    pub page_words: u32,
    /// Pages of this link, default 1024. Must hold every fragment from its arrival until its event
    /// is rejected or built; too few show as XOFF and dead time, never as loss.
    pub pages: u32,
    /// Depth of the request FIFO, 1 to 1024, default 15 (FILAR; 31 on later firmware).
    pub request_depth: u32,
    /// Depth of the acknowledge FIFO, 2 to 1024, default 15. One completion per page; a shallow one
    /// stops the line until the host polls.
    pub acknowledge_depth: u32,
    /// XOFF is raised when fewer pages than this are free or posted, default 64.
    pub xoff_below: u32,
    /// XOFF ends when more pages than this are free or posted, default 128. At least `xoff_below`;
    /// the distance is the hysteresis.
    pub xon_above: u32,
    /// Words that can still arrive after XOFF was raised, default 128: those on the line both ways,
    /// the source's pipeline, and its two words of grace.
    pub words_in_flight: u32,
    /// Data words of the longest fragment, default 16 pages. A longer one is marked and discarded
    /// to its end word.
    pub fragment_words_max: u32,
    /// Whether the CRC-32C of each fragment is checked, default on. Off trusts the link and saves
    /// one read of the payload.
    pub crc: CrcCheck,
    /// The begin word expected (user bits), default 0xB0F00000.
    pub begin: ControlWord,
    /// The end word expected (user bits), default 0xE0F00000.
    pub end: ControlWord,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            page_words: 1024,
            pages: 1024,
            request_depth: 15,
            acknowledge_depth: 15,
            xoff_below: 64,
            xon_above: 128,
            words_in_flight: 128,
            fragment_words_max: 1024 * FRAGMENT_PAGES_MAX as u32,
            crc: CrcCheck::On,
            begin: ControlWord::BEGIN_FRAGMENT,
            end: ControlWord::END_FRAGMENT,
        }
    }
}

impl LinkConfig {
    /// Pages that the longest fragment takes.
    pub fn fragment_pages(&self) -> u32 {
        self.fragment_words_max.div_ceil(self.page_words.max(1))
    }

    /// The smallest `xoff_below` with which the words in flight still find pages: they can be as
    /// many blocks as fit, each in a page of its own, and one page may be begun already.
    pub fn xoff_below_min(&self) -> u32 {
        1 + self.words_in_flight.div_ceil(SHORTEST_BLOCK_WORDS)
    }

    /// Every problem of the configuration; `path` is its key in the file, such as `link[3]`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = self.validate_sizes(path);
        problems.extend(self.validate_flow(path));
        if self.begin.matches(self.end) {
            problems.push(Problem::new(
                problem_code::CONTROL_WORDS,
                format!("{path}.end"),
                format!("{:#010x}", self.end.0),
                "a word that differs from `begin` in bits 31:4",
                "set `end` to 0xe0f00000 and `begin` to 0xb0f00000 unless the card sends others",
            ));
        }
        problems
    }

    fn validate_sizes(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(PAGE_WORDS_MIN..=PAGE_WORDS_MAX).contains(&self.page_words) {
            problems.push(Problem::new(
                problem_code::PAGE_SIZE,
                format!("{path}.page_words"),
                in_bytes(self.page_words),
                format!(
                    "{} to {}",
                    in_bytes(PAGE_WORDS_MIN),
                    in_bytes(PAGE_WORDS_MAX)
                ),
                "set the page to about twice the mean fragment; 4 KiB is the default",
            ));
        }
        for (key, depth, least) in [
            ("request_depth", self.request_depth, 1),
            ("acknowledge_depth", self.acknowledge_depth, 2),
        ] {
            if !(least..=FIFO_DEPTH_MAX).contains(&depth) {
                problems.push(Problem::new(
                    problem_code::FIFO_DEPTH,
                    format!("{path}.{key}"),
                    depth,
                    format!("{least} to {FIFO_DEPTH_MAX}"),
                    "set the depth of the card: 15 for the FILAR, 31 for later firmware",
                ));
            }
        }
        let words_max = self.page_words.saturating_mul(FRAGMENT_PAGES_MAX as u32);
        if !(1..=words_max).contains(&self.fragment_words_max) {
            problems.push(
                Problem::new(
                    problem_code::FRAGMENT_SIZE,
                    format!("{path}.fragment_words_max"),
                    in_bytes(self.fragment_words_max),
                    format!(
                        "1 word to {} ({FRAGMENT_PAGES_MAX} pages)",
                        in_bytes(words_max)
                    ),
                    "set a larger page or a smaller longest fragment",
                )
                .with_related(format!("{path}.page_words"), "words of a page"),
            );
        }
        problems
    }

    fn validate_flow(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let least = self.xoff_below_min();
        if self.xoff_below < least {
            problems.push(
                Problem::new(
                    problem_code::XOFF_TOO_LATE,
                    format!("{path}.xoff_below"),
                    self.xoff_below,
                    format!("at least {least}: 1 + words_in_flight / {SHORTEST_BLOCK_WORDS}"),
                    "raise `xoff_below`, or lower `words_in_flight` if the line is shorter",
                )
                .with_related(
                    format!("{path}.words_in_flight"),
                    "words that still arrive after XOFF",
                ),
            );
        }
        if self.xon_above < self.xoff_below {
            problems.push(
                Problem::new(
                    problem_code::XON_BELOW_XOFF,
                    format!("{path}.xon_above"),
                    self.xon_above,
                    format!("at least `xoff_below`, {}", self.xoff_below),
                    "set `xon_above` to about twice `xoff_below`",
                )
                .with_related(format!("{path}.xoff_below"), "XOFF is raised below this"),
            );
        }
        // With every other page back, those of one unfinished fragment are still held; XON must
        // come nevertheless, or that fragment never ends.
        let needed = self
            .xon_above
            .max(self.xoff_below)
            .saturating_add(self.fragment_pages())
            .saturating_add(1);
        if self.pages < needed {
            problems.push(
                Problem::new(
                    problem_code::PAGE_COUNT,
                    format!("{path}.pages"),
                    self.pages,
                    format!("at least {needed}: xon_above + pages of the longest fragment + 1"),
                    "give the link more pages, or lower `xon_above`",
                )
                .with_related(format!("{path}.xon_above"), "XOFF ends above this"),
            );
        }
        problems
    }
}

/// Words, and the bytes that a file names.
fn in_bytes(words: u32) -> String {
    format!("{words} words, {} B", 4 * u64::from(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut LinkConfig);

    #[test]
    fn defaults_are_valid() {
        assert_eq!(LinkConfig::default().validate("link[0]"), []);
    }

    #[test]
    fn each_bad_value_is_one_problem_with_its_key() {
        let changes: [(&str, &str, Change); 9] = [
            ("L0101", "link[2].page_words", |c| c.page_words = 1 << 20),
            ("L0102", "link[2].pages", |c| c.pages = 144),
            ("L0103", "link[2].request_depth", |c| c.request_depth = 0),
            ("L0103", "link[2].acknowledge_depth", |c| {
                c.acknowledge_depth = 1;
            }),
            ("L0104", "link[2].xoff_below", |c| c.words_in_flight = 1000),
            ("L0105", "link[2].xon_above", |c| c.xon_above = 63),
            ("L0106", "link[2].fragment_words_max", |c| {
                c.fragment_words_max = 0;
            }),
            ("L0106", "link[2].fragment_words_max", |c| {
                c.fragment_words_max = 16 * 1024 + 1;
            }),
            ("L0107", "link[2].end", |c| c.end = ControlWord(0xB0F0_0003)),
        ];
        for (code, path, change) in changes {
            let mut config = LinkConfig::default();
            change(&mut config);
            let problems = config.validate("link[2]");
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].code.code, code);
            assert_eq!(problems[0].path, path);
        }
    }

    #[test]
    fn all_problems_are_reported_at_once_and_absurd_values_do_not_overflow() {
        let config = LinkConfig {
            page_words: 0,
            pages: 0,
            request_depth: 0,
            xoff_below: u32::MAX,
            xon_above: 0,
            words_in_flight: u32::MAX,
            fragment_words_max: u32::MAX,
            ..LinkConfig::default()
        };
        assert_eq!(config.validate("link[0]").len(), 5);
    }
}
