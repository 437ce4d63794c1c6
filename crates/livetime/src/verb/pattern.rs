//! `livetime source --pattern P`: test blocks through one emulated link, checked word by word.
//!
//! The cheapest test from end to end: a pattern of the SLIDAS data source goes through both ends
//! of an S-LINK, into pages and back out to the pattern's checker. Generator, link and checker
//! count apart, and the counts must agree.

use std::process::ExitCode;

use livetime_readout::{
    Begun, HeapPages, LinkConfig, PageLink, PageRead, Receiver, SlinkSource, SourceLinkConfig,
};
use livetime_source::pattern::{Pattern, PatternChecker, PatternConfig, PatternGenerator};
use livetime_wire::RunNs;
use serde_json::json;

use crate::console::{print_line, say};
use crate::exit;

/// Options of the pattern mode.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Send a SLIDAS test pattern (1, 2, 3, 4, 8 or random) through a link instead
    #[arg(long, value_name = "PATTERN")]
    pub(crate) pattern: Option<Pattern>,
    /// Blocks of the pattern
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    blocks: u64,
    /// Words of a block, without its control words
    #[arg(long, value_name = "N", default_value_t = 256)]
    words: usize,
    /// Fraction of the blocks with one flipped bit, to see the checker at work
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
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
    let mut link = PatternLink::new(&config);
    for _ in 0..options.blocks {
        link.send_block();
    }
    let (made, seen) = (link.generator.counts(), link.checker.counts());
    let received = link.receiver.destination_counters();
    let document = json!({
        "schema": "livetime.pattern/1",
        "pattern": pattern.name(),
        "blocks_made": made.blocks,
        "words_made": made.words,
        "errors_injected": made.errors_injected,
        "data_words_received": received.data_words,
        "blocks_checked": seen.blocks,
        "words_checked": seen.words,
        "blocks_bad": seen.blocks_bad,
        "words_bad": seen.words_bad,
        "first_error": link.first_error,
    });
    let printed = exit::after_printing(print_line(document));
    let whole = seen.blocks == made.blocks && seen.words == made.words;
    if whole && seen.blocks_bad == 0 {
        printed
    } else {
        exit::PROBLEM
    }
}

/// A link from generator to checker.
struct PatternLink {
    generator: PatternGenerator,
    source: SlinkSource,
    receiver: Receiver,
    pages: HeapPages,
    checker: PatternChecker,
    block: Vec<u32>,
    received: Vec<u32>,
    first_error: Option<String>,
}

impl PatternLink {
    fn new(config: &PatternConfig) -> Self {
        let defaults = LinkConfig::default();
        let page_words = (config.words as u32)
            .clamp(64, 1 << 18)
            .next_multiple_of(16);
        let link = LinkConfig {
            page_words,
            pages: 256,
            fragment_words_max: page_words * 16,
            ..defaults
        };
        Self {
            generator: PatternGenerator::new(config),
            source: SlinkSource::new(SourceLinkConfig::default()),
            pages: HeapPages::new(0, link.pages, link.page_words),
            receiver: Receiver::new(link, 0),
            checker: PatternChecker::new(config),
            block: Vec::with_capacity(config.words),
            received: Vec::with_capacity(config.words),
            first_error: None,
        }
    }

    fn send_block(&mut self) {
        let now = RunNs(0);
        self.generator.next_block(&mut self.block);
        let begun = self.source.begin(self.block.len());
        assert!(begun == Begun::Sending, "the link is up and idle");
        while let Some(slice) = self.source.poll_line(&self.block, usize::MAX) {
            let taken = self.receiver.handle_line(now, slice, &mut self.pages);
            self.source.handle_sent(taken);
            if taken == 0 {
                self.take_pages();
            }
        }
        self.take_pages();
    }

    /// Takes filled pages out, and checks a block when its last page is there.
    fn take_pages(&mut self) {
        while let Some(completed) = self.receiver.poll() {
            let words = &self.pages.words(completed.page)[..completed.len_words as usize];
            self.received.extend_from_slice(words);
            let recycled = self.receiver.recycle(completed.page);
            debug_assert!(recycled.is_ok(), "the page was just handed out");
            if completed.end.is_some() {
                if let Err(error) = self.checker.check(&self.received) {
                    self.first_error.get_or_insert_with(|| error.to_string());
                }
                self.received.clear();
            }
        }
    }
}
