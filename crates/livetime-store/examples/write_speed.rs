//! How fast run files are written, beside plain writes of the same bytes; both end with a sync.
//!
//! `cargo run --release -p livetime-store --example write_speed [GIGABYTES] [DIRECTORY]`
//! prints one line per event size: run file, plain write, and their ratio, the two interleaved
//! three times. It measures the store alone: nothing is received, checked or filtered.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use livetime_store::{Condition, RunBegin, RunEnd, RunWriter, WriterLimits};
use livetime_wire::{RunNs, RunNumber, TriggerNumber};

const ROUNDS: usize = 3;
const PAYLOAD_BYTES: usize = 64 << 20;
const PLAIN_WRITE_BYTES: usize = 1 << 20;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let gigabytes = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2.0);
    let directory = arguments.next().unwrap_or_else(|| ".".to_owned());
    let total = (gigabytes * 1e9) as usize;
    let payload: Vec<u32> = (0..PAYLOAD_BYTES as u32 / 4)
        .map(|i| i.wrapping_mul(0x9E37_79B9))
        .collect();
    for event_bytes in [1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20] {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            rates[0].push(rate(
                total,
                run_file(Path::new(&directory), &payload, total, event_bytes)?,
            ));
            rates[1].push(rate(
                total,
                plain_file(Path::new(&directory), &payload, total)?,
            ));
        }
        let [run, plain] = rates.map(median);
        println!(
            "{:>7} B events: run file {run:>6.0} MB/s, plain write {plain:>6.0} MB/s, ratio {:.2}",
            event_bytes,
            run / plain
        );
    }
    Ok(())
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn run_file(
    directory: &Path,
    payload: &[u32],
    total: usize,
    event_bytes: usize,
) -> io::Result<Duration> {
    let path = directory.join("write_speed.mcap");
    let file = File::create(&path)?;
    let begin = RunBegin::new(RunNumber(1));
    let mut writer =
        RunWriter::new(file, &begin, WriterLimits::default()).map_err(io::Error::other)?;
    let event_words = event_bytes / 4;
    let start = Instant::now();
    for event in 0..total / event_bytes {
        let at = (event * event_words) % (payload.len() - event_words);
        // As a built event comes: its header, then pages of fragments.
        let (header, fragments) = payload[at..at + event_words].split_at(32);
        let (first, rest) = fragments.split_at(fragments.len() / 2);
        writer
            .write_event(
                TriggerNumber(event as u64),
                RunNs(event as u64),
                &[header, first, rest],
            )
            .map_err(io::Error::other)?;
    }
    let end = RunEnd::new(RunNumber(1), Condition::GOOD, "", 0);
    writer.finish(&end).map_err(io::Error::other)?;
    writer.into_inner().sync_data()?;
    let time = start.elapsed();
    std::fs::remove_file(path)?;
    Ok(time)
}

fn plain_file(directory: &Path, payload: &[u32], total: usize) -> io::Result<Duration> {
    let path = directory.join("write_speed.plain");
    let mut file = File::create(&path)?;
    let bytes = zerocopy::IntoBytes::as_bytes(payload);
    let start = Instant::now();
    let mut written = 0;
    while written < total {
        let at = written % (bytes.len() - PLAIN_WRITE_BYTES);
        let piece = PLAIN_WRITE_BYTES.min(total - written);
        file.write_all(&bytes[at..at + piece])?;
        written += piece;
    }
    file.sync_data()?;
    let time = start.elapsed();
    std::fs::remove_file(path)?;
    Ok(time)
}
