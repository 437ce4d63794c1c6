//! Spreads an event over the data links: a fragment per link, with its objects and a payload.
//!
//! Object `i` of an event travels over link `i mod links`, so that a muon pair can only be put
//! together from the right fragments. Sizes are log-normal per (seed, event, link), as detector
//! data are; the words behind the objects are a [`PayloadPattern`].
//!
//! Budget for a fragment of 2 KiB, all in cache: one pass to write the payload, one to compute its
//! CRC, about 100 ns for size and header; nothing is allocated once `out` has seen the longest.

use livetime_wire::decision::mix64;
use livetime_wire::fragment::{FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::object::{ObjectBlock, PhysicsObject};
use livetime_wire::{ByteSize, Problem, RunNumber, SourceId, TriggerNumber};

use crate::counter_random::{key, normal};
use crate::payload::PayloadPattern;
use crate::problem_code::FRAGMENT_SIZE;
use crate::source_event::{OBJECTS_MAX, SourceEvent};

/// Separates the size draws from other uses of the seed.
const PURPOSE: u64 = 0x5349_5A45;
/// Bytes of a word.
const WORD_BYTES: u64 = 4;

/// What the words behind the objects of a fragment are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PayloadKind {
    /// A [`PayloadPattern`] of each fragment's own, which can be checked anywhere.
    #[default]
    Pattern,
    /// Whatever the buffer that is written to holds: only header, objects, trailer and CRC-32C are
    /// written, as by electronics that keep their data in place. For measuring what comes after.
    Prefilled,
}

/// Sizes of fragments, and what they are filled with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FragmentConfig {
    /// Mean size of a fragment, header and trailer included. Default 2 KiB. Size pages so that most
    /// fragments fit into one.
    pub bytes_mean: ByteSize,
    /// Width of the logarithm of the size, 0 to 2; 0 makes all equal. Default 0.8326, for which
    /// the root mean square of the size is its mean, as assumed for the CMS event builder.
    pub log_sigma: f64,
    /// Longest fragment; longer ones are cut to it, which lowers the mean (by 0.5 % with the
    /// defaults). Default 16 KiB. It must fit into the pages that one fragment may take.
    pub bytes_max: ByteSize,
    /// What stands behind the objects. Default a pattern.
    pub payload: PayloadKind,
}

impl Default for FragmentConfig {
    fn default() -> Self {
        Self {
            bytes_mean: ByteSize(2048),
            log_sigma: 0.832_6,
            bytes_max: ByteSize(16 * 1024),
            payload: PayloadKind::Pattern,
        }
    }
}

impl FragmentConfig {
    /// Bytes that a fragment takes at least when an event of [`OBJECTS_MAX`] objects is spread over
    /// `links` links.
    pub fn bytes_min(links: usize) -> ByteSize {
        let objects = OBJECTS_MAX.div_ceil(links.max(1));
        ByteSize((OVERHEAD_WORDS + ObjectBlock::words(objects)) as u64 * WORD_BYTES)
    }

    /// Every problem of these sizes for a source with `links` data links; `path` is their key path.
    pub fn validate(&self, path: &str, links: usize) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut report = |key: &str, found: String, allowed: String, help: &str| {
            let path = format!("{path}.{key}");
            problems.push(Problem::new(FRAGMENT_SIZE, path, found, allowed, help));
        };
        // The largest header that an event can need must fit, or a link could not carry it.
        let (least, most) = (Self::bytes_min(links), ByteSize(64 * 1024 * 1024));
        if !(least..=most).contains(&self.bytes_max) {
            let allowed = format!("{} B to {most}", least.0);
            let help = "an event may have 256 objects, and those of one link must fit";
            report("bytes_max", format!("{:#}", self.bytes_max), allowed, help);
        }
        let smallest = ByteSize((OVERHEAD_WORDS + ObjectBlock::words(0)) as u64 * WORD_BYTES);
        if !(smallest..=self.bytes_max).contains(&self.bytes_mean) {
            let allowed = format!("{smallest} (an empty fragment) to bytes_max");
            let help = "lower the mean or raise bytes_max";
            report(
                "bytes_mean",
                format!("{:#}", self.bytes_mean),
                allowed,
                help,
            );
        }
        if !(0.0..=2.0).contains(&self.log_sigma) {
            let help = "0 makes all fragments equal, 0.8326 makes their RMS equal to the mean";
            report(
                "log_sigma",
                self.log_sigma.to_string(),
                "0 to 2".to_owned(),
                help,
            );
        }
        problems
    }
}

/// What a fragment says besides its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentTrigger {
    /// Number that the supervisor gave.
    pub trigger: TriggerNumber,
    /// Bunch crossing.
    pub bunch: u32,
    /// Trigger type given by Level 1.
    pub trigger_type: u32,
    /// Detector event type.
    pub event_type: u32,
}

/// What a writer has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FragmentCounts {
    /// Fragments written.
    pub fragments: u64,
    /// Their words, without the link's control words.
    pub words: u64,
}

/// Writes the fragments of events, one link at a time.
#[derive(Debug, Clone)]
pub struct FragmentWriter {
    seed: u64,
    run: RunNumber,
    sources: Vec<SourceId>,
    /// Mean of the logarithm of the size in words.
    log_mean: f64,
    log_sigma: f64,
    words_max: usize,
    payload: PayloadKind,
    size_key: u64,
    objects: Vec<PhysicsObject>,
    counts: FragmentCounts,
}

impl FragmentWriter {
    /// A writer for one link per source id; `config` has been validated.
    pub fn new(config: &FragmentConfig, seed: u64, run: RunNumber, sources: &[SourceId]) -> Self {
        let words_mean = config.bytes_mean.0 as f64 / WORD_BYTES as f64;
        Self {
            seed,
            run,
            sources: sources.to_vec(),
            // The mean of a log-normal is exp(mu + sigma^2 / 2).
            log_mean: words_mean.ln() - 0.5 * config.log_sigma * config.log_sigma,
            log_sigma: config.log_sigma,
            words_max: (config.bytes_max.0 / WORD_BYTES) as usize,
            payload: config.payload,
            size_key: key(seed, PURPOSE),
            objects: Vec::with_capacity(OBJECTS_MAX),
            counts: FragmentCounts::default(),
        }
    }

    /// Number of data links.
    pub fn links(&self) -> usize {
        self.sources.len()
    }

    /// Writes the fragment of `event`, number `index` of the source's sequence, for `link` over the
    /// contents of `out`.
    ///
    /// # Panics
    /// If `link` is not below [`FragmentWriter::links`], or the event has more than 10 000 objects
    /// for one link.
    pub fn write(
        &mut self,
        event: &SourceEvent,
        index: u64,
        link: usize,
        trigger: &FragmentTrigger,
        out: &mut Vec<u32>,
    ) {
        let source = self.sources[link];
        let numbered = event.objects.iter().enumerate().skip(link);
        self.objects.clear();
        self.objects.extend(
            numbered
                .step_by(self.sources.len())
                .map(|(i, object)| object.to_physics_object(i as u16)),
        );
        let words = self.words(index, link, self.objects.len());
        // Cutting and growing keeps what is there: every word that is not prefilled is written below.
        out.truncate(words);
        out.resize(words, 0);
        let header = FragmentHeader {
            source,
            run: self.run,
            trigger_low: trigger.trigger.low(),
            bunch: trigger.bunch,
            trigger_type: trigger.trigger_type,
            event_type: trigger.event_type,
        };
        let block = ObjectBlock {
            source_run: event.run,
            source_event: event.number,
            event_objects: event.objects.len() as u32,
        };
        let payload = match self.payload {
            PayloadKind::Pattern => Some(self.pattern(index, link)),
            PayloadKind::Prefilled => None,
        };
        header.emit(0, words - OVERHEAD_WORDS, out, |data| {
            let block_words = block.emit(self.objects.iter(), data);
            if let Some(pattern) = payload {
                pattern.fill(&mut data[block_words..]);
            }
        });
        self.counts.fragments += 1;
        self.counts.words += words as u64;
    }

    /// The payload that fragment (`index`, `link`) has, unless it is prefilled.
    pub fn pattern(&self, index: u64, link: usize) -> PayloadPattern {
        PayloadPattern::new(self.seed, index, link)
    }

    /// What has been done so far.
    pub fn counts(&self) -> FragmentCounts {
        self.counts
    }

    /// Words of a fragment: log-normal, not more than the limit, not less than its objects take.
    fn words(&self, index: u64, link: usize, objects: usize) -> usize {
        let fragment = mix64(self.size_key ^ mix64(index)).wrapping_add(link as u64);
        let deviate = normal(mix64(fragment), mix64(fragment ^ (1 << 63)));
        let drawn = (self.log_mean + self.log_sigma * deviate).exp().round();
        let least = OVERHEAD_WORDS + ObjectBlock::words(objects);
        // `as` saturates.
        (drawn as usize).min(self.words_max).max(least)
    }
}
