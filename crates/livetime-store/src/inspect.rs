//! What is in a run file, in one document: `livetime.inspect/1`.
//!
//! Every chunk is read and every checksum compared. The verb `inspect` prints the document and
//! exits with 1 if [`Inspection::is_good`] says no; it changes nothing.

use std::io::{self, Read, Seek};

use livetime_wire::TriggerNumber;
use livetime_wire::event::FragmentEntry;
use livetime_wire::slink::FragmentStatus;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::damage::Damage;
use crate::run_reader::{IndexOrigin, RunReader};
use crate::run_record::RunEnd;
use crate::seen_triggers::SeenTriggers;

/// Most ranges of damage that the document lists.
pub const DAMAGE_LISTED_MAX: usize = 100;

/// What an inspection found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// `livetime.inspect/1`.
    pub schema: String,
    /// Run number.
    pub run: u32,
    /// Events that are whole.
    pub events: u64,
    /// Whether the file has its own end-of-run record and every event that it counts.
    pub complete: bool,
    /// Chunks, events and fragments that do not agree with their checksum.
    pub checksum_errors: u64,
    /// Smallest trigger number.
    #[serde(with = "crate::string_u64::optional")]
    pub first_trigger: Option<u64>,
    /// Largest trigger number.
    #[serde(with = "crate::string_u64::optional")]
    pub last_trigger: Option<u64>,
    /// Condition of the run: of the end-of-run record, or `INTERRUPTED` without one, and what the
    /// inspection adds.
    pub condition: Condition,
    /// Events with sources missing.
    pub events_incomplete: u64,
    /// Events with a fragment that came with a fault.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_flagged: u64,
    /// Events known to be missing from the file, the damaged ones included.
    pub events_missing: u64,
    /// Whole events in damaged chunks, among `events`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_salvaged: u64,
    /// Whole events whose trigger was there before, not among `events`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_doubled: u64,
    /// Their trigger numbers as texts, the first
    /// [`DOUBLED_LISTED_MAX`](crate::seen_triggers::DOUBLED_LISTED_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers_doubled: Vec<String>,
    /// Whether the end-of-run record was made by a recovery.
    pub recovered: bool,
    /// Chunks.
    pub chunks: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// `summary` or `scan`: where the list of chunks comes from.
    pub index: String,
    /// Number of ranges that were passed over.
    pub damaged_ranges: u64,
    /// The first of them in the order of the file, at most [`DAMAGE_LISTED_MAX`].
    pub damage: Vec<DamagedRange>,
    /// Names of the files, if a whole directory was inspected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Names of files that must have been there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_missing: Vec<String>,
    /// Files that only the hosts of their writers have, as `HOST:PATH`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_elsewhere: Vec<String>,
    /// Whether the simulator made the run; left out for a real one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
}

/// A range of bytes that was passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedRange {
    /// Name of the file, if the run has several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Where it starts.
    #[serde(with = "crate::string_u64")]
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Why, in words.
    pub reason: String,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl From<&Damage> for DamagedRange {
    fn from(damage: &Damage) -> Self {
        let Damage {
            offset,
            bytes,
            reason,
        } = *damage;
        Self {
            file: String::new(),
            offset,
            bytes,
            reason: reason.to_string(),
        }
    }
}

impl Inspection {
    /// The schema that this version writes.
    pub const SCHEMA: &str = "livetime.inspect/1";

    /// Whether it was written by a recovery and no event is known to be missing.
    pub fn is_whole_copy(&self) -> bool {
        self.recovered && self.events_missing == 0 && self.files_missing.is_empty()
    }

    /// Whether the file is complete, or a whole repaired copy, and nothing in it is damaged.
    pub fn is_good(&self) -> bool {
        (self.complete || self.is_whole_copy())
            && self.checksum_errors == 0
            && self.damaged_ranges == 0
    }
}

/// Reads a whole run file from its start and says what is in it.
///
/// # Errors
/// Only errors of the input.
pub fn inspect<R: Read + Seek>(reader: &mut RunReader<R>) -> io::Result<Inspection> {
    inspect_seen(reader, &mut SeenTriggers::default())
}

/// As [`inspect`], of one of several files: events of which an earlier file had a copy are not counted
/// again.
///
/// # Errors
/// Only errors of the input.
pub fn inspect_seen<R: Read + Seek>(
    reader: &mut RunReader<R>,
    seen: &mut SeenTriggers,
) -> io::Result<Inspection> {
    let doubled_before = (seen.doubled(), seen.doubled_triggers().len());
    reader.find_displaced()?;
    reader.compare_frames();
    let EventCounts {
        events,
        incomplete,
        flagged,
        triggers,
    } = EventCounts::of(reader, seen)?;
    reader.compare_rest()?;
    let events_missing = reader.events_missing();
    let damage = reader.damage();
    // In the order of the file, whichever part of it was read first.
    let mut ranges = damage.entries().to_vec();
    ranges.sort_by_cached_key(|range| (range.offset, range.bytes, range.reason.to_string()));
    let end = reader.end();
    let recovered = end.is_some_and(|end| end.recovered);
    let own_end = end.filter(|end| !end.recovered);
    let events_doubled = seen.doubled() - doubled_before.0;
    let doubled = seen.doubled_triggers()[doubled_before.1..].iter();
    let are_all = |end: &RunEnd| end.has_stored(events, events_doubled);
    let complete = own_end.is_some_and(are_all) && events_missing == 0;
    let mut condition = end.map_or(Condition::INTERRUPTED, |end| end.condition);
    if events_missing > 0 || !end.is_none_or(are_all) {
        condition |= Condition::INCOMPLETE;
    }
    if damage.checksum_errors() > 0 {
        condition |= Condition::TAINTED;
    }
    Ok(Inspection {
        schema: Inspection::SCHEMA.to_owned(),
        run: reader.run().0,
        events,
        complete,
        checksum_errors: damage.checksum_errors(),
        first_trigger: triggers.map(|(first, _)| first.0),
        last_trigger: triggers.map(|(_, last)| last.0),
        condition,
        events_incomplete: incomplete,
        events_flagged: flagged,
        events_missing,
        events_salvaged: reader.events_salvaged(),
        events_doubled,
        triggers_doubled: doubled.map(|trigger| trigger.0.to_string()).collect(),
        recovered,
        chunks: reader.chunk_count() as u64,
        bytes: reader.input_bytes(),
        index: match reader.origin() {
            IndexOrigin::Summary => "summary".to_owned(),
            IndexOrigin::Scan => "scan".to_owned(),
        },
        damaged_ranges: damage.total(),
        damage: ranges
            .iter()
            .take(DAMAGE_LISTED_MAX)
            .map(Into::into)
            .collect(),
        files: Vec::new(),
        files_missing: Vec::new(),
        files_elsewhere: Vec::new(),
        simulated: reader.begin().is_some_and(|begin| begin.simulated),
    })
}

/// The whole events of a file.
#[derive(Debug, Default)]
struct EventCounts {
    events: u64,
    incomplete: u64,
    flagged: u64,
    /// Smallest and largest trigger number.
    triggers: Option<(TriggerNumber, TriggerNumber)>,
}

impl EventCounts {
    /// Counts those whose trigger was not there before.
    fn of<R: Read + Seek>(reader: &mut RunReader<R>, seen: &mut SeenTriggers) -> io::Result<Self> {
        let mut counts = Self::default();
        reader.rewind();
        while let Some(event) = reader.next_event()? {
            let trigger = event.header().trigger;
            if !seen.insert(trigger) {
                continue;
            }
            counts.events += 1;
            counts.incomplete += u64::from(event.is_incomplete());
            let is_flagged = |entry: FragmentEntry| entry.status != FragmentStatus::GOOD;
            counts.flagged += u64::from(event.entries().any(is_flagged));
            let (first, last) = counts.triggers.unwrap_or((trigger, trigger));
            counts.triggers = Some((first.min(trigger), last.max(trigger)));
        }
        Ok(counts)
    }
}
