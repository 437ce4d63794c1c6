//! `builder --grid`: the event builder for several numbers of units and fragment sizes, over shared
//! memory, TCP and UDP.
//!
//! Over shared memory each cell is the bench [`super::builder`] of another shape, on one core (its
//! floor is measured there); over sockets it is `builder_network`, on two, with bare TCP or UDP as its
//! floor. Control messages, copies and, of datagrams, losses are counted in each cell. Fragments lie in
//! a page each: one that fits no datagram has a cell that says so.

use std::cell::RefCell;

use livetime_wire::ByteSize;
use livetime_wire::message_datagram::PAYLOAD_WORDS_MAX;
use serde_json::{Map, Value, json};

use super::builder::{Builders, Shape};
use super::builder_network::{
    Carrier, DatagramAccount, NetworkAccount, NetworkBuilders, PagesInUse,
};
use super::document::{BenchDocument, Target, median, rounded, time_per_item};
use super::interleave::{LIKE_FLOORS, Selection, interleave};
use super::pinned_threads::run_alone;
use super::raw_tcp::{RawTcp, Threads};
use super::raw_udp::RawUdp;
use super::{BenchError, BenchOptions};

/// Readout units x builder units.
const UNITS: [(u16, u16); 3] = [(1, 1), (2, 2), (4, 4)];
/// Bytes of a fragment.
const FRAGMENT_BYTES: [usize; 4] = [256, 2 << 10, 16 << 10, 64 << 10];
/// Payload of a block, at the most so many events.
const BLOCK_BYTES: u64 = 64 << 20;
const BLOCK_EVENTS: u64 = 16_000;
/// Share of bare TCP that is to be reached.
const OF_RAW_TCP: f64 = 0.8;
/// Most messages to a readout unit for each 8 events of a builder unit.
const CONTROL_MESSAGES: f64 = 4.0;
const CONTROL_KEY: &str = "control_messages_per_8_events_and_pair";

/// How much is measured: blocks, and events in each.
pub(super) struct Size {
    pub(super) blocks: usize,
    pub(super) events: u64,
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
            cells.push(match shape.fragment_words <= PAYLOAD_WORDS_MAX {
                true => udp_cell(&mut document, shape, &size)?,
                false => too_long(shape),
            });
        }
    }
    document.add_result("grid", Value::Array(cells));
    Ok(document)
}

pub(super) fn name(transport: &str, shape: Shape) -> String {
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

/// Which cell it is.
fn place(transport: &str, shape: Shape) -> Map<String, Value> {
    let mut cell = Map::new();
    cell.insert("name".to_owned(), name(transport, shape).into());
    cell.insert("transport".to_owned(), transport.into());
    cell.insert("readout_units".to_owned(), shape.readout_units.into());
    cell.insert("builder_units".to_owned(), shape.builder_units.into());
    cell.insert("fragment_bytes".to_owned(), shape.fragment_bytes().into());
    cell
}

/// The cell of a fragment whose page fits no datagram.
fn too_long(shape: Shape) -> Value {
    let mut cell = place("udp", shape);
    let (page, most) = (shape.fragment_bytes(), 4 * PAYLOAD_WORDS_MAX as u64);
    let reason = format!(
        "a page of {} fits no datagram: {most} B at most",
        ByteSize(page)
    );
    cell.insert("not_measured".to_owned(), reason.into());
    cell.into()
}

/// What all cells have that are measured.
fn cell(transport: &str, shape: Shape, ns_per_fragment: &[f64]) -> Map<String, Value> {
    let rate = 1e9 / median(ns_per_fragment);
    let mut cell = place(transport, shape);
    cell.insert("fragments_per_s".to_owned(), rounded(rate));
    let bytes_per_s = rate * shape.fragment_bytes() as f64;
    cell.insert("bytes_per_s".to_owned(), rounded(bytes_per_s));
    cell.insert("fragment_ns".to_owned(), time_per_item(ns_per_fragment));
    cell
}

/// What all cells over shared memory have.
pub(super) fn shared_cell(shape: Shape, ns_per_fragment: &[f64]) -> Map<String, Value> {
    let mut cell = cell("shm", shape, ns_per_fragment);
    // What the readout unit's page holds is what the filter unit reads.
    cell.insert("copies_per_byte".to_owned(), json!(0));
    cell.insert("kernel_copies_per_byte".to_owned(), json!(0));
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
    let key = CONTROL_KEY;
    cell.insert(key.to_owned(), rounded(control_messages));
    let control = Target::at_most(format!("{name}_{key}"), control_messages, CONTROL_MESSAGES);
    document.add_target(control);
    add_loss_target(document, cell, name, lost);
}

/// No event and no fragment may be lost, whatever becomes of datagrams.
pub(super) fn add_loss_target(
    document: &mut BenchDocument,
    cell: &mut Map<String, Value>,
    name: &str,
    lost: u64,
) {
    cell.insert("lost".to_owned(), lost.into());
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
    let mut cell = shared_cell(shape, &times);
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
    let name = name("tcp", shape);
    let measured = measure_tcp(document, &name, shape, size, Threads::Two)?;
    let TcpCell {
        mut cell,
        account,
        to_raw,
        floors_agree,
        ..
    } = measured;
    let target = Target::at_least(format!("{name}_to_raw"), to_raw, OF_RAW_TCP);
    document.add_target(target.where_floors_agree(floors_agree));
    let lost = account.lost + account.incomplete;
    add_targets(document, &mut cell, &name, account.control_messages, lost);
    Ok(cell.into())
}

/// A cell over TCP, and what it is judged by.
pub(super) struct TcpCell {
    pub(super) cell: Map<String, Value>,
    pub(super) account: NetworkAccount,
    /// Fragments per second.
    pub(super) rate: f64,
    to_raw: f64,
    floors_agree: bool,
}

/// The builder over TCP on these threads, between blocks of bare TCP on as many.
pub(super) fn measure_tcp(
    document: &mut BenchDocument,
    name: &str,
    shape: Shape,
    size: &Size,
    threads: Threads,
) -> Result<TcpCell, BenchError> {
    let units = RefCell::new(NetworkBuilders::new(shape, Carrier::Tcp)?);
    let build = || match threads {
        Threads::Two => Ok(units.borrow_mut().build(size.events)?.ns_per_fragment),
        Threads::OfUnits => units.borrow_mut().apart(size.events).build(shape),
    };
    // The first block says how much goes out in a call, and how many pages are in use.
    build()?;
    let per_call = units.borrow().account()?.bytes_per_call as usize;
    let in_use = units.borrow().pages_in_use();
    let mut raw = RawTcp::new(shape, in_use)?;
    let per_stream = size.events * shape.sources() * shape.fragment_bytes() / shape.pairs();
    let measured = interleave(
        size.blocks,
        LIKE_FLOORS,
        || raw.measure(threads, per_stream, per_call),
        build,
        |floor| *floor,
    )?;
    let selection = measured.select(|floor| *floor, |_| ());
    let bytes = shape.fragment_bytes() as f64;
    let bytes_per_s = |block: f64| 1e9 * bytes / block;
    let quotient =
        selection.quotient(|kept| (bytes_per_s(*kept.block), kept.floor(|floor| *floor)));
    let to_raw = quotient.value();
    let account = units.borrow().account()?;
    let mut cell = network_cell("tcp", shape, &selection, &account, to_raw);
    add_stream_facts(&mut cell, &units.borrow(), per_call, in_use);
    let raw_rate = selection.median(|kept| kept.floor(|floor| *floor));
    document.add_floor(format!("raw_{name}_bytes_per_s"), rounded(raw_rate));
    document.add_quotient(format!("{name}_to_raw"), quotient);
    Ok(TcpCell {
        cell,
        account,
        rate: 1e9 / median(&selection.all(|kept| *kept.block)),
        to_raw,
        floors_agree: !selection.unlike,
    })
}

/// How the streams of a cell were used.
fn add_stream_facts(
    cell: &mut Map<String, Value>,
    units: &NetworkBuilders,
    per_call: usize,
    in_use: PagesInUse,
) {
    for (key, fact) in [
        ("credits", units.credits.into()),
        ("bytes_per_writev", per_call.into()),
        ("pages_sent_from", in_use.sent_from.into()),
        ("pages_received_into", in_use.received_into.into()),
        ("streams", units.shape.pairs().into()),
        ("congestion", Value::from(units.congestion.clone())),
    ] {
        cell.insert(key.to_owned(), fact);
    }
}

/// One cell over UDP, between blocks of bare UDP.
fn udp_cell(document: &mut BenchDocument, shape: Shape, size: &Size) -> Result<Value, BenchError> {
    let units = RefCell::new(NetworkBuilders::new(shape, Carrier::Udp)?);
    let mut raw = RawUdp::new(shape)?;
    // The first block says how many go out in a call.
    units.borrow_mut().build(size.events)?;
    let first = units.borrow().account()?.datagrams;
    let per_call = first.sent.div_ceil(first.sends.max(1)) as usize;
    let per_pair = size.events * shape.sources() / shape.pairs();
    let measured = interleave(
        size.blocks,
        LIKE_FLOORS,
        || raw.measure(per_pair, per_call),
        || Ok(units.borrow_mut().build(size.events)?.ns_per_fragment),
        |floor| *floor,
    )?;
    let selection = measured.select(|floor| *floor, |_| ());
    // A fragment is a datagram.
    let quotient = selection.quotient(|kept| (1e9 / kept.block, kept.floor(|floor| *floor)));
    let to_raw = quotient.value();
    let account = units.borrow().account()?;
    let mut cell = network_cell("udp", shape, &selection, &account, to_raw);
    cell.insert("credits".to_owned(), units.borrow().credits.into());
    add_datagrams(&mut cell, &account, raw.datagram_bytes());
    let name = name("udp", shape);
    let raw_rate = selection.median(|kept| kept.floor(|floor| *floor));
    document.add_floor(format!("raw_{name}_datagrams_per_s"), rounded(raw_rate));
    document.add_quotient(format!("{name}_to_raw"), quotient);
    let lost = account.lost + account.incomplete;
    // What is lost is asked for again: there is no most of messages.
    cell.insert(CONTROL_KEY.to_owned(), rounded(account.control_messages));
    add_loss_target(document, &mut cell, &name, lost);
    Ok(cell.into())
}

/// What cells over sockets have.
fn network_cell(
    transport: &str,
    shape: Shape,
    selection: &Selection<'_, f64, f64>,
    account: &NetworkAccount,
    to_raw: f64,
) -> Map<String, Value> {
    let mut cell = cell(transport, shape, &selection.all(|kept| *kept.block));
    let payload = account.payload_sent.max(1) as f64;
    let received = account.payload_received as f64 / payload;
    let direct = received - account.payload_copied as f64 / payload;
    // What did not go from the page of one end straight into a page of the other was copied, or lost.
    let copied = match transport {
        "udp" => 0.0,
        _ => 1.0 - direct,
    };
    cell.insert("copies_per_byte".to_owned(), rounded(copied));
    cell.insert("kernel_copies_per_byte".to_owned(), rounded(1.0 + received));
    cell.insert("to_raw".to_owned(), rounded(to_raw));
    cell.insert("blocks".to_owned(), selection.to_json());
    cell
}

/// What became of the datagrams of all units, messages and payload, in all blocks.
fn add_datagrams(cell: &mut Map<String, Value>, account: &NetworkAccount, bytes: usize) {
    let DatagramAccount {
        sent,
        received,
        lost,
        kernel_drops,
        unsent,
        sends,
        receive_buffer_bytes,
    } = account.datagrams;
    let per_call = sent as f64 / sends.max(1) as f64;
    cell.insert("datagram_bytes".to_owned(), bytes.into());
    cell.insert("datagrams_per_sendmmsg".to_owned(), rounded(per_call));
    for (key, count) in [
        ("datagrams_sent", sent),
        ("datagrams_received", received),
        ("datagrams_lost", lost),
        ("datagrams_unsent", unsent),
        ("kernel_drops", kernel_drops),
        ("fragments_sent_again", account.sent_again),
        ("receive_buffer_bytes", receive_buffer_bytes),
    ] {
        cell.insert(key.to_owned(), count.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_of_datagrams_has_its_floor_its_losses_and_one_that_is_too_long_says_so() {
        let shape = |fragment_words| Shape {
            readout_units: 2,
            builder_units: 2,
            fragment_words,
        };
        let size = Size {
            blocks: 1,
            events: 20,
        };
        let mut document = BenchDocument::new("builder");
        let cell = udp_cell(&mut document, shape(512), &size).unwrap();
        assert_eq!(
            (&cell["name"], &cell["transport"]),
            (&json!("udp_2x2_2KiB"), &json!("udp"))
        );
        assert_eq!(cell["lost"], 0, "{cell}");
        // 40 events and more of 8 fragments, each a datagram.
        assert!(cell["datagrams_sent"].as_u64() > Some(320), "{cell}");
        assert!(cell["datagrams_lost"].is_u64() && cell["kernel_drops"].is_u64());
        assert!(document.floor["raw_udp_2x2_2KiB_datagrams_per_s"].as_f64() > Some(0.0));
        assert!(cell["to_raw"].as_f64() > Some(0.0), "{cell}");
        assert_eq!(cell["copies_per_byte"], 0.0);
        let long = too_long(shape(16 << 10));
        let reason = long["not_measured"].as_str().unwrap();
        assert_eq!(reason, "a page of 64 KiB fits no datagram: 65372 B at most");
    }

    #[test]
    fn pages_for_people_have_a_line_for_each_cell() {
        let mut document = BenchDocument::new("builder");
        let mut cell = cell(
            "udp",
            Shape {
                readout_units: 1,
                builder_units: 1,
                fragment_words: 64,
            },
            &[250.0],
        );
        cell.insert("datagrams_lost".to_owned(), json!(3));
        let long = too_long(Shape {
            readout_units: 1,
            builder_units: 1,
            fragment_words: 16 << 10,
        });
        document.add_result("grid", Value::Array(vec![cell.into(), long]));
        let text = super::super::page::to_text(&document.to_json());
        for part in [
            "grid, udp 1x1 256B",
            "fragments per s 4 000 000",
            "datagrams lost 3",
            "not measured a page of 64 KiB fits no datagram",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
