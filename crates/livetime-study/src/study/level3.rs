//! `level3`: the Level-3 note (paper 002): throughput against processors and subfarms, and what the
//! note says of sleeps, socket buffers and memory.
//!
//! Measured: the whole stage of this program with events of 150 kB on two cores, for numbers of
//! filter units and of subfarms, with events in shared memory and over TCP; a stream with small
//! buffers; the shortest sleep; copies. Simulated, by the protocol code in simulated time
//! (`simulated_farm`): 1 to 16 subfarms of converters with the 16.5 MB/s of the paper's port,
//! processors that sleep, streams with small buffers, converters that their memory slows down, and
//! the paper's 229 processors. Not simulated: retransmission and slow start on the streams.

mod page;
mod simulated_farm;
mod this_machine;

use std::time::Duration;

use livetime_fabric::chain::EventStream;
use livetime_fabric::time::DurationPs;
use serde_json::{Value, json};

use super::row::{Row, within};
use crate::bench::BenchError;
use crate::bench::document::rounded;
use crate::report::Report;
use simulated_farm::{Farm, calibrated_message, hand_over_s};
use this_machine::Stage;

/// Name of the document's format.
pub const SCHEMA: &str = "livetime.study_level3/2";
const LINKS: u16 = 8;
const FRAGMENT_BYTES: u64 = 18_752;
const EVENT_BYTES: f64 = FRAGMENT_BYTES as f64 * LINKS as f64;
/// The paper's port of a converter \[MB/s\].
const PORT_MB_PER_S: f64 = 16.5;
/// 300 Hz x 150 kB and 1 kHz x 250 kB over 16 subfarms, and what the paper's text says \[MB/s\].
const BASE: f64 = 300.0 * 0.15 / 16.0;
const ENHANCED: f64 = 1000.0 * 0.25 / 16.0;
const BASE_OF_TEXT: f64 = 3.8;
/// Throughput that the paper has shown of a converter, and moves of a byte on its bus.
const SHOWN_MB_PER_S: f64 = 15.0;
const PAPER_MOVES: f64 = 8.0;
const SUBFARMS: [u16; 5] = [1, 2, 4, 8, 16];
const PROCESSORS: [u16; 8] = [1, 2, 3, 4, 5, 6, 8, 12];
/// Of farms of several subfarms.
const PROCESSORS_OF_MANY: [u16; 4] = [1, 2, 4, 6];
/// Time slices of a kernel; a sleep takes one to two of them \[ms\].
const SLICES_MS: [f64; 3] = [0.0, 1.0, 10.0];
/// Buffers of both sockets of a stream \[KiB\].
const BUFFERS_KIB: [u64; 5] = [16, 32, 64, 128, 256];
/// Fast Ethernet between converter and processor, and a round trip on it.
const ETHERNET_BYTES_PER_S: u64 = 12_500_000;
const ROUND_TRIP_US: u64 = 200;
/// Memory of a converter \[MB/s\]; the paper's two buses are 66 and 100 MHz.
const MEMORY_MB_PER_S: [f64; 4] = [60.0, 90.0, 120.0, 180.0];
/// 45 000 MIPS for 300 Hz, on processors of 197 MIPS.
const MIPS: f64 = 45_000.0;
const MIPS_OF_PROCESSOR: f64 = 197.0;
const MIPS_OF_DUAL_NODE: f64 = 2.0 * 281.0;
const BASE_HZ: f64 = 300.0;
const UNITS_MEASURED: [u16; 4] = [1, 2, 4, 8];
const SUBFARMS_MEASURED: [u16; 3] = [1, 2, 4];
/// How far the plateau of a converter may be from its port \[%\].
const TOLERANCE: f64 = 5.0;

/// What the study found.
pub struct Level3Study {
    /// Everything as a document.
    pub document: Value,
    /// The same for people.
    pub report: Report,
    /// Whether the simulation is where it must be and the measured stage meets the enhanced
    /// requirement.
    pub passed: bool,
}

/// A curve: what is varied, and MB/s.
type Curve = Vec<(f64, f64)>;
/// A curve for each value of something else.
type Curves = Vec<(f64, Curve)>;

/// What was simulated.
struct Simulated {
    /// By subfarms: MB/s of all by processors of one.
    farms: Curves,
    /// By time slice \[ms\]: MB/s by processors.
    sleeps: Curves,
    /// By buffer \[KiB\]: MB/s by processors.
    buffers: Curves,
    /// MB/s by memory bandwidth \[MB/s\].
    memory: Curve,
    /// Events per second of the paper's processors.
    paper_farm_hz: f64,
}

/// What was measured.
struct Measured {
    by_units: Curve,
    by_subfarms: Curve,
    by_subfarms_tcp: Curve,
    /// By buffer of each socket \[KiB\].
    by_buffer: Curve,
    shortest_sleep_ms: f64,
    copy_gb_per_s: f64,
    receive_buffer_max_kb: Option<f64>,
}

/// Makes the study; `quick` measures for shorter times and simulates fewer events.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when an event is lost.
pub fn run(quick: bool, command: &str) -> Result<Level3Study, BenchError> {
    let time = Duration::from_millis(if quick { 300 } else { 2_000 });
    let events = if quick { 60 } else { 200 };
    let measured = measure(time)?;
    let simulated = simulate(events)?;
    let rows = rows(&simulated, &measured);
    let best = largest(&measured.by_units).max(largest(&measured.by_subfarms));
    let passed = rows.iter().all(Row::is_good) && best >= 16.0 * ENHANCED;
    let mut document = json!({
        "schema": SCHEMA,
        "quick": quick,
        "event_bytes": EVENT_BYTES,
        "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        "requirements_mb_per_s": {
            "base_per_subfarm": BASE, "base_of_text": BASE_OF_TEXT,
            "enhanced_per_subfarm": ENHANCED, "port": PORT_MB_PER_S,
        },
        "passed": passed,
    });
    document["measured"] = measured.to_json();
    document["predicted"] = simulated.to_json();
    let report = page::page(&document, command, passed, &rows, &simulated, &measured);
    Ok(Level3Study {
        document,
        report,
        passed,
    })
}

fn measure(time: Duration) -> Result<Measured, BenchError> {
    let stages = |counts: &[u16], stage: fn(u16) -> Stage| -> Result<Curve, BenchError> {
        let points = counts.iter().map(|count| {
            let rate = this_machine::measure(stage(*count), time)?;
            Ok((f64::from(*count), rate))
        });
        points.collect()
    };
    // A processor that works for as long as an event takes on the stream, as nearly as this machine can.
    let bare = this_machine::stream_mb_per_s(1 << 20, Duration::ZERO)?;
    let work = Duration::from_secs_f64(EVENT_BYTES / (bare * 1e6));
    let buffers = BUFFERS_KIB.iter().map(|kib| {
        let rate = this_machine::stream_mb_per_s(*kib as usize * 1024, work)?;
        Ok((*kib as f64, rate))
    });
    Ok(Measured {
        by_units: stages(&UNITS_MEASURED, |units| Stage {
            subfarms: 1,
            filter_units: units,
            over_tcp: false,
        })?,
        by_subfarms: stages(&SUBFARMS_MEASURED, |subfarms| Stage {
            subfarms,
            filter_units: subfarms,
            over_tcp: false,
        })?,
        by_subfarms_tcp: stages(&SUBFARMS_MEASURED, |subfarms| Stage {
            subfarms,
            filter_units: subfarms,
            over_tcp: true,
        })?,
        by_buffer: buffers.collect::<Result<Curve, BenchError>>()?,
        shortest_sleep_ms: this_machine::shortest_sleep_ms(),
        copy_gb_per_s: this_machine::copy_speed()?,
        receive_buffer_max_kb: this_machine::receive_buffer_max_kb(),
    })
}

fn simulate(events: u64) -> Result<Simulated, BenchError> {
    let message = calibrated_message(events)?;
    let curve = |processors: &[u16], farm: &dyn Fn(u16) -> Farm| -> Result<Curve, BenchError> {
        let points = processors.iter().map(|count| {
            let rate = farm(*count).mb_per_s(message, events)?;
            Ok((f64::from(*count), rate))
        });
        points.collect()
    };
    let farms = SUBFARMS.map(|subfarms| {
        let processors = match subfarms {
            1 => &PROCESSORS[..],
            _ => &PROCESSORS_OF_MANY,
        };
        let of_farm = curve(processors, &|count| Farm::new(subfarms, count))?;
        Ok((f64::from(subfarms), of_farm))
    });
    let sleeps = SLICES_MS.map(|slice_ms| {
        let of_slice = curve(&PROCESSORS, &|count| Farm {
            slice_ms,
            ..Farm::new(1, count)
        })?;
        Ok((slice_ms, of_slice))
    });
    let buffers = BUFFERS_KIB.map(|kib| {
        let of_buffer = curve(&PROCESSORS, &|count| Farm {
            stream: Some((ethernet(kib), 2)),
            ..Farm::new(1, count)
        })?;
        Ok((kib as f64, of_buffer))
    });
    let memory = MEMORY_MB_PER_S.map(|memory| {
        let farm = Farm {
            slowdown: (PORT_MB_PER_S / (memory / PAPER_MOVES)).max(1.0),
            ..Farm::new(1, 12)
        };
        Ok((memory, farm.mb_per_s(message, events)?))
    });
    let paper_farm = Farm {
        processors: processors_for_base() as u16,
        filter_s: MIPS / BASE_HZ / MIPS_OF_PROCESSOR,
        ..Farm::new(16, 1)
    };
    let collected = |curves: Vec<Result<(f64, Curve), BenchError>>| -> Result<Curves, BenchError> {
        curves.into_iter().collect()
    };
    Ok(Simulated {
        farms: collected(farms.into())?,
        sleeps: collected(sleeps.into())?,
        buffers: collected(buffers.into())?,
        memory: memory.into_iter().collect::<Result<Curve, BenchError>>()?,
        paper_farm_hz: paper_farm.events_per_s(message, 20 * events)?,
    })
}

/// The line between converter and processor with so many KiB of socket buffers.
fn ethernet(buffer_kib: u64) -> EventStream {
    EventStream {
        bytes_per_s: ETHERNET_BYTES_PER_S,
        event_bytes: EVENT_BYTES as u64,
        buffer_bytes: buffer_kib * 1024,
        round_trip: DurationPs::from_us(ROUND_TRIP_US),
    }
}

/// Processors of 197 MIPS that the base requirement takes.
fn processors_for_base() -> f64 {
    (MIPS / MIPS_OF_PROCESSOR).ceil()
}

fn largest(curve: &Curve) -> f64 {
    curve.iter().map(|point| point.1).fold(0.0, f64::max)
}

/// The value of a curve at `x`.
fn at(curve: &Curve, x: f64) -> Option<f64> {
    let point = curve.iter().find(|point| point.0 == x);
    point.map(|point| point.1)
}

fn of(curves: &Curves, key: f64) -> Option<&Curve> {
    let found = curves.iter().find(|(of, _)| *of == key);
    found.map(|(_, curve)| curve)
}

fn rows(simulated: &Simulated, measured: &Measured) -> Vec<Row> {
    let mut rows = rows_of_farms(simulated, measured);
    rows.extend(rows_of_processors(simulated));
    rows.extend(rows_of_sleeps(simulated, measured));
    rows.extend(rows_of_sockets(simulated, measured));
    rows.extend(rows_of_memory(simulated, measured));
    rows
}

fn rows_of_farms(simulated: &Simulated, measured: &Measured) -> Vec<Row> {
    let total = |subfarms| of(&simulated.farms, subfarms).map(largest);
    let (one, sixteen) = (total(1.0), total(16.0));
    let one_processor = of(&simulated.farms, 1.0).and_then(|curve| at(curve, 1.0));
    let of_two = |curve: &Curve| Some(at(curve, 2.0)? / at(curve, 1.0)?);
    vec![
        Row {
            id: "converter_mb_per_s",
            quantity: "one subfarm, its port full",
            unit: "MB/s",
            paper: Some(PORT_MB_PER_S),
            model: one,
            allowed: within(PORT_MB_PER_S, TOLERANCE),
            measured: at(&measured.by_subfarms, 1.0),
            floor: Some(measured.copy_gb_per_s * 1e3),
        },
        Row {
            id: "base_mb_per_s",
            quantity: "one subfarm with one processor, against the base requirement",
            unit: "MB/s",
            paper: Some(BASE),
            model: one_processor,
            allowed: Some((BASE, PORT_MB_PER_S)),
            measured: at(&measured.by_units, 1.0),
            floor: None,
        },
        Row {
            id: "farm_mb_per_s",
            quantity: "16 subfarms, against the enhanced requirement",
            unit: "MB/s",
            paper: Some(16.0 * ENHANCED),
            model: sixteen,
            allowed: Some((16.0 * ENHANCED, 16.0 * PORT_MB_PER_S * 1.05)),
            measured: Some(largest(&measured.by_units).max(largest(&measured.by_subfarms))),
            floor: None,
        },
        Row {
            id: "gain_of_16_subfarms",
            quantity: "16 subfarms over one",
            unit: "times",
            paper: Some(16.0),
            model: sixteen.zip(one).map(|(sixteen, one)| sixteen / one),
            allowed: within(16.0, TOLERANCE),
            measured: None,
            floor: None,
        },
        Row {
            id: "gain_of_2_subfarms",
            quantity: "two subfarms over one; here both share one core",
            unit: "times",
            paper: Some(2.0),
            model: total(2.0).zip(one).map(|(two, one)| two / one),
            allowed: within(2.0, TOLERANCE),
            measured: of_two(&measured.by_subfarms),
            floor: None,
        },
    ]
}

fn rows_of_processors(simulated: &Simulated) -> Vec<Row> {
    vec![
        Row {
            id: "processors_for_base",
            quantity: "processors of 197 MIPS for 45 000 MIPS",
            unit: "processors",
            paper: Some(229.0),
            model: Some(processors_for_base()),
            allowed: within(229.0, 0.0),
            ..Row::default()
        },
        Row {
            id: "nodes_for_base",
            quantity: "nodes of two 500 MHz processors for them",
            unit: "nodes",
            paper: Some(80.0),
            model: Some((MIPS / MIPS_OF_DUAL_NODE).round()),
            allowed: within(80.0, 0.0),
            ..Row::default()
        },
        Row {
            id: "events_per_s_of_229",
            quantity: "events of 229 processors in 16 subfarms",
            unit: "events/s",
            paper: Some(BASE_HZ),
            model: Some(simulated.paper_farm_hz),
            // A processor waits for its next event while one is handed over.
            allowed: within(BASE_HZ, TOLERANCE),
            ..Row::default()
        },
    ]
}

fn rows_of_sleeps(simulated: &Simulated, measured: &Measured) -> Vec<Row> {
    let four = |slice| of(&simulated.sleeps, slice).and_then(|curve| at(curve, 4.0));
    let share = |slice: f64| Some(four(slice)? / four(0.0)?);
    // The processors' cycle is longer by one and a half slices.
    let cycle_s = simulated_farm::PROCESSORS_PER_CONVERTER * hand_over_s();
    let expected = |slice: f64| cycle_s / (cycle_s + 1.5e-3 * slice);
    vec![
        Row {
            id: "share_at_10_ms",
            quantity: "four processors that sleep in slices of 10 ms, of those that do not",
            unit: "share",
            model: share(10.0),
            allowed: within(expected(10.0), TOLERANCE),
            ..Row::default()
        },
        Row {
            id: "share_at_1_ms",
            quantity: "the same in slices of 1 ms",
            unit: "share",
            model: share(1.0),
            allowed: within(expected(1.0), TOLERANCE),
            ..Row::default()
        },
        Row {
            id: "shortest_sleep_ms",
            quantity: "shortest sleep, one to two slices of 1 ms",
            unit: "ms",
            paper: Some(1.5),
            measured: Some(measured.shortest_sleep_ms),
            ..Row::default()
        },
    ]
}

fn rows_of_sockets(simulated: &Simulated, measured: &Measured) -> Vec<Row> {
    let one = |kib| of(&simulated.buffers, kib).and_then(|curve| at(curve, 1.0));
    let share = |kib: f64| Some(one(kib)? / one(256.0)?);
    let here = |kib: f64| Some(at(&measured.by_buffer, kib)? / at(&measured.by_buffer, 256.0)?);
    // At most it waits for all that the buffers do not hold of the next event: for less where that
    // event was handed over late, since then it waits with large buffers as well.
    let expected = |kib: f64| {
        let filter_s = simulated_farm::PROCESSORS_PER_CONVERTER * hand_over_s();
        let waits_s = (EVENT_BYTES - kib * 1024.0) / ETHERNET_BYTES_PER_S as f64;
        filter_s / (filter_s + waits_s)
    };
    let row = |id, quantity, kib| Row {
        id,
        quantity,
        unit: "share",
        model: share(kib),
        allowed: Some((expected(kib) * (1.0 - TOLERANCE / 100.0), 1.0)),
        measured: here(kib),
        ..Row::default()
    };
    vec![
        row(
            "share_at_16_kib",
            "a processor behind socket buffers of 16 KiB, of one behind 256 KiB",
            16.0,
        ),
        row("share_at_64_kib", "the same with 64 KiB", 64.0),
        row("share_at_128_kib", "the same with 128 KiB", 128.0),
        Row {
            id: "input_buffer_kb",
            quantity: "buffer at the port for a stall of 10 ms; here the most a socket gets",
            unit: "kB",
            model: Some(PORT_MB_PER_S * 10.0),
            measured: measured.receive_buffer_max_kb,
            ..Row::default()
        },
    ]
}

fn rows_of_memory(simulated: &Simulated, measured: &Measured) -> Vec<Row> {
    let rate = |memory| at(&simulated.memory, memory);
    let row = |id, quantity, memory: f64| Row {
        id,
        quantity,
        unit: "MB/s",
        model: rate(memory),
        allowed: within((memory / PAPER_MOVES).min(PORT_MB_PER_S), TOLERANCE),
        ..Row::default()
    };
    vec![
        Row {
            paper: Some(SHOWN_MB_PER_S),
            measured: Some(measured.copy_gb_per_s * 1e3 / PAPER_MOVES),
            floor: Some(measured.copy_gb_per_s * 1e3),
            ..row(
                "converter_at_120_mb_per_s",
                "a converter that moves each byte 8 times, memory of 120 MB/s; here ours",
                120.0,
            )
        },
        row(
            "converter_at_60_mb_per_s",
            "the same with memory of 60 MB/s",
            60.0,
        ),
        row(
            "converter_at_180_mb_per_s",
            "the same with memory of 180 MB/s: the port is the limit",
            180.0,
        ),
    ]
}

fn curve_json(curve: &Curve) -> Value {
    let points = curve.iter();
    points.map(|(x, y)| json!([x, rounded(*y)])).collect()
}

impl Measured {
    fn to_json(&self) -> Value {
        json!({
            "simulated": false,
            "mb_per_s_by_filter_units": curve_json(&self.by_units),
            "mb_per_s_by_subfarms": curve_json(&self.by_subfarms),
            "mb_per_s_by_subfarms_over_tcp": curve_json(&self.by_subfarms_tcp),
            "mb_per_s_by_socket_buffer_kib": curve_json(&self.by_buffer),
            "shortest_sleep_ms": rounded(self.shortest_sleep_ms),
            "copy_gb_per_s": rounded(self.copy_gb_per_s),
            "receive_buffer_max_kb": self.receive_buffer_max_kb,
        })
    }
}

impl Simulated {
    fn to_json(&self) -> Value {
        let curves = |curves: &Curves, key: &str| -> Vec<Value> {
            let each = curves.iter();
            let each = each.map(
                |(value, curve)| json!({ key: value, "mb_per_s_by_processors": curve_json(curve) }),
            );
            each.collect()
        };
        json!({
            "simulated": true,
            "farms": curves(&self.farms, "subfarms"),
            "sleep_granularity": curves(&self.sleeps, "slice_ms"),
            "socket_buffers": curves(&self.buffers, "buffer_kib"),
            "mb_per_s_by_memory_mb_per_s": curve_json(&self.memory),
            "events_per_s_of_229_processors": rounded(self.paper_farm_hz),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_forms_are_those_of_the_note() {
        assert_eq!(processors_for_base(), 229.0);
    }
}
