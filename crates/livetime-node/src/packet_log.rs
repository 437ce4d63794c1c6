//! The trigger packets of a run, stored with the decisions on them: so that Level 2 can decide again.
//!
//! The trigger node copies each packet that it answered into a ring; a thread of its own writes them
//! into `packets.mcap`, so that no decision waits for a disk. The file is a run file like any other:
//! an event for each packet, with the decision as its mask and the packet as its one fragment, of
//! source [`PACKET_SOURCE`]. Who decides again is `livetime replay RUN --into trigger`.
//!
//! Bytes per packet: one copy into the ring, one into the chunk, one into the kernel. When the ring is
//! full, or the disk, packets are not recorded and counted; only a lossless run waits for the ring.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use livetime_shm::{Consumer, Producer, RingConfig, heap_ring};
use livetime_store::{
    Condition, FileName, FilePart, RunBegin, RunEnd, RunReader, RunWriter, WriterLimits,
};
use livetime_wire::crc::crc32c;
use livetime_wire::event::{EventHeader, FragmentEntry};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{L2Mask, RunNs, RunNumber, SourceId, TriggerNumber};

/// Name of the file.
pub const PACKET_FILE: &str = "packets.mcap";
/// What its begin-of-run record says of its place among the files of the run.
const PACKET_STREAM: &str = "packets";
/// Source id of a stored trigger packet.
pub const PACKET_SOURCE: SourceId = SourceId(0x00FF_5450);
/// Packets that may wait for the disk.
const SLOTS: u32 = 8192;
/// Words before the packet in the ring: trigger, time, decision.
const HEAD_WORDS: usize = 8;
/// The writing thread looks again after this time when there was nothing.
const PAUSE: Duration = Duration::from_millis(1);
/// Pauses after which a chunk that is not full is handed over.
const PAUSES_TO_FLUSH: u32 = 1000;

/// Where and how packets are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketLogConfig {
    /// The file of the first trigger node, which must not exist; others have a number in its name.
    pub path: PathBuf,
    /// Whether a decision waits when the ring is full, instead of not being recorded.
    pub waits: bool,
}

/// What was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketLogCounts {
    /// Packets in the file.
    pub recorded: u64,
    /// Packets that the ring or the disk did not take.
    pub unrecorded: u64,
}

/// The trigger node's end.
pub struct PacketLog {
    ring: Producer,
    waits: bool,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
    words: Vec<u32>,
    given: u64,
    refused: u64,
    /// The last trigger, from which the full number of the next follows.
    last: u64,
}

impl PacketLog {
    /// Creates the file of a trigger node and starts the thread that writes it.
    ///
    /// # Errors
    /// What the system refused, in one sentence.
    pub fn start(
        config: &PacketLogConfig,
        run: RunNumber,
        node: u16,
        packet_words_max: usize,
    ) -> Result<Self, String> {
        let path = &path_of_node(&config.path, node);
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot create {}: {error}", path.display());
        let file = File::create_new(path).map_err(|error| failed(&error))?;
        let begin = begin_of(path, run, node);
        let writer = RunWriter::new(file, &begin, limits()).map_err(|error| failed(&error))?;
        let words = HEAD_WORDS + packet_words_max;
        let (ring, packets) = heap_ring(&RingConfig {
            slots: SLOTS,
            slot_words: words as u32,
        })
        .map_err(|error| failed(&error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::Builder::new()
            .name("packets".to_owned())
            .spawn(move || write_packets(writer, run, packets, &told))
            .map_err(|error| failed(&error))?;
        Ok(Self {
            ring,
            waits: config.waits,
            stop,
            thread: Some(thread),
            words: Vec::with_capacity(words),
            given: 0,
            refused: 0,
            last: 0,
        })
    }

    /// Whether a decision may be taken now: always, unless it is to wait for room.
    pub fn is_ready(&mut self) -> bool {
        !self.waits || self.ring.has_room()
    }

    /// Records a packet and the decision on it; `trigger_low` has the low bits of its number.
    pub fn record(&mut self, now: RunNs, trigger_low: u32, mask: L2Mask, packet: &[u32]) {
        // The number whose low bits these are and that is nearest to the last one.
        let near = self.last.wrapping_add(1 << 31) & !u64::from(u32::MAX) | u64::from(trigger_low);
        let trigger = match near > self.last.saturating_add(1 << 31) {
            true => near.saturating_sub(1 << 32),
            false => near,
        };
        self.last = self.last.max(trigger);
        self.words.clear();
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        self.words.extend(halves(trigger));
        self.words.extend(halves(now.0));
        self.words.extend(halves(mask.0 as u64));
        self.words.extend(halves((mask.0 >> 64) as u64));
        self.words.extend_from_slice(packet);
        match self.ring.try_push(&self.words) {
            Ok(()) => self.given += 1,
            Err(_) => self.refused += 1,
        }
    }

    /// Has the file closed and says what is in it.
    pub fn finish(mut self) -> PacketLogCounts {
        // Release pairs with the Acquire in `write_packets`: what was pushed before is seen.
        self.stop.store(true, Ordering::Release);
        let joined = self.thread.take().map(JoinHandle::join);
        let recorded = joined.and_then(Result::ok).unwrap_or(0);
        PacketLogCounts {
            recorded,
            unrecorded: self.refused + self.given - recorded.min(self.given),
        }
    }
}

/// The begin-of-run record of the run, out of its main file, which is begun before any role starts; on
/// a host that does not have it, one with the run number alone.
fn begin_of(path: &Path, run: RunNumber, node: u16) -> RunBegin {
    let main = path.with_file_name(FileName::default().to_string());
    let main = File::open(main)
        .ok()
        .and_then(|file| RunReader::open(file).ok());
    let of_run = main.and_then(|main| main.begin().cloned());
    let begin = of_run.filter(|begin| begin.run == run.0);
    RunBegin {
        // Chunks of this file are none of the main one.
        file: Some(FilePart {
            writer: node,
            stream: PACKET_STREAM.to_owned(),
            ..FilePart::default()
        }),
        ..begin.unwrap_or_else(|| RunBegin::new(run))
    }
}

fn limits() -> WriterLimits {
    WriterLimits {
        event_bytes_max: 1 << 20,
        ..WriterLimits::default()
    }
}

/// Writes packets until it is told to stop and none is left; returns how many are in the file.
fn write_packets(
    mut writer: RunWriter<File>,
    run: RunNumber,
    mut packets: Consumer,
    stop: &AtomicBool,
) -> u64 {
    let mut header = Vec::new();
    let (mut pauses, mut failed, mut last) = (0, false, RunNs(0));
    loop {
        // Acquire pairs with the Release in `finish`.
        let is_last_look = stop.load(Ordering::Acquire);
        while let Ok(Some(time)) = packets.try_pop(|words| {
            if failed {
                return last;
            }
            let (time, written) = write_packet(&mut writer, run, words, &mut header);
            failed = written.is_err();
            time
        }) {
            last = time;
        }
        if is_last_look {
            break;
        }
        pauses += 1;
        if pauses % PAUSES_TO_FLUSH == 0 && !failed && writer.events_pending() > 0 {
            failed = writer.flush_chunk().is_err();
        }
        std::thread::sleep(PAUSE);
    }
    close(&mut writer, run, last);
    writer.events_stored()
}

/// Closes the file behind its last whole chunk. What is complete is counted, closed or not.
fn close(writer: &mut RunWriter<File>, run: RunNumber, last: RunNs) {
    let cut = |file: &mut File, bytes: u64| {
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes)).map(|_| ())
    };
    let reason = "the trigger packets of the run";
    let end = RunEnd::new(run, Condition::GOOD, reason, last.0);
    // A disk that took no more may have room for less; a second time it may have none for that.
    for _ in 0..2 {
        if writer.rewind_to_complete(cut).is_ok() && writer.finish(&end).is_ok() {
            return;
        }
    }
    let _cut_off = writer.rewind_to_complete(cut);
}

fn write_packet(
    writer: &mut RunWriter<File>,
    run: RunNumber,
    words: &[u32],
    header: &mut Vec<u32>,
) -> (RunNs, Result<(), livetime_store::WriteError>) {
    let (head, packet) = words.split_at(HEAD_WORDS.min(words.len()));
    let pair = |at: usize| u64::from(head[at]) | u64::from(head[at + 1]) << 32;
    let (trigger, time) = (TriggerNumber(pair(0)), RunNs(pair(2)));
    let event = EventHeader {
        run,
        trigger,
        triggered_at: time,
        mask: L2Mask(u128::from(pair(4)) | u128::from(pair(6)) << 64),
        filter_reason: 0,
        streams: 0,
    };
    let entry = FragmentEntry {
        source: PACKET_SOURCE,
        words: packet.len() as u32,
        status: FragmentStatus::GOOD,
        crc: crc32c(packet),
    };
    header.clear();
    event.emit(&[entry], &[], header);
    (time, writer.write_event(trigger, time, &[header, packet]))
}

/// The file of a trigger node's packets, beside that of the first one.
fn path_of_node(first: &Path, node: u16) -> PathBuf {
    match node {
        0 => first.to_owned(),
        _ => first.with_file_name(format!("packets-{node}.mcap")),
    }
}

/// The packet files that are there beside a run file or in a run directory, one for each trigger
/// node.
pub fn packet_files_of(run: &Path) -> Vec<PathBuf> {
    (0..=u16::MAX)
        .map(|node| packet_file_of(run, node))
        .take_while(|path| path.is_file())
        .collect()
}

/// The path of a trigger node's packets beside a run file or in a run directory.
pub fn packet_file_of(run: &Path, node: u16) -> PathBuf {
    let first = match run.is_dir() {
        true => run.join(PACKET_FILE),
        false => run.with_file_name(PACKET_FILE),
    };
    path_of_node(&first, node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log in a folder that waits rather than lose a packet.
    fn waiting_log(folder: &Path) -> PacketLogConfig {
        PacketLogConfig {
            path: folder.join(PACKET_FILE),
            waits: true,
        }
    }

    #[test]
    fn packets_have_the_record_of_the_run_that_they_are_of() {
        let folder = tempfile::tempdir().unwrap();
        let config = waiting_log(folder.path());
        let of_run = RunBegin {
            seed: 7,
            config: "format = 1\n".to_owned(),
            started_tai_ns: 5,
            ..RunBegin::new(RunNumber(3))
        };
        let main = File::create(folder.path().join("events.mcap")).unwrap();
        let main = RunWriter::new(main, &of_run, limits());
        drop(main.unwrap());
        for (run, node, seed) in [(3, 0, 7), (4, 1, 0)] {
            let log = PacketLog::start(&config, RunNumber(run), node, 16).unwrap();
            log.finish();
            let path = packet_file_of(folder.path(), node);
            let reader = RunReader::open(File::open(path).unwrap()).unwrap();
            let begin = reader.begin().unwrap();
            assert_eq!((begin.run, begin.seed), (run, seed));
            assert_eq!(begin.config.is_empty(), seed == 0, "of another run");
            assert_ne!(begin.file, None);
        }
    }

    #[test]
    fn packets_and_decisions_come_back_with_full_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let config = waiting_log(folder.path());
        let mut log = PacketLog::start(&config, RunNumber(3), 0, 16).unwrap();
        assert!(
            PacketLog::start(&config, RunNumber(3), 0, 16).is_err(),
            "it is there"
        );
        log.last = (1 << 32) - 3;
        let first = log.last;
        // Out of order around the place where the low bits wrap.
        let triggers: Vec<u64> = [1, 2, 4, 3, 6, 5].map(|n| first + n).to_vec();
        for trigger in &triggers {
            assert!(log.is_ready());
            let mask = L2Mask(u128::from(*trigger) << 40);
            log.record(
                RunNs(trigger * 7),
                *trigger as u32,
                mask,
                &[*trigger as u32, 9],
            );
        }
        let counts = log.finish();
        assert_eq!((counts.recorded, counts.unrecorded), (6, 0));
        let mut reader = RunReader::open(File::open(&config.path).unwrap()).unwrap();
        assert!(reader.end().is_some());
        let mut found = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            let trigger = event.header().trigger.0;
            assert_eq!(event.header().triggered_at, RunNs(trigger * 7));
            assert_eq!(event.header().mask, L2Mask(u128::from(trigger) << 40));
            let (entry, words) = event.fragments().next().unwrap();
            assert_eq!(
                (entry.source, words),
                (PACKET_SOURCE, &[trigger as u32, 9][..])
            );
            found.push(trigger);
        }
        assert_eq!(found, triggers);
    }
}
