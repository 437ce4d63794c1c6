//! `livetime source CONFIG --link KIND` and `--frames FOLDER`: fragments of a source over links.
//!
//! The fragments of a configuration's events go over one link of the kind for each data link, and
//! are compared with what was sent, by their trigger numbers; or they are written to files, one for
//! each data link, which a run plays again with `kind = "file"`. The links themselves are in
//! [`crate::verb::pattern_link`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use livetime_node::ChainConfig;
use livetime_node::link::{StreamSource, frames_file};
use livetime_source::{
    EventGenerator, FragmentTrigger, FragmentWriter, PhysicsGenerator, SourceEvent,
};
use livetime_wire::TriggerNumber;
use livetime_wire::decision::mix64;
use livetime_wire::fragment::FragmentView;
use serde_json::{Value, json};

use crate::output_place::remove_unfinished;
use crate::verb::pattern_link::{self, LinkKind, PatternLink};

/// Trigger type of the fragments, as of a run's own triggers.
const TRIGGER_PHYSICS: u32 = 1;

/// Fragments of a source's events, one data link after the other.
struct Fragments {
    generator: EventGenerator,
    writer: FragmentWriter,
    event: SourceEvent,
    words: Vec<u32>,
}

impl Fragments {
    fn new(chain: &ChainConfig) -> Self {
        let (source, seed) = (&chain.source, chain.source.seed);
        let sources = chain.detector_sources();
        Self {
            generator: match &chain.recorded {
                Some(recorded) => EventGenerator::Recorded(recorded.clone()),
                None => {
                    let physics = PhysicsGenerator::new(source.physics.clone(), seed);
                    EventGenerator::Physics(Box::new(physics))
                }
            },
            writer: FragmentWriter::new(&source.fragment, seed, chain.run, &sources),
            event: SourceEvent::new(),
            words: Vec::new(),
        }
    }

    /// Makes the fragments of event `index`, and gives each with its link.
    fn event<E>(
        &mut self,
        index: u64,
        mut take: impl FnMut(usize, TriggerNumber, &[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.generator.event(index, &mut self.event);
        let trigger = FragmentTrigger {
            trigger: TriggerNumber(index + 1),
            bunch: (index * 17 % 3564) as u32,
            trigger_type: TRIGGER_PHYSICS,
            event_type: 0,
        };
        for link in 0..self.writer.links() {
            let words = &mut self.words;
            self.writer.write(&self.event, index, link, &trigger, words);
            take(link, trigger.trigger, words)?;
        }
        Ok(())
    }
}

/// Writes the fragments of `events` events to a file of frames for each data link.
///
/// # Errors
/// What the system says of the folder or a file; a file that is there is not written over.
pub(crate) fn write_frames(chain: &ChainConfig, events: u64, folder: &Path) -> io::Result<Value> {
    let mut made = Vec::new();
    let written = write_frames_into(chain, events, folder, &mut made);
    written.inspect_err(|_| made.iter().for_each(|path| remove_unfinished(path)))
}

/// As [`write_frames`]; says which files it has made.
fn write_frames_into(
    chain: &ChainConfig,
    events: u64,
    folder: &Path,
    made: &mut Vec<PathBuf>,
) -> io::Result<Value> {
    fs::create_dir_all(folder)?;
    let sources = chain.detector_sources();
    let files = sources.iter().map(|source| {
        let path = frames_file(folder, *source);
        let file = File::create_new(&path)?;
        made.push(path);
        Ok(StreamSource::new(BufWriter::new(file)))
    });
    let mut files = files.collect::<io::Result<Vec<_>>>()?;
    let mut fragments = Fragments::new(chain);
    let mut words_sent = 0;
    for index in 0..events {
        fragments.event(index, |link, _, words| {
            words_sent += words.len() as u64;
            files[link].send(words)
        })?;
    }
    files.iter_mut().try_for_each(StreamSource::flush)?;
    Ok(json!({
        "schema": "livetime.frames/1",
        "events": events,
        "links": sources.len(),
        "fragments": events * sources.len() as u64,
        "words": words_sent,
        "folder": folder.display().to_string(),
    }))
}

/// What was sent over one link and has not come.
#[derive(Default)]
struct Expected {
    /// Hash of the words by the low bits of the trigger number.
    hashes: BTreeMap<u32, u64>,
    received: u64,
    bad: u64,
    words: u64,
}

impl Expected {
    /// Compares a block with what was sent.
    fn check(&mut self, block: &[u32]) {
        self.received += 1;
        self.words += block.len() as u64;
        let trigger = FragmentView::new_checked(block).map(|view| view.header().trigger_low);
        let sent = trigger.ok().and_then(|low| self.hashes.remove(&low));
        self.bad += u64::from(sent != Some(hash(block)));
    }
}

fn hash(words: &[u32]) -> u64 {
    let mixed = |sum, word: &u32| mix64(sum ^ u64::from(*word));
    words.iter().fold(words.len() as u64, mixed)
}

/// Plays `events` events over links of one kind; the document, and whether all came as sent.
///
/// # Errors
/// What is wrong with a link.
pub(crate) fn play(
    chain: &ChainConfig,
    events: u64,
    kind: LinkKind,
) -> Result<(Value, bool), String> {
    let words_max = (chain.source.fragment.bytes_max.0 / 4) as usize;
    let mut fragments = Fragments::new(chain);
    let links = (0..fragments.writer.links()).map(|_| {
        let link = pattern_link::open(kind, words_max)?;
        Ok((link, Expected::default()))
    });
    let mut links = links.collect::<Result<Vec<(Box<dyn PatternLink>, Expected)>, String>>()?;
    let mut words_sent = 0;
    for index in 0..events {
        fragments.event(index, |link, trigger, words| {
            words_sent += words.len() as u64;
            let (link, expected) = &mut links[link];
            expected.hashes.insert(trigger.low(), hash(words));
            link.send(words, &mut |block| expected.check(block))
        })?;
    }
    for (link, expected) in &mut links {
        link.finish(&mut |block| expected.check(block))?;
    }
    let sum = |of: fn(&(Box<dyn PatternLink>, Expected)) -> u64| links.iter().map(of).sum::<u64>();
    let sent = events * links.len() as u64;
    let received = sum(|(_, expected)| expected.received);
    let bad = sum(|(_, expected)| expected.bad);
    let document = json!({
        "schema": "livetime.played-source/1",
        "link": kind.name(),
        "events": events,
        "links": links.len(),
        "fragments_sent": sent,
        "fragments_received": received,
        "fragments_bad": bad,
        "fragments_missing": sum(|(_, expected)| expected.hashes.len() as u64),
        "blocks_lost": sum(|(link, _)| link.blocks_lost()),
        "words_sent": words_sent,
        "words_received": sum(|(_, expected)| expected.words),
    });
    Ok((document, received == sent && bad == 0))
}
