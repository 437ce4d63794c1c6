//! `store`: events into a new run file, beside plain writes of as many bytes; both end with a sync.
//!
//! The run file takes events as they are built, a header and pages of fragments in parts, with
//! checksums, chunks and index; the floor writes the same payload in pieces of 1 MiB. Each file is
//! new, is removed afterwards, and its time ends when the system says that its data are on the
//! disk. A block is a run file for each size of event, with a plain file before and after it. What is
//! measured is mostly the disk, which is why only the ratio counts. Not measured: filling the pages,
//! and disks that are nearly full.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use livetime_store::{Condition, RunBegin, RunEnd, RunWriter, WriterLimits};
use livetime_wire::{RunNs, RunNumber, TriggerNumber};
use serde_json::json;

use super::document::{BenchDocument, Target, median, rounded, time_per_item};
use super::interleave::{add_item_floor, interleave};
use super::{BenchError, BenchOptions};

/// Sizes of events, and whether the target holds for them.
const EVENT_BYTES: [(usize, bool); 5] = [
    (1 << 10, false),
    (4 << 10, false),
    (16 << 10, true),
    (64 << 10, true),
    (1 << 20, true),
];
/// What is written, again and again: larger than the caches.
const PAYLOAD_WORDS: usize = 16 << 20;
const PIECE_BYTES: usize = 1 << 20;
/// A disk of others is less steady than a processor.
const LIKE_DISKS: f64 = 1.5;

struct Size {
    blocks: usize,
    file_bytes: usize,
    payload_words: usize,
}

/// Measures.
///
/// # Errors
/// [`BenchError`] when a file cannot be written, or when an event is missing in it.
pub fn run(options: &BenchOptions) -> Result<BenchDocument, BenchError> {
    let size = if options.quick {
        Size {
            blocks: 1,
            file_bytes: 4 << 20,
            payload_words: 1 << 20,
        }
    } else {
        Size {
            blocks: 3,
            file_bytes: 2_000_000_000,
            payload_words: PAYLOAD_WORDS,
        }
    };
    let payload: Vec<u32> = (0..size.payload_words as u32)
        .map(|i| i.wrapping_mul(0x9E37_79B9))
        .collect();
    let bytes: Vec<u8> = payload.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut document = BenchDocument::new("store");
    document.add_result("file_bytes", size.file_bytes);
    let floor = || plain_file(&options.directory, &bytes, size.file_bytes);
    let block = || {
        let file_of = |(event_bytes, _): &(usize, bool)| {
            run_file(&options.directory, &payload, size.file_bytes, *event_bytes)
        };
        EVENT_BYTES
            .iter()
            .map(file_of)
            .collect::<Result<Vec<_>, _>>()
    };
    let measured = interleave(size.blocks, LIKE_DISKS, floor, block, |floor| *floor)?;
    let selection = measured.select(|floor| *floor, |_| ());
    add_item_floor(&mut document.floor, "write_ns_per_byte", &selection);
    let mut events = 0;
    for (index, (event_bytes, has_target)) in EVENT_BYTES.iter().enumerate() {
        let ratio =
            selection.quotient(|kept| (kept.floor(|floor| *floor), kept.block[index].ns_per_byte));
        let ns_per_byte = selection.all(|kept| kept.block[index].ns_per_byte);
        let times: Vec<f64> = (ns_per_byte.iter())
            .map(|ns| ns * *event_bytes as f64)
            .collect();
        let name = format!("{event_bytes}_bytes");
        document.add_result(
            name.clone(),
            json!({
                "event_ns": time_per_item(&times),
                "mb_per_s": rounded(1e3 / median(&ns_per_byte)),
                "blocks": selection.to_json(),
            }),
        );
        let written = selection.kept.iter().map(|kept| kept.block[index].events);
        events += written.sum::<u64>();
        document.add_quotient(format!("run_file_to_write_{name}"), ratio);
        if *has_target {
            let name = format!("run_file_to_write_{name}");
            document.add_target(selection.judged(Target::at_least(name, ratio.value(), 0.7)));
        }
    }
    document.add_result("events_stored", events);
    Ok(document)
}

/// What one block did.
struct Written {
    ns_per_byte: f64,
    events: u64,
}

/// A file that is removed whatever happens.
struct Scratch(PathBuf);

impl Scratch {
    fn create(directory: &Path, name: &str) -> Result<(Self, File), BenchError> {
        let path = directory.join(format!(".{name}-{}", std::process::id()));
        let file = File::create_new(&path).map_err(|source| BenchError::File {
            step: "creating a file",
            source,
        })?;
        Ok((Self(path), file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that cannot be removed is hidden and small beside what the next one says.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run_file(
    directory: &Path,
    payload: &[u32],
    total: usize,
    event_bytes: usize,
) -> Result<Written, BenchError> {
    let start = Instant::now();
    let (_scratch, file) = Scratch::create(directory, "livetime-bench-run")?;
    let begin = RunBegin::new(RunNumber(1));
    let mut writer = RunWriter::new(file, &begin, WriterLimits::default())?;
    let event_words = event_bytes / 4;
    let events = (total / event_bytes) as u64;
    for event in 0..events {
        let at = (event as usize * event_words) % (payload.len() - event_words);
        // As a built event comes: its header, then pages of fragments.
        let (header, fragments) = payload[at..at + event_words].split_at(32);
        let (first, rest) = fragments.split_at(fragments.len() / 2);
        writer.write_event(TriggerNumber(event), RunNs(event), &[header, first, rest])?;
    }
    let end = RunEnd::new(RunNumber(1), Condition::GOOD, "", 0);
    let summary = writer.finish(&end)?;
    sync(writer.output_mut())?;
    let ns = start.elapsed().as_secs_f64() * 1e9;
    if summary.events_stored != events {
        let (found, expected) = (summary.events_stored, events);
        return Err(BenchError::Conservation {
            what: "events stored",
            found,
            expected,
        });
    }
    Ok(Written {
        ns_per_byte: ns / (events as f64 * event_bytes as f64),
        events,
    })
}

/// Writes plainly; returns ns per byte.
fn plain_file(directory: &Path, payload: &[u8], total: usize) -> Result<f64, BenchError> {
    let start = Instant::now();
    let (_scratch, mut file) = Scratch::create(directory, "livetime-bench-plain")?;
    let mut written = 0;
    while written < total {
        let at = written % (payload.len() - PIECE_BYTES);
        let piece = PIECE_BYTES.min(total - written);
        file.write_all(&payload[at..at + piece])
            .map_err(|source| BenchError::File {
                step: "writing a file",
                source,
            })?;
        written += piece;
    }
    sync(&mut file)?;
    Ok(start.elapsed().as_secs_f64() * 1e9 / total as f64)
}

fn sync(file: &mut File) -> Result<(), BenchError> {
    file.sync_data().map_err(|source| BenchError::File {
        step: "syncing a file",
        source,
    })
}
