//! `filar`: the measurements of the FILAR slides (paper 001), as a model and on this machine.
//!
//! Throughput, rate and time of the host per fragment against the length of fragments, for 1 to 12
//! channels, with the single-cycle and the DMA-protocol firmware. The model is the event-driven one of
//! `livetime_fabric::host_bus`, with cards, buses and a processor of their time; its rows have the
//! tolerances of the comparison. This machine has no such cards: its channels are links with both
//! ends through shared memory ([`crate::bench::card_stream`]), one core sending and one receiving,
//! beside a plain stream through a ring.

use livetime_fabric::host_bus::{
    BusParameters, ReceiverHostConfig, receiver_throughput, transmitter_throughput,
};
use livetime_readout::card::ReceiverKind;
use serde_json::{Value, json};

use super::row::{Row, table, within};
use crate::bench::BenchError;
use crate::bench::card_readout::{BATCH, ring_stream};
use crate::bench::card_stream::{Stream, stream};
use crate::bench::document::rounded;
use crate::plot::{Axis, LinePlot, Series};
use crate::report::{Figure, Report, Table};

/// Name of the document's format.
pub const SCHEMA: &str = "livetime.study_filar/1";
/// Lengths of fragments, in bytes.
const LENGTHS: [usize; 10] = [64, 128, 256, 512, 1000, 2048, 4096, 8192, 16_384, 65_536];
const LENGTHS_QUICK: [usize; 6] = [128, 512, 1000, 4096, 16_384, 65_536];
/// Length of the rows for long fragments.
const LONG: usize = 16_384;
/// Lengths at which the slides compare firmwares and rates.
const KILOBYTE: u64 = 1024;
const RATE_BYTES: usize = 1000;
/// Most channels.
const CHANNELS_MAX: usize = 12;
/// Channel counts that the plots show.
const SHOWN: [usize; 4] = [1, 3, 9, 12];
/// What the slides say: id, quantity, unit and figure.
const SLIDES: [(&str, &str, &str, f64); 8] = [
    ("one_channel", "one channel, long fragments", "MB/s", 160.0),
    (
        "three_channels",
        "three channels of a card, long fragments",
        "MB/s",
        450.0,
    ),
    (
        "dma_gain_1_kb",
        "gain of the DMA protocol at 1 kB, three channels",
        "%",
        25.0,
    ),
    (
        "dma_gain_long",
        "gain of the DMA protocol for long fragments",
        "%",
        0.0,
    ),
    (
        "three_cards",
        "three cards, nine channels, long fragments",
        "MB/s",
        1100.0,
    ),
    (
        "rate",
        "rate of each of nine channels, 1000 B",
        "kHz",
        100.0,
    ),
    ("transmitter", "transmitter, two channels", "MB/s", 360.0),
    ("saw_tooth", "distance of the saw's teeth", "B", 1024.0),
];

/// The study's results.
#[derive(Debug)]
pub struct FilarStudy {
    /// The JSON document.
    pub document: Value,
    /// The page.
    pub report: Report,
    /// Whether every row of the model is within its tolerance.
    pub passed: bool,
}

/// Sizes of the study.
#[derive(Debug, Clone, Copy)]
struct Effort {
    lengths: &'static [usize],
    /// Seconds of a measured point.
    seconds: f64,
    /// Fragments of a simulated point.
    fragments: u64,
}

/// A firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Firmware {
    SingleCycle,
    Dma,
}

impl Firmware {
    const BOTH: [Self; 2] = [Self::SingleCycle, Self::Dma];

    fn name(self) -> &'static str {
        match self {
            Self::SingleCycle => "single-cycle",
            Self::Dma => "DMA protocol",
        }
    }

    fn kind(self) -> ReceiverKind {
        match self {
            Self::SingleCycle => ReceiverKind::FilarSingleCycle,
            Self::Dma => ReceiverKind::FilarDma,
        }
    }

    /// Entries of a block here.
    fn batch(self) -> usize {
        match self {
            Self::SingleCycle => 1,
            Self::Dma => BATCH,
        }
    }

    /// Cards, and channels of each, that make so many channels; cards are equally used.
    fn cards(self, channels: usize) -> Option<(u32, u32)> {
        let of_card = match self {
            Self::SingleCycle => 4,
            Self::Dma => 3,
        };
        let cards = channels.div_ceil(of_card);
        (channels.is_multiple_of(cards)).then_some((cards as u32, (channels / cards) as u32))
    }
}

/// One point of a curve.
#[derive(Debug, Clone, Copy)]
struct Point {
    bytes: usize,
    megabytes_per_s: f64,
    /// Of each channel.
    rate_hz: f64,
    host_us: f64,
}

/// A curve against the length.
struct Curve {
    firmware: Firmware,
    channels: usize,
    points: Vec<Point>,
}

impl Curve {
    fn at(&self, bytes: usize) -> Option<&Point> {
        self.points.iter().find(|point| point.bytes == bytes)
    }

    fn to_json(&self) -> Value {
        let point = |point: &Point| {
            json!([
                point.bytes,
                rounded(point.megabytes_per_s),
                rounded(point.rate_hz),
                rounded(point.host_us),
            ])
        };
        json!({
            "firmware": self.firmware.name(),
            "channels": self.channels,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
        })
    }
}

/// Simulates and measures everything.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a fragment is lost.
pub fn run(quick: bool, command: &str) -> Result<FilarStudy, BenchError> {
    make(
        if quick {
            Effort {
                lengths: &LENGTHS_QUICK,
                seconds: 0.03,
                fragments: 1500,
            }
        } else {
            Effort {
                lengths: &LENGTHS,
                seconds: 0.3,
                fragments: 3000,
            }
        },
        command,
    )
}

fn make(effort: Effort, command: &str) -> Result<FilarStudy, BenchError> {
    let (mut model, mut measured) = (Vec::new(), Vec::new());
    for firmware in Firmware::BOTH {
        for channels in 1..=CHANNELS_MAX {
            if let Some(cards) = firmware.cards(channels) {
                let points = effort.lengths.iter();
                let point = |bytes: &usize| modelled(firmware, cards, *bytes, effort.fragments);
                let points = points.map(point).collect();
                model.push(Curve {
                    firmware,
                    channels,
                    points,
                });
            }
            let points = effort.lengths.iter();
            let point = |bytes: &usize| measure(firmware, channels, *bytes, effort.seconds);
            measured.push(Curve {
                firmware,
                channels,
                points: points.map(point).collect::<Result<_, _>>()?,
            });
        }
    }
    let floors = effort.lengths.iter().map(|bytes| {
        let per_s = ring_stream(*bytes, effort.seconds)?;
        Ok((*bytes, per_s * *bytes as f64 / 1e6))
    });
    let found = Found {
        rows_of_model: ModelRows::simulate(),
        model,
        measured,
        floors: floors.collect::<Result<_, BenchError>>()?,
    };
    let rows = found.rows();
    let document = found.document(&rows, effort, command);
    Ok(FilarStudy {
        passed: rows.iter().all(Row::is_good),
        report: Report {
            summary_json: document.to_string(),
            ..found.report(&rows, command)
        },
        document,
    })
}

fn simulated(
    firmware: Firmware,
    (cards, channels): (u32, u32),
    bytes: u64,
    fragments: u64,
) -> livetime_fabric::host_bus::Throughput {
    let config = ReceiverHostConfig {
        parameters: BusParameters::FILAR,
        cards,
        kind: firmware.kind(),
        channels,
        fragment_bytes: bytes,
    };
    receiver_throughput(config, fragments)
}

fn modelled(firmware: Firmware, cards: (u32, u32), bytes: usize, fragments: u64) -> Point {
    let throughput = simulated(firmware, cards, bytes as u64, fragments);
    let all = throughput.rate_hz * f64::from(cards.0 * cards.1);
    Point {
        bytes,
        megabytes_per_s: throughput.megabytes_per_s,
        rate_hz: throughput.rate_hz,
        host_us: throughput.cpu_use / all * 1e6,
    }
}

fn measure(
    firmware: Firmware,
    channels: usize,
    bytes: usize,
    seconds: f64,
) -> Result<Point, BenchError> {
    let streamed = stream(&Stream {
        channels,
        bytes,
        batch: firmware.batch(),
        rate_hz: None,
        seconds,
    })?;
    streamed.check()?;
    let per_s = streamed.per_s();
    Ok(Point {
        bytes,
        megabytes_per_s: per_s * bytes as f64 / 1e6,
        rate_hz: per_s / channels as f64,
        host_us: streamed.host_ns * 1e-3,
    })
}

/// What the model says to the slides' own figures, simulated with as many fragments as its tests.
struct ModelRows {
    one_channel: f64,
    three_channels: f64,
    gain_at_1k: f64,
    gain_of_long: f64,
    three_cards: f64,
    rate_hz: f64,
    transmitter: f64,
    saw_tooth: f64,
}

impl ModelRows {
    fn simulate() -> Self {
        use Firmware::{Dma, SingleCycle};
        const FRAGMENTS: u64 = 3000;
        let long = LONG as u64;
        let rate = |firmware, cards, bytes| simulated(firmware, cards, bytes, FRAGMENTS);
        let mb = |firmware, cards, bytes| rate(firmware, cards, bytes).megabytes_per_s;
        let gain = |bytes| (mb(Dma, (1, 3), bytes) / mb(SingleCycle, (1, 3), bytes) - 1.0) * 100.0;
        Self {
            one_channel: mb(SingleCycle, (1, 1), long),
            three_channels: mb(SingleCycle, (1, 3), long),
            gain_at_1k: gain(KILOBYTE),
            gain_of_long: gain(2 * long),
            three_cards: mb(Dma, (3, 3), long),
            rate_hz: rate(Dma, (3, 3), RATE_BYTES as u64).rate_hz,
            transmitter: transmitter_throughput(&BusParameters::TRANSMITTER, 2, long, 20),
            saw_tooth: saw_tooth(|bytes| mb(Dma, (1, 3), bytes)),
        }
    }

    /// The slides' figures beside the model's, in the order of [`SLIDES`].
    fn rows(&self) -> [Row; SLIDES.len()] {
        let model = [
            (self.one_channel, Some((154.8, 160.0))),
            (self.three_channels, within(450.0, 5.0)),
            (self.gain_at_1k, Some((20.0, 30.0))),
            (self.gain_of_long, Some((-3.0, 3.0))),
            (self.three_cards, within(1100.0, 5.0)),
            (self.rate_hz * 1e-3, Some((100.0, f64::INFINITY))),
            (self.transmitter, within(360.0, 5.0)),
            (self.saw_tooth, Some((1024.0, 1024.0))),
        ];
        let mut rows = SLIDES.map(|(id, quantity, unit, paper)| Row {
            id,
            quantity,
            unit,
            paper: Some(paper),
            ..Row::default()
        });
        for (row, (model, allowed)) in rows.iter_mut().zip(model) {
            (row.model, row.allowed) = (Some(model), allowed);
        }
        rows
    }
}

/// The mean distance of the lengths at which throughput drops: behind each a burst of a few bytes
/// costs a whole overhead.
fn saw_tooth(throughput: impl Fn(u64) -> f64) -> f64 {
    let mut drops = Vec::new();
    let mut before = throughput(1024 - 128);
    for bytes in (1024..=6144_u64).step_by(128) {
        let now = throughput(bytes);
        if now < before * 0.985 {
            drops.push(bytes);
        }
        before = now;
    }
    match drops.as_slice() {
        [first, .., last] => (last - first) as f64 / (drops.len() - 1) as f64,
        _ => f64::NAN,
    }
}

/// Everything that was found.
struct Found {
    rows_of_model: ModelRows,
    model: Vec<Curve>,
    measured: Vec<Curve>,
    /// Bytes of a message, and MB/s of a plain stream through a ring.
    floors: Vec<(usize, f64)>,
}

impl Found {
    fn here(&self, firmware: Firmware, channels: usize, bytes: usize) -> Option<&Point> {
        let mut curves = self.measured.iter();
        let curve = curves.find(|c| c.firmware == firmware && c.channels == channels)?;
        curve.at(bytes)
    }

    fn rows(&self) -> Vec<Row> {
        use Firmware::{Dma, SingleCycle};
        let mb = |firmware, channels| {
            let point = self.here(firmware, channels, LONG);
            point.map(|point| point.megabytes_per_s)
        };
        let gain = |bytes| {
            let of = |firmware| Some(self.here(firmware, 3, bytes)?.megabytes_per_s);
            Some((of(Dma)? / of(SingleCycle)? - 1.0) * 100.0)
        };
        let floor_at = |bytes| {
            let mut floors = self.floors.iter();
            Some(floors.find(|(length, _)| *length == bytes)?.1)
        };
        let floor = floor_at(LONG);
        let rate = self.here(Dma, 9, RATE_BYTES);
        let rate_floor = floor_at(RATE_BYTES).map(|mb| mb * 1e3 / RATE_BYTES as f64 / 9.0);
        let here = [
            (mb(SingleCycle, 1), floor),
            (mb(SingleCycle, 3), floor),
            (gain(RATE_BYTES), None),
            (gain(LONG), None),
            (mb(Dma, 9), floor),
            (rate.map(|point| point.rate_hz * 1e-3), rate_floor),
            (None, None),
            (None, None),
        ];
        let with_here = |(row, (measured, floor))| Row {
            measured,
            floor,
            ..row
        };
        self.rows_of_model
            .rows()
            .into_iter()
            .zip(here)
            .map(with_here)
            .collect()
    }

    fn document(&self, rows: &[Row], effort: Effort, command: &str) -> Value {
        let curves = |curves: &[Curve]| curves.iter().map(Curve::to_json).collect::<Vec<_>>();
        let columns = json!([
            "bytes",
            "mb_per_s",
            "rate_hz_per_channel",
            "host_us_per_fragment"
        ]);
        json!({
            "schema": SCHEMA,
            "command": command,
            "passed": rows.iter().all(Row::is_good),
            "seconds_of_a_point": effort.seconds,
            "entries_of_a_block": BATCH,
            "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            "model": { "columns": columns, "curves": curves(&self.model) },
            "measured": { "columns": columns, "curves": curves(&self.measured) },
            "ring_stream_mb_per_s": self.floors,
        })
    }

    fn report(&self, rows: &[Row], command: &str) -> Report {
        let outside = rows.iter().filter(|row| !row.is_good()).count();
        Report {
            title: "Study filar".to_owned(),
            subtitle: "cards, buses and their host as a model; on this machine links through \
                       shared memory, one core sending and one receiving"
                .to_owned(),
            verdict: if outside == 0 {
                "every row of the model is within its tolerance".to_owned()
            } else {
                format!("{outside} rows of the model are outside their tolerance")
            },
            verdict_good: outside == 0,
            figures: self.figures(),
            tables: vec![
                table("The slides' figures", "slides", rows),
                self.table_of_host(),
            ],
            command: command.to_owned(),
            ..Report::default()
        }
    }

    /// Time of the host per fragment, of the model and here.
    fn table_of_host(&self) -> Table {
        let lengths: Vec<usize> = self.floors.iter().map(|(bytes, _)| *bytes).collect();
        let mut headings = vec!["firmware".to_owned(), "channels".to_owned()];
        headings.extend(lengths.iter().map(|bytes| format!("{bytes} B")));
        let row = |what: &str, curve: &Curve| {
            let name = format!("{}, {what}", curve.firmware.name());
            let mut cells = vec![name, curve.channels.to_string()];
            cells.extend(curve.points.iter().map(|p| format!("{:.3}", p.host_us)));
            cells
        };
        let shown = |curves: &'_ [Curve], what: &str| -> Vec<Vec<String>> {
            let shown = curves.iter().filter(|c| SHOWN.contains(&c.channels));
            shown.map(|curve| row(what, curve)).collect()
        };
        let mut rows = shown(&self.model, "model");
        rows.extend(shown(&self.measured, "here"));
        Table {
            caption: "Time of the host per fragment, in us".to_owned(),
            headings,
            rows,
            ..Table::default()
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let series = |curves: &[Curve], of: fn(&Point) -> f64| -> Vec<Series> {
            let shown = curves.iter().filter(|c| SHOWN.contains(&c.channels));
            let series = shown.map(|curve| Series {
                label: format!("{}, {} ch", curve.firmware.name(), curve.channels),
                points: (curve.points.iter())
                    .map(|point| (point.bytes as f64, of(point)))
                    .collect(),
            });
            series.collect()
        };
        let floor = Series {
            label: "stream through a ring".to_owned(),
            points: self.floors.iter().map(|(b, mb)| (*b as f64, *mb)).collect(),
        };
        let figure = |title: &str, unit: &str, series, caption: &str| Figure {
            svg: LinePlot {
                title: title.to_owned(),
                x: Axis::log("length of a fragment [B]"),
                y: Axis::log(unit),
                series,
            }
            .to_svg(),
            caption: caption.to_owned(),
        };
        let mut here = series(&self.measured, |point| point.megabytes_per_s);
        here.push(floor);
        vec![
            figure(
                "Throughput, model",
                "all channels [MB/s]",
                series(&self.model, |point| point.megabytes_per_s),
                "Event-driven model of the slides' cards; 12 single-cycle channels are three cards.",
            ),
            figure(
                "Throughput, here",
                "all channels [MB/s]",
                here,
                "Links through shared memory. The stream through a ring writes and reads as many bytes, and checks nothing.",
            ),
            figure(
                "Rate, model",
                "of each channel [Hz]",
                series(&self.model, |point| point.rate_hz),
                "The slides sustain 100 kHz below 1 kB on nine channels.",
            ),
            figure(
                "Rate, here",
                "of each channel [Hz]",
                series(&self.measured, |point| point.rate_hz),
                "All channels share one sending and one receiving core.",
            ),
            figure(
                "Time of the host per fragment, here",
                "host [us]",
                series(&self.measured, |point| point.host_us),
                "Reading entries, checking with CRC-32C, filing and giving pages back; waiting is not in it.",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_study_has_every_curve_and_the_model_its_rows() {
        const EFFORT: Effort = Effort {
            lengths: &[RATE_BYTES, LONG],
            seconds: 0.002,
            fragments: 300,
        };
        let study = make(EFFORT, "test").unwrap();
        assert!(study.passed, "{:#}", study.document["rows"]);
        let rows = study.document["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| row["model_within"] == true));
        let curves = study.document["measured"]["curves"].as_array().unwrap();
        assert_eq!(curves.len(), 2 * CHANNELS_MAX);
        // What cards share equally: 1 to 4, 6, 8, 9, 12 of four each, 1 to 4, 6, 9, 12 of three.
        let curves = study.document["model"]["curves"].as_array().unwrap();
        assert_eq!(curves.len(), 8 + 7);
        assert_eq!(study.report.figures.len(), 5);
        assert!(study.report.verdict_good);
    }

    #[test]
    fn cards_are_used_equally_or_not_modelled() {
        assert_eq!(Firmware::SingleCycle.cards(12), Some((3, 4)));
        assert_eq!(Firmware::Dma.cards(12), Some((4, 3)));
        assert_eq!(Firmware::Dma.cards(9), Some((3, 3)));
        assert_eq!(Firmware::SingleCycle.cards(6), Some((2, 3)));
        assert_eq!(Firmware::SingleCycle.cards(7), None);
    }
}
