//! `livetime source --pattern P`: test blocks through a link of any kind, checked word by word.
//!
//! The cheapest test from end to end: a pattern of the SLIDAS data source goes over an emulated
//! S-LINK, through card models, over UDP, TCP or a file, into pages and back out to the pattern's
//! checker. Generator, link and checker count apart, and the counts must agree. The links
//! themselves are in [`crate::verb::pattern_link`].

use std::process::ExitCode;

use livetime_source::pattern::{Pattern, PatternChecker, PatternConfig, PatternGenerator};
use serde_json::json;

use crate::console::{print_line, say};
use crate::exit;
use crate::verb::pattern_link::{self, LinkKind, PatternLink};

/// Options of the pattern mode.
#[derive(Debug, clap::Args)]
// They stand among those of a verb, whose group has this name.
#[group(skip)]
pub(crate) struct Options {
    /// Send a SLIDAS test pattern (1, 2, 3, 4, 8 or random) through a link instead
    #[arg(long, value_name = "PATTERN")]
    pub(crate) pattern: Option<Pattern>,
    /// The link that the pattern goes through (slink without it), or the fragments of a configuration
    #[arg(long, value_enum)]
    pub(crate) link: Option<LinkKind>,
    /// Blocks of the pattern
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        conflicts_with = "config"
    )]
    blocks: u64,
    /// Words of a block, without its control words
    #[arg(
        long,
        value_name = "N",
        default_value_t = 256,
        conflicts_with = "config"
    )]
    words: usize,
    /// Fraction of the blocks with one flipped bit, to see the checker at work
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.0,
        conflicts_with = "config"
    )]
    error_rate: f64,
}

/// Sends the blocks and checks them; exit code 0 when every block came as it was made.
pub(crate) fn run(options: &Options, pattern: Pattern, seed: Option<u64>) -> ExitCode {
    let config = PatternConfig {
        pattern,
        words: options.words,
        error_rate: options.error_rate,
        seed: seed.unwrap_or(1),
    };
    let problems = config.validate("pattern");
    if !problems.is_empty() {
        for problem in problems {
            say(problem);
        }
        return exit::PROBLEM;
    }
    let kind = options.link.unwrap_or(LinkKind::Slink);
    let mut link = match pattern_link::open(kind, options.words) {
        Ok(link) => link,
        Err(error) => {
            say(format_args!("error: the link cannot be made: {error}"));
            return exit::PROBLEM;
        }
    };
    let mut run = PatternRun {
        generator: PatternGenerator::new(&config),
        checker: PatternChecker::new(&config),
        first_error: None,
    };
    if let Err(error) = run.send(link.as_mut(), options.blocks) {
        say(format_args!("error: the link broke: {error}"));
        return exit::PROBLEM;
    }
    let (made, seen) = (run.generator.counts(), run.checker.counts());
    let document = json!({
        "schema": "livetime.pattern/1",
        "pattern": pattern.name(),
        "link": kind.name(),
        "blocks_made": made.blocks,
        "words_made": made.words,
        "errors_injected": made.errors_injected,
        "data_words_received": link.data_words(),
        "blocks_lost": link.blocks_lost(),
        "blocks_checked": seen.blocks,
        "words_checked": seen.words,
        "blocks_bad": seen.blocks_bad,
        "words_bad": seen.words_bad,
        "first_error": run.first_error,
    });
    let printed = exit::after_printing(print_line(document));
    let whole = seen.blocks == made.blocks && seen.words == made.words;
    if whole && seen.blocks_bad == 0 {
        printed
    } else {
        exit::PROBLEM
    }
}

/// From generator to checker.
struct PatternRun {
    generator: PatternGenerator,
    checker: PatternChecker,
    first_error: Option<String>,
}

impl PatternRun {
    fn send(&mut self, link: &mut dyn PatternLink, blocks: u64) -> Result<(), String> {
        let (generator, mut block) = (&mut self.generator, Vec::new());
        let (checker, first_error) = (&mut self.checker, &mut self.first_error);
        let mut check = |block: &[u32]| {
            if let Err(error) = checker.check(block) {
                first_error.get_or_insert_with(|| error.to_string());
            }
        };
        for _ in 0..blocks {
            generator.next_block(&mut block);
            link.send(&block, &mut check)?;
        }
        link.finish(&mut check)
    }
}
