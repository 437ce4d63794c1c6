//! `builder --grid`: the event builder for several numbers of units and fragment sizes, over shared
//! memory and over TCP.
//!
//! Over shared memory each cell is the bench [`super::builder`] of another shape, on one core (its
//! floor is measured there); over TCP it is `builder_tcp`, on two, with bare TCP as its floor.
//! Control messages and copies are counted in each cell.

use std::cell::RefCell;

use serde_json::{Map, Value, json};

use super::builder::{Builders, Shape};
use super::builder_tcp::{RawTcp, TcpBuilders};
use super::document::{BenchDocument, Target, median, rounded, time_per_item};
use super::interleave::{LIKE_FLOORS, interleave};
use super::two_cores::run_alone;
use super::{BenchError, BenchOptions};

/// Readout units x builder units.
const UNITS: [(u16, u16); 3] = [(1, 1), (2, 2), (4, 4)];
/// Bytes of a fragment.
const FRAGMENT_BYTES: [usize; 4] = [256, 2 << 10, 16 << 10, 64 << 10];
/// Payload of a block, at the most so many events.
const BLOCK_BYTES: u64 = 64 << 20;
const BLOCK_EVENTS: u64 = 2_000;
/// Share of bare TCP that is to be reached.
const OF_RAW_TCP: f64 = 0.8;
/// Most messages to a readout unit for each 8 events of a builder unit.
const CONTROL_MESSAGES: f64 = 4.0;

struct Size {
    blocks: usize,
    events: u64,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when the machine refuses something, or when a fragment is lost.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let mut document = BenchDocument::new("builder");
    let mut cells = Vec::new();
    for (readout_units, builder_units) in UNITS {
        for bytes in FRAGMENT_BYTES {
            let shape = Shape {
                readout_units,
                builder_units,
                fragment_words: bytes / 4,
            };
            let of_block = BLOCK_BYTES / (shape.sources() * shape.fragment_bytes());
            let size = match options.quick {
                true => Size {
                    blocks: 1,
                    events: 20,
                },
                false => Size {
                    blocks: 9,
                    events: of_block.clamp(50, BLOCK_EVENTS),
                },
            };
            cells.push(shm_cell(&mut document, shape, &size)?);
            cells.push(tcp_cell(&mut document, shape, &size)?);
        }
    }
    document.add_result("grid", Value::Array(cells));
    Ok(document)
}

fn name(transport: &str, shape: Shape) -> String {
    format!(
        "{transport}_{}x{}_{}",
        shape.readout_units,
        shape.builder_units,
        match shape.fragment_bytes() {
            bytes if bytes < 1024 => format!("{bytes}B"),
            bytes => format!("{}KiB", bytes >> 10),
        }
    )
}

/// What all cells have.
fn cell(transport: &str, shape: Shape, ns_per_fragment: &[f64]) -> Map<String, Value> {
    let rate = 1e9 / median(ns_per_fragment);
    let mut cell = Map::new();
    cell.insert("transport".to_owned(), transport.into());
    cell.insert("readout_units".to_owned(), shape.readout_units.into());
    cell.insert("builder_units".to_owned(), shape.builder_units.into());
    cell.insert("fragment_bytes".to_owned(), shape.fragment_bytes().into());
    cell.insert("fragments_per_s".to_owned(), rounded(rate));
    let bytes_per_s = rate * shape.fragment_bytes() as f64;
    cell.insert("bytes_per_s".to_owned(), rounded(bytes_per_s));
    cell.insert("fragment_ns".to_owned(), time_per_item(ns_per_fragment));
    cell
}

/// The counts that every cell must keep.
fn add_targets(
    document: &mut BenchDocument,
    cell: &mut Map<String, Value>,
    name: &str,
    control_messages: f64,
    lost: u64,
) {
    let key = "control_messages_per_8_events_and_pair";
    cell.insert(key.to_owned(), rounded(control_messages));
    cell.insert("lost".to_owned(), lost.into());
    let control = Target::at_most(format!("{name}_{key}"), control_messages, CONTROL_MESSAGES);
    document.add_target(control);
    document.add_target(Target::at_most(format!("{name}_lost"), lost as f64, 0.0));
}

/// One cell over shared memory: page numbers go from unit to unit, payload stays.
fn shm_cell(document: &mut BenchDocument, shape: Shape, size: &Size) -> Result<Value, BenchError> {
    let (times, account) = run_alone(|| {
        let mut units = Builders::new(shape)?;
        units.build(size.events, None)?;
        let mut times = Vec::new();
        for _ in 0..size.blocks {
            times.push(units.build(size.events, None)?.ns_per_fragment);
        }
        Ok((times, units.account()?))
    })?;
    let name = name("shm", shape);
    let mut cell = cell("shm", shape, &times);
    // What the readout unit's page holds is what the filter unit reads.
    cell.insert("copies_per_byte".to_owned(), json!(0));
    cell.insert("kernel_copies_per_byte".to_owned(), json!(0));
    let lost = account.lost + account.incomplete;
    add_targets(document, &mut cell, &name, account.control_messages, lost);
    if (shape.readout_units, shape.builder_units) == (2, 2) && shape.fragment_bytes() == 2048 {
        let rate = 1e9 / median(&times);
        document.add_target(Target::at_least(
            format!("{name}_fragments_per_s"),
            rate,
            2e6,
        ));
    }
    Ok(cell.into())
}

/// One cell over TCP, between blocks of bare TCP.
fn tcp_cell(document: &mut BenchDocument, shape: Shape, size: &Size) -> Result<Value, BenchError> {
    let units = RefCell::new(TcpBuilders::new(shape)?);
    let mut raw = RawTcp::new(shape)?;
    // The first block says how much goes out in a call.
    units.borrow_mut().build(size.events)?;
    let per_call = units.borrow().account()?.bytes_per_writev as usize;
    let pairs = u64::from(shape.readout_units) * u64::from(shape.builder_units);
    let per_stream = size.events * shape.sources() * shape.fragment_bytes() / pairs;
    let measured = interleave(
        size.blocks,
        LIKE_FLOORS,
        || raw.measure(per_stream, per_call),
        || Ok(units.borrow_mut().build(size.events)?.ns_per_fragment),
        |floor| *floor,
    )?;
    let selection = measured.select(|floor| *floor, |_| ());
    let times = selection.all(|kept| *kept.block);
    let bytes = shape.fragment_bytes() as f64;
    let to_raw = selection.median(|kept| 1e9 * bytes / kept.block / kept.floor(|floor| *floor));
    let account = units.borrow().account()?;
    let name = name("tcp", shape);
    let mut cell = cell("tcp", shape, &times);
    let payload = account.payload_sent.max(1) as f64;
    let direct = account.payload_received as f64 / payload;
    // What did not go from the page of one end straight into a page of the other was copied.
    cell.insert("copies_per_byte".to_owned(), rounded(1.0 - direct));
    cell.insert("kernel_copies_per_byte".to_owned(), rounded(1.0 + direct));
    cell.insert("bytes_per_writev".to_owned(), per_call.into());
    cell.insert("streams".to_owned(), pairs.into());
    cell.insert(
        "congestion".to_owned(),
        units.borrow().congestion.clone().into(),
    );
    cell.insert("blocks".to_owned(), selection.to_json());
    let raw_rate = selection.median(|kept| kept.floor(|floor| *floor));
    document.add_floor(format!("raw_{name}_bytes_per_s"), rounded(raw_rate));
    document.add_ratio(format!("{name}_to_raw"), to_raw);
    document.add_target(Target::at_least(
        format!("{name}_to_raw"),
        to_raw,
        OF_RAW_TCP,
    ));
    let lost = account.lost + account.incomplete;
    add_targets(document, &mut cell, &name, account.control_messages, lost);
    Ok(cell.into())
}
