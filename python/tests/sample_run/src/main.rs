//! `sample_run DIR EVENTS`: a run directory with Z bosons in it, and the truth in `truth.json`.
//!
//! The truth is written from what was put in and not from what is read back. Events are stored
//! slightly out of order, as builder units finish them; some lack a source, some have a flagged
//! fragment, one fragment in each event is another front-end's. It makes no realistic physics.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use livetime_store::summary::{Latencies, RunIdentification};
use livetime_store::{
    Axis, Condition, Histogram, LatencySummary, RunBegin, RunEnd, RunSummary, RunWriter,
    WriterLimits,
};
use livetime_wire::crc::crc32c;
use livetime_wire::decision::mix64;
use livetime_wire::event::{EventHeader, FragmentEntry};
use livetime_wire::fragment::{FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::object::{ObjectBlock, ObjectKind, PhysicsObject};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{
    ChainCounts, EventNumber, L2Mask, LossCounts, RunNs, RunNumber, SourceId, TriggerNumber,
};
use serde_json::{Value, json};

const RUN: RunNumber = RunNumber(42);
/// The links with objects, then one of another front-end.
const LINKS: usize = 4;
const OTHER: SourceId = SourceId(0x0099_0000);
const OTHER_WORDS: usize = 20;
const CONFIG: &str = "\
format = 1

[run]
seed = 7

[[trigger.path]]
name = \"dimuon\"
bit = 3

[[trigger.path]]
name = \"everything\"
bit = 100
";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, events] = &arguments[..] else {
        return Err("usage: sample_run DIR EVENTS".into());
    };
    let directory = Path::new(directory);
    fs::create_dir_all(directory)?;
    fs::write(directory.join("config.toml"), CONFIG)?;
    let events: Vec<Event> = (1..=events.parse()?).map(Event::new).collect();
    let file = File::create(directory.join("events.mcap"))?;
    let limits = WriterLimits {
        chunk_bytes: 64 << 10,
        ..WriterLimits::default()
    };
    let begin = RunBegin {
        seed: 7,
        config_hash: "0123456789abcdef".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_tai_ns: 1_795_100_000_000_000_000,
        command: ["livetime", "run", "z.toml"].map(str::to_owned).to_vec(),
        config: CONFIG.to_owned(),
        ..RunBegin::new(RUN)
    };
    let mut writer = RunWriter::new(file, &begin, limits)?;
    let mut words = Vec::new();
    for pair in events.chunks(2) {
        for event in pair.iter().rev() {
            event.emit(&mut words);
            writer.write_event(event.header.trigger, event.header.triggered_at, &[&words])?;
        }
    }
    let end_ns = events.last().map_or(0, |event| event.header.triggered_at.0);
    writer.write_histograms(
        RunNs(end_ns),
        &[mass_histogram(&events)?, time_histogram(&events)?],
    )?;
    let end = RunEnd::new(RUN, Condition::GOOD, "duration reached", end_ns);
    let (counts, losses) = (counts(&events), LossCounts::new());
    writer.finish(&end.with_counts(&counts, &losses))?;
    let run = RunIdentification {
        number: RUN.0,
        seed: 7,
        config_hash: begin.config_hash,
        version: begin.version,
        duration_s: end_ns as f64 * 1e-9,
        condition: Condition::GOOD,
    };
    let empty = LatencySummary::empty(20_000);
    let latency = Latencies {
        decision: empty,
        build: empty,
    };
    let summary = RunSummary::new(run, &counts, &losses, latency);
    fs::write(
        directory.join("summary.json"),
        serde_json::to_string_pretty(&summary)?,
    )?;
    fs::write(directory.join("truth.json"), truth(&events).to_string())?;
    Ok(())
}

/// One event and what is true about it.
struct Event {
    header: EventHeader,
    objects: Vec<PhysicsObject>,
    /// The link that did not deliver.
    missing: Option<usize>,
    /// The link whose fragment the receiver flagged.
    flagged: Option<usize>,
    mass: f64,
}

impl Event {
    fn new(index: u64) -> Self {
        let mut random = Random(index);
        // The quantile of a Breit-Wigner distribution, kept inside the window of the histogram.
        let quantile = 0.02 + 0.96 * random.unit();
        let mass = 91.19 + 1.25 * (std::f64::consts::PI * (quantile - 0.5)).tan();
        let mut objects = dimuon(mass, &mut random);
        for _ in 0..index % 4 {
            objects.push(PhysicsObject {
                kind: [ObjectKind::Electron, ObjectKind::Jet][objects.len() % 2],
                index: objects.len() as u16,
                pt: (5.0 + 20.0 * random.unit()) as f32,
                eta: (3.0 * random.unit()) as f32,
                phi: random.unit() as f32,
                charge: -1.0,
                dxy: 0.25,
            });
        }
        // A rare soft muon that must not enter the mass.
        if index.is_multiple_of(10) {
            objects.push(PhysicsObject {
                index: objects.len() as u16,
                pt: 1.5,
                ..objects[0]
            });
        }
        let header = EventHeader {
            run: RUN,
            trigger: TriggerNumber(index * 3),
            triggered_at: RunNs(index * 100_000),
            mask: L2Mask(1 << 100 | u128::from(index % 2) << 3),
            filter_reason: 1,
            streams: 1 + (index % 2) as u16 * 2,
        };
        let missing = index.is_multiple_of(7).then_some(3);
        let flagged = index.is_multiple_of(11).then_some(1);
        Self {
            header,
            objects,
            missing,
            flagged,
            mass,
        }
    }

    fn emit(&self, out: &mut Vec<u32>) {
        let mut entries = Vec::new();
        let mut payload = Vec::new();
        for link in (0..LINKS).filter(|link| Some(*link) != self.missing) {
            let mine: Vec<_> = self
                .objects
                .iter()
                .skip(link)
                .step_by(LINKS)
                .copied()
                .collect();
            let block = ObjectBlock {
                source_run: RUN,
                source_event: EventNumber(self.header.trigger.0),
                event_objects: self.objects.len() as u32,
            };
            let data_words = ObjectBlock::words(mine.len()) + link;
            let words = self.fragment(source(link), data_words, |data| {
                let used = block.emit(mine.iter(), data);
                data[used..].fill(link as u32);
            });
            let status = match self.flagged {
                Some(flagged) if flagged == link => FragmentStatus::LINK_DATA,
                _ => FragmentStatus::GOOD,
            };
            push(&mut entries, &mut payload, source(link), status, &words);
        }
        let other = self.fragment(OTHER, OTHER_WORDS, |data| {
            let start = self.header.trigger.low();
            data.iter_mut()
                .enumerate()
                .for_each(|(i, word)| *word = start + i as u32);
        });
        push(
            &mut entries,
            &mut payload,
            OTHER,
            FragmentStatus::GOOD,
            &other,
        );
        let missing: Vec<SourceId> = self.missing.iter().map(|link| source(*link)).collect();
        out.clear();
        self.header.emit(&entries, &missing, out);
        out.extend_from_slice(&payload);
    }

    fn fragment(
        &self,
        source: SourceId,
        data_words: usize,
        fill: impl FnOnce(&mut [u32]),
    ) -> Vec<u32> {
        let header = FragmentHeader {
            source,
            run: RUN,
            trigger_low: self.header.trigger.low(),
            bunch: 1,
            trigger_type: 0,
            event_type: 0,
        };
        let mut words = vec![0; data_words + OVERHEAD_WORDS];
        header.emit(0, data_words, &mut words, fill);
        words
    }

    /// The objects that a reader can find: those of links that are there and good.
    fn found(&self) -> Vec<PhysicsObject> {
        let lost = |i: usize| [self.missing, self.flagged].contains(&Some(i % LINKS));
        let kept = self.objects.iter().enumerate().filter(|(i, _)| !lost(*i));
        kept.map(|(_, object)| *object).collect()
    }

    /// The mass of the two first muons, if they can be found.
    fn found_mass(&self) -> Option<f64> {
        let found = self.found();
        let both = found.iter().filter(|object| object.index < 2).count() == 2;
        both.then_some(self.mass)
    }
}

fn source(link: usize) -> SourceId {
    SourceId(0x0042_0000 + link as u32)
}

fn push(
    entries: &mut Vec<FragmentEntry>,
    payload: &mut Vec<u32>,
    source: SourceId,
    status: FragmentStatus,
    words: &[u32],
) {
    entries.push(FragmentEntry {
        source,
        words: words.len() as u32,
        status,
        crc: crc32c(words),
    });
    payload.extend_from_slice(words);
}

/// Two muons of this mass with equal momentum, back to back in azimuth.
fn dimuon(mass: f64, random: &mut Random) -> Vec<PhysicsObject> {
    let half_gap = 0.5 * random.unit();
    let middle = 2.0 * random.unit() - 1.0;
    let phi = std::f64::consts::PI * (2.0 * random.unit() - 1.0);
    let pt = mass / (2.0 * ((2.0 * half_gap).cosh() + 1.0)).sqrt();
    [1.0, -1.0]
        .into_iter()
        .enumerate()
        .map(|(index, charge)| PhysicsObject {
            kind: ObjectKind::Muon,
            index: index as u16,
            pt: pt as f32,
            eta: (middle + charge * half_gap) as f32,
            phi: (if index == 0 {
                phi
            } else {
                phi - phi.signum() * std::f64::consts::PI
            }) as f32,
            charge: charge as f32,
            dxy: 0.001 * (index as f32 + 1.0),
        })
        .collect()
}

/// Numbers of SplitMix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15 ^ 0x5A);
        (mix64(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mass_histogram(events: &[Event]) -> Result<Histogram, Box<dyn Error>> {
    let axis = Axis::regular("dimuon mass", "GeV", 60, 60.0, 120.0)?;
    let mut histogram = Histogram::counting("dimuon_mass", vec![axis])?;
    events
        .iter()
        .filter_map(Event::found_mass)
        .for_each(|mass| histogram.fill(&[mass]));
    Ok(histogram)
}

fn time_histogram(events: &[Event]) -> Result<Histogram, Box<dyn Error>> {
    let time = Axis::log("time", "ns", 6, 1e5, 1e11)?;
    let objects = Axis::variable("objects", "", vec![0.0, 2.0, 3.0, 4.0, 8.0])?;
    let mut histogram = Histogram::weighted("time_objects", vec![time, objects])?;
    for event in events {
        let values = [
            event.header.triggered_at.0 as f64,
            event.objects.len() as f64,
        ];
        histogram.fill_weighted(&values, 0.5);
    }
    Ok(histogram)
}

fn counts(events: &[Event]) -> ChainCounts {
    let stored = events.len() as u64;
    let incomplete = events
        .iter()
        .filter(|event| event.missing.is_some())
        .count() as u64;
    let links = LINKS as u64 + 1;
    let in_incomplete = incomplete * (links - 1);
    let in_built = (stored - incomplete) * links;
    ChainCounts {
        offered: 4 * stored,
        refused: stored,
        triggers: 3 * stored,
        l2_accepted: stored,
        l2_rejected: 2 * stored,
        fragments_sent: in_built + in_incomplete,
        fragments_received: in_built + in_incomplete,
        fragments_in_built: in_built,
        fragments_in_incomplete: in_incomplete,
        events_built: stored - incomplete,
        events_incomplete: incomplete,
        filter_accepted: stored,
        events_stored: stored,
        ..ChainCounts::default()
    }
}

fn truth(events: &[Event]) -> Value {
    let column = |of: &dyn Fn(&Event) -> Value| Value::Array(events.iter().map(of).collect());
    let objects = |event: &Event| {
        let row = |o: &PhysicsObject| json!([o.kind as u16, o.pt, o.eta, o.phi, o.charge, o.dxy]);
        Value::Array(event.found().iter().map(row).collect())
    };
    let mask = |event: &Event| {
        let low = (event.header.mask.0 & u128::from(u64::MAX)) as u64;
        json!([low, (event.header.mask.0 >> 64) as u64])
    };
    let sources = |event: &Event| {
        let links = (0..LINKS)
            .filter(|link| Some(*link) != event.missing)
            .map(source);
        links
            .chain([OTHER])
            .map(|source| source.0)
            .collect::<Vec<_>>()
    };
    json!({
        "trigger": column(&|event| event.header.trigger.0.into()),
        "triggered_at_ns": column(&|event| event.header.triggered_at.0.into()),
        "mask": column(&mask),
        "streams": column(&|event| event.header.streams.into()),
        "missing": column(&|event| event.missing.iter().map(|l| source(*l).0).collect()),
        "flagged": column(&|event| event.flagged.is_some().into()),
        "sources": column(&|event| sources(event).into()),
        "objects": column(&objects),
        "mass": column(&|event| event.found_mass().into()),
    })
}
