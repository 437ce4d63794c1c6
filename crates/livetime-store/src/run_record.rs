//! Begin- and end-of-run records: JSON messages inside chunks of the run file.
//!
//! They make a file stand on its own: what was configured, when the run began, how it ended, what
//! was counted. The longer document with rates and latencies is [`crate::summary::RunSummary`],
//! which lies beside the file.

use std::collections::BTreeMap;

use livetime_wire::{ChainCounts, LossCounts, RunNumber};
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::configured_streams::stream_names;
use crate::run_note::RunNote;
use crate::summary::{Counts, Losses};

/// First message of a run file: what this run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBegin {
    /// `livetime.run-begin/1`.
    pub schema: String,
    /// Run number.
    pub run: u32,
    /// Seed of everything random in the run.
    #[serde(with = "crate::string_u64")]
    pub seed: u64,
    /// Hash of the configuration file's text.
    pub config_hash: String,
    /// Version of the program that takes the run.
    pub version: String,
    /// Start of the run \[ns of TAI since 1970\]; event times count from it.
    #[serde(with = "crate::string_u64")]
    pub started_tai_ns: u64,
    /// The command that reproduces the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The configuration as TOML text; options of the command go over it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config: String,
    /// The Level-2 paths that ran, those of a built-in menu too: their bits in the decision by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, u8>,
    /// Which of the run's files this is; left out for the first part of the main file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FilePart>,
    /// Writers of the run, each with files of its own; left out for one.
    #[serde(default = "one_writer", skip_serializing_if = "is_one_writer")]
    pub writers: u16,
    /// Whether the simulator made the run; left out for a real one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
}

fn one_writer() -> u16 {
    1
}

fn is_one_writer(writers: &u16) -> bool {
    *writers <= 1
}

/// The place of a file among those of its run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FilePart {
    /// Whose file it is, from 0; left out for the first writer.
    #[serde(default, skip_serializing_if = "is_first_writer")]
    pub writer: u16,
    /// Name of the stream's file, empty for the main one.
    #[serde(default)]
    pub stream: String,
    /// Which part of it, from 0.
    pub part: u32,
    /// Events in the parts before it.
    pub events_before: u64,
}

fn is_none(events: &u64) -> bool {
    *events == 0
}

fn is_first_writer(writer: &u16) -> bool {
    *writer == 0
}

impl RunBegin {
    /// The schema that this version writes.
    pub const SCHEMA: &str = "livetime.run-begin/1";

    /// A record with the run number and nothing else known.
    pub fn new(run: RunNumber) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            run: run.0,
            seed: 0,
            config_hash: String::new(),
            version: String::new(),
            started_tai_ns: 0,
            command: Vec::new(),
            config: String::new(),
            paths: BTreeMap::new(),
            file: None,
            writers: 1,
            simulated: false,
        }
    }

    /// The run number.
    pub fn run_number(&self) -> RunNumber {
        RunNumber(self.run)
    }

    /// Names of the files of streams that every writer of the run has from its start, as the
    /// configuration tells; the simulator writes none.
    pub fn stream_files(&self) -> Vec<String> {
        match self.simulated {
            true => Vec::new(),
            false => stream_names(&self.config),
        }
    }

    /// Whether it tells more than the run number: that of a copy whose file had lost its own does not.
    pub fn is_known(&self) -> bool {
        *self != Self::new(self.run_number())
    }
}

/// Last message of a run file: how the run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// `livetime.run-end/1`.
    pub schema: String,
    /// Run number.
    pub run: u32,
    /// Condition of the run.
    pub condition: Condition,
    /// Why the run ended, in words for people.
    pub reason: String,
    /// Time of the end since the start of the run \[ns\].
    #[serde(with = "crate::string_u64")]
    pub time_ns: u64,
    /// Events in this file; the writer fills it in.
    pub events_stored: u64,
    /// Whether this record was made by a recovery and not by the run.
    #[serde(default)]
    pub recovered: bool,
    /// Events that a recovery knew to be missing from the file that it copied; 0 in the run's own.
    #[serde(default, skip_serializing_if = "is_none")]
    pub events_missing: u64,
    /// Whether the run goes on in the next part of this file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
    /// The counters of the chain, where they were known when the file was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// The losses by area and cause, where they were known when the file was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// What operators noted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<RunNote>,
    /// What the Level-3 menu counted over all filter units: passes and fires of each path, events of
    /// each stream, time in each stage; empty without one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub menu: BTreeMap<String, u64>,
    /// Filter units that died with what they had counted, so that `menu` lacks their share; empty
    /// where it lacks nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub menu_lacking: Vec<String>,
}

impl RunEnd {
    /// The schema that this version writes.
    pub const SCHEMA: &str = "livetime.run-end/1";

    /// A record of a run that ended at `time_ns` in this condition.
    pub fn new(run: RunNumber, condition: Condition, reason: &str, time_ns: u64) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            run: run.0,
            condition,
            reason: reason.to_owned(),
            time_ns,
            events_stored: 0,
            recovered: false,
            events_missing: 0,
            continued: false,
            counts: None,
            losses: None,
            notes: Vec::new(),
            menu: BTreeMap::new(),
            menu_lacking: Vec::new(),
        }
    }

    /// Whether `events`, and copies of `doubled` of them, are all that was stored.
    pub fn has_stored(&self, events: u64, doubled: u64) -> bool {
        (events..=events.saturating_add(doubled)).contains(&self.events_stored)
    }

    /// Adds the counters and losses of the chain.
    #[must_use]
    pub fn with_counts(mut self, counts: &ChainCounts, losses: &LossCounts) -> Self {
        self.counts = Some(counts.into());
        self.losses = Some(losses.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::{LossCause, RunNs};

    use super::*;

    /// The keys of the table that follows a line in the format's page.
    fn documented_keys(line: &str) -> Vec<String> {
        let page = include_str!("../../../docs/formats/run-file.md");
        let behind = page.split_once(line).expect("the line is there").1;
        let rows = behind.lines().skip_while(|line| !line.starts_with("| `"));
        let rows = rows.take_while(|line| line.starts_with("| `"));
        let mut keys: Vec<String> = rows
            .flat_map(|row| row.split('|').nth(1).expect("a cell").split(','))
            .map(|key| key.trim().trim_matches('`').to_owned())
            .collect();
        keys.sort();
        keys
    }

    fn keys_of(record: &impl Serialize) -> Vec<String> {
        let json = serde_json::to_value(record).unwrap();
        let mut keys: Vec<String> = json.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    }

    #[test]
    fn the_page_of_the_format_names_every_key() {
        let begin = RunBegin {
            command: vec!["livetime".to_owned()],
            config: "format = 1".to_owned(),
            paths: BTreeMap::from([("mu".to_owned(), 1)]),
            file: Some(FilePart::default()),
            writers: 2,
            simulated: true,
            ..RunBegin::new(RunNumber(1))
        };
        let documented = documented_keys("Keys of the begin-of-run record");
        assert_eq!(documented, keys_of(&begin));
        let end = RunEnd {
            events_missing: 1,
            continued: true,
            notes: vec![RunNote::new(RunNs(1), "beam back").unwrap()],
            menu: BTreeMap::from([("mu".to_owned(), 1)]),
            menu_lacking: vec!["fu0~1".to_owned()],
            ..RunEnd::new(RunNumber(1), Condition::GOOD, "", 1)
        };
        let end = end.with_counts(&ChainCounts::default(), &LossCounts::new());
        let documented = documented_keys("Keys of the end-of-run record");
        assert_eq!(documented, keys_of(&end));
    }

    #[test]
    fn records_read_back_with_64_bit_numbers_as_strings() {
        let mut begin = RunBegin::new(RunNumber(42));
        begin.seed = u64::MAX;
        begin.config = "format = 1\n".to_owned();
        let json = serde_json::to_string(&begin).unwrap();
        assert!(json.contains(r#""seed":"18446744073709551615""#), "{json}");
        assert_eq!(serde_json::from_str::<RunBegin>(&json).unwrap(), begin);

        let mut losses = LossCounts::new();
        losses.add(LossCause::StoreWriteFailed, 3);
        let counts = ChainCounts {
            offered: 7,
            ..ChainCounts::default()
        };
        let end = RunEnd::new(RunNumber(42), Condition::INTERRUPTED, "disk full", 5)
            .with_counts(&counts, &losses);
        let json = serde_json::to_string(&end).unwrap();
        assert!(json.contains(r#""condition":"INTERRUPTED""#), "{json}");
        assert_eq!(serde_json::from_str::<RunEnd>(&json).unwrap(), end);
    }
}
