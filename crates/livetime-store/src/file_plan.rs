//! Which files the events of a run go to: those of each writer, streams apart, and parts that follow
//! each other.
//!
//! [`FilePlan`] says which file an event of given streams belongs to and when a file is to be
//! followed by the next; [`FileName`] is the one place that knows how they are called. Every event
//! is in one file only. Opening and closing them is their driver's work;
//! `livetime_client::RunFolder` reads them as one run.

use std::fmt;

use livetime_wire::{ByteSize, DurationNs, Problem};

use crate::problem_code;

/// Longest name of a stream's file \[bytes\].
pub const NAME_BYTES_MAX: usize = 32;

/// A file for some streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFile {
    /// Its name, which becomes part of the file's: a lower-case letter, then letters, digits,
    /// `-` and `_`.
    pub name: String,
    /// The streams whose events go there, one bit each.
    pub streams: u16,
}

/// The files of a run, or of each of its writers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlan {
    /// Files for streams. An event goes to the first that takes one of its streams, and to
    /// `events.mcap` if none does.
    pub streams: Vec<StreamFile>,
    /// Bytes at which a file is followed by the next part, 0 for no limit. It is looked at between
    /// chunks, so that a file may be larger by a chunk and its index.
    pub bytes_max: u64,
    /// Time after which a file is followed by the next part, 0 for no limit.
    pub time_max: DurationNs,
    /// Bytes that are to stay free on the file system: with less, nothing is written and the run
    /// waits. 0 for no guard.
    pub free_bytes_min: u64,
    /// How long a full disk may hold the run up before the run ends; 0 ends it at once.
    pub full_wait: DurationNs,
}

impl Default for FilePlan {
    /// One file, a guard of 64 MiB and 10 s of patience.
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            bytes_max: 0,
            time_max: DurationNs(0),
            free_bytes_min: 64 << 20,
            full_wait: DurationNs(10_000_000_000),
        }
    }
}

impl FilePlan {
    /// Smallest limit of a file's size \[bytes\].
    pub const BYTES_MAX_LEAST: u64 = 64 << 10;

    /// Whether all events of a writer go to one file.
    pub fn is_single(&self) -> bool {
        self.streams.is_empty() && self.bytes_max == 0 && self.time_max.0 == 0
    }

    /// Number of files that a writer has open at a time.
    pub fn open_files(&self) -> usize {
        1 + self.streams.len()
    }

    /// Which open file an event of these streams goes to: 0 is the main one, 1 the first of
    /// [`FilePlan::streams`].
    pub fn file_of(&self, streams: u16) -> usize {
        let mut files = self.streams.iter();
        files
            .position(|file| file.streams & streams != 0)
            .map_or(0, |index| index + 1)
    }

    /// Every value that cannot be; paths are keys of the `[store]` table.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.bytes_max != 0 && self.bytes_max < Self::BYTES_MAX_LEAST {
            problems.push(Problem::new(
                problem_code::FILE_SIZE,
                "store.file_max",
                format!("{:#}", ByteSize(self.bytes_max)),
                format!("0 B, or at least {}", ByteSize(Self::BYTES_MAX_LEAST)),
                "raise it: each file has records and an index of its own",
            ));
        }
        for (index, file) in self.streams.iter().enumerate() {
            let path = format!("store.file[{index}]");
            if !is_name(&file.name) {
                problems.push(Problem::new(
                    problem_code::FILE_NAME,
                    format!("{path}.name"),
                    format!("{:?}", file.name),
                    format!(
                        "a letter a to z, then letters a to z, digits, - and _, at most \
                         {NAME_BYTES_MAX} in all"
                    ),
                    "choose such a name: it becomes part of the file's",
                ));
            }
            if self.streams[..index].iter().any(|f| f.name == file.name) {
                problems.push(Problem::new(
                    problem_code::FILE_NAME,
                    format!("{path}.name"),
                    format!("{:?}, used before", file.name),
                    "a name of its own",
                    "give each file another name, or list its streams in one place",
                ));
            }
            let before = self.streams[..index].iter();
            let taken = before.fold(0, |bits, file| bits | file.streams);
            if file.streams & !taken == 0 {
                problems.push(Problem::new(
                    problem_code::FILE_STREAMS,
                    format!("{path}.streams"),
                    "no stream that a file before does not take",
                    "at least one stream, 0 to 15, that is its own",
                    "list its streams, or remove the file: it would stay empty",
                ));
            }
        }
        problems
    }
}

pub(crate) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= NAME_BYTES_MAX
        && bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b))
}

/// What a file of a run is called.
///
/// ```text
/// events.mcap                 the main file          events.0001.mcap         the part after it
/// events.dimuon.mcap          a stream's file        events.dimuon.0001.mcap  the part after it
/// events-1.mcap               main file of writer 1  events-1.0001.mcap       the part after it
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileName {
    /// Whose it is, from 0.
    pub writer: u16,
    /// Name of the stream's file, empty for the main one.
    pub stream: String,
    /// Which part, from 0.
    pub part: u32,
}

impl FileName {
    /// Whether both are parts of one file: of one writer and one stream.
    pub fn is_part_of(&self, other: &Self) -> bool {
        self.writer == other.writer && self.stream == other.stream
    }

    /// The name's parts; `None` for files that are no run files by their name.
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("events")?.strip_suffix("mcap")?;
        let (writer, rest) = match rest.strip_prefix('-') {
            Some(rest) => rest.split_once('.')?,
            None => ("", rest.strip_prefix('.')?),
        };
        let mut pieces: Vec<&str> = rest.split('.').collect();
        // The text ends in a dot, or is empty for the main file.
        if pieces.pop() != Some("") {
            return None;
        }
        let mut found = Self::default();
        if !writer.is_empty() || name.starts_with("events-") {
            found.writer = writer_of(writer)?;
        }
        if let Some(part) = pieces.last().and_then(|piece| part_of(piece)) {
            found.part = part;
            pieces.pop();
        }
        match pieces[..] {
            [] => {}
            [stream] if is_name(stream) => found.stream = stream.to_owned(),
            _ => return None,
        }
        Some(found)
    }
}

/// The number of a writer; the first has none in its name.
fn writer_of(piece: &str) -> Option<u16> {
    let writer: u16 = piece.parse().ok()?;
    (writer > 0 && writer.to_string() == piece).then_some(writer)
}

/// The number of a part; the first has none in its name.
fn part_of(piece: &str) -> Option<u32> {
    let digits = piece.len() >= 4 && piece.bytes().all(|byte| byte.is_ascii_digit());
    let part = digits.then(|| piece.parse().ok())??;
    (part > 0 && format!("{part:04}") == piece).then_some(part)
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("events")?;
        if self.writer > 0 {
            write!(f, "-{}", self.writer)?;
        }
        if !self.stream.is_empty() {
            write!(f, ".{}", self.stream)?;
        }
        if self.part > 0 {
            write!(f, ".{:04}", self.part)?;
        }
        f.write_str(".mcap")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(files: &[(&str, u16)]) -> FilePlan {
        FilePlan {
            streams: (files.iter())
                .map(|(name, streams)| StreamFile {
                    name: (*name).to_owned(),
                    streams: *streams,
                })
                .collect(),
            ..FilePlan::default()
        }
    }

    #[test]
    fn an_event_goes_to_the_first_file_that_takes_one_of_its_streams() {
        let plan = plan(&[("dimuon", 0b0001), ("rest", 0b0111)]);
        assert!(plan.validate().is_empty());
        let files = [0, 1, 2, 3, 0b1000].map(|streams| plan.file_of(streams));
        assert_eq!(files, [0, 1, 2, 1, 0]);
        assert_eq!(plan.open_files(), 3);
        assert!(!plan.is_single() && FilePlan::default().is_single());
    }

    #[test]
    fn names_read_back_and_others_are_none() {
        for (writer, stream, part, name) in [
            (0, "", 0, "events.mcap"),
            (0, "", 12, "events.0012.mcap"),
            (0, "dimuon", 0, "events.dimuon.mcap"),
            (0, "x-1_y", 12345, "events.x-1_y.12345.mcap"),
            (1, "", 0, "events-1.mcap"),
            (12, "dimuon", 3, "events-12.dimuon.0003.mcap"),
        ] {
            let file = FileName {
                writer,
                stream: stream.to_owned(),
                part,
            };
            assert_eq!(file.to_string(), name);
            assert_eq!(FileName::parse(name), Some(file));
        }
        for name in [
            "events",
            "mcap",
            "eventsmcap",
            "events..mcap",
            "events.0000.mcap",
            "events.01.mcap",
            "events.00001.mcap",
            "events.a.b.mcap",
            "events.A.mcap",
            "events.a.0001.mcap.part",
            "events-.mcap",
            "events-0.mcap",
            "events-01.mcap",
            "events-x.mcap",
            "events-70000.mcap",
            "events-1mcap",
            "events.99999999999.mcap",
            "copy.mcap",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_is_named_with_its_key() {
        let paths = |plan: &FilePlan| -> Vec<String> {
            plan.validate().into_iter().map(|p| p.path).collect()
        };
        let of = |files| paths(&plan(files));
        assert_eq!(of(&[("0001", 1)]), ["store.file[0].name"]);
        assert_eq!(of(&[("", 1)]), ["store.file[0].name"]);
        assert_eq!(of(&[("a", 1), ("a", 2)]), ["store.file[1].name"]);
        assert_eq!(of(&[("a", 0)]), ["store.file[0].streams"]);
        assert_eq!(of(&[("a", 3), ("b", 1)]), ["store.file[1].streams"]);
        let small = FilePlan {
            bytes_max: 1000,
            ..FilePlan::default()
        };
        assert_eq!(paths(&small), ["store.file_max"]);
    }
}
