//! Recorded events from a CSV file, replayed by index and repeating.
//!
//! Two layouts are told apart by their header, `docs/formats/recorded-events.md`: muon pairs (`Run,
//! Event`, then `pt, eta, phi, Q, dxy, iso` with the number of the muon behind each name) and
//! objects with `PIDn` (then `ptn, etan, phin, Qn`; impact parameter and isolation are 0), where a
//! `PIDn` of 0 leaves the place empty. Other columns are ignored. Nothing is guessed: a file with any bad value is refused, with line,
//! column, value and what is allowed.

use core::f64::consts::PI;
use core::fmt;
use std::io::Read;

use csv::{ReaderBuilder, StringRecord, Trim};
use livetime_wire::object::ObjectKind;
use livetime_wire::{ByteSize, EventNumber, RunNumber};

use crate::event_generator::EventGenerator;
use crate::source_event::{SourceEvent, SourceObject};

/// Most problems that one file is reported with.
pub const PROBLEMS_MAX: usize = 20;
/// Most problems that are looked for: one more tells whether there are more.
const LOOKED_FOR_MAX: usize = PROBLEMS_MAX + 1;
/// Most rows of a file; 10 million take about 1 GiB.
pub const ROWS_MAX: usize = 10_000_000;
/// Most bytes of a file, which is in memory while it is read: 10 million rows of two muons are half of
/// that.
const FILE_BYTES_MAX: ByteSize = ByteSize(4 << 30);
/// Most objects of a row.
pub const LEPTONS_MAX: usize = 24;
/// Largest azimuth in rad: pi, and the last of four decimals rounded up.
const PHI_MAX: f64 = PI + 1e-5;
/// Characters of a bad value that are shown.
const FOUND_CHARACTERS_MAX: usize = 40;

/// Events of a file, in memory: 32 bytes an object and 24 a row.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvents {
    numbers: Vec<(RunNumber, EventNumber)>,
    objects: Vec<SourceObject>,
    /// Where the objects of each row end.
    ends: Vec<usize>,
}

/// One bad value of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedProblem {
    /// Line in the file, from 1.
    pub line: u64,
    /// Name of the column.
    pub column: String,
    /// What stands there, at most 40 characters of it.
    pub found: String,
    /// What may stand there.
    pub allowed: String,
}

impl fmt::Display for RecordedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            column,
            found,
            allowed,
        } = self;
        write!(
            f,
            "line {line}, column {column}: found {found}, allowed is {allowed}"
        )
    }
}

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// It could not be read, or not as lines of text.
    #[error("events could not be read: {0}")]
    Read(#[from] csv::Error),
    /// It is longer than anything that is read, or has no end.
    #[error(
        "events could not be read: more than {0}, the most allowed; give fewer rows or columns"
    )]
    TooLong(ByteSize),
    /// It holds bad values.
    #[error("{}", joined(problems, *are_all))]
    Values {
        /// Every one of them, up to [`PROBLEMS_MAX`].
        problems: Vec<RecordedProblem>,
        /// Whether there are no more.
        are_all: bool,
    },
}

impl RecordedError {
    /// The first [`PROBLEMS_MAX`] of these problems, of which there is one at least.
    fn of_values(mut problems: Vec<RecordedProblem>) -> Self {
        let are_all = problems.len() <= PROBLEMS_MAX;
        problems.truncate(PROBLEMS_MAX);
        Self::Values { problems, are_all }
    }
}

fn joined(problems: &[RecordedProblem], are_all: bool) -> String {
    let lines: Vec<String> = problems.iter().map(RecordedProblem::to_string).collect();
    let more = match are_all {
        true => "",
        false => "\n(more are not shown)",
    };
    lines.join("\n") + more
}

/// Where the values of one lepton stand in a row.
struct LeptonColumns {
    /// Absent: a muon.
    pid: Option<usize>,
    pt: usize,
    eta: usize,
    phi: usize,
    charge: usize,
    /// Absent with `pid`: 0.
    dxy: Option<usize>,
    iso: Option<usize>,
}

/// Where everything stands.
struct Columns {
    run: usize,
    event: usize,
    leptons: Vec<LeptonColumns>,
}

/// What a file is read into, with the problems on the way.
struct Reading {
    header: StringRecord,
    problems: Vec<RecordedProblem>,
}

impl RecordedEvents {
    /// Reads a whole file.
    ///
    /// # Errors
    /// [`RecordedError`]: reading failed, the file is longer than 4 GiB, or its bad values.
    pub fn read(input: impl Read) -> Result<Self, RecordedError> {
        Self::read_at_most(input, FILE_BYTES_MAX)
    }

    fn read_at_most(input: impl Read, most: ByteSize) -> Result<Self, RecordedError> {
        let mut bytes = Vec::new();
        let mut input = input.take(most.0 + 1);
        input.read_to_end(&mut bytes).map_err(csv::Error::from)?;
        if bytes.len() as u64 > most.0 {
            return Err(RecordedError::TooLong(most));
        }
        let mut lines = LineCount::new(&bytes);
        let mut reader = ReaderBuilder::new()
            .trim(Trim::All)
            .flexible(true)
            .from_reader(bytes.as_slice());
        let mut reading = Reading {
            header: reader.headers()?.clone(),
            problems: Vec::new(),
        };
        let Some(columns) = reading.columns() else {
            return Err(RecordedError::of_values(reading.problems));
        };
        let mut events = Self {
            numbers: Vec::new(),
            objects: Vec::new(),
            ends: Vec::new(),
        };
        let mut row = StringRecord::new();
        while reading.problems.len() < LOOKED_FOR_MAX && reader.read_record(&mut row)? {
            let line = lines.at(row.position().map_or(0, csv::Position::byte));
            if events.numbers.len() == ROWS_MAX {
                let allowed = format!("at most {ROWS_MAX} rows");
                reading.report(line, "Run", "one more row", &allowed);
                break;
            }
            reading.row(line, &row, &columns, &mut events);
        }
        if events.numbers.is_empty() && reading.problems.is_empty() {
            reading.report(
                2,
                "Run",
                "the end of the file",
                "at least one row of values",
            );
        }
        if reading.problems.is_empty() {
            Ok(events)
        } else {
            Err(RecordedError::of_values(reading.problems))
        }
    }

    /// The first `rows` events of a generator (at least 1), drawn beforehand: playing them costs a
    /// copy, so that a measurement of what comes after the source is not one of the source.
    pub fn drawn(generator: &EventGenerator, rows: u32) -> Self {
        let mut events = Self {
            numbers: Vec::new(),
            objects: Vec::new(),
            ends: Vec::new(),
        };
        let mut event = SourceEvent::new();
        for index in 0..u64::from(rows.max(1)) {
            generator.event(index, &mut event);
            events.numbers.push((event.run, event.number));
            events.objects.extend_from_slice(&event.objects);
            events.ends.push(events.objects.len());
        }
        events
    }

    /// Number of rows, at least 1.
    pub fn rows(&self) -> usize {
        self.numbers.len()
    }

    /// Writes event `index` over the contents of `event`; behind the last row the first one
    /// follows again.
    pub fn event(&self, index: u64, event: &mut SourceEvent) {
        let row = (index % self.numbers.len() as u64) as usize;
        (event.run, event.number) = self.numbers[row];
        event.objects.clear();
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        let objects = &self.objects[start..self.ends[row]];
        event.objects.extend_from_slice(objects);
    }
}

/// Numbers of lines, from 1, as an editor has them. The parser says where it began to look for a
/// row: before what is left of the end of the last line, and before empty lines.
struct LineCount<'a> {
    bytes: &'a [u8],
    counted: usize,
    line: u64,
}

impl<'a> LineCount<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            counted: 0,
            line: 1,
        }
    }

    /// The line of a row that begins at `byte` or behind the ends of lines there; rows in order.
    fn at(&mut self, byte: u64) -> u64 {
        let begin =
            usize::try_from(byte).map_or(self.bytes.len(), |byte| byte.min(self.bytes.len()));
        let blank = self.bytes[begin..].iter();
        let blank = blank
            .take_while(|byte| matches!(byte, b'\r' | b'\n'))
            .count();
        let passed = &self.bytes[self.counted.min(begin + blank)..begin + blank];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.counted = begin + blank;
        self.line
    }
}

/// The number behind one of these names in that of a column.
fn number_behind(names: &[&str], column: &str) -> Option<usize> {
    names.iter().find_map(|name| {
        let digits = column.strip_prefix(*name)?;
        let number = digits.parse::<usize>().ok()?;
        (number.to_string() == digits).then_some(number)
    })
}

impl Reading {
    fn report(&mut self, line: u64, column: &str, found: &str, allowed: &str) {
        if self.problems.len() < LOOKED_FOR_MAX {
            self.problems.push(RecordedProblem {
                line,
                column: column.to_owned(),
                found: found.chars().take(FOUND_CHARACTERS_MAX).collect(),
                allowed: allowed.to_owned(),
            });
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    /// The place of a column; reports its absence, after which the place is never used.
    fn needed(&mut self, name: &str) -> usize {
        self.position(name).unwrap_or_else(|| {
            self.report(
                1,
                name,
                "no such column",
                "a column with this name in the header",
            );
            0
        })
    }

    /// Reports the columns of a layout that are there twice, and those of more leptons than allowed.
    fn report_surplus(&mut self, names: &[&str]) {
        let header = self.header.clone();
        for (at, column) in header.iter().enumerate() {
            let number = number_behind(names, column);
            let is_used = number.is_some() || ["Run", "Event"].contains(&column);
            if !is_used || self.problems.len() == LOOKED_FOR_MAX {
                continue;
            }
            if self.position(column) != Some(at) {
                let found = "a second column with this name";
                self.report(1, column, found, "each column once in the header");
            } else if number.is_some_and(|number| !(1..=LEPTONS_MAX).contains(&number)) {
                let allowed = format!("numbers from 1 to {LEPTONS_MAX} behind the names");
                self.report(1, column, "an object with this number", &allowed);
            }
        }
    }

    /// The largest number behind the name of a column of the layout, at least 1.
    fn count(&self, names: &[&str]) -> usize {
        let columns = self.header.iter();
        let numbers = columns.filter_map(|column| number_behind(names, column));
        let numbers = numbers.filter(|number| *number <= LEPTONS_MAX);
        numbers.max().unwrap_or(1).max(1)
    }

    /// The layout of the header, `None` if a column is missing or there twice. No object is left out
    /// for lack of its column: each up to the largest number needs all of them.
    fn columns(&mut self) -> Option<Columns> {
        let (run, event) = (self.needed("Run"), self.needed("Event"));
        let mut columns = self.header.iter();
        let with_pid = columns.any(|column| number_behind(&["PID"], column).is_some());
        let names: &[&str] = match with_pid {
            true => &["PID", "pt", "eta", "phi", "Q"],
            false => &["pt", "eta", "phi", "Q", "dxy", "iso"],
        };
        self.report_surplus(names);
        // Without even a first lepton its columns are reported as missing.
        let count = self.count(names);
        let leptons = (1..=count)
            .map(|n| {
                let mut needed = |name: &str| self.needed(&format!("{name}{n}"));
                LeptonColumns {
                    pid: with_pid.then(|| needed("PID")),
                    pt: needed("pt"),
                    eta: needed("eta"),
                    phi: needed("phi"),
                    charge: needed("Q"),
                    dxy: (!with_pid).then(|| needed("dxy")),
                    iso: (!with_pid).then(|| needed("iso")),
                }
            })
            .collect();
        self.problems.is_empty().then_some(Columns {
            run,
            event,
            leptons,
        })
    }

    fn row(&mut self, line: u64, row: &StringRecord, columns: &Columns, out: &mut RecordedEvents) {
        if row.len() != self.header.len() {
            let (found, allowed) = (row.len(), self.header.len());
            let column = self
                .header
                .get(row.len())
                .unwrap_or("behind the last")
                .to_owned();
            let (found, allowed) = (format!("{found} values"), format!("{allowed} in each row"));
            self.report(line, &column, &found, &allowed);
            return;
        }
        let run = self.run(line, row, columns.run);
        let event = self.event(line, row, columns.event);
        for lepton in &columns.leptons {
            if lepton.pid.is_some_and(|pid| row.get(pid) == Some("0")) {
                continue;
            }
            let object = self.object(line, row, lepton);
            out.objects.push(object);
        }
        out.ends.push(out.objects.len());
        out.numbers.push((run, event));
    }

    /// A lepton; bad values are reported and become 0, since then the file is refused anyway.
    fn object(&mut self, line: u64, row: &StringRecord, at: &LeptonColumns) -> SourceObject {
        let kind = at
            .pid
            .map_or(ObjectKind::Muon, |column| self.kind(line, row, column));
        let mut value = |column, allowed, range| self.number(line, row, column, allowed, range);
        let pt = value(at.pt, "0.001 to 100000 GeV", 0.001..=100_000.0);
        let eta = value(at.eta, "-10 to 10", -10.0..=10.0);
        let phi = value(at.phi, "-3.1416 to 3.1416 rad", -PHI_MAX..=PHI_MAX);
        let dxy = at.dxy.map_or(0.0, |dxy| {
            value(dxy, "-10000 to 10000 cm", -10_000.0..=10_000.0)
        });
        let iso = at
            .iso
            .map_or(0.0, |iso| value(iso, "0 to 100000 GeV", 0.0..=100_000.0));
        let charge = value(at.charge, "-1 or 1", -1.0..=1.0);
        let is_neutral = matches!(kind, ObjectKind::Jet | ObjectKind::Photon);
        if is_neutral {
            if charge != 0.0 {
                let text = row.get(at.charge).unwrap_or_default();
                let column = self.column(at.charge);
                self.report(line, &column, text, "0 for a jet or a photon");
            }
        } else if charge.abs() != 1.0 {
            let text = row.get(at.charge).unwrap_or_default();
            // Outside the range it has been reported already.
            if text.parse::<f64>().is_ok_and(|q| q.abs() < 1.0) {
                let column = self.column(at.charge);
                self.report(line, &column, text, "-1 or 1");
            }
        }
        SourceObject {
            kind,
            pt,
            eta,
            phi,
            charge,
            dxy,
            iso,
            chi2: 0.0,
        }
    }

    /// The object by its number in the scheme of the Particle Data Group; a jet is a gluon's.
    fn kind(&mut self, line: u64, row: &StringRecord, column: usize) -> ObjectKind {
        let text = row.get(column).unwrap_or_default();
        match text {
            "13" | "-13" => ObjectKind::Muon,
            "11" | "-11" => ObjectKind::Electron,
            "21" => ObjectKind::Jet,
            "22" => ObjectKind::Photon,
            _ => {
                let name = self.column(column);
                self.report(
                    line,
                    &name,
                    text,
                    "-13, -11, 11, 13 (muons, electrons), 21 (jet), 22 (photon) or 0 (none)",
                );
                ObjectKind::Track
            }
        }
    }

    fn column(&self, column: usize) -> String {
        self.header.get(column).unwrap_or_default().to_owned()
    }

    fn run(&mut self, line: u64, row: &StringRecord, column: usize) -> RunNumber {
        let text = row.get(column).unwrap_or_default();
        RunNumber(text.parse().unwrap_or_else(|_| {
            let name = self.column(column);
            self.report(line, &name, text, "a whole number, 0 to 4294967295");
            0
        }))
    }

    /// An event number. Some CMS files went through a signed 32-bit integer; what is negative there
    /// was above 2^31 and is restored.
    fn event(&mut self, line: u64, row: &StringRecord, column: usize) -> EventNumber {
        let text = row.get(column).unwrap_or_default();
        let wrapped = || {
            text.parse::<i32>()
                .ok()
                .map(|n| u64::from(n.cast_unsigned()))
        };
        let number = text.parse().ok().or_else(wrapped);
        EventNumber(number.unwrap_or_else(|| {
            let name = self.column(column);
            let allowed = "a whole number, -2147483648 to 18446744073709551615";
            self.report(line, &name, text, allowed);
            0
        }))
    }

    /// A number, read with double precision and then narrowed, as the format page says.
    fn number(
        &mut self,
        line: u64,
        row: &StringRecord,
        column: usize,
        allowed: &str,
        range: core::ops::RangeInclusive<f64>,
    ) -> f32 {
        let text = row.get(column).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(value) if range.contains(&value) => value as f32,
            _ => {
                let name = self.column(column);
                self.report(line, &name, text, allowed);
                0.0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused_with_the_most_that_is_read() {
        let text = "Run,Event,PID1,pt1,eta1,phi1,Q1\n1,2,13,20,0.5,1.0,1\n";
        let most = ByteSize(text.len() as u64);
        let read = RecordedEvents::read_at_most(text.as_bytes(), most);
        assert_eq!(read.expect("it is as long as allowed").rows(), 1);
        let endless = text.as_bytes().chain(std::io::repeat(b'\n'));
        let error = RecordedEvents::read_at_most(endless, most).expect_err("it has no end");
        let said = "events could not be read: more than 52 B, the most allowed; give fewer rows or columns";
        assert_eq!(error.to_string(), said);
    }
}
